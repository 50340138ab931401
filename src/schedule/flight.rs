//! The polls under way: how many more there may be, and whose.
//!
//! A poll that waits for a slow origin costs little, so there may be many of them. Once
//! half of all slots are taken no site has more than a share of them: who hangs on
//! thousands of hosts keeps nobody else from being polled. Until then there is room for
//! whoever is due, and a site that is alone needs no more.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::LOOK_AGAIN;
use super::due::Due;
use crate::model::{HostId, SiteId};
use crate::store::{DueSource, MOST_PASSED_OVER};

/// A poll that takes longer waits for its origin, more likely than not.
const SLOW: Duration = Duration::from_secs(2);
/// After so long it is looked again which polls wait for the clocks of their hosts.
const MAY_WAIT: Duration = Duration::from_millis(100);
/// Polls under way at most, slow ones among them: so many times
/// `fetch.concurrency`.
pub(super) const SLOW_POLLS: usize = 4;
/// Polls that wait for the clocks of their hosts come on top, up to so many times these in
/// all: where each of many hosts has several things due, most of them wait at any moment.
const WAITING_POLLS: usize = 4;

/// The polls under way, and what waits for its turn.
#[derive(Default)]
pub(super) struct Flight {
    pub(super) polls: JoinSet<HostId>,
    pub(super) under_way: UnderWay,
    /// Hosts that may have something due behind the poll that has ended.
    pub(super) freed: Vec<HostId>,
    pub(super) due: Due,
    /// When it was last asked which robots.txt are due, while nothing else is polled.
    pub(super) robots_at: Option<Instant>,
}

/// Which hosts are being polled, one source at a time, for which sites.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    hosts: HashMap<HostId, (Instant, Option<SiteId>)>,
    sites: HashMap<SiteId, usize>,
}

impl Flight {
    /// How many polls may be started, of those under way so many waiting for the clocks of
    /// their hosts; `Err` says when there may be room. Who waits, for that or a slow origin,
    /// costs little: such polls do not keep others from theirs, until there are very many.
    pub(super) fn room(
        &self,
        concurrency: usize,
        waiting: usize,
        now: Instant,
    ) -> Result<usize, Duration> {
        let ages = || self.under_way.hosts.values().map(|(began, _)| now.duration_since(*began));
        let quick = ages().filter(|age| *age < SLOW).count().saturating_sub(waiting);
        let (slots, all) = (slots(concurrency), self.polls.len());
        let of_slots = slots.saturating_sub(all.saturating_sub(waiting));
        let of_all = of_slots.min(slots.saturating_mul(WAITING_POLLS).saturating_sub(all));
        let room = concurrency.saturating_sub(quick).min(of_all);
        if room > 0 {
            return Ok(room);
        }
        let oldest = ages().filter(|age| *age < SLOW).max().filter(|_| of_all > 0);
        Err(oldest.map_or(LOOK_AGAIN, |age| SLOW.saturating_sub(age).min(MAY_WAIT)))
    }

    /// The longest due source that may be polled now.
    pub(super) fn next(&mut self, concurrency: usize) -> Option<DueSource> {
        self.due.first(&self.under_way, concurrency)
    }

    /// A poll has ended, and perhaps more: their hosts are free again.
    pub(super) fn land(&mut self, done: Result<HostId, JoinError>) {
        let mut next = Some(done);
        while let Some(done) = next {
            match done {
                Ok(host) => {
                    self.under_way.end(host);
                    self.freed.push(host);
                }
                Err(error) => {
                    tracing::error!(%error, "the end of a poll panicked");
                    // Which host it was is lost with it; the store names them anew.
                    self.under_way = UnderWay::default();
                    self.due.outdate();
                }
            }
            next = self.polls.try_join_next();
        }
    }
}

impl UnderWay {
    pub(super) fn begin(&mut self, due: &DueSource, now: Instant) {
        self.hosts.insert(due.host, (now, due.site));
        if let Some(site) = due.site {
            *self.sites.entry(site).or_insert(0) += 1;
        }
    }

    fn end(&mut self, host: HostId) {
        let site = self.hosts.remove(&host).and_then(|(_, site)| site);
        if let Some(site) = site
            && let Some(polls) = self.sites.get_mut(&site)
        {
            *polls -= 1;
            if *polls == 0 {
                self.sites.remove(&site);
            }
        }
    }

    /// Hosts that are polled.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn is_busy(&self, host: HostId) -> bool {
        self.hosts.contains_key(&host)
    }

    /// Has the site as many polls under way as it may have by now?
    pub(super) fn is_full(&self, site: SiteId, concurrency: usize) -> bool {
        let of_site = self.sites.get(&site).copied().unwrap_or(0);
        self.hosts.len() >= slots(concurrency) / 2 && of_site >= share(concurrency)
    }

    /// The sites that have.
    pub(super) fn full(&self, concurrency: usize) -> Vec<SiteId> {
        let mut full: Vec<_> =
            self.sites.keys().filter(|site| self.is_full(**site, concurrency)).copied().collect();
        full.sort_unstable();
        full
    }
}

/// Polls under way at most.
fn slots(concurrency: usize) -> usize {
    concurrency.saturating_mul(SLOW_POLLS)
}

/// Those of one site once half of all are taken. No more sites than the store can
/// pass over ever have so many.
fn share(concurrency: usize) -> usize {
    slots(concurrency).div_ceil(MOST_PASSED_OVER).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SourceId;
    use jiff::Timestamp;

    fn due(host: i64, site: i64) -> DueSource {
        let (at, id) = (Timestamp::UNIX_EPOCH, SourceId(host));
        DueSource { at, id, host: HostId(host), site: Some(SiteId(site)) }
    }

    #[test]
    fn a_site_has_a_share_of_the_polls_once_half_of_them_are_taken() {
        let mut under_way = UnderWay::default();
        let now = Instant::now();
        // Of 256: 128 are anybody's.
        for host in 0..128 {
            assert!(!under_way.is_full(SiteId(1), 64));
            under_way.begin(&due(host, 1), now);
        }
        assert!(under_way.is_full(SiteId(1), 64) && !under_way.is_full(SiteId(2), 64));
        for host in 128..160 {
            assert!(!under_way.is_full(SiteId(2), 64));
            under_way.begin(&due(host, 2), now);
        }
        assert_eq!(under_way.full(64), [SiteId(1), SiteId(2)]);
        for host in 0..33 {
            under_way.end(HostId(host));
        }
        assert!(under_way.full(64).is_empty(), "it is less than half again");
        for host in 0..128 {
            under_way.end(HostId(host));
        }
        assert_eq!((under_way.hosts.len(), under_way.sites.len()), (32, 1));
    }

    #[tokio::test]
    async fn polls_that_wait_keep_no_others_from_theirs_until_there_are_very_many() {
        let (mut flight, now) = (Flight::default(), Instant::now());
        let add = |flight: &mut Flight, hosts: std::ops::Range<i64>| {
            for host in hosts {
                flight.under_way.begin(&due(host, host), now);
                flight.polls.spawn(async move { HostId(host) });
            }
        };
        add(&mut flight, 0..64);
        assert_eq!(flight.room(64, 0, now), Err(MAY_WAIT), "full");
        assert_eq!(flight.room(64, 10, now), Ok(10));
        assert_eq!(flight.room(64, 0, now + SLOW), Ok(64), "these wait for their origins");
        // Some of those that wait are slow, too.
        assert_eq!(flight.room(64, 10, now + SLOW), Ok(64));
        add(&mut flight, 64..256);
        assert_eq!(flight.room(64, 0, now + SLOW), Err(LOOK_AGAIN), "of slow ones so many");
        assert_eq!(flight.room(64, 16, now + SLOW), Ok(16));
        assert_eq!(flight.room(64, 256, now), Ok(64), "all wait for clocks");
        add(&mut flight, 256..1_024);
        assert_eq!(flight.room(64, 1_024, now), Err(LOOK_AGAIN), "of all there are so many");
    }

    #[test]
    fn no_more_sites_are_full_than_the_store_passes_over() {
        for concurrency in 1..300 {
            let most = slots(concurrency) / share(concurrency);
            assert!((1..=MOST_PASSED_OVER).contains(&most), "{concurrency}: {most}");
        }
    }
}
