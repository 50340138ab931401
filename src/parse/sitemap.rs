//! Sitemaps: `urlset`, `sitemapindex`, and both in one file.
//!
//! A field counts only as a direct child of its entry, in the namespace of the
//! protocol, of the root, or in none, so that the `loc` of an image is never a
//! page. An entry is handed on at its end, at the start of the next one, or at
//! a second `loc`; at the end of a cut document only if its `loc` was closed.
//! Scope, duplicates and dates in the future are left to others.

mod entry;
mod extension;

use std::ops::ControlFlow;

use super::issue::IssueCode;
use super::xml::{Cx, Next, Ns, Tag};
use super::{Context, DocumentKind, Sink};
use entry::{Draft, Field};
use extension::Extension;

/// Bytes kept of one field; a longer one is dropped.
const MAX_FIELD: usize = 64 * 1024;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Page,
    Child,
}

/// The entry that is open.
#[derive(Debug, Clone, Copy)]
struct Open {
    kind: Kind,
    depth: usize,
}

/// The reader of sitemaps.
pub(crate) struct SitemapReader<'a, 's> {
    ctx: &'a Context<'a>,
    sink: &'a mut Sink<'s>,
    root_ns: Ns,
    open: Option<Open>,
    /// Byte at which the open entry begins.
    entry_at: u64,
    field: Option<(Field, usize)>,
    /// Byte at which the open field begins.
    field_at: u64,
    /// Inside a field, an element whose text is not the field's.
    muted: Option<usize>,
    text: String,
    oversized: bool,
    draft: Draft,
    extension: Extension,
    kind: Option<DocumentKind>,
    news_entries: usize,
    pub(crate) entries: usize,
    pub(crate) sitemaps: usize,
    /// Are there entries that were not read: cut off at a limit, or behind what hid them?
    lacks_entries: bool,
    /// Has an entry begun in the open element that nobody knows?
    holds_entry: bool,
}

impl<'a, 's> SitemapReader<'a, 's> {
    pub(crate) fn new(ctx: &'a Context<'a>, sink: &'a mut Sink<'s>) -> Self {
        Self {
            ctx,
            sink,
            root_ns: Ns::Sitemap,
            open: None,
            entry_at: 0,
            field: None,
            field_at: 0,
            muted: None,
            text: String::new(),
            oversized: false,
            draft: Draft::default(),
            extension: Extension::default(),
            kind: None,
            news_entries: 0,
            entries: 0,
            sitemaps: 0,
            lacks_entries: false,
            holds_entry: false,
        }
    }

    /// Is this the root of a sitemap, or a part of one without its root?
    pub(crate) fn is_root(local: &str, depth: usize) -> bool {
        matches!(local, "urlset" | "sitemapindex")
            || (depth == 1 && matches!(local, "url" | "sitemap"))
    }

    /// What the document turned out to be.
    pub(crate) fn kind(&self) -> DocumentKind {
        self.kind.unwrap_or(DocumentKind::Urlset)
    }

    /// Are there entries that were not read?
    pub(crate) fn lacks_entries(&self) -> bool {
        self.lacks_entries
    }

    /// Does it show a window only? A news sitemap does.
    pub(crate) fn is_window(&self) -> bool {
        self.news_entries * 2 > self.entries
    }

    pub(crate) fn start(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) -> Next {
        let core = self.is_core(tag);
        if let Some((field, at)) = self.field {
            return self.inside_field(tag, field, at, depth, core, cx);
        }
        if let Some(open) = self.open {
            return self.inside_entry(tag, open, depth, core, cx);
        }
        if !core && depth > 1 {
            return Next::Go;
        }
        if depth == 1 && self.kind.is_none() {
            // It may be an entry, where the root is missing.
            self.root_ns = tag.ns;
        }
        match tag.local {
            "urlset" | "sitemapindex" => self.root(tag, cx),
            "url" => self.begin(Kind::Page, depth, cx),
            "sitemap" => self.begin(Kind::Child, depth, cx),
            "loc" if depth == 2 => {
                // Of one entry or of all: who takes them for gone would be wrong.
                self.lacks_entries = true;
                cx.note(IssueCode::ParsingError, "a loc outside an entry");
            }
            _ if depth == 2 => cx.note(IssueCode::UnknownTag, tag.local),
            _ => {}
        }
        Next::Go
    }

    fn root(&mut self, tag: &Tag<'_>, cx: &mut Cx<'_>) {
        self.root_ns = tag.ns;
        self.holds(
            if tag.local == "urlset" { DocumentKind::Urlset } else { DocumentKind::Index },
            cx,
        );
        let odd = tag.ns != Ns::Sitemap || tag.misspells_sitemap_namespace();
        if odd && tag.declared {
            let uri = tag.attr("xmlns").unwrap_or_default();
            cx.note(IssueCode::IncorrectNamespace, if uri.is_empty() { tag.local } else { &uri });
        }
    }

    /// The document has pages, or children.
    fn holds(&mut self, kind: DocumentKind, cx: &mut Cx<'_>) {
        match self.kind {
            None => self.kind = Some(kind),
            Some(known) if known != kind && known != DocumentKind::Mixed => {
                self.kind = Some(DocumentKind::Mixed);
                cx.note(IssueCode::MixedContent, kind.as_str());
            }
            Some(_) => {}
        }
    }

    fn is_core(&self, tag: &Tag<'_>) -> bool {
        tag.ns == Ns::Sitemap || tag.ns == Ns::None || tag.ns == self.root_ns
    }

    fn begin(&mut self, kind: Kind, depth: usize, cx: &mut Cx<'_>) {
        let holds = if kind == Kind::Page { DocumentKind::Urlset } else { DocumentKind::Index };
        self.holds(holds, cx);
        self.open = Some(Open { kind, depth });
        self.entry_at = cx.place.offset();
        self.draft.clear();
        self.extension.clear();
    }

    /// A tag inside a field: transparent, unless it shows that the end tag of
    /// the field is missing, or brings text of its own.
    fn inside_field(
        &mut self,
        tag: &Tag<'_>,
        field: Field,
        at: usize,
        depth: usize,
        core: bool,
        cx: &mut Cx<'_>,
    ) -> Next {
        if self.muted.is_some() {
            return Next::Go;
        }
        let filled = !self.text.trim_ascii().is_empty();
        let sibling =
            core && (Field::of(tag.local).is_some() || matches!(tag.local, "url" | "sitemap"));
        if sibling && (filled || Field::of(tag.local).is_some_and(|f| f != field)) {
            return Next::Close(at);
        }
        if !core {
            if filled {
                return Next::Close(at);
            }
            self.muted = Some(depth);
        } else if !sibling {
            cx.note(IssueCode::UnknownTag, tag.local);
        }
        Next::Go
    }

    fn inside_entry(
        &mut self,
        tag: &Tag<'_>,
        open: Open,
        depth: usize,
        core: bool,
        cx: &mut Cx<'_>,
    ) -> Next {
        if let Some(at) = self.extension.ended_by(tag, core) {
            return Next::Close(at);
        }
        // Inside an element that nobody knows, a `url` may be anything.
        let apart = self.extension.is_skipping();
        let begins = core && matches!(tag.local, "url" | "sitemap" | "urlset" | "sitemapindex");
        if begins && !apart {
            return Next::Close(open.depth);
        }
        self.holds_entry |= begins;
        if self.extension.is_open() || !core {
            self.extension.start(tag, depth, open.depth, cx);
            return Next::Go;
        }
        if depth != open.depth + 1 {
            return Next::Go;
        }
        let Some(field) = Field::of(tag.local) else {
            cx.note(IssueCode::UnknownTag, tag.local);
            self.extension.skip(depth);
            return Next::Go;
        };
        if field == Field::Loc && self.draft.has_loc() {
            cx.note(IssueCode::DuplicateTag, tag.local);
            if self.emit(open.kind, cx).is_break() {
                return Next::Stop;
            }
            self.draft.clear();
            self.extension.clear();
            self.entry_at = cx.place.offset();
        }
        self.field = Some((field, depth));
        self.field_at = cx.place.offset();
        self.text.clear();
        self.oversized = false;
        Next::Go
    }

    pub(crate) fn text(&mut self, text: &str, cx: &mut Cx<'_>) {
        if self.field.is_some() {
            if self.muted.is_none() {
                append(&mut self.text, text, &mut self.oversized);
            }
        } else if self.extension.is_open() {
            self.extension.text(text, cx);
        } else if self.open.is_some() && !text.trim_ascii().is_empty() {
            self.draft.bare_text(text);
        }
    }

    /// Text of white space only: layout, but in a field or an extension.
    #[inline]
    pub(crate) fn blank(&mut self, text: &str, cx: &mut Cx<'_>) {
        if self.field.is_some() || self.extension.is_open() {
            self.text(text, cx);
        }
    }

    pub(crate) fn end(&mut self, depth: usize, implied: bool, cx: &mut Cx<'_>) -> ControlFlow<()> {
        if self.muted == Some(depth) {
            self.muted = None;
        }
        if let Some((field, at)) = self.field {
            if depth == at {
                self.field = None;
                self.close_field(field, cx);
            }
            return ControlFlow::Continue(());
        }
        if self.extension.is_open() {
            self.extension.end(depth, cx);
            let held = !self.extension.is_open() && std::mem::take(&mut self.holds_entry);
            if held && implied {
                // It had no end tag, so those were entries of the sitemap.
                self.lacks_entries = true;
                cx.note(IssueCode::ParsingError, "an element without its end tag hides entries");
            }
            return ControlFlow::Continue(());
        }
        match self.open {
            Some(open) if open.depth == depth => {
                self.open = None;
                self.emit(open.kind, cx)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// The document ends. What is open of an entry is given if its URL is whole.
    pub(crate) fn finish(&mut self, cx: &mut Cx<'_>) {
        self.field = None;
        if let Some(open) = self.open.take()
            && self.draft.has_loc()
        {
            self.extension.cut();
            // Nothing comes after it, so whether to stop is no question.
            let _ = self.emit(open.kind, cx);
        }
        if self.entries == 0 && self.sitemaps == 0 {
            cx.note(IssueCode::EmptySitemap, "");
        }
        self.extension.finish(cx);
    }

    /// Its defects are where it begins.
    fn close_field(&mut self, field: Field, cx: &mut Cx<'_>) {
        let end = cx.place;
        cx.place = end.back_to(self.field_at);
        if self.oversized {
            cx.note(IssueCode::OversizedMarkup, self.text.get(..80).unwrap_or_default());
            self.text.clear();
        }
        let text = std::mem::take(&mut self.text);
        self.draft.set(field, &text, self.ctx, cx);
        self.text = text;
        cx.place = end;
    }

    /// Hands on what the open entry says, if it has a URL. Its defects are where
    /// it begins.
    fn emit(&mut self, kind: Kind, cx: &mut Cx<'_>) -> ControlFlow<()> {
        let end = cx.place;
        cx.place = end.back_to(self.entry_at);
        let flow = self.hand_on(kind, cx);
        cx.place = end;
        flow
    }

    fn hand_on(&mut self, kind: Kind, cx: &mut Cx<'_>) -> ControlFlow<()> {
        if !self.draft.settle_loc(self.ctx, cx) {
            return ControlFlow::Continue(());
        }
        let (count, limit, code) = match kind {
            Kind::Page => (self.entries, self.ctx.limits.max_urls, IssueCode::TooManyUrls),
            Kind::Child => {
                (self.sitemaps, self.ctx.limits.max_sitemaps, IssueCode::TooManySitemaps)
            }
        };
        if count >= limit {
            self.lacks_entries = true;
            cx.note(code, self.draft.loc());
            return ControlFlow::Continue(());
        }
        match kind {
            Kind::Page => {
                self.entries += 1;
                self.extension.check(self.draft.loc(), cx);
                self.news_entries += usize::from(self.extension.has_news());
            }
            Kind::Child => self.sitemaps += 1,
        }
        self.draft.give(kind == Kind::Child, cx.place, &mut self.extension, self.sink)
    }
}

/// Adds to a bounded text.
fn append(to: &mut String, text: &str, oversized: &mut bool) {
    if to.len() + text.len() > MAX_FIELD {
        *oversized = true;
    } else {
        to.push_str(text);
    }
}
