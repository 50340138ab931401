//! Stands around every request: time limit, panics, counts, safe headers, and what
//! nobody reads of its body.
//!
//! Outermost of the middlewares, so that refusals and failures are counted
//! like answers and carry the same headers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;

use super::Context;
use super::problem::{Kind, Problem};
use super::rest::read_on;
use crate::queue::MAX_WAIT;

/// The policy of what is no page: nothing is loaded, run or framed.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";
/// Longest that a request is worked on: the longest long poll and then some.
pub(crate) const REQUEST_TIMEOUT: Duration = MAX_WAIT.saturating_add(Duration::from_secs(30));

/// Middleware: runs the request under a time limit, survives its panic, counts it.
pub(crate) async fn over(
    State(context): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let route = path.as_ref().map_or("other", MatchedPath::as_str);
    // A handler owns its request and shares only what is safe to find half
    // done (atomics, channels), so its panic leaves nothing broken behind.
    let working = AssertUnwindSafe(next.run(read_on(request))).catch_unwind();
    let mut response = match tokio::time::timeout(REQUEST_TIMEOUT, working).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!(%method, route, "request panicked");
            Problem::new(Kind::Internal, "The request met a bug in the daemon; its log says more.")
                .into_response()
        }
        Err(_) => Problem::new(
            Kind::Busy,
            format!("The request took longer than {} seconds.", REQUEST_TIMEOUT.as_secs()),
        )
        .into_response(),
    };
    debug_assert!(
        context.description.allows(&method, route, response.status().as_u16()),
        "{method} {route} answers {}, which its description does not know",
        response.status()
    );
    context.state.metrics.api_request(
        method.as_str(),
        route,
        response.status().as_u16(),
        began.elapsed(),
    );
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    // Where a browser shows an answer all the same, it does nothing with it.
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NOTHING));
    headers.entry(header::REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}
