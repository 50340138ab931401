//! The store in a database of a server that speaks `PostgreSQL`: opened, made
//! where it is new, refused where it is not ours, and what its errors mean.
//!
//! Who of several daemons may work on it is for `claim`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jiff::Timestamp;
use tokio_postgres::error::SqlState;

use super::sql::{self, Connection, OptionalExtension, Server, Session};
use super::{StoreError, engine, log_order, timestamp};
use crate::config::Durability;

/// The schema, as the file has it.
pub(super) const SCHEMA: &str = include_str!("postgres/schema.sql");

/// Version of [`SCHEMA`]; a database of another one is migrated or refused.
pub(super) const VERSION: i64 = 6;

/// Steps from version n to n + 1, as those of the file. The first entry leads from
/// version 1 to 2.
const MIGRATIONS: &[&str] = &[
    // Which rows count less for the quota of their site; what it counts of them was
    // not kept true before.
    "ALTER TABLE sites ADD COLUMN unlisted BIGINT NOT NULL DEFAULT 0;
     UPDATE sites SET urls = 0, priorities = 0;
     UPDATE sites SET urls = counted.rows, unlisted = counted.unlisted,
         priorities = counted.priorities
     FROM (SELECT site_id, count(*) AS rows, count(*) FILTER (WHERE listed = 0) AS unlisted,
               sum(CASE WHEN hints < 8 THEN 500 ELSE hints / 8 - 1 END) AS priorities
           FROM urls WHERE site_id IS NOT NULL GROUP BY site_id) AS counted
     WHERE sites.id = counted.site_id;",
    // Shorter forms of records, as in the file.
    "SELECT 1",
    // Shorter keys of snapshots.
    "SELECT 1",
    "CREATE INDEX IF NOT EXISTS sites_origin ON sites (origin);
     DROP INDEX IF EXISTS sources_dropped;
     CREATE INDEX sources_dropped ON sources (dropped_at)
         WHERE dropped_at IS NOT NULL AND state <> 2;",
    include_str!("postgres/leased.sql"),
];

/// A step goes through whole tables, unlike what our sessions are set to, and takes
/// as long as that takes.
const FOR_STEPS: &str = "SET LOCAL statement_timeout = 0;
    SET LOCAL lock_timeout = 0;
    SET LOCAL enable_seqscan = on;
    SET LOCAL enable_hashjoin = on;
    SET LOCAL enable_mergejoin = on";

/// Servers before 13 lack what the schema asks for; 15 is what is tested.
const LEAST_SERVER: i64 = 130_000;

/// Opens (and, when new, makes) the store for the one writer.
pub(super) fn open_writer(
    server: &Server,
    durability: Durability,
) -> Result<Connection, StoreError> {
    let session = server.connect().map_err(engine)?;
    let synced = match durability {
        Durability::Full => "on",
        Durability::Normal => "off",
    };
    // Each statement is a step or a few in an index: planned once, and never by
    // what the tables held at the time, which at the start is nothing.
    let settings = format!(
        "SET synchronous_commit = {synced};
         SET plan_cache_mode = force_generic_plan;
         SET enable_seqscan = off;
         SET enable_hashjoin = off;
         SET enable_mergejoin = off;
         SET jit = off"
    );
    session.batch(&settings).map_err(engine)?;
    let conn = Connection::Server(Box::new(session));
    check_server(&conn)?;
    make_schema(&conn)?;
    log_order::establish(&conn)?;
    Ok(conn)
}

/// Opens a connection that only reads.
pub(super) fn open_reader(server: &Server) -> Result<Connection, StoreError> {
    let session = server.connect().map_err(engine)?;
    session.batch("SET default_transaction_read_only = on").map_err(engine)?;
    let conn = Connection::Server(Box::new(session));
    match read_version(&conn)? {
        Some(version) => check_version(version)?,
        None => return Err(StoreError::NotFound("the database has no store".to_owned())),
    }
    Ok(conn)
}

pub(super) fn check_server(conn: &Connection) -> Result<(), StoreError> {
    let (version, encoding): (i64, String) = conn
        .query_row(
            "SELECT CAST(current_setting('server_version_num') AS BIGINT),
                 current_setting('server_encoding')",
            (),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .map_err(engine)?;
    if version < LEAST_SERVER {
        return Err(StoreError::Unusable(format!(
            "the database server is of version {}; 13 or newer is needed",
            version / 10_000
        )));
    }
    if encoding != "UTF8" {
        return Err(StoreError::Unusable(format!(
            "the database is encoded in {encoding}; UTF8 is needed"
        )));
    }
    Ok(())
}

/// The time by the server's clock, in Unix milliseconds.
pub(super) const TIME: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The same, asked for.
pub(super) fn time(conn: &Connection) -> Result<Timestamp, StoreError> {
    conn.query_row(&format!("SELECT {TIME}"), (), |row| row.get(0)).map(timestamp).map_err(engine)
}

/// Where others reach what listens here: where that is on all addresses, at the
/// one from which the server is spoken to.
pub(super) fn seen_as(conn: &Connection, listening: SocketAddr) -> Result<String, StoreError> {
    if !listening.ip().is_unspecified() {
        return Ok(listening.to_string());
    }
    let ours: Option<String> =
        conn.query_row("SELECT host(inet_client_addr())", (), |row| row.get(0)).map_err(engine)?;
    let ours = ours.and_then(|ip| ip.parse().ok()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    Ok(SocketAddr::new(ours, listening.port()).to_string())
}

/// What daemons that share the store know each other by; made once.
pub(super) fn secret(conn: &Connection) -> Result<String, StoreError> {
    let random = || getrandom::u64().map_err(|e| StoreError::Engine(format!("no randomness: {e}")));
    let fresh = format!("{:016x}{:016x}", random()?, random()?);
    conn.execute(
        "INSERT INTO meta (key, value) VALUES ('peers_secret', ?1) ON CONFLICT (key) DO NOTHING",
        [fresh],
    )
    .map_err(engine)?;
    conn.query_row("SELECT value FROM meta WHERE key = 'peers_secret'", (), |row| row.get(0))
        .map_err(engine)
}

fn make_schema(conn: &Connection) -> Result<(), StoreError> {
    let Some(session) = conn.server() else { return Ok(()) };
    if let Some(version) = read_version(conn)? {
        if version < VERSION {
            tracing::info!(
                from = version,
                to = VERSION,
                "the store is brought up to date, which takes a time that is not known"
            );
            session.unhurried(|| migrate(conn, session, MIGRATIONS))?;
        }
        return read_version(conn)?.map_or(Ok(()), check_version);
    }
    conn.begin().map_err(engine)?;
    let made = session.batch(SCHEMA).and_then(|()| {
        conn.execute("INSERT INTO meta (key, value) VALUES ('schema', ?1)", [VERSION]).map(|_| ())
    });
    match made {
        Ok(()) => conn.commit().map_err(engine),
        Err(error) => {
            // It may have ended already.
            let _ = conn.rollback();
            match read_version(conn)? {
                // Another daemon that starts as well was faster.
                Some(version) => check_version(version),
                None => Err(unless_it_passes(error, "the tables cannot be made")),
            }
        }
    }
}

/// Daemons that are up. What is of this version joins once no step is left; what is
/// older would misread what this one writes, and write it anew.
const AT_WORK: &str = "SELECT count(*) FROM nodes WHERE until >= clock_timestamp()";

/// Takes the steps that lead on from the version that is there, in one transaction
/// each; of daemons that start at once one takes a step, and the others wait for it.
fn migrate(conn: &Connection, session: &Session, steps: &[&str]) -> Result<(), StoreError> {
    for (from, step) in (1_i64..).zip(steps) {
        conn.begin().map_err(engine)?;
        let mut at_work = 0;
        let taken = session
            .batch(FOR_STEPS)
            .and_then(|()| {
                let locked = "SELECT value FROM meta WHERE key = 'schema' FOR UPDATE";
                conn.query_row(locked, (), |row| row.get::<String>(0))
            })
            .and_then(|version| {
                if version != from.to_string() {
                    return Ok(());
                }
                at_work = conn.query_row(AT_WORK, (), |row| row.get(0))?;
                if at_work > 0 {
                    return Ok(());
                }
                // One that stood still for so long may go on: it waits here for the end of
                // what that had begun, which then finds that it is not there any more, and
                // may not join again.
                conn.execute("DELETE FROM nodes", ())?;
                session.batch(step)?;
                let next = (from + 1).to_string();
                conn.execute("UPDATE meta SET value = ?1 WHERE key = 'schema'", [next]).map(|_| ())
            });
        match taken {
            Ok(()) if at_work > 0 => {
                let _ = conn.rollback();
                return Err(StoreError::Unusable(format!(
                    "the store in the database is of an older version, and daemons of that version \
                     work on it ({at_work}): stop them first; one that was killed counts until its \
                     time is over, some ten seconds"
                )));
            }
            Ok(()) => conn.commit().map_err(engine)?,
            Err(error) => {
                // It may have ended already.
                let _ = conn.rollback();
                let what = "the store in the database cannot be brought up to date";
                return Err(unless_it_passes(error, what));
            }
        }
    }
    Ok(())
}

/// What stands in the way of a start: the same tried again later may work.
fn unless_it_passes(error: sql::Error, what: &str) -> StoreError {
    let why = error.to_string();
    match engine(error) {
        passing if passing.passes() => passing,
        _ => StoreError::Unusable(format!("{what}: {why}")),
    }
}

/// The version of the store that is there; none where there is no table of ours.
fn read_version(conn: &Connection) -> Result<Option<i64>, StoreError> {
    if !has_table(conn, "meta")? {
        return Ok(None);
    }
    let kept: Option<String> = conn
        .query_row("SELECT value FROM meta WHERE key = 'schema'", (), |row| row.get(0))
        .optional()
        .map_err(engine)?;
    if kept.is_none() && has_table(conn, "migration")? {
        return Err(StoreError::Unusable(
            "the database has a migration that has not ended: give `sitemapd migrate` again"
                .to_owned(),
        ));
    }
    kept.and_then(|version| version.parse().ok()).map(Some).ok_or_else(not_ours)
}

/// Somebody else's database.
pub(super) fn not_ours() -> StoreError {
    StoreError::Unusable("the database has a table `meta` that is not ours".to_owned())
}

/// Is there a table of this name?
pub(super) fn has_table(conn: &Connection, name: &str) -> Result<bool, StoreError> {
    let there =
        "SELECT to_regclass(quote_ident(current_schema()) || '.' || CAST(?1 AS TEXT)) IS NOT NULL";
    conn.query_row(there, [name], |row| row.get(0)).map_err(engine)
}

pub(super) fn check_version(version: i64) -> Result<(), StoreError> {
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "the store in the database is of version {version}; this sitemapd knows version {VERSION}"
    )))
}

/// What an error of a server means for the caller.
pub(super) fn meaning(error: &tokio_postgres::Error) -> StoreError {
    let text = super::sql::describe(error);
    let Some(code) = error.code() else { return StoreError::Away(text) };
    if Session::ends_with(code) {
        return StoreError::Away(text);
    }
    if *code == SqlState::DISK_FULL {
        return StoreError::Full;
    }
    let waits = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    if waits.contains(code) { StoreError::Busy } else { StoreError::Engine(text) }
}
