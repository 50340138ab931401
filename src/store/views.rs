//! What the store shows: plain read models for the API, the command line and
//! the status page. Times are instants, durations are durations; how they are
//! written is for those who serve them.

mod counts;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::peers::Node;
use crate::model::extension::Extensions;
use crate::model::{
    ChangeFreq, CrawlId, DocumentKind, Lastmod, Outcome, Priority, Reason, Role, SourceId, UrlId,
    UrlKind,
};
use crate::parse::Issue;
use crate::recrawl::explain::Explanation;
use crate::recrawl::habit::Habit;
use crate::recrawl::signal::Signal;
use crate::recrawl::trust::Record;
pub use counts::Counts;

/// A part of a list, and where the next part starts.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Pass this as `after` for the next part; `None` at the end.
    pub next: Option<i64>,
}

/// One crawl's queue in numbers.
#[derive(Debug, Clone, Default)]
pub struct QueueView {
    /// Name of the crawl.
    pub crawl: String,
    /// Is leasing from it paused?
    pub paused: bool,
    /// URLs in the queue, due or not.
    pub queued: u64,
    /// Of these, due now; what a lease passes over for its site is not.
    pub due: u64,
    /// Leased now.
    pub leased: u64,
    /// Dead letters.
    pub dead: u64,
    /// Parked: gone, folded, unwanted or expired.
    pub parked: u64,
    /// Held back by a block.
    pub blocked: u64,
    /// Held back by robots.txt.
    pub forbidden: u64,
    /// Hosts with anything queued.
    pub hosts: u64,
    /// When the earliest of those that leases do not pass over is due.
    pub next_due_at: Option<Timestamp>,
    /// Since when the oldest due URL is due.
    pub oldest_due_at: Option<Timestamp>,
    /// When the oldest lease was given.
    pub oldest_lease_at: Option<Timestamp>,
}

/// One URL that would be leased soon.
#[derive(Debug, Clone)]
pub struct PeekView {
    /// The row.
    pub id: UrlId,
    /// The URL.
    pub url: String,
    /// Its site.
    pub site: Option<String>,
    /// Scheme, host and port.
    pub host: String,
    /// Why it is due.
    pub reason: Reason,
    /// As listed.
    pub priority: Priority,
    /// As listed.
    pub changefreq: Option<ChangeFreq>,
    /// When it is due.
    pub due_at: Timestamp,
    /// When its host may be asked again.
    pub not_before: Timestamp,
    /// Deliveries so far plus one.
    pub attempt: u32,
}

/// One dead letter.
#[derive(Debug, Clone)]
pub struct DeadView {
    /// The row.
    pub id: UrlId,
    /// The URL.
    pub url: String,
    /// Name of the crawl.
    pub crawl: String,
    /// Its site.
    pub site: Option<String>,
    /// Deliveries made.
    pub attempts: u32,
    /// When it was given up.
    pub died_at: Timestamp,
    /// HTTP status last reported.
    pub status: Option<u16>,
    /// What the fetcher last said.
    pub error: Option<String>,
}

/// One block in force.
#[derive(Debug, Clone)]
pub struct BlockView {
    /// Name of the crawl.
    pub crawl: String,
    /// A URL, or the beginning of one.
    pub pattern: String,
    /// Does it block every URL that begins so?
    pub prefix: bool,
    /// Since when.
    pub since: Timestamp,
}

/// A block in the order of them, behind which a part of their list begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPlace {
    /// Its crawl.
    pub crawl: CrawlId,
    /// A URL, or the beginning of one.
    pub pattern: String,
    /// Does it block every URL that begins so?
    pub is_prefix: bool,
}

/// Where a URL stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UrlState {
    /// In the queue, due now or later.
    Queued,
    /// With a fetcher.
    Leased,
    /// Gone, folded into another row, unwanted by the site's rules, or about
    /// videos that have all expired: not fetched any more unless listed anew.
    Parked,
    /// Given up after `max_attempts` deliveries; replayable.
    Dead,
    /// Held back by an operator's block.
    Blocked,
    /// Held back by robots.txt until its next version.
    Forbidden,
}

/// Everything known of one URL.
#[derive(Debug, Clone)]
pub struct UrlView {
    /// The row.
    pub id: UrlId,
    /// Normalised: its identity.
    pub url: String,
    /// As listed, where that differs.
    pub raw: Option<String>,
    /// Name of the crawl.
    pub crawl: String,
    /// Further crawls that have it, where it was asked for in any; each has a row of
    /// its own.
    pub other_crawls: Vec<String>,
    /// Its site; pushed URLs have none.
    pub site: Option<String>,
    /// Scheme, host and port.
    pub host: String,
    /// Where it stands.
    pub state: UrlState,
    /// Does any source list it?
    pub listed: bool,
    /// Sources that list it, the one whose evidence counts first.
    pub sources: Vec<(SourceId, String)>,
    /// When it was first listed.
    pub first_seen: Timestamp,
    /// The best evidence of when the page changed.
    pub lastmod: Option<Lastmod>,
    /// The lastmod before that.
    pub previous_lastmod: Option<Lastmod>,
    /// As listed.
    pub changefreq: Option<ChangeFreq>,
    /// As listed; `None` where not.
    pub priority: Option<Priority>,
    /// Why it is, or was last, due.
    pub reason: Reason,
    /// When it is due; `None` while it is not in the queue.
    pub due_at: Option<Timestamp>,
    /// Deliveries without success so far.
    pub attempt: u32,
    /// When the lease ends, if leased.
    pub leased_until: Option<Timestamp>,
    /// Who holds it, if leased and said.
    pub worker: Option<String>,
    /// When it was last fetched.
    pub fetched_at: Option<Timestamp>,
    /// What was last reported.
    pub outcome: Option<Outcome>,
    /// HTTP status last reported.
    pub status: Option<u16>,
    /// Content hash last reported.
    pub content_hash: Option<String>,
    /// What that hash is over.
    pub hash_kind: Option<String>,
    /// What the last report said went wrong.
    pub error: Option<String>,
    /// What the page names as its canonical URL, by the last report.
    pub canonical: Option<String>,
    /// Does the page ask not to be indexed, by the last report?
    pub noindex: bool,
    /// Fetches reported.
    pub fetches: u64,
    /// Of these, with a change.
    pub changes: u64,
    /// What it is.
    pub kind: UrlKind,
    /// Images, videos, news and alternates as its sources list them.
    pub extensions: Extensions,
    /// When the last of its videos expires, or did, if each has an end.
    pub expires_at: Option<Timestamp>,
    /// Until when it ranks, or ranked, as fresh news.
    pub fresh_until: Option<Timestamp>,
    /// Why it is due when it is, in one plain sentence.
    pub why: String,
    /// What looks taught of it; `None` before the first, and in the protocol's
    /// order.
    pub learned: Option<Learned>,
}

/// What looks taught of one URL.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// When a fetcher last saw the page.
    pub seen_at: Timestamp,
    /// Signals since then, by kind.
    pub pending: BTreeMap<&'static str, u8>,
    /// What its due time rests on.
    pub numbers: Explanation,
}

/// How far what a source says is believed.
#[derive(Debug, Clone, PartialEq)]
pub struct Trusted {
    /// How it writes lastmods, by its documents alone.
    pub habit: Habit,
    /// What its newer lastmods were at its last read that had any.
    pub moves: Signal,
    /// By its own record, and what it inherits.
    pub signals: Vec<(Signal, SignalView)>,
    /// The same of its host.
    pub host: Vec<(Signal, SignalView)>,
}

/// The trust in one kind of signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignalView {
    /// What looks said of it.
    pub record: Record,
    /// Does it pull a URL forward?
    pub is_believed: bool,
}

/// One site at a glance.
#[derive(Debug, Clone)]
pub struct SiteView {
    /// Its name.
    pub name: String,
    /// Its home page.
    pub url: String,
    /// Name of its crawl.
    pub crawl: String,
    /// `active`, `paused` or `unregistered`.
    pub state: String,
    /// The origin that its twins are folded into.
    pub origin: String,
    /// Sources that are polled.
    pub sources: u64,
    /// Of these, failing now.
    pub failing: u64,
    /// URLs kept.
    pub urls: u64,
    /// When any of its sources was last polled.
    pub last_poll_at: Option<Timestamp>,
    /// When the next of its sources is polled.
    pub next_poll_at: Option<Timestamp>,
}

/// Which sources to list.
#[derive(Debug, Clone, Default)]
pub struct SourceFilter {
    /// Only of this site.
    pub site: Option<String>,
    /// Only with this URL.
    pub url: Option<String>,
    /// Retired ones too.
    pub retired: bool,
    /// Most rows, 1 to 1,000.
    pub limit: u32,
    /// Only ids above this one.
    pub after: Option<i64>,
}

/// One source in full; names follow Search Console's sitemaps resource where it has one.
#[derive(Debug, Clone)]
pub struct SourceView {
    /// The row.
    pub id: SourceId,
    /// Its site.
    pub site: Option<String>,
    /// Where it is.
    pub url: String,
    /// What it is asked for.
    pub role: Role,
    /// What it turned out to be.
    pub kind: Option<DocumentKind>,
    /// Who named it: `config`, `robots.txt`, `well-known`, `index`, `home page`, `submitted`.
    pub named_by: String,
    /// The index that lists it.
    pub parent: Option<SourceId>,
    /// `active`, `paused` or `retired`.
    pub state: String,
    /// Is it a window (a feed, a news sitemap), whose absences mean nothing?
    pub window: bool,
    /// `pending`, `success`, `has-errors` or `could-not-fetch`.
    pub status: String,
    /// What went wrong last, or why it was retired.
    pub error: Option<String>,
    /// HTTP status of the last answer.
    pub http_status: Option<u16>,
    /// When it was registered.
    pub submitted_at: Timestamp,
    /// When it was last polled.
    pub last_poll_at: Option<Timestamp>,
    /// When it was last read with success (a 304 counts).
    pub last_success_at: Option<Timestamp>,
    /// When it last showed something new.
    pub last_changed_at: Option<Timestamp>,
    /// When it is polled next; `None` when retired.
    pub next_poll_at: Option<Timestamp>,
    /// Why then, in one plain sentence.
    pub why: String,
    /// Failures in a row.
    pub failures: u32,
    /// What these are: a result of polls, or
    /// [`ROBOTS_UNREADABLE`](crate::store::ROBOTS_UNREADABLE).
    pub failing: Option<String>,
    /// Entries of the last read.
    pub entries: u64,
    /// Of these, by what became of them: `accepted`, `out-of-scope`, `invalid`, …
    pub admitted: BTreeMap<String, u64>,
    /// Decoded bytes of the last read.
    pub bytes: u64,
    /// How far it is believed; `None` before its first read, and in the
    /// protocol's order.
    pub trust: Option<Trusted>,
    /// Defects of the last read, with severity `error` or `fatal`.
    pub errors: u64,
    /// Defects of the last read, with severity `warning`.
    pub warnings: u64,
    /// The defects themselves.
    pub issues: Vec<Issue>,
    /// How hubs push for it; `None` where it names none.
    pub push: Option<PushView>,
}

/// How hubs push for a source.
#[derive(Debug, Clone)]
pub struct PushView {
    /// `wanted`, `asked`, `unproven`, `healthy`, `broken`, `denied` or `failed`.
    pub state: &'static str,
    /// What the source names as its own URL.
    pub topic: String,
    /// The hub that pushes, or is asked to.
    pub hub: Option<String>,
    /// Since when it has promised to push.
    pub since: Option<Timestamp>,
    /// Until when.
    pub lease_until: Option<Timestamp>,
    /// When a hub is asked next: a renewal, or another try.
    pub next_request_at: Timestamp,
    /// Pushes read so far.
    pub pushes: u64,
    /// When the last of these came.
    pub last_push_at: Option<Timestamp>,
    /// Since when polls find what no push has brought.
    pub broken_since: Option<Timestamp>,
    /// Why the last request failed.
    pub error: Option<String>,
}

/// One poll of one source.
#[derive(Debug, Clone)]
pub struct PollView {
    /// The poll.
    pub id: i64,
    /// Of which source.
    pub source: SourceId,
    /// URL of that source.
    pub url: String,
    /// Its site.
    pub site: Option<String>,
    /// When.
    pub at: Timestamp,
    /// How long it took, fetch to commit.
    pub took: Duration,
    /// `changed`, `unchanged`, `not-modified`, `incomplete`, `unsupported`, `not-found`, `failed`,
    /// `pushed` and `let-go` (which are none), …
    pub result: String,
    /// HTTP status.
    pub http_status: Option<u16>,
    /// Bytes over the wire.
    pub wire_bytes: u64,
    /// Entries read.
    pub entries: u64,
    /// URLs by [`ChangeKind`](crate::model::ChangeKind), plus `unchanged`.
    pub counts: Counts,
    /// What went wrong.
    pub error: Option<String>,
}

/// One change event.
#[derive(Debug, Clone)]
pub struct ChangeView {
    /// What happened: a word of [`ChangeKind`](crate::model::ChangeKind), or what changed in a robots.txt:
    /// `rules`, `license`, `content-signal`, `content-usage`.
    pub kind: &'static str,
    /// To which row; a robots.txt has none.
    pub id: Option<UrlId>,
    /// To which URL.
    pub url: String,
    /// When it was committed.
    pub at: Timestamp,
    /// What a robots.txt says.
    pub said: Option<Said>,
}

/// Statements of a robots.txt, a line each, that a change took and brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Those that are gone; the first few.
    pub was: String,
    /// Those that are new; the first few.
    pub now: String,
}

/// The whole at a glance.
#[derive(Debug, Clone)]
pub struct StatusView {
    /// Version of the program that wrote this.
    pub version: String,
    /// By the store's clock.
    pub now: Timestamp,
    /// Since when the daemon runs; `None` when read without one.
    pub started_at: Option<Timestamp>,
    /// Registered sites.
    pub sites: u64,
    /// Sources that are polled.
    pub sources: u64,
    /// Of these, due now.
    pub sources_due: u64,
    /// Of these, failing now.
    pub sources_failing: u64,
    /// URLs kept.
    pub urls: u64,
    /// Bytes of the database files.
    pub store_bytes: u64,
    /// Bytes of the write-ahead log.
    pub wal_bytes: u64,
    /// Do polls pause, because less than `store.min_free_disk` is free?
    pub polls_paused: bool,
    /// Polls in the last 24 hours, by result, and what hubs pushed (`pushed`).
    pub polls_24h: BTreeMap<String, u64>,
    /// Change events in the last 24 hours.
    pub changes_24h: Counts,
    /// The queues.
    pub queues: Vec<QueueView>,
    /// The daemons that share the store; none where it is in a file.
    pub nodes: Vec<Node>,
}

impl StatusView {
    /// Polls in the last 24 hours. What a hub has pushed is read as one, and is none.
    pub fn polls(&self) -> u64 {
        let polls = self.polls_24h.iter().filter(|(result, _)| *result != "pushed");
        polls.map(|(_, times)| times).sum()
    }
}
