//! Buffers over a database that changes under them yield what a full sort would.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::candidate;
use crate::model::{HostId, UrlId};
use crate::queue::Candidate;
use crate::queue::window::{Extent, MAX_BUFFERED, MAX_BUFFERED_PER_HOST, Window};

/// The queue rows, as the store would hold them.
#[derive(Default)]
struct Database {
    rows: BTreeMap<UrlId, Candidate>,
}

impl Database {
    fn of_host(&self, host: HostId) -> Vec<Candidate> {
        let mut rows: Vec<_> = self.rows.values().filter(|row| row.host == host).copied().collect();
        rows.sort_by_key(|row| (Reverse(row.band), row.due_at, row.id));
        rows
    }

    fn due(&self, host: HostId, now: i64) -> Vec<Candidate> {
        self.of_host(host).into_iter().filter(|row| row.due_at <= now).collect()
    }

    /// Walks the bands from the top as the store does: what is due of each, then
    /// the first of it that is not, until there is enough.
    fn load(&self, host: HostId, now: i64, size: usize) -> (Vec<Candidate>, Extent, Option<i64>) {
        let due = self.due(host, now);
        let head: Vec<_> = due.iter().copied().take(size).collect();
        let extent = if head.len() < due.len() { Extent::Prefix } else { Extent::Complete };
        let lowest = match extent {
            Extent::Complete => 0,
            Extent::Prefix => head.last().map_or(0, |last| last.band.saturating_add(1)),
        };
        let later = self.of_host(host).into_iter().filter(|row| row.due_at > now);
        (head, extent, later.filter(|row| row.band >= lowest).map(|row| row.due_at).min())
    }

    /// A lease of `n`, by the protocol that the window's doc describes.
    fn lease(&mut self, window: &mut Window, host: HostId, n: usize, ask: Ask) -> Vec<Candidate> {
        let Ask { now_ms, size } = ask;
        let mut leased = Vec::new();
        for _ in 0..=n {
            for row in window.take(host, n - leased.len(), now_ms) {
                assert_eq!(self.rows.remove(&row.id), Some(row), "the row was there as yielded");
                leased.push(row);
            }
            if leased.len() == n || !window.wants_refill(host, now_ms) {
                return leased;
            }
            let (head, extent, later) = self.load(host, now_ms.div_euclid(1000), size);
            window.refill(host, &head, extent, later);
        }
        panic!("every refill yields at least one URL or ends the lease")
    }
}

#[derive(Clone, Copy)]
struct Ask {
    now_ms: i64,
    size: usize,
}

#[derive(Debug, Clone)]
enum Op {
    Insert { host: i64, id: i64, band: u8, due_in: i64 },
    Remove { id: i64 },
    Lease { host: i64, n: usize, size: usize },
    Advance { ms: i64 },
    Invalidate { host: i64 },
    InvalidateAll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_i64..3, 0_i64..40, 0_u8..4, -30_i64..30)
            .prop_map(|(host, id, band, due_in)| Op::Insert { host, id, band, due_in }),
        2 => (0_i64..40).prop_map(|id| Op::Remove { id }),
        5 => (0_i64..3, 0_usize..5, 1_usize..7)
            .prop_map(|(host, n, size)| Op::Lease { host, n, size }),
        3 => (-5_000_i64..20_000).prop_map(|ms| Op::Advance { ms }),
        1 => (0_i64..3).prop_map(|host| Op::Invalidate { host }),
        1 => Just(Op::InvalidateAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_lease_gets_what_a_full_sort_of_the_store_would_give(
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut database = Database::default();
        let mut window = Window::new();
        let mut now_ms = 1_000_000_i64;
        for op in ops {
            match op {
                Op::Insert { host, id, band, due_in } => {
                    if let Some(before) = database.rows.remove(&UrlId(id)) {
                        window.remove(before.host, before.id);
                    }
                    let row = candidate(host, id, band, now_ms.div_euclid(1000) + due_in);
                    database.rows.insert(row.id, row);
                    window.insert(row, now_ms);
                }
                Op::Remove { id } => {
                    if let Some(row) = database.rows.remove(&UrlId(id)) {
                        window.remove(row.host, row.id);
                    }
                }
                Op::Lease { host, n, size } => {
                    let host = HostId(host);
                    let mut wanted = database.due(host, now_ms.div_euclid(1000));
                    wanted.truncate(n);
                    let leased = database.lease(&mut window, host, n, Ask { now_ms, size });
                    prop_assert_eq!(leased, wanted);
                    let earliest = database.of_host(host).iter().map(|row| row.due_at).min();
                    if let Some(bound) = window.known_due_ms(host) {
                        prop_assert!(bound <= earliest.map_or(i64::MAX, |at| at * 1000));
                    }
                }
                Op::Advance { ms } => now_ms += ms,
                Op::Invalidate { host } => window.invalidate(HostId(host)),
                Op::InvalidateAll => window.invalidate_all(),
            }
        }
    }
}

#[test]
fn a_better_url_than_the_buffered_ones_comes_first() {
    let mut window = Window::new();
    let host = HostId(1);
    let head = [candidate(1, 1, 50, 10), candidate(1, 2, 50, 20)];
    window.refill(host, &head, Extent::Prefix, None);
    window.insert(candidate(1, 3, 90, 30), 40_000);
    // Beyond what was loaded: whether something is before it is not known.
    window.insert(candidate(1, 4, 10, 5), 40_000);
    let ids: Vec<i64> = window.take(host, 10, 40_000).iter().map(|row| row.id.0).collect();
    assert_eq!(ids, [3, 1, 2]);
    assert!(window.wants_refill(host, 40_000));
}

#[test]
fn what_comes_due_in_a_higher_band_makes_the_buffer_stale() {
    let mut window = Window::new();
    let host = HostId(1);
    window.refill(host, &[candidate(1, 1, 50, 10)], Extent::Prefix, Some(100));
    assert!(!window.wants_refill(host, 99_999));
    assert!(window.wants_refill(host, 100_000));
    assert_eq!(window.take(host, 1, 100_000), []);
}

#[test]
fn a_host_with_nothing_due_is_not_loaded_again_until_something_may_be() {
    let mut window = Window::new();
    let host = HostId(1);
    window.refill(host, &[], Extent::Complete, Some(100));
    assert!(!window.wants_refill(host, 99_999));
    assert_eq!(window.known_due_ms(host), Some(100_000));
    window.insert(candidate(1, 1, 50, 60), 50_000);
    assert_eq!(window.known_due_ms(host), Some(60_000));
    assert!(window.wants_refill(host, 60_000));
}

#[test]
fn insertions_never_grow_one_buffer_over_its_limit() {
    let mut window = Window::new();
    let host = HostId(1);
    window.refill(host, &[], Extent::Complete, None);
    let urls = 3 * i64::try_from(MAX_BUFFERED_PER_HOST).expect("small");
    for id in 0..urls {
        window.insert(candidate(1, id, 50, urls - id), 10_000_000);
    }
    let taken = window.take(host, usize::MAX, 10_000_000);
    assert_eq!(taken.len(), MAX_BUFFERED_PER_HOST);
    assert_eq!(taken.first().map(|row| row.id.0), Some(urls - 1));
    assert!(taken.is_sorted_by_key(|row| row.due_at));
    assert!(window.wants_refill(host, 10_000_000), "the others are only in the store");
}

#[test]
fn the_more_hosts_there_are_the_less_is_loaded_of_each_in_advance() {
    for (hosts, wanted, in_order, by_value) in [
        (1, 100, MAX_BUFFERED_PER_HOST, MAX_BUFFERED_PER_HOST),
        (100, 10, 327, 327),
        (100, 100, 327, 400),
        (1_000, 10, 32, 64),
        (1_000, 100, 100, 262),
        (10_000, 1, 3, 26),
        (10_000, 100, 100, 100),
        (1, 5_000, 5_000, 5_000),
    ] {
        let mut window = Window::new();
        (0..hosts).for_each(|host| window.wake(HostId(host), 0, 1.0));
        let sizes = [false, true].map(|by_value| window.refill_size(wanted, by_value));
        assert_eq!(sizes, [in_order, by_value], "{hosts} hosts, {wanted} wanted");
    }
}

#[test]
fn the_buffers_of_the_hosts_unused_for_longest_are_dropped_first() {
    let mut window = Window::new();
    let per_host = i64::try_from(MAX_BUFFERED_PER_HOST).expect("small");
    let fitting = i64::try_from(MAX_BUFFERED).expect("small") / (per_host + 1);
    for host in 0..=fitting {
        let head: Vec<_> = (0..per_host).map(|n| candidate(host, n, 50, n)).collect();
        window.refill(HostId(host), &head, Extent::Prefix, None);
        // The first host stays in use.
        assert_eq!(window.take(HostId(0), 1, 10_000_000).len(), 1);
    }
    assert!(window.wants_refill(HostId(1), 10_000_000), "dropped");
    assert!(!window.wants_refill(HostId(0), 10_000_000));
    assert!(!window.wants_refill(HostId(2), 10_000_000));
}
