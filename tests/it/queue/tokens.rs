//! What a token can do: once, in time, and never after.

use std::time::Duration;

use sitemapd::model::{Outcome, UrlId};
use sitemapd::queue::{Token, TokenResult};
use sitemapd::store::views::UrlState;

use crate::support::queue_daemon::{Queue, entry, report};

const MINUTE: Duration = Duration::from_secs(60);

async fn with_one() -> Queue {
    let queue = Queue::simple().await;
    queue.list("a", &[entry("http://a.test/1")]).await;
    queue
}

#[tokio::test]
async fn a_token_settles_once_is_ok_again_within_the_hour_and_unknown_after() {
    let queue = with_one().await;
    let token = queue.lease_one().await.token;
    assert_eq!(queue.settle(token, Outcome::Changed).await, TokenResult::Ok);
    let before = queue.view("http://a.test/1").await;
    queue.clock.advance(59 * MINUTE);
    assert_eq!(queue.settle(token, Outcome::Gone).await, TokenResult::Ok);
    let after = queue.view("http://a.test/1").await;
    assert_eq!((after.outcome, after.fetches, after.due_at), (before.outcome, 1, before.due_at));
    queue.clock.advance(2 * MINUTE);
    assert_eq!(queue.settle(token, Outcome::Changed).await, TokenResult::Unknown);
    assert_eq!(queue.view("http://a.test/1").await.fetches, 1);
}

#[tokio::test]
async fn a_token_settled_twice_in_one_call_counts_once() {
    let queue = with_one().await;
    let token = queue.lease_one().await.token;
    let twice = vec![report(token, Outcome::Changed), report(token, Outcome::Failed)];
    assert_eq!(queue.store.settle(twice).await.unwrap(), [TokenResult::Ok, TokenResult::Ok]);
    let view = queue.view("http://a.test/1").await;
    assert_eq!((view.outcome, view.fetches), (Some(Outcome::Changed), 1));
}

#[tokio::test]
async fn a_token_whose_url_was_leased_again_is_stale_and_changes_nothing() {
    let queue = with_one().await;
    let old = queue.lease_one().await.token;
    queue.pass(6 * MINUTE).await;
    queue.clock.advance(MINUTE);
    let new = queue.lease_one().await;
    assert_eq!(queue.settle(old, Outcome::Gone).await, TokenResult::Stale);
    assert_eq!(queue.extend(old, MINUTE).await, TokenResult::Stale);
    assert_eq!(queue.release(old, MINUTE).await, TokenResult::Stale);
    let view = queue.view("http://a.test/1").await;
    assert_eq!(
        (view.state, view.outcome, view.leased_until),
        (UrlState::Leased, None, Some(new.expires_at))
    );
    assert_eq!(queue.settle(new.token, Outcome::Changed).await, TokenResult::Ok);
    assert_eq!(queue.settle(old, Outcome::Gone).await, TokenResult::Stale);
    assert_eq!(queue.view("http://a.test/1").await.outcome, Some(Outcome::Changed));
}

#[tokio::test]
async fn a_token_that_expired_is_stale_before_it_is_taken_back_and_after() {
    let queue = with_one().await;
    let token = queue.lease_one().await.token;
    queue.clock.advance(5 * MINUTE);
    assert_eq!(queue.settle(token, Outcome::Changed).await, TokenResult::Stale);
    assert_eq!(queue.extend(token, MINUTE).await, TokenResult::Stale);
    assert_eq!(queue.store.reap().await, Ok((1, 0)));
    assert_eq!(queue.settle(token, Outcome::Changed).await, TokenResult::Stale);
    assert_eq!(queue.view("http://a.test/1").await.fetches, 0);
}

#[tokio::test]
async fn a_forged_token_gets_nowhere() {
    let queue = with_one().await;
    let real = queue.lease_one().await.token;
    let forged = Token { url: real.url, secret: [7; 16] };
    let nowhere = Token { url: UrlId(4_711), secret: real.secret };
    for token in [forged, nowhere] {
        assert_ne!(queue.settle(token, Outcome::Gone).await, TokenResult::Ok);
        assert_ne!(queue.extend(token, MINUTE).await, TokenResult::Ok);
        assert_ne!(queue.release(token, MINUTE).await, TokenResult::Ok);
    }
    assert_eq!(queue.settle(nowhere, Outcome::Gone).await, TokenResult::Unknown);
    assert_eq!(queue.settle(real, Outcome::Changed).await, TokenResult::Ok);
}

#[tokio::test]
async fn extending_moves_the_end_of_a_lease() {
    let queue = with_one().await;
    let token = queue.lease_one().await.token;
    queue.clock.advance(4 * MINUTE);
    assert_eq!(queue.extend(token, 10 * MINUTE).await, TokenResult::Ok);
    assert_eq!(queue.pass(9 * MINUTE).await, (0, 0));
    assert_eq!(queue.settle(token, Outcome::Changed).await, TokenResult::Ok);
}

#[tokio::test]
async fn a_lease_that_has_ended_cannot_be_extended() {
    let queue = with_one().await;
    let token = queue.lease_one().await.token;
    queue.settle(token, Outcome::Changed).await;
    assert_eq!(queue.extend(token, MINUTE).await, TokenResult::Stale, "nobody holds it any more");
}

#[tokio::test]
async fn a_release_counts_no_attempt_and_waits_as_long_as_it_says() {
    let queue = with_one().await;
    for _ in 0..20 {
        let leased = queue.lease_one().await;
        assert_eq!(leased.attempt, 1);
        assert_eq!(queue.release(leased.token, 30 * MINUTE).await, TokenResult::Ok);
        queue.clock.advance(29 * MINUTE);
        assert!(queue.lease(1).await.is_empty());
        queue.clock.advance(MINUTE);
    }
}

#[tokio::test]
async fn a_release_may_be_repeated_after_a_lost_answer() {
    let queue = with_one().await;
    let token = queue.lease_one().await.token;
    assert_eq!(queue.release(token, MINUTE).await, TokenResult::Ok);
    assert_eq!(queue.release(token, MINUTE).await, TokenResult::Ok);
    assert_eq!(queue.settle(token, Outcome::Gone).await, TokenResult::Stale);
}

#[tokio::test]
async fn a_url_released_at_once_keeps_its_place() {
    let queue = with_one().await;
    queue.clock.advance(MINUTE);
    queue.list("a", &[entry("http://a.test/2")]).await;
    let first = queue.lease_one().await;
    queue.release(first.token, Duration::ZERO).await;
    assert_eq!(queue.lease_one().await.url, first.url);
}

#[tokio::test]
async fn what_is_leased_again_is_leased_in_the_view_for_people() {
    let queue = Queue::simple().await;
    queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
    let leased = "SELECT count(*) FROM url_view WHERE state = 'leased'";
    for _ in 0..2 {
        let token = queue.lease_one().await.token;
        assert_eq!(queue.look().number(leased), 1);
        queue.settle(token, Outcome::Unchanged).await;
        assert_eq!(queue.look().number(leased), 0);
        queue.clock.advance(Duration::from_secs(400 * 86_400));
    }
}
