//! The calls that only read: queue, URLs, sites, sources, polls, health, metrics.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Context;
use super::extract::{Params, RowId, Segment, accepts};
use super::openapi::{Exposition, Input, Operation};
use super::problem::{Kind, Problem};
use super::wire::{
    BlockCursor, Cursor, MAX_LIMIT, MAX_NAME_CHARS, crawl, document_url, list_limit, name,
    peek_limit, sources, views, web_url,
};
use crate::metrics::Format;
use crate::model::SourceId;
use crate::store::StoreError;
use crate::store::views::{Page, SourceFilter, StatusView};

/// Longest that a health check or a scrape waits for the store.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Parameters of `GET /v1/queue`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueParams {
    /// Of this crawl only.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Queues {
    /// One for each crawl.
    queues: Vec<views::Queue>,
}

/// `GET /v1/queue`
pub(crate) async fn queue(
    State(context): State<Arc<Context>>,
    Params(params): Params<QueueParams>,
) -> Result<Json<Queues>, Problem> {
    let crawl = params.crawl.map(|text| name("crawl", text)).transpose()?;
    let queues = context.state.store.recent_queue(crawl.as_deref()).await?;
    Ok(Json(Queues { queues: queues.into_iter().map(views::Queue::from).collect() }))
}

/// Parameters of `GET /v1/queue/peek`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeekParams {
    /// `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Peeked {
    /// In the order that they would be leased in.
    urls: Vec<views::Peek>,
}

/// `GET /v1/queue/peek`
pub(crate) async fn peek(
    State(context): State<Arc<Context>>,
    Params(params): Params<PeekParams>,
) -> Result<Json<Peeked>, Problem> {
    let limit = peek_limit(params.limit)?;
    let urls = context.state.store.peek(crawl(params.crawl)?, limit).await?;
    Ok(Json(Peeked { urls: urls.into_iter().map(views::Peek::from).collect() }))
}

/// Parameters of lists that have no others.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Where to go on: the `next` of the part before.
    cursor: Option<Cursor>,
}

/// Parameters of `GET /v1/queue/dead`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadParams {
    /// Of this crawl; of all where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Where to go on: the `next` of the part before.
    cursor: Option<Cursor>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct DeadLetters {
    /// This part of them.
    urls: Vec<views::Dead>,
    /// Where the next part begins; null at the end.
    next: Option<Cursor>,
}

/// `GET /v1/queue/dead`
pub(crate) async fn dead(
    State(context): State<Arc<Context>>,
    Params(params): Params<DeadParams>,
) -> Result<Json<DeadLetters>, Problem> {
    let limit = list_limit(params.limit)?;
    let crawl = params.crawl.map(|text| name("crawl", text)).transpose()?;
    let after = params.cursor.map(|cursor| crate::model::UrlId(cursor.0));
    let Page { items, next } = context.state.store.dead(crawl, limit, after).await?;
    let urls = items.into_iter().map(views::Dead::from).collect();
    Ok(Json(DeadLetters { urls, next: next.map(Cursor) }))
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct KnownUrls {
    /// This part of them.
    urls: Vec<views::KnownUrl>,
    /// Where the next part begins; null at the end.
    next: Option<Cursor>,
}

/// `GET /v1/urls`
pub(crate) async fn urls(
    State(context): State<Arc<Context>>,
    Params(params): Params<ListParams>,
) -> Result<Json<KnownUrls>, Problem> {
    let after = params.cursor.map(|cursor| crate::model::UrlId(cursor.0));
    let Page { items, next } = context.state.store.urls(list_limit(params.limit)?, after).await?;
    let urls = items.into_iter().map(views::KnownUrl::from).collect();
    Ok(Json(KnownUrls { urls, next: next.map(Cursor) }))
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Blocks {
    /// This part of them.
    blocks: Vec<views::Block>,
    /// Where the next part begins; null at the end.
    next: Option<BlockCursor>,
}

/// Parameters of `GET /v1/queue/blocks`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockParams {
    /// Of this crawl; of all where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Where to go on: the `next` of the part before.
    cursor: Option<BlockCursor>,
}

/// `GET /v1/queue/blocks`
pub(crate) async fn blocks(
    State(context): State<Arc<Context>>,
    Params(params): Params<BlockParams>,
) -> Result<Json<Blocks>, Problem> {
    let limit = list_limit(params.limit)?;
    let crawl = params.crawl.map(|text| name("crawl", text)).transpose()?;
    let after = params.cursor.map(|cursor| cursor.0);
    let (blocks, next) = context.state.store.blocks(crawl, limit, after).await?;
    let blocks = blocks.into_iter().map(views::Block::from).collect();
    Ok(Json(Blocks { blocks, next: next.map(BlockCursor) }))
}

/// Parameters of `GET /v1/url`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UrlParams {
    /// Absolute, http or https; what the head of a request holds bounds its length.
    url: String,
    /// In this crawl; in the first that has it where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
}

/// `GET /v1/url`
pub(crate) async fn url(
    State(context): State<Arc<Context>>,
    Params(params): Params<UrlParams>,
) -> Result<Json<views::KnownUrl>, Problem> {
    let crawl = params.crawl.map(|text| name("crawl", text)).transpose()?;
    let url = web_url("url", &params.url)?;
    Ok(Json(context.state.store.url(crawl, url).await?.into()))
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Sites {
    /// This part of them, by name.
    sites: Vec<sources::Site>,
    /// Where the next part begins; null at the end.
    next: Option<String>,
}

/// Parameters of `GET /v1/sites`. Sites come by name, so the cursor is a name.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SiteParams {
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Where to go on: the `next` of the part before.
    cursor: Option<String>,
}

/// `GET /v1/sites`
pub(crate) async fn sites(
    State(context): State<Arc<Context>>,
    Params(params): Params<SiteParams>,
) -> Result<Json<Sites>, Problem> {
    let limit = list_limit(params.limit)?;
    let is_after = params.cursor.is_some();
    let from = params.cursor.unwrap_or_default();
    let (sites, next) = context.state.store.site_lines(from, is_after, limit).await?;
    Ok(Json(Sites { sites: sites.into_iter().map(sources::Site::from).collect(), next }))
}

/// `GET /v1/sites/{name}`
pub(crate) async fn site(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
) -> Result<Json<sources::Site>, Problem> {
    Ok(Json(context.state.store.site(name).await?.into()))
}

/// Parameters of `GET /v1/sources`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceParams {
    /// Of this site only.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    site: Option<String>,
    /// With this URL only; what the head of a request holds bounds its length.
    url: Option<String>,
    /// Retired ones too.
    #[serde(default)]
    retired: bool,
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Where to go on: the `next` of the part before.
    cursor: Option<Cursor>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Sources {
    /// This part of them.
    sources: Vec<sources::Source>,
    /// Where the next part begins; null at the end.
    next: Option<Cursor>,
}

/// `GET /v1/sources`
pub(crate) async fn sources(
    State(context): State<Arc<Context>>,
    Params(params): Params<SourceParams>,
) -> Result<Json<Sources>, Problem> {
    let site = params.site.clone();
    let filter = SourceFilter {
        site: params.site.map(|text| name("site", text)).transpose()?,
        url: params.url.map(|text| document_url("url", &text)).transpose()?.map(String::from),
        retired: params.retired,
        limit: list_limit(params.limit)?,
        after: params.cursor.map(|cursor| cursor.0),
    };
    let Page { items, next } = context.state.store.sources(filter).await?;
    if let Some(site) = site.filter(|_| items.is_empty()) {
        // A site without sources is not one that is not known.
        context.state.store.site(site).await?;
    }
    let sources = items.into_iter().map(sources::Source::from).collect();
    Ok(Json(Sources { sources, next: next.map(Cursor) }))
}

/// `GET /v1/sources/{id}`
pub(crate) async fn source(
    State(context): State<Arc<Context>>,
    RowId(id): RowId,
) -> Result<Json<sources::Source>, Problem> {
    let (source, polls) = context.state.store.source(SourceId(id)).await?;
    Ok(Json(sources::Source::with_polls(source, polls)))
}

/// Parameters of `GET /v1/polls`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PollParams {
    /// After this poll.
    #[serde(default)]
    after: i64,
    /// Of this source only.
    source: Option<i64>,
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
}

/// `next` is the `after` that goes on from here. It is never null: further
/// polls come, and asking again follows them.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Polls {
    /// In the order of their commits.
    polls: Vec<sources::Poll>,
    /// The `after` that goes on from here; never null, since further polls come.
    next: i64,
}

/// `GET /v1/polls`
pub(crate) async fn polls(
    State(context): State<Arc<Context>>,
    Params(params): Params<PollParams>,
) -> Result<Json<Polls>, Problem> {
    let limit = list_limit(params.limit)?;
    let source = params.source.map(SourceId);
    let polls = context.state.store.polls_after(source, params.after, limit).await?;
    let next = polls.last().map_or(params.after, |poll| poll.id);
    Ok(Json(Polls { polls: polls.into_iter().map(sources::Poll::from).collect(), next }))
}

/// Parameters of `GET /v1/polls/{id}/changes`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeParams {
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Where to go on: the `next` of the part before.
    cursor: Option<Cursor>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Changes {
    /// This part of them.
    changes: Vec<sources::Change>,
    /// Where the next part begins; null at the end.
    next: Option<Cursor>,
}

/// `GET /v1/polls/{id}/changes`
pub(crate) async fn changes_of_poll(
    State(context): State<Arc<Context>>,
    RowId(poll): RowId,
    Params(params): Params<ChangeParams>,
) -> Result<Json<Changes>, Problem> {
    let limit = list_limit(params.limit)?;
    let after = params.cursor.map_or(0, |cursor| cursor.0);
    let Page { items, next } = context.state.store.changes_of_poll(poll, limit, after).await?;
    let changes = items.into_iter().map(sources::Change::from).collect();
    Ok(Json(Changes { changes, next: next.map(Cursor) }))
}

/// `GET /v1/status`
pub(crate) async fn status(
    State(context): State<Arc<Context>>,
) -> Result<Json<views::Status>, Problem> {
    Ok(Json(read_status(&context).await?.into()))
}

/// The store's view of the whole, with what only the running daemon knows.
pub(super) async fn read_status(context: &Context) -> Result<StatusView, StoreError> {
    let status = context.state.store.recent_status().await?;
    Ok(of_daemon(context, status))
}

fn of_daemon(context: &Context, status: StatusView) -> StatusView {
    StatusView {
        version: context.state.version.to_owned(),
        started_at: Some(context.state.started_at),
        polls_paused: context.state.metrics.are_polls_paused(),
        ..status
    }
}

/// Who asks for metrics, and in which format.
pub(crate) struct Scraper {
    format: Format,
}

impl<S: Sync> FromRequestParts<S> for Scraper {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let is_asked_for = accepts(&parts.headers, "application/openmetrics-text", &["text/plain"]);
        Ok(Self { format: if is_asked_for { Format::OpenMetrics } else { Format::Plain } })
    }
}

impl Input for Scraper {
    fn describe(_: &mut Operation<'_>) {}
}

/// `GET /metrics`. The counters are there even when the
/// store does not answer; its gauges are then left out.
pub(crate) async fn metrics(State(context): State<Arc<Context>>, scraper: Scraper) -> Exposition {
    // Who asks all the time gets the last count rather than none.
    let counted = timeout(PATIENCE, context.state.store.last_status()).await;
    let status = counted.ok().and_then(Result::ok).map(|status| of_daemon(&context, status));
    let text = context.state.metrics.encode(status.as_ref(), scraper.format);
    Exposition { text, format: scraper.format }
}

/// What a health check answers; anybody may ask, so it tells no more.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Health {
    /// `degraded`: it works, though not in full.
    #[schemars(extend("enum" = ["ok", "ready", "degraded"]))]
    status: &'static str,
    /// Why it is degraded; left out where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

/// `GET /healthz`: should this process be left alone? Degraded is a yes: a
/// restart frees no disk, unlocks no database and brings no server back.
pub(crate) async fn healthz(State(context): State<Arc<Context>>) -> Result<Json<Health>, Problem> {
    let detail = match timeout(PATIENCE, context.state.store.ping()).await {
        Ok(Ok(())) if context.state.metrics.are_polls_paused() => {
            Some("polls pause: less than store.min_free_disk is free")
        }
        Ok(Ok(())) => None,
        Ok(Err(StoreError::Full)) => Some("the disk is full; reads work, writes are refused"),
        Ok(Err(StoreError::Busy)) | Err(_) => Some("the database is busy"),
        Ok(Err(StoreError::Away(_))) => Some("the database server is away"),
        Ok(Err(StoreError::Engine(_))) => Some("the database does not commit; the log says why"),
        Ok(Err(error)) => return Err(error.into()),
    };
    let status = if detail.is_none() { "ok" } else { "degraded" };
    Ok(Json(Health { status, detail }))
}

/// `GET /readyz`: may work be sent here now?
pub(crate) async fn readyz(State(context): State<Arc<Context>>) -> Result<Json<Health>, Problem> {
    if context.stop.is_cancelled() {
        return Err(Problem::new(Kind::Unavailable, "The daemon is stopping."));
    }
    if !context.state.ready.is_ready() {
        return Err(Problem::new(Kind::Unavailable, "The daemon is starting."));
    }
    match timeout(PATIENCE, context.state.store.ping()).await {
        Ok(Err(StoreError::Engine(_))) => {
            return Err(Problem::new(Kind::Unavailable, "The database does not commit."));
        }
        Ok(answer) => answer?,
        Err(_) => return Err(StoreError::Busy.into()),
    }
    Ok(Json(Health { status: "ready", detail: None }))
}
