//! What each kind of answer is, as the description has it.

use axum::Json;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, NoContent, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{Operation, Output};
use crate::metrics::Format;
use crate::serve::problem::{Kind, Problem};

/// The description itself.
pub(in crate::serve) struct OpenApi(pub(in crate::serve) Bytes);
/// A style sheet.
pub(in crate::serve) struct Css(pub(in crate::serve) &'static str);
/// A page, with a policy of what it may load.
pub(in crate::serve) struct Html {
    pub(in crate::serve) text: String,
    pub(in crate::serve) policy: &'static str,
}
/// Metrics in one of their text formats.
pub(in crate::serve) struct Exposition {
    pub(in crate::serve) text: String,
    pub(in crate::serve) format: Format,
}

const JSON: &str = "application/json";
const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

impl<T: Output> Output for Result<T, Problem> {
    fn describe(operation: &mut Operation<'_>) {
        operation.may(&[Kind::StorageFull]);
        T::describe(operation);
    }
}

impl<T: JsonSchema> Output for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.written::<T>();
        operation.success.2 = media(&[(JSON, schema)]);
    }
}

impl Output for NoContent {
    fn describe(operation: &mut Operation<'_>) {
        operation.success = (204, "Done.", Map::new());
    }
}

impl Output for OpenApi {
    fn describe(operation: &mut Operation<'_>) {
        operation.success.2 =
            media(&[(JSON, json!({ "type": "object", "additionalProperties": true }))]);
    }
}

impl Output for Css {
    fn describe(operation: &mut Operation<'_>) {
        operation.success.2 = media(&[(CSS, text())]);
    }
}

impl Output for Html {
    fn describe(operation: &mut Operation<'_>) {
        operation.success.2 = media(&[(HTML, text())]);
    }
}

impl Output for Exposition {
    fn describe(operation: &mut Operation<'_>) {
        let formats = [Format::OpenMetrics, Format::Plain];
        operation.success.2 = media(&formats.map(|format| (format.content_type(), text())));
    }
}

impl Operation<'_> {
    /// It answers with this status and nothing else.
    pub(in crate::serve) fn answers_nothing(&mut self, status: u16, means: &'static str) {
        self.success = (status, means, Map::new());
    }

    /// It answers so, in one of these media types.
    pub(in crate::serve) fn answers(&mut self, content: Map<String, Value>) {
        self.success.2 = content;
    }
}

/// Whoever asks for a page has this answer as one.
pub(super) fn also_as_page(told: &mut Value) {
    if let Some(content) = told.get_mut("content").and_then(Value::as_object_mut) {
        content.extend(media(&[(HTML, text())]));
    }
}

/// The content of an answer, by media type.
pub(in crate::serve) fn media(types: &[(&str, Value)]) -> Map<String, Value> {
    types.iter().map(|(name, of_it)| ((*name).to_owned(), json!({ "schema": of_it }))).collect()
}

fn text() -> Value {
    json!({ "type": "string" })
}

impl IntoResponse for OpenApi {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, JSON)], self.0).into_response()
    }
}

impl IntoResponse for Css {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, CSS)], self.0).into_response()
    }
}

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        let headers: [(HeaderName, &str); 3] = [
            (header::CONTENT_TYPE, HTML),
            (header::CONTENT_SECURITY_POLICY, self.policy),
            // Without, forms would not say whose page they are of.
            (header::REFERRER_POLICY, "same-origin"),
        ];
        (headers, self.text).into_response()
    }
}

impl IntoResponse for Exposition {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, self.format.content_type())], self.text).into_response()
    }
}
