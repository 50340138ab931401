//! Whose a store is that is on a server: one daemon's at a time, which works on
//! all of its partitions, while others stand by.
//!
//! A daemon has a row of `nodes` under a name that no other start ever had, and
//! renews it. Each of its transactions locks that row first; who takes over
//! deletes it, once its time is up by the server's clock, and waits for that
//! lock. So a daemon that was stopped, or cut off, and goes on later finds
//! itself fenced: nothing of what it writes then is committed, whatever its own
//! clock says. The server ends the transactions of one that stops amid them.
//!
//! Keeps: two transactions of different owners never both commit after one has
//! taken over from the other.

use std::time::{Duration, Instant};

use super::sql::{Connection, OptionalExtension, params};
use super::{StoreError, engine};

/// A daemon that has not renewed its row for so long may be taken over.
const LEASE_S: i64 = 10;
/// The row is renewed this often.
const RENEW: Duration = Duration::from_secs(2);
/// A transaction that stops is ended by the server after so long.
const STOPPED_MS: i64 = 5_000;

/// A store that is ours.
#[derive(Debug)]
pub(super) struct Claim {
    name: String,
    renewed: Instant,
}

impl Claim {
    /// Takes a store that nobody works on.
    ///
    /// # Errors
    /// [`StoreError::Held`] while another daemon does.
    pub(super) fn take(conn: &Connection) -> Result<Self, StoreError> {
        let secret =
            getrandom::u64().map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
        let name = format!("{}-{secret:016x}", whereabouts());
        let claim = Self { name, renewed: Instant::now() };
        claim.take_again(conn)?;
        Ok(claim)
    }

    /// The same over another connection, under the name from before.
    pub(super) fn take_again(&self, conn: &Connection) -> Result<(), StoreError> {
        let stopped = format!("SET idle_in_transaction_session_timeout = {STOPPED_MS}");
        conn.execute_batch(&stopped).map_err(engine)?;
        conn.begin().map_err(engine)?;
        let taken = self.replace(conn);
        match taken {
            Ok(()) => conn.commit().map_err(engine),
            Err(error) => {
                // It may have ended already.
                let _ = conn.rollback();
                Err(error)
            }
        }
    }

    fn replace(&self, conn: &Connection) -> Result<(), StoreError> {
        // One at a time tries.
        conn.execute_batch("LOCK TABLE partitions IN SHARE ROW EXCLUSIVE MODE").map_err(engine)?;
        conn.execute(
            "DELETE FROM nodes WHERE until < clock_timestamp() AND name <> ?1",
            [&self.name],
        )
        .map_err(engine)?;
        let other: Option<String> = conn
            .query_row(
                "SELECT name FROM nodes WHERE name <> ?1 ORDER BY until DESC LIMIT 1",
                [&self.name],
                |row| row.get(0),
            )
            .optional()
            .map_err(engine)?;
        if let Some(other) = other {
            return Err(StoreError::Held(other));
        }
        conn.execute(
            "INSERT INTO nodes (name, backend, since, until) VALUES (?1, pg_backend_pid(),
                 clock_timestamp(), clock_timestamp() + make_interval(secs => ?2))
             ON CONFLICT (name) DO UPDATE SET backend = excluded.backend, until = excluded.until",
            params![self.name, LEASE_S],
        )
        .map_err(engine)?;
        conn.execute(
            "UPDATE partitions SET node = ?1, epoch = epoch + 1 WHERE node IS DISTINCT FROM ?1",
            [&self.name],
        )
        .map(|_| ())
        .map_err(engine)
    }

    /// Makes the transaction that has just begun ours, or finds that nothing is.
    pub(super) fn fence(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let is_ours = if self.wants_renewal() {
            let renewed = conn.execute(
                "UPDATE nodes SET until = clock_timestamp() + make_interval(secs => ?2)
                 WHERE name = ?1",
                params![self.name, LEASE_S],
            );
            let renewed = renewed.map_err(engine)? > 0;
            self.renewed = Instant::now();
            renewed
        } else {
            conn.query_row(
                "SELECT name FROM nodes WHERE name = ?1 FOR KEY SHARE",
                [&self.name],
                |row| row.get::<String>(0),
            )
            .optional()
            .map_err(engine)?
            .is_some()
        };
        if is_ours {
            Ok(())
        } else {
            Err(StoreError::Failed("another sitemapd has taken over".to_owned()))
        }
    }

    /// Is it time to say that we live?
    pub(super) fn wants_renewal(&self) -> bool {
        self.renewed.elapsed() >= RENEW
    }

    /// Gives the store to whoever wants it.
    pub(super) fn give_back(&self, conn: &Connection) -> Result<(), StoreError> {
        conn.begin().map_err(engine)?;
        conn.execute("UPDATE partitions SET node = NULL WHERE node = ?1", [&self.name])
            .map_err(engine)?;
        conn.execute("DELETE FROM nodes WHERE name = ?1", [&self.name]).map_err(engine)?;
        conn.commit().map_err(engine)
    }
}

/// This machine and process, for people.
fn whereabouts() -> String {
    let system = rustix::system::uname();
    format!("{}-{}", system.nodename().to_string_lossy(), std::process::id())
}
