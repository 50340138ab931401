//! Delays of hosts that the config says otherwise than before: they hold at
//! once, and not from our own next request to each host on. On a server each daemon
//! sees to the hosts that are its own, as they come to it.

use std::time::Duration;

use super::hosts::{Hosts, millis, partition_of};
use super::sql::{self, OptionalExtension, params};
use super::state::State;
use super::{StoreError, engine};
use crate::model::{HostId, SiteId};

/// Key of `meta`: the delay that hosts without a site were last given.
const DEFAULT: &str = "host_delay_ms";
/// Hosts that are given another delay in one transaction.
const AT_ONCE: usize = 500;

/// Delays of hosts that have come to us from other daemons.
#[derive(Debug, Default)]
pub(super) struct MovedDelays {
    /// Some have, and were not compared with our config yet.
    pub(super) have_moved: bool,
    /// Those that it says otherwise, and the sites whose robots.txt is asked for there.
    doubted: Vec<(HostId, SiteId)>,
}

impl State {
    /// Gives the home of a site, and the hosts whose robots.txt is asked for on
    /// its behalf, the site's delay, as far as they are ours.
    pub(super) fn heed_delay_of(
        &mut self,
        id: SiteId,
        home: HostId,
        delay: Duration,
    ) -> Result<(), StoreError> {
        let mut hosts = self.column(
            "SELECT h.id FROM sources s JOIN hosts h ON h.id = s.host_id /*pg: AND h.part = s.part */
             WHERE s.site_id = ?1 AND s.role = 0 AND h.delay_ms <> ?2",
            params![id.0, millis(delay)],
        )?;
        hosts.push(home.0);
        for host in hosts.into_iter().map(HostId) {
            if !self.owns(partition_of(host)) {
                continue;
            }
            self.heed_delay_at(host, delay)?;
        }
        Ok(())
    }

    /// Gives a host the delay of the sites that have their home there, or else this one.
    fn heed_delay_at(&mut self, host: HostId, delay: Duration) -> Result<(), StoreError> {
        let known = self.host(host)?.clone();
        let delay = self.policy.delay_at(&known.authority).unwrap_or(delay);
        if known.delay_ms == millis(delay) { Ok(()) } else { self.set_delay(host, delay) }
    }

    /// Gives hosts that came to us from others, who may go by another config, the delays
    /// that ours says, some at a time, in a transaction of its own.
    pub(super) fn heed_delays(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.delays.have_moved) {
            let doubted = self.doubted_hosts();
            self.delays.have_moved = doubted.is_err();
            self.delays.doubted = doubted?;
        }
        let rest = self.delays.doubted.len().saturating_sub(AT_ONCE);
        let some = self.delays.doubted.split_off(rest);
        if some.is_empty() {
            return Ok(());
        }
        let heeded = self.begin().and_then(|()| {
            let heeded = some.iter().try_for_each(|(host, site)| self.heed_doubted(*host, *site));
            if let Err(error) = &heeded {
                self.give_up(error);
            }
            heeded.and_then(|()| self.commit())
        });
        if heeded.is_err() {
            // They come again.
            self.delays.doubted.extend(some);
        }
        heeded
    }

    /// Hosts of ours that may have another delay than our config says, and the sites whose
    /// robots.txt is asked for there.
    fn doubted_hosts(&self) -> Result<Vec<(HostId, SiteId)>, StoreError> {
        let mut query = self
            .conn
            .prepare_cached(
                "SELECT h.id, s.site_id, h.authority, h.delay_ms, coalesce(r.crawl_delay_ms, 0)
                 FROM sources s JOIN hosts h ON h.id = s.host_id /*pg: AND h.part = s.part */
                 LEFT JOIN robots r ON r.host_id = h.id /*pg: AND r.part = h.part */
                 WHERE s.role = 0 AND s.site_id IS NOT NULL /*ours: s.part */",
            )
            .map_err(engine)?;
        let mut rows = query.query(()).map_err(engine)?;
        let mut doubted = Vec::new();
        while let Some(row) = rows.next().map_err(engine)? {
            let read = || -> sql::Result<(i64, i64, String, i64, i64)> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            };
            let (host, site, authority, delay_ms, crawl_delay) = read().map_err(engine)?;
            let site = SiteId(site);
            // Of a site that our config does not have we know nothing.
            let Some(of_site) = self.policy.by_site.get(&site) else { continue };
            let delay = self.policy.delay_at(&authority).unwrap_or(of_site.host_delay);
            if delay_ms != millis(delay).max(crawl_delay) {
                doubted.push((HostId(host), site));
            }
        }
        Ok(doubted)
    }

    fn heed_doubted(&mut self, host: HostId, site: SiteId) -> Result<(), StoreError> {
        let delay = self.policy.by_site.get(&site).map(|policy| policy.host_delay);
        match delay.filter(|_| self.owns(partition_of(host))) {
            Some(delay) => self.heed_delay_at(host, delay),
            None => Ok(()),
        }
    }

    /// Gives hosts that no site has anything on the default. Which of them have a
    /// delay of their own nobody knows: those that have the last default have not.
    /// In a database of a server, where there may be very many, and of others, they
    /// keep what they were made with.
    pub(super) fn heed_default_delay(&mut self) -> Result<(), StoreError> {
        if self.conn.server().is_some() {
            return Ok(());
        }
        let delay = millis(self.policy.default.host_delay);
        let kept: Option<i64> = self
            .conn
            .query_row("SELECT CAST(value AS BIGINT) FROM meta WHERE key = ?1", [DEFAULT], |row| {
                row.get(0)
            })
            .optional()
            .map_err(engine)?;
        if kept == Some(delay) {
            return Ok(());
        }
        let Some(last) = kept else { return self.note(DEFAULT, delay) };
        let moved = self
            .conn
            .execute(
                "UPDATE hosts SET delay_ms = max(?2, coalesce((SELECT r.crawl_delay_ms
                     FROM robots r WHERE r.host_id = hosts.id), 0))
                 WHERE delay_ms = ?1 AND NOT EXISTS (SELECT 1 FROM sources s
                     WHERE s.host_id = hosts.id AND s.role = 0 AND s.site_id IS NOT NULL)",
                params![last, delay],
            )
            .map_err(engine)?;
        if moved > 0 {
            // As they are now they are read when they are needed.
            self.hosts = Hosts::new(self.seed);
        }
        self.note(DEFAULT, delay)
    }
}
