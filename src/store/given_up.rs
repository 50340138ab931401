//! Sources that the configuration names and that failed for good: they are looked at
//! once more now and then, since nobody names them anew while the daemon runs.
//!
//! How they failed is kept, so that one look decides: what answers is polled as before,
//! what does not is given up again. What went for another reason (deleted, left out of
//! the configuration, dropped by its index or with it) is left alone. That children of
//! an index are looked at again is seen to by its polls (`probe_dead_children`).

use std::sync::LazyLock;

use super::families::{MOVED_AWAY, UNLISTED};
use super::grants::REVOKED;
use super::sources::{AS_ITS_SITE, DELETED, DROPPED, INDEX_DELETED, PROBE_DEAD_MS};
use super::sql::{Connection, OptionalExtension, params};
use super::state::State;
use super::submissions::SPACING_MS;
use super::{StoreError, engine};
use crate::model::{SiteId, SourceId};

/// Looked at once more in one job at most.
const AT_ONCE: i64 = 500;

/// Is a source one of these, and its site polled?
static GIVEN_UP: LazyLock<String> = LazyLock::new(|| {
    let others = [DELETED, INDEX_DELETED, DROPPED, UNLISTED, MOVED_AWAY, REVOKED].join("', '");
    format!(
        "state = 2 AND role > 1 AND named_by = 'config' AND failing IS NOT NULL
         AND retired_why NOT IN ('{others}')
         AND EXISTS (SELECT 1 FROM sites n WHERE n.id = sources.site_id AND n.state = 0)"
    )
});

/// Those that went long ago.
static LONG_AGO: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT /*pg: part, */ id FROM sources
         WHERE retired_at <= ?2 AND {} /*ours: part */ LIMIT ?3",
        *GIVEN_UP
    )
});

/// Is it one of these, which a ping has looked at again?
pub(super) fn is_given_up(conn: &Connection, id: SourceId) -> Result<bool, StoreError> {
    conn.prepare_cached(&format!(
        "SELECT EXISTS (SELECT 1 FROM sources
                        WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND {})",
        *GIVEN_UP
    ))
    .and_then(|mut query| query.query_row([id.0], |row| row.get(0)))
    .map_err(engine)
}

impl State {
    /// Looks once more at some of those that were given up long ago; `true` while there
    /// are more.
    pub(super) fn probe_given_up(&mut self, now: i64) -> Result<bool, StoreError> {
        let probed = self
            .conn
            .prepare_cached(&format!(
                // Should it fail again it goes from now on for as long.
                "UPDATE sources SET state = {AS_ITS_SITE}, retired_why = NULL, retired_at = ?1,
                     next_poll_at = ?1, rule = 'revived',
                     why = 'it was given up, and the configuration still names it: looked at once more'
                 WHERE /*lite*/ id /*end*/ /*pg: (part, id) */ IN ({})",
                *LONG_AGO
            ))
            .and_then(|mut update| update.execute(params![now, now - PROBE_DEAD_MS, AT_ONCE]))
            .map_err(engine)?;
        self.sources_moved |= probed > 0;
        Ok(i64::try_from(probed).is_ok_and(|probed| probed >= AT_ONCE))
    }

    /// Somebody says that a source has changed that may be one of these: it is looked at
    /// as soon as a ping may bring about, and if it fails it was never back, so that what
    /// it held goes when it would have gone. Says when; `None` where it is none.
    pub(super) fn hint_given_up(
        &mut self,
        id: SourceId,
        now: i64,
    ) -> Result<Option<i64>, StoreError> {
        let hinted: Option<Option<i64>> = self
            .conn
            .prepare_cached(&format!(
                "SELECT hinted_at FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND {}",
                *GIVEN_UP
            ))
            .and_then(|mut query| query.query_row([id.0], |row| row.get(0)).optional())
            .map_err(engine)?;
        let Some(hinted) = hinted else { return Ok(None) };
        let at = hinted.map_or(now, |hinted| now.max(hinted.saturating_add(SPACING_MS)));
        self.conn
            .prepare_cached(&format!(
                "UPDATE sources SET state = {AS_ITS_SITE}, retired_why = NULL, next_poll_at = ?2,
                     hinted_at = ?2, rule = 'pinged',
                     why = 'it was given up, and somebody says that it has changed'
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */"
            ))
            .and_then(|mut update| update.execute(params![id.0, at]))
            .map_err(engine)?;
        self.sources_moved = true;
        Ok(Some(at))
    }

    /// Those of a site are due now, since somebody asks for all of it; says how many.
    pub(super) fn poll_given_up_of(&mut self, site: SiteId, now: i64) -> Result<usize, StoreError> {
        self.conn
            .prepare_cached(&format!(
                "UPDATE sources SET state = {AS_ITS_SITE}, retired_why = NULL, retired_at = NULL,
                     next_poll_at = ?2, rule = 'asked', why = 'someone asked for it'
                 WHERE site_id = ?1 AND {}",
                *GIVEN_UP
            ))
            .and_then(|mut update| update.execute(params![site.0, now]))
            .map_err(engine)
    }
}
