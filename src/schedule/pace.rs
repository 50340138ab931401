//! Pure: how fast the backlog of a stop is worked off.
//!
//! A daemon that was down finds thousands of sources overdue at once. They are
//! polled in their order, but so many a second only: neither our own line nor
//! those who serve many of them at one place should feel our start. What comes
//! due while the daemon runs is spread by its own times and is not held back.

use std::time::Duration;

use jiff::Timestamp;

use crate::recrawl::later;

/// Overdue sources polled per second after a start.
pub(super) const PER_SECOND: u32 = 50;

/// What is overdue by less has come due in the ordinary way.
const OVERDUE: Duration = Duration::from_secs(60);

/// The backlog of one start.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the daemon started.
    began: Timestamp,
    /// The same in steady time: the wall clock may be stepped.
    began_steady: Timestamp,
    /// Polls of the backlog that were started.
    started: u32,
}

impl Pace {
    /// A daemon that starts now, by the wall clock and in steady time.
    pub(super) fn new(began: Timestamp, began_steady: Timestamp) -> Self {
        Self { began, began_steady, started: 0 }
    }

    /// May a source that was due at `due`, by the wall clock, be polled now, in steady
    /// time? Counts it, if so.
    pub(super) fn admits(&mut self, due: Timestamp, steady: Timestamp) -> bool {
        if later(due, OVERDUE) >= self.began {
            return true;
        }
        let passed =
            Duration::try_from(steady.duration_since(self.began_steady)).unwrap_or_default();
        let seconds = u32::try_from(passed.as_secs()).unwrap_or(u32::MAX);
        let admitted = seconds.saturating_add(1).saturating_mul(PER_SECOND);
        let is_admitted = self.started < admitted;
        self.started += u32::from(is_admitted);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).expect("a time")
    }

    #[test]
    fn a_backlog_is_worked_off_at_an_even_pace() {
        let mut pace = Pace::new(at(0), at(0));
        let mut admitted = |now: i64| (0..10_000).filter(|_| pace.admits(at(-61), at(now))).count();
        assert_eq!(admitted(0), 50);
        assert_eq!(admitted(0), 0);
        assert_eq!(admitted(1), 50);
        assert_eq!(admitted(5), 200);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_holds_nothing_up() {
        // All that is due by then was due before the start.
        let mut pace = Pace::new(at(7_200), at(0));
        let mut admitted = |now: i64| (0..10_000).filter(|_| pace.admits(at(0), at(now))).count();
        assert_eq!((admitted(0), admitted(10)), (50, 500));
    }

    #[test]
    fn what_comes_due_later_is_not_held_back() {
        let mut pace = Pace::new(at(0), at(0));
        for _ in 0..10_000 {
            assert!(pace.admits(at(0), at(1)));
        }
        assert!(pace.admits(at(-60), at(1)));
    }
}
