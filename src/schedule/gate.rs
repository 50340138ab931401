//! The gate before every request: robots.txt, one request at a time, the clock.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, OwnedMutexGuard};
use url::Url;

use super::flight::SLOW_POLLS;
use super::{Poller, STORE_PAUSE};
use crate::config::Site;
use crate::fetch::{Gate, Refusal, Wait};
use crate::locks::Place;
use crate::log::redact;
use crate::recrawl::later;
use crate::store::StoreError;
use crate::url::{are_twins, authority};

/// A poll waits this long for its host at most; beyond that it comes back.
const PATIENCE: Duration = Duration::from_secs(30);
/// And this long for a further hop of a redirect, longer than any Crawl-delay:
/// a poll that came back later would only be led to the same hop again.
const PATIENCE_OF_A_HOP: Duration = Duration::from_secs(150);
/// A request that is sent so long after its slot came is sent in it.
const LATE: Duration = Duration::from_millis(100);
/// With a turn at its address, a request waits for another slot no longer than this:
/// others want that turn.
const NEAR: Duration = Duration::from_secs(2);

/// One request at a time per host, and never before its clock: the gate of
/// robots.txt itself, which no robots.txt forbids. Holds the host's lock until
/// the next hop, or its end; its slot is taken last but for the turn at its address,
/// and taken anew where that comes late.
pub(super) struct ClockGate<'p> {
    poller: &'p Poller,
    /// Between requests to the host that is asked first; where a redirect leads
    /// is not for who follows it to say.
    delay: Option<Duration>,
    /// Of the first hop.
    patience: Duration,
    /// Was another place asked before the first hop?
    is_led: bool,
    /// The source that is polled, and the name of its site: elsewhere only so many may
    /// wait, and to so many new places it may lead.
    own: Option<Own>,
    hops: AtomicU32,
    held: Mutex<Option<Held>>,
}

/// What is polled.
struct Own {
    source: Url,
    authority: String,
    site: String,
    /// Does who asks have a slot of a poll?
    has_slot: bool,
}

/// A host that is ours for one hop.
struct Held {
    _lock: OwnedMutexGuard<()>,
    /// The delay and the patience of this hop.
    manners: (Option<Duration>, Duration),
    slot: Option<Slot>,
    is_sent: bool,
}

/// The time of a host that is ours for one request.
#[derive(Clone, Copy)]
struct Slot {
    at: Timestamp,
    /// When it was waited for, and the request could be sent.
    came: Timestamp,
}

impl<'p> ClockGate<'p> {
    /// With the delay of a site for its own host, or none for a host that is
    /// asked for another reason.
    pub(super) fn new(poller: &'p Poller, delay: Option<Duration>) -> Self {
        Self {
            poller,
            delay,
            patience: PATIENCE,
            is_led: false,
            own: None,
            hops: AtomicU32::new(0),
            held: Mutex::new(None),
        }
    }

    /// The same for the poll of a source, which has a slot: a host that many of them are
    /// led to, and that is slow, leaves others theirs.
    pub(super) fn of_source(
        poller: &'p Poller,
        delay: Option<Duration>,
        source: &Url,
        site: Option<&str>,
    ) -> Self {
        let site = site.unwrap_or_default().to_owned();
        let (source, authority) = (source.clone(), authority(source));
        let own = Own { source, authority, site, has_slot: true };
        Self { own: Some(own), ..Self::new(poller, delay) }
    }

    /// For what is asked at another place that a source has named: it leads to so many
    /// new places as redirects do.
    pub(super) fn named_by(poller: &'p Poller, source: &Url, site: Option<&str>) -> Self {
        let mut gate = Self::of_source(poller, None, source, site);
        if let Some(own) = &mut gate.own {
            own.has_slot = false;
        }
        Self { is_led: true, ..gate }
    }

    /// The same for what is asked right after another place: with the patience of a
    /// redirect's hop.
    pub(super) fn led(self) -> Self {
        Self { patience: patience_of_a_hop(self.delay), is_led: true, ..self }
    }

    /// Was another place asked before the hop that comes?
    fn is_led_there(&self) -> bool {
        self.is_led || self.hops.load(Ordering::Relaxed) > 0
    }

    /// The site whose polls lead to the hop that comes from another place.
    fn led_by(&self) -> Option<&str> {
        self.is_led_there().then(|| self.own.as_ref().map_or("", |own| own.site.as_str()))
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
        let is_elsewhere = |own: &Own| own.has_slot && own.authority != authority;
        let is_own = !self.own.as_ref().is_some_and(is_elsewhere);
        let most = if is_own { usize::MAX } else { config.fetch.concurrency * SLOW_POLLS / 2 };
        self.poller.lines.place(authority, most).map_err(|waiting| {
            // Until then they have had their turns, if it is not the host that is slow.
            let a_turn = config.politeness.host_delay.max(Duration::from_secs(1));
            let line = a_turn.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
            let until = later(self.poller.clock.steady(), line.max(PATIENCE));
            Refusal::Later { until, wait: Wait::Host }
        })
    }

    /// May redirects of the site lead to this place? To any that is known, and to so many
    /// others a day.
    async fn may_lead(&self, url: &Url, authority: &str) -> Result<(), Refusal> {
        let Some(own) = self.own.as_ref().filter(|_| self.is_led_there()) else { return Ok(()) };
        if own.authority == authority || are_twins(url, &own.source) {
            return Ok(());
        }
        let Poller { store, clock, led, .. } = self.poller;
        let now = clock.steady();
        match store.knows_host(authority.to_owned()).await {
            Ok(true) => Ok(()),
            Ok(false) => led
                .may_lead(&own.site, authority, now)
                .map_err(|until| Refusal::Later { until, wait: Wait::NewHosts }),
            Err(error) => {
                tracing::error!(%error, authority, "it is not known whether a host is known");
                Err(Refusal::Later { until: later(now, STORE_PAUSE), wait: Wait::Host })
            }
        }
    }

    /// Nobody waits for the request to this URL any more: was its turn yet to come? The
    /// slot that it waited for is given back then. Else it may be under way.
    pub(super) async fn has_not_begun(&self, url: &Url) -> bool {
        let is_sent = self.held.lock().await.as_ref().is_some_and(|held| held.is_sent);
        if !is_sent {
            self.give_back(url).await;
        }
        !is_sent
    }

    /// The hop before is over: its host is free for others.
    async fn let_go(&self) {
        drop(self.held.lock().await.take());
    }

    /// Waits until nobody else of ours asks the host.
    async fn take(&self, authority: &str) {
        let lock = self.poller.locks.take(authority).await;
        let held = Held { _lock: lock, manners: self.manners(), slot: None, is_sent: false };
        *self.held.lock().await = Some(held);
    }

    /// Waits for the next slot of the host that is held, and says whether there was one
    /// within `patience`; `Err` where there is none within that of the hop either. One
    /// that was taken before, and not used, is given back for it.
    async fn wait_for_slot(
        &self,
        held: &mut Held,
        authority: String,
        patience: Option<Duration>,
    ) -> Result<bool, Refusal> {
        let Poller { store, clock, .. } = self.poller;
        let (delay, longest) = held.manners;
        let unused = held.slot.take().map(|slot| slot.at);
        let patience = patience.unwrap_or(longest).min(longest);
        match store.reserve(authority.clone(), delay, patience, unused).await {
            Ok(Ok(at)) => {
                // Who gives up meanwhile can give it back.
                held.slot = Some(Slot { at, came: at });
                let _waits = Waits::among(&self.poller.at_clocks);
                clock.sleep_until(at).await;
                held.slot = Some(Slot { at, came: clock.steady() });
                Ok(true)
            }
            Ok(Err(until)) if patience < longest && until <= later(clock.steady(), longest) => {
                Ok(false)
            }
            Ok(Err(until)) => Err(Refusal::Later { until: ahead_of(until), wait: Wait::Host }),
            Err(error @ StoreError::Elsewhere) => {
                tracing::debug!(%error, authority, "no slot was taken");
                let until = later(clock.steady(), STORE_PAUSE);
                Err(Refusal::Later { until, wait: Wait::Host })
            }
            Err(error) => {
                tracing::error!(%error, authority, "no slot could be taken");
                // What passes has passed soon; what does not is asked no more often
                // than a busy host.
                let pause = if error.passes() { STORE_PAUSE } else { PATIENCE };
                Err(Refusal::Later { until: later(clock.steady(), pause), wait: Wait::Host })
            }
        }
    }
}

/// One of those that wait for the clock of a host, for as long as it does.
struct Waits<'p>(&'p AtomicUsize);

impl<'p> Waits<'p> {
    fn among(waiting: &'p AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate for ClockGate<'_> {
    async fn approach(&self, url: &Url) -> Result<(), Refusal> {
        self.let_go().await;
        let authority = authority(url);
        self.may_lead(url, &authority).await?;
        let _place = self.place(&authority)?;
        self.take(&authority).await;
        Ok(())
    }

    async fn admit(&self, url: &Url) -> Result<(), Refusal> {
        let mut held = self.held.lock().await;
        let Some(held) = held.as_mut() else { return Ok(()) };
        self.wait_for_slot(held, authority(url), None).await.map(|_| ())
    }

    async fn is_on_time(&self, url: &Url, last: bool) -> Result<bool, Refusal> {
        let mut held = self.held.lock().await;
        let Some(held) = held.as_mut() else { return Ok(true) };
        let in_time = |slot: Slot| self.poller.clock.steady() <= later(slot.came, LATE);
        let is_on_time = if held.slot.is_some_and(in_time) {
            true
        } else {
            // A host that is not to be asked any more is not asked for a place in a line.
            let another = self.wait_for_slot(held, authority(url), Some(NEAR)).await?;
            last || another
        };
        held.is_sent = is_on_time;
        Ok(is_on_time)
    }

    async fn give_back(&self, url: &Url) {
        let mut held = self.held.lock().await;
        let Some(slot) = held.as_mut().and_then(|held| held.slot.take()) else { return };
        if let Err(error) = self.poller.store.give_back(authority(url), slot.at).await {
            let url = redact(url);
            tracing::debug!(%error, url, "a slot that was not used is not given back");
        }
    }

    fn is_led(&self) -> bool {
        self.is_led
    }
}

/// When a poll comes back for a slot that is this far off: so much earlier that the slot
/// is its own before the host is free. Who came then would find that those who wait for
/// leases were there first, each time.
fn ahead_of(slot: Timestamp) -> Timestamp {
    slot.checked_sub(PATIENCE / 2).unwrap_or(slot)
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
        let clock = ClockGate::of_source(poller, Some(delay), source, Some(&site.name));
        Self { clock, delay, obeys: site.obey_robots }
    }

    /// The same for what is asked right after another place: with the patience of a
    /// redirect's hop.
    pub(super) fn after_another(poller: &'p Poller, site: &Site, source: &Url) -> Self {
        let gate = Self::new(poller, site, source);
        Self { clock: gate.clock.led(), ..gate }
    }
}

impl Gate for PollGate<'_> {
    async fn approach(&self, url: &Url) -> Result<(), Refusal> {
        // robots.txt may have to be fetched from this very host.
        self.clock.let_go().await;
        let authority = authority(url);
        self.clock.may_lead(url, &authority).await?;
        let _place = self.clock.place(&authority)?;
        if self.obeys {
            let led_by = self.clock.led_by();
            self.clock.poller.judge(url, &authority, self.delay, led_by).await?;
        }
        self.clock.take(&authority).await;
        Ok(())
    }

    async fn admit(&self, url: &Url) -> Result<(), Refusal> {
        self.clock.admit(url).await
    }

    async fn is_on_time(&self, url: &Url, last: bool) -> Result<bool, Refusal> {
        self.clock.is_on_time(url, last).await
    }

    async fn give_back(&self, url: &Url) {
        self.clock.give_back(url).await;
    }

    fn is_led(&self) -> bool {
        self.clock.is_led
    }
}
