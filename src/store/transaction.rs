//! The writer's transactions: begun, shared by jobs, committed, and taken back
//! when a job fails, or the disk does.
//!
//! Keeps: memory is as the tables are, or marked as stale and read again before
//! the next transaction. A transaction that the engine has taken back by itself,
//! as it may when it cannot write, is given up whole.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::ahead::Ahead;
use super::claim::Claim;
use super::learn::Learning;
use super::sql::Session;
use super::state::{State, Wish};
use super::turns::TurnDeltas;
use super::writer::Lane;
use super::{StoreError, engine, log_order};
use crate::queue::window::Window;

/// The same trouble is said again after this.
const SAY_AGAIN: Duration = Duration::from_secs(1);

/// Rows that jobs gather at most before they are written.
const MOST_GATHERED: usize = 2_000;

/// After a transaction was given up, the jobs of so many wait for their writes,
/// so that one that cannot be written fails alone when it comes again.
const CAREFUL: u32 = 64;

/// Whoever leased, or settled, is taken to do so again for this long.
const IN_DEMAND: Duration = Duration::from_secs(1);

/// A clock that was so much behind the server's is worth a line in the log.
const BEHIND_MS: i64 = 1_000;

/// What went wrong and is to be made good.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Could memory not be read again when it should have been?
    pub(super) is_stale: bool,
    /// Did the last commit that had something to write find no room, or fail otherwise
    /// than for a moment?
    pub(super) has_failed: bool,
    /// When it was last said that no transaction could be begun.
    said: Option<Instant>,
    /// Transactions to come in which each job waits for its writes.
    careful: u32,
}

/// The job that runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// When it began, by steady time in Unix milliseconds.
    pub(super) began_at: Option<i64>,
    /// Does it gather what it writes with others?
    gathers: bool,
    /// Rows that this connection has written, but for those of the job itself.
    written_before: u64,
    /// Has it been at the windows of the queue, or at rows at hand?
    pub(super) has_handled: bool,
}

impl Running {
    /// So many rows were written for the jobs before it, if it gathers and has
    /// gathered nothing itself.
    pub(super) fn note_writes(&mut self, rows: u64) {
        if self.gathers {
            self.written_before += rows;
        }
    }
}

impl Trouble {
    /// Says why there is no transaction, and not for each that wants one: a
    /// database may be away for long.
    pub(super) fn say_not_begun(&mut self, why: &StoreError) {
        if self.said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            self.said = Some(Instant::now());
            tracing::error!(error = %why, "no transaction could be started");
        }
    }
}

impl State {
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        // Now that there is something to do here, and not where a commit ends: whoever
        // waited for that is to have the other core.
        self.read_ahead();
        self.forget_lessons();
        self.kept_jobs = 0;
        self.trouble.careful = self.trouble.careful.saturating_sub(1);
        self.connect_again()?;
        let begun = self.begin_informed();
        if matches!(begun, Err(StoreError::Away(_))) {
            // It broke while nobody used it: nothing was asked of it yet.
            self.connect_again()?;
            return self.begin_informed();
        }
        begun
    }

    /// Begins a transaction, with memory as the tables are.
    fn begin_informed(&mut self) -> Result<(), StoreError> {
        if self.trouble.is_stale {
            self.remember()?;
        }
        self.written_before = self.conn.total_changes();
        self.begin_as_owner()
    }

    /// Begins a transaction in which what is ours stays ours.
    fn begin_as_owner(&mut self) -> Result<(), StoreError> {
        for _ in 0..2 {
            self.conn.begin().map_err(engine)?;
            let Some(claim) = &mut self.engine.claim else { return Ok(()) };
            let fenced = log_order::mark(&self.conn).and_then(|()| claim.fence(&self.conn));
            if let Ok(Some(time)) = fenced {
                let behind_ms = self.clock.keep_to(time);
                if behind_ms >= BEHIND_MS {
                    tracing::info!(behind_ms, "the clock stood still, as on a suspended machine");
                }
                return Ok(());
            }
            // Where even this fails, the next transaction needs another connection.
            let _ = self.conn.rollback();
            fenced?;
            tracing::warn!("others have taken over what was ours; this daemon joins them anew");
            self.trouble.is_stale = true;
            // What others have learned meanwhile, and where they took the price, is in
            // the tables.
            self.learning = Learning::default();
            self.delays.have_moved = true;
            claim.join_again(&self.conn)?;
            self.remember()?;
        }
        // Twice within a moment: whoever does that is to be left alone for now.
        Err(StoreError::Busy)
    }

    /// Makes another connection to a server where the last one broke. Whatever
    /// was not committed over that one is gone, and what memory knows may be.
    fn connect_again(&mut self) -> Result<(), StoreError> {
        if !self.conn.server().is_some_and(Session::is_broken) {
            return Ok(());
        }
        self.trouble.is_stale = true;
        let conn = self.engine.home.open_writer(self.engine.durability)?;
        if let Some(claim) = &mut self.engine.claim
            && claim.go_on(&conn)?
        {
            self.learning = Learning::default();
            self.delays.have_moved = true;
        }
        self.conn = conn;
        tracing::info!("connected to the database again");
        Ok(())
    }

    /// Looks at who has which partition, every second: gives up what is beyond
    /// our share, takes what is missing of it and nobody's.
    pub(super) fn tend_claim(&mut self) -> Result<(), StoreError> {
        let claim = self.engine.claim.as_mut().filter(|claim| claim.wants_look());
        let Some(claim) = claim else { return Ok(()) };
        claim.looks();
        self.begin()?;
        let looked = self.look_at_partitions();
        let committed = match &looked {
            Ok(_) => self.commit(),
            Err(error) => {
                self.give_up(error);
                Ok(())
            }
        };
        let (look, version) = looked?;
        committed?;
        let Some(claim) = &mut self.engine.claim else { return Ok(()) };
        let is_shared = claim.is_shared();
        let has_moved = claim.take_over(look);
        let is_old = std::mem::replace(&mut self.settings, version) != version;
        if has_moved {
            let partitions = claim.size();
            tracing::info!(partitions, "other partitions are ours now");
        }
        if has_moved {
            self.learning = Learning::default();
            self.delays.have_moved = true;
        }
        if has_moved || is_old {
            self.remember()?;
            self.tell_ears();
        }
        self.heed_delays()?;
        if is_shared { self.catch_up_prices() } else { Ok(()) }
    }

    fn look_at_partitions(&mut self) -> Result<(super::claim::Look, i64), StoreError> {
        let version = self.settings_version()?;
        let Some(claim) = &mut self.engine.claim else { return Err(StoreError::Elsewhere) };
        let look = claim.look(&self.conn)?;
        if claim.moves_by(&look) {
            // What is given up takes with it what was learned.
            self.write_all_lessons()?;
        }
        Ok((look, version))
    }

    /// There may be something to do for the poll loop, or with hubs.
    pub(super) fn tell_ears(&self) {
        for ear in [&self.ears.sources, &self.ears.hubs] {
            ear.send_modify(|times| *times = times.wrapping_add(1));
        }
    }

    pub(super) fn commit(&mut self) -> Result<(), StoreError> {
        let committed = self
            .write_gathered_jobs()
            .and_then(|()| self.write_lessons())
            .and_then(|()| self.write_sums())
            .and_then(|()| self.conn.commit().map_err(engine));
        if let Err(error) = &committed {
            self.give_up(error);
            return committed;
        }
        self.policies.committed();
        self.lookup.publish();
        self.told.count(&self.metrics);
        if self.conn.total_changes() != self.written_before {
            self.trouble.has_failed = false;
        }
        self.announce();
        if (self.sources_moved || self.hubs_moved) && self.is_shared() {
            self.ears.peers.send_modify(|times| *times = times.wrapping_add(1));
        }
        // Before the loop is woken, which takes them.
        let wish = |source| Wish { source, is_told: false };
        self.ears.asked.add(self.asked.drain(..).map(wish));
        if std::mem::take(&mut self.sources_moved) {
            self.ears.sources.send_modify(|times| *times = times.wrapping_add(1));
        }
        if std::mem::take(&mut self.hubs_moved) {
            self.ears.hubs.send_modify(|times| *times = times.wrapping_add(1));
        }
        if std::mem::take(&mut self.changes_moved) {
            self.ears.changes.send_modify(|times| *times = times.wrapping_add(1));
        }
        Ok(())
    }

    /// Takes back the whole transaction, which may have ended already.
    pub(super) fn give_up(&mut self, why: &StoreError) {
        self.trouble.has_failed |= matches!(why, StoreError::Full | StoreError::Engine(_));
        self.trouble.careful = CAREFUL;
        if !self.conn.is_autocommit() {
            // Where even this fails, so does the next transaction.
            let _ = self.conn.rollback();
        }
        self.learning = Learning::default();
        self.job.began_at = None;
        self.pending.clear();
        self.sums.clear();
        self.told.clear();
        self.asked.clear();
        self.policies.give_up(&mut self.policy);
        if let Err(error) = self.remember() {
            tracing::warn!(%error, "memory is read again before the next transaction");
        }
    }

    /// Does a commit work? Writes a little only where the last one did not.
    pub(super) fn probe(&mut self) -> Result<(), StoreError> {
        if !self.trouble.has_failed {
            return Ok(());
        }
        let now = self.now_ms();
        self.conn
            .execute(
                "INSERT INTO meta (key, value)
                 VALUES ('probed_at', /*lite*/ ?1 /*end*/ /*pg: CAST(CAST(?1 AS BIGINT) AS TEXT) */)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [now],
            )
            .map(|_| ())
            .map_err(engine)
    }

    /// A job begins. The first of a transaction needs no savepoint: to take it
    /// back, the transaction begins anew, which spares copies of all the pages
    /// that it writes to. One that gathers needs none either.
    pub(super) fn savepoint(&mut self, lane: Lane) -> Result<(), StoreError> {
        let can_gather = self.conn.embedded().is_some() && self.trouble.careful == 0;
        self.job.gathers = lane == Lane::Gathers && can_gather;
        if lane == Lane::Gathers {
            self.note_demand();
        }
        if !self.job.gathers {
            self.write_gathered_jobs()?;
        }
        self.pending.is_touched = false;
        self.job.has_handled = false;
        self.job.written_before = self.conn.total_changes();
        self.learning.begin_job();
        self.at_hand.begin_job();
        self.job.began_at = None;
        self.job.began_at = Some(self.steady_ms());
        // The engine itself takes a transaction back when the disk fails it.
        match (self.kept_jobs > 0, self.conn.is_autocommit()) {
            (true, false) if self.job.gathers => Ok(()),
            (true, false) => {
                self.conn.send(format!("SAVEPOINT {}", self.job_name())).map_err(engine)
            }
            (true, true) => Err(taken_back()),
            (false, false) => Ok(()),
            (false, true) => self.begin_as_owner(),
        }
    }

    /// Somebody leases, settles, or holds on to what was leased.
    pub(super) fn note_demand(&mut self) {
        self.leased_at = Some(Instant::now());
    }

    /// Is somebody leasing, or settling, who would wait for a long job?
    pub(super) fn is_leased_from(&self) -> bool {
        self.leased_at.is_some_and(|at| at.elapsed() < IN_DEMAND)
    }

    /// The savepoint of the job that runs. Each has a name of its own: where a
    /// write of an earlier job fails on the server, none that was asked for later
    /// is there to go back to.
    fn job_name(&self) -> Cow<'static, str> {
        if self.conn.embedded().is_some() {
            return "job".into();
        }
        format!("job_{}", self.kept_jobs).into()
    }

    /// Keeps the writes of the job that just ran, or says in the result why it was
    /// taken back alone. Of a job in the hot lane a server need not say at once that
    /// it has written them: should that fail, so does the commit, and with it all
    /// who ride along.
    pub(super) fn keep(&mut self, lane: Lane) -> Result<Result<(), StoreError>, StoreError> {
        self.at_hand.end_job();
        self.job.began_at = None;
        if self.job.gathers {
            if self.pending.rows() > MOST_GATHERED {
                self.write_gathered_jobs()?;
            }
            self.keep_job();
            return Ok(Ok(()));
        }
        let mut written = self.write_gathered_jobs();
        if written.is_ok() && (lane == Lane::Bulk || self.trouble.careful > 0) {
            // A write that failed is the failure of this job, and of no later one.
            written = self.conn.flush().map_err(engine);
        }
        if let Err(error) = written {
            self.take_back()?;
            // Where the disk is full nobody's writes can be relied on.
            let is_alone = error != StoreError::Full && !error.is_fatal();
            return if is_alone { Ok(Err(error)) } else { Err(error) };
        }
        if self.kept_jobs > 0 {
            self.conn.send(format!("RELEASE {}", self.job_name())).map_err(engine)?;
        }
        self.keep_job();
        Ok(Ok(()))
    }

    fn keep_job(&mut self) {
        self.sums.keep();
        self.told.keep();
        self.policies.keep();
        self.kept_jobs += 1;
    }

    /// Writes what jobs have gathered.
    fn write_gathered_jobs(&mut self) -> Result<(), StoreError> {
        let has_any = self.pending.rows() > 0 || !self.deltas.is_empty();
        if has_any && self.conn.embedded().is_some() && self.conn.is_autocommit() {
            // Each statement would stand for itself.
            return Err(taken_back());
        }
        self.write_pending().and_then(|()| self.flush_deltas())
    }

    /// Has the job that runs written or gathered nothing at all, in a transaction
    /// that goes on?
    fn is_untouched(&self) -> bool {
        !self.pending.is_touched
            && self.conn.total_changes() == self.job.written_before
            && !self.conn.is_autocommit()
    }

    /// Takes back the writes of the job that just ran, and what memory took
    /// over from them.
    pub(super) fn take_back(&mut self) -> Result<(), StoreError> {
        self.learning.take_back();
        self.job.began_at = None;
        // A request that was refused as soon as it was looked at, as a rule: what is in
        // memory is as it was.
        let has_done_nothing = !self.job.has_handled
            && !self.at_hand.is_touched()
            && !self.pending.is_touched
            && self.conn.total_changes() == self.job.written_before;
        if !has_done_nothing {
            self.at_hand.clear();
        }
        self.sums.take_back();
        self.told.take_back();
        self.policies.take_back(&mut self.policy);
        if self.job.gathers {
            // What the others have gathered stays.
            if !has_done_nothing {
                self.doubt_windows();
            }
            return if self.is_untouched() { Ok(()) } else { Err(StoreError::Busy) };
        }
        self.pending.clear();
        if self.kept_jobs > 0 {
            self.conn.rollback_to(&self.job_name()).map_err(engine)?;
        } else {
            if !self.conn.is_autocommit() {
                self.conn.rollback().map_err(engine)?;
            }
            self.begin_as_owner()?;
        }
        if self.conn.total_changes() != self.job.written_before {
            return self.remember();
        }
        // Nothing was written (a request that was refused, as a rule): memory
        // is in step but for what the windows may have handed out.
        self.deltas = TurnDeltas::default();
        if !has_done_nothing {
            self.doubt_windows();
        }
        Ok(())
    }

    /// Windows may have handed out what is in the queue again.
    fn doubt_windows(&mut self) {
        self.windows.values_mut().for_each(Window::invalidate_all);
        // What was found early has gone with that, and a look goes nowhere twice.
        self.early.clear();
        self.none_new.clear();
        self.paused_heads.get_mut().clear();
    }

    /// A slice of index maintenance in a transaction of its own.
    pub(super) fn merge_indexes(&mut self, budget: usize) -> Result<(), StoreError> {
        if self.trouble.is_stale || !self.lookup.has_merge() {
            return Ok(());
        }
        let merged = self.lookup.merge_step(&self.conn, budget).map_err(engine);
        if merged.is_err() {
            self.trouble.is_stale = true;
            self.lookup.reload(&self.conn).map_err(engine)?;
            self.trouble.is_stale = false;
        }
        merged
    }

    /// Keeps the write-ahead log short.
    pub(super) fn tend_log(&self) -> Result<(), StoreError> {
        match (&self.engine.log, self.conn.embedded()) {
            (Some(log), Some(conn)) => log.tend(conn),
            _ => Ok(()),
        }
    }

    /// Writes what has waited for a quiet moment.
    pub(super) fn write_what_waits(&mut self) -> Result<(), StoreError> {
        let is_due = self.engine.claim.as_ref().is_some_and(Claim::wants_renewal);
        if !self.has_lessons_waiting() && !is_due {
            return Ok(());
        }
        self.begin()?;
        let written = self.write_all_lessons();
        self.commit().and(written)
    }

    /// The last thing the thread does: `Err` only when the disk failed.
    pub(super) fn shut_down(&mut self) -> Result<(), StoreError> {
        if let Err(error) = self.write_what_waits() {
            tracing::warn!(%error, "the last of what was learned is lost");
            if error.is_fatal() {
                return Err(error);
            }
        }
        if let Some(claim) = &self.engine.claim {
            return claim.give_back(&self.conn).or_else(|error| {
                tracing::debug!(%error, "what was ours is nobody's only when its time is over");
                if error.is_fatal() { Err(error) } else { Ok(()) }
            });
        }
        // Whoever reads is in the way of folding the log.
        self.at_hand.ahead = Ahead::default();
        self.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").map_err(engine).or_else(|error| {
            tracing::debug!(%error, "the log was not folded into the database; the next start does it");
            if error.is_fatal() { Err(error) } else { Ok(()) }
        })
    }
}

/// The engine itself has ended the transaction.
fn taken_back() -> StoreError {
    StoreError::Engine("the transaction was taken back".to_owned())
}
