//! What is set for queues: delays, blocks, limits; and whether anything is
//! served at all.
//!
//! Read from the table when a queue's turn comes, and remembered for as many
//! queues as fit. Where nothing is set for any queue, nothing is looked up.

use std::time::Duration;

use super::super::sql::{Connection, OptionalExtension, params};

use super::super::hosts::{KEYED, millis, name_of, partition_of};
use super::super::state::State;
use super::super::{StoreError, engine};
use super::{MAX_NAME, Rules};
use crate::by_id::ById;
use crate::model::{CrawlId, HostId};

/// Queues whose settings are remembered at most.
const REMEMBERED: usize = 100_000;
/// A queue that is held is looked at again after this, since wall time, which
/// ends blocks, may be set.
const LOOK_AGAIN_MS: i64 = 60_000;
/// Keys of `meta`.
const ACTIVE: &str = "frontier_active";
const DELAY: &str = "frontier_delay_ms";

/// Something that is set for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Least time between two servings.
    Delay(Duration),
    /// Nothing is leased before, in Unix seconds; 0 lifts it.
    BlockedUntil(i64),
    /// Nothing is leased from so many completed URLs on; 0 lifts it.
    MaxCompleted(u32),
}

/// What the writer remembers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Are URLs served by this protocol?
    pub(super) active: bool,
    /// The delay of queues that have none of their own.
    delay_ms: Option<i64>,
    /// Is anything set for any queue?
    pub(super) any: bool,
    rules: Rules,
    /// How many URLs of each host of ours are out, once that was asked for.
    out: Option<ById<(CrawlId, HostId), u32>>,
    /// Which crawl comes first in the next call for any.
    pub(super) turn: usize,
}

impl Memory {
    /// Leases have been made, and have ended.
    pub(in super::super) fn count_leases(
        &mut self,
        made: impl Iterator<Item = (CrawlId, HostId)>,
        ended: impl Iterator<Item = (CrawlId, HostId)>,
    ) {
        let Some(out) = &mut self.out else { return };
        for place in made {
            *out.entry(place).or_default() += 1;
        }
        for place in ended {
            if let Some(count) = out.get_mut(&place) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    out.remove(&place);
                }
            }
        }
    }
}

/// What is set for one queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueRules {
    delay_ms: Option<i64>,
    blocked_until: i64,
    max_completed: i64,
    completed: i64,
}

impl State {
    /// Reads what holds for all queues, and forgets the rest.
    pub(in super::super) fn read_frontier(&mut self) -> Result<(), StoreError> {
        let delay_ms = read_delay(&self.conn)?;
        let any = self
            .conn
            .query_row("SELECT EXISTS (SELECT 1 FROM frontier_queues)", (), |row| row.get(0))
            .map_err(engine)?;
        let active = read_active(&self.conn)?;
        self.frontier = Memory { active, delay_ms, any, ..Memory::default() };
        Ok(())
    }

    /// The longest delay that is set for queues, in milliseconds.
    pub(in super::super) fn longest_queue_delay(&self) -> Result<i64, StoreError> {
        let longest: Option<i64> = self
            .conn
            .query_row("SELECT max(delay_ms) FROM frontier_queues", (), |row| row.get(0))
            .map_err(engine)?;
        let common = read_delay(&self.conn)?;
        Ok(longest.max(common).unwrap_or(0))
    }

    /// The name of a host's queue.
    pub(super) fn queue_name(&mut self, host: HostId) -> Result<String, StoreError> {
        Ok(name_of(&self.host(host)?.authority).to_owned())
    }

    /// The hosts of a queue.
    pub(super) fn hosts_named(&self, name: &str) -> Result<Vec<HostId>, StoreError> {
        let hosts = self.column("SELECT id FROM hosts WHERE name = ?1", [name])?;
        Ok(hosts.into_iter().map(HostId).collect())
    }

    /// How many URLs of a queue are out: of hosts of ours counted once, and kept
    /// from then on; of those that are other daemons', who tell nobody what they
    /// lease, counted each time. Where a host of it has so many that they are `enough`,
    /// the others are not asked for.
    pub(super) fn in_process(
        &mut self,
        (crawl, host): (CrawlId, HostId),
        name: &str,
        enough: u32,
    ) -> Result<u32, StoreError> {
        if self.frontier.out.is_none() {
            let counted = self
                .conn
                .prepare_cached(
                    "SELECT crawl_id, host_id, count(*) FROM leases WHERE 1 = 1 /*ours: part */
                     GROUP BY 1, 2",
                )
                .and_then(|mut query| {
                    query
                        .query_map((), |row| {
                            Ok(((CrawlId(row.get(0)?), HostId(row.get(1)?)), row.get(2)?))
                        })
                        .and_then(Iterator::collect)
                })
                .map_err(engine)?;
            self.frontier.out = Some(counted);
        }
        let out_of = |out: Option<&ById<_, u32>>, host| {
            out.and_then(|out| out.get(&(crawl, host))).copied().unwrap_or(0)
        };
        let of_host = out_of(self.frontier.out.as_ref(), host);
        if of_host >= enough {
            return Ok(of_host);
        }
        let mut count = 0;
        for host in self.hosts_named(name)? {
            count += if self.owns(partition_of(host)) {
                out_of(self.frontier.out.as_ref(), host)
            } else {
                self.out_elsewhere(crawl, host)?
            };
        }
        Ok(count)
    }

    /// How many URLs of a host of another daemon are out. Those whose time is over
    /// come back as soon as it looks.
    fn out_elsewhere(&self, crawl: CrawlId, host: HostId) -> Result<u32, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT count(*) FROM leases
                 WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */ AND crawl_id = ?2
                     AND expires_at > ?3",
            )
            .and_then(|mut query| {
                query.query_row(params![host.0, crawl.0, self.steady_ms()], |row| row.get(0))
            })
            .map_err(engine)
    }

    fn rules_of(&mut self, crawl: CrawlId, name: String) -> Result<QueueRules, StoreError> {
        if !self.frontier.any {
            return Ok(QueueRules::default());
        }
        let queue = (crawl, name);
        if let Some(rules) = self.frontier.rules.get(&queue) {
            return Ok(*rules);
        }
        let mut rules = self
            .conn
            .prepare_cached(
                "SELECT delay_ms, blocked_until, max_completed, completed FROM frontier_queues
                 WHERE crawl_id = ?1 AND name = ?2",
            )
            .and_then(|mut query| {
                query
                    .query_row(params![crawl.0, queue.1], |row| {
                        Ok(QueueRules {
                            delay_ms: row.get(0)?,
                            blocked_until: row.get(1)?,
                            max_completed: row.get(2)?,
                            completed: row.get(3)?,
                        })
                    })
                    .optional()
            })
            .map_err(engine)?
            .unwrap_or_default();
        rules.completed += self.sums.completed(&queue);
        if rules.max_completed > 0 && self.is_shared() {
            // Others complete URLs of it, too, and tell nobody.
            return Ok(rules);
        }
        if self.frontier.rules.len() >= REMEMBERED {
            self.frontier.rules.clear();
        }
        self.frontier.rules.insert(queue, rules);
        Ok(rules)
    }

    /// Until when nothing of a queue is leased (steady milliseconds), and when
    /// that is to be looked at again at the latest; long ago where it is free.
    pub(in super::super) fn held_until(
        &mut self,
        crawl: CrawlId,
        host: HostId,
    ) -> Result<i64, StoreError> {
        if !self.frontier.any {
            return Ok(i64::MIN);
        }
        let name = self.queue_name(host)?;
        let rules = self.rules_of(crawl, name)?;
        let blocked = rules.blocked_until.saturating_sub(self.now_ms());
        let full = rules.max_completed > 0 && rules.completed >= rules.max_completed;
        let wait = if full { LOOK_AGAIN_MS } else { blocked.min(LOOK_AGAIN_MS) };
        Ok(if wait > 0 { self.steady_ms() + wait } else { i64::MIN })
    }

    /// Milliseconds between two servings of a host in a crawl.
    pub(in super::super) fn delay_in(
        &mut self,
        crawl: CrawlId,
        host: HostId,
    ) -> Result<i64, StoreError> {
        let own = self.host(host)?.delay_ms;
        let common = self.frontier.delay_ms.unwrap_or(own);
        if !self.frontier.any {
            return Ok(common);
        }
        let name = self.queue_name(host)?;
        Ok(self.rules_of(crawl, name)?.delay_ms.unwrap_or(common))
    }

    /// Sets something for one queue.
    pub(super) fn frontier_set(
        &mut self,
        crawl: &str,
        name: &str,
        setting: Setting,
    ) -> Result<(), StoreError> {
        if name.is_empty() || name.chars().count() > MAX_NAME {
            return Err(StoreError::Refused(format!(
                "a queue has a name of 1 to {MAX_NAME} characters"
            )));
        }
        if name.contains(char::is_control) {
            return Err(StoreError::Refused(
                "a queue has no control characters in its name".to_owned(),
            ));
        }
        let hosts = self.hosts_named(name)?;
        if hosts.is_empty() && matches!(setting, Setting::MaxCompleted(_)) {
            return Err(StoreError::NotFound(format!("there is no queue {name:?}")));
        }
        let crawl = self.crawl_for(crawl)?;
        let (column, value) = match setting {
            Setting::Delay(delay) => ("delay_ms", millis(delay)),
            Setting::BlockedUntil(second) => ("blocked_until", second.saturating_mul(1000)),
            Setting::MaxCompleted(count) => ("max_completed", i64::from(count)),
        };
        let sql = format!(
            "INSERT INTO frontier_queues (crawl_id, name, {column}) VALUES (?1, ?2, ?3)
             ON CONFLICT (crawl_id, name) DO UPDATE SET {column} = ?3"
        );
        self.conn
            .prepare_cached(&sql)
            .and_then(|mut upsert| upsert.execute(params![crawl.0, name, value]))
            .map_err(engine)?;
        self.frontier.any = true;
        self.frontier.rules.remove(&(crawl, name.to_owned()));
        self.look_again_at(&hosts)
    }

    /// What kept these hosts from their turns may be over.
    pub(super) fn look_again_at(&mut self, hosts: &[HostId]) -> Result<(), StoreError> {
        for host in hosts {
            let not_before = self.host(*host)?.not_before();
            self.tell_windows(*host, not_before);
        }
        Ok(())
    }

    /// Sets the delay of queues that have none of their own.
    pub(super) fn frontier_set_delay(&mut self, delay: Option<Duration>) -> Result<(), StoreError> {
        let delay_ms = delay.map(millis);
        match delay_ms {
            Some(delay_ms) => self.note(DELAY, delay_ms)?,
            None => self.unnote(DELAY)?,
        }
        self.frontier.delay_ms = delay_ms;
        Ok(())
    }

    /// Stops serving by this protocol, or goes on.
    pub(super) fn frontier_set_active(&mut self, active: bool) -> Result<(), StoreError> {
        self.note(ACTIVE, i64::from(active))?;
        self.frontier.active = active;
        Ok(())
    }

    /// Keeps a number under a key of `meta`.
    pub(in super::super) fn note(&self, key: &str, value: i64) -> Result<(), StoreError> {
        self.conn
            .execute(
                "INSERT INTO meta (key, value)
                 VALUES (?1, /*lite*/ ?2 /*end*/ /*pg: CAST(CAST(?2 AS BIGINT) AS TEXT) */)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                params![key, value],
            )
            .map(|_| ())
            .map_err(engine)
    }

    fn unnote(&self, key: &str) -> Result<(), StoreError> {
        self.conn.execute("DELETE FROM meta WHERE key = ?1", [key]).map(|_| ()).map_err(engine)
    }

    /// So many more (or fewer) URLs of a host are completed.
    pub(in super::super) fn count_completed(
        &mut self,
        crawl: CrawlId,
        host: HostId,
        more: i64,
    ) -> Result<(), StoreError> {
        let queue = (crawl, self.queue_name(host)?);
        self.frontier.any = true;
        self.frontier.rules.remove(&queue);
        self.add_completed(queue, more)
    }
}

/// The delay of queues that have none of their own, if one is set.
fn read_delay(conn: &Connection) -> Result<Option<i64>, StoreError> {
    let query = "SELECT CAST(value AS BIGINT) FROM meta WHERE key = ?1";
    conn.query_row(query, [DELAY], |row| row.get(0)).optional().map_err(engine)
}

/// Are URLs served by this protocol?
pub(super) fn read_active(conn: &Connection) -> Result<bool, StoreError> {
    let active: Option<i64> = conn
        .query_row("SELECT CAST(value AS BIGINT) FROM meta WHERE key = ?1", [ACTIVE], |row| {
            row.get(0)
        })
        .optional()
        .map_err(engine)?;
    Ok(active != Some(0))
}

/// The authority of the queue that a client's own key names.
pub(super) fn keyed(key: &str) -> String {
    format!("{KEYED}{key}")
}
