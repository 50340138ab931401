//! What operators do with what webmasters submit: see it, take it, drop it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::NoContent;
use serde::{Deserialize, Serialize};

use super::Context;
use super::extract::{Params, Payload, Segment};
use super::operate::source;
use super::ping::read_id;
use super::problem::Problem;
use super::wire::submissions::Submission;
use super::wire::{Cursor, MAX_LIMIT, MAX_NAME_CHARS, list_limit, name, sources};

/// Parameters of `GET /v1/submissions`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmissionParams {
    /// Only those that are no source yet?
    #[serde(default)]
    pending: bool,
    /// Most rows; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Where to go on: the `next` of the part before.
    cursor: Option<Cursor>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Submissions {
    /// This part of them.
    submissions: Vec<Submission>,
    /// Where the next part begins; null at the end.
    next: Option<Cursor>,
}

/// `GET /v1/submissions`
pub(crate) async fn submissions(
    State(context): State<Arc<Context>>,
    Params(params): Params<SubmissionParams>,
) -> Result<Json<Submissions>, Problem> {
    let limit = list_limit(params.limit)?;
    let after = params.cursor.map(|cursor| cursor.0);
    let page = context.state.store.submissions(params.pending, limit, after).await?;
    let submissions = page.items.into_iter().map(Submission::from).collect();
    Ok(Json(Submissions { submissions, next: page.next.map(Cursor) }))
}

/// Body of `POST /v1/submissions/{id}/grant`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantBody {
    /// The site that gets it as a source.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    site: String,
}

/// `POST /v1/submissions/{id}/grant`
pub(crate) async fn grant(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
    Payload { value: body, held: _held }: Payload<GrantBody>,
) -> Result<Json<sources::Source>, Problem> {
    let site = name("site", body.site)?;
    let id = context.state.store.grant(read_id(&id)?, site).await?;
    source(&context, id).await
}

/// `DELETE /v1/submissions/{id}`
pub(crate) async fn forget_submission(
    State(context): State<Arc<Context>>,
    Segment(id): Segment,
) -> Result<NoContent, Problem> {
    context.state.store.forget_submission(read_id(&id)?).await?;
    Ok(NoContent)
}
