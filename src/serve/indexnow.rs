//! `/indexnow`: an owner pushes URLs that were added, changed or deleted.
//!
//! The receiving side of the protocol at <https://www.indexnow.org/documentation>,
//! with its answers: 200 taken, 202 kept until the key can be checked, 400 no
//! request of the protocol, 403 the key is not that of the host, 422 URLs of
//! another host or a key that cannot be one, 429 too many. 200 promises no fetch.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use url::{Position, Url};

use super::Context;
use super::bodies::BodyShare;
use super::extract::{Params, Payload};
use super::openapi::{Operation, Output, media};
use super::problem::{Kind, Problem};
use super::public::{Client, host_key};
use super::wire::{Capped, PUBLIC_URL_CHARS, grouped};
use crate::store::pushes::{Heeded, Push, Pushed, key_scope};

/// URLs of one push, as the protocol has it.
pub(super) const MAX_URLS: usize = 10_000;
/// Bytes of a body with so many URLs of 2,048 characters, and some more.
const MAX_BODY: usize = 24 << 20;
/// Characters of a key.
const KEY_CHARS: std::ops::RangeInclusive<usize> = 8..=128;

/// Parameters of `GET /indexnow`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct PushParams {
    /// What has changed, percent-encoded.
    url: String,
    /// 8 to 128 letters, digits and hyphens.
    key: String,
    /// Where the key is found, if not at `/{key}.txt` of the URL's host: a file, without a
    /// query.
    #[serde(rename = "keyLocation")]
    key_location: Option<String>,
}

/// Body of `POST /indexnow`. Other fields are not looked at.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct PushBody {
    /// The host of all URLs.
    host: String,
    /// 8 to 128 letters, digits and hyphens.
    key: String,
    /// Where the key is found, if not at `/{key}.txt` of the host: a file, without a query.
    #[serde(rename = "keyLocation")]
    key_location: Option<String>,
    /// What has changed: at least one, all of the host.
    #[serde(rename = "urlList")]
    urls: Capped<String, MAX_URLS>,
}

/// What became of the URLs.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Taken {
    /// `accepted`, or `pending` until the key can be checked.
    #[schemars(extend("enum" = ["accepted", "pending"]))]
    status: &'static str,
    /// URLs sent.
    received: u64,
    /// Known here, and noted as changed.
    known: u64,
    /// Not known here; the sitemaps that may list them are read sooner.
    unknown: u64,
    /// Pushed before within ten minutes, which counts once.
    repeated: u64,
    /// Outside of what is taken of this site.
    outside: u64,
}

impl IntoResponse for Taken {
    fn into_response(self) -> Response {
        let is_pending = self.status == "pending";
        let status = if is_pending { StatusCode::ACCEPTED } else { StatusCode::OK };
        (status, Json(self)).into_response()
    }
}

impl Output for Taken {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.written::<Self>();
        operation.answers(media(&[("application/json", schema)]));
        operation.also(202, "Kept until the key can be checked.");
        operation.may(&[Kind::InvalidKey, Kind::NotOfHost]);
    }
}

/// `GET /indexnow`
pub(crate) async fn push_one(
    State(context): State<Arc<Context>>,
    client: Client,
    Params(params): Params<PushParams>,
) -> Result<Taken, Problem> {
    let url = read_url(&params.url)?;
    let host = url[Position::BeforeHost..Position::AfterPort].to_owned();
    let push = checked(host, params.key, params.key_location.as_deref(), vec![url])?;
    take(&context, client, push, None).await
}

/// `POST /indexnow`
pub(crate) async fn push_many(
    State(context): State<Arc<Context>>,
    client: Client,
    Payload { value: body, held }: Payload<PushBody, MAX_BODY>,
) -> Result<Taken, Problem> {
    let urls = body.urls.take("urlList")?;
    if urls.is_empty() {
        return Err(Problem::field("urlList is empty; name at least one URL."));
    }
    let place = Url::parse(&format!("https://{}/", body.host)).ok();
    let named = place.filter(|place| place.path() == "/" && place.has_host());
    let Some(named) = named.filter(|place| place.as_str().matches('@').count() == 0) else {
        return Err(Problem::new(Kind::NotOfHost, "host is no name of a host."));
    };
    let host = named[Position::BeforeHost..Position::AfterPort].to_owned();
    let urls: Result<Vec<Url>, Problem> = urls.iter().map(|text| read_url(text)).collect();
    let push = checked(host, body.key, body.key_location.as_deref(), urls?)?;
    take(&context, client, push, Some(held)).await
}

fn read_url(text: &str) -> Result<Url, Problem> {
    let wrong = |why: &str| {
        let shown: String = text.chars().take(100).collect();
        Problem::new(Kind::NotOfHost, format!("{shown:?} is no URL that can be pushed: {why}."))
    };
    if text.len() > PUBLIC_URL_CHARS {
        return Err(wrong("it is over 2,048 characters"));
    }
    let mut url = Url::parse(text).map_err(|cause| wrong(&cause.to_string()))?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    if !is_web || !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it must be http or https, without a password"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// What can be seen without asking anybody: the key could be one, it lies on
/// the host, and the URLs are within its scope, which is its directory.
fn checked(
    host: String,
    key: String,
    location: Option<&str>,
    urls: Vec<Url>,
) -> Result<Push, Problem> {
    let refused = |why: String| Err(Problem::new(Kind::NotOfHost, why));
    let is_key = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_key || !KEY_CHARS.contains(&key.len()) {
        return refused("The key must be 8 to 128 of a-z, A-Z, 0-9 and -.".to_owned());
    }
    let is_there = |url: &Url| url[Position::BeforeHost..Position::AfterPort] == *host;
    if let Some(other) = urls.iter().find(|url| !is_there(url)) {
        return refused(format!("{:?} is not of the host {host:?}.", other.as_str()));
    }
    let is_secure = urls.iter().any(|url| url.scheme() == "https");
    let scheme = if is_secure { "https" } else { "http" };
    let usual = format!("{scheme}://{host}/{key}.txt");
    let key_url = read_url(location.unwrap_or(&usual))?;
    if !is_there(&key_url) {
        return refused(format!("keyLocation must be on the host {host:?}."));
    }
    let scope = match key_scope(&key_url) {
        Ok(scope) => scope,
        Err(why) => return refused(format!("keyLocation: {why}.")),
    };
    if let Some(other) = urls.iter().find(|url| !url.path().starts_with(scope)) {
        return refused(format!("{:?} is not below {scope:?}, where the key is.", other.as_str()));
    }
    Ok(Push { host, key, key_url, urls })
}

async fn take(
    context: &Context,
    client: Client,
    push: Push,
    held: Option<BodyShare>,
) -> Result<Taken, Problem> {
    let store = &context.state.store;
    let now = store.now();
    let received = push.urls.len() as u64;
    #[allow(clippy::cast_precision_loss)] // 10,000 at most
    let tokens = push.urls.len() as f64;
    let whose = host_key(store.seed(), &push.host);
    let budgets = &context.budgets;
    let over = |what: &'static str| {
        move |wait| Problem::too_many(wait, format!("Too many URLs pushed {what} for now."))
    };
    budgets.urls_of_client.take(client.0, tokens, now).map_err(over("by you"))?;
    budgets.urls_of_host.look(whose, tokens, now).map_err(over("for this host"))?;
    let (status, heeded) = match (context.state.push)(push, client.0, held).await? {
        Pushed::Taken(heeded) => {
            // Only who has the key takes of the host's share. What others pushed
            // meanwhile may have left less of it: it is done all the same.
            let _ = budgets.urls_of_host.take(whose, tokens, now);
            ("accepted", heeded)
        }
        Pushed::Waiting => ("pending", Heeded::default()),
        Pushed::InvalidKey(why) => {
            return Err(Problem::new(Kind::InvalidKey, format!("The key is not taken: {why}.")));
        }
        Pushed::TooMany(wait) => {
            let limit = grouped(MAX_URLS);
            let why = format!(
                "The key cannot be checked now, and too much of this host waits or was asked \
                 for. Push up to {limit} URLs at once, with one key."
            );
            return Err(Problem::too_many(wait, why));
        }
    };
    let Heeded { known, unknown, repeated, outside } = heeded;
    Ok(Taken { status, received, known, unknown, repeated, outside })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(key: &str, location: Option<&str>, url: &str) -> Result<String, u16> {
        let refused = |problem: Problem| problem.kind().status();
        let url = read_url(url).map_err(refused)?;
        let pushed = checked("a.example".to_owned(), key.to_owned(), location, vec![url]);
        pushed.map(|push| push.key_url.into()).map_err(refused)
    }

    #[test]
    fn a_url_that_is_pushed_is_of_the_web_names_nobody_and_is_not_too_long() {
        let long = format!("https://a.example/{}", "x".repeat(PUBLIC_URL_CHARS));
        for refused in [
            "ftp://a.example/",
            "mailto:a@a.example",
            "/1",
            "https://me@a.example/",
            "https://:secret@a.example/",
            &long,
        ] {
            assert!(read_url(refused).is_err(), "{refused}");
        }
        let longest = &long[..PUBLIC_URL_CHARS];
        for (taken, url) in [("http://a.example/1#part", "http://a.example/1"), (longest, longest)]
        {
            assert_eq!(read_url(taken).map(String::from).ok().as_deref(), Some(url));
        }
    }

    #[test]
    fn a_key_its_place_and_its_scope_are_as_the_protocol_has_them() {
        let key = "0123456789abcdef";
        let at = "https://a.example/catalog/key12.txt";
        for (key, location, url, expected) in [
            (key, None, "https://a.example/x", Ok("https://a.example/0123456789abcdef.txt")),
            (key, None, "http://A.example/x", Ok("http://a.example/0123456789abcdef.txt")),
            (key, Some(at), "http://a.example/catalog/x?y", Ok(at)),
            (key, Some(at), "https://a.example/catalog", Err(422)),
            (key, Some(at), "https://a.example/catalogs/x", Err(422)),
            (key, Some("https://b.example/k.txt"), "https://a.example/x", Err(422)),
            (key, Some("https://a.example@b.example/k"), "https://a.example/x", Err(422)),
            (key, Some("file:///etc/passwd"), "https://a.example/x", Err(422)),
            (key, Some("https://a.example/?q=0123456789abcdef"), "https://a.example/x", Err(422)),
            (key, Some("https://a.example/k.txt?"), "https://a.example/x", Err(422)),
            (key, Some("https://a.example/of%2Fbob/k.txt"), "https://a.example/of/x", Err(422)),
            (key, Some("https://a.example/of%2fk.txt"), "https://a.example/x", Err(422)),
            (key, Some("https://a.example/of%5Ck.txt"), "https://a.example/x", Err(422)),
            (key, None, "https://www.a.example/x", Err(422)),
            (key, None, "https://a.example:8443/x", Err(422)),
            (key, None, "ftp://a.example/x", Err(422)),
            (key, None, "/x", Err(422)),
            ("1234567", None, "https://a.example/x", Err(422)),
            ("12345678", None, "https://a.example/x", Ok("https://a.example/12345678.txt")),
            ("12345678/..", None, "https://a.example/x", Err(422)),
            ("abcdefgh_", None, "https://a.example/x", Err(422)),
        ] {
            assert_eq!(
                status(key, location, url).as_deref(),
                expected.as_ref().map(|at| *at),
                "{key} {location:?} {url}"
            );
        }
        assert!(status(&"k".repeat(128), None, "https://a.example/x").is_ok());
        assert_eq!(status(&"k".repeat(129), None, "https://a.example/x"), Err(422));
    }
}
