//! Tells those who wait when something may be leased.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::clock::Clock;

/// Per crawl: when the next URL may be leased, in steady Unix milliseconds.
#[derive(Debug, Default)]
pub(super) struct Wake {
    crawls: Mutex<HashMap<String, watch::Sender<Option<i64>>>>,
}

impl Wake {
    /// Says when the next URL of a crawl may be leased; `None`: nothing queued.
    pub(super) fn announce(&self, crawl: &str, ready_ms: Option<i64>) {
        let mut crawls = self.lock();
        match crawls.get(crawl) {
            Some(sender) => {
                sender.send_replace(ready_ms);
            }
            None => {
                crawls.insert(crawl.to_owned(), watch::Sender::new(ready_ms));
            }
        }
    }

    /// Resolves when a URL of the crawl may be leased. Crawls that nobody has
    /// announced are waited for without being remembered.
    pub(super) async fn ready(&self, crawl: &str, clock: &Clock) {
        let Some(mut receiver) = self.lock().get(crawl).map(watch::Sender::subscribe) else {
            return std::future::pending().await;
        };
        loop {
            let ready = *receiver.borrow_and_update();
            let due = async {
                match ready.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                changed = receiver.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// A panic never happens while this lock is held, so poison means nothing.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Option<i64>>>> {
        self.crawls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
