//! The numbers of hosts, sources and URLs on a server: those of the file, with
//! the partition of the host in the last eight bits.
//!
//! Keeps: no two rows of the file get one number, and their order stays. A row
//! that is gone (change events and snapshots may name one) has no partition that
//! anybody knows: it gets 0, under which no other row can be. One byte a row is
//! kept in memory.

use std::collections::HashMap;

use super::super::changes;
use super::super::record::{Rare, Record};
use crate::diff::snapshot::{Row, Snapshot};
use crate::model::{SourceId, UrlId};

/// Partitions kept together.
const PAGE: i64 = 1 << 16;
/// The highest number that has room for a partition.
pub(super) const MAX_ID: i64 = i64::MAX >> 8;

/// The partitions of rows by their numbers.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pages: HashMap<i64, Vec<u8>>,
}

impl Parts {
    pub(super) fn set(&mut self, id: i64, part: u8) {
        let (page, place) = Self::place(id);
        let page = self.pages.entry(page).or_insert_with(|| vec![0; 1 << 16]);
        if let Some(kept) = page.get_mut(place) {
            *kept = part;
        }
    }

    pub(super) fn get(&self, id: i64) -> u8 {
        let (page, place) = Self::place(id);
        self.pages.get(&page).and_then(|page| page.get(place)).copied().unwrap_or(0)
    }

    /// The number on a server.
    pub(super) fn new_id(&self, id: i64) -> i64 {
        id << 8 | i64::from(self.get(id))
    }

    fn place(id: i64) -> (i64, usize) {
        // Less than a page, whatever the sign.
        let place = usize::try_from(id.rem_euclid(PAGE)).unwrap_or(0);
        (id.div_euclid(PAGE), place)
    }
}

/// All numbers that change.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pub(super) hosts: Parts,
    pub(super) sources: Parts,
    pub(super) urls: Parts,
}

impl Ids {
    fn url(&self, id: UrlId) -> UrlId {
        UrlId(self.urls.new_id(id.0))
    }

    /// A snapshot whose rows have their new numbers. One that is damaged stays
    /// as it is: its source is read anew, here as there.
    pub(super) fn snapshot(&self, data: Vec<u8>) -> Vec<u8> {
        let Ok(snapshot) = Snapshot::decode(&data) else { return data };
        let mut entries = snapshot.into_entries();
        for entry in &mut entries {
            if let Row::Url(id) = &mut entry.row {
                *id = self.url(*id);
            }
        }
        Snapshot::from_unsorted(entries).encode()
    }

    /// The same of a row of the log of changes.
    pub(super) fn changes(&self, data: &[u8]) -> Vec<u8> {
        changes::renumbered(data, |id| self.url(id))
    }

    /// The same of what is kept of a URL. One that is in the queue, as those are
    /// whose leases go, is not held out of it.
    pub(super) fn record(&self, packed: Vec<u8>, is_queued: bool) -> Vec<u8> {
        let mut record = Record::unpack(&packed);
        let folded = record.rare().and_then(|rare| rare.folded_into);
        let is_held = is_queued && record.held_since.is_some();
        if folded.is_none() && record.giver.is_none() && !is_held {
            return packed;
        }
        record.giver = record.giver.map(|source| SourceId(self.sources.new_id(source.0)));
        if is_queued {
            record.held_since = None;
        }
        if let (Some(target), Some(fetched)) = (folded, &mut record.fetched) {
            let rare = fetched.rare.take().map_or_else(Rare::default, |rare| *rare);
            fetched.set_rare(Rare { folded_into: Some(self.url(target)), ..rare });
        }
        record.pack()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::Fetched;
    use super::*;
    use crate::diff::snapshot::{EntryHints, Rejection, SnapshotEntry};
    use crate::model::Outcome;

    fn ids() -> Ids {
        let mut ids = Ids::default();
        ids.urls.set(1, 255);
        ids.urls.set(2, 7);
        ids.urls.set(1 << 40, 9);
        ids.sources.set(3, 5);
        ids
    }

    #[test]
    fn a_number_has_its_partition_in_the_last_eight_bits_and_keeps_its_order() {
        let urls = ids().urls;
        for (old, new) in [(1, 511), (2, 519), (3, 768), (1 << 40, (1 << 48) + 9)] {
            assert_eq!(urls.new_id(old), new);
        }
        assert_eq!(urls.new_id(MAX_ID) >> 8, MAX_ID);
    }

    #[test]
    fn rows_in_a_snapshot_get_their_new_numbers_and_nothing_else_changes() {
        let entry = |key, row| SnapshotEntry {
            key,
            row,
            lastmod: None,
            hints: EntryHints::default(),
            digest: 4,
            misses: 1,
            missing_since: Some(77),
        };
        let rejected = Row::Rejected(Rejection::Quota);
        let snapshot = |first, second| {
            let rows =
                [(10, Row::Url(UrlId(first))), (11, rejected), (12, Row::Url(UrlId(second)))];
            Snapshot::from_unsorted(rows.map(|(key, row)| entry(key, row)).to_vec())
        };
        let data = ids().snapshot(snapshot(1, 2).encode());
        assert_eq!(Snapshot::decode(&data), Ok(snapshot(511, 519)));
        assert_eq!(ids().snapshot(b"damaged".to_vec()), b"damaged");
    }

    #[test]
    fn a_record_names_the_new_row_that_a_page_redirects_to() {
        let record = |target: i64, held_since| {
            let mut fetched = Fetched::first(5, Outcome::Redirected);
            let error = Some("moved".to_owned());
            fetched.set_rare(Rare { folded_into: Some(UrlId(target)), error, ..Rare::default() });
            Record { fetched: Some(fetched), held_since, gone: 2, ..Record::default() }
        };
        let ids = ids();
        let new = ids.record(record(2, Some(8)).pack(), false);
        assert_eq!(Record::unpack(&new), record(519, Some(8)));
        let new = ids.record(record(2, Some(8)).pack(), true);
        assert_eq!(Record::unpack(&new), record(519, None));
        // What says nothing of rows stays what it was, down to its bytes.
        assert_eq!(ids.record(b"no record".to_vec(), true), b"no record");
    }

    #[test]
    fn a_record_names_the_new_row_of_the_source_that_gave_its_signals() {
        let record = |source| Record { giver: Some(SourceId(source)), ..Record::default() };
        let new = ids().record(record(3).pack(), false);
        assert_eq!(Record::unpack(&new), record((3 << 8) + 5));
    }
}
