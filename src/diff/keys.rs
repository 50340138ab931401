//! Which keys a snapshot has, as far as 32 bits of each tell, for whoever asks for tens
//! of thousands of them in any order. Keys are hashes, so by their first bits nearly
//! each has a place of its own; a search by halves in the snapshot leaves the caches
//! ten times for each, and one look at an entry of it once.

use super::snapshot::{KEY_BITS, Snapshot};

/// The keys of a snapshot, by their first bits: eight to twelve bytes an entry.
#[derive(Debug)]
pub(super) struct Keys {
    /// Where the tags of each beginning start; one more says where the last ones end.
    starts: Vec<u32>,
    /// Of each key the 32 bits behind its beginning.
    tags: Vec<u32>,
    /// Bits of a key behind its beginning.
    rest: u32,
}

impl Keys {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let entries = snapshot.entries();
        let bits = usize::BITS - entries.len().leading_zeros();
        let rest = KEY_BITS.saturating_sub(bits);
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        let tags = entries.iter().map(|entry| tag(entry.key, rest)).collect();
        for (at, entry) in (0_u32..).zip(entries) {
            while starts.len() as u64 <= entry.key >> rest {
                starts.push(at);
            }
        }
        starts.resize((1 << bits) + 1, u32::try_from(entries.len()).unwrap_or(u32::MAX));
        Self { starts, tags, rest }
    }

    /// May the snapshot have a key? Of those that it has not, one in many millions may.
    pub(super) fn may_have(&self, key: u64) -> bool {
        let beginning = usize::try_from(key >> self.rest).unwrap_or(usize::MAX);
        let Some(&[start, end]) = self.starts.get(beginning..).and_then(<[u32]>::first_chunk)
        else {
            return false;
        };
        let alike = self.tags.get(start as usize..end as usize).unwrap_or_default();
        alike.contains(&tag(key, self.rest))
    }
}

/// The 32 bits of a key that stand before the last `rest` less 32.
#[allow(clippy::cast_possible_truncation)] // what is above is its beginning
fn tag(key: u64, rest: u32) -> u32 {
    (key >> rest.saturating_sub(u32::BITS)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::snapshot::{EntryHints, Rejection, Row, SnapshotEntry};
    use super::*;

    const MAX_KEY: u64 = (1 << KEY_BITS) - 1;

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
            spread in prop::collection::btree_set(0..=MAX_KEY, 0..300),
            // Alike in more than their first bits.
            close in prop::collection::btree_set((0_u64..40).prop_map(|key| key << 32), 0..40),
            others in prop::collection::vec(0..=MAX_KEY, 0..50),
        ) {
            let all: std::collections::BTreeSet<u64> =
                spread.iter().chain(&close).copied().chain([0, MAX_KEY]).collect();
            let snapshot = snapshot(all.iter().copied());
            let keys = Keys::of(&snapshot);
            for key in all.iter().chain(&others).copied().chain((0..45).map(|key| key << 32)) {
                prop_assert_eq!(keys.may_have(key), all.contains(&key), "{}", key);
            }
        }
    }

    #[test]
    fn an_empty_snapshot_has_no_key() {
        let empty = snapshot([]);
        let keys = Keys::of(&empty);
        assert!([0, 1, MAX_KEY].into_iter().all(|key| !keys.may_have(key)));
        let one = snapshot([7 << 40]);
        assert!(Keys::of(&one).may_have(7 << 40) && !Keys::of(&one).may_have(8 << 40));
    }
}
