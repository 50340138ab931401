//! From a failure of the HTTP client to what the poll loop does next.
//!
//! Every text names the limit that was hit, shows outside text escaped and
//! short, and never a URL: the client's own texts repeat it, userinfo and all.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use super::resolver::NotChecked;
use super::setup::MAX_HEADERS;
use super::{FetchError, outside};

/// The limits on time that errors name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) read: Duration,
    pub(super) total: Duration,
}

impl Limits {
    /// The error for a request that was not done in time.
    pub(super) fn total_reached(&self) -> FetchError {
        FetchError::Timeout(format!("not done within fetch.total_timeout ({:?})", self.total))
    }

    /// What a failure to send, or to get the headers, means.
    pub(super) fn explain(&self, error: reqwest::Error) -> FetchError {
        let error = error.without_url();
        if cause::<NotChecked>(&error).is_some() {
            return FetchError::Blocked(outside::error(&error));
        }
        if error.is_timeout() && error.is_connect() {
            return FetchError::Timeout(format!(
                "no connection within fetch.connect_timeout ({:?})",
                self.connect
            ));
        }
        if error.is_timeout() {
            return FetchError::Timeout(format!(
                "no answer within {:?}, see fetch.total_timeout",
                self.read
            ));
        }
        if error.is_dns() {
            return FetchError::Dns(reason(&error));
        }
        if error.is_connect() {
            return FetchError::Connect(reason(&error));
        }
        if cause::<hyper::Error>(&error).is_some_and(hyper::Error::is_parse_too_large) {
            return FetchError::Protocol(format!(
                "headers too large (at most {MAX_HEADERS} headers and about 400 KB are read)"
            ));
        }
        FetchError::Protocol(reason(&error))
    }

    /// What a failure in the middle of a body means.
    pub(super) fn explain_body(&self, error: reqwest::Error, read: usize) -> FetchError {
        if error.is_timeout() {
            return FetchError::Timeout(format!(
                "incomplete body: nothing more for {:?} after {read} bytes",
                self.read
            ));
        }
        let shown = reason(&error.without_url());
        FetchError::Protocol(format!("incomplete body after {read} bytes: {shown}"))
    }
}

/// Did the connection end before a byte of the answer came? On one that was
/// idle before, this means that the origin had closed it meanwhile.
pub(super) fn is_stale_connection(error: &reqwest::Error) -> bool {
    if error.is_connect() || error.is_timeout() {
        return false;
    }
    let is_gone = |kind: ErrorKind| {
        matches!(
            kind,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
        )
    };
    cause::<hyper::Error>(error).is_some_and(|e| e.is_incomplete_message() || e.is_canceled())
        || cause::<std::io::Error>(error).is_some_and(|e| is_gone(e.kind()))
}

/// The error without the wrappers that only say where in the client it arose.
fn reason(error: &reqwest::Error) -> String {
    let mut inner: &(dyn Error + 'static) = error;
    while let Some(next) = inner.source()
        && (inner.is::<reqwest::Error>() || inner.to_string().starts_with("client error ("))
    {
        inner = next;
    }
    outside::error(inner)
}

/// The first cause of this type.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = error.source();
    while let Some(inner) = next {
        if let Some(found) = inner.downcast_ref() {
            return Some(found);
        }
        next = inner.source();
    }
    None
}
