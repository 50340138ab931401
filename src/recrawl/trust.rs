//! How far signals are believed: per source, its host, and all hosts.
//!
//! A signal of weight `b` is right with probability `1 - exp(-b)`. Eight values
//! of that probability are held against each other by how well they explain
//! what looks found; the weight is that of their mean. What a source has not
//! proved itself it inherits from its host, and the host from all hosts; old
//! looks fade, so a host that changes its habit is learned anew.
//!
//! Keeps: weights lie within 0 and [`MOST`]; a kind that has lost all trust
//! pulls no URL forward, and goes on being learned. Which kind a lastmod is
//! counted as is decided by `habit`.

use super::model::{Beliefs, Evidence};
use super::pack::{numbers, put};
use super::signal::{PerSignal, Signal};

/// The largest weight there is: right 99 times of 100.
pub const MOST: f64 = 4.605_170_185_988_092;
/// Right less than one time in ten, a signal is counted and pulls nothing.
pub const GONE: f64 = 0.105;
/// Right every second time, a stamp is believed.
pub const PROVEN: f64 = std::f64::consts::LN_2;
/// What a look leaves of the looks before it. It remembers about 50.
const MEMORY: f64 = 0.98;
/// Looks that the record one level up is worth, at most.
const INHERITED: f64 = 4.0;
/// How much less likely than the best a value may become: by what a habit that
/// is dropped can be unlearned.
const DEEPEST: f64 = 12.0;

/// Values that the probability of a signal to be right can take.
const RIGHT: [f64; 8] = [0.0, 0.05, 0.15, 0.35, 0.6, 0.8, 0.92, 0.99];

/// How likely each value is while nobody has looked, by kind: a lastmod is
/// right six times of ten, a stamp hardly ever, a moved entry is half known,
/// and a push is somebody's deliberate act.
const ASSUMED: PerSignal<[f64; 8]> = PerSignal([
    [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 1.0],
    [12.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5],
    [2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.5],
    [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 2.0],
]);

/// What looks said of one kind of signal, fading.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Tally {
    /// By how much each value of [`RIGHT`] explains the looks worse than the
    /// best does: differences of log-likelihoods, from 0 on.
    worse: [f64; 8],
    /// Looks at signalled pages that found a change.
    hits: f64,
    /// Looks at signalled pages.
    looks: f64,
}

impl Tally {
    /// `others` is what was to be expected but for these `count` signals.
    fn learn(&mut self, others: f64, count: f64, changed: bool) {
        for (worse, right) in self.worse.iter_mut().zip(RIGHT) {
            let expected = others + count * weight_of(right);
            // The log of the probability of what was found.
            let surprise = if changed { -(-(-expected).exp_m1()).ln() } else { expected };
            *worse = *worse * MEMORY + surprise;
        }
        let best = self.worse.iter().copied().fold(f64::INFINITY, f64::min);
        for worse in &mut self.worse {
            *worse = (*worse - best).min(DEEPEST);
        }
        self.hits = self.hits * MEMORY + f64::from(u8::from(changed));
        self.looks = self.looks * MEMORY + 1.0;
    }

    /// Adds this record to others', at the worth of so many looks at most.
    fn add_to(&self, worse: &mut [f64; 8], most: f64) {
        let share = if self.looks > most { most / self.looks } else { 1.0 };
        for (sum, own) in worse.iter_mut().zip(self.worse) {
            *sum += own * share;
        }
    }
}

/// The trust in one source, one host, or all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Trust(PerSignal<Tally>);

/// Numbers that one kind of signal takes.
const NUMBERS: usize = 10;
/// Bytes of packed trust.
pub const PACKED: usize = 4 * NUMBERS * 4;

/// What can be told of the trust in one kind of signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// How likely one signal is right, 0 to 1.
    pub right: f64,
    /// Looks at signalled pages that found a change, of the last fifty or so.
    pub hits: f64,
    /// Looks at signalled pages, of the last fifty or so.
    pub looks: f64,
}

impl Trust {
    /// Takes in what a look taught. `beliefs` are those it was made with.
    pub fn learn(&mut self, evidence: &Evidence, beliefs: &Beliefs) {
        for (signal, count) in evidence.signals.iter().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            // A page that can change by itself within a second is the least
            // that is ever expected, so that no logarithm is infinite.
            let others = (evidence.expected - count * beliefs.weights[signal]).max(1e-6);
            self.0[signal].learn(others, count, evidence.changed);
        }
    }

    /// The weights as learned: of what is listed by a source, from the source's
    /// own record, its host's, and that of all hosts.
    pub fn weights(source: &Self, host: &Self, all: &Self) -> PerSignal<f64> {
        PerSignal::from_fn(|signal| {
            let mut worse = [0.0; 8];
            all.0[signal].add_to(&mut worse, INHERITED);
            host.0[signal].add_to(&mut worse, INHERITED * 2.0);
            source.0[signal].add_to(&mut worse, f64::INFINITY);
            let (mut sum, mut mean) = (0.0, 0.0);
            for ((worse, right), assumed) in worse.iter().zip(RIGHT).zip(ASSUMED[signal]) {
                let likely = assumed * (-worse).exp();
                sum += likely;
                mean += likely * right;
            }
            weight_of(mean / sum)
        })
    }

    /// What can be told of a kind of signal, with the weight as learned.
    pub fn record(&self, signal: Signal, weight: f64) -> Record {
        let tally = &self.0[signal];
        Record { right: -(-weight).exp_m1(), hits: tally.hits, looks: tally.looks }
    }

    /// The record as bytes, to be kept with the source or host.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PACKED);
        for (_, tally) in self.0.iter() {
            for number in tally.worse.into_iter().chain([tally.hits, tally.looks]) {
                put(&mut bytes, number);
            }
        }
        bytes
    }

    /// What [`Self::pack`] wrote; `None` when these bytes are none of its.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let numbers: [f64; 4 * NUMBERS] = numbers(bytes)?;
        let (tallies, _) = numbers.as_chunks::<NUMBERS>();
        let mut trust = Self::default();
        for (tally, [worse @ .., hits, looks]) in trust.0.0.iter_mut().zip(tallies) {
            *tally = Tally { worse: *worse, hits: *hits, looks: *looks };
        }
        Some(trust)
    }
}

fn weight_of(right: f64) -> f64 {
    -(-right).ln_1p()
}

/// The weights as far as they may pull a URL forward: nothing where trust is
/// gone, and nothing for stamps before they are proven.
pub fn pulls(weights: &PerSignal<f64>) -> PerSignal<f64> {
    PerSignal::from_fn(|signal| {
        let least = if signal == Signal::Stamp { PROVEN } else { GONE };
        if weights[signal] < least { 0.0 } else { weights[signal] }
    })
}
