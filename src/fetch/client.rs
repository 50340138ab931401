//! The HTTP client: one GET at a time, through every gate, within every limit.
//!
//! Each hop is judged by the guard, admitted by the caller's [`Gate`], resolved
//! to checked addresses, given a turn at them, and only then sent. A body that
//! did not arrive whole is an error, never a short document; a connection that
//! broke the protocol or was cut is closed, not used again. Decoding is
//! [`super::body`]'s, politeness between polls the caller's.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Proxy, Response};
use tokio::time::Instant;
use url::Url;

use super::guard::{Blocked, Guard};
use super::redirect::{self, Trail};
use super::resolver::{self, CheckedOnly, Lookup, Resolver, system_lookup};
use super::turns::{Turn, Turns};
use super::{
    Answer, FetchError, Fetched, Gate, Head, Request, Validators, failure, headers, outside,
};
use crate::config;

/// Longest wait for the headers, and between two pieces of a body.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers of one answer (HTTP/1.1). Their bytes are limited by hyper to about 400 KB.
pub const MAX_HEADERS: usize = 256;

/// Bytes of the headers of one answer (HTTP/2).
pub const MAX_HEADER_LIST_BYTES: u32 = 256 * 1024;

/// How long an idle connection is kept for the next request to its host.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of a body that nobody wants (a redirect's, a refusal's) read so that
/// its connection can be used again, and how long that may take.
const MAX_UNWANTED_BYTES: u64 = 16 * 1024;
const MAX_UNWANTED_TIME: Duration = Duration::from_secs(2);

/// Bytes reserved for a body ahead of its first piece; `Content-Length` is a claim.
const FIRST_RESERVE: usize = 64 * 1024;

/// Where the fetcher gets names and the time from.
#[derive(Clone)]
pub struct Surroundings {
    /// Resolves host names. What it says is checked as DNS is.
    pub lookup: Lookup,
    /// The time, for a `Retry-After` or `Expires` date that comes without
    /// `Date`; without a clock such a date says nothing.
    pub clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { lookup: system_lookup(), clock: None }
    }
}

/// Why no fetcher could be built: what the config says does not work.
#[derive(Debug, thiserror::Error)]
pub enum FetchSetupError {
    /// `fetch.ca_file` cannot be read.
    #[error("fetch.ca_file {path}: {cause}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// `fetch.proxy` is no proxy we can use.
    #[error("fetch.proxy: {0}")]
    Proxy(String),
    /// A configured value that HTTP does not allow in a header.
    #[error("{0} has characters that a header cannot carry")]
    Header(&'static str),
    /// The TLS library or the client refuses to start.
    #[error("cannot set up the HTTP client: {0}")]
    Client(String),
}

/// The one door to the network. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    guard: Guard,
    resolver: Resolver,
    turns: Turns,
    limits: failure::Limits,
    proxied: bool,
    clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
}

/// What one hop came to.
enum Hop {
    Redirect { status: u16, location: HeaderValue },
    End(Answer),
}

impl Fetcher {
    /// A fetcher as configured; `per_address` is `politeness.per_address`, the
    /// requests in flight to one public address.
    pub fn new(
        fetch: &config::Fetch,
        daemon: &config::Daemon,
        per_address: u32,
    ) -> Result<Self, FetchSetupError> {
        Self::with_surroundings(fetch, daemon, per_address, Surroundings::default())
    }

    /// The same with another source of names or a clock.
    pub fn with_surroundings(
        fetch: &config::Fetch,
        daemon: &config::Daemon,
        per_address: u32,
        surroundings: Surroundings,
    ) -> Result<Self, FetchSetupError> {
        let guard = Guard::new(&fetch.allow);
        let limits = failure::Limits {
            connect: fetch.connect_timeout,
            read: READ_TIMEOUT.min(fetch.total_timeout),
            total: fetch.total_timeout,
        };
        let Surroundings { lookup, clock } = surroundings;
        Ok(Self {
            inner: Arc::new(Inner {
                client: build_client(fetch, daemon, &limits, lookup.clone())?,
                resolver: Resolver::new(guard.clone(), lookup, fetch.connect_timeout),
                guard,
                turns: Turns::new(per_address),
                limits,
                proxied: fetch.proxy.is_some(),
                clock,
            }),
        })
    }

    /// The guard, for URLs that are to be refused before they are stored.
    pub fn guard(&self) -> &Guard {
        &self.inner.guard
    }

    /// Fetches one document, following redirects. Waiting for the gate and for
    /// a turn at the address does not count against `fetch.total_timeout`.
    pub async fn fetch<G: Gate>(&self, request: Request, gate: &G) -> Result<Answer, FetchError> {
        let mut trail = Trail::new(request.url.clone(), request.max_redirects);
        let mut took = Duration::ZERO;
        loop {
            self.inner.guard.check_url(trail.current())?;
            gate.admit(trail.current()).await?;
            let left = self.inner.limits.total.saturating_sub(took);
            match self.inner.hop(&request, &trail, left, &mut took).await? {
                Hop::Redirect { status, location } => trail.follow(status, &location)?,
                Hop::End(mut answer) => {
                    answer.head_mut().took = took;
                    return Ok(answer);
                }
            }
        }
    }
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl Answer {
    fn head_mut(&mut self) -> &mut Head {
        match self {
            Self::Document(fetched) => &mut fetched.head,
            Self::NotModified(head) | Self::Refused(head) => head,
        }
    }
}

impl Inner {
    /// One request and its answer. What it takes is added to `took`.
    async fn hop(
        &self,
        request: &Request,
        trail: &Trail,
        left: Duration,
        took: &mut Duration,
    ) -> Result<Hop, FetchError> {
        let asked = Instant::now();
        let addresses = self.addresses(trail.current()).await;
        let lookup_took = asked.elapsed();
        *took += lookup_took;
        let addresses = addresses?;
        let _turns = self.turns(&addresses).await;
        let sent = Instant::now();
        let outcome = tokio::time::timeout(left.saturating_sub(lookup_took), async {
            let (response, conditional) = self.send(request, trail, addresses).await?;
            self.receive(response, conditional, request, trail).await
        })
        .await;
        *took += sent.elapsed();
        outcome.unwrap_or_else(|_| Err(self.limits.total_reached()))
    }

    /// The addresses that this hop may connect to. Through a proxy they are
    /// the proxy's to choose: a name that only the proxy can resolve is let
    /// through, one that resolves here to nothing public is not.
    async fn addresses(&self, url: &Url) -> Result<Arc<[SocketAddr]>, FetchError> {
        match self.resolver.addresses(url).await {
            Err(FetchError::Dns(_) | FetchError::Timeout(_)) if self.proxied => Ok(Arc::new([])),
            other => other,
        }
    }

    /// Turns at all addresses but those of `fetch.allow`, which are the
    /// operator's own machines.
    async fn turns(&self, addresses: &[SocketAddr]) -> Vec<Turn> {
        let counted: Vec<IpAddr> = addresses
            .iter()
            .filter(|&&addr| !self.guard.is_allowed(addr))
            .map(SocketAddr::ip)
            .collect();
        self.turns.take(counted).await
    }

    async fn send(
        &self,
        request: &Request,
        trail: &Trail,
        addresses: Arc<[SocketAddr]>,
    ) -> Result<(Response, bool), FetchError> {
        let url = trail.current();
        let mut sent = HeaderMap::new();
        if trail.is_at_home() {
            for (name, value) in &request.headers {
                let (name, value) =
                    headers::site_header(name, value).map_err(FetchError::Blocked)?;
                sent.append(name, value);
            }
        }
        let conditional =
            trail.is_first() && headers::add_conditions(&mut sent, &request.validators);
        let host = url.host_str().unwrap_or_default();
        let sending = self.client.get(url.clone()).headers(sent).send();
        let response = resolver::with_checked(host, addresses, sending)
            .await
            .map_err(|error| self.limits.explain(error))?;
        if !self.proxied
            && let Some(peer) = response.remote_addr()
        {
            self.guard.check_addr(peer)?;
        }
        Ok((response, conditional))
    }

    async fn receive(
        &self,
        response: Response,
        conditional: bool,
        request: &Request,
        trail: &Trail,
    ) -> Result<Hop, FetchError> {
        let status = response.status().as_u16();
        headers::check_transfer(response.headers()).map_err(FetchError::Protocol)?;
        let mut head = self.head(&response, trail);
        match status {
            304 if conditional => Ok(Hop::End(Answer::NotModified(head))),
            304 => {
                Err(FetchError::Protocol("status 304 to a request without validators".to_owned()))
            }
            301 | 302 | 303 | 307 | 308 => {
                let location = response.headers().get(reqwest::header::LOCATION).cloned();
                drain(response).await;
                let location = location.ok_or_else(|| redirect::without_location(status))?;
                Ok(Hop::Redirect { status, location })
            }
            206 => Err(FetchError::Protocol("status 206 to a request without a range".to_owned())),
            200..=299 => {
                let content_encoding = headers::content_encoding(response.headers());
                let (body, cut) = self.read(response, request.max_wire_bytes).await?;
                head.wire_bytes = body.len() as u64;
                Ok(Hop::End(Answer::Document(Fetched { head, content_encoding, body, cut })))
            }
            300.. => {
                head.wire_bytes = drain(response).await;
                Ok(Hop::End(Answer::Refused(head)))
            }
            _ => Err(FetchError::Protocol(format!("status {status} is no final answer"))),
        }
    }

    fn head(&self, response: &Response, trail: &Trail) -> Head {
        let got = response.headers();
        let now = self.clock.as_ref().map(|clock| clock());
        Head {
            status: response.status().as_u16(),
            final_url: trail.current().clone(),
            redirects: trail.followed().to_vec(),
            validators: if trail.is_first() {
                headers::validators(got)
            } else {
                Validators::default()
            },
            retry_after: headers::retry_after(got, now),
            max_age: headers::max_age(got, now),
            content_type: headers::content_type(got),
            links: headers::links(got),
            wire_bytes: 0,
            took: Duration::ZERO,
        }
    }

    /// Reads a body to its end or to the limit; then says that it was cut, and
    /// the connection is dropped with the rest unread.
    async fn read(
        &self,
        mut response: Response,
        max_wire_bytes: u64,
    ) -> Result<(Bytes, bool), FetchError> {
        let max = usize::try_from(max_wire_bytes).unwrap_or(usize::MAX);
        let mut body = Vec::new();
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok((Bytes::from(body), false)),
                Err(error) => return Err(self.limits.explain_body(error, body.len())),
            };
            let room = max - body.len();
            if chunk.len() > room {
                body.extend_from_slice(&chunk[..room]);
                return Ok((Bytes::from(body), true));
            }
            if body.is_empty() {
                let claimed = response.content_length().and_then(|n| usize::try_from(n).ok());
                body.reserve(
                    claimed.unwrap_or(0).clamp(chunk.len(), FIRST_RESERVE.max(chunk.len())),
                );
            }
            body.extend_from_slice(&chunk);
        }
    }
}

/// Reads the small body of an answer that is not a document, so that its
/// connection can be used again; a large or slow one is dropped. Says how much
/// was read.
async fn drain(mut response: Response) -> u64 {
    let mut read = 0;
    let reading = async {
        while read <= MAX_UNWANTED_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            read += chunk.len() as u64;
        }
    };
    // Too slow is as good as too large: the connection goes with the response.
    let _ = tokio::time::timeout(MAX_UNWANTED_TIME, reading).await;
    read
}

fn build_client(
    fetch: &config::Fetch,
    daemon: &config::Daemon,
    limits: &failure::Limits,
    lookup: Lookup,
) -> Result<Client, FetchSetupError> {
    let user_agent = HeaderValue::from_str(&daemon.user_agent)
        .map_err(|_| FetchSetupError::Header("daemon.user_agent"))?;
    let contact = match &daemon.contact {
        Some(contact) => Some(
            HeaderValue::from_str(contact)
                .map_err(|_| FetchSetupError::Header("daemon.contact"))?,
        ),
        None => None,
    };
    let proxy_host = fetch.proxy.as_ref().and_then(Url::host_str).map(str::to_owned);
    let mut builder = Client::builder()
        .default_headers(headers::defaults(user_agent, contact))
        // The environment's proxy would be a way around the guard.
        .no_proxy()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(limits.connect)
        .read_timeout(limits.read)
        .pool_max_idle_per_host(1)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http1_max_headers(MAX_HEADERS)
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
        .dns_resolver(CheckedOnly { proxy_host, lookup });
    if let Some(proxy) = &fetch.proxy {
        builder = builder.proxy(explicit_proxy(proxy)?);
    }
    if let Some(path) = &fetch.ca_file {
        builder = builder.tls_certs_merge(authorities(path)?);
    }
    builder.build().map_err(|error| FetchSetupError::Client(outside::error(&error)))
}

fn explicit_proxy(proxy: &Url) -> Result<Proxy, FetchSetupError> {
    if !matches!(proxy.scheme(), "http" | "https") {
        let scheme = proxy.scheme();
        return Err(FetchSetupError::Proxy(format!(
            "scheme {scheme} is not supported, only http and https are"
        )));
    }
    Proxy::all(proxy.clone())
        .map_err(|error| FetchSetupError::Proxy(outside::error(&error.without_url())))
}

fn authorities(path: &PathBuf) -> Result<Vec<Certificate>, FetchSetupError> {
    let failed = |cause: String| FetchSetupError::CaFile { path: path.clone(), cause };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let found =
        Certificate::from_pem_bundle(&pem).map_err(|error| failed(outside::error(&error)))?;
    if found.is_empty() {
        return Err(failed("holds no PEM certificate".to_owned()));
    }
    Ok(found)
}

impl From<Blocked> for FetchError {
    fn from(blocked: Blocked) -> Self {
        Self::Blocked(blocked.to_string())
    }
}
