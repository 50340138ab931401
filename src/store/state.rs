//! What the writer thread holds: its connection, and what it remembers of the
//! database so that the hot path need not ask.
//!
//! Memory follows the database: everything remembered is dropped and read
//! again when rows that were written are taken back, before the next
//! transaction at the latest. A job that was refused before it wrote any leaves
//! memory as it is.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::sql::{Connection, OptionalExtension, params};

use super::at_hand::AtHand;
use super::behind::InVain;
use super::checkpoint::LogKeeper;
use super::claim::Claim;
use super::delays::MovedDelays;
use super::early::EarlyLooks;
use super::expiry::Expiry;
use super::folds::Folds;
use super::home::Home;
use super::hosts::Hosts;
use super::known::Known;
use super::learn::Learning;
use super::maintain::Emptied;
use super::numbers::Numbers;
use super::operate::Blocks;
use super::paused_heads::PausedHeads;
use super::pending::Pending;
use super::policy::{Policies, Policy};
use super::site_walks::SiteWalks;
use super::told::Told;
use super::transaction::{Running, Trouble};
use super::turns::TurnDeltas;
use super::wake::Wake;
use super::{StoreError, engine};
use crate::by_id::{ById, IdSet};
use crate::clock::Clock;
use crate::config::Durability;
use crate::metrics::Metrics;
use crate::model::{CrawlId, HostId, SiteId, SourceId};
use crate::queue::window::Window;
use tokio::sync::watch;

/// One crawl as the writer knows it.
#[derive(Debug, Clone)]
pub(super) struct Crawl {
    pub(super) name: String,
    pub(super) paused: bool,
}

/// Who is told after a commit.
pub(super) struct Ears {
    /// Those who wait for URLs to come due.
    pub(super) wake: Arc<Wake>,
    /// The poll loop: sources are due for another reason than time.
    pub(super) sources: Arc<watch::Sender<u64>>,
    /// The same: sources that somebody wants polled before all others.
    pub(super) asked: Arc<Asked>,
    /// Who talks to hubs: there is something to do.
    pub(super) hubs: Arc<watch::Sender<u64>>,
    /// Those who follow the change stream.
    pub(super) changes: Arc<watch::Sender<u64>>,
    /// Who tells others that share the store that there may be something to do.
    pub(super) peers: Arc<watch::Sender<u64>>,
}

/// Sources that somebody has asked for since the poll loop looked last.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<Vec<Wish>>);

/// A source that somebody wants polled first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) source: SourceId,
    /// Another daemon that shares the store told of it.
    pub(super) is_told: bool,
}

impl Asked {
    /// Those kept until the loop looks; it takes no more of them before others.
    const MOST: usize = 1_024;

    fn lock(&self) -> MutexGuard<'_, Vec<Wish>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More of them.
    pub(super) fn add(&self, wishes: impl IntoIterator<Item = Wish>) {
        let mut asked = self.lock();
        let room = Self::MOST.saturating_sub(asked.len());
        asked.extend(wishes.into_iter().take(room));
    }

    /// All of them, once.
    pub(super) fn take(&self) -> Vec<Wish> {
        std::mem::take(&mut self.lock())
    }
}

/// What the connection is to, and how another is made.
pub(super) struct Engine {
    pub(super) home: Home,
    pub(super) durability: Durability,
    /// Keeps the log of a file short.
    pub(super) log: Option<LogKeeper>,
    /// That a store on a server is ours.
    pub(super) claim: Option<Claim>,
}

/// The writer thread's own.
pub(super) struct State {
    pub(super) conn: Connection,
    pub(super) clock: Clock,
    pub(super) policy: Policy,
    /// What that was before what is not committed yet.
    pub(super) policies: Policies,
    pub(super) metrics: Arc<Metrics>,
    /// Keys every hash of this store (see [`super::Store::seed`]).
    pub(super) seed: u64,
    pub(super) lookup: Known,
    pub(super) hosts: Hosts,
    pub(super) crawls: ById<CrawlId, Crawl>,
    pub(super) windows: ById<CrawlId, Window>,
    /// Rows of what the windows hold and of what is leased.
    pub(super) at_hand: AtHand,
    /// What the job that runs has yet to write.
    pub(super) pending: Pending,
    /// When a lease may expire.
    pub(super) expiry: Expiry,
    /// Changes to the counts of hosts' queues, written once a job.
    pub(super) deltas: TurnDeltas,
    /// Sites that are not leased from. The windows know nothing of their URLs.
    pub(super) paused_sites: IdSet<SiteId>,
    /// Of these, those that are not in the config any more.
    pub(super) left_sites: IdSet<SiteId>,
    pub(super) delays: MovedDelays,
    /// How far what others list too has been handed over to them: the row to go on
    /// after, while there are more.
    pub(super) handing_over: Option<i64>,
    /// How far what redirects has been looked through.
    pub(super) folds: Folds,
    /// When housekeeping last looked for what it looks for seldom, in Unix milliseconds.
    pub(super) tended_at: i64,
    /// Up to where retired sources hold nothing.
    pub(super) emptied: Emptied,
    /// What is counted once it is committed.
    pub(super) told: Told,
    /// How far lists were walked for leases that ask for some sites.
    pub(super) site_walks: SiteWalks,
    /// Where lists begin with what is not leased.
    pub(super) paused_heads: RefCell<PausedHeads>,
    /// Lists behind whose heads there is no new URL.
    pub(super) none_new: InVain,
    pub(super) early: EarlyLooks,
    /// Some of the pairs that `site_hosts` has, beyond the first of each host.
    pub(super) site_hosts: IdSet<(SiteId, HostId)>,
    /// Some of the hosts that a site has URLs on and whose robots.txt is polled,
    /// beyond the first site of each.
    pub(super) robots_known: IdSet<(SiteId, HostId)>,
    /// Blocks in force, of the crawls that have any.
    pub(super) blocks: ById<CrawlId, Blocks>,
    /// What clients of the frontier set.
    pub(super) frontier: super::frontier::Memory,
    /// What looks and reads have taught.
    pub(super) learning: Learning,
    pub(super) numbers: Numbers,
    /// What is added to the rows of sites.
    pub(super) sums: super::sums::Sums,
    /// Has anything made a source due other than by time?
    pub(super) sources_moved: bool,
    /// Which of them somebody asked for.
    pub(super) asked: Vec<SourceId>,
    /// Has a push come, or a wish for one?
    pub(super) hubs_moved: bool,
    /// Has anything been added to the log of changes?
    pub(super) changes_moved: bool,
    pub(super) job: Running,
    /// When a lease was made, or ended, last.
    pub(super) leased_at: Option<Instant>,
    /// Jobs of this transaction whose writes stay.
    pub(super) kept_jobs: usize,
    /// Rows written by this connection before the transaction.
    pub(super) written_before: u64,
    pub(super) trouble: Trouble,
    pub(super) ears: Ears,
    pub(super) engine: Engine,
    /// The settings that memory has.
    pub(super) settings: i64,
}

impl State {
    /// Reads what the writer needs from a database that is open and current.
    pub(super) fn open(
        conn: Connection,
        engine: Engine,
        clock: Clock,
        policy: Policy,
        metrics: Arc<Metrics>,
        ears: Ears,
    ) -> Result<Self, StoreError> {
        let seed = read_seed(&conn)?;
        let lookup = Known::open(&conn).map_err(super::engine)?;
        let mut state = Self {
            conn,
            clock,
            policy,
            policies: Policies::default(),
            metrics,
            seed,
            lookup,
            hosts: Hosts::new(seed),
            crawls: ById::default(),
            windows: ById::default(),
            at_hand: AtHand::default(),
            pending: Pending::default(),
            expiry: Expiry::default(),
            deltas: TurnDeltas::default(),
            paused_sites: IdSet::default(),
            left_sites: IdSet::default(),
            delays: MovedDelays::default(),
            site_walks: SiteWalks::default(),
            paused_heads: RefCell::default(),
            none_new: InVain::default(),
            early: EarlyLooks::default(),
            handing_over: None,
            folds: Folds::default(),
            tended_at: 0,
            emptied: Emptied::default(),
            told: Told::default(),
            site_hosts: IdSet::default(),
            robots_known: IdSet::default(),
            blocks: ById::default(),
            frontier: super::frontier::Memory::default(),
            learning: Learning::default(),
            numbers: Numbers::Embedded(0),
            sums: super::sums::Sums::default(),
            sources_moved: false,
            asked: Vec::new(),
            hubs_moved: false,
            changes_moved: false,
            job: Running::default(),
            leased_at: None,
            kept_jobs: 0,
            written_before: 0,
            trouble: Trouble::default(),
            ears,
            engine,
            settings: 0,
        };
        state.remember()?;
        Ok(state)
    }

    /// Is a partition ours? All of them are in a file.
    pub(super) fn owns(&self, part: i64) -> bool {
        owns(self.engine.claim.as_ref(), part)
    }

    /// Refuses what is about a host, a source or a URL that is another daemon's.
    pub(super) fn must_own(&self, id: i64) -> Result<(), StoreError> {
        if self.owns(id & 255) { Ok(()) } else { Err(StoreError::Elsewhere) }
    }

    /// Refuses what was read of a source by who has it no more: whoever has it now
    /// reads it anew.
    pub(super) fn must_hold(&self, source: SourceId, tenure: i64) -> Result<(), StoreError> {
        let Some(claim) = self.engine.claim.as_ref().filter(|_| tenure > 0) else { return Ok(()) };
        let part = source.0 & 255;
        let epoch = match claim.epoch(part) {
            Some(epoch) => epoch,
            None => self
                .conn
                .prepare_cached("SELECT epoch FROM partitions WHERE part = ?1 AND node IS NOT NULL")
                .and_then(|mut query| query.query_row([part], |row| row.get(0)).optional())
                .map_err(engine)?
                .unwrap_or(0),
        };
        if epoch == tenure {
            return Ok(());
        }
        Err(StoreError::Gone("another daemon polls this source now".to_owned()))
    }

    /// Do others work on the store, too?
    pub(super) fn is_shared(&self) -> bool {
        self.engine.claim.as_ref().is_some_and(Claim::is_shared)
    }

    /// The share of the partitions that is ours, over 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let Some(claim) = &self.engine.claim else { return 1.0 };
        // At most 256 of 256.
        #[allow(clippy::cast_precision_loss)]
        let share = claim.size().max(1) as f64 / super::peers::PARTITIONS as f64;
        share
    }

    /// Which settings of crawls, sites and queues hold: grows with each change
    /// by any of those who share the store.
    pub(super) fn settings_version(&self) -> Result<i64, StoreError> {
        self.conn
            .prepare_cached("SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'settings'")
            .and_then(|mut query| query.query_row((), |row| row.get(0)).optional())
            .map(|version| version.unwrap_or(0))
            .map_err(engine)
    }

    /// Settings change with this commit: others read them again. Where others have
    /// changed some as well, of which we have not heard yet, so do we.
    pub(super) fn note_settings(&mut self) -> Result<(), StoreError> {
        if self.engine.claim.is_none() {
            return Ok(());
        }
        self.conn
            .execute(
                "INSERT INTO meta (key, value) VALUES ('settings', '1')
                 ON CONFLICT (key) DO UPDATE SET
                     value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT)",
                (),
            )
            .map_err(engine)?;
        let version = self.settings_version()?;
        if version == self.settings + 1 {
            self.settings = version;
        }
        Ok(())
    }

    /// Reads what is set again where others have changed it since.
    pub(super) fn heed_settings(&mut self) -> Result<(), StoreError> {
        if self.engine.claim.is_none() || self.settings_version()? == self.settings {
            return Ok(());
        }
        self.remember()?;
        self.tell_ears();
        Ok(())
    }

    /// Unix milliseconds by the wall clock.
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Unix milliseconds by the clock that no step of the wall clock moves:
    /// for leases and host delays. One time for all of a job.
    pub(super) fn steady_ms(&self) -> i64 {
        self.job.began_at.unwrap_or_else(|| self.clock.steady().as_millisecond())
    }

    /// Tells those who wait when the next URL of each crawl may be leased.
    pub(super) fn announce(&self) {
        for (id, crawl) in &self.crawls {
            let ready = if crawl.paused { None } else { self.next_ready(*id) };
            self.ears.wake.announce(&crawl.name, ready);
        }
    }

    /// Forgets and reads again everything that memory holds of the database.
    pub(super) fn remember(&mut self) -> Result<(), StoreError> {
        self.trouble.is_stale = true;
        self.deltas = TurnDeltas::default();
        self.hosts = Hosts::new(self.seed);
        self.windows.clear();
        self.none_new.clear();
        self.early.clear();
        self.paused_heads.get_mut().clear();
        self.at_hand.clear();
        self.expiry = Expiry::default();
        self.site_hosts.clear();
        self.robots_known.clear();
        self.tended_at = 0;
        self.emptied = Emptied::default();
        self.lookup.reload(&self.conn).map_err(engine)?;
        if self.engine.claim.is_some() {
            // Before they are read: of what is changed meanwhile it is to be known.
            self.settings = self.settings_version()?;
        }
        self.crawls = read_crawls(&self.conn)?;
        self.read_paused_sites()?;
        self.read_blocks()?;
        self.read_frontier()?;
        self.numbers = Numbers::read(&self.conn)?;
        for crawl in self.crawls.keys().copied().collect::<Vec<_>>() {
            self.load_window(crawl)?;
        }
        self.trouble.is_stale = false;
        self.announce();
        Ok(())
    }

    /// The crawl with a name, made when it is new.
    pub(super) fn crawl_named(&mut self, name: &str) -> Result<CrawlId, StoreError> {
        if let Some(id) = self.find_crawl(name) {
            return Ok(id);
        }
        let insert = "INSERT INTO crawls (name) VALUES (?1)
                          /*pg: ON CONFLICT (name) DO UPDATE SET name = excluded.name */
                      RETURNING id";
        let id =
            self.conn.query_row(insert, [name], |row| row.get(0).map(CrawlId)).map_err(engine)?;
        self.crawls.insert(id, Crawl { name: name.to_owned(), paused: false });
        self.windows.insert(id, Window::new());
        self.note_settings()?;
        Ok(id)
    }

    /// The crawl with a name, if there is one.
    pub(super) fn find_crawl(&self, name: &str) -> Option<CrawlId> {
        self.crawls.iter().find(|(_, crawl)| crawl.name == name).map(|(id, _)| *id)
    }

    /// The crawl with a name, or the error that lists those there are.
    pub(super) fn known_crawl(&self, name: &str) -> Result<CrawlId, StoreError> {
        self.find_crawl(name).ok_or_else(|| {
            let mut names: Vec<_> = self.crawls.values().map(|crawl| crawl.name.as_str()).collect();
            names.sort_unstable();
            StoreError::NotFound(format!(
                "no crawl is named {name:?}; there is {}",
                names.join(", ")
            ))
        })
    }
}

/// Is a partition ours? All of them are in a file.
pub(super) fn owns(claim: Option<&Claim>, part: i64) -> bool {
    claim.is_none_or(|claim| claim.epoch(part).is_some())
}

fn read_crawls(conn: &Connection) -> Result<ById<CrawlId, Crawl>, StoreError> {
    let mut query = conn.prepare_cached("SELECT id, name, paused FROM crawls").map_err(engine)?;
    let rows = query
        .query_map((), |row| {
            Ok((CrawlId(row.get(0)?), Crawl { name: row.get(1)?, paused: row.get(2)? }))
        })
        .map_err(engine)?;
    rows.collect::<Result<_, _>>().map_err(engine)
}

/// The secret that keys this store's hashes; made once, with the store.
fn read_seed(conn: &Connection) -> Result<u64, StoreError> {
    if let Some(seed) = read_kept_seed(conn)? {
        return Ok(seed);
    }
    let seed = getrandom::u64().map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
    conn.execute(
        "INSERT INTO meta (key, value)
         VALUES ('seed', /*lite*/ ?1 /*end*/ /*pg: CAST(CAST(?1 AS BIGINT) AS TEXT) */)
         ON CONFLICT (key) DO NOTHING",
        params![seed.cast_signed()],
    )
    .map_err(engine)?;
    // Another daemon that starts as well may have been faster.
    read_kept_seed(conn)?.ok_or_else(|| StoreError::Engine("the seed is not kept".to_owned()))
}

/// The same of a store that is only looked at.
pub(super) fn read_kept_seed(conn: &Connection) -> Result<Option<u64>, StoreError> {
    let query = "SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'seed'";
    conn.query_row(query, (), |row| row.get::<i64>(0))
        .optional()
        .map(|seed| seed.map(i64::cast_unsigned))
        .map_err(engine)
}
