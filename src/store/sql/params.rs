//! What a statement is given.

use rusqlite::types::{ToSql, ToSqlOutput, Value};
use rusqlite::{ParamsFromIter, params_from_iter};

/// Parameters of a statement, in order.
pub(in crate::store) trait Params {
    /// As the embedded engine takes them.
    type Embedded: rusqlite::Params;

    /// The same for the embedded engine.
    fn embedded(self) -> Self::Embedded;

    /// The same for a server.
    fn values(&self) -> rusqlite::Result<Vec<Value>>;
}

impl Params for () {
    type Embedded = ();

    fn embedded(self) {}

    fn values(&self) -> rusqlite::Result<Vec<Value>> {
        Ok(Vec::new())
    }
}

impl<'p> Params for &'p [&'p dyn ToSql] {
    type Embedded = Self;

    fn embedded(self) -> Self {
        self
    }

    fn values(&self) -> rusqlite::Result<Vec<Value>> {
        self.iter().map(owned).collect()
    }
}

impl<T: ToSql, const N: usize> Params for [T; N] {
    type Embedded = ParamsFromIter<Self>;

    fn embedded(self) -> Self::Embedded {
        params_from_iter(self)
    }

    fn values(&self) -> rusqlite::Result<Vec<Value>> {
        self.iter().map(owned).collect()
    }
}

/// A value as it goes to a server.
pub(super) fn owned(value: impl ToSql) -> rusqlite::Result<Value> {
    let refused = |why: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::ToSqlConversionFailure(why)
    };
    match value.to_sql()? {
        ToSqlOutput::Owned(value) => Ok(value),
        ToSqlOutput::Borrowed(value) => value.try_into().map_err(|error| refused(Box::new(error))),
        _ => Err(refused("a value that only the embedded engine knows".into())),
    }
}
