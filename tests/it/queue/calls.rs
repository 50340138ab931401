//! Calls that are repeated, calls that wait, and calls that ask for much.

use std::time::{Duration, Instant};

use futures_util::future::select_all;
use serde_json::{Value, json};
use sitemapd::clock::Clock;
use sitemapd::model::Outcome;
use sitemapd::model::extension::Marks;
use sitemapd::queue::LeaseRequest;
use sitemapd::store::{Effect, Said};

use crate::support::queue_daemon::{Queue, QueueDaemon, START, ask, lease_body, site};

const MINUTE: Duration = Duration::from_secs(60);

fn with_id(id: &str) -> LeaseRequest {
    LeaseRequest { request_id: Some(id.to_owned()), worker: Some("w1".to_owned()), ..ask(3) }
}

#[tokio::test]
async fn a_repeated_request_id_gets_the_same_leases_again() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..10).map(|n| format!("http://a.test/{n}"))).await;
    let tokens = |urls: Vec<sitemapd::queue::Leased>| -> Vec<_> {
        urls.into_iter().map(|leased| (leased.token, leased.attempt, leased.expires_at)).collect()
    };
    let first = tokens(queue.lease_as(with_id("r1")).await.urls);
    assert_eq!(first.len(), 3);
    queue.clock.advance(MINUTE);
    assert_eq!(tokens(queue.lease_as(with_id("r1")).await.urls), first);
    assert_ne!(tokens(queue.lease_as(with_id("r2")).await.urls), first);
    assert_eq!(queue.counts().await.leased, 6);
    let queue = queue.reopen(Duration::from_secs(1)).await;
    assert_eq!(tokens(queue.lease_as(with_id("r1")).await.urls), first);
}

#[tokio::test]
async fn a_repeated_request_of_another_worker_or_after_the_leases_ended_gets_new_ones() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..10).map(|n| format!("http://a.test/{n}"))).await;
    let first = queue.lease_as(with_id("r1")).await.urls;
    let other = LeaseRequest { worker: Some("w2".to_owned()), ..with_id("r1") };
    let theirs = queue.lease_as(other).await.urls;
    assert!(theirs.iter().all(|leased| first.iter().all(|ours| ours.id != leased.id)));
    for leased in &first {
        queue.settle(leased.token, Outcome::Changed).await;
    }
    let later = queue.lease_as(with_id("r1")).await.urls;
    assert!(!later.is_empty());
    assert!(later.iter().all(|leased| first.iter().all(|ours| ours.id != leased.id)));
}

/// A daemon with one URL that is due in ten days.
async fn sleepy() -> QueueDaemon {
    let queue = Queue::simple().await;
    queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
    let token = queue.lease_one().await.token;
    queue.settle(token, Outcome::Changed).await;
    QueueDaemon::over(queue, Clock::manual(START.parse().unwrap())).await
}

/// A long poll, running.
fn poll(daemon: &QueueDaemon, wait: &str) -> tokio::task::JoinHandle<Value> {
    let (api, body) = (daemon.client(), lease_body(5, wait));
    tokio::spawn(async move { api.post("/v1/lease", &body).await.unwrap() })
}

/// Asks the daemon a few things in turn, by when it has taken up what was asked
/// before. (A poll that it had not taken up would be answered just the same.)
async fn until_waiting(daemon: &QueueDaemon) {
    for _ in 0..20 {
        let _: Value = daemon.client().get("/v1/queue", &[]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_returns_as_soon_as_something_comes_due() {
    let daemon = sleepy().await;
    let waiting = poll(&daemon, "60s");
    until_waiting(&daemon).await;
    assert!(!waiting.is_finished());
    let started = Instant::now();
    let body = json!({ "urls": ["http://a.test/1"] });
    let _: Value = daemon.client().post("/v1/queue/requeue", &body).await.unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer["urls"].as_array().unwrap().len(), 1);
    assert!(started.elapsed() < Duration::from_secs(30));
    daemon.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_returns_when_time_makes_something_due() {
    let daemon = sleepy().await;
    let waiting = poll(&daemon, "60s");
    until_waiting(&daemon).await;
    daemon.clock.advance(Duration::from_secs(30 * 86_400));
    assert_eq!(waiting.await.unwrap()["urls"].as_array().unwrap().len(), 1);
    daemon.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_empty_and_says_when_to_come_again() {
    let daemon = sleepy().await;
    let answer = poll(&daemon, "50ms").await.unwrap();
    assert_eq!(answer["urls"], json!([]));
    assert!(answer["next_due_at"].as_str().unwrap() > "2026-11-22", "{answer}");
    daemon.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_wakes_those_who_wait() {
    let daemon = sleepy().await;
    let waiting = poll(&daemon, "60s");
    until_waiting(&daemon).await;
    let started = Instant::now();
    daemon.cancel();
    assert_eq!(waiting.await.unwrap()["urls"], json!([]));
    daemon.end().await;
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_crawl_wakes_those_who_wait() {
    let daemon = sleepy().await;
    daemon.store.pause_crawl("default".to_owned(), true).await.unwrap();
    daemon.store.requeue("default".to_owned(), vec!["http://a.test/1".to_owned()]).await.unwrap();
    let waiting = poll(&daemon, "60s");
    until_waiting(&daemon).await;
    assert!(!waiting.is_finished());
    daemon.store.pause_crawl("default".to_owned(), false).await.unwrap();
    assert_eq!(waiting.await.unwrap()["urls"].as_array().unwrap().len(), 1);
    daemon.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_for_one_url_get_it_once() {
    let daemon = sleepy().await;
    let waiting: Vec<_> = (0..16).map(|_| poll(&daemon, "60s")).collect();
    until_waiting(&daemon).await;
    daemon.store.requeue("default".to_owned(), vec!["http://a.test/1".to_owned()]).await.unwrap();
    let (first, _, waiting) = select_all(waiting).await;
    let mut got = first.unwrap()["urls"].as_array().unwrap().len();
    // The others have been woken as well, and go on waiting until they are let go.
    until_waiting(&daemon).await;
    daemon.cancel();
    for answer in waiting {
        got += answer.await.unwrap()["urls"].as_array().unwrap().len();
    }
    assert_eq!(got, 1);
    assert_eq!(daemon.look().number("SELECT count(*) FROM leases"), 1);
    daemon.end().await;
}

#[tokio::test]
async fn a_url_as_long_as_the_config_lets_it_be_is_answered_for_and_operated_on() {
    let long = |name: &str| format!("http://a.test/{name}?{}", "x".repeat(6_000));
    let (old, new) = (long("old"), long("new"));
    let text = "[fetch]\nmax_url_chars = 65536\n[queue]\nmax_attempts = 1\n".to_owned()
        + &site("a", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    queue.list_urls("a", [old.clone(), new.clone()]).await;
    let daemon = QueueDaemon::over(queue, Clock::manual(START.parse().unwrap())).await;
    let api = daemon.client();
    let state = async || -> Value {
        let known: Value = api.get("/v1/url", &[("url", old.as_str())]).await.unwrap();
        known["state"].clone()
    };
    let order = async |path: &str, body: Value| -> Value { api.post(path, &body).await.unwrap() };
    let blocked = order("/v1/queue/block", json!({ "url": old })).await;
    assert_eq!((&blocked["blocked"], state().await), (&json!(1), json!("blocked")));
    let lifted = order("/v1/queue/unblock", json!({ "url": old })).await;
    assert_eq!(lifted["unblocked"], 1);
    let below = order("/v1/queue/block", json!({ "prefix": long("other") })).await;
    assert_eq!(below["blocked"], 0);
    let settle = async |more: Value| {
        let leased = order("/v1/lease", lease_body(2, "0s")).await;
        let leased = leased["urls"].as_array().unwrap().clone();
        let token = &leased.iter().find(|url| url["url"] == old.as_str()).unwrap()["token"];
        let mut result = more;
        result["token"] = token.clone();
        order("/v1/settle", json!({ "results": [result] })).await;
    };
    settle(json!({ "outcome": "failed" })).await;
    assert_eq!(state().await, "dead");
    let replayed = order("/v1/queue/replay", json!({ "urls": [old] })).await;
    assert_eq!(replayed["replayed"], 1);
    settle(json!({ "outcome": "redirected", "final_url": new })).await;
    assert_eq!(state().await, "parked");
    let requeued = order("/v1/queue/requeue", json!({ "urls": [old] })).await;
    assert_eq!(requeued["requeued"], 1);
    let longer = json!({ "url": format!("http://a.test/{}", "x".repeat(65_536)) });
    assert!(api.post::<Value>("/v1/queue/block", &longer).await.is_err());
    daemon.end().await;
}

#[tokio::test]
async fn a_page_of_urls_ends_where_sources_say_too_much_of_them_and_goes_on_there() {
    const MIB: usize = 1 << 20;
    let queue = Queue::simple().await;
    let listed: Vec<_> = (0..21).map(|n| format!("http://a.test/{n}")).collect();
    for (place, url) in queue.list_urls("a", listed.clone()).await.into_iter().enumerate() {
        if place == 20 {
            // Of the last one nothing is said.
            break;
        }
        let data = json!({ "images": [{ "caption": "x".repeat(MIB) }] }).to_string();
        queue
            .apply(Effect::Extensions { url, said: Some(Said { data, marks: Marks::default() }) })
            .await;
    }
    let daemon = QueueDaemon::over(queue, Clock::manual(START.parse().unwrap())).await;
    let (mut found, mut pages, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let query = [("limit", "1000"), ("cursor", &cursor)];
        let query = if cursor.is_empty() { &query[..1] } else { &query };
        let page: Value = daemon.client().get("/v1/urls", query).await.unwrap();
        let urls = page["urls"].as_array().unwrap();
        assert!(page.to_string().len() < 10 * MIB);
        pages.push(urls.len());
        found.extend(urls.iter().map(|url| url["url"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut cursor);
    }
    assert_eq!(found, listed);
    assert_eq!(pages, [8, 8, 5]);
    daemon.end().await;
}
