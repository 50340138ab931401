//! Builds the daemon and runs it; the caller owns the stop signal.
//!
//! `build` opens the store and binds the listener, so that a caller knows the
//! real port before anything runs; `run` polls, serves and drains.

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::store::{Store, StoreError};

/// Why the daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The data folder is held by another daemon, or cannot be used.
    #[error("{0}")]
    DataDir(String),
    /// The store cannot be used.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// The listener cannot be bound.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// Where we tried.
        addr: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The HTTP client cannot be built.
    #[error("fetch: {0}")]
    Fetch(String),
    /// A task ended that should not have.
    #[error("{0}")]
    Stopped(String),
}

/// What `sitemapd run` and the tests ask of a running daemon.
#[derive(Debug, Clone)]
pub struct Reload(pub Config);

/// A daemon, built and not yet running.
pub struct App {}

#[allow(unused_variables, clippy::unused_async, clippy::todo)]
impl App {
    /// Takes the lock, opens the store, registers the config's sites, binds the listener.
    pub async fn build(config: Config, clock: crate::clock::Clock) -> Result<Self, AppError> {
        todo!()
    }
    /// Where the API really listens.
    pub fn api_addr(&self) -> SocketAddr {
        todo!()
    }
    /// The store, for those who look at it beside the API.
    pub fn store(&self) -> &Store {
        todo!()
    }
    /// Runs until `stop` is cancelled, then drains within a deadline. A config
    /// sent to `reload` takes effect without a restart.
    pub async fn run(
        self,
        stop: CancellationToken,
        reload: tokio::sync::mpsc::Receiver<Reload>,
    ) -> Result<(), AppError> {
        todo!()
    }
}
