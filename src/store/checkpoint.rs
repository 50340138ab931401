//! Moves the write-ahead log into the database, and keeps it short.
//!
//! Most of it is moved by a thread of its own. But the log begins anew only when
//! all of it has been moved and nobody reads in it, and under steady writing
//! that thread never catches up. So the writer moves the last part itself,
//! between two groups of jobs, once that part is small. The log is then written
//! over: it stays within [`ROUND`], about, in pages that the system has in
//! memory already, which is cheaper by far than a file that grows.
//!
//! Keeps: a log longer than [`LONGEST`] makes the writer wait for the move, so
//! writing faster than the disk can take does not fill it. Only a reader that
//! stays in an old part of the log (a backup) can make it longer; then waiting
//! is of no use, and the writer tries it now and then.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::failure::Failure;
use super::{StoreError, engine, schema};

/// Between two looks at the log.
const EVERY: Duration = Duration::from_secs(1);
/// After a move that moved nothing.
const PAUSE: Duration = Duration::from_millis(100);
/// Fewer pages (4 KiB each) than these are left alone.
const FEW: i64 = 1_024;
/// So many are moved without waiting for the next look.
const WORTHWHILE: i64 = 2_048;
/// Pages of a log that may begin anew: 48 MiB. Each time the writer waits for the disk.
const ROUND: i64 = 12_288;
/// Pages that the writer moves itself, of a log of [`ROUND`] pages; of a longer
/// one more, as a large document may add so many with each commit.
const REST: i64 = 512;
/// Pages of a log that the writer waits for: 256 MiB.
const LONGEST: i64 = 65_536;

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
        let keeper = LogKeeper { shared: Arc::clone(&shared), waited_in_vain: Cell::new(None) };
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
    /// Keeps the log short; called between two transactions of the writer.
    pub(super) fn tend(&self, conn: &Connection) -> Result<(), StoreError> {
        let log = look(conn)?;
        let rest = log.pages - log.moved;
        if log.pages >= LONGEST && self.may_wait() {
            drop(lock(&self.shared.at_work));
            move_pages(conn)?;
            let left = look(conn)?;
            let in_vain = left.pages - left.moved > REST;
            self.waited_in_vain.set(in_vain.then(Instant::now));
            return Ok(());
        }
        if log.pages >= ROUND && (1..=log.pages / ROUND * REST).contains(&rest) {
            return move_pages(conn);
        }
        if rest >= WORTHWHILE || (log.pages >= ROUND && rest > 0) {
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

/// What is in the log; nothing is moved.
fn look(conn: &Connection) -> Result<Log, StoreError> {
    conn.prepare_cached("PRAGMA wal_checkpoint(NOOP)")
        .and_then(|mut look| {
            look.query_row([], |row| Ok(Log { pages: row.get(1)?, moved: row.get(2)? }))
        })
        .map_err(engine)
}

/// Moves what nobody needs in the log any more, and makes nobody wait.
fn move_pages(conn: &Connection) -> Result<(), StoreError> {
    conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
        .and_then(|mut pass| pass.query_row([], |_| Ok(())))
        .map_err(engine)
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
