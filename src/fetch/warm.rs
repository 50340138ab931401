//! Which authorities we may have an idle connection to.
//!
//! An origin may close an idle connection at the very moment when the next
//! request goes out on it. Such a request is sent once more on a new connection
//! (RFC 9112 section 9.3.1 allows it for GET); a request on a connection of its
//! own is not, since then the failure is the origin's answer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use url::{Position, Url};

/// Authorities remembered; more are forgotten, which costs at most a retry.
const MAX_REMEMBERED: usize = 4_096;

/// When each authority last answered.
pub(super) struct Warm {
    answered: Mutex<HashMap<String, Instant>>,
    idle_timeout: Duration,
}

impl Warm {
    /// Idle connections are closed by us after this time.
    pub(super) fn new(idle_timeout: Duration) -> Self {
        Self { answered: Mutex::default(), idle_timeout }
    }

    /// May a request to this URL go out on a connection that was used before?
    pub(super) fn take(&self, url: &Url, now: Instant) -> bool {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let last = answered.remove(&url[..Position::BeforePath]);
        last.is_some_and(|last| now.duration_since(last) <= self.idle_timeout)
    }

    /// This URL has answered; its connection may be kept.
    pub(super) fn put(&self, url: &Url, now: Instant) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() >= MAX_REMEMBERED {
            answered.retain(|_, last| now.duration_since(*last) <= self.idle_timeout);
        }
        if answered.len() < MAX_REMEMBERED {
            answered.insert(url[..Position::BeforePath].to_owned(), now);
        }
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
    fn the_memory_of_warm_authorities_is_bounded() {
        let warm = Warm::new(Duration::from_secs(10));
        let start = Instant::now();
        (0..2 * MAX_REMEMBERED).for_each(|n| warm.put(&url(n), start));
        assert_eq!(warm.answered.lock().unwrap().len(), MAX_REMEMBERED);
        warm.put(&url(0), start + Duration::from_secs(20));
        assert_eq!(warm.answered.lock().unwrap().len(), 1);
    }
}
