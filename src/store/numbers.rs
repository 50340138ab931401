//! Numbers of new rows of urls, and of sources: none is given out twice, whatever
//! was deleted.
//!
//! In a file they follow one another. On a server they come in blocks, of which
//! each daemon takes its own, and carry the partition of their host in the last
//! eight bits; what is left of a block at a stop is left out.

use std::ops::Range;

use super::hosts::partition_of;
use super::sql::Connection;
use super::state::State;
use super::{StoreError, engine};
use crate::model::{HostId, UrlId};

/// Key of `meta`: the highest number that was given out, where its row is gone.
const LAST: &str = "last_url";
/// The same of sources.
pub(super) const LAST_SOURCE: &str = "last_source";
/// Numbers of a block.
const BLOCK: i64 = 4_096;

/// What numbers come next.
#[derive(Debug)]
pub(super) enum Numbers {
    /// After this one.
    Embedded(i64),
    /// These, then those of another block.
    Server(Range<i64>),
}

/// The block that a number is in.
pub(super) fn block_of(number: i64) -> i64 {
    number / BLOCK
}

impl Numbers {
    pub(super) fn read(conn: &Connection) -> Result<Self, StoreError> {
        if conn.server().is_some() {
            return Ok(Self::Server(0..0));
        }
        let last = "SELECT max((SELECT coalesce(max(id), 0) FROM urls),
                        coalesce((SELECT value FROM meta WHERE key = ?1), 0))";
        conn.query_row(last, [LAST], |row| row.get(0)).map(Self::Embedded).map_err(engine)
    }
}

impl State {
    /// The number of a new URL of a host.
    pub(super) fn next_url(&mut self, host: HostId) -> Result<UrlId, StoreError> {
        match &mut self.numbers {
            Numbers::Embedded(last) => {
                *last += 1;
                Ok(UrlId(*last))
            }
            Numbers::Server(block) => {
                if block.is_empty() {
                    let number: i64 = self
                        .conn
                        .query_row("SELECT nextval('url_blocks')", (), |row| row.get(0))
                        .map_err(engine)?;
                    *block = number * BLOCK..(number + 1) * BLOCK;
                }
                let number = block.next().unwrap_or_default();
                Ok(UrlId(number << 8 | partition_of(host)))
            }
        }
    }

    /// Sees to it that numbers are not given out again whose rows are about to
    /// go: the lookup, and changes, may still name them.
    pub(super) fn keep_row_numbers(&mut self) -> Result<(), StoreError> {
        let Numbers::Embedded(last) = self.numbers else { return Ok(()) };
        self.conn
            .execute(
                "INSERT INTO meta (key, value) VALUES ('last_url', ?1)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [last],
            )
            .map(|_| ())
            .map_err(engine)
    }

    /// The same of sources: URLs that others list too may still name them.
    pub(super) fn keep_source_numbers(&self) -> Result<(), StoreError> {
        if self.conn.server().is_some() {
            return Ok(());
        }
        self.conn
            .execute(
                "INSERT INTO meta (key, value)
                 SELECT ?1, max(coalesce(max(id), 0),
                     coalesce((SELECT value FROM meta WHERE key = ?1), 0)) FROM sources WHERE true
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [LAST_SOURCE],
            )
            .map(|_| ())
            .map_err(engine)
    }
}
