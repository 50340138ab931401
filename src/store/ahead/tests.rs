//! What is read ahead, against the tables: whenever it is taken over, leases are
//! what the queue's order says. In debug builds the store compares each row, too.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::config::Config;
use crate::diff::snapshot::{EntryHints, Row};
use crate::metrics::Metrics;
use crate::model::{Outcome, Priority, Role, SourceId, UrlKind};
use crate::queue::{LeaseRequest, Leased, Settlement};
use crate::recrawl::signal::Signal;
use crate::store::views::SourceFilter;
use crate::store::writer::Lane;
use crate::store::{Effect, Origin, PastFetch, Store};
use crate::url::Admitted;

/// More than three buffers.
const URLS: usize = 3_500;

struct Queue {
    store: Store,
    clock: Clock,
    origin: Origin,
    rows: Vec<UrlId>,
    _dir: tempfile::TempDir,
}

impl Queue {
    /// One host with [`URLS`] due URLs of five priorities.
    async fn new(order: &str) -> Self {
        Self::of_hosts(order, 1).await
    }

    /// The same URLs, spread over so many hosts.
    async fn of_hosts(order: &str, hosts: usize) -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let text = format!(
            "[queue]\norder = \"{order}\"\n[store]\ndurability = \"normal\"\n\
             [[site]]\nname = \"a\"\nurl = \"http://a.test/\"\nfeeds = []\nscope = \"any\"\n\
             sitemaps = [\"http://a.test/s.xml\"]\nobey_robots = false\nhost_delay = \"0s\"\n"
        );
        let mut config = Config::from_toml_str(&text).unwrap();
        config.daemon.data_dir = dir.path().join("data");
        let clock = Clock::manual("2026-11-21T00:00:00Z".parse().unwrap());
        let store = Store::open(&config, clock.clone(), Arc::new(Metrics::new())).unwrap();
        let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
        let sources = store.sources(filter).await.unwrap().items;
        let sitemap = sources.iter().find(|source| source.role == Role::Sitemap).unwrap();
        let target = store.poll_target(sitemap.id).await.unwrap();
        let origin = Origin {
            source: target.id,
            site: target.site.unwrap(),
            crawl: target.crawl,
            window: false,
            generation: 1,
            moves: Signal::Lastmod,
            stamped: None,
            tenure: target.tenure,
        };
        let effects = (0..URLS).map(|number| Effect::Admit {
            slot: u32::try_from(number).unwrap(),
            url: Admitted {
                authority: authority(number, hosts).into(),
                path: format!("/{number}"),
                respelled: false,
            },
            raw: None,
            lastmod: None,
            hints: hints(number),
            kind: UrlKind::Page,
        });
        let applied = store.apply(origin, effects.collect()).await.unwrap();
        let rows = applied.rows.into_iter().filter_map(|(_, row)| match row {
            Row::Url(url) => Some(url),
            Row::Rejected(_) => None,
        });
        let rows: Vec<UrlId> = rows.collect();
        assert_eq!(rows.len(), URLS);
        Self { store, clock, origin, rows, _dir: dir }
    }

    async fn inside<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> T {
        self.store.write_naming(Lane::Hot, |state| Ok(look(state))).await.unwrap()
    }

    async fn lease(&self, max: u32) -> Vec<Leased> {
        self.lease_of_each(max, max).await
    }

    async fn lease_of_each(&self, max: u32, per_host: u32) -> Vec<Leased> {
        let ttl = Duration::from_secs(40 * 3_600);
        let request = LeaseRequest {
            crawl: "default".into(),
            max,
            per_host,
            ttl,
            sites: Vec::new(),
            worker: None,
            request_id: None,
        };
        self.store.lease(request).await.unwrap().urls
    }

    /// The head of what is due, by the table.
    async fn due(&self, max: u32) -> Vec<UrlId> {
        self.inside(move |state| {
            let now_s = state.steady_ms().div_euclid(1000);
            let sql = "SELECT url_id FROM queue WHERE due_s <= ?1
                       ORDER BY band DESC, due_s, url_id LIMIT ?2";
            let mut query = state.conn.prepare_cached(sql).unwrap();
            let due = query.query_map([now_s, i64::from(max)], |row| Ok(UrlId(row.get(0)?)));
            due.unwrap().collect::<Result<_, _>>().unwrap()
        })
        .await
    }

    /// What is due of each host, in its order, by the table.
    async fn due_of_hosts(&self) -> Vec<Vec<UrlId>> {
        self.inside(|state| {
            let now_s = state.steady_ms().div_euclid(1000);
            let sql = "SELECT host_id, url_id FROM queue WHERE due_s <= ?1
                       ORDER BY host_id, band DESC, due_s, url_id";
            let mut query = state.conn.prepare_cached(sql).unwrap();
            let read = |row: &crate::store::sql::Row<'_>| Ok((row.get(0)?, UrlId(row.get(1)?)));
            let due: Vec<(i64, UrlId)> =
                query.query_map([now_s], read).unwrap().collect::<Result<_, _>>().unwrap();
            let of_hosts = due.chunk_by(|one, next| one.0 == next.0);
            of_hosts.map(|of_host| of_host.iter().map(|(_, url)| *url).collect()).collect()
        })
        .await
    }

    /// Leases up to `per_host` of each host, which are what its order says.
    async fn lease_in_order(&self, max: u32, per_host: u32) -> Vec<Leased> {
        let due = self.due_of_hosts().await;
        let leased = self.lease_of_each(max, per_host).await;
        let got = ids(&leased);
        let mut found = 0;
        for of_host in &due {
            let of_this: Vec<UrlId> =
                got.iter().copied().filter(|url| of_host.contains(url)).collect();
            assert_eq!(of_this, of_host[..of_this.len()]);
            found += of_this.len();
        }
        let wanted = due.iter().map(Vec::len).sum::<usize>().min(max as usize);
        assert_eq!((found, got.len()), (wanted, wanted));
        leased
    }

    /// Hosts of which something is buffered.
    async fn buffered(&self) -> usize {
        let crawl = self.origin.crawl;
        self.inside(move |state| {
            let now_ms = state.steady_ms();
            let window = state.window(crawl);
            window.hosts() - window.unknown_hosts_due(now_ms).count()
        })
        .await
    }

    /// Gives a URL another priority, in thousandths.
    async fn prioritise(&self, number: usize, thousandths: u16) {
        let priority = Priority::from_thousandths(thousandths);
        let hints = EntryHints { priority, changefreq: None };
        let effect = Effect::Hints { url: self.rows[number], lastmod: None, hints };
        self.store.apply(self.origin, vec![effect]).await.unwrap();
    }

    /// Waits until all that was asked for is read and taken over.
    async fn catch_up(&self) {
        self.inside(|state| {
            while state.at_hand.ahead.open > 0 {
                state.take_over_what_was_read().unwrap();
                std::thread::yield_now();
            }
        })
        .await;
    }

    /// How many the buffer of the host holds, where there is more.
    async fn held(&self) -> Option<usize> {
        let crawl = self.origin.crawl;
        self.inside(move |state| {
            let sql = "SELECT host_id FROM turns";
            let host = state.conn.query_row(sql, (), |row| Ok(HostId(row.get(0)?))).unwrap();
            state.window(crawl).ends_with(host).map(|(_, held)| held)
        })
        .await
    }
}

fn authority(number: usize, hosts: usize) -> String {
    match number % hosts {
        0 => "http://a.test".to_owned(),
        other => format!("http://a{other}.test"),
    }
}

/// Five levels.
fn hints(number: usize) -> EntryHints {
    let thousandths = u16::try_from(number % 5 * 250).unwrap();
    EntryHints { priority: Priority::from_thousandths(thousandths), changefreq: None }
}

fn ids(leased: &[Leased]) -> Vec<UrlId> {
    leased.iter().map(|leased| leased.id).collect()
}

#[tokio::test]
async fn what_follows_a_buffer_is_added_to_it_before_it_is_empty() {
    let queue = Queue::new("protocol").await;
    for _ in 0..3 {
        assert_eq!(queue.due(200).await, ids(&queue.lease(200).await));
    }
    queue.catch_up().await;
    // 600 of 1,024 are gone.
    assert_eq!(queue.held().await, Some(1_024));
    let expected = queue.due(1_000).await;
    assert_eq!(ids(&queue.lease(1_000).await), expected);
}

#[tokio::test]
async fn what_is_asked_in_vain_and_whether_all_is_well_cost_nothing_of_what_is_buffered() {
    let queue = Queue::new("protocol").await;
    assert_eq!(queue.lease(200).await.len(), 200);
    queue.catch_up().await;
    let at_hand = async || queue.inside(|state| state.at_hand.waiting()).await;
    let before = (queue.held().await, at_hand().await);
    assert!(before.0.is_some() && before.1 > 0, "{before:?}");
    let unknown = LeaseRequest {
        crawl: "nobody's".into(),
        max: 1,
        per_host: 1,
        ttl: Duration::from_secs(60),
        sites: Vec::new(),
        worker: None,
        request_id: None,
    };
    let of_site =
        LeaseRequest { crawl: "default".into(), sites: vec!["nobody's".into()], ..unknown.clone() };
    assert!(queue.store.lease(unknown).await.is_err());
    assert!(queue.store.lease(of_site).await.is_err());
    assert!(queue.store.poll_source(SourceId(1 << 40)).await.is_err());
    queue.store.ping().await.unwrap();
    queue.store.note_published("w", queue.clock.now()).await.unwrap();
    assert_eq!((queue.held().await, at_hand().await), before);
    // What was handed out by a job that fails all the same is still in the queue.
    let expected = queue.due(50).await;
    let fails = queue.store.write_naming(Lane::Hot, |state| {
        let request = LeaseRequest {
            crawl: "default".into(),
            max: 10,
            per_host: 10,
            ttl: Duration::from_secs(60),
            sites: Vec::new(),
            worker: None,
            request_id: None,
        };
        state.lease(&request, false)?;
        Err::<(), _>(StoreError::Refused("no".to_owned()))
    });
    assert!(fails.await.is_err());
    assert_eq!(ids(&queue.lease(50).await), expected);
}

#[tokio::test]
async fn the_last_of_a_list_that_is_read_ahead_is_known_to_be_the_last() {
    let queue = Queue::new("protocol").await;
    let mut leased = 0;
    while leased < URLS {
        let expected = queue.due(300).await;
        let got = ids(&queue.lease(300).await);
        assert_eq!(got, expected);
        leased += got.len();
        queue.catch_up().await;
    }
    assert_eq!(queue.held().await, None);
    assert!(queue.lease(10).await.is_empty());
}

/// A buffer ends in the second of the five levels; what is read ahead are the rest
/// of that and a part of the third.
async fn low() -> (Queue, Vec<Leased>) {
    let queue = Queue::new("protocol").await;
    let leased = queue.lease(600).await;
    (queue, leased)
}

/// Leases all, each time what the queue's order says.
async fn drain(queue: &Queue) {
    loop {
        let expected = queue.due(250).await;
        assert_eq!(ids(&queue.lease(250).await), expected);
        if expected.is_empty() {
            return;
        }
        queue.catch_up().await;
    }
}

#[tokio::test]
async fn what_comes_into_a_list_while_it_is_read_ahead_is_leased_in_its_turn() {
    let (queue, _) = low().await;
    queue.prioritise(3_001, 750).await;
    queue.catch_up().await;
    drain(&queue).await;
}

#[tokio::test]
async fn what_leaves_a_list_while_it_is_read_ahead_is_leased_in_its_turn() {
    let (queue, _) = low().await;
    queue.prioritise(3_003, 0).await;
    queue.catch_up().await;
    drain(&queue).await;
}

#[tokio::test]
async fn what_comes_due_behind_a_buffer_while_it_is_read_ahead_is_leased_in_its_turn() {
    let (queue, leased) = low().await;
    let number = queue.rows.iter().position(|row| *row == leased[0].id).unwrap();
    queue.prioritise(number, 750).await;
    let failed = Settlement::new(leased[0].token, Some(Outcome::Failed));
    queue.store.settle(vec![failed]).await.unwrap();
    queue.catch_up().await;
    queue.clock.advance(Duration::from_secs(30 * 3_600));
    drain(&queue).await;
}

#[tokio::test]
async fn rows_of_a_host_that_is_ordered_by_value_are_read_ahead() {
    let queue = Queue::new("learned").await;
    for round in 0..3 {
        let mut seen = IdSet::default();
        loop {
            let leased = queue.lease(300).await;
            if leased.is_empty() {
                break;
            }
            for one in leased {
                assert!(seen.insert(one.id), "leased twice");
                let outcome =
                    if one.id.0 % 3 == round { Outcome::Changed } else { Outcome::Unchanged };
                let settled = Settlement::new(one.token, Some(outcome));
                queue.store.settle(vec![settled]).await.unwrap();
            }
            queue.catch_up().await;
        }
        assert_eq!(seen.len(), URLS);
        queue.clock.advance(Duration::from_secs(366 * 24 * 3_600));
    }
}

#[tokio::test]
async fn a_buffer_in_the_order_of_the_list_is_not_added_to_once_values_count() {
    let queue = Queue::new("learned").await;
    let leased = queue.lease(600).await;
    let fetch = |hours: u64| PastFetch {
        url: leased[0].url.parse().unwrap(),
        at: queue.clock.now() - Duration::from_secs(hours * 3_600),
        changed: Some(true),
        content_hash: None,
        hash_kind: None,
    };
    queue.store.import("default".to_owned(), vec![fetch(48), fetch(24), fetch(1)]).await.unwrap();
    queue.lease(1).await;
    queue.catch_up().await;
    assert_eq!(queue.held().await, Some(423));
}

#[tokio::test]
async fn what_hosts_begin_with_whose_turns_come_next_is_read_before_them() {
    let queue = Queue::of_hosts("protocol", 50).await;
    queue.lease_in_order(10, 5).await;
    assert_eq!(queue.buffered().await, 2);
    queue.catch_up().await;
    assert_eq!(queue.buffered().await, 2 + OPEN);
    // And so it goes on.
    queue.lease_in_order(10, 5).await;
    queue.catch_up().await;
    assert!(queue.buffered().await > 2 + OPEN);
    while !queue.lease_in_order(100, 7).await.is_empty() {}
}

#[tokio::test]
async fn nothing_is_read_of_coming_hosts_for_a_while_after_it_was_of_no_use() {
    let queue = Queue::of_hosts("protocol", 50).await;
    queue.lease_in_order(10, 5).await;
    queue.inside(|state| state.at_hand.clear()).await;
    queue.catch_up().await;
    assert_eq!(queue.buffered().await, 2);
    for _ in 0..RESTS / 4 {
        queue.lease_in_order(10, 5).await;
    }
    queue.catch_up().await;
    let before = queue.buffered().await;
    // Each lease read its own two.
    assert_eq!(before, 2 + 2 * RESTS as usize / 4);
    while queue.buffered().await <= before + 2 {
        queue.lease_in_order(10, 5).await;
        queue.catch_up().await;
    }
}

/// What can happen to the queue.
#[derive(Debug, Clone)]
enum Step {
    Lease(u32),
    CatchUp,
    Ask(prop::sample::Index),
    Prioritise(prop::sample::Index, u16),
    Settle,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (1_u32..500).prop_map(Step::Lease),
        3 => Just(Step::CatchUp),
        1 => index().prop_map(Step::Ask),
        1 => (index(), 0_u16..5).prop_map(|(which, level)| Step::Prioritise(which, level)),
        1 => Just(Step::Settle),
        1 => (0_u64..3_600).prop_map(Step::Pass),
    ]
}

async fn follow(steps: Vec<Step>, hosts: usize) -> Result<(), TestCaseError> {
    let queue = Queue::of_hosts("protocol", hosts).await;
    let mut held = Vec::new();
    for step in steps {
        match step {
            Step::Lease(max) if hosts > 1 => {
                held.extend(queue.lease_in_order(max, max / 8 + 1).await);
            }
            Step::Lease(max) => {
                let expected = queue.due(max).await;
                let leased = queue.lease(max).await;
                prop_assert_eq!(ids(&leased), expected);
                held.extend(leased);
            }
            Step::CatchUp => queue.catch_up().await,
            Step::Ask(which) => {
                let number = which.index(URLS);
                let url = format!("{}/{number}", authority(number, hosts));
                queue.store.requeue("default".to_owned(), vec![url]).await.unwrap();
            }
            Step::Prioritise(which, level) => {
                queue.prioritise(which.index(URLS), level * 250).await;
            }
            Step::Settle => {
                let settled = held
                    .drain(..)
                    .map(|leased: Leased| Settlement::new(leased.token, Some(Outcome::Failed)));
                queue.store.settle(settled.collect()).await.unwrap();
            }
            Step::Pass(seconds) => queue.clock.advance(Duration::from_secs(seconds)),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_while_lists_are_read_ahead_leases_follow_the_queue(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(follow(steps, 1))?;
    }

    #[test]
    fn whatever_happens_while_hosts_without_a_buffer_are_read_leases_follow_their_lists(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(follow(steps, 40))?;
    }
}
