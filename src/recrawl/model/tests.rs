//! Laws of the state of one URL.

use super::*;
use proptest::prelude::*;

fn at(days: f64) -> Timestamp {
    days_after("2026-01-01T00:00:00Z".parse().expect("a timestamp"), days)
}

fn beliefs() -> Beliefs {
    let pulls = PerSignal([1.0, 0.0, 0.5, 1.4]);
    Beliefs { rate: 1.0 / 14.0, looks: 0.0, silent: 0.7, pulls }
}

/// A state after looks at growing times, with signals between them.
fn looked(looks: &[(f64, bool, u8)], beliefs: &Beliefs) -> UrlState {
    let mut state = UrlState::first(at(0.0));
    let mut day = 0.0;
    for (days, changed, signals) in looks {
        day += days;
        for _ in 0..*signals {
            state.signal(Signal::Lastmod);
        }
        let look = if *changed { Look::Changed } else { Look::Unchanged };
        state.look(at(day), look, beliefs);
    }
    state
}

fn looks() -> impl Strategy<Value = Vec<(f64, bool, u8)>> {
    proptest::collection::vec((0.01_f64..60.0, any::<bool>(), 0_u8..4), 0..40)
}

proptest! {
    #[test]
    fn a_state_comes_back_within_what_16_bytes_hold(looks in looks(), pending in 0_u8..20) {
        let mut state = looked(&looks, &beliefs());
        for _ in 0..pending {
            for signal in Signal::ALL {
                state.signal(signal);
            }
        }
        let back = UrlState::unpack(&state.pack()).expect("a packed state");
        let near = |a: f64, b: f64, by: f64| (a - b).abs() <= by * a.abs() + 1e-6;
        prop_assert!(near(state.silent, back.silent, 5e-4));
        prop_assert!(near(state.signalled, back.signalled, 5e-4));
        prop_assert!(near(state.exposure, back.exposure, 5e-4));
        prop_assert!(near(state.span, back.span, 7e-3));
        prop_assert_eq!(state.history, back.history);
        prop_assert_eq!(state.pending, back.pending);
        prop_assert!(days_between(back.seen, state.seen) < 2.0 / 86_400.0);
        prop_assert_eq!(back.pack(), state.pack());
        prop_assert_eq!(UrlState::unpack(&back.pack()), Some(back));
    }

    #[test]
    fn a_signal_is_noted_in_the_bytes_as_in_the_state(looks in looks(), signals in proptest::collection::vec(0_usize..4, 0..300)) {
        let mut state = looked(&looks, &beliefs());
        let mut bytes = state.pack();
        for signal in signals {
            state.signal(Signal::ALL[signal]);
            UrlState::signal_packed(&mut bytes, Signal::ALL[signal]);
        }
        prop_assert_eq!(bytes, state.pack());
    }

    #[test]
    fn any_16_bytes_are_a_state_of_sane_rates_or_none(bytes: [u8; 16], later in 0.0_f64..1e5) {
        if let Some(state) = UrlState::unpack(&bytes) {
            let estimate = state.estimate(&beliefs(), days_after(state.seen(), later));
            prop_assert!(estimate.alpha >= SLOWEST && estimate.alpha <= FASTEST);
            prop_assert!(estimate.total >= estimate.alpha && estimate.total.is_finite());
            prop_assert!(estimate.pull >= 0.0 && estimate.pull.is_finite());
        }
    }

    #[test]
    fn one_change_more_never_means_a_slower_page(looks in looks(), which: prop::sample::Index) {
        prop_assume!(!looks.is_empty());
        let mut looks: Vec<_> = looks.into_iter().map(|(days, z, _)| (days, z, 0)).collect();
        let which = which.index(looks.len());
        looks[which].1 = false;
        let calm = looked(&looks, &beliefs());
        looks[which].1 = true;
        let lively = looked(&looks, &beliefs());
        let (calm, lively) =
            (calm.estimate(&beliefs(), calm.seen()), lively.estimate(&beliefs(), lively.seen()));
        prop_assert!(lively.alpha >= calm.alpha * (1.0 - 1e-9), "{lively:?} {calm:?}");
        prop_assert!(lively.total >= calm.total * (1.0 - 1e-9), "{lively:?} {calm:?}");
    }

    #[test]
    fn a_signal_never_makes_a_change_less_likely(looks in looks(), later in 0.0_f64..100.0) {
        let state = looked(&looks, &beliefs());
        let mut signalled = state;
        signalled.signal(Signal::Lastmod);
        let now = days_after(state.seen(), later);
        let (before, after) =
            (state.estimate(&beliefs(), now), signalled.estimate(&beliefs(), now));
        prop_assert!(after.pull > before.pull && after.total > before.total);
        prop_assert!(after.alpha >= before.alpha);
    }
}

#[test]
fn the_rate_of_a_page_is_learned_and_learned_anew() {
    let beliefs = Beliefs { silent: 1.0, ..beliefs() };
    // Looked at twice a day; it changes every two days.
    let daily = |from: usize, every: usize| {
        (from..from + 200).map(move |n| (0.5, n % every == 0, 0)).collect::<Vec<_>>()
    };
    let mut looks = daily(0, 4);
    let state = looked(&looks, &beliefs);
    let alpha = state.estimate(&beliefs, state.seen()).alpha;
    assert!((0.25..0.7).contains(&alpha), "{alpha}");
    // From now on every 20 days.
    looks.extend(daily(1, 40));
    let state = looked(&looks, &beliefs);
    let alpha = state.estimate(&beliefs, state.seen()).alpha;
    assert!((0.02..0.12).contains(&alpha), "{alpha}");
}

#[test]
fn what_was_not_seen_teaches_nothing() {
    for outcome in Outcome::ALL {
        let look = Look::of(outcome);
        match outcome {
            Outcome::Blocked | Outcome::Failed => assert_eq!(look, None),
            _ => assert!(look.is_some(), "{outcome:?}"),
        }
    }
    let mut state = looked(&[(3.0, true, 0), (4.0, false, 1)], &beliefs());
    state.signal(Signal::Lastmod);
    let before = state;
    assert_eq!(state.look(at(7.0), Look::Changed, &beliefs()), None);
    assert_eq!(state, before, "a look at the time of the last one");
    assert_eq!(state.look(at(9.0), Look::Unknown, &beliefs()), None);
    assert_eq!((state.silent, state.exposure), (before.silent, before.exposure));
    assert_eq!(state.seen(), at(9.0));
    assert_eq!(*state.pending(), PerSignal::default(), "the fetcher has the page as it is");
}

#[test]
fn a_look_before_the_last_one_teaches_nothing_and_is_where_time_goes_on_from() {
    let mut state = looked(&[(3.0, true, 0), (4_000.0, false, 1)], &beliefs());
    state.signal(Signal::Lastmod);
    let before = state;
    assert_eq!(state.look(at(9.0), Look::Changed, &beliefs()), None);
    assert_eq!((state.seen(), *state.pending()), (at(9.0), PerSignal::default()));
    assert_eq!((state.silent, state.exposure), (before.silent, before.exposure));
    assert!(state.look(at(11.0), Look::Changed, &beliefs()).is_some());
}

#[test]
fn a_page_that_went_is_a_change_of_its_own_and_none_of_its_host() {
    let mut state = UrlState::first(at(0.0));
    assert_eq!(state.look(at(2.0), Look::Gone, &beliefs()), None);
    assert!(state.silent > 0.0);
    assert_eq!(state.history(), (1, 1));
}

#[test]
fn the_last_fifteen_looks_are_kept_one_by_one() {
    let looks: Vec<_> = (0..40).map(|n| (2.0, n % 2 == 0, 0)).collect();
    assert_eq!(looked(&looks[..6], &beliefs()).history(), (6, 3));
    assert!((looked(&looks[..6], &beliefs()).history_days() - 12.0).abs() < 1e-9);
    let full = looked(&looks, &beliefs());
    assert_eq!(full.history(), (15, 7));
    assert!((full.history_days() - 30.0).abs() < 1e-6);
}
