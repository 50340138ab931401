//! A few URLs of each host in lease order, and what is known of the rest.
//!
//! A buffer holds all URLs of its host that are due and sort no later than its
//! *frontier*. URLs that are not due yet are only known by the earliest of
//! their due times: when that comes, the buffer may lack a better URL than it
//! holds, so it is stale and is loaded again.
//!
//! Where URLs are ordered by value, that is taken when they are loaded: rows
//! and frontier keep the order of the store, what is yielded follows the value.
//! What is worth less than the price is in the way of nothing behind it: a look
//! passes over it, and goes on from where it stopped. The best of it is kept aside for
//! when nothing else is wanted.
//! Of such a host one fetch of sixteen goes to what has been due for longest,
//! every second to what is refreshed for being worth it, new URLs or not, and
//! one of four to new URLs, whatever is refreshed; what is known *behind* the
//! frontier is there for these three.
//!
//! Keeps: what a fresh buffer yields is exactly the head of the host's due list
//! in the store, but for value; all buffers together hold at most
//! [`MAX_BUFFERED`] URLs, and those of the hosts unused for longest are dropped
//! first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::by_id::{ById, IdSet};
use crate::model::{HostId, UrlId};
use crate::queue::{Candidate, Claim};
use crate::recrawl::value::{is_oldest_turn, is_turn_of_new};

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

/// What follows a buffer in its host's due list, in lease order.
#[derive(Debug)]
pub struct Follows {
    /// What the buffer ended with: band, due time and URL.
    pub behind: (u8, i64, UrlId),
    /// What is due behind that.
    pub candidates: Vec<Candidate>,
    /// Is there more?
    pub extent: Extent,
    /// As of a refill, but for what the buffer knows already.
    pub next_due_at: Option<i64>,
}

/// The head of a host's due list with its values, as of now.
#[derive(Debug, Default)]
pub struct Valued {
    /// In any order.
    pub candidates: Vec<Candidate>,
    /// Some that are due and sort behind `last`.
    pub behind: Vec<Candidate>,
    /// Is more of what is refreshed due there, for when those are used up?
    pub has_more_behind: bool,
    /// The same of new URLs.
    pub has_more_new: bool,
    /// So many more of them would be of use there.
    pub room_for_new: usize,
    /// The last one of the store's order that was loaded, where there is more.
    pub last: Option<Candidate>,
    /// Rows up to that one that are worth less than the price.
    pub passed: usize,
    /// The best of them.
    pub spare: Vec<Candidate>,
    /// How many of these are kept, the best.
    pub most_spare: usize,
    /// Does it go on where the last look stopped, so that what that kept stays?
    pub goes_on: bool,
    /// When this is to be loaded again: the earliest due time of what is not
    /// due, as far as known, or when values are old; unix seconds.
    pub stale_at: i64,
    /// That due time, where anything is known not to be due.
    pub next_due_at: Option<i64>,
}

impl Valued {
    /// Something of the host is due then, and not before.
    pub fn is_due_at(&mut self, due_s: i64) {
        self.stale_at = self.stale_at.min(due_s);
        self.next_due_at = Some(self.next_due_at.map_or(due_s, |known| known.min(due_s)));
    }
}

/// How far a look at a host's list has come that holds nothing any more.
#[derive(Debug, Clone, Copy)]
pub struct Passed {
    /// Where it stopped, in the store's order: band, due time, row.
    pub last: (u8, i64, UrlId),
    /// Rows up to there that are worth less than the price.
    pub rows: usize,
    /// When the list is to be looked at from its head again; unix seconds.
    pub stale_at: i64,
    /// When the first of what was not due up to there is, if any is known.
    pub next_due_at: Option<i64>,
}

/// What is known of one host's backlog.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    /// Worth the price.
    pub worth: usize,
    /// Due and looked at.
    pub held: usize,
    /// Is nothing else due?
    pub is_all: bool,
    /// Of what was due when it was looked at, the share that was worth the price: what is
    /// taken leaves the rest as it was.
    pub share: f64,
}

#[derive(Debug, Default)]
pub(super) struct Buffers {
    of_host: ById<HostId, Buffer>,
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
    /// Some that are due and sort behind the frontier, if ordered by value.
    behind: Vec<Key>,
    /// Is more of what is refreshed due there?
    has_more_behind: bool,
    /// Are more new URLs?
    has_more_new: bool,
    /// For so many more of them there is room there.
    room_for_new: usize,
    /// What sorts behind this is not known; all is known where there is none.
    frontier: Option<Stored>,
    /// Earliest due time of the URLs that are not held because they were not
    /// due, or when values are to be taken anew; unix seconds.
    stale_at: i64,
    /// That due time; `i64::MAX` where there are none.
    next_due_at: i64,
    /// Are the host's URLs ordered by value?
    by_value: bool,
    /// Rows up to the frontier that are worth less than the price.
    passed: usize,
    /// The best of these, best last.
    spare: Vec<Key>,
    /// What was worth the price when it was loaded, of how many that were looked at.
    looked_at: (usize, usize),
    last_use: u64,
}

/// Sorts as it is yielded: the smallest is leased first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    rank: Reverse<u16>,
    shelf: i64,
    pub(super) due_at: i64,
    pub(super) id: UrlId,
    band: u8,
    claim: Claim,
}

/// Sorts as the store does.
type Stored = (Reverse<u8>, i64, UrlId);

impl Key {
    pub(super) fn of(candidate: &Candidate) -> Self {
        let Candidate { id, band, due_at, rank, claim, shelf, .. } = *candidate;
        Self { rank: Reverse(rank), shelf, due_at, id, band, claim }
    }

    pub(super) fn of_host(self, host: HostId) -> Candidate {
        let Self { rank: Reverse(rank), shelf, due_at, id, band, claim } = self;
        Candidate { id, host, band, due_at, rank, claim, shelf }
    }

    fn stored(&self) -> Stored {
        (Reverse(self.band), self.due_at, self.id)
    }

    /// Is it in line for another reason than its value, and nobody's wish?
    fn is_new(&self) -> bool {
        self.claim.is_new(self.band)
    }

    /// Is it fetched again for what that is worth?
    fn is_refreshed(&self) -> bool {
        self.claim.is_refreshed()
    }

    /// May it be had at `now`, in its turn?
    fn is_ready(&self, now: i64) -> bool {
        self.due_at <= now && self.claim != Claim::Spare
    }
}

impl Buffer {
    /// Where the key is or would be.
    fn place(&self, key: &Key) -> Result<usize, usize> {
        self.entries.binary_search_by(|held| key.cmp(held))
    }

    fn insert(&mut self, key: Key, now: i64) {
        if self.frontier.is_some_and(|frontier| key.stored() > frontier) {
            if self.by_value && key.is_new() && key.is_ready(now) {
                self.insert_behind(key);
            }
            return;
        }
        if key.due_at > now {
            self.stale_at = self.stale_at.min(key.due_at);
            self.next_due_at = self.next_due_at.min(key.due_at);
            return;
        }
        if let Err(place) = self.place(&key) {
            self.entries.insert(place, key);
        }
        self.cut(MAX_BUFFERED_PER_HOST);
    }

    /// Has a new URL for its turns.
    fn insert_behind(&mut self, key: Key) {
        if self.room_for_new == 0 {
            self.has_more_new = true;
        } else if !self.behind.iter().any(|held| held.id == key.id) {
            self.behind.push(key);
            self.room_for_new -= 1;
        }
    }

    /// Lets the last of the store's order go and draws the frontier before them.
    fn cut(&mut self, most: usize) {
        if self.entries.len() <= most || most == 0 {
            return;
        }
        let mut stored: Vec<Stored> = self.entries.iter().map(Key::stored).collect();
        let (_, last, _) = stored.select_nth_unstable(most - 1);
        let last = *last;
        self.entries.retain(|key| key.stored() <= last);
        // A look that goes on from there comes to them again.
        let spare = self.spare.len();
        self.spare.retain(|key| key.stored() <= last);
        self.passed = self.passed.saturating_sub(spare - self.spare.len());
        self.frontier = Some(last);
    }

    /// Takes the next of it in its turn: `fetches` of the host went before.
    fn take(&mut self, now: i64, fetches: u64) -> Option<Key> {
        let best = self.entries.iter().rposition(|key| key.is_ready(now))?;
        if self.by_value {
            let chosen = if is_oldest_turn(fetches) {
                let ready = self.entries.iter().chain(&self.behind).filter(|key| key.is_ready(now));
                ready.min_by_key(|key| key.due_at).copied()
            } else if fetches % 2 == 1 && self.is_of(best, Key::is_new) {
                self.best_of(now, Key::is_refreshed, self.has_more_behind)
            } else if is_turn_of_new(fetches) && self.is_of(best, Key::is_refreshed) {
                self.best_of(now, Key::is_new, self.has_more_new)
            } else {
                None
            };
            if let Some(key) = chosen {
                self.entries.retain(|held| held.id != key.id);
                self.behind.retain(|held| held.id != key.id);
                return Some(key);
            }
        }
        Some(self.entries.remove(best))
    }

    fn is_of(&self, index: usize, kind: impl Fn(&Key) -> bool) -> bool {
        self.entries.get(index).is_some_and(kind)
    }

    /// The best of a kind. Where those that are known are used up and there are more,
    /// the list is to be looked at again.
    fn best_of(&mut self, now: i64, kind: fn(&Key) -> bool, has_more: bool) -> Option<Key> {
        let all = self.entries.iter().chain(&self.behind);
        let best = all.filter(|key| key.is_ready(now) && kind(key)).min().copied();
        if best.is_none() && has_more {
            self.stale_at = self.stale_at.min(now);
        }
        best
    }

    /// Takes the best of what is worth less than the price. Behind the last that is
    /// kept there may be more, for which the list is looked at from its head.
    fn take_spare(&mut self, now: i64) -> Option<Key> {
        let place = self.spare.iter().rposition(|key| key.due_at <= now)?;
        let key = self.spare.remove(place);
        self.passed = self.passed.saturating_sub(1);
        if self.spare.is_empty() && self.passed > 0 {
            self.stale_at = self.stale_at.min(now);
        }
        Some(key)
    }

    fn is_stale(&self, now: i64) -> bool {
        now >= self.stale_at
    }

    fn load(&self) -> usize {
        self.entries.len() + self.behind.len() + self.spare.len() + 1
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
        let frontier = match extent {
            Extent::Complete => None,
            Extent::Prefix => candidates.last().map(|last| Key::of(last).stored()),
        };
        if extent == Extent::Prefix && frontier.is_none() {
            // Nothing of a list that is not empty: nothing is known.
            self.invalidate(host);
            return;
        }
        let entries = candidates.iter().rev().map(Key::of).collect();
        let stale_at = next_due_at.unwrap_or(i64::MAX);
        let buffer = Buffer {
            entries,
            behind: Vec::new(),
            has_more_behind: false,
            has_more_new: false,
            room_for_new: 0,
            frontier,
            stale_at,
            next_due_at: stale_at,
            by_value: false,
            passed: 0,
            spare: Vec::new(),
            looked_at: (0, 0),
            last_use: 0,
        };
        self.put(host, buffer);
    }

    pub(super) fn refill_by_value(&mut self, host: HostId, head: &Valued) {
        let mut spare: Vec<Key> = head.spare.iter().map(Key::of).collect();
        if let Some(before) = self.of_host.get(&host).filter(|_| head.goes_on) {
            let fresh: IdSet<UrlId> = spare.iter().map(|key| key.id).collect();
            spare.extend(before.spare.iter().filter(|key| !fresh.contains(&key.id)));
        }
        spare.sort_unstable();
        spare.truncate(head.most_spare);
        spare.reverse();
        let buffer = Buffer {
            entries: head.candidates.iter().map(Key::of).collect(),
            behind: head.behind.iter().map(Key::of).collect(),
            has_more_behind: head.has_more_behind,
            has_more_new: head.has_more_new,
            room_for_new: head.room_for_new,
            frontier: head.last.as_ref().map(|last| Key::of(last).stored()),
            stale_at: head.stale_at,
            next_due_at: head.next_due_at.unwrap_or(i64::MAX),
            by_value: true,
            passed: head.passed,
            spare,
            looked_at: (0, 0),
            last_use: 0,
        };
        self.put(host, buffer);
    }

    fn put(&mut self, host: HostId, mut buffer: Buffer) {
        self.invalidate(host);
        if !buffer.entries.is_sorted_by(|a, b| a > b) {
            buffer.entries.sort_unstable_by_key(|key| Reverse(*key));
            buffer.entries.dedup();
        }
        buffer.cut(MAX_BUFFERED_PER_HOST);
        let worth = buffer.entries.iter().filter(|key| key.claim == Claim::Worth).count();
        buffer.looked_at = (worth, buffer.entries.len() + buffer.passed);
        self.load += buffer.load();
        self.of_host.insert(host, buffer);
        self.touch(host);
        self.shed();
    }

    /// The next `n` of the host; `fetches` of it went before.
    pub(super) fn take(
        &mut self,
        host: HostId,
        n: usize,
        now_ms: i64,
        fetches: u64,
    ) -> Vec<Candidate> {
        let now = now_ms.div_euclid(1000);
        let Some(buffer) = self.of_host.get_mut(&host) else { return Vec::new() };
        if buffer.is_stale(now) {
            self.invalidate(host);
            return Vec::new();
        }
        let before = buffer.load();
        let mut taken = Vec::with_capacity(n.min(buffer.entries.len()));
        for fetch in (fetches..).take(n) {
            let Some(key) = buffer.take(now, fetch) else { break };
            taken.push(key.of_host(host));
            if buffer.is_stale(now) {
                break;
            }
        }
        self.load -= before - buffer.load();
        self.touch(host);
        taken
    }

    /// The best `n` of what is worth less than the price.
    pub(super) fn take_spare(&mut self, host: HostId, n: usize, now_ms: i64) -> Vec<Candidate> {
        let now = now_ms.div_euclid(1000);
        let Some(buffer) = self.of_host.get_mut(&host) else { return Vec::new() };
        if buffer.is_stale(now) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        while taken.len() < n
            && let Some(key) = buffer.take_spare(now)
        {
            taken.push(key.of_host(host));
        }
        self.load -= taken.len();
        self.touch(host);
        taken
    }

    /// Is what is held of the host ordered by value?
    pub(super) fn is_by_value(&self, host: HostId) -> bool {
        self.of_host.get(&host).is_some_and(|buffer| buffer.by_value)
    }

    /// Is anything of the host due that is worth less than the price?
    pub(super) fn has_passed(&self, host: HostId) -> bool {
        self.of_host.get(&host).is_some_and(|buffer| buffer.passed > 0)
    }

    /// Is any of that kept for whom nothing else is left?
    pub(super) fn has_spare(&self, host: HostId) -> bool {
        self.of_host.get(&host).is_some_and(|buffer| !buffer.spare.is_empty())
    }

    /// Each host with what of it is worth the price now, what is held of it,
    /// and whether there is more that is due.
    pub(super) fn tally(&self, now_ms: i64) -> impl Iterator<Item = (HostId, Tally)> + '_ {
        let now = now_ms.div_euclid(1000);
        self.of_host.iter().map(move |(host, buffer)| {
            let held = buffer.entries.iter().filter(|key| key.due_at <= now);
            let worth = held.clone().filter(|key| key.claim == Claim::Worth).count();
            let held = held.count() + buffer.passed;
            // At most some thousands.
            #[allow(clippy::cast_precision_loss)]
            let share = buffer.looked_at.0 as f64 / buffer.looked_at.1.max(1) as f64;
            (*host, Tally { worth, held, is_all: buffer.frontier.is_none(), share })
        })
    }

    pub(super) fn wants_refill(&self, host: HostId, now_ms: i64) -> bool {
        let now = now_ms.div_euclid(1000);
        self.of_host.get(&host).is_none_or(|buffer| {
            let has_some = buffer.entries.iter().any(|key| key.due_at <= now);
            buffer.is_stale(now) || (!has_some && buffer.frontier.is_some())
        })
    }

    /// Where a look goes on that has passed over what is not worth the price.
    pub(super) fn passed(&self, host: HostId, now_ms: i64) -> Option<Passed> {
        let buffer = self.of_host.get(&host).filter(|buffer| buffer.passed > 0)?;
        let (Reverse(band), due_at, id) = buffer.frontier?;
        let goes_on = buffer.entries.is_empty() && !buffer.is_stale(now_ms.div_euclid(1000));
        let (rows, stale_at) = (buffer.passed, buffer.stale_at);
        let next_due_at = Some(buffer.next_due_at).filter(|at| *at < i64::MAX);
        goes_on.then_some(Passed { last: (band, due_at, id), rows, stale_at, next_due_at })
    }

    pub(super) fn ends_with(&self, host: HostId) -> Option<((u8, i64, UrlId), usize)> {
        let buffer = self.of_host.get(&host)?;
        let (Reverse(band), due_at, id) = buffer.frontier?;
        Some(((band, due_at, id), buffer.entries.len()))
    }

    pub(super) fn extend(&mut self, host: HostId, follows: &Follows, now_ms: i64) -> bool {
        let Some(buffer) = self.of_host.get_mut(&host) else { return false };
        let (band, due_at, id) = follows.behind;
        let is_end = buffer.frontier == Some((Reverse(band), due_at, id));
        if !is_end || buffer.by_value || buffer.is_stale(now_ms.div_euclid(1000)) {
            return false;
        }
        self.load -= buffer.load();
        let held = std::mem::take(&mut buffer.entries);
        buffer.entries = follows.candidates.iter().rev().map(Key::of).chain(held).collect();
        buffer.frontier = match follows.extent {
            Extent::Complete => None,
            Extent::Prefix => follows.candidates.last().map(|last| Key::of(last).stored()),
        };
        buffer.stale_at = follows.next_due_at.into_iter().fold(buffer.stale_at, i64::min);
        buffer.next_due_at = buffer.stale_at;
        buffer.cut(MAX_BUFFERED_PER_HOST);
        self.load += buffer.load();
        self.shed();
        true
    }

    pub(super) fn known_due_ms(&self, host: HostId) -> Option<i64> {
        let buffer = self.of_host.get(&host)?;
        let held = buffer.entries.iter().map(|key| key.due_at).min();
        if buffer.frontier.is_some() && (held.is_some() || buffer.entries.is_empty()) {
            // More was due when it was loaded.
            return Some(i64::MIN);
        }
        if held.is_none() && buffer.passed == 0 {
            // Nothing whose value could be another in an hour.
            return Some(buffer.next_due_at.saturating_mul(1000));
        }
        // What is not worth the price makes no host ready, nor does what sorts
        // behind it: it is looked at again when values are taken anew.
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
        buffer.behind.retain(|key| key.id != url);
        buffer.spare.retain(|key| key.id != url);
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
