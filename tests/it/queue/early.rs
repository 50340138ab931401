//! What was written while a fetch was dear, once it is cheap: had by who asks for more
//! than is due, and moved by nobody.

use std::collections::BTreeSet;
use std::time::Duration;

use sitemapd::model::Outcome;
use sitemapd::queue::{LeaseRequest, Settlement};
use sitemapd::store::RobotsRead;
use sitemapd::store::frontier::{Get, Progress};

use crate::support::queue_daemon::{Queue, ask, paths, report, site};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const PAGES: u32 = 300;

fn page(number: u32) -> String {
    format!("http://a.test/{number}")
}

/// Makes a fetch so many times as dear, in a daemon that begins an hour later.
async fn at_price(queue: Queue, times: f64) -> Queue {
    let queue = queue.reopen(HOUR).await;
    let now = queue.clock.now().as_millisecond();
    let change = format!("UPDATE prices SET price = {times} * price, ticked_at = {now}, asked = 0");
    queue.look().change(&change);
    queue
}

/// Pages of one host that change now and then, looked at 45 days ago when a fetch was a
/// hundred times as dear; it is that still. One was put off by its fetcher.
async fn written_when_dear() -> Queue {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..PAGES).map(page)).await;
    let look_at_all = async |queue: &Queue, outcome| {
        for leased in queue.lease(PAGES).await {
            queue.settle(leased.token, outcome).await;
        }
    };
    look_at_all(&queue, Outcome::Unknown).await;
    for outcome in [Outcome::Changed, Outcome::Unchanged, Outcome::Changed] {
        queue.clock.advance(20 * DAY);
        look_at_all(&queue, outcome).await;
    }
    let queue = at_price(queue, 100.0).await;
    queue.store.requeue("default".to_owned(), (0..PAGES).map(page).collect()).await.unwrap();
    for leased in queue.lease(PAGES).await {
        let is_put_off = leased.url == page(7);
        let not_before = is_put_off.then(|| queue.clock.now() + 80 * DAY);
        let seen = Settlement { not_before, ..report(leased.token, Outcome::Unchanged) };
        queue.settle_as(seen).await;
    }
    queue.clock.advance(45 * DAY);
    queue
}

/// A fetch is cheap again.
async fn written_when_dear_and_cheap_now() -> Queue {
    at_price(written_when_dear().await, 0.01).await
}

fn places(queue: &Queue) -> Vec<String> {
    let row = |n| format!("SELECT band || ' ' || due_s FROM queue WHERE url_id = {n}");
    (1..=i64::from(PAGES)).filter_map(|n| queue.look().text(&row(n))).collect()
}

#[tokio::test]
async fn what_was_put_off_while_a_fetch_was_dear_is_had_by_who_asks_for_more() {
    let queue = written_when_dear_and_cheap_now().await;
    let mut had = BTreeSet::new();
    loop {
        let leased = queue.lease(70).await;
        if leased.is_empty() {
            break;
        }
        for leased in leased {
            assert!(leased.due_at > queue.clock.now(), "by its row it is not due");
            assert!(had.insert(leased.url), "each is with one fetcher");
        }
    }
    // The intervals of some are longer than that at any price.
    assert!(had.len() > 250, "{}", had.len());
    assert!(!had.contains(&page(7)), "its fetcher put it off");
}

#[tokio::test]
async fn nothing_is_had_before_it_is_due_while_a_fetch_is_as_dear_as_it_was() {
    let queue = written_when_dear().await;
    let before = places(&queue);
    assert_eq!(paths(&queue.lease(PAGES).await), [""; 0]);
    assert_eq!(places(&queue), before, "and no row has been moved for the look");
}

#[tokio::test]
async fn what_leaves_or_moves_after_it_was_found_is_had_once_and_where_it_is() {
    let queue = written_when_dear_and_cheap_now().await;
    let few = LeaseRequest { per_host: 1, ..ask(1) };
    let first = queue.lease_as(few).await.urls;
    assert_eq!(first.len(), 1, "more were found");
    queue.store.requeue("default".to_owned(), (100..110).map(page).collect()).await.unwrap();
    let mut had: Vec<_> = queue.lease(10).await.into_iter().map(|leased| leased.url).collect();
    had.sort();
    assert_eq!(had, (100..110).map(page).collect::<Vec<_>>(), "what was asked for is first");
    had.extend(first.into_iter().map(|leased| leased.url));
    for leased in queue.lease(PAGES).await {
        assert!(!had.contains(&leased.url), "{}", leased.url);
        had.push(leased.url);
    }
    assert!(had.len() > 250, "{}", had.len());
}

#[tokio::test]
async fn a_site_that_is_paused_gives_nothing_early_even_of_what_was_found() {
    let queue = written_when_dear_and_cheap_now().await;
    let few = LeaseRequest { per_host: 1, ..ask(1) };
    assert_eq!(queue.lease_as(few).await.urls.len(), 1);
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    assert_eq!(paths(&queue.lease(PAGES).await), [""; 0]);
    queue.store.pause_site("a".to_owned(), false).await.unwrap();
    assert!(queue.lease(PAGES).await.len() > 250);
}

#[tokio::test]
async fn what_was_blocked_as_others_were_had_early_is_had_as_soon_as_that_is_lifted() {
    let queue = written_when_dear_and_cheap_now().await;
    let crawl = || "default".to_owned();
    for n in 200..250 {
        queue.store.block(crawl(), page(n), false).await.unwrap();
    }
    let of_a = || LeaseRequest { sites: vec!["a".to_owned()], ..ask(PAGES) };
    for _ in 0..3 {
        queue.lease(PAGES).await;
        queue.lease_as(of_a()).await;
    }
    for n in 200..250 {
        if n == 225 {
            assert!(queue.lease(PAGES).await.len() > 10);
        }
        queue.store.unblock(crawl(), page(n), false).await.unwrap();
    }
    assert!(queue.lease_as(of_a()).await.urls.len() > 10, "also by who names the site");
}

#[tokio::test]
async fn who_names_its_site_has_it_too() {
    let queue = written_when_dear_and_cheap_now().await;
    let of_site = || LeaseRequest { sites: vec!["a".to_owned()], per_host: 30, ..ask(100) };
    let mut had = BTreeSet::new();
    loop {
        let leased = queue.lease_as(of_site()).await.urls;
        if leased.is_empty() {
            break;
        }
        assert!(leased.iter().all(|leased| leased.due_at > queue.clock.now()));
        let before = had.len();
        had.extend(leased.iter().map(|leased| leased.url.clone()));
        assert_eq!(had.len(), before + leased.len(), "each is with one fetcher");
    }
    assert!(had.len() > 250, "{}", had.len());
    assert!(!had.contains(&page(7)), "its fetcher put it off");
}

#[tokio::test]
async fn who_names_a_site_is_told_when_its_host_may_be_asked_for_what_is_not_due() {
    let urls: Vec<_> = (0..100).map(page).collect();
    let queue = looked_at(&urls, &[]).await;
    let price = value(&queue, &urls[3]).await / 4.0;
    let later = queue.clock.now() + HOUR / 2;
    let until = later.as_millisecond();
    queue.look().change(&format!("UPDATE hosts SET paused_until = {until}"));
    let queue = priced(queue, price).await;
    let of_site = || LeaseRequest { sites: vec!["a".to_owned()], ..ask(10) };
    let batch = queue.lease_as(of_site()).await;
    assert_eq!((batch.urls.len(), batch.next_due_at), (0, Some(later)));
    queue.clock.advance(HOUR / 2);
    assert_eq!(queue.lease_as(of_site()).await.urls.len(), 10);
}

#[tokio::test]
async fn crawlers_of_the_frontier_have_it_too() {
    let queue = written_when_dear_and_cheap_now().await;
    let get = Get {
        crawl: None,
        key: None,
        per_queue: 100,
        max_queues: 0,
        ttl: Duration::from_secs(300),
    };
    let served = queue.store.frontier_get(get, Progress::default()).await.unwrap().0;
    assert_eq!(served.len(), 100);
}

#[tokio::test]
async fn who_names_a_budget_has_it_as_far_as_that_goes() {
    let queue = written_when_dear_and_cheap_now().await;
    let budget = "[recrawl]\nbudget = \"2400/day\"\n";
    let text = format!("{budget}{}", site("a", "http://a.test/", ""));
    queue.reload(&text).await.unwrap();
    assert!(queue.lease(PAGES).await.is_empty(), "the hour has brought nothing yet");
    queue.clock.advance(HOUR / 2);
    let had = queue.lease(PAGES).await.len();
    assert!((49..=51).contains(&had), "{had}");
}

#[tokio::test]
async fn what_is_given_back_unfetched_is_had_again_at_once() {
    let queue = written_when_dear_and_cheap_now().await;
    let leased = queue.lease(70).await;
    assert_eq!(leased.len(), 70);
    for leased in &leased {
        queue.release(leased.token, Duration::ZERO).await;
    }
    let again: BTreeSet<_> = queue.lease(PAGES).await.into_iter().map(|had| had.url).collect();
    assert!(leased.iter().all(|leased| again.contains(&leased.url)));
}

#[tokio::test]
async fn what_a_crawler_of_the_frontier_lets_expire_is_had_again_at_once() {
    let queue = written_when_dear_and_cheap_now().await;
    let get = || Get {
        crawl: None,
        key: None,
        per_queue: 100,
        max_queues: 0,
        ttl: Duration::from_secs(300),
    };
    let frontier_get = async || {
        let served = queue.store.frontier_get(get(), Progress::default()).await.unwrap().0;
        served.into_iter().map(|served| served.url).collect::<BTreeSet<_>>()
    };
    let first = frontier_get().await;
    assert_eq!(first.len(), 100);
    queue.clock.advance(Duration::from_secs(301));
    assert_eq!(frontier_get().await, first);
}

fn page_of_b(number: u32) -> String {
    format!("http://b.test/{number}")
}

/// Pages of two hosts that changed now and then. Those that are `young` were looked at five
/// days ago, the others 45. No row is due for ten days.
pub(super) async fn looked_at(urls: &[String], young: &[String]) -> Queue {
    let queue = Queue::simple().await;
    queue.list_urls("a", urls.iter().cloned()).await;
    let look = async |queue: &Queue, most, outcome| {
        for leased in queue.lease(most).await {
            queue.settle(leased.token, outcome).await;
        }
    };
    look(&queue, 400, Outcome::Unknown).await;
    for outcome in [Outcome::Changed, Outcome::Unchanged, Outcome::Changed] {
        queue.clock.advance(20 * DAY);
        look(&queue, 400, outcome).await;
    }
    queue.clock.advance(40 * DAY);
    due_at(&queue, urls, queue.clock.now() + 10 * DAY);
    let queue = queue.reopen(Duration::ZERO).await;
    if !young.is_empty() {
        queue.store.requeue("default".to_owned(), young.to_vec()).await.unwrap();
        look(&queue, u32::try_from(young.len()).unwrap(), Outcome::Changed).await;
    }
    queue.clock.advance(5 * DAY);
    due_at(&queue, urls, queue.clock.now() + 10 * DAY);
    queue
}

/// Rows of these URLs are due then.
fn due_at(queue: &Queue, urls: &[String], due: jiff::Timestamp) {
    let due = due.as_second();
    let these = format!("(SELECT id FROM url_view WHERE url IN ('{}'))", urls.join("', '"));
    queue.look().change_packed(
        &format!(
            "UPDATE feedback SET place = (place & ~(274877906943 << 14)) | ({due} << 14)
             WHERE url_id IN {these}"
        ),
        &format!("UPDATE feedback SET due_s = {due} WHERE url_id IN {these}"),
    );
    queue.look().change(&format!(
        "UPDATE queue SET due_s = {due} WHERE url_id IN {these}; UPDATE turns SET due_s = 0"
    ));
}

/// In a daemon that begins now, a fetch must be worth so much.
pub(super) async fn priced(queue: Queue, price: f64) -> Queue {
    let queue = queue.reopen(Duration::ZERO).await;
    let now = queue.clock.now().as_millisecond();
    let price = format!("UPDATE prices SET price = {price}, ticked_at = {now}, asked = 0");
    queue.look().change(&price);
    queue.reopen(Duration::ZERO).await
}

pub(super) async fn value(queue: &Queue, url: &str) -> f64 {
    queue.view(url).await.learned.unwrap().numbers.value
}

async fn most_of(queue: &Queue, urls: &[String]) -> f64 {
    let mut most = 0.0_f64;
    for url in urls {
        most = most.max(value(queue, url).await);
    }
    most
}

#[tokio::test]
async fn a_host_that_is_paused_keeps_no_other_from_being_looked_through_again() {
    let young: Vec<_> = (0..100).map(page_of_b).collect();
    let urls: Vec<_> = (0..100).map(page).chain(young.clone()).collect();
    let queue = looked_at(&urls, &young).await;
    let worth = most_of(&queue, &young).await;
    assert!(value(&queue, &urls[3]).await > 1.5 * worth);
    let queue = priced(queue, 1.3 * worth).await;
    let first = queue.lease_one().await;
    assert_eq!(&*first.host, "http://a.test");
    let throttled = report(first.token, Outcome::Failed);
    let throttled = Settlement { status: Some(429), retry_after: Some(DAY), ..throttled };
    queue.settle_as(throttled).await;
    // The price falls from hour to hour, and what the other host has becomes worth it.
    let mut had = Vec::new();
    for _ in 0..22 {
        queue.clock.advance(HOUR);
        had.extend(queue.lease(20).await);
    }
    assert!(had.len() >= 20, "{}", had.len());
    assert!(had.iter().all(|leased| &*leased.host == "http://b.test"), "{:?}", paths(&had));
}

#[tokio::test]
async fn what_is_worth_the_price_goes_before_what_is_cheap_whichever_host_has_it() {
    let old: Vec<_> = (0..10).flat_map(|n| [page(n), page_of_b(n)]).collect();
    let cheap: Vec<_> = (10..40).flat_map(|n| [page(n), page_of_b(n)]).collect();
    let queue = looked_at(&[&old[..], &cheap].concat(), &cheap).await;
    let worth = most_of(&queue, &cheap).await;
    assert!(value(&queue, &old[3]).await > 1.5 * worth);
    due_at(&queue, &cheap, queue.clock.now() - HOUR);
    let queue = priced(queue, 1.3 * worth).await;
    let had = queue.lease(20).await;
    let is_cheap = had.iter().filter(|leased| leased.due_at <= queue.clock.now()).count();
    assert_eq!((had.len(), is_cheap), (20, 0));
}

#[tokio::test]
async fn a_price_falls_no_further_while_what_is_worth_it_waits_for_the_clock_of_its_host() {
    let urls: Vec<_> = (0..200).map(page_of_b).collect();
    let queue = looked_at(&urls, &[]).await;
    let price = value(&queue, &urls[3]).await / 4.0;
    let queue = priced(queue, price).await;
    queue.look().change("UPDATE hosts SET delay_ms = 100000");
    let mut had = 0;
    for _ in 0..4 * 36 {
        queue.clock.advance(Duration::from_secs(100));
        for leased in queue.lease(10).await {
            had += 1;
            queue.settle(leased.token, Outcome::Changed).await;
        }
    }
    assert!((100..150).contains(&had), "{had}");
    queue.maintain().await;
    let now = queue.look().text("SELECT CAST(price AS TEXT) FROM prices").unwrap();
    assert!(now.parse::<f64>().unwrap() > 0.99 * price, "{now} {price}");
}

/// Rows of these URLs stand in one band.
fn in_one_band(queue: &Queue, urls: &[String]) {
    let these = format!("(SELECT id FROM url_view WHERE url IN ('{}'))", urls.join("', '"));
    queue.look().change_packed(
        &format!(
            "UPDATE feedback SET place = (place & ~(127 << 7)) | (48 << 7) WHERE url_id IN {these}"
        ),
        &format!("UPDATE feedback SET band = 48 WHERE url_id IN {these}"),
    );
    queue.look().change(&format!("UPDATE queue SET band = 48 WHERE url_id IN {these}"));
}

#[tokio::test]
async fn what_is_not_worth_it_and_due_sooner_hides_nothing_behind_it() {
    let old: Vec<_> = (0..100).map(page).collect();
    let young: Vec<_> = (100..300).map(page).collect();
    let urls = [&old[..], &young].concat();
    let queue = looked_at(&urls, &young).await;
    let worth = most_of(&queue, &young).await;
    assert!(value(&queue, &old[3]).await > 1.5 * worth);
    in_one_band(&queue, &urls);
    for (place, url) in young.iter().enumerate() {
        let days = u32::try_from(place / 40 + 1).unwrap();
        due_at(&queue, std::slice::from_ref(url), queue.clock.now() + days * DAY);
    }
    let queue = priced(queue, 1.3 * worth).await;
    let mut had = BTreeSet::new();
    for _ in 0..20 {
        had.extend(queue.lease(PAGES).await.into_iter().map(|leased| leased.url));
    }
    assert_eq!(had, old.into_iter().collect());
}

#[tokio::test]
async fn what_waits_for_the_clock_of_its_host_keeps_nobody_from_what_others_have() {
    let of = |host: u32| (0..20).map(move |n| format!("http://h{host}.test/{n}"));
    let urls: Vec<_> = (0..12).flat_map(of).collect();
    let queue = looked_at(&urls, &[]).await;
    let price = value(&queue, &urls[3]).await / 4.0;
    let later = (queue.clock.now() + HOUR).as_millisecond();
    queue.look().change(&format!(
        "UPDATE hosts SET paused_until = {later} WHERE authority <> 'http://h5.test'"
    ));
    let queue = priced(queue, price).await;
    let had = queue.lease(10).await;
    assert_eq!(had.len(), 10);
    assert!(had.iter().all(|leased| &*leased.host == "http://h5.test"), "{:?}", paths(&had));
}

#[tokio::test]
async fn what_waits_for_the_robots_txt_of_its_host_is_had_once_that_is_known() {
    let urls: Vec<_> = (0..100).map(page).collect();
    let queue = looked_at(&urls, &[]).await;
    let price = value(&queue, &urls[3]).await / 4.0;
    let queue = priced(queue, price).await;
    queue.reload(&site("a", "http://a.test/", "obey_robots = true")).await.unwrap();
    assert!(queue.lease(100).await.is_empty());
    let rules = RobotsRead::Rules { body: Vec::new(), status: 200, crawl_delay: None };
    let until = queue.clock.now() + DAY;
    queue.store.save_robots(queue.host("http://a.test"), rules, until).await.unwrap();
    assert_eq!(queue.lease(100).await.len(), 100);
}

#[tokio::test]
async fn what_others_have_taught_to_be_worth_too_little_since_it_was_found_is_left() {
    let urls: Vec<_> = (0..60).map(page).collect();
    let queue = looked_at(&urls, &[]).await;
    let price = 0.98 * value(&queue, &urls[3]).await;
    let queue = priced(queue, price).await;
    let one = || LeaseRequest { per_host: 1, ..ask(1) };
    let mut had = 0;
    while let Some(leased) = queue.lease_as(one()).await.urls.pop() {
        had += 1;
        let worth = value(&queue, &leased.url).await;
        assert!(worth >= price, "{had}: {worth} of {price}");
        queue.settle(leased.token, Outcome::Unchanged).await;
    }
    assert!((1..60).contains(&had), "{had}");
}

#[tokio::test]
async fn hosts_of_a_site_that_is_named_take_turns_with_what_is_not_due() {
    let of = |host: u32| (0..20).map(move |n| format!("http://h{host}.test/{n}"));
    let urls: Vec<_> = (0..3).flat_map(of).collect();
    let queue = looked_at(&urls, &[]).await;
    let price = value(&queue, &urls[3]).await / 4.0;
    let queue = priced(queue, price).await;
    let one = || LeaseRequest { sites: vec!["a".to_owned()], per_host: 1, ..ask(1) };
    let mut turns = Vec::new();
    for _ in 0..12 {
        turns.push(queue.lease_as(one()).await.urls.pop().unwrap().host);
    }
    let (first, later) = turns.split_at(3);
    assert_eq!(BTreeSet::from_iter(first).len(), 3);
    for three in later.chunks(3) {
        assert_eq!(three, first);
    }
}
