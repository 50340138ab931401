//! Which engine the tests' stores are in: a file, or, where
//! `SITEMAPD_POSTGRES` names a database, a schema of it for each data folder.
//! And a door into either, for tests that look past the store or change rows
//! behind its back; what they say there both engines must understand.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use sitemapd::config::Config;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Columns of a row as text; bytes are in hexadecimal.
pub type Row = Vec<Option<String>>;

/// A door to what a store keeps, beside the store.
#[derive(Debug, Clone)]
pub enum Look {
    /// Into its file.
    File(PathBuf),
    /// Into its schema, by this URL.
    Server(String),
}

impl Look {
    /// Into the store of a config.
    pub fn of(config: &Config) -> Self {
        config.store.url.as_ref().map_or_else(
            || Self::File(config.daemon.data_dir.join("sitemapd.db")),
            |url| Self::Server(url.to_string()),
        )
    }

    /// Into the store of a data folder.
    pub fn into(folder: &Path) -> Self {
        let mut config = Config::from_toml_str("").unwrap();
        place(&mut config, folder);
        Self::of(&config)
    }

    /// Lets go of a daemon that was killed: waits until a server has ended what
    /// it was at, and forgets that it lived, which only time would.
    pub fn let_go(&self) {
        let Self::Server(_) = self else { return };
        let deadline = Instant::now() + super::PATIENCE;
        let at_work = "SELECT count(*) FROM nodes n JOIN pg_stat_activity a ON a.pid = n.backend";
        while self.number(at_work) > 0 {
            assert!(Instant::now() < deadline, "the server holds on to a daemon that is gone");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.change("DELETE FROM nodes");
    }

    /// Two days pass for a store on a server, which no daemon works on: it goes by
    /// the clock of that, which nobody steps, so all that is kept grows older.
    pub fn pass_two_days(&self) {
        const DAYS: i64 = 2 * 24 * 3_600;
        let older = |table: &str, column: &str, by: i64| {
            self.change(&format!("UPDATE {table} SET {column} = {column} - {by}"));
        };
        let in_seconds = [
            ("queue", "due_s"),
            ("feedback", "due_s"),
            ("turns", "due_s"),
            ("urls", "first_seen_s"),
        ];
        for (table, column) in in_seconds {
            older(table, column, DAYS);
        }
        for (table, column) in [("leases", "expires_at"), ("sources", "next_poll_at")] {
            older(table, column, 1_000 * DAYS);
        }
    }

    /// The file, where the store is in one; tests that ask for it end before
    /// they do where it is not.
    pub fn file(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Server(_) => panic!("there is no file"),
        }
    }

    /// What a statement answers.
    pub fn rows(&self, sql: &str) -> Vec<Row> {
        match self {
            Self::File(path) => rows_of_file(path, sql),
            Self::Server(url) => rows_of_server(url, sql),
        }
    }

    /// The first column of the first row, where there is one and it is not null.
    pub fn text(&self, sql: &str) -> Option<String> {
        self.rows(sql).into_iter().next()?.into_iter().next()?
    }

    /// The same as a number.
    pub fn number(&self, sql: &str) -> i64 {
        self.text(sql).expect("a number").parse().unwrap()
    }

    /// The same, where a file has packed what a server has columns for.
    pub fn change_packed(&self, file: &str, server: &str) {
        self.change(match self {
            Self::File(_) => file,
            Self::Server(_) => server,
        });
    }

    /// All URLs are to be what their sources say with these hints, packed.
    pub fn set_hints(&self, hints: u16) {
        self.change_packed(
            &format!("UPDATE urls SET said = (said & ~(8191 << 7)) | ({hints} << 7)"),
            &format!("UPDATE urls SET hints = {hints}"),
        );
    }

    /// Runs statements that change something, one after the other.
    pub fn change(&self, sql: &str) {
        match self {
            Self::File(path) => open(path).execute_batch(sql).unwrap(),
            Self::Server(url) => drop(rows_of_server(url, sql)),
        }
    }
}

fn open(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}

/// What a file has packed, as the columns that a server has.
const APART: &str = "CREATE TEMP VIEW urls AS
    SELECT *, said & 1 AS listed, said >> 1 & 7 AS kind,
        nullif(said >> 4 & 7, 0) - 1 AS lastmod_precision, said >> 7 & 8191 AS hints,
        said >> 20 & 7 AS reason, said >> 23 & 127 AS band, said >> 30 AS first_seen_s
    FROM main.urls;
    CREATE TEMP VIEW feedback AS
    SELECT *, place & 7 AS state, place >> 3 & 15 AS reason, place >> 7 & 127 AS band,
        place >> 14 & 274877906943 AS due_s, place >> 52 AS attempt
    FROM main.feedback;
    CREATE TEMP VIEW queue AS
    SELECT *, nullif(owner >> 1, 0) AS site_id, owner & 1 AS valued FROM main.queue";

fn rows_of_file(path: &Path, sql: &str) -> Vec<Row> {
    let conn = open(path);
    conn.execute_batch(APART).unwrap();
    let mut query = conn.prepare(sql).unwrap();
    let columns = query.column_count();
    let column = |row: &rusqlite::Row<'_>, n: usize| match row.get_ref(n).unwrap() {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
        ValueRef::Blob(bytes) => Some(hex(bytes)),
    };
    let read = |row: &rusqlite::Row<'_>| Ok((0..columns).map(|n| column(row, n)).collect());
    query.query_map([], read).unwrap().map(Result::unwrap).collect()
}

fn rows_of_server(url: &str, sql: &str) -> Vec<Row> {
    let column = |text: &str| text.strip_prefix("\\x").unwrap_or(text).to_owned();
    ask(url, sql)
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|n| row.get(n).map(column)).collect())
            }
            _ => None,
        })
        .collect()
}

/// Runs statements on a connection of their own. Tests run where futures do; a
/// connection of this kind is waited for on another thread.
pub fn ask(url: &str, sql: &str) -> Vec<SimpleQueryMessage> {
    let asking = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            client.simple_query(sql).await.unwrap_or_else(|why| panic!("{why:?}: {sql}"))
        })
    };
    std::thread::scope(|scope| scope.spawn(asking).join().unwrap())
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Gives a config a data folder, and, where that is asked for, a schema of its
/// own in the server's database.
pub fn place(config: &mut Config, folder: &Path) {
    folder.clone_into(&mut config.daemon.data_dir);
    config.store.url = server_for(folder);
}

/// Where the store of a data folder is, if not in it.
pub fn server_for(folder: &Path) -> Option<url::Url> {
    let server = std::env::var("SITEMAPD_POSTGRES").ok()?;
    let mut hash = DefaultHasher::new();
    folder.hash(&mut hash);
    let name = format!("test_{:016x}", hash.finish());
    ask(&server, &format!("CREATE SCHEMA IF NOT EXISTS {name}"));
    let mut url = url::Url::parse(&server).unwrap();
    url.query_pairs_mut().append_pair("options", &format!("-csearch_path={name}"));
    Some(url)
}

/// Are the stores in files? What is about these says so and ends, where not.
pub fn is_embedded(test: &str) -> bool {
    let is_embedded = std::env::var_os("SITEMAPD_POSTGRES").is_none();
    if !is_embedded {
        eprintln!("SKIPPED on a server: {test} is about the file");
    }
    is_embedded
}
