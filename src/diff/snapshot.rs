//! What one source listed last time, as one blob per source.
//!
//! Keeps: entries are sorted by key and no key is there twice; what is encoded
//! decodes to the same entries; damaged bytes are an error, never a panic, never
//! other entries, and never cost more memory than a small multiple of their
//! length. Who lists what, and what a difference means, is the diff's business.

mod codec;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use jiff::Timestamp;

use super::document::is_followed;
use crate::model::{ChangeFreq, Lastmod, Priority, UrlId};

/// What one source listed last time, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    entries: Vec<SnapshotEntry>,
}

/// Bits of a key. Of the 50,000 keys of a full sitemap two are alike once in 60 million
/// sitemaps; then the second is not seen. Eight bits more would be a byte of store for
/// each URL.
pub const KEY_BITS: u32 = 56;

/// One entry as it was last listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Keyed hash of the raw decoded loc, of [`KEY_BITS`].
    pub key: u64,
    /// The row it became, or why it became none.
    pub row: Row,
    /// As listed, kept to the second.
    pub lastmod: Option<Lastmod>,
    /// As listed.
    pub hints: EntryHints,
    /// Digest of the other content of the entry, such as a news title.
    pub digest: u32,
    /// Complete reads in a row that did not list it.
    pub misses: u8,
    /// Unix seconds of the first of those reads.
    pub missing_since: Option<i64>,
}

/// What an entry became in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Row {
    /// This row.
    Url(UrlId),
    /// None: it was not admitted.
    Rejected(Rejection),
}

impl Row {
    /// The row, if it became one.
    fn url(self) -> Option<UrlId> {
        match self {
            Self::Url(id) => Some(id),
            Self::Rejected(_) => None,
        }
    }
}

/// Why an entry was not admitted. Remembered, so that an unchanged document
/// judges no URL twice; a new reader epoch judges all of them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Rejection {
    /// Another host, or another directory, than the site's scope allows.
    OutOfScope = 1,
    /// By the site's `include` and `exclude`.
    Excluded = 2,
    /// No absolute http or https URL.
    Invalid = 3,
    /// Over `max_url_chars`.
    TooLong = 4,
    /// Over the site's `max_urls`.
    Quota = 5,
    /// By an operator.
    Blocked = 6,
}

/// The protocol's hints to the order of crawling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct EntryHints {
    /// `<changefreq>`.
    pub changefreq: Option<ChangeFreq>,
    /// `<priority>`.
    pub priority: Option<Priority>,
}

/// The bytes are no snapshot that we wrote. The next read of the source has to
/// be a full one, as if it were the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged snapshot: {0}")]
pub struct CorruptSnapshot(&'static str);

impl Snapshot {
    /// Of a source that was never read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes entries in any order. Of entries with equal keys the first stays.
    /// Costs one look at each entry when they are sorted already.
    pub fn from_unsorted(mut entries: Vec<SnapshotEntry>) -> Self {
        if !entries.is_sorted_by(|a, b| a.key < b.key) {
            entries.sort_by_key(|entry| entry.key);
            entries.dedup_by_key(|entry| entry.key);
        }
        for entry in &mut entries {
            entry.lastmod = entry.lastmod.map(to_the_second);
        }
        Self { entries }
    }

    /// In ascending order of key, each key once.
    pub fn entries(&self) -> &[SnapshotEntry] {
        &self.entries
    }

    /// The entries, for a successor to be made of them.
    pub fn into_entries(self) -> Vec<SnapshotEntry> {
        self.entries
    }

    /// Is a key in it?
    pub fn contains(&self, key: u64) -> bool {
        self.entries.binary_search_by_key(&key, |entry| entry.key).is_ok()
    }

    /// How many entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Has it none?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many pages its successor lists that were none of it: not in another
    /// spelling, and not given back by a window, where deletions let the oldest
    /// come again.
    pub fn newcomers(&self, next: &[SnapshotEntry], window: bool) -> u64 {
        let fresh = |entry: &&SnapshotEntry| {
            matches!(entry.row, Row::Url(_))
                && !is_followed(entry.digest)
                && !self.contains(entry.key)
        };
        let mut fresh = next.iter().filter(fresh).peekable();
        if fresh.peek().is_none() {
            return 0;
        }
        let known: HashSet<Row> = self.entries.iter().map(|entry| entry.row).collect();
        let dates = self.entries.iter().filter_map(|entry| entry.lastmod);
        let oldest = dates.map(|lastmod| lastmod.at).min();
        // Rows are numbered as they are made.
        let made_last = self.entries.iter().filter_map(|entry| entry.row.url()).max();
        let is_back = |entry: &SnapshotEntry| {
            window
                && match entry.lastmod {
                    Some(lastmod) => oldest.is_some_and(|oldest| lastmod.at < oldest),
                    None => entry.row.url() < made_last,
                }
        };
        fresh.filter(|entry| !known.contains(&entry.row) && !is_back(entry)).count() as u64
    }

    /// Writes the blob. 50,000 entries with distinct dates and digests take
    /// about 15 bytes each, 11 without digests.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(&self.entries)
    }

    /// Reads the blob.
    pub fn decode(bytes: &[u8]) -> Result<Self, CorruptSnapshot> {
        codec::decode(bytes).map(|entries| Self { entries })
    }
}

impl Row {
    /// Was it refused for a reason that may have passed by the next read?
    pub fn may_be_admitted_later(self) -> bool {
        self == Self::Rejected(Rejection::Quota)
    }
}

impl Rejection {
    /// Every reason, in the order of their codes.
    pub const ALL: [Self; 6] = [
        Self::OutOfScope,
        Self::Excluded,
        Self::Invalid,
        Self::TooLong,
        Self::Quota,
        Self::Blocked,
    ];

    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutOfScope => "out-of-scope",
            Self::Excluded => "excluded",
            Self::Invalid => "invalid",
            Self::TooLong => "too-long",
            Self::Quota => "quota",
            Self::Blocked => "blocked",
        }
    }

    fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| i64::from(*reason as u8) == code)
    }
}

impl EntryHints {
    /// Both hints in 13 bits; 0 when there are none.
    pub fn to_bits(self) -> u16 {
        let changefreq = self.changefreq.map_or(0, |freq| freq as u16 + 1);
        let priority = self.priority.map_or(0, |priority| priority.thousandths() + 1);
        priority << 3 | changefreq
    }

    /// Reads what [`Self::to_bits`] wrote; `None` for any other bits.
    pub fn from_bits(bits: u16) -> Option<Self> {
        // Seven frequencies and none: all of the three bits have a meaning.
        let changefreq =
            (bits & 7).checked_sub(1).and_then(|n| ChangeFreq::ALL.get(usize::from(n)).copied());
        let priority = match bits >> 3 {
            0 => None,
            n => Some(Priority::from_thousandths(n - 1)?),
        };
        Some(Self { changefreq, priority })
    }
}

/// Fractions of a second are not kept, but that they were written is.
pub(super) fn to_the_second(lastmod: Lastmod) -> Lastmod {
    let at = Timestamp::from_second(lastmod.at.as_second()).unwrap_or(lastmod.at);
    Lastmod { at, ..lastmod }
}
