//! What the status page asks beyond what the API asks: sites and sources a
//! part at a time, what fails, whom to believe, what happened to one URL.
//!
//! Every answer is bounded in rows, whatever the store holds, and none walks
//! the URLs. What the polls found over time is in `tides`.

use super::sql::{self, Connection, OptionalExtension, Row, params};
use jiff::Timestamp;
use url::Url;

use super::hosts::partition;
use super::learn::{self, Scope};
use super::views::{ChangeView, Page, SiteView};
use super::{Store, StoreError, changes, engine, poll_reads, sources, timestamp};
use crate::model::{Role, SourceId, UrlId};
use crate::recrawl::signal::Signal;
use crate::recrawl::trust::{self, Record, Trust};
use crate::url::authority;

/// Most rows of one part.
const PART: u32 = 200;
/// Hosts whose record is read for one answer.
const JUDGED: u32 = 20_000;
/// Packed changes looked through for the history of one URL, of each source.
const LOOKED_THROUGH: u32 = 200;
/// Sources looked at for the history of one URL.
const WITNESSES: usize = 4;

/// One source in a list.
#[derive(Debug, Clone)]
pub struct SourceLine {
    /// The row.
    pub id: SourceId,
    /// Its site.
    pub site: Option<String>,
    /// Where it is.
    pub url: String,
    /// What it is asked for.
    pub role: Role,
    /// Is it retired?
    pub is_retired: bool,
    /// `pending`, `success`, `has-errors` or `could-not-fetch`.
    pub status: String,
    /// What went wrong last, or why it was retired.
    pub error: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// How it fails: the result of those polls, or `robots-unreadable`.
    pub failing: Option<String>,
    /// Since when.
    pub failing_since: Option<Timestamp>,
    /// When it was last polled.
    pub last_poll_at: Option<Timestamp>,
    /// When it is polled next.
    pub next_poll_at: Option<Timestamp>,
    /// Entries of the last read.
    pub entries: u64,
}

/// How far the lastmods of a host are believed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// What looks said of it.
    pub record: Record,
    /// Does a newer lastmod pull a URL forward?
    pub is_believed: bool,
}

/// Hosts whose lastmods were compared with what fetchers saw.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// Those with the most looks first, at most so many as were asked for.
    pub hosts: Vec<(String, Verdict)>,
    /// How many are believed.
    pub believed: u64,
    /// How many are not.
    pub doubted: u64,
    /// Are there more hosts than were looked at?
    pub is_cut: bool,
}

impl Store {
    /// Sites by name, so many at most: those after a name, or from it on.
    pub async fn site_lines(
        &self,
        from: String,
        is_after: bool,
        most: u32,
    ) -> Result<(Vec<SiteView>, Option<String>), StoreError> {
        self.read(move |conn| {
            let mut lines = sites_from(conn, &from, is_after, most.saturating_add(1))?;
            let more = lines.len() > most as usize;
            lines.truncate(most as usize);
            let next = lines.last().filter(|_| more).map(|site| site.name.clone());
            Ok((lines, next))
        })
        .await
    }

    /// Sources of a site after a row, 200 at most, retired ones too.
    pub async fn sources_of_site(
        &self,
        site: String,
        after: i64,
    ) -> Result<Page<SourceLine>, StoreError> {
        self.read(move |conn| {
            let sql = format!(
                "{LINE} WHERE s.site_id = (SELECT id FROM sites WHERE name = ?1) AND s.id > ?2
                 ORDER BY s.id LIMIT ?3"
            );
            lines(conn, &sql, params![site, after, PART + 1])
        })
        .await
    }

    /// Sources that fail now, after a row, 200 at most.
    pub async fn failing_sources(&self, after: i64) -> Result<Page<SourceLine>, StoreError> {
        self.read(move |conn| {
            let sql = format!(
                "{LINE} WHERE s.state = 0 AND s.failures > 0 AND s.id > ?1 ORDER BY s.id LIMIT ?2"
            );
            lines(conn, &sql, params![after, PART + 1])
        })
        .await
    }

    /// Sources at exactly this URL, a few.
    pub async fn sources_at(&self, url: Url) -> Result<Vec<SourceLine>, StoreError> {
        self.read(move |conn| {
            let sql = format!(
                "{LINE} WHERE s.host_id = (SELECT id FROM hosts
                     WHERE /*pg: part = CAST(?3 AS BIGINT) AND */ authority = ?1) AND s.url = ?2
                 AND s.role <> 0 AND CAST(?3 AS BIGINT) = ?3 LIMIT 5"
            );
            let of = authority(&url);
            Ok(lines(conn, &sql, params![of, url.as_str(), partition(&of)])?.items)
        })
        .await
    }

    /// Hosts whose lastmods were compared, the `most` best known of 20,000.
    pub async fn judged_hosts(&self, most: usize) -> Result<Judged, StoreError> {
        self.read(move |conn| judged(conn, most)).await
    }

    /// What happened to one URL lately, newest first: as far as the newest
    /// changes of these sources tell.
    pub async fn changes_of_url(
        &self,
        url: UrlId,
        sources: Vec<SourceId>,
    ) -> Result<Vec<ChangeView>, StoreError> {
        self.read(move |conn| changes_of_url(conn, url, &sources)).await
    }
}

/// Some sites by name, after one or from it on, without a look at the others.
const SITES: &str = "SELECT n.name, n.url, c.name, n.state, n.origin,
        count(s.id) FILTER (WHERE s.state <> 2),
        count(s.id) FILTER (WHERE s.state = 0 AND s.failures > 0),
        n.urls, max(s.last_poll_at),
        min(s.next_poll_at) FILTER (WHERE s.state = 0)
    FROM (SELECT * FROM sites WHERE name >= ?1 AND (?2 = 0 OR name <> ?1)
          ORDER BY name LIMIT ?3) n
    JOIN crawls c ON c.id = n.crawl_id LEFT JOIN sources s ON s.site_id = n.id
    GROUP BY n.id /*pg: , n.name, n.url, n.state, n.origin, n.urls, c.id */
    ORDER BY n.name";

fn sites_from(
    conn: &Connection,
    name: &str,
    is_after: bool,
    limit: u32,
) -> Result<Vec<SiteView>, StoreError> {
    let mut query = conn.prepare_cached(SITES).map_err(engine)?;
    query
        .query_map(params![name, is_after, limit], poll_reads::read_site)
        .and_then(Iterator::collect)
        .map_err(engine)
}

const LINE: &str = "SELECT s.id, n.name, s.url, s.role, s.state = 2, s.status,
    coalesce(s.error, s.retired_why), s.failures, s.failing, s.failing_since, s.last_poll_at,
    CASE s.state WHEN 0 THEN s.next_poll_at END, s.entries
    FROM sources s LEFT JOIN sites n ON n.id = s.site_id";

fn lines(
    conn: &Connection,
    sql: &str,
    params: &[&dyn sql::ToSql],
) -> Result<Page<SourceLine>, StoreError> {
    let at = |row: &Row<'_>, index| {
        row.get::<Option<i64>>(index).map(|ms: Option<i64>| ms.map(timestamp))
    };
    let mut query = conn.prepare_cached(sql).map_err(engine)?;
    let mut items: Vec<SourceLine> = query
        .query_map(params, |row| {
            Ok(SourceLine {
                id: SourceId(row.get(0)?),
                site: row.get(1)?,
                url: row.get(2)?,
                role: sources::role(row.get(3)?),
                is_retired: row.get(4)?,
                status: row.get(5)?,
                error: row.get(6)?,
                failures: row.get(7)?,
                failing: row.get(8)?,
                failing_since: at(row, 9)?,
                last_poll_at: at(row, 10)?,
                next_poll_at: at(row, 11)?,
                entries: row.get::<i64>(12)?.unsigned_abs(),
            })
        })
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let more = items.len() > PART as usize;
    items.truncate(PART as usize);
    let next = items.last().filter(|_| more).map(|line| line.id.0);
    Ok(Page { items, next })
}

fn judged(conn: &Connection, most: usize) -> Result<Judged, StoreError> {
    let all = learn::read(conn, Scope::All)?;
    let mut query = conn
        .prepare_cached("SELECT id, trust FROM learned WHERE scope = 1 ORDER BY id LIMIT ?1")
        .map_err(engine)?;
    let rows: Vec<(i64, Vec<u8>)> = query
        .query_map([JUDGED + 1], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let mut judged = Judged { is_cut: rows.len() > JUDGED as usize, ..Judged::default() };
    let mut known = Vec::new();
    for (id, packed) in rows.into_iter().take(JUDGED as usize) {
        let Some(host) = Trust::unpack(&packed) else { continue };
        let weights = Trust::weights(&host, &host, &all.trust);
        let record = host.record(Signal::Lastmod, weights[Signal::Lastmod]);
        if record.looks < 0.5 {
            continue;
        }
        let is_believed = trust::pulls(&weights)[Signal::Lastmod] > 0.0;
        *(if is_believed { &mut judged.believed } else { &mut judged.doubted }) += 1;
        known.push((id, Verdict { record, is_believed }));
    }
    known.sort_by(|a, b| b.1.record.looks.total_cmp(&a.1.record.looks).then(a.0.cmp(&b.0)));
    known.truncate(most);
    let mut name = conn
        .prepare_cached(
            "SELECT authority FROM hosts WHERE id = ?1
             /*pg: AND part = (?1 & 255) */",
        )
        .map_err(engine)?;
    for (id, verdict) in known {
        let host = name.query_row([id], |row| row.get(0)).optional().map_err(engine)?;
        judged.hosts.extend(host.map(|host| (host, verdict)));
    }
    Ok(judged)
}

fn changes_of_url(
    conn: &Connection,
    url: UrlId,
    sources: &[SourceId],
) -> Result<Vec<ChangeView>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT at, data FROM changes WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */ ORDER BY generation DESC LIMIT ?2",
        )
        .map_err(engine)?;
    let mut found = Vec::new();
    for source in sources.iter().take(WITNESSES) {
        let mut rows = query.query(params![source.0, LOOKED_THROUGH]).map_err(engine)?;
        while let Some(row) = rows.next().map_err(engine)? {
            let at = timestamp(row.get(0).map_err(engine)?);
            let data = row.get_ref(1).and_then(|blob| Ok(blob.as_blob()?)).map_err(engine)?;
            found.extend(changes::events(data).filter(|(_, id)| *id == url).map(|(kind, id)| {
                let (kind, url) = (kind.as_str(), String::new());
                ChangeView { kind, id: Some(id), url, at, said: None }
            }));
        }
    }
    found.sort_by_key(|change| std::cmp::Reverse(change.at));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_sites_are_read_without_a_walk_over_all_sites_or_sources() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        let mut query = conn.prepare(&format!("EXPLAIN QUERY PLAN {SITES}")).unwrap();
        let lines = query.query_map([None::<i64>; 3], |row| row.get(3)).unwrap();
        let plan: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(plan.iter().any(|line| line.contains("SEARCH sites USING INDEX")), "{plan:?}");
        for table in ["sites", "s", "sources"] {
            let walk = format!("SCAN {table}");
            let walks = |line: &String| *line == walk || line.starts_with(&format!("{walk} "));
            assert!(!plan.iter().any(walks), "{plan:?}");
        }
    }
}
