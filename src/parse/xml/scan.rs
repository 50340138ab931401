//! Tokens of one window, shown to a visitor.
//!
//! quick-xml finds text, references and tags; declarations, comments and CDATA
//! are found here, because they may be longer than any window. Where a tag is
//! broken, the stretch that quick-xml took for it is gone through once more by
//! a simpler rule (a tag ends at the next `<` or `>`), never twice.

use std::ops::ControlFlow;

use quick_xml::events::Event;
use quick_xml::reader::Reader;

use super::super::issue::{IssueCode, Issues, Place};
use super::super::text::Text;
use super::names::Ns;
use super::stack::{Closes, Stack};
use super::{Cx, MAX_DEPTH, MAX_TAG, Next, Tag, Visitor, entities};

/// A reference is held back at the end of a window until it is whole.
const LONGEST_REFERENCE: usize = 16;
/// Of an open CDATA section, what may be the start of its end.
const CDATA_TAIL: usize = 256;
/// How often one start tag may close others before it.
const MAX_REOPENS: usize = 4;
/// HTML elements that never have an end tag; people paste them unescaped.
const VOID: [&str; 6] = ["br", "hr", "img", "input", "wbr", "meta"];

/// What a window came to.
pub(super) enum Step {
    /// So many bytes are used; go on with more.
    More(usize),
    /// So many bytes are used; the visitor wants no more.
    Stop(usize),
}

/// What is being passed over, beyond the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// Up to and with this text.
    Until(&'static str),
    /// The internal subset of a document type, up to `]>`.
    Subset,
}

/// State carried from window to window.
pub(super) struct Scan {
    stack: Stack,
    passing: Option<Passing>,
    cdata: bool,
    /// Up to this offset a tag ends at the next `<` or `>`.
    simple_until: u64,
    /// No comment ends in what is left.
    no_comment_end: bool,
    seen_root: bool,
    lost: bool,
    lower: String,
}

/// A tag by the simple rule.
enum Cut {
    /// Ends at this `>`.
    At(usize),
    /// Broken off by this `<`.
    Before(usize),
    /// Neither is in the window.
    Open,
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
            stack: Stack::new(),
            passing: None,
            cdata: false,
            simple_until: 0,
            no_comment_end: false,
            seen_root: false,
            lost: false,
            lower: String::new(),
        }
    }

    /// Is an element, a CDATA section or a comment still open?
    pub(super) fn is_open(&self) -> bool {
        self.stack.depth() > 0 || self.cdata || self.passing.is_some()
    }

    /// Was markup dropped?
    pub(super) fn lost(&self) -> bool {
        self.lost
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
            let flow = if let Some(passing) = self.passing {
                self.pass(&w, at, passing)
            } else if self.cdata {
                self.cdata(&w, at, visitor, &mut cx)
            } else {
                self.tokens(&w, at, visitor, &mut cx)
            };
            match flow {
                Flow::At(next) => at = next,
                Flow::Need(from) => return Step::More(from),
                Flow::Stop(used) => return Step::Stop(used),
            }
        }
    }

    /// Passes over what no one reads.
    fn pass(&mut self, w: &Window<'_>, at: usize, passing: Passing) -> Flow {
        let rest = w.from(at);
        let found = match passing {
            Passing::Until(end) => rest.find(end).map(|i| i + end.len()),
            Passing::Subset => subset_end(rest),
        };
        if let Some(len) = found {
            self.passing = None;
            return Flow::At(at + len);
        }
        if w.last {
            return Flow::At(w.rest.len());
        }
        let keep = match passing {
            Passing::Until(end) => end.len() - 1,
            Passing::Subset => CDATA_TAIL,
        };
        Flow::Need(boundary(w.rest, w.rest.len().saturating_sub(keep)).max(at))
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
                    self.text(text, visitor, cx);
                    continue;
                }
                Event::GeneralRef(_) => {
                    self.reference(raw(0, 0), visitor, cx);
                    continue;
                }
                Event::Start(_) | Event::Empty(_) | Event::End(_)
                    if raw(1, 1).as_bytes().contains(&b'<') =>
                {
                    if let Some(flow) = self.broken(w, start, end, cx) {
                        return flow;
                    }
                    self.tag(raw(1, 1), visitor, cx)
                }
                Event::Start(_) | Event::Empty(_) => self.tag(raw(1, 1), visitor, cx),
                Event::End(_) => self.end(raw(2, 1), visitor, cx),
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
        cx.note(IssueCode::UnescapedCharacter, &excerpt(w.from(start)));
        self.text(w.rest.get(start..end).unwrap_or_default(), visitor, cx);
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
        let mut quote = None;
        for b in before.bytes().filter(|b| matches!(b, b'"' | b'\'')) {
            match quote {
                None => quote = Some(b),
                Some(open) if open == b => quote = None,
                Some(_) => {}
            }
        }
        if quote.is_some() && !before.contains('>') {
            cx.note(IssueCode::UnescapedCharacter, &excerpt(raw));
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
        let (end, next) = match cut(w.rest, start) {
            Cut::At(end) => (end, end + 1),
            Cut::Before(end) => {
                cx.note(IssueCode::ParsingError, &excerpt(w.from(start)));
                (end, end)
            }
            Cut::Open if !w.full(start) => return Flow::Need(start),
            Cut::Open => return self.open_tag(w, start, visitor, cx),
        };
        let raw = w.rest.get(start + 1..end).unwrap_or_default();
        let flow = match raw.strip_prefix('/') {
            Some(name) => self.end(name, visitor, cx),
            None => self.tag(raw, visitor, cx),
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
            cx.note(IssueCode::OversizedMarkup, &excerpt(w.from(start)));
            self.passing = Some(Passing::Until(">"));
            return Flow::At(start);
        }
        if self.stack.depth() == 0 {
            cx.note(IssueCode::ParsingError, &excerpt(w.from(start)));
        }
        // The start of an end tag: what it would have closed is whole.
        if w.from(start).starts_with("</") && self.stack.overflow == 0 && self.stack.depth() > 0 {
            let depth = self.stack.depth();
            let _ = visitor.end(depth, true, cx);
            self.stack.pop();
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
            self.cdata = true;
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
        cx.note(IssueCode::ParsingError, &excerpt(w.from(start)));
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
        if declaration && w.offset(start) > 0 && !self.seen_root {
            cx.note(IssueCode::LeadingWhitespace, &excerpt(w.rest));
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
                cx.note(IssueCode::DoctypeIgnored, &excerpt(w.from(start)));
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

    /// The inside of a CDATA section. It ends at `]]>`, or at the end tag of
    /// the element that it is in, where people forget to close it.
    fn cdata<V: Visitor>(
        &mut self,
        w: &Window<'_>,
        at: usize,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> Flow {
        cx.place.at = w.origin.at + at;
        let inside = w.from(at);
        let mut from = 0;
        while let Some(close) = inside.get(from..).and_then(|s| s.find('>')).map(|i| from + i) {
            let before = inside.get(..close).unwrap_or_default();
            if let Some(content) = before.strip_suffix("]]") {
                self.cdata = false;
                self.text(content, visitor, cx);
                return Flow::At(at + close + 1);
            }
            let content = before.trim_ascii_end().strip_suffix(self.stack.top());
            if let Some(content) = content.and_then(|c| c.strip_suffix("</")) {
                self.cdata = false;
                cx.note(IssueCode::ParsingError, &excerpt(inside));
                self.text(content, visitor, cx);
                return Flow::At(at + content.len());
            }
            from = close + 1;
        }
        if w.last {
            self.text(inside, visitor, cx);
            return Flow::At(w.rest.len());
        }
        let safe = boundary(w.rest, w.rest.len().saturating_sub(CDATA_TAIL)).max(at);
        if safe == at {
            return Flow::Need(at);
        }
        self.text(w.rest.get(at..safe).unwrap_or_default(), visitor, cx);
        Flow::Need(safe)
    }

    fn text<V: Visitor>(&mut self, text: &str, visitor: &mut V, cx: &mut Cx<'_>) {
        if self.stack.overflow > 0 {
            return;
        }
        if self.stack.depth() > 0 {
            visitor.text(text, cx);
        } else if !text.trim_ascii().is_empty() {
            let code = if self.seen_root {
                IssueCode::TrailingContent
            } else {
                IssueCode::LeadingWhitespace
            };
            cx.note(code, text);
        }
    }

    fn reference<V: Visitor>(&mut self, raw: &str, visitor: &mut V, cx: &mut Cx<'_>) {
        let name = raw.get(1..raw.len() - 1).unwrap_or_default();
        if let Some(c) = entities::resolve(name) {
            self.text(c.encode_utf8(&mut [0; 4]), visitor, cx);
            return;
        }
        let like_a_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'#');
        let code =
            if like_a_name { IssueCode::UnknownEntity } else { IssueCode::UnescapedCharacter };
        cx.note(code, raw);
        self.text(raw, visitor, cx);
    }

    /// A start tag, without its angle brackets.
    fn tag<V: Visitor>(&mut self, raw: &str, visitor: &mut V, cx: &mut Cx<'_>) -> ControlFlow<()> {
        let (raw, empty) = raw.strip_suffix('/').map_or((raw, false), |raw| (raw, true));
        let name_end =
            raw.bytes().position(|b| b.is_ascii_whitespace() || b == b'/').unwrap_or(raw.len());
        let (name, raw_attributes) = raw.split_at(name_end);
        if self.stack.depth() >= MAX_DEPTH {
            cx.note(IssueCode::TooDeep, name);
            self.lost = true;
            self.stack.overflow += usize::from(!empty);
            return ControlFlow::Continue(());
        }
        self.seen_root = true;
        let (prefix, local) = match name.split_once(':') {
            Some((prefix, local)) => (Some(prefix), local),
            None => (None, name),
        };
        let mut lower = std::mem::take(&mut self.lower);
        lower.clear();
        if local.bytes().any(|b| b.is_ascii_uppercase()) {
            lower.push_str(local);
            lower.make_ascii_lowercase();
        }
        let local = if lower.is_empty() { local } else { lower.as_str() };
        let flow = self.open(
            Tag { local, ns: Ns::None, prefix, declared: true, raw_attributes },
            visitor,
            cx,
        );
        let void = prefix.is_none() && VOID.contains(&local);
        self.lower = lower;
        flow?;
        self.stack.push(name);
        if empty || void {
            self.close_to(self.stack.depth() - 1, true, visitor, cx)
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Resolves the tag and shows it, closing first what the visitor wants.
    fn open<V: Visitor>(
        &mut self,
        mut tag: Tag<'_>,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<()> {
        for _ in 0..MAX_REOPENS {
            let depth = self.stack.depth() + 1;
            if tag.raw_attributes.contains("xmlns") {
                self.declare(&tag, depth);
            }
            (tag.ns, tag.declared) = self.stack.resolve(tag.prefix);
            if !tag.declared {
                cx.note(IssueCode::IncorrectNamespace, tag.prefix.unwrap_or_default());
            }
            match visitor.start(&tag, depth, cx) {
                Next::Go => break,
                Next::Stop => return ControlFlow::Break(()),
                Next::Close(to) => {
                    self.stack.scopes.leave(depth);
                    cx.note(IssueCode::MismatchedTag, tag.local);
                    self.close_to(to.saturating_sub(1), false, visitor, cx)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn declare(&mut self, tag: &Tag<'_>, depth: usize) {
        for (name, uri) in tag.attributes() {
            if name == "xmlns" {
                self.stack.scopes.bind("", uri, depth);
            } else if let Some(prefix) = name.strip_prefix("xmlns:") {
                self.stack.scopes.bind(prefix, uri, depth);
            }
        }
    }

    /// An end tag, without its brackets and slash.
    fn end<V: Visitor>(&mut self, raw: &str, visitor: &mut V, cx: &mut Cx<'_>) -> ControlFlow<()> {
        let name = raw.split_ascii_whitespace().next().unwrap_or_default();
        match self.stack.closes(name) {
            Closes::Top => self.close_to(self.stack.depth() - 1, true, visitor, cx),
            Closes::At(depth) => {
                cx.note(IssueCode::MismatchedTag, name);
                self.stack.overflow = 0;
                self.close_to(depth, false, visitor, cx)?;
                self.close_to(depth - 1, true, visitor, cx)
            }
            Closes::Nothing if self.stack.overflow > 0 => {
                self.stack.overflow -= 1;
                ControlFlow::Continue(())
            }
            Closes::Nothing => {
                cx.note(IssueCode::MismatchedTag, name);
                ControlFlow::Continue(())
            }
        }
    }

    /// Closes elements until `depth` are open; the outermost of them by its
    /// own end tag when `own`.
    fn close_to<V: Visitor>(
        &mut self,
        depth: usize,
        own: bool,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<()> {
        while self.stack.depth() > depth {
            let at = self.stack.depth();
            self.stack.pop();
            visitor.end(at, !(own && at == depth + 1), cx)?;
        }
        ControlFlow::Continue(())
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

fn is_name_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b == b':' || b >= 0x80
}

/// The end of a tag by the simple rule.
fn cut(rest: &str, start: usize) -> Cut {
    let from = start + 1;
    let found = rest.get(from..).and_then(|s| s.find(['<', '>'])).map(|i| from + i);
    match found {
        Some(i) if rest.as_bytes().get(i) == Some(&b'<') => Cut::Before(i),
        Some(i) => Cut::At(i),
        None => Cut::Open,
    }
}

/// Where `]`, blanks and `>` end.
fn subset_end(text: &str) -> Option<usize> {
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

/// The character boundary at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or_default()
}

/// The start of a token, for a sample.
fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}
