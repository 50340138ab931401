//! What is kept of a host's robots.txt, what a new version sets free, and for which
//! site it is asked for.

use std::time::Duration;

use super::sql::{Connection, OptionalExtension, params};
use jiff::Timestamp;

use super::changes::ChangeLog;
use super::hosts::{MAX_CRAWL_DELAY, millis, partition_of};
use super::rows::decode;
use super::state::State;
use super::views::{ChangeView, Said};
use super::{StoreError, engine, timestamp};
use crate::model::{CrawlId, HostId, SiteId, SourceId};
use crate::parse::IssueCode;
use crate::parse::robots::{Difference, Robots, Subject};

/// `sources.rule` of what robots.txt forbids: due when there is another version.
pub const FORBIDDEN: &str = "robots";

/// `sources.failing` of what may not be asked since robots.txt could never be read;
/// where that forbids it, the result of its poll stands there.
pub const ROBOTS_UNREADABLE: &str = "robots-unreadable";

/// A robots.txt that was never read is asked for again after this by who needs it.
const UNREACHABLE_MS: i64 = 300_000;

/// Those that are asked for on behalf of no site, or of one that is not polled, as
/// the first part of a statement.
const ORPHANS: &str = "WITH orphans AS MATERIALIZED (
    SELECT id, host_id FROM sources WHERE role = 0 AND site_id IS NULL
    UNION ALL
    SELECT r.id, r.host_id FROM sites n
        /*lite*/ CROSS /*end*/ JOIN sources r ON r.site_id = n.id AND r.role = 0
    WHERE n.state <> 0)";

/// Which of the polled sites have sources on their hosts: as much work as there are
/// of these.
const BY_SOURCES: &str = "(SELECT o.id AS robots, min(s.site_id) AS heir FROM orphans o
    /*lite*/ CROSS /*end*/ JOIN sources s
        ON s.host_id = o.host_id /*pg: AND s.part = (o.host_id & 255) */ AND s.role <> 0
        AND s.state <> 2
    /*lite*/ CROSS /*end*/ JOIN sites n ON n.id = s.site_id
    WHERE n.state = 0 GROUP BY o.id)";

/// Which have URLs there: as much work as there are hosts.
const BY_URLS: &str = "(SELECT o.id AS robots, min(h.site_id) AS heir FROM sites n
    /*lite*/ CROSS /*end*/ JOIN site_hosts h ON h.site_id = n.id
    /*lite*/ CROSS /*end*/ JOIN orphans o ON o.host_id = h.host_id
    WHERE n.state = 0 GROUP BY o.id)";

/// robots.txt of one host as kept.
#[derive(Debug, Clone)]
pub struct KeptRobots {
    /// The host.
    pub host: HostId,
    /// Grows when the rules change.
    pub version: i64,
    /// The last good copy; empty allows everything.
    pub body: Vec<u8>,
    /// No answer and no good copy: nothing is allowed.
    pub unreachable: bool,
    /// When it was last asked for.
    pub read_at: Timestamp,
    /// Until when it holds (RFC 9309 section 2.4: 24 hours).
    pub expires_at: Timestamp,
}

/// What keeping a robots.txt came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedRobots {
    /// Is anything of the file another than before?
    pub changed: bool,
    /// The version in which its rules, or what it says of the use of content,
    /// are others: `None` when they are not.
    pub version: Option<i64>,
    /// What they differ in.
    pub subjects: Vec<Subject>,
}

/// What a fetch of robots.txt came to.
#[derive(Debug, Clone)]
pub enum RobotsRead {
    /// These rules hold (an empty body where there is none: RFC 9309 section 2.3.1.3).
    Rules {
        /// The bytes, at most 500 KiB.
        body: Vec<u8>,
        /// HTTP status; that of a redirect where there were too many.
        status: u16,
        /// Crawl-delay for our own token.
        crawl_delay: Option<Duration>,
    },
    /// The rules have not changed (304).
    Same,
    /// The server does not answer properly: the last good copy holds, and
    /// where there is none nothing is allowed (RFC 9309 section 2.3.1.4).
    Unreachable {
        /// HTTP status, 0 where none came, or what came could not be read.
        status: u16,
    },
}

impl State {
    /// Keeps what was read; says what changed.
    pub(super) fn save_robots(
        &mut self,
        host: HostId,
        read: &RobotsRead,
        robots: &Robots,
        expires_at: Timestamp,
    ) -> Result<SavedRobots, StoreError> {
        let now = self.now_ms();
        let kept = kept_robots(&self.conn, host)?;
        let before = kept.clone();
        // What was read before a file was dropped for want of use is told from what comes.
        let old_version = match &kept {
            Some(kept) => kept.version,
            None => self.host(host)?.robots,
        };
        let (body, status, unreachable, delay) = match (read, kept) {
            (RobotsRead::Rules { body, status, crawl_delay }, _) => {
                let own = crawl_delay.map_or(0, in_bounds);
                (body.clone(), *status, false, Some(self.longest_delay(host, robots, own)?))
            }
            (RobotsRead::Same, Some(kept)) => (kept.body, 304, kept.unreachable, None),
            (RobotsRead::Unreachable { status }, Some(kept)) => {
                (kept.body, *status, kept.unreachable, None)
            }
            (RobotsRead::Same, None) => (Vec::new(), 304, false, None),
            (RobotsRead::Unreachable { status }, None) => (Vec::new(), *status, true, None),
        };
        // Without any copy somebody who needs one asks again before a day is over.
        let soon = now.saturating_add(UNREACHABLE_MS);
        let expires_at = expires_at.as_millisecond();
        let expires_at = if unreachable { expires_at.min(soon) } else { expires_at };
        let is_same = |kept: &KeptRobots| kept.body == body && kept.unreachable == unreachable;
        let same = before.as_ref().is_some_and(is_same);
        let version = if same { old_version } else { old_version + 1 };
        self.conn
            .prepare_cached(
                "INSERT INTO robots (/*pg: part, */ host_id, version, status, body, unreachable, crawl_delay_ms, read_at, expires_at)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, coalesce(CAST(?6 AS BIGINT), 0), ?7, ?8)
                 ON CONFLICT (/*pg: part, */ host_id) DO UPDATE SET version = ?2, status = ?3, body = ?4, unreachable = ?5,
                     crawl_delay_ms = coalesce(?6, robots.crawl_delay_ms), read_at = ?7, expires_at = ?8",
            )
            .and_then(|mut upsert| {
                upsert.execute(params![
                    host.0, version, status, body, unreachable, delay, now, expires_at,
                ])
            })
            .map_err(engine)?;
        if let Some(delay) = delay {
            self.heed_crawl_delay(host, delay)?;
        }
        self.forget_rules(host);
        let was_awaited = self.hosts.awaited.remove(&host);
        if same {
            if was_awaited {
                self.wake_host(host)?;
            }
            return Ok(SavedRobots::default());
        }
        // The first rules that are known are no change of any.
        let subjects = match before.filter(|kept| !kept.unreachable) {
            Some(kept) => self.log_robots_changes(host, version, &kept.body, &body)?,
            None => Vec::new(),
        };
        self.set_robots_version(host, version)?;
        // Before there are any rules nothing is held back by them.
        if old_version > 0 {
            self.recheck_host(host)?;
            self.read_barred_anew(host)?;
        }
        self.poll_forbidden(host)?;
        self.wake_host(host)?;
        let version = (!subjects.is_empty()).then_some(version);
        Ok(SavedRobots { changed: true, version, subjects })
    }

    /// What lists URLs that the rules of a host forbade is told whether they still do: it
    /// is read in full when its turn comes, whatever its validators say.
    fn read_barred_anew(&mut self, host: HostId) -> Result<(), StoreError> {
        // A site may live at the twin of the home that its config names.
        let sites: Vec<i64> = self.column(
            "SELECT site_id FROM sources WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */
                 AND role = 1 AND site_id IS NOT NULL
             UNION ALL SELECT n.id FROM hosts h JOIN sites n ON n.origin = h.authority
             WHERE h.id = ?1 /*pg: AND h.part = (?1 & 255) */",
            [host.0],
        )?;
        let code = IssueCode::UrlBlocked.as_str();
        let barred = format!("last_full_at > 0 AND issues LIKE '%\"{code}\"%'");
        let of_host =
            "/*pg: part = (?1 & 255) AND */ state = 0 AND next_poll_at IS NOT NULL AND host_id";
        let homes = sites.into_iter().map(|site| ("site_id", site));
        for (of, id) in homes.chain(std::iter::once((of_host, host.0))) {
            self.conn
                .prepare_cached(&format!(
                    "UPDATE sources SET last_full_at = 0 WHERE {of} = ?1 AND {barred}"
                ))
                .and_then(|mut update| update.execute([id]))
                .map_err(engine)?;
        }
        Ok(())
    }

    /// Whoever waited for the rules of a host may have its turn.
    fn wake_host(&mut self, host: HostId) -> Result<(), StoreError> {
        let crawls: Vec<_> = self.crawls.keys().copied().collect();
        let not_before = self.host(host)?.not_before();
        for crawl in crawls {
            if let Some(due) = self.next_due_of_host(crawl, host)? {
                let window = self.window(crawl);
                window.set_clock(host, not_before);
                window.look_at(host, due.saturating_mul(1000));
            }
        }
        Ok(())
    }

    /// A URL of a site waits for the robots.txt of its host, which was never read or not
    /// for too long: it is due now, once for all who wait.
    pub(super) fn await_robots(
        &mut self,
        host: HostId,
        site: Option<SiteId>,
    ) -> Result<(), StoreError> {
        if !self.hosts.awaited.insert(host) {
            return Ok(());
        }
        if let Some(site) = site {
            // It may have been dropped while nothing of the site could be leased.
            self.poll_robots_of(site, host)?;
        }
        if self.host(host)?.robots == 0 {
            // What was never read is due, or put off for a reason.
            return Ok(());
        }
        let now = self.now_ms();
        let due = self
            .conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?2, rule = 'asked',
                     why = 'URLs of its host wait for it' WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND role = 0 AND state = 0
                 AND (next_poll_at IS NULL OR next_poll_at > ?2)",
            )
            .and_then(|mut update| update.execute(params![host.0, now]))
            .map_err(engine)?;
        self.sources_moved |= due > 0;
        Ok(())
    }
}

impl State {
    /// Writes down what a new version says otherwise.
    fn log_robots_changes(
        &mut self,
        host: HostId,
        version: i64,
        old: &[u8],
        new: &[u8],
    ) -> Result<Vec<Subject>, StoreError> {
        let now = self.now_ms();
        let differences = Robots::parse(new).differences(&Robots::parse(old));
        let found: Option<(i64, i64)> = self
            .conn
            .prepare_cached(
                "SELECT s.id, coalesce(n.crawl_id, 1) FROM sources s
                 LEFT JOIN sites n ON n.id = s.site_id WHERE s.host_id = ?1
                     /*pg: AND s.part = (?1 & 255) */ AND s.role = 0",
            )
            .and_then(|mut query| {
                query.query_row([host.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(engine)?;
        let Some((source, crawl)) = found else { return Ok(Vec::new()) };
        let mut log = ChangeLog::default();
        for difference in &differences {
            let row = self
                .conn
                .prepare_cached(
                    "INSERT INTO robots_changes (/*pg: part, */ at, source_id, version, subject, was, now)
                     VALUES (/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, ?6) RETURNING id",
                )
                .and_then(|mut insert| {
                    let Difference { subject, was, now: is } = difference;
                    let values = params![now, source, version, *subject as i64, was, is];
                    insert.query_row(values, |row| row.get(0))
                })
                .map_err(engine)?;
            log.push_robots(row);
        }
        self.changes_moved |=
            log.write(&self.conn, now, CrawlId(crawl), SourceId(source), version)?;
        Ok(differences.into_iter().map(|difference| difference.subject).collect())
    }

    /// The robots.txt of a host of another daemon is due: that one asks for it.
    pub(super) fn poll_robots_soon(&mut self, authority: &str) -> Result<(), StoreError> {
        let Some(host) = self.find_host(authority)? else { return Ok(()) };
        let now = self.now_ms();
        self.conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?2, rule = 'asked',
                     why = 'a redirect leads to its host' WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND role = 0 AND state = 0
                 AND (next_poll_at IS NULL OR next_poll_at > ?2)",
            )
            .and_then(|mut update| update.execute(params![host.0, now]))
            .map(|_| ())
            .map_err(engine)
    }

    /// robots.txt belongs to the host: where its site is not polled any more, another
    /// one there goes on polling it, one with sources there before one with URLs only.
    pub(super) fn hand_over_robots(&mut self) -> Result<(), StoreError> {
        let now = self.now_ms();
        for heirs in [BY_SOURCES, BY_URLS] {
            let orphans = format!("{ORPHANS} SELECT 1 FROM orphans LIMIT 1");
            if self.column(&orphans, ())?.is_empty() {
                return Ok(());
            }
            let taken = self
                .conn
                .execute(
                    &format!(
                        "{ORPHANS} UPDATE sources SET site_id = next.heir, state = 0,
                             next_poll_at = coalesce(next_poll_at, ?1)
                         FROM {heirs} AS next WHERE sources.id = next.robots
                         /*pg: AND sources.part = (next.robots & 255) */"
                    ),
                    [now],
                )
                .map_err(engine)?;
            self.sources_moved |= taken > 0;
        }
        Ok(())
    }

    /// A site that is polled again has the robots.txt of its home again, which another one
    /// has polled meanwhile, unless that lives there as well.
    pub(super) fn take_back_robots(&mut self, site: SiteId) -> Result<(), StoreError> {
        let homes: Vec<i64> = self.column(
            "SELECT host_id FROM sources WHERE site_id = ?1 AND role = 1 AND state = 0",
            [site.0],
        )?;
        for host in homes {
            let taken = self
                .conn
                .execute(
                    "UPDATE sources SET site_id = ?2, state = 0 WHERE host_id = ?1
                     /*pg: AND part = (?1 & 255) */ AND role = 0 AND site_id <> ?2
                     AND NOT EXISTS (SELECT 1 FROM sources h WHERE h.host_id = ?1
                         /*pg: AND h.part = (?1 & 255) */ AND h.role = 1
                         AND h.site_id = sources.site_id)",
                    params![host, site.0],
                )
                .map_err(engine)?;
            let host = HostId(host);
            if taken > 0 && self.owns(partition_of(host)) {
                self.heed_newcomer(host)?;
            }
        }
        Ok(())
    }

    /// What the old version forbade is due: the new one may not.
    fn poll_forbidden(&mut self, host: HostId) -> Result<(), StoreError> {
        let now = self.now_ms();
        // What is forbidden is polled again some day, so it is in that index.
        let moved = self
            .conn
            .prepare_cached(
                "UPDATE sources /*lite*/ INDEXED BY sources_turn /*end*/ SET next_poll_at = ?2,
                     rule = 'robots-changed', why = 'the robots.txt of its host has changed'
                 WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND rule = ?3 AND state = 0 AND next_poll_at IS NOT NULL",
            )
            .and_then(|mut update| update.execute(params![host.0, now, FORBIDDEN]))
            .map_err(engine)?;
        self.sources_moved |= moved > 0;
        Ok(())
    }

    /// The longest of a Crawl-delay for our own token and those for the tokens that the
    /// pages of a host are judged for: who fetches them is told to keep to it.
    fn longest_delay(&self, host: HostId, robots: &Robots, own: i64) -> Result<i64, StoreError> {
        let mut longest = own;
        for agent in &self.policy.agents {
            let delay = robots.crawl_delay(agent).map_or(0, in_bounds);
            // Few files have one for just this one; who has sites there is asked then only.
            if delay > longest && self.judges_for(agent, host)? {
                longest = delay;
            }
        }
        Ok(longest)
    }

    /// Has a site that is judged for this token anything on a host?
    fn judges_for(&self, agent: &str, host: HostId) -> Result<bool, StoreError> {
        let found = self
            .conn
            .prepare_cached(
                "SELECT n.id FROM sites n WHERE n.judged_for = ?1 AND n.state <> 2
                 AND (EXISTS (SELECT 1 FROM site_hosts h WHERE h.site_id = n.id AND h.host_id = ?2
                          /*pg: AND h.part = (?2 & 255) */)
                      OR EXISTS (SELECT 1 FROM sources s WHERE s.host_id = ?2
                          /*pg: AND s.part = (?2 & 255) */ AND s.role <> 0 AND s.site_id = n.id))
                 LIMIT 1",
            )
            .and_then(|mut query| {
                query.query_row(params![agent, host.0], |row| row.get::<i64>(0)).optional()
            })
            .map_err(engine)?;
        Ok(found.is_some())
    }

    /// Others than before may fetch pages of a host: what its robots.txt asks of them is
    /// worked out again. A longer delay holds at once, a shorter one from the next
    /// request of ours.
    pub(super) fn heed_agents(&mut self, host: HostId) -> Result<(), StoreError> {
        if self.host(host)?.robots == 0 {
            return Ok(());
        }
        let Some(kept) = kept_robots(&self.conn, host)? else { return Ok(()) };
        let robots = Robots::parse(&kept.body);
        let own = robots.crawl_delay(&self.policy.own_agent).map_or(0, in_bounds);
        let delay = self.longest_delay(host, &robots, own)?;
        let changed = self
            .conn
            .prepare_cached(
                "UPDATE robots SET crawl_delay_ms = ?2 WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND crawl_delay_ms <> ?2",
            )
            .and_then(|mut update| update.execute(params![host.0, delay]))
            .map_err(engine)?;
        if changed == 0 {
            return Ok(());
        }
        let delay = self.host(host)?.delay_ms.max(delay).unsigned_abs();
        self.set_delay(host, Duration::from_millis(delay))
    }

    /// A site has come to a host: it may be judged for a token of its own.
    pub(super) fn heed_newcomer(&mut self, host: HostId) -> Result<(), StoreError> {
        if self.policy.agents.is_empty() { Ok(()) } else { self.heed_agents(host) }
    }

    /// A Crawl-delay holds from the read of the robots.txt on, which itself
    /// was a request.
    fn heed_crawl_delay(&mut self, host: HostId, crawl_delay: i64) -> Result<(), StoreError> {
        if crawl_delay == 0 {
            return Ok(());
        }
        let delay = self.host(host)?.delay_ms.max(crawl_delay).unsigned_abs();
        self.set_delay(host, Duration::from_millis(delay))?;
        let next = self.steady_ms().saturating_add(crawl_delay).max(self.host(host)?.next_at);
        self.set_clock(host, next)
    }
}

/// A Crawl-delay that is kept to, in milliseconds.
fn in_bounds(delay: Duration) -> i64 {
    millis(delay.min(MAX_CRAWL_DELAY))
}

/// What a version of the robots.txt of a source said otherwise than the one before.
pub(super) fn changes_of_robots(
    conn: &Connection,
    source: SourceId,
    version: i64,
) -> Result<Vec<ChangeView>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT c.subject, s.url, c.at, c.was, c.now
             FROM robots_changes c JOIN sources s ON s.id = c.source_id /*pg: AND s.part = c.part */
             WHERE c.source_id = ?1 /*pg: AND c.part = (?1 & 255) */ AND c.version = ?2 AND s.role = 0 ORDER BY c.id",
        )
        .map_err(engine)?;
    query
        .query_map(params![source.0, version], |row| {
            let subject = decode(&Subject::ALL, row.get(0)?).unwrap_or(Subject::Rules);
            Ok(ChangeView {
                kind: subject.as_str(),
                id: None,
                url: row.get(1)?,
                at: timestamp(row.get(2)?),
                said: Some(Said { was: row.get(3)?, now: row.get(4)? }),
            })
        })
        .and_then(Iterator::collect)
        .map_err(engine)
}

/// What is kept of a host's robots.txt.
pub(super) fn kept_robots(
    conn: &Connection,
    host: HostId,
) -> Result<Option<KeptRobots>, StoreError> {
    conn.prepare_cached(
        "SELECT version, body, unreachable, read_at, expires_at FROM robots WHERE host_id = ?1
         /*pg: AND part = (?1 & 255) */",
    )
    .and_then(|mut query| {
        query
            .query_row([host.0], |row| {
                Ok(KeptRobots {
                    host,
                    version: row.get(0)?,
                    body: row.get(1)?,
                    unreachable: row.get(2)?,
                    read_at: timestamp(row.get(3)?),
                    expires_at: timestamp(row.get(4)?),
                })
            })
            .optional()
    })
    .map_err(engine)
}
