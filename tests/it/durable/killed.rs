//! `kill -9` at any moment, under polls of a site that changes, leases,
//! settlements, releases, extensions and orders of many clients; with the
//! process stopped past the end of leases, and the wall clock stepped. The real
//! binary, in real time.
//!
//! `SITEMAPD_KILLS` says how often, `SITEMAPD_SEED` repeats a run as far as time
//! can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use sitemapd::clock::Clock;
use sitemapd::diff::snapshot::{Row, Snapshot};
use sitemapd::fetch::api::ApiClient;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::many;
use crate::support::clients::{Client, read};
use crate::support::disk::Disk;
use crate::support::engine::Look;
use crate::support::lease_history::{Dice, audit};
use crate::support::ledger::Ledger;
use crate::support::process::{DEADLINE, Daemon, write_config};
use crate::support::queue_daemon::{Entry, Queue, entry};
use crate::support::{Origin, Reply};

const KILLS: u32 = 30;
const CLIENTS: u32 = 8;
const URLS: u32 = 1_000;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Leases last from 1 to 3 s, so that many end by themselves.
const TTL: (u32, u32) = (1, 3);

/// The site: what it lists, and as of when.
struct Site {
    origin: Origin,
    listed: BTreeMap<String, Timestamp>,
    version: i64,
}

impl Site {
    fn new(origin: Origin) -> Self {
        let mut site = Self { origin, listed: BTreeMap::new(), version: 0 };
        for number in 0..URLS {
            site.list(number);
        }
        site.publish();
        site
    }

    /// As of the version that is being made.
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_793_500_000 + self.version).unwrap()
    }

    fn list(&mut self, number: u32) {
        self.listed.insert(format!("http://h{}.test/{number}", number % 20), self.now());
    }

    /// The next version: some URLs changed, a few are new.
    fn change(&mut self, dice: &mut Dice) {
        self.version += 1;
        let now = self.now();
        let count = u32::try_from(self.listed.len()).unwrap();
        for _ in 0..=dice.below(count / 25) {
            let index = dice.below(count) as usize;
            *self.listed.values_mut().nth(index).unwrap() = now;
        }
        for number in count..count + dice.below(3) {
            self.list(number);
        }
        self.publish();
    }

    fn publish(&self) {
        let mut xml =
            String::from("<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n");
        for (url, lastmod) in &self.listed {
            // Never due again by time.
            let date = format!("<lastmod>{lastmod}</lastmod><changefreq>never</changefreq>");
            writeln!(xml, "<url><loc>{url}</loc>{date}</url>").unwrap();
        }
        self.origin.set("/sitemap.xml", Reply::xml(xml + "</urlset>\n"));
    }
}

/// All that a run needs.
struct Run {
    site: Site,
    config: PathBuf,
    look: Look,
    disk: Option<Disk>,
    ledger: Arc<Ledger>,
    dice: Dice,
    /// By how much the wall clock is off.
    off: i64,
    slowest_start: Duration,
    starting: Duration,
    checking: Duration,
    stops: u32,
    steps: u32,
    _dir: TempDir,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let site = Site::new(Origin::start().await);
        let base = site.origin.base();
        let text = format!(
            "[fetch]\nallow = [\"{}\"]\n[politeness]\nhost_delay = \"0s\"\n\
             [queue]\norder = \"protocol\"\n[store]\nmin_free_disk = \"0\"\n\
             [[site]]\nname = \"a\"\nurl = \"{base}/\"\nsitemaps = [\"{base}/sitemap.xml\"]\n\
             feeds = []\nobey_robots = false\nscope = \"any\"\npoll = \"1s\"\n",
            site.origin.addr(),
        );
        // Known for two days, so that a clock set back holds none of it up.
        let then = Timestamp::from_second(Clock::system().now().as_second() - 2 * DAY).unwrap();
        let queue = Queue::open_on(&text, Clock::manual(then)).await;
        let entries: Vec<Entry> =
            site.listed.iter().map(|(url, lastmod)| entry(url).lastmod(*lastmod)).collect();
        queue.list("a", &entries).await;
        queue.look().change("UPDATE urls SET hints = 7");
        let (dir, look) = queue.into_folder();
        look.change("UPDATE sources SET next_poll_at = 0 WHERE role <> 0");
        Self {
            config: write_config(dir.path(), &text),
            disk: Disk::below(&dir.path().join("data")),
            site,
            look,
            ledger: Arc::default(),
            dice: Dice::new(seed),
            off: 0,
            slowest_start: Duration::ZERO,
            starting: Duration::ZERO,
            checking: Duration::ZERO,
            stops: 0,
            steps: 0,
            _dir: dir,
        }
    }

    fn step_clock(&mut self, off: i64) {
        if let Some(disk) = &self.disk {
            disk.step_clock(off);
            self.steps += 1;
        }
    }

    fn start(&mut self) -> Daemon {
        let began = Instant::now();
        let daemon = Daemon::start_on(&self.config, self.disk.as_ref());
        self.slowest_start = self.slowest_start.max(began.elapsed());
        self.starting += began.elapsed();
        self.ledger.next_life();
        daemon
    }

    fn clients(&mut self, daemon: &Daemon) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let seed = u64::from(self.dice.below(u32::MAX));
            let client = Client {
                api: daemon.client(),
                addr: daemon.addr,
                ledger: Arc::clone(&self.ledger),
                dice: Dice::new(seed),
                ttl: TTL,
            };
            clients.spawn(client.work());
        }
        clients.spawn(watch_polls(daemon.client(), Arc::clone(&self.ledger)));
        clients
    }

    /// One life of the daemon.
    async fn live(&mut self, number: u32) {
        // The clock that it starts with: now and then a day later than before,
        // or an hour back.
        let (forward, back) = (self.dice.below(8) == 0, self.dice.below(8) == 0);
        if forward && self.disk.is_some() {
            self.off += DAY;
        }
        let off = if back { self.off - HOUR } else { self.off };
        self.step_clock(off);
        let mut daemon = self.start();
        let mut clients = self.clients(&daemon);
        let life = Duration::from_millis(u64::from(60 + self.dice.below(700)));
        let until = Instant::now() + life;
        while Instant::now() < until {
            self.site.change(&mut self.dice);
            tokio::time::sleep(Duration::from_millis(u64::from(self.dice.below(120)))).await;
            if self.dice.below(12) == 0 {
                let step = [-HOUR, DAY, 0][self.dice.below(3) as usize];
                self.step_clock(off + step);
            }
        }
        if self.dice.below(6) == 0 {
            // Past the end of the leases.
            daemon.signal("STOP");
            let seconds = if number.is_multiple_of(2) { TTL.1 } else { TTL.0 };
            tokio::time::sleep(Duration::from_millis(u64::from(seconds) * 1_000 + 200)).await;
            daemon.signal("CONT");
            self.stops += 1;
            tokio::time::sleep(Duration::from_millis(u64::from(self.dice.below(300)))).await;
        }
        // What the clock said in any life, at the latest: a clock that was set
        // back makes what came due in the hour that is repeated wait for it.
        let now_s = Clock::system().now().as_second() + self.off;
        daemon.kill();
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        self.verify_timed(now_s);
    }

    /// How long starts and checks took in all.
    fn verify_timed(&mut self, now_s: i64) {
        let began = Instant::now();
        self.verify(now_s);
        self.checking += began.elapsed();
    }

    /// Looks at a copy of a file, so that the next start finds what the kill left.
    fn verify(&self, now_s: i64) {
        let folder = TempDir::new().unwrap();
        let look = copied(&self.look, folder.path());
        audit(&look);
        snapshots_are_sound(&look);
        self.ledger.check(&look, &self.site.listed, now_s + 1);
    }

    /// Two days pass while no daemon lives. One whose store is on a server goes by
    /// the clock of that, which nobody steps: there all that is kept grows older.
    fn pass_two_days(&mut self) {
        if let Look::File(_) = self.look {
            self.off += 2 * DAY;
            self.step_clock(self.off);
            return;
        }
        let older = |table: &str, column: &str, by: i64| {
            self.look.change(&format!("UPDATE {table} SET {column} = {column} - {by}"));
        };
        for (table, column) in [
            ("queue", "due_s"),
            ("feedback", "due_s"),
            ("turns", "due_s"),
            ("urls", "first_seen_s"),
        ] {
            older(table, column, 2 * DAY);
        }
        for (table, column) in [("leases", "expires_at"), ("sources", "next_poll_at")] {
            older(table, column, 2_000 * DAY);
        }
    }

    /// Nothing changes any more: all is read, delivered and settled.
    async fn drain(&mut self) {
        // Leases whose answer nobody heard end first, and come back later. The
        // clock is past all that it ever said, so that the next poll is due.
        self.pass_two_days();
        let mut daemon = self.start();
        let list = self.site.origin.url("/sitemap.xml");
        polled(&daemon.client(), list.as_str()).await;
        tokio::time::sleep(Duration::from_secs(u64::from(TTL.1) + 2)).await;
        daemon.kill();
        self.look.let_go();
        self.pass_two_days();
        let mut daemon = self.start();
        let api = daemon.client();
        let body = json!({ "max": 1_000, "ttl": "60s", "per_host": 1_000 });
        loop {
            let called = Instant::now();
            let leases = read(&api.post::<Value>("/v1/lease", &body).await.unwrap());
            if leases.is_empty() {
                break;
            }
            self.ledger.leased(&leases, called, Duration::from_secs(60));
            self.settle_all(&api).await;
        }
        daemon.kill();
        let folder = TempDir::new().unwrap();
        let look = copied(&self.look, folder.path());
        audit(&look);
        self.ledger.check_end(&look, &self.site.listed);
    }

    async fn settle_all(&self, api: &ApiClient) {
        use crate::support::ledger::Act;
        let held = self.ledger.take(usize::MAX, |_| 0);
        for held in held.chunks(1_000) {
            let results: Vec<_> =
                held.iter().map(|h| json!({ "token": h.token, "outcome": "changed" })).collect();
            let called = self.ledger.ending(held, Act::Settled);
            let answer: Value =
                api.post("/v1/settle", &json!({ "results": results })).await.unwrap();
            for (held, result) in held.iter().zip(answer["results"].as_array().unwrap()) {
                self.ledger.ended(held, Act::Settled, called, result["result"].as_str().unwrap());
            }
        }
    }
}

/// Notes each poll that is listed.
async fn watch_polls(api: ApiClient, ledger: Arc<Ledger>) {
    let mut after = 0;
    loop {
        let text = after.to_string();
        let query = [("after", text.as_str()), ("limit", "1000")];
        let Ok(answer) = api.get::<Value>("/v1/polls", &query).await else { return };
        after = answer["next"].as_i64().unwrap();
        ledger.polled(after);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Waits until a source was polled once more.
async fn polled(api: &ApiClient, url: &str) {
    let mut after = 0;
    let mut is_new = false;
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        let text = after.to_string();
        let query = [("after", text.as_str()), ("limit", "1000")];
        let answer: Value = api.get("/v1/polls", &query).await.unwrap();
        let polls = answer["polls"].as_array().unwrap();
        if is_new && polls.iter().any(|poll| poll["url"] == url && poll["error"].is_null()) {
            return;
        }
        // All that there were before.
        is_new |= polls.is_empty();
        after = answer["next"].as_i64().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{url} was not polled");
}

/// A copy of what is in a file; a server has brought its own in order as soon as
/// it has let go of the daemon.
fn copied(look: &Look, to: &Path) -> Look {
    let Look::File(database) = look else {
        look.let_go();
        return look.clone();
    };
    for name in ["sitemapd.db", "sitemapd.db-wal"] {
        let file = database.with_file_name(name);
        if file.exists() {
            std::fs::copy(file, to.join(name)).unwrap();
        }
    }
    Look::File(to.join("sitemapd.db"))
}

/// Each entry that a source is known to list has its row.
fn snapshots_are_sound(look: &Look) {
    let column = |sql: &str| look.rows(sql).into_iter().flatten().flatten();
    let ids: BTreeSet<i64> =
        column("SELECT id FROM urls").map(|text| text.parse().unwrap()).collect();
    if let Look::File(_) = look {
        // There they are given out one by one.
        assert_eq!(ids.last().copied(), i64::try_from(ids.len()).ok(), "a row is missing");
    }
    for packed in column("SELECT data FROM snapshots") {
        let byte = |at| u8::from_str_radix(&packed[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..packed.len()).step_by(2).map(byte).collect();
        for entry in Snapshot::decode(&bytes).unwrap().into_entries() {
            if let Row::Url(id) = entry.row {
                assert!(ids.contains(&id.0), "entry of row {}", id.0);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_stopped_or_stepped_the_queue_keeps_its_promises() {
    let kills = many("SITEMAPD_KILLS", KILLS);
    let seed = std::env::var("SITEMAPD_SEED").map_or(7, |text| text.parse().unwrap());
    println!("seed {seed}");
    let began = Instant::now();
    let mut run = Run::new(seed).await;
    for number in 0..kills {
        run.live(number).await;
        if number % 50 == 49 {
            println!("{} kills: {:?}", number + 1, run.ledger.totals());
        }
    }
    run.drain().await;
    let totals = run.ledger.totals();
    println!(
        "{kills} kills in {:.0?}, {} stops, {} clock steps, {} versions of the site, {} URLs: \
         {totals:?}, 0 violations, slowest start {:?}, \
         all starts {:.1?}, all checks {:.1?}",
        began.elapsed(),
        run.stops,
        run.steps,
        run.site.version,
        run.site.listed.len(),
        run.slowest_start,
        run.starting,
        run.checking,
    );
    assert!(totals.leases > 1_000 && totals.settles > 500, "{totals:?}");
    assert!(run.slowest_start < Duration::from_secs(5), "{:?}", run.slowest_start);
}
