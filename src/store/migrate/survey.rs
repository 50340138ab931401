//! One look over the file before anything is copied: how many rows go, which
//! partition each host, source and URL has, and by what the file is known again.
//!
//! Keeps: what cannot be right on a server is refused here, before anything is
//! written: a host in another partition than its name says, a number that has no
//! room for one.

use std::collections::HashMap;

use rusqlite::Connection;
use xxhash_rust::xxh3::xxh3_64;

use super::super::hosts::{name_of, partition};
use super::super::numbers::LAST_SOURCE;
use super::super::{StoreError, engine};
use super::ids::{Ids, MAX_ID};
use super::plan::{Step, returns};
use crate::config::MAX_SOURCE_BYTES;
use crate::model::CrawlId;

/// Rows of a crawl on a host, and the sum of their numbers, wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub(super) rows: i64,
    pub(super) ids: i64,
}

impl Sum {
    pub(super) fn add(&mut self, rows: i64, ids: i64) {
        self.rows += rows;
        self.ids = self.ids.wrapping_add(ids);
    }
}

/// Sums by crawl and the hash of the host's authority: what tells a row that
/// came to another host.
pub(super) type Sums = HashMap<(CrawlId, u64), Sum>;

/// What is known of the file.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) ids: Ids,
    /// Rows of each step, in the order of the steps.
    pub(super) rows: Vec<u64>,
    /// Of urls.
    pub(super) urls: Sums,
    /// Of what will be queued.
    pub(super) queue: Sums,
    pub(super) seed: u64,
    /// Leases that are out, and whose URLs go back into the queue.
    pub(super) leases: u64,
    /// The highest number of a host or a source, and of a URL, that was given out.
    pub(super) last_id: i64,
    pub(super) last_url: i64,
    /// Another one when anything was written meanwhile.
    pub(super) identity: String,
}

/// Looks the file over.
pub(super) fn survey(file: &Connection, steps: &[Step]) -> Result<Survey, StoreError> {
    let seed = meta(file, "seed")?
        .and_then(|seed| seed.parse::<i64>().ok())
        .ok_or_else(|| StoreError::Unusable("the file has no seed".to_owned()))?
        .cast_unsigned();
    let mut ids = Ids::default();
    let authorities = read_hosts(file, &mut ids)?;
    check_lengths(file)?;
    let last_source = meta(file, LAST_SOURCE)?.and_then(|last| last.parse().ok()).unwrap_or(0);
    let mut last_id = authorities.keys().copied().max().unwrap_or(0).max(last_source);
    each(file, "SELECT id, host_id FROM sources ORDER BY id", |[id, host]| {
        ids.sources.set(check(id)?, ids.hosts.get(host));
        last_id = last_id.max(id);
        Ok(())
    })?;
    let mut urls = Sums::new();
    let mut last_url = meta(file, "last_url")?.and_then(|last| last.parse().ok()).unwrap_or(0);
    each(file, "SELECT id, host_id, crawl_id FROM urls ORDER BY id", |[id, host, crawl]| {
        ids.urls.set(check(id)?, ids.hosts.get(host));
        last_url = last_url.max(id);
        let authority = authorities.get(&host).copied().ok_or_else(|| {
            StoreError::Unusable(format!("the file is damaged: the host of URL {id} is not there"))
        })?;
        urls.entry((CrawlId(crawl), authority)).or_default().add(1, id);
        Ok(())
    })?;
    let rows =
        steps.iter().map(|step| count(file, &step.count())).collect::<Result<Vec<_>, _>>()?;
    let out = count(file, "SELECT count(*) FROM leases")?;
    let leases = count(file, &format!("SELECT count(*) FROM leases l WHERE {}", returns("l")))?;
    let queue = read_queue(file, &authorities)?;
    let identity = identity(file, seed, &rows, out)?;
    Ok(Survey { ids, rows, urls, queue, seed, leases, last_id, last_url, identity })
}

fn read_hosts(file: &Connection, ids: &mut Ids) -> Result<HashMap<i64, u64>, StoreError> {
    let mut authorities = HashMap::new();
    let mut query = file.prepare("SELECT id, authority, part FROM hosts").map_err(engine)?;
    let mut rows = query.query([]).map_err(engine)?;
    while let Some(row) = rows.next().map_err(engine)? {
        let read = (row.get(0), row.get::<_, String>(1), row.get::<_, i64>(2));
        let (id, authority, part) =
            (read.0.map_err(engine)?, read.1.map_err(engine)?, read.2.map_err(engine)?);
        if authority.contains('\0') {
            return Err(StoreError::Refused(format!(
                "the queue {:?} of a client has a zero byte in its name, which no server keeps, so \
                 this file cannot go to one",
                name_of(&authority)
            )));
        }
        if part != partition(&authority) {
            return Err(StoreError::Unusable(format!(
                "the file is damaged: {authority} is in partition {part}"
            )));
        }
        ids.hosts.set(check(id)?, u8::try_from(part).unwrap_or(0));
        authorities.insert(id, xxh3_64(authority.as_bytes()));
    }
    Ok(authorities)
}

/// URLs that an index of a server has no room for: a file had none of that.
fn check_lengths(file: &Connection) -> Result<(), StoreError> {
    use rusqlite::OptionalExtension as _;
    let tables = [
        ("sources", "source", "it goes when its site is forgotten"),
        ("submissions", "submission", "forget it"),
    ];
    for (table, what, way_out) in tables {
        let sql = format!(
            "SELECT id, substr(url, 1, 100) FROM {table}
             WHERE length(CAST(url AS BLOB)) > ?1 ORDER BY id LIMIT 1"
        );
        let limit = i64::try_from(MAX_SOURCE_BYTES).unwrap_or(i64::MAX);
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get(1)?));
        let found: Option<(i64, String)> =
            file.query_row(&sql, [limit], read).optional().map_err(engine)?;
        if let Some((id, url)) = found {
            return Err(StoreError::Refused(format!(
                "the {what} {id} has a URL of more than 2,048 bytes, {url}..., for which there is \
                 no room on a server: {way_out}"
            )));
        }
    }
    Ok(())
}

/// What is queued, and what will be since its lease goes.
fn read_queue(file: &Connection, hosts: &HashMap<i64, u64>) -> Result<Sums, StoreError> {
    let mut queue = Sums::new();
    let returned = format!(
        "SELECT u.crawl_id, u.host_id, u.id FROM leases l CROSS JOIN urls u ON u.id = l.url_id
         WHERE {}",
        returns("l")
    );
    for sql in ["SELECT crawl_id, host_id, url_id FROM queue", &returned] {
        each(file, sql, |[crawl, host, url]| {
            let authority = hosts.get(&host).copied().unwrap_or_default();
            queue.entry((CrawlId(crawl), authority)).or_default().add(1, url);
            Ok(())
        })?;
    }
    Ok(queue)
}

fn check(id: i64) -> Result<i64, StoreError> {
    if (0..=MAX_ID).contains(&id) {
        return Ok(id);
    }
    Err(StoreError::Unusable(format!("the file is damaged: a row has the number {id}")))
}

/// Calls for each row of numbers.
fn each<const N: usize>(
    file: &Connection,
    sql: &str,
    mut row: impl FnMut([i64; N]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut query = file.prepare(sql).map_err(engine)?;
    let mut rows = query.query([]).map_err(engine)?;
    while let Some(read) = rows.next().map_err(engine)? {
        let mut numbers = [0; N];
        for (column, number) in numbers.iter_mut().enumerate() {
            *number = read.get(column).map_err(engine)?;
        }
        row(numbers)?;
    }
    Ok(())
}

fn count(file: &Connection, sql: &str) -> Result<u64, StoreError> {
    let rows: i64 = file.query_row(sql, [], |row| row.get(0)).map_err(engine)?;
    Ok(rows.unsigned_abs())
}

/// A fact of the file, as text.
pub(super) fn meta(file: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    use rusqlite::OptionalExtension as _;
    let sql = "SELECT CAST(value AS TEXT) FROM meta WHERE key = ?1";
    file.query_row(sql, [key], |row| row.get(0)).optional().map_err(engine)
}

/// The last number that a table with numbers of its own has given out.
pub(super) fn last_number(file: &Connection, table: &str) -> Result<i64, StoreError> {
    let sql = format!(
        "SELECT max(coalesce((SELECT max(id) FROM {table}), 0),
             coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0))"
    );
    file.query_row(&sql, [table], |row| row.get(0)).map_err(engine)
}

/// The store by its seed, and its state by what every start, poll, lease and
/// settlement moves: the clocks of runs and hosts, and how many rows there are.
fn identity(file: &Connection, seed: u64, rows: &[u64], leases: u64) -> Result<String, StoreError> {
    let clocks = "SELECT coalesce(max(next_at), 0) || ' ' || coalesce(sum(next_at / 1000), 0)
                  FROM hosts";
    let clocks: String = file.query_row(clocks, [], |row| row.get(0)).map_err(engine)?;
    let run = meta(file, "clock")?.unwrap_or_default();
    let logged = (last_number(file, "polls")?, last_number(file, "changes")?);
    let state = format!("{run} {clocks} {logged:?} {rows:?} {leases}");
    Ok(format!("{seed:016x} {:016x}", xxh3_64(state.as_bytes())))
}
