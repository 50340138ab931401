//! What is counted: every metric of the program, in one struct.
//!
//! Names and labels are only here; the rest of the program calls methods with
//! typed arguments. No label is ever a URL, a host, a site or a text from
//! outside: the number of series is bounded by the program and the number of
//! crawls in the config. What the store knows (queues, sizes) is not kept
//! twice: [`Metrics::encode`] is given it at each scrape.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::model::{ChangeKind, Outcome, Reason};
use crate::queue::TokenResult;
use crate::store::views::{Counts, StatusView};

/// What [`Metrics::encode`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Before every name.
const PREFIX: &str = "sitemapd";
/// Seconds; a poll is a small conditional request, or 50 MiB from a slow host.
const POLL_BUCKETS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];
/// Seconds; a commit is one sync of the disk, or waits for another process.
const COMMIT_BUCKETS: [f64; 10] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 5.0];

/// One label with a name and one of a fixed set of words.
type Word = [(&'static str, &'static str); 1];

/// All metrics. One per process, shared by `Arc`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    polls: Family<Word, Counter>,
    poll_seconds: Histogram,
    wire_bytes: Counter,
    body_bytes: Counter,
    entries: Counter,
    changes: Family<Word, Counter>,
    saved: Family<Word, Counter>,
    leases: Family<Word, Counter>,
    settlements: Family<Word, Counter>,
    tokens: Family<[(&'static str, &'static str); 2], Counter>,
    expired: Counter,
    dead_letters: Counter,
    commit_seconds: Histogram,
    commit_effects: Counter,
    api_requests: Family<ApiLabels, Counter>,
    connections_refused: Counter,
}

/// The figures of one poll.
#[derive(Debug, Clone, Copy)]
pub struct PollFigures {
    /// The word of [`crate::store::views::PollView::result`].
    pub result: &'static str,
    /// From the first byte sent to the commit.
    pub took: Duration,
    /// Bytes of the body over the wire.
    pub wire_bytes: u64,
    /// Bytes of the body after decoding.
    pub body_bytes: u64,
    /// Entries read.
    pub entries: u64,
    /// What became of the URLs.
    pub counts: Counts,
}

/// Work that was not done because it was not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// A 304: no body.
    NotModified,
    /// The body's hash was the old one: no parse.
    EqualHash,
    /// The index said that the child had not changed: no request.
    SkippedChild,
}

/// A call that answers a result per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCall {
    /// `POST /v1/settle`
    Settle,
    /// `POST /v1/extend`
    Extend,
    /// `POST /v1/release`
    Release,
}

/// A route is a pattern of the router and a method one of its words, or
/// `other`: both bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ApiLabels {
    method: &'static str,
    route: String,
    status: u16,
}

/// Labels of the queue gauges; the crawls are those of the config.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    crawl: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CrawlLabel {
    crawl: String,
}

impl EncodeLabelSet for ApiLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        [("method", self.method), ("route", &self.route)].encode(encoder)?;
        [("status", self.status)].encode(encoder)
    }
}

impl Saved {
    fn as_str(self) -> &'static str {
        match self {
            Self::NotModified => "not-modified",
            Self::EqualHash => "equal-hash",
            Self::SkippedChild => "skipped-child",
        }
    }
}

impl TokenCall {
    fn as_str(self) -> &'static str {
        match self {
            Self::Settle => "settle",
            Self::Extend => "extend",
            Self::Release => "release",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics at zero, of this version of the program.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix(PREFIX),
            polls: Family::default(),
            poll_seconds: Histogram::new(POLL_BUCKETS),
            wire_bytes: Counter::default(),
            body_bytes: Counter::default(),
            entries: Counter::default(),
            changes: Family::default(),
            saved: Family::default(),
            leases: Family::default(),
            settlements: Family::default(),
            tokens: Family::default(),
            expired: Counter::default(),
            dead_letters: Counter::default(),
            commit_seconds: Histogram::new(COMMIT_BUCKETS),
            commit_effects: Counter::default(),
            api_requests: Family::default(),
            connections_refused: Counter::default(),
        };
        metrics.register_polls();
        metrics.register_queue();
        metrics.register_daemon();
        metrics
    }

    fn register_polls(&mut self) {
        let to = &mut self.registry;
        to.register("polls", "Polls done, by result", self.polls.clone());
        to.register_with_unit(
            "poll_duration",
            "Time of a poll, fetch to commit",
            Unit::Seconds,
            self.poll_seconds.clone(),
        );
        to.register("poll_wire_bytes", "Bytes of bodies over the wire", self.wire_bytes.clone());
        to.register("poll_body_bytes", "Bytes of bodies after decoding", self.body_bytes.clone());
        to.register("entries", "Entries read from documents", self.entries.clone());
        to.register("changes", "Change events, by kind", self.changes.clone());
        to.register("work_saved", "Requests, bodies or parses not needed", self.saved.clone());
    }

    fn register_queue(&mut self) {
        let to = &mut self.registry;
        to.register("leases", "URLs leased, by the reason they were due", self.leases.clone());
        to.register("settlements", "Leases settled, by outcome", self.settlements.clone());
        to.register("tokens", "Tokens sent by fetchers, by call and result", self.tokens.clone());
        to.register("leases_expired", "Leases that ended unsettled", self.expired.clone());
        to.register("dead_letters", "URLs given up", self.dead_letters.clone());
    }

    fn register_daemon(&mut self) {
        let to = &mut self.registry;
        to.register_with_unit(
            "commit_duration",
            "Time of a commit, sync included",
            Unit::Seconds,
            self.commit_seconds.clone(),
        );
        to.register("commit_effects", "Effects committed", self.commit_effects.clone());
        to.register("api_requests", "API requests answered", self.api_requests.clone());
        to.register(
            "api_connections_refused",
            "Connections over the limit",
            self.connections_refused.clone(),
        );
        let version: Word = [("version", env!("CARGO_PKG_VERSION"))];
        to.register("build", "The running program", Info::new(version));
    }

    /// A poll was done.
    pub fn poll_done(&self, poll: &PollFigures) {
        self.polls.get_or_create(&[("result", poll.result)]).inc();
        self.poll_seconds.observe(poll.took.as_secs_f64());
        self.wire_bytes.inc_by(poll.wire_bytes);
        self.body_bytes.inc_by(poll.body_bytes);
        self.entries.inc_by(poll.entries);
        let counts = &poll.counts;
        for (kind, count) in [
            (ChangeKind::New, counts.new),
            (ChangeKind::Changed, counts.changed),
            (ChangeKind::Touched, counts.touched),
            (ChangeKind::Regressed, counts.regressed),
            (ChangeKind::Missing, counts.missing),
            (ChangeKind::Removed, counts.removed),
        ] {
            self.changes.get_or_create(&[("kind", kind.as_str())]).inc_by(count);
        }
    }

    /// Some work was not needed, `times` over.
    pub fn saved(&self, what: Saved, times: u64) {
        self.saved.get_or_create(&[("by", what.as_str())]).inc_by(times);
    }

    /// URLs were leased, for these reasons.
    pub fn leased(&self, reasons: impl Iterator<Item = Reason>) {
        for reason in reasons {
            self.leases.get_or_create(&[("reason", reason.as_str())]).inc();
        }
    }

    /// Leases were settled. Only those that counted are; an outcome left to
    /// the content hash is `by-hash`.
    pub fn settled(&self, results: impl Iterator<Item = (Option<Outcome>, TokenResult)>) {
        for (outcome, _) in results.filter(|(_, result)| *result == TokenResult::Ok) {
            let word = outcome.map_or("by-hash", Outcome::as_str);
            self.settlements.get_or_create(&[("outcome", word)]).inc();
        }
    }

    /// A call was answered with these results.
    pub fn tokens(&self, call: TokenCall, results: impl Iterator<Item = TokenResult>) {
        for result in results {
            let word = match result {
                TokenResult::Ok => "ok",
                TokenResult::Stale => "stale",
                TokenResult::Unknown => "unknown",
            };
            self.tokens.get_or_create(&[("call", call.as_str()), ("result", word)]).inc();
        }
    }

    /// Leases ended unsettled, and of their URLs so many were given up.
    pub fn expired(&self, leases: u64, dead: u64) {
        self.expired.inc_by(leases);
        self.dead_letters.inc_by(dead);
    }

    /// URLs were given up after a settled failure.
    pub fn dead_lettered(&self, urls: u64) {
        self.dead_letters.inc_by(urls);
    }

    /// A commit took so long and made so many effects last.
    pub fn commit_done(&self, took: Duration, effects: u64) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.commit_effects.inc_by(effects);
    }

    /// A request was answered; `route` is a pattern of the router.
    pub(crate) fn api_request(&self, method: &str, route: &str, status: u16) {
        // A client may send any word as a method.
        let known = ["GET", "HEAD", "POST", "DELETE"].into_iter().find(|word| *word == method);
        let labels =
            ApiLabels { method: known.unwrap_or("other"), route: route.to_owned(), status };
        self.api_requests.get_or_create(&labels).inc();
    }

    /// A connection was over the limit.
    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Everything in the text format of [`CONTENT_TYPE`]; the store's gauges only with `status`.
    pub fn encode(&self, status: Option<&StatusView>) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        if let Some(status) = status {
            let _ = encode_registry(&mut text, &gauges(status));
        }
        let _ = encode_eof(&mut text);
        text
    }
}

/// The store's own figures, made anew for each scrape, so that a crawl that is
/// gone leaves no series behind.
fn gauges(status: &StatusView) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    let mut one = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    one("sites", "Sites registered", status.sites);
    one("sources", "Sources polled", status.sources);
    one("sources_due", "Sources due now", status.sources_due);
    one("sources_failing", "Sources failing now", status.sources_failing);
    one("urls", "URLs kept", status.urls);
    one("store_bytes", "Bytes of the database files", status.store_bytes);
    one("wal_bytes", "Bytes of the write-ahead log", status.wal_bytes);
    queue_gauges(&mut registry, status);
    if let Some(started) = status.started_at {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(seconds_between(Timestamp::UNIX_EPOCH, started));
        registry.register_with_unit(
            "start_time",
            "Unix time of the daemon's start",
            Unit::Seconds,
            gauge,
        );
    }
    registry
}

fn queue_gauges(registry: &mut Registry, status: &StatusView) {
    let urls = Family::<QueueLabels, Gauge<u64, AtomicU64>>::default();
    let oldest = Family::<CrawlLabel, Gauge<f64, AtomicU64>>::default();
    for queue in &status.queues {
        for (state, count) in [
            ("queued", queue.queued),
            ("due", queue.due),
            ("leased", queue.leased),
            ("dead", queue.dead),
            ("parked", queue.parked),
            ("blocked", queue.blocked),
            ("forbidden", queue.forbidden),
        ] {
            let labels = QueueLabels { crawl: queue.crawl.clone(), state };
            urls.get_or_create(&labels).set(count);
        }
        let age = queue.oldest_lease_at.map_or(0.0, |given| seconds_between(given, status.now));
        oldest.get_or_create(&CrawlLabel { crawl: queue.crawl.clone() }).set(age.max(0.0));
    }
    registry.register("queue_urls", "URLs by state; due ones are queued too", urls);
    registry.register_with_unit(
        "queue_oldest_lease",
        "Age of the oldest lease, 0 without any",
        Unit::Seconds,
        oldest,
    );
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests;
