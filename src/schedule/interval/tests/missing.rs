//! What is missing is decided on in its time.

use super::*;

#[test]
fn what_misses_urls_is_polled_so_often_that_they_are_decided_on_in_their_time() {
    let weekly = |poll: &Poll, hints: &Hints| {
        let rhythm = Some(Rhythm { changes: 0.0, ..Rhythm::begin(now() - days(60), days(7)) });
        let previous = Some(days(7));
        let input = case(poll, hints, PollEvent::Unchanged);
        let input = PollInput { previous, rhythm, undecided: true, ..input };
        // Chance does not have them read before that.
        let wait = [0.0, 0.5, 1.0].map(|phase| wait_of(&PollInput { phase, ..input.clone() }));
        assert!(wait[1] == wait[0] && wait[2] <= wait[0] + MAX_JITTER, "{wait:?}");
        let next = decide(&input);
        (wait[0], next.interval, next.rule)
    };
    for (removal_polls, removal_after, wait) in [
        (3, days(1), hours(12)),
        (2, days(1), days(1)),
        (1, days(1), days(1)),
        (0, days(1), days(1)),
        (25, days(1), hours(1)),
        (1_000, days(1), mins(10)),
        (3, Duration::ZERO, mins(10)),
    ] {
        let poll = Poll { removal_polls, removal_after, jitter: 0.1, ..poll() };
        let decided = weekly(&poll, &NO_HINTS);
        assert_eq!(decided, (wait, days(7), Rule::Adaptive), "{removal_polls} {removal_after:?}");
    }
    // What the publisher asks for comes first.
    let hints = Hints { max_age: Some(hours(20)), ..NO_HINTS };
    assert_eq!(weekly(&poll(), &hints).0, hours(20));
}
