//! What the tables say beside their columns.

use serde_json::{Value, json};

use super::{outcome, sitemapd};
use crate::support::origin::Origin;
use crate::support::reply::Reply;

fn source(id: i64, state: &str, status: &str, error: Option<&str>, why: &str) -> Value {
    json!({
        "id": id, "url": format!("http://a.test/{id}.xml"), "site": "a", "role": "sitemap",
        "kind": null, "state": state, "status": status, "error": error, "why": why,
    })
}

#[test]
fn a_source_that_fails_or_is_retired_says_why_under_its_line() {
    let api = Origin::start_blocking();
    let long = format!("503 Service Unavailable {}", "and so on ".repeat(20));
    let rows = [
        source(1, "active", "success", None, "the interval"),
        source(2, "active", "could-not-fetch", Some(&long), "failed once: tried again"),
        source(3, "retired", "could-not-fetch", Some("404 Not Found"), "gone three times\u{1b}[2J"),
        source(4, "active", "could-not-fetch", None, "robots.txt forbids it"),
    ];
    let answer = json!({ "sources": rows, "next": null }).to_string();
    api.set("/v1/sources?retired=true&limit=1000", Reply::json(answer));
    let args = ["sources", "--retired", "--api", &api.base()];
    let (code, out, err) = outcome(sitemapd().args(args));
    assert_eq!(code, 0, "{err}");
    let lines: Vec<&str> = out.lines().collect();
    let under = |id: u8| {
        let at = lines.iter().position(|line| line.contains(&format!("/{id}.xml")));
        lines.get(at.expect("a row") + 1).copied().unwrap_or_default()
    };
    assert!(under(1).contains("/2.xml"), "what is well says nothing more: {out}");
    assert!(under(2).starts_with("    503 Service Unavailable"), "{out}");
    assert_eq!(under(3), "    gone three times\\u{1b}[2J", "{out}");
    assert_eq!(under(4), "    robots.txt forbids it", "{out}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{out}");
}

#[test]
fn a_poll_after_which_its_source_is_retired_is_shown_as_any_other() {
    let api = Origin::start_blocking();
    let list = |rows: Vec<Value>| Reply::json(json!({ "sources": rows, "next": null }).to_string());
    let before = source(1, "active", "success", None, "the interval");
    let mut after = source(1, "retired", "could-not-fetch", Some("410 Gone"), "gone twice");
    after["last_poll_at"] = json!("2026-11-21T08:00:00.000Z");
    // Who asks for active ones only is told of it no more.
    api.set_sequence("/v1/sources?site=a&limit=1000", [list(vec![before]), list(vec![])]);
    api.set("/v1/sources?site=a&retired=true&limit=1000", list(vec![after]));
    api.set("/v1/sites/a/poll", Reply::json("{}"));
    let poll = json!({ "id": 5, "source": 1, "url": "http://a.test/1.xml", "result": "gone",
        "http_status": 410, "error": "410 Gone" });
    api.set("/v1/sources/1", Reply::json(json!({ "polls": [poll] }).to_string()));
    let none = json!({ "changes": [], "next": null }).to_string();
    api.set("/v1/polls/5/changes?limit=20", Reply::json(none));
    let args = ["poll", "a", "--wait", "2s", "--api", &api.base()];
    let (code, out, err) = outcome(sitemapd().args(args));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, "http://a.test/1.xml\n  gone  410 Gone\n");
}
