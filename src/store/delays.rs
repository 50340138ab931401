//! Delays of hosts that the config says otherwise than before: they hold at
//! once, and not from our own next request to each host on.

use super::hosts::{Hosts, millis, partition_of};
use super::sql::{OptionalExtension, params};
use super::state::State;
use super::{StoreError, engine};
use crate::config::Site;
use crate::model::{HostId, SiteId};

/// Key of `meta`: the delay that hosts without a site were last given.
const DEFAULT: &str = "host_delay_ms";

impl State {
    /// Gives the home of a site, and the hosts whose robots.txt is asked for on
    /// its behalf, the site's delay, as far as they are ours.
    pub(super) fn heed_delay_of(
        &mut self,
        id: SiteId,
        home: HostId,
        site: &Site,
    ) -> Result<(), StoreError> {
        let mut hosts = self.column(
            "SELECT h.id FROM sources s JOIN hosts h ON h.id = s.host_id /*pg: AND h.part = s.part */
             WHERE s.site_id = ?1 AND s.role = 0 AND h.delay_ms <> ?2",
            params![id.0, millis(site.host_delay)],
        )?;
        hosts.push(home.0);
        for host in hosts.into_iter().map(HostId) {
            if !self.owns(partition_of(host)) {
                continue;
            }
            let known = self.host(host)?.clone();
            let delay = self.policy.delay_at(&known.authority).unwrap_or(site.host_delay);
            if known.delay_ms != millis(delay) {
                self.set_delay(host, delay)?;
            }
        }
        Ok(())
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
