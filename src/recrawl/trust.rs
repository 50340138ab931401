//! How far signals are believed: per source, its host, and all hosts.
//!
//! A signal of weight `b` is right with probability `1 - exp(-b)`. Eight values
//! of that probability are held against each other by how well they explain
//! what looks found; the weight is that of their mean. What a source has not
//! proved itself it inherits from its host, and the host from all hosts; old
//! looks fade, so a host that changes its habit is learned anew. Beside it is
//! learned how many of a host's changes no signal tells.
//!
//! Keeps: weights lie within 0 and [`MOST`]; a kind that has lost all trust
//! pulls no URL forward, and goes on being learned by the looks that come
//! anyway. Which kind a lastmod is counted as is decided by `habit`.

use std::sync::LazyLock;

use super::grid::{Grid, surprises};
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
/// The same for the share of silent changes. Pages of one host differ more
/// than the model grants, so fewer looks are held against it at a time.
const SILENT_MEMORY: f64 = 0.95;
/// Looks that the record of all hosts is worth to one of them, at most.
const FROM_ALL: f64 = 4.0;
/// Looks that the record of a host is worth to one of its sources, at most.
const FROM_HOST: f64 = 8.0;

/// Values that the probability of a signal to be right can take.
const RIGHT: [f64; 8] = [0.0, 0.05, 0.15, 0.35, 0.6, 0.8, 0.92, 0.99];

/// How likely each value is while nobody has looked, by kind: a lastmod is
/// right six times of ten (of those that Bing checked in 2023, eight of ten
/// hosts' were), a stamp hardly ever, a moved entry is half known, and a push is
/// somebody's deliberate act.
const ASSUMED: PerSignal<[f64; 8]> = PerSignal([
    [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 1.0],
    [200.0, 20.0, 4.0, 2.0, 1.0, 1.0, 1.0, 0.5],
    [2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.5],
    [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 2.0],
]);

/// Values that the share of changes that no signal tells can take.
const SILENT: [f64; 5] = [0.03, 0.1, 0.3, 0.6, 1.0];
/// How likely each is while nobody has looked. A host whose silence is taken
/// for peace would never be fetched, and never prove the contrary.
const SILENT_ASSUMED: [f64; 5] = [1.0, 1.0, 1.0, 1.0, 6.0];

/// What looks said of one kind of signal, fading.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Tally {
    /// Over [`RIGHT`].
    grid: Grid<8>,
    /// Looks at signalled pages that found a change.
    hits: f64,
    /// Looks at signalled pages.
    looks: f64,
}

impl Tally {
    /// What of this record counts for a part of it that looked so often itself:
    /// what others saw, and of that no more than so many looks.
    fn share(&self, own: &Self, most: f64) -> f64 {
        let others = (self.looks - own.looks).clamp(0.0, most);
        if others > 0.0 { others / self.looks } else { 0.0 }
    }
}

/// The trust in one source, one host, or all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Trust {
    signals: PerSignal<Tally>,
    /// Over [`SILENT`].
    silent: Grid<5>,
}

/// What one look says of trust: the same to its source, its host and all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lesson {
    /// Was the page another one?
    changed: bool,
    /// How surprising that was by each value, of the kinds that had signalled.
    signals: PerSignal<Option<[f64; 8]>>,
    /// The same of the share of silent changes.
    silent: [f64; 5],
}

impl Lesson {
    /// From a look that was made with those beliefs.
    pub fn of(evidence: &Evidence, beliefs: &Beliefs) -> Self {
        let changed = evidence.changed;
        let expected = evidence.expected_silent + evidence.expected_signalled;
        let signals = PerSignal::from_fn(|signal| {
            let count = f64::from(evidence.signals[signal]);
            let others = expected - count * beliefs.pulls[signal];
            (count > 0.0).then(|| surprises(WEIGHTS.map(|weight| others + count * weight), changed))
        });
        let whole = evidence.expected_silent / beliefs.silent.max(SILENT[0]);
        let silent = SILENT.map(|share| whole * share + evidence.expected_signalled);
        Self { changed, signals, silent: surprises(silent, changed) }
    }
}

/// Numbers that one kind of signal takes.
const NUMBERS: usize = 10;
/// Bytes of packed trust.
pub const PACKED: usize = (4 * NUMBERS + 5) * 4;

/// What can be told of the trust in one kind of signal.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// How likely one signal is right, 0 to 1.
    pub right: f64,
    /// Looks at signalled pages that found a change, of the last fifty or so.
    pub hits: f64,
    /// Looks at signalled pages, of the last fifty or so.
    pub looks: f64,
}

impl Trust {
    /// Takes in what a look taught.
    pub fn learn(&mut self, lesson: &Lesson) {
        for (signal, surprises) in lesson.signals.iter() {
            let Some(surprises) = surprises else { continue };
            let tally = &mut self.signals[signal];
            tally.grid.learn(surprises, MEMORY);
            tally.hits = tally.hits * MEMORY + f64::from(u8::from(lesson.changed));
            tally.looks = tally.looks * MEMORY + 1.0;
        }
        self.silent.learn(&lesson.silent, SILENT_MEMORY);
    }

    /// The weights as learned: of what is listed by a source, from the source's
    /// own record, its host's, and that of all hosts.
    pub fn weights(source: &Self, host: &Self, all: &Self) -> PerSignal<f64> {
        PerSignal::from_fn(|signal| {
            let (own, host, all) =
                (&source.signals[signal], &host.signals[signal], &all.signals[signal]);
            if own.looks + host.looks + all.looks <= 0.0 {
                return UNPROVEN[signal];
            }
            let grid = own.grid.add(&host.grid, host.share(own, FROM_HOST));
            let grid = grid.add(&all.grid, all.share(host, FROM_ALL));
            weight_of(grid.mean(RIGHT, ASSUMED[signal]))
        })
    }

    /// The share of its host's changes that no signal tells.
    pub fn silent(&self) -> f64 {
        self.silent.mean(SILENT, SILENT_ASSUMED)
    }

    /// What can be told of a kind of signal, with the weight as learned.
    pub fn record(&self, signal: Signal, weight: f64) -> Record {
        let tally = &self.signals[signal];
        Record { right: -(-weight).exp_m1(), hits: tally.hits, looks: tally.looks }
    }

    /// The record as bytes, to be kept with the source or host.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PACKED);
        for (_, tally) in self.signals.iter() {
            for number in tally.grid.0.into_iter().chain([tally.hits, tally.looks]) {
                put(&mut bytes, number);
            }
        }
        for number in self.silent.0 {
            put(&mut bytes, number);
        }
        bytes
    }

    /// What [`Self::pack`] wrote; `None` when these bytes are none of its.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let numbers: [f64; 4 * NUMBERS + 5] = numbers(bytes)?;
        let (tallies, silent) = numbers.as_chunks::<NUMBERS>();
        let mut trust = Self { silent: Grid::kept(silent.try_into().ok()?), ..Self::default() };
        for (tally, [grid @ .., hits, looks]) in trust.signals.0.iter_mut().zip(tallies) {
            *tally = Tally { grid: Grid::kept(*grid), hits: *hits, looks: *looks };
        }
        Some(trust)
    }
}

/// The weights that the values of [`RIGHT`] stand for.
static WEIGHTS: LazyLock<[f64; 8]> = LazyLock::new(|| RIGHT.map(weight_of));
/// The weights of signals that nobody has looked after: asked for at each look.
static UNPROVEN: LazyLock<PerSignal<f64>> = LazyLock::new(|| {
    PerSignal::from_fn(|signal| weight_of(Grid::default().mean(RIGHT, ASSUMED[signal])))
});

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

#[cfg(test)]
mod tests;
