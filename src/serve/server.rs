//! Connections: accepts them, keeps each under limits, drains them at stop.
//!
//! `axum::serve` sets no timer, which leaves hyper's header timeout without
//! effect and lets a slow client keep a connection for ever; here each
//! connection is built by hand. A client can hold a connection for
//! [`LIFETIME`] plus one request at most, which lasts for as long as it goes on
//! taking what a long answer has ([`Progress`]), and all of them together never
//! more than half of the open files that the system allows us: the store and
//! the fetcher need theirs.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bodies::BodyBudget;
use super::changes::MAX_STREAMS;
use super::frontier;
use super::limits::key_of;
use super::openapi::Routes;
use super::peers;
use super::public::{self, Peer};
use super::watch::REQUEST_TIMEOUT;
use super::wire::grouped;
use super::{Context, ServeState, around, routes};
use crate::metrics::Metrics;

/// Connections at once, unless the system allows us too few open files.
const MAX_CONNECTIONS: usize = 1_024;
/// Open files that a process may have where the system does not say (POSIX
/// systems rarely give less than 512).
const FALLBACK_FILES: usize = 512;
/// Time for a request's header to come in, and for a kept connection to be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request's header (and of the read buffer).
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The same of HTTP/2.
const MAX_HEADER_LIST: u32 = 16 << 10;
/// Fields of a request's header.
const MAX_HEADERS: usize = 64;
/// Age at which a connection takes no further request; clients reconnect.
const LIFETIME: Duration = Duration::from_secs(600);
/// Time for the last request of a connection, its answer read by the client, or for a
/// part of an answer that goes on and on.
const LAST_REQUEST: Duration = REQUEST_TIMEOUT.saturating_add(Duration::from_secs(30));
/// Time for a client of HTTP/2 to read our last words and close its side.
const LINGER: Duration = Duration::from_secs(2);
/// Pause after a failed accept: descriptors come back when requests end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Connections at once to the public listener, unless that is over a fourth of
/// what the other may have.
const MAX_PUBLIC_CONNECTIONS: usize = 256;
/// Of these, of one client that is not on this machine.
const MAX_OF_CLIENT: usize = 16;
/// Connections at once of clients of the frontier, within the same share.
const MAX_FRONTIER_CONNECTIONS: usize = 256;
/// Connections at once of other daemons, within the same share.
const MAX_PEER_CONNECTIONS: usize = 256;
/// Calls at once on one of them.
const MAX_CALLS: u32 = 100;
/// Bytes that its client may send before they are read: of a call, and of all.
/// The second is more than all calls that may stream can fill: half of it is what
/// h2 allows for the overhead of frames under 256 bytes that wait to be read,
/// beyond which it ends the connection; and a client may well send each URL in a
/// frame of its own, of 30 bytes or more.
const WINDOWS: (u32, u32) = (64 << 10, 64 << 20);
/// It is asked for a sign of life this often, and has so long to answer: a stream
/// may last for days, so no age ends it.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// Parts of long answers that the client of a connection has taken, for whoever makes
/// such an answer to count.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Another part goes to the client, which has taken those before.
    pub(super) fn goes_on(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A long answer of which each part counts, as it goes to the client.
    pub(super) fn counting(self, answer: Body) -> Body {
        let parts = answer.into_data_stream();
        Body::from_stream(parts.inspect(move |_| self.goes_on()))
    }

    /// Waits for the end of what a connection does last; not when its client takes
    /// nothing any more.
    async fn finish<T>(&self, last: impl Future<Output = T>) -> Option<T> {
        let mut last = pin!(last);
        loop {
            let before = self.0.load(Ordering::Relaxed);
            match timeout(LAST_REQUEST, last.as_mut()).await {
                Ok(ended) => return Some(ended),
                Err(_) if self.0.load(Ordering::Relaxed) == before => return None,
                Err(_) => {}
            }
        }
    }
}

/// Who comes in by a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// Fetchers and operators.
    Api,
    /// Webmasters, which is anybody.
    Public,
    /// Crawlers that speak the frontier protocol, over HTTP/2.
    Frontier,
    /// Other daemons that share the store.
    Peers,
}

/// A listener, bound and not yet served.
pub struct Server {
    listener: TcpListener,
    bound: SocketAddr,
    state: ServeState,
    door: Door,
}

impl Door {
    /// As the configuration names it, below `listen`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Public => "public",
            Self::Frontier => "grpc",
            Self::Peers => "internal",
        }
    }
}

impl Server {
    /// Binds the API's listener; with port 0 the system picks one.
    pub async fn bind(addr: SocketAddr, state: ServeState) -> io::Result<Self> {
        Self::bind_door(addr, state, Door::Api).await
    }

    /// Binds the webmasters' listener: other routes, for anybody, within shares.
    pub async fn bind_public(addr: SocketAddr, state: ServeState) -> io::Result<Self> {
        Self::bind_door(addr, state, Door::Public).await
    }

    /// Binds the listener of the frontier protocol.
    pub async fn bind_frontier(addr: SocketAddr, state: ServeState) -> io::Result<Self> {
        Self::bind_door(addr, state, Door::Frontier).await
    }

    /// Serves other daemons by a listener that they know of already.
    pub fn of_peers(listener: TcpListener, state: ServeState) -> io::Result<Self> {
        let bound = listener.local_addr()?;
        Ok(Self { listener, bound, state, door: Door::Peers })
    }

    async fn bind_door(addr: SocketAddr, state: ServeState, door: Door) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let bound = listener.local_addr()?;
        Ok(Self { listener, bound, state, door })
    }

    /// Where it really listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.bound
    }

    /// Serves until `stop` is cancelled. Then no connection is accepted, long
    /// polls answer at once, and requests have `drain` to end; what is left
    /// after that is cut off.
    pub async fn run(self, stop: CancellationToken, drain: Duration) {
        let Self { listener, bound, state, door } = self;
        let metrics = state.metrics.clone();
        let limits = std::fs::read_to_string("/proc/self/limits").ok();
        let all = connection_limit(limits.as_deref());
        let share = |most| (all / 4).clamp(1, most);
        let describe = |state, routes, bodies| described(state, routes, bodies, bound, &stop);
        let connections = match door {
            Door::Api => {
                let (routes, context) = describe(state, routes(), BodyBudget::default());
                Connections::new(door, around(routes, context), metrics, stop, all)
            }
            Door::Public => {
                let bodies = BodyBudget::with_share(public::BODIES, public::BODIES_OF_CLIENT);
                let (routes, context) = describe(state, public::routes(), bodies);
                let inner = public::around(routes, context);
                Connections {
                    of_client: Some(Arc::default()),
                    ..Connections::new(door, inner, metrics, stop, share(MAX_PUBLIC_CONNECTIONS))
                }
            }
            Door::Peers => {
                let router = peers::router(state.store);
                Connections::new(door, router, metrics, stop, share(MAX_PEER_CONNECTIONS))
            }
            Door::Frontier => {
                let router = frontier::router(state, bound, stop.clone());
                Connections {
                    is_http2: true,
                    of_client: Some(Arc::default()),
                    ..Connections::new(door, router, metrics, stop, share(MAX_FRONTIER_CONNECTIONS))
                }
            }
        };
        connections.accept_from(listener).await;
        connections.drain(drain).await;
    }
}

/// Routes, and what their handlers share.
fn described(
    state: ServeState,
    routes: Routes,
    bodies: BodyBudget,
    bound: SocketAddr,
    stop: &CancellationToken,
) -> (Router<Arc<Context>>, Arc<Context>) {
    let (routes, description) = routes.finish(state.version);
    let context = Context {
        state,
        bound,
        stop: stop.clone(),
        description,
        bodies,
        deliveries: BodyBudget::with_share(public::DELIVERIES, public::DELIVERIES_OF_CLIENT),
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        budgets: public::Budgets::default(),
        tides: super::page::Kept::default(),
    };
    (routes, Arc::new(context))
}

/// Has a connection brought a call that was let through? Others are closed.
#[derive(Debug, Clone, Default)]
pub(super) struct Business(Arc<AtomicBool>);

impl Business {
    /// It has.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// All connections, and what each of them needs.
#[derive(Clone)]
struct Connections {
    door: Door,
    router: Router,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    /// Is it HTTP/2, with the client knowing that beforehand (RFC 9113 section
    /// 3.3)? Else HTTP/1.1.
    is_http2: bool,
    /// How many each client has, where that is limited.
    of_client: Option<Arc<OfClient>>,
    /// What a connection without a place gets.
    overloaded: Arc<str>,
    header_timeout: Duration,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Cancelled when the time to drain is over.
    cut: CancellationToken,
}

impl Connections {
    fn new(
        door: Door,
        router: Router,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
        places: usize,
    ) -> Self {
        Self {
            door,
            router,
            metrics,
            places: Arc::new(Semaphore::new(places)),
            is_http2: false,
            of_client: None,
            overloaded: overloaded(places).into(),
            header_timeout: HEADER_TIMEOUT,
            tasks: TaskTracker::new(),
            stop,
            cut: CancellationToken::new(),
        }
    }

    /// Accepts connections until the daemon stops, and closes the listener.
    async fn accept_from(&self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.open(stream, peer),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections for the moment");
                    let _ = timeout(ACCEPT_PAUSE, self.stop.cancelled()).await;
                }
            }
        }
    }

    /// Serves a connection in a task of its own, if there is a place for it.
    fn open(&self, stream: TcpStream, peer: SocketAddr) {
        let place = self.places.clone().try_acquire_owned().ok();
        let Some((place, of_client)) = place.zip(self.place_of_client(peer)) else {
            self.metrics.connection_refused(self.door.as_str());
            turn_away(stream, &self.overloaded);
            return;
        };
        self.tasks.spawn(self.clone().serve(stream, peer, (place, of_client)));
    }

    /// One of the places that a client may have, if there is any. This machine
    /// has all: a proxy comes from here.
    fn place_of_client(&self, peer: SocketAddr) -> Option<PlaceOfClient> {
        let limited = self.of_client.as_ref().filter(|_| !peer.ip().to_canonical().is_loopback());
        match limited {
            Some(all) => PlaceOfClient::take(all, key_of(peer.ip())),
            None => Some(PlaceOfClient { all: Arc::default(), client: 0 }),
        }
    }

    async fn serve(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        _place: (OwnedSemaphorePermit, PlaceOfClient),
    ) {
        // Answers are small and written whole; waiting to fill a packet only delays.
        let _ = stream.set_nodelay(true);
        if self.is_http2 {
            return self.serve_http2(stream).await;
        }
        let inner = TowerToHyperService::new(self.router);
        let progress = Progress::default();
        let service = service_fn({
            let progress = progress.clone();
            move |mut request: hyper::Request<Incoming>| {
                request.extensions_mut().insert(Peer(peer));
                request.extensions_mut().insert(progress.clone());
                inner.call(request)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(MAX_HEADER_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return log_end(ended),
            () = self.stop.cancelled() => {}
            () = sleep(LIFETIME) => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = progress.finish(connection) => {
                if let Some(ended) = ended {
                    log_end(ended);
                }
            }
            () = self.cut.cancelled() => {}
        }
    }

    async fn serve_http2(&self, mut stream: TcpStream) {
        if self.serve_calls(&mut stream).await {
            tokio::select! {
                () = linger(&mut stream) => {}
                () = self.cut.cancelled() => {}
                () = sleep(LINGER) => {}
            }
        }
    }

    /// Says whether it was us who ended it, and all calls have had their answers.
    async fn serve_calls(&self, stream: &mut TcpStream) -> bool {
        let business = Business::default();
        let inner = TowerToHyperService::new(self.router.clone());
        let service = service_fn({
            let business = business.clone();
            move |mut request: hyper::Request<Incoming>| {
                request.extensions_mut().insert(business.clone());
                inner.call(request)
            }
        });
        // A client of which no call is let through has no business here, whatever it sends.
        let mut idle = pin!(async {
            sleep(self.header_timeout).await;
            if business.is_noted() {
                std::future::pending::<()>().await;
            }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .max_concurrent_streams(MAX_CALLS)
            .max_header_list_size(MAX_HEADER_LIST)
            .initial_stream_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => {
                log_end(ended);
                return false;
            }
            () = idle.as_mut() => return false,
            () = self.stop.cancelled() => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = connection => {
                let is_whole = ended.is_ok();
                log_end(ended);
                is_whole
            }
            () = idle => false,
            () = self.cut.cancelled() => false,
        }
    }

    /// Waits for all connections to end; cuts off those that do not in time.
    async fn drain(self, deadline: Duration) {
        self.tasks.close();
        if timeout(deadline, self.tasks.wait()).await.is_ok() {
            return;
        }
        tracing::warn!(connections = self.tasks.len(), "requests cut off at the drain deadline");
        self.cut.cancel();
        self.tasks.wait().await;
    }
}

/// How many connections each client has.
type OfClient = Mutex<HashMap<u128, usize>>;

/// A place of a client's; given back on drop.
struct PlaceOfClient {
    all: Arc<OfClient>,
    client: u128,
}

impl PlaceOfClient {
    fn take(all: &Arc<OfClient>, client: u128) -> Option<Self> {
        // Nothing that panics is done while this lock is held.
        let mut taken = all.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(client).or_default();
        if *count >= MAX_OF_CLIENT {
            return None;
        }
        *count += 1;
        Some(Self { all: all.clone(), client })
    }
}

impl Drop for PlaceOfClient {
    fn drop(&mut self) {
        let mut taken = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

/// Reads over what a client still sends, until it has closed its side. To close a socket
/// of which anything is unread, or arrives later, resets the connection, and the client
/// loses what it has not read of our last words (RFC 9112, section 9.6): over HTTP/2 it
/// says all the time how much it has read.
async fn linger(stream: &mut TcpStream) {
    let _ = stream.shutdown().await;
    let mut waste = [0; 4_096];
    while let Ok(1..) = stream.read(&mut waste).await {}
}

/// A broken connection is the client's affair, and common.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Half of the open files that `/proc/self/limits` grants, 1,024 at most.
fn connection_limit(proc_limits: Option<&str>) -> usize {
    let soft = proc_limits.and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(usize::MAX),
            number => number.parse().ok(),
        }
    });
    (soft.unwrap_or(FALLBACK_FILES) / 2).clamp(1, MAX_CONNECTIONS)
}

/// The whole answer to a connection over the limit.
fn overloaded(places: usize) -> String {
    let body = format!(
        "{{\"type\":\"urn:sitemapd:problem:busy\",\"title\":\"Busy, try again\",\"status\":503,\
         \"detail\":\"All {} connections are taken; close those you do not use.\"}}",
        grouped(places)
    );
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n\
         Retry-After: 1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers 503 without a task and without waiting for a request.
fn turn_away(stream: TcpStream, answer: &str) {
    // A fresh socket has room for the few bytes; if not, closing it says enough.
    let Ok(mut stream) = stream.into_std() else { return };
    let _ = stream.write(answer.as_bytes());
}

/// Errors of one connection that was gone before we took it.
fn is_of_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
