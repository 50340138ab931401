//! Counts what flowed, and checks at the end that nothing was lost.
//!
//! A change that the daemon told of is kept if its page was fetched after the
//! change, or is waiting to be: leased, or queued and due. Anything else is
//! lost, and so is a lease that could not be settled.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::narrator::Event;
use crate::cli::Failure;
use crate::cli::answers::Url;
use crate::fetch::api::ApiClient;

/// A changed URL is due at once; this much later is still in turn, since its
/// host is asked ten times a second at most.
const IN_TURN: Duration = Duration::from_secs(20);

/// What flowed so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Polls by result.
    pub(super) polls: BTreeMap<String, u64>,
    /// Changes by kind.
    pub(super) changes: BTreeMap<String, u64>,
    /// URLs that the daemon knows.
    pub(super) known: u64,
    /// URLs leased by the example fetcher.
    pub(super) leased: u64,
    /// Of these, given back unfetched.
    pub(super) released: u64,
    /// Of these, settled, by outcome.
    pub(super) settled: BTreeMap<String, u64>,
    /// Of these, neither.
    pub(super) refused: u64,
    /// Scheme, host and port of the site that lies.
    liar: String,
    /// What the lastmods of the example site led to.
    pub(super) honest: Believed,
    /// The same of the site that lies.
    pub(super) lying: Believed,
    /// The last change of each URL that asks for a fetch; no lies.
    changed_at: BTreeMap<String, Timestamp>,
}

/// What the lastmods of a site led to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Believed {
    /// Lastmods that moved.
    pub(super) moved: u64,
    /// Pages fetched for that.
    pub(super) fetched: u64,
    /// Of these, pages that had changed.
    pub(super) changed: u64,
}

/// What the check at the end found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// URLs with a change, all of them looked up.
    pub(super) checked: u64,
    /// Of these, fetched since.
    pub(super) fetched: u64,
    /// Of these, waiting to be fetched.
    pub(super) waiting: u64,
    /// Changes and leases that got lost.
    pub(super) lost: u64,
}

impl Tally {
    /// Nothing yet, beside a site that lies.
    pub(super) fn beside(liar: String) -> Self {
        Self { liar, ..Self::default() }
    }

    /// Counts an event.
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Polled { poll, changes } => {
                *self.polls.entry(poll.result.clone()).or_default() += 1;
                for change in changes {
                    *self.changes.entry(change.kind.clone()).or_default() += 1;
                    let is_moved = change.kind == "changed";
                    self.of(&change.url).moved += u64::from(is_moved);
                    if is_moved && self.is_lie(&change.url) {
                        continue;
                    }
                    if matches!(change.kind.as_str(), "new" | "changed" | "removed") {
                        self.changed_at.insert(change.url.clone(), change.at);
                    }
                }
            }
            Event::Known(urls) => self.known = *urls,
            Event::Leased(urls) => self.leased += urls,
            Event::Released(urls) => self.released += urls,
            Event::Fetched(fetch) if fetch.settled == "ok" => {
                *self.settled.entry(fetch.outcome.clone()).or_default() += 1;
                if fetch.reason == "changed" {
                    let believed = self.of(&fetch.url);
                    believed.fetched += 1;
                    believed.changed += u64::from(fetch.outcome == "changed");
                }
            }
            Event::Fetched(_) => self.refused += 1,
            Event::Trouble(_) => {}
        }
    }

    fn is_lie(&self, url: &str) -> bool {
        !self.liar.is_empty() && url.starts_with(&self.liar)
    }

    fn of(&mut self, url: &str) -> &mut Believed {
        if self.is_lie(url) { &mut self.lying } else { &mut self.honest }
    }

    /// Leases settled, all outcomes.
    pub(super) fn settled_total(&self) -> u64 {
        self.settled.values().sum()
    }

    /// Leases that the fetcher still works on.
    pub(super) fn in_work(&self) -> u64 {
        self.leased.saturating_sub(self.settled_total() + self.released + self.refused)
    }
}

/// Looks up every URL that changed.
pub(super) async fn verify(tally: &Tally, api: &ApiClient) -> Result<Verdict, Failure> {
    let mut verdict = Verdict { lost: tally.refused + tally.in_work(), ..Verdict::default() };
    for (url, changed_at) in &tally.changed_at {
        verdict.checked += 1;
        let answer = api.get::<Url>("/v1/url", &[("url", url)]).await;
        let Ok(found) = answer else {
            verdict.lost += 1;
            continue;
        };
        match fate(&found, *changed_at) {
            Fate::Fetched => verdict.fetched += 1,
            Fate::Waiting => verdict.waiting += 1,
            Fate::Lost => verdict.lost += 1,
        }
    }
    Ok(verdict)
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Fetched,
    Waiting,
    Lost,
}

/// What became of a change.
fn fate(url: &Url, changed_at: Timestamp) -> Fate {
    if url.fetched_at.is_some_and(|at| at >= changed_at) {
        return Fate::Fetched;
    }
    let latest = changed_at.saturating_add(IN_TURN).unwrap_or(Timestamp::MAX);
    match url.state.as_str() {
        // Forbidden by robots.txt of its host: it waits for the next version.
        "leased" | "forbidden" => Fate::Waiting,
        "queued" if url.due_at.is_some_and(|due| due <= latest) => Fate::Waiting,
        _ => Fate::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_lost_unless_its_page_was_fetched_since_or_is_due() {
        let changed_at: Timestamp = "2026-11-21T08:00:00Z".parse().expect("a timestamp");
        let before = "2026-11-21T07:59:59Z";
        let after = "2026-11-21T08:00:01Z";
        let cases = [
            (
                json!({ "state": "queued", "fetched_at": after, "due_at": "2026-12-21T08:00:00Z" }),
                Fate::Fetched,
            ),
            (json!({ "state": "parked", "fetched_at": after }), Fate::Fetched),
            (json!({ "state": "queued", "fetched_at": before, "due_at": after }), Fate::Waiting),
            (json!({ "state": "leased" }), Fate::Waiting),
            (json!({ "state": "queued", "due_at": "2026-11-22T08:00:00Z" }), Fate::Lost),
            (json!({ "state": "parked", "fetched_at": before }), Fate::Lost),
            (json!({ "state": "dead" }), Fate::Lost),
        ];
        for (mut answer, expected) in cases {
            for (name, value) in [
                ("url", "http://a/"),
                ("crawl", "default"),
                ("first_seen", before),
                ("reason", "new"),
            ] {
                answer[name] = json!(value);
            }
            let url: Url = serde_json::from_value(answer.clone()).expect("a URL");
            assert_eq!(fate(&url, changed_at), expected, "{answer}");
        }
    }
}
