//! Each row of the table of outcomes, and the laws over all of them.

mod missing;

use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::schedule::cron::CronSpec;

fn now() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().expect("a timestamp")
}

fn poll() -> Poll {
    Poll { jitter: 0.0, ..Config::default().poll }
}

fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3_600)
}

fn days(count: u64) -> Duration {
    hours(24 * count)
}

fn mins(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// An hour ago half a change an hour was expected, and so it is.
fn hourly() -> Rhythm {
    Rhythm { new: 0.0, ..Rhythm::begin(now() - hours(1), hours(1)) }
}

/// The case every test starts from: an adaptive source of an hour, no chance.
fn case<'a>(poll: &'a Poll, hints: &'a Hints, event: PollEvent) -> PollInput<'a> {
    static UTC: TimeZone = TimeZone::UTC;
    PollInput {
        now: now(),
        poll,
        rule: &PollRule::Adaptive,
        timezone: &UTC,
        previous: Some(hours(1)),
        rhythm: Some(hourly()),
        window: None,
        rotates: false,
        event,
        undecided: false,
        failures: 0,
        failing_since: None,
        hints,
        phase: 0.5,
    }
}

fn decide(input: &PollInput<'_>) -> NextPoll {
    match next_poll(input) {
        Next::Poll(next) => next,
        Next::Retire { why } => panic!("retired: {why}"),
    }
}

fn wait_of(input: &PollInput<'_>) -> Duration {
    Duration::try_from(decide(input).at.duration_since(input.now)).expect("not in the past")
}

const PART: PollEvent = PollEvent::Incomplete { new: 0, changed: 0 };
const CHANGED: PollEvent = PollEvent::Changed { new: 2, changed: 1 };
const NO_HINTS: Hints = Hints { max_age: None, ttl: None, skip: hints::Skip { hours: 0, days: 0 } };

/// Days of polls of a source that brings `found(hour)` in that hour of its life.
fn life(poll: &Poll, days: u64, found: impl Fn(u64) -> u64) -> Vec<(u64, Duration)> {
    let (start, end) = (now(), now() + hours(24 * days));
    let mut input =
        PollInput { previous: None, rhythm: None, ..case(poll, &NO_HINTS, PollEvent::Unchanged) };
    let (mut seen, mut polls) = (0, Vec::new());
    while input.now < end {
        let hour = Duration::try_from(input.now.duration_since(start)).unwrap().as_secs() / 3_600;
        let new = (seen..hour).map(&found).sum();
        seen = hour;
        input.event = PollEvent::Changed { new, changed: 0 };
        let next = decide(&input);
        polls.push((hour, next.interval));
        (input.previous, input.rhythm) = (Some(next.interval), next.rhythm);
        input.now = next.at;
    }
    polls
}

/// Polls a day in the second half of a life.
fn polls_a_day(poll: &Poll, found: impl Fn(u64) -> u64) -> u64 {
    let polls = life(poll, 28, found);
    polls.iter().filter(|(hour, _)| *hour >= 14 * 24).count() as u64 / 14
}

#[test]
fn a_source_is_polled_when_half_a_change_is_expected() {
    let poll = poll();
    for (what, polls, expected) in [
        ("one a day", polls_a_day(&poll, |hour| u64::from(hour % 24 == 9)), 2..=3),
        ("four a day", polls_a_day(&poll, |hour| u64::from(hour % 6 == 3)), 7..=10),
        ("one an hour", polls_a_day(&poll, |_| 1), 35..=60),
        (
            "a hundred once a day",
            polls_a_day(&poll, |hour| if hour % 24 == 9 { 100 } else { 0 }),
            5..=16,
        ),
        ("one a month", polls_a_day(&poll, |hour| u64::from(hour % 720 == 9)), 1..=1),
    ] {
        assert!(expected.contains(&polls), "{what}: {polls} polls a day");
    }
}

#[test]
fn silence_lengthens_the_interval_to_a_day_and_after_a_month_to_the_bound() {
    let poll = poll();
    let polls = life(&poll, 120, |_| 0);
    assert!(polls.windows(2).all(|two| two[0].1 <= two[1].1), "{polls:?}");
    let at = |day: u64| polls.iter().rfind(|(hour, _)| *hour <= day * 24).expect("a poll").1;
    assert_eq!((at(0), at(14), at(29)), (hours(1), days(1), days(1)));
    assert_eq!(at(119), poll.max);
}

#[test]
fn a_sleeper_that_wakes_is_followed_within_days() {
    let poll = poll();
    let polls = life(&poll, 112, |hour| u64::from(hour > 100 * 24));
    let awake = polls.iter().filter(|(hour, _)| *hour > 109 * 24 && *hour <= 110 * 24).count();
    assert!(awake >= 12, "{awake} polls on the tenth day");
}

#[test]
fn one_poll_changes_the_interval_at_most_twofold() {
    let poll = poll();
    for (event, previous, bounds) in [
        (PollEvent::Changed { new: 5_000, changed: 0 }, hours(20), hours(10)..=hours(20)),
        (PollEvent::Unchanged, hours(1), hours(1)..=hours(2)),
        (PART, hours(1), hours(1)..=hours(2)),
        (PollEvent::Incomplete { new: 5_000, changed: 0 }, hours(20), hours(10)..=hours(20)),
    ] {
        let input = PollInput { previous: Some(previous), ..case(&poll, &NO_HINTS, event) };
        let next = decide(&input);
        assert!(bounds.contains(&next.interval), "{event:?}: {:?}", next.interval);
        // Nor where it was last learned of months ago.
        let old = Rhythm { at: now() - days(100), ..hourly() };
        let long_ago = decide(&PollInput { rhythm: Some(old), ..input });
        assert!(long_ago.interval <= previous * 2, "{event:?}: {:?}", long_ago.interval);
        assert_eq!((wait_of(&input), next.rule), (next.interval, Rule::Adaptive), "{event:?}");
    }
}

#[test]
fn a_list_of_what_is_recent_is_polled_before_it_has_run_through() {
    let poll = poll();
    let hints = Hints { ttl: Some(hours(24)), ..NO_HINTS };
    let busy = Rhythm { new: 240.0, seconds: 86_400.0, at: now(), ..hourly() };
    for (entries, expected, rule) in [
        (100, hours(5), Rule::Window),
        (10, mins(30), Rule::Window),
        (5_000, hours(24), Rule::Hint),
    ] {
        let input = PollInput {
            window: Some(entries),
            rhythm: Some(busy),
            previous: Some(hours(6)),
            ..case(&poll, &hints, PART)
        };
        assert_eq!((wait_of(&input), decide(&input).rule), (expected, rule), "{entries}");
    }
}

#[test]
fn a_rotated_list_that_has_been_silent_for_half_a_year_is_retired() {
    let poll = poll();
    let silent = |days_ago: u64| Rhythm { changed_at: now() - days(days_ago), ..hourly() };
    for (rotates, days_ago, retired) in [(true, 180, true), (true, 179, false), (false, 900, false)]
    {
        let rhythm = Some(silent(days_ago));
        let input = PollInput { rhythm, rotates, ..case(&poll, &NO_HINTS, PollEvent::Unchanged) };
        assert_eq!(matches!(next_poll(&input), Next::Retire { .. }), retired, "{days_ago}");
        // What could not be read may be the news.
        let part = next_poll(&PollInput { event: PART, ..input });
        assert!(matches!(part, Next::Poll(_)), "{days_ago}");
    }
}

#[test]
fn the_first_interval_follows_the_first_read() {
    let poll = poll();
    for event in [CHANGED, PollEvent::Unchanged] {
        let input = PollInput { previous: None, rhythm: None, ..case(&poll, &NO_HINTS, event) };
        assert_eq!(decide(&input).interval, poll.first);
    }
}

#[test]
fn the_reason_is_a_sentence_with_its_figures() {
    let poll = poll();
    let why = |event| decide(&case(&poll, &NO_HINTS, event)).why;
    assert_eq!(
        why(CHANGED),
        "2 new and 1 changed, so the interval shrinks from 1h to 30m (about 31 changes a day are expected)"
    );
    assert_eq!(
        why(PollEvent::Unchanged),
        "nothing new, so the interval grows from 1h to 2h (about 6.0 changes a day are expected)"
    );
    assert_eq!(
        why(PART),
        "nothing new in what could be read of the document, so the interval grows from 1h to 2h (about 6.0 changes a day are expected)"
    );
    assert_eq!(
        why(PollEvent::Incomplete { new: 2, changed: 1 }),
        "2 new and 1 changed in what could be read of the document, so the interval shrinks from 1h to 30m (about 31 changes a day are expected)"
    );
    assert_eq!(
        why(PollEvent::Throttled { status: 429, retry_after: Some(hours(2)) }),
        "status 429, once in a row, with Retry-After 2h: asked again after 2h"
    );
}

#[test]
fn the_reason_names_each_rule_that_moved_the_poll() {
    let poll = poll();
    let asks = Hints { ttl: Some(hours(24)), ..NO_HINTS };
    let skips = Hints { skip: hints::Skip { hours: 1 << 10, days: 0 }, ..NO_HINTS };
    let busy = Rhythm { new: 240.0, seconds: 86_400.0, at: now(), ..hourly() };
    let plain = case(&poll, &NO_HINTS, PollEvent::Unchanged);
    let window = PollInput {
        window: Some(10),
        rhythm: Some(busy),
        previous: Some(hours(6)),
        ..plain.clone()
    };
    let undecided = PollInput {
        undecided: true,
        rhythm: Some(Rhythm { changes: 0.0, ..Rhythm::begin(now() - days(60), days(7)) }),
        previous: Some(days(7)),
        ..plain.clone()
    };
    for (input, why) in [
        (PollInput { hints: &asks, ..plain.clone() }, "; the publisher asks for 1d (ttl)"),
        (window, "; its 10 entries last for twice 30m, so it is polled after that"),
        (undecided, "; URLs are missing, and it is polled after 12h to decide"),
        (PollInput { hints: &skips, ..plain }, "; hours that the feed excludes are left out"),
    ] {
        let next = decide(&input);
        assert!(next.why.ends_with(why), "{}", next.why);
        assert!(next.why.matches("; ").count() == 1, "{}", next.why);
    }
}

#[test]
fn the_reason_says_whether_the_interval_moved_and_whether_for_what_came() {
    let poll = poll();
    let why = |event, interval: Duration| {
        let (input, rhythm) = (case(&poll, &NO_HINTS, event), hourly());
        let Found { new, changed, .. } = match event {
            PollEvent::Changed { new, changed } => Found::of_whole(new, changed),
            _ => Found::of_whole(0, 0),
        };
        explain(&input, Found::of_whole(new, changed), &rhythm, interval)
    };
    let pace = "(about 12 changes a day are expected)";
    for (event, interval, expected) in [
        (PollEvent::Unchanged, hours(1), "nothing new, and the interval stays at 1h"),
        (PollEvent::Unchanged, mins(90), "nothing new, so the interval grows from 1h to 1h 30m"),
        (
            PollEvent::Unchanged,
            mins(30),
            "nothing new, and all the same the interval shrinks from 1h to 30m",
        ),
        (CHANGED, mins(30), "2 new and 1 changed, so the interval shrinks from 1h to 30m"),
        (
            CHANGED,
            hours(2),
            "2 new and 1 changed, and all the same the interval grows from 1h to 2h",
        ),
    ] {
        assert_eq!(why(event, interval), format!("{expected} {pace}"));
    }
}

#[test]
fn durations_and_rates_are_said_without_what_is_too_small_to_matter() {
    let seconds = Duration::from_secs_f64;
    for (duration, said) in [
        (days(1) + hours(2) + mins(3), "1d 2h"),
        (days(1), "1d"),
        (hours(23) + mins(59) + seconds(59.0), "23h 59m"),
        (hours(1) + seconds(59.0), "1h"),
        (mins(59) + seconds(59.0), "59m 59s"),
        (seconds(10.5), "10s"),
        (seconds(9.5), "9s 500ms"),
        (Duration::ZERO, "0s"),
    ] {
        assert_eq!(about(duration), said);
    }
    for (rate, said) in [(31.4, "31"), (10.0, "10"), (9.94, "9.9"), (0.1, "0.1"), (0.099, "0.10")] {
        assert_eq!(rounded(rate), said);
    }
}

#[test]
fn what_was_found_is_forgotten_by_half_in_a_week() {
    let once = Rhythm { changes: 8.0, new: 4.0, ..hourly() };
    let later = once.after(once.at + days(7), 0, 0);
    assert_eq!((later.changes, later.new), (4.0, 2.0));
    assert!((later.seconds - 1_800.0 - days(7).as_secs_f64()).abs() < 1e-6);
    let found = once.after(once.at + days(7), 3, 1);
    assert_eq!((found.new, found.changed_at), (5.0, found.at));
}

#[test]
fn a_window_has_no_pace_while_nothing_new_is_known_to_come() {
    let rhythm = |new| Rhythm { new, seconds: 86_400.0, ..hourly() };
    for (new, entries, half) in [
        (1.0, 2, Some(days(1))),
        (2.0, 10, Some(hours(60))),
        (0.9, 10, None),
        (0.0, 0, None),
        (1.0, 0, None),
    ] {
        assert_eq!(rhythm(new).half_of_window(entries), half, "{new} {entries}");
    }
}

#[test]
fn a_source_is_active_for_thirty_days_after_its_last_change() {
    for (silent, is_active, is_stale) in
        [(29, true, false), (30, false, false), (179, false, false), (180, false, true)]
    {
        let rhythm = Rhythm { changed_at: now() - days(silent), at: now(), ..hourly() };
        assert_eq!((rhythm.is_active(), rhythm.is_stale()), (is_active, is_stale), "{silent}");
    }
}

#[test]
fn a_source_that_never_answered_is_tried_again_within_a_minute() {
    let poll = poll();
    let first = |failures, phase| {
        let event = PollEvent::Failed;
        let input = PollInput { previous: None, rhythm: None, ..case(&poll, &NO_HINTS, event) };
        wait_of(&PollInput { failures, phase, ..input })
    };
    assert_eq!((first(1, 0.0), first(1, 1.0)), (mins(1) / 2, mins(1)));
    assert_eq!(first(4, 1.0), mins(8));
    let short = Poll { min: mins(1) / 6, first: mins(1) / 6, ..poll.clone() };
    let event = PollEvent::Failed;
    let input = PollInput { previous: None, rhythm: None, ..case(&short, &NO_HINTS, event) };
    assert_eq!(wait_of(&PollInput { failures: 1, phase: 1.0, ..input }), mins(1) / 3);
}

#[test]
fn chance_makes_a_wait_after_a_refusal_longer_by_half_an_hour_at_most() {
    let poll = Poll { jitter: 0.1, ..poll() };
    for (event, phase, expected) in [
        (PollEvent::NotFound, 0.0, days(1)),
        (PollEvent::NotFound, 0.5, days(1) + mins(15)),
        (PollEvent::NotFound, 1.0, days(1) + mins(30)),
        (PollEvent::Throttled { status: 503, retry_after: None }, 1.0, mins(15) + mins(3) / 2),
        (PollEvent::RobotsForbidden, 1.0, days(1)),
    ] {
        let input = PollInput { failures: 1, phase, ..case(&poll, &NO_HINTS, event) };
        assert_eq!(wait_of(&input), expected, "{event:?} {phase}");
    }
}

#[test]
fn a_publisher_slows_polling_down_within_a_day_and_never_speeds_it_up() {
    let poll = poll();
    for (max_age, ttl, expected, rule) in [
        (Some(hours(4)), None, hours(4), Rule::Hint),
        (Some(hours(4)), Some(hours(6)), hours(4), Rule::Hint),
        (Some(Duration::ZERO), Some(hours(6)), hours(6), Rule::Hint),
        (Some(days(365)), None, days(1), Rule::Hint),
        (Some(mins(5)), Some(hours(6)), hours(2), Rule::Adaptive),
    ] {
        let hints = Hints { max_age, ttl, ..NO_HINTS };
        let input = case(&poll, &hints, PollEvent::Unchanged);
        let next = decide(&input);
        assert_eq!((wait_of(&input), next.rule), (expected, rule), "{max_age:?} {ttl:?}");
        for phase in [0.0, 0.3, 0.99] {
            let wait = wait_of(&PollInput { phase, ..case(&poll, &hints, PollEvent::Unchanged) });
            assert!(rule != Rule::Hint || wait >= expected, "{phase}: {wait:?}");
        }
        // The hint is not learned: without it the source is as lively as before.
        assert_eq!(next.interval, hours(2));
    }
}

/// 2026-11-21 is a Saturday.
#[test]
fn hours_and_days_that_a_feed_excludes_are_left_out() {
    let poll = poll();
    let nine = 1 << 9 | 1 << 10;
    let saturday = 1 << 5;
    for (hours_mask, days_mask, expected) in [
        (nine, 0, "2026-11-21T11:15:00Z"),
        (0, saturday, "2026-11-22T00:15:00Z"),
        (0, saturday | 1 << 6, "2026-11-23T00:15:00Z"),
        // More than two days, or everything: ignored.
        (0, saturday | 1 << 6 | 1, "2026-11-21T09:00:00Z"),
        ((1 << 24) - 1, 0, "2026-11-21T09:00:00Z"),
    ] {
        let skip = hints::Skip { hours: hours_mask, days: days_mask };
        let hints = Hints { skip, ..NO_HINTS };
        let rhythm = Some(Rhythm { at: now(), ..hourly() });
        let input = PollInput { rhythm, ..case(&poll, &hints, PART) };
        let next = decide(&input);
        assert_eq!(next.at.to_string(), expected, "{skip:?}");
        assert_eq!(next.rule == Rule::Hint, expected != "2026-11-21T09:00:00Z", "{skip:?}");
    }
}

#[test]
fn a_fixed_interval_takes_the_place_of_what_was_learned() {
    let poll = poll();
    let rule = PollRule::Every(Duration::from_secs(2));
    let hints = Hints { max_age: Some(hours(4)), ..NO_HINTS };
    for event in [CHANGED, PollEvent::Unchanged, PART] {
        let input = PollInput { rule: &rule, ..case(&poll, &hints, event) };
        assert_eq!(wait_of(&input), Duration::from_secs(2));
        assert_eq!(decide(&input).rule, Rule::Fixed);
    }
}

#[test]
fn a_cron_line_is_kept_and_only_its_early_times_are_left_out() {
    let poll = poll();
    let rule = PollRule::Cron(CronSpec::parse("*/30 * * * *").expect("a line"));
    for (event, failures, expected) in [
        (CHANGED, 0, "2026-11-21T08:30:00Z"),
        (PollEvent::Unchanged, 0, "2026-11-21T08:30:00Z"),
        (
            PollEvent::Throttled { status: 503, retry_after: Some(hours(1)) },
            1,
            "2026-11-21T09:00:00Z",
        ),
        (
            PollEvent::Throttled { status: 503, retry_after: Some(mins(61)) },
            1,
            "2026-11-21T09:30:00Z",
        ),
        (PollEvent::NotFound, 1, "2026-11-22T08:00:00Z"),
        (PollEvent::Failed, 3, "2026-11-21T09:00:00Z"),
    ] {
        let input = PollInput { rule: &rule, failures, ..case(&poll, &NO_HINTS, event) };
        assert_eq!(decide(&input).at.to_string(), expected, "{event:?}");
    }
    let missing = PollInput { failures: 1, ..case(&poll, &NO_HINTS, PollEvent::NotFound) };
    let why = decide(&PollInput { rule: &rule, ..missing }).why;
    assert!(
        why.starts_with("404, once") && why.ends_with(", at a time of the line \"*/30 * * * *\"")
    );
    let next = decide(&PollInput { rule: &rule, ..case(&poll, &NO_HINTS, CHANGED) });
    assert_eq!(next.why, "the site is polled at the times of the line \"*/30 * * * *\"");
    assert_eq!(next.rule, Rule::Cron);
}

#[test]
fn a_throttled_source_waits_as_it_is_told_up_to_a_day() {
    let poll = poll();
    for (retry_after, failures, expected) in [
        (Some(hours(3)), 1, hours(3)),
        (Some(days(9)), 1, days(1)),
        (Some(Duration::from_secs(1)), 1, mins(10)),
        (Some(Duration::from_secs(1)), 4, mins(80)),
        (None, 1, mins(15)),
        (None, 3, mins(60)),
        (None, 30, days(1)),
    ] {
        let event = PollEvent::Throttled { status: 429, retry_after };
        let input = PollInput { failures, ..case(&poll, &NO_HINTS, event) };
        assert_eq!(wait_of(&input), expected, "{retry_after:?} {failures}");
        assert_eq!(decide(&input).interval, hours(1));
    }
}

#[test]
fn failures_back_off_to_a_day_and_after_a_month_to_a_week() {
    let poll = poll();
    let failed = |failures, phase, since: u64| {
        let failing_since = Some(now() - days(since));
        let event = PollEvent::Failed;
        wait_of(&PollInput { failures, failing_since, phase, ..case(&poll, &NO_HINTS, event) })
    };
    assert_eq!((failed(1, 0.0, 0), failed(1, 1.0, 0)), (hours(1), hours(2)));
    assert_eq!(failed(3, 1.0, 0), hours(8));
    assert_eq!(failed(50, 1.0, 29), days(1));
    assert_eq!(failed(50, 1.0, 30), days(7));
}

#[test]
fn refusals_are_asked_again_slower_and_never_sooner() {
    let poll = poll();
    for event in [PollEvent::Denied { status: 403 }, PollEvent::NotASource] {
        for (previous, failures, lasts, expected) in [
            (hours(1), 1, hours(0), hours(2)),
            (hours(1), 2, hours(2), hours(4)),
            (hours(1), 4, hours(14), hours(16)),
            (hours(1), 5, hours(30), days(1)),
            (hours(1), 9, days(5), days(7)),
            (days(6), 1, hours(0), days(6)),
            (days(6), 4, days(18), days(6)),
            (days(6), 5, days(24), days(7)),
            // Pinged every hour, it is not left alone for a week after an afternoon.
            (hours(1), 5, hours(4), days(1)),
            (hours(1), 119, hours(119), days(1)),
            (hours(1), 120, hours(120), days(7)),
        ] {
            let (previous, failing_since) = (Some(previous), Some(now() - lasts));
            let input =
                PollInput { previous, failures, failing_since, ..case(&poll, &NO_HINTS, event) };
            assert_eq!(wait_of(&input), expected, "{event:?} {failures} {lasts:?}");
        }
    }
    let monthly = PollRule::Every(days(30));
    let event = PollEvent::Denied { status: 451 };
    let input = PollInput { rule: &monthly, failures: 1, ..case(&poll, &NO_HINTS, event) };
    assert_eq!(wait_of(&input), days(30));
}

#[test]
fn a_404_is_asked_daily_then_weekly_then_retired() {
    let poll = poll();
    let input = |failures, lasts| PollInput {
        failures,
        failing_since: Some(now() - lasts),
        ..case(&poll, &NO_HINTS, PollEvent::NotFound)
    };
    for (failures, lasts, expected) in
        [(1, 0, 1), (3, 2, 1), (3, 9, 1), (4, 3, 7), (7, 24, 7), (7, 90, 7)]
    {
        assert_eq!(wait_of(&input(failures, days(lasts))), days(expected), "{failures}");
    }
    let Next::Retire { why } = next_poll(&input(8, days(31))) else { panic!("still polled") };
    assert_eq!(why, "404 8 times in a row, for 31d");
    // Pinged all the while, it is not given up in a day.
    for (hour, expected) in [(8, 1), (71, 1), (72, 7), (30 * 24, 7)] {
        assert_eq!(wait_of(&input(100, hours(hour))), days(expected), "{hour}");
    }
}

#[test]
fn a_410_retires_when_it_comes_twice_a_day_apart() {
    let poll = poll();
    let gone = |failures, since: Duration| {
        let failing_since = Some(now() - since);
        next_poll(&PollInput { failures, failing_since, ..case(&poll, &NO_HINTS, PollEvent::Gone) })
    };
    assert!(matches!(gone(1, Duration::ZERO), Next::Poll(next) if next.at == now() + days(1)));
    assert!(matches!(gone(1, days(9)), Next::Poll(_)));
    assert!(matches!(gone(2, hours(23)), Next::Poll(_)));
    assert!(matches!(gone(2, hours(24)), Next::Retire { .. }));
}

#[test]
fn what_robots_txt_forbids_is_looked_at_again_when_that_is() {
    let poll = poll();
    assert_eq!(wait_of(&case(&poll, &NO_HINTS, PollEvent::RobotsForbidden)), days(1));
}

#[test]
fn chance_moves_a_poll_by_the_jitter_and_at_most_half_an_hour() {
    let poll = Poll { jitter: 0.1, ..poll() };
    // An interval doubles after a poll that finds nothing.
    let asleep = Rhythm {
        seconds: days(60).as_secs_f64(),
        at: now(),
        changed_at: now() - days(60),
        ..hourly()
    };
    let at = |phase, interval: Option<Duration>| {
        let (previous, rhythm) = (interval.map(|interval| interval / 2), Some(asleep));
        wait_of(&PollInput { previous, rhythm, phase, ..case(&poll, &NO_HINTS, PART) })
    };
    assert_eq!((at(0.0, Some(hours(1))), at(0.5, Some(hours(1)))), (mins(54), hours(1)));
    assert_eq!(at(0.0, Some(days(2))), mins(2 * 24 * 60 - 30));
    // Chance never leads out of the operator's bounds.
    assert_eq!(at(0.0, Some(mins(10))), mins(10));
    assert_eq!(at(1.0, Some(days(7))), days(7));
}

fn any_event() -> impl Strategy<Value = PollEvent> {
    prop_oneof![
        (0..9_u64, 0..9_u64).prop_map(|(new, changed)| PollEvent::Changed { new, changed }),
        Just(PollEvent::Unchanged),
        (0..9_u64, 0..9_u64).prop_map(|(new, changed)| PollEvent::Incomplete { new, changed }),
        any_failure(),
    ]
}

fn any_failure() -> impl Strategy<Value = PollEvent> {
    prop_oneof![
        Just(PollEvent::NotASource),
        Just(PollEvent::NotFound),
        Just(PollEvent::Gone),
        Just(PollEvent::Failed),
        Just(PollEvent::RobotsForbidden),
        Just(PollEvent::Denied { status: 403 }),
        prop::option::of(0..10_000_000_u64).prop_map(|seconds| PollEvent::Throttled {
            status: 503,
            retry_after: seconds.map(Duration::from_secs),
        }),
    ]
}

prop_compose! {
    fn any_poll()(min in 1..100_000_u64, span in 0..10_000_000_u64, jitter in 0.0..=0.5_f64) -> Poll {
        let (min, max) = (Duration::from_secs(min), Duration::from_secs(min + span));
        Poll { min, max, first: min, jitter, ..poll() }
    }
}

proptest! {
    #[test]
    fn a_success_is_followed_within_the_bounds(
        poll in any_poll(), event in any_event(), phase in 0.0..1.0_f64,
        previous in prop::option::of(0..20_000_000_u64),
        max_age in prop::option::of(0..20_000_000_u64),
        skipped in 0..1_u32 << 24,
    ) {
        let skip = hints::Skip { hours: skipped, days: 0 };
        let hints = Hints { max_age: max_age.map(Duration::from_secs), ttl: None, skip };
        let previous = previous.map(Duration::from_secs);
        let input = PollInput { previous, phase, ..case(&poll, &hints, event) };
        if let Next::Poll(next) = next_poll(&input) {
            prop_assert!((poll.min..=poll.max).contains(&next.interval));
            prop_assert!(next.at > input.now);
            if matches!(event, PollEvent::Changed { .. } | PollEvent::Unchanged | PollEvent::Incomplete { .. }) {
                let wait = wait_of(&input);
                prop_assert!(wait >= poll.min && wait <= poll.max + hints::MAX_SKIP);
                prop_assert!(skipped != 0 || wait <= poll.max);
            }
            prop_assert!(!next.why.is_empty() && !next.why.contains('\n'));
            prop_assert_eq!(&next_poll(&input), &Next::Poll(next));
        }
    }

    #[test]
    fn more_failures_never_wait_shorter_and_never_past_the_cap(
        poll in any_poll(), event in any_failure(), phase in 0.0..1.0_f64, failures in 1..60_u32,
    ) {
        let once = PollInput { failures, phase, ..case(&poll, &NO_HINTS, event) };
        let more = PollInput { failures: failures + 1, ..once.clone() };
        if let (Next::Poll(once), Next::Poll(more)) = (next_poll(&once), next_poll(&more)) {
            prop_assert!(more.at >= once.at);
            prop_assert!(more.at <= now() + failure::WEEK.max(poll.min));
            prop_assert!(once.interval == more.interval);
        }
    }
}

#[test]
fn push_slows_polls_to_a_day_and_a_rule_of_the_site_stays() {
    let (poll, hints) = (poll(), Hints::default());
    let slowed = |input: &PollInput<'_>| match push::slowed(next_poll(input), input) {
        Next::Poll(next) => next,
        Next::Retire { why } => panic!("retired: {why}"),
    };
    let input = case(&poll, &hints, PollEvent::Unchanged);
    let next = slowed(&input);
    assert_eq!((next.at, next.rule), (now() + hours(24), Rule::Push), "{}", next.why);
    assert_eq!(next.interval, decide(&input).interval, "what is learned is not slowed");
    // A list that would run through in a day is looked at before half of it has, though
    // single items bring polls without a hub far more often than that.
    let daily = |new: f64| Rhythm { new, seconds: 86_400.0, ..hourly() };
    for (entries, new, wait) in [(10, 20.0, 6), (50, 100.0, 6), (10, 4.0, 24), (1, 500.0, 1)] {
        let rhythm = Some(daily(new));
        let window = PollInput { window: Some(entries), rhythm, ..input.clone() };
        let (next, without) = (slowed(&window), decide(&window));
        assert!(next.at >= without.at, "{entries} {new}");
        let (early, late) = (now() + hours(wait) * 9 / 10, now() + hours(wait) * 11 / 10);
        assert!(
            next.at == without.at || (early..=late).contains(&next.at),
            "{entries} {new} {next:?}"
        );
        assert!(next.at <= late, "{entries} {new} {next:?}");
        assert_eq!(next.rule == Rule::Push, wait > 1, "{entries} {new} {next:?}");
    }
    let fast = PollInput { window: Some(1), rhythm: Some(daily(5_000.0)), ..input.clone() };
    assert!(slowed(&fast).at >= now() + poll.min, "however fast it runs through");
    // What waits for longer anyway, and what the site has said, is left alone.
    let every = PollRule::Every(mins(15));
    let fixed = PollInput { rule: &every, ..input.clone() };
    assert_eq!(slowed(&fixed), decide(&fixed));
    let short = Poll { max: hours(6), ..poll };
    assert_eq!(slowed(&PollInput { poll: &short, ..input.clone() }).at, now() + hours(6));
    let dormant = Rhythm { at: now() - days(40), changed_at: now() - days(70), ..hourly() };
    let slow = PollInput { previous: Some(days(7)), rhythm: Some(dormant), ..input };
    assert_eq!(slowed(&slow), decide(&slow));
}
