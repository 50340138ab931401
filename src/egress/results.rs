//! From the results' stream into the store.
//!
//! A message is acknowledged when its results are committed, so nothing is
//! lost while the daemon is away; one that comes twice is answered by the
//! store as any repeated settle is. What can never be settled is terminated.

use std::fmt::Display;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{AckKind, Message};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::session::ANSWER;
use super::{BROKER, Egress, Trouble};
use crate::metrics::Egressed;
use crate::queue::TokenResult;
use crate::serve::message::{Poison, Report};

/// Messages that are settled together.
const TOGETHER: usize = 64;
/// Messages asked for at a time; each is within the server's `max_payload`.
const ASKED: usize = 128;
/// A request for messages stands so long.
const STANDS: Duration = Duration::from_secs(30);
/// In between the broker says this often that it is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// What the store could not take comes again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// Characters of what is no result, and of why, in the log.
const MAX_SHOWN: usize = 200;

/// What goes wrong on this side.
fn results(error: impl Display) -> Trouble {
    Trouble::Broker(format!("results cannot be asked for: {error}"))
}

/// Settles during one session.
pub(super) struct Settler<'a> {
    egress: &'a Egress,
    consumer: PullConsumer,
    /// The connection is gone.
    lost: CancellationToken,
    /// Messages that are asked for at a time, and for how long: what it allows.
    asks: (usize, Duration),
}

impl<'a> Settler<'a> {
    /// Begins once the broker answers for the consumer: a permission that is missing shows
    /// only there.
    pub(super) async fn begin(
        egress: &'a Egress,
        consumer: PullConsumer,
        lost: CancellationToken,
    ) -> Result<Self, Trouble> {
        let limits = &consumer.cached_info().config;
        let most = usize::try_from(limits.max_batch).ok().filter(|most| *most > 0);
        let longest = Some(limits.max_expires).filter(|longest| !longest.is_zero());
        let asks = (
            most.map_or(ASKED, |most| most.min(ASKED)),
            longest.map_or(STANDS, |longest| longest.min(STANDS)),
        );
        let settler = Self { egress, consumer, lost, asks };
        // Answered at once, with as many as there are.
        let asking = settler.consumer.fetch().max_messages(settler.asks.0).messages();
        let asked = timeout(ANSWER, asking).await.map_err(|_| results("no answer"))?;
        let mut first = asked.map_err(results)?.ready_chunks(TOGETHER);
        let mut has_answered = false;
        loop {
            match timeout(ANSWER, first.next()).await {
                Ok(Some(chunk)) => settler.settle_all(chunk).await?,
                Ok(None) => return Ok(settler),
                // Of fewer than were asked for the end may not be told.
                Err(_) if has_answered => return Ok(settler),
                Err(_) => return Err(results("no answer")),
            }
            has_answered = true;
        }
    }

    /// Settles until the session or the daemon ends.
    pub(super) async fn run(&self, stop: &CancellationToken) -> Result<(), Trouble> {
        let (most, stands) = self.asks;
        let messages = self
            .consumer
            .stream()
            .max_messages_per_batch(most)
            .expires(stands)
            .heartbeat(HEARTBEAT.min(stands / 2))
            .messages();
        let mut messages = messages.await.map_err(results)?.ready_chunks(TOGETHER);
        loop {
            let chunk = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.lost.cancelled() => return Ok(()),
                chunk = messages.next() => chunk,
            };
            let Some(chunk) = chunk else { return Err(results("they ended")) };
            if chunk.iter().any(Result::is_ok) {
                self.egress.proven();
            }
            self.settle_all(chunk).await?;
        }
    }

    /// Settles what came at once, which the store commits in one go; then an error if
    /// there was one among it.
    async fn settle_all<E: Display>(&self, chunk: Vec<Result<Message, E>>) -> Result<(), Trouble> {
        let (mut good, mut trouble) = (Vec::with_capacity(chunk.len()), None);
        for message in chunk {
            match message {
                Ok(message) => good.push(message),
                Err(error) => trouble = Some(results(error)),
            }
        }
        join_all(good.into_iter().map(|message| self.settle(message))).await;
        trouble.map_or(Ok(()), Err)
    }

    /// Settles what a message says, and answers it.
    async fn settle(&self, message: Message) {
        let kind = match Report::read(&message.payload) {
            Ok(report) => self.take(report, &message.payload).await,
            Err(poison) => {
                self.drop_poison(&poison, &message.payload);
                AckKind::Term
            }
        };
        // One that is lost with the connection is asked for again.
        let _ = message.ack_with(kind).await;
    }

    /// Says, and counts, what of a message is no result.
    fn drop_poison(&self, poison: &Poison, payload: &[u8]) {
        let short = |text: &str| text.chars().take(MAX_SHOWN).collect::<String>();
        let (why, shown) = (short(&poison.why), short(&String::from_utf8_lossy(payload)));
        tracing::warn!(results = poison.results, why, shown, "what is no result is dropped");
        self.egress.metrics.egressed(Egressed::Poison, poison.results);
    }

    async fn take(&self, mut report: Report, payload: &[u8]) -> AckKind {
        let Egress { store, metrics, unsettled, .. } = self.egress;
        let settlements = std::mem::take(&mut report.settlements);
        let tokens: Vec<_> = settlements.iter().map(|settlement| settlement.token).collect();
        let said = if settlements.is_empty() {
            Vec::new()
        } else {
            match store.settle(settlements).await {
                Ok(said) => said,
                Err(error) => {
                    self.egress.stuck(&error);
                    return AckKind::Nak(Some(AGAIN));
                }
            }
        };
        if said.contains(&TokenResult::Ok) {
            self.egress.written();
        }
        // Not before: a message that the store could not take comes once more.
        if let Some(poison) = report.poison.take() {
            self.drop_poison(&poison, payload);
        }
        unsettled.remove(tokens.into_iter());
        metrics.egress_unsettled(BROKER, unsettled.len());
        metrics.egressed(Egressed::Result, report.settled(metrics, said));
        AckKind::Ack
    }
}
