//! The listener for webmasters: anybody may ask, and nobody may ask for much.
//!
//! It has none of the operators' routes. Each client has a share of requests,
//! all of them together have one, and each host that they speak of has one of
//! what follows for it (`limits`); who is over is told when to come again.
//! Paths are taken in every spelling that was ever in use.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state, map_request};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::limits::{Share, Shares, client_of, key_of};
use super::openapi::{Input, Operation, Routes};
use super::problem::{Kind, Problem};
use super::{
    Context, indexnow, method_not_allowed, no_such_route, openapi_document, ping, watch, websub,
};

/// Spellings of `/ping`: Bing's, Google's two, Yahoo's.
const PINGS: [&str; 4] = [
    "/webmaster/ping.aspx",
    "/webmasters/tools/ping",
    "/webmasters/sitemaps/ping",
    "/siteexplorerservice/v1/ping",
];

/// Bytes of all bodies held at once: two of the largest pushes. One client has no more
/// than one.
pub(super) const BODIES: usize = 48 << 20;
pub(super) const BODIES_OF_CLIENT: usize = BODIES / 2;
/// Bytes of all that hubs push at once, and of one address of hubs: that of the largest
/// push, and some more.
pub(super) const DELIVERIES: usize = 16 << 20;
pub(super) const DELIVERIES_OF_CLIENT: usize = DELIVERIES / 2;
/// Requests of one client: a minute's worth at once, then one a second.
const OF_CLIENT: Share = Share { burst: 60.0, hourly: 3_600.0 };
/// Requests of all clients together: 100 a second.
const OF_ALL: Share = Share { burst: 500.0, hourly: 360_000.0 };
/// Requests of one hub, which may push for many feeds, to what looks like a callback;
/// those to callbacks that are none are taken from the client's own share besides.
const OF_HUB: Share = Share { burst: 600.0, hourly: 36_000.0 };
/// Pushes to one callback.
const OF_CALLBACK: Share = Share { burst: 60.0, hourly: 600.0 };
/// Pings that name something on one host that is no source; of sources polls are spaced
/// by themselves.
const PINGS_OF_HOST: Share = Share { burst: 20.0, hourly: 60.0 };
/// Of these, pings of one client: too few to leave nothing to others.
const PINGS_OF_HOST_BY_CLIENT: Share = Share { burst: 5.0, hourly: 15.0 };
/// URLs that one client pushes, and that are pushed of one host: two whole
/// pushes at once, and as many in an hour.
const PUSHED: Share = Share { burst: 20_000.0, hourly: 20_000.0 };

/// Who may ask for how much.
pub(crate) struct Budgets {
    clients: Shares,
    hubs: Shares,
    pub(super) callbacks: Shares,
    all: Shares,
    pings_of_host: Shares,
    pings_of_host_by_client: Shares,
    pub(super) urls_of_client: Shares,
    pub(super) urls_of_host: Shares,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            clients: Shares::new(OF_CLIENT),
            hubs: Shares::new(OF_HUB),
            callbacks: Shares::new(OF_CALLBACK),
            all: Shares::new(OF_ALL),
            pings_of_host: Shares::new(PINGS_OF_HOST),
            pings_of_host_by_client: Shares::new(PINGS_OF_HOST_BY_CLIENT),
            urls_of_client: Shares::new(PUSHED),
            urls_of_host: Shares::new(PUSHED),
        }
    }
}

impl Budgets {
    /// Takes one request of a client: of its own share, and of what all have only where
    /// that lets it, so that nobody who is refused takes anything of others.
    pub(super) fn take_request(&self, client: u128, now: Timestamp) -> Result<(), Duration> {
        self.clients.take(client, 1.0, now).and_then(|()| self.take_of_all(now))
    }

    /// Takes a request of what all have.
    pub(super) fn take_of_all(&self, now: Timestamp) -> Result<(), Duration> {
        self.all.take(0, 1.0, now)
    }

    /// Is there anything left of it?
    pub(super) fn look_at_all(&self, now: Timestamp) -> Result<(), Duration> {
        self.all.look(0, 1.0, now)
    }

    /// Takes a ping of a client that names what is no source of this host.
    pub(super) fn take_ping(
        &self,
        client: u128,
        host: &str,
        seed: u64,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let host = host_key(seed, host);
        let pair = u128::from(xxh3_64_with_seed(&client.to_be_bytes(), seed)) << 64 | host;
        self.pings_of_host_by_client
            .take(pair, 1.0, now)
            .and_then(|()| self.pings_of_host.take(host, 1.0, now))
    }
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Whose share a request is taken from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client(pub(super) u128);

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // Every request has come by `admit`, which says whose it is.
        Ok(parts.extensions.get().copied().unwrap_or(Self(0)))
    }
}

impl Input for Client {
    fn describe(_: &mut Operation<'_>) {}
}

/// All routes of this listener, and the description of them.
pub(super) fn routes() -> Routes {
    Routes::public()
        .group("webmasters", "Say what has changed, and see what became of it.")
        .get("/ping", "A sitemap or feed has changed", &[], ping::ping)
        .post("/ping", "A sitemap or feed has changed", &[], ping::ping_posted)
        .get("/indexnow", "A URL was added, changed or deleted", &[], indexnow::push_one)
        .post("/indexnow", "URLs were added, changed or deleted", &[], indexnow::push_many)
        .get("/websub/{id}", "A hub asks whether we want its pushes", &[], websub::verify)
        .post("/websub/{id}", "A hub pushes what is new", &[], websub::receive)
        .get("/submissions/{id}", "Status of a submission", &[], ping::submission_status)
        .get("/openapi.json", "This description", &[], openapi_document)
}

/// The routes, with what stands around them.
pub(super) fn around(routes: Router<Arc<Context>>, context: Arc<Context>) -> Router {
    let inner = routes
        .fallback(no_such_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(context.clone(), admit))
        .layer(from_fn_with_state(context.clone(), watch::over))
        .with_state(context);
    // A path is respelled before it is looked for.
    Router::new().fallback_service(inner).layer(map_request(respell))
}

/// Middleware: one request of the client's share, and of all. What may be a hub's has
/// a share of its own; of all it is taken when it is known to be one.
async fn admit(
    State(context): State<Arc<Context>>,
    Extension(Peer(peer)): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let now = context.state.store.now();
    let client = key_of(client_of(peer.ip(), request.headers()));
    let budgets = &context.budgets;
    let callback = websub::id_in(request.uri().path());
    let taken = match callback {
        Some(_) => budgets.hubs.take(client, 1.0, now),
        None => budgets.take_request(client, now),
    };
    if let Err(wait) = taken {
        if let Some(id) = callback.filter(|_| request.method() == Method::POST) {
            websub::refused(&context, Client(client), id).await;
        }
        return Problem::too_many(wait, "Too many requests; come again later.").into_response();
    }
    // A bare address of a browser's page has no place here; it is not ours to
    // serve, and says so in words.
    if request.uri().path() == "/" {
        return Problem::new(Kind::NoSuchRoute, "Say what has changed at /ping?sitemap=URL.")
            .into_response();
    }
    let acts = acts(request.uri().path());
    let mut response = if acts && request.method() == Method::HEAD {
        let why = "A GET does something here, so there is no HEAD of it.";
        Problem::new(Kind::MethodNotAllowed, why).into_response()
    } else {
        request.extensions_mut().insert(Client(client));
        next.run(request).await
    };
    // Of what has a GET the router says that it has a HEAD.
    if acts && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,POST"));
    }
    response
}

/// Does a GET of this path do something, as those who wrote the protocols have it? A
/// HEAD may not, whoever looks whether a link is dead.
fn acts(path: &str) -> bool {
    matches!(path, "/ping" | "/indexnow") || path.starts_with("/websub/")
}

/// Whose share something of a host is taken from.
pub(super) fn host_key(seed: u64, host: &str) -> u128 {
    u128::from(xxh3_64_with_seed(host.as_bytes(), seed))
}

/// Middleware: the one spelling of a path that has many.
async fn respell(mut request: Request) -> Request {
    let path = request.uri().path().to_ascii_lowercase();
    let path = match path.as_str() {
        "/ping" | "/ping/" => "/ping",
        "/indexnow" | "/indexnow/" => "/indexnow",
        other if PINGS.contains(&other.trim_end_matches('/')) => "/ping",
        _ => return request,
    };
    let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(format!("{path}{query}")).ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}
