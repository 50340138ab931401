//! A few URLs of each host in lease order, and what is known of the rest.
//!
//! A buffer holds all URLs of its host that are due and sort no later than its
//! *frontier*. URLs that are not due yet are only known by the earliest of
//! their due times: when that comes, the buffer may lack a better URL than it
//! holds, so it is stale and is loaded again.
//!
//! Keeps: what a fresh buffer yields is exactly the head of the host's due list
//! in the store; all buffers together hold at most [`MAX_BUFFERED`] URLs, and
//! those of the hosts unused for longest are dropped first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::model::{HostId, UrlId};
use crate::queue::Candidate;

/// Most URLs buffered over all hosts of a crawl; about 6 MiB. An empty buffer
/// counts as one, so there are never more buffers than this either.
pub const MAX_BUFFERED: usize = 262_144;
/// Most URLs buffered of one host.
pub const MAX_BUFFERED_PER_HOST: usize = 1024;

/// How much of a host's due list was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All that was due.
    Complete,
    /// The best of it; there is more.
    Prefix,
}

#[derive(Debug, Default)]
pub(super) struct Buffers {
    of_host: HashMap<HostId, Buffer>,
    /// Hosts by when they were last used.
    by_use: BTreeMap<u64, HostId>,
    uses: u64,
    /// URLs in all buffers, plus one for each buffer.
    load: usize,
}

#[derive(Debug)]
struct Buffer {
    /// Best last, so that taking is popping.
    entries: Vec<Key>,
    /// What sorts behind this is not known; all is known where there is none.
    frontier: Option<Key>,
    /// Earliest due time of the URLs that are not held because they were not
    /// due; unix seconds.
    stale_at: i64,
    last_use: u64,
}

/// Sorts as the lease order: the smallest is leased first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    band: Reverse<u8>,
    due_at: i64,
    id: UrlId,
}

impl Key {
    fn of(candidate: &Candidate) -> Self {
        Self { band: Reverse(candidate.band), due_at: candidate.due_at, id: candidate.id }
    }

    fn of_host(self, host: HostId) -> Candidate {
        Candidate { id: self.id, host, band: self.band.0, due_at: self.due_at }
    }
}

impl Buffer {
    /// Where the key is or would be.
    fn place(&self, key: &Key) -> Result<usize, usize> {
        self.entries.binary_search_by(|held| key.cmp(held))
    }

    fn insert(&mut self, key: Key, now: i64) {
        if self.frontier.is_some_and(|frontier| key > frontier) {
            return;
        }
        if key.due_at > now {
            self.stale_at = self.stale_at.min(key.due_at);
            return;
        }
        if let Err(place) = self.place(&key) {
            self.entries.insert(place, key);
        }
        self.cut(MAX_BUFFERED_PER_HOST);
    }

    /// Lets the worst go and draws the frontier before them.
    fn cut(&mut self, most: usize) {
        let excess = self.entries.len().saturating_sub(most);
        if excess > 0 {
            self.entries.drain(..excess);
            self.frontier = self.entries.first().copied();
        }
    }

    fn is_stale(&self, now: i64) -> bool {
        now >= self.stale_at
    }

    fn load(&self) -> usize {
        self.entries.len() + 1
    }
}

impl Buffers {
    pub(super) fn refill(
        &mut self,
        host: HostId,
        candidates: &[Candidate],
        extent: Extent,
        next_due_at: Option<i64>,
    ) {
        self.invalidate(host);
        let mut entries: Vec<Key> = candidates.iter().rev().map(Key::of).collect();
        if !entries.is_sorted_by(|a, b| a > b) {
            entries.sort_unstable_by_key(|key| Reverse(*key));
            entries.dedup();
        }
        let frontier = match extent {
            Extent::Complete => None,
            Extent::Prefix => entries.first().copied(),
        };
        if extent == Extent::Prefix && frontier.is_none() {
            // Nothing of a list that is not empty: nothing is known.
            return;
        }
        let stale_at = next_due_at.unwrap_or(i64::MAX);
        let mut buffer = Buffer { entries, frontier, stale_at, last_use: 0 };
        buffer.cut(MAX_BUFFERED_PER_HOST);
        self.load += buffer.load();
        self.of_host.insert(host, buffer);
        self.touch(host);
        self.shed();
    }

    pub(super) fn take(&mut self, host: HostId, n: usize, now_ms: i64) -> Vec<Candidate> {
        let now = now_ms.div_euclid(1000);
        let Some(buffer) = self.of_host.get_mut(&host) else { return Vec::new() };
        if buffer.is_stale(now) {
            self.invalidate(host);
            return Vec::new();
        }
        let mut taken = Vec::with_capacity(n.min(buffer.entries.len()));
        let held = buffer.entries.len();
        // All are due, unless the clock was set back.
        let mut index = held;
        while index > 0 && taken.len() < n {
            index -= 1;
            if buffer.entries.get(index).is_some_and(|key| key.due_at <= now) {
                taken.push(buffer.entries.remove(index).of_host(host));
            }
        }
        self.load -= taken.len();
        self.touch(host);
        taken
    }

    pub(super) fn wants_refill(&self, host: HostId, now_ms: i64) -> bool {
        let now = now_ms.div_euclid(1000);
        self.of_host.get(&host).is_none_or(|buffer| {
            let due = buffer.entries.iter().any(|key| key.due_at <= now);
            buffer.is_stale(now) || (!due && buffer.frontier.is_some())
        })
    }

    pub(super) fn known_due_ms(&self, host: HostId) -> Option<i64> {
        let buffer = self.of_host.get(&host)?;
        if buffer.frontier.is_some() {
            // More was due when it was loaded.
            return Some(i64::MIN);
        }
        let held = buffer.entries.iter().map(|key| key.due_at).min();
        let earliest = held.map_or(buffer.stale_at, |at| at.min(buffer.stale_at));
        Some(earliest.saturating_mul(1000))
    }

    pub(super) fn insert(&mut self, candidate: Candidate, now_ms: i64) {
        let Some(buffer) = self.of_host.get_mut(&candidate.host) else { return };
        self.load -= buffer.load();
        buffer.insert(Key::of(&candidate), now_ms.div_euclid(1000));
        self.load += buffer.load();
        self.shed();
    }

    pub(super) fn remove(&mut self, host: HostId, url: UrlId) {
        let Some(buffer) = self.of_host.get_mut(&host) else { return };
        self.load -= buffer.load();
        buffer.entries.retain(|key| key.id != url);
        self.load += buffer.load();
    }

    pub(super) fn invalidate(&mut self, host: HostId) {
        if let Some(buffer) = self.of_host.remove(&host) {
            self.load -= buffer.load();
            self.by_use.remove(&buffer.last_use);
        }
    }

    fn touch(&mut self, host: HostId) {
        let Some(buffer) = self.of_host.get_mut(&host) else { return };
        self.by_use.remove(&buffer.last_use);
        self.uses += 1;
        buffer.last_use = self.uses;
        self.by_use.insert(self.uses, host);
    }

    fn shed(&mut self) {
        while self.load > MAX_BUFFERED {
            let Some((_, &host)) = self.by_use.first_key_value() else { return };
            self.invalidate(host);
        }
    }
}
