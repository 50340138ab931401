//! Sums that rows keep to which several daemons add: of a site its URLs, their
//! priorities and its sources, of a queue of the frontier the URLs completed.
//!
//! In a file they are written as they come. On a server each holds a row that it
//! adds to until it commits: so they are written last, in the order of queues,
//! then of sites, and nobody waits for anybody in a circle.

use std::collections::BTreeMap;

use super::sql::params;
use super::state::State;
use super::{StoreError, engine};
use crate::model::{CrawlId, SiteId};

/// What is added to the sums of one site.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) urls: i64,
    /// Of these, what no source lists.
    pub(super) unlisted: i64,
    pub(super) priorities: i64,
    pub(super) sources: i64,
}

/// A queue of the frontier.
pub(super) type Queue = (CrawlId, String);

#[derive(Debug, Default)]
struct Added {
    sites: BTreeMap<SiteId, Sum>,
    completed: BTreeMap<Queue, i64>,
}

/// What has yet to be written.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// By the job that runs.
    job: Added,
    /// By those before, in this transaction.
    kept: Added,
}

impl Sum {
    fn add(&mut self, more: Self) {
        self.urls += more.urls;
        self.unlisted += more.unlisted;
        self.priorities += more.priorities;
        self.sources += more.sources;
    }
}

impl Sums {
    /// The job that ran stays.
    pub(super) fn keep(&mut self) {
        let Added { sites, completed } = std::mem::take(&mut self.job);
        for (site, sum) in sites {
            self.kept.sites.entry(site).or_default().add(sum);
        }
        for (queue, more) in completed {
            *self.kept.completed.entry(queue).or_default() += more;
        }
    }

    /// The job that ran is taken back.
    pub(super) fn take_back(&mut self) {
        self.job = Added::default();
    }

    /// The transaction is taken back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What is to be added to what the table says of a site.
    pub(super) fn of(&self, site: SiteId) -> Sum {
        let mut sum = Sum::default();
        for part in [&self.job, &self.kept] {
            sum.add(part.sites.get(&site).copied().unwrap_or_default());
        }
        sum
    }

    /// The same of a queue.
    pub(super) fn completed(&self, queue: &Queue) -> i64 {
        let of = |part: &Added| part.completed.get(queue).copied().unwrap_or(0);
        of(&self.job) + of(&self.kept)
    }

    /// A crawl goes, and its queues with it.
    pub(super) fn forget_queues(&mut self, crawl: CrawlId) {
        for part in [&mut self.job, &mut self.kept] {
            part.completed.retain(|queue, _| queue.0 != crawl);
        }
    }
}

impl State {
    /// Adds to the sums of a site.
    pub(super) fn add_to_site(&mut self, site: SiteId, sum: Sum) -> Result<(), StoreError> {
        self.learning.means.remove(&site);
        if self.conn.embedded().is_some() {
            return self.write_sum(site, sum);
        }
        self.sums.job.sites.entry(site).or_default().add(sum);
        Ok(())
    }

    /// So many more (or fewer) URLs of a queue are completed.
    pub(super) fn add_completed(&mut self, queue: Queue, more: i64) -> Result<(), StoreError> {
        if self.conn.embedded().is_some() {
            return self.write_completed(&queue, more);
        }
        *self.sums.job.completed.entry(queue).or_default() += more;
        Ok(())
    }

    /// Writes what the jobs of this transaction have added.
    pub(super) fn write_sums(&mut self) -> Result<(), StoreError> {
        let Added { sites, completed } = std::mem::take(&mut self.sums.kept);
        for (queue, more) in completed {
            self.write_completed(&queue, more)?;
        }
        for (site, sum) in sites {
            // Whoever asked for it since has what the table said before.
            self.learning.means.remove(&site);
            self.write_sum(site, sum)?;
        }
        Ok(())
    }

    fn write_completed(&self, queue: &Queue, more: i64) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "INSERT INTO frontier_queues (crawl_id, name, completed) VALUES (?1, ?2, CASE WHEN CAST(?3 AS BIGINT) > 0 THEN ?3 ELSE 0 END)
                 ON CONFLICT (crawl_id, name) DO UPDATE SET
                     completed = /*lite*/ max /*end*/ /*pg: GREATEST */ (frontier_queues.completed + ?3, 0)",
            )
            .and_then(|mut upsert| upsert.send(params![queue.0.0, queue.1, more]))
            .map_err(engine)
    }

    fn write_sum(&self, site: SiteId, sum: Sum) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sites SET urls = urls + ?2, priorities = priorities + ?3,
                     sources = sources + ?4, unlisted = unlisted + ?5 WHERE id = ?1",
            )
            .and_then(|mut update| {
                let Sum { urls, unlisted, priorities, sources } = sum;
                update.send(params![site.0, urls, priorities, sources, unlisted])
            })
            .map_err(engine)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::metrics::Metrics;
    use crate::store::Store;
    use crate::store::writer::Lane;

    #[tokio::test]
    async fn the_mean_priority_of_a_site_is_never_that_of_before_its_sums_were_written() {
        let dir = tempfile::TempDir::new().unwrap();
        let text = "[[site]]\nname = \"a\"\nurl = \"http://a.test/\"\n";
        let mut config = Config::from_toml_str(text).unwrap();
        config.daemon.data_dir = dir.path().join("data");
        let clock = Clock::manual("2026-11-21T00:00:00Z".parse().unwrap());
        let store = Store::open(&config, clock, Arc::new(Metrics::new())).unwrap();
        let means = store.write(Lane::Hot, |state| {
            let site = state.site_named("a")?;
            // As on a server, and somebody asks before it is written.
            let sum = Sum { urls: 1, priorities: 1_000, ..Sum::default() };
            state.sums.job.sites.insert(site, sum);
            state.sums.keep();
            let before = state.mean_priority(Some(site))?;
            state.write_sums()?;
            Ok((before, state.mean_priority(Some(site))?))
        });
        assert_eq!(means.await.unwrap(), (0.5, 1.0));
    }
}
