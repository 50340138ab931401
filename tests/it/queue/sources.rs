//! Sources that go leave nothing behind that others could be taken for.

use sitemapd::config::Config;
use sitemapd::store::{Effect, NextPollAt};
use url::Url;

use crate::support::queue_daemon::{Queue, site};
use crate::support::{engine, incompressible};

#[tokio::test]
async fn a_new_source_is_not_taken_for_one_that_is_gone() {
    let [a, b, c] = ["a", "b", "c"].map(|name| site(name, &format!("http://{name}.test/"), ""));
    // Sites come in the order of their names: that of b has the highest numbers.
    let queue = Queue::open(&(a.clone() + &b)).await;
    let shared = "http://a.test/1";
    let url = queue.list_urls("a", [shared.to_owned()]).await[0];
    queue.list_urls("b", [shared.to_owned()]).await;
    let reload = async |text: &str| {
        let mut config = Config::from_toml_str(text).unwrap();
        engine::place(&mut config, queue.folder());
        queue.store.reconfigure(config).await.unwrap();
    };
    reload(&a).await;
    queue.store.forget_site("b".to_owned()).await.unwrap();
    reload(&(a + &c)).await;
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
