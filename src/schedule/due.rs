//! Pure: what is due, held by the loop so that the store need not be asked
//! after every poll.
//!
//! The store names the longest due source of each host, so many at once; when
//! a host is free again, its next source takes its place by its own due time.
//! The order is that of due times as the store had them when it was last asked:
//! what has come due since waits for the next time. A busy host is never in
//! here, and a host is in here once at most.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::model::HostId;
use crate::store::DueSource;

/// Hosts named by the store at once at most.
pub(super) const BATCH: u32 = 1_024;
/// The store is asked for all that is due no more often than this.
const GAP: Duration = Duration::from_millis(50);
/// And so many times less often than the answer takes.
const SHARE: u32 = 10;

/// The batch.
#[derive(Debug, Default)]
pub(super) struct Due {
    waiting: BTreeSet<DueSource>,
    /// Everything due up to then is in the batch, or behind what is.
    horizon: Option<Timestamp>,
    /// Sources have come due for another reason than time.
    is_stale: bool,
    /// The store is not asked again before.
    not_before: Option<Instant>,
}

impl Due {
    /// The order may be another one: the store is to be asked again.
    pub(super) fn outdate(&mut self) {
        self.is_stale = true;
    }

    /// Is there anything to ask the store?
    pub(super) fn is_wanting(&self) -> bool {
        self.is_stale || self.waiting.is_empty()
    }

    /// How long until the store may be asked again.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(now)).filter(|pause| !pause.is_zero())
    }

    /// Takes over what the store named at `asked`, which took it from `began`
    /// to `now`.
    pub(super) fn refill(
        &mut self,
        named: Vec<DueSource>,
        busy: &HashMap<HostId, Instant>,
        asked: Timestamp,
        (began, now): (Instant, Instant),
    ) {
        // A full batch ends where it was cut: what is due later comes after it.
        let is_cut = named.len() >= BATCH as usize;
        let last = named.last().filter(|_| is_cut);
        self.horizon = Some(last.map_or(asked, |last| last.at));
        self.waiting = named.into_iter().filter(|due| !busy.contains_key(&due.host)).collect();
        self.is_stale = false;
        self.not_before = Some(now + GAP.max(now.duration_since(began) * SHARE));
    }

    /// A host is free again, and this is what it has due next.
    pub(super) fn follow(&mut self, next: DueSource) {
        if self.horizon.is_some_and(|horizon| next.at <= horizon) {
            self.waiting.insert(next);
        }
    }

    /// The longest due.
    pub(super) fn first(&self) -> Option<DueSource> {
        self.waiting.first().copied()
    }

    /// The longest due, which is being polled from now on.
    pub(super) fn take(&mut self) -> Option<DueSource> {
        self.waiting.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SourceId;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).expect("a time")
    }

    fn due(second: i64, host: i64) -> DueSource {
        DueSource { at: at(second), id: SourceId(100 * host + second), host: HostId(host) }
    }

    fn filled(named: Vec<DueSource>, busy: &[i64]) -> Due {
        let mut batch = Due::default();
        let now = Instant::now();
        let busy = busy.iter().map(|host| (HostId(*host), now)).collect();
        batch.refill(named, &busy, at(10), (now, now));
        batch
    }

    fn hosts(mut batch: Due) -> Vec<i64> {
        std::iter::from_fn(|| batch.take()).map(|due| due.host.0).collect()
    }

    #[test]
    fn what_a_free_host_has_next_takes_its_place_by_its_due_time() {
        let mut batch = filled(vec![due(1, 1), due(3, 2), due(5, 3)], &[]);
        assert_eq!(batch.take(), Some(due(1, 1)));
        batch.follow(due(4, 1));
        assert_eq!(hosts(batch), [2, 1, 3]);
    }

    #[test]
    fn a_busy_host_is_left_out_until_it_is_free() {
        assert_eq!(hosts(filled(vec![due(1, 1), due(3, 2)], &[1])), [2]);
    }

    #[test]
    fn what_came_due_after_the_question_waits_for_the_next() {
        let mut batch = filled(vec![due(1, 1)], &[]);
        batch.follow(due(11, 2));
        assert_eq!(hosts(batch), [1]);
    }

    #[test]
    fn nothing_goes_before_what_a_full_batch_left_out() {
        let named = (0..i64::from(BATCH)).map(|n| due(n / 256, n)).collect();
        let mut batch = filled(named, &[]);
        batch.follow(due(4, 9_999));
        batch.follow(due(2, 9_998));
        let order = hosts(batch);
        assert!(order.contains(&9_998) && !order.contains(&9_999), "{order:?}");
    }

    #[test]
    fn a_slow_answer_is_asked_for_less_often() {
        let mut batch = Due::default();
        assert!(batch.is_wanting());
        let began = Instant::now();
        assert_eq!(batch.pause(began), None);
        let now = began + Duration::from_millis(30);
        batch.refill(vec![due(1, 1)], &HashMap::new(), at(10), (began, now));
        assert!(!batch.is_wanting());
        batch.outdate();
        assert!(batch.is_wanting());
        assert_eq!(batch.pause(now), Some(Duration::from_millis(300)));
        assert_eq!(batch.pause(now + Duration::from_millis(300)), None);
    }
}
