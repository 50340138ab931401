//! What the writer thread holds: its connection, and what it remembers of the
//! database so that the hot path need not ask.
//!
//! Memory follows the database: everything remembered is dropped and read
//! again when rows that were written are taken back, before the next
//! transaction at the latest. A job that was refused before it wrote any leaves
//! memory as it is.

use std::sync::Arc;

use super::sql::{Connection, OptionalExtension, params};

use super::ahead::Ahead;
use super::checkpoint::LogKeeper;
use super::claim::Claim;
use super::home::Home;
use super::hosts::Hosts;
use super::known::Known;
use super::learn::Learning;
use super::numbers::Numbers;
use super::operate::Block;
use super::pending::Pending;
use super::policy::Policy;
use super::transaction::Trouble;
use super::turns::TurnDeltas;
use super::wake::Wake;
use super::{StoreError, engine};
use crate::by_id::{ById, IdSet};
use crate::clock::Clock;
use crate::config::Durability;
use crate::metrics::Metrics;
use crate::model::{CrawlId, HostId, SiteId};
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
    /// Who talks to hubs: there is something to do.
    pub(super) hubs: Arc<watch::Sender<u64>>,
    /// Those who follow the change stream.
    pub(super) changes: Arc<watch::Sender<u64>>,
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
    pub(super) metrics: Arc<Metrics>,
    /// Keys every hash of this store (see [`super::Store::seed`]).
    pub(super) seed: u64,
    pub(super) lookup: Known,
    pub(super) hosts: Hosts,
    pub(super) crawls: ById<CrawlId, Crawl>,
    pub(super) windows: ById<CrawlId, Window>,
    /// Rows of what the windows hold.
    pub(super) ahead: Ahead,
    /// What the job that runs has yet to write.
    pub(super) pending: Pending,
    /// Changes to the counts of hosts' queues, written once a job.
    pub(super) deltas: TurnDeltas,
    /// Sites that are not leased from. The windows know nothing of their URLs.
    pub(super) paused_sites: IdSet<SiteId>,
    /// Some of the pairs that `site_hosts` has.
    pub(super) site_hosts: IdSet<(SiteId, HostId)>,
    /// Some of the hosts that a site has URLs on and whose robots.txt is polled.
    pub(super) robots_known: IdSet<(SiteId, HostId)>,
    /// Blocks in force, of the crawls that have any.
    pub(super) blocks: ById<CrawlId, Vec<Block>>,
    /// What clients of the frontier set.
    pub(super) frontier: super::frontier::Memory,
    /// What looks and reads have taught.
    pub(super) learning: Learning,
    pub(super) numbers: Numbers,
    /// Has anything made a source due other than by time?
    pub(super) sources_moved: bool,
    /// Has a push come, or a wish for one?
    pub(super) hubs_moved: bool,
    /// Has anything been added to the log of changes?
    pub(super) changes_moved: bool,
    /// Rows written by this connection before the job that runs now.
    pub(super) written_before_job: u64,
    /// Jobs of this transaction whose writes stay.
    pub(super) kept_jobs: usize,
    /// The same, before the transaction.
    pub(super) written_before: u64,
    pub(super) trouble: Trouble,
    pub(super) ears: Ears,
    pub(super) engine: Engine,
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
            metrics,
            seed,
            lookup,
            hosts: Hosts::default(),
            crawls: ById::default(),
            windows: ById::default(),
            ahead: Ahead::default(),
            pending: Pending::default(),
            deltas: TurnDeltas::default(),
            paused_sites: IdSet::default(),
            site_hosts: IdSet::default(),
            robots_known: IdSet::default(),
            blocks: ById::default(),
            frontier: super::frontier::Memory::default(),
            learning: Learning::default(),
            numbers: Numbers::Embedded(0),
            sources_moved: false,
            hubs_moved: false,
            changes_moved: false,
            written_before_job: 0,
            kept_jobs: 0,
            written_before: 0,
            trouble: Trouble::default(),
            ears,
            engine,
        };
        state.remember()?;
        Ok(state)
    }

    /// Unix milliseconds by the wall clock.
    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Unix milliseconds by the clock that no step of the wall clock moves:
    /// for leases and host delays.
    pub(super) fn steady_ms(&self) -> i64 {
        self.clock.steady().as_millisecond()
    }

    /// Tells those who wait when the next URL of each crawl may be leased.
    pub(super) fn announce(&self) {
        for (id, crawl) in &self.crawls {
            let ready =
                self.windows.get(id).filter(|_| !crawl.paused).and_then(Window::next_ready_at);
            self.ears.wake.announce(&crawl.name, ready);
        }
    }

    /// Forgets and reads again everything that memory holds of the database.
    pub(super) fn remember(&mut self) -> Result<(), StoreError> {
        self.trouble.is_stale = true;
        self.deltas = TurnDeltas::default();
        self.hosts = Hosts::default();
        self.windows.clear();
        self.ahead.clear();
        self.site_hosts.clear();
        self.robots_known.clear();
        self.lookup.reload(&self.conn).map_err(engine)?;
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
        let insert = "INSERT INTO crawls (name) VALUES (?1) RETURNING id";
        let id =
            self.conn.query_row(insert, [name], |row| row.get(0).map(CrawlId)).map_err(engine)?;
        self.crawls.insert(id, Crawl { name: name.to_owned(), paused: false });
        self.windows.insert(id, Window::new());
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
         VALUES ('seed', /*lite*/ ?1 /*end*/ /*pg: CAST(CAST(?1 AS BIGINT) AS TEXT) */)",
        params![seed.cast_signed()],
    )
    .map_err(engine)?;
    Ok(seed)
}

/// The same of a store that is only looked at.
pub(super) fn read_kept_seed(conn: &Connection) -> Result<Option<u64>, StoreError> {
    let query = "SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'seed'";
    conn.query_row(query, (), |row| row.get::<i64>(0))
        .optional()
        .map(|seed| seed.map(i64::cast_unsigned))
        .map_err(engine)
}
