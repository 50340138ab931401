//! Cron lines in the dialect of crontab, over the cron crate, which speaks
//! Quartz.
//!
//! Five fields (minute, hour, day of month, month, day of week) or six with
//! seconds first. Weekdays are 0 to 7 with Sunday as both, or names. When day
//! of month and day of week are both restricted, either is enough, as in
//! crontab(5). A line that can never come is refused when it is read.
//!
//! The crate's own dialect differs in each of these points, so a line is read
//! here into sets of numbers and handed over written out. It computes in the
//! zone's local time; where that jumps forward, times inside the gap do not
//! come, and where it falls back, a line that names its hours comes once, at
//! the first of the two. Nothing else in the program uses chrono.

use std::fmt;

use chrono::{Datelike, TimeZone as _, Timelike, Utc};
use cron::Schedule;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

/// Longest line read, in bytes.
const MAX_LINE: usize = 256;

/// Most changes of a zone's offset looked through for one next time: two
/// centuries of two a year, and the schedule itself ends with the year 2100.
const MAX_SEGMENTS: usize = 400;

/// A cron line that comes again and again. Equal when the times are equal.
#[derive(Debug, Clone)]
pub struct CronSpec {
    /// As typed, with single blanks, lower-case, and `@daily` written out.
    line: String,
    fields: Fields,
    /// One, or two when either day field is enough: the earlier one counts.
    schedules: Vec<Schedule>,
}

/// The values each field allows, one bit a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    second: Set,
    minute: Set,
    hour: Set,
    day: Set,
    month: Set,
    weekday: Set,
}

/// One field: its values, and whether it was written with a star in front,
/// which is what crontab calls unrestricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set {
    bits: u64,
    starred: bool,
}

/// What one field may hold.
struct Kind {
    name: &'static str,
    min: u8,
    max: u8,
    /// Where `*`, and `a/n`, end: before `max` only for weekdays, where 7 is
    /// Sunday once more.
    end: u8,
    words: &'static [&'static str],
}

const SECOND: Kind = Kind { name: "second", min: 0, max: 59, end: 59, words: &[] };
const MINUTE: Kind = Kind { name: "minute", min: 0, max: 59, end: 59, words: &[] };
const HOUR: Kind = Kind { name: "hour", min: 0, max: 23, end: 23, words: &[] };
const DAY: Kind = Kind { name: "day of month", min: 1, max: 31, end: 31, words: &[] };
const MONTH: Kind = Kind {
    name: "month",
    min: 1,
    max: 12,
    end: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
/// Seven is Sunday again, and is folded into 0 after the field is read.
const WEEKDAY: Kind = Kind {
    name: "day of week",
    min: 0,
    max: 7,
    end: 6,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl CronSpec {
    /// Reads a line of five or six fields, or one of `@hourly`, `@daily`,
    /// `@weekly`, `@monthly`, `@yearly`. The error is a clause that says what
    /// was found and what is allowed.
    pub fn parse(line: &str) -> Result<Self, String> {
        if line.len() > MAX_LINE {
            return Err(format!("a cron line has at most {MAX_LINE} characters"));
        }
        let lower = line.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_ascii_whitespace().collect();
        let line = match words.as_slice() {
            [word] if word.starts_with('@') => shorthand(word)?.to_owned(),
            _ => words.join(" "),
        };
        let fields = Fields::parse(&line)?;
        let spec = Self { schedules: fields.schedules()?, fields, line };
        // From a fixed day, so that the answer never depends on when it is
        // asked; every date comes within the 130 years that the crate knows.
        if spec.next_local(DateTime::constant(2000, 1, 1, 0, 0, 0, 0)).is_none() {
            return Err(format!("{:?} names a date that never comes", spec.line));
        }
        Ok(spec)
    }

    /// The first time strictly after `now`, in the local time of `tz`; `None`
    /// when there is none before the year 2100 ends.
    pub fn next_after(&self, now: Timestamp, tz: &TimeZone) -> Option<Timestamp> {
        let mut from = now;
        for _ in 0..MAX_SEGMENTS {
            let offset = tz.to_offset(from);
            let until = tz.following(from).next().map(|change| change.timestamp());
            let cursor = self.skip_repeated_hour(offset.to_datetime(from), from, offset, tz);
            let local = self.next_local(cursor)?;
            let at = offset.to_timestamp(local).ok()?;
            let Some(until) = until else { return Some(at) };
            if at < until {
                return Some(at);
            }
            // Not before the offset changes: look on from just before the
            // change, by the clock that holds from then on.
            let change = tz.to_offset(until);
            if let Some(at) = self.first_from(until, change, tz) {
                return Some(at);
            }
            from = until;
        }
        None
    }

    /// The next `count` times after `now`, for showing them.
    pub fn upcoming(&self, now: Timestamp, tz: &TimeZone, count: usize) -> Vec<Timestamp> {
        let next = |at: &Timestamp| self.next_after(*at, tz);
        std::iter::successors(self.next_after(now, tz), next).take(count).collect()
    }

    /// The time `at` itself, when the line names it in the new local time.
    fn first_from(&self, at: Timestamp, offset: Offset, tz: &TimeZone) -> Option<Timestamp> {
        let local = offset.to_datetime(at);
        let cursor = self.skip_repeated_hour(local, at, offset, tz);
        if cursor != local {
            return None;
        }
        let just_before = local.checked_sub(jiff::Span::new().seconds(1)).ok()?;
        (self.next_local(just_before)? == local).then_some(at)
    }

    /// Where `local` is in an hour that the zone goes through a second time,
    /// and the line names its hours: the last second of that hour.
    fn skip_repeated_hour(
        &self,
        local: DateTime,
        at: Timestamp,
        offset: Offset,
        tz: &TimeZone,
    ) -> DateTime {
        if self.fields.hour.starred {
            return local;
        }
        // The change that brought this offset may lie at `at` itself.
        let after = at.saturating_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(at);
        let Some(change) = tz.preceding(after).next() else { return local };
        let just_before = change.timestamp() - jiff::SignedDuration::from_nanos(1);
        let before = tz.to_offset(just_before);
        if before <= offset {
            return local;
        }
        let repeated_until = before.to_datetime(change.timestamp());
        if local >= repeated_until {
            return local;
        }
        repeated_until.checked_sub(jiff::Span::new().seconds(1)).unwrap_or(local)
    }

    /// The first local time strictly after `local`. The crate is given local
    /// time as if it were UTC, so that it never sees a zone.
    fn next_local(&self, local: DateTime) -> Option<DateTime> {
        let after = Utc
            .with_ymd_and_hms(
                i32::from(local.year()),
                u32::from(local.month().unsigned_abs()),
                u32::from(local.day().unsigned_abs()),
                u32::from(local.hour().unsigned_abs()),
                u32::from(local.minute().unsigned_abs()),
                u32::from(local.second().unsigned_abs()),
            )
            .single()?;
        let next = self.schedules.iter().filter_map(|s| s.after(&after).next()).min()?;
        DateTime::new(
            i16::try_from(next.year()).ok()?,
            i8::try_from(next.month()).ok()?,
            i8::try_from(next.day()).ok()?,
            i8::try_from(next.hour()).ok()?,
            i8::try_from(next.minute()).ok()?,
            i8::try_from(next.second()).ok()?,
            0,
        )
        .ok()
    }
}

impl PartialEq for CronSpec {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

impl Eq for CronSpec {}

impl fmt::Display for CronSpec {
    /// The line in lower case with single blanks, shorthands written out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl Fields {
    fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split(' ').filter(|w| !w.is_empty()).collect();
        let (second, rest) = match words.as_slice() {
            [_, _, _, _, _] => ("0", words.as_slice()),
            [second, rest @ ..] if rest.len() == 5 => (*second, rest),
            _ => {
                return Err(format!(
                    "it has {} fields, allowed are five (minute hour day month weekday) \
                     or six with seconds first",
                    words.len()
                ));
            }
        };
        let [minute, hour, day, month, weekday] = rest else {
            return Err("a cron line has five or six fields".to_owned());
        };
        let mut weekday = Set::parse(weekday, &WEEKDAY)?;
        weekday.bits = (weekday.bits | weekday.bits >> 7) & 0x7f;
        Ok(Self {
            second: Set::parse(second, &SECOND)?,
            minute: Set::parse(minute, &MINUTE)?,
            hour: Set::parse(hour, &HOUR)?,
            day: Set::parse(day, &DAY)?,
            month: Set::parse(month, &MONTH)?,
            weekday,
        })
    }

    /// The same times as schedules of the crate, which wants both day fields
    /// to match: so two schedules where crontab wants either.
    fn schedules(&self) -> Result<Vec<Schedule>, String> {
        let every_day = Set::full(&DAY);
        let every_weekday = Set::full(&WEEKDAY);
        let either = !self.day.starred && !self.weekday.starred;
        let pairs = if either {
            vec![(self.day, every_weekday), (every_day, self.weekday)]
        } else {
            vec![(self.day, self.weekday)]
        };
        pairs.into_iter().map(|(day, weekday)| self.schedule(day, weekday)).collect()
    }

    fn schedule(&self, day: Set, weekday: Set) -> Result<Schedule, String> {
        let quartz = [
            self.second.quartz(&SECOND),
            self.minute.quartz(&MINUTE),
            self.hour.quartz(&HOUR),
            day.quartz(&DAY),
            self.month.quartz(&MONTH),
            weekday.quartz_weekday(),
        ]
        .join(" ");
        quartz.parse().map_err(|e: cron::error::Error| e.to_string())
    }
}

impl Set {
    fn full(kind: &Kind) -> Self {
        Self { bits: range_bits(kind.min, kind.end, 1), starred: true }
    }

    fn parse(text: &str, kind: &Kind) -> Result<Self, String> {
        let mut bits = 0;
        for item in text.split(',') {
            bits |= parse_item(item, kind).map_err(|e| {
                let Kind { name, min, max, .. } = kind;
                format!("{name} {text:?}: {e}; allowed are {min} to {max}, *, a-b, */n and lists")
            })?;
        }
        Ok(Self { bits, starred: text.starts_with(['*', '?']) })
    }

    fn has(self, value: u8) -> bool {
        self.bits >> value & 1 == 1
    }

    /// The field as the crate reads it: every value, written out.
    fn quartz(self, kind: &Kind) -> String {
        if self.bits == Self::full(kind).bits {
            return "*".to_owned();
        }
        join((kind.min..=kind.max).filter(|v| self.has(*v)))
    }

    /// The same for weekdays, which Quartz counts from Sunday as 1.
    fn quartz_weekday(self) -> String {
        if self.bits == Self::full(&WEEKDAY).bits {
            return "*".to_owned();
        }
        join((0..7).filter(|v| self.has(*v)).map(|v| v + 1))
    }
}

fn join(values: impl Iterator<Item = u8>) -> String {
    values.map(|v| v.to_string()).collect::<Vec<_>>().join(",")
}

fn shorthand(word: &str) -> Result<&'static str, String> {
    Ok(match word {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            return Err(format!(
                "{word:?} is no shorthand, allowed are @hourly, @daily, @weekly, @monthly and @yearly"
            ));
        }
    })
}

/// One item of a list: `*`, `a`, `a-b`, each with an optional `/step`.
fn parse_item(item: &str, kind: &Kind) -> Result<u64, String> {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(parse_step(step, kind)?)),
        None => (item, None),
    };
    let (first, last) = match range {
        "*" | "?" => (kind.min, kind.end),
        _ => parse_range(range, kind, step.is_some())?,
    };
    Ok(range_bits(first, last, step.unwrap_or(1)))
}

/// `a-b`, or `a` alone, which with a step means "from a to the end".
fn parse_range(range: &str, kind: &Kind, stepped: bool) -> Result<(u8, u8), String> {
    let Some((first, last)) = range.split_once('-') else {
        let value = parse_value(range, kind)?;
        return Ok((value, if stepped { kind.end.max(value) } else { value }));
    };
    let first = parse_value(first, kind)?;
    let mut last = parse_value(last, kind)?;
    // `fri-sun`: as the end of a range Sunday is the seventh day.
    if kind.end < kind.max && last == 0 && first > 0 {
        last = 7;
    }
    if first > last {
        return Err(format!("the range {range:?} runs backwards"));
    }
    Ok((first, last))
}

fn parse_value(text: &str, kind: &Kind) -> Result<u8, String> {
    if let Some(place) = kind.words.iter().position(|word| *word == text) {
        // At most twelve words, so the place fits.
        return Ok(kind.min + u8::try_from(place).unwrap_or_default());
    }
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = text.parse().ok().filter(|v| digits && (kind.min..=kind.max).contains(v));
    value.ok_or_else(|| format!("{text:?} is no {}", kind.name))
}

fn parse_step(text: &str, kind: &Kind) -> Result<u8, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let step = text.parse().ok().filter(|n| digits && *n >= 1);
    step.ok_or_else(|| format!("{text:?} is no step of a {}", kind.name))
}

fn range_bits(first: u8, last: u8, step: u8) -> u64 {
    (first..=last).step_by(usize::from(step.max(1))).fold(0, |bits, value| bits | 1 << value)
}

#[cfg(test)]
mod tests;
