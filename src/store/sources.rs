//! Sources: registered, due, polled, retired.

use super::sql::{OptionalExtension, params};
use jiff::Timestamp;
use url::Url;

use super::adopt::GUESS;
use super::families::{MOVED_AWAY, UNLISTED};
use super::grants::REVOKED;
use super::hosts::partition_of;
use super::polling::NextPollAt;
use super::rows::{decode, lastmod_columns};
use super::sites::forgotten;
use super::state::State;
use super::sums::Sum;
use super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::config::MAX_SOURCE_BYTES;
use crate::model::{HostId, Lastmod, Role, SiteId, SourceId};
use crate::url::authority;

/// A retired source, and a child that its index dropped, holds its URLs for
/// this long: it may come back.
pub(crate) const GRACE_MS: i64 = 7 * 24 * 3_600_000;

/// A dead source that is still named by someone is tried again this often.
pub(super) const PROBE_DEAD_MS: i64 = 30 * 24 * 3_600_000;

/// Why a source is retired that somebody has deleted.
pub(super) const DELETED: &str = "deleted by an operator";

/// Why that is retired which such a source named as an index.
pub(super) const INDEX_DELETED: &str = "its index was deleted by an operator";

/// Why that is retired which an index has not listed for the grace period, and what
/// lies below it.
pub(super) const DROPPED: &str = "its index does not list it any more";

/// Why an index goes with what it names, which comes back with it.
const WITH_ITS_CHILDREN: [&str; 4] = [DROPPED, UNLISTED, MOVED_AWAY, REVOKED];

/// A source to be registered.
#[derive(Debug, Clone)]
pub struct NewSource {
    /// Where it is.
    pub url: Url,
    /// What it is asked for.
    pub role: Role,
    /// Who named it.
    pub named_by: &'static str,
    /// The index that lists it, and how deep it lies.
    pub parent: Option<(SourceId, u32)>,
    /// As its index lists it.
    pub lastmod: Option<Lastmod>,
    /// When it is due for the first time.
    pub place: PlaceInLine,
}

/// The place in its host's line of what a read named.
///
/// A new source takes the place of what named it, which may have waited for long: of
/// many new sites the first would else wait until all of them have been asked for their
/// robots.txt and home page. What one read of an index makes due comes due no faster
/// than its host is asked, so that feeds, which are due often, are polled amid it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaceInLine {
    /// When that was due that named it; now, where nothing did, or it is later.
    pub since: Option<Timestamp>,
    /// So many others of the same read go before it.
    pub turn: u32,
}

/// The turns of one read are spread over as long at most: the delay of the host may be
/// shortened meanwhile.
const TURNS_MS: i64 = 24 * 3_600_000;

impl PlaceInLine {
    /// Of what is due now.
    pub const NOW: Self = Self { since: None, turn: 0 };

    /// When it is due, in milliseconds, where a host is asked every `delay`.
    fn due_ms(self, now: i64, delay: i64) -> i64 {
        let since = self.since.map_or(now, |since| since.as_millisecond().min(now));
        // The second is due with the first, only behind it: one is always due when the
        // host is free.
        let behind = i64::from(self.turn > 0 && delay > 0);
        let before = i64::from(self.turn.saturating_sub(1));
        since + behind + before.saturating_mul(delay).min(TURNS_MS)
    }
}

/// One child of an index, as the store has it.
#[derive(Debug, Clone)]
pub struct Child {
    /// The row.
    pub id: SourceId,
    /// Keyed hash of its URL: the URLs of many children would take too much memory.
    pub key: u64,
    /// As its index listed it.
    pub lastmod: Option<Lastmod>,
    /// Reads of the index in a row without it.
    pub misses: u32,
    /// First of these.
    pub dropped_at: Option<Timestamp>,
    /// Is it retired?
    pub retired: bool,
    /// The last read that brought anything.
    pub changed_at: Option<Timestamp>,
}

/// What a read of an index asks of a child.
#[derive(Debug, Clone)]
pub enum ChildEffect {
    /// Listed for the first time.
    Add(NewSource),
    /// Its lastmod moved, forwards or back, or it came back: it is due now.
    Due {
        /// The row.
        id: SourceId,
        /// As listed now.
        lastmod: Option<Lastmod>,
        /// So many others of the same read go before it.
        turn: u32,
    },
    /// Listed without the lastmod that it had: its index says nothing of it any more.
    Undated {
        /// The row.
        id: SourceId,
    },
    /// Not listed in this complete read.
    Missing {
        /// The row.
        id: SourceId,
    },
}

/// Of so many times its quota a site may have rows of sources, those that were given up
/// included: sitemaps whose names change with each page are none too many.
const RETIRED_SHARE: u64 = 10;

/// The state of a source that is polled, unless its site is paused.
pub(super) const AS_ITS_SITE: &str =
    "coalesce((SELECT CASE n.state WHEN 0 THEN 0 ELSE 1 END FROM sites n
    WHERE n.id = sources.site_id), 0)";

impl State {
    /// Registers sources of a site; known ones stay as they are. Says how many
    /// are new and how many are refused: for the site's quota, a password, or
    /// their length.
    pub(super) fn register(
        &mut self,
        site: SiteId,
        sources: &[NewSource],
    ) -> Result<(u64, u64), StoreError> {
        let quota = self.policy.of(Some(site)).max_sources;
        let delay = self.policy.of(Some(site)).host_delay;
        let mut used = self.site_sources(site)?;
        if used >= quota && used < quota.saturating_mul(RETIRED_SHARE) {
            used = self.living_sources(site)?;
        }
        let (mut added, mut refused) = (0_u64, 0_u64);
        for source in sources {
            // A password that a stranger's file names is neither sent nor kept.
            if !source.url.username().is_empty() || source.url.password().is_some() {
                refused += 1;
                continue;
            }
            let known = self.find_source(site, source.url.as_str())?;
            if let Some((id, retired_at)) = known {
                // A dead source that is still named is probed again, rarely.
                let now = self.now_ms();
                let is_long_dead = retired_at.is_some_and(|at| now - at >= PROBE_DEAD_MS);
                let is_wanted = self.adopt(id, source)?
                    || self.take_unclaimed(id, source)? && retired_at.is_some()
                    || is_long_dead;
                let went_for = self.retired_why(id)?;
                let is_wanted = is_wanted || went_for.as_deref() == Some(MOVED_AWAY);
                let is_deleted = went_for.as_deref() == Some(DELETED);
                if is_wanted && (source.named_by == "config" || !is_deleted) {
                    self.revive(id)?;
                    // What lies below it went for the same reason.
                    let why = went_for.filter(|_| !is_deleted);
                    self.revive_below(id, why.as_deref().unwrap_or(INDEX_DELETED))?;
                }
                continue;
            }
            if used >= quota || source.url.as_str().len() > MAX_SOURCE_BYTES {
                refused += 1;
                continue;
            }
            let host = self.host_named(&authority(&source.url), delay)?;
            self.ensure_robots(host, Some(site))?;
            // Another daemon may just have made it, too.
            let made = u64::from(self.insert_source(Some(site), host, source)?);
            used += made;
            added += made;
        }
        if added > 0 {
            let sum = Sum { sources: added.cast_signed(), ..Sum::default() };
            self.add_to_site(site, sum)?;
        }
        Ok((added, refused))
    }

    fn site_sources(&self, site: SiteId) -> Result<u64, StoreError> {
        self.conn
            .prepare_cached("SELECT sources FROM sites WHERE id = ?1")
            .and_then(|mut query| query.query_row([site.0], |row| row.get::<i64>(0)).optional())
            .map_err(engine)?
            .map(|sources| (sources + self.sums.of(site).sources).unsigned_abs())
            .ok_or_else(forgotten)
    }

    /// Those that are not retired.
    fn living_sources(&self, site: SiteId) -> Result<u64, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT count(*) FROM sources WHERE site_id = ?1 AND role <> 0 AND state <> 2",
            )
            .and_then(|mut query| query.query_row([site.0], |row| row.get::<i64>(0)))
            .map(i64::unsigned_abs)
            .map_err(engine)
    }

    /// A source of a site by its URL, and since when it is retired.
    pub(super) fn find_source(
        &self,
        site: SiteId,
        url: &str,
    ) -> Result<Option<(SourceId, Option<i64>)>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT id, retired_at FROM sources WHERE site_id = ?1 AND url = ?2 AND role <> 0",
            )
            .and_then(|mut query| {
                query
                    .query_row(params![site.0, url], |row| Ok((SourceId(row.get(0)?), row.get(1)?)))
                    .optional()
            })
            .map_err(engine)
    }

    /// Makes a source; says whether it did.
    fn insert_source(
        &mut self,
        site: Option<SiteId>,
        host: HostId,
        source: &NewSource,
    ) -> Result<bool, StoreError> {
        self.sources_moved = true;
        let now = self.now_ms();
        let due = source.place.due_ms(now, self.host(host)?.delay_ms);
        let (second, precision) = lastmod_columns(source.lastmod);
        let (parent, depth) = source.parent.map_or((None, 0), |(id, depth)| (Some(id.0), depth));
        self.conn
            .prepare_cached(
                "INSERT INTO sources (/*pg: part, */ id, site_id, host_id, parent_id, depth, role, url, named_by,
                     index_lastmod, index_precision, next_poll_at, rule, why, added_at, state)
                 VALUES (/*pg: CAST(?2 AS BIGINT) & 255, nextval('ids') * 256 + (CAST(?2 AS BIGINT) & 255), */
                     /*lite*/ 1 + max(coalesce((SELECT max(id) FROM sources), 0),
                         coalesce((SELECT value FROM meta WHERE key = 'last_source'), 0)), /*end*/
                     ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'new', 'it has never been polled', ?11,
                     coalesce((SELECT CASE state WHEN 0 THEN 0 ELSE 1 END FROM sites WHERE id = ?1), 0))
                 /*pg: ON CONFLICT DO NOTHING */",
            )
            .and_then(|mut insert| {
                let values = params![
                    site.map(|site| site.0),
                    host.0,
                    parent,
                    depth,
                    source.role as i64,
                    source.url.as_str(),
                    source.named_by,
                    second,
                    precision,
                    // What is polled for no site is asked for when it is needed.
                    site.map(|_| due),
                    now,
                ];
                insert.execute(values)
            })
            .map(|made| made > 0)
            .map_err(engine)
    }

    /// Every host with anything of a site on it has its robots.txt polled; another
    /// one has a row for it, to be asked for when a redirect leads there.
    pub(super) fn ensure_robots(
        &mut self,
        host: HostId,
        site: Option<SiteId>,
    ) -> Result<(), StoreError> {
        let exists: bool = self
            .conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM sources WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND role = 0)",
            )
            .and_then(|mut query| query.query_row([host.0], |row| row.get(0)))
            .map_err(engine)?;
        if exists {
            return self.take_over_robots(host, site);
        }
        let authority = self.host(host)?.authority.to_string();
        let Ok(url) = Url::parse(&format!("{authority}/robots.txt")) else { return Ok(()) };
        let source = NewSource {
            url,
            role: Role::Robots,
            named_by: "config",
            parent: None,
            lastmod: None,
            place: PlaceInLine::NOW,
        };
        self.insert_source(site, host, &source).map(|_| ())
    }

    /// robots.txt whose own site left the config is polled on behalf of the next
    /// one; that of no site is polled from now on.
    fn take_over_robots(&mut self, host: HostId, site: Option<SiteId>) -> Result<(), StoreError> {
        let Some(site) = site else { return Ok(()) };
        let taken = self
            .conn
            .prepare_cached(
                "UPDATE sources SET state = 0, site_id = ?2, next_poll_at = coalesce(next_poll_at, ?3)
                 WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */ AND role = 0
                 AND (state = 1 AND site_id <> ?2 OR site_id IS NULL) AND EXISTS (SELECT 1 FROM sites WHERE id = ?2 AND state = 0)",
            )
            .and_then(|mut update| update.execute(params![host.0, site.0, self.now_ms()]))
            .map_err(engine)?;
        self.sources_moved |= taken > 0;
        // Of what another daemon has in mind that one learns with its next read.
        if taken > 0 && self.owns(partition_of(host)) { self.heed_newcomer(host) } else { Ok(()) }
    }

    /// Brings a retired source back; it is due now.
    pub(super) fn revive(&mut self, id: SourceId) -> Result<(), StoreError> {
        self.sources_moved = true;
        let now = self.now_ms();
        self.conn
            .prepare_cached(
                &format!(
                    "UPDATE sources SET state = {AS_ITS_SITE}, retired_why = NULL, retired_at = NULL, failures = 0,
                     failing_since = NULL, dropped_at = NULL, index_misses = 0, next_poll_at = ?2,
                     rule = 'revived', why = 'it was given up, and is still named: looked at once more' WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */"
                ),
            )
            .and_then(|mut update| update.execute(params![id.0, now]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Children of an index that failed for good, and that it has gone on listing
    /// for long since, are looked at once more.
    pub(super) fn probe_dead_children(&mut self, index: SourceId) -> Result<(), StoreError> {
        let now = self.now_ms();
        let probed = self
            .conn
            .prepare_cached(
                &format!(
                    "UPDATE sources SET state = {AS_ITS_SITE}, retired_why = NULL, retired_at = NULL, failures = 0,
                     failing_since = NULL, failing = NULL, next_poll_at = ?2, rule = 'revived',
                     why = 'it was given up, and is still listed: looked at once more'
                 WHERE parent_id = ?1 AND state = 2 AND failing IS NOT NULL AND dropped_at IS NULL
                   AND retired_at <= ?3 AND retired_why <> ?4"
                ),
            )
            .and_then(|mut update| {
                update.execute(params![index.0, now, now - PROBE_DEAD_MS, DELETED])
            })
            .map_err(engine)?;
        self.sources_moved |= probed > 0;
        Ok(())
    }

    /// Sites with anything that their config may name and that was given up, or that its
    /// index dropped: it may have to come back. Guesses that hit nothing, and children that
    /// an index no longer has, are in nearly all of them.
    pub(super) fn sites_with_losses(&self) -> Result<IdSet<SiteId>, StoreError> {
        let lost = "SELECT site_id FROM sources
                    WHERE state = 2 AND (parent_id IS NULL OR named_by = 'config') AND named_by <> ?1
                        AND site_id IS NOT NULL
                    UNION ALL SELECT site_id FROM sources WHERE dropped_at IS NOT NULL AND state <> 2
                        AND (parent_id IS NULL OR named_by = 'config') AND site_id IS NOT NULL";
        Ok(self.column(lost, [GUESS])?.into_iter().map(SiteId).collect())
    }

    /// Makes a source due now because someone asked; an index that was given up
    /// comes back with what went for the same reason. A child that its index does not
    /// list stays for another week, and is none of it meanwhile: what its siblings miss
    /// is not held back by one that cannot be read any more.
    pub(super) fn poll_now(&mut self, id: SourceId) -> Result<(), StoreError> {
        self.sources_moved = true;
        let went_for = self.retired_why(id)?;
        let now = self.now_ms();
        let found = self
            .conn
            .prepare_cached(
                &format!(
                    "UPDATE sources SET state = CASE state WHEN 2 THEN {AS_ITS_SITE} ELSE state END, retired_why = NULL,
                     retired_at = NULL, dropped_at = CASE WHEN dropped_at IS NULL THEN dropped_at ELSE ?2 END,
                     next_poll_at = ?2, rule = 'asked', why = 'someone asked for it'
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */"
                ),
            )
            .and_then(|mut update| update.execute(params![id.0, now]))
            .map_err(engine)?;
        if found == 0 {
            return Err(StoreError::NotFound(format!("there is no source {id}")));
        }
        self.asked.push(id);
        if let Some(why) = went_for.filter(|why| WITH_ITS_CHILDREN.contains(&why.as_str())) {
            self.revive_below(id, &why)?;
        }
        self.revive_below(id, INDEX_DELETED)
    }

    /// Is it polled no more?
    pub(super) fn is_retired(&self, id: i64) -> Result<bool, StoreError> {
        let retired = "SELECT 1 FROM sources WHERE id = ?1
                       /*pg: AND part = (?1 & 255) */ AND state = 2";
        Ok(!self.column(retired, [id])?.is_empty())
    }

    /// Applies what a read of an index asks of its children, or what else names
    /// sources.
    pub(super) fn apply_children(
        &mut self,
        index: Option<SourceId>,
        site: SiteId,
        effects: Vec<ChildEffect>,
    ) -> Result<(u64, u64), StoreError> {
        // Whoever deleted it meanwhile wants none of them back.
        if index.map_or(Ok(false), |index| self.is_retired(index.0))? {
            return Err(StoreError::Gone("it was retired while it was read".to_owned()));
        }
        let now = self.now_ms();
        let delay = index.map_or(Ok(0), |index| self.delay_of(index))?;
        let (mut fresh, mut refused, mut room) = (Vec::new(), 0, None);
        let mut has_dropped = false;
        for effect in effects {
            match effect {
                ChildEffect::Add(source) => fresh.push(source),
                ChildEffect::Due { id, lastmod, turn } => {
                    let is_retired = self.is_retired(id.0)?;
                    let went_for = if is_retired { self.retired_why(id)? } else { None };
                    if is_retired {
                        // Counted once: there may be very many.
                        let left: &mut u64 = match &mut room {
                            Some(left) => left,
                            None => room.insert(self.room_for_sources(site)?),
                        };
                        if *left == 0 {
                            refused += 1;
                            continue;
                        }
                        *left -= 1;
                    }
                    self.sources_moved = true;
                    let (second, precision) = lastmod_columns(lastmod);
                    self.conn
                        .prepare_cached(
                            "UPDATE sources SET index_lastmod = ?2, index_precision = ?3, index_misses = 0,
                                 dropped_at = NULL WHERE id = ?1
                                 /*pg: AND part = (?1 & 255) */",
                        )
                        .and_then(|mut update| update.execute(params![id.0, second, precision]))
                        .map_err(engine)?;
                    self.conn
                        .prepare_cached(
                            // Of one that failed for good the grace goes on until a poll
                            // succeeds: it may be dated anew all the time. One that was
                            // due already goes before others, and no poll that is under
                            // way counts as the one that is asked for.
                            &format!(
                                "UPDATE sources SET state = CASE state WHEN 2 THEN {AS_ITS_SITE} ELSE state END,
                                 retired_why = NULL, rule = 'index',
                                 next_poll_at = CASE WHEN state = 2 OR next_poll_at IS NULL OR next_poll_at > ?4
                                     THEN ?4 WHEN next_poll_at > ?2 THEN next_poll_at ELSE ?2 END,
                                 retired_at = CASE WHEN failing IS NULL THEN NULL ELSE retired_at END,
                                 why = 'its index says that it has changed' WHERE id = ?1
                                 /*pg: AND part = (?1 & 255) */ AND retired_why IS DISTINCT FROM ?3"
                            ),
                        )
                        .and_then(|mut update| {
                            let due = PlaceInLine { since: None, turn }.due_ms(now, delay);
                            update.execute(params![id.0, now, DELETED, due])
                        })
                        .map_err(engine)?;
                    if went_for.as_deref() == Some(DROPPED) {
                        self.revive_below(id, DROPPED)?;
                    }
                }
                ChildEffect::Undated { id } => {
                    self.conn
                        .prepare_cached(
                            "UPDATE sources SET index_lastmod = NULL, index_precision = NULL
                             WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
                        )
                        .and_then(|mut update| update.execute([id.0]))
                        .map_err(engine)?;
                }
                ChildEffect::Missing { id } => {
                    self.conn
                        .prepare_cached(
                            // The first time counts here, which may be done twice; further
                            // ones where the read ends.
                            "UPDATE sources SET dropped_at = coalesce(dropped_at, ?2),
                                 index_misses = CASE index_misses WHEN 0 THEN 1 ELSE index_misses END
                             WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                             RETURNING dropped_at = ?2 AND index_misses = 1",
                        )
                        .and_then(|mut update| {
                            let first = update.query_row(params![id.0, now], |row| row.get(0));
                            first.optional()
                        })
                        .map(|first| has_dropped |= first.unwrap_or(false))
                        .map_err(engine)?;
                }
            }
        }
        if has_dropped {
            self.ask_other_indexes(site, index, "another index of its site has dropped a sitemap")?;
        }
        let (added, more) = self.register(site, &fresh)?;
        Ok((added, refused + more))
    }

    /// How often the host of a source is asked at most, in milliseconds.
    fn delay_of(&mut self, id: SourceId) -> Result<i64, StoreError> {
        let host: Option<i64> = self
            .conn
            .prepare_cached(
                "SELECT host_id FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([id.0], |row| row.get(0)).optional())
            .map_err(engine)?;
        host.map_or(Ok(0), |host| Ok(self.host(HostId(host))?.delay_ms))
    }

    /// How many more sources of a site may be polled.
    fn room_for_sources(&self, site: SiteId) -> Result<u64, StoreError> {
        let quota = self.policy.of(Some(site)).max_sources;
        let rows = self.site_sources(site)?;
        let used = if rows < quota { 0 } else { self.living_sources(site)? };
        Ok(quota.saturating_sub(used))
    }

    /// The poll was not made: it is due again then, by the wall clock, and why.
    pub(super) fn defer_poll(
        &mut self,
        id: SourceId,
        until: Timestamp,
        why: &str,
    ) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?2,
                     rule = CASE WHEN rule IN ('asked', 'pinged', 'index') THEN rule ELSE 'deferred' END,
                     why = ?3 WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */ AND state <> 2",
            )
            .and_then(|mut update| update.execute(params![id.0, until.as_millisecond(), why]))
            .map(|_| ())
            .map_err(engine)
    }

    /// The poll was not needed.
    pub(super) fn skip_poll(&mut self, id: SourceId, next: &NextPollAt) -> Result<(), StoreError> {
        let Some(at) = next.at else { return self.retire(id.0, &next.why) };
        self.conn
            .prepare_cached(
                // Who pinged it since it came due is not content with that, nor is who
                // asked for it: of one that is asked for no poll is skipped, so that has
                // come since.
                "UPDATE sources SET interval_ms = ?3, rhythm = ?6,
                     next_poll_at = CASE WHEN rule IN ('asked', 'pinged', 'index') THEN next_poll_at
                         WHEN hinted_at >= next_poll_at AND hinted_at < ?2 THEN hinted_at ELSE ?2 END,
                     rule = CASE WHEN rule IN ('asked', 'pinged', 'index') THEN rule
                         WHEN hinted_at >= next_poll_at AND hinted_at < ?2 THEN 'pinged' ELSE ?4 END,
                     why = CASE WHEN rule IN ('asked', 'pinged', 'index') THEN why
                         ELSE 'its index says that it has not changed; ' || ?5 END WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */ AND state <> 2",
            )
            .and_then(|mut update| {
                update.execute(params![
                    id.0,
                    at.as_millisecond(),
                    next.interval_ms,
                    next.rule,
                    next.why,
                    next.rhythm
                ])
            })
            .map(|_| ())
            .map_err(engine)
    }
}

/// Is there room for the URL of a source?
pub(super) fn check_length(url: &Url) -> Result<(), StoreError> {
    if url.as_str().len() > MAX_SOURCE_BYTES {
        let why = "the URL of a sitemap or feed has at most 2,048 bytes as it is sent";
        return Err(StoreError::Refused(why.to_owned()));
    }
    Ok(())
}

/// The column that keeps a role.
pub(super) fn role(code: i64) -> Role {
    decode(&Role::ALL, code).unwrap_or(Role::Sitemap)
}
