//! Copies a store from its file to a database of a server.
//!
//! Rows go table by table in the order of their keys, some thousand a commit,
//! each commit with the place that it leads up to (`target`): broken off at any
//! moment, the same order goes on where it stood. The file is read, never
//! written. Numbers of hosts, sources and URLs get the partition of their host
//! (`ids`); which columns and what packed bytes name such is the plan's to know
//! (`plan`). When all is there it is compared (`verify`), and only then a daemon
//! takes it for a store.
//!
//! Leases do not go: their tokens name rows by the old numbers. Their URLs are
//! back in the queue, at the place that they had, as after a release: no
//! delivery is counted, and what made one due meanwhile is why it is due; what
//! nobody wants any more is parked.

mod copy;
mod ids;
mod plan;
mod survey;
mod target;
mod verify;

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use url::Url;

use super::lock::DataLock;
use super::log_order::{COPIED, Log};
use super::sql::Server;
use super::{FILE, StoreError, apart, engine, schema};
use crate::config::Durability;
use copy::Bounds;
use plan::Step;
use survey::Survey;
use target::Target;

/// Rows of one commit.
const ROWS: usize = 10_000;

/// What is copied where.
#[derive(Debug, Clone)]
pub struct Migration {
    /// The file, or the data folder that has it.
    pub from: PathBuf,
    /// The server's database (`postgres://…`).
    pub to: Url,
    /// Rows of one commit.
    pub rows: usize,
    /// Stops after so many commits; none: goes to the end.
    pub commits: Option<u64>,
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// The file is looked over.
    Surveying,
    /// Rows are copied: those of this table, and of all, that are there and that
    /// there are in all.
    Copying {
        /// What is copied.
        table: &'a str,
        /// Of this table: there, and in all.
        rows: (u64, u64),
        /// Of all tables: there, and in all.
        total: (u64, u64),
    },
    /// Both are compared.
    Verifying,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Migrated {
    /// The database is a store now.
    Whole(Copied),
    /// It was one already: the whole copy of this very file.
    Already,
    /// It was stopped; the same order goes on.
    Stopped,
}

/// A whole copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Rows of each table that has any.
    pub tables: Vec<(&'static str, u64)>,
    /// URLs that were with fetchers, and are in the queue again.
    pub leases: u64,
    /// URLs that were looked up by their text.
    pub looked_up: u64,
}

impl Migration {
    /// Of a file, or a data folder, to a database.
    pub fn new(from: &Path, to: &Url) -> Self {
        Self { from: from.to_owned(), to: to.clone(), rows: ROWS, commits: None }
    }

    /// Copies, or goes on copying. Blocks.
    pub fn run(&self, tell: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<Migrated, StoreError> {
        apart(|| self.run_here(tell))
    }

    fn run_here(&self, tell: &mut dyn FnMut(Progress<'_>)) -> Result<Migrated, StoreError> {
        let server = Server::new(self.to.as_str()).map_err(engine)?;
        let (file, _lock) = open(&self.from)?;
        let target = Target::open(&server)?;
        let found = target.look()?;
        tell(Progress::Surveying);
        let steps = plan::steps();
        let survey = survey::survey(&file, &steps)?;
        if target.begin(found, &survey.identity)? {
            return Ok(Migrated::Already);
        }
        if !self.copy(&file, &target, &steps, &survey, tell)? {
            return Ok(Migrated::Stopped);
        }
        tell(Progress::Verifying);
        let tables: Vec<&str> = steps.iter().map(|step| step.table).collect();
        target.analyze(&tables)?;
        let looked_up = verify::verify(&file, &target.conn, &steps, &survey)?;
        target.finish(&survey.identity, &numbers(&file, &survey)?, &followed(&file)?)?;
        // Of a table that two steps fill, what its own has.
        let tables = steps.iter().zip(survey.rows).filter(|(step, _)| step.name == step.table);
        let tables = tables.map(|(step, rows)| (step.table, rows));
        let tables = tables.filter(|(_, rows)| *rows > 0).collect();
        Ok(Migrated::Whole(Copied { tables, leases: survey.leases, looked_up }))
    }

    fn copy(
        &self,
        file: &Connection,
        target: &Target,
        steps: &[Step],
        survey: &Survey,
        tell: &mut dyn FnMut(Progress<'_>),
    ) -> Result<bool, StoreError> {
        let mut bounds = Bounds { rows: self.rows.max(1), commits: self.commits };
        let all: u64 = survey.rows.iter().sum();
        let mut before = 0;
        for (step, rows) in steps.iter().zip(&survey.rows) {
            let whole = copy::copy(file, target, step, survey, &mut bounds, |there| {
                tell(Progress::Copying {
                    table: step.name,
                    rows: (there, *rows),
                    total: (before + there, all),
                });
            })?;
            if !whole {
                return Ok(false);
            }
            before += rows;
        }
        Ok(true)
    }
}

/// Opens the file, of which nothing changes while it is open. One of an older version
/// is refused: to bring it up to date is to change it, and its daemon does that.
fn open(from: &Path) -> Result<(Connection, Option<DataLock>), StoreError> {
    let named = if from.is_dir() { from.join(FILE) } else { from.to_owned() };
    let missing = || StoreError::NotFound(format!("there is no store at {}", named.display()));
    if !named.is_file() {
        return Err(missing());
    }
    let path = named.canonicalize().map_err(|_| missing())?;
    // A daemon takes no file of another name.
    let folder = path.parent().filter(|_| path.file_name().is_some_and(|name| name == FILE));
    let lock = folder.map(DataLock::take).transpose()?;
    // What is not ours, newer or older, is refused before anything could be made in it.
    schema::check_up_to_date(&schema::open_reader(&path)?, &path)?;
    let file = schema::open_writer(&path, Durability::Full)?;
    // Sums over many rows need not be in memory.
    let alone = "PRAGMA query_only = ON; PRAGMA temp_store = FILE; BEGIN";
    file.execute_batch(alone).map_err(engine)?;
    Ok((file, lock))
}

/// The sequences of the server, and what each has given out: none gives out a
/// number again that the file has given out.
fn numbers(file: &Connection, survey: &Survey) -> Result<Vec<(String, i64)>, StoreError> {
    const TABLES: [&str; 6] =
        ["crawls", "sites", "robots_changes", "submissions", "pushes", "callbacks"];
    let mut numbers = vec![
        ("ids".to_owned(), survey.last_id),
        ("url_blocks".to_owned(), super::numbers::block_of(survey.last_url)),
    ];
    for table in TABLES.into_iter().chain(["deliveries"]) {
        numbers.push((format!("{table}_id_seq"), survey::last_number(file, table)?));
    }
    Ok(numbers)
}

/// The logs whose numbers are their transactions', and above what these have to
/// begin. Of a copy it is not the last number that was given out.
fn followed(file: &Connection) -> Result<[(Log, i64); 2], StoreError> {
    let is_copy = survey::meta(file, COPIED)?.is_some();
    let above = |log: Log, last| (log, if is_copy { log.above_copy(last) } else { last });
    Ok([
        above(Log::Polls, survey::last_number(file, "polls")?),
        above(Log::Changes, survey::last_number(file, "changes")?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_of_the_server_goes_on_after_the_file() {
        let dir = tempfile::TempDir::new().unwrap();
        drop(schema::open_writer(&dir.path().join(FILE), Durability::Normal).unwrap());
        let (file, _lock) = open(dir.path()).unwrap();
        file.execute_batch("PRAGMA query_only = OFF; INSERT INTO meta VALUES ('seed', 1)").unwrap();
        let survey = survey::survey(&file, &plan::steps()).unwrap();
        let set: Vec<String> =
            numbers(&file, &survey).unwrap().into_iter().map(|(name, _)| name).collect();
        let mut table = "";
        for line in super::super::server::SCHEMA.lines() {
            if let Some(name) = line.strip_prefix("CREATE TABLE ") {
                table = name.trim_end_matches(" (");
            }
            let made = match line.strip_prefix("CREATE SEQUENCE ") {
                Some(name) => name.trim_end_matches(';').to_owned(),
                None if line.contains("AS IDENTITY") => format!("{table}_id_seq"),
                None => continue,
            };
            assert!(set.contains(&made), "{made}");
        }
        assert_eq!(set.len(), 9);
    }

    #[test]
    fn what_is_no_store_of_ours_is_refused_and_left_as_it_is() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("other.db");
        let told = |path: &Path| open(path).err().unwrap().to_string();
        assert!(told(&path).contains("there is no store"), "{}", told(&path));
        std::fs::write(&path, "").unwrap();
        assert!(told(&path).contains("is empty"), "{}", told(&path));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA application_id = 0x736d7064; PRAGMA user_version = 99").unwrap();
        drop(conn);
        assert!(told(&path).contains("newer"), "{}", told(&path));
    }

    #[test]
    fn a_file_of_an_older_version_is_refused_and_left_as_it_is() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join(FILE);
        let conn = schema::open_writer(&path, Durability::Normal).unwrap();
        conn.execute_batch("PRAGMA user_version = 5; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(conn);
        let before = std::fs::read(&path).unwrap();
        let told = open(dir.path()).err().unwrap().to_string();
        assert!(
            told.contains("older sitemapd") && told.contains("when the daemon starts"),
            "{told}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_file_that_a_daemon_works_on_is_refused() {
        let dir = tempfile::TempDir::new().unwrap();
        drop(schema::open_writer(&dir.path().join(FILE), Durability::Normal).unwrap());
        let held = DataLock::take(dir.path()).unwrap();
        for named in [dir.path().to_owned(), dir.path().join(FILE)] {
            assert!(
                matches!(open(&named), Err(StoreError::Refused(why)) if why.contains("in use"))
            );
        }
        drop(held);
        assert!(open(dir.path()).is_ok());
    }
}
