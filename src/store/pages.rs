//! What the status page asks beyond what the API asks: sites and sources a
//! part at a time, what fails, whom to believe, and the tides of the last week.
//!
//! Every read is bounded in rows, whatever the store holds, and none walks the
//! URLs. The tides are kept by whoever shows them and read on in parts, so that
//! a poll is looked at once and not at each look at the page.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use url::Url;

use super::learn::{self, Scope};
use super::views::{ChangeView, Page, SiteView};
use super::{Store, StoreError, changes, engine, poll_reads, sources, timestamp};
use crate::model::{Role, SourceId, UrlId};
use crate::recrawl::signal::Signal;
use crate::recrawl::trust::{self, Record, Trust};
use crate::url::authority;

/// Most rows of one part.
const PART: u32 = 200;
/// Polls read at once for the tides.
const POLLS: i64 = 50_000;
/// Hosts whose record is read for one answer.
const JUDGED: u32 = 20_000;
/// Packed changes looked through for the history of one URL, of each source.
const LOOKED_THROUGH: u32 = 200;
/// Sources looked at for the history of one URL.
const WITNESSES: usize = 4;
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
    /// How it fails: the result of those polls.
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
    /// Reads on: newer polls than are known first, then older ones, 50,000 at
    /// most.
    pub async fn tides(&self, known: &Tides) -> Result<TidePart, StoreError> {
        let (seen, is_whole) = (known.seen, known.is_whole);
        let since = first_hour(self.now());
        self.read(move |conn| tide_part(conn, seen, is_whole, since)).await
    }

    /// Sites by name, 200 at most: those after a name, or from it on.
    pub async fn site_lines(
        &self,
        from: String,
        is_after: bool,
    ) -> Result<(Vec<SiteView>, Option<String>), StoreError> {
        self.read(move |conn| {
            let mut lines = poll_reads::sites_from(conn, &from, is_after, PART + 1)?;
            let more = lines.len() > PART as usize;
            lines.truncate(PART as usize);
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
                "{LINE} WHERE s.host_id = (SELECT id FROM hosts WHERE authority = ?1) AND s.url = ?2
                 AND s.role <> 0 LIMIT 5"
            );
            Ok(lines(conn, &sql, params![authority(&url), url.as_str()])?.items)
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

fn tide_part(
    conn: &Connection,
    seen: Option<(i64, i64)>,
    is_whole: bool,
    since: i64,
) -> Result<TidePart, StoreError> {
    let (oldest, newest): (Option<i64>, Option<i64>) = conn
        .prepare_cached("SELECT (SELECT min(id) FROM polls), (SELECT max(id) FROM polls)")
        .and_then(|mut query| query.query_row([], |row| Ok((row.get(0)?, row.get(1)?))))
        .map_err(engine)?;
    let (oldest, newest) = (oldest.unwrap_or(1) - 1, newest.unwrap_or(0));
    let (first, last) = seen.unwrap_or((newest, newest));
    if last < newest {
        let to = newest.min(last + POLLS);
        let hours = sums(conn, last, to, since)?;
        return Ok(TidePart { hours, seen: (first, to), is_whole, is_up_to_date: to == newest });
    }
    let from = if is_whole { first } else { oldest.max(first - POLLS).min(first) };
    let hours = sums(conn, from, first, since)?;
    let is_past = from <= oldest || is_before(conn, from, since)?;
    Ok(TidePart { hours, seen: (from, last), is_whole: is_past, is_up_to_date: true })
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
    // Only a poll that read a document has counts worth the parsing.
    let mut query = conn
        .prepare_cached(
            "SELECT at / 3600000 AS hour, count(*),
                 sum(result NOT IN ('changed', 'unchanged', 'not-modified')),
                 sum(counts ->> 'new') FILTER (WHERE result IN ('changed', 'incomplete')),
                 sum((counts ->> 'changed') + (counts ->> 'touched'))
                     FILTER (WHERE result IN ('changed', 'incomplete')),
                 sum(counts ->> 'removed') FILTER (WHERE result IN ('changed', 'incomplete'))
             FROM polls WHERE id > ?1 AND id <= ?2 AND at >= ?3 GROUP BY hour",
        )
        .map_err(engine)?;
    let sum = |row: &Row<'_>, index| {
        row.get::<_, Option<i64>>(index).map(|sum| sum.unwrap_or(0).unsigned_abs())
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

const LINE: &str = "SELECT s.id, n.name, s.url, s.role, s.state = 2, s.status,
    coalesce(s.error, s.retired_why), s.failures, s.failing, s.failing_since, s.last_poll_at,
    CASE s.state WHEN 0 THEN s.next_poll_at END, s.entries
    FROM sources s LEFT JOIN sites n ON n.id = s.site_id";

fn lines(
    conn: &Connection,
    sql: &str,
    params: &[&dyn rusqlite::ToSql],
) -> Result<Page<SourceLine>, StoreError> {
    let at = |row: &Row<'_>, index| {
        row.get::<_, Option<i64>>(index).map(|ms: Option<i64>| ms.map(timestamp))
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
                entries: row.get::<_, i64>(12)?.unsigned_abs(),
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
    let mut name =
        conn.prepare_cached("SELECT authority FROM hosts WHERE id = ?1").map_err(engine)?;
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
            "SELECT at, data FROM changes WHERE source_id = ?1 ORDER BY generation DESC LIMIT ?2",
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
mod tests;
