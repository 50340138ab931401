//! The one way to the terminal: a locked, buffered writer that knows about colours.
//!
//! Nothing else in the program writes to stdout. Text from outside has no
//! control characters left when it gets here (see [`super::humane::safe`]), so
//! a hostile URL cannot drive the reader's terminal.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use super::humane;
use crate::log::AsciiJson;

/// Columns of a line where nobody says how many there are.
pub const USUAL_WIDTH: usize = 100;
/// Narrower than this is not honoured: a report needs some room.
const LEAST_WIDTH: usize = 40;
/// Lines longer than this are hard to read, however wide the terminal is.
const MOST_WIDTH: usize = 160;
/// Columns before what is so of something.
pub const FACT_INDENT: usize = 11;

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How a piece of text is meant; what colour that is, is decided here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// A heading.
    Strong,
    /// Less important than what is around it.
    Faint,
    /// As it should be, or more of it.
    Good,
    /// Worth a look.
    Warn,
    /// Wrong, or gone.
    Bad,
    /// Something to note, such as an address.
    Note,
}

impl Tone {
    /// The SGR parameter (ECMA-48 section 8.3.117) of this tone.
    fn sgr(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("1"),
            Self::Faint => Some("2"),
            Self::Good => Some("32"),
            Self::Warn => Some("33"),
            Self::Bad => Some("31"),
            Self::Note => Some("36"),
        }
    }
}

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    colored: bool,
}

impl Color {
    /// Are colours wanted on this stream? One rule for what is printed and for the log.
    pub fn is_wanted_on(self, stream: &impl IsTerminal) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            // https://no-color.org: set and not empty.
            Self::Auto => {
                stream.is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }
}

impl Palette {
    /// No colours.
    pub const PLAIN: Self = Self { colored: false };

    /// Colours on stdout, as the user wants them.
    fn of(color: Color) -> Self {
        Self { colored: color.is_wanted_on(&io::stdout()) }
    }

    /// The text in the colour of its tone, or as it is where colours are off.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        match tone.sgr() {
            Some(sgr) if self.colored && !text.is_empty() => format!("\x1b[{sgr}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// A writer to stdout, locked for as long as it lives.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    palette: Palette,
    width: usize,
    table_width: usize,
}

impl Output {
    /// Locks stdout.
    pub fn stdout(color: Color) -> Self {
        let out = BufWriter::new(io::stdout().lock());
        let width = terminal_width();
        let table_width = width.unwrap_or(usize::MAX);
        let width = width.unwrap_or(USUAL_WIDTH);
        Self { out, palette: Palette::of(color), width, table_width }
    }

    /// The same without colours on a terminal that is so wide.
    #[cfg(test)]
    pub fn of_width(width: usize) -> Self {
        Self { width, table_width: width, ..Self::stdout(Color::Never) }
    }

    /// Columns that a line may have: those of the terminal, and [`USUAL_WIDTH`]
    /// where there is none.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Columns that a row of a table may have: those of the terminal. Where there is
    /// none nothing is cut, for the next program in the pipe wants whole URLs.
    pub fn table_width(&self) -> usize {
        self.table_width
    }

    /// The colours in use.
    pub fn palette(&self) -> Palette {
        self.palette
    }

    /// The text in the colour of its tone, or as it is where colours are off.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        self.palette.paint(tone, text)
    }

    /// Writes what is so of something that has a name of eight letters at most, in several
    /// lines where the terminal is narrow. A colour counts as text here: at worst a line is
    /// broken before it has to be.
    pub fn fact(&mut self, name: &str, value: &str) -> io::Result<()> {
        let mut name = self.paint(Tone::Faint, &format!("{name:<8}"));
        for line in humane::wrap(value, self.width - FACT_INDENT) {
            self.line(&format!("  {name} {line}"))?;
            name = " ".repeat(8);
        }
        Ok(())
    }

    /// Writes one line.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Writes one line in one tone.
    pub fn toned(&mut self, tone: Tone, text: &str) -> io::Result<()> {
        let painted = self.paint(tone, text);
        self.line(&painted)
    }

    /// Writes a value as indented JSON; a terminal takes nothing in it for a command.
    pub fn json<T: serde::Serialize>(&mut self, value: &T) -> io::Result<()> {
        serde_json::to_writer_pretty(AsciiJson(&mut self.out), value)?;
        writeln!(self.out)
    }

    /// The same in one line.
    pub fn json_line<T: serde::Serialize>(&mut self, value: &T) -> io::Result<()> {
        serde_json::to_writer(AsciiJson(&mut self.out), value)?;
        writeln!(self.out)
    }

    /// Hands what was written to the reader.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The columns of the terminal that stdout is, if it is one that says.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let columns = usize::from(size.ws_col);
    (columns > 0).then(|| columns.clamp(LEAST_WIDTH, MOST_WIDTH))
}
