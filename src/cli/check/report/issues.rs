//! The issues of a document: what is wrong, where, the line it is in, what to do.

use std::io;

use crate::cli::check::input::Document;
use crate::cli::check::reading::{Reading, excerpts};
use crate::cli::humane::{self, count, number};
use crate::cli::output::{Output, Tone};
use crate::parse::excerpt::Excerpt;
use crate::parse::{Issue, Severity};

/// Where the text of an issue begins.
const INDENT: usize = 11;
/// Characters by which a sample is known in its line.
const KNOWN_BY: usize = 24;

/// Prints the issues, the worst first.
pub(super) fn print(document: &Document, reading: &Reading, out: &mut Output) -> io::Result<()> {
    let mut sorted: Vec<&Issue> = reading.report.issues.iter().collect();
    if sorted.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.toned(Tone::Strong, "Issues")?;
    // Stable: of equal severity, what comes first in the document comes first.
    sorted.sort_by_key(|issue| (std::cmp::Reverse(issue.severity), issue.line == 0, issue.offset));
    let offsets: Vec<u64> = sorted.iter().map(|issue| issue.offset).collect();
    let shown = excerpts(document, &offsets, out.width().saturating_sub(INDENT + 10));
    for (issue, excerpt) in sorted.iter().zip(shown) {
        // What has no line has no place that could be shown.
        print_issue(issue, excerpt.filter(|_| issue.line > 0), out)?;
    }
    Ok(())
}

fn print_issue(issue: &Issue, excerpt: Option<Excerpt>, out: &mut Output) -> io::Result<()> {
    let (word, tone) = match issue.severity {
        Severity::Warning => ("warning", Tone::Warn),
        Severity::Error => ("error", Tone::Bad),
        Severity::Fatal => ("fatal", Tone::Bad),
    };
    let room = out.width() - INDENT;
    let margin = " ".repeat(INDENT);
    let sample = Sample::of(issue, excerpt.as_ref());
    let title = match &sample {
        Sample::Name(name) => format!("{}: {name}", issue.code.title()),
        _ => issue.code.title().to_owned(),
    };
    let word = out.paint(tone, &format!("{word:<8}"));
    let title = out.paint(Tone::Strong, &title);
    out.line(&format!("  {word} {title}{}", place(issue, excerpt.as_ref())))?;
    if let Sample::Text(text) = sample {
        let sample = humane::cut_middle(&text, room);
        out.line(&format!("{margin}{}", out.paint(Tone::Note, &sample)))?;
    }
    if let Some(excerpt) = excerpt.filter(|excerpt| !excerpt.text.is_empty()) {
        let line = format!("{} | ", number(issue.line));
        let text = humane::cut_middle(&excerpt.text, room.saturating_sub(line.len()));
        out.line(&format!(
            "{margin}{}{}",
            out.paint(Tone::Faint, &line),
            out.paint(Tone::Note, &text)
        ))?;
    }
    for line in humane::wrap(issue.code.advice(), room) {
        out.line(&format!("{margin}{line}"))?;
    }
    Ok(())
}

/// What is to be shown of the sample of an issue, beside the line that it is in.
enum Sample {
    /// Nothing: it is in the line.
    Seen,
    /// The name of what is missing, which is in no line.
    Name(String),
    /// All of it.
    Text(String),
}

impl Sample {
    fn of(issue: &Issue, excerpt: Option<&Excerpt>) -> Self {
        let text = humane::safe(&issue.sample);
        let Some(excerpt) = excerpt.filter(|_| !text.is_empty()) else {
            return if text.is_empty() { Self::Seen } else { Self::Text(text) };
        };
        // A line ends where the sample may go on.
        let line = text.split("\\n").next().unwrap_or_default();
        let start: String = line.chars().take(KNOWN_BY).collect();
        let said = issue.code.title().contains(text.rsplit(':').next().unwrap_or_default());
        if said || excerpt.text.contains(start.trim()) {
            Self::Seen
        } else if text.len() <= KNOWN_BY && !text.contains(['/', '\\']) {
            Self::Name(text)
        } else {
            Self::Text(text)
        }
    }
}

/// How often, and where first. In a long line the line says little.
fn place(issue: &Issue, excerpt: Option<&Excerpt>) -> String {
    let mut words = Vec::new();
    if issue.count > 1 {
        words.push(count(issue.count, "time", "times"));
    }
    if issue.line > 0 {
        let first = if issue.count > 1 { "first in line" } else { "line" };
        words.push(format!("{first} {}", number(issue.line)));
        if excerpt.is_some_and(|excerpt| excerpt.cut) {
            words.push(format!("byte {}", number(issue.offset)));
        }
    }
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}
