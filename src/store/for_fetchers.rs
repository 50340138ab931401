//! What fetchers ask of the store: lease, settle, extend, release.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sql::{Connection, OptionalExtension};
use jiff::Timestamp;
use tokio::sync::watch;

use super::hosts::{partition, partition_of_url};
use super::log_order::Log;
use super::orders::{Order, Reply};
use super::peers::Peers;
use super::state::State;
use super::stream::{self, ChangeCursor, ChangeFilter, ChangePage};
use super::writer::Lane;
use super::{Store, StoreError, engine, extensions, timestamp};
use crate::by_id::IdSet;
use crate::model::UrlId;
use crate::model::extension::Extensions;
use crate::queue::{LeaseBatch, LeaseRequest, Settlement, Token, TokenResult};

/// One lease in so many begins with another daemon.
const ELSEWHERE_FIRST: usize = 4;
/// Who waits for URLs to come due asks other daemons again after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A lease as its worker finds it again; its times are steady ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLease {
    /// Names it.
    pub token: Token,
    /// Its URL is not to be fetched before.
    pub not_before: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Key of `meta`, before the name of a worker: until when what it has leased is published.
pub(super) const PUBLISHED: &str = "published:";

impl Store {
    /// Leases what is due now, without waiting. Where the store is shared, all
    /// calls with one id come to one daemon: of two at once the second hears
    /// what the first was given.
    pub async fn lease(&self, request: LeaseRequest) -> Result<LeaseBatch, StoreError> {
        match &request.request_id {
            Some(id) if self.is_shared() => {
                let part = partition(id);
                self.on_owner(part, Order::LeaseAll(request)).await?.leased()
            }
            _ => self.lease_for(request).await,
        }
    }

    /// Leases of what is ours, and where that is not enough of what is others', in
    /// turn, so that a fetcher that always asks the same one starves nobody's URLs.
    pub(super) async fn lease_for(&self, request: LeaseRequest) -> Result<LeaseBatch, StoreError> {
        let Some(peers) = self.inner.peers.as_ref().filter(|_| self.is_shared()) else {
            return self
                .write_naming(Lane::Gathers, move |state| state.lease(&request, false))
                .await;
        };
        // Others are asked between what is looked for and what is leased.
        let _alone = match &request.request_id {
            Some(id) => Some(self.inner.asked.take(id).await),
            None => None,
        };
        let (max, crawl) = (request.max as usize, request.crawl.clone());
        let mut batch = LeaseBatch::default();
        // What was given before is looked for in any case.
        for asked in self.in_turn(peers, request.request_id.is_some()) {
            if batch.urls.len() >= max {
                return Ok(batch);
            }
            let left = u32::try_from(max - batch.urls.len()).unwrap_or(u32::MAX);
            let share = LeaseRequest { max: left, ..request.clone() };
            let more = match asked {
                None => {
                    let ours = move |state: &mut State| state.lease(&share, false);
                    match self.write_naming(Lane::Gathers, ours).await {
                        Ok(more) => more,
                        // What another has leased for this call is not thrown away.
                        Err(error) if batch.urls.is_empty() => return Err(error),
                        Err(error) => {
                            tracing::warn!(%error, "nothing leased of what is ours");
                            continue;
                        }
                    }
                }
                Some(address) => match peers.ask(&address, &Order::Lease(share)).await {
                    Ok(reply) => reply.leased()?,
                    // It has nothing to give just now.
                    Err(
                        StoreError::Away(_)
                        | StoreError::Unreached(_)
                        | StoreError::Elsewhere
                        | StoreError::NotFound(_),
                    ) => continue,
                    Err(error) if batch.urls.is_empty() => return Err(error),
                    Err(_) => continue,
                },
            };
            if more.is_again {
                return Ok(more);
            }
            batch.is_cut |= more.is_cut;
            batch.met_held |= more.met_held;
            batch.urls.extend(more.urls);
            batch.next_due_at = [batch.next_due_at, more.next_due_at].into_iter().flatten().min();
        }
        if batch.urls.len() < max && !batch.is_cut {
            // All have been asked.
            let of_sites = !request.sites.is_empty();
            let note = move |state: &mut State| state.note_short(&crawl, of_sites);
            let noted = self.write_naming(Lane::Hot, note).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "not noted that a fetcher wants more");
            }
        }
        Ok(batch)
    }

    /// Who is asked for URLs, one after the other: addresses of others, and none for
    /// us. One call in a few begins with another daemon, with each of them in turn,
    /// unless it is to begin with us.
    pub(super) fn in_turn(&self, peers: &Peers, is_ours_first: bool) -> Vec<Option<String>> {
        let mut asked: Vec<_> = peers.others().into_iter().map(Some).collect();
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let count = asked.len().max(1);
        asked.rotate_left(turn / ELSEWHERE_FIRST % count);
        let is_elsewhere_first = turn.is_multiple_of(ELSEWHERE_FIRST) && !is_ours_first;
        asked.insert(asked.len().min(is_elsewhere_first.into()), None);
        asked
    }

    /// Leases of what is ours, as a part of what a client of another daemon gets.
    pub(super) async fn lease_share(
        &self,
        request: LeaseRequest,
    ) -> Result<LeaseBatch, StoreError> {
        self.write_naming(Lane::Gathers, move |state| state.lease(&request, true)).await
    }

    /// What sources say of leased URLs, in order; `None` for those that do not
    /// fit into one answer any more.
    pub async fn extensions(
        &self,
        urls: Vec<UrlId>,
    ) -> Result<Vec<Option<Extensions>>, StoreError> {
        self.read(move |conn| extensions::of_urls(conn, &urls)).await
    }

    /// The leases that a worker holds.
    pub async fn leases_of(&self, worker: &str) -> Result<Vec<OwnLease>, StoreError> {
        let worker = worker.to_owned();
        self.read(move |conn| of_worker(conn, &worker)).await
    }

    /// Notes that of what a worker has leased all is published that may be fetched before
    /// this.
    pub async fn note_published(&self, worker: &str, until: Timestamp) -> Result<(), StoreError> {
        let key = format!("{PUBLISHED}{worker}");
        let until = until.as_millisecond().to_string();
        self.write_naming(Lane::Hot, move |state| state.set_meta(&key, &until)).await
    }

    /// What was noted last of a worker, by whichever process.
    pub async fn published_until(&self, worker: &str) -> Result<Option<Timestamp>, StoreError> {
        let key = format!("{PUBLISHED}{worker}");
        let noted: Option<String> = self
            .read(move |conn| {
                conn.prepare_cached("SELECT value FROM meta WHERE key = ?1")
                    .and_then(|mut query| query.query_row([key], |row| row.get(0)).optional())
                    .map_err(engine)
            })
            .await?;
        Ok(noted.and_then(|ms| ms.parse().ok()).map(timestamp))
    }

    /// Is this daemon the only one on the store? Whoever leased something that was read
    /// before is in the table by now, one that cannot renew its row included.
    pub async fn is_alone(&self) -> Result<bool, StoreError> {
        if self.inner.peers.is_none() {
            return Ok(true);
        }
        self.read(|conn| {
            let count = conn.query_row("SELECT count(*) FROM nodes", (), |row| row.get::<i64>(0));
            Ok(count.map_err(engine)? <= 1)
        })
        .await
    }

    /// Settles leases; one result per settlement, in order.
    pub async fn settle(&self, results: Vec<Settlement>) -> Result<Vec<TokenResult>, StoreError> {
        let mut results = results;
        // They go by the times that they were told.
        for result in &mut results {
            for told in [&mut result.not_before, &mut result.fetched_at].into_iter().flatten() {
                *told = self.inner.clock.told_at(*told);
            }
        }
        let count = results.len();
        let part = |result: &Settlement| partition_of_url(result.token.url);
        merged(count, self.spread(results, part, Order::Settle).await?)
    }

    pub(super) async fn settle_here(
        &self,
        results: Vec<Settlement>,
    ) -> Result<Vec<TokenResult>, StoreError> {
        self.write_naming(Lane::Gathers, move |state| {
            results.iter().try_for_each(|result| state.must_own(result.token.url.0))?;
            state.settle(results, &IdSet::default())
        })
        .await
    }

    /// Moves the end of leases to `ttl` from now.
    pub async fn extend(
        &self,
        tokens: Vec<Token>,
        ttl: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        let count = tokens.len();
        let order = |tokens| Order::Extend(tokens, ttl);
        merged(count, self.spread(tokens, |token| partition_of_url(token.url), order).await?)
    }

    pub(super) async fn extend_here(
        &self,
        tokens: Vec<Token>,
        ttl: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        self.write_naming(Lane::Hot, move |state| {
            state.note_demand();
            tokens.iter().try_for_each(|token| state.must_own(token.url.0))?;
            state.extend(&tokens, ttl)
        })
        .await
    }

    /// Gives leases back unfetched; due again after `after`, the attempt not counted.
    pub async fn release(
        &self,
        tokens: Vec<Token>,
        after: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        let count = tokens.len();
        let order = |tokens| Order::Release(tokens, after);
        merged(count, self.spread(tokens, |token| partition_of_url(token.url), order).await?)
    }

    pub(super) async fn release_here(
        &self,
        tokens: Vec<Token>,
        after: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        self.write_naming(Lane::Gathers, move |state| {
            tokens.iter().try_for_each(|token| state.must_own(token.url.0))?;
            state.release(&tokens, after)
        })
        .await
    }

    /// Resolves when something of `crawl` may be leased; where the store is
    /// shared, when it is time to ask the others again.
    pub async fn wait_for_due(&self, crawl: &str) {
        let ready = self.inner.wake.ready(crawl, &self.inner.clock);
        if self.is_shared() {
            // Of no account whether it came to that.
            let _ = tokio::time::timeout(ASK_AGAIN, ready).await;
        } else {
            ready.await;
        }
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
        self.write_naming(Lane::Hot, State::reap).await
    }
}

/// What the owners of tokens answered, in the order of the tokens.
fn merged(count: usize, answers: Vec<(Vec<usize>, Reply)>) -> Result<Vec<TokenResult>, StoreError> {
    let mut results = vec![TokenResult::Unknown; count];
    for (places, reply) in answers {
        for (place, result) in places.into_iter().zip(reply.tokens()?) {
            if let Some(slot) = results.get_mut(place) {
                *slot = result;
            }
        }
    }
    Ok(results)
}

/// The leases of a worker: a look at all that there are, for seldom.
fn of_worker(conn: &Connection, worker: &str) -> Result<Vec<OwnLease>, StoreError> {
    conn.prepare_cached(
        "SELECT url_id, token, not_before, expires_at FROM leases WHERE worker = ?1",
    )
    .and_then(|mut query| {
        let rows = query.query_map([worker], |row| {
            Ok(OwnLease {
                token: Token { url: UrlId(row.get(0)?), secret: row.get(1)? },
                not_before: timestamp(row.get(2)?),
                expires_at: timestamp(row.get(3)?),
            })
        })?;
        rows.collect()
    })
    .map_err(engine)
}
