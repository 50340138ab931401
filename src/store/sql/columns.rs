//! Columns of values on their way to a server: the rows of one statement, which
//! takes them apart (`unnest`). As parameters of their own, thousands of values
//! cost the server several times as much to read as the rows to write.

use std::error::Error as StdError;

use rusqlite::types::Value;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::values::spelled;

/// What the values of a column are, each of which may be nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Kind {
    Number,
    Text,
    Bytes,
}

impl Kind {
    /// As a server calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Number => "BIGINT",
            Self::Text => "TEXT",
            Self::Bytes => "BYTEA",
        }
    }
}

/// A parameter: a number that all rows have in common, or a value of each row.
#[derive(Debug)]
pub(super) enum Column {
    Shared(Option<i64>),
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Column {
    pub(super) fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Number => Self::Numbers(Vec::with_capacity(rows)),
            Kind::Text => Self::Texts(Vec::with_capacity(rows)),
            Kind::Bytes => Self::Bytes(Vec::with_capacity(rows)),
        }
    }

    pub(super) fn one(value: &Value) -> Self {
        Self::Shared(number(value))
    }

    /// Adds the value of a row; one of another kind is nothing.
    pub(super) fn push(&mut self, value: Value) {
        match self {
            Self::Shared(_) => {}
            Self::Numbers(column) => column.push(number(&value)),
            Self::Texts(column) => column.push(match value {
                Value::Text(text) => Some(spelled(text)),
                _ => None,
            }),
            Self::Bytes(column) => column.push(match value {
                Value::Blob(bytes) => Some(bytes),
                _ => None,
            }),
        }
    }
}

impl ToSql for Column {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Shared(number) => number.to_sql(ty, out),
            Self::Numbers(column) => column.to_sql(ty, out),
            Self::Texts(column) => column.to_sql(ty, out),
            Self::Bytes(column) => column.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}
