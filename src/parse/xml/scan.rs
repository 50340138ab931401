//! Tokens of one window, shown to a visitor.
//!
//! Tags that are a name and no more, most of every document, are told at once;
//! quick-xml finds the end of all others. Declarations, comments and CDATA may
//! be longer than any window and are followed here. Where a tag is broken, the
//! stretch that quick-xml took for it is gone through once more by a simpler
//! rule (a tag ends at the next `<` or `>`), never twice.

mod bang;
mod plain;
mod void;

use std::ops::ControlFlow;

use super::super::issue::{IssueCode, Issues, Place};
use super::super::text::Text;
use super::bounds::{
    Cut, NameLen, begins_entry, boundary, excerpt, in_quotes, is_name_start, subset_end,
};
use super::elements::Elements;
use super::{Cx, MAX_TAG, Visitor, tag_len};

/// Of something open, what may be the start of its end.
const TAIL: usize = 256;
/// What a window came to.
pub(super) enum Step {
    /// So many bytes are used; go on with more.
    More(usize),
    /// So many bytes are used; the visitor wants no more.
    Stop(usize),
}

/// What the scan is inside of, that may be longer than any window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// A CDATA section, whose text is given on.
    Cdata,
    /// Up to and with this text.
    Until(&'static str),
    /// The internal subset of a document type, up to `]>`.
    Subset,
}

/// State carried from window to window.
pub(super) struct Scan {
    elements: Elements,
    passing: Option<Passing>,
    /// Up to this offset a tag ends at the next `<` or `>`.
    simple_until: u64,
    /// Where the end of a comment was looked for in vain, up to here.
    no_comment_end: u64,
    /// The same of instructions.
    no_instruction_end: u64,
    /// The same of a CDATA section's, or of what shows that it was forgotten.
    no_cdata_end: u64,
    /// Where the last entry before that begins.
    entry_in_cdata: Option<u64>,
    /// The same of a style sheet's, outside quotes.
    no_stylesheet_end: u64,
    void_ends: void::Ends,
    lost: bool,
    /// The document breaks off in a tag.
    cut: bool,
}

/// How to go on after one piece of markup.
enum Flow {
    /// At this byte.
    At(usize),
    /// More of the document is needed from this byte on.
    Need(usize),
    /// The visitor wants no more.
    Stop(usize),
}

impl Scan {
    pub(super) fn new() -> Self {
        Self {
            elements: Elements::new(),
            passing: None,
            simple_until: 0,
            no_comment_end: 0,
            no_instruction_end: 0,
            no_cdata_end: 0,
            entry_in_cdata: None,
            no_stylesheet_end: 0,
            void_ends: void::Ends::new(),
            lost: false,
            cut: false,
        }
    }

    /// Is a tag or an element of the document, a CDATA section or a comment still open?
    pub(super) fn is_open(&self) -> bool {
        self.elements.is_open() || self.passing.is_some() || self.cut
    }

    /// Was markup dropped?
    pub(super) fn lost(&self) -> bool {
        self.lost || self.elements.lost()
    }

    /// Goes through one window.
    pub(super) fn window<V: Visitor>(
        &mut self,
        text: &Text<'_>,
        issues: &mut Issues,
        visitor: &mut V,
    ) -> Step {
        let rest = text.rest();
        let mut cx = Cx { issues, place: text.place(0) };
        let w = Window { rest, origin: cx.place, last: text.at_end() };
        let mut at = 0;
        loop {
            if at >= rest.len() {
                return Step::More(rest.len());
            }
            let flow = match self.passing {
                None => self.tokens(&w, at, visitor, &mut cx),
                Some(Passing::Cdata) => self.cdata(&w, at, visitor, &mut cx),
                Some(Passing::Until(end)) => {
                    self.pass(&w, at, end.len() - 1, |rest| rest.find(end).map(|i| i + end.len()))
                }
                Some(Passing::Subset) => self.pass(&w, at, TAIL, subset_end),
            };
            match flow {
                Flow::At(next) => at = next,
                Flow::Need(from) => return Step::More(from),
                Flow::Stop(used) => return Step::Stop(used),
            }
        }
    }

    /// Passes over what no one reads, up to where `find` says it ends; its end
    /// may begin in the last `tail` bytes of the window.
    fn pass(
        &mut self,
        w: &Window<'_>,
        at: usize,
        tail: usize,
        find: impl Fn(&str) -> Option<usize>,
    ) -> Flow {
        if let Some(len) = find(w.from(at)) {
            self.passing = None;
            return Flow::At(at + len);
        }
        if w.last {
            return Flow::At(w.rest.len());
        }
        Flow::Need(boundary(w.rest, w.rest.len().saturating_sub(tail)).max(at))
    }

    /// Text and tags, up to the next declaration, comment, CDATA or defect.
    fn tokens<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        at: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let bytes = w.rest.as_bytes();
        let mut start = at;
        loop {
            cx.place.at = w.origin.at + start;
            let here = bytes.get(start..).unwrap_or_default();
            let next = match here {
                [] => return Flow::At(start),
                [b'<', next, ..] => *next,
                [b'<'] => return self.lone(w, start, visitor, cx),
                _ => {
                    match self.run_of_text(w, start, visitor, cx) {
                        Flow::At(end) => start = end,
                        flow => return flow,
                    }
                    continue;
                }
            };
            let flow = if next == b'/' {
                self.plain_end(w, &mut start, visitor, cx)
            } else if is_name_start(next) {
                self.plain_start(w, &mut start, visitor, cx)
            } else {
                return match next {
                    b'!' | b'?' => self.bang(w, start, visitor, cx),
                    _ => self.lone(w, start, visitor, cx),
                };
            };
            match flow {
                Some(ControlFlow::Continue(())) => {}
                Some(ControlFlow::Break(())) => return Flow::Stop(start),
                None => match self.tag(w, start, visitor, cx) {
                    Flow::At(end) if self.passing.is_none() => start = end,
                    flow => return flow,
                },
            }
        }
    }

    /// A tag with more than a name in it.
    fn tag<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        if w.offset(start) < self.simple_until {
            return self.simple_tag(w, start, visitor, cx);
        }
        let Some(len) = tag_len(w.from(start)) else {
            if !w.full(start) {
                return Flow::Need(start);
            }
            // No end in sight: from here on by the simple rule.
            self.simple_until = w.offset(w.rest.len());
            return self.simple_tag(w, start, visitor, cx);
        };
        let end = start + len;
        let raw = w.rest.get(start + 1..end - 1).unwrap_or_default();
        if raw.contains('<')
            && let Some(flow) = self.broken(w, start, end, cx)
        {
            return flow;
        }
        self.show_tag(w, start, raw, end, visitor, cx)
    }

    /// Shows the tag at `start`, given without its angle brackets, and goes on at `next`.
    fn show_tag<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        raw: &str,
        next: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let flow = if let Some(name) = raw.strip_prefix('/') {
            self.elements.end(name, visitor, cx)
        } else {
            let (raw, mut empty) = raw.strip_suffix('/').map_or((raw, false), |raw| (raw, true));
            let end = raw.bytes().position(|b| b.is_ascii_whitespace() || b == b'/');
            let (name, attributes) = raw.split_at(end.unwrap_or(raw.len()));
            if !empty && void::is_void(name) {
                match self.void_ends.is_all(w, next, name) {
                    Some(is_all) => empty = is_all,
                    None => return Flow::Need(start),
                }
            }
            self.elements.tag(name, attributes, empty, visitor, cx)
        };
        if flow.is_break() { Flow::Stop(next) } else { Flow::At(next) }
    }

    /// A `<` that begins nothing is text.
    fn lone<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        if start + 1 >= w.rest.len() {
            if w.last {
                self.lost = true;
                if self.elements.depth() == 0 {
                    cx.note(IssueCode::ParsingError, "<");
                }
            }
            return if w.last { Flow::At(w.rest.len()) } else { Flow::Need(start) };
        }
        // All of a run at once, so that a flood of them is cheap.
        let run = w.from(start + 1).bytes().take_while(|b| *b == b'<').count();
        let end = start + run.max(1);
        cx.note(IssueCode::UnescapedCharacter, excerpt(w.from(start)));
        self.elements.text(w.rest.get(start..end).unwrap_or_default(), visitor, cx);
        Flow::At(end)
    }

    /// A tag with a `<` in it. `None` when it is only an attribute value that
    /// should have been escaped.
    fn broken(
        &mut self,
        w: &Window<'_>,
        start: usize,
        end: usize,
        cx: &mut Cx<'_>,
    ) -> Option<Flow> {
        let raw = w.rest.get(start + 1..end - 1).unwrap_or_default();
        let before = raw.split('<').next().unwrap_or_default();
        if in_quotes(before) && !self.swallows(raw) {
            cx.note(IssueCode::UnescapedCharacter, excerpt(raw));
            return None;
        }
        self.simple_until = w.offset(end);
        Some(Flow::At(start))
    }

    /// Does a tag with a `<` in it hold what was not meant to be in a value: an entry,
    /// or an end tag of its own or of something open? Its quote was never closed, and
    /// met a later one.
    fn swallows(&self, raw: &str) -> bool {
        let name_of = |text: &'_ str| NameLen::of(text.as_bytes()).len;
        let own = raw.get(..name_of(raw)).unwrap_or_default();
        raw.match_indices('<').any(|(at, _)| {
            let here = raw.get(at..).unwrap_or_default();
            let ends = here.strip_prefix("</").and_then(|end| end.get(..name_of(end)));
            begins_entry(here.as_bytes())
                || ends.is_some_and(|name| name == own || self.elements.closes(name))
        })
    }

    /// A tag that ends at the next `<` or `>`.
    fn simple_tag<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let (end, next) = match Cut::find(w.rest, start) {
            Cut::At(end) => (end, end + 1),
            Cut::Before(end) => match self.is_text(w, start, end) {
                Some(false) => {
                    cx.note(IssueCode::ParsingError, excerpt(w.from(start)));
                    (end, end)
                }
                Some(true) => {
                    cx.note(IssueCode::UnescapedCharacter, excerpt(w.from(start)));
                    let text = w.rest.get(start..end).unwrap_or_default();
                    self.elements.references(text, visitor, cx);
                    return Flow::At(end);
                }
                None => return Flow::Need(start),
            },
            Cut::Open if !w.full(start) => return Flow::Need(start),
            Cut::Open => return self.open_tag(w, start, visitor, cx),
        };
        let raw = w.rest.get(start + 1..end).unwrap_or_default();
        self.show_tag(w, start, raw, next, visitor, cx)
    }

    /// Is a `<` and what follows it text, where another one stands at `end`? It is if
    /// an end tag of something open begins there, and there are no attributes: as a
    /// tag it would open nothing but cut the text before it off. `None` if that cannot
    /// be told yet.
    fn is_text(&self, w: &Window<'_>, start: usize, end: usize) -> Option<bool> {
        let raw = w.rest.get(start + 1..end).unwrap_or_default();
        let attributes = raw.split_once(|c: char| c.is_ascii_whitespace());
        if raw.starts_with('/') || attributes.is_some_and(|(_, rest)| rest.contains('=')) {
            return Some(false);
        }
        let next = w.from(end);
        let name = next.strip_prefix("</");
        let len = name.map_or(0, |name| NameLen::of(name.as_bytes()).len);
        if next.len() <= len + "</".len() && !w.full(start) {
            return None;
        }
        Some(name.and_then(|name| name.get(..len)).is_some_and(|name| self.elements.closes(name)))
    }

    /// A tag without an end: the document is cut off in it, or it is too long.
    fn open_tag<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let here = w.from(start);
        if !w.last {
            self.lost = true;
            cx.note(IssueCode::OversizedMarkup, excerpt(here));
            self.passing = Some(Passing::Until(">"));
            return Flow::At(start);
        }
        let depth = self.elements.depth();
        let ends = here.strip_prefix("</");
        // Nothing but its `>` may be missing.
        let is_whole = depth == 1
            && ends.is_some_and(|name| {
                name.trim_ascii_end().eq_ignore_ascii_case(self.elements.top())
            });
        self.lost |= !is_whole;
        self.cut = depth > 0 && !is_whole;
        if !self.cut {
            cx.note(IssueCode::ParsingError, excerpt(here));
        }
        if ends.is_some() && self.elements.close_innermost(visitor, cx).is_break() {
            // The document is over, but who stops has not taken all of it.
            return Flow::Stop(w.rest.len());
        }
        Flow::At(w.rest.len())
    }
}

/// The text of a window and what is known of it.
struct Window<'a> {
    rest: &'a str,
    origin: Place<'a>,
    /// It holds the end of the document.
    last: bool,
}

impl<'a> Window<'a> {
    fn from(&self, at: usize) -> &'a str {
        self.rest.get(at..).unwrap_or_default()
    }

    /// Will there be no more of the token that starts here?
    fn full(&self, start: usize) -> bool {
        self.last || self.rest.len() - start > MAX_TAG
    }

    /// Byte offset in the decoded document.
    fn offset(&self, at: usize) -> u64 {
        self.origin.offset() + at as u64
    }

    /// Bytes from here up to an offset in the document.
    fn until(&self, at: usize, offset: u64) -> usize {
        usize::try_from(offset.saturating_sub(self.offset(at))).unwrap_or(usize::MAX)
    }
}
