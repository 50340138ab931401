//! `order = "learned"`: what fetchers report moves due times, trust and price,
//! and outlives a restart.

use std::time::Duration;

use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{Lastmod, Outcome, Precision, Reason, UrlId};
use sitemapd::queue::{LeaseRequest, Leased, Settlement, TokenResult};
use sitemapd::recrawl::explain::Explanation;
use sitemapd::recrawl::signal::Signal;
use sitemapd::store::frontier::{Get, Progress};
use sitemapd::store::views::{SignalView, SourceFilter};
use sitemapd::store::{Effect, Origin, PastFetch};

use crate::support::engine::Look;
use crate::support::queue_daemon::{Queue, ask, entry, paths, report, site};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Before anything that the tests date.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// So many dated URLs of one host, each fetched once.
async fn with(urls: usize) -> (Queue, Vec<UrlId>) {
    let queue = Queue::simple().await;
    let entries: Vec<_> = (0..urls)
        .map(|n| entry(format!("http://a.test/{n}")).lastmod(LONG_AGO.parse().unwrap()))
        .collect();
    let rows = queue.list("a", &entries).await;
    for leased in queue.lease(1_000).await {
        queue.settle(leased.token, Outcome::Unknown).await;
    }
    (queue, rows)
}

/// The sitemap says that a URL was edited now, as a signal of that kind.
async fn signal(queue: &Queue, url: UrlId, moves: Signal) {
    let at = queue.clock.now();
    let lastmod = sitemapd::model::Lastmod { at, precision: sitemapd::model::Precision::Second };
    let effect = Effect::Changed { url, lastmod, hints: EntryHints::default() };
    let origin = sitemapd::store::Origin { moves, ..queue.origin("a") };
    queue.store.apply(origin, vec![effect]).await.unwrap();
}

/// Leases all that may be, and reports each as `outcome`; says how many.
async fn fetch(queue: &Queue, outcome: Outcome) -> usize {
    let leased = queue.lease(1_000).await;
    for leased in &leased {
        queue.settle(leased.token, outcome).await;
    }
    leased.len()
}

/// What was learned is shown from the first read on, which these tests skip.
fn show_unread(queue: &Queue) {
    let zeros = match queue.look() {
        Look::File(_) => "zeroblob(11)",
        Look::Server(_) => "decode(repeat('00', 11), 'hex')",
    };
    queue.look().change(&format!("UPDATE learned SET habits = {zeros} WHERE scope = 2"));
}

/// What is believed of one kind of signal of the host.
async fn believed(queue: &Queue, signal: Signal) -> SignalView {
    let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
    let sources = queue.store.sources(filter).await.unwrap().items;
    show_unread(queue);
    let id = sources.iter().find(|source| source.url.ends_with("sitemap-a.xml")).unwrap().id;
    let trust = queue.store.source(id).await.unwrap().0.trust.unwrap();
    trust.host.into_iter().find(|(kind, _)| *kind == signal).unwrap().1
}

fn price(queue: &Queue) -> f64 {
    let sql = "SELECT price FROM prices";
    queue.look().text(sql).map_or(0.0, |price| price.parse().unwrap())
}

#[tokio::test]
async fn a_host_whose_lastmods_are_right_keeps_its_pull() {
    let (queue, rows) = with(30).await;
    for round in 0..5 {
        queue.clock.advance(DAY);
        for row in rows.iter().skip(round).step_by(5) {
            signal(&queue, *row, Signal::Lastmod).await;
        }
        let leased = queue.lease(1_000).await;
        for row in rows.iter().skip(round).step_by(5) {
            let leased = leased.iter().find(|leased| leased.id == *row).expect("it is due");
            assert_eq!(leased.reason, Reason::Changed);
        }
        for leased in leased {
            let outcome = match leased.reason {
                Reason::Changed => Outcome::Changed,
                _ => Outcome::Unchanged,
            };
            queue.settle(leased.token, outcome).await;
        }
    }
    let lastmod = believed(&queue, Signal::Lastmod).await;
    assert!(lastmod.is_believed && lastmod.record.right > 0.8, "{lastmod:?}");
    assert!((lastmod.record.hits - lastmod.record.looks).abs() < 1e-6);
    queue.clock.advance(DAY);
    signal(&queue, rows[7], Signal::Lastmod).await;
    assert!(paths(&queue.lease(100).await).contains(&"/7"));
}

#[tokio::test]
async fn a_host_whose_lastmods_lie_floods_the_queue_no_more() {
    let (queue, rows) = with(60).await;
    // Every page is said to have changed, and was fetched for it, once.
    queue.clock.advance(2 * HOUR);
    for row in &rows {
        signal(&queue, *row, Signal::Lastmod).await;
    }
    assert_eq!(fetch(&queue, Outcome::Unchanged).await, 60);
    let lastmod = believed(&queue, Signal::Lastmod).await;
    assert!(!lastmod.is_believed, "{lastmod:?}");
    let mut fetched = 0;
    for _ in 0..10 {
        queue.clock.advance(2 * HOUR);
        for row in &rows {
            signal(&queue, *row, Signal::Lastmod).await;
        }
        fetched += fetch(&queue, Outcome::Unchanged).await;
    }
    assert_eq!(fetched, 0, "600 lies");
    assert_eq!(queue.view("http://a.test/0").await.learned.unwrap().pending["lastmod"], 10);
}

#[tokio::test]
async fn a_stamp_pulls_nothing_even_where_nobody_ever_compared() {
    let (queue, rows) = with(3).await;
    queue.clock.advance(2 * HOUR);
    signal(&queue, rows[0], Signal::Stamp).await;
    assert!(queue.lease(10).await.is_empty());
    signal(&queue, rows[1], Signal::Lastmod).await;
    assert_eq!(paths(&queue.lease(10).await), ["/1"]);
}

#[tokio::test]
async fn pages_that_change_come_sooner_than_pages_that_do_not() {
    let (queue, _) = with(4).await;
    for _ in 0..8 {
        queue.clock.advance(15 * DAY);
        for leased in queue.lease(10).await {
            let busy = leased.url.ends_with('0') || leased.url.ends_with('1');
            let outcome = if busy { Outcome::Changed } else { Outcome::Unchanged };
            queue.settle(leased.token, outcome).await;
        }
    }
    let due = async |n: usize| queue.view(&format!("http://a.test/{n}")).await.due_at.unwrap();
    assert!(due(0).await < due(2).await && due(1).await < due(3).await);
    let busy = queue.view("http://a.test/0").await;
    let learned = busy.learned.unwrap();
    assert!(learned.numbers.looks >= 5 && learned.numbers.changes == learned.numbers.looks);
    assert!(busy.why.contains(" compared)"), "{}", busy.why);
    assert!(busy.why.starts_with("due in "), "{}", busy.why);
}

#[tokio::test]
async fn what_was_learned_outlives_a_restart() {
    let (queue, rows) = with(20).await;
    queue.clock.advance(20 * DAY);
    assert_eq!(fetch(&queue, Outcome::Changed).await, 20);
    queue.clock.advance(HOUR);
    signal(&queue, rows[3], Signal::Lastmod).await;
    let before = queue.view("http://a.test/3").await;
    let (trust, paid) = (believed(&queue, Signal::Lastmod).await, price(&queue));
    let queue = queue.reopen(Duration::ZERO).await;
    let after = queue.view("http://a.test/3").await;
    assert_eq!(after.due_at, before.due_at);
    let (told, kept) = (before.learned.unwrap(), after.learned.unwrap());
    assert_eq!((kept.seen_at, kept.pending), (told.seen_at, told.pending));
    // Memory has more digits than the tables keep.
    let figures = |of: &Explanation| {
        [of.rate, of.silent_rate, of.expected_changes, of.expected_signalled, of.value, of.price]
    };
    for (told, kept) in figures(&told.numbers).into_iter().zip(figures(&kept.numbers)) {
        assert!((told / kept - 1.0).abs() < 1e-6, "{told} is not {kept}");
    }
    assert_eq!(believed(&queue, Signal::Lastmod).await, trust);
    assert!((price(&queue) - paid).abs() < 1e-9);
}

#[tokio::test]
async fn what_was_settled_a_second_before_a_crash_counts_in_the_price() {
    let (queue, _) = with(50).await;
    queue.clock.advance(20 * DAY);
    assert_eq!(fetch(&queue, Outcome::Changed).await, 50);
    // With whatever is written a second later, before anything ticks.
    queue.clock.advance(Duration::from_secs(1));
    assert!(queue.lease(1).await.is_empty());
    assert_eq!(queue.look().number("SELECT settled FROM prices"), 50);
    let queue = queue.reopen(HOUR).await;
    queue.lease(1).await;
    let pace: f64 = queue.look().text("SELECT pace FROM prices").unwrap().parse().unwrap();
    assert!(pace > 0.0, "it was counted after the restart");
}

#[tokio::test]
async fn a_fetcher_that_hashes_otherwise_teaches_nothing_by_that() {
    let (queue, _) = with(1).await;
    let hash = async |outcome: Option<Outcome>, kind: &str, hash: &str| {
        queue.clock.advance(181 * DAY);
        let leased = queue.lease_one().await;
        let mut settlement = report(leased.token, Outcome::Unknown);
        settlement.outcome = outcome;
        settlement.hash_kind = Some(kind.to_owned());
        settlement.content_hash = Some(hash.to_owned());
        queue.settle_as(settlement).await;
        let numbers = queue.view("http://a.test/0").await.learned.unwrap().numbers;
        (numbers.looks, numbers.changes)
    };
    assert_eq!(hash(None, "raw", "1").await, (0, 0), "a baseline");
    assert_eq!(hash(None, "raw", "1").await, (1, 0));
    assert_eq!(hash(None, "text", "2").await, (1, 0), "another kind");
    assert_eq!(hash(Some(Outcome::Changed), "dom", "3").await, (1, 0), "and one that says so");
    assert_eq!(hash(Some(Outcome::Changed), "dom", "4").await, (2, 1));
}

#[tokio::test]
async fn a_change_of_next_to_nothing_is_none() {
    let (queue, _) = with(1).await;
    for (significance, changes) in [(0.01, 0), (0.6, 1)] {
        queue.clock.advance(181 * DAY);
        let mut settlement = report(queue.lease_one().await.token, Outcome::Changed);
        settlement.significance = Some(significance);
        queue.settle_as(settlement).await;
        let view = queue.view("http://a.test/0").await;
        assert_eq!(view.learned.unwrap().numbers.changes, changes, "{significance}");
        assert_eq!(view.outcome, Some(Outcome::Changed), "what was reported stands");
    }
}

#[tokio::test]
async fn fetchers_that_do_not_keep_up_make_a_fetch_dearer() {
    let (queue, _) = with(400).await;
    queue.clock.advance(20 * DAY);
    let before = price(&queue);
    for _ in 0..40 {
        queue.clock.advance(DAY);
        for leased in queue.lease(2).await {
            queue.settle(leased.token, Outcome::Changed).await;
        }
    }
    let after = price(&queue);
    assert!(before > 0.0 && after > 1.5 * before, "{before} became {after}");
}

/// What a fetcher that names a site gets, all of it settled.
async fn fetch_of(queue: &Queue, site: &str, max: u32) -> usize {
    let request = LeaseRequest { sites: vec![site.to_owned()], ..ask(max) };
    let leased = queue.lease_as(request).await.urls;
    for leased in &leased {
        queue.settle(leased.token, Outcome::Changed).await;
    }
    leased.len()
}

#[tokio::test]
async fn fetchers_that_name_sites_and_do_not_keep_up_make_a_fetch_dearer() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "");
    let queue = Queue::open(&text).await;
    for (name, pages) in [("a", 1), ("b", 400)] {
        queue.list_urls(name, (0..pages).map(|n| format!("http://{name}.test/{n}"))).await;
        fetch_of(&queue, name, 400).await;
    }
    queue.clock.advance(20 * DAY);
    let before = price(&queue);
    for _ in 0..40 {
        queue.clock.advance(DAY);
        assert_eq!(fetch_of(&queue, "b", 2).await, 2);
        // Somebody else has next to nothing to do all the time.
        fetch_of(&queue, "a", 100).await;
    }
    let after = price(&queue);
    assert!(before > 0.0 && after > 1.5 * before, "{before} became {after}");
}

#[tokio::test]
async fn fetchers_that_name_sites_and_get_all_of_them_make_a_fetch_cheaper() {
    for paused in [false, true] {
        let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "");
        let queue = Queue::open(&text).await;
        for (name, pages) in [("a", 20), ("b", 400)] {
            queue.list_urls(name, (0..pages).map(|n| format!("http://{name}.test/{n}"))).await;
            fetch_of(&queue, name, 400).await;
        }
        if paused {
            // What nobody may have is nobody's work.
            queue.store.pause_site("b".to_owned(), true).await.unwrap();
        }
        let before = price(&queue);
        for _ in 0..8 {
            queue.clock.advance(DAY);
            for name in ["a", "b"] {
                fetch_of(&queue, name, 1_000).await;
            }
        }
        let after = price(&queue);
        assert!(before > 0.0 && after < 0.3 * before, "{before} became {after}, {paused}");
    }
}

#[tokio::test]
async fn a_site_that_claims_the_top_for_all_gains_nothing() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "");
    let queue = Queue::open(&text).await;
    for (name, priority) in [("a", 1.0), ("b", 0.5)] {
        let url = |n| entry(format!("http://{name}.test/{n}")).priority(priority);
        queue.list(name, &(0..5).map(url).collect::<Vec<_>>()).await;
    }
    for _ in 0..8 {
        fetch(&queue, Outcome::Changed).await;
        queue.clock.advance(15 * DAY);
    }
    let learned = async |url: &str| queue.view(url).await.learned.unwrap().numbers;
    let (vain, modest) = (learned("http://a.test/1").await, learned("http://b.test/1").await);
    assert!((vain.site_priority - 1.0).abs() < 1e-9 && (modest.site_priority - 0.5).abs() < 1e-9);
    assert!((vain.value / modest.value - 1.0).abs() < 0.05, "{vain:?} {modest:?}");
}

#[tokio::test]
async fn the_protocols_order_learns_nothing() {
    let text = "[queue]\norder = \"protocol\"\n".to_owned() + &site("a", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    queue.list_urls("a", ["http://a.test/0".to_owned()]).await;
    for _ in 0..8 {
        queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
        let view = queue.view("http://a.test/0").await;
        assert_eq!(view.due_at.unwrap(), queue.clock.now() + 14 * DAY);
        assert!(view.learned.is_none());
        queue.clock.advance(14 * DAY);
    }
}

/// Pages of one host that have come due while the price rose by a fifth.
async fn below_the_price(budget: &str, pages: u32) -> Queue {
    let text = format!("[recrawl]\nbudget = \"{budget}\"\n{}", site("a", "http://a.test/", ""));
    let queue = Queue::open(&text).await;
    queue.list_urls("a", (0..pages).map(|n| format!("http://a.test/{n}"))).await;
    let look_at_all = async || {
        for leased in queue.lease(pages).await {
            queue.settle(leased.token, Outcome::Changed).await;
        }
    };
    for _ in 0..8 {
        look_at_all().await;
        queue.clock.advance(181 * DAY);
    }
    look_at_all().await;
    let due = queue.look().number("SELECT max(due_s) FROM queue");
    let wait = u64::try_from(due - queue.clock.now().as_second()).unwrap();
    let queue = queue.reopen(Duration::from_secs(wait + 1)).await;
    let soon = queue.clock.now().as_millisecond();
    let raised = format!(
        "UPDATE prices SET price = price * 1.2, ticked_at = {soon}, leased = 0, leased_overdue = 0"
    );
    queue.look().change(&raised);
    queue
}

#[tokio::test]
async fn what_is_worth_less_than_the_price_is_leased_only_with_budget_to_spare() {
    assert_eq!(below_the_price("auto", 1).await.lease(1).await.len(), 1);
    let queue = below_the_price("1440/day", 3).await;
    assert!(queue.lease(3).await.is_empty());
    // Nobody was given any of what a minute has brought.
    queue.clock.advance(Duration::from_secs(61));
    assert_eq!(queue.lease(3).await.len(), 1);
    assert!(queue.lease(3).await.is_empty());
    queue.clock.advance(Duration::from_secs(120));
    assert_eq!(queue.lease(3).await.len(), 2);
}

/// So many URLs of one host that are due, `looks` of them unchanged at their second fetch,
/// when a fetch has become a hundred times as dear.
async fn unchanged_and_dear(urls: usize, looks: usize) -> Queue {
    let (queue, _) = with(urls).await;
    queue.clock.advance(14 * DAY);
    for leased in queue.lease(u32::try_from(looks).unwrap()).await {
        queue.settle(leased.token, Outcome::Unchanged).await;
    }
    let queue = queue.reopen(HOUR).await;
    let now = queue.clock.now().as_millisecond();
    let dear = format!("UPDATE prices SET price = 100 * price, ticked_at = {now}");
    queue.look().change(&dear);
    queue
}

#[tokio::test]
async fn a_host_is_not_taken_for_worthless_before_it_was_looked_at_often() {
    let queue = unchanged_and_dear(300, 3).await;
    assert_eq!(queue.lease(1_000).await.len(), 297, "all the others are to spare");
    let queue = unchanged_and_dear(300, 40).await;
    assert_eq!(queue.lease(1_000).await.len(), 64, "of one that is known some stay in line");
    assert_eq!(queue.lease(1_000).await.len(), 0, "the others come due when they are worth it");
}

#[tokio::test]
async fn who_gets_nothing_is_told_when_the_budget_leaves_something() {
    let queue = below_the_price("1440/day", 1).await;
    let batch = queue.lease_as(ask(1)).await;
    assert!(batch.urls.is_empty());
    let wait = batch.next_due_at.unwrap().duration_since(queue.clock.now());
    assert!((59..=61).contains(&wait.as_secs()), "{wait:?}");
}

#[tokio::test]
async fn what_nobody_gets_for_less_than_the_price_is_not_said_to_be_due() {
    let queue = below_the_price("1000/day", 3).await;
    assert!(queue.lease(1).await.is_empty());
    let (view, counts) = (queue.view("http://a.test/0").await, queue.counts().await);
    let due = view.due_at.unwrap();
    assert!(due > queue.clock.now() && view.why.starts_with("due in "), "{}", view.why);
    assert_eq!((counts.due, counts.oldest_due_at), (0, None));
    let next = counts.next_due_at.unwrap();
    assert!(next > queue.clock.now() && next <= due, "{next}");
    // When it is said to be due it is, and is counted so.
    let wait = Duration::try_from(due - queue.clock.now()).unwrap();
    let queue = queue.reopen(wait + HOUR).await;
    let counts = queue.counts().await;
    assert!(counts.due >= 1 && counts.oldest_due_at.is_some(), "{counts:?}");
    let leased = queue.lease(3).await;
    assert!(leased.len() as u64 >= counts.due, "{} of {counts:?}", leased.len());
    assert!(leased.iter().any(|leased| leased.url == "http://a.test/0"));
}

#[tokio::test]
async fn a_client_that_may_have_no_more_of_a_host_leaves_it_to_others() {
    let queue = below_the_price("auto", 2).await;
    let get =
        Get { crawl: None, key: None, per_queue: 1, max_queues: 0, ttl: Duration::from_secs(300) };
    let served =
        async || queue.store.frontier_get(get.clone(), Progress::default()).await.unwrap().0;
    assert_eq!(served().await.len(), 1);
    assert!(served().await.is_empty(), "one is in process");
    queue.clock.advance(Duration::from_secs(1));
    assert_eq!(queue.lease(10).await.len(), 1);
}

#[tokio::test]
async fn a_fetch_from_before_an_edit_says_nothing_of_what_announced_it() {
    let (queue, rows) = with(1).await;
    queue.clock.advance(20 * DAY);
    let edited = Lastmod { at: queue.clock.now() - 6 * DAY, precision: Precision::Second };
    let hints = EntryHints::default();
    queue.apply(Effect::Changed { url: rows[0], lastmod: edited, hints }).await;
    let import = async |days: u32, changed: bool| {
        let fetch = PastFetch {
            url: "http://a.test/0".parse().unwrap(),
            at: queue.clock.now() - days * DAY,
            changed: Some(changed),
            content_hash: None,
            hash_kind: None,
        };
        let imported = queue.store.import("default".to_owned(), vec![fetch]).await.unwrap();
        assert_eq!(imported.taken, 1);
        queue.view("http://a.test/0").await.learned.unwrap()
    };
    let learned = import(10, false).await;
    assert_eq!((learned.pending["lastmod"], learned.numbers.lastmod_looks), (1, 0.0));
    let learned = import(5, true).await;
    assert!(learned.pending.is_empty());
    assert!((0.5..1.5).contains(&learned.numbers.lastmod_hits));
}

#[tokio::test]
async fn one_edit_that_two_sources_show_touches_a_page_once() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    let url = queue.list_urls("a", ["http://a.test/0".to_owned()]).await[0];
    queue.list_urls("b", ["http://a.test/0".to_owned()]).await;
    queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
    let touch = || Effect::Touched { url, lastmod: None, hints: EntryHints::default() };
    let mut reads = 1..;
    let mut touched = async |site: &str| {
        let origin = Origin { generation: reads.next().unwrap(), ..queue.origin(site) };
        queue.store.apply(origin, vec![touch()]).await.unwrap();
        queue.view("http://a.test/0").await.learned.unwrap().pending.get("touched").copied()
    };
    assert_eq!(touched("a").await, Some(1));
    assert_eq!(touched("b").await, Some(1));
    assert_eq!(touched("a").await, Some(2), "it speaks for itself");
    // After a look, a date of this hour tells of it, one of yesterday does not.
    for (age, counted) in [(HOUR, None), (DAY, Some(1))] {
        queue.clock.advance(181 * DAY);
        queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
        let lastmod = Lastmod { at: queue.clock.now() - age, precision: Precision::Second };
        let listed = Effect::Hints { url, lastmod: Some(lastmod), hints: EntryHints::default() };
        queue.apply(listed).await;
        assert_eq!(touched("b").await, counted);
    }
}

#[tokio::test]
async fn times_finer_than_what_is_kept_are_not_taken_in_twice() {
    let queue = Queue::simple().await;
    let url = "http://a.test/1".to_owned();
    queue.list_urls("a", [url.clone()]).await;
    let fetch = |at: &str| PastFetch {
        url: url.parse().unwrap(),
        at: at.parse().unwrap(),
        changed: Some(true),
        content_hash: None,
        hash_kind: None,
    };
    let log = ["2026-11-01T08:00:00.123456Z", "2026-11-02T08:00:00.123456Z"].map(fetch).to_vec();
    let import = async || queue.store.import("default".to_owned(), log.clone()).await.unwrap();
    assert_eq!(import().await.taken, 2);
    let known = queue.view(&url).await;
    assert_eq!(known.fetches, 2);
    let again = import().await;
    assert_eq!((again.taken, again.ignored), (0, 2));
    assert_eq!(format!("{:?}", queue.view(&url).await), format!("{known:?}"));
}

/// Surfaced pages of one host, all in one band, at 0.8 of the price; `/best`, behind
/// them all, is worth more than it.
async fn with_one_that_is_worth_it(budget: &str, pages: usize) -> Queue {
    let site = site("a", "http://a.test/", "");
    let queue = Queue::open(&format!("[recrawl]\nbudget = \"{budget}\"\n{site}")).await;
    let mut entries: Vec<_> = (0..pages).map(|n| entry(format!("http://a.test/{n}"))).collect();
    entries.push(entry("http://a.test/best").priority(1.0));
    queue.list("a", &entries).await;
    for _ in 0..3 {
        while fetch(&queue, Outcome::Changed).await > 0 {}
        queue.clock.advance(200 * DAY);
    }
    while fetch(&queue, Outcome::Changed).await > 0 {}
    queue.clock.advance(3 * DAY);
    queue.surfaced_at(0.8).await
}

#[tokio::test]
async fn what_is_not_worth_the_price_is_in_the_way_of_nothing_behind_it() {
    for pages in [10, 1_100, 3_000] {
        let queue = with_one_that_is_worth_it("1000000/day", pages).await;
        assert_eq!(paths(&queue.lease(10).await), ["/best"], "behind {pages}");
        assert!(queue.lease(10).await.is_empty());
        // One that comes to be worth it is had at once.
        let asked = vec!["http://a.test/1".to_owned()];
        queue.store.requeue("default".to_owned(), asked).await.unwrap();
        assert_eq!(paths(&queue.lease(10).await), ["/1"]);
    }
}

#[tokio::test]
async fn what_is_to_spare_comes_after_all_that_is_worth_the_price_and_then_all_of_it() {
    for pages in [10, 1_100, 3_000] {
        let queue = with_one_that_is_worth_it("auto", pages).await;
        assert_eq!(paths(&queue.lease(1).await), ["/best"], "behind {pages}");
        let mut spare = 0;
        loop {
            let leased = queue.lease(500).await.len();
            if leased == 0 {
                break;
            }
            spare += leased;
        }
        assert_eq!(spare, pages);
    }
}

#[tokio::test]
async fn a_batch_of_new_urls_does_not_drown_the_refreshing_of_its_host() {
    let (queue, _) = with(300).await;
    for _ in 0..3 {
        queue.clock.advance(181 * DAY);
        assert_eq!(fetch(&queue, Outcome::Unchanged).await, 300);
    }
    queue.clock.advance(181 * DAY);
    // Each band from 50 to 80 is crowded, and most of what is refreshed below it.
    let new = (0..3_000).map(|n| {
        let priority = f64::from(n % 7) / 10.0;
        entry(format!("http://a.test/new/{n}")).priority(priority)
    });
    queue.list("a", &new.collect::<Vec<_>>()).await;
    let leased = queue.lease(600).await;
    let refreshed = leased.iter().filter(|leased| leased.reason == Reason::Recrawl).count();
    assert!((250..=300).contains(&refreshed), "{refreshed} of {}", leased.len());
    // By then none is left.
    let leased = queue.lease(600).await;
    let refreshed = leased.iter().filter(|leased| leased.reason == Reason::Recrawl).count();
    assert!(leased.len() == 600 && refreshed <= 50, "{refreshed} of {}", leased.len());
}

#[tokio::test]
async fn refreshing_beside_new_urls_goes_on_when_what_was_read_of_it_is_used_up() {
    let (queue, _) = with(900).await;
    for _ in 0..2 {
        queue.clock.advance(181 * DAY);
        assert_eq!(fetch(&queue, Outcome::Unchanged).await, 900);
    }
    queue.clock.advance(181 * DAY);
    queue.list_urls("a", (0..3_000).map(|n| format!("http://a.test/new/{n}"))).await;
    let mut refreshed = 0;
    for _ in 0..17 {
        let leased = queue.lease(100).await;
        assert_eq!(leased.len(), 100);
        refreshed += leased.iter().filter(|leased| leased.reason == Reason::Recrawl).count();
    }
    assert!((750..=900).contains(&refreshed), "{refreshed} of 1,700");
}

#[tokio::test]
async fn a_time_in_the_protocols_order_is_no_look_of_that_length() {
    let text = |order: &str| {
        let site = site("a", "http://a.test/", "");
        format!("[queue]\norder = \"{order}\"\n[recrawl]\nmax = \"1d\"\n{site}")
    };
    let queue = Queue::open(&text("learned")).await;
    let url = queue.list_urls("a", ["http://a.test/0".to_owned()]).await[0];
    let daily = async |days: u32| {
        for _ in 0..days {
            queue.settle(queue.lease_one().await.token, Outcome::Changed).await;
            queue.clock.advance(DAY);
        }
    };
    let learned = async || queue.view("http://a.test/0").await.learned.unwrap();
    daily(10).await;
    signal(&queue, url, Signal::Lastmod).await;
    let before = learned().await;
    queue.reload(&text("protocol")).await.unwrap();
    daily(90).await;
    queue.reload(&text("learned")).await.unwrap();
    let after = learned().await;
    assert_eq!((after.seen_at, after.pending.len()), (queue.clock.now() - DAY, 0));
    assert_eq!(after.numbers.looks, before.numbers.looks);
    queue.settle(queue.lease_one().await.token, Outcome::Unchanged).await;
    let (was, is) = (before.numbers.silent_rate, learned().await.numbers.silent_rate);
    assert!(is > 0.5 * was && is < 2.0 * was, "{was} became {is}");
}

/// Pages that two sitemaps list. What the first says of `/0` to `/9` is true, what the
/// second says of the others is not, and looks have found so for so many rounds.
async fn beside_one_that_lies(rounds: usize) -> (Queue, Vec<UrlId>) {
    let text = ["a", "b", "c"].map(|name| site(name, "http://a.test/", "")).concat();
    let queue = Queue::open(&text).await;
    let listed: Vec<_> = (0..20)
        .map(|n| entry(format!("http://a.test/{n}")).lastmod(LONG_AGO.parse().unwrap()))
        .collect();
    let rows = queue.list("a", &listed).await;
    queue.list("b", &listed).await;
    fetch(&queue, Outcome::Unknown).await;
    for _ in 0..rounds {
        for (site, rows) in [("a", &rows[..10]), ("b", &rows[10..])] {
            queue.clock.advance(DAY);
            for row in rows {
                signal_of(&queue, site, *row).await;
            }
            for leased in queue.lease(1_000).await {
                let is_true = rows_before(10, &leased.url);
                let outcome = if is_true { Outcome::Changed } else { Outcome::Unchanged };
                queue.settle(leased.token, outcome).await;
            }
        }
    }
    (queue.reopen(Duration::ZERO).await, rows)
}

fn rows_before(end: usize, url: &str) -> bool {
    url.rsplit('/').next().unwrap().parse::<usize>().unwrap() < end
}

/// The sitemap of a site says that a URL was edited now.
async fn signal_of(queue: &Queue, site: &str, url: UrlId) {
    let lastmod = Lastmod { at: queue.clock.now(), precision: Precision::Second };
    let effect = Effect::Changed { url, lastmod, hints: EntryHints::default() };
    queue.store.apply(queue.origin(site), vec![effect]).await.unwrap();
}

/// What is believed of the lastmods of the sitemap of a site, if anything was learned.
async fn believed_of(queue: &Queue, site: &str) -> Option<SignalView> {
    show_unread(queue);
    let source = queue.origin(site).source;
    let trust = queue.store.source(source).await.unwrap().0.trust?;
    trust.signals.into_iter().find(|(kind, _)| *kind == Signal::Lastmod).map(|(_, view)| view)
}

/// A fetcher has `/0`, and nothing else.
async fn lease_first(queue: &Queue) -> Leased {
    let mut first = None;
    for leased in queue.lease(1_000).await {
        if rows_before(1, &leased.url) {
            first = Some(leased);
        } else {
            queue.release(leased.token, Duration::ZERO).await;
        }
    }
    first.expect("it is due")
}

/// A fetcher looks at `/0`, and at nothing else.
async fn look_at_first(queue: &Queue, outcome: Outcome) {
    let first = lease_first(queue).await;
    queue.settle(first.token, outcome).await;
}

#[tokio::test]
async fn a_source_is_judged_by_its_own_signals_and_not_by_those_of_the_first_one() {
    let (queue, rows) = beside_one_that_lies(10).await;
    let honest = believed_of(&queue, "a").await.unwrap();
    let liar = believed_of(&queue, "b").await.unwrap();
    assert!(honest.is_believed && honest.record.right > 0.8, "{honest:?}");
    assert!((honest.record.hits - honest.record.looks).abs() < 1e-6, "{honest:?}");
    assert!(liar.record.looks > 5.0 && liar.record.hits < 1e-6, "{liar:?}");
    assert!(!liar.is_believed, "{liar:?}");
    // So it is of a page of which only the other one has spoken so far.
    queue.clock.advance(HOUR);
    let due = async || queue.view("http://a.test/0").await.due_at.unwrap();
    let before = due().await;
    assert!(before > queue.clock.now());
    signal_of(&queue, "b", rows[0]).await;
    assert_eq!(due().await, before);
    queue.clock.advance(Duration::from_secs(60));
    signal_of(&queue, "a", rows[0]).await;
    assert!(due().await <= queue.clock.now());
}

#[tokio::test]
async fn signals_of_two_sources_are_those_of_the_one_that_is_believed_more() {
    let (queue, rows) = beside_one_that_lies(10).await;
    let (honest, liar) = (believed_of(&queue, "a").await, believed_of(&queue, "b").await);
    for order in [["a", "b", "b"], ["b", "b", "a"]] {
        queue.clock.advance(2 * HOUR);
        for site in order {
            queue.clock.advance(Duration::from_secs(60));
            signal_of(&queue, site, rows[0]).await;
        }
        let pending = async || queue.view("http://a.test/0").await.learned.unwrap().pending;
        assert_eq!(pending().await["lastmod"], 1, "{order:?}");
        look_at_first(&queue, Outcome::Changed).await;
        assert!(pending().await.is_empty());
    }
    let queue = queue.reopen(Duration::ZERO).await;
    let again = believed_of(&queue, "b").await.unwrap().record.looks;
    assert!((again - liar.unwrap().record.looks).abs() < 1e-9);
    let looks = believed_of(&queue, "a").await.unwrap().record.looks;
    assert!(looks > honest.unwrap().record.looks);
}

#[tokio::test]
async fn whose_signal_it_was_outlives_a_restart() {
    let (queue, rows) = beside_one_that_lies(0).await;
    queue.clock.advance(DAY);
    signal_of(&queue, "b", rows[0]).await;
    let queue = queue.reopen(Duration::ZERO).await;
    look_at_first(&queue, Outcome::Unchanged).await;
    let queue = queue.reopen(Duration::ZERO).await;
    assert_eq!(believed_of(&queue, "a").await, None);
    let own = believed_of(&queue, "b").await.unwrap().record;
    assert!((own.looks - 1.0).abs() < 1e-6 && own.hits < 1e-6, "{own:?}");
}

#[tokio::test]
async fn what_another_source_says_during_a_lease_is_looked_at_after_it() {
    let (queue, rows) = beside_one_that_lies(0).await;
    queue.clock.advance(DAY);
    signal_of(&queue, "a", rows[0]).await;
    let first = lease_first(&queue).await;
    queue.clock.advance(Duration::from_secs(60));
    // It is believed no more than the one that had the page fetched.
    signal_of(&queue, "b", rows[0]).await;
    assert_eq!(queue.settle(first.token, Outcome::Changed).await, TokenResult::Ok);
    queue.clock.advance(HOUR);
    let again = lease_first(&queue).await;
    assert_eq!(again.reason, Reason::Changed);
    queue.settle(again.token, Outcome::Unchanged).await;
    // The one was right; of the other nobody knows.
    let queue = queue.reopen(Duration::ZERO).await;
    let record = believed_of(&queue, "a").await.unwrap().record;
    assert!((record.hits - 1.0).abs() < 1e-6 && (record.looks - 1.0).abs() < 1e-6, "{record:?}");
    assert_eq!(believed_of(&queue, "b").await, None);
}

/// A look at `/0` that has begun after a signal of the one that nobody believes; then the
/// other speaks, which is believed and has nothing to do with that look.
async fn begun_for_the_liar(queue: &Queue, url: UrlId) -> Leased {
    queue.clock.advance(DAY);
    signal_of(queue, "b", url).await;
    queue.store.requeue("default".to_owned(), vec!["http://a.test/0".to_owned()]).await.unwrap();
    let first = lease_first(queue).await;
    queue.clock.advance(Duration::from_secs(60));
    signal_of(queue, "a", url).await;
    first
}

#[tokio::test]
async fn a_look_that_has_begun_is_told_what_it_was_begun_for_whoever_else_speaks() {
    let (queue, rows) = beside_one_that_lies(10).await;
    let looks = async |queue: &Queue| {
        let (honest, liar) = (believed_of(queue, "a").await, believed_of(queue, "b").await);
        (honest.unwrap().record, liar.unwrap().record)
    };
    let before = looks(&queue).await;
    let first = begun_for_the_liar(&queue, rows[0]).await;
    queue.settle(first.token, Outcome::Unchanged).await;
    queue.clock.advance(HOUR);
    let again = lease_first(&queue).await;
    assert_eq!(again.reason, Reason::Changed);
    queue.settle(again.token, Outcome::Unchanged).await;
    let after = looks(&queue.reopen(Duration::ZERO).await).await;
    assert!(after.0.hits >= before.0.hits && after.0.looks <= before.0.looks, "{after:?}");
    assert!(after.1.looks > before.1.looks, "{before:?} {after:?}");
}

#[tokio::test]
async fn what_another_source_says_during_a_look_is_owed_one_after_what_the_fetcher_put_off() {
    let (queue, rows) = beside_one_that_lies(10).await;
    let first = begun_for_the_liar(&queue, rows[0]).await;
    let not_before = Some(queue.clock.now() + 6 * HOUR);
    queue.settle_as(Settlement { not_before, ..report(first.token, Outcome::Unchanged) }).await;
    assert!(queue.view("http://a.test/0").await.due_at >= not_before);
    // By then a look has become dear.
    let queue = queue.reopen(7 * HOUR).await;
    let soon = queue.clock.now().as_millisecond();
    queue.look().change(&format!("UPDATE prices SET price = price * 1000, ticked_at = {soon}"));
    let queue = queue.reopen(Duration::ZERO).await;
    assert_eq!(lease_first(&queue).await.reason, Reason::Changed);
}

#[tokio::test]
async fn of_two_sources_that_speak_during_a_look_the_next_is_for_the_one_believed_more() {
    let (queue, rows) = beside_one_that_lies(10).await;
    queue.list("c", &[entry("http://a.test/0").lastmod(LONG_AGO.parse().unwrap())]).await;
    let before = believed_of(&queue, "a").await.unwrap().record;
    queue.clock.advance(DAY);
    queue.store.requeue("default".to_owned(), vec!["http://a.test/0".to_owned()]).await.unwrap();
    let first = lease_first(&queue).await;
    // Nobody knows the one yet, so it is believed as its host is.
    for source in ["c", "a"] {
        queue.clock.advance(Duration::from_secs(60));
        signal_of(&queue, source, rows[0]).await;
    }
    queue.settle(first.token, Outcome::Unchanged).await;
    queue.clock.advance(HOUR);
    look_at_first(&queue, Outcome::Changed).await;
    let queue = queue.reopen(Duration::ZERO).await;
    let after = believed_of(&queue, "a").await.unwrap().record;
    assert!(after.looks > before.looks && after.hits > before.hits, "{before:?} {after:?}");
    let other = believed_of(&queue, "c").await;
    assert!(other.is_none_or(|other| other.record.looks < 1e-6), "{other:?}");
}

#[tokio::test]
async fn what_another_source_says_of_a_page_that_was_given_up_has_it_tried_once_more() {
    let text = "[queue]\nmax_attempts = 1\n".to_owned()
        + &site("a", "http://a.test/", "")
        + &site("b", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    let listed = [entry("http://a.test/0").lastmod(LONG_AGO.parse().unwrap())];
    let rows = queue.list("a", &listed).await;
    queue.list("b", &listed).await;
    look_at_first(&queue, Outcome::Unchanged).await;
    queue.clock.advance(DAY);
    signal_of(&queue, "a", rows[0]).await;
    look_at_first(&queue, Outcome::Failed).await;
    assert_eq!(queue.counts().await.dead, 1);
    queue.clock.advance(DAY);
    signal_of(&queue, "b", rows[0]).await;
    assert_eq!((queue.counts().await.dead, queue.counts().await.due), (0, 1));
}
