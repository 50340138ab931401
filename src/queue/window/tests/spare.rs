//! What is worth less than the price: kept aside, in nobody's way, each once.

use super::candidate;
use crate::model::{HostId, SiteId, UrlId};
use crate::queue::window::{Valued, Window};
use crate::queue::{Candidate, Claim};

const HOST: HostId = HostId(1);

fn spare(id: i64, score: f64) -> Candidate {
    candidate(1, id, 50, 0).valued(score, Claim::Spare)
}

/// A look at a host's list that comes to these, more than which there are behind
/// the last; values are old at `stale_at`.
fn look(window: &mut Window, found: &[Candidate], goes_on: bool, stale_at: i64) {
    look_at(window, HOST, found, goes_on, stale_at);
}

/// The same of some host.
fn look_at(window: &mut Window, host: HostId, found: &[Candidate], goes_on: bool, stale_at: i64) {
    let (spare, worth): (Vec<_>, Vec<_>) =
        found.iter().partition(|candidate| candidate.claim == Claim::Spare);
    let head = Valued {
        last: found.last().copied(),
        passed: spare.len(),
        most_spare: 3,
        candidates: worth,
        spare,
        goes_on,
        stale_at,
        ..Valued::default()
    };
    window.wake(host, 0, 1.0);
    window.refill_by_value(host, &head);
}

fn ids(taken: &[Candidate]) -> Vec<i64> {
    taken.iter().map(|candidate| candidate.id.0).collect()
}

#[test]
fn the_best_of_all_looks_are_kept_each_once() {
    let mut window = Window::new();
    look(&mut window, &[spare(1, 10.0), spare(2, 40.0), spare(3, 20.0)], false, 1_000);
    // A row that is read again stands there by its new value only.
    look(&mut window, &[spare(2, 30.0), spare(4, 50.0)], true, 1_000);
    assert_eq!(window.next_spare(1), Some(HOST));
    assert_eq!(ids(&window.take_spare(HOST, 10, 1)), [4, 2, 3]);
    assert_eq!(window.next_spare(1), None);
}

#[test]
fn what_is_old_is_offered_no_more() {
    let mut window = Window::new();
    look(&mut window, &[spare(1, 10.0), spare(2, 40.0)], false, 10);
    assert_eq!(window.next_spare(20_000), Some(HOST));
    assert!(window.take_spare(HOST, 10, 20_000).is_empty());
    assert_eq!(window.next_spare(20_000), None);
}

#[test]
fn it_is_in_the_way_of_nothing_behind_it() {
    let mut window = Window::new();
    look(&mut window, &[spare(1, 10.0), spare(2, 40.0)], false, 1_000);
    assert!(window.take(HOST, 10, 1).is_empty());
    assert!(window.wants_refill(HOST, 1) && window.passed(HOST, 1).is_some());
    let worth = candidate(1, 3, 50, 0).valued(60.0, Claim::Worth);
    look(&mut window, &[worth], true, 1_000);
    assert_eq!(ids(&window.take(HOST, 10, 1)), [3]);
    assert_eq!(ids(&window.take_spare(HOST, 10, 1)), [2, 1]);
}

#[test]
fn how_much_of_a_list_is_worth_the_price_is_what_the_look_found_however_much_is_taken() {
    let worth = |id: i64| candidate(1, id, 50, 0).valued(60.0, Claim::Worth);
    let mut window = Window::new();
    look(&mut window, &[worth(1), spare(2, 10.0), worth(3), worth(4)], false, 1_000);
    let tally = |window: &Window| window.tally(1_000).next().map(|(_, tally)| tally).unwrap();
    let before = tally(&window);
    assert_eq!((before.worth, before.held, before.is_all), (3, 4, false));
    assert_eq!(window.take(HOST, 2, 1_000).len(), 2);
    let after = tally(&window);
    assert_eq!((after.worth, after.held), (1, 2));
    assert!((before.share - 0.75).abs() < 1e-9 && (after.share - 0.75).abs() < 1e-9);
}

#[test]
fn what_is_left_over_goes_to_the_host_of_which_nothing_was_taken_for_longest() {
    let of = |host: i64| HostId(host);
    let one = |host: i64, id: i64| candidate(host, id, 50, 0).valued(10.0, Claim::Spare);
    let mut window = Window::new();
    for host in 1..=3 {
        look_at(&mut window, of(host), &[one(host, host), one(host, 10 + host)], false, 1_000);
    }
    // Looked at again, the busy ones before the quiet one: it keeps its turn.
    window.take_spare(of(1), 1, 1);
    window.take_spare(of(2), 1, 1);
    for host in [1, 2, 3] {
        look_at(&mut window, of(host), &[one(host, host), one(host, 10 + host)], false, 1_000);
    }
    let mut turns = Vec::new();
    for _ in 0..6 {
        let host = window.next_spare(1).unwrap();
        turns.push(host.0);
        assert_eq!(window.take_spare(host, 1, 1).len(), 1);
    }
    assert_eq!(turns, [3, 1, 2, 3, 1, 2]);
    assert_eq!(window.next_spare(1), None);
}

#[test]
fn a_host_that_must_be_left_alone_spares_nothing_until_its_clock() {
    let mut window = Window::new();
    look(&mut window, &[spare(1, 10.0), spare(2, 40.0)], false, 1_000);
    window.served(HOST, 1, Some(0), 5_000);
    assert_eq!(window.next_spare(1_000), None);
    assert_eq!(window.next_by_worth().1, Some(5_000));
    assert_eq!(window.next_spare(5_000), Some(HOST));
    assert_eq!(ids(&window.take_spare(HOST, 10, 5_000)), [2, 1]);
}

fn early(host: i64, id: i64, score: f64, due_at: i64) -> (Candidate, Option<SiteId>) {
    (candidate(host, id, 50, due_at).valued(score, Claim::Worth), Some(SiteId(1 + id % 2)))
}

#[test]
fn what_is_worth_the_price_and_not_due_goes_before_what_is_worth_less() {
    let mut window = Window::new();
    look(&mut window, &[spare(1, 40.0), spare(2, 45.0)], false, 1_000);
    window.wake(HostId(2), 900_000, 1.0);
    window.offer_early(HostId(2), &[early(2, 3, 55.0, 900), early(2, 4, 90.0, 800)]);
    assert_eq!(window.next_spare(1), Some(HostId(2)));
    assert_eq!(ids(&window.take_spare(HostId(2), 1, 1)), [4], "the best first");
    assert_eq!(window.next_spare(1), Some(HostId(2)));
    assert_eq!(ids(&window.take_spare(HostId(2), 9, 1)), [3]);
    assert_eq!(window.next_spare(1), Some(HOST));
    assert_eq!(ids(&window.take_spare(HOST, 9, 1)), [2, 1]);
    assert_eq!(window.next_spare(1), None);
}

#[test]
fn what_is_found_early_is_forgotten_when_it_comes_due_moves_or_is_doubted() {
    let mut window = Window::new();
    window.wake(HOST, 10_000, 1.0);
    let found: Vec<_> = (1..=4).map(|id| early(1, id, 60.0, 10 * id)).collect();
    window.offer_early(HOST, &found);
    window.remove(HOST, UrlId(3));
    // A look at what is due leaves it.
    look(&mut window, &[], false, 1_000);
    assert_eq!(ids(&window.take_spare(HOST, 1, 10_000)), [2], "the first is due, and in line");
    window.invalidate(HOST);
    assert_eq!(window.early_of(HOST, &[]), 0);
    assert!(window.take_spare(HOST, 9, 10_000).is_empty());
    window.offer_early(HOST, &found);
    window.forget_early();
    assert_eq!(window.early_of(HOST, &[]), 0);
}

#[test]
fn what_is_found_early_stays_when_what_is_due_is_to_be_looked_at_anew() {
    let mut window = Window::new();
    look(&mut window, &[], false, 10);
    let found: Vec<_> = (1..=4).map(|id| early(1, id, 60.0, 100 * id)).collect();
    window.offer_early(HOST, &found);
    assert!(window.take(HOST, 1, 20_000).is_empty(), "values are old");
    assert_eq!(window.early_of(HOST, &[]), 4);
    look(&mut window, &[spare(5, 10.0)], false, 1_000);
    window.forget_buffer(HOST);
    assert_eq!(window.next_spare(20_000), Some(HOST));
    assert_eq!(ids(&window.take_spare(HOST, 9, 20_000)), [1, 2, 3, 4]);
    assert_eq!(window.next_spare(20_000), None);
}

#[test]
fn a_host_of_which_all_that_was_found_early_is_gone_goes_before_no_other() {
    let [gone, other] = [HostId(2), HostId(3)];
    let ways: [fn(&mut Window); 2] =
        [Window::forget_early, |window| window.remove(HostId(2), UrlId(3))];
    for forget in ways {
        let mut window = Window::new();
        window.wake(gone, 900_000, 1.0);
        window.offer_early(gone, &[early(2, 3, 55.0, 900)]);
        let cheap = candidate(2, 9, 50, 0).valued(10.0, Claim::Spare);
        look_at(&mut window, gone, &[cheap], false, 1_000);
        forget(&mut window);
        window.wake(other, 900_000, 1.0);
        window.offer_early(other, &[early(3, 4, 55.0, 900)]);
        let mut turns = Vec::new();
        while let Some(host) = window.next_spare(1) {
            turns.push((host.0, ids(&window.take_spare(host, 9, 1))));
        }
        assert_eq!(turns, [(3, vec![4]), (2, vec![9])]);
    }
}

#[test]
fn what_was_found_early_and_is_gone_is_not_held_up() {
    let ways: [fn(&mut Window); 4] = [
        Window::forget_early,
        Window::invalidate_all,
        |window| window.invalidate(HOST),
        |window| window.remove(HOST, UrlId(3)),
    ];
    for forget in ways {
        let mut window = Window::new();
        window.wake(HOST, 900_000, 1.0);
        window.set_clock(HOST, 5_000);
        window.offer_early(HOST, &[early(1, 3, 55.0, 900)]);
        assert!(window.is_held_up(1));
        forget(&mut window);
        assert!(!window.is_held_up(1));
        assert_eq!(window.next_by_worth().1, None);
    }
}

#[test]
fn what_waits_for_a_clock_is_had_as_soon_as_that_is_put_back() {
    let mut window = Window::new();
    window.wake(HOST, 900_000, 1.0);
    window.set_clock(HOST, 60_000);
    window.offer_early(HOST, &[early(1, 3, 55.0, 900)]);
    assert_eq!(window.next_spare(1), None);
    window.set_clock(HOST, 0);
    assert_eq!(window.next_spare(1), Some(HOST));
    assert_eq!(ids(&window.take_spare(HOST, 9, 1)), [3]);
}

#[test]
fn what_is_found_early_is_had_by_who_names_its_site() {
    let mut window = Window::new();
    window.wake(HOST, 900_000, 1.0);
    let found: Vec<_> = (1..=6).map(|id| early(1, id, 60.0, 100 * id)).collect();
    window.offer_early(HOST, &found);
    // Found again, it is there once.
    window.offer_early(HOST, &found[2..5]);
    assert_eq!(window.early_of(HOST, &[]), 6);
    let [odd, even] = [SiteId(2), SiteId(1)];
    assert_eq!(ids(&window.take_early(HOST, 2, 1, &[odd])), [1, 3]);
    assert_eq!(ids(&window.take_early(HOST, 9, 1, &[odd, SiteId(7)])), [5]);
    assert!(window.take_early(HOST, 9, 1, &[odd]).is_empty());
    assert_eq!(ids(&window.take_early(HOST, 1, 1, &[even])), [2]);
    assert_eq!(window.next_spare(1), Some(HOST));
    assert_eq!(ids(&window.take_spare(HOST, 9, 1)), [4, 6]);
    assert_eq!((window.next_spare(1), window.early_of(HOST, &[])), (None, 0));
}

#[test]
fn where_there_is_no_room_for_what_is_not_due_the_worst_of_each_host_makes_it() {
    let (mut window, hosts) = (Window::new(), 1..=1_024);
    let found = |host: i64| {
        let early = |n: i64| {
            let candidate = candidate(host, 100 * host + n, 50, 9_000);
            // Best in the middle.
            let score = f64::from(i32::try_from(n * 37 % 64).unwrap());
            (candidate.valued(score, Claim::Worth), Some(SiteId(1)))
        };
        (0..64).map(early).collect::<Vec<_>>()
    };
    let best = |host: i64| {
        let mut all = found(host);
        all.sort_by_key(|(candidate, _)| std::cmp::Reverse(candidate.rank));
        all.truncate(8);
        all.into_iter().map(|(candidate, _)| candidate.rank).collect::<Vec<_>>()
    };
    for host in hosts.clone() {
        assert!(window.make_room_for_early(), "{host}");
        window.wake(HostId(host), 9_000_000, 1.0);
        window.offer_early(HostId(host), &found(host));
    }
    assert_eq!(window.early_of(HostId(7), &[]), 64);
    assert!(window.make_room_for_early());
    for host in hosts {
        let taken = window.take_spare(HostId(host), 64, 1);
        let ranks: Vec<_> = taken.iter().map(|candidate| candidate.rank).collect();
        assert_eq!(ranks, best(host));
    }
}
