//! Streams that come in: what clients push, taken in many at a time.
//!
//! A stream reads on when what it has read is committed and answered, so that
//! HTTP/2 holds its sender back; what arrives meanwhile is the next job.

use std::time::Duration;

use futures_util::future::{Either, select};
use prost::Message as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tonic::{Status, Streaming};

use super::proto::ack_message::Status as Ack;
use super::proto::{AckMessage, BatchAck, DiscoveredBatch, UrlItem};
use super::words::{ack_id, discovered_of, put_of};
use super::{Answering, Answers, Frontier, answers, stopping};
use crate::store::StoreError;
use crate::store::frontier::{MAX_PUT, Put, Taken};

/// Items taken in by one job at most.
const ITEMS: usize = 500;
/// Bytes of such a job, from which on no further item is waited for.
const BYTES: usize = 1 << 20;
/// For so long items are gathered, if they come one by one.
const GATHER: Duration = Duration::from_millis(3);

impl Frontier {
    /// Takes in items, and acknowledges each.
    pub(super) fn take(&self, items: Streaming<UrlItem>) -> Result<Answers<AckMessage>, Status> {
        let place = self.place()?;
        let (answering, stream) = answers();
        tokio::spawn(self.clone().take_items(items, answering, place));
        Ok(stream)
    }

    async fn take_items(
        self,
        mut items: Streaming<UrlItem>,
        mut answering: Answering<AckMessage>,
        _place: OwnedSemaphorePermit,
    ) {
        while let Some(first) = self.next(&mut items, &mut answering).await {
            let (batch, broken) = gather(first, &mut items).await;
            let mut acks = Vec::with_capacity(batch.len());
            let mut puts = Vec::with_capacity(batch.len());
            for item in batch {
                let id = ack_id(&item);
                let put = put_of(item);
                acks.push((id, put.is_some()));
                puts.extend(put);
            }
            let mut taken = self.put(puts).await.into_iter();
            for (id, is_put) in acks {
                let status = if is_put { taken.next().unwrap_or(Ack::Fail) } else { Ack::Skipped };
                let ack = AckMessage { id, status: status.into() };
                if !answering.hand(ack).await {
                    return;
                }
            }
            if let Some(status) = broken {
                answering.end(status);
                return;
            }
        }
    }

    /// Takes in URLs that were found, and acknowledges each batch.
    pub(super) fn take_batches(
        &self,
        batches: Streaming<DiscoveredBatch>,
    ) -> Result<Answers<BatchAck>, Status> {
        let place = self.place()?;
        let (answering, stream) = answers();
        tokio::spawn(self.clone().take_discovered(batches, answering, place));
        Ok(stream)
    }

    async fn take_discovered(
        self,
        mut batches: Streaming<DiscoveredBatch>,
        mut answering: Answering<BatchAck>,
        _place: OwnedSemaphorePermit,
    ) {
        while let Some(DiscoveredBatch { id, items }) =
            self.next(&mut batches, &mut answering).await
        {
            let mut statuses = Vec::with_capacity(items.len());
            let mut items = items.into_iter().map(discovered_of);
            loop {
                let part: Vec<Put> = items.by_ref().take(MAX_PUT).collect();
                if part.is_empty() {
                    break;
                }
                statuses.extend(self.put(part).await.into_iter().map(i32::from));
            }
            if !answering.hand(BatchAck { id, statuses }).await {
                return;
            }
        }
    }

    /// The next message of a stream; none when it has ended, or the daemon stops.
    async fn next<M, A>(
        &self,
        messages: &mut Streaming<M>,
        answering: &mut Answering<A>,
    ) -> Option<M> {
        let next = {
            let message = std::pin::pin!(messages.message());
            let stopped = std::pin::pin!(self.stop.cancelled());
            match select(stopped, message).await {
                Either::Left(_) => Err(stopping()),
                Either::Right((message, _)) => message,
            }
        };
        match next {
            Ok(message) => message,
            Err(status) => {
                // Who has gone hears nothing.
                answering.end(status);
                None
            }
        }
    }

    /// Takes in a part; one answer each.
    async fn put(&self, puts: Vec<Put>) -> Vec<Ack> {
        if puts.is_empty() {
            return Vec::new();
        }
        let count = puts.len();
        if self.store.is_short_of_disk() {
            if self.may_complain() {
                tracing::warn!("pushed URLs are refused: the disk is nearly full");
            }
            return vec![Ack::Fail; count];
        }
        match self.store.frontier_put(puts).await {
            Ok(taken) => taken.into_iter().map(ack_of).collect(),
            Err(error) => {
                match error {
                    StoreError::Busy
                    | StoreError::Away(_)
                    | StoreError::Unreached(_)
                    | StoreError::Full
                    | StoreError::Closed => {
                        if self.may_complain() {
                            tracing::warn!(%error, urls = count, "pushed URLs not taken in");
                        }
                    }
                    _ => tracing::error!(%error, urls = count, "pushed URLs not taken in"),
                }
                vec![Ack::Fail; count]
            }
        }
    }
}

/// The first item, and those that come with it; and what is wrong with what follows.
async fn gather(first: UrlItem, items: &mut Streaming<UrlItem>) -> (Vec<UrlItem>, Option<Status>) {
    let mut bytes = first.encoded_len();
    let mut batch = vec![first];
    let end = Instant::now() + GATHER;
    while batch.len() < ITEMS && bytes < BYTES {
        match timeout_at(end, items.message()).await {
            Ok(Ok(Some(item))) => {
                bytes += item.encoded_len();
                batch.push(item);
            }
            // An end is met again by whoever asks next; an error is told once.
            Ok(Ok(None)) | Err(_) => break,
            Ok(Err(status)) => return (batch, Some(status)),
        }
    }
    (batch, None)
}

fn ack_of(taken: Taken) -> Ack {
    match taken {
        Taken::Ok => Ack::Ok,
        Taken::Skipped => Ack::Skipped,
    }
}
