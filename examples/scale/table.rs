//! The rows of the table, each with its floor, its goal, and how it stands.

use std::fmt;
use std::fmt::Write as _;

use serde::Serialize;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    More,
    Less,
    /// Told beside the others, with no bar of its own.
    Neither,
}

/// How a figure stands to its bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Goal,
    Met,
    Missed,
    None,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) layout: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) floor: f64,
    pub(crate) goal: f64,
    pub(crate) verdict: Verdict,
    /// Beside it: by the processor, or what else explains it.
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn new(
        layout: &str,
        what: &str,
        (value, unit): (f64, &'static str),
        (better, floor, goal): (Better, f64, f64),
        note: String,
    ) -> Self {
        let is_past = |bar: f64| match better {
            Better::More => value >= bar,
            Better::Less => value <= bar,
            Better::Neither => false,
        };
        let verdict = match better {
            Better::Neither => Verdict::None,
            _ if is_past(goal) => Verdict::Goal,
            _ if is_past(floor) => Verdict::Met,
            _ => Verdict::Missed,
        };
        let (what, layout) = (what.to_owned(), layout.to_owned());
        Self { what, layout, value, unit, better, floor, goal, verdict, note }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Goal => "goal",
            Self::Met => "met",
            Self::Missed => "missed",
            Self::None => "",
        })
    }
}

/// A number with as many places as it needs, in thousands where it is large.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.0} k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The table, as Markdown.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = format!(
        "| {:10} | {:52} | {:>9} {:8} | {:>8} | {:>8} | {:6} | beside |\n",
        "hosts", "what", "measured", "", "floor", "goal", ""
    );
    text.push_str("|---|---|---:|---:|---:|---|---|\n");
    for row in rows {
        let bar = |value| match row.better {
            Better::Neither => String::new(),
            _ => short(value),
        };
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "| {:10} | {:52} | {:>9} {:8} | {:>8} | {:>8} | {:6} | {} |",
            row.layout,
            row.what,
            short(row.value),
            row.unit,
            bar(row.floor),
            bar(row.goal),
            row.verdict,
            row.note
        );
    }
    text
}
