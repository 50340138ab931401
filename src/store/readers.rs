//! Connections that read, each for the time of one call.
//!
//! A read transaction that stays open keeps the log from being reset, so no
//! cursor outlives its call and nothing waits in between.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{StoreError, schema};

/// Reads at once at most.
const CONNECTIONS: usize = 4;

/// The connections, opened as they are needed.
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    room: Semaphore,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Arc::default(), room: Semaphore::new(CONNECTIONS) }
    }

    /// Runs a query on the blocking pool, in one read transaction.
    pub(super) async fn run<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let _room = self.room.acquire().await.map_err(|_| StoreError::Closed)?;
        let path = self.path.clone();
        let idle = Arc::clone(&self.idle);
        let read = tokio::task::spawn_blocking(move || {
            let conn = match lock(&idle).pop() {
                Some(conn) => conn,
                None => schema::open_reader(&path)?,
            };
            conn.execute_batch("BEGIN").map_err(super::engine)?;
            let result = query(&conn);
            // A read has nothing to lose: however it ends, it ends here.
            if conn.execute_batch("ROLLBACK").is_ok() {
                lock(&idle).push(conn);
            }
            result
        });
        read.await.unwrap_or_else(|e| Err(StoreError::Engine(format!("a read panicked: {e}"))))
    }
}

/// A panic never happens while this lock is held, so poison means nothing.
fn lock(idle: &Mutex<Vec<Connection>>) -> MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
