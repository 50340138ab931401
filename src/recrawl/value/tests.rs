//! Laws of value, due time and place.

use proptest::prelude::*;

use super::*;
use crate::model::{ChangeFreq, Priority};
use crate::recrawl::model::{Beliefs, Look, UrlState};
use crate::recrawl::prior::{Bucket, Priors};
use crate::recrawl::signal::{PerSignal, Signal};
use crate::recrawl::{self, SUBMITTED_BAND};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const BY_WORD: [Duration; 7] =
    [HOUR, HOUR, DAY, saturating(7), saturating(30), saturating(180), saturating(180)];

const fn saturating(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}

fn at(days: f64) -> Timestamp {
    days_after("2026-01-01T00:00:00Z".parse().expect("a timestamp"), days)
}

/// A URL at its site's mean but for its priority, seen at 0, of which nothing
/// was ever compared.
fn unproven(priority: f64, changefreq: ChangeFreq) -> Worth {
    let none = Priors::default();
    let protocol = BY_WORD[changefreq as usize];
    let bucket = Bucket::of(Some(changefreq));
    let beliefs = Beliefs {
        rate: none.rate(&none, bucket, protocol),
        looks: none.looks(&none),
        silent: 1.0,
        pulls: PerSignal::default(),
    };
    Worth {
        estimate: UrlState::first(at(0.0)).estimate(&beliefs, at(0.0)),
        mu: relative(priority, 0.5),
        priority: f64::from(recrawl::band(Priority::from_f64(priority))),
        protocol,
        min: HOUR,
        max: saturating(180),
        seen: at(0.0),
        id: 0,
    }
}

fn proven(alpha: f64, pull: f64, mu: f64) -> Worth {
    let estimate = Estimate { alpha, total: alpha, settled: alpha, pull, looks: 50.0 };
    Worth { estimate, mu, ..unproven(0.5, ChangeFreq::Weekly) }
}

#[test]
fn without_evidence_intervals_and_order_are_the_protocols() {
    for price in [1e-3, 1.0, 5.0, 1e3] {
        for word in ChangeFreq::ALL {
            let worth = unproven(0.5, word);
            assert_eq!(worth.due(price), at(0.0) + BY_WORD[word as usize], "{word:?}");
        }
        for pair in ChangeFreq::ALL.windows(2) {
            let (shorter, longer) = (unproven(0.5, pair[0]), unproven(0.5, pair[1]));
            assert!(shorter.due(price) <= longer.due(price), "{pair:?}");
            let now = at(200.0);
            assert!((shorter.at(now).score(price) - longer.at(now).score(price)).abs() < 1e-12);
        }
        for hundredths in 0..100_u16 {
            let priority = |n: u16| f64::from(n) / 100.0;
            let lower = unproven(priority(hundredths), ChangeFreq::Daily);
            let higher = unproven(priority(hundredths + 1), ChangeFreq::Daily);
            assert!(higher.at(at(2.0)).score(price) > lower.at(at(2.0)).score(price));
            assert_eq!(higher.due(price), lower.due(price));
            let band = higher.place(at(0.0), price).band;
            assert_eq!(band, recrawl::band(Priority::from_thousandths((hundredths + 1) * 10)));
        }
    }
}

#[test]
fn without_evidence_a_believed_signal_makes_due_at_once() {
    let mut worth = unproven(0.5, ChangeFreq::Monthly);
    worth.estimate.pull = 1.0;
    assert_eq!(worth.due(5.0), at(0.0) + HOUR);
}

#[test]
fn a_site_that_claims_1_for_all_its_pages_gains_nothing() {
    assert!((relative(1.0, 1.0) - relative(0.5, 0.5)).abs() < 1e-12);
    assert!((relative(0.0, 0.0) - 1.0).abs() < 1e-12);
    assert!(relative(1.0, 0.5) > relative(0.5, 0.5));
}

#[test]
fn the_table_of_places_is_kept() {
    let refreshed = 55.0;
    let learned = |reason| band_for(reason, 50.0, 1.0, refreshed);
    assert_eq!(learned(Reason::Submitted), SUBMITTED_BAND);
    let order = [Reason::Submitted, Reason::New, Reason::Recrawl, Reason::Removed];
    for pair in order.windows(2) {
        assert!(learned(pair[0]) > learned(pair[1]), "{pair:?}");
    }
    assert!(band_for(Reason::New, 80.0, 1.0, 0.0) > band_for(Reason::New, 20.0, 1.0, 0.0));
    for reason in [Reason::New, Reason::Changed, Reason::Recrawl, Reason::Removed] {
        assert_eq!(band_for(reason, 30.0, 0.0, 99.0), 30, "without evidence: {reason:?}");
    }
}

#[test]
fn one_fetch_of_sixteen_goes_to_the_oldest() {
    let turns = (0..160).filter(|fetches| is_oldest_turn(*fetches)).count();
    assert_eq!(turns, 10);
}

#[test]
fn one_fetch_of_four_goes_to_what_is_new_and_none_of_those_to_the_oldest() {
    let turns: Vec<_> = (0..160).filter(|fetches| is_turn_of_new(*fetches)).collect();
    assert_eq!(turns.len(), 40);
    assert!(turns.iter().all(|fetches| fetches % 2 == 0 && !is_oldest_turn(*fetches)));
}

#[test]
fn only_a_move_of_a_twentieth_of_the_wait_is_written() {
    let seen = at(0.0);
    let table =
        [(100.0, 104.0, false), (100.0, 106.0, true), (100.0, 94.0, true), (10.0, 10.1, false)];
    for (old, new, expected) in table {
        assert_eq!(is_worth_a_write(seen, at(old), at(new)), expected, "{old} to {new}");
    }
}

#[test]
fn a_row_of_which_little_is_known_surfaces_before_it_is_due() {
    let place = unproven(0.5, ChangeFreq::Yearly).place(at(0.0), 5.0);
    assert_eq!(place.due, at(180.0));
    assert_eq!(place.surfaces, at(90.0));
    let mut now = at(0.0);
    let mut writes = 0;
    while now < at(180.0) {
        now = unproven(0.5, ChangeFreq::Yearly).place(now, 5.0).surfaces;
        writes += 1;
    }
    assert!(writes <= 6, "{writes}");
    let known = proven(0.1, 0.0, 1.0).place(at(0.0), 5.0);
    assert_eq!(known.surfaces, known.due);
}

#[test]
fn what_is_overdue_is_due_and_never_last() {
    let worth = proven(1.0 / 3650.0, 0.0, 1.0);
    let now = at(181.0);
    assert!(worth.at(now).is_overdue() && worth.at(now).is_due(1e5));
    assert!(worth.at(now).score(1e5) >= 50.0);
}

#[test]
fn five_looks_are_all_the_proof_that_is_asked_for() {
    for (looks, proof) in [(0.0, 0.0), (1.0, 0.2), (2.5, 0.5), (5.0, 1.0), (50.0, 1.0)] {
        let mut worth = proven(0.1, 0.0, 1.0);
        worth.estimate.looks = looks;
        assert!((worth.proof() - proof).abs() < 1e-12, "{looks}");
    }
}

#[test]
fn half_a_proof_is_due_between_the_protocol_and_what_was_learned() {
    let mut worth = proven(0.1, 0.0, 1.0);
    let learned = days_between(at(0.0), worth.due(1.0));
    worth.estimate.looks = 0.0;
    assert_eq!(worth.due(1.0), at(7.0));
    worth.estimate.looks = 2.5;
    let between = days_between(at(0.0), worth.due(1.0));
    assert!((between - (7.0 * learned).sqrt()).abs() < 1e-3, "{between} {learned}");
}

#[test]
fn the_longest_wait_of_what_is_proven_is_spread_by_a_fifth() {
    for (id, spread) in [(0, 0.0), (512, 0.1), (1_023, 0.2), (1_024, 0.0), (-512, 0.1)] {
        let worth = Worth { id, ..proven(0.1, 0.0, 1.0) };
        let (_, max) = worth.bounds();
        assert!((max / 180.0 - (1.0 - spread)).abs() < 1e-3, "{id}: {max}");
        let (_, max) = Worth { id, ..unproven(0.5, ChangeFreq::Weekly) }.bounds();
        assert!((max - 180.0).abs() < 1e-9, "without proof nothing is spread: {max}");
    }
}

#[test]
fn a_row_is_looked_for_a_little_before_its_value_reaches_the_price() {
    let worth = proven(0.1, 0.0, 1.0);
    let place = worth.place(at(0.0), 2.0);
    assert_eq!(place.due, worth.due(1.4));
    // Its band is of the time when it is served: when it is due, or now.
    let of = |now: f64| band(worth.at(at(now)).score(2.0));
    assert_eq!(place.band, of(days_between(at(0.0), place.due)));
    assert_eq!(worth.place(at(100.0), 2.0).band, of(100.0));
    assert!(of(100.0) > place.band);
}

#[test]
fn at_the_price_a_score_is_the_middle_and_each_doubling_is_eight_more() {
    let worth = proven(0.1, 0.0, 1.0);
    let now = at(20.0);
    let value = worth.value(now);
    for (times, score) in [(0.25, 34.0), (1.0, 50.0), (2.0, 58.0), (4.0, 66.0), (1e9, 100.0)] {
        let found = worth.at(now).score(value / times);
        assert!((found - score).abs() < 1e-9, "{times}: {found}");
    }
    assert!(worth.at(now).score(value * 1e300) >= 0.0);
}

#[test]
fn what_is_overdue_by_a_twentieth_of_the_longest_wait_comes_first_of_all() {
    let worth = proven(1.0 / 3650.0, 0.0, 1.0);
    for (late, score) in [(0.0, 50.0), (0.025, 75.0), (0.05, 100.0), (1.0, 100.0)] {
        let found = worth.at(at(180.0 * (1.0 + late))).score(1e5);
        assert!((found - score).abs() < 1e-3, "{late}: {found}");
    }
    assert!(worth.at(at(179.0)).score(1e5) < 50.0);
}

#[test]
fn what_is_expected_is_what_comes_with_time_and_what_signals_announce() {
    assert!((proven(0.5, 1.5, 1.0).expected(at(4.0)) - 3.5).abs() < 1e-9);
}

proptest! {
    #[test]
    fn with_signals_pending_the_value_reaches_the_price_when_it_is_due(
        alpha in 1e-2_f64..5.0, signalled in 0.0_f64..2.0, pull in 0.0_f64..2.0,
        price in 1e-1_f64..1e2,
    ) {
        let mut worth = proven(alpha, pull, 1.0);
        (worth.min, worth.max) = (Duration::from_secs(1), 1_000_000 * DAY);
        worth.estimate.total = alpha + signalled + 1.0;
        worth.estimate.settled = alpha + signalled;
        let due = worth.due(price);
        let before = worth.value(due - Duration::from_secs(1)) * 0.999;
        let after = worth.value(due + Duration::from_secs(1)) * 1.001;
        // What is worth the price at once waits for no more than the shortest wait.
        let is_at_once = due <= worth.seen + Duration::from_secs(2);
        prop_assert!(price <= after && (is_at_once || before <= price), "{before} {price} {after}");
    }

    #[test]
    fn what_is_expected_for_a_gain_gains_that(exponent in -25.0_f64..12.0) {
        let wanted = exponent.exp();
        prop_assert!((gain(expected_for(wanted)) / wanted - 1.0).abs() < 1e-7);
    }

    #[test]
    fn a_due_time_lies_within_the_bounds(
        alpha in 2.8e-4_f64..48.0, pull in 0.0_f64..20.0, mu in 0.0_f64..10.0,
        price in 1e-5_f64..1e5, looks in 0.0_f64..10.0, word in 0_usize..7,
    ) {
        let mut worth = Worth { estimate: proven(alpha, pull, mu).estimate, mu, ..unproven(0.5, ChangeFreq::ALL[word]) };
        worth.estimate.looks = looks;
        let due = worth.due(price);
        prop_assert!(due >= worth.seen + worth.min && due <= worth.seen + worth.max);
        let score = worth.at(due).score(price);
        prop_assert!((0.0..=100.0).contains(&score));
    }

    #[test]
    fn the_value_reaches_the_price_when_it_is_due(
        alpha in 1e-3_f64..20.0, mu in 0.3_f64..3.0, price in 1e-2_f64..1e2,
    ) {
        let worth = Worth { min: Duration::from_secs(1), max: 1_000_000 * DAY, ..proven(alpha, 0.0, mu) };
        let due = worth.due(price);
        let reached = worth.value(due);
        // Times are whole seconds.
        let after = worth.value(due + Duration::from_secs(1)) * 1.001;
        let before = worth.value(days_after(due, 0.0) - Duration::from_secs(1)) * 0.999;
        prop_assert!(before <= price && price <= after.max(reached * 1.001), "{before} {price} {after}");
    }

    #[test]
    fn value_grows_with_time_with_priority_and_with_signals(
        alpha in 1e-3_f64..20.0, a in 0.0_f64..100.0, b in 0.0_f64..100.0, pull in 0.0_f64..5.0,
    ) {
        let value = |pull: f64, mu: f64, days: f64| proven(alpha, pull, mu).value(at(days));
        let (early, late) = (a.min(b), a.max(b));
        prop_assert!(value(pull, 1.0, late) >= value(pull, 1.0, early));
        prop_assert!(value(pull, 1.2, late) >= value(pull, 1.0, late));
        prop_assert!(value(pull + 0.1, 1.0, late) >= value(pull, 1.0, late));
    }

    #[test]
    fn a_shorter_changefreq_is_never_worth_less(word in 0_usize..6, days in 0.0_f64..400.0) {
        let value = |word: usize| unproven(0.5, ChangeFreq::ALL[word]).value(at(days));
        prop_assert!(value(word) >= value(word + 1) - 1e-9);
    }

    #[test]
    fn more_changes_never_mean_a_longer_interval(
        looks in proptest::collection::vec((0.01_f64..60.0, any::<bool>()), 1..30),
        which: prop::sample::Index, price in 0.01_f64..100.0,
    ) {
        let which = which.index(looks.len());
        let interval = |changed: bool| {
            let beliefs = Beliefs { rate: 0.1, looks: 0.0, silent: 1.0, pulls: PerSignal::default() };
            let mut state = UrlState::first(at(0.0));
            let mut day = 0.0;
            for (n, (days, drawn)) in looks.iter().enumerate() {
                day += days;
                let drawn = if n == which { changed } else { *drawn };
                state.look(at(day), if drawn { Look::Changed } else { Look::Unchanged }, &beliefs);
            }
            let estimate = state.estimate(&beliefs, state.seen());
            let worth = Worth { estimate, seen: state.seen(), ..unproven(0.5, ChangeFreq::Weekly) };
            days_between(worth.seen, worth.due(price))
        };
        prop_assert!(interval(true) <= interval(false) * (1.0 + 1e-6) + 2.0 / 86_400.0);
    }

    #[test]
    fn a_signal_never_puts_a_url_off(alpha in 1e-3_f64..20.0, price in 1e-2_f64..1e2, signals in 1_u8..10) {
        let beliefs = Beliefs {
            rate: alpha, looks: 10.0, silent: 0.5, pulls: PerSignal([1.0, 0.0, 0.5, 1.4]),
        };
        let due = |state: UrlState| {
            let estimate = state.estimate(&beliefs, at(0.0));
            Worth { estimate, ..unproven(0.5, ChangeFreq::Weekly) }.due(price)
        };
        let mut state = UrlState::first(at(0.0));
        let before = due(state);
        for _ in 0..signals {
            state.signal(Signal::Lastmod);
        }
        prop_assert!(due(state) <= before, "{before}");
    }
}
