//! The sums that the rows of sites keep: URLs, their priorities, sources.
//!
//! In a file they are written as they come. On a server several daemons add to
//! one row, and each holds it until it commits: so they are written last, in the
//! order of sites, and nobody waits for anybody in a circle.

use std::collections::BTreeMap;

use super::sql::params;
use super::state::State;
use super::{StoreError, engine};
use crate::model::SiteId;

/// What is added to the sums of one site.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) urls: i64,
    pub(super) priorities: i64,
    pub(super) sources: i64,
}

/// What has yet to be written.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// By the job that runs.
    job: BTreeMap<SiteId, Sum>,
    /// By those before, in this transaction.
    kept: BTreeMap<SiteId, Sum>,
}

impl Sum {
    fn add(&mut self, more: Self) {
        self.urls += more.urls;
        self.priorities += more.priorities;
        self.sources += more.sources;
    }
}

impl Sums {
    /// The job that ran stays.
    pub(super) fn keep(&mut self) {
        for (site, sum) in std::mem::take(&mut self.job) {
            self.kept.entry(site).or_default().add(sum);
        }
    }

    /// The job that ran is taken back.
    pub(super) fn take_back(&mut self) {
        self.job.clear();
    }

    /// The transaction is taken back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What is to be added to what the table says of a site.
    pub(super) fn of(&self, site: SiteId) -> Sum {
        let mut sum = Sum::default();
        for part in [&self.job, &self.kept] {
            sum.add(part.get(&site).copied().unwrap_or_default());
        }
        sum
    }
}

impl State {
    /// Adds to the sums of a site.
    pub(super) fn add_to_site(&mut self, site: SiteId, sum: Sum) -> Result<(), StoreError> {
        self.learning.means.remove(&site);
        if self.conn.embedded().is_some() {
            return self.write_sum(site, sum);
        }
        self.sums.job.entry(site).or_default().add(sum);
        Ok(())
    }

    /// Writes what the jobs of this transaction have added.
    pub(super) fn write_sums(&mut self) -> Result<(), StoreError> {
        for (site, sum) in std::mem::take(&mut self.sums.kept) {
            self.write_sum(site, sum)?;
        }
        Ok(())
    }

    fn write_sum(&self, site: SiteId, sum: Sum) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sites SET urls = urls + ?2, priorities = priorities + ?3,
                     sources = sources + ?4 WHERE id = ?1",
            )
            .and_then(|mut update| {
                update.send(params![site.0, sum.urls, sum.priorities, sum.sources])
            })
            .map_err(engine)
    }
}
