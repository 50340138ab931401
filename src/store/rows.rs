//! One URL row as effects need it: what is listed, where it stands, its place.

use std::sync::LazyLock;

use super::abbreviations::PathText;
use super::hosts::{page_text, partition_of};
use super::sql::{self, Connection, Many, Row, params};
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::ending::Lease;
use super::packed::{
    Listing, PLACE, PLACE_AGAIN, PLACE_NAMES, SAID, Standing, place_of, said, set_said,
};
use super::pending::EndedLease;
use super::record::Record;
use super::state::State;
use super::turns::Place;
use super::walk::read_place;
use super::{StoreError, engine};
use crate::diff::snapshot::EntryHints;
use crate::model::{
    ChangeFreq, CrawlId, HostId, Lastmod, Precision, Reason, SiteId, SourceId, UrlId, UrlKind,
};
use crate::queue::Token;
use crate::recrawl;
use crate::recrawl::model::{Look, UrlState};

/// Codes of `feedback.state`.
pub(super) mod held {
    pub(crate) const QUEUED: i64 = 0;
    pub(crate) const PARKED: i64 = 2;
    pub(crate) const DEAD: i64 = 3;
    pub(crate) const BLOCKED: i64 = 4;
    pub(crate) const FORBIDDEN: i64 = 5;
}

/// A URL as effects need it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UrlRow {
    pub(super) id: UrlId,
    pub(super) crawl: CrawlId,
    pub(super) host: HostId,
    pub(super) site: Option<SiteId>,
    pub(super) source: Option<SourceId>,
    pub(super) path: String,
    pub(super) listed: bool,
    pub(super) lastmod: Option<Lastmod>,
    pub(super) hints: EntryHints,
    pub(super) reason: Reason,
    pub(super) band: u8,
    pub(super) due_s: i64,
    /// Deliveries in a row without success.
    pub(super) attempt: u32,
    /// Is its place kept in feedback?
    pub(super) has_feedback: bool,
    /// Is a fetcher holding it?
    pub(super) leased: bool,
    /// One of [`held`].
    pub(super) state: i64,
    pub(super) kind: UrlKind,
    /// From then on none of its videos is there any more.
    pub(super) expires_s: Option<i64>,
    /// It ranks as fresh news until then.
    pub(super) fresh_s: Option<i64>,
    /// What is kept of it beside its place.
    pub(super) record: Record,
}

impl UrlRow {
    /// Where it is in the queue, if it is there.
    pub(super) fn place(&self) -> Place {
        Place {
            crawl: self.crawl,
            host: self.host,
            band: self.band,
            due_s: self.due_s,
            url: self.id,
            // Of no account for where it stands.
            valued: false,
        }
    }

    /// What looks taught of it.
    pub(super) fn learned(&self) -> Option<UrlState> {
        let learned = UrlState::unpack(self.record.looks.as_ref()?)?;
        // Reports that nobody learned of may have seen it since, in older stores.
        let fetched = self.record.fetched.as_ref();
        let saw = fetched.filter(|fetched| Look::of(fetched.outcome).is_some());
        let seen = saw.and_then(|saw| Timestamp::from_second(saw.at.div_euclid(1000)).ok());
        Some(seen.map_or(learned, |seen| learned.seen_since(seen)))
    }

    /// Whose signals those since the last look are, and who is to be judged by the next.
    pub(super) fn giver(&self) -> Option<SourceId> {
        self.record.giver.or(self.source)
    }

    /// Is it held where nobody waits for it to be tried again?
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.state, held::PARKED | held::DEAD)
    }

    /// Is it in the queue?
    pub(super) fn is_queued(&self) -> bool {
        !self.leased && self.state == held::QUEUED
    }

    /// Is it in the queue, and there?
    pub(super) fn stands_at(&self, band: u8, due_s: i64) -> bool {
        self.is_queued() && (self.band, self.due_s) == (band, due_s)
    }

    /// Is a URL that redirects to it nothing to look at, while it is?
    pub(super) fn can_stand_for_others(&self) -> bool {
        self.listed && !self.is_given_up()
    }

    /// Have all of its videos expired?
    pub(super) fn is_expired(&self, now_s: i64) -> bool {
        self.listed && self.expires_s.is_some_and(|end| end <= now_s)
    }

    /// Is it news of the last two days?
    pub(super) fn is_fresh(&self, now_s: i64) -> bool {
        self.fresh_s.is_some_and(|end| end > now_s)
    }

    /// What the recrawl rules need to know of it. News that says nothing of
    /// how often it changes is looked at hourly while it is fresh.
    pub(super) fn known(&self, attempt: u32, now_s: i64) -> recrawl::Known {
        let hourly = self.is_fresh(now_s).then_some(ChangeFreq::Hourly);
        recrawl::Known {
            changefreq: self.hints.changefreq.or(hourly),
            lastmod: self.lastmod,
            listed: self.listed,
            attempt,
            gone: self.record.gone,
            id: self.id.0,
        }
    }
}

/// What [`read_row`] reads, of `urls u` and `feedback f`.
static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "u.id, u.crawl_id, u.host_id, u.site_id, u.source_id, u.path, {}, u.lastmod_s, {},
         u.expires_s, u.fresh_s, f.record",
        *SAID, *PLACE
    )
});
/// How many these are.
const WIDTH: usize = 12;

static BY_NUMBER: LazyLock<Many> = LazyLock::new(|| {
    let columns = &*COLUMNS;
    let head = format!(
        "SELECT {columns}, l.url_id IS NOT NULL
         FROM urls u
         LEFT JOIN feedback f ON f.url_id = u.id /*pg: AND f.part = u.part */
         LEFT JOIN leases l ON l.url_id = u.id /*pg: AND l.part = u.part */
         WHERE"
    );
    Many::of_ids(&head, "u.id")
});

static LEASED: LazyLock<Many> = LazyLock::new(|| {
    let columns = &*COLUMNS;
    let head = format!(
        "SELECT {columns}, l.reason, l.due_s, l.attempt, l.leased_at, l.expires_at, l.dirty, l.token
         FROM leases l
         /*lite*/ CROSS /*end*/ JOIN urls u ON u.id = l.url_id /*pg: AND u.part = l.part */
         LEFT JOIN feedback f ON f.url_id = l.url_id /*pg: AND f.part = l.part */
         WHERE"
    );
    Many::of_ids(&head, "l.url_id")
});

/// A host's list below a band, with the rows of those whose value is to be
/// taken anew.
pub(super) static LISTED_WITH_VALUED: LazyLock<String> =
    LazyLock::new(|| listed_with("/*lite*/ q.owner & 1 /*end*/ /*pg: q.valued = 1 */"));

/// The same of one band behind a row; for the embedded engine.
pub(super) static REST_WITH_VALUED: LazyLock<String> =
    LazyLock::new(|| rest_of(&LISTED_WITH_VALUED));

/// The same with the rows of all.
pub(super) static LISTED_WITH_ROWS: LazyLock<String> = LazyLock::new(|| listed_with("1 = 1"));

/// The same of one band behind a row; for the embedded engine.
pub(super) static REST_WITH_ROWS: LazyLock<String> = LazyLock::new(|| rest_of(&LISTED_WITH_ROWS));

fn rest_of(listed: &str) -> String {
    let below = "AND /*lite*/ q.band < ?6 /*end*/";
    listed.replace(below, "AND q.band = ?6 AND (q.due_s, q.url_id) > (?3, ?4)")
}

fn listed_with(joined: &str) -> String {
    let columns = &*COLUMNS;
    format!(
        "SELECT q.band, q.due_s, q.url_id,
             /*lite*/ q.owner /*end*/ /*pg: (coalesce(q.site_id, 0) << 1) | q.valued */, {columns}
         FROM queue q
         LEFT JOIN urls u ON {joined} AND u.id = q.url_id /*pg: AND u.part = q.part */
         LEFT JOIN feedback f ON {joined} AND f.url_id = q.url_id /*pg: AND f.part = q.part */
         WHERE q.crawl_id = ?1 AND q.host_id = ?2 /*pg: AND q.part = (?2 & 255) */
             AND /*lite*/ q.band < ?6 /*end*/
             /*pg: q.band <= ?6 AND (q.band < ?6 OR (q.due_s, q.url_id) > (?3, ?4)) */
         ORDER BY q.band DESC, q.due_s, q.url_id /*pg: LIMIT ?5 */"
    )
}

static RERANK: LazyLock<String> = LazyLock::new(|| {
    let place = set_said(&[(said::REASON, "?2"), (said::BAND, "?3")]);
    format!("UPDATE urls SET {place} WHERE id = ?1 /*pg: AND part = (?1 & 255) */")
});

static KEEP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO feedback (/*pg: part, */ url_id, {}, record)
         VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, {}, ?3)
         ON CONFLICT (/*pg: part, */ url_id) DO UPDATE SET {}, record = excluded.record",
        *PLACE_NAMES,
        place_of("?2"),
        *PLACE_AGAIN
    )
});

impl State {
    /// A URL row by number.
    pub(super) fn url_row(&mut self, id: UrlId) -> Result<Option<UrlRow>, StoreError> {
        if let Some(row) = self.pending.row_ahead(id) {
            return Ok(Some(row));
        }
        if self.pending.holds(id) {
            self.write_pending()?;
        }
        read_url(&self.conn, id)
    }

    /// The row of a normalised URL in a crawl, if there is one.
    pub(super) fn find_url(
        &mut self,
        crawl: CrawlId,
        host: HostId,
        path: &str,
        key: u64,
    ) -> Result<Option<UrlRow>, StoreError> {
        let mut candidates = Vec::new();
        let part = partition_of(host);
        match self.pending.known_ahead(part, key) {
            Some(known) => candidates.extend_from_slice(known),
            None => {
                self.lookup.find(&self.conn, (part, key), &mut candidates).map_err(engine)?;
            }
        }
        for id in candidates {
            let Some(row) = self.url_row(id)? else { continue };
            // The hash only says "perhaps": the text decides.
            if row.crawl == crawl && row.host == host && row.path == path {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Gives a URL a place in the queue, or takes it out, and says why and
    /// with how many deliveries behind it. `row` is what it was before.
    pub(super) fn place_url(
        &mut self,
        row: &UrlRow,
        state: i64,
        reason: Reason,
        band: u8,
        due_s: i64,
        attempt: u32,
    ) -> Result<(), StoreError> {
        let place = Place { band, due_s, ..row.place() };
        self.place_with(row, state, reason, place, attempt, row.record.clone())
    }

    /// The same, with what else is to be kept of it.
    pub(super) fn place_with(
        &mut self,
        row: &UrlRow,
        state: i64,
        reason: Reason,
        place: Place,
        attempt: u32,
        mut record: Record,
    ) -> Result<(), StoreError> {
        // As it is kept: else the queue would have another place than the URL.
        let place = Place { due_s: place.due_s.max(0), ..place };
        if row.is_queued() {
            self.dequeue(row.place())?;
        }
        let stays = row.due_s == place.due_s && state == held::QUEUED && attempt == 0;
        if stays && !row.has_feedback && record == Record::default() {
            self.write_place(row.id, reason, place.band)?;
        } else {
            record.held_since = match state {
                held::QUEUED => None,
                _ if state == row.state => record.held_since,
                _ => Some(self.steady_ms()),
            };
            self.write_feedback(place, state, reason, attempt, &record)?;
        }
        if state == held::QUEUED && !row.leased {
            if row.state != held::QUEUED && place.due_s > self.steady_ms().div_euclid(1000) {
                self.early.came_back(place.crawl, place.host);
            }
            let valued = self.is_valued(row, reason);
            self.enqueue(Place { valued, ..place }, row.site)?;
        }
        Ok(())
    }

    /// Writes the place of a URL of which nothing else is kept.
    fn write_place(&mut self, url: UrlId, reason: Reason, band: u8) -> Result<(), StoreError> {
        self.at_hand.forget(url);
        if let Some(changed) = self.pending.changed(url) {
            changed.place = Some((reason, band));
            return Ok(());
        }
        self.conn
            .prepare_cached(&RERANK)
            .and_then(|mut update| update.execute(params![url.0, reason as i64, band]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Writes what is kept of a URL that stays where it is.
    pub(super) fn write_record(&mut self, row: &UrlRow) -> Result<(), StoreError> {
        self.write_feedback(row.place(), row.state, row.reason, row.attempt, &row.record)
    }

    /// Writes where a URL stands and what is kept of it.
    pub(super) fn write_feedback(
        &mut self,
        place: Place,
        state: i64,
        reason: Reason,
        attempt: u32,
        record: &Record,
    ) -> Result<(), StoreError> {
        self.at_hand.forget(place.url);
        if self.pending.gathered.is_some() {
            let record = record.clone();
            let kept = EndedLease { place, state, reason, attempt, record, is_new: false };
            self.pending.keep(kept);
            return Ok(());
        }
        let Place { url, band, due_s, .. } = place;
        self.conn
            .prepare_cached(&KEEP)
            .and_then(|mut upsert| {
                let standing = Standing { state, reason, band, due_s, attempt };
                upsert.execute(params![url.0, standing.pack(), record.pack()])
            })
            .map(|_| ())
            .map_err(engine)
    }

    /// Makes a URL due because of something that was seen or asked for now: what was
    /// seen undercuts neither what a fetcher has put it off to, nor the pause after a
    /// failure; what was asked for does. With a fetcher it becomes due once settled;
    /// held back it stays held, unless it was parked or given up. Says whether its
    /// record was written with that.
    pub(super) fn pull_forward(
        &mut self,
        row: &UrlRow,
        reason: Reason,
    ) -> Result<bool, StoreError> {
        self.pull_to(row, reason, row.soonest(reason, self.steady_ms().div_euclid(1000)))
    }

    /// The same with when that is, whatever a fetcher has said.
    pub(super) fn pull_to(
        &mut self,
        row: &UrlRow,
        reason: Reason,
        pulled_s: i64,
    ) -> Result<bool, StoreError> {
        let now_s = self.steady_ms().div_euclid(1000);
        if row.leased {
            self.at_hand.forget(row.id);
            // What was asked for is not forgotten over a lesser reason.
            return self
                .conn
                .prepare_cached(
                    "UPDATE leases SET dirty = ?2 WHERE url_id = ?1
                     /*pg: AND part = (?1 & 255) */ AND dirty <> ?3",
                )
                .and_then(|mut update| {
                    let asked_for = 1 + Reason::Submitted as i64;
                    update.send(params![row.id.0, 1 + reason as i64, asked_for])
                })
                .map(|()| false)
                .map_err(engine);
        }
        if row.is_expired(now_s) && reason != Reason::Submitted {
            // Whatever moved: what the page was about is not there any more.
            let waits = row.state == held::QUEUED && row.reason != Reason::Submitted;
            return if waits { self.park(row).map(|()| true) } else { Ok(false) };
        }
        let held_on = !row.is_given_up();
        let kept = match row.reason {
            Reason::Submitted if held_on => Reason::Submitted,
            Reason::New if held_on && reason != Reason::Submitted => Reason::New,
            _ => reason,
        };
        let band = self.rank(row, kept, now_s)?;
        match row.state {
            held::BLOCKED | held::FORBIDDEN => {
                self.place_url(row, row.state, kept, band, pulled_s, row.attempt)?;
            }
            held::PARKED | held::DEAD => {
                self.take_back_completed(row)?;
                self.place_url(row, held::QUEUED, kept, band, pulled_s, 0)?;
            }
            _ => {
                let due_s = row.due_s.min(pulled_s);
                if (kept, band, due_s) == (row.reason, row.band, row.due_s) {
                    return Ok(false);
                }
                self.place_url(row, held::QUEUED, kept, band, due_s, row.attempt)?;
            }
        }
        Ok(true)
    }
}

/// A URL row by number.
pub(super) fn read_url(conn: &Connection, id: UrlId) -> Result<Option<UrlRow>, StoreError> {
    let mut found = None;
    read_urls(conn, &[id], |row| found = Some(row))?;
    Ok(found)
}

/// URL rows by number, in any order; what is not there is left out.
pub(super) fn read_urls(
    conn: &Connection,
    ids: &[UrlId],
    mut each: impl FnMut(UrlRow),
) -> Result<(), StoreError> {
    let read = |row: &Row<'_>| {
        each(UrlRow { leased: row.get(WIDTH)?, ..read_row(row, 0, String::new())? });
        Ok(())
    };
    BY_NUMBER.query(conn, ids, |id, values| values.bind(id.0), read).map_err(engine)
}

/// The leases of the URLs of tokens, each with its URL, in any order. Whether it
/// is the token's own is for the caller to see.
pub(super) fn read_leased(
    conn: &Connection,
    tokens: &[Token],
    mut each: impl FnMut(UrlRow, Lease),
) -> Result<(), StoreError> {
    let read = |row: &Row<'_>| {
        let lease = Lease {
            reason: reason(row.get(WIDTH)?),
            due_s: row.get(WIDTH + 1)?,
            attempt: row.get(WIDTH + 2)?,
            leased_at: row.get(WIDTH + 3)?,
            expires_at: row.get(WIDTH + 4)?,
            dirty: row.get(WIDTH + 5)?,
            secret: row.get(WIDTH + 6)?,
        };
        each(UrlRow { leased: true, ..read_row(row, 0, String::new())? }, lease);
        Ok(())
    };
    LEASED.query(conn, tokens, |token, values| values.bind(token.url.0), read).map_err(engine)
}

/// Rows that nobody needs any more, to be filled anew.
#[allow(clippy::vec_box)] // each goes on in its box
pub(super) type Spent = Vec<Box<UrlRow>>;

/// A row of [`LISTED_WITH_VALUED`] or [`LISTED_WITH_ROWS`]: its place, and the URL
/// as it is in the queue, in the memory of one that is spent if there is any.
pub(super) fn read_listed(
    row: &Row<'_>,
    crawl: CrawlId,
    host: HostId,
    spent: &mut Spent,
) -> sql::Result<(Place, Option<Box<UrlRow>>)> {
    const PLACE: usize = 4;
    let place = read_place(row, crawl, host)?;
    if row.get_ref(PLACE)? == ValueRef::Null {
        return Ok((place, None));
    }
    let url = match spent.pop() {
        Some(mut spent) => {
            *spent = read_row(row, PLACE, std::mem::take(&mut spent.path))?;
            spent
        }
        None => Box::new(read_row(row, PLACE, String::new())?),
    };
    // One that is held back, or stands elsewhere, is looked at closely when it is leased.
    Ok((place, Some(url).filter(|url| url.stands_at(place.band, place.due_s))))
}

/// Reads [`COLUMNS`], the first of which stands at `at`, with the path in the memory
/// of another; of leases they say nothing.
fn read_row(row: &Row<'_>, at: usize, path: String) -> sql::Result<UrlRow> {
    let packed = row.get_ref(at + WIDTH - 1)?.as_blob_or_null()?;
    let record = packed.map(Record::unpack);
    let said = Listing::unpack(row.get(at + 6)?);
    let at_first = Standing {
        state: held::QUEUED,
        reason: said.reason,
        band: said.band,
        due_s: said.first_seen_s,
        attempt: 0,
    };
    let stands = row.get::<Option<i64>>(at + 8)?.map_or(at_first, Standing::unpack);
    Ok(UrlRow {
        id: UrlId(row.get(at)?),
        crawl: CrawlId(row.get(at + 1)?),
        host: HostId(row.get(at + 2)?),
        site: row.get::<Option<i64>>(at + 3)?.map(SiteId),
        source: row.get::<Option<i64>>(at + 4)?.map(SourceId),
        path: PathText::in_room(row.get_ref(at + 5)?, path)?.0,
        listed: said.listed,
        lastmod: at_precision(row.get(at + 7)?, said.precision),
        hints: said.hints,
        reason: stands.reason,
        band: stands.band,
        due_s: stands.due_s,
        attempt: stands.attempt,
        leased: false,
        state: stands.state,
        kind: said.kind,
        expires_s: row.get(at + 9)?,
        fresh_s: row.get(at + 10)?,
        has_feedback: record.is_some(),
        record: record.unwrap_or_default(),
    })
}

/// The text of a URL, of the authority of its host, which stands at `at`, and its
/// path, which is next to it.
pub(super) fn read_page(row: &Row<'_>, at: usize) -> sql::Result<String> {
    let authority: String = row.get(at)?;
    let PathText(path) = row.get(at + 1)?;
    Ok(page_text(&authority, &path))
}

/// The two columns that keep a lastmod.
pub(super) fn lastmod(second: Option<i64>, precision: Option<i64>) -> Option<Lastmod> {
    at_precision(second, decode(&Precision::ALL, precision?))
}

/// The same, read already.
pub(super) fn at_precision(second: Option<i64>, precision: Option<Precision>) -> Option<Lastmod> {
    Some(Lastmod { at: Timestamp::from_second(second?).ok()?, precision: precision? })
}

/// What the two columns hold for a lastmod.
pub(super) fn lastmod_columns(lastmod: Option<Lastmod>) -> (Option<i64>, Option<i64>) {
    (lastmod.map(|l| l.at.as_second()), lastmod.map(|l| l.precision as i64))
}

/// The column that keeps a reason.
pub(super) fn reason(code: i64) -> Reason {
    decode(&Reason::ALL, code).unwrap_or(Reason::Recrawl)
}

/// The column that keeps a kind.
pub(super) fn kind(code: i64) -> UrlKind {
    decode(&UrlKind::ALL, code).unwrap_or_default()
}

/// The value that a code stands for: its place in the list of all.
pub(super) fn decode<T: Copy>(all: &[T], code: i64) -> Option<T> {
    all.get(usize::try_from(code).ok()?).copied()
}

/// What the lookup knows a URL by: a keyed hash of crawl and normalised text.
pub(super) fn url_key(seed: u64, crawl: CrawlId, authority: &str, path: &str) -> u64 {
    let crawl = crawl.0.to_le_bytes();
    let parts = [crawl.as_slice(), authority.as_bytes(), path.as_bytes()];
    // The same for one text as for its parts, which need a state that takes longer to
    // make than a short text to be hashed. Most URLs are.
    let mut whole = [0; 240];
    let mut end = 0;
    for part in parts {
        let Some(room) = whole.get_mut(end..end + part.len()) else {
            let mut hash = Xxh3::with_seed(seed);
            for part in parts {
                hash.update(part);
            }
            return hash.digest();
        };
        room.copy_from_slice(part);
        end += part.len();
    }
    xxh3_64_with_seed(whole.get(..end).unwrap_or_default(), seed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_key_of_a_url_is_that_of_its_parts_whatever_its_length(
            seed: u64, crawl: i64, authority in "[a-z.:/]{0,40}", path in "/[!-~]{0,300}",
        ) {
            let mut hash = Xxh3::with_seed(seed);
            hash.update(&crawl.to_le_bytes());
            hash.update(authority.as_bytes());
            hash.update(path.as_bytes());
            prop_assert_eq!(url_key(seed, CrawlId(crawl), &authority, &path), hash.digest());
        }
    }
}
