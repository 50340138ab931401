//! What of a host is due behind the head that its window holds, for the turns that go
//! by: what has been due for longest, and what is refreshed while new URLs crowd the
//! head.
//!
//! Bounded in what is read of each band and in all, whatever waits there. Nothing is
//! read of what is refreshed unless the head holds more new URLs than others.

use std::sync::LazyLock;

use super::packed::{site_of, valued_of};
use super::sql::{self, Row, params};
use super::state::State;
use super::turns::Place;
use super::walk::{self, read_place};
use super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::model::{CrawlId, HostId, UrlId};
use crate::queue::{Candidate, Claim};

/// Rows that are looked at, one a band: what has been due for longest may be among
/// them.
const FIRSTS: usize = 64;
/// What is refreshed that is read at most, and rows of a band that are looked at for it:
/// half of what a window holds of a host.
const REFRESHED: usize = 512;
/// Rows of a band that are looked at for each that is wanted.
const LOOKED_AT: usize = 8;

/// The first rows of a band that are due, as far as their value is to be taken anew.
const REFRESHED_OF_BAND: &str = "SELECT band, due_s, url_id, owner FROM
             (SELECT band, due_s, url_id, owner FROM queue
              WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s <= ?4
              ORDER BY due_s, url_id LIMIT ?6) AS first
         WHERE owner & 1 ORDER BY due_s, url_id LIMIT ?5";

/// The same of all bands below one, for a server.
static REFRESHED_BELOW: LazyLock<String> = LazyLock::new(|| {
    let all = walk::FIRST_OF_BANDS.replace("LIMIT 1) AS first", "LIMIT ?6) AS first");
    all.replace(
        "ORDER BY first.band DESC",
        "WHERE first.owner & 1 = 1
         ORDER BY first.band DESC, first.due_s, first.url_id LIMIT ?5",
    )
});

/// What is due behind a head.
#[derive(Default)]
pub(super) struct Behind {
    pub(super) candidates: Vec<Candidate>,
    /// Of what is refreshed, so many were wanted,
    pub(super) wanted: usize,
    /// and no more were looked for.
    pub(super) has_more: bool,
}

/// Of what is refreshed, how many a head lacks, so that every second fetch can be one.
pub(super) fn lacks<'a>(head: impl Iterator<Item = &'a Candidate>, limit: usize) -> usize {
    let (mut new, mut refreshed) = (0_usize, 0_usize);
    for candidate in head {
        new += usize::from(candidate.claim.is_new(candidate.band));
        refreshed += usize::from(candidate.claim != Claim::Fixed);
    }
    new.saturating_sub(refreshed).min(limit / 2).min(REFRESHED)
}

impl State {
    /// What has been due for longest in each band below `band`, and so many more as are
    /// `wanted` whose value is to be taken anew.
    pub(super) fn behind(
        &self,
        list: (CrawlId, HostId),
        band: u8,
        now_s: i64,
        wanted: usize,
    ) -> Result<Behind, StoreError> {
        let band = i64::from(band);
        let mut candidates =
            if wanted > 0 { self.refreshed_behind(list, band, now_s, wanted)? } else { Vec::new() };
        let has_more = wanted > 0 && candidates.len() == wanted;
        let found: IdSet<_> = candidates.iter().map(|candidate| candidate.id).collect();
        let firsts = self.firsts_behind(list, band, now_s)?;
        candidates.extend(firsts.into_iter().filter(|first| !found.contains(&first.id)));
        Ok(Behind { candidates, wanted, has_more })
    }

    fn refreshed_behind(
        &self,
        (crawl, host): (CrawlId, HostId),
        below: i64,
        now_s: i64,
        wanted: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        let read = |row: &Row<'_>| -> sql::Result<(Place, Option<i64>)> {
            Ok((read_place(row, crawl, host)?, site_of(row.get(3)?)))
        };
        let rows = |rows: usize| i64::try_from(rows.min(REFRESHED)).unwrap_or(i64::MAX);
        let (most, looks) = (rows(wanted), rows(wanted * LOOKED_AT));
        let read_all = |statement: &str, band: i64| -> Result<Vec<_>, StoreError> {
            let mut query = self.conn.prepare_cached(statement).map_err(engine)?;
            query
                .query_map(params![crawl.0, host.0, band, now_s, most, looks], read)
                .and_then(Iterator::collect)
                .map_err(engine)
        };
        let mut found = Vec::new();
        let mut take = |places: Vec<(Place, Option<i64>)>| {
            let may_lease = places.into_iter().filter(|(_, site)| self.may_lease(*site, &[]));
            found.extend(may_lease.map(|(place, _)| place.candidate()));
            found.len() >= wanted
        };
        if self.conn.server().is_some() {
            take(read_all(&REFRESHED_BELOW, below)?);
        } else {
            let mut band = below;
            while let Some(next) = self.next_band(crawl, host, band)? {
                band = next;
                if take(read_all(REFRESHED_OF_BAND, band)?) {
                    break;
                }
            }
        }
        found.truncate(wanted);
        Ok(found)
    }

    fn firsts_behind(
        &self,
        (crawl, host): (CrawlId, HostId),
        band: i64,
        now_s: i64,
    ) -> Result<Vec<Candidate>, StoreError> {
        if self.conn.server().is_some() {
            return self.firsts_at_once(crawl, host, band, now_s);
        }
        let (mut found, mut band) = (Vec::new(), band);
        while found.len() < FIRSTS
            && let Some(next) = self.next_band(crawl, host, band)?
        {
            band = next;
            let mut query = self
                .conn
                .prepare_cached(
                    "SELECT due_s, url_id, /*lite*/ owner /*end*/
                         /*pg: (coalesce(site_id, 0) << 1) | valued */ FROM queue
                     WHERE crawl_id = ?1 AND host_id = ?2
                     /*pg: AND part = (?2 & 255) */ AND band = ?3 AND due_s <= ?4
                     ORDER BY due_s, url_id LIMIT 1",
                )
                .map_err(engine)?;
            let mut rows = query.query(params![crawl.0, host.0, band, now_s]).map_err(engine)?;
            let Some(row) = rows.next().map_err(engine)? else { continue };
            let owner = row.get(2).map_err(engine)?;
            if !self.may_lease(site_of(owner), &[]) {
                continue;
            }
            let place = Place {
                crawl,
                host,
                band: u8::try_from(band).unwrap_or(u8::MAX),
                due_s: row.get(0).map_err(engine)?,
                url: UrlId(row.get(1).map_err(engine)?),
                valued: valued_of(owner),
            };
            found.push(place.candidate());
        }
        Ok(found)
    }

    /// The same of a server, by one statement.
    fn firsts_at_once(
        &self,
        crawl: CrawlId,
        host: HostId,
        band: i64,
        now_s: i64,
    ) -> Result<Vec<Candidate>, StoreError> {
        let firsts = self.firsts_below(crawl, host, band, now_s)?;
        let may_lease = |(_, site): &(Place, Option<i64>)| self.may_lease(*site, &[]);
        let firsts = firsts.into_iter().filter(may_lease).take(FIRSTS);
        Ok(firsts.map(|(place, _)| place.candidate()).collect())
    }
}
