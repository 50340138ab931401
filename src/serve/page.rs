//! The status page: the whole at a glance for a person with a browser.
//!
//! Plain HTML without script, a table per thing, refreshed by the browser. All
//! text from outside is escaped by the template; only http and https URLs
//! become links; the policy header forbids everything that is not needed.

use std::sync::Arc;

use axum::extract::State;
use bytesize::ByteSize;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Context;
use super::openapi::{Css, Html};
use super::problem::Problem;
use super::show::read_status;
use super::wire::{Span, Time, clip, grouped, web_url};
use crate::store::views::{Counts, PollView, QueueView, SiteView, StatusView};
use jiff::Timestamp;

/// Sites shown; the API lists all.
const MAX_SITES: usize = 200;
/// Polls shown, newest first.
const LAST_POLLS: u32 = 30;
/// Characters of a text from outside.
const MAX_TEXT: usize = 120;
/// Nothing is loaded but our style, nothing may frame us, nothing is submitted.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin: 0; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p { margin: .3rem 0; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8884; padding: .25rem .6rem; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
.n { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; white-space: nowrap; }
.t { white-space: nowrap; }
.bad { color: #c33; }
";

/// What the page shows.
struct Shown {
    status: StatusView,
    sites: Vec<SiteView>,
    polls: Vec<PollView>,
}

/// `GET /`
pub(crate) async fn page(State(context): State<Arc<Context>>) -> Result<Html, Problem> {
    let store = &context.state.store;
    let status = read_status(&context).await?;
    let shown =
        Shown { status, sites: store.sites().await?, polls: store.last_polls(LAST_POLLS).await? };
    Ok(Html { text: render(&shown).into_string(), policy: POLICY })
}

/// `GET /status.css`
pub(crate) async fn style() -> Css {
    Css(STYLE)
}

fn render(shown: &Shown) -> Markup {
    let status = &shown.status;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content="15";
                title { "sitemapd" }
                link rel="stylesheet" href="/status.css";
            }
            body {
                (summary(status))
                (queues(&status.queues, status.now))
                (sites(&shown.sites, status.now))
                (polls(&shown.polls, status.now))
            }
        }
    }
}

fn summary(status: &StatusView) -> Markup {
    let polls: u64 = status.polls_24h.values().sum();
    html! {
        h1 { "sitemapd " (status.version) }
        p {
            (grouped(status.sites)) " sites, " (grouped(status.sources)) " sources ("
            (grouped(status.sources_due)) " due, " (grouped(status.sources_failing)) " failing), "
            (grouped(status.urls)) " URLs, "
            (ByteSize(status.store_bytes + status.wal_bytes)) " on disk. "
            @if let Some(started) = status.started_at {
                "Up for " (Span(between(started, status.now))) "."
            }
        }
        p {
            "In 24 hours: " (grouped(polls)) " polls, URLs " (counts(&status.changes_24h)) "."
        }
    }
}

fn queues(queues: &[QueueView], now: Timestamp) -> Markup {
    html! {
        h2 { "Queue" }
        table {
            tr {
                th { "crawl" } th.n { "queued" } th.n { "due" } th.n { "leased" } th.n { "dead" }
                th.n { "parked" } th.n { "blocked" } th.n { "forbidden" } th.n { "hosts" }
                th { "next due" } th { "oldest lease" }
            }
            @for queue in queues {
                tr {
                    td { (text(&queue.crawl)) @if queue.paused { " " span.bad { "paused" } } }
                    @for count in [
                        queue.queued, queue.due, queue.leased, queue.dead, queue.parked,
                        queue.blocked, queue.forbidden, queue.hosts,
                    ] {
                        td.n { (grouped(count)) }
                    }
                    td.t { (when(queue.next_due_at, now)) }
                    td.t { (when(queue.oldest_lease_at, now)) }
                }
            }
        }
    }
}

fn sites(sites: &[SiteView], now: Timestamp) -> Markup {
    html! {
        h2 { "Sites" }
        table {
            tr {
                th { "site" } th { "home" } th { "state" } th.n { "sources" } th.n { "failing" }
                th.n { "URLs" } th { "last poll" } th { "next poll" }
            }
            @for site in sites.iter().take(MAX_SITES) {
                tr {
                    td { (text(&site.name)) }
                    td { (link(&site.url)) }
                    td { (text(&site.state)) }
                    td.n { (grouped(site.sources)) }
                    td.n.bad[site.failing > 0] { (grouped(site.failing)) }
                    td.n { (grouped(site.urls)) }
                    td.t { (when(site.last_poll_at, now)) }
                    td.t { (when(site.next_poll_at, now)) }
                }
            }
        }
        @if sites.len() > MAX_SITES {
            p { "And " (grouped(sites.len() - MAX_SITES)) " more: see /v1/sites." }
        }
    }
}

fn polls(polls: &[PollView], now: Timestamp) -> Markup {
    html! {
        h2 { "Last polls" }
        table {
            tr {
                th { "when" } th { "source" } th { "result" } th.n { "HTTP" } th.n { "entries" }
                th { "URLs" } th.n { "took" }
            }
            @for poll in polls {
                tr {
                    td.t { (when(Some(poll.at), now)) }
                    td { (link(&poll.url)) }
                    td {
                        (text(&poll.result))
                        @if let Some(error) = &poll.error { " " span.bad { (text(error)) } }
                    }
                    td.n { @if let Some(status) = poll.http_status { (status) } }
                    td.n { (grouped(poll.entries)) }
                    td { (counts(&poll.counts)) }
                    td.n { (Span(poll.took)) }
                }
            }
        }
    }
}

/// What became of URLs, without the zeros.
fn counts(counts: &Counts) -> String {
    let parts: Vec<_> =
        counts.told().map(|(count, word)| format!("{} {word}", grouped(count))).collect();
    if parts.is_empty() { "as before".to_owned() } else { parts.join(", ") }
}

/// A text from outside: cut, control and direction marks made visible.
fn text(outside: &str) -> String {
    let safe = |c: char| {
        let steers = c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if steers { char::REPLACEMENT_CHARACTER } else { c }
    };
    clip(outside.chars().take(MAX_TEXT).map(safe).collect(), MAX_TEXT)
}

/// A link, if it is one to the web.
fn link(url: &str) -> Markup {
    let target = web_url("url", url).ok();
    html! {
        @if let Some(target) = target {
            a href=(target.as_str()) rel="noreferrer noopener" { (text(url)) }
        } @else {
            (text(url))
        }
    }
}

/// An instant as people read it beside a clock: `2m ago`, `in 1h 3m`.
fn when(at: Option<Timestamp>, now: Timestamp) -> Markup {
    let Some(at) = at else { return PreEscaped("–".to_owned()) };
    let away = between(at, now);
    let relative = match at.cmp(&now) {
        std::cmp::Ordering::Greater => format!("in {}", Span(away)),
        _ if away.is_zero() => "now".to_owned(),
        _ => format!("{} ago", Span(away)),
    };
    html! { time datetime=(Time(at)) title=(Time(at)) { (relative) } }
}

/// The time between two instants, in at most two units.
fn between(one: Timestamp, other: Timestamp) -> std::time::Duration {
    let seconds = (other.as_second() - one.as_second()).unsigned_abs();
    let unit = match seconds {
        0..3_600 => 1,
        3_600..86_400 => 60,
        _ => 3_600,
    };
    std::time::Duration::from_secs(seconds / unit * unit)
}

#[cfg(test)]
mod tests;
