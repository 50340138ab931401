//! The HTTP API: what fetchers and operators ask, answered from the store.
//!
//! The handlers translate and check; every effect and every read is one call
//! to [`Store`]. Errors are problem+json (`problem`), values have one spelling
//! (`wire`), bodies are bounded (`extract`), what a route does not read is refused
//! (`unread`), what is left of a body is read on (`rest`), callers are judged in one
//! place (`gate`), and each connection is under limits (`server`). The handlers' types
//! are the description that the API gives of itself (`openapi`). Webmasters, who are
//! anybody, have a listener and routes of their own (`public`), and so have crawlers
//! that speak the `URLFrontier` protocol (`frontier`).

mod bodies;
mod changes;
mod extract;
pub mod frontier;
mod gate;
mod indexnow;
mod lease;
mod limits;
pub mod message;
mod openapi;
mod operate;
mod page;
mod peers;
mod ping;
mod problem;
mod public;
mod rest;
mod server;
mod show;
mod submissions;
mod unread;
mod watch;
mod websub;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch as channel};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::store::pushes::{Push, Pushed};
use crate::store::{Store, StoreError};
use bodies::BodyBudget;
pub use bodies::BodyShare;
use openapi::{Description, OpenApi, Routes};
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

/// The bearer token of the API, if it has one.
pub type ApiToken = Option<Arc<str>>;

/// Where that is set, for who has not given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFrom {
    /// `listen.token_file`, which is read again at a reload.
    File,
    /// The environment, which stays as it was when the daemon started.
    Environment,
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
    /// The bearer token; `None` only on a loopback listener. Follows reloads.
    pub token: channel::Receiver<ApiToken>,
    /// Where it is from.
    pub token_from: TokenFrom,
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
    /// Takes in what owners push.
    pub push: PushDoor,
    /// Sets the level of the log, where it is ours.
    pub levels: frontier::LevelDoor,
}

/// Checks the key of a push by a client, and takes in its URLs. That goes on when
/// the client has gone, and so long its share of the memory for bodies is taken.
pub type PushDoor =
    Arc<dyn Fn(Push, u128, Option<BodyShare>) -> BoxFuture<'static, PushAnswer> + Send + Sync>;

/// What it came to.
pub type PushAnswer = Result<Pushed, StoreError>;

/// Says why a URL is never fetched, by what the URL itself shows.
pub type Refuses = Arc<dyn Fn(&url::Url) -> Option<String> + Send + Sync>;

/// What handlers share.
struct Context {
    state: ServeState,
    /// Where we really listen.
    bound: SocketAddr,
    /// Wakes the long polls when the daemon stops.
    stop: CancellationToken,
    bodies: BodyBudget,
    /// For what hubs push, which strangers' bodies are not to keep out.
    deliveries: BodyBudget,
    /// What is told of the routes.
    description: Description,
    /// Places for those who follow changes.
    streams: Arc<Semaphore>,
    /// Shares of those who ask the public listener.
    budgets: public::Budgets,
    /// What the status page has counted so far.
    tides: page::Kept,
}

impl Context {
    fn lease_defaults(&self) -> LeaseDefaults {
        *self.state.defaults.borrow()
    }
}

/// All routes, and the description of them.
fn routes() -> Routes {
    use Kind::{Gone, NotFound};
    let routes = Routes::new()
        .group("fetchers", "Lease URLs, and report what was seen of them.")
        .post("/v1/lease", "Leases URLs that are due", &[NotFound], lease::lease)
        .post("/v1/settle", "Ends leases with what was seen", &[], lease::settle)
        .post("/v1/extend", "Makes leases last longer", &[], lease::extend)
        .post("/v1/release", "Gives leases back", &[], lease::release)
        .get(
            "/v1/changes",
            "What changed, in the order of commits",
            &[NotFound, Gone],
            changes::changes,
        );
    let routes = queue_routes(routes);
    let routes = site_routes(routes);
    let routes = routes
        .group("daemon", "The daemon itself.")
        .get("/v1/status", "The whole at a glance", &[], show::status)
        .get("/metrics", "Metrics, as OpenMetrics text", &[], show::metrics)
        .get("/healthz", "Should this process be left alone?", &[], show::healthz)
        .get("/readyz", "May work be sent here now?", &[], show::readyz)
        .get("/openapi.json", "This description", &[], openapi_document);
    page_routes(routes)
}

/// The status page and what it leads to, for people with a browser.
fn page_routes(routes: Routes) -> Routes {
    use Kind::{NotFound, Refused};
    routes
        .group("pages", "The same for people with a browser. The token may be a password here.")
        .get("/", "The status page", &[], page::page)
        .get("/status.css", "The style of the pages", &[], page::style)
        .get("/sites", "Sites, as a page", &[], page::sites_page)
        .get("/site/{name}", "One site, as a page", &[], page::site_page)
        .get("/source/{id}", "One source, as a page", &[], page::source_page)
        .get("/url", "One URL, as a page", &[NotFound], page::url_page)
        .get("/failing", "Failing sources, as a page", &[], page::failing_page)
        .get("/hosts", "Hosts and their lastmods, as a page", &[], page::hosts_page)
        .get("/dead", "URLs given up, as a page", &[], page::dead_page)
        .get("/blocks", "Blocks in force, as a page", &[], page::blocks_page)
        .get("/submissions", "Submissions, as a page", &[], page::submissions_page)
        .post("/order", "An order from a page", &[NotFound, Refused], page::order)
}

fn queue_routes(routes: Routes) -> Routes {
    use Kind::{NotFound, Refused};
    routes
        .group("queue", "Look into the queues, or change them.")
        .get("/v1/queue", "Queues in numbers", &[NotFound], show::queue)
        .get("/v1/queue/peek", "What would be leased soon", &[NotFound], show::peek)
        .get("/v1/queue/dead", "URLs given up", &[NotFound], show::dead)
        .get("/v1/queue/blocks", "Blocks in force", &[NotFound], show::blocks)
        .post("/v1/queue/replay", "Puts dead letters back", &[NotFound], operate::replay)
        .post("/v1/queue/requeue", "Makes URLs due now", &[NotFound], operate::requeue)
        .post("/v1/queue/block", "Blocks a URL or a prefix", &[NotFound, Refused], operate::block)
        .post("/v1/queue/unblock", "Lifts a block", &[NotFound, Refused], operate::unblock)
        .post("/v1/queue/pause", "Pauses a crawl, or goes on", &[NotFound], operate::pause_crawl)
        .post("/v1/import", "Takes in fetches of the past", &[NotFound], operate::import)
}

fn site_routes(routes: Routes) -> Routes {
    use Kind::{NotFound, Refused};
    routes
        .group("sites", "Sites, their sources, their URLs, and what polls found.")
        .get("/v1/url", "All that is known of a URL", &[NotFound], show::url)
        .get("/v1/urls", "All URLs, with all that is known of them", &[], show::urls)
        .get("/v1/sites", "The sites", &[], show::sites)
        .get("/v1/sites/{name}", "One site", &[], show::site)
        .delete("/v1/sites/{name}", "Forgets a site", &[Refused], operate::forget_site)
        .post("/v1/sites/{name}/poll", "Makes its sources due", &[], operate::poll_site)
        .post("/v1/sites/{name}/pause", "Pauses a site", &[Refused], operate::pause_site)
        .post("/v1/sites/{name}/resume", "Goes on with a site", &[Refused], operate::resume_site)
        .get("/v1/sources", "Sources, without retired ones", &[NotFound], show::sources)
        .post("/v1/sources", "Submits a source", &[NotFound, Refused], operate::submit_source)
        .get("/v1/sources/{id}", "One source, with its polls", &[], show::source)
        .delete("/v1/sources/{id}", "Drops a source", &[Refused], operate::delete_source)
        .post("/v1/sources/{id}/poll", "Makes a source due", &[], operate::poll_source)
        .get("/v1/submissions", "What webmasters submitted", &[], submissions::submissions)
        .post(
            "/v1/submissions/{id}/grant",
            "Makes it a source of a site",
            &[Refused],
            submissions::grant,
        )
        .delete("/v1/submissions/{id}", "Drops a submission", &[], submissions::forget_submission)
        .get("/v1/polls", "Polls, in their order", &[], show::polls)
        .get("/v1/polls/{id}/changes", "What a poll changed", &[], show::changes_of_poll)
}

/// The routes, with what stands around them.
fn around(routes: Router<Arc<Context>>, context: Arc<Context>) -> Router {
    routes
        .fallback(no_such_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(context.clone(), gate::admit))
        .layer(from_fn(page::refusals))
        .layer(from_fn_with_state(context.clone(), watch::over))
        .with_state(context)
}

async fn openapi_document(State(context): State<Arc<Context>>) -> OpenApi {
    OpenApi(context.description.document.clone())
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
