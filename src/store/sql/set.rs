//! A statement of a server over a set of rows of numbers, given as columns: it
//! is one statement for any number of rows, and each is one step in an index. A
//! list of so many rows (`IN ((1, 2), (3, 4))`) is planned, and walked, row by
//! row, at ten times the cost.

use std::sync::OnceLock;

use super::server::Session;
use super::text::Text;
use super::{Result, Row, values};

/// Rows of one statement at most.
pub(super) const ROWS: usize = 1_000;

/// A statement whose parameters are columns.
pub(in crate::store) struct Set {
    sql: String,
    text: OnceLock<Text>,
    width: usize,
}

impl Set {
    /// `sql` takes `width` columns as ?1 and so on: `unnest(?1::BIGINT[])`.
    pub(in crate::store) fn new(sql: &str, width: usize) -> Self {
        Self { sql: sql.to_owned(), text: OnceLock::new(), width }
    }

    /// Runs it over all rows; an error comes with the next statement.
    pub(in crate::store) fn send<T>(
        &self,
        session: &Session,
        rows: &[T],
        values: impl Fn(&T, &mut Vec<i64>),
    ) -> Result<()> {
        for part in rows.chunks(ROWS) {
            session.send_columns(self.text(), self.columns(part, &values))?;
        }
        Ok(())
    }

    /// Reads what it answers for all rows.
    pub(in crate::store) fn query<T>(
        &self,
        session: &Session,
        rows: &[T],
        values: impl Fn(&T, &mut Vec<i64>),
        mut read: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut current = Vec::new();
        for part in rows.chunks(ROWS) {
            for row in session.query_columns(self.text(), &self.columns(part, &values))? {
                values::read_row(&row, &mut current)?;
                read(&Row::Server(&current))?;
            }
        }
        Ok(())
    }

    fn text(&self) -> &Text {
        self.text.get_or_init(|| Text::new(&self.sql))
    }

    fn columns<T>(&self, rows: &[T], values: &impl Fn(&T, &mut Vec<i64>)) -> Vec<Vec<i64>> {
        let mut columns = vec![Vec::with_capacity(rows.len()); self.width];
        let mut row_values = Vec::with_capacity(self.width);
        for row in rows {
            row_values.clear();
            values(row, &mut row_values);
            for (column, value) in columns.iter_mut().zip(&row_values) {
                column.push(*value);
            }
        }
        columns
    }
}
