//! Pure: how a subscription is kept up, and what of a hub is believed.
//!
//! W3C `WebSub` (2018-01-23), the subscriber's side. Nothing here knows rows or
//! the clock: where a callback stands and the time are arguments.

use std::time::Duration;

use jiff::Timestamp;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The lease that is asked for (section 5.1 recommends ten days).
pub const WANTED_LEASE: Duration = Duration::from_secs(10 * 24 * 3_600);
/// A hub has so long to verify what it was asked for.
pub const VERIFY_WITHIN: Duration = HOUR;
/// A longer lease is renewed as if it were this long: so often at least we
/// hear whether the hub still knows us.
const LONGEST_LEASE: Duration = Duration::from_secs(14 * 24 * 3_600);
/// A lease is never renewed sooner, however short the hub makes it.
const RENEW_AT_LEAST: Duration = HOUR;
/// A hub whose answer to a verification was lost may ask again for so long.
const ASKED_AGAIN: Duration = Duration::from_secs(300);
/// After a hub has said no, it is left alone for so long.
pub const AFTER_DENIAL: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Failures in a row after which hubs are asked once a week.
const HOPELESS: u32 = 10;
/// Times that a hub is told that we leave.
pub const FAREWELLS: u32 = 3;

/// Where a callback stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The hub was asked to subscribe it.
    Asked,
    /// Verified then.
    Active(Timestamp),
    /// The hub was asked to unsubscribe it.
    Leaving,
}

/// `hub.mode` of a request to a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Do you want this subscription?
    Subscribe,
    /// Do you want it ended?
    Unsubscribe,
    /// It is refused, or was ended.
    Denied,
}

/// What becomes of a callback after a request to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The subscription begins.
    Begin,
    /// It has begun already; the hub has missed our answer.
    Again,
    /// It ends, as we have asked for.
    End,
    /// The hub has ended it.
    Drop,
    /// We have asked for nothing of this.
    Refuse,
}

/// Judges what a hub asks of a callback at `now`; `same_topic` says whether it
/// is about what we have asked for.
pub fn judge(standing: Standing, mode: Mode, same_topic: bool, now: Timestamp) -> Verdict {
    if !same_topic {
        return Verdict::Refuse;
    }
    match (mode, standing) {
        (Mode::Subscribe, Standing::Asked) => Verdict::Begin,
        (Mode::Subscribe, Standing::Active(since)) if after(since, ASKED_AGAIN) > now => {
            Verdict::Again
        }
        (Mode::Unsubscribe | Mode::Denied, Standing::Leaving) => Verdict::End,
        (Mode::Denied, Standing::Asked | Standing::Active(_)) => Verdict::Drop,
        (Mode::Subscribe | Mode::Unsubscribe, _) => Verdict::Refuse,
    }
}

/// A lease that was granted: when it ends, and when it is renewed. `chance` in
/// [0, 1) spreads renewals over 50 to 80 % of it.
pub fn lease(granted: Option<Duration>, chance: f64, now: Timestamp) -> (Timestamp, Timestamp) {
    let granted = granted.unwrap_or(WANTED_LEASE).min(LONGEST_LEASE);
    let share = 0.5 + 0.3 * chance.clamp(0.0, 1.0);
    let renewal = granted.mul_f64(share).max(RENEW_AT_LEAST);
    (after(now, granted), after(now, renewal))
}

/// How long hubs are left alone after so many failures in a row.
pub fn backoff(failures: u32, chance: f64) -> Duration {
    if failures >= HOPELESS {
        return 7 * DAY;
    }
    let doubled = HOUR * 2_u32.saturating_pow(failures.saturating_sub(1).min(6));
    let wait = doubled.min(DAY);
    // Full jitter would ask again at once; half of it spreads well enough.
    wait.mul_f64(0.75 + 0.5 * chance.clamp(0.0, 1.0)).min(DAY)
}

/// Must a push of this topic, by this hub, be signed to be read? A body that
/// came unsigned over plain http is no worse than a poll over plain http, and
/// worse than any other: then it only brings the poll forward. What the feed
/// calls itself, its topic, says nothing of how it is polled, its place.
pub fn is_trusted(signed: bool, topic: &str, place: &str) -> bool {
    signed || [topic, place].iter().all(|url| url.starts_with("http:"))
}

/// How push does for a source, as far as polling needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Push {
    /// Since when a hub has promised to push.
    pub since: Timestamp,
    /// When the lease ends.
    pub until: Timestamp,
    /// The last push that was read.
    pub pushed_at: Option<Timestamp>,
    /// The last push that could not be read and brought a poll forward.
    pub hinted_at: Option<Timestamp>,
    /// Since when polls find what no push has brought.
    pub broken_at: Option<Timestamp>,
    /// Is a push kept that is not read yet?
    pub waiting: bool,
}

impl Push {
    /// Has it proved that what it does not bring is not there?
    pub fn is_healthy(&self, now: Timestamp) -> bool {
        let is_proven = self.pushed_at.is_some_and(|at| at >= self.since);
        is_proven && self.broken_at.is_none() && self.until > now
    }

    /// A poll has found something new: should a push have brought it? Not what
    /// may be older than the subscription, and not what a push has told of
    /// that was a hint only or is not read yet.
    pub fn has_missed(&self, last_success: Option<Timestamp>, now: Timestamp) -> bool {
        let Some(last) = last_success else { return false };
        let is_told = self.waiting || self.hinted_at.is_some_and(|at| at >= last);
        self.since <= last && self.until > now && !is_told
    }
}

fn after(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a timestamp")
    }

    #[test]
    fn only_what_was_asked_for_is_confirmed() {
        use Mode::{Denied, Subscribe, Unsubscribe};
        use Standing::{Active, Asked, Leaving};
        for (standing, mode, expected) in [
            (Asked, Subscribe, Verdict::Begin),
            (Asked, Unsubscribe, Verdict::Refuse),
            (Asked, Denied, Verdict::Drop),
            (Active(at(0)), Subscribe, Verdict::Again),
            (Active(at(-300)), Subscribe, Verdict::Refuse),
            (Active(at(0)), Unsubscribe, Verdict::Refuse),
            (Active(at(-9_999)), Denied, Verdict::Drop),
            (Leaving, Subscribe, Verdict::Refuse),
            (Leaving, Unsubscribe, Verdict::End),
            (Leaving, Denied, Verdict::End),
        ] {
            assert_eq!(judge(standing, mode, true, at(0)), expected, "{standing:?} {mode:?}");
            assert_eq!(judge(standing, mode, false, at(0)), Verdict::Refuse, "another topic");
        }
    }

    #[test]
    fn a_push_is_believed_no_further_than_a_poll() {
        let (open, closed) = ("http://a.example/feed", "https://a.example/feed");
        assert!(is_trusted(true, closed, closed));
        assert!(is_trusted(false, open, open));
        for (topic, place) in [(open, closed), (closed, open), (closed, closed)] {
            assert!(!is_trusted(false, topic, place), "{topic} {place}");
        }
    }

    #[test]
    fn push_is_healthy_once_it_is_proven_and_until_it_misses_something_or_ends() {
        let proven = Push {
            since: at(0),
            until: at(1_000),
            pushed_at: Some(at(10)),
            hinted_at: None,
            broken_at: None,
            waiting: false,
        };
        assert!(proven.is_healthy(at(20)));
        assert!(!proven.is_healthy(at(1_000)), "the lease is over");
        let table = [
            Push { pushed_at: None, ..proven },
            Push { pushed_at: Some(at(-1)), ..proven },
            Push { broken_at: Some(at(15)), ..proven },
        ];
        for push in table {
            assert!(!push.is_healthy(at(20)), "{push:?}");
        }
        assert!(proven.has_missed(Some(at(0)), at(20)));
        assert!(!proven.has_missed(None, at(20)), "the first poll");
        assert!(!proven.has_missed(Some(at(-1)), at(20)), "it may be older than the subscription");
        assert!(!proven.has_missed(Some(at(0)), at(1_000)), "nobody has promised it");
        assert!(!Push { waiting: true, ..proven }.has_missed(Some(at(0)), at(20)));
        assert!(!Push { hinted_at: Some(at(5)), ..proven }.has_missed(Some(at(0)), at(20)));
        assert!(Push { hinted_at: Some(at(5)), ..proven }.has_missed(Some(at(6)), at(20)));
    }

    proptest::proptest! {
        #[test]
        fn a_lease_is_renewed_before_it_ends_and_never_in_a_flood(
            granted in proptest::option::of(0..u64::MAX), chance in 0.0..1.0_f64,
        ) {
            let (end, renewal) = lease(granted.map(Duration::from_secs), chance, at(0));
            assert!(end <= at(14 * 86_400));
            assert!(renewal >= at(3_600) && renewal <= at(14 * 86_400 * 4 / 5 + 1));
            assert!(renewal < end || end <= at(7_200));
        }

        #[test]
        fn more_failures_never_ask_sooner_and_a_week_is_the_longest(
            failures in 1..1_000_u32, chance in 0.0..1.0_f64,
        ) {
            let (wait, next) = (backoff(failures, chance), backoff(failures + 1, chance));
            assert!(wait >= Duration::from_secs(2_700) && wait <= next && next <= 7 * DAY);
        }
    }
}
