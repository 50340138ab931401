//! Reading, holding and leasing millions of URLs: all figures by one command.
//!
//!     cargo run --release --example scale -- --urls 5000000 [--json FILE]
//!
//! The input is generated, the same each time: indexes of sitemaps of 50,000
//! URLs, packed, in two versions (`input`). A process of its own serves it on
//! loopback; the daemon, another process for each stage, is the one that
//! `sitemapd run` starts, on a clock that is moved by hand. What it says, and
//! what its database holds, is compared with what was generated: a count that
//! differs ends the run. Three layouts: *few*, 20 hosts without delay; *many*,
//! a thousand hosts a file with the default delay; *one*, a single host.
//!
//! Beside the rows of reading stand those of Scrapy's parser with sqlite3
//! (`peer.py`), where `--python` names an interpreter that has Scrapy. Queue
//! servers are measured by the example `queues`.

#![allow(clippy::print_stdout, reason = "a program for people")]

mod daemon;
mod http;
mod ingest;
mod input;
mod leasing;
mod look;
mod report;
mod table;
mod web;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::Parser;
use serde::de::DeserializeOwned;

use daemon::Setup;
use ingest::Ingested;
use input::{PER_FILE, Shape, Truth};
use leasing::{Leased, Load};
use report::{Figures, Layout, Peer};

/// Minutes after the first stage at which leasing begins.
const LATER: i64 = 600;

/// Reading, holding and leasing millions of URLs.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// URLs in all, in files of 50,000.
    #[arg(long, default_value_t = 5_000_000)]
    urls: u64,
    /// Which layouts: few, many, one.
    #[arg(long, value_delimiter = ',', default_value = "few,many,one")]
    layouts: Vec<String>,
    /// What is measured: reading, leasing, training. Leasing needs reading.
    #[arg(long, value_delimiter = ',', default_value = "reading,leasing,training")]
    parts: Vec<String>,
    /// Where files and stores are kept while it runs; about 400 bytes a URL.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The port that all hosts have.
    #[arg(long, default_value_t = 27_182)]
    port: u16,
    /// An interpreter that has Scrapy.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// URLs of each layout that the peer reads, no more than there are; 0 for
    /// none. Its table of URLs grows slower with its size, as ours do.
    #[arg(long, default_value_t = 5_000_000)]
    peer_urls: u64,
    /// Where the figures go for machines.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Have the store in this database of a server, whose schema `public` is
    /// emptied, and not in a file.
    #[arg(long)]
    postgres: Option<String>,
    /// Be one stage, as JSON says.
    #[arg(long, hide = true)]
    stage: Option<String>,
    /// Be the web.
    #[arg(long, hide = true)]
    web: bool,
}

/// What a process of its own does; its answer is one line of JSON.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Stage {
    Ingest(Setup, [Truth; 2]),
    /// The same up to the first pass: for a profiler.
    Cold(Setup, [Truth; 2]),
    Lease(Setup, Load),
    Beside(Setup),
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if let Some(stage) = &args.stage {
            return be(serde_json::from_str(stage)?).await;
        }
        if args.web {
            let folder = args.folder.clone().context("the web needs a folder")?;
            let layout = args.layouts.first().context("the web needs a layout")?;
            return web::serve(folder, shape(layout, args.urls)?, args.port).await;
        }
        measure(&args).await
    })
}

/// A line for whoever started this process.
pub(crate) fn say(line: &str) {
    println!("{line}");
}

async fn be(stage: Stage) -> anyhow::Result<()> {
    let answer = match stage {
        Stage::Ingest(setup, truths) => serde_json::to_string(&ingest::run(setup, truths).await?)?,
        Stage::Cold(setup, truths) => serde_json::to_string(&ingest::cold(setup, truths).await?)?,
        Stage::Lease(setup, load) => serde_json::to_string(&leasing::run(setup, load).await?)?,
        Stage::Beside(setup) => serde_json::to_string(&leasing::beside_reading(setup).await?)?,
    };
    say(&answer);
    Ok(())
}

fn shape(layout: &str, urls: u64) -> anyhow::Result<Shape> {
    let files = (urls / PER_FILE).max(1);
    let sites = if layout == "one" { 1 } else { files.min(20) };
    let hosts = match layout {
        "many" => files * 1_000,
        "few" | "one" => sites,
        _ => anyhow::bail!("no layout is named {layout}; there is few, many, one"),
    };
    Ok(Shape { files, sites, hosts })
}

async fn measure(args: &Args) -> anyhow::Result<()> {
    let temporary;
    let folder = if let Some(folder) = &args.folder {
        folder.clone()
    } else {
        temporary = tempfile::tempdir()?;
        temporary.path().to_owned()
    };
    let mut figures = Figures { urls: args.urls, ..Figures::default() };
    for name in &args.layouts {
        let shape = shape(name, args.urls)?;
        let files = folder.join(format!("{name}-{}", args.urls));
        let truths = generate(shape, &files, args.port).await?;
        let reads = args.parts.iter().any(|part| part == "reading" || part == "cold");
        let peer = (reads && args.peer_urls > 0).then(|| peer(args, &files)).transpose()?;
        let web = Web::start(args, name, &files)?;
        let done = layout(args, shape, &folder.join("store"), truths);
        drop(web);
        figures.layouts.push(Layout { name: name.clone(), shape, peer, figures: done? });
        // Shown as they come: the whole takes many minutes.
        eprintln!("{}", table::text(&report::rows(&figures)));
        if args.folder.is_none() {
            std::fs::remove_dir_all(&files)?;
        }
    }
    let rows = report::rows(&figures);
    println!("{}", table::text(&rows));
    if let Some(file) = &args.json {
        let all = serde_json::json!({ "rows": rows, "figures": figures });
        std::fs::write(file, serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}

/// Files of both versions, and what is in them; those of an earlier run with
/// the same folder are taken.
async fn generate(shape: Shape, files: &Path, port: u16) -> anyhow::Result<[Truth; 2]> {
    let manifest = files.join("truth.json");
    if let Ok(text) = std::fs::read_to_string(&manifest) {
        return Ok(serde_json::from_str(&text)?);
    }
    std::fs::create_dir_all(files)?;
    let mut truths = [Truth::default(); 2];
    for (version, truth) in (1..).zip(&mut truths) {
        let told = |done| eprint!("\rgenerating version {version}: {done} of {} ", shape.files);
        *truth = shape.write(files, port, version, told).await?;
        eprintln!();
    }
    std::fs::write(manifest, serde_json::to_string(&truths)?)?;
    Ok(truths)
}

/// All stages of one layout.
fn layout(
    args: &Args,
    shape: Shape,
    store: &Path,
    truths: [Truth; 2],
) -> anyhow::Result<report::OfLayout> {
    let setup = |durability: &str, minutes| Setup {
        folder: store.to_owned(),
        shape,
        port: args.port,
        postgres: args.postgres.clone(),
        durability: durability.to_owned(),
        minutes,
    };
    let fresh = || -> anyhow::Result<()> {
        if let Some(url) = &args.postgres {
            look::clear(url)?;
        }
        match std::fs::remove_dir_all(store) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    };
    let part = |name: &str| args.parts.iter().any(|part| part == name);
    let mut done = report::OfLayout::default();
    if part("cold") {
        fresh()?;
        done.ingested = Some(in_process::<Ingested>(&Stage::Cold(setup("full", 0), truths))?);
    }
    if part("reading") {
        fresh()?;
        done.ingested = Some(in_process::<Ingested>(&Stage::Ingest(setup("full", 0), truths))?);
    }
    if part("leasing") {
        let some = (truths[0].urls / 5).min(400_000);
        let load = |clients, batch, urls, over_http| Load { clients, batch, urls, over_http };
        // Each begins behind the one before, and all before anything is polled again.
        for (minute, (durability, load)) in (LATER..).zip([
            ("full", load(4, 100, some, false)),
            ("normal", load(4, 100, some, false)),
            ("full", load(16, 100, some, true)),
            ("full", load(16, 1, some.min(100_000), true)),
        ]) {
            eprintln!("leasing, {durability}: {load:?}");
            let leased: Leased = in_process(&Stage::Lease(setup(durability, minute), load))?;
            done.leased.push((durability.to_owned(), load, leased));
        }
    }
    if part("training") {
        eprintln!("every URL is leased and settled once");
        let load = Load { clients: 4, batch: 1_000, urls: 0, over_http: false };
        done.trained = Some(in_process(&Stage::Lease(setup("normal", LATER + 10), load))?);
        done.trained_size = Some(ingest::size(&setup("full", 0), truths[0].urls + shape.hosts)?);
    }
    if part("leasing") {
        fresh()?;
        done.beside = Some(in_process(&Stage::Beside(setup("full", 0)))?);
    }
    fresh()?;
    Ok(done)
}

/// Runs a stage in a process of its own.
fn in_process<T: DeserializeOwned>(stage: &Stage) -> anyhow::Result<T> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--stage", &serde_json::to_string(stage)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "a stage failed: {stage:?}");
    let text = String::from_utf8(output.stdout)?;
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

/// Scrapy and sqlite3 on the same files.
fn peer(args: &Args, files: &Path) -> anyhow::Result<Peer> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scale/peer.py");
    let count = (args.peer_urls.min(args.urls) / PER_FILE).max(1).to_string();
    let output = Command::new(&args.python)
        .arg(script)
        .arg(files)
        .arg(count)
        .stderr(Stdio::inherit())
        .output();
    let Ok(output) = output else { return Ok(Peer::default()) };
    ensure!(output.status.success(), "the peer failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The web, ended when this is dropped.
struct Web(Child);

impl Web {
    fn start(args: &Args, layout: &str, files: &Path) -> anyhow::Result<Self> {
        let mut web = Command::new(std::env::current_exe()?)
            .args(["--web", "--urls", &args.urls.to_string(), "--layouts", layout])
            .args(["--port", &args.port.to_string(), "--folder"])
            .arg(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = web.stdout.take().context("the web has no output")?;
        BufReader::new(stdout).lines().next().context("the web did not start")??;
        Ok(Self(web))
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
