//! Reads about the queue: its figures, what is next in it, and what is out of it.

use std::sync::LazyLock;

use super::sql::{self, Connection, Row, params};
use jiff::Timestamp;

use super::explain;
use super::packed::{is_held, is_valued, place, site_in};
use super::policy::Policy;
use super::record::Record;
use super::rows::{held, read_page};
use super::url_reads::crawl_id;
use super::views::{BlockPlace, BlockView, DeadView, Page, QueueView};
use super::{StoreError, engine, timestamp};
use crate::model::{CrawlId, UrlId};

/// Most rows of one page.
pub(super) const PAGE: u32 = 1_000;

/// Of the rows of `queue` those that leases do not pass over: a site that is paused,
/// or has left the configuration, keeps its rows. Whether there is such a site is
/// asked once: as a rule there is none.
pub(super) static LEASED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "(NOT EXISTS (SELECT 1 FROM sites WHERE state <> 0) OR {site} IS NULL
         OR {site} NOT IN (SELECT id FROM sites WHERE state <> 0))",
        site = site_in("q")
    )
});

/// URLs of a crawl that are due as far as their value goes, and are looked at for how
/// many of them are worth the price, at most.
const WEIGHED: usize = 64;

pub(super) fn queue(
    conn: &Connection,
    policy: &Policy,
    crawl: Option<&str>,
    now: Timestamp,
) -> Result<Vec<QueueView>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT id, name, paused FROM crawls WHERE CAST(?1 AS TEXT) IS NULL OR name = ?1 ORDER BY name",
        )
        .map_err(engine)?;
    let crawls: Vec<(i64, String, bool)> = query
        .query_map([crawl], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .and_then(Iterator::collect)
        .map_err(engine)?;
    if let Some(name) = crawl
        && crawls.is_empty()
    {
        return Err(StoreError::NotFound(format!("no crawl is named {name:?}")));
    }
    let one = |(id, name, paused)| one_queue(conn, policy, id, name, paused, now);
    crawls.into_iter().map(one).collect()
}

fn one_queue(
    conn: &Connection,
    policy: &Policy,
    crawl: i64,
    name: String,
    paused: bool,
    now: Timestamp,
) -> Result<QueueView, StoreError> {
    let number = |sql: &str, second: i64| -> Result<i64, StoreError> {
        conn.prepare_cached(sql)
            .and_then(|mut query| {
                query.query_row(params![crawl, second], |row| row.get::<Option<i64>>(0))
            })
            .map(|value| value.unwrap_or(0))
            .map_err(engine)
    };
    let held = |state: i64| {
        let sql = format!(
            "SELECT count(*) FROM feedback f JOIN urls u ON u.id = f.url_id /*pg: AND u.part = f.part */
             WHERE {} AND u.crawl_id = ?1",
            is_held("f", "?2")
        );
        number(&sql, state).map(i64::unsigned_abs)
    };
    let now_s = now.as_second();
    let optional = |sql: &str| -> Result<Option<i64>, StoreError> {
        conn.prepare_cached(sql)
            .and_then(|mut query| query.query_row([crawl], |row| row.get(0)))
            .map_err(engine)
    };
    let oldest = optional("SELECT min(leased_at) FROM leases WHERE crawl_id = ?1")?;
    // What nobody gets for less than the price surfaces before it is worth that.
    let (is_due, is_next) = if policy.is_capped() {
        let by_rank = format!("{} = 0", is_valued("q"));
        (format!("AND {by_rank}"), format!("WHERE {by_rank} OR q.due_s > ?2"))
    } else {
        (String::new(), "WHERE 1 = 1".to_owned())
    };
    let (due, next, surfaced): (i64, Option<i64>, i64) = conn
        .prepare_cached(&format!(
            "SELECT count(*) FILTER (WHERE q.due_s <= ?2 {is_due}),
                 min(q.due_s) FILTER ({is_next}), count(*) FILTER (WHERE q.due_s <= ?2)
             FROM queue q WHERE q.crawl_id = ?1 AND {}",
            *LEASED
        ))
        .and_then(|mut query| {
            query
                .query_row(params![crawl, now_s], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        })
        .map_err(engine)?;
    let (worth_it, first) = weigh(conn, policy, crawl, now, surfaced - due)?;
    let due = due.unsigned_abs() + worth_it;
    let next = next.into_iter().chain(first).min();
    let oldest_due = next.filter(|due| *due <= now_s);
    Ok(QueueView {
        crawl: name,
        paused,
        queued: number("SELECT sum(queued) FROM turns WHERE crawl_id = ?1 AND CAST(?2 AS BIGINT) = ?2", 0)?
            .unsigned_abs(),
        due,
        leased: number("SELECT count(*) FROM leases WHERE crawl_id = ?1 AND CAST(?2 AS BIGINT) = ?2", 0)?
            .unsigned_abs(),
        dead: held(held::DEAD)?,
        parked: held(held::PARKED)?,
        blocked: held(held::BLOCKED)?,
        forbidden: held(held::FORBIDDEN)?,
        hosts: number(
            "SELECT count(*) FROM turns WHERE crawl_id = ?1 AND queued > 0 AND CAST(?2 AS BIGINT) = ?2",
            0,
        )?
        .unsigned_abs(),
        next_due_at: next.map(|due| timestamp(due.saturating_mul(1000))),
        oldest_due_at: oldest_due.map(|due| timestamp(due.saturating_mul(1000))),
        oldest_lease_at: oldest.map(timestamp),
    })
}

/// Of so many URLs of a crawl that have surfaced, how many are worth the price, of more
/// than are weighed by the share of those; and when the first of them is, in Unix seconds.
fn weigh(
    conn: &Connection,
    policy: &Policy,
    crawl: i64,
    now: Timestamp,
    surfaced: i64,
) -> Result<(u64, Option<i64>), StoreError> {
    if surfaced == 0 {
        return Ok((0, None));
    }
    // In no order that hosts or times know of.
    let sql = format!(
        "SELECT q.url_id FROM queue q
         WHERE q.crawl_id = ?1 AND {} = 1 AND q.due_s <= ?2 AND {}
         ORDER BY (q.url_id % 65521) * 40503 % 65521, q.url_id LIMIT {WEIGHED}",
        is_valued("q"),
        *LEASED
    );
    let mut query = conn.prepare_cached(&sql).map_err(engine)?;
    let urls: Vec<i64> = query
        .query_map(params![crawl, now.as_second()], |row| row.get(0))
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let mut times = Vec::new();
    for url in &urls {
        times.extend(explain::due_at_price(conn, policy, UrlId(*url), now)?);
    }
    let due = times.iter().filter(|at| **at <= now).count() as u64;
    let worth_it = (surfaced.unsigned_abs() * due).div_ceil((urls.len() as u64).max(1));
    Ok((worth_it, times.iter().map(|at| at.as_second()).min()))
}

pub(super) fn dead(
    conn: &Connection,
    crawl: Option<&str>,
    limit: u32,
    after: Option<UrlId>,
) -> Result<Page<DeadView>, StoreError> {
    let limit = limit.clamp(1, PAGE) as usize;
    // No crawl has the number 0.
    let crawl = crawl.map_or(Ok(CrawlId(0)), |name| crawl_id(conn, name))?;
    let mut query = conn
        .prepare_cached(&format!(
            "SELECT u.id, h.authority, u.path, c.name, n.name, {}, f.record
             FROM feedback f JOIN urls u ON u.id = f.url_id /*pg: AND u.part = f.part */
             JOIN hosts h ON h.id = u.host_id /*pg: AND h.part = u.part */
             JOIN crawls c ON c.id = u.crawl_id LEFT JOIN sites n ON n.id = u.site_id
             WHERE {} AND f.url_id > ?2 AND (?4 = 0 OR u.crawl_id = ?4)
             ORDER BY f.url_id LIMIT ?3",
            place::ATTEMPT.of("f"),
            is_held("f", "?1")
        ))
        .map_err(engine)?;
    let after = after.map_or(0, |id| id.0);
    let mut items: Vec<DeadView> = query
        .query_map(params![held::DEAD, after, limit.cast_signed() as i64 + 1, crawl.0], |row| {
            let record = Record::unpack(row.get_ref(6)?.as_blob()?);
            Ok(DeadView {
                id: UrlId(row.get(0)?),
                url: read_page(row, 1)?,
                crawl: row.get(3)?,
                site: row.get(4)?,
                attempts: row.get(5)?,
                died_at: timestamp(record.held_since.unwrap_or(0)),
                status: record.fetched.as_ref().and_then(|fetched| fetched.status),
                error: record.rare().and_then(|rare| rare.error.clone()),
            })
        })
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|dead| dead.id.0);
    Ok(Page { items, next })
}

/// Blocks in the order of their key, which on a server has a hash for the pattern.
/// {after} is where a part goes on.
const BLOCKS: &str = "SELECT b.crawl_id, c.name, b.pattern, b.prefix, b.since_at
    FROM blocks b JOIN crawls c ON c.id = b.crawl_id
    WHERE b.crawl_id >= ?1 AND b.crawl_id <= ?2 {after}
    ORDER BY b.crawl_id, /*lite*/ b.pattern /*end*/ /*pg: b.key */, b.prefix LIMIT ?3";
const AFTER: &str = "AND (b.crawl_id, /*lite*/ b.pattern /*end*/ /*pg: b.key */, b.prefix)
    > (?4, /*lite*/ ?5 /*end*/ /*pg: hashtextextended(?5, 0) */, ?6)";

/// Blocks in force, of one crawl or of all, and where the next part goes on.
pub(super) fn blocks(
    conn: &Connection,
    crawl: Option<&str>,
    limit: u32,
    after: Option<&BlockPlace>,
) -> Result<(Vec<BlockView>, Option<BlockPlace>), StoreError> {
    let limit = limit.clamp(1, PAGE);
    let (first, last) = match crawl {
        Some(name) => crawl_id(conn, name).map(|id| (id.0, id.0))?,
        None => (0, i64::MAX),
    };
    let sql = BLOCKS.replace("{after}", after.map_or("", |_| AFTER));
    let mut query = conn.prepare_cached(&sql).map_err(engine)?;
    let rows = limit + 1;
    let read: sql::Result<Vec<(CrawlId, BlockView)>> = match after {
        None => query.query_map(params![first, last, rows], read_block).and_then(Iterator::collect),
        Some(BlockPlace { crawl, pattern, is_prefix }) => query
            .query_map(params![first, last, rows, crawl.0, pattern, is_prefix], read_block)
            .and_then(Iterator::collect),
    };
    let mut items = read.map_err(engine)?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(|(crawl, block)| BlockPlace {
        crawl: *crawl,
        pattern: block.pattern.clone(),
        is_prefix: block.prefix,
    });
    Ok((items.into_iter().map(|(_, block)| block).collect(), next))
}

fn read_block(row: &Row<'_>) -> sql::Result<(CrawlId, BlockView)> {
    let block = BlockView {
        crawl: row.get(1)?,
        pattern: row.get(2)?,
        prefix: row.get(3)?,
        since: timestamp(row.get(4)?),
    };
    Ok((CrawlId(row.get(0)?), block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_blocks_is_read_in_their_order_without_those_before() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        for after in ["", AFTER] {
            let sql = BLOCKS.replace("{after}", after);
            let mut query = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let nulls = vec![None::<i64>; query.parameter_count()];
            let lines = query.query_map(rusqlite::params_from_iter(nulls), |row| row.get(3));
            let plan: Vec<String> = lines.unwrap().map(Result::unwrap).collect();
            assert!(plan[0].starts_with("SEARCH b USING PRIMARY KEY"), "{plan:?}");
            assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{plan:?}");
        }
    }
}
