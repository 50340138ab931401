//! Where a host's list begins with URLs of sites that are paused, or have left: those are
//! stepped over once, and not at each look.
//!
//! Of each band it is remembered up to which row there are no others. That stays so until
//! one of another site is queued before that row, or the sites are others: then it is
//! cut, or forgotten. All of it is in memory only, and bounded; what a job that is taken
//! back has seen is forgotten with it.

use std::collections::BTreeMap;

use super::turns::Place;
use crate::by_id::ById;
use crate::model::{CrawlId, HostId};

/// Hosts remembered at most; with more, all are walked from their heads again.
const HOSTS: usize = 4_096;
/// So many are stepped over again and again rather than remembered: a look of its own at
/// the rest of the band takes as long.
const FEW: usize = 64;

/// A row of a host's list: its band, its due time and its number.
pub(super) type Spot = (i64, (i64, i64));

/// Due time and number of the last row of a head, by its band.
type Heads = BTreeMap<i64, (i64, i64)>;

/// The heads of lists.
#[derive(Debug, Default)]
pub(super) struct PausedHeads {
    of_list: ById<(CrawlId, HostId), Heads>,
}

impl PausedHeads {
    /// The last row of the head of a band.
    pub(super) fn of(&self, list: (CrawlId, HostId), band: i64) -> Option<(i64, i64)> {
        self.of_list.get(&list)?.get(&band).copied()
    }

    /// So many rows of a band, up to this one, were stepped over from its head on.
    pub(super) fn note(&mut self, list: (CrawlId, HostId), (band, row): Spot, rows: usize) {
        if rows < FEW && self.of(list, band).is_none() {
            return;
        }
        if self.of_list.len() >= HOSTS && !self.of_list.contains_key(&list) {
            self.of_list.clear();
        }
        self.of_list.entry(list).or_default().insert(band, row);
    }

    /// A URL is queued that no paused site holds back.
    pub(super) fn queued(&mut self, place: &Place) {
        let heads = self.of_list.get_mut(&(place.crawl, place.host));
        let Some(last) = heads.and_then(|heads| heads.get_mut(&i64::from(place.band))) else {
            return;
        };
        *last = (*last).min((place.due_s, place.url.0 - 1));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_list.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.of_list.clear();
    }
}

/// A walk's way through the head of a band.
#[derive(Debug, Default)]
pub(super) struct Head {
    band: Option<i64>,
    /// Up to this row there were none but those of paused sites.
    last: Option<(i64, i64)>,
    rows: usize,
    has_ended: bool,
}

impl Head {
    /// The walk goes on behind a row of a band, which is the last of its head, or not.
    pub(super) fn behind(band: i64, last: Option<(i64, i64)>) -> Self {
        Self { band: Some(band), last, rows: 0, has_ended: last.is_none() }
    }

    /// Does a band begin at a row of this one?
    pub(super) fn is_next(&self, band: i64) -> bool {
        self.band.is_some_and(|at| at != band)
    }

    /// A row of a paused site; `true` where it is the first of its band.
    pub(super) fn pass(&mut self, band: i64, row: (i64, i64)) -> bool {
        let is_first = self.band != Some(band);
        if is_first {
            *self = Self { band: Some(band), ..Self::default() };
        }
        if !self.has_ended {
            self.last = Some(row);
            self.rows += 1;
        }
        is_first
    }

    /// A row of another site, or the end of the band: what there is to be remembered.
    pub(super) fn end(&mut self, band: Option<i64>) -> Option<(Spot, usize)> {
        let head = self.band.zip(self.last).filter(|_| !self.has_ended && self.rows > 0);
        let ended = head.map(|head| (head, self.rows));
        if band.is_some() && self.band != band {
            *self = Self { band, ..Self::default() };
        }
        self.has_ended = true;
        ended
    }
}
