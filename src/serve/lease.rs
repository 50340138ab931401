//! The fetchers' calls: lease (with long poll), settle, extend, release.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use tokio::time::{Instant, sleep, timeout_at};

use super::Context;
use super::extract::{LARGE_BODY, Payload};
use super::problem::Problem;
use super::wire::queue::{
    ExtendBody, LeaseAnswer, LeaseBody, ReleaseBody, SettleBody, TokensAnswer,
};
use crate::metrics::{Metrics, TokenCall, Way};
use crate::model::UrlId;
use crate::model::extension::Extensions;
use crate::queue::{LeaseBatch, LeaseRequest, Leased};

/// First pause after a wake-up that yielded nothing (somebody else was faster,
/// or what came due is of another site); it doubles up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Longest such pause.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// Leases in a row without a pause that come to nothing, since what is first in the queue
/// is held: each takes a bounded number out of it, for good.
const THROUGH_HELD: u32 = 16;

/// `POST /v1/lease`
pub(crate) async fn lease(
    State(context): State<Arc<Context>>,
    Payload { value: body, held }: Payload<LeaseBody>,
) -> Result<Json<LeaseAnswer>, Problem> {
    let (request, wait, include) = body.check(context.lease_defaults())?;
    // What is left of the body is small, and a long poll would keep its permits.
    drop(held);
    let crawl = request.crawl.clone();
    let batch = lease_within(&context, request, wait).await?;
    count(&context.state.metrics, &crawl, &batch);
    let urls: Vec<_> = batch.urls.iter().map(|leased| leased.id).collect();
    let mut answer = LeaseAnswer::of(batch, |at| context.state.store.shown_at(at));
    if include.any() && !urls.is_empty() {
        answer.include(include, said_of(&context, urls).await);
    }
    Ok(Json(answer))
}

/// Counts what was leased, whoever it goes to, and not again what is given again.
pub(super) fn count(metrics: &Metrics, crawl: &str, batch: &LeaseBatch) {
    if batch.is_again {
        return;
    }
    metrics.leased(batch.urls.iter().map(|leased| leased.reason));
    let waits = batch.urls.iter().filter_map(Leased::waited);
    metrics.came(Way::SeenToLeased, crawl, waits);
}

/// What sources say of leased URLs. They are leased whether or not that can be
/// read: a refusal now would leave them with nobody until the leases expire.
async fn said_of(context: &Context, urls: Vec<UrlId>) -> Vec<Option<Extensions>> {
    let count = urls.len();
    context.state.store.extensions(urls).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "a lease is given without what it asked to include");
        vec![None; count]
    })
}

/// Leases until there is something, the time is over, or the daemon stops.
/// The client's own time counts here, whatever the store's clock does.
async fn lease_within(
    context: &Context,
    request: LeaseRequest,
    wait: Duration,
) -> Result<LeaseBatch, Problem> {
    let deadline = Instant::now() + wait;
    let mut pause = MIN_PAUSE;
    let mut through = 0;
    loop {
        let batch = context.state.store.lease(request.clone()).await?;
        let goes_on = batch.met_held && batch.urls.is_empty() && through < THROUGH_HELD;
        if goes_on && !context.stop.is_cancelled() {
            through += 1;
            pause = MIN_PAUSE;
            continue;
        }
        through = 0;
        let over = wait.is_zero() || Instant::now() >= deadline || context.stop.is_cancelled();
        if over || !batch.urls.is_empty() {
            return Ok(batch);
        }
        let woken = async {
            context.state.store.wait_for_due(&request.crawl).await;
            sleep(pause).await;
        };
        tokio::select! {
            () = context.stop.cancelled() => return Ok(batch),
            slept = timeout_at(deadline, woken) => if slept.is_err() { return Ok(batch) },
        }
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// `POST /v1/settle`
pub(crate) async fn settle(
    State(context): State<Arc<Context>>,
    Payload { value: body, held: _held }: Payload<SettleBody, LARGE_BODY>,
) -> Result<Json<TokensAnswer>, Problem> {
    let (tokens, settlements) = body.check()?;
    let results = if settlements.is_empty() {
        Vec::new()
    } else {
        context.state.store.settle(settlements).await?
    };
    Ok(Json(counted(&context, TokenCall::Settle, tokens.answer(results))))
}

/// `POST /v1/extend`
pub(crate) async fn extend(
    State(context): State<Arc<Context>>,
    Payload { value: body, held: _held }: Payload<ExtendBody>,
) -> Result<Json<TokensAnswer>, Problem> {
    let (tokens, known, ttl) = body.check(context.lease_defaults())?;
    let results =
        if known.is_empty() { Vec::new() } else { context.state.store.extend(known, ttl).await? };
    Ok(Json(counted(&context, TokenCall::Extend, tokens.answer(results))))
}

/// `POST /v1/release`
pub(crate) async fn release(
    State(context): State<Arc<Context>>,
    Payload { value: body, held: _held }: Payload<ReleaseBody>,
) -> Result<Json<TokensAnswer>, Problem> {
    let (tokens, known, after) = body.check()?;
    let results = if known.is_empty() {
        Vec::new()
    } else {
        context.state.store.release(known, after).await?
    };
    Ok(Json(counted(&context, TokenCall::Release, tokens.answer(results))))
}

fn counted(context: &Context, call: TokenCall, answer: TokensAnswer) -> TokensAnswer {
    context.state.metrics.tokens(call, answer.results());
    answer
}
