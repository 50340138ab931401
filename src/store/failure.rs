//! How the store ends by itself: once, and for good.
//!
//! After a failed sync nobody knows what is on the disk: the kernel may have
//! dropped the pages and say "well" the next time. So nothing is written any
//! more, the log is left for the next start to read, and the process ends. The
//! same holds for a database that turns out to be damaged.

use std::sync::Arc;

use tokio::sync::watch;

use super::StoreError;

/// Shared by all who write; the first word counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Failure(Arc<watch::Sender<Option<StoreError>>>);

impl Failure {
    /// From now on nothing is written.
    pub(super) fn declare(&self, error: &StoreError) {
        let first = self.0.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_with(|| error.clone());
            first
        });
        if first {
            tracing::error!(%error, "the store stops");
        }
    }

    /// Why nothing may be written any more, if it has come to that.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match &*self.0.borrow() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Resolves when it comes to that, with the reason.
    pub(super) async fn wait(&self) -> StoreError {
        let mut seen = self.0.subscribe();
        let came = seen.wait_for(Option::is_some).await;
        // The sender lives as long as this does.
        came.ok().and_then(|known| known.clone()).unwrap_or(StoreError::Closed)
    }
}
