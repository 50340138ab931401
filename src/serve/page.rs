//! The status pages: the whole at a glance for a person with a browser, and
//! from there down to a site, a source and a URL.
//!
//! Plain HTML without script, in light and dark, made anew for each who asks
//! and bounded whatever the store holds. All text from outside is escaped by
//! the template; only http and https URLs become links; the policy header
//! forbids everything that is not needed. Orders are forms (`orders`); what
//! they do is done by the store, as for the API.

mod chart;
mod detail;
mod health;
mod known;
mod lists;
mod orders;
mod overview;
mod table;

use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Deserialize;
use url::Url;

pub(super) use detail::{site_page, source_page};
pub(super) use known::url_page;
pub(super) use lists::{
    blocks_page, dead_page, failing_page, hosts_page, sites_page, submissions_page,
};
pub(super) use orders::order;
pub(super) use overview::page;

use super::extract::accepts;
use super::openapi::{Css, Html};
use super::problem::Problem;
use super::wire::{Span, Time, clip, grouped, web_url};
use crate::store::tides::Tides;
use crate::store::views::Counts;
use orders::Done;

/// Characters of a text from outside.
const MAX_TEXT: usize = 200;
/// Nothing is loaded but our style, nothing may frame us, forms go to us only.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const STYLE: &str = include_str!("page/style.css");
/// Pages, by the first part of their paths; none is one of the API.
const PAGES: [&str; 11] = [
    "",
    "status.css",
    "sites",
    "site",
    "source",
    "url",
    "failing",
    "hosts",
    "dead",
    "blocks",
    "submissions",
];
/// Where orders are sent.
const ORDER: &str = "order";
/// The pages that every page leads to.
const PLACES: [(&str, &str); 7] = [
    ("/", "Overview"),
    ("/sites", "Sites"),
    ("/failing", "Failing"),
    ("/hosts", "Hosts"),
    ("/dead", "Dead letters"),
    ("/blocks", "Blocks"),
    ("/submissions", "Submissions"),
];

/// What the pages keep between two looks: the tides, as far as they were read.
pub(super) type Kept = tokio::sync::Mutex<Tides>;

/// Parameters that a page may have.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Look {
    /// Go on after this row, or this name.
    after: Option<String>,
    /// Names from here on.
    from: Option<String>,
    /// Have the browser ask again after so many seconds, 5 to 3,600.
    refresh: Option<u32>,
    /// What an order has just done.
    did: Option<Done>,
    /// To how many.
    n: Option<u64>,
}

impl Look {
    /// The row to go on after.
    fn row(&self) -> Result<i64, Problem> {
        let Some(text) = &self.after else { return Ok(0) };
        text.parse().map_err(|_| Problem::field("after is no row; follow the link of the page."))
    }

    fn said(&self) -> Option<String> {
        self.did.map(|did| did.told(self.n))
    }
}

/// A page to be.
struct Sheet<'a> {
    title: &'a str,
    /// Its own path.
    path: &'a str,
    /// What an order has just done.
    said: Option<String>,
    /// The browser asks again after so many seconds.
    refresh: Option<u32>,
}

impl<'a> Sheet<'a> {
    fn new(title: &'a str, path: &'a str, look: &Look) -> Self {
        Self { title, path, said: look.said(), refresh: None }
    }

    fn of(self, inner: &Markup) -> Html {
        Html { text: whole(&self, inner).into_string(), policy: POLICY }
    }
}

/// Is this the path of a page, or of an order?
pub(super) fn is_page(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|rest| rest.split('/').next());
    first.is_some_and(|first| first == ORDER || PAGES.contains(&first))
}

/// `GET /status.css`
pub(crate) async fn style() -> Css {
    Css(STYLE)
}

/// Middleware: who asks for a page with a browser gets refusals as pages, and
/// may give the token as a password.
pub(super) async fn refusals(request: Request, next: Next) -> Response {
    let is_for_a_person = is_page(request.uri().path())
        && accepts(request.headers(), "text/html", &["application/json"]);
    let path = request.uri().clone();
    let response = next.run(request).await;
    if !is_for_a_person {
        return response;
    }
    let Some(problem) = response.extensions().get::<Problem>() else { return response };
    let mut page = refusal(problem, &path).into_response();
    *page.status_mut() = response.status();
    for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE] {
        for value in response.headers().get_all(&name) {
            page.headers_mut().append(&name, value.clone());
        }
    }
    if response.headers().contains_key(header::WWW_AUTHENTICATE) {
        let basic = HeaderValue::from_static("Basic realm=\"sitemapd\", charset=\"UTF-8\"");
        page.headers_mut().append(header::WWW_AUTHENTICATE, basic);
    }
    page
}

fn refusal(problem: &Problem, path: &Uri) -> Html {
    let sheet = Sheet { title: problem.title(), path: path.path(), said: None, refresh: None };
    let is_locked = problem.kind() == super::problem::Kind::Unauthorized;
    sheet.of(&html! {
        p { (text_of(problem.detail(), 600)) }
        @if is_locked {
            p { "A browser asks for it: give the token as the password, with any user name." }
        }
        p { a href="/" { "To the overview" } }
    })
}

fn whole(sheet: &Sheet<'_>, inner: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(seconds) = sheet.refresh { meta http-equiv="refresh" content=(seconds); }
                title { (text(sheet.title)) " · sitemapd" }
                link rel="stylesheet" href="/status.css";
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    nav aria-label="Pages" {
                        ul {
                            @for (path, name) in PLACES {
                                li { a href=(path) aria-current=[(path == sheet.path).then_some("page")] { (name) } }
                            }
                        }
                    }
                    form.ask action="/url" method="get" role="search" {
                        label.grow { "Look up a URL"
                            input type="text" name="url" inputmode="url" required
                                autocomplete="off" placeholder="https://…";
                        }
                        button { "Look up" }
                    }
                }
                main id="main" {
                    h1 { (text(sheet.title)) }
                    @if let Some(said) = &sheet.said { p.said role="status" { (said) } }
                    (inner)
                }
            }
        }
    }
}

/// The link to the next part of a list.
fn onward(path: &str, next: Option<impl std::fmt::Display>) -> Markup {
    html! {
        @if let Some(next) = next {
            p { a href={ (path) "?" (query(&[("after", &next.to_string())])) } rel="next" { "Next part" } }
        }
    }
}

/// A query string of these pairs.
fn query(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The path of the page of a site.
fn path_of_site(name: &str) -> String {
    // Names are one segment, whatever is in them.
    let mut at = Url::parse("http://x/site").ok();
    if let Some(mut parts) = at.as_mut().and_then(|at| at.path_segments_mut().ok()) {
        parts.push(name);
    }
    at.map_or_else(|| "/sites".to_owned(), |at| at.path().to_owned())
}

/// The link to the page of a site, if there is one.
fn site_link(name: Option<&str>) -> Markup {
    html! { @if let Some(name) = name { a href=(path_of_site(name)) { (text(name)) } } }
}

/// The link to the page of a source.
fn source_link(id: impl std::fmt::Display, url: &str) -> Markup {
    html! { a href={ "/source/" (id) } { (text(url)) } }
}

/// The link to the page of a URL.
fn url_link(url: &str, crawl: Option<&str>) -> Markup {
    let mut pairs = vec![("url", url)];
    pairs.extend(crawl.map(|crawl| ("crawl", crawl)));
    html! { a href={ "/url?" (query(&pairs)) } { (text(url)) } }
}

/// A link out to the web, if it is one.
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

/// What became of URLs, without the zeros.
fn counts(counts: &Counts) -> String {
    let parts: Vec<_> =
        counts.told().map(|(count, word)| format!("{} {word}", grouped(count))).collect();
    if parts.is_empty() { "as before".to_owned() } else { parts.join(", ") }
}

/// A text from outside: cut, control and direction marks made visible.
fn text(outside: &str) -> String {
    text_of(outside, MAX_TEXT)
}

fn text_of(outside: &str, most: usize) -> String {
    let safe = |c: char| {
        let steers = c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if steers { char::REPLACEMENT_CHARACTER } else { c }
    };
    clip(outside.chars().take(most + 1).map(safe).collect(), most)
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
fn between(one: Timestamp, other: Timestamp) -> Duration {
    let seconds = (other.as_second() - one.as_second()).unsigned_abs();
    let unit = match seconds {
        0..3_600 => 1,
        3_600..86_400 => 60,
        _ => 3_600,
    };
    Duration::from_secs(seconds / unit * unit)
}

#[cfg(test)]
mod tests;
