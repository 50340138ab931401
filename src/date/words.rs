//! Dates made of words: RFC 822, RFC 850, asctime, and what people make of them.
//!
//! The order of day, month and year is found by what they look like, so a
//! missing comma, a wrong or foreign weekday or a full month name do no harm.

use super::{Clock, Scan, at_day, at_time, clock, zone_of};
use crate::model::{Lastmod, Precision};

/// No clock is further from UTC than that of Kiribati, at +1400; a year is a greater number.
const MAX_OFFSET: u16 = 1400;

/// What was found of a date.
#[derive(Default)]
struct Parts {
    day: Option<i64>,
    month: Option<i64>,
    /// The month came before any number: `mar` may be Tuesday's.
    may_be_weekday: bool,
    year: Option<i64>,
    /// Digits of the year: what has two of them may be a day or an hour.
    year_len: usize,
    clock: Option<Clock>,
    zone: Option<i64>,
    strange_zone: bool,
    /// Was there a number that no date lacks?
    more: bool,
}

/// Reads a date whose month is a word, or one with slashes.
pub(super) fn read(text: &str) -> Option<Lastmod> {
    let mut parts = Parts::default();
    let mut rest = text;
    for _ in 0..16 {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if rest.is_empty() {
            break;
        }
        rest = parts.take(rest)?;
    }
    parts.finish()
}

impl Parts {
    /// Takes one word off the front.
    fn take<'a>(&mut self, rest: &'a str) -> Option<&'a str> {
        let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_clock = || {
            word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit())
                || is_french_clock(word)
        };
        if self.clock.is_none() && is_clock() {
            return self.take_clock(rest);
        }
        if word.starts_with(['(', '[']) {
            // A comment: the name of the zone, after its offset.
            return Some(rest.split_once([')', ']']).map_or("", |(_, after)| after));
        }
        // Behind a mere date, too (xsd:date).
        let behind_date = || self.is_whole() && zone_of(word).is_some();
        if word.starts_with(['+', '-']) && (self.clock.is_some() || behind_date()) {
            self.zone = zone_of(word);
            self.strange_zone |= self.zone.is_none();
            return Some(after);
        }
        // Behind a date and its time a name is a zone's, whatever else is in it.
        let named = self.is_whole() && word.starts_with(|c: char| c.is_ascii_alphabetic());
        let zoned = self.clock.is_some() && self.zone.is_none() && (named || zone(word).is_some());
        if !zoned && word.contains(['-', '/', '.']) && word.bytes().any(|b| b.is_ascii_digit()) {
            if self.day.is_some() && self.clock.is_none() && is_dotted_clock(word) {
                return self.take_clock(rest);
            }
            self.take_joined(word)?;
            return Some(after);
        }
        if self.is_whole() && self.is_left_of_time(word) {
            self.strange_zone = true;
            self.more = true;
            return Some(after);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            self.take_number(word)?;
            return Some(after);
        }
        if self.more && month(word).is_some() {
            // Another date: `3 Jun 2017 to 5 Jul`.
            return None;
        }
        self.take_name(word);
        Some(after)
    }

    /// An hour without minutes, or an offset whose sign was lost: a number that no date
    /// lacks. Behind a year of two digits it would be the year, in `12 - 15 Jun 2017`.
    fn is_left_of_time(&self, word: &str) -> bool {
        let lower = word.to_ascii_lowercase();
        let hour = ["h", "am", "pm"].iter().find_map(|unit| lower.strip_suffix(unit));
        let number = hour.unwrap_or(word);
        let is_number = number.bytes().all(|b| b.is_ascii_digit());
        is_number
            && match number.len() {
                1 | 2 => self.clock.is_some() || self.year_len == 4,
                4 => number.parse::<u16>().is_ok_and(|offset| offset <= MAX_OFFSET),
                _ => false,
            }
    }

    /// Are day, month and year known?
    fn is_whole(&self) -> bool {
        self.day.is_some() && self.month.is_some() && self.year.is_some()
    }

    fn take_clock<'a>(&mut self, rest: &'a str) -> Option<&'a str> {
        let mut scan = Scan { rest };
        self.clock = Some(clock(&mut scan)?);
        let end = scan.rest.find(char::is_whitespace).unwrap_or(scan.rest.len());
        let (zone, after) = scan.rest.split_at(end);
        if !zone.is_empty() {
            self.zone = zone_of(zone);
            self.strange_zone |= self.zone.is_none();
        }
        Some(after)
    }

    /// `06-Nov-94`, `6.11.2004`, `11/21/2026`
    fn take_joined(&mut self, word: &str) -> Option<()> {
        let pieces: Vec<&str> = word.trim_end_matches('.').split(['-', '/', '.']).collect();
        match pieces.as_slice() {
            [number] => self.take_number(number),
            // The date was said; what this is nobody knows.
            _ if self.is_whole() => None,
            [a, b, c] if a.len() == 4 => self.set(c, b, a),
            // `03-12-31` is of 2003 or of 2031: people write both.
            [a, b, c] if word.contains('-') && may_begin_with_year([a, b, c]) => None,
            [a, b, c] => {
                let (first, second) = (a.parse::<i64>().ok(), b.parse::<i64>().ok());
                let american = match (first, second) {
                    (Some(first), Some(second)) if first <= 12 && second <= 12 => {
                        // Points are not written by Americans; slashes mostly are.
                        word.contains('/')
                    }
                    (Some(_), Some(second)) => second > 12,
                    (None, _) => true,
                    _ => false,
                };
                if american { self.set(b, a, c) } else { self.set(a, b, c) }
            }
            _ => None,
        }
    }

    fn set(&mut self, day: &str, month: &str, year: &str) -> Option<()> {
        self.month = month.parse().ok().or_else(|| self::month(month));
        self.day = day.parse().ok();
        self.year = full_year(year);
        self.year_len = year.len();
        (self.month.is_some() && self.day.is_some() && self.year.is_some()).then_some(())
    }

    fn take_number(&mut self, word: &str) -> Option<()> {
        let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '.');
        if digits.len() <= 2 && self.day.is_none() {
            self.day = Some(digits.parse().ok()?);
        } else if self.year.is_none() {
            self.year = Some(full_year(digits)?);
            self.year_len = digits.len();
        } else {
            return None;
        }
        Some(())
    }

    fn take_name(&mut self, word: &str) {
        let begun = self.clock.is_some() || self.year.is_some();
        let open = self.month.is_none() || self.may_be_weekday && !begun;
        if open && let Some(month) = month(word) {
            self.month = Some(month);
            self.may_be_weekday = self.day.is_none() && self.year.is_none();
        } else if self.clock.is_some() && self.zone.is_none() {
            self.zone = zone(word);
            self.strange_zone |= self.zone.is_none();
        }
    }

    fn finish(self) -> Option<Lastmod> {
        let (year, month, day) = (self.year?, self.month?, self.day?);
        match self.clock {
            Some(clock) if self.zone.is_some() || !self.strange_zone => {
                at_time(year, month, day, clock, self.zone.unwrap_or(0))
            }
            // The day is as written; the hour cannot be known.
            _ => at_day(year, month, day, Precision::Day),
        }
    }
}

/// Are these three numbers of two digits a year, a month and a day?
fn may_begin_with_year(pieces: [&str; 3]) -> bool {
    let two = |piece: &str| piece.parse::<i64>().ok().filter(|_| piece.len() == 2);
    let [Some(year), Some(month), Some(day)] = pieces.map(two) else { return false };
    at_day(2000 + year, month, day, Precision::Day).is_some()
}

/// `15h30`
fn is_french_clock(word: &str) -> bool {
    let digits =
        |text: &str| matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
    word.split_once(['h', 'H']).is_some_and(|(hour, minute)| digits(hour) && digits(minute))
}

/// `10.30` or `10.30.05`, which behind a day is no date.
fn is_dotted_clock(word: &str) -> bool {
    let two = |piece: &str| piece.len() == 2 && piece.bytes().all(|b| b.is_ascii_digit());
    let (hour, rest) = word.split_once('.').unwrap_or_default();
    let short = matches!(hour.as_bytes(), [b'0'..=b'9']);
    (short || two(hour)) && rest.split('.').all(two) && rest.split('.').count() <= 2
}

/// A year of four digits, or of two (RFC 2822 section 4.3: up to 49 is 20xx).
fn full_year(digits: &str) -> Option<i64> {
    let year: i64 = digits.parse().ok()?;
    match digits.len() {
        4 => Some(year),
        2 if year < 50 => Some(2000 + year),
        2 | 3 => Some(1900 + year),
        _ => None,
    }
}

/// A month by its name or abbreviation, in the languages that feeds use.
fn month(word: &str) -> Option<i64> {
    const NAMES: [(&str, i64); 104] = [
        ("jan", 1),
        ("feb", 2),
        ("mar", 3),
        ("apr", 4),
        ("may", 5),
        ("jun", 6),
        ("jul", 7),
        ("aug", 8),
        ("sep", 9),
        ("oct", 10),
        ("nov", 11),
        ("dec", 12),
        ("fév", 2),
        ("fev", 2),
        ("mär", 3),
        ("mrz", 3),
        ("mrt", 3),
        ("maa", 3),
        ("avr", 4),
        ("abr", 4),
        ("mai", 5),
        ("mei", 5),
        ("maj", 5),
        ("mag", 5),
        ("gen", 1),
        ("ene", 1),
        ("giu", 6),
        ("jui", 6),
        ("lug", 7),
        ("aoû", 8),
        ("aou", 8),
        ("ago", 8),
        ("set", 9),
        ("out", 10),
        ("okt", 10),
        ("ott", 10),
        ("déc", 12),
        ("dez", 12),
        ("dic", 12),
        ("des", 12),
        ("янв", 1),
        ("фев", 2),
        ("мар", 3),
        ("апр", 4),
        ("май", 5),
        ("мая", 5),
        ("июн", 6),
        ("июл", 7),
        ("авг", 8),
        ("сен", 9),
        ("окт", 10),
        ("ноя", 11),
        ("дек", 12),
        ("már", 3),
        ("ápr", 4),
        ("máj", 5),
        ("jún", 6),
        ("júl", 7),
        ("szep", 9),
        ("ian", 1),
        ("iun", 6),
        ("iul", 7),
        ("noi", 11),
        ("sty", 1),
        ("lut", 2),
        ("kwi", 4),
        ("cze", 6),
        // `lipanj` of Croatian, which is no `lipiec`.
        ("lipa", 6),
        ("lipn", 6),
        ("lip", 7),
        ("sie", 8),
        ("wrz", 9),
        ("paź", 10),
        ("lis", 11),
        ("gru", 12),
        ("oca", 1),
        ("şub", 2),
        ("nis", 4),
        ("haz", 6),
        ("tem", 7),
        ("ağu", 8),
        ("eyl", 9),
        ("eki", 10),
        ("kas", 11),
        ("ara", 12),
        ("ιαν", 1),
        ("φεβ", 2),
        ("μαρ", 3),
        ("μάρ", 3),
        ("απρ", 4),
        ("μαϊ", 5),
        ("μάι", 5),
        ("μαΐ", 5),
        ("ιουν", 6),
        ("ιούν", 6),
        ("ιουλ", 7),
        ("ιούλ", 7),
        ("αυγ", 8),
        ("αύγ", 8),
        ("σεπ", 9),
        ("οκτ", 10),
        ("νοε", 11),
        ("νοέ", 11),
        ("δεκ", 12),
    ];
    let lower = word.to_lowercase();
    if lower.starts_with("juil") {
        return Some(7);
    }
    let plain = lower.trim_end_matches('.');
    // Finnish says more than the others before it differs: `marraskuu`, `maaliskuu`.
    if let Some(finnish) = finnish_month(plain) {
        return Some(finnish);
    }
    NAMES.iter().find(|(name, _)| plain.starts_with(name)).map(|(_, month)| *month)
}

/// A month of Finnish: by its stem, as dates are abbreviated, or by the stem and what is
/// there of `kuu` and its cases.
fn finnish_month(word: &str) -> Option<i64> {
    const STEMS: [&str; 12] = [
        "tammi", "helmi", "maalis", "huhti", "touko", "kesä", "heinä", "elo", "syys", "loka",
        "marras", "joulu",
    ];
    // A stem is short, and may begin words of other languages.
    let is =
        |stem: &str| word.strip_prefix(stem).is_some_and(|s| s.is_empty() || s.starts_with('k'));
    STEMS.iter().zip(1..).find(|(stem, _)| is(stem)).map(|(_, month)| month)
}

/// Seconds east of UTC for a zone by its name; `None` for an unknown one.
pub(super) fn zone(name: &str) -> Option<i64> {
    const HOURS: [(&str, i64); 40] = [
        ("z", 0),
        ("ut", 0),
        ("utc", 0),
        ("gmt", 0),
        ("wet", 0),
        ("bst", 1),
        ("west", 1),
        ("cet", 1),
        ("met", 1),
        ("mez", 1),
        ("cest", 2),
        ("mest", 2),
        ("mesz", 2),
        ("eet", 2),
        ("sast", 2),
        ("eest", 3),
        ("msk", 3),
        ("trt", 3),
        ("msd", 4),
        ("gst", 4),
        ("pkt", 5),
        ("wib", 7),
        ("hkt", 8),
        ("sgt", 8),
        ("awst", 8),
        ("jst", 9),
        ("kst", 9),
        ("aest", 10),
        ("aedt", 11),
        ("nzst", 12),
        ("nzdt", 13),
        ("art", -3),
        ("brt", -3),
        ("ast", -4),
        ("adt", -3),
        ("est", -5),
        ("edt", -4),
        ("cst", -6),
        ("mst", -7),
        ("pst", -8),
    ];
    const MORE: [(&str, i64); 8] = [
        ("cdt", -5 * 3600),
        ("mdt", -6 * 3600),
        ("pdt", -7 * 3600),
        ("akst", -9 * 3600),
        ("akdt", -8 * 3600),
        ("hst", -10 * 3600),
        ("ist", 5 * 3600 + 1800),
        ("acst", 9 * 3600 + 1800),
    ];
    let lower = name.trim_end_matches('.').to_ascii_lowercase();
    // `Etc/GMT+5` is west of it, and nobody's.
    let lower =
        lower.strip_prefix("etc/").filter(|name| matches!(*name, "utc" | "gmt")).unwrap_or(&lower);
    // The letters of the military say nothing of the zone (RFC 5322 section 4.3); these
    // two are the halves of a day, too.
    if let [letter @ b'a'..=b'y'] = lower.as_bytes()
        && !matches!(letter, b'a' | b'j' | b'p')
    {
        return Some(0);
    }
    // `GMT+2` and `UTC+0100`
    for base in ["gmt", "utc"] {
        if let Some(offset) = lower.strip_prefix(base)
            && offset.starts_with(['+', '-'])
        {
            return zone_of(offset);
        }
    }
    // `MST-07:00` says it twice; where the two differ, nobody knows.
    if let Some(at) = lower.find(['+', '-'])
        && let Some((name, offset)) = lower.split_at_checked(at).filter(|(name, _)| name.len() > 1)
    {
        return zone(name).filter(|seconds| zone_of(offset) == Some(*seconds));
    }
    let hours = HOURS.iter().find(|(known, _)| *known == lower).map(|(_, hours)| hours * 3600);
    hours.or_else(|| MORE.iter().find(|(known, _)| *known == lower).map(|(_, seconds)| *seconds))
}
