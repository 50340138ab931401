//! Orders to one of three daemons: they hold for all, whosever it is that they are
//! about, and though nobody waits for the answer.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use sitemapd::model::{Outcome, Reason};
use sitemapd::store::frontier::Put;

use super::shared::{HOSTS, Three, URLS, lease, sitemap, sitemap_of};
use crate::support::queue_daemon::report;

/// More than one part of a walk for each daemon.
const MANY: usize = 9_000;

fn pushed(url: String, key: Option<String>) -> Put {
    let metadata = BTreeMap::new();
    Put { crawl: "default".to_owned(), key, url, metadata, created: None, known: None }
}

/// Waits until no daemon leases anything.
async fn until_all_stand_still(three: &Three) {
    for daemon in &three.daemons {
        daemon
            .wait("a lease of nothing", async || {
                let leased = lease(daemon, 1, None).await;
                let tokens = leased.iter().map(|url| url.token).collect();
                daemon.store.release(tokens, Duration::ZERO).await.unwrap();
                leased.is_empty().then_some(())
            })
            .await;
    }
    assert_eq!(three.look.number("SELECT count(*) FROM queue"), i64::try_from(URLS).unwrap());
}

#[tokio::test]
async fn who_was_asked_for_a_block_heeds_it_at_once_though_another_one_sets_it() {
    let Some(three) = Three::start("blocks", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let owner = |name: &str| three.owner("hosts", &format!("t.name = '{name}'"));
    let host = (0..HOSTS).map(|n| format!("h{n}.test")).find(|host| owner(host) != 0).unwrap();
    // Queues with a key of their own are wherever that is dealt to.
    let keyed = |n: usize| pushed(format!("http://{host}/keyed/{n}"), Some(format!("k{n}")));
    let asked = &three.daemons[0];
    asked.store.frontier_put((0..20).map(keyed).collect()).await.unwrap();
    assert!((0..20).any(|n| owner(&format!("k{n}")) == 0));
    let prefix = format!("http://{host}/keyed/");
    asked.store.block("default".to_owned(), prefix.clone(), true).await.unwrap();
    let leased = lease(asked, 1_000, None).await;
    let held: Vec<_> = leased.iter().filter(|url| url.url.starts_with(&prefix)).collect();
    assert!(held.is_empty(), "{held:?}");
    assert_eq!(leased.len(), URLS);
}

#[tokio::test]
async fn all_hear_of_a_pause_whose_client_has_gone() {
    let Some(three) = Three::start("a client that leaves", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let pause = three.daemons[0].store.pause_site("a".to_owned(), true);
    assert!(pause.now_or_never().is_none(), "it is under way");
    until_all_stand_still(&three).await;
}

#[tokio::test]
async fn a_change_that_nobody_was_told_of_is_not_taken_for_ones_own() {
    let Some(three) = Three::start("lost orders", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    // As another daemon does whose orders to the others are lost.
    three.look.change(
        "UPDATE crawls SET paused = 1;
         INSERT INTO meta (key, value) VALUES ('settings', '1')
         ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT)",
    );
    three.daemons[0].store.pause_site("a".to_owned(), false).await.unwrap();
    until_all_stand_still(&three).await;
}

#[tokio::test]
async fn the_urls_of_a_source_that_is_dropped_with_them_go_before_the_answer() {
    let Some(three) = Three::start("sources of others", sitemap()).await else { return };
    three.daemons[0].polled("/sitemap.xml", 1).await;
    let source = three.daemons[0].source("/sitemap.xml").await.id;
    let other = (three.owner("sources", &format!("t.id = {}", source.0)) + 1) % 3;
    three.daemons[other].store.delete_source(source, true).await.unwrap();
    assert_eq!(three.look.number("SELECT count(*) FROM urls WHERE listed <> 0"), 0);
    // What each of them has let go of is one figure.
    let status = three.daemons[0].store.status().await.unwrap();
    assert_eq!(status.changes_24h.removed, URLS as u64);
    // Each is looked at once more, so that its fetchers hear of it.
    let leased = lease(&three.daemons[0], 1_000, None).await;
    assert_eq!(leased.len(), URLS);
    assert!(leased.iter().all(|url| url.reason == Reason::Removed));
}

#[tokio::test]
async fn all_dead_letters_come_back_and_are_counted_however_many_there_are() {
    let once = "[queue]\nmax_attempts = 1\n";
    let three = Three::start_with("dead letters", sitemap_of(MANY), once).await;
    let Some(three) = three else { return };
    three.wait_for_urls(MANY).await;
    let mut turn = 0;
    while three.look.number("SELECT count(*) FROM queue") > 0 {
        let leased = lease(&three.daemons[turn % 3], 1_000, None).await;
        assert!(!leased.is_empty());
        let failed = leased.iter().map(|url| report(url.token, Outcome::Failed)).collect();
        three.daemons[turn % 3].store.settle(failed).await.unwrap();
        turn += 1;
    }
    let replay = async || three.daemons[0].store.replay("default".to_owned(), Vec::new()).await;
    assert_eq!(replay().await.unwrap(), MANY as u64);
    assert_eq!(replay().await.unwrap(), 0);
    assert_eq!(three.look.number("SELECT count(*) FROM queue"), i64::try_from(MANY).unwrap());
}
