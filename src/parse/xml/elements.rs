//! Elements out of tags: what a tag opens and what it closes.
//!
//! Keeps the stack that quick-xml is told not to keep, bounds its depth, puts
//! names into namespaces and closes what people forgot to close.

use std::ops::ControlFlow;

use super::super::issue::IssueCode;
use super::bounds::excerpt;
use super::names::Ns;
use super::stack::{Closes, Stack};
use super::{Cx, MAX_DEPTH, Next, Tag, Visitor, entities};

/// No reference of the table is longer.
pub(super) const LONGEST_REFERENCE: usize = 16;
/// How often one start tag may close others before it.
const MAX_REOPENS: usize = 4;
/// Roots of sitemaps, and of parts of one without its root.
const SITEMAP_ROOTS: [&str; 4] = ["urlset", "sitemapindex", "url", "sitemap"];

/// The elements of a document as they open and close.
pub(super) struct Elements {
    stack: Stack,
    seen_root: bool,
    /// Something was too deep to be read.
    lost: bool,
    /// A name in lower case.
    lower: String,
}

impl Elements {
    pub(super) fn new() -> Self {
        Self { stack: Stack::new(), seen_root: false, lost: false, lower: String::new() }
    }

    /// How many elements are open.
    pub(super) fn depth(&self) -> usize {
        self.stack.depth()
    }

    /// Is an element open that is not behind the document?
    pub(super) fn is_open(&self) -> bool {
        self.stack.depth() > self.stack.behind || self.stack.overflow > 0
    }

    /// The name of the innermost open element.
    #[inline]
    pub(super) fn top(&self) -> &str {
        self.stack.top()
    }

    /// The name of the root, without its prefix, while it is open.
    pub(super) fn root(&self) -> Option<&str> {
        self.stack.root()
    }

    pub(super) fn seen_root(&self) -> bool {
        self.seen_root
    }

    pub(super) fn lost(&self) -> bool {
        self.lost
    }

    /// Would an end tag of this name close something?
    pub(super) fn closes(&self, name: &str) -> bool {
        self.stack.overflow == 0 && self.stack.closes(name) != Closes::Nothing
    }

    /// The document ends in an end tag: what it would have closed is whole.
    pub(super) fn close_innermost<V: Visitor>(
        &mut self,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<()> {
        if self.stack.overflow > 0 || self.stack.depth() == 0 {
            return ControlFlow::Continue(());
        }
        let depth = self.stack.depth();
        self.stack.pop();
        visitor.end(depth, true, cx)
    }

    /// White space only.
    #[inline]
    pub(super) fn blank<V: Visitor>(&mut self, text: &str, visitor: &mut V, cx: &mut Cx<'_>) {
        if self.stack.depth() > 0 && self.stack.overflow == 0 {
            visitor.blank(text, cx);
        }
    }

    #[inline]
    pub(super) fn text<V: Visitor>(&mut self, text: &str, visitor: &mut V, cx: &mut Cx<'_>) {
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

    /// Text with a `&` in it.
    pub(super) fn references<V: Visitor>(&mut self, text: &str, visitor: &mut V, cx: &mut Cx<'_>) {
        let mut rest = text;
        while let Some(amp) = rest.find('&') {
            let (before, from) = rest.split_at(amp);
            if !before.is_empty() {
                self.text(before, visitor, cx);
            }
            let ends = |b: &u8| matches!(b, b';' | b'&');
            let inner = from.as_bytes().get(1..).unwrap_or_default();
            let end = inner.iter().take(LONGEST_REFERENCE).position(ends).map(|i| i + 1);
            let len = match end {
                Some(end) if from.as_bytes().get(end) == Some(&b';') => {
                    let (raw, after) = from.split_at(end + 1);
                    self.reference(raw, after, visitor, cx)
                }
                _ => {
                    cx.note(IssueCode::UnescapedCharacter, excerpt(from));
                    self.text("&", visitor, cx);
                    1
                }
            };
            rest = from.get(len..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.text(rest, visitor, cx);
        }
    }

    /// A reference and what follows it; gives the bytes that it takes.
    fn reference<V: Visitor>(
        &mut self,
        raw: &str,
        after: &str,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> usize {
        let name = raw.get(1..raw.len() - 1).unwrap_or_default();
        if let Some(c) = entities::resolve(name) {
            self.text(c.encode_utf8(&mut [0; 4]), visitor, cx);
            return raw.len();
        }
        if entities::is_no_character(name) {
            cx.note(IssueCode::UnknownEntity, raw);
            // As it is written it would begin a fragment in a URL, and make one of many.
            let (c, more) = entities::pair(name, after).unwrap_or((char::REPLACEMENT_CHARACTER, 0));
            self.text(c.encode_utf8(&mut [0; 4]), visitor, cx);
            return raw.len() + more;
        }
        let like_a_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'#');
        let code =
            if like_a_name { IssueCode::UnknownEntity } else { IssueCode::UnescapedCharacter };
        cx.note(code, raw);
        self.text(raw, visitor, cx);
        raw.len()
    }

    /// A start tag that is a name without prefix and capital letters.
    #[inline]
    pub(super) fn simple_tag<V: Visitor>(
        &mut self,
        name: &str,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<()> {
        if self.stack.depth() >= MAX_DEPTH {
            return self.tag(name, "", false, visitor, cx);
        }
        self.seen_root = true;
        let tag =
            Tag { local: name, ns: Ns::None, prefix: None, declared: true, raw_attributes: "" };
        self.open(tag, visitor, cx)?;
        self.stack.push(name);
        ControlFlow::Continue(())
    }

    /// A start tag: its name, the rest of it, and whether it is all of its element.
    pub(super) fn tag<V: Visitor>(
        &mut self,
        name: &str,
        raw_attributes: &str,
        empty: bool,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<()> {
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
        self.lower = lower;
        flow?;
        self.stack.push(name);
        if empty {
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
            if depth == self.stack.behind + 1 && visitor.is_behind(&tag) {
                if depth == 1 {
                    cx.note(IssueCode::TrailingContent, tag.local);
                }
                self.stack.behind = depth;
                break;
            }
            if !tag.raw_attributes.is_empty() && tag.raw_attributes.contains("xmlns") {
                self.declare(&tag, depth, cx);
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

    fn declare(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) {
        let root = self.stack.root().unwrap_or(tag.local);
        let sitemap = SITEMAP_ROOTS.iter().any(|known| known.eq_ignore_ascii_case(root));
        for (name, uri) in tag.attributes() {
            let prefix = if name == "xmlns" { Some("") } else { name.strip_prefix("xmlns:") };
            let Some(prefix) = prefix else { continue };
            if !self.stack.scopes.bind(prefix, uri, depth, sitemap) {
                cx.note(IssueCode::IncorrectNamespace, uri);
            }
        }
    }

    /// The end tag of the innermost element, of which there is one.
    #[inline]
    pub(super) fn end_top<V: Visitor>(
        &mut self,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<()> {
        if self.stack.overflow > 0 {
            let name = self.stack.top().to_owned();
            return self.end(&name, visitor, cx);
        }
        let depth = self.stack.depth();
        self.stack.pop();
        visitor.end(depth, false, cx)
    }

    /// An end tag, without its brackets and slash.
    pub(super) fn end<V: Visitor>(
        &mut self,
        raw: &str,
        visitor: &mut V,
        cx: &mut Cx<'_>,
    ) -> ControlFlow<()> {
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
