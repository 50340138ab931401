//! One URL: where it stands, why it is due when it is, what happened to it.

use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::orders::{Done, Verb, button};
use super::table::{facts, number, table, words};
use super::{Look, Sheet, link, site_link, source_link, text, when};
use crate::serve::Context;
use crate::serve::extract::Params;
use crate::serve::openapi::Html;
use crate::serve::problem::Problem;
use crate::serve::wire::{DEFAULT_CRAWL, MAX_NAME_CHARS, grouped, name, web_url};
use crate::store::StoreError;
use crate::store::pages::SourceLine;
use crate::store::views::{ChangeView, Learned, UrlState, UrlView};

/// Sources shown of one URL.
const SOURCES: usize = 50;

/// Parameters of the page of a URL.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UrlLook {
    /// As people paste it; `https://` may be left out.
    url: String,
    /// In this crawl; in the first that has it where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// What an order has just done.
    did: Option<Done>,
    /// To how many.
    n: Option<u64>,
}

/// `GET /url`
pub(crate) async fn url_page(
    State(context): State<Arc<Context>>,
    Params(look): Params<UrlLook>,
) -> Result<Html, Problem> {
    let store = &context.state.store;
    let given = look.url.trim();
    let given = if given.contains("://") { given.to_owned() } else { format!("https://{given}") };
    let url = web_url("url", &given)?;
    let crawl = look.crawl.map(|text| name("crawl", text)).transpose()?;
    let said = Look { did: look.did, n: look.n, ..Look::default() };
    let sheet = Sheet::new("URL", "/url", &said);
    let sources = store.sources_at(url.clone()).await?;
    let view = match store.url(crawl.clone(), url.clone()).await {
        Ok(view) => view,
        Err(StoreError::NotFound(_)) => {
            return Ok(sheet.of(&unknown(url.as_str(), crawl.as_deref(), &sources)));
        }
        Err(error) => return Err(error.into()),
    };
    let witnesses = view.sources.iter().map(|(id, _)| *id).collect();
    let changes = store.changes_of_url(view.id, witnesses).await?;
    Ok(sheet.of(&html! {
        (as_source(&sources))
        (about(&view, store.now()))
        h2 { "History" }
        (history(&view, &changes, store.now()))
        @if let Some(learned) = &view.learned { (numbers(learned, store.now())) }
        h2 { "Sources that list it" }
        (listed_by(&view))
    }))
}

fn unknown(url: &str, crawl: Option<&str>, sources: &[SourceLine]) -> Markup {
    let crawl = crawl.unwrap_or(DEFAULT_CRAWL);
    let fields = [("url", url), ("crawl", crawl)];
    html! {
        p { strong { (link(url)) } }
        (as_source(sources))
        p { "No source has listed this URL, and nobody has pushed it." }
        p.quiet { "It can be blocked all the same, in the crawl " (text(crawl)) "." }
        div.row {
            (button(Verb::BlockUrl, &fields, "Block", url))
            (button(Verb::UnblockUrl, &fields, "Unblock", url))
        }
    }
}

fn as_source(sources: &[SourceLine]) -> Markup {
    html! {
        @for source in sources {
            p { "It is a source" @if let Some(site) = &source.site { " of the site " (site_link(Some(site))) }
                ": " (source_link(source.id, "its report")) }
        }
    }
}

fn about(view: &UrlView, now: Timestamp) -> Markup {
    let state = serde_json::to_value(view.state).ok();
    let state = state.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    let is_held = !matches!(view.state, UrlState::Queued | UrlState::Leased);
    html! {
        p { strong { (link(&view.url)) } }
        (facts(&[
            ("State", html! { span.bad[is_held] { (state) }
                @if !view.listed { ", listed by no source any more" } }),
            ("Due", html! { @if view.due_at.is_some() { (when(view.due_at, now)) } }),
            ("Why", html! { (text(&view.why)) }),
            ("Reason", html! { (view.reason.as_str()) }),
            ("Leased until", html! { @if view.leased_until.is_some() {
                (when(view.leased_until, now))
                @if let Some(worker) = &view.worker { " by " (text(worker)) } } }),
            ("Attempts without success", html! { (grouped(view.attempt)) }),
            ("Site", site_link(view.site.as_deref())),
            ("Crawl", html! { (text(&view.crawl)) }),
            ("Host", html! { (text(&view.host)) }),
            ("Kind", html! { (view.kind.as_str()) }),
            ("As listed", html! { @if let Some(raw) = &view.raw { (text(raw)) } }),
            ("Listed changefreq", html! { @if let Some(freq) = view.changefreq { (freq.as_str()) } }),
            ("Listed priority", html! { @if let Some(priority) = view.priority { (format!("{:.1}", priority.as_f64())) } }),
        ]))
        (orders(view))
    }
}

fn orders(view: &UrlView) -> Markup {
    let fields = [("url", view.url.as_str()), ("crawl", view.crawl.as_str())];
    html! {
        div.row {
            @if view.state == UrlState::Dead {
                (button(Verb::Replay, &fields, "Replay", &view.url))
            }
            @if view.state == UrlState::Blocked {
                (button(Verb::UnblockUrl, &fields, "Unblock", &view.url))
            } @else {
                (button(Verb::Requeue, &fields, "Fetch soon", &view.url))
                (button(Verb::BlockUrl, &fields, "Block", &view.url))
            }
        }
        @if view.state == UrlState::Blocked {
            p.quiet { "Held by a block of all that begin so? " a href="/blocks" { "Blocks" } " lifts that." }
        }
    }
}

fn history(view: &UrlView, changes: &[ChangeView], now: Timestamp) -> Markup {
    let columns = [words("when"), words("what")];
    let rows: Vec<_> = changes
        .iter()
        .take(100)
        .map(|change| vec![when(Some(change.at), now), html! { (change.kind) }])
        .collect();
    html! {
        (facts(&[
            ("First seen", when(Some(view.first_seen), now)),
            ("Lastmod", html! { @if let Some(lastmod) = &view.lastmod { (lastmod) } }),
            ("Lastmod before", html! { @if let Some(lastmod) = &view.previous_lastmod { (lastmod) } }),
            ("Last fetched", html! {
                (when(view.fetched_at, now))
                @if let Some(outcome) = view.outcome { ": " (outcome.as_str()) }
                @if let Some(status) = view.status { ", HTTP " (status) }
            }),
            ("What went wrong", html! { @if let Some(error) = &view.error { (text(error)) } }),
            ("Canonical", html! { @if let Some(canonical) = &view.canonical { (text(canonical)) } }),
            ("Indexing", html! { @if view.noindex { "the page asks not to be indexed" } }),
            ("Fetches", html! { (grouped(view.fetches)) ", of which " (grouped(view.changes)) " found a change" }),
            ("Content hash", html! { @if let Some(hash) = &view.content_hash {
                code { (text(hash)) } @if let Some(kind) = &view.hash_kind { " (" (text(kind)) ")" } } }),
            ("Fresh until", html! { @if view.fresh_until.is_some() { (when(view.fresh_until, now)) } }),
            ("Expires", html! { @if view.expires_at.is_some() { (when(view.expires_at, now)) } }),
        ]))
        (table(
            "What its sources said of it, newest first, as far as their newest changes tell",
            "Nothing in the newest changes of its sources.",
            &columns,
            &rows,
        ))
    }
}

fn numbers(learned: &Learned, now: Timestamp) -> Markup {
    let numbers = &learned.numbers;
    let pending: Vec<_> =
        learned.pending.iter().map(|(signal, count)| format!("{count} {signal}")).collect();
    let columns = [words("number"), number("value")];
    let row = |name: &str, value: f64| vec![html! { (name) }, html! { (format!("{value:.3}")) }];
    let rows = [
        row("changes a day that are expected", numbers.rate),
        row("of these, without any signal", numbers.silent_rate),
        row("changes expected since it was seen", numbers.expected_changes),
        row("of these, signalled", numbers.expected_signalled),
        row("value of a fetch now, in days of staleness", numbers.value),
        row("price of a fetch", numbers.price),
        row("its host's lastmod is right, of 1", numbers.lastmod_right),
        row("priority", numbers.priority),
        row("mean priority of its site", numbers.site_priority),
        row("days between fetches in the protocol's order", numbers.protocol_days),
    ];
    html! {
        h2 { "What its due time rests on" }
        p { "A fetcher last saw it " (when(Some(learned.seen_at), now)) "."
            @if !pending.is_empty() { " Since then: " (pending.join(", ")) "." } }
        (table("It is due when the value of a fetch has risen to the price", "", &columns, &rows))
    }
}

fn listed_by(view: &UrlView) -> Markup {
    let columns = [words("source"), words("weight")];
    let rows: Vec<_> = view
        .sources
        .iter()
        .take(SOURCES)
        .enumerate()
        .map(|(place, (id, url))| {
            let weight = if place == 0 { "its evidence counts first" } else { "listed too" };
            vec![source_link(*id, url), html! { (weight) }]
        })
        .collect();
    html! {
        (table("Sources", "No source lists it.", &columns, &rows))
        @if view.sources.len() > SOURCES { p.quiet { "And " (grouped(view.sources.len() - SOURCES)) " more." } }
    }
}
