//! Which keys a snapshot has, for whoever asks for tens of thousands of them in any
//! order. Keys are hashes, so by their first bits nearly each has a place of its own;
//! a search by halves leaves the caches ten times for each.

use super::snapshot::{Snapshot, SnapshotEntry};

/// The keys of a snapshot, by their first bits.
#[derive(Debug)]
pub(super) struct Keys<'k> {
    entries: &'k [SnapshotEntry],
    /// Where the entries of each beginning start; one more says where the last ones
    /// end. Four to eight bytes an entry.
    starts: Vec<u32>,
    /// Bits of a key behind its beginning.
    rest: u32,
}

impl<'k> Keys<'k> {
    pub(super) fn of(snapshot: &'k Snapshot) -> Self {
        let entries = snapshot.entries();
        // One bit at least: a shift by all of them is none.
        let bits = (usize::BITS - entries.len().leading_zeros()).max(1);
        let rest = u64::BITS - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (at, entry) in (0_u32..).zip(entries) {
            while starts.len() as u64 <= entry.key >> rest {
                starts.push(at);
            }
        }
        starts.resize((1 << bits) + 1, u32::try_from(entries.len()).unwrap_or(u32::MAX));
        Self { entries, starts, rest }
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        let beginning = usize::try_from(key >> self.rest).unwrap_or(usize::MAX);
        let Some(&[start, end]) = self.starts.get(beginning..).and_then(<[u32]>::first_chunk)
        else {
            return false;
        };
        let alike = self.entries.get(start as usize..end as usize).unwrap_or_default();
        alike.iter().any(|entry| entry.key == key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::snapshot::{EntryHints, Rejection, Row};
    use super::*;

    fn snapshot(keys: impl IntoIterator<Item = u64>) -> Snapshot {
        let entry = |key| SnapshotEntry {
            key,
            row: Row::Rejected(Rejection::Invalid),
            lastmod: None,
            hints: EntryHints::default(),
            digest: 0,
            misses: 0,
            missing_since: None,
        };
        Snapshot::from_unsorted(keys.into_iter().map(entry).collect())
    }

    proptest! {
        #[test]
        fn what_a_snapshot_has_is_found_and_nothing_else(
            spread in prop::collection::btree_set(any::<u64>(), 0..300),
            close in prop::collection::btree_set(0_u64..40, 0..40),
            others in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let all: std::collections::BTreeSet<u64> =
                spread.iter().chain(&close).copied().chain([0, u64::MAX]).collect();
            let snapshot = snapshot(all.iter().copied());
            let keys = Keys::of(&snapshot);
            for key in all.iter().chain(&others).copied().chain(0..45) {
                prop_assert_eq!(keys.contains(key), all.contains(&key), "{}", key);
            }
        }
    }

    #[test]
    fn an_empty_snapshot_has_no_key() {
        let empty = snapshot([]);
        let keys = Keys::of(&empty);
        assert!([0, 1, u64::MAX].into_iter().all(|key| !keys.contains(key)));
        let one = snapshot([7]);
        assert!(Keys::of(&one).contains(7) && !Keys::of(&one).contains(8));
    }
}
