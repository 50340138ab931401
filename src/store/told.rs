//! What jobs have to count for `/metrics`: counted once it is committed. A fetcher
//! whose call found the disk full asks again every few seconds, and each time nothing
//! came of it.

use std::time::Duration;

use super::views::Counts;
use crate::metrics::{Metrics, Way};
use crate::model::Outcome;

/// Something to be counted.
#[derive(Debug)]
pub(super) enum Count {
    /// Leases were settled so.
    Settled(Option<Outcome>, u64),
    /// Leases have expired; URLs were given up with that.
    Expired(u64, u64),
    /// URLs were given up by what was reported of them.
    DeadLettered(u64),
    /// Changes that no poll has brought.
    Changed(Counts),
    /// URLs of a crawl came along a part of their way in these times.
    Came(Way, String, Vec<Duration>),
}

/// What has yet to be counted.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By the job that runs.
    job: Vec<Count>,
    /// By those before, in this transaction.
    kept: Vec<Count>,
}

impl Told {
    pub(super) fn tell(&mut self, count: Count) {
        self.job.push(count);
    }

    /// The job that ran stays.
    pub(super) fn keep(&mut self) {
        self.kept.append(&mut self.job);
    }

    /// The job that ran is taken back.
    pub(super) fn take_back(&mut self) {
        self.job.clear();
    }

    /// The transaction is taken back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The transaction is committed.
    pub(super) fn count(&mut self, metrics: &Metrics) {
        for count in self.kept.drain(..) {
            match count {
                Count::Settled(outcome, leases) => metrics.settled(outcome, leases),
                Count::Expired(leases, dead) => metrics.expired(leases, dead),
                Count::DeadLettered(urls) => metrics.dead_lettered(urls),
                Count::Changed(counts) => metrics.changed(&counts),
                Count::Came(way, crawl, times) => metrics.came(way, &crawl, times.into_iter()),
            }
        }
    }
}
