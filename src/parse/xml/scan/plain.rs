//! Text, and tags that are a name and no more: nearly all of every document.
//!
//! No defect is looked for here beyond what a glance shows; what is not plain
//! is left to the rest of the scan, so a clean document pays for no tolerance.

use std::ops::ControlFlow;

use memchr::{memchr, memchr2};

use super::super::bounds::{NameLen, blanks};
use super::super::elements::LONGEST_REFERENCE;
use super::super::entities;
use super::void::is_void;
use super::{Cx, Flow, IssueCode, Scan, Visitor, Window, boundary};

/// Blanks that may stand behind an end tag without its `<`: so much is held back at the
/// end of a window.
const MAX_BLANKS: usize = 1024;

/// A `<` that is not missing, but text: some escape no `>`.
const ESCAPED: &str = "&lt;";

impl Scan {
    /// A start tag that is a name and no more; `None` for any other.
    #[inline]
    pub(super) fn plain_start<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: &mut usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Option<ControlFlow<()>> {
        let inner = *start + 1;
        let bytes = w.rest.as_bytes();
        let found = NameLen::of(bytes.get(inner..)?);
        let end = inner + found.len;
        if bytes.get(end) != Some(&b'>') {
            return None;
        }
        let name = w.rest.get(inner..end)?;
        if is_void(name) {
            return None;
        }
        *start = end + 1;
        Some(if found.simple {
            self.elements.simple_tag(name, visitor, cx)
        } else {
            self.elements.tag(name, "", false, visitor, cx)
        })
    }

    /// An end tag that is a name and no more; `None` for any other.
    #[inline]
    pub(super) fn plain_end<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: &mut usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Option<ControlFlow<()>> {
        let inner = *start + 2;
        let here = w.rest.as_bytes().get(inner..)?;
        // Nearly always it is that of the innermost element.
        let top = self.elements.top().as_bytes();
        if !top.is_empty() && here.starts_with(top) && here.get(top.len()) == Some(&b'>') {
            *start = inner + top.len() + 1;
            return Some(self.elements.end_top(visitor, cx));
        }
        let end = inner + NameLen::of(here).len;
        if end == inner || w.rest.as_bytes().get(end) != Some(&b'>') {
            return None;
        }
        *start = end + 1;
        Some(self.elements.end(w.rest.get(inner..end)?, visitor, cx))
    }

    /// Text up to the next `<`.
    pub(super) fn run_of_text<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let here = w.from(start);
        let blank = blanks(here.as_bytes());
        // Blanks that a window ends in are no text either.
        let is_cut = blank == here.len() && !w.last;
        if is_cut || here.as_bytes().get(blank) == Some(&b'<') {
            self.elements.blank(here.get(..blank).unwrap_or_default(), visitor, cx);
            return Flow::At(start + blank);
        }
        let (found, references) = match memchr2(b'<', b'&', here.as_bytes()) {
            Some(at) if here.as_bytes().get(at) == Some(&b'&') => {
                (memchr(b'<', here.as_bytes().get(at..).unwrap_or_default()).map(|i| at + i), true)
            }
            found => (found, false),
        };
        let mut text = here.get(..found.unwrap_or(here.len())).unwrap_or_default();
        // A reference may go on beyond the window.
        if found.is_none() && !w.last {
            let from = boundary(text, text.len().saturating_sub(2 * LONGEST_REFERENCE));
            let tail = text.get(from..).unwrap_or_default();
            if let Some(end) = unsure_reference(tail) {
                text = text.get(..from + end).unwrap_or_default();
                self.elements.references(text, visitor, cx);
                return Flow::Need(start + text.len());
            }
        }
        let end = start + text.len();
        if !w.last
            && let Some(at) = self.unsure_end(text, w.from(end))
        {
            let shown = text.get(..at).unwrap_or_default();
            if references {
                self.elements.references(shown, visitor, cx);
            } else if !shown.is_empty() {
                self.elements.text(shown, visitor, cx);
            }
            return Flow::Need(start + at);
        }
        let ended = self.end_without_bracket(text, w.from(end));
        let shown = ended.and_then(|at| text.get(..at)).unwrap_or(text);
        if references {
            self.elements.references(shown, visitor, cx);
        } else if !shown.is_empty() {
            self.elements.text(shown, visitor, cx);
        }
        if ended.is_some() {
            cx.place.at += shown.len();
            cx.note(IssueCode::MismatchedTag, self.elements.top());
            if self.elements.end_top(visitor, cx).is_break() {
                return Flow::Stop(end);
            }
        }
        Flow::At(end)
    }

    /// Where in a text the end tag of its element begins, if its `<` is missing: the text
    /// ends in `/loc>`, and the tag does not follow.
    #[inline]
    fn end_without_bracket(&self, text: &str, next: &str) -> Option<usize> {
        let at = self.like_end(text)?;
        let top = self.elements.top();
        let follows = next.strip_prefix("</").is_some_and(|name| name.starts_with(top));
        (!follows).then_some(at)
    }

    /// Where in a text that a window cuts, or that stands right before its end, such an end
    /// tag may begin: whether it is one shows only with what is behind it.
    #[inline]
    fn unsure_end(&self, text: &str, next: &str) -> Option<usize> {
        let top = self.elements.top();
        if let Some(at) = self.like_end(text) {
            let is_begun = match next.strip_prefix("</") {
                Some(name) => name.len() < top.len() && top.starts_with(name),
                None => matches!(next, "" | "<"),
            };
            return is_begun.then_some(at);
        }
        if !next.is_empty() || top.is_empty() {
            return None;
        }
        if let Some(before) = text.strip_suffix(ESCAPED) {
            return Some(before.len());
        }
        let from = boundary(text, text.len().saturating_sub(top.len() + 1));
        let at = from + text.get(from..)?.rfind('/')?;
        let (before, name) = text.split_at_checked(at)?;
        let is_begun = name.get(1..).is_some_and(|name| top.starts_with(name));
        (is_begun && !before.ends_with(ESCAPED)).then_some(at)
    }

    /// Where in a text the name of its element begins that it ends in, as in `/loc>`.
    #[inline]
    fn like_end(&self, text: &str) -> Option<usize> {
        let top = self.elements.top();
        let shown = text.trim_ascii_end();
        let before = shown.strip_suffix('>')?.strip_suffix(top)?.strip_suffix('/')?;
        let near = text.len() - shown.len() <= MAX_BLANKS;
        (near && !top.is_empty() && !before.ends_with(ESCAPED)).then_some(before.len())
    }
}

/// Where a reference begins that may go on behind a text: it has no end yet, or is the
/// first half of a pair.
fn unsure_reference(text: &str) -> Option<usize> {
    let last = text.rfind('&')?;
    let cut = text.get(last..).is_some_and(|reference| !reference.contains(';')).then_some(last);
    let before = text.get(..cut.unwrap_or(text.len())).unwrap_or_default();
    let half = before
        .strip_suffix(';')
        .and_then(|text| text.rsplit_once('&'))
        .filter(|(_, name)| entities::is_first_half(name));
    half.map(|(before, _)| before.len()).or(cut)
}
