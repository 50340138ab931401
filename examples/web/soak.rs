//! A long run beside sites that misbehave: what must stay flat, and does it?

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sitemapd::app::App;
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::hostile;
use crate::measure::{self, Meter};
use crate::site::address;
use crate::{Args, Place};

/// Each hostile site is asked for again after this.
const AGAIN: Duration = Duration::from_secs(30);
/// Between two lines of the table, and two changes of the web.
const REPORT: Duration = Duration::from_secs(60);

/// Polls for `time` and prints a line a minute.
pub(crate) async fn run(args: &Args, time: Duration, web: Place) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).init();
    let folder = tempfile::tempdir()?;
    let mut config = Config::from_toml_str(&config(args, web.port))?;
    config.daemon.data_dir = folder.path().to_owned();
    let app = App::build(config, Clock::system()).await?;
    let meter = Meter::new(app.api_addr(), web);
    let stop = CancellationToken::new();
    let (_reload, reloads) = mpsc::channel(1);
    let running = tokio::spawn(app.run(stop.clone(), reloads));
    let began = Instant::now();
    let (mut asked, mut reported) = (began, began);
    let (mut slowest, mut version) = (Duration::ZERO, 0);
    println!(
        "{:>6} {:>8} {:>8} {:>8} {:>9} {:>10}",
        "min", "polls", "RSS MB", "files", "CPU s", "health ms"
    );
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_secs(1)).await;
        slowest = slowest.max(meter.health().await?);
        if asked.elapsed() >= AGAIN {
            asked = Instant::now();
            for n in 0..args.hostile {
                meter.poll_site(&format!("hostile-{n}")).await?;
            }
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            version += 1;
            meter.set_version(version).await?;
            let look = meter.look().await?;
            println!(
                "{:>6} {:>8} {:>8.1} {:>8} {:>9.1} {:>10}",
                began.elapsed().as_secs() / 60,
                look.polls(),
                measure::resident_mb()?,
                std::fs::read_dir("/proc/self/fd").context("no list of files")?.count(),
                look.cpu_s(),
                slowest.as_millis(),
            );
            slowest = Duration::ZERO;
        }
    }
    println!("{}", meter.results().await?);
    println!("inner address touched: {} times", meter.touched().await?);
    stop.cancel();
    running.await??;
    Ok(())
}

fn config(args: &Args, port: u16) -> String {
    let mut text = format!(
        "[fetch]\nallow = [\"127.1.0.0/16:{port}\", \"127.2.0.0/16:{port}\"]\ntotal_timeout = \"20s\"\n\
         [listen]\napi = \"127.0.0.1:0\"\n[politeness]\nhost_delay = \"1s\"\n"
    );
    let good = (0..args.sites).map(|n| (format!("site-{n}"), address(n)));
    let bad = (0..args.hostile).map(|n| (format!("hostile-{n}"), hostile::address(n)));
    for (name, address) in good.chain(bad) {
        let _ = write!(
            text,
            "[[site]]\nname = \"{name}\"\nurl = \"http://{address}:{port}/\"\npoll = \"30s\"\nmax_sources = 20\n"
        );
    }
    text
}
