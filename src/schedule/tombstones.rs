//! What a feed says was deleted: judged by the site's rules, told to the store.
//!
//! A window never removes by what it leaves out, but a tombstone (RFC 6721) is
//! a statement. It only asks that a fetcher goes and looks; what the store makes
//! of it may be repeated without harm.

use jiff::Timestamp;

use super::document::Poll;
use crate::parse::Deleted;
use crate::store::{CHUNK, Deletion, StoreError};

/// A page that a document says is gone, owned.
#[derive(Debug, Clone)]
pub(super) struct Tombstone {
    loc: String,
    when: Option<Timestamp>,
}

impl Tombstone {
    pub(super) fn of(deleted: Deleted<'_>) -> Self {
        Self { loc: deleted.loc.to_owned(), when: deleted.when }
    }
}

impl Poll<'_> {
    /// Tells the store what the document says was deleted; says how many URLs
    /// were removed for it.
    pub(super) async fn bury(&self, tombstones: Vec<Tombstone>) -> Result<u64, StoreError> {
        let judged = tombstones.into_iter().filter_map(|tombstone| {
            let url = self.admit(&tombstone.loc)?;
            Some(Deletion { url, when: tombstone.when })
        });
        let mut rest = judged.peekable();
        let mut removed = 0;
        while rest.peek().is_some() {
            let chunk: Vec<Deletion> = rest.by_ref().take(CHUNK).collect();
            removed += self.poller.store.bury(self.origin(true), chunk).await?;
        }
        Ok(removed)
    }
}
