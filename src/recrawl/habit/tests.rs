//! Habits told by documents alone. What they do to the queue is tested in `trust`.

use super::*;
use proptest::prelude::*;

fn second(text: &str) -> i64 {
    text.parse::<Timestamp>().expect("a timestamp").as_second()
}

/// A read of `known` dated entries at noon, of which those of `moved` moved.
fn read(habits: &mut Habits, known: u32, moved: &[i64]) -> Signal {
    read_with(habits, known, moved, &[]).moves
}

/// The same where others came.
fn read_with(habits: &mut Habits, known: u32, moved: &[i64], came: &[i64]) -> Newer {
    let at = "2026-11-21T12:00:00Z".parse().expect("a timestamp");
    let dated = known + u32::try_from(came.len()).expect("few");
    habits.read(&Reading {
        at,
        entries: dated,
        dated,
        date_only: 0,
        future: 0,
        known,
        regressed: 0,
        moved,
        came,
    })
}

#[test]
fn a_bulk_stamp_is_one_from_nine_tenths_of_twenty_entries_on() {
    let one = second("2026-11-21T03:00:00Z");
    let table: [(u32, usize, i64, Signal); 6] = [
        (20, 18, 0, Signal::Stamp),
        (20, 17, 0, Signal::Lastmod),
        (19, 19, 0, Signal::Lastmod),
        (1_000, 950, 3, Signal::Stamp),
        // Spread over most of a day: they were edited one by one.
        (20, 20, 4_000, Signal::Lastmod),
        (10_000, 10_000, 0, Signal::Stamp),
    ];
    for (known, moved, apart, expected) in table {
        let moved: Vec<i64> =
            (0..moved).map(|n| one + apart * i64::try_from(n).unwrap_or(0)).collect();
        let signal = read(&mut Habits::default(), known, &moved);
        assert_eq!(signal, expected, "{} of {known}, {apart} s apart", moved.len());
    }
}

#[test]
fn one_read_without_a_stamp_and_lastmods_count_again() {
    let now = second("2026-11-21T12:00:00Z");
    let mut habits = Habits::default();
    for _ in 0..10 {
        assert_eq!(read(&mut habits, 30, &[now; 30]), Signal::Stamp);
    }
    assert_eq!(habits.habit(), Habit::AlwaysNow);
    assert_eq!(read(&mut habits, 30, &[now - 50_000, now - 9_000]), Signal::Lastmod);
    assert_eq!(habits.habit(), Habit::Plain);
}

#[test]
fn a_migration_that_stamps_everything_once_is_not_believed() {
    let mut habits = Habits::default();
    let day = second("2026-11-20T00:00:00Z");
    for n in 0..50 {
        assert_eq!(read(&mut habits, 500, &[day + n * 600]), Signal::Lastmod);
    }
    assert_eq!(read(&mut habits, 500, &[day + 40_000; 500]), Signal::Stamp);
    assert_eq!(read(&mut habits, 500, &[day + 41_000]), Signal::Lastmod);
    assert_eq!(habits.habit(), Habit::Plain);
}

#[test]
fn a_single_page_that_is_really_new_at_each_read_is_caught_only_by_the_clock() {
    let now = second("2026-11-21T12:00:00Z");
    let mut edited = Habits::default();
    for n in 1..20 {
        assert_eq!(read(&mut edited, 1, &[now - 180 * n]), Signal::Lastmod);
    }
    let mut stamped = Habits::default();
    let signals: Vec<_> = (0..4).map(|_| read(&mut stamped, 1, &[now - 1])).collect();
    let caught = [Signal::Lastmod, Signal::Lastmod, Signal::Stamp, Signal::Stamp];
    assert_eq!(signals, caught);
}

#[test]
fn dates_that_come_together_are_stamps_and_those_apart_from_them_are_not() {
    let built = second("2026-11-21T03:00:00Z");
    let edited = built - 40 * 86_400;
    // Known, moved, came, apart by how many seconds: stamped?
    let table: [(u32, usize, usize, i64, bool); 9] = [
        // A first read.
        (0, 0, 20, 0, true),
        (0, 0, 20, 3, true),
        (0, 0, 19, 0, false),
        (0, 0, 20, 4_000, false),
        (0, 0, 0, 0, false),
        // Dealt anew: hardly any was here before.
        (5, 5, 40, 0, true),
        (5, 0, 40, 0, false),
        (1, 0, 40, 0, true),
        // Edits that came to a list by date from its next part.
        (1_000, 30, 40, 0, false),
    ];
    for (known, moved, came, apart, stamped) in table {
        let dates: Vec<i64> =
            (0..moved + came).map(|n| built + apart * i64::try_from(n).expect("few")).collect();
        let newer = read_with(&mut Habits::default(), known, &dates[..moved], &dates[moved..]);
        assert_eq!(newer.mostly() == Signal::Stamp, stamped, "{known} {moved} {came} {apart}");
        assert_eq!(newer.moves == Signal::Stamp, stamped && moved > 0);
    }
    let mut dates = vec![built; 57];
    dates.extend([edited, edited + 90, second("2026-11-21T11:00:00Z")]);
    let newer = read_with(&mut Habits::default(), 0, &[], &dates);
    let span = newer.stamped.expect("a stamp");
    assert!(span.contains(built) && span.contains(built + 3_600));
    assert!(dates[57..].iter().all(|date| !span.contains(*date)));
    assert_eq!(newer.moves, Signal::Lastmod, "nothing has moved");
}

#[test]
fn a_first_read_counts_among_the_stamps_of_a_small_source() {
    let now = second("2026-11-21T12:00:00Z");
    let mut habits = Habits::default();
    assert_eq!(read_with(&mut habits, 0, &[], &[now; 5]).mostly(), Signal::Lastmod);
    assert_eq!(read(&mut habits, 5, &[now; 5]), Signal::Lastmod);
    assert_eq!(read(&mut habits, 5, &[now; 5]), Signal::Stamp);
}

#[test]
fn a_habit_is_what_nearly_all_entries_show_from_the_first_read_on() {
    // Of twenty entries: dated, date-only, in the future.
    for (dated, date_only, future, expected) in [
        (2, 0, 0, Habit::Missing),
        (3, 0, 0, Habit::Plain),
        (0, 0, 10, Habit::Future),
        (0, 0, 9, Habit::Missing),
        (20, 18, 0, Habit::DateOnly),
        (20, 17, 0, Habit::Plain),
    ] {
        let at = "2026-11-21T12:00:00Z".parse().expect("a timestamp");
        let (moved, came) = (&[][..], &[][..]);
        let (known, regressed) = (dated, 0);
        let reading =
            Reading { at, entries: 20, dated, date_only, future, known, regressed, moved, came };
        let mut habits = Habits::default();
        habits.read(&reading);
        assert_eq!(habits.habit(), expected, "{dated} {date_only} {future}");
    }
}

#[test]
fn a_share_is_what_the_first_read_shows_and_moves_by_an_eighth_with_each_further_one() {
    let after = |mut share: u8, shown: f64, reads: u16| {
        fade(&mut share, shown, reads);
        share
    };
    assert_eq!((after(0, 0.5, 0), after(200, 0.5, 0)), (128, 127));
    assert_eq!((after(80, 1.0, 1), after(80, 0.0, 1)), (102, 70));
    let (up, down) = ((0..200).fold(0, |share, _| after(share, 1.0, 1)), 255);
    assert_eq!((up, (0..200).fold(down, |share, _| after(share, 0.0, 1))), (255, 0));
}

#[test]
fn stamps_lie_within_an_hour_of_each_other_or_two_minutes_of_the_read() {
    let now = second("2026-11-21T12:00:00Z");
    let built = now - 40_000;
    for (apart, expected) in [(3_600, Signal::Stamp), (3_601, Signal::Lastmod)] {
        // In any order.
        let moved: Vec<i64> = (0..20).map(|n| built + if n % 2 == 0 { apart } else { 0 }).collect();
        assert_eq!(read(&mut Habits::default(), 20, &moved), expected, "{apart}");
    }
    for (off, expected) in [(-121, Habit::Plain), (-120, Habit::AlwaysNow), (121, Habit::Plain)] {
        let mut habits = Habits::default();
        for _ in 0..3 {
            read(&mut habits, 1, &[now + off]);
        }
        assert_eq!(habits.habit(), expected, "{off}");
    }
}

#[test]
fn what_stays_as_it_is_for_long_is_frozen_read_or_not() {
    let mut habits = Habits::default();
    read_with(&mut habits, 0, &[], &[second("2026-10-01T00:00:00Z"); 30]);
    for _ in 0..28 {
        assert!(habits.rest());
    }
    assert_eq!(habits.habit(), Habit::Plain);
    assert!(habits.rest());
    assert_eq!(habits.habit(), Habit::Frozen);
    assert!(!habits.rest(), "nothing to write any more");
    read(&mut habits, 30, &[second("2026-11-20T00:00:00Z")]);
    assert_eq!(habits.habit(), Habit::Plain);
}

proptest! {
    #[test]
    fn habits_are_read_back_as_they_were_kept(bytes: [u8; PACKED], moved in proptest::collection::vec(any::<i32>(), 0..40)) {
        let mut habits = Habits::unpack(&bytes).expect("any bytes are habits");
        let moved: Vec<i64> = moved.into_iter().map(i64::from).collect();
        read(&mut habits, 25, &moved);
        prop_assert_eq!(Habits::unpack(&habits.pack()), Some(habits));
        // Whatever it is called, it has a name.
        prop_assert!(!habits.habit().as_str().is_empty());
    }
}
