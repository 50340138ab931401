//! Sites: registered by the config, learned, paused, forgotten.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::sql::{self, OptionalExtension, params};
use url::Url;

use super::sources::{NewSource, PlaceInLine};
use super::state::State;
use super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::config::{Config, Site, SourceList};
use crate::model::{CrawlId, HostId, Role, SiteId, SourceId};
use crate::url::{are_twins, authority};

/// Rows dropped in one job while a site is forgotten, about.
const FORGET: i64 = 2_000;
/// What a source counts as among them, whatever is kept of it.
const A_SOURCE: i64 = 20;

/// What drops so many rows of what is kept of a source by its number. Not `changes`: what
/// it told of URLs that others list too is not heard by all who follow yet. Of rows that
/// are gone nothing is told anyway.
static KEPT: LazyLock<[String; 6]> = LazyLock::new(|| {
    let tables = [
        ("snapshots", "source_id"),
        ("polls", "id"),
        ("robots_changes", "id"),
        ("topics", "source_id"),
        ("callbacks", "id"),
        ("deliveries", "id"),
    ];
    tables.map(|(table, key)| {
        format!(
            "DELETE FROM {table} WHERE {key} IN
                 (SELECT {key} FROM {table} WHERE source_id = ?1
                  /*pg: AND part = (?1 & 255) */ LIMIT ?2)
             /*pg: AND part = (?1 & 255) */"
        )
    })
});

/// Codes of `sites.state`.
pub(super) mod site_state {
    pub(crate) const ACTIVE: i64 = 0;
    pub(crate) const PAUSED: i64 = 1;
    pub(crate) const UNREGISTERED: i64 = 2;
}

/// What a poll hears that wants to keep something of a site that is gone.
pub(super) fn forgotten() -> StoreError {
    StoreError::Gone("its site was forgotten while it was read".to_owned())
}

/// Key of `meta`: a site was paused when it left the config.
fn left_paused(site: SiteId) -> String {
    format!("left_paused.{}", site.0)
}

impl State {
    /// Makes the sites of the store those of the config: new ones get their
    /// first sources, changed ones their new URL, missing ones stop being
    /// polled and keep their rows. Those that are not `touched` are as the
    /// store has them, unless they have lost something that may have to come back.
    pub(super) fn sync_sites(
        &mut self,
        config: &Config,
        touched: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        self.policy.by_site.clear();
        self.doubt_robots();
        if self.engine.claim.is_some() {
            // Of those who start with one configuration one after the other.
            self.conn
                .query_row("SELECT key FROM meta WHERE key = 'seed' FOR UPDATE", (), |_| Ok(()))
                .map_err(engine)?;
        }
        // There before anything is, so that fetchers may wait for it.
        self.crawl_named("default")?;
        let active = self.active_sites()?;
        let is_left_out = |name: &String| !touched(name) && active.contains_key(name);
        let losses = if config.sites.keys().any(is_left_out) {
            self.sites_with_losses()?
        } else {
            IdSet::default()
        };
        for site in config.sites.values() {
            let known = active.get(&site.name).filter(|id| !losses.contains(id));
            let as_it_was = known.filter(|_| !touched(&site.name)).copied();
            let id = match as_it_was {
                Some(id) => id,
                None => self.sync_site(site)?,
            };
            if let Some(policy) = self.policy.by_name.get(&site.name) {
                self.policy.by_site.insert(id, policy.clone());
            }
            if as_it_was.is_none() {
                self.sync_sources(id, site)?;
                self.heed_rule(id, site, &config.poll)?;
            }
        }
        self.heed_default_delay()?;
        for (name, id) in active {
            if !config.sites.contains_key(&name) {
                self.unregister(id)?;
            }
        }
        self.hand_over_robots()?;
        self.heed_weights()?;
        self.note_placing()?;
        self.read_paused_sites()
    }

    /// Sites that had not left when they were last looked at, paused ones among
    /// them, in the order of their names.
    pub(super) fn active_sites(&self) -> Result<BTreeMap<String, SiteId>, StoreError> {
        self.conn
            .prepare_cached("SELECT name, id FROM sites WHERE state <> ?1")
            .and_then(|mut query| {
                query
                    .query_map([site_state::UNREGISTERED], |row| {
                        Ok((row.get(0)?, SiteId(row.get(1)?)))
                    })?
                    .collect()
            })
            .map_err(engine)
    }

    fn sync_site(&mut self, site: &Site) -> Result<SiteId, StoreError> {
        let crawl = self.crawl_named(&site.crawl)?;
        let known: Option<(i64, i64, i64, String, Option<String>)> = self
            .conn
            .query_row(
                "SELECT id, crawl_id, state, url, judged_for FROM sites WHERE name = ?1",
                [&site.name],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
            )
            .optional()
            .map_err(engine)?;
        let now = self.now_ms();
        let agent = site.obey_robots.then_some(&site.robots_agent);
        let Some((id, old_crawl, state, url, judged_for)) = known else {
            return self
                .conn
                .query_row(
                    "INSERT INTO sites (name, crawl_id, url, origin, judged_for, added_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6) RETURNING id",
                    params![
                        site.name,
                        crawl.0,
                        site.url.as_str(),
                        authority(&site.url),
                        agent,
                        now
                    ],
                    |row| row.get(0).map(SiteId),
                )
                .map_err(engine);
        };
        if old_crawl != crawl.0 {
            return Err(StoreError::Misconfigured(format!(
                "site {:?} cannot move to crawl {:?}: its URLs live in another one; \
                 remove it, run `sitemapd sites forget {}`, then register it again",
                site.name, site.crawl, site.name
            )));
        }
        if url != site.url.as_str() {
            self.carry_blocks(SiteId(id), &site.url)?;
            // What was learned of the old address does not hold for the new one.
            self.conn
                .execute(
                    "UPDATE sites SET url = ?2, origin = ?3 WHERE id = ?1",
                    params![id, site.url.as_str(), authority(&site.url)],
                )
                .map_err(engine)?;
        }
        if judged_for.as_ref() != agent {
            self.conn
                .execute("UPDATE sites SET judged_for = ?2 WHERE id = ?1", params![id, agent])
                .map_err(engine)?;
            self.recheck_site(SiteId(id))?;
        }
        if state == site_state::UNREGISTERED {
            let is_paused = self.take_meta(&left_paused(SiteId(id)))?;
            let (state, sources_from) =
                if is_paused { (site_state::PAUSED, 0) } else { (site_state::ACTIVE, 1) };
            if is_paused {
                tracing::warn!(site = site.name, "a site that is paused, as it was when it left");
            }
            self.conn
                .execute("UPDATE sites SET state = ?2 WHERE id = ?1", params![id, state])
                .map_err(engine)?;
            self.sources_moved = true;
            // All that they list is listed again, now or should they be polled again
            // after all: others may have let go of it.
            self.conn
                .execute(
                    "UPDATE sources SET epoch = 0, state = CASE state WHEN ?2 THEN ?3 ELSE state END
                     WHERE site_id = ?1",
                    params![id, sources_from, 1 - sources_from],
                )
                .map_err(engine)?;
        }
        Ok(SiteId(id))
    }

    /// The sources that the config itself names: robots.txt and home page
    /// where anything is to be found out, and what it lists.
    fn sync_sources(&mut self, id: SiteId, site: &Site) -> Result<(), StoreError> {
        let delay = site.host_delay;
        let host = self.host_named(&authority(&site.url), delay)?;
        self.ensure_robots(host, Some(id))?;
        self.heed_delay_of(id, host, site.host_delay)?;
        if site.sitemaps == SourceList::Auto && !self.has_sitemaps(id)? {
            // Whoever asked for the robots.txt before, this site has not heard
            // what it names.
            self.sources_moved = true;
            let now = self.now_ms();
            self.conn
                .execute(
                    "UPDATE sources SET next_poll_at = ?2, rule = 'asked', why = 'a site is new here'
                     WHERE role = 0 AND host_id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 0",
                    params![host.0, now],
                )
                .map_err(engine)?;
        }
        let mut sources = Vec::new();
        let named = |url: &Url, role| NewSource {
            url: url.clone(),
            role,
            named_by: "config",
            parent: None,
            lastmod: None,
            place: PlaceInLine::NOW,
        };
        // The home page tells the twin that a site redirects to, and its feeds.
        sources.push(named(&site.url, Role::Home));
        if let SourceList::Listed(urls) = &site.sitemaps {
            sources.extend(urls.iter().map(|url| named(url, Role::Sitemap)));
        }
        if let SourceList::Listed(urls) = &site.feeds {
            sources.extend(urls.iter().map(|url| named(url, Role::Feed)));
        }
        let has_moved = self.leave_old_address(id, site)?;
        self.register(id, &sources)?;
        let has_lost_sitemaps = self.retire_unlisted(id, site)?;
        self.revive_listed(id, site)?;
        if site.sitemaps == SourceList::Auto {
            self.ask_robots_for_sitemaps(id, host, has_moved || has_lost_sitemaps)?;
        }
        Ok(())
    }

    /// The robots.txt of a host may have been read before this site was there
    /// to hear of the sitemaps that it names, or while it had another address.
    fn ask_robots_for_sitemaps(
        &mut self,
        id: SiteId,
        host: HostId,
        has_moved: bool,
    ) -> Result<(), StoreError> {
        let due = self
            .conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?3, rule = 'new-site',
                     why = 'a site on this host wants to know its sitemaps'
                 WHERE host_id = ?2 /*pg: AND part = (?2 & 255) */ AND role = 0 AND state = 0 AND last_poll_at IS NOT NULL
                   AND (?4 = 1 OR NOT EXISTS (SELECT 1 FROM sources s WHERE s.site_id = ?1 AND s.role = 2
                       AND s.named_by IN ('robots.txt', 'well-known', 'home page')))",
            )
            .and_then(|mut update| {
                update.execute(params![id.0, host.0, self.now_ms(), has_moved])
            })
            .map_err(engine)?;
        self.sources_moved |= due > 0;
        Ok(())
    }

    fn has_sitemaps(&self, id: SiteId) -> Result<bool, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM sources WHERE site_id = ?1 AND role = ?2)",
            )
            .and_then(|mut query| {
                query.query_row(params![id.0, Role::Sitemap as i64], |row| row.get(0))
            })
            .map_err(engine)
    }

    /// Gives a source up; its URLs are let go after a grace period.
    pub(super) fn retire(&mut self, source: i64, why: &str) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn
            .prepare_cached(
                "UPDATE sources SET state = 2, next_poll_at = NULL, retired_why = ?2, why = ?2,
                     rule = 'retired', retired_at = ?3
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND state <> 2",
            )
            .and_then(|mut update| update.execute(params![source, why, now]))
            .map(|_| ())
            .map_err(engine)
    }

    fn unregister(&mut self, id: SiteId) -> Result<(), StoreError> {
        let states = self.column("SELECT state FROM sites WHERE id = ?1", [id.0])?;
        if states.contains(&site_state::PAUSED) {
            // Somebody paused it, and nobody has resumed it when it comes back.
            self.set_meta(&left_paused(id), "1")?;
        }
        self.conn
            .execute(
                "UPDATE sites SET state = ?2 WHERE id = ?1",
                params![id.0, site_state::UNREGISTERED],
            )
            .map_err(engine)?;
        self.conn
            .execute("UPDATE sources SET state = 1 WHERE site_id = ?1 AND state = 0", [id.0])
            .map_err(engine)?;
        Ok(())
    }

    /// Stops, or starts again, polling and leasing of a site.
    pub(super) fn pause_site(&mut self, name: &str, paused: bool) -> Result<(), StoreError> {
        let id = self.site_named(name)?;
        self.doubt_robots();
        let (from, to) = if paused { (0, 1) } else { (1, 0) };
        let changed = self
            .conn
            .execute(
                "UPDATE sites SET state = ?2 WHERE id = ?1 AND state <> 2",
                params![id.0, if paused { site_state::PAUSED } else { site_state::ACTIVE }],
            )
            .map_err(engine)?;
        if changed == 0 {
            return Err(StoreError::Refused(format!(
                "site {name:?} is not in the config any more"
            )));
        }
        self.conn
            .execute(
                "UPDATE sources SET state = ?3 WHERE site_id = ?1 AND state = ?2",
                params![id.0, from, to],
            )
            .map_err(engine)?;
        self.hand_over_robots()?;
        if !paused {
            self.take_back_robots(id)?;
        }
        self.read_paused_sites()?;
        self.sources_moved |= !paused;
        self.reload_windows()
    }

    /// Which sites are not leased from: those that are paused, or have left; and on a server
    /// those that others have in their config and we do not have yet, of whose robots.txt,
    /// delays and bounds we know nothing.
    pub(super) fn read_paused_sites(&mut self) -> Result<(), StoreError> {
        let mut query = self.conn.prepare_cached("SELECT id, state FROM sites").map_err(engine)?;
        let mut paused: Vec<(SiteId, i64)> = query
            .query_map((), |row| Ok((SiteId(row.get(0)?), row.get(1)?)))
            .and_then(Iterator::collect)
            .map_err(engine)?;
        drop(query);
        paused.retain(|(site, state)| *state != site_state::ACTIVE || self.is_others(*site));
        let left = paused.iter().filter(|(_, state)| *state == site_state::UNREGISTERED);
        self.left_sites = left.map(|(site, _)| *site).collect();
        self.paused_sites = paused.into_iter().map(|(site, _)| site).collect();
        self.site_walks.clear();
        self.none_new.clear();
        self.paused_heads.get_mut().clear();
        self.begin_handing_over();
        Ok(())
    }

    /// Is a site one that only the configs of other daemons have?
    fn is_others(&self, site: SiteId) -> bool {
        self.engine.claim.is_some() && !self.policy.by_site.contains_key(&site)
    }

    /// Something of a site is to be applied: what others have listed of one that we do
    /// not know yet waits from the first of it on, and not from when we hear of the site.
    pub(super) fn meet_site(&mut self, site: SiteId) {
        if self.is_others(site) && self.paused_sites.insert(site) {
            self.site_walks.clear();
            self.paused_heads.get_mut().clear();
        }
    }

    /// The site with a name, or the error that says so.
    pub(super) fn site_named(&self, name: &str) -> Result<SiteId, StoreError> {
        let id: Option<i64> = self
            .conn
            .prepare_cached("SELECT id FROM sites WHERE name = ?1")
            .and_then(|mut query| query.query_row([name], |row| row.get(0)).optional())
            .map_err(engine)?;
        id.map(SiteId).ok_or_else(|| StoreError::NotFound(format!("no site is named {name:?}")))
    }

    /// The form that a site's home page redirects to; says whether it is new. `Gone`
    /// where the site was forgotten while its home page was read.
    pub(super) fn learn_origin(&mut self, id: SiteId, origin: &Url) -> Result<bool, StoreError> {
        self.carry_blocks(id, origin)?;
        self.conn
            .prepare_cached("UPDATE sites SET origin = ?2 WHERE id = ?1 AND origin <> ?2")
            .and_then(|mut update| update.execute(params![id.0, authority(origin)]))
            .map(|changed| changed > 0)
            .map_err(engine)
    }

    /// Blocks what is blocked at the form that a site has had at its twin as well, where
    /// its pages come as new ones from now on.
    fn carry_blocks(&mut self, id: SiteId, origin: &Url) -> Result<(), StoreError> {
        let known: Option<(i64, String)> = self
            .conn
            .prepare_cached("SELECT crawl_id, origin FROM sites WHERE id = ?1")
            .and_then(|mut query| {
                query.query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(engine)?;
        let (crawl, old) = known.ok_or_else(forgotten)?;
        let new = authority(origin);
        if old == new || !Url::parse(&old).is_ok_and(|old| are_twins(&old, origin)) {
            return Ok(());
        }
        self.copy_blocks(CrawlId(crawl), &old, &new)
    }

    /// Forgets what sources of a site listed when they were last read, before any of that
    /// goes: should the site return half forgotten, all is listed again. Some at a time,
    /// behind the one named; answers which to go on behind, if there are more.
    pub(super) fn forget_reads(
        &mut self,
        name: &str,
        behind: i64,
    ) -> Result<Option<i64>, StoreError> {
        let id = self.unregistered(name)?;
        let sources = self.column(
            "SELECT id FROM sources WHERE site_id = ?1 AND role <> 0 AND id > ?2
             ORDER BY id LIMIT ?3",
            [id.0, behind, FORGET / A_SOURCE],
        )?;
        let parts = [
            "DELETE FROM snapshots WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */",
            "UPDATE sources SET etag = NULL, last_modified = NULL, wire_hash = NULL,
                 body_hash = NULL, last_full_at = NULL, pending = 0
             WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
        ];
        for source in &sources {
            for sql in parts {
                self.conn
                    .prepare_cached(sql)
                    .and_then(|mut part| part.execute([*source]))
                    .map_err(engine)?;
            }
        }
        Ok(sources.last().copied())
    }

    /// A site by its name that has left the config; of another one the rows would
    /// come back with the next poll.
    pub(super) fn unregistered(&self, name: &str) -> Result<SiteId, StoreError> {
        let id = self.site_named(name)?;
        let state: i64 = self
            .conn
            .query_row("SELECT state FROM sites WHERE id = ?1", [id.0], |row| row.get(0))
            .map_err(engine)?;
        if state != site_state::UNREGISTERED {
            return Err(StoreError::Refused(format!(
                "site {name:?} is still in the config: remove its [[site]] block and reload first"
            )));
        }
        Ok(id)
    }

    /// Drops what else there is of a site without URLs, a part at a time; `true`
    /// while there is more. It counted `none` as a walk through all URLs found none
    /// of it.
    pub(super) fn forget_rest(
        &mut self,
        name: &str,
        none: Option<i64>,
    ) -> Result<bool, StoreError> {
        let id = self.unregistered(name)?;
        // What others apply of it at this moment is committed, and counted, before.
        self.column("SELECT 1 FROM sites WHERE id = ?1 /*pg: FOR UPDATE */", [id.0])?;
        if self.may_have_urls(id, none)? {
            return Err(StoreError::Elsewhere);
        }
        self.keep_source_numbers()?;
        let mut left = FORGET;
        let sources = self.column(
            "SELECT id FROM sources WHERE site_id = ?1 LIMIT ?2",
            [id.0, FORGET / A_SOURCE + 1],
        )?;
        for source in sources {
            left -= self.forget_source(source, left)? + A_SOURCE;
            if left <= 0 {
                return Ok(true);
            }
        }
        // robots.txt belongs to the host, which other sites may share.
        self.hand_over_robots()?;
        self.conn.execute("DELETE FROM site_hosts WHERE site_id = ?1", [id.0]).map_err(engine)?;
        self.forget_site_hosts(id);
        self.doubt_robots();
        self.take_meta(&left_paused(id))?;
        self.conn.execute("DELETE FROM sites WHERE id = ?1", [id.0]).map_err(engine)?;
        Ok(false)
    }

    /// Drops a source with what is kept of it, about so many rows at most; says how
    /// many. Its own row goes when nothing else is left, that of a robots.txt stays with
    /// its host.
    fn forget_source(&mut self, source: i64, most: i64) -> Result<i64, StoreError> {
        let rows = |rows: usize| i64::try_from(rows).unwrap_or(i64::MAX);
        let mut dropped = rows(self.forget_some_said(source, most)?);
        for sql in KEPT.iter() {
            let some = self
                .conn
                .prepare_cached(sql)
                .and_then(|mut delete| delete.execute([source, most]))
                .map_err(engine)?;
            dropped += rows(some);
        }
        if dropped >= most {
            return Ok(dropped);
        }
        self.forget_lessons_of(SourceId(source))?;
        let last = [
            "UPDATE sources SET site_id = NULL, parent_id = NULL, state = 0, next_poll_at = NULL
             WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND role = 0",
            "UPDATE sources SET parent_id = NULL WHERE parent_id = ?1",
            "DELETE FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND role <> 0",
        ];
        for sql in last {
            self.conn
                .prepare_cached(sql)
                .and_then(|mut last| last.execute([source]))
                .map_err(engine)?;
        }
        Ok(dropped)
    }

    /// May any URL be a site's? That it has none is what it counts, or what it counted
    /// when none was found, which is wrong then: with a URL that came since it would
    /// count another number.
    fn may_have_urls(&self, id: SiteId, none: Option<i64>) -> Result<bool, StoreError> {
        let counted = self.column("SELECT urls FROM sites WHERE id = ?1", [id.0])?;
        let urls = counted.iter().sum::<i64>() + self.sums.of(id).urls;
        Ok(urls != 0 && Some(urls) != none)
    }

    /// One column of numbers.
    pub(super) fn column(&self, sql: &str, args: impl sql::Params) -> Result<Vec<i64>, StoreError> {
        let mut query = self.conn.prepare_cached(sql).map_err(engine)?;
        query.query_map(args, |row| row.get(0)).and_then(Iterator::collect).map_err(engine)
    }

    /// Reads the turns again after something outside the queue changed what
    /// may be leased.
    pub(super) fn reload_windows(&mut self) -> Result<(), StoreError> {
        self.flush_deltas()?;
        self.none_new.clear();
        self.early.clear();
        self.paused_heads.get_mut().clear();
        for crawl in self.crawls.keys().copied().collect::<Vec<_>>() {
            self.load_window(crawl)?;
        }
        Ok(())
    }
}
