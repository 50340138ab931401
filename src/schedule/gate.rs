//! The gate before every request: robots.txt, one request at a time, the clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use url::Url;

use super::{Poller, SLOW_POLLS, STORE_PAUSE};
use crate::config::Site;
use crate::fetch::{Gate, Refusal};
use crate::locks::Place;
use crate::recrawl::later;
use crate::url::authority;

/// A poll waits this long for its host at most; beyond that it comes back.
const PATIENCE: Duration = Duration::from_secs(30);
/// And this long for a further hop of a redirect, longer than any Crawl-delay:
/// a poll that came back later would only be led to the same hop again.
const PATIENCE_OF_A_HOP: Duration = Duration::from_secs(150);

/// One request at a time per host, and never before its clock: the gate of
/// robots.txt itself, which no robots.txt forbids. Holds the host's lock until
/// the next hop, or its end; its slot is taken last, when nothing else is in the way.
pub(super) struct ClockGate<'p> {
    poller: &'p Poller,
    /// Between requests to the host that is asked first; where a redirect leads
    /// is not for who follows it to say.
    delay: Option<Duration>,
    /// Of the first hop.
    patience: Duration,
    /// The authority of the source that is polled: elsewhere only so many may wait.
    own: Option<String>,
    hops: AtomicU32,
    held: Mutex<Option<Held>>,
}

/// A host that is ours for one hop.
struct Held {
    _lock: OwnedMutexGuard<()>,
    /// The delay and the patience of this hop.
    manners: (Option<Duration>, Duration),
    has_slot: bool,
}

impl<'p> ClockGate<'p> {
    /// With the delay of a site for its own host, or none for a host that is
    /// asked for another reason.
    pub(super) fn new(poller: &'p Poller, delay: Option<Duration>) -> Self {
        Self {
            poller,
            delay,
            patience: PATIENCE,
            own: None,
            hops: AtomicU32::new(0),
            held: Mutex::new(None),
        }
    }

    /// The same for the poll of a source, which has a slot: a host that many of them are
    /// led to, and that is slow, leaves others theirs.
    pub(super) fn of_source(poller: &'p Poller, delay: Option<Duration>, source: &Url) -> Self {
        Self { own: Some(authority(source)), ..Self::new(poller, delay) }
    }

    /// The delay and the patience of the hop that comes.
    fn manners(&self) -> (Option<Duration>, Duration) {
        if self.hops.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.delay, self.patience)
        } else {
            (None, patience_of_a_hop(self.delay))
        }
    }

    /// A place in the line for a host, if there is any.
    fn place(&self, authority: &str) -> Result<Place, Refusal> {
        let config = self.poller.config.borrow();
        let is_own = self.own.as_deref().is_none_or(|own| own == authority);
        let most = if is_own { usize::MAX } else { config.fetch.concurrency * SLOW_POLLS / 2 };
        self.poller.lines.place(authority, most).map_err(|waiting| {
            // Until then they have had their turns, if it is not the host that is slow.
            let a_turn = config.politeness.host_delay.max(Duration::from_secs(1));
            let line = a_turn.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
            Refusal::Later { until: later(self.poller.clock.steady(), line.max(PATIENCE)) }
        })
    }

    /// May a request be under way? Before, its turn had not come.
    pub(super) async fn has_admitted(&self) -> bool {
        self.held.lock().await.as_ref().is_some_and(|held| held.has_slot)
    }

    /// The hop before is over: its host is free for others.
    async fn let_go(&self) {
        drop(self.held.lock().await.take());
    }

    /// Waits until nobody else of ours asks the host.
    async fn take(&self, authority: &str) {
        let lock = self.poller.locks.take(authority).await;
        let held = Held { _lock: lock, manners: self.manners(), has_slot: false };
        *self.held.lock().await = Some(held);
    }

    /// Waits for the next slot of the host that is held.
    async fn wait_for_slot(&self, authority: String) -> Result<(), Refusal> {
        let mut held = self.held.lock().await;
        let (delay, patience) = held.as_ref().map_or((None, self.patience), |held| held.manners);
        let slot = self.poller.store.reserve(authority.clone(), delay, patience).await;
        match slot {
            Ok(Ok(at)) => {
                self.poller.clock.sleep_until(at).await;
                if let Some(held) = held.as_mut() {
                    held.has_slot = true;
                }
                Ok(())
            }
            Ok(Err(until)) => Err(Refusal::Later { until }),
            Err(error) => {
                tracing::error!(%error, authority, "no slot could be taken");
                // What passes has passed soon; what does not is asked no more often
                // than a busy host.
                let pause = if error.passes() { STORE_PAUSE } else { PATIENCE };
                Err(Refusal::Later { until: later(self.poller.clock.steady(), pause) })
            }
        }
    }
}

impl Gate for ClockGate<'_> {
    async fn approach(&self, url: &Url) -> Result<(), Refusal> {
        self.let_go().await;
        let authority = authority(url);
        let _place = self.place(&authority)?;
        self.take(&authority).await;
        Ok(())
    }

    async fn admit(&self, url: &Url) -> Result<(), Refusal> {
        self.wait_for_slot(authority(url)).await
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
    /// For the poll of a source of a site.
    pub(super) fn new(poller: &'p Poller, site: &Site, source: &Url) -> Self {
        let delay = site.host_delay;
        let clock = ClockGate::of_source(poller, Some(delay), source);
        Self { clock, delay, obeys: site.obey_robots }
    }

    /// The same for what is asked right after another place: with the patience of a
    /// redirect's hop.
    pub(super) fn after_another(poller: &'p Poller, site: &Site, source: &Url) -> Self {
        let mut gate = Self::new(poller, site, source);
        gate.clock.patience = patience_of_a_hop(Some(site.host_delay));
        gate
    }
}

impl Gate for PollGate<'_> {
    async fn approach(&self, url: &Url) -> Result<(), Refusal> {
        // robots.txt may have to be fetched from this very host.
        self.clock.let_go().await;
        let authority = authority(url);
        let _place = self.clock.place(&authority)?;
        if self.obeys {
            self.clock.poller.judge(url, &authority, self.delay).await?;
        }
        self.clock.take(&authority).await;
        Ok(())
    }

    async fn admit(&self, url: &Url) -> Result<(), Refusal> {
        self.clock.admit(url).await
    }
}
