//! One site with its sources, and one source with its report and its polls.

use std::sync::Arc;

use axum::extract::State;
use bytesize::ByteSize;
use jiff::Timestamp;
use maud::{Markup, html};

use super::lists::polls_of_source;
use super::orders::{Verb, button};
use super::table::{facts, number, table, words};
use super::{Look, Sheet, link, onward, path_of_site, site_link, source_link, text, when};
use crate::model::SourceId;
use crate::parse::{Issue, Severity};
use crate::recrawl::signal::Signal;
use crate::serve::Context;
use crate::serve::extract::{Params, RowId, Segment};
use crate::serve::openapi::Html;
use crate::serve::problem::Problem;
use crate::serve::wire::grouped;
use crate::store::pages::SourceLine;
use crate::store::views::{PushView, SignalView, SiteView, SourceView, Trusted};

/// `GET /site/{name}`
pub(crate) async fn site_page(
    State(context): State<Arc<Context>>,
    Segment(name): Segment,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let store = &context.state.store;
    let site = store.site(name.clone()).await?;
    let sources = store.sources_of_site(name, look.row()?).await?;
    let path = path_of_site(&site.name);
    let title = format!("Site {}", site.name);
    Ok(Sheet::new(&title, &path, &look).of(&html! {
        (about_site(&site, store.now()))
        h2 { "Sources" }
        (sources_table(&sources.items, store.now()))
        (onward(&path, sources.next))
    }))
}

fn about_site(site: &SiteView, now: Timestamp) -> Markup {
    let name = [("site", site.name.as_str())];
    let is_paused = site.state == "paused";
    html! {
        (facts(&[
            ("Home", link(&site.url)),
            ("State", html! { span.bad[is_paused] { (text(&site.state)) } }),
            ("Crawl", html! { (text(&site.crawl)) }),
            ("Origin", html! { (text(&site.origin)) }),
            ("URLs", html! { (grouped(site.urls)) }),
            ("Sources", html! { (grouped(site.sources)) ", of which " (grouped(site.failing)) " fail" }),
            ("Last poll", when(site.last_poll_at, now)),
            ("Next poll", when(site.next_poll_at, now)),
        ]))
        div.row {
            @if site.state == "unregistered" {
                "It has left the configuration. To drop what is kept of it: "
                code { "sitemapd sites forget " (text(&site.name)) }
            } @else {
                (button(Verb::PollSite, &name, "Poll now", &site.name))
                @if is_paused {
                    (button(Verb::ResumeSite, &name, "Resume", &site.name))
                } @else {
                    (button(Verb::PauseSite, &name, "Pause", &site.name))
                }
            }
        }
    }
}

fn sources_table(sources: &[SourceLine], now: Timestamp) -> Markup {
    let columns = [
        words("source"),
        words("role"),
        words("status"),
        number("entries"),
        words("last poll"),
        words("next poll"),
        words("trouble"),
    ];
    let row = |source: &SourceLine| {
        vec![
            source_link(source.id, &source.url),
            html! { (source.role.as_str()) },
            html! { (if source.is_retired { "retired" } else { source.status.as_str() }) },
            html! { (grouped(source.entries)) },
            when(source.last_poll_at, now),
            when(source.next_poll_at, now),
            html! { @if let Some(error) = &source.error { span.bad { (text(error)) } } },
        ]
    };
    let rows: Vec<_> = sources.iter().map(row).collect();
    table("Sources of this site", "It has no sources.", &columns, &rows)
}

/// `GET /source/{id}`
pub(crate) async fn source_page(
    State(context): State<Arc<Context>>,
    RowId(id): RowId,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let store = &context.state.store;
    let (source, polls) = store.source(SourceId(id)).await?;
    let now = store.now();
    let path = format!("/source/{id}");
    Ok(Sheet::new("Source", &path, &look).of(&html! {
        (about_source(&source, now))
        h2 { "Defects of the last read" }
        (issues_table(&source.issues))
        h2 { "Polls" }
        (polls_of_source(&polls, now))
        @if let Some(trust) = &source.trust { (trust_of(trust)) }
        @if let Some(push) = &source.push { (push_of(push, now)) }
    }))
}

fn about_source(source: &SourceView, now: Timestamp) -> Markup {
    let id = source.id.to_string();
    let admitted: Vec<_> =
        source.admitted.iter().map(|(what, count)| format!("{} {what}", grouped(*count))).collect();
    let is_well = source.status == "success" || source.status == "pending";
    html! {
        p { strong { (link(&source.url)) } }
        (facts(&[
            ("Status", html! { span.bad[!is_well] { (text(&source.status)) } " (" (text(&source.state)) ")" }),
            ("Trouble", html! { @if let Some(error) = &source.error { span.bad { (text(error)) } } }),
            ("Next poll", html! { (when(source.next_poll_at, now)) }),
            ("Why then", html! { (text(&source.why)) }),
            ("Site", site_link(source.site.as_deref())),
            ("Kind", html! {
                (source.kind.map_or("not read yet", crate::model::DocumentKind::as_str))
                ", asked for as " (source.role.as_str())
                @if source.window { ", a window: what is absent means nothing" }
            }),
            ("Named by", html! { (text(&source.named_by))
                @if let Some(parent) = source.parent { ", listed by " (source_link(parent, "its index")) } }),
            ("HTTP status", html! { @if let Some(status) = source.http_status { (status) } }),
            ("Failures in a row", html! { (grouped(source.failures)) }),
            ("Entries", html! { (grouped(source.entries))
                @if !admitted.is_empty() { " (" (text(&admitted.join(", "))) ")" } }),
            ("Size", html! { (ByteSize(source.bytes)) }),
            ("Registered", when(Some(source.submitted_at), now)),
            ("Last poll", when(source.last_poll_at, now)),
            ("Last success", when(source.last_success_at, now)),
            ("Last change", when(source.last_changed_at, now)),
        ]))
        @if source.state != "retired" {
            div.row { (button(Verb::PollSource, &[("source", &id)], "Poll now", &source.url)) }
        }
    }
}

fn issues_table(issues: &[Issue]) -> Markup {
    let columns = [
        words("defect"),
        words("weight"),
        number("times"),
        number("first in line"),
        words("there"),
        words("what to do"),
    ];
    let row = |issue: &Issue| {
        let weight = match issue.severity {
            Severity::Warning => html! { span.warn { "warning" } },
            Severity::Error => html! { span.bad { "error" } },
            Severity::Fatal => html! { span.bad { "fatal" } },
        };
        vec![
            html! { (issue.code.title()) },
            weight,
            html! { (grouped(issue.count)) },
            html! { @if issue.line > 0 { (grouped(issue.line)) } },
            html! { @if !issue.sample.is_empty() { code { (text(&issue.sample)) } } },
            html! { (issue.code.advice()) },
        ]
    };
    let rows: Vec<_> = issues.iter().map(row).collect();
    table("What is wrong with the document", "None were found.", &columns, &rows)
}

fn trust_of(trust: &Trusted) -> Markup {
    let columns = [words("signal"), words("of"), words("is"), number("right"), number("of looks")];
    let row = |of: &'static str| {
        move |(signal, view): &(Signal, SignalView)| {
            let SignalView { record, is_believed } = view;
            vec![
                html! { (signal.as_str()) },
                html! { (of) },
                html! { @if *is_believed { span.good { "believed" } } @else { span.quiet { "not believed" } } },
                html! { (format!("{:.1}", record.hits)) },
                html! { (format!("{:.1}", record.looks)) },
            ]
        }
    };
    let own = trust.signals.iter().map(row("this source"));
    let rows: Vec<_> = own.chain(trust.host.iter().map(row("its host"))).collect();
    html! {
        h2 { "How far it is believed" }
        p { "It writes lastmods like this: " (trust.habit.as_str()) ". Newer ones count as " (trust.moves.as_str()) "." }
        (table("What fetchers found when it announced a change", "Nothing is known.", &columns, &rows))
    }
}

fn push_of(push: &PushView, now: Timestamp) -> Markup {
    html! {
        h2 { "Push" }
        (facts(&[
            ("State", html! { (push.state) }),
            ("Topic", html! { (text(&push.topic)) }),
            ("Hub", html! { @if let Some(hub) = &push.hub { (text(hub)) } }),
            ("Lease until", when(push.lease_until, now)),
            ("Hub is asked", when(Some(push.next_request_at), now)),
            ("Pushes read", html! { (grouped(push.pushes)) }),
            ("Last push", when(push.last_push_at, now)),
            ("Broken since", html! { @if push.broken_since.is_some() { (when(push.broken_since, now)) } }),
            ("Trouble", html! { @if let Some(error) = &push.error { span.bad { (text(error)) } } }),
        ]))
    }
}
