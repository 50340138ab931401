//! The one writer: a thread that owns the write connection and commits in groups.
//!
//! Jobs come in two lanes. The hot lane (leases, settlements, the host clock)
//! is drained before each piece of the bulk lane (chunks of diffs), so that a
//! large document never holds up a fetcher. Many jobs share one transaction;
//! each runs in a savepoint of its own, and nobody is answered before the
//! commit. A job that fails, or panics, takes back its own writes only. When
//! even that fails the whole transaction is given up, and after a failed sync
//! the thread ends without another write.
//!
//! Leases and their ends have no savepoints: what they write is gathered over all
//! of a transaction. One that is refused has written nothing; where one fails after
//! that, so does the transaction, and for a while each has a savepoint again.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::StoreError;
use super::failure::Failure;
use super::state::State;

/// Jobs waiting in the hot lane at most; a caller beyond that waits.
const HOT_WAITING: usize = 4_096;
/// Jobs waiting in the bulk lane at most.
const BULK_WAITING: usize = 64;
/// Jobs of the hot lane in one transaction at most.
const GROUP: usize = 512;
/// A transaction takes no further job once it is this old.
const GROUP_TIME: Duration = Duration::from_millis(5);
/// With nothing to do, the writer tends its indexes this often.
const IDLE: Duration = Duration::from_millis(500);
/// Index entries merged between two groups of jobs.
const MERGE_SLICE: usize = 50_000;

/// Which lane a job waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Short, and someone is waiting for it.
    Hot,
    /// The same of leases and their ends, whose writes are gathered and written
    /// with those of others like it.
    Gathers,
    /// Long, or nobody is in a hurry.
    Bulk,
}

/// Answers the caller once the commit is known to have worked, or not.
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// Runs inside the transaction, or hears why there is none; says whether its
/// writes may stay, or why not.
type Job =
    Box<dyn FnOnce(Result<&mut State, StoreError>) -> (Result<(), StoreError>, Answer) + Send>;

/// A job, the lane it waits in, and its place there.
type Waiting = (Job, Lane, OwnedSemaphorePermit);

struct Lanes {
    hot: VecDeque<Waiting>,
    bulk: VecDeque<Waiting>,
    closed: bool,
}

struct Shared {
    lanes: Mutex<Lanes>,
    arrived: Condvar,
    hot_room: Arc<Semaphore>,
    bulk_room: Arc<Semaphore>,
    failure: Failure,
}

/// A handle to the writer; the thread ends when [`Writer::close`] is called.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread. `state` moves into it.
    pub(super) fn start(state: State, failure: Failure) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            lanes: Mutex::new(Lanes { hot: VecDeque::new(), bulk: VecDeque::new(), closed: false }),
            arrived: Condvar::new(),
            hot_room: Arc::new(Semaphore::new(HOT_WAITING)),
            bulk_room: Arc::new(Semaphore::new(BULK_WAITING)),
            failure,
        });
        let inside = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(&inside, state))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Runs `job` in a transaction and returns what it returned, once that is
    /// committed. `Err` from the job takes its own writes back.
    pub(super) async fn run<T, F>(&self, lane: Lane, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let boxed: Job = Box::new(move |state| {
            let result = state.and_then(job);
            let keep = result.as_ref().map(|_| ()).map_err(StoreError::clone);
            let answer: Answer = Box::new(move |committed| {
                // The caller may have gone; its effect stands all the same.
                let _ = sender.send(committed.and(result));
            });
            (keep, answer)
        });
        self.queue(lane, boxed).await?;
        receiver.await.unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    /// Compiled once, and not for each job.
    async fn queue(&self, lane: Lane, job: Job) -> Result<(), StoreError> {
        let room = match lane {
            Lane::Hot | Lane::Gathers => &self.shared.hot_room,
            Lane::Bulk => &self.shared.bulk_room,
        };
        let permit = Arc::clone(room).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        {
            let mut lanes = lock(&self.shared.lanes);
            if lanes.closed {
                return Err(self.why_closed());
            }
            match lane {
                Lane::Hot | Lane::Gathers => lanes.hot.push_back((job, lane, permit)),
                Lane::Bulk => lanes.bulk.push_back((job, lane, permit)),
            }
        }
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// The channel goes unused with a job that panicked, or when the writer ends
    /// without having come to it.
    fn why_unanswered(&self) -> StoreError {
        if lock(&self.shared.lanes).closed {
            return self.why_closed();
        }
        StoreError::Engine("the job panicked; nothing was changed".to_owned())
    }

    fn why_closed(&self) -> StoreError {
        self.shared.failure.check().err().unwrap_or(StoreError::Closed)
    }

    /// Finishes what is waiting, then ends the thread. Blocks until then.
    pub(super) fn close(&self) {
        lock(&self.shared.lanes).closed = true;
        self.shared.arrived.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic of the writer itself has been logged where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// A panic never happens while these locks are held, so poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(shared: &Shared, mut state: State) {
    // A panic outside of the jobs is a bug of ours. Whoever waits must hear of
    // it, and what is in memory is not to be believed any more.
    let ended = catch_unwind(AssertUnwindSafe(|| work(shared, &mut state)));
    if ended.is_err() {
        shared.failure.declare(&StoreError::Failed("the writer panicked".to_owned()));
    }
    refuse_waiting(shared);
    if let Err(error) = shared.failure.check().and_then(|()| state.shut_down()) {
        shared.failure.declare(&error);
        // Closing would move the log into the database, and sync again.
        std::mem::forget(state);
    }
}

/// Works until closed, or until nothing may be written any more.
fn work(shared: &Shared, state: &mut State) {
    while shared.failure.check().is_ok() {
        let Some(group) = next_group(shared) else { break };
        let done = if group.is_empty() { rest(state) } else { commit_group(state, group, shared) };
        if let Err(error) = done.and_then(|()| tend(state)) {
            shared.failure.declare(&error);
        }
    }
}

/// The jobs of the next transaction; empty when it is time to tend the
/// indexes, `None` when closed and drained.
fn next_group(shared: &Shared) -> Option<Vec<Waiting>> {
    let mut lanes = lock(&shared.lanes);
    if lanes.hot.is_empty() && lanes.bulk.is_empty() {
        if lanes.closed {
            return None;
        }
        let waited = shared.arrived.wait_timeout(lanes, IDLE);
        lanes = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let hot = lanes.hot.len().min(GROUP);
    let mut group: Vec<_> = lanes.hot.drain(..hot).collect();
    group.extend(lanes.bulk.pop_front());
    Some(group)
}

/// `Err` means that nothing may be written any more.
fn commit_group(state: &mut State, group: Vec<Waiting>, shared: &Shared) -> Result<(), StoreError> {
    let started = Instant::now();
    if let Err(error) = state.begin() {
        state.trouble.say_not_begun(&error);
        for (job, _, permit) in group {
            drop(permit);
            job(Err(error.clone())).1(Ok(()));
        }
        return unless_fatal(error);
    }
    let mut answers = Vec::with_capacity(group.len());
    let mut waiting: VecDeque<_> = group.into();
    // Why there is no transaction any more, should it come to that.
    let mut lost: Option<StoreError> = None;
    while let Some((job, lane, permit)) = waiting.pop_front() {
        answers.push(match &lost {
            Some(error) => job(Err(error.clone())).1,
            None => run_job(state, job, lane, &mut lost),
        });
        drop(permit);
        if waiting.is_empty() && lost.is_none() && started.elapsed() < GROUP_TIME {
            // Whoever arrived meanwhile rides along: fewer, larger commits.
            let mut lanes = lock(&shared.lanes);
            let hot = lanes.hot.len().min(GROUP.saturating_sub(answers.len()));
            waiting.extend(lanes.hot.drain(..hot));
        }
    }
    let committed = match lost {
        None => state.commit().and_then(|()| shared.failure.check()),
        Some(error) => {
            state.give_up(&error);
            Err(error)
        }
    };
    match &committed {
        Ok(()) => {
            let effects = u64::try_from(state.kept_jobs).unwrap_or(u64::MAX);
            state.metrics.commit_done(started.elapsed(), effects);
        }
        Err(error) => tracing::error!(%error, jobs = answers.len(), "commit failed"),
    }
    for answer in answers {
        answer(committed.clone());
    }
    committed.or_else(unless_fatal)
}

/// An error after which work may go on has been told to whom it concerns.
fn unless_fatal(error: StoreError) -> Result<(), StoreError> {
    if error.is_fatal() { Err(error) } else { Ok(()) }
}

/// Runs one job in its own savepoint. `lost` hears why the transaction is no
/// more, if that is so: an engine that fails to write may end it by itself.
fn run_job(state: &mut State, job: Job, lane: Lane, lost: &mut Option<StoreError>) -> Answer {
    if let Err(error) = state.savepoint(lane) {
        *lost = Some(error.clone());
        return job(Err(error)).1;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| job(Ok(state))));
    let (keep, answer) = outcome.unwrap_or_else(|_| {
        tracing::error!("a store job panicked; its writes were taken back");
        // The caller's channel went with the job, which tells the caller.
        let nobody: Answer = Box::new(|_| ());
        (Err(StoreError::Engine("a job panicked".to_owned())), nobody)
    });
    let ended = match &keep {
        Ok(()) => state.keep(lane),
        Err(_) => state.take_back().map(Ok),
    };
    match (keep, ended) {
        (Err(error), _) if error.is_fatal() => *lost = Some(error),
        (Err(own), Err(error)) => {
            // The others are to come again, where it was not the store that failed.
            *lost = Some(if own.is_for_all() { own } else { error });
            return Box::new(|_| answer(Ok(())));
        }
        (Ok(()), Err(error)) => *lost = Some(error),
        (_, Ok(Err(error))) => return Box::new(|committed| answer(committed.and(Err(error)))),
        (_, Ok(Ok(()))) => {}
    }
    answer
}

fn refuse_waiting(shared: &Shared) {
    let mut lanes = lock(&shared.lanes);
    lanes.closed = true;
    lanes.hot.clear();
    lanes.bulk.clear();
}

/// A quiet moment.
fn rest(state: &mut State) -> Result<(), StoreError> {
    state.read_ahead();
    state.write_what_waits().or_else(|error| {
        tracing::warn!(%error, "what was learned could not be written");
        unless_fatal(error)
    })
}

/// A slice of index work between two groups, so that none of it is ever long,
/// and a look at the log.
fn tend(state: &mut State) -> Result<(), StoreError> {
    state.tend_claim().or_else(|error| {
        tracing::debug!(%error, "who has which partition could not be looked at");
        unless_fatal(error)
    })?;
    state.tend_log().or_else(|error| {
        tracing::debug!(%error, "checkpoint put off");
        unless_fatal(error)
    })?;
    state.merge_indexes(MERGE_SLICE).or_else(|error| {
        tracing::warn!(%error, "index merge failed, it will be tried again");
        unless_fatal(error)
    })
}

#[cfg(test)]
mod tests;
