//! What a document says beside URLs and dates, taken over in a second reading.
//!
//! The first reading keeps hashes only, so that memory does not grow with the
//! texts of a document. Where the hash of an entry is another than the last
//! time, and its row is known, the document is read once more from the body
//! that is still at hand, and what those entries say is handed to the store in
//! bounded parts. Doing it twice does nothing; until the poll ends, the old
//! hashes stand, so a crash in the middle loses nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::document::Poll;
use super::read::Manner;
use crate::diff::document::loc_key;
use crate::diff::snapshot::{Row, SnapshotEntry};
use crate::fetch::Fetched;
use crate::model::UrlId;
use crate::parse::{self, Item};
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
    /// Takes over what the wanted entries of a document say.
    pub(super) async fn take_texts(
        &self,
        fetched: Option<Arc<Fetched>>,
        manner: Manner,
        wanted: Wanted,
        origin: Origin,
    ) -> Result<(), StoreError> {
        if wanted.0.is_empty() {
            return Ok(());
        }
        let store = &self.poller.store;
        let Some(fetched) = fetched else {
            let mut rest = wanted.silenced().into_iter().peekable();
            while rest.peek().is_some() {
                store.apply(origin, rest.by_ref().take(MAX_ENTRIES).collect()).await?;
            }
            return Ok(());
        };
        let (parts, mut taken) = mpsc::channel(1);
        let reading = self.on_cpu(move || {
            second_reading(&fetched, &manner, &wanted, &mut |part| {
                // Nobody takes it any more when the store has failed.
                parts.blocking_send(part).map_or(ControlFlow::Break(()), ControlFlow::Continue)
            });
        });
        // Owns its end of the channel, so that the reading never waits in vain.
        let applying = async move {
            while let Some(part) = taken.recv().await {
                store.apply(origin, part).await?;
            }
            Ok(())
        };
        let (read, applied) = tokio::join!(reading, applying);
        applied.and_then(|()| read.map_err(StoreError::Engine))
    }
}

/// Reads a document for the texts of some entries, in its own order; of an
/// entry that comes again, and of two spellings of one page, the first counts.
fn second_reading(
    fetched: &Fetched,
    manner: &Manner,
    wanted: &Wanted,
    hand_on: &mut dyn FnMut(Vec<Effect>) -> ControlFlow<()>,
) {
    let mut done = std::collections::HashSet::new();
    let (mut part, mut bytes) = (Vec::new(), 0);
    let context = manner.context(fetched);
    parse::parse(&mut manner.decoded(fetched), &context, &mut |item| {
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
        part.push(Effect::Extensions { url: *url, said });
        if part.len() < MAX_ENTRIES && bytes < MAX_BYTES {
            return ControlFlow::Continue(());
        }
        bytes = 0;
        hand_on(std::mem::take(&mut part))
    });
    // What is followed has no text of its own.
    let silent = wanted.0.iter().filter(|(_, url)| done.insert(*url));
    part.extend(silent.map(|(_, url)| Effect::Extensions { url: *url, said: None }));
    while !part.is_empty() {
        let rest = part.split_off(part.len().min(MAX_ENTRIES));
        if hand_on(std::mem::replace(&mut part, rest)).is_break() {
            return;
        }
    }
}
