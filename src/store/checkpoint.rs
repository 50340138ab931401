//! Moves the write-ahead log into the database, off the writer's path, and
//! keeps it from growing without end.
//!
//! A passive checkpoint never makes the writer wait, but while the writer
//! appends it never comes to the log's end either, and only from its end can
//! the log begin anew. So a log over [`LARGE`] is moved as far as it goes, and
//! then the writer is held up for the little that is left. Who reads for long
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

/// A thread that ends when this is dropped.
pub(super) struct Checkpointer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(database: &Path, failure: Failure) -> Result<Self, StoreError> {
        let conn = schema::open_checkpointer(database)?;
        conn.busy_timeout(PATIENCE).map_err(engine)?;
        let log = log_of(database);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(conn, &log, &told, &failure))
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

fn run(conn: Connection, log: &Path, stop: &(Mutex<bool>, Condvar), failure: &Failure) {
    let mut stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped && failure.check().is_ok() {
        stopped = stop.1.wait_timeout(stopped, EVERY).unwrap_or_else(PoisonError::into_inner).0;
        if *stopped || failure.check().is_err() {
            break;
        }
        match move_log(&conn, size(log)) {
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
fn move_log(conn: &Connection, bytes: u64) -> Result<(), StoreError> {
    if bytes < WORTHWHILE {
        return Ok(());
    }
    let (left, all) = checkpoint(conn, "PASSIVE")?;
    // A log that is moved whole begins anew with the next commit by itself.
    if all < LARGE || left == 0 {
        return Ok(());
    }
    // What came meanwhile, so that little is left.
    checkpoint(conn, "PASSIVE")?;
    checkpoint(conn, "RESTART").map(|_| ())
}

/// Runs one; says how many pages of the log are left to move, of how many.
fn checkpoint(conn: &Connection, how: &str) -> Result<(i64, i64), StoreError> {
    conn.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| {
        let (all, moved): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok((all - moved, all))
    })
    .map_err(engine)
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
