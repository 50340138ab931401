//! One read document, compact: an arena of text and a sorted list of entries.
//!
//! Duplicates are merged as they are finished: one entry a spelling, the
//! newest lastmod wins (Sitemaps protocol names no rule; any other would let
//! the order of lines decide).

use jiff::{SignedDuration, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::diff::snapshot::{EntryHints, Snapshot, to_the_second};
use crate::model::Lastmod;
use crate::parse::Entry;

/// A lastmod further ahead than this is no lastmod.
const FUTURE: SignedDuration = SignedDuration::from_hours(24);

/// Collects the entries of one document as the parser hands them on.
#[derive(Debug)]
pub struct Collector {
    seed: u64,
    now: Timestamp,
    entries: Vec<DocumentEntry>,
    arena: String,
    future: u64,
}

/// The entries of one document, sorted by key, each key once.
#[derive(Debug, Default)]
pub struct Document {
    entries: Vec<DocumentEntry>,
    arena: String,
    /// Entries whose lastmod lay more than a day ahead and was not taken.
    pub future_lastmods: u64,
    /// Entries that repeated another one.
    pub duplicates: u64,
}

/// One entry of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentEntry {
    /// Keyed hash of the raw decoded loc.
    pub key: u64,
    /// Position in the document, from 0.
    pub position: u32,
    /// The date that counts, if it is believable at all; to the second, as a
    /// snapshot keeps it.
    pub lastmod: Option<Lastmod>,
    /// changefreq and priority.
    pub hints: EntryHints,
    /// Digest of what else it says, 0 when nothing.
    pub digest: u32,
    start: u32,
    len: u32,
}

impl Collector {
    /// For a document read at `now`; `seed` keys the hashes of this store, so
    /// that no stranger can make two URLs collide.
    pub fn new(seed: u64, now: Timestamp) -> Self {
        Self { seed, now, entries: Vec::new(), arena: String::new(), future: 0 }
    }

    /// Takes one entry.
    pub fn push(&mut self, entry: &Entry<'_>) {
        let (Ok(start), Ok(len)) =
            (u32::try_from(self.arena.len()), u32::try_from(entry.loc.len()))
        else {
            // The arena holds at most max_body_bytes of text, far below 4 GiB.
            return;
        };
        self.arena.push_str(entry.loc);
        let written = entry.effective_lastmod();
        let lastmod = written
            .filter(|lastmod| lastmod.at.duration_since(self.now) <= FUTURE)
            .map(to_the_second);
        self.future += u64::from(written.is_some() && lastmod.is_none());
        self.entries.push(DocumentEntry {
            key: loc_key(self.seed, entry.loc),
            position: u32::try_from(self.entries.len()).unwrap_or(u32::MAX),
            lastmod,
            hints: EntryHints { changefreq: entry.changefreq, priority: entry.priority },
            digest: fold(entry.digest),
            start,
            len,
        });
    }

    /// Sorts, merges duplicates.
    pub fn finish(mut self) -> Document {
        self.entries.sort_unstable_by_key(|entry| (entry.key, entry.position));
        let before = self.entries.len();
        self.entries.dedup_by(|later, first| {
            if later.key != first.key {
                return false;
            }
            if let Some(date) = later.lastmod
                && first.lastmod.is_none_or(|other| date.is_newer_than(other))
            {
                first.lastmod = Some(date);
            }
            true
        });
        let duplicates = (before - self.entries.len()) as u64;
        Document {
            entries: self.entries,
            arena: self.arena,
            future_lastmods: self.future,
            duplicates,
        }
    }
}

impl Document {
    /// The document that would yield this snapshot again: what is listed in
    /// it, without the texts.
    pub fn of_snapshot(snapshot: &Snapshot) -> Self {
        let listed = snapshot.entries().iter().filter(|entry| entry.missing_since.is_none());
        let entries = (0..)
            .zip(listed)
            .map(|(position, entry)| DocumentEntry {
                key: entry.key,
                position,
                lastmod: entry.lastmod,
                hints: entry.hints,
                digest: entry.digest,
                start: 0,
                len: 0,
            })
            .collect();
        Self { entries, ..Self::default() }
    }

    /// The entries, sorted by key.
    pub fn entries(&self) -> &[DocumentEntry] {
        &self.entries
    }

    /// The raw decoded loc of an entry of this document.
    pub fn loc(&self, entry: &DocumentEntry) -> &str {
        let start = entry.start as usize;
        self.arena.get(start..start + entry.len as usize).unwrap_or_default()
    }

    /// This document with the entries of an older page of it behind its own. Of
    /// a key in both, this one's counts.
    #[must_use]
    pub fn with(mut self, older: Self) -> Self {
        let (Ok(shift), Ok(behind)) =
            (u32::try_from(self.arena.len()), u32::try_from(self.entries.len()))
        else {
            return self;
        };
        self.arena.push_str(&older.arena);
        self.entries.extend(older.entries.into_iter().map(|entry| DocumentEntry {
            position: entry.position.saturating_add(behind),
            start: entry.start.saturating_add(shift),
            ..entry
        }));
        // Stable: what was here first comes first.
        self.entries.sort_by_key(|entry| entry.key);
        self.entries.dedup_by_key(|entry| entry.key);
        self
    }

    /// Is a key listed?
    pub fn contains(&self, key: u64) -> bool {
        self.entries.binary_search_by_key(&key, |entry| entry.key).is_ok()
    }

    /// Position in the document of the entry at an index of [`Self::entries`].
    pub fn position(&self, index: u32) -> u32 {
        self.entries.get(index as usize).map_or(u32::MAX, |entry| entry.position)
    }
}

/// The key of an entry in a snapshot: a keyed hash of the loc as listed.
pub fn loc_key(seed: u64, loc: &str) -> u64 {
    xxh3_64_with_seed(loc.as_bytes(), seed)
}

/// Folds a digest to what a snapshot keeps; 0 stays 0, and only 0 becomes 0.
#[allow(clippy::cast_possible_truncation)] // the halves of a u64, on purpose
fn fold(digest: u64) -> u32 {
    let folded = (digest >> 32) as u32 ^ digest as u32;
    if digest == 0 { 0 } else { folded.max(1) }
}
