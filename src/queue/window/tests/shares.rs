//! What is new and what is refreshed, each in its share of the fetches.

use super::candidate;
use crate::model::HostId;
use crate::queue::window::{Valued, Window};
use crate::queue::{Candidate, Claim};

const HOST: HostId = HostId(1);

fn refreshed(id: i64) -> Candidate {
    candidate(1, id, 90, 0).valued(90.0, Claim::Worth)
}

/// Twenty pages that are worth more than anything new, and these behind them.
fn crowded(behind: Vec<Candidate>, room_for_new: usize) -> Window {
    let candidates: Vec<_> = (0..20).map(refreshed).collect();
    let last = candidates.last().copied();
    let head =
        Valued { candidates, last, behind, room_for_new, stale_at: 1_000, ..Valued::default() };
    let mut window = Window::new();
    window.wake(HOST, 0, 1.0);
    window.refill_by_value(HOST, &head);
    window
}

fn taken(window: &mut Window, n: usize) -> Vec<i64> {
    window.take(HOST, n, 1_000).iter().map(|candidate| candidate.id.0).collect()
}

#[test]
fn one_fetch_in_four_goes_to_the_best_new_url_whatever_is_refreshed() {
    let behind = [(100, 60), (101, 80), (102, 75)].map(|(id, band)| candidate(1, id, band, 1));
    let mut window = crowded(behind.to_vec(), 0);
    assert_eq!(taken(&mut window, 12), [0, 1, 101, 2, 3, 4, 102, 5, 6, 7, 100, 8]);
    // None is left, and no more are known.
    assert_eq!(taken(&mut window, 3), [9, 10, 11]);
}

#[test]
fn what_is_queued_behind_what_is_refreshed_has_its_share_at_once() {
    let mut window = crowded(Vec::new(), 1);
    assert_eq!(taken(&mut window, 4), [0, 1, 2, 3]);
    for id in [100, 101] {
        window.insert(candidate(1, id, 75, 1), 1_000);
        // Told twice, it is there once.
        window.insert(candidate(1, id, 75, 1), 1_000);
    }
    assert_eq!(taken(&mut window, 4), [4, 5, 100, 6]);
    // For the other one, which it had no room for, the list is looked at again.
    assert_eq!(taken(&mut window, 4), [7, 8, 9]);
    assert!(window.wants_refill(HOST, 1_000));
}

#[test]
fn what_leaves_the_queue_is_not_kept_behind() {
    let mut window = crowded(Vec::new(), 9);
    window.insert(candidate(1, 100, 75, 1), 1_000);
    window.remove(HOST, crate::model::UrlId(100));
    assert_eq!(taken(&mut window, 4), [0, 1, 2, 3]);
}
