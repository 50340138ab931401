//! Numbers, times and foreign text as a person reads them.
//!
//! Pure. Every function returns text without control characters and, where a
//! width is given, not wider than that (counted in characters).

use std::fmt::Write as _;

use jiff::Timestamp;

pub use crate::model::span::{duration, when};

/// `12340` as `12,340`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and its noun, `1 URL`, `2 URLs`.
pub fn count(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}

/// Bytes in the unit that leaves one to three digits before the point.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if value < 1024 {
        return count(value, "byte", "bytes");
    }
    let mut unit = 0;
    let mut hundredths = u128::from(value) * 100 / 1024;
    while hundredths >= 102_400 && unit + 1 < UNITS.len() {
        hundredths /= 1024;
        unit += 1;
    }
    let whole = hundredths / 100;
    if whole >= 10 {
        return format!("{whole} {}", UNITS[unit]);
    }
    format!("{whole}.{} {}", hundredths % 100 / 10, UNITS[unit])
}

/// When something is due, seen from `now`: what is overdue is due `now`.
pub fn due(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| when(at.max(now), now))
}

/// [`when`], or a dash where there is no instant.
pub fn when_or_dash(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| when(at, now))
}

/// Foreign text made safe to print: control characters and those that turn the
/// direction of writing are shown as escapes, so no text can drive a terminal
/// or show as something that it is not.
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns_direction(c) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Unicode's directional formatting characters (UAX 9 section 2) and the two
/// separators that end a line.
fn turns_direction(c: char) -> bool {
    matches!(c,
        '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}' | '\u{2029}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cuts text in the middle, where URLs differ least, to at most `max`
/// characters; what was cut is shown as `…`.
pub fn cut_middle(text: &str, max: usize) -> String {
    let length = text.chars().count();
    if length <= max {
        return text.to_owned();
    }
    let kept = max.saturating_sub(1);
    // The tail of a URL tells pages apart, the head tells sites apart.
    let tail = kept / 2;
    let head = kept - tail;
    let front = text.chars().take(head);
    let back = text.chars().skip(length - tail);
    front.chain((max > 0).then_some('…')).chain(back).collect()
}

/// Breaks text at spaces into lines of at most `max` characters; a longer word
/// has a line of its own.
pub fn wrap(text: &str, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut room = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if length < room => {
                line.push(' ');
                line.push_str(word);
                room -= length + 1;
            }
            _ => {
                lines.push(word.to_owned());
                room = max.saturating_sub(length);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_a_comma_at_every_third_digit() {
        let cases =
            [(0, "0"), (999, "999"), (1_000, "1,000"), (12_340, "12,340"), (1 << 20, "1,048,576")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        let cases = [
            (1, "1 byte"),
            (1023, "1,023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (50 << 20, "50 MiB"),
            (1 << 30, "1.0 GiB"),
            // Cut, not rounded, and in the greatest unit that there is.
            (u64::MAX, "16383 PiB"),
        ];
        for (value, text) in cases {
            assert_eq!(bytes(value), text, "{value}");
        }
    }

    #[test]
    fn what_is_overdue_is_due_now() {
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().expect("a timestamp");
        let earlier = "2026-11-21T07:00:00Z".parse().ok();
        assert_eq!(due(earlier, now), "now");
        assert_eq!(due("2026-11-21T08:20:00Z".parse().ok(), now), "in 20 min");
        assert_eq!(due(None, now), "-");
    }

    #[test]
    fn text_that_would_drive_a_terminal_is_shown_as_escapes() {
        assert_eq!(safe("a\x1b[2Jb\r\n"), "a\\u{1b}[2Jb\\u{d}\\u{a}");
        assert_eq!(safe("exe.\u{202e}lmx"), "exe.\\u{202e}lmx");
        assert_eq!(safe("https://example.org/ä"), "https://example.org/ä");
    }

    #[test]
    fn a_long_url_keeps_its_beginning_and_its_end() {
        assert_eq!(cut_middle("https://example.org/a/b/c.html", 15), "https:/…/c.html");
        assert_eq!(cut_middle("short", 15), "short");
        assert_eq!(cut_middle("ab", 1), "…");
        assert_eq!(cut_middle("ab", 0), "");
    }

    proptest! {
        #[test]
        fn cut_text_is_never_wider_than_asked(text in ".*", max in 0_usize..40) {
            prop_assert!(cut_middle(&text, max).chars().count() <= max);
        }

        #[test]
        fn safe_text_has_no_control_character(text in ".*") {
            prop_assert!(!safe(&text).chars().any(char::is_control));
        }

        #[test]
        fn wrapping_loses_no_word(words in prop::collection::vec("[a-z]{1,12}", 0..20), max in 1_usize..30) {
            let text = words.join(" ");
            let lines = wrap(&text, max);
            prop_assert_eq!(lines.join(" "), text);
            for line in lines {
                prop_assert!(line.chars().count() <= max || !line.contains(' '), "{line}");
            }
        }
    }
}
