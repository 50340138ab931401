//! URLs whose site has left the config, and whose they are then: those that another
//! site lists too are that one's, at once where it lists them again, and else by
//! and by, as a part of the housekeeping.
//!
//! How far that has come is not kept: it begins anew with a start, a reload, and
//! with other partitions, and finds what was left.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::sql::{OptionalExtension, params};

use super::effect::Origin;
use super::orders::{START, Spot};
use super::packed::{Listing, SAID};
use super::rows::{UrlRow, held};
use super::state::State;
use super::sums::Sum;
use super::turns::Place;
use super::worth::thousandths;
use super::{StoreError, engine};
use crate::diff::snapshot::EntryHints;
use crate::model::{SiteId, SourceId, UrlId};

/// Further sources of URLs that are looked at in one job.
const LOOK: i64 = 1_000;
/// URLs of any site that are looked at in one job while a site is forgotten.
const SEEK: i64 = 10_000;
/// Those of it that are dropped in one job at most.
const FORGET: i64 = 2_000;
/// The same on a server, to which each row is some journeys.
const FORGET_FAR: i64 = 400;

/// URLs of a site among the next ones of all.
static SOME_OF_SITE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT id, said FROM (
             SELECT u.id, {} AS said, u.site_id FROM urls u
             WHERE u.id > ?2 /*pg: AND u.part = (?2 & 255) */
             ORDER BY u.id LIMIT ?3) AS looked
         WHERE site_id = ?1 ORDER BY id LIMIT ?4",
        *SAID
    )
});

/// The last of those next ones, where there are so many.
const LAST_LOOKED_AT: &str = "SELECT id FROM urls
    WHERE id > ?1 /*pg: AND part = (?1 & 255) */ ORDER BY id LIMIT 1 OFFSET ?2";

/// Partitions whose end is reached in one job at most.
const PARTS: usize = 16;

/// In place of a source, where a walk is still at the URLs themselves.
const OF_URLS: i64 = -1;

fn of_urls(behind: i64) -> Spot {
    (behind, OF_URLS)
}

/// One further source of a URL.
#[derive(Debug, Clone, Copy)]
struct Side {
    url: i64,
    source: i64,
}

impl State {
    /// What others list of sites that have left is to be handed over to them.
    pub(super) fn begin_handing_over(&mut self) {
        self.handing_over = if self.left_sites.is_empty() { None } else { self.walk_from(0) };
    }

    /// Before the first row of the first partition of ours from `part` on. A file is
    /// one walk; elsewhere the low bits say the partition.
    fn walk_from(&self, part: i64) -> Option<i64> {
        if self.conn.embedded().is_some() {
            return (part == 0).then_some(-1);
        }
        (part..256).find(|part| self.owns(*part)).map(|part| part - 256)
    }

    /// Hands over a part of what others list of sites that have left; `true` while
    /// there is more.
    pub(super) fn hand_over_some(&mut self) -> Result<bool, StoreError> {
        let Some(after) = self.handing_over else { return Ok(false) };
        let shared: Vec<(UrlId, Option<SiteId>)> = self
            .conn
            .prepare_cached(
                "SELECT x.url_id, u.site_id FROM url_sources x
                 /*lite*/ CROSS /*end*/ JOIN urls u ON u.id = x.url_id /*pg: AND u.part = x.part */
                 WHERE x.url_id > ?1 /*pg: AND x.part = (?1 & 255) */
                 ORDER BY x.url_id LIMIT ?2",
            )
            .and_then(|mut query| {
                query
                    .query_map([after, LOOK], |row| {
                        Ok((UrlId(row.get(0)?), row.get::<Option<i64>>(1)?.map(SiteId)))
                    })
                    .and_then(Iterator::collect)
            })
            .map_err(engine)?;
        let is_last = i64::try_from(shared.len()).unwrap_or(LOOK) < LOOK;
        let reached = shared.last().map_or(after, |(url, _)| url.0);
        let mut before = None;
        for (url, site) in shared {
            let Some(from) = site.filter(|site| self.left_sites.contains(site)) else { continue };
            if before.replace(url) == Some(url) {
                continue;
            }
            let Some((source, heir)) = self.heir_of(url, from)? else { continue };
            if let Some(row) = self.url_row(url)? {
                self.inherit(row, source, heir)?;
            }
        }
        let next = (after & 255) + 1;
        self.handing_over = if is_last { self.walk_from(next) } else { Some(reached) };
        Ok(self.handing_over.is_some())
    }

    /// A source lists a URL: whose it is, where its site has left the config, is
    /// that source's site.
    pub(super) fn take_from_left(
        &mut self,
        row: UrlRow,
        origin: Origin,
    ) -> Result<UrlRow, StoreError> {
        if self.is_left_to(origin, &row) {
            return self.inherit(row, origin.source, origin.site);
        }
        Ok(row)
    }

    /// Has the site of a URL left the config, and that of the source not?
    pub(super) fn is_left_to(&self, origin: Origin, row: &UrlRow) -> bool {
        let has_left = |site: SiteId| self.left_sites.contains(&site);
        row.site.is_some_and(has_left) && !has_left(origin.site)
    }

    /// Takes a URL over from a site that has left, and may come back: what listed it
    /// there lists it still.
    fn inherit(
        &mut self,
        row: UrlRow,
        source: SourceId,
        site: SiteId,
    ) -> Result<UrlRow, StoreError> {
        let (from, before) = (row.site, row.source);
        let row = self.give_to(row, source, site)?;
        if let Some(before) = before.filter(|before| row.listed && *before != source) {
            self.remember_side(row.id, before)?;
        }
        if let Some(from) = from {
            self.count_row(from, &row, false)?;
        }
        Ok(row)
    }

    /// Another site's source lists the URL too: it is that site's from now on. The
    /// sums of the site that had it are for the caller.
    pub(super) fn hand_over(&mut self, url: UrlId, from: SiteId) -> Result<bool, StoreError> {
        let Some((source, site)) = self.heir_of(url, from)? else { return Ok(false) };
        let Some(row) = self.url_row(url)? else { return Ok(false) };
        self.give_to(row, source, site)?;
        Ok(true)
    }

    /// A URL that no source holds any more stays, without a site, where a client of the
    /// frontier made it known; says whether one did.
    pub(super) fn leave_to_client(&mut self, row: &UrlRow) -> Result<bool, StoreError> {
        if !self.keep_pushed(row.id)? {
            return Ok(false);
        }
        if let Some(from) = row.site {
            self.count_row(from, row, false)?;
        }
        self.part_with_site(row.clone())?;
        Ok(true)
    }

    /// The same where its site is forgotten, with whatever lists it there. The sums of
    /// that site are for the caller.
    fn leave_forgotten(&mut self, url: UrlId, from: SiteId) -> Result<bool, StoreError> {
        if !self.keep_pushed(url)? {
            return Ok(false);
        }
        self.conn
            .prepare_cached(
                "DELETE FROM url_sources WHERE url_id = ?1 /*pg: AND part = (?1 & 255) */
                     AND source_id IN (SELECT id FROM sources WHERE site_id = ?2)",
            )
            .and_then(|mut delete| delete.execute(params![url.0, from.0]))
            .map_err(engine)?;
        if let Some(row) = self.url_row(url)? {
            self.part_with_site(row)?;
        }
        Ok(true)
    }

    /// What follows for a URL that is no site's any more.
    fn part_with_site(&mut self, row: UrlRow) -> Result<(), StoreError> {
        self.requeue_for(&row, None)?;
        self.settle_in(UrlRow { site: None, source: None, ..row }).map(|_| ())
    }

    /// Drops a part of what is ours of a site that is forgotten, its URLs first; says
    /// how many of these, and where it goes on.
    pub(super) fn forget_part(
        &mut self,
        name: &str,
        behind: Spot,
    ) -> Result<(u64, Option<Spot>), StoreError> {
        // Where somebody else's walk has come to is of no use.
        let is_begun = behind != START && self.owns(behind.0 & 255);
        let behind = if is_begun { Some(behind) } else { self.walk_from(0).map(of_urls) };
        let Some((url, source)) = behind else { return Ok((0, None)) };
        if source != OF_URLS {
            let next = self.forget_sides(name, Side { url, source })?;
            return Ok((0, next.map(|side| (side.url, side.source))));
        }
        let (dropped, next) = self.forget_some(name, url)?;
        // Behind the last URL the sides begin.
        let sides = || self.walk_from(0).map(|url| (url, i64::MAX));
        Ok((dropped, next.map(of_urls).or_else(sides)))
    }

    /// Drops a part of a site's URLs, those behind a row: it looks at so many of any
    /// site, and drops so many, at most. `None` where there is no more.
    fn forget_some(&mut self, name: &str, behind: i64) -> Result<(u64, Option<i64>), StoreError> {
        let id = self.unregistered(name)?;
        let most = if self.conn.server().is_some() { FORGET_FAR } else { FORGET };
        let mut rows = Vec::new();
        let mut next = Some(behind);
        for _ in 0..PARTS {
            let Some(behind) = next else { break };
            let reached = self.find_some(id, behind, most, &mut rows)?;
            next = reached.or_else(|| self.walk_from((behind & 255) + 1));
            if reached.is_some() {
                break;
            }
        }
        self.keep_row_numbers()?;
        let mut gone = Vec::with_capacity(rows.len());
        let mut sum = Sum::default();
        for (row, hints, listed) in &rows {
            sum.urls -= 1;
            sum.unlisted -= i64::from(!listed);
            sum.priorities -= thousandths(hints.priority);
            if !self.hand_over(*row, id)? && !self.leave_forgotten(*row, id)? {
                gone.push(*row);
            }
        }
        self.forget_urls(&gone)?;
        if !rows.is_empty() {
            self.add_to_site(id, sum)?;
        }
        Ok((rows.len() as u64, next))
    }

    /// URLs of a site among the next ones behind a row, until there are `most`; says
    /// where it goes on, or that the partition ends there.
    fn find_some(
        &self,
        site: SiteId,
        behind: i64,
        most: i64,
        rows: &mut Vec<(UrlId, EntryHints, bool)>,
    ) -> Result<Option<i64>, StoreError> {
        let wanted = most.saturating_sub(i64::try_from(rows.len()).unwrap_or(i64::MAX));
        let found: Vec<(UrlId, EntryHints, bool)> = self
            .conn
            .prepare_cached(&SOME_OF_SITE)
            .and_then(|mut query| {
                query
                    .query_map(params![site.0, behind, SEEK, wanted], |row| {
                        let said = Listing::unpack(row.get(1)?);
                        Ok((UrlId(row.get(0)?), said.hints, said.listed))
                    })?
                    .collect()
            })
            .map_err(engine)?;
        let is_full = i64::try_from(found.len()).is_ok_and(|count| count == wanted);
        let last = found.last().map(|(last, ..)| last.0);
        rows.extend(found);
        match last {
            Some(last) if is_full => Ok(Some(last)),
            _ => Ok(self.column(LAST_LOOKED_AT, [behind, SEEK - 1])?.pop()),
        }
    }

    /// What a site that is forgotten lists besides others is theirs alone, a part at a
    /// time: that behind a row. `None` where there is no more.
    fn forget_sides(&mut self, name: &str, behind: Side) -> Result<Option<Side>, StoreError> {
        let site = self.unregistered(name)?;
        let first = |url| Side { url, source: i64::MAX };
        let sources: HashSet<i64> = self
            .column("SELECT id FROM sources WHERE site_id = ?1", [site.0])?
            .into_iter()
            .collect();
        let sides: Vec<Side> = self
            .conn
            .prepare_cached(
                "SELECT url_id, source_id FROM url_sources
                 WHERE (url_id, source_id) > (?1, ?2) /*pg: AND part = (?1 & 255) */
                 ORDER BY url_id, source_id LIMIT ?3",
            )
            .and_then(|mut query| {
                query
                    .query_map([behind.url, behind.source, LOOK], |row| {
                        Ok(Side { url: row.get(0)?, source: row.get(1)? })
                    })?
                    .collect()
            })
            .map_err(engine)?;
        let is_last = i64::try_from(sides.len()).unwrap_or(LOOK) < LOOK;
        let reached = sides.last().copied().unwrap_or(behind);
        for side in sides.into_iter().filter(|side| sources.contains(&side.source)) {
            let (url, source) = (UrlId(side.url), SourceId(side.source));
            self.forget_side(url, source)?;
            if self.forget_said(source, url)?
                && let Some(row) = self.url_row(url)?
            {
                self.heed_marks(row)?;
            }
        }
        Ok(if is_last { self.walk_from((behind.url & 255) + 1).map(first) } else { Some(reached) })
    }

    /// What else lists a URL, of another site than that: what is polled, or was given
    /// up and holds what it listed for the time being.
    fn heir_of(&self, url: UrlId, from: SiteId) -> Result<Option<(SourceId, SiteId)>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT x.source_id, s.site_id FROM url_sources x JOIN sources s ON s.id = x.source_id
                     /*pg: AND s.part = (x.source_id & 255) */
                 JOIN sites n ON n.id = s.site_id AND n.state <> 2
                 WHERE x.url_id = ?1 /*pg: AND x.part = (?1 & 255) */ AND s.site_id <> ?2 AND (s.state <> 2 OR EXISTS
                     (SELECT 1 FROM snapshots p WHERE p.source_id = s.id /*pg: AND p.part = s.part */))
                 ORDER BY s.window, s.state = 2, s.id LIMIT 1",
            )
            .and_then(|mut query| {
                query
                    .query_row(params![url.0, from.0], |row| {
                        Ok((SourceId(row.get(0)?), SiteId(row.get(1)?)))
                    })
                    .optional()
            })
            .map_err(engine)
    }

    /// The URL is another site's, and that source of it comes first.
    pub(super) fn give_to(
        &mut self,
        row: UrlRow,
        source: SourceId,
        site: SiteId,
    ) -> Result<UrlRow, StoreError> {
        self.requeue_for(&row, Some(site))?;
        self.pending.spoken_of(row.id);
        self.at_hand.forget(row.id);
        self.conn
            .prepare_cached(
                "UPDATE urls SET site_id = ?2, source_id = ?3 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute(params![row.id.0, site.0, source.0]))
            .map_err(engine)?;
        self.forget_side(row.id, source)?;
        self.count_row(site, &row, true)?;
        self.settle_in(UrlRow { site: Some(site), source: Some(source), ..row })
    }

    /// Its place names its site, for leases that ask for some only.
    fn requeue_for(&mut self, row: &UrlRow, site: Option<SiteId>) -> Result<(), StoreError> {
        if !row.is_queued() {
            return Ok(());
        }
        self.dequeue(row.place())?;
        let valued = self.is_valued(row, row.reason);
        self.enqueue(Place { valued, ..row.place() }, site)
    }

    /// What else follows for a URL from whose it is.
    fn settle_in(&mut self, row: UrlRow) -> Result<UrlRow, StoreError> {
        if let Some(site) = row.site {
            self.poll_robots_of(site, row.host)?;
            self.note_site_host(site, row.host)?;
        }
        if row.state == held::FORBIDDEN {
            // That site may be judged for another token.
            self.recheck_host(row.host)?;
        }
        if row.expires_s.is_some() || row.fresh_s.is_some() {
            // Only what the others say counts from now on.
            let url = row.id;
            self.heed_marks(row.clone())?;
            return Ok(self.url_row(url)?.unwrap_or(row));
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_forgetting_looks_at_no_more_urls_than_it_says() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        conn.execute_batch(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 50000)
             INSERT INTO urls (id, crawl_id, host_id, site_id, path, said)
                 SELECT n, 1, 1, n > 45000, x'', 0 FROM n",
        )
        .unwrap();
        let steps = |sql: &str, args: &[i64]| {
            let mut query = conn.prepare(sql).unwrap();
            let rows = query.query_map(rusqlite::params_from_iter(args), |row| row.get(0));
            let rows: Vec<i64> = rows.unwrap().map(Result::unwrap).collect();
            (rows, query.get_status(rusqlite::StatementStatus::VmStep))
        };
        // The work of one part does not depend on where in the table it is.
        for (behind, found, last) in [
            (-1, 0, Some(10_000)),
            (39_000, 2_000, Some(49_000)),
            (46_000, 2_000, None),
            (49_500, 500, None),
        ] {
            let (rows, first) = steps(&SOME_OF_SITE, &[1, behind, SEEK, FORGET]);
            let (reached, second) = steps(LAST_LOOKED_AT, &[behind, SEEK - 1]);
            assert_eq!((rows.len(), reached.first().copied()), (found, last), "{behind}");
            let most = i32::try_from(SEEK).unwrap() * 15;
            assert!(first < most && second < most, "{behind}: {first} and {second} steps");
        }
    }
}
