//! The configuration as the program uses it: validated, resolved, immutable.
//!
//! `raw` holds it as typed, `resolve` and `site` turn that into these types,
//! and [`ConfigError`] says what was wrong where. Every value here has passed
//! its range, so nobody checks it again. A change goes through [`reload`],
//! which only compares: swapping is left to the daemon.

mod advice;
mod defaults;
mod document;
mod egress;
pub mod env;
pub mod error;
pub mod glob;
mod load;
mod raw;
mod read;
pub mod reload;
mod resolve;
mod secret;
mod show;
mod site;
pub mod subject;
pub mod units;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use url::Url;

pub use self::advice::warnings;
pub use self::egress::{Egress, Nats};
pub use self::env::Env;
pub use self::error::{ConfigError, Fault, Place};
use self::glob::ParamSet;
pub use self::resolve::{MAX_SOURCE_BYTES, MAX_URL_CHARS};
pub use self::secret::first_line;
pub use self::show::resolved_toml;
use crate::model::{ChangeFreq, Follow};

/// Everything the daemon was told, with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Who we are and where our data lives.
    pub daemon: Daemon,
    /// Where we listen.
    pub listen: Listen,
    /// How documents are fetched, and the limits on them.
    pub fetch: Fetch,
    /// How hosts are treated.
    pub politeness: Politeness,
    /// When sources are polled.
    pub poll: Poll,
    /// When URLs are fetched again.
    pub recrawl: Recrawl,
    /// How the queue is served.
    pub queue: Queue,
    /// What clients of the `URLFrontier` protocol may decide.
    pub urlfrontier: UrlFrontier,
    /// How the store keeps what it knows.
    pub store: Store,
    /// What is logged, and how.
    pub log: Log,
    /// What is published elsewhere.
    pub egress: Egress,
    /// The registered sites, by name.
    pub sites: BTreeMap<String, Arc<Site>>,
}

/// `[daemon]`
#[derive(Debug, Clone, PartialEq)]
pub struct Daemon {
    /// Absolute, or resolved against the config file's folder.
    pub data_dir: PathBuf,
    /// The `User-Agent` header; its product token is ours for robots.txt.
    pub user_agent: String,
    /// The `From` header.
    pub contact: Option<String>,
    /// Zone of cron lines and of date-only lastmods where a site names none.
    pub timezone: TimeZone,
}

/// `[listen]`
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    /// Fetchers and operators.
    pub api: SocketAddr,
    /// File that holds the bearer token; that or `token` is needed beyond loopback.
    pub token_file: Option<PathBuf>,
    /// Webmasters: pings, `IndexNow` and `WebSub`; nobody where it is not set.
    pub public: Option<SocketAddr>,
    /// Where others reach that listener, with a slash at the end: hubs are told
    /// to push there. Without it nothing is subscribed to.
    pub public_url: Option<Url>,
    /// Clients of the `URLFrontier` protocol; nobody where it is not set.
    pub grpc: Option<SocketAddr>,
    /// Other daemons that share a store on a server; not used with a file. Port 0
    /// lets the system pick one, which they learn from the store.
    pub internal: SocketAddr,
    /// The token itself, from the environment; used where no file is named.
    pub token: Option<env::Token>,
}

/// `[fetch]`. Its Debug form leaves secrets out.
#[derive(Clone, PartialEq)]
pub struct Fetch {
    /// Documents fetched at once, over all hosts.
    pub concurrency: usize,
    /// Limit on connecting, TLS included.
    pub connect_timeout: Duration,
    /// Limit on one request from its start to the last byte of the body.
    pub total_timeout: Duration,
    /// Limits that a site may override.
    pub limits: FetchLimits,
    /// Index within index, counted from the first index.
    pub max_index_depth: u32,
    /// Redirects followed for one document.
    pub max_redirects: u32,
    /// Explicit proxy; the environment's is never used.
    pub proxy: Option<Url>,
    /// More certificate authorities, PEM.
    pub ca_file: Option<PathBuf>,
    /// Exceptions to the private-address guard.
    pub allow: Vec<AllowedAddress>,
}

/// The part of `[fetch]` that a site may override under `limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// Bytes of one body as they come over the wire.
    pub max_wire_bytes: u64,
    /// Bytes of one body after decoding.
    pub max_body_bytes: u64,
    /// Entries of one document.
    pub max_urls: usize,
    /// Children of one index.
    pub max_sitemaps: usize,
    /// Characters of one URL.
    pub max_url_chars: usize,
}

/// One line of `fetch.allow`: an address or network, and one port or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedAddress {
    /// The network; a single address is a full-length prefix.
    pub net: ipnet::IpNet,
    /// The port; `None` allows every port.
    pub port: Option<u16>,
}

/// `[politeness]`
#[derive(Debug, Clone, PartialEq)]
pub struct Politeness {
    /// Least time between two requests to one host, polls and leases together.
    pub host_delay: Duration,
    /// Most URLs of one host in one lease.
    pub per_host: u32,
    /// Most requests in flight to one address, over all its hosts.
    pub per_address: u32,
}

/// `[poll]`
#[derive(Debug, Clone, PartialEq)]
pub struct Poll {
    /// Shortest interval of a source.
    pub min: Duration,
    /// Longest interval of a source.
    pub max: Duration,
    /// First interval of a source.
    pub first: Duration,
    /// Share of the interval that is random, 0.0 to 0.5.
    pub jitter: f64,
    /// Complete reads without a URL before it counts as removed.
    pub removal_polls: u32,
    /// Least time without a URL before it counts as removed.
    pub removal_after: Duration,
}

/// `[recrawl]`; `min` and `max` may be overridden per site.
#[derive(Debug, Clone, PartialEq)]
pub struct Recrawl {
    /// Shortest interval of a URL.
    pub min: Duration,
    /// Longest interval of a URL.
    pub max: Duration,
    /// How many fetches of known pages there are to share out.
    pub budget: Budget,
    /// What a fetch must be worth before anything has moved the price, in days
    /// of staleness: low enough that a believed signal is worth a fetch. While
    /// fetchers keep up nothing is lost by it, and where they do not it is found
    /// out within days, in which the order within a host is right already. No
    /// key of the file: only the demo, which lives faster, has another one.
    pub price: f64,
    /// `[recrawl.changefreq]`: the interval each word stands for.
    pub changefreq: ChangeFreqIntervals,
}

/// `recrawl.budget`, of each crawl.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// What its fetchers really settle.
    Auto,
    /// So many in a day.
    Daily(f64),
}

/// `[recrawl.changefreq]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeFreqIntervals {
    /// In the order of [`ChangeFreq::ALL`].
    pub by_word: [Duration; 7],
    /// Where a URL has no changefreq (key `absent`).
    pub absent: Duration,
}

impl ChangeFreqIntervals {
    /// The interval that a changefreq stands for.
    pub fn of(&self, changefreq: Option<ChangeFreq>) -> Duration {
        match changefreq {
            Some(word) => self.by_word[word as usize],
            None => self.absent,
        }
    }
}

/// `[queue]`
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// What is leased first.
    pub order: Order,
    /// How long a lease lasts where the fetcher names no `ttl`.
    pub lease: Duration,
    /// Deliveries of a URL before it is dead-lettered.
    pub max_attempts: u32,
}

/// `queue.order`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// changefreq's interval; the highest priority first, then the earliest due.
    Protocol,
    /// Begins as that and moves with evidence: the highest value first.
    Learned,
}

/// `[urlfrontier]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlFrontier {
    /// Is a URL due exactly when its client says so? Else never before.
    pub trust_dates: bool,
}

/// `[store]`
#[derive(Debug, Clone, PartialEq)]
pub struct Store {
    /// The database of a server that has the store (`postgres://…`); none: a
    /// file in the data folder. Secret: it may hold a password.
    pub url: Option<Url>,
    /// What a 2xx means.
    pub durability: Durability,
    /// How long change events are kept.
    pub keep_changes: Duration,
    /// How long the history of polls is kept.
    pub keep_polls: Duration,
    /// Below this much free disk, polls pause.
    pub min_free_disk: u64,
}

/// `store.durability`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Committed and synced: survives a power loss.
    Full,
    /// Committed: survives a killed process; a power loss may undo the last.
    Normal,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// For people or for machines.
    pub format: LogFormat,
    /// A level, or directives as tracing-subscriber's `EnvFilter` reads them.
    pub level: String,
}

/// `log.format`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text an event.
    Text,
    /// One JSON object an event.
    Json,
}

/// One `[[site]]`, with the daemon-wide values it does not override filled in.
/// Its Debug form leaves secrets out.
#[derive(Clone, PartialEq)]
pub struct Site {
    /// Unique, `[A-Za-z0-9._-]+`.
    pub name: String,
    /// The home page.
    pub url: Url,
    /// The namespace its URLs live in.
    pub crawl: String,
    /// Further hosts (`host` or `host:port`) whose URLs belong to the site.
    pub hosts: Vec<String>,
    /// Are http/https and www/bare one page?
    pub twins: Twins,
    /// Where its sitemaps are.
    pub sitemaps: SourceList,
    /// Where its feeds are.
    pub feeds: SourceList,
    /// When its sources are polled, if not by what they show.
    pub poll: PollRule,
    /// Zone of its cron line and of its date-only lastmods.
    pub timezone: TimeZone,
    /// Its share of the turns, above 0.
    pub weight: f64,
    /// Which URLs its sources may list.
    pub scope: Scope,
    /// If not empty, a URL must match one of these globs.
    pub include: Vec<String>,
    /// A URL must match none of these globs.
    pub exclude: Vec<String>,
    /// Steps of normalisation.
    pub normalise: Steps,
    /// Query parameters taken off, `*` at the end is a prefix.
    pub strip_params: Arc<ParamSet>,
    /// Which URLs that entries name are entries of their own.
    pub follow: Follow,
    /// Most URLs kept of it.
    pub max_urls: u64,
    /// Most sources kept of it.
    pub max_sources: u64,
    /// Is robots.txt obeyed for it?
    pub obey_robots: bool,
    /// Are the hubs that its sources name asked to push?
    pub websub: bool,
    /// The fetchers' product token, that listed pages are judged for.
    pub robots_agent: String,
    /// Headers sent with each request to it, `${ENV}` filled in. Secret.
    pub headers: Vec<(String, String)>,
    /// Limits on its documents.
    pub limits: FetchLimits,
    /// Its own `politeness.host_delay`.
    pub host_delay: Duration,
    /// Its own `recrawl.min`.
    pub recrawl_min: Duration,
    /// Its own `recrawl.max`.
    pub recrawl_max: Duration,
}

/// `site.twins`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twins {
    /// One page, in the form that the site itself redirects to.
    Merge,
    /// Different pages.
    Separate,
}

/// `site.normalise`: which steps make two spellings one page (see
/// [`crate::url`]); all unless the site lists fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // four switches, each on its own
pub struct Steps {
    /// `#fragment` goes.
    pub fragment: bool,
    /// `example.org.` is `example.org`.
    pub trailing_dot: bool,
    /// `%7e` is `~`, `%c3` is `%C3`.
    pub escapes: bool,
    /// `/page?` is `/page`.
    pub empty_query: bool,
}

impl Steps {
    /// Two spellings are two pages.
    pub const NONE: Self =
        Self { fragment: false, trailing_dot: false, escapes: false, empty_query: false };

    /// The words for the steps that are taken.
    pub fn words(self) -> Vec<String> {
        [
            (self.fragment, "fragment"),
            (self.trailing_dot, "trailing-dot"),
            (self.escapes, "escapes"),
            (self.empty_query, "empty-query"),
        ]
        .into_iter()
        .filter(|(taken, _)| *taken)
        .map(|(_, word)| word.to_owned())
        .collect()
    }
}

impl Default for Steps {
    fn default() -> Self {
        Self { fragment: true, trailing_dot: true, escapes: true, empty_query: true }
    }
}

/// `site.sitemaps`, `site.feeds`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceList {
    /// Found by us.
    Auto,
    /// Exactly these.
    Listed(Vec<Url>),
}

/// `site.poll`
#[derive(Debug, Clone, PartialEq)]
pub enum PollRule {
    /// By what the source shows.
    Adaptive,
    /// A fixed interval.
    Every(Duration),
    /// A cron line in the site's zone.
    Cron(crate::schedule::cron::CronSpec),
}

/// `site.scope`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The site's own host (and `hosts`, and its twin).
    Host,
    /// Below the folder of the sitemap, as the protocol says.
    Directory,
    /// The registrable domain.
    Domain,
    /// Anything.
    Any,
}

#[cfg(test)]
mod tests;
