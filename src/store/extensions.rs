//! What sources say of a URL beside its dates: images, videos, news, alternates.
//!
//! One row per source and URL, found through the URL's sources, so that a row
//! whose source lists the URL no longer is seen by nobody. What it means for
//! the queue (an end of all videos, fresh news) is summed up in the URL's own
//! row whenever one of them moves, so that leasing reads none of this. A URL
//! all of whose videos have expired is parked, unless someone asked for it,
//! and comes back when a source moves their end, or drops them or the URL.

use super::sql::{Connection, params};

use super::effect::{CHUNK, Effect};
use super::rows::{UrlRow, held};
use super::state::State;
use super::{StoreError, engine};
use crate::model::extension::{Expiry, Extensions, Marks};
use crate::model::{Reason, SourceId, UrlId};

/// Sources of one URL that are asked what they say of it, the first first.
const MAX_SOURCES: i64 = 8;
/// Text of extensions read for one lease; the URLs past it come without.
const MAX_LEASE_BYTES: usize = 8 * 1024 * 1024;
/// Text of a part of [`CHUNK`] effects or fewer that is worth making room for.
const LARGE_PART: usize = 256 * 1024;
/// `extensions.expires_s` of a video without an end: no date that is read lies
/// so far back.
const NEVER: i64 = 0;

/// What one source says of one URL.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Said {
    /// [`Extensions`] as JSON.
    pub data: String,
    /// What it means for the queue.
    pub marks: Marks,
}

impl State {
    /// Texts go through the page cache once and are not read again soon: where
    /// there are many, what earlier parts left in it is let go first, so that
    /// memory does not grow with the texts of a document.
    pub(super) fn make_room_for_texts(&self, effects: &[Effect]) -> Result<(), StoreError> {
        let length = |effect: &Effect| match effect {
            Effect::Extensions { said: Some(said), .. } => said.data.len(),
            Effect::Admit { url, .. } => url.path.len(),
            _ => 0,
        };
        let chunks = effects.len().div_ceil(CHUNK);
        if effects.iter().map(length).sum::<usize>() < LARGE_PART * chunks {
            return Ok(());
        }
        // A server keeps its pages in memory of its own.
        if self.conn.embedded().is_none() {
            return Ok(());
        }
        self.conn.execute_batch("PRAGMA shrink_memory").map_err(engine)
    }

    /// Keeps what a source says of a URL, or that it says nothing; does
    /// nothing where that is known.
    pub(super) fn take_extensions(
        &mut self,
        source: SourceId,
        url: UrlId,
        said: Option<&Said>,
    ) -> Result<(), StoreError> {
        let Some(row) = self.url_row(url)? else {
            // Of a URL that is gone nothing is to be said.
            return if said.is_none() { self.forget_said(source, url).map(drop) } else { Ok(()) };
        };
        self.pending.spoken_of(url);
        let changed = match said {
            Some(said) => self.write_said(source, url, said)?,
            None => self.forget_said(source, url)?,
        };
        if !changed {
            return Ok(());
        }
        self.heed_marks(row)
    }

    /// Other sources than before say something of a URL, or others things: sums that
    /// up, and gives it the place that this calls for.
    pub(super) fn heed_marks(&mut self, row: UrlRow) -> Result<(), StoreError> {
        let had_end = row.expires_s.is_some();
        let row = self.sum_up_marks(row)?;
        self.follow_marks(&row, had_end)
    }

    fn write_said(&self, source: SourceId, url: UrlId, said: &Said) -> Result<bool, StoreError> {
        let expires = match said.marks.expiry {
            Expiry::NoVideo => None,
            Expiry::Never => Some(NEVER),
            Expiry::At(second) => Some(second),
        };
        self.conn
            .prepare_cached(
                "INSERT INTO extensions (/*pg: part, */ source_id, url_id, expires_s, fresh_s, data)
                 VALUES (/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (/*pg: part, */ source_id, url_id)
                     DO UPDATE SET expires_s = ?3, fresh_s = ?4, data = ?5
                     WHERE extensions.data <> ?5 OR extensions.expires_s IS DISTINCT FROM ?3
                         OR extensions.fresh_s IS DISTINCT FROM ?4",
            )
            .and_then(|mut upsert| {
                upsert.execute(params![
                    source.0,
                    url.0,
                    expires,
                    said.marks.fresh_until_s,
                    said.data
                ])
            })
            .map(|written| written > 0)
            .map_err(engine)
    }

    /// Forgets what a source said of a URL; says whether it had said anything.
    pub(super) fn forget_said(&self, source: SourceId, url: UrlId) -> Result<bool, StoreError> {
        self.conn
            .prepare_cached(
                "DELETE FROM extensions WHERE source_id = ?1 AND url_id = ?2
                 /*pg: AND part = (?2 & 255) */",
            )
            .and_then(|mut delete| delete.execute(params![source.0, url.0]))
            .map(|deleted| deleted > 0)
            .map_err(engine)
    }

    /// URLs of which one source says something, a part of them.
    pub(super) fn spoken_of_by(&self, source: i64, most: i64) -> Result<Vec<UrlId>, StoreError> {
        let urls = self.column(
            "SELECT url_id FROM extensions WHERE source_id = ?1 ORDER BY url_id LIMIT ?2",
            [source, most],
        )?;
        Ok(urls.into_iter().map(UrlId).collect())
    }

    /// Forgets a part of what one source said of URLs that are forgotten with it; says
    /// how much.
    pub(super) fn forget_some_said(&self, source: i64, limit: i64) -> Result<usize, StoreError> {
        self.conn
            .prepare_cached(
                "DELETE FROM extensions WHERE source_id = ?1 AND url_id IN
                     (SELECT url_id FROM extensions WHERE source_id = ?1 LIMIT ?2)",
            )
            .and_then(|mut delete| delete.execute(params![source, limit]))
            .map_err(engine)
    }

    /// What its sources say together, written to the row of a URL.
    pub(super) fn sum_up_marks(&mut self, row: UrlRow) -> Result<UrlRow, StoreError> {
        let mut query = self
            .conn
            .prepare_cached(
                "SELECT e.expires_s, e.fresh_s FROM
                     (SELECT source_id FROM urls WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                      UNION ALL
                      SELECT source_id FROM url_sources WHERE url_id = ?1 /*pg: AND part = (?1 & 255) */) h
                 JOIN extensions e ON e.source_id = h.source_id AND e.url_id = ?1
                     /*pg: AND e.part = (?1 & 255) */",
            )
            .map_err(engine)?;
        let said = query
            .query_map([row.id.0], |row| {
                let expiry = match row.get(0)? {
                    None => Expiry::NoVideo,
                    Some(NEVER) => Expiry::Never,
                    Some(second) => Expiry::At(second),
                };
                Ok(Marks { expiry, fresh_until_s: row.get(1)? })
            })
            .map_err(engine)?;
        let mut marks = Marks::default();
        for one in said {
            marks = marks.and(one.map_err(engine)?);
        }
        drop(query);
        let (expires_s, fresh_s) = (marks.expiry.second(), marks.fresh_until_s);
        if (expires_s, fresh_s) == (row.expires_s, row.fresh_s) {
            return Ok(row);
        }
        self.at_hand.forget(row.id);
        self.conn
            .prepare_cached(
                "UPDATE urls SET expires_s = ?2, fresh_s = ?3 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute(params![row.id.0, expires_s, fresh_s]))
            .map_err(engine)?;
        Ok(UrlRow { expires_s, fresh_s, ..row })
    }

    /// Gives a URL the place that its marks call for; its videos may have had
    /// an end before.
    pub(super) fn follow_marks(&mut self, row: &UrlRow, had_end: bool) -> Result<(), StoreError> {
        // What was asked for keeps its place until it has been looked at.
        if row.leased || row.is_queued() && row.reason == Reason::Submitted {
            return Ok(());
        }
        let now_s = self.steady_ms().div_euclid(1000);
        let expired = row.is_expired(now_s);
        match row.state {
            held::QUEUED if expired => self.park(row),
            held::QUEUED => {
                let band = self.rank(row, row.reason, now_s)?;
                if band == row.band {
                    return Ok(());
                }
                self.place_url(row, held::QUEUED, row.reason, band, row.due_s, row.attempt)
            }
            held::PARKED if had_end && row.listed && !expired => {
                self.pull_forward(row, Reason::Changed).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Takes a URL out of the queue whose videos have all expired.
    pub(super) fn park(&mut self, row: &UrlRow) -> Result<(), StoreError> {
        self.place_url(row, held::PARKED, row.reason, row.band, row.due_s, row.attempt)
    }
}

/// What its sources say of a URL, the first source first, and how long that
/// is as text.
pub(super) fn of_url(conn: &Connection, url: UrlId) -> Result<(Extensions, usize), StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT e.data FROM
                 (SELECT source_id FROM urls WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                  UNION ALL
                  SELECT source_id FROM url_sources WHERE url_id = ?1 /*pg: AND part = (?1 & 255) */
                  LIMIT ?2) h
             /*lite*/ CROSS /*end*/ JOIN extensions e ON e.source_id = h.source_id AND e.url_id = ?1
                 /*pg: AND e.part = (?1 & 255) */",
        )
        .map_err(engine)?;
    let mut rows = query.query(params![url.0, MAX_SOURCES]).map_err(engine)?;
    let (mut all, mut bytes) = (Extensions::default(), 0);
    while let Some(row) = rows.next().map_err(engine)? {
        let data = row.get_ref(0).and_then(|data| Ok(data.as_str()?)).map_err(engine)?;
        bytes += data.len();
        // What this version cannot read is as good as not said.
        let said = serde_json::from_str(data).unwrap_or_default();
        if all.is_empty() {
            all = said;
        } else {
            all.merge(said);
        }
    }
    Ok((all, bytes))
}

/// The same for each URL of a lease; `None` from the first on for which there
/// is no room in one answer.
pub(super) fn of_urls(
    conn: &Connection,
    urls: &[UrlId],
) -> Result<Vec<Option<Extensions>>, StoreError> {
    let mut answers = Vec::with_capacity(urls.len());
    let mut total = 0;
    for url in urls {
        if total > MAX_LEASE_BYTES {
            answers.push(None);
            continue;
        }
        let (said, bytes) = of_url(conn, *url)?;
        total += bytes;
        answers.push((total <= MAX_LEASE_BYTES).then_some(said));
    }
    Ok(answers)
}
