//! How the HTTP client is set up: from the config to a client that cannot do
//! what it must not.
//!
//! Off: redirects, retries, the environment's proxies, referers, cookies,
//! transparent decoding. What can go wrong here is the operator's config, and
//! the error names the key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Proxy};
use url::Url;

use super::resolver::{CheckedOnly, Lookup, system_lookup};
use super::{failure, headers, outside};
use crate::config;

/// Headers of one answer (HTTP/1.1). Their bytes are limited by hyper to about 400 KB.
pub const MAX_HEADERS: usize = 256;

/// What an origin may send on HTTP/2 before anybody has taken it, as a body does that
/// waits for room: as much as HTTP/1 leaves in our buffers and the system's. Twice of it
/// on a connection.
const STREAM_WINDOW: u32 = 512 * 1024;

/// Bytes of the headers of one answer (HTTP/2).
pub const MAX_HEADER_LIST_BYTES: u32 = 256 * 1024;

/// How long an idle connection is kept for the next request to its host. Below
/// the 5 seconds after which common servers close it, so that ours is closed first.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Where the fetcher gets names and the time from, and where it may write.
#[derive(Clone)]
pub struct Surroundings {
    /// Resolves host names. What it says is checked as DNS is.
    pub lookup: Lookup,
    /// The time, for a `Retry-After` or `Expires` date that comes without
    /// `Date`; without a clock such a date says nothing.
    pub clock: Option<Clock>,
    /// The folder for large bodies while they are read; each is a file without
    /// a name. It should be on a disk: where it is memory, they are in memory.
    pub spool: PathBuf,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { lookup: system_lookup(), clock: None, spool: std::env::temp_dir() }
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

/// The client, as configured, which keeps so many idle connections a host.
pub(super) fn client(
    fetch: &config::Fetch,
    daemon: &config::Daemon,
    limits: &failure::Limits,
    lookup: Lookup,
    idle: usize,
) -> Result<Client, FetchSetupError> {
    let user_agent = header("daemon.user_agent", &daemon.user_agent)?;
    let contact = match &daemon.contact {
        Some(contact) => Some(header("daemon.contact", contact)?),
        None => None,
    };
    let proxy_host = fetch.proxy.as_ref().and_then(Url::host_str).map(str::to_owned);
    let mut builder = super::tls::client()
        .default_headers(headers::defaults(user_agent, contact))
        // The environment's proxy would be a way around the guard.
        .no_proxy()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(limits.connect)
        .read_timeout(limits.read)
        .pool_max_idle_per_host(idle)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http1_max_headers(MAX_HEADERS)
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(2 * STREAM_WINDOW)
        .dns_resolver(CheckedOnly { proxy_host, lookup });
    if let Some(url) = &fetch.proxy {
        builder = builder.proxy(proxy(url)?);
    }
    if let Some(path) = &fetch.ca_file {
        builder = builder.tls_certs_merge(authorities(path)?);
    }
    builder.build().map_err(|error| FetchSetupError::Client(outside::error(&error)))
}

fn header(key: &'static str, value: &str) -> Result<HeaderValue, FetchSetupError> {
    HeaderValue::from_str(value).map_err(|_| FetchSetupError::Header(key))
}

fn proxy(url: &Url) -> Result<Proxy, FetchSetupError> {
    if !matches!(url.scheme(), "http" | "https") {
        let scheme = url.scheme();
        return Err(FetchSetupError::Proxy(format!(
            "scheme {scheme} is not supported, only http and https are"
        )));
    }
    Proxy::all(url.clone())
        .map_err(|error| FetchSetupError::Proxy(outside::error(&error.without_url())))
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, FetchSetupError> {
    let failed = |cause: String| FetchSetupError::CaFile { path: path.to_owned(), cause };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let found =
        Certificate::from_pem_bundle(&pem).map_err(|error| failed(outside::error(&error)))?;
    if found.is_empty() {
        return Err(failed("holds no PEM certificate".to_owned()));
    }
    Ok(found)
}
