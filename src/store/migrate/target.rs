//! The database that a store is copied to: what it has already, where the copy
//! stands, and what makes it a store.
//!
//! Keeps: rows and the place they lead up to are one commit, so a copy that is
//! broken off at any moment goes on where it stands; it is a store, which a
//! daemon takes, from the last commit on and not before.

use rusqlite::types::Value;

use super::super::log_order::{self, Log};
use super::super::server::{SCHEMA, VERSION, check_server, has_table, not_ours};
use super::super::sql::{Connection, Copier, OptionalExtension, Server, Session, params};
use super::super::{StoreError, engine};
use super::plan::Step;

/// Where copies keep their place, while they last.
const PLACES: &str =
    "CREATE TABLE migration (name TEXT PRIMARY KEY, value TEXT NOT NULL, copied BIGINT NOT NULL)";

/// First half of the key of the advisory lock ("smpd"); the second is the schema.
/// The server frees it when the connection ends, however that comes.
const LOCK: i32 = 0x736d_7064;

/// Key of `meta`: the file that the store came from.
const CAME_FROM: &str = "migrated_from";

/// What is there, by the files that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// A copy that has not ended.
    Half(String),
    /// A store that was a whole copy once.
    Store(String),
}

/// A place in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct At {
    /// Rows that are there.
    pub(super) rows: u64,
    /// Are these all?
    pub(super) is_done: bool,
}

/// The database.
pub(super) struct Target {
    pub(super) conn: Connection,
}

impl Target {
    /// Connects and takes the lock that keeps other copies away. No daemon takes
    /// what has no version yet.
    pub(super) fn open(server: &Server) -> Result<Self, StoreError> {
        let session = server.connect().map_err(engine)?;
        // What a crash of the server takes back it takes back with its place.
        session.batch("SET synchronous_commit = off").map_err(engine)?;
        let conn = Connection::Server(Box::new(session));
        check_server(&conn)?;
        take_lock(&conn)?;
        Ok(Self { conn })
    }

    /// What is there; refuses what is neither ours nor empty.
    pub(super) fn look(&self) -> Result<Found, StoreError> {
        if !has_table(&self.conn, "meta")? {
            return Ok(Found::Nothing);
        }
        let of_meta = |key: &str| self.value("SELECT value FROM meta WHERE key = ?1", key);
        if of_meta("schema")?.is_some() {
            return of_meta(CAME_FROM)?.map(Found::Store).ok_or_else(has_store);
        }
        if !has_table(&self.conn, "migration")? {
            return Err(not_ours());
        }
        let begun = self.value("SELECT value FROM migration WHERE name = ?1", "file")?;
        Ok(Found::Half(begun.unwrap_or_default()))
    }

    /// Makes the tables where there is nothing, and refuses what is not this
    /// file's; true when all of it is there.
    pub(super) fn begin(&self, found: Found, identity: &str) -> Result<bool, StoreError> {
        let seed = |identity: &str| identity.split(' ').next().map(str::to_owned);
        match found {
            Found::Nothing => self.make(identity).map(|()| false),
            Found::Store(whole) if whole == identity => Ok(true),
            Found::Store(_) => Err(has_store()),
            Found::Half(begun) if begun == identity => Ok(false),
            Found::Half(begun) if seed(&begun) == seed(identity) => Err(StoreError::Refused(
                "the file was written to since its migration to this database began: empty the \
                 database and begin anew"
                    .to_owned(),
            )),
            Found::Half(_) => Err(StoreError::Refused(
                "the database has half of the migration of another file: empty it first".to_owned(),
            )),
        }
    }

    fn make(&self, identity: &str) -> Result<(), StoreError> {
        let session = self.session()?;
        self.transaction(|| {
            session
                .batch(SCHEMA)
                .and_then(|()| session.batch(PLACES))
                .map_err(|e| StoreError::Unusable(format!("the tables cannot be made: {e}")))?;
            self.set_place("file", identity, 0)
        })
    }

    /// Where the copy stands in a step.
    pub(super) fn place(&self, name: &str) -> Result<At, StoreError> {
        let kept: Option<(String, i64)> = self
            .conn
            .query_row("SELECT value, copied FROM migration WHERE name = ?1", [step(name)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(engine)?;
        Ok(kept.map_or_else(At::default, |(value, copied)| At {
            rows: copied.unsigned_abs(),
            is_done: value == "done",
        }))
    }

    pub(super) fn copier(&self, step: &Step) -> Result<Copier, StoreError> {
        self.session()?.copier(step.table, &step.filled()).map_err(engine)
    }

    /// Adds rows to a step and moves its place, in one commit.
    pub(super) fn write(
        &self,
        name: &str,
        copier: &Copier,
        values: &[Value],
        at: At,
    ) -> Result<(), StoreError> {
        let session = self.session()?;
        self.transaction(|| {
            if !values.is_empty() {
                session.copy(copier, values).map_err(engine)?;
            }
            let value = if at.is_done { "done" } else { "begun" };
            let rows = i64::try_from(at.rows).unwrap_or(i64::MAX);
            self.set_place(&step(name), value, rows)
        })
    }

    fn set_place(&self, name: &str, value: &str, copied: i64) -> Result<(), StoreError> {
        self.conn
            .execute(
                "INSERT INTO migration (name, value, copied) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value, copied = excluded.copied",
                params![name, value, copied],
            )
            .map(|_| ())
            .map_err(engine)
    }

    /// Makes a store of it, in one commit that is synced. `numbers` are the
    /// sequences, with the last number that each has given out; `followed` the logs
    /// that have none.
    pub(super) fn finish(
        &self,
        identity: &str,
        numbers: &[(String, i64)],
        followed: &[(Log, i64)],
    ) -> Result<(), StoreError> {
        let session = self.session()?;
        session.batch("SET synchronous_commit = on").map_err(engine)?;
        self.transaction(|| {
            for (sequence, last) in numbers.iter().filter(|(_, last)| *last > 0) {
                let set = "SELECT setval(CAST(CAST(?1 AS TEXT) AS REGCLASS), CAST(?2 AS BIGINT))";
                self.conn
                    .query_row(set, params![sequence, last], |row| row.get::<i64>(0))
                    .map_err(engine)?;
            }
            for (log, last) in followed {
                log_order::write_base(&self.conn, *log, *last)?;
            }
            session.batch("DROP TABLE migration").map_err(engine)?;
            let version = VERSION.to_string();
            for (key, value) in [(CAME_FROM, identity), ("schema", version.as_str())] {
                let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2)";
                self.conn.execute(sql, [key, value]).map_err(engine)?;
            }
            Ok(())
        })
    }

    /// Has the server look at what came, so that it plans by it.
    pub(super) fn analyze(&self, tables: &[&str]) -> Result<(), StoreError> {
        let session = self.session()?;
        tables
            .iter()
            .try_for_each(|table| session.batch(&format!("ANALYZE {table}")).map_err(engine))
    }

    fn transaction(&self, work: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.conn.begin().map_err(engine)?;
        match work() {
            Ok(()) => self.conn.commit().map_err(engine),
            Err(error) => {
                // It may have ended already.
                let _ = self.conn.rollback();
                Err(error)
            }
        }
    }

    fn value(&self, sql: &str, key: &str) -> Result<Option<String>, StoreError> {
        self.conn.query_row(sql, [key], |row| row.get(0)).optional().map_err(engine)
    }

    fn session(&self) -> Result<&Session, StoreError> {
        self.conn
            .server()
            .ok_or_else(|| StoreError::Refused("a store is copied to a server".to_owned()))
    }
}

/// One at a time copies.
fn take_lock(conn: &Connection) -> Result<(), StoreError> {
    let lock = "SELECT pg_try_advisory_lock(CAST(?1 AS INTEGER), hashtext(current_schema()))";
    let is_ours: bool = conn.query_row(lock, [LOCK], |row| row.get(0)).map_err(engine)?;
    if is_ours {
        return Ok(());
    }
    Err(StoreError::Refused(
        "another migration to this database is under way; it must end first".to_owned(),
    ))
}

fn has_store() -> StoreError {
    StoreError::Refused(
        "the database has a store already; a migration needs an empty database, or an empty \
         schema of one"
            .to_owned(),
    )
}

/// What the place of a step is kept under.
fn step(name: &str) -> String {
    format!("step {name}")
}
