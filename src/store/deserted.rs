//! robots.txt of hosts that nobody needs any more: no longer polled, and dropped when
//! nobody has asked for it for long.
//!
//! A host has its robots.txt polled for as long as any site has a source there that is
//! not given up, or any URL. What redirects led to has one that is asked for when it is
//! needed; strangers decide how many such hosts there are, so theirs go. The row of the
//! host itself stays, which URLs may hang on, and so does the number of its version: what
//! memory has of an older one is never taken for what comes.

use super::hosts::ShortSite;
use super::sql::params;
use super::state::State;
use super::writer::Lane;
use super::{Store, StoreError, engine, poll_reads};
use crate::by_id::IdSet;
use crate::model::{HostId, SourceId};

/// A robots.txt of no site that nobody has asked for in this time goes. Longer than any
/// source that leads to its host is left alone for: while that host does not answer, its
/// last good copy holds.
const UNASKED_MS: i64 = 30 * 24 * 3_600_000;

/// Dropped in one job at most.
const AT_ONCE: i64 = 100;

impl Store {
    /// The robots.txt of a host was polled: where no site has anything there any more it
    /// is polled no more until one has.
    pub async fn leave_if_deserted(
        &self,
        robots: SourceId,
        host: HostId,
    ) -> Result<(), StoreError> {
        if self.read(move |conn| poll_reads::is_needed(conn, host)).await? {
            return Ok(());
        }
        self.write(Lane::Bulk, move |state| {
            state.must_own(host.0)?;
            state.leave_deserted(robots, host)
        })
        .await
    }
}

impl State {
    fn leave_deserted(&mut self, robots: SourceId, host: HostId) -> Result<(), StoreError> {
        // A site may have come since that was asked.
        if poll_reads::is_needed(&self.conn, host)? {
            return Ok(());
        }
        self.conn
            .prepare_cached(
                "UPDATE sources SET site_id = NULL, next_poll_at = NULL, rule = 'fixed',
                     why = 'no site has anything on its host any more'
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND role = 0",
            )
            .and_then(|mut update| update.execute([robots.0]))
            .map_err(engine)?;
        self.doubt_robots_of(&[host].into_iter().collect())
    }

    /// Drops some of what nobody asks for; `true` while there is more.
    pub(super) fn drop_deserted(&mut self, now: i64) -> Result<bool, StoreError> {
        let robots = self.column(
            "SELECT id FROM sources WHERE site_id IS NULL AND role = 0 AND next_poll_at IS NULL
                 AND coalesce(last_poll_at, added_at) <= ?1 /*ours: part */ LIMIT ?2",
            params![now - UNASKED_MS, AT_ONCE],
        )?;
        if robots.is_empty() {
            return Ok(false);
        }
        self.keep_source_numbers()?;
        let mut hosts = IdSet::default();
        for source in &robots {
            let of = "SELECT host_id FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */";
            hosts.extend(self.column(of, [*source])?.into_iter().map(HostId));
            // Its changes stay in the log, of rows that are gone: nothing is told of them.
            for (table, id) in
                [("polls", "source_id"), ("robots_changes", "source_id"), ("sources", "id")]
            {
                let sql =
                    format!("DELETE FROM {table} WHERE {id} = ?1 /*pg: AND part = (?1 & 255) */");
                self.conn
                    .prepare_cached(&sql)
                    .and_then(|mut delete| delete.execute([*source]))
                    .map_err(engine)?;
            }
        }
        for host in &hosts {
            self.conn
                .prepare_cached(
                    "DELETE FROM robots WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */",
                )
                .and_then(|mut delete| delete.execute([host.0]))
                .map_err(engine)?;
            self.forget_rules(*host);
        }
        self.doubt_robots_of(&hosts)?;
        Ok(i64::try_from(robots.len()).is_ok_and(|dropped| dropped >= AT_ONCE))
    }

    /// The robots.txt of these hosts is not polled any more for the sites that it was.
    fn doubt_robots_of(&mut self, hosts: &IdSet<HostId>) -> Result<(), StoreError> {
        self.robots_known.retain(|(_, host)| !hosts.contains(host));
        for host in hosts {
            self.hosts.awaited.remove(host);
            self.host(*host)?.done.robots = ShortSite::default();
        }
        Ok(())
    }
}
