//! The one writer: a thread that owns the write connection and commits in groups.
//!
//! Jobs come in two lanes. The hot lane (leases, settlements, the host clock)
//! is drained before each piece of the bulk lane (chunks of diffs), so that a
//! large document never holds up a fetcher. Many jobs share one transaction;
//! each runs in a savepoint of its own, and nobody is answered before the
//! commit. A job that fails, or panics, takes back its own writes only.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::StoreError;
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
    /// Long, or nobody is in a hurry.
    Bulk,
}

/// Answers the caller once the commit is known to have worked, or not.
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// Runs inside the transaction, or hears why there is none; says whether its
/// writes may stay.
type Job = Box<dyn FnOnce(Result<&mut State, StoreError>) -> (bool, Answer) + Send>;

struct Lanes {
    hot: VecDeque<(Job, OwnedSemaphorePermit)>,
    bulk: VecDeque<(Job, OwnedSemaphorePermit)>,
    closed: bool,
}

struct Shared {
    lanes: Mutex<Lanes>,
    arrived: Condvar,
    hot_room: Arc<Semaphore>,
    bulk_room: Arc<Semaphore>,
}

/// A handle to the writer; the thread ends when [`Writer::close`] is called.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread. `state` moves into it.
    pub(super) fn start(state: State) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            lanes: Mutex::new(Lanes { hot: VecDeque::new(), bulk: VecDeque::new(), closed: false }),
            arrived: Condvar::new(),
            hot_room: Arc::new(Semaphore::new(HOT_WAITING)),
            bulk_room: Arc::new(Semaphore::new(BULK_WAITING)),
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
        let room = match lane {
            Lane::Hot => &self.shared.hot_room,
            Lane::Bulk => &self.shared.bulk_room,
        };
        let permit = Arc::clone(room).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (sender, receiver) = oneshot::channel();
        let boxed: Job = Box::new(move |state| {
            let result = state.and_then(job);
            let keep = result.is_ok();
            let answer: Answer = Box::new(move |committed| {
                // The caller may have gone; its effect stands all the same.
                let _ = sender.send(committed.and(result));
            });
            (keep, answer)
        });
        {
            let mut lanes = lock(&self.shared.lanes);
            if lanes.closed {
                return Err(StoreError::Closed);
            }
            match lane {
                Lane::Hot => lanes.hot.push_back((boxed, permit)),
                Lane::Bulk => lanes.bulk.push_back((boxed, permit)),
            }
        }
        self.shared.arrived.notify_one();
        receiver.await.unwrap_or_else(|_| {
            // The channel goes unused with a job that panicked, or when the
            // writer ends without having come to it.
            let closed = lock(&self.shared.lanes).closed;
            let panicked =
                || StoreError::Engine("the job panicked; nothing was changed".to_owned());
            Err(if closed { StoreError::Closed } else { panicked() })
        })
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
    loop {
        let Some(group) = next_group(shared) else { break };
        if group.is_empty() {
            rest(&mut state);
        } else {
            commit_group(&mut state, group, shared);
        }
        tend(&mut state);
    }
    refuse_waiting(shared);
    state.shut_down();
}

/// The jobs of the next transaction; empty when it is time to tend the
/// indexes, `None` when closed and drained.
fn next_group(shared: &Shared) -> Option<Vec<(Job, OwnedSemaphorePermit)>> {
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

fn commit_group(state: &mut State, group: Vec<(Job, OwnedSemaphorePermit)>, shared: &Shared) {
    let started = Instant::now();
    if let Err(error) = state.begin() {
        tracing::error!(%error, "no transaction could be started");
        for (job, permit) in group {
            drop(permit);
            let (_, answer) = job(Err(error.clone()));
            answer(Ok(()));
        }
        return;
    }
    let mut answers = Vec::with_capacity(group.len());
    let mut waiting: VecDeque<_> = group.into();
    while let Some((job, permit)) = waiting.pop_front() {
        answers.push(run_job(state, job));
        drop(permit);
        if waiting.is_empty() && started.elapsed() < GROUP_TIME {
            // Whoever arrived meanwhile rides along: fewer, larger commits.
            let mut lanes = lock(&shared.lanes);
            let hot = lanes.hot.len().min(GROUP.saturating_sub(answers.len()));
            waiting.extend(lanes.hot.drain(..hot));
        }
    }
    let committed = state.commit();
    let effects = u64::try_from(answers.len()).unwrap_or(u64::MAX);
    state.metrics.commit_done(started.elapsed(), effects);
    if let Err(error) = &committed {
        tracing::error!(%error, jobs = answers.len(), "commit failed, nothing of it was kept");
    }
    for answer in answers {
        answer(committed.clone());
    }
}

/// Runs one job in its own savepoint.
fn run_job(state: &mut State, job: Job) -> Answer {
    if let Err(error) = state.savepoint() {
        return job(Err(error)).1;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| job(Ok(state))));
    let (keep, answer) = outcome.unwrap_or_else(|_| {
        tracing::error!("a store job panicked; its writes were taken back");
        // The caller's channel went with the job, which tells the caller.
        let nobody: Answer = Box::new(|_| ());
        (false, nobody)
    });
    let ended = if keep { state.keep() } else { state.take_back() };
    match ended {
        Ok(()) => answer,
        Err(error) => Box::new(move |_| answer(Err(error))),
    }
}

fn refuse_waiting(shared: &Shared) {
    let mut lanes = lock(&shared.lanes);
    lanes.closed = true;
    lanes.hot.clear();
    lanes.bulk.clear();
}

/// A quiet moment.
fn rest(state: &mut State) {
    if let Err(error) = state.write_what_waits() {
        tracing::warn!(%error, "what was learned could not be written");
    }
}

/// A slice of index work between two groups, so that none of it is ever long,
/// and a look at the log.
fn tend(state: &mut State) {
    if let Err(error) = state.tend_log() {
        tracing::debug!(%error, "checkpoint put off");
    }
    if let Err(error) = state.merge_indexes(MERGE_SLICE) {
        tracing::warn!(%error, "index merge failed, it will be tried again");
    }
}

#[cfg(test)]
mod tests;
