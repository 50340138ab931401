//! The API's description of itself, OpenAPI 3.1, at `/openapi.json`.
//!
//! Nothing of it is written twice: a route can only be added through
//! [`Routes`], which asks the types of its handler what they read and answer
//! (`inputs`, `outputs`), and the schemas come from the types that are
//! (de)serialised; what they do not read is refused (`unread`). What types cannot
//! tell, which problems a route may answer beyond those of its parts, is said with
//! the route, and `watch` holds every answer of a debug build against it.

mod inputs;
mod outputs;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn;
use axum::routing::{self, MethodRouter};
use bytes::Bytes;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::Context;
use super::problem::{Kind, Members, described};
use super::unread::{self, TOLERANT, Unread};
pub(super) use outputs::{Css, Exposition, Html, OpenApi, media};

/// Where the description keeps its schemas.
const SCHEMAS: &str = "/components/schemas";
/// What any route may answer with: the gate, a stop, a bug, a store that fails.
const ALWAYS: [Kind; 3] = [Kind::Internal, Kind::Busy, Kind::Unavailable];

/// What a handler takes.
pub(crate) trait Input {
    /// Adds it to the description of an operation.
    fn describe(operation: &mut Operation<'_>);
}

/// What a handler answers.
pub(crate) trait Output {
    /// Adds it to the description of an operation.
    fn describe(operation: &mut Operation<'_>);
}

/// A handler whose types tell what it reads and answers.
pub(crate) trait Described<Inputs> {
    /// Asks them.
    fn describe(operation: &mut Operation<'_>);
}

/// A method of a path, on its way into the description.
pub(crate) struct Operation<'a> {
    method: Method,
    path: &'static str,
    /// Is it for people with a browser, who are told of problems by pages?
    is_page: bool,
    parameters: Vec<Value>,
    body: Option<Value>,
    /// The status of success, what it means, and the content by media type.
    success: (u16, &'static str, Map<String, Value>),
    /// Another status with the same content.
    further: Option<(u16, &'static str)>,
    kinds: Vec<Kind>,
    requests: &'a mut SchemaGenerator,
    answers: &'a mut SchemaGenerator,
}

/// The routes of the API, and what is told of them.
pub(super) struct Routes {
    router: Router<Arc<Context>>,
    /// For anybody: no token, no origin, and a share for each client.
    is_public: bool,
    group: &'static str,
    groups: Vec<Value>,
    paths: Map<String, Value>,
    statuses: HashMap<(Method, &'static str), BTreeSet<u16>>,
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

/// What is told of the API.
pub(super) struct Description {
    /// The whole document.
    pub(super) document: Bytes,
    statuses: HashMap<(Method, &'static str), BTreeSet<u16>>,
}

impl Description {
    /// May this route answer so? True of what is no route.
    pub(super) fn allows(&self, method: &Method, route: &str, status: u16) -> bool {
        let is_head = method == Method::HEAD;
        if is_head && status == StatusCode::METHOD_NOT_ALLOWED {
            // Of HEAD nothing is told: where it is not answered it is no method of the route.
            return true;
        }
        let method = if is_head { &Method::GET } else { method };
        let told = self.statuses.iter().find(|((of, path), _)| of == method && *path == route);
        told.is_none_or(|(_, statuses)| statuses.contains(&status))
    }
}

impl Routes {
    pub(super) fn new() -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
        Self {
            router: Router::new(),
            is_public: false,
            group: "",
            groups: Vec::new(),
            paths: Map::new(),
            statuses: HashMap::new(),
            requests: settings.clone().for_deserialize().into_generator(),
            answers: settings.for_serialize().into_generator(),
        }
    }

    /// Routes for anybody.
    pub(super) fn public() -> Self {
        Self { is_public: true, ..Self::new() }
    }

    /// The routes from here on belong together.
    pub(super) fn group(mut self, name: &'static str, about: &'static str) -> Self {
        self.group = name;
        self.groups.push(json!({ "name": name, "description": about }));
        self
    }

    /// A route that reads.
    pub(super) fn get<H, T, I>(
        mut self,
        path: &'static str,
        about: &str,
        kinds: &[Kind],
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Context>> + Described<I>,
        T: 'static,
    {
        let unread = self.note::<H, I>(&Method::GET, path, about, kinds);
        self.router = self.router.route(path, strict(routing::get(handler), unread));
        self
    }

    /// A route that changes something.
    pub(super) fn post<H, T, I>(
        mut self,
        path: &'static str,
        about: &str,
        kinds: &[Kind],
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Context>> + Described<I>,
        T: 'static,
    {
        let unread = self.note::<H, I>(&Method::POST, path, about, kinds);
        self.router = self.router.route(path, strict(routing::post(handler), unread));
        self
    }

    /// A route that takes something away.
    pub(super) fn delete<H, T, I>(
        mut self,
        path: &'static str,
        about: &str,
        kinds: &[Kind],
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Context>> + Described<I>,
        T: 'static,
    {
        let unread = self.note::<H, I>(&Method::DELETE, path, about, kinds);
        self.router = self.router.route(path, strict(routing::delete(handler), unread));
        self
    }

    fn note<H: Described<I>, I>(
        &mut self,
        method: &Method,
        path: &'static str,
        about: &str,
        kinds: &[Kind],
    ) -> Unread {
        // The handler's own name, which is one of a kind; a test sees to it.
        let id = std::any::type_name::<H>().rsplit("::").next().unwrap_or_default();
        self.note_as(id, H::describe, method, path, about, kinds)
    }

    /// Compiled once, and not for each handler.
    fn note_as(
        &mut self,
        id: &str,
        describe: fn(&mut Operation<'_>),
        method: &Method,
        path: &'static str,
        about: &str,
        kinds: &[Kind],
    ) -> Unread {
        let is_open = self.is_public || super::gate::OPEN.contains(&path);
        let mut operation = Operation {
            method: method.clone(),
            path,
            is_page: !self.is_public && super::page::is_page(path),
            parameters: Vec::new(),
            body: None,
            success: (200, "Done.", Map::new()),
            further: None,
            kinds: [kinds, &ALWAYS].concat(),
            requests: &mut self.requests,
            answers: &mut self.answers,
        };
        if self.is_public {
            operation.kinds.push(Kind::TooMany);
        }
        if !is_open {
            operation.kinds.extend([Kind::Unauthorized, Kind::ForeignHost]);
            if *method != Method::GET {
                operation.kinds.push(Kind::ForeignOrigin);
            }
        }
        describe(&mut operation);
        // Webmasters are anybody, and send what they like.
        let is_strict = !self.is_public && !TOLERANT.contains(&path);
        let unread = if is_strict { operation.unread() } else { Unread::NOTHING };
        operation.may(unread.problems());
        let statuses = operation.kinds.iter().map(|kind| kind.status());
        let statuses: BTreeSet<u16> = statuses
            .chain([operation.success.0])
            .chain(operation.further.map(|(status, _)| status))
            .collect();
        let mut told = operation.told(id, about, self.group);
        if is_open && !self.is_public {
            told["security"] = json!([]);
        }
        self.statuses.insert((method.clone(), path), statuses);
        let at = self.paths.entry(path).or_insert_with(|| json!({}));
        at[method.as_str().to_ascii_lowercase()] = told;
        unread
    }

    /// The router, and the description of it.
    pub(super) fn finish(mut self, version: &str) -> (Router<Arc<Context>>, Description) {
        let problem = self.answers.subschema_for::<Members<'_>>();
        let mut schemas = self.requests.take_definitions(true);
        for (name, of_answer) in self.answers.take_definitions(true) {
            let of_request = schemas.insert(name.clone(), of_answer.clone());
            // A type that goes both ways must look the same both ways.
            debug_assert!(of_request.is_none_or(|told| told == of_answer), "{name}");
        }
        let mut responses: Map<_, _> = Kind::ALL
            .iter()
            .map(|kind| (named(kind.status()), described(kind.status(), &problem)))
            .collect();
        if !self.is_public {
            responses.extend(Kind::ALL.iter().map(|kind| {
                let mut told = described(kind.status(), &problem);
                outputs::also_as_page(&mut told);
                (page_named(kind.status()), told)
            }));
        }
        let security = if self.is_public { json!([]) } else { json!([{ "bearer": [] }, {}]) };
        let document = json!({
            "openapi": "3.1.1",
            "info": {
                "title": "sitemapd",
                "description": "What changed on the sites we know, and which URL should be \
                    fetched next. Times are RFC 3339 in UTC, durations one grammar (`1h 30m`), \
                    errors RFC 9457. Unknown fields of requests are refused; ignore those of \
                    answers.",
                "version": version,
                "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            },
            "servers": [{ "url": "/" }],
            "tags": self.groups,
            // Without listen.token_file no token is asked for.
            "security": security,
            "paths": self.paths,
            "components": {
                "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
                "responses": responses,
                "schemas": schemas,
            },
        });
        let document = Bytes::from(document.to_string());
        (self.router, Description { document, statuses: self.statuses })
    }
}

/// A route that refuses what it does not read.
fn strict(route: MethodRouter<Arc<Context>>, unread: Unread) -> MethodRouter<Arc<Context>> {
    if unread == Unread::NOTHING {
        return route;
    }
    route.route_layer(from_fn(move |request, next| unread::refuse(unread, request, next)))
}

impl Operation<'_> {
    /// What is not read, by what is told so far.
    fn unread(&self) -> Unread {
        let has_query = self.parameters.iter().any(|parameter| parameter["in"] == "query");
        Unread { query: !has_query, body: self.body.is_none() }
    }

    /// It may answer with these problems.
    pub(super) fn may(&mut self, kinds: &[Kind]) {
        self.kinds.extend_from_slice(kinds);
    }

    /// It may also answer so, with the same content.
    pub(super) fn also(&mut self, status: u16, means: &'static str) {
        self.further = Some((status, means));
    }

    /// The schema of what is read.
    fn read<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().to_value()
    }

    /// The schema of what is written.
    pub(super) fn written<T: JsonSchema>(&mut self) -> Value {
        self.answers.subschema_for::<T>().to_value()
    }

    fn told(&self, id: &str, about: &str, group: &str) -> Value {
        let (status, means, content) = &self.success;
        let mut answer = json!({ "description": means });
        if !content.is_empty() {
            answer["content"] = content.clone().into();
        }
        let problems: BTreeSet<u16> = self.kinds.iter().map(|kind| kind.status()).collect();
        let problems = problems.into_iter().map(|status| {
            let name = if self.is_page { page_named(status) } else { named(status) };
            (status.to_string(), json!({ "$ref": format!("#/components/responses/{name}") }))
        });
        let further = self.further.map(|(status, means)| {
            let mut same = answer.clone();
            same["description"] = json!(means);
            (status.to_string(), same)
        });
        let responses: Map<_, _> =
            [(status.to_string(), answer)].into_iter().chain(further).chain(problems).collect();
        let mut told = json!({
            "operationId": id,
            "summary": about,
            "tags": [group],
            "responses": responses,
        });
        if !self.parameters.is_empty() {
            told["parameters"] = self.parameters.clone().into();
        }
        if let Some(body) = &self.body {
            told["requestBody"] = body.clone();
        }
        told
    }
}

/// The name of an answer with this status among the components.
fn named(status: u16) -> String {
    format!("Problem{status}")
}

/// The same where a browser gets it as a page.
fn page_named(status: u16) -> String {
    format!("Refusal{status}")
}

impl<F, W> Described<()> for F
where
    F: Fn() -> W,
    W: Future<Output: Output>,
{
    fn describe(operation: &mut Operation<'_>) {
        W::Output::describe(operation);
    }
}

impl<F, W, A: Input> Described<(A,)> for F
where
    F: Fn(A) -> W,
    W: Future<Output: Output>,
{
    fn describe(operation: &mut Operation<'_>) {
        A::describe(operation);
        W::Output::describe(operation);
    }
}

impl<F, W, A: Input, B: Input> Described<(A, B)> for F
where
    F: Fn(A, B) -> W,
    W: Future<Output: Output>,
{
    fn describe(operation: &mut Operation<'_>) {
        A::describe(operation);
        B::describe(operation);
        W::Output::describe(operation);
    }
}

impl<F, W, A: Input, B: Input, C: Input> Described<(A, B, C)> for F
where
    F: Fn(A, B, C) -> W,
    W: Future<Output: Output>,
{
    fn describe(operation: &mut Operation<'_>) {
        A::describe(operation);
        B::describe(operation);
        C::describe(operation);
        W::Output::describe(operation);
    }
}
