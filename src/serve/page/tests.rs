//! Tests of the overview: nothing from outside gets to be markup.

use std::collections::BTreeMap;

use super::health::Commits;
use super::overview::{Shown, render};
use super::*;
use crate::model::Role;
use crate::model::SourceId;
use crate::recrawl::trust::Record;
use crate::store::pages::{Judged, SourceLine, Verdict};
use crate::store::views::{PollView, QueueView, SiteView, StatusView};

const HOSTILE: &str = "\"><script>alert(1)</script>\u{202e}\u{1b}[31m";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a timestamp")
}

fn status(text: &str) -> StatusView {
    let queue = QueueView {
        // Has to be sent back as it is, and the config lets in no others.
        crawl: text.chars().filter(char::is_ascii_graphic).collect(),
        queued: 1_234,
        due: 7,
        oldest_due_at: Some(at("2026-11-21T06:30:00Z")),
        paused: true,
        ..Default::default()
    };
    StatusView {
        version: "0.1.0".to_owned(),
        now: at("2026-11-21T08:30:00Z"),
        started_at: Some(at("2026-11-20T06:00:00Z")),
        sites: 1,
        sources: 3,
        sources_due: 0,
        sources_failing: 1,
        urls: 50_000,
        store_bytes: 1 << 20,
        wal_bytes: 0,
        polls_paused: false,
        polls_24h: BTreeMap::from([("changed".to_owned(), 7)]),
        changes_24h: Counts::default(),
        nodes: Vec::new(),
        queues: vec![queue],
    }
}

fn failing(text: &str, url: &str) -> SourceLine {
    SourceLine {
        id: SourceId(1),
        site: Some(text.to_owned()),
        url: url.to_owned(),
        role: Role::Sitemap,
        is_retired: false,
        status: text.to_owned(),
        error: Some(text.to_owned()),
        failures: 3,
        failing: Some(text.to_owned()),
        failing_since: None,
        last_poll_at: None,
        next_poll_at: Some(at("2026-11-21T09:33:10Z")),
        entries: 0,
    }
}

fn shown(text: &str, url: &str) -> Shown {
    let site = SiteView {
        name: text.to_owned(),
        url: url.to_owned(),
        crawl: text.to_owned(),
        state: text.to_owned(),
        origin: url.to_owned(),
        sources: 3,
        failing: 1,
        urls: 50_000,
        last_poll_at: Some(at("2026-11-21T08:28:30Z")),
        next_poll_at: Some(at("2026-11-21T09:33:10Z")),
    };
    let poll = |counts| PollView {
        id: 1,
        source: SourceId(1),
        url: url.to_owned(),
        site: Some(text.to_owned()),
        at: at("2026-11-21T08:28:30Z"),
        took: Duration::from_millis(1_204),
        result: text.to_owned(),
        http_status: Some(200),
        wire_bytes: 1,
        entries: 50_000,
        counts,
        error: Some(text.to_owned()),
    };
    let news = Counts { new: 12, removed: 1, unchanged: 9, ..Counts::default() };
    let record = Record { right: 0.25, hits: 1.0, looks: 4.0 };
    let host = (text.to_owned(), Verdict { record, is_believed: false });
    Shown {
        status: status(text),
        commits: Commits::Well,
        is_ready: true,
        tides: Tides::default(),
        sites: vec![site],
        failing: vec![failing(text, url)],
        judged: Judged { hosts: vec![host], doubted: 1, ..Judged::default() },
        polls: vec![poll(news), poll(Counts::default())],
        pending: (2, false),
        now: status(text).now,
    }
}

fn page_of(text: &str, url: &str) -> String {
    let sheet = Sheet::new(text, "/", &Look::default());
    sheet.of(&render(&shown(text, url), None)).text
}

#[test]
fn hostile_text_is_shown_and_never_run() {
    let html = page_of(HOSTILE, HOSTILE);
    assert!(!html.contains("<script"), "{html}");
    assert!(html.contains("&lt;script&gt;"));
    assert!(!html.contains('\u{202e}') && !html.contains('\u{1b}'));
}

#[test]
fn only_web_addresses_become_links_out() {
    for url in ["javascript:alert(1)", "data:text/html,x", "/relative", "JaVaScRiPt:x"] {
        let html = page_of("site", url);
        assert!(!html.contains(&format!("href=\"{url}")), "{url}");
    }
    let html = page_of("site", "https://example.org/?a=1&b=\"");
    assert!(html.contains("href=\"https://example.org/?a=1&amp;b=%22\""), "{html}");
}

#[test]
fn a_name_of_a_site_stays_one_segment_of_its_path() {
    for (name, path) in [("a", "/site/a"), ("a/../b c?d", "/site/a%2F..%2Fb%20c%3Fd")] {
        assert_eq!(path_of_site(name), path);
    }
}

#[test]
fn a_person_sees_what_matters_in_words() {
    let html = page_of("rust-blog", "https://blog.rust-lang.org/");
    for part in [
        "The crawl rust-blog is paused.",
        "1 of 3 sources fail.",
        "1,234",
        "2h",
        "1m 30s ago",
        "in 1h 3m",
        "12 new, 1 removed",
        "1s 204ms",
        "1d 2h",
        "as before",
        "not believed",
        "25 %",
        "URLs discovered",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

#[test]
fn what_was_read_after_an_older_count_is_not_yet_to_come() {
    let url = "https://example.org/";
    let mut shown = shown("site", url);
    shown.now = at("2026-11-21T08:30:40Z");
    shown.polls[0].at = at("2026-11-21T08:30:31Z");
    shown.sites[0].last_poll_at = Some(at("2026-11-21T08:30:32Z"));
    shown.failing[0].next_poll_at = Some(at("2026-11-21T08:30:50Z"));
    let html = render(&shown, None).into_string();
    for (part, is_said) in
        [("9s ago", true), ("8s ago", true), ("in 10s", true), ("in 31s", false), ("in 32s", false)]
    {
        assert_eq!(html.contains(part), is_said, "{part} in {html}");
    }
}

#[test]
fn nothing_but_our_own_style_is_loaded() {
    let html = page_of("site", "https://example.org/");
    assert!(!html.contains("style=") && !html.contains("src="));
    assert!(POLICY.contains("default-src 'none'") && !POLICY.contains("unsafe"));
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}

#[test]
fn a_page_asks_again_by_itself_only_where_that_was_asked_for() {
    assert!(!page_of("site", "https://example.org/").contains("http-equiv"));
    let sheet = Sheet { refresh: Some(15), ..Sheet::new("x", "/", &Look::default()) };
    assert!(sheet.of(&html! {}).text.contains("http-equiv=\"refresh\" content=\"15\""));
}

#[test]
fn pages_are_told_from_all_other_paths() {
    for path in ["/", "/sites", "/site/a", "/source/1", "/url", "/order", "/status.css"] {
        assert!(is_page(path), "{path}");
    }
    for path in ["/v1/sites", "/metrics", "/openapi.json", "/healthz", "/sitesx", "", "*"] {
        assert!(!is_page(path), "{path}");
    }
}
