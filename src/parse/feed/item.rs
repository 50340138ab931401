//! One item of a feed while it is being read, and which of its links counts.
//!
//! RSS: `feedburner:origLink`, the text of `link`, an Atom link that is an
//! alternate, an absolute `guid` that is a permalink, `rdf:about`, and last a
//! `guid` that is none but a URL of the feed's own host (`WordPress` writes these).
//! Atom: an alternate that is HTML or untyped, any other, an absolute `id`.
//! Enclosures, comments and links of other relations never count.

use std::ops::ControlFlow;

use url::Url;

use crate::date;
use crate::model::Lastmod;
use crate::parse::digest::Digest;
use crate::parse::issue::{IssueCode, Place};
use crate::parse::xml::{Cx, Ns, Tag};
use crate::parse::{DocumentKind, Entry, Sink, loc};

/// How much a link is wanted; the lowest wins, of equal ones the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Original,
    Link,
    Alternate,
    TypedAlternate,
    Identifier,
    About,
    /// A `guid` said not to be a permalink, but a URL of the feed's own host.
    Guess,
}

/// What a direct child of an item means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// A URL as text.
    Link(Rank),
    /// An identifier that is a URL only if it is an absolute one.
    Identifier,
    /// A `guid` with `isPermaLink="false"`.
    NoPermalink,
    /// When it was published; the lower the number the better the source.
    Published(u8),
    /// When it was updated.
    Updated(u8),
    /// The title; hashed, and a leaf.
    Title,
    /// Any other text; only hashed.
    Hashed,
}

impl Field {
    /// The field that a tag begins, links with `href` apart. `core` says that it
    /// is of the feed's own vocabulary.
    pub(super) fn of(tag: &Tag<'_>, kind: DocumentKind, core: bool) -> Option<Self> {
        let atom = tag.ns == Ns::Atom || (core && kind == DocumentKind::Atom);
        let rss = core && kind != DocumentKind::Atom;
        Some(match (tag.local, tag.ns) {
            ("guid", _) if rss => {
                let permalink =
                    tag.attr("isPermaLink").is_none_or(|v| !v.trim().eq_ignore_ascii_case("false"));
                if permalink { Self::Identifier } else { Self::NoPermalink }
            }
            ("id", _) if atom => Self::Identifier,
            ("origlink", Ns::FeedBurner) => Self::Link(Rank::Original),
            ("pubdate", _) if rss => Self::Published(0),
            // RSS has no such elements, but people write them without a prefix.
            ("published", _) if atom || rss => Self::Published(1),
            ("issued", _) if atom => Self::Published(2),
            ("issued", Ns::DcTerms) => Self::Published(3),
            ("date", Ns::Dc) => Self::Published(4),
            ("created", Ns::DcTerms) => Self::Published(5),
            ("created", _) if atom => Self::Published(6),
            ("updated", _) if atom || rss => Self::Updated(0),
            ("modified", _) if atom => Self::Updated(1),
            ("modified", Ns::DcTerms) => Self::Updated(2),
            ("title", _) if core || atom => Self::Title,
            ("description" | "summary" | "content", _) if core || atom => Self::Hashed,
            ("encoded", Ns::Content) => Self::Hashed,
            _ => return None,
        })
    }

    /// Does the start of this sibling show that the end tag is missing?
    pub(super) fn ends_before(self, tag: &Tag<'_>, kind: DocumentKind) -> bool {
        match self {
            Self::Hashed => match tag.local {
                "guid" | "pubdate" | "updated" | "published" | "id" => true,
                "link" => is_own_link(tag, kind),
                _ => false,
            },
            _ => is_child(tag.local),
        }
    }

    /// Does the start of this element of another vocabulary show that the end tag is missing?
    pub(super) fn ends_before_foreign(self, tag: &Tag<'_>, kind: DocumentKind) -> bool {
        match self {
            // These may hold markup, and a date or link of the item is none.
            Self::Title | Self::Hashed => {
                !matches!(Self::of(tag, kind, false), None | Some(Self::Title | Self::Hashed))
            }
            _ => true,
        }
    }
}

/// Is this `link` the item's, and none of HTML pasted into a text? Those have
/// attributes, and lead to style sheets and the like.
fn is_own_link(tag: &Tag<'_>, kind: DocumentKind) -> bool {
    match kind {
        DocumentKind::Atom => LinkTag::of(tag).alternate().is_some(),
        _ => tag.attributes().next().is_none(),
    }
}

/// Is this content XML of another kind, which may be a feed (RFC 4287 section 4.1.3)?
pub(super) fn is_inline(tag: &Tag<'_>) -> bool {
    let kind = || tag.attr("type").unwrap_or_default().to_ascii_lowercase();
    let is_xml = |kind: &str| {
        kind == "xml" || kind.split_once('/').is_some_and(|(_, kind)| kind.contains("xml"))
    };
    tag.local == "content" && is_xml(kind().trim())
}

/// Is this a child that items of the feed's own vocabulary have?
fn is_child(local: &str) -> bool {
    matches!(
        local,
        "title"
            | "link"
            | "guid"
            | "pubdate"
            | "description"
            | "category"
            | "id"
            | "updated"
            | "published"
            | "summary"
            | "content"
            | "author"
            | "comments"
            | "enclosure"
            | "source"
    )
}

/// Is this a child of an item that says all it says in its attributes? `own`
/// says that it is of the feed's own vocabulary or of Atom's.
pub(super) fn is_leaf(tag: &Tag<'_>, own: bool) -> bool {
    if own {
        return matches!(tag.local, "link" | "enclosure" | "category");
    }
    // A foreign element without an address may hold anything, whole entries too.
    tag.attributes().any(|(name, _)| {
        let local = name.split_once(':').map_or(name, |(_, local)| local);
        ["url", "href", "resource"].iter().any(|known| known.eq_ignore_ascii_case(local))
    })
}

/// Does the start of this tag inside a leaf show that the leaf's end tag is missing?
pub(super) fn ends_leaf(tag: &Tag<'_>, kind: DocumentKind, core: bool) -> bool {
    let own = core || tag.ns == Ns::Atom;
    own && is_child(tag.local) || Field::of(tag, kind, core).is_some()
}

/// A `link` element by its attributes.
pub(super) struct LinkTag {
    href: String,
    rank: Option<Rank>,
}

impl LinkTag {
    pub(super) fn of(tag: &Tag<'_>) -> Self {
        let href = tag.attr("href").unwrap_or_default().trim().to_owned();
        let rel = tag.attr("rel").unwrap_or_default();
        // One relation, or several as in HTML.
        let is_alternate = |rel: &str| {
            let name = rel.rsplit('/').next().unwrap_or_default();
            name.eq_ignore_ascii_case("alternate")
        };
        let alternate = rel.trim().is_empty() || rel.split_whitespace().any(is_alternate);
        let kind = tag.attr("type").unwrap_or_default().trim().to_ascii_lowercase();
        let page = kind.is_empty() || kind.contains("html");
        let rank = if page { Rank::Alternate } else { Rank::TypedAlternate };
        Self { href, rank: alternate.then_some(rank) }
    }

    /// Where it leads, if it is an alternate.
    pub(super) fn alternate(&self) -> Option<&str> {
        (self.rank.is_some() && self.has_href()).then_some(self.href.as_str())
    }

    pub(super) fn has_href(&self) -> bool {
        !self.href.is_empty()
    }

    /// What its text means, where it has no `href`.
    pub(super) fn text_field(&self, kind: DocumentKind, ns: Ns) -> Option<Field> {
        let rank = self.rank?;
        let rss = kind != DocumentKind::Atom && ns != Ns::Atom;
        Some(Field::Link(if rss { Rank::Link } else { rank }))
    }
}

/// What an item said so far.
#[derive(Debug, Default)]
pub(super) struct Item {
    loc: String,
    /// `guid` or `atom:id`, whatever it is.
    id: String,
    rank: Option<Rank>,
    scratch: String,
    published: Option<(u8, Lastmod)>,
    updated: Option<(u8, Lastmod)>,
    digest: Digest,
}

impl Item {
    /// Ready for the next item.
    pub(super) fn clear(&mut self) {
        self.loc.clear();
        self.id.clear();
        self.rank = None;
        self.published = None;
        self.updated = None;
        self.digest.clear();
    }

    pub(super) fn has_link(&self) -> bool {
        self.rank.is_some()
    }

    pub(super) fn loc(&self) -> &str {
        &self.loc
    }

    /// `guid` or `atom:id`; empty where there is none.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// When it was last updated, else when it was published.
    pub(super) fn date(&self) -> Option<Lastmod> {
        self.updated.or(self.published).map(|(_, at)| at)
    }

    /// A field begins.
    pub(super) fn begin(&mut self, field: Field) {
        if matches!(field, Field::Hashed | Field::Title) {
            self.digest.text("\u{1e}");
        }
    }

    /// A piece of a text that is only hashed.
    pub(super) fn hash(&mut self, text: &str) {
        self.digest.text(text);
    }

    /// `rdf:about` of the item.
    pub(super) fn about(&mut self, value: &str, base: &Url, max_chars: usize, cx: &mut Cx<'_>) {
        self.absolute(Rank::About, value, base, max_chars, cx);
    }

    /// A link with an `href`.
    pub(super) fn link(&mut self, link: &LinkTag, base: &Url, max_chars: usize, cx: &mut Cx<'_>) {
        if let Some(rank) = link.rank {
            self.offer(rank, &link.href, base, max_chars, cx);
        }
    }

    /// A field is closed.
    pub(super) fn set(
        &mut self,
        field: Field,
        text: &str,
        base: &Url,
        max_chars: usize,
        cx: &mut Cx<'_>,
    ) {
        if matches!(field, Field::Identifier | Field::NoPermalink) && self.id.is_empty() {
            self.id.push_str(text.trim());
        }
        match field {
            Field::Link(rank) => self.offer(rank, text, base, max_chars, cx),
            Field::Identifier => self.absolute(Rank::Identifier, text, base, max_chars, cx),
            Field::NoPermalink => {
                let own = Url::parse(loc::trim(text)).is_ok_and(|url| url.host() == base.host());
                if own {
                    self.absolute(Rank::Guess, text, base, max_chars, cx);
                }
            }
            Field::Published(rank) => take_date(&mut self.published, rank, text, cx),
            Field::Updated(rank) => take_date(&mut self.updated, rank, text, cx),
            Field::Title => self.digest.text(text),
            Field::Hashed => {}
        }
    }

    fn is_better(&self, rank: Rank) -> bool {
        self.rank.is_none_or(|best| rank < best)
    }

    /// Takes a link that may be relative.
    fn offer(&mut self, rank: Rank, raw: &str, base: &Url, max_chars: usize, cx: &mut Cx<'_>) {
        if !self.is_better(rank) || loc::trim(raw).is_empty() {
            return;
        }
        let is_reference = matches!(rank, Rank::Alternate | Rank::TypedAlternate);
        let admit = if is_reference { loc::admit_reference } else { loc::admit };
        if admit(raw, base, max_chars, &mut self.scratch, cx) {
            std::mem::swap(&mut self.loc, &mut self.scratch);
            self.rank = Some(rank);
        }
    }

    /// Takes an identifier, which is a link only if it is an absolute URL.
    fn absolute(&mut self, rank: Rank, raw: &str, base: &Url, max_chars: usize, cx: &mut Cx<'_>) {
        let value = loc::trim(raw);
        if loc::is_web(value) && Url::parse(value).is_ok_and(|u| u.has_host()) {
            self.offer(rank, raw, base, max_chars, cx);
        }
    }

    /// Hands the item on.
    pub(super) fn give(&self, place: Place<'_>, sink: &mut Sink<'_>) -> ControlFlow<()> {
        sink(crate::parse::Item::Entry(Entry {
            loc: &self.loc,
            updated: self.updated.map(|(_, at)| at),
            published: self.published.map(|(_, at)| at),
            digest: self.digest.value(),
            place,
            ..Entry::default()
        }))
    }
}

fn take_date(slot: &mut Option<(u8, Lastmod)>, rank: u8, text: &str, cx: &mut Cx<'_>) {
    let text = loc::trim(text);
    if text.is_empty() {
        return;
    }
    match date::feed(text) {
        Some(at) if slot.is_none_or(|(best, _)| rank < best) => *slot = Some((rank, at)),
        Some(_) => {}
        None => cx.note(IssueCode::InvalidDate, text),
    }
}
