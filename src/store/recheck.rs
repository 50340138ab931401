//! What robots.txt held back, and others may free: judged anew when the rules of
//! its host change, or the one whom they are read for.
//!
//! A host with a row in `rechecks` has such URLs, and the row says after which
//! one to go on; it is written with what changed, so that a stop loses none.
//! One walk over all that is held back serves all hosts that were there when it
//! began; those that come meanwhile wait for the next one. What the walk frees
//! goes back into the queue, and the gate of leasing judges it.

use super::packed::is_held;
use super::rows::held;
use super::sql::params;
use super::state::State;
use super::{StoreError, engine};
use crate::model::{HostId, SiteId, UrlId};

/// Rows looked at in one job at most.
const BATCH: usize = 2_000;
/// Hosts that are done with in one job at most: of each its robots.txt may be parsed.
const HOSTS: i64 = 20;
/// `rechecks.after_id` of a host that waits for the next walk.
const WAITS: i64 = -1;

impl State {
    /// What is held back on a host is to be judged anew.
    pub(super) fn recheck_host(&mut self, host: HostId) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "INSERT INTO rechecks (/*pg: part, */ host_id, after_id)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2)
                 ON CONFLICT (/*pg: part, */ host_id) DO UPDATE SET after_id = excluded.after_id",
            )
            .and_then(|mut insert| insert.execute(params![host.0, WAITS]))
            .map(|_| ())
            .map_err(engine)
    }

    /// The same on all hosts of a site.
    pub(super) fn recheck_site(&mut self, site: SiteId) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "INSERT INTO rechecks (/*pg: part, */ host_id, after_id)
                 SELECT /*pg: part, */ host_id, CAST(?2 AS BIGINT) FROM site_hosts WHERE site_id = ?1
                 ON CONFLICT (/*pg: part, */ host_id) DO UPDATE SET after_id = excluded.after_id",
            )
            .and_then(|mut insert| insert.execute(params![site.0, WAITS]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Goes on with the walk where a host needs it; `false` when it does not.
    pub(super) fn recheck_for(&mut self, host: HostId) -> Result<bool, StoreError> {
        let waits = self.column(
            "SELECT 1 FROM rechecks WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */",
            [host.0],
        )?;
        Ok(!waits.is_empty() && self.recheck_forbidden()?)
    }

    /// A part of the walk; `true` where there was something to do.
    pub(super) fn recheck_forbidden(&mut self) -> Result<bool, StoreError> {
        let furthest: Option<i64> = self
            .conn
            .prepare_cached(
                "SELECT max(after_id) FROM rechecks WHERE after_id >= ?1 /*ours: part */",
            )
            .and_then(|mut query| query.query_row([WAITS], |row| row.get(0)))
            .map_err(engine)?;
        let Some(furthest) = furthest else { return Ok(false) };
        if furthest == WAITS {
            // Whoever comes from now on was not there when it began.
            self.move_rechecks(WAITS, 0)?;
        }
        let after = furthest.max(0);
        let rows: Vec<(i64, bool)> = self
            .conn
            .prepare_cached(&format!(
                "SELECT f.url_id, r.host_id IS NOT NULL FROM feedback f
                 LEFT JOIN urls u ON u.id = f.url_id /*pg: AND u.part = f.part */
                 LEFT JOIN rechecks r ON r.host_id = u.host_id /*pg: AND r.part = u.part */
                     AND r.after_id = ?2
                 WHERE {} AND f.url_id > ?2 /*ours: f.part */
                 ORDER BY f.url_id LIMIT ?3",
                is_held("f", "?1")
            ))
            .and_then(|mut query| {
                let most = i64::try_from(BATCH).unwrap_or(i64::MAX);
                query
                    .query_map(params![held::FORBIDDEN, after, most], |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })?
                    .collect()
            })
            .map_err(engine)?;
        for (id, _) in rows.iter().filter(|(_, is_meant)| *is_meant) {
            let Some(row) = self.url_row(UrlId(*id))? else { continue };
            self.place_url(&row, held::QUEUED, row.reason, row.band, row.due_s, row.attempt)?;
        }
        match rows.last() {
            Some((last, _)) if rows.len() == BATCH => self.move_rechecks(after, *last)?,
            _ => self.end_rechecks(after)?,
        }
        Ok(true)
    }

    /// The walk is over for some of the hosts that it was for: those who fetch their
    /// pages may have to keep to another delay, too.
    fn end_rechecks(&mut self, after: i64) -> Result<(), StoreError> {
        let ended = "SELECT host_id FROM rechecks WHERE after_id = ?1 /*ours: part */ LIMIT ?2";
        for host in self.column(ended, params![after, HOSTS])? {
            self.heed_agents(HostId(host))?;
            self.conn
                .prepare_cached(
                    "DELETE FROM rechecks WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */",
                )
                .and_then(|mut delete| delete.execute([host]))
                .map_err(engine)?;
        }
        Ok(())
    }

    fn move_rechecks(&self, from: i64, to: i64) -> Result<(), StoreError> {
        self.conn
            .prepare_cached("UPDATE rechecks SET after_id = ?2 WHERE after_id = ?1 /*ours: part */")
            .and_then(|mut update| update.execute([from, to]))
            .map(|_| ())
            .map_err(engine)
    }
}
