//! The whole at a glance, counted seldom.
//!
//! Counting takes as long as there are rows. Where there are few, each asker
//! gets a count of his own; where there are many, the last one, and no more
//! than one count goes on at a time, in the background, however many ask and
//! however impatient they are. An operator's order is seen in the next answer.
//!
//! Whoever asks when the last count is old waits for the next, but for a tenth of
//! its age at most: who asks all the time is answered at once, and who asks for the
//! first time since yesterday is not told of yesterday.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::views::{QueueView, StatusView};
use super::{Store, StoreError};

/// Rows that are counted anew for each who asks.
const FEW: u64 = 50_000;
/// A count of more rows holds for this long at least.
const HOLDS: Duration = Duration::from_secs(10);
/// And so many times as long as it took.
const SHARE: u32 = 50;
/// For a new count one waits for this share of the age of the last one,
const WORTH: u32 = 10;
/// and never longer than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last count.
#[derive(Debug, Default)]
pub(super) struct Figures {
    last: watch::Sender<Option<Result<Arc<Counted>, StoreError>>>,
    is_counting: AtomicBool,
    /// Orders that change much at once, so far.
    orders: AtomicU64,
}

#[derive(Debug)]
struct Counted {
    view: StatusView,
    /// Steady time.
    at: Timestamp,
    took: Duration,
    /// Orders that it has seen.
    orders: u64,
}

impl Counted {
    fn is_small(&self) -> bool {
        let of_queues = self.view.queues.iter().map(|queue| {
            queue.queued
                + queue.leased
                + queue.dead
                + queue.parked
                + queue.blocked
                + queue.forbidden
        });
        let polls: u64 = self.view.polls_24h.values().sum();
        self.view.urls.max(of_queues.sum()) + self.view.sources + polls <= FEW
    }

    fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.at)).unwrap_or_default()
    }

    fn is_old(&self, now: Timestamp) -> bool {
        self.age(now) >= HOLDS.max(self.took * SHARE)
    }
}

/// How long one waits for a newer count where the last is as old as this.
fn patience(age: Duration) -> Duration {
    (age / WORTH).min(PATIENCE)
}

impl Figures {
    /// Somebody has just changed much at once, and will look at what came of it.
    pub(super) fn outdate(&self) {
        self.orders.fetch_add(1, Ordering::AcqRel);
    }
}

impl Store {
    /// The whole at a glance: as it is while it is small, else as it was a few
    /// seconds ago. [`StatusView::now`] says when that was.
    pub async fn recent_status(&self) -> Result<StatusView, StoreError> {
        self.status_within(patience).await
    }

    /// The same as it was counted last, however long ago, for those who ask all the time.
    pub async fn last_status(&self) -> Result<StatusView, StoreError> {
        self.status_within(|_| Duration::ZERO).await
    }

    async fn status_within(
        &self,
        patience: impl Fn(Duration) -> Duration,
    ) -> Result<StatusView, StoreError> {
        let figures = &self.inner.figures;
        let mut last = figures.last.subscribe();
        let mut has_waited = false;
        loop {
            let orders = figures.orders.load(Ordering::Acquire);
            let known = last.borrow_and_update().clone();
            match known {
                Some(Ok(counted)) if counted.orders >= orders => {
                    if counted.is_small() {
                        let counted = self.count().await?;
                        if !counted.is_small() {
                            // It has grown: who asks next gets this one.
                            figures.last.send_replace(Some(Ok(counted.clone())));
                        }
                        return Ok(counted.view.clone());
                    }
                    let now = self.inner.clock.steady();
                    if has_waited || !counted.is_old(now) {
                        return Ok(counted.view.clone());
                    }
                    self.count_aside();
                    has_waited = true;
                    let next = tokio::time::timeout(patience(counted.age(now)), last.changed());
                    if next.await.is_err() {
                        return Ok(counted.view.clone());
                    }
                    continue;
                }
                Some(Err(error)) if has_waited => return Err(error),
                _ => {}
            }
            self.count_aside();
            // The sender cannot go away: we hold it.
            let _ = last.changed().await;
            has_waited = true;
        }
    }

    /// Counts of the queue, as recent as [`Self::recent_status`].
    pub async fn recent_queue(&self, crawl: Option<&str>) -> Result<Vec<QueueView>, StoreError> {
        let mut queues = self.recent_status().await?.queues;
        let Some(crawl) = crawl else {
            let mut all = Vec::new();
            for name in self.frontier_crawls().await? {
                let counted = queues.iter().position(|queue| queue.crawl == name);
                match counted.map(|at| queues.swap_remove(at)) {
                    Some(queue) => all.push(queue),
                    // One that is newer than the count has little to be counted.
                    None => match self.queue(Some(name)).await {
                        Err(StoreError::NotFound(_)) => {} // It has just gone.
                        counted => all.extend(counted?),
                    },
                }
            }
            return Ok(all);
        };
        queues.retain(|queue| queue.crawl == crawl);
        if queues.is_empty() {
            // Not there, or new.
            return self.queue(Some(crawl.to_owned())).await;
        }
        Ok(queues)
    }

    async fn count(&self) -> Result<Arc<Counted>, StoreError> {
        let figures = &self.inner.figures;
        let orders = figures.orders.load(Ordering::Acquire);
        let began = self.inner.clock.steady();
        let view = self.status().await?;
        let at = self.inner.clock.steady();
        let took = Duration::try_from(at.duration_since(began)).unwrap_or_default();
        Ok(Arc::new(Counted { view, at, took, orders }))
    }

    /// Counts in a task of its own, which nobody who gives up waiting ends.
    fn count_aside(&self) {
        if self.inner.figures.is_counting.swap(true, Ordering::AcqRel) {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            let counted = store.count().await;
            let figures = &store.inner.figures;
            // In this order: who is woken by the count may need another.
            figures.is_counting.store(false, Ordering::Release);
            figures.last.send_replace(Some(counted));
        });
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::metrics::Metrics;

    const SITE: &str = "[[site]]\nname = \"s\"\nurl = \"https://a.example/\"\n";

    struct World {
        store: Store,
        clock: Clock,
        folder: tempfile::TempDir,
    }

    fn world() -> World {
        let folder = tempfile::TempDir::new().unwrap();
        let mut config = Config::from_toml_str(SITE).unwrap();
        config.daemon.data_dir = folder.path().to_owned();
        let clock = Clock::manual("2026-11-21T12:00:00Z".parse().unwrap());
        let store = Store::open(&config, clock.clone(), Arc::new(Metrics::new())).unwrap();
        World { store, clock, folder }
    }

    impl World {
        fn set_urls(&self, urls: u64) {
            let conn = Connection::open(self.folder.path().join(super::super::FILE)).unwrap();
            conn.execute("UPDATE sites SET urls = ?1", [urls.cast_signed()]).unwrap();
        }

        async fn urls(&self) -> u64 {
            self.store.recent_status().await.unwrap().urls
        }
    }

    #[tokio::test]
    async fn few_rows_are_counted_for_each_who_asks() {
        let world = world();
        for urls in [0, 1, 49_000, 2] {
            world.set_urls(urls);
            assert_eq!(world.urls().await, urls);
        }
    }

    #[tokio::test]
    async fn many_rows_are_counted_every_few_seconds_however_often_someone_asks() {
        let world = world();
        world.set_urls(60_000);
        assert_eq!(world.urls().await, 60_000);
        world.set_urls(70_000);
        world.clock.advance(HOLDS.saturating_sub(Duration::from_millis(1)));
        for _ in 0..100 {
            assert_eq!(world.urls().await, 60_000);
        }
        world.clock.advance(Duration::from_millis(1));
        let mut next = world.store.inner.figures.last.subscribe();
        next.mark_unchanged();
        // Whoever asks then has it counted aside, and waits for it a little.
        assert!([60_000, 70_000].contains(&world.urls().await));
        next.changed().await.unwrap();
        assert_eq!(world.urls().await, 70_000);
    }

    #[tokio::test]
    async fn who_asks_for_the_first_time_for_long_is_told_of_now() {
        let world = world();
        world.set_urls(60_000);
        assert_eq!(world.urls().await, 60_000);
        world.set_urls(70_000);
        world.clock.advance(Duration::from_secs(86_400));
        assert_eq!(world.urls().await, 70_000);
    }

    #[test]
    fn one_waits_for_a_tenth_of_the_age_of_what_there_is() {
        for (age, seconds) in [(0, 0), (10, 1), (60, 6), (100, 10), (86_400, 10)] {
            assert_eq!(patience(Duration::from_secs(age)), Duration::from_secs(seconds));
        }
    }

    #[tokio::test]
    async fn a_store_that_grew_is_counted_no_more_often_than_any_of_its_size() {
        let world = world();
        for (urls, seen) in [(10, 10), (60_000, 60_000), (70_000, 60_000)] {
            world.set_urls(urls);
            assert_eq!(world.urls().await, seen);
        }
    }

    #[tokio::test]
    async fn an_order_is_seen_in_the_next_answer() {
        let world = world();
        world.set_urls(60_000);
        assert!(!world.store.recent_queue(None).await.unwrap()[0].paused);
        world.store.pause_crawl("default".to_owned(), true).await.unwrap();
        assert!(world.store.recent_queue(Some("default")).await.unwrap()[0].paused);
    }

    #[tokio::test]
    async fn a_crawl_that_is_newer_than_the_count_is_counted() {
        let world = world();
        world.set_urls(60_000);
        let names = async || -> Vec<String> {
            let queues = world.store.recent_queue(None).await.unwrap();
            queues.into_iter().map(|queue| queue.crawl).collect()
        };
        assert_eq!(names().await, ["default"]);
        let conn = Connection::open(world.folder.path().join(super::super::FILE)).unwrap();
        conn.execute("INSERT INTO crawls (name) VALUES ('new')", ()).unwrap();
        assert_eq!(names().await, ["default", "new"]);
        conn.execute("DELETE FROM crawls WHERE name = 'new'", ()).unwrap();
        assert_eq!(names().await, ["default"]);
    }

    #[tokio::test]
    async fn a_crawl_that_is_not_there_is_said_to_be_so() {
        let world = world();
        world.set_urls(60_000);
        let refused = world.store.recent_queue(Some("other")).await;
        assert!(matches!(refused, Err(StoreError::NotFound(_))), "{refused:?}");
    }
}
