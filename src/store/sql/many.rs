//! One statement over many rows: what a statement costs beside its rows is most
//! of what leasing and settling cost.
//!
//! Rows go in groups of a few sizes, so that few statements are kept prepared.
//! Statements that insert say `OR FAIL` to the embedded engine: what a job did
//! is taken back as a whole, and the engine need not keep copies of pages for
//! one statement. It keeps them all the same where rows name their number, so the
//! groups are large.

use std::fmt::Write as _;
use std::sync::OnceLock;

use rusqlite::CachedStatement;
use rusqlite::types::{ToSql, Value};

use super::columns::{Column, Kind};
use super::params::owned;
use super::server::Session;
use super::set::{ROWS, Set};
use super::text::{Text, near_text};
use super::{Connection, Result, Row};

/// Rows of one statement of the embedded engine.
const GROUPS: [usize; 4] = [100, 25, 5, 1];

/// A statement for any number of rows.
pub(in crate::store) struct Many {
    pattern: Pattern,
    /// By how many rows they take, the most first.
    near: Vec<(usize, String)>,
    /// What a server is told instead.
    far: Option<Far>,
}

/// A statement that takes any number of rows at once.
enum Far {
    /// Of numbers.
    Set(Set),
    Columns(Columns),
}

/// A statement of a server that takes its rows as columns.
struct Columns {
    kinds: Vec<Kind>,
    sql: String,
    text: OnceLock<Text>,
}

/// What a statement is made of.
struct Pattern {
    head: String,
    /// One row: its parameters follow the shared ones, from `?{shared + 1}` on.
    row: String,
    tail: String,
    /// Parameters that all rows have in common, the first ones.
    shared: usize,
    /// Parameters of a row.
    width: usize,
}

impl Many {
    /// A statement that ends in a condition: `column`, a host, source or URL, is
    /// one of the rows, of one number each.
    pub(in crate::store) fn of_ids(head: &str, column: &str) -> Self {
        let part = column.split_once('.').map_or(String::new(), |(table, _)| format!("{table}."));
        let set = format!(
            "{head} ({part}part, {column}) IN
                 (SELECT id & 255, id FROM unnest(?1::BIGINT[]) AS asked (id))"
        );
        let near = Self::of_pattern(&format!("{head} {column} IN ("), "?1", 1, ")");
        Self { far: Some(Far::Set(Set::new(&set, 1))), ..near }
    }

    /// Rows that name their `width` values ?1 and so on, as often as they like.
    /// One that only a server is told is not the last: the embedded engine
    /// passes over its number.
    pub(in crate::store) fn of_pattern(head: &str, row: &str, width: usize, tail: &str) -> Self {
        Self::of_pattern_sharing(head, row, (0, width), tail)
    }

    /// The same where the first parameters are what all rows have in common.
    pub(in crate::store) fn of_pattern_sharing(
        head: &str,
        row: &str,
        (shared, width): (usize, usize),
        tail: &str,
    ) -> Self {
        let [head, row, tail] = [head, row, tail].map(str::to_owned);
        let pattern = Pattern { head, row, tail, shared, width };
        // Looked up by its text each time: what it means to a server only is left out.
        let near = GROUPS.map(|size| (size, near_text(&pattern.text(size))));
        Self { pattern, near: near.into(), far: None }
    }

    /// A statement of one row of numbers, which the embedded engine runs for each;
    /// a server is given all rows at once, by `set`.
    pub(in crate::store) fn one_by_one(sql: &str, width: usize, set: Set) -> Self {
        let pattern = Pattern {
            head: String::new(),
            row: sql.to_owned(),
            tail: String::new(),
            shared: 0,
            width,
        };
        Self { near: vec![(1, near_text(sql))], far: Some(Far::Set(set)), pattern }
    }

    /// The same of a statement that inserts: a server is given the values of all
    /// rows, each of these kinds, as columns, so that it need not read thousands
    /// of parameters. What the rows have in common are numbers.
    pub(in crate::store) fn in_columns(self, kinds: &[Kind]) -> Self {
        debug_assert_eq!(self.pattern.width, kinds.len());
        let sql = self.pattern.in_columns(kinds);
        let columns = Columns { kinds: kinds.to_vec(), sql, text: OnceLock::new() };
        Self { far: Some(Far::Columns(columns)), ..self }
    }

    /// Runs it over all rows; on a server an error comes with the next statement.
    pub(in crate::store) fn execute<T>(
        &self,
        conn: &Connection,
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        self.execute_sharing(conn, &[], rows, bind)
    }

    /// The same, with the values that all rows have in common.
    pub(in crate::store) fn execute_sharing<T>(
        &self,
        conn: &Connection,
        shared: &[&dyn ToSql],
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        debug_assert_eq!(shared.len(), self.pattern.shared);
        match conn {
            Connection::Embedded(conn) => self.near(conn, shared, rows, bind, |statement| {
                Ok(statement.raw_execute().map(|_| ())?)
            }),
            Connection::Server(session) => match &self.far {
                Some(Far::Set(set)) => set.send(session, rows, numbers(bind)),
                Some(Far::Columns(columns)) => columns.send(session, shared, rows, bind),
                // A bug of ours: it was not said what a server is told.
                None => Err(rusqlite::Error::InvalidQuery.into()),
            },
        }
    }

    /// Reads what it answers for all rows.
    pub(in crate::store) fn query<T>(
        &self,
        conn: &Connection,
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> Result<()>,
        mut read: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        match conn {
            Connection::Embedded(conn) => self.near(conn, &[], rows, bind, |statement| {
                let mut answers = statement.raw_query();
                while let Some(row) = answers.next()? {
                    read(&Row::Embedded(row))?;
                }
                Ok(())
            }),
            Connection::Server(session) => match &self.far {
                Some(Far::Set(set)) => set.query(session, rows, numbers(bind), read),
                Some(Far::Columns(_)) | None => Err(rusqlite::Error::InvalidQuery.into()),
            },
        }
    }

    fn near<T>(
        &self,
        conn: &rusqlite::Connection,
        shared: &[&dyn ToSql],
        mut rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> Result<()>,
        mut run: impl FnMut(&mut CachedStatement<'_>) -> Result<()>,
    ) -> Result<()> {
        for (size, text) in &self.near {
            if rows.len() < *size {
                continue;
            }
            let mut statement = conn.prepare_cached(text)?;
            for (place, value) in (1..).zip(shared) {
                statement.raw_bind_parameter(place, value)?;
            }
            while let Some((group, others)) = rows.split_at_checked(*size) {
                rows = others;
                let mut values = Values::Near { statement: &mut statement, next: shared.len() };
                for row in group {
                    bind(row, &mut values)?;
                }
                run(&mut statement)?;
            }
        }
        Ok(())
    }
}

/// What is bound, as numbers, which is what sets are made of.
fn numbers<T>(bind: impl Fn(&T, &mut Values<'_, '_>) -> Result<()>) -> impl Fn(&T, &mut Vec<i64>) {
    move |row, numbers| {
        let mut given = Vec::with_capacity(1);
        // Numbers are always taken.
        if bind(row, &mut Values::Far(&mut given)).is_ok() {
            numbers.extend(given.iter().map(|value| match value {
                Value::Integer(number) => *number,
                _ => 0,
            }));
        }
    }
}

impl Columns {
    fn send<T>(
        &self,
        session: &Session,
        shared: &[&dyn ToSql],
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let text = self.text.get_or_init(|| Text::new(&self.sql));
        let mut given = Vec::with_capacity(self.kinds.len());
        for part in rows.chunks(ROWS) {
            let mut columns: Vec<Column> = Vec::with_capacity(shared.len() + self.kinds.len());
            for value in shared {
                columns.push(Column::one(&owned(value)?));
            }
            columns.extend(self.kinds.iter().map(|kind| Column::new(*kind, part.len())));
            for row in part {
                given.clear();
                bind(row, &mut Values::Far(&mut given))?;
                let own = columns.iter_mut().skip(shared.len());
                own.zip(given.drain(..)).for_each(|(column, value)| column.push(value));
            }
            session.send_columns(text, columns)?;
        }
        Ok(())
    }
}

impl Pattern {
    /// The text for rows that come as columns of these kinds.
    fn in_columns(&self, kinds: &[Kind]) -> String {
        let head = self.head.trim_end().trim_end_matches("VALUES");
        let row = self.row.trim().trim_start_matches('(').trim_end_matches(')');
        let mut values = String::new();
        let mut rest = row;
        while let Some((plain, from)) = rest.split_once('?') {
            let digits = from.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = from[..digits].parse().unwrap_or(0);
            // Writing to a string does not fail.
            let _ = if number > self.shared {
                write!(values, "{plain}given.v{number}")
            } else {
                write!(values, "{plain}CAST(?{number} AS BIGINT)")
            };
            rest = &from[digits..];
        }
        values.push_str(rest);
        let numbers = || self.shared + 1..;
        let arrays: Vec<String> =
            numbers().zip(kinds).map(|(n, kind)| format!("?{n}::{}[]", kind.name())).collect();
        let names: Vec<String> = numbers().zip(kinds).map(|(n, _)| format!("v{n}")).collect();
        let (arrays, names) = (arrays.join(", "), names.join(", "));
        format!("{head} SELECT {values} FROM unnest({arrays}) AS given ({names}) {}", self.tail)
    }

    /// The text for so many rows.
    fn text(&self, rows: usize) -> String {
        let rows: Vec<String> = (0..rows).map(|row| self.row(row * self.width)).collect();
        format!("{} {} {}", self.head, rows.join(", "), self.tail)
    }

    /// One row, whose parameters come `before` further on.
    fn row(&self, before: usize) -> String {
        let mut text = String::new();
        let mut rest = self.row.as_str();
        while let Some((plain, from)) = rest.split_once('?') {
            let digits = from.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = from[..digits].parse().unwrap_or(0);
            let moved = if number > self.shared { number + before } else { number };
            // Writing to a string does not fail.
            let _ = write!(text, "{plain}?{moved}");
            rest = &from[digits..];
        }
        text + rest
    }
}

/// The values of one row after the other.
pub(in crate::store) enum Values<'s, 'c> {
    Near { statement: &'s mut CachedStatement<'c>, next: usize },
    Far(&'s mut Vec<Value>),
}

impl Values<'_, '_> {
    pub(in crate::store) fn bind(&mut self, value: impl ToSql) -> Result<()> {
        match self {
            Self::Near { statement, next } => {
                *next += 1;
                Ok(statement.raw_bind_parameter(*next, value)?)
            }
            Self::Far(values) => {
                values.push(owned(value)?);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_of_rows_as_columns() {
        let row = "(/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2, 0, ?3)";
        let insert = Many::of_pattern_sharing("INSERT INTO t (a, b, c, d) VALUES", row, (1, 2), "");
        let insert = insert.in_columns(&[Kind::Number, Kind::Text]);
        let Some(Far::Columns(columns)) = insert.far else { panic!("no columns") };
        let text = Text::new(&columns.sql);
        assert_eq!(
            text.sql(&[]),
            "INSERT INTO t (a, b, c, d)  SELECT  CAST(given.v2 AS BIGINT) & 255,  \
             CAST($1 AS BIGINT), given.v2, 0, given.v3 \
             FROM unnest($2::BIGINT[], $3::TEXT[]) AS given (v2, v3) "
        );
    }

    #[test]
    fn any_number_of_rows_is_written_and_read_once() {
        let conn = Connection::Embedded(rusqlite::Connection::open_in_memory().unwrap());
        conn.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT").unwrap();
        let insert = Many::of_pattern("INSERT INTO t (a, b) VALUES", "(?1, ?2)", 2, "");
        // One value of a row stands in the text of the other engine only.
        let alike = "(/*pg: ?2, */ ?1, ?3)";
        let alike = Many::of_pattern_sharing("INSERT INTO t (b, a) VALUES", alike, (1, 2), "");
        let select = Many::of_ids("SELECT a FROM t WHERE", "a");
        for count in [0, 1, 4, 5, 6, 24, 25, 26, 31, 55, 100, 157] {
            conn.execute("DELETE FROM t", ()).unwrap();
            let rows: Vec<i64> = (0..count).collect();
            let changed = insert.execute(&conn, &rows, |row, values| {
                values.bind(row)?;
                values.bind(format!("row {row}"))
            });
            changed.unwrap();
            let all = conn.query_row("SELECT count(*) FROM t", (), |row| row.get::<i64>(0));
            assert_eq!(all.unwrap(), count);
            conn.execute("DELETE FROM t", ()).unwrap();
            let bind = |row: &i64, values: &mut Values<'_, '_>| {
                values.bind("passed over")?;
                values.bind(row)
            };
            let changed = alike.execute_sharing(&conn, &[&"all"], &rows, bind);
            changed.unwrap();
            let others = "SELECT count(*) FROM t WHERE b <> 'all'";
            let others = conn.query_row(others, (), |row| row.get::<i64>(0));
            assert_eq!(others.unwrap(), 0);
            let mut found: Vec<i64> = Vec::new();
            let bind = |row: &i64, values: &mut Values<'_, '_>| values.bind(row);
            let read = |row: &Row<'_>| row.get(0).map(|a| found.push(a));
            select.query(&conn, &rows, bind, read).unwrap();
            found.sort_unstable();
            assert_eq!(found, rows);
        }
    }
}
