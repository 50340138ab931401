//! The only door to SQL: everything above asks for effects, never for rows.
//!
//! One thread writes, in groups of jobs per commit; several connections read,
//! each for the time of one call, so that no reader ever pins the log for long.
//! What an effect promises is committed, and with `durability = "full"` synced,
//! when its method returns; an order over many rows is a row of such effects.
//! Who asks for what: `for_polls`, `for_fetchers`, `for_operators`.

mod abbreviations;
mod admit;
mod adopt;
mod ahead;
mod apply;
mod at_hand;
pub mod backup;
mod behind;
mod budget;
mod changes;
mod checkpoint;
mod claim;
mod delays;
mod deserted;
mod due_reads;
mod early;
mod effect;
mod elapsed;
mod ending;
mod expiry;
mod explain;
mod extensions;
mod failure;
mod families;
mod figures;
mod finish;
mod folds;
mod for_fetchers;
mod for_operators;
mod for_polls;
mod forget;
pub mod frontier;
mod gathered;
mod given;
mod given_up;
mod grants;
mod heirs;
mod hindrance;
mod history;
mod holders;
mod home;
mod hosts;
pub mod hubs;
mod known;
mod learn;
mod lease;
mod leaving;
mod ledger;
mod lock;
mod log_order;
mod lookup;
mod maintain;
pub mod migrate;
mod misses;
mod numbers;
mod operate;
mod orders;
mod packed;
pub mod pages;
mod paused_heads;
mod peek;
pub(crate) mod peers;
mod pending;
mod policy;
mod poll_reads;
mod poll_rules;
mod polling;
mod prepared;
pub mod pushes;
mod queue_reads;
mod readers;
mod recall;
mod recheck;
mod record;
mod refine;
mod reseat;
mod robots;
mod rows;
mod schema;
mod server;
mod settle;
mod site_walks;
mod sites;
mod source_lists;
mod sources;
mod sql;
mod state;
mod stranded;
mod stream;
pub mod submissions;
mod sums;
pub mod tides;
mod told;
mod tombstones;
mod transaction;
mod turns;
mod url_reads;
pub mod views;
mod wake;
mod walk;
mod why;
mod worth;
mod writer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC, SQLITE_IOERR_SHMSIZE};
use sql::Connection;

use crate::clock::Clock;
use crate::config::Config;
use crate::locks::Locks;
use crate::metrics::Metrics;
pub use adopt::GUESS;
use checkpoint::Checkpointer;
use claim::Claim;
pub use due_reads::MOST_PASSED_OVER;
pub use effect::{Applied, BATCH, CHUNK, Effect, Origin};
pub use extensions::Said;
use failure::Failure;
use figures::Figures;
pub use for_fetchers::OwnLease;
pub use history::{Imported, PastFetch};
use home::Home;
use lock::DataLock;
pub use lock::holder;
pub use misses::{HeldUp, Pace};
pub use operate::MAX_NAMED;
pub use peers::Node;
use peers::Peers;
pub(crate) use policy::INDEX_SPACING;
use policy::Policy;
pub use polling::{
    DueSource, Kept, Moved, NextPollAt, PollEnd, PollTarget, ReadResult, Recounted, SeenAgain,
};
pub use prepared::{Prepared, Preparer};
use readers::Readers;
pub use robots::{FORBIDDEN, KeptRobots, ROBOTS_UNREADABLE, RobotsRead, SavedRobots};
pub(crate) use sources::GRACE_MS;
pub use sources::{Child, ChildEffect, NewSource, PlaceInLine};
use state::{Asked, Ears, Engine, State};
pub use stranded::Stranded;
pub use stream::{ChangeCursor, ChangeEvent, ChangeFilter, ChangePage, NoCursor};
pub use tombstones::Deletion;
use wake::Wake;
use writer::{Lane, Writer};

/// Name of the database in the data folder.
const FILE: &str = "sitemapd.db";
/// Name of the file that keeps as who the last daemon of the folder worked on a
/// store that is on a server.
const LAST_NODE: &str = "sitemapd.node";

/// Why the store could not do it. The variants are what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is shutting down, or its writer has stopped.
    #[error("the store is closed")]
    Closed,
    /// Another process holds the database for longer than we wait; try again.
    #[error("the database is busy")]
    Busy,
    /// The database server is away, or the connection to it was cut: what was
    /// asked for may have been done or not. Try again.
    #[error("the database server is away: {0}")]
    Away(String),
    /// Another daemon, which has that part of the store, does not answer, or ends: what
    /// was asked for may have been done or not. Try again.
    #[error("{0}")]
    Unreached(String),
    /// Another daemon works on that part of the store, or will in a moment. Try
    /// again.
    #[error("that part of the store is about to be another daemon's")]
    Elsewhere,
    /// No space is left; reads still work, and writes will when there is.
    #[error("the disk is full")]
    Full,
    /// What was asked for is not there.
    #[error("{0}")]
    NotFound(String),
    /// What was asked for was there once; the text says what to do instead.
    #[error("{0}")]
    Gone(String),
    /// What was asked for cannot be; the text says what can.
    #[error("{0}")]
    Refused(String),
    /// The configuration asks for what cannot be with what is stored; the text says
    /// what can.
    #[error("{0}")]
    Misconfigured(String),
    /// The file is damaged, newer than we are, or not ours.
    #[error("{0}")]
    Unusable(String),
    /// A sync failed: what became of the last writes is known after the next
    /// start only, and until then nothing more is written.
    #[error("the disk failed: {0}")]
    Failed(String),
    /// The engine failed; nothing was changed.
    #[error("database: {0}")]
    Engine(String),
}

impl StoreError {
    /// May nothing be written any more after this?
    fn is_fatal(&self) -> bool {
        matches!(self, Self::Unusable(_) | Self::Failed(_))
    }

    /// The same of a store that is opened, for whoever does not know where it is: names
    /// the folder, where that is on the full disk.
    fn in_folder_of(self, config: &Config) -> Self {
        match self {
            Self::Full if config.store.url.is_none() => Self::Refused(format!(
                "the disk is full: there is no room in {}",
                config.daemon.data_dir.display()
            )),
            other => other,
        }
    }

    /// Would whatever else is asked for fail in the same way?
    fn is_for_all(&self) -> bool {
        self.is_fatal() || matches!(self, Self::Full | Self::Away(_))
    }

    /// Will the same go well in a moment, as far as one can tell?
    pub(crate) fn passes(&self) -> bool {
        matches!(self, Self::Busy | Self::Away(_) | Self::Unreached(_))
    }
}

/// Who may work on the store beside the one that opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Any,
    None,
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
    failure: Failure,
    readers: Readers,
    wake: Arc<Wake>,
    sources: Arc<tokio::sync::watch::Sender<u64>>,
    /// Which of them are to be polled first.
    asked_sources: Arc<Asked>,
    hubs: Arc<tokio::sync::watch::Sender<u64>>,
    /// As reads explain by it; the writer has its own.
    policy: RwLock<Arc<Policy>>,
    figures: Figures,
    changes: Arc<tokio::sync::watch::Sender<u64>>,
    /// Those who share the store, where it is on a server.
    peers: Option<Arc<Peers>>,
    /// Something has come due by what we did, perhaps to others.
    moved: Arc<tokio::sync::watch::Sender<u64>>,
    /// Leases so far, to ask others in turn.
    turn: AtomicUsize,
    /// Calls of lease that are being answered, by their ids.
    asked: Locks,
    clock: Clock,
    path: PathBuf,
    seed: u64,
    /// What the writer's index lets others know.
    sieves: Arc<lookup::Sieves>,
    started_at: Option<Timestamp>,
    _lock: Option<DataLock>,
}

impl Store {
    /// Opens the store of a data folder for a daemon: takes the folder's lock,
    /// creates or migrates the database, registers the config's sites.
    /// Blocks; call it before serving.
    pub fn open(config: &Config, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        Self::open_at(config, clock, metrics, None)
    }

    /// The same for a daemon that others who share a store on a server reach at
    /// an address; one without a machine is that by which the server sees us.
    pub fn open_at(
        config: &Config,
        clock: Clock,
        metrics: Arc<Metrics>,
        address: Option<SocketAddr>,
    ) -> Result<Self, StoreError> {
        apart(|| Self::open_here(config, clock, metrics, address, Company::Any))
            .map_err(|error| error.in_folder_of(config))
    }

    /// The same for an order that no daemon is to carry out: refused while any
    /// works on the store. One on a server is not known by the folder's lock.
    pub fn open_alone(
        config: &Config,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StoreError> {
        apart(|| Self::open_here(config, clock, metrics, None, Company::None))
            .map_err(|error| error.in_folder_of(config))
    }

    fn open_here(
        config: &Config,
        clock: Clock,
        metrics: Arc<Metrics>,
        address: Option<SocketAddr>,
        company: Company,
    ) -> Result<Self, StoreError> {
        let folder = &config.daemon.data_dir;
        let lock = DataLock::take(folder)?;
        let path = folder.join(FILE);
        let mut home = Home::of(config)?;
        let peers = match &mut home {
            Home::File(_) => None,
            Home::Server(server) => {
                let peers = Peers::new()?;
                **server = server.as_ref().clone().named(&peers.name);
                Some(Arc::new(peers))
            }
        };
        let wake = Arc::new(Wake::default());
        let started_at = clock.now();
        let sources: Arc<tokio::sync::watch::Sender<u64>> = Arc::default();
        let asked: Arc<Asked> = Arc::default();
        let hubs: Arc<tokio::sync::watch::Sender<u64>> = Arc::default();
        let changes: Arc<tokio::sync::watch::Sender<u64>> = Arc::default();
        let moved: Arc<tokio::sync::watch::Sender<u64>> = Arc::default();
        let ears = Ears {
            wake: Arc::clone(&wake),
            sources: Arc::clone(&sources),
            asked: Arc::clone(&asked),
            hubs: Arc::clone(&hubs),
            changes: Arc::clone(&changes),
            peers: Arc::clone(&moved),
        };
        let failure = Failure::default();
        let conn = home.open_writer(config.store.durability)?;
        log_order::go_on_above(&conn, clock.now())?;
        let (checkpointer, log) = match &home {
            Home::File(path) => Checkpointer::start(path, failure.clone())
                .map(|(thread, log)| (Some(thread), Some(log)))?,
            Home::Server(_) => (None, None),
        };
        if let (Some(peers), Some(address)) = (&peers, address) {
            peers.reached_at(server::seen_as(&conn, address)?);
        }
        // We have the folder's lock, so whoever had it before is gone.
        let last = std::fs::read_to_string(folder.join(LAST_NODE)).ok();
        if peers.is_some() && company == Company::None {
            claim::check_alone(&conn, last.as_deref())?;
        }
        let claim =
            peers.clone().map(|peers| Claim::join(peers, last.as_deref(), &conn)).transpose()?;
        if let Some(peers) = &peers {
            peers.set_secret(server::secret(&conn)?);
            if let Err(error) = std::fs::write(folder.join(LAST_NODE), &peers.name) {
                // It costs the next start some seconds after a crash.
                tracing::warn!(%error, "the name of this daemon is not kept");
            }
            let moved = clock.keep_to(server::time(&conn)?);
            tracing::debug!(moved_ms = moved, "the time is that of the database server");
        }
        let durability = config.store.durability;
        let engine = Engine { home: home.clone(), durability, log, claim };
        let policy = Policy::new(config);
        let opened = State::open(conn, engine, clock.clone(), policy, metrics, ears);
        let state = opened.and_then(|mut state| {
            state.begin()?;
            if !state.is_shared() {
                state.mend_times()?;
            }
            state.sync_sites(config, |_| true)?;
            state.reload_windows()?;
            state.commit()?;
            Ok(state)
        })?;
        let (seed, sieves) = (state.seed, state.lookup.sieves());
        let writer = Writer::start(state, failure.clone())
            .map_err(|e| StoreError::Engine(format!("the writer cannot start: {e}")))?;
        let inner = Inner {
            writer: Some(writer),
            _checkpointer: checkpointer,
            failure,
            readers: Readers::new(home)?,
            wake,
            sources,
            asked_sources: asked,
            hubs,
            policy: RwLock::new(Arc::new(Policy::new(config))),
            figures: Figures::default(),
            changes,
            peers,
            moved,
            turn: AtomicUsize::new(0),
            asked: Locks::default(),
            clock,
            path,
            seed,
            sieves,
            started_at: Some(started_at),
            _lock: Some(lock),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Is there a store in a data folder?
    pub fn is_in(folder: &Path) -> bool {
        folder.join(FILE).is_file()
    }

    /// Opens the store of a config to look at it, beside a daemon or without
    /// one. Everything that writes is refused. Blocks.
    pub fn open_read_only(config: &Config, clock: Clock) -> Result<Self, StoreError> {
        apart(|| Self::look_here(config, clock)).map_err(|error| error.in_folder_of(config))
    }

    fn look_here(config: &Config, clock: Clock) -> Result<Self, StoreError> {
        let path = config.daemon.data_dir.join(FILE);
        let home = Home::of(config)?;
        if matches!(home, Home::File(_)) && !Self::is_in(&config.daemon.data_dir) {
            return Err(StoreError::NotFound(format!("there is no store at {}", path.display())));
        }
        let conn = home.open_reader()?;
        let seed = state::read_kept_seed(&conn)?
            .ok_or_else(|| StoreError::Unusable("the store has no seed".to_owned()))?;
        let inner = Inner {
            writer: None,
            _checkpointer: None,
            failure: Failure::default(),
            readers: Readers::new(home)?,
            wake: Arc::new(Wake::default()),
            sources: Arc::default(),
            asked_sources: Arc::default(),
            hubs: Arc::default(),
            policy: RwLock::new(Arc::new(Policy::new(&Config::default()))),
            figures: Figures::default(),
            changes: Arc::default(),
            peers: None,
            moved: Arc::default(),
            turn: AtomicUsize::new(0),
            asked: Locks::default(),
            clock,
            path,
            seed,
            sieves: Arc::default(),
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

    /// Resolves when the store has stopped by itself, with the reason: the disk
    /// failed, or the database is damaged. The process is to end then; the next
    /// start reads from the log what was committed.
    pub async fn failed(&self) -> StoreError {
        self.inner.failure.wait().await
    }

    /// Has the store stopped by itself? Then why.
    pub fn check(&self) -> Result<(), StoreError> {
        self.inner.failure.check()
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

    /// The same for a job that names each row of a URL that it changes
    /// ([`at_hand::AtHand::forget`]), and changes no name of a site or source.
    fn write_naming<T, F>(
        &self,
        lane: Lane,
        job: F,
    ) -> impl Future<Output = Result<T, StoreError>> + Send
    where
        T: Send + 'static,
        F: FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    {
        self.write(lane, |state| {
            state.at_hand.stays();
            job(state)
        })
    }

    async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.inner.readers.run(query).await
    }

    /// A store that is only looked at, explained by what this config says.
    #[must_use]
    pub fn explained_by(self, config: &Config) -> Self {
        self.set_policy(Policy::new(config));
        self
    }

    /// What reads explain by.
    fn policy(&self) -> Arc<Policy> {
        // A panic never happens while this lock is held, so poison means nothing.
        Arc::clone(&self.inner.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_policy(&self, policy: Policy) {
        *self.inner.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// Keys the hashes by which snapshots know entries.
    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// The time by the store's clock (wall).
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// A time of leases or hosts, which go by steady time, as it is told beside
    /// [`Self::now`].
    pub fn shown_at(&self, steady: Timestamp) -> Timestamp {
        self.inner.clock.shown_at(steady)
    }
}

/// Runs what asks a database on a thread where no futures run, as the answers of
/// a server are waited for.
fn apart<T: Send>(work: impl FnOnce() -> Result<T, StoreError> + Send) -> Result<T, StoreError> {
    std::thread::scope(|scope| {
        let panicked = |_| Err(StoreError::Engine("opening the store panicked".to_owned()));
        scope.spawn(work).join().unwrap_or_else(panicked)
    })
}

/// An instant from a column; one out of range is the nearest there is.
fn timestamp(ms: i64) -> Timestamp {
    let nearest = if ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(ms).unwrap_or(nearest)
}

/// Engine errors after which nobody knows what is on the disk.
const UNSYNCED: [std::ffi::c_int; 2] = [SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC];

/// Says what is wrong with the URL of a database, as far as that shows before
/// anybody is asked there.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    sql::Server::new(url).map(|_| ()).map_err(|error| error.to_string())
}

/// What an engine error means for the caller.
fn engine(error: impl Into<sql::Error>) -> StoreError {
    match error.into() {
        sql::Error::Embedded(error) => embedded(&error),
        sql::Error::Server(error) => server::meaning(&error),
        error @ sql::Error::Aborted => StoreError::Engine(error.to_string()),
        sql::Error::Away(why) => StoreError::Away(why),
        sql::Error::Refused(why) => StoreError::Engine(why),
    }
}

fn embedded(error: &rusqlite::Error) -> StoreError {
    let code = error.sqlite_error().map(|error| error.extended_code);
    if code.is_some_and(|code| UNSYNCED.contains(&code)) {
        return StoreError::Failed(error.to_string());
    }
    match error.sqlite_error_code() {
        _ if has_no_room(error) => StoreError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Unusable(format!("the database is damaged: {error}; restore a backup"))
        }
        _ => StoreError::Engine(error.to_string()),
    }
}

/// Is it that the disk is full? The memory that processes share is a file, too, and makes
/// another error of it.
fn has_no_room(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error();
    code.is_some_and(|code| {
        code.code == ErrorCode::DiskFull || code.extended_code == SQLITE_IOERR_SHMSIZE
    })
}
