//! Which source is polled when: the loop over what is due.
//!
//! The schedule is a column, not a set of timers: the loop asks the store for
//! what is due, at most one source per host, and starts as many polls as there
//! is room for. A restart loses nothing and needs nothing.

mod admissions;
mod again;
mod children;
pub mod cron;
pub mod defects;
mod document;
mod effects;
mod gate;
mod home;
pub mod interval;
mod issues;
mod moves;
mod outcome;
mod pace;
mod pages;
mod read;
mod robots;
mod takeover;
mod texts;
mod tombstones;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::config::{Config, Site};
use crate::fetch::{FetchError, Fetcher};
use crate::metrics::Metrics;
use crate::model::{HostId, Role};
use crate::store::views::Counts;
use crate::store::{Kept, PollTarget, Store};
use gate::HostLocks;
use interval::PollEvent;
use interval::hints::Hints;
use outcome::Ended;
use pace::Pace;
use robots::RobotsCache;

/// Documents decoded, parsed and compared at once: bounds memory and leaves
/// the async workers alone.
const CPU_JOBS: usize = 2;
/// Large documents in memory at once, from their reading to their last effect.
const LARGE_DOCUMENTS: usize = 4;
/// Longest that the loop sleeps without asking the store again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Pause after the store refused to tell what is due, or has no room.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks while a backlog is worked off.
const PACE_PAUSE: Duration = Duration::from_millis(200);
/// Pause between two looks while all that is due waits for a busy host.
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
    locks: HostLocks,
    robots: RobotsCache,
    cpu: Arc<Semaphore>,
    documents: Arc<Semaphore>,
    /// Turns of readings that wait for the store while they read.
    readings: Arc<Semaphore>,
    /// Said once, not at every look.
    short_of_disk: AtomicBool,
}

impl Poller {
    /// A poller that is not running yet.
    pub(crate) fn new(
        store: Store,
        fetcher: Fetcher,
        clock: Clock,
        metrics: Arc<Metrics>,
        config: watch::Receiver<Arc<Config>>,
    ) -> Self {
        Self {
            store,
            fetcher,
            clock,
            metrics,
            config,
            locks: HostLocks::default(),
            robots: RobotsCache::default(),
            cpu: Arc::new(Semaphore::new(CPU_JOBS)),
            documents: Arc::new(Semaphore::new(LARGE_DOCUMENTS)),
            readings: Arc::new(Semaphore::new(1)),
            short_of_disk: AtomicBool::new(false),
        }
    }

    /// Polls until told to stop; then lets the polls in flight go, which loses
    /// nothing, since a poll that was not committed is due again.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut polls: JoinSet<HostId> = JoinSet::new();
        let mut busy: HashSet<HostId> = HashSet::new();
        let mut pace = Pace::new(self.clock.now());
        let mut changed = self.store.sources_changed();
        loop {
            changed.mark_unchanged();
            let started = self.start_due(&mut polls, &mut busy, &mut pace).await;
            let polling = !polls.is_empty();
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
                done = polls.join_next(), if !polls.is_empty() => {
                    if let Some(done) = done {
                        free(done, &mut busy);
                    }
                }
                _ = changed.changed() => {}
                () = asleep => {}
            }
        }
        polls.shutdown().await;
    }

    /// Starts what is due and has room; `Err` says how long to pause instead.
    async fn start_due(
        self: &Arc<Self>,
        polls: &mut JoinSet<HostId>,
        busy: &mut HashSet<HostId>,
        pace: &mut Pace,
    ) -> Result<(), Duration> {
        let config = Arc::clone(&self.config.borrow());
        let room = config.fetch.concurrency.saturating_sub(polls.len());
        if room == 0 {
            return Ok(());
        }
        if self.disk_is_short(&config) {
            return Err(LOOK_AGAIN);
        }
        let wanted = u32::try_from(room + busy.len()).unwrap_or(u32::MAX);
        let due = match self.store.due_sources(wanted).await {
            Ok(due) => due,
            Err(error) => {
                tracing::error!(%error, "cannot tell which sources are due");
                return Err(STORE_PAUSE);
            }
        };
        let mut started = 0;
        for target in due {
            if started >= room || busy.contains(&target.host) {
                continue;
            }
            if !pace.admits(target.due_at, self.clock.now()) {
                // The order is that of their due times: so are all before it.
                return Err(PACE_PAUSE);
            }
            busy.insert(target.host);
            started += 1;
            let poller = Arc::clone(self);
            polls.spawn(async move {
                let host = target.host;
                let poll = tokio::spawn(Arc::clone(&poller).poll(target.clone()));
                // Let go of with the loop, as its own task would not be.
                if let Err(error) = AbortOnDropHandle::new(poll).await {
                    poller.panicked(&target, &error).await;
                }
                host
            });
        }
        Ok(())
    }

    fn disk_is_short(&self, config: &Config) -> bool {
        let short = self.store.free_disk().is_some_and(|free| free < config.store.min_free_disk);
        let was_short = self.short_of_disk.swap(short, Ordering::Relaxed);
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
            Role::Sitemap | Role::Feed => self.poll_document(&target).await,
        };
        if let Err(error) = done {
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

    /// The site of a source, as the config has it now.
    fn site_of(&self, target: &PollTarget) -> Option<Site> {
        let name = target.site_name.as_ref()?;
        self.config.borrow().sites.get(name).cloned()
    }
}

/// A poll has ended: its host is free again.
fn free(done: Result<HostId, JoinError>, busy: &mut HashSet<HostId>) {
    match done {
        Ok(host) => {
            busy.remove(&host);
        }
        Err(error) => {
            tracing::error!(%error, "the end of a poll panicked");
            // Which host it was is lost with it; the store names them anew.
            busy.clear();
        }
    }
}
