//! What is shown of queues and URLs: pages of bounded size, each of one short
//! read, so that a dump of millions of URLs holds nobody up.

use std::sync::LazyLock;

use super::super::sql::{self, Connection, OptionalExtension, Row, params};
use jiff::Timestamp;

use super::super::abbreviations::PathText;
use super::super::hosts::{KEYED, partition};
use super::super::known::find_on_disk;
use super::super::packed::{place, said};
use super::super::rows::{held, read_page, url_key};
use super::super::{StoreError, engine, timestamp};
use super::Metadata;
use super::get::metadata_of;
use super::put::spot_of;
use crate::model::{CrawlId, UrlId};
use crate::url::{authority, identities};

/// Rows of the table that one read looks at.
const SPAN: i64 = 10_240;
/// URLs that one read gives.
const PAGE: usize = 1_000;

/// Names of queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueNames {
    /// In their order.
    pub names: Vec<String>,
    /// How many there are in all.
    pub total: u64,
}

/// Figures of a queue, or of a crawl.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrontierStats {
    /// URLs that wait, or are with somebody.
    pub active: u64,
    /// Of these, those that are with somebody.
    pub in_process: u64,
    /// URLs that are not to be fetched again.
    pub completed: u64,
    /// Queues with URLs that are active.
    pub queues: u64,
}

/// Which URLs are sought.
#[derive(Debug, Clone)]
pub struct Sought {
    /// Of this crawl.
    pub crawl: String,
    /// Of this queue only.
    pub key: Option<String>,
    /// A part of their text.
    pub filter: Option<String>,
    /// Is the case of that part of no account?
    pub ignore_case: bool,
}

impl Sought {
    fn holds(&self, url: &str) -> bool {
        match &self.filter {
            None => true,
            Some(part) if self.ignore_case => url.to_lowercase().contains(&part.to_lowercase()),
            Some(part) => url.contains(part.as_str()),
        }
    }
}

/// A URL as it is known.
#[derive(Debug, Clone)]
pub struct Listed {
    /// As it was pushed or listed.
    pub url: String,
    /// Name of its queue.
    pub key: String,
    /// What a client last said of it.
    pub metadata: Metadata,
    /// Due then; `None`: it is not to be fetched again.
    pub due: Option<Timestamp>,
    /// When it became known.
    pub created: Timestamp,
}

/// A part of all URLs.
#[derive(Debug, Clone)]
pub struct ListedPage {
    /// Those that are sought.
    pub urls: Vec<Listed>,
    /// The row to go on after; none at the end.
    pub next: Option<i64>,
}

static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    let first_seen = said::FIRST_SEEN.of("u");
    format!(
        "u.id, h.authority, u.path, s.spelled, h.name, s.metadata, coalesce({}, 0),
         coalesce({}, {first_seen}), {first_seen}",
        place::STATE.of("f"),
        place::DUE.of("f")
    )
});
/// Rows of a crawl, and of a key, that clients alone made known, before a time.
static PUSHED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT u.id FROM frontier_urls s
         JOIN urls u ON u.id = s.url_id /*pg: AND u.part = s.part */
         JOIN hosts h ON h.id = u.host_id /*pg: AND h.part = u.part */
         WHERE s.url_id > ?1 AND s.url_id <= ?2 /*pg: AND s.part = (?1 & 255) */
             AND s.pushed = 1 AND u.crawl_id = ?3 AND u.source_id IS NULL
             AND NOT EXISTS (SELECT 1 FROM url_sources x
                             WHERE x.url_id = u.id /*pg: AND x.part = u.part */)
             AND (CAST(?4 AS TEXT) IS NULL OR h.name = ?4)
             AND (CAST(?5 AS BIGINT) IS NULL OR {} < ?5)",
        said::FIRST_SEEN.of("u")
    )
});

const TABLES: &str = "FROM urls u JOIN hosts h ON h.id = u.host_id /*pg: AND h.part = u.part */
    LEFT JOIN feedback f ON f.url_id = u.id /*pg: AND f.part = u.part */
    LEFT JOIN frontier_urls s ON s.url_id = u.id /*pg: AND s.part = u.part */";

/// All crawls, by name.
pub(super) fn crawls(conn: &Connection) -> Result<Vec<String>, StoreError> {
    let mut query = conn.prepare_cached("SELECT name FROM crawls ORDER BY name").map_err(engine)?;
    query.query_map((), |row| row.get(0)).and_then(Iterator::collect).map_err(engine)
}

fn crawl_named(conn: &Connection, name: &str) -> Result<Option<CrawlId>, StoreError> {
    conn.prepare_cached("SELECT id FROM crawls WHERE name = ?1")
        .and_then(|mut query| query.query_row([name], |row| row.get(0).map(CrawlId)).optional())
        .map_err(engine)
}

/// Queues with something in them.
const QUEUES: &str = "WITH held AS (SELECT DISTINCT host_id FROM leases WHERE crawl_id = ?1),
    named AS (SELECT h.name AS name,
                  max(CASE WHEN t.queued > 0 OR t.host_id IN (SELECT host_id FROM held)
                      THEN 1 ELSE 0 END) AS busy
              FROM turns t JOIN hosts h ON h.id = t.host_id /*pg: AND h.part = t.part */
              WHERE t.crawl_id = ?1 GROUP BY h.name),
    shown AS (SELECT n.name FROM named n
              LEFT JOIN frontier_queues q ON q.crawl_id = ?1 AND q.name = n.name
              WHERE ?2 = 1 OR (n.busy = 1 AND coalesce(q.blocked_until, 0) <= ?3))";

/// Queues by name.
pub(super) fn queues(
    conn: &Connection,
    crawl: &str,
    start: u32,
    size: u32,
    idle: bool,
    now: Timestamp,
) -> Result<QueueNames, StoreError> {
    let Some(crawl) = crawl_named(conn, crawl)? else { return Ok(QueueNames::default()) };
    let now = now.as_millisecond();
    let total: i64 = conn
        .prepare_cached(&format!("{QUEUES} SELECT count(*) FROM shown"))
        .and_then(|mut query| query.query_row(params![crawl.0, idle, now], |row| row.get(0)))
        .map_err(engine)?;
    let names = conn
        .prepare_cached(&format!(
            "{QUEUES} SELECT name FROM shown ORDER BY name LIMIT ?5 OFFSET ?4"
        ))
        .and_then(|mut query| {
            query
                .query_map(params![crawl.0, idle, now, start, size], |row| row.get(0))
                .and_then(Iterator::collect)
        })
        .map_err(engine)?;
    Ok(QueueNames { names, total: total.unsigned_abs() })
}

/// Figures of a queue, or of a crawl.
pub(super) fn stats(
    conn: &Connection,
    crawl: &str,
    key: Option<&str>,
) -> Result<FrontierStats, StoreError> {
    let Some(crawl) = crawl_named(conn, crawl)? else { return Ok(FrontierStats::default()) };
    let key = key.filter(|key| !key.is_empty());
    let count = |sql: &str| -> Result<u64, StoreError> {
        conn.prepare_cached(sql)
            .and_then(|mut query| query.query_row(params![crawl.0, key], |row| row.get::<i64>(0)))
            .map(i64::unsigned_abs)
            .map_err(engine)
    };
    let waiting = count(
        "SELECT coalesce(sum(t.queued), 0) FROM turns t JOIN hosts h ON h.id = t.host_id /*pg: AND h.part = t.part */
         WHERE t.crawl_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR h.name = ?2)",
    )?;
    let in_process = count(
        "SELECT count(*) FROM leases l JOIN hosts h ON h.id = l.host_id /*pg: AND h.part = l.part */
         WHERE l.crawl_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR h.name = ?2)",
    )?;
    let completed = count(
        "SELECT coalesce(sum(completed), 0) FROM frontier_queues
         WHERE crawl_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR name = ?2)",
    )?;
    let queues = count(
        "SELECT count(DISTINCT h.name) FROM hosts h WHERE (CAST(?2 AS TEXT) IS NULL OR h.name = ?2) 
             AND /*lite*/ h.id /*end*/ /*pg: (h.part, h.id) */ IN
             (SELECT /*pg: part, */ host_id FROM turns WHERE crawl_id = ?1 AND queued > 0
              UNION SELECT /*pg: part, */ host_id FROM leases WHERE crawl_id = ?1)",
    )?;
    Ok(FrontierStats { active: waiting + in_process, in_process, completed, queues })
}

/// One URL as it is known.
pub(super) fn url_known(
    conn: &Connection,
    seed: u64,
    crawl: &str,
    key: Option<&str>,
    text: &str,
) -> Result<Option<Listed>, StoreError> {
    let Some(crawl) = crawl_named(conn, crawl)? else { return Ok(None) };
    let Some(spot) = spot_of(key, text) else { return Ok(None) };
    if spot.authority.starts_with(KEYED) {
        return url_at(conn, seed, crawl, &spot.authority, &spot.path);
    }
    for spelling in identities(&spot.listed) {
        let path = &spelling[url::Position::BeforePath..];
        let found = url_at(conn, seed, crawl, &authority(&spelling), path)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn url_at(
    conn: &Connection,
    seed: u64,
    crawl: CrawlId,
    authority: &str,
    path: &str,
) -> Result<Option<Listed>, StoreError> {
    let columns = &*COLUMNS;
    let sql = format!(
        "SELECT {columns} {TABLES}
         WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */ AND u.crawl_id = ?2 AND h.authority = ?3"
    );
    let hash = url_key(seed, crawl, authority, path);
    for id in find_on_disk(conn, partition(authority), hash).map_err(engine)? {
        let found = conn
            .prepare_cached(&sql)
            .and_then(|mut query| {
                let read = |row: &Row<'_>| Ok((row.get::<PathText>(2)?.0, read_listed(row)?));
                query.query_row(params![id.0, crawl.0, authority], read).optional()
            })
            .map_err(engine)?;
        if let Some((_, listed)) = found.filter(|(text, _)| text == path) {
            return Ok(Some(listed));
        }
    }
    Ok(None)
}

/// URLs of a bounded part of the table.
pub(super) fn list(
    conn: &Connection,
    sought: &Sought,
    after: i64,
) -> Result<ListedPage, StoreError> {
    let Some(crawl) = crawl_named(conn, &sought.crawl)? else {
        return Ok(ListedPage { urls: Vec::new(), next: None });
    };
    let end = after.saturating_add(span(conn, SPAN));
    let columns = &*COLUMNS;
    let sql = format!(
        "SELECT {columns} {TABLES}
         WHERE u.id > ?1 AND u.id <= ?2 /*pg: AND u.part = (?1 & 255) */ AND u.crawl_id = ?3
             AND (CAST(?4 AS TEXT) IS NULL OR h.name = ?4)
         ORDER BY u.id"
    );
    let mut query = conn.prepare_cached(&sql).map_err(engine)?;
    let mut rows = query.query(params![after, end, crawl.0, sought.key]).map_err(engine)?;
    let mut urls = Vec::new();
    while let Some(row) = rows.next().map_err(engine)? {
        let listed = read_listed(&row).map_err(engine)?;
        if sought.holds(&listed.url) {
            urls.push(listed);
        }
        if urls.len() >= PAGE {
            return Ok(ListedPage { urls, next: Some(row.get(0).map_err(engine)?) });
        }
    }
    Ok(ListedPage { urls, next: go_on(conn, end)? })
}

/// Rows that clients pushed and that no source lists, of a bounded part of the
/// table; and the row to go on after.
pub(super) fn pushed(
    conn: &Connection,
    sought: &Sought,
    after: i64,
    before: Option<Timestamp>,
) -> Result<(Vec<UrlId>, Option<i64>), StoreError> {
    let Some(crawl) = crawl_named(conn, &sought.crawl)? else { return Ok((Vec::new(), None)) };
    let end = after.saturating_add(span(conn, SPAN / 10));
    let rows = conn
        .prepare_cached(&PUSHED)
        .and_then(|mut query| {
            let before = before.map(Timestamp::as_second);
            query
                .query_map(params![after, end, crawl.0, sought.key, before], |row| {
                    row.get(0).map(UrlId)
                })
                .and_then(Iterator::collect)
        })
        .map_err(engine)?;
    Ok((rows, go_on(conn, end)?))
}

/// Has a crawl any URL in a bounded part of the table? And the row to go on after.
pub(super) fn has_urls(
    conn: &Connection,
    crawl: CrawlId,
    after: i64,
) -> Result<(bool, Option<i64>), StoreError> {
    let end = after.saturating_add(span(conn, SPAN));
    let any = conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM urls WHERE id > ?1 AND id <= ?2
                 /*pg: AND part = (?1 & 255) */ AND crawl_id = ?3)",
        )
        .and_then(|mut query| query.query_row([after, end, crawl.0], |row| row.get(0)))
        .map_err(engine)?;
    Ok((any, go_on(conn, end)?))
}

/// How far so many rows reach: on a server the numbers of a partition are 256
/// apart.
fn span(conn: &Connection, rows: i64) -> i64 {
    if conn.server().is_some() { rows << 8 } else { rows }
}

/// The row to go on after, if there are rows beyond it: where the next begins.
fn go_on(conn: &Connection, end: i64) -> Result<Option<i64>, StoreError> {
    let next: Option<i64> = conn
        .prepare_cached(
            "SELECT /*lite*/ min(id) - 1 FROM urls WHERE id > ?1 /*end*/
             /*pg: (SELECT id - 256 FROM urls WHERE (part, id) > (CAST(?1 AS BIGINT) & 255, ?1)
                    ORDER BY part, id LIMIT 1) */",
        )
        .and_then(|mut query| query.query_row([end], |row| row.get(0)))
        .map_err(engine)?;
    Ok(next)
}

fn read_listed(row: &Row<'_>) -> sql::Result<Listed> {
    let ended = matches!(row.get(6)?, held::PARKED | held::DEAD);
    let second = |second: i64| timestamp(second.saturating_mul(1000));
    let spelled: Option<String> = row.get(3)?;
    let metadata: Option<String> = row.get(5)?;
    Ok(Listed {
        url: spelled.map_or_else(|| read_page(row, 1), Ok)?,
        key: row.get(4)?,
        metadata: metadata_of(metadata.as_deref()),
        due: (!ended).then_some(second(row.get(7)?)),
        created: second(row.get(8)?),
    })
}
