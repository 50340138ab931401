//! `sitemapd backup`: a copy of the store, beside a running daemon or without one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::json;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use super::output::Output;
use super::signals::Stops;
use super::source_of_truth::refuse_api;
use super::{Failure, Options, humane};
use crate::store::StoreError;
use crate::store::backup::{Stop, backup};

/// Between two words to a copy that is to stop.
const AGAIN: Duration = Duration::from_millis(50);

/// Why no other machine's store is copied.
const NOT_BY_API: &str = "--api is where commands find a daemon; the copy is made of the store on this \
                          machine, which daemon.data_dir of the configuration names";

/// Where to.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File to write; it must not be there yet
    file: PathBuf,
}

/// Writes the copy, on this machine only: the store is a file of it.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    refuse_api(options, NOT_BY_API)?;
    let config = super::source_of_truth::load_config_to_ask(options)?;
    if config.store.url.is_some() {
        let why =
            "the store is in a PostgreSQL database: copy it by the server's means, as pg_dump";
        return Err(anyhow!(why).into());
    }
    let bytes = copy(&config.daemon.data_dir, &args.file).await?;
    let file = args.file.display().to_string();
    if options.json {
        return Ok(out.json(&json!({"file": file, "bytes": bytes}))?);
    }
    let size = humane::bytes(bytes);
    Ok(out.line(&format!("{}: {size}, whole and synced", humane::safe(&file)))?)
}

/// Copies, or stops at a signal and leaves nothing behind; a second one ends it at once.
async fn copy(folder: &Path, file: &Path) -> Result<u64, Failure> {
    let mut stops = Stops::new()?;
    let (folder, file) = (folder.to_owned(), file.to_owned());
    let stop = Arc::new(Stop::default());
    let heard = Arc::clone(&stop);
    let mut copying = spawn_blocking(move || backup(&folder, &file, &heard));
    let name = tokio::select! {
        copied = &mut copying => return finish(copied),
        name = stops.next() => name,
    };
    tokio::select! {
        copied = end(&mut copying, &stop) => finish(copied).map_err(|failure| {
            Failure::Runtime(anyhow!("{name}: {failure}"))
        }),
        name = stops.next() => Err(anyhow!("ended at once by a second {name}").into()),
    }
}

type Copied = Result<Result<u64, StoreError>, tokio::task::JoinError>;

async fn end(copying: &mut JoinHandle<Result<u64, StoreError>>, stop: &Stop) -> Copied {
    loop {
        stop.ask();
        tokio::select! {
            copied = &mut *copying => return copied,
            () = sleep(AGAIN) => {}
        }
    }
}

fn finish(copied: Copied) -> Result<u64, Failure> {
    Ok(copied.map_err(anyhow::Error::from)?.map_err(anyhow::Error::from)?)
}
