//! Leases that name sites take what is due by what is known now, not what has surfaced.

use std::time::Duration;

use sitemapd::model::{ChangeFreq, Outcome};
use sitemapd::queue::{LeaseRequest, Leased};

use crate::support::queue_daemon::{Queue, ask, entry, paths, site};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const PAGE: &str = "http://a.test/0";

async fn lease(queue: &Queue, max: u32) -> Vec<Leased> {
    let request = LeaseRequest { sites: vec!["a".to_owned()], ..ask(max) };
    queue.lease_as(request).await.urls
}

#[tokio::test]
async fn a_lease_for_some_sites_leaves_what_has_only_surfaced_to_its_time() {
    let text = format!("[recrawl]\nmin = \"12h\"\n{}", site("a", "http://a.test/", ""));
    let queue = Queue::open(&text).await;
    queue.list("a", &[entry(PAGE).changefreq(ChangeFreq::Hourly)]).await;
    for _ in 0..3 {
        queue.clock.advance(DAY);
        let leased = lease(&queue, 1).await;
        assert_eq!(leased.len(), 1);
        queue.settle(leased[0].token, Outcome::Changed).await;
    }
    let seen = queue.clock.now();
    // Half of the wait, and less than the shortest interval.
    let surfaces = queue.look().number("SELECT due_s FROM queue");
    let wait = Duration::from_secs(u64::try_from(surfaces - seen.as_second()).unwrap() + 1);
    assert!(wait < 11 * HOUR, "{wait:?}");
    queue.clock.advance(wait);
    while queue.clock.now() < seen + 12 * HOUR {
        let since = queue.clock.now() - seen;
        assert!(lease(&queue, 1).await.is_empty(), "{since} after it was seen");
        queue.clock.advance(HOUR / 2);
    }
    while lease(&queue, 1).await.is_empty() {
        let due = queue.view(PAGE).await.due_at.unwrap();
        assert!(queue.clock.now() < due, "it was due at {due}");
        queue.clock.advance(HOUR / 2);
    }
}

/// Surfaced pages of one host at 0.4 of the price, all in one band; `/best`, behind
/// them all, is worth enough of it to be had.
async fn surfaced(pages: usize) -> Queue {
    let queue = Queue::simple().await;
    let mut entries: Vec<_> = (0..pages).map(|n| entry(format!("http://a.test/{n}"))).collect();
    entries.push(entry("http://a.test/best").priority(1.0));
    queue.list("a", &entries).await;
    for _ in 0..3 {
        loop {
            let leased = queue.lease(1_000).await;
            if leased.is_empty() {
                break;
            }
            for leased in leased {
                queue.settle(leased.token, Outcome::Changed).await;
            }
        }
        queue.clock.advance(200 * DAY);
    }
    for leased in queue.lease(10_000).await {
        queue.settle(leased.token, Outcome::Changed).await;
    }
    queue.clock.advance(3 * DAY);
    queue.surfaced_at(0.4).await
}

#[tokio::test]
async fn what_a_lease_for_some_sites_puts_back_is_bounded_and_in_the_way_of_nothing() {
    for (pages, calls) in [(10, 1), (1_500, 2)] {
        let queue = surfaced(pages).await;
        let now = queue.clock.now().as_second();
        let mut back = 0;
        for call in 1..=calls {
            let leased = lease(&queue, 1).await;
            let later =
                queue.look().number(&format!("SELECT count(*) FROM queue WHERE due_s > {now}"));
            assert!(later - back <= 1_000, "{} in one call", later - back);
            back = later;
            let expected = if call == calls { vec!["/best"] } else { Vec::new() };
            assert_eq!(paths(&leased), expected, "call {call} of {calls}");
        }
        assert_eq!(back, i64::try_from(pages).unwrap());
        assert!(lease(&queue, 10).await.is_empty());
    }
}
