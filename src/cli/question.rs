//! The questions of those commands that only read.
//!
//! Each has one answer in two ways: from the API of the running daemon, or out
//! of the store when none runs. Both have the shape of the API.

use serde_json::{Value, json};

use super::Failure;
use super::order::web_url;
use crate::model::UrlId;
use crate::serve::wire::sources::{Site, Source};
use crate::serve::wire::views::{Block, Dead, KnownUrl, Peek, Queue, Status};
use crate::serve::wire::{BlockCursor, Cursor};
use crate::store::views::{Page, SourceFilter};
use crate::store::{Store, StoreError};

/// Rows read out of the store at once.
const PART: u32 = 1_000;
/// The same of URLs with all that is known of them, which may be long.
const URLS: u32 = 200;

/// A question.
#[derive(Debug, Clone)]
pub enum Question {
    /// All sites.
    Sites,
    /// All sources of a site, or of all.
    Sources {
        /// Only of this site.
        site: Option<String>,
        /// Retired ones too.
        retired: bool,
    },
    /// The whole at a glance.
    Status,
    /// One URL.
    Url {
        /// As typed.
        url: String,
        /// In this crawl only.
        crawl: Option<String>,
    },
    /// All URLs, a part at a time.
    Urls {
        /// Where the part starts: the `next` of the one before.
        cursor: Option<String>,
    },
    /// The queues in numbers.
    Queues,
    /// What would be leased next.
    Peek {
        /// Rows.
        limit: u32,
        /// Of this crawl.
        crawl: String,
    },
    /// Dead letters.
    Dead {
        /// Rows.
        limit: u32,
        /// Of this crawl only.
        crawl: Option<String>,
    },
    /// Blocks in force.
    Blocks {
        /// Rows.
        limit: u32,
        /// Of this crawl only.
        crawl: Option<String>,
    },
}

impl Question {
    /// Where the API answers it.
    pub fn path(&self) -> &'static str {
        match self {
            Self::Sites => "/v1/sites",
            Self::Sources { .. } => "/v1/sources",
            Self::Status => "/v1/status",
            Self::Url { .. } => "/v1/url",
            Self::Urls { .. } => "/v1/urls",
            Self::Queues => "/v1/queue",
            Self::Peek { .. } => "/v1/queue/peek",
            Self::Dead { .. } => "/v1/queue/dead",
            Self::Blocks { .. } => "/v1/queue/blocks",
        }
    }

    /// The parameters of the API.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Sites | Self::Status | Self::Queues => Vec::new(),
            Self::Sources { site, retired } => {
                let site = site.iter().map(|site| ("site", site.clone()));
                site.chain(retired.then(|| ("retired", "true".to_owned()))).collect()
            }
            Self::Url { url, crawl } => {
                let crawl = crawl.iter().map(|crawl| ("crawl", crawl.clone()));
                std::iter::once(("url", url.clone())).chain(crawl).collect()
            }
            Self::Urls { cursor } => {
                let cursor = cursor.iter().map(|cursor| ("cursor", cursor.clone()));
                std::iter::once(("limit", URLS.to_string())).chain(cursor).collect()
            }
            Self::Peek { limit, crawl } => {
                vec![("limit", limit.to_string()), ("crawl", crawl.clone())]
            }
            Self::Dead { limit, crawl } | Self::Blocks { limit, crawl } => {
                let crawl = crawl.iter().map(|crawl| ("crawl", crawl.clone()));
                std::iter::once(("limit", limit.to_string())).chain(crawl).collect()
            }
        }
    }

    /// Under which name the rows stand, where the answer is a list to be had whole.
    pub fn whole_list(&self) -> Option<&'static str> {
        match self {
            Self::Sites => Some("sites"),
            Self::Sources { .. } => Some("sources"),
            _ => None,
        }
    }

    /// Refuses what no daemon and no store can answer, as wrong usage.
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Url { url, .. } => web_url(url).map(drop),
            _ => Ok(()),
        }
    }

    /// Answers it out of the store.
    pub async fn answer(&self, store: &Store) -> Result<Value, Failure> {
        let answer = match self {
            Self::Sites => {
                let sites = store.sites().await.map_err(explain)?;
                let sites: Vec<Site> = sites.into_iter().map(Site::from).collect();
                json!({ "sites": sites, "next": null })
            }
            Self::Sources { site, retired } => {
                let sources = sources(store, site.clone(), *retired).await.map_err(explain)?;
                json!({ "sources": sources, "next": null })
            }
            Self::Status => json!(Status::from(store.status().await.map_err(explain)?)),
            Self::Url { url, crawl } => {
                let url = web_url(url)?;
                json!(KnownUrl::from(store.url(crawl.clone(), url).await.map_err(explain)?))
            }
            Self::Urls { cursor } => {
                let cursor: Option<Cursor> =
                    serde_json::from_value(json!(cursor)).map_err(anyhow::Error::new)?;
                let after = cursor.map(|cursor| UrlId(cursor.0));
                let page = store.urls(URLS, after).await.map_err(explain)?;
                let urls: Vec<KnownUrl> = page.items.into_iter().map(KnownUrl::from).collect();
                json!({ "urls": urls, "next": page.next.map(Cursor) })
            }
            Self::Queues => {
                let queues = store.queue(None).await.map_err(explain)?;
                let queues: Vec<Queue> = queues.into_iter().map(Queue::from).collect();
                json!({ "queues": queues })
            }
            Self::Peek { limit, crawl } => {
                let urls = store.peek(crawl.clone(), *limit).await.map_err(explain)?;
                let urls: Vec<Peek> = urls.into_iter().map(Peek::from).collect();
                json!({ "urls": urls })
            }
            Self::Dead { limit, crawl } => {
                let page = store.dead(crawl.clone(), *limit, None).await.map_err(explain)?;
                let urls: Vec<Dead> = page.items.into_iter().map(Dead::from).collect();
                json!({ "urls": urls, "next": page.next.map(Cursor) })
            }
            Self::Blocks { limit, crawl } => {
                let (blocks, next) =
                    store.blocks(crawl.clone(), *limit, None).await.map_err(explain)?;
                let blocks: Vec<Block> = blocks.into_iter().map(Block::from).collect();
                json!({ "blocks": blocks, "next": next.map(BlockCursor) })
            }
        };
        Ok(answer)
    }
}

async fn sources(
    store: &Store,
    site: Option<String>,
    retired: bool,
) -> Result<Vec<Source>, StoreError> {
    if let Some(name) = &site {
        store.site(name.clone()).await?;
    }
    let mut all = Vec::new();
    let mut filter = SourceFilter { site, url: None, retired, limit: PART, after: None };
    loop {
        let Page { items, next } = store.sources(filter.clone()).await?;
        all.extend(items.into_iter().map(Source::from));
        if next.is_none() {
            return Ok(all);
        }
        filter.after = next;
    }
}

/// What the store says when it cannot.
pub fn explain(error: StoreError) -> Failure {
    match error {
        StoreError::NotFound(text) | StoreError::Refused(text) => {
            Failure::Runtime(anyhow::anyhow!(text))
        }
        StoreError::Misconfigured(_) => Failure::Misconfigured(error.into()),
        other => Failure::Runtime(anyhow::Error::new(other).context("the store")),
    }
}
