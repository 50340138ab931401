//! What commands say of what they have done when the rest fails.

use serde_json::{Value, json};

use super::{outcome, sitemapd, sitemapd_in};
use crate::support::origin::Origin;
use crate::support::reply::Reply;

#[test]
fn an_import_that_the_daemon_ends_says_the_lines_and_what_was_taken_in_before() {
    let api = Origin::start_blocking();
    let taken = json!({ "taken": 4_990, "unknown": 10, "ignored": 0 }).to_string();
    let busy = json!({ "type": "about:blank", "status": 503, "detail": "The disk is full." });
    let busy = Reply::bytes("application/problem+json", busy.to_string()).with_status(503);
    api.set_sequence("/v1/import", [Reply::json(taken), busy]);
    let line = |n: u32| {
        format!("{{\"url\": \"http://a.test/{n}\", \"time\": \"2026-11-01T00:00:00Z\"}}\n")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let log = (0..6_000).map(line).collect::<String>();
    std::fs::write(folder.path().join("log.jsonl"), log).expect("a log");
    let mut import = sitemapd_in(folder.path());
    let (code, out, err) = outcome(import.args(["import", "log.jsonl", "--api", &api.base()]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("lines 5001 to 6000: The disk is full"), "{err}");
    assert!(err.contains("took in 4,990 fetches; 10 of URLs that no source lists"), "{err}");
}

#[test]
fn polls_that_came_are_told_to_programs_though_others_are_late() {
    let api = Origin::start_blocking();
    let source = |id: i64, at: &str| {
        json!({
            "id": id, "url": format!("http://a.test/{id}"), "site": "a", "role": "sitemap",
            "kind": null, "state": "active", "last_poll_at": at,
        })
    };
    let sources = |at: &str| {
        let rows = [source(1, at), source(2, "2026-11-01T00:00:00Z")];
        Reply::json(json!({ "sources": rows, "next": null }).to_string())
    };
    let looks = [sources("2026-11-01T00:00:00Z"), sources("2026-11-02T00:00:00Z")];
    api.set_sequence("/v1/sources?site=a&limit=1000", looks);
    api.set("/v1/sites/a/poll", Reply::json("{}"));
    let poll = json!({ "id": 7, "source": 1, "url": "http://a.test/1", "result": "changed" });
    api.set("/v1/sources/1", Reply::json(json!({ "polls": [poll] }).to_string()));
    let changes = json!({ "changes": [{ "url": "http://a.test/p", "kind": "new" }], "next": null });
    api.set("/v1/polls/7/changes?limit=1000", Reply::json(changes.to_string()));
    let args = ["poll", "a", "--json", "--wait", "1ms", "--api", &api.base()];
    let (code, out, err) = outcome(sitemapd().args(args));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("1 source was not polled within 1 ms"), "{err}");
    let told: Value = serde_json::from_str(&out).expect("json");
    assert_eq!(told["polls"][0]["poll"]["id"], 7, "{out}");
    assert_eq!(told["polls"][0]["changes"][0]["url"], "http://a.test/p", "{out}");
}
