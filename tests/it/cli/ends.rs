//! What commands say of what they have done when the rest fails.

use serde_json::json;

use super::{outcome, sitemapd_in};
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
