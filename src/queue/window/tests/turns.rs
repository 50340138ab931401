//! Turns of hosts: fairness, weights, clocks.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::model::HostId;
use crate::queue::window::Window;

/// The rules of the turns as lists, sorted anew at every question.
#[derive(Default)]
struct Naive {
    hosts: BTreeMap<i64, NaiveHost>,
    present: u64,
    furthest: u64,
    order: u64,
    latest: i64,
}

#[derive(Clone)]
struct NaiveHost {
    due: Option<i64>,
    clock: i64,
    pass: u64,
    weight: f64,
    /// Has it been let in among the ready ones, and as the how manieth?
    entered: Option<u64>,
    /// The how manieth it was to start waiting.
    asked: u64,
}

impl Naive {
    fn host(&mut self, host: i64) -> &mut NaiveHost {
        let fresh = NaiveHost {
            due: None,
            clock: i64::MIN,
            pass: self.present,
            weight: 1.0,
            entered: None,
            asked: 0,
        };
        self.hosts.entry(host).or_insert(fresh)
    }

    fn change(&mut self, host: i64, change: impl FnOnce(&mut NaiveHost)) {
        self.order += 1;
        let order = self.order;
        let state = self.host(host);
        let before = (state.due, state.clock);
        change(state);
        if state.entered.is_none() && before != (state.due, state.clock) {
            state.asked = order;
        }
    }

    fn ready_at(host: &NaiveHost) -> Option<i64> {
        Some(host.due?.max(host.clock))
    }

    fn admit(&mut self, now: i64) {
        self.latest = self.latest.max(now);
        let mut entering: Vec<(i64, u64, i64)> = self
            .hosts
            .iter()
            .filter(|(_, host)| host.entered.is_none())
            .filter_map(|(id, host)| Some((Self::ready_at(host)?, host.asked, *id)))
            .filter(|&(at, ..)| at <= now)
            .collect();
        entering.sort_unstable();
        for (_, _, id) in entering {
            self.order += 1;
            let (order, present) = (self.order, self.present);
            let host = self.host(id);
            host.entered = Some(order);
            host.pass = host.pass.max(present);
        }
    }

    fn next(&mut self, now: i64) -> Option<i64> {
        self.admit(now);
        loop {
            let first = self
                .hosts
                .iter()
                .filter_map(|(id, host)| Some((host.pass, host.entered?, *id)))
                .min();
            let Some((pass, _, id)) = first else {
                self.present = self.furthest;
                return None;
            };
            if Self::ready_at(self.host(id)).is_some_and(|at| at <= now) {
                self.present = self.present.max(pass);
                return Some(id);
            }
            self.leave(id);
        }
    }

    fn leave(&mut self, id: i64) {
        self.order += 1;
        let order = self.order;
        let host = self.host(id);
        host.entered = None;
        host.asked = order;
    }

    fn requeue(&mut self, id: i64) {
        let latest = self.latest;
        let host = self.host(id);
        if host.entered.is_some() && Self::ready_at(host).is_some_and(|at| at <= latest) {
            self.order += 1;
            let order = self.order;
            self.host(id).entered = Some(order);
        } else {
            self.leave(id);
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Wake { host: i64, due_in: i64, weight: f64 },
    Clock { host: i64, in_ms: i64 },
    Forget { host: i64 },
    Serve { urls: u32, next_due_in: Option<i64>, delay: i64 },
    Skip { until_in: i64 },
    Among { hosts: Vec<i64> },
    Coming { most: usize },
    Advance { ms: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let host = 0_i64..6;
    prop_oneof![
        4 => (host.clone(), -50_i64..50, prop::sample::select(vec![0.5, 1.0, 2.0, 3.0]))
            .prop_map(|(host, due_in, weight)| Op::Wake { host, due_in, weight }),
        2 => (host.clone(), -50_i64..50).prop_map(|(host, in_ms)| Op::Clock { host, in_ms }),
        1 => host.clone().prop_map(|host| Op::Forget { host }),
        6 => (0_u32..5, prop::option::weighted(0.8, -50_i64..50), -10_i64..50)
            .prop_map(|(urls, next_due_in, delay)| Op::Serve { urls, next_due_in, delay }),
        1 => (-10_i64..50).prop_map(|until_in| Op::Skip { until_in }),
        1 => prop::collection::vec(host, 0..4).prop_map(|hosts| Op::Among { hosts }),
        2 => (0_usize..8).prop_map(|most| Op::Coming { most }),
        4 => (-20_i64..60).prop_map(|ms| Op::Advance { ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn turns_equal_those_of_a_naive_model(ops in prop::collection::vec(op(), 1..200)) {
        let mut window = Window::new();
        let mut naive = Naive::default();
        let mut now = 1_000;
        for op in ops {
            match op {
                Op::Wake { host, due_in, weight } => {
                    window.wake(HostId(host), now + due_in, weight);
                    naive.change(host, |state| {
                        state.due = Some(state.due.map_or(now + due_in, |d| d.min(now + due_in)));
                        state.weight = weight;
                    });
                }
                Op::Clock { host, in_ms } => {
                    window.set_clock(HostId(host), now + in_ms);
                    naive.change(host, |state| state.clock = now + in_ms);
                }
                Op::Forget { host } => {
                    window.forget(HostId(host));
                    naive.host(host).due = None;
                    naive.leave(host);
                }
                Op::Serve { urls, next_due_in, delay } => {
                    let next = naive.next(now);
                    prop_assert_eq!(window.next_turn(now), next.map(HostId));
                    prop_assert_eq!(window.next_turn(now), next.map(HostId), "until told");
                    let Some(host) = next else { continue };
                    let due = next_due_in.map(|at| now + at);
                    window.served(HostId(host), urls, due, now + delay);
                    let state = naive.host(host);
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    let stride = (f64::from(urls.max(1)) * 1000.0 / state.weight).round() as u64;
                    state.pass += stride;
                    let pass = state.pass;
                    state.due = due;
                    state.clock = now + delay;
                    naive.furthest = naive.furthest.max(pass);
                    naive.requeue(host);
                }
                Op::Skip { until_in } => {
                    let next = naive.next(now);
                    prop_assert_eq!(window.next_turn(now), next.map(HostId));
                    let Some(host) = next else { continue };
                    window.skipped(HostId(host), now + until_in);
                    let latest = naive.latest;
                    let state = naive.host(host);
                    state.clock = state.clock.max((now + until_in).max(latest + 1));
                    naive.requeue(host);
                }
                Op::Among { hosts } => {
                    naive.admit(now);
                    let wanted = hosts
                        .iter()
                        .filter_map(|id| Some((naive.hosts.get(id)?, *id)))
                        .filter(|(host, _)| Naive::ready_at(host).is_some_and(|at| at <= now))
                        .filter_map(|(host, id)| Some((host.pass, host.entered?, id)))
                        .min();
                    let found = window.next_turn_among(now, hosts.into_iter().map(HostId));
                    prop_assert_eq!(found, wanted.map(|(_, _, id)| HostId(id)));
                }
                Op::Coming { most } => {
                    // Nothing is moved by it, as what follows shows.
                    let first = naive.next(now).map(HostId);
                    prop_assert_eq!(window.next_turn(now), first);
                    let coming = window.coming(most);
                    prop_assert_eq!(coming.first().copied(), first.filter(|_| most > 0));
                    prop_assert!(coming.len() <= most);
                }
                Op::Advance { ms } => now += ms,
            }
            if window.next_turn(now).is_none() {
                let earliest = naive.hosts.values().filter_map(Naive::ready_at).min();
                prop_assert_eq!(window.next_ready_at(), earliest);
            }
            prop_assert_eq!(window.next_turn(now), naive.next(now).map(HostId));
            let queued = naive.hosts.values().filter(|host| host.due.is_some()).count();
            prop_assert_eq!(window.hosts(), queued);
        }
    }

    #[test]
    fn over_any_run_of_turns_the_shares_are_those_of_the_weights(
        weights in prop::collection::vec(prop::sample::select(vec![0.5, 1.0, 2.0, 4.0]), 2..8),
        batch in 1_u32..10,
        turns in 1_usize..400,
    ) {
        let mut window = Window::new();
        for (host, weight) in (0..).zip(&weights) {
            window.wake(HostId(host), 0, *weight);
        }
        let mut served = vec![0_u32; weights.len()];
        for _ in 0..turns {
            let host = window.next_turn(0).expect("all are always ready");
            served[usize::try_from(host.0).expect("small")] += batch;
            window.served(host, batch, Some(0), 0);
        }
        // No host is ever ahead of another by more than one batch over its weight.
        let spent = served.iter().zip(&weights).map(|(urls, weight)| f64::from(*urls) / weight);
        let least = spent.clone().fold(f64::INFINITY, f64::min);
        for (share, weight) in spent.zip(&weights) {
            prop_assert!(share <= least + f64::from(batch) / weight + 1e-6, "{served:?}");
        }
    }
}

#[test]
fn a_host_with_a_million_urls_never_starves_one_with_ten() {
    let mut window = Window::new();
    let (large, small) = (HostId(1), HostId(2));
    let mut left = BTreeMap::from([(large, 1_000_000_u32), (small, 0)]);
    window.wake(large, 0, 1.0);
    // The small host comes late, when the large one has long been served.
    for turn in 0..1_030 {
        if turn == 1_000 {
            left.insert(small, 10);
            window.wake(small, 0, 1.0);
        }
        let host = window.next_turn(turn).expect("one is ready");
        let urls = left.get_mut(&host).expect("known");
        *urls -= 1;
        window.served(host, 1, (*urls > 0).then_some(0), 0);
    }
    assert_eq!(left[&small], 0, "ten URLs within thirty turns");
    assert_eq!(left[&large], 1_000_000 - 1_020);
}

#[test]
fn a_host_that_was_idle_saves_up_no_turns() {
    let mut window = Window::new();
    let (busy, idle) = (HostId(1), HostId(2));
    window.wake(busy, 0, 1.0);
    window.wake(idle, 0, 1.0);
    for _ in 0..2 {
        let host = window.next_turn(0).expect("ready");
        window.served(host, 1, (host == busy).then_some(0), 0);
    }
    for _ in 0..1_000 {
        assert_eq!(window.next_turn(0), Some(busy));
        window.served(busy, 1, Some(0), 0);
    }
    window.wake(idle, 0, 1.0);
    let turns: Vec<_> = (0..6)
        .map(|_| {
            let host = window.next_turn(0).expect("ready");
            window.served(host, 1, Some(0), 0);
            host
        })
        .collect();
    assert_eq!(turns.iter().filter(|host| **host == busy).count(), 3, "{turns:?}");
}

#[test]
fn equal_hosts_are_served_in_the_order_they_came() {
    let mut window = Window::new();
    for host in [5, 3, 8, 1] {
        window.wake(HostId(host), 0, 1.0);
    }
    for _ in 0..3 {
        for host in [5, 3, 8, 1] {
            assert_eq!(window.next_turn(0), Some(HostId(host)));
            window.served(HostId(host), 2, Some(0), 0);
        }
    }
}

#[test]
fn hosts_are_known_to_come_in_their_order_until_something_of_them_is_buffered() {
    let mut window = Window::new();
    for host in [3, 1, 2, 4] {
        window.wake(HostId(host), 0, 1.0);
    }
    assert_eq!(window.next_turn(10), Some(HostId(3)));
    window.refill(HostId(1), &[], crate::queue::window::Extent::Complete, Some(100));
    assert_eq!(window.coming(3), [3, 2].map(HostId));
    for host in [3, 1, 2, 4] {
        assert_eq!(window.next_turn(10), Some(HostId(host)));
        window.served(HostId(host), 1, Some(0), 0);
    }
}

#[test]
fn nothing_is_yielded_before_the_clock_of_its_host() {
    let mut window = Window::new();
    let host = HostId(1);
    window.set_clock(host, 500);
    window.wake(host, 100, 1.0);
    assert_eq!(window.next_turn(499), None);
    assert_eq!(window.next_ready_at(), Some(500));
    assert_eq!(window.next_turn(500), Some(host));
    window.set_clock(host, 900);
    assert_eq!(window.next_turn(899), None, "a pause takes effect though it was its turn");
    assert_eq!(window.next_turn(900), Some(host));
}

#[test]
fn the_clock_outlives_an_empty_queue() {
    let mut window = Window::new();
    let host = HostId(1);
    window.wake(host, 0, 1.0);
    assert_eq!(window.next_turn(0), Some(host));
    window.served(host, 1, None, 5_000);
    assert_eq!(window.next_turn(10), None);
    window.wake(host, 0, 1.0);
    assert_eq!(window.next_turn(4_999), None);
    assert_eq!(window.next_turn(5_000), Some(host));
}

#[test]
fn hosts_of_which_nothing_matters_are_dropped_and_clocks_are_kept() {
    let mut window = Window::new();
    let paused = HostId(-1);
    window.wake(paused, 0, 1.0);
    window.served(paused, 1, None, 1_000_000);
    for host in 0..50_000 {
        window.wake(HostId(host), 0, 1.0);
        assert_eq!(window.next_turn(host), Some(HostId(host)));
        window.served(HostId(host), 1, None, host);
        assert_eq!(window.next_turn(host), None);
    }
    assert!(window.turns.remembered() < 5_000, "{}", window.turns.remembered());
    window.wake(paused, 0, 1.0);
    assert_eq!(window.next_turn(999_999), None);
}

#[test]
fn a_senseless_weight_is_kept_within_limits() {
    let mut window = Window::new();
    for (host, weight) in (0..).zip([0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300]) {
        window.wake(HostId(host), 0, weight);
    }
    for _ in 0..1_000 {
        let host = window.next_turn(0).expect("ready");
        window.served(host, 1, Some(0), 0);
    }
    let least = window.next_turn(0).expect("ready");
    window.served(least, u32::MAX, Some(0), 0);
    assert_ne!(window.next_turn(0), Some(least));
}
