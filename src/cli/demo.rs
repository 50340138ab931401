//! `sitemapd demo`: the main job on a small example site, without network or
//! configuration.
//!
//! Beside it is a site that lies about when its pages changed. Both are made
//! up, everything else is real: the daemon is the one that
//! `run` runs, on a real database in a temporary folder, and the fetcher uses the
//! HTTP API and nothing else. What is printed is learned over the API too.

mod fetcher;
mod folder;
mod http;
mod liar;
mod narrator;
mod site;
mod story;
mod tally;
mod watcher;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::output::{Output, Tone};
use super::signals::Signals;
use super::{Failure, Options};
use crate::app::{App, AppError};
use crate::clock::Clock;
use crate::config::units::parse_duration;
use crate::config::{Config, Log, LogFormat};
use crate::fetch::Fetcher;
use crate::fetch::api::ApiClient;
use crate::log;
use fetcher::ExampleFetcher;
use folder::Folder;
use liar::Liar;
use narrator::{Event, Narrator};
use site::Site;
use tally::Verdict;

/// Events under way to the screen; the senders wait when it is full.
const EVENTS: usize = 256;
/// Between two looks at what to print; two lines at most each time.
const BEAT: Duration = Duration::from_millis(500);
/// Longest wait for the fetcher to give back what it holds, and for the daemon to end.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// What a fetch must be worth where seconds stand for hours, in days of
/// staleness: at it, pages are looked at again every few seconds.
const PRICE: f64 = 1e-7;
/// Longest run without `--for`: a day is enough for any show.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How long.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// End by itself after this time, such as 15s
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    length: Option<Duration>,
}

/// Everything that runs beside the screen.
struct Stage {
    api: ApiClient,
    liar: Liar,
    daemon: JoinHandle<Result<(), AppError>>,
    stop_daemon: CancellationToken,
    fetcher: JoinHandle<()>,
    /// Stops the story, the watcher and the fetcher, but not site and daemon.
    stop_play: CancellationToken,
    /// Stops the site, which must outlive the fetcher.
    stop_site: CancellationToken,
    events: mpsc::Receiver<Event>,
}

/// Why the show is over.
enum Ending {
    Time,
    Interrupt,
    Daemon(anyhow::Error),
}

/// Runs the demo until its time is over or Ctrl-C comes.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    // A second set-up in one process is no reason not to show anything.
    let log = Log { format: LogFormat::Text, level: "warn".to_owned() };
    let _ = log::init(&log, options.color.is_wanted_on(&std::io::stderr()));
    let folder = Folder::create().context("temporary folder")?;
    let mut stage = Stage::build(&folder, out).await?;
    let mut narrator = Narrator::new(stage.liar.origin.clone());
    let ending = stage.play(args.length.unwrap_or(LONGEST), &mut narrator, out).await?;
    if let Ending::Daemon(error) = ending {
        return Err(error.context("the daemon ended").into());
    }
    if matches!(ending, Ending::Interrupt) {
        out.line("")?;
    }
    let verdict = stage.end(&mut narrator, out).await?;
    narrator.summary(&verdict, out)?;
    out.flush()?;
    if verdict.lost > 0 {
        return Err(anyhow!("{} changes were lost", verdict.lost).into());
    }
    Ok(())
}

impl Stage {
    async fn build(folder: &Folder, out: &mut Output) -> Result<Self, Failure> {
        let clock = Clock::system();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("example site")?;
        let address = listener.local_addr()?;
        let origin = format!("http://{address}");
        let site = Arc::new(Mutex::new(Site::new(origin.clone(), clock.now())));
        let lies = TcpListener::bind("127.0.0.1:0").await.context("lying site")?;
        let lying = lies.local_addr()?;
        let liar = Liar { origin: format!("http://{lying}") };
        let config = config(folder, &address.to_string(), &lying.to_string())?;
        let fetch = Fetcher::new(&config.fetch, &config.daemon, config.politeness.per_address)
            .map_err(|error| anyhow!(error))?;
        let app = App::build(config, clock.clone()).await.map_err(|error| anyhow!(error))?;
        let api_address = format!("http://{}", app.api_addr());
        let api = ApiClient::new(&api_address, None).map_err(|error| anyhow!(error))?;
        introduce(&origin, &liar.origin, &api_address, folder, out)?;

        let (stop_play, stop_site) = (CancellationToken::new(), CancellationToken::new());
        let (sender, events) = mpsc::channel(EVENTS);
        let served = Arc::clone(&site);
        let answer = move |path: &str| lock(&served).answer(path);
        tokio::spawn(http::serve(listener, answer, stop_site.clone()));
        let (liar_served, liar_clock) = (liar.clone(), clock.clone());
        let answer = move |path: &str| liar_served.answer(path, liar_clock.now());
        tokio::spawn(http::serve(lies, answer, stop_site.clone()));
        let stop_daemon = CancellationToken::new();
        let (_, reloads) = mpsc::channel(1);
        let daemon = tokio::spawn(app.run(stop_daemon.clone(), reloads));
        tokio::spawn(tell_story(site, clock.clone(), stop_play.clone()));
        tokio::spawn(watcher::watch(api.clone(), sender.clone(), stop_play.clone()));
        let fetcher = ExampleFetcher { api: api.clone(), fetch, clock, events: sender };
        let fetcher = tokio::spawn(fetcher.run(stop_play.clone()));
        Ok(Self { api, liar, daemon, stop_daemon, fetcher, stop_play, stop_site, events })
    }

    /// Prints what happens until the end.
    async fn play(
        &mut self,
        length: Duration,
        narrator: &mut Narrator,
        out: &mut Output,
    ) -> Result<Ending, Failure> {
        let end = Instant::now() + length;
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut signals = Signals::new().context("signals")?;
        loop {
            tokio::select! {
                ended = &mut self.daemon => return Ok(Ending::Daemon(why(ended))),
                _ = signals.stop() => return Ok(Ending::Interrupt),
                () = sleep_until(end) => return Ok(Ending::Time),
                Some(event) = self.events.recv() => narrator.take(event, out),
                _ = beat.tick() => {
                    narrator.beat(out)?;
                    out.flush()?;
                }
            }
        }
    }

    /// Ends everything in the order that loses nothing, and counts.
    async fn end(mut self, narrator: &mut Narrator, out: &mut Output) -> Result<Verdict, Failure> {
        self.stop_play.cancel();
        // The events end when the fetcher and the watcher have ended.
        let rest = async {
            while let Some(event) = self.events.recv().await {
                narrator.take(event, out);
            }
        };
        let all_told = timeout(LAST_WAIT, rest).await.is_ok();
        if !all_told {
            self.fetcher.abort();
        }
        let verdict = tally::verify(&narrator.tally, &self.api).await?;
        self.stop_daemon.cancel();
        let ended = timeout(LAST_WAIT, &mut self.daemon).await;
        self.stop_site.cancel();
        match ended {
            Ok(Ok(Ok(()))) => Ok(verdict),
            Ok(ended) => Err(why(ended).context("the daemon did not end well").into()),
            Err(_) => {
                self.daemon.abort();
                let waited = LAST_WAIT.as_secs();
                Err(anyhow!("the daemon did not end within {waited} s").into())
            }
        }
    }
}

/// Everything that a demo makes shorter than life, and nothing else.
fn config(folder: &Folder, address: &str, lying: &str) -> Result<Config, Failure> {
    let data_dir = toml::Value::String(folder.path().display().to_string());
    let text = format!(
        r#"
[daemon]
data_dir = {data_dir}
user_agent = "sitemapd-demo/0.1"
[listen]
api = "127.0.0.1:0"
[fetch]
allow = ["{address}", "{lying}"]
[politeness]
host_delay = "100ms"
[poll]
min = "1s"
max = "10s"
first = "1s"
removal_polls = 2
removal_after = "2s"
[recrawl]
min = "1s"
max = "60s"
[recrawl.changefreq]
always = "6s"
hourly = "30s"
daily = "40s"
weekly = "50s"
monthly = "60s"
yearly = "60s"
never = "60s"
absent = "20s"
[queue]
lease = "30s"
[store]
min_free_disk = "1MiB"
[[site]]
name = "example"
url = "http://{address}/"
poll = "2s"
[[site]]
name = "lying"
url = "http://{lying}/"
sitemaps = ["http://{lying}/sitemap.xml"]
feeds = []
poll = "2s"
"#
    );
    let mut config = Config::from_toml_str(&text)?;
    config.recrawl.price = PRICE;
    Ok(config)
}

fn introduce(
    origin: &str,
    lying: &str,
    api: &str,
    folder: &Folder,
    out: &mut Output,
) -> std::io::Result<()> {
    let origin = out.paint(Tone::Note, &format!("{origin}/"));
    let lying = out.paint(Tone::Note, &format!("{lying}/"));
    let heading = out.paint(Tone::Strong, "sitemapd demo");
    out.line(&format!("{heading}  an example site on {origin} and the real daemon on it"))?;
    out.line(&format!("beside it one that lies: {lying} dates every page anew for each reader"))?;
    out.line(&format!(
        "its database is in {} until the end; Ctrl-C ends it",
        folder.path().display()
    ))?;
    out.line("Meanwhile, in another terminal:")?;
    for (what, command) in [
        ("the status page", format!("{api}/")),
        ("the queue in numbers", format!("{api}/v1/queue")),
        ("the metrics", format!("{api}/metrics")),
        ("lease a URL yourself", format!(r#"--json '{{"max":1,"ttl":"10s"}}' {api}/v1/lease"#)),
    ] {
        out.line(&format!("  {:<21} {}", what, out.paint(Tone::Note, &format!("curl {command}"))))?;
    }
    out.line("")?;
    out.flush()
}

/// Lets the site change step by step.
async fn tell_story(site: Arc<Mutex<Site>>, clock: Clock, stop: CancellationToken) {
    let mut steps = interval(story::STEP);
    for step in 0.. {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = steps.tick() => {}
        }
        // The first tick is at once, and the site is as it is.
        if step > 0 {
            story::advance(&mut lock(&site), step, clock.now());
        }
    }
}

/// The site is whole after any panic of another holder: each step is one call.
fn lock(site: &Mutex<Site>) -> std::sync::MutexGuard<'_, Site> {
    site.lock().unwrap_or_else(PoisonError::into_inner)
}

fn why(ended: Result<Result<(), AppError>, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow!("without being told to"),
        Ok(Err(error)) => anyhow!(error),
        Err(error) => anyhow!(error),
    }
}
