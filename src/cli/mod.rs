//! The command line: what a person can ask, and how it is answered.
//!
//! One file per subcommand. Commands that change something ask the running
//! daemon over its API; those that read do so too, or look into the store when
//! no daemon runs. Everything printed goes through [`output::Output`].

pub mod answers;
pub mod backup;
pub mod check;
pub mod config;
pub mod demo;
pub mod discover;
pub mod export;
pub mod generate;
pub mod humane;
pub mod import;
pub mod migrate;
pub mod order;
pub mod output;
pub mod poll;
pub mod question;
pub mod queue;
pub mod run;
mod signals;
pub mod sites;
pub mod source_of_truth;
pub mod sources;
pub mod status;
mod systemd;
pub mod table;
pub mod url;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::app::AppError;
use crate::config::ConfigError;
use output::{Color, Output};

/// Longest wait for threads that are still at work when all is said.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Polls sitemaps and feeds, knows what changed, and says which URL to fetch next.
#[derive(Debug, clap::Parser)]
#[command(
    name = "sitemapd",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 78 wrong configuration.\n\
                  Try it without network or configuration: sitemapd demo"
)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub options: Options,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Configuration file [default: config.toml in the current folder]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "SITEMAPD_CONFIG",
        value_parser = path_or_nothing(),
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Address of the daemon's API [default: the configuration's]
    #[arg(long, global = true, value_name = "URL", env = "SITEMAPD_API", hide_env_values = true)]
    pub api: Option<String>,
    /// File that holds the API's token [default: the variable's token, else, without --api, the
    /// configuration's]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "SITEMAPD_TOKEN_FILE",
        value_parser = path_or_nothing(),
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// Print JSON where a table or a report would be
    #[arg(long, global = true)]
    pub json: bool,
    /// Use colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t = Color::Auto,
        hide_possible_values = true
    )]
    pub color: Color,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run the daemon
    Run,
    /// Show the whole on a small example site: no network, no configuration
    Demo(demo::Args),
    /// Read a sitemap, feed or robots.txt as the daemon would, and report on it
    Check(check::Args),
    /// Find the sitemaps and feeds of a new site
    #[command(
        about = "Find the sitemaps and feeds of a new site, and print a [[site]] block for it"
    )]
    Discover(discover::Args),
    /// Poll a site or a source now, and show what changed
    ///
    /// The daemon polls it, so one has to run.
    Poll(poll::Args),
    /// List the sites
    Sites(sites::Args),
    /// List the sitemaps and feeds
    Sources(sources::Args),
    /// Show the whole at a glance
    Status,
    /// Show all that is known of one URL, and why it is due when it is
    Url(url::Args),
    /// Look into the crawl queue, or change it
    #[command(subcommand)]
    Queue(queue::Command),
    /// Write all that is known of every URL, as JSON lines or CSV
    Export(export::Args),
    /// Take in past fetches from a crawl log, so that the order starts trained
    Import(import::Args),
    /// Copy the store to a file, while the daemon runs or not
    Backup(backup::Args),
    /// Copy the store from its file to a PostgreSQL database
    Migrate(migrate::Args),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config::Command),
    /// Make completions for shells, and manual pages
    #[command(subcommand)]
    Generate(generate::Command),
}

/// Why a command failed; the variants are the exit codes.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What was asked for cannot be; the text says what can.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A configuration is needed, and there is none.
    #[error("{0}")]
    NoConfig(String),
    /// The configuration names what is not as it must be.
    #[error("{0}")]
    Misconfigured(AppError),
    /// It did not work.
    #[error("{}", with_causes(.0))]
    Runtime(#[from] anyhow::Error),
    /// It did not work, and all is said already.
    #[error("failed")]
    Reported,
}

impl Failure {
    /// The exit code of the process: `EX_CONFIG` of sysexits.h for a wrong
    /// configuration, clap's own code for wrong usage.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Runtime(_) | Self::Reported => 1,
            Self::Usage(_) => 2,
            Self::Config(_) | Self::NoConfig(_) | Self::Misconfigured(_) => 78,
        }
    }

    /// Did the reader of our output go away? Then it had enough, and all is well.
    pub fn is_broken_pipe(&self) -> bool {
        let Self::Runtime(error) = self else { return false };
        error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        if error.is_config() { Self::Misconfigured(error) } else { Self::Runtime(error.into()) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Runtime(error.into())
    }
}

/// An error and its causes, each said once: some say their cause themselves.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Does what the command line says, on a runtime of its own.
///
/// Not `async`: what is awaited is compiled where it is awaited, which would be in the
/// program, once the library is done.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(obey(cli));
    runtime.shutdown_timeout(LAST_WAIT);
    result
}

/// A path, or the nothing of a variable that is set to nothing.
fn path_or_nothing() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl Options {
    /// A variable that is set to nothing is as if it were not set: in images and compose
    /// files there is no other way to take one back. An option that is given says
    /// something.
    fn without_nothings(mut self) -> Result<Self, Failure> {
        let is_nothing = |name: &str| std::env::var_os(name).is_some_and(|value| value.is_empty());
        let config = self.config.as_ref().is_some_and(|path| path.as_os_str().is_empty());
        let token_file = self.token_file.as_ref().is_some_and(|path| path.as_os_str().is_empty());
        let api = self.api.as_ref().is_some_and(String::is_empty);
        for (is_empty, option, variable) in [
            (config, "--config", "SITEMAPD_CONFIG"),
            (token_file, "--token-file", "SITEMAPD_TOKEN_FILE"),
            (api, "--api", "SITEMAPD_API"),
        ] {
            if is_empty && !is_nothing(variable) {
                return Err(Failure::Usage(format!("{option} names nothing")));
            }
        }
        self.config = self.config.filter(|_| !config);
        self.token_file = self.token_file.filter(|_| !token_file);
        self.api = self.api.filter(|_| !api);
        Ok(self)
    }
}

async fn obey(cli: Cli) -> Result<(), Failure> {
    let options = &cli.options.without_nothings()?;
    if matches!(cli.command, Command::Run) {
        return run::run(options).await;
    }
    let mut out = Output::stdout(options.color);
    match cli.command {
        Command::Run => {}
        Command::Demo(args) => demo::run(&args, options, &mut out).await?,
        Command::Check(args) => check::run(&args, options, &mut out).await?,
        Command::Discover(args) => discover::run(&args, options, &mut out).await?,
        Command::Poll(args) => poll::run(&args, options, &mut out).await?,
        Command::Sites(args) => sites::run(&args, options, &mut out).await?,
        Command::Sources(args) => sources::run(&args, options, &mut out).await?,
        Command::Status => status::run(options, &mut out).await?,
        Command::Url(args) => url::run(&args, options, &mut out).await?,
        Command::Queue(command) => queue::run(&command, options, &mut out).await?,
        Command::Export(args) => export::run(&args, options, &mut out).await?,
        Command::Import(args) => import::run(&args, options, &mut out).await?,
        Command::Backup(args) => backup::run(&args, options, &mut out).await?,
        Command::Migrate(args) => migrate::run(&args, options, &mut out).await?,
        Command::Config(command) => config::run(&command, options, &mut out)?,
        Command::Generate(command) => generate::run(&command, &mut out)?,
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_cause_that_is_said_already_is_not_said_again() {
        let twice = anyhow!("disk full").context("store: disk full");
        assert_eq!(Failure::from(twice).to_string(), "store: disk full");
        let once = anyhow!("disk full").context("store");
        assert_eq!(Failure::from(once).to_string(), "store: disk full");
    }

    #[test]
    fn a_reader_that_went_away_is_told_from_other_failures() {
        let pipe = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(pipe.is_broken_pipe());
        assert!(!Failure::from(io::Error::other("disk")).is_broken_pipe());
        assert!(!Failure::Usage("broken pipe".to_owned()).is_broken_pipe());
    }
}
