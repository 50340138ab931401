//! Where what a sitemap misses may stand: its index and the sitemaps beside it are read.
//!
//! A URL that left a sitemap may have moved to another under the same index, so it is no
//! removal before all of those have been read (design section 8). They have rhythms of
//! their own, and an index may date them as unchanged: left to that, a removal would wait
//! for as long as the longest of them rests.

use std::time::Duration;

use jiff::Timestamp;

use super::sql::params;
use super::state::State;
use super::writer::Lane;
use super::{Store, StoreError, engine, timestamp};
use crate::model::SourceId;
use crate::recrawl::later;

/// Sitemaps that are asked for one that misses something, at one read of it. Of more the
/// next are asked at its next read, and what is left has its own rhythm.
const SIBLINGS: i64 = 100;

/// A sitemap that misses URLs which siblings may list.
#[derive(Debug, Clone, Copy)]
pub struct HeldUp {
    /// The sitemap.
    pub source: SourceId,
    /// The index that lists it, if any does.
    pub parent: Option<SourceId>,
    /// What has been read since then has been looked at.
    pub since: Timestamp,
    /// `None` where the rule of a site says when its sources are read.
    pub pace: Option<Pace>,
}

/// When what holds a sitemap up is read.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// At once, if its last read does not keep it away.
    pub now: Timestamp,
    /// How long that does: with all that a site loses every day, those that rest are read
    /// once in this time.
    pub spacing: Duration,
}

impl Store {
    /// A sitemap misses URLs that it listed: its index may name a new one that lists them,
    /// and is due at this time, if it would be later.
    pub async fn ask_index(&self, index: SourceId, at: Timestamp) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, move |state| state.ask_index(index, at)).await
    }

    /// Its siblings are read, whatever their index says of them, and the index itself: what
    /// it misses waits for nothing else, or soon will.
    pub async fn ask_siblings(&self, held_up: HeldUp) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, move |state| state.ask_siblings(held_up)).await
    }
}

impl State {
    /// An index is due at this time, if it would be later: a sitemap that it lists misses
    /// URLs. One that fails is left alone.
    fn ask_index(&mut self, id: SourceId, at: Timestamp) -> Result<(), StoreError> {
        let asked = self
            .conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?2, rule = 'index',
                     why = 'a sitemap that it lists misses URLs: they may stand in a new one'
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 0 AND failures = 0
                   AND next_poll_at > ?2",
            )
            .and_then(|mut update| update.execute(params![id.0, at.as_millisecond()]))
            .map_err(engine)?;
        self.sources_moved |= asked > 0;
        Ok(())
    }

    /// Those that hold it up, its index among them. One that fails is left alone, and one
    /// that is asked for already.
    fn ask_siblings(&mut self, held_up: HeldUp) -> Result<(), StoreError> {
        let HeldUp { source, parent, since, pace } = held_up;
        let parent = parent.map(|id| id.0);
        let unread: Vec<(i64, Option<i64>)> = self
            .conn
            .prepare_cached(
                "SELECT id, last_complete_at FROM sources
                 WHERE parent_id IN (?1, ?2) AND id <> ?2 AND state = 0 AND failures = 0
                   AND sources.window <> 1 AND dropped_at IS NULL
                   AND coalesce(last_complete_at, 0) < ?3 AND next_poll_at IS NOT NULL
                   AND rule NOT IN ('asked', 'index', 'pinged')
                 UNION ALL
                 SELECT id, last_complete_at FROM sources
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 0 AND failures = 0
                   AND coalesce(last_complete_at, 0) < ?3 AND next_poll_at IS NOT NULL
                   AND rule NOT IN ('asked', 'index', 'pinged')
                 LIMIT ?4",
            )
            .and_then(|mut query| {
                let values = params![parent, source.0, since.as_millisecond(), SIBLINGS];
                query.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .map_err(engine)?;
        for (id, read_at) in unread {
            let at = pace.map(|Pace { now, spacing }| {
                read_at.map_or(now, |at| later(timestamp(at), spacing).max(now))
            });
            let why = if parent == Some(id) {
                "a sitemap that it lists misses URLs: they may stand in a new one"
            } else {
                "a sitemap beside it misses URLs: they may stand here"
            };
            self.conn
                .prepare_cached(
                    "UPDATE sources SET rule = 'index', why = ?3,
                         next_poll_at = CASE WHEN ?2 < next_poll_at THEN ?2 ELSE next_poll_at END
                     WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
                )
                .and_then(|mut update| {
                    update.execute(params![id, at.map(Timestamp::as_millisecond), why])
                })
                .map_err(engine)?;
            self.sources_moved = true;
        }
        Ok(())
    }
}
