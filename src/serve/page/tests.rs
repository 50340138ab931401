//! Tests of the status page: nothing from outside gets to be markup.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::model::SourceId;

const HOSTILE: &str = "\"><script>alert(1)</script>\u{202e}\u{1b}[31m";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a timestamp")
}

fn shown(text: &str, url: &str) -> Shown {
    let now = at("2026-11-21T08:30:00Z");
    let queue =
        QueueView { crawl: text.to_owned(), queued: 1_234, paused: true, ..Default::default() };
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
    let poll = PollView {
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
        counts: Counts { new: 12, removed: 1, unchanged: 9, ..Counts::default() },
        error: Some(text.to_owned()),
    };
    let status = StatusView {
        version: "0.1.0".to_owned(),
        now,
        started_at: Some(at("2026-11-20T06:00:00Z")),
        sites: 1,
        sources: 3,
        sources_due: 0,
        sources_failing: 1,
        urls: 50_000,
        store_bytes: 1 << 20,
        wal_bytes: 0,
        polls_24h: BTreeMap::from([("changed".to_owned(), 7)]),
        changes_24h: Counts::default(),
        queues: vec![queue],
    };
    Shown { status, sites: vec![site], polls: vec![poll] }
}

#[test]
fn hostile_text_is_shown_and_never_run() {
    let html = render(&shown(HOSTILE, HOSTILE)).into_string();
    assert!(!html.contains("<script"), "{html}");
    assert!(html.contains("&lt;script&gt;"));
    assert!(!html.contains('\u{202e}') && !html.contains('\u{1b}'));
}

#[test]
fn only_web_addresses_become_links() {
    for url in ["javascript:alert(1)", "data:text/html,x", "/relative", "JaVaScRiPt:x"] {
        let html = render(&shown("site", url)).into_string();
        assert!(!html.contains("<a "), "{url}");
    }
    let html = render(&shown("site", "https://example.org/?a=1&b=\"")).into_string();
    assert!(html.contains("href=\"https://example.org/?a=1&amp;b=%22\""), "{html}");
}

#[test]
fn a_person_sees_what_matters_in_words() {
    let html = render(&shown("rust-blog", "https://blog.rust-lang.org/")).into_string();
    for part in [
        "rust-blog",
        "1,234",
        "paused",
        "1m 30s ago",
        "in 1h 3m",
        "12 new, 1 removed",
        "1s 204ms",
        "Up for 1d 2h",
        "7 polls",
        "as before",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

#[test]
fn nothing_but_our_own_style_is_loaded() {
    let html = render(&shown("site", "https://example.org/")).into_string();
    assert!(!html.contains("style=") && !html.contains("src="));
    assert!(POLICY.contains("default-src 'none'") && !POLICY.contains("unsafe"));
}
