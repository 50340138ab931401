//! `sitemapd backup`: a copy of the store, beside a running daemon or without one.

use std::path::PathBuf;

use anyhow::anyhow;
use serde_json::json;

use super::output::Output;
use super::{Failure, Options, humane};
use crate::store::backup::backup;

/// Where to.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File to write; it must not be there yet
    file: PathBuf,
}

/// Writes the copy, on this machine only: the store is a file of it.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let config = super::source_of_truth::load_config_to_ask(options)?;
    if config.store.url.is_some() {
        let why =
            "the store is in a PostgreSQL database: copy it by the server's means, as pg_dump";
        return Err(anyhow!(why).into());
    }
    let (folder, file) = (config.daemon.data_dir, args.file.clone());
    let copied = tokio::task::spawn_blocking(move || backup(&folder, &file)).await;
    let bytes = copied.map_err(anyhow::Error::from)?.map_err(anyhow::Error::from)?;
    let file = args.file.display().to_string();
    if options.json {
        return Ok(out.json(&json!({"file": file, "bytes": bytes}))?);
    }
    let size = humane::bytes(bytes);
    Ok(out.line(&format!("{}: {size}, whole and synced", humane::safe(&file)))?)
}
