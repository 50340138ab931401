//! `sitemapd status`: the whole at a glance.

use super::answers::{self, Node, Queue, Status};
use super::humane::{self, bytes, count, number};
use super::output::{Output, Tone};
use super::question::Question;
use super::source_of_truth::SourceOfTruth;
use super::table::{Align, Cell, Table};
use super::{Failure, Options};

/// Prints the status.
pub async fn run(options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let answer = truth.ask(&Question::Status).await?;
    if options.json {
        return Ok(out.json(&answer)?);
    }
    let status: Status = answers::read(&answer)?;
    let version = out.paint(Tone::Strong, &format!("sitemapd {}", humane::safe(&status.version)));
    let line = match (status.started_at, truth.holder()) {
        (Some(at), _) => format!("{version}  running, started {}", humane::when(at, status.now)),
        // Which says its own name and version.
        (None, Some(holder)) => format!(
            "{} works on this folder and does not answer at listen.api; this is what its store says",
            humane::safe(&holder)
        ),
        (None, None) => format!("{version}  not running; this is what its store says"),
    };
    out.line(&line)?;
    let failing = if status.sources_failing > 0 { Tone::Bad } else { Tone::Faint };
    let failing = out.paint(failing, &format!("{} failing", number(status.sources_failing)));
    out.fact(
        "sites",
        &format!(
            "{} with {}: {} due, {failing}",
            number(status.sites),
            count(status.sources, "source", "sources"),
            number(status.sources_due)
        ),
    )?;
    let stored = format!("{} in {}", number(status.urls), bytes(status.store_bytes));
    out.fact("urls", &stored)?;
    let polls: Vec<String> = status
        .polls_24h
        .iter()
        .map(|(result, polls)| format!("{} {}", number(*polls), humane::safe(result)))
        .collect();
    let polls = if polls.is_empty() { "none".to_owned() } else { polls.join(", ") };
    out.fact("polls", &format!("{polls} (last 24 h)"))?;
    if status.polls_paused {
        let pause = "polls pause: less than store.min_free_disk is free";
        out.fact("", &out.paint(Tone::Bad, pause))?;
    }
    let changes = status.changes_24h;
    out.fact(
        "changes",
        &format!(
            "{} new, {} changed, {} removed (last 24 h)",
            number(changes.new),
            number(changes.changed + changes.touched),
            number(changes.removed)
        ),
    )?;
    out.line("")?;
    queues(&status.queues, status.now).print(out)?;
    if !status.nodes.is_empty() {
        out.line("")?;
        nodes(&status.nodes, status.now).print(out)?;
    }
    Ok(())
}

/// Who has how much of a shared store.
fn nodes(nodes: &[Node], now: jiff::Timestamp) -> Table {
    let mut table = Table::new(&[
        ("daemon", Align::Elastic),
        ("address", Align::Left),
        ("joined", Align::Right),
        ("partitions", Align::Right),
    ])
    .without_if_narrow(&["joined"]);
    for node in nodes {
        table.row(vec![
            node.name.as_str().into(),
            node.address.as_deref().unwrap_or("-").into(),
            humane::when(node.since, now).into(),
            u64::from(node.partitions).into(),
        ]);
    }
    table
}

/// The queues in numbers.
pub fn queues(queues: &[Queue], now: jiff::Timestamp) -> Table {
    let mut table = Table::new(&[
        ("crawl", Align::Elastic),
        ("queued", Align::Right),
        ("due", Align::Right),
        ("leased", Align::Right),
        ("dead", Align::Right),
        ("parked", Align::Right),
        ("blocked", Align::Right),
        ("forbidden", Align::Right),
        ("next due", Align::Right),
    ])
    .without_if_narrow(&["forbidden", "blocked", "parked", "queued"]);
    for queue in queues {
        let dead = if queue.dead > 0 { Tone::Bad } else { Tone::Plain };
        let name = if queue.paused {
            Cell::toned(Tone::Warn, &format!("{} (paused)", queue.crawl))
        } else {
            queue.crawl.as_str().into()
        };
        table.row(vec![
            name,
            queue.queued.into(),
            queue.due.into(),
            queue.leased.into(),
            Cell::toned(dead, &number(queue.dead)),
            queue.parked.into(),
            queue.blocked.into(),
            queue.forbidden.into(),
            humane::due(queue.next_due_at, now).into(),
        ]);
    }
    table
}
