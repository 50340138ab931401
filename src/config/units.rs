//! Durations and byte sizes as people write them.
//!
//! One grammar for durations everywhere: config keys, the API and what we
//! print. It is jiff's "friendly" format with days of 24 hours: `1h 30m`,
//! `500ms`, `7d`, `1 hour, 30 minutes`. What [`format_duration`] writes,
//! [`parse_duration`] reads back to the same value.

use std::fmt::Write as _;
use std::str::FromStr as _;
use std::time::Duration;

use bytesize::ByteSize;
use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

/// Longest text read as a duration or a size, in bytes; no honest one is longer.
const MAX_CHARS: usize = 100;

/// The units that durations are written in, in nanoseconds, largest first.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a duration such as `1h 30m`, `500ms` or `7d`; a day is 24 hours.
///
/// Months and years have no fixed length and are refused, and so is a number
/// without a unit. The error is a sentence that says what is wrong, with the
/// text in quotes, so it may be handed on to whoever wrote it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.len() > MAX_CHARS {
        return Err(format!("a duration has at most {MAX_CHARS} characters"));
    }
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("a duration is empty".to_owned());
    }
    if trimmed.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!("{trimmed:?} has no unit: write \"{trimmed}s\" for seconds"));
    }
    let unreadable = || format!("{trimmed:?} is no duration such as \"1h 30m\"");
    let span = SpanParser::new().parse_span(trimmed).map_err(|_| unreadable())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err("months and years have no fixed length: write days".to_owned());
    }
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| unreadable())?;
    Duration::try_from(signed).map_err(|_| "a duration cannot be negative".to_owned())
}

/// Reads what a server may have said, and somebody put a unit to: as
/// [`parse_duration`], but a number that is too large for that is `most`.
pub fn parse_wait(text: &str, most: Duration) -> Result<Duration, String> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let nanos = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
    if let Some((_, nanos)) = nanos.filter(|_| digits > 0) {
        let count = number.parse().unwrap_or(u128::MAX);
        if count.saturating_mul(*nanos) >= most.as_nanos() {
            return Ok(most);
        }
    }
    parse_duration(text).map(|wait| wait.min(most))
}

/// Writes a duration in the grammar that [`parse_duration`] reads: `1h 30m`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (unit, nanos) in UNITS {
        let count = rest / nanos;
        rest %= nanos;
        if count == 0 {
            continue;
        }
        let gap = if text.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{gap}{count}{unit}");
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a size: `50MiB` is 52,428,800 bytes, `50MB` is 50,000,000, and a bare
/// number counts bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    if text.len() > MAX_CHARS {
        return Err(format!("a size has at most {MAX_CHARS} characters"));
    }
    let trimmed = text.trim();
    let size = ByteSize::from_str(trimmed).map(|size| size.as_u64());
    size.map_err(|_| format!("{trimmed:?} is no size such as \"50MiB\""))
}

/// Writes a size so that [`parse_size`] reads back exactly it: `50MiB`.
pub fn format_size(bytes: u64) -> String {
    const BINARY: [(&str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, size) in BINARY {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_in_the_friendly_grammar() {
        for (text, millis) in [
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
            ("0s", 0),
            ("1 hour, 30 minutes", 5_400_000),
            ("1.5s", 1_500),
            (" 10m ", 600_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("15", "no unit"),
            ("1.5", "no unit"),
            ("1mo", "no fixed length"),
            ("1y", "no fixed length"),
            ("1h ago", "negative"),
            ("-5m", "negative"),
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
        for text in ["ten minutes", "10 minuets", "1h, ", "m", "99999999999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration(&"1h ".repeat(1000)).expect_err("long").contains("100"));
    }

    #[test]
    fn durations_are_written_short() {
        for (millis, text) in [
            (5_400_000, "1h 30m"),
            (0, "0s"),
            (604_800_000, "7d"),
            (129_600_000, "1d 12h"),
            (1_500, "1s 500ms"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn sizes_tell_binary_from_decimal() {
        assert_eq!(parse_size("50MiB"), Ok(52_428_800));
        assert_eq!(parse_size("50MB"), Ok(50_000_000));
        assert_eq!(parse_size("1024"), Ok(1024));
        assert!(parse_size("50 apples").is_err());
        assert!(parse_size("-1").is_err());
    }

    proptest! {
        #[test]
        fn a_written_duration_is_read_back(nanos in 0..=u64::from(u32::MAX) * 1_000_000_000) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn a_written_size_is_read_back(bytes in any::<u64>(), shift in 0..50_u32) {
            let size = (bytes >> 14) >> shift << shift;
            prop_assert_eq!(parse_size(&format_size(size)), Ok(size));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = parse_duration(&text);
            let _ = parse_size(&text);
        }
    }
}
