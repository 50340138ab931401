//! Why a URL is due: what is said of it is so, whatever became of its last lease.

use std::time::Duration;

use sitemapd::model::{ChangeFreq, Outcome, UrlId};
use sitemapd::queue::Settlement;
use sitemapd::store::{Effect, PastFetch};

use crate::support::queue_daemon::{Queue, entry, report, site};

const DAY: Duration = Duration::from_secs(86_400);
const PAGE: &str = "http://a.test/page";

/// What becomes of a page.
#[derive(Debug, Clone, Copy)]
enum Step {
    Reported(Outcome, u16),
    PutOff,
    GivenBack(Duration),
    Expired,
    Dropped,
    Listed,
    AskedFor,
}

use Step::{AskedFor, Dropped, Expired, GivenBack, Listed, PutOff, Reported};

async fn list(queue: &Queue) -> UrlId {
    queue.list("a", &[entry(PAGE).changefreq(ChangeFreq::Hourly)]).await[0]
}

async fn take(queue: &Queue, url: UrlId, step: Step) {
    match step {
        Reported(outcome, status) => {
            let token = queue.lease_one().await.token;
            let status = Some(status);
            queue.settle_as(Settlement { status, ..report(token, outcome) }).await;
        }
        PutOff => {
            let token = queue.lease_one().await.token;
            let not_before = Some(queue.clock.now() + 7 * DAY);
            let seen = report(token, Outcome::Unchanged);
            queue.settle_as(Settlement { not_before, ..seen }).await;
        }
        GivenBack(after) => drop(queue.release(queue.lease_one().await.token, after).await),
        Expired => {
            queue.lease_one().await;
            queue.pass(Duration::from_secs(301)).await;
        }
        Dropped => queue.apply(Effect::Drop { url }).await,
        Listed => drop(list(queue).await),
        AskedFor => {
            queue.store.requeue("default".to_owned(), vec![PAGE.to_owned()]).await.unwrap();
        }
    }
}

/// A queue in which the page was seen so often, and is due.
async fn seen(order: &str, times: u32) -> (Queue, UrlId) {
    let text = format!("[queue]\norder = \"{order}\"\n") + &site("a", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    let url = list(&queue).await;
    for _ in 0..times {
        queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
        queue.clock.advance(181 * DAY);
    }
    (queue, url)
}

#[tokio::test]
async fn why_a_page_is_due_is_what_became_of_its_last_lease() {
    let once = Reported(Outcome::Unchanged, 200);
    let cases: [(&[Step], &str); 15] = [
        (&[Reported(Outcome::Failed, 429)], "the page asked to be left alone for a while (429)"),
        (&[Reported(Outcome::Failed, 503)], "its last fetch failed (HTTP 503): delivery 2 after 1"),
        (&[Reported(Outcome::Gone, 404)], "it was reported gone once, and is looked at again"),
        (&[Expired], "its last lease ended without a report: delivery 2 after 1"),
        (&[GivenBack(DAY)], "a fetcher gave it back until then"),
        (&[once, Dropped], "no source lists it any more: is it gone?"),
        (&[once, Dropped, Listed], "it is listed anew, after no source had it"),
        (&[once, AskedFor], "someone asked for it"),
        (&[Reported(Outcome::Gone, 404), AskedFor], "someone asked for it"),
        (&[Reported(Outcome::Failed, 429), AskedFor], "someone asked for it"),
        (&[Reported(Outcome::Blocked, 403), Dropped], "so it is left alone for a day"),
        // Where nothing was compared yet, the protocol's interval is that of others.
        (&[Reported(Outcome::Blocked, 403)], "so it is left alone for a day"),
        (&[PutOff], "its last fetcher asked for it no sooner"),
        (
            &[GivenBack(Duration::ZERO)],
            "it has not been fetched yet; the last fetcher gave it back",
        ),
        (&[], "it is new and has not been fetched yet"),
    ];
    // Learned numbers may well have moved what the last four wait for.
    for (order, times, known) in [("protocol", 0, 15), ("learned", 0, 15), ("learned", 4, 11)] {
        for (steps, expected) in &cases[..known] {
            let (queue, url) = seen(order, times).await;
            for step in *steps {
                take(&queue, url, *step).await;
            }
            let view = queue.view(PAGE).await;
            let at = format!("{order} {times} {steps:?}: {}", view.why);
            assert!(view.why.contains(expected), "{at}");
            assert!(!view.why.contains("the interval for such URLs"), "{at}");
            let is_new = view.why.contains("not been fetched yet");
            assert!(!is_new || view.fetched_at.is_none(), "{at}");
        }
    }
}

#[tokio::test]
async fn what_was_given_up_is_not_said_to_be_new_when_it_comes_back() {
    let text = "[queue]\nmax_attempts = 1\n".to_owned() + &site("a", "http://a.test/", "");
    for ends in [Reported(Outcome::Failed, 500), Expired] {
        let queue = Queue::open(&text).await;
        let url = list(&queue).await;
        take(&queue, url, ends).await;
        queue.store.replay("default".to_owned(), vec![PAGE.to_owned()]).await.unwrap();
        let why = queue.view(PAGE).await.why;
        assert!(why.contains("it was given up, and is tried again"), "{ends:?}: {why}");
    }
}

#[tokio::test]
async fn what_was_reported_of_an_older_fetch_does_not_stand_beside_an_imported_one() {
    let (queue, _) = seen("learned", 0).await;
    let token = queue.lease_one().await.token;
    let (error, status) = (Some("no answer".to_owned()), Some(503));
    queue.settle_as(Settlement { error, status, ..report(token, Outcome::Failed) }).await;
    queue.clock.advance(2 * DAY);
    let fetch = PastFetch {
        url: PAGE.parse().unwrap(),
        at: queue.clock.now() - DAY,
        changed: Some(true),
        content_hash: None,
        hash_kind: None,
    };
    let imported = queue.store.import("default".to_owned(), vec![fetch]).await.unwrap();
    assert_eq!(imported.taken, 1);
    let view = queue.view(PAGE).await;
    assert_eq!((view.outcome, view.status, view.error), (Some(Outcome::Changed), None, None));
}

#[tokio::test]
async fn what_a_fetcher_said_of_a_page_is_kept_and_shown_until_the_next_report() {
    let (queue, _) = seen("learned", 0).await;
    let token = queue.lease_one().await.token;
    let said = Settlement {
        error: Some("half a page".to_owned()),
        canonical: Some("http://a.test/other".to_owned()),
        noindex: true,
        ..report(token, Outcome::Changed)
    };
    queue.settle_as(said).await;
    let view = queue.view(PAGE).await;
    let shown = (view.error.as_deref(), view.canonical.as_deref(), view.noindex);
    assert_eq!(shown, (Some("half a page"), Some("http://a.test/other"), true));
    queue.clock.advance(181 * DAY);
    queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
    let view = queue.view(PAGE).await;
    assert_eq!((view.error, view.canonical, view.noindex), (None, None, false));
}

/// Changes a day of a page, as told.
async fn told_rate(queue: &Queue, url: &str) -> f64 {
    // What was believed of one host last holds for a few looks more.
    queue.view("http://b.test/").await;
    queue.view(url).await.learned.unwrap().numbers.rate
}

#[tokio::test]
async fn what_is_told_of_a_page_goes_by_the_last_look_at_its_host() {
    let queue = Queue::open(&site("a", "http://a.test/", "")).await;
    queue.list_urls("a", (0..100).map(|n| format!("http://a.test/{n}"))).await;
    for _ in 0..5 {
        let leased = queue.lease(1_000).await;
        let seen = leased.iter().map(|leased| report(leased.token, Outcome::Unchanged));
        queue.store.settle(seen.collect()).await.unwrap();
        queue.clock.advance(181 * DAY);
    }
    // So few after so many are not written at once.
    let leased = queue.lease(9).await;
    queue.list_urls("a", ["http://b.test/".to_owned()]).await;
    let untouched = (0..100).map(|n| format!("http://a.test/{n}"));
    let other = untouched.into_iter().find(|url| leased.iter().all(|one| one.url != *url));
    let other = other.unwrap();
    let before = told_rate(&queue, &other).await;
    let seen = leased.iter().map(|leased| report(leased.token, Outcome::Changed));
    queue.store.settle(seen.collect()).await.unwrap();
    let told = told_rate(&queue, &other).await;
    assert!((told / before - 1.0).abs() > 0.01, "{told} after {before}");
    // At the end all of it is.
    let queue = queue.reopen(Duration::ZERO).await;
    let kept = told_rate(&queue, &other).await;
    assert!((told / kept - 1.0).abs() < 1e-4, "{told} is not {kept}");
}
