//! Connections that read, each for the time of one call.
//!
//! A read transaction that stays open keeps the log from being reset, so no
//! cursor outlives its call and nothing waits in between.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::StoreError;
use super::home::Home;
use super::sql::Connection;
use crate::threads::Threads;

/// Reads at once at most.
const CONNECTIONS: usize = 4;

/// What is asked of a connection.
type Query = Box<dyn FnOnce(&Connection) + Send>;

/// The connections, opened as they are needed.
pub(super) struct Readers {
    home: Home,
    idle: Arc<Mutex<Vec<Connection>>>,
    threads: Threads,
}

impl Readers {
    pub(super) fn new(home: Home) -> Result<Self, StoreError> {
        let threads = Threads::new("store-reader", CONNECTIONS)
            .map_err(|e| StoreError::Engine(format!("the readers cannot start: {e}")))?;
        Ok(Self { home, idle: Arc::default(), threads })
    }

    /// Is the store on a server, which others may write to as well?
    pub(super) fn are_far(&self) -> bool {
        matches!(self.home, Home::Server(_))
    }

    /// Runs a query on a thread for that, in one read transaction.
    pub(super) async fn run<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let query: Query = Box::new(move |conn| {
            // The caller may have gone.
            let _ = answer.send(query(conn));
        });
        self.run_boxed(query).await?;
        // A query that has run has answered.
        answered.await.map_err(|_| panicked("it did not answer"))?
    }

    /// All that a runtime does with a task is compiled once, and not for each query.
    async fn run_boxed(&self, query: Query) -> Result<(), StoreError> {
        let home = self.home.clone();
        let idle = Arc::clone(&self.idle);
        let read = self.threads.start(move || {
            let conn = begun(&home, &idle)?;
            query(&conn);
            // A read has nothing to lose: however it ends, it ends here.
            if conn.rollback().is_ok() {
                lock(&idle).push(conn);
            }
            Ok(())
        });
        read.await.await.unwrap_or_else(|error| Err(panicked(error)))
    }
}

fn panicked(why: impl std::fmt::Display) -> StoreError {
    StoreError::Engine(format!("a read panicked: {why}"))
}

/// A connection on which a read transaction has begun: one that is idle, as long
/// as it has not broken meanwhile, or a new one.
fn begun(home: &Home, idle: &Mutex<Vec<Connection>>) -> Result<Connection, StoreError> {
    loop {
        let kept = lock(idle).pop();
        let is_new = kept.is_none();
        let conn = match kept {
            Some(conn) => conn,
            None => home.open_reader()?,
        };
        match conn.begin_reading().and_then(|()| conn.flush()) {
            Ok(()) => return Ok(conn),
            Err(error) if is_new => return Err(super::engine(error)),
            Err(_) => {}
        }
    }
}

/// A panic never happens while this lock is held, so poison means nothing.
fn lock(idle: &Mutex<Vec<Connection>>) -> MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
