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

/// Tombstones kept of one document.
const MAX_TOMBSTONES: usize = 10_000;
/// Entries of one document whose id is remembered.
const MAX_KNOWN: usize = 50_000;

/// Is this the element? Nothing else has its name.
pub(super) fn is_one(tag: &Tag<'_>) -> bool {
    tag.local == "deleted-entry"
}

/// One deletion.
#[derive(Debug, Default)]
struct Tombstone {
    /// The id of what was deleted.
    id: String,
    /// Its link, if the tombstone has one.
    link: Option<String>,
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
    list: Vec<Tombstone>,
    /// Entries by a hash of their id and by one of their link.
    known: HashMap<u64, usize>,
    entries: Vec<Known>,
}

impl Tombstones {
    /// A tombstone begins.
    pub(super) fn open(&mut self, tag: &Tag<'_>, cx: &mut Cx<'_>) {
        if self.list.len() >= MAX_TOMBSTONES {
            cx.note(IssueCode::TooManyUrls, "deleted-entry");
            return;
        }
        let id = tag.attr("ref").unwrap_or_default().trim().to_owned();
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
        self.list.push(Tombstone { id, link: None, when });
    }

    /// A link inside the last tombstone.
    pub(super) fn link(&mut self, link: &LinkTag, base: &Url) {
        let Some(tombstone) = self.list.last_mut().filter(|last| last.link.is_none()) else {
            return;
        };
        tombstone.link = link.alternate().and_then(|href| super::absolute(href, base));
    }

    /// An entry of the document.
    pub(super) fn entry(&mut self, id: &str, loc: &str, at: Option<Lastmod>) {
        if self.entries.len() >= MAX_KNOWN {
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

    fn find(&self, name: &str) -> Option<&Known> {
        self.entries.get(*self.known.get(&xxh3_64(name.as_bytes()))?)
    }

    /// The document ends: hands on what was really deleted.
    pub(super) fn give(&self, max_chars: usize, sink: &mut Sink<'_>) {
        for tombstone in &self.list {
            let entry = self.find(&tombstone.id);
            let id = Some(tombstone.id.as_str()).filter(|id| loc::is_web(id));
            let Some(loc) = tombstone.link.as_deref().or(entry.map(|e| e.loc.as_str())).or(id)
            else {
                continue;
            };
            let entry = entry.or_else(|| self.find(loc));
            let is_back =
                entry.is_some_and(|entry| entry.at.is_none() || entry.at > tombstone.when);
            let good =
                loc.chars().count() <= max_chars && Url::parse(loc).is_ok_and(|u| u.has_host());
            if is_back || !good {
                continue;
            }
            if sink(Item::Deleted(Deleted { loc, when: tombstone.when })) == ControlFlow::Break(())
            {
                return;
            }
        }
    }
}
