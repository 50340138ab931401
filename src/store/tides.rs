//! The tides: what the polls of the last week found, hour by hour.
//!
//! Kept by whoever shows them and read on in parts, newer polls first and then
//! older ones, so that a poll is looked at once and not at each look at a page,
//! and no part costs more than 50,000 rows.

use std::collections::BTreeMap;

use super::sql::{Connection, OptionalExtension, Row, params};
use jiff::Timestamp;

use super::log_order::{self, Log};
use super::{Store, StoreError, engine, timestamp};

/// Polls read at once.
const POLLS: i64 = 50_000;
const HOUR_MS: i64 = 3_600_000;
/// Hours of the tides: a week.
pub const TIDE_HOURS: i64 = 7 * 24;

/// What the polls of one hour found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tide {
    /// Polls that ended in it.
    pub polls: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// URLs found.
    pub new: u64,
    /// URLs changed or touched.
    pub changed: u64,
    /// URLs removed.
    pub removed: u64,
}

impl Tide {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            polls: self.polls + other.polls,
            failed: self.failed + other.failed,
            new: self.new + other.new,
            changed: self.changed + other.changed,
            removed: self.removed + other.removed,
        }
    }
}

/// The tides of the last week, as far as polls were read so far.
#[derive(Debug, Clone, Default)]
pub struct Tides {
    /// By hour since 1970.
    hours: BTreeMap<i64, Tide>,
    /// Polls after the first and up to the last are in them.
    seen: Option<(i64, i64)>,
    /// Is there no older poll of that week?
    is_whole: bool,
}

/// Some polls, summed.
#[derive(Debug)]
pub struct TidePart {
    hours: Vec<(i64, Tide)>,
    seen: (i64, i64),
    is_whole: bool,
    is_up_to_date: bool,
}

/// Where to from a poll.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// To newer ones.
    On,
    /// To older ones.
    Back,
}

impl Tides {
    /// Takes in what was read on; is that all there is?
    pub fn take(&mut self, part: TidePart, now: Timestamp) -> bool {
        if part.seen.0 == part.seen.1 && self.seen.is_none() {
            // An empty table: nothing is known of later ids.
            return true;
        }
        for (hour, tide) in part.hours {
            let known = self.hours.entry(hour).or_default();
            *known = known.and(tide);
        }
        self.seen = Some(part.seen);
        self.is_whole |= part.is_whole;
        self.hours = self.hours.split_off(&first_hour(now));
        self.is_whole && part.is_up_to_date
    }

    /// The hours of the week up to now, oldest first.
    pub fn week(&self, now: Timestamp) -> impl Iterator<Item = Tide> + '_ {
        let first = first_hour(now);
        (first..first + TIDE_HOURS).map(|hour| self.hours.get(&hour).copied().unwrap_or_default())
    }

    /// Since when all polls are in them, where that is not the whole week.
    pub fn since(&self) -> Option<Timestamp> {
        let (hour, _) = self.hours.first_key_value().filter(|_| !self.is_whole)?;
        Some(timestamp(hour * HOUR_MS))
    }
}

/// The first hour of the week that ends with this one.
fn first_hour(now: Timestamp) -> i64 {
    now.as_millisecond().div_euclid(HOUR_MS) - TIDE_HOURS + 1
}

impl Store {
    /// Reads on: newer polls than are known first, then older ones, 50,000 at
    /// most.
    pub async fn tides(&self, known: &Tides) -> Result<TidePart, StoreError> {
        let (seen, is_whole) = (known.seen, known.is_whole);
        let since = first_hour(self.now());
        self.read(move |conn| tide_part(conn, seen, is_whole, since)).await
    }
}

fn tide_part(
    conn: &Connection,
    seen: Option<(i64, i64)>,
    is_whole: bool,
    since: i64,
) -> Result<TidePart, StoreError> {
    let (oldest, newest): (Option<i64>, Option<i64>) = conn
        .prepare_cached("SELECT (SELECT min(id) FROM polls), (SELECT max(id) FROM polls)")
        .and_then(|mut query| query.query_row((), |row| Ok((row.get(0)?, row.get(1)?))))
        .map_err(engine)?;
    let mut newest = newest.unwrap_or(0);
    if conn.embedded().is_none() {
        // What is not settled yet is read when it is.
        newest = newest.min(log_order::reach(conn, Log::Polls)?.end - 1);
    }
    // What there is may all be unsettled.
    let oldest = (oldest.unwrap_or(1) - 1).min(newest);
    let (first, last) = seen.unwrap_or((newest, newest));
    if last < newest {
        let to = newest.min(step(conn, last, Way::On)?);
        let hours = sums(conn, last, to, since)?;
        return Ok(TidePart { hours, seen: (first, to), is_whole, is_up_to_date: to == newest });
    }
    let from = if is_whole { first } else { oldest.max(step(conn, first, Way::Back)?).min(first) };
    let hours = sums(conn, from, first, since)?;
    let is_past = from <= oldest || is_before(conn, from, since)?;
    Ok(TidePart { hours, seen: (from, last), is_whole: is_past, is_up_to_date: true })
}

/// A place that no more polls than are read at once lie before.
fn step(conn: &Connection, from: i64, way: Way) -> Result<i64, StoreError> {
    if conn.embedded().is_some() {
        // There each poll has the next number, but for those that a copy left out.
        let (sql, by) = match way {
            Way::On => ("SELECT min(id) FROM polls WHERE id > ?1", POLLS),
            Way::Back => ("SELECT max(id) FROM polls WHERE id <= ?1", -POLLS),
        };
        let next: Option<i64> = conn
            .prepare_cached(sql)
            .and_then(|mut query| query.query_row([from], |row| row.get(0)))
            .map_err(engine)?;
        return Ok(next.unwrap_or(from) + by);
    }
    let (sql, end) = match way {
        Way::On => ("SELECT id FROM polls WHERE id > ?1 ORDER BY id LIMIT 1 OFFSET ?2", i64::MAX),
        Way::Back => ("SELECT id FROM polls WHERE id <= ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2", 0),
    };
    conn.prepare_cached(sql)
        .and_then(|mut query| query.query_row([from, POLLS - 1], |row| row.get(0)).optional())
        .map(|found| found.unwrap_or(end))
        .map_err(engine)
}

/// Was the first poll after this one in an hour before?
fn is_before(conn: &Connection, id: i64, hour: i64) -> Result<bool, StoreError> {
    let at: Option<i64> = conn
        .prepare_cached("SELECT at FROM polls WHERE id > ?1 ORDER BY id LIMIT 1")
        .and_then(|mut query| query.query_row([id], |row| row.get(0)).optional())
        .map_err(engine)?;
    Ok(at.is_some_and(|at| at.div_euclid(HOUR_MS) < hour))
}

/// Sums over the polls after one and up to another, by hour.
fn sums(
    conn: &Connection,
    after: i64,
    to: i64,
    since: i64,
) -> Result<Vec<(i64, Tide)>, StoreError> {
    // Only where a document was read, or absences were counted without, are there
    // counts worth the parsing.
    let mut query = conn
        .prepare_cached(
            "SELECT at / 3600000 AS hour, count(*) FILTER (WHERE result <> 'let-go'),
                 sum(CASE WHEN result IN ('changed', 'unchanged', 'not-modified', 'incomplete', 'pushed',
                                          'let-go')
                     THEN 0 ELSE 1 END),
                 sum(CAST(counts /*pg: ::jsonb */ ->> 'new' AS BIGINT)) FILTER (WHERE generation IS NOT NULL),
                 sum(coalesce(CAST(counts /*pg: ::jsonb */ ->> 'changed' AS BIGINT), 0)
                     + coalesce(CAST(counts /*pg: ::jsonb */ ->> 'touched' AS BIGINT), 0))
                     FILTER (WHERE generation IS NOT NULL),
                 sum(CAST(counts /*pg: ::jsonb */ ->> 'removed' AS BIGINT))
                     FILTER (WHERE generation IS NOT NULL)
             FROM polls WHERE id > ?1 AND id <= ?2 AND at >= ?3 GROUP BY hour",
        )
        .map_err(engine)?;
    let sum = |row: &Row<'_>, index| {
        row.get::<Option<i64>>(index).map(|sum| sum.unwrap_or(0).unsigned_abs())
    };
    query
        .query_map(params![after, to, since * HOUR_MS], |row| {
            let tide = Tide {
                polls: sum(row, 1)?,
                failed: sum(row, 2)?,
                new: sum(row, 3)?,
                changed: sum(row, 4)?,
                removed: sum(row, 5)?,
            };
            Ok((row.get(0)?, tide))
        })
        .and_then(Iterator::collect)
        .map_err(engine)
}

#[cfg(test)]
mod tests;
