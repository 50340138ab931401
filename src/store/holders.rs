//! Which sources list a URL. The first is in its row, further ones beside it; the
//! site of the first has the URL.
//!
//! Only full sources *hold* a URL: a window shows what is recent, and what
//! leaves it is not gone. So a full source takes the first place from a
//! window, and a URL that no full source lists any more is unlisted.

use super::sql::{OptionalExtension, Row, params};

use super::effect::Origin;
use super::rows::UrlRow;
use super::state::State;
use super::{StoreError, engine};
use crate::model::{SiteId, SourceId, UrlId};

impl State {
    /// The source lists the URL too; returns the row as it is then.
    pub(super) fn add_holder(&mut self, origin: Origin, row: UrlRow) -> Result<UrlRow, StoreError> {
        let Some(primary) = row.source else {
            // A client of the frontier made it known.
            return self.make_primary(row, origin.source, origin.site);
        };
        if primary == origin.source {
            return Ok(row);
        }
        if !row.listed {
            // Whoever listed it before lists it no longer.
            return self.make_primary(row, origin.source, origin.site);
        }
        if !origin.window && !self.is_full(primary)? {
            let row = self.make_primary(row, origin.source, origin.site)?;
            self.forget_side(row.id, origin.source)?;
            self.remember_side(row.id, primary)?;
            return Ok(row);
        }
        self.remember_side(row.id, origin.source)?;
        Ok(row)
    }

    /// Would a URL that is not of a source's site be of it, were it listed there?
    pub(super) fn comes_over(&mut self, origin: Origin, row: &UrlRow) -> Result<bool, StoreError> {
        if row.site == Some(origin.site) {
            return Ok(false);
        }
        let Some(primary) = row.source.filter(|_| row.listed) else { return Ok(true) };
        if self.is_left_to(origin, row) {
            return Ok(true);
        }
        Ok(primary != origin.source && !origin.window && !self.is_full(primary)?)
    }

    /// The source lists the URL no longer; says whether another full one does.
    pub(super) fn remove_holder(
        &mut self,
        source: SourceId,
        row: &UrlRow,
    ) -> Result<bool, StoreError> {
        if row.source == Some(source) && self.pending.is_alone(row.id) {
            return Ok(false);
        }
        let has_spoken = self.forget_said(source, row.id)?;
        if has_spoken {
            self.sum_up_marks(row.clone())?;
        }
        let is_held = self.pass_on(source, row)?;
        if has_spoken
            && is_held
            && let Some(now) = self.url_row(row.id)?
        {
            // What the others say may free it, or be over.
            self.follow_marks(&now, row.expires_s.is_some())?;
        }
        Ok(is_held)
    }

    /// Whoever else lists a URL goes on listing it; says whether a full source does.
    fn pass_on(&mut self, source: SourceId, row: &UrlRow) -> Result<bool, StoreError> {
        let was_side = self.forget_side(row.id, source)?;
        let Some(primary) = row.source else { return Ok(true) };
        if primary != source {
            if !was_side {
                // It was let go before: a replay.
                return Ok(true);
            }
            if self.is_full(primary)? {
                return Ok(true);
            }
        }
        let heir = match self.side(row.id, false)? {
            None if !self.is_pushed(row.id)? => return Ok(false),
            // What a client pushed is a site's while anything of that shows it.
            None if primary != source => return Ok(true),
            None => self.side(row.id, true)?,
            full => full,
        };
        let Some((heir, site)) = heir else { return self.leave_to_client(row) };
        self.make_primary(row.clone(), heir, site)?;
        self.forget_side(row.id, heir)?;
        if primary != source {
            self.remember_side(row.id, primary)?;
        }
        Ok(true)
    }

    /// A source that shows the whole, and is polled or has been until lately:
    /// a retired one keeps its snapshot until its grace period is over. That of a
    /// site that has left the config is not: nobody would hear that it lets go.
    fn is_full(&mut self, source: SourceId) -> Result<bool, StoreError> {
        if let Some(is_full) = self.pending.is_full(source) {
            return Ok(is_full);
        }
        let is_full = self
            .conn
            .prepare_cached("SELECT s.window = 0 AND (s.state <> 2 OR EXISTS (SELECT 1 FROM snapshots x WHERE x.source_id = s.id
                         /*pg: AND x.part = s.part */))
                 FROM sources s JOIN sites n ON n.id = s.site_id AND n.state <> 2
                 WHERE s.id = ?1 /*pg: AND s.part = (?1 & 255) */")
            .and_then(|mut query| query.query_row([source.0], |row| row.get(0)).optional())
            .map(|full| full.unwrap_or(false))
            .map_err(engine)?;
        self.pending.note_full(source, is_full);
        Ok(is_full)
    }

    /// Has a client of the frontier made a URL known?
    fn is_pushed(&self, url: UrlId) -> Result<bool, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM frontier_urls
                 WHERE url_id = ?1 /*pg: AND part = (?1 & 255) */ AND pushed = 1)",
            )
            .and_then(|mut query| query.query_row([url.0], |row| row.get(0)))
            .map_err(engine)
    }

    /// A further source that lists a URL: one that shows the whole, or a window.
    fn side(&self, url: UrlId, window: bool) -> Result<Option<(SourceId, SiteId)>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT x.source_id, s.site_id FROM url_sources x JOIN sources s ON s.id = x.source_id
                     /*pg: AND s.part = (x.source_id & 255) */
                 JOIN sites n ON n.id = s.site_id AND n.state <> 2
                 WHERE x.url_id = ?1 /*pg: AND x.part = (?1 & 255) */ AND CASE WHEN s.window = 0 THEN 0 ELSE 1 END = ?2 AND (s.state <> 2 OR EXISTS
                     (SELECT 1 FROM snapshots p WHERE p.source_id = s.id /*pg: AND p.part = s.part */))
                 ORDER BY s.state = 2, x.source_id LIMIT 1",
            )
            .and_then(|mut query| {
                let read = |row: &Row<'_>| Ok((SourceId(row.get(0)?), SiteId(row.get(1)?)));
                query.query_row(params![url.0, window], read).optional()
            })
            .map_err(engine)
    }

    /// The source of that site comes first from now on: whose source comes first
    /// has the URL.
    fn make_primary(
        &mut self,
        row: UrlRow,
        source: SourceId,
        site: SiteId,
    ) -> Result<UrlRow, StoreError> {
        if row.site != Some(site) {
            if let Some(from) = row.site {
                self.count_row(from, &row, false)?;
            }
            return self.give_to(row, source, site);
        }
        self.pending.spoken_of(row.id);
        self.at_hand.forget(row.id);
        self.conn
            .prepare_cached(
                "UPDATE urls SET source_id = ?2 WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute([row.id.0, source.0]))
            .map_err(engine)?;
        Ok(UrlRow { source: Some(source), ..row })
    }

    pub(super) fn remember_side(&mut self, url: UrlId, source: SourceId) -> Result<(), StoreError> {
        if self.pending.side(url, source) {
            return Ok(());
        }
        self.conn
            .prepare_cached(
                "INSERT INTO url_sources (/*pg: part, */ url_id, source_id)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2)
                 ON CONFLICT (/*pg: part, */ url_id, source_id) DO NOTHING",
            )
            .and_then(|mut insert| insert.execute(params![url.0, source.0]))
            .map(|_| ())
            .map_err(engine)
    }

    pub(super) fn forget_side(&mut self, url: UrlId, source: SourceId) -> Result<bool, StoreError> {
        self.conn
            .prepare_cached(
                "DELETE FROM url_sources WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND source_id = ?2",
            )
            .and_then(|mut delete| delete.execute(params![url.0, source.0]))
            .map(|gone| gone > 0)
            .map_err(engine)
    }
}
