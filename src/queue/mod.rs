//! The crawl queue's words: what a fetcher asks for, gets and reports back.
//!
//! The database is the truth; [`window`] holds a bounded part of it in memory
//! and decides whose turn it is. The effects themselves (lease, settle, extend,
//! release, reap) belong to the store.

pub mod token;
pub mod window;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{ChangeFreq, HostId, Lastmod, Outcome, Priority, Reason, UrlId, UrlKind};
pub use token::Token;

/// Most URLs in one lease.
pub const MAX_LEASE: u32 = 1_000;
/// Most results in one settle (and tokens in one extend or release).
pub const MAX_RESULTS: usize = 10_000;
/// Longest that a lease call waits for URLs to come due.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// Longest lease.
pub const MAX_TTL: Duration = Duration::from_secs(12 * 3600);

/// What a fetcher asks for.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct LeaseRequest {
    /// Most URLs wanted, 1 to [`MAX_LEASE`].
    pub max: u32,
    /// How long the lease lasts.
    pub ttl: Duration,
    /// Most URLs of one host at a turn, of which a host with a delay has one in a call.
    pub per_host: u32,
    /// Whose queue.
    pub crawl: String,
    /// Only URLs of these sites; empty means all.
    pub sites: Vec<String>,
    /// Who asks, for the operator's eyes.
    pub worker: Option<String>,
    /// Makes the call repeatable: the same id gets the same leases again.
    pub request_id: Option<String>,
}

/// What a fetcher gets.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct LeaseBatch {
    /// The URLs, in the order they should be fetched.
    pub urls: Vec<Leased>,
    /// When the next URL of this crawl may be leased, if any is queued.
    pub next_due_at: Option<Timestamp>,
    /// Is it what an earlier call with the same id was given?
    pub is_again: bool,
    /// Did the call end before all that is due had been looked at?
    #[serde(default)]
    pub is_cut: bool,
    /// Did it end since it had taken as much that is held out of the queue as one call
    /// may? The next goes on behind that.
    #[serde(default)]
    pub met_held: bool,
}

/// One leased URL.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Leased {
    /// Names this lease; settles it once.
    pub token: Token,
    /// The row.
    pub id: UrlId,
    /// What it is: a page, unless the site follows images, videos or alternates.
    pub kind: UrlKind,
    /// The URL to fetch, normalised: its identity.
    pub url: String,
    /// The site it belongs to; pushed URLs have none.
    pub site: Option<Arc<str>>,
    /// URL of the source that lists it, or was the last to; pushed URLs have none.
    pub source: Option<Arc<str>>,
    /// Scheme, host and port: the key of politeness.
    pub host: Arc<str>,
    /// The crawl it was leased from.
    pub crawl: Arc<str>,
    /// Why it is due.
    pub reason: Reason,
    /// As listed, 0.5 where none is given.
    pub priority: Priority,
    /// What it was ordered by.
    pub value: f64,
    /// As listed.
    pub changefreq: Option<ChangeFreq>,
    /// The best evidence of when the page changed.
    pub lastmod: Option<Lastmod>,
    /// The lastmod before that.
    pub previous_lastmod: Option<Lastmod>,
    /// Hash of the content as last reported.
    pub content_hash: Option<String>,
    /// When it came due, or would have, where a fetch had become cheap enough before; this
    /// and the other two times are steady ones.
    pub due_at: Timestamp,
    /// Politeness: not to be fetched before.
    pub not_before: Timestamp,
    /// 1 for the first delivery.
    pub attempt: u32,
    /// When the lease ends.
    pub expires_at: Timestamp,
    /// Time until then.
    pub expires_in: Duration,
    /// `Content-Signal` of the host's robots.txt for this URL, verbatim.
    pub content_signal: Option<Arc<str>>,
    /// `Content-Usage` of the host's robots.txt for this URL, verbatim.
    pub content_usage: Option<Arc<str>>,
    /// `License` of the host's robots.txt, verbatim.
    pub license: Option<Arc<str>>,
}

impl Leased {
    /// The same with times as they are told.
    pub(crate) fn shown(self, at: impl Fn(Timestamp) -> Timestamp) -> Self {
        let [due_at, not_before, expires_at] =
            [self.due_at, self.not_before, self.expires_at].map(at);
        Self { due_at, not_before, expires_at, ..self }
    }

    /// How long something new or changed has waited since it was seen and due.
    pub(crate) fn waited(&self) -> Option<Duration> {
        let is_news = matches!(self.reason, Reason::New | Reason::Changed);
        let given = self.expires_at.checked_sub(self.expires_in).ok()?;
        let wait = Duration::try_from(given.duration_since(self.due_at)).unwrap_or_default();
        (is_news && self.attempt == 1).then_some(wait)
    }
}

/// What a fetcher reports of one lease.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Settlement {
    /// Which lease.
    pub token: Token,
    /// What it saw; `None` where `content_hash` tells.
    pub outcome: Option<Outcome>,
    /// HTTP status of the page.
    pub status: Option<u16>,
    /// Hash of the content, in whatever form the fetcher likes, at most 128 characters.
    pub content_hash: Option<String>,
    /// What the hash is over; another kind starts a new baseline.
    pub hash_kind: Option<String>,
    /// How much of the page changed, 0.0 to 1.0.
    pub significance: Option<f64>,
    /// Where redirects ended.
    pub final_url: Option<String>,
    /// `<link rel="canonical">` of the page.
    pub canonical: Option<String>,
    /// Does the page ask not to be indexed?
    pub noindex: bool,
    /// The page's `Retry-After`: pauses the host for polls and leases.
    pub retry_after: Option<Duration>,
    /// Not to be fetched again before.
    pub not_before: Option<Timestamp>,
    /// When the page was fetched; the time of the call where not given.
    pub fetched_at: Option<Timestamp>,
    /// What went wrong, for the operator's eyes.
    pub error: Option<String>,
}

impl Settlement {
    /// Of a lease, what was seen, and nothing else.
    pub fn new(token: Token, outcome: Option<Outcome>) -> Self {
        Self {
            token,
            outcome,
            status: None,
            content_hash: None,
            hash_kind: None,
            significance: None,
            final_url: None,
            canonical: None,
            noindex: false,
            retry_after: None,
            not_before: None,
            fetched_at: None,
            error: None,
        }
    }
}

/// What became of a token that was settled, extended or released.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TokenResult {
    /// Done, or done before within the hour.
    Ok,
    /// Too late: the lease had ended. Nothing was changed.
    Stale,
    /// No such lease. Nothing was changed.
    Unknown,
}

/// How a queued URL stands to the price of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Not ordered by value: new, asked for, or nothing is known of its like.
    Fixed,
    /// A fetch is worth the price.
    Worth,
    /// It has only not been seen for the longest interval.
    Overdue,
    /// Worth less than the price: for what nothing else wants.
    Spare,
}

impl Claim {
    /// Is a URL fetched again for what that is worth?
    pub fn is_refreshed(self) -> bool {
        matches!(self, Self::Worth | Self::Overdue)
    }

    /// Is a URL of that band in line for another reason than its value, and nobody's
    /// wish?
    pub fn is_new(self, band: u8) -> bool {
        self == Self::Fixed && band < crate::recrawl::FRESH_BAND
    }
}

/// A URL that may be leased now or later, as the window sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The row.
    pub id: UrlId,
    /// Whose turn it belongs to.
    pub host: HostId,
    /// Its place in line as its row has it; higher is leased first.
    pub band: u8,
    /// Unix seconds.
    pub due_at: i64,
    /// Its place as of now, in 64ths of a band: what orders it in memory.
    pub rank: u16,
    /// How it stands to the price.
    pub claim: Claim,
    /// Of those that are about equally worth it, rows that lie together in the
    /// table go together; 0 where value does not decide.
    pub shelf: i64,
}

impl Candidate {
    /// One that stands where its row says.
    pub fn as_listed(id: UrlId, host: HostId, band: u8, due_at: i64) -> Self {
        let rank = u16::from(band) * RANKS_A_BAND;
        Self { id, host, band, due_at, rank, claim: Claim::Fixed, shelf: 0 }
    }

    /// The same at its place as of now: a score from 0 to 100. What differs by
    /// less than a factor of 1.4 in value counts as equal, so that rows can be
    /// taken as they lie: leasing in no order at all dirties more pages.
    #[must_use]
    pub fn valued(mut self, score: f64, claim: Claim) -> Self {
        let alike = f64::from(BANDS_ALIKE);
        let step = (score.clamp(0.0, 100.0) / alike).round() * alike;
        // Within 0 and 6,400.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = (step * f64::from(RANKS_A_BAND)) as u16;
        (self.rank, self.claim) = (rank, claim);
        self.shelf = self.id.0 / ROWS_A_SHELF;
        self
    }

    /// What it is ordered by, 0 to 1.02: hundredths of a band.
    pub fn value(&self) -> f64 {
        f64::from(self.rank) / f64::from(RANKS_A_BAND) / 100.0
    }
}

/// Places that count as one: half of those that a doubling of the value takes.
pub const BANDS_ALIKE: u8 = 4;
/// Rows that lie on about one page of a table.
const ROWS_A_SHELF: i64 = 64;
/// Steps of [`Candidate::rank`] in a band.
const RANKS_A_BAND: u16 = 64;
