//! Three daemons and one database, under polls of a site that changes, leases,
//! settlements, releases, extensions and orders of many clients that know only a
//! balancer: daemons are killed, stopped until others have taken over, cut off
//! from the database or hear it too late; their connections are ended, the
//! database is away for all, wall clocks are an hour off. What clients were
//! told, and the tables, are checked as for one daemon (`durable/killed.rs`),
//! while all goes on and at the end.
//!
//! `SITEMAPD_KILLS` says how many of these happen, `SITEMAPD_SEED` repeats a run
//! as far as time can be repeated. With `SITEMAPD_RESTARTS` the server is
//! restarted as well: only for a run of this test alone.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use sitemapd::clock::Clock;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::three::{COUNT, Three};
use crate::support::Origin;
use crate::support::clients::{Client, drain};
use crate::support::door::{Door, Heard, call};
use crate::support::lease_history::{Dice, audit, snapshots_are_sound};
use crate::support::ledger::Ledger;
use crate::support::site::{Site, polled, watch_polls};

const FAULTS: u32 = 6;
const CLIENTS: u32 = 8;
/// Leases last from 1 to 3 s, so that many end by themselves.
const TTL: (u32, u32) = (1, 3);
/// Longer than a daemon is given until it is taken over (10 s), and than others
/// need to see that (2 s).
const TAKEN_OVER: Duration = Duration::from_millis(13_200);
/// How long a client waits: too little for a takeover, and enough for one.
const PATIENCE: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(20)];
/// Longest wait until a daemon says that the database is away, or works again.
const NOTICED: Duration = Duration::from_secs(60);
/// What a daemon may need, in bytes, in a build without optimisation.
const MEMORY: u64 = 512 << 20;

/// What happens to the daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// One is killed, and started again at once or later.
    Killed,
    /// Two are.
    TwoKilled,
    /// One is stopped until others have taken over.
    Stopped,
    /// What one sends to the database, and what it answers, comes too late.
    Held,
    /// The server ends connections.
    Terminated,
    /// The connections of one break.
    Cut,
    /// The database is away for all.
    Away,
    /// The server is restarted.
    Restarted,
}

use Fault::{Away, Cut, Held, Killed, Restarted, Stopped, Terminated, TwoKilled};

/// The first that happen, so that a short run has them all; then dice decide.
const FIRST: [Fault; 7] = [Killed, Stopped, Terminated, Away, Held, TwoKilled, Cut];

struct Run {
    site: Site,
    three: Three,
    ledger: Arc<Ledger>,
    dice: Dice,
    happened: [u32; 8],
    /// The longest until a daemon worked again after the database was back.
    slowest_return: Duration,
    _dir: TempDir,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let site = Site::new(Origin::start().await);
        let (text, dir, look) = site.filled().await;
        Self {
            three: Three::on(&text, look),
            site,
            ledger: Arc::new(Ledger::of_several()),
            dice: Dice::new(seed),
            happened: [0; 8],
            slowest_return: Duration::ZERO,
            _dir: dir,
        }
    }

    fn clients(&mut self, until: &CancellationToken) -> JoinSet<()> {
        let addr = self.three.balancer.addr;
        let door = |number: u32| Door::Any(addr, PATIENCE[number as usize % 2], until.clone());
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let client = Client {
                door: door(number),
                ledger: Arc::clone(&self.ledger),
                dice: Dice::new(u64::from(self.dice.below(u32::MAX))),
                ttl: TTL,
            };
            clients.spawn(client.work());
        }
        clients.spawn(watch_polls(door(0), Arc::clone(&self.ledger)));
        clients
    }

    /// Time passes, in which the site changes and clocks may.
    async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.site.change(&mut self.dice);
            let pause = Duration::from_millis(u64::from(20 + self.dice.below(200)));
            tokio::time::sleep(pause.min(until - Instant::now().min(until))).await;
            if self.dice.below(60) == 0 {
                let place = self.some();
                self.three.step_clock(place, &mut self.dice);
            }
        }
    }

    fn some(&mut self) -> usize {
        self.dice.below(3) as usize
    }

    fn below_ms(&mut self, limit: u32) -> Duration {
        Duration::from_millis(self.dice.below(limit).into())
    }

    fn next(&mut self, number: u32, may_restart: bool) -> Fault {
        if let Some(first) = FIRST.get(number as usize) {
            return *first;
        }
        match self.dice.below(if may_restart { 14 } else { 13 }) {
            0..4 => Killed,
            4 => TwoKilled,
            5..8 => Stopped,
            8 => Held,
            9 | 10 => Terminated,
            11 => Cut,
            12 => Away,
            _ => Restarted,
        }
    }

    async fn suffer(&mut self, fault: Fault) {
        self.happened[fault as usize] += 1;
        let place = self.some();
        match fault {
            Killed => {
                self.three.kill(place);
                self.bring_back(place).await;
            }
            TwoKilled => {
                let other = (place + 1) % COUNT;
                self.three.kill(place);
                let between = self.below_ms(2_000);
                self.pass(between).await;
                self.three.kill(other);
                self.bring_back(place).await;
                self.bring_back(other).await;
            }
            Stopped => {
                // With a balancer that sees it, or that does not.
                let is_seen = self.dice.below(2) == 0;
                self.three.leave_out(place, is_seen);
                self.three.daemon(place).signal("STOP");
                let more = self.below_ms(800);
                self.pass(TAKEN_OVER + more).await;
                self.three.daemon(place).signal("CONT");
                self.three.leave_out(place, false);
            }
            Held => {
                self.three.nodes[place].line.hold(true);
                let more = self.below_ms(800);
                self.pass(TAKEN_OVER + more).await;
                self.three.nodes[place].line.hold(false);
            }
            Terminated => self.three.terminate(self.dice.below(3) == 0),
            Cut => self.three.nodes[place].line.cut(),
            Away => self.be_away().await,
            Restarted => {
                restart_server();
                self.resume().await;
            }
        }
        // What one daemon was told by another, and could not tell its client.
        self.ledger.unheard(u64::from(3 * CLIENTS));
    }

    /// Starts one that was killed: at once, soon, or when it was taken over.
    async fn bring_back(&mut self, place: usize) {
        let after = match self.dice.below(3) {
            0 => Duration::ZERO,
            1 => self.below_ms(3_000),
            _ => TAKEN_OVER,
        };
        self.pass(after).await;
        self.three.step_clock(place, &mut self.dice);
        self.three.start(place);
    }

    /// The database is away for all: they say so, live on, and go on by
    /// themselves.
    async fn be_away(&mut self) {
        self.three.nodes.iter().for_each(|node| node.line.kill(true));
        let began = Instant::now();
        for place in 0..COUNT {
            loop {
                let heard = self.ask_for_lease(place).await;
                if heard.status == 503 {
                    assert!(heard.retry_after.is_some(), "when to ask again: {heard:?}");
                    break;
                }
                assert!(began.elapsed() < NOTICED, "nobody notices: {heard:?}");
            }
        }
        let more = self.below_ms(12_000);
        self.pass(Duration::from_secs(1) + more).await;
        for node in &mut self.three.nodes {
            let daemon = node.daemon.as_mut().expect("a daemon");
            assert_eq!(daemon.has_ended(), None, "it does not wait for its database");
        }
        self.three.nodes.iter().for_each(|node| node.line.kill(false));
        self.resume().await;
    }

    /// The database is back: all work again, and the site is polled.
    async fn resume(&mut self) {
        let began = Instant::now();
        for place in 0..COUNT {
            loop {
                let heard = self.ask_for_lease(place).await;
                if heard.status == 200 {
                    break;
                }
                assert!(began.elapsed() < NOTICED, "it does not go on: {heard:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        self.slowest_return = self.slowest_return.max(began.elapsed());
        let newest = "SELECT coalesce(max(id), 0) FROM polls WHERE source_id IN
             (SELECT id FROM sources WHERE url LIKE '%/sitemap.xml') AND error IS NULL";
        let before = self.three.look.number(newest);
        while self.three.look.number(newest) <= before {
            assert!(began.elapsed() < NOTICED * 2, "the site is not polled any more");
            self.pass(Duration::from_millis(200)).await;
        }
    }

    /// Asks a daemon itself, for so little that nobody misses it.
    async fn ask_for_lease(&self, place: usize) -> Heard {
        self.ledger.unheard(1);
        let body = json!({ "max": 1, "ttl": "1s" });
        let addr = self.three.daemon(place).addr;
        let asked = call(addr, "POST", "/v1/lease", Some(&body));
        let heard = tokio::time::timeout(NOTICED, asked).await;
        heard.unwrap_or_else(|_| panic!("daemon {place} says nothing")).unwrap()
    }

    /// Checks all that clients were told, and the tables, while all goes on: what
    /// each statement of the check sees is of one moment.
    fn verify(&mut self) {
        let look = &self.three.look;
        audit(look);
        let counted = "SELECT CAST(sum(urls) AS BIGINT) - (SELECT count(*) FROM urls) FROM sites";
        assert_eq!(look.number(counted), 0, "the sites' counts are off");
        self.ledger.check(look, &self.site.listed, Clock::system().now().as_second() + 1);
        self.three.note_memory();
        assert!(self.three.most_memory < MEMORY, "{} bytes", self.three.most_memory);
    }

    /// Nothing changes any more: all is read, delivered and settled.
    async fn drain(&mut self) {
        self.three.kill_all();
        snapshots_are_sound(&self.three.look);
        self.verify();
        self.three.look.pass_two_days();
        self.three.start_all();
        self.three.wait_for_shares().await;
        let list = self.site.origin.url("/sitemap.xml");
        polled(&self.three.daemon(0).client(), list.as_str()).await;
        // Leases whose answer nobody heard end, and come back later.
        tokio::time::sleep(Duration::from_secs(u64::from(TTL.1) + 2)).await;
        self.three.kill_all();
        self.three.look.pass_two_days();
        self.three.start_all();
        self.three.wait_for_shares().await;
        let patience = Duration::from_secs(60);
        let door = Door::Any(self.three.balancer.addr, patience, CancellationToken::new());
        drain(&door, &self.ledger, 2 * u32::try_from(COUNT).unwrap()).await;
        self.three.kill_all();
        audit(&self.three.look);
        snapshots_are_sound(&self.three.look);
        self.ledger.check_end(&self.three.look, &self.site.listed);
    }
}

/// Restarts the server, with nothing lost.
fn restart_server() {
    let command = std::env::var("SITEMAPD_POSTGRES_RESTART").expect("how to restart the server");
    let ended = Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_three_daemons_the_queue_keeps_its_promises() {
    if std::env::var_os("SITEMAPD_POSTGRES").is_none() {
        eprintln!("SKIPPED: three daemons need a server, which SITEMAPD_POSTGRES names");
        return;
    }
    let number_of =
        |name: &str, usual: u32| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (faults, seed) = (number_of("SITEMAPD_KILLS", FAULTS), number_of("SITEMAPD_SEED", 7));
    let may_restart = std::env::var_os("SITEMAPD_RESTARTS").is_some();
    println!("seed {seed}");
    let began = Instant::now();
    let mut run = Run::new(seed.into()).await;
    // One is off from the beginning.
    run.three.step_clock(2, &mut Dice::new(2));
    run.three.start_all();
    run.three.wait_for_shares().await;
    let until = CancellationToken::new();
    let mut clients = run.clients(&until);
    run.pass(Duration::from_secs(1)).await;
    for number in 0..faults {
        let fault = run.next(number, may_restart);
        println!("{:.1?}: {fault:?}, {:?}", began.elapsed(), run.ledger.totals());
        run.suffer(fault).await;
        // The next comes amid this, or when all is well again.
        if run.dice.below(3) > 0 {
            run.three.wait_for_shares().await;
        }
        let life = run.below_ms(3_000);
        run.pass(life).await;
        run.three.tend();
        run.verify();
        while let Some(ended) = clients.try_join_next() {
            ended.unwrap();
        }
    }
    run.three.wait_for_shares().await;
    until.cancel();
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    run.drain().await;
    let totals = run.ledger.totals();
    let happened = [Killed, TwoKilled, Stopped, Held, Terminated, Cut, Away, Restarted]
        .map(|fault| format!("{fault:?} {}", run.happened[fault as usize]));
    println!(
        "{faults} faults ({}) in {:.0?}, {} clock steps, {} versions of the site in {} polls, {} URLs: \
         {totals:?}, 0 violations, {} ended by themselves, slowest start {:?}, \
         shares even after {:.1?} at most, at work after {:.1?} at most, {} MB at most",
        happened.join(", "),
        began.elapsed(),
        run.three.clock_steps,
        run.site.version,
        run.three.look.number("SELECT count(*) FROM polls"),
        run.site.listed.len(),
        run.three.ended,
        run.three.slowest_start,
        run.three.slowest_deal,
        run.slowest_return,
        run.three.most_memory >> 20,
    );
    assert!(totals.leases > 500 && totals.settles > 200, "{totals:?}");
    assert_eq!(run.three.ended, 0, "daemons ended that nobody had killed");
}
