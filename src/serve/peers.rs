//! The listener for the other daemons that share the store (`listen.internal`).
//!
//! One route, for who knows the secret that stands in the store. What is asked
//! there the store does (`src/store/orders.rs`); nothing here knows what it is.

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;

use crate::store::Store;
use crate::store::peers::PATH;

/// Bytes of an order at most: a chunk of effects with all texts of its entries.
const MAX_ORDER: usize = 256 << 20;

/// The route.
pub(super) fn router(store: Store) -> Router {
    Router::new().route(PATH, post(order)).with_state(store)
}

async fn order(State(store): State<Store>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let secret = head
        .headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    // Before anything of it is read.
    if !store.is_peer(secret) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(order) = to_bytes(body, MAX_ORDER).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    // Done to its end, whether or not who asked still waits.
    let done = tokio::spawn(async move { store.serve_peer(&order).await });
    match done.await {
        Ok(answer) => ([(CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(error) => {
            tracing::error!(%error, "an order of another daemon failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
