//! What fetchers ask of the store: lease, settle, extend, release.

use std::time::Duration;

use super::sql::Connection;
use jiff::Timestamp;
use tokio::sync::watch;

use super::order::Log;
use super::state::State;
use super::stream::{self, ChangeCursor, ChangeFilter, ChangePage};
use super::writer::Lane;
use super::{Store, StoreError, engine, extensions, timestamp};
use crate::model::UrlId;
use crate::model::extension::Extensions;
use crate::queue::{LeaseBatch, LeaseRequest, Settlement, Token, TokenResult};

impl Store {
    /// Leases what is due now, without waiting.
    pub async fn lease(&self, request: LeaseRequest) -> Result<LeaseBatch, StoreError> {
        self.write(Lane::Hot, move |state| state.lease(&request)).await
    }

    /// What sources say of leased URLs, in order; `None` for those that do not
    /// fit into one answer any more.
    pub async fn extensions(
        &self,
        urls: Vec<UrlId>,
    ) -> Result<Vec<Option<Extensions>>, StoreError> {
        self.read(move |conn| extensions::of_urls(conn, &urls)).await
    }

    /// The leases that a worker holds, each with its end in steady time.
    pub async fn leases_of(&self, worker: &str) -> Result<Vec<(Token, Timestamp)>, StoreError> {
        let worker = worker.to_owned();
        self.read(move |conn| of_worker(conn, &worker)).await
    }

    /// Settles leases; one result per settlement, in order.
    pub async fn settle(&self, results: Vec<Settlement>) -> Result<Vec<TokenResult>, StoreError> {
        self.write(Lane::Hot, move |state| state.settle(results)).await
    }

    /// Moves the end of leases to `ttl` from now.
    pub async fn extend(
        &self,
        tokens: Vec<Token>,
        ttl: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        self.write(Lane::Hot, move |state| state.extend(&tokens, ttl)).await
    }

    /// Gives leases back unfetched; due again after `after`, the attempt not counted.
    pub async fn release(
        &self,
        tokens: Vec<Token>,
        after: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        self.write(Lane::Hot, move |state| state.release(&tokens, after)).await
    }

    /// Resolves when something of `crawl` may be leased.
    pub async fn wait_for_due(&self, crawl: &str) {
        self.inner.wake.ready(crawl, &self.inner.clock).await;
    }

    /// Changes from a cursor on (`None`: from the oldest that is kept), at most
    /// `limit`; [`StoreError::Gone`] where some of them are not kept any more.
    pub async fn changes_after(
        &self,
        cursor: Option<ChangeCursor>,
        limit: usize,
        filter: ChangeFilter,
    ) -> Result<ChangePage, StoreError> {
        let page = move |conn: &Connection| stream::after(conn, cursor, limit, &filter);
        self.read_in_order(Log::Changes, page).await
    }

    /// The cursor behind all changes that there are.
    pub async fn end_of_changes(&self) -> Result<ChangeCursor, StoreError> {
        self.read_in_order(Log::Changes, stream::end).await
    }

    /// Moves whenever changes have been committed.
    pub fn changes_moved(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Takes back leases that have expired, a bounded number at a time; says
    /// how many, and how many of them became dead letters.
    pub async fn reap(&self) -> Result<(usize, usize), StoreError> {
        self.write(Lane::Hot, State::reap).await
    }
}

/// The leases of a worker: a look at all that there are, for seldom.
fn of_worker(conn: &Connection, worker: &str) -> Result<Vec<(Token, Timestamp)>, StoreError> {
    conn.prepare_cached("SELECT url_id, token, expires_at FROM leases WHERE worker = ?1")
        .and_then(|mut query| {
            let rows = query.query_map([worker], |row| {
                let token = Token { url: UrlId(row.get(0)?), secret: row.get(1)? };
                Ok((token, timestamp(row.get(2)?)))
            })?;
            rows.collect()
        })
        .map_err(engine)
}
