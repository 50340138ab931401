//! Draft main.
#![allow(clippy::print_stdout, reason = "a program for people")]

mod daemon;
mod ingest;
mod input;
mod web;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use clap::Parser;

use daemon::Setup;
use input::{PER_FILE, Shape, Truth};

#[derive(Debug, Parser)]
struct Args {
    #[arg(long, default_value_t = 5_000_000)]
    urls: u64,
    #[arg(long, default_value_t = 27_182)]
    port: u16,
    #[arg(long)]
    folder: Option<PathBuf>,
    #[arg(long, default_value = "few")]
    layout: String,
    #[arg(long, hide = true)]
    web: bool,
}

pub(crate) fn say(line: &str) {
    println!("{line}");
}

fn shape(layout: &str, urls: u64) -> Shape {
    let files = (urls / PER_FILE).max(1);
    let sites = if layout == "one" { 1 } else { files.min(20) };
    let hosts = if layout == "many" { files * 1000 } else { sites };
    Shape { files, sites, hosts }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let shape = shape(&args.layout, args.urls);
    let folder = args.folder.clone().context("folder")?;
    if args.web {
        return web::serve(folder, shape, args.port).await;
    }
    std::fs::create_dir_all(&folder)?;
    let manifest = folder.join(format!("truth-{}-{}.json", args.layout, args.urls));
    let files = folder.join(format!("files-{}-{}", args.layout, args.urls));
    let truths: [Truth; 2] = if let Ok(text) = std::fs::read_to_string(&manifest) {
        serde_json::from_str(&text)?
    } else {
        std::fs::create_dir_all(&files)?;
        let a = shape.write(&files, args.port, 1, |n| eprint!("\r{n} files")).await?;
        let b = shape.write(&files, args.port, 2, |n| eprint!("\r{n} files")).await?;
        std::fs::write(&manifest, serde_json::to_string(&[a, b])?)?;
        [a, b]
    };
    let mut web = start_web(&args, &files)?;
    let store = folder.join("store");
    let _ = std::fs::remove_dir_all(&store);
    let setup = Setup { folder: store, shape, port: args.port, durability: "full", hours: 0 };
    let done = ingest::run(setup, truths).await;
    web.kill()?;
    web.wait()?;
    let done = done?;
    for (name, pass) in [
        ("hosts", done.hosts),
        ("cold", done.cold),
        ("unchanged", done.unchanged),
        ("second", done.second),
        ("removal", done.removal),
    ] {
        println!(
            "{name:10} {:>10} {:7.2} s {:7.2} cpu s {:>10.0}/s {:6.2} us",
            pass.entries,
            pass.seconds,
            pass.processor,
            pass.rate(),
            pass.cost()
        );
    }
    println!(
        "304 {:.3} ms equal {:.3} ms peak {:.0} MB {:.1} B/url {:?}",
        done.not_modified_ms, done.equal_ms, done.peak_mb, done.bytes_per_url, done.parts
    );
    Ok(())
}

fn start_web(args: &Args, files: &Path) -> anyhow::Result<Child> {
    let mut web = Command::new(std::env::current_exe()?)
        .args(["--web", "--urls", &args.urls.to_string(), "--layout", &args.layout])
        .args(["--port", &args.port.to_string(), "--folder"])
        .arg(files)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = web.stdout.take().context("the web has no output")?;
    BufReader::new(stdout).lines().next().context("the web did not start")??;
    Ok(web)
}
