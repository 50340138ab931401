//! `sitemapd url`: all that is known of one URL, and why it is due when it is.

use super::answers::{self, Url};
use super::humane::{self, count};
use super::output::{Output, Tone};
use super::question::Question;
use super::source_of_truth::SourceOfTruth;
use super::{Failure, Options};
use crate::model::UrlKind;
use crate::model::extension::Extensions;

/// Where the values begin.
const INDENT: usize = 12;

/// Which URL.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The URL, normalised or as listed
    url: String,
    /// The crawl to look in [default: the first crawl that has it]
    #[arg(long)]
    crawl: Option<String>,
}

/// Prints what is known.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let question = Question::Url { url: args.url.clone(), crawl: args.crawl.clone() };
    let answer = truth.ask(&question).await?;
    if options.json {
        return Ok(out.json(&answer)?);
    }
    let url: Url = answers::read(&answer)?;
    let (width, room) = (out.width(), out.table_width());
    out.toned(Tone::Strong, &humane::cut_middle(&humane::safe(&url.url), room))?;
    for line in humane::wrap(&humane::safe(&url.why), width - 2) {
        out.line(&format!("  {line}"))?;
    }
    out.line("")?;
    for (name, value) in facts(&url, truth.now()) {
        let name = out.paint(Tone::Faint, &format!("{name:<9}"));
        let value = humane::cut_middle(&humane::safe(&value), room - INDENT);
        out.line(&format!("  {name} {value}"))?;
    }
    Ok(())
}

fn facts(url: &Url, now: jiff::Timestamp) -> Vec<(&'static str, String)> {
    let when = |at| humane::when(at, now);
    let mut facts = Vec::new();
    let state = match (url.leased_until, &url.worker) {
        (Some(until), Some(worker)) => format!("leased to {worker}, ends {}", when(until)),
        (Some(until), None) => format!("leased, ends {}", when(until)),
        (None, _) => url.state.clone(),
    };
    facts.push(("state", if url.listed { state } else { format!("{state}, not listed") }));
    if let Some(due) = url.due_at {
        let attempts = match url.attempt {
            0 => String::new(),
            tries => format!(", after {}", count(tries.into(), "failed try", "failed tries")),
        };
        facts.push(("due", format!("{} ({}{attempts})", humane::due(Some(due), now), url.reason)));
    }
    if let Some(raw) = &url.raw {
        facts.push(("listed as", raw.clone()));
    }
    let site = url.site.as_deref().unwrap_or("none");
    facts.push(("site", format!("{site}, crawl {}", url.crawl)));
    if !url.other_crawls.is_empty() {
        facts.push(("also in", format!("crawl {}", url.other_crawls.join(", "))));
    }
    facts.push(("first", format!("seen {}", when(url.first_seen))));
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let before = url.previous_lastmod.as_ref().map(|date| format!(", before {date}"));
    facts.push(("lastmod", or_none(&url.lastmod) + &before.unwrap_or_default()));
    let priority = url.priority.map_or_else(|| "none".to_owned(), |value| value.to_string());
    facts.push(("hints", format!("changefreq {}, priority {priority}", or_none(&url.changefreq))));
    let fetched = match url.fetched_at {
        Some(at) => {
            let outcome = url.outcome.as_deref().unwrap_or("unknown");
            let status = url.status.map(|status| format!(" {status}")).unwrap_or_default();
            let times = count(url.fetches, "fetch", "fetches");
            format!("{}: {outcome}{status}; {times}, {} changed", when(at), url.changes)
        }
        None => "never".to_owned(),
    };
    facts.push(("fetched", fetched));
    facts.extend(reported(url));
    facts.extend(learned(url));
    if url.kind != UrlKind::Page {
        facts.push(("kind", url.kind.as_str().to_owned()));
    }
    facts.extend(said(url, when));
    for source in &url.sources {
        facts.push(("source", source.url.clone()));
    }
    facts
}

/// What else the last report said of the page.
fn reported(url: &Url) -> Vec<(&'static str, String)> {
    let error = url.error.clone().map(|error| ("error", error));
    let canonical = url.canonical.clone().map(|canonical| ("canonical", canonical));
    let noindex = url.noindex.then(|| ("noindex", "the page asks not to be indexed".to_owned()));
    error.into_iter().chain(canonical).chain(noindex).collect()
}

/// What looks taught of it.
fn learned(url: &Url) -> Vec<(&'static str, String)> {
    let Some(learned) = &url.learned else { return Vec::new() };
    let rates = format!(
        "{:.3} changes a day, {:.3} of them untold; {:.0} % by evidence",
        learned.rate,
        learned.silent_rate,
        100.0 * learned.proof
    );
    let worth = format!(
        "a fetch {:.3}, the price {:.3}; {:.2} changes expected by now",
        learned.value, learned.price, learned.expected_changes
    );
    let mut facts = vec![("learned", rates), ("worth", worth)];
    if !learned.pending.is_empty() {
        let told = |(signal, times): (&String, &u8)| format!("{signal} {times}");
        let pending: Vec<_> = learned.pending.iter().map(told).collect();
        facts.push(("signals", format!("{} since the last look", pending.join(", "))));
    }
    facts
}

/// What its sources say beside its dates: how much, and the first of it.
fn said(url: &Url, when: impl Fn(jiff::Timestamp) -> String) -> Vec<(&'static str, String)> {
    let Extensions { images, videos, news, alternates } = &url.extensions;
    let mut facts = Vec::new();
    if let Some(image) = images.first() {
        let loc = image.loc.as_deref().unwrap_or("without a URL");
        facts.push(("images", format!("{}: {loc}", images.len())));
    }
    if let Some(video) = videos.first() {
        let title = video.title.as_deref().unwrap_or("without a title");
        let end = url.expires_at.map(|at| format!(", the last expires {}", when(at)));
        facts.push(("videos", format!("{}: {title}{}", videos.len(), end.unwrap_or_default())));
    }
    if let Some(article) = news.first() {
        let title = article.title.as_deref().unwrap_or("without a title");
        let date = article.publication_date.map(|date| format!(", published {date}"));
        facts.push(("news", format!("{title}{}", date.unwrap_or_default())));
    }
    if !alternates.is_empty() {
        let codes: Vec<_> =
            alternates.iter().filter_map(|link| link.hreflang.as_deref()).take(20).collect();
        facts.push(("versions", format!("{}: {}", alternates.len(), codes.join(", "))));
    }
    facts
}
