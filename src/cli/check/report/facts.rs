//! The facts of a document, one a line: size, contents, dates, scope, and what it
//! asks of those who poll it.

use std::io;

use jiff::Timestamp;

use crate::cli::check::input::Document;
use crate::cli::check::reading::Reading;
use crate::cli::humane::{self, count, number};
use crate::cli::output::{Output, Tone};
use crate::model::DocumentKind;
use crate::parse::Hints;
use crate::parse::doubt::FUTURE;
use crate::parse::robots::Robots;

/// Where the value of a fact begins.
const INDENT: usize = 12;
/// Days by their place in [`Hints::skip_days`].
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Prints the facts.
pub(super) fn print(
    document: &Document,
    reading: &Reading,
    now: Timestamp,
    out: &mut Output,
) -> io::Result<()> {
    let report = &reading.report;
    if let Some(from) = &document.moved_from {
        fact(out, "moved", &format!("{from} redirects here; name the new address instead"))?;
    }
    fact(out, "size", &size(document, reading))?;
    if report.kind == DocumentKind::Unsupported {
        return Ok(());
    }
    fact(out, "lists", &contents(reading))?;
    if reading.entries_total > 0 {
        fact(out, "dates", &dates(reading, now))?;
    }
    if reading.deleted > 0 {
        let one = "URL, which it says is gone";
        let deleted = count(reading.deleted as u64, one, "URLs, which it says are gone");
        fact(out, "deleted", &deleted)?;
    }
    if let Some(named) = named(reading.named) {
        fact(out, "names", &named)?;
    }
    if let Some(scope) = scope(reading) {
        fact(out, "scope", &scope)?;
    }
    hints(&report.hints, out)?;
    if let Some(robots) = &reading.robots {
        usage(robots, out)?;
    }
    if !report.complete {
        let meaning = "not read to its end: nothing that is missing would count as removed";
        fact(out, "complete", meaning)?;
    }
    Ok(())
}

fn fact(out: &mut Output, name: &str, value: &str) -> io::Result<()> {
    let room = out.width().saturating_sub(INDENT);
    for (index, line) in humane::wrap(&humane::safe(value), room).iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        let name = out.paint(Tone::Faint, &format!("{name:<9}"));
        out.line(&format!("  {name} {}", humane::cut_middle(line, room)))?;
    }
    Ok(())
}

fn size(document: &Document, reading: &Reading) -> String {
    let report = &reading.report;
    let sent = humane::bytes(document.body.len());
    match reading.compression {
        Some(coding) => {
            format!("{} ({sent} as {coding}), {}", humane::bytes(report.bytes), report.encoding)
        }
        None => format!("{}, {}", humane::bytes(report.bytes), report.encoding),
    }
}

fn contents(reading: &Reading) -> String {
    let mut lists = Vec::new();
    let (urls, sitemaps) = (reading.entries_total as u64, reading.sitemaps_total as u64);
    let indexes = matches!(reading.report.kind, DocumentKind::Index | DocumentKind::Robots);
    if urls > 0 || !indexes {
        lists.push(count(urls, "URL", "URLs"));
    }
    if sitemaps > 0 || indexes {
        lists.push(count(sitemaps, "sitemap", "sitemaps"));
    }
    let lists = lists.join(" and ");
    if reading.report.window {
        return format!("{lists}, the latest only: what leaves it does not count as removed");
    }
    lists
}

fn dates(reading: &Reading, now: Timestamp) -> String {
    let (dated, all) = (reading.dated as u64, reading.entries_total as u64);
    let have = match dated {
        0 if all == 1 => return "the URL has none".to_owned(),
        0 => return "no URL has one".to_owned(),
        _ if dated == all && all == 1 => "the URL has one".to_owned(),
        _ if dated == all => "every URL has one".to_owned(),
        1 => format!("1 of {} URLs has one", number(all)),
        _ => format!("{} of {} URLs have one", number(dated), number(all)),
    };
    match reading.newest {
        Some(newest) if newest.at.duration_since(now) > FUTURE => {
            format!("{have}, the newest {newest}, which counts as none: it is to come")
        }
        Some(newest) => format!("{have}, the newest {newest}"),
        None => have,
    }
}

/// What entries name beside themselves, in words.
fn named([images, videos, news, alternates]: [usize; 4]) -> Option<String> {
    let words = [
        (images, "image", "images"),
        (videos, "video", "videos"),
        (news, "news article", "news articles"),
        (alternates, "alternate", "alternates"),
    ];
    let some = words.into_iter().filter(|(number, ..)| *number > 0);
    let told: Vec<_> = some.map(|(number, one, more)| count(number as u64, one, more)).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// URLs that the daemon would leave out, by why.
fn scope(reading: &Reading) -> Option<String> {
    let refused: usize = reading.refused.values().sum();
    if refused == 0 {
        return None;
    }
    let only = reading.refused.len() == 1;
    let reason = |(why, urls): (&&str, &usize)| match why.replace('-', " ") {
        why if only => why,
        why => format!("{} {why}", number(*urls as u64)),
    };
    let reasons: Vec<String> = reading.refused.iter().map(reason).collect();
    let left = if refused == 1 { "is" } else { "are" };
    Some(format!(
        "{} of {} {left} left out: {}",
        number(refused as u64),
        count(reading.entries_total as u64, "URL", "URLs"),
        reasons.join(", ")
    ))
}

/// What a feed asks of those who poll it.
fn hints(hints: &Hints, out: &mut Output) -> io::Result<()> {
    let mut asks = Vec::new();
    if let Some(seconds) = hints.min_interval_secs {
        let interval = humane::duration(std::time::Duration::from_secs(seconds.into()));
        asks.push(format!("{interval} between two polls"));
    }
    let hours: Vec<String> =
        (0..24).filter(|h| hints.skip_hours >> h & 1 == 1).map(|h| format!("{h:02}")).collect();
    if !hours.is_empty() {
        asks.push(format!("none in the hours {} (UTC)", hours.join(", ")));
    }
    let days = DAYS.iter().enumerate().filter(|(day, _)| hints.skip_days >> day & 1 == 1);
    let days: Vec<&str> = days.map(|(_, name)| *name).collect();
    if !days.is_empty() {
        asks.push(format!("none on {}", days.join(", ")));
    }
    if !asks.is_empty() {
        fact(out, "asks for", &asks.join(", "))?;
    }
    for hub in &hints.hubs {
        fact(out, "hub", hub)?;
    }
    if let Some(own) = &hints.self_url {
        fact(out, "itself", own)?;
    }
    if let Some(page) = &hints.next_page {
        fact(out, "older", page)?;
    }
    Ok(())
}

/// What a robots.txt says for everybody.
fn usage(robots: &Robots, out: &mut Output) -> io::Result<()> {
    let all = "*";
    if let Some(delay) = robots.crawl_delay(all) {
        let delay = humane::duration(delay);
        fact(out, "asks for", &format!("{delay} between two requests of any robot"))?;
    }
    if !robots.allows(all, "/") {
        fact(out, "forbids", "the home page to any robot without a group of its own")?;
    }
    let usage = robots.usage(all);
    let signals = usage.content_signal.lines().map(|line| ("signal", line));
    let usages = usage.content_usage.lines().map(|line| ("usage", line));
    let license = usage.license.as_deref().map(|text| ("license", text));
    for (name, value) in signals.chain(usages).chain(license) {
        fact(out, name, value)?;
    }
    Ok(())
}
