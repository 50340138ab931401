//! The rhythm of a source: how often it brings something, learned from what
//! its polls found.
//!
//! Counted are new and changed URLs, never bytes. What is old counts less:
//! half of it is forgotten in [`HALF_LIFE`]. Many URLs in one poll are taken
//! for few events (an editor who publishes ten pages at noon does so once),
//! so `n` of them count as `1 + ln n` changes.

use std::time::Duration;

use jiff::Timestamp;

/// Half of what was seen is forgotten after this.
pub const HALF_LIFE: Duration = Duration::from_secs(7 * 86_400);

/// Changes that a poll should find: below one, since news that waited for a
/// whole event waited for half an interval on average.
const CHANGES_PER_POLL: f64 = 0.5;

/// A source that brought something within this time is active.
const ACTIVE: Duration = Duration::from_secs(30 * 86_400);

/// A source that has brought nothing for so long has had its day.
const STALE: Duration = Duration::from_secs(180 * 86_400);

/// What the polls of a source have found, forgotten by half in [`HALF_LIFE`].
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Rhythm {
    /// Changes seen, many of one poll counted as few.
    pub changes: f64,
    /// New URLs seen, each counted.
    pub new: f64,
    /// Seconds in which they were seen.
    pub seconds: f64,
    /// When it was last brought up to date.
    pub at: Timestamp,
    /// When the last change was seen; at first, when it was first read.
    pub changed_at: Timestamp,
}

impl Rhythm {
    /// Nothing seen yet: as if half a change had come in `first`, so that the
    /// first interval is just that.
    pub fn begin(at: Timestamp, first: Duration) -> Self {
        Self {
            changes: CHANGES_PER_POLL,
            new: 0.0,
            seconds: first.as_secs_f64(),
            at,
            changed_at: at,
        }
    }

    /// After a poll at `at` that found this much since the last one.
    #[must_use]
    pub fn after(self, at: Timestamp, new: u64, changed: u64) -> Self {
        let passed = self.passed(at).as_secs_f64();
        let kept = (-passed / HALF_LIFE.as_secs_f64()).exp2();
        Self {
            changes: self.changes * kept + events(new + changed),
            new: self.new * kept + as_f64(new),
            seconds: self.seconds * kept + passed,
            at,
            changed_at: if new + changed > 0 { at } else { self.changed_at },
        }
    }

    /// Time since it was last brought up to date.
    pub fn passed(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.at)).unwrap_or(Duration::ZERO)
    }

    /// Changes a day.
    pub fn per_day(&self) -> f64 {
        self.changes / self.seconds.max(1.0) * 86_400.0
    }

    /// Time in which half a change is expected.
    pub fn interval(&self) -> Duration {
        seconds(CHANGES_PER_POLL * self.seconds.max(1.0) / self.changes.max(f64::MIN_POSITIVE))
    }

    /// Half of the time in which a list of `entries` is filled with new ones;
    /// `None` while nothing new is known to come.
    pub fn half_of_window(&self, entries: u64) -> Option<Duration> {
        (self.new >= 1.0 && entries > 0)
            .then(|| seconds(as_f64(entries) / 2.0 * self.seconds.max(1.0) / self.new))
    }

    /// Has it brought anything in the last 30 days?
    pub fn is_active(&self) -> bool {
        self.silent() < ACTIVE
    }

    /// Has it brought nothing for 180 days?
    pub fn is_stale(&self) -> bool {
        self.silent() >= STALE
    }

    fn silent(&self) -> Duration {
        Duration::try_from(self.at.duration_since(self.changed_at)).unwrap_or(Duration::ZERO)
    }
}

/// What `found` URLs of one poll count as.
pub(super) fn events(found: u64) -> f64 {
    if found == 0 { 0.0 } else { 1.0 + as_f64(found).ln() }
}

#[allow(clippy::cast_precision_loss)] // counts of entries are far below 2^52
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// At most a century, whatever the figures are.
pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3.2e9))
}
