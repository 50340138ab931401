//! Housekeeping: retention, what is to be judged anew, and what retired sources
//! still hold.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::sql::{self, OptionalExtension, params};

use super::effect::{CHUNK, Effect, Origin, Unapplied};
use super::hosts::millis;
use super::log_order::{self, Log};
use super::prepared::Paths;
use super::sources::{DELETED, DROPPED as DROPPED_BY_INDEX, GRACE_MS, INDEX_DELETED};
use super::state::State;
use super::stream::DROPPED;
use super::told::Count;
use super::views::Counts;
use super::{StoreError, engine};
use crate::diff::snapshot::{Row, Snapshot};
use crate::model::{CrawlId, DocumentKind, Role, SiteId, SourceId};
use crate::recrawl::signal::Signal;

/// Sources of one site that go before those of others when it is asked for; the
/// rest takes its turn.
const FIRST_OF_SITE: i64 = 256;
/// Rows of history dropped in one job at most.
const DROP: i64 = 5_000;
/// Dropped children retired in one job at most.
const RETIRE: usize = 500;
/// URLs of a retired window in one job whose texts are let go: several statements each.
const SILENCED: i64 = 500;
/// Free pages that the file keeps for what comes (16 MiB).
const SPARE_PAGES: i64 = 4_096;
/// Beyond that the file keeps one page in so many free.
const SPARE_SHARE: i64 = 4;
/// Pages given back to the file system in one job at most.
const GIVE_BACK: i64 = 256;

/// How often it is looked for what nobody waits for.
const TEND_EVERY_MS: u64 = 3_600_000;

/// What an index dropped waits so long for the site's other ones to be read.
const OTHERS_WAIT_MS: i64 = 4 * GRACE_MS;

/// The generation of changes that no read of their source has told.
pub(super) const OF_NO_READ: i64 = 0;

/// Children that their indexes have not listed for so long.
const DROPPED_LONG_AGO: &str = "SELECT id, site_id, parent_id, dropped_at FROM sources
    WHERE dropped_at <= ?1 AND index_misses >= ?2 AND state <> 2 /*ours: part */";

/// Retired sources that still hold something when their grace is over.
const RETIRED: &str = "SELECT s.id, s.site_id, n.crawl_id, s.window, x.data, s.retired_at
    FROM sources s JOIN snapshots x ON x.source_id = s.id /*pg: AND x.part = s.part */
        JOIN sites n ON n.id = s.site_id
    WHERE s.state = 2 AND s.retired_at <= ?1";

/// Up to where retired sources are known to hold nothing: as a rule none does, and there
/// are more of them each day. What may hold something again (it was being read while it
/// was retired, or the clock was set) is found within the hour.
#[derive(Debug, Default)]
pub(super) struct Emptied {
    /// Those retired before this.
    before: i64,
    /// When all of them were last looked at.
    walked_at: i64,
}

/// A child that its index does not list any more.
struct Dropped {
    id: i64,
    site: Option<i64>,
    parent: Option<i64>,
    /// When that was first seen.
    at: i64,
}

/// A part of a history that is too old.
#[derive(Debug)]
struct OldPart {
    /// Its last row.
    last: i64,
    /// Is it as many rows as a job drops, so that there may be more of them?
    is_full: bool,
}

/// A part of what a retired source still holds.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) source: i64,
    pub(super) origin: Origin,
    /// What lets go of it.
    pub(super) effects: Vec<Effect>,
    /// Keys of the entries of its snapshot that it is; none: it goes on as it is.
    pub(super) taken: Option<HashSet<u64>>,
    retired_at: i64,
}

impl State {
    /// A bounded part of the housekeeping; `true` while there is more. What a
    /// retired source still holds is for the caller to let go.
    pub(super) fn maintain(&mut self) -> Result<(bool, Option<Leftover>), StoreError> {
        let now = self.now_ms();
        let kept_since = |keep: Duration| now.saturating_sub(millis(keep));
        let polls = kept_since(self.policy.keep_polls);
        let changes = kept_since(self.policy.keep_changes);
        let mut more = false;
        // Histories are of all: of those who share a store one tends them.
        if self.owns(0) {
            more |= self.drop_history("polls", polls)?.is_some_and(|part| part.is_full);
            more |= self.drop_changes(changes)?;
            more |= self.drop_history("robots_changes", changes)?.is_some_and(|part| part.is_full);
            more |= self.forget_submissions(polls)?;
        }
        more |= self.recheck_forbidden()?;
        more |= self.reseat_some()?;
        more |= self.hand_over_some()?;
        more |= self.unfold_some()?;
        more |= self.retire_dropped_children(now)?;
        more |= self.tend(now)?;
        more |= self.give_back_pages()?;
        let left = self.next_retired(now)?;
        Ok((more, left))
    }

    /// What nobody waits for, and costs a walk over many rows: looked for every hour.
    fn tend(&mut self, now: i64) -> Result<bool, StoreError> {
        if now.abs_diff(self.tended_at) < TEND_EVERY_MS {
            return Ok(false);
        }
        let mut more = self.probe_given_up(now)?;
        more |= self.drop_deserted(now)?;
        more |= self.recall_polls(now)?;
        if !more {
            self.tended_at = now;
        }
        Ok(more)
    }

    /// Makes the file shorter where much of it is free, as after a site was
    /// forgotten; `true` if it did.
    fn give_back_pages(&mut self) -> Result<bool, StoreError> {
        let Some(conn) = self.conn.embedded() else { return Ok(false) };
        let pragma = |name: &str| {
            let sql = format!("PRAGMA {name}");
            conn.query_row(&sql, (), |row| row.get::<_, i64>(0)).map_err(engine)
        };
        let (free, all) = (pragma("freelist_count")?, pragma("page_count")?);
        if free < SPARE_PAGES || free < all / SPARE_SHARE {
            return Ok(false);
        }
        // It goes on by a page each time that it is asked for the next row.
        let mut vacuum = conn
            .prepare_cached(&format!("PRAGMA incremental_vacuum({GIVE_BACK})"))
            .map_err(engine)?;
        let mut pages = vacuum.query(()).map_err(engine)?;
        while pages.next().map_err(engine)?.is_some() {}
        Ok(true)
    }

    /// Drops old changes, and remembers which: a cursor before them is too old.
    fn drop_changes(&mut self, before: i64) -> Result<bool, StoreError> {
        let Some(part) = self.drop_history("changes", before)? else { return Ok(false) };
        self.conn
            .prepare_cached(
                "INSERT INTO meta (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .and_then(|mut insert| insert.execute(params![DROPPED, part.last.to_string()]))
            .map(|_| part.is_full)
            .map_err(engine)
    }

    /// Drops a part of what is old, if anything is.
    fn drop_history(&mut self, table: &str, before: i64) -> Result<Option<OldPart>, StoreError> {
        let Some(part) = self.old_part(table, before)? else { return Ok(None) };
        self.conn
            .prepare_cached(&format!("DELETE FROM {table} WHERE id <= ?1"))
            .and_then(|mut delete| delete.execute([part.last]))
            .map(|_| Some(part))
            .map_err(engine)
    }

    /// A part of the history that is old as a whole. Ids grow with time, so a look at
    /// the oldest tells, but where its time is yet to come: the clock was ahead once,
    /// and those after it say how old it is.
    fn old_part(&self, table: &str, before: i64) -> Result<Option<OldPart>, StoreError> {
        let now = self.now_ms();
        let oldest = self.oldest(table, 1)?;
        if oldest.first().is_none_or(|(_, at)| (before..=now).contains(at)) {
            return Ok(None);
        }
        let rows = self.oldest(table, DROP)?;
        let end = rows.last().map(|(id, _)| *id);
        let last = if rows.iter().any(|(_, at)| *at <= now) {
            end_of_old(&rows, before, now)
        } else {
            let sql = format!("SELECT at FROM {table} WHERE at <= ?1 ORDER BY id LIMIT 1");
            let is_old = self.column(&sql, [now])?.first().is_some_and(|at| *at < before);
            end.filter(|_| is_old)
        };
        // As fast as polls were made when it began, what it keeps becomes too old: a
        // few rows are no reason to come again at once.
        let is_whole = i64::try_from(rows.len()).is_ok_and(|count| count == DROP);
        Ok(last.map(|last| OldPart { last, is_full: is_whole && end == Some(last) }))
    }

    /// The first rows of a history: their numbers and times.
    fn oldest(&self, table: &str, most: i64) -> Result<Vec<(i64, i64)>, StoreError> {
        self.conn
            .prepare_cached(&format!("SELECT id, at FROM {table} ORDER BY id LIMIT ?1"))
            .and_then(|mut query| {
                query.query_map([most], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .map_err(engine)
    }

    /// A child that its index has not listed for the grace period is retired, and what
    /// it listed itself with it; not before the other indexes of its site were read in
    /// full, which may list it.
    fn retire_dropped_children(&mut self, now: i64) -> Result<bool, StoreError> {
        let polls = self.policy.removal_polls;
        let mut query = self.conn.prepare_cached(DROPPED_LONG_AGO).map_err(engine)?;
        let dropped: Vec<Dropped> = query
            .query_map(params![now - GRACE_MS, polls], |row| {
                let (id, site) = (row.get(0)?, row.get(1)?);
                Ok(Dropped { id, site, parent: row.get(2)?, at: row.get(3)? })
            })
            .and_then(Iterator::collect)
            .map_err(engine)?;
        drop(query);
        let mut indexes = HashMap::new();
        let mut retired = 0;
        for child in dropped {
            let others = match indexes.entry(child.site) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(self.indexes_of(child.site)?),
            };
            let may_list = |(id, read): &(i64, i64)| {
                *id != child.id && Some(*id) != child.parent && *read <= child.at
            };
            if child.at > now - GRACE_MS - OTHERS_WAIT_MS && others.iter().any(may_list) {
                continue;
            }
            self.retire_below(SourceId(child.id), DROPPED_BY_INDEX)?;
            // It has had its grace already; what lies below it may stand elsewhere.
            self.conn
                .prepare_cached(
                    "UPDATE sources SET retired_at = ?2 WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */",
                )
                .and_then(|mut update| update.execute(params![child.id, now - GRACE_MS]))
                .map_err(engine)?;
            retired += 1;
            if retired == RETIRE {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The indexes of a site that are polled, each with when it was last read in full and
    /// to its end: of one that broke off nobody knows what it lists behind.
    fn indexes_of(&self, site: Option<i64>) -> Result<Vec<(i64, i64)>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT id, CASE WHEN coalesce(last_complete_at, 0) < coalesce(last_full_at, 0)
                     THEN coalesce(last_complete_at, 0) ELSE coalesce(last_full_at, 0) END FROM sources
                 WHERE site_id = ?1 AND kind = ?2 AND state = 0",
            )
            .and_then(|mut query| {
                let args = params![site, DocumentKind::Index.as_str()];
                query.query_map(args, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .map_err(engine)
    }

    /// A part of what one retired source of ours still holds, if there is any.
    fn next_retired(&mut self, now: i64) -> Result<Option<Leftover>, StoreError> {
        if now.abs_diff(self.emptied.walked_at) >= TEND_EVERY_MS {
            self.emptied = Emptied { before: 0, walked_at: now };
        }
        let sql = format!(
            "{RETIRED} AND s.retired_at >= ?2 /*ours: s.part */ ORDER BY s.retired_at LIMIT 1"
        );
        let from = self.emptied.before;
        let found = self.leftover(&sql, params![now - GRACE_MS, from])?;
        self.emptied.before = found.as_ref().map_or(now - GRACE_MS, |left| left.retired_at);
        Ok(found)
    }

    /// A part of what this source still holds, whosever it is, if it is retired.
    pub(super) fn left_of(&mut self, source: SourceId) -> Result<Option<Leftover>, StoreError> {
        let sql = format!("{RETIRED} AND s.id = ?2 /*pg: AND s.part = (?2 & 255) */");
        self.leftover(&sql, params![self.now_ms() - GRACE_MS, source.0])
    }

    fn leftover(
        &mut self,
        sql: &str,
        args: impl sql::Params,
    ) -> Result<Option<Leftover>, StoreError> {
        let found: Option<(i64, i64, i64, i64, Vec<u8>, i64)> = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut query| {
                query
                    .query_row(args, |row| {
                        let (id, site, crawl) = (row.get(0)?, row.get(1)?, row.get(2)?);
                        Ok((id, site, crawl, row.get(3)?, row.get(4)?, row.get(5)?))
                    })
                    .optional()
            })
            .map_err(engine)?;
        let Some((id, site, crawl, window, data, retired_at)) = found else { return Ok(None) };
        let origin = Origin {
            source: SourceId(id),
            site: SiteId(site),
            crawl: CrawlId(crawl),
            window: false,
            generation: OF_NO_READ,
            moves: Signal::Lastmod,
            stamped: None,
            tenure: 0,
        };
        // A damaged snapshot holds nothing that could be let go.
        let mut entries = Snapshot::decode(&data).unwrap_or_default().into_entries();
        if window > 0 {
            // A window never held anything, but said what there was to say.
            let silenced = self.spoken_of_by(id, SILENCED)?.into_iter();
            let effects: Vec<_> =
                silenced.map(|url| Effect::Extensions { url, said: None }).collect();
            let is_last = effects.is_empty();
            let taken = is_last.then(|| entries.iter().map(|entry| entry.key).collect());
            return Ok(Some(Leftover { source: id, origin, effects, taken, retired_at }));
        }
        entries.truncate(CHUNK);
        let taken = Some(entries.iter().map(|entry| entry.key).collect());
        let drops = entries.into_iter().filter_map(|entry| match entry.row {
            Row::Url(url) => Some(Effect::Drop { url }),
            Row::Rejected(_) => None,
        });
        Ok(Some(Leftover { source: id, origin, effects: drops.collect(), taken, retired_at }))
    }

    /// Lets go of a part of what a source held, unless it has come back. All of it
    /// is ours.
    pub(super) fn let_go(&mut self, left: Leftover) -> Result<(), StoreError> {
        if !self.is_retired(left.source)? {
            return Ok(());
        }
        left.effects.iter().try_for_each(|effect| self.must_own(effect.partition()))?;
        // It only drops what its source listed: no path is new. At most a chunk.
        let mut effects = Unapplied::new(left.effects, Paths::default());
        let applied = self.apply(left.origin, &mut effects)?;
        self.note_let_go(left.source, &applied.counts)?;
        self.cut_retired(left.source, left.taken.as_ref())
    }

    /// What a retired source has let go of stands among its polls, though nobody
    /// polled it: figures of what changed are those of polls.
    pub(super) fn note_let_go(&mut self, source: i64, counts: &Counts) -> Result<(), StoreError> {
        if counts.removed == 0 {
            return Ok(());
        }
        self.told.tell(Count::Changed(*counts));
        let id = log_order::next(&self.conn, Log::Polls)?;
        self.conn
            .prepare_cached(
                "INSERT INTO polls (/*pg: part, */ source_id, at, took_ms, result, counts, id, generation)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, 0, 'let-go', ?3, ?4, ?5)",
            )
            .and_then(|mut insert| {
                insert.execute(params![source, self.now_ms(), counts.kept(), id, OF_NO_READ])
            })
            .map(|_| ())
            .map_err(engine)
    }

    /// The entries that a retired source held of these keys have been let go. Where
    /// it has come back meanwhile, they are new to it.
    pub(super) fn cut_retired(
        &mut self,
        id: i64,
        taken: Option<&HashSet<u64>>,
    ) -> Result<(), StoreError> {
        let Some(taken) = taken else { return Ok(()) };
        let data: Option<Vec<u8>> = self
            .conn
            .prepare_cached(
                "SELECT data FROM snapshots WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([id], |row| row.get(0)).optional())
            .map_err(engine)?;
        let Some(data) = data else { return Ok(()) };
        let mut entries = Snapshot::decode(&data).unwrap_or_default().into_entries();
        entries.retain(|entry| !taken.contains(&entry.key));
        if entries.is_empty() {
            self.conn
                .execute(
                    "DELETE FROM snapshots WHERE source_id = ?1
                     /*pg: AND part = (?1 & 255) */",
                    [id],
                )
                .map_err(engine)?;
        } else {
            let left = Snapshot::from_unsorted(entries).encode();
            self.conn
                .execute(
                    "UPDATE snapshots SET data = ?2 WHERE source_id = ?1
                     /*pg: AND part = (?1 & 255) */",
                    params![id, left],
                )
                .map_err(engine)?;
        }
        // Should it come back, what it lists is to be listed again, whether or not
        // it has changed meanwhile.
        self.conn
            .execute(
                "UPDATE sources SET etag = NULL, last_modified = NULL, wire_hash = NULL,
                     body_hash = NULL, last_full_at = NULL, pending = 0 WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */",
                [id],
            )
            .map(|_| ())
            .map_err(engine)
    }

    /// Retires a source by hand, and what it named as an index; says which of these
    /// are to be let go of at once.
    pub(super) fn delete_source(
        &mut self,
        id: SourceId,
        drop_urls: bool,
    ) -> Result<Vec<SourceId>, StoreError> {
        let role: Option<i64> = self
            .conn
            .query_row(
                "SELECT role FROM sources WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
                [id.0],
                |row| row.get(0),
            )
            .optional()
            .map_err(engine)?;
        match role.map(super::sources::role) {
            None => return Err(StoreError::NotFound(format!("there is no source {id}"))),
            Some(Role::Robots) => {
                return Err(StoreError::Refused(
                    "robots.txt is polled for as long as anything of its host is; one that \
                     nothing needs goes by itself when nobody has asked for it in 30 days"
                        .to_owned(),
                ));
            }
            Some(_) => {}
        }
        self.retire(id.0, DELETED)?;
        // One that was given up before is not to be tried again either.
        self.conn
            .execute(
                "UPDATE sources SET retired_why = ?2, why = ?2 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */ AND retired_why <> ?2",
                params![id.0, DELETED],
            )
            .map_err(engine)?;
        self.retire_below(id, INDEX_DELETED)?;
        let mut holding = Vec::new();
        if drop_urls {
            let long_ago = self.now_ms() - GRACE_MS;
            let mut dropped = self.with_descendants(id, Some(INDEX_DELETED))?;
            dropped.push(id);
            for source in dropped {
                self.conn
                    .execute(
                        "UPDATE sources SET retired_at = ?2 WHERE id = ?1
                         /*pg: AND part = (?1 & 255) */",
                        params![source.0, long_ago],
                    )
                    .map_err(engine)?;
                let held = "SELECT source_id FROM snapshots WHERE source_id = ?1
                            /*pg: AND part = (?1 & 255) */";
                holding.extend(self.column(held, [source.0])?.into_iter().map(SourceId));
            }
        }
        Ok(holding)
    }

    /// Makes all sources of a site due now.
    pub(super) fn poll_site(&mut self, name: &str) -> Result<u64, StoreError> {
        let site = self.site_named(name)?;
        let now = self.now_ms();
        self.sources_moved = true;
        self.poll_given_up_of(site, now)?;
        let of_site = "state = 0 AND (site_id = ?1 OR role = 0 AND host_id IN
                     (SELECT host_id FROM sources WHERE site_id = ?1 AND role = 1))";
        let first = format!("SELECT id FROM sources WHERE {of_site} ORDER BY id LIMIT ?2");
        let first: Vec<i64> = self.column(&first, [site.0, FIRST_OF_SITE])?;
        self.asked.extend(first.into_iter().map(SourceId));
        self.conn
            .execute(
                &format!(
                    "UPDATE sources SET next_poll_at = ?2, rule = 'asked', why = 'someone asked for it'
                 WHERE {of_site}"
                ),
                params![site.0, now],
            )
            .map(|count| count as u64)
            .map_err(engine)
    }
}

/// The last of these rows, each a number and a time, before the first that is
/// young, that is older than `before`. A time after `now` says nothing.
fn end_of_old(rows: &[(i64, i64)], before: i64, now: i64) -> Option<i64> {
    let told = rows.iter().filter(|(_, at)| *at <= now);
    told.take_while(|(_, at)| *at < before).last().map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_all_the_time_is_found_without_a_walk_over_the_sources() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        let plan = |sql: &str| -> Vec<String> {
            let mut query = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let nulls = vec![None::<i64>; query.parameter_count()];
            let rows = query.query_map(rusqlite::params_from_iter(nulls), |row| row.get(3));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let (all, one) = (format!("{RETIRED} LIMIT 1"), format!("{RETIRED} AND s.id = ?2"));
        for (sql, index) in [
            (DROPPED_LONG_AGO, "INDEX sources_dropped"),
            (&all, "INDEX sources_retired"),
            (&one, "INTEGER PRIMARY KEY"),
        ] {
            let plan = plan(sql);
            assert!(plan[0].starts_with("SEARCH s") && plan[0].contains(index), "{plan:?}\n{sql}");
        }
    }

    #[test]
    fn what_is_old_ends_where_something_young_begins() {
        let rows = |times: &[i64]| -> Vec<_> { (1..).zip(times.iter().copied()).collect() };
        for (times, end) in [
            (&[][..], None),
            (&[50, 60], None),
            (&[1, 2, 50], Some(2)),
            // The clock was ahead, among what is old, before it, and after it.
            (&[1, 999, 2, 50], Some(3)),
            (&[999, 1, 50], Some(2)),
            (&[1, 999, 50], Some(1)),
            (&[999, 50], None),
            (&[999, 999], None),
            // The clock was behind.
            (&[50, 1, 60], None),
        ] {
            assert_eq!(end_of_old(&rows(times), 10, 100), end, "{times:?}");
        }
    }
}
