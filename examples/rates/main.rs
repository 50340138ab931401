//! What the learned order costs: leases, settlements and listings a second with
//! it and with the protocol's, in turns in one process.
//!
//!     cargo run --release --example rates -- [--urls 20000] [--hosts 50] [--rounds 5] [--full] [--api] [--only learned]
//!
//! Each round fills a store of its own for each order. *list*: URLs are listed
//! for the first time. *first*: all of them are leased and settled, which
//! nobody could compare. *again*: a year later, all are leased and settled
//! four times more, as changed or unchanged, and both of it apart where the
//! store is alone. *signals*: the lastmods of all of them move at once, as
//! nothing that could be told from an edit.
//!
//! Two tables come of it: by the processor's time, which is what a busy machine
//! has to give, and by the clock, which is what fetchers wait for. With `--full`
//! each commit is synced, as the daemon does by default; the clock then counts
//! the disk. Quotients are those of the best rounds.
//!
//! One caller leases and settles within this process: that is the store alone. With
//! `--api` it is the whole daemon, with each commit synced, and four fetchers at once
//! over HTTP in this process: their time counts, too.

mod daemon;
#[path = "../scale/http.rs"]
mod http;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::diff::snapshot::{EntryHints, Row};
use sitemapd::metrics::Metrics;
use sitemapd::model::{Lastmod, Outcome, Precision, Priority, Role, UrlId, UrlKind};
use sitemapd::queue::{LeaseRequest, Settlement};
use sitemapd::recrawl::signal::Signal;
use sitemapd::store::views::SourceFilter;
use sitemapd::store::{CHUNK, Effect, Origin, Store};
use sitemapd::url::Admitted;

use crate::daemon::Daemon;

/// URLs of one lease, and reports of one settlement.
const BATCH: u32 = 100;
/// Of these, URLs of one host at a turn.
const PER_HOST: u32 = 10;
/// Milliseconds that the clock is moved between a lease and its settlement.
const STEP: u64 = 50;
/// When the clock of a store starts.
const START: &str = "2026-11-21T00:00:00Z";
/// Between two rounds of fetches: longer than the longest interval.
const YEAR: Duration = Duration::from_secs(366 * 24 * 3_600);
/// What is measured, in its order.
const PARTS: [&str; 6] =
    ["list", "first", "again", "again: leases", "again: settlements", "signals"];

/// An order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Protocol,
    Learned,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Learned => "learned",
        }
    }

    fn named(name: &str) -> anyhow::Result<Self> {
        let all = [Self::Protocol, Self::Learned];
        all.into_iter().find(|order| order.name() == name).context("orders: protocol, learned")
    }
}

#[derive(Debug, Clone, Copy)]
struct Size {
    /// Measure this order only: for a profiler.
    only: Option<Order>,
    /// Sync each commit.
    full: bool,
    /// Over HTTP.
    api: bool,
    urls: usize,
    hosts: usize,
    rounds: usize,
}

/// Microseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    processor: f64,
    clock: f64,
}

impl Cost {
    const NONE: Self = Self { processor: 0.0, clock: 0.0 };
    const WORST: Self = Self { processor: f64::INFINITY, clock: f64::INFINITY };

    fn of(self, urls: usize) -> Self {
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let urls = urls as f64;
        Self { processor: self.processor / urls, clock: self.clock / urls }
    }

    fn add(&mut self, other: Self) {
        self.processor += other.processor;
        self.clock += other.clock;
    }

    fn min(self, other: Self) -> Self {
        let processor = self.processor.min(other.processor);
        Self { processor, clock: self.clock.min(other.clock) }
    }
}

/// One of the two.
type Side = fn(&Cost) -> f64;

/// When something began, by both clocks.
struct Began {
    processor: f64,
    clock: Instant,
}

impl Began {
    fn now() -> Self {
        Self { processor: processor_time(), clock: Instant::now() }
    }

    /// Microseconds since then.
    fn cost(&self) -> Cost {
        Cost {
            processor: (processor_time() - self.processor) * 1e6,
            clock: self.clock.elapsed().as_secs_f64() * 1e6,
        }
    }
}

#[allow(clippy::print_stdout)] // the table is what it is run for
fn main() -> anyhow::Result<()> {
    let size = read_size()?;
    let runtime = if size.api {
        tokio::runtime::Runtime::new()?
    } else {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    };
    let mut best = [[Cost::WORST; PARTS.len()]; 2];
    for round in 1..=size.rounds {
        for (order, best) in [Order::Protocol, Order::Learned].iter().zip(&mut best) {
            if size.only.is_some_and(|only| only != *order) {
                continue;
            }
            let took = runtime.block_on(measure(*order, size))?;
            for (best, took) in best.iter_mut().zip(took) {
                *best = best.min(took);
            }
        }
        eprintln!("round {round} of {}", size.rounds);
    }
    let by: [(&str, Side); 2] =
        [("the processor", |cost| cost.processor), ("the clock", |cost| cost.clock)];
    for (what, of) in by {
        println!("by {what}:");
        println!("| | protocol, us a URL | learned, us a URL | quotient of the rates |");
        println!("|---|---:|---:|---:|");
        for (part, name) in PARTS.iter().enumerate() {
            let (protocol, learned) = (of(&best[0][part]), of(&best[1][part]));
            if name.contains(':') && size.api {
                continue;
            }
            println!("| {name} | {protocol:.2} | {learned:.2} | {:.3} |", protocol / learned);
        }
    }
    Ok(())
}

fn read_size() -> anyhow::Result<Size> {
    let mut size = Size { only: None, full: false, api: false, urls: 20_000, hosts: 50, rounds: 5 };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        if name == "--full" || name == "--api" {
            size.full = true;
            size.api |= name == "--api";
            continue;
        }
        let value = args.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--urls" => size.urls = value.parse()?,
            "--hosts" => size.hosts = value.parse()?,
            "--rounds" => size.rounds = value.parse()?,
            "--only" => size.only = Some(Order::named(&value)?),
            _ => bail!(
                "no argument is named {name}; there is --urls, --hosts, --rounds, --full, --api, \
                 --only"
            ),
        }
    }
    Ok(size)
}

/// One store with one order: what a URL costs, by part.
async fn measure(order: Order, size: Size) -> anyhow::Result<[Cost; PARTS.len()]> {
    let dir = tempfile::TempDir::new()?;
    let config = config(order, size.full, dir.path())?;
    let clock = Clock::manual(START.parse()?);
    let mut queue = if size.api {
        Queue::Daemon(Daemon::start(config, clock.clone()).await?)
    } else {
        Queue::Store(Store::open(&config, clock.clone(), Arc::new(Metrics::new()))?)
    };
    let store = queue.store();
    let origin = origin(&store).await?;

    let began = Began::now();
    let rows = list(&store, origin, size).await?;
    let list = began.cost();

    let began = Began::now();
    queue.fetch_all(&clock, size.urls).await?;
    let first = began.cost();

    let began = Began::now();
    let mut parts = [Cost::NONE; 2];
    for _ in 0..4 {
        clock.advance(YEAR);
        let round = queue.fetch_all(&clock, size.urls).await?;
        parts.iter_mut().zip(round).for_each(|(part, cost)| part.add(cost));
    }
    let (again, [leases, settlements]) = (began.cost(), parts);

    clock.advance(Duration::from_secs(7_200));
    let began = Began::now();
    signal(&store, origin, &rows, clock.now()).await?;
    let signals = began.cost();
    queue.end().await?;
    let (once, often) = (size.urls, 4 * size.urls);
    let [list, first, signals] = [list, first, signals].map(|cost| cost.of(once));
    let [again, leases, settlements] = [again, leases, settlements].map(|cost| cost.of(often));
    Ok([list, first, again, leases, settlements, signals])
}

/// Where URLs are leased.
enum Queue {
    Store(Store),
    Daemon(Daemon),
}

impl Queue {
    fn store(&self) -> Store {
        match self {
            Self::Store(store) => store.clone(),
            Self::Daemon(daemon) => daemon.store.clone(),
        }
    }

    /// Leases and settles until all have been fetched once; gives what the leases and
    /// the settlements cost, where both are not at once.
    async fn fetch_all(&mut self, clock: &Clock, urls: usize) -> anyhow::Result<[Cost; 2]> {
        match self {
            Self::Store(store) => fetch_all(store, clock, urls).await,
            Self::Daemon(daemon) => daemon.fetch_all(urls).await.map(|()| [Cost::NONE; 2]),
        }
    }

    async fn end(self) -> anyhow::Result<()> {
        match self {
            Self::Store(store) => {
                store.close();
                Ok(())
            }
            Self::Daemon(daemon) => daemon.end().await,
        }
    }
}

fn config(order: Order, full: bool, folder: &Path) -> anyhow::Result<Config> {
    let order = order.name();
    let durability = if full { "full" } else { "normal" };
    let text = format!(
        "[listen]\napi = \"127.0.0.1:0\"\n[queue]\norder = \"{order}\"\n[store]\ndurability = \"{durability}\"\n\
         [[site]]\nname = \"a\"\nurl = \"http://a.test/\"\nfeeds = []\nscope = \"any\"\n\
         sitemaps = [\"http://a.test/sitemap.xml\"]\nobey_robots = false\nhost_delay = \"0s\"\n"
    );
    let mut config = Config::from_toml_str(&text)?;
    config.daemon.data_dir = folder.join("data");
    Ok(config)
}

async fn origin(store: &Store) -> anyhow::Result<Origin> {
    let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
    let sources = store.sources(filter).await?.items;
    let sitemap = sources.iter().find(|source| source.role == Role::Sitemap);
    let target = store.poll_target(sitemap.context("the sitemap is registered")?.id).await?;
    Ok(Origin {
        source: target.id,
        site: target.site.context("of a site")?,
        crawl: target.crawl,
        window: false,
        generation: 1,
        moves: Signal::Lastmod,
        stamped: None,
        tenure: target.tenure,
    })
}

/// Lists all URLs; says which row each number has.
async fn list(store: &Store, origin: Origin, size: Size) -> anyhow::Result<Vec<(UrlId, usize)>> {
    let lastmod =
        Some(Lastmod { at: "2026-01-01T00:00:00Z".parse()?, precision: Precision::Second });
    let mut rows = Vec::with_capacity(size.urls);
    let numbers: Vec<usize> = (0..size.urls).collect();
    for part in numbers.chunks(CHUNK) {
        let effects = (0..).zip(part).map(|(slot, number)| Effect::Admit {
            slot,
            url: Admitted {
                // One site after another, as sitemaps are read.
                authority: format!("http://h{}.test", number * size.hosts / size.urls).into(),
                path: format!("/articles/{number}"),
                respelled: false,
            },
            raw: None,
            lastmod,
            hints: EntryHints { changefreq: None, priority: priority(*number) },
            kind: UrlKind::Page,
        });
        let applied = store.apply(origin, effects.collect()).await?;
        rows.extend(applied.rows.into_iter().filter_map(|(slot, row)| match row {
            Row::Url(url) => Some((url, *part.get(slot as usize)?)),
            Row::Rejected(_) => None,
        }));
    }
    Ok(rows)
}

/// Eleven levels, in no order.
fn priority(number: usize) -> Option<Priority> {
    u16::try_from(number * 7919 % 11 * 100).ok().and_then(Priority::from_thousandths)
}

/// What a fetcher finds: a third of the pages is another one each time.
fn changed(url: UrlId) -> bool {
    url.0 % 3 == 0
}

/// The same of the store alone, by one caller.
async fn fetch_all(store: &Store, clock: &Clock, urls: usize) -> anyhow::Result<[Cost; 2]> {
    let mut fetched = 0;
    let [mut leases, mut settlements] = [Cost::NONE; 2];
    while fetched < urls {
        let began = Began::now();
        let batch = store.lease(request()).await?;
        leases.add(began.cost());
        if batch.urls.is_empty() {
            bail!("only {fetched} of {urls} were due");
        }
        fetched += batch.urls.len();
        clock.advance(Duration::from_millis(STEP));
        let reports = batch.urls.into_iter().map(|leased| {
            let outcome = if changed(leased.id) { Outcome::Changed } else { Outcome::Unchanged };
            Settlement {
                status: Some(200),
                content_hash: Some("0123456789abcdef".to_owned()),
                ..Settlement::new(leased.token, Some(outcome))
            }
        });
        let reports = reports.collect();
        let began = Began::now();
        store.settle(reports).await?;
        settlements.add(began.cost());
    }
    Ok([leases, settlements])
}

fn request() -> LeaseRequest {
    LeaseRequest {
        max: BATCH,
        ttl: Duration::from_secs(300),
        per_host: PER_HOST,
        crawl: "default".to_owned(),
        sites: Vec::new(),
        worker: None,
        request_id: None,
    }
}

async fn signal(
    store: &Store,
    origin: Origin,
    rows: &[(UrlId, usize)],
    at: Timestamp,
) -> anyhow::Result<()> {
    let lastmod = Lastmod { at, precision: Precision::Second };
    for part in rows.chunks(CHUNK) {
        let changed = |(url, number): &(UrlId, usize)| Effect::Changed {
            url: *url,
            lastmod,
            hints: EntryHints { changefreq: None, priority: priority(*number) },
        };
        store.apply(origin, part.iter().map(changed).collect()).await?;
    }
    Ok(())
}

/// Seconds that this process has had of the processor.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    // Nanoseconds and seconds of minutes are exact.
    #[allow(clippy::cast_precision_loss)]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}
