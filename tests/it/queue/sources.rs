//! Sources that go leave nothing behind that others could be taken for.

use std::time::Duration;

use sitemapd::model::Outcome;
use sitemapd::store::frontier::{FrontierStats, Known, Put};
use sitemapd::store::views::UrlState;
use sitemapd::store::{Effect, NextPollAt};
use url::Url;

use crate::support::incompressible;
use crate::support::queue_daemon::{Queue, paths, site};

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
