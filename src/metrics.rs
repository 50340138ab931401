//! What is counted: every metric of the program, in one struct.
//!
//! Names and labels are only here; the rest of the program calls methods with
//! typed arguments. No label is ever a URL, a host, a site or a text from
//! outside: the number of series is bounded by the program and the number of
//! crawls that there are. What the store knows (queues, sizes) is not kept
//! twice: [`Metrics::encode`] is given it at each scrape.

mod gauges;
mod plain;
mod process;
mod words;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
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
pub use words::{Egressed, Format, PollFigures, PushPart, Pushed, Saved, TokenCall, Way};

/// Before every name.
const PREFIX: &str = "sitemapd";
/// Seconds; a poll is a small conditional request, or 50 MiB from a slow host.
const POLL_BUCKETS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];
/// Seconds; a commit is one sync of the disk, or waits for another process.
const COMMIT_BUCKETS: [f64; 10] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 5.0];

/// Seconds; from a fetcher that waits to a queue that does not come round.
const WAY_BUCKETS: [f64; 12] = [
    1.0,
    10.0,
    60.0,
    300.0,
    900.0,
    3_600.0,
    10_800.0,
    21_600.0,
    86_400.0,
    259_200.0,
    604_800.0,
    2_592_000.0,
];
/// Seconds; a commit, or a hub that collects for minutes.
const PUSH_BUCKETS: [f64; 10] = [0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 86_400.0];
/// Seconds; a page in time is a second, a slow host with retries is minutes.
const WORK_BUCKETS: [f64; 10] = [0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1_800.0, 21_600.0];
/// Seconds; a call is a commit, or a long poll.
const API_BUCKETS: [f64; 10] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 15.0, 60.0];

/// Histograms of one kind, by what they are of.
type Times<L> = Family<L, Histogram>;

/// One label with a name and one of a fixed set of words.
type Word = [(&'static str, &'static str); 1];

/// All metrics. One per process, shared by `Arc`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    polls: Family<Word, Counter>,
    put_off: Family<Word, Counter>,
    poll_seconds: Histogram,
    wire_bytes: Counter,
    body_bytes: Counter,
    entries: Counter,
    changes: Family<Word, Counter>,
    saved: Family<Word, Counter>,
    pushes: Family<Word, Counter>,
    push_seconds: Times<Word>,
    leases: Family<Word, Counter>,
    settlements: Family<Word, Counter>,
    tokens: Family<[(&'static str, &'static str); 2], Counter>,
    expired: Counter,
    dead_letters: Counter,
    published_to_seen: Times<CrawlLabel>,
    seen_to_leased: Times<CrawlLabel>,
    leased_to_settled: Times<CrawlLabel>,
    /// Crawls that have such times, and the count of the store that first lacked
    /// each, if one did.
    crawls: Mutex<BTreeMap<String, Option<Timestamp>>>,
    commit_seconds: Histogram,
    commit_effects: Counter,
    api_requests: Family<ApiLabels, Counter>,
    api_seconds: Times<Route>,
    connections_refused: Family<Word, Counter>,
    egress: Family<Word, Counter>,
    egress_up: Family<Word, Gauge>,
    egress_unsettled: Family<Word, Gauge>,
    polls_paused: Gauge,
}

/// A route is a pattern of the router and a method one of its words, or
/// `other`: both bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ApiLabels {
    method: &'static str,
    route: String,
    status: u16,
}

/// A crawl that there is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CrawlLabel {
    crawl: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

impl EncodeLabelSet for ApiLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        [("method", self.method), ("route", &self.route)].encode(encoder)?;
        [("status", self.status)].encode(encoder)
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
            put_off: Family::default(),
            poll_seconds: Histogram::new(POLL_BUCKETS),
            wire_bytes: Counter::default(),
            body_bytes: Counter::default(),
            entries: Counter::default(),
            changes: Family::default(),
            saved: Family::default(),
            pushes: Family::default(),
            push_seconds: Family::new_with_constructor(|| Histogram::new(PUSH_BUCKETS)),
            leases: Family::default(),
            settlements: Family::default(),
            tokens: Family::default(),
            expired: Counter::default(),
            dead_letters: Counter::default(),
            published_to_seen: Family::new_with_constructor(|| Histogram::new(WAY_BUCKETS)),
            seen_to_leased: Family::new_with_constructor(|| Histogram::new(WAY_BUCKETS)),
            leased_to_settled: Family::new_with_constructor(|| Histogram::new(WORK_BUCKETS)),
            crawls: Mutex::default(),
            commit_seconds: Histogram::new(COMMIT_BUCKETS),
            commit_effects: Counter::default(),
            api_requests: Family::default(),
            api_seconds: Family::new_with_constructor(|| Histogram::new(API_BUCKETS)),
            connections_refused: Family::default(),
            egress: Family::default(),
            egress_up: Family::default(),
            egress_unsettled: Family::default(),
            polls_paused: Gauge::default(),
        };
        metrics.register_polls();
        metrics.register_queue();
        metrics.register_daemon();
        metrics
    }

    fn register_polls(&mut self) {
        let to = &mut self.registry;
        to.register("polls", "Polls done, by result", self.polls.clone());
        to.register("polls_put_off", "Polls put off, by what they wait for", self.put_off.clone());
        let paused = "Do polls pause, since the disk is nearly full? 1 or 0";
        to.register("polls_paused", paused, self.polls_paused.clone());
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
        to.register("hub_pushes", "Pushes of hubs, by what became of them", self.pushes.clone());
        to.register_with_unit(
            "hub_push_latency",
            "From publication to a hub's push, and from there into the queue",
            Unit::Seconds,
            self.push_seconds.clone(),
        );
    }

    fn register_queue(&mut self) {
        let to = &mut self.registry;
        to.register("leases", "URLs leased, by the reason they were due", self.leases.clone());
        to.register("settlements", "Leases settled, by outcome", self.settlements.clone());
        to.register("tokens", "Tokens sent by fetchers, by call and result", self.tokens.clone());
        to.register("leases_expired", "Leases that ended unsettled", self.expired.clone());
        to.register("dead_letters", "URLs given up", self.dead_letters.clone());
        to.register_with_unit(
            "published_to_seen",
            "From the time that a publisher gives, to the minute at least, to the poll that saw it",
            Unit::Seconds,
            self.published_to_seen.clone(),
        );
        to.register_with_unit(
            "seen_to_leased",
            "From when a new or changed URL was seen and due to its first lease",
            Unit::Seconds,
            self.seen_to_leased.clone(),
        );
        to.register_with_unit(
            "leased_to_settled",
            "From a lease to its settlement",
            Unit::Seconds,
            self.leased_to_settled.clone(),
        );
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
        to.register_with_unit(
            "api_request_duration",
            "Time to an answer, long polls included",
            Unit::Seconds,
            self.api_seconds.clone(),
        );
        to.register(
            "api_connections_refused",
            "Connections over the limit",
            self.connections_refused.clone(),
        );
        to.register("egress", "URLs and results on their way by a broker", self.egress.clone());
        to.register("egress_up", "Does the broker take URLs? 1 or 0", self.egress_up.clone());
        to.register(
            "egress_unsettled",
            "URLs leased for a broker and not settled",
            self.egress_unsettled.clone(),
        );
        let version: Word = [("version", env!("CARGO_PKG_VERSION"))];
        to.register("build", "The running program", Info::new(version));
    }

    /// Less than `store.min_free_disk` is free, or no more.
    pub fn polls_paused(&self, are_paused: bool) {
        self.polls_paused.set(i64::from(are_paused));
    }

    /// Do polls pause for want of room?
    pub fn are_polls_paused(&self) -> bool {
        self.polls_paused.get() > 0
    }

    /// A poll was put off for what it waits for.
    pub fn poll_put_off(&self, wait: &'static str) {
        self.put_off.get_or_create(&[("by", wait)]).inc();
    }

    /// A poll was done.
    pub fn poll_done(&self, poll: &PollFigures) {
        self.polls.get_or_create(&[("result", poll.result)]).inc();
        self.poll_seconds.observe(poll.took.as_secs_f64());
        self.wire_bytes.inc_by(poll.wire_bytes);
        self.body_bytes.inc_by(poll.body_bytes);
        self.entries.inc_by(poll.entries);
        self.changed(&poll.counts);
    }

    /// Changes were told, of so many URLs.
    pub fn changed(&self, counts: &Counts) {
        for (kind, count) in [
            (ChangeKind::New, counts.new),
            (ChangeKind::Changed, counts.changed),
            (ChangeKind::Touched, counts.touched),
            (ChangeKind::Regressed, counts.regressed),
            (ChangeKind::Missing, counts.first_missing),
            (ChangeKind::Removed, counts.removed),
        ] {
            self.changes.get_or_create(&[("kind", kind.as_str())]).inc_by(count);
        }
    }

    /// Some work was not needed, `times` over.
    pub fn saved(&self, what: Saved, times: u64) {
        self.saved.get_or_create(&[("by", what.as_str())]).inc_by(times);
    }

    /// A hub has pushed, and this became of it.
    pub fn pushed(&self, what: Pushed) {
        self.pushes.get_or_create(&[("result", what.as_str())]).inc();
    }

    /// What a hub has pushed took so long on this part of its way.
    pub fn push_took(&self, part: PushPart, took: Duration) {
        self.push_seconds.get_or_create(&[("part", part.as_str())]).observe(took.as_secs_f64());
    }

    /// URLs were leased, for these reasons.
    pub fn leased(&self, reasons: impl Iterator<Item = Reason>) {
        for reason in reasons {
            self.leases.get_or_create(&[("reason", reason.as_str())]).inc();
        }
    }

    /// So many leases were settled; an outcome left to the content hash is `by-hash`.
    pub fn settled(&self, outcome: Option<Outcome>, leases: u64) {
        let word = outcome.map_or("by-hash", Outcome::as_str);
        self.settlements.get_or_create(&[("outcome", word)]).inc_by(leases);
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

    /// URLs of a crawl came along a part of their way in these times.
    pub fn came(&self, way: Way, crawl: &str, times: impl Iterator<Item = Duration>) {
        let mut times = times.peekable();
        if times.peek().is_none() {
            return;
        }
        let family = match way {
            Way::PublishedToSeen => &self.published_to_seen,
            Way::SeenToLeased => &self.seen_to_leased,
            Way::LeasedToSettled => &self.leased_to_settled,
        };
        // Held until it is counted, so that what is timed has its name there.
        let mut crawls = self.crawls.lock().unwrap_or_else(PoisonError::into_inner);
        crawls.insert(crawl.to_owned(), None);
        let histogram = family.get_or_create(&CrawlLabel { crawl: crawl.to_owned() });
        times.for_each(|took| histogram.observe(took.as_secs_f64()));
    }

    /// Drops the times of crawls that are gone. A count may be older than a crawl:
    /// two of them must lack it.
    fn forget_crawls(&self, status: &StatusView) {
        let mut crawls = self.crawls.lock().unwrap_or_else(PoisonError::into_inner);
        crawls.retain(|crawl, lacking| {
            if status.queues.iter().any(|queue| queue.crawl == *crawl) {
                *lacking = None;
                return true;
            }
            if *lacking.get_or_insert(status.now) == status.now {
                return true;
            }
            let label = CrawlLabel { crawl: crawl.clone() };
            for family in [&self.published_to_seen, &self.seen_to_leased, &self.leased_to_settled] {
                family.remove(&label);
            }
            false
        });
    }

    /// A commit took so long and made so many effects last.
    pub fn commit_done(&self, took: Duration, effects: u64) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.commit_effects.inc_by(effects);
    }

    /// A request was answered; `route` is a pattern of the router.
    pub(crate) fn api_request(&self, method: &str, route: &str, status: u16, took: Duration) {
        // A client may send any word as a method.
        let known = ["GET", "HEAD", "POST", "DELETE"].into_iter().find(|word| *word == method);
        let labels =
            ApiLabels { method: known.unwrap_or("other"), route: route.to_owned(), status };
        self.api_requests.get_or_create(&labels).inc();
        let route = Route { route: route.to_owned() };
        self.api_seconds.get_or_create(&route).observe(took.as_secs_f64());
    }

    /// A connection to this listener was over its limit.
    pub(crate) fn connection_refused(&self, listener: &'static str) {
        self.connections_refused.get_or_create(&[("listener", listener)]).inc();
    }

    /// So many URLs or results came so far on their way by the broker.
    pub fn egressed(&self, what: Egressed, times: u64) {
        self.egress.get_or_create(&[("what", what.as_str())]).inc_by(times);
    }

    /// The broker is there and takes what it is given, or does not. Only a daemon with one says so.
    pub fn egress_up(&self, broker: &'static str, is_up: bool) {
        self.egress_up.get_or_create(&[("broker", broker)]).set(i64::from(is_up));
    }

    /// So many URLs are leased for the broker and not settled.
    pub fn egress_unsettled(&self, broker: &'static str, urls: usize) {
        let urls = i64::try_from(urls).unwrap_or(i64::MAX);
        self.egress_unsettled.get_or_create(&[("broker", broker)]).set(urls);
    }

    /// Everything as text; the store's gauges only with `status`.
    pub fn encode(&self, status: Option<&StatusView>, format: Format) -> String {
        if let Some(status) = status {
            self.forget_crawls(status);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        if let Some(status) = status {
            let _ = encode_registry(&mut text, &gauges::of(status));
        }
        if let Some(process) = process::gauges() {
            let _ = encode_registry(&mut text, &process);
        }
        let _ = encode_eof(&mut text);
        match format {
            Format::OpenMetrics => text,
            Format::Plain => plain::from_openmetrics(&text),
        }
    }
}

#[cfg(test)]
mod tests;
