//! Laws of where a URL is, whatever a client writes; and of who may forget a crawl.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::Store;
use super::super::hosts::{name_of, page_text};
use super::super::writer::Lane;
use super::Put;
use super::put::spot_of;
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::url::identities;

proptest! {
    #[test]
    fn whatever_a_client_writes_has_one_place_or_none(
        key in proptest::option::of("\\PC{0,300}"),
        scheme in "(http|https|HTTP|ftp)",
        rest in "[a-zA-Z0-9.:\\[\\]@/?#%é -]{0,60}",
    ) {
        let text = format!("{scheme}://{rest}");
        let Some(spot) = spot_of(key.as_deref(), &text) else { return Ok(()) };
        let shown = page_text(&spot.authority, &spot.path);
        let normalised = identities(&spot.listed).pop().map(String::from);
        prop_assert_eq!(Some(&shown), normalised.as_ref());
        // What is shown of it leads to the same place, under the name of its queue.
        let name = name_of(&spot.authority).to_owned();
        let again = spot_of(Some(&name), &shown);
        let again = again.map(|again| (again.authority, again.path));
        prop_assert_eq!(again, Some((spot.authority, spot.path)));
    }
}

#[tokio::test]
async fn a_crawl_is_forgotten_only_by_the_call_that_found_nothing_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[[site]]\nname = \"a\"\nurl = \"http://a.test/\"\n";
    let mut config = Config::from_toml_str(text).unwrap();
    config.daemon.data_dir = dir.path().to_owned();
    let store = Store::open(&config, Clock::system(), Arc::new(Metrics::new())).unwrap();
    let put = async || {
        let put = Put {
            crawl: "second".to_owned(),
            key: None,
            url: "http://q.test/1".to_owned(),
            metadata: super::Metadata::default(),
            created: None,
            known: None,
        };
        store.frontier_put(vec![put]).await.unwrap();
    };
    let remove = async || store.frontier_remove("second".to_owned(), None, None).await.unwrap();
    let begin = async || {
        store.set(Lane::Bulk, |state| state.forget_queues("second")).await.unwrap().unwrap()
    };
    let crawls = async || store.frontier_crawls().await.unwrap();
    put().await;
    assert_eq!(remove().await, 1);
    let first = begin().await;
    // What was put and removed meanwhile is for who has looked since.
    put().await;
    assert_eq!(remove().await, 1);
    let second = begin().await;
    store.set(Lane::Bulk, move |state| state.forget_crawl(&first)).await.unwrap();
    assert_eq!(crawls().await, ["default", "second"]);
    put().await;
    store.set(Lane::Bulk, move |state| state.forget_crawl(&second)).await.unwrap();
    assert_eq!(crawls().await, ["default", "second"], "there is a URL in it");
    assert_eq!(remove().await, 1);
    let third = begin().await;
    store.set(Lane::Bulk, move |state| state.forget_crawl(&third)).await.unwrap();
    assert_eq!(crawls().await, ["default"]);
}
