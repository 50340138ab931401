//! What could be reached: policies that know all rates, and closed forms.

use crate::policy::{Caps, Policy};
use crate::world::{Poll, Truth, World};

/// What a clairvoyant maximises, hour by hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Freshness, by the exact value of noisy signals.
    Freshness,
    /// Harmonic staleness, with signals as expected changes.
    Harmonic,
    /// Harmonic staleness, deaf to signals.
    HarmonicDeaf,
}

/// Fetches the pages of the highest value, all rates and weights being known.
/// A heuristic where signals count: no proven bound.
#[derive(Debug)]
pub(crate) struct Oracle<'a> {
    goal: Goal,
    world: &'a World,
    seen: Vec<f64>,
    signals: Vec<u32>,
    /// Values, and the page.
    values: Vec<(f64, usize)>,
}

impl<'a> Oracle<'a> {
    /// A clairvoyant in its world.
    pub(crate) fn new(goal: Goal, world: &'a World) -> Self {
        let pages = world.pages.len();
        Self { goal, world, seen: vec![0.0; pages], signals: vec![0; pages], values: vec![] }
    }

    fn value(&self, page: usize, day: f64) -> f64 {
        let truth = self.world.truth(page, day);
        let days = day - self.seen[page];
        let signals = f64::from(self.signals[page]);
        match self.goal {
            Goal::HarmonicDeaf => harmonic(truth.delta * days, truth.delta),
            Goal::Harmonic => harmonic(truth.alpha * days + truth.weight * signals, truth.delta),
            Goal::Freshness => freshness(truth, days, signals),
        }
    }
}

impl Policy for Oracle<'_> {
    fn poll(&mut self, poll: &Poll, _day: f64) {
        for (page, _) in &poll.moved {
            self.signals[*page] += 1;
        }
    }

    fn pick(&mut self, day: f64, most: usize, caps: &mut Caps, picked: &mut Vec<usize>) {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        values.extend((0..self.seen.len()).map(|page| (self.value(page, day), page)));
        let by_value = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0);
        // With caps more than `most` may have to be looked at.
        let enough = if self.world.hosts.iter().any(|host| host.cap.is_some()) {
            values.len()
        } else {
            most.min(values.len())
        };
        if enough < values.len() {
            values.select_nth_unstable_by(enough, by_value);
        } else {
            values.sort_unstable_by(by_value);
        }
        for (_, page) in &values[..enough] {
            let host = self.world.pages[*page].host;
            if picked.len() < most && caps.allows(host) {
                caps.take(host);
                picked.push(*page);
            }
        }
        self.values = values;
    }

    fn settle(&mut self, page: usize, day: f64, _changed: bool) {
        self.seen[page] = day;
        self.signals[page] = 0;
    }
}

fn harmonic(expected: f64, delta: f64) -> f64 {
    (expected + (-expected).exp_m1()) / delta
}

/// The exact gain in freshness under noisy signals: each one ages the page by
/// its weight over the silent rate (Busa-Fekete and others, 2025).
fn freshness(truth: Truth, days: f64, signals: f64) -> f64 {
    let Truth { delta, alpha, false_rate, weight } = truth;
    if weight <= 0.0 {
        let x = delta * days;
        return (1.0 - (1.0 + x) * (-x).exp()) / delta;
    }
    let ageing = weight / alpha;
    let age = days + signals * ageing;
    let told = delta - alpha + false_rate;
    let (mut worth, mut time) = (0.0, 0.0);
    let mut factor = 1.0 / (alpha + told);
    let mut number = 0;
    let mut left = age;
    while left > 0.0 && number < 12 {
        worth += factor * tail(number, (alpha + told) * left);
        time += tail(number, told * left) / told;
        factor *= false_rate / (alpha + told);
        number += 1;
        left -= ageing;
    }
    worth - (-alpha * age).exp() * time
}

/// `1 - exp(-z) sum of z^j / j!` for `j` to `number`.
fn tail(number: i32, z: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for j in 1..=number {
        term *= z / f64::from(j);
        sum += term;
    }
    1.0 - (-z).exp() * sum
}

/// The optimum of mean freshness for known rates, without signals.
#[derive(Debug)]
pub(crate) struct Optimum {
    /// Days between two fetches of each page; infinite for some.
    pub(crate) intervals: Vec<f64>,
    /// The freshness that they reach.
    pub(crate) freshness: f64,
}

/// Cho and Garcia-Molina's optimum by water-filling: all pages that are fetched
/// at all have the same marginal gain.
pub(crate) fn optimum(world: &World, budget: f64) -> Optimum {
    let rates: Vec<f64> = (0..world.pages.len()).map(|page| world.truth(page, 0.0).delta).collect();
    // A world's number of pages fits into an f64.
    #[allow(clippy::cast_precision_loss)]
    let pages = rates.len() as f64;
    let (mut low, mut high) = (1e-9, 1e4);
    for _ in 0..50 {
        let price = f64::sqrt(low * high);
        let spent: f64 = rates.iter().map(|delta| delta / changes_for(price * delta)).sum();
        if spent > budget * pages { low = price } else { high = price }
    }
    let mut freshness = 0.0;
    let mut intervals = Vec::with_capacity(rates.len());
    for delta in rates {
        let x = changes_for(high * delta);
        intervals.push(x / delta);
        freshness += if x.is_finite() { -(-x).exp_m1() / x } else { 0.0 };
    }
    Optimum { intervals, freshness: freshness / pages }
}

/// The `x` for which `1 - (1 + x) exp(-x)` is `gain`; infinite from 1 on.
fn changes_for(gain: f64) -> f64 {
    if gain >= 1.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, 60.0);
    for _ in 0..36 {
        let x = f64::midpoint(low, high);
        if 1.0 - (1.0 + x) * f64::exp(-x) < gain { low = x } else { high = x }
    }
    high
}
