//! Refuses what a route does not read: parameters in a query where it has none,
//! a body where it takes none.
//!
//! What was said and is passed over in silence is done otherwise than meant: the
//! wrong crawl is paused, or more is leased than was asked for. Which routes read
//! what, their description knows ([`super::openapi::Routes`]), so no route can be
//! added that does so. An empty body, and `{}`, say nothing and pass.

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::extract::{BODY_TIMEOUT, too_slow};
use super::problem::{Kind, Problem};
use super::wire::clip;

/// Routes that programs ask which add what they like: probes, scrapers.
pub(super) const TOLERANT: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// Bytes of a body that may still come to nothing.
const MOST: usize = 1 << 10;
/// Characters of a name from outside.
const NAME: usize = 40;

/// What a route does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unread {
    /// Has it no parameters in its query?
    pub(super) query: bool,
    /// Does it take no body?
    pub(super) body: bool,
}

impl Unread {
    /// Nothing is passed over.
    pub(super) const NOTHING: Self = Self { query: false, body: false };

    /// The problems that it is answered with.
    pub(super) fn problems(self) -> &'static [Kind] {
        match self {
            Self { body: true, .. } => {
                &[Kind::InvalidField, Kind::MalformedJson, Kind::RequestTimeout]
            }
            Self { query: true, .. } => &[Kind::InvalidField],
            Self { .. } => &[],
        }
    }
}

/// Middleware: lets a request through that says no more than the route reads.
pub(super) async fn refuse(unread: Unread, request: Request, next: Next) -> Response {
    match within(unread, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn within(unread: Unread, request: Request) -> Result<Request, Problem> {
    if unread.query
        && let Some(query) = request.uri().query()
        && let Some((name, _)) = url::form_urlencoded::parse(query.as_bytes()).next()
    {
        let instead = if unread.body { "" } else { " What it takes stands in its body." };
        return Err(Problem::field(format!(
            "In the query: `{}` is no parameter here; this route has none.{instead}",
            clip(name.into_owned(), NAME)
        )));
    }
    if !unread.body || request.body().is_end_stream() {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    if timeout(BODY_TIMEOUT, says_nothing(body)).await.map_err(|_| too_slow())?? {
        return Ok(Request::from_parts(parts, Body::empty()));
    }
    let instead = if unread.query { "" } else { " What it takes stands in its query." };
    Err(Problem::field(format!(
        "This route takes no body, and there is one: leave it out, or send {{}}.{instead}"
    )))
}

/// Is a body empty, or an object without fields?
async fn says_nothing(body: Body) -> Result<bool, Problem> {
    let mut said = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| {
            Problem::new(Kind::MalformedJson, "The connection broke within the body.")
        })?;
        if said.len() + chunk.len() > MOST {
            return Ok(false);
        }
        said.extend_from_slice(&chunk);
    }
    let inner = said.trim_ascii();
    let inner = inner.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")).unwrap_or(inner);
    Ok(inner.trim_ascii().is_empty())
}
