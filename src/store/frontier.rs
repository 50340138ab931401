//! What clients of the frontier protocol ask of the store: queues by name, URLs
//! that they push, and reports that name a URL where a fetcher of ours names a
//! token.
//!
//! A queue is a crawl and a name. The name is that of a host, whatever schemes
//! and ports it is known under, or a key of a client's own: then the key has a
//! row of `hosts` to itself, and its clock. What is set for queues holds for
//! every lease, and stays over restarts.

mod get;
mod put;
mod queues;
mod reads;
mod remove;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::hosts::{partition_of, partition_of_url};
use super::orders::{Order, Reply};
use super::state::State;
use super::writer::Lane;
use super::{Store, StoreError, checkpoint};
use crate::model::{CrawlId, Outcome, Reason, UrlId};
use crate::queue::Token;
pub(super) use get::Delay;
pub(super) use queues::Memory;
pub use queues::Setting;
pub use reads::{FrontierStats, Listed, ListedPage, QueueNames, Sought};

/// What a client says of a URL: lists of values by name.
pub type Metadata = BTreeMap<String, Vec<String>>;

/// Most characters of a key (as in the protocol) and of the name of a crawl.
pub const MAX_NAME: usize = 255;
/// Most bytes of a URL that is new; one that is known may be as long as sites
/// may list.
pub const MAX_URL: usize = 2_048;
/// Most bytes of a URL's metadata, as JSON.
pub const MAX_METADATA: usize = 64 << 10;
/// Crawls that there may be before pushes make no more.
pub const MAX_CRAWLS: usize = 1_000;
/// URLs taken in by one job at most.
pub const MAX_PUT: usize = 1_000;
/// URLs served by one job at most.
pub const MAX_GET: u32 = 1_000;
/// Marks the leases that were given by this protocol.
pub(super) const WORKER: &str = "urlfrontier";

/// A URL that a client pushes.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Put {
    /// Of our name.
    pub crawl: String,
    /// The queue, where it is not to be that of the URL's host.
    pub key: Option<String>,
    /// As the client wrote it.
    pub url: String,
    /// Replaces what was kept.
    pub metadata: Metadata,
    /// When it became known, where that is not now.
    pub created: Option<Timestamp>,
    /// What is known of it; `None`: it was only found somewhere.
    pub known: Option<Known>,
}

/// A URL that was fetched, or is known from elsewhere.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Known {
    /// Due again then; `None`: never.
    pub again: Option<Timestamp>,
    /// HTTP status of the page.
    pub status: Option<u16>,
    /// What was seen; `None` where hash or date of change tell.
    pub outcome: Option<Outcome>,
    /// Hash of the content, at most 128 characters.
    pub signature: Option<String>,
    /// When the client saw it change last.
    pub changed: Option<Timestamp>,
    /// The page's `Retry-After`: pauses the host for polls and leases.
    pub retry_after: Option<Duration>,
    /// Where redirects ended.
    pub final_url: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}

/// What became of a URL that was pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Taken {
    /// It is kept.
    Ok,
    /// It was known, or cannot be kept: sending it again changes nothing.
    Skipped,
}

/// What a client wants to fetch.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Get {
    /// Of which crawl; `None`: of any.
    pub crawl: Option<String>,
    /// Of this queue only.
    pub key: Option<String>,
    /// Most URLs of a queue, those in process included; 0: no limit.
    pub per_queue: u32,
    /// Most queues; 0: no limit.
    pub max_queues: u32,
    /// How long they are held.
    pub ttl: Duration,
}

/// How far the answer to one call has come, over all of its jobs.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    served: HashSet<(CrawlId, String)>,
}

/// A URL to fetch.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Served {
    /// As it was pushed or listed.
    pub url: String,
    /// Name of its queue.
    pub key: String,
    /// Name of its crawl.
    pub crawl: Arc<str>,
    /// Why it is due.
    pub reason: Reason,
    /// What a client last said of it.
    pub metadata: Metadata,
    /// The lease, for the case that it cannot be handed over.
    pub token: Token,
}

/// A client waits so long for the owners of other hosts of a queue to hear that it was
/// served.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

impl Store {
    /// Takes in what a client pushes; one answer each, in order.
    pub async fn frontier_put(&self, mut items: Vec<Put>) -> Result<Vec<Taken>, StoreError> {
        // They go by the times that they were told.
        let told = |at: &mut Timestamp| *at = self.inner.clock.told_at(*at);
        for item in &mut items {
            item.created.iter_mut().for_each(told);
            if let Some(known) = &mut item.known {
                known.again.iter_mut().chain(&mut known.changed).for_each(told);
            }
        }
        let count = items.len();
        let mut taken = vec![Taken::Skipped; count];
        for (places, reply) in self.spread(items, put::partition_of, Order::FrontierPut).await? {
            for (place, told) in places.into_iter().zip(reply.taken()?) {
                if let Some(slot) = taken.get_mut(place) {
                    *slot = told;
                }
            }
        }
        Ok(taken)
    }

    pub(super) async fn frontier_put_here(
        &self,
        items: Vec<Put>,
    ) -> Result<Vec<Taken>, StoreError> {
        let is_report = items.iter().any(|item| item.known.is_some());
        let lane = if is_report { Lane::Hot } else { Lane::Bulk };
        let put = move |state: &mut State| {
            if is_report {
                state.note_demand();
            }
            state.frontier_put(items)
        };
        self.write_naming(lane, put).await
    }

    /// Leases URLs of the queues whose turn it is and that this call has not
    /// had yet, at most [`MAX_GET`]. None: there are no more for it.
    pub async fn frontier_get(
        &self,
        get: Get,
        progress: Progress,
    ) -> Result<(Vec<Served>, Progress), StoreError> {
        let Some(peers) = self.inner.peers.as_ref().filter(|_| self.is_shared()) else {
            return self.frontier_get_here(get, progress).await;
        };
        let mut so_far = progress;
        for asked in self.in_turn(peers, false) {
            let (get, progress) = (get.clone(), so_far.clone());
            let (served, progress) = match asked {
                None => self.frontier_get_here(get, progress).await?,
                Some(address) => {
                    // One that does not answer has nothing to give just now.
                    let order = Order::FrontierGet(get, progress);
                    let Ok(Reply::Served(served, progress)) = peers.ask(&address, &order).await
                    else {
                        continue;
                    };
                    (served, progress)
                }
            };
            so_far = progress;
            if !served.is_empty() {
                return Ok((served, so_far));
            }
        }
        Ok((Vec::new(), so_far))
    }

    pub(super) async fn frontier_get_here(
        &self,
        get: Get,
        progress: Progress,
    ) -> Result<(Vec<Served>, Progress), StoreError> {
        let job = move |state: &mut State| {
            state.note_demand();
            state.frontier_get(&get, progress)
        };
        let got = self.write_naming(Lane::Hot, job).await?;
        if !got.elsewhere.is_empty() {
            let part = |(host, _): &Delay| partition_of(*host);
            let told = self.spread(got.elsewhere, part, Order::Delay);
            // What is leased is the client's all the same, though an owner is away.
            let why = match tokio::time::timeout(TOLD_WITHIN, told).await {
                Ok(told) => told.err(),
                Err(_) => Some(StoreError::Unreached("a daemon does not answer".to_owned())),
            };
            if let Some(error) = why {
                tracing::warn!(%error, "hosts of queues that were served are not delayed");
            }
        }
        Ok((got.served, got.progress))
    }

    pub(super) async fn delay_here(&self, hosts: Vec<Delay>) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, move |state| {
            hosts.iter().try_for_each(|(host, _)| state.must_own(host.0))?;
            hosts.iter().try_for_each(|(host, until)| state.delay_host(*host, *until))
        })
        .await
    }

    /// Sets something for one queue.
    pub async fn frontier_set(
        &self,
        crawl: String,
        key: String,
        setting: Setting,
    ) -> Result<(), StoreError> {
        self.set(Lane::Hot, move |state| state.frontier_set(&crawl, &key, setting)).await
    }

    /// Sets the delay of queues that have none of their own; `None`: that of
    /// their hosts.
    pub async fn frontier_set_delay(&self, delay: Option<Duration>) -> Result<(), StoreError> {
        self.set(Lane::Hot, move |state| state.frontier_set_delay(delay)).await
    }

    /// Stops serving by this protocol, or goes on.
    pub async fn frontier_set_active(&self, active: bool) -> Result<(), StoreError> {
        self.set(Lane::Hot, move |state| state.frontier_set_active(active)).await
    }

    /// Are URLs served by this protocol?
    pub async fn frontier_active(&self) -> Result<bool, StoreError> {
        self.read(queues::read_active).await
    }

    /// All crawls, by name.
    pub async fn frontier_crawls(&self) -> Result<Vec<String>, StoreError> {
        self.read(reads::crawls).await
    }

    /// Queues by name, `size` of them from `start` on; with `idle`, also those
    /// that are blocked or have nothing left to serve.
    pub async fn frontier_queues(
        &self,
        crawl: String,
        start: u32,
        size: u32,
        idle: bool,
    ) -> Result<QueueNames, StoreError> {
        let now = self.now();
        self.read(move |conn| reads::queues(conn, &crawl, start, size, idle, now)).await
    }

    /// Figures of a queue, or of a crawl; all are 0 for what is not there.
    pub async fn frontier_stats(
        &self,
        crawl: String,
        key: Option<String>,
    ) -> Result<FrontierStats, StoreError> {
        self.read(move |conn| reads::stats(conn, &crawl, key.as_deref())).await
    }

    /// One URL as it is known.
    pub async fn frontier_url(
        &self,
        crawl: String,
        key: Option<String>,
        url: String,
    ) -> Result<Option<Listed>, StoreError> {
        let seed = self.inner.seed;
        let known = self
            .read(move |conn| reads::url_known(conn, seed, &crawl, key.as_deref(), &url))
            .await?;
        Ok(known.map(|listed| self.shown_listed(listed)))
    }

    fn shown_listed(&self, listed: Listed) -> Listed {
        Listed {
            due: listed.due.map(|at| self.shown_at(at)),
            created: self.shown_at(listed.created),
            ..listed
        }
    }

    /// URLs in the order in which they became known, a bounded part of the table
    /// after a row.
    pub async fn frontier_list(
        &self,
        sought: Sought,
        after: i64,
    ) -> Result<ListedPage, StoreError> {
        let mut page = self.read(move |conn| reads::list(conn, &sought, after)).await?;
        page.urls = page.urls.into_iter().map(|listed| self.shown_listed(listed)).collect();
        Ok(page)
    }

    /// Removes the URLs that clients pushed and that no source lists, of a queue
    /// or of a crawl, where `before` is given those that became known before;
    /// says how many.
    pub async fn frontier_remove(
        &self,
        crawl: String,
        key: Option<String>,
        before: Option<Timestamp>,
    ) -> Result<u64, StoreError> {
        let before = before.map(|at| self.inner.clock.told_at(at));
        let sought = Sought { crawl, key, filter: None, ignore_case: false };
        let (mut removed, mut after) = (0, Some(0));
        while let Some(row) = after {
            let (sought, read) = (sought.clone(), row);
            let (rows, next) =
                self.read(move |conn| reads::pushed(conn, &sought, read, before)).await?;
            after = next;
            if !rows.is_empty() {
                let told = self.spread(rows, |url| partition_of_url(*url), Order::RemovePushed);
                for (_, reply) in told.await? {
                    removed += reply.count()?;
                }
            }
        }
        self.inner.figures.outdate();
        Ok(removed)
    }

    pub(super) async fn remove_pushed_here(&self, rows: Vec<UrlId>) -> Result<u64, StoreError> {
        self.write(Lane::Bulk, move |state| {
            rows.iter().try_for_each(|url| state.must_own(url.0))?;
            state.remove_pushed(&rows)
        })
        .await
    }

    /// Forgets what was set for a queue.
    pub async fn frontier_forget_queue(
        &self,
        crawl: String,
        key: String,
    ) -> Result<(), StoreError> {
        self.set(Lane::Bulk, move |state| state.forget_queue(&crawl, &key)).await
    }

    /// Forgets what was set for the queues of a crawl, and the crawl itself where
    /// no site has it and nothing is left in it.
    pub async fn frontier_forget_crawl(&self, crawl: String) -> Result<(), StoreError> {
        let settings = self.set(Lane::Bulk, move |state| state.forget_queues(&crawl)).await?;
        let Some(emptying) = settings else { return Ok(()) };
        let crawl = emptying.crawl;
        // No index names the crawls of URLs: this is looked at beside the writer.
        let mut after = Some(0);
        while let Some(row) = after {
            let (any, next) = self.read(move |conn| reads::has_urls(conn, crawl, row)).await?;
            if any {
                return Ok(());
            }
            after = next;
        }
        self.set(Lane::Bulk, move |state| state.forget_crawl(&emptying)).await
    }

    /// Is so little room left on the disk that nothing new is to be taken in?
    pub fn is_short_of_disk(&self) -> bool {
        let least = self.policy().min_free_disk;
        checkpoint::free_disk(&self.inner.path).is_some_and(|free| free < least)
    }
}

/// Settings of queues as the writer remembers them.
type Rules = HashMap<(CrawlId, String), queues::QueueRules>;
