//! Looks that are owed whatever they are worth, in the learned order; and the end of
//! leases of what is not wanted any more.

use std::time::Duration;

use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{Lastmod, Outcome, Precision, Reason, UrlId};
use sitemapd::queue::{Leased, Settlement};
use sitemapd::store::Effect;
use sitemapd::store::views::UrlState;

use crate::support::queue_daemon::{Queue, entry, paths, report};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const PAGE: &str = "http://a.test/3";

/// Pages of one host, each compared a few times and never changed; all of them are
/// leased, at midnight.
async fn leased_again() -> (Queue, Vec<UrlId>, Vec<Leased>) {
    let queue = Queue::simple().await;
    let long_ago = "2020-01-01T00:00:00Z".parse().unwrap();
    let entries: Vec<_> =
        (0..30).map(|n| entry(format!("http://a.test/{n}")).lastmod(long_ago)).collect();
    let rows = queue.list("a", &entries).await;
    for _ in 0..3 {
        settle(&queue, queue.lease(100).await, Outcome::Unchanged).await;
        queue.clock.advance(181 * DAY);
    }
    let leased = queue.lease(100).await;
    assert_eq!(leased.len(), 30);
    (queue, rows, leased)
}

/// `/3` is reported as `outcome`, the others as they were.
async fn settle(queue: &Queue, leased: Vec<Leased>, outcome: Outcome) {
    for leased in leased {
        let outcome = if leased.url == PAGE { outcome } else { Outcome::Unchanged };
        queue.settle(leased.token, outcome).await;
    }
}

#[tokio::test]
async fn what_changed_while_it_was_leased_comes_again_whatever_it_is_worth() {
    let (queue, rows, leased) = leased_again().await;
    queue.change(rows[3]).await;
    settle(&queue, leased, Outcome::Unchanged).await;
    let pending = queue.view(PAGE).await.learned.unwrap().pending["lastmod"];
    assert_eq!(pending, 1, "nobody has looked since");
    let queue = queue.reopen(2 * HOUR).await;
    let again = queue.lease(100).await;
    assert_eq!(paths(&again), ["/3"]);
    assert_eq!(again[0].reason, Reason::Changed);
    // Given back, it is still owed.
    queue.release(again[0].token, Duration::ZERO).await;
    let queue = queue.reopen(HOUR).await;
    let again = queue.lease(100).await;
    assert_eq!(paths(&again), ["/3"]);
    queue.settle(again[0].token, Outcome::Unchanged).await;
    let queue = queue.reopen(2 * HOUR).await;
    assert!(queue.lease(100).await.is_empty(), "once is enough");
}

#[tokio::test]
async fn what_was_gone_once_is_looked_at_a_day_later_whatever_it_is_worth() {
    let (queue, _, leased) = leased_again().await;
    settle(&queue, leased, Outcome::Gone).await;
    assert!(queue.view(PAGE).await.due_at.unwrap() <= queue.clock.now() + DAY, "as is said");
    let queue = queue.reopen(DAY + HOUR).await;
    let again = queue.lease(100).await;
    assert_eq!(paths(&again), ["/3"]);
    queue.settle(again[0].token, Outcome::Gone).await;
    assert_eq!(queue.view(PAGE).await.state, UrlState::Parked);
}

#[tokio::test]
async fn a_look_that_is_owed_and_fails_is_owed_still() {
    let (queue, _, leased) = leased_again().await;
    settle(&queue, leased, Outcome::Gone).await;
    let queue = queue.reopen(DAY + HOUR).await;
    let again = queue.lease(100).await;
    assert_eq!(paths(&again), ["/3"]);
    queue.settle(again[0].token, Outcome::Failed).await;
    let queue = queue.reopen(HOUR).await;
    let again = queue.lease(100).await;
    assert_eq!(paths(&again), ["/3"]);
    assert_eq!(again[0].attempt, 2);
    queue.settle(again[0].token, Outcome::Gone).await;
    assert_eq!(queue.view(PAGE).await.state, UrlState::Parked, "twice gone");
}

#[tokio::test]
async fn a_look_that_is_owed_and_whose_lease_expires_is_owed_still() {
    let (queue, rows, leased) = leased_again().await;
    queue.change(rows[3]).await;
    settle(&queue, leased, Outcome::Unchanged).await;
    let queue = queue.reopen(2 * HOUR).await;
    assert_eq!(paths(&queue.lease(100).await), ["/3"]);
    assert_eq!(queue.pass(HOUR).await, (1, 0));
    let queue = queue.reopen(2 * HOUR).await;
    let again = queue.lease(100).await;
    assert_eq!(paths(&again), ["/3"]);
    assert_eq!((again[0].attempt, again[0].reason), (2, Reason::Changed));
    queue.settle(again[0].token, Outcome::Unchanged).await;
    let queue = queue.reopen(2 * HOUR).await;
    assert!(queue.lease(100).await.is_empty(), "once is enough");
}

#[tokio::test]
async fn a_look_that_is_owed_is_owed_still_after_a_429_or_when_it_is_given_back_for_later() {
    for is_throttled in [true, false] {
        let (queue, rows, leased) = leased_again().await;
        queue.change(rows[3]).await;
        settle(&queue, leased, Outcome::Unchanged).await;
        let queue = queue.reopen(2 * HOUR).await;
        let token = queue.lease_one().await.token;
        if is_throttled {
            let throttled = Settlement { status: Some(429), ..report(token, Outcome::Failed) };
            queue.settle_as(throttled).await;
        } else {
            queue.release(token, HOUR).await;
        }
        let queue = queue.reopen(2 * HOUR).await;
        assert_eq!(paths(&queue.lease(100).await), ["/3"], "{is_throttled}");
    }
}

#[tokio::test]
async fn a_date_of_today_is_looked_at_after_its_day_whatever_it_is_worth() {
    let (queue, rows, leased) = leased_again().await;
    let today = Lastmod { at: queue.clock.now(), precision: Precision::Day };
    settle(&queue, leased, Outcome::Unchanged).await;
    queue.clock.advance(8 * HOUR);
    let hints = EntryHints::default();
    queue.apply(Effect::Changed { url: rows[3], lastmod: today, hints }).await;
    let leased = queue.lease(100).await;
    assert_eq!(paths(&leased), ["/3"]);
    settle(&queue, leased, Outcome::Changed).await;
    assert!(queue.view(PAGE).await.due_at.unwrap() <= queue.clock.now() + 17 * HOUR, "as is said");
    let queue = queue.reopen(17 * HOUR).await;
    let again = queue.lease(100).await;
    assert_eq!(paths(&again), ["/3"]);
    queue.settle(again[0].token, Outcome::Unchanged).await;
    let queue = queue.reopen(2 * HOUR).await;
    assert!(queue.lease(100).await.is_empty(), "once is enough");
}

/// How a lease ends.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Settled,
    Released,
    Expired,
}

/// Ends the lease of the only URL of a queue.
async fn end(queue: &Queue, leased: &Leased, how: Ends) {
    match how {
        Ends::Settled => drop(queue.settle(leased.token, Outcome::Changed).await),
        Ends::Released => drop(queue.release(leased.token, Duration::ZERO).await),
        Ends::Expired => drop(queue.pass(HOUR).await),
    }
}

#[tokio::test]
async fn what_is_not_wanted_any_more_is_parked_however_its_lease_ends() {
    for how in [Ends::Settled, Ends::Released, Ends::Expired] {
        let queue = Queue::simple().await;
        let url = queue.list_urls("a", [PAGE.to_owned()]).await[0];
        let leased = queue.lease_one().await;
        queue.apply(Effect::Unwant { url }).await;
        end(&queue, &leased, how).await;
        assert_eq!(queue.view(PAGE).await.state, UrlState::Parked, "{how:?}");
        queue.clock.advance(400 * DAY);
        assert!(queue.lease(10).await.is_empty(), "{how:?}");
    }
}

#[tokio::test]
async fn what_is_wanted_again_before_its_lease_ends_is_not_parked() {
    for how in [Ends::Settled, Ends::Released, Ends::Expired] {
        for is_submitted in [false, true] {
            let queue = Queue::simple().await;
            let url = queue.list_urls("a", [PAGE.to_owned()]).await[0];
            let leased = queue.lease_one().await;
            if is_submitted {
                let asked = vec![PAGE.to_owned()];
                queue.store.requeue("default".to_owned(), asked).await.unwrap();
                queue.apply(Effect::Unwant { url }).await;
            } else {
                queue.apply(Effect::Unwant { url }).await;
                queue.list_urls("a", [PAGE.to_owned()]).await;
            }
            end(&queue, &leased, how).await;
            queue.clock.advance(HOUR);
            assert_eq!(paths(&queue.lease(10).await), ["/3"], "{how:?} {is_submitted}");
        }
    }
}

/// A newer lastmod, a touched entry and the end of its listing: whatever a source says.
async fn say_everything(queue: &Queue, url: UrlId) {
    queue.change(url).await;
    let hints = EntryHints::default();
    queue.apply(Effect::Touched { url, lastmod: None, hints }).await;
    queue.apply(Effect::Drop { url }).await;
    queue.list_urls("a", [PAGE.to_owned()]).await;
}

#[tokio::test]
async fn no_signal_undercuts_what_a_fetcher_put_its_url_off_to() {
    let queue = Queue::simple().await;
    let url = queue.list_urls("a", [PAGE.to_owned()]).await[0];
    let leased = queue.lease_one().await;
    let not_before = queue.clock.now() + 7 * DAY;
    let settlement = report(leased.token, Outcome::Unchanged);
    queue.settle_as(Settlement { not_before: Some(not_before), ..settlement }).await;
    queue.clock.advance(Duration::from_secs(1));
    say_everything(&queue, url).await;
    assert!(queue.lease(10).await.is_empty());
    assert!(queue.view(PAGE).await.due_at >= Some(not_before));
    queue.clock.advance(7 * DAY);
    let leased = queue.lease_one().await;
    assert_ne!(leased.reason, Reason::Recrawl);
    // Given back for a while, it is left alone for that.
    queue.release(leased.token, DAY).await;
    say_everything(&queue, url).await;
    assert!(queue.lease(10).await.is_empty());
    // Who asks for it does not wait.
    queue.store.requeue("default".to_owned(), vec![PAGE.to_owned()]).await.unwrap();
    assert_eq!(queue.lease_one().await.reason, Reason::Submitted);
}

#[tokio::test]
async fn a_page_that_refuses_is_left_alone_for_a_day_whatever_its_source_says() {
    let queue = Queue::simple().await;
    let url = queue.list_urls("a", [PAGE.to_owned()]).await[0];
    let leased = queue.lease_one().await;
    queue.settle(leased.token, Outcome::Blocked).await;
    for _ in 0..23 {
        queue.clock.advance(HOUR);
        say_everything(&queue, url).await;
        assert!(queue.lease(10).await.is_empty());
    }
    queue.clock.advance(HOUR);
    say_everything(&queue, url).await;
    assert_eq!(queue.lease(10).await.len(), 1);
}

#[tokio::test]
async fn what_moves_while_a_page_is_leased_that_refuses_does_not_bring_it_back_sooner() {
    for status in [403, 429] {
        let queue = Queue::simple().await;
        let long_ago = "2020-01-01T00:00:00Z".parse().unwrap();
        let url = queue.list("a", &[entry(PAGE.to_owned()).lastmod(long_ago)]).await[0];
        let leased = queue.lease_one().await;
        queue.change(url).await;
        let refused = report(leased.token, Outcome::Blocked);
        queue.settle_as(Settlement { status: Some(status), ..refused }).await;
        queue.clock.advance(23 * HOUR);
        assert!(queue.lease(10).await.is_empty(), "{status}");
        queue.clock.advance(HOUR);
        assert_eq!(queue.lease_one().await.reason, Reason::Changed, "{status}: owed still");
    }
}

#[tokio::test]
async fn no_signal_cuts_the_pause_after_a_failure_short() {
    let queue = Queue::simple().await;
    let url = queue.list_urls("a", [PAGE.to_owned()]).await[0];
    let leased = queue.lease_one().await;
    queue.settle(leased.token, Outcome::Failed).await;
    let due = queue.view(PAGE).await.due_at.unwrap();
    let pause = due.duration_since(queue.clock.now()).unsigned_abs();
    queue.clock.advance(pause.saturating_sub(Duration::from_secs(1)));
    queue.change(url).await;
    assert!(queue.lease(10).await.is_empty());
    assert_eq!(queue.view(PAGE).await.due_at, Some(due));
    queue.clock.advance(Duration::from_secs(1));
    let leased = queue.lease_one().await;
    assert_eq!(leased.attempt, 2);
    // Given up, and asked for again, it waits for nothing.
    let mut token = leased.token;
    for _ in 2..8 {
        queue.settle(token, Outcome::Failed).await;
        queue.clock.advance(2 * DAY);
        token = queue.lease_one().await.token;
    }
    let not_before = Some(queue.clock.now() + DAY);
    queue.settle_as(Settlement { not_before, ..report(token, Outcome::Failed) }).await;
    assert_eq!(queue.view(PAGE).await.state, UrlState::Dead);
    queue.change(url).await;
    assert!(queue.lease(10).await.is_empty());
    queue.store.requeue("default".to_owned(), vec![PAGE.to_owned()]).await.unwrap();
    assert_eq!(queue.lease_one().await.attempt, 1);
}

#[tokio::test]
async fn a_believed_signal_waits_for_what_a_fetcher_put_its_url_off_to() {
    let (queue, rows, leased) = leased_again().await;
    let not_before = queue.clock.now() + 3 * DAY;
    for leased in leased {
        let settlement = report(leased.token, Outcome::Changed);
        queue.settle_as(Settlement { not_before: Some(not_before), ..settlement }).await;
    }
    queue.clock.advance(HOUR);
    for row in &rows {
        queue.change(*row).await;
    }
    assert!(queue.lease(100).await.is_empty());
    queue.clock.advance(3 * DAY);
    assert!(!queue.lease(100).await.is_empty());
}
