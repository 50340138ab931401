//! The HTTP API of a whole daemon over real sockets: shapes, problems, limits,
//! who may ask. What the queue does behind it is tested elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sitemapd::app::{App, AppError, Reload};
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::fetch::api::{ApiClient, ApiError};
use sitemapd::store::Store;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

mod access;
mod fetchers;
mod metrics;
pub(crate) mod openapi;
mod orders;
mod pages;
mod problems;
mod shapes;
mod stream;

/// A running daemon with one site, whose home nobody serves.
struct Daemon {
    addr: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
    reload: mpsc::Sender<Reload>,
    dir: TempDir,
    store: Store,
}

/// One answer, as it came over the wire.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Daemon {
    /// Starts one on a port of its own, with a bearer token or without.
    async fn start(token: Option<&str>) -> Self {
        let text = "[[site]]\nname = \"blog\"\nurl = \"http://127.0.0.1:9/\"\n\
                    sitemaps = [\"http://127.0.0.1:9/sitemap.xml\"]\nfeeds = []\n";
        Self::start_on(text, token).await
    }

    /// The same with another config.
    async fn start_on(text: &str, token: Option<&str>) -> Self {
        let dir = TempDir::new().unwrap();
        let mut config = Config::from_toml_str(text).unwrap();
        crate::support::engine::place(&mut config, &dir.path().join("data"));
        config.listen.api = SocketAddr::from(([127, 0, 0, 1], 0));
        config.store.min_free_disk = 0;
        if let Some(token) = token {
            let file = dir.path().join("token");
            std::fs::write(&file, format!("{token}\n")).unwrap();
            config.listen.token_file = Some(file);
        }
        let app = App::build(config, Clock::system()).await.unwrap();
        let (addr, store) = (app.api_addr(), app.store().clone());
        let stop = CancellationToken::new();
        let (reload, reloads) = mpsc::channel(1);
        let running = tokio::spawn(app.run(stop.clone(), reloads));
        Self { addr, stop, running, reload, dir, store }
    }

    /// Sends one request as it is written here and reads the answer to its end.
    async fn send(&self, head: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let length = body.len();
        let head = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        // In one piece: a body that is refused is taken to its end all the same, within
        // reason, and has half a second for its next byte.
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        Answer::read(&answer)
    }

    async fn get(&self, target: &str) -> Answer {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {}", self.addr), b"").await
    }

    async fn post(&self, target: &str, body: &Value) -> Answer {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json",
            self.addr
        );
        self.send(&head, body.to_string().as_bytes()).await
    }

    /// Stops it and says how it ended.
    async fn end(self) -> Result<(), AppError> {
        self.stop.cancel();
        self.running.await.unwrap()
    }
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// The value of a header, by its lower-case name.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// The word of the problem's type; checks the members that all of them have.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.body);
        let json = self.json();
        assert_eq!(json["status"], self.status);
        assert!(json["title"].as_str().is_some_and(|title| !title.is_empty()));
        assert!(json["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        let uri = json["type"].as_str().unwrap();
        uri.strip_prefix("urn:sitemapd:problem:").unwrap().to_owned()
    }

    fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}
