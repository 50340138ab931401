//! Pushes: kept when they come, read later, once.
//!
//! A hub is answered when its push is committed here, and not when it is read.
//! Reading is what a poll does, and may be done twice without harm; one commit
//! ends it. There is room for a bounded number of bytes; what finds none, or
//! cannot be read, is a hint: the source is polled sooner, as after a ping.

use super::super::sql::{self, Connection, OptionalExtension, params};
use jiff::Timestamp;

use super::CallbackId;
use super::rules::is_trusted;
use super::state::ASKED;
use crate::model::SourceId;
use crate::store::log_order::{self, Log};
use crate::store::state::State;
use crate::store::views::Counts;
use crate::store::{StoreError, engine, timestamp};

/// Bytes of one push (feeds.md: hubs push feeds, and those are small).
pub const MAX_PUSH: usize = 5 << 20;
/// Pushes that wait to be read at most; of one source; and their bytes.
pub const MAX_WAITING: i64 = 256;
const MAX_WAITING_OF_SOURCE: i64 = 4;
const MAX_WAITING_BYTES: i64 = 64 << 20;
/// Times that reading one is begun; after that it is only a hint.
const TRIES: i64 = 3;

/// A push as it came.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Was its signature right?
    pub signed: bool,
    /// `Content-Type`
    pub content_type: Option<String>,
    /// `Content-Encoding`
    pub coding: Option<String>,
    /// At most [`MAX_PUSH`] bytes.
    pub body: bytes::Bytes,
}

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is kept, and will be read.
    Kept,
    /// There is no room: its source is polled sooner.
    Hint,
    /// The hub has not verified yet that we want it.
    Early,
    /// There is no such callback any more.
    Gone,
}

/// A push to be read.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The row.
    pub row: i64,
    /// Of which source.
    pub source: SourceId,
    /// When it came.
    pub at: Timestamp,
    /// May it be read, or is it a hint?
    pub trusted: bool,
    /// `Content-Type`
    pub content_type: Option<String>,
    /// `Content-Encoding`
    pub coding: Option<String>,
    /// The body as sent.
    pub body: Vec<u8>,
}

/// How reading a push ended.
#[derive(Debug, Clone)]
pub struct PushEnd {
    /// The push.
    pub delivery: i64,
    /// Its source.
    pub source: SourceId,
    /// Under which its partition was ours when it was read ([`super::super::Origin`]).
    pub tenure: i64,
    /// When it came.
    pub came_at: Timestamp,
    /// When reading it began.
    pub at: Timestamp,
    /// From then to the commit.
    pub took_ms: i64,
    /// Bytes of its body.
    pub bytes: u64,
    /// Entries read.
    pub entries: u64,
    /// What it made of the URLs.
    pub counts: Counts,
    /// The next snapshot, encoded; `None` leaves the old one.
    pub snapshot: Option<Vec<u8>>,
    /// Did it show anything new?
    pub changed: bool,
    /// What the schedule has learned of the source.
    pub rhythm: Option<String>,
    /// And the interval that this makes.
    pub interval_ms: i64,
}

/// The oldest push of each source, oldest first.
pub(super) fn waiting(conn: &Connection) -> Result<Vec<(i64, SourceId)>, StoreError> {
    conn.prepare_cached(
        "SELECT min(id) AS first, source_id FROM deliveries WHERE 1 = 1 /*ours: part */
         GROUP BY source_id ORDER BY first",
    )
    .and_then(|mut query| {
        query.query_map((), |row| Ok((row.get(0)?, SourceId(row.get(1)?))))?.collect()
    })
    .map_err(engine)
}

impl State {
    /// Keeps a push, where its callback is one that is listened to.
    pub(super) fn keep_delivery(
        &mut self,
        id: CallbackId,
        delivered: &Delivered,
    ) -> Result<Taken, StoreError> {
        let now = self.now_ms();
        let found: Option<(i64, i64, String, String)> = self
            .conn
            .prepare_cached(
                "SELECT c.source_id, c.state, c.topic, coalesce(s.moved_to, s.url)
                 FROM callbacks c
                 JOIN sources s ON s.id = c.source_id /*pg: AND s.part = c.part */
                 WHERE c.token = ?1 AND c.expires_at > ?2",
            )
            .and_then(|mut query| {
                let read =
                    |row: &sql::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
                query.query_row(params![id.0, now], read).optional()
            })
            .map_err(engine)?;
        let Some((source, state, topic, place)) = found else { return Ok(Taken::Gone) };
        if state == ASKED {
            return Ok(Taken::Early);
        }
        let bytes = i64::try_from(delivered.body.len()).unwrap_or(i64::MAX);
        if !self.has_room(source, bytes)? {
            self.push_hint(SourceId(source))?;
            return Ok(Taken::Hint);
        }
        let trusted = is_trusted(delivered.signed, &topic, &place);
        self.hubs_moved = true;
        self.run(
            "INSERT INTO deliveries (/*pg: part, */ source_id, at, trusted, bytes, content_type, coding,
                 body)
             VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                source,
                now,
                trusted,
                bytes,
                delivered.content_type,
                delivered.coding,
                &delivered.body[..]
            ],
        )?;
        Ok(Taken::Kept)
    }

    /// Looks at [`MAX_WAITING`] rows at most, and at no body.
    fn has_room(&self, source: i64, bytes: i64) -> Result<bool, StoreError> {
        let (count, of_source, held): (i64, i64, i64) = self
            .conn
            .prepare_cached(
                "SELECT count(*), coalesce(sum(CASE source_id WHEN ?1 THEN 1 ELSE 0 END), 0), coalesce(sum(bytes), 0)
                 FROM deliveries",
            )
            .and_then(|mut query| {
                query.query_row([source], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            })
            .map_err(engine)?;
        Ok(count < MAX_WAITING
            && of_source < MAX_WAITING_OF_SOURCE
            && held.saturating_add(bytes) <= MAX_WAITING_BYTES)
    }

    pub(super) fn hint_callback(&mut self, id: CallbackId) -> Result<(), StoreError> {
        let now = self.now_ms();
        let source: Option<i64> = self
            .conn
            .prepare_cached(
                "SELECT source_id FROM callbacks WHERE token = ?1 AND state <> 0 AND expires_at > ?2",
            )
            .and_then(|mut query| query.query_row(params![id.0, now], |row| row.get(0)).optional())
            .map_err(engine)?;
        source.map_or(Ok(()), |source| self.push_hint(SourceId(source)))
    }

    /// Has a source polled sooner, as a ping would, where it is polled at all; one
    /// that is paused, as soon as it goes on.
    fn push_hint(&mut self, source: SourceId) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.run(
            "UPDATE topics SET hinted_at = ?2 WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */",
            params![source.0, now],
        )?;
        let is_polled: bool = self
            .conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM sources WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */ AND state <> 2)",
            )
            .and_then(|mut query| query.query_row([source.0], |row| row.get(0)))
            .map_err(engine)?;
        if is_polled {
            self.hint(source, now)?;
        }
        Ok(())
    }

    pub(super) fn begin_delivery(&mut self, row: i64) -> Result<Option<Delivery>, StoreError> {
        self.run("UPDATE deliveries SET tries = tries + 1 WHERE id = ?1", [row])?;
        let found: Option<(Delivery, i64, bool)> = self
            .conn
            .prepare_cached(
                "SELECT source_id, at, trusted, content_type, coding, body, tries,
                     EXISTS (SELECT 1 FROM sources s JOIN sites n ON n.id = s.site_id
                             WHERE s.id = source_id /*pg: AND s.part = deliveries.part */ AND s.state = 0 AND n.state = 0)
                 FROM deliveries WHERE id = ?1",
            )
            .and_then(|mut query| {
                query
                    .query_row([row], |found| {
                        let delivery = Delivery {
                            row,
                            source: SourceId(found.get(0)?),
                            at: timestamp(found.get(1)?),
                            trusted: found.get(2)?,
                            content_type: found.get(3)?,
                            coding: found.get(4)?,
                            body: found.get(5)?,
                        };
                        Ok((delivery, found.get(6)?, found.get(7)?))
                    })
                    .optional()
            })
            .map_err(engine)?;
        let Some((delivery, tries, is_polled)) = found else { return Ok(None) };
        // What is not polled, as in a paused site, is not pushed either.
        if is_polled && tries <= TRIES {
            return Ok(Some(delivery));
        }
        self.delivery_is_hint(row, delivery.source)?;
        Ok(None)
    }

    pub(super) fn delivery_is_hint(
        &mut self,
        row: i64,
        source: SourceId,
    ) -> Result<(), StoreError> {
        self.run("DELETE FROM deliveries WHERE id = ?1", [row])?;
        self.push_hint(source)
    }

    /// Writes how reading a push ended. When the next poll is stays as it is:
    /// a hub that pushes often must not put off for ever the poll that shows
    /// whether it pushes all.
    pub(super) fn finish_push(&mut self, end: &PushEnd) -> Result<(), StoreError> {
        self.run("DELETE FROM deliveries WHERE id = ?1", [end.delivery])?;
        self.run(
            "UPDATE sources SET generation = generation + 1, rhythm = coalesce(?2, rhythm),
                 interval_ms = ?3, last_changed_at = CASE WHEN ?4 = 1 THEN ?5 ELSE last_changed_at END
             WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
            params![
                end.source.0,
                end.rhythm,
                end.interval_ms,
                end.changed,
                end.at.as_millisecond()
            ],
        )?;
        if let Some(snapshot) = &end.snapshot {
            self.write_snapshot(end.source, snapshot)?;
        }
        self.run(
            "UPDATE topics SET pushes = pushes + 1, pushed_at = ?2, broken_at = NULL
             WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */",
            params![end.source.0, end.came_at.as_millisecond()],
        )?;
        let id = log_order::next(&self.conn, Log::Polls)?;
        self.run(
            "INSERT INTO polls (/*pg: part, */ source_id, at, took_ms, result, wire_bytes, entries, counts,
                 id, generation)
             VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, ?3, 'pushed', ?4, ?5, ?6,
                     ?7, (SELECT generation FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */))",
            params![
                end.source.0,
                end.at.as_millisecond(),
                end.took_ms,
                end.bytes.cast_signed(),
                end.entries.cast_signed(),
                end.counts.kept(),
                id,
            ],
        )
    }
}
