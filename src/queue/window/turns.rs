//! Whose turn it is: stride scheduling over the hosts that may be served.
//!
//! Each host has a *pass*, which grows by URLs served over weight; of the hosts
//! that may be served the one with the lowest pass is next, of equal ones the
//! one that has waited longest. The pass of the last one served is the present:
//! a host that comes back from idleness or from its politeness clock enters at
//! the present at the earliest, so it cannot save up turns, and keeps a pass
//! beyond the present, so it cannot shake off what it owes. When no host may be
//! served any more, all debts are void.
//!
//! Keeps: every host with something queued is in exactly one of the two queues,
//! by what is known of it; the others are in neither.

use std::cmp::Reverse;

use priority_queue::PriorityQueue;

use crate::by_id::ById;
use crate::model::HostId;

/// Least weight that a host can have: a thousandth of the normal share.
pub const MIN_WEIGHT: f64 = 0.001;
/// Greatest weight that a host can have: a thousand times the normal share.
pub const MAX_WEIGHT: f64 = 1_000.0;

/// Pass of one URL at weight 1. At this scale a lone host of the least weight
/// serves 10^13 URLs before the pass comes to its end.
const STRIDE: f64 = 1000.0;
/// Hosts with nothing queued that are looked through at the earliest.
const FIRST_SWEEP: usize = 1024;

/// Where a host stands among those that may be served: its pass, then since when.
pub type Rank = Reverse<(u64, u64)>;

#[derive(Debug, Default)]
pub(super) struct Turns {
    hosts: ById<HostId, Host>,
    /// Hosts that were ready when last looked at: lowest pass first.
    ready: PriorityQueue<HostId, Rank>,
    /// Hosts that were not: earliest first.
    waiting: PriorityQueue<HostId, Reverse<(i64, u64)>>,
    /// Hosts with something that is not due but worth the price, or due and worth less, that
    /// may be served: those of the former first, then the one of which nothing was taken for
    /// longest.
    spare: PriorityQueue<HostId, Reverse<(bool, u64, u64)>>,
    /// Those that may not yet: by their clocks.
    spare_waiting: PriorityQueue<HostId, (Reverse<i64>, bool)>,
    /// Pass of the host last found to be next.
    present: u64,
    /// Greatest pass of any host.
    furthest: u64,
    /// Numbers every entry into a queue: the older of equals goes first.
    sequence: u64,
    latest_now_ms: i64,
    /// Sweep idle hosts when there are this many of them.
    sweep_at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Host {
    /// Lower bound of when something is due; `None` when nothing is queued.
    due_at_ms: Option<i64>,
    not_before_ms: i64,
    pass: u64,
    weight: f32,
    /// URLs taken so far: tells whose turn within the host it is.
    fetches: u32,
    /// When the last of them was, as a number of the sequence.
    taken_at: u64,
}

impl Host {
    fn ready_at(&self) -> Option<i64> {
        Some(self.due_at_ms?.max(self.not_before_ms))
    }
}

impl Turns {
    pub(super) fn active(&self) -> usize {
        self.ready.len() + self.waiting.len()
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn wake(&mut self, host: HostId, due_at_ms: i64, weight: f64) {
        // Within the limits, so nothing but precision is lost.
        #[allow(clippy::cast_possible_truncation)]
        let kept = if weight.is_nan() { 1.0 } else { weight.clamp(MIN_WEIGHT, MAX_WEIGHT) as f32 };
        self.state(host).weight = kept;
        self.look_at(host, due_at_ms);
    }

    pub(super) fn look_at(&mut self, host: HostId, due_at_ms: i64) {
        let state = self.state(host);
        let bound = state.due_at_ms.map_or(due_at_ms, |known| known.min(due_at_ms));
        let earlier = state.due_at_ms != Some(bound);
        state.due_at_ms = Some(bound);
        if earlier && !self.ready.contains(&host) {
            self.wait(host);
        }
    }

    pub(super) fn set_clock(&mut self, host: HostId, not_before_ms: i64) {
        let state = self.state(host);
        if state.not_before_ms == not_before_ms {
            return;
        }
        state.not_before_ms = not_before_ms;
        // A ready host is looked at again before it is yielded.
        if !self.ready.contains(&host) {
            self.wait(host);
        }
        // It may be sooner than it was.
        if let Some(&(_, is_worth)) = self.spare_waiting.get_priority(&host) {
            self.offer_spare(host, is_worth);
        }
        self.sweep_idle();
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.ready.remove(&host);
        self.waiting.remove(&host);
        if let Some(state) = self.hosts.get_mut(&host) {
            state.due_at_ms = None;
        }
        self.drop_spare(host);
        self.sweep_idle();
    }

    /// URLs taken of the host so far.
    pub(super) fn fetches(&self, host: HostId) -> u64 {
        self.hosts.get(&host).map_or(0, |host| u64::from(host.fetches))
    }

    pub(super) fn took(&mut self, host: HostId, urls: usize) {
        if urls == 0 {
            return;
        }
        self.sequence += 1;
        let urls = u32::try_from(urls).unwrap_or(u32::MAX);
        if let Some(host) = self.hosts.get_mut(&host) {
            host.fetches = host.fetches.wrapping_add(urls);
            host.taken_at = self.sequence;
        }
    }

    /// When something was last taken of the host: of two, the later is the greater.
    pub(super) fn taken_at(&self, host: HostId) -> u64 {
        self.hosts.get(&host).map_or(0, |host| host.taken_at)
    }

    /// The host has something to spare, of which some may be worth the price. Its turn is
    /// before that of others of which something was taken since: a host of which little is
    /// worth the price would else stand behind those of which much is, and is never proved
    /// to be worth more.
    pub(super) fn offer_spare(&mut self, host: HostId, is_worth: bool) {
        let state = self.hosts.get(&host);
        let clock = state.map_or(i64::MIN, |host| host.not_before_ms);
        let taken_at = state.map_or(0, |host| host.taken_at);
        self.drop_spare(host);
        if clock > self.latest_now_ms {
            self.spare_waiting.push(host, (Reverse(clock), is_worth));
        } else {
            self.sequence += 1;
            self.spare.push(host, Reverse((!is_worth, taken_at, self.sequence)));
        }
    }

    pub(super) fn drop_spare(&mut self, host: HostId) {
        self.spare.remove(&host);
        self.spare_waiting.remove(&host);
    }

    pub(super) fn drop_all_spare(&mut self) {
        self.spare.clear();
        self.spare_waiting.clear();
    }

    pub(super) fn next_spare(&mut self, now_ms: i64) -> Option<HostId> {
        let now_ms = self.latest_now_ms.max(now_ms);
        self.latest_now_ms = now_ms;
        while let Some((&host, &(Reverse(clock), is_worth))) = self.spare_waiting.peek()
            && clock <= now_ms
        {
            // Behind its clock, if that has moved since.
            self.offer_spare(host, is_worth);
        }
        loop {
            let (&host, &Reverse((is_cheap, _, _))) = self.spare.peek()?;
            let clock = self.hosts.get(&host).map_or(i64::MIN, |host| host.not_before_ms);
            if clock <= now_ms {
                return Some(host);
            }
            // It was served meanwhile: its clock has moved.
            self.offer_spare(host, !is_cheap);
        }
    }

    pub(super) fn is_held_up(&self, now_ms: i64) -> bool {
        let next = self.ready.peek().map(|(host, _)| host);
        let next = next.or_else(|| self.waiting.peek().map(|(host, _)| host));
        let due = next.and_then(|host| self.hosts.get(host)?.due_at_ms);
        // So does what is worth the price and not due, once a call has taken what it may.
        let early = self.spare_waiting.peek().filter(|(_, (_, is_worth))| *is_worth);
        let worthy_at = self.next_worthy_at().unwrap_or(i64::MAX);
        due.is_some_and(|due| due <= now_ms)
            || early.is_some_and(|(_, (Reverse(at), _))| *at <= worthy_at)
    }

    pub(super) fn has_queued(&self, host: HostId) -> bool {
        self.hosts.get(&host).is_some_and(|host| host.due_at_ms.is_some())
    }

    /// A host is not to be served before.
    pub(super) fn clock(&self, host: HostId) -> Option<i64> {
        Some(self.hosts.get(&host)?.not_before_ms)
    }

    /// Hosts that may have something due, whatever their clocks.
    pub(super) fn hosts_due(&self, now_ms: i64) -> usize {
        self.all_due(now_ms).count()
    }

    /// The same, each.
    pub(super) fn all_due(&self, now_ms: i64) -> impl Iterator<Item = HostId> + '_ {
        let is_due = move |host: &Host| host.due_at_ms.is_some_and(|at| at <= now_ms);
        self.hosts.iter().filter(move |(_, host)| is_due(host)).map(|(host, _)| *host)
    }

    pub(super) fn next(&mut self, now_ms: i64) -> Option<HostId> {
        self.admit(now_ms);
        while let Some((&host, &Reverse((pass, _)))) = self.ready.peek() {
            if self.may_be_served(host, now_ms) {
                self.present = self.present.max(pass);
                return Some(host);
            }
            self.ready.remove(&host);
            self.wait(host);
        }
        // Nobody had to stand back for anybody, so nobody owes anything.
        self.present = self.furthest;
        None
    }

    /// The hosts whose turns come next, as far as they are known to be ready.
    pub(super) fn coming(&mut self, most: usize) -> Vec<HostId> {
        let next: Vec<_> = std::iter::from_fn(|| self.ready.pop()).take(most).collect();
        let hosts = next.iter().map(|(host, _)| *host).collect();
        self.ready.extend(next);
        hosts
    }

    /// Where a host stands among those that may be served, the greatest first.
    pub(super) fn rank(&mut self, host: HostId, now_ms: i64) -> Option<Rank> {
        self.admit(now_ms);
        // The present stays: the hosts passed over have not been served.
        if self.may_be_served(host, now_ms) {
            self.ready.get_priority(&host).copied()
        } else {
            None
        }
    }

    pub(super) fn next_among(
        &mut self,
        now_ms: i64,
        hosts: impl IntoIterator<Item = HostId>,
    ) -> Option<HostId> {
        let ranked = hosts.into_iter().filter_map(|host| Some((self.rank(host, now_ms)?, host)));
        ranked.max_by_key(|&(rank, _)| rank).map(|(_, host)| host)
    }

    pub(super) fn served(
        &mut self,
        host: HostId,
        urls: u32,
        next_due_ms: Option<i64>,
        not_before_ms: i64,
    ) {
        let state = self.state(host);
        let stride = (f64::from(urls.max(1)) * STRIDE / f64::from(state.weight)).round();
        // Positive, and at most 2^32 * 1000 * 1000.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let stride = stride as u64;
        state.pass = state.pass.saturating_add(stride);
        let pass = state.pass;
        state.due_at_ms = next_due_ms;
        state.not_before_ms = not_before_ms;
        self.furthest = self.furthest.max(pass);
        if next_due_ms.is_none() {
            self.forget(host);
        } else {
            self.requeue(host);
        }
    }

    pub(super) fn skipped(&mut self, host: HostId, until_ms: i64) {
        // At least past the present moment: skipping must get the caller on.
        let until_ms = until_ms.max(self.latest_now_ms.saturating_add(1));
        let state = self.state(host);
        state.not_before_ms = state.not_before_ms.max(until_ms);
        self.requeue(host);
    }

    pub(super) fn next_ready_at(&self) -> Option<i64> {
        self.next_worthy_at().into_iter().chain(self.next_spare_at()).min()
    }

    /// The same but for what is worth less than the price.
    pub(super) fn next_worthy_at(&self) -> Option<i64> {
        let waiting = self.waiting.peek().map(|(_, &Reverse((at, _)))| at);
        // Those were ready at the time; whether they still are, `next` finds out.
        let ready = (!self.ready.is_empty()).then_some(self.latest_now_ms);
        waiting.into_iter().chain(ready).min()
    }

    /// And of that.
    pub(super) fn next_spare_at(&self) -> Option<i64> {
        let waiting = self.spare_waiting.peek().map(|(_, &(Reverse(at), _))| at);
        let ready = (!self.spare.is_empty()).then_some(self.latest_now_ms);
        waiting.into_iter().chain(ready).min()
    }

    pub(super) fn next_ready_among(
        &self,
        now_ms: i64,
        again_ms: i64,
        hosts: impl IntoIterator<Item = HostId>,
    ) -> Option<i64> {
        let ready = hosts.into_iter().filter_map(|host| self.hosts.get(&host)?.ready_at());
        ready.map(|at| if at > now_ms { at } else { again_ms }).min()
    }

    fn state(&mut self, host: HostId) -> &mut Host {
        let present = self.present;
        self.hosts.entry(host).or_insert(Host {
            due_at_ms: None,
            not_before_ms: i64::MIN,
            pass: present,
            weight: 1.0,
            fetches: 0,
            taken_at: 0,
        })
    }

    fn may_be_served(&self, host: HostId, now_ms: i64) -> bool {
        self.hosts.get(&host).and_then(Host::ready_at).is_some_and(|at| at <= now_ms)
    }

    /// Moves what has become ready from one queue to the other, in order.
    fn admit(&mut self, now_ms: i64) {
        self.latest_now_ms = self.latest_now_ms.max(now_ms);
        while let Some((&host, &Reverse((ready_at, _)))) = self.waiting.peek() {
            if ready_at > now_ms {
                return;
            }
            self.waiting.remove(&host);
            if let Some(state) = self.hosts.get_mut(&host) {
                state.pass = state.pass.max(self.present);
                self.sequence += 1;
                self.ready.push(host, Reverse((state.pass, self.sequence)));
            }
        }
    }

    /// Behind its equals, among the ready hosts if it still is one.
    fn requeue(&mut self, host: HostId) {
        let Some(&state) = self.hosts.get(&host) else { return };
        if self.ready.contains(&host) && state.ready_at().is_some_and(|at| at <= self.latest_now_ms)
        {
            self.sequence += 1;
            self.ready.push(host, Reverse((state.pass, self.sequence)));
            return;
        }
        self.ready.remove(&host);
        self.wait(host);
    }

    /// Among the waiting hosts, or in no queue when nothing is queued.
    fn wait(&mut self, host: HostId) {
        let Some(ready_at) = self.hosts.get(&host).and_then(Host::ready_at) else { return };
        self.sequence += 1;
        self.waiting.push(host, Reverse((ready_at, self.sequence)));
    }

    /// Drops hosts of which nothing is worth remembering: none queued, clock
    /// over, nothing owed. Looks through all of them, but only when the idle
    /// ones have doubled since the last time.
    fn sweep_idle(&mut self) {
        let idle = self.hosts.len().saturating_sub(self.active());
        if idle < self.sweep_at.max(FIRST_SWEEP) {
            return;
        }
        let (now_ms, present) = (self.latest_now_ms, self.present);
        self.hosts.retain(|_, host| {
            host.due_at_ms.is_some() || host.not_before_ms > now_ms || host.pass > present
        });
        self.sweep_at = 2 * self.hosts.len().saturating_sub(self.active());
    }
}
