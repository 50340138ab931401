//! What several daemons on one database lease and settle: in batches, in this
//! process, each daemon by its own workers, for so long; and how the rate of the
//! end compares with that of the beginning, as dead rows gather at the heads of
//! queues.
//!
//! `cargo run --release --example shared -- --postgres postgres://… --daemons 1,2,4`

// What it prints is what it is for.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;
use sitemapd::app::App;
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{ChangeFreq, Outcome, Priority, Role, UrlKind};
use sitemapd::queue::{LeaseRequest, Settlement, TokenResult};
use sitemapd::recrawl::signal::Signal;
use sitemapd::store::views::SourceFilter;
use sitemapd::store::{CHUNK, Effect, Origin, Store};
use sitemapd::url::Admitted;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

/// Hosts that the URLs lie on.
const HOSTS: u64 = 1_000;

#[derive(Parser)]
struct Args {
    /// A database that may be written to; each run makes a schema of its own.
    #[arg(long)]
    postgres: String,
    /// How many daemons, one run each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    daemons: Vec<usize>,
    /// URLs of each run.
    #[arg(long, default_value_t = 200_000)]
    urls: u64,
    /// How long each run leases and settles.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Workers of each daemon.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// URLs of a batch.
    #[arg(long, default_value_t = 100)]
    batch: u32,
    /// `full` or `normal`.
    #[arg(long, default_value = "full")]
    durability: String,
    /// Goes before the name of each schema.
    #[arg(long, default_value = "shared")]
    schema: String,
}

/// A daemon that runs.
struct Running {
    store: Store,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), sitemapd::app::AppError>>,
    /// Kept, or no reload could come, and it would be told so.
    _reloads: mpsc::Sender<sitemapd::app::Reload>,
    _folder: tempfile::TempDir,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!("{} URLs on {HOSTS} hosts, batches of {}, {}", args.urls, args.batch, args.durability);
    for &count in &args.daemons {
        let (first, last, mean) = run(&args, count).await?;
        println!(
            "{count} daemons: {mean:>8.0} URL/s leased and settled; first sixth {first:.0}, last \
             sixth {last:.0} ({:.2})",
            last / first
        );
    }
    Ok(())
}

/// The rates of the first and the last sixth, and of all.
async fn run(args: &Args, count: usize) -> anyhow::Result<(f64, f64, f64)> {
    let clock = Clock::manual("2026-11-21T12:00:00Z".parse()?);
    let schema = format!("{}_{count}", args.schema);
    make_schema(&args.postgres, &schema).await?;
    let mut daemons = Vec::new();
    for _ in 0..count {
        daemons.push(start(args, &schema, &clock).await?);
    }
    while daemons[0].store.status().await?.nodes.iter().map(|node| node.partitions).min()
        != u32::try_from(256 / count).ok()
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fill(&daemons[0].store, args.urls).await?;
    clock.advance(Duration::from_secs(1));
    let settled = Arc::new(AtomicU64::new(0));
    let stop = CancellationToken::new();
    // Who finds nothing due lets all be due again, one at a time.
    let turn = Arc::new(Mutex::new(0_u64));
    let mut workers = Vec::new();
    for daemon in &daemons {
        for _ in 0..args.workers {
            let (store, stop, settled) = (daemon.store.clone(), stop.clone(), settled.clone());
            let (clock, turn, batch) = (clock.clone(), turn.clone(), args.batch);
            workers.push(tokio::spawn(async move {
                work(store, stop, settled, clock, turn, batch).await
            }));
        }
    }
    let part = Duration::from_secs(args.seconds) / 6;
    let mut rates = Vec::new();
    for _ in 0..6 {
        let (before, began) = (settled.load(Ordering::Relaxed), Instant::now());
        tokio::time::sleep(part).await;
        let done = settled.load(Ordering::Relaxed) - before;
        rates.push(f64::from(u32::try_from(done)?) / began.elapsed().as_secs_f64());
    }
    stop.cancel();
    for worker in workers {
        worker.await??;
    }
    for Running { stop, task, .. } in daemons {
        stop.cancel();
        task.await??;
    }
    let mean = rates.iter().sum::<f64>() / 6.0;
    Ok((rates[0], rates[5], mean))
}

async fn make_schema(url: &str, schema: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let sql = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}");
    Ok(client.batch_execute(&sql).await?)
}

async fn start(args: &Args, schema: &str, clock: &Clock) -> anyhow::Result<Running> {
    let folder = tempfile::tempdir()?;
    let mark = if args.postgres.contains('?') { '&' } else { '?' };
    let text = format!(
        "[listen]\napi = \"127.0.0.1:0\"\n[store]\ndurability = \"{}\"\n\
         url = \"{}{mark}options=-csearch_path%3D{schema}\"\n[queue]\norder = \"protocol\"\n\
         [[site]]\nname = \"a\"\nurl = \"http://a.test/\"\nfeeds = []\nscope = \"any\"\n\
         sitemaps = [\"http://a.test/sitemap.xml\"]\nobey_robots = false\nhost_delay = \"0s\"\n\
         max_urls = 1000000000\n",
        args.durability, args.postgres
    );
    let mut config = Config::from_toml_str(&text)?;
    config.daemon.data_dir = folder.path().to_owned();
    let app = App::build(config, clock.clone()).await?;
    let (store, stop) = (app.store().clone(), CancellationToken::new());
    let (keep, reloads) = mpsc::channel(1);
    let task = tokio::spawn(app.run(stop.clone(), reloads));
    Ok(Running { store, stop, task, _reloads: keep, _folder: folder })
}

/// Lists so many URLs.
async fn fill(store: &Store, urls: u64) -> anyhow::Result<()> {
    let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
    let sources = store.sources(filter).await?.items;
    let sitemap = sources.iter().find(|source| source.role == Role::Sitemap);
    let target = store.poll_target(sitemap.context("the sitemap is registered")?.id).await?;
    let origin = Origin {
        source: target.id,
        site: target.site.context("of a site")?,
        crawl: target.crawl,
        window: false,
        generation: 1,
        moves: Signal::Lastmod,
        stamped: None,
        // Whoever has the source's partition, these are its effects.
        tenure: 0,
    };
    let hosts: Vec<Arc<str>> = (0..HOSTS).map(|n| format!("http://h{n}.test").into()).collect();
    let numbers: Vec<u64> = (0..urls).collect();
    for part in numbers.chunks(CHUNK) {
        let effects = (0..).zip(part).filter_map(|(slot, number)| {
            let hints = EntryHints {
                changefreq: Some(ChangeFreq::Hourly),
                priority: Priority::from_thousandths(u16::try_from(number % 11 * 100).ok()?),
            };
            Some(Effect::Admit {
                slot,
                url: Admitted {
                    authority: Arc::clone(hosts.get(usize::try_from(number % HOSTS).ok()?)?),
                    path: format!("/articles/some-article-{number}.html"),
                    respelled: false,
                },
                raw: None,
                lastmod: None,
                hints,
                kind: UrlKind::Page,
            })
        });
        let applied = store.apply(origin, effects.collect()).await?;
        ensure!(applied.rows.len() == part.len(), "all are taken in");
    }
    Ok(())
}

async fn work(
    store: Store,
    stop: CancellationToken,
    settled: Arc<AtomicU64>,
    clock: Clock,
    turn: Arc<Mutex<u64>>,
    batch: u32,
) -> anyhow::Result<()> {
    while !stop.is_cancelled() {
        let seen = *turn.lock().await;
        let request = LeaseRequest {
            max: batch,
            ttl: Duration::from_secs(12 * 3_600),
            per_host: batch,
            crawl: "default".to_owned(),
            sites: Vec::new(),
            worker: None,
            request_id: None,
        };
        let leased = store.lease(request).await?.urls;
        if leased.is_empty() {
            let mut turn = turn.lock().await;
            if *turn == seen {
                *turn += 1;
                clock.advance(Duration::from_secs(2 * 3_600));
            }
            continue;
        }
        let reports = leased.iter().map(|url| report(url.token)).collect();
        let results = store.settle(reports).await?;
        ensure!(results.iter().all(|result| *result == TokenResult::Ok), "all are settled");
        settled.fetch_add(leased.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn report(token: sitemapd::queue::Token) -> Settlement {
    Settlement { status: Some(200), ..Settlement::new(token, Some(Outcome::Unchanged)) }
}
