//! Pure: what is known of a URL, to the time it is due and its place in line.
//!
//! Here is the protocol's order: the interval is what changefreq stands for,
//! bounded per site; the higher priority is leased first, then the earlier due.
//! The learned order, which begins as that, is in the modules below. Every
//! function is a function of its arguments.

pub mod explain;
mod grid;
pub mod habit;
pub mod model;
mod pack;
pub mod price;
pub mod prior;
pub mod signal;
pub mod trust;
pub mod value;

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::config::ChangeFreqIntervals;
use crate::model::{ChangeFreq, Lastmod, Outcome, Precision, Priority, Reason};

/// Place in line of fresh news: before every listed priority.
pub const FRESH_BAND: u8 = 101;
/// Place in line of what someone asked for: before everything else.
pub const SUBMITTED_BAND: u8 = 102;

/// First pause after a fetch that failed; doubled for each further one.
const FAILURE_BACKOFF: Duration = Duration::from_secs(15 * 60);
/// Longest pause after a fetch that failed.
const FAILURE_BACKOFF_MAX: Duration = Duration::from_secs(24 * 3600);
/// First pause after a lease that expired: the worker died, not the page.
const EXPIRY_BACKOFF: Duration = Duration::from_secs(10);
/// Longest pause after a lease that expired.
const EXPIRY_BACKOFF_MAX: Duration = Duration::from_secs(3600);
/// Gone this often in a row parks a URL: the first may be a mishap.
pub const GONE_PARKS: u32 = 2;
/// A URL that was reported gone once is looked at again after this.
const GONE_AGAIN: Duration = Duration::from_secs(24 * 3600);
/// A fetcher that was not let in tries again no sooner.
pub const BLOCKED_AGAIN: Duration = Duration::from_secs(24 * 3600);

/// The bounds and intervals that hold for a URL: its site's, or the daemon's.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// Shortest interval.
    pub min: Duration,
    /// Longest interval.
    pub max: Duration,
    /// What each changefreq stands for.
    pub changefreq: ChangeFreqIntervals,
    /// Zone of the site, for lastmods that are dates only.
    pub timezone: TimeZone,
    /// Deliveries before a URL is dead-lettered.
    pub max_attempts: u32,
}

/// What is known of a URL when a lease of it ends.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// As listed.
    pub changefreq: Option<ChangeFreq>,
    /// The best evidence of when the page changed.
    pub lastmod: Option<Lastmod>,
    /// Does any source list it?
    pub listed: bool,
    /// Delivery that ended, from 1.
    pub attempt: u32,
    /// Times in a row that it was reported gone before.
    pub gone: u32,
    /// Row number: spreads what would otherwise come due at once.
    pub id: i64,
}

/// What becomes of a URL when a lease of it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Back into the queue.
    Queue {
        /// When it is due.
        due: Timestamp,
        /// Why.
        reason: Reason,
        /// Deliveries in a row without success so far.
        attempt: u32,
    },
    /// Gone: not fetched any more unless listed anew.
    Park,
    /// Given up; an operator can replay it.
    Dead,
}

impl Fate {
    /// Does it go back into the queue?
    pub fn is_queued(&self) -> bool {
        matches!(self, Self::Queue { .. })
    }
}

/// The place in line that a priority stands for: hundredths, 50 where none is
/// given. Higher is leased first.
pub fn band(priority: Option<Priority>) -> u8 {
    let hundredths = (priority.unwrap_or(Priority::DEFAULT).thousandths() + 5) / 10;
    u8::try_from(hundredths).unwrap_or(100)
}

/// The interval at which a URL is fetched again: what its changefreq stands
/// for, within the bounds; the longest there is while no source lists it.
pub fn interval(known: &Known, bounds: &Bounds) -> Duration {
    if !known.listed {
        return bounds.max;
    }
    bounds.changefreq.of(known.changefreq).clamp(bounds.min, bounds.max)
}

/// What becomes of a URL that a fetcher settled.
pub fn after_settle(
    outcome: Outcome,
    fetched_at: Timestamp,
    known: &Known,
    bounds: &Bounds,
) -> Fate {
    let regular = interval(known, bounds);
    match outcome {
        Outcome::Changed | Outcome::Unchanged | Outcome::Unknown | Outcome::Redirected => {
            let due = later(fetched_at, regular);
            let soonest = later(fetched_at, bounds.min);
            let due = day_end_after(known.lastmod, fetched_at, &bounds.timezone)
                .map_or(due, |end| due.min(end.max(soonest)));
            Fate::Queue { due, reason: Reason::Recrawl, attempt: 0 }
        }
        Outcome::Gone if known.gone + 1 >= GONE_PARKS || !known.listed => Fate::Park,
        Outcome::Gone => {
            let due = later(fetched_at, regular.min(GONE_AGAIN));
            Fate::Queue { due, reason: Reason::Recrawl, attempt: 0 }
        }
        Outcome::Blocked => {
            let due = later(fetched_at, regular.max(BLOCKED_AGAIN));
            Fate::Queue { due, reason: Reason::Recrawl, attempt: 0 }
        }
        Outcome::Failed => retry(FAILURE_BACKOFF, FAILURE_BACKOFF_MAX, fetched_at, known, bounds),
    }
}

/// What becomes of a URL whose lease expired at `now`.
pub fn after_expiry(now: Timestamp, known: &Known, bounds: &Bounds) -> Fate {
    retry(EXPIRY_BACKOFF, EXPIRY_BACKOFF_MAX, now, known, bounds)
}

fn retry(
    first: Duration,
    longest: Duration,
    from: Timestamp,
    known: &Known,
    bounds: &Bounds,
) -> Fate {
    if known.attempt >= bounds.max_attempts {
        return Fate::Dead;
    }
    let doublings = known.attempt.saturating_sub(1).min(16);
    let pause = first.saturating_mul(1 << doublings).min(longest);
    // Up to a quarter more, by the row's number, so that a batch that failed
    // together does not come back together.
    let spread = pause / 4 * u32::try_from(known.id.rem_euclid(64)).unwrap_or(0) / 64;
    Fate::Queue {
        due: later(from, pause + spread),
        reason: Reason::Recrawl,
        attempt: known.attempt,
    }
}

/// A date-only lastmod of the day of the fetch may hide a later edit of that
/// day: the end of the day, by UTC or by the site's zone, whichever is later.
/// `None` when the date is finer than a day, or the day had ended.
pub fn day_end_after(
    lastmod: Option<Lastmod>,
    fetched_at: Timestamp,
    zone: &TimeZone,
) -> Option<Timestamp> {
    let lastmod = lastmod.filter(|lastmod| lastmod.precision == Precision::Day)?;
    let day = lastmod.at.to_zoned(TimeZone::UTC).date();
    let next = day.tomorrow().ok()?;
    let end = |zone: &TimeZone| Some(next.to_zoned(zone.clone()).ok()?.timestamp());
    let end = end(&TimeZone::UTC)?.max(end(zone)?);
    (end > fetched_at).then_some(end)
}

/// A duration later, or the end of time.
pub fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn bounds() -> Bounds {
        let by_word = [HOUR, HOUR, DAY, 7 * DAY, 30 * DAY, 180 * DAY, 180 * DAY];
        Bounds {
            min: HOUR,
            max: 180 * DAY,
            changefreq: ChangeFreqIntervals { by_word, absent: 14 * DAY },
            timezone: TimeZone::UTC,
            max_attempts: 8,
        }
    }

    fn known() -> Known {
        Known { changefreq: None, lastmod: None, listed: true, attempt: 1, gone: 0, id: 1 }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn due(fate: Fate) -> Timestamp {
        match fate {
            Fate::Queue { due, .. } => due,
            other => panic!("not queued: {other:?}"),
        }
    }

    #[test]
    fn of_two_urls_that_differ_in_changefreq_the_shorter_interval_comes_due_first() {
        let fetched = at("2026-11-21T00:00:00Z");
        let due_of = |word| {
            let known = Known { changefreq: Some(word), ..known() };
            due(after_settle(Outcome::Unchanged, fetched, &known, &bounds()))
        };
        for pair in ChangeFreq::ALL.windows(2) {
            assert!(due_of(pair[0]) <= due_of(pair[1]), "{pair:?}");
        }
        assert_eq!(due_of(ChangeFreq::Daily), at("2026-11-22T00:00:00Z"));
        assert_eq!(due_of(ChangeFreq::Never), later(fetched, bounds().max));
        // What nobody lists any more waits the longest, whatever was said of it.
        let left = Known { changefreq: Some(ChangeFreq::Hourly), listed: false, ..known() };
        let left = due(after_settle(Outcome::Unchanged, fetched, &left, &bounds()));
        assert_eq!(left, later(fetched, bounds().max));
    }

    #[test]
    fn a_second_gone_parks_and_a_first_of_an_unlisted_one_does_too() {
        let now = at("2026-11-21T00:00:00Z");
        let gone = |known: Known| after_settle(Outcome::Gone, now, &known, &bounds());
        assert!(matches!(gone(known()), Fate::Queue { .. }));
        assert_eq!(gone(Known { gone: 1, ..known() }), Fate::Park);
        assert_eq!(gone(Known { listed: false, ..known() }), Fate::Park);
    }

    #[test]
    fn what_is_gone_once_is_looked_at_within_a_day_and_what_is_blocked_after_one() {
        let now = at("2026-11-21T00:00:00Z");
        for (word, gone, blocked) in
            [(ChangeFreq::Hourly, HOUR, DAY), (ChangeFreq::Monthly, DAY, 30 * DAY)]
        {
            let known = Known { changefreq: Some(word), ..known() };
            let due_of = |outcome| due(after_settle(outcome, now, &known, &bounds()));
            assert_eq!(due_of(Outcome::Gone), later(now, gone), "{word:?}");
            assert_eq!(due_of(Outcome::Blocked), later(now, blocked), "{word:?}");
        }
    }

    #[test]
    fn a_lost_lease_comes_back_after_seconds_and_a_failure_after_a_quarter_of_an_hour() {
        let now = at("2026-11-21T00:00:00Z");
        let patient = Bounds { max_attempts: 99, ..bounds() };
        for (attempt, lost, failed) in
            [(1, 10, 900), (2, 20, 1_800), (3, 40, 3_600), (8, 1_280, 86_400), (20, 3_600, 86_400)]
        {
            // Of 64 neighbours each waits a little longer than the one before, at most a quarter.
            for (id, quarters) in [(0, 0), (32, 1), (64, 0)] {
                let known = Known { attempt, id, ..known() };
                let after =
                    |pause: u64| later(now, Duration::from_secs(pause * (8 + quarters)) / 8);
                let expired = due(after_expiry(now, &known, &patient));
                let settled = due(after_settle(Outcome::Failed, now, &known, &patient));
                assert_eq!((expired, settled), (after(lost), after(failed)), "{attempt} {id}");
            }
        }
    }

    #[test]
    fn failures_back_off_and_end_as_a_dead_letter() {
        let now = at("2026-11-21T00:00:00Z");
        let mut last = now;
        for attempt in 1..8 {
            let known = Known { attempt, ..known() };
            let next = due(after_settle(Outcome::Failed, now, &known, &bounds()));
            assert!(next > last, "attempt {attempt}");
            last = next;
        }
        let known = Known { attempt: 8, ..known() };
        assert_eq!(after_settle(Outcome::Failed, now, &known, &bounds()), Fate::Dead);
        assert_eq!(after_expiry(now, &known, &bounds()), Fate::Dead);
    }

    #[test]
    fn a_date_of_today_is_looked_at_again_after_the_day_has_ended_everywhere() {
        let fetched = at("2026-11-21T08:00:00Z");
        let lastmod = |text: &str| Some(Lastmod { at: at(text), precision: Precision::Day });
        let today = lastmod("2026-11-21T00:00:00Z");
        let new_york = TimeZone::fixed(jiff::tz::offset(-5));
        assert_eq!(day_end_after(today, fetched, &TimeZone::UTC), Some(at("2026-11-22T00:00:00Z")));
        assert_eq!(day_end_after(today, fetched, &new_york), Some(at("2026-11-22T05:00:00Z")));
        assert_eq!(day_end_after(today, at("2026-11-22T05:00:00Z"), &new_york), None);
        assert_eq!(day_end_after(lastmod("2026-11-20T00:00:00Z"), fetched, &TimeZone::UTC), None);
        let exact = Some(Lastmod { at: at("2026-11-21T07:00:00Z"), precision: Precision::Second });
        assert_eq!(day_end_after(exact, fetched, &TimeZone::UTC), None);
    }

    #[test]
    fn a_priority_decides_the_band_and_none_is_the_middle() {
        assert_eq!(band(None), 50);
        for (priority, expected) in [(0.0, 0), (0.1, 10), (0.5, 50), (0.55, 55), (1.0, 100)] {
            assert_eq!(band(Priority::from_f64(priority)), expected, "{priority}");
        }
    }

    proptest! {
        #[test]
        fn a_settled_url_is_never_due_outside_the_bounds(
            word in proptest::option::of(0_usize..7),
            hours in 0_i64..100_000,
            listed: bool,
        ) {
            let fetched = Timestamp::from_second(hours * 3600).expect("in range");
            let known = Known { changefreq: word.map(|w| ChangeFreq::ALL[w]), listed, ..known() };
            let due = due(after_settle(Outcome::Changed, fetched, &known, &bounds()));
            prop_assert!(due >= later(fetched, bounds().min));
            prop_assert!(due <= later(fetched, bounds().max));
        }
    }
}
