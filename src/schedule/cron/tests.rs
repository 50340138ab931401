//! The crontab dialect, time by time, and the days on which clocks change.

use proptest::prelude::*;

use super::*;

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).expect("a zone of the bundled database")
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a timestamp")
}

/// The next `count` times after `from`, without the seconds' fraction.
fn next(line: &str, from: &str, tz: &str, count: usize) -> Vec<String> {
    let spec = CronSpec::parse(line).expect(line);
    let zone = zone(tz);
    spec.upcoming(at(from), &zone, count).iter().map(Timestamp::to_string).collect()
}

#[test]
fn five_fields_come_at_second_zero_and_six_have_seconds_first() {
    let from = "2026-11-21T08:42:15Z";
    assert_eq!(
        next("*/10 * * * *", from, "UTC", 2),
        ["2026-11-21T08:50:00Z", "2026-11-21T09:00:00Z"]
    );
    assert_eq!(
        next("*/20 * * * * *", from, "UTC", 3),
        ["2026-11-21T08:42:20Z", "2026-11-21T08:42:40Z", "2026-11-21T08:43:00Z"]
    );
}

#[test]
fn the_next_time_is_strictly_later() {
    assert_eq!(next("0 9 * * *", "2026-11-21T09:00:00Z", "UTC", 1), ["2026-11-22T09:00:00Z"]);
    assert_eq!(next("0 9 * * *", "2026-11-21T08:59:59.999Z", "UTC", 1), ["2026-11-21T09:00:00Z"]);
    assert_eq!(next("0 9 * * *", "2026-11-21T09:00:00.001Z", "UTC", 1), ["2026-11-22T09:00:00Z"]);
}

/// 2026-11-22 is a Sunday.
#[test]
fn weekdays_are_those_of_crontab() {
    for (field, days) in [
        ("0", "Sun"),
        ("7", "Sun"),
        ("sun", "Sun"),
        ("SUN", "Sun"),
        ("1", "Mon"),
        ("6", "Sat"),
        ("5-7", "Sun Fri Sat"),
        ("0-6", "Sun Mon Tue Wed Thu Fri Sat"),
        ("1-7", "Sun Mon Tue Wed Thu Fri Sat"),
        ("0-7", "Sun Mon Tue Wed Thu Fri Sat"),
        ("*/2", "Sun Tue Thu Sat"),
        ("1-5", "Mon Tue Wed Thu Fri"),
        ("mon-fri", "Mon Tue Wed Thu Fri"),
        ("fri-sun", "Sun Fri Sat"),
        ("1-5/2", "Mon Wed Fri"),
        ("mon,wed,7", "Sun Mon Wed"),
        ("5/2", "Fri"),
        ("?", "Sun Mon Tue Wed Thu Fri Sat"),
    ] {
        let spec = CronSpec::parse(&format!("0 12 * * {field}")).expect(field);
        let mut now = at("2026-11-22T00:00:00Z");
        let mut seen = Vec::new();
        while let Some(time) = spec.next_after(now, &TimeZone::UTC) {
            if time > at("2026-11-29T00:00:00Z") {
                break;
            }
            seen.push(time.strftime("%a").to_string());
            now = time;
        }
        assert_eq!(seen.join(" "), days, "{field}");
    }
}

#[test]
fn either_day_field_is_enough_when_both_are_restricted() {
    // The 1st of the month, or any Monday.
    assert_eq!(
        next("0 0 1 * 1", "2026-11-21T00:00:00Z", "UTC", 4),
        [
            "2026-11-23T00:00:00Z",
            "2026-11-30T00:00:00Z",
            "2026-12-01T00:00:00Z",
            "2026-12-07T00:00:00Z"
        ]
    );
}

#[test]
fn a_day_field_that_starts_with_a_star_restricts_the_other() {
    // Odd days that are Mondays, as in crontab(5).
    assert_eq!(
        next("0 0 */2 * 1", "2026-11-21T00:00:00Z", "UTC", 2),
        ["2026-11-23T00:00:00Z", "2026-12-07T00:00:00Z"]
    );
    assert_eq!(next("0 0 13 * *", "2026-11-21T00:00:00Z", "UTC", 1), ["2026-12-13T00:00:00Z"]);
}

#[test]
fn names_lists_ranges_and_steps_are_read() {
    assert_eq!(
        next("5,35 6-8/2 1 JAN,jul *", "2026-11-21T00:00:00Z", "UTC", 5),
        [
            "2027-01-01T06:05:00Z",
            "2027-01-01T06:35:00Z",
            "2027-01-01T08:05:00Z",
            "2027-01-01T08:35:00Z",
            "2027-07-01T06:05:00Z"
        ]
    );
    assert_eq!(
        next("50/5 0 * * *", "2026-11-21T00:00:00Z", "UTC", 3),
        ["2026-11-21T00:50:00Z", "2026-11-21T00:55:00Z", "2026-11-22T00:50:00Z"]
    );
}

#[test]
fn shorthands_are_written_out() {
    for (word, line) in [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@Weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ] {
        let spec = CronSpec::parse(word).expect(word);
        assert_eq!(spec.to_string(), line);
        assert_eq!(spec, CronSpec::parse(line).expect(line));
    }
}

#[test]
fn lines_are_equal_when_their_times_are() {
    let spec = |line: &str| CronSpec::parse(line).expect(line);
    assert_eq!(spec("  0  12 * *   MON-wed "), spec("0 12 * * 1,2,3"));
    assert_eq!(spec("  0  12 * *   MON ").to_string(), "0 12 * * mon");
    assert_eq!(spec("0 0 12 * * 7"), spec("0 12 * * 0"));
    assert_ne!(spec("0 12 * * 1"), spec("0 12 * * 2"));
    // The star makes it "and" here and "or" there.
    assert_ne!(spec("0 0 */2 * 1"), spec("0 0 1-31/2 * 1"));
}

#[test]
fn what_is_no_cron_line_is_refused_with_a_reason() {
    for (line, reason) in [
        ("", "it has 0 fields"),
        ("* * * *", "it has 4 fields"),
        ("* * * * * * *", "it has 7 fields"),
        ("60 * * * *", "minute \"60\": \"60\" is no minute; allowed are 0 to 59"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week \"8\": \"8\" is no day of week; allowed are 0 to 7"),
        ("* * * foo *", "\"foo\" is no month"),
        ("*/0 * * * *", "is no step"),
        ("*/x * * * *", "is no step"),
        ("5-1 * * * *", "runs backwards"),
        ("1,,2 * * * *", "\"\" is no minute"),
        ("+5 * * * *", "is no minute"),
        ("@reboot", "@hourly"),
        ("@every 5m", "it has 2 fields"),
        ("0 0 31 2 *", "never comes"),
        ("0 0 30 feb *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
    ] {
        let error = CronSpec::parse(line).expect_err(line);
        assert!(error.contains(reason), "{line}: {error}");
    }
    assert!(CronSpec::parse(&"*".repeat(10_000)).is_err());
}

#[test]
fn a_leap_day_comes_every_four_years() {
    assert_eq!(
        next("0 0 29 2 *", "2026-11-21T00:00:00Z", "Europe/Berlin", 2),
        ["2028-02-28T23:00:00Z", "2032-02-28T23:00:00Z"]
    );
}

#[test]
fn after_the_last_year_there_is_no_time() {
    let spec = CronSpec::parse("0 0 1 1 *").expect("a line");
    assert_eq!(spec.next_after(at("2101-01-01T00:00:00Z"), &zone("Europe/Berlin")), None);
}

#[test]
fn a_line_keeps_its_local_time_over_the_year() {
    assert_eq!(
        next("30 9 1 1,7 *", "2026-11-21T00:00:00Z", "Europe/Berlin", 2),
        ["2027-01-01T08:30:00Z", "2027-07-01T07:30:00Z"]
    );
    assert_eq!(
        next("0 0 * * *", "2026-11-21T00:00:00Z", "Asia/Kathmandu", 1),
        ["2026-11-21T18:15:00Z"]
    );
}

/// Berlin skips 02:00 to 03:00 on 2027-03-28, at 01:00 UTC.
#[test]
fn a_time_inside_the_spring_gap_does_not_come() {
    assert_eq!(
        next("30 2 * * *", "2027-03-27T00:00:00Z", "Europe/Berlin", 2),
        ["2027-03-27T01:30:00Z", "2027-03-29T00:30:00Z"]
    );
    assert_eq!(
        next("0 3 * * *", "2027-03-27T12:00:00Z", "Europe/Berlin", 1),
        ["2027-03-28T01:00:00Z"]
    );
    assert_eq!(
        next("*/30 * * * *", "2027-03-28T00:29:00Z", "Europe/Berlin", 3),
        ["2027-03-28T00:30:00Z", "2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z"]
    );
}

/// Berlin goes through 02:00 to 03:00 twice on 2026-10-25, from 00:00 UTC.
#[test]
fn a_line_that_names_its_hours_comes_once_in_the_autumn_fold() {
    assert_eq!(
        next("30 2 * * *", "2026-10-24T12:00:00Z", "Europe/Berlin", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
    // Asked within the second of the two hours.
    assert_eq!(
        next("30 2 * * *", "2026-10-25T01:10:00Z", "Europe/Berlin", 1),
        ["2026-10-26T01:30:00Z"]
    );
    assert_eq!(
        next("0 2,3 * * *", "2026-10-25T00:00:00Z", "Europe/Berlin", 1),
        ["2026-10-25T02:00:00Z"]
    );
}

#[test]
fn a_line_for_every_hour_keeps_its_rhythm_through_the_fold() {
    assert_eq!(
        next("*/30 * * * *", "2026-10-25T00:00:00Z", "Europe/Berlin", 5),
        [
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
            "2026-10-25T02:30:00Z"
        ]
    );
}

proptest! {
    #[test]
    fn the_next_time_is_later_and_named_by_the_line(
        second in 0_i64..4_000_000_000,
        minute in 0_u8..60,
        hour in 0_u8..24,
        tz in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York",
            "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"]),
    ) {
        let spec = CronSpec::parse(&format!("{minute} {hour} * * *")).expect("a line");
        let zone = zone(tz);
        let now = Timestamp::from_second(second).expect("in range");
        let next = spec.next_after(now, &zone).expect("daily");
        prop_assert!(next > now);
        // A day, and another where the time falls into a gap.
        prop_assert!(next.duration_since(now) <= jiff::SignedDuration::from_hours(50));
        let local = next.to_zoned(zone.clone());
        prop_assert_eq!(local.minute().unsigned_abs(), minute);
        prop_assert_eq!(local.hour().unsigned_abs(), hour);
        prop_assert_eq!(local.second(), 0);
    }

    #[test]
    fn every_quarter_hour_is_never_more_than_that_away(second in 0_i64..4_000_000_000) {
        let spec = CronSpec::parse("*/15 * * * *").expect("a line");
        let now = Timestamp::from_second(second).expect("in range");
        for tz in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
            let next = spec.next_after(now, &zone(tz)).expect("always");
            let wait = next.duration_since(now);
            prop_assert!(wait > jiff::SignedDuration::ZERO, "{}", tz);
            prop_assert!(wait <= jiff::SignedDuration::from_mins(15), "{} {}", tz, now);
        }
    }

    #[test]
    fn no_line_panics(line in "[-*/,0-9a-zA-Z@? ]{0,40}") {
        if let Ok(spec) = CronSpec::parse(&line) {
            let again = CronSpec::parse(&spec.to_string());
            prop_assert_eq!(again.as_ref(), Ok(&spec));
        }
    }
}
