//! Sources that go leave nothing behind that others could be taken for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use sitemapd::config::Config;
use sitemapd::diff::dates::Dates;
use sitemapd::fetch::Validators;
use sitemapd::model::{DocumentKind, Outcome, Role, SourceId};
use sitemapd::queue::LeaseRequest;
use sitemapd::store::frontier::{FrontierStats, Known, Put};
use sitemapd::store::hubs::Named;
use sitemapd::store::views::{Counts, SourceFilter, UrlState};
use sitemapd::store::{
    Effect, Kept, NewSource, NextPollAt, PlaceInLine, PollEnd, ReadResult, StoreError,
};
use url::Url;

use crate::support::incompressible;
use crate::support::queue_daemon::{Queue, ask, paths, site};

const DAY: Duration = Duration::from_secs(86_400);

/// The same home for each of these sites.
fn sites<const N: usize>(names: [&str; N]) -> [String; N] {
    names.map(|name| site(name, "http://a.test/", ""))
}

#[tokio::test]
async fn a_new_source_is_not_taken_for_one_that_is_gone() {
    let [a, b, c] = ["a", "b", "c"].map(|name| site(name, &format!("http://{name}.test/"), ""));
    // Sites come in the order of their names: that of b has the highest numbers.
    let queue = Queue::open(&(a.clone() + &b)).await;
    let shared = "http://a.test/1";
    let url = queue.list_urls("a", [shared.to_owned()]).await[0];
    queue.list_urls("b", [shared.to_owned()]).await;
    queue.reload(&a).await.unwrap();
    queue.store.forget_site("b".to_owned()).await.unwrap();
    queue.reload(&(a + &c)).await.unwrap();
    queue.apply(Effect::Drop { url }).await;
    assert!(!queue.view(shared).await.listed, "c never listed it");
}

#[tokio::test]
async fn what_a_home_page_tells_of_a_site_that_is_gone_meanwhile_is_no_failure_of_the_store() {
    let [a, b] = ["a", "b"].map(|name| site(name, &format!("http://{name}.test/"), ""));
    let queue = Queue::open(&(a + &b)).await;
    let gone = queue.origin("a").site;
    queue.reload(&b).await.unwrap();
    queue.store.forget_site("a".to_owned()).await.unwrap();
    let twin = Url::parse("https://www.a.test/").unwrap();
    let learned = queue.store.learn_origin(gone, twin.clone()).await;
    assert!(matches!(learned, Err(StoreError::Gone(_))), "{learned:?}");
    let feed = NewSource {
        url: twin.join("feed").unwrap(),
        role: Role::Feed,
        named_by: "home page",
        parent: None,
        lastmod: None,
        place: PlaceInLine::NOW,
    };
    let registered = queue.store.register(gone, vec![feed]).await;
    assert!(matches!(registered, Err(StoreError::Gone(_))), "{registered:?}");
}

#[tokio::test]
async fn what_no_source_lists_any_more_names_none() {
    let queue = Queue::simple().await;
    let [kept, dropped] = ["http://a.test/1", "http://a.test/2"];
    let urls = queue.list_urls("a", [kept.to_owned(), dropped.to_owned()]).await;
    queue.apply(Effect::Drop { url: urls[1] }).await;
    for (url, sources) in [(kept, 1), (dropped, 0)] {
        let view = queue.view(url).await;
        assert_eq!((view.listed, view.sources.len()), (sources > 0, sources));
    }
}

#[tokio::test]
async fn a_poll_that_is_skipped_for_good_retires_its_source() {
    let queue = Queue::open(&site("a", "http://a.test/", "")).await;
    let source = queue.origin("a").source;
    for (at, state) in [(Some(queue.clock.now()), "active"), (None, "retired")] {
        let next = NextPollAt {
            at,
            interval_ms: 0,
            rhythm: None,
            rule: "a rule".to_owned(),
            why: "a reason".to_owned(),
        };
        queue.store.skip_poll(source, next).await.unwrap();
        let (view, _) = queue.store.source(source).await.unwrap();
        assert_eq!((view.state.as_str(), view.next_poll_at), (state, at));
        assert!(view.why.ends_with("a reason"), "{}", view.why);
    }
}

#[tokio::test]
async fn who_asks_for_a_source_has_it_polled_though_a_poll_of_it_is_being_skipped() {
    let queue = Queue::open(&site("a", "http://a.test/", "")).await;
    let source = queue.origin("a").source;
    let later = queue.clock.now() + Duration::from_secs(3_600);
    let next = |why: &str| NextPollAt {
        at: Some(later),
        interval_ms: 0,
        rhythm: None,
        rule: "a rule".to_owned(),
        why: why.to_owned(),
    };
    queue.store.skip_poll(source, next("nothing new")).await.unwrap();
    queue.store.poll_source(source).await.unwrap();
    queue.store.skip_poll(source, next("nothing new")).await.unwrap();
    let (view, _) = queue.store.source(source).await.unwrap();
    assert_eq!(view.next_poll_at, Some(queue.clock.now()));
    assert_eq!(view.why, "someone asked for it");
}

#[tokio::test]
async fn who_names_a_sitemap_whose_url_is_too_long_is_told() {
    let queue = Queue::simple().await;
    let url: Url = format!("http://a.test/{}", incompressible(3_000)).parse().unwrap();
    let told = queue.store.submit_source("a".to_owned(), url.clone()).await.unwrap_err();
    assert!(told.to_string().contains("2,048 bytes"), "{told}");
    let told = queue.store.hear(url).await.unwrap_err();
    assert!(told.to_string().contains("2,048 bytes"), "{told}");
    assert_eq!(queue.look().number("SELECT count(*) FROM submissions"), 0);
}

#[tokio::test]
async fn what_another_site_lists_is_its_own_once_the_first_has_left_the_config() {
    let [a, b] = sites(["a", "b"]);
    let queue = Queue::open(&(a + &b)).await;
    let shared = "http://a.test/1";
    let url = queue.list_urls("a", [shared.to_owned(), "http://a.test/2".to_owned()]).await[0];
    queue.list_urls("b", [shared.to_owned()]).await;
    queue.reload(&b).await.unwrap();
    queue.maintain().await;
    let leased = queue.lease(10).await;
    assert_eq!(paths(&leased), ["/1"], "nobody lists the other one");
    assert_eq!(leased[0].site.as_deref(), Some("b"));
    queue.settle(leased[0].token, Outcome::Unchanged).await;
    queue.store.apply(queue.origin("b"), vec![Effect::Drop { url }]).await.unwrap();
    assert!(!queue.view(shared).await.listed);
}

#[tokio::test]
async fn a_url_is_the_site_s_whose_source_comes_first() {
    for is_shared in [true, false] {
        let [a, b] = sites(["a", "b"]);
        let queue = Queue::open(&(a + &b)).await;
        let shared = "http://a.test/1";
        let url = queue.list_urls("a", [shared.to_owned()]).await[0];
        if is_shared {
            queue.list_urls("b", [shared.to_owned()]).await;
        }
        queue.apply(Effect::Drop { url }).await;
        queue.list_urls("b", [shared.to_owned()]).await;
        let look = queue.look();
        let sites = look.rows("SELECT urls FROM sites ORDER BY name");
        assert_eq!(sites, [[Some("0".to_owned())], [Some("1".to_owned())]], "{is_shared}");
        queue.reload(&b).await.unwrap();
        queue.maintain().await;
        let leased = queue.lease(10).await;
        assert_eq!(leased[0].site.as_deref(), Some("b"), "{is_shared}");
        queue.store.forget_site("a".to_owned()).await.unwrap();
        queue.maintain().await;
        assert!(queue.view(shared).await.listed, "{is_shared}");
    }
}

#[tokio::test]
async fn a_site_that_returns_shares_again_what_it_lists() {
    let [a, b] = sites(["a", "b"]);
    let both = a + &b;
    let queue = Queue::open(&both).await;
    let shared = "http://a.test/1";
    let url = queue.list_urls("a", [shared.to_owned()]).await[0];
    queue.list_urls("b", [shared.to_owned()]).await;
    queue.reload(&b).await.unwrap();
    queue.maintain().await;
    queue.reload(&both).await.unwrap();
    let drop = || vec![Effect::Drop { url }];
    queue.store.apply(queue.origin("b"), drop()).await.unwrap();
    assert!(queue.view(shared).await.listed, "the other one lists it still");
    queue.apply(Effect::Drop { url }).await;
    assert!(!queue.view(shared).await.listed);
}

#[tokio::test]
async fn a_site_that_was_renamed_goes_on_with_what_it_lists() {
    let [old, new] = sites(["a", "b"]);
    let queue = Queue::open(&(old + &new)).await;
    let pages: Vec<_> = (0..5).map(|n| format!("http://a.test/{n}")).collect();
    let rows = queue.list_urls("a", pages.clone()).await;
    let held = queue.lease(2).await;
    queue.reload(&new).await.unwrap();
    queue.list_urls("b", pages).await;
    let leased = queue.lease(10).await;
    assert_eq!(leased.len(), 3);
    assert!(leased.iter().all(|leased| leased.site.as_deref() == Some("b")));
    for leased in held.iter().chain(&leased) {
        queue.settle(leased.token, Outcome::Unchanged).await;
    }
    queue.clock.advance(200 * DAY);
    assert_eq!(queue.lease(10).await.len(), 5);
    let drops = rows.iter().map(|url| Effect::Drop { url: *url }).collect();
    queue.store.apply(queue.origin("b"), drops).await.unwrap();
    assert!(!queue.view("http://a.test/0").await.listed);
}

#[tokio::test]
async fn a_site_that_is_forgotten_leaves_nothing_of_what_it_listed_besides_others() {
    let [a, b] = sites(["a", "b"]);
    let queue = Queue::open(&(a + &b)).await;
    let pages = |from: usize| (from..from + 1_500).map(|n| format!("http://a.test/{n}"));
    // Two in three are of both; of these one half comes first in one, half in the other.
    queue.list_urls("a", pages(0)).await;
    queue.list_urls("b", pages(500).chain(pages(1_500))).await;
    queue.list_urls("a", pages(1_500)).await;
    queue.reload(&b).await.unwrap();
    queue.maintain().await;
    let look = queue.look();
    let further = || look.number("SELECT count(*) FROM url_sources");
    assert_eq!(further(), 2_500);
    assert_eq!(queue.store.forget_site("a".to_owned()).await.unwrap(), 500);
    assert_eq!(further(), 0);
    assert_eq!(queue.store.status().await.unwrap().urls, 2_500);
}

#[tokio::test]
async fn a_site_is_forgotten_whole_though_its_urls_lie_behind_many_of_others() {
    let [a, b] = sites(["a", "b"]);
    let queue = Queue::open(&(a.clone() + &b)).await;
    let pages = |host: &str, range: std::ops::Range<u32>| -> Vec<String> {
        range.map(|n| format!("http://{host}.test/{n}")).collect()
    };
    // More than one part looks at, and of one host: one partition, on a server.
    queue.list_urls("a", pages("a", 0..10_500)).await;
    queue.list_urls("b", pages("a", 20_000..22_500)).await;
    for host in ["c", "d", "e"] {
        queue.list_urls("b", pages(host, 0..100)).await;
        queue.list_urls("a", pages(host, 100..110)).await;
        queue.list_urls("b", pages(host, 110..111)).await;
    }
    queue.list_urls("b", pages("a", 0..1)).await;
    queue.reload(&a).await.unwrap();
    assert_eq!(queue.store.forget_site("b".to_owned()).await.unwrap(), 2_500 + 3 * 101);
    let look = queue.look();
    let left = look.rows("SELECT count(*), min(site_id), max(site_id) FROM urls");
    assert_eq!(left, [["10530", "1", "1"].map(|text| Some(text.to_owned()))]);
    assert_eq!(look.number("SELECT count(*) FROM url_sources"), 0);
    assert_eq!(look.number("SELECT count(*) FROM sites"), 1);
}

/// The end of a poll that began then and read an index in full.
fn index_read(source: SourceId, tenure: i64, at: Timestamp) -> PollEnd {
    let next = NextPollAt {
        at: Some(at + DAY),
        interval_ms: 86_400_000,
        rhythm: None,
        rule: "steady".to_owned(),
        why: "once a day".to_owned(),
    };
    let dates = Dates {
        at,
        entries: 0,
        dated: 0,
        date_only: 0,
        future: 0,
        known: 0,
        regressed: 0,
        moved: Vec::new(),
        came: Vec::new(),
    };
    let read = ReadResult {
        kind: DocumentKind::Index,
        window: 0,
        rolls: 0,
        shrunk_at: None,
        pending: 0,
        complete: true,
        epoch: Some(1),
        validators: Validators::default(),
        wire_hash: None,
        body_hash: None,
        bytes: 100,
        entries: 1,
        admitted: "{}".to_owned(),
        issues: "[]".to_owned(),
        hints: None,
        snapshot: None,
        changed: true,
        dates: Arc::new(dates),
        hubs: Box::new(Named::Unknown),
        missed_push: false,
        has_made_room: false,
        tells_dropped: false,
    };
    PollEnd {
        source,
        tenure,
        at,
        took_ms: 1,
        result: "changed",
        failing: None,
        status: "success",
        http_status: Some(200),
        wire_bytes: 100,
        counts: Counts::default(),
        error: None,
        next,
        moved: None,
        kept: Kept::Read(read),
    }
}

#[tokio::test]
async fn an_index_that_is_read_as_another_one_is_given_up_is_read_in_full_again() {
    for is_paused in [false, true] {
        let queue = Queue::simple().await;
        let kept = queue.origin("a");
        let tenure = queue.store.poll_target(kept.source).await.unwrap().tenure;
        let end = async || {
            let end = index_read(kept.source, tenure, queue.clock.now());
            queue.clock.advance(Duration::from_secs(1));
            end
        };
        queue.store.finish_poll(end().await).await.unwrap();
        let other: Url = "http://a.test/other.xml".parse().unwrap();
        let other = queue.store.submit_source("a".to_owned(), other).await.unwrap();
        queue.store.finish_poll(index_read(other, tenure, queue.clock.now())).await.unwrap();
        let child = NewSource {
            url: "http://a.test/child.xml".parse().unwrap(),
            role: Role::Sitemap,
            named_by: "index",
            parent: Some((other, 1)),
            lastmod: None,
            place: PlaceInLine::NOW,
        };
        queue.store.register(kept.site, vec![child]).await.unwrap();
        let long_ago = Some(jiff::Timestamp::UNIX_EPOCH);
        let last_full = async || {
            let target = queue.store.poll_target(kept.source).await.unwrap();
            target.last_full_at
        };
        assert_ne!(last_full().await, long_ago);
        // It has come due, or nobody would read it.
        queue.clock.advance(DAY);
        let under_way = end().await;
        queue.store.pause_site("a".to_owned(), is_paused).await.unwrap();
        let filter = SourceFilter { limit: 10, ..SourceFilter::default() };
        let sources = queue.store.sources(filter).await.unwrap();
        let why = "not polled while its site is paused; ";
        assert!(sources.items.iter().all(|source| source.why.starts_with(why) == is_paused));
        queue.store.delete_source(other, false).await.unwrap();
        queue.store.finish_poll(under_way).await.unwrap();
        assert_eq!(last_full().await, long_ago, "{is_paused}");
        let due = "SELECT count(*) FROM sources WHERE rule = 'index' AND next_poll_at IS NOT NULL";
        assert_eq!(queue.look().number(due), 1, "{is_paused}");
        queue.clock.advance(Duration::from_secs(1));
        queue.store.finish_poll(end().await).await.unwrap();
        assert!(last_full().await > long_ago);
    }
}

/// What a client pushes, completed or not.
fn pushed(url: &str, known: Option<Known>) -> Put {
    Put {
        crawl: "default".to_owned(),
        key: None,
        url: url.to_owned(),
        metadata: std::collections::BTreeMap::default(),
        created: None,
        known,
    }
}

async fn stats(queue: &Queue) -> FrontierStats {
    queue.store.frontier_stats("default".to_owned(), None).await.unwrap()
}

#[tokio::test]
async fn what_was_asked_for_while_its_client_completed_it_is_not_complete() {
    let queue = Queue::simple().await;
    let page = "http://a.test/page".to_owned();
    queue.list_urls("a", [page.clone()]).await;
    queue.lease_one().await;
    queue.store.requeue("default".to_owned(), vec![page.clone()]).await.unwrap();
    let seen = Known { outcome: Some(Outcome::Unchanged), ..Known::default() };
    queue.store.frontier_put(vec![pushed(&page, Some(seen.clone()))]).await.unwrap();
    assert_eq!(queue.view(&page).await.state, UrlState::Queued);
    assert_eq!(stats(&queue).await.completed, 0);
    queue.lease_one().await;
    queue.store.frontier_put(vec![pushed(&page, Some(seen))]).await.unwrap();
    assert_eq!(queue.view(&page).await.state, UrlState::Parked);
    assert_eq!(stats(&queue).await.completed, 1);
}

#[tokio::test]
async fn a_crawl_begins_with_no_price_though_it_has_the_number_of_one_that_went() {
    let queue = Queue::simple().await;
    let put = async |crawl: &str| {
        let page = pushed("http://a.test/page", None);
        queue.store.frontier_put(vec![Put { crawl: crawl.to_owned(), ..page }]).await.unwrap();
    };
    put("second").await;
    let request = LeaseRequest { crawl: "second".to_owned(), ..ask(1) };
    let leased = queue.lease_as(request).await.urls.remove(0);
    queue.settle(leased.token, Outcome::Changed).await;
    queue.store.frontier_remove("second".to_owned(), None, None).await.unwrap();
    queue.store.frontier_forget_crawl("second".to_owned()).await.unwrap();
    put("third").await;
    queue.clock.advance(Duration::from_secs(3_600));
    queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
    let queue = queue.reopen(Duration::ZERO).await;
    let look = queue.look();
    let third = "(SELECT id FROM crawls WHERE name = 'third')";
    assert_eq!(look.number(&format!("SELECT count(*) FROM prices WHERE crawl_id = {third}")), 0);
}

#[tokio::test]
async fn what_a_client_completed_as_a_redirect_stays_completed() {
    let queue = Queue::simple().await;
    let [old, new] = ["old", "new"].map(|page| format!("http://a.test/{page}"));
    let rows = queue.list_urls("a", [old.clone(), new.clone()]).await;
    let redirects = Known {
        outcome: Some(Outcome::Redirected),
        final_url: Some(new.clone()),
        ..Known::default()
    };
    queue.store.frontier_put(vec![pushed(&old, Some(redirects))]).await.unwrap();
    assert_eq!(queue.view(&old).await.state, UrlState::Parked);
    queue.apply(Effect::Drop { url: rows[1] }).await;
    queue.clock.advance(400 * DAY);
    queue.maintain().await;
    assert_eq!(queue.view(&old).await.state, UrlState::Parked);
}

#[tokio::test]
async fn what_a_client_pushed_outlives_the_site_that_listed_it() {
    let [a, b] = ["a", "b"].map(|name| site(name, &format!("http://{name}.test/"), ""));
    let queue = Queue::open(&(a + &b)).await;
    let [done, waits, listed] = ["done", "waits", "listed"].map(|p| format!("http://a.test/{p}"));
    let puts = vec![pushed(&done, None), pushed(&waits, None)];
    queue.store.frontier_put(puts).await.unwrap();
    let urls = async || queue.store.status().await.unwrap().urls;
    assert_eq!(urls().await, 2);
    queue.list_urls("a", [&done, &waits, &listed].map(Clone::clone)).await;
    assert_eq!(urls().await, 3);
    let known = || Some(Known::default());
    let puts = vec![pushed(&done, known()), pushed(&listed, known())];
    queue.store.frontier_put(puts).await.unwrap();
    assert_eq!(stats(&queue).await.completed, 2);
    queue.reload(&b).await.unwrap();
    queue.store.forget_site("a".to_owned()).await.unwrap();
    let url = async |url: &str| {
        queue.store.frontier_url("default".to_owned(), None, url.to_owned()).await.unwrap()
    };
    assert_eq!(urls().await, 2);
    assert_eq!(url(&done).await.expect("its client knows it").due, None);
    assert!(url(&listed).await.is_none(), "nobody pushed it");
    assert_eq!(stats(&queue).await.completed, 1);
    assert_eq!(queue.view(&done).await.state, UrlState::Parked);
    let leased = queue.lease(10).await;
    assert_eq!((paths(&leased), leased[0].site.as_deref()), (vec!["/waits"], None));
}

#[tokio::test]
async fn a_reload_looks_at_sites_that_it_touches_and_at_those_that_lost_something() {
    let text: String = ["a", "b", "c"].map(|n| site(n, &format!("http://{n}.test/"), "")).concat();
    let queue = Queue::open(&text).await;
    let mut config = queue.config.clone();
    for site in config.sites.values_mut().map(Arc::make_mut) {
        site.url = Url::parse(&format!("http://new-{}.test/", site.name)).unwrap();
    }
    let homes = async || {
        let sites = queue.store.sites().await.unwrap();
        sites.iter().map(|site| site.url.clone()).collect::<Vec<_>>().join(" ")
    };
    let reload = async |touched: &[&str]| {
        let touched = touched.iter().map(|name| (*name).to_owned()).collect();
        queue.store.reconfigure(config.clone(), touched, || ()).await.unwrap();
    };
    reload(&["a"]).await;
    assert_eq!(homes().await, "http://new-a.test/ http://b.test/ http://c.test/");
    // As after a month of 404.
    queue.look().change(
        "UPDATE sources SET state = 2, retired_why = 'gone', retired_at = 0, next_poll_at = NULL
         WHERE url = 'http://b.test/sitemap-b.xml'",
    );
    reload(&[]).await;
    assert_eq!(homes().await, "http://new-a.test/ http://new-b.test/ http://c.test/");
    let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
    let sources = queue.store.sources(filter).await.unwrap().items;
    let listed = sources.iter().find(|source| source.url == "http://b.test/sitemap-b.xml");
    assert!(listed.is_some_and(|source| source.state == "active"), "{sources:?}");
}

#[tokio::test]
async fn a_config_is_told_of_once_it_holds_and_never_where_it_is_refused() {
    let text = site("a", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    let told = Arc::new(AtomicU32::new(0));
    let reload = async |text: &str| {
        let mut config = queue.config.clone();
        config.sites = Config::from_toml_str(text).unwrap().sites;
        let touched = config.sites.keys().cloned().collect();
        let told = Arc::clone(&told);
        let taken = move || _ = told.fetch_add(1, Ordering::Relaxed);
        queue.store.reconfigure(config, touched, taken).await
    };
    let moved = site("a", "http://a.test/", "crawl = \"other\"");
    assert!(reload(&moved).await.is_err());
    assert_eq!(told.load(Ordering::Relaxed), 0);
    reload(&(text.clone() + &site("b", "http://b.test/", ""))).await.unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 1);
}
