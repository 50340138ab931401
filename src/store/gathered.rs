//! What a chunk does to rows of URLs on a server, to which each statement is a
//! journey: rows are read ahead for all of it, and what it changes is gathered
//! and written by statements of many rows.
//!
//! Keeps: nothing that the job reads is missing what it has gathered. A row that
//! was read ahead is given out once; whoever comes to its URL again reads it anew,
//! once what is gathered of it is written ([`State::write_pending`]). A URL has
//! one place in the queue, and each row is named once in a statement. The embedded
//! engine gathers nothing of this.

use std::collections::HashMap;
use std::sync::LazyLock;

use url::{Position, Url};

use super::hosts::partition;
use super::lookup::Sifted;
use super::pending::{EndedLease, Pending};
use super::rows::{UrlRow, lastmod_columns, read_urls, url_key};
use super::sql::{self, Set};
use super::state::State;
use super::turns::Place;
use super::{StoreError, engine};
use crate::by_id::{ById, IdSet};
use crate::diff::snapshot::EntryHints;
use crate::model::{CrawlId, Lastmod, Reason, SiteId, SourceId, UrlId, UrlKind};
use crate::url::{authority, identities};

/// What a column is given where it stays as it is; none of them is less than 0.
const STAYS: i64 = -1;

/// What is read ahead, and gathered, while a chunk is applied.
#[derive(Default)]
pub(super) struct Gathered {
    /// Rows that nothing has asked for since they were read.
    rows: ById<UrlId, Box<UrlRow>>,
    /// Rows that URLs may have which are about to be asked for, by partition and hash.
    known: HashMap<(i64, u64), Vec<UrlId>>,
    /// URLs that nobody but the first source of their row speaks of.
    alone: IdSet<UrlId>,
    /// Whether sources show the whole.
    full: ById<SourceId, bool>,
    changed: ById<UrlId, Changed>,
    /// Rows of `feedback`.
    kept: ById<UrlId, EndedLease>,
    places: ById<UrlId, (Place, Option<SiteId>)>,
    sides: Vec<(UrlId, SourceId)>,
}

/// Columns of a row of `urls` that change.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) lastmod: Option<Lastmod>,
    pub(super) hints: Option<EntryHints>,
    pub(super) listed: Option<bool>,
    pub(super) kind: Option<UrlKind>,
    pub(super) place: Option<(Reason, u8)>,
}

/// Names each row once, whose columns stay where they are given [`STAYS`].
static CHANGE: LazyLock<Set> = LazyLock::new(|| {
    let sql = "UPDATE urls SET
            lastmod_s = CASE WHEN c.precision < 0 THEN urls.lastmod_s ELSE c.second END,
            lastmod_precision =
                CASE WHEN c.precision < 0 THEN urls.lastmod_precision ELSE c.precision END,
            hints = CASE WHEN c.hints < 0 THEN urls.hints ELSE c.hints END,
            listed = CASE WHEN c.listed < 0 THEN urls.listed ELSE c.listed END,
            kind = CASE WHEN c.kind < 0 THEN urls.kind ELSE c.kind END,
            reason = CASE WHEN c.reason < 0 THEN urls.reason ELSE c.reason END,
            band = CASE WHEN c.band < 0 THEN urls.band ELSE c.band END
        FROM unnest(?1::BIGINT[], ?2::BIGINT[], ?3::BIGINT[], ?4::BIGINT[], ?5::BIGINT[],
                    ?6::BIGINT[], ?7::BIGINT[], ?8::BIGINT[])
            AS c (id, second, precision, hints, listed, kind, reason, band)
        WHERE urls.part = (c.id & 255) AND urls.id = c.id";
    Set::new(sql, 8)
});

static SIDE: LazyLock<Set> = LazyLock::new(|| {
    let sql = "INSERT INTO url_sources (part, url_id, source_id)
               SELECT url & 255, url, source
               FROM unnest(?1::BIGINT[], ?2::BIGINT[]) AS side (url, source)
               ON CONFLICT (part, url_id, source_id) DO NOTHING";
    Set::new(sql, 2)
});

/// Of these URLs, those that no further source lists, that no source says more
/// of, and that nobody pushed.
static ALONE: LazyLock<Set> = LazyLock::new(|| {
    let sql = "SELECT u.id FROM unnest(?1::BIGINT[]) AS u (id)
               WHERE NOT EXISTS (SELECT 1 FROM url_sources s
                                 WHERE s.part = (u.id & 255) AND s.url_id = u.id)
                 AND NOT EXISTS (SELECT 1 FROM extensions e
                                 WHERE e.part = (u.id & 255) AND e.url_id = u.id)
                 AND NOT EXISTS (SELECT 1 FROM frontier_urls f
                                 WHERE f.part = (u.id & 255) AND f.url_id = u.id)";
    Set::new(sql, 1)
});

impl Pending {
    /// What is to be changed of the row of a URL; `None` where nothing is
    /// gathered.
    pub(super) fn changed(&mut self, url: UrlId) -> Option<&mut Changed> {
        let gathered = self.gathered.as_mut()?;
        self.urls.insert(url);
        Some(gathered.changed.entry(url).or_default())
    }

    /// Takes over where a URL stands, where changes are gathered.
    pub(super) fn keep(&mut self, kept: EndedLease) {
        let Some(gathered) = self.gathered.as_mut() else { return };
        self.urls.insert(kept.place.url);
        gathered.kept.insert(kept.place.url, kept);
    }

    /// Takes over a new place of a URL; says whether it did.
    pub(super) fn enter(&mut self, place: Place, site: Option<SiteId>) -> bool {
        let Some(gathered) = self.gathered.as_mut() else { return false };
        self.urls.insert(place.url);
        gathered.places.insert(place.url, (place, site));
        true
    }

    /// Takes over that a URL leaves its place; says whether it did.
    pub(super) fn vacate(&mut self, place: Place) -> bool {
        let Some(gathered) = self.gathered.as_mut() else { return false };
        // Written to the table or not: what it had there goes first in any case.
        if gathered.places.remove(&place.url).is_none() {
            self.leave(place);
        }
        true
    }

    /// Takes over that a further source lists a URL; says whether it did.
    pub(super) fn side(&mut self, url: UrlId, source: SourceId) -> bool {
        let Some(gathered) = self.gathered.as_mut() else { return false };
        self.urls.insert(url);
        gathered.alone.remove(&url);
        gathered.sides.push((url, source));
        true
    }

    /// Is it known that only the first source of its row speaks of a URL?
    pub(super) fn is_alone(&self, url: UrlId) -> bool {
        self.gathered.as_ref().is_some_and(|gathered| gathered.alone.contains(&url))
    }

    /// Somebody else may speak of a URL from now on.
    pub(super) fn spoken_of(&mut self, url: UrlId) {
        if let Some(gathered) = self.gathered.as_mut() {
            gathered.alone.remove(&url);
        }
    }

    /// Does a source show the whole, where that was asked before?
    pub(super) fn is_full(&self, source: SourceId) -> Option<bool> {
        self.gathered.as_ref()?.full.get(&source).copied()
    }

    /// Remembers whether it does for as long as the job lasts.
    pub(super) fn note_full(&mut self, source: SourceId, is_full: bool) {
        if let Some(gathered) = self.gathered.as_mut() {
            gathered.full.insert(source, is_full);
        }
    }

    /// The rows that a URL may have, where that was asked ahead.
    pub(super) fn known_ahead(&self, part: i64, hash: u64) -> Option<&[UrlId]> {
        Some(self.gathered.as_ref()?.known.get(&(part, hash))?)
    }

    /// The row that was read ahead of a URL.
    pub(super) fn row_ahead(&mut self, url: UrlId) -> Option<UrlRow> {
        self.gathered.as_mut()?.rows.remove(&url).map(|row| *row)
    }
}

impl State {
    /// Does work on many rows whose changes are gathered meanwhile on a server,
    /// and written at its end.
    pub(super) fn gathering<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.conn.embedded().is_some() || self.pending.gathered.is_some() {
            return work(self);
        }
        self.pending.gathered = Some(Box::default());
        // Where it fails, the job is taken back with what it has gathered.
        let done = work(self)?;
        self.write_pending()?;
        self.pending.gathered = None;
        Ok(done)
    }

    /// Finds and reads the rows of URLs that are about to be asked for, where changes are
    /// gathered. Of those nobody may make a row meanwhile.
    pub(super) fn look_up_ahead<'u>(
        &mut self,
        crawl: CrawlId,
        urls: impl IntoIterator<Item = &'u Url>,
    ) -> Result<(), StoreError> {
        if self.pending.gathered.is_none() {
            return Ok(());
        }
        let spellings = urls.into_iter().flat_map(identities).map(|url| {
            let authority = authority(&url);
            (url_key(self.seed, crawl, &authority, &url[Position::BeforePath..]), authority)
        });
        let mut sought: Vec<(u64, i64)> =
            spellings.map(|(hash, authority)| (hash, partition(&authority))).collect();
        sought.sort_unstable();
        sought.dedup();
        let order: Vec<_> = sought.iter().map(|(hash, _)| *hash).zip(0..).collect();
        let part_of = |number: usize| sought.get(number).map_or(0, |(_, part)| *part);
        let mut known: HashMap<(i64, u64), Vec<UrlId>> =
            sought.iter().map(|(hash, part)| ((*part, *hash), Vec::new())).collect();
        let mut found = |number: usize, id: UrlId| {
            let hash = sought.get(number).map_or(0, |(hash, _)| *hash);
            // The hash may be that of a URL of another partition, too.
            if let Some(rows) = known.get_mut(&(id.0 & 255, hash)).filter(|ids| !ids.contains(&id))
            {
                rows.push(id);
            }
        };
        let unsifted = (&Sifted::default(), 0..0);
        self.lookup
            .find_sorted(&self.conn, &order, unsifted, part_of, &mut found)
            .map_err(engine)?;
        self.read_rows_ahead(known.values().flatten().copied().collect::<Vec<_>>())?;
        if let Some(gathered) = &mut self.pending.gathered {
            gathered.known.extend(known);
        }
        Ok(())
    }

    /// Reads rows that are about to be asked for, where changes are gathered.
    pub(super) fn read_rows_ahead(
        &mut self,
        urls: impl IntoIterator<Item = UrlId>,
    ) -> Result<(), StoreError> {
        let Some(gathered) = &self.pending.gathered else { return Ok(()) };
        let is_wanted = |url: &UrlId| !gathered.rows.contains_key(url) && !self.pending.holds(*url);
        let mut wanted: Vec<UrlId> = urls.into_iter().filter(is_wanted).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut rows = Vec::with_capacity(wanted.len());
        read_urls(&self.conn, &wanted, |row| rows.push(Box::new(row)))?;
        if let Some(gathered) = &mut self.pending.gathered {
            gathered.rows.extend(rows.into_iter().map(|row| (row.id, row)));
        }
        Ok(())
    }

    /// Asks which of these URLs only one source speaks of, where changes are
    /// gathered and none of these is yet.
    pub(super) fn ask_who_is_alone(&mut self, urls: &[UrlId]) -> Result<(), StoreError> {
        let (Some(gathered), Some(session)) = (&mut self.pending.gathered, self.conn.server())
        else {
            return Ok(());
        };
        let alone = &mut gathered.alone;
        let values = |url: &UrlId, row: &mut Vec<i64>| row.push(url.0);
        let read = |row: &sql::Row<'_>| {
            alone.insert(UrlId(row.get(0)?));
            Ok(())
        };
        ALONE.query(session, urls, values, read).map_err(engine)
    }

    /// Writes what is gathered but for places, which go with those of leases;
    /// these are added to `places`, where URLs stand to `kept`.
    pub(super) fn write_gathered(
        &mut self,
        places: &mut Vec<(Place, Option<SiteId>)>,
        kept: &mut Vec<EndedLease>,
    ) -> sql::Result<()> {
        let Some(gathered) = &mut self.pending.gathered else { return Ok(()) };
        places.extend(gathered.places.drain().map(|(_, place)| place));
        kept.extend(gathered.kept.drain().map(|(_, kept)| kept));
        let mut changed: Vec<(UrlId, Changed)> = gathered.changed.drain().collect();
        let sides = std::mem::take(&mut gathered.sides);
        let Some(session) = self.conn.server() else { return Ok(()) };
        changed.sort_unstable_by_key(|(url, _)| *url);
        CHANGE.send(session, &changed, |(url, changed), row| {
            let (second, precision) = lastmod_columns(changed.lastmod);
            let (reason, band) = changed
                .place
                .map_or((STAYS, STAYS), |(reason, band)| (reason as i64, i64::from(band)));
            row.extend([
                url.0,
                second.unwrap_or(STAYS),
                precision.unwrap_or(STAYS),
                changed.hints.map_or(STAYS, |hints| hints.to_bits().into()),
                changed.listed.map_or(STAYS, i64::from),
                changed.kind.map_or(STAYS, |kind| kind as i64),
                reason,
                band,
            ]);
        })?;
        SIDE.send(session, &sides, |(url, source), row| row.extend([url.0, source.0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CrawlId, HostId};

    fn place(band: u8) -> Place {
        Place { crawl: CrawlId(1), host: HostId(1), band, due_s: 5, url: UrlId(9), valued: false }
    }

    #[test]
    fn a_url_that_moves_twice_leaves_its_first_place_and_has_the_last() {
        let mut pending = Pending::default();
        pending.gathered = Some(Box::default());
        for band in 1..4 {
            assert!(pending.vacate(place(band)));
            assert!(pending.enter(place(band + 1), None));
        }
        assert!(pending.holds(UrlId(9)));
        assert_eq!(pending.left(), [place(1)]);
        let gathered = pending.gathered.unwrap();
        let places: Vec<_> = gathered.places.values().collect();
        assert_eq!(places, [&(place(4), None)]);
    }

    #[test]
    fn nothing_is_taken_over_where_nothing_is_gathered() {
        let mut pending = Pending::default();
        assert!(!pending.vacate(place(1)) && !pending.enter(place(2), None));
        assert!(pending.changed(UrlId(9)).is_none());
        assert!(!pending.side(UrlId(9), SourceId(1)) && !pending.holds(UrlId(9)));
    }
}
