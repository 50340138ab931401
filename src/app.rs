//! Builds the daemon and runs it; the caller owns the stop signal.
//!
//! `build` opens the store and binds the listener, so that a caller knows the
//! real port before anything runs; `run` polls, serves and drains. Each task
//! ends in one place, [`App::run`], which decides what that means.

mod chores;
mod liveness;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::chores::{maintain, reap};
pub use self::liveness::Liveness;
use crate::clock::Clock;
use crate::config::{Config, first_line, reload};
use crate::egress::{self, Egress, EgressError};
use crate::fetch::resolver::{Lookup, system_lookup};
use crate::fetch::{FetchSetupError, Fetcher, Surroundings};
use crate::metrics::Metrics;
use crate::schedule::Poller;
use crate::serve::frontier::LevelDoor;
use crate::serve::{ApiToken, LeaseDefaults, Readiness, ServeState, Server, TokenFrom};
use crate::store::{Store, StoreError};

/// Requests in flight get this long to end at a stop.
pub const DRAIN: Duration = Duration::from_secs(8);
/// While the store's server is away, it is tried again after this.
const AWAY: Duration = Duration::from_secs(1);

/// Why the daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The store cannot be opened or used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The listener cannot be bound.
    #[error("{key}: cannot listen on {addr}: {source}")]
    Listen {
        /// What of the configuration says so.
        key: &'static str,
        /// Where we tried.
        addr: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The token file cannot be read.
    #[error("listen.token_file {path}: {why}")]
    Token {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The broker's secret cannot be read.
    #[error("{0}")]
    Egress(#[from] EgressError),
    /// The HTTP client cannot be built.
    #[error("{0}")]
    Fetch(#[from] FetchSetupError),
    /// The threads that documents are read on cannot be had.
    #[error("no threads to read documents on: {0}")]
    Threads(std::io::Error),
    /// A task ended that should not have.
    #[error("{0}")]
    Stopped(String),
}

impl AppError {
    /// Is it the configuration that is wrong, or a file that it names? Then the next
    /// start fails as this one did.
    pub fn is_config(&self) -> bool {
        match self {
            Self::Token { .. } | Self::Egress(_) => true,
            Self::Fetch(error) => !matches!(error, FetchSetupError::Client(_)),
            Self::Store(error) => matches!(error, StoreError::Misconfigured(_)),
            Self::Listen { .. } | Self::Threads(_) | Self::Stopped(_) => false,
        }
    }
}

/// Reads the files that a config names as [`App::build`] will, and says what is
/// wrong with them.
pub fn check_files(config: &Config) -> Result<(), AppError> {
    read_token(config)?;
    build_fetcher(config, &Clock::system(), system_lookup())?;
    Ok(egress::check_files(&config.egress.nats)?)
}

/// A new config, checked, to take effect without a restart.
#[derive(Debug)]
pub struct Reload {
    /// The config.
    pub config: Config,
    /// Hears whether it holds now; after an error the old one does.
    pub done: oneshot::Sender<Result<(), StoreError>>,
}

/// The token that clients of the API must send; the clones are one.
#[derive(Clone)]
pub struct TokenInUse(watch::Sender<ApiToken>);

impl TokenInUse {
    /// From now on requests must bring this one. Was it another?
    pub fn set(&self, token: ApiToken) -> bool {
        self.0.send_if_modified(|held| {
            let is_new = *held != token;
            *held = token;
            is_new
        })
    }
}

/// A daemon, built and not yet running.
pub struct App {
    store: Store,
    clock: Clock,
    metrics: Arc<Metrics>,
    server: Server,
    public: Option<Server>,
    frontier: Option<Server>,
    internal: Option<Server>,
    levels: Arc<OnceLock<LevelDoor>>,
    ready: Readiness,
    poller: Arc<Poller>,
    egress: Egress,
    config: watch::Sender<Arc<Config>>,
    defaults: watch::Sender<LeaseDefaults>,
    token: TokenInUse,
}

impl App {
    /// Takes the lock, opens the store, registers the config's sites, binds
    /// the listener.
    pub async fn build(config: Config, clock: Clock) -> Result<Self, AppError> {
        Self::build_with(config, clock, system_lookup()).await
    }

    /// The same with names looked up elsewhere than in the system's DNS. What
    /// `lookup` says is checked as DNS is.
    pub async fn build_with(
        config: Config,
        clock: Clock,
        lookup: Lookup,
    ) -> Result<Self, AppError> {
        let metrics = Arc::new(Metrics::new());
        let (token, token_seen) = watch::channel(read_token(&config)?);
        let token = TokenInUse(token);
        let fetcher = build_fetcher(&config, &clock, lookup)?;
        let guard = fetcher.guard().clone();
        let internal = listen_to_peers(&config).await?;
        let address = internal.as_ref().and_then(|listener| listener.local_addr().ok());
        let store = open_store(&config, &clock, &metrics, address).await?;
        let (defaults, defaults_seen) = watch::channel(lease_defaults(&config));
        let egress = Egress::new(
            config.egress.nats.clone(),
            store.clone(),
            clock.clone(),
            Arc::clone(&metrics),
            defaults_seen.clone(),
        )?;
        let ready = Readiness::default();
        let (watched, config_seen) = watch::channel(Arc::new(config.clone()));
        let (own_store, own_clock) = (store.clone(), clock.clone());
        let counted = Arc::clone(&metrics);
        let poller = Poller::new(own_store, fetcher, own_clock, counted, config_seen)
            .map_err(AppError::Threads)?;
        let poller = Arc::new(poller);
        let pusher = Arc::clone(&poller);
        let levels: Arc<OnceLock<LevelDoor>> = Arc::default();
        let set_level = Arc::clone(&levels);
        let state = ServeState {
            store: store.clone(),
            metrics: Arc::clone(&metrics),
            token: token_seen,
            token_from: match config.listen.token_file {
                Some(_) => TokenFrom::File,
                None => TokenFrom::Environment,
            },
            started_at: clock.now(),
            version: env!("CARGO_PKG_VERSION"),
            ready: ready.clone(),
            defaults: defaults_seen,
            refuses: Arc::new(move |url| guard.check_url(url).err().map(|why| why.to_string())),
            push: Arc::new(move |push, client, held| {
                let pusher = Arc::clone(&pusher);
                // Not let go half done when its client goes away.
                let taking = tokio::spawn(async move {
                    let answer = pusher.take_push(push, client).await;
                    drop(held);
                    answer
                });
                let failed = |error| StoreError::Engine(format!("a push failed: {error}"));
                Box::pin(async move { taking.await.map_err(failed)? })
            }),
            levels: Arc::new(move |level| match set_level.get() {
                Some(set) => set(level),
                None => Err("the log of this process is not the daemon's".to_owned()),
            }),
        };
        let failed = |key, addr| move |source| AppError::Listen { key, addr, source };
        let public = match config.listen.public {
            Some(addr) => {
                let bound = Server::bind_public(addr, state.clone()).await;
                Some(bound.map_err(failed("listen.public", addr))?)
            }
            None => None,
        };
        let internal = internal
            .zip(address)
            .map(|(bound, at)| {
                let served = Server::of_peers(bound, state.clone());
                served.map_err(failed("listen.internal", at))
            })
            .transpose()?;
        let frontier = match config.listen.grpc {
            Some(addr) => {
                let bound = Server::bind_frontier(addr, state.clone()).await;
                Some(bound.map_err(failed("listen.grpc", addr))?)
            }
            None => None,
        };
        let addr = config.listen.api;
        let server = Server::bind(addr, state).await.map_err(failed("listen.api", addr))?;
        let config = watched;
        Ok(Self {
            store,
            clock,
            metrics,
            server,
            public,
            frontier,
            internal,
            levels,
            ready,
            poller,
            egress,
            config,
            defaults,
            token,
        })
    }

    /// The token that clients of the API must send, for who has another one take its
    /// place.
    pub fn token(&self) -> TokenInUse {
        self.token.clone()
    }

    /// Lets clients of the frontier set the level of the log, by this.
    pub fn set_levels_by(&self, door: LevelDoor) {
        // The first one stays; nobody gives two.
        let _ = self.levels.set(door);
    }

    /// Where the API really listens.
    pub fn api_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Where webmasters are really listened to, if anywhere.
    pub fn public_addr(&self) -> Option<SocketAddr> {
        self.public.as_ref().map(Server::local_addr)
    }

    /// Where clients of the frontier protocol are really listened to, if anywhere.
    pub fn grpc_addr(&self) -> Option<SocketAddr> {
        self.frontier.as_ref().map(Server::local_addr)
    }

    /// For those who watch over it while it runs.
    pub fn liveness(&self) -> Liveness {
        Liveness::new(self.store.clone(), self.poller.pulse())
    }

    /// The store, for those who look at it beside the API.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Runs until `stop` is cancelled, then drains within a deadline. A config
    /// sent to `reload` takes effect without a restart, but for the keys that
    /// [`reload::plan`] names.
    pub async fn run(
        self,
        stop: CancellationToken,
        mut reload: mpsc::Receiver<Reload>,
    ) -> Result<(), AppError> {
        let Self { store, clock, metrics, server, public, frontier, ready, poller, egress, .. } =
            self;
        let internal = self.internal;
        let (config, defaults) = (self.config, self.defaults);
        // A task that ends by itself takes the others with it.
        let inner = stop.child_token();
        let serving = tokio::spawn(server.run(inner.clone(), DRAIN));
        let minding = tokio::spawn(Arc::clone(&poller).mind_pushes(inner.clone()));
        let hearing = tokio::spawn(listen_if(public, inner.clone()));
        let fronting = tokio::spawn(listen_if(frontier, inner.clone()));
        let sharing = tokio::spawn(share(store.clone(), internal, inner.clone()));
        let pushing = tokio::spawn(Arc::clone(&poller).mind_hubs(inner.clone()));
        let publishing = tokio::spawn(egress.run(inner.clone()));
        let polling = tokio::spawn(poller.run(inner.clone()));
        let reaping = tokio::spawn(reap(store.clone(), clock.clone(), metrics, inner.clone()));
        let tending = tokio::spawn(maintain(store.clone(), clock, inner.clone()));
        ready.set(true);
        let mut tasks = [
            serving, polling, reaping, tending, hearing, minding, pushing, fronting, publishing,
            sharing,
        ];
        let names = [
            "the API",
            "the poll loop",
            "the reaper",
            "the housekeeping",
            "the public listener",
            "the minder of pushes",
            "the minder of hubs",
            "the frontier",
            "the egress",
            "the listener for other daemons",
        ];
        let failing = store.clone();
        let mut failed = std::pin::pin!(failing.failed());
        let ended = loop {
            tokio::select! {
                // In this order: a task that ends because of a stop has not ended
                // by itself.
                biased;
                () = inner.cancelled() => break None,
                error = &mut failed => break Some(Err(AppError::Store(error))),
                (ended, index, _) = select_all(tasks.iter_mut()) => break Some(Ok((index, ended))),
                Some(Reload { config: new, done }) = reload.recv() => {
                    tokio::select! {
                        biased;
                        // The store does what it was given yet; nobody else hears of it.
                        () = inner.cancelled() => break None,
                        taken = take_over(&store, &config, &defaults, new) => {
                            // Who asked may have stopped caring.
                            let _ = done.send(taken);
                        }
                    }
                }
            }
        };
        ready.set(false);
        inner.cancel();
        let finished = match &ended {
            Some(Ok((index, _))) => Some(*index),
            Some(Err(_)) | None => None,
        };
        for (index, task) in tasks.into_iter().enumerate() {
            if finished != Some(index) {
                // What a task had to say about its end, it has logged.
                let _ = task.await;
            }
        }
        let closing = store.clone();
        let _ = tokio::task::spawn_blocking(move || closing.close()).await;
        match ended {
            // The store may have stopped while all was being drained.
            None => store.check().map_err(AppError::Store),
            Some(Err(error)) => Err(error),
            Some(Ok((index, result))) => {
                let name = names.get(index).copied().unwrap_or("a task");
                let why = result.err().map_or_else(String::new, |error| format!(": {error}"));
                Err(AppError::Stopped(format!("{name} stopped unexpectedly{why}")))
            }
        }
    }
}

/// Serves a listener that there may be, until told to stop.
async fn listen_if(server: Option<Server>, stop: CancellationToken) {
    match server {
        Some(server) => server.run(stop, DRAIN).await,
        None => stop.cancelled().await,
    }
}

/// Does what other daemons ask, and tells them of what may be theirs to do.
async fn share(store: Store, server: Option<Server>, stop: CancellationToken) {
    tokio::select! {
        () = listen_if(server, stop) => {}
        () = store.tell_peers() => {}
    }
}

/// A new config: sites and policies at once, the rest as it is next looked at,
/// and nothing of what needs a restart.
async fn take_over(
    store: &Store,
    config: &watch::Sender<Arc<Config>>,
    defaults: &watch::Sender<LeaseDefaults>,
    new: Config,
) -> Result<(), StoreError> {
    let old = Arc::clone(&config.borrow());
    let new = reload::until_restart(&old, new);
    let plan = reload::plan(&old, &new);
    let touched = reload::touched_sites(&old, &new);
    // Not before the store has taken it: what it refuses nobody is to act by. Nor later
    // than it names sources as due: polls must know new sites.
    let publish = {
        let (config, new) = (config.clone(), Arc::new(new.clone()));
        move || drop(config.send_replace(new))
    };
    store.reconfigure(new.clone(), touched, publish).await?;
    defaults.send_replace(lease_defaults(&new));
    tracing::info!(
        added = plan.sites_added.len(),
        removed = plan.sites_removed.len(),
        changed = plan.sites_changed.len(),
        "config reloaded"
    );
    Ok(())
}

fn build_fetcher(
    config: &Config,
    clock: &Clock,
    lookup: Lookup,
) -> Result<Fetcher, FetchSetupError> {
    let clock = clock.clone();
    // Beside the database: there is room, and it is a disk.
    let spool = config.daemon.data_dir.clone();
    let surroundings = Surroundings { lookup, clock: Some(Arc::new(move || clock.now())), spool };
    let per_address = config.politeness.per_address;
    Fetcher::with_surroundings(&config.fetch, &config.daemon, per_address, surroundings)
}

fn lease_defaults(config: &Config) -> LeaseDefaults {
    LeaseDefaults { ttl: config.queue.lease, per_host: config.politeness.per_host }
}

/// Opens the store; waits while its server is away, or takes no writes, as a standby
/// amid a failover.
async fn open_store(
    config: &Config,
    clock: &Clock,
    metrics: &Arc<Metrics>,
    address: Option<SocketAddr>,
) -> Result<Store, AppError> {
    let mut is_told = false;
    loop {
        let is_far = config.store.url.is_some();
        let (config, clock, metrics) = (config.clone(), clock.clone(), Arc::clone(metrics));
        let open = move || Store::open_at(&config, clock, metrics, address);
        let opened = tokio::task::spawn_blocking(open)
            .await
            .map_err(|e| AppError::Stopped(format!("the store did not open: {e}")))?;
        let error = match opened {
            Err(error) if is_far && error.passes() => error,
            opened => return Ok(opened?),
        };
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(%error, "the store is opened when its server is back");
        }
        tokio::time::sleep(AWAY).await;
    }
}

/// Where other daemons that share the store reach this one.
async fn listen_to_peers(config: &Config) -> Result<Option<TcpListener>, AppError> {
    if config.store.url.is_none() {
        return Ok(None);
    }
    let addr = config.listen.internal;
    let bound = TcpListener::bind(addr).await;
    let key = "listen.internal";
    bound.map(Some).map_err(|source| AppError::Listen { key, addr, source })
}

/// The bearer token: the first line of the file, or that of the environment.
///
/// Fails where the file cannot be read or says nothing.
pub fn read_token(config: &Config) -> Result<ApiToken, AppError> {
    let Some(path) = &config.listen.token_file else {
        return Ok(config.listen.token.as_ref().map(|token| token.as_str().into()));
    };
    let failed = |why: String| AppError::Token { path: path.display().to_string(), why };
    first_line(path).map(|token| Some(token.into())).map_err(failed)
}
