//! Sources that go leave nothing behind that others could be taken for.

use sitemapd::config::Config;
use sitemapd::store::Effect;
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
async fn who_names_a_sitemap_whose_url_is_too_long_is_told() {
    let queue = Queue::simple().await;
    let url: Url = format!("http://a.test/{}", incompressible(3_000)).parse().unwrap();
    let told = queue.store.submit_source("a".to_owned(), url.clone()).await.unwrap_err();
    assert!(told.to_string().contains("2,048 bytes"), "{told}");
    let told = queue.store.hear(url).await.unwrap_err();
    assert!(told.to_string().contains("2,048 bytes"), "{told}");
    assert_eq!(queue.look().number("SELECT count(*) FROM submissions"), 0);
}
