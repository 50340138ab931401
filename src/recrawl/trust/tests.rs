//! Lastmods that lie, that are honest, and that change from one to the other.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::recrawl::habit::{Habit, Habits, Newer, Reading};
use crate::recrawl::model::{Look, UrlState, days_after};
use crate::recrawl::value::Worth;

const DAY: f64 = 1.0;
const HOUR: f64 = DAY / 24.0;

fn at(days: f64) -> Timestamp {
    days_after("2026-01-01T00:00:00Z".parse().expect("a timestamp"), days)
}

/// How a page of a source writes its lastmod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    AlwaysNow,
    BuiltDaily,
    Frozen,
    Missing,
    Future,
    Backwards,
    Alternating,
    DateOnlyToday,
    Honest,
}

impl Writes {
    /// As a Unix second, at the read number `read`, an hour apart; the page
    /// itself changes before every twelfth read.
    fn lastmod(self, page: usize, read: usize, now: i64) -> Option<i64> {
        let read = i64::try_from(read).expect("few");
        let page = i64::try_from(page).expect("few");
        match self {
            Self::AlwaysNow => Some(now),
            Self::BuiltDaily => Some(now / 86_400 * 86_400 + 1_800),
            Self::Frozen => Some(1_000_000_000),
            Self::Missing => None,
            Self::Future => Some(now + 30 * 86_400),
            Self::Backwards => Some(1_000_000_000 - read),
            Self::Alternating => Some(1_000_000_000 + read % 2),
            Self::DateOnlyToday => Some(now / 86_400 * 86_400),
            Self::Honest => Some(now - (read + page) % 12 * 3_600 - 600),
        }
    }
}

/// What became of a source that was read hourly.
#[derive(Debug)]
struct Watched {
    /// Most times that one URL was pulled forward by its lastmod.
    requeues: usize,
    /// The read after which the last URL was pulled forward.
    last: usize,
    /// Newer lastmods in all, and how many of them made their URL due at once.
    signals: usize,
    pulled: usize,
    habit: Habit,
}

/// Reads a source every hour, and fetches what its lastmods pull forward.
fn watch(writes: Writes, pages: usize, reads: usize, compares: bool) -> Watched {
    watch_from(None, writes, pages, reads, compares)
}

/// The same where another source has dated the pages, long ago.
fn watch_beside(writes: Writes, pages: usize, reads: usize, compares: bool) -> Watched {
    watch_from(Some(at(-30.0).as_second()), writes, pages, reads, compares)
}

fn watch_from(
    known: Option<i64>,
    writes: Writes,
    pages: usize,
    reads: usize,
    compares: bool,
) -> Watched {
    let (mut host, mut habits) = (Trust::default(), Habits::default());
    let mut states = vec![UrlState::first(at(0.0)); pages];
    let mut best: Vec<Option<i64>> = vec![known; pages];
    let mut listed: Vec<Option<i64>> = vec![None; pages];
    let mut requeues = vec![0; pages];
    let mut seen = Watched { requeues: 0, last: 0, signals: 0, pulled: 0, habit: Habit::Plain };
    for read in 0..reads {
        #[allow(clippy::cast_precision_loss)] // small numbers
        let now = 0.53 + read as f64 * HOUR;
        let second = at(now).as_second();
        let lastmods: Vec<_> = (0..pages).map(|page| writes.lastmod(page, read, second)).collect();
        let usable: Vec<_> =
            lastmods.iter().map(|lastmod| lastmod.filter(|at| *at <= second + 86_400)).collect();
        let is_newer = |page: &usize| listed[*page].is_some() && usable[*page] > listed[*page];
        let moved: Vec<usize> = (0..pages).filter(is_newer).collect();
        let regressed = (0..pages).filter(|page| usable[*page] < listed[*page]).count();
        let values: Vec<i64> = moved.iter().filter_map(|page| usable[*page]).collect();
        let count = |kept: usize| u32::try_from(kept).expect("few");
        let is_first = |page: &usize| listed[*page].is_none();
        let came: Vec<i64> = (0..pages).filter(is_first).filter_map(|page| usable[page]).collect();
        let dated = usable.iter().flatten().count();
        let Newer { moves, stamped } = habits.read(&Reading {
            at: at(now),
            entries: count(pages),
            dated: count(dated),
            date_only: if writes == Writes::DateOnlyToday { count(dated) } else { 0 },
            future: count(lastmods.iter().flatten().count() - dated),
            known: count(listed.iter().flatten().count()),
            regressed: count(regressed),
            moved: &values,
            came: &came,
        });
        // As the store does: no signal but from the newest so far, and the first is none.
        let is_news = |page: &usize| best[*page].is_some() && usable[*page] > best[*page];
        let moved: Vec<usize> = (0..pages).filter(is_news).collect();
        for page in 0..pages {
            listed[page] = usable[page];
            if usable[page] > best[page] {
                best[page] = usable[page];
            }
        }
        for page in moved {
            seen.signals += 1;
            let is_stamp = |date| stamped.is_some_and(|span| span.contains(date));
            let is_stamp = usable[page].is_some_and(is_stamp);
            states[page].signal(if is_stamp { Signal::Stamp } else { moves });
            if is_pulled(&states[page], &beliefs(&host), now) {
                seen.pulled += 1;
                seen.last = read;
                requeues[page] += 1;
                let look = match (compares, writes) {
                    (false, _) => Look::Unknown,
                    (true, Writes::Honest) => Look::Changed,
                    (true, _) => Look::Unchanged,
                };
                let beliefs = beliefs(&host);
                if let Some(evidence) = states[page].look(at(now), look, &beliefs) {
                    host.learn(&Lesson::of(&evidence, &beliefs));
                }
            }
        }
    }
    Watched { requeues: requeues.into_iter().max().unwrap_or(0), habit: habits.habit(), ..seen }
}

fn beliefs(host: &Trust) -> Beliefs {
    // One source, which has seen all that its host has.
    let weights = Trust::weights(host, host, &Trust::default());
    Beliefs { rate: 1.0 / 14.0, looks: 50.0, silent: host.silent(), pulls: pulls(&weights) }
}

/// Is the URL due now, and would it not be without its signals?
fn is_pulled(state: &UrlState, beliefs: &Beliefs, now: f64) -> bool {
    let due = |pulls: PerSignal<f64>| {
        let worth = Worth {
            estimate: state.estimate(&Beliefs { pulls, ..*beliefs }, at(now)),
            mu: 1.0,
            priority: 50.0,
            protocol: Duration::from_secs(14 * 86_400),
            min: Duration::from_secs(3600),
            max: Duration::from_secs(180 * 86_400),
            seen: state.seen(),
            id: 0,
        };
        worth.due(0.5) <= at(now)
    };
    due(beliefs.pulls) && !due(PerSignal::default())
}

#[test]
fn no_habit_of_lying_floods_the_queue() {
    // Habit, what it is called, and how often a URL may be pulled in 200 reads:
    // what a small source may do between its first read and its third stamp, and nothing after.
    let table = [
        (Writes::AlwaysNow, Habit::AlwaysNow, 1),
        (Writes::BuiltDaily, Habit::Stamped, 1),
        (Writes::Frozen, Habit::Frozen, 0),
        (Writes::Missing, Habit::Missing, 0),
        (Writes::Future, Habit::Future, 0),
        (Writes::Backwards, Habit::Backwards, 0),
        (Writes::Alternating, Habit::Alternating, 1),
        (Writes::DateOnlyToday, Habit::Stamped, 1),
    ];
    for (writes, habit, most) in table {
        for compares in [true, false] {
            let large = watch(writes, 30, 200, compares);
            assert_eq!(large.habit, habit, "{writes:?}");
            assert_eq!(large.requeues, 0, "{writes:?}: {large:?}");
            let small = watch(writes, 5, 200, compares);
            assert!(small.requeues <= most, "{writes:?}: {small:?}");
        }
    }
    // Caught within two reads that moved anything.
    let small = watch(Writes::AlwaysNow, 5, 200, false);
    assert!(small.last <= 2, "{small:?}");
}

#[test]
fn a_new_source_that_stamps_known_pages_pulls_none_of_them() {
    for writes in [Writes::AlwaysNow, Writes::BuiltDaily, Writes::DateOnlyToday] {
        for compares in [true, false] {
            let large = watch_beside(writes, 30, 200, compares);
            assert_eq!(large.requeues, 0, "{writes:?}: {large:?}");
            let small = watch_beside(writes, 5, 200, compares);
            assert!(small.requeues <= 2, "{writes:?}: {small:?}");
        }
    }
    for pages in [30, 5, 1] {
        let honest = watch_beside(Writes::Honest, pages, 400, true);
        assert!(honest.pulled * 100 >= honest.signals * 95, "{pages}: {honest:?}");
    }
    // Each of them was edited since the other source was read.
    let first = watch_beside(Writes::Honest, 30, 1, true);
    assert_eq!((first.signals, first.pulled), (30, 30));
}

#[test]
fn an_honest_source_keeps_its_full_pull() {
    for (pages, compares) in [(30, true), (30, false), (5, true), (1, true)] {
        let honest = watch(Writes::Honest, pages, 400, compares);
        assert_eq!(honest.habit, Habit::Plain);
        assert!(honest.signals > 30 * pages, "{honest:?}");
        assert!(honest.pulled * 100 >= honest.signals * 95, "{pages} {compares}: {honest:?}");
    }
}

/// Looks at pages that each had one signal, all of one outcome.
fn teach(host: &mut Trust, signal: Signal, changed: bool, looks: usize) {
    for _ in 0..looks {
        let beliefs = beliefs(host);
        let mut state = UrlState::first(at(0.0));
        state.signal(signal);
        let look = if changed { Look::Changed } else { Look::Unchanged };
        let evidence = state.look(at(1.0), look, &beliefs).expect("compared");
        host.learn(&Lesson::of(&evidence, &beliefs));
    }
}

/// Looks until the weight of a kind is as wanted.
fn looks_until(
    host: &mut Trust,
    signal: Signal,
    changed: bool,
    wanted: impl Fn(f64) -> bool,
) -> usize {
    for looks in 0..1_000 {
        if wanted(beliefs(host).pulls[signal]) {
            return looks;
        }
        teach(host, signal, changed, 1);
    }
    panic!("never learned");
}

#[test]
fn a_host_that_changes_its_habit_is_learned_anew() {
    let mut host = Trust::default();
    assert!(looks_until(&mut host, Signal::Lastmod, false, |pull| pull <= 0.0) <= 12);
    teach(&mut host, Signal::Lastmod, false, 500);
    let honest = looks_until(&mut host, Signal::Lastmod, true, |pull| pull > 1.2);
    assert!(honest <= 12, "{honest}");
    teach(&mut host, Signal::Lastmod, true, 500);
    assert!(beliefs(&host).pulls[Signal::Lastmod] > 2.0);
    let lying = looks_until(&mut host, Signal::Lastmod, false, |pull| pull <= 0.0);
    assert!(lying <= 60, "{lying}");
}

#[test]
fn stamps_that_prove_right_are_believed() {
    let mut host = Trust::default();
    assert!(beliefs(&host).pulls[Signal::Stamp] <= 0.0);
    let proven = looks_until(&mut host, Signal::Stamp, true, |pull| pull > 0.0);
    assert!((2..=8).contains(&proven), "{proven}");
}

#[test]
fn one_kind_of_signal_says_nothing_of_another() {
    let mut host = Trust::default();
    teach(&mut host, Signal::Lastmod, true, 50);
    let before = beliefs(&host).pulls;
    teach(&mut host, Signal::Touched, false, 50);
    let after = beliefs(&host).pulls;
    assert!(after[Signal::Touched] <= 0.0 && before[Signal::Touched] > 0.0);
    assert!((after[Signal::Lastmod] - before[Signal::Lastmod]).abs() < 1e-12);
}

#[test]
fn what_a_source_has_not_proved_it_inherits_and_what_it_has_it_keeps() {
    let mut host = Trust::default();
    teach(&mut host, Signal::Lastmod, false, 100);
    let new = Trust::weights(&Trust::default(), &host, &Trust::default());
    assert!(new[Signal::Lastmod] < 0.5, "{new:?}");
    let mut source = Trust::default();
    teach(&mut source, Signal::Lastmod, true, 30);
    let proven = Trust::weights(&source, &host, &Trust::default());
    assert!(proven[Signal::Lastmod] > 1.5, "{proven:?}");
}

#[test]
fn a_host_that_tells_its_changes_is_told_from_one_that_does_not() {
    let (mut tells, mut silent) = (Trust::default(), Trust::default());
    assert!(tells.silent() > 0.6);
    for n in 0..60 {
        for (host, signals) in [(&mut tells, true), (&mut silent, false)] {
            let beliefs = beliefs(host);
            let mut state = UrlState::first(at(0.0));
            // Half of all looks find a change.
            let changed = n % 2 == 0;
            if signals && changed {
                state.signal(Signal::Lastmod);
            }
            let look = if changed { Look::Changed } else { Look::Unchanged };
            let evidence = state.look(at(10.0), look, &beliefs).expect("compared");
            host.learn(&Lesson::of(&evidence, &beliefs));
        }
    }
    assert!(tells.silent() < 0.2, "{}", tells.silent());
    assert!(silent.silent() > 0.9, "{}", silent.silent());
}

proptest! {
    #[test]
    fn trust_is_sane_whatever_was_seen_and_comes_back_as_it_was_kept(
        looks in proptest::collection::vec((0_usize..4, any::<bool>(), 0.001_f64..1e4, 0_u8..20), 0..80),
    ) {
        let mut host = Trust::default();
        for (signal, changed, days, count) in looks {
            let beliefs = beliefs(&host);
            let mut state = UrlState::first(at(0.0));
            for _ in 0..count {
                state.signal(Signal::ALL[signal]);
            }
            let look = if changed { Look::Changed } else { Look::Unchanged };
            if let Some(evidence) = state.look(at(days), look, &beliefs) {
                host.learn(&Lesson::of(&evidence, &beliefs));
            }
        }
        let weights = Trust::weights(&host, &host, &host);
        prop_assert!(weights.0.iter().all(|weight| (0.0..=MOST).contains(weight)));
        prop_assert!((0.0..=1.0).contains(&host.silent()));
        let bytes = host.pack();
        prop_assert_eq!(bytes.len(), PACKED);
        let back = Trust::unpack(&bytes).expect("packed trust");
        prop_assert_eq!(back.pack(), bytes);
        let after = Trust::weights(&back, &back, &back);
        for (before, after) in weights.0.into_iter().zip(after.0) {
            prop_assert!((before - after).abs() < 1e-4);
        }
    }

    #[test]
    fn any_bytes_are_trust_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Some(trust) = Trust::unpack(&bytes) {
            let weights = Trust::weights(&trust, &trust, &trust);
            prop_assert!(weights.0.iter().all(|weight| (0.0..=MOST).contains(weight)));
        }
    }
}
