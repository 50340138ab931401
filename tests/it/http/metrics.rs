//! The metrics of a daemon at work: what they time, and that they are well-formed.

use std::process::{Command, Stdio};

use sitemapd::store::views::Counts;

use super::*;
use crate::support::daemon::{World, sitemap};
use crate::support::engine::is_embedded;
use crate::support::{Origin, Reply};

async fn scrape(api: SocketAddr) -> String {
    text_of(api, "/metrics").await
}

/// What a daemon answers.
async fn text_of(api: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(api).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\n\r\n");
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
    // The first answers are lost on the way.
    let ask = json!({ "max": 10, "request_id": "r" });
    let _: Value = api.post("/v1/lease", &ask).await.unwrap();
    let leased: Value = api.post("/v1/lease", &ask).await.unwrap();
    world.clock.advance(Duration::from_secs(4));
    let results: Vec<Value> = leased["urls"].as_array().unwrap()[1..]
        .iter()
        .map(|url| json!({ "token": url["token"], "outcome": "failed" }))
        .collect();
    assert_eq!(results.len(), 2);
    for _ in 0..2 {
        let _: Value = api.post("/v1/settle", &json!({ "results": results })).await.unwrap();
    }
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
async fn a_call_that_is_repeated_is_work_once() {
    let text = at_work().await;
    assert_said(
        &text,
        &[
            "sitemapd_leases_total{reason=\"new\"} 3",
            "sitemapd_settlements_total{outcome=\"failed\"} 2",
            "sitemapd_tokens_total{call=\"settle\",result=\"ok\"} 4",
        ],
    );
}

#[tokio::test]
async fn what_a_deleted_source_lets_go_of_counts_as_removed_and_as_no_poll() {
    let origin = Origin::start().await;
    let base = origin.base();
    let entries = [("/a", ""), ("/b", ""), ("/c", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &entries)));
    let world = World::new(&[&origin]);
    let text = format!(
        "[[site]]\nname = \"a\"\nurl = \"{base}/\"\nfeeds = []\nobey_robots = false\n\
         poll = \"30d\"\nsitemaps = [\"{base}/sitemap.xml\"]\n"
    );
    let daemon = world.start(&text).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    let before = daemon.store.status().await.unwrap();
    let charts = async || {
        let page = text_of(daemon.api, "/").await;
        let sums = page.split("<figcaption>").skip(1).map(|figure| {
            let sum = figure.split_once("<strong>").unwrap().1;
            sum.split_once('<').unwrap().0.parse::<u64>().unwrap()
        });
        sums.collect::<Vec<_>>()
    };
    let [new, changed, removed, polls, failed] = charts().await[..] else { panic!("charts") };
    assert_eq!((new, removed, polls), (3, 0, before.polls_24h.values().sum()));
    let api = ApiClient::new(&daemon.api.to_string(), None).unwrap();
    let id = daemon.source("/sitemap.xml").await.id;
    let _: Value =
        api.delete(&format!("/v1/sources/{id}"), &[("drop_urls", "true")]).await.unwrap();
    assert_said(&scrape(daemon.api).await, &["sitemapd_changes_total{kind=\"removed\"} 3"]);
    let status = daemon.store.status().await.unwrap();
    assert_eq!(status.changes_24h, Counts { removed: 3, ..before.changes_24h });
    assert_eq!(status.polls_24h, before.polls_24h);
    assert_eq!(charts().await, [new, changed, 3, polls, failed]);
    let told = daemon.polls(id).await.pop().unwrap();
    assert_eq!((told.result.as_str(), told.counts.removed), ("let-go", 3));
    // It may be one part of many, so what it removed stands in the stream only.
    assert_eq!(daemon.changes(&told).await, [""; 0]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_poll_that_the_store_refuses_is_counted_when_it_is_kept() {
    if !is_embedded("a poll that the store refuses") {
        return;
    }
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let text = format!(
        "[[site]]\nname = \"a\"\nurl = \"{base}/\"\nfeeds = []\nobey_robots = false\nhost_delay = \"0s\"\n\
         sitemaps = [\"{base}/sitemap.xml\"]\n"
    );
    let daemon = world.start(&text).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    let polls = async || {
        let text = scrape(daemon.api).await;
        let polls = text.lines().filter(|line| line.starts_with("sitemapd_polls_total{"));
        polls.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    world.look().change(
        "CREATE TRIGGER refuse BEFORE INSERT ON polls BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
    let id = daemon.source("/sitemap.xml").await.id;
    daemon.store.poll_source(id).await.unwrap();
    origin.wait_for("/sitemap.xml", 3).await;
    world.look().change("DROP TRIGGER refuse");
    daemon.polled("/sitemap.xml", 2).await;
    daemon.settled().await;
    let kept = world.look().number("SELECT count(*) FROM polls");
    let are_counted = async || (polls().await == kept.unsigned_abs()).then_some(());
    daemon.wait("all of them to be counted, and no more", are_counted).await;
    daemon.stop().await;
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
