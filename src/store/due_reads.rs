//! Reads of the poll loop: what is due, and a source as a poll needs it.
//!
//! Asked after every poll, so each is a few steps in an index but for the list
//! of all that is due, which the loop asks for seldom.

use super::sql::{self, Connection, OptionalExtension, Row, params};
use jiff::Timestamp;

use super::polling::{DueSource, PollTarget, TARGET, read_target};
use super::{StoreError, engine, timestamp};
use crate::model::{HostId, SiteId, SourceId};

/// Sites that a look at due sources passes over at most.
pub const MOST_PASSED_OVER: usize = 8;

/// What is not of the sites that are passed over.
const OTHERS: &str = "AND (site_id IS NULL OR site_id NOT IN (?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10))";

/// Sources that are due, the longest due first, at most one per host; none of the sites
/// `but`, of which the first [`MOST_PASSED_OVER`] count.
pub(super) fn due_sources(
    conn: &Connection,
    now: Timestamp,
    limit: u32,
    but: &[SiteId],
) -> Result<Vec<DueSource>, StoreError> {
    // The rows themselves are looked at only where it has to be.
    let others = if but.is_empty() { "" } else { OTHERS };
    // min() picks the row that the other columns come from: the longest due of
    // each host, so that an index of 50,000 children takes one place here.
    let mut query = conn
        .prepare_cached(&format!(
            "SELECT id, host_id, due, (SELECT s.site_id FROM sources s
                 WHERE s.id = longest.id /*pg: AND s.part = (longest.id & 255) */)
             FROM (/*lite*/
                 SELECT id, host_id, min(next_poll_at) AS due FROM sources INDEXED BY sources_due
                 WHERE state = 0 AND next_poll_at <= ?1 {others} GROUP BY host_id
                 ORDER BY due, id LIMIT ?2 /*end*/ /*pg:
                 SELECT id, host_id, due FROM
                     (SELECT DISTINCT ON (host_id) id, host_id, next_poll_at AS due FROM sources
                      WHERE state = 0 AND next_poll_at <= ?1 {others}
                          AND (host_id & 255) = ANY(ARRAY(SELECT part FROM
                          partitions WHERE node = current_setting('sitemapd.node', true)))
                      ORDER BY host_id, next_poll_at, id) hosts
                 ORDER BY due, id LIMIT ?2 */) longest
             ORDER BY due, id"
        ))
        .map_err(engine)?;
    let now = now.as_millisecond();
    let rows: sql::Result<_> = if but.is_empty() {
        query.query_map(params![now, limit], read_due).and_then(Iterator::collect)
    } else {
        // No site has the number 0.
        let mut passed = [0; MOST_PASSED_OVER];
        passed.iter_mut().zip(but).for_each(|(place, site)| *place = site.0);
        let [s1, s2, s3, s4, s5, s6, s7, s8] = passed;
        query
            .query_map(params![now, limit, s1, s2, s3, s4, s5, s6, s7, s8], read_due)
            .and_then(Iterator::collect)
    };
    rows.map_err(engine)
}

/// Of these the robots.txt files, of which a host has one. Goes over all that is due.
pub(super) fn due_robots(
    conn: &Connection,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<DueSource>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT id, host_id, next_poll_at, site_id
             FROM sources /*lite*/ INDEXED BY sources_due /*end*/
             WHERE state = 0 AND next_poll_at <= ?1 AND role = 0 /*ours: part */
             ORDER BY next_poll_at, id LIMIT ?2",
        )
        .map_err(engine)?;
    query
        .query_map(params![now.as_millisecond(), limit], read_due)
        .and_then(Iterator::collect)
        .map_err(engine)
}

/// The longest due source of each of these hosts, where there is any.
pub(super) fn next_due_of(
    conn: &Connection,
    hosts: &[HostId],
    now: Timestamp,
) -> Result<Vec<DueSource>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT id, host_id, next_poll_at, site_id FROM sources /*lite*/ INDEXED BY sources_turn /*end*/
             WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 0 AND next_poll_at <= ?2
             ORDER BY next_poll_at, id LIMIT 1",
        )
        .map_err(engine)?;
    let mut next = Vec::new();
    for host in hosts {
        let due = query.query_row(params![host.0, now.as_millisecond()], read_due).optional();
        next.extend(due.map_err(engine)?);
    }
    Ok(next)
}

/// Those of these sources that are due.
pub(super) fn due_of(
    conn: &Connection,
    sources: &[SourceId],
    now: Timestamp,
) -> Result<Vec<DueSource>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT id, host_id, next_poll_at, site_id FROM sources
             WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 0 AND next_poll_at <= ?2
                 /*ours: part */",
        )
        .map_err(engine)?;
    let mut found = Vec::new();
    for source in sources {
        let due = query.query_row(params![source.0, now.as_millisecond()], read_due).optional();
        found.extend(due.map_err(engine)?);
    }
    Ok(found)
}

fn read_due(row: &Row<'_>) -> sql::Result<DueSource> {
    Ok(DueSource {
        id: SourceId(row.get(0)?),
        host: HostId(row.get(1)?),
        at: timestamp(row.get(2)?),
        site: row.get::<Option<i64>>(3)?.map(SiteId),
    })
}

/// A source that was due, if it still is.
pub(super) fn still_due(
    conn: &Connection,
    id: SourceId,
    now: Timestamp,
) -> Result<Option<PollTarget>, StoreError> {
    conn.prepare_cached(&format!(
        "{TARGET} WHERE s.id = ?1 /*pg: AND s.part = (?1 & 255) */ AND s.state = 0 AND s.next_poll_at <= ?2
         /*ours: s.part */"
    ))
    .and_then(|mut query| {
        query.query_row(params![id.0, now.as_millisecond()], read_target).optional()
    })
    .map_err(engine)
}

/// When the next source is due, if any is polled at all.
pub(super) fn next_source_due(conn: &Connection) -> Result<Option<Timestamp>, StoreError> {
    conn.prepare_cached(
        "SELECT next_poll_at FROM sources WHERE state = 0 AND next_poll_at IS NOT NULL
             /*ours: (host_id & 255) */ ORDER BY next_poll_at LIMIT 1",
    )
    .and_then(|mut query| query.query_row((), |row| row.get::<i64>(0)).optional())
    .map(|at| at.map(timestamp))
    .map_err(engine)
}

/// The home page of a site, if it has never been polled.
pub(super) fn unseen_home(
    conn: &Connection,
    site: SiteId,
) -> Result<Option<PollTarget>, StoreError> {
    conn.prepare_cached(&format!(
        "{TARGET} WHERE s.id = (SELECT id FROM sources WHERE site_id = ?1 AND role = 1 AND state = 0
             AND last_poll_at IS NULL /*ours: part */ LIMIT 1)"
    ))
    .and_then(|mut query| query.query_row([site.0], read_target).optional())
    .map_err(engine)
}

/// One source as a poll needs it.
pub(super) fn poll_target(conn: &Connection, id: SourceId) -> Result<PollTarget, StoreError> {
    conn.prepare_cached(&format!("{TARGET} WHERE s.id = ?1 /*pg: AND s.part = (?1 & 255) */"))
        .and_then(|mut query| query.query_row([id.0], read_target).optional())
        .map_err(engine)?
        .ok_or_else(|| StoreError::NotFound(format!("there is no source {id}")))
}
