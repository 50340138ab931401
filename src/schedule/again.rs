//! A document read once more, for what the first reading did not keep.
//!
//! The first reading keeps hashes and a bounded part of the texts, so memory does
//! not grow with a document. What is needed of the rest is taken from the body,
//! which is still at hand, and goes to the store in bounded parts. Doing it twice
//! does nothing; until the poll ends, nothing of it is relied upon.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::Url;

use super::document::Poll;
use super::read::Manner;
use crate::fetch::Fetched;
use crate::parse::{self, Item};
use crate::store::StoreError;

/// Where a reading puts what it has; `Break` when nobody wants more.
pub(super) type HandOn<'a, T> = dyn FnMut(T) -> ControlFlow<()> + 'a;

/// The bodies of a document: its own, then those of older pages of it.
#[derive(Debug, Clone)]
pub(super) struct Again {
    own: Arc<Fetched>,
    older: Vec<Arc<Fetched>>,
    manner: Manner,
}

/// What a reading hands on that others wait for. Dropped, the reading ends.
pub(super) struct Parts<T> {
    parts: mpsc::Receiver<T>,
    reading: JoinHandle<()>,
}

impl Again {
    pub(super) fn new(own: Arc<Fetched>, manner: Manner) -> Self {
        Self { own, older: Vec::new(), manner }
    }

    pub(super) fn add(&mut self, page: Arc<Fetched>) {
        self.older.push(page);
    }

    pub(super) fn own(&self) -> &Fetched {
        &self.own
    }

    pub(super) fn manner(&self) -> &Manner {
        &self.manner
    }

    /// Reads all bodies in their order; `take` is given the URL of each besides.
    pub(super) fn read(&self, take: &mut dyn FnMut(&Item<'_>, &Url) -> ControlFlow<()>) {
        for body in std::iter::once(&self.own).chain(&self.older) {
            let mut flow = ControlFlow::Continue(());
            self.read_one(body, &mut |item| {
                flow = take(item, &body.head.final_url);
                flow
            });
            if flow.is_break() {
                return;
            }
        }
    }

    /// Reads the document's own body only.
    pub(super) fn read_own(&self, take: &mut dyn FnMut(&Item<'_>) -> ControlFlow<()>) {
        self.read_one(&self.own, take);
    }

    fn read_one(&self, body: &Fetched, take: &mut dyn FnMut(&Item<'_>) -> ControlFlow<()>) {
        let context = self.manner.context(body);
        parse::parse(&mut self.manner.decoded(body), &context, &mut |item| take(&item));
    }
}

impl<T> Parts<T> {
    /// The next part, while there is one.
    pub(super) async fn next(&mut self) -> Option<T> {
        self.parts.recv().await
    }

    /// Waits for the end of the reading; a panic in it is a defect of ours.
    pub(super) async fn end(self) -> Result<(), StoreError> {
        drop(self.parts);
        self.reading.await.map_err(|error| {
            tracing::error!(%error, "reading a document again panicked");
            StoreError::Engine("the document could not be read again".to_owned())
        })
    }
}

impl Poll<'_> {
    /// Starts a reading whose parts are taken one at a time. It waits for whoever
    /// takes them, so it has no share in the turns of [`Poll::on_cpu`]; there is one
    /// such reading at a time.
    pub(super) async fn in_parts<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut HandOn<'_, T>) + Send + 'static,
    ) -> Parts<T> {
        let (sender, parts) = mpsc::channel(1);
        let reading = self.poller.waiting.start(move || {
            read(&mut |part| {
                let sent = sender.blocking_send(part);
                sent.map_or(ControlFlow::Break(()), ControlFlow::Continue)
            });
        });
        Parts { parts, reading: reading.await }
    }
}
