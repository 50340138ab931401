//! `sitemapd config check`: validates, prints the resolved values, and says
//! when each cron line fires next.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::humane;
use super::output::{Output, Tone};
use super::source_of_truth::{config_path, load_config, no_config};
use super::{Failure, Options};
use crate::app::check_files;
use crate::clock::Clock;
use crate::config::{self, Config, PollRule};
use crate::schedule::cron::CronSpec;

/// How many times of a cron line are shown.
const TIMES: usize = 3;

/// Why defaults are not all well: who checks a file before a start means one.
const NO_FILE: &str = "nothing to check, and `sitemapd run` would refuse";

/// What to do with the configuration.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Validate it, and print the resolved values and the next times of each cron line
    Check,
}

/// Checks the configuration. Headers of sites are secrets and are not printed.
pub fn run(command: &Command, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let Command::Check = command;
    let config = load_config(options)?;
    check_files(&config)?;
    let now = Clock::system().now();
    let resolved = config::resolved_toml(&config);
    let warnings = config::warnings(&config);
    let crons = crons(&config, now);
    if options.json {
        let values: toml::Table = toml::from_str(&resolved)
            .map_err(|error| anyhow::anyhow!("the resolved values cannot be read back: {error}"))?;
        let crons: serde_json::Map<_, _> = crons
            .into_iter()
            .map(|(site, times)| (site, times.iter().map(|at| format!("{at:.3}")).collect()))
            .collect();
        out.json(&json!({ "config": values, "warnings": warnings, "cron": crons }))?;
        return if config_path(options).is_some() { Ok(()) } else { Err(no_config(NO_FILE)) };
    }
    out.line(resolved.trim_end())?;
    for (site, times) in crons {
        let zone = config.sites.get(&site).map_or(TimeZone::UTC, |site| site.timezone.clone());
        let times: Vec<String> = times.into_iter().map(|at| local(at, &zone)).collect();
        let site = out.paint(Tone::Strong, &site);
        out.line(&format!("# {site} is polled next at {}", times.join(", ")))?;
    }
    for warning in warnings {
        out.toned(Tone::Warn, &format!("# warning: {}", humane::safe(&warning)))?;
    }
    let Some(path) = config_path(options) else {
        out.line("# these are the defaults")?;
        return Err(no_config(NO_FILE));
    };
    let name = humane::safe(&path.display().to_string());
    let sites = humane::count(config.sites.len() as u64, "site", "sites");
    let fine = out.paint(Tone::Good, "is valid");
    Ok(out.line(&format!("# {name} {fine}: {sites}"))?)
}

/// The next times of each site that has a cron line.
fn crons(config: &Config, now: Timestamp) -> Vec<(String, Vec<Timestamp>)> {
    config
        .sites
        .values()
        .filter_map(|site| match &site.poll {
            PollRule::Cron(cron) => Some((site.name.clone(), times(cron, &site.timezone, now))),
            PollRule::Adaptive | PollRule::Every(_) => None,
        })
        .collect()
}

fn times(cron: &CronSpec, zone: &TimeZone, now: Timestamp) -> Vec<Timestamp> {
    std::iter::successors(cron.next_after(now, zone), |at| cron.next_after(*at, zone))
        .take(TIMES)
        .collect()
}

/// An instant as the clocks of a zone show it.
fn local(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()
}
