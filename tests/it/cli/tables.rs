//! What the tables say beside their columns.

use serde_json::{Value, json};

use super::{outcome, sitemapd};
use crate::support::origin::Origin;
use crate::support::reply::Reply;

/// What a command prints where the API answers so.
fn printed(path: &str, answer: &Value, args: &[&str]) -> String {
    let api = Origin::start_blocking();
    api.set(path, Reply::json(answer.to_string()));
    let (code, out, err) = outcome(sitemapd().args(args).args(["--api", &api.base()]));
    assert_eq!(code, 0, "{err}");
    out
}

#[test]
fn a_lastmod_has_a_number_only_where_pages_were_looked_at() {
    for (looks, shown) in [(0.0, "plain"), (0.6, "plain"), (1.0, "plain 64 %")] {
        let trusted = json!({"right": 0.64, "hits": looks, "looks": looks, "believed": true});
        let mut source = source(1, "active", "success", None, "the interval");
        source["trust"] = json!({
            "habit": "plain", "moves": "lastmod", "signals": {"lastmod": trusted},
        });
        let answer = json!({"sources": [source], "next": null});
        let out = printed("/v1/sources?limit=1000", &answer, &["sources"]);
        assert!(out.contains(shown) && out.contains('%') == shown.contains('%'), "{looks}: {out}");
    }
}

#[test]
fn a_source_of_which_much_is_not_taken_says_so() {
    for (admitted, shown) in [
        (
            json!({"out-of-scope": 30}),
            Some("30 of its 30 URLs are not taken: 30 out-of-scope; `hosts`"),
        ),
        (
            json!({"accepted": 3, "excluded": 1}),
            Some("1 of its 4 URLs are not taken: 1 excluded\n"),
        ),
        (json!({"accepted": 100, "invalid": 1}), None),
        (json!({"accepted": 100}), None),
    ] {
        let mut source = source(1, "active", "success", None, "the interval");
        source["admitted"] = admitted;
        let answer = json!({"sources": [source], "next": null});
        let out = printed("/v1/sources?limit=1000", &answer, &["sources"]);
        match shown {
            Some(shown) => assert!(out.contains(shown), "{out}"),
            None => assert!(!out.contains("not taken"), "{out}"),
        }
    }
}

#[test]
fn urls_that_are_not_fetched_any_more_are_called_parked() {
    let queue = json!({
        "crawl": "default", "parked": 1_234, "next_due_at": null,
    });
    let answer = json!({ "queues": [queue] });
    let out = printed("/v1/queue", &answer, &["queue", "stats"]);
    let head = out.lines().next().unwrap_or_default();
    assert!(head.contains("parked") && !head.contains("gone"), "{out}");
    assert!(out.contains("1,234"), "{out}");
}

#[test]
fn what_a_fetcher_said_of_a_page_is_shown_with_what_is_known_of_it() {
    let mut answer = json!({
        "url": "http://a.test/", "crawl": "default", "state": "queued", "reason": "recrawl",
        "first_seen": "2026-11-21T00:00:00Z", "learned": null, "why": "due now: a reason",
        "error": "half a page\u{1b}[2J", "canonical": "http://a.test/home", "noindex": true,
    });
    let ask = |answer: &Value| {
        printed("/v1/url?url=http%3A%2F%2Fa.test%2F", answer, &["url", "http://a.test/"])
    };
    let out = ask(&answer);
    for shown in
        ["error     half a page\\u{1b}", "canonical http://a.test/home", "noindex   the page"]
    {
        assert!(out.contains(shown), "{shown}: {out}");
    }
    for field in ["error", "canonical", "noindex"] {
        answer.as_object_mut().expect("fields").remove(field);
        assert!(
            !ask(&answer).contains(&format!("  {field}")),
            "an older daemon says nothing of it"
        );
    }
}

#[test]
fn blocks_are_listed_with_what_they_are_of() {
    let since = "2026-11-21T00:00:00Z";
    let blocks = json!([
        {"crawl": "default", "prefix": "http://a.test/private/", "since": since},
        {"crawl": "news", "url": "http://a.test/\u{1b}one", "since": since},
    ]);
    let list = |next: Value| {
        let answer = json!({ "blocks": blocks, "next": next });
        printed("/v1/queue/blocks?limit=100", &answer, &["queue", "blocks"])
    };
    let out = list(Value::Null);
    let lines: Vec<Vec<&str>> =
        out.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(lines[1], ["http://a.test/private/", "prefix", "default"], "{out}");
    assert_eq!(lines[2], ["http://a.test/\\u{1b}one", "url", "news"], "{out}");
    assert!(!out.contains("there are more") && list(json!("b1.0.x")).contains("there are more"));
    let nothing = json!({"blocks": [], "next": null});
    let out = printed(
        "/v1/queue/blocks?limit=5&crawl=news",
        &nothing,
        &["queue", "blocks", "--limit", "5", "--crawl", "news"],
    );
    assert_eq!(out, "nothing is blocked\n");
}

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
    api.set("/v1/sites/a/poll", Reply::json("{}"));
    let poll = json!({ "id": 5, "source": 1, "url": "http://a.test/1.xml", "result": "gone",
        "http_status": 410, "error": "410 Gone" });
    after["polls"] = json!([poll]);
    api.set("/v1/sources/1", Reply::json(after.to_string()));
    let none = json!({ "changes": [], "next": null }).to_string();
    api.set("/v1/polls/5/changes?limit=20", Reply::json(none));
    let args = ["poll", "a", "--wait", "2s", "--api", &api.base()];
    let (code, out, err) = outcome(sitemapd().args(args));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, "http://a.test/1.xml\n  gone  410 Gone\n");
}

#[test]
fn a_poll_that_had_begun_before_it_was_asked_for_is_not_the_one() {
    let api = Origin::start_blocking();
    let told = |last: &str, next: &str, why: &str| {
        let mut row = source(1, "active", "success", None, why);
        row["last_poll_at"] = json!(last);
        row["next_poll_at"] = json!(next);
        row
    };
    let list = |row: Value| Reply::json(json!({ "sources": [row], "next": null }).to_string());
    let (under_way, asked, next) =
        ("2026-11-21T08:00:00.000Z", "2026-11-21T08:00:05.000Z", "2026-11-22T08:00:00.000Z");
    let after = told("2026-11-21T08:00:07.000Z", next, "the interval");
    api.set_sequence(
        "/v1/sources?site=a&limit=1000",
        [
            list(told("2026-11-20T08:00:00.000Z", under_way, "the interval")),
            // One under way ends before we look, and the next while we wait.
            list(told(under_way, asked, "someone asked for it")),
            list(told(under_way, asked, "someone asked for it")),
            list(after.clone()),
        ],
    );
    api.set("/v1/sites/a/poll", Reply::json("{}"));
    let poll = |id: i64, result: &str| json!({ "id": id, "source": 1, "url": "http://a.test/1.xml", "result": result });
    let mut whole = after;
    whole["polls"] = json!([poll(7, "pushed"), poll(6, "unchanged"), poll(5, "changed")]);
    api.set("/v1/sources/1", Reply::json(whole.to_string()));
    let none = json!({ "changes": [], "next": null }).to_string();
    api.set("/v1/polls/6/changes?limit=20", Reply::json(none));
    let args = ["poll", "a", "--wait", "5s", "--api", &api.base()];
    let (code, out, err) = outcome(sitemapd().args(args));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, "http://a.test/1.xml\n  unchanged\n");
    assert_eq!(api.requests("/v1/sources?site=a&limit=1000").len(), 4);
}
