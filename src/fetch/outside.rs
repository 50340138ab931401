//! Text from outside, made fit for error texts and logs.
//!
//! Nothing that a stranger wrote leaves this module with control characters,
//! with more than [`MAX_SHOWN`] bytes, or with a user name, a password or what
//! else looks like a secret in a URL.

use std::error::Error;
use std::fmt::Write as _;

use url::Url;

use crate::log::redact;

/// Bytes of outside text shown at most; with our words around it, an error
/// stays below 500.
pub(super) const MAX_SHOWN: usize = 400;

/// The text with everything unprintable escaped, cut at [`MAX_SHOWN`] bytes.
pub(super) fn text(raw: &str) -> String {
    let mut shown = String::new();
    for c in raw.chars() {
        let mut escaped = String::new();
        if matches!(c, '"' | '\'' | '\\') {
            escaped.push(c);
        } else {
            escaped.extend(c.escape_debug());
        }
        if shown.len() + escaped.len() + '…'.len_utf8() > MAX_SHOWN {
            shown.push('…');
            break;
        }
        shown.push_str(&escaped);
    }
    shown
}

/// The URL as it may be logged, cut at [`MAX_SHOWN`] bytes.
pub(super) fn url(raw: &Url) -> String {
    text(&redact(raw))
}

/// An error with its causes, each said once.
pub(super) fn error(error: &(dyn Error + 'static)) -> String {
    let mut shown = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !shown.contains(&inner_text) {
            // Writing to a String cannot fail.
            let _ = write!(shown, ": {inner_text}");
        }
        cause = inner.source();
    }
    text(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_text_is_printable_and_short() {
        let shown = text("a\u{1b}[31m\0\r\n\u{202e}\u{7f}\"é");
        assert_eq!(shown, r#"a\u{1b}[31m\0\r\n\u{202e}\u{7f}"é"#);
        for filler in ["x", "\0", "é", "\u{202e}"] {
            let long = text(&filler.repeat(10_000));
            assert!(long.len() <= MAX_SHOWN && long.ends_with('…'), "{}", long.len());
        }
    }

    #[test]
    fn a_shown_url_has_no_userinfo_and_no_secret() {
        let shown = url(&Url::parse("https://user:hunter2@example.org/a?b=c&token=S3").unwrap());
        assert_eq!(shown, "https://example.org/a?b=c&token=***");
    }
}
