//! Laws of the price.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_price_stays_a_price_and_moves_slowly(
        kept: f64,
        steps in proptest::collection::vec((any::<f64>(), any::<f64>(), any::<f64>()), 0..50),
    ) {
        let mut price = Price::restored(kept);
        for (hours, due, budget) in steps {
            let before = price.get();
            price.tick(hours, due, budget);
            prop_assert!(price.get() >= BOUNDS.0 && price.get() <= BOUNDS.1);
            let moved = (price.get() / before).ln().abs();
            prop_assert!(moved <= 24.0 * FASTEST_AN_HOUR + 1e-9, "{moved}");
        }
    }

    #[test]
    fn more_due_never_means_a_lower_price(a in 0.0_f64..1e6, b in 0.0_f64..1e6) {
        let tick = |due: f64| {
            let mut price = Price::default();
            price.tick(1.0, due, 10.0);
            price.get()
        };
        prop_assert!(tick(a.max(b)) >= tick(a.min(b)));
    }
}

#[test]
fn the_price_settles_where_what_is_due_fits_the_budget() {
    // A world in which a higher price makes less due.
    let mut price = Price::default();
    for _ in 0..2_000 {
        price.tick(1.0, 500.0 / price.get(), 10.0);
    }
    assert!((45.0..55.0).contains(&price.get()), "{}", price.get());
}

#[test]
fn the_budget_auto_follows_what_is_settled() {
    let mut pace = Pace::default();
    assert_eq!(pace.hourly(), None);
    pace.settled(0.0, 1.0);
    assert_eq!(pace.hourly(), None);
    for _ in 0..100 {
        pace.settled(30.0, 0.5);
    }
    let hourly = pace.hourly().expect("a pace");
    assert!((59.0..=60.0).contains(&hourly), "{hourly}");
    for _ in 0..72 {
        pace.settled(6.0, 1.0);
    }
    let hourly = pace.hourly().expect("a pace");
    assert!((6.0..10.0).contains(&hourly), "three days later: {hourly}");
}

/// An hour in which nothing happened, of a crawl whose fetchers settle ten an hour.
fn quiet(wants: Wants) -> (Tariff, Seen) {
    let pace = Pace::restored(10.0, 24.0);
    let seen = Seen {
        hours: 1.0,
        settled: 10.0,
        leased: 0.0,
        covered: 0.0,
        leased_overdue: 0.0,
        spared: 0.0,
        backlog: 0.0,
        wants,
    };
    (Tariff { pace, ..Tariff::default() }, seen)
}

/// By how much the price moved, as a logarithm.
fn moved(tariff: &Tariff, seen: &Seen, budget: Option<f64>) -> f64 {
    let mut after = *tariff;
    after.tick(seen, budget);
    (after.price.get() / tariff.price.get()).ln()
}

#[test]
fn idle_fetchers_ease_the_price_and_busy_ones_move_it_by_what_is_due() {
    for (wants, backlog, budget, expected) in [
        // Nothing is due: as far below what is settled as it can be.
        (Wants::Something, 0.0, None, -FASTEST_AN_HOUR / SLACK_HOURS),
        (Wants::Something, 10.0, None, 0.0),
        (Wants::Something, 210.0, None, FASTEST_AN_HOUR),
        (Wants::More, 0.0, None, -EASED_AN_HOUR),
        (Wants::More, 210.0, None, -EASED_AN_HOUR),
        // Of some sites nothing was due, of others an hour's work, or more.
        (Wants::MoreOfSites, 10.0, None, -EASED_AN_HOUR),
        (Wants::MoreOfSites, 210.0, None, FASTEST_AN_HOUR),
        // A budget that is named is used up, and not left.
        (Wants::More, 0.0, Some(20.0), -EASED_AN_HOUR),
        (Wants::More, 420.0, Some(20.0), FASTEST_AN_HOUR),
        (Wants::Something, 0.0, Some(20.0), -FASTEST_AN_HOUR / SLACK_HOURS),
    ] {
        let (tariff, seen) = quiet(wants);
        let moved = moved(&tariff, &Seen { backlog, ..seen }, budget);
        assert!((moved - expected).abs() < 1e-9, "{wants:?} {backlog} {budget:?}: {moved}");
    }
}

#[test]
fn a_tenth_of_a_budget_is_kept_free_of_what_is_only_overdue() {
    let (mut tariff, seen) = quiet(Wants::Something);
    // More is overdue than the budget allows: two an hour are left, and come due.
    tariff.overdue = Pace::restored(100.0, 24.0);
    let seen = Seen { leased_overdue: 100.0, backlog: 2.0, ..seen };
    assert!(moved(&tariff, &seen, Some(20.0)).abs() < 1e-9);
}

#[test]
fn what_was_leased_counts_by_the_part_of_the_time_in_which_it_came_due() {
    for (hours, leased, covered, backlog) in [(1.0, 40.0, 0.5, 0.0), (4.0, 40.0, 0.5, 60.0)] {
        let (tariff, seen) = quiet(Wants::Something);
        let seen = Seen { hours, settled: 10.0 * hours, leased, covered, backlog, ..seen };
        assert!(moved(&tariff, &seen, Some(20.0)).abs() < 1e-9, "{hours}");
    }
}

#[test]
fn what_was_kept_and_is_no_price_or_no_pace_begins_anew() {
    for broken in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(Price::restored(broken), Price::default(), "{broken}");
    }
    for (hourly, hours) in [(-1.0, 3.0), (f64::NAN, 3.0), (f64::INFINITY, 3.0), (5.0, f64::NAN)] {
        assert_eq!(Pace::restored(hourly, hours), Pace::default(), "{hourly} {hours}");
    }
    assert_eq!(Pace::restored(5.0, 99.0).kept(), (5.0, 24.0));
}

#[test]
fn a_budget_has_room_for_an_hour_at_most_and_for_what_was_left() {
    let tariff = Tariff { left: 4.0, ..Tariff::default() };
    for (hours, room) in [(0.0, 1.0), (0.5, 11.0), (1.0, 21.0), (9.0, 21.0)] {
        assert!((tariff.room(20.0, hours, 3.0) - room).abs() < 1e-9, "{hours}");
    }
}
