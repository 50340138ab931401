//! Which rows a URL may have: asked for whatever is new to a source.
//!
//! For the embedded engine it is an index of our own making (`lookup`); a server
//! has one over the keys, which stand in the rows themselves.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use super::lookup::{self, Lookup, Sieves, Sifted};
use super::sql::{Connection, Result, Set};
use crate::model::UrlId;

/// From the partition and keyed hash of a URL to rows.
pub(super) enum Known {
    Embedded(Lookup),
    Server,
}

static BY_KEY: LazyLock<Set> = LazyLock::new(|| {
    let sql = "SELECT key, id FROM urls WHERE (part, key) IN
                   (SELECT part, key FROM unnest(?1::BIGINT[], ?2::BIGINT[]) AS sought (part, key))";
    Set::new(sql, 2)
});

impl Known {
    pub(super) fn open(conn: &Connection) -> Result<Self> {
        Ok(match conn {
            Connection::Embedded(conn) => Self::Embedded(Lookup::open(conn)?),
            Connection::Server(_) => Self::Server,
        })
    }

    /// Takes the state from the database again.
    pub(super) fn reload(&mut self, conn: &Connection) -> Result<()> {
        if let (Self::Embedded(lookup), Some(conn)) = (self, conn.embedded()) {
            lookup.reload(conn)?;
        }
        Ok(())
    }

    /// Appends to `out` the rows that may have this hash, each once.
    pub(super) fn find(
        &self,
        conn: &Connection,
        (part, hash): (i64, u64),
        out: &mut Vec<UrlId>,
    ) -> Result<()> {
        match (self, conn) {
            (Self::Embedded(lookup), Connection::Embedded(conn)) => {
                Ok(lookup.find(conn, hash, out)?)
            }
            _ => find_far(conn, &[(part, hash)], &mut |_, id| out.push(id)),
        }
    }

    /// The same for many hashes with their numbers, which must ascend; for these
    /// numbers runs may have been sifted. Calls `out` with the number of the hash; a
    /// row may come more than once.
    pub(super) fn find_sorted(
        &self,
        conn: &Connection,
        order: &[(u64, usize)],
        sifted: (&Sifted, Range<usize>),
        part_of: impl Fn(usize) -> i64,
        out: &mut impl FnMut(usize, UrlId),
    ) -> Result<()> {
        if let (Self::Embedded(lookup), Connection::Embedded(conn)) = (self, conn) {
            return Ok(lookup.find_sorted(conn, order, sifted, out)?);
        }
        let sought = order.iter().map(|(hash, number)| (part_of(*number), *hash));
        find_far(conn, &sought.collect::<Vec<_>>(), &mut |at, id| {
            if let Some((_, number)) = order.get(at) {
                out(*number, id);
            }
        })
    }

    /// Lets others know of what is committed.
    pub(super) fn publish(&mut self) {
        if let Self::Embedded(lookup) = self {
            lookup.publish();
        }
    }

    /// What others may ask before the writer does; of a server nothing.
    pub(super) fn sieves(&self) -> Arc<Sieves> {
        if let Self::Embedded(lookup) = self { lookup.sieves() } else { Arc::default() }
    }

    /// Adds rows to the index, where it is not one of the rows themselves.
    pub(super) fn insert(&mut self, conn: &Connection, made: &[(u64, UrlId)]) -> Result<()> {
        if let (Self::Embedded(lookup), Some(conn)) = (self, conn.embedded()) {
            lookup.insert(conn, made)?;
        }
        Ok(())
    }

    /// Has the index work to do?
    pub(super) fn has_merge(&self) -> bool {
        matches!(self, Self::Embedded(lookup) if lookup.has_merge())
    }

    /// Does some of it, in a transaction of its own.
    pub(super) fn merge_step(&mut self, conn: &Connection, budget: usize) -> Result<()> {
        if let (Self::Embedded(lookup), Some(conn)) = (self, conn.embedded()) {
            let tx = conn.unchecked_transaction()?;
            lookup.merge_step(&tx, budget)?;
            tx.commit()?;
            lookup.publish();
        }
        Ok(())
    }
}

/// Rows that may have a hash, for who has no index in memory.
pub(super) fn find_on_disk(conn: &Connection, part: i64, hash: u64) -> Result<Vec<UrlId>> {
    if let Connection::Embedded(conn) = conn {
        return Ok(lookup::find_on_disk(conn, hash)?);
    }
    let mut found = Vec::new();
    find_far(conn, &[(part, hash)], &mut |_, id| found.push(id))?;
    Ok(found)
}

fn find_far(
    conn: &Connection,
    sought: &[(i64, u64)],
    out: &mut impl FnMut(usize, UrlId),
) -> Result<()> {
    let Some(session) = conn.server() else { return Ok(()) };
    let values = |(part, hash): &(i64, u64), row: &mut Vec<i64>| {
        row.extend([*part, hash.cast_signed()]);
    };
    BY_KEY.query(session, sought, values, |row| {
        let hash = row.get::<i64>(0)?.cast_unsigned();
        let first = sought.partition_point(|(_, known)| *known < hash);
        let id = UrlId(row.get(1)?);
        for (index, (_, known)) in sought.iter().enumerate().skip(first) {
            if *known != hash {
                break;
            }
            out(index, id);
        }
        Ok(())
    })
}
