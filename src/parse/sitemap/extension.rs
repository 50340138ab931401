//! The extensions of a sitemap entry: images, videos, news, hreflang links.
//!
//! Known by namespace, so that no field of theirs is ever a field of the
//! entry; unknown ones are passed over. All that they say goes into a digest;
//! what is kept is bounded.

use crate::parse::digest::Digest;
use crate::parse::issue::IssueCode;
use crate::parse::xml::{Cx, Ns, Tag};
use crate::parse::{Extensions, Fields, loc};

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

#[derive(Debug)]
struct Item {
    list: List,
    depth: usize,
}

/// What the extensions of the open entry said so far.
#[derive(Debug, Default)]
pub(super) struct Extension {
    found: Extensions,
    open: Option<Item>,
    fields: Fields,
    /// The innermost element inside an item: name, depth and text.
    leaf: Option<(String, usize)>,
    text: String,
    bytes: usize,
    digest: Digest,
    any: bool,
    over: bool,
    news_total: usize,
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
            let fields = std::mem::take(&mut self.fields);
            self.keep(item.list, fields);
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
        self.open = Some(Item { list: List::Skip, depth });
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
            let list = match (tag.ns, tag.local) {
                (Ns::Image, "image") => List::Images,
                (Ns::Video, "video") => List::Videos,
                (Ns::News, "news") => List::News,
                _ => List::Skip,
            };
            if tag.ns == Ns::Xhtml && tag.local == "link" {
                self.alternate(tag, cx);
            }
            self.open = Some(Item { list, depth });
            self.fields.clear();
            return;
        }
        if self.is_skipping() {
            return;
        }
        self.close_leaf();
        for (name, value) in tag.attributes() {
            if !name.starts_with("xmlns") {
                let value = crate::parse::xml::unescape(value).into_owned();
                self.add_field(format!("{}@{name}", tag.local), value);
            }
        }
        self.leaf = Some((tag.local.to_owned(), depth));
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
        if self.leaf.as_ref().is_some_and(|(_, at)| *at == depth) {
            self.close_leaf();
        }
        let Some(item) = self.open.take_if(|item| item.depth == depth) else { return };
        self.close_leaf();
        let fields = std::mem::take(&mut self.fields);
        check_item(item.list, &fields, cx);
        self.keep(item.list, fields);
    }

    fn keep(&mut self, list: List, fields: Fields) {
        self.news_total += usize::from(list == List::News);
        let list = match list {
            List::Images => &mut self.found.images,
            List::Videos => &mut self.found.videos,
            List::News => &mut self.found.news,
            List::Skip => return,
        };
        self.any = true;
        if list.len() < MAX_ITEMS {
            list.push(fields);
        } else {
            self.over = true;
        }
    }

    fn close_leaf(&mut self) {
        if let Some((name, _)) = self.leaf.take() {
            let value = loc::trim(&self.text).to_owned();
            if !value.is_empty() {
                self.add_field(name, value);
            }
            self.text.clear();
        }
    }

    fn add_field(&mut self, name: String, value: String) {
        self.hash(&name, &value);
        self.bytes += name.len() + value.len();
        if self.fields.len() < MAX_FIELDS && self.bytes <= MAX_BYTES {
            self.fields.push((name, value));
        } else {
            self.over = true;
        }
    }

    /// `xhtml:link rel=alternate hreflang=… href=…`
    fn alternate(&mut self, tag: &Tag<'_>, cx: &mut Cx<'_>) {
        let rel = tag.attr("rel").unwrap_or_default();
        if !rel.split_ascii_whitespace().any(|r| r.eq_ignore_ascii_case("alternate")) {
            cx.note(IssueCode::MissingAttribute, "link rel");
            return;
        }
        let href = tag.attr("href").map(|href| loc::trim(&href).to_owned()).unwrap_or_default();
        if href.is_empty() {
            cx.note(IssueCode::MissingAttribute, "link href");
            return;
        }
        let mut fields = Fields::new();
        match tag.attr("hreflang") {
            Some(code) => {
                if !is_language(&code) {
                    cx.note(IssueCode::InvalidAttributeValue, &code);
                }
                fields.push(("hreflang".to_owned(), code.into_owned()));
            }
            None if tag.attr("media").is_none() => {
                cx.note(IssueCode::MissingAttribute, "link hreflang");
            }
            None => {}
        }
        if let Some(media) = tag.attr("media") {
            fields.push(("media".to_owned(), media.into_owned()));
        }
        fields.push(("href".to_owned(), href));
        for (name, value) in &fields {
            self.bytes += name.len() + value.len();
            self.hash(name, value);
        }
        if self.found.alternates.len() < MAX_ITEMS && self.bytes <= MAX_BYTES {
            self.found.alternates.push(fields);
        } else {
            self.over = true;
        }
    }

    /// Looks at the entry as a whole, now that its URL is known.
    pub(super) fn check(&self, page: &str, cx: &mut Cx<'_>) {
        let same = |field: &(String, String)| {
            matches!(field.0.as_str(), "content_loc" | "player_loc") && field.1 == page
        };
        if self.found.videos.iter().flatten().any(same) {
            cx.note(IssueCode::SameVideoLocation, page);
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
        let f = &self.found;
        let none = f.images.is_empty()
            && f.videos.is_empty()
            && f.news.is_empty()
            && f.alternates.is_empty();
        (!none).then_some(f)
    }
}

/// Notes what a closed element lacks.
fn check_item(list: List, fields: &Fields, cx: &mut Cx<'_>) {
    let has = |name: &str| fields.iter().any(|(known, _)| known == name);
    match list {
        List::Videos => {
            if !has("thumbnail_loc") {
                cx.note(IssueCode::MissingThumbnail, "video:thumbnail_loc");
            }
            if !has("title") {
                cx.note(IssueCode::MissingVideoTitle, "video:title");
            }
        }
        List::News if !has("name") => cx.note(IssueCode::MissingPublication, "news:publication"),
        List::Images if !has("loc") => cx.note(IssueCode::MissingTag, "image:loc"),
        _ => {}
    }
}

/// Is this a language as hreflang wants it: `x-default`, or an ISO 639-1 code
/// with an optional script and an optional region?
fn is_language(code: &str) -> bool {
    /// Codes that people take for languages: Greek is `el`, Japanese `ja`, …
    const MISTAKEN: [&str; 7] = ["gr", "jp", "cn", "cz", "dk", "ua", "us"];
    let lower = code.to_ascii_lowercase();
    if lower == "x-default" {
        return true;
    }
    let mut parts = lower.split('-');
    let language = parts.next().unwrap_or_default();
    let alphabetic = |s: &str| s.bytes().all(|b| b.is_ascii_alphabetic());
    let fits = |part: &str| match part.len() {
        2 | 4 => alphabetic(part),
        3 => part.bytes().all(|b| b.is_ascii_digit()),
        _ => false,
    };
    (2..=3).contains(&language.len())
        && alphabetic(language)
        && !MISTAKEN.contains(&language)
        && parts.all(fits)
}
