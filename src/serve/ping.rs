//! `/ping`: somebody says that a sitemap or feed has changed.
//!
//! The spellings of all who ever took pings are taken: parameters in any case
//! and under any of their names, URLs percent-encoded or pasted as they are.
//! What follows is the store's affair and never more than a hint; the answer
//! names the page where the status stands.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use serde::Serialize;
use url::Url;

use super::Context;
use super::extract::{Segment, accepts};
use super::openapi::{Input, Operation, Output, media};
use super::problem::{Kind, Problem};
use super::public::Client;
use super::wire::submissions::Told as Status;
use super::wire::{PUBLIC_URL_CHARS, Time, grouped, web_url_within};
use crate::store::StoreError;
use crate::store::submissions::{Heard, SubmissionId};

/// Names under which the URL was ever given, in lower case.
const NAMES: [&str; 3] = ["sitemap", "url", "u"];
/// Bytes of a form: one URL, every byte of it escaped, and some more.
const MAX_FORM: usize = 8 << 10;
/// Time for a form to come in whole.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);
/// Nothing is loaded, framed or submitted.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Does the client want a page, or JSON?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Page,
    Json,
}

/// The sitemap that a ping names, in its query or its form.
pub(crate) struct Pinged {
    url: Url,
    form: Form,
}

impl FromRequest<Arc<Context>> for Pinged {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Arc<Context>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let form = if accepts(&parts.headers, "application/json", &["text/html"]) {
            Form::Json
        } else {
            Form::Page
        };
        let mut said = parts.uri.query().and_then(named);
        if said.is_none() && parts.method == Method::POST {
            let reading = tokio::time::timeout(FORM_TIMEOUT, to_bytes(body, MAX_FORM));
            let bytes = reading
                .await
                .map_err(|_| {
                    Problem::new(Kind::RequestTimeout, "The form did not come within 10 seconds.")
                })?
                .map_err(|_| {
                    let limit = grouped(MAX_FORM);
                    Problem::new(Kind::BodyTooLarge, format!("A form has {limit} bytes at most."))
                })?;
            said = named(&String::from_utf8_lossy(&bytes));
        }
        let Some(text) = said else {
            return Err(Problem::field(
                "Name the sitemap: /ping?sitemap=https%3A%2F%2Fexample.org%2Fsitemap.xml",
            ));
        };
        let mut url = web_url_within(PUBLIC_URL_CHARS, "sitemap", text.trim())?;
        url.set_fragment(None);
        // What is not ASCII is longer as it is sent.
        if url.as_str().len() > PUBLIC_URL_CHARS {
            let most = grouped(PUBLIC_URL_CHARS);
            return Err(Problem::limit(format!("sitemap has over {most} bytes as it is sent.")));
        }
        Ok(Self { url, form })
    }
}

/// The URL that a query or a form names.
fn named(query: &str) -> Option<String> {
    let mut rest = query;
    loop {
        let pair = rest.split('&').next().unwrap_or_default();
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if NAMES.contains(&name.to_ascii_lowercase().as_str()) && !value.is_empty() {
            // Pasted as it is: its own query, if it has one, goes on to the end.
            let pasted = &rest[name.len() + 1..];
            let is_pasted = value.contains("://");
            let decoded = url::form_urlencoded::parse(pair.as_bytes()).next();
            return if is_pasted {
                Some(if value.contains('?') { pasted } else { value }.to_owned())
            } else {
                decoded.map(|(_, value)| value.into_owned())
            };
        }
        rest = rest.get(pair.len() + 1..)?;
    }
}

impl Input for Pinged {
    fn describe(operation: &mut Operation<'_>) {
        operation.in_query_or_form(
            "sitemap",
            "URL of a sitemap or feed, percent-encoded. `url` and `u` mean the same.",
        );
        operation.may(&[
            Kind::InvalidField,
            Kind::LimitExceeded,
            Kind::RequestTimeout,
            Kind::BodyTooLarge,
        ]);
    }
}

/// What a ping came to.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Received {
    /// Always `received`: no promise follows from it.
    #[schemars(extend("enum" = ["received"]))]
    status: &'static str,
    /// Where the status stands, on this server.
    status_url: String,
    /// When it, or the robots.txt that may name it, is looked at; null: not
    /// for this ping.
    looked_at: Option<Time>,
}

/// An answer as a page or as JSON.
pub(crate) struct Told<T> {
    json: T,
    page: Markup,
    form: Form,
    /// The page of the status.
    status_url: Option<String>,
}

impl<T: Serialize> IntoResponse for Told<T> {
    fn into_response(self) -> Response {
        let mut response = match self.form {
            Form::Json => axum::Json(self.json).into_response(),
            Form::Page => {
                let headers: [(HeaderName, &str); 3] = [
                    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                    (header::CONTENT_SECURITY_POLICY, POLICY),
                    (header::REFERRER_POLICY, "no-referrer"),
                ];
                (StatusCode::OK, headers, self.page.into_string()).into_response()
            }
        };
        let link =
            self.status_url.map(|at| HeaderValue::try_from(format!("<{at}>; rel=\"status\"")));
        if let Some(Ok(link)) = link {
            response.headers_mut().insert(header::LINK, link);
        }
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
        response
    }
}

impl<T: schemars::JsonSchema> Output for Told<T> {
    fn describe(operation: &mut Operation<'_>) {
        let json = operation.written::<T>();
        let page = serde_json::json!({ "type": "string" });
        let types = [("application/json", json), ("text/html; charset=utf-8", page)];
        operation.answers(media(&types));
    }
}

/// `GET /ping`
pub(crate) async fn ping(
    State(context): State<Arc<Context>>,
    client: Client,
    pinged: Pinged,
) -> Result<Told<Received>, Problem> {
    hear(&context, client, pinged).await
}

/// `POST /ping`
pub(crate) async fn ping_posted(
    State(context): State<Arc<Context>>,
    client: Client,
    pinged: Pinged,
) -> Result<Told<Received>, Problem> {
    hear(&context, client, pinged).await
}

async fn hear(
    context: &Context,
    Client(client): Client,
    pinged: Pinged,
) -> Result<Told<Received>, Problem> {
    let Pinged { url, form } = pinged;
    let store = &context.state.store;
    if (context.state.refuses)(&url).is_some() {
        return Err(Problem::field("sitemap: this address is never fetched."));
    }
    // A source is polled for pings once an hour at most, whoever sends them: strangers who
    // make sitemaps up are not to keep its owner from saying that it has changed.
    if !store.polls(url.clone()).await? {
        let host = url.host_str().unwrap_or_default();
        context.budgets.take_ping(client, host, store.seed(), store.now()).map_err(|wait| {
            Problem::too_many(wait, "Too many pings for this host; once an hour is enough.")
        })?;
    }
    let (id, heard) = store.hear(url.clone()).await.map_err(|error| match error {
        StoreError::Refused(why) => {
            let day = Duration::from_secs(86_400);
            Problem::too_many(day, format!("Not kept, {why}. Name it in robots.txt."))
        }
        other => other.into(),
    })?;
    let status_url = format!("/submissions/{id}");
    let looked_at = match heard {
        Heard::Source(at) | Heard::Robots(at) => Some(at),
        Heard::Unknown => None,
    };
    Ok(Told {
        page: received_page(&url, &status_url, heard, store.now()),
        json: Received {
            status: "received",
            status_url: status_url.clone(),
            looked_at: looked_at.map(Time),
        },
        form,
        status_url: Some(status_url),
    })
}

/// `GET /submissions/{id}`
pub(crate) async fn submission_status(
    State(context): State<Arc<Context>>,
    wanted: Wanted,
    Segment(id): Segment,
) -> Result<Told<Status>, Problem> {
    let status = Status::from(context.state.store.submission(read_id(&id)?).await?);
    Ok(Told { page: status_page(&status), json: status, form: wanted.0, status_url: None })
}

/// The name of a submission in a path.
pub(super) fn read_id(text: &str) -> Result<SubmissionId, Problem> {
    SubmissionId::parse(text)
        .ok_or_else(|| Problem::new(Kind::NotFound, format!("There is no submission {text:?}.")))
}

/// A page for browsers, JSON for all others.
pub(crate) struct Wanted(Form);

impl<S: Sync> axum::extract::FromRequestParts<S> for Wanted {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self(if accepts(&parts.headers, "text/html", &["application/json"]) {
            Form::Page
        } else {
            Form::Json
        }))
    }
}

impl Input for Wanted {
    fn describe(_: &mut Operation<'_>) {}
}

fn whole(title: &str, inner: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { (title) }
            }
            body { h1 { (title) } (inner) }
        }
    }
}

fn received_page(url: &Url, status_url: &str, heard: Heard, now: Timestamp) -> Markup {
    let soon = |at: Timestamp| {
        if at <= now { "soon".to_owned() } else { format!("at {}", Time(at)) }
    };
    let next = match heard {
        Heard::Source(at) => format!("It will be read {}.", soon(at)),
        Heard::Robots(at) => format!(
            "It is none of those that are polled. The robots.txt of its host, which may name it, \
             will be read {}.",
            soon(at)
        ),
        Heard::Unknown => {
            "Nobody polls its host. It waits until the robots.txt of a registered site names it, \
             or an operator takes it."
                .to_owned()
        }
    };
    whole(
        "Sitemap notification received",
        &html! {
            p { code { (url.as_str()) } }
            p { (next) }
            p { "Its status, and what was wrong with it: " a href=(status_url) { (status_url) } }
        },
    )
}

fn status_page(status: &Status) -> Markup {
    whole(
        "Sitemap status",
        &html! {
            p { code { (status.path()) } }
            p { strong { (status.status_name) } ": " (status.why) "." }
            @if let Some(error) = &status.fetch_error { p { (error) } }
            @if let Some(at) = status.next_poll_at { p { "It will be read next at " (at) "." } }
            @if !status.processing_errors.is_empty() {
                ul {
                    @for error in &status.processing_errors {
                        li {
                            (error.name) " (" (grouped(error.count)) ")"
                            @if let Some(line) = error.line { ", first in line " (grouped(line)) }
                        }
                    }
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_ping_names_its_sitemap_in_every_historic_spelling() {
        let encoded = "https%3A%2F%2Fa.example%2Fs.xml%3Fa%3D1%26b%3D2";
        let plain = "https://a.example/s.xml?a=1&b=2";
        for query in [
            format!("sitemap={encoded}"),
            format!("siteMap={encoded}"),
            format!("SITEMAP={plain}"),
            format!("x=1&sitemap={encoded}&y=2"),
            format!("x=1&sitemap={plain}"),
            format!("u={encoded}"),
            format!("url={plain}"),
        ] {
            assert_eq!(named(&query).as_deref(), Some(plain), "{query}");
        }
        for query in ["", "&", "=", "sitemap", "sitemap=", "x=https://a.example/", "&&&"] {
            assert_eq!(named(query), None, "{query}");
        }
        // What follows is not of it where it has no query.
        let alone = named("sitemap=https://a.example/s.xml&hl=en");
        assert_eq!(alone.as_deref(), Some("https://a.example/s.xml"));
        assert_eq!(named("url=&sitemap=a%20b+c").as_deref(), Some("a b c"));
    }
}
