//! Reading a host's list in the queue: what is due of it in lease order, and when
//! the next of it is.
//!
//! One walk a band, down to its first row that is not due, so that a look costs
//! what is due and the bands there are, whatever else is queued. A server is
//! asked for pages, and once which bands have anything due at all.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

use super::sql::{self, Connection, Row, params};

use super::packed::{site_of, valued_of};
use super::paused_heads::{Head, PausedHeads, Spot};
use super::state::State;
use super::turns::Place;
use super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::model::{CrawlId, HostId, SiteId, UrlId};
use crate::queue::Candidate;
use crate::queue::window::Extent;

/// A host's list below a band, as it is listed; of a server, a page of it.
pub(super) const AS_LISTED: &str = "SELECT band, due_s, url_id,
        /*lite*/ owner /*end*/
        /*pg: (coalesce(site_id, 0) << 1) | valued */ FROM queue
    WHERE crawl_id = ?1 AND host_id = ?2 /*pg: AND part = (?2 & 255) */
        AND /*lite*/ band < ?6 /*end*/
        /*pg: band <= ?6 AND (band < ?6 OR (due_s, url_id) > (?3, ?4)) */
    ORDER BY band DESC, due_s, url_id /*pg: LIMIT ?5 */";

/// The same of one band behind a row; for the embedded engine.
pub(super) static REST_AS_LISTED: LazyLock<String> = LazyLock::new(|| {
    let below = "AND /*lite*/ band < ?6 /*end*/";
    AS_LISTED.replace(below, "AND band = ?6 AND (due_s, url_id) > (?3, ?4)")
});

/// The first row of each band below one, the highest first, where it is due by then:
/// for a server, a few probes of the index each.
pub(super) const FIRST_OF_BANDS: &str = "
    SELECT first.band, first.due_s, first.url_id, first.owner
    FROM (WITH RECURSIVE found (band) AS (
              SELECT max(q.band) FROM queue q
              WHERE q.crawl_id = ?1 AND q.host_id = ?2 AND q.part = (?2 & 255) AND q.band < ?3
              UNION ALL
              SELECT (SELECT max(q.band) FROM queue q
                      WHERE q.crawl_id = ?1 AND q.host_id = ?2 AND q.part = (?2 & 255)
                          AND q.band < found.band)
              FROM found WHERE found.band IS NOT NULL)
          SELECT band FROM found WHERE band IS NOT NULL) AS bands
    CROSS JOIN LATERAL
        (SELECT q.band, q.due_s, q.url_id, (coalesce(q.site_id, 0) << 1) | q.valued AS owner
         FROM queue q
         WHERE q.crawl_id = ?1 AND q.host_id = ?2 AND q.part = (?2 & 255)
             AND q.band = bands.band AND q.due_s <= ?4
         ORDER BY q.due_s, q.url_id LIMIT 1) AS first
    ORDER BY first.band DESC";

/// Rows that a server is asked for at once, at most; the embedded engine is
/// stepped through, and left where that is enough.
pub(super) const PAGE: i64 = 256;

/// A walk of a host's list.
pub(super) struct Walk<'a> {
    /// Gives band, due time, row, site and what else is wanted of a row.
    pub(super) statement: &'a str,
    /// Where it begins, if that is behind a row: band, due time and row; and the
    /// statement by which the embedded engine reads the rest of that band.
    pub(super) behind: Option<(i64, (i64, i64), &'a str)>,
}

impl<'a> Walk<'a> {
    /// Goes on behind a row (band, due time and URL), where there is one.
    pub(super) fn on_from(
        last: Option<(u8, i64, UrlId)>,
        statement: &'a str,
        rest: &'a str,
    ) -> Self {
        let behind = last.map(|(band, due_s, url)| (band.into(), (due_s, url.0), rest));
        Self { statement, behind }
    }
}

/// Due time and row behind all of a band.
pub(super) const BEHIND_ALL: (i64, i64) = (i64::MAX, i64::MAX);

impl State {
    /// The head of a host's list in lease order, as the window wants it: what
    /// is due at `now_s`, whether that is all of it, and when the next is due.
    /// What the paused sites leave out is passed over. All stand as listed; those
    /// whose value is to be taken anew claim to be worth it.
    pub(super) fn due_of_host(
        &self,
        crawl: CrawlId,
        host: HostId,
        now_s: i64,
        limit: usize,
    ) -> Result<Due<Candidate>, StoreError> {
        let walk = Walk { statement: AS_LISTED, behind: None };
        self.walk_due(walk, (crawl, host), now_s, limit, |row| {
            Ok(read_place(row, crawl, host)?.candidate())
        })
    }

    /// Walks what is due of a host in lease order; `read` takes what is wanted of a
    /// row.
    pub(super) fn walk_due<T>(
        &self,
        walk: Walk<'_>,
        list: (CrawlId, HostId),
        now_s: i64,
        limit: usize,
        read: impl FnMut(&Row<'_>) -> sql::Result<T>,
    ) -> Result<Due<T>, StoreError> {
        let heads = (!self.paused_sites.is_empty()).then_some(&self.paused_heads);
        walk_due((&self.conn, &self.paused_sites, heads), walk, list, now_s, limit, read)
    }

    /// The first row of each band of a host below `band`, the highest first, where
    /// it is due by then, with its site. For a server.
    pub(super) fn firsts_below(
        &self,
        crawl: CrawlId,
        host: HostId,
        band: i64,
        due_s: i64,
    ) -> Result<Vec<(Place, Option<i64>)>, StoreError> {
        firsts_below(&self.conn, (crawl, host), band, due_s)
    }

    /// Is a site neither paused nor left out by `only` (empty: all are in)?
    pub(super) fn may_lease(&self, site: Option<i64>, only: &[SiteId]) -> bool {
        let site = site.map(SiteId);
        let asked = only.is_empty() || site.is_some_and(|site| only.contains(&site));
        asked && !site.is_some_and(|site| self.paused_sites.contains(&site))
    }

    /// When the next URL of a host is due, if anything of it is queued that no
    /// paused site holds back.
    pub(super) fn next_due_of_host(
        &self,
        crawl: CrawlId,
        host: HostId,
    ) -> Result<Option<i64>, StoreError> {
        let mut earliest: Option<i64> = None;
        let mut band = i64::from(u8::MAX) + 1;
        while let Some(next) = self.next_band(crawl, host, band)? {
            band = next;
            let first = self.first_of_band(crawl, host, band)?;
            earliest = first.map(|due| earliest.map_or(due, |other| other.min(due))).or(earliest);
        }
        Ok(earliest)
    }

    /// When the first URL of a band of a host is due that no paused site holds
    /// back.
    fn first_of_band(
        &self,
        crawl: CrawlId,
        host: HostId,
        band: i64,
    ) -> Result<Option<i64>, StoreError> {
        let mut query = self
            .conn
            .prepare_cached(
                "SELECT due_s, /*lite*/ owner /*end*/ /*pg: coalesce(site_id, 0) << 1 */, url_id
                 FROM queue
                 WHERE crawl_id = ?1 AND host_id = ?2 /*pg: AND part = (?2 & 255) */
                     AND (due_s, url_id) > (?3, ?4) AND band = ?6
                 ORDER BY due_s, url_id /*pg: LIMIT ?5 */",
            )
            .map_err(engine)?;
        let list = (crawl, host);
        let known = self.paused_heads.borrow().of(list, band);
        let mut after = known.unwrap_or((i64::MIN, i64::MIN));
        let mut passed = 0;
        loop {
            let values = params![crawl.0, host.0, after.0, after.1, PAGE, band];
            let mut rows = query.query(values).map_err(engine)?;
            let mut taken = 0;
            while let Some(row) = rows.next().map_err(engine)? {
                let due: i64 = row.get(0).map_err(engine)?;
                if self.may_lease(site_of(row.get(1).map_err(engine)?), &[]) {
                    if passed > 0 {
                        self.paused_heads.borrow_mut().note(list, (band, after), passed);
                    }
                    return Ok(Some(due));
                }
                (taken, passed) = (taken + 1, passed + 1);
                after = (due, row.get(2).map_err(engine)?);
            }
            if taken < PAGE || self.conn.embedded().is_some() {
                if passed > 0 {
                    self.paused_heads.borrow_mut().note(list, (band, after), passed);
                }
                return Ok(None);
            }
        }
    }

    /// The highest band below `band` that a host has anything in: one probe of
    /// the index, so empty bands cost nothing.
    pub(super) fn next_band(
        &self,
        crawl: CrawlId,
        host: HostId,
        band: i64,
    ) -> Result<Option<i64>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT max(band) FROM queue WHERE crawl_id = ?1 AND host_id = ?2
                 /*pg: AND part = (?2 & 255) */ AND band < ?3",
            )
            .and_then(|mut query| query.query_row(params![crawl.0, host.0, band], |row| row.get(0)))
            .map_err(engine)
    }
}

/// What is due of a list, whether that is all, and when the next is.
pub(super) type Due<T> = (Vec<T>, Extent, Option<i64>);

/// Walks what is due of a host in lease order, but for sites that are paused, of which
/// the heads of bands may be known; `read` takes what is wanted of a row.
pub(super) fn walk_due<T>(
    (conn, paused, heads): (&Connection, &IdSet<SiteId>, Option<&RefCell<PausedHeads>>),
    Walk { statement, behind }: Walk<'_>,
    (crawl, host): (CrawlId, HostId),
    now_s: i64,
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> sql::Result<T>,
) -> Result<Due<T>, StoreError> {
    let mut due = Vec::new();
    let mut next_due: Option<i64> = None;
    let (mut below, mut after) = (i64::from(u8::MAX) + 1, BEHIND_ALL);
    let mut rest_of_band = None;
    let mut head = Head::default();
    let known_head = |band| heads.and_then(|heads| heads.borrow().of((crawl, host), band));
    let note = |ended: Option<(Spot, usize)>| {
        if let (Some(heads), Some((last, rows))) = (heads, ended) {
            heads.borrow_mut().note((crawl, host), last, rows);
        }
    };
    if let Some((band, row, rest)) = behind {
        let known = known_head(band).filter(|last| *last >= row);
        (below, after) = (band, known.unwrap_or(row));
        head = Head::behind(band, known);
        rest_of_band = conn.embedded().map(|_| Cow::Borrowed(rest));
    }
    let page = page_for(limit);
    // A server is asked once which bands have anything due at all.
    let can_skip = conn.server().is_some() && paused.is_empty();
    let mut firsts = None;
    // One walk a band, down to its first row that is not due: the next one
    // begins below it, or, of a server, behind the page.
    'bands: loop {
        let rest = rest_of_band.take();
        let sql = rest.as_deref().unwrap_or(statement);
        let mut query = conn.prepare_cached(sql).map_err(engine)?;
        let values = params![crawl.0, host.0, after.0, after.1, page, below];
        let mut rows = query.query(values).map_err(engine)?;
        let (mut taken, mut page_end) = (0, None);
        while let Some(row) = rows.next().map_err(engine)? {
            taken += 1;
            if taken == page && conn.embedded().is_none() {
                page_end = Some(place_in_list(&row).map_err(engine)?);
            }
            let owner = row.get(3).map_err(engine)?;
            let (band, due_s): (i64, i64) =
                (row.get(0).map_err(engine)?, row.get(1).map_err(engine)?);
            if site_of(owner).is_some_and(|site| paused.contains(&SiteId(site))) {
                let place = (due_s, row.get(2).map_err(engine)?);
                if head.is_next(band) {
                    note(head.end(Some(band)));
                    head = Head::default();
                }
                let known = head.pass(band, place).then(|| known_head(band)).flatten();
                if let Some(last) = known.filter(|last| *last > place) {
                    (below, after) = (band, last);
                    head = Head::behind(band, known);
                    rest_of_band = conn.embedded().map(|_| Cow::Owned(rest_of(statement)));
                    continue 'bands;
                }
                continue;
            }
            note(head.end(Some(band)));
            if due_s > now_s {
                next_due = Some(next_due.map_or(due_s, |other| other.min(due_s)));
                (below, after) = (band, BEHIND_ALL);
                if can_skip {
                    let known = match firsts.take() {
                        Some(known) => known,
                        None => firsts_below(conn, (crawl, host), band, i64::MAX)?,
                    };
                    let (later, due) = split_at_due(known, band, now_s);
                    next_due = later.into_iter().chain(next_due).min();
                    let Some((first, _)) = due.first() else { break 'bands };
                    below = i64::from(first.band) + 1;
                    firsts = Some(due);
                }
                continue 'bands;
            }
            if due.len() >= limit {
                return Ok((due, Extent::Prefix, next_due));
            }
            due.push(read(&row).map_err(engine)?);
        }
        (below, after) = match page_end {
            Some(end) => end,
            None if rest.is_some() => (below, BEHIND_ALL),
            None => break,
        };
    }
    note(head.end(None));
    Ok((due, Extent::Complete, next_due))
}

/// The statement that reads the rest of a band behind a row, for the embedded engine.
fn rest_of(listed: &str) -> String {
    ["", "q."].into_iter().fold(listed.to_owned(), |sql, q| {
        let below = format!("AND /*lite*/ {q}band < ?6 /*end*/");
        sql.replace(&below, &format!("AND {q}band = ?6 AND ({q}due_s, {q}url_id) > (?3, ?4)"))
    })
}

/// The first row of each band of a host below `band`, the highest first, where
/// it is due by then, with its site. For a server.
fn firsts_below(
    conn: &Connection,
    (crawl, host): (CrawlId, HostId),
    band: i64,
    due_s: i64,
) -> Result<Vec<(Place, Option<i64>)>, StoreError> {
    let mut query = conn.prepare_cached(FIRST_OF_BANDS).map_err(engine)?;
    query
        .query_map(params![crawl.0, host.0, band, due_s], |row| {
            Ok((read_place(row, crawl, host)?, site_of(row.get(3)?)))
        })
        .and_then(Iterator::collect)
        .map_err(engine)
}

/// Of the first rows of bands, the highest first, those below `band`: when the
/// ones are due that come before the first that is due by now, and all from that
/// one on.
fn split_at_due(
    firsts: Vec<(Place, Option<i64>)>,
    band: i64,
    now_s: i64,
) -> (Vec<i64>, Vec<(Place, Option<i64>)>) {
    let mut below = firsts;
    below.retain(|(first, _)| i64::from(first.band) < band);
    let due_on = below.iter().position(|(first, _)| first.due_s <= now_s);
    let due = below.split_off(due_on.unwrap_or(below.len()));
    (below.into_iter().map(|(first, _)| first.due_s).collect(), due)
}

/// Band, due time, row and owner: of a walk, or alike.
pub(super) fn read_place(row: &Row<'_>, crawl: CrawlId, host: HostId) -> sql::Result<Place> {
    Ok(Place {
        crawl,
        host,
        band: u8::try_from(row.get::<i64>(0)?).unwrap_or(u8::MAX),
        due_s: row.get(1)?,
        url: UrlId(row.get(2)?),
        valued: valued_of(row.get(3)?),
    })
}

/// Band, and due time and row, of a row of a walk.
fn place_in_list(row: &Row<'_>) -> sql::Result<(i64, (i64, i64))> {
    Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
}

/// Rows to ask a server for when so many are wanted, and the one behind them: of
/// a few sizes, since each is a statement of its own.
fn page_for(limit: usize) -> i64 {
    let sizes = [16, 64, PAGE];
    let wanted = i64::try_from(limit).unwrap_or(PAGE);
    sizes.into_iter().find(|size| *size > wanted).unwrap_or(PAGE)
}
