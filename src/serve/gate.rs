//! Who may ask: the bearer token, the `Host` and the `Origin` of a request.
//!
//! Without a token the listener is on loopback, where every browser of the
//! machine can reach it: a request must then name us in `Host`, so that a
//! rebound name of somebody's page does not get in. With a token, that is the
//! gate, and a proxy in front may pass any `Host`. A request that changes
//! something and comes from a page of another origin is refused in both cases.
//! The health routes tell nothing and are open.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::page;
use super::problem::{Kind, Problem};
use super::{Context, TokenFrom};

/// Routes that anybody may ask.
pub(super) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Middleware: lets a request through, or answers why not.
pub(crate) async fn admit(
    State(context): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Response {
    let token = context.state.token.borrow().clone();
    let token = token.as_deref().map(|text| Expected { text, from: context.state.token_from });
    let rules = Rules { token, bound: context.bound };
    match rules.check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The token that is to be given.
#[derive(Clone, Copy)]
struct Expected<'a> {
    text: &'a str,
    from: TokenFrom,
}

/// What a request is held against.
#[derive(Clone, Copy)]
struct Rules<'a> {
    token: Option<Expected<'a>>,
    bound: SocketAddr,
}

impl Rules<'_> {
    fn check(self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        if OPEN.contains(&uri.path()) {
            return Ok(());
        }
        let host = named_host(uri, headers)?;
        match self.token {
            Some(token) => check_token(token, uri, headers)?,
            None => self.check_host(&host)?,
        }
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        check_origin(&host, headers)
    }

    /// A name that only this machine answers to, or the address we listen on.
    fn check_host(self, host: &Authority) -> Result<(), Problem> {
        let name = host.host();
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let ours = match bare.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || address == self.bound.ip(),
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        };
        if ours {
            return Ok(());
        }
        Err(Problem::new(
            Kind::ForeignHost,
            format!(
                "The Host header names {name:?}; without a token only localhost and {} are \
                 answered. A proxy in front must set Host, or use a token.",
                self.bound
            ),
        ))
    }
}

/// The host that a request names, in its URI or its `Host` header.
fn named_host(uri: &Uri, headers: &HeaderMap) -> Result<Authority, Problem> {
    if let Some(authority) = uri.authority() {
        return Ok(authority.clone());
    }
    let mut values = headers.get_all(header::HOST).iter();
    let parsed = values.next().and_then(|value| Authority::try_from(value.as_bytes()).ok());
    match (parsed, values.next()) {
        (Some(authority), None) => Ok(authority),
        _ => Err(Problem::new(Kind::ForeignHost, "The request needs exactly one Host header.")),
    }
}

fn check_token(expected: Expected<'_>, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    // A browser has no other way; what it sends of itself on orders of other
    // pages is refused by their origin.
    if page::is_page(uri.path())
        && let Some(password) = given.and_then(password)
    {
        return held_against(&password, expected);
    }
    let Some(given) = given.and_then(bearer) else {
        let name = expected.from.name();
        return Err(Problem::new(
            Kind::Unauthorized,
            format!("Send the token of {name} as `Authorization: Bearer <token>`."),
        ));
    };
    held_against(given, expected)
}

/// Is this the token, in the one way in which programs give it?
pub(super) fn is_borne(expected: &str, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    given.and_then(bearer).is_some_and(|given| same(given, expected.as_bytes()))
}

fn held_against(given: &[u8], expected: Expected<'_>) -> Result<(), Problem> {
    if same(given, expected.text.as_bytes()) {
        return Ok(());
    }
    let when = match expected.from {
        TokenFrom::File => "read from listen.token_file when it started or was last reloaded",
        TokenFrom::Environment => "found in SITEMAPD_TOKEN when it started",
    };
    Err(Problem::new(
        Kind::Unauthorized,
        format!("The token is not the one that the daemon {when}."),
    ))
}

impl TokenFrom {
    /// As people know it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::File => "listen.token_file",
            Self::Environment => "SITEMAPD_TOKEN",
        }
    }
}

/// The password of `Basic` (RFC 7617 section 2), whatever the user is called.
fn password(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let pair = scheme.eq_ignore_ascii_case(b"basic ").then(|| base64(rest.trim_ascii()))??;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Reads base64 (RFC 4648 section 4), with its padding or without.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (mut bits, mut held, mut bytes) = (0_u32, 0_u32, Vec::with_capacity(end));
    for byte in &text[..end] {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held).to_be_bytes()[3]);
        }
    }
    Some(bytes)
}

/// The credentials of `Bearer` (RFC 6750 section 2.1; the scheme in any case).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

/// Compares without telling by its time how much is equal, only the length.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let difference = given.iter().zip(expected).fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
    given.len() == expected.len() && difference == 0
}

/// A browser names the origin of the page with each request that is no plain
/// read; other clients send none. The scheme is not compared: TLS may end at a
/// proxy in front of us.
///
/// Newer ones say beside it whose page it is (`Sec-Fetch-Site`), also where a
/// page has no origin to be named.
fn check_origin(host: &Authority, headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(site) = headers.get("sec-fetch-site")
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err(Problem::new(
            Kind::ForeignOrigin,
            format!(
                "The request was sent by a page of another origin: Sec-Fetch-Site is {site:?}."
            ),
        ));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let page = Uri::try_from(origin.as_bytes()).ok();
    let authority = page.as_ref().and_then(Uri::authority);
    if authority.is_some_and(|page| page.as_str().eq_ignore_ascii_case(host.as_str())) {
        return Ok(());
    }
    Err(Problem::new(
        Kind::ForeignOrigin,
        format!("The request was sent by a page of {origin:?}, which is not {host:?}."),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        token: Option<&str>,
        method: &Method,
        path: &'static str,
        pairs: &[(&'static str, &'static str)],
    ) -> Result<(), Kind> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let bound = "127.0.0.1:7070".parse().expect("an address");
        let token = token.map(|text| Expected { text, from: TokenFrom::File });
        let rules = Rules { token, bound };
        rules.check(method, &Uri::from_static(path), &headers).map_err(|problem| problem.kind())
    }

    #[test]
    fn without_a_token_only_the_names_of_this_machine_are_answered() {
        for host in ["localhost:7070", "LOCALHOST", "127.0.0.1:7070", "[::1]:7070", "127.0.0.1"] {
            assert_eq!(check(None, &Method::GET, "/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example:7070", "localhost.evil.example", "10.0.0.1", "", "a b", "[::2]"]
        {
            let refused = check(None, &Method::GET, "/", &[("host", host)]);
            assert_eq!(refused, Err(Kind::ForeignHost), "{host}");
        }
        assert_eq!(check(None, &Method::GET, "/", &[]), Err(Kind::ForeignHost));
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check(None, &Method::GET, "/", &two), Err(Kind::ForeignHost));
    }

    #[test]
    fn a_uri_with_a_host_is_judged_by_that_host() {
        let headers = [("host", "localhost")];
        let refused = check(None, &Method::GET, "http://evil.example/", &headers);
        assert_eq!(refused, Err(Kind::ForeignHost));
    }

    #[test]
    fn with_a_token_nothing_but_the_token_counts() {
        let host = ("host", "queue.example");
        let ask = |pairs: &[_]| check(Some("s3cret"), &Method::GET, "/v1/queue", pairs);
        for right in ["Bearer s3cret", "bearer s3cret", "Bearer  s3cret "] {
            assert_eq!(ask(&[host, ("authorization", right)]), Ok(()), "{right}");
        }
        for wrong in ["Bearer s3cre", "Bearer s3cretx", "Bearer ", "Basic s3cret", "s3cret", ""] {
            let refused = ask(&[host, ("authorization", wrong)]);
            assert_eq!(refused, Err(Kind::Unauthorized), "{wrong}");
        }
        assert_eq!(ask(&[host]), Err(Kind::Unauthorized));
    }

    #[test]
    fn a_browser_may_give_the_token_as_a_password_to_pages_only() {
        let host = ("host", "queue.example");
        // any:s3cret, :s3cret, any:s3cre, any:s3cret:x, s3cret
        let table = [
            ("Basic YW55OnMzY3JldA==", true),
            ("basic OnMzY3JldA", true),
            ("Basic YW55OnMzY3Jl", false),
            ("Basic YW55OnMzY3JldDp4", false),
            ("Basic czNjcmV0", false),
            ("Basic ", false),
            ("Basic YW55O!MzY3JldA==", false),
        ];
        for (said, is_right) in table {
            for path in ["/", "/status.css", "/site/a", "/source/1", "/url", "/order"] {
                let asked =
                    check(Some("s3cret"), &Method::GET, path, &[host, ("authorization", said)]);
                assert_eq!(asked.is_ok(), is_right, "{said} {path}");
            }
            for path in ["/v1/queue", "/metrics", "/openapi.json", "/orders", "/status"] {
                let asked =
                    check(Some("s3cret"), &Method::GET, path, &[host, ("authorization", said)]);
                assert_eq!(asked, Err(Kind::Unauthorized), "{said} {path}");
            }
        }
        let foreign =
            [host, ("authorization", "Basic YW55OnMzY3JldA=="), ("sec-fetch-site", "cross-site")];
        assert_eq!(
            check(Some("s3cret"), &Method::POST, "/order", &foreign),
            Err(Kind::ForeignOrigin)
        );
    }

    #[test]
    fn health_is_open_and_nothing_that_looks_like_it() {
        for path in OPEN {
            assert_eq!(check(Some("s3cret"), &Method::GET, path, &[]), Ok(()), "{path}");
        }
        for path in ["/healthz/", "/healthz/../v1/queue", "/"] {
            let refused = check(Some("s3cret"), &Method::GET, path, &[("host", "localhost")]);
            assert_eq!(refused, Err(Kind::Unauthorized), "{path}");
        }
    }

    #[test]
    fn a_page_of_another_origin_cannot_change_anything() {
        let host = ("host", "localhost:7070");
        let post = |origin| check(None, &Method::POST, "/v1/lease", &[host, ("origin", origin)]);
        assert_eq!(post("http://localhost:7070"), Ok(()));
        for origin in
            ["https://evil.example", "null", "http://localhost:3000", "http://localhost", ""]
        {
            assert_eq!(post(origin), Err(Kind::ForeignOrigin), "{origin}");
        }
        let get = [host, ("origin", "https://evil.example")];
        assert_eq!(check(None, &Method::GET, "/v1/queue", &get), Ok(()));
        assert_eq!(check(None, &Method::POST, "/v1/lease", &[host]), Ok(()));
        assert_eq!(check(None, &Method::DELETE, "/v1/sources/1", &get), Err(Kind::ForeignOrigin));
        let table =
            [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false)];
        for (site, is_ours) in table {
            let sent = check(None, &Method::POST, "/v1/lease", &[host, ("sec-fetch-site", site)]);
            assert_eq!(sent.is_ok(), is_ours, "{site}");
        }
    }
}
