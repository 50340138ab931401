//! The attributes of a tag, read with all the tolerance of the field.
//!
//! Linear in the tag, no check for duplicates, at most [`MAX`] looked at (the
//! class of RUSTSEC-2026-0194 and -0195). Quotes may be missing.

use std::borrow::Cow;

use super::entities;

/// Attributes of one tag that are looked at.
pub(super) const MAX: usize = 128;

/// Iterates over (name, raw value); stops after [`MAX`].
#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a> {
    rest: &'a str,
    seen: usize,
}

impl<'a> Attributes<'a> {
    /// `raw` is what follows the name of the element in its tag.
    pub(crate) fn new(raw: &'a str) -> Self {
        Self { rest: raw, seen: 0 }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let blank = |c: char| c.is_ascii_whitespace();
        let rest = self.rest.trim_start_matches(|c: char| blank(c) || c == '/' || c == '=');
        if rest.is_empty() || self.seen >= MAX {
            return None;
        }
        self.seen += 1;
        let end = rest.find(|c: char| blank(c) || c == '=').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let Some(value) = after.trim_start().strip_prefix('=') else {
            self.rest = after;
            return Some((name, ""));
        };
        let value = value.trim_start();
        let (value, rest) = if let Some(quote @ ('"' | '\'')) = value.chars().next() {
            let inner = value.get(1..).unwrap_or_default();
            inner.split_once(quote).unwrap_or((inner, ""))
        } else {
            let (value, rest) = value.split_at(value.find(blank).unwrap_or(value.len()));
            // Of two quotes the first may be what is missing.
            (value.strip_suffix(['"', '\'']).unwrap_or(value), rest)
        };
        self.rest = rest;
        Some((name, value))
    }
}

/// Replaces the references in `raw`; unknown and unterminated ones stay, and what is a
/// number of no character is U+FFFD.
pub(crate) fn unescape(raw: &str) -> Cow<'_, str> {
    /// No reference of the table is longer.
    const LONGEST: usize = 12;
    if !raw.contains('&') {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('&') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let inner = from.get(1..).unwrap_or_default();
        let end = inner.bytes().take(LONGEST).position(|b| b == b';');
        let known = end.and_then(|end| {
            let (name, after) = (inner.get(..end)?, inner.get(end + 1..)?);
            if entities::is_no_character(name) {
                return Some(
                    entities::pair(name, after)
                        .map_or((char::REPLACEMENT_CHARACTER, end), |(c, more)| (c, end + more)),
                );
            }
            Some((entities::resolve(name)?, end))
        });
        if let Some((c, end)) = known {
            out.push(c);
            rest = inner.get(end + 1..).unwrap_or_default();
        } else {
            out.push('&');
            rest = inner;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_with_and_without_quotes() {
        let raw = " a=\"1\" b = '2 > 1' c=3 d e=\"\" href=\"x?a=1&amp;b=2\"";
        let all: Vec<_> = Attributes::new(raw).collect();
        let want = [
            ("a", "1"),
            ("b", "2 > 1"),
            ("c", "3"),
            ("d", ""),
            ("e", ""),
            ("href", "x?a=1&amp;b=2"),
        ];
        assert_eq!(all, want);
    }

    #[test]
    fn a_value_whose_first_quote_is_missing_ends_before_the_other() {
        let all: Vec<_> = Attributes::new(" href=https://e.com/a\" rel=\"x\" b=1' c=\"").collect();
        assert_eq!(all, [("href", "https://e.com/a"), ("rel", "x"), ("b", "1"), ("c", "")]);
    }

    #[test]
    fn no_more_than_the_limit_is_looked_at() {
        let raw = " a='1'".repeat(10_000);
        assert_eq!(Attributes::new(&raw).count(), MAX);
    }

    #[test]
    fn references_are_replaced_once_and_unknown_ones_stay() {
        let table = [
            ("a&#55357;&#56832;b&#xD800;", "a😀b\u{fffd}"),
            ("a&amp;b", "a&b"),
            ("&amp;amp;", "&amp;"),
            ("?a=1&b=2", "?a=1&b=2"),
            ("&lol;&#x26;&", "&lol;&&"),
        ];
        for (raw, want) in table {
            assert_eq!(unescape(raw), want);
        }
    }
}
