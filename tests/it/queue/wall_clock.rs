//! Steps of the wall clock move neither leases nor hosts, and history goes by
//! its order.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sitemapd::clock::Clock;
use sitemapd::fetch::api::ApiClient;
use sitemapd::model::Outcome;
use sitemapd::queue::{LeaseRequest, Settlement, TokenResult};

use crate::support::daemon::{DAY, Daemon, HOUR, World, sitemap};
use crate::support::queue_daemon::{Queue, ask, report, site};
use crate::support::{Origin, Reply};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_stepped_wall_clock_ends_no_lease_early_and_keeps_none_alive() {
    for hours in [-1, 24] {
        let queue = Queue::simple().await;
        queue.list_urls("a", ["http://a.test/1".to_owned(), "http://a.test/2".to_owned()]).await;
        let leased = queue.lease(2).await;
        queue.clock.step_wall(SignedDuration::from_hours(hours));
        assert_eq!(queue.pass(4 * MINUTE).await, (0, 0), "{hours}");
        assert_eq!(queue.settle(leased[0].token, Outcome::Changed).await, TokenResult::Ok);
        assert_eq!(queue.pass(MINUTE).await, (1, 0), "{hours}");
        assert_eq!(queue.settle(leased[1].token, Outcome::Changed).await, TokenResult::Stale);
    }
}

#[tokio::test]
async fn a_stepped_wall_clock_moves_no_hosts_turn() {
    for hours in [-1, 24] {
        let queue = Queue::open(&site("a", "http://a.test/", "host_delay = \"1m\"")).await;
        queue.list_urls("a", (0..3).map(|n| format!("http://a.test/{n}"))).await;
        assert_eq!(queue.lease(1).await.len(), 1);
        queue.clock.step_wall(SignedDuration::from_hours(hours));
        assert!(queue.lease(1).await.is_empty(), "{hours}");
        queue.clock.advance(MINUTE);
        assert_eq!(queue.lease(1).await.len(), 1, "{hours}");
    }
}

#[tokio::test]
async fn a_lease_from_before_a_restart_with_the_clock_set_back_does_not_live_on() {
    let queue = Queue::open(&site("a", "http://a.test/", "host_delay = \"1m\"")).await;
    queue.list_urls("a", ["http://a.test/1".to_owned(), "http://a.test/2".to_owned()]).await;
    let request = LeaseRequest { request_id: Some("again".to_owned()), ..ask(1) };
    let token = queue.lease_as(request.clone()).await.urls[0].token;
    queue.store.note_published("w", queue.clock.now()).await.unwrap();
    queue.store.close();
    let year_before = queue.clock.now() - SignedDuration::from_hours(365 * 24);
    let clock = Clock::manual(year_before);
    let queue = queue.reopen_at(clock).await;
    let again = queue.lease_as(request).await.urls.remove(0);
    assert_eq!(again.token, token);
    let now = queue.clock.now();
    assert!(again.not_before <= now && again.expires_at > now, "{again:?}");
    let noted = queue.store.published_until("w").await.unwrap();
    assert!(noted <= Some(now), "{noted:?}");
    assert_eq!(queue.pass(5 * MINUTE).await, (1, 0));
    assert_eq!(queue.settle(token, Outcome::Changed).await, TokenResult::Stale);
    let wait =
        queue.store.reserve("http://a.test".to_owned(), None, Duration::ZERO, None).await.unwrap();
    let slot = wait.unwrap_or_else(|later| later);
    let ahead = slot.duration_since(queue.clock.now());
    assert!(ahead <= SignedDuration::from_hours(24), "the host is held for {ahead}");
}

#[tokio::test]
async fn what_is_told_of_the_queue_goes_by_the_wall_clock_however_it_was_stepped() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list =
        |entries: &[(&str, &str)]| origin.set("/sitemap.xml", Reply::xml(sitemap(&base, entries)));
    list(&[("/a", ""), ("/b", "")]);
    let world = World::new(&[&origin]);
    let text = format!(
        "[[site]]\nname = \"site\"\nurl = \"{base}/\"\npoll = \"30d\"\n\
         sitemaps = [\"{base}/sitemap.xml\"]\nfeeds = []\nobey_robots = false\n"
    );
    let daemon = world.start(&text).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.clock.advance(2 * MINUTE);
    let client = ApiClient::new(&daemon.api.to_string(), None).unwrap();
    let read = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    for hours in [25, -50] {
        daemon.clock.step_wall(SignedDuration::from_hours(hours));
        let queue = &daemon.store.queue(None).await.unwrap()[0];
        let waited = daemon.now().duration_since(queue.oldest_due_at.unwrap());
        let minutes = [2, 3].map(SignedDuration::from_mins);
        assert!((minutes[0]..=minutes[1]).contains(&waited), "{hours}: {waited}");
        let page = text_of(&daemon, "/").await;
        assert!(!page.contains("are due, the oldest for"), "{hours}: {page}");
        let tile = |minutes| format!("<dt>Oldest due for</dt><dd>{minutes}m</dd>");
        assert!([2, 3].map(tile).iter().any(|tile| page.contains(tile)), "{hours}: {page}");
        let metrics = text_of(&daemon, "/metrics").await;
        let oldest = "sitemapd_queue_oldest_due_seconds{crawl=\"default\"} 1";
        assert!(metrics.contains(oldest), "{hours}: {metrics}");
        let due = daemon.url(&format!("{base}/b")).await.due_at.unwrap();
        assert!(daemon.now().duration_since(due) <= minutes[1], "{hours}: {due}");

        let body = json!({ "max": 1, "ttl": "5m" });
        let leased: Value = client.post("/v1/lease", &body).await.unwrap();
        let url = &leased["urls"][0];
        assert_eq!(read(&url["expires_at"]), daemon.now() + 5 * MINUTE, "{hours}");
        assert_eq!(read(&url["not_before"]), daemon.now(), "{hours}");
        assert!(read(&url["due_at"]) < daemon.now(), "{hours}");
        let leased_until = daemon.url(url["url"].as_str().unwrap()).await.leased_until;
        assert_eq!(leased_until, Some(daemon.now() + 5 * MINUTE), "{hours}");
        let token = url["token"].as_str().unwrap();
        let _: Value =
            client.post("/v1/release", &json!({ "tokens": [token], "after": "0s" })).await.unwrap();
        daemon.clock.advance(MINUTE);
    }
    // Half an hour after its publisher says so, by the clock that both read.
    let published = (daemon.now() - 30 * MINUTE).to_string();
    list(&[("/a", ""), ("/b", ""), ("/c", &published)]);
    daemon.poll("/sitemap.xml").await;
    let metrics = text_of(&daemon, "/metrics").await;
    let seen = "sitemapd_published_to_seen_seconds_sum{crawl=\"default\"} 1";
    assert!(metrics.contains(seen), "{metrics}");
    daemon.stop().await;
}

/// What the daemon answers.
async fn text_of(daemon: &Daemon, path: &str) -> String {
    let client = sitemapd::fetch::tls::client().no_proxy().build().unwrap();
    let mut answer = client.get(format!("http://{}{path}", daemon.api)).send().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_wall_clock_that_was_ahead_once_keeps_no_history_for_ever() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = |version: i32| {
        origin.set("/robots.txt", Reply::text(format!("User-agent: *\nDisallow: /{version}\n")));
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[(&format!("/{version}"), "")])));
    };
    list(0);
    let world = World::new(&[&origin]);
    let text = format!(
        "[[site]]\nname = \"site\"\nurl = \"{base}/\"\npoll = \"30d\"\n\
         sitemaps = [\"{base}/sitemap.xml\"]\nfeeds = []\n"
    );
    let daemon = world.start(&text).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    let tables = ["polls", "changes", "robots_changes"];
    let ten_years = SignedDuration::from_hours(10 * 365 * 24);
    for day in 1..=40 {
        if day == 2 {
            daemon.clock.step_wall(ten_years);
        }
        list(day);
        daemon.poll("/robots.txt").await;
        daemon.poll("/sitemap.xml").await;
        if day == 2 {
            daemon.clock.step_wall(-ten_years);
        }
        daemon.pass(DAY).await;
    }
    while daemon.store.maintain().await.unwrap() {}
    let (look, since) = (world.look(), daemon.now() - 30 * DAY);
    for table in tables {
        let count = |only: &str| look.number(&format!("SELECT count(*) FROM {table} {only}"));
        let (old, now) = (since.as_millisecond(), daemon.now().as_millisecond());
        assert_eq!(count(&format!("WHERE at < {old}")), 0, "{table}");
        assert_eq!(count(&format!("WHERE at > {now}")), 0, "{table}: of the wrong date");
        assert!(count("") >= 29, "{table}: what is to be kept");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_that_was_settled_while_the_clock_was_ahead_is_learned_again() {
    const PAGE: &str = "http://a.test/1";
    let queue = Queue::simple().await;
    let url = queue.list_urls("a", [PAGE.to_owned()]).await[0];
    for _ in 0..4 {
        queue.settle(queue.lease_one().await.token, Outcome::Changed).await;
        queue.clock.advance(180 * DAY);
    }
    let ten_years = SignedDuration::from_hours(10 * 365 * 24);
    let corrected = Clock::manual(queue.clock.now() - ten_years);
    let queue = queue.reopen_at(corrected).await;
    let seen = async || queue.view(PAGE).await.learned.unwrap().seen_at;
    assert!(seen().await > queue.clock.now(), "by the wrong clock");
    queue.store.requeue("default".to_owned(), vec![PAGE.to_owned()]).await.unwrap();
    queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
    assert!(seen().await <= queue.clock.now());
    let view = queue.view(PAGE).await;
    assert!(view.due_at.unwrap() <= queue.clock.now() + 180 * DAY, "{:?}", view.due_at);
    // From here on it is judged by the time that passes, and by what is said of it.
    let looks = view.learned.unwrap().numbers.looks;
    queue.clock.advance(20 * DAY);
    queue.change(url).await;
    queue.settle(queue.lease_one().await.token, Outcome::Changed).await;
    assert_eq!(queue.view(PAGE).await.learned.unwrap().numbers.looks, looks + 1);
}

#[tokio::test]
async fn what_a_fetcher_puts_off_waits_as_long_as_it_says_however_the_clock_was_stepped() {
    for step in [3, -3] {
        let queue = Queue::simple().await;
        queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
        queue.clock.step_wall(SignedDuration::from_hours(step));
        let leased = queue.lease_one().await;
        let floor = queue.clock.now() + 6 * HOUR;
        let failed =
            Settlement { not_before: Some(floor), ..report(leased.token, Outcome::Failed) };
        queue.settle_as(failed).await;
        assert_eq!(queue.view("http://a.test/1").await.due_at, Some(floor), "{step}");
        queue.clock.advance(5 * HOUR + HOUR / 2);
        assert!(queue.lease(1).await.is_empty(), "{step}");
        queue.clock.advance(HOUR);
        assert_eq!(queue.lease(1).await.len(), 1, "{step}");
    }
}

#[tokio::test]
async fn what_was_polled_by_a_clock_that_was_ahead_is_polled_anew_once_it_is_set_back() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /private\n"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/1", ""), ("/2", "")])).etag("\"1\""));
    let world = World::new(&[&origin]);
    let text = format!(
        "[[site]]\nname = \"site\"\nurl = \"{base}/\"\npoll = \"1d\"\n\
         sitemaps = [\"{base}/sitemap.xml\"]\nfeeds = []\n"
    );
    let daemon = world.start(&text).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    let ten_years = SignedDuration::from_hours(10 * 365 * 24);
    daemon.clock.step_wall(ten_years);
    daemon.poll("/robots.txt").await;
    daemon.poll("/sitemap.xml").await;
    // What is being polled as the clock is set back is found an hour later.
    daemon.settled().await;
    let next = daemon.source("/sitemap.xml").await.next_poll_at.unwrap();
    daemon.clock.step_wall(-ten_years);
    assert!(next > daemon.now() + 365 * DAY);
    // It is looked for within the hour.
    daemon.clock.advance(2 * HOUR);
    while daemon.store.maintain().await.unwrap() {}
    daemon.settled().await;
    for path in ["/robots.txt", "/sitemap.xml"] {
        let source = daemon.source(path).await;
        let next = source.next_poll_at.unwrap();
        assert!(next <= daemon.now() + 3 * DAY, "{path}: {next} {source:?}");
        assert_eq!(source.last_poll_at, Some(daemon.now()), "{path}");
    }
    // Nothing is missing by what was said to have been read in ten years.
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    let is_listed = async || daemon.url(&format!("{base}/2")).await.listed;
    daemon.poll("/sitemap.xml").await;
    assert!(is_listed().await);
    for _ in 0..4 {
        daemon.pass(DAY).await;
    }
    assert!(!is_listed().await);
    daemon.stop().await;
}

#[tokio::test]
async fn what_was_never_polled_is_no_matter_of_the_clock() {
    let queue = Queue::simple().await;
    let never = queue.look().number("SELECT count(*) FROM sources WHERE last_poll_at IS NULL");
    assert!(never > 0);
    while queue.store.maintain().await.unwrap() {}
}
