//! `sitemapd migrate`: the store, from its file to a database of a server.
//!
//! Keeps: no password is printed. Given again, the same order goes on.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, json};
use url::Url;

use super::output::Output;
use super::source_of_truth::refuse_api;
use super::{Failure, Options, humane};
use crate::store::migrate::{Copied, Migrated, Migration, Progress};

/// Between two lines of progress.
const LINE: Duration = Duration::from_secs(2);

/// From where to where.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub struct Args {
    /// The file, or the data folder that has it [default: the configuration's]
    #[arg(long, value_name = "sqlite:PATH")]
    from: Option<String>,
    /// The database, empty as yet [default: the configuration's store.url]
    #[arg(long, value_name = "postgres://…")]
    to: Option<String>,
}

/// Why the store of no daemon that runs is migrated.
const NOT_BY_API: &str = "--api is where commands find a daemon; a store is migrated while none runs on it, \
                          from --from, or daemon.data_dir of the configuration, to --to, or its store.url";

const NOTES: &str = "The daemon of the file must have ended, and none may run on the database. Broken off at any \
moment, the same order goes on where it stood; until the end no daemon takes the database. \
The file is read and not changed; one that an older version wrote is refused until its \
daemon, of this version, was started on it once. URLs that are with fetchers are queued \
again: their tokens hold no longer. Numbers of sources and URLs are others there. A password \
on the command line is seen by others on this machine: store.url keeps it in the \
configuration.";

/// Copies.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    refuse_api(options, NOT_BY_API)?;
    let (from, to) = from_and_to(args, options)?;
    let began = Instant::now();
    let copying = tokio::task::spawn_blocking(move || {
        let mut lines = Lines::default();
        Migration::new(&from, &to).run(&mut |progress| lines.tell(progress))
    });
    let migrated = copying.await.map_err(anyhow::Error::from)?.map_err(anyhow::Error::from)?;
    match migrated {
        Migrated::Whole(copied) => report(&copied, began.elapsed(), options, out),
        Migrated::Already if options.json => Ok(out.json(&json!({ "already": true }))?),
        Migrated::Already => Ok(out.line("the database has all of this file already")?),
        Migrated::Stopped => Err(Failure::Usage("it was stopped: give the order again".to_owned())),
    }
}

fn from_and_to(args: &Args, options: &Options) -> Result<(PathBuf, Url), Failure> {
    let from = args.from.as_deref().map(path_of).transpose()?;
    let to = args.to.as_deref().map(url_of).transpose()?;
    if let (Some(from), Some(to)) = (&from, &to) {
        return Ok((from.clone(), to.clone()));
    }
    let config = super::source_of_truth::load_config_to_ask(options)?;
    let to = to.or(config.store.url).ok_or_else(|| {
        Failure::Usage("the configuration has no store.url: say --to postgres://…".to_owned())
    })?;
    Ok((from.unwrap_or(config.daemon.data_dir), to))
}

fn path_of(text: &str) -> Result<PathBuf, Failure> {
    let path = text.strip_prefix("sqlite:").filter(|path| !path.is_empty());
    path.map(|path| Path::new(path.strip_prefix("//").unwrap_or(path)).to_owned())
        .ok_or_else(|| Failure::Usage("--from is sqlite: and the path of the file".to_owned()))
}

fn url_of(text: &str) -> Result<Url, Failure> {
    let parsed = Url::parse(text).ok();
    parsed
        .filter(|url| matches!(url.scheme(), "postgres" | "postgresql"))
        .ok_or_else(|| Failure::Usage("--to is postgres://user@host:port/database".to_owned()))
}

fn report(
    copied: &Copied,
    took: Duration,
    options: &Options,
    out: &mut Output,
) -> Result<(), Failure> {
    let rows: u64 = copied.tables.iter().map(|(_, rows)| rows).sum();
    if options.json {
        let tables: Map<String, serde_json::Value> =
            copied.tables.iter().map(|(name, rows)| ((*name).to_owned(), json!(rows))).collect();
        return Ok(out.json(&json!({
            "rows": rows,
            "tables": tables,
            "requeued": copied.leases,
            "looked_up": copied.looked_up,
            "seconds": took.as_secs_f64(),
        }))?);
    }
    let mut of_tables = copied.tables.clone();
    of_tables.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
    for (name, rows) in of_tables {
        out.line(&format!("{name:<16} {:>15}", humane::number(rows)))?;
    }
    if copied.leases > 0 {
        let urls = humane::count(copied.leases, "URL was", "URLs were");
        out.line(&format!("{urls} with fetchers, and may be leased again"))?;
    }
    Ok(out.line(&format!(
        "{} in {}, counted there, {} looked up by their text: the database is a store",
        humane::count(rows, "row", "rows"),
        humane::duration(took),
        humane::count(copied.looked_up, "URL", "URLs"),
    ))?)
}

/// Lines for who watches.
#[derive(Default)]
struct Lines {
    /// When copying began, and how many rows were there.
    began: Option<(Instant, u64)>,
    last: Option<Instant>,
}

impl Lines {
    fn tell(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Surveying => line("looks the file over"),
            Progress::Verifying => line("compares both"),
            Progress::Copying { table, rows: (rows, of), total: (there, all) } => {
                let (began, before) = *self.began.get_or_insert_with(|| (Instant::now(), there));
                if self.last.is_some_and(|last| last.elapsed() < LINE) {
                    return;
                }
                self.last = Some(Instant::now());
                let table = format!("{table}: {} of {}", humane::number(rows), humane::number(of));
                line(
                    &(table
                        + &pace(
                            there.saturating_sub(before),
                            all.saturating_sub(there),
                            began.elapsed(),
                        )),
                );
            }
        }
    }
}

/// How fast it goes, and how long it will.
fn pace(copied: u64, left: u64, took: Duration) -> String {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let speed = copied.saturating_mul(1_000).checked_div(millis).unwrap_or(0);
    let left_in = left.checked_div(speed).map(|secs| humane::duration(Duration::from_secs(secs)));
    let left = humane::number(left);
    match left_in {
        Some(time) => format!("; {} rows/s, {left} rows left: {time}", humane::number(speed)),
        None => format!("; {left} rows left"),
    }
}

fn line(text: &str) {
    // Nobody reads it: the work goes on.
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_is_a_path_and_to_is_a_database() {
        for (text, path) in
            [("sqlite:data/sitemapd.db", "data/sitemapd.db"), ("sqlite:///var/s.db", "/var/s.db")]
        {
            assert_eq!(path_of(text).unwrap(), Path::new(path));
        }
        assert!(path_of("data/sitemapd.db").is_err() && path_of("sqlite:").is_err());
        assert!(url_of("postgres://u@localhost/db").is_ok());
        assert!(url_of("mysql://localhost/db").is_err() && url_of("db").is_err());
    }

    #[test]
    fn the_pace_is_of_this_run_and_none_is_said_before_anything_came() {
        let second = Duration::from_secs(1);
        assert_eq!(pace(5_000, 600_000, second), "; 5,000 rows/s, 600,000 rows left: 2 min");
        assert_eq!(pace(0, 7, second), "; 7 rows left");
        assert_eq!(pace(0, 7, Duration::ZERO), "; 7 rows left");
    }
}
