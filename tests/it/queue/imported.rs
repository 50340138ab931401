//! What a crawl log says holds for leases; what it cannot have seen changes nothing.

use std::time::Duration;

use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::{Settlement, TokenResult};
use sitemapd::store::views::{UrlState, UrlView};
use sitemapd::store::{Effect, Imported, PastFetch};

use crate::support::engine::Look;
use crate::support::queue_daemon::{Queue, entry, paths, report, site};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const PAGE: &str = "http://a.test/0";

fn fetch(at: jiff::Timestamp, changed: bool) -> PastFetch {
    let url = PAGE.parse().unwrap();
    PastFetch { url, at, changed: Some(changed), content_hash: None, hash_kind: None }
}

async fn import(queue: &Queue, log: Vec<PastFetch>) -> Imported {
    queue.store.import("default".to_owned(), log).await.unwrap()
}

/// A page that was edited two hours ago, as its sitemap says, and has not changed in the
/// log, which ends a day ago.
async fn edited_since_its_log() -> Queue {
    let queue = Queue::simple().await;
    let now = queue.clock.now();
    queue.list("a", &[entry(PAGE).lastmod(now - 2 * HOUR)]).await;
    let log: Vec<_> = (1..=8).map(|days| fetch(now - days * DAY, false)).collect();
    assert_eq!(import(&queue, log).await.taken, 8);
    queue
}

#[tokio::test]
async fn what_was_edited_after_the_log_ended_is_due_at_once_and_stays_so() {
    let queue = edited_since_its_log().await;
    let view = queue.view(PAGE).await;
    assert_eq!(view.learned.unwrap().pending.get("lastmod"), Some(&1));
    assert!(view.due_at.unwrap() <= queue.clock.now(), "{}", view.why);
    let queue = queue.reopen(HOUR).await;
    let leased = queue.lease(10).await;
    assert_eq!(paths(&leased), ["/0"]);
    assert_eq!(leased[0].reason, Reason::Changed);
}

#[tokio::test]
async fn a_fetch_after_the_edit_has_seen_it() {
    let queue = edited_since_its_log().await;
    let seen = fetch(queue.clock.now() - HOUR, true);
    assert_eq!(import(&queue, vec![seen]).await.taken, 1);
    let view = queue.view(PAGE).await;
    let learned = view.learned.unwrap();
    assert!(learned.pending.is_empty(), "{:?}", learned.pending);
    assert!(learned.numbers.lastmod_hits > 0.5, "its date was right");
    assert!(view.due_at.unwrap() > queue.clock.now(), "{}", view.why);
    assert!(queue.reopen(HOUR).await.lease(10).await.is_empty());
}

#[tokio::test]
async fn what_moved_after_the_fetch_of_a_log_stays_to_be_looked_at() {
    for order in ["learned", "protocol"] {
        let text = format!("[queue]\norder = \"{order}\"\n{}", site("a", "http://a.test/", ""));
        let queue = Queue::open(&text).await;
        let url = queue.list_urls("a", [PAGE.to_owned()]).await[0];
        let leased = queue.lease_one().await;
        queue.settle(leased.token, Outcome::Unchanged).await;
        queue.clock.advance(10 * HOUR);
        queue.apply(Effect::Touched { url, lastmod: None, hints: EntryHints::default() }).await;
        let before = queue.view(PAGE).await;
        assert_eq!(before.reason, Reason::Changed, "{order}");
        let seen = fetch(queue.clock.now() - 5 * HOUR, false);
        assert_eq!(import(&queue, vec![seen]).await.taken, 1);
        let view = queue.view(PAGE).await;
        assert_eq!(view.reason, Reason::Changed, "{order}: {}", view.why);
        let pending = |view: UrlView| view.learned.map(|learned| learned.pending);
        assert_eq!(pending(view), pending(before), "{order}");
        let due = usize::from(order == "protocol");
        assert_eq!(queue.lease(10).await.len(), due, "{order}: else its value says when");
    }
}

#[tokio::test]
async fn a_report_of_an_older_fetch_than_a_log_told_of_ends_the_lease_and_no_more() {
    let queue = Queue::simple().await;
    queue.list_urls("a", [PAGE.to_owned()]).await;
    let leased = queue.lease_one().await;
    let fetched_at = queue.clock.now() + Duration::from_secs(1);
    queue.clock.advance(HOUR / 15);
    let seen = queue.clock.now() - Duration::from_secs(60);
    let hashed =
        PastFetch { changed: None, content_hash: Some("new".to_owned()), ..fetch(seen, true) };
    assert_eq!(import(&queue, vec![hashed.clone()]).await.taken, 1);
    let told = queue.view(PAGE).await;
    let report = Settlement {
        content_hash: Some("old".to_owned()),
        fetched_at: Some(fetched_at),
        ..report(leased.token, Outcome::Gone)
    };
    assert_eq!(queue.settle_as(report).await, TokenResult::Ok);
    let view = queue.view(PAGE).await;
    assert_eq!(view.state, UrlState::Queued);
    let seen_at = |view: &UrlView| view.learned.as_ref().map(|learned| learned.seen_at);
    let told_of = |view: &UrlView| (view.fetched_at, view.outcome, view.content_hash.clone());
    assert_eq!((told_of(&view), seen_at(&view)), (told_of(&told), seen_at(&told)));
    assert!(view.due_at.unwrap() > queue.clock.now() + HOUR, "{}", view.why);
    assert_eq!(import(&queue, vec![hashed]).await.ignored, 1);
}

#[tokio::test]
async fn a_fetch_from_before_1970_changes_nothing() {
    let queue = Queue::simple().await;
    queue.list_urls("a", [PAGE.to_owned()]).await;
    let log = vec![fetch("1960-01-01T00:00:00Z".parse().unwrap(), true)];
    let imported = import(&queue, log).await;
    assert_eq!((imported.taken, imported.ignored), (0, 1));
    assert!(queue.view(PAGE).await.learned.is_none());
    let leased = queue.lease_one().await;
    queue.settle(leased.token, Outcome::Unchanged).await;
    assert!(queue.lease(10).await.is_empty(), "it is there once");
}

#[tokio::test]
async fn a_row_of_the_queue_that_its_url_does_not_name_is_nobodys_and_goes() {
    for loses_its_own in [false, true] {
        let queue = Queue::simple().await;
        queue.list_urls("a", [PAGE.to_owned()]).await;
        let (columns, copied) = match queue.look() {
            Look::File(_) => ("", "owner"),
            Look::Server(_) => ("part, ", "site_id, valued"),
        };
        queue.look().change(&format!(
            "INSERT INTO queue ({columns}crawl_id, host_id, band, due_s, url_id, {copied})
                 SELECT {columns}crawl_id, host_id, band, 5, url_id, {copied} FROM queue;
             UPDATE turns SET queued = 2, due_s = 5"
        ));
        if loses_its_own {
            queue.look().change("DELETE FROM queue WHERE due_s > 5; UPDATE turns SET queued = 1");
        }
        let queue = queue.reopen(HOUR).await;
        let mut leased = queue.lease(1).await;
        leased.extend(queue.lease(1).await);
        assert_eq!(paths(&leased), ["/0"], "{loses_its_own}");
        queue.settle(leased[0].token, Outcome::Unchanged).await;
        assert!(queue.lease(10).await.is_empty(), "it is due in two weeks");
        assert_eq!(queue.look().number("SELECT count(*) FROM queue"), 1);
        assert_eq!(queue.look().number("SELECT queued FROM turns"), 1);
    }
}

#[tokio::test]
async fn a_page_that_a_log_has_seen_after_it_was_gone_is_gone_for_the_first_time_again() {
    let queue = Queue::simple().await;
    queue.list("a", &[entry(PAGE)]).await;
    queue.settle(queue.lease_one().await.token, Outcome::Gone).await;
    queue.clock.advance(HOUR);
    assert_eq!(import(&queue, vec![fetch(queue.clock.now(), false)]).await.taken, 1);
    for state in [UrlState::Queued, UrlState::Parked] {
        queue.clock.advance(400 * DAY);
        queue.settle(queue.lease_one().await.token, Outcome::Gone).await;
        assert_eq!(queue.view(PAGE).await.state, state);
    }
}
