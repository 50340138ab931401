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
    s.last_changed_at, s.next_poll_at, s.why, s.failures, s.entries, s.admitted, s.bytes, s.issues
    FROM sources s LEFT JOIN sites n ON n.id = s.site_id";

/// Sources in order of id after ?1: which, and in what order. ?2 says whether retired
/// ones are wanted, ?3 how many.
const OF_ALL: &str = "WHERE s.id > ?1 AND (?2 = 1 OR s.state <> 2) ORDER BY s.id LIMIT ?3";
/// Those of the site named ?4.
const OF_SITE: &str = "WHERE s.site_id = (SELECT id FROM sites WHERE name = ?4)
    AND s.id > ?1 AND (?2 = 1 OR s.state <> 2) ORDER BY s.id LIMIT ?3";
/// Those with the URL ?4, which is on the host ?5; of the site named ?6, where it is
/// not null. Each half has an index of its own.
const AT_URL: &str = "WHERE s.id IN (
        SELECT id FROM sources WHERE host_id = ?5 /*pg: AND part = (?5 & 255) */
            AND url = ?4 AND role <> 0
        UNION ALL SELECT id FROM sources WHERE host_id = ?5 /*pg: AND part = (?5 & 255) */
            AND url = ?4 AND role = 0)
    /*pg: AND s.part = (?5 & 255) */ AND s.id > ?1 AND (?2 = 1 OR s.state <> 2)
    AND (CAST(?6 AS TEXT) IS NULL OR n.name = ?6) ORDER BY s.id LIMIT ?3";

pub(super) fn sources(
    conn: &Connection,
    filter: &SourceFilter,
) -> Result<Page<SourceView>, StoreError> {
    let SourceFilter { site, url, retired, limit, after } = filter;
    let (after, limit) = (after.unwrap_or(0), (*limit).clamp(1, PAGE));
    let items = match (url, site) {
        (None, None) => listed(conn, OF_ALL, params![after, retired, limit])?,
        (None, Some(site)) => listed(conn, OF_SITE, params![after, retired, limit, site])?,
        (Some(url), site) => match host_of(conn, url)? {
            Some(host) => listed(conn, AT_URL, params![after, retired, limit, url, host, site])?,
            None => Vec::new(),
        },
    };
    let full = items.len() == limit as usize;
    let next = items.last().filter(|_| full).map(|source| source.id.0);
    Ok(Page { items, next })
}

fn listed(
    conn: &Connection,
    which: &str,
    args: &[&dyn ToSql],
) -> Result<Vec<SourceView>, StoreError> {
    conn.prepare_cached(&format!("{SOURCE} {which}"))
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
            let mut query = conn.prepare(&format!("EXPLAIN QUERY PLAN {SOURCE} {which}")).unwrap();
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
