//! Whether what came is what went: how many rows each table has, how many, and
//! which, each crawl has of each host, and whether URLs are found by their text.
//!
//! A partition is asked for at a time, so that no statement takes long, however
//! many rows there are.

use rusqlite::Connection as File;
use xxhash_rust::xxh3::xxh3_64;

use super::super::abbreviations::PathText;
use super::super::hosts::partition;
use super::super::known::find_on_disk;
use super::super::rows::url_key;
use super::super::sql::{Connection, OptionalExtension, params};
use super::super::{StoreError, engine};
use super::plan::Step;
use super::survey::{Sum, Sums, Survey};
use crate::model::{CrawlId, UrlId};

/// Rows that are counted in one go.
const FEW: u64 = 500_000;
/// Partitions that there are.
const PARTS: i64 = 256;
/// URLs that are looked up by their text.
const SAMPLE: i64 = 1_000;

/// Compares; says how many URLs were looked up.
pub(super) fn verify(
    file: &File,
    server: &Connection,
    steps: &[Step],
    survey: &Survey,
) -> Result<u64, StoreError> {
    for step in steps.iter().filter(|step| step.name == step.table) {
        let into = steps.iter().zip(&survey.rows).filter(|(other, _)| other.table == step.table);
        let expected: u64 = into.map(|(_, rows)| *rows).sum();
        let found = count(server, step, expected)?;
        if found != expected {
            return Err(wrong(&format!("{expected} rows of {} went, {found} came", step.table)));
        }
    }
    let of_urls = "SELECT u.crawl_id, h.authority, count(*), CAST(sum(u.id >> 8) AS BIGINT)
        FROM urls u JOIN hosts h ON h.part = u.part AND h.id = u.host_id
        WHERE u.part = ?1 GROUP BY u.crawl_id, h.authority";
    compare(server, of_urls, &survey.urls, "urls")?;
    let of_queue = "SELECT q.crawl_id, h.authority, count(*), CAST(sum(q.url_id >> 8) AS BIGINT)
        FROM queue q JOIN hosts h ON h.part = q.part AND h.id = q.host_id
        WHERE q.part = ?1 GROUP BY q.crawl_id, h.authority";
    compare(server, of_queue, &survey.queue, "queue")?;
    look_up(file, server, survey)
}

fn count(server: &Connection, step: &Step, expected: u64) -> Result<u64, StoreError> {
    let table = step.table;
    let number = |sql: &str, part: Option<i64>| {
        let read = match part {
            Some(part) => server.query_row(sql, [part], |row| row.get::<i64>(0)),
            None => server.query_row(sql, (), |row| row.get(0)),
        };
        read.map(i64::unsigned_abs).map_err(engine)
    };
    if expected < FEW || step.part.is_none() {
        return number(&format!("SELECT count(*) FROM {table}"), None);
    }
    let sql = format!("SELECT count(*) FROM {table} WHERE part = ?1");
    (0..PARTS).map(|part| number(&sql, Some(part))).sum()
}

fn compare(server: &Connection, sql: &str, expected: &Sums, table: &str) -> Result<(), StoreError> {
    let mut found = 0;
    for part in 0..PARTS {
        let mut query = server.prepare_cached(sql).map_err(engine)?;
        let mut rows = query.query([part]).map_err(engine)?;
        while let Some(row) = rows.next().map_err(engine)? {
            let read = || -> super::super::sql::Result<(i64, String, Sum)> {
                Ok((row.get(0)?, row.get(1)?, Sum { rows: row.get(2)?, ids: row.get(3)? }))
            };
            let (crawl, authority, sum) = read().map_err(engine)?;
            let key = (CrawlId(crawl), xxh3_64(authority.as_bytes()));
            if part != partition(&authority) || expected.get(&key) != Some(&sum) {
                return Err(wrong(&format!(
                    "rows of {table} on {authority} are not those that went"
                )));
            }
            found += 1;
        }
    }
    if found == expected.len() {
        return Ok(());
    }
    Err(wrong(&format!("{table} has rows of {found} hosts instead of {}", expected.len())))
}

/// Looks some URLs of the file up as a daemon on the server will.
fn look_up(file: &File, server: &Connection, survey: &Survey) -> Result<u64, StoreError> {
    let next = "SELECT u.id, u.crawl_id, h.authority, u.path FROM urls u
                JOIN hosts h ON h.id = u.host_id WHERE u.id >= ?1 ORDER BY u.id LIMIT 1";
    let mut query = file.prepare(next).map_err(engine)?;
    let stride = (survey.last_url / SAMPLE).max(1);
    let (mut from, mut looked) = (0, 0);
    loop {
        let found: Option<(i64, i64, String, PathText)> = {
            use rusqlite::OptionalExtension as _;
            let read =
                |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            query.query_row([from], read).optional().map_err(engine)?
        };
        let Some((id, crawl, authority, PathText(path))) = found else { return Ok(looked) };
        let new = UrlId(survey.ids.urls.new_id(id));
        let key = url_key(survey.seed, CrawlId(crawl), &authority, &path);
        let rows = find_on_disk(server, partition(&authority), key).map_err(engine)?;
        if !rows.contains(&new) || !is_same(server, new, crawl, &authority, &path)? {
            return Err(wrong(&format!("{authority}{path} is not found by its text")));
        }
        looked += 1;
        from = id + stride;
    }
}

fn is_same(
    server: &Connection,
    id: UrlId,
    crawl: i64,
    authority: &str,
    path: &str,
) -> Result<bool, StoreError> {
    let row: Option<(i64, String, PathText)> = server
        .query_row(
            "SELECT u.crawl_id, h.authority, u.path FROM urls u
             JOIN hosts h ON h.part = u.part AND h.id = u.host_id
             WHERE u.part = (?1 & 255) AND u.id = ?1",
            params![id.0],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()
        .map_err(engine)?;
    Ok(row.is_some_and(|(found, host, PathText(text))| {
        (found, &*host, &*text) == (crawl, authority, path)
    }))
}

fn wrong(what: &str) -> StoreError {
    StoreError::Engine(format!(
        "the copy is not what the file is: {what}; empty the database and begin anew"
    ))
}
