//! The only door to SQL: everything above asks for effects, never for rows.

// The writer that uses it is not merged yet.
#[allow(dead_code)]
mod lookup;
pub mod views;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use crate::model::{SourceId, UrlId};
use crate::queue::{LeaseBatch, LeaseRequest, Settlement, Token, TokenResult};
use views::{
    BlockView, ChangeView, DeadView, Page, PeekView, PollView, QueueView, SiteView, SourceFilter,
    SourceView, StatusView, UrlView,
};

/// Why the store could not do it. The variants are what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store is shutting down, or its writer has stopped.
    #[error("the store is closed")]
    Closed,
    /// Another process holds the database for longer than we wait; try again.
    #[error("the database is busy")]
    Busy,
    /// No space is left; reads still work, and writes will when there is.
    #[error("the disk is full")]
    Full,
    /// What was asked for is not there.
    #[error("{0}")]
    NotFound(String),
    /// What was asked for cannot be; the text says what can.
    #[error("{0}")]
    Refused(String),
    /// The file is damaged, newer than we are, or not ours.
    #[error("{0}")]
    Unusable(String),
    /// The engine failed; nothing was changed.
    #[error("database: {0}")]
    Engine(String),
}

/// The store, cheap to clone. Async methods return when the effect is
/// committed (and synced, with `durability = "full"`).
#[derive(Clone)]
pub struct Store {
    inner: Arc<()>,
}

#[allow(unused_variables, clippy::unused_async, clippy::unimplemented, clippy::todo)]
impl Store {
    /// Leases what is due now, without waiting.
    pub async fn lease(&self, request: LeaseRequest) -> Result<LeaseBatch, StoreError> {
        todo!()
    }
    /// Settles leases; one result per settlement, in order.
    pub async fn settle(&self, results: Vec<Settlement>) -> Result<Vec<TokenResult>, StoreError> {
        todo!()
    }
    /// Moves the end of leases to `ttl` from now.
    pub async fn extend(
        &self,
        tokens: Vec<Token>,
        ttl: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        todo!()
    }
    /// Gives leases back unfetched; due again after `after`, the attempt not counted.
    pub async fn release(
        &self,
        tokens: Vec<Token>,
        after: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        todo!()
    }
    /// Resolves when something may have come due in `crawl` since the last lease call.
    pub async fn wait_for_due(&self, crawl: &str) {
        todo!()
    }

    /// Counts of the queue, per crawl (all crawls where `crawl` is `None`).
    pub async fn queue(&self, crawl: Option<String>) -> Result<Vec<QueueView>, StoreError> {
        todo!()
    }
    /// What would be leased next, in order, without leasing it.
    pub async fn peek(&self, crawl: String, limit: u32) -> Result<Vec<PeekView>, StoreError> {
        todo!()
    }
    /// Dead letters, oldest row first; `after` is the last row of the page before.
    pub async fn dead(
        &self,
        limit: u32,
        after: Option<UrlId>,
    ) -> Result<Page<DeadView>, StoreError> {
        todo!()
    }
    /// Puts dead letters back, all or these; says how many.
    pub async fn replay(&self, crawl: String, urls: Vec<String>) -> Result<u64, StoreError> {
        todo!()
    }
    /// Makes known URLs due now with reason `submitted`; says how many.
    pub async fn requeue(&self, crawl: String, urls: Vec<String>) -> Result<u64, StoreError> {
        todo!()
    }
    /// Keeps a URL (or every URL below a prefix) from being leased until lifted.
    pub async fn block(
        &self,
        crawl: String,
        pattern: String,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        todo!()
    }
    /// Lifts a block; says how many URLs came back.
    pub async fn unblock(
        &self,
        crawl: String,
        pattern: String,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        todo!()
    }
    /// The blocks in force.
    pub async fn blocks(&self) -> Result<Vec<BlockView>, StoreError> {
        todo!()
    }
    /// Stops (or starts again) leasing from a crawl.
    pub async fn pause_crawl(&self, crawl: String, paused: bool) -> Result<(), StoreError> {
        todo!()
    }

    /// Everything known of one URL, and why it is due when it is.
    pub async fn url(&self, crawl: Option<String>, url: Url) -> Result<UrlView, StoreError> {
        todo!()
    }
    /// All sites, by name.
    pub async fn sites(&self) -> Result<Vec<SiteView>, StoreError> {
        todo!()
    }
    /// One site.
    pub async fn site(&self, name: String) -> Result<SiteView, StoreError> {
        todo!()
    }
    /// Stops (or starts again) polling and leasing of a site.
    pub async fn pause_site(&self, name: String, paused: bool) -> Result<(), StoreError> {
        todo!()
    }
    /// Drops all rows of a site that is no longer in the config.
    pub async fn forget_site(&self, name: String) -> Result<u64, StoreError> {
        todo!()
    }
    /// Sources in order of id.
    pub async fn sources(&self, filter: SourceFilter) -> Result<Page<SourceView>, StoreError> {
        todo!()
    }
    /// One source, with its poll history.
    pub async fn source(&self, id: SourceId) -> Result<(SourceView, Vec<PollView>), StoreError> {
        todo!()
    }
    /// Registers a source of a site by hand, or makes a known one due now.
    pub async fn submit_source(&self, site: String, url: Url) -> Result<SourceId, StoreError> {
        todo!()
    }
    /// Retires a source by hand; its URLs are kept unless `drop_urls`.
    pub async fn delete_source(&self, id: SourceId, drop_urls: bool) -> Result<(), StoreError> {
        todo!()
    }
    /// Makes a source due now.
    pub async fn poll_source(&self, id: SourceId) -> Result<(), StoreError> {
        todo!()
    }
    /// Makes all sources of a site due now; says how many.
    pub async fn poll_site(&self, name: String) -> Result<u64, StoreError> {
        todo!()
    }
    /// The polls of a source (or of all) with an id above `after`, oldest first.
    pub async fn polls_after(
        &self,
        source: Option<SourceId>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<PollView>, StoreError> {
        todo!()
    }
    /// The newest polls, newest first.
    pub async fn last_polls(&self, limit: u32) -> Result<Vec<PollView>, StoreError> {
        todo!()
    }
    /// The changes that one poll made, at most `limit`.
    pub async fn changes_of_poll(
        &self,
        poll: i64,
        limit: u32,
    ) -> Result<Vec<ChangeView>, StoreError> {
        todo!()
    }
    /// The whole at a glance.
    pub async fn status(&self) -> Result<StatusView, StoreError> {
        todo!()
    }
    /// Answers if the writer is alive and can commit.
    pub async fn ping(&self) -> Result<(), StoreError> {
        todo!()
    }
    /// The time by the store's clock (wall).
    pub fn now(&self) -> Timestamp {
        todo!()
    }
}
