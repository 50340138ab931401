//! `/websub/{id}`: hubs ask whether we want their pushes, and push.
//!
//! The subscriber's side of W3C `WebSub` sections 5.3, 6 and 7. Whose push it is
//! is told by the path alone, which nobody can guess; what a hub says in other
//! headers is not looked at. A push is answered when it is kept, and read
//! later. One that is not signed as agreed is answered just so, and ignored
//! (section 7.1): a forger learns nothing. All that is no callback is 410 with
//! the same words.

mod signature;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use url::form_urlencoded;

use super::Context;
use super::bodies::BodyShare;
use super::extract::read_bytes;
use super::openapi::{Input, Operation, Output, media};
use super::problem::{Kind, Problem};
use super::public::Client;
use crate::metrics::Pushed;
use crate::store::StoreError;
use crate::store::hubs::rules::Mode;
use crate::store::hubs::{CallbackId, Delivered, Intent, MAX_PUSH, Taken};

/// Characters of a challenge that are sent back.
const MAX_CHALLENGE: usize = 4_096;
/// Characters of a content type or coding that are kept.
const MAX_HEADER: usize = 200;
/// What is said of a callback that is none.
const NOBODY: &str = "Nobody is subscribed here.";
/// From this size on a signature is checked on the blocking pool.
const CHECK_APART: usize = 256 << 10;
/// Where the signature of a push stands.
const SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature");

/// What a hub asks of a callback, and the words to agree with.
pub(crate) struct Question {
    id: CallbackId,
    intent: Intent,
    challenge: String,
}

/// The callback that a path may be of.
pub(super) fn id_in(path: &str) -> Option<CallbackId> {
    path.strip_prefix("/websub/").and_then(CallbackId::parse)
}

/// The callback of a path; all that cannot be one is the same as none.
async fn id_of(parts: &mut Parts, context: &Arc<Context>) -> Result<CallbackId, Problem> {
    let path = Path::<String>::from_request_parts(parts, context).await;
    path.ok().and_then(|Path(text)| CallbackId::parse(&text)).ok_or_else(|| {
        // The client's share has paid for it: it has never looked like a hub's.
        context.state.metrics.pushed(Pushed::Unknown);
        Problem::new(Kind::Gone, NOBODY)
    })
}

/// What who has no callback hears. Who tries many has the share of any client.
fn to_stranger(context: &Context, Client(client): Client, problem: Problem) -> Problem {
    context.state.metrics.pushed(Pushed::Unknown);
    match context.budgets.take_request(client, context.state.store.now()) {
        Ok(()) => problem,
        Err(wait) => too_many(wait),
    }
}

/// Is that which was pushed lost by this answer, though its hub has done nothing wrong?
fn is_lost(kind: Kind) -> bool {
    matches!(kind, Kind::BodyTooLarge | Kind::Busy | Kind::RequestTimeout)
}

/// A push is not taken and may never come again: there is something new, and the source
/// itself has it.
async fn ask_the_source(context: &Context, id: CallbackId) -> Result<(), StoreError> {
    context.state.metrics.pushed(Pushed::Hint);
    context.state.store.hint_callback(id).await
}

/// A push was refused before anybody had looked whose it is. The look costs something,
/// so it is taken from the share that any client has.
pub(super) async fn refused(context: &Context, Client(client): Client, id: CallbackId) {
    let store = &context.state.store;
    if context.budgets.take_request(client, store.now()).is_err() {
        return;
    }
    let hinted = match store.callback(id).await {
        Ok(Some(_)) => ask_the_source(context, id).await,
        Ok(None) => {
            context.state.metrics.pushed(Pushed::Unknown);
            Ok(())
        }
        Err(error) => Err(error),
    };
    if let Err(error) = hinted {
        tracing::warn!(%error, "a push was refused and its source is not asked instead");
    }
}

fn too_many(wait: Duration) -> Problem {
    Problem::too_many(wait, "Too many requests; come again later.")
}

impl FromRequestParts<Arc<Context>> for Question {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        context: &Arc<Context>,
    ) -> Result<Self, Problem> {
        let id = id_of(parts, context).await?;
        let query = parts.uri.query().unwrap_or_default();
        let said = |wanted: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
        };
        let mode = match said("hub.mode").as_deref() {
            Some("subscribe") => Mode::Subscribe,
            Some("unsubscribe") => Mode::Unsubscribe,
            Some("denied") => Mode::Denied,
            _ => {
                let why = "hub.mode must be subscribe, unsubscribe or denied.";
                return Err(Problem::field(why));
            }
        };
        let topic = said("hub.topic").ok_or_else(|| Problem::field("hub.topic is missing."))?;
        let challenge = said("hub.challenge").unwrap_or_default();
        let is_asked = mode != Mode::Denied;
        if is_asked && (challenge.is_empty() || challenge.len() > MAX_CHALLENGE) {
            let why = "hub.challenge must have 1 to 4,096 characters.";
            return Err(Problem::field(why));
        }
        let lease = said("hub.lease_seconds").and_then(|text| text.trim().parse().ok());
        let intent = Intent {
            mode,
            topic,
            lease: lease.map(Duration::from_secs),
            reason: said("hub.reason"),
        };
        let challenge = if is_asked { challenge } else { String::new() };
        Ok(Self { id, intent, challenge })
    }
}

impl Input for Question {
    fn describe(operation: &mut Operation<'_>) {
        operation.in_path(&json!({ "type": "string", "minLength": 1 }));
        for (name, about) in [
            ("hub.mode", "`subscribe`, `unsubscribe` or `denied`."),
            ("hub.topic", "What we have asked for."),
            ("hub.challenge", "Sent back to agree."),
            ("hub.lease_seconds", "How long the subscription lasts."),
            ("hub.reason", "Why it is denied."),
        ] {
            operation.in_query(name, about);
        }
        operation.may(&[Kind::InvalidField, Kind::NotFound, Kind::Gone]);
    }
}

/// The challenge, and nothing else.
pub(crate) struct Echo(String);

impl IntoResponse for Echo {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.0).into_response()
    }
}

impl Output for Echo {
    fn describe(operation: &mut Operation<'_>) {
        operation.answers(media(&[("text/plain; charset=utf-8", json!({ "type": "string" }))]));
    }
}

/// `GET /websub/{id}`
pub(crate) async fn verify(
    State(context): State<Arc<Context>>,
    client: Client,
    Question { id, intent, challenge }: Question,
) -> Result<Echo, Problem> {
    // 404 disagrees (section 5.3.1).
    let refusal = Problem::new(Kind::NotFound, "Nobody here has asked for that.");
    let store = &context.state.store;
    // Whose it is is known only when it is done, and then it is to be answered.
    context.budgets.look_at_all(store.now()).map_err(too_many)?;
    let Some(is_confirmed) = store.confirm(id, intent).await? else {
        return Err(to_stranger(&context, client, refusal));
    };
    let _ = context.budgets.take_of_all(store.now());
    if is_confirmed { Ok(Echo(challenge)) } else { Err(refusal) }
}

/// What a hub has pushed to a callback that is listened to.
pub(crate) struct Push {
    id: CallbackId,
    secret: Option<String>,
    headers: HeaderMap,
    body: Bytes,
    held: BodyShare,
}

impl FromRequest<Arc<Context>> for Push {
    type Rejection = Problem;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let id = id_of(&mut parts, context).await?;
        let store = &context.state.store;
        let now = store.now();
        // Nothing of the body is read for who has no business here.
        let Some(callback) = store.callback(id).await? else {
            let client = parts.extensions.get().copied().unwrap_or(Client(0));
            return Err(to_stranger(context, client, Problem::new(Kind::Gone, NOBODY)));
        };
        let whose = u128::from_be_bytes(id.0);
        let budgets = &context.budgets;
        let taken = budgets.callbacks.take(whose, 1.0, now);
        if let Err(wait) = taken.and_then(|()| budgets.take_of_all(now)) {
            ask_the_source(context, id).await?;
            return Err(Problem::too_many(wait, "Too many pushes; come again later."));
        }
        let read = read_bytes(&parts, body, MAX_PUSH, &context.deliveries).await;
        if read.as_ref().is_err_and(|problem| is_lost(problem.kind())) {
            ask_the_source(context, id).await?;
        }
        let (body, held) = read?;
        let (secret, headers) = (callback.secret, parts.headers);
        Ok(Self { id, secret, headers, body: body.freeze(), held })
    }
}

impl Input for Push {
    fn describe(operation: &mut Operation<'_>) {
        operation.in_path(&json!({ "type": "string", "minLength": 1 }));
        operation.in_header("x-hub-signature", "`method=hex`: the HMAC of the body.");
        operation.in_any_body();
        operation.may(&[Kind::Gone, Kind::MalformedJson, Kind::RequestTimeout, Kind::BodyTooLarge]);
    }
}

/// It is kept, or ignored; a hub is not told which.
pub(crate) struct Accepted;

impl IntoResponse for Accepted {
    fn into_response(self) -> Response {
        StatusCode::ACCEPTED.into_response()
    }
}

impl Output for Accepted {
    fn describe(operation: &mut Operation<'_>) {
        operation.answers_nothing(202, "Taken.");
    }
}

/// `POST /websub/{id}`
pub(crate) async fn receive(
    State(context): State<Arc<Context>>,
    push: Push,
) -> Result<Accepted, Problem> {
    let Push { id, secret, headers, body, held: _held } = push;
    let metrics = &context.state.metrics;
    let signed = match secret {
        Some(secret) => {
            if !is_signed(secret, &headers, body.clone()).await? {
                tracing::info!("a push was ignored: its signature is wrong or missing");
                metrics.pushed(Pushed::Ignored);
                return Ok(Accepted);
            }
            true
        }
        None => false,
    };
    let text = |name: HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        Some(value.chars().take(MAX_HEADER).collect())
    };
    let delivered = Delivered {
        signed,
        content_type: text(header::CONTENT_TYPE),
        coding: text(header::CONTENT_ENCODING),
        body,
    };
    match context.state.store.keep_delivery(id, delivered).await? {
        Taken::Kept => {}
        Taken::Hint => metrics.pushed(Pushed::Hint),
        Taken::Early => metrics.pushed(Pushed::Ignored),
        Taken::Gone => return Err(Problem::new(Kind::Gone, NOBODY)),
    }
    Ok(Accepted)
}

async fn is_signed(secret: String, headers: &HeaderMap, body: Bytes) -> Result<bool, Problem> {
    let said: Vec<&[u8]> = headers.get_all(SIGNATURE).iter().map(HeaderValue::as_bytes).collect();
    // Of two signatures nobody knows which is meant.
    let [said] = said[..] else { return Ok(false) };
    let Some(said) = signature::Said::read(said) else { return Ok(false) };
    if body.len() < CHECK_APART {
        return Ok(said.is_of(secret.as_bytes(), &body));
    }
    let checking = tokio::task::spawn_blocking(move || said.is_of(secret.as_bytes(), &body));
    checking.await.map_err(|_| Problem::new(Kind::Internal, "The signature was not checked."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_lost_where_it_was_too_large_too_slow_or_one_too_many() {
        for (kind, expected) in [
            (Kind::BodyTooLarge, true),
            (Kind::Busy, true),
            (Kind::RequestTimeout, true),
            // Its hub has left, and knows it.
            (Kind::MalformedJson, false),
        ] {
            assert_eq!(is_lost(kind), expected, "{kind:?}");
        }
    }
}
