//! How clients of a test reach the API: that of one daemon, or that of whoever
//! a balancer picks, anew for each call.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use sitemapd::fetch::api::{ApiClient, ApiError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Before a call that was not answered is followed by the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Where calls go.
pub enum Door {
    /// To one daemon: when it does not answer, it is gone.
    One(ApiClient, SocketAddr),
    /// To whoever is there, until told to stop; no call is waited for longer than
    /// that.
    Any(SocketAddr, Duration, CancellationToken),
}

/// What was answered to a call.
#[derive(Debug)]
pub struct Heard {
    pub status: u16,
    /// In seconds.
    pub retry_after: Option<u64>,
    pub body: Value,
}

impl Door {
    pub fn addr(&self) -> SocketAddr {
        match self {
            Self::One(_, addr) | Self::Any(addr, ..) => *addr,
        }
    }

    /// May each call meet another daemon?
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Any(..))
    }

    /// Is no more to be called?
    pub fn is_shut(&self) -> bool {
        matches!(self, Self::Any(_, _, until) if until.is_cancelled())
    }

    /// After a call that was not answered: will somebody answer later?
    pub async fn opens_again(&self) -> bool {
        if self.is_shared() {
            tokio::time::sleep(PAUSE).await;
        }
        self.is_shared() && !self.is_shut()
    }

    /// An answer, or `None` when there is none. No refusal is expected but that
    /// a daemon stops, or has its store away.
    pub async fn post(&self, path: &str, body: &Value) -> Option<Value> {
        match self {
            Self::One(api, _) => read(path, api.post::<Value>(path, body).await),
            Self::Any(addr, patience, _) => {
                let called = call(*addr, "POST", path, Some(body));
                understand(path, tokio::time::timeout(*patience, called).await.ok()?.ok()?)
            }
        }
    }

    /// The same without a body, `path` with its query.
    pub async fn get(&self, path: &str) -> Option<Value> {
        match self {
            Self::One(api, _) => {
                let (path, query) = path.split_once('?').unwrap_or((path, ""));
                let query: Vec<_> =
                    query.split('&').filter_map(|pair| pair.split_once('=')).collect();
                read(path, api.get::<Value>(path, &query).await)
            }
            Self::Any(addr, patience, _) => {
                let called = call(*addr, "GET", path, None);
                understand(path, tokio::time::timeout(*patience, called).await.ok()?.ok()?)
            }
        }
    }
}

fn read(path: &str, answer: Result<Value, ApiError>) -> Option<Value> {
    match answer {
        Ok(answer) => Some(answer),
        Err(ApiError::Refused { status: 503, problem, .. }) if problem.ends_with("unavailable") => {
            None
        }
        Err(ApiError::Refused { status, detail, .. }) => panic!("{path}: {status}, {detail}"),
        Err(_) => None,
    }
}

fn understand(path: &str, heard: Heard) -> Option<Value> {
    if heard.status == 200 {
        return Some(heard.body);
    }
    let kind = heard.body["type"].as_str().unwrap_or_default();
    let is_away = kind.ends_with("unavailable") || kind.ends_with("busy");
    assert!(
        heard.status == 503 && is_away && heard.retry_after.is_some(),
        "{path} was answered with {heard:?}"
    );
    None
}

/// Asks over a connection of its own.
pub async fn call(
    addr: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<Heard> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let header = |name: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(own, _)| *own == name).map(|(_, value)| value.trim()).next()
    };
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or_else(broken)?;
    let length: usize =
        header("content-length").and_then(|text| text.parse().ok()).ok_or_else(broken)?;
    let body = answer[end + 4..].get(..length).ok_or_else(broken)?;
    Ok(Heard {
        status,
        retry_after: header("retry-after").and_then(|text| text.parse().ok()),
        body: serde_json::from_slice(body).unwrap_or_default(),
    })
}
