//! One way to run SQL on either engine: the embedded one, or a server that
//! speaks `PostgreSQL`.
//!
//! It has the names of `rusqlite`, whose parameters and columns serve both: a
//! statement of the embedded engine is run as it is, one of a server is
//! translated first (`text`). So a rule of the store is written once, and where
//! one text cannot serve both, both stand side by side in it.
//!
//! Leaves to others: opening (`schema`, `server`), and what an error means
//! for the caller (`engine` in the store's root).

mod columns;
mod many;
mod params;
mod server;
mod set;
mod text;
mod values;

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::types::{FromSql, Value, ValueRef};
pub(super) use rusqlite::{params, types::ToSql};

pub(super) use columns::Kind;
pub(super) use many::{Many, Values};
pub(super) use params::Params;
pub(super) use server::{Copier, Server, Session, describe};
pub(super) use set::Set;
pub(super) use text::near_text;

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// In the embedded engine, or in what a column was read as.
    #[error(transparent)]
    Embedded(#[from] rusqlite::Error),
    /// On the server.
    #[error("{}", describe(.0))]
    Server(#[from] tokio_postgres::Error),
    /// Something failed in a transaction that was to be committed.
    #[error("the transaction failed before its end")]
    Aborted,
    /// The server did not answer in time, and is not asked on this connection
    /// any more.
    #[error("the database server is away: {0}")]
    Away(String),
    /// What the server was to be asked by does not do, and will not.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// A column holds text that is not what we wrote.
    pub(super) fn unread(column: usize, why: Box<dyn std::error::Error + Send + Sync>) -> Self {
        let kind = rusqlite::types::Type::Text;
        Self::Embedded(rusqlite::Error::FromSqlConversionFailure(column, kind, why))
    }
}

impl From<rusqlite::types::FromSqlError> for Error {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Self::Embedded(error.into())
    }
}

/// What a statement comes to.
pub(super) type Result<T> = std::result::Result<T, Error>;

/// A connection to either engine.
pub(super) enum Connection {
    /// To a file of our own.
    Embedded(rusqlite::Connection),
    /// To a server.
    Server(Box<Session>),
}

impl Connection {
    /// A statement, translated, planned and kept for the next time.
    pub(super) fn prepare_cached(&self, sql: &str) -> Result<Statement<'_>> {
        Ok(match self {
            Self::Embedded(conn) => Statement::Embedded(conn.prepare_cached(sql)?),
            Self::Server(session) => Statement::Server { session, text: session.text_of(sql) },
        })
    }

    /// Runs one statement; says how many rows it changed.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.prepare_cached(sql)?.execute(params)
    }

    /// Reads the first row of what one statement answers.
    pub(super) fn query_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.prepare_cached(sql)?.query_row(params, read)
    }

    /// Runs statements without parameters, one after the other.
    pub(super) fn execute_batch(&self, sql: &str) -> Result<()> {
        match self {
            Self::Embedded(conn) => Ok(conn.execute_batch(sql)?),
            Self::Server(session) => session.batch(sql),
        }
    }

    /// Runs a statement without parameters; on a server an error comes with the
    /// next one.
    pub(super) fn send(&self, sql: impl Into<Cow<'static, str>>) -> Result<()> {
        let sql = sql.into();
        match self {
            Self::Embedded(conn) => run(conn, &sql),
            Self::Server(session) => session.send_batch(sql),
        }
    }

    /// Begins a transaction that writes.
    pub(super) fn begin(&self) -> Result<()> {
        match self {
            Self::Embedded(conn) => run(conn, "BEGIN IMMEDIATE"),
            Self::Server(session) => session.begin("BEGIN"),
        }
    }

    /// Begins a transaction that sees one state of the database and writes
    /// nothing.
    pub(super) fn begin_reading(&self) -> Result<()> {
        match self {
            Self::Embedded(conn) => run(conn, "BEGIN"),
            Self::Server(session) => {
                session.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            }
        }
    }

    /// Ends a transaction; what it wrote stands.
    pub(super) fn commit(&self) -> Result<()> {
        match self {
            Self::Embedded(conn) => run(conn, "COMMIT"),
            Self::Server(session) => session.commit(),
        }
    }

    /// Ends a transaction; what it wrote is taken back.
    pub(super) fn rollback(&self) -> Result<()> {
        match self {
            Self::Embedded(conn) => Ok(conn.execute_batch("ROLLBACK")?),
            Self::Server(session) => session.rollback(),
        }
    }

    /// Waits for what was sent ([`Statement::send`]), and hears whether it failed.
    pub(super) fn flush(&self) -> Result<()> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Server(session) => session.flush(),
        }
    }

    /// Takes back what was written since a savepoint, and ends it.
    pub(super) fn rollback_to(&self, savepoint: &str) -> Result<()> {
        match self {
            Self::Embedded(conn) => {
                Ok(conn.execute_batch(&format!("ROLLBACK TO {savepoint}; RELEASE {savepoint}"))?)
            }
            Self::Server(session) => session.rollback_to(savepoint),
        }
    }

    /// Is no transaction open?
    pub(super) fn is_autocommit(&self) -> bool {
        match self {
            Self::Embedded(conn) => conn.is_autocommit(),
            Self::Server(session) => !session.is_in_transaction(),
        }
    }

    /// Rows that this connection has changed.
    pub(super) fn total_changes(&self) -> u64 {
        match self {
            Self::Embedded(conn) => conn.total_changes(),
            Self::Server(session) => session.total_changes(),
        }
    }

    /// The embedded engine, for what only it has: its log, its pages.
    pub(super) fn embedded(&self) -> Option<&rusqlite::Connection> {
        match self {
            Self::Embedded(conn) => Some(conn),
            Self::Server(_) => None,
        }
    }

    /// The server, for what only it has.
    pub(super) fn server(&self) -> Option<&Session> {
        match self {
            Self::Embedded(_) => None,
            Self::Server(session) => Some(session),
        }
    }
}

/// Runs one statement without parameters, of the few that come with each job:
/// kept prepared, since reading them is most of what they cost.
fn run(conn: &rusqlite::Connection, sql: &str) -> Result<()> {
    Ok(conn.prepare_cached(sql)?.execute(()).map(|_| ())?)
}

/// A statement of either engine.
pub(super) enum Statement<'c> {
    Embedded(rusqlite::CachedStatement<'c>),
    Server { session: &'c Session, text: Arc<text::Text> },
}

impl Statement<'_> {
    /// Runs it; says how many rows it changed.
    pub(super) fn execute(&mut self, params: impl Params) -> Result<usize> {
        match self {
            Self::Embedded(statement) => Ok(statement.execute(params.embedded())?),
            Self::Server { session, text } => session.execute(text, &params.values()?),
        }
    }

    /// Runs it without waiting, where that is a journey, for how it went: an
    /// error comes with the next statement, or [`Connection::flush`].
    pub(super) fn send(&mut self, params: impl Params) -> Result<()> {
        match self {
            Self::Embedded(statement) => Ok(statement.execute(params.embedded()).map(|_| ())?),
            Self::Server { session, text } => session.send(text, &params.values()?),
        }
    }

    /// Reads the first row that it answers; `QueryReturnedNoRows` when there is
    /// none.
    pub(super) fn query_row<T>(
        &mut self,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut rows = self.query(params)?;
        match rows.next()? {
            Some(row) => read(&row),
            None => Err(rusqlite::Error::QueryReturnedNoRows.into()),
        }
    }

    /// Reads each row that it answers.
    pub(super) fn query_map<T, F>(
        &mut self,
        params: impl Params,
        read: F,
    ) -> Result<impl Iterator<Item = Result<T>>>
    where
        F: FnMut(&Row<'_>) -> Result<T>,
    {
        Ok(Mapped { rows: self.query(params)?, read })
    }

    /// The rows that it answers.
    pub(super) fn query(&mut self, params: impl Params) -> Result<Rows<'_>> {
        Ok(match self {
            Self::Embedded(statement) => Rows::Embedded(statement.query(params.embedded())?),
            Self::Server { session, text } => {
                Rows::Server(session.query(text, &params.values()?)?.into_iter(), Vec::new())
            }
        })
    }
}

/// The rows that a statement answers.
pub(super) enum Rows<'s> {
    Embedded(rusqlite::Rows<'s>),
    /// Those to come, and the one that is looked at.
    Server(std::vec::IntoIter<tokio_postgres::Row>, Vec<Value>),
}

impl Rows<'_> {
    /// The next row, while there is one.
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>> {
        match self {
            Self::Embedded(rows) => Ok(rows.next()?.map(Row::Embedded)),
            Self::Server(rows, current) => {
                let Some(row) = rows.next() else { return Ok(None) };
                values::read_row(&row, current)?;
                Ok(Some(Row::Server(current)))
            }
        }
    }
}

struct Mapped<'s, F> {
    rows: Rows<'s>,
    read: F,
}

impl<T, F: FnMut(&Row<'_>) -> Result<T>> Iterator for Mapped<'_, F> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.rows.next() {
            Ok(row) => row.map(|row| (self.read)(&row)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// One row.
pub(super) enum Row<'r> {
    Embedded(&'r rusqlite::Row<'r>),
    Server(&'r [Value]),
}

impl Row<'_> {
    /// A column by its number.
    pub(super) fn get<T: FromSql>(&self, column: usize) -> Result<T> {
        match self {
            Self::Embedded(row) => Ok(row.get(column)?),
            Self::Server(_) => {
                let value = self.get_ref(column)?;
                T::column_result(value).map_err(|error| {
                    let why = Box::new(error);
                    rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), why).into()
                })
            }
        }
    }

    /// A column by its number, as it is.
    pub(super) fn get_ref(&self, column: usize) -> Result<ValueRef<'_>> {
        match self {
            Self::Embedded(row) => Ok(row.get_ref(column)?),
            Self::Server(values) => match values.get(column) {
                Some(value) => Ok(ValueRef::from(value)),
                None => Err(rusqlite::Error::InvalidColumnIndex(column).into()),
            },
        }
    }
}

/// For what may answer no row.
pub(super) trait OptionalExtension<T> {
    /// None where there was no row.
    fn optional(self) -> Result<Option<T>>;
}

impl<T> OptionalExtension<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(Error::Embedded(rusqlite::Error::QueryReturnedNoRows)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
