//! `WebSub` (W3C, 2018-01-23), the subscriber's memory: which sources name
//! hubs, what hubs were told to push to, and what they have pushed.
//!
//! A subscription is a row of callbacks: asked for, verified, given up. It is
//! renewed, and replaced when hub or topic change, by a new callback; the old
//! one holds until the new one is verified, and is given up then. What a hub
//! may make us keep is bounded: [`MAX_WAITING`] pushes and their bytes, and a
//! few callbacks a source. What each request means is [`rules`]; who talks to
//! hubs is the schedule's.

mod callbacks;
mod calls;
mod deliveries;
pub mod rules;
mod wishes;

use std::time::Duration;

use super::sql::{self, Connection, OptionalExtension};
use jiff::Timestamp;
use url::Url;

use super::views::PushView;
use super::{Store, StoreError, engine, timestamp};
use crate::model::SourceId;
pub use deliveries::{Delivered, Delivery, MAX_PUSH, MAX_WAITING, PushEnd, Taken};
use rules::Mode;

/// Hubs of one document that are kept.
pub const MAX_HUBS: usize = 8;
/// Characters of the URL of a hub or a topic.
pub const MAX_URL: usize = 2_048;
/// Hubs asked in one round.
const ROUND: i64 = 16;
/// Between two tries to tell a hub that we leave.
const FAREWELL_MS: i64 = 3_600_000;
/// Least time between two requests for one source, whatever its document names.
const SPACING_MS: i64 = 3_600_000;

/// Column `state` of callbacks.
mod state {
    pub(super) const ASKED: i64 = 0;
    pub(super) const ACTIVE: i64 = 1;
    pub(super) const LEAVING: i64 = 2;
}

/// Names one callback: 128 random bits, written as 32 hexadecimal digits. Who
/// has it may speak as the hub.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CallbackId(pub [u8; 16]);

impl CallbackId {
    /// Reads what was written by `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_one)?;
        Some(Self(bits.to_be_bytes()))
    }
}

impl std::fmt::Display for CallbackId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Debug for CallbackId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallbackId(…)")
    }
}

/// What a document says of hubs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Named {
    /// It was not read to its end.
    #[default]
    Unknown,
    /// It names none.
    Nothing,
    /// It names these, the preferred one first, at most [`MAX_HUBS`].
    Hubs {
        /// What it names as its own URL.
        topic: String,
        /// http or https, no longer than [`MAX_URL`].
        hubs: Vec<String>,
        /// Are they to be asked?
        wanted: bool,
    },
}

/// A request to a hub.
#[derive(Clone)]
pub struct HubCall {
    /// Row of the callback.
    pub row: i64,
    /// Its source.
    pub source: SourceId,
    /// Subscribe, or else unsubscribe.
    pub subscribes: bool,
    /// Where the hub is.
    pub hub: Url,
    /// Of what.
    pub topic: String,
    /// Where it is to push to.
    pub callback: String,
    /// What it is to sign with.
    pub secret: Option<String>,
}

impl std::fmt::Debug for HubCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { row, subscribes, hub, topic, .. } = self;
        f.debug_struct("HubCall")
            .field("row", row)
            .field("subscribes", subscribes)
            .field("hub", &hub.as_str())
            .field("topic", topic)
            .finish_non_exhaustive()
    }
}

/// What came of a request to a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubAnswer {
    /// It will verify.
    Accepted,
    /// It answered with another status.
    Refused {
        /// The status.
        status: u16,
        /// What it says of it.
        why: String,
        /// `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// It did not answer, or may not be asked.
    Failed(String),
    /// It is to be left alone until then: nobody was asked, or it has no time.
    Later(Timestamp),
}

/// What a hub asks of a callback.
#[derive(Debug, Clone)]
pub struct Intent {
    /// `hub.mode`
    pub mode: Mode,
    /// `hub.topic`
    pub topic: String,
    /// `hub.lease_seconds`
    pub lease: Option<Duration>,
    /// `hub.reason`
    pub reason: Option<String>,
}

/// A callback as who receives a push needs it.
#[derive(Clone)]
pub struct Callback {
    /// What pushes to it are signed with.
    pub secret: Option<String>,
}

impl Store {
    /// Where there is something to do with hubs: a push came, or a wish for one.
    pub fn hubs_changed(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.hubs.subscribe()
    }

    /// What is to be asked of hubs now. The callbacks of new subscriptions are
    /// below `base`; each hub is asked again only after its time. With `sweep`,
    /// sources that are polled no more are given up first.
    pub async fn hub_calls(&self, base: Url, sweep: bool) -> Result<Vec<HubCall>, StoreError> {
        // A look costs no write where nothing is to be done.
        let now = self.now().as_millisecond();
        if !self.read(move |conn| calls::any_work(conn, now, sweep)).await? {
            return Ok(Vec::new());
        }
        self.write(super::Lane::Bulk, move |state| state.hub_calls(&base, sweep)).await
    }

    /// What came of one of these requests.
    pub async fn hub_answered(&self, call: HubCall, answer: HubAnswer) -> Result<(), StoreError> {
        self.write(super::Lane::Bulk, move |state| state.hub_answered(&call, &answer)).await
    }

    /// The callbacks are below `base` from now on: those elsewhere are replaced.
    /// Without one nobody can push, and all subscriptions are forgotten, unless
    /// another daemon on the same store may be reached: then only by who `starts`
    /// alone, and leases run out where whoever was reached starts and is not. The
    /// sites named want no push, all others do.
    pub async fn want_hubs(
        &self,
        base: Option<Url>,
        without: Vec<String>,
        starts: bool,
    ) -> Result<(), StoreError> {
        self.write(super::Lane::Bulk, move |state| match base {
            Some(base) => {
                state.keep_hub_base(Some(&base))?;
                state.want_hubs(&without)?;
                state.call_back_at(&base)
            }
            // Whoever is reached may only be away just now.
            None if state.is_shared() || hub_base(&state.conn)?.is_some() && !starts => {
                if starts && state.was_reached()? {
                    state.keep_hub_base(None)?;
                }
                state.want_hubs(&without)
            }
            None => {
                state.keep_hub_base(None)?;
                state.want_no_hubs()
            }
        })
        .await
    }

    /// Where hubs reach one of the daemons on this store, if they do.
    pub async fn hub_base(&self) -> Result<Option<Url>, StoreError> {
        self.read(hub_base).await
    }

    /// A hub asks whether we want what it was asked for; `true` agrees, and `None`
    /// is for who has no callback.
    pub async fn confirm(
        &self,
        id: CallbackId,
        intent: Intent,
    ) -> Result<Option<bool>, StoreError> {
        let known = self.read(move |conn| callbacks::is_known(conn, id)).await?;
        if !known {
            return Ok(None);
        }
        self.write(super::Lane::Hot, move |state| state.confirm(id, &intent)).await.map(Some)
    }

    /// A callback that may be pushed to; `None` where there is none.
    pub async fn callback(&self, id: CallbackId) -> Result<Option<Callback>, StoreError> {
        let now = self.now().as_millisecond();
        self.read(move |conn| callbacks::receiving(conn, id, now)).await
    }

    /// Keeps what was pushed until it is read, or makes it a hint where there
    /// is no room.
    pub async fn keep_delivery(
        &self,
        id: CallbackId,
        delivered: Delivered,
    ) -> Result<Taken, StoreError> {
        self.write(super::Lane::Bulk, move |state| state.keep_delivery(id, &delivered)).await
    }

    /// Something was pushed that cannot be kept: its source is looked at sooner.
    pub async fn hint_callback(&self, id: CallbackId) -> Result<(), StoreError> {
        self.write(super::Lane::Bulk, move |state| state.hint_callback(id)).await
    }

    /// A source is looked at sooner, as after a ping.
    pub async fn hint_source(&self, source: SourceId) -> Result<(), StoreError> {
        self.write(super::Lane::Bulk, move |state| {
            let now = state.now_ms();
            state.hint(source, now).map(|_| ())
        })
        .await
    }

    /// Pushes that wait to be read, the oldest of each source, oldest first.
    pub async fn deliveries(&self) -> Result<Vec<(i64, SourceId)>, StoreError> {
        self.read(deliveries::waiting).await
    }

    /// Takes a push up to read it. One that was taken up too often only brings
    /// the next poll forward, and is gone.
    pub async fn begin_delivery(&self, row: i64) -> Result<Option<Delivery>, StoreError> {
        self.write(super::Lane::Bulk, move |state| state.begin_delivery(row)).await
    }

    /// A push cannot be read, or not be believed: it brings the next poll forward.
    pub async fn delivery_is_hint(&self, row: i64, source: SourceId) -> Result<(), StoreError> {
        self.write(super::Lane::Bulk, move |state| state.delivery_is_hint(row, source)).await
    }

    /// Writes how reading a push ended: the one step that moves the snapshot.
    pub async fn finish_push(&self, end: PushEnd) -> Result<(), StoreError> {
        self.write(super::Lane::Bulk, move |state| {
            state.must_hold(end.source, end.tenure)?;
            state.must_own(end.source.0)?;
            state.finish_push(&end)
        })
        .await
    }
}

fn hub_base(conn: &Connection) -> Result<Option<Url>, StoreError> {
    let base: Option<String> = conn
        .prepare_cached("SELECT value FROM meta WHERE key = 'public_url'")
        .and_then(|mut query| query.query_row((), |row| row.get(0)).optional())
        .map_err(engine)?;
    Ok(base.and_then(|base| Url::parse(&base).ok()))
}

/// How push does for a source, for people; `None` where it names no hub.
pub(super) fn view(conn: &Connection, source: SourceId) -> Result<Option<PushView>, StoreError> {
    let sql = "SELECT t.topic, t.next_at, t.pushes, t.pushed_at, t.broken_at, t.denied_at, t.error,
            k.hub, k.since_at, k.expires_at,
            (SELECT hub FROM callbacks WHERE source_id = t.source_id
             /*pg: AND callbacks.part = t.part */ AND state = 0)
        FROM topics t LEFT JOIN callbacks k ON k.source_id = t.source_id
             /*pg: AND k.part = t.part */ AND k.state = 1
        WHERE t.source_id = ?1 /*pg: AND t.part = (?1 & 255) */ AND t.wanted = 1";
    let read = |row: &sql::Row<'_>| {
        let time = |at: usize| row.get::<Option<i64>>(at).map(|ms| ms.map(timestamp));
        let (pushed_at, broken_at, denied_at) = (time(3)?, time(4)?, time(5)?);
        let since = time(8)?;
        let error: Option<String> = row.get(6)?;
        let asked: Option<String> = row.get(10)?;
        let state = match since {
            Some(_) if broken_at.is_some() => "broken",
            Some(since) if pushed_at.is_some_and(|at| at >= since) => "healthy",
            Some(_) => "unproven",
            None if asked.is_some() => "asked",
            None if denied_at.is_some() => "denied",
            None if error.is_some() => "failed",
            None => "wanted",
        };
        let hub: Option<String> = row.get(7)?;
        Ok(PushView {
            state,
            topic: row.get(0)?,
            hub: hub.or(asked),
            since,
            lease_until: time(9)?,
            next_request_at: timestamp(row.get(1)?),
            pushes: row.get::<i64>(2)?.unsigned_abs(),
            last_push_at: pushed_at,
            broken_since: broken_at,
            error,
        })
    };
    conn.prepare_cached(sql)
        .and_then(|mut query| query.query_row([source.0], read).optional())
        .map_err(engine)
}
