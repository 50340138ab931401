//! What is packed comes back, in as few bytes as it needs.

use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::model::Precision;
use crate::recrawl::model::UrlState;

fn hash() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9a-f]{16}", "[0-9a-f]{64}", "[0-9a-f]{7}", "[0-9A-F]{8}", "\\PC{0,40}"]
}

prop_compose! {
    fn rare()(
        hash_kind in of("[a-z0-9]{1,12}"),
        folded in of(1..i64::MAX),
        canonical in of("https://[a-z]{1,9}/\\PC{0,20}"),
        error in of("\\PC{0,60}"),
    ) -> Rare {
        Rare { hash_kind, folded_into: folded.map(UrlId), canonical, error }
    }
}

prop_compose! {
    fn fetched()(
        at in 0..4_000_000_000_000_i64,
        outcome in proptest::sample::select(Outcome::ALL.to_vec()),
        status in of(100..600_u16),
        fetches in prop_oneof![any::<u64>(), 0..20_u64],
        changes in prop_oneof![0..1_000_u64, 0..20_u64],
        noindex in any::<bool>(),
        content_hash in of(hash()),
        rare in rare(),
    ) -> Fetched {
        let mut fetched =
            Fetched { status, fetches, changes, noindex, content_hash, ..Fetched::first(at, outcome) };
        fetched.set_rare(rare);
        fetched
    }
}

prop_compose! {
    fn record()(
        ended in of((any::<[u8; 16]>(), 0..End::ALL.len(), 0..4_000_000_000_000_i64)),
        fetched in of(fetched()),
        looks in of(any::<[u8; PACKED]>()),
        giver in of(1..i64::MAX),
        gone in 0..5_u32,
        held_since in of(0..4_000_000_000_000_i64),
        previous in of((-2_000_000_000..4_000_000_000_i64, 0..Precision::ALL.len())),
        not_before_s in of(any::<i64>()),
        is_one in any::<bool>(),
    ) -> Record {
        // As a rule the report and the end of the lease are one moment.
        let reported = fetched.as_ref().map(|fetched| fetched.at).filter(|_| is_one);
        Record {
            ended: ended.map(|(secret, how, at)| {
                Ended::new(secret, End::ALL[how], reported.unwrap_or(at))
            }),
            fetched,
            looks,
            giver: giver.map(SourceId),
            gone,
            held_since,
            previous: previous.and_then(|(s, p)| lastmod(Some(s), i64::try_from(p).ok())),
            not_before_s,
        }
    }
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(record in record()) {
        prop_assert_eq!(Record::unpack(&record.pack()), record);
    }

    #[test]
    fn bytes_cut_short_or_made_up_are_read_without_harm(
        record in record(), cut in any::<prop::sample::Index>(), noise in any::<Vec<u8>>(),
    ) {
        let packed = record.pack();
        let _ = Record::unpack(&packed[..cut.index(packed.len())]);
        let _ = Record::unpack(&noise);
    }
}

#[test]
fn a_record_takes_no_bytes_for_what_says_nothing() {
    let (at, ended) = (1_795_000_000_000, 1_795_000_012_120);
    let seen = Timestamp::from_millisecond(at).unwrap();
    let looks = UrlState::first(seen).pack();
    let fetched = Fetched {
        status: Some(200),
        fetches: 90,
        changes: 12,
        content_hash: Some("0123456789abcdef".to_owned()),
        ..Fetched::first(at, Outcome::Changed)
    };
    let once = Record {
        ended: Some(Ended::new([7; 16], End::Settled, ended)),
        fetched: Some(fetched),
        looks: Some(looks),
        ..Record::default()
    };
    assert_eq!(once.pack().len(), 22);
    let at_once = Ended::new([7; 16], End::Settled, at);
    let mut at_once = Record { ended: Some(at_once), ..once.clone() };
    assert_eq!(at_once.pack().len(), 21);
    at_once.fetched.as_mut().unwrap().fetches = 15;
    assert_eq!(at_once.pack().len(), 20);
    at_once.fetched.as_mut().unwrap().changes = 16;
    assert_eq!(at_once.pack().len(), 21);

    let mut unchanged = looks;
    unchanged[8] = 9;
    assert_eq!(Record { looks: Some(unchanged), ..once.clone() }.pack().len(), 28);
    let mut changed = unchanged;
    changed[4] = 9;
    assert_eq!(Record { looks: Some(changed), ..once.clone() }.pack().len(), 32);
    let mut earlier = changed;
    earlier[0] ^= 1;
    assert_eq!(Record { looks: Some(earlier), ..once }.pack().len(), 37);
    assert_eq!(Record::default().pack().len(), 1);
}

/// The form of records that were written when everything was said in full.
#[test]
fn how_long_after_its_report_a_lease_ended_and_small_counts_may_be_said_in_full() {
    let second = 1_795_000_000_u32.to_le_bytes();
    let (parts, word) = ([3], [0, 0]);
    let said = [&parts[..], &word, &second, &[7; 3], &[0], &[1, 0]].concat();
    let record = Record::unpack(&said);
    assert_eq!(record.ended, Some(Ended::new([7; 16], End::Settled, 1_795_000_000_000)));
    let counts = record.fetched.as_ref().map(|fetched| (fetched.fetches, fetched.changes));
    assert_eq!(counts, Some((1, 0)));
    assert_eq!(record.pack().len(), said.len() - 2);
}

#[test]
fn a_time_that_is_out_of_range_is_the_nearest_that_is_not() {
    let record = |at| Record {
        ended: Some(Ended::new([7; 16], End::Expired, 1_795_000_000_000)),
        fetched: Some(Fetched::first(at, Outcome::Failed)),
        ..Record::default()
    };
    for (at, read) in [(-5_000, 0), (i64::from(u32::MAX) * 1000 + 5_000, 4_294_967_295_000)] {
        let fetched = Record::unpack(&record(at).pack()).fetched.unwrap();
        assert_eq!(fetched.at, read);
    }
}
