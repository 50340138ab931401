//! What is next in line, without leasing it.

use std::cell::Cell;

use jiff::Timestamp;

use super::abbreviations::PathText;
use super::hosts::page_text;
use super::operate::Blocks;
use super::packed::{place, said};
use super::queue_reads::{LEASED, PAGE};
use super::rows::reason;
use super::sql::{Connection, params};
use super::url_reads::crawl_id;
use super::views::PeekView;
use super::{StoreError, engine, timestamp};
use crate::diff::snapshot::EntryHints;
use crate::model::{CrawlId, Priority, UrlId};

/// Hosts that are looked at.
const HOSTS: u32 = 1_000;
/// Where so many rows of each host are too few, so many times more are read.
const STEP: usize = 4;
/// After so many blocked rows nobody looks for what may be behind them.
const PATIENCE: usize = 20_000;

/// A host with rows of a crawl.
struct Host {
    id: i64,
    authority: String,
    /// It is asked for nothing before, by time in milliseconds.
    clock: i64,
    /// None of its rows is due before, in seconds.
    due: i64,
}

/// First what is due, by turns of the hosts in the order in which they may be served,
/// one URL of each at a time and each host's own in lease order; then what is not due,
/// by when it is.
pub(super) fn peek(
    conn: &Connection,
    crawl: &str,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<PeekView>, StoreError> {
    let crawl = crawl_id(conn, crawl)?;
    let blocked = Blocks::of_crawl(conn, crawl)?;
    let look = Look { conn, crawl, now, blocked, patience: PATIENCE.into() };
    let limit = limit.clamp(1, PAGE) as usize;
    let hosts = look.hosts()?;
    let mut lines = look.due(&hosts, limit)?;
    if lines.len() < limit {
        lines.extend(look.later(&hosts, limit - lines.len())?);
    }
    Ok(lines)
}

struct Look<'a> {
    conn: &'a Connection,
    crawl: CrawlId,
    now: Timestamp,
    /// What these hold is put aside when its turn comes.
    blocked: Blocks,
    /// Blocked rows that may still be passed over.
    patience: Cell<usize>,
}

impl Look<'_> {
    /// By when they may be served.
    fn hosts(&self) -> Result<Vec<Host>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT t.host_id, h.authority,
                     /*lite*/ max /*end*/ /*pg: GREATEST */ (h.next_at, h.paused_until), t.due_s
                 FROM turns t JOIN hosts h ON h.id = t.host_id /*pg: AND h.part = t.part */
                 WHERE t.crawl_id = ?1 AND t.queued > 0
                 ORDER BY /*lite*/ max /*end*/ /*pg: GREATEST */
                     (h.next_at, h.paused_until, t.due_s * 1000, ?2), t.due_s, t.host_id LIMIT ?3",
            )
            .and_then(|mut query| {
                query
                    .query_map(params![self.crawl.0, self.now.as_millisecond(), HOSTS], |row| {
                        Ok(Host {
                            id: row.get(0)?,
                            authority: row.get(1)?,
                            clock: row.get(2)?,
                            due: row.get(3)?,
                        })
                    })
                    .and_then(Iterator::collect)
            })
            .map_err(engine)
    }

    fn due(&self, hosts: &[Host], limit: usize) -> Result<Vec<PeekView>, StoreError> {
        let mut each = limit.div_ceil(hosts.len().max(1));
        loop {
            let mut lines = Vec::new();
            let mut has_more = false;
            for (place, host) in hosts.iter().enumerate() {
                if each == 1 && lines.len() == limit {
                    break;
                }
                let of_host = self.of_host(host, true, each)?;
                has_more |= of_host.len() == each;
                lines.extend(
                    of_host.into_iter().enumerate().map(|(turn, line)| ((turn, place), line)),
                );
            }
            if lines.len() >= limit || !has_more {
                lines.sort_by_key(|(turn, _)| *turn);
                return Ok(lines.into_iter().map(|(_, line)| line).take(limit).collect());
            }
            each = each.saturating_mul(STEP).min(limit);
        }
    }

    fn later(&self, hosts: &[Host], limit: usize) -> Result<Vec<PeekView>, StoreError> {
        let mut lines: Vec<PeekView> = Vec::new();
        for host in hosts {
            let last = (lines.len() == limit).then(|| lines.last().map(|last| last.due_at));
            if last.flatten().is_some_and(|last| host.due >= last.as_second()) {
                continue;
            }
            lines.extend(self.of_host(host, false, limit)?);
            // Of the same time the host that may be served first.
            lines.sort_by_key(|line| line.due_at);
            lines.truncate(limit);
        }
        Ok(lines)
    }

    fn may_be_leased(&self, line: &PeekView) -> bool {
        !self.blocked.hold(&line.url)
    }

    /// The first URLs of one host that may be leased, `most` of them: of what is due in
    /// lease order, or of the rest by due time.
    fn of_host(&self, host: &Host, is_due: bool, most: usize) -> Result<Vec<PeekView>, StoreError> {
        let mut rows = most;
        loop {
            let mut lines = self.rows_of_host(host, is_due, rows)?;
            let is_all = lines.len() < rows;
            let read = lines.len();
            lines.retain(|line| self.may_be_leased(line));
            let left = self.patience.get().saturating_sub(read - lines.len());
            self.patience.set(left);
            if lines.len() >= most || is_all || left == 0 {
                lines.truncate(most);
                return Ok(lines);
            }
            rows = rows.saturating_mul(STEP);
        }
    }

    /// The same, blocked or not.
    fn rows_of_host(
        &self,
        host: &Host,
        is_due: bool,
        most: usize,
    ) -> Result<Vec<PeekView>, StoreError> {
        let (range, order) = if is_due {
            ("<=", "q.band DESC, q.due_s, q.url_id")
        } else {
            (">", "q.due_s, q.url_id")
        };
        let sql = format!(
            "SELECT q.url_id, u.path, n.name, coalesce({}, {}), {}, q.due_s, coalesce({}, 0)
             FROM queue q JOIN urls u ON u.id = q.url_id /*pg: AND u.part = q.part */
             LEFT JOIN sites n ON n.id = u.site_id
             LEFT JOIN feedback f ON f.url_id = u.id /*pg: AND f.part = u.part */
             WHERE q.crawl_id = ?1 AND q.host_id = ?2 /*pg: AND q.part = (?2 & 255) */ AND q.due_s {range} ?3
                 AND {}
             ORDER BY {order} LIMIT ?4",
            place::REASON.of("f"),
            said::REASON.of("u"),
            said::HINTS.of("u"),
            place::ATTEMPT.of("f"),
            *LEASED
        );
        let (now, most) = (self.now.as_second(), most.cast_signed() as i64);
        let mut query = self.conn.prepare_cached(&sql).map_err(engine)?;
        query
            .query_map(params![self.crawl.0, host.id, now, most], |row| {
                let PathText(path) = row.get(1)?;
                let hints = EntryHints::from_bits(row.get(4)?).unwrap_or_default();
                Ok(PeekView {
                    id: UrlId(row.get(0)?),
                    url: page_text(&host.authority, &path),
                    site: row.get(2)?,
                    host: host.authority.clone(),
                    reason: reason(row.get(3)?),
                    priority: hints.priority.unwrap_or(Priority::DEFAULT),
                    changefreq: hints.changefreq,
                    due_at: timestamp(row.get::<i64>(5)?.saturating_mul(1000)),
                    not_before: timestamp(host.clock.max(self.now.as_millisecond())),
                    attempt: row.get::<u32>(6)? + 1,
                })
            })
            .and_then(Iterator::collect)
            .map_err(engine)
    }
}
