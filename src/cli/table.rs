//! Aligned tables, never wider than the terminal, and than 100 columns without one.
//!
//! Elastic columns give way, the widest first: where a row would be too wide,
//! their text is cut in the middle. Cells are made safe to print here, so callers may pass
//! text from outside as it is.

use std::collections::BTreeMap;
use std::io;

use super::humane;
use super::output::{Output, Palette, Tone};

/// The widest line where the terminal does not say.
pub const MAX_WIDTH: usize = super::output::USUAL_WIDTH;
/// An elastic column keeps at least this many characters.
const MIN_ELASTIC: usize = 12;
/// Between two columns.
const GAP: usize = 2;
/// Before what is said under a row.
const NOTE_INDENT: usize = 4;

/// To which side a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
    /// Words that are cut where the table would be too wide.
    Elastic,
}

/// One field of a row.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A field in a tone.
    pub fn toned(tone: Tone, text: &str) -> Self {
        Self { text: humane::safe(text), tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::toned(Tone::Plain, &text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::toned(Tone::Plain, text)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self { text: humane::number(value), tone: Tone::Plain }
    }
}

/// Rows under named columns.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
    /// What is said under rows, by their numbers.
    notes: BTreeMap<usize, String>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), notes: BTreeMap::new() }
    }

    /// Adds a row; it has as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "a row fills the columns");
        self.rows.push(cells);
    }

    /// Says something more of the last row, under it.
    pub fn note(&mut self, text: &str) {
        if let Some(last) = self.rows.len().checked_sub(1) {
            self.notes.insert(last, humane::safe(text));
        }
    }

    /// Is there no row?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints the heading and the rows.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        let heading: Vec<Cell> =
            self.columns.iter().map(|(title, _)| Cell::toned(Tone::Faint, title)).collect();
        self.print_under(Some(&heading), out)
    }

    /// The same without a heading where there is one column only: what it is
    /// has been said.
    pub fn print_list(&self, out: &mut Output) -> io::Result<()> {
        if self.columns.len() > 1 { self.print(out) } else { self.print_under(None, out) }
    }

    fn print_under(&self, heading: Option<&Vec<Cell>>, out: &mut Output) -> io::Result<()> {
        let widths = self.widths(out.width());
        let print = |row: &[Cell], out: &mut Output| {
            let line = render(row, &widths, &self.columns, out.palette());
            out.line(line.trim_end())
        };
        if let Some(heading) = heading {
            print(heading, out)?;
        }
        for (at, row) in self.rows.iter().enumerate() {
            print(row, out)?;
            for line in self.note_of(at, out.width()) {
                out.toned(Tone::Faint, &line)?;
            }
        }
        Ok(())
    }

    /// The lines under a row.
    fn note_of(&self, row: usize, max: usize) -> Vec<String> {
        let Some(note) = self.notes.get(&row) else { return Vec::new() };
        let room = max.saturating_sub(NOTE_INDENT);
        let lines = humane::wrap(note, room).into_iter();
        lines.map(|line| " ".repeat(NOTE_INDENT) + &humane::cut_middle(&line, room)).collect()
    }

    fn widths(&self, max: usize) -> Vec<usize> {
        let mut widths: Vec<usize> =
            self.columns.iter().map(|(title, _)| title.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let mut over = total.saturating_sub(max);
        while over > 0 {
            let elastic = self.columns.iter().map(|(_, align)| *align == Align::Elastic);
            let widest = widths.iter_mut().zip(elastic).filter(|(_, elastic)| *elastic);
            let Some((width, _)) = widest.max_by_key(|(width, _)| **width) else { break };
            if *width <= MIN_ELASTIC {
                break;
            }
            *width -= 1;
            over -= 1;
        }
        widths
    }
}

fn render(
    row: &[Cell],
    widths: &[usize],
    columns: &[(&'static str, Align)],
    palette: Palette,
) -> String {
    let mut line = String::new();
    for (at, ((cell, width), (_, align))) in row.iter().zip(widths).zip(columns).enumerate() {
        if at > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        let text = humane::cut_middle(&cell.text, *width);
        let padding = " ".repeat(width.saturating_sub(text.chars().count()));
        let painted = palette.paint(cell.tone, &text);
        match align {
            Align::Right => line.extend([padding, painted]),
            Align::Left | Align::Elastic => line.extend([painted, padding]),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(table: &Table) -> Vec<String> {
        let widths = table.widths(MAX_WIDTH);
        table
            .rows
            .iter()
            .map(|row| render(row, &widths, &table.columns, Palette::PLAIN).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let mut table = Table::new(&[("name", Align::Left), ("urls", Align::Right)]);
        table.row(vec!["a".into(), 5_u64.into()]);
        table.row(vec!["blog".into(), 12_340_u64.into()]);
        assert_eq!(lines(&table), ["a          5", "blog  12,340"]);
    }

    #[test]
    fn a_row_with_a_long_url_stays_within_a_hundred_columns() {
        let mut table =
            Table::new(&[("site", Align::Left), ("url", Align::Elastic), ("next", Align::Left)]);
        let url = format!("https://example.org/{}/end.html", "x".repeat(300));
        table.row(vec!["a".into(), url.into(), "in 3 h".into()]);
        let line = &lines(&table)[0];
        assert!(line.chars().count() <= MAX_WIDTH, "{line}");
        assert!(line.contains("https://example.org/") && line.contains("end.html"), "{line}");
    }

    #[test]
    fn text_from_outside_cannot_break_a_row() {
        let mut table = Table::new(&[("error", Align::Left)]);
        table.row(vec!["one\ntwo\x1b[31m".into()]);
        table.note("three\nfour");
        assert_eq!(lines(&table), ["one\\u{a}two\\u{1b}[31m"]);
        assert_eq!(table.note_of(0, MAX_WIDTH), ["    three\\u{a}four"]);
    }

    #[test]
    fn what_is_said_under_a_row_is_broken_at_the_width_and_touches_no_other() {
        let mut table = Table::new(&[("name", Align::Left)]);
        table.row(vec!["a".into()]);
        table.note(&format!("{} {}", "word ".repeat(30), "x".repeat(200)));
        table.row(vec!["b".into()]);
        let note = table.note_of(0, MAX_WIDTH);
        assert_eq!(note.len(), 3, "{note:?}");
        assert!(note.iter().all(|line| line.chars().count() <= MAX_WIDTH), "{note:?}");
        assert!(table.note_of(1, MAX_WIDTH).is_empty());
    }
}
