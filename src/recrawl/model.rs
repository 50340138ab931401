//! What is known of how one URL changes, and how a look at it teaches more.
//!
//! A page changes *silently* at a rate of its own, and *signalled* with a
//! probability per signal: after `t` days and `n` signals of weight `b` it is
//! what it was with probability `exp(-(alpha t + b n))`. A fetcher that
//! compares tells which of the two happened, and one step of online expectation
//! maximisation moves the counts. Memory is constant: 16 bytes from the first
//! look on, nothing before. Old looks fade, so a page that changes its habit is
//! learned anew.
//!
//! Keeps: rates are positive and finite, whatever was reported. How far signals
//! are to be believed is learned in `trust`, what pages of a kind do in
//! `prior`; both come in as [`Beliefs`].

use jiff::Timestamp;

use super::pack::{from_log, to_log};
use super::signal::{PerSignal, Signal};
use crate::model::Outcome;

/// What a look leaves of the looks before it. 0.95 remembers about 20.
pub const MEMORY: f64 = 0.95;
/// How far rates of one pool lie apart: the shape of the gamma distribution
/// that a pool is to its pages. Half an expected change outweighs the pool.
pub const SHAPE: f64 = 0.5;
/// Fewest silent changes a day that are believed: one in ten years.
pub const SLOWEST: f64 = 1.0 / 3650.0;
/// Most silent changes a day that are believed: one in half an hour.
pub const FASTEST: f64 = 48.0;
/// What a signalled change counts as evidence of silent ones: pages of a host
/// need not all tell the same share.
const HEARSAY: f64 = 0.5;
/// Looks whose outcome is kept one by one.
pub const HISTORY: u32 = 15;
/// Bytes of a packed state.
pub const PACKED: usize = 16;
/// The bytes from the ninth to the fourteenth of a packed state, of exposure,
/// history and its span, while there was a first look and nothing to compare.
/// The first four are when it was last seen, the next four stay 0 until a change.
pub const FIRST_LOOK: [u8; 6] = [0, 0, 1, 0, 0, 0];

const SECONDS_A_DAY: f64 = 86_400.0;
/// Pending signals of the kinds other than lastmod are counted to here.
const NIBBLE: u8 = 15;

/// What a fetcher saw, as far as it says something of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Another page than at the last look.
    Changed,
    /// The same page.
    Unchanged,
    /// No page any more: a change of this URL, and no edit that would say
    /// anything of its host's.
    Gone,
    /// The page was fetched and nobody compared.
    Unknown,
}

impl Look {
    /// What an outcome says; `None` where the page was not seen: what was not
    /// known of it before the fetch is not known after it either.
    pub fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Changed => Some(Self::Changed),
            Outcome::Unchanged => Some(Self::Unchanged),
            Outcome::Gone => Some(Self::Gone),
            Outcome::Redirected | Outcome::Unknown => Some(Self::Unknown),
            Outcome::Blocked | Outcome::Failed => None,
        }
    }
}

/// What a URL's host and others teach of it: `trust` and `prior` fill this in.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Beliefs {
    /// Changes a day of pages like it.
    pub rate: f64,
    /// Looks at other pages that this rests on; 0 while all is only assumed.
    pub looks: f64,
    /// Share of changes that no signal tells.
    pub silent: f64,
    /// Weight per signal as far as it may pull a URL forward: one of weight `b`
    /// is right with probability `1 - exp(-b)`.
    pub pulls: PerSignal<f64>,
}

/// What one compared look teaches beyond its own URL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// Was the page another one?
    pub changed: bool,
    /// Days since the look before.
    pub days: f64,
    /// Signals since the look before.
    pub signals: PerSignal<u8>,
    /// Silent changes that were to be expected.
    pub expected_silent: f64,
    /// Changes that its signals made expect.
    pub expected_signalled: f64,
    /// Changes that this look stands for.
    pub changes: f64,
}

/// How a URL is believed to change, at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Silent changes a day.
    pub alpha: f64,
    /// All changes a day.
    pub total: f64,
    /// All changes a day, had there been no signals since the last look.
    pub settled: f64,
    /// What the pending signals weigh: expected changes.
    pub pull: f64,
    /// Compared looks behind this, its own and those of pages like it.
    pub looks: f64,
}

/// The state of one URL, from its first look on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UrlState {
    /// When a fetcher last saw the page.
    seen: Timestamp,
    /// Silent changes that looks stand for, fading.
    silent: f64,
    /// Signalled changes that looks stand for, fading.
    signalled: f64,
    /// Days over which this was seen, fading alike.
    exposure: f64,
    /// Days from the look before the first in `history` to the last.
    span: f64,
    /// A leading one, then one bit a compared look, the last lowest: changed?
    history: u16,
    /// Signals since the last look.
    pending: PerSignal<u8>,
}

impl UrlState {
    /// The state after a first look, which has nothing to compare with.
    pub fn first(seen: Timestamp) -> Self {
        Self {
            seen,
            silent: 0.0,
            signalled: 0.0,
            exposure: 0.0,
            span: 0.0,
            history: 1,
            pending: PerSignal::default(),
        }
    }

    /// When a fetcher last saw the page.
    pub fn seen(&self) -> Timestamp {
        self.seen
    }

    /// Signals since the last look.
    pub fn pending(&self) -> &PerSignal<u8> {
        &self.pending
    }

    /// Compared looks that are kept one by one, and how many of them found a
    /// change.
    pub fn history(&self) -> (u32, u32) {
        let looks = u16::BITS - 1 - self.history.max(1).leading_zeros();
        (looks, self.history.count_ones().saturating_sub(1))
    }

    /// Days that [`Self::history`] reaches back from the last look; about, once
    /// older looks have fallen out of it.
    pub fn history_days(&self) -> f64 {
        self.span
    }

    /// Notes a signal, of which one poll gives one.
    pub fn signal(&mut self, signal: Signal) {
        let most = if signal == Signal::Lastmod { u8::MAX } else { NIBBLE };
        let count = &mut self.pending[signal];
        *count = count.saturating_add(1).min(most);
    }

    /// Takes back a signal, which does not belong to the look that comes.
    pub fn unsignal(&mut self, signal: Signal) {
        let count = &mut self.pending[signal];
        *count = count.saturating_sub(1);
    }

    /// How the URL is believed to change, as of `now`.
    ///
    /// Two rates are learned apart, each by its own counts, and each hears of
    /// the other through the share of changes that the host leaves untold: a
    /// page with many signals also changes silently, and the reverse.
    pub fn estimate(&self, beliefs: &Beliefs, now: Timestamp) -> Estimate {
        let right = right_of(self.pending, beliefs);
        let pull: f64 = self
            .pending
            .iter()
            .map(|(signal, count)| f64::from(*count) * beliefs.pulls[signal])
            .sum();
        let silent = beliefs.silent.clamp(0.01, 1.0);
        let told = 1.0 - silent;
        let days_of_shape = SHAPE / beliefs.rate.clamp(SLOWEST, FASTEST);
        let watched = self.exposure + days_between(self.seen, now);
        let signalled = self.signalled + right;

        let by_signals = (HEARSAY * signalled + SHAPE) / (HEARSAY * told * watched + days_of_shape);
        let alpha = (self.silent + SHAPE) / (self.exposure + SHAPE / (silent * by_signals));
        let alpha = alpha.clamp(SLOWEST, FASTEST);

        let by_looks = (self.silent + SHAPE) / (silent * self.exposure + days_of_shape);
        let by_looks = (told * by_looks).max(SLOWEST / 1000.0);
        let told = |signalled: f64| (signalled + SHAPE) / (watched + SHAPE / by_looks);

        let looks = f64::from(self.history().0) + beliefs.looks;
        let (total, settled) = (alpha + told(signalled), alpha + told(self.signalled));
        Estimate { alpha, total, settled, pull, looks }
    }

    /// A fetcher saw the page at `at`, and nothing is learned of it: time and signals
    /// start anew.
    pub fn see(&mut self, at: Timestamp) {
        (self.seen, self.pending) = (at, PerSignal::default());
    }

    /// The page was seen later than is known.
    #[must_use]
    pub fn seen_since(self, at: Timestamp) -> Self {
        Self { seen: self.seen.max(at), ..self }
    }

    /// Takes in what a fetcher saw at `at`; answers what it teaches beyond this
    /// URL. A look from before the last one teaches nothing; that one bore the time of a
    /// clock that was ahead.
    pub fn look(&mut self, at: Timestamp, look: Look, beliefs: &Beliefs) -> Option<Evidence> {
        if at == self.seen {
            return None;
        }
        if at < self.seen {
            self.see(at);
            return None;
        }
        let days = days_between(self.seen, at);
        let estimate = self.estimate(beliefs, at);
        let signals = std::mem::take(&mut self.pending);
        self.seen = at;
        let changed = match look {
            Look::Changed | Look::Gone => true,
            Look::Unchanged => false,
            Look::Unknown => return None,
        };
        let expected_silent = estimate.alpha * days;
        let expected = expected_silent + estimate.pull;
        // Given that it changed at all, so many times are to be expected: the
        // mean of a Poisson number that is not 0.
        let given = if changed { 1.0 / chance_of(expected.max(1e-9)) } else { 0.0 };
        let right = right_of(signals, beliefs);
        let (silent, signalled) = (expected_silent * given, right * given);
        self.silent = self.silent * MEMORY + silent;
        self.signalled = self.signalled * MEMORY + signalled;
        self.exposure = self.exposure * MEMORY + days;
        self.remember(changed, days);
        (look != Look::Gone).then_some(Evidence {
            changed,
            days,
            signals,
            expected_silent,
            expected_signalled: estimate.pull,
            changes: silent + signalled,
        })
    }

    fn remember(&mut self, changed: bool, days: f64) {
        let (looks, _) = self.history();
        if looks == HISTORY {
            // The oldest look leaves: of its days no more is known than the mean.
            self.span *= f64::from(HISTORY - 1) / f64::from(HISTORY);
            self.history &= u16::MAX >> 2;
            self.history |= 1 << (HISTORY - 1);
        }
        self.span += days;
        self.history = self.history << 1 | u16::from(changed);
    }

    /// Notes a signal in what [`Self::pack`] wrote, which is cheaper by far than
    /// to read and write all of it.
    pub fn signal_packed(bytes: &mut [u8; PACKED], signal: Signal) {
        // As pack lays them out: a byte, then three nibbles.
        let (place, shift) = match signal {
            Signal::Lastmod => {
                bytes[14] = bytes[14].saturating_add(1);
                return;
            }
            Signal::Stamp => (15, 0),
            Signal::Touched => (15, 4),
            Signal::Pushed => (13, 4),
        };
        if bytes[place] >> shift & NIBBLE < NIBBLE {
            bytes[place] += 1 << shift;
        }
    }

    /// Of what [`Self::pack`] wrote: are there signals since the last look that came from
    /// what sources list? A push comes from none.
    pub fn is_signalled(bytes: &[u8; PACKED]) -> bool {
        bytes[14..] != [0; 2]
    }

    /// Forgets these.
    pub fn unsignal_packed(bytes: &mut [u8; PACKED]) {
        bytes[14..].fill(0);
    }

    /// The state in 16 bytes; counts to 0.05 %, times to the second.
    pub fn pack(&self) -> [u8; PACKED] {
        let [lastmod, stamp, touched, pushed] = self.pending.0;
        let seen = u32::try_from(self.seen.as_second().max(0)).unwrap_or(u32::MAX);
        let tail = to_log(self.span, 12) | u16::from(pushed) << 12;
        let mut bytes = [0; PACKED];
        bytes[..4].copy_from_slice(&seen.to_le_bytes());
        let counts = [self.silent, self.signalled, self.exposure].map(|count| to_log(count, 16));
        let words = [counts[0], counts[1], counts[2], self.history, tail];
        for (place, word) in bytes[4..14].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[14] = lastmod;
        bytes[15] = stamp | touched << 4;
        bytes
    }

    /// What [`Self::pack`] wrote; `None` when these bytes are none of its.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PACKED] = bytes.try_into().ok()?;
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let seen = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let (history, tail) = (word(10), word(12));
        if history == 0 {
            return None;
        }
        let pushed = u8::try_from(tail >> 12).unwrap_or(NIBBLE);
        Some(Self {
            seen: Timestamp::from_second(i64::from(seen)).ok()?,
            silent: from_log(word(4), 16),
            signalled: from_log(word(6), 16),
            exposure: from_log(word(8), 16),
            span: from_log(tail & 0xfff, 12),
            history,
            pending: PerSignal([bytes[14], bytes[15] & NIBBLE, bytes[15] >> 4, pushed]),
        })
    }
}

/// Of so many signals, those that are expected to be right.
fn right_of(signals: PerSignal<u8>, beliefs: &Beliefs) -> f64 {
    // Most pages have none of most kinds.
    let given = signals.iter().filter(|(_, count)| **count > 0);
    given.map(|(signal, count)| f64::from(*count) * chance_of(beliefs.pulls[signal])).sum()
}

/// The probability that something expected so often happens at all.
fn chance_of(expected: f64) -> f64 {
    -(-expected).exp_m1()
}

/// Days from one instant to a later one; 0 to an earlier one.
pub fn days_between(from: Timestamp, to: Timestamp) -> f64 {
    // Milliseconds of all years that a timestamp can be in are exact in f64.
    #[allow(clippy::cast_precision_loss)]
    let seconds = (to.as_millisecond() - from.as_millisecond()) as f64 / 1000.0;
    (seconds / SECONDS_A_DAY).max(0.0)
}

/// An instant some days later, to the second; the end of time where the days
/// are too many, the instant itself where they are negative.
pub fn days_after(from: Timestamp, days: f64) -> Timestamp {
    // Cut to a hundred thousand years, within i64.
    #[allow(clippy::cast_possible_truncation)]
    let seconds = (days.clamp(0.0, 4e7) * SECONDS_A_DAY).round() as i64;
    from.as_second()
        .checked_add(seconds)
        .and_then(|second| Timestamp::from_second(second).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
