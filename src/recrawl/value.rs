//! What a fetch is worth now, when it will be worth the price, and its place.
//!
//! The value of fetching a page that is expected to have changed `x` times is
//! `mu (x - 1 + exp(-x)) / delta`: what harmonic staleness loses per fetch. It
//! grows without bound, so nothing starves. A row keeps the time at which its
//! value reaches the reference price; when it surfaces, its value is taken
//! anew, and the row goes back if the price has risen meanwhile.
//!
//! Keeps: due times lie within the bounds; more silent changes never mean a
//! longer interval; without evidence interval and order are the protocol's.
//! Whose turn among hosts it is, and the window in memory, are left to the
//! queue.

use std::time::Duration;

use jiff::Timestamp;

use super::model::{Estimate, days_after, days_between};
use crate::model::Reason;

/// Rows surface when their value has reached this share of the price, so that
/// a falling price finds them in memory without touching the table.
pub const REFERENCE: f64 = 0.7;
/// A row that surfaces at less than this share of the price goes back.
pub const TOO_CHEAP: f64 = 0.55;
/// Compared looks after which the model alone decides; before, the protocol's
/// interval and order have their share.
pub const PROOF: f64 = 5.0;
/// While little is known, a row surfaces after half of what is left of its wait,
/// until only this share of it is.
const REVIEWED_UNTIL: f64 = 0.1;
/// One of so many fetches of a host goes to what has been due for longest.
pub const OLDEST_EVERY: u64 = 16;
/// One of so many fetches of a host goes to the best of what is new there, whatever is
/// refreshed for being worth more.
pub const NEW_EVERY: u64 = 4;
/// A due time that moves by less than this share of the wait is not rewritten.
pub const SMALLEST_MOVE: f64 = 0.05;
/// The place of a page whose value is exactly the price.
const AT_PRICE: f64 = 50.0;
/// Places per doubling of the value.
const PER_DOUBLING: f64 = 8.0;
/// Pages that were first seen together come to the end of the longest interval
/// within this share of it, and not all at once.
const STAGGER: f64 = 0.2;
/// Share of the longest interval by which a page may be late before it goes
/// before everything that is refreshed.
const LATENESS: f64 = 0.05;
/// The last place but for what somebody asked for.
const BEST: f64 = 100.0;

/// What the order of one URL depends on, at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worth {
    /// How the page is believed to change.
    pub estimate: Estimate,
    /// Weight of its site times its priority relative to the site's mean.
    pub mu: f64,
    /// Its priority as the protocol takes it: hundredths.
    pub priority: f64,
    /// The interval of the protocol, for what nothing is known of.
    pub protocol: Duration,
    /// Shortest interval.
    pub min: Duration,
    /// Longest interval.
    pub max: Duration,
    /// When a fetcher last saw the page.
    pub seen: Timestamp,
    /// Its row number: spreads what would otherwise come due at once.
    pub id: i64,
}

/// Where a URL goes in the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// When the row is to be looked at: at `due`, or sooner while little is
    /// known of its like, since more may be known by then.
    pub surfaces: Timestamp,
    /// When its value reaches the reference price.
    pub due: Timestamp,
    /// Its place in line when due, 0 to 100: higher is leased first.
    pub band: u8,
}

/// The weight of a priority within its site, whose pages have `mean` on
/// average: 1 for all of them where all claim the same.
pub fn relative(priority: f64, mean: f64) -> f64 {
    (0.5 + priority.clamp(0.0, 1.0)) / (0.5 + mean.clamp(0.0, 1.0))
}

/// What a fetch gains, for a page that is expected to have changed `x` times.
fn gain(x: f64) -> f64 {
    // x - 1 + exp(-x), whose small values are lost in rounding.
    if x < 1e-4 { x * x / 2.0 * (1.0 - x / 3.0) } else { x + (-x).exp_m1() }
}

/// The `x` of which [`gain`] is `wanted`.
fn expected_for(wanted: f64) -> f64 {
    if wanted <= 0.0 {
        return 0.0;
    }
    // Halley's steps, from the beginning of its series for few changes, and from
    // its limit for many: both are so close that one or two are enough.
    let s = (2.0 * wanted).sqrt();
    let mut x = if s < 2.0 {
        s + s * s / 6.0 + s * s * s / 36.0
    } else {
        1.0 + wanted - (-1.0 - wanted).exp()
    };
    for _ in 0..8 {
        // Small values are lost in rounding, as in [`gain`]; the series has them.
        if x < 1e-4 {
            break;
        }
        let chance = -(-x).exp_m1();
        let over = x - chance - wanted;
        let step = over * chance / (chance * chance - over * (1.0 - chance) / 2.0);
        x -= step;
        // What is left is of the third power of this.
        if step.abs() <= 1e-4 * x {
            break;
        }
    }
    x
}

impl Worth {
    /// How far the model decides: 0 without a compared look, 1 from
    /// [`PROOF`] looks on.
    pub fn proof(&self) -> f64 {
        (self.estimate.looks / PROOF).clamp(0.0, 1.0)
    }

    /// Changes that are expected since the last look.
    pub fn expected(&self, now: Timestamp) -> f64 {
        self.estimate.alpha * days_between(self.seen, now) + self.estimate.pull
    }

    /// What fetching it now is worth, in days of staleness.
    pub fn value(&self, now: Timestamp) -> f64 {
        self.at(now).value
    }

    /// The same as of one moment, to be asked several things.
    pub fn at(&self, now: Timestamp) -> AsOf<'_> {
        let Estimate { alpha, total, settled, pull, .. } = self.estimate;
        let days = days_between(self.seen, now);
        let silent = alpha * days;
        // A page that is signalled often is worth less per fetch, but never
        // less than had it not been signalled.
        let signalled = gain(silent + pull) / total;
        let unsignalled = if pull > 0.0 { gain(silent) / settled } else { 0.0 };
        let value = self.mu * signalled.max(unsignalled);
        let (min, max) = self.bounds();
        AsOf { worth: self, now, proof: self.proof(), days, min, max, value }
    }

    /// Days after the last look at which the value reaches `price`; within the
    /// bounds.
    fn model_days(&self, price: f64) -> f64 {
        let Estimate { alpha, total, settled, pull, .. } = self.estimate;
        let wanted = price / self.mu.max(1e-6);
        let signalled = expected_for(wanted * total) - pull;
        let expected =
            if pull > 0.0 { signalled.min(expected_for(wanted * settled)) } else { signalled };
        let (min, max) = self.bounds();
        (expected / alpha).clamp(min, max)
    }

    /// Days after the last look by the protocol: the interval of its
    /// changefreq, or at once when a believed signal is pending.
    fn protocol_days(&self) -> f64 {
        let (min, max) = self.bounds();
        if self.estimate.pull >= super::trust::PROVEN {
            return min;
        }
        in_days(self.protocol).clamp(min, max)
    }

    /// The shortest and the longest interval of this page, in days.
    pub(super) fn bounds(&self) -> (f64, f64) {
        let min = in_days(self.min).max(1.0 / 86_400.0);
        // With evidence only: without, intervals are exactly the protocol's.
        #[allow(clippy::cast_precision_loss)] // 0 to 1,023
        let spread = STAGGER * self.proof() * (self.id.rem_euclid(1_024) as f64 / 1_024.0);
        (min, (in_days(self.max) * (1.0 - spread)).max(min))
    }

    /// When the URL is due at `price`: the protocol's time without evidence,
    /// the model's with, in between in between.
    pub fn due(&self, price: f64) -> Timestamp {
        let proof = self.proof();
        let days = match proof {
            p if p <= 0.0 => self.protocol_days(),
            p if p >= 1.0 => self.model_days(price),
            p => self.protocol_days().powf(1.0 - p) * self.model_days(price).powf(p),
        };
        days_after(self.seen, days)
    }

    /// Where the URL goes when its row is written at `now`.
    pub fn place(&self, now: Timestamp, price: f64) -> Place {
        let due = self.due(price * REFERENCE);
        let (left, wait) = (days_between(now, due), days_between(self.seen, due));
        let is_unsure = self.proof() < 1.0 && left > REVIEWED_UNTIL * wait;
        let surfaces = if is_unsure { days_after(now, left / 2.0) } else { due };
        Place { surfaces, due, band: band(self.at(due.max(now)).score(price)) }
    }
}

/// A [`Worth`] as of one moment.
#[derive(Debug, Clone, Copy)]
pub struct AsOf<'a> {
    worth: &'a Worth,
    now: Timestamp,
    proof: f64,
    /// Since the last look.
    days: f64,
    min: f64,
    max: f64,
    /// What fetching it is worth, in days of staleness.
    pub value: f64,
}

impl AsOf<'_> {
    /// Is it worth the price, or overdue?
    pub fn is_due(&self, price: f64) -> bool {
        if self.proof < 1.0 {
            return self.worth.due(price) <= self.now;
        }
        self.is_overdue() || (self.days >= self.min && self.value >= price)
    }

    /// Must it be fetched whatever it is worth: has it not been seen for the
    /// longest interval?
    pub fn is_overdue(&self) -> bool {
        self.days >= self.max
    }

    /// Its place in line: its priority without evidence, by the ratio of its
    /// value to the price with. Higher is leased first, of equals the one that
    /// is due earlier.
    pub fn score(&self, price: f64) -> f64 {
        let by_priority = (1.0 - self.proof) * self.worth.priority;
        if self.proof <= 0.0 {
            return by_priority;
        }
        let ratio = self.value / price.max(1e-12);
        let by_value = AT_PRICE + PER_DOUBLING * ratio.max(1e-9).log2();
        let late = self.days / self.max - 1.0;
        let least = if late < 0.0 { 0.0 } else { AT_PRICE + late / LATENESS * (BEST - AT_PRICE) };
        let least = least.min(BEST);
        by_priority + self.proof * by_value.clamp(least, BEST)
    }
}

/// A score as it is kept in a row.
pub fn band(score: f64) -> u8 {
    // Clamped to what a band can be.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = score.clamp(0.0, BEST).round() as u8;
    whole
}

/// The place of a URL that is queued for another reason than its interval:
/// what was asked for before everything, new pages before most refreshing, a
/// last look at what is not listed any more behind it. Without evidence of its
/// host (`proof` 0) only priority counts.
pub fn band_for(reason: Reason, priority: f64, proof: f64, refreshed: f64) -> u8 {
    let learned = match reason {
        Reason::Submitted => return super::SUBMITTED_BAND,
        Reason::New => 75.0 + (priority - 50.0) / 2.0,
        Reason::Removed => 40.0,
        Reason::Changed | Reason::Recrawl => refreshed,
    };
    band((1.0 - proof) * priority + proof * learned)
}

/// Is it the turn of what has been due for longest, after so many fetches of
/// its host?
pub fn is_oldest_turn(fetches: u64) -> bool {
    fetches % OLDEST_EVERY == OLDEST_EVERY - 1
}

/// Is it the turn of what is new, after so many fetches of its host? Never that of what
/// has been due for longest.
pub fn is_turn_of_new(fetches: u64) -> bool {
    fetches % NEW_EVERY == NEW_EVERY / 2
}

/// Is a new due time worth a write, for a URL last seen at `seen`?
pub fn is_worth_a_write(seen: Timestamp, old: Timestamp, new: Timestamp) -> bool {
    let moved = days_between(old, new) + days_between(new, old);
    moved >= SMALLEST_MOVE * days_between(seen, old)
}

fn in_days(duration: Duration) -> f64 {
    duration.as_secs_f64() / 86_400.0
}

#[cfg(test)]
mod tests;
