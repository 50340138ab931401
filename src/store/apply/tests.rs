//! How much of a read is written at once, and that each row is its own URL's
//! wherever it is cut.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::config::Config;
use crate::diff::snapshot::{EntryHints, Row};
use crate::metrics::Metrics;
use crate::model::{Priority, Role, UrlId, UrlKind};
use crate::queue::LeaseRequest;
use crate::recrawl::signal::Signal;
use crate::store::rows::read_url;
use crate::store::state::State;
use crate::store::views::SourceFilter;
use crate::store::writer::Lane;
use crate::store::{BATCH, CHUNK, Effect, Origin, Store, StoreError, engine};
use crate::url::Admitted;

struct Site {
    store: Store,
    origin: Origin,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let text = "[store]\ndurability = \"normal\"\n\
             [[site]]\nname = \"a\"\nurl = \"http://a.test/\"\nfeeds = []\n\
             sitemaps = [\"http://a.test/s.xml\"]\nobey_robots = false\n";
        let mut config = Config::from_toml_str(text).unwrap();
        config.daemon.data_dir = dir.path().join("data");
        let clock = Clock::manual("2026-11-21T00:00:00Z".parse().unwrap());
        let store = Store::open(&config, clock, Arc::new(Metrics::new())).unwrap();
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
        Self { store, origin, _dir: dir }
    }

    /// Is told of a whole batch; says of each slot which row it has.
    async fn list(&self) -> Vec<(u32, UrlId)> {
        self.admit((0..BATCH).map(|number| ("http://a.test", path(number), None))).await
    }

    /// The same of these: host, path and priority.
    async fn admit(
        &self,
        listed: impl Iterator<Item = (&str, String, Option<Priority>)>,
    ) -> Vec<(u32, UrlId)> {
        let effects = (0..).zip(listed).map(|(slot, (host, path, priority))| Effect::Admit {
            slot,
            url: Admitted { authority: host.into(), path, respelled: false },
            raw: None,
            lastmod: None,
            hints: EntryHints { changefreq: None, priority },
            kind: UrlKind::Page,
        });
        let applied = self.store.apply(self.origin, effects.collect()).await.unwrap();
        let url = |(slot, row)| match row {
            Row::Url(url) => (slot, url),
            Row::Rejected(why) => panic!("{slot} was rejected: {why:?}"),
        };
        applied.rows.into_iter().map(url).collect()
    }

    async fn with_state<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.store.write(Lane::Hot, job).await.unwrap()
    }

    /// Chunks so far: each logs what it changed as one.
    async fn chunks(&self) -> i64 {
        self.with_state(|state| {
            let sql = "SELECT count(*) FROM changes";
            state.conn.query_row(sql, (), |row| row.get(0)).map_err(engine)
        })
        .await
    }
}

/// Some are words that are abbreviated, and some are not.
fn path(number: usize) -> String {
    if number.is_multiple_of(3) {
        format!("/articles/{number}.html")
    } else {
        format!("/{number}/zq-é")
    }
}

#[tokio::test]
async fn what_a_read_brings_is_one_chunk_unless_somebody_leases() {
    let site = Site::new().await;
    site.list().await;
    assert_eq!(site.chunks().await, 1);

    let site = Site::new().await;
    let leases = LeaseRequest {
        max: 1,
        ttl: Duration::from_secs(60),
        per_host: 1,
        crawl: "default".to_owned(),
        sites: Vec::new(),
        worker: None,
        request_id: None,
    };
    let nobody_leases = site.with_state(|state| Ok(!state.is_leased_from())).await;
    site.store.lease(leases).await.unwrap();
    let noted = site.with_state(|state| Ok(state.leased_at)).await;
    assert!(nobody_leases && noted.is_some());
    // However long this machine takes from here on.
    let hour = Duration::from_secs(3_600);
    site.with_state(move |state| {
        state.leased_at = Some(Instant::now() + hour);
        Ok(())
    })
    .await;
    site.list().await;
    assert_eq!(site.chunks().await, i64::try_from(BATCH / CHUNK).unwrap());
}

#[tokio::test]
async fn each_row_has_its_own_path_wherever_a_read_is_cut() {
    let site = Site::new().await;
    site.with_state(|state| {
        state.leased_at = Some(Instant::now() + Duration::from_secs(3_600));
        Ok(())
    })
    .await;
    let rows = site.list().await;
    assert_eq!(rows.len(), BATCH);
    let around = (CHUNK - 20..CHUNK + 20).chain([0, 1, 2, BATCH - 1]);
    for number in around {
        let slot = u32::try_from(number).unwrap();
        let (_, url) = *rows.iter().find(|(of, _)| *of == slot).unwrap();
        let row = site.with_state(move |state| read_url(&state.conn, url)).await.unwrap();
        assert_eq!(row.path, path(number));
    }
    // The same once more changes nothing.
    assert_eq!(site.list().await, rows);
}

#[tokio::test]
async fn what_the_queue_has_together_has_neighbouring_numbers() {
    let site = Site::new().await;
    let hosts = ["http://a.test", "http://b.test"];
    let tenths = |slot: usize| [5, 9, 1][slot / 2 % 3];
    let listed = (0..60).map(|slot| {
        let priority = Priority::from_thousandths(tenths(slot) * 100);
        (hosts[slot % 2], path(slot / 2), priority)
    });
    let mut rows = site.admit(listed).await;
    rows.sort_unstable_by_key(|(_, url)| *url);
    let mut expected: Vec<usize> = (0..60).collect();
    expected.sort_by_key(|slot| (slot % 2, std::cmp::Reverse(tenths(*slot)), *slot));
    let slots: Vec<usize> = rows.iter().map(|(slot, _)| usize::try_from(*slot).unwrap()).collect();
    assert_eq!(slots, expected);
    assert_eq!(rows.last().unwrap().1.0 - rows[0].1.0, 59);
    let row = site.with_state(move |state| read_url(&state.conn, rows[0].1)).await.unwrap();
    assert_eq!((row.path, row.band), (path(slots[0] / 2), 90));
}
