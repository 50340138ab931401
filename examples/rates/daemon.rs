//! The whole daemon in this process, and fetchers that lease and settle over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sitemapd::app::{App, AppError, Reload};
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::fetch::resolver::Lookup;
use sitemapd::queue::Token;
use sitemapd::store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::http::Http;
use crate::{BATCH, PER_HOST, STEP, changed};

/// Fetchers that lease and settle side by side.
const FETCHERS: usize = 4;

/// A daemon that runs.
pub(crate) struct Daemon {
    pub(crate) store: Store,
    clock: Clock,
    fetchers: Vec<Http>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
    _reload: mpsc::Sender<Reload>,
}

impl Daemon {
    pub(crate) async fn start(config: Config, clock: Clock) -> anyhow::Result<Self> {
        // Nothing is to be polled here.
        let nowhere: Lookup = Arc::new(|_| Box::pin(async { Ok(Vec::new()) }));
        let app = App::build_with(config, clock.clone(), nowhere).await?;
        let (api, store) = (app.api_addr(), app.store().clone());
        let stop = CancellationToken::new();
        let (reload, reloads) = mpsc::channel(1);
        let running = tokio::spawn(app.run(stop.clone(), reloads));
        let mut fetchers = Vec::new();
        for _ in 0..FETCHERS {
            fetchers.push(Http::connect(api).await?);
        }
        Ok(Self { store, clock, fetchers, stop, running, _reload: reload })
    }

    /// Leases and settles until all have been fetched once.
    pub(crate) async fn fetch_all(&mut self, urls: usize) -> anyhow::Result<()> {
        let fetched = Arc::new(AtomicUsize::new(0));
        let mut running = Vec::new();
        for fetcher in self.fetchers.drain(..) {
            running.push(tokio::spawn(fetch(fetcher, self.clock.clone(), Arc::clone(&fetched))));
        }
        for fetcher in running {
            self.fetchers.push(fetcher.await??);
        }
        let fetched = fetched.load(Ordering::Relaxed);
        ensure!(fetched == urls, "{fetched} of {urls} were due");
        Ok(())
    }

    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.running.await??;
        Ok(())
    }
}

/// Leases and settles until nothing is due.
async fn fetch(mut fetcher: Http, clock: Clock, urls: Arc<AtomicUsize>) -> anyhow::Result<Http> {
    loop {
        let tokens = fetcher.lease(BATCH, PER_HOST).await?;
        if tokens.is_empty() {
            return Ok(fetcher);
        }
        urls.fetch_add(tokens.len(), Ordering::Relaxed);
        clock.advance(Duration::from_millis(STEP));
        let outcome = |token: &str| {
            let token: Token = token.parse().ok().context("no token")?;
            Ok(if changed(token.url) { "changed" } else { "unchanged" })
        };
        fetcher.settle(&tokens, outcome).await?;
    }
}
