//! What holds of the hints of a feed, of what it says is gone, and of one text in
//! documents of every format.
//!
//! Hints and deletions written again, in any format and as `Link` headers, say the
//! same. A text that may be a URL or a date comes to the same wherever it stands.

use std::fmt::Write as _;

use sitemapd::model::Lastmod;
use sitemapd::parse::html::complete_hints;
use sitemapd::parse::{Hints, IssueCode};
use url::Url;

use super::Dice;
use super::again::escaped;
use super::document::{self, Found, Manner};

const ATOM: &str = "xmlns:atom=\"http://www.w3.org/2005/Atom\"";
const SYNDICATION: &str = "xmlns:sy=\"http://purl.org/rss/1.0/modules/syndication/\"";
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Hints written again are read as the same.
pub(super) fn are_read_again(found: &Found, plain: &Manner, dice: &mut Dice) {
    let hints = &found.report.hints;
    for (at, hub) in hints.hubs.iter().enumerate() {
        assert!(!hints.hubs[..at].contains(hub), "{hub} twice");
    }
    let urls = hints.hubs.iter().chain(&hints.self_url).chain(&hints.next_page);
    assert!(urls.clone().all(|url| Url::parse(url).is_ok_and(|u| u.as_str() == url)), "{hints:?}");
    if hints == &Hints::default() {
        return;
    }
    let (document, want) = match dice.below(3) {
        0 => (rss(hints), hints.clone()),
        1 => (atom(hints), of_links(hints)),
        _ => (json(hints), of_links(hints)),
    };
    assert_eq!(document::read(document.as_bytes(), plain).report.hints, want, "{document}");
    let elsewhere = Url::parse("https://elsewhere.example/").expect("a URL");
    let mut said = Hints::default();
    complete_hints(&headers(hints), &elsewhere, &mut said);
    assert_eq!(said, of_links(hints));
    // What a header says counts before the document; what is older counts last.
    let mut both = hints.clone();
    let other = ["<https://a.example/h>; rel=hub, </p>; rel=next".to_owned()];
    complete_hints(&other, &elsewhere, &mut both);
    assert_eq!(both.hubs, ["https://a.example/h"]);
    assert_eq!(both.self_url, hints.self_url);
    assert!(
        both.next_page.is_some()
            && (hints.next_page.is_none() || both.next_page == hints.next_page)
    );
}

/// The hints that are links.
fn of_links(hints: &Hints) -> Hints {
    let Hints { hubs, self_url, next_page, .. } = hints.clone();
    Hints { hubs, self_url, next_page, ..Hints::default() }
}

/// The links of hints: relation and target.
fn links(hints: &Hints) -> Vec<(&'static str, &String)> {
    let hubs = hints.hubs.iter().map(|url| ("hub", url));
    let own = hints.self_url.iter().map(|url| ("self", url));
    let next = hints.next_page.iter().map(|url| ("next", url));
    hubs.chain(own).chain(next).collect()
}

fn headers(hints: &Hints) -> Vec<String> {
    links(hints).iter().map(|(rel, url)| format!("<{url}>; rel=\"{rel}\"")).collect()
}

fn rss(hints: &Hints) -> String {
    let mut out = format!("<rss version=\"2.0\" {ATOM} {SYNDICATION}><channel>");
    for (rel, url) in links(hints) {
        let href = escaped(url);
        write!(out, "<atom:link rel=\"x {rel}\" href=\"{href}\"/>").expect("a string");
    }
    if let Some(seconds) = hints.min_interval_secs {
        write!(out, "{}", interval(seconds)).expect("a string");
    }
    let hours = (0..24).filter(|hour| hints.skip_hours >> hour & 1 == 1);
    let hours: Vec<String> = hours.map(|hour| format!("<hour>{hour}</hour>")).collect();
    let days = DAYS.iter().enumerate().filter(|(at, _)| hints.skip_days >> at & 1 == 1);
    let days: Vec<String> = days.map(|(_, day)| format!("<day>{day}</day>")).collect();
    let (hours, days) = (hours.concat(), days.concat());
    write!(out, "<skipHours>{hours}</skipHours><skipDays>{days}</skipDays>").expect("a string");
    out + "</channel></rss>"
}

/// Periods of the syndication module, in seconds.
const PERIODS: [(&str, u32); 5] = [
    ("hourly", 3_600),
    ("daily", 86_400),
    ("weekly", 604_800),
    ("monthly", 2_592_000),
    ("yearly", 31_536_000),
];

/// As `ttl`, or where it is not in whole minutes as a part of a year.
fn interval(seconds: u32) -> String {
    if seconds.is_multiple_of(60) {
        return format!("<ttl>{}</ttl>", seconds / 60);
    }
    let fits = PERIODS.iter().find_map(|(name, period)| {
        let times = period / seconds;
        (times > 0 && (period / times).max(1) == seconds).then_some((name, times))
    });
    let (name, times) = fits.unwrap_or_else(|| panic!("{seconds} s are a part of no period"));
    format!(
        "<sy:updatePeriod>{name}</sy:updatePeriod><sy:updateFrequency>{times}</sy:updateFrequency>"
    )
}

fn atom(hints: &Hints) -> String {
    let mut out = String::from("<feed xmlns=\"http://www.w3.org/2005/Atom\">");
    for (rel, url) in links(hints) {
        let href = escaped(url);
        write!(
            out,
            "<link href='{}' rel='http://www.iana.org/assignments/relation/{rel}'/>",
            href.replace('\'', "&#39;")
        )
        .expect("a string");
    }
    out + "</feed>"
}

fn json(hints: &Hints) -> String {
    let hubs: Vec<_> =
        hints.hubs.iter().map(|url| serde_json::json!({ "type": "WebSub", "url": url })).collect();
    let version = "https://jsonfeed.org/version/1.1";
    serde_json::json!({
        "version": version,
        "feed_url": hints.self_url,
        "next_url": hints.next_page,
        "hubs": hubs,
        "items": [],
    })
    .to_string()
}

/// What a feed says is gone, said again, is gone.
pub(super) fn deletions_are_read_again(found: &Found, plain: &Manner) {
    let gone: Vec<&str> =
        found.listed.iter().filter(|i| i.deleted).map(|i| i.loc.as_str()).collect();
    if gone.is_empty() {
        return;
    }
    let mut out = String::from(
        "<feed xmlns=\"http://www.w3.org/2005/Atom\" xmlns:at=\"http://purl.org/atompub/tombstones/1.0\">",
    );
    for url in &gone {
        let url = escaped(url);
        write!(out, "<at:deleted-entry ref=\"{url}\" when=\"2026-01-02T03:04:05Z\"/>")
            .expect("a string");
    }
    out.push_str("</feed>");
    let again = document::read(out.as_bytes(), plain);
    assert!(again.listed.iter().all(|i| i.deleted), "{out}");
    let read: Vec<&str> = again.listed.iter().map(|i| i.loc.as_str()).collect();
    assert_eq!(read, gone, "{out}");
    assert!(again.report.complete && again.report.issues.is_empty(), "{:?}", again.report.issues);
}

/// What a base may be.
const BASES: [&str; 3] =
    ["https://other.example/a/b?c", "http://example.com:8080/x/", "https://example.com"];

/// Lines that are put into documents of every format.
const MAX_LINES: usize = 4;

/// Lines come to the same URLs and dates whatever document they stand in, and relative
/// to a base that the document names as to that which it came from.
pub(super) fn one_text_means_one_thing(bytes: &[u8], dice: &mut Dice) {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text
        .split(['\n', '<', '>', '"'])
        .filter(|line| !line.contains('\0') && line.len() < 500)
        .filter(|line| !line.trim().is_empty())
        .take(MAX_LINES * 16)
        .collect();
    if lines.is_empty() {
        return;
    }
    let from = dice.below(lines.len());
    let lines = &lines[from..lines.len().min(from + MAX_LINES)];
    let base = dice.pick(&BASES);
    let there = Manner::at(base);
    let sitemap = made(lines, "<urlset>", "url", "loc", "lastmod", "</urlset>");
    let rss = made(lines, "<rss><channel>", "item", "link", "pubDate", "</channel></rss>");
    let want = meant(&sitemap, &there);
    assert_eq!(meant(&rss, &there), want, "{rss}\n{sitemap}");
    let json = json_of(lines);
    assert_eq!(meant(&json, &there), want, "{json}\n{sitemap}");
    let atom = atom_of(lines, "<feed>");
    assert_eq!(meant(&atom, &there), want, "{atom}\n{sitemap}");
    let based = atom_of(lines, &format!("<feed xml:base=\"{base}\">"));
    assert_eq!(meant(&based, &Manner::default()), want, "{based}\n{sitemap}");
    let rss = rss.replace("<rss>", &format!("<rss xml:base=\"{base}\">"));
    assert_eq!(meant(&rss, &Manner::default()), want, "{rss}\n{sitemap}");
}

/// The URLs and dates that a document lists.
fn meant(document: &str, manner: &Manner) -> (Vec<(String, Option<Lastmod>)>, bool) {
    let found = document::read(document.as_bytes(), manner);
    let dated = found.listed.iter().map(|i| (i.loc.clone(), i.lastmod.or(i.published)));
    (dated.collect(), found.has(IssueCode::InvalidDate))
}

/// Every character by its number, so that it is text whatever it is.
fn numbered(text: &str) -> String {
    let numbers: Vec<String> = text.chars().map(|c| format!("&#{};", u32::from(c))).collect();
    numbers.concat()
}

fn made(lines: &[&str], start: &str, entry: &str, loc: &str, date: &str, end: &str) -> String {
    let mut out = start.to_owned();
    for line in lines {
        let text = numbered(line);
        write!(out, "<{entry}><{loc}>{text}</{loc}><{date}>{text}</{date}></{entry}>")
            .expect("a string");
        // The text as a date, beside a URL that is one.
        write!(out, "<{entry}><{loc}>http://e.example/</{loc}><{date}>{text}</{date}></{entry}>")
            .expect("a string");
    }
    out + end
}

fn atom_of(lines: &[&str], start: &str) -> String {
    let mut out = start.to_owned();
    for line in lines {
        let text = numbered(line);
        for href in [text.as_str(), "http://e.example/"] {
            write!(out, "<entry><link href=\"{href}\"/><published>{text}</published></entry>")
                .expect("a string");
        }
    }
    out + "</feed>"
}

fn json_of(lines: &[&str]) -> String {
    let mut items = Vec::new();
    for line in lines {
        for url in [*line, "http://e.example/"] {
            items.push(serde_json::json!({ "url": url, "date_published": line }));
        }
    }
    serde_json::json!({ "title": "t", "items": items }).to_string()
}
