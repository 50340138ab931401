//! A simulated web on loopback, polled by the real daemon.
//!
//! `cargo run --release --example web` makes a thousand sites of 50 to 50,000
//! URLs (robots.txt, home page, sitemap or index with children, a feed), each
//! on an address of its own, and polls them three times: for the first time,
//! when nothing has changed, and when one URL in a hundred has. The web is
//! another process, so that CPU and memory are the daemon's own. The daemon is
//! the one that `sitemapd run` starts, on a clock that is moved by hand, so
//! that the sources come due when a pass begins; all else is real.
//!
//! With `--soak 30m --hostile 200 --sites 50` the clock is the real one, and
//! hostile sites are polled over and over beside the others, while memory, open
//! files and the time that a health check takes are watched.

#![allow(clippy::print_stdout, reason = "a program for people")]

mod hostile;
mod measure;
mod passes;
mod site;
mod soak;
mod web;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use clap::Parser;

use site::Shape;

/// A simulated web, polled by the real daemon.
#[derive(Debug, Parser)]
struct Args {
    /// How many sites there are.
    #[arg(long, default_value_t = 1_000)]
    sites: u32,
    /// URLs of the smallest site.
    #[arg(long, default_value_t = 50)]
    least: u32,
    /// URLs of the largest site.
    #[arg(long, default_value_t = 50_000)]
    most: u32,
    /// Print the passes as JSON too.
    #[arg(long)]
    json: bool,
    /// Sites that misbehave, in 28 ways; only with a soak.
    #[arg(long, default_value_t = 0)]
    hostile: u32,
    /// Poll over and over for so long, instead of three passes.
    #[arg(long, value_parser = sitemapd::config::units::parse_duration)]
    soak: Option<std::time::Duration>,
    /// Be the web, not the daemon.
    #[arg(long, hide = true)]
    web: bool,
}

/// Where the web is.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The port that all its addresses share.
    port: u16,
    /// Its process.
    process: u32,
}

impl Args {
    fn shape(&self) -> Shape {
        Shape { sites: self.sites, least: self.least, most: self.most.max(self.least) }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.web {
        return web::serve(args.shape(), args.hostile).await;
    }
    let (mut web, port) = start_web(&args)?;
    let place = Place { port, process: web.id() };
    let done = match args.soak {
        Some(time) => soak::run(&args, time, place).await,
        None => passes::run(&args, place).await,
    };
    web.kill()?;
    web.wait()?;
    done
}

/// Starts this program once more as the web; it says where it listens, and ends
/// when its input does, however this process ends.
fn start_web(args: &Args) -> anyhow::Result<(Child, u16)> {
    let mut web = Command::new(std::env::current_exe()?)
        .args(["--web", "--sites", &args.sites.to_string()])
        .args(["--least", &args.least.to_string(), "--most", &args.most.to_string()])
        .args(["--hostile", &args.hostile.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = web.stdout.take().context("the web has no output")?;
    let line = BufReader::new(stdout).lines().next().context("the web did not start")??;
    let port = line.parse()?;
    Ok((web, port))
}
