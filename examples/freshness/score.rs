//! What a policy is measured by, integrated exactly over time.

use crate::world::{DAYS, WARM_UP, World};

/// Figures of one run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score {
    /// Share of the time that a page is what was last fetched.
    pub fresh: f64,
    /// Mean days since the first change that was not fetched.
    pub age: f64,
    /// Mean harmonic number of the changes that were not fetched.
    pub harmonic: f64,
    /// Share of fetches that found a change.
    pub useful: f64,
    /// Longest time between two fetches of a page, in days.
    pub longest: f64,
    /// Due times written per fetch; 0 for policies that keep none.
    pub writes: f64,
}

/// Watches one run.
#[derive(Debug)]
pub struct Watch<'a> {
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
    per: Vec<f64>, n: Vec<f64>,
}

impl<'a> Watch<'a> {
    /// All pages have been fetched at 0.
    pub fn new(world: &'a World) -> Self {
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
            per: vec![0.0; pages], n: vec![0.0; pages],
        }
    }

    /// A fetch: has the page changed since the last one?
    pub fn fetch(&mut self, page: usize, day: f64) -> bool {
        let changed = self.integrate(page, day);
        if day >= WARM_UP {
            self.fetches += 1; self.n[page] += 1.0;
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
            self.harmonic += within(*at, day) / number; self.per[page] += within(*at, day) / number;
        }
        self.longest = self.longest.max(day - self.last[page]);
        self.seen[page] += missed.len();
        self.last[page] = day;
        harmonic > 0.0
    }

    /// The figures of the whole run; `writes` is of the policy.
    pub fn end(mut self, writes: u64) -> Score {
        let mut by = std::collections::BTreeMap::new();
        for page in 0..self.world.pages.len() {
            self.integrate(page, DAYS);
            let c = format!("{:?}", self.world.hosts[self.world.pages[page].host].classes.0);
            let e = by.entry(c).or_insert((0.0, 0.0, 0.0));
            e.0 += 1.0; e.1 += self.per[page]; e.2 += self.n[page];
        }
        if std::env::var("DBG").is_ok() { for (c, (n, h, f)) in by { println!("   {c}: pages {n} harm {:.3} fetches {:.2}", h / n / 80.0, f / n); } }

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
