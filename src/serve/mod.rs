//! The HTTP API: what fetchers and operators ask, answered from the store.
//!
//! The handlers translate and check; every effect and every read is one call
//! to [`Store`]. Errors are problem+json (`problem`), values have one spelling
//! (`wire`), bodies are bounded (`extract`), callers are judged in one place
//! (`gate`), and each connection is under limits (`server`).

mod changes;
mod extract;
mod gate;
mod lease;
mod operate;
mod page;
mod problem;
mod server;
mod show;
mod watch;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch as channel};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::store::Store;
use problem::{Kind, Problem};
pub use server::Server;

/// What a lease takes where its request does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseDefaults {
    /// How long it lasts: `queue.lease`.
    pub ttl: Duration,
    /// Most URLs of one host: `politeness.per_host`.
    pub per_host: u32,
}

/// Says whether the daemon does its work; cheap to clone, the clones are one.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on `/readyz` answers 200 (or 503 with `false`).
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    /// Does the daemon do its work?
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the API answers from.
#[derive(Clone)]
pub struct ServeState {
    /// Every effect and every read.
    pub store: Store,
    /// Counted here, shown at `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The bearer token; `None` only on a loopback listener.
    pub token: Option<String>,
    /// Since when the daemon runs.
    pub started_at: Timestamp,
    /// Of the program.
    pub version: &'static str,
    /// Set by the daemon when all its tasks run.
    pub ready: Readiness,
    /// Follows reloads of the config.
    pub defaults: channel::Receiver<LeaseDefaults>,
    /// Which URLs are never fetched.
    pub refuses: Refuses,
}

/// Says why a URL is never fetched, by what the URL itself shows.
pub type Refuses = Arc<dyn Fn(&url::Url) -> Option<String> + Send + Sync>;

/// What handlers share.
struct Context {
    state: ServeState,
    /// Where we really listen.
    bound: SocketAddr,
    /// Wakes the long polls when the daemon stops.
    stop: CancellationToken,
    bodies: extract::BodyBudget,
    /// Places for those who follow changes.
    streams: Arc<Semaphore>,
}

impl Context {
    fn lease_defaults(&self) -> LeaseDefaults {
        *self.state.defaults.borrow()
    }
}

/// All routes, with what stands around them.
fn router(context: Arc<Context>) -> Router {
    let queue = Router::new()
        .route("/v1/lease", post(lease::lease))
        .route("/v1/settle", post(lease::settle))
        .route("/v1/extend", post(lease::extend))
        .route("/v1/release", post(lease::release))
        .route("/v1/queue", get(show::queue))
        .route("/v1/queue/peek", get(show::peek))
        .route("/v1/queue/dead", get(show::dead))
        .route("/v1/queue/blocks", get(show::blocks))
        .route("/v1/queue/replay", post(operate::replay))
        .route("/v1/queue/requeue", post(operate::requeue))
        .route("/v1/queue/block", post(operate::block))
        .route("/v1/queue/unblock", post(operate::unblock))
        .route("/v1/queue/pause", post(operate::pause_crawl));
    let sites = Router::new()
        .route("/v1/url", get(show::url))
        .route("/v1/urls", get(show::urls))
        .route("/v1/import", post(operate::import))
        .route("/v1/sites", get(show::sites))
        .route("/v1/sites/{name}", get(show::site).delete(operate::forget_site))
        .route("/v1/sites/{name}/poll", post(operate::poll_site))
        .route("/v1/sites/{name}/pause", post(operate::pause_site))
        .route("/v1/sites/{name}/resume", post(operate::resume_site))
        .route("/v1/sources", get(show::sources).post(operate::submit_source))
        .route("/v1/sources/{id}", get(show::source).delete(operate::delete_source))
        .route("/v1/sources/{id}/poll", post(operate::poll_source))
        .route("/v1/polls", get(show::polls))
        .route("/v1/polls/{id}/changes", get(show::changes_of_poll));
    let daemon = Router::new()
        .route("/", get(page::page))
        .route("/status.css", get(page::style))
        .route("/v1/status", get(show::status))
        .route("/metrics", get(show::metrics))
        .route("/healthz", get(show::healthz))
        .route("/readyz", get(show::readyz))
        .route("/v1/changes", get(changes::changes))
        .route("/openapi.json", get(openapi));
    queue
        .merge(sites)
        .merge(daemon)
        .fallback(no_such_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(context.clone(), gate::admit))
        .layer(from_fn_with_state(context.clone(), watch::over))
        .with_state(context)
}

async fn openapi() -> Problem {
    Problem::not_served("its description as OpenAPI")
}

async fn no_such_route(uri: Uri) -> Problem {
    Problem::new(
        Kind::NoSuchRoute,
        format!("{:?} is no route of this API; the README lists them.", uri.path()),
    )
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        Kind::MethodNotAllowed,
        format!("{:?} does not answer {method}; the Allow header says what it does.", uri.path()),
    )
}
