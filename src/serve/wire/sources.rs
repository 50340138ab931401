//! The store's read models as JSON: sites, sources, polls, changes.
//!
//! A source has the fields of Search Console's sitemaps resource under this
//! API's spelling, because webmasters know them, and our own beside them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Span, Time};
use crate::model::{DocumentKind, Role, SourceId, UrlId};
use crate::parse::Issue;
use crate::recrawl::signal::Signal;
use crate::store::views::{
    ChangeView, Counts, PollView, PushView, SignalView, SiteView, SourceView, Trusted,
};

/// One site at a glance.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Site {
    name: String,
    url: String,
    crawl: String,
    state: String,
    origin: String,
    sources: u64,
    failing: u64,
    urls: u64,
    last_poll_at: Option<Time>,
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
    path: String,
    last_submitted: Time,
    is_pending: bool,
    is_sitemaps_index: bool,
    #[serde(rename = "type")]
    console_type: &'static str,
    last_downloaded: Option<Time>,
    warnings: u64,
    errors: u64,
    contents: Vec<Contents>,

    id: SourceId,
    url: String,
    site: Option<String>,
    role: Role,
    kind: Option<DocumentKind>,
    named_by: String,
    parent: Option<SourceId>,
    state: String,
    window: bool,
    status: String,
    error: Option<String>,
    http_status: Option<u16>,
    last_poll_at: Option<Time>,
    last_success_at: Option<Time>,
    last_changed_at: Option<Time>,
    next_poll_at: Option<Time>,
    why: String,
    failures: u32,
    entries: u64,
    admitted: BTreeMap<String, u64>,
    bytes: u64,
    issues: Vec<Issue>,
    trust: Option<Trust>,
    push: Option<Push>,
    #[serde(skip_serializing_if = "Option::is_none")]
    polls: Option<Vec<Poll>>,
}

/// How far what a source says is believed, by kind of signal.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Trust {
    habit: &'static str,
    moves: &'static str,
    signals: BTreeMap<&'static str, Signalled>,
    host: BTreeMap<&'static str, Signalled>,
}

/// The trust in one kind of signal.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Signalled {
    right: f64,
    hits: f64,
    looks: f64,
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
    state: &'static str,
    topic: String,
    hub: Option<String>,
    since: Option<Time>,
    lease_until: Option<Time>,
    next_request_at: Time,
    pushes: u64,
    last_push_at: Option<Time>,
    broken_since: Option<Time>,
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
    #[serde(rename = "type")]
    pub(super) content_type: &'static str,
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
    id: i64,
    source: SourceId,
    url: String,
    site: Option<String>,
    at: Time,
    took: Span,
    result: String,
    http_status: Option<u16>,
    wire_bytes: u64,
    entries: u64,
    counts: Counts,
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
    kind: &'static str,
    id: Option<UrlId>,
    url: String,
    at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<String>,
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
