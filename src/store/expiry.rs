//! When leases may expire, so that those that have need not be looked for at
//! every moment, nor be indexed by the times they end: that index was written to
//! twice for every lease, and read from only where fetchers vanish.
//!
//! Keeps: no lease of ours expires before the time that is remembered. It is
//! lowered with every lease that is made, or made to end sooner, and read anew only
//! when it has come and nothing had expired.

use super::frontier::WORKER;
use super::pending::NewLease;
use super::sql::params;
use super::state::State;
use super::{StoreError, engine};
use crate::model::UrlId;
use crate::queue::Token;

/// Leases that are taken back in one job at most, of each kind.
pub(super) const MOST: u32 = 1_000;

/// Whose leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Those of clients of the frontier, who see theirs come back at once.
    Frontier,
    All,
}

impl Of {
    fn worker(self) -> Option<&'static str> {
        (self == Self::Frontier).then_some(WORKER)
    }
}

/// No lease expires before, in Unix milliseconds of steady time.
#[derive(Debug)]
pub(super) struct Expiry {
    frontier: i64,
    all: i64,
}

impl Default for Expiry {
    /// Nothing is known: one may have expired.
    fn default() -> Self {
        Self { frontier: i64::MIN, all: i64::MIN }
    }
}

impl Expiry {
    /// There is another lease.
    pub(super) fn note(&mut self, lease: &NewLease) {
        self.all = self.all.min(lease.expires_at);
        if lease.worker.as_deref() == Some(WORKER) {
            self.frontier = self.frontier.min(lease.expires_at);
        }
    }

    /// There is a lease, whosever it is, that expires then and did not before.
    pub(super) fn lower(&mut self, expires_at: i64) {
        self.all = self.all.min(expires_at);
        self.frontier = self.frontier.min(expires_at);
    }

    fn first(&mut self, of: Of) -> &mut i64 {
        match of {
            Of::Frontier => &mut self.frontier,
            Of::All => &mut self.all,
        }
    }
}

impl State {
    /// Leases that have expired, the first first. Looks at all leases of a file,
    /// 0.1 us each, if the first may have expired.
    pub(super) fn expired(&mut self, of: Of) -> Result<Vec<Token>, StoreError> {
        let now = self.steady_ms();
        if *self.expiry.first(of) > now {
            return Ok(Vec::new());
        }
        let tokens: Vec<Token> = self
            .conn
            .prepare_cached(
                "SELECT url_id, token FROM leases
                 WHERE expires_at <= ?1 AND (CAST(?2 AS TEXT) IS NULL OR worker = ?2) /*ours: part */
                 ORDER BY expires_at LIMIT ?3",
            )
            .and_then(|mut query| {
                query
                    .query_map(params![now, of.worker(), MOST], |row| {
                        Ok(Token { url: UrlId(row.get(0)?), secret: row.get(1)? })
                    })
                    .and_then(Iterator::collect)
            })
            .map_err(engine)?;
        if tokens.is_empty() {
            *self.expiry.first(of) = self.read_first_expiry(of)?;
        }
        Ok(tokens)
    }

    fn read_first_expiry(&self, of: Of) -> Result<i64, StoreError> {
        let first: Option<i64> = self
            .conn
            .prepare_cached(
                "SELECT min(expires_at) FROM leases
                 WHERE (CAST(?1 AS TEXT) IS NULL OR worker = ?1) /*ours: part */",
            )
            .and_then(|mut query| query.query_row([of.worker()], |row| row.get(0)))
            .map_err(engine)?;
        Ok(first.unwrap_or(i64::MAX))
    }
}
