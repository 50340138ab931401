//! What a document lists, as tables: all of it, or the first few.

use std::io;

use crate::cli::check::reading::{Child, Listed, Reading};
use crate::cli::humane::number;
use crate::cli::output::{Output, Tone};
use crate::cli::table::{Align, Cell, Table};
use crate::model::{ChangeFreq, Lastmod, Priority};

/// Prints the sitemaps and the URLs, each if there are any.
pub(super) fn print(reading: &Reading, all: bool, out: &mut Output) -> io::Result<()> {
    if !reading.sitemaps.is_empty() {
        heading("Sitemaps", reading.sitemaps.len(), reading.sitemaps_total, all, out)?;
        children(&reading.sitemaps).print_list(out)?;
    }
    if !reading.entries.is_empty() {
        heading("URLs", reading.entries.len(), reading.entries_total, all, out)?;
        entries(&reading.entries).print_list(out)?;
    }
    Ok(())
}

fn heading(what: &str, shown: usize, total: usize, all: bool, out: &mut Output) -> io::Result<()> {
    out.line("")?;
    if all || shown == total {
        return out.toned(Tone::Strong, what);
    }
    let total = number(total as u64);
    let rest =
        out.paint(Tone::Faint, &format!("(the first {shown} of {total}; --entries lists all)"));
    out.line(&format!("{} {rest}", out.paint(Tone::Strong, what)))
}

fn children(sitemaps: &[Child]) -> Table {
    let dated = sitemaps.iter().any(|child| child.lastmod.is_some());
    let mut columns = vec![("  url", Align::Elastic)];
    columns.extend(dated.then_some(("lastmod", Align::Left)));
    let mut table = Table::new(&columns);
    for Child { loc, lastmod } in sitemaps {
        let mut row: Vec<Cell> = vec![format!("  {loc}").into()];
        row.extend(dated.then(|| or_dash(lastmod.as_ref())));
        table.row(row);
    }
    table
}

/// A column is there only if one of the entries has something for it.
fn entries(entries: &[Listed]) -> Table {
    let has = |field: fn(&Listed) -> bool| entries.iter().any(field);
    let (dated, often, ranked) = (
        has(|entry| date(entry).is_some()),
        has(|entry| entry.changefreq.is_some()),
        has(|entry| entry.priority.is_some()),
    );
    let mut columns = vec![("  url", Align::Elastic)];
    columns.extend(dated.then_some(("date", Align::Left)));
    columns.extend(often.then_some(("changefreq", Align::Left)));
    columns.extend(ranked.then_some(("priority", Align::Right)));
    let mut table = Table::new(&columns).without_if_narrow(&["changefreq", "priority"]);
    for entry in entries {
        let tone = if entry.in_scope == Some(false) { Tone::Warn } else { Tone::Plain };
        let mut row = vec![Cell::toned(tone, &format!("  {}", entry.loc))];
        row.extend(dated.then(|| or_dash(date(entry).as_ref())));
        row.extend(often.then(|| or_dash(entry.changefreq.map(ChangeFreq::as_str).as_ref())));
        row.extend(ranked.then(|| or_dash(entry.priority.map(decimal).as_ref())));
        table.row(row);
    }
    table
}

fn date(entry: &Listed) -> Option<Lastmod> {
    entry.lastmod.or(entry.updated).or(entry.published)
}

/// With a digit behind the point at least, so that points are aligned.
fn decimal(priority: Priority) -> String {
    let value = priority.as_f64();
    if priority.thousandths().is_multiple_of(100) {
        format!("{value:.1}")
    } else {
        value.to_string()
    }
}

fn or_dash(value: Option<&impl ToString>) -> Cell {
    value.map_or_else(|| "-".to_owned(), ToString::to_string).into()
}
