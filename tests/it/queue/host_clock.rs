//! One clock per host, for leases and polls alike.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sitemapd::model::Outcome;
use sitemapd::queue::LeaseRequest;
use sitemapd::store::frontier::Put;

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
    match queue.store.reserve("http://a.test".to_owned(), None, none, None).await.unwrap() {
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
    let slot = queue.store.reserve("http://a.test".to_owned(), None, SECOND, None).await.unwrap();
    assert_eq!(slot, Ok(start));
    assert!(queue.lease(1).await.is_empty());
    queue.clock.advance(2 * SECOND);
    assert_eq!(queue.lease(1).await.len(), 1);
}

#[tokio::test]
async fn a_slot_that_was_not_used_is_given_back_or_moved_unless_somebody_has_the_next() {
    let host = || "http://a.test".to_owned();
    let queue = with_delay("10s", 2).await;
    let start = queue.clock.now();
    let slot = queue.store.reserve(host(), None, SECOND, None).await.unwrap().unwrap();
    queue.clock.advance(4 * SECOND);
    // The request is sent that much later, and so is what comes after it.
    let moved = queue.store.reserve(host(), None, SECOND, Some(slot)).await.unwrap();
    assert_eq!(moved, Ok(start + 4 * SECOND));
    assert_eq!(next_poll(&queue).await, start + 14 * SECOND);
    queue.store.give_back(host(), moved.unwrap()).await.unwrap();
    assert_eq!(queue.lease(1).await[0].not_before, start + 4 * SECOND);
    // That lease has the slot which was given back: ours is gone.
    let taken = queue.store.reserve(host(), None, SECOND, Some(slot)).await.unwrap();
    assert_eq!(taken, Err(start + 14 * SECOND));
    queue.store.give_back(host(), slot).await.unwrap();
    assert_eq!(next_poll(&queue).await, start + 14 * SECOND);
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
    settlement.retry_after = Some(Duration::ZERO);
    queue.settle_as(settlement).await;
    assert!(queue.lease(5).await.is_empty());
    assert_eq!(queue.view(&leased.url).await.attempt, 0);
}

#[tokio::test]
async fn of_two_pauses_of_a_host_the_longer_one_holds() {
    // What each of two pages asks for: seconds, or nothing but a 429.
    for (first, second, held) in
        [(Some(600), None, 600), (None, Some(600), 600), (None, None, 300), (Some(60), None, 300)]
    {
        let queue = with_delay("0s", 2).await;
        let start = queue.clock.now();
        let leased = queue.lease(2).await;
        for (leased, seconds) in leased.iter().zip([first, second]) {
            let mut settlement = report(leased.token, Outcome::Failed);
            settlement.status = Some(429);
            settlement.retry_after = seconds.map(Duration::from_secs);
            queue.settle_as(settlement).await;
        }
        assert_eq!(next_poll(&queue).await, start + held * SECOND, "{first:?} {second:?}");
    }
}

#[tokio::test]
async fn no_page_pauses_its_host_for_more_than_a_day() {
    let queue = with_delay("0s", 1).await;
    let start = queue.clock.now();
    let mut settlement = report(queue.lease_one().await.token, Outcome::Failed);
    settlement.retry_after = Some(30 * 86_400 * SECOND);
    queue.settle_as(settlement).await;
    assert_eq!(next_poll(&queue).await, start + 86_400 * SECOND);
}

#[tokio::test]
async fn a_pause_holds_its_own_host_only() {
    let queue = with_delay("0s", 2).await;
    queue.list_urls("a", ["http://b.test/1".to_owned()]).await;
    queue.store.pause_host("http://a.test".to_owned(), 60 * SECOND, "test").await.unwrap();
    let urls = queue.lease(5).await;
    assert_eq!((urls.len(), &*urls[0].host), (1, "http://b.test"));
}

/// How far apart what is leased now may be fetched, in seconds.
async fn spacing(queue: &Queue) -> Vec<i64> {
    let urls = queue.lease(3).await;
    urls.windows(2)
        .map(|two| two[1].not_before.duration_since(two[0].not_before).as_secs())
        .collect()
}

#[tokio::test]
async fn a_changed_delay_of_a_site_holds_for_leases_at_once() {
    let with = |delay: &str| site("a", "http://a.test/", &format!("host_delay = \"{delay}\""));
    let mut queue = with_delay("1s", 20).await;
    // One of its hosts that is not its home.
    queue.list_urls("a", (0..9).map(|n| format!("http://b.test/{n}"))).await;
    queue.lease(1).await;
    queue.reload(&with("30s")).await.unwrap();
    queue.clock.advance(5 * SECOND);
    let urls = queue.lease(12).await;
    for host in ["http://a.test", "http://b.test"] {
        let times =
            urls.iter().filter(|leased| &*leased.host == host).map(|leased| leased.not_before);
        let times: Vec<_> = times.collect();
        assert!(times.len() > 1, "{urls:?}");
        assert!(times.windows(2).all(|two| two[1] == two[0] + 30 * SECOND), "{times:?}");
    }
    // The same where nothing but the start tells of it.
    Arc::make_mut(queue.config.sites.get_mut("a").unwrap()).host_delay = 2 * SECOND;
    let queue = queue.reopen(Duration::from_secs(3_600)).await;
    queue.lease(1).await;
    queue.clock.advance(60 * SECOND);
    let urls = queue.lease(3).await;
    let times: Vec<_> = urls.iter().filter(|leased| leased.host == urls[0].host).collect();
    assert!(times.windows(2).all(|two| two[1].not_before == two[0].not_before + 2 * SECOND));
}

#[tokio::test]
async fn a_changed_default_delay_holds_for_hosts_that_no_site_has() {
    let with = |delay: &str| {
        let own = "host_delay = \"2s\"";
        format!("[politeness]\nhost_delay = \"{delay}\"\n{}", site("a", "http://a.test/", own))
    };
    let mut queue = Queue::open(&with("2s")).await;
    let put = |n| Put {
        crawl: "default".to_owned(),
        key: None,
        url: format!("http://pushed.test/{n}"),
        metadata: BTreeMap::new(),
        created: None,
        known: None,
    };
    queue.store.frontier_put((0..20).map(put).collect()).await.unwrap();
    assert_eq!(spacing(&queue).await, [2, 2]);
    queue.reload(&with("30s")).await.unwrap();
    queue.clock.advance(60 * SECOND);
    // In a database that others may share they keep what they were made with.
    let in_a_file = queue.config.store.url.is_none();
    let now = |seconds: i64| if in_a_file { [seconds; 2] } else { [2, 2] };
    assert_eq!(spacing(&queue).await, now(30));
    queue.config.politeness.host_delay = 3 * SECOND;
    let queue = queue.reopen(Duration::from_secs(3_600)).await;
    assert_eq!(spacing(&queue).await, now(3));
    // A site that has this delay of its own keeps it.
    queue.list_urls("a", (0..3).map(|n| format!("http://a.test/{n}"))).await;
    assert_eq!(spacing(&queue).await, [2, 2]);
}
