//! The API's answers as far as the tables need them.
//!
//! A client must ignore fields it does not know, so these are a selection, and
//! what an older daemon does not send reads as empty. `--json` prints the
//! answer itself and never goes through these types.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Failure;
use crate::model::UrlKind;
use crate::model::extension::Extensions;
use crate::store::views::Counts;

/// One row of `GET /v1/sites`.
#[derive(Debug, Deserialize)]
pub struct Site {
    /// See [`crate::store::views::SiteView`].
    pub name: String,
    /// Its home page.
    pub url: String,
    /// `active`, `paused` or `unregistered`.
    pub state: String,
    /// Sources that are polled.
    #[serde(default)]
    pub sources: u64,
    /// Of these, failing now.
    #[serde(default)]
    pub failing: u64,
    /// URLs kept.
    #[serde(default)]
    pub urls: u64,
    /// When any of its sources was last polled.
    pub last_poll_at: Option<Timestamp>,
    /// When the next of its sources is polled.
    pub next_poll_at: Option<Timestamp>,
}

/// One row of `GET /v1/sources`.
#[derive(Debug, Deserialize)]
pub struct Source {
    /// The row.
    pub id: i64,
    /// Where it is.
    pub url: String,
    /// Its site.
    pub site: Option<String>,
    /// What it is asked for.
    pub role: String,
    /// What it turned out to be.
    pub kind: Option<String>,
    /// `active`, `paused` or `retired`.
    pub state: String,
    /// `pending`, `success`, `has-errors` or `could-not-fetch`.
    #[serde(default)]
    pub status: String,
    /// What went wrong with its last poll.
    pub error: Option<String>,
    /// Why its next poll is when it is, or why there is none.
    #[serde(default)]
    pub why: String,
    /// Entries of the last read.
    #[serde(default)]
    pub entries: u64,
    /// Of these, by what became of them.
    #[serde(default)]
    pub admitted: BTreeMap<String, u64>,
    /// Defects that lost something.
    #[serde(default)]
    pub errors: u64,
    /// Defects without loss.
    #[serde(default)]
    pub warnings: u64,
    /// How far it is believed.
    pub trust: Option<Trust>,
    /// How hubs push for it, where it names any.
    pub push: Option<Push>,
    /// When it was last polled.
    pub last_poll_at: Option<Timestamp>,
    /// When it is polled next.
    pub next_poll_at: Option<Timestamp>,
    /// Its latest polls; only in the answer for one source.
    #[serde(default)]
    pub polls: Vec<Poll>,
}

/// How hubs push for a source.
#[derive(Debug, Clone, Deserialize)]
pub struct Push {
    /// `wanted`, `asked`, `unproven`, `healthy`, `broken`, `denied` or `failed`.
    pub state: String,
}

/// How far a source is believed.
#[derive(Debug, Clone, Deserialize)]
pub struct Trust {
    /// How it writes lastmods.
    pub habit: String,
    /// What its newer lastmods were at its last read that had any.
    pub moves: String,
    /// By kind of signal.
    #[serde(default)]
    pub signals: BTreeMap<String, Believed>,
}

/// The trust in one kind of signal.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Believed {
    /// How likely one is right.
    pub right: f64,
    /// Looks at signalled pages that found a change.
    pub hits: f64,
    /// Looks at signalled pages.
    pub looks: f64,
    /// Does it pull a URL forward?
    pub believed: bool,
}

/// What looks taught of one URL.
#[derive(Debug, Clone, Deserialize)]
pub struct Learned {
    /// Signals since the last look, by kind.
    #[serde(default)]
    pub pending: BTreeMap<String, u8>,
    /// Changes a day.
    pub rate: f64,
    /// Those of them that no signal tells.
    pub silent_rate: f64,
    /// Changes expected since the last look.
    pub expected_changes: f64,
    /// What a fetch is worth now.
    pub value: f64,
    /// What it must be worth.
    pub price: f64,
    /// How far this rests on looks, 0 to 1.
    pub proof: f64,
}

/// One poll.
#[derive(Debug, Clone, Deserialize)]
pub struct Poll {
    /// The poll.
    pub id: i64,
    /// Of which source.
    pub source: i64,
    /// URL of that source.
    #[serde(default)]
    pub url: String,
    /// What came of it.
    pub result: String,
    /// HTTP status.
    pub http_status: Option<u16>,
    /// Entries read.
    #[serde(default)]
    pub entries: u64,
    /// URLs by what became of them.
    #[serde(default)]
    pub counts: Counts,
    /// What went wrong.
    pub error: Option<String>,
}

/// One change that a poll made.
#[derive(Debug, Clone, Deserialize)]
pub struct Change {
    /// `new`, `changed`, `touched`, `removed`, …
    pub kind: String,
    /// To which URL.
    pub url: String,
    /// When it was committed.
    pub at: Timestamp,
    /// Of a robots.txt: what it says no more.
    #[serde(default)]
    pub was: Option<String>,
    /// Of a robots.txt: what it says from now on.
    #[serde(default)]
    pub now: Option<String>,
}

/// One queue in numbers.
#[derive(Debug, Deserialize)]
pub struct Queue {
    /// Its crawl.
    pub crawl: String,
    /// Is leasing paused?
    #[serde(default)]
    pub paused: bool,
    /// URLs in it.
    #[serde(default)]
    pub queued: u64,
    /// Of these, due now.
    #[serde(default)]
    pub due: u64,
    /// With fetchers now.
    #[serde(default)]
    pub leased: u64,
    /// Dead letters.
    #[serde(default)]
    pub dead: u64,
    /// Not fetched any more: gone, folded, unwanted or expired.
    #[serde(default)]
    pub parked: u64,
    /// Held back by blocks.
    #[serde(default)]
    pub blocked: u64,
    /// Held back by robots.txt.
    #[serde(default)]
    pub forbidden: u64,
    /// When the next URL is due.
    pub next_due_at: Option<Timestamp>,
}

/// One URL that would be leased soon.
#[derive(Debug, Deserialize)]
pub struct Peek {
    /// The URL.
    pub url: String,
    /// Why it is due.
    pub reason: String,
    /// As listed.
    #[serde(default)]
    pub priority: f64,
    /// As listed.
    pub changefreq: Option<String>,
    /// When it is due.
    pub due_at: Timestamp,
    /// When its host may be asked again.
    pub not_before: Option<Timestamp>,
}

/// One dead letter.
#[derive(Debug, Deserialize)]
pub struct Dead {
    /// The URL.
    pub url: String,
    /// Its crawl.
    pub crawl: String,
    /// Deliveries made.
    #[serde(default)]
    pub attempts: u32,
    /// When it was given up.
    pub died_at: Timestamp,
    /// HTTP status last reported.
    pub status: Option<u16>,
    /// What the fetcher last said.
    pub error: Option<String>,
}

/// One block in force.
#[derive(Debug, Deserialize)]
pub struct Block {
    /// Its crawl.
    pub crawl: String,
    /// The URL that is blocked.
    pub url: Option<String>,
    /// Or the beginning of all that are.
    pub prefix: Option<String>,
    /// Since when.
    pub since: Timestamp,
}

/// `GET /v1/url`.
#[derive(Debug, Deserialize)]
pub struct Url {
    /// What looks taught of it.
    pub learned: Option<Learned>,
    /// Its identity.
    pub url: String,
    /// As listed, where that differs.
    pub raw: Option<String>,
    /// Its crawl.
    pub crawl: String,
    /// Further crawls that have it.
    #[serde(default)]
    pub other_crawls: Vec<String>,
    /// Its site.
    pub site: Option<String>,
    /// Where it stands.
    pub state: String,
    /// Does any source list it?
    #[serde(default)]
    pub listed: bool,
    /// Who lists it.
    #[serde(default)]
    pub sources: Vec<Listing>,
    /// When it was first listed.
    pub first_seen: Timestamp,
    /// As listed.
    pub lastmod: Option<String>,
    /// Before that.
    pub previous_lastmod: Option<String>,
    /// As listed.
    pub changefreq: Option<String>,
    /// As listed.
    pub priority: Option<f64>,
    /// Why it is due.
    pub reason: String,
    /// When it is due.
    pub due_at: Option<Timestamp>,
    /// Why then.
    #[serde(default)]
    pub why: String,
    /// Deliveries without success.
    #[serde(default)]
    pub attempt: u32,
    /// When its lease ends.
    pub leased_until: Option<Timestamp>,
    /// Who holds it.
    pub worker: Option<String>,
    /// When it was last fetched.
    pub fetched_at: Option<Timestamp>,
    /// What was last reported.
    pub outcome: Option<String>,
    /// HTTP status last reported.
    pub status: Option<u16>,
    /// What the last report said went wrong.
    pub error: Option<String>,
    /// What the page names as its canonical URL.
    pub canonical: Option<String>,
    /// Does the page ask not to be indexed?
    #[serde(default)]
    pub noindex: bool,
    /// Fetches reported.
    #[serde(default)]
    pub fetches: u64,
    /// Of these, with a change.
    #[serde(default)]
    pub changes: u64,
    /// What it is.
    #[serde(default)]
    pub kind: UrlKind,
    /// When the last of its videos expires.
    pub expires_at: Option<Timestamp>,
    /// Images, videos, news and alternates.
    #[serde(flatten)]
    pub extensions: Extensions,
}

/// A source that lists a URL.
#[derive(Debug, Deserialize)]
pub struct Listing {
    /// Where the source is.
    pub url: String,
}

/// `GET /v1/status`.
#[derive(Debug, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// By the daemon's clock.
    pub now: Timestamp,
    /// Since when it runs.
    pub started_at: Option<Timestamp>,
    /// Registered sites.
    #[serde(default)]
    pub sites: u64,
    /// Sources that are polled.
    #[serde(default)]
    pub sources: u64,
    /// Of these, due now.
    #[serde(default)]
    pub sources_due: u64,
    /// Of these, failing now.
    #[serde(default)]
    pub sources_failing: u64,
    /// URLs kept.
    #[serde(default)]
    pub urls: u64,
    /// Bytes of the database files.
    #[serde(default)]
    pub store_bytes: u64,
    /// Do polls pause for want of room?
    #[serde(default)]
    pub polls_paused: bool,
    /// Polls of the last day by result.
    #[serde(default)]
    pub polls_24h: BTreeMap<String, u64>,
    /// Changes of the last day.
    #[serde(default)]
    pub changes_24h: Counts,
    /// The queues.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// The daemons that share the store.
    #[serde(default)]
    pub nodes: Vec<Node>,
}

/// A daemon that shares the store.
#[derive(Debug, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where others reach it.
    #[serde(default)]
    pub address: Option<String>,
    /// When it joined.
    pub since: Timestamp,
    /// Partitions that it has.
    pub partitions: u32,
}

/// Reads an answer as one of these types.
pub fn read<T: DeserializeOwned>(answer: &Value) -> Result<T, Failure> {
    T::deserialize(answer)
        .map_err(|error| anyhow::anyhow!("the daemon's answer cannot be read: {error}").into())
}

/// Reads the rows of a list, which stand under `name`.
pub fn rows<T: DeserializeOwned>(answer: &Value, name: &str) -> Result<Vec<T>, Failure> {
    read(answer.get(name).unwrap_or(&Value::Null))
}
