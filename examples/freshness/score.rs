//! What a policy is measured by, integrated exactly over time.

use crate::world::{DAYS, WARM_UP, World};

/// Figures of one run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Score {
    /// Share of the time that a page is what was last fetched.
    pub(crate) fresh: f64,
    /// Mean days since the first change that was not fetched.
    pub(crate) age: f64,
    /// Mean harmonic number of the changes that were not fetched.
    pub(crate) harmonic: f64,
    /// Share of fetches that found a change.
    pub(crate) useful: f64,
    /// Longest time between two fetches of a page, in days.
    pub(crate) longest: f64,
    /// Rows written per fetch; 0 for policies that keep none.
    pub(crate) writes: f64,
}

/// Watches one run.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    world: &'a World,
    last: Vec<f64>,
    /// Changes before the last fetch.
    seen: Vec<usize>,
    fresh: f64,
    age: f64,
    harmonic: f64,
    fetches: u64,
    useful: u64,
    longest: f64,
}

impl<'a> Watch<'a> {
    /// All pages have been fetched at 0.
    pub(crate) fn new(world: &'a World) -> Self {
        let pages = world.pages.len();
        Self {
            world,
            last: vec![0.0; pages],
            seen: vec![0; pages],
            fresh: 0.0,
            age: 0.0,
            harmonic: 0.0,
            fetches: 0,
            useful: 0,
            longest: 0.0,
        }
    }

    /// A fetch: has the page changed since the last one?
    pub(crate) fn fetch(&mut self, page: usize, day: f64) -> bool {
        let changed = self.integrate(page, day);
        if day >= WARM_UP {
            self.fetches += 1;
            self.useful += u64::from(changed);
        }
        changed
    }

    fn integrate(&mut self, page: usize, day: f64) -> bool {
        let changes = &self.world.pages[page].changes;
        let missed = &changes[self.seen[page]..];
        let missed = &missed[..missed.partition_point(|at| *at <= day)];
        let within = |from: f64, to: f64| (to.max(WARM_UP) - from.max(WARM_UP)).max(0.0);
        let first = missed.first().copied().unwrap_or(day);
        self.fresh += within(self.last[page], first);
        // The integral of the time since the first change, from the warm-up on.
        let (young, old) = (first.max(WARM_UP) - first, day.max(WARM_UP) - first);
        self.age += (old * old - young * young) / 2.0;
        let mut harmonic = 0.0;
        for (number, at) in missed.iter().enumerate() {
            // Changes of one page between two fetches are few.
            #[allow(clippy::cast_precision_loss)]
            let number = (number + 1) as f64;
            harmonic += 1.0 / number;
            // Each change adds its part from then on.
            self.harmonic += within(*at, day) / number;
        }
        self.longest = self.longest.max(day - self.last[page]);
        self.seen[page] += missed.len();
        self.last[page] = day;
        harmonic > 0.0
    }

    /// The figures of the whole run; `writes` is of the policy.
    pub(crate) fn end(mut self, writes: u64) -> Score {
        for page in 0..self.world.pages.len() {
            self.integrate(page, DAYS);
        }
        // Counts of a run fit into the 52 bits of an f64.
        #[allow(clippy::cast_precision_loss)]
        let (pages, fetches, useful, writes) = (
            self.world.pages.len() as f64,
            self.fetches.max(1) as f64,
            self.useful as f64,
            writes as f64,
        );
        let time = pages * (DAYS - WARM_UP);
        Score {
            fresh: self.fresh / time,
            age: self.age / time,
            harmonic: self.harmonic / time,
            useful: useful / fetches,
            longest: self.longest,
            writes: writes / fetches,
        }
    }
}
