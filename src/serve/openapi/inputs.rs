//! What each extractor reads, as the description has it.

use axum::extract::State;
use axum::http::Method;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{Input, Operation};
use crate::serve::extract::{Params, Payload, RowId, Segment};
use crate::serve::problem::Kind;
use crate::serve::wire::PUBLIC_URL_CHARS;

impl<S> Input for State<S> {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T: JsonSchema, const LIMIT: usize> Input for Payload<T, LIMIT> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.read::<T>();
        // An empty body reads as `{}`.
        let whole = operation.resolved(&schema);
        let required = whole.get("required").is_some();
        let content = json!({ "application/json": { "schema": schema } });
        operation.body = Some(json!({ "required": required, "content": content }));
        operation.may(&[
            Kind::MalformedJson,
            Kind::InvalidField,
            Kind::LimitExceeded,
            Kind::RequestTimeout,
            Kind::BodyTooLarge,
            Kind::UnsupportedMediaType,
        ]);
    }
}

impl<T: JsonSchema> Input for Params<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.requests.root_schema_for::<T>().to_value();
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name))
        };
        for (name, of_it) in schema["properties"].as_object().into_iter().flatten() {
            let (of_it, about) = parameter(of_it.clone());
            let mut told =
                json!({ "name": name, "in": "query", "required": required(name), "schema": of_it });
            if let Some(about) = about {
                told["description"] = about;
            }
            operation.parameters.push(told);
        }
        operation.may(&[Kind::InvalidField, Kind::LimitExceeded]);
    }
}

impl Input for Segment {
    fn describe(operation: &mut Operation<'_>) {
        operation.in_path(&json!({ "type": "string", "minLength": 1 }));
        operation.may(&[Kind::InvalidField, Kind::NotFound]);
    }
}

impl Input for RowId {
    fn describe(operation: &mut Operation<'_>) {
        operation.in_path(&json!({ "type": "integer", "format": "int64", "minimum": 0 }));
        operation.may(&[Kind::InvalidField, Kind::NotFound]);
    }
}

impl Operation<'_> {
    /// The one parameter of the path.
    pub(in crate::serve) fn in_path(&mut self, schema: &Value) {
        let name = self.path.split(['{', '}']).nth(1).unwrap_or_default();
        let told = json!({ "name": name, "in": "path", "required": true, "schema": schema });
        self.parameters.push(told);
    }

    /// A parameter of the query; a POST may have it in a form instead.
    pub(in crate::serve) fn in_query_or_form(&mut self, name: &str, about: &str) {
        let is_post = self.method == Method::POST;
        let schema = json!({ "type": "string", "maxLength": PUBLIC_URL_CHARS });
        let told = json!({ "name": name, "in": "query", "required": !is_post,
            "description": about, "schema": schema });
        self.parameters.push(told);
        if is_post {
            let form = json!({ "type": "object", "properties": { name: schema } });
            let content = json!({ "application/x-www-form-urlencoded": { "schema": form } });
            self.body = Some(json!({ "required": false, "content": content }));
        }
    }

    /// A form with these fields.
    pub(in crate::serve) fn in_form<T: JsonSchema>(&mut self) {
        let schema = self.read::<T>();
        let content = json!({ "application/x-www-form-urlencoded": { "schema": schema } });
        self.body = Some(json!({ "required": true, "content": content }));
        self.may(&[
            Kind::MalformedJson,
            Kind::InvalidField,
            Kind::LimitExceeded,
            Kind::RequestTimeout,
            Kind::BodyTooLarge,
        ]);
    }

    /// A body of any type, or of none that is told.
    pub(in crate::serve) fn in_any_body(&mut self) {
        self.body = Some(json!({ "required": true, "content": { "*/*": {} } }));
    }

    /// A parameter of the query that may be left out.
    pub(in crate::serve) fn in_query(&mut self, name: &str, about: &str) {
        let schema = json!({ "type": "string" });
        let told = json!({ "name": name, "in": "query", "required": false,
            "description": about, "schema": schema });
        self.parameters.push(told);
    }

    /// What a header says, where it is there.
    pub(in crate::serve) fn in_header(&mut self, name: &str, about: &str) {
        let schema = json!({ "type": "string" });
        self.parameters
            .push(json!({ "name": name, "in": "header", "description": about, "schema": schema }));
    }

    /// A schema, or what it refers to.
    fn resolved(&self, schema: &Value) -> Value {
        let name = schema["$ref"].as_str().and_then(|at| at.rsplit('/').next());
        let known = name.and_then(|name| self.requests.definitions().get(name));
        known.unwrap_or(schema).clone()
    }
}

/// A query has no null, and what is told of a field belongs to the parameter.
fn parameter(mut schema: Value) -> (Value, Option<Value>) {
    let about = schema.as_object_mut().and_then(|fields| fields.remove("description"));
    if let Some(types) = schema["type"].as_array() {
        schema["type"] = types[0].clone();
    }
    if let Some(Value::Array(choices)) = schema.as_object_mut().and_then(|f| f.remove("anyOf")) {
        return (choices.into_iter().next().unwrap_or_default(), about);
    }
    (schema, about)
}
