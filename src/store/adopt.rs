//! Whose a known source is, once somebody names it who did not before.

use super::sql::{OptionalExtension, params};
use url::Url;

use super::families::UNLISTED;
use super::rows::lastmod_columns;
use super::sources::check_length;
use super::state::State;
use super::{NewSource, PlaceInLine, StoreError, engine};
use crate::model::{Role, SourceId};
use crate::url::{authority, without_fragment};

/// Who names what is looked for where sitemaps often are, though nobody says so.
pub const GUESS: &str = "well-known";

impl State {
    /// Why it is polled no more, if it is there. What an operator deleted the site's own documents
    /// do not bring back.
    pub(super) fn retired_why(&self, id: SourceId) -> Result<Option<String>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT retired_why FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([id.0], |row| row.get(0)).optional())
            .map(Option::flatten)
            .map_err(engine)
    }

    /// A child that its index dropped, or whose index was given up, and another one
    /// lists is that one's from now on; says whether it is.
    pub(super) fn adopt(&mut self, id: SourceId, source: &NewSource) -> Result<bool, StoreError> {
        let Some((parent, depth)) = source.parent else { return self.set_free(id, source) };
        let (second, precision) = lastmod_columns(source.lastmod);
        self.conn
            .prepare_cached(
                "UPDATE sources SET parent_id = ?2, depth = ?3, index_lastmod = ?4, index_precision = ?5
                 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */ AND parent_id <> ?2
                 AND (dropped_at IS NOT NULL OR EXISTS (SELECT 1 FROM sources p WHERE p.id = sources.parent_id
                     /*pg: AND p.part = (sources.parent_id & 255) */ AND p.state = 2))",
            )
            .and_then(|mut update| {
                update.execute(params![id.0, parent.0, depth, second, precision])
            })
            .map(|adopted| adopted > 0)
            .map_err(engine)
    }

    /// A child that its index dropped, or whose index was given up, and that the site
    /// itself names is nobody's child from now on, and so is any that the config names;
    /// says whether it is, and was given up.
    fn set_free(&mut self, id: SourceId, source: &NewSource) -> Result<bool, StoreError> {
        let was_retired = self.is_retired(id.0)?;
        self.conn
            .prepare_cached(
                "UPDATE sources SET parent_id = NULL, depth = 0, named_by = ?2, dropped_at = NULL, index_misses = 0
                 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */ AND parent_id IS NOT NULL
                 AND (?2 = 'config' OR dropped_at IS NOT NULL OR EXISTS (SELECT 1 FROM sources p WHERE p.id = sources.parent_id
                     /*pg: AND p.part = (sources.parent_id & 255) */ AND p.state = 2))",
            )
            .and_then(|mut update| update.execute(params![id.0, source.named_by]))
            .map(|freed| freed > 0 && was_retired)
            .map_err(engine)
    }

    /// Registers a source by hand; a known one is due now, and so is the robots.txt that
    /// is polled anyway.
    pub(super) fn submit_source(&mut self, site: &str, url: Url) -> Result<SourceId, StoreError> {
        let (site, url) = (self.site_named(site)?, without_fragment(url));
        if let Some(robots) = self.robots_at(&url)? {
            self.poll_now(robots)?;
            return Ok(robots);
        }
        let text = url.as_str().to_owned();
        let source = NewSource {
            url,
            role: Role::Sitemap,
            named_by: "submitted",
            parent: None,
            lastmod: None,
            place: PlaceInLine::NOW,
        };
        if let Some((id, _)) = self.find_source(site, &text)? {
            self.take_submitted(id, &source)?;
            self.poll_now(id)?;
            return Ok(id);
        }
        check_length(&source.url)?;
        let (_, refused) = self.register(site, &[source])?;
        if refused > 0 {
            return Err(StoreError::Refused("the site has its max_sources already".to_owned()));
        }
        self.find_source(site, &text)?
            .map(|(id, _)| id)
            .ok_or_else(|| StoreError::Engine("a source vanished as it was made".to_owned()))
    }

    /// The robots.txt that is polled at this URL, if there is one.
    fn robots_at(&mut self, url: &Url) -> Result<Option<SourceId>, StoreError> {
        if url.path() != "/robots.txt" || url.query().is_some() {
            return Ok(None);
        }
        let Some(host) = self.find_host(&authority(url))? else { return Ok(None) };
        self.conn
            .prepare_cached(
                "SELECT id FROM sources WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND role = 0 AND state = 0",
            )
            .and_then(|mut query| query.query_row([host.0], |row| row.get(0)).optional())
            .map(|id| id.map(SourceId))
            .map_err(engine)
    }

    /// What somebody submits by hand is theirs from now on, where nobody else stands for it
    /// any more: no list, index or robots.txt that is silent about it takes it away again.
    /// What the config lists stays the config's, which has it looked at now and then.
    fn take_submitted(&mut self, id: SourceId, source: &NewSource) -> Result<(), StoreError> {
        self.adopt(id, source)?;
        self.take_unclaimed(id, source)?;
        self.conn
            .prepare_cached(
                "UPDATE sources SET named_by = ?2
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                 AND state = 2 AND parent_id IS NULL AND role > 1
                 AND (named_by <> 'config' OR retired_why = ?3)",
            )
            .and_then(|mut update| update.execute(params![id.0, source.named_by, UNLISTED]))
            .map(|_| ())
            .map_err(engine)
    }

    /// A guess at a well-known place where nothing was ever read is of whoever names it
    /// now, and so is what went with the list that the config had; says whether it was one
    /// of these.
    pub(super) fn take_unclaimed(
        &mut self,
        id: SourceId,
        source: &NewSource,
    ) -> Result<bool, StoreError> {
        let (second, precision) = lastmod_columns(source.lastmod);
        let (parent, depth) = source.parent.map_or((None, 0), |(id, depth)| (Some(id.0), depth));
        self.conn
            .prepare_cached(
                "UPDATE sources SET named_by = ?2, parent_id = ?3, depth = ?4, index_lastmod = ?5, index_precision = ?6
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND named_by <> ?2
                 AND (named_by = ?7 AND last_full_at IS NULL
                     OR named_by = 'config' AND parent_id IS NULL AND state = 2 AND retired_why = ?8)",
            )
            .and_then(|mut update| {
                let named_by = source.named_by;
                update.execute(params![
                    id.0, named_by, parent, depth, second, precision, GUESS, UNLISTED
                ])
            })
            .map(|taken| taken > 0)
            .map_err(engine)
    }
}
