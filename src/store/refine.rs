//! From the rows of a host that are due to its window, each at its value as of
//! now.
//!
//! A row keeps the time at which it was to be looked at, by the price of when it
//! was written. Here it is looked at: what is not worth enough goes back with a
//! corrected due time, what is goes into the window by its value. Nothing else
//! ever moves a row because time passes or the price moves.

use rusqlite::{OptionalExtension, params};

use super::rows::{UrlRow, held};
use super::state::State;
use super::turns::Place;
use super::worth::Kept;
use super::{StoreError, engine, timestamp};
use crate::diff::snapshot::EntryHints;
use crate::model::{CrawlId, HostId, SiteId, SourceId, UrlId};
use crate::queue::window::{Extent, Valued};
use crate::queue::{Candidate, Claim};
use crate::recrawl::value::TOO_CHEAP;

/// Values are taken anew after so many seconds.
const FRESH_S: i64 = 3_600;
/// Rows behind the head that are looked at, one a band: what has been due for
/// longest may be among them.
const BEHIND: usize = 64;

impl State {
    /// Fills the window's buffer of a host with what is due of it.
    pub(super) fn fill(
        &mut self,
        crawl: CrawlId,
        host: HostId,
        now_s: i64,
        limit: usize,
    ) -> Result<(), StoreError> {
        let (due, extent, next_due) = self.due_of_host(crawl, host, now_s, limit, &[])?;
        if !self.policy.learns() || self.proof_of_host(host)? <= 0.0 {
            self.window(crawl).refill(host, &due, extent, next_due);
            return Ok(());
        }
        let last = due.last().copied().filter(|_| extent == Extent::Prefix);
        let behind = match &last {
            Some(last) => self.behind(crawl, host, i64::from(last.band), now_s)?,
            None => Vec::new(),
        };
        let fresh_until = now_s.saturating_add(FRESH_S);
        let mut head = Valued {
            candidates: Vec::with_capacity(due.len()),
            last,
            stale_at: next_due.map_or(fresh_until, |due| due.min(fresh_until)),
            ..Valued::default()
        };
        for candidate in due {
            head.candidates.extend(self.refine(candidate, now_s, &mut head.stale_at)?);
        }
        for candidate in behind {
            head.behind.extend(self.refine(candidate, now_s, &mut head.stale_at)?);
        }
        self.window(crawl).refill_by_value(host, &head);
        Ok(())
    }

    /// The candidate at its value; `None` when that is too little and its row
    /// has gone back, due no sooner than `stale_at` from then on.
    fn refine(
        &mut self,
        listed: Candidate,
        now_s: i64,
        stale_at: &mut i64,
    ) -> Result<Option<Candidate>, StoreError> {
        if listed.claim == Claim::Fixed {
            return Ok(Some(listed));
        }
        let as_listed = Candidate::as_listed(listed.id, listed.host, listed.band, listed.due_at);
        let Some(kept) = self.kept(&listed)? else { return Ok(Some(as_listed)) };
        let Some(valued) = self.weigh_now(&kept, now_s)? else { return Ok(Some(as_listed)) };
        let (worth, price) = (&valued.worth, valued.price);
        let now = timestamp(now_s.saturating_mul(1000));
        let is_overdue = worth.is_overdue(now);
        if !is_overdue && !worth.is_due(now, price * TOO_CHEAP) {
            let Some(row) = self.url_row(listed.id)?.filter(UrlRow::is_queued) else {
                return Ok(Some(as_listed));
            };
            let place = valued.place(now);
            // Later than now, or it would be looked at again at once.
            let due_s = place.surfaces.as_second().max(now_s + 1);
            self.place_url(&row, held::QUEUED, row.reason, place.band, due_s, row.attempt)?;
            *stale_at = (*stale_at).min(due_s);
            return Ok(None);
        }
        let claim = match worth.is_due(now, price) {
            false => Claim::Spare,
            true if is_overdue && worth.value(now) < price => Claim::Overdue,
            true => Claim::Worth,
        };
        Ok(Some(listed.valued(worth.score(now, price), claim)))
    }

    /// What is needed of a queued row to take its value: less than effects need,
    /// since this is read for every row that comes due.
    fn kept(&self, listed: &Candidate) -> Result<Option<Kept>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT u.site_id, u.source_id, u.hints, u.fresh_s, f.looks, u.crawl_id
                 FROM feedback f JOIN urls u ON u.id = f.url_id
                 WHERE f.url_id = ?1 AND f.looks IS NOT NULL AND u.listed = 1",
            )
            .and_then(|mut query| {
                query
                    .query_row([listed.id.0], |row| {
                        Ok(Kept {
                            id: listed.id,
                            host: listed.host,
                            site: row.get::<_, Option<i64>>(0)?.map(SiteId),
                            source: row.get::<_, Option<i64>>(1)?.map(SourceId),
                            hints: EntryHints::from_bits(row.get(2)?).unwrap_or_default(),
                            fresh_s: row.get(3)?,
                            looks: row.get(4)?,
                            crawl: CrawlId(row.get(5)?),
                        })
                    })
                    .optional()
            })
            .map_err(engine)
    }

    /// What has been due for longest in each band below `band`.
    fn behind(
        &self,
        crawl: CrawlId,
        host: HostId,
        band: i64,
        now_s: i64,
    ) -> Result<Vec<Candidate>, StoreError> {
        let (mut found, mut band) = (Vec::new(), band);
        while found.len() < BEHIND
            && let Some(next) = self.next_band(crawl, host, band)?
        {
            band = next;
            let mut query = self
                .conn
                .prepare_cached(
                    "SELECT due_s, url_id, site_id, valued FROM queue
                     WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s <= ?4
                     ORDER BY due_s, url_id LIMIT 1",
                )
                .map_err(engine)?;
            let mut rows = query.query(params![crawl.0, host.0, band, now_s]).map_err(engine)?;
            let Some(row) = rows.next().map_err(engine)? else { continue };
            if !self.may_lease(row.get(2).map_err(engine)?, &[]) {
                continue;
            }
            let place = Place {
                crawl,
                host,
                band: u8::try_from(band).unwrap_or(u8::MAX),
                due_s: row.get(0).map_err(engine)?,
                url: UrlId(row.get(1).map_err(engine)?),
                valued: row.get(3).map_err(engine)?,
            };
            found.push(place.candidate());
        }
        Ok(found)
    }
}
