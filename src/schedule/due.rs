//! Pure: what is due, held by the loop so that the store need not be asked
//! after every poll.
//!
//! The store names the longest due source of each host, so many at once; when
//! a host is free again, its next source takes its place by its own due time.
//! The order is that of due times as the store had them when it was last asked:
//! what has come due since waits for the next time. A busy host is never in
//! here, and a host is in here once at most, but for what is held: sources of a site
//! that has its share of polls wait aside, so that those behind them are seen, until it
//! has room again. What somebody asked for by name goes before all that time has made due.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::flight::UnderWay;
use crate::model::SiteId;
use crate::store::DueSource;

/// Hosts that can be polled named by the store at once at most.
const BATCH: usize = 1_024;
/// The store is asked for all that is due no more often than this.
const GAP: Duration = Duration::from_millis(50);
/// And so many times less often than the answer takes.
const SHARE: u32 = 10;

/// Sources that go before all others at most; more of them take their turn.
const MOST_ASKED: usize = 1_024;

/// The batch.
#[derive(Debug, Default)]
pub(super) struct Due {
    waiting: BTreeSet<DueSource>,
    /// What somebody asked for, before all that is waiting.
    asked: BTreeSet<DueSource>,
    /// Of sites that have their share.
    held: HashMap<SiteId, BTreeSet<DueSource>>,
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

    /// Hosts that the store is to name at most: what those have due that are being polled
    /// comes first, as a rule.
    pub(super) fn batch(under_way: &UnderWay) -> u32 {
        u32::try_from(BATCH + under_way.hosts()).unwrap_or(u32::MAX)
    }

    /// Takes over what the store named at `asked`, which took it from `began`
    /// to `now`, and in which it passed over the sites that are `full`.
    pub(super) fn refill(
        &mut self,
        named: Vec<DueSource>,
        under_way: &UnderWay,
        full: &[SiteId],
        asked: Timestamp,
        (began, now): (Instant, Instant),
    ) {
        // A full batch ends where it was cut: what is due later comes after it.
        let is_cut = named.len() >= Self::batch(under_way) as usize;
        let last = named.last().filter(|_| is_cut);
        self.horizon = Some(last.map_or(asked, |last| last.at));
        self.waiting = named.into_iter().filter(|due| !under_way.is_busy(due.host)).collect();
        self.held.retain(|site, _| full.contains(site));
        self.is_stale = false;
        self.not_before = Some(now + GAP.max(now.duration_since(began) * SHARE));
    }

    /// A host is free again, and this is what it has due next.
    pub(super) fn follow(&mut self, next: DueSource) {
        if self.horizon.is_some_and(|horizon| next.at <= horizon) {
            self.waiting.insert(next);
        }
    }

    /// Somebody wants these polled now.
    pub(super) fn ask(&mut self, sources: Vec<DueSource>) {
        let room = MOST_ASKED.saturating_sub(self.asked.len());
        self.asked.extend(sources.into_iter().take(room));
    }

    /// What was asked for, else the longest due that may be polled, as far as it is known.
    pub(super) fn first(&mut self, under_way: &UnderWay, concurrency: usize) -> Option<DueSource> {
        let is_full = |site: &SiteId| under_way.is_full(*site, concurrency);
        let waiting = &mut self.waiting;
        self.held.retain(|site, held| {
            if !is_full(site) {
                waiting.append(held);
            }
            !held.is_empty()
        });
        if let Some(next) = self.asked.iter().find(|due| !under_way.is_busy(due.host)) {
            return Some(*next);
        }
        while let Some(next) = self.waiting.first().copied() {
            let full = next.site.filter(is_full);
            // Of a host that was asked for another site meanwhile the store tells anew.
            let is_busy = under_way.is_busy(next.host);
            if full.is_none() && !is_busy {
                return Some(next);
            }
            self.waiting.pop_first();
            if let Some(site) = full.filter(|_| !is_busy) {
                self.held.entry(site).or_default().insert(next);
            }
        }
        None
    }

    /// What [`Due::first`] has named is being polled from now on.
    pub(super) fn take(&mut self, named: &DueSource) {
        if !self.asked.remove(named) {
            self.waiting.remove(named);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HostId, SourceId};

    /// Polls of which one or two are few.
    const MANY: usize = 100;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).expect("a time")
    }

    fn due(second: i64, host: i64) -> DueSource {
        let id = SourceId(100 * host + second);
        DueSource { at: at(second), id, host: HostId(host), site: None }
    }

    fn of_site(second: i64, host: i64, site: i64) -> DueSource {
        DueSource { site: Some(SiteId(site)), ..due(second, host) }
    }

    fn busy(hosts: &[DueSource]) -> UnderWay {
        let mut under_way = UnderWay::default();
        for due in hosts {
            under_way.begin(due, Instant::now());
        }
        under_way
    }

    fn filled(named: Vec<DueSource>, busy: &[i64]) -> Due {
        let mut batch = Due::default();
        let now = Instant::now();
        let busy = self::busy(&busy.iter().map(|host| due(0, *host)).collect::<Vec<_>>());
        batch.refill(named, &busy, &[], at(10), (now, now));
        batch
    }

    fn taken(batch: &mut Due) -> Option<DueSource> {
        let next = batch.first(&UnderWay::default(), MANY)?;
        batch.take(&next);
        Some(next)
    }

    fn hosts(mut batch: Due) -> Vec<i64> {
        std::iter::from_fn(|| taken(&mut batch)).map(|due| due.host.0).collect()
    }

    #[test]
    fn what_a_free_host_has_next_takes_its_place_by_its_due_time() {
        let mut batch = filled(vec![due(1, 1), due(3, 2), due(5, 3)], &[]);
        assert_eq!(taken(&mut batch), Some(due(1, 1)));
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
        let named = (0..).take(BATCH).map(|n| due(n / 256, n)).collect();
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
        batch.refill(vec![due(1, 1)], &UnderWay::default(), &[], at(10), (began, now));
        assert!(!batch.is_wanting());
        batch.outdate();
        assert!(batch.is_wanting());
        assert_eq!(batch.pause(now), Some(Duration::from_millis(300)));
        assert_eq!(batch.pause(now + Duration::from_millis(300)), None);
    }

    #[test]
    fn a_site_that_has_its_share_lets_those_behind_it_pass_and_comes_back_in_its_order() {
        let named = vec![of_site(1, 1, 7), of_site(2, 2, 7), of_site(3, 3, 8), due(4, 4)];
        let mut batch = filled(named, &[]);
        // Of four slots one is a share, and two are taken.
        let taken = [of_site(0, 91, 7), of_site(0, 92, 9)];
        let under_way = busy(&taken);
        assert_eq!(batch.first(&under_way, 1), Some(of_site(3, 3, 8)));
        batch.take(&of_site(3, 3, 8));
        assert_eq!(batch.first(&under_way, 1), Some(due(4, 4)));
        batch.take(&due(4, 4));
        assert_eq!(batch.first(&under_way, 1), None);
        assert!(batch.is_wanting(), "what is behind them is asked for");
        let now = Instant::now();
        batch.refill(vec![of_site(5, 5, 8)], &under_way, &[SiteId(7)], at(10), (now, now));
        assert_eq!(batch.first(&under_way, 1), Some(of_site(5, 5, 8)));
        assert_eq!(batch.first(&busy(&taken[..1]), 1), Some(of_site(1, 1, 7)));
        // A host that is asked for another site meanwhile is not asked twice.
        batch.take(&of_site(1, 1, 7));
        let under_way = busy(&[of_site(0, 2, 9)]);
        assert_eq!(batch.first(&under_way, MANY), Some(of_site(5, 5, 8)));
    }

    #[test]
    fn what_was_asked_for_goes_first_and_waits_for_its_host_only() {
        let mut batch = filled(vec![due(1, 1), due(3, 2), due(5, 3)], &[]);
        batch.ask(vec![due(9, 2), due(8, 7), due(9, 3)]);
        let under_way = busy(&[due(0, 7)]);
        assert_eq!(batch.first(&under_way, MANY), Some(due(9, 2)));
        batch.take(&due(9, 2));
        assert_eq!(batch.first(&busy(&[due(9, 2), due(0, 7)]), MANY), Some(due(9, 3)));
        batch.take(&due(9, 3));
        assert_eq!(hosts(batch), [7, 1, 2, 3]);
    }

    #[test]
    fn no_more_go_first_than_so_many() {
        let mut batch = Due::default();
        batch.ask((0..2_000).map(|host| due(1, host)).collect());
        batch.ask(vec![due(1, 3_000)]);
        assert_eq!(hosts(batch).len(), MOST_ASKED);
    }
}
