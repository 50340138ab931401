//! What a document says beside URLs and dates, taken over in a reading of its own.
//!
//! Where the hash of an entry is another than the last time, and its row is
//! known, the document is read once more, and what those entries say is handed
//! to the store in bounded parts. Until the poll ends, the old hashes stand, so a
//! crash in the middle loses nothing.

use std::ops::ControlFlow;

use super::again::{Again, HandOn};
use super::document::Poll;
use crate::diff::document::loc_key;
use crate::diff::snapshot::{Row, SnapshotEntry};
use crate::model::UrlId;
use crate::parse::Item;
use crate::store::{Effect, Origin, Said, StoreError};

/// Entries in one part at most.
const MAX_ENTRIES: usize = 500;
/// Text of one part, after which it is handed on.
const MAX_BYTES: usize = 1024 * 1024;

/// The entries whose texts are wanted, by the key of their loc, ascending.
#[derive(Debug, Default)]
pub(super) struct Wanted(Vec<(u64, UrlId)>);

impl Wanted {
    /// Those of the restated entries that became rows.
    pub(super) fn of(restated: &[u32], next: &[SnapshotEntry]) -> Self {
        let entries = restated.iter().filter_map(|slot| next.get(*slot as usize));
        let rows = entries.filter_map(|entry| match entry.row {
            Row::Url(url) => Some((entry.key, url)),
            Row::Rejected(_) => None,
        });
        Self(rows.collect())
    }

    /// Those that say nothing any more: of a document without any extension
    /// all of them.
    fn silenced(&self) -> Vec<Effect> {
        self.0.iter().map(|(_, url)| Effect::Extensions { url: *url, said: None }).collect()
    }
}

impl Poll<'_> {
    /// Takes over what the wanted entries of a document say; `again` is `None`
    /// where it says nothing of any.
    pub(super) async fn take_texts(
        &self,
        again: Option<Again>,
        wanted: Wanted,
        origin: Origin,
    ) -> Result<(), StoreError> {
        if wanted.0.is_empty() {
            return Ok(());
        }
        let store = &self.poller.store;
        let Some(again) = again else {
            let mut rest = wanted.silenced().into_iter().peekable();
            while rest.peek().is_some() {
                store.apply(origin, rest.by_ref().take(MAX_ENTRIES).collect()).await?;
            }
            return Ok(());
        };
        let mut parts = self.in_parts(move |hand_on| texts(&again, &wanted, hand_on)).await;
        while let Some(part) = parts.next().await {
            store.apply(origin, part).await?;
        }
        parts.end().await
    }
}

/// Reads a document for the texts of some entries, in its own order; of an
/// entry that comes again, and of two spellings of one page, the first counts.
fn texts(again: &Again, wanted: &Wanted, hand_on: &mut HandOn<'_, Vec<Effect>>) {
    let mut done = std::collections::HashSet::new();
    let (mut part, mut bytes) = (Vec::new(), 0);
    let manner = again.manner();
    again.read(&mut |item, _| {
        let Item::Entry(entry) = item else { return ControlFlow::Continue(()) };
        let key = loc_key(manner.seed, entry.loc);
        let Ok(at) = wanted.0.binary_search_by_key(&key, |(key, _)| *key) else {
            return ControlFlow::Continue(());
        };
        let Some((_, url)) = wanted.0.get(at).filter(|(_, url)| done.insert(*url)) else {
            return ControlFlow::Continue(());
        };
        let said = entry.extensions.and_then(|all| {
            let data = serde_json::to_string(all).ok()?;
            Some(Said { data, marks: all.marks(manner.now) })
        });
        bytes += said.as_ref().map_or(0, |said| said.data.len());
        part.push((*url, said));
        if part.len() < MAX_ENTRIES && bytes < MAX_BYTES {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        hand_on(in_order(std::mem::take(&mut part)))
    });
    // What is followed has no text of its own.
    let silent = wanted.0.iter().filter(|(_, url)| done.insert(*url));
    part.extend(silent.map(|(_, url)| (*url, None)));
    while !part.is_empty() {
        let rest = part.split_off(part.len().min(MAX_ENTRIES));
        if hand_on(in_order(std::mem::replace(&mut part, rest))).is_break() {
            return;
        }
    }
}

/// In the order of the table: rows of a document are numbered otherwise than it lists
/// them.
fn in_order(mut part: Vec<(UrlId, Option<Said>)>) -> Vec<Effect> {
    part.sort_unstable_by_key(|(url, _)| *url);
    part.into_iter().map(|(url, said)| Effect::Extensions { url, said }).collect()
}
