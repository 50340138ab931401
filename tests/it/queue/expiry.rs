//! What comes back, how often, and what is given up.

use std::time::Duration;

use sitemapd::diff::snapshot::EntryHints;
use sitemapd::metrics::Format;
use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::LeaseRequest;
use sitemapd::store::Effect;
use sitemapd::store::frontier::{Get, Progress};
use sitemapd::store::views::UrlState;

use crate::support::queue_daemon::{Queue, ask, site};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
const ONE: &str = "http://a.test/1";

async fn with_attempts(attempts: u32) -> Queue {
    let text = format!("[queue]\nmax_attempts = {attempts}\n{}", site("a", "http://a.test/", ""));
    let queue = Queue::open(&text).await;
    queue.list_urls("a", [ONE.to_owned()]).await;
    queue
}

#[tokio::test]
async fn an_expired_lease_comes_back_with_one_attempt_more_and_longer_pauses() {
    let queue = with_attempts(8).await;
    let mut pauses = Vec::new();
    for attempt in 1..8 {
        let leased = queue.lease_one().await;
        assert_eq!((leased.attempt, leased.reason), (attempt, Reason::New));
        assert_eq!(queue.pass(5 * MINUTE).await, (1, 0));
        assert!(queue.lease(1).await.is_empty());
        let view = queue.view(ONE).await;
        assert_eq!(view.attempt, attempt);
        let pause = Duration::try_from(view.due_at.unwrap() - queue.clock.now()).unwrap();
        queue.clock.advance(pause);
        pauses.push(pause);
    }
    assert!(pauses.is_sorted_by(|a, b| a < b), "{pauses:?}");
    assert!(pauses[0] <= MINUTE && pauses[6] <= 2 * 60 * MINUTE, "{pauses:?}");
}

#[tokio::test]
async fn failures_and_expiries_end_as_a_dead_letter_that_is_listed_and_replayable() {
    for fails in [true, false] {
        let queue = with_attempts(3).await;
        for attempt in 1..=3 {
            let leased = queue.lease_one().await;
            assert_eq!(leased.attempt, attempt);
            if fails {
                queue.settle(leased.token, Outcome::Failed).await;
            }
            let (reaped, dead) = queue.pass(5 * MINUTE).await;
            assert_eq!((reaped, dead), if fails { (0, 0) } else { (1, usize::from(attempt == 3)) });
            queue.clock.advance(DAY);
        }
        assert!(queue.lease(1).await.is_empty());
        let dead = queue.store.dead(None, 10, None).await.unwrap().items;
        assert_eq!(dead.len(), 1);
        assert_eq!((dead[0].url.as_str(), dead[0].attempts), (ONE, 3));
        assert_eq!(queue.counts().await.dead, 1);

        assert_eq!(queue.store.replay("default".to_owned(), Vec::new()).await, Ok(1));
        assert_eq!(queue.lease_one().await.attempt, 1);
        assert_eq!(queue.counts().await.dead, 0);
        assert_eq!(queue.store.replay("default".to_owned(), Vec::new()).await, Ok(0));
    }
}

#[tokio::test]
async fn a_success_forgets_the_attempts_before_it() {
    let queue = with_attempts(3).await;
    for _ in 0..4 {
        let leased = queue.lease_one().await;
        assert_eq!(leased.attempt, 1);
        queue.settle(leased.token, Outcome::Failed).await;
        queue.clock.advance(DAY);
        let leased = queue.lease_one().await;
        assert_eq!(leased.attempt, 2);
        queue.settle(leased.token, Outcome::Unchanged).await;
        queue.clock.advance(180 * DAY);
    }
}

#[tokio::test]
async fn a_poison_url_holds_up_nobody_else() {
    let queue = with_attempts(8).await;
    queue.list_urls("a", (2..12).map(|n| format!("http://a.test/{n}"))).await;
    let poison = queue.lease_one().await;
    assert_eq!(poison.url, ONE);
    queue.pass(5 * MINUTE).await;
    assert_eq!(queue.lease(20).await.len(), 10);
}

#[tokio::test]
async fn a_thousand_and_more_leases_expire_in_parts_and_all_come_back() {
    let queue = with_attempts(8).await;
    queue.list_urls("a", (2..=2_500).map(|n| format!("http://a.test/{n}"))).await;
    for _ in 0..3 {
        queue.lease(1_000).await;
    }
    queue.clock.advance(5 * MINUTE);
    let mut total = 0;
    loop {
        let (some, _) = queue.store.reap().await.unwrap();
        if some == 0 {
            break;
        }
        total += some;
    }
    assert_eq!(total, 2_500);
    queue.clock.advance(MINUTE);
    assert_eq!(queue.counts().await.due, 2_500);
}

#[tokio::test]
async fn leases_of_any_length_expire_in_their_time_whatever_was_leased_before_them() {
    let queue = with_attempts(8).await;
    queue.list_urls("a", (2..=4).map(|n| format!("http://a.test/{n}"))).await;
    let lease = async |ttl: Duration| {
        let batch = queue.lease_as(LeaseRequest { ttl, ..ask(1) }).await;
        batch.urls[0].token
    };
    lease(10 * MINUTE).await;
    assert_eq!(queue.pass(MINUTE).await, (0, 0));
    lease(2 * MINUTE).await;
    let extended = lease(MINUTE).await;
    queue.extend(extended, 5 * MINUTE).await;
    // The host has its delay.
    assert_eq!(queue.pass(MINUTE / 2).await, (0, 0));
    let get = Get { crawl: None, key: None, per_queue: 0, max_queues: 0, ttl: 3 * MINUTE };
    let (served, _) = queue.store.frontier_get(get.clone(), Progress::default()).await.unwrap();
    assert_eq!(served.len(), 1);
    assert_eq!(queue.pass(MINUTE).await, (0, 0));
    assert_eq!(queue.pass(MINUTE).await, (1, 0), "the one of two minutes");

    let queue = queue.reopen(MINUTE).await;
    let (again, _) = queue.store.frontier_get(get, Progress::default()).await.unwrap();
    assert!(again.iter().any(|again| again.url == served[0].url), "that of the frontier");
    assert_eq!(queue.pass(MINUTE).await, (0, 0));
    assert_eq!(queue.pass(MINUTE).await, (1, 0), "the one that was extended");
    let all = again.len() + 1;
    assert_eq!(
        queue.pass(4 * MINUTE).await,
        (all, 0),
        "the one of ten minutes, and the frontier's"
    );
    assert_eq!(queue.pass(DAY).await, (0, 0));
}

#[tokio::test]
async fn a_lease_that_is_given_less_time_expires_the_sooner() {
    let queue = with_attempts(8).await;
    let leased = queue.lease_one().await;
    // By now it is known when the first lease expires.
    assert_eq!(queue.pass(Duration::from_secs(1)).await, (0, 0));
    queue.extend(leased.token, MINUTE).await;
    assert_eq!(queue.pass(2 * MINUTE).await, (1, 0));
}

#[tokio::test]
async fn a_url_that_changes_while_leased_is_due_again_once_settled() {
    let queue = with_attempts(8).await;
    // A date of its own first: one that merely appears is no signal.
    let id = queue.view(ONE).await.id;
    queue.change(id).await;
    let leased = queue.lease_one().await;
    queue.clock.advance(MINUTE);
    queue.change(id).await;
    assert!(queue.lease(1).await.is_empty(), "it is still with a fetcher");
    queue.settle(leased.token, Outcome::Changed).await;
    let again = queue.lease_one().await;
    assert_eq!((again.reason, again.attempt), (Reason::Changed, 1));
    queue.settle(again.token, Outcome::Changed).await;
    assert!(queue.lease(1).await.is_empty(), "one change is one more fetch");
}

#[tokio::test]
async fn a_url_that_changes_in_its_last_attempt_is_not_given_up() {
    let queue = with_attempts(1).await;
    let id = queue.view(ONE).await.id;
    queue.change(id).await;
    queue.lease_one().await;
    queue.clock.advance(MINUTE);
    queue.change(id).await;
    assert_eq!(queue.pass(5 * MINUTE).await, (1, 0), "and counts as no dead letter");
    queue.clock.advance(MINUTE);
    assert_eq!(queue.lease_one().await.reason, Reason::Changed);
}

#[tokio::test]
async fn a_url_that_is_wanted_no_more_in_its_last_attempt_is_no_dead_letter() {
    let queue = with_attempts(1).await;
    let url = queue.view(ONE).await.id;
    queue.lease_one().await;
    queue.apply(Effect::Unwant { url }).await;
    assert_eq!(queue.pass(5 * MINUTE).await, (1, 0));
    assert_eq!((queue.view(ONE).await.state, queue.counts().await.dead), (UrlState::Parked, 0));
}

#[tokio::test]
async fn what_was_asked_for_while_leased_is_delivered_again_even_if_the_lease_expires() {
    let queue = with_attempts(8).await;
    queue.lease_one().await;
    queue.store.requeue("default".to_owned(), vec![ONE.to_owned()]).await.unwrap();
    queue.pass(5 * MINUTE).await;
    queue.clock.advance(MINUTE);
    assert_eq!(queue.lease_one().await.reason, Reason::Submitted);
}

#[tokio::test]
async fn a_url_that_is_unlisted_while_leased_and_gone_is_parked() {
    let queue = with_attempts(8).await;
    let leased = queue.lease_one().await;
    queue.apply(Effect::Drop { url: leased.id }).await;
    queue.settle(leased.token, Outcome::Gone).await;
    assert_eq!(queue.view(ONE).await.state, UrlState::Parked);
    assert!(queue.lease(1).await.is_empty());
}

#[tokio::test]
async fn a_removed_url_is_queued_once_and_then_rests_at_the_longest_interval() {
    let queue = with_attempts(8).await;
    let leased = queue.lease_one().await;
    queue.settle(leased.token, Outcome::Changed).await;
    queue.apply(Effect::Drop { url: leased.id }).await;
    let removed = queue.lease_one().await;
    assert_eq!(removed.reason, Reason::Removed);
    queue.settle(removed.token, Outcome::Unchanged).await;
    queue.clock.advance(179 * DAY);
    assert!(queue.lease(1).await.is_empty());
    queue.clock.advance(DAY);
    assert_eq!(queue.lease_one().await.reason, Reason::Recrawl);
}

#[tokio::test]
async fn new_hints_while_leased_hold_for_the_place_afterwards() {
    let queue = with_attempts(8).await;
    let leased = queue.lease_one().await;
    let hints = EntryHints {
        changefreq: Some(sitemapd::model::ChangeFreq::Hourly),
        priority: sitemapd::model::Priority::from_f64(0.9),
    };
    queue.apply(Effect::Hints { url: leased.id, lastmod: None, hints }).await;
    queue.settle(leased.token, Outcome::Changed).await;
    queue.clock.advance(60 * MINUTE);
    let again = queue.lease_one().await;
    assert!((again.value - 0.9).abs() < 1e-9);
}

#[tokio::test]
async fn a_lease_that_a_client_of_the_frontier_finds_expired_is_counted_as_any() {
    let queue = with_attempts(1).await;
    let get = Get { crawl: None, key: None, per_queue: 0, max_queues: 0, ttl: MINUTE };
    let served = queue.store.frontier_get(get.clone(), Progress::default()).await.unwrap().0;
    assert_eq!(served.len(), 1);
    queue.clock.advance(2 * MINUTE);
    let served = queue.store.frontier_get(get, Progress::default()).await.unwrap().0;
    assert!(served.is_empty());
    let counted = queue.metrics.encode(None, Format::Plain);
    for name in ["sitemapd_leases_expired_total 1", "sitemapd_dead_letters_total 1"] {
        assert!(counted.contains(name), "{counted}");
    }
}

#[tokio::test]
async fn urls_of_a_crawler_that_is_gone_come_back_without_a_pause_however_many() {
    let queue = Queue::open(&site("a", "http://a.test/", "")).await;
    queue.list_urls("a", (0..2_500).map(|n| format!("http://h{}.test/{n}", n % 50))).await;
    let get = Get { crawl: None, key: None, per_queue: 0, max_queues: 0, ttl: MINUTE };
    let mut served = 0;
    while served < 2_500 {
        let some = queue.store.frontier_get(get.clone(), Progress::default()).await.unwrap().0;
        assert!(!some.is_empty(), "{served}");
        served += some.len();
    }
    queue.clock.advance(2 * MINUTE);
    let mut back = 0;
    loop {
        let (leases, dead) = queue.store.reap().await.unwrap();
        assert_eq!(dead, 0);
        if leases == 0 {
            break;
        }
        back += leases;
    }
    let counts = queue.counts().await;
    assert_eq!((back, counts.due, counts.leased), (2_500, 2_500, 0));
}
