//! An index and what it names, down to the last child: sources that are given up
//! together and come back together, each for the reason that it went for.
//!
//! Also the lists of the config, which may name an index and leave out another one.

use std::collections::HashSet;

use super::sql::{OptionalExtension, params};
use url::Url;

use super::adopt::GUESS;
use super::hosts::millis;
use super::state::State;
use super::{StoreError, engine};
use crate::config::{Site, SourceList};
use crate::model::{DocumentKind, Role, SiteId, SourceId};
use crate::url::SiteRules;

/// Why a source is retired that is not in the list of the config.
pub(super) const UNLISTED: &str = "the config does not list it";

/// Why other indexes are asked what they list.
const GIVEN_UP: &str = "another index of its site was given up";
const LISTED_LESS: &str = "the config lists a sitemap of its site no more";

/// Why that is retired which only the address that a site had before spoke for.
pub(super) const MOVED_AWAY: &str = "the site has another address now";

impl State {
    /// A source and what lies below it, so far as it is retired for this reason;
    /// without one, so far as it is not retired.
    pub(super) fn with_descendants(
        &self,
        root: SourceId,
        retired_why: Option<&str>,
    ) -> Result<Vec<SourceId>, StoreError> {
        let mut query = self
            .conn
            .prepare_cached(
                "WITH RECURSIVE below (id, why) AS (
                     SELECT id, retired_why FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                     UNION SELECT s.id, s.retired_why FROM sources s JOIN below b ON s.parent_id = b.id)
                 SELECT id FROM below WHERE why IS NOT DISTINCT FROM ?2",
            )
            .map_err(engine)?;
        query
            .query_map(params![root.0, retired_why], |row| row.get(0).map(SourceId))
            .and_then(Iterator::collect)
            .map_err(engine)
    }

    /// Gives up a source and what lies below it.
    pub(super) fn retire_below(&mut self, root: SourceId, why: &str) -> Result<(), StoreError> {
        for source in self.with_descendants(root, None)? {
            self.retire(source.0, why)?;
        }
        match self.site_of_index(root)? {
            Some(site) => self.ask_other_indexes(site, None, GIVEN_UP),
            None => Ok(()),
        }
    }

    /// The site of a source that named others.
    fn site_of_index(&self, source: SourceId) -> Result<Option<SiteId>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT g.site_id FROM sources g WHERE g.id = ?1 /*pg: AND g.part = (?1 & 255) */
                     AND EXISTS (SELECT 1 FROM sources c WHERE c.parent_id = g.id)",
            )
            .and_then(|mut query| {
                query.query_row([source.0], |row| row.get(0).map(SiteId)).optional()
            })
            .map_err(engine)
    }

    /// What an index does not list any more, or what was given up with it, may stand in
    /// another one of its site, which need not have changed for that: those are read in
    /// full, now; one that is being read, once more; one that fails, when it is asked again
    /// anyway. Where an index that is polled says so (`but`), once an hour at most: two
    /// whose lists differ from read to read would else have each other polled for ever.
    pub(super) fn ask_other_indexes(
        &mut self,
        site: SiteId,
        but: Option<SourceId>,
        why: &str,
    ) -> Result<(), StoreError> {
        let spacing = but.map_or(0, |_| millis(self.policy.index_spacing));
        // Those of a paused site by a statement of their own, since the indexes know
        // what is polled.
        let states: &[&str] = if self.paused_sites.is_empty() { &["0"] } else { &["0", "1"] };
        for state in states {
            let asked = self
                .conn
                .prepare_cached(&format!(
                    "UPDATE sources SET last_full_at = CASE WHEN last_full_at IS NULL THEN NULL ELSE 0 END,
                         next_poll_at = CASE WHEN failures > 0 THEN next_poll_at WHEN next_poll_at <= ?2 THEN ?2
                             ELSE /*lite*/ min /*end*/ /*pg: LEAST */ (next_poll_at,
                                 /*lite*/ max /*end*/ /*pg: GREATEST */ (?2, coalesce(last_poll_at, 0) + ?6)) END,
                         rule = CASE WHEN failures > 0 THEN rule ELSE 'index' END,
                         why = CASE WHEN failures > 0 THEN why ELSE ?4 || ': what that one listed may be here' END
                     WHERE site_id = ?1 AND kind = ?3 AND state = {state} AND next_poll_at IS NOT NULL
                       AND id <> ?5"
                ))
                .and_then(|mut update| {
                    let index = DocumentKind::Index.as_str();
                    let but = but.map_or(0, |index| index.0);
                    update.execute(params![site.0, self.now_ms(), index, why, but, spacing])
                })
                .map_err(engine)?;
            self.sources_moved |= asked > 0;
        }
        Ok(())
    }

    /// Brings back of a source and what lies below it what went for this reason.
    pub(super) fn revive_below(&mut self, root: SourceId, why: &str) -> Result<(), StoreError> {
        for source in self.with_descendants(root, Some(why))? {
            self.revive(source)?;
        }
        Ok(())
    }

    /// "Exactly what the config lists": what was found before a list was given,
    /// or has left the list, is retired, with what it named as an index. Where nothing is
    /// listed any more that is what only the list named, until it is found.
    /// Says whether sitemaps were retired.
    pub(super) fn retire_unlisted(&mut self, id: SiteId, site: &Site) -> Result<bool, StoreError> {
        let mut unlisted = Vec::new();
        for (role, list) in [(Role::Sitemap, &site.sitemaps), (Role::Feed, &site.feeds)] {
            let (urls, named_by) = match list {
                SourceList::Listed(urls) => (urls.as_slice(), None),
                SourceList::Auto => (&[][..], Some("config")),
            };
            // Given up already, it may still have children that are polled; what was
            // never asked for has none.
            let mut query = self
                .conn
                .prepare_cached(
                    "SELECT id, url FROM sources
                     WHERE site_id = ?1 AND role = ?2 AND parent_id IS NULL
                       AND named_by <> 'submitted' AND named_by = coalesce(?3, named_by)
                       AND (state <> 2 OR last_poll_at IS NOT NULL AND ?3 IS NULL)",
                )
                .map_err(engine)?;
            let known: Vec<(i64, String)> = query
                .query_map(params![id.0, role as i64, named_by], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .and_then(Iterator::collect)
                .map_err(engine)?;
            let is_listed = |url: &str| urls.iter().any(|listed| listed.as_str() == url);
            let left = known.into_iter().filter(|(_, url)| !is_listed(url));
            unlisted.extend(left.map(|(source, _)| (SourceId(source), role)));
        }
        if unlisted.is_empty() {
            return Ok(false);
        }
        let kept = self.listed_below(id, site)?;
        let mut has_lost_sitemaps = false;
        for (root, role) in unlisted {
            for source in self.with_descendants(root, None)? {
                if !kept.contains(&source) {
                    self.retire(source.0, UNLISTED)?;
                    has_lost_sitemaps |= role == Role::Sitemap;
                }
            }
        }
        // Once, since a site may lose very many at a time.
        if has_lost_sitemaps {
            self.ask_other_indexes(id, None, LISTED_LESS)?;
        }
        Ok(has_lost_sitemaps)
    }

    /// The address that the site had before speaks for it no more, and may be a
    /// stranger's by now: its home page is given up, and what was found on hosts that
    /// are none of the site's, until it is found anew. Says whether there was one.
    pub(super) fn leave_old_address(
        &mut self,
        id: SiteId,
        site: &Site,
    ) -> Result<bool, StoreError> {
        let homes = self
            .conn
            .prepare_cached(
                "UPDATE sources SET state = 2, next_poll_at = NULL, retired_why = ?3, why = ?3,
                     rule = 'retired', retired_at = coalesce(retired_at, ?4)
                 WHERE site_id = ?1 AND role = 1 AND url <> ?2 AND retired_why IS DISTINCT FROM ?3",
            )
            .and_then(|mut update| {
                update.execute(params![id.0, site.url.as_str(), MOVED_AWAY, self.now_ms()])
            })
            .map_err(engine)?;
        if homes == 0 {
            return Ok(false);
        }
        let rules = SiteRules::new(site, None);
        for (root, url) in self.found(id)? {
            if Url::parse(&url).is_ok_and(|url| rules.is_foreign(&url)) {
                self.retire_below(root, MOVED_AWAY)?;
            }
        }
        Ok(true)
    }

    /// What was found for a site and is polled, but for what indexes name.
    fn found(&self, id: SiteId) -> Result<Vec<(SourceId, String)>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT id, url FROM sources WHERE site_id = ?1 AND parent_id IS NULL
                     AND named_by IN ('robots.txt', 'home page', ?2) AND role <> 0 AND state <> 2",
            )
            .and_then(|mut query| {
                query
                    .query_map(params![id.0, GUESS], |row| Ok((SourceId(row.get(0)?), row.get(1)?)))
                    .and_then(Iterator::collect)
            })
            .map_err(engine)
    }

    /// What the lists of a site name, and what that named: it may stand in an
    /// index that they do not name.
    fn listed_below(&self, id: SiteId, site: &Site) -> Result<HashSet<SourceId>, StoreError> {
        let mut kept = HashSet::new();
        for list in [&site.sitemaps, &site.feeds] {
            let SourceList::Listed(urls) = list else { continue };
            for url in urls {
                let Some((source, _)) = self.find_source(id, url.as_str())? else { continue };
                kept.extend(self.with_descendants(source, None)?);
            }
        }
        Ok(kept)
    }

    /// What only the config had retired comes back when the config lists it, or
    /// an index above it, or leaves it to be found again, as it had been.
    pub(super) fn revive_listed(&mut self, id: SiteId, site: &Site) -> Result<(), StoreError> {
        for (role, list) in [(Role::Sitemap, &site.sitemaps), (Role::Feed, &site.feeds)] {
            let mut query = self
                .conn
                .prepare_cached(
                    "SELECT id, url, parent_id IS NULL AND named_by = 'config' FROM sources
                     WHERE site_id = ?1 AND role = ?2 AND state = 2 AND retired_why = ?3",
                )
                .map_err(engine)?;
            let retired: Vec<(i64, String, bool)> = query
                .query_map(params![id.0, role as i64, UNLISTED], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .and_then(Iterator::collect)
                .map_err(engine)?;
            drop(query);
            for (source, url, was_listed) in retired {
                let source = SourceId(source);
                match list {
                    SourceList::Auto if was_listed => {}
                    SourceList::Auto => self.revive(source)?,
                    SourceList::Listed(urls) if urls.iter().any(|u| u.as_str() == url) => {
                        self.revive_below(source, UNLISTED)?;
                    }
                    SourceList::Listed(_) => {}
                }
            }
        }
        Ok(())
    }
}
