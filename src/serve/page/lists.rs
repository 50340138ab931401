//! Lists: sites, failing sources, hosts, dead letters, blocks, submissions,
//! 200 rows of each at once; and the tables that other pages share.

use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};

use super::orders::{Verb, button, hidden};
use super::table::{Column, number, table, words};
use super::{Look, Sheet, counts, link, onward, site_link, source_link, text, url_link, when};
use crate::model::UrlId;
use crate::serve::Context;
use crate::serve::extract::Params;
use crate::serve::openapi::Html;
use crate::serve::problem::Problem;
use crate::serve::wire::{BlockCursor, DEFAULT_CRAWL, Span, grouped, name};
use crate::store::pages::{SourceLine, Verdict};
use crate::store::submissions::SubmissionView;
use crate::store::views::{BlockView, DeadView, PollView, SiteView};

/// Rows of one page.
pub(super) const ROWS: u32 = 200;

/// `GET /sites`
pub(crate) async fn sites_page(
    State(context): State<Arc<Context>>,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let (begin, is_after) = match (&look.after, &look.from) {
        (Some(after), _) => (after.clone(), true),
        (None, Some(from)) if !from.is_empty() => (name("from", from.clone())?, false),
        _ => (String::new(), false),
    };
    let (sites, next) = context.state.store.site_lines(begin, is_after, ROWS).await?;
    let now = context.state.store.now();
    Ok(Sheet::new("Sites", "/sites", &look).of(&html! {
        form.ask action="/sites" method="get" {
            label.grow { "Sites whose names begin with, or come after"
                input type="text" name="from" value=[look.from.as_deref()] autocomplete="off";
            }
            button { "Show" }
        }
        (sites_table(&sites, now))
        (onward("/sites", next))
    }))
}

/// `GET /failing`
pub(crate) async fn failing_page(
    State(context): State<Arc<Context>>,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let failing = context.state.store.failing_sources(look.row()?).await?;
    let now = context.state.store.now();
    Ok(Sheet::new("Failing sources", "/failing", &look).of(&html! {
        (failing_table(&failing.items, now))
        (onward("/failing", failing.next))
    }))
}

/// `GET /hosts`
pub(crate) async fn hosts_page(
    State(context): State<Arc<Context>>,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let judged = context.state.store.judged_hosts(ROWS as usize).await?;
    Ok(Sheet::new("Whose lastmod is believed", "/hosts", &look).of(&html! {
        p {
            "A newer lastmod brings a URL forward only where it is believed: where fetchers mostly \
             found a change when one was announced. " (grouped(judged.believed)) " hosts are \
             believed, " (grouped(judged.doubted)) " are not; the best known come first"
            @if judged.is_cut { ", of the first 20,000" } "."
        }
        (hosts_table(&judged.hosts))
        @if judged.believed + judged.doubted > u64::from(ROWS) {
            p.quiet { "Only " (ROWS) " are shown. The page of a source says the same of its host." }
        }
    }))
}

/// `GET /dead`
pub(crate) async fn dead_page(
    State(context): State<Arc<Context>>,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let after = look.after.is_some().then(|| look.row().map(UrlId)).transpose()?;
    let dead = context.state.store.dead(None, ROWS, after).await?;
    let now = context.state.store.now();
    let mut crawls: Vec<&str> = dead.items.iter().map(|dead| dead.crawl.as_str()).collect();
    crawls.sort_unstable();
    crawls.dedup();
    Ok(Sheet::new("Dead letters", "/dead", &look).of(&html! {
        p { "URLs that fetchers failed to fetch too often. Replayed, they are due again." }
        div.row { @for crawl in crawls {
            (button(Verb::ReplayAll, &[("crawl", crawl)], &format!("Replay all of {}", text(crawl)), "dead letters"))
        } }
        (dead_table(&dead.items, now))
        (onward("/dead", dead.next))
    }))
}

/// `GET /blocks`
pub(crate) async fn blocks_page(
    State(context): State<Arc<Context>>,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let place = |text: &String| {
        let cursor: Result<BlockCursor, ()> = text.parse();
        let wrong = "after is no block; follow the link of the page.";
        cursor.map(|cursor| cursor.0).map_err(|()| Problem::field(wrong))
    };
    let after = look.after.as_ref().map(place).transpose()?;
    let (blocks, next) = context.state.store.blocks(None, ROWS, after).await?;
    let now = context.state.store.now();
    Ok(Sheet::new("Blocks", "/blocks", &look).of(&html! {
        p { "What is blocked is not leased until the block is lifted." }
        form.ask method="post" action="/order" {
            (hidden(Verb::BlockPrefix, &[]))
            label.grow { "Block all URLs that begin with"
                input type="text" name="url" inputmode="url" required autocomplete="off";
            }
            label { "in the crawl"
                input type="text" name="crawl" value=(DEFAULT_CRAWL) required autocomplete="off";
            }
            button { "Block" }
        }
        (blocks_table(&blocks, now))
        (onward("/blocks", next.map(BlockCursor)))
    }))
}

/// `GET /submissions`
pub(crate) async fn submissions_page(
    State(context): State<Arc<Context>>,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let after = look.after.is_some().then(|| look.row()).transpose()?;
    let page = context.state.store.submissions(false, ROWS, after).await?;
    let now = context.state.store.now();
    Ok(Sheet::new("Submissions", "/submissions", &look).of(&html! {
        p { "Sitemaps and feeds that webmasters named by a ping, in the order they came." }
        (submissions_table(&page.items, now))
        (onward("/submissions", page.next))
    }))
}

pub(super) fn sites_table(sites: &[SiteView], now: Timestamp) -> Markup {
    let columns = [
        words("site"),
        words("home"),
        words("state"),
        number("sources"),
        number("failing"),
        number("URLs"),
        words("last poll"),
        words("next poll"),
    ];
    let row = |site: &SiteView| {
        vec![
            site_link(Some(&site.name)),
            link(&site.url),
            html! { (text(&site.state)) },
            html! { (grouped(site.sources)) },
            html! { span.bad[site.failing > 0] { (grouped(site.failing)) } },
            html! { (grouped(site.urls)) },
            when(site.last_poll_at, now),
            when(site.next_poll_at, now),
        ]
    };
    let rows: Vec<_> = sites.iter().map(row).collect();
    table("Sites by name", "There is no such site.", &columns, &rows)
}

pub(super) fn failing_table(sources: &[SourceLine], now: Timestamp) -> Markup {
    let columns = [
        words("source"),
        words("site"),
        words("how"),
        words("why"),
        number("times"),
        words("since"),
        words("next poll"),
    ];
    let row = |source: &SourceLine| {
        vec![
            source_link(source.id, &source.url),
            site_link(source.site.as_deref()),
            html! { @if let Some(how) = &source.failing { span.bad { (text(how)) } } },
            html! { @if let Some(why) = &source.error { (text(why)) } },
            html! { (grouped(source.failures)) },
            when(source.failing_since, now),
            when(source.next_poll_at, now),
        ]
    };
    let rows: Vec<_> = sources.iter().map(row).collect();
    table("Sources whose last polls failed", "No source fails.", &columns, &rows)
}

pub(super) fn hosts_table(hosts: &[(String, Verdict)]) -> Markup {
    let columns = [
        words("host"),
        words("lastmod is"),
        number("right"),
        number("of looks"),
        number("chance that it is right"),
    ];
    let row = |(host, verdict): &(String, Verdict)| {
        let record = &verdict.record;
        vec![
            html! { (text(host)) },
            html! { @if verdict.is_believed { span.good { "believed" } } @else { span.bad { "not believed" } } },
            html! { (format!("{:.1}", record.hits)) },
            html! { (format!("{:.1}", record.looks)) },
            html! { (format!("{:.0} %", record.right * 100.0)) },
        ]
    };
    let rows: Vec<_> = hosts.iter().map(row).collect();
    table(
        "Hosts by how well their lastmods are known; older looks count for less",
        "No lastmod was held against a fetched page yet.",
        &columns,
        &rows,
    )
}

fn dead_table(dead: &[DeadView], now: Timestamp) -> Markup {
    let columns = [
        words("URL"),
        words("site"),
        words("crawl"),
        number("attempts"),
        words("given up"),
        number("HTTP"),
        words("why"),
        words("order"),
    ];
    let row = |dead: &DeadView| {
        let fields = [("url", dead.url.as_str()), ("crawl", dead.crawl.as_str())];
        vec![
            url_link(&dead.url, Some(&dead.crawl)),
            site_link(dead.site.as_deref()),
            html! { (text(&dead.crawl)) },
            html! { (grouped(dead.attempts)) },
            when(Some(dead.died_at), now),
            html! { @if let Some(status) = dead.status { (status) } },
            html! { @if let Some(error) = &dead.error { (text(error)) } },
            button(Verb::Replay, &fields, "Replay", &dead.url),
        ]
    };
    let rows: Vec<_> = dead.iter().map(row).collect();
    table("Dead letters", "There are none.", &columns, &rows)
}

fn blocks_table(blocks: &[BlockView], now: Timestamp) -> Markup {
    let columns = [words("URL"), words("which"), words("crawl"), words("since"), words("order")];
    let row = |block: &BlockView| {
        let fields = [("url", block.pattern.as_str()), ("crawl", block.crawl.as_str())];
        let verb = if block.prefix { Verb::UnblockPrefix } else { Verb::UnblockUrl };
        let name = if block.prefix {
            html! { (text(&block.pattern)) }
        } else {
            url_link(&block.pattern, Some(&block.crawl))
        };
        vec![
            name,
            html! { (if block.prefix { "all that begin so" } else { "this URL" }) },
            html! { (text(&block.crawl)) },
            when(Some(block.since), now),
            button(verb, &fields, "Unblock", &block.pattern),
        ]
    };
    let rows: Vec<_> = blocks.iter().map(row).collect();
    table("Blocks in force", "Nothing is blocked.", &columns, &rows)
}

fn submissions_table(submissions: &[SubmissionView], now: Timestamp) -> Markup {
    let columns = [
        words("submitted"),
        words("status"),
        words("site"),
        number("times"),
        words("first"),
        words("last"),
        words("order"),
    ];
    let row = |submission: &SubmissionView| {
        let id = submission.id.to_string();
        let source = submission.source.as_ref();
        let fields = [("submission", id.as_str())];
        let name = match source {
            Some(source) => source_link(source.id, &submission.url),
            None => link(&submission.url),
        };
        let order = html! {
            @if source.is_none() {
                form.ask method="post" action="/order" {
                    (hidden(Verb::Grant, &fields))
                    label { "Site that gets it" input type="text" name="site" required autocomplete="off"; }
                    button aria-label={ "Take: " (text(&submission.url)) } { "Take" }
                }
            }
            (button(Verb::Drop, &fields, "Drop", &submission.url))
        };
        vec![
            name,
            html! { (source.map_or("waits: no source", |source| source.status.as_str())) },
            site_link(source.and_then(|source| source.site.as_deref())),
            html! { (grouped(submission.times)) },
            when(Some(submission.at), now),
            when(Some(submission.last_at), now),
            order,
        ]
    };
    let rows: Vec<_> = submissions.iter().map(row).collect();
    table("Submissions of webmasters", "Nobody has submitted anything.", &columns, &rows)
}

/// Polls, with the source of each.
pub(super) fn polls_table(polls: &[PollView], now: Timestamp) -> Markup {
    let mut columns = POLL.to_vec();
    columns.insert(1, words("source"));
    let row = |poll: &PollView| {
        let mut cells = poll_cells(poll, now);
        cells.insert(1, source_link(poll.source, &poll.url));
        cells
    };
    let rows: Vec<_> = polls.iter().map(row).collect();
    table("The newest polls of all sources", "Nothing was polled yet.", &columns, &rows)
}

/// Polls of one source.
pub(super) fn polls_of_source(polls: &[PollView], now: Timestamp) -> Markup {
    let rows: Vec<_> = polls.iter().map(|poll| poll_cells(poll, now)).collect();
    table("The last polls, newest first", "It was not polled yet.", &POLL, &rows)
}

const POLL: [Column; 6] = [
    words("when"),
    words("result"),
    number("HTTP"),
    number("entries"),
    words("URLs"),
    number("took"),
];

fn poll_cells(poll: &PollView, now: Timestamp) -> Vec<Markup> {
    vec![
        when(Some(poll.at), now),
        html! {
            (text(&poll.result))
            @if let Some(error) = &poll.error { " " span.bad { (text(error)) } }
        },
        html! { @if let Some(status) = poll.http_status { (status) } },
        html! { (grouped(poll.entries)) },
        html! { (counts(&poll.counts)) },
        html! { (Span(poll.took)) },
    ]
}
