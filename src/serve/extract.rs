//! Reads requests: JSON bodies under limits, query parameters, path parameters.
//!
//! All refusals are problems. A body is bounded in bytes, in time, and by a
//! budget over all requests (`bodies`), so that no number of clients fills the memory; a
//! handler keeps its part while it works on what was read.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::Context;
use super::bodies::{BodyBudget, BodyShare};
use super::problem::{Kind, Problem};
use super::public::Client;
use super::wire::{clip, grouped};

/// Bytes of a body, where nothing else is said.
pub(crate) const SMALL_BODY: usize = 2 << 20;
/// Bytes of a body that may hold 10,000 results, 1.6 kB each.
pub(crate) const LARGE_BODY: usize = 16 << 20;
/// Time for a body to come in whole.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Characters that are repeated of a parameter.
const MAX_QUOTED: usize = 100;
/// From this size on a body is parsed on the blocking pool: on an async worker
/// it would hold up other requests for milliseconds.
const PARSE_APART: usize = 256 << 10;

/// A body on its way in: its bytes, and the part of the budget that they use.
struct Incoming {
    bytes: BytesMut,
    held: BodyShare,
}

impl Incoming {
    fn push(&mut self, chunk: &Bytes, limit: usize) -> Result<(), Problem> {
        let size = self.bytes.len() + chunk.len();
        if size > limit {
            return Err(too_large(limit));
        }
        self.held.grow_to(size)?;
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }
}

/// A JSON body of at most `LIMIT` bytes. An empty body reads as `{}`.
pub(crate) struct Payload<T, const LIMIT: usize = SMALL_BODY> {
    /// What it says.
    pub(crate) value: T,
    /// Its part of the budget, to be kept while `value` is worked on.
    pub(crate) held: BodyShare,
}

impl<T, const LIMIT: usize> FromRequest<Arc<Context>> for Payload<T, LIMIT>
where
    T: DeserializeOwned + Send + 'static,
{
    type Rejection = Problem;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let (bytes, held) = read_bytes(&parts, body, LIMIT, &context.bodies).await?;
        if bytes.is_empty() {
            return Ok(Self { value: read_json(b"{}")?, held });
        }
        check_media_type(&parts.headers)?;
        if bytes.len() < PARSE_APART {
            return Ok(Self { value: read_object(&bytes)?, held });
        }
        let parsing = tokio::task::spawn_blocking(move || read_object(&bytes));
        let value = parsing.await.map_err(|_| {
            Problem::new(Kind::Internal, "Reading the body failed; nothing was changed.")
        })??;
        Ok(Self { value, held })
    }
}

/// The bytes of a body under its limits, and their part of the budget.
pub(super) async fn read_bytes(
    parts: &Parts,
    body: Body,
    limit: usize,
    budget: &BodyBudget,
) -> Result<(BytesMut, BodyShare), Problem> {
    check_length(&parts.headers, limit)?;
    // Only the webmasters' listener tells clients apart.
    let client = parts.extensions.get().copied().unwrap_or(Client(0));
    let reading = read_body(body, limit, budget.begin(client.0));
    let Ok(read) = tokio::time::timeout(BODY_TIMEOUT, reading).await else {
        return Err(too_slow());
    };
    let Incoming { bytes, held } = read?;
    Ok((bytes, held))
}

async fn read_body(body: Body, limit: usize, held: BodyShare) -> Result<Incoming, Problem> {
    let mut incoming = Incoming { bytes: BytesMut::new(), held };
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| {
            Problem::new(Kind::MalformedJson, "The connection broke within the body.")
        })?;
        incoming.push(&chunk, limit)?;
    }
    Ok(incoming)
}

/// Refuses by `Content-Length` before a byte is read.
fn check_length(headers: &HeaderMap, limit: usize) -> Result<(), Problem> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match length.and_then(|text| text.parse::<u64>().ok()) {
        Some(bytes) if bytes > limit as u64 => Err(too_large(limit)),
        _ => Ok(()),
    }
}

/// The problem of a body that does not come.
pub(super) fn too_slow() -> Problem {
    let within = BODY_TIMEOUT.as_secs();
    Problem::new(Kind::RequestTimeout, format!("The body did not come within {within} seconds."))
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        Kind::BodyTooLarge,
        format!(
            "The body is over the limit of {} bytes; send it in several calls.",
            grouped(limit)
        ),
    )
}

/// Refuses what is not plain JSON. A page of another origin cannot send this
/// type without asking first, so this also keeps forged forms out.
fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(coding) = headers.get(header::CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(Problem::new(
            Kind::UnsupportedMediaType,
            "The body is compressed; send it without Content-Encoding.",
        ));
    }
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let found = given.map_or_else(|| "missing".to_owned(), |text| format!("{text:?}"));
    Err(Problem::new(
        Kind::UnsupportedMediaType,
        format!(
            "Content-Type is {found}; it must be application/json (with curl: --json or -H \
             'Content-Type: application/json')."
        ),
    ))
}

/// Parses a body that is an object. serde would also take a list, as the
/// fields in an order that nobody has promised.
fn read_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::field("The body is a list; it must be an object, in { }."));
    }
    read_json(bytes)
}

/// Parses a body; the problem says where and what is known.
fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let kind = match error.classify() {
            Category::Data => Kind::InvalidField,
            Category::Syntax | Category::Eof | Category::Io => Kind::MalformedJson,
        };
        Problem::new(kind, format!("{}.", in_words(error.to_string())))
    })
}

/// What serde expected, without the names of our types.
fn in_words(mut said: String) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("u8", "a whole number of 0 to 255"),
        ("u16", "a whole number of 0 to 65,535"),
        ("u32", "a whole number of 0 or more"),
        ("u64", "a whole number of 0 or more"),
        ("f64", "a number"),
    ];
    const EXPECTED: &str = ", expected ";
    let Some(at) = said.rfind(EXPECTED).map(|at| at + EXPECTED.len()) else { return said };
    let end = said[at..].find(" at line ").map_or(said.len(), |length| at + length);
    let expected = &said[at..end];
    let words = match WORDS.iter().find(|(name, _)| *name == expected) {
        Some((_, words)) => *words,
        None if expected.starts_with("struct ") => "an object",
        None => return said,
    };
    said.replace_range(at..end, words);
    said
}

/// Query parameters; unknown ones are refused.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => {
                let query = parts.uri.query().unwrap_or_default();
                Err(Problem::field(query_mistake(&rejection.body_text(), query)))
            }
        }
    }
}

/// What is wrong with a query, in our own words: which parameter, what it was, and what
/// it can be. An unknown parameter is often the second half of a URL that was pasted as
/// it is.
fn query_mistake(said: &str, query: &str) -> String {
    let cause = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    // Where one parameter is at fault, its name comes first.
    let (name, why) = cause.split_once(": ").unwrap_or(("", cause));
    let value = url::form_urlencoded::parse(query.as_bytes()).find(|(of, _)| of == name);
    let must = value.and_then(|(_, value)| Some((value, expected(why)?)));
    let told = if let Some((value, must)) = must {
        let value = clip(value.into_owned(), MAX_QUOTED);
        format!("{name} is {value:?}; it must be {must}")
    } else if let Some((unknown, known)) = quoted(cause, "unknown field `") {
        let known = known.trim_start_matches(", ");
        let known = known.strip_prefix("expected one of ").or(known.strip_prefix("expected "));
        let known = known.map_or("there are none".to_owned(), |known| {
            let verb = if known.contains(',') || known.contains(" or ") { "are" } else { "is" };
            format!("there {verb} {known}")
        });
        format!(
            "`{unknown}` is no parameter here; {known}. A URL given as a value must have its `&` \
             percent-encoded as %26"
        )
    } else if let Some((twice, _)) = quoted(cause, "duplicate field `") {
        format!("{twice} stands there twice; it must stand there once")
    } else if let Some((missing, _)) = quoted(cause, "missing field `") {
        format!("{missing} is missing")
    } else {
        cause.to_owned()
    };
    format!("In the query: {told}.")
}

/// What a parameter must be, by what is said of one that is not.
fn expected(why: &str) -> Option<String> {
    let words = match why {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "a whole number of 0 or more"
        }
        "number too large to fit in target type" => "a smaller number",
        "number too small to fit in target type" => "a larger number",
        "provided string was not `true` or `false`" => "true or false",
        other => {
            let (_, known) = quoted(other, "unknown variant `")?;
            return known.strip_prefix(", expected ").map(str::to_owned);
        }
    };
    Some(words.to_owned())
}

/// What stands in backticks behind `begin`, and what follows.
fn quoted<'a>(said: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    let (_, inside) = said.split_once(begin)?;
    inside.split_once('`')
}

/// The one parameter of a path, as text.
pub(crate) struct Segment(pub(crate) String);

impl<S: Sync + Send> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(rejection) => Err(Problem::field(format!("{}.", rejection.body_text()))),
        }
    }
}

/// The one parameter of a path, as a row number.
pub(crate) struct RowId(pub(crate) i64);

impl<S: Sync + Send> FromRequestParts<S> for RowId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Segment(text) = Segment::from_request_parts(parts, state).await?;
        match text.parse() {
            Ok(row) if row >= 0 => Ok(Self(row)),
            _ => Err(Problem::new(Kind::NotFound, format!("{text:?} is no id; ids are numbers."))),
        }
    }
}

/// Does the client ask for this type by its name, and for none of the others that it may
/// have more (RFC 9110 section 12.5.1)?
pub(crate) fn accepts(headers: &HeaderMap, wanted: &str, others: &[&str]) -> bool {
    let wish = weight(headers, wanted);
    wish > 0.0 && others.iter().all(|other| weight(headers, other) <= wish)
}

/// How much a client wants a type: 0, not at all or not by its name, to 1.
fn weight(headers: &HeaderMap, wanted: &str) -> f32 {
    let said = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let weights = said.flat_map(|value| value.split(',')).filter_map(|part| {
        let mut words = part.split(';').map(str::trim);
        if !words.next()?.eq_ignore_ascii_case(wanted) {
            return None;
        }
        let said = words.find_map(|word| {
            let (name, value) = word.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().ok())?
        });
        Some(said.filter(|said| said.is_finite()).unwrap_or(1.0).clamp(0.0, 1.0))
    });
    weights.fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::HeaderValue;
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    use crate::serve::bodies::BUDGET_UNIT;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)] // only its shape matters
    struct Known {
        one: u8,
    }

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), *value));
        pairs.map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_type_is_given_that_is_asked_for_most() {
        const JSON: &str = "application/json";
        for (said, expected) in [
            ("text/html", true),
            ("Text/HTML;level=1;q=0.1", true),
            ("text/html;q=0", false),
            ("text/html;q=0.0, */*", false),
            ("*/*", false),
            ("application/json, text/html;q=0.9", false),
            ("application/json;q=0.8, text/html ; Q=0.9", true),
            ("application/json, text/html", true),
            ("application/xhtml+xml, text/html;q=0.9", true),
            ("text/html;q=nonsense", true),
            ("text/html;q=nan, application/json", true),
        ] {
            let headers = headers(&[(header::ACCEPT, said)]);
            assert_eq!(accepts(&headers, "text/html", &[JSON]), expected, "{said}");
        }
        assert!(!accepts(&HeaderMap::new(), "text/html", &[]));
    }

    #[test]
    fn broken_json_and_wrong_fields_are_different_problems_with_a_place() {
        for (body, kind, named) in [
            ("{\"one\": ", Kind::MalformedJson, "line 1"),
            ("{one: 1}", Kind::MalformedJson, "line 1"),
            ("{\"one\": 1} x", Kind::MalformedJson, "trailing"),
            ("{\"two\": 1}", Kind::InvalidField, "`one`"),
            (
                "{\"one\": \"a\"}",
                Kind::InvalidField,
                "expected a whole number of 0 to 255 at line 1",
            ),
            ("{\"one\": -1}", Kind::InvalidField, "expected a whole number of 0 to 255 at line 1"),
            ("null", Kind::InvalidField, "invalid type: null, expected an object at line 1"),
            ("{\"one\": 1, \"one\": 2}", Kind::InvalidField, "duplicate"),
            ("{}", Kind::InvalidField, "missing field `one`"),
        ] {
            let problem = read_json::<Known>(body.as_bytes()).expect_err(body);
            assert_eq!(problem.kind(), kind, "{body}");
            assert!(problem.detail().contains(named), "{body}: {}", problem.detail());
        }
    }

    #[test]
    fn a_list_is_no_body() {
        let problem = read_object::<Known>(b" [1]").expect_err("a list");
        assert_eq!(problem.kind(), Kind::InvalidField);
        assert_eq!(read_object::<Known>(b"{\"one\": 1}").map(|known| known.one), Ok(1));
    }

    #[test]
    fn json_nested_without_end_is_refused_and_not_followed() {
        let problem = read_json::<Value>("[".repeat(1_000_000).as_bytes()).expect_err("depth");
        assert_eq!(problem.kind(), Kind::MalformedJson);
    }

    #[test]
    fn a_body_over_its_limit_is_refused_by_its_announced_length() {
        let problem = check_length(&headers(&[(header::CONTENT_LENGTH, "1000000000")]), SMALL_BODY)
            .expect_err("too long");
        assert_eq!(problem.kind(), Kind::BodyTooLarge);
        assert!(problem.detail().contains("2,097,152 bytes"), "{}", problem.detail());
    }

    #[test]
    fn only_plain_json_is_read() {
        let json = (header::CONTENT_TYPE, "application/json; charset=utf-8");
        assert!(check_media_type(&headers(std::slice::from_ref(&json))).is_ok());
        for wrong in [
            headers(&[]),
            headers(&[(header::CONTENT_TYPE, "application/x-www-form-urlencoded")]),
            headers(&[(header::CONTENT_TYPE, "text/plain")]),
            headers(&[json, (header::CONTENT_ENCODING, "gzip")]),
        ] {
            let problem = check_media_type(&wrong).expect_err("not plain JSON");
            assert_eq!(problem.kind(), Kind::UnsupportedMediaType, "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn a_body_without_end_is_cut_at_the_limit() {
        let chunk = Bytes::from_static(&[b' '; 1_000]);
        let endless = futures_util::stream::repeat_with(move || Ok::<_, Infallible>(chunk.clone()));
        let budget = BodyBudget::default();
        let all = budget.left();
        let read = read_body(Body::from_stream(endless), 10_000, budget.begin(0)).await;
        assert_eq!(read.err().map(|problem| problem.kind()), Some(Kind::BodyTooLarge));
        assert_eq!(budget.left(), all);
    }

    #[tokio::test]
    async fn bodies_share_a_budget_and_give_it_back() {
        let budget = BodyBudget::of(3 * BUDGET_UNIT);
        let body = || Body::from(vec![b' '; 2 * BUDGET_UNIT]);
        let first = read_body(body(), SMALL_BODY, budget.begin(0)).await.expect("fits");
        let second = read_body(body(), SMALL_BODY, budget.begin(0)).await;
        assert_eq!(second.err().map(|problem| problem.kind()), Some(Kind::Busy));
        drop(first);
        assert!(read_body(body(), SMALL_BODY, budget.begin(0)).await.is_ok());
    }
}
