//! From the queue into the stream.
//!
//! A lease is published once it may be fetched, so that no consumer has to
//! wait; until then it is held here, and counts as in flight. Its token is the
//! message's id: the stream takes a repeated one for the same. What is not
//! acknowledged goes back into the queue at once, and so does a lease that is
//! nearly over by then. A broker that has refused
//! something gets one URL, and more when it has taken that.

use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use futures_util::future::{join_all, select_all};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::book::Held;
use super::session::broker;
use super::{Egress, Trouble};
use crate::config::subject::Filling;
use crate::log::redact;
use crate::metrics::Egressed;
use crate::queue::Leased;
use crate::serve::message;
use crate::store::StoreError;

/// First pause after a look that yielded nothing; it doubles.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Longest such pause.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// All is looked at again after this: a crawl may have come with a reload, and
/// leases may have been settled over HTTP.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The same at first where there is no room for more; it doubles while nothing was settled
/// there.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(2);
/// A message that is too large for server or stream is tried again after this.
const TOO_LARGE_AGAIN: Duration = Duration::from_secs(3_600);

/// Of its lease a URL must have this part left, or it is not worth fetching: by a stream
/// that answers late, or a machine that stood still.
const LEAST_LEFT: u32 = 8;

/// Why a message was not acknowledged when the connection went.
const CONNECTION: &str = "the connection was lost";
/// How far it is with publishing is noted so often at most, so that what is published is
/// due no later than so long after the last note.
pub(super) const NOTE_EVERY: Duration = Duration::from_secs(5);
/// A stop waits so long for acknowledgements.
const STOP_WAITS: Duration = Duration::from_secs(3);

/// Why one message was not acknowledged.
enum Unsent {
    /// It alone is at fault, with so many bytes.
    TooLarge(usize),
    /// So would all others be.
    Refused(String),
    /// There was nobody to take it, or no time.
    Lost(&'static str),
}

/// Publishes during one session.
pub(super) struct Publisher<'a> {
    egress: &'a Egress,
    context: Context,
    /// The connection is gone.
    lost: CancellationToken,
    /// The daemon ends.
    stop: CancellationToken,
}

impl<'a> Publisher<'a> {
    pub(super) fn new(
        egress: &'a Egress,
        context: Context,
        lost: CancellationToken,
        stop: CancellationToken,
    ) -> Self {
        Self { egress, context, lost, stop }
    }

    /// Leases and publishes until the session or the daemon ends; then gives
    /// back what is still held.
    pub(super) async fn run(&self) -> Result<(), Trouble> {
        let mut held = Held::default();
        let ended = self.go_on(&mut held).await;
        self.egress.owed.add(held.tokens(), Duration::ZERO);
        let given_back = self.egress.give_back().await;
        ended.and(given_back.map_err(Trouble::from))
    }

    async fn go_on(&self, held: &mut Held) -> Result<(), Trouble> {
        let egress = self.egress;
        let config = &egress.config;
        let mut turn = 0;
        let mut pause = MIN_PAUSE;
        let (mut looked, mut again, mut is_full) = (Instant::now(), LOOK_FOR_ROOM, false);
        let mut noted: Option<Instant> = None;
        while !self.stop.is_cancelled() && !self.lost.is_cancelled() {
            let ready = held.take_ready(egress.clock.steady(), config.batch as usize);
            if !ready.is_empty() {
                if noted.is_none_or(|at| at.elapsed() >= NOTE_EVERY) {
                    noted = Some(Instant::now());
                    // Before it is so: what is published must not be taken for what is not.
                    // Where it cannot be noted a kill has some fetched in vain, no more.
                    let now = egress.clock.steady();
                    let _ = egress.store.note_published(&egress.worker(), now).await;
                }
                self.publish(ready).await?;
                continue;
            }
            let look_at = looked + if is_full { again } else { LOOK_AGAIN };
            if Instant::now() >= look_at {
                let before = egress.unsettled.len();
                egress.take_stock(held).await?;
                let is_fewer = egress.unsettled.len() < before;
                again = if is_fewer { LOOK_FOR_ROOM } else { (again * 2).min(LOOK_AGAIN) };
                looked = Instant::now();
            }
            let (count, first_end) = egress.count_unsettled();
            let mut room = config.in_flight.saturating_sub(count);
            if egress.is_refused() {
                room = room.min(1_usize.saturating_sub(held.len()));
            }
            is_full = room == 0;
            let look_at = looked + if is_full { again } else { LOOK_AGAIN };
            let leased = if room > 0 { self.lease(room, &mut turn).await? } else { Vec::new() };
            if !leased.is_empty() {
                held.add(leased);
                pause = MIN_PAUSE;
                continue;
            }
            let is_over = tokio::select! {
                () = self.stop.cancelled() => true,
                () = self.lost.cancelled() => true,
                () = egress.until(held.next_at()) => false,
                () = egress.until(first_end.filter(|_| room == 0)) => false,
                () = egress.unsettled.fewer(), if room == 0 => false,
                () = self.any_due(pause), if room > 0 => false,
                () = tokio::time::sleep_until(look_at) => false,
            };
            if is_over {
                break;
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
        Ok(())
    }

    /// Resolves when a URL of one of the crawls may be leased.
    async fn any_due(&self, pause: Duration) {
        let store = &self.egress.store;
        let crawls = self.egress.config.crawls.iter();
        select_all(crawls.map(|crawl| Box::pin(store.wait_for_due(crawl)))).await;
        // What is due may not be ours to have yet.
        tokio::time::sleep(pause).await;
    }

    /// Leases of the first crawl from `turn` on that has something.
    async fn lease(&self, room: usize, turn: &mut usize) -> Result<Vec<Leased>, Trouble> {
        let Egress { config, store, metrics, .. } = self.egress;
        for _ in 0..config.crawls.len() {
            let crawl = &config.crawls[*turn % config.crawls.len()];
            *turn += 1;
            let began = self.egress.clock.steady();
            let batch = match store.lease(self.egress.request(crawl, room)).await {
                Ok(batch) => batch,
                // A crawl comes and goes with the sites of the config.
                Err(StoreError::NotFound(_)) => {
                    self.egress.has_crawl(crawl, false);
                    continue;
                }
                Err(error) => {
                    if matches!(error, StoreError::Away(_) | StoreError::Unreached(_)) {
                        self.egress.not_answered(began);
                    }
                    return Err(error.into());
                }
            };
            self.egress.has_crawl(crawl, true);
            if !batch.urls.is_empty() {
                self.egress.written();
                message::count_leased(metrics, crawl, &batch);
                self.egress.unsettled.add(&batch.urls, self.egress.clock.steady());
                return Ok(batch.urls);
            }
        }
        Ok(Vec::new())
    }

    /// Publishes leases and gives back those that are not acknowledged; an
    /// error where the reason is not the message itself.
    async fn publish(&self, leases: Vec<Leased>) -> Result<(), Trouble> {
        let metrics = &self.egress.metrics;
        let least = self.egress.config.lease / LEAST_LEFT;
        let (leases, late): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|leased| self.left(leased) >= least);
        let sent = join_all(leases.into_iter().map(|leased| self.publish_one(leased))).await;
        let (mut acknowledged, mut too_large) = (0, Vec::new());
        let mut unsent: Vec<_> = late.into_iter().map(|leased| leased.token).collect();
        let mut trouble = None;
        for (leased, sent) in sent {
            let token = leased.token;
            match sent {
                Ok(()) => acknowledged += 1,
                Err(Unsent::TooLarge(bytes)) => too_large.push((leased, bytes)),
                Err(Unsent::Refused(error)) => {
                    unsent.push(token);
                    self.egress.refused();
                    trouble.get_or_insert(Trouble::Refused(error));
                }
                Err(Unsent::Lost(how)) => {
                    unsent.push(token);
                    trouble.get_or_insert(broker(how));
                }
            }
        }
        metrics.egressed(Egressed::Acknowledged, acknowledged);
        if let Some((Leased { url, .. }, bytes)) = too_large.first() {
            let urls = too_large.len();
            let url = Url::parse(url).map_or_else(|_| url.clone(), |url| redact(&url));
            tracing::warn!(urls, url, bytes, "messages are too large for the server or the stream");
        }
        if trouble.is_none() && acknowledged > 0 && self.egress.is_refused() {
            self.egress.is_there();
        }
        let too_large = too_large.into_iter().map(|(leased, _)| leased.token);
        self.egress.owed.add(too_large, TOO_LARGE_AGAIN);
        self.egress.owed.add(unsent, Duration::ZERO);
        self.egress.give_back().await?;
        trouble.map_or(Ok(()), Err)
    }

    async fn publish_one(&self, leased: Leased) -> (Leased, Result<(), Unsent>) {
        let filling =
            Filling { crawl: &leased.crawl, site: leased.site.as_deref(), host: &leased.host };
        let subject = self.egress.config.subject.fill(filling);
        let publish = || {
            let id = leased.token.to_string();
            let message = PublishMessage::build().message_id(id).payload(self.payload(&leased));
            self.egress.metrics.egressed(Egressed::Published, 1);
            async { self.context.send_publish(subject.clone(), message).await?.await }
        };
        let sending = async {
            match publish().await {
                // The answer may have been lost; if so, the stream knows it again.
                Err(error) if error.kind() == PublishErrorKind::TimedOut => publish().await,
                other => other,
            }
        };
        let acknowledged = tokio::select! {
            biased;
            said = sending => said.map(|_| ()).map_err(|error| self.unsent(&subject, &leased, &error)),
            () = self.lost.cancelled() => Err(Unsent::Lost(CONNECTION)),
            () = self.out_of_time() => Err(Unsent::Lost("the daemon stops")),
        };
        (leased, acknowledged)
    }

    /// The message of a lease, some of whose time has passed since it was made.
    fn payload(&self, leased: &Leased) -> Bytes {
        let published = Leased { expires_in: self.left(leased), ..leased.clone() };
        message::of_lease(published, |at| self.egress.clock.shown_at(at)).into()
    }

    /// How long it lasts from now on.
    fn left(&self, leased: &Leased) -> Duration {
        let left = leased.expires_at.duration_since(self.egress.clock.steady());
        // Negative means that it is over.
        Duration::try_from(left).unwrap_or_default()
    }

    /// What became of a message of this subject that was not acknowledged.
    fn unsent(&self, subject: &str, leased: &Leased, error: &PublishError) -> Unsent {
        let too_large = || Unsent::TooLarge(self.payload(leased).len());
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => too_large(),
            _ if said_code(error) == Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM) => too_large(),
            PublishErrorKind::StreamNotFound => Unsent::Refused(format!(
                "no stream takes the subject {subject}: stream {} must have it",
                self.egress.config.stream
            )),
            // Whoever waits for an answer is told before the loss is.
            PublishErrorKind::BrokenPipe => Unsent::Lost(CONNECTION),
            _ if self.lost.is_cancelled() => Unsent::Lost(CONNECTION),
            _ => Unsent::Refused(error.to_string()),
        }
    }

    /// Resolves when a stop has waited long enough for acknowledgements.
    async fn out_of_time(&self) {
        self.stop.cancelled().await;
        tokio::time::sleep(STOP_WAITS).await;
    }
}

/// What the stream says, where it is the stream that answers.
fn said_code(error: &PublishError) -> Option<ErrorCode> {
    let said = std::error::Error::source(error)?.downcast_ref::<jetstream::Error>()?;
    Some(said.error_code())
}

impl Egress {
    /// Resolves at a time, or never.
    async fn until(&self, at: Option<jiff::Timestamp>) {
        match at {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}
