//! What holds of every text that may be a date.
//!
//! What was read is written and read back as the same, in whatever letter case; an
//! instant is the first of what its precision covers; dates that are right are read
//! exactly.

use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use sitemapd::date::{feed, http, lastmod};
use sitemapd::model::{Lastmod, Precision};

use super::Dice;
use super::again::as_written;

/// 1990-01-01, before which nothing is a date.
const FIRST_SECOND: i64 = 631_152_000;
/// Lines that are looked at.
const MAX_LINES: usize = 32;

/// The law of dates: each line is a text that may be one.
pub(super) fn holds(bytes: &[u8], mut dice: Dice) {
    let text = String::from_utf8_lossy(bytes);
    let mut earlier: Option<Lastmod> = None;
    for line in text.split('\n').take(MAX_LINES) {
        let found = lastmod(line);
        assert_eq!(found, feed(line), "{line:?}");
        assert_eq!(found, lastmod(&format!("\u{feff} \t{line}\r\n ")), "{line:?}");
        let (upper, lower) = (line.to_ascii_uppercase(), line.to_ascii_lowercase());
        assert_eq!(lastmod(&upper), lastmod(&lower), "{line:?} by letter case");
        if let Some(date) = found {
            is_first_of_what_it_covers(date, line);
            is_read_back(date, line);
            if let Some(other) = earlier.replace(date) {
                are_ordered(date, other);
            }
        }
        if let Some(at) = http(line) {
            let shown = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let whole = Timestamp::from_second(at.as_second()).expect("in range");
            assert!(at.as_second() < 0 || http(&shown) == Some(whole), "{line:?} {shown}");
            let same = at.as_second() < FIRST_SECOND || found.map(|d| d.at) == Some(at);
            assert!(same, "{line:?} {found:?}");
        }
    }
    what_is_right_is_read(&mut dice);
}

fn is_first_of_what_it_covers(date: Lastmod, line: &str) {
    let second = date.at.as_second();
    assert!(second >= FIRST_SECOND, "{line:?} is {date:?}");
    let civil = date.at.to_zoned(TimeZone::UTC).datetime();
    let first = match date.precision {
        Precision::Year => civil.month() == 1 && civil.day() == 1 && second % 86_400 == 0,
        Precision::Month => civil.day() == 1 && second % 86_400 == 0,
        Precision::Day => second % 86_400 == 0,
        Precision::Minute => second % 60 == 0,
        Precision::Second => true,
        Precision::Fraction => return,
    };
    let whole = date.at.subsec_nanosecond() == 0 || is_milliseconds(line);
    assert!(first && whole, "{line:?} is {date:?}");
}

/// Milliseconds since 1970 are the only seconds with a part.
fn is_milliseconds(line: &str) -> bool {
    line.trim_matches(|c: char| !c.is_ascii_digit()).len() == 13
}

fn is_read_back(date: Lastmod, line: &str) {
    let shown = date.to_string();
    let again = lastmod(&shown).unwrap_or_else(|| panic!("{line:?}: {shown} is none"));
    assert_eq!(again.at, date.at, "{line:?}: {shown}");
    if !is_milliseconds(line) {
        assert_eq!(again.precision, as_written(date).precision, "{line:?}: {shown}");
    }
    assert_eq!(again.to_string(), shown, "{line:?}");
}

fn are_ordered(a: Lastmod, b: Lastmod) {
    assert!(!a.is_newer_than(a) && !a.is_older_than(a));
    assert!(!(a.is_newer_than(b) && b.is_newer_than(a)), "{a:?} {b:?}");
    assert_eq!(a.is_newer_than(b), b.is_older_than(a));
    let truly = a.at > b.at;
    assert!(truly || !a.is_newer_than(b), "{a:?} {b:?}");
}

/// Dates of every form, made of a day and a time of known meaning.
fn what_is_right_is_read(dice: &mut Dice) {
    let number = |dice: &mut Dice, from: i16, end: i16| {
        let span = usize::try_from(end - from).expect("upwards");
        from + i16::try_from(dice.below(span)).expect("below the end")
    };
    let small = |dice: &mut Dice, end: usize| i8::try_from(dice.below(end)).expect("small");
    let (year, month) = (number(dice, 1991, 9990), 1 + small(dice, 12));
    let first = Date::new(year, month, 1).expect("a month");
    let day = first.with().day(1 + small(dice, 28)).build().expect("a day");
    let time = day.at(small(dice, 24), small(dice, 60), small(dice, 60), 0);
    let at =
        |date: jiff::civil::DateTime| date.to_zoned(TimeZone::UTC).expect("in range").timestamp();
    let offset = Offset::from_seconds(i32::from(number(dice, -48, 57)) * 900).expect("an offset");
    let there = at(time) - SignedDuration::from_secs(i64::from(offset.seconds()));
    let minute = at(time.with().second(0).build().expect("a time"));
    let year_start = first.with().month(1).build().expect("a year").at(0, 0, 0, 0);
    let zone = zone(offset);
    let table = [
        ("%Y", at(year_start), Precision::Year),
        ("%Y-%m", at(first.at(0, 0, 0, 0)), Precision::Month),
        ("%Y-%m-%d", at(day.at(0, 0, 0, 0)), Precision::Day),
        ("%Y-%m-%dT%H:%MZ", minute, Precision::Minute),
        ("%Y-%m-%dT%H:%M:%SZ", at(time), Precision::Second),
        ("%Y-%m-%d %H:%M:%S", at(time), Precision::Second),
        ("%Y%m%dT%H%M%SZ", at(time), Precision::Second),
        ("%a, %d %b %Y %H:%M:%S GMT", at(time), Precision::Second),
        ("%a, %e %B %Y %H:%M:%S +0000", at(time), Precision::Second),
        ("%a %b %e %H:%M:%S %Y", at(time), Precision::Second),
        ("%d %b %Y", at(day.at(0, 0, 0, 0)), Precision::Day),
        ("%B %d, %Y", at(day.at(0, 0, 0, 0)), Precision::Day),
        ("%d.%m.%Y %H:%M", minute, Precision::Minute),
    ];
    for (form, at, precision) in table {
        let text = time.strftime(form).to_string();
        assert_eq!(lastmod(&text), Some(Lastmod { at, precision }), "{form}: {text}");
    }
    let text = format!("{}{zone}", time.strftime("%Y-%m-%dT%H:%M:%S"));
    let want = Lastmod { at: there, precision: Precision::Second };
    assert_eq!(lastmod(&text), Some(want), "{text}");
    let text = format!("{} {}", time.strftime("%a, %d %b %Y %H:%M:%S"), zone.replace(':', ""));
    assert_eq!(feed(&text), Some(want), "{text}");
}

/// `+hh:mm` or `-hh:mm`.
fn zone(offset: Offset) -> String {
    let minutes = offset.seconds() / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}
