//! `check` for a person: what it is, what is wrong with it and where, what to do
//! about it, and what is in it.

mod facts;
mod issues;
mod lists;

use std::io;

use jiff::Timestamp;

use super::input::Document;
use super::reading::Reading;
use crate::cli::humane::{self, count};
use crate::cli::output::{Output, Tone};
use crate::model::DocumentKind;
use crate::parse::Severity;

/// Prints the report.
pub(super) fn print(
    document: &Document,
    reading: &Reading,
    all: bool,
    now: Timestamp,
    out: &mut Output,
) -> io::Result<()> {
    headline(document, reading, out)?;
    out.line("")?;
    facts::print(document, reading, now, out)?;
    issues::print(document, reading, out)?;
    lists::print(reading, all, out)
}

/// What it is, and how well it is.
fn headline(document: &Document, reading: &Reading, out: &mut Output) -> io::Result<()> {
    let what = match reading.report.kind {
        DocumentKind::Unsupported if reading.is_html => "an HTML page, no sitemap or feed",
        DocumentKind::Unsupported if reading.report.bytes == 0 => "an empty file",
        kind => in_words(kind),
    };
    let (verdict, tone) = verdict(reading);
    let used = what.chars().count() + verdict.chars().count() + 4;
    let name = humane::safe(&document.name);
    let name = humane::cut_middle(&name, out.width().saturating_sub(used).max(20));
    let name = out.paint(Tone::Strong, &name);
    out.line(&format!("{name}: {what}, {}", out.paint(tone, &verdict)))
}

fn verdict(reading: &Reading) -> (String, Tone) {
    let of = |wanted: fn(Severity) -> bool| {
        reading.report.issues.iter().filter(|issue| wanted(issue.severity)).count() as u64
    };
    let errors = of(|severity| severity != Severity::Warning);
    let warnings = of(|severity| severity == Severity::Warning);
    let errors_in_words = count(errors, "error", "errors");
    let warnings_in_words = count(warnings, "warning", "warnings");
    match (errors, warnings) {
        _ if !reading.is_usable() => ("which cannot be used".to_owned(), Tone::Bad),
        (0, 0) => ("without issues".to_owned(), Tone::Good),
        (0, _) => (format!("with {warnings_in_words}"), Tone::Warn),
        (_, 0) => (format!("with {errors_in_words}"), Tone::Bad),
        _ => (format!("with {errors_in_words} and {warnings_in_words}"), Tone::Bad),
    }
}

/// What a kind of document is called.
fn in_words(kind: DocumentKind) -> &'static str {
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
        DocumentKind::Unsupported => "no sitemap, feed or robots.txt",
    }
}
