//! Lists of sources: all, those of a site, those at a URL.
//!
//! Each has a statement of its own, so that none reads the sources of others; a
//! list has its parts in the order of ids.

use url::Url;

use super::hosts::partition;
use super::poll_reads::{PAGE, read_source};
use super::sql::{Connection, OptionalExtension, ToSql, params};
use super::views::{Page, SourceFilter, SourceView};
use super::{StoreError, engine};
use crate::url::authority;

/// What is read of a source, by `read_source`.
pub(super) const SOURCE: &str = "SELECT s.id, n.name, s.url, s.role, s.kind, s.named_by, s.parent_id, s.state, s.window,
    s.status, coalesce(s.error, s.retired_why), s.http_status, s.added_at, s.last_poll_at, s.last_success_at,
    s.last_changed_at, s.next_poll_at, s.why, s.failures, s.entries, s.admitted, s.bytes, s.issues,
    s.failing, n.state
    FROM sources s LEFT JOIN sites n ON n.id = s.site_id";

/// Sources in order of id after ?1: which, and in what order, at most ?2 of them.
/// {living} leaves retired ones out; a parameter for that would have a planner guess that
/// there are few, and sort them all.
const OF_ALL: &str = "WHERE s.id > ?1 {living} ORDER BY s.id LIMIT ?2";
/// Those of the site named ?3.
const OF_SITE: &str = "WHERE s.site_id = (SELECT id FROM sites WHERE name = ?3)
    AND s.id > ?1 {living} ORDER BY s.id LIMIT ?2";
/// Those with the URL ?3, which is on the host ?4; of the site named ?5, where it is
/// not null. Each half has an index of its own.
const AT_URL: &str = "WHERE s.id IN (
        SELECT id FROM sources WHERE host_id = ?4 /*pg: AND part = (?4 & 255) */
            AND url = ?3 AND role <> 0
        UNION ALL SELECT id FROM sources WHERE host_id = ?4 /*pg: AND part = (?4 & 255) */
            AND url = ?3 AND role = 0)
    /*pg: AND s.part = (?4 & 255) */ AND s.id > ?1 {living}
    AND (CAST(?5 AS TEXT) IS NULL OR n.name = ?5) ORDER BY s.id LIMIT ?2";

/// The statement of a list.
fn statement(which: &str, retired: bool) -> String {
    let living = if retired { "" } else { "AND s.state <> 2" };
    format!("{SOURCE} {}", which.replace("{living}", living))
}

pub(super) fn sources(
    conn: &Connection,
    filter: &SourceFilter,
) -> Result<Page<SourceView>, StoreError> {
    let SourceFilter { site, url, retired, limit, after } = filter;
    let (after, limit) = (after.unwrap_or(0), (*limit).clamp(1, PAGE));
    let items = match (url, site) {
        (None, None) => listed(conn, &statement(OF_ALL, *retired), params![after, limit])?,
        (None, Some(site)) => {
            listed(conn, &statement(OF_SITE, *retired), params![after, limit, site])?
        }
        (Some(url), site) => match host_of(conn, url)? {
            Some(host) => {
                let args = params![after, limit, url, host, site];
                listed(conn, &statement(AT_URL, *retired), args)?
            }
            None => Vec::new(),
        },
    };
    let full = items.len() == limit as usize;
    let next = items.last().filter(|_| full).map(|source| source.id.0);
    Ok(Page { items, next })
}

fn listed(
    conn: &Connection,
    sql: &str,
    args: &[&dyn ToSql],
) -> Result<Vec<SourceView>, StoreError> {
    conn.prepare_cached(sql)
        .and_then(|mut query| query.query_map(args, read_source)?.collect())
        .map_err(engine)
}

/// The host of a URL, where it is known.
fn host_of(conn: &Connection, url: &str) -> Result<Option<i64>, StoreError> {
    let Ok(url) = Url::parse(url) else { return Ok(None) };
    let authority = authority(&url);
    conn.prepare_cached("SELECT id FROM hosts WHERE /*pg: part = ?1 AND */ authority = ?2")
        .and_then(|mut query| {
            let of = params![partition(&authority), authority];
            query.query_row(of, |row| row.get(0)).optional()
        })
        .map_err(engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_a_site_or_at_a_url_are_found_without_a_walk_over_the_others() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        for (which, found) in [
            (OF_ALL, &["SEARCH s USING INTEGER PRIMARY KEY"][..]),
            (OF_SITE, &["SEARCH s USING INDEX sources_site (site_id=?"]),
            (
                AT_URL,
                &[
                    "SEARCH s USING INTEGER PRIMARY KEY (rowid=?",
                    "SEARCH sources USING INDEX sources_robots (host_id=?",
                    "INDEX sources_place (host_id=? AND url=?",
                ],
            ),
        ] {
            for retired in [false, true] {
                let sql = format!("EXPLAIN QUERY PLAN {}", statement(which, retired));
                let mut query = conn.prepare(&sql).unwrap();
                let nulls = vec![None::<i64>; query.parameter_count()];
                let lines = query.query_map(rusqlite::params_from_iter(nulls), |row| row.get(3));
                let plan: Vec<String> = lines.unwrap().map(Result::unwrap).collect();
                for way in found {
                    assert!(plan.iter().any(|line| line.contains(way)), "{way}: {plan:#?}");
                }
                let walks = |line: &String| line.starts_with("SCAN s") && !line.contains("sites");
                assert!(!plan.iter().any(walks), "{plan:#?}");
            }
        }
    }
}
