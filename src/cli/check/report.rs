//! `check` for a person: what it is, what is in it, what is wrong, what to do.

use std::io;

use jiff::{SignedDuration, Timestamp};

use super::input::Document;
use super::reading::{Child, Listed, Reading};
use crate::cli::humane::{self, count};
use crate::cli::output::{Output, Tone};
use crate::cli::table::{Align, Cell, MAX_WIDTH, Table};
use crate::model::{ChangeFreq, DocumentKind, Priority};
use crate::parse::{Issue, Severity};

/// A date further ahead than this is none to the daemon, as in `diff`.
const FUTURE: SignedDuration = SignedDuration::from_hours(24);
/// Where the text of an issue begins.
const INDENT: usize = 11;

/// Prints the report.
pub(super) fn print(
    document: &Document,
    reading: &Reading,
    all: bool,
    now: Timestamp,
    out: &mut Output,
) -> io::Result<()> {
    let name = humane::cut_middle(&humane::safe(&document.name), MAX_WIDTH - 30);
    let verdict = if reading.is_usable() {
        out.paint(Tone::Good, in_words(reading.report.kind))
    } else {
        out.paint(Tone::Bad, "nothing that can be read")
    };
    out.line(&format!("{}: {verdict}", out.paint(Tone::Strong, &name)))?;
    summary(document, reading, now, out)?;
    sample(reading, all, out)?;
    issues(&reading.report.issues, out)
}

/// What a kind of document is called.
pub(super) fn in_words(kind: DocumentKind) -> &'static str {
    match kind {
        DocumentKind::Urlset => "a sitemap",
        DocumentKind::Index => "a sitemap index",
        DocumentKind::Mixed => "a sitemap and an index in one file",
        DocumentKind::Text => "a text sitemap",
        DocumentKind::Rss => "an RSS feed",
        DocumentKind::Atom => "an Atom feed",
        DocumentKind::Rdf => "an RSS 1.0 (RDF) feed",
        DocumentKind::JsonFeed => "a JSON Feed",
        DocumentKind::Robots => "a robots.txt",
        DocumentKind::Unsupported => "not a sitemap, feed or robots.txt",
    }
}

fn summary(
    document: &Document,
    reading: &Reading,
    now: Timestamp,
    out: &mut Output,
) -> io::Result<()> {
    let report = &reading.report;
    let size = match reading.compression {
        Some(coding) => format!(
            "{}, {coding} of {}",
            humane::bytes(report.bytes),
            humane::bytes(document.body.len() as u64)
        ),
        None => humane::bytes(report.bytes),
    };
    fact(out, "size", &format!("{size}, {}", report.encoding))?;
    let mut lists = vec![count(reading.entries_total as u64, "URL", "URLs")];
    if reading.sitemaps_total > 0 {
        lists.push(count(reading.sitemaps_total as u64, "sitemap", "sitemaps"));
    }
    if report.window {
        lists.push("only the latest, so nothing is missed when it leaves".to_owned());
    }
    fact(out, "lists", &lists.join(", "))?;
    if reading.entries_total > 0 {
        let dated = humane::number(reading.dated as u64);
        let text = match reading.newest {
            Some(newest) if newest.at.duration_since(now) > FUTURE => {
                format!(
                    "{dated} have one, the newest {newest}, which counts as none: it is to come"
                )
            }
            Some(newest) => format!("{dated} have one, the newest {newest}"),
            None => "none has one".to_owned(),
        };
        fact(out, "dates", &text)?;
    }
    if let Some(named) = named(reading.named) {
        fact(out, "names", &named)?;
    }
    if reading.out_of_scope > 0 {
        let others = count(reading.out_of_scope as u64, "URL is", "URLs are");
        fact(out, "scope", &format!("{others} out of scope, which the daemon leaves out"))?;
    }
    let whole = if report.complete { "yes" } else { "no: nothing would count as removed" };
    fact(out, "complete", whole)
}

/// What entries name beside themselves, in words.
fn named([images, videos, news, alternates]: [usize; 4]) -> Option<String> {
    let words = [
        (images, "image", "images"),
        (videos, "video", "videos"),
        (news, "news article", "news articles"),
        (alternates, "alternate", "alternates"),
    ];
    let some = words.into_iter().filter(|(number, ..)| *number > 0);
    let told: Vec<_> = some.map(|(number, one, more)| count(number as u64, one, more)).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

fn fact(out: &mut Output, name: &str, value: &str) -> io::Result<()> {
    let name = out.paint(Tone::Faint, &format!("{name:<9}"));
    out.line(&format!("  {name} {value}"))
}

fn sample(reading: &Reading, all: bool, out: &mut Output) -> io::Result<()> {
    if !reading.sitemaps.is_empty() {
        heading("Sitemaps", reading.sitemaps.len(), reading.sitemaps_total, all, out)?;
        let mut table = Table::new(&[("  url", Align::Elastic), ("lastmod", Align::Left)]);
        for Child { loc, lastmod } in &reading.sitemaps {
            table.row(vec![format!("  {loc}").into(), or_dash(lastmod.as_ref())]);
        }
        table.print(out)?;
    }
    if !reading.entries.is_empty() {
        heading("URLs", reading.entries.len(), reading.entries_total, all, out)?;
        let mut table = Table::new(&[
            ("  url", Align::Elastic),
            ("date", Align::Left),
            ("changefreq", Align::Left),
            ("priority", Align::Right),
        ]);
        for entry in &reading.entries {
            table.row(row(entry));
        }
        table.print(out)?;
    }
    Ok(())
}

fn heading(what: &str, shown: usize, total: usize, all: bool, out: &mut Output) -> io::Result<()> {
    out.line("")?;
    if all || shown == total {
        return out.toned(Tone::Strong, what);
    }
    let total = humane::number(total as u64);
    let rest = out.paint(Tone::Faint, &format!("(the first {shown} of {total})"));
    out.line(&format!("{} {rest}", out.paint(Tone::Strong, what)))
}

fn row(entry: &Listed) -> Vec<Cell> {
    let tone = if entry.in_scope == Some(false) { Tone::Warn } else { Tone::Plain };
    let date = entry.lastmod.or(entry.updated).or(entry.published);
    vec![
        Cell::toned(tone, &format!("  {}", entry.loc)),
        or_dash(date.as_ref()),
        or_dash(entry.changefreq.map(ChangeFreq::as_str).as_ref()),
        or_dash(entry.priority.map(Priority::as_f64).as_ref()),
    ]
}

fn or_dash(value: Option<&impl ToString>) -> Cell {
    value.map_or_else(|| "-".to_owned(), ToString::to_string).into()
}

fn issues(issues: &[Issue], out: &mut Output) -> io::Result<()> {
    out.line("")?;
    if issues.is_empty() {
        return out.toned(Tone::Good, "No issues");
    }
    out.toned(Tone::Strong, "Issues")?;
    let mut sorted: Vec<&Issue> = issues.iter().collect();
    // Stable: of equal severity, what comes first in the document comes first.
    sorted.sort_by_key(|issue| std::cmp::Reverse(issue.severity));
    for issue in sorted {
        print_issue(issue, out)?;
    }
    Ok(())
}

fn print_issue(issue: &Issue, out: &mut Output) -> io::Result<()> {
    let (word, tone) = match issue.severity {
        Severity::Warning => ("warning", Tone::Warn),
        Severity::Error => ("error", Tone::Bad),
        Severity::Fatal => ("fatal", Tone::Bad),
    };
    let mut place = Vec::new();
    if issue.count > 1 {
        place.push(format!("{} times", humane::number(issue.count)));
    }
    if issue.line > 0 {
        let first = if issue.count > 1 { "first in line" } else { "line" };
        place.push(format!("{first} {}", humane::number(issue.line)));
    }
    let place = if place.is_empty() { String::new() } else { format!(" ({})", place.join(", ")) };
    let word = out.paint(tone, &format!("{word:<8}"));
    out.line(&format!("  {word} {}{place}", issue.code.title()))?;
    let room = MAX_WIDTH - INDENT;
    let margin = " ".repeat(INDENT);
    if !issue.sample.is_empty() {
        let sample = humane::cut_middle(&humane::safe(&issue.sample), room);
        out.line(&format!("{margin}{}", out.paint(Tone::Note, &sample)))?;
    }
    for line in humane::wrap(issue.code.advice(), room) {
        out.line(&format!("{margin}{}", out.paint(Tone::Faint, &line)))?;
    }
    Ok(())
}
