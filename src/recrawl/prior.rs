//! How fast pages like this one change: pools per host and changefreq.
//!
//! A host's changefreq means what its pages prove it to mean. Until they have
//! proved anything it means what all pages of that changefreq, on all hosts,
//! turned out to do; and until then the interval that the configuration gives
//! the word.
//!
//! Keeps: a rate is positive and finite; with no look at all it is exactly one
//! change in the configured interval.

use std::time::Duration;

use super::model::Evidence;
use super::pack::{numbers, put};
use crate::model::ChangeFreq;

/// What a look leaves of the looks before it, in a pool. It remembers about 100.
const MEMORY: f64 = 0.99;
/// Expected changes with which the rate one level up enters a pool.
const INHERITED: f64 = 1.0;
/// Looks at pages of other hosts that count as one at a page of this host.
const DISTANCE: f64 = 20.0;
/// Compared looks at pages of a host before which what has surfaced of it stays in line for
/// what is left over, however little it seems to be worth.
const KNOWN: f64 = 20.0;

/// Pages whose rates are learned together: by what they claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// No changefreq.
    Absent,
    /// `always` and `hourly`.
    Hourly,
    /// `daily`.
    Daily,
    /// `weekly`.
    Weekly,
    /// `monthly`.
    Monthly,
    /// `yearly` and `never`.
    Yearly,
}

impl Bucket {
    /// Every bucket, in the order in which they are stored.
    pub const ALL: [Self; 6] =
        [Self::Absent, Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly, Self::Yearly];

    /// The bucket of a changefreq.
    pub fn of(changefreq: Option<ChangeFreq>) -> Self {
        match changefreq {
            None => Self::Absent,
            Some(ChangeFreq::Always | ChangeFreq::Hourly) => Self::Hourly,
            Some(ChangeFreq::Daily) => Self::Daily,
            Some(ChangeFreq::Weekly) => Self::Weekly,
            Some(ChangeFreq::Monthly) => Self::Monthly,
            Some(ChangeFreq::Yearly | ChangeFreq::Never) => Self::Yearly,
        }
    }
}

/// Changes of one pool, fading.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Pool {
    /// Changes that looks stand for.
    changes: f64,
    /// Days over which they were seen.
    days: f64,
    /// Looks.
    looks: f64,
}

impl Pool {
    fn learn(&mut self, evidence: &Evidence) {
        self.changes = self.changes * MEMORY + evidence.changes;
        self.days = self.days * MEMORY + evidence.days;
        self.looks = self.looks * MEMORY + 1.0;
    }

    fn rate(&self, inherited: f64) -> f64 {
        (self.changes + INHERITED) / (self.days + INHERITED / inherited)
    }
}

/// The pools of one host, or of all together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Priors([Pool; 6]);

/// Bytes of packed pools.
pub const PACKED: usize = 6 * 3 * 4;

impl Priors {
    /// Takes in what a look taught.
    pub fn learn(&mut self, bucket: Bucket, evidence: &Evidence) {
        self.0[bucket as usize].learn(evidence);
    }

    /// Changes a day of a page of this host. `all` are the pools of all hosts,
    /// `assumed` the interval that the configuration gives its changefreq.
    pub fn rate(&self, all: &Self, bucket: Bucket, assumed: Duration) -> f64 {
        let days = (assumed.as_secs_f64() / 86_400.0).max(1.0 / 86_400.0);
        let (own, all) = (&self.0[bucket as usize], &all.0[bucket as usize]);
        own.rate(all.rate(1.0 / days))
    }

    /// Looks that a page of this host can be judged by: those at its other
    /// pages, of whatever changefreq, and, from afar, those at all others. 0
    /// while no fetcher has compared anything.
    pub fn looks(&self, all: &Self) -> f64 {
        self.own_looks() + all.own_looks() / DISTANCE
    }

    /// Has the host been looked at often enough to be taken for worthless? Pages of a
    /// host are alike by far less than the first looks at some of them make believe.
    pub fn are_known(&self) -> bool {
        self.own_looks() >= KNOWN
    }

    fn own_looks(&self) -> f64 {
        self.0.iter().map(|pool| pool.looks).sum()
    }

    /// The pools as bytes, to be kept with the host.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PACKED);
        for pool in &self.0 {
            for number in [pool.changes, pool.days, pool.looks] {
                put(&mut bytes, number);
            }
        }
        bytes
    }

    /// What [`Self::pack`] wrote; `None` when these bytes are none of its.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let numbers: [f64; 18] = numbers(bytes)?;
        let (pools, _) = numbers.as_chunks::<3>();
        let mut priors = Self::default();
        for (pool, [changes, days, looks]) in priors.0.iter_mut().zip(pools) {
            *pool = Pool { changes: *changes, days: *days, looks: *looks };
        }
        Some(priors)
    }
}

#[cfg(test)]
mod tests;
