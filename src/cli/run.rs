//! `sitemapd run`: the daemon as a process.
//!
//! Configuration, then logs, then the app; SIGHUP reloads, SIGTERM and SIGINT
//! stop it and let it drain, a second one ends it at once. A reload that fails
//! changes nothing. Where systemd started us, it is told how we are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::signals::{Heard, Signals};
use super::source_of_truth::{DEFAULT_CONFIG, config_path, env_of, refuse_api};
use super::systemd::{ask_for_time, give_signs_of_life, tell, tell_reloading};
use super::{Failure, Options};
use crate::app::{App, AppError, Reload, TokenInUse, read_token};
use crate::clock::Clock;
use crate::config::reload::{self, ReloadPlan};
use crate::config::{self, Config, ConfigError, Env, Log, LogFormat};
use crate::log::{self, LogHandle};
use crate::serve::ApiToken;
use crate::store::Store;

/// Longest wait for the app to drain, over its own deadline of 10 s.
const DRAIN: Duration = Duration::from_secs(12);

/// Who gives an address of a daemon to `run` takes it for the address to listen on.
const NOT_BY_API: &str = "--api is where commands find a daemon; where one listens says listen.api of the \
                          configuration, or SITEMAPD__LISTEN__API";

/// Keys of a site that decide which URLs it admits.
const NARROWING: [&str; 10] = [
    "url",
    "hosts",
    "twins",
    "scope",
    "include",
    "exclude",
    "normalise",
    "strip_params",
    "follow",
    "max_urls",
];

/// Runs until told to stop.
pub async fn run(options: &Options) -> Result<(), Failure> {
    refuse_api(options, NOT_BY_API)?;
    let Some(path) = config_path(options) else {
        return Err(Failure::NoConfig(format!(
            "no {DEFAULT_CONFIG} in the current folder: name a file with --config, or begin with \
             a copy of config.example.toml (to see it work without any: sitemapd demo)"
        )));
    };
    let env = env_of(options);
    let config = Config::load(&path, &env)?;
    let colours = options.color.is_wanted_on(&std::io::stderr());
    let logs = log::init(&config.log, colours).map_err(|error| anyhow!(error))?;
    info!(version = env!("CARGO_PKG_VERSION"), config = %path.display(), "sitemapd starts");
    for warning in config::warnings(&config) {
        warn!("{warning}");
    }
    raise_open_files();
    // Before anything that takes time: a signal that nobody has asked for ends us.
    let mut signals = Signals::new().context("signals")?;
    let building = App::build(config.clone(), Clock::system());
    let app = tokio::select! {
        built = building => built?,
        // The database may be away for as long as it likes.
        name = signals.stop() => {
            info!(signal = name, "stopped before it began");
            return Ok(());
        }
        never = ask_for_time() => match never {},
    };
    info!(api = %app.api_addr(), sites = config.sites.len(), "listening");
    if let Some(public) = app.public_addr() {
        info!(public = %public, "listening to webmasters");
    }
    if let Some(grpc) = app.grpc_addr() {
        info!(grpc = %grpc, "listening to clients of the frontier");
    }
    let turned = logs.clone();
    app.set_levels_by(Arc::new(move |level| {
        let log = Log { level: level.to_owned(), format: LogFormat::Text };
        turned.apply(&log).map_err(|error| error.to_string())
    }));
    let store = app.store().clone();
    let stop = CancellationToken::new();
    // One reload at a time: the next waits in the signal.
    let (reloads, received) = mpsc::channel(1);
    let token = app.token();
    let mut reloader = Reloader { path, env, current: config, logs, store, token, reloads };
    let liveness = app.liveness();
    let mut running = tokio::spawn(app.run(stop.clone(), received));
    tell(&[NotifyState::Ready]);
    // Ends with the process: a daemon that drains still lives.
    tokio::spawn(give_signs_of_life(liveness));
    let signal = loop {
        tokio::select! {
            ended = &mut running => return finish(ended),
            heard = signals.next() => match heard {
                Heard::Reload => {
                    // It may take as long as a busy database does.
                    tokio::select! {
                        () = reloader.reload() => {}
                        ended = &mut running => return finish(ended),
                        name = signals.stop() => break name,
                    }
                }
                Heard::Stop(name) => break name,
            }
        }
    };
    info!(signal, "stopping");
    tell(&[NotifyState::Stopping]);
    stop.cancel();
    drain(&mut running, &mut signals).await
}

/// Takes as many open files as are allowed: each poll and each fetcher holds
/// one, and shells give 1,024 to begin with.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, ..limit };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, limit = limit.current, "the limit of open files stays as it is");
        }
    }
}

/// Waits for the app to end, but not for ever, and not against a second signal.
async fn drain(
    running: &mut JoinHandle<Result<(), AppError>>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let deadline = Instant::now() + DRAIN;
    tokio::select! {
        ended = running => finish(ended),
        name = signals.stop() => Err(anyhow!("stopped at once by a second {name}").into()),
        () = sleep_until(deadline) => {
            let waited = DRAIN.as_secs();
            Err(anyhow!("did not stop within {waited} s; unfinished polls are repeated").into())
        }
    }
}

fn finish(ended: Result<Result<(), AppError>, tokio::task::JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(Ok(())) => {
            info!("stopped");
            Ok(())
        }
        Ok(Err(error)) => Err(anyhow!(error).into()),
        Err(error) => Err(anyhow!(error).context("the daemon broke off").into()),
    }
}

/// Takes a changed config file over.
struct Reloader {
    path: PathBuf,
    /// What stands over the file, at a reload as at the start.
    env: Env,
    current: Config,
    logs: LogHandle,
    store: Store,
    token: TokenInUse,
    reloads: mpsc::Sender<Reload>,
}

impl Reloader {
    async fn reload(&mut self) {
        info!(config = %self.path.display(), "reloading");
        tell_reloading();
        if let Err(error) = self.try_reload().await {
            // A fault of the configuration tells its cause itself.
            let is_told = error.is::<ConfigError>();
            let why = if is_told { error.to_string() } else { format!("{error:#}") };
            error!("nothing is changed: {why}");
        }
        tell(&[NotifyState::Ready]);
    }

    /// Reads the file again and hands it to the daemon.
    async fn try_reload(&mut self) -> anyhow::Result<()> {
        let next = Config::load(&self.path, &self.env)?;
        let plan = reload::plan(&self.current, &next);
        // Of the file that holds until a restart, which may hold another token by now.
        let token = read_token(&self.current)?;
        if plan.is_empty() {
            // But for what a client of the frontier has set until now.
            self.logs.apply(&next.log)?;
            if self.take_token(token) {
                info!("reloaded");
            } else {
                info!("reloaded: nothing has changed");
            }
            return Ok(());
        }
        let (done, heard) = oneshot::channel();
        let reload = Reload { config: next.clone(), done };
        self.reloads.send(reload).await.context("the daemon is stopping")?;
        heard.await.context("the daemon is stopping")?.context("the old config holds")?;
        // Of a config that is refused nothing comes.
        self.announce(&plan).await;
        for warning in config::warnings(&next) {
            warn!("{warning}");
        }
        self.logs.apply(&next.log)?;
        self.take_token(token);
        // What still waits for a restart is told again by the next reload.
        self.current = reload::until_restart(&self.current, next);
        info!("reloaded");
        Ok(())
    }

    /// Has the API ask for this token from now on. Is it another one than before?
    fn take_token(&self, token: ApiToken) -> bool {
        let is_new = self.token.set(token);
        if is_new {
            info!("the API asks for another token from now on");
        }
        is_new
    }

    /// Says what a change that was taken will do.
    async fn announce(&self, plan: &ReloadPlan) {
        if !plan.restart_needed.is_empty() {
            warn!(keys = plan.restart_needed.join(", "), "these keys need a restart");
        }
        if !plan.live.is_empty() {
            info!(keys = plan.live.join(", "), "these keys hold at once");
        }
        for site in &plan.sites_added {
            info!(site, "a new site, polled from now on");
        }
        for site in &plan.sites_removed {
            let urls = self.urls_of(site).await;
            warn!(
                site,
                urls,
                "a site that is no longer polled or leased; its URLs stay until `sitemapd sites forget {site}`"
            );
        }
        for (site, keys) in &plan.sites_changed {
            info!(site, keys = keys.join(", "), "a changed site");
            if keys.iter().any(|key| NARROWING.contains(&key.as_str())) {
                let urls = self.urls_of(site).await;
                info!(
                    site,
                    urls,
                    "its sources are read in full again, and of its URLs those go that the rules no longer admit; \
                     those of sources that it has no longer stay for a week"
                );
            }
        }
    }

    /// URLs kept of a site; `None` when the store does not say.
    async fn urls_of(&self, site: &str) -> Option<u64> {
        self.store.site(site.to_owned()).await.ok().map(|view| view.urls)
    }
}
