//! The daemon under measurement: the one that `sitemapd run` starts, in a
//! process of its own, on a clock that is moved by hand; all else is real.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sitemapd::app::App;
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::fetch::resolver::Lookup;
use sitemapd::store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::input::{Shape, name};
use crate::look::Look;
use crate::web::manner;

/// When the clock of the first stage starts.
const START: &str = "2026-11-21T12:00:00Z";
/// Progress is shown of what takes longer: most rounds do not, and opening a store
/// for it is no part of them.
const SHOWN: Duration = Duration::from_secs(1);
/// All sources are due again after this.
pub(crate) const ROUND: Duration = Duration::from_secs(1_000);
/// A pass that has not ended by then has gone wrong.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// How the daemon is set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) folder: std::path::PathBuf,
    pub(crate) shape: Shape,
    pub(crate) port: u16,
    /// The database of a server that has the store; none: a file.
    pub(crate) postgres: Option<String>,
    pub(crate) durability: String,
    /// Minutes after the first stage at which its clock starts.
    pub(crate) minutes: i64,
}

/// A daemon that runs.
pub(crate) struct Daemon {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) api: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<Result<(), sitemapd::app::AppError>>,
    _reload: mpsc::Sender<sitemapd::app::Reload>,
    setup: Setup,
}

impl Daemon {
    pub(crate) async fn start(setup: Setup) -> anyhow::Result<Self> {
        let mut config = Config::from_toml_str(&config(&setup))?;
        config.daemon.data_dir.clone_from(&setup.folder);
        config.store.url = setup.postgres.as_deref().map(str::parse).transpose()?;
        let start: Timestamp = START.parse()?;
        let clock = Clock::manual(start + jiff::SignedDuration::from_mins(setup.minutes));
        let here: Lookup =
            Arc::new(|_| Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) }));
        let app = App::build_with(config, clock.clone(), here).await?;
        let (api, store) = (app.api_addr(), app.store().clone());
        let stop = CancellationToken::new();
        let (reload, reloads) = mpsc::channel(1);
        let running = tokio::spawn(app.run(stop.clone(), reloads));
        Ok(Self { store, clock, api, stop, running, _reload: reload, setup })
    }

    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.running.await??;
        Ok(())
    }

    pub(crate) fn shape(&self) -> Shape {
        self.setup.shape
    }

    /// Tells the web what to serve from now on.
    pub(crate) async fn serve(&self, version: u64, manner: u64) -> anyhow::Result<()> {
        let url = format!("http://127.0.0.1:{}/set/{version}/{manner}", self.setup.port);
        let client = sitemapd::fetch::tls::client().no_proxy().build()?;
        client.post(url).send().await?.error_for_status()?;
        Ok(())
    }

    /// Lets all sources come due and waits until none is.
    pub(crate) async fn pass(&self, told: &str) -> anyhow::Result<()> {
        self.clock.advance(ROUND);
        self.settle(told).await
    }

    /// Waits until nothing is due.
    pub(crate) async fn settle(&self, told: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        let all = self.setup.shape.files;
        let mut quiet = 0;
        while quiet < 3 {
            if began.elapsed() > PATIENCE {
                bail!("the pass \"{told}\" did not end within {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            let due = self.store.next_source_due().await?;
            let is_due = due.is_some_and(|at| at <= self.clock.now());
            quiet = if is_due { 0 } else { quiet + 1 };
            if began.elapsed().as_millis() % 1_000 < 25 {
                // Moved by hand in the moment in which the loop falls asleep, the
                // clock wakes it only when it is moved again.
                self.clock.advance(Duration::from_secs(1));
                if began.elapsed() >= SHOWN {
                    let ended = polls(&self.connect()?)?;
                    eprint!("\r{told}: {ended} polls so far, {all} files  ");
                }
            }
        }
        eprintln!("\r{told}: {:.1} s                    ", began.elapsed().as_secs_f64());
        Ok(())
    }

    /// A connection of our own, to check what the daemon says of itself.
    pub(crate) fn connect(&self) -> anyhow::Result<Look> {
        Look::at(&self.setup)
    }
}

/// Polls that have ended so far.
fn polls(look: &Look) -> anyhow::Result<i64> {
    look.number("SELECT coalesce(max(id), 0) FROM polls")
}

/// A site for each index. One poll a round, removal at once, so that a pass
/// shows all that a read may come to.
fn config(setup: &Setup) -> String {
    let Setup { shape, port, durability, .. } = setup;
    let delay = if shape.hosts > shape.sites { "1s" } else { "0s" };
    let mut text = format!(
        "[fetch]\nallow = [\"127.0.0.1:{port}\"]\n[listen]\napi = \"127.0.0.1:0\"\n\
         [politeness]\nhost_delay = \"{delay}\"\nper_address = 64\nper_host = 100\n\
         [store]\ndurability = \"{durability}\"\n\
         [poll]\nremoval_polls = 1\nremoval_after = \"0s\"\n"
    );
    for site in 0..shape.sites {
        let url = format!("http://{}:{port}", name(site));
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "[[site]]\nname = \"site-{site}\"\nurl = \"{url}/\"\npoll = \"15m\"\nscope = \"any\"\n\
             twins = \"separate\"\nsitemaps = [\"{url}/index-{site}.xml\"]\nfeeds = []\n\
             max_urls = 1000000000\nhost_delay = \"0s\"\n"
        );
    }
    text
}

/// What the system says that this process has used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    at: Instant,
    processor: f64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        // Nanoseconds and seconds of hours are exact.
        #[allow(clippy::cast_precision_loss)]
        let processor = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        Self { at: Instant::now(), processor }
    }

    /// Seconds by the clock and on the processor since then.
    pub(crate) fn since(self) -> (f64, f64) {
        let now = Self::now();
        (now.at.duration_since(self.at).as_secs_f64(), now.processor - self.processor)
    }
}

/// Highest resident memory of this process since it was last forgotten, in MB
/// of a million bytes.
pub(crate) fn peak_mb() -> anyhow::Result<f64> {
    memory_mb("VmHWM:")
}

/// Resident memory of this process now.
pub(crate) fn resident_mb() -> anyhow::Result<f64> {
    memory_mb("VmRSS:")
}

/// From now on the peak is counted anew.
pub(crate) fn forget_peak() {
    // Where the system refuses, the peak is that of the whole process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn memory_mb(key: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(key)).context("no such figure")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kib * 1_024.0 / 1e6)
}

/// What the web serves before it lists anything.
pub(crate) const NOTHING_YET: u64 = manner::HOSTS;
