//! The change stream: every event of the log in the order of its commits.
//!
//! A cursor names a place between two events, and it stays good for as long as
//! what lies behind it is kept. Up to where the order is settled is for `order`. Who asks again with the last cursor misses nothing
//! and sees nothing twice. Events of URLs that were forgotten with their site are
//! passed over.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use super::sql::{Connection, Many, OptionalExtension, Row};
use jiff::Timestamp;

use super::changes::Told;
use super::log_order::{self, Log, Reach};
use super::packed::{Listing, SAID};
use super::rows::{at_precision, decode, read_page};
use super::views::Said;
use super::{StoreError, changes, engine, timestamp};
use crate::by_id::ById;
use crate::model::{ChangeKind, CrawlId, Lastmod, SourceId, UrlId, UrlKind};
use crate::parse::robots::Subject;

/// Events looked at in one call at most, whatever the filter lets through; a row of
/// another crawl is as one.
const MAX_SCANNED: usize = 50_000;
/// In `meta`: the highest row of `changes` that retention has dropped.
pub(super) const DROPPED: &str = "changes_dropped";

/// A place in the stream: behind so many events of a row of `changes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeCursor {
    row: i64,
    taken: usize,
}

/// Which events are wanted; all where nothing is said.
#[derive(Debug, Clone, Default)]
pub struct ChangeFilter {
    /// Of this crawl.
    pub crawl: Option<String>,
    /// Of URLs of this site.
    pub site: Option<String>,
    /// Of these kinds: words of [`ChangeEvent::kind`].
    pub kinds: Vec<&'static str>,
}

/// One event.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// The place behind it.
    pub cursor: ChangeCursor,
    /// What happened: a word of [`ChangeKind`], or of [`Subject`] where a
    /// robots.txt says something else.
    pub kind: &'static str,
    /// When it was committed.
    pub at: Timestamp,
    /// To which row; a robots.txt has none.
    pub id: Option<UrlId>,
    /// To which URL.
    pub url: String,
    /// What it is listed as.
    pub listed_as: Option<UrlKind>,
    /// Its crawl.
    pub crawl: String,
    /// Its site; none when it was pushed.
    pub site: Option<String>,
    /// The source that said so, while that is known.
    pub source: Option<(SourceId, String)>,
    /// The best lastmod known of it now.
    pub lastmod: Option<Lastmod>,
    /// What a robots.txt said and says.
    pub said: Option<Said>,
}

/// A part of the stream.
#[derive(Debug, Clone)]
pub struct ChangePage {
    /// In the order of commits.
    pub changes: Vec<ChangeEvent>,
    /// Where the next part begins.
    pub next: ChangeCursor,
    /// Is there more already?
    pub more: bool,
}

/// The text is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cursor must be one that an answer gave, or \"end\"")]
pub struct NoCursor;

impl ChangeFilter {
    fn wants(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    fn lets_through(&self, event: &ChangeEvent) -> bool {
        self.wants(event.kind) && (self.site.is_none() || event.site == self.site)
    }

    /// How many events are to be looked at for so many: of which it passes over any, as
    /// many as there may be.
    fn room(&self, events: usize) -> usize {
        let passes_all = self.crawl.is_none() && self.site.is_none() && self.kinds.is_empty();
        if passes_all || events == 0 { events } else { MAX_SCANNED }
    }
}

impl ChangeCursor {
    /// Before the first event that there can be; never given out.
    const START: Self = Self { row: 0, taken: 0 };
}

impl fmt::Display for ChangeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{:x}.{:x}", self.row, self.taken)
    }
}

impl FromStr for ChangeCursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (row, taken) =
            text.strip_prefix('c').and_then(|rest| rest.split_once('.')).ok_or(NoCursor)?;
        let row = i64::from_str_radix(row, 16).ok().filter(|row| *row >= 0).ok_or(NoCursor)?;
        let taken = usize::from_str_radix(taken, 16).map_err(|_| NoCursor)?;
        Ok(Self { row, taken })
    }
}

/// Rows that a server is asked for at once, at most.
const FAR_ROWS: i64 = 256;
/// Events whose URLs are read by one statement.
const AT_ONCE: usize = 1_000;

/// Reads on from a cursor; `None` is before all that is kept. Says how far it
/// could have been read, too.
pub(super) fn after(
    conn: &Connection,
    cursor: Option<ChangeCursor>,
    limit: usize,
    filter: &ChangeFilter,
) -> Result<(ChangePage, Reach), StoreError> {
    let crawl = filter.crawl.as_deref().map(|name| crawl_of(conn, name)).transpose()?;
    filter.site.as_deref().map_or(Ok(()), |name| knows_site(conn, name))?;
    let from = cursor.unwrap_or(ChangeCursor::START);
    // What is committed from here on lies behind this place.
    let reach = log_order::reach(conn, Log::Changes)?;
    let end = end_of(conn, reach)?;
    let mut page = ChangePage { changes: Vec::new(), next: from, more: false };
    let end_of_part = part_of(conn, from, reach, filter.room(limit).saturating_add(from.taken))?;
    let mut scanned = 0;
    let mut query = conn
        .prepare_cached(
            "SELECT c.id, c.at, c.crawl_id, n.name, s.id, s.url, c.data FROM changes c
             JOIN crawls n ON n.id = c.crawl_id LEFT JOIN sources s ON s.id = c.source_id
                 /*pg: AND s.part = c.part */
             WHERE c.id >= ?2 /*pg: AND c.id < ?1 */ ORDER BY c.id",
        )
        .map_err(engine)?;
    let mut rows = query.query([end_of_part.unwrap_or(reach.end), from.row]).map_err(engine)?;
    'rows: while let Some(row) = rows.next().map_err(engine)? {
        let id: i64 = row.get(0).map_err(engine)?;
        let of_crawl = CrawlId(row.get(2).map_err(engine)?);
        if crawl.is_none_or(|crawl| crawl == of_crawl) {
            let data: Vec<u8> = row.get(6).map_err(engine)?;
            let said = Commit::read(&row)?;
            let skip = if id == from.row { from.taken } else { 0 };
            let events = changes::all(&data).count();
            let mut left = changes::all(&data).enumerate().skip(skip);
            loop {
                let room = filter.room(limit - page.changes.len()).min(MAX_SCANNED - scanned);
                let part: Vec<_> = left.by_ref().take(room.clamp(1, AT_ONCE)).collect();
                if part.is_empty() {
                    break;
                }
                let wanted = part.iter().filter_map(|(_, told)| match told {
                    Told::Url(kind, url) if room > 0 && filter.wants(kind.as_str()) => Some(*url),
                    _ => None,
                });
                let pages = read_pages(conn, &wanted.collect::<Vec<_>>())?;
                for (index, told) in part {
                    if page.changes.len() >= limit || scanned >= MAX_SCANNED {
                        page.more = true;
                        break 'rows;
                    }
                    scanned += 1;
                    // Behind its last event the cursor outlives the row.
                    page.next = if index + 1 == events {
                        ChangeCursor { row: id + 1, taken: 0 }
                    } else {
                        ChangeCursor { row: id, taken: index + 1 }
                    };
                    let event = match told {
                        Told::Url(kind, url) => {
                            pages.get(&url).map(|page| said.of_url(kind, url, page))
                        }
                        Told::Robots(row) => event_of_robots(conn, &said, row)?,
                    };
                    // The place in the stream is the same of what is passed over.
                    let event = event.map(|event| ChangeEvent { cursor: page.next, ..event });
                    page.changes.extend(event.filter(|event| filter.lets_through(event)));
                }
            }
        } else {
            if scanned >= MAX_SCANNED {
                page.more = true;
                break;
            }
            // All of it is passed over, and costs a row.
            scanned += 1;
        }
        // Where a row ends the next one begins, though none of it was given.
        page.next = ChangeCursor { row: id + 1, taken: 0 };
    }
    page.more |= end_of_part.is_some();
    // Asked last, so that nothing was dropped meanwhile.
    match cursor {
        Some(from) => is_kept(conn, from, reach)?,
        // There is nothing, or nothing any more.
        None if page.next == ChangeCursor::START => page.next = end,
        None => {}
    }
    let reach = if page.more { reach.enough() } else { reach };
    Ok((page, reach))
}

/// The place behind all that there is.
pub(super) fn end(conn: &Connection) -> Result<(ChangeCursor, Reach), StoreError> {
    let reach = log_order::reach(conn, Log::Changes)?;
    Ok((end_of(conn, reach)?, reach))
}

/// No further than behind the last row: a server that crashed, or that a copy of
/// this store was restored into, counts on from its rows, and not from more.
fn end_of(conn: &Connection, reach: Reach) -> Result<ChangeCursor, StoreError> {
    let behind = ChangeCursor { row: reach.newest + 1, taken: 0 };
    let end = ChangeCursor { row: reach.end, taken: 0 };
    Ok(behind.max(end_of_dropped(conn)?).min(end))
}

/// Before which row to stop, of a server: it hands over whole all rows that a statement
/// names, some of them long. `None` where all there are come to no more than `events`.
fn part_of(
    conn: &Connection,
    from: ChangeCursor,
    reach: Reach,
    events: usize,
) -> Result<Option<i64>, StoreError> {
    if conn.embedded().is_some() {
        return Ok(None);
    }
    let mut query = conn
        .prepare_cached(
            "SELECT id, events FROM changes WHERE id >= ?2 AND id < ?1 ORDER BY id LIMIT ?3",
        )
        .map_err(engine)?;
    let rows: Vec<(i64, usize)> = query
        .query_map([reach.end, from.row, FAR_ROWS], |row| {
            let events: i64 = row.get(1)?;
            Ok((row.get(0)?, usize::try_from(events).unwrap_or(0)))
        })
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let mut before = 0_usize;
    for (row, count) in &rows {
        if before >= events {
            return Ok(Some(*row));
        }
        before = before.saturating_add(*count);
    }
    let is_cut = i64::try_from(rows.len()).is_ok_and(|rows| rows >= FAR_ROWS);
    Ok(rows.last().filter(|_| is_cut).map(|(row, _)| row + 1))
}

/// What all events of a row of `changes` have in common.
struct Commit {
    at: Timestamp,
    crawl: String,
    source: Option<(SourceId, String)>,
}

impl Commit {
    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        let source: Option<i64> = row.get(4).map_err(engine)?;
        let source_url: Option<String> = row.get(5).map_err(engine)?;
        Ok(Self {
            at: timestamp(row.get(1).map_err(engine)?),
            crawl: row.get(3).map_err(engine)?,
            source: source.map(SourceId).zip(source_url),
        })
    }

    fn of_url(&self, kind: ChangeKind, id: UrlId, page: &Page) -> ChangeEvent {
        ChangeEvent {
            cursor: ChangeCursor::START,
            kind: kind.as_str(),
            at: self.at,
            id: Some(id),
            url: page.url.clone(),
            listed_as: Some(page.listed_as),
            crawl: self.crawl.clone(),
            site: page.site.clone(),
            source: self.source.clone(),
            lastmod: page.lastmod,
            said: None,
        }
    }
}

/// What an event tells of its URL, as of now.
struct Page {
    url: String,
    listed_as: UrlKind,
    site: Option<String>,
    lastmod: Option<Lastmod>,
}

static PAGES: LazyLock<Many> = LazyLock::new(|| {
    let head = format!(
        "SELECT u.id, h.authority, u.path, u.lastmod_s, {}, s.name
         FROM urls u /*lite*/ CROSS /*end*/ JOIN hosts h
             ON h.id = u.host_id /*pg: AND h.part = u.part */
         LEFT JOIN sites s ON s.id = u.site_id
         WHERE",
        *SAID
    );
    Many::of_ids(&head, "u.id")
});

/// Those of the URLs that are there still.
fn read_pages(conn: &Connection, urls: &[UrlId]) -> Result<ById<UrlId, Page>, StoreError> {
    let mut pages = ById::default();
    let keep = |row: &Row<'_>| {
        let said = Listing::unpack(row.get(4)?);
        let page = Page {
            url: read_page(row, 1)?,
            listed_as: said.kind,
            site: row.get(5)?,
            lastmod: at_precision(row.get(3)?, said.precision),
        };
        pages.insert(UrlId(row.get(0)?), page);
        Ok(())
    };
    PAGES.query(conn, urls, |id, row| row.bind(id.0), keep).map_err(engine)?;
    Ok(pages)
}

fn event_of_robots(
    conn: &Connection,
    commit: &Commit,
    said: i64,
) -> Result<Option<ChangeEvent>, StoreError> {
    conn.prepare_cached(
        "SELECT c.subject, s.url, n.name, s.id, c.was, c.now
         FROM robots_changes c JOIN sources s ON s.id = c.source_id /*pg: AND s.part = c.part */
         LEFT JOIN sites n ON n.id = s.site_id WHERE c.id = ?1",
    )
    .and_then(|mut query| {
        query
            .query_row([said], |robots| {
                let url: String = robots.get(1)?;
                Ok(ChangeEvent {
                    cursor: ChangeCursor::START,
                    kind: decode(&Subject::ALL, robots.get(0)?).unwrap_or(Subject::Rules).as_str(),
                    at: commit.at,
                    id: None,
                    url: url.clone(),
                    listed_as: None,
                    crawl: commit.crawl.clone(),
                    site: robots.get(2)?,
                    source: Some((SourceId(robots.get(3)?), url)),
                    lastmod: None,
                    said: Some(Said { was: robots.get(4)?, now: robots.get(5)? }),
                })
            })
            .optional()
    })
    .map_err(engine)
}

/// Is all behind the cursor still there, and is the cursor one of this store?
fn is_kept(conn: &Connection, cursor: ChangeCursor, reach: Reach) -> Result<(), StoreError> {
    if cursor < end_of_dropped(conn)? {
        let text = "changes after this cursor were dropped (store.keep_changes): begin anew without `after`";
        return Err(StoreError::Gone(text.to_owned()));
    }
    if cursor.row > reach.top {
        let text = "this cursor is none of this store: begin anew without `after`";
        return Err(StoreError::Gone(text.to_owned()));
    }
    Ok(())
}

fn end_of_dropped(conn: &Connection) -> Result<ChangeCursor, StoreError> {
    let dropped: Option<i64> = conn
        .prepare_cached("SELECT CAST(value AS BIGINT) FROM meta WHERE key = ?1")
        .and_then(|mut query| query.query_row([DROPPED], |row| row.get(0)).optional())
        .map_err(engine)?;
    Ok(dropped.map_or(ChangeCursor::START, |row| ChangeCursor { row: row + 1, taken: 0 }))
}

fn crawl_of(conn: &Connection, name: &str) -> Result<CrawlId, StoreError> {
    let found: Option<i64> = conn
        .prepare_cached("SELECT id FROM crawls WHERE name = ?1")
        .and_then(|mut query| query.query_row([name], |row| row.get(0)).optional())
        .map_err(engine)?;
    found.map(CrawlId).ok_or_else(|| StoreError::NotFound(format!("there is no crawl {name:?}")))
}

/// One that left the configuration has its row until it is forgotten.
fn knows_site(conn: &Connection, name: &str) -> Result<(), StoreError> {
    let found: Option<i64> = conn
        .prepare_cached("SELECT id FROM sites WHERE name = ?1")
        .and_then(|mut query| query.query_row([name], |row| row.get(0)).optional())
        .map_err(engine)?;
    let unknown = || StoreError::NotFound(format!("there is no site {name:?}"));
    found.map(drop).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_one() {
        for cursor in [ChangeCursor::START, ChangeCursor { row: i64::MAX, taken: 4_711 }] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "c", "c1", "c-1.0", "r1", "c1.x", "1.1", "c1.1.1", "end"] {
            assert_eq!(text.parse::<ChangeCursor>(), Err(NoCursor), "{text}");
        }
    }
}
