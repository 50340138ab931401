//! The service: every call of the protocol, each a line or two. `local` is of no
//! account: a daemon is one node.

use std::time::Duration;

use tonic::{Request, Response, Status, Streaming};

use super::proto::log_level_params::Level;
use super::proto::url_frontier_server::UrlFrontier;
use super::proto::{
    AckMessage, Active, BatchAck, BlockQueueParams, Boolean, CountUrlParams, CrawlLimitParams,
    DeleteCrawlMessage, DiscoveredBatch, Empty, GetParams, ListUrlParams, Local, LogLevelParams,
    Long, Pagination, PurgeUrlParams, QueueDelayParams, QueueList, QueueWithinCrawlParams, Stats,
    StringList, UrlInfo, UrlItem, UrlStatusRequest,
};
use super::served::LISTED;
use super::words::{crawl_id, item_of, key_of, our_crawl};
use super::{Answers, Frontier, status_of};
use crate::store::StoreError;
use crate::store::frontier::{Setting, Sought};

/// Names of queues in one answer at most.
const MAX_NAMES: u32 = 10_000;
/// Longest delay that can be set.
const MAX_DELAY: u32 = 86_400;

type Answer<T> = Result<Response<T>, Status>;

fn answer<T>(result: Result<T, StoreError>) -> Answer<T> {
    result.map(Response::new).map_err(|error| status_of(&error))
}

#[tonic::async_trait]
impl UrlFrontier for Frontier {
    type GetURLsStream = Answers<UrlInfo>;
    type PutURLsStream = Answers<AckMessage>;
    type PutDiscoveredStream = Answers<BatchAck>;
    type ListURLsStream = Answers<UrlItem>;

    async fn list_nodes(&self, _: Request<Empty>) -> Answer<StringList> {
        Ok(Response::new(StringList { values: vec![self.bound.to_string()] }))
    }

    async fn list_crawls(&self, _: Request<Local>) -> Answer<StringList> {
        let names = self.store.frontier_crawls().await;
        answer(
            names.map(|names| StringList { values: names.iter().map(|n| crawl_id(n)).collect() }),
        )
    }

    async fn delete_crawl(&self, request: Request<DeleteCrawlMessage>) -> Answer<Long> {
        let crawl = our_crawl(&request.into_inner().value);
        let removed = self.store.frontier_remove(crawl.clone(), None, None).await;
        let value = removed.map_err(|error| status_of(&error))?;
        answer(self.store.frontier_forget_crawl(crawl).await.map(|()| Long { value }))
    }

    async fn list_queues(&self, request: Request<Pagination>) -> Answer<QueueList> {
        let Pagination { start, size, include_inactive, crawl_id: id, .. } = request.into_inner();
        let size = if size == 0 { LISTED } else { size.min(MAX_NAMES) };
        let crawl = our_crawl(&id);
        let queues = self.store.frontier_queues(crawl.clone(), start, size, include_inactive).await;
        answer(queues.map(|queues| QueueList {
            size: u32::try_from(queues.names.len()).unwrap_or(u32::MAX),
            values: queues.names,
            total: queues.total,
            start,
            crawl_id: crawl_id(&crawl),
        }))
    }

    async fn get_ur_ls(&self, request: Request<GetParams>) -> Answer<Answers<UrlInfo>> {
        self.serve(request.into_inner()).map(Response::new)
    }

    async fn put_ur_ls(&self, request: Request<Streaming<UrlItem>>) -> Answer<Answers<AckMessage>> {
        self.take(request.into_inner()).map(Response::new)
    }

    async fn put_discovered(
        &self,
        request: Request<Streaming<DiscoveredBatch>>,
    ) -> Answer<Answers<BatchAck>> {
        self.take_batches(request.into_inner()).map(Response::new)
    }

    async fn get_stats(&self, request: Request<QueueWithinCrawlParams>) -> Answer<Stats> {
        let QueueWithinCrawlParams { key, crawl_id: id, .. } = request.into_inner();
        let crawl = our_crawl(&id);
        let stats = self.store.frontier_stats(crawl.clone(), key_of(key)).await;
        answer(stats.map(|stats| {
            Stats {
                size: stats.active,
                in_process: u32::try_from(stats.in_process).unwrap_or(u32::MAX),
                counts: [("completed", stats.completed), ("active_queues", stats.queues)]
                    .map(|(name, count)| (name.to_owned(), count))
                    .into(),
                number_of_queues: stats.queues,
                crawl_id: crawl_id(&crawl),
            }
        }))
    }

    async fn delete_queue(&self, request: Request<QueueWithinCrawlParams>) -> Answer<Long> {
        let QueueWithinCrawlParams { key, crawl_id: id, .. } = request.into_inner();
        let crawl = our_crawl(&id);
        let Some(key) = key_of(key) else {
            return Err(Status::invalid_argument("name a queue; DeleteCrawl removes all of them"));
        };
        let removed = self.store.frontier_remove(crawl.clone(), Some(key.clone()), None).await;
        let value = removed.map_err(|error| status_of(&error))?;
        answer(self.store.frontier_forget_queue(crawl, key).await.map(|()| Long { value }))
    }

    async fn block_queue_until(&self, request: Request<BlockQueueParams>) -> Answer<Empty> {
        let BlockQueueParams { key, time, crawl_id: id, .. } = request.into_inner();
        let until = Setting::BlockedUntil(i64::try_from(time).unwrap_or(i64::MAX));
        answer(self.store.frontier_set(our_crawl(&id), key, until).await.map(|()| Empty {}))
    }

    async fn set_active(&self, request: Request<Active>) -> Answer<Empty> {
        let active = request.into_inner().state;
        answer(self.store.frontier_set_active(active).await.map(|()| Empty {}))
    }

    async fn get_active(&self, _: Request<Local>) -> Answer<Boolean> {
        answer(self.store.frontier_active().await.map(|state| Boolean { state }))
    }

    async fn set_delay(&self, request: Request<QueueDelayParams>) -> Answer<Empty> {
        let QueueDelayParams { key, delay_requestable, crawl_id: id, .. } = request.into_inner();
        let delay = Duration::from_secs(delay_requestable.min(MAX_DELAY).into());
        let set = match key_of(key) {
            Some(key) => self.store.frontier_set(our_crawl(&id), key, Setting::Delay(delay)).await,
            None => self.store.frontier_set_delay(Some(delay)).await,
        };
        answer(set.map(|()| Empty {}))
    }

    async fn set_log_level(&self, request: Request<LogLevelParams>) -> Answer<Empty> {
        let level = match request.into_inner().level() {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        (self.levels)(level).map_err(Status::failed_precondition)?;
        tracing::info!(to = level, "log level set until the next reload");
        Ok(Response::new(Empty {}))
    }

    async fn set_crawl_limit(&self, request: Request<CrawlLimitParams>) -> Answer<Empty> {
        let CrawlLimitParams { key, limit, crawl_id: id, .. } = request.into_inner();
        let limit = Setting::MaxCompleted(limit);
        answer(self.store.frontier_set(our_crawl(&id), key, limit).await.map(|()| Empty {}))
    }

    async fn get_url_status(&self, request: Request<UrlStatusRequest>) -> Answer<UrlItem> {
        let UrlStatusRequest { url, key, crawl_id: id } = request.into_inner();
        let crawl = our_crawl(&id);
        let known = self.store.frontier_url(crawl.clone(), key_of(key), url).await;
        match known.map_err(|error| status_of(&error))? {
            Some(listed) => Ok(Response::new(item_of(listed, &crawl))),
            None => Err(Status::not_found("the URL is not known in that queue")),
        }
    }

    async fn list_ur_ls(&self, request: Request<ListUrlParams>) -> Answer<Answers<UrlItem>> {
        self.list(request.into_inner()).map(Response::new)
    }

    async fn count_ur_ls(&self, request: Request<CountUrlParams>) -> Answer<Long> {
        let params = request.into_inner();
        let sought = Sought {
            crawl: our_crawl(&params.crawl_id),
            key: key_of(params.key),
            filter: params.filter.filter(|part| !part.is_empty()),
            ignore_case: params.ignore_case.unwrap_or(false),
        };
        let (mut value, mut after) = (0, Some(0));
        while let Some(row) = after {
            let page = self.store.frontier_list(sought.clone(), row).await;
            let page = page.map_err(|error| status_of(&error))?;
            value += page.urls.len() as u64;
            after = page.next;
        }
        Ok(Response::new(Long { value }))
    }

    async fn purge_ur_ls(&self, request: Request<PurgeUrlParams>) -> Answer<Long> {
        let PurgeUrlParams { key, crawl_id: id, days } = request.into_inner();
        let age = Duration::from_secs(u64::from(days) * 86_400);
        let before = self.store.now().checked_sub(age).unwrap_or(jiff::Timestamp::MIN);
        let removed = self.store.frontier_remove(our_crawl(&id), key_of(key), Some(before)).await;
        answer(removed.map(|value| Long { value }))
    }
}
