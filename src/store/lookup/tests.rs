//! The lookup against a plain map, through merges, rollbacks and restarts.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rusqlite::Connection;
use xxhash_rust::xxh3::xxh3_64;

use super::*;

const SCHEMA: &str = include_str!("../../../schema.sql");

/// Small, so that few entries make many runs.
const TEST_TAIL: usize = 8;

fn database() -> Connection {
    let conn = Connection::open_in_memory().expect("a database");
    conn.execute_batch(SCHEMA).expect("the schema");
    conn
}

fn hash(n: u64) -> u64 {
    xxh3_64(&n.to_le_bytes())
}

/// What the lookup has to know, whole hashes included.
#[derive(Debug, Clone, Default)]
struct Model {
    entries: BTreeSet<(u64, UrlId)>,
}

impl Model {
    /// All rows whose hash is the same in the bits that are kept.
    fn find(&self, hash: u64) -> Vec<UrlId> {
        let same = |&&(other, _): &&(u64, UrlId)| cut(other) == cut(hash);
        let mut found: Vec<_> = self.entries.iter().filter(same).map(|&(_, id)| id).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn found(lookup: &Lookup, conn: &Connection, hash: u64) -> Vec<UrlId> {
    let mut out = vec![UrlId(-1)];
    lookup.find(conn, hash, &mut out).expect("found");
    assert_eq!(out.remove(0), UrlId(-1), "what was there stays");
    out.sort_unstable();
    out
}

fn in_order(probes: &[u64]) -> Vec<(u64, usize)> {
    let mut order: Vec<_> = probes.iter().copied().zip(0..).collect();
    order.sort_unstable();
    order
}

/// `sifted` may be that of a time before.
fn assert_equal(
    lookup: &Lookup,
    conn: &Connection,
    model: &Model,
    probes: &[u64],
    sifted: &Sifted,
) {
    for &hash in probes {
        let wanted = model.find(hash);
        assert_eq!(found(lookup, conn, hash), wanted);
        assert_eq!(find_on_disk(conn, hash).expect("found"), wanted);
    }
    let order = in_order(probes);
    // Whole, and as if it had been cut.
    let cut = probes.len() / 3;
    for numbers in [0..probes.len(), 0..cut, cut..probes.len()] {
        let mut batch = vec![BTreeSet::new(); probes.len()];
        let mut take = |number: usize, id| {
            batch[number].insert(id);
        };
        let mut order = order.clone();
        order.retain(|(_, number)| numbers.contains(number));
        lookup.find_sorted(conn, &order, (sifted, numbers.clone()), &mut take).expect("found");
        for ((number, hash), found) in probes.iter().enumerate().zip(batch) {
            let wanted = if numbers.contains(&number) { model.find(*hash) } else { Vec::new() };
            assert_eq!(found.into_iter().collect::<Vec<_>>(), wanted);
        }
    }
}

/// Every stored entry is within its run's claim, and no row belongs to nobody.
fn assert_tidy(lookup: &Lookup, conn: &Connection) {
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count");
    let on_disk = count("SELECT count(*) FROM lookup_runs");
    assert_eq!(usize::try_from(on_disk).expect("small"), lookup.runs.len());
    for table in ["lookup_chunks", "lookup_filters"] {
        let ownerless = format!(
            "SELECT count(*) FROM {table} WHERE id >> 32 NOT IN (SELECT id FROM lookup_runs)"
        );
        assert_eq!(count(&ownerless), 0, "{table}");
    }
    let resident: usize = lookup.runs.iter().map(Run::resident_bytes).sum();
    assert_eq!(lookup.resident.get(), resident);
}

#[derive(Debug, Clone)]
enum Op {
    /// So many hashes from this one on, in one transaction.
    Insert {
        from: u64,
        count: u64,
        rollback: bool,
    },
    /// Hashes that differ only in the bits that are not kept, or not at all.
    Collide {
        seed: u64,
        low: u16,
    },
    Merge {
        budget: usize,
        rollback: bool,
    },
    Reopen,
    /// What is committed is asked beforehand from now on.
    Sift,
    Probe,
}

fn op() -> impl Strategy<Value = Op> {
    let rollback = prop::bool::weighted(0.2);
    prop_oneof![
        5 => (0_u64..2_000, 1_u64..12, rollback)
            .prop_map(|(from, count, rollback)| Op::Insert { from, count, rollback }),
        3 => (0_u64..2_000, 100_u64..900, rollback)
            .prop_map(|(from, count, rollback)| Op::Insert { from, count, rollback }),
        2 => (0_u64..2_000, any::<u16>()).prop_map(|(seed, low)| Op::Collide { seed, low }),
        8 => (1_usize..1_500, rollback).prop_map(|(budget, rollback)| Op::Merge { budget, rollback }),
        1 => Just(Op::Reopen),
        2 => Just(Op::Sift),
        2 => Just(Op::Probe),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_lookup_finds_what_a_map_would(ops in prop::collection::vec(op(), 1..60)) {
        let mut conn = database();
        let mut lookup = Lookup::open_with(&conn, TEST_TAIL, Arc::default()).expect("opened");
        let mut model = Model::default();
        let mut next_id = 1;
        let probes: Vec<u64> = (0..3_000).step_by(23).map(hash).collect();
        let mut sifted = Sifted::default();
        for op in ops {
            match op {
                Op::Insert { from, count, rollback } => {
                    let fresh: Vec<_> = (from..from + count)
                        .map(|n| (hash(n), UrlId(next_id + n.cast_signed() - from.cast_signed())))
                        .collect();
                    let tx = conn.transaction().expect("begun");
                    lookup.insert(&tx, &fresh).expect("inserted");
                    if rollback {
                        tx.rollback().expect("rolled back");
                        lookup.reload(&conn).expect("reloaded");
                    } else {
                        tx.commit().expect("committed");
                        lookup.publish();
                        model.entries.extend(fresh);
                        next_id += count.cast_signed();
                    }
                }
                Op::Collide { seed, low } => {
                    let fresh = (hash(seed) & !0xffff | u64::from(low), UrlId(next_id));
                    next_id += 1;
                    let tx = conn.transaction().expect("begun");
                    lookup.insert(&tx, &[fresh, fresh]).expect("inserted");
                    tx.commit().expect("committed");
                    lookup.publish();
                    model.entries.insert(fresh);
                }
                Op::Merge { budget, rollback } => {
                    let tx = conn.transaction().expect("begun");
                    lookup.merge_step(&tx, budget).expect("merged");
                    if rollback {
                        tx.rollback().expect("rolled back");
                        lookup.reload(&conn).expect("reloaded");
                    } else {
                        tx.commit().expect("committed");
                        lookup.publish();
                    }
                }
                Op::Reopen => lookup = Lookup::open_with(&conn, TEST_TAIL, Arc::default()).expect("opened"),
                Op::Sift => sifted = lookup.sieves().sift(&in_order(&probes)),
                Op::Probe => assert_equal(&lookup, &conn, &model, &probes, &sifted),
            }
            assert_tidy(&lookup, &conn);
        }
        assert_equal(&lookup, &conn, &model, &probes, &sifted);
        while {
            let tx = conn.transaction().expect("begun");
            let more = lookup.merge_step(&tx, 5_000).expect("merged");
            tx.commit().expect("committed");
            more
        } {}
        assert_tidy(&lookup, &conn);
        assert_equal(&lookup, &conn, &model, &probes, &sifted);
    }

    #[test]
    fn a_part_starts_with_the_first_hash_that_is_in_it(
        parts in 1_u32..5_000_000,
        hash in 0_i64..END,
    ) {
        let split = run::Split::into_parts(parts);
        let part = split.part_of(hash);
        prop_assert!(part < parts);
        prop_assert!(split.start_of(part) <= hash && hash < split.start_of(part + 1));
        prop_assert_eq!(split.part_of(split.start_of(part)), part);
        prop_assert_eq!(split.part_of(END), parts);
    }
}

#[test]
fn merging_writes_an_entry_once_per_power_of_the_fan_out() {
    let mut conn = database();
    let mut lookup = Lookup::open_with(&conn, 64, Arc::default()).expect("opened");
    let batches = 512_u64;
    for batch in 0..batches {
        let fresh: Vec<_> =
            (batch * 65..(batch + 1) * 65).map(|n| (hash(n), UrlId(n.cast_signed()))).collect();
        let tx = conn.transaction().expect("begun");
        lookup.insert(&tx, &fresh).expect("inserted");
        while lookup.merge_step(&tx, 1_000).expect("merged") {}
        tx.commit().expect("committed");
        assert!(lookup.runs.len() <= 3 * FAN_OUT, "{} runs", lookup.runs.len());
    }
    // 512 is the third power of the fan-out.
    let levels: Vec<_> = lookup.runs.iter().map(|run| run.level).collect();
    assert_eq!(levels, [3]);
    let wrong: Vec<_> = (0..batches * 65)
        .filter(|&n| found(&lookup, &conn, hash(n)) != [UrlId(n.cast_signed())])
        .collect();
    assert_eq!(wrong, [0_u64; 0]);
}

#[test]
fn an_insertion_takes_part_when_merging_is_far_behind() {
    let conn = database();
    let mut lookup = Lookup::open_with(&conn, TEST_TAIL, Arc::default()).expect("opened");
    for batch in 0..500_u64 {
        let fresh: Vec<_> = (0..20)
            .map(|n| (hash(batch * 20 + n), UrlId((batch * 20 + n).cast_signed())))
            .collect();
        lookup.insert(&conn, &fresh).expect("inserted");
        assert!(lookup.runs.len() <= MAX_RUNS + 2, "{} runs", lookup.runs.len());
    }
}

#[test]
fn an_entry_takes_at_most_eleven_bytes_on_the_disk() {
    let conn = database();
    let pages = |name: &str| {
        conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).expect("a pragma")
    };
    let used = || (pages("page_count") - pages("freelist_count")) * pages("page_size");
    let empty = used();
    let mut lookup = Lookup::open(&conn).expect("opened");
    let fresh: Vec<_> = (0..100_000).map(|n| (hash(n), UrlId(n.cast_signed()))).collect();
    for batch in fresh.chunks(5_000) {
        lookup.insert(&conn, batch).expect("inserted");
        lookup.merge(&conn, 50_000).expect("merged");
    }
    let taken = used() - empty;
    assert!(taken <= 11 * 100_000, "{taken} bytes");
}

#[test]
fn a_flipped_bit_is_an_error_and_not_a_lost_url() {
    for table in ["lookup_chunks SET data", "lookup_filters SET bits"] {
        let conn = database();
        let mut lookup = Lookup::open_with(&conn, TEST_TAIL, Arc::default()).expect("opened");
        let fresh: Vec<_> = (0..20).map(|n| (hash(n), UrlId(n.cast_signed()))).collect();
        lookup.insert(&conn, &fresh).expect("inserted");
        let (_, column) = table.split_once(" SET ").expect("a column");
        let damage = format!("UPDATE {table} = CAST({column} || x'00' AS BLOB)");
        conn.execute(&damage, []).expect("damaged");
        lookup.reload(&conn).expect("reloaded");
        let error = lookup.find(&conn, hash(3), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("the URL lookup is damaged"), "{error}");
        assert!(find_on_disk(&conn, hash(3)).is_err());
    }
}

#[test]
fn whoever_asks_the_filters_of_whole_runs_leaves_little_to_ask() {
    let mut conn = database();
    let mut lookup = Lookup::open_with(&conn, TEST_TAIL, Arc::default()).expect("opened");
    for run in 0..5_u64 {
        let tx = conn.transaction().expect("begun");
        let fresh = (run * 100..run * 100 + 100).map(|n| (hash(n), UrlId(n.cast_signed())));
        lookup.insert(&tx, &fresh.collect::<Vec<_>>()).expect("inserted");
        tx.commit().expect("committed");
    }
    let probes: Vec<u64> = (400..1_400).map(hash).collect();
    let sieves = lookup.sieves();
    assert!(lookup.runs.iter().all(|run| sieves.sift(&in_order(&probes)).of(run.id).is_none()));
    lookup.publish();
    let sifted = sieves.sift(&in_order(&probes));
    let perhaps = lookup.runs.iter().map(|run| sifted.of(run.id).expect("sifted").len());
    let perhaps: Vec<usize> = perhaps.collect();
    // The last has a hundred of them, and of others a few seem to be there.
    assert_eq!(perhaps.len(), 5);
    assert!((100..110).contains(&perhaps[4]), "{perhaps:?}");
    assert!(perhaps[..4].iter().all(|few| *few < 10), "{perhaps:?}");
}
