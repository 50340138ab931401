//! HTML elements without an end tag, which people paste unescaped.
//!
//! Their names are also those of elements that hold something (`img`, `meta`), so
//! a look ahead tells the two apart: what has an end tag of its own is no such
//! element. The look is short, and taken only where there are such end tags at all, so
//! that a flood of them stays linear.

use super::Window;

/// HTML elements that never have an end tag.
const VOID: [&str; 6] = ["br", "hr", "img", "input", "wbr", "meta"];
/// Bytes of the longest end tag.
const LONGEST_END: usize = "</input>".len();
/// What is skipped on the way, by its begin and end.
const TEXT: [(&[u8], &[u8]); 2] = [(b"![CDATA[", b"]]>"), (b"!--", b"-->")];
/// Bytes in which the end tag is looked for.
const AHEAD: usize = 4 * 1024;
/// Tags among which it is looked for.
const TAGS_AHEAD: usize = 32;

/// Is this the name of an element that HTML gives no end tag?
#[inline]
pub(super) fn is_void(name: &str) -> bool {
    // Nearly all names are no such one by their first letter.
    let first = name.as_bytes().first().map(u8::to_ascii_lowercase);
    matches!(first, Some(b'b' | b'h' | b'i' | b'm' | b'w'))
        && VOID.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// What is known of end tags with such names.
pub(super) struct Ends {
    /// Before this offset none begins that was not passed.
    none_before: u64,
}

impl Ends {
    pub(super) fn new() -> Self {
        Self { none_before: 0 }
    }

    /// Of an element with such a name, whose start tag ends at `end`: is that all of
    /// it? `None` if that cannot be told yet.
    pub(super) fn is_all(&mut self, w: &Window<'_>, end: usize, name: &str) -> Option<bool> {
        let after = w.from(end);
        if after.len() < AHEAD && !w.last {
            return None;
        }
        let near = after.as_bytes().get(..AHEAD).unwrap_or(after.as_bytes());
        let known = w.until(end, self.none_before).min(near.len());
        let next = near.get(known..).and_then(next_end);
        // A name may be cut at the end of what is looked at.
        let none = next.map_or(near.len().saturating_sub(LONGEST_END), |at| known + at);
        self.none_before = self.none_before.max(w.offset(end + none));
        Some(next.is_none() || !is_closed(near, name.as_bytes()))
    }
}

/// Where an end tag with such a name begins.
fn next_end(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find_iter(bytes, b"</").find(|at| {
        let named = name_of(bytes.get(at + 2..).unwrap_or_default());
        VOID.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(named))
    })
}

/// Is there an end tag of this name before one that closes what is around it?
fn is_closed(mut rest: &[u8], name: &[u8]) -> bool {
    let mut inner: Vec<&[u8]> = Vec::new();
    for _ in 0..TAGS_AHEAD {
        let Some(at) = memchr::memchr(b'<', rest) else { return false };
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some((_, end)) = TEXT.iter().find(|(begin, _)| rest.starts_with(begin)) {
            let Some(at) = memchr::memmem::find(rest, end) else { return false };
            rest = rest.get(at..).unwrap_or_default();
            continue;
        }
        let ends = rest.strip_prefix(b"/");
        let named = name_of(ends.unwrap_or(rest));
        if ends.is_none() {
            let tag = memchr::memchr(b'>', rest).and_then(|end| rest.get(..end));
            if !named.is_empty() && !tag.is_some_and(|tag| tag.ends_with(b"/")) {
                inner.push(named);
            }
            continue;
        }
        let is = |known: &[u8]| known.eq_ignore_ascii_case(named);
        match inner.iter().rposition(|known| is(known)) {
            Some(depth) => inner.truncate(depth),
            None => return is(name),
        }
    }
    false
}

/// The name that a tag begins with; none for a comment or the like.
fn name_of(tag: &[u8]) -> &[u8] {
    let ends = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'/' | b'>' | b'<' | b'!' | b'?');
    tag.split(ends).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_closed_by_its_own_end_tag_before_that_of_what_is_around_it() {
        for (after, want) in [
            ("x</img>", true),
            ("<loc>x</loc></IMG >", true),
            ("<img>x</img></img>", true),
            ("<br>x</img>", true),
            ("<x a='1'/><!-- - --><?y?></img>", true),
            ("<![CDATA[</p>]]></img>", true),
            ("x</p></img>", false),
            ("<img>x</img></p>", false),
            ("<![CDATA[</img>]]></p>", false),
            ("<!-- </img> --></p>", false),
            ("x", false),
            ("</imgs>", false),
        ] {
            assert_eq!(is_closed(after.as_bytes(), b"img"), want, "{after}");
        }
    }
}
