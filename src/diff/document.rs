//! One read document, compact: a sorted list of entries, and a bounded part of
//! their texts.
//!
//! Of what a source listed before, the hash is enough. The texts of new URLs are
//! kept while all of them together stay within [`MAX_TEXTS`]; who needs one that
//! was not kept reads the document once more.
//!
//! Duplicates are merged as they are finished: one entry a spelling, the
//! newest lastmod wins (Sitemaps protocol names no rule; any other would let
//! the order of lines decide). Where the site says `follow`, the images,
//! videos and alternates that an entry names are entries of their own, of
//! their own kind and under a limit of their own; what is also listed as a
//! page is a page.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use url::Url;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::keys::Keys;
use crate::diff::snapshot::{EntryHints, KEY_BITS, Snapshot, to_the_second};
use crate::model::{Follow, Lastmod, Precision, UrlKind};
use crate::parse::{Entry, Extensions};

/// A lastmod further ahead than this is no lastmod.
const FUTURE: SignedDuration = SignedDuration::from_hours(24);

/// Bytes of the texts of new URLs that are kept of one document. Where there are
/// more, none is kept: they will have to be read again in any case. Enough for
/// 50,000 URLs of a hundred bytes.
pub const MAX_TEXTS: usize = 5 * 1024 * 1024;
/// Different images, videos and alternates followed of one document.
pub const MAX_FOLLOWED: usize = 50_000;
/// Bytes of a URL that is followed; a longer one is none.
const MAX_FOLLOWED_BYTES: usize = 8 * 1024;
/// Digests from here on stand for a followed entry of that kind: it has no
/// text of its own, and a snapshot keeps nothing else that would tell.
const FOLLOWED: u32 = u32::MAX - 3;

/// Collects the entries of one document as the parser hands them on.
#[derive(Debug)]
pub struct Collector {
    seed: u64,
    now: Timestamp,
    /// What was listed before, as far as can be told quickly: its texts are not kept.
    known: Option<Keys>,
    entries: Vec<DocumentEntry>,
    /// `None`: there were too many texts.
    arena: Option<String>,
    future: u64,
    has_extensions: bool,
    followed: Option<Followed>,
}

/// What is followed, and what has been so far.
#[derive(Debug)]
struct Followed {
    kinds: Follow,
    base: Url,
    keys: HashSet<u64>,
    cut: u64,
}

/// The entries of one document, sorted by key, each key once.
#[derive(Debug, Default)]
pub struct Document {
    entries: Vec<DocumentEntry>,
    arena: String,
    /// Entries whose lastmod lay more than a day ahead and was not taken.
    pub future_lastmods: u64,
    /// Pages that repeated another one.
    pub duplicates: u64,
    /// The key of the first of them.
    pub first_duplicate: Option<u64>,
    /// Does any entry say anything of images, videos, news or alternates?
    pub has_extensions: bool,
    /// Images, videos and alternates that were not followed: over the limit.
    pub followed_cut: u64,
    /// Entries that are pages.
    pub pages: usize,
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
    /// What it is.
    pub kind: UrlKind,
    start: u32,
    len: u32,
}

impl Collector {
    /// For a document read at `now`; `seed` keys the hashes of this store, so
    /// that no stranger can make two URLs collide.
    pub fn new(seed: u64, now: Timestamp) -> Self {
        Self {
            seed,
            now,
            known: None,
            entries: Vec::new(),
            arena: Some(String::new()),
            future: 0,
            has_extensions: false,
            followed: None,
        }
    }

    /// The same, where URLs that entries name are entries of their own;
    /// relative ones are resolved against `base`.
    pub fn following(seed: u64, now: Timestamp, kinds: Follow, base: &Url) -> Self {
        let followed = kinds.any().then(|| Followed {
            kinds,
            base: base.clone(),
            keys: HashSet::new(),
            cut: 0,
        });
        Self { followed, ..Self::new(seed, now) }
    }

    /// The same, where the texts of what a source listed before are not needed.
    #[must_use]
    pub fn knowing(self, before: &Snapshot) -> Self {
        Self { known: Some(Keys::of(before)), ..self }
    }

    /// The same for a document that may have so many entries: room for them is
    /// taken at once, since one that grows leaves holes behind.
    #[must_use]
    pub fn expecting(mut self, entries: usize) -> Self {
        self.entries.reserve_exact(entries);
        self
    }

    /// Takes one entry.
    pub fn push(&mut self, entry: &Entry<'_>) {
        let is_past = |date: &Lastmod| date.at.duration_since(self.now) <= FUTURE;
        let written = entry.effective_lastmod();
        // One to come is none, so the next one that the entry gives counts.
        let is_future = written.is_some_and(|date| !is_past(&date));
        let lastmod = if is_future { entry.lastmod_if(is_past) } else { written };
        let lastmod = lastmod.map(to_the_second);
        self.future += u64::from(is_future);
        self.add(
            DocumentEntry {
                key: loc_key(self.seed, entry.loc),
                position: 0,
                lastmod,
                hints: EntryHints { changefreq: entry.changefreq, priority: entry.priority },
                digest: fold(entry.digest),
                kind: UrlKind::Page,
                start: 0,
                len: 0,
            },
            entry.loc,
        );
        if let Some(extensions) = entry.extensions {
            self.has_extensions = true;
            if let Some(mut followed) = self.followed.take() {
                let Followed { kinds, base, keys, cut } = &mut followed;
                each_followed(*kinds, base, extensions, &mut |kind, url| {
                    self.follow(kind, url, keys, cut);
                });
                self.followed = Some(followed);
            }
        }
    }

    /// Keeps an entry, and the text of its loc if that may be needed and has room.
    fn add(&mut self, entry: DocumentEntry, loc: &str) {
        let position = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let is_known = self.known.as_ref().is_some_and(|known| known.may_have(entry.key));
        let (start, len) = if is_known { (0, 0) } else { self.keep(loc) };
        self.entries.push(DocumentEntry { position, start, len, ..entry });
    }

    /// Keeps a text if there is room; where it is, and its length, 0 if it is not.
    fn keep(&mut self, loc: &str) -> (u32, u32) {
        let Some(arena) = &mut self.arena else { return (0, 0) };
        if arena.len() + loc.len() > MAX_TEXTS {
            self.arena = None;
            return (0, 0);
        }
        let place = (u32::try_from(arena.len()), u32::try_from(loc.len()));
        arena.push_str(loc);
        // Both are within the limit, which is far below what fits.
        (place.0.unwrap_or_default(), place.1.unwrap_or_default())
    }

    fn follow(&mut self, kind: UrlKind, url: &str, keys: &mut HashSet<u64>, cut: &mut u64) {
        let key = loc_key(self.seed, url);
        if keys.contains(&key) {
            return;
        }
        if keys.len() >= MAX_FOLLOWED {
            *cut += 1;
            return;
        }
        keys.insert(key);
        let entry = DocumentEntry {
            key,
            position: 0,
            lastmod: None,
            hints: EntryHints::default(),
            digest: followed_digest(kind),
            kind,
            start: 0,
            len: 0,
        };
        self.add(entry, url);
    }

    /// Sorts, merges duplicates.
    pub fn finish(mut self) -> Document {
        self.entries.sort_unstable_by_key(|entry| (entry.key, entry.kind, entry.position));
        let (mut duplicates, mut first_duplicate) = (0, None::<(u32, u64)>);
        self.entries.dedup_by(|later, first| {
            if later.key != first.key {
                return false;
            }
            // An image that is listed as a page too has nothing to add to it.
            if later.kind == UrlKind::Page {
                duplicates += 1;
                let found = (later.position, later.key);
                first_duplicate = first_duplicate.map(|first| first.min(found)).or(Some(found));
            }
            if let Some(date) = later.lastmod
                && first.lastmod.is_none_or(|other| date.is_newer_than(other))
            {
                first.lastmod = Some(date);
            }
            true
        });
        if self.arena.is_none() {
            self.entries.iter_mut().for_each(|entry| (entry.start, entry.len) = (0, 0));
        }
        Document {
            pages: self.entries.iter().filter(|entry| entry.kind == UrlKind::Page).count(),
            entries: self.entries,
            arena: self.arena.unwrap_or_default(),
            future_lastmods: self.future,
            duplicates,
            first_duplicate: first_duplicate.map(|(_, key)| key),
            has_extensions: self.has_extensions,
            followed_cut: self.followed.map_or(0, |followed| followed.cut),
        }
    }
}

/// Hands on each URL that `kinds` follow of what an entry says, resolved
/// against `base`.
pub fn each_followed(
    kinds: Follow,
    base: &Url,
    extensions: &Extensions,
    take: &mut dyn FnMut(UrlKind, &str),
) {
    let Follow { image, video, alternate } = kinds;
    let images = extensions.images.iter().filter(|_| image);
    let images = images.filter_map(|i| Some((UrlKind::Image, i.loc.as_ref()?)));
    let videos = extensions.videos.iter().filter(|_| video);
    let videos = videos.flat_map(|v| [&v.content_loc, &v.player_loc]);
    let videos = videos.filter_map(|url| Some((UrlKind::Video, url.as_ref()?)));
    let links = extensions.alternates.iter().filter(|_| alternate);
    let links = links.map(|link| (UrlKind::Alternate, &link.href));
    for (kind, url) in images.chain(videos).chain(links) {
        if url.len() > MAX_FOLLOWED_BYTES {
            continue;
        }
        if is_absolute(url) {
            take(kind, url);
        } else if let Ok(resolved) = base.join(url) {
            take(kind, resolved.as_str());
        }
    }
}

/// Is this followed, and no page? So says the digest that a snapshot keeps.
pub(super) fn is_followed(digest: u32) -> bool {
    digest > FOLLOWED
}

fn is_absolute(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| {
        url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })
}

impl Document {
    /// The document that would yield this snapshot again: what is listed in
    /// it, without the texts.
    pub fn of_snapshot(snapshot: &Snapshot) -> Self {
        let listed = snapshot.entries().iter().filter(|entry| entry.missing_since.is_none());
        let entries: Vec<_> = (0..)
            .zip(listed)
            .map(|(position, entry)| DocumentEntry {
                key: entry.key,
                position,
                lastmod: entry.lastmod,
                hints: entry.hints,
                digest: entry.digest,
                kind: kind_of(entry.digest),
                start: 0,
                len: 0,
            })
            .collect();
        let pages = entries.iter().filter(|entry| entry.kind == UrlKind::Page).count();
        Self { entries, pages, ..Self::default() }
    }

    /// The entries, sorted by key.
    pub fn entries(&self) -> &[DocumentEntry] {
        &self.entries
    }

    /// The raw decoded loc of an entry of this document, if it was kept.
    #[cfg(test)]
    pub(super) fn loc(&self, entry: &DocumentEntry) -> Option<&str> {
        text_of(&self.arena, entry.start, entry.len)
    }

    /// The texts, and what is to be judged: entries by their index, with their slots in
    /// the next snapshot. They are copied, since entries lie by key, so that each look
    /// at the next one of a document waits for memory.
    pub fn into_listed(self, wanted: Vec<(u32, u32)>) -> (Texts, Vec<Listed>) {
        let mut listed = Vec::with_capacity(wanted.len());
        listed.extend(wanted.into_iter().filter_map(|(entry, slot)| {
            let DocumentEntry { key, start, len, lastmod, hints, kind, .. } =
                *self.entries.get(entry as usize)?;
            let second = lastmod.map_or(0, |lastmod| lastmod.at.as_second());
            let precision = lastmod.map(|lastmod| lastmod.precision);
            Some(Listed { key, second, slot, start, len, precision, hints, kind })
        }));
        (Texts(self.arena), listed)
    }

    /// This document with the entries of an older page of it behind its own. Of
    /// a key in both, this one's counts.
    #[must_use]
    pub fn with(mut self, older: Self) -> Self {
        let behind = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let shift = u32::try_from(self.arena.len()).ok();
        let shift = shift.filter(|_| self.arena.len() + older.arena.len() <= MAX_TEXTS);
        if shift.is_some() {
            self.arena.push_str(&older.arena);
        }
        self.entries.extend(older.entries.into_iter().map(|entry| {
            let position = entry.position.saturating_add(behind);
            match shift {
                Some(shift) => DocumentEntry { position, start: entry.start + shift, ..entry },
                None => DocumentEntry { position, start: 0, len: 0, ..entry },
            }
        }));
        // Stable: what was here first comes first.
        self.entries.sort_by_key(|entry| entry.key);
        self.entries.dedup_by_key(|entry| entry.key);
        self.pages = self.entries.iter().filter(|entry| entry.kind == UrlKind::Page).count();
        self.followed_cut += older.followed_cut;
        self.has_extensions |= older.has_extensions;
        self
    }

    /// Is a key listed?
    pub fn contains(&self, key: u64) -> bool {
        self.listed(key).is_some()
    }

    /// Is a key listed, and as a page?
    pub(super) fn lists_as_page(&self, key: u64) -> bool {
        self.listed(key).is_some_and(|entry| entry.kind == UrlKind::Page)
    }

    fn listed(&self, key: u64) -> Option<&DocumentEntry> {
        let index = self.entries.binary_search_by_key(&key, |entry| entry.key).ok()?;
        self.entries.get(index)
    }

    /// Position in the document of the entry at an index of [`Self::entries`].
    pub fn position(&self, index: u32) -> u32 {
        self.entries.get(index as usize).map_or(u32::MAX, |entry| entry.position)
    }
}

/// The raw decoded locs of a document, as far as they were kept.
#[derive(Debug)]
pub struct Texts(String);

/// An entry as it is judged.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    /// Keyed hash of the raw decoded loc.
    pub key: u64,
    second: i64,
    /// Index into the next snapshot.
    pub slot: u32,
    start: u32,
    len: u32,
    precision: Option<Precision>,
    /// changefreq and priority.
    pub hints: EntryHints,
    /// What it is.
    pub kind: UrlKind,
}

impl Texts {
    /// The loc of an entry, if it was kept.
    pub fn loc(&self, listed: &Listed) -> Option<&str> {
        text_of(&self.0, listed.start, listed.len)
    }
}

fn text_of(texts: &str, start: u32, len: u32) -> Option<&str> {
    let start = start as usize;
    texts.get(start..start + len as usize).filter(|loc| !loc.is_empty())
}

impl Listed {
    /// The date that counts, if it is believable at all; to the second.
    pub fn lastmod(&self) -> Option<Lastmod> {
        let at = Timestamp::from_second(self.second).ok()?;
        Some(Lastmod { at, precision: self.precision? })
    }
}

/// The key of an entry in a snapshot: a keyed hash of the loc as listed, the first
/// [`KEY_BITS`] of it.
pub fn loc_key(seed: u64, loc: &str) -> u64 {
    xxh3_64_with_seed(loc.as_bytes(), seed) >> (u64::BITS - KEY_BITS)
}

/// The digest of an entry that has no text: 0 of a page, and of what is followed one
/// that says what it is.
pub fn followed_digest(kind: UrlKind) -> u32 {
    if kind == UrlKind::Page { 0 } else { FOLLOWED + kind as u32 }
}

/// What an entry with this digest is.
fn kind_of(digest: u32) -> UrlKind {
    let kinds = UrlKind::ALL.into_iter();
    kinds.skip(1).find(|kind| digest == FOLLOWED + *kind as u32).unwrap_or_default()
}

/// Folds a digest to what a snapshot keeps; 0 stays 0, only 0 becomes 0, and
/// none becomes what stands for a followed entry.
#[allow(clippy::cast_possible_truncation)] // the halves of a u64, on purpose
fn fold(digest: u64) -> u32 {
    let folded = (digest >> 32) as u32 ^ digest as u32;
    if digest == 0 { 0 } else { folded.clamp(1, FOLLOWED) }
}
