//! The store's read models as JSON: queue, URLs, status.
//!
//! One struct per object of the API, each made from one view of the store;
//! field order is the order that people read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Time;
use super::include::Lists;
use crate::model::{ChangeFreq, Lastmod, Outcome, Priority, Reason, SourceId, UrlId, UrlKind};
use crate::recrawl::explain::Explanation;
use crate::store::views::{
    BlockView, Counts, DeadView, PeekView, QueueView, StatusView, UrlState, UrlView,
};

/// One crawl's queue in numbers.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Queue {
    /// Whose queue it is.
    crawl: String,
    /// Is leasing from it paused?
    paused: bool,
    /// URLs in the queue, due now or later.
    queued: u64,
    /// Of these, due now; those that leases pass over for their site are not counted.
    due: u64,
    /// URLs with fetchers now.
    leased: u64,
    /// Dead letters: given up, and replayable.
    dead: u64,
    /// URLs that are not fetched any more unless listed anew: gone, redirecting to a listed one,
    /// not wanted by the site's rules, or about videos that have expired.
    parked: u64,
    /// URLs that a block holds back.
    blocked: u64,
    /// URLs that robots.txt holds back.
    forbidden: u64,
    /// Hosts with anything queued.
    hosts: u64,
    /// When the earliest that leases do not pass over is due; null where nothing is queued.
    next_due_at: Option<Time>,
    /// Since when the oldest due URL is due; null where none is.
    oldest_due_at: Option<Time>,
    /// When the oldest lease was given; null without leases.
    oldest_lease_at: Option<Time>,
}

impl From<QueueView> for Queue {
    fn from(view: QueueView) -> Self {
        Self {
            crawl: view.crawl,
            paused: view.paused,
            queued: view.queued,
            due: view.due,
            leased: view.leased,
            dead: view.dead,
            parked: view.parked,
            blocked: view.blocked,
            forbidden: view.forbidden,
            hosts: view.hosts,
            next_due_at: view.next_due_at.map(Time),
            oldest_due_at: view.oldest_due_at.map(Time),
            oldest_lease_at: view.oldest_lease_at.map(Time),
        }
    }
}

/// One URL that would be leased soon.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Peek {
    /// The row.
    id: UrlId,
    /// Normalised: its identity.
    url: String,
    /// Its site; null of one that only a client has pushed.
    site: Option<String>,
    /// Scheme, host and port: the key of politeness.
    host: String,
    /// Why it is due.
    reason: Reason,
    /// As listed, 0.5 where none is given.
    priority: Priority,
    /// As listed; null where none is.
    changefreq: Option<ChangeFreq>,
    /// When it is due.
    due_at: Time,
    /// When its host may be asked again.
    not_before: Time,
    /// Which delivery it would be, from 1.
    attempt: u32,
}

impl From<PeekView> for Peek {
    fn from(view: PeekView) -> Self {
        Self {
            id: view.id,
            url: view.url,
            site: view.site,
            host: view.host,
            reason: view.reason,
            priority: view.priority,
            changefreq: view.changefreq,
            due_at: Time(view.due_at),
            not_before: Time(view.not_before),
            attempt: view.attempt,
        }
    }
}

/// One dead letter.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Dead {
    /// The row.
    id: UrlId,
    /// Normalised: its identity.
    url: String,
    /// Its crawl.
    crawl: String,
    /// Its site; null of one that only a client has pushed.
    site: Option<String>,
    /// Deliveries made.
    attempts: u32,
    /// When it was given up.
    died_at: Time,
    /// HTTP status last reported; null where none was.
    status: Option<u16>,
    /// What the last report said went wrong; null where it said nothing.
    error: Option<String>,
}

impl From<DeadView> for Dead {
    fn from(view: DeadView) -> Self {
        Self {
            id: view.id,
            url: view.url,
            crawl: view.crawl,
            site: view.site,
            attempts: view.attempts,
            died_at: Time(view.died_at),
            status: view.status,
            error: view.error,
        }
    }
}

/// One block in force: of a `url`, or of all below a `prefix`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Block {
    /// In which crawl it holds.
    crawl: String,
    /// The URL that is blocked; left out of a block of a prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The beginning of all URLs that are blocked; left out of a block of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// Since when.
    since: Time,
}

impl From<BlockView> for Block {
    fn from(view: BlockView) -> Self {
        let (url, prefix) =
            if view.prefix { (None, Some(view.pattern)) } else { (Some(view.pattern), None) };
        Self { crawl: view.crawl, url, prefix, since: Time(view.since) }
    }
}

/// Everything known of one URL.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct KnownUrl {
    /// The row.
    id: UrlId,
    /// What it is; a page, unless the site follows more.
    kind: UrlKind,
    /// Normalised: its identity.
    url: String,
    /// As listed; null where that is the same.
    raw: Option<String>,
    /// Its crawl.
    crawl: String,
    /// Further crawls that have it, where none was asked for; left out without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    other_crawls: Vec<String>,
    /// Its site; null of one that only a client has pushed.
    site: Option<String>,
    /// Scheme, host and port: the key of politeness.
    host: String,
    /// Where it stands.
    state: UrlState,
    /// Does any source list it?
    listed: bool,
    /// The sources that list it; the evidence of the first counts first.
    sources: Vec<Listing>,
    /// When it was first listed.
    first_seen: Time,
    /// The best evidence of when the page changed; null without any.
    lastmod: Option<Lastmod>,
    /// The lastmod before that; null where it has not moved.
    previous_lastmod: Option<Lastmod>,
    /// As listed; null where none is.
    changefreq: Option<ChangeFreq>,
    /// As listed; null where none is.
    priority: Option<Priority>,
    /// Why it is due, or was last.
    reason: Reason,
    /// When it is due; null while it is not in the queue.
    due_at: Option<Time>,
    /// Why it is due when it is, or is not due, in one plain sentence.
    why: String,
    /// Deliveries in a row without success so far.
    attempt: u32,
    /// When its lease ends; null while nobody has it.
    leased_until: Option<Time>,
    /// Who has it; null where nobody has, or did not say.
    worker: Option<String>,
    /// When it was last fetched, as reported; null where it never was, as are the fields of the
    /// report below.
    fetched_at: Option<Time>,
    /// What the last report said; without one there, as its hash told.
    outcome: Option<Outcome>,
    /// HTTP status of the last report; null where it named none.
    status: Option<u16>,
    /// Content hash of the last report that had one.
    content_hash: Option<String>,
    /// What that hash is over; null where no report said.
    hash_kind: Option<String>,
    /// What the last report said went wrong; null where it said nothing.
    error: Option<String>,
    /// The canonical link of the page, by the last report; null where it named none.
    canonical: Option<String>,
    /// Did the last report say that the page asks not to be indexed?
    noindex: bool,
    /// Fetches reported.
    fetches: u64,
    /// Of these, with a change.
    changes: u64,
    /// When the last of its videos expires, or did; null unless each has an end.
    expires_at: Option<Time>,
    /// Until when it ranks, or ranked, as fresh news; null of what is no news.
    fresh_until: Option<Time>,
    /// What looks taught of it; null before the first, and in the protocol's order.
    learned: Option<Learned>,
    #[serde(flatten)]
    lists: Lists,
}

/// What looks taught of a URL, and what its due time rests on.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Learned {
    /// When a fetcher last saw the page.
    seen_at: Time,
    /// Signals since then, by kind: `lastmod`, `stamp`, `touched`, `pushed`; those that there
    /// were.
    pending: BTreeMap<&'static str, u8>,
    #[serde(flatten)]
    numbers: Explanation,
}

impl From<crate::store::views::Learned> for Learned {
    fn from(view: crate::store::views::Learned) -> Self {
        Self { seen_at: Time(view.seen_at), pending: view.pending, numbers: view.numbers }
    }
}

/// A source that lists a URL.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Listing {
    /// The row.
    id: SourceId,
    /// Where the source is.
    url: String,
}

impl From<UrlView> for KnownUrl {
    fn from(view: UrlView) -> Self {
        Self {
            id: view.id,
            kind: view.kind,
            url: view.url,
            raw: view.raw,
            crawl: view.crawl,
            other_crawls: view.other_crawls,
            site: view.site,
            host: view.host,
            state: view.state,
            listed: view.listed,
            sources: view.sources.into_iter().map(|(id, url)| Listing { id, url }).collect(),
            first_seen: Time(view.first_seen),
            lastmod: view.lastmod,
            previous_lastmod: view.previous_lastmod,
            changefreq: view.changefreq,
            priority: view.priority,
            reason: view.reason,
            due_at: view.due_at.map(Time),
            why: view.why,
            attempt: view.attempt,
            leased_until: view.leased_until.map(Time),
            worker: view.worker,
            fetched_at: view.fetched_at.map(Time),
            outcome: view.outcome,
            status: view.status,
            content_hash: view.content_hash,
            hash_kind: view.hash_kind,
            error: view.error,
            canonical: view.canonical,
            noindex: view.noindex,
            fetches: view.fetches,
            changes: view.changes,
            expires_at: view.expires_at.map(Time),
            fresh_until: view.fresh_until.map(Time),
            learned: view.learned.map(Learned::from),
            lists: Lists::all(view.extensions),
        }
    }
}

/// The whole at a glance.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Status {
    /// Version of the daemon.
    version: String,
    /// By the daemon's clock.
    now: Time,
    /// Since when the daemon runs; null when read without one.
    started_at: Option<Time>,
    /// Registered sites.
    sites: u64,
    /// Sources that are polled.
    sources: u64,
    /// Of these, due now.
    sources_due: u64,
    /// Of these, failing now.
    sources_failing: u64,
    /// URLs kept.
    urls: u64,
    /// Bytes of the database.
    store_bytes: u64,
    /// Bytes of its write-ahead log; 0 on a server.
    wal_bytes: u64,
    /// Do polls pause, because less than `store.min_free_disk` is free?
    polls_paused: bool,
    /// Polls of the last 24 hours, by result.
    polls_24h: BTreeMap<String, u64>,
    /// Changes of the last 24 hours.
    changes_24h: Counts,
    /// The queue of each crawl.
    queues: Vec<Queue>,
    /// The daemons that share the store; not there where it is in a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Node>,
}

/// A daemon that shares the store.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Node {
    /// Its name.
    name: String,
    /// `host:port` where other daemons reach it.
    address: Option<String>,
    /// When it joined.
    since: Time,
    /// How many of the 256 partitions it has.
    partitions: u32,
}

impl From<crate::store::Node> for Node {
    fn from(node: crate::store::Node) -> Self {
        let crate::store::Node { name, address, since, partitions } = node;
        Self { name, address, since: Time(since), partitions }
    }
}

impl From<StatusView> for Status {
    fn from(view: StatusView) -> Self {
        Self {
            version: view.version,
            now: Time(view.now),
            started_at: view.started_at.map(Time),
            sites: view.sites,
            sources: view.sources,
            sources_due: view.sources_due,
            sources_failing: view.sources_failing,
            urls: view.urls,
            store_bytes: view.store_bytes,
            wal_bytes: view.wal_bytes,
            polls_paused: view.polls_paused,
            polls_24h: view.polls_24h,
            changes_24h: view.changes_24h,
            queues: view.queues.into_iter().map(Queue::from).collect(),
            nodes: view.nodes.into_iter().map(Node::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;
    use crate::model::Precision;
    use crate::model::extension::{Extensions, News};

    #[test]
    fn everything_known_of_a_url_is_shown_in_the_spelling_of_the_api() {
        let at = |text: &str| text.parse().expect("a timestamp");
        let lastmod = Lastmod { at: at("2026-11-20T00:00:00Z"), precision: Precision::Day };
        let view = UrlView {
            id: UrlId(7),
            url: "https://example.org/a".to_owned(),
            raw: None,
            crawl: "default".to_owned(),
            other_crawls: Vec::new(),
            site: Some("example".to_owned()),
            host: "https://example.org:443".to_owned(),
            state: UrlState::Queued,
            listed: true,
            sources: vec![(SourceId(3), "https://example.org/sitemap.xml".to_owned())],
            first_seen: at("2026-11-01T00:00:00Z"),
            lastmod: Some(lastmod),
            previous_lastmod: None,
            changefreq: Some(ChangeFreq::Weekly),
            priority: Priority::from_thousandths(800),
            reason: Reason::Recrawl,
            due_at: Some(at("2026-11-21T08:30:00.25Z")),
            attempt: 0,
            leased_until: None,
            worker: None,
            fetched_at: None,
            outcome: Some(Outcome::Unchanged),
            status: Some(304),
            content_hash: None,
            hash_kind: None,
            error: Some("half a page".to_owned()),
            canonical: Some("https://example.org/b".to_owned()),
            noindex: true,
            fetches: 2,
            changes: 1,
            kind: UrlKind::Page,
            extensions: Extensions {
                news: vec![News { title: Some("T".to_owned()), ..News::default() }],
                ..Extensions::default()
            },
            expires_at: None,
            fresh_until: Some(at("2026-11-22T00:00:00Z")),
            why: "a week after it was last fetched".to_owned(),
            learned: None,
        };
        let json = to_value(KnownUrl::from(view)).expect("json");
        let listing = json!([{"id": 3, "url": "https://example.org/sitemap.xml"}]);
        for (field, value) in [
            ("state", json!("queued")),
            ("sources", listing),
            ("lastmod", json!("2026-11-20")),
            ("previous_lastmod", json!(null)),
            ("changefreq", json!("weekly")),
            ("priority", json!(0.8)),
            ("reason", json!("recrawl")),
            ("due_at", json!("2026-11-21T08:30:00.250Z")),
            ("outcome", json!("unchanged")),
            ("error", json!("half a page")),
            ("canonical", json!("https://example.org/b")),
            ("noindex", json!(true)),
            ("kind", json!("page")),
            ("news", json!([{"title": "T"}])),
            ("images", json!([])),
            ("expires_at", json!(null)),
            ("fresh_until", json!("2026-11-22T00:00:00.000Z")),
            ("why", json!("a week after it was last fetched")),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
    }

    #[test]
    fn a_block_is_shown_as_it_is_written_in_a_request() {
        for (prefix, shown, hidden) in [(false, "url", "prefix"), (true, "prefix", "url")] {
            let pattern = "https://example.org/a".to_owned();
            let since = "2026-11-21T08:30:00Z".parse().expect("a timestamp");
            let view = BlockView { crawl: "default".to_owned(), pattern, prefix, since };
            let json = to_value(Block::from(view)).expect("json");
            assert_eq!(json[shown], "https://example.org/a");
            assert!(json.get(hidden).is_none());
        }
    }
}
