//! A small client of our own API, for the command line and the demo.
//!
//! It asks only the address that the user gave: no proxy of the environment,
//! no redirect. Answers are bounded, waits are limited, and every failure
//! comes out as one line that can be printed as it is.

use std::time::Duration;

use bytes::BytesMut;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, redirect, retry};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

/// Time to connect; the daemon is near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a whole call: above the longest long poll and the server's limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of an answer; 1,000 rows with long URLs are some 5 MB.
const MAX_ANSWER: usize = 64 << 20;
/// Characters shown of what the other side said.
const MAX_SHOWN: usize = 600;

/// Why a call yielded nothing. The variants are what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The address or the token cannot be used: a mistake of the user.
    #[error("{0}")]
    Usage(String),
    /// Nobody answers there: start the daemon, or say where it is.
    #[error("no daemon answers at {base} (is `sitemapd run` running? use --api)")]
    NoDaemon {
        /// The address that was asked.
        base: String,
    },
    /// The daemon said no, with a reason.
    #[error("{detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable `type` of the problem, empty where there is none.
        problem: String,
        /// The sentence, safe to print.
        detail: String,
    },
    /// The answer is none of ours, or it broke off.
    #[error("the answer of {base} cannot be used: {cause}")]
    Broken {
        /// The address that was asked.
        base: String,
        /// What is wrong with it.
        cause: String,
    },
}

/// A client of one daemon; clones share connections.
#[derive(Clone)]
pub struct ApiClient {
    client: Client,
    base: Url,
    /// The `Authorization` header, marked as a secret.
    bearer: Option<HeaderValue>,
}

impl ApiClient {
    /// A client of the daemon at `base`, such as `http://127.0.0.1:7070`; the
    /// scheme may be left out.
    pub fn new(base: &str, token: Option<&str>) -> Result<Self, ApiError> {
        let client = super::tls::client()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            .user_agent(concat!("sitemapd-cli/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|cause| ApiError::Usage(format!("no HTTP client: {cause}")))?;
        let bearer = token.map(read_token).transpose()?;
        Ok(Self { client, base: read_base(base)?, bearer })
    }

    /// Asks `path` with these query parameters.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ApiError> {
        self.call(self.request(Method::GET, path, query)).await
    }

    /// Sends `body` as JSON to `path`.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(|cause| self.broken(&cause.to_string()))?;
        let request = self
            .request(Method::POST, path, &[])
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        self.call(request).await
    }

    /// Deletes what is at `path`. An answer without a body reads as `null`.
    pub async fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ApiError> {
        self.call(self.request(Method::DELETE, path, query)).await
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.base.clone();
        let folder = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{folder}{path}"));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.client.request(method, url);
        match &self.bearer {
            Some(bearer) => request.header(AUTHORIZATION, bearer.clone()),
            None => request,
        }
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ApiError> {
        let response = request.send().await.map_err(|cause| self.not_answered(&cause))?;
        let status = response.status();
        let body = self.read(response).await?;
        if !status.is_success() {
            return Err(refused(status.as_u16(), &body));
        }
        let json: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(json).map_err(|cause| self.broken(&cause.to_string()))
    }

    /// The body, never more than [`MAX_ANSWER`] bytes of it.
    async fn read(&self, mut response: Response) -> Result<BytesMut, ApiError> {
        let mut body = BytesMut::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER => {
                    return Err(self.broken(&format!("it is longer than {MAX_ANSWER} bytes")));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok(body),
                Err(_) => return Err(self.broken("it broke off")),
            }
        }
    }

    fn not_answered(&self, cause: &reqwest::Error) -> ApiError {
        if cause.is_timeout() && !cause.is_connect() {
            let seconds = CALL_TIMEOUT.as_secs();
            return self.broken(&format!("none came within {seconds} seconds"));
        }
        if cause.is_connect() || cause.is_timeout() {
            return ApiError::NoDaemon { base: self.shown() };
        }
        self.broken("the connection broke")
    }

    fn broken(&self, cause: &str) -> ApiError {
        ApiError::Broken { base: self.shown(), cause: printable(cause) }
    }

    fn shown(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }
}

/// Reads the address of a daemon as people type it.
fn read_base(text: &str) -> Result<Url, ApiError> {
    let whole =
        if text.contains("://") { text.to_owned() } else { format!("http://{}", text.trim()) };
    let wrong = |why: &str| {
        ApiError::Usage(format!(
            "{:?} is no address of a daemon: {why}; write http://127.0.0.1:7070",
            printable(text)
        ))
    };
    let url = Url::parse(&whole).map_err(|cause| wrong(&cause.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("it must be http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("a token belongs into --token-file"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it ends with the port or a path"));
    }
    Ok(url)
}

/// The header that carries a token, the white space of its file taken off.
fn read_token(token: &str) -> Result<HeaderValue, ApiError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| ApiError::Usage("the token has characters that no header takes".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a daemon (or who else answers there) says when it says no.
fn refused(status: u16, body: &[u8]) -> ApiError {
    let member = |json: &serde_json::Value, name: &str| {
        json.get(name).and_then(serde_json::Value::as_str).map(printable)
    };
    let json = serde_json::from_slice(body).unwrap_or(serde_json::Value::Null);
    let problem = member(&json, "type").unwrap_or_default();
    let said = member(&json, "detail").or_else(|| member(&json, "title"));
    let detail = said.unwrap_or_else(|| format!("it answered with HTTP status {status}"));
    ApiError::Refused { status, problem, detail }
}

/// Makes a text from elsewhere fit for a terminal: one line, nothing that steers.
fn printable(text: &str) -> String {
    text.chars()
        .take(MAX_SHOWN)
        .map(|c| {
            let turns = matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if c.is_control() || turns { ' ' } else { c }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request with these bytes and gives back what was asked.
    async fn answers(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = listener.local_addr().expect("an address").to_string();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut asked = vec![0; 4_096];
            let size = stream.read(&mut asked).await.expect("a request");
            stream.write_all(answer.as_bytes()).await.expect("an answer");
            String::from_utf8_lossy(&asked[..size]).into_owned()
        });
        (base, served)
    }

    #[test]
    fn an_address_is_read_as_people_type_it() {
        for (typed, read) in [
            ("127.0.0.1:7070", "http://127.0.0.1:7070/"),
            ("localhost", "http://localhost/"),
            ("http://[::1]:7070", "http://[::1]:7070/"),
            ("https://queue.example/sitemapd/", "https://queue.example/sitemapd/"),
        ] {
            assert_eq!(read_base(typed).expect(typed).as_str(), read);
        }
        for typed in ["", "ftp://a", "http://", "http://me:pw@a", "http://a/?x=1", "a b"] {
            let error = read_base(typed).expect_err(typed);
            assert!(matches!(error, ApiError::Usage(_)), "{typed}: {error}");
        }
    }

    #[tokio::test]
    async fn nobody_there_is_said_with_what_to_do() {
        // Held, so that nobody else comes to listen there.
        let held = tokio::net::TcpSocket::new_v4().expect("a socket");
        held.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let base = held.local_addr().expect("an address").to_string();
        let client = ApiClient::new(&base, None).expect("a client");
        let error = client.get::<Value>("/v1/status", &[]).await.expect_err("nobody");
        let expected =
            format!("no daemon answers at http://{base} (is `sitemapd run` running? use --api)");
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn a_problem_becomes_one_line_that_cannot_steer_the_terminal() {
        let (base, _) = answers(
            "HTTP/1.1 404 Not Found\r\ncontent-length: 62\r\n\r\n\
             {\"type\":\"urn:x\",\"detail\":\"no site \\\"a\\u001b[31m\\n\\\" is known\"}",
        )
        .await;
        let client = ApiClient::new(&base, None).expect("a client");
        let error = client.get::<Value>("/v1/sites/a", &[]).await.expect_err("a problem");
        assert_eq!(error.to_string(), "no site \"a [31m \" is known");
        assert!(matches!(error, ApiError::Refused { status: 404, .. }));
    }

    #[tokio::test]
    async fn a_call_carries_the_token_the_query_and_the_body() {
        let (base, served) = answers("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        let client = ApiClient::new(&base, Some(" s3cret\n")).expect("a client");
        let query = [("url", "https://a.example/?b=1&c=2")];
        client.get::<Value>("/v1/url", &query).await.expect("an answer");
        let asked = served.await.expect("a request");
        assert!(
            asked
                .starts_with("GET /v1/url?url=https%3A%2F%2Fa.example%2F%3Fb%3D1%26c%3D2 HTTP/1.1"),
            "{asked}"
        );
        assert!(asked.contains("Bearer s3cret\r\n"), "{asked}");

        let (base, served) = answers("HTTP/1.1 204 No Content\r\n\r\n").await;
        let client = ApiClient::new(&base, None).expect("a client");
        let answer: Value =
            client.post("/v1/lease", &serde_json::json!({"max": 1})).await.expect("null");
        assert!(answer.is_null());
        let asked = served.await.expect("a request");
        assert!(asked.contains("application/json"), "{asked}");
    }

    #[tokio::test]
    async fn what_is_no_json_is_called_so_and_a_redirect_is_not_followed() {
        let (base, _) = answers("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        let client = ApiClient::new(&base, None).expect("a client");
        let error = client.get::<Value>("/", &[]).await.expect_err("no JSON");
        assert!(matches!(error, ApiError::Broken { .. }), "{error}");

        let (base, _) = answers(
            "HTTP/1.1 302 Found\r\nlocation: http://192.0.2.1/\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        let client = ApiClient::new(&base, None).expect("a client");
        let error = client.get::<Value>("/", &[]).await.expect_err("a redirect");
        assert!(matches!(error, ApiError::Refused { status: 302, .. }), "{error}");
    }
}
