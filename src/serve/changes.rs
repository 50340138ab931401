//! `GET /v1/changes`: what changed, in the order of commits.
//!
//! Three forms of one stream: a page of JSON, JSON lines up to now
//! (`application/x-ndjson`), and server-sent events that follow
//! (`text/event-stream`). Each event carries its cursor; who comes back with the
//! last one misses nothing. The store is read a page at a time, and only when
//! the client has taken the page before: a slow client costs one page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Context;
use super::extract::{Params, accepts};
use super::openapi::{Input, Operation, Output, media};
use super::problem::{Kind, Problem};
use super::server::Progress;
use super::wire::sources::kinds_of_changes;
use super::wire::{MAX_LIMIT, Time, list_limit_or};
use crate::model::{Lastmod, SourceId, UrlId, UrlKind};
use crate::store::{ChangeCursor, ChangeEvent, ChangeFilter, ChangePage, Store, StoreError};

/// Events of an answer where not said.
const DEFAULT_LIMIT: u32 = 1_000;
/// Events read at once for a stream.
const PART: usize = 200;
/// Streams at once; more are asked to come back.
pub(super) const MAX_STREAMS: usize = 64;
/// Longest that a stream follows: the client comes back with its last event,
/// and connections stay as short-lived as all others.
const FOLLOWS: Duration = Duration::from_secs(590);
/// Time between two signs of life of a stream without events.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The header by which browsers say where they were.
const LAST_SEEN: &str = "last-event-id";
const LINES: &str = "application/x-ndjson";
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Parameters of `GET /v1/changes`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesParams {
    /// A cursor, or `end`; without it all that is kept.
    after: Option<String>,
    /// Most events of a page, 1,000 where not said, or lines, all where not said. What is
    /// followed (`text/event-stream`) has no end, whatever this says.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u64>,
    /// Of this crawl only.
    crawl: Option<String>,
    /// Of this site only.
    site: Option<String>,
    /// Kinds, separated by commas.
    kinds: Option<String>,
}

/// In which form somebody wants the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A page of JSON.
    Page,
    /// JSON lines, up to now.
    Lines,
    /// Server-sent events, which go on.
    Events,
}

/// What the headers ask for.
pub(crate) struct Wanted {
    form: Form,
    /// The last event that a follower has seen.
    after: Option<String>,
    /// How far the client has taken long answers.
    progress: Progress,
}

impl<S: Sync> FromRequestParts<S> for Wanted {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let form = match () {
            () if accepts(&parts.headers, EVENTS, &[LINES, JSON]) => Form::Events,
            () if accepts(&parts.headers, LINES, &[JSON]) => Form::Lines,
            () => Form::Page,
        };
        let seen = parts.headers.get(LAST_SEEN).and_then(|value| value.to_str().ok());
        let after = seen.filter(|id| form == Form::Events && !id.is_empty()).map(str::to_owned);
        let progress = parts.extensions.get::<Progress>().cloned().unwrap_or_default();
        Ok(Self { form, after, progress })
    }
}

impl Input for Wanted {
    fn describe(operation: &mut Operation<'_>) {
        operation.in_header(LAST_SEEN, "Where a stream of events goes on; `after` elsewhere.");
    }
}

/// The stream, in one of its forms.
pub(crate) struct Stream(Response);

impl IntoResponse for Stream {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Output for Stream {
    fn describe(operation: &mut Operation<'_>) {
        let page = operation.written::<Page>();
        // One a line, or the `data` of each event.
        let change = operation.written::<Change>();
        operation.answers(media(&[
            ("application/json", page),
            (LINES, change.clone()),
            (EVENTS, change),
        ]));
    }
}

/// A page.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "ChangePage")]
struct Page {
    /// In the order of their commits.
    changes: Vec<Change>,
    /// The `after` that goes on from here; never null, since further changes come.
    next: String,
    /// Is there more by now?
    more: bool,
}

/// One event.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "ChangeEvent")]
struct Change {
    /// The place behind this event: the `after` that goes on from it.
    cursor: String,
    /// What happened to the URL, or which statements of a robots.txt are others.
    #[schemars(extend("enum" = kinds_of_changes()))]
    kind: &'static str,
    /// When it was committed.
    at: Time,
    /// The row; null of a robots.txt, and of a URL whose row is gone.
    id: Option<UrlId>,
    /// To which URL.
    url: String,
    /// What it is listed as; null of a robots.txt.
    listed_as: Option<UrlKind>,
    /// Its crawl.
    crawl: String,
    /// Its site; null without one.
    site: Option<String>,
    /// The source that said so; null where it is gone.
    source: Option<Source>,
    /// The best evidence, by now, of when the page changed; null without any.
    lastmod: Option<Lastmod>,
    /// Of a robots.txt: its statements that are gone, a line each, the first few; left out of a
    /// URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    /// Of a robots.txt: its statements that are new, a line each, the first few; left out of a
    /// URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "ChangeSource")]
struct Source {
    /// The row.
    id: SourceId,
    /// Where the source is.
    url: String,
}

impl From<ChangeEvent> for Change {
    fn from(event: ChangeEvent) -> Self {
        let (was, now) = event.said.map(|said| (said.was, said.now)).unzip();
        Self {
            cursor: event.cursor.to_string(),
            kind: event.kind,
            at: Time(event.at),
            id: event.id,
            url: event.url,
            listed_as: event.listed_as,
            crawl: event.crawl,
            site: event.site,
            source: event.source.map(|(id, url)| Source { id, url }),
            lastmod: event.lastmod,
            was,
            now,
        }
    }
}

/// Reads the stream on, page after page.
struct Reader {
    store: Store,
    filter: ChangeFilter,
    after: Option<ChangeCursor>,
    moved: watch::Receiver<u64>,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    async fn page(&mut self) -> Result<ChangePage, StoreError> {
        // What is committed from here on wakes the next wait.
        self.moved.mark_unchanged();
        let page = self.store.changes_after(self.after, PART, self.filter.clone()).await?;
        self.after = Some(page.next);
        Ok(page)
    }
}

/// `GET /v1/changes`
pub(crate) async fn changes(
    State(context): State<Arc<Context>>,
    wanted: Wanted,
    Params(params): Params<ChangesParams>,
) -> Result<Stream, Problem> {
    let limit = list_limit_or(params.limit, DEFAULT_LIMIT)?;
    let store = &context.state.store;
    let filter = ChangeFilter {
        crawl: params.crawl,
        site: params.site,
        kinds: kinds(params.kinds.as_deref())?,
    };
    let after = match wanted.after.as_deref().or(params.after.as_deref()) {
        None => None,
        Some("end") => Some(store.end_of_changes().await?),
        Some(text) => {
            Some(text.parse().map_err(|error| Problem::field(format!("after: {error}.")))?)
        }
    };
    if wanted.form == Form::Page {
        let page = store.changes_after(after, limit as usize, filter).await?;
        let page = Page {
            changes: page.changes.into_iter().map(Change::from).collect(),
            next: page.next.to_string(),
            more: page.more,
        };
        return Ok(Stream(Json(page).into_response()));
    }
    // A cursor that is too old is told with a status, not in the stream.
    store.changes_after(after, 0, filter.clone()).await?;
    let place = Arc::clone(&context.streams).try_acquire_owned().map_err(|_| {
        Problem::new(Kind::Busy, format!("There are {MAX_STREAMS} streams already."))
    })?;
    let moved = store.changes_moved();
    let reader = Reader { store: store.clone(), filter, after, moved, _place: place };
    let is_followed = wanted.form == Form::Events;
    Ok(Stream(if is_followed {
        followed(reader, &context, wanted.progress)
    } else {
        let most = params.limit.map_or(usize::MAX, |_| limit as usize);
        lines(reader, most, wanted.progress)
    }))
}

/// JSON lines, up to what is there now or so many, which may take longer than
/// connections last.
fn lines(reader: Reader, most: usize, progress: Progress) -> Response {
    let parts = stream::unfold(Some((reader, most, progress)), |reading| async move {
        let (mut reader, most, progress) = reading?;
        progress.goes_on();
        let page = match reader.page().await {
            Ok(page) => page,
            // The answer breaks off: its end would say that this was all.
            Err(error) => return Some((Err(std::io::Error::other(error)), None)),
        };
        let mut text = String::new();
        let left = most.saturating_sub(page.changes.len());
        for change in page.changes.into_iter().take(most) {
            text += &serde_json::to_string(&Change::from(change)).unwrap_or_default();
            text.push('\n');
        }
        let goes_on = page.more && left > 0;
        Some((Ok(Bytes::from(text)), goes_on.then_some((reader, left, progress))))
    });
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(LINES));
    ([kind], Body::from_stream(parts)).into_response()
}

/// Server-sent events: what is there, then what comes, until it is time for
/// another connection.
fn followed(reader: Reader, context: &Context, progress: Progress) -> Response {
    let mut follower = Follower {
        look_again: reader.store.look_again().unwrap_or(FOLLOWS),
        reader,
        known: None,
        is_at_end: false,
        stop: context.stop.clone(),
        until: Instant::now() + FOLLOWS,
    };
    let first = stream::iter(follower.place());
    let parts = stream::unfold(Some(follower), |follower| async move {
        let (events, then) = follower?.next().await;
        Some((stream::iter(events), then))
    });
    let events = first.chain(parts.flatten()).map(Ok::<_, Infallible>);
    let alive = KeepAlive::new().interval(HEARTBEAT);
    // Signs of life count as well: the connection may have its age when this begins, and
    // there may be nothing else to send.
    Sse::new(events).keep_alive(alive).into_response().map(|body| progress.counting(body))
}

/// One who follows, and how far it knows that it has come: with a filter, or
/// from `end` on, that may be far beyond the last event that it was sent.
struct Follower {
    reader: Reader,
    /// The last id that it was sent.
    known: Option<ChangeCursor>,
    is_at_end: bool,
    stop: CancellationToken,
    until: Instant,
    look_again: Duration,
}

impl Follower {
    /// The next events, and who goes on; nobody when the stream ends.
    async fn next(mut self) -> (Vec<Event>, Option<Self>) {
        // After an error the client comes back and is told with a status.
        let page = if self.goes_on().await { self.reader.page().await.ok() } else { None };
        let Some(page) = page else { return (self.place().into_iter().collect(), None) };
        self.is_at_end = !page.more;
        let Some(last) = page.changes.last() else {
            return (self.place().into_iter().collect(), Some(self));
        };
        self.known = Some(last.cursor);
        (page.changes.into_iter().map(sent).collect(), Some(self))
    }

    /// Waits for something to read; is it not time to end?
    async fn goes_on(&mut self) -> bool {
        if self.is_at_end {
            tokio::select! {
                () = self.stop.cancelled() => return false,
                () = tokio::time::sleep_until(self.until) => return false,
                moved = self.reader.moved.changed() => if moved.is_err() { return false },
                () = tokio::time::sleep(self.look_again) => {}
            }
        }
        !self.stop.is_cancelled() && Instant::now() < self.until
    }

    /// The place that was read up to, if it is not known yet: an id without data,
    /// which browsers keep for when they come back, and tell nobody of.
    fn place(&mut self) -> Option<Event> {
        let at = self.reader.after.filter(|at| self.known != Some(*at))?;
        self.known = Some(at);
        Some(Event::default().id(at.to_string()))
    }
}

fn sent(event: ChangeEvent) -> Event {
    let change = Change::from(event);
    let data = serde_json::to_string(&change).unwrap_or_default();
    Event::default().id(change.cursor).event(change.kind).data(data)
}

fn kinds(text: Option<&str>) -> Result<Vec<&'static str>, Problem> {
    let known = kinds_of_changes();
    let words = text.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            known.iter().copied().find(|kind| *kind == word).ok_or_else(|| {
                Problem::field(format!("kinds: {word:?} is none of {}.", known.join(", ")))
            })
        })
        .collect()
}
