//! The operators' calls that change something: queue, sites, sources.
//!
//! Each says in its answer what it did, as a number or as the thing it changed.
//! "All" is never the meaning of an empty list: it must be said.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::NoContent;
use serde::{Deserialize, Serialize};

use super::Context;
use super::extract::{LARGE_BODY, Params, Payload, RowId, Segment};
use super::problem::{Kind, Problem};
use super::wire::queue::PastFetchItem;
use super::wire::{Capped, MAX_NAME_CHARS, MAX_URL_CHARS, crawl, name, sources, web_url};
use crate::model::SourceId;
use crate::queue::MAX_RESULTS;
use crate::store::{Imported, StoreError};

/// Has an order of many parts carried out to its end, whether or not who gave it
/// still waits: half of it is what nobody asked for.
pub(super) async fn to_the_end<T: Send + 'static>(
    order: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::spawn(order).await;
    let done = done.map_err(|_| {
        Problem::new(Kind::Internal, "The order met a bug in the daemon; its log says more.")
    })?;
    Ok(done?)
}

/// Body of `POST /v1/queue/replay`: these `urls`, or `all`.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReplayBody {
    /// `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// All dead letters of the crawl.
    all: bool,
    /// Or these.
    urls: Capped<String, MAX_RESULTS>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Replayed {
    /// Dead letters put back.
    replayed: u64,
}

impl ReplayBody {
    /// The crawl, and the URLs; none stands for all.
    fn check(self) -> Result<(String, Vec<String>), Problem> {
        let urls = read_urls(self.urls)?;
        match (self.all, urls.is_empty()) {
            (false, true) => Err(Problem::field("Name the `urls` to replay, or say `all`: true.")),
            (true, false) => Err(Problem::field("Give either `urls` or `all`, not both.")),
            _ => Ok((crawl(self.crawl)?, urls)),
        }
    }
}

/// `POST /v1/queue/replay`
pub(crate) async fn replay(
    State(context): State<Arc<Context>>,
    Payload { value: body, held }: Payload<ReplayBody, LARGE_BODY>,
) -> Result<Json<Replayed>, Problem> {
    let (crawl, urls) = body.check()?;
    let store = context.state.store.clone();
    let order = async move {
        let _held = held;
        store.replay(crawl, urls).await
    };
    let replayed = to_the_end(order).await?;
    Ok(Json(Replayed { replayed }))
}

/// Body of `POST /v1/queue/requeue`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequeueBody {
    /// `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// At least one.
    urls: Capped<String, MAX_RESULTS>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Requeued {
    /// URLs made due; those that are not known are not counted.
    requeued: u64,
}

/// `POST /v1/queue/requeue`
pub(crate) async fn requeue(
    State(context): State<Arc<Context>>,
    Payload { value: body, held }: Payload<RequeueBody, LARGE_BODY>,
) -> Result<Json<Requeued>, Problem> {
    let urls = read_urls(body.urls)?;
    if urls.is_empty() {
        return Err(Problem::field("urls is empty; name at least one."));
    }
    let (store, crawl) = (context.state.store.clone(), crawl(body.crawl)?);
    let order = async move {
        let _held = held;
        store.requeue(crawl, urls).await
    };
    let requeued = to_the_end(order).await?;
    Ok(Json(Requeued { requeued }))
}

fn read_urls(urls: Capped<String, MAX_RESULTS>) -> Result<Vec<String>, Problem> {
    let read = |(index, text): (usize, String)| {
        web_url(&format!("urls[{index}]"), &text).map(String::from)
    };
    urls.take("urls")?.into_iter().enumerate().map(read).collect()
}

/// Body of `POST /v1/import`: fetches of the past.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportBody {
    /// `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// In any order.
    fetches: Capped<PastFetchItem, MAX_RESULTS>,
}

/// `POST /v1/import`
pub(crate) async fn import(
    State(context): State<Arc<Context>>,
    Payload { value: body, held }: Payload<ImportBody, LARGE_BODY>,
) -> Result<Json<Imported>, Problem> {
    let fetches = body.fetches.take("fetches")?.into_iter().enumerate();
    let fetches: Result<Vec<_>, _> = fetches.map(|(index, item)| item.check(index)).collect();
    let (store, crawl, fetches) = (context.state.store.clone(), crawl(body.crawl)?, fetches?);
    let order = async move {
        let _held = held;
        store.import(crawl, fetches).await
    };
    Ok(Json(to_the_end(order).await?))
}

/// Body of `POST /v1/queue/block` and `unblock`: a `url`, or a `prefix` of URLs.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BlockBody {
    /// `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// This URL.
    url: Option<String>,
    /// Or all URLs that begin so.
    prefix: Option<String>,
}

/// What is blocked, as the store takes it.
#[derive(Debug, PartialEq, Eq)]
struct Pattern {
    crawl: String,
    text: String,
    prefix: bool,
}

impl BlockBody {
    fn check(self) -> Result<Pattern, Problem> {
        let crawl = crawl(self.crawl)?;
        let (text, prefix) = match (self.url, self.prefix) {
            (Some(url), None) => (web_url("url", &url)?, false),
            (None, Some(prefix)) => (web_url("prefix", &prefix)?, true),
            _ => {
                return Err(Problem::field(
                    "Give either `url`, for one URL, or `prefix`, for all that begin so.",
                ));
            }
        };
        Ok(Pattern { crawl, text: text.into(), prefix })
    }
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Blocked {
    /// URLs held back at once; of a prefix 0, since its URLs are held back when their turn comes.
    blocked: u64,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Unblocked {
    /// URLs put back.
    unblocked: u64,
}

/// `POST /v1/queue/block`
pub(crate) async fn block(
    State(context): State<Arc<Context>>,
    Payload { value: body, held: _held }: Payload<BlockBody>,
) -> Result<Json<Blocked>, Problem> {
    let Pattern { crawl, text, prefix } = body.check()?;
    let store = context.state.store.clone();
    let blocked = to_the_end(async move { store.block(crawl, text, prefix).await }).await?;
    Ok(Json(Blocked { blocked }))
}

/// `POST /v1/queue/unblock`
pub(crate) async fn unblock(
    State(context): State<Arc<Context>>,
    Payload { value: body, held: _held }: Payload<BlockBody>,
) -> Result<Json<Unblocked>, Problem> {
    let Pattern { crawl, text, prefix } = body.check()?;
    let store = context.state.store.clone();
    let unblocked = to_the_end(async move { store.unblock(crawl, text, prefix).await }).await?;
    Ok(Json(Unblocked { unblocked }))
}

/// Body of `POST /v1/queue/pause`; `paused: false` goes on.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PauseBody {
    /// `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// True where not said.
    paused: Option<bool>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Paused {
    /// The crawl.
    crawl: String,
    /// Is leasing from it paused now?
    paused: bool,
}

/// `POST /v1/queue/pause`
pub(crate) async fn pause_crawl(
    State(context): State<Arc<Context>>,
    Payload { value: body, held: _held }: Payload<PauseBody>,
) -> Result<Json<Paused>, Problem> {
    let crawl = crawl(body.crawl)?;
    let paused = body.paused.unwrap_or(true);
    context.state.store.pause_crawl(crawl.clone(), paused).await?;
    Ok(Json(Paused { crawl, paused }))
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct MadeDue {
    /// Sources made due.
    sources: u64,
}

/// `POST /v1/sites/{name}/poll`
pub(crate) async fn poll_site(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
) -> Result<Json<MadeDue>, Problem> {
    let sources = context.state.store.poll_site(name).await?;
    Ok(Json(MadeDue { sources }))
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Forgotten {
    /// URLs dropped.
    forgotten: u64,
}

/// `DELETE /v1/sites/{name}`: drops the rows of a site that left the config.
pub(crate) async fn forget_site(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
) -> Result<Json<Forgotten>, Problem> {
    let store = context.state.store.clone();
    let forgotten = to_the_end(async move { store.forget_site(name).await }).await?;
    Ok(Json(Forgotten { forgotten }))
}

/// `POST /v1/sites/{name}/pause`
pub(crate) async fn pause_site(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
) -> Result<Json<sources::Site>, Problem> {
    context.state.store.pause_site(name.clone(), true).await?;
    Ok(Json(context.state.store.site(name).await?.into()))
}

/// `POST /v1/sites/{name}/resume`
pub(crate) async fn resume_site(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
) -> Result<Json<sources::Site>, Problem> {
    context.state.store.pause_site(name.clone(), false).await?;
    Ok(Json(context.state.store.site(name).await?.into()))
}

/// Body of `POST /v1/sources`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitBody {
    /// The site that it is for.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    site: String,
    /// Of a sitemap or feed.
    #[schemars(length(max = MAX_URL_CHARS))]
    url: String,
}

/// `POST /v1/sources`: registers a source, or makes a known one due now.
pub(crate) async fn submit_source(
    State(context): State<Arc<Context>>,
    Payload { value: body, held: _held }: Payload<SubmitBody>,
) -> Result<Json<sources::Source>, Problem> {
    let site = name("site", body.site)?;
    let url = web_url("url", &body.url)?;
    if let Some(why) = (context.state.refuses)(&url) {
        return Err(Problem::field(format!("url is never fetched: {why}.")));
    }
    let id = context.state.store.submit_source(site, url).await?;
    source(&context, id).await
}

/// `POST /v1/sources/{id}/poll`
pub(crate) async fn poll_source(
    State(context): State<Arc<Context>>,
    RowId(id): RowId,
) -> Result<Json<sources::Source>, Problem> {
    context.state.store.poll_source(SourceId(id)).await?;
    source(&context, SourceId(id)).await
}

pub(super) async fn source(
    context: &Context,
    id: SourceId,
) -> Result<Json<sources::Source>, Problem> {
    let (source, polls) = context.state.store.source(id).await?;
    Ok(Json(sources::Source::with_polls(source, polls)))
}

/// Parameters of `DELETE /v1/sources/{id}`.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DeleteParams {
    /// Are the URLs that only it lists dropped too?
    drop_urls: bool,
}

/// `DELETE /v1/sources/{id}`
pub(crate) async fn delete_source(
    State(context): State<Arc<Context>>,
    RowId(id): RowId,
    Params(params): Params<DeleteParams>,
) -> Result<NoContent, Problem> {
    let (store, id) = (context.state.store.clone(), SourceId(id));
    to_the_end(async move { store.delete_source(id, params.drop_urls).await }).await?;
    Ok(NoContent)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::{Value, from_value, json};
    use tokio::sync::oneshot;

    use super::*;

    fn replayed(body: Value) -> Result<(String, Vec<String>), Problem> {
        from_value::<ReplayBody>(body).expect("the shape is right").check()
    }

    fn blocked(body: Value) -> Result<Pattern, Problem> {
        from_value::<BlockBody>(body).expect("the shape is right").check()
    }

    #[test]
    fn replaying_all_must_be_said() {
        assert!(replayed(json!({})).is_err());
        assert!(replayed(json!({"urls": []})).is_err());
        assert!(replayed(json!({"all": true, "urls": ["https://example.org/"]})).is_err());
        let all = replayed(json!({"all": true})).expect("all");
        assert_eq!(all, ("default".to_owned(), Vec::new()));
    }

    #[test]
    fn a_url_that_is_none_is_named_by_its_place() {
        let body = json!({"urls": ["https://example.org/", "example.org"]});
        let problem = replayed(body).expect_err("no URL");
        assert!(problem.detail().starts_with("urls[1] is no absolute URL"), "{problem:?}");
    }

    #[test]
    fn a_block_is_of_one_url_or_of_a_prefix() {
        let one = blocked(json!({"url": "https://example.org/a"})).expect("a URL");
        assert!(!one.prefix);
        let many = blocked(json!({"crawl": "news", "prefix": "https://example.org"}));
        let expected = Pattern {
            crawl: "news".to_owned(),
            text: "https://example.org/".to_owned(),
            prefix: true,
        };
        assert_eq!(many, Ok(expected));
        assert!(blocked(json!({})).is_err());
        assert!(
            blocked(json!({"url": "https://a.example/", "prefix": "https://b.example/"})).is_err()
        );
    }

    #[tokio::test]
    async fn an_order_is_carried_out_though_whoever_gave_it_has_gone() {
        let (go, waits) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let order = async move {
            let _ = waits.await;
            let _ = end.send("done");
            Ok(())
        };
        let mut answer = Box::pin(to_the_end(order));
        assert!(answer.as_mut().now_or_never().is_none());
        drop(answer);
        go.send(()).unwrap();
        assert_eq!(ended.await, Ok("done"));
    }
}
