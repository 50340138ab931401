//! A nats-server of the test's own, that may be killed and started again.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::{self, Context};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::DEADLINE;

/// Files outlive the process; it is killed when dropped.
pub(super) struct Nats {
    child: Child,
    binary: PathBuf,
    dir: TempDir,
    port: u16,
    access: Access,
}

/// Who may do what.
#[derive(Clone)]
pub(super) enum Access {
    /// Everybody everything.
    Open,
    /// The same for those who say this.
    Token(&'static str),
    /// The user `sitemapd` what is permitted, `admin` everything; their password is
    /// [`PASSWORD`].
    Users { permissions: String },
}

pub(super) const PASSWORD: &str = "s3cret";

/// The binary, if there is one.
fn binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("NATS_SERVER") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    folders.into_iter().map(|folder| folder.join("nats-server")).find(|file| file.is_file())
}

impl Nats {
    /// Starts one; `None`, loudly, where there is none.
    pub(super) async fn start() -> Option<Self> {
        Self::start_as(Access::Open).await
    }

    /// The same where not everybody may do everything.
    pub(super) async fn start_as(access: Access) -> Option<Self> {
        static SAID: Once = Once::new();
        let Some(binary) = binary() else {
            SAID.call_once(|| {
                let line = b"SKIPPED: egress to NATS: there is no nats-server\n";
                // Not captured, unlike eprintln.
                let _ = std::io::stderr().write_all(line);
            });
            return None;
        };
        let dir = TempDir::new().unwrap();
        let child = launch(&binary, &dir, -1, &access);
        let port = port(&dir, child.id()).await;
        let nats = Self { child, binary, dir, port, access };
        nats.answers().await;
        Some(nats)
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// A client that comes back by itself, however often it has to.
    pub(super) async fn context(&self) -> Context {
        let options = self
            .options()
            .retry_on_initial_connect()
            .reconnect_delay_callback(|_| Duration::from_millis(50));
        jetstream::new(options.connect(self.url()).await.unwrap())
    }

    /// How many clients it has had since it began, who asks included.
    pub(super) async fn clients(&self) -> u64 {
        let client = self.options().connect(self.url()).await.unwrap();
        client.server_info().client_id
    }

    fn options(&self) -> ConnectOptions {
        let options = ConnectOptions::new();
        match self.access {
            Access::Open => options,
            Access::Token(token) => options.token(token.to_owned()),
            Access::Users { .. } => options.user_and_password("admin".into(), PASSWORD.into()),
        }
    }

    /// Ends it without a chance to do anything about it.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, over the same files and on the same port.
    pub(super) async fn again(&mut self) {
        self.child = launch(&self.binary, &self.dir, self.port.into(), &self.access);
        self.answers().await;
    }

    /// Takes a consumer of the stream of URLs away, whose fetchers make it anew. A server
    /// that was killed knows less of it than of its stream: to this day (2.9.10) it goes on
    /// looking for what was acknowledged just before, each `ack_wait` once more, and gives
    /// nothing else where that takes all of its turns.
    pub(super) async fn forget_consumer(&self, name: &str) {
        let urls = self.context().await.get_stream("SITEMAPD").await.unwrap();
        urls.delete_consumer(name).await.unwrap();
    }

    /// Waits until it serves `JetStream`.
    async fn answers(&self) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Ok(client) = self.options().connect(self.url()).await
                && is_answer(jetstream::new(client).get_stream("NONE").await)
            {
                return;
            }
            assert!(Instant::now() < deadline, "nats-server does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Old servers leave out of their account what the client wants to see there.
fn is_answer<T>(said: Result<T, GetStreamError>) -> bool {
    said.err().is_none_or(|error| matches!(error.kind(), GetStreamErrorKind::JetStream(_)))
}

fn launch(binary: &PathBuf, dir: &TempDir, port: i32, access: &Access) -> Child {
    let mut command = Command::new(binary);
    match access {
        Access::Open => {}
        Access::Token(token) => {
            command.args(["--auth", token]);
        }
        Access::Users { permissions } => {
            let config = dir.path().join("nats.conf");
            let text = format!(
                "authorization {{ users = [\n{{ user: admin, password: {PASSWORD} }}\n\
                 {{ user: sitemapd, password: {PASSWORD}, {permissions} }}\n] }}\n"
            );
            std::fs::write(&config, text).unwrap();
            command.arg("--config").arg(config);
        }
    }
    command
        .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream"])
        .arg("--store_dir")
        .arg(dir.path().join("store"))
        .arg("--ports_file_dir")
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The port that it chose.
async fn port(dir: &TempDir, id: u32) -> u16 {
    let file = dir.path().join(format!("nats-server_{id}.ports"));
    let deadline = Instant::now() + DEADLINE;
    loop {
        let text = std::fs::read(&file).unwrap_or_default();
        if let Ok(ports) = serde_json::from_slice::<Value>(&text) {
            let url: url::Url = ports["nats"][0].as_str().unwrap().parse().unwrap();
            return url.port().unwrap();
        }
        assert!(Instant::now() < deadline, "nats-server does not say its port");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
