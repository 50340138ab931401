//! Is it healthy? The answer in a word, and what speaks against it in sentences.
//!
//! Pure: from the numbers of the status alone, so that the same numbers always
//! get the same answer.

use std::time::Duration;

use jiff::Timestamp;

use super::between;
use crate::serve::wire::{Span, grouped};
use crate::store::views::{QueueView, StatusView};

/// A queue whose oldest due URL has waited for longer than this has too few
/// fetchers, or none.
const LATE: Duration = Duration::from_secs(24 * 3_600);
/// A daemon that runs for so long has polled something.
const SETTLED: Duration = Duration::from_secs(3_600);

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    /// Nothing to do.
    Good,
    /// Somebody should look.
    Doubtful,
    /// Somebody must do something.
    Bad,
}

impl Health {
    /// In a word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "Healthy",
            Self::Doubtful => "Look at this",
            Self::Bad => "Not well",
        }
    }

    /// The class of its colour.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Good => "health good",
            Self::Doubtful => "health warn",
            Self::Bad => "health bad",
        }
    }
}

/// How the store answers that is asked to commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commits {
    /// It does.
    Well,
    /// The disk is full.
    DiskFull,
    /// Not in time, or not at all.
    Not,
}

/// The answer, and each sentence that speaks against it with its weight.
pub(super) fn judge(
    status: &StatusView,
    commits: Commits,
    is_ready: bool,
) -> (Health, Vec<(Health, String)>) {
    let mut found = Vec::new();
    match commits {
        Commits::Well => {}
        Commits::DiskFull => {
            found.push((Health::Bad, "The disk is full: reads work, writes are refused.".into()));
        }
        Commits::Not => found.push((Health::Bad, "The database does not commit.".to_owned())),
    }
    if status.polls_paused {
        let pause = "Polls pause: less than store.min_free_disk is free.";
        found.push((Health::Bad, pause.to_owned()));
    }
    if !is_ready {
        found.push((Health::Doubtful, "The daemon is starting or stopping.".to_owned()));
    }
    if status.sources_failing > 0 {
        let is_many = status.sources_failing.saturating_mul(10) > status.sources;
        let weight = if is_many { Health::Doubtful } else { Health::Good };
        let (failing, all) = (grouped(status.sources_failing), grouped(status.sources));
        found.push((weight, format!("{failing} of {all} sources fail.")));
    }
    let runs = status.started_at.map(|started| between(started, status.now));
    if status.polls() == 0 && status.sources > 0 && runs.is_some_and(|runs| runs > SETTLED) {
        found.push((Health::Bad, "Nothing was polled in the last 24 hours.".to_owned()));
    }
    found.extend(status.queues.iter().filter_map(|queue| of_queue(queue, status.now)));
    let worst = found.iter().map(|(weight, _)| *weight).max().unwrap_or(Health::Good);
    found.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    (worst, found)
}

fn of_queue(queue: &QueueView, now: Timestamp) -> Option<(Health, String)> {
    let name = super::text(&queue.crawl);
    if queue.paused {
        return Some((Health::Doubtful, format!("The crawl {name} is paused.")));
    }
    let late = queue.oldest_due_at.filter(|at| *at < now).map(|at| between(at, now))?;
    if queue.due == 0 || late <= LATE {
        return None;
    }
    let who = if queue.leased == 0 { "nobody has leased any" } else { "fetchers do not keep up" };
    let due = grouped(queue.due);
    let said = format!(
        "{due} URLs of the crawl {name} are due, the oldest for {}, and {who}.",
        Span(late)
    );
    Some((Health::Doubtful, said))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::views::Counts;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn status() -> StatusView {
        StatusView {
            version: "0".to_owned(),
            now: at("2026-11-21T12:00:00Z"),
            started_at: Some(at("2026-11-01T12:00:00Z")),
            sites: 1,
            sources: 100,
            sources_due: 0,
            sources_failing: 0,
            urls: 0,
            store_bytes: 0,
            wal_bytes: 0,
            polls_paused: false,
            polls_24h: BTreeMap::from([("changed".to_owned(), 1)]),
            changes_24h: Counts::default(),
            nodes: Vec::new(),
            queues: vec![QueueView { crawl: "c".to_owned(), ..QueueView::default() }],
        }
    }

    fn judged(change: impl FnOnce(&mut StatusView)) -> (Health, String) {
        let mut status = status();
        change(&mut status);
        let (health, found) = judge(&status, Commits::Well, true);
        (health, found.into_iter().map(|(_, said)| said).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_trouble_is_told_and_weighed() {
        assert_eq!(judged(|_| ()), (Health::Good, String::new()));
        assert_eq!(judged(|s| s.sources_failing = 10).0, Health::Good);
        assert_eq!(judged(|s| s.sources_failing = 11).0, Health::Doubtful);
        let (health, said) = judged(|s| s.polls_24h.clear());
        assert_eq!((health, said.contains("Nothing was polled")), (Health::Bad, true));
        let only_pushed = BTreeMap::from([("pushed".to_owned(), 9)]);
        assert_eq!(judged(|s| s.polls_24h = only_pushed).0, Health::Bad);
        let late = |leased: u64| {
            judged(move |s| {
                s.queues[0].due = 5_000;
                s.queues[0].leased = leased;
                s.queues[0].oldest_due_at = Some(at("2026-11-18T12:00:00Z"));
            })
        };
        assert_eq!(late(0).0, Health::Doubtful);
        assert!(
            late(0).1.contains("5,000 URLs of the crawl c are due, the oldest for 3d, and nobody")
        );
        assert!(late(1).1.contains("do not keep up"));
        assert!(judged(|s| s.queues[0].paused = true).1.contains("paused"));
    }

    #[test]
    fn the_worst_trouble_decides_and_comes_first() {
        let mut status = status();
        status.sources_failing = 1;
        let (health, found) = judge(&status, Commits::DiskFull, true);
        assert_eq!(health, Health::Bad);
        assert!(found[0].1.starts_with("The disk is full"));
        assert_eq!(judge(&status, Commits::Well, false).0, Health::Doubtful);
    }
}
