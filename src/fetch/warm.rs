//! Which authorities we may have an idle connection to.
//!
//! An origin may close an idle connection at the very moment when the next
//! request goes out on it. Such a request is sent once more on a new connection
//! (RFC 9112 section 9.3.1 allows it for GET); a request on a connection of its
//! own is not, since then the failure is the origin's answer.
//!
//! Idle connections are bounded: each holds a file and some 60 KB, and a daemon
//! that polls thousands of hosts a second would hold one of each. Beyond the
//! bound a connection is closed after its request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use url::{Position, Url};

/// Idle connections kept at most, to one authority each.
const KEPT: usize = 128;
/// When none is left, those that are closed by now are looked for this often.
const SWEEP: Duration = Duration::from_millis(100);

/// When each authority last answered.
pub(super) struct Warm {
    answered: Mutex<Answered>,
    idle_timeout: Duration,
}

#[derive(Default)]
struct Answered {
    at: HashMap<String, Instant>,
    swept: Option<Instant>,
}

impl Warm {
    /// Idle connections are closed by us after this time.
    pub(super) fn new(idle_timeout: Duration) -> Self {
        Self { answered: Mutex::default(), idle_timeout }
    }

    /// May a request to this URL go out on a connection that was used before?
    pub(super) fn take(&self, url: &Url, now: Instant) -> bool {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let last = answered.at.remove(&url[..Position::BeforePath]);
        last.is_some_and(|last| now.duration_since(last) <= self.idle_timeout)
    }

    /// May one more connection be kept?
    pub(super) fn has_room(&self, now: Instant) -> bool {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = answered.swept.is_none_or(|swept| now.duration_since(swept) >= SWEEP);
        if answered.at.len() >= KEPT && is_time {
            answered.swept = Some(now);
            answered.at.retain(|_, last| now.duration_since(*last) <= self.idle_timeout);
        }
        answered.at.len() < KEPT
    }

    /// This URL has answered; its connection is kept. Requests that were in
    /// flight together may go over the bound, by as many as they are.
    pub(super) fn put(&self, url: &Url, now: Instant) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.at.insert(url[..Position::BeforePath].to_owned(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(n: usize) -> Url {
        Url::parse(&format!("http://h{n}.example/path")).unwrap()
    }

    #[test]
    fn an_authority_is_warm_once_and_for_a_while() {
        let warm = Warm::new(Duration::from_secs(10));
        let start = Instant::now();
        assert!(!warm.take(&url(1), start));
        warm.put(&url(1), start);
        assert!(!warm.take(&url(2), start));
        assert!(warm.take(&url(1), start + Duration::from_secs(10)));
        assert!(!warm.take(&url(1), start));
        warm.put(&url(1), start);
        assert!(!warm.take(&url(1), start + Duration::from_secs(11)));
    }

    #[test]
    fn connections_are_kept_up_to_a_bound_and_again_when_those_are_closed() {
        let warm = Warm::new(Duration::from_secs(10));
        let start = Instant::now();
        for n in 0..KEPT {
            assert!(warm.has_room(start));
            warm.put(&url(n), start);
        }
        assert!(!warm.has_room(start));
        let later = start + Duration::from_secs(11);
        assert!(warm.has_room(later));
        assert_eq!(warm.answered.lock().unwrap().at.len(), 0);
        warm.put(&url(0), later);
        assert!(warm.has_room(later));
    }
}
