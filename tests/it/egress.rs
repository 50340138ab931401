//! Egress to a real nats-server, by the real binary.
//!
//! Where there is no nats-server (in `PATH`, in `/usr/sbin`, or named by
//! `NATS_SERVER`) the tests say so on standard error, past the capture of the
//! test runner, and pass.

mod access;
mod consumer;
mod flow;
mod killed;
mod server;
mod trouble;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use serde_json::Value;
use sitemapd::fetch::api::ApiClient;
use tempfile::TempDir;

use self::server::Nats;
use crate::support::engine::Look;
use crate::support::process::{DEADLINE, Daemon, write_config};
use crate::support::queue_daemon::{Queue, site};

/// Does the broker take and give what it is there for?
const UP: &str = "sitemapd_egress_up{broker=\"nats\"}";

/// A folder whose store holds URLs, and the config of a daemon that publishes them.
struct Setup {
    _dir: TempDir,
    config: PathBuf,
    look: Look,
    urls: Vec<String>,
}

impl Setup {
    /// `count` URLs of 20 hosts; `extra` are keys of `[egress.nats]`.
    async fn new(nats: &Nats, count: usize, of_site: &str, extra: &str) -> Self {
        let text = site("a", "http://127.0.0.1:9/", of_site);
        let queue = Queue::open(&text).await;
        let urls: Vec<_> = (0..count).map(|n| format!("http://h{}.test/{n}", n % 20)).collect();
        queue.list_urls("a", urls.iter().cloned()).await;
        let (dir, look) = queue.into_folder();
        let servers = nats.url();
        let section = format!("[egress.nats]\nservers = [\"{servers}\"]\n{extra}\n");
        let config = write_config(dir.path(), &format!("{section}{text}"));
        Self { _dir: dir, config, look, urls }
    }

    fn start(&self) -> Daemon {
        Daemon::start(&self.config)
    }

    /// Leases that the store holds for the broker.
    fn leases(&self) -> usize {
        let sql = "SELECT count(*) FROM leases WHERE worker LIKE 'nats:%'";
        usize::try_from(self.look.number(sql)).unwrap()
    }
}

/// The one queue, as the API shows it.
async fn queue(api: &ApiClient) -> Value {
    let answer: Value = api.get("/v1/queue", &[]).await.unwrap();
    answer["queues"][0].clone()
}

/// Has every URL been settled: none is due, leased or given up?
async fn is_done(api: &ApiClient) -> bool {
    let queue = queue(api).await;
    ["due", "leased", "dead"].iter().all(|state| queue[state] == 0)
}

/// Waits until `look` finds something.
async fn wait<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    wait_for(DEADLINE, what, look).await
}

/// The same, so long at most.
async fn wait_for<T>(most: Duration, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + most;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a route answers with success.
#[allow(clippy::disallowed_methods, reason = "our own daemon is asked, not the web")]
async fn text(daemon: &Daemon, path: &str) -> String {
    let client = sitemapd::fetch::tls::client().no_proxy().build().unwrap();
    let answer = client.get(format!("http://{}{path}", daemon.addr)).send().await.unwrap();
    answer.error_for_status().unwrap().text().await.unwrap()
}

/// A sample of `/metrics`, 0 where there is none yet.
async fn metric(daemon: &Daemon, name: &str) -> u64 {
    let all = text(daemon, "/metrics").await;
    let is_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
    all.lines().find(is_it).map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// URLs or results of one kind on their way by the broker.
async fn egressed(daemon: &Daemon, what: &str) -> u64 {
    metric(daemon, &format!("sitemapd_egress_total{{what=\"{what}\"}}")).await
}

/// Results that nobody has taken for good.
async fn left(context: &Context) -> u64 {
    context.get_stream("SITEMAPD_RESULTS").await.unwrap().cached_info().state.messages
}
