//! Whose a store on a server is: one daemon's at a time, and who was taken over
//! from commits nothing more.

use std::sync::Arc;
use std::time::Duration;

use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::metrics::Metrics;
use sitemapd::queue::LeaseRequest;
use sitemapd::store::{Store, StoreError};
use tempfile::TempDir;

use crate::support::engine::{self, Look};
use crate::support::queue_daemon::site;

struct Two {
    config: Config,
    other: Config,
    _folders: [TempDir; 2],
}

/// Two data folders whose store is the same; none where there is no server.
fn two(test: &str) -> Option<Two> {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    if engine::server_for(folders[0].path()).is_none() {
        eprintln!("SKIPPED: {test} needs a server, which SITEMAPD_POSTGRES names");
        return None;
    }
    let mut config = Config::from_toml_str(&site("a", "http://a.test/", "")).unwrap();
    engine::place(&mut config, folders[0].path());
    let mut other = config.clone();
    folders[1].path().clone_into(&mut other.daemon.data_dir);
    Some(Two { config, other, _folders: folders })
}

fn open(config: &Config) -> Result<Store, StoreError> {
    Store::open(config, Clock::system(), Arc::new(Metrics::new()))
}

async fn lease(store: &Store) -> Result<usize, StoreError> {
    let request = LeaseRequest {
        crawl: "default".to_owned(),
        sites: Vec::new(),
        max: 10,
        per_host: 10,
        ttl: Duration::from_secs(300),
        worker: None,
        request_id: None,
    };
    store.lease(request).await.map(|batch| batch.urls.len())
}

#[tokio::test]
async fn a_store_that_is_worked_on_is_held_until_it_is_given_back() {
    let Some(two) = two("whose a store is") else { return };
    let first = open(&two.config).unwrap();
    let Err(StoreError::Held(by)) = open(&two.other) else { panic!("two at once") };
    let look = Look::of(&two.config);
    let owners = look.rows("SELECT DISTINCT node FROM partitions");
    assert_eq!(owners, [vec![Some(by)]]);
    first.close();
    let second = open(&two.other).unwrap();
    assert_eq!(look.rows("SELECT DISTINCT epoch FROM partitions"), [vec![Some("2".to_owned())]]);
    lease(&second).await.unwrap();
    assert_eq!(lease(&first).await.unwrap_err(), StoreError::Closed);
}

#[tokio::test]
async fn who_was_taken_over_from_commits_nothing_more_and_stops() {
    let Some(two) = two("taking over") else { return };
    let first = open(&two.config).unwrap();
    let look = Look::of(&two.config);
    look.change("UPDATE nodes SET until = now() - interval '1 second'");
    let second = open(&two.other).unwrap();
    let told = lease(&first).await.unwrap_err();
    assert!(matches!(told, StoreError::Failed(_)), "{told:?}");
    assert!(matches!(first.failed().await, StoreError::Failed(_)));
    lease(&second).await.unwrap();
    drop(first);
    // What is left of the first gives nothing back that is not its own.
    lease(&second).await.unwrap();
    assert_eq!(look.number("SELECT count(*) FROM partitions WHERE node IS NULL"), 0);
}

#[tokio::test]
async fn a_cut_connection_is_made_again_and_work_goes_on() {
    let Some(two) = two("cut connections") else { return };
    let store = open(&two.config).unwrap();
    let look = Look::of(&two.config);
    lease(&store).await.unwrap();
    look.number("SELECT count(pg_terminate_backend(backend)) FROM nodes");
    // Nothing was asked of it when it was cut, so nobody hears of that.
    lease(&store).await.unwrap();
    assert_eq!(look.rows("SELECT DISTINCT epoch FROM partitions"), [vec![Some("1".to_owned())]]);
}
