//! Feeds in XML: RSS 0.9x, 1.0 (RDF) and 2.0, Atom 0.3 and 1.0.
//!
//! An item yields an entry when one of its links is an absolute http or https
//! URL; which link counts is decided in [`item`]. A link, date or title counts
//! only as a direct child of its item, so that an image's or a source's never
//! leaks in. An item is handed on at its end or at the start of the next; at
//! the end of a cut document only if its link was closed.

mod hints;
mod item;
mod tombstone;

use std::ops::ControlFlow;

use url::Url;

use super::issue::IssueCode;
use super::xml::{Cx, Next, Ns, Tag};
use super::{Context, DocumentKind, Hints, Sink, loc};
use hints::Hint;
use hints::absolute;
pub(crate) use hints::{of_document, relation};
use item::{Field, Item, LinkTag};
use tombstone::Tombstones;

/// Bytes kept of one field that is more than hashed.
const MAX_FIELD: usize = 64 * 1024;

/// What an open element means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Item(Field),
    Feed(Hint),
}

/// What tells an item that is part of the open one from the next one.
#[derive(Default)]
struct Nesting {
    /// Has an element of another vocabulary begun in the open child of the item?
    in_foreign: bool,
    /// Is the open field XML of its own, which may hold items?
    inline: bool,
    /// Was there text since the last tag?
    has_text: bool,
    /// Depth of the child of another vocabulary whose start tag was the last one.
    begun: Option<usize>,
    /// Depth of the open one that began with text: it holds no field of the item.
    said: Option<usize>,
}

/// The reader of feeds.
pub(crate) struct FeedReader<'a, 's> {
    ctx: &'a Context<'a>,
    sink: &'a mut Sink<'s>,
    kind: DocumentKind,
    root_ns: Ns,
    /// That of the channel; of RDF without one, that of its first item.
    channel_ns: Option<Ns>,
    /// `xml:base` in force, with the depth of the element that carries it.
    bases: Vec<(usize, Url)>,
    item_depth: Option<usize>,
    /// Byte at which the open item begins.
    item_at: u64,
    item: Item,
    /// Depth of the innermost of the leaves (`link`, `enclosure` and the like)
    /// that are open in the item, one in the other. More than one is open only
    /// where end tags are missing.
    leaf: Option<usize>,
    nesting: Nesting,
    tombstones: Tombstones,
    /// Depth of the open `at:deleted-entry`.
    tombstone_depth: Option<usize>,
    field: Option<(Role, usize)>,
    /// Byte at which the open field begins.
    field_at: u64,
    text: String,
    oversized: bool,
    pub(crate) hints: Hints,
    schedule: hints::Schedule,
    pub(crate) entries: usize,
    /// Is there something that was not handed on: over the limit, or unwanted?
    lacks_entries: bool,
}

impl<'a, 's> FeedReader<'a, 's> {
    /// The kind of feed that a root element begins, if it is one.
    pub(crate) fn root(tag: &Tag<'_>, depth: usize) -> Option<DocumentKind> {
        Some(match tag.local {
            "rss" => DocumentKind::Rss,
            "rdf" => DocumentKind::Rdf,
            "feed" => DocumentKind::Atom,
            "channel" | "item" if depth == 1 => DocumentKind::Rss,
            "entry" if depth == 1 => DocumentKind::Atom,
            _ => return None,
        })
    }

    pub(crate) fn new(
        kind: DocumentKind,
        root_ns: Ns,
        ctx: &'a Context<'a>,
        sink: &'a mut Sink<'s>,
    ) -> Self {
        Self {
            ctx,
            sink,
            kind,
            root_ns,
            channel_ns: None,
            bases: Vec::new(),
            item_depth: None,
            item_at: 0,
            item: Item::default(),
            leaf: None,
            nesting: Nesting::default(),
            tombstones: Tombstones::default(),
            tombstone_depth: None,
            field: None,
            field_at: 0,
            text: String::new(),
            oversized: false,
            hints: Hints::default(),
            schedule: hints::Schedule::default(),
            entries: 0,
            lacks_entries: false,
        }
    }

    /// What the document turned out to be.
    pub(crate) fn kind(&self) -> DocumentKind {
        self.kind
    }

    /// Is there something that was not handed on?
    pub(crate) fn lacks_entries(&self) -> bool {
        self.lacks_entries
    }

    /// Is this an element of the feed's own vocabulary?
    fn is_core(&self, ns: Ns) -> bool {
        let known = if self.kind == DocumentKind::Atom { Ns::Atom } else { Ns::Rss };
        let said = ns == self.root_ns || Some(ns) == self.channel_ns;
        said || ns == Ns::None || ns == known
    }

    /// A channel or item may declare the namespace of the feed instead of the root.
    fn learn_namespace(&mut self, tag: &Tag<'_>, depth: usize) {
        let first_item = self.kind == DocumentKind::Rdf && depth == 2 && tag.local == "item";
        let is_rss = self.kind != DocumentKind::Atom && tag.ns != Ns::Undeclared;
        if is_rss && (tag.local == "channel" || first_item) {
            self.channel_ns = Some(tag.ns);
        }
    }

    /// Is an item at this depth part of what the open one says? Not where end tags
    /// are missing: right behind text, or in an element that holds none; nor in RSS, where a
    /// missing end tag is likelier than an item in another.
    fn is_nested(&self, depth: usize, had_text: bool) -> bool {
        let Some(item_depth) = self.item_depth else { return false };
        let nesting = &self.nesting;
        let holds = match self.field {
            Some(_) => nesting.inline && !had_text,
            None => self.kind == DocumentKind::Atom && (nesting.in_foreign || !had_text),
        };
        holds && depth > item_depth + 1 && self.leaf != Some(depth - 1)
    }

    pub(crate) fn start(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) -> Next {
        if self.channel_ns.is_none() && self.item_depth.is_none() {
            self.learn_namespace(tag, depth);
        }
        let core = self.is_core(tag.ns);
        let is_tombstone = tombstone::is_one(tag);
        let is_item = core && matches!(tag.local, "item" | "entry") || is_tombstone;
        let had_text = std::mem::take(&mut self.nesting.has_text);
        self.nesting.begun = None;
        let is_next = is_item && !self.is_nested(depth, had_text);
        if let Some((role, at)) = self.field {
            let closes = match role {
                Role::Item(field) => {
                    let is_sibling = core && depth == at + 1 && !self.nesting.inline;
                    let is_foreign = !core && depth == at + 1 && !self.nesting.inline;
                    is_next
                        || is_sibling && field.ends_before(tag, self.kind)
                        || is_foreign && field.ends_before_foreign(tag, self.kind)
                }
                Role::Feed(_) => is_item,
            };
            if closes {
                return Next::Close(at);
            }
        }
        if let Some(item_depth) = self.item_depth {
            if is_next {
                return Next::Close(item_depth);
            }
            if depth == item_depth + 1 {
                self.nesting.in_foreign = false;
            }
            self.nesting.in_foreign |= !core;
            let holds_none = |open: Option<usize>| open.is_some_and(|open| depth == open + 1);
            if (holds_none(self.leaf) || holds_none(self.nesting.said))
                && item::ends_leaf(tag, self.kind, core)
            {
                return Next::Close(item_depth + 1);
            }
        }
        if let Some(at) = self.tombstone_depth.filter(|_| is_item) {
            return Next::Close(at);
        }
        self.push_base(tag, depth, cx);
        if self.field.is_some() {
            return Next::Go;
        }
        if let Some(item_depth) = self.item_depth {
            if depth == item_depth + 1 {
                self.item_child(tag, depth, core, cx);
                self.nesting.begun = (!core && self.field.is_none()).then_some(depth);
            }
            let inside = self.leaf.unwrap_or(item_depth);
            if self.field.is_none()
                && depth == inside + 1
                && item::is_leaf(tag, core || tag.ns == Ns::Atom)
            {
                self.leaf = Some(depth);
            }
        } else if let Some(at) = self.tombstone_depth {
            if depth == at + 1 && tag.local == "link" && (core || tag.ns == Ns::Atom) {
                let base = in_force(&self.bases, self.ctx);
                self.tombstones.link(&LinkTag::of(tag), base, self.ctx.limits.max_url_chars);
            }
        } else if is_tombstone {
            self.tombstone_depth = Some(depth);
            let base = in_force(&self.bases, self.ctx);
            self.tombstones.open(tag, base, self.ctx.limits.max_url_chars, cx);
        } else if is_item {
            self.item_depth = Some(depth);
            self.item_at = cx.place.offset();
            self.item.clear();
            self.leaf = None;
            if self.kind == DocumentKind::Rdf
                && let Some(about) = tag.local_attr("about")
            {
                let base = in_force(&self.bases, self.ctx);
                self.item.about(&about, base, self.ctx.limits.max_url_chars, cx);
            }
        } else {
            self.feed_child(tag, depth, core, cx);
        }
        Next::Go
    }

    fn push_base(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) {
        let Some(value) = tag.attr("xml:base") else { return };
        match loc::base(&value, in_force(&self.bases, self.ctx)) {
            Ok(base) => self.bases.extend(base.map(|base| (depth, base))),
            Err(code) => cx.note(code, &value),
        }
    }

    fn item_child(&mut self, tag: &Tag<'_>, depth: usize, core: bool, cx: &mut Cx<'_>) {
        let link = (tag.local == "link" && (core || tag.ns == Ns::Atom)).then(|| LinkTag::of(tag));
        let field = match link {
            Some(link) if link.has_href() => {
                let base = in_force(&self.bases, self.ctx);
                self.item.link(&link, base, self.ctx.limits.max_url_chars, cx);
                return;
            }
            Some(link) => link.text_field(self.kind, tag.ns),
            None => Field::of(tag, self.kind, core),
        };
        if let Some(field) = field {
            self.open_field(Role::Item(field), depth, cx);
            self.nesting.inline = item::is_inline(tag);
        }
    }

    fn feed_child(&mut self, tag: &Tag<'_>, depth: usize, core: bool, cx: &mut Cx<'_>) {
        if tag.local == "link" && (core || tag.ns == Ns::Atom) && depth <= 3 {
            hints::link(tag, in_force(&self.bases, self.ctx), &mut self.hints, cx);
        } else if let Some(hint) = Hint::of(tag, core) {
            self.open_field(Role::Feed(hint), depth, cx);
        }
    }

    fn open_field(&mut self, role: Role, depth: usize, cx: &Cx<'_>) {
        self.field = Some((role, depth));
        self.field_at = cx.place.offset();
        self.text.clear();
        self.oversized = false;
        if let Role::Item(field) = role {
            self.item.begin(field);
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.nesting.has_text = true;
        if let Some(depth) = self.nesting.begun.take() {
            self.nesting.said = Some(depth);
        }
        self.blank(text);
    }

    /// Text of white space only.
    pub(crate) fn blank(&mut self, text: &str) {
        match self.field {
            Some((Role::Item(Field::Hashed), _)) => self.item.hash(text),
            Some(_) if self.text.len() + text.len() > MAX_FIELD => self.oversized = true,
            Some(_) => self.text.push_str(text),
            None => {}
        }
    }

    pub(crate) fn end(&mut self, depth: usize, cx: &mut Cx<'_>) -> ControlFlow<()> {
        self.nesting.has_text = false;
        self.nesting.begun = None;
        if self.nesting.said.is_some_and(|open| open >= depth) {
            self.nesting.said = None;
        }
        if let Some((role, at)) = self.field
            && at == depth
        {
            self.field = None;
            let end = cx.place;
            cx.place = end.back_to(self.field_at);
            self.close_field(role, cx);
            cx.place = end;
        }
        let mut flow = ControlFlow::Continue(());
        if self.tombstone_depth == Some(depth) {
            self.tombstone_depth = None;
            self.tombstones.close(cx);
        }
        if self.leaf == Some(depth) {
            // Up to the outermost, what is around a leaf is one too.
            let outer = self.item_depth.is_some_and(|item| depth > item + 1);
            self.leaf = outer.then(|| depth - 1);
        }
        if self.item_depth == Some(depth) {
            self.item_depth = None;
            flow = self.emit(cx);
        }
        while self.bases.last().is_some_and(|(at, _)| *at >= depth) {
            self.bases.pop();
        }
        flow
    }

    fn close_field(&mut self, role: Role, cx: &mut Cx<'_>) {
        if self.oversized {
            cx.note(IssueCode::OversizedMarkup, self.text.get(..80).unwrap_or_default());
            return;
        }
        match role {
            Role::Item(field) => {
                let base = in_force(&self.bases, self.ctx);
                self.item.set(field, &self.text, base, self.ctx.limits.max_url_chars, cx);
            }
            Role::Feed(hint) => self.schedule.set(hint, self.text.trim(), &mut self.hints, cx),
        }
    }

    /// Hands on the open item. Its defects are where it begins.
    fn emit(&mut self, cx: &mut Cx<'_>) -> ControlFlow<()> {
        let end = cx.place;
        cx.place = end.back_to(self.item_at);
        let flow = self.hand_on(cx);
        cx.place = end;
        flow
    }

    fn hand_on(&mut self, cx: &mut Cx<'_>) -> ControlFlow<()> {
        if !self.item.has_link() {
            cx.note(IssueCode::MissingTag, "link");
            return ControlFlow::Continue(());
        }
        if self.entries >= self.ctx.limits.max_urls {
            self.lacks_entries = true;
            cx.note(IssueCode::TooManyUrls, self.item.loc());
            return ControlFlow::Continue(());
        }
        self.entries += 1;
        self.tombstones.entry(self.item.id(), self.item.loc(), self.item.date());
        self.item.give(cx.place, self.sink)
    }

    /// The document ends. What is open of an item is given if its link is whole.
    pub(crate) fn finish(&mut self, cx: &mut Cx<'_>) {
        self.field = None;
        if self.item_depth.take().is_some() && self.item.has_link() {
            // Nothing comes after it, so whether to stop is no question.
            let _ = self.emit(cx);
        }
        self.tombstones.close(cx);
        if self.entries == 0 && self.tombstones.is_empty() {
            cx.note(IssueCode::EmptySitemap, "");
        }
        self.lacks_entries |= self.tombstones.give(self.sink).is_break();
        self.schedule.finish(&mut self.hints);
    }
}

/// The innermost `xml:base`, else where the document came from.
fn in_force<'b>(bases: &'b [(usize, Url)], ctx: &'b Context<'_>) -> &'b Url {
    bases.last().map_or(ctx.base, |(_, base)| base)
}

#[cfg(test)]
mod tests;
