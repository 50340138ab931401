//! The time, and waiting for it. The only place that asks the machine's clocks.
//!
//! Two readings: [`Clock::now`] is the wall clock, for what people and other
//! machines read; [`Clock::steady`] is anchored at the wall time of the start
//! and moves by the monotonic clock, so that a stepped wall clock moves
//! neither the end of a lease nor the turn of a host. Both are instants and
//! may be stored. The manual clock moves only when told to, and tests wait on
//! it without sleeping. Everything else gets the time as an argument.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

/// A clock; clones are the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
enum Inner {
    System {
        wall_at_start: Timestamp,
        started: Instant,
        /// Milliseconds that steady time is put forward by.
        ahead: AtomicI64,
        /// Is the time somebody else's? Then this machine's wall clock is not asked.
        follows: AtomicBool,
    },
    Manual {
        hands: Mutex<Hands>,
        moved: Notify,
    },
}

/// A reading of the monotonic clock that another run can compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uptime {
    /// Names the boot: another one counts from elsewhere.
    pub boot: String,
    /// Milliseconds of it.
    pub ms: i64,
}

/// Where the hands of a manual clock stand.
#[derive(Debug, Clone, Copy)]
struct Hands {
    wall: Timestamp,
    steady: Timestamp,
}

impl Clock {
    /// The clocks of this machine, anchored now.
    pub fn system() -> Self {
        let inner = Inner::System {
            wall_at_start: wall_clock(),
            started: Instant::now(),
            ahead: AtomicI64::new(0),
            follows: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// From now on both readings are those of a server whose clock shows `theirs`
    /// at this moment: machines that share a store have one time, whatever their
    /// own clocks show, and however those are stepped. Said again, it only moves
    /// forward, as after this machine was suspended. Says by how many
    /// milliseconds. Without effect on a manual clock.
    pub fn keep_to(&self, theirs: Timestamp) -> i64 {
        let Inner::System { ahead, follows, .. } = &*self.inner else { return 0 };
        let by = theirs.as_millisecond().saturating_sub(self.steady().as_millisecond());
        if follows.swap(true, Ordering::Relaxed) && by <= 0 {
            return 0;
        }
        ahead.fetch_add(by, Ordering::Relaxed);
        by
    }

    /// A clock that stands at `start` until it is moved by hand.
    pub fn manual(start: Timestamp) -> Self {
        let hands = Mutex::new(Hands { wall: start, steady: start });
        Self { inner: Arc::new(Inner::Manual { hands, moved: Notify::new() }) }
    }

    /// The wall clock: may be stepped in either direction while we run, but for
    /// one that keeps to a server's.
    pub fn now(&self) -> Timestamp {
        match &*self.inner {
            Inner::System { follows, .. } if follows.load(Ordering::Relaxed) => self.steady(),
            Inner::System { .. } => wall_clock(),
            Inner::Manual { hands, .. } => read(hands).wall,
        }
    }

    /// The wall time at the start plus the time that has really passed since:
    /// never goes back. Lease ends and host turns are measured by it.
    pub fn steady(&self) -> Timestamp {
        match &*self.inner {
            Inner::System { wall_at_start, started, ahead, .. } => {
                put_forward(later(*wall_at_start, started.elapsed()), ahead)
            }
            Inner::Manual { hands, .. } => read(hands).steady,
        }
    }

    /// Is it the machine's, and not one that is moved by hand?
    pub fn is_system(&self) -> bool {
        matches!(&*self.inner, Inner::System { .. })
    }

    /// What the wall clock will show at a time that [`Self::steady`] will show, unless
    /// it is stepped until then: for times that are kept beside others of the
    /// wall clock.
    pub fn wall_at(&self, steady: Timestamp) -> Timestamp {
        let ahead = steady.duration_since(self.steady());
        self.now().saturating_add(ahead).unwrap_or(steady)
    }

    /// The same for people and other machines, to the second that the wall clock was
    /// stepped by: what is told twice is the same, unless it is stepped in between.
    pub fn shown_at(&self, steady: Timestamp) -> Timestamp {
        steady.saturating_add(self.stepped()).unwrap_or(steady)
    }

    /// What was told so, or named by the same clock, as steady time.
    pub fn told_at(&self, shown: Timestamp) -> Timestamp {
        shown.saturating_sub(self.stepped()).unwrap_or(shown)
    }

    /// By how many whole seconds the wall clock was stepped.
    fn stepped(&self) -> SignedDuration {
        let stepped = self.now().duration_since(self.steady());
        let seconds = (stepped.as_millis() + 500).div_euclid(1_000);
        SignedDuration::from_secs(i64::try_from(seconds).unwrap_or_default())
    }

    /// How long this machine has been up by the clock that steady time moves
    /// by, and since which boot: what two runs on one boot have in common,
    /// whatever became of the wall clock in between. `None` where the system
    /// does not say, and for a manual clock.
    pub fn uptime(&self) -> Option<Uptime> {
        match &*self.inner {
            Inner::System { .. } => {
                let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
                let up = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let ms = up.tv_sec.checked_mul(1_000)?.checked_add(up.tv_nsec / 1_000_000)?;
                Some(Uptime { boot: boot.trim().to_owned(), ms })
            }
            Inner::Manual { .. } => None,
        }
    }

    /// Returns once [`Self::steady`] has reached `at`; at once when it has.
    pub async fn sleep_until(&self, at: Timestamp) {
        match &*self.inner {
            Inner::System { .. } => {
                let wait = Duration::try_from(at.duration_since(self.steady()));
                // Negative means that the time has come already.
                tokio::time::sleep(wait.unwrap_or_default()).await;
            }
            Inner::Manual { hands, moved } => loop {
                let woken = moved.notified();
                // Registered before the look, so that no move is missed.
                if read(hands).steady >= at {
                    return;
                }
                woken.await;
            },
        }
    }

    /// Returns after `duration` of steady time.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(later(self.steady(), duration)).await;
    }

    /// Moves both hands of a manual clock forward and wakes who waits.
    /// Without effect on the system clock.
    pub fn advance(&self, by: Duration) {
        self.turn(|hands| Hands { wall: later(hands.wall, by), steady: later(hands.steady, by) });
    }

    /// Sets the wall hand of a manual clock to `to`; the steady hand follows
    /// forward and never goes back. Without effect on the system clock.
    pub fn set(&self, to: Timestamp) {
        self.turn(|hands| Hands { wall: to, steady: hands.steady.max(to) });
    }

    /// Steps only the wall hand of a manual clock, as an operator or NTP does.
    /// Without effect on the system clock.
    pub fn step_wall(&self, by: jiff::SignedDuration) {
        self.turn(|hands| {
            let wall = hands.wall.saturating_add(by).unwrap_or(hands.wall);
            Hands { wall, steady: hands.steady }
        });
    }

    fn turn(&self, to: impl FnOnce(Hands) -> Hands) {
        let Inner::Manual { hands, moved } = &*self.inner else { return };
        let mut guard = hands.lock().unwrap_or_else(PoisonError::into_inner);
        *guard = to(*guard);
        drop(guard);
        moved.notify_waiters();
    }
}

/// The hands are plain numbers, whole after any panic of another holder.
fn read(hands: &Mutex<Hands>) -> Hands {
    *hands.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `at` plus `by`, or the end of time.
fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn put_forward(at: Timestamp, ahead: &AtomicI64) -> Timestamp {
    let by = SignedDuration::from_millis(ahead.load(Ordering::Relaxed));
    at.saturating_add(by).unwrap_or(at)
}

/// The one reading of the machine's wall clock in the program.
#[allow(clippy::disallowed_methods)] // Everyone else asks this module.
fn wall_clock() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        Timestamp::from_second(1_800_000_000).expect("a timestamp")
    }

    /// Is the future still waiting after every task had its turn?
    async fn is_waiting(task: &tokio::task::JoinHandle<()>) -> bool {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        !task.is_finished()
    }

    #[test]
    fn a_stepped_wall_clock_does_not_move_steady_time() {
        let clock = Clock::manual(start());
        clock.advance(Duration::from_secs(10));
        let before = clock.steady();
        clock.step_wall(jiff::SignedDuration::from_hours(-2));
        assert_eq!(clock.steady(), before);
        assert_eq!(clock.now(), start() - Duration::from_secs(7190));
        clock.step_wall(jiff::SignedDuration::from_hours(5));
        assert_eq!(clock.steady(), before);
    }

    #[test]
    fn a_steady_time_is_shown_as_the_wall_clock_will_show_it() {
        let clock = Clock::manual(start());
        let at = start() + Duration::from_secs(60);
        for (step_ms, shown_s) in [(0, 60), (400, 60), (-800, 60), (400, 60), (25_000, 85)] {
            clock.step_wall(SignedDuration::from_millis(step_ms));
            assert_eq!(clock.shown_at(at), start() + Duration::from_secs(shown_s), "{step_ms}");
        }
    }

    #[test]
    fn setting_the_clock_back_leaves_steady_time() {
        let clock = Clock::manual(start());
        let earlier = start() - Duration::from_secs(60);
        clock.set(earlier);
        assert_eq!((clock.now(), clock.steady()), (earlier, start()));
        let later = start() + Duration::from_secs(60);
        clock.set(later);
        assert_eq!((clock.now(), clock.steady()), (later, later));
    }

    #[tokio::test]
    async fn a_sleeper_wakes_when_its_time_has_come_and_not_before() {
        let clock = Clock::manual(start());
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(60)).await }
        });
        assert!(is_waiting(&sleeper).await);
        clock.advance(Duration::from_secs(59));
        assert!(is_waiting(&sleeper).await);
        clock.step_wall(jiff::SignedDuration::from_hours(1));
        assert!(is_waiting(&sleeper).await);
        clock.advance(Duration::from_secs(1));
        sleeper.await.expect("it ends");
    }

    #[tokio::test]
    async fn a_time_that_has_passed_is_not_waited_for() {
        for clock in [Clock::manual(start()), Clock::system()] {
            clock.sleep_until(start() - Duration::from_secs(1_700_000_000)).await;
        }
    }

    #[test]
    fn the_system_clock_starts_at_the_wall_time_and_never_goes_back() {
        let clock = Clock::system();
        let first = clock.steady();
        let second = clock.steady();
        assert!(second >= first);
        assert!(clock.now().duration_since(second).abs() < jiff::SignedDuration::from_secs(60));
    }

    #[test]
    fn a_clock_that_keeps_to_another_one_goes_by_it_and_never_back() {
        let clock = Clock::system();
        let own = clock.now();
        let hour = Duration::from_secs(3_600);
        let is_by = |clock: &Clock, at: Timestamp| {
            let off = [clock.now(), clock.steady()].map(|time| time.duration_since(at).abs());
            off.iter().all(|off| *off < SignedDuration::from_secs(60))
        };
        clock.keep_to(own - hour);
        assert!(is_by(&clock, own - hour), "also back, the first time");
        clock.keep_to(own + hour);
        assert!(is_by(&clock, own + hour));
        assert_eq!(clock.keep_to(own), 0);
        assert!(is_by(&clock, own + hour));
    }

    #[test]
    fn moving_the_system_clock_by_hand_has_no_effect() {
        let clock = Clock::system();
        clock.advance(Duration::from_secs(3_600_000));
        let ahead = clock.steady().duration_since(clock.now());
        assert!(ahead < jiff::SignedDuration::from_hours(1));
    }
}
