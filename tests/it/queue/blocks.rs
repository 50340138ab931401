//! Blocks by URL and prefix last until lifted, whatever is listed again.

use std::time::Duration;

use sitemapd::model::Outcome;
use sitemapd::store::views::UrlState;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::queue_daemon::{Queue, QueueDaemon, entry, paths, site};
use crate::support::{broken_off, incompressible};

const CRAWL: &str = "default";

async fn with_paths(list: &[&str]) -> Queue {
    let queue = Queue::simple().await;
    let entries: Vec<_> = list.iter().map(|path| entry(format!("http://a.test{path}"))).collect();
    queue.list("a", &entries).await;
    queue
}

async fn block(queue: &Queue, pattern: &str, prefix: bool) -> u64 {
    queue.store.block(CRAWL.to_owned(), pattern.to_owned(), prefix).await.unwrap()
}

async fn unblock(queue: &Queue, pattern: &str, prefix: bool) -> u64 {
    queue.store.unblock(CRAWL.to_owned(), pattern.to_owned(), prefix).await.unwrap()
}

#[tokio::test]
async fn a_blocked_url_is_not_leased_until_lifted() {
    let queue = with_paths(&["/1", "/2"]).await;
    assert_eq!(block(&queue, "http://a.test/1", false).await, 1);
    assert_eq!(paths(&queue.lease(10).await), ["/2"]);
    assert_eq!(queue.view("http://a.test/1").await.state, UrlState::Blocked);
    assert_eq!(queue.counts().await.blocked, 1);
    assert_eq!(unblock(&queue, "http://a.test/1", false).await, 1);
    assert_eq!(paths(&queue.lease(10).await), ["/1"]);
}

#[tokio::test]
async fn a_prefix_holds_what_is_listed_now_and_what_is_listed_later() {
    let queue = with_paths(&["/shop/1", "/shop/2", "/shops", "/blog"]).await;
    block(&queue, "http://a.test/shop/", true).await;
    // Nobody has leased since, so none of them was looked at.
    let free = ["http://a.test/shops", "http://a.test/blog"];
    // Few may be asked for, and what is blocked is first in line.
    for most in [1_u32, 2, 3, 10] {
        let peeked = queue.store.peek(CRAWL.to_owned(), most).await.unwrap();
        let peeked: Vec<_> = peeked.iter().map(|line| line.url.as_str()).collect();
        assert_eq!(peeked, free[..free.len().min(most as usize)]);
    }
    assert_eq!(paths(&queue.lease(10).await), ["/shops", "/blog"]);
    queue.list("a", &[entry("http://a.test/shop/3"), entry("http://a.test/news")]).await;
    let queue = queue.reopen(Duration::from_secs(1)).await;
    assert_eq!(paths(&queue.lease(10).await), ["/news"]);
    assert_eq!(unblock(&queue, "http://a.test/shop/", true).await, 3);
    assert_eq!(paths(&queue.lease(10).await), ["/shop/1", "/shop/2", "/shop/3"]);
}

#[tokio::test]
async fn a_block_holds_although_the_url_changes_or_is_asked_for() {
    let queue = with_paths(&["/1"]).await;
    let id = queue.view("http://a.test/1").await.id;
    queue.change(id).await;
    block(&queue, "http://a.test/1", false).await;
    queue.clock.advance(Duration::from_secs(60));
    queue.change(id).await;
    queue.store.requeue(CRAWL.to_owned(), vec!["http://a.test/1".to_owned()]).await.unwrap();
    assert!(queue.lease(10).await.is_empty());
    unblock(&queue, "http://a.test/1", false).await;
    assert_eq!(queue.lease(10).await.len(), 1);
}

#[tokio::test]
async fn a_url_that_is_blocked_while_leased_is_held_after_it_is_settled() {
    let queue = with_paths(&["/1"]).await;
    let token = queue.lease_one().await.token;
    block(&queue, "http://a.test/1", false).await;
    queue.settle(token, Outcome::Changed).await;
    queue.clock.advance(Duration::from_secs(400 * 86_400));
    assert!(queue.lease(10).await.is_empty());
}

#[tokio::test]
async fn a_block_that_is_lifted_lets_go_of_all_though_the_client_has_gone() {
    // Many parts.
    const URLS: u32 = 20_000;
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..URLS).map(|n| format!("http://a.test/shop/{n}"))).await;
    block(&queue, "http://a.test/shop/", true).await;
    while queue.counts().await.blocked < u64::from(URLS) {
        assert!(queue.lease(10).await.is_empty());
    }
    let clock = queue.clock.clone();
    let daemon = QueueDaemon::over(queue, clock).await;
    let mut client = TcpStream::connect(daemon.addr).await.unwrap();
    let body = "{\"prefix\": \"http://a.test/shop/\"}";
    let request = format!(
        "POST /v1/queue/unblock HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        daemon.addr,
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let held = "SELECT count(*) FROM feedback WHERE state = 4";
    let come_to = async |least: i64| {
        while daemon.look().number(held) > least {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let patience = Duration::from_secs(120);
    tokio::time::timeout(patience, come_to(i64::from(URLS) - 1)).await.expect("it does not begin");
    drop(client);
    tokio::time::timeout(patience, come_to(0)).await.expect("some are held");
    daemon.end().await;
}

#[tokio::test]
async fn of_two_blocks_on_a_url_the_one_left_still_holds_it() {
    let queue = with_paths(&["/shop/1"]).await;
    block(&queue, "http://a.test/shop/1", false).await;
    block(&queue, "http://a.test/shop/", true).await;
    assert_eq!(unblock(&queue, "http://a.test/shop/1", false).await, 0);
    assert!(queue.lease(10).await.is_empty());
    assert_eq!(unblock(&queue, "http://a.test/shop/", true).await, 1);
}

#[tokio::test]
async fn a_block_on_tens_of_thousands_hides_nothing_behind_them_and_is_lifted_whole() {
    let queue = Queue::simple().await;
    let shop = (0..20_000).map(|n| entry(format!("http://a.test/shop/{n}")).priority(0.9));
    queue.list("a", &shop.collect::<Vec<_>>()).await;
    queue.list("a", &[entry("http://a.test/blog")]).await;
    block(&queue, "http://a.test/shop/", true).await;
    let mut found = Vec::new();
    let mut calls = 0;
    while found.is_empty() {
        found = queue.lease(10).await;
        calls += 1;
        assert!(calls <= 40, "held a bounded part at a time, but it gets on");
    }
    assert_eq!(paths(&found), ["/blog"]);
    assert_eq!(unblock(&queue, "http://a.test/shop/", true).await, 20_000);
    assert_eq!(queue.counts().await.due, 20_000);
}

#[tokio::test]
async fn lifting_what_is_not_blocked_says_so() {
    let queue = with_paths(&["/1"]).await;
    let lift = async |prefix| {
        let lifted = queue.store.unblock(CRAWL.to_owned(), "http://a.test/1".to_owned(), prefix);
        lifted.await.unwrap_err().to_string()
    };
    assert_eq!(
        lift(true).await,
        "nothing is blocked as the prefix \"http://a.test/1\"; a block of the URL alone is lifted \
         as one"
    );
    block(&queue, "http://a.test/1", true).await;
    assert_eq!(
        lift(false).await,
        "nothing is blocked as the URL \"http://a.test/1\"; a block of what begins so is lifted \
         as a prefix"
    );
}

#[tokio::test]
async fn lifting_a_block_that_was_broken_off_is_finished_by_the_same_order() {
    let queue = Queue::simple().await;
    let shop = (0..5_000).map(|n| format!("http://a.test/shop/{n}"));
    queue.list_urls("a", shop).await;
    block(&queue, "http://a.test/shop/", true).await;
    while queue.counts().await.blocked < 5_000 {
        assert!(queue.lease(10).await.is_empty());
    }
    {
        let order = queue.store.unblock(CRAWL.to_owned(), "http://a.test/shop/".to_owned(), true);
        let look = queue.look();
        let blocks = "SELECT count(*) FROM blocks";
        broken_off(std::pin::pin!(order), || look.number(blocks) == 0).await;
    }
    let queue = queue.reopen(Duration::from_secs(1)).await;
    assert_eq!(queue.counts().await.blocked, 5_000);
    assert_eq!(unblock(&queue, "http://a.test/shop/", true).await, 5_000);
    let again = queue.store.unblock(CRAWL.to_owned(), "http://a.test/shop/".to_owned(), true);
    assert!(again.await.unwrap_err().to_string().contains("nothing is blocked"));
}

#[tokio::test]
async fn a_url_of_any_length_is_blocked_once_and_lifted() {
    let queue = Queue::simple().await;
    let url = format!("http://a.test/{}", incompressible(60_000));
    queue.list_urls("a", [url.clone()]).await;
    assert_eq!(block(&queue, &url, false).await, 1);
    assert_eq!(block(&queue, &url, false).await, 0);
    assert_eq!(queue.look().number("SELECT count(*) FROM blocks"), 1);
    assert_eq!(unblock(&queue, &url, false).await, 1);
    assert_eq!(queue.look().number("SELECT count(*) FROM blocks"), 0);
}

#[tokio::test]
async fn an_order_is_seen_in_the_next_count_of_a_large_store() {
    let text = format!("[queue]\nmax_attempts = 1\n{}", site("a", "http://a.test/", ""));
    let queue = Queue::open(&text).await;
    queue.list_urls("a", (0..50_003).map(|n| format!("http://a.test/{n}"))).await;
    for outcome in [Outcome::Unchanged, Outcome::Failed] {
        let token = queue.lease_one().await.token;
        queue.settle(token, outcome).await;
    }
    let counted = async || queue.store.recent_queue(Some(CRAWL)).await.unwrap().remove(0);
    let before = counted().await;
    assert_eq!((before.due, before.blocked, before.dead), (50_001, 0, 1));
    let named = |path: &str| vec![format!("http://a.test{path}")];
    queue.store.requeue(CRAWL.to_owned(), named("/0")).await.unwrap();
    assert_eq!(counted().await.due, 50_002);
    queue.store.replay(CRAWL.to_owned(), named("/1")).await.unwrap();
    assert_eq!(counted().await.dead, 0);
    block(&queue, "http://a.test/2", false).await;
    assert_eq!(counted().await.blocked, 1);
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    assert_eq!(counted().await.due, 0);
}

#[tokio::test]
async fn lifting_the_block_on_one_url_looks_at_no_other() {
    let queue = with_paths(&["/1", "/2"]).await;
    for path in ["/1", "/2"] {
        block(&queue, &format!("http://a.test{path}"), false).await;
    }
    // As an order would leave it that lifts the other one and is broken off.
    queue.look().change("DELETE FROM blocks WHERE pattern = 'http://a.test/2'");
    let queue = queue.reopen(Duration::from_secs(1)).await;
    assert_eq!(unblock(&queue, "http://a.test/1", false).await, 1);
    assert_eq!(paths(&queue.lease(10).await), ["/1"]);
    assert_eq!(unblock(&queue, "http://a.test/2", false).await, 1, "all are looked at");
    assert_eq!(paths(&queue.lease(10).await), ["/2"]);
}

#[tokio::test]
async fn what_is_next_has_no_url_that_was_blocked_before_it_was_listed_or_while_it_was_leased() {
    let queue = with_paths(&["/leased", "/free"]).await;
    let token = queue.lease_one().await.token;
    for path in ["/leased", "/to-come"] {
        assert_eq!(block(&queue, &format!("http://a.test{path}"), false).await, 0);
    }
    queue.release(token, Duration::ZERO).await;
    queue.list("a", &[entry("http://a.test/to-come")]).await;
    queue.clock.advance(Duration::from_secs(60));
    let peeked = queue.store.peek(CRAWL.to_owned(), 10).await.unwrap();
    let peeked: Vec<_> = peeked.iter().map(|line| line.url.as_str()).collect();
    assert_eq!(peeked, ["http://a.test/free"]);
    assert_eq!(paths(&queue.lease(10).await), ["/free"]);
}
