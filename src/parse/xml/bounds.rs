//! Where pieces of markup end that quick-xml does not follow.
//!
//! Pure functions over a window; each looks at a byte once or twice.

use quick_xml::parser::{ElementParser, Parser as _};

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

/// A CDATA section that does not end within so many bytes behind an end tag of its
/// element was not closed; so far is the end of a comment or an instruction looked for.
const MUCH_TEXT: usize = 64 * 1024;

/// What begins a CDATA section.
pub(super) const CDATA: &str = "<![CDATA[";

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
    ///
    /// It is none either if an entry begins behind it before the `]]>`, but where the
    /// element begins in the section, too: that is a sample of markup.
    ///
    /// Nothing that tells this stands in what is `known`, behind an end tag there; it
    /// grows by what is looked at, so that no byte is looked at for it twice, however
    /// many sections were never closed.
    pub(super) fn find(inside: &str, element: &str, known: &mut Known, last: bool) -> Self {
        let mut from = 0;
        let end = loop {
            let Some(at) = next_bracket(inside, from, inside.len()) else { return Self::Beyond };
            let (before, after) = inside.split_at(at);
            if is_cdata_end(before, after) {
                return Self::Proper(at - 2);
            }
            if is_end_tag(after, element) {
                break at;
            }
            from = at + 1;
        };
        let far = end + MUCH_TEXT;
        from = (end + 1).max(known.to);
        while let Some(at) = next_bracket(inside, from, far + 1) {
            let (before, after) = inside.split_at(at);
            if is_cdata_end(before, after) {
                let is_sample = || has_start_tag(inside.get(..end).unwrap_or_default(), element);
                if known.entry.is_none_or(|entry| entry < end) || is_sample() {
                    return Self::Proper(at - 2);
                }
                known.to = at;
                return Self::Forgotten(end);
            }
            if after.starts_with(CDATA) && before.get(end..).is_some_and(is_in_element) {
                known.to = at;
                return Self::Forgotten(end);
            }
            if begins_entry(after.as_bytes()) {
                known.entry = Some(at);
            }
            from = at + 1;
        }
        // The start of a section or of an entry may be cut at the end of what is here.
        let whole = inside.len().saturating_sub(if last { 0 } else { CDATA.len() });
        known.to = known.to.max(whole.min(far + 1));
        if last || inside.len() > far || known.to > far {
            Self::Forgotten(end)
        } else {
            Self::Unsure
        }
    }
}

/// The text of a section whose end was mistyped, as `]]`, `]>` or `]] >`, without that.
pub(super) fn before_mistyped_end(text: &str) -> &str {
    let all = text.trim_ascii_end();
    let closed = all.strip_suffix('>').map(str::trim_ascii_end);
    let brackets = closed.unwrap_or(all);
    let before = brackets.strip_suffix("]]");
    let before = before.or_else(|| closed?.strip_suffix(']'));
    before.unwrap_or(text)
}

/// What was seen behind the end tags of sections that were never closed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// Bytes that were looked at.
    pub(super) to: usize,
    /// Where the last entry in them begins.
    pub(super) entry: Option<usize>,
}

/// Does an element of this name begin in some markup?
fn has_start_tag(markup: &str, element: &str) -> bool {
    markup.match_indices('<').any(|(at, _)| {
        let inner = markup.get(at + 1..).unwrap_or_default();
        inner.get(..NameLen::of(inner.as_bytes()).len) == Some(element)
    })
}

/// The elements of sitemaps and feeds that are an entry.
const ENTRIES: [&[u8]; 4] = [b"url", b"sitemap", b"item", b"entry"];

/// Is this the start tag of an entry?
pub(super) fn begins_entry(markup: &[u8]) -> bool {
    let inner = markup.strip_prefix(b"<").unwrap_or_default();
    let name = inner.get(..NameLen::of(inner).len).unwrap_or_default();
    ENTRIES.iter().any(|entry| entry.eq_ignore_ascii_case(name))
}

/// Where the next bracket stands from `from` on and before `to`.
fn next_bracket(text: &str, from: usize, to: usize) -> Option<usize> {
    let part = text.as_bytes().get(from..to.min(text.len()))?;
    memchr::memchr2(b'<', b'>', part).map(|at| from + at)
}

/// Does a CDATA section end here?
fn is_cdata_end(before: &str, after: &str) -> bool {
    after.starts_with('>') && before.ends_with("]]")
}

/// What a comment or an instruction begins and ends with.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) begin: &'static str,
    pub(super) end: &'static str,
    /// Entries in it were taken out on purpose.
    pub(super) holds_entries: bool,
}

/// What marks a comment.
pub(super) const COMMENT: Marks = Marks { begin: "<!--", end: "-->", holds_entries: true };
/// What marks an instruction.
pub(super) const INSTRUCTION: Marks = Marks { begin: "<?", end: "?>", holds_entries: false };

impl Marks {
    /// Does something stand before the first end mark that shows that an earlier one
    /// was mistyped? Looks no further than that.
    fn is_mistyped(&self, before: &[u8]) -> bool {
        if self.holds_entries {
            return memchr::memmem::find(before, self.begin.as_bytes()).is_some();
        }
        memchr::memchr_iter(b'<', before).any(|at| {
            let here = before.get(at..).unwrap_or_default();
            here.starts_with(self.begin.as_bytes()) || begins_entry(here)
        })
    }
}

/// Where a comment or an instruction ends: behind its mark, `-->` or `?>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkEnd {
    /// The mark ends here.
    Proper(usize),
    /// The mark was forgotten or mistyped, and this is behind a `>`, or the end of the
    /// document.
    Forgotten(usize),
    /// The document ends before the mark comes, and markup stands before the first `>`,
    /// which this is behind. What was taken out on purpose may have been cut within, or
    /// the mark was forgotten.
    Unended(usize),
    /// More of the document is needed.
    Unsure,
    /// Not near: it is as long as it is.
    Beyond,
}

impl MarkEnd {
    /// Bytes that are looked at.
    pub(super) fn near(inside: &str) -> &[u8] {
        inside.as_bytes().get(..MUCH_TEXT).unwrap_or(inside.as_bytes())
    }

    /// What ends with a mark may have any length, and hold markup. Where no mark is
    /// near, or the one that is belongs to another that begins before it, the first `>`
    /// was meant to be the end if no markup begins before it, or if the document is
    /// over. No mark begins in the first `known` bytes, which grow by what is looked at.
    pub(super) fn find(inside: &str, marks: &Marks, known: &mut usize, last: bool) -> Self {
        let near = Self::near(inside);
        let unknown = near.get(*known..).unwrap_or_default();
        let bare = || memchr::memchr2(b'<', b'>', near).filter(|at| near.get(*at) == Some(&b'>'));
        if let Some(at) = memchr::memmem::find(unknown, marks.end.as_bytes()) {
            *known += at;
            let end = *known + marks.end.len();
            if !marks.is_mistyped(near.get(..*known).unwrap_or_default()) {
                return Self::Proper(end);
            }
            return Self::Forgotten(bare().map_or(end, |at| at + 1));
        }
        *known = (*known).max((near.len() + 1).saturating_sub(marks.end.len()));
        let is_all = near.len() < MUCH_TEXT;
        if is_all && !last {
            return Self::Unsure;
        }
        let found = match bare() {
            None if is_all => {
                let behind_markup = memchr::memchr(b'>', near);
                if let Some(at) = behind_markup.filter(|_| marks.holds_entries) {
                    return Self::Unended(at + 1);
                }
                behind_markup.or(near.len().checked_sub(1))
            }
            found => found,
        };
        match found {
            Some(at) => Self::Forgotten(at + 1),
            None if is_all => Self::Forgotten(0),
            None => Self::Beyond,
        }
    }

    /// The end of an `xml-stylesheet`, which people close as if it were a tag, if it
    /// has one near.
    pub(super) fn of_stylesheet(inside: &str, last: bool) -> Option<Self> {
        let near = Self::near(inside);
        let Some(end) = ElementParser::Outside.feed(near).map(|at| at + 1) else {
            let is_all = near.len() < MUCH_TEXT;
            return (is_all && !last).then_some(Self::Unsure);
        };
        let mark = memchr::memmem::find(near.get(..end)?, b"?>");
        Some(mark.map_or(Self::Forgotten(end), |at| Self::Proper(at + "?>".len())))
    }
}

/// End tags of a page that are passed over behind a document.
const MAX_BEHIND: usize = 4;

/// Is the last end tag of some markup, which may be cut, that of an element with this
/// local name? Those of a page that somebody put around it are passed over.
pub(super) fn ends_with_end_of(markup: &str, element: &str) -> bool {
    let ends = memchr::memmem::rfind_iter(markup.as_bytes(), b"</").map(|at| {
        let inner = markup.get(at + "</".len()..).unwrap_or_default();
        let name = inner.get(..NameLen::of(inner.as_bytes()).len).unwrap_or_default();
        name.rsplit_once(':').map_or(name, |(_, local)| local)
    });
    let of_page = |name: &&str| ["body", "html"].iter().any(|page| page.eq_ignore_ascii_case(name));
    let last = ends.take(MAX_BEHIND).find(|name| !of_page(name));
    last.is_some_and(|name| name.eq_ignore_ascii_case(element))
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
#[inline]
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
            ("http://a</loc></url><url><loc>http://b]]></loc>", true, Forgotten(8)),
            ("a <loc>b</loc></url><url> c]]></loc>", true, Proper(27)),
        ];
        let find = |inside: &str, last| CdataEnd::find(inside, "loc", &mut Known::default(), last);
        for (inside, last, want) in table {
            assert_eq!(find(inside, last), want, "{inside}");
        }
        let far = |text: usize| format!("a</loc>{}]]></loc>", "x".repeat(text));
        assert_eq!(find(&far(50_000), true), Proper(50_007));
        assert_eq!(find(&far(MUCH_TEXT), true), Forgotten(1));
    }

    #[test]
    fn what_is_known_of_a_section_tells_where_the_next_one_ends() {
        // All sections of a text, each looked at with what the ones before have shown,
        // and each by itself.
        let start = "a</p><p><![CDATA[";
        let pieces = ["</p>", "<p>", start, "</x><![CDATA[", "]]>", "x", "<", "]]", ">", "<url>"];
        let mut seed = 1_u64;
        for round in 0..300 {
            let mut text = String::new();
            for _ in 0..60 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
                text.push_str(pieces[usize::try_from(seed >> 33).expect("small") % pieces.len()]);
                if seed >> 60 == 0 {
                    text.push_str(&"-".repeat(MUCH_TEXT / 2));
                }
            }
            let (mut at, mut known) = (0, Known::default());
            while let Some(begins) = text[at..].find(CDATA) {
                at += begins + CDATA.len();
                for size in [100, 1_000, MUCH_TEXT, 3 * MUCH_TEXT] {
                    let part = &text[at..(at + size).min(text.len())];
                    let last = at + size >= text.len();
                    let mut here = Known {
                        to: known.to.saturating_sub(at),
                        entry: known.entry.and_then(|entry| entry.checked_sub(at)),
                    };
                    let found = CdataEnd::find(part, "p", &mut here, last);
                    known.to = known.to.max(at + here.to);
                    known.entry = here.entry.map(|entry| at + entry).or(known.entry);
                    let alone = CdataEnd::find(part, "p", &mut Known::default(), last);
                    if found != alone {
                        // What is known may tell it before all of it is here.
                        assert_eq!(alone, CdataEnd::Unsure, "{text}");
                        assert!(matches!(found, CdataEnd::Forgotten(_)), "{text}");
                        let all = CdataEnd::find(&text[at..], "p", &mut Known::default(), true);
                        assert_eq!(found, all, "{text}");
                    }
                    match found {
                        CdataEnd::Proper(end) | CdataEnd::Forgotten(end) => at += end,
                        CdataEnd::Unsure | CdataEnd::Beyond => continue,
                    }
                    break;
                }
            }
        }
    }

    #[test]
    fn what_ends_with_a_mark_ends_there_or_where_it_was_meant_to() {
        use MarkEnd::{Beyond, Forgotten, Proper, Unended, Unsure};
        let far = |start: &str| format!("{start}{}-->", "x".repeat(MUCH_TEXT));
        let table = [
            ("x --> y".to_owned(), 0, true, Proper(5)),
            ("<b> --> y".to_owned(), 4, false, Proper(7)),
            ("x -> y".to_owned(), 0, false, Unsure),
            ("x -> y".to_owned(), 4, true, Forgotten(4)),
            ("<b> y".to_owned(), 9, true, Unended(3)),
            ("<b y".to_owned(), 9, true, Forgotten(4)),
            ("x".to_owned(), 0, true, Forgotten(1)),
            (String::new(), 0, true, Forgotten(0)),
            (far("x ->"), 0, true, Forgotten(4)),
            (far("<b> ->"), 0, true, Beyond),
            (far(""), 0, false, Beyond),
            ("x -> <b> <!-- y -->".to_owned(), 0, true, Forgotten(4)),
            ("<b> <!-- y --> -->".to_owned(), 0, true, Forgotten(14)),
        ];
        for (inside, mut known, last, want) in table {
            let start = inside.get(..9).unwrap_or(&inside).to_owned();
            assert_eq!(MarkEnd::find(&inside, &COMMENT, &mut known, last), want, "{start}");
        }
        for (inside, looked_at) in [("a--", 1), ("", 0), ("x > <!-- -->", 9)] {
            let mut known = 0;
            MarkEnd::find(inside, &COMMENT, &mut known, false);
            assert_eq!(known, looked_at, "{inside}");
        }
        for (inside, want) in [
            ("y z> <b> <?y ?>", Forgotten(4)),
            ("y z> <url> ?>", Forgotten(4)),
            ("y <url> ?>", Forgotten(10)),
            ("y z> <b> ?>", Proper(11)),
            ("y <b> z", Forgotten(5)),
        ] {
            assert_eq!(MarkEnd::find(inside, &INSTRUCTION, &mut 0, true), want, "{inside}");
        }
        for (inside, want) in [
            (" a='>'?><b>", Some(Proper(8))),
            (" a='>'><b>", Some(Forgotten(7))),
            (" a='?><b c='>", Some(Proper(6))),
            (" a='?><b>", None),
        ] {
            assert_eq!(MarkEnd::of_stylesheet(inside, true), want, "{inside}");
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
