//! Leasing and settling beside queue servers: `sitemapd` over HTTP, Redis by
//! Lua on sorted sets, `PostgreSQL` by SKIP LOCKED, beanstalkd.
//!
//!     cargo run --release --example queues -- [--urls 1000000] [--seconds 5]
//!
//! Each is started on loopback with a fresh folder, filled with the same number
//! of entries, and asked by as many connections as `--clients` says, in batches
//! of 100 and of 1. An item counts when it was leased and given back with a
//! later due time: two calls a batch. A server that is not there is told as
//! "not installed". Durability is said in each row: it differs.

#![allow(clippy::print_stdout, reason = "a program for people")]

mod beanstalkd;
mod ours;
mod postgres;
mod redis;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Leasing and settling beside queue servers.
#[derive(Debug, Clone, Parser)]
pub(crate) struct Args {
    /// Entries of each queue.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) urls: u64,
    /// Seconds that each row is measured.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Connections.
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Where the `PostgreSQL` programs are.
    #[arg(long, default_value = "/usr/lib/postgresql/15/bin")]
    pub(crate) postgres: PathBuf,
}

impl Args {
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Items a second, or why there are none.
pub(crate) type Rate = anyhow::Result<Option<f64>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!("| server | batches of 100, items/s | batches of 1, items/s |\n|---|---:|---:|");
    for durability in ["full", "normal"] {
        let [many, one] = ours::run(&args, durability).await?;
        row(&format!("sitemapd over HTTP, {durability}"), many, one);
    }
    for synced in [true, false] {
        let [many, one] = redis::run(&args, synced).await?;
        let how = if synced { "AOF, synced every second" } else { "no persistence" };
        row(&format!("Redis, Lua, {how}"), many, one);
    }
    for synced in [true, false] {
        let [many, one] = postgres::run(&args, synced)?;
        let how = if synced { "on" } else { "off" };
        row(&format!("PostgreSQL, SKIP LOCKED, synchronous_commit {how}"), many, one);
    }
    let [many, one] = beanstalkd::run(&args).await?;
    row("beanstalkd, log not synced", many, one);
    Ok(())
}

fn row(name: &str, many: Option<f64>, one: Option<f64>) {
    let told = |rate: Option<f64>| match rate {
        Some(rate) => format!("{rate:.0}"),
        None => "not installed".to_owned(),
    };
    println!("| {name} | {} | {} |", told(many), told(one));
}

/// A server of our own, ended when this is dropped.
pub(crate) struct Server(Child);

impl Server {
    /// Starts a program; `None` where it is not installed.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Option<Self>> {
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match started.spawn() {
            Ok(child) => Ok(Some(Self(child))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that nobody has at the moment.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A connection, with what was read of it and not used.
pub(crate) struct Line {
    stream: TcpStream,
    read: Vec<u8>,
    used: usize,
}

impl Line {
    /// Connects as soon as the server listens.
    pub(crate) async fn to(port: u16) -> anyhow::Result<Self> {
        for _ in 0..200 {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).await {
                stream.set_nodelay(true)?;
                return Ok(Self { stream, read: Vec::new(), used: 0 });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("nobody listens on port {port}")
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// The next line, without its end.
    pub(crate) async fn line(&mut self) -> anyhow::Result<String> {
        loop {
            let rest = self.read.get(self.used..).unwrap_or_default();
            if let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
                let text = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
                let text = text.into_owned();
                self.used += end + 2;
                return Ok(text);
            }
            self.more().await?;
        }
    }

    /// So many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> anyhow::Result<Vec<u8>> {
        while self.read.len() < self.used + count {
            self.more().await?;
        }
        let bytes = self.read.get(self.used..self.used + count).context("just read")?.to_vec();
        self.used += count;
        Ok(bytes)
    }

    async fn more(&mut self) -> anyhow::Result<()> {
        self.read.drain(..self.used);
        self.used = 0;
        if self.stream.read_buf(&mut self.read).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}

/// Someone who leases a batch and gives it back; how many there were.
pub(crate) trait Worker: Send + 'static {
    fn round(&mut self, batch: u32) -> impl Future<Output = anyhow::Result<u64>> + Send;
}

/// Lets all workers work for a time.
pub(crate) async fn rate<W: Worker>(workers: Vec<W>, batch: u32, time: Duration) -> Rate {
    let began = Instant::now();
    let mut running = Vec::new();
    for mut worker in workers {
        running.push(tokio::spawn(async move {
            let mut items = 0;
            while began.elapsed() < time {
                items += worker.round(batch).await?;
            }
            anyhow::Ok(items)
        }));
    }
    let mut items = 0;
    for one in running {
        items += one.await??;
    }
    // Far below 2^52.
    #[allow(clippy::cast_precision_loss)]
    let items = items as f64;
    Ok(Some(items / began.elapsed().as_secs_f64()))
}

/// Both rows of a server whose workers one function makes.
pub(crate) async fn both<W: Worker, F: Future<Output = anyhow::Result<W>>>(
    args: &Args,
    connect: impl Fn() -> F,
) -> anyhow::Result<[Option<f64>; 2]> {
    let mut rates = [None, None];
    for (batch, place) in [100, 1].into_iter().zip(&mut rates) {
        let mut workers = Vec::new();
        for _ in 0..args.clients {
            workers.push(connect().await?);
        }
        *place = rate(workers, batch, args.time()).await?;
    }
    Ok(rates)
}
