//! Which hosts a site has URLs on: for leases that ask for some sites only.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::{StoreError, engine};
use crate::model::{HostId, SiteId};

/// The table of the same name, both ways round.
#[derive(Debug, Default)]
pub(super) struct SiteHosts {
    hosts: HashMap<SiteId, Vec<HostId>>,
    sites: HashMap<HostId, Vec<SiteId>>,
}

impl SiteHosts {
    /// Reads the table: as many rows as there are hosts, for nearly all sites.
    pub(super) fn read(conn: &Connection) -> Result<Self, StoreError> {
        let mut known = Self::default();
        let mut query =
            conn.prepare_cached("SELECT site_id, host_id FROM site_hosts").map_err(engine)?;
        let mut rows = query.query([]).map_err(engine)?;
        while let Some(row) = rows.next().map_err(engine)? {
            known
                .remember(SiteId(row.get(0).map_err(engine)?), HostId(row.get(1).map_err(engine)?));
        }
        Ok(known)
    }

    /// A URL of the site is on the host.
    pub(super) fn add(
        &mut self,
        conn: &Connection,
        site: SiteId,
        host: HostId,
    ) -> Result<(), StoreError> {
        if self.of_host(host).contains(&site) {
            return Ok(());
        }
        conn.prepare_cached("INSERT OR IGNORE INTO site_hosts (site_id, host_id) VALUES (?1, ?2)")
            .and_then(|mut insert| insert.execute(params![site.0, host.0]))
            .map_err(engine)?;
        self.remember(site, host);
        Ok(())
    }

    /// The hosts that any of these sites has URLs on, each once.
    pub(super) fn of_sites(&self, sites: &[SiteId]) -> Vec<HostId> {
        let mut hosts: Vec<HostId> =
            sites.iter().filter_map(|site| self.hosts.get(site)).flatten().copied().collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// The sites that have URLs on a host.
    pub(super) fn of_host(&self, host: HostId) -> &[SiteId] {
        self.sites.get(&host).map_or(&[], Vec::as_slice)
    }

    fn remember(&mut self, site: SiteId, host: HostId) {
        self.hosts.entry(site).or_default().push(host);
        self.sites.entry(host).or_default().push(site);
    }
}
