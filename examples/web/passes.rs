//! Three passes over the web: the first, one without a change, and one with a
//! URL in a hundred changed.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use jiff::Timestamp;
use sitemapd::app::App;
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::store::Store;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::measure::{self, Meter, Pass};
use crate::site::{Shape, address};
use crate::{Args, Place};

/// A pass that has not ended by then has gone wrong.
const PATIENCE: Duration = Duration::from_secs(900);

/// Runs the daemon against the web, measures each pass and prints them.
pub(crate) async fn run(args: &Args, web: Place) -> anyhow::Result<()> {
    let shape = args.shape();
    println!("{} sites, {} URLs", shape.sites, shape.urls());
    let folder = tempfile::tempdir()?;
    let mut config = Config::from_toml_str(&config(&shape, web.port))?;
    config.daemon.data_dir = folder.path().to_owned();
    let start: Timestamp = "2026-11-21T12:00:00Z".parse()?;
    let clock = Clock::manual(start);
    let app = App::build(config, clock.clone()).await?;
    let meter = Meter::new(app.api_addr(), web);
    let store = app.store().clone();
    let stop = CancellationToken::new();
    let (_reload, reloads) = mpsc::channel(1);
    let running = tokio::spawn(app.run(stop.clone(), reloads));
    let mut passes = Vec::new();
    for (name, version) in [("first", 0), ("no change", 0), ("1 % changed", 1)] {
        meter.set_version(version).await?;
        // Said for whoever has a profiler at hand.
        eprintln!("{name} …");
        let before = meter.look().await?;
        let began = Instant::now();
        if !passes.is_empty() {
            clock.advance(Duration::from_secs(3_700));
        }
        settle(&store, &clock, name).await?;
        passes.push(Pass::between(name, began.elapsed(), &before, &meter.look().await?));
    }
    stop.cancel();
    running.await??;
    measure::print(&passes, args.json);
    Ok(())
}

/// Waits until nothing is due. Asks the store and not the metrics, which count
/// the whole queue each time and would be most of what is measured.
async fn settle(store: &Store, clock: &Clock, name: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut quiet = 0;
    while quiet < 3 {
        if began.elapsed() > PATIENCE {
            bail!("the pass \"{name}\" did not end within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let is_due = store.next_source_due().await?.is_some_and(|at| at <= clock.now());
        quiet = if is_due { 0 } else { quiet + 1 };
    }
    Ok(())
}

/// A site for each address; the clock does not move by itself, so neither
/// delays nor turns may hold anything back.
fn config(shape: &Shape, port: u16) -> String {
    let mut text = format!(
        "[fetch]\nallow = [\"127.1.0.0/16:{port}\"]\n[listen]\napi = \"127.0.0.1:0\"\n\
         [politeness]\nhost_delay = \"0s\"\n"
    );
    for n in 0..shape.sites {
        let address = address(n);
        let _ = write!(
            text,
            "[[site]]\nname = \"site-{n}\"\nurl = \"http://{address}:{port}/\"\npoll = \"1h\"\n"
        );
    }
    text
}
