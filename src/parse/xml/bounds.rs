//! Where pieces of markup end, found without quick-xml.
//!
//! Pure functions over a window; each looks at a byte at most once.

/// The end of a tag by the simple rule: at the next `<` or `>`.
pub(super) enum Cut {
    /// Ends at this `>`.
    At(usize),
    /// Broken off by this `<`.
    Before(usize),
    /// Neither is in the window.
    Open,
}

impl Cut {
    /// The end of the tag whose `<` is at `start`.
    pub(super) fn find(rest: &str, start: usize) -> Self {
        let from = start + 1;
        let found = rest.get(from..).and_then(|s| s.find(['<', '>'])).map(|i| from + i);
        match found {
            Some(i) if rest.as_bytes().get(i) == Some(&b'<') => Self::Before(i),
            Some(i) => Self::At(i),
            None => Self::Open,
        }
    }
}

/// Where a CDATA section ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CdataEnd {
    /// At this `]]>`.
    Proper(usize),
    /// At this end tag of the element that it is in: the `]]>` was forgotten.
    Forgotten(usize),
    /// Whether an end tag in it is text cannot be told yet.
    Unsure,
    /// Not here.
    Beyond,
}

impl CdataEnd {
    /// An end tag in a CDATA section is text, unless another section begins
    /// (or much text follows) before a `]]>`.
    pub(super) fn find(inside: &str, element: &str, last: bool) -> Self {
        const ENOUGH: usize = 8 * 1024;
        let mut forgotten = None;
        let mut from = 0;
        while let Some(at) = inside.get(from..).and_then(|s| s.find(['<', '>'])).map(|i| from + i) {
            let (before, after) = inside.split_at(at);
            match forgotten {
                // First, since a `]]>` so far off may not be in the window yet.
                Some(end) if at > end + ENOUGH || after.starts_with("<![CDATA[") => {
                    return Self::Forgotten(end);
                }
                _ if before.ends_with("]]") && after.starts_with('>') => {
                    return Self::Proper(at - 2);
                }
                None if is_end_tag(after, element) => forgotten = Some(at),
                _ => {}
            }
            from = at + 1;
        }
        match forgotten {
            Some(end) if last || inside.len() > end + ENOUGH => Self::Forgotten(end),
            Some(_) => Self::Unsure,
            None => Self::Beyond,
        }
    }
}

fn is_end_tag(text: &str, element: &str) -> bool {
    let after = text.strip_prefix("</").and_then(|s| s.strip_prefix(element));
    after.is_some_and(|s| s.trim_ascii_start().starts_with('>'))
}

/// Where the internal subset of a document type ends: `]`, blanks and `>`.
pub(super) fn subset_end(text: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find(']').map(|i| from + i + 1) {
        let after = text.get(at..)?;
        let tail = after.trim_ascii_start();
        if tail.starts_with('>') {
            return Some(at + (after.len() - tail.len()) + 1);
        }
        from = at;
    }
    None
}

/// May a name begin with this byte?
pub(super) fn is_name_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b == b':' || b >= 0x80
}

/// Bytes of the name that `bytes` begin with.
pub(super) fn name_len(bytes: &[u8]) -> usize {
    let of_name =
        |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'-' | b'.') || *b >= 0x80;
    bytes.iter().position(|b| !of_name(b)).unwrap_or(bytes.len())
}

/// The character boundary at or before `at`.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or_default()
}

/// The start of a token, for a sample.
pub(super) fn excerpt(text: &str) -> &str {
    const BYTES: usize = 160;
    text.get(..boundary(text, BYTES)).unwrap_or_default()
}

/// Does text that stops here stop inside a quoted attribute value, with no
/// `>` before that?
pub(super) fn in_quotes(before: &str) -> bool {
    let mut quote = None;
    for b in before.bytes() {
        match (quote, b) {
            (_, b'>') => return false,
            (None, b'"' | b'\'') => quote = Some(b),
            (Some(open), _) if open == b => quote = None,
            _ => {}
        }
    }
    quote.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cdata_section_ends_where_it_says_or_where_it_must() {
        use CdataEnd::{Beyond, Forgotten, Proper, Unsure};
        let table = [
            ("http://a]]></loc>", true, Proper(8)),
            ("]]>", true, Proper(0)),
            ("see </loc> there]]></loc>", true, Proper(16)),
            ("http://a</loc></url><url><loc><![CDATA[http://b]]></loc>", true, Forgotten(8)),
            ("http://a</loc ></url>", true, Forgotten(8)),
            ("http://a</loc></url>", false, Unsure),
            ("http://a</lastmod>", true, Beyond),
        ];
        for (inside, last, want) in table {
            assert_eq!(CdataEnd::find(inside, "loc", last), want, "{inside}");
        }
        // However much of it is in the window.
        let far = format!("http://a</loc>{}]]></loc>", "x".repeat(9_000));
        for inside in [far.as_str(), &far[..8_500]] {
            assert_eq!(CdataEnd::find(inside, "loc", false), Forgotten(8));
        }
    }

    #[test]
    fn an_internal_subset_ends_at_its_bracket() {
        assert_eq!(subset_end("[<!ENTITY a ']'>] >x"), Some(19));
        assert_eq!(subset_end("[<!ENTITY a 'b'>"), None);
    }

    #[test]
    fn quotes_that_never_closed_are_told_from_values_with_a_bracket() {
        for (before, want) in
            [("a b=\"c", true), ("a b=\"c>d", false), ("a b='c' ", false), ("a b='\"", true)]
        {
            assert_eq!(in_quotes(before), want, "{before}");
        }
    }
}
