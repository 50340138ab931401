//! What a feed says was deleted: judged by the site's rules, told to the store.
//!
//! A window never removes by what it leaves out, but a tombstone (RFC 6721) is
//! a statement. It only asks that a fetcher goes and looks; what the store makes
//! of it may be repeated without harm.

use std::ops::ControlFlow;

use super::again::Again;
use super::document::Poll;
use crate::parse::Item;
use crate::store::{CHUNK, Deletion, StoreError};

impl Poll<'_> {
    /// Tells the store what the document says was deleted; says how many URLs
    /// were removed for it.
    pub(super) async fn bury(&self, again: Again) -> Result<u64, StoreError> {
        let (rules, source) = (self.rules.clone(), self.target.url.clone());
        let reading = self.in_parts(move |hand_on| {
            let mut part = Vec::new();
            again.read_own(&mut |item| {
                let Item::Deleted(page) = item else { return ControlFlow::Continue(()) };
                let Ok(url) = rules.admit(page.loc, &source) else {
                    return ControlFlow::Continue(());
                };
                part.push(Deletion { url, when: page.when });
                if part.len() < CHUNK {
                    return ControlFlow::Continue(());
                }
                hand_on(std::mem::take(&mut part))
            });
            // Whether anybody takes the last one is their business.
            let _ = hand_on(part);
        });
        let mut parts = reading.await;
        let mut removed = 0;
        while let Some(part) = parts.next().await {
            removed += self.poller.store.bury(self.origin(true), part).await?;
        }
        parts.end().await?;
        Ok(removed)
    }
}
