//! Laws of the snapshot: it survives being written, and notices being damaged.

use jiff::Timestamp;
use proptest::prelude::*;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::{EntryHints, KEY_BITS, Rejection, Row, Snapshot, SnapshotEntry};
use crate::model::{ChangeFreq, Lastmod, Precision, Priority, UrlId};

const MAX_KEY: u64 = (1 << KEY_BITS) - 1;

fn row() -> impl Strategy<Value = Row> {
    prop_oneof![
        4 => (0_i64..1_000_000).prop_map(|id| Row::Url(UrlId(id))),
        1 => any::<i64>().prop_map(|id| Row::Url(UrlId(id))),
        1 => prop::sample::select(&Rejection::ALL[..]).prop_map(Row::Rejected),
    ]
}

fn lastmod() -> impl Strategy<Value = Option<Lastmod>> {
    let second = prop_oneof![
        -377_705_023_201_i64..=253_402_207_200,
        (0_i64..20_000).prop_map(|day| day * 86_400),
    ];
    let lastmod =
        (second, prop::sample::select(&Precision::ALL[..])).prop_map(|(second, precision)| {
            Lastmod { at: Timestamp::from_second(second).expect("a second in range"), precision }
        });
    prop::option::of(lastmod)
}

fn hints() -> impl Strategy<Value = EntryHints> {
    let changefreq = prop::option::of(prop::sample::select(&ChangeFreq::ALL[..]));
    let priority =
        prop::option::of((0_u16..=1000).prop_map(|thousandths| {
            Priority::from_thousandths(thousandths).expect("at most 1000")
        }));
    (changefreq, priority).prop_map(|(changefreq, priority)| EntryHints { changefreq, priority })
}

fn entry() -> impl Strategy<Value = SnapshotEntry> {
    let key = prop_oneof![3 => 0..=MAX_KEY, 1 => 0_u64..300, 1 => MAX_KEY - 300..=MAX_KEY];
    let missing = (prop_oneof![Just(0_u8), any::<u8>()], prop::option::of(any::<i64>()));
    (key, row(), lastmod(), hints(), any::<u32>(), missing).prop_map(
        |(key, row, lastmod, hints, digest, (misses, missing_since))| SnapshotEntry {
            key,
            row,
            lastmod,
            hints,
            digest,
            misses,
            missing_since,
        },
    )
}

#[test]
fn of_entries_with_one_key_the_first_stays_sorted_or_not() {
    for keys in [&[1, 2, 2, 3][..], &[2, 1, 3, 2]] {
        let entries = (0..).zip(keys).map(|(row, key)| {
            let row = Row::Url(UrlId(row));
            SnapshotEntry { row, ..plain(*key) }
        });
        let entries: Vec<_> = entries.collect();
        let first = entries.iter().find(|entry| entry.key == 2).map(|entry| entry.row);
        let snapshot = Snapshot::from_unsorted(entries);
        let kept: Vec<_> = snapshot.entries().iter().map(|entry| entry.key).collect();
        assert_eq!(kept, [1, 2, 3], "{keys:?}");
        assert_eq!(Some(snapshot.entries()[1].row), first);
    }
}

fn plain(key: u64) -> SnapshotEntry {
    SnapshotEntry {
        key,
        row: Row::Url(UrlId(7)),
        lastmod: None,
        hints: EntryHints::default(),
        digest: 0,
        misses: 0,
        missing_since: None,
    }
}

/// A sitemap at the protocol's limit: every date and every row differs.
fn full_sitemap(lastmod: impl Fn(u64) -> Lastmod, digest: impl Fn(u64) -> u32) -> Snapshot {
    let entries = (0..50_000_u64).map(|n| SnapshotEntry {
        row: Row::Url(UrlId(3_000_000 + i64::try_from(n).expect("small"))),
        lastmod: Some(lastmod(n)),
        hints: EntryHints { changefreq: Some(ChangeFreq::Daily), priority: None },
        digest: digest(n),
        ..plain(xxh3_64(&n.to_le_bytes()) >> 8)
    });
    Snapshot::from_unsorted(entries.collect())
}

/// Within two years, to the second.
fn spread_over_two_years(n: u64) -> Lastmod {
    let offset = xxh3_64(&(n + 1).to_be_bytes()) % (2 * 365 * 86_400);
    Lastmod {
        at: Timestamp::from_second(1_700_000_000 + offset.cast_signed()).expect("in range"),
        precision: Precision::Second,
    }
}

/// Puts the right checksum on, as an attacker would.
fn reseal(bytes: &mut [u8]) {
    let mut hasher = Xxh3Default::new();
    hasher.update(&bytes[..1]);
    hasher.update(&bytes[9..]);
    let checksum = hasher.digest().to_le_bytes();
    bytes[1..9].copy_from_slice(&checksum);
}

proptest! {
    #[test]
    fn a_snapshot_survives_being_written_and_read(
        entries in prop::collection::vec(entry(), 0..400),
    ) {
        let snapshot = Snapshot::from_unsorted(entries);
        prop_assert_eq!(Snapshot::decode(&snapshot.encode()), Ok(snapshot));
    }

    #[test]
    fn any_flipped_byte_is_noticed(
        entries in prop::collection::vec(entry(), 0..40),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        let mut bytes = Snapshot::from_unsorted(entries).encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(Snapshot::decode(&bytes).is_err());
    }

    #[test]
    fn a_cut_or_lengthened_snapshot_is_noticed(
        entries in prop::collection::vec(entry(), 0..40),
        at in any::<prop::sample::Index>(),
    ) {
        let bytes = Snapshot::from_unsorted(entries).encode();
        prop_assert!(Snapshot::decode(&bytes[..at.index(bytes.len())]).is_err());
        prop_assert!(Snapshot::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn forged_bytes_with_a_right_checksum_do_no_harm(
        entries in prop::collection::vec(entry(), 0..40),
        forgeries in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = Snapshot::from_unsorted(entries).encode();
        for (at, value) in forgeries {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        reseal(&mut bytes);
        if let Ok(snapshot) = Snapshot::decode(&bytes) {
            prop_assert!(snapshot.len() <= bytes.len());
            prop_assert!(snapshot.entries().is_sorted_by(|a, b| a.key < b.key));
        }
    }

    #[test]
    fn both_hints_survive_in_sixteen_bits(hints in hints()) {
        prop_assert_eq!(EntryHints::from_bits(hints.to_bits()), Some(hints));
    }
}

#[test]
fn a_count_that_the_bytes_cannot_hold_is_refused_before_memory_is_taken() {
    let mut bytes = vec![1; 9];
    bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    reseal(&mut bytes);
    let error = Snapshot::decode(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "damaged snapshot: more entries than bytes");
}

#[test]
fn an_unknown_version_is_refused() {
    let mut bytes = Snapshot::new().encode();
    bytes[0] = 3;
    reseal(&mut bytes);
    assert!(Snapshot::decode(&bytes).is_err());
}

#[test]
fn a_snapshot_with_keys_of_all_bits_is_read_by_the_first_of_them() {
    let wide = [3, 0xfe00, 0xff01, 0xff02, u64::MAX].map(plain).to_vec();
    let mut bytes = Snapshot::from_unsorted(wide).encode();
    assert!(Snapshot::decode(&bytes).is_err(), "no such keys are written any more");
    bytes[0] = 1;
    reseal(&mut bytes);
    let read = Snapshot::decode(&bytes).unwrap();
    assert_eq!(read.entries(), [0, 0xfe, 0xff, MAX_KEY].map(plain));
}

#[test]
fn of_entries_with_one_key_the_first_stays() {
    let second = SnapshotEntry { digest: 1, ..plain(5) };
    let snapshot = Snapshot::from_unsorted(vec![plain(9), plain(5), second]);
    assert_eq!(snapshot.entries(), [plain(5), plain(9)]);
}

#[test]
fn a_lastmod_is_kept_to_the_second_with_its_precision() {
    let written: Timestamp = "2026-11-21T08:30:05.25Z".parse().expect("a timestamp");
    let lastmod = Some(Lastmod { at: written, precision: Precision::Fraction });
    let snapshot = Snapshot::from_unsorted(vec![SnapshotEntry { lastmod, ..plain(1) }]);
    let kept = snapshot.entries()[0].lastmod.expect("it had one");
    assert_eq!(kept.at.to_string(), "2026-11-21T08:30:05Z");
    assert_eq!(kept.precision, Precision::Fraction);
}

#[test]
fn a_full_sitemap_takes_fifteen_bytes_an_entry() {
    let bare = full_sitemap(spread_over_two_years, |_| 0).encode().len();
    assert!(bare <= 50_000 * 11, "{bare} bytes without digests");
    let digested = full_sitemap(spread_over_two_years, |n| {
        xxh3_64(&n.to_be_bytes()).to_le_bytes()[0..4]
            .try_into()
            .map(u32::from_le_bytes)
            .expect("four bytes")
    });
    let digested = digested.encode().len();
    assert!(digested <= 50_000 * 15, "{digested} bytes with digests");
}

#[test]
fn dates_without_a_time_take_days_not_seconds() {
    let day = |n: u64| Lastmod {
        at: Timestamp::from_second((19_000 + (n % 1000).cast_signed()) * 86_400).expect("a day"),
        precision: Precision::Day,
    };
    let bytes = full_sitemap(day, |_| 0).encode().len();
    assert!(bytes <= 50_000 * 9, "{bytes} bytes");
}

#[test]
fn a_column_of_equal_values_costs_nothing_per_entry() {
    let few = Snapshot::from_unsorted((0..100).map(plain).collect()).encode().len();
    let more = Snapshot::from_unsorted((0..200).map(plain).collect()).encode().len();
    // A byte for each key, and one for the width of the second block.
    assert_eq!(more - few, 100 + 1 + 1);
}

#[test]
fn every_rejection_has_a_code_and_a_word_of_its_own() {
    for (index, reason) in Rejection::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index + 1);
        assert_eq!(Rejection::ALL.iter().filter(|r| r.as_str() == reason.as_str()).count(), 1);
    }
}
