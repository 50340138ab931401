//! Aligned tables, never wider than the terminal, and than 100 columns without one.
//!
//! Elastic columns give way, the widest first: where a row would be too wide,
//! their text is cut in the middle. Before they are too narrow to tell rows apart, columns
//! go that a reader can do without; `--json` has them all. Numbers are never cut. Cells are
//! made safe to print here, so callers may pass text from outside as it is.

use std::collections::BTreeMap;
use std::io;

use super::humane;
use super::output::{Output, Palette, Tone};

/// An elastic column keeps at least this many characters while others can go instead.
const MIN_ELASTIC: usize = 12;
/// What words are cut to where nothing else helps.
const LEAST: usize = 4;
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
    /// Columns that go where there is no room for all, the first of them first.
    optional: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// What is said under rows, by their numbers.
    notes: BTreeMap<usize, String>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        let optional = Vec::new();
        Self { columns: columns.to_vec(), optional, rows: Vec::new(), notes: BTreeMap::new() }
    }

    /// The same where these columns, if they are there, may go, the first of them first.
    #[must_use]
    pub fn without_if_narrow(self, optional: &[&'static str]) -> Self {
        Self { optional: optional.to_vec(), ..self }
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
        let widths = self.widths(out.table_width());
        if let Some(heading) = heading {
            out.line(&self.render(heading, &widths, out.palette()))?;
        }
        for (at, row) in self.rows.iter().enumerate() {
            out.line(&self.render(row, &widths, out.palette()))?;
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

    /// The width of each column; `None` for one that is not shown.
    fn widths(&self, max: usize) -> Vec<Option<usize>> {
        let mut widths: Vec<Option<usize>> =
            self.columns.iter().map(|(title, _)| Some(title.chars().count())).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(Some(cell.text.chars().count()));
            }
        }
        for name in &self.optional {
            if self.least(&widths) <= max {
                break;
            }
            for ((title, _), width) in self.columns.iter().zip(&mut widths) {
                if title == name {
                    *width = None;
                }
            }
        }
        let is_elastic = |align| align == Align::Elastic;
        self.narrow(&mut widths, max, MIN_ELASTIC, is_elastic);
        self.narrow(&mut widths, max, LEAST, |align| align != Align::Right);
        widths
    }

    /// How wide a row is at least, where only elastic columns give way.
    fn least(&self, widths: &[Option<usize>]) -> usize {
        let cut = |(width, (_, align)): (&Option<usize>, &(&str, Align))| match align {
            Align::Elastic => width.map(|width| width.min(MIN_ELASTIC)),
            Align::Left | Align::Right => *width,
        };
        total(&widths.iter().zip(&self.columns).map(cut).collect::<Vec<_>>())
    }

    /// Makes the widest of some columns narrower, until a row has room or all of them are
    /// down to `least`.
    fn narrow(
        &self,
        widths: &mut [Option<usize>],
        max: usize,
        least: usize,
        is_meant: impl Fn(Align) -> bool,
    ) {
        for _ in max..total(widths) {
            let meant = widths.iter_mut().zip(&self.columns).filter(|(_, (_, a))| is_meant(*a));
            let widest = meant.filter_map(|(width, _)| width.as_mut()).max_by_key(|width| **width);
            match widest {
                Some(width) if *width > least => *width -= 1,
                _ => return,
            }
        }
    }

    fn render(&self, row: &[Cell], widths: &[Option<usize>], palette: Palette) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
            let Some(width) = *width else { continue };
            if !line.is_empty() {
                line.push_str(&" ".repeat(GAP));
            }
            let text = humane::cut_middle(&cell.text, width);
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            let painted = palette.paint(cell.tone, &text);
            match align {
                Align::Right => line.extend([padding, painted]),
                Align::Left | Align::Elastic => line.extend([painted, padding]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// How wide a row of such columns is.
fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::USUAL_WIDTH as MAX_WIDTH;

    fn lines(table: &Table) -> Vec<String> {
        lines_within(table, MAX_WIDTH)
    }

    fn lines_within(table: &Table, max: usize) -> Vec<String> {
        let widths = table.widths(max);
        table.rows.iter().map(|row| table.render(row, &widths, Palette::PLAIN)).collect()
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
    fn columns_go_before_a_url_says_nothing_and_numbers_stay_whole() {
        let mut table = Table::new(&[
            ("url", Align::Elastic),
            ("kind", Align::Left),
            ("urls", Align::Right),
            ("polled", Align::Right),
        ])
        .without_if_narrow(&["polled", "kind"]);
        let url = format!("https://example.org/{}/end.html", "x".repeat(300));
        let kind = "json-feed".repeat(3);
        table.row(vec![url.into(), kind.into(), 1_234_567_u64.into(), "12 min ago".into()]);
        for (max, shown) in [(80, 4), (60, 3), (40, 2), (16, 2)] {
            let line = &lines_within(&table, max)[0];
            assert!(line.chars().count() <= max, "{max}: {line}");
            assert!(line.contains("1,234,567"), "{max}: {line}");
            assert_eq!(table.widths(max).iter().flatten().count(), shown, "{max}: {line}");
        }
    }

    #[test]
    fn a_row_without_optional_columns_stays_within_any_terminal() {
        let mut table = Table::new(&[("site", Align::Left), ("url", Align::Elastic)]);
        table.row(vec!["s".repeat(100).into(), "u".repeat(100).into()]);
        for max in [40, 60, 80, 100, 160] {
            let line = &lines_within(&table, max)[0];
            assert_eq!(line.chars().count(), max, "{line}");
        }
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
