//! What is worth the price though its rows are not due, as far as it was looked for.
//!
//! Keeps: a URL is here once, best first is what is taken, and what has come due meanwhile
//! is given by nobody from here, since it is in line.

use std::cmp::Reverse;

use super::buffer::Key;
use crate::by_id::ById;
use crate::model::{HostId, UrlId};
use crate::queue::Candidate;

/// Most URLs held over all hosts, about: 4 MiB.
const MOST: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Early {
    /// Best last.
    of_host: ById<HostId, Vec<Key>>,
    /// URLs of all hosts.
    load: usize,
}

impl Early {
    pub(super) fn add(&mut self, host: HostId, candidates: &[Candidate]) {
        let held = self.of_host.entry(host).or_default();
        held.extend(candidates.iter().map(Key::of));
        held.sort_unstable_by_key(|key| Reverse(*key));
        self.load += candidates.len();
    }

    /// How many are held of a host.
    pub(super) fn of(&self, host: HostId) -> usize {
        self.of_host.get(&host).map_or(0, Vec::len)
    }

    /// Those of which any are held.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.of_host.keys().copied()
    }

    pub(super) fn has_room(&self) -> bool {
        self.load < MOST
    }

    /// The best `n` of a host.
    pub(super) fn take(&mut self, host: HostId, n: usize, now_ms: i64) -> Vec<Candidate> {
        let now = now_ms.div_euclid(1000);
        let mut taken = Vec::new();
        self.change(host, |held| {
            held.retain(|key| key.due_at > now);
            taken = held.split_off(held.len().saturating_sub(n));
        });
        taken.into_iter().rev().map(|key| key.of_host(host)).collect()
    }

    pub(super) fn remove(&mut self, host: HostId, url: UrlId) {
        self.change(host, |held| held.retain(|key| key.id != url));
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.change(host, Vec::clear);
    }

    fn change(&mut self, host: HostId, change: impl FnOnce(&mut Vec<Key>)) {
        let Some(held) = self.of_host.get_mut(&host) else { return };
        let before = held.len();
        change(held);
        self.load -= before - held.len();
        if held.is_empty() {
            self.of_host.remove(&host);
        }
    }
}
