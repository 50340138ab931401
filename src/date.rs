//! Dates as publishers write them: W3C, RFC 822 and HTTP, with their precision.
//!
//! Total and pure: every text gives a date or none, never the current time. No
//! zone means UTC. A date before 1990 is older than the web and is none, which
//! takes out the sentinels of 0000, 0001 and 1970. Whether a date in the
//! future is believed is left to the differ.

mod words;

use jiff::Timestamp;

use crate::model::{Lastmod, Precision};

/// 1990-01-01: no page is older than the web.
const FIRST_SECOND: i64 = 631_152_000;
/// A date text is never longer; what is longer is none.
const MAX_LEN: usize = 128;

/// Reads a `<lastmod>`: the six forms of the W3C note, the deviations of the
/// field, and the forms of feeds as a last resort.
pub fn lastmod(text: &str) -> Option<Lastmod> {
    read(text)
}

/// Reads a date of a feed: RFC 822 and its relatives, RFC 3339, epoch seconds.
pub fn feed(text: &str) -> Option<Lastmod> {
    read(text)
}

/// Reads an HTTP date (RFC 9110 section 5.6.7) in any of its three forms.
pub fn http(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if text.len() > MAX_LEN || !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let found = words::read(text)?;
    (found.precision >= Precision::Second).then_some(found.at)
}

fn read(text: &str) -> Option<Lastmod> {
    let text = trim(text);
    if text.is_empty() || text.len() > MAX_LEN {
        return None;
    }
    if let Some(found) = usual(text.as_bytes()) {
        return (found.at.as_second() >= FIRST_SECOND).then_some(found);
    }
    let found = general(text)?;
    (found.at.as_second() >= FIRST_SECOND).then_some(found)
}

/// Every form there is, told apart by the digits at the start.
fn general(text: &str) -> Option<Lastmod> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match (digits, text.as_bytes().get(digits)) {
        (4, None | Some(b'-' | b'/' | b'.')) => w3c(text),
        (8, None | Some(b'T' | b't' | b' ')) => compact(text),
        (14, None) => compact(&format!("{}T{}", text.get(..8)?, text.get(8..)?)),
        (10 | 13, None) => epoch(text),
        (4, Some(0x80..)) => w3c(&east_asian(text)?),
        _ => words::read(text),
    }
}

/// `2023年11月21日` and `2023년 11월 21일`, with a time or without, as digits and hyphens.
fn east_asian(text: &str) -> Option<String> {
    let (year, rest) = text.split_once(['年', '년'])?;
    let (month, rest) = rest.split_once(['月', '월'])?;
    let (day, time) = rest.split_once(['日', '일'])?;
    Some(format!("{year}-{}-{} {}", month.trim(), day.trim(), time.trim()).trim().to_owned())
}

/// The forms that nearly all software writes: `2026-11-21`, and
/// `2026-11-21T08:30:05` with `Z` or an offset. Anything else is `None` here,
/// and what is read here is what the general reader would make of it.
fn usual(text: &[u8]) -> Option<Lastmod> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, time @ ..] = text else { return None };
    let year = two(*y1, *y2)? * 100 + two(*y3, *y4)?;
    let (month, day) = (two(*m1, *m2)?, two(*d1, *d2)?);
    let (h, m, s, offset) = match time {
        [] => return at_day(year, month, day, Precision::Day),
        [b'T', h1, h2, b':', m1, m2, b':', s1, s2, zone @ ..] => {
            (two(*h1, *h2)?, two(*m1, *m2)?, two(*s1, *s2)?, usual_zone(zone)?)
        }
        _ => return None,
    };
    let clock = Clock { hour: h, minute: m, second: s, nanos: 0, precision: Precision::Second };
    at_time(year, month, day, clock, offset)
}

/// Seconds east of UTC for `Z` and `+hh:mm`.
fn usual_zone(zone: &[u8]) -> Option<i64> {
    match zone {
        [b'Z'] | [b'+', b'0', b'0', b':', b'0', b'0'] => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (two(*h1, *h2)?, two(*m1, *m2)?);
            let seconds = hours * 3600 + minutes * 60;
            (hours <= 18 && minutes < 60).then_some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

/// The number that two digits write.
fn two(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then(|| i64::from(tens * 10 + ones))
}

fn trim(text: &str) -> &str {
    let plain = |b: Option<&u8>| b.is_some_and(u8::is_ascii_graphic);
    if plain(text.as_bytes().first()) && plain(text.as_bytes().last()) {
        return text;
    }
    text.trim_matches(|c: char| c.is_whitespace() || c.is_control() || c == '\u{feff}')
}

/// A cursor over ASCII text.
struct Scan<'a> {
    rest: &'a str,
}

impl<'t> Scan<'t> {
    fn eat(&mut self, set: &[u8]) -> bool {
        let hit = self.rest.bytes().next().is_some_and(|b| set.contains(&b));
        if hit {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        hit
    }

    /// A number of `min` to `max` digits, all the digits that there are.
    fn number(&mut self, min: usize, max: usize) -> Option<i64> {
        let len = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if len < min || len > max {
            return None;
        }
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        digits.parse().ok()
    }

    /// The name of a zone where a `T` should be: in the `date()` of PHP, that letter is it.
    /// The offset may follow the time.
    fn zone_before_time(&mut self) -> Option<&'t str> {
        let len = self.rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, rest) = self.rest.split_at(len);
        let is_one = (2..=5).contains(&len)
            && rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.contains(':');
        is_one.then(|| {
            self.rest = rest;
            name
        })
    }

    fn blanks(&mut self) -> bool {
        let trimmed = self.rest.trim_start();
        let any = trimmed.len() < self.rest.len();
        self.rest = trimmed;
        any
    }
}

/// `YYYY[-MM[-DD[(T| )hh:mm[:ss[.f]][zone]]]]`
fn w3c(text: &str) -> Option<Lastmod> {
    let mut scan = Scan { rest: text };
    let year = scan.number(4, 4)?;
    if scan.rest.is_empty() {
        return at_day(year, 1, 1, Precision::Year);
    }
    // `2026. 11. 21.`, as in Hungary and Korea.
    let dotted = scan.rest.starts_with('.');
    scan.eat(b"-/.");
    if dotted {
        scan.blanks();
    }
    if scan.rest.starts_with(char::is_alphabetic) {
        return words::read(text);
    }
    let month = scan.number(1, 2)?;
    if scan.rest.is_empty() {
        return at_day(year, month, 1, Precision::Month);
    }
    if !scan.eat(b"-/.") {
        return None;
    }
    if dotted {
        scan.blanks();
    }
    let day = scan.number(1, 2)?;
    if dotted {
        scan.eat(b".");
    }
    after_day(scan, year, month, day)
}

/// `YYYYMMDD` with or without `THHMMSS` and a zone.
fn compact(text: &str) -> Option<Lastmod> {
    let (date, rest) = text.split_at(8);
    let number = |from: usize, to: usize| date.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let mut scan = Scan { rest };
    let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if !scan.eat(b"Tt ") || scan.rest.contains(':') || !digits(scan.rest) {
        return after_day(Scan { rest }, year, month, day);
    }
    let len = scan.rest.bytes().take_while(u8::is_ascii_digit).count();
    let (time, zone) = scan.rest.split_at(len);
    let part = |from: usize| time.get(from..from + 2).and_then(|s| s.parse::<i64>().ok());
    let precision = if len == 6 { Precision::Second } else { Precision::Minute };
    if len < 3 {
        return after_day(Scan { rest }, year, month, day);
    }
    if len != 4 && len != 6 {
        return None;
    }
    let second = if len == 6 { part(4)? } else { 0 };
    let clock = Clock { hour: part(0)?, minute: part(2)?, second, nanos: 0, precision };
    at_time(year, month, day, clock, zone_of(zone)?)
}

/// Seconds or milliseconds since 1970.
fn epoch(text: &str) -> Option<Lastmod> {
    let number: i64 = text.parse().ok()?;
    let at = if text.len() == 13 {
        Timestamp::from_millisecond(number).ok()?
    } else {
        Timestamp::from_second(number).ok()?
    };
    Some(Lastmod { at, precision: Precision::Second })
}

/// What may follow a whole date.
fn after_day(mut scan: Scan<'_>, year: i64, month: i64, day: i64) -> Option<Lastmod> {
    let whole = at_day(year, month, day, Precision::Day)?;
    let zone = scan.zone_before_time();
    let time = zone.is_some() | scan.eat(b"Tt_") | scan.blanks();
    if scan.rest.is_empty() {
        return Some(whole);
    }
    if time && scan.rest.starts_with(|c: char| c.is_ascii_digit()) {
        if is_bare_hour(scan.rest) {
            return Some(whole);
        }
        let clock = clock(&mut scan)?;
        let behind = zone.filter(|_| scan.rest.trim().is_empty()).unwrap_or(scan.rest);
        let Some(offset) = zone_of(behind) else {
            // The day is as written; the hour cannot be known.
            return named_or_blank(scan.rest).then_some(whole);
        };
        return at_time(year, month, day, clock, offset);
    }
    // A zone after a mere date (xsd:date), or text after a blank.
    (time || zone_of(scan.rest).is_some()).then_some(whole)
}

/// Is this an hour without minutes (`15`, `15h`, `3 PM`), with a zone or without?
fn is_bare_hour(text: &str) -> bool {
    let mut scan = Scan { rest: text };
    let Some(0..=24) = scan.number(1, 2) else { return false };
    scan.eat(b"hH");
    let (half, rest) = half_of_day(scan.rest.trim_start());
    if matches!(half.as_str(), "am" | "pm") {
        scan.rest = rest;
    }
    zone_of(scan.rest).is_some()
}

/// Does text go on after a blank or with a name, such as `Europe/Berlin` and `Etc/GMT+5`?
fn named_or_blank(rest: &str) -> bool {
    let word = rest.split(char::is_whitespace).next().unwrap_or_default();
    let of_name =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'+' | b'-' | b':');
    word.bytes().next().is_none_or(|b| b.is_ascii_alphabetic()) && word.bytes().all(of_name)
}

/// A time of day.
#[derive(Debug, Clone, Copy)]
struct Clock {
    hour: i64,
    minute: i64,
    second: i64,
    nanos: i32,
    precision: Precision,
}

/// The word that a text begins with, in lower case and without points, and what is behind
/// it. `p. m.`, as it is written in Spanish, is one.
fn half_of_day(text: &str) -> (String, &str) {
    let word =
        |text: &'_ str| text.bytes().take_while(|b| b.is_ascii_alphabetic() || *b == b'.').count();
    let plain = |word: &str| word.replace('.', "").to_ascii_lowercase();
    let (first, rest) = text.split_at(word(text));
    let first = plain(first);
    if matches!(first.as_str(), "a" | "p") {
        let next = rest.trim_start();
        let (second, behind) = next.split_at(word(next));
        if plain(second) == "m" {
            return (first + "m", behind);
        }
    }
    (first, rest)
}

/// `hh:mm[:ss[.fraction]] [AM|PM]`; `hh.mm[.ss]` and the `hhhmm` of French too.
fn clock(scan: &mut Scan<'_>) -> Option<Clock> {
    let mut hour = scan.number(1, 2)?;
    let dotted = scan.rest.starts_with('.');
    if !scan.eat(b":.hH") {
        return None;
    }
    // With a point, one digit may be of anything.
    let minute = scan.number(if dotted { 2 } else { 1 }, 2)?;
    let (mut second, mut nanos, mut precision) = (0, 0, Precision::Minute);
    let sign: &[u8] = if dotted { b".:" } else { b":" };
    if scan.eat(sign) {
        second = scan.number(1, 2)?;
        precision = Precision::Second;
        let behind = scan.rest.get(1..).unwrap_or_default();
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 && (behind.is_empty() || behind.starts_with(['+', '-', 'Z'])) {
            // A fraction that is none, or a colon more.
            scan.eat(b".:");
        }
        // Java's `HH:mm:ss:SSS` and SQL Server have a colon before milliseconds.
        if digits > 0 && (scan.eat(b".,") || digits == 3 && scan.eat(b":")) {
            let (fraction, rest) = scan.rest.split_at(digits);
            nanos = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
            scan.rest = rest;
            precision = Precision::Fraction;
        }
    }
    let before = scan.rest;
    scan.blanks();
    let (half, rest) = half_of_day(scan.rest);
    scan.rest = rest;
    match half.as_str() {
        "am" if (1..=12).contains(&hour) => hour %= 12,
        "pm" if (1..=12).contains(&hour) => hour = hour % 12 + 12,
        // Some write 24 hours and PM.
        "am" | "pm" => {}
        _ => scan.rest = before,
    }
    Some(Clock { hour, minute, second, nanos, precision })
}

/// Seconds east of UTC for `Z`, `+hh:mm`, `+hhmm`, `+hh`, a known name or
/// nothing; `None` for anything else.
fn zone_of(text: &str) -> Option<i64> {
    let text = text.trim();
    let text = text.split(['(', '[']).next().unwrap_or_default().trim_end();
    if text.is_empty() {
        return Some(0);
    }
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' | '\u{2212}' => -1,
        _ => return words::zone(text),
    };
    // Go writes `+0000 UTC`, and `-0300 -03` where the zone has no name: that says no more
    // than the offset.
    let text = match text.split_once(char::is_whitespace) {
        Some((offset, name)) if is_zone_name(name.trim_start()) => offset,
        _ => text,
    };
    // `isoformat() + "Z"` writes both an offset and that it is none.
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let digits: String = text.chars().skip(1).filter(|c| *c != ':').collect();
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match digits.len() {
        1 | 2 => (digits.parse::<i64>().ok()?, 0),
        3 => (digits.get(..1)?.parse().ok()?, digits.get(1..)?.parse().ok()?),
        4 => (digits.get(..2)?.parse().ok()?, digits.get(2..)?.parse().ok()?),
        // No zone of today has seconds.
        6 => (digits.get(..2)?.parse().ok()?, digits.strip_suffix("00")?.get(2..)?.parse().ok()?),
        _ => return None,
    };
    (hours <= 18 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Does this begin with what may be the name of a zone: letters, or its offset once more?
fn is_zone_name(text: &str) -> bool {
    let word = text.split(char::is_whitespace).next().unwrap_or_default();
    let digits = word.strip_prefix(['+', '-']).unwrap_or_default();
    let numeric = matches!(digits.len(), 2 | 4) && digits.bytes().all(|b| b.is_ascii_digit());
    numeric || word.starts_with(char::is_alphabetic)
}

fn at_day(year: i64, month: i64, day: i64, precision: Precision) -> Option<Lastmod> {
    let at = Timestamp::from_second(start_of(year, month, day)?).ok()?;
    Some(Lastmod { at, precision })
}

fn at_time(year: i64, month: i64, day: i64, clock: Clock, offset: i64) -> Option<Lastmod> {
    let start = start_of(year, month, day)?;
    // 24:00 is the end of the day; a leap second is the second before it.
    let end_of_day = clock.hour == 24 && clock.minute == 0 && clock.second == 0;
    if (clock.hour > 23 && !end_of_day) || clock.minute > 59 || clock.second > 60 {
        return None;
    }
    let of_day = clock.hour * 3600 + clock.minute * 60 + clock.second.min(59);
    let at = Timestamp::new(start + of_day - offset, clock.nanos).ok()?;
    Some(Lastmod { at, precision: clock.precision })
}

/// The first second of a day that exists.
fn start_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let valid = (1..=12).contains(&month) && day >= 1 && day <= month_days(year, month);
    valid.then(|| days(year, month, day) * 86_400)
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last of one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests;
