//! The one door to the network: one polite, bounded, guarded request at a time.
//!
//! Nothing else in the program opens an outbound HTTP connection. Redirects
//! are followed by hand, each hop through the same gate; bodies are bounded on
//! the wire and, in [`body`], while they are decoded.

pub mod api;
pub mod body;
pub mod client;
mod failure;
pub mod guard;
pub mod headers;
mod outside;
pub mod peers;
mod redirect;
pub mod resolver;
mod room;
pub mod setup;
pub mod spool;
pub mod tls;
mod turns;
mod warm;
mod wire;

use std::time::Duration;

use jiff::Timestamp;
use url::Url;

pub use client::{Fetcher, Form, Told};
pub use guard::{Blocked, Guard};
pub use setup::{FetchSetupError, Surroundings};
pub use spool::WireBody;

/// Validators exactly as an origin sent them (RFC 9110 section 8.8).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`, verbatim, `W/` included.
    pub etag: Option<String>,
    /// `Last-Modified`, verbatim.
    pub last_modified: Option<String>,
}

/// One document wanted.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where it is.
    pub url: Url,
    /// Sent with the first hop only, never across a redirect.
    pub validators: Validators,
    /// The hash of the bytes that came last time ([`WireBody::hash`]), if it is enough
    /// to hear that they are the same.
    pub known: Option<u128>,
    /// Further headers of the site; never sent to another authority.
    pub headers: Vec<(String, String)>,
    /// Limit on the bytes of the body as they come over the wire.
    pub max_wire_bytes: u64,
    /// Limit on redirects followed.
    pub max_redirects: u32,
}

/// What came of a request, when an origin answered it properly.
#[derive(Debug)]
pub enum Answer {
    /// 2xx with a body.
    Document(Fetched),
    /// 2xx with the body that is known.
    Same(Head),
    /// 304 to our validators.
    NotModified(Head),
    /// Any other status: 404, 410, 403, 429, 503, …
    Refused(Head),
}

/// What every answer carries.
#[derive(Debug, Clone)]
pub struct Head {
    /// Status of the last hop.
    pub status: u16,
    /// URL of the last hop.
    pub final_url: Url,
    /// Each redirect followed: from where, and with which status.
    pub redirects: Vec<(Url, u16)>,
    /// Validators of the last hop; kept only when there was no redirect.
    pub validators: Validators,
    /// `Retry-After`, as a delay from when the answer came.
    pub retry_after: Option<Duration>,
    /// How long the answer is fresh, says `Cache-Control: max-age` or `Expires`.
    pub max_age: Option<Duration>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Link` headers, verbatim.
    pub links: Vec<String>,
    /// Bytes of the body read over the wire.
    pub wire_bytes: u64,
    /// Time from the first byte sent to the last byte read, all hops.
    pub took: Duration,
}

/// A body as it came over the wire, with what is needed to decode it.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// What every answer carries.
    pub head: Head,
    /// `Content-Encoding`, in the order applied by the origin, lower-case.
    pub content_encoding: Vec<String>,
    /// The body, not decoded, at most `max_wire_bytes` long.
    pub body: WireBody,
    /// Was the body longer than `max_wire_bytes` and cut there?
    pub cut: bool,
}

/// Asked before every hop: may this URL be fetched, and not before when?
///
/// The poll loop answers from robots.txt and the host clock; it waits until
/// the host may be asked.
pub trait Gate: Send + Sync {
    /// Asked first: returns when the host is free for this request, or why it may
    /// not be asked. Nothing is held meanwhile, neither a connection nor a place
    /// in the line at an address: a robots.txt may be fetched for it.
    fn approach(&self, _url: &Url) -> impl Future<Output = Result<(), Refusal>> + Send {
        async { Ok(()) }
    }

    /// Asked once the name is looked up: returns when the request may be sent, if it
    /// has a turn at its address by then.
    fn admit(&self, url: &Url) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Asked once it has that turn, before it is sent: returns within a moment. Where
    /// its time has passed, and the next one is not near, it gives the turn up and asks
    /// to be admitted again, if this is not the `last` time.
    fn is_on_time(
        &self,
        _url: &Url,
        _last: bool,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send {
        async { Ok(true) }
    }

    /// Told instead where it has no turn: what was admitted is not sent.
    fn give_back(&self, _url: &Url) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Was another place asked right before this one? Who comes back is led through
    /// that again, and so waits longer rather.
    fn is_led(&self) -> bool {
        false
    }
}

/// What a request that is put off waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Its host: its clock, its pause, or others of ours that ask it.
    Host,
    /// A turn at its address.
    Address,
    /// A turn to look up its name.
    Lookup,
    /// A robots.txt that has not been read.
    Robots,
    /// Room for what it is answered with, beside other large documents.
    Room,
    /// Another day: redirects of its site have led to many hosts that nobody knew.
    NewHosts,
    /// This machine, which could not keep what it was answered with.
    Keeping,
}

impl Wait {
    /// A word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Address => "address",
            Self::Lookup => "lookup",
            Self::Robots => "robots",
            Self::Room => "room",
            Self::NewHosts => "new-hosts",
            Self::Keeping => "keeping",
        }
    }

    /// What people are told.
    pub fn why(self) -> &'static str {
        match self {
            Self::Host => "its host is to be left alone until then",
            Self::Address => "many other requests wait for the same address",
            Self::Lookup => "many other names wait to be looked up",
            Self::Robots => "the robots.txt of its host has not been read yet",
            Self::Room => "many other large documents take the room that there is for them",
            Self::NewHosts => "redirects of its site have led to many new hosts within a day",
            Self::Keeping => "this machine could not keep what it was answered with",
        }
    }
}

/// Why a gate refuses a hop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// robots.txt forbids it.
    #[error("robots.txt of {authority} forbids it")]
    Robots {
        /// Scheme, host and port that refuse us.
        authority: String,
    },
    /// robots.txt cannot be read, so nothing is allowed.
    #[error("robots.txt of {authority} is unreachable: nothing is allowed there until it answers")]
    Unreadable {
        /// Scheme, host and port of that robots.txt.
        authority: String,
    },
    /// What it waits for is further off than a poll waits.
    #[error("{}; it is to be asked again at {until}", .wait.why())]
    Later {
        /// When it may be asked again.
        until: Timestamp,
        /// What for.
        wait: Wait,
    },
    /// Too many requests of ours wait before this one, for the same address, to look up
    /// a name, or for room.
    #[error("{}; it is to be asked again after {pause:?}", .wait.why())]
    Crowded {
        /// After how long it may be asked again.
        pause: Duration,
        /// What for.
        wait: Wait,
    },
}

/// Why no proper answer came. The variants are what the poll loop does next.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Ours to decide: the guard does not let us, or a site's header may not be sent.
    #[error("blocked: {0}")]
    Blocked(String),
    /// The gate refuses: robots.txt forbids it, or we must come back later.
    #[error("{0}")]
    Deferred(#[from] Refusal),
    /// The name does not resolve.
    #[error("dns: {0}")]
    Dns(String),
    /// No connection, or not a secure one.
    #[error("connect: {0}")]
    Connect(String),
    /// A limit on time was reached; the text names it.
    #[error("timeout: {0}")]
    Timeout(String),
    /// The answer broke the protocol, or the connection broke before its end.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The answer could not be kept on this machine while it was read.
    #[error("not kept: {0}")]
    NotKept(String),
    /// More redirects than allowed, or a loop of them.
    #[error("redirects: {0}")]
    Redirects(String),
}

impl From<Blocked> for FetchError {
    fn from(blocked: Blocked) -> Self {
        Self::Blocked(blocked.to_string())
    }
}
