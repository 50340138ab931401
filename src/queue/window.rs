//! The ready window of one crawl: whose turn it is, and a few URLs of each host.
//!
//! Keeps: a host is never yielded before its clock or before its earliest URL
//! is due; hosts take turns by weight, so that one with a million URLs never
//! starves one with ten; a URL is never yielded before it is due, nor while the
//! window could know a better one of its host, but for what it was told is worth a
//! fetch by now ([`Window::offer_early`]) and gives when nothing is due; memory is bounded in URLs and
//! small per host. The database stays the truth: the window hears of every
//! effect on the queue, and may forget any buffer at any time.
//!
//! How it is used, on the one thread that changes the queue:
//!
//! 1. [`Window::next_turn`] names a host. [`Window::take`] gives its buffered
//!    URLs; when [`Window::wants_refill`] says that there may be more, the
//!    caller deletes the queue rows of what it took, loads the head of the
//!    host's list and gives it to [`Window::refill`], then takes again. Between
//!    the load and the refill no effect on that host may happen.
//!    [`Window::extend`] adds what follows a buffer that runs low
//!    ([`Window::ends_with`]), as long as nothing has happened behind it since that
//!    was loaded.
//! 2. The caller says how it went: [`Window::served`] or [`Window::skipped`].
//! 3. Every effect on a queue row is told by [`Window::insert`] and
//!    [`Window::remove`] (a move is a removal, then an insertion), together
//!    with [`Window::wake`] for what is inserted. After a rollback, [`Window::invalidate_all`].

mod buffer;
mod early;
#[cfg(test)]
mod tests;
mod turns;

use crate::model::{HostId, SiteId, UrlId};
use crate::queue::Candidate;
use buffer::Buffers;
pub use buffer::{Extent, Follows, MAX_BUFFERED, MAX_BUFFERED_PER_HOST, Passed, Tally, Valued};
use early::Early;
use turns::Turns;
pub use turns::{MAX_WEIGHT, MIN_WEIGHT, Rank};

/// Most URLs loaded in advance over all hosts, about: whoever loads them keeps their rows
/// until they are taken, where they are no more.
pub const MAX_AHEAD: usize = 32_768;
/// Of so many that are due for each that is wanted, and of [`LEAST_CHOICE`] at least,
/// those of most value are taken, where there are not too many hosts for it.
const CHOICE: usize = 4;
/// To choose from however few are wanted. The simulation has twice as many.
const LEAST_CHOICE: usize = 64;

/// Host turns and buffered candidates of one crawl. Times are unix
/// milliseconds where the name ends in `_ms`, else unix seconds.
#[derive(Debug, Default)]
pub struct Window {
    turns: Turns,
    buffers: Buffers,
    early: Early,
}

impl Window {
    /// Knows no host yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The host has something queued, its earliest URL due at `due_at_ms` or
    /// later. Said again, it lowers the bound and takes over the weight, which
    /// is kept within [`MIN_WEIGHT`] and [`MAX_WEIGHT`].
    pub fn wake(&mut self, host: HostId, due_at_ms: i64, weight: f64) {
        self.turns.wake(host, due_at_ms, weight);
    }

    /// Something that the host has queued may be had at `due_at_ms` or later, for
    /// another reason than that more was queued: lowers the bound and leaves the weight.
    pub fn look_at(&mut self, host: HostId, due_at_ms: i64) {
        self.turns.look_at(host, due_at_ms);
    }

    /// The host's politeness clock, or the end of its pause: not to be served
    /// before. Replaces what was said before.
    pub fn set_clock(&mut self, host: HostId, not_before_ms: i64) {
        self.turns.set_clock(host, not_before_ms);
    }

    /// The host has nothing queued any more. Its clock is remembered for as
    /// long as it matters.
    pub fn forget(&mut self, host: HostId) {
        self.turns.forget(host);
        self.invalidate(host);
    }

    /// The host whose turn it is at `now_ms`; the same one until the caller has
    /// said what became of it.
    pub fn next_turn(&mut self, now_ms: i64) -> Option<HostId> {
        self.turns.next(now_ms)
    }

    /// The same among these few hosts only. Costs a look at each of them.
    pub fn next_turn_among(
        &mut self,
        now_ms: i64,
        hosts: impl IntoIterator<Item = HostId>,
    ) -> Option<HostId> {
        self.turns.next_among(now_ms, hosts)
    }

    /// Where a host stands among those that may be served, the greatest first; `None`
    /// where it may not be.
    pub fn rank(&mut self, host: HostId, now_ms: i64) -> Option<Rank> {
        self.turns.rank(host, now_ms)
    }

    /// When something was last taken of the host: of two, the later is the greater, and
    /// 0 if never.
    pub fn taken_at(&self, host: HostId) -> u64 {
        self.turns.taken_at(host)
    }

    /// When the first of these hosts may be served; those that may be now count from
    /// `again_ms` on. `None` where none of them has anything queued.
    pub fn next_ready_among(
        &self,
        now_ms: i64,
        again_ms: i64,
        hosts: impl IntoIterator<Item = HostId>,
    ) -> Option<i64> {
        self.turns.next_ready_among(now_ms, again_ms, hosts)
    }

    /// The hosts whose turns come next, `most` of them, but for those of which
    /// something is buffered. Nothing that is found here has been asked to be served.
    pub fn coming(&mut self, most: usize) -> Vec<HostId> {
        let mut hosts = self.turns.coming(most);
        hosts.retain(|host| self.buffers.known_due_ms(*host).is_none());
        hosts
    }

    /// `urls` of the host were leased: it goes behind the others by that many
    /// over its weight. `next_due_ms` bounds what is left from below (`None`
    /// when nothing is), `not_before_ms` is its clock from now on. A turn that
    /// yielded nothing counts as one URL, since it has cost as much.
    pub fn served(
        &mut self,
        host: HostId,
        urls: u32,
        next_due_ms: Option<i64>,
        not_before_ms: i64,
    ) {
        self.turns.served(host, urls, next_due_ms, not_before_ms);
        if next_due_ms.is_none() {
            self.invalidate(host);
        }
    }

    /// The host cannot be served before `until_ms` for a reason of the caller's
    /// (its robots.txt is not known yet). It loses nothing of its turn.
    pub fn skipped(&mut self, host: HostId, until_ms: i64) {
        self.turns.skipped(host, until_ms);
    }

    /// When the next host may be served, if [`Window::next_turn`] has none now.
    pub fn next_ready_at(&self) -> Option<i64> {
        self.turns.next_ready_at()
    }

    /// How many hosts have something queued.
    pub fn hosts(&self) -> usize {
        self.turns.active()
    }

    /// How many URLs to load for a [`Window::refill`] when `wanted` are asked
    /// for: some in advance, but fewer the more hosts share the window; and some to
    /// choose from where they are taken by value.
    pub fn refill_size(&self, wanted: usize, by_value: bool) -> usize {
        let hosts = self.hosts().max(1);
        let choice = if by_value { wanted.saturating_mul(CHOICE).max(LEAST_CHOICE) } else { 0 };
        let size = choice.min(MAX_BUFFERED / hosts).max(MAX_AHEAD / hosts);
        wanted.max(size.min(MAX_BUFFERED_PER_HOST))
    }

    /// Fills the host's buffer with the head of its due list, in lease order
    /// (band descending, due ascending, id ascending), as of `now_ms`.
    /// `next_due_at` is the earliest due time, in unix seconds, of its URLs that
    /// are not due yet: in all of its bands when the list is
    /// [`Extent::Complete`], at least in all bands above the last candidate's
    /// when it is a [`Extent::Prefix`].
    pub fn refill(
        &mut self,
        host: HostId,
        candidates: &[Candidate],
        extent: Extent,
        next_due_at: Option<i64>,
    ) {
        self.buffers.refill(host, candidates, extent, next_due_at);
    }

    /// The best `n` URLs of the host that are due and buffered, best first.
    /// They are the caller's from then on: leased, or given back by
    /// [`Window::insert`].
    pub fn take(&mut self, host: HostId, n: usize, now_ms: i64) -> Vec<Candidate> {
        let taken = self.buffers.take(host, n, now_ms, self.turns.fetches(host));
        self.turns.took(host, taken.len());
        taken
    }

    /// Fills the host's buffer with the head of its due list, each at its
    /// value, and offers to [`Window::next_spare`] what is worth less than the
    /// price.
    pub fn refill_by_value(&mut self, host: HostId, head: &Valued) {
        self.buffers.refill_by_value(host, head);
        if self.buffers.has_spare(host) {
            self.turns.offer_spare(host, self.early.of(host) > 0);
        }
    }

    /// Where the next [`Window::refill_by_value`] goes on, where the last one came to
    /// nothing that is worth the price.
    pub fn passed(&self, host: HostId, now_ms: i64) -> Option<Passed> {
        self.buffers.passed(host, now_ms)
    }

    /// When a host may be served with something that is worth the price, and when with
    /// something that is worth less.
    pub fn next_by_worth(&self) -> (Option<i64>, Option<i64>) {
        (self.turns.next_worthy_at(), self.turns.next_spare_at())
    }

    /// A host that may be served at `now_ms` and has something that is worth the price and
    /// not due, or else worth less: for when [`Window::next_turn`] has none.
    pub fn next_spare(&mut self, now_ms: i64) -> Option<HostId> {
        self.turns.next_spare(now_ms)
    }

    /// The best `n` URLs of the host that are worth the price and not due, or else of those
    /// that are worth less. When there are none left, the host is offered no more.
    pub fn take_spare(&mut self, host: HostId, n: usize, now_ms: i64) -> Vec<Candidate> {
        let mut taken = self.early.take(host, n, now_ms, &[]);
        if taken.is_empty() {
            taken = self.buffers.take_spare(host, n, now_ms);
        }
        self.turns.took(host, taken.len());
        self.turns.drop_spare(host);
        let is_early = self.early.of(host) > 0;
        if is_early || !taken.is_empty() && self.buffers.has_spare(host) {
            self.turns.offer_spare(host, is_early);
        }
        taken
    }

    /// The best `n` URLs of the host that are of these sites, worth the price and not due.
    pub fn take_early(
        &mut self,
        host: HostId,
        n: usize,
        now_ms: i64,
        sites: &[SiteId],
    ) -> Vec<Candidate> {
        let taken = self.early.take(host, n, now_ms, sites);
        self.turns.took(host, taken.len());
        self.offer_rest(host);
        taken
    }

    /// Hosts that have something queued, in no order.
    pub fn hosts_queued(&self) -> impl Iterator<Item = HostId> + '_ {
        self.turns.all_due(i64::MAX)
    }

    /// Has the host something queued?
    pub fn has_queued(&self, host: HostId) -> bool {
        self.turns.has_queued(host)
    }

    /// URLs of the host, each with its site, that are worth the price though their rows are
    /// not due: offered to [`Window::next_spare`], before what is worth less. They are
    /// forgotten when they come due.
    pub fn offer_early(&mut self, host: HostId, found: &[(Candidate, Option<SiteId>)]) {
        if !found.is_empty() {
            self.early.add(host, found);
            self.turns.offer_spare(host, true);
        }
    }

    /// URLs that are known of the host to be worth the price though their rows are not due,
    /// and to be of these sites, where any are named.
    pub fn early_of(&self, host: HostId, sites: &[SiteId]) -> usize {
        if sites.is_empty() { self.early.of(host) } else { self.early.of_sites(host, sites) }
    }

    /// When the first of these hosts may be served with something that is of these sites,
    /// worth the price and not due; those that may be now count from `again_ms` on.
    pub fn next_early_among(
        &self,
        now_ms: i64,
        again_ms: i64,
        hosts: &[HostId],
        sites: &[SiteId],
    ) -> Option<i64> {
        let theirs = hosts.iter().filter(|host| self.early_of(**host, sites) > 0);
        let clocks = theirs.filter_map(|host| self.turns.clock(*host));
        clocks.map(|at| if at > now_ms { at } else { again_ms }).min()
    }

    /// Must the host be left alone for now, whatever it has?
    pub fn waits_for_clock(&self, host: HostId, now_ms: i64) -> bool {
        self.turns.clock(host).is_some_and(|clock| clock > now_ms)
    }

    /// May more of these be offered, of whatever host? What is worth least may be forgotten
    /// for it.
    pub fn make_room_for_early(&mut self) -> bool {
        self.early.make_room()
    }

    /// Forgets what is worth the price though its rows are not due.
    pub fn forget_early(&mut self) {
        let early = std::mem::take(&mut self.early);
        for host in early.hosts() {
            self.offer_rest(host);
        }
    }

    /// The same of one host and these sites.
    pub fn forget_early_of(&mut self, host: HostId, sites: &[SiteId]) {
        self.early.forget(host, sites);
        self.offer_rest(host);
    }

    /// Is what is buffered of the host ordered by value, and not as listed?
    pub fn is_by_value(&self, host: HostId) -> bool {
        self.buffers.is_by_value(host)
    }

    /// Is anything of the host due that is worth less than the price?
    pub fn has_passed(&self, host: HostId) -> bool {
        self.buffers.has_passed(host)
    }

    /// What is held of each host, for an estimate of all that is worth it.
    pub fn tally(&self, now_ms: i64) -> impl Iterator<Item = (HostId, Tally)> + '_ {
        self.buffers.tally(now_ms)
    }

    /// Does something that is due, or worth the price and not due, wait for nothing but
    /// the clock of its host? Told by the host that is ready next.
    pub fn is_held_up(&self, now_ms: i64) -> bool {
        self.turns.is_held_up(now_ms)
    }

    /// Hosts that may have something due at `now_ms`, whatever their clocks.
    pub fn hosts_due(&self, now_ms: i64) -> usize {
        self.turns.hosts_due(now_ms)
    }

    /// Of these hosts, those of which nothing is buffered.
    pub fn unknown_hosts_due(&self, now_ms: i64) -> impl Iterator<Item = HostId> + '_ {
        let unknown = |host: &HostId| self.buffers.known_due_ms(*host).is_none();
        self.turns.all_due(now_ms).filter(unknown)
    }

    /// Offers what is left of a host, of which something has gone.
    fn offer_rest(&mut self, host: HostId) {
        self.turns.drop_spare(host);
        let is_early = self.early.of(host) > 0;
        if is_early || self.buffers.has_spare(host) {
            self.turns.offer_spare(host, is_early);
        }
    }

    /// Is nothing due in the buffer, though something may be in the store?
    pub fn wants_refill(&self, host: HostId, now_ms: i64) -> bool {
        self.buffers.wants_refill(host, now_ms)
    }

    /// What the buffer of the host ends with, in the order of the store, where there
    /// is more behind it: band, due time and URL; and how many it holds.
    pub fn ends_with(&self, host: HostId) -> Option<((u8, i64, UrlId), usize)> {
        self.buffers.ends_with(host)
    }

    /// Adds to the host's buffer what follows it in its due list; says whether the
    /// buffer still ends where that begins, and is in the order of the store.
    pub fn extend(&mut self, host: HostId, follows: &Follows, now_ms: i64) -> bool {
        self.buffers.extend(host, follows, now_ms)
    }

    /// A lower bound, in unix milliseconds, of when a URL of the host is due:
    /// `None` when nothing of it is buffered, `Some(i64::MAX)` when it has none.
    pub fn known_due_ms(&self, host: HostId) -> Option<i64> {
        self.buffers.known_due_ms(host)
    }

    /// A URL was queued. A URL that moves is removed first, then inserted.
    pub fn insert(&mut self, candidate: Candidate, now_ms: i64) {
        self.buffers.insert(candidate, now_ms);
    }

    /// A URL of the host is no longer queued, or about to move.
    pub fn remove(&mut self, host: HostId, url: UrlId) {
        let was_early = self.early.of(host) > 0;
        self.early.remove(host, url);
        self.buffers.remove(host, url);
        if was_early && self.early.of(host) == 0 {
            self.offer_rest(host);
        }
    }

    /// Forgets what is buffered of the host; it is loaded again in its turn.
    pub fn invalidate(&mut self, host: HostId) {
        self.early.forget(host, &[]);
        self.buffers.invalidate(host);
        self.turns.drop_spare(host);
    }

    /// Forgets what is buffered of the host, and that some of it could be spared, but not
    /// what is worth the price though its rows are not due.
    pub fn forget_buffer(&mut self, host: HostId) {
        self.buffers.invalidate(host);
        self.offer_rest(host);
    }

    /// Forgets all that is buffered. Turns and clocks stay.
    pub fn invalidate_all(&mut self) {
        (self.buffers, self.early) = (Buffers::default(), Early::default());
        self.turns.drop_all_spare();
    }
}
