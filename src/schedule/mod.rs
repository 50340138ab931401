//! Which source is polled when: the loop over what is due.
//!
//! The schedule is a column, not a set of timers: the loop asks the store for
//! what is due, at most one source per host and a batch at a time, and starts
//! as many polls as there is room for. Each is looked up once more when its
//! turn comes. A restart loses nothing and needs nothing.

mod admissions;
mod again;
mod barred;
mod children;
pub mod cron;
pub mod defects;
mod document;
mod due;
mod effects;
mod flight;
mod gate;
mod granted;
mod home;
pub mod interval;
mod issues;
mod led;
mod moves;
mod outcome;
mod owners;
mod pace;
mod pages;
mod pulse;
mod push;
mod pushed;
mod read;
mod robots;
mod takeover;
mod texts;
mod tombstones;
mod websub;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore, watch};
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::config::{Config, Site};
use crate::fetch::{FetchError, Fetcher};
use crate::locks::Locks;
use crate::metrics::Metrics;
use crate::model::{HostId, Role, SourceId};
use crate::store::views::Counts;
use crate::store::{DueSource, Kept, PollTarget, Store, StoreError};
use crate::threads::Threads;
use due::Due;
use flight::Flight;
use interval::PollEvent;
use interval::hints::Hints;
use led::Led;
use outcome::Ended;
use owners::KnownOwners;
use pace::Pace;
pub(crate) use pulse::Pulse;
use push::PushMemory;
use robots::RobotsCache;

/// Documents decoded, parsed and compared at once: bounds memory and leaves
/// the async workers alone.
const AT_ONCE: usize = 2;
/// Large documents in memory at once, from their reading to their last effect.
const LARGE_DOCUMENTS: usize = 3;
/// Longest that the loop sleeps without asking the store again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Pause after the store refused to tell what is due, or has no room.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks while the disk is nearly full: each goes over all that is due.
const ROBOTS_PAUSE: Duration = Duration::from_secs(5);
/// Pause between two looks while a backlog is worked off.
const PACE_PAUSE: Duration = Duration::from_millis(200);
/// Pause between two looks while all that is due, or was pushed, waits for a busy host
/// or a poll.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// Least time between two looks that found nothing to start.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

/// What every poll needs.
pub(crate) struct Poller {
    store: Store,
    fetcher: Fetcher,
    clock: Clock,
    metrics: Arc<Metrics>,
    config: watch::Receiver<Arc<Config>>,
    /// One per scheme, host and port: one request in flight.
    locks: Locks,
    /// Polls that wait for the clock of a host.
    at_clocks: AtomicUsize,
    /// Who waits for a host, or for its robots.txt.
    lines: Locks,
    /// One at a time reads what a source says, be it polled or pushed.
    reading: Locks,
    robots: RobotsCache,
    led: Led,
    pushes: PushMemory,
    owners: KnownOwners,
    /// Where documents are read.
    threads: Threads,
    /// Where that is done by readings that wait for the store meanwhile.
    waiting: Threads,
    documents: Arc<Semaphore>,
    /// Said once, not at every look.
    short_of_disk: AtomicBool,
    pulse: Pulse,
}

impl Poller {
    /// A poller that is not running yet.
    pub(crate) fn new(
        store: Store,
        fetcher: Fetcher,
        clock: Clock,
        metrics: Arc<Metrics>,
        config: watch::Receiver<Arc<Config>>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            store,
            fetcher,
            clock,
            metrics,
            config,
            locks: Locks::default(),
            at_clocks: AtomicUsize::new(0),
            lines: Locks::default(),
            reading: Locks::default(),
            robots: RobotsCache::default(),
            led: Led::default(),
            pushes: PushMemory::default(),
            owners: KnownOwners::default(),
            threads: Threads::in_background("documents", AT_ONCE)?,
            waiting: Threads::in_background("texts", 1)?,
            documents: Arc::new(Semaphore::new(LARGE_DOCUMENTS)),
            short_of_disk: AtomicBool::new(false),
            pulse: Pulse::new(),
        })
    }

    /// Its sign of life while it runs.
    pub(crate) fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Polls until told to stop; then lets the polls in flight go, which loses
    /// nothing, since a poll that was not committed is due again.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut flight = Flight::default();
        let mut pace = Pace::new(self.clock.now(), self.clock.steady());
        let mut changed = self.store.sources_changed();
        loop {
            self.pulse.beat();
            if changed.has_changed().unwrap_or(false) {
                changed.mark_unchanged();
                flight.due.outdate();
            }
            let started = self.start_due(&mut flight, &mut pace).await;
            let polling = !flight.polls.is_empty();
            let asleep = async {
                match started {
                    Ok(()) => {
                        tokio::time::sleep(IDLE_PAUSE).await;
                        self.until_next_due(polling).await;
                    }
                    Err(pause) => tokio::time::sleep(pause).await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                done = flight.polls.join_next(), if polling => {
                    if let Some(done) = done {
                        flight.land(done);
                    }
                }
                _ = changed.changed() => flight.due.outdate(),
                () = asleep => {}
            }
        }
        flight.polls.shutdown().await;
    }

    /// Starts what is due and has room; `Err` says how long to pause instead.
    async fn start_due(
        self: &Arc<Self>,
        flight: &mut Flight,
        pace: &mut Pace,
    ) -> Result<(), Duration> {
        let config = Arc::clone(&self.config.borrow());
        let concurrency = config.fetch.concurrency;
        let waiting = self.at_clocks.load(Ordering::Relaxed);
        let room = flight.room(concurrency, waiting, Instant::now())?;
        if self.disk_is_short(&config) {
            return Err(self.start_robots(flight, room, &config).await);
        }
        let asked = self.look(flight, concurrency).await.map_err(|error| {
            tracing::error!(%error, "cannot tell which sources are due");
            STORE_PAUSE
        })?;
        for _ in 0..room {
            let Some(next) = flight.next(concurrency) else { break };
            if !pace.admits(next.at, self.clock.steady()) {
                // The order is that of their due times: so are all before it.
                return Err(PACE_PAUSE);
            }
            flight.due.take(&next);
            flight.under_way.begin(&next, Instant::now());
            flight.polls.spawn(Arc::clone(self).take_turn(next));
        }
        // Full, or with something at hand, a poll that ends is what comes next.
        if flight.due.is_wanting() { asked.map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// While the disk is nearly full only what judges pages is polled: each replaces what
    /// was there, and without them nothing could be leased after two days. Says how long
    /// to pause.
    async fn start_robots(
        self: &Arc<Self>,
        flight: &mut Flight,
        room: usize,
        config: &Config,
    ) -> Duration {
        // What was at hand is old by the time that there is room.
        flight.due.outdate();
        flight.freed.clear();
        let now = Instant::now();
        let is_early = flight.robots_at.is_some_and(|at| now.duration_since(at) < ROBOTS_PAUSE);
        let has_room =
            self.store.free_disk().is_none_or(|free| free >= config.store.min_free_disk / 2);
        if !has_room {
            return LOOK_AGAIN;
        }
        if is_early {
            return ROBOTS_PAUSE;
        }
        flight.robots_at = Some(now);
        // Some of them may not be polled now.
        let most = room.saturating_add(flight.polls.len());
        let due = match self.store.due_robots(u32::try_from(most).unwrap_or(u32::MAX)).await {
            Ok(due) => due,
            Err(error) => {
                tracing::error!(%error, "cannot tell which robots.txt are due");
                return LOOK_AGAIN;
            }
        };
        if due.is_empty() {
            return LOOK_AGAIN;
        }
        let concurrency = config.fetch.concurrency;
        let mut started = 0;
        for next in due {
            let way = &mut flight.under_way;
            let is_full = next.site.is_some_and(|site| way.is_full(site, concurrency));
            if started < room && !is_full && !way.is_busy(next.host) {
                way.begin(&next, now);
                flight.polls.spawn(Arc::clone(self).take_turn(next));
                started += 1;
            }
        }
        ROBOTS_PAUSE
    }

    /// Learns what is due: of the hosts that are free again, and where that is
    /// not enough of all. Says how long to wait before all may be asked.
    async fn look(
        &self,
        flight: &mut Flight,
        concurrency: usize,
    ) -> Result<Option<Duration>, StoreError> {
        if !flight.freed.is_empty() {
            let freed = std::mem::take(&mut flight.freed);
            match self.store.next_due_of(freed).await {
                Ok(next) => next.into_iter().for_each(|next| flight.due.follow(next)),
                Err(error) => {
                    flight.due.outdate();
                    return Err(error);
                }
            }
        }
        flight.due.ask(self.store.asked_sources().await?);
        // What comes after those that may not be polled now is to be had as well.
        if flight.next(concurrency).is_some() && !flight.due.is_wanting() {
            return Ok(None);
        }
        let began = Instant::now();
        if let Some(pause) = flight.due.pause(began) {
            return Ok(Some(pause));
        }
        let asked = self.clock.now();
        let full = flight.under_way.full(concurrency);
        let most = Due::batch(&flight.under_way);
        let named = self.store.due_sources(most, full.clone()).await?;
        let took = (began, Instant::now());
        flight.due.refill(named, &flight.under_way, &full, asked, took);
        Ok(None)
    }

    /// Polls a source whose turn has come, if it is still due.
    async fn take_turn(self: Arc<Self>, due: DueSource) -> HostId {
        let _alone = self.alone_with(due.id).await;
        let target = match self.store.still_due(due.id).await {
            Ok(Some(target)) => target,
            Ok(None) | Err(StoreError::Elsewhere) => return due.host,
            Err(error) => {
                tracing::error!(source = %due.id, %error, "cannot read a source that is due");
                tokio::time::sleep(STORE_PAUSE).await;
                return due.host;
            }
        };
        let poll = tokio::spawn(Arc::clone(&self).poll(target.clone()));
        // Let go of with the loop, as its own task would not be.
        if let Err(error) = AbortOnDropHandle::new(poll).await {
            self.panicked(&target, &error).await;
        }
        due.host
    }

    /// Is there less room than polls, and pushes, may begin with?
    fn disk_is_short(&self, config: &Config) -> bool {
        let short = self.store.free_disk().is_some_and(|free| free < config.store.min_free_disk);
        let was_short = self.short_of_disk.swap(short, Ordering::Relaxed);
        self.metrics.polls_paused(short);
        if was_short && !short {
            tracing::info!("polls go on: there is room on the disk again");
        }
        if short && !was_short {
            tracing::warn!(
                min_free_disk = %crate::config::units::format_size(config.store.min_free_disk),
                "polls pause: the disk is nearly full"
            );
        }
        short
    }

    /// Waits for the next source to come due; `polling` says whether any poll
    /// is in flight.
    async fn until_next_due(&self, polling: bool) {
        let next = self.store.next_source_due().await.ok().flatten();
        let now = self.clock.now();
        let wait = next.map_or(LOOK_AGAIN, |at| {
            Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO).min(LOOK_AGAIN)
        });
        if wait.is_zero() {
            // It came due after the last look, or its host is busy; a poll that
            // ends wakes the loop earlier.
            if polling {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            return;
        }
        self.clock.sleep(wait).await;
    }

    /// Polls one source, whatever it is. Never fails: what goes wrong is
    /// written down with the source.
    pub(crate) async fn poll(self: Arc<Self>, target: PollTarget) {
        let url = crate::log::redact(&target.url);
        let done = match target.role {
            Role::Robots => self.poll_robots(&target).await,
            Role::Home => self.poll_home(&target).await,
            Role::Sitemap | Role::Feed => Box::pin(self.poll_document(&target)).await,
        };
        // Sources leave, and go to other daemons, while they are polled.
        if let Err(error @ (StoreError::Gone(_) | StoreError::Elsewhere)) = &done {
            tracing::info!(source = %target.id, url, %error, "poll given up");
        } else if let Err(error) = done {
            tracing::error!(source = %target.id, url, %error, "poll not kept");
            tokio::time::sleep(STORE_PAUSE).await;
        }
    }

    /// A panic is our fault and fails that source only: it backs off like any
    /// other failure, so that it is not tried again at once and for ever.
    async fn panicked(&self, target: &PollTarget, error: &JoinError) {
        tracing::error!(source = %target.id, %error, "a poll panicked");
        let why = "an internal error, please report it".to_owned();
        let ended = Ended::bad(PollEvent::Failed, "failed", why);
        let next = self.next(target, &ended, &Hints::default());
        let answer = Err(FetchError::Protocol("an internal error".to_owned()));
        let (began, counts) = (self.clock.now(), Counts::default());
        let kept = self.finish(target, began, ended, &answer, next, counts, Kept::Nothing).await;
        if let Err(error) = kept {
            tracing::error!(source = %target.id, %error, "poll not kept");
        }
    }

    /// Nobody else reads what the source says, until this is dropped.
    async fn alone_with(&self, source: SourceId) -> OwnedMutexGuard<()> {
        self.reading.take(&source.to_string()).await
    }

    /// The same, where nobody does just now.
    fn alone_at_once(&self, source: SourceId) -> Option<OwnedMutexGuard<()>> {
        self.reading.try_take(&source.to_string())
    }

    /// The site of a source, as the config has it now.
    fn site_of(&self, target: &PollTarget) -> Option<Arc<Site>> {
        let name = target.site_name.as_ref()?;
        self.config.borrow().sites.get(name).cloned()
    }
}
