//! Errors as the API says them: RFC 9457 `application/problem+json`.
//!
//! Every answer that is not a success carries one of the types below. `type`
//! is a stable `urn:sitemapd:problem:<word>` to branch on, `title` belongs to
//! the type, and `detail` is a sentence for the person who reads it, which may
//! change. The one mapping from [`StoreError`] to an answer is here.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::store::StoreError;

/// Before the word of each kind. A name, not an address: it must stay the same
/// wherever the daemon is reached.
const URI: &str = "urn:sitemapd:problem:";
/// What a problem is written in.
const MEDIA_TYPE: &str = "application/problem+json";
/// Characters of a `detail`; what a client sent may be quoted in it.
const MAX_DETAIL: usize = 600;

/// What went wrong, as far as a client may branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The body is not JSON.
    MalformedJson,
    /// A field or parameter is missing, unknown, or has a value that cannot be.
    InvalidField,
    /// A number is over a limit of the API; the detail names it.
    LimitExceeded,
    /// No token, or a wrong one.
    Unauthorized,
    /// The request comes from a page of another origin.
    ForeignOrigin,
    /// The `Host` is none of ours: a rebound name, or a proxy that passes its own.
    ForeignHost,
    /// The thing asked for is not there.
    NotFound,
    /// It was there, but is kept no longer.
    Gone,
    /// The path is none of the API.
    NoSuchRoute,
    /// The path exists, but not with this method.
    MethodNotAllowed,
    /// The body did not come in time.
    RequestTimeout,
    /// What was asked for cannot be, as things stand.
    Refused,
    /// The body has too many bytes.
    BodyTooLarge,
    /// The body is not `application/json`, or is compressed.
    UnsupportedMediaType,
    /// The key of a push is not that of its host.
    InvalidKey,
    /// URLs of a push are not of its host, or its key cannot be one.
    NotOfHost,
    /// The client, or the host that it speaks of, has had its share for now.
    TooMany,
    /// A bug, or a damaged store.
    Internal,
    /// Try again soon.
    Busy,
    /// The daemon is starting or stopping.
    Unavailable,
    /// Writes are refused until there is space again; reads work.
    StorageFull,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 21] = [
        Self::MalformedJson,
        Self::InvalidField,
        Self::LimitExceeded,
        Self::Unauthorized,
        Self::ForeignOrigin,
        Self::ForeignHost,
        Self::NotFound,
        Self::Gone,
        Self::NoSuchRoute,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::Refused,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidKey,
        Self::NotOfHost,
        Self::TooMany,
        Self::Internal,
        Self::Busy,
        Self::Unavailable,
        Self::StorageFull,
    ];

    /// The last word of the stable URI, the title and the HTTP status.
    fn facts(self) -> (&'static str, &'static str, u16) {
        match self {
            Self::MalformedJson => ("malformed-json", "The body is not valid JSON", 400),
            Self::InvalidField => ("invalid-field", "A field has no usable value", 400),
            Self::LimitExceeded => ("limit-exceeded", "Over a limit of the API", 400),
            Self::Unauthorized => ("unauthorized", "A bearer token is needed", 401),
            Self::ForeignOrigin => ("foreign-origin", "Sent by a page of another origin", 403),
            Self::NotFound => ("not-found", "Not found", 404),
            Self::Gone => ("gone", "Not kept any more", 410),
            Self::NoSuchRoute => ("no-such-route", "No such route", 404),
            Self::MethodNotAllowed => ("method-not-allowed", "Method not allowed", 405),
            Self::RequestTimeout => ("request-timeout", "The body did not come in time", 408),
            Self::Refused => ("refused", "Not possible as things stand", 409),
            Self::BodyTooLarge => ("body-too-large", "The body is too large", 413),
            Self::UnsupportedMediaType => {
                ("unsupported-media-type", "The body must be plain JSON", 415)
            }
            Self::InvalidKey => ("invalid-key", "The key is not that of the host", 403),
            Self::NotOfHost => ("not-of-host", "Not of this host, or no possible key", 422),
            Self::TooMany => ("too-many-requests", "Too many requests", 429),
            Self::ForeignHost => ("foreign-host", "The Host header names another server", 421),
            Self::Internal => ("internal", "The daemon failed", 500),
            Self::Busy => ("busy", "Busy, try again", 503),
            Self::Unavailable => ("unavailable", "The daemon is not ready", 503),
            Self::StorageFull => ("storage-full", "No space left on the disk", 503),
        }
    }

    /// The HTTP status of its answers.
    pub(crate) fn status(self) -> u16 {
        self.facts().2
    }

    /// Seconds after which a client may try the same again.
    fn retry_after(self) -> Option<u16> {
        match self {
            Self::Busy => Some(1),
            Self::Unavailable => Some(5),
            Self::StorageFull | Self::TooMany => Some(60),
            _ => None,
        }
    }
}

/// One error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    /// Seconds, where it is known better than by the kind.
    retry_after: Option<u64>,
}

/// The members of RFC 9457 section 3.1.
#[derive(Serialize)]
pub(crate) struct Members<'a> {
    #[serde(rename = "type")]
    uri: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
}

impl JsonSchema for Members<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Problem".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let uris = Kind::ALL.map(|kind| format!("{URI}{}", kind.facts().0));
        json_schema!({
            "type": "object",
            "description": "What went wrong (RFC 9457).",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": { "type": "string", "enum": uris, "description": "To branch on; stable." },
                "title": { "type": "string", "description": "Belongs to the type." },
                "status": {
                    "type": "integer", "minimum": 400, "maximum": 599,
                    "description": "The HTTP status of the answer.",
                },
                "detail": { "type": "string", "description": "For a person; may change." },
            },
        })
    }
}

/// How the problems of one status are described; `members` is their schema.
pub(crate) fn described(status: u16, members: &Schema) -> Value {
    let kinds = || Kind::ALL.into_iter().filter(move |kind| kind.status() == status);
    let titles: Vec<_> = kinds().map(|kind| format!("{}.", kind.facts().1)).collect();
    let whole = json!({ "type": "integer", "minimum": 0 });
    let mut headers = Map::new();
    if kinds().any(|kind| kind.retry_after().is_some()) {
        let about = "Seconds after which the same may be tried again.";
        headers.insert("Retry-After".to_owned(), json!({ "description": about, "schema": whole }));
    }
    json!({
        "description": titles.join(" "),
        "headers": headers,
        "content": { MEDIA_TYPE: { "schema": members } },
    })
}

impl Problem {
    /// A problem of this kind, with a sentence that helps; cut at 600 characters.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if let Some((at, _)) = detail.char_indices().nth(MAX_DETAIL) {
            detail.truncate(at);
            detail.push('…');
        }
        Self { kind, detail, retry_after: None }
    }

    /// Come again after `wait`.
    pub(crate) fn too_many(wait: Duration, detail: impl Into<String>) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { retry_after: Some(seconds.max(1)), ..Self::new(Kind::TooMany, detail) }
    }

    /// A field or parameter has a value that cannot be.
    pub(crate) fn field(detail: impl Into<String>) -> Self {
        Self::new(Kind::InvalidField, detail)
    }

    /// A number is over a limit, which the detail names.
    pub(crate) fn limit(detail: impl Into<String>) -> Self {
        Self::new(Kind::LimitExceeded, detail)
    }

    /// What a client may branch on.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// What its kind is called.
    pub(crate) fn title(&self) -> &'static str {
        self.kind.facts().1
    }

    /// The sentence.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => {
                Self::new(Kind::Unavailable, "The daemon is stopping; its store is closed.")
            }
            StoreError::Busy => Self::new(
                Kind::Busy,
                "Another process holds the database; nothing was changed, try again.",
            ),
            StoreError::Away(why) => {
                tracing::warn!(error = why.escape_debug().to_string(), "the database is away");
                Self::new(
                    Kind::Unavailable,
                    "The database server is away. What was asked for may have been done or \
                     not; ask again.",
                )
            }
            StoreError::Unreached(why) => {
                let error = why.escape_debug().to_string();
                tracing::warn!(error, "another daemon of the store is not reached");
                Self::new(
                    Kind::Unavailable,
                    "The daemon that has that part of the store does not answer. What was asked \
                     for may have been done or not; ask again.",
                )
            }
            StoreError::Full => Self::new(
                Kind::StorageFull,
                "The disk is full; nothing was changed. Reads still work.",
            ),
            StoreError::Failed(cause) => {
                tracing::error!(error = cause.escape_debug().to_string(), "store failed");
                Self::new(
                    Kind::Internal,
                    "The disk failed, and the daemon ends. Whether this was kept, it knows when \
                     it has started again.",
                )
            }
            StoreError::Elsewhere => Self::new(
                Kind::Unavailable,
                "Another daemon is about to have that part of the store.",
            ),
            StoreError::NotFound(detail) => Self::new(Kind::NotFound, detail),
            StoreError::Gone(detail) => Self::new(Kind::Gone, detail),
            StoreError::Refused(detail) | StoreError::Misconfigured(detail) => {
                Self::new(Kind::Refused, detail)
            }
            StoreError::Unusable(cause) | StoreError::Engine(cause) => {
                tracing::error!(error = cause.escape_debug().to_string(), "store failed");
                Self::new(
                    Kind::Internal,
                    "The database failed; nothing was changed. The daemon's log says more.",
                )
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (word, title, status) = self.kind.facts();
        let uri = format!("{URI}{word}");
        let mut response =
            Json(Members { uri, title, status, detail: &self.detail }).into_response();
        // Every status of the table is one; a test goes through them.
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(seconds) = self.retry_after.or(self.kind.retry_after().map(u64::from)) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == Kind::Unauthorized {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"sitemapd\""),
            );
        }
        // For who shows it otherwise: the pages do.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_has_a_type_of_its_own_and_an_error_status() {
        let words: HashSet<_> = Kind::ALL.iter().map(|kind| kind.facts().0).collect();
        assert_eq!(words.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            let (word, title, status) = kind.facts();
            assert!(word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{word}");
            assert!(!title.is_empty(), "{word}");
            let response = Problem::new(kind, "why").into_response();
            assert_eq!(response.status().as_u16(), status, "{word}");
            assert!(response.status().is_client_error() || response.status().is_server_error());
        }
    }

    #[test]
    fn each_failure_of_the_store_has_the_answer_its_caller_can_act_on() {
        let text = || "x".to_owned();
        let table = [
            (StoreError::Closed, Kind::Unavailable, 503),
            (StoreError::Busy, Kind::Busy, 503),
            (StoreError::Away(text()), Kind::Unavailable, 503),
            (StoreError::Unreached(text()), Kind::Unavailable, 503),
            (StoreError::Elsewhere, Kind::Unavailable, 503),
            (StoreError::Full, Kind::StorageFull, 503),
            (StoreError::NotFound(text()), Kind::NotFound, 404),
            (StoreError::Gone(text()), Kind::Gone, 410),
            (StoreError::Refused(text()), Kind::Refused, 409),
            (StoreError::Misconfigured(text()), Kind::Refused, 409),
            (StoreError::Unusable(text()), Kind::Internal, 500),
            (StoreError::Failed(text()), Kind::Internal, 500),
            (StoreError::Engine(text()), Kind::Internal, 500),
        ];
        for (error, kind, status) in table {
            let shown = error.to_string();
            let problem = Problem::from(error);
            assert_eq!(problem.kind(), kind, "{shown}");
            let response = problem.into_response();
            assert_eq!(response.status().as_u16(), status, "{shown}");
            let retries = response.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(retries, status == 503, "{shown}");
        }
    }

    #[test]
    fn what_the_engine_said_stays_in_the_log() {
        let problem = Problem::from(StoreError::Engine("near \"SELEC\"".to_owned()));
        assert!(!problem.detail().contains("SELEC"));
    }

    #[test]
    fn a_problem_says_its_own_content_type_and_whom_to_ask_for_a_token() {
        let response = Problem::new(Kind::Unauthorized, "no token").into_response();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer realm=\"sitemapd\"");
    }

    #[test]
    fn a_detail_that_quotes_a_long_request_is_cut_between_characters() {
        let problem = Problem::field("é".repeat(5_000));
        assert_eq!(problem.detail().chars().count(), MAX_DETAIL + 1);
    }
}
