//! The only door to SQL: everything above asks for effects, never for rows.
//!
//! One thread writes, in groups of jobs per commit; several
//! connections read, each for the time of one call, so that no reader ever
//! pins the log for long. What an effect promises is committed, and with
//! `durability = "full"` synced, when its method returns.

mod apply;
mod changes;
mod checkpoint;
mod ending;
mod finish;
mod given;
mod holders;
mod hosts;
mod lease;
mod lock;
mod lookup;
mod maintain;
mod operate;
mod policy;
mod poll_reads;
mod readers;
mod robots;
mod rows;
mod schema;
mod settle;
mod sites;
mod sources;
mod state;
mod turns;
mod url_reads;
pub mod views;
mod wake;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode};
use url::Url;

use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::model::{ChangeKind, HostId, SiteId, SourceId, UrlId};
use crate::queue::{LeaseBatch, LeaseRequest, Settlement, Token, TokenResult};
pub use apply::{Applied, CHUNK, Effect, Origin};
use checkpoint::Checkpointer;
use lock::DataLock;
pub use operate::MAX_NAMED;
use policy::Policy;
use readers::Readers;
pub use robots::{FORBIDDEN, KeptRobots, RobotsRead};
pub use sources::{
    Child, ChildEffect, Kept, NewSource, NextPollAt, PollEnd, PollTarget, ReadResult, Recounted,
    SeenAgain,
};
use state::{Ears, State};
use views::{
    BlockView, ChangeView, DeadView, Page, PeekView, PollView, QueueView, SiteView, SourceFilter,
    SourceView, StatusView, UrlView,
};
use wake::Wake;
use writer::{Lane, Writer};

/// Name of the database in the data folder.
const FILE: &str = "sitemapd.db";

/// Sources registered, and children of an index changed, in one job at most.
const SOURCES_PER_JOB: usize = 1_000;

/// Why the store could not do it. The variants are what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is shutting down, or its writer has stopped.
    #[error("the store is closed")]
    Closed,
    /// Another process holds the database for longer than we wait; try again.
    #[error("the database is busy")]
    Busy,
    /// No space is left; reads still work, and writes will when there is.
    #[error("the disk is full")]
    Full,
    /// What was asked for is not there.
    #[error("{0}")]
    NotFound(String),
    /// What was asked for cannot be; the text says what can.
    #[error("{0}")]
    Refused(String),
    /// The file is damaged, newer than we are, or not ours.
    #[error("{0}")]
    Unusable(String),
    /// The engine failed; nothing was changed.
    #[error("database: {0}")]
    Engine(String),
}

/// The store, cheap to clone. Async methods return when the effect is
/// committed (and synced, with `durability = "full"`).
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped in this order: the writer first, the lock on the folder last.
    writer: Option<Writer>,
    _checkpointer: Option<Checkpointer>,
    readers: Readers,
    wake: Arc<Wake>,
    sources: Arc<tokio::sync::watch::Sender<u64>>,
    clock: Clock,
    path: PathBuf,
    seed: u64,
    started_at: Option<Timestamp>,
    _lock: Option<DataLock>,
}

impl Store {
    /// Opens the store of a data folder for a daemon: takes the folder's lock,
    /// creates or migrates the database, registers the config's sites.
    /// Blocks; call it before serving.
    pub fn open(config: &Config, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let folder = &config.daemon.data_dir;
        let lock = DataLock::take(folder)?;
        let path = folder.join(FILE);
        let conn = schema::open_writer(&path, config.store.durability)?;
        let wake = Arc::new(Wake::default());
        let started_at = clock.now();
        let sources: Arc<tokio::sync::watch::Sender<u64>> = Arc::default();
        let ears = Ears { wake: Arc::clone(&wake), sources: Arc::clone(&sources) };
        let mut state = State::open(conn, clock.clone(), Policy::new(config), metrics, ears)?;
        let seed = state.seed;
        state.begin()?;
        state.mend_times()?;
        state.sync_sites(config)?;
        state.reload_windows()?;
        state.commit()?;
        let writer = Writer::start(state)
            .map_err(|e| StoreError::Engine(format!("the writer cannot start: {e}")))?;
        let checkpointer = Checkpointer::start(&path)?;
        let inner = Inner {
            writer: Some(writer),
            _checkpointer: Some(checkpointer),
            readers: Readers::new(&path),
            wake,
            sources,
            clock,
            path,
            seed,
            started_at: Some(started_at),
            _lock: Some(lock),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens the store of a data folder to look at it, beside a daemon or
    /// without one. Everything that writes is refused.
    pub fn open_read_only(data_dir: &Path, clock: Clock) -> Result<Self, StoreError> {
        let path = data_dir.join(FILE);
        if !path.is_file() {
            return Err(StoreError::NotFound(format!("there is no store at {}", path.display())));
        }
        let conn = schema::open_reader(&path)?;
        let seed = state::read_kept_seed(&conn)?
            .ok_or_else(|| StoreError::Unusable(format!("{} has no seed", path.display())))?;
        let inner = Inner {
            writer: None,
            _checkpointer: None,
            readers: Readers::new(&path),
            wake: Arc::new(Wake::default()),
            sources: Arc::default(),
            clock,
            path,
            seed,
            started_at: None,
            _lock: None,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Finishes what is waiting and closes the database. Blocks until then;
    /// later calls answer [`StoreError::Closed`].
    pub fn close(&self) {
        if let Some(writer) = &self.inner.writer {
            writer.close();
        }
    }

    async fn write<T, F>(&self, lane: Lane, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    {
        match &self.inner.writer {
            Some(writer) => writer.run(lane, job).await,
            None => Err(StoreError::Refused("the store is open for reading only".to_owned())),
        }
    }

    /// Runs a job over many rows a part at a time, each in a transaction of its
    /// own, so that leases get in between; adds up what the parts say.
    async fn in_parts<F>(&self, job: F) -> Result<u64, StoreError>
    where
        F: Fn(&mut State, i64) -> Result<(u64, Option<i64>), StoreError> + Clone + Send + 'static,
    {
        let mut total = 0;
        let mut after = Some(0);
        while let Some(row) = after {
            let part = job.clone();
            let (some, next) = self.write(Lane::Bulk, move |state| part(state, row)).await?;
            total += some;
            after = next;
        }
        Ok(total)
    }

    async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.inner.readers.run(query).await
    }

    /// Keys the hashes by which snapshots know entries.
    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// The time by the store's clock (wall).
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    // What fetchers ask.

    /// Leases what is due now, without waiting.
    pub async fn lease(&self, request: LeaseRequest) -> Result<LeaseBatch, StoreError> {
        self.write(Lane::Hot, move |state| state.lease(&request)).await
    }

    /// Settles leases; one result per settlement, in order.
    pub async fn settle(&self, results: Vec<Settlement>) -> Result<Vec<TokenResult>, StoreError> {
        self.write(Lane::Hot, move |state| {
            results.iter().map(|result| state.settle(result)).collect()
        })
        .await
    }

    /// Moves the end of leases to `ttl` from now.
    pub async fn extend(
        &self,
        tokens: Vec<Token>,
        ttl: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        self.write(Lane::Hot, move |state| {
            tokens.iter().map(|token| state.extend(*token, ttl)).collect()
        })
        .await
    }

    /// Gives leases back unfetched; due again after `after`, the attempt not counted.
    pub async fn release(
        &self,
        tokens: Vec<Token>,
        after: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        self.write(Lane::Hot, move |state| {
            tokens.iter().map(|token| state.release(*token, after)).collect()
        })
        .await
    }

    /// Resolves when something of `crawl` may be leased.
    pub async fn wait_for_due(&self, crawl: &str) {
        self.inner.wake.ready(crawl, &self.inner.clock).await;
    }

    /// Takes back leases that have expired, a bounded number at a time; says
    /// how many, and how many of them became dead letters.
    pub async fn reap(&self) -> Result<(usize, usize), StoreError> {
        self.write(Lane::Hot, State::reap).await
    }

    // What operators ask.

    /// Counts of the queue, per crawl (all crawls where `crawl` is `None`).
    pub async fn queue(&self, crawl: Option<String>) -> Result<Vec<QueueView>, StoreError> {
        let now = self.inner.clock.steady();
        self.read(move |conn| url_reads::queue(conn, crawl.as_deref(), now)).await
    }

    /// What is next in line, due or not, without leasing it: hosts by when
    /// they may be served, a few URLs of each in lease order.
    pub async fn peek(&self, crawl: String, limit: u32) -> Result<Vec<PeekView>, StoreError> {
        let now = self.inner.clock.steady();
        self.read(move |conn| url_reads::peek(conn, &crawl, limit, now)).await
    }

    /// Dead letters, oldest row first; `after` is the last row of the page before.
    pub async fn dead(
        &self,
        limit: u32,
        after: Option<UrlId>,
    ) -> Result<Page<DeadView>, StoreError> {
        self.read(move |conn| url_reads::dead(conn, limit, after)).await
    }

    /// Puts dead letters back, all or these; says how many.
    pub async fn replay(&self, crawl: String, urls: Vec<String>) -> Result<u64, StoreError> {
        if !urls.is_empty() {
            return self.write(Lane::Bulk, move |state| state.replay(&crawl, &urls)).await;
        }
        self.in_parts(move |state, after| state.replay_all(&crawl, after)).await
    }

    /// Makes known URLs due now with reason `submitted`; says how many.
    pub async fn requeue(&self, crawl: String, urls: Vec<String>) -> Result<u64, StoreError> {
        self.write(Lane::Bulk, move |state| state.requeue(&crawl, &urls)).await
    }

    /// Keeps a URL (or every URL below a prefix) from being leased until
    /// lifted; says how many were taken out of the queue at once. Those below
    /// a prefix are held as their turn comes.
    pub async fn block(
        &self,
        crawl: String,
        pattern: String,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        self.write(Lane::Bulk, move |state| state.block(&crawl, &pattern, prefix)).await
    }

    /// Lifts a block; says how many URLs came back.
    pub async fn unblock(
        &self,
        crawl: String,
        pattern: String,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        let lifted = crawl.clone();
        self.write(Lane::Bulk, move |state| state.unblock(&lifted, &pattern, prefix)).await?;
        self.in_parts(move |state, after| state.release_blocked(&crawl, after)).await
    }

    /// The blocks in force.
    pub async fn blocks(&self) -> Result<Vec<BlockView>, StoreError> {
        self.read(url_reads::blocks).await
    }

    /// Stops (or starts again) leasing from a crawl.
    pub async fn pause_crawl(&self, crawl: String, paused: bool) -> Result<(), StoreError> {
        self.write(Lane::Hot, move |state| state.pause_crawl(&crawl, paused)).await
    }

    /// Everything known of one URL, and why it is due when it is.
    pub async fn url(&self, crawl: Option<String>, url: Url) -> Result<UrlView, StoreError> {
        let (seed, now) = (self.inner.seed, self.inner.clock.steady());
        self.read(move |conn| url_reads::url(conn, seed, crawl.as_deref(), &url, now)).await
    }

    /// All sites, by name.
    pub async fn sites(&self) -> Result<Vec<SiteView>, StoreError> {
        self.read(|conn| poll_reads::sites(conn, None)).await
    }

    /// One site.
    pub async fn site(&self, name: String) -> Result<SiteView, StoreError> {
        self.read(move |conn| poll_reads::site(conn, &name)).await
    }

    /// Stops (or starts again) polling and leasing of a site.
    pub async fn pause_site(&self, name: String, paused: bool) -> Result<(), StoreError> {
        self.write(Lane::Bulk, move |state| state.pause_site(&name, paused)).await
    }

    /// Drops all rows of a site that is no longer in the config; says how many
    /// URLs that were.
    pub async fn forget_site(&self, name: String) -> Result<u64, StoreError> {
        let mut dropped = 0;
        loop {
            let name = name.clone();
            let (some, more) =
                self.write(Lane::Bulk, move |state| state.forget_some(&name)).await?;
            dropped += some;
            if !more {
                return Ok(dropped);
            }
        }
    }

    /// Sources in order of id.
    pub async fn sources(&self, filter: SourceFilter) -> Result<Page<SourceView>, StoreError> {
        self.read(move |conn| poll_reads::sources(conn, &filter)).await
    }

    /// One source, with its poll history, newest first.
    pub async fn source(&self, id: SourceId) -> Result<(SourceView, Vec<PollView>), StoreError> {
        self.read(move |conn| poll_reads::source(conn, id)).await
    }

    /// Registers a source of a site by hand, or makes a known one due now.
    pub async fn submit_source(&self, site: String, url: Url) -> Result<SourceId, StoreError> {
        self.write(Lane::Bulk, move |state| state.submit_source(&site, url)).await
    }

    /// Retires a source by hand. Its URLs are let go after a grace period, or
    /// at once with `drop_urls`.
    pub async fn delete_source(&self, id: SourceId, drop_urls: bool) -> Result<(), StoreError> {
        self.write(Lane::Bulk, move |state| state.delete_source(id, drop_urls)).await
    }

    /// Makes a source due now.
    pub async fn poll_source(&self, id: SourceId) -> Result<(), StoreError> {
        self.write(Lane::Hot, move |state| state.poll_now(id)).await
    }

    /// Makes all sources of a site due now; says how many.
    pub async fn poll_site(&self, name: String) -> Result<u64, StoreError> {
        self.write(Lane::Bulk, move |state| state.poll_site(&name)).await
    }

    /// The polls of a source (or of all) with an id above `after`, oldest first.
    pub async fn polls_after(
        &self,
        source: Option<SourceId>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<PollView>, StoreError> {
        self.read(move |conn| poll_reads::polls_after(conn, source, after, limit)).await
    }

    /// The newest polls, newest first.
    pub async fn last_polls(&self, limit: u32) -> Result<Vec<PollView>, StoreError> {
        self.read(move |conn| poll_reads::last_polls(conn, limit)).await
    }

    /// The changes that one poll made, at most `limit`.
    pub async fn changes_of_poll(
        &self,
        poll: i64,
        limit: u32,
    ) -> Result<Vec<ChangeView>, StoreError> {
        self.read(move |conn| poll_reads::changes_of_poll(conn, poll, limit)).await
    }

    /// The whole at a glance.
    pub async fn status(&self) -> Result<StatusView, StoreError> {
        let inner = Arc::clone(&self.inner);
        self.read(move |conn| {
            poll_reads::status(
                conn,
                &inner.path,
                inner.started_at,
                inner.clock.now(),
                inner.clock.steady(),
            )
        })
        .await
    }

    /// Answers if the writer is alive and can commit.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.write(Lane::Hot, |_| Ok(())).await
    }

    // What the poll loop asks.

    /// Sites, policies and limits are those of this config from now on.
    pub async fn reconfigure(&self, config: Config) -> Result<(), StoreError> {
        self.write(Lane::Bulk, move |state| {
            let before = std::mem::replace(&mut state.policy, Policy::new(&config));
            // Sites come, go and return, and with them what may be leased.
            let synced = state.sync_sites(&config).and_then(|()| state.reload_windows());
            if synced.is_err() {
                state.policy = before;
            }
            synced
        })
        .await
    }

    /// Sources that are due, the longest due first, at most one per host.
    pub async fn due_sources(&self, limit: u32) -> Result<Vec<PollTarget>, StoreError> {
        let now = self.inner.clock.now();
        self.read(move |conn| poll_reads::due_sources(conn, now, limit)).await
    }

    /// When the next source is due, if any is polled at all.
    pub async fn next_source_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(poll_reads::next_source_due).await
    }

    /// One source as a poll needs it.
    pub async fn poll_target(&self, id: SourceId) -> Result<PollTarget, StoreError> {
        self.read(move |conn| poll_reads::poll_target(conn, id)).await
    }

    /// The snapshot of a source, encoded, and since when all its siblings
    /// under the same index have been read.
    pub async fn snapshot(
        &self,
        target: &PollTarget,
    ) -> Result<(Option<Vec<u8>>, i64), StoreError> {
        let (id, parent) = (target.id, target.parent);
        self.read(move |conn| poll_reads::snapshot(conn, id, parent)).await
    }

    /// Applies one chunk of a diff.
    pub async fn apply(&self, origin: Origin, effects: Vec<Effect>) -> Result<Applied, StoreError> {
        self.write(Lane::Bulk, move |state| state.apply(origin, effects)).await
    }

    /// Events that this very read of a source has logged already: of a process
    /// that died in the middle of it.
    pub async fn logged(
        &self,
        origin: Origin,
    ) -> Result<std::collections::HashSet<(ChangeKind, UrlId)>, StoreError> {
        self.read(move |conn| changes::logged(conn, origin.source, origin.generation)).await
    }

    /// The children of an index.
    pub async fn children(&self, index: SourceId) -> Result<Vec<Child>, StoreError> {
        self.read(move |conn| poll_reads::children(conn, index)).await
    }

    /// Applies what a read of an index asks of its children; says how many
    /// are new and how many the site's quota refused.
    pub async fn apply_children(
        &self,
        site: SiteId,
        effects: Vec<ChildEffect>,
    ) -> Result<(u64, u64), StoreError> {
        let (mut added, mut refused) = (0, 0);
        let mut rest = effects.into_iter().peekable();
        while rest.peek().is_some() {
            let part: Vec<_> = rest.by_ref().take(SOURCES_PER_JOB).collect();
            let (a, r) =
                self.write(Lane::Bulk, move |state| state.apply_children(site, part)).await?;
            added += a;
            refused += r;
        }
        Ok((added, refused))
    }

    /// Registers sources of a site; says how many are new and how many the
    /// site's quota refused.
    pub async fn register(
        &self,
        site: SiteId,
        sources: Vec<NewSource>,
    ) -> Result<(u64, u64), StoreError> {
        let effects = sources.into_iter().map(ChildEffect::Add).collect();
        self.apply_children(site, effects).await
    }

    /// The form that a site's home page redirects to; says whether it is new.
    pub async fn learn_origin(&self, site: SiteId, origin: Url) -> Result<bool, StoreError> {
        self.write(Lane::Bulk, move |state| state.learn_origin(site, &origin)).await
    }

    /// Writes how a poll ended: the one step that moves snapshot, validators
    /// and the next poll. Returns the number of the poll.
    pub async fn finish_poll(&self, end: PollEnd) -> Result<i64, StoreError> {
        self.write(Lane::Bulk, move |state| state.finish_poll(&end)).await
    }

    /// The poll was not made: it is due again at `until`.
    pub async fn defer_poll(&self, source: SourceId, until: Timestamp) -> Result<(), StoreError> {
        self.write(Lane::Hot, move |state| state.defer_poll(source, until)).await
    }

    /// The poll was not needed, says the index.
    pub async fn skip_poll(&self, source: SourceId, next: NextPollAt) -> Result<(), StoreError> {
        self.write(Lane::Bulk, move |state| state.skip_poll(source, &next)).await
    }

    /// The home page of a site, if it has never been polled.
    pub async fn unseen_home(&self, site: SiteId) -> Result<Option<PollTarget>, StoreError> {
        self.read(move |conn| poll_reads::unseen_home(conn, site)).await
    }

    /// Tells when sources have come due for another reason than time.
    pub fn sources_changed(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.sources.subscribe()
    }

    /// Takes a host's next slot for one request: when it may be sent. `Err` in
    /// the result holds that time when it is further off than `patience`.
    pub async fn reserve(
        &self,
        authority: String,
        delay: Duration,
        patience: Duration,
    ) -> Result<Result<Timestamp, Timestamp>, StoreError> {
        let slot =
            self.write(Lane::Hot, move |state| state.reserve(&authority, delay, patience)).await?;
        Ok(slot.map(timestamp).map_err(timestamp))
    }

    /// Leaves a host alone for a while, polls and leases alike.
    pub async fn pause_host(
        &self,
        authority: String,
        pause: Duration,
        why: &'static str,
    ) -> Result<(), StoreError> {
        self.write(Lane::Hot, move |state| {
            let Some(host) = state.find_host(&authority)? else { return Ok(()) };
            let until = state.steady_ms().saturating_add(hosts::millis(pause));
            state.pause_host(host, until, why)
        })
        .await
    }

    /// What is kept of the robots.txt of an authority, and the source that
    /// polls it (made when there is none).
    pub async fn robots(
        &self,
        authority: String,
        delay: Duration,
    ) -> Result<(SourceId, Option<KeptRobots>), StoreError> {
        let read = authority.clone();
        if let Some(found) = self.read(move |conn| poll_reads::robots_of(conn, &read)).await? {
            return Ok(found);
        }
        self.write(Lane::Hot, move |state| {
            let host = state.host_named(&authority, delay)?;
            state.ensure_robots(host, None)?;
            poll_reads::robots_of(&state.conn, &authority)?
                .ok_or_else(|| StoreError::Engine(format!("no robots.txt source for {authority}")))
        })
        .await
    }

    /// Keeps what was read of a host's robots.txt; says whether the rules
    /// changed, in which case what the old ones held back is judged anew.
    pub async fn save_robots(
        &self,
        host: HostId,
        read: RobotsRead,
        expires_at: Timestamp,
    ) -> Result<bool, StoreError> {
        let changed =
            self.write(Lane::Hot, move |state| state.save_robots(host, &read, expires_at)).await?;
        let mut after = changed.then_some(0);
        while let Some(row) = after {
            after = self.write(Lane::Bulk, move |state| state.recheck_forbidden(host, row)).await?;
        }
        Ok(changed)
    }

    /// Sites whose home authority is this one: who a robots.txt speaks for.
    pub async fn sites_at(&self, host: HostId) -> Result<Vec<(SiteId, String)>, StoreError> {
        self.read(move |conn| poll_reads::sites_at(conn, host)).await
    }

    /// The learned origin of a site.
    pub async fn origin_of(&self, site: SiteId) -> Result<Option<Url>, StoreError> {
        self.read(move |conn| poll_reads::origin_of(conn, site)).await
    }

    /// Retention, and what retired sources still hold: a bounded part of the
    /// work; `true` while there is more.
    pub async fn maintain(&self) -> Result<bool, StoreError> {
        self.write(Lane::Bulk, State::maintain).await
    }

    /// Bytes free on the disk of the store.
    pub fn free_disk(&self) -> Option<u64> {
        checkpoint::free_disk(&self.inner.path)
    }
}

/// An instant from a column; one out of range is the nearest there is.
fn timestamp(ms: i64) -> Timestamp {
    let nearest = if ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(ms).unwrap_or(nearest)
}

/// What an engine error means for the caller.
#[allow(clippy::needless_pass_by_value)] // it is what map_err hands on
fn engine(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Unusable(error.to_string())
        }
        _ => StoreError::Engine(error.to_string()),
    }
}
