//! Streams that go out: URLs to fetch, and URLs as they are known. Each goes on
//! only as fast as it is read, and ends well only when there is no more.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::proto::get_params::Item;
use super::proto::{GetParams, ListUrlParams, UrlInfo, UrlItem};
use super::words::{crawl_id, info_to_fetch, item_of, key_of, our_crawl};
use super::{Answering, Answers, Frontier, answers, status_of, stopping};
use crate::queue::MAX_TTL;
use crate::store::frontier::{Get, Progress, Sought};

/// How long URLs are held where the client does not say.
const HELD: Duration = Duration::from_secs(30);
/// URLs listed where the client does not say.
pub(super) const LISTED: u32 = 100;

/// What a client asks for; `None` where that can be nothing.
fn get_of(params: GetParams) -> Option<Get> {
    let key = key_of(params.key);
    let crawl = match params.item {
        Some(Item::CrawlId(id)) => Some(our_crawl(&id)),
        // A queue is one of a crawl.
        None if key.is_some() => return None,
        Some(Item::AnyCrawlId(_)) | None => None,
    };
    let ttl = match params.delay_requestable {
        0 => HELD,
        seconds => Duration::from_secs(seconds.into()).min(MAX_TTL),
    };
    let (per_queue, max_queues) = (params.max_urls_per_queue, params.max_queues);
    Some(Get { crawl, key, per_queue, max_queues, ttl })
}

impl Frontier {
    /// URLs to fetch now.
    pub(super) fn serve(&self, params: GetParams) -> Result<Answers<UrlInfo>, Status> {
        let place = self.place()?;
        let (answering, stream) = answers();
        if let Some(get) = get_of(params) {
            tokio::spawn(self.clone().serve_all(get, answering, place));
        }
        Ok(stream)
    }

    async fn serve_all(
        self,
        get: Get,
        mut answering: Answering<UrlInfo>,
        _place: OwnedSemaphorePermit,
    ) {
        let mut progress = Progress::default();
        while !answering.is_closed() {
            if self.stop.is_cancelled() {
                answering.end(stopping());
                return;
            }
            let (urls, so_far) = match self.store.frontier_get(get.clone(), progress).await {
                Ok(served) => served,
                Err(error) => {
                    // Who has gone hears nothing.
                    answering.end(status_of(&error));
                    return;
                }
            };
            progress = so_far;
            if urls.is_empty() {
                return;
            }
            self.metrics.leased(urls.iter().map(|url| url.reason));
            let mut urls = urls.into_iter();
            while let Some(url) = urls.next() {
                let token = url.token;
                if !answering.hand(info_to_fetch(url)).await {
                    // What cannot be handed over is for others.
                    let left = std::iter::once(token).chain(urls.map(|url| url.token)).collect();
                    if let Err(error) = self.store.release(left, Duration::ZERO).await {
                        tracing::debug!(%error, "held until their time is over");
                    }
                    return;
                }
            }
        }
    }

    /// URLs as they are known.
    pub(super) fn list(&self, params: ListUrlParams) -> Result<Answers<UrlItem>, Status> {
        let place = self.place()?;
        let (answering, stream) = answers();
        tokio::spawn(self.clone().list_all(params, answering, place));
        Ok(stream)
    }

    async fn list_all(
        self,
        params: ListUrlParams,
        mut answering: Answering<UrlItem>,
        _place: OwnedSemaphorePermit,
    ) {
        let mut skip = params.start as usize;
        let mut left = if params.size == 0 { LISTED } else { params.size } as usize;
        let sought = Sought {
            crawl: our_crawl(&params.crawl_id),
            key: key_of(params.key),
            filter: params.filter.filter(|part| !part.is_empty()),
            ignore_case: params.ignore_case.unwrap_or(false),
        };
        let crawl = crawl_id(&sought.crawl);
        let mut after = Some(0);
        while let Some(row) = after.filter(|_| left > 0) {
            // Who dumps all that is known would take a part of it for the whole.
            if self.stop.is_cancelled() {
                answering.end(stopping());
                return;
            }
            let page = match self.store.frontier_list(sought.clone(), row).await {
                Ok(page) => page,
                Err(error) => {
                    answering.end(status_of(&error));
                    return;
                }
            };
            after = page.next;
            let passed = skip.min(page.urls.len());
            skip -= passed;
            for listed in page.urls.into_iter().skip(passed).take(left) {
                left -= 1;
                if !answering.hand(item_of(listed, &crawl)).await {
                    return;
                }
            }
        }
    }
}
