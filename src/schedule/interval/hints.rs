//! What a publisher asks of those who poll, and how far it is followed.
//!
//! Hints may slow polling down, to a day at most, and never speed it up. Hours
//! and days that a feed excludes are left out unless that would silence it for
//! more than two days.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::Offset;

use super::MAX_DELAY;

/// Most that excluded hours and days may delay a poll; more is ignored.
pub const MAX_SKIP: Duration = Duration::from_secs(48 * 3_600);

/// What a publisher asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// Freshness of the answer: `Cache-Control: max-age` or `Expires`.
    pub max_age: Option<Duration>,
    /// RSS `ttl` or the syndication module's period.
    pub ttl: Option<Duration>,
    /// RSS `skipHours` and `skipDays`.
    pub skip: Skip,
}

/// Hours and days (UTC) in which a feed does not want to be polled, as RSS
/// 2.0 has them: one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skip {
    /// Bit 0 is the hour from 0:00 to 1:00.
    pub hours: u32,
    /// Bit 0 is Monday.
    pub days: u8,
}

impl Hints {
    /// The wait that is asked for, at most a day, when it is longer than
    /// `interval`; with its name. Where several are given the shortest holds.
    pub(super) fn slowest(&self, interval: Duration) -> Option<(Duration, &'static str)> {
        let given = [(self.max_age, "max-age"), (self.ttl, "ttl")];
        let named = given.into_iter().filter_map(|(hint, name)| Some((hint?.min(MAX_DELAY), name)));
        // A zero asks for nothing.
        let (hint, name) = named.filter(|(hint, _)| !hint.is_zero()).min()?;
        (hint > interval).then_some((hint, name))
    }
}

impl Skip {
    /// A time in the first allowed hour after `at`; `None` when `at` itself
    /// is allowed, or when nothing is within [`MAX_SKIP`]. `phase` spreads
    /// the polls over that hour.
    pub(super) fn next_allowed(self, at: Timestamp, phase: f64) -> Option<Timestamp> {
        if self.allows(at) {
            return None;
        }
        let hour = at.as_second().div_euclid(3_600);
        let hours_ahead = i64::try_from(MAX_SKIP.as_secs() / 3_600).unwrap_or(0);
        let starts =
            (1..=hours_ahead).filter_map(|n| Timestamp::from_second((hour + n) * 3_600).ok());
        let start = starts.into_iter().find(|start| self.allows(*start))?;
        // Within the hour, however the chance falls.
        let spread = Duration::from_secs(1_800).mul_f64(phase.clamp(0.0, 1.0));
        let spread_at = start.checked_add(spread).ok()?;
        let wait = Duration::try_from(spread_at.duration_since(at)).ok()?;
        (wait <= MAX_SKIP).then_some(spread_at)
    }

    fn allows(self, at: Timestamp) -> bool {
        let civil = Offset::UTC.to_datetime(at);
        let hour = self.hours >> u32::from(civil.hour().unsigned_abs()) & 1;
        let day = self.days >> civil.weekday().to_monday_zero_offset().unsigned_abs() & 1;
        hour == 0 && day == 0
    }
}
