//! The rows of the queue: leases and settlements by several clients at once, in
//! the daemon's process or over HTTP, and a lease now and then while documents
//! are read as fast as they can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use sitemapd::clock::Clock;
use sitemapd::model::Outcome;
use sitemapd::queue::{LeaseRequest, Settlement, Token};
use sitemapd::store::Store;

use crate::daemon::{Daemon, Setup, Usage, forget_peak, peak_mb, resident_mb};
use crate::http::Http;
use crate::web::manner;

/// How leases are taken.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) clients: u64,
    pub(crate) batch: u32,
    /// URLs after which it is enough; 0: all that there are.
    pub(crate) urls: u64,
    pub(crate) over_http: bool,
}

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Leased {
    pub(crate) urls: u64,
    pub(crate) seconds: f64,
    pub(crate) processor: f64,
    /// From the start of the daemon to its first URL.
    pub(crate) start_ms: f64,
    /// Of single lease calls.
    pub(crate) p99_ms: f64,
    pub(crate) peak_mb: f64,
    /// Once it had started.
    pub(crate) resident_mb: f64,
}

impl Leased {
    pub(crate) fn rate(&self) -> f64 {
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let urls = self.urls as f64;
        urls / self.seconds
    }
}

/// One who leases and settles.
enum Client {
    Within(Store),
    Http(Http),
}

/// Starts the daemon on a store that is there and puts a load on it.
pub(crate) async fn run(setup: Setup, load: Load) -> anyhow::Result<Leased> {
    forget_peak();
    let began = Instant::now();
    let daemon = Daemon::start(setup).await?;
    let mut first = Client::Within(daemon.store.clone());
    let tokens = first.lease(1).await?;
    let start_ms = began.elapsed().as_secs_f64() * 1e3;
    ensure!(tokens.len() == 1, "nothing is due after the start");
    first.settle(tokens).await?;
    let resident_mb = resident_mb()?;
    // What comes due in the hours before is read first: reading beside leases has
    // a row of its own.
    daemon.settle("what is due before leases").await?;

    let done = Arc::new(AtomicU64::new(0));
    let usage = Usage::now();
    let mut clients = Vec::new();
    for _ in 0..load.clients {
        let client = Client::of(&daemon, load.over_http).await?;
        clients.push(tokio::spawn(fetch(client, load, daemon.clock.clone(), Arc::clone(&done))));
    }
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    let (seconds, processor) = usage.since();
    let urls = done.load(Ordering::Relaxed);
    let p99_ms = p99(&mut times);
    let peak_mb = peak_mb()?;
    daemon.end().await?;
    Ok(Leased { urls, seconds, processor, start_ms, p99_ms, peak_mb, resident_mb })
}

/// Reads everything into a fresh store while one client leases ten URLs at a
/// time; gives the times of its lease calls.
pub(crate) async fn beside_reading(setup: Setup) -> anyhow::Result<Leased> {
    let daemon = Daemon::start(setup).await?;
    daemon.serve(1, crate::daemon::NOTHING_YET).await?;
    daemon.settle("hosts").await?;
    daemon.serve(1, manner::REMARK).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let usage = Usage::now();
    let leasing = tokio::spawn({
        let (store, stop) = (daemon.store.clone(), Arc::clone(&stop));
        async move {
            let (mut client, mut times, mut urls) = (Client::Within(store), Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                let tokens = client.lease(10).await?;
                if !tokens.is_empty() {
                    times.push(began.elapsed());
                    urls += tokens.len() as u64;
                    client.settle(tokens).await?;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            anyhow::Ok((times, urls))
        }
    });
    daemon.pass("leases beside a first read").await?;
    stop.store(true, Ordering::Relaxed);
    let (seconds, processor) = usage.since();
    let (mut times, urls) = leasing.await??;
    daemon.end().await?;
    let p99_ms = p99(&mut times);
    Ok(Leased { urls, seconds, processor, p99_ms, ..Leased::default() })
}

/// Leases and settles until enough has been done or nothing is left; the times
/// of the lease calls.
async fn fetch(
    mut client: Client,
    load: Load,
    clock: Clock,
    done: Arc<AtomicU64>,
) -> anyhow::Result<Vec<Duration>> {
    let (mut times, mut empty) = (Vec::new(), 0);
    while empty < 3 && (load.urls == 0 || done.load(Ordering::Relaxed) < load.urls) {
        let began = Instant::now();
        let tokens = client.lease(load.batch).await?;
        if tokens.is_empty() {
            // All hosts wait for their clocks.
            clock.advance(Duration::from_millis(1_100));
            empty += 1;
            continue;
        }
        empty = 0;
        times.push(began.elapsed());
        done.fetch_add(tokens.len() as u64, Ordering::Relaxed);
        client.settle(tokens).await?;
    }
    Ok(times)
}

fn p99(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * 99 / 100;
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

impl Client {
    async fn of(daemon: &Daemon, over_http: bool) -> anyhow::Result<Self> {
        if !over_http {
            return Ok(Self::Within(daemon.store.clone()));
        }
        Ok(Self::Http(Http::connect(daemon.api).await?))
    }

    async fn lease(&mut self, max: u32) -> anyhow::Result<Vec<String>> {
        match self {
            Self::Within(store) => {
                let request = LeaseRequest {
                    max,
                    ttl: Duration::from_secs(300),
                    per_host: 100,
                    crawl: "default".to_owned(),
                    sites: Vec::new(),
                    worker: None,
                    request_id: None,
                };
                let batch = store.lease(request).await?;
                Ok(batch.urls.into_iter().map(|leased| leased.token.to_string()).collect())
            }
            Self::Http(api) => api.lease(max, 100).await,
        }
    }

    async fn settle(&mut self, tokens: Vec<String>) -> anyhow::Result<()> {
        match self {
            Self::Within(store) => {
                let reports: Result<_, _> = tokens.iter().map(|token| settlement(token)).collect();
                store.settle(reports?).await?;
                Ok(())
            }
            Self::Http(api) => api.settle(&tokens, |_| Ok("unchanged")).await,
        }
    }
}

fn settlement(token: &str) -> anyhow::Result<Settlement> {
    let token: Token = token.parse().ok().context("no token")?;
    Ok(Settlement {
        status: Some(200),
        content_hash: Some("0123456789abcdef".to_owned()),
        ..Settlement::new(token, Some(Outcome::Unchanged))
    })
}
