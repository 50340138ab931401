//! Orders from the pages: one route takes all forms, does what the API does,
//! and leads back to a page that says what was done.
//!
//! Where it leads is worked out here and never read from the form. A browser
//! says with each form whose page it is of; the gate refuses those of others,
//! and what says nothing is no form of a page and is refused here, since a
//! form, unlike JSON, could be sent by anybody's page.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{path_of_site, query};
use crate::model::SourceId;
use crate::serve::Context;
use crate::serve::extract::read_bytes;
use crate::serve::openapi::{Input, Operation, Output};
use crate::serve::operate::to_the_end;
use crate::serve::ping::read_id;
use crate::serve::problem::{Kind, Problem};
use crate::serve::wire::{MAX_NAME_CHARS, MAX_URL_CHARS, crawl, grouped, name, web_url};

/// Bytes of a form: one URL, every byte of it escaped, and some more.
const MAX_FORM: usize = 3 * MAX_URL_CHARS + (8 << 10);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verb {
    PauseCrawl,
    ResumeCrawl,
    PauseSite,
    ResumeSite,
    PollSite,
    PollSource,
    Requeue,
    BlockUrl,
    UnblockUrl,
    BlockPrefix,
    UnblockPrefix,
    Replay,
    ReplayAll,
    Grant,
    Drop,
}

/// A form: what is to be done, and to what.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderForm {
    /// What is to be done; which of the other fields it takes goes by that.
    #[serde(rename = "do")]
    verb: Verb,
    /// `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    site: Option<String>,
    /// A row number.
    source: Option<String>,
    /// A URL, or the beginning of URLs.
    #[schemars(length(max = MAX_URL_CHARS))]
    url: Option<String>,
    /// The id of one.
    submission: Option<String>,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Done {
    Paused,
    Resumed,
    MadeDue,
    Requeued,
    Blocked,
    BlockedBelow,
    Unblocked,
    Replayed,
    Granted,
    Dropped,
}

impl Done {
    /// In a sentence.
    pub(super) fn told(self, count: Option<u64>) -> String {
        let count = count.unwrap_or(0);
        let of = |one: &str, many: &str| {
            if count == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(count)) }
        };
        match self {
            Self::Paused => "Paused.".to_owned(),
            Self::Resumed => "Going on.".to_owned(),
            Self::MadeDue => format!("{} due now.", of("source is", "sources are")),
            Self::Requeued => format!("{} due now.", of("URL is", "URLs are")),
            Self::Blocked => {
                format!("Blocked; {} out of the queue.", of("URL was taken", "URLs were taken"))
            }
            Self::BlockedBelow => "Blocked; what begins so is held when its turn comes.".to_owned(),
            Self::Unblocked => format!("Unblocked; {} back.", of("URL came", "URLs came")),
            Self::Replayed => format!("{} back in the queue.", of("URL is", "URLs are")),
            Self::Granted => "It is a source now, and due.".to_owned(),
            Self::Dropped => "The submission was dropped.".to_owned(),
        }
    }
}

impl FromRequest<Arc<Context>> for OrderForm {
    type Rejection = Problem;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let headers = &parts.headers;
        if !headers.contains_key(header::ORIGIN) && !headers.contains_key("sec-fetch-site") {
            return Err(Problem::new(
                Kind::ForeignOrigin,
                "A form says whose page it is of (Origin); programs have the routes below /v1.",
            ));
        }
        let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Problem::field("The body is no form; programs have the routes below /v1."));
        }
        let (bytes, _held) = read_bytes(&parts, body, MAX_FORM, &context.bodies).await?;
        read(&bytes)
    }
}

/// Reads a form; fields that were left empty are not there.
fn read(bytes: &[u8]) -> Result<OrderForm, Problem> {
    let pairs = url::form_urlencoded::parse(bytes).filter(|(_, value)| !value.is_empty());
    let fields: Map<String, Value> =
        pairs.map(|(name, value)| (name.into_owned(), Value::String(value.into_owned()))).collect();
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| Problem::field(format!("In the form: {error}.")))
}

impl Input for OrderForm {
    fn describe(operation: &mut Operation<'_>) {
        operation.in_form::<Self>();
    }
}

/// The page that says what was done.
pub(crate) struct Back(String);

impl Output for Back {
    fn describe(operation: &mut Operation<'_>) {
        operation.answers_nothing(303, "Done; `Location` is the page that says what.");
    }
}

impl IntoResponse for Back {
    fn into_response(self) -> Response {
        Redirect::to(&self.0).into_response()
    }
}

/// `POST /order`
pub(crate) async fn order(
    State(context): State<Arc<Context>>,
    form: OrderForm,
) -> Result<Back, Problem> {
    match form.verb {
        Verb::PauseCrawl | Verb::ResumeCrawl | Verb::PauseSite | Verb::ResumeSite => {
            pause(&context, form).await
        }
        Verb::PollSite | Verb::PollSource | Verb::Grant | Verb::Drop => poll(&context, form).await,
        _ => queue(&context, form).await,
    }
}

async fn pause(context: &Context, form: OrderForm) -> Result<Back, Problem> {
    let store = &context.state.store;
    let pauses = matches!(form.verb, Verb::PauseCrawl | Verb::PauseSite);
    let done = if pauses { Done::Paused } else { Done::Resumed };
    if matches!(form.verb, Verb::PauseCrawl | Verb::ResumeCrawl) {
        store.pause_crawl(crawl(form.crawl)?, pauses).await?;
        return Ok(back("/", &[], done, 1));
    }
    let site = site(form.site)?;
    store.pause_site(site.clone(), pauses).await?;
    Ok(back(&path_of_site(&site), &[], done, 1))
}

async fn poll(context: &Context, form: OrderForm) -> Result<Back, Problem> {
    let store = &context.state.store;
    let submission = || read_id(form.submission.as_deref().unwrap_or_default());
    match form.verb {
        Verb::PollSource => {
            let id: i64 = form
                .source
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| Problem::field("source is no row number."))?;
            store.poll_source(SourceId(id)).await?;
            Ok(back(&format!("/source/{id}"), &[], Done::MadeDue, 1))
        }
        Verb::Grant => {
            let source = store.grant(submission()?, site(form.site)?).await?;
            Ok(back(&format!("/source/{source}"), &[], Done::Granted, 1))
        }
        Verb::Drop => {
            store.forget_submission(submission()?).await?;
            Ok(back("/submissions", &[], Done::Dropped, 1))
        }
        _ => {
            let site = site(form.site)?;
            let due = store.poll_site(site.clone()).await?;
            Ok(back(&path_of_site(&site), &[], Done::MadeDue, due))
        }
    }
}

async fn queue(context: &Context, form: OrderForm) -> Result<Back, Problem> {
    let store = context.state.store.clone();
    let crawl = crawl(form.crawl)?;
    if form.verb == Verb::ReplayAll {
        let replaying = async move { store.replay(crawl, Vec::new()).await };
        return Ok(back("/dead", &[], Done::Replayed, to_the_end(replaying).await?));
    }
    let url = web_url("url", form.url.as_deref().unwrap_or_default().trim())?.to_string();
    let here = [("url", url.as_str()), ("crawl", crawl.as_str())];
    let (name, target) = (crawl.clone(), url.clone());
    Ok(match form.verb {
        Verb::BlockPrefix => {
            to_the_end(async move { store.block(name, target, true).await }).await?;
            back("/blocks", &[], Done::BlockedBelow, 0)
        }
        Verb::UnblockPrefix => {
            let lifting = async move { store.unblock(name, target, true).await };
            back("/blocks", &[], Done::Unblocked, to_the_end(lifting).await?)
        }
        Verb::BlockUrl => {
            let blocking = async move { store.block(name, target, false).await };
            back("/url", &here, Done::Blocked, to_the_end(blocking).await?)
        }
        Verb::UnblockUrl => {
            let lifting = async move { store.unblock(name, target, false).await };
            back("/url", &here, Done::Unblocked, to_the_end(lifting).await?)
        }
        Verb::Replay => {
            let replayed = store.replay(name, vec![target]).await?;
            back("/url", &here, Done::Replayed, replayed)
        }
        _ => {
            let requeued = store.requeue(name, vec![target]).await?;
            back("/url", &here, Done::Requeued, requeued)
        }
    })
}

fn site(given: Option<String>) -> Result<String, Problem> {
    name("site", given.unwrap_or_default())
}

fn back(path: &str, pairs: &[(&str, &str)], done: Done, count: u64) -> Back {
    // A word of ours, which serialises as one.
    let word = serde_json::to_value(done).ok();
    let word = word.as_ref().and_then(Value::as_str).unwrap_or_default();
    let count = count.to_string();
    let all = [pairs, &[("did", word), ("n", &count)]].concat();
    Back(format!("{path}?{}", query(&all)))
}

/// A button that gives an order; `of` says to those who do not see where it
/// stands what it is about.
pub(super) fn button(verb: Verb, fields: &[(&str, &str)], label: &str, of: &str) -> Markup {
    html! {
        form method="post" action="/order" {
            (hidden(verb, fields))
            button aria-label={ (label) ": " (super::text(of)) } { (label) }
        }
    }
}

/// The fields of a form that nobody fills in.
pub(super) fn hidden(verb: Verb, fields: &[(&str, &str)]) -> Markup {
    let word = serde_json::to_value(verb).ok();
    html! {
        input type="hidden" name="do" value=(word.as_ref().and_then(Value::as_str).unwrap_or_default());
        @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_whole_and_with_nothing_that_is_not_known() {
        let form =
            read(b"do=block-prefix&crawl=&url=https%3A%2F%2Fa.example%2F%3Fx%3D1").expect("a form");
        assert_eq!((form.verb, form.crawl), (Verb::BlockPrefix, None));
        assert_eq!(form.url.as_deref(), Some("https://a.example/?x=1"));
        for wrong in ["", "do=explode", "do=requeue&back=https%3A%2F%2Fevil.example", "crawl=a"] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_done_is_told_in_our_own_words_only() {
        let Back(to) = back("/url", &[("url", "https://a.example/?a=1&b=2")], Done::Blocked, 1);
        assert_eq!(to, "/url?url=https%3A%2F%2Fa.example%2F%3Fa%3D1%26b%3D2&did=blocked&n=1");
        assert_eq!(Done::Blocked.told(Some(1)), "Blocked; 1 URL was taken out of the queue.");
        assert_eq!(Done::MadeDue.told(Some(1_000)), "1,000 sources are due now.");
    }
}
