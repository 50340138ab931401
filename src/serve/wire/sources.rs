//! The store's read models as JSON: sites, sources, polls, changes.
//!
//! A source has the fields of Search Console's sitemaps resource under this
//! API's spelling, because webmasters know them, and our own beside them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Span, Time};
use crate::model::{ChangeKind, DocumentKind, Role, SourceId, UrlId};
use crate::parse::Issue;
use crate::parse::robots::Subject;
use crate::recrawl::signal::Signal;
use crate::store::views::{
    ChangeView, Counts, PollView, PushView, SignalView, SiteView, SourceView, Trusted,
};

/// What came of the last poll of a source.
pub(super) const STATUSES: [&str; 4] = ["pending", "success", "has-errors", "could-not-fetch"];
/// Search Console's words for what a source is.
pub(super) const CONSOLE_TYPES: [&str; 5] =
    ["sitemap", "url-list", "rss-feed", "atom-feed", "not-sitemap"];

/// What a change may be, of a URL or of a robots.txt.
pub(crate) fn kinds_of_changes() -> Vec<&'static str> {
    let of_urls = ChangeKind::ALL.into_iter().map(ChangeKind::as_str);
    of_urls.chain(Subject::ALL.into_iter().map(Subject::as_str)).collect()
}

/// One site at a glance.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Site {
    /// Its name in the configuration.
    name: String,
    /// Its home page.
    url: String,
    /// Its crawl.
    crawl: String,
    /// `unregistered`: it left the configuration, and its rows are kept.
    #[schemars(extend("enum" = ["active", "paused", "unregistered"]))]
    state: String,
    /// Scheme, host and port that its twins are folded into.
    origin: String,
    /// Sources that are polled.
    sources: u64,
    /// Of these, failing now.
    failing: u64,
    /// URLs kept.
    urls: u64,
    /// When any of its sources was last polled; null where none was.
    last_poll_at: Option<Time>,
    /// When the next of its sources is polled; null where none is.
    next_poll_at: Option<Time>,
}

impl From<SiteView> for Site {
    fn from(view: SiteView) -> Self {
        Self {
            name: view.name,
            url: view.url,
            crawl: view.crawl,
            state: view.state,
            origin: view.origin,
            sources: view.sources,
            failing: view.failing,
            urls: view.urls,
            last_poll_at: view.last_poll_at.map(Time),
            next_poll_at: view.next_poll_at.map(Time),
        }
    }
}

/// One source. The fields up to `contents` are those of Search Console's
/// sitemaps resource, in this API's spelling; the rest is what we know beyond.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Source {
    /// Where it is, as Search Console names it.
    path: String,
    /// When it was registered.
    last_submitted: Time,
    /// Has it never been polled?
    is_pending: bool,
    /// Is it an index of sitemaps?
    is_sitemaps_index: bool,
    /// Search Console's word for what it is.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = CONSOLE_TYPES))]
    console_type: &'static str,
    /// When it was last read with success; null where it never was.
    last_downloaded: Option<Time>,
    /// Defects of the last read that lost nothing.
    warnings: u64,
    /// Defects of the last read that lost something.
    errors: u64,
    /// Entries of the last read, by type.
    contents: Vec<Contents>,

    /// The row.
    id: SourceId,
    /// Where it is.
    url: String,
    /// Its site; null of a host that no site has.
    site: Option<String>,
    /// What it is asked for.
    role: Role,
    /// What it turned out to be; null before its first read.
    kind: Option<DocumentKind>,
    /// Who named it.
    #[schemars(extend("enum" = ["config", "robots.txt", "well-known", "index", "home page", "submitted"]))]
    named_by: String,
    /// The index that lists it; null without one.
    parent: Option<SourceId>,
    /// `retired`: it is not polled any more; `why` says the reason.
    #[schemars(extend("enum" = ["active", "paused", "retired"]))]
    state: String,
    /// Does it list only what is recent (a feed, a news sitemap), so that absences from it mean
    /// nothing?
    window: bool,
    /// What came of its last poll; `has-errors`: read, with defects or not to its end.
    #[schemars(extend("enum" = STATUSES))]
    status: String,
    /// What went wrong with its last poll; null where nothing did.
    error: Option<String>,
    /// HTTP status of the last answer; null where none came.
    http_status: Option<u16>,
    /// When it was last polled; null where it never was.
    last_poll_at: Option<Time>,
    /// When it was last read with success (a 304 counts); null where it never was.
    last_success_at: Option<Time>,
    /// When it last showed something new; null where it never has.
    last_changed_at: Option<Time>,
    /// When it is polled next; null when retired or paused.
    next_poll_at: Option<Time>,
    /// Why then, or why never, in one plain sentence.
    why: String,
    /// Failures in a row.
    failures: u32,
    /// Entries of the last read.
    entries: u64,
    /// Of these, by what became of them: `accepted`, `out-of-scope`, `invalid`, …
    admitted: BTreeMap<String, u64>,
    /// Decoded bytes of the last read.
    bytes: u64,
    /// The defects of the last read, one of each kind.
    issues: Vec<Issue>,
    /// How far it is believed; null before its first read, and in the protocol's order.
    trust: Option<Trust>,
    /// How hubs push for it; null where it names none.
    push: Option<Push>,
    /// Its latest polls, the newest first; only in the answer for one source.
    #[serde(skip_serializing_if = "Option::is_none")]
    polls: Option<Vec<Poll>>,
}

/// How far what a source says is believed, by kind of signal.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Trust {
    /// How it writes lastmods, by its documents alone.
    #[schemars(extend("enum" = ["plain", "missing", "future", "always-now", "stamped", "backwards", "alternating", "frozen", "date-only"]))]
    habit: &'static str,
    /// What its newer lastmods were at its last read that had any: `lastmod`, or `stamp` where
    /// nearly all had one date.
    #[schemars(extend("enum" = Signal::ALL.map(Signal::as_str)))]
    moves: &'static str,
    /// How far each kind of signal of this source is believed: `lastmod`, `stamp`, `touched`,
    /// `pushed`.
    signals: BTreeMap<&'static str, Signalled>,
    /// The same of all sources of its host.
    host: BTreeMap<&'static str, Signalled>,
}

/// The trust in one kind of signal.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Signalled {
    /// How likely such a signal is right, 0 to 1: by what was looked at, and before any look what
    /// other sources teach.
    right: f64,
    /// Of the looks, how many found a change; the older count for less.
    hits: f64,
    /// Looks at pages that it had signalled, the older counting for less; 0: nothing was looked
    /// at yet.
    looks: f64,
    /// Does it pull a URL forward?
    believed: bool,
}

impl From<Trusted> for Trust {
    fn from(view: Trusted) -> Self {
        let all = |signals: Vec<(Signal, SignalView)>| {
            let named = |(signal, view): (Signal, SignalView)| {
                let SignalView { record, is_believed: believed } = view;
                let (right, hits, looks) = (record.right, record.hits, record.looks);
                (signal.as_str(), Signalled { right, hits, looks, believed })
            };
            signals.into_iter().map(named).collect()
        };
        Self {
            habit: view.habit.as_str(),
            moves: view.moves.as_str(),
            signals: all(view.signals),
            host: all(view.host),
        }
    }
}

/// How hubs push for a source (`WebSub`).
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Push {
    /// How that does; docs/OPERATIONS.md says what each word means.
    #[schemars(extend("enum" = ["wanted", "asked", "unproven", "healthy", "broken", "denied", "failed"]))]
    state: &'static str,
    /// What the source names as its own URL.
    topic: String,
    /// The hub that pushes, or is asked to; null where none is.
    hub: Option<String>,
    /// Since when it has promised to push; null where it has not.
    since: Option<Time>,
    /// Until when; null where it has not promised.
    lease_until: Option<Time>,
    /// When a hub is asked next: a renewal, or another try.
    next_request_at: Time,
    /// Pushes read so far.
    pushes: u64,
    /// When the last of these came; null before the first.
    last_push_at: Option<Time>,
    /// Since when polls find what no push has brought; null while pushes are whole.
    broken_since: Option<Time>,
    /// Why the last request failed; null where it did not.
    error: Option<String>,
}

impl From<PushView> for Push {
    fn from(view: PushView) -> Self {
        Self {
            state: view.state,
            topic: view.topic,
            hub: view.hub,
            since: view.since.map(Time),
            lease_until: view.lease_until.map(Time),
            next_request_at: Time(view.next_request_at),
            pushes: view.pushes,
            last_push_at: view.last_push_at.map(Time),
            broken_since: view.broken_since.map(Time),
            error: view.error,
        }
    }
}

/// How many entries of a type a source lists; only pages are counted.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Contents {
    /// Always `web`: pages.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["web"]))]
    pub(super) content_type: &'static str,
    /// Entries of the last read.
    pub(super) submitted: u64,
}

impl From<SourceView> for Source {
    fn from(view: SourceView) -> Self {
        let contents = vec![Contents { content_type: "web", submitted: view.entries }];
        Self {
            path: view.url.clone(),
            last_submitted: Time(view.submitted_at),
            is_pending: view.status == "pending",
            is_sitemaps_index: view.kind == Some(DocumentKind::Index),
            console_type: console_type(view.role, view.kind),
            last_downloaded: view.last_success_at.map(Time),
            warnings: view.warnings,
            errors: view.errors,
            contents,
            id: view.id,
            url: view.url,
            site: view.site,
            role: view.role,
            kind: view.kind,
            named_by: view.named_by,
            parent: view.parent,
            state: view.state,
            window: view.window,
            status: view.status,
            error: view.error,
            http_status: view.http_status,
            last_poll_at: view.last_poll_at.map(Time),
            last_success_at: view.last_success_at.map(Time),
            last_changed_at: view.last_changed_at.map(Time),
            next_poll_at: view.next_poll_at.map(Time),
            why: view.why,
            failures: view.failures,
            entries: view.entries,
            admitted: view.admitted,
            bytes: view.bytes,
            issues: view.issues,
            trust: view.trust.map(Trust::from),
            push: view.push.map(Push::from),
            polls: None,
        }
    }
}

impl Source {
    /// The source with its poll history, as the route of one source answers it.
    pub(crate) fn with_polls(view: SourceView, polls: Vec<PollView>) -> Self {
        let polls = polls.into_iter().map(Poll::from).collect();
        Self { polls: Some(polls), ..Self::from(view) }
    }
}

/// Search Console's word for what a source is; before its first read, what it
/// is asked for.
pub(super) fn console_type(role: Role, kind: Option<DocumentKind>) -> &'static str {
    match kind {
        Some(DocumentKind::Urlset | DocumentKind::Index | DocumentKind::Mixed) => "sitemap",
        Some(DocumentKind::Text) => "url-list",
        Some(DocumentKind::Rss | DocumentKind::Rdf | DocumentKind::JsonFeed) => "rss-feed",
        Some(DocumentKind::Atom) => "atom-feed",
        Some(DocumentKind::Robots | DocumentKind::Unsupported) => "not-sitemap",
        None => match role {
            Role::Sitemap => "sitemap",
            Role::Feed => "rss-feed",
            Role::Robots | Role::Home => "not-sitemap",
        },
    }
}

/// One poll of one source.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Poll {
    /// The poll; they rise in the order of their commits.
    id: i64,
    /// Of which source.
    source: SourceId,
    /// Where that source is.
    url: String,
    /// Its site; null of a host that no site has.
    site: Option<String>,
    /// When it began.
    at: Time,
    /// How long it took, from then to the commit, waits for its host included.
    took: Span,
    /// What came of it; docs/OPERATIONS.md says what each word means, and what follows.
    #[schemars(extend("enum" = ["changed", "unchanged", "not-modified", "pushed", "let-go", "incomplete", "unsupported", "not-found", "gone", "denied", "throttled", "forbidden", "blocked", "failed"]))]
    result: String,
    /// HTTP status of the last answer; null where none came.
    http_status: Option<u16>,
    /// Bytes of the body over the wire.
    wire_bytes: u64,
    /// Entries read.
    entries: u64,
    /// URLs by what became of them.
    counts: Counts,
    /// What went wrong; null where nothing did.
    error: Option<String>,
}

impl From<PollView> for Poll {
    fn from(view: PollView) -> Self {
        Self {
            id: view.id,
            source: view.source,
            url: view.url,
            site: view.site,
            at: Time(view.at),
            took: Span(view.took),
            result: view.result,
            http_status: view.http_status,
            wire_bytes: view.wire_bytes,
            entries: view.entries,
            counts: view.counts,
            error: view.error,
        }
    }
}

/// One change that a poll made.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Change {
    /// What happened to the URL, or which statements of a robots.txt are others.
    #[schemars(extend("enum" = kinds_of_changes()))]
    kind: &'static str,
    /// The row; null of a robots.txt.
    id: Option<UrlId>,
    /// To which URL.
    url: String,
    /// When it was committed.
    at: Time,
    /// Of a robots.txt: its statements that are gone, a line each, the first few; left out of a
    /// URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    /// Of a robots.txt: its statements that are new, a line each, the first few; left out of a
    /// URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

impl From<ChangeView> for Change {
    fn from(view: ChangeView) -> Self {
        let ChangeView { kind, id, url, at, said } = view;
        let (was, now) = said.map(|said| (said.was, said.now)).unzip();
        Self { kind, id, url, at: Time(at), was, now }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{json, to_value};

    use super::*;
    use crate::store::views::Said;

    fn view() -> SourceView {
        let at = |text: &str| text.parse().expect("a timestamp");
        SourceView {
            id: SourceId(3),
            site: Some("blog".to_owned()),
            url: "https://example.org/sitemap.xml".to_owned(),
            role: Role::Sitemap,
            kind: Some(DocumentKind::Index),
            named_by: "robots.txt".to_owned(),
            parent: None,
            state: "active".to_owned(),
            window: false,
            status: "success".to_owned(),
            error: None,
            http_status: Some(200),
            submitted_at: at("2026-11-01T00:00:00Z"),
            last_poll_at: Some(at("2026-11-21T08:30:00Z")),
            last_success_at: Some(at("2026-11-21T08:30:00Z")),
            last_changed_at: None,
            next_poll_at: Some(at("2026-11-21T09:30:00Z")),
            why: "an hour after the last poll".to_owned(),
            failures: 0,
            failing: None,
            entries: 12,
            admitted: BTreeMap::from([("accepted".to_owned(), 12)]),
            bytes: 3_456,
            trust: None,
            errors: 1,
            warnings: 2,
            push: None,
            issues: Vec::new(),
        }
    }

    #[test]
    fn a_source_has_the_fields_that_webmasters_know() {
        let json = to_value(Source::from(view())).expect("json");
        for (field, value) in [
            ("path", json!("https://example.org/sitemap.xml")),
            ("last_submitted", json!("2026-11-01T00:00:00.000Z")),
            ("is_pending", json!(false)),
            ("is_sitemaps_index", json!(true)),
            ("type", json!("sitemap")),
            ("last_downloaded", json!("2026-11-21T08:30:00.000Z")),
            ("warnings", json!(2)),
            ("errors", json!(1)),
            ("contents", json!([{"type": "web", "submitted": 12}])),
            ("why", json!("an hour after the last poll")),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
        assert!(json.get("polls").is_none(), "only the route of one source has its polls");
    }

    #[test]
    fn a_source_that_was_never_read_is_pending_and_of_the_type_it_is_asked_for() {
        let status = "pending".to_owned();
        let json = to_value(Source::from(SourceView { kind: None, status, ..view() }));
        let json = json.expect("json");
        assert_eq!((&json["is_pending"], &json["type"]), (&json!(true), &json!("sitemap")));
    }

    #[test]
    fn one_source_comes_with_its_polls() {
        let poll = PollView {
            id: 9,
            source: SourceId(3),
            url: "https://example.org/sitemap.xml".to_owned(),
            site: None,
            at: "2026-11-21T08:30:00Z".parse().expect("a timestamp"),
            took: Duration::from_micros(61_204_567),
            result: "not-modified".to_owned(),
            http_status: Some(304),
            wire_bytes: 0,
            entries: 0,
            counts: Counts { unchanged: 12, ..Counts::default() },
            error: None,
        };
        let json = to_value(Source::with_polls(view(), vec![poll])).expect("json");
        assert_eq!(json["polls"][0]["took"], "1m 1s 204ms");
        assert_eq!(json["polls"][0]["counts"]["unchanged"], 12);
    }

    #[test]
    fn a_change_of_robots_txt_shows_both_texts_and_one_of_a_url_its_row() {
        let at = "2026-11-21T12:00:00Z".parse().expect("a timestamp");
        let url = "https://a.example/robots.txt".to_owned();
        let said = Said { was: "*: Disallow: /a".to_owned(), now: String::new() };
        let view = ChangeView { kind: "rules", id: None, url, at, said: Some(said) };
        assert_eq!(
            to_value(Change::from(view)).expect("JSON"),
            json!({
                "kind": "rules", "id": null, "url": "https://a.example/robots.txt",
                "at": "2026-11-21T12:00:00.000Z", "was": "*: Disallow: /a", "now": "",
            })
        );
        let (url, id) = ("https://a.example/".to_owned(), Some(UrlId(7)));
        let view = ChangeView { kind: "new", id, url, at, said: None };
        assert_eq!(
            to_value(Change::from(view)).expect("JSON"),
            json!({
                "kind": "new", "id": 7, "url": "https://a.example/",
                "at": "2026-11-21T12:00:00.000Z",
            })
        );
    }
}
