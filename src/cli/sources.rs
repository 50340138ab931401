//! `sitemapd sources`: what is polled, what it was last time, and when it is next.
//! What fails, and what is retired, says why under its line.

use super::answers::{self, Push, Source, Trust};
use super::humane;
use super::output::{Output, Tone};
use super::question::Question;
use super::source_of_truth::SourceOfTruth;
use super::table::{Align, Cell, Table};
use super::{Failure, Options};

/// Which sources.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only those of this site
    site: Option<String>,
    /// Retired ones too
    #[arg(long)]
    retired: bool,
}

/// Lists the sources.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let question = Question::Sources { site: args.site.clone(), retired: args.retired };
    let answer = truth.ask(&question).await?;
    if options.json {
        return Ok(out.json(&answer)?);
    }
    let now = truth.now();
    let sources = answers::rows::<Source>(&answer, "sources")?;
    let any_push = sources.iter().any(|source| source.push.is_some());
    let mut columns = vec![
        ("id", Align::Right),
        ("site", Align::Left),
        ("url", Align::Elastic),
        ("kind", Align::Left),
        ("status", Align::Left),
        ("urls", Align::Right),
        ("issues", Align::Right),
        ("lastmods", Align::Left),
        ("polled", Align::Right),
        ("next poll", Align::Right),
    ];
    if any_push {
        columns.push(("push", Align::Left));
    }
    let optional = ["lastmods", "polled", "kind", "site", "push", "issues"];
    let mut table = Table::new(&columns).without_if_narrow(&optional);
    for source in sources {
        let push = pushed(source.push.as_ref());
        let reason = reason(&source).map(str::to_owned).or_else(|| not_taken(&source));
        let mut cells = row(source, now);
        cells.extend(any_push.then_some(push));
        table.row(cells);
        if let Some(reason) = reason {
            table.note(&reason);
        }
    }
    if table.is_empty() {
        return Ok(out.line("no sources yet")?);
    }
    Ok(table.print(out)?)
}

/// Why a source fails, or is polled no more.
fn reason(source: &Source) -> Option<&str> {
    let why = Some(source.why.as_str()).filter(|why| !why.is_empty());
    if source.state == "retired" {
        return why.or(source.error.as_deref());
    }
    let fails = source.status == "could-not-fetch";
    source.error.as_deref().or_else(|| why.filter(|_| fails))
}

/// What became of its URLs, where a good part of them is not taken.
fn not_taken(source: &Source) -> Option<String> {
    let refused: Vec<_> =
        source.admitted.iter().filter(|(fate, count)| *fate != "accepted" && **count > 0).collect();
    let all: u64 = source.admitted.values().sum();
    let lost: u64 = refused.iter().map(|(_, count)| **count).sum();
    if source.state == "retired" || lost == 0 || lost < all / 10 {
        return None;
    }
    let told: Vec<_> =
        refused.iter().map(|(fate, count)| format!("{} {fate}", humane::number(**count))).collect();
    let advice = if source.admitted.contains_key("out-of-scope") {
        "; `hosts`, `scope` and `follow` of a site say what is in its scope"
    } else {
        ""
    };
    let (lost, all) = (humane::number(lost), humane::number(all));
    Some(format!("{lost} of its {all} URLs are not taken: {}{advice}", told.join(", ")))
}

fn row(source: Source, now: jiff::Timestamp) -> Vec<Cell> {
    let issues = match (source.errors, source.warnings) {
        (0, 0) => Cell::toned(Tone::Faint, "-"),
        (0, warnings) => Cell::toned(Tone::Warn, &humane::number(warnings)),
        (errors, warnings) => Cell::toned(Tone::Bad, &humane::number(errors + warnings)),
    };
    let status = if source.state == "active" { &source.status } else { &source.state };
    let tone = match status.as_str() {
        "success" => Tone::Good,
        "has-errors" => Tone::Warn,
        "could-not-fetch" => Tone::Bad,
        _ => Tone::Faint,
    };
    vec![
        Cell::from(source.id.to_string()),
        source.site.unwrap_or_else(|| "-".to_owned()).into(),
        source.url.into(),
        source.kind.unwrap_or(source.role).into(),
        Cell::toned(tone, status),
        source.entries.into(),
        issues,
        believed(source.trust.as_ref()),
        humane::when_or_dash(source.last_poll_at, now).into(),
        humane::due(source.next_poll_at, now).into(),
    ]
}

/// How hubs push for it.
fn pushed(push: Option<&Push>) -> Cell {
    let Some(push) = push else { return Cell::toned(Tone::Faint, "-") };
    let tone = match push.state.as_str() {
        "healthy" => Tone::Good,
        "broken" | "denied" | "failed" => Tone::Warn,
        _ => Tone::Faint,
    };
    Cell::toned(tone, &push.state)
}

/// How it writes lastmods, and how likely one that moves is right, where that was looked
/// at: before, the number is what other sources have taught.
fn believed(trust: Option<&Trust>) -> Cell {
    let Some(trust) = trust else { return Cell::toned(Tone::Faint, "-") };
    let signal = trust.signals.get(&trust.moves).filter(|signal| signal.looks >= 1.0);
    let Some(signal) = signal else { return (&*trust.habit).into() };
    let text = format!("{} {:.0} %", trust.habit, 100.0 * signal.right);
    Cell::toned(if signal.believed { Tone::Good } else { Tone::Warn }, &text)
}
