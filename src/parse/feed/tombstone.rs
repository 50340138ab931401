//! What a feed says was deleted: `at:deleted-entry` (RFC 6721).
//!
//! A tombstone names its entry by `ref`, the entry's id. The page is the
//! tombstone's own link, else the link of the entry of that id in the same
//! document, else the id itself if it is a URL. An entry that says it was updated
//! after the deletion has come back, and its tombstone says nothing. So all are
//! settled when the document ends, wherever in it they stand. What a deletion
//! means for a URL is left to others.

use std::collections::HashMap;
use std::ops::ControlFlow;

use jiff::Timestamp;
use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::item::LinkTag;
use crate::date;
use crate::model::Lastmod;
use crate::parse::issue::IssueCode;
use crate::parse::xml::{Cx, Tag};
use crate::parse::{Deleted, Item, Sink, loc};

/// Tombstones kept of one document, and bytes of their URLs.
const MAX_TOMBSTONES: usize = 10_000;
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// Entries of one document whose id is remembered, and bytes of their links:
/// far more than feeds hold. What lies behind is not there for a tombstone.
const MAX_KNOWN: usize = 10_000;
const MAX_KNOWN_BYTES: usize = 1024 * 1024;

/// Is this the element? Nothing else has its name.
pub(super) fn is_one(tag: &Tag<'_>) -> bool {
    tag.local == "deleted-entry"
}

/// One deletion.
#[derive(Debug, Default)]
struct Tombstone {
    /// A hash of the id of what was deleted.
    id: u64,
    /// The tombstone's own link, else the id, if that is a URL and none too long.
    url: Option<String>,
    has_link: bool,
    when: Option<Timestamp>,
}

/// An entry by its id: its link, and when it was last updated.
#[derive(Debug)]
struct Known {
    loc: String,
    at: Option<Timestamp>,
}

/// The deletions of one document.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    /// The one whose element is open.
    open: Option<Tombstone>,
    list: Vec<Tombstone>,
    /// Bytes of their URLs.
    list_bytes: usize,
    /// Entries by a hash of their id and by one of their link.
    known: HashMap<u64, usize>,
    entries: Vec<Known>,
    /// Bytes of their links.
    bytes: usize,
}

impl Tombstones {
    /// A tombstone begins.
    pub(super) fn open(&mut self, tag: &Tag<'_>, base: &Url, max_chars: usize, cx: &mut Cx<'_>) {
        let id = tag.attr("ref").unwrap_or_default();
        let id = id.trim();
        if id.is_empty() {
            cx.note(IssueCode::MissingAttribute, "ref of a deleted entry");
        }
        let written = tag.attr("when").unwrap_or_default();
        let when = date::feed(written.trim()).map(|date| date.at);
        if written.trim().is_empty() {
            cx.note(IssueCode::MissingAttribute, "when of a deleted entry");
        } else if when.is_none() {
            cx.note(IssueCode::InvalidDate, &written);
        }
        // As an entry of this id would have it.
        let mut url = String::new();
        let is_url = loc::is_web(id) && Url::parse(id).is_ok_and(|u| u.has_host());
        let fits = is_url && loc::admit(id, base, max_chars, &mut url, cx);
        self.open = Some(Tombstone {
            id: xxh3_64(id.as_bytes()),
            url: fits.then_some(url),
            has_link: false,
            when,
        });
    }

    /// A link inside the open tombstone.
    pub(super) fn link(&mut self, link: &LinkTag, base: &Url, max_chars: usize) {
        if let Some(tombstone) = self.open.as_mut().filter(|open| !open.has_link)
            && let Some(url) = link.alternate().and_then(|href| super::absolute(href, base))
        {
            tombstone.has_link = true;
            tombstone.url = Some(url).filter(|url| is_short(url, max_chars));
        }
    }

    /// The open tombstone ends, if there is one.
    pub(super) fn close(&mut self, cx: &mut Cx<'_>) {
        let Some(tombstone) = self.open.take() else { return };
        let bytes = self.list_bytes + tombstone.url.as_ref().map_or(0, String::len);
        if self.list.len() >= MAX_TOMBSTONES || bytes > MAX_BYTES {
            cx.note(IssueCode::TooManyUrls, "deleted-entry");
            return;
        }
        self.list_bytes = bytes;
        self.list.push(tombstone);
    }

    /// An entry of the document.
    pub(super) fn entry(&mut self, id: &str, loc: &str, at: Option<Lastmod>) {
        self.bytes += loc.len();
        if self.entries.len() >= MAX_KNOWN || self.bytes > MAX_KNOWN_BYTES {
            return;
        }
        let index = self.entries.len();
        for name in [id, loc].into_iter().filter(|name| !name.is_empty()) {
            self.known.insert(xxh3_64(name.as_bytes()), index);
        }
        self.entries.push(Known { loc: loc.to_owned(), at: at.map(|date| date.at) });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn find(&self, name: u64) -> Option<&Known> {
        self.entries.get(*self.known.get(&name)?)
    }

    /// The document ends: hands on what was really deleted, while it is wanted.
    pub(super) fn give(&self, sink: &mut Sink<'_>) -> ControlFlow<()> {
        for tombstone in &self.list {
            let entry = self.find(tombstone.id);
            let of_entry = entry.filter(|_| !tombstone.has_link).map(|entry| entry.loc.as_str());
            let Some(loc) = of_entry.or(tombstone.url.as_deref()) else { continue };
            let entry = entry.or_else(|| self.find(xxh3_64(loc.as_bytes())));
            let is_back =
                entry.is_some_and(|entry| entry.at.is_none() || entry.at > tombstone.when);
            if is_back || !Url::parse(loc).is_ok_and(|u| u.has_host()) {
                continue;
            }
            sink(Item::Deleted(Deleted { loc, when: tombstone.when }))?;
        }
        ControlFlow::Continue(())
    }
}

/// Is a URL one that an entry might have?
fn is_short(url: &str, max_chars: usize) -> bool {
    url.len() <= max_chars || url.chars().count() <= max_chars
}
