//! One statement over many rows: what a statement costs beside its rows is most
//! of what leasing and settling cost.
//!
//! Rows go in groups of a few sizes, so that few statements are kept prepared.
//! Statements that insert say `OR FAIL` to SQLite: what a job did is taken back
//! as a whole, and it need not keep copies of pages for one statement.

use rusqlite::types::ToSql;
use rusqlite::{CachedStatement, Connection, Row};

/// Rows of one statement.
const GROUPS: [usize; 3] = [25, 5, 1];

/// A statement for any number of rows.
pub(super) struct Many {
    texts: [String; GROUPS.len()],
    /// Parameters that all rows have in common, the first ones.
    shared: usize,
}

impl Many {
    /// Rows after one pattern, between `head` and `tail`. It names the parameters
    /// that all rows have in common, `shared` of them, ?1 and so on, and those of
    /// the row, `width` of them, the numbers after. One that only PostgreSQL
    /// needs is not the last: SQLite then passes over its value.
    pub(super) fn of_pattern(
        head: &str,
        row: &str,
        (shared, width): (usize, usize),
        tail: &str,
    ) -> Self {
        let texts = GROUPS.map(|size| {
            let rows: Vec<_> =
                (0..size).map(|place| numbered(row, shared, place * width)).collect();
            format!("{head} {} {tail}", rows.join(", "))
        });
        Self { texts, shared }
    }

    /// A statement that ends in a condition: `column`, a host, source or URL, is
    /// one of the rows, of one value each.
    pub(super) fn of_ids(head: &str, column: &str) -> Self {
        let part = column.split_once('.').map_or(String::new(), |(table, _)| format!("{table}."));
        let head = format!("{head} /*lite*/ {column} /*end*/ /*pg: ({part}part, {column}) */ IN (");
        let row = "/*lite*/ ?1 /*end*/ /*pg: (CAST(?1 AS BIGINT) & 255, ?1) */";
        Self::of_pattern(&head, row, (0, 1), ")")
    }

    /// Runs it over all rows; says how many were changed.
    pub(super) fn execute<T>(
        &self,
        conn: &Connection,
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<usize> {
        self.execute_sharing(conn, &[], rows, bind)
    }

    /// The same, with the values that all rows have in common.
    pub(super) fn execute_sharing<T>(
        &self,
        conn: &Connection,
        shared: &[&dyn ToSql],
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<usize> {
        debug_assert_eq!(shared.len(), self.shared);
        let mut changed = 0;
        self.each_group(conn, shared, rows, bind, |statement| {
            changed += statement.raw_execute()?;
            Ok(())
        })?;
        Ok(changed)
    }

    /// Reads what it answers for all rows.
    pub(super) fn query<T>(
        &self,
        conn: &Connection,
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> rusqlite::Result<()>,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        self.each_group(conn, &[], rows, bind, |statement| {
            let mut answers = statement.raw_query();
            while let Some(row) = answers.next()? {
                read(row)?;
            }
            Ok(())
        })
    }

    fn each_group<T>(
        &self,
        conn: &Connection,
        shared: &[&dyn ToSql],
        mut rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>) -> rusqlite::Result<()>,
        mut run: impl FnMut(&mut CachedStatement<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        for (size, text) in GROUPS.iter().zip(&self.texts) {
            if rows.len() < *size {
                continue;
            }
            let mut statement = conn.prepare_cached(text)?;
            for (place, value) in (1..).zip(shared) {
                statement.raw_bind_parameter(place, value)?;
            }
            while let Some((group, others)) = rows.split_at_checked(*size) {
                rows = others;
                let mut values = Values { statement: &mut statement, next: shared.len() };
                for row in group {
                    bind(row, &mut values)?;
                }
                run(&mut statement)?;
            }
        }
        Ok(())
    }
}

/// The values of one row after the other.
pub(super) struct Values<'s, 'c> {
    statement: &'s mut CachedStatement<'c>,
    next: usize,
}

impl Values<'_, '_> {
    pub(super) fn bind(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.next += 1;
        self.statement.raw_bind_parameter(self.next, value)
    }
}

/// A row's pattern with its own parameters, those after `shared`, moved on by `by`.
fn numbered(pattern: &str, shared: usize, by: usize) -> String {
    let mut pieces = pattern.split('?');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        let (number, rest) = piece.split_at(end);
        let number: usize = number.parse().unwrap_or_default();
        let number = if number > shared { number + by } else { number };
        text.extend(["?", &number.to_string(), rest]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_rows_is_written_and_read_once() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT").unwrap();
        let insert = Many::of_pattern("INSERT INTO t (a, b) VALUES", "(?1, ?2)", (0, 2), "");
        // One value of a row stands in the text of the other engine only.
        let alike = "(/*pg: ?2, */ ?1, ?3)";
        let alike = Many::of_pattern("INSERT INTO t (b, a) VALUES", alike, (1, 2), "");
        let select = Many::of_ids("SELECT a FROM t WHERE", "a");
        for count in [0, 1, 4, 5, 6, 24, 25, 26, 31, 55, 100, 157] {
            conn.execute("DELETE FROM t", []).unwrap();
            let rows: Vec<i64> = (0..count).collect();
            let changed = insert.execute(&conn, &rows, |row, values| {
                values.bind(row)?;
                values.bind(format!("row {row}"))
            });
            assert_eq!(changed, Ok(rows.len()));
            conn.execute("DELETE FROM t", []).unwrap();
            let bind = |row: &i64, values: &mut Values<'_, '_>| {
                values.bind("passed over")?;
                values.bind(row)
            };
            let changed = alike.execute_sharing(&conn, &[&"all"], &rows, bind);
            assert_eq!(changed, Ok(rows.len()));
            let others =
                conn.query_row("SELECT count(*) FROM t WHERE b <> 'all'", [], |row| row.get(0));
            assert_eq!(others, Ok(0));
            let mut found: Vec<i64> = Vec::new();
            let bind = |row: &i64, values: &mut Values<'_, '_>| values.bind(row);
            let read = |row: &Row<'_>| row.get(0).map(|a| found.push(a));
            select.query(&conn, &rows, bind, read).unwrap();
            found.sort_unstable();
            assert_eq!(found, rows);
        }
    }
}
