//! The gate before every request: robots.txt, one request at a time, the clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use url::Url;

use super::{Poller, STORE_PAUSE};
use crate::fetch::{Gate, Refusal};
use crate::url::authority;

/// A poll waits this long for its host at most; beyond that it comes back.
const PATIENCE: Duration = Duration::from_secs(30);
/// And this long for a further hop of a redirect, longer than any Crawl-delay:
/// a poll that came back later would only be led to the same hop again.
const PATIENCE_OF_A_HOP: Duration = Duration::from_secs(150);

/// Polls that a redirect led to one host are put off for so long while many wait for it:
/// each of them asks its own host again then.
const CROWDED: Duration = Duration::from_secs(300);

/// One request at a time per host, and never before its clock: the gate of
/// robots.txt itself, which no robots.txt forbids. Holds the host's lock until
/// the next hop, or its end.
pub(super) struct ClockGate<'p> {
    poller: &'p Poller,
    /// Between requests to the host that is asked first; where a redirect leads
    /// is not for who follows it to say.
    delay: Option<Duration>,
    /// Of the first hop.
    patience: Duration,
    hops: AtomicU32,
    held: Mutex<Option<OwnedMutexGuard<()>>>,
}

impl<'p> ClockGate<'p> {
    /// With the delay of a site for its own host, or none for a host that is
    /// asked for another reason.
    pub(super) fn new(poller: &'p Poller, delay: Option<Duration>) -> Self {
        let patience = PATIENCE;
        Self { poller, delay, patience, hops: AtomicU32::new(0), held: Mutex::new(None) }
    }

    /// The delay and the patience of the hop that comes, and how many polls may wait
    /// for its host: a host that many redirects lead to, and that is slow, leaves others
    /// their slots.
    fn manners(&self) -> (Option<Duration>, Duration, usize) {
        if self.hops.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.delay, self.patience, usize::MAX)
        } else {
            let most = self.poller.config.borrow().fetch.concurrency / 2;
            (None, patience_of_a_hop(self.delay), most.max(1))
        }
    }

    /// May a request be under way? Before, its turn had not come.
    pub(super) async fn has_admitted(&self) -> bool {
        self.held.lock().await.is_some()
    }

    /// The hop before is over: its host is free for others.
    async fn let_go(&self) {
        drop(self.held.lock().await.take());
    }
}

impl Gate for ClockGate<'_> {
    async fn admit(&self, url: &Url) -> Result<(), Refusal> {
        self.let_go().await;
        let authority = authority(url);
        let (delay, patience, most) = self.manners();
        let Some(lock) = self.poller.locks.take_among(&authority, most).await else {
            let until = crate::recrawl::later(self.poller.clock.steady(), CROWDED);
            return Err(Refusal::Later { until });
        };
        let slot = self.poller.store.reserve(authority.clone(), delay, patience).await;
        match slot {
            Ok(Ok(at)) => {
                self.poller.clock.sleep_until(at).await;
                *self.held.lock().await = Some(lock);
                Ok(())
            }
            Ok(Err(until)) => Err(Refusal::Later { until }),
            Err(error) => {
                tracing::error!(%error, authority, "no slot could be taken");
                // What passes has passed soon; what does not is asked no more often
                // than a busy host.
                let pause = if error.passes() { STORE_PAUSE } else { PATIENCE };
                let until = crate::recrawl::later(self.poller.clock.steady(), pause);
                Err(Refusal::Later { until })
            }
        }
    }
}

fn patience_of_a_hop(delay: Option<Duration>) -> Duration {
    PATIENCE_OF_A_HOP.max(delay.unwrap_or_default() + PATIENCE)
}

/// The gate of every other poll: robots.txt is asked first, where the site
/// obeys it, of each host that a redirect leads to.
pub(super) struct PollGate<'p> {
    clock: ClockGate<'p>,
    delay: Duration,
    obeys: bool,
}

impl<'p> PollGate<'p> {
    pub(super) fn new(poller: &'p Poller, delay: Duration, obeys: bool) -> Self {
        Self { clock: ClockGate::new(poller, Some(delay)), delay, obeys }
    }

    /// The same for what is asked right after another place: with the patience of a
    /// redirect's hop.
    pub(super) fn after_another(poller: &'p Poller, delay: Duration, obeys: bool) -> Self {
        let mut gate = Self::new(poller, delay, obeys);
        gate.clock.patience = patience_of_a_hop(Some(delay));
        gate
    }
}

impl Gate for PollGate<'_> {
    async fn admit(&self, url: &Url) -> Result<(), Refusal> {
        // robots.txt may have to be fetched from this very host.
        self.clock.let_go().await;
        if self.obeys {
            self.clock.poller.judge(url, &authority(url), self.delay).await?;
        }
        self.clock.admit(url).await
    }
}
