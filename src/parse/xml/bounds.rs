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

/// A CDATA section that does not end within so many bytes behind an end tag of
/// its element was not closed.
const MUCH_TEXT: usize = 64 * 1024;

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
    /// behind a later start tag (or very much text follows) before a `]]>`.
    pub(super) fn find(inside: &str, element: &str, last: bool) -> Self {
        let mut forgotten = None;
        let mut from = 0;
        while let Some(at) = inside
            .as_bytes()
            .get(from..)
            .and_then(|s| memchr::memchr2(b'<', b'>', s))
            .map(|i| from + i)
        {
            let (before, after) = inside.split_at(at);
            if let Some(end) = forgotten.filter(|end| at > end + MUCH_TEXT) {
                return Self::Forgotten(end);
            }
            if before.ends_with("]]") && after.starts_with('>') {
                return Self::Proper(at - 2);
            }
            match forgotten {
                Some(end)
                    if after.starts_with("<![CDATA[")
                        && before.get(end..).is_some_and(is_in_element) =>
                {
                    return Self::Forgotten(end);
                }
                None if is_end_tag(after, element) => forgotten = Some(at),
                _ => {}
            }
            from = at + 1;
        }
        match forgotten {
            Some(end) if last || inside.len() > end + MUCH_TEXT => Self::Forgotten(end),
            Some(_) => Self::Unsure,
            None => Self::Beyond,
        }
    }
}

/// Is the last tag of some markup a start tag? Looks no further back than it.
fn is_in_element(markup: &str) -> bool {
    let tag = markup.rfind('<').and_then(|at| markup.as_bytes().get(at + 1));
    tag.is_some_and(|b| is_name_start(*b))
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

/// May stand in a name.
const NAME: u8 = 1;
/// Stands in names that mean something else in lower case, or have a prefix.
const ODD: u8 = 2;
/// What each byte is in a name; 0 ends one.
const KINDS: [u8; 256] = kinds();

const fn kinds() -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        // The cast is exact: the table has one place for each value of a byte.
        #[allow(clippy::cast_possible_truncation)]
        let b = at as u8;
        if b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'-' | b'.') || b >= 0x80 {
            table[at] = if b.is_ascii_uppercase() || b == b':' { NAME | ODD } else { NAME };
        }
        at += 1;
    }
    table
}

/// The name that some bytes begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameLen {
    /// Its bytes.
    pub(super) len: usize,
    /// It has no prefix and no capital letter.
    pub(super) simple: bool,
}

impl NameLen {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut all = 0;
        let mut len = 0;
        for b in bytes {
            let kind = KINDS[usize::from(*b)];
            if kind == 0 {
                break;
            }
            all |= kind;
            len += 1;
        }
        Self { len, simple: all & ODD == 0 }
    }
}

/// Bytes of white space that `bytes` begin with.
pub(super) fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count()
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
            ("a</loc> <![CDATA[ is text ]]></loc>", true, Proper(26)),
            ("a</loc></url> <![CDATA[ too ]]></loc>", true, Proper(28)),
            ("http://a</loc ></url>", true, Forgotten(8)),
            ("http://a</loc></url>", false, Unsure),
            ("http://a</lastmod>", true, Beyond),
        ];
        for (inside, last, want) in table {
            assert_eq!(CdataEnd::find(inside, "loc", last), want, "{inside}");
        }
        let far = |text: usize| format!("a</loc>{}]]></loc>", "x".repeat(text));
        assert_eq!(CdataEnd::find(&far(50_000), "loc", true), Proper(50_007));
        assert_eq!(CdataEnd::find(&far(MUCH_TEXT), "loc", true), Forgotten(1));
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
