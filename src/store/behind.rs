//! What of a host is due behind the head that its window holds, for the turns that go
//! by: what has been due for longest, what is refreshed while new URLs crowd the head,
//! and new URLs while what is refreshed crowds it.
//!
//! Bounded in what is read of each band and in all, whatever waits there. Nothing is
//! read of what is refreshed unless the head holds more new URLs than others, and
//! nothing of new URLs unless it holds next to none; where there were none, nobody looks
//! for a while, or until one is queued.

use std::sync::LazyLock;

use super::packed::{site_of, valued_of};
use super::sql::{self, Row, params};
use super::state::State;
use super::turns::Place;
use super::walk::{self, read_place};
use super::{StoreError, engine};
use crate::by_id::{ById, IdSet};
use crate::model::{CrawlId, HostId, UrlId};
use crate::queue::{Candidate, Claim};
use crate::recrawl::value::NEW_EVERY;

/// Rows that are looked at, one a band: what has been due for longest may be among
/// them.
const FIRSTS: usize = 64;
/// What is refreshed that is read at most, and rows of a band that are looked at for it
/// or for new URLs: half of what a window holds of a host.
const REFRESHED: usize = 512;
/// Rows of a band that are looked at for each that is wanted.
const LOOKED_AT: usize = 8;
/// Where no new URL was found, one that was queued before may have come due after so many
/// seconds.
const IN_VAIN_S: i64 = 600;
/// Hosts remembered as such at most; with more, all are looked at again.
const IN_VAIN: usize = 16_384;

/// The first rows of a band behind one that are due, as far as their value is to be taken
/// anew, or as far as it is not.
const OF_BAND: &str = "SELECT band, due_s, url_id, owner FROM
             (SELECT band, due_s, url_id,
                  /*lite*/ owner /*end*/
                  /*pg: (coalesce(site_id, 0) << 1) | valued AS owner */ FROM queue
              WHERE crawl_id = ?1 AND host_id = ?2 /*pg: AND part = (?2 & 255) */
                  AND band = ?3 AND due_s <= ?4 AND (due_s, url_id) > (?8, ?9)
              ORDER BY due_s, url_id LIMIT ?6) AS first
         WHERE owner & 1 = ?7 ORDER BY due_s, url_id LIMIT ?5";

/// The same of all bands below one, for a server.
static BELOW: LazyLock<String> = LazyLock::new(|| {
    let all = walk::FIRST_OF_BANDS.replace("LIMIT 1) AS first", "LIMIT ?6) AS first");
    all.replace(
        "ORDER BY first.band DESC",
        "WHERE first.owner & 1 = ?7
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
    /// Are there more new URLs?
    pub(super) has_more_new: bool,
    /// So many more would be of use.
    pub(super) room_for_new: usize,
}

/// What a head lacks for the turns that go by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    /// Of what is refreshed, so that every second fetch can be one.
    refreshed: usize,
    /// Of new URLs, so that one fetch in [`NEW_EVERY`] can be one,
    new: usize,
    /// of which it holds none at all.
    has_none_new: bool,
}

/// What a head lacks.
pub(super) fn lacks<'a>(head: impl Iterator<Item = &'a Candidate>, limit: usize) -> Lacks {
    let (mut new, mut refreshed) = (0_usize, 0_usize);
    for candidate in head {
        new += usize::from(candidate.claim.is_new(candidate.band));
        refreshed += usize::from(candidate.claim != Claim::Fixed);
    }
    let every = usize::try_from(NEW_EVERY).unwrap_or(usize::MAX);
    Lacks {
        refreshed: new.saturating_sub(refreshed).min(limit / 2).min(REFRESHED),
        new: refreshed.div_ceil(every - 1).saturating_sub(new).min(limit.div_ceil(every)),
        has_none_new: new == 0,
    }
}

/// Lists of hosts behind whose heads no new URL was found, and until when that holds.
#[derive(Debug, Default)]
pub(super) struct InVain {
    until: ById<(CrawlId, HostId), i64>,
}

impl InVain {
    fn is_of(&self, list: (CrawlId, HostId), now_s: i64) -> bool {
        let until = self.until.get(&list);
        until.is_some_and(|until| (until - IN_VAIN_S..*until).contains(&now_s))
    }

    fn note(&mut self, list: (CrawlId, HostId), now_s: i64) {
        if self.until.len() >= IN_VAIN {
            self.until.clear();
        }
        self.until.insert(list, now_s + IN_VAIN_S);
    }

    /// Something is queued there for another reason than its value.
    pub(super) fn forget(&mut self, list: (CrawlId, HostId)) {
        if !self.until.is_empty() {
            self.until.remove(&list);
        }
    }

    pub(super) fn clear(&mut self) {
        self.until.clear();
    }
}

impl State {
    /// What has been due for longest in each band below that of the `last` of a head, and
    /// as much of what that lacks as there is behind it.
    pub(super) fn behind(
        &mut self,
        place: (CrawlId, HostId),
        last: &Candidate,
        now_s: i64,
        lacks: Lacks,
    ) -> Result<Behind, StoreError> {
        let mut candidates = self.kind_behind(place, last, now_s, (true, lacks.refreshed))?;
        let has_more = lacks.refreshed > 0 && candidates.len() == lacks.refreshed;
        let is_in_vain = lacks.new == 0 || self.none_new.is_of(place, now_s);
        let wanted_new = if is_in_vain { 0 } else { lacks.new };
        let new = self.kind_behind(place, last, now_s, (false, wanted_new))?;
        if wanted_new > 0 && new.is_empty() && lacks.has_none_new {
            self.none_new.note(place, now_s);
        }
        let has_more_new = wanted_new > 0 && new.len() == wanted_new;
        let room_for_new = lacks.new - new.len();
        candidates.extend(new);
        let found: IdSet<_> = candidates.iter().map(|candidate| candidate.id).collect();
        let firsts = self.firsts_behind(place, last.band.into(), now_s)?;
        candidates.extend(firsts.into_iter().filter(|first| !found.contains(&first.id)));
        let wanted = lacks.refreshed;
        Ok(Behind { candidates, wanted, has_more, has_more_new, room_for_new })
    }

    /// So many as are `wanted` behind the `last` of a head, of those whose value is to be
    /// taken anew or of the others, the highest bands first.
    fn kind_behind(
        &self,
        (crawl, host): (CrawlId, HostId),
        last: &Candidate,
        now_s: i64,
        (is_valued, wanted): (bool, usize),
    ) -> Result<Vec<Candidate>, StoreError> {
        let mut found = Vec::new();
        if wanted == 0 {
            return Ok(found);
        }
        let read = |row: &Row<'_>| -> sql::Result<(Place, Option<i64>)> {
            Ok((read_place(row, crawl, host)?, site_of(row.get(3)?)))
        };
        let is_far = self.conn.server().is_some();
        // Of a few sizes, since on a server each is a statement of its own.
        let rows = |rows: usize| {
            let rows = rows.min(REFRESHED);
            let size = [16, 64, 256].into_iter().find(|size| *size >= rows).unwrap_or(REFRESHED);
            i64::try_from(if is_far { size } else { rows }).unwrap_or(i64::MAX)
        };
        let (most, looks) = (rows(wanted), rows(wanted.saturating_mul(LOOKED_AT)));
        let kind = i64::from(is_valued);
        let of_band = |band: i64, (due_s, url): (i64, i64)| -> Result<Vec<_>, StoreError> {
            let mut query = self.conn.prepare_cached(OF_BAND).map_err(engine)?;
            let values = params![crawl.0, host.0, band, now_s, most, looks, kind, due_s, url];
            query.query_map(values, read).and_then(Iterator::collect).map_err(engine)
        };
        let mut take = |places: Vec<(Place, Option<i64>)>| {
            let may_lease = places.into_iter().filter(|(_, site)| self.may_lease(*site, &[]));
            found.extend(may_lease.map(|(place, _)| place.candidate()));
            found.len() >= wanted
        };
        let mut band = i64::from(last.band);
        // New URLs are looked for so seldom that it may be in the rest of that band, too.
        let rest = if is_valued { Vec::new() } else { of_band(band, (last.due_at, last.id.0))? };
        if !take(rest) {
            if is_far {
                let mut query = self.conn.prepare_cached(&BELOW).map_err(engine)?;
                let values = params![crawl.0, host.0, band, now_s, most, looks, kind];
                let below = query.query_map(values, read).and_then(Iterator::collect);
                take(below.map_err(engine)?);
            } else {
                while let Some(next) = self.next_band(crawl, host, band)? {
                    band = next;
                    if take(of_band(band, (i64::MIN, i64::MIN))?) {
                        break;
                    }
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
