//! Tokens of one window, shown to a visitor.
//!
//! quick-xml finds text, references and tags; declarations, comments and CDATA
//! are found here, because they may be longer than any window. Where a tag is
//! broken, the stretch that quick-xml took for it is gone through once more by
//! a simpler rule (a tag ends at the next `<` or `>`), never twice.

use quick_xml::events::Event;
use quick_xml::reader::Reader;

use super::super::issue::{IssueCode, Issues, Place};
use super::super::text::Text;
use super::bounds::{CdataEnd, Cut, boundary, excerpt, in_quotes, is_name_start, subset_end};
use super::elements::Elements;
use super::{Cx, MAX_TAG, Visitor};

/// A reference is held back at the end of a window until it is whole.
const LONGEST_REFERENCE: usize = 16;
/// Of an open CDATA section, what may be the start of its end.
const CDATA_TAIL: usize = 256;
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
    /// No comment ends in what is left.
    no_comment_end: bool,
    lost: bool,
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
            no_comment_end: false,
            lost: false,
        }
    }

    /// Is an element, a CDATA section or a comment still open?
    pub(super) fn is_open(&self) -> bool {
        self.elements.depth() > 0 || self.passing.is_some()
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
                Some(Passing::Subset) => self.pass(&w, at, CDATA_TAIL, subset_end),
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
        let rest = w.rest;
        if w.from(at).starts_with('\u{feff}') {
            return Flow::At(at + '\u{feff}'.len_utf8());
        }
        let mut reader = Reader::from_str(w.from(at));
        let config = reader.config_mut();
        config.allow_dangling_amp = true;
        config.allow_unmatched_ends = true;
        config.check_end_names = false;
        let position = |reader: &Reader<&[u8]>| {
            at + usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
        };
        loop {
            let start = position(&reader);
            let bytes = rest.as_bytes();
            cx.place.at = w.origin.at + start;
            if bytes.get(start) == Some(&b'<') {
                let Some(next) = bytes.get(start + 1).copied() else {
                    return self.lone(w, start, visitor, cx);
                };
                match next {
                    b'!' | b'?' => return self.bang(w, start, visitor, cx),
                    b'/' => {}
                    _ if is_name_start(next) => {}
                    _ => return self.lone(w, start, visitor, cx),
                }
                if w.offset(start) < self.simple_until {
                    return self.simple_tag(w, start, visitor, cx);
                }
            }
            let Ok(event) = reader.read_event() else {
                if !w.full(start) {
                    return Flow::Need(start);
                }
                // No end in sight: from here on by the simple rule.
                self.simple_until = w.offset(rest.len());
                return self.simple_tag(w, start, visitor, cx);
            };
            let end = position(&reader);
            let raw =
                |skip: usize, tail: usize| rest.get(start + skip..end - tail).unwrap_or_default();
            let flow = match event {
                Event::Text(_) => {
                    let text = raw(0, 0);
                    if text.starts_with('&') {
                        if end == rest.len() && !w.last && text.len() < LONGEST_REFERENCE {
                            return Flow::Need(start);
                        }
                        cx.note(IssueCode::UnescapedCharacter, text);
                    }
                    self.elements.text(text, visitor, cx);
                    continue;
                }
                Event::GeneralRef(_) => {
                    self.elements.reference(raw(0, 0), visitor, cx);
                    continue;
                }
                Event::Start(_) | Event::Empty(_) | Event::End(_)
                    if raw(1, 1).as_bytes().contains(&b'<') =>
                {
                    if let Some(flow) = self.broken(w, start, end, cx) {
                        return flow;
                    }
                    self.elements.tag(raw(1, 1), visitor, cx)
                }
                Event::Start(_) | Event::Empty(_) => self.elements.tag(raw(1, 1), visitor, cx),
                Event::End(_) => self.elements.end(raw(2, 1), visitor, cx),
                Event::Eof => return Flow::At(rest.len()),
                // Found by `bang` before quick-xml sees them.
                Event::CData(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_) => {
                    continue;
                }
            };
            if flow.is_break() {
                return Flow::Stop(end);
            }
        }
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
        if in_quotes(before) {
            cx.note(IssueCode::UnescapedCharacter, excerpt(raw));
            return None;
        }
        self.simple_until = w.offset(end);
        Some(Flow::At(start))
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
            Cut::Before(end) => {
                cx.note(IssueCode::ParsingError, excerpt(w.from(start)));
                (end, end)
            }
            Cut::Open if !w.full(start) => return Flow::Need(start),
            Cut::Open => return self.open_tag(w, start, visitor, cx),
        };
        let raw = w.rest.get(start + 1..end).unwrap_or_default();
        let flow = match raw.strip_prefix('/') {
            Some(name) => self.elements.end(name, visitor, cx),
            None => self.elements.tag(raw, visitor, cx),
        };
        if flow.is_break() { Flow::Stop(next) } else { Flow::At(next) }
    }

    /// A tag without an end: the document is cut off in it, or it is too long.
    fn open_tag<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        self.lost = true;
        if !w.last {
            cx.note(IssueCode::OversizedMarkup, excerpt(w.from(start)));
            self.passing = Some(Passing::Until(">"));
            return Flow::At(start);
        }
        if self.elements.depth() == 0 {
            cx.note(IssueCode::ParsingError, excerpt(w.from(start)));
        }
        if w.from(start).starts_with("</") {
            // The document is over, so whether to stop is no question.
            let _ = self.elements.close_innermost(visitor, cx);
        }
        Flow::At(w.rest.len())
    }

    /// `<!` and `<?`.
    fn bang<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        const CDATA: &str = "<![CDATA[";
        let here = w.from(start);
        if here.len() < CDATA.len() && !w.last {
            return Flow::Need(start);
        }
        if here.starts_with(CDATA) {
            self.passing = Some(Passing::Cdata);
            return Flow::At(start + CDATA.len());
        }
        if here.starts_with("<!--") {
            return self.comment(w, start, cx);
        }
        if here.starts_with("<?") {
            return self.instruction(w, start, cx);
        }
        if here.get(..9).is_some_and(|h| h.eq_ignore_ascii_case("<!doctype")) {
            return self.doctype(w, start, visitor, cx);
        }
        self.passing = Some(Passing::Until(">"));
        Flow::At(start)
    }

    fn comment(&mut self, w: &Window<'_>, start: usize, cx: &mut Cx<'_>) -> Flow {
        let inner = start + 4;
        let end = if self.no_comment_end { None } else { w.from(inner).find("-->") };
        if let Some(end) = end {
            return Flow::At(inner + end + 3);
        }
        if !w.last {
            self.passing = Some(Passing::Until("-->"));
            return Flow::At(inner);
        }
        // Never closed: take it for as little as may be.
        cx.note(IssueCode::ParsingError, excerpt(w.from(start)));
        self.no_comment_end = true;
        match w.from(inner).find('>') {
            Some(end) => Flow::At(inner + end + 1),
            None => Flow::At(w.rest.len()),
        }
    }

    fn instruction(&mut self, w: &Window<'_>, start: usize, cx: &mut Cx<'_>) -> Flow {
        let here = w.from(start);
        let declaration = here.starts_with("<?xml ")
            || here.starts_with("<?xml\t")
            || here.starts_with("<?xml\n");
        if declaration && w.offset(start) > 0 && !self.elements.seen_root() {
            cx.note(IssueCode::LeadingWhitespace, excerpt(w.rest));
        }
        // A declaration ends at the first `>`, with or without its `?`.
        self.passing = Some(Passing::Until(if declaration { ">" } else { "?>" }));
        Flow::At(start + 2)
    }

    fn doctype<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        start: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        let inner = start + "<!doctype".len();
        let here = w.from(inner);
        let root =
            here.trim_start().split(|c: char| c.is_whitespace() || matches!(c, '>' | '[')).next();
        visitor.doctype(root.unwrap_or_default());
        match here.find(['[', '>']) {
            Some(i) if here.as_bytes().get(i) == Some(&b'[') => {
                cx.note(IssueCode::DoctypeIgnored, excerpt(w.from(start)));
                self.passing = Some(Passing::Subset);
                Flow::At(inner + i)
            }
            Some(i) => Flow::At(inner + i + 1),
            None => {
                self.passing = Some(Passing::Until(">"));
                Flow::At(inner)
            }
        }
    }

    /// The inside of a CDATA section, given on as it comes.
    fn cdata<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        at: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        cx.place.at = w.origin.at + at;
        let inside = w.from(at);
        match CdataEnd::find(inside, self.elements.top(), w.last) {
            CdataEnd::Proper(end) => {
                self.passing = None;
                self.elements.text(inside.get(..end).unwrap_or_default(), visitor, cx);
                Flow::At(at + end + "]]>".len())
            }
            CdataEnd::Forgotten(end) => {
                self.passing = None;
                cx.note(IssueCode::ParsingError, excerpt(inside));
                self.elements.text(inside.get(..end).unwrap_or_default(), visitor, cx);
                Flow::At(at + end)
            }
            CdataEnd::Unsure => Flow::Need(at),
            CdataEnd::Beyond if w.last => {
                self.elements.text(inside, visitor, cx);
                Flow::At(w.rest.len())
            }
            CdataEnd::Beyond => {
                let safe = boundary(w.rest, w.rest.len().saturating_sub(CDATA_TAIL)).max(at);
                self.elements.text(w.rest.get(at..safe).unwrap_or_default(), visitor, cx);
                Flow::Need(safe)
            }
        }
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
}
