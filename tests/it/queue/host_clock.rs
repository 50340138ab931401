//! One clock per host, for leases and polls alike.

use std::time::Duration;

use jiff::Timestamp;
use sitemapd::model::Outcome;
use sitemapd::queue::LeaseRequest;

use crate::support::queue_daemon::{Queue, ask, report, site};

const SECOND: Duration = Duration::from_secs(1);

async fn with_delay(delay: &str, urls: usize) -> Queue {
    let queue =
        Queue::open(&site("a", "http://a.test/", &format!("host_delay = \"{delay}\""))).await;
    queue.list_urls("a", (0..urls).map(|n| format!("http://a.test/{n}"))).await;
    queue
}

/// When a poll of the host would be sent.
async fn next_poll(queue: &Queue) -> Timestamp {
    let none = Duration::ZERO;
    match queue.store.reserve("http://a.test".to_owned(), None, none).await.unwrap() {
        Ok(now) => now,
        Err(later) => later,
    }
}

#[tokio::test]
async fn n_leased_urls_are_spaced_by_the_delay_and_move_the_clock_by_n_delays() {
    let queue = with_delay("2s", 5).await;
    let start = queue.clock.now();
    let urls = queue.lease(3).await;
    let spaced: Vec<_> = urls.iter().map(|leased| leased.not_before).collect();
    assert_eq!(spaced, [start, start + 2 * SECOND, start + 4 * SECOND]);
    assert!(queue.lease(3).await.is_empty());
    assert_eq!(next_poll(&queue).await, start + 6 * SECOND);
    let batch = queue.lease_as(ask(3)).await;
    assert_eq!(batch.next_due_at, Some(start + 6 * SECOND));
    queue.clock.advance(6 * SECOND);
    assert_eq!(queue.lease(3).await[0].not_before, start + 6 * SECOND);
}

#[tokio::test]
async fn a_poll_takes_its_slot_from_the_leases_of_its_host() {
    let queue = with_delay("2s", 2).await;
    let start = queue.clock.now();
    let slot = queue.store.reserve("http://a.test".to_owned(), None, SECOND).await.unwrap();
    assert_eq!(slot, Ok(start));
    assert!(queue.lease(1).await.is_empty());
    queue.clock.advance(2 * SECOND);
    assert_eq!(queue.lease(1).await.len(), 1);
}

#[tokio::test]
async fn the_clock_of_a_host_is_kept_over_a_restart() {
    let queue = with_delay("10s", 5).await;
    let start = queue.clock.now();
    assert_eq!(queue.lease(3).await.len(), 3);
    let queue = queue.reopen(SECOND).await;
    assert!(queue.lease(3).await.is_empty());
    assert_eq!(next_poll(&queue).await, start + 30 * SECOND);
    queue.clock.advance(29 * SECOND);
    assert_eq!(queue.lease(3).await.len(), 2);
}

#[tokio::test]
async fn a_lease_holds_no_more_of_a_host_than_fit_into_half_its_time() {
    let queue = with_delay("10s", 50).await;
    let request = LeaseRequest { ttl: Duration::from_secs(60), ..ask(50) };
    let urls = queue.lease_as(request).await.urls;
    assert_eq!(urls.len(), 4);
    let last = urls.last().unwrap();
    assert!(last.not_before < last.expires_at);
}

#[tokio::test]
async fn a_delay_longer_than_the_lease_still_lets_one_url_through() {
    let queue = with_delay("5m", 50).await;
    let request = LeaseRequest { ttl: Duration::from_secs(60), ..ask(50) };
    assert_eq!(queue.lease_as(request).await.urls.len(), 1);
}

#[tokio::test]
async fn a_pages_retry_after_pauses_its_host_for_leases_and_polls_over_a_restart() {
    let queue = with_delay("0s", 5).await;
    let start = queue.clock.now();
    let token = queue.lease_one().await.token;
    let mut settlement = report(token, Outcome::Failed);
    settlement.retry_after = Some(60 * SECOND);
    queue.settle_as(settlement).await;
    assert!(queue.lease(5).await.is_empty());
    assert_eq!(next_poll(&queue).await, start + 60 * SECOND);
    let queue = queue.reopen(59 * SECOND).await;
    assert!(queue.lease(5).await.is_empty());
    queue.clock.advance(SECOND);
    assert_eq!(queue.lease(5).await.len(), 4);
}

#[tokio::test]
async fn a_429_pauses_its_host_and_is_no_delivery_of_the_page() {
    let queue = with_delay("0s", 5).await;
    let leased = queue.lease_one().await;
    let mut settlement = report(leased.token, Outcome::Failed);
    settlement.status = Some(429);
    queue.settle_as(settlement).await;
    assert!(queue.lease(5).await.is_empty());
    assert_eq!(queue.view(&leased.url).await.attempt, 0);
}

#[tokio::test]
async fn a_pause_holds_its_own_host_only() {
    let queue = with_delay("0s", 2).await;
    queue.list_urls("a", ["http://b.test/1".to_owned()]).await;
    queue.store.pause_host("http://a.test".to_owned(), 60 * SECOND, "test").await.unwrap();
    let urls = queue.lease(5).await;
    assert_eq!((urls.len(), &*urls[0].host), (1, "http://b.test"));
}
