//! Opens the database file: pragmas, schema, versions, refusals.
//!
//! A file that is newer than we are, damaged or not ours is refused with one
//! clear line; it is never overwritten or re-created.

mod recount;
mod statistics;

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::checkpoint::KEPT;
use super::{StoreError, abbreviations, engine, has_no_room};
use crate::config::Durability;

/// The schema, as the file at the top level has it.
const SCHEMA: &str = include_str!("../../schema.sql");

/// Marks a file as ours (`PRAGMA application_id`): "smpd".
const APPLICATION_ID: i32 = 0x736d_7064;

/// Version of [`SCHEMA`]; a file of another version is migrated or refused.
const VERSION: i32 = 8;

/// What leads from one version to the next.
type Step = fn(&Connection) -> rusqlite::Result<()>;

/// Steps from version n to n + 1, applied in one transaction each. The first
/// entry leads from version 1 to 2.
const MIGRATIONS: &[Step] = &[
    |conn| {
        conn.execute_batch(
            "CREATE INDEX sources_dropped ON sources (dropped_at) WHERE dropped_at IS NOT NULL;
             CREATE INDEX sources_retired ON sources (retired_at) WHERE state = 2;",
        )
    },
    |conn| {
        conn.execute_batch("ALTER TABLE sites ADD COLUMN unlisted INTEGER NOT NULL DEFAULT 0")?;
        recount::sites(conn)
    },
    // Records of URLs have shorter forms since, which a build before cannot read;
    // those that are there are read as they are.
    |_| Ok(()),
    |conn| conn.execute_batch(include_str!("schema/pack.sql")),
    |conn| conn.execute_batch(include_str!("schema/bare.sql")),
    |conn| {
        conn.execute_batch(
            "CREATE INDEX sites_origin ON sites (origin);
             DROP INDEX sources_dropped;
             CREATE INDEX sources_dropped ON sources (dropped_at) WHERE dropped_at IS NOT NULL AND state <> 2;",
        )
    },
    |conn| conn.execute_batch(include_str!("schema/leased.sql")),
];

/// `SQLite` before this loses committed transactions when a writer races a
/// checkpoint (the WAL-reset bug, fixed in 3.51.3).
const LEAST_SQLITE: i32 = 3_051_003;

/// How long a statement waits for a lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A database up to this size is checked page by page at the start: some 50 ms.
const CHECKED_WHOLE: u64 = 16 << 20;

/// Pages that the writer keeps in memory, in KiB. More is slower, not faster: in
/// a database under 1 GiB a commit after pages were balanced looks at all of them
/// (the engine moves a page by way of the number of the one at 1 GiB, and drops
/// what is numbered beyond the end), and what is not here is in the system's cache.
const CACHE_KIB: u32 = 4_096;

/// Statements kept prepared per connection.
const STATEMENTS: usize = 128;

/// Opens (and, when new, creates) the database for the one writer.
pub(super) fn open_writer(path: &Path, durability: Durability) -> Result<Connection, StoreError> {
    check_engine(rusqlite::version_number(), rusqlite::version())?;
    let mut conn = Connection::open(path).map_err(|e| unusable(path, &e))?;
    configure(&conn).map_err(|e| unusable(path, &e))?;
    prepare_schema(&mut conn, path)?;
    let sync = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    if read_all(&conn, "PRAGMA journal_mode = WAL").map_err(|e| unusable(path, &e))? != ["wal"] {
        let path = path.display();
        return Err(StoreError::Unusable(format!("{path} cannot have a write-ahead log")));
    }
    let pragmas = format!(
        "PRAGMA synchronous = {sync};
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = {KEPT};
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -{CACHE_KIB};"
    );
    conn.execute_batch(&pragmas).map_err(|e| unusable(path, &e))?;
    statistics::forget(&conn).map_err(engine).or_else(|error| {
        tracing::warn!(%error, "what is known of the sizes of tables is out of date");
        if error.is_fatal() { Err(error) } else { Ok(()) }
    })?;
    Ok(conn)
}

/// All rows of a pragma. It commits after the last of them: who reads but the
/// first does not hear that this failed.
fn read_all(conn: &Connection, pragma: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare(pragma)?.query_map([], |row| row.get(0))?.collect()
}

fn check_engine(number: i32, name: &str) -> Result<(), StoreError> {
    if number >= LEAST_SQLITE {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "SQLite {name} can lose committed data; 3.51.3 or newer is needed"
    )))
}

/// Opens the database read-only, for one of several readers.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(|e| unusable(path, &e))?;
    configure(&conn).map_err(|e| unusable(path, &e))?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192;")
        .map_err(|e| unusable(path, &e))?;
    check_version(&conn, path)?;
    Ok(conn)
}

/// Opens a connection that only moves the log into the database.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, StoreError> {
    let conn = Connection::open(path).map_err(|e| unusable(path, &e))?;
    configure(&conn).map_err(|e| unusable(path, &e))?;
    // With the first read it learns that there is a log.
    check_version(&conn, path)?;
    Ok(conn)
}

fn configure(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Else the planner looks at bound values, and statements that run once a
    // URL are parsed and planned anew each time: most of the cost of a lease.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The log is moved when we say so: never by a connection that is closed
    // because a sync has failed, and would sync once more.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.execute_batch("PRAGMA trusted_schema = OFF;")
}

/// Has nobody written anything into it, nor set it apart?
fn is_empty(conn: &Connection, path: &Path) -> Result<bool, StoreError> {
    conn.query_row(
        "SELECT (SELECT count(*) FROM sqlite_schema) = 0
             AND (SELECT application_id FROM pragma_application_id) = 0
             AND (SELECT user_version FROM pragma_user_version) = 0",
        [],
        |row| row.get(0),
    )
    .map_err(|e| unusable(path, &e))
}

fn prepare_schema(conn: &mut Connection, path: &Path) -> Result<(), StoreError> {
    if is_empty(conn, path)? {
        // Set before the first table, so that freed pages can be given back.
        conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL;").map_err(|e| unusable(path, &e))?;
        let tx = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|e| unusable(path, &e))?;
        tx.execute_batch(SCHEMA).map_err(|e| unusable(path, &e))?;
        abbreviations::write_words(&tx).map_err(|e| unusable(path, &e))?;
        tx.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
        ))
        .map_err(|e| unusable(path, &e))?;
        return tx.commit().map_err(|e| unusable(path, &e));
    }
    let version = check_version(conn, path)?;
    // Nothing is written into a file that is damaged.
    quick_check(conn, path)?;
    if version < VERSION {
        tracing::info!(
            from = version,
            to = VERSION,
            "the store is brought up to date, which takes a time that is not known"
        );
    }
    migrate(conn, path, version, MIGRATIONS)
}

/// Takes the steps that lead on from `version`. One that is broken off, by an
/// error or by the end of the process, was not taken; the next start goes on
/// with it.
fn migrate(
    conn: &mut Connection,
    path: &Path,
    version: i32,
    steps: &[Step],
) -> Result<(), StoreError> {
    for (from, step) in (1..).zip(steps).skip_while(|(from, _)| *from < version) {
        let tx = conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|e| unusable(path, &e))?;
        step(&tx).map_err(|e| unusable(path, &e))?;
        tx.execute_batch(&format!("PRAGMA user_version = {};", from + 1))
            .map_err(|e| unusable(path, &e))?;
        tx.commit().map_err(|e| unusable(path, &e))?;
    }
    Ok(())
}

/// Finds a file that is not ours or newer than we are; returns its version.
fn check_version(conn: &Connection, path: &Path) -> Result<i32, StoreError> {
    let pragma = |name: &str| conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    let id: i32 = pragma("application_id").map_err(|e| unusable(path, &e))?;
    let version: i32 = pragma("user_version").map_err(|e| unusable(path, &e))?;
    if id != APPLICATION_ID {
        // A start that was broken off leaves an empty file, and the next one goes on with it.
        let what = if is_empty(conn, path)? {
            "is empty: the daemon makes a store of it when it starts"
        } else {
            "is a database of another program"
        };
        return Err(StoreError::Unusable(format!("{} {what}", path.display())));
    }
    if version > VERSION {
        return Err(newer(path, version));
    }
    Ok(version)
}

/// Finds a file that an older program wrote and no newer one has begun with since:
/// our statements do not read it.
pub(super) fn check_up_to_date(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let version = check_version(conn, path)?;
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "{} was written by an older sitemapd (schema {version}, this one reads {VERSION}): it is \
         brought up to date when the daemon starts",
        path.display()
    )))
}

fn newer(path: &Path, version: i32) -> StoreError {
    StoreError::Unusable(format!(
        "{} was written by a newer sitemapd (schema {version}, this one knows {VERSION})",
        path.display()
    ))
}

/// Finds damage before the work begins: a small database is checked page by
/// page. That would take minutes at size, so of a large one only a few places
/// are read; what is damaged elsewhere stops the daemon when it gets there.
fn quick_check(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let probe = "SELECT (SELECT count(*) FROM meta) + (SELECT count(*) FROM crawls)
                 + (SELECT count(*) FROM sites) + (SELECT coalesce(max(id), 0) FROM urls)";
    conn.query_row(probe, [], |row| row.get::<_, i64>(0)).map_err(|e| unusable(path, &e))?;
    if std::fs::metadata(path).is_ok_and(|file| file.len() > CHECKED_WHOLE) {
        return Ok(());
    }
    let found: String = conn
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|e| unusable(path, &e))?;
    if found == "ok" {
        return Ok(());
    }
    let first = found.lines().last().unwrap_or_default();
    Err(StoreError::Unusable(format!("{} is damaged: {first}; restore a backup", path.display())))
}

fn unusable(path: &Path, error: &rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode;
    let path = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => {
            StoreError::Unusable(format!("{path} is damaged: {error}; restore a backup"))
        }
        Some(ErrorCode::NotADatabase) => StoreError::Unusable(format!("{path} is not a database")),
        Some(ErrorCode::CannotOpen) => {
            StoreError::Unusable(format!("{path} cannot be opened: {error}"))
        }
        _ if has_no_room(error) => StoreError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
        _ => StoreError::Unusable(format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;
    use rusqlite::types::Value;

    use super::super::packed::Listing;

    use super::*;
    use crate::diff::snapshot::EntryHints;
    use crate::model::{ChangeFreq, Precision, Priority, Reason, UrlKind};

    #[test]
    fn an_engine_that_can_lose_committed_data_is_refused() {
        for (number, name) in [(3_051_002, "3.51.2"), (3_045_003, "3.45.3")] {
            let refused = check_engine(number, name).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
        }
        assert_eq!(check_engine(3_051_003, "3.51.3"), Ok(()));
        // The one that is built in.
        assert_eq!(check_engine(rusqlite::version_number(), rusqlite::version()), Ok(()));
    }

    #[test]
    fn a_file_that_a_start_left_empty_is_not_called_that_of_another_program() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("test.db");
        std::fs::write(&path, "").unwrap();
        let told = |path: &Path| {
            let conn = Connection::open(path).unwrap();
            check_up_to_date(&conn, path).unwrap_err().to_string()
        };
        assert!(told(&path).ends_with("makes a store of it when it starts"), "{}", told(&path));
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE notes (text)").unwrap();
        assert!(told(&path).contains("another program"), "{}", told(&path));
    }

    #[test]
    fn a_migration_that_is_broken_off_is_taken_up_again_at_its_step() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("test.db");
        let mut conn = open_writer(&path, Durability::Full).unwrap();
        let first: Step =
            |conn| conn.execute_batch("CREATE TABLE one (n INTEGER); INSERT INTO one VALUES (1);");
        let second: Step = |conn| {
            conn.execute_batch("ALTER TABLE one ADD COLUMN m INTEGER; UPDATE one SET m = n;")
        };
        let broken: Step = |conn| {
            conn.execute_batch("ALTER TABLE one ADD COLUMN m INTEGER; UPDATE nothing SET m = n;")
        };
        let beyond = |steps: [Step; 2]| [MIGRATIONS, &steps].concat();
        assert!(migrate(&mut conn, &path, VERSION, &beyond([first, broken])).is_err());
        // The first step stands, of the second there is nothing.
        assert_eq!(check_version(&conn, &path), Err(newer(&path, VERSION + 1)));
        assert!(conn.prepare("SELECT m FROM one").is_err());
        drop(conn);
        let mut conn = Connection::open(&path).unwrap();
        migrate(&mut conn, &path, VERSION + 1, &beyond([first, second])).unwrap();
        let kept: (i64, i64) = conn
            .query_row("SELECT n, m FROM one", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(kept, (1, 1));
        // And it is what an older program refuses.
        assert_eq!(check_version(&conn, &path), Err(newer(&path, VERSION + 2)));
    }

    #[test]
    fn a_file_of_any_older_version_becomes_as_a_new_one() {
        assert_eq!(i32::try_from(MIGRATIONS.len()).unwrap() + 1, VERSION);
        let dir = tempfile::TempDir::new().unwrap();
        // Columns by their names, as those that were added come last.
        let schema = |conn: &Connection| -> Vec<(String, String)> {
            let sql =
                "SELECT m.name, coalesce(m.sql, '') FROM sqlite_schema m WHERE m.type <> 'table'
                       UNION ALL
                       SELECT m.name || '.' || c.name,
                              c.type || c.\"notnull\" || coalesce(c.dflt_value, '') || c.pk
                       FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'
                       ORDER BY 1";
            let mut query = conn.prepare(sql).unwrap();
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let new = open_writer(&dir.path().join("new.db"), Durability::Normal).unwrap();
        // As the first version was.
        let path = dir.path().join("old.db");
        let old = open_writer(&path, Durability::Normal).unwrap();
        old.execute_batch(
            "DROP INDEX sources_dropped; DROP INDEX sources_retired;
             ALTER TABLE sites DROP COLUMN unlisted;
             INSERT INTO meta VALUES ('kept', 1); PRAGMA user_version = 1;",
        )
        .unwrap();
        unpack(&old);
        drop(old);
        let old = open_writer(&path, Durability::Normal).unwrap();
        assert_eq!(check_version(&old, &path), Ok(VERSION));
        assert_eq!(schema(&old), schema(&new));
        let kept = "SELECT value FROM meta WHERE key = 'kept'";
        assert_eq!(old.query_row(kept, [], |row| row.get(0)), Ok(1));
        let kept = |sql: &str| -> String {
            let mut query = old.prepare(sql).unwrap();
            let columns = query.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let value = |n| row.get(n).map(|value: Value| format!("{value:?}"));
                (0..columns).map(value).collect::<rusqlite::Result<Vec<_>>>()
            };
            let rows = query.query_map([], row).unwrap().map(Result::unwrap);
            rows.map(|row| row.join(" ")).collect::<Vec<_>>().join("\n").replace("Integer", "")
        };
        assert_eq!(
            kept(
                "SELECT id, site_id, source_id, path, lastmod_s, raw, expires_s, fresh_s
                  FROM urls"
            ),
            "(7) (5) (6) Blob([47]) (1600000000) Text(\"/A\") (8) (9)\n\
             (8) Null Null Blob([47, 97]) Null Null Null Null"
        );
        let said = kept("SELECT said FROM urls");
        let said =
            said.lines().map(|said| Listing::unpack(said[1..said.len() - 1].parse().unwrap()));
        let first = Listing {
            listed: false,
            kind: UrlKind::Alternate,
            precision: Some(Precision::Fraction),
            hints: EntryHints {
                changefreq: Some(ChangeFreq::Never),
                priority: Priority::from_thousandths(1_000),
            },
            reason: Reason::Removed,
            band: 102,
            first_seen_s: 1_700_000_000,
        };
        let second = Listing {
            listed: true,
            kind: UrlKind::Page,
            precision: None,
            hints: EntryHints::default(),
            reason: Reason::New,
            band: 0,
            first_seen_s: 0,
        };
        assert_eq!(said.collect::<Vec<_>>(), [first, second]);
        assert_eq!(
            kept("SELECT urls, unlisted, priorities FROM sites"),
            "(1) (1) (1000)\n(0) (0) (0)",
            "counts that have drifted"
        );
        assert_eq!(
            kept(
                "SELECT url_id, place & 7, place >> 3 & 15, place >> 7 & 127,
                     place >> 14 & 274877906943, place >> 52, record FROM feedback"
            ),
            "(7) (5) (4) (102) (253402300799) (1001) Blob([1, 2])\n\
             (8) (0) (0) (0) (0) (0) Blob([])"
        );
        assert_eq!(
            kept("SELECT crawl_id, host_id, band, due_s, url_id, owner FROM queue"),
            "(1) (3) (102) (9) (7) (11)\n(1) (3) (0) (-4) (8) (0)"
        );
        assert_eq!(
            kept("SELECT url, kind, changefreq, priority, listed, state FROM url_view"),
            "Text(\"http://a.test/\") Text(\"alternate\") Text(\"never\") Real(1.0) (0) \
             Text(\"forbidden\")\n\
             Text(\"http://a.test/a\") Text(\"page\") Null Null (1) Text(\"queued\")"
        );
    }

    #[test]
    fn a_file_of_version_5_loses_what_was_computed_and_nothing_else() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("old.db");
        let old = open_writer(&path, Durability::Normal).unwrap();
        // With the comments that it has, which the engine edits.
        old.execute_batch(&format!(
            "DROP INDEX sites_origin; DROP VIEW url_view; DROP TABLE feedback; DROP TABLE queue; {}
             CREATE VIEW url_view AS SELECT state, due_s FROM feedback;
             INSERT INTO feedback (url_id, place, record) VALUES (7, 3 | (5 << 14), x'01');
             INSERT INTO queue (crawl_id, host_id, band, due_s, url_id, owner)
                 VALUES (1, 3, 50, 9, 8, 11);
             PRAGMA user_version = 5;",
            include_str!("schema/computed.sql")
        ))
        .unwrap();
        drop(old);
        let conn = open_writer(&path, Durability::Normal).unwrap();
        assert_eq!(check_version(&conn, &path), Ok(VERSION));
        let columns = |table: &str| -> String {
            let sql = "SELECT group_concat(name, ' ') FROM pragma_table_xinfo(?1)";
            conn.query_row(sql, [table], |row| row.get(0)).unwrap()
        };
        assert_eq!(columns("feedback"), "url_id place record");
        assert_eq!(columns("queue"), "crawl_id host_id band due_s url_id owner");
        let held = "SELECT url_id, record FROM feedback INDEXED BY feedback_held
                    WHERE place & 7 = 3 AND place & 7 > 1";
        let held = conn.query_row(held, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(held, Ok((7, vec![1_u8])));
        let queued = "SELECT band, owner FROM queue WHERE url_id = 8";
        assert_eq!(conn.query_row(queued, [], |row| Ok((row.get(0)?, row.get(1)?))), Ok((50, 11)));
        let whole = conn.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
        assert_eq!(whole.as_deref(), Ok("ok"));
        conn.prepare("SELECT * FROM url_view").unwrap();
    }

    #[test]
    fn an_older_file_is_not_looked_into_before_it_is_brought_up_to_date() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("old.db");
        let conn = open_writer(&path, Durability::Normal).unwrap();
        assert_eq!(check_up_to_date(&conn, &path), Ok(()));
        conn.execute_batch("PRAGMA user_version = 4;").unwrap();
        let home = super::super::home::Home::File(path);
        let refused = home.open_reader().err().unwrap().to_string();
        assert!(refused.contains("an older sitemapd (schema 4, this one reads 8)"), "{refused}");
    }

    /// Makes tables as they were up to version 4, with rows at the ends of what there
    /// may be.
    fn unpack(conn: &Connection) {
        conn.execute_batch(
            "DROP INDEX feedback_held; DROP INDEX sites_origin;
             DROP VIEW url_view; DROP TABLE urls; DROP TABLE feedback; DROP TABLE queue;
             CREATE TABLE urls (
                 id INTEGER PRIMARY KEY, crawl_id INTEGER NOT NULL, host_id INTEGER NOT NULL,
                 site_id INTEGER, source_id INTEGER, path BLOB NOT NULL,
                 first_seen_s INTEGER NOT NULL, listed INTEGER NOT NULL DEFAULT 1,
                 kind INTEGER NOT NULL DEFAULT 0, lastmod_s INTEGER, lastmod_precision INTEGER,
                 hints INTEGER NOT NULL DEFAULT 0, reason INTEGER NOT NULL, band INTEGER NOT NULL,
                 raw TEXT, expires_s INTEGER, fresh_s INTEGER);
             CREATE TABLE feedback (
                 url_id INTEGER PRIMARY KEY, state INTEGER NOT NULL, reason INTEGER NOT NULL,
                 band INTEGER NOT NULL, due_s INTEGER NOT NULL,
                 attempt INTEGER NOT NULL DEFAULT 0, record BLOB NOT NULL) STRICT;
             CREATE INDEX feedback_held ON feedback (state, url_id) WHERE state > 1;
             CREATE TABLE queue (
                 crawl_id INTEGER NOT NULL, host_id INTEGER NOT NULL, band INTEGER NOT NULL,
                 due_s INTEGER NOT NULL, url_id INTEGER NOT NULL, site_id INTEGER,
                 valued INTEGER NOT NULL DEFAULT 0,
                 PRIMARY KEY (crawl_id, host_id, band DESC, due_s, url_id)) STRICT, WITHOUT ROWID;
             CREATE VIEW url_view AS SELECT id, listed FROM urls;
             INSERT INTO crawls (id, name) VALUES (1, 'default');
             INSERT INTO sites (id, name, crawl_id, url, origin, urls, priorities, added_at)
                 VALUES (5, 'a', 1, 'http://a.test/', 'http://a.test', 9, 9, 0),
                     (6, 'b', 1, 'http://b.test/', 'http://b.test', 9, 9, 0);
             INSERT INTO hosts (id, authority, name, part, delay_ms)
                 VALUES (3, 'http://a.test', 'a.test', 0, 0);
             INSERT INTO urls VALUES
                 (7, 1, 3, 5, 6, x'2f', 1700000000, 0, 3, 1600000000, 5, 8015, 4, 102, '/A', 8, 9),
                 (8, 1, 3, NULL, NULL, x'2f61', 0, 1, 0, NULL, NULL, 0, 0, 0, NULL, NULL, NULL);
             INSERT INTO feedback VALUES
                 (7, 5, 4, 102, 253402300799, 1001, x'0102'), (8, 0, 0, 0, 0, 0, x'');
             INSERT INTO queue VALUES (1, 3, 102, 9, 7, 5, 1), (1, 3, 0, -4, 8, NULL, 0);",
        )
        .unwrap();
    }

    #[test]
    fn a_statement_is_planned_once_whatever_is_bound() {
        let dir = tempfile::TempDir::new().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), Durability::Normal).unwrap();
        let sql = "SELECT u.id, coalesce(f.place, 0) FROM urls u
                   LEFT JOIN feedback f ON f.url_id = u.id
                   LEFT JOIN leases l ON l.url_id = u.id WHERE u.id = ?1";
        let mut query = conn.prepare(sql).unwrap();
        for id in 0..10 {
            assert!(!query.exists([id]).unwrap());
        }
        assert_eq!(query.get_status(StatementStatus::RePrepare), 0);
    }
}
