//! What is with the broker: leases that are not settled, and leases that wait
//! here until they may be published.
//!
//! [`Held`] is pure. [`Unsettled`] is shared by the publisher and whoever
//! settles, and only bounds what is leased: the store knows what holds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::queue::{Leased, Token};

/// Leases that are neither settled nor given back, each with its end in
/// steady time.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    leases: Mutex<HashMap<Token, Timestamp>>,
    fewer: Notify,
}

impl Unsettled {
    /// Takes over what the store says.
    pub(super) fn replace(&self, leases: impl Iterator<Item = (Token, Timestamp)>) {
        *self.lock() = leases.collect();
        self.fewer.notify_one();
    }

    /// Notes new leases.
    pub(super) fn add(&self, leased: &[Leased], now: Timestamp) {
        let end = |leased: &Leased| now.saturating_add(leased.expires_in).unwrap_or(Timestamp::MAX);
        self.lock().extend(leased.iter().map(|leased| (leased.token, end(leased))));
    }

    /// Leases have ended, by whatever.
    pub(super) fn remove(&self, tokens: impl Iterator<Item = Token>) {
        let mut leases = self.lock();
        let before = leases.len();
        tokens.for_each(|token| {
            leases.remove(&token);
        });
        if leases.len() < before {
            self.fewer.notify_one();
        }
    }

    /// How many there are, and when the first of them ends.
    pub(super) fn count(&self, now: Timestamp) -> (usize, Option<Timestamp>) {
        let mut leases = self.lock();
        leases.retain(|_, end| *end > now);
        (leases.len(), leases.values().min().copied())
    }

    /// Which there are.
    pub(super) fn tokens(&self) -> HashSet<Token> {
        self.lock().keys().copied().collect()
    }

    /// How many there were when somebody looked last, less those that ended.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Resolves when there are fewer than at some time since the last call.
    pub(super) async fn fewer(&self) {
        self.fewer.notified().await;
    }

    /// The map is whole after any panic of another holder.
    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Timestamp>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leases in the order in which they may be fetched.
#[derive(Debug, Default)]
pub(super) struct Held(BinaryHeap<Reverse<Waiting>>);

/// Ordered by when, and of those by what came first.
#[derive(Debug)]
struct Waiting {
    at: (Timestamp, u64),
    leased: Leased,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl Held {
    /// Keeps what was leased just now.
    pub(super) fn add(&mut self, leased: Vec<Leased>) {
        for (place, leased) in leased.into_iter().enumerate() {
            let at = (leased.not_before, place as u64);
            self.0.push(Reverse(Waiting { at, leased }));
        }
    }

    /// Takes out what may be fetched at `now`, up to `limit`.
    pub(super) fn take_ready(&mut self, now: Timestamp, limit: usize) -> Vec<Leased> {
        let mut ready = Vec::new();
        while ready.len() < limit && self.next_at().is_some_and(|at| at <= now) {
            ready.extend(self.0.pop().map(|Reverse(waiting)| waiting.leased));
        }
        ready
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the next of them may be fetched.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.0.peek().map(|Reverse(waiting)| waiting.at.0)
    }

    /// The tokens of all that are left.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.0.iter().map(|Reverse(waiting)| waiting.leased.token)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Priority, Reason, UrlId, UrlKind};

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn leased(id: i64, not_before: i64) -> Leased {
        Leased {
            token: Token { url: UrlId(id), secret: [0; 16] },
            id: UrlId(id),
            kind: UrlKind::Page,
            url: String::new(),
            site: None,
            source: None,
            host: "".into(),
            crawl: "".into(),
            reason: Reason::New,
            priority: Priority::DEFAULT,
            value: 0.0,
            changefreq: None,
            lastmod: None,
            previous_lastmod: None,
            content_hash: None,
            due_at: second(0),
            not_before: second(not_before),
            attempt: 1,
            expires_at: second(0),
            expires_in: Duration::from_secs(10),
            content_signal: None,
            content_usage: None,
            license: None,
        }
    }

    #[test]
    fn nothing_is_taken_before_it_may_be_fetched_and_all_in_order() {
        let mut held = Held::default();
        held.add(vec![leased(1, 30), leased(2, 10), leased(3, 10), leased(4, 20)]);
        let mut taken = |now, limit| -> Vec<i64> {
            held.take_ready(second(now), limit).iter().map(|leased| leased.id.0).collect()
        };
        assert_eq!(taken(9, 9), [0; 0]);
        assert_eq!(taken(20, 1), [2]);
        assert_eq!(taken(20, 9), [3, 4]);
        assert_eq!(held.next_at(), Some(second(30)));
        let left: Vec<_> = held.tokens().collect();
        assert_eq!(left, [Token { url: UrlId(1), secret: [0; 16] }]);
    }

    #[test]
    fn a_lease_counts_until_it_is_settled_or_over() {
        let unsettled = Unsettled::default();
        let all = [leased(1, 0), leased(2, 0)];
        unsettled.add(&all[..1], second(100));
        unsettled.add(&all[1..], second(105));
        assert_eq!(unsettled.count(second(105)), (2, Some(second(110))));
        assert_eq!(unsettled.count(second(110)), (1, Some(second(115))));
        unsettled.remove([all[1].token, all[0].token].into_iter());
        assert_eq!(unsettled.count(second(110)), (0, None));
        unsettled.replace([(all[0].token, second(200))].into_iter());
        assert_eq!(unsettled.count(second(110)), (1, Some(second(200))));
    }
}
