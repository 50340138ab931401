//! The listener for the other daemons that share the store (`listen.internal`).
//!
//! One route, for who knows the secret that stands in the store. What is asked
//! there the store does (`src/store/orders.rs`); nothing here knows what it is.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;

use crate::store::Store;
use crate::store::peers::PATH;

/// Bytes of an order at most: a chunk of effects with all texts of its entries.
const MAX_ORDER: usize = 256 << 20;

/// The route.
pub(super) fn router(store: Store) -> Router {
    Router::new().route(PATH, post(order)).layer(DefaultBodyLimit::max(MAX_ORDER)).with_state(store)
}

async fn order(State(store): State<Store>, headers: HeaderMap, body: Bytes) -> Response {
    let secret = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .unwrap_or_default();
    // Done to its end, whether or not who asked still waits.
    let (secret, store) = (secret.to_owned(), store.clone());
    let done = tokio::spawn(async move { store.serve_peer(&secret, &body).await });
    match done.await {
        Ok(Some(answer)) => ([(CONTENT_TYPE, "application/json")], answer).into_response(),
        Ok(None) => StatusCode::UNAUTHORIZED.into_response(),
        Err(error) => {
            tracing::error!(%error, "an order of another daemon failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
