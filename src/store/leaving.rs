//! Rows that leave the queue, and leases that have ended: what leases take is the head of a
//! list, as a rule, so it goes as ranges, for which the embedded engine looks once.
//!
//! Keeps: nothing but what is named is deleted.

use std::sync::LazyLock;

use super::pending::EndedLease;
use super::sql::{self, Connection, Many, Row, Set, ToSql, Values};
use super::turns::Place;
use crate::model::UrlId;

static UNLEASE: LazyLock<Many> =
    LazyLock::new(|| Many::of_ids("DELETE FROM leases WHERE", "url_id"));

static LEAVE: LazyLock<Many> = LazyLock::new(|| {
    let near = "DELETE FROM queue
        WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s = ?4 AND url_id = ?5";
    let far = "DELETE FROM queue WHERE (part, crawl_id, host_id, band, due_s, url_id) IN
                   (SELECT url & 255, crawl, host, band, due, url
                    FROM unnest(?1::BIGINT[], ?2::BIGINT[], ?3::BIGINT[], ?4::BIGINT[], ?5::BIGINT[])
                        AS gone (crawl, host, band, due, url))";
    Many::one_by_one(near, 5, Set::new(far, 5))
});

/// Rows of one host, band and due time, for the embedded engine.
static LEAVE_ALIKE: LazyLock<Many> = LazyLock::new(|| {
    let head = "DELETE FROM queue
        WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s = ?4 AND url_id IN (";
    Many::of_pattern_sharing(head, "?5", (4, 1), ")")
});
/// So many rows that are alike, or follow one another, are worth a statement of their own.
const ALIKE: usize = 5;

/// Rows that follow one another go faster as one range than by their names, for the
/// embedded engine; these are the rows of a range, and their deletion.
struct Range {
    rows: &'static str,
    delete: &'static str,
}

/// A part of a band of a host's list.
const QUEUED: Range = Range {
    rows: "SELECT count(*), sum(url_id) FROM (SELECT url_id FROM queue
        WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3
            AND (due_s, url_id) >= (?4, ?5) AND (due_s, url_id) <= (?6, ?7) LIMIT ?8)",
    delete: "DELETE FROM queue
        WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3
            AND (due_s, url_id) >= (?4, ?5) AND (due_s, url_id) <= (?6, ?7)",
};

/// The same of those that have been due for as long.
const QUEUED_ALIKE: Range = Range {
    rows: "SELECT count(*), sum(url_id) FROM (SELECT url_id FROM queue
        WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s = ?4
            AND url_id BETWEEN ?5 AND ?6 LIMIT ?7)",
    delete: "DELETE FROM queue
        WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s = ?4
            AND url_id BETWEEN ?5 AND ?6",
};

/// Leases of neighbouring URLs.
const LEASED: Range = Range {
    rows: "SELECT count(*), sum(url_id) FROM (SELECT url_id FROM leases
        WHERE url_id BETWEEN ?1 AND ?2 LIMIT ?3)",
    delete: "DELETE FROM leases WHERE url_id BETWEEN ?1 AND ?2",
};

impl Range {
    /// Deletes the rows from the first to the last of these URLs, where there are no
    /// others between them; says whether it has. `ends` name the range.
    fn delete_only(
        &self,
        conn: &Connection,
        ends: &[&dyn ToSql],
        urls: impl ExactSizeIterator<Item = UrlId>,
    ) -> sql::Result<bool> {
        let count = i64::try_from(urls.len()).unwrap_or(i64::MAX);
        let sum: i64 = urls.map(|url| url.0).sum();
        // One more than there should be tells as much as all.
        let most = count.saturating_add(1);
        let asked = [ends, &[&most]].concat();
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found: (i64, Option<i64>) = conn.query_row(self.rows, &asked[..], read)?;
        if found != (count, Some(sum)) {
            return Ok(false);
        }
        conn.execute(self.delete, ends)?;
        Ok(true)
    }
}

/// Takes rows out of the queue. `is_head` says whether what leaves a host's list is its
/// head, or a part of it: else there is something between, as a rule.
pub(super) fn write_left(
    conn: &Connection,
    left: &mut [Place],
    is_head: impl Fn(&Place) -> bool,
) -> sql::Result<()> {
    let bind = |place: &Place, row: &mut Values<'_, '_>| {
        row.bind(place.crawl.0)?;
        row.bind(place.host.0)?;
        row.bind(place.band)?;
        row.bind(place.due_s)?;
        row.bind(place.url.0)
    };
    if conn.embedded().is_none() {
        return LEAVE.execute(conn, left, bind);
    }
    left.sort_unstable_by_key(Place::in_order);
    let mut others = Vec::new();
    for of_band in left.chunk_by(Place::is_of_same_band) {
        let is_head = of_band.first().is_some_and(&is_head);
        if !(is_head && leaves_as_range(conn, of_band)?) {
            write_left_alike(conn, of_band, &mut others)?;
        }
    }
    LEAVE.execute(conn, &others, bind)
}

/// Deletes rows of one band of a host's list as one, if nothing else is between them.
fn leaves_as_range(conn: &Connection, left: &[Place]) -> sql::Result<bool> {
    let ([first, .., last], true) = (left, left.len() >= ALIKE) else { return Ok(false) };
    let urls = left.iter().map(|place| place.url);
    let from: [&dyn ToSql; 5] =
        [&first.crawl.0, &first.host.0, &first.band, &first.due_s, &first.url.0];
    if first.is_alike(last) {
        return QUEUED_ALIKE.delete_only(conn, &[&from[..], &[&last.url.0]].concat(), urls);
    }
    let to: [&dyn ToSql; 2] = [&last.due_s, &last.url.0];
    QUEUED.delete_only(conn, &[&from[..], &to].concat(), urls)
}

/// Deletes rows of one band of a host's list by what they are; says which are left
/// to be deleted one by one.
fn write_left_alike(conn: &Connection, left: &[Place], others: &mut Vec<Place>) -> sql::Result<()> {
    for alike in left.chunk_by(Place::is_alike) {
        let (Some(first), true) = (alike.first(), alike.len() >= ALIKE) else {
            others.extend_from_slice(alike);
            continue;
        };
        let shared: [&dyn ToSql; 4] = [&first.crawl.0, &first.host.0, &first.band, &first.due_s];
        LEAVE_ALIKE.execute_sharing(conn, &shared, alike, |place, row| row.bind(place.url.0))?;
    }
    Ok(())
}

/// Deletes the leases that have ended.
pub(super) fn write_unleased(conn: &Connection, ended: &[EndedLease]) -> sql::Result<()> {
    if conn.embedded().is_none() {
        return UNLEASE.execute(conn, ended, |ended, row| row.bind(ended.place.url.0));
    }
    let mut others: Vec<UrlId> = Vec::new();
    // What was leased at once is of one host, as a rule.
    for of_host in ended.chunk_by(|one, next| one.place.host == next.place.host) {
        let urls = of_host.iter().map(|ended| ended.place.url);
        if let ([first, .., last], true) = (of_host, of_host.len() >= ALIKE)
            && LEASED.delete_only(conn, &[&first.place.url.0, &last.place.url.0], urls.clone())?
        {
            continue;
        }
        others.extend(urls);
    }
    UNLEASE.execute(conn, &others, |url, row| row.bind(url.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{CrawlId, HostId};

    fn tables() -> Connection {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        Connection::Embedded(conn)
    }

    fn place(number: i64, host: i64, band: u8, due_s: i64) -> Place {
        let (crawl, host, url) = (CrawlId(1), HostId(host), UrlId(number));
        Place { crawl, host, band, due_s, url, valued: false }
    }

    fn queue(conn: &Connection, places: &[Place]) {
        let sql =
            "INSERT INTO queue (crawl_id, host_id, band, due_s, url_id) VALUES (1, ?1, ?2, ?3, ?4)";
        for place in places {
            let values = [place.host.0, place.band.into(), place.due_s, place.url.0];
            conn.execute(sql, values).unwrap();
        }
    }

    fn numbers(conn: &Connection, sql: &str) -> Vec<i64> {
        let mut query = conn.prepare_cached(sql).unwrap();
        query.query_map((), |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    proptest! {
        #[test]
        fn of_the_queue_and_the_leases_those_go_that_are_named_and_no_others(
            rows in prop::collection::vec((0_i64..3, 0_u8..3, 0_i64..3, 0_u8..8), 1..120)
        ) {
            let conn = tables();
            // One in eight stays, so that there are ranges of all lengths.
            let all: Vec<(Place, bool)> = (1..)
                .zip(rows)
                .map(|(number, (host, band, due, stays))| (place(number, host, band, due), stays == 0))
                .collect();
            let places: Vec<Place> = all.iter().map(|(place, _)| *place).collect();
            queue(&conn, &places);
            let lease = "INSERT INTO leases (url_id, token, crawl_id, host_id, reason, band, due_s,
                attempt, leased_at, expires_at, not_before) VALUES (?1, x'', 1, ?2, 0, 0, 0, 0, 0, 0, 0)";
            for place in &places {
                conn.execute(lease, [place.url.0, place.host.0]).unwrap();
            }
            let mut left: Vec<Place> =
                all.iter().filter(|(_, stays)| !stays).map(|(place, _)| *place).collect();
            write_left(&conn, &mut left, |place| place.host.0 < 2).unwrap();
            left.sort_unstable_by_key(|place| place.url);
            let ended = |place: &Place| EndedLease {
                place: *place,
                state: 0,
                reason: crate::model::Reason::New,
                attempt: 0,
                record: crate::store::record::Record::default(),
                is_new: true,
            };
            write_unleased(&conn, &left.iter().map(ended).collect::<Vec<_>>()).unwrap();
            let stay: Vec<i64> =
                all.iter().filter(|(_, stays)| *stays).map(|(place, _)| place.url.0).collect();
            prop_assert_eq!(numbers(&conn, "SELECT url_id FROM queue ORDER BY url_id"), stay.clone());
            prop_assert_eq!(numbers(&conn, "SELECT url_id FROM leases ORDER BY url_id"), stay);
        }
    }

    #[test]
    fn a_row_that_stands_in_place_of_one_that_is_gone_stays() {
        let conn = tables();
        let all: Vec<Place> = (1..=10).map(|number| place(number, 1, 5, 7)).collect();
        queue(&conn, &all);
        let mut left: Vec<Place> =
            all.iter().copied().filter(|place| place.url != UrlId(4)).collect();
        // One is not there any more, so there are as many as are named.
        conn.execute("DELETE FROM queue WHERE url_id = 6", ()).unwrap();
        write_left(&conn, &mut left, |_| true).unwrap();
        assert_eq!(numbers(&conn, "SELECT url_id FROM queue"), [4]);
    }

    #[test]
    fn what_follows_one_another_is_found_by_the_key_alone() {
        let conn = tables();
        let plan = |sql: &str| {
            let mut query =
                conn.embedded().unwrap().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let (mut steps, mut rows) = (Vec::<String>::new(), query.raw_query());
            while let Some(row) = rows.next().unwrap() {
                steps.push(row.get(3).unwrap());
            }
            steps
        };
        for (range, key) in [
            (
                &QUEUED,
                "PRIMARY KEY (crawl_id=? AND host_id=? AND band=? AND (due_s,url_id)>(?,?) AND (due_s,url_id)<(?,?))",
            ),
            (
                &QUEUED_ALIKE,
                "PRIMARY KEY (crawl_id=? AND host_id=? AND band=? AND due_s=? AND url_id>? AND url_id<?)",
            ),
            (&LEASED, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ] {
            for sql in [range.rows, range.delete] {
                assert!(plan(sql).iter().any(|step| step.ends_with(key)), "{:?}", plan(sql));
            }
        }
    }
}
