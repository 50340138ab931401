//! Queues of the frontier whose hosts are several daemons': http and https of one
//! name are one queue, with one limit, one delay and one count.

use std::collections::BTreeMap;
use std::time::Duration;

use sitemapd::model::Outcome;
use sitemapd::store::frontier::{Get, Known, Progress, Put, Served, Setting};

use super::shared::Three;
use crate::support::daemon::{Daemon, sitemap};
use crate::support::queue_daemon::report;

/// So many names, for any two daemons to have a host each of some of them.
const NAMES: usize = 36;
/// Between two servings of a queue.
const DELAY: Duration = Duration::from_secs(60);

/// A queue of which one daemon has http, and another https.
struct Split {
    three: Three,
    name: String,
    http: usize,
    https: usize,
    /// Who has which host.
    owners: BTreeMap<String, usize>,
}

impl Split {
    async fn start(test: &str) -> Option<Self> {
        let three = Three::start(test, sitemap("http://a.test", &[])).await?;
        let urls = (0..NAMES).flat_map(|n| ["http", "https"].map(|s| format!("{s}://q{n}.test/1")));
        push(&three.daemons[0], urls).await;
        let names = three.names();
        let rows = three.look.rows(
            "SELECT h.authority, p.node FROM hosts h JOIN partitions p USING (part)
             WHERE h.name LIKE 'q%.test'",
        );
        let owners: BTreeMap<_, _> = rows
            .into_iter()
            .map(|row| {
                let [authority, node] = <[_; 2]>::try_from(row).unwrap().map(Option::unwrap);
                (authority, names.iter().position(|name| *name == node).unwrap())
            })
            .collect();
        let split = (0..NAMES).find_map(|n| {
            let name = format!("q{n}.test");
            let [http, https] = ["http", "https"].map(|s| owners[&format!("{s}://{name}")]);
            (http != https).then_some((name, http, https))
        });
        let (name, http, https) = split.expect("a name that is two daemons'");
        let split = Self { three, name, http, https, owners };
        for place in 0..3 {
            // The first call of a daemon begins with another one, the next with itself.
            let nowhere = Some("nowhere.test".to_owned());
            assert!(split.get_of(place, nowhere, (0, 0)).await.is_empty());
        }
        Some(split)
    }

    /// Pushes a page of either host.
    async fn push(&self, page: &str) {
        let urls = ["http", "https"].map(|s| format!("{s}://{}/{page}", self.name));
        push(&self.three.daemons[0], urls).await;
    }

    /// What a daemon serves of the queue, those that it asks included.
    async fn get(&self, place: usize, per_queue: u32) -> Vec<Served> {
        self.get_of(place, Some(self.name.clone()), (per_queue, 0)).await
    }

    /// The same of another queue, or of all, with limits for each and of queues.
    async fn get_of(
        &self,
        place: usize,
        key: Option<String>,
        (per_queue, max_queues): (u32, u32),
    ) -> Vec<Served> {
        let (crawl, ttl) = (Some("default".to_owned()), Duration::from_secs(600));
        let get = Get { crawl, key, per_queue, max_queues, ttl };
        let store = &self.three.daemons[place].store;
        store.frontier_get(get, Progress::default()).await.unwrap().0
    }

    async fn settle(&self, served: Vec<Served>) {
        let reports = served.iter().map(|url| report(url.token, Outcome::Unchanged)).collect();
        self.three.daemons[0].store.settle(reports).await.unwrap();
    }

    /// The clocks of both hosts, in milliseconds after now.
    fn clocks(&self) -> [i64; 2] {
        let now = self.three.daemons[0].clock.steady().as_millisecond();
        ["http", "https"].map(|scheme| {
            let sql = format!(
                "SELECT next_at - {now} FROM hosts WHERE authority = '{scheme}://{}'",
                self.name
            );
            self.three.look.number(&sql)
        })
    }
}

async fn push(daemon: &Daemon, urls: impl IntoIterator<Item = String>) {
    put(daemon, urls, None).await;
}

/// Pushes URLs, or reports on them.
async fn put(daemon: &Daemon, urls: impl IntoIterator<Item = String>, known: Option<Known>) {
    let put = |url| Put { known: known.clone(), ..put_of(url) };
    daemon.store.frontier_put(urls.into_iter().map(put).collect()).await.unwrap();
}

fn put_of(url: String) -> Put {
    Put {
        crawl: "default".to_owned(),
        key: None,
        url,
        metadata: BTreeMap::new(),
        created: None,
        known: None,
    }
}

fn texts(served: &[Served]) -> Vec<&str> {
    let mut texts: Vec<_> = served.iter().map(|url| url.url.as_str()).collect();
    texts.sort_unstable();
    texts
}

#[tokio::test]
async fn what_another_daemon_has_leased_of_a_queue_counts_while_it_lasts() {
    let Some(split) = Split::start("limits of queues").await else { return };
    split.push("2").await;
    let of_https = split.get(split.https, 2).await;
    assert_eq!(texts(&of_https).len(), 2);
    assert!(split.get(split.http, 2).await.is_empty(), "two are out");
    split.settle(of_https).await;
    let of_http = split.get(split.http, 2).await;
    let both = ["1", "2"].map(|page| format!("http://{}/{page}", split.name));
    assert_eq!(texts(&of_http), both, "none is out any more");
    // What is leased after the first look counts as well.
    split.push("3").await;
    assert!(split.get(split.https, 2).await.is_empty());
    split.settle(of_http).await;
    let of_https = split.get(split.https, 2).await;
    assert_eq!(texts(&of_https), [format!("https://{}/3", split.name)]);
    split.push("4").await;
    assert!(split.get(split.http, 1).await.is_empty(), "one is out");
    let of_http = split.get(split.http, 2).await;
    assert_eq!(texts(&of_http).len(), 1, "and one more may be");
}

#[tokio::test]
async fn a_delay_lies_between_servings_of_a_queue_by_several_daemons() {
    let Some(split) = Split::start("delays of queues").await else { return };
    let store = &split.three.daemons[0].store;
    let name = split.name.clone();
    store.frontier_set("default".to_owned(), name, Setting::Delay(DELAY)).await.unwrap();
    let served = split.get(split.http, 0).await;
    assert_eq!(texts(&served), [format!("http://{}/1", split.name)]);
    assert_eq!(split.clocks(), [60_000, 60_000]);
    for place in 0..3 {
        assert!(split.get(place, 0).await.is_empty(), "it has just been served");
    }
    split.three.daemons[0].clock.advance(DELAY);
    let served = split.get(split.https, 0).await;
    assert_eq!(texts(&served), [format!("https://{}/1", split.name)]);
    assert_eq!(split.clocks(), [60_000, 60_000]);
    split.push("2").await;
    split.three.daemons[0].clock.advance(DELAY / 2);
    assert!(split.get(split.http, 0).await.is_empty());
    split.three.daemons[0].clock.advance(DELAY / 2);
    assert_eq!(split.get(split.http, 0).await.len(), 1);
    assert_eq!(split.clocks(), [60_000, 60_000]);
}

#[tokio::test]
async fn a_client_that_always_asks_the_same_daemon_starves_none() {
    let Some(split) = Split::start("queues of all").await else { return };
    for _ in 0..16 {
        assert_eq!(split.get_of(0, None, (1, 1)).await.len(), 1);
    }
    let owners = "SELECT count(DISTINCT p.node) FROM leases l JOIN partitions p USING (part)";
    assert_eq!(split.three.look.number(owners), 3);
}

#[tokio::test]
async fn a_limit_of_completed_urls_holds_over_several_daemons() {
    let Some(split) = Split::start("limits of completed URLs").await else { return };
    let store = &split.three.daemons[0].store;
    let name = split.name.clone();
    store.frontier_set("default".to_owned(), name, Setting::MaxCompleted(1)).await.unwrap();
    split.push("2").await;
    assert_eq!(split.get(split.https, 1).await.len(), 1, "none is completed");
    let first = format!("http://{}/1", split.name);
    put(&split.three.daemons[0], [first], Some(Known::default())).await;
    for place in 0..3 {
        assert!(split.get(place, 0).await.is_empty(), "one is");
    }
}

#[tokio::test]
async fn daemons_that_complete_urls_of_the_same_queues_do_not_wait_in_a_circle() {
    let Some(split) = Split::start("completed at once").await else { return };
    let daemons = &split.three.daemons;
    for round in 0..6 {
        // Completed, and not any more.
        let again = (round % 2 == 1).then(|| daemons[0].clock.now());
        let report = |place: usize| {
            let own = split.owners.iter().filter(move |(_, owner)| **owner == place);
            let mut urls: Vec<_> = own.map(|(host, _)| format!("{host}/1")).collect();
            urls.sort_unstable_by_key(|url| url.split("://").nth(1).map(str::to_owned));
            if place == 1 {
                urls.reverse();
            }
            put(&daemons[place], urls, Some(Known { again, ..Known::default() }))
        };
        tokio::join!(report(0), report(1), report(2));
    }
    let counted = "SELECT CAST(sum(completed) AS BIGINT) FROM frontier_queues";
    assert_eq!(split.three.look.number(counted), 0);
}

#[tokio::test]
async fn what_is_put_into_a_crawl_that_another_daemon_has_just_forgotten_makes_it_anew() {
    let Some(three) = Three::start("forgotten crawls", sitemap("http://a.test", &[])).await else {
        return;
    };
    let put = async |round: usize| {
        let urls = (0..NAMES).map(|n| format!("http://q{n}.test/{round}"));
        let put = |url| Put { crawl: "second".to_owned(), ..put_of(url) };
        three.daemons[1].store.frontier_put(urls.map(put).collect()).await.unwrap();
    };
    put(1).await;
    let store = &three.daemons[0].store;
    let removed = store.frontier_remove("second".to_owned(), None, None).await.unwrap();
    assert_eq!(removed, NAMES as u64);
    // Before anybody was told.
    three.look.change("DELETE FROM crawls WHERE name = 'second'");
    put(2).await;
    let lost = "SELECT count(*) FROM urls u WHERE NOT EXISTS
                (SELECT 1 FROM crawls c WHERE c.id = u.crawl_id)";
    assert_eq!(three.look.number(lost), 0);
    assert_eq!(three.look.number("SELECT count(*) FROM crawls WHERE name = 'second'"), 1);
    // Who looks through a crawl for what is left in it hears of what comes meanwhile.
    three
        .look
        .change("INSERT INTO meta SELECT 'empty:' || id, '1' FROM crawls WHERE name = 'second'");
    put(3).await;
    assert_eq!(three.look.number("SELECT count(*) FROM meta WHERE key LIKE 'empty:%'"), 0);
    // And one that is empty goes, for all of them.
    store.frontier_remove("second".to_owned(), None, None).await.unwrap();
    store.frontier_forget_crawl("second".to_owned()).await.unwrap();
    for daemon in &three.daemons {
        assert_eq!(daemon.store.frontier_crawls().await.unwrap(), ["default"]);
    }
}
