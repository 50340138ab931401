//! A polite fetcher for sitemapd, to be run as it is or to be built upon.
//!
//!     cargo run --release --example fetcher -- --user-agent "mybot/0.1 (+https://www.example.com/bot)"
//!
//! It leases URLs, fetches each when its time has come (one request at a time
//! per host, conditional where the page is known), and settles it with what it
//! saw. A lease that takes longer is extended; at SIGTERM or Ctrl-C what was not
//! begun is given back and what is under way is finished. A daemon that is away
//! or busy is asked again, later and later. `page::keep` is the place for what
//! you do with pages. Nothing here needs the library of sitemapd: copy it.

#![allow(clippy::print_stdout, reason = "a program for people")]

mod api;
mod memory;
mod page;
pub(crate) mod work;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A polite fetcher for sitemapd.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Args {
    /// The daemon.
    #[arg(long, default_value = "http://127.0.0.1:7070")]
    pub(crate) api: String,
    /// Holds the token of `listen.token_file`.
    #[arg(long)]
    pub(crate) token_file: Option<PathBuf>,
    /// Who asks, with an address.
    #[arg(long)]
    pub(crate) user_agent: String,
    /// Which queue.
    #[arg(long, default_value = "default")]
    pub(crate) crawl: String,
    /// A name for this fetcher.
    #[arg(long, default_value = "fetcher")]
    pub(crate) worker: String,
    /// Hosts at once.
    #[arg(long, default_value_t = 64)]
    pub(crate) hosts: usize,
    /// URLs at once, up to 1,000.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) in_hand: u16,
    /// Seconds of a lease.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=43_200))]
    pub(crate) lease: u64,
    /// Seconds for a page.
    #[arg(long, default_value_t = 60)]
    pub(crate) timeout: u64,
    /// A file for what pages said of themselves.
    #[arg(long, default_value = "fetcher.json")]
    pub(crate) memory: PathBuf,
    /// End when nothing is due.
    #[arg(long)]
    pub(crate) once: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    tokio::spawn({
        let stop = stop.clone();
        async move {
            for _ in 0..2 {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = tokio::signal::ctrl_c() => {}
                }
                if stop.is_cancelled() {
                    // A second one: the leases will expire.
                    std::process::exit(1);
                }
                stop.cancel();
            }
        }
    });
    work::run(&Args::parse(), stop).await
}
