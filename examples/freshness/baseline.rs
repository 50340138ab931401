//! What others do: rules that give each page an interval, served by due time.
//!
//! All of them use their whole budget: when nothing is due, the page that is
//! due next is fetched, so that no rule loses by waiting.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use sitemapd::model::ChangeFreq;

use crate::policy::{Caps, Policy};
use crate::random::Random;
use crate::world::{Poll, World};

/// How a rule sets the next interval, in days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Round robin.
    Uniform,
    /// The interval that changefreq stands for.
    Changefreq,
    /// In proportion to the true rate of change.
    Proportional,
    /// Apache Nutch's `AdaptiveFetchSchedule` (changed x 0.8, unchanged x 1.4,
    /// no `sync_delta`), begun as its `SitemapProcessor` does: at changefreq's
    /// interval, or 30 days.
    Nutch,
    /// The same, begun at 7 days whatever changefreq says.
    NutchFromWeekly,
    /// `StormCrawler`'s `AdaptiveScheduler`: changed to the middle between
    /// interval and minimum, unchanged x 1.5, an hour to 14 days.
    StormCrawler,
    /// Whatever has a newer lastmod first, in the order in which it showed;
    /// round robin with what is left.
    Lastmod,
    /// The optimum of freshness for known rates without signals: intervals by
    /// water-filling; pages that change too fast are never fetched.
    Clairvoyant,
}

impl Rule {
    fn first(self, world: &World, page: usize, optimum: &[f64]) -> f64 {
        let known = &world.pages[page];
        match self {
            Self::Uniform | Self::Lastmod => 0.0,
            Self::Changefreq => by_changefreq(known.changefreq, 14.0),
            Self::Proportional => 1.0 / world.truth(page, 0.0).delta,
            Self::Nutch => by_changefreq(known.changefreq, 30.0),
            Self::NutchFromWeekly => 7.0,
            Self::StormCrawler => 1.0,
            Self::Clairvoyant => optimum[page],
        }
    }

    fn next(self, interval: f64, changed: bool) -> f64 {
        match (self, changed) {
            (Self::Nutch | Self::NutchFromWeekly, true) => (interval * 0.8).max(60.0 / 86_400.0),
            (Self::Nutch | Self::NutchFromWeekly, false) => (interval * 1.4).min(365.0),
            (Self::StormCrawler, true) => 0.5 * interval + 0.5 / 24.0,
            (Self::StormCrawler, false) => (interval * 1.5).min(14.0),
            _ => interval,
        }
    }
}

fn by_changefreq(word: Option<ChangeFreq>, absent: f64) -> f64 {
    match word {
        None => absent,
        Some(ChangeFreq::Always | ChangeFreq::Hourly) => 1.0 / 24.0,
        Some(ChangeFreq::Daily) => 1.0,
        Some(ChangeFreq::Weekly) => 7.0,
        Some(ChangeFreq::Monthly) => 30.0,
        Some(ChangeFreq::Yearly | ChangeFreq::Never) => 365.0,
    }
}

/// A rule at work.
#[derive(Debug)]
pub(crate) struct Baseline {
    rule: Rule,
    hosts: Vec<usize>,
    intervals: Vec<f64>,
    seen: Vec<f64>,
    /// By due time, whose bits order as it does: it is never negative.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Pages with a newer lastmod, by when it showed.
    signalled: BTreeSet<(u64, usize)>,
    since: Vec<Option<u64>>,
}

impl Baseline {
    /// A rule in a world; `optimum` are the intervals of the clairvoyant one.
    pub(crate) fn new(rule: Rule, world: &World, optimum: &[f64]) -> Self {
        let pages = world.pages.len();
        let intervals: Vec<f64> = (0..pages).map(|page| rule.first(world, page, optimum)).collect();
        let mut random = Random::new(world.seed, 2);
        // As if all had been at it for long: no herd at the beginning.
        let due = (0..pages)
            .filter(|page| intervals[*page].is_finite())
            .map(|page| Reverse(((intervals[page] * random.unit()).to_bits(), page)))
            .collect();
        Self {
            rule,
            hosts: world.pages.iter().map(|page| page.host).collect(),
            intervals,
            seen: vec![0.0; pages],
            due,
            signalled: BTreeSet::new(),
            since: vec![None; pages],
        }
    }
}

impl Policy for Baseline {
    fn poll(&mut self, poll: &Poll, day: f64) {
        if self.rule != Rule::Lastmod {
            return;
        }
        for (page, _) in &poll.moved {
            if self.since[*page].is_none() {
                self.since[*page] = Some(day.to_bits());
                self.signalled.insert((day.to_bits(), *page));
            }
        }
    }

    fn pick(&mut self, _day: f64, most: usize, caps: &mut Caps, picked: &mut Vec<usize>) {
        for (_, page) in &self.signalled {
            if picked.len() < most && caps.allows(self.hosts[*page]) {
                caps.take(self.hosts[*page]);
                picked.push(*page);
            }
        }
        let mut aside = Vec::new();
        while picked.len() < most
            && let Some(Reverse((due, page))) = self.due.pop()
        {
            if self.rule == Rule::Lastmod && f64::from_bits(due) < self.seen[page] {
                // Fetched for its lastmod meanwhile: to the end of the round.
                self.due.push(Reverse((self.seen[page].to_bits(), page)));
            } else if caps.allows(self.hosts[page]) && !picked.contains(&page) {
                caps.take(self.hosts[page]);
                picked.push(page);
            } else {
                aside.push(Reverse((due, page)));
            }
        }
        self.due.extend(aside);
    }

    fn settle(&mut self, page: usize, day: f64, changed: bool) {
        self.seen[page] = day;
        if let Some(since) = self.since[page].take() {
            self.signalled.remove(&(since, page));
            // Its place in the round is corrected when it comes up.
            if self.due.iter().any(|Reverse((_, other))| *other == page) {
                return;
            }
        }
        self.intervals[page] = self.rule.next(self.intervals[page], changed);
        self.due.push(Reverse(((day + self.intervals[page]).to_bits(), page)));
    }
}
