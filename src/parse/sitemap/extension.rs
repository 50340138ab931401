//! The extensions of a sitemap entry: images, videos, news, hreflang links.
//!
//! Known by namespace, so that no field of theirs is ever a field of the
//! entry; unknown ones (mobile, `PageMap`, code search, geo) are passed over.
//! All that they say goes into a digest as it is written; what is kept is
//! typed (`fields`) and bounded. What is wrong between the pages of a document
//! is found by `returns`.

mod fields;
mod language;
mod returns;

use self::fields::{Fields, Note, Said};
use self::returns::Returns;
use crate::model::extension::{Alternate, Extensions};
use crate::parse::digest::Digest;
use crate::parse::issue::IssueCode;
use crate::parse::loc;
use crate::parse::xml::{Cx, Ns, Tag};

/// Images of one page, says Google.
const MAX_ITEMS: usize = 1_000;
/// Fields of one image, video or news element.
const MAX_FIELDS: usize = 128;
/// Bytes kept of the extensions of one entry.
const MAX_BYTES: usize = 256 * 1024;
/// News entries of one sitemap, says Google.
const MAX_NEWS: usize = 1_000;

/// Which list an element belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Images,
    Videos,
    News,
    /// Of no list: passed over.
    Skip,
}

impl List {
    fn of(tag: &Tag<'_>) -> Self {
        match (tag.ns, tag.local) {
            (Ns::Image, "image") => Self::Images,
            (Ns::Video, "video") => Self::Videos,
            (Ns::News, "news") => Self::News,
            _ => Self::Skip,
        }
    }

    /// The namespace of its elements.
    fn ns(self) -> Option<Ns> {
        match self {
            Self::Images => Some(Ns::Image),
            Self::Videos => Some(Ns::Video),
            Self::News => Some(Ns::News),
            Self::Skip => None,
        }
    }
}

/// Is this a link to another version of the page?
fn is_link(tag: &Tag<'_>) -> bool {
    tag.ns == Ns::Xhtml && tag.local == "link"
}

#[derive(Debug)]
struct Item {
    list: List,
    depth: usize,
    /// Nothing may stand in it: all that it says is in its attributes.
    empty: bool,
}

/// The innermost element inside an item that has a meaning.
#[derive(Debug)]
struct Leaf {
    name: String,
    depth: usize,
    /// It has the namespace of its item, and foreign elements in it are markup of its text.
    is_text: bool,
}

/// What the extensions of the open entry said so far.
#[derive(Debug, Default)]
pub(super) struct Extension {
    found: Extensions,
    open: Option<Item>,
    fields: Fields,
    /// Elements that began inside items.
    elements: usize,
    leaf: Option<Leaf>,
    /// What the leaf says.
    text: String,
    bytes: usize,
    digest: Digest,
    any: bool,
    over: bool,
    news_total: usize,
    returns: Returns,
}

impl Extension {
    /// Ready for the next entry.
    pub(super) fn clear(&mut self) {
        if self.any {
            self.found = Extensions::default();
            self.digest.clear();
            self.fields.clear();
            self.any = false;
        }
        self.open = None;
        self.leaf = None;
        self.bytes = 0;
        self.over = false;
    }

    /// The document ends inside the entry: keeps the whole fields of what is
    /// open. The digest is void, since the rest may say more.
    pub(super) fn cut(&mut self) {
        self.leaf = None;
        if let Some(item) = self.open.take() {
            // What it lacks was cut off.
            self.keep(item.list, &mut |_, _| {});
        }
        self.digest.clear();
    }

    /// Is an element of an extension open?
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Is an element of no known extension open?
    pub(super) fn is_skipping(&self) -> bool {
        self.open.as_ref().is_some_and(|item| item.list == List::Skip)
    }

    /// Passes over the element at `depth`.
    pub(super) fn skip(&mut self, depth: usize) {
        self.open = Some(Item { list: List::Skip, depth, empty: false });
    }

    /// The depth of the open element, if the start of this tag inside it shows
    /// that its end tag is missing.
    pub(super) fn ended_by(&self, tag: &Tag<'_>, core: bool) -> Option<usize> {
        let item = self.open.as_ref()?;
        // A `loc` is more likely the item's own, with its prefix forgotten.
        let of_entry = core && matches!(tag.local, "lastmod" | "changefreq" | "priority");
        // None is in another of its kind, and none at all in an image.
        let list = List::of(tag);
        let another =
            list == item.list || item.list == List::Images && (list != List::Skip || is_link(tag));
        let ends = item.empty || (of_entry || another) && item.list != List::Skip;
        ends.then_some(item.depth)
    }

    pub(super) fn has_news(&self) -> bool {
        !self.found.news.is_empty()
    }

    pub(super) fn start(
        &mut self,
        tag: &Tag<'_>,
        depth: usize,
        entry_depth: usize,
        cx: &mut Cx<'_>,
    ) {
        if self.open.is_none() {
            if depth != entry_depth + 1 {
                return;
            }
            let list = List::of(tag);
            let link = is_link(tag);
            if link {
                self.alternate(tag, cx);
            }
            let empty = link || tag.local == "mobile";
            self.open = Some(Item { list, depth, empty });
            self.fields.clear();
            return;
        }
        if self.is_skipping() {
            return;
        }
        let is_own = self.open.as_ref().and_then(|item| item.list.ns()) == Some(tag.ns);
        let is_markup = !is_own && !matches!(tag.ns, Ns::Image | Ns::Video | Ns::News);
        if is_markup && self.leaf.as_ref().is_some_and(|leaf| leaf.is_text) {
            return;
        }
        self.close_leaf();
        self.elements += 1;
        for (name, value) in tag.attributes() {
            if !name.starts_with("xmlns") {
                let value = loc::trim(&crate::parse::xml::unescape(value)).to_owned();
                self.add_field(format!("{}@{name}", tag.local), value);
            }
        }
        // That one holds fields, whose prefix may have been forgotten.
        let is_text = is_own && tag.local != "publication";
        self.leaf = Some(Leaf { name: tag.local.to_owned(), depth, is_text });
        self.text.clear();
    }

    pub(super) fn text(&mut self, text: &str, _cx: &mut Cx<'_>) {
        if self.leaf.is_some() {
            if self.bytes + self.text.len() + text.len() <= MAX_BYTES {
                self.text.push_str(text);
            } else {
                self.over = true;
            }
        }
    }

    pub(super) fn end(&mut self, depth: usize, cx: &mut Cx<'_>) {
        if self.leaf.as_ref().is_some_and(|leaf| leaf.depth == depth) {
            self.close_leaf();
        }
        let Some(item) = self.open.take_if(|item| item.depth == depth) else { return };
        self.close_leaf();
        self.keep(item.list, &mut |code, sample| cx.note(code, sample));
    }

    fn keep(&mut self, list: List, note: &mut Note<'_>) {
        if list == List::Skip {
            return;
        }
        let fields = std::mem::take(&mut self.fields);
        self.any = true;
        let found = &mut self.found;
        let over = match list {
            List::Images => add(&mut found.images, fields::image(fields, note)),
            List::Videos => add(&mut found.videos, fields::video(fields, note)),
            List::News => {
                self.news_total += 1;
                add(&mut found.news, fields::news(fields, note))
            }
            List::Skip => false,
        };
        self.over |= over;
    }

    fn close_leaf(&mut self) {
        if let Some(Leaf { name, .. }) = self.leaf.take() {
            let value = loc::trim(&self.text).to_owned();
            if !value.is_empty() {
                self.add_field(name, value);
            }
            self.text.clear();
        }
    }

    /// Does a field of a video count its viewers, whose number moves all the time, and
    /// says nothing of the page?
    fn is_counter(&self, name: &str) -> bool {
        let of_video = self.open.as_ref().is_some_and(|item| item.list == List::Videos);
        of_video && matches!(name, "view_count" | "rating")
    }

    fn add_field(&mut self, name: String, value: String) {
        if !self.is_counter(&name) {
            self.hash(&name, &value);
        }
        self.bytes += name.len() + value.len();
        if self.fields.len() < MAX_FIELDS && self.bytes <= MAX_BYTES {
            self.fields.push(Said { name, value, element: self.elements });
        } else {
            self.over = true;
        }
    }

    /// `xhtml:link rel=alternate hreflang=… href=…`
    fn alternate(&mut self, tag: &Tag<'_>, cx: &mut Cx<'_>) {
        let rel = tag.attr("rel").unwrap_or_default();
        if !rel.split_ascii_whitespace().any(|r| r.eq_ignore_ascii_case("alternate")) {
            // One of another relation, as `amphtml`, lacks nothing; it is no alternate.
            if rel.trim().is_empty() {
                cx.note(IssueCode::MissingAttribute, "link rel");
            }
            return;
        }
        let value = |name: &str| tag.attr(name).map(|value| loc::trim(&value).to_owned());
        let href = value("href").unwrap_or_default();
        if href.is_empty() {
            cx.note(IssueCode::MissingAttribute, "link href");
            return;
        }
        fields::whole_reference(&href, &mut |code, sample| cx.note(code, sample));
        let (hreflang, media) = (value("hreflang"), value("media"));
        match &hreflang {
            Some(code) if !language::is_hreflang(code) => {
                cx.note(IssueCode::InvalidAttributeValue, code);
            }
            // A link into an app (`android-app:`) has no language.
            None if media.is_none() && !fields::is_of_app(&href) => {
                cx.note(IssueCode::MissingAttribute, "link hreflang");
            }
            _ => {}
        }
        let said = [("hreflang", hreflang.as_deref()), ("media", media.as_deref())];
        for (name, value) in said.into_iter().chain([("href", Some(href.as_str()))]) {
            let Some(value) = value else { continue };
            self.bytes += name.len() + value.len();
            self.hash(name, value);
        }
        let fits = self.bytes <= MAX_BYTES;
        let link = Alternate { hreflang, href, media };
        self.over |= !fits || add(&mut self.found.alternates, link);
    }

    /// Looks at the entry as a whole, now that its URL is known.
    pub(super) fn check(&mut self, page: &str, cx: &mut Cx<'_>) {
        let mut media = self.found.videos.iter().flat_map(|v| [&v.content_loc, &v.player_loc]);
        if media.any(|url| url.as_deref() == Some(page)) {
            cx.note(IssueCode::SameVideoLocation, page);
        }
        if !self.over {
            // Where links were cut off, what is left proves nothing.
            self.returns.page(page, &self.found.alternates, cx);
        }
        if self.over {
            cx.note(IssueCode::TooManyExtensions, page);
        }
    }

    /// The document ends.
    pub(super) fn finish(&self, cx: &mut Cx<'_>) {
        if self.news_total > MAX_NEWS {
            cx.note(IssueCode::TooManyNews, &self.news_total.to_string());
        }
    }

    fn hash(&mut self, name: &str, value: &str) {
        self.any = true;
        self.digest.field(name, value);
    }

    /// Hash over all that the extensions say; 0 when they say nothing.
    pub(super) fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// The fields, unless there are none.
    pub(super) fn fields(&self) -> Option<&Extensions> {
        (!self.found.is_empty()).then_some(&self.found)
    }
}

/// Adds an element to a bounded list; says whether there was no room.
fn add<T>(list: &mut Vec<T>, element: T) -> bool {
    let full = list.len() >= MAX_ITEMS;
    if !full {
        list.push(element);
    }
    full
}

#[cfg(test)]
mod tests;
