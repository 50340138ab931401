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
