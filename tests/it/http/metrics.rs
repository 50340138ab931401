//! The metrics of a daemon at work: what they time, and that they are well-formed.

use std::process::{Command, Stdio};

use super::*;
use crate::support::daemon::{World, sitemap};
use crate::support::{Origin, Reply};

async fn scrape(api: SocketAddr) -> String {
    let mut stream = TcpStream::connect(api).await.unwrap();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    Answer::read(&answer).body
}

#[track_caller]
fn assert_said(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|said| said == *line), "{line} is not in\n{text}");
    }
}

/// A daemon on a clock of ours that has seen, leased and settled something.
async fn at_work() -> String {
    let origin = Origin::start().await;
    let base = origin.base();
    let old = ("/old", "2026-11-21T09:00:00Z");
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[old])));
    let world = World::new(&[&origin]);
    let text = format!(
        "[queue]\nmax_attempts = 1\n[[site]]\nname = \"a\"\nurl = \"{base}/\"\nfeeds = []\n\
         sitemaps = [\"{base}/sitemap.xml\"]\n"
    );
    let daemon = world.start(&text).await;
    daemon.polled("/sitemap.xml", 1).await;
    // Published two minutes before the second read; one only says the day.
    let news = [old, ("/new", "2026-11-21T12:28:00Z"), ("/day", "2026-11-21")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &news)));
    world.clock.advance(Duration::from_secs(30 * 60));
    daemon.poll("/sitemap.xml").await;
    world.clock.advance(Duration::from_secs(40));
    let api = ApiClient::new(&daemon.api.to_string(), None).unwrap();
    let leased: Value = api.post("/v1/lease", &json!({ "max": 10 })).await.unwrap();
    world.clock.advance(Duration::from_secs(4));
    let results: Vec<Value> = leased["urls"].as_array().unwrap()[1..]
        .iter()
        .map(|url| json!({ "token": url["token"], "outcome": "failed" }))
        .collect();
    assert_eq!(results.len(), 2);
    let _: Value = api.post("/v1/settle", &json!({ "results": results })).await.unwrap();
    let text = scrape(daemon.api).await;
    daemon.stop().await;
    text
}

#[tokio::test]
async fn the_way_from_publication_to_settlement_is_timed() {
    let text = at_work().await;
    assert_said(
        &text,
        &[
            "sitemapd_published_to_seen_seconds_sum{crawl=\"default\"} 120.0",
            "sitemapd_published_to_seen_seconds_count{crawl=\"default\"} 1",
            // The old one has waited for half an hour longer.
            "sitemapd_seen_to_leased_seconds_sum{crawl=\"default\"} 1920.0",
            "sitemapd_seen_to_leased_seconds_count{crawl=\"default\"} 3",
            "sitemapd_leased_to_settled_seconds_sum{crawl=\"default\"} 8.0",
            "sitemapd_leased_to_settled_seconds_count{crawl=\"default\"} 2",
            "sitemapd_queue_oldest_lease_seconds{crawl=\"default\"} 4.0",
            "sitemapd_queue_oldest_due_seconds{crawl=\"default\"} 0.0",
            "sitemapd_dead_letters_total 2",
        ],
    );
}

#[tokio::test]
async fn promtool_finds_nothing_to_say_of_the_metrics() {
    let text = at_work().await;
    let command = &mut Command::new("promtool");
    let command = command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut checking) = command.spawn() else {
        println!("SKIPPED: promtool check metrics, for there is no promtool");
        return;
    };
    std::io::Write::write_all(&mut checking.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let checked = checking.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
