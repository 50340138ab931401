//! Other bounds, intervals or another order reach what waits already.

use std::sync::Arc;
use std::time::Duration;

use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::extension::{Expiry, Marks};
use sitemapd::model::{ChangeFreq, Outcome, Priority};
use sitemapd::queue::Settlement;
use sitemapd::store::views::UrlState;
use sitemapd::store::{Effect, Said};

use crate::support::queue_daemon::{Queue, paths, report, site};

const DAY: Duration = Duration::from_secs(86_400);

fn config(order: &str, recrawl: &str) -> String {
    let site = site("a", "http://a.test/", "");
    format!("[queue]\norder = \"{order}\"\n[recrawl]\n{recrawl}\n{site}")
}

/// So many pages that were compared again and again, and never changed.
async fn compared(order: &str, pages: usize) -> Queue {
    let queue = Queue::open(&config(order, "")).await;
    queue.list_urls("a", (0..pages).map(|n| format!("http://a.test/{n}"))).await;
    for round in 0..4 {
        if round > 0 {
            queue.clock.advance(181 * DAY);
        }
        for leased in queue.lease(1_000).await {
            queue.settle(leased.token, Outcome::Unchanged).await;
        }
    }
    queue
}

/// When the last of the queue is due, in days from now.
fn last_due(queue: &Queue) -> i64 {
    let last = queue.look().number("SELECT max(due_s) FROM queue");
    (last - queue.clock.now().as_second()).div_euclid(86_400)
}

#[tokio::test]
async fn a_shorter_longest_interval_holds_for_what_waits() {
    for (order, recrawl) in [
        ("learned", "max = \"7d\""),
        ("protocol", "max = \"7d\""),
        ("protocol", "changefreq = { absent = \"7d\" }"),
    ] {
        let queue = compared(order, 30).await;
        let before = last_due(&queue);
        assert!(before > 7, "{order}: {before}");
        queue.reload(&config(order, recrawl)).await.unwrap();
        queue.maintain().await;
        assert!(last_due(&queue) <= 7, "{order} {recrawl}: {}", last_due(&queue));
        let due = queue.view("http://a.test/3").await.due_at.unwrap();
        assert!(due <= queue.clock.now() + 7 * DAY, "{order} {recrawl}: {due}");
        let walks = "SELECT count(*) FROM meta WHERE key LIKE 'reseat:%'";
        assert_eq!(queue.look().number(walks), 0);
    }
}

#[tokio::test]
async fn other_bounds_of_a_site_at_a_start_hold_for_what_waits() {
    let mut queue = compared("learned", 30).await;
    assert!(last_due(&queue) > 7);
    Arc::make_mut(queue.config.sites.get_mut("a").unwrap()).recrawl_max = 7 * DAY;
    let queue = queue.reopen(Duration::ZERO).await;
    queue.maintain().await;
    assert!(last_due(&queue) <= 7, "{}", last_due(&queue));
}

#[tokio::test]
async fn other_bounds_undercut_no_floor() {
    for order in ["learned", "protocol"] {
        let queue = Queue::open(&config(order, "")).await;
        queue.list_urls("a", ["http://a.test/0".to_owned()]).await;
        let floor = queue.clock.now() + 90 * DAY;
        let token = queue.lease_one().await.token;
        let settlement =
            Settlement { not_before: Some(floor), ..report(token, Outcome::Unchanged) };
        queue.settle_as(settlement).await;
        queue.reload(&config(order, "max = \"7d\"")).await.unwrap();
        queue.maintain().await;
        assert_eq!(queue.view("http://a.test/0").await.due_at, Some(floor), "{order}");
    }
}

#[tokio::test]
async fn other_bounds_bring_back_nothing_sooner_than_a_fetcher_gave_it_back_for() {
    for order in ["learned", "protocol"] {
        let queue = compared(order, 1).await;
        queue.clock.advance(200 * DAY);
        let token = queue.lease_one().await.token;
        queue.release(token, 14 * DAY).await;
        let back = queue.view("http://a.test/0").await.due_at;
        queue.reload(&config(order, "max = \"7d\"")).await.unwrap();
        queue.maintain().await;
        assert_eq!(queue.view("http://a.test/0").await.due_at, back, "{order}");
    }
}

#[tokio::test]
async fn what_is_due_by_other_bounds_is_so_from_then_on() {
    let queue = compared("learned", 30).await;
    queue.clock.advance(20 * DAY);
    assert!(last_due(&queue) > 7);
    queue.reload(&config("learned", "max = \"7d\"")).await.unwrap();
    queue.maintain().await;
    let first = queue.look().number("SELECT min(due_s) FROM queue");
    assert_eq!(first, queue.clock.now().as_second());
}

#[tokio::test]
async fn another_order_holds_for_what_waits() {
    let queue = compared("learned", 6).await;
    let hints = |priority| EntryHints {
        changefreq: Some(ChangeFreq::Daily),
        priority: Priority::from_f64(priority),
    };
    for (n, priority) in [(0, 0.1), (1, 0.9), (2, 0.5), (3, 0.8), (4, 0.2), (5, 0.7)] {
        let url = queue.view(&format!("http://a.test/{n}")).await.id;
        queue.apply(Effect::Hints { url, lastmod: None, hints: hints(priority) }).await;
    }
    queue.reload(&config("protocol", "")).await.unwrap();
    queue.maintain().await;
    queue.clock.advance(DAY);
    let leased = queue.lease(6).await;
    assert_eq!(paths(&leased), ["/1", "/3", "/5", "/2", "/4", "/0"]);
    for leased in leased {
        queue.settle(leased.token, Outcome::Unchanged).await;
    }
    assert_eq!(queue.look().number("SELECT sum(valued) FROM queue"), 0);
    // And back: by what was learned they can wait.
    queue.reload(&config("learned", "")).await.unwrap();
    queue.maintain().await;
    assert_eq!(queue.look().number("SELECT sum(valued) FROM queue"), 6);
    queue.clock.advance(2 * DAY);
    assert!(last_due(&queue) > 7, "{}", last_due(&queue));
    let due = queue.look().number("SELECT min(due_s) FROM queue");
    assert!(due > queue.clock.now().as_second(), "{due}");
}

#[tokio::test]
async fn other_bounds_hold_for_pages_whose_videos_have_an_end_and_park_what_ends_before() {
    for (was, is, state) in [("90d", "5d", UrlState::Queued), ("5d", "90d", UrlState::Parked)] {
        let absent = |interval: &str| {
            config(
                "protocol",
                &format!("max = \"90d\"\nchangefreq = {{ absent = \"{interval}\" }}"),
            )
        };
        let queue = Queue::open(&absent(was)).await;
        let url = queue.list_urls("a", ["http://a.test/0".to_owned()]).await[0];
        let days = if state == UrlState::Parked { 60 } else { 1_000 };
        let end = (queue.clock.now() + days * DAY).as_second();
        let marks = Marks { expiry: Expiry::At(end), ..Marks::default() };
        let data = "{\"videos\":[{}]}".to_owned();
        queue.apply(Effect::Extensions { url, said: Some(Said { data, marks }) }).await;
        let leased = queue.lease_one().await;
        queue.settle(leased.token, Outcome::Unchanged).await;
        queue.reload(&absent(is)).await.unwrap();
        queue.maintain().await;
        let view = queue.view("http://a.test/0").await;
        assert_eq!(view.state, state, "{}", view.why);
        let soon = queue.clock.now() + 6 * DAY;
        assert!(view.due_at.is_none_or(|due| due < soon), "{}", view.why);
    }
}

#[tokio::test]
async fn what_other_bounds_have_parked_comes_back_with_the_bounds_from_before() {
    let absent = |interval: &str| {
        config("protocol", &format!("max = \"90d\"\nchangefreq = {{ absent = \"{interval}\" }}"))
    };
    for days in [60, 3] {
        let queue = Queue::open(&absent("5d")).await;
        let url = queue.list_urls("a", ["http://a.test/0".to_owned()]).await[0];
        let end = (queue.clock.now() + days * DAY).as_second();
        let marks = Marks { expiry: Expiry::At(end), ..Marks::default() };
        let data = "{\"videos\":[{}]}".to_owned();
        queue.apply(Effect::Extensions { url, said: Some(Said { data, marks }) }).await;
        queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
        let before = queue.view("http://a.test/0").await;
        // Somebody is mistaken, and sees it.
        queue.reload(&absent("90d")).await.unwrap();
        queue.maintain().await;
        assert_eq!(queue.view("http://a.test/0").await.state, UrlState::Parked);
        queue.reload(&absent("5d")).await.unwrap();
        queue.maintain().await;
        let view = queue.view("http://a.test/0").await;
        assert_eq!((view.state, view.due_at), (before.state, before.due_at), "{}", view.why);
    }
}
