//! What a settled outcome means for the row.

use std::time::Duration;

use jiff::Timestamp;
use sitemapd::model::extension::{Expiry, Marks};
use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::{Leased, Settlement};
use sitemapd::store::views::UrlState;
use sitemapd::store::{Effect, Said};

use crate::support::queue_daemon::{Queue, entry, report, site};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const OLD: &str = "http://a.test/old";
const NEW: &str = "http://a.test/new";

async fn with(urls: &[&str]) -> Queue {
    let queue = Queue::simple().await;
    queue.list("a", &urls.iter().map(|url| entry(*url)).collect::<Vec<_>>()).await;
    queue
}

/// Settles the one due URL with a hash and no outcome; says what was derived.
async fn hash(queue: &Queue, hash: &str, kind: Option<&str>) -> Outcome {
    let leased = queue.lease_one().await;
    let mut settlement = report(leased.token, Outcome::Unknown);
    settlement.outcome = None;
    settlement.content_hash = Some(hash.to_owned());
    settlement.hash_kind = kind.map(str::to_owned);
    queue.settle_as(settlement).await;
    queue.clock.advance(180 * DAY);
    queue.view(&leased.url).await.outcome.unwrap()
}

#[tokio::test]
async fn without_an_outcome_the_hash_tells_and_a_new_kind_is_a_new_baseline() {
    let queue = with(&[OLD]).await;
    for (text, kind, expected) in [
        ("1", Some("raw"), Outcome::Unknown),
        ("1", Some("raw"), Outcome::Unchanged),
        ("2", Some("raw"), Outcome::Changed),
        ("2", Some("text"), Outcome::Unknown),
        ("2", Some("text"), Outcome::Unchanged),
        ("2", None, Outcome::Unknown),
        ("2", None, Outcome::Unchanged),
        ("3", None, Outcome::Changed),
    ] {
        assert_eq!(hash(&queue, text, kind).await, expected, "{text} {kind:?}");
    }
    let view = queue.view(OLD).await;
    assert_eq!((view.fetches, view.changes), (8, 2));
}

#[tokio::test]
async fn a_report_without_a_hash_keeps_the_hash_of_before() {
    let queue = with(&[OLD]).await;
    hash(&queue, "1", Some("raw")).await;
    let token = queue.lease_one().await.token;
    queue.settle(token, Outcome::Failed).await;
    queue.clock.advance(DAY);
    assert_eq!(hash(&queue, "1", Some("raw")).await, Outcome::Unchanged);
}

#[tokio::test]
async fn what_a_failure_looks_like_is_no_content_of_the_page() {
    let queue = with(&[OLD]).await;
    hash(&queue, "1", Some("raw")).await;
    for outcome in [Outcome::Failed, Outcome::Gone, Outcome::Blocked] {
        let mut settlement = report(queue.lease_one().await.token, outcome);
        settlement.content_hash = Some("a page of errors".to_owned());
        queue.settle_as(settlement).await;
        queue.clock.advance(30 * DAY);
        assert_eq!(hash(&queue, "1", Some("raw")).await, Outcome::Unchanged, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_second_gone_parks_and_a_success_between_two_does_not_count() {
    let queue = with(&[OLD]).await;
    for outcome in [Outcome::Gone, Outcome::Unchanged, Outcome::Gone] {
        let token = queue.lease_one().await.token;
        queue.settle(token, outcome).await;
        assert_eq!(queue.view(OLD).await.state, UrlState::Queued, "{outcome:?}");
        queue.clock.advance(30 * DAY);
    }
    let token = queue.lease_one().await.token;
    queue.settle(token, Outcome::Gone).await;
    assert_eq!(queue.view(OLD).await.state, UrlState::Parked);
    queue.clock.advance(400 * DAY);
    assert!(queue.lease(1).await.is_empty());
    assert_eq!(queue.counts().await.parked, 1);
}

#[tokio::test]
async fn a_page_that_is_gone_says_so_whatever_end_its_videos_have() {
    for (times, end, said) in [(2, 400 * DAY, "it is gone"), (1, HOUR, "its videos expired")] {
        let queue = with(&[OLD]).await;
        let url = queue.view(OLD).await.id;
        let end = (queue.clock.now() + end).as_second();
        let marks = Marks { expiry: Expiry::At(end), ..Marks::default() };
        let data = "{\"videos\":[{}]}".to_owned();
        queue.apply(Effect::Extensions { url, said: Some(Said { data, marks }) }).await;
        for _ in 0..times {
            let token = queue.lease_one().await.token;
            queue.settle(token, Outcome::Gone).await;
            queue.clock.advance(30 * DAY);
        }
        let view = queue.view(OLD).await;
        assert_eq!(view.state, UrlState::Parked, "{}", view.why);
        assert!(view.why.contains(said), "{}", view.why);
    }
}

/// Leases everything and settles the old URL as redirected.
async fn redirect(queue: &Queue, to: &str) -> Leased {
    let old = queue.lease(10).await.into_iter().find(|leased| leased.url == OLD).unwrap();
    let settlement =
        Settlement { final_url: Some(to.to_owned()), ..report(old.token, Outcome::Redirected) };
    queue.settle_as(settlement).await;
    old
}

#[tokio::test]
async fn a_redirect_folds_a_url_into_its_target_when_that_is_listed() {
    let queue = with(&[OLD, NEW]).await;
    redirect(&queue, &format!("{NEW}#part")).await;
    let view = queue.view(OLD).await;
    assert_eq!(view.state, UrlState::Parked);
    assert!(view.why.contains("redirects"), "{}", view.why);
}

#[tokio::test]
async fn what_redirects_comes_back_with_time_or_when_nothing_stands_for_it() {
    for (has_left, days) in [(true, 2), (false, 200)] {
        let queue = with(&[OLD, NEW]).await;
        redirect(&queue, NEW).await;
        let new = queue.view(NEW).await.id;
        let state = async || {
            queue.maintain().await;
            queue.view(OLD).await.state
        };
        assert_eq!(state().await, UrlState::Parked);
        queue.pass(DAY).await;
        assert_eq!(state().await, UrlState::Parked);
        if has_left {
            queue.apply(Effect::Drop { url: new }).await;
        }
        queue.clock.advance(days * DAY);
        assert_eq!(state().await, UrlState::Queued, "{has_left}");
        assert!(queue.lease(10).await.iter().any(|leased| leased.url == OLD));
    }
}

#[tokio::test]
async fn a_redirect_to_what_was_given_up_leaves_a_url_in_the_queue() {
    let text = "[queue]\nmax_attempts = 1\n".to_owned() + &site("a", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    queue.list("a", &[entry(NEW)]).await;
    queue.settle(queue.lease_one().await.token, Outcome::Failed).await;
    assert_eq!(queue.view(NEW).await.state, UrlState::Dead);
    queue.list("a", &[entry(OLD)]).await;
    redirect(&queue, NEW).await;
    assert_eq!(queue.view(OLD).await.state, UrlState::Queued);
}

#[tokio::test]
async fn a_redirect_to_a_page_with_tracking_parameters_leads_to_the_page() {
    let queue = with(&[OLD, NEW]).await;
    redirect(&queue, &format!("{NEW}?utm_source=old")).await;
    assert_eq!(queue.view(OLD).await.state, UrlState::Parked);
}

#[tokio::test]
async fn a_redirect_to_what_nobody_lists_or_to_itself_leaves_a_url_in_the_queue() {
    for target in ["http://a.test/unlisted", OLD, "not a url", "http://other.test/new"] {
        let queue = with(&[OLD, NEW]).await;
        redirect(&queue, target).await;
        assert_eq!(queue.view(OLD).await.state, UrlState::Queued, "{target}");
    }
}

#[tokio::test]
async fn two_urls_that_redirect_to_each_other_do_not_both_vanish() {
    let queue = with(&[OLD, NEW]).await;
    let leased = queue.lease(10).await;
    for (from, to) in [(OLD, NEW), (NEW, OLD)] {
        let token = leased.iter().find(|leased| leased.url == from).unwrap().token;
        let settlement =
            Settlement { final_url: Some(to.to_owned()), ..report(token, Outcome::Redirected) };
        queue.settle_as(settlement).await;
    }
    assert_eq!(queue.view(OLD).await.state, UrlState::Parked);
    assert_eq!(queue.view(NEW).await.state, UrlState::Queued, "something has to stand for both");
}

#[tokio::test]
async fn a_fetchers_floor_puts_the_next_fetch_off() {
    let queue = with(&[OLD]).await;
    let token = queue.lease_one().await.token;
    let floor = queue.clock.now() + DAY * 90;
    let settlement = Settlement { not_before: Some(floor), ..report(token, Outcome::Changed) };
    queue.settle_as(settlement).await;
    assert_eq!(queue.view(OLD).await.due_at, Some(floor));
}

#[tokio::test]
async fn other_hints_undercut_no_floor() {
    use sitemapd::diff::snapshot::EntryHints;
    use sitemapd::model::{ChangeFreq, Priority};

    for order in ["learned", "protocol"] {
        for (outcome, days) in [(Outcome::Unchanged, 30), (Outcome::Blocked, 1)] {
            let text = format!("[queue]\norder = \"{order}\"\n") + &site("a", "http://a.test/", "");
            let queue = Queue::open(&text).await;
            let weekly = entry(OLD).changefreq(ChangeFreq::Weekly);
            let url = queue.list("a", &[weekly]).await[0];
            for _ in 0..4 {
                queue.settle(queue.lease_one().await.token, Outcome::Changed).await;
                queue.clock.advance(180 * DAY);
            }
            let token = queue.lease_one().await.token;
            let floor = queue.clock.now() + DAY * days;
            let not_before = (days > 1).then_some(floor);
            queue.settle_as(Settlement { not_before, ..report(token, outcome) }).await;
            queue.clock.advance(HOUR);
            for (changefreq, priority) in [(ChangeFreq::Weekly, 0.9), (ChangeFreq::Hourly, 0.9)] {
                let hints = EntryHints {
                    changefreq: Some(changefreq),
                    priority: Priority::from_f64(priority),
                };
                queue.apply(Effect::Hints { url, lastmod: None, hints }).await;
                let due = queue.view(OLD).await.due_at.unwrap();
                assert!(due >= floor, "{order} {outcome:?} {changefreq:?}: {due} before {floor}");
                let row = queue.look().number("SELECT min(due_s) FROM queue");
                assert!(row >= floor.as_second(), "{order} {outcome:?} {changefreq:?}");
            }
            if order == "protocol" {
                // The interval of hourly is over, and nothing but the floor holds it.
                assert_eq!(queue.view(OLD).await.due_at, Some(floor), "{outcome:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_changed_while_it_was_leased_keeps_to_the_floor_too() {
    let queue = Queue::simple().await;
    let dated = entry(OLD).lastmod(queue.clock.now() - DAY);
    let url = queue.list("a", &[dated]).await[0];
    let leased = queue.lease_one().await;
    queue.change(url).await;
    let floor = queue.clock.now() + DAY;
    let settlement =
        Settlement { not_before: Some(floor), ..report(leased.token, Outcome::Changed) };
    queue.settle_as(settlement).await;
    let view = queue.view(OLD).await;
    assert_eq!((view.due_at, view.reason), (Some(floor), Reason::Changed));
}

#[tokio::test]
async fn what_fails_again_and_again_is_given_up_though_it_changes_meanwhile() {
    let text = "[queue]\nmax_attempts = 3\n".to_owned() + &site("a", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    let dated = entry(OLD).lastmod(queue.clock.now() - DAY);
    let url = queue.list("a", &[dated]).await[0];
    for attempt in 1..3 {
        let leased = queue.lease_one().await;
        assert_eq!(leased.attempt, attempt);
        queue.change(url).await;
        queue.settle(leased.token, Outcome::Failed).await;
        let view = queue.view(OLD).await;
        assert_eq!(view.attempt, attempt);
        assert!(view.due_at > Some(queue.clock.now()), "after a pause");
        queue.clock.advance(DAY);
    }
    let leased = queue.lease_one().await;
    assert_eq!((leased.attempt, leased.reason), (3, Reason::Changed));
    queue.settle(leased.token, Outcome::Failed).await;
    assert_eq!(queue.view(OLD).await.state, UrlState::Dead);
}

#[tokio::test]
async fn a_fetchers_wrong_clock_moves_no_interval() {
    let queue = with(&[OLD]).await;
    queue.clock.advance(HOUR);
    for wrong in ["1970-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let leased = queue.lease_one().await;
        let before = queue.clock.now();
        queue.clock.advance(Duration::from_secs(60));
        let fetched_at: Timestamp = wrong.parse().unwrap();
        let settlement =
            Settlement { fetched_at: Some(fetched_at), ..report(leased.token, Outcome::Unchanged) };
        queue.settle_as(settlement).await;
        let view = queue.view(OLD).await;
        let fetched = view.fetched_at.unwrap();
        assert!(fetched >= before && fetched <= queue.clock.now(), "{wrong}: {fetched}");
        assert!(view.due_at.unwrap() >= before + DAY, "{wrong}: due {:?}", view.due_at);
        queue.clock.advance(30 * DAY);
    }
}

#[tokio::test]
async fn one_bad_report_of_a_batch_spoils_no_other() {
    let queue = with(&[OLD, NEW]).await;
    let leased = queue.lease(2).await;
    let mut batch: Vec<_> =
        leased.iter().map(|leased| report(leased.token, Outcome::Changed)).collect();
    batch[0].final_url = Some("\u{0}".to_owned());
    batch[0].token.secret = [0; 16];
    queue.store.settle(batch).await.unwrap();
    assert_eq!(queue.view(&leased[1].url).await.fetches, 1);
    assert_eq!(queue.view(&leased[0].url).await.state, UrlState::Leased);
}

#[tokio::test]
async fn a_page_that_was_asked_for_and_parked_before_its_end_comes_back_with_another_end() {
    for expiry in [Expiry::Never, Expiry::NoVideo, Expiry::At(i64::from(u32::MAX))] {
        let queue = with(&[OLD]).await;
        let url = queue.view(OLD).await.id;
        let says = async |expiry: Expiry| {
            let data = format!("{{\"videos\":[\"{expiry:?}\"]}}");
            let said = Said { data, marks: Marks { expiry, ..Marks::default() } };
            queue.apply(Effect::Extensions { url, said: Some(said) }).await;
        };
        says(Expiry::At((queue.clock.now() + 4 * DAY).as_second())).await;
        queue.store.requeue("default".to_owned(), vec![OLD.to_owned()]).await.unwrap();
        let leased = queue.lease_one().await;
        assert_eq!(leased.reason, Reason::Submitted);
        queue.settle(leased.token, Outcome::Unchanged).await;
        assert_eq!(queue.view(OLD).await.state, UrlState::Parked);
        says(expiry).await;
        let view = queue.view(OLD).await;
        assert_eq!((view.state, view.reason), (UrlState::Queued, Reason::Changed), "{expiry:?}");
    }
}
