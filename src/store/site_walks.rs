//! Leases for some sites only, on hosts where others have URLs due too: those are
//! stepped over, a bounded number in each call.
//!
//! Where that was not enough, the next such call goes on from there, and now and then
//! looks at the head of the list first, where something may have come due meanwhile;
//! where all was stepped over and nothing found, the host is left alone for a while, or
//! until a URL of such a site is queued there. Every second call begins with the hosts
//! that no walk is at, so that those are not in the way of the others. All of it is in
//! memory only, and bounded.

use std::collections::HashSet;

use super::lease::PASSED_PER_CALL;
use super::packed::site_of;
use super::sql::params;
use super::state::State;
use super::walk::{AS_LISTED, BEHIND_ALL, PAGE, read_place};
use super::{StoreError, engine};
use crate::by_id::ById;
use crate::model::{CrawlId, HostId, SiteId};
use crate::queue::Candidate;

/// URLs of others stepped over in one look at a host at most, so that one host is
/// not in the way of all others.
pub(super) const PASSED_PER_LOOK: usize = PASSED_PER_CALL / 2;
/// Of these, where a walk goes on, before which the head of the list is looked at.
const PASSED_AT_HEAD: usize = PASSED_PER_LOOK / 4;
/// Where all was stepped over in vain, the host is looked at again after this: a URL
/// of such a site may have come due.
const LEFT_ALONE_MS: i64 = 10_000;
/// A walk whose caller has not looked at the head of the list for this long, which is
/// done every [`LEFT_ALONE_MS`], is nobody's any more.
const LEFT_MS: i64 = 60_000;
/// Hosts remembered at most; with more, all are walked from their heads again.
const HOSTS: usize = 4_096;
/// Sets of sites remembered of a host at most.
const SETS: usize = 8;

/// A row of a host's list: its band, its due time and its number.
type Spot = (i64, (i64, i64));

/// How far lists were walked for leases that ask for some sites.
#[derive(Debug, Default)]
pub(super) struct SiteWalks {
    of_host: ById<(CrawlId, HostId), Vec<Walked>>,
    /// Of calls for some sites, those that began with the hosts that no walk is at.
    fresh_first: HashSet<(CrawlId, Vec<SiteId>)>,
}

/// A walk for some sites that has come to nothing yet.
#[derive(Debug, Clone)]
struct Walked {
    /// For these, in order.
    sites: Vec<SiteId>,
    /// It goes on behind this row; `None`: it has come to the end.
    behind: Option<Spot>,
    /// When the head of the list was last looked at.
    looked_ms: i64,
    /// At the end: nothing is looked at before.
    until_ms: i64,
    /// Has a URL of such a site been queued since it began?
    is_renewed: bool,
}

impl SiteWalks {
    /// A URL of a site is queued.
    pub(super) fn queued(&mut self, crawl: CrawlId, host: HostId, site: SiteId) {
        if self.of_host.is_empty() {
            return;
        }
        let Some(walks) = self.of_host.get_mut(&(crawl, host)) else { return };
        // One that is at its end begins anew; any other does once it is there.
        walks.retain(|walked| walked.behind.is_some() || !walked.sites.contains(&site));
        for walked in walks.iter_mut().filter(|walked| walked.sites.contains(&site)) {
            walked.is_renewed = true;
        }
    }

    /// Of the hosts of a call for some sites, those that are to be looked at after the
    /// others.
    pub(super) fn take_apart(
        &mut self,
        crawl: CrawlId,
        hosts: &mut Vec<HostId>,
        sites: &[SiteId],
    ) -> Vec<HostId> {
        let is_begun = |host: &HostId| {
            let walks = self.of_host.get(&(crawl, *host)).into_iter().flatten();
            walks.into_iter().any(|walked| walked.sites == sites && walked.behind.is_some())
        };
        if !hosts.iter().any(is_begun) {
            return Vec::new();
        }
        // The other half than the last time.
        let call = (crawl, sites.to_vec());
        let fresh_first = !self.fresh_first.contains(&call);
        let (first, later) = hosts.iter().partition(|host| is_begun(host) != fresh_first);
        *hosts = first;
        if self.fresh_first.len() >= HOSTS {
            self.fresh_first.clear();
        }
        if fresh_first {
            self.fresh_first.insert(call);
        } else {
            self.fresh_first.remove(&call);
        }
        later
    }

    pub(super) fn clear(&mut self) {
        self.fresh_first.clear();
        self.of_host.clear();
    }

    fn take(&mut self, place: (CrawlId, HostId), sites: &[SiteId]) -> Option<Walked> {
        let walks = self.of_host.get_mut(&place)?;
        let at = walks.iter().position(|walked| walked.sites == sites)?;
        Some(walks.swap_remove(at))
    }

    /// Remembers a walk. Where there are enough, one that has ended makes room, or one
    /// that nobody goes on with; else the new one is not remembered, so that of many
    /// some come to their end, and make room.
    fn put(&mut self, place: (CrawlId, HostId), walked: Walked, now: i64) {
        if self.of_host.len() >= HOSTS {
            self.of_host.clear();
        }
        let walks = self.of_host.entry(place).or_default();
        if walks.len() >= SETS {
            let has_ended = |walk: &Walked| walk.behind.is_none();
            let is_left = |walk: &Walked| !(0..LEFT_MS).contains(&(now - walk.looked_ms));
            let room = walks.iter().position(has_ended).or_else(|| walks.iter().position(is_left));
            match room {
                Some(at) => walks.swap_remove(at),
                None => return,
            };
        }
        walks.push(walked);
    }
}

impl State {
    /// The head of what is due of a host for some sites (in order), or of what is left
    /// of it behind where the last call stopped; and how many URLs of others were
    /// stepped over for that.
    pub(super) fn due_of_sites(
        &mut self,
        place: (CrawlId, HostId),
        now: i64,
        limit: usize,
        sites: &[SiteId],
    ) -> Result<(Vec<Candidate>, usize), StoreError> {
        let begun = self.site_walks.take(place, sites);
        if let Some(walked) = &begun
            && walked.behind.is_none()
            && (walked.until_ms - LEFT_ALONE_MS..walked.until_ms).contains(&now)
        {
            self.site_walks.put(place, walked.clone(), now);
            return Ok((Vec::new(), 0));
        }
        let now_s = now.div_euclid(1000);
        let (mut looked_ms, mut passed) = (now, 0);
        if let Some(walked) = begun.as_ref().filter(|walked| walked.behind.is_some()) {
            looked_ms = walked.looked_ms;
            if !(0..LEFT_ALONE_MS).contains(&(now - looked_ms)) {
                let (due, stepped_over, _) =
                    self.walk_for(place, now_s, (limit, PASSED_AT_HEAD), sites, None)?;
                if !due.is_empty() {
                    self.site_walks.put(place, walked.clone(), now);
                    return Ok((due, stepped_over));
                }
                (looked_ms, passed) = (now, stepped_over);
            }
        }
        let behind = begun.as_ref().and_then(|walked| walked.behind);
        let is_renewed = begun.is_some_and(|walked| walked.is_renewed && behind.is_some());
        let bounds = (limit, PASSED_PER_LOOK - passed);
        let (due, stepped_over, stopped) = self.walk_for(place, now_s, bounds, sites, behind)?;
        passed += stepped_over;
        // From the same row again while there is something behind it: what is not
        // leased after all is due there still.
        let is_long = behind.is_some() || passed >= PASSED_PER_LOOK / 4;
        let behind = if due.is_empty() { stopped } else { behind };
        let is_over = due.is_empty() && stopped.is_none();
        let sites = sites.to_vec();
        if is_over && is_long && !is_renewed {
            let until_ms = now + LEFT_ALONE_MS;
            let over = Walked { sites, behind: None, looked_ms, until_ms, is_renewed };
            self.site_walks.put(place, over, now);
        } else if !is_over && behind.is_some() {
            let on = Walked { sites, behind, looked_ms, until_ms: 0, is_renewed };
            self.site_walks.put(place, on, now);
        }
        Ok((due, passed))
    }

    /// Walks what is due of a host behind a row, up to so many URLs, or URLs of others;
    /// where it stopped, and how many of those it has stepped over.
    fn walk_for(
        &self,
        (crawl, host): (CrawlId, HostId),
        now_s: i64,
        (limit, most_passed): (usize, usize),
        sites: &[SiteId],
        behind: Option<Spot>,
    ) -> Result<(Vec<Candidate>, usize, Option<Spot>), StoreError> {
        let (mut due, mut passed) = (Vec::new(), 0);
        let is_embedded = self.conn.embedded().is_some();
        let mut is_rest = is_embedded && behind.is_some();
        let (mut below, mut after) = behind.unwrap_or((i64::from(u8::MAX) + 1, BEHIND_ALL));
        'bands: loop {
            let sql = if is_rest { REST_AS_LISTED } else { AS_LISTED };
            let mut query = self.conn.prepare_cached(sql).map_err(engine)?;
            let values = params![crawl.0, host.0, after.0, after.1, PAGE, below];
            let mut rows = query.query(values).map_err(engine)?;
            let (mut taken, mut page_end) = (0, None);
            while let Some(row) = rows.next().map_err(engine)? {
                taken += 1;
                let place = read_place(&row, crawl, host).map_err(engine)?;
                let spot = (i64::from(place.band), (place.due_s, place.url.0));
                if place.due_s > now_s {
                    // The rest of the band is not due either, whosever it is.
                    (below, after, is_rest) = (spot.0, BEHIND_ALL, false);
                    continue 'bands;
                }
                if self.may_lease(site_of(row.get(3).map_err(engine)?), sites) {
                    due.push(place.candidate());
                } else {
                    passed += 1;
                }
                if due.len() >= limit || passed >= most_passed {
                    return Ok((due, passed, Some(spot)));
                }
                if taken == PAGE && !is_embedded {
                    page_end = Some(spot);
                }
            }
            (below, after) = match page_end {
                Some(end) => end,
                None if is_rest => (below, BEHIND_ALL),
                None => return Ok((due, passed, None)),
            };
            is_rest = false;
        }
    }
}

/// The rest of one band of a host's list behind a row, for the embedded engine.
const REST_AS_LISTED: &str = "SELECT band, due_s, url_id, owner FROM queue
    WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?6 AND (due_s, url_id) > (?3, ?4)
    ORDER BY due_s, url_id";
