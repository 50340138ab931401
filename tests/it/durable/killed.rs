//! `kill -9` at any moment, under polls of a site that changes, leases,
//! settlements, releases, extensions and orders of many clients; with the
//! process stopped past the end of leases, and the wall clock stepped. The real
//! binary, in real time.
//!
//! `SITEMAPD_KILLS` says how often, `SITEMAPD_SEED` repeats a run as far as time
//! can be repeated.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sitemapd::clock::Clock;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::many;
use crate::support::Origin;
use crate::support::clients::{Client, drain};
use crate::support::disk::Disk;
use crate::support::door::Door;
use crate::support::engine::Look;
use crate::support::lease_history::{Dice, audit, snapshots_are_sound};
use crate::support::ledger::{Ledger, Totals};
use crate::support::process::{Daemon, write_config};
use crate::support::site::{Site, polled, watch_polls};

const KILLS: u32 = 30;
const CLIENTS: u32 = 8;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Leases last from 1 to 3 s, so that many end by themselves.
const TTL: (u32, u32) = (1, 3);

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
        let (text, dir, look) = site.filled().await;
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
                door: Door::One(daemon.client(), daemon.addr),
                ledger: Arc::clone(&self.ledger),
                dice: Dice::new(seed),
                ttl: TTL,
            };
            clients.spawn(client.work());
        }
        let door = Door::One(daemon.client(), daemon.addr);
        clients.spawn(watch_polls(door, Arc::clone(&self.ledger)));
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
    /// the clock of that, which nobody steps.
    fn pass_two_days(&mut self) {
        if let Look::File(_) = self.look {
            self.off += 2 * DAY;
            self.step_clock(self.off);
            return;
        }
        self.look.pass_two_days();
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
        drain(&Door::One(daemon.client(), daemon.addr), &self.ledger, 1).await;
        daemon.kill();
        let folder = TempDir::new().unwrap();
        let look = copied(&self.look, folder.path());
        audit(&look);
        self.ledger.check_end(&look, &self.site.listed);
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_stopped_or_stepped_the_queue_keeps_its_promises() {
    let kills = many("SITEMAPD_KILLS", KILLS);
    let seed = std::env::var("SITEMAPD_SEED").map_or(7, |text| text.parse().unwrap());
    println!("seed {seed}");
    let began = Instant::now();
    let mut run = Run::new(seed).await;
    // On a slow machine little comes to pass in a life, and there are more of them.
    let is_enough = |totals: &Totals| totals.leases > 1_000 && totals.settles > 500;
    let mut lives = 0;
    while lives < kills || lives < 10 * kills && !is_enough(&run.ledger.totals()) {
        run.live(lives).await;
        lives += 1;
        if lives % 50 == 0 {
            println!("{lives} kills: {:?}", run.ledger.totals());
        }
    }
    run.drain().await;
    let totals = run.ledger.totals();
    println!(
        "{lives} kills in {:.0?}, {} stops, {} clock steps, {} versions of the site, {} URLs: \
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
    assert!(is_enough(&totals), "{totals:?}");
    assert!(run.slowest_start < Duration::from_secs(20), "{:?}", run.slowest_start);
}
