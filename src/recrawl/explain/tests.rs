//! Tests of what is said of a due time.

use super::*;
use crate::recrawl::model::{Beliefs, Look, days_after};
use crate::recrawl::signal::PerSignal;

const HOUR: f64 = 1.0 / 24.0;

fn at(days: f64) -> Timestamp {
    days_after("2026-01-01T00:00:00Z".parse().expect("a timestamp"), days)
}

fn explained(reason: Reason, looks: &[(f64, Look)], record: Record) -> String {
    explained_by(9.0, reason, looks, record)
}

/// The same, where so many looks at other pages of the host were compared.
fn explained_by(others: f64, reason: Reason, looks: &[(f64, Look)], record: Record) -> String {
    let beliefs = Beliefs { rate: 0.1, looks: others, silent: 1.0, pulls: PerSignal::default() };
    let mut state = UrlState::first(at(0.0));
    for (days, look) in looks {
        state.look(at(*days), *look, &beliefs);
    }
    let now = state.seen();
    let worth = Worth {
        estimate: state.estimate(&beliefs, now),
        mu: 1.0,
        priority: 80.0,
        protocol: Duration::from_secs(7 * 86_400),
        min: Duration::from_secs(3600),
        max: Duration::from_secs(180 * 86_400),
        seen: state.seen(),
        id: 0,
    };
    let due = days_after(now, 3.0 * HOUR);
    Explanation::new(reason, now, due, &worth, Some(&state), record, 0.5, 5.0).to_string()
}

#[test]
fn the_sentence_names_changes_trust_and_priority() {
    let looks: Vec<(f64, Look)> = (1..=10_u32)
        .map(|n| (3.0 * f64::from(n), if n % 5 < 2 { Look::Changed } else { Look::Unchanged }))
        .collect();
    let record = Record { right: 0.9, hits: 18.6, looks: 19.9 };
    assert_eq!(
        explained(Reason::Recrawl, &looks, record),
        "due in 3 h: it changed 4 times in the last 30 d (10 fetches compared); \
         its host's lastmod has been right 19 of 20 times; priority 0.8 of a site mean of 0.5"
    );
}

#[test]
fn what_was_never_compared_is_said_to_be() {
    let record = Record { right: 0.6, hits: 0.0, looks: 0.0 };
    for (others, told) in [(0.0, "its interval is 7 d"), (9.0, "so other pages of its host tell")] {
        let said = explained_by(others, Reason::New, &[], record);
        let because = format!("it is new; no fetcher has compared it yet, {told}");
        assert_eq!(said, format!("due in 3 h: {because}; priority 0.8 of a site mean of 0.5"));
    }
}

#[test]
fn the_bound_that_a_due_time_has_come_to_is_said() {
    let beliefs = Beliefs { rate: 0.1, looks: 9.0, silent: 1.0, pulls: PerSignal::default() };
    let mut state = UrlState::first(at(0.0));
    state.look(at(2.0), Look::Changed, &beliefs);
    let worth = Worth {
        estimate: state.estimate(&beliefs, state.seen()),
        mu: 1.0,
        priority: 50.0,
        protocol: Duration::from_secs(7 * 86_400),
        min: Duration::from_secs(3600),
        max: Duration::from_secs(180 * 86_400),
        seen: state.seen(),
        id: 0,
    };
    let record = Record { right: 0.9, hits: 0.0, looks: 0.0 };
    let told_by = |worth: &Worth, due: f64| {
        let (now, due) = (at(2.01), days_after(state.seen(), due));
        let (reason, state) = (Reason::Changed, Some(&state));
        Explanation::new(reason, now, due, worth, state, record, 0.5, 5.0).to_string()
    };
    let told = |due: f64| told_by(&worth, due);
    let shortest = told(HOUR);
    assert!(shortest.contains("; recrawl.min has it wait so long;"), "{shortest}");
    let longest = told(180.0);
    assert!(longest.contains("; recrawl.max has it wait no longer;"), "{longest}");
    assert!(!told(3.0).contains("recrawl."), "{}", told(3.0));
    // Where nobody compared, an hour may be what changefreq says.
    let mut unproven = worth;
    (unproven.estimate.looks, unproven.estimate.pull) = (0.0, 0.0);
    assert!(!told_by(&unproven, HOUR).contains("recrawl."));
}

#[test]
fn lost_trust_is_said() {
    let record = Record { right: 0.02, hits: 1.0, looks: 40.0 };
    let text = explained(Reason::Recrawl, &[(2.0, Look::Unchanged)], record);
    assert!(text.contains("it changed not once in the last 2 d (1 fetch compared)"), "{text}");
    assert!(text.contains("has been right 1 of 40 times and is not believed"), "{text}");
}
