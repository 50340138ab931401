//! Moves the write-ahead log into the database, off the writer's path, and
//! keeps it from growing without end.
//!
//! A passive checkpoint never makes the writer wait, but while the writer
//! appends it never comes to the log's end either, and only from its end can
//! the log begin anew. So a log over [`LARGE`] is moved as far as it goes, and
//! then the writer is held up for the little that is left ([`Gate`]: by SQLite's
//! own lock the busier of two threads would always win). Who reads for long
//! holds up neither: until they end the log grows by what is written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::failure::Failure;
use super::{StoreError, engine, schema};

/// Between two looks at the log.
const EVERY: Duration = Duration::from_secs(1);
/// A smaller log is left alone.
const WORTHWHILE: u64 = 4 * 1024 * 1024;
/// A log of more pages (32 MiB) begins anew as soon as no reader needs it.
const LARGE: i64 = 8_192;
/// Longest wait for readers while the writer is held up.
const PATIENCE: Duration = Duration::from_millis(10);

/// Between two transactions the writer passes here, and waits while it is closed.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<Passage>,
    moved: Condvar,
}

#[derive(Default)]
struct Passage {
    is_closed: bool,
    is_inside: bool,
}

impl Gate {
    /// Lets the writer in, until what this returns is dropped.
    pub(super) fn enter(&self) -> Inside<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.moved.wait_while(state, |state| state.is_closed);
        open.unwrap_or_else(PoisonError::into_inner).is_inside = true;
        Inside(self)
    }

    /// Keeps the writer out, until what this returns is dropped.
    fn close(&self) -> Closed<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        drop(self.moved.wait_while(state, |state| state.is_inside));
        Closed(self)
    }

    fn change(&self, how: impl FnOnce(&mut Passage)) {
        how(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.moved.notify_all();
    }
}

/// The writer is at work.
pub(super) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.is_inside = false);
    }
}

/// The writer is kept out.
struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.is_closed = false);
    }
}

/// A thread that ends when this is dropped.
pub(super) struct Checkpointer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(
        database: &Path,
        gate: Arc<Gate>,
        failure: Failure,
    ) -> Result<Self, StoreError> {
        let conn = schema::open_checkpointer(database)?;
        conn.busy_timeout(PATIENCE).map_err(engine)?;
        let log = log_of(database);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(conn, &log, &told, &gate, &failure))
            .map_err(|e| StoreError::Engine(format!("the checkpointer cannot start: {e}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic with anything at stake.
            let _ = thread.join();
        }
    }
}

fn run(
    conn: Connection,
    log: &Path,
    stop: &(Mutex<bool>, Condvar),
    gate: &Gate,
    failure: &Failure,
) {
    let mut stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped && failure.check().is_ok() {
        stopped = stop.1.wait_timeout(stopped, EVERY).unwrap_or_else(PoisonError::into_inner).0;
        if *stopped || failure.check().is_err() {
            break;
        }
        match move_log(&conn, size(log), gate) {
            Ok(()) => {}
            Err(error) if error.is_fatal() => failure.declare(&error),
            Err(error) => tracing::debug!(%error, "checkpoint put off"),
        }
    }
    if failure.check().is_err() {
        // Closing would checkpoint, and sync what may not be there any more.
        std::mem::forget(conn);
    }
}

/// What is worth doing about a log of so many bytes.
fn move_log(conn: &Connection, bytes: u64, gate: &Gate) -> Result<(), StoreError> {
    if bytes < WORTHWHILE {
        return Ok(());
    }
    // What the writer adds meanwhile keeps even a log that was moved whole from
    // beginning anew, again and again.
    if checkpoint(conn, "PASSIVE")? < LARGE {
        return Ok(());
    }
    checkpoint(conn, "PASSIVE")?;
    let _closed = gate.close();
    let pages = checkpoint(conn, "RESTART")?;
    tracing::debug!(bytes, pages, "the log begins anew");
    Ok(())
}

/// Runs one; says how many pages the log had.
fn checkpoint(conn: &Connection, how: &str) -> Result<i64, StoreError> {
    let sql = format!("PRAGMA wal_checkpoint({how})");
    conn.query_row(&sql, [], |row| row.get(1)).map_err(engine)
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
