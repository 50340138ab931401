//! Moves the write-ahead log into the database, off the writer's path.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::{StoreError, schema};

/// Between two looks at the log.
const EVERY: Duration = Duration::from_secs(1);
/// A smaller log is left alone.
const WORTHWHILE: u64 = 4 * 1024 * 1024;

/// A thread that ends when this is dropped.
pub(super) struct Checkpointer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(database: &Path) -> Result<Self, StoreError> {
        let conn = schema::open_checkpointer(database)?;
        let log = log_of(database);
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(&conn, &log, &told))
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

fn run(conn: &Connection, log: &Path, stop: &(Mutex<bool>, Condvar)) {
    let mut stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped {
        stopped = stop.1.wait_timeout(stopped, EVERY).unwrap_or_else(PoisonError::into_inner).0;
        if *stopped || size(log) < WORTHWHILE {
            continue;
        }
        // PASSIVE never makes the writer wait; what a reader still needs stays
        // for the next time.
        if let Err(error) = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            tracing::debug!(%error, "checkpoint put off");
        }
    }
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
