//! Moves the write-ahead log into the database, and keeps it short.
//!
//! Most of it is moved by a thread of its own. But the log begins anew only when
//! all of it has been moved and nobody reads in it, and under steady writing
//! that thread never catches up. So the writer moves the last part itself,
//! between two groups of jobs, once that part is small. The log is then written
//! over: it stays within a round ([`USUAL`]), about, or some rounds where single
//! commits are large, in pages that the system has in memory already, which is
//! cheaper by far than a file that grows.
//!
//! Keeps: a log longer than its longest makes the writer wait for the move, so
//! writing faster than the disk can take does not fill it. Only a reader that
//! stays in an old part of the log (a backup) can make it longer; then waiting
//! is of no use, and the writer tries it now and then. Where the disk has little
//! room the log takes little of it ([`SHORT`]): the database may need some to take
//! the log in, and a log that has the last of it could never begin anew.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, MAIN_DB};

use super::failure::Failure;
use super::{StoreError, engine, schema};

/// Bytes of a page.
const PAGE: i64 = 4_096;
/// Between two looks at the log.
const EVERY: Duration = Duration::from_secs(1);
/// After a move that moved nothing.
const PAUSE: Duration = Duration::from_millis(100);
/// Fewer pages than these are left alone.
const FEW: i64 = 1_024;
/// So many are moved without waiting for the next look.
const WORTHWHILE: i64 = 2_048;
/// Pages that the writer moves itself, of a log of one round.
const REST: i64 = 512;
/// So many more pages of log, and it moves [`REST`] more, as a large document may add
/// so many with each commit.
const STEP: i64 = 4_096;
/// With less room than this the log is kept short: twice what it may take else.
const PLENTY: u64 = 512 << 20;
/// Between two looks at the room on the disk.
const ROOM_EVERY: Duration = Duration::from_secs(1);

/// How long the log may become, in pages.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bounds {
    /// Of one that may begin anew. Each time the writer waits for the disk.
    round: i64,
    /// Of one that the writer waits for.
    longest: i64,
    /// Those that the file keeps when it begins anew.
    kept: i64,
}

/// 48, 256 and 96 MiB.
const USUAL: Bounds = Bounds { round: 12_288, longest: 65_536, kept: 24_576 };
/// Bytes that the file of a log keeps when it begins anew, as a rule.
pub(super) const KEPT: i64 = USUAL.kept * PAGE;
/// 4, 16 and 8 MiB.
const SHORT: Bounds = Bounds { round: 1_024, longest: 4_096, kept: 2_048 };

impl Bounds {
    /// For a disk that has so many bytes for the log, those included that it has already.
    fn within(room: Option<u64>) -> Self {
        if room.is_some_and(|room| room < PLENTY) { SHORT } else { USUAL }
    }

    /// Pages that the writer moves itself of a log of so many pages.
    fn rest(self, pages: i64) -> i64 {
        if pages < self.round { 0 } else { REST * (1 + (pages - self.round) / STEP) }
    }
}

/// A thread that ends when this is dropped.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    orders: Mutex<Orders>,
    given: Condvar,
    /// Held while the thread moves pages.
    at_work: Mutex<()>,
}

#[derive(Default)]
struct Orders {
    stop: bool,
    wanted: bool,
}

impl Shared {
    /// Waits a little, or until told to stop.
    fn pause(&self) {
        let waiting = |orders: &mut Orders| !orders.stop;
        drop(self.given.wait_timeout_while(lock(&self.orders), PAUSE, waiting));
    }
}

/// The writer's side of it.
pub(super) struct LogKeeper {
    shared: Arc<Shared>,
    database: PathBuf,
    bounds: Cell<Bounds>,
    /// When the room on the disk was last looked at.
    room_at: Cell<Option<Instant>>,
    /// When waiting for a move was of no use.
    waited_in_vain: Cell<Option<Instant>>,
}

/// The log of a connection's database.
struct Log {
    /// Pages in it.
    pages: i64,
    /// Of these, pages that have been moved.
    moved: i64,
}

impl Checkpointer {
    /// For a database whose writer keeps [`KEPT`] bytes of log.
    pub(super) fn start(
        database: &Path,
        failure: Failure,
    ) -> Result<(Self, LogKeeper), StoreError> {
        let conn = schema::open_checkpointer(database)?;
        let shared = Arc::<Shared>::default();
        let told = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || {
                run(&conn, &told, &failure);
                if failure.check().is_err() {
                    // Closing would sync what may not be there any more.
                    std::mem::forget(conn);
                }
            })
            .map_err(|e| StoreError::Engine(format!("the checkpointer cannot start: {e}")))?;
        let keeper = LogKeeper::new(database, Arc::clone(&shared));
        Ok((Self { shared, thread: Some(thread) }, keeper))
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        lock(&self.shared.orders).stop = true;
        self.shared.given.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic with anything at stake.
            let _ = thread.join();
        }
    }
}

impl LogKeeper {
    fn new(database: &Path, shared: Arc<Shared>) -> Self {
        Self {
            shared,
            database: database.to_owned(),
            bounds: Cell::new(USUAL),
            room_at: Cell::new(None),
            waited_in_vain: Cell::new(None),
        }
    }

    /// Keeps the log short; called between two transactions of the writer.
    pub(super) fn tend(&self, conn: &Connection) -> Result<(), StoreError> {
        if self.room_at.get().is_none_or(|then| then.elapsed() >= ROOM_EVERY) {
            let free = free_disk(&self.database);
            self.keep_within(conn, free.map(|free| free + size(&log_of(&self.database))))?;
            self.room_at.set(Some(Instant::now()));
        }
        self.keep_short(conn)
    }

    /// Takes the bounds that go with the room on the disk.
    fn keep_within(&self, conn: &Connection, room: Option<u64>) -> Result<(), StoreError> {
        let bounds = Bounds::within(room);
        if bounds != self.bounds.get() {
            let kept = bounds.kept * PAGE;
            conn.execute_batch(&format!("PRAGMA journal_size_limit = {kept}")).map_err(engine)?;
            self.bounds.set(bounds);
        }
        Ok(())
    }

    fn keep_short(&self, conn: &Connection) -> Result<(), StoreError> {
        let bounds = self.bounds.get();
        let log = look(conn)?;
        let rest = log.pages - log.moved;
        if log.pages >= bounds.longest && self.may_wait() {
            drop(lock(&self.shared.at_work));
            move_pages(conn)?;
            let left = look(conn)?;
            let in_vain = left.pages - left.moved > REST;
            self.waited_in_vain.set(in_vain.then(Instant::now));
            return Ok(());
        }
        if (1..=bounds.rest(log.pages)).contains(&rest) {
            return move_pages(conn);
        }
        if rest >= WORTHWHILE || (log.pages >= bounds.round && rest > 0) {
            lock(&self.shared.orders).wanted = true;
            self.shared.given.notify_all();
        }
        Ok(())
    }

    fn may_wait(&self) -> bool {
        self.waited_in_vain.get().is_none_or(|then| then.elapsed() >= EVERY)
    }
}

fn run(conn: &Connection, shared: &Shared, failure: &Failure) {
    while failure.check().is_ok() {
        let mut orders = lock(&shared.orders);
        if !orders.stop && !orders.wanted {
            let waited = shared.given.wait_timeout(orders, EVERY);
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if orders.stop {
            return;
        }
        let is_wanted = std::mem::take(&mut orders.wanted);
        drop(orders);
        let at_work = lock(&shared.at_work);
        // What a reader still needs stays for the next time.
        let done = match look(conn) {
            Ok(log) if !is_wanted && log.pages - log.moved < FEW => continue,
            Ok(log) => move_pages(conn).and_then(|()| Ok(look(conn)?.moved == log.moved)),
            Err(error) => Err(error),
        };
        drop(at_work);
        match done {
            Ok(false) => {}
            // A reader is in the way: asking again at once is of no use.
            Ok(true) => shared.pause(),
            Err(error) if error.is_fatal() => failure.declare(&error),
            Err(error) => tracing::debug!(%error, "checkpoint put off"),
        }
    }
}

/// What is in the log; nothing is moved. By the engine's call and not by a `PRAGMA`, which
/// would be parsed anew after each commit.
fn look(conn: &Connection) -> Result<Log, StoreError> {
    // Whoever is in the way moves it, too.
    Ok(checkpoint(conn, CheckpointMode::NOOP)?.unwrap_or(Log { pages: 0, moved: 0 }))
}

/// Moves what nobody needs in the log any more, and makes nobody wait.
fn move_pages(conn: &Connection) -> Result<(), StoreError> {
    checkpoint(conn, CheckpointMode::PASSIVE).map(|_| ())
}

/// What is in the log then; `None` where somebody else moves it just now.
fn checkpoint(conn: &Connection, mode: CheckpointMode) -> Result<Option<Log>, StoreError> {
    match conn.wal_checkpoint_v2(Some(MAIN_DB), mode).map_err(engine) {
        // A connection that has not read anything yet knows of no log.
        Ok((..0, _)) => Err(StoreError::Engine("there is no log to be moved".to_owned())),
        Ok((pages, moved)) => Ok(Some(Log { pages: pages.into(), moved: moved.into() })),
        Err(StoreError::Busy) => Ok(None),
        Err(error) => Err(error),
    }
}

/// No panic leaves anything half done under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The write-ahead log of a database.
pub(super) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Bytes of a file, 0 where there is none.
pub(super) fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}

/// Bytes that are free for us on the disk of a file.
pub(super) fn free_disk(file: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(file.parent()?).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests;
