//! `/`: is it healthy, what is due, what was found over time, what fails, whom
//! to believe, and what was polled last.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use bytesize::ByteSize;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use tokio::time::timeout;

use super::chart::{Bar, bars};
use super::health::{Commits, Health, judge};
use super::lists::{failing_table, hosts_table, polls_table, sites_table};
use super::orders::{Verb, button};
use super::table::{number, table, words};
use super::{Look, Sheet, between, counts, text, when};
use crate::serve::Context;
use crate::serve::extract::Params;
use crate::serve::openapi::Html;
use crate::serve::problem::Problem;
use crate::serve::show::{PATIENCE, read_status};
use crate::serve::wire::{Span, Time, grouped};
use crate::store::pages::{Judged, SourceLine};
use crate::store::tides::{Tide, Tides};
use crate::store::views::{PollView, QueueView, SiteView, StatusView};
use crate::store::{Node, StoreError};

/// Polls shown, newest first.
const LAST_POLLS: u32 = 15;
/// Sites, failing sources and hosts shown; lists of their own have all.
const SHOWN: usize = 10;
/// Hours of one bar.
const OF_BAR: usize = 3;
/// Time that one look spends on reading polls for the charts.
const READING: Duration = Duration::from_millis(250);
/// How often a page that refreshes itself does so.
const REFRESH: u32 = 15;

/// What the page shows.
pub(super) struct Shown {
    pub(super) status: StatusView,
    pub(super) commits: Commits,
    pub(super) is_ready: bool,
    pub(super) tides: Tides,
    pub(super) sites: Vec<SiteView>,
    pub(super) failing: Vec<SourceLine>,
    pub(super) judged: Judged,
    pub(super) polls: Vec<PollView>,
    /// Those that are no source, and whether there are more.
    pub(super) pending: (usize, bool),
    /// When all but the status was read, which may be older.
    pub(super) now: Timestamp,
}

/// `GET /`
pub(crate) async fn page(
    State(context): State<Arc<Context>>,
    Params(look): Params<Look>,
) -> Result<Html, Problem> {
    let store = &context.state.store;
    let commits = match timeout(PATIENCE, store.ping()).await {
        Ok(Ok(())) => Commits::Well,
        Ok(Err(StoreError::Full)) => Commits::DiskFull,
        _ => Commits::Not,
    };
    let pending = store.submissions(true, 100, None).await?;
    let mut failing = store.failing_sources(0).await?.items;
    failing.truncate(SHOWN);
    let some = u32::try_from(SHOWN).unwrap_or(u32::MAX);
    let (sites, _) = store.site_lines(String::new(), false, some).await?;
    let shown = Shown {
        status: read_status(&context).await?,
        commits,
        is_ready: context.state.ready.is_ready() && !context.stop.is_cancelled(),
        tides: tides(&context).await?,
        sites,
        failing,
        judged: store.judged_hosts(SHOWN).await?,
        polls: store.last_polls(LAST_POLLS).await?,
        pending: (pending.items.len(), pending.next.is_some()),
        // After all reads: nothing that they found is yet to come.
        now: store.now(),
    };
    let refresh = look.refresh.map(|seconds| seconds.clamp(5, 3_600));
    let sheet = Sheet { refresh, ..Sheet::new("sitemapd", "/", &look) };
    Ok(sheet.of(&render(&shown, refresh)))
}

/// The tides, read on as far as a look has time for.
async fn tides(context: &Context) -> Result<Tides, StoreError> {
    let store = &context.state.store;
    let began = Instant::now();
    let mut kept = context.tides.lock().await;
    loop {
        let part = store.tides(&kept).await?;
        if kept.take(part, store.now()) || began.elapsed() > READING {
            return Ok(kept.clone());
        }
    }
}

pub(super) fn render(shown: &Shown, refresh: Option<u32>) -> Markup {
    let status = &shown.status;
    html! {
        (verdict(shown))
        (tiles(shown))
        p.quiet {
            "Version " (status.version) ", as of " time datetime=(Time(status.now)) { (Time(status.now)) } ". "
            @if refresh.is_some() {
                a href="/" { "Stop refreshing" }
            } @else {
                a href={ "/?refresh=" (REFRESH) } { "Refresh every " (REFRESH) " seconds" }
            }
        }
        h2 { "The last 7 days" }
        (charts(&shown.tides, shown.now))
        p.quiet { "In 24 hours: URLs " (counts(&status.changes_24h)) "." }
        h2 { "Queue" }
        (queues(&status.queues, status.now))
        @if !status.nodes.is_empty() {
            h2 { "Daemons" }
            (nodes_table(&status.nodes, status.now))
        }
        h2 { "Failing sources" }
        (failing_table(&shown.failing, shown.now))
        @if status.sources_failing > shown.failing.len() as u64 {
            p { a href="/failing" { "All " (grouped(status.sources_failing)) " that fail" } }
        }
        h2 { "Whose lastmod is believed" }
        (judged(&shown.judged))
        h2 { "Last polls" }
        (polls_table(&shown.polls, shown.now))
        h2 { "Sites" }
        (sites_table(&shown.sites, shown.now))
        @if status.sites > shown.sites.len() as u64 {
            p { a href="/sites" { "All " (grouped(status.sites)) " sites" } }
        }
    }
}

fn verdict(shown: &Shown) -> Markup {
    let (health, found) = judge(&shown.status, shown.commits, shown.is_ready);
    html! {
        div class=(health.class()) {
            strong { (health.word()) }
            @if found.is_empty() && health == Health::Good { " · nothing speaks against it" }
            @if !found.is_empty() {
                ul.plain { @for (_, said) in &found { li { (said) } } }
            }
        }
    }
}

fn tiles(shown: &Shown) -> Markup {
    let status = &shown.status;
    let sum = |of: fn(&QueueView) -> u64| status.queues.iter().map(of).sum::<u64>();
    let oldest = status.queues.iter().filter_map(|queue| queue.oldest_due_at).min();
    let age = oldest.map_or_else(|| "–".to_owned(), |at| Span(between(at, status.now)).to_string());
    let runs = status.started_at.map(|started| Span(between(started, status.now)).to_string());
    let (pending, more) = shown.pending;
    let tiles = [
        ("URLs due", grouped(sum(|queue| queue.due))),
        ("Oldest due for", age),
        ("Leased", grouped(sum(|queue| queue.leased))),
        ("Dead letters", grouped(sum(|queue| queue.dead))),
        ("URLs known", grouped(status.urls)),
        ("Sites", grouped(status.sites)),
        ("Sources", grouped(status.sources)),
        ("Sources due", grouped(status.sources_due)),
        ("Sources failing", grouped(status.sources_failing)),
        ("Polls in 24 h", grouped(status.polls())),
        ("Submissions waiting", format!("{}{}", grouped(pending), if more { "+" } else { "" })),
        ("On disk", ByteSize(status.store_bytes).to_string()),
        ("Up for", runs.unwrap_or_else(|| "–".to_owned())),
    ];
    html! {
        dl.tiles { @for (name, value) in tiles { div { dt { (name) } dd { (value) } } } }
    }
}

fn charts(tides: &Tides, now: Timestamp) -> Markup {
    let week: Vec<Tide> = tides.week(now).collect();
    let hours = i64::try_from(week.len()).unwrap_or(0);
    let hour = |place: usize| {
        let ago = hours - i64::try_from(place).unwrap_or(0) - 1;
        let at = now.checked_sub(SignedDuration::from_hours(ago)).unwrap_or(now);
        at.strftime("%-d %b %H:00").to_string()
    };
    let summed: Vec<(String, Tide)> = week
        .chunks(OF_BAR)
        .enumerate()
        .map(|(bar, part)| {
            (hour(bar * OF_BAR), part.iter().fold(Tide::default(), |sum, tide| sum.and(*tide)))
        })
        .collect();
    let chart = |title: &str, class: &str, of: fn(&Tide) -> u64| {
        let all: Vec<Bar> = summed
            .iter()
            .map(|(from, tide)| Bar { of: format!("3 h from {from} UTC"), value: of(tide) })
            .collect();
        bars(title, class, &all)
    };
    html! {
        div.charts {
            (chart("URLs discovered", "", |tide| tide.new))
            (chart("URLs changed", "", |tide| tide.changed))
            (chart("URLs removed", "", |tide| tide.removed))
            (chart("Polls", "", |tide| tide.polls))
            (chart("Polls that failed", "fails", |tide| tide.failed))
        }
        @if let Some(since) = tides.since() {
            p.quiet { "Counted since " (Time(since)) " so far; the next look goes further back." }
        }
    }
}

fn queues(queues: &[QueueView], now: Timestamp) -> Markup {
    let columns = [
        words("crawl"),
        number("queued"),
        number("due"),
        words("oldest due"),
        number("leased"),
        number("dead"),
        number("parked"),
        number("blocked"),
        number("forbidden"),
        number("hosts"),
        words("next due"),
        words("oldest lease"),
        words("order"),
    ];
    let row = |queue: &QueueView| {
        let crawl = [("crawl", queue.crawl.as_str())];
        let (verb, label) =
            if queue.paused { (Verb::ResumeCrawl, "Resume") } else { (Verb::PauseCrawl, "Pause") };
        let count = |number: u64| html! { (grouped(number)) };
        vec![
            html! { (text(&queue.crawl)) @if queue.paused { " " span.bad { "paused" } } },
            count(queue.queued),
            count(queue.due),
            when(queue.oldest_due_at, now),
            count(queue.leased),
            count(queue.dead),
            count(queue.parked),
            count(queue.blocked),
            count(queue.forbidden),
            count(queue.hosts),
            when(queue.next_due_at, now),
            when(queue.oldest_lease_at, now),
            button(verb, &crawl, label, &queue.crawl),
        ]
    };
    let rows: Vec<_> = queues.iter().map(row).collect();
    table("What waits for fetchers, by crawl", "There is no crawl.", &columns, &rows)
}

fn nodes_table(nodes: &[Node], now: Timestamp) -> Markup {
    let columns = [words("daemon"), words("address"), words("joined"), number("partitions")];
    let rows = nodes.iter().map(|node| {
        vec![
            html! { (text(&node.name)) },
            html! { (text(node.address.as_deref().unwrap_or("-"))) },
            when(Some(node.since), now),
            html! { (node.partitions) },
        ]
    });
    let rows: Vec<_> = rows.collect();
    table("Daemons that share the store", "There is none.", &columns, &rows)
}

fn judged(judged: &Judged) -> Markup {
    html! {
        p {
            "Of hosts whose lastmods were held against what fetchers saw, "
            strong { (grouped(judged.believed)) } " are believed and "
            strong { (grouped(judged.doubted)) } " are not"
            @if judged.is_cut { " (of the first 20,000)" }
            "."
        }
        (hosts_table(&judged.hosts))
        @if judged.believed + judged.doubted > judged.hosts.len() as u64 {
            p { a href="/hosts" { "More hosts" } }
        }
    }
}
