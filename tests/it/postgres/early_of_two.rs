//! Two daemons on one store, called in random orders while a price falls and rises, one of
//! them ends, is taken over or loses its connection: what holds of a queue holds whoever is
//! asked, and nothing is lost.

mod rules;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use sitemapd::config::Config;
use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{Lastmod, Outcome, Precision, SourceId};
use sitemapd::queue::{LeaseRequest, Leased, Settlement, Token, TokenResult};
use sitemapd::store::{Effect, Store};
use tempfile::TempDir;

use crate::support::PATIENCE;
use crate::support::daemon::{Daemon, World};
use crate::support::engine::{self, Look};
use crate::support::lease_history::Dice;
use crate::support::queue_daemon::{Queue, ask, report, site};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const CRAWL: &str = "default";
const SITES: [&str; 3] = ["a", "b", "c"];
/// How long a lease lasts.
const TTL: Duration = Duration::from_secs(300);
/// Between two requests to `c.test`.
const DELAY: Duration = Duration::from_secs(2);
/// Within which prices stay that are kept.
const LOWEST: f64 = 0.06;
const HIGHEST: f64 = 1_000.0;
/// Hosts beside those that sites have their homes on, and URLs of each.
const HOSTS: usize = 8;
const URLS: usize = 12;

/// What is known of a page without asking the queue.
#[derive(Debug, Default)]
struct Page {
    site: &'static str,
    out: Option<Out>,
    /// Deliveries without success, where that is known.
    attempts: Option<u32>,
    /// What its fetcher asked for.
    floor: Option<Timestamp>,
    /// A day after it was refused to its fetcher.
    refused: Option<Timestamp>,
    /// Has somebody asked for it while it was out?
    asked: bool,
    /// Did its last lease come to nothing?
    nothing: bool,
    gone: bool,
}

#[derive(Debug, Clone)]
struct Out {
    token: Token,
    until: Timestamp,
    attempt: u32,
}

/// The place of a daemon, and the daemon while it is up.
struct Node {
    config: Config,
    daemon: Option<Daemon>,
    _folder: TempDir,
}

struct Run {
    world: World,
    look: Look,
    nodes: [Node; 2],
    dice: Dice,
    pages: BTreeMap<String, Page>,
    blocks: Vec<(String, bool)>,
    paused_sites: Vec<&'static str>,
    /// No host is asked before.
    clocks: BTreeMap<String, Timestamp>,
    /// The lowest price since the last call.
    lowest: f64,
    early: usize,
    log: Vec<String>,
}

fn host_of(url: &str) -> String {
    let end = url.match_indices('/').nth(2).unwrap().0;
    url[..end].to_owned()
}

fn sites() -> String {
    let delay = format!("host_delay = \"{}s\"", DELAY.as_secs());
    [
        site("a", "http://a.test/", ""),
        site("b", "http://b.test/", ""),
        site("c", "http://c.test/", &delay),
    ]
    .concat()
}

/// What each site lists.
fn listed() -> Vec<(&'static str, String)> {
    let spread = (0..HOSTS * URLS).map(|n| {
        // Every other of them is of two sites.
        let host = n % HOSTS;
        let name = if host.is_multiple_of(2) && n.is_multiple_of(3) { "b" } else { "a" };
        (name, format!("http://h{host}.test/{n}"))
    });
    let at_home = SITES
        .into_iter()
        .flat_map(|name| (0..2 * URLS).map(move |n| (name, format!("http://{name}.test/{n}"))));
    spread.chain(at_home).collect()
}

impl Run {
    /// None where there is no server.
    async fn new(seed: u64) -> Option<Self> {
        let world = World::with_names(&[]);
        let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        engine::server_for(folders[0].path())?;
        let mut dice = Dice::new(seed);
        let queue = Queue::open_on(&sites(), world.clock.clone()).await;
        let mut pages = BTreeMap::new();
        for (name, url) in listed() {
            queue.list_urls(name, [url.clone()]).await;
            pages.insert(url, Page { site: name, attempts: Some(0), ..Page::default() });
        }
        look_at_all(&queue, &mut dice, &[Outcome::Unknown]).await;
        for _ in 0..4 {
            queue.clock.advance(20 * DAY);
            look_at_all(&queue, &mut dice, &[Outcome::Changed, Outcome::Unchanged]).await;
        }
        queue.look().change("UPDATE prices SET price = 100 * price");
        let queue = queue.reopen(Duration::ZERO).await;
        for _ in 0..6 {
            queue.clock.advance(5 * DAY);
            let some = pages.keys().filter(|_| dice.below(3) == 0).cloned().collect();
            queue.store.requeue(CRAWL.to_owned(), some).await.unwrap();
            let outcomes = [Outcome::Changed, Outcome::Unchanged, Outcome::Unchanged];
            look_at_all(&queue, &mut dice, &outcomes).await;
        }
        world.clock.set(queue.clock.now());
        let store = queue.config.store.url.clone();
        let (_queue, look) = queue.into_folder();
        let nodes = folders.map(|folder| {
            let mut config = world.config(&sites());
            folder.path().clone_into(&mut config.daemon.data_dir);
            config.store.url.clone_from(&store);
            Node { config, daemon: None, _folder: folder }
        });
        let mut run = Self {
            world,
            look,
            nodes,
            dice,
            pages,
            blocks: Vec::new(),
            paused_sites: Vec::new(),
            clocks: BTreeMap::new(),
            lowest: f64::INFINITY,
            early: 0,
            log: Vec::new(),
        };
        run.start(0).await;
        run.start(1).await;
        run.lowest = run.price();
        Some(run)
    }

    async fn start(&mut self, node: usize) {
        let Node { config, daemon, .. } = &mut self.nodes[node];
        *daemon = Some(self.world.start_with(config.clone()).await);
        let is_alone = self.nodes.iter().any(|node| node.daemon.is_none());
        self.shared_by(if is_alone { 1 } else { 2 }).await;
    }

    /// Waits until all partitions are dealt to so many daemons.
    async fn shared_by(&self, daemons: usize) {
        let sql = "SELECT string_agg(CAST(n AS TEXT), ' ' ORDER BY n) FROM
             (SELECT count(*) AS n FROM partitions p JOIN nodes d ON d.name = p.node GROUP BY p.node)
             AS shares";
        let even = if daemons == 1 { "256" } else { "128 128" };
        let is_even = || self.look.text(sql).as_deref() == Some(even);
        self.until("even shares", async || is_even()).await;
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so().await {
            if Instant::now() > deadline {
                self.fail(&format!("waited in vain for {what}"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Any daemon that is up.
    fn any(&mut self) -> Store {
        let up: Vec<_> = self.nodes.iter().filter_map(|node| node.daemon.as_ref()).collect();
        let count = u32::try_from(up.len()).unwrap();
        up[self.dice.below(count) as usize].store.clone()
    }

    fn all(&self) -> Vec<Store> {
        self.nodes.iter().filter_map(|node| Some(node.daemon.as_ref()?.store.clone())).collect()
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    fn price(&self) -> f64 {
        self.look.text("SELECT price FROM prices").unwrap().parse().unwrap()
    }

    fn say(&mut self, what: impl Into<String>) {
        let line = format!("{} {}", self.now(), what.into());
        self.log.push(line);
    }

    fn fail(&self, why: &str) -> ! {
        let from = self.log.len().saturating_sub(40);
        panic!("{why}\n{}", self.log[from..].join("\n"));
    }

    /// A fetch is so many times as dear from now on, as far as it may be, and all daemons
    /// have heard of it; says how many times.
    async fn at_price(&mut self, times: f64) -> f64 {
        // It moved before.
        self.pass(Duration::from_secs(1)).await;
        self.say(format!("price x {times}"));
        let before = self.price();
        let now = self.now().as_millisecond();
        self.look.change(&format!(
            "UPDATE prices SET price = LEAST(GREATEST({times} * price, {LOWEST}), {HIGHEST}),
                 asked = 0, ticked_at = {now}"
        ));
        self.all_know_the_price().await;
        self.price() / before
    }

    async fn all_know_the_price(&mut self) {
        let home = ["http://a.test/0", "http://h0.test/0", "http://h1.test/1", "http://h2.test/2"];
        self.say(format!("a price of {}", self.price()));
        self.until("the price", async || {
            let price = self.price();
            let mut is_known = true;
            for url in home {
                let view = self.all()[0].url(None, url.parse().unwrap()).await.unwrap();
                let told = view.learned.unwrap().numbers.price;
                is_known &= (told / price - 1.0).abs() < 1e-9;
            }
            is_known
        })
        .await;
    }

    /// One or more calls at once, of whichever daemons.
    async fn lease(&mut self, request: LeaseRequest, times: usize) -> usize {
        let stores: Vec<_> = (0..times).map(|_| self.any()).collect();
        let calls = stores.iter().map(|store| store.lease(request.clone()));
        let mut leased = Vec::new();
        for answer in join_all(calls).await {
            match answer {
                Ok(batch) => leased.extend(batch.urls),
                Err(error) => self.fail(&format!("lease: {error}")),
            }
        }
        let is_asked =
            |url: &str| request.sites.is_empty() || request.sites[0] == self.pages[url].site;
        if let Some(other) = leased.iter().find(|leased| !is_asked(&leased.url)) {
            self.fail(&format!("{} is not of {:?}", other.url, request.sites));
        }
        let (count, LeaseRequest { max, per_host, sites, .. }) = (leased.len(), request);
        self.say(format!("{times} x lease {max} {per_host} {sites:?}: {count}"));
        self.given(leased).await;
        count
    }

    fn some_out(&mut self) -> Option<(String, Out)> {
        let now = self.now();
        let out: Vec<_> = self
            .pages
            .iter()
            .filter_map(|(url, page)| Some((url.clone(), page.out.clone()?)))
            .filter(|(_, out)| out.until > now)
            .collect();
        let count = u32::try_from(out.len()).unwrap();
        (count > 0).then(|| out[self.dice.below(count) as usize].clone())
    }

    fn some_url(&mut self) -> String {
        let count = u32::try_from(self.pages.len()).unwrap();
        let at = self.dice.below(count) as usize;
        self.pages.keys().nth(at).unwrap().clone()
    }

    async fn settle_some(&mut self) {
        for _ in 0..=self.dice.below(12) {
            let Some((url, out)) = self.some_out() else { return };
            let now = self.now();
            let outcome = match self.dice.below(16) {
                0..6 => Outcome::Changed,
                6..11 => Outcome::Unchanged,
                11 => Outcome::Unknown,
                12 | 13 => Outcome::Failed,
                14 => Outcome::Blocked,
                _ => Outcome::Gone,
            };
            let mut seen = report(out.token, outcome);
            let mut floor = None;
            match self.dice.below(20) {
                0 => floor = Some(now + self.dice.below(40) * DAY),
                1 => {
                    let pause = (1 + self.dice.below(90)) * HOUR / 2;
                    let (status, retry_after) = (Some(429), Some(pause));
                    let failed = report(out.token, Outcome::Failed);
                    seen = Settlement { status, retry_after, ..failed };
                    let until = now + pause.min(DAY);
                    let clock = self.clocks.entry(host_of(&url)).or_insert(until);
                    *clock = until.max(*clock);
                }
                _ => {}
            }
            seen.not_before = floor;
            let outcome = seen.outcome.unwrap();
            self.say(format!("settle {url} {outcome:?} {floor:?}"));
            let result = self.any().settle(vec![seen.clone()]).await.unwrap()[0];
            if result != TokenResult::Ok {
                self.fail(&format!("{url}: {result:?}"));
            }
            // Told again, by whomever, it is what it was.
            if self.dice.below(4) == 0 {
                let again = self.any().settle(vec![seen.clone()]).await.unwrap()[0];
                if again != TokenResult::Ok {
                    self.fail(&format!("{url} again: {again:?}"));
                }
            }
            let page = self.pages.get_mut(&url).unwrap();
            page.out = None;
            page.nothing = outcome == Outcome::Failed;
            page.gone = outcome == Outcome::Gone
                || page.gone && matches!(outcome, Outcome::Failed | Outcome::Blocked);
            page.floor = floor;
            if outcome != Outcome::Failed {
                let is_refused = outcome == Outcome::Blocked && !page.asked;
                page.refused = is_refused.then(|| now + DAY);
            }
            page.asked = false;
            page.attempts = match outcome {
                Outcome::Failed if seen.status.is_some() => None,
                Outcome::Failed => Some(out.attempt),
                Outcome::Gone | Outcome::Blocked => None,
                _ => Some(0),
            };
        }
    }

    async fn release(&mut self, token: Token, after: Duration) {
        let now = self.now();
        let result = self.any().release(vec![token], after).await.unwrap()[0];
        if result != TokenResult::Ok {
            self.fail(&format!("release {token}: {result:?}"));
        }
        let mut pages = self.pages.values_mut();
        let page =
            pages.find(|page| page.out.as_ref().is_some_and(|out| out.token == token)).unwrap();
        let out = page.out.take().unwrap();
        page.nothing = true;
        page.attempts = Some(out.attempt - 1);
        page.floor = (!after.is_zero()).then(|| now + after);
    }

    async fn reap(&mut self) {
        for store in self.all() {
            while store.reap().await.unwrap().0 > 0 {}
        }
        self.expire();
    }

    async fn pass(&mut self, by: Duration) {
        self.world.clock.advance(by);
        self.reap().await;
        self.say(format!("{by:?} pass"));
    }

    async fn step(&mut self) {
        let faults = 32 + 3;
        match self.dice.below(faults) {
            0..7 => {
                let max = [1, 7, 40, 300][self.dice.below(4) as usize];
                let per_host = [1, 5, 1_000][self.dice.below(3) as usize];
                let times = 1 + self.dice.below(3) as usize;
                self.lease(LeaseRequest { per_host, ..ask(max) }, times).await;
            }
            7..10 => {
                let sites = vec![SITES[self.dice.below(3) as usize].to_owned()];
                let max = [3, 300][self.dice.below(2) as usize];
                self.lease(LeaseRequest { sites, ..ask(max) }, 1).await;
            }
            10..16 => self.settle_some().await,
            16 => {
                if let Some((url, out)) = self.some_out() {
                    let after = self.dice.below(3) * HOUR;
                    self.say(format!("release {url} {after:?}"));
                    self.release(out.token, after).await;
                }
            }
            17 => {
                if let Some((url, out)) = self.some_out() {
                    let until = self.now() + HOUR;
                    self.say(format!("extend {url}"));
                    self.any().extend(vec![out.token], HOUR).await.unwrap();
                    self.pages.get_mut(&url).unwrap().out.as_mut().unwrap().until = until;
                }
            }
            18..22 => {
                let by = match self.dice.below(5) {
                    0 | 1 => Duration::from_secs(self.dice.below(20).into()),
                    2 => Duration::from_secs(self.dice.below(600).into()),
                    3 => HOUR,
                    _ => DAY,
                };
                self.pass(by).await;
            }
            22 => {
                let urls: Vec<_> = (0..3).map(|_| self.some_url()).collect();
                self.say(format!("requeue {urls:?}"));
                self.any().requeue(CRAWL.to_owned(), urls.clone()).await.unwrap();
                for url in urls {
                    let page = self.pages.get_mut(&url).unwrap();
                    // One that is out comes back as it is.
                    page.attempts.take_if(|_| page.out.is_none());
                    (page.floor, page.refused, page.asked) = (None, None, page.out.is_some());
                }
            }
            23 => self.signal().await,
            24 => self.block_some().await,
            25 => {
                let name = SITES[self.dice.below(3) as usize];
                let is_paused = self.paused_sites.contains(&name);
                self.say(format!("pause {name}: {}", !is_paused));
                self.any().pause_site(name.to_owned(), !is_paused).await.unwrap();
                self.paused_sites.retain(|other| *other != name);
                if !is_paused && self.dice.below(2) == 0 {
                    self.paused_sites.push(name);
                } else if !is_paused {
                    self.any().pause_site(name.to_owned(), false).await.unwrap();
                }
            }
            26..30 => {
                let times = [0.01, 0.1, 0.5, 0.9, 1.1, 3.0, 30.0][self.dice.below(7) as usize];
                if self.at_price(times).await < 0.95 {
                    self.drain().await;
                }
            }
            30 | 31 => {
                for store in self.all() {
                    while store.maintain().await.unwrap() {}
                }
            }
            _ => self.trouble().await,
        }
    }

    async fn signal(&mut self) {
        let url = self.some_url();
        self.say(format!("signal {url}"));
        let store = self.any();
        let id = store.url(None, url.parse().unwrap()).await.unwrap().id;
        let name = self.pages[&url].site;
        let source = self
            .look
            .number(&format!("SELECT id FROM sources WHERE url LIKE '%/sitemap-{name}.xml'"));
        let target = store.poll_target(SourceId(source)).await.unwrap();
        let lastmod = Lastmod { at: self.now(), precision: Precision::Second };
        let effect = Effect::Changed { url: id, lastmod, hints: EntryHints::default() };
        store.apply(target.origin(false).unwrap(), vec![effect]).await.unwrap();
    }

    async fn block_some(&mut self) {
        if !self.blocks.is_empty() && self.dice.below(2) == 0 {
            let (pattern, prefix) = self.blocks.remove(0);
            self.say(format!("unblock {pattern}"));
            self.any().unblock(CRAWL.to_owned(), pattern, prefix).await.unwrap();
            return;
        }
        let mut pattern = self.some_url();
        let prefix = self.dice.below(3) == 0;
        if prefix {
            pattern.pop();
        }
        let is_known = self.blocks.contains(&(pattern.clone(), prefix));
        if !is_known && host_of(&format!("{pattern}/")).len() < pattern.len() {
            self.say(format!("block {pattern} {prefix}"));
            self.any().block(CRAWL.to_owned(), pattern.clone(), prefix).await.unwrap();
            self.blocks.push((pattern, prefix));
        }
    }

    /// One of the daemons ends, is taken for dead, or is cut off; calls go on meanwhile.
    async fn trouble(&mut self) {
        let node = self.dice.below(2) as usize;
        let folder = &self.nodes[node].config.daemon.data_dir;
        let name = std::fs::read_to_string(folder.join("sitemapd.node")).unwrap();
        match self.dice.below(3) {
            0 => {
                self.say(format!("daemon {node} ends"));
                self.nodes[node].daemon.take().unwrap().stop().await;
                for _ in 0..self.dice.below(3) {
                    self.lease(ask(40), 1).await;
                    self.settle_some().await;
                }
                if self.dice.below(2) == 0 {
                    self.shared_by(1).await;
                    self.drain_all().await;
                }
                self.start(node).await;
            }
            1 => {
                self.say(format!("daemon {node} is taken for dead"));
                self.look.change(&format!(
                    "BEGIN; DELETE FROM nodes WHERE name = '{name}';
                     UPDATE partitions SET node = NULL WHERE node = '{name}'; COMMIT"
                ));
                if self.dice.below(2) == 0 {
                    self.settle_some().await;
                }
                self.lease(ask(40), 1).await;
                self.shared_by(2).await;
            }
            _ => {
                self.say(format!("daemon {node} is cut off"));
                self.look.number(&format!(
                    "SELECT count(pg_terminate_backend(backend)) FROM nodes WHERE name = '{name}'"
                ));
                self.settle_some().await;
            }
        }
        // What has ended while it was nobody's.
        self.reap().await;
        self.all_know_the_price().await;
    }
}

async fn look_at_all(queue: &Queue, dice: &mut Dice, outcomes: &[Outcome]) {
    loop {
        let leased: Vec<Leased> = queue.lease(1_000).await;
        if leased.is_empty() {
            break;
        }
        let of = u32::try_from(outcomes.len()).unwrap();
        let seen = leased.iter().map(|one| report(one.token, outcomes[dice.below(of) as usize]));
        queue.store.settle(seen.collect()).await.unwrap();
    }
    queue.clock.advance(TTL);
}

async fn run(seed: u64, steps: u32) -> usize {
    let Some(mut run) = Box::pin(Run::new(seed)).await else { return 0 };
    for _ in 0..steps {
        run.step().await;
        run.audit().await;
        run.lowest = run.price();
    }
    run.rest().await;
    run.early
}

#[tokio::test]
async fn whichever_of_two_daemons_is_asked_the_queue_keeps_its_rules_while_a_price_moves() {
    if std::env::var_os("SITEMAPD_POSTGRES").is_none() {
        eprintln!("SKIPPED: two daemons need a server, which SITEMAPD_POSTGRES names");
        return;
    }
    let number =
        |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (first, seeds) = (number("SITEMAPD_SEED", 1), number("SITEMAPD_SEEDS", 1));
    let steps = u32::try_from(number("SITEMAPD_STEPS", 40)).unwrap();
    let mut early = 0;
    for seed in first..first + seeds {
        println!("seed {seed}");
        early += Box::pin(run(seed, steps)).await;
    }
    println!("{early} before they were due");
    assert!(early > 0, "else nothing was tried");
}
