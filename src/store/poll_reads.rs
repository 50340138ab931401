//! Reads about sites, sources and polls.

use std::collections::HashSet;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use super::sql::{self, Connection, OptionalExtension, Params, Row, ToSql, params};
use jiff::Timestamp;
use url::Url;

use super::checkpoint::{log_of, size};
use super::hosts::partition;
use super::log_order::{self, Log, Reach};
use super::maintain::OF_NO_READ;
use super::packed::said;
use super::policy::Policy;
use super::robots::{KeptRobots, changes_of_robots, kept_robots};
use super::rows::lastmod;
use super::source_lists::SOURCE;
use super::sources::{Child, role};
use super::views::{ChangeView, Counts, Page, PollView, SiteView, SourceView, StatusView};
use super::{StoreError, changes, claim, engine, queue_reads, timestamp, url_reads};
use crate::diff::document::loc_key;
use crate::model::{ChangeKind, DocumentKind, HostId, SiteId, SourceId, UrlId};
use crate::parse::{Issue, Severity};

/// Most rows of one page.
pub(super) const PAGE: u32 = 1_000;
/// Polls shown with a source.
const HISTORY: u32 = 20;
const DAY_MS: i64 = 24 * 3_600_000;

pub(super) fn snapshot(
    conn: &Connection,
    id: SourceId,
    parent: Option<SourceId>,
) -> Result<(Option<Vec<u8>>, i64), StoreError> {
    let data = conn
        .prepare_cached(
            "SELECT data FROM snapshots WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */",
        )
        .and_then(|mut query| query.query_row([id.0], |row| row.get(0)).optional())
        .map_err(engine)?;
    // A URL may have moved to a sibling that has not been read since, or, from
    // a sitemap that became an index, to a child; or to a sibling that its index names
    // and nobody knows yet.
    let since: Option<i64> = conn
        .prepare_cached(
            "SELECT min(read_at) FROM (
                 SELECT coalesce(last_complete_at, 0) AS read_at FROM sources
                 WHERE parent_id IN (?1, ?2) AND id <> ?2 AND state = 0 AND sources.window <> 1
                   AND dropped_at IS NULL
                 UNION ALL
                 SELECT coalesce(last_complete_at, 0) FROM sources
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 0) AS reads",
        )
        .and_then(|mut query| {
            query.query_row(params![parent.map(|parent| parent.0), id.0], |row| row.get(0))
        })
        .map_err(engine)?;
    Ok((data, since.map_or(i64::MAX, |ms| ms.div_euclid(1000))))
}

/// Of these URLs those that another source lists that shows the whole.
pub(super) fn listed_elsewhere(
    conn: &Connection,
    source: SourceId,
    urls: &[UrlId],
) -> Result<HashSet<UrlId>, StoreError> {
    let mut query = conn.prepare_cached(&ELSEWHERE).map_err(engine)?;
    let mut found = HashSet::new();
    for url in urls {
        if query.query_row([url.0, source.0], |row| row.get(0)).map_err(engine)? {
            found.insert(*url);
        }
    }
    Ok(found)
}

static ELSEWHERE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT EXISTS (SELECT 1 FROM urls u
                 JOIN sources s ON s.id = u.source_id /*pg: AND s.part = (u.source_id & 255) */
             WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */ AND {} = 1
               AND s.id <> ?2 AND s.window = 0 AND s.state <> 2)
         OR EXISTS (SELECT 1 FROM url_sources x
                 JOIN sources s ON s.id = x.source_id /*pg: AND s.part = (x.source_id & 255) */
             WHERE x.url_id = ?1 /*pg: AND x.part = (?1 & 255) */
               AND s.id <> ?2 AND s.window = 0 AND s.state <> 2)",
        said::LISTED.of("u")
    )
});

pub(super) fn children(
    conn: &Connection,
    seed: u64,
    index: SourceId,
) -> Result<Vec<Child>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT id, url, index_lastmod, index_precision, index_misses, dropped_at, state = 2,
                 last_changed_at
             FROM sources WHERE parent_id = ?1",
        )
        .map_err(engine)?;
    query
        .query_map([index.0], |row| {
            Ok(Child {
                id: SourceId(row.get(0)?),
                key: loc_key(seed, row.get_ref(1)?.as_str()?),
                lastmod: lastmod(row.get(2)?, row.get(3)?),
                misses: row.get(4)?,
                dropped_at: row.get::<Option<i64>>(5)?.map(timestamp),
                retired: row.get(6)?,
                changed_at: row.get::<Option<i64>>(7)?.map(timestamp),
            })
        })
        .and_then(Iterator::collect)
        .map_err(engine)
}

pub(super) fn robots_of(
    conn: &Connection,
    authority: &str,
) -> Result<Option<(SourceId, Option<KeptRobots>)>, StoreError> {
    let found: Option<(i64, i64)> = conn
        .prepare_cached(
            "SELECT h.id, s.id FROM hosts h JOIN sources s
                 ON s.host_id = h.id /*pg: AND s.part = h.part */ AND s.role = 0
             WHERE /*pg: h.part = ?1 AND */ h.authority = ?2",
        )
        .and_then(|mut query| {
            let values = params![partition(authority), authority];
            query.query_row(values, |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .map_err(engine)?;
    let Some((host, source)) = found else { return Ok(None) };
    Ok(Some((SourceId(source), kept_robots(conn, HostId(host))?)))
}

/// Has any site anything on a host: a source that is not given up, a URL, which is
/// queued there once at least, or the place where it really lives?
pub(super) fn is_needed(conn: &Connection, host: HostId) -> Result<bool, StoreError> {
    conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM sources WHERE host_id = ?1 /*pg: AND part = (?1 & 255) */
                 AND role <> 0 AND state <> 2)
             OR EXISTS (SELECT 1 FROM crawls c /*lite*/ CROSS /*end*/ JOIN turns t
                 ON t.crawl_id = c.id AND t.host_id = ?1 /*pg: AND t.part = (?1 & 255) */)
             OR EXISTS (SELECT 1 FROM sources r JOIN site_hosts h ON h.site_id = r.site_id
                 AND h.host_id = r.host_id /*pg: AND h.part = r.part */
                 WHERE r.host_id = ?1 /*pg: AND r.part = (?1 & 255) */ AND r.role = 0)
             OR EXISTS (SELECT 1 FROM hosts o JOIN sites n ON n.origin = o.authority
                 WHERE o.id = ?1 /*pg: AND o.part = (?1 & 255) */ AND n.state <> 2)",
    )
    .and_then(|mut query| query.query_row([host.0], |row| row.get(0)))
    .map_err(engine)
}

/// Is there a row of a host?
pub(super) fn knows_host(conn: &Connection, authority: &str) -> Result<bool, StoreError> {
    conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM hosts WHERE /*pg: part = ?1 AND */ authority = ?2
             AND CAST(?1 AS BIGINT) = ?1)",
    )
    .and_then(|mut query| {
        query.query_row(params![partition(authority), authority], |row| row.get(0))
    })
    .map_err(engine)
}

pub(super) fn sites_at(
    conn: &Connection,
    host: HostId,
) -> Result<Vec<(SiteId, String)>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT n.id, n.name FROM hosts h JOIN sites n ON n.origin = h.authority
             WHERE h.id = ?1 /*pg: AND h.part = (?1 & 255) */ AND n.state = 0
             UNION SELECT n.id, n.name FROM sources s JOIN sites n ON n.id = s.site_id AND n.url = s.url
             WHERE s.host_id = ?1 /*pg: AND s.part = (?1 & 255) */ AND s.role = 1 AND n.state = 0",
        )
        .map_err(engine)?;
    query
        .query_map([host.0], |row| Ok((SiteId(row.get(0)?), row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(engine)
}

pub(super) fn origin_of(conn: &Connection, site: SiteId) -> Result<Option<Url>, StoreError> {
    let origin: Option<String> = conn
        .prepare_cached("SELECT origin FROM sites WHERE id = ?1")
        .and_then(|mut query| query.query_row([site.0], |row| row.get(0)).optional())
        .map_err(engine)?;
    Ok(origin.and_then(|text| Url::parse(&text).ok()))
}

pub(super) fn site(conn: &Connection, name: &str) -> Result<SiteView, StoreError> {
    sites_where(conn, "WHERE n.name = ?1", [name])?
        .pop()
        .ok_or_else(|| StoreError::NotFound(format!("no site is named {name:?}")))
}

/// How many URLs a site counts, where there is one of that name.
pub(super) fn counted_urls(conn: &Connection, name: &str) -> Result<i64, StoreError> {
    conn.prepare_cached("SELECT urls FROM sites WHERE name = ?1")
        .and_then(|mut query| query.query_row([name], |row| row.get(0)).optional())
        .map(Option::unwrap_or_default)
        .map_err(engine)
}

/// All sites by the bytes of their names, by which pages of them go on.
pub(super) fn sites(conn: &Connection) -> Result<Vec<SiteView>, StoreError> {
    let mut sites = sites_where(conn, "", ())?;
    // A database may have been made with another collation than ours.
    sites.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(sites)
}

fn sites_where(
    conn: &Connection,
    which: &str,
    args: impl Params,
) -> Result<Vec<SiteView>, StoreError> {
    conn.prepare_cached(&format!(
        "SELECT n.name, n.url, c.name, n.state, n.origin,
             count(s.id) FILTER (WHERE s.state <> 2),
             count(s.id) FILTER (WHERE s.state = 0 AND s.failures > 0),
             n.urls, max(s.last_poll_at),
             min(s.next_poll_at) FILTER (WHERE s.state = 0)
         FROM sites n JOIN crawls c ON c.id = n.crawl_id LEFT JOIN sources s ON s.site_id = n.id
         {which} GROUP BY n.id /*pg: , c.id */"
    ))
    .and_then(|mut query| query.query_map(args, read_site)?.collect())
    .map_err(engine)
}

pub(super) fn read_site(row: &Row<'_>) -> sql::Result<SiteView> {
    let state: i64 = row.get(3)?;
    Ok(SiteView {
        name: row.get(0)?,
        url: row.get(1)?,
        crawl: row.get(2)?,
        state: word(["active", "paused", "unregistered"], state),
        origin: row.get(4)?,
        sources: count(row, 5)?,
        failing: count(row, 6)?,
        urls: count(row, 7)?,
        last_poll_at: time(row, 8)?,
        next_poll_at: time(row, 9)?,
    })
}

pub(super) fn source(
    conn: &Connection,
    id: SourceId,
) -> Result<(SourceView, Vec<PollView>), StoreError> {
    let source = conn
        .prepare_cached(&format!("{SOURCE} WHERE s.id = ?1 /*pg: AND s.part = (?1 & 255) */"))
        .and_then(|mut query| query.query_row([id.0], read_source).optional())
        .map_err(engine)?
        .ok_or_else(|| no_source(id))?;
    let sql = format!(
        "{POLL} WHERE p.source_id = ?1 /*pg: AND p.part = (?1 & 255) */
         ORDER BY p.id DESC LIMIT ?2"
    );
    let mut query = conn.prepare_cached(&sql).map_err(engine)?;
    let polls = query
        .query_map(params![id.0, HISTORY], read_poll)
        .and_then(Iterator::collect)
        .map_err(engine)?;
    Ok((source, polls))
}

pub(super) fn read_source(row: &Row<'_>) -> sql::Result<SourceView> {
    let issues: Vec<Issue> = json(row.get(22)?);
    let severe = |issue: &&Issue| issue.severity != Severity::Warning;
    let state: i64 = row.get(7)?;
    Ok(SourceView {
        id: SourceId(row.get(0)?),
        site: row.get(1)?,
        url: row.get(2)?,
        role: role(row.get(3)?),
        kind: row.get::<Option<String>>(4)?.as_deref().and_then(DocumentKind::parse),
        named_by: row.get(5)?,
        parent: row.get::<Option<i64>>(6)?.map(SourceId),
        state: word(["active", "paused", "retired"], state),
        window: row.get::<i64>(8)? > 0,
        status: row.get(9)?,
        error: row.get(10)?,
        http_status: row.get(11)?,
        submitted_at: timestamp(row.get(12)?),
        last_poll_at: time(row, 13)?,
        last_success_at: time(row, 14)?,
        last_changed_at: time(row, 15)?,
        next_poll_at: time(row, 16)?.filter(|_| state == 0),
        why: match (state, row.get::<Option<i64>>(24)?, row.get::<String>(17)?) {
            (1, Some(super::sites::site_state::UNREGISTERED), why) => {
                format!("not polled, since its site has left the configuration; {why}")
            }
            (1, _, why) => format!("not polled while its site is paused; {why}"),
            (_, _, why) => why,
        },
        failures: row.get(18)?,
        failing: row.get(23)?,
        entries: count(row, 19)?,
        admitted: json(row.get(20)?),
        bytes: count(row, 21)?,
        trust: None,
        push: None,
        errors: issues.iter().filter(severe).map(|issue| issue.count).sum(),
        warnings: issues.iter().filter(|issue| !severe(issue)).map(|issue| issue.count).sum(),
        issues,
    })
}

const POLL: &str =
    "SELECT p.id, p.source_id, s.url, n.name, p.at, p.took_ms, p.result, p.http_status,
    p.wire_bytes, p.entries, p.counts, p.error
    FROM polls p JOIN sources s ON s.id = p.source_id /*pg: AND s.part = p.part */
    LEFT JOIN sites n ON n.id = s.site_id";

pub(super) fn polls_after(
    conn: &Connection,
    source: Option<SourceId>,
    after: i64,
    limit: u32,
) -> Result<(Vec<PollView>, Reach), StoreError> {
    let reach = log_order::reach(conn, Log::Polls)?;
    let sql = match source {
        // Those of one source are written one after the other, whoever does.
        Some(_) => format!(
            "{POLL} WHERE p.source_id = ?1 /*pg: AND p.part = (?1 & 255) */
                 AND p.id > ?2 ORDER BY p.id LIMIT ?4"
        ),
        None => format!(
            "{POLL} WHERE CAST(?1 AS BIGINT) IS NULL AND p.id > ?2 /*pg: AND p.id < ?3 */
                         ORDER BY p.id LIMIT ?4"
        ),
    };
    let limit = limit.clamp(1, PAGE);
    let mut query = conn.prepare_cached(&sql).map_err(engine)?;
    let polls: Vec<_> = query
        .query_map(params![source.map(|source| source.0), after, reach.end, limit], read_poll)
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let is_enough = source.is_some() || polls.len() >= limit as usize;
    Ok((polls, if is_enough { reach.enough() } else { reach }))
}

pub(super) fn last_polls(conn: &Connection, limit: u32) -> Result<Vec<PollView>, StoreError> {
    let mut query =
        conn.prepare_cached(&format!("{POLL} ORDER BY p.id DESC LIMIT ?1")).map_err(engine)?;
    query.query_map([limit.clamp(1, PAGE)], read_poll).and_then(Iterator::collect).map_err(engine)
}

fn read_poll(row: &Row<'_>) -> sql::Result<PollView> {
    Ok(PollView {
        id: row.get(0)?,
        source: SourceId(row.get(1)?),
        url: row.get(2)?,
        site: row.get(3)?,
        at: timestamp(row.get(4)?),
        took: Duration::from_millis(count(row, 5)?),
        result: row.get(6)?,
        http_status: row.get(7)?,
        wire_bytes: count(row, 8)?,
        entries: count(row, 9)?,
        counts: row
            .get::<Option<String>>(10)?
            .map_or_else(Counts::default, |c| Counts::of_kept(&c)),
        error: row.get(11)?,
    })
}

/// The changes of a poll, in order; `after` is how many came before.
pub(super) fn changes_of_poll(
    conn: &Connection,
    poll: i64,
    limit: u32,
    after: i64,
) -> Result<Page<ChangeView>, StoreError> {
    let generation: Option<(i64, Option<i64>)> = conn
        .prepare_cached("SELECT source_id, generation FROM polls WHERE id = ?1")
        .and_then(|mut query| {
            query.query_row([poll], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .map_err(engine)?;
    let Some((source, generation)) = generation else {
        return Err(StoreError::NotFound(format!("there is no poll {poll} (it may be too old)")));
    };
    let limit = limit.clamp(1, PAGE) as usize;
    let skipped = usize::try_from(after).unwrap_or(usize::MAX);
    let page = |mut items: Vec<ChangeView>| {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = more.then(|| after.saturating_add_unsigned(items.len() as u64));
        Page { items, next }
    };
    // What was let go of in parts has one generation for all of them.
    let read = generation.filter(|generation| *generation != OF_NO_READ);
    let Some(generation) = read else { return Ok(page(Vec::new())) };
    let of_robots = changes_of_robots(conn, SourceId(source), generation)?;
    if !of_robots.is_empty() {
        return Ok(page(of_robots.into_iter().skip(skipped).take(limit + 1).collect()));
    }
    let mut query = conn
        .prepare_cached(
            "SELECT at, data FROM changes WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */ AND generation = ?2 ORDER BY id",
        )
        .map_err(engine)?;
    let blobs: Vec<(i64, Vec<u8>)> = query
        .query_map([source, generation], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let events = blobs
        .iter()
        .flat_map(|(at, data)| changes::events(data).map(move |(kind, id)| (*at, kind, id)))
        .skip(skipped)
        .take(limit + 1);
    events.map(|(at, kind, id)| change(conn, at, kind, id)).collect::<Result<_, _>>().map(page)
}

fn change(
    conn: &Connection,
    at: i64,
    kind: ChangeKind,
    id: UrlId,
) -> Result<ChangeView, StoreError> {
    let url = url_reads::url_text(conn, id)?.unwrap_or_else(|| "(forgotten)".to_owned());
    Ok(ChangeView { kind: kind.as_str(), id: Some(id), url, at: timestamp(at), said: None })
}

pub(super) fn status(
    conn: &Connection,
    policy: &Policy,
    path: &Path,
    started_at: Option<Timestamp>,
    now: Timestamp,
    steady: Timestamp,
) -> Result<StatusView, StoreError> {
    let number = |sql: &str, values: &[&dyn ToSql]| -> Result<u64, StoreError> {
        conn.query_row(sql, values, |row| row.get::<i64>(0)).map(i64::unsigned_abs).map_err(engine)
    };
    let now_ms = now.as_millisecond();
    let mut query = conn
        .prepare_cached(
            "SELECT result, count(*) FROM polls WHERE at >= ?1 AND result <> 'let-go'
             GROUP BY result",
        )
        .map_err(engine)?;
    let polls_24h = query
        .query_map([now_ms - DAY_MS], |row| Ok((row.get(0)?, count(row, 1)?)))
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let (database, log) = match conn {
        Connection::Embedded(_) => (size(path), size(&log_of(path))),
        Connection::Server(_) => (number("SELECT pg_database_size(current_database())", &[])?, 0),
    };
    Ok(StatusView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now,
        started_at,
        sites: number("SELECT count(*) FROM sites WHERE state <> 2", &[])?,
        sources: number(
            "SELECT count(*) FROM sources WHERE state = 0 AND next_poll_at IS NOT NULL",
            &[],
        )?,
        sources_due: number(
            "SELECT count(*) FROM sources WHERE state = 0 AND next_poll_at <= ?1",
            &[&now_ms],
        )?,
        sources_failing: number(
            "SELECT count(*) FROM sources WHERE state = 0 AND failures > 0 AND next_poll_at IS NOT NULL",
            &[],
        )?,
        urls: number(
            "SELECT CAST((SELECT coalesce(sum(urls), 0) FROM sites) AS BIGINT)
                 + (SELECT count(*) FROM frontier_urls f
                    JOIN urls u ON u.id = f.url_id /*pg: AND u.part = f.part */
                    WHERE f.pushed = 1 AND u.site_id IS NULL)",
            &[],
        )?,
        store_bytes: database + log,
        wal_bytes: log,
        polls_paused: false,
        polls_24h,
        changes_24h: changes_since(conn, now_ms - DAY_MS)?,
        queues: queue_reads::queue(conn, policy, None, steady)?,
        nodes: match conn {
            Connection::Embedded(_) => Vec::new(),
            Connection::Server(_) => claim::read_nodes(conn)?,
        },
    })
}

fn changes_since(conn: &Connection, since: i64) -> Result<Counts, StoreError> {
    let sums = "SELECT
        coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'new' AS BIGINT)), 0), coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'changed' AS BIGINT)), 0),
        coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'touched' AS BIGINT)), 0), coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'regressed' AS BIGINT)), 0),
        coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'unchanged' AS BIGINT)), 0), coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'first_missing' AS BIGINT)), 0),
        coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'removed' AS BIGINT)), 0), coalesce(sum(CAST(counts /*pg: ::jsonb */ ->> 'rejected' AS BIGINT)), 0)
        FROM polls WHERE at >= ?1";
    conn.prepare_cached(sums)
        .and_then(|mut query| {
            query.query_row([since], |row| {
                Ok(Counts {
                    new: count(row, 0)?,
                    changed: count(row, 1)?,
                    touched: count(row, 2)?,
                    regressed: count(row, 3)?,
                    unchanged: count(row, 4)?,
                    missing: count(row, 5)?,
                    first_missing: count(row, 5)?,
                    removed: count(row, 6)?,
                    rejected: count(row, 7)?,
                })
            })
        })
        .map_err(engine)
}

fn no_source(id: SourceId) -> StoreError {
    StoreError::NotFound(format!("there is no source {id}"))
}

fn count(row: &Row<'_>, index: usize) -> sql::Result<u64> {
    row.get::<i64>(index).map(i64::unsigned_abs)
}

fn time(row: &Row<'_>, index: usize) -> sql::Result<Option<Timestamp>> {
    Ok(row.get::<Option<i64>>(index)?.map(timestamp))
}

fn word<const N: usize>(words: [&str; N], code: i64) -> String {
    let index = usize::try_from(code).unwrap_or(0);
    words.get(index).copied().unwrap_or("unknown").to_owned()
}

/// A column of JSON that we wrote ourselves; an older form reads as nothing.
fn json<T: Default + serde::de::DeserializeOwned>(text: Option<String>) -> T {
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}
