//! Bytes to entries: sniffs the format, runs the right reader, reports defects.
//!
//! Pure: no network, no clock, no store. A defect in somebody's document is
//! never an error; it is an [`Issue`] in the [`Report`]. Entries are handed to
//! a sink as they are read, so memory does not grow with the document.

mod digest;
pub mod doubt;
pub mod excerpt;
mod feed;
pub mod html;
pub mod issue;
mod json_feed;
mod loc;
mod plain;
pub mod robots;
mod route;
mod sitemap;
mod text;
mod xml;

use std::io::Read;
use std::ops::ControlFlow;

pub use crate::model::extension::Extensions;
use crate::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use issue::Issues;
pub use issue::{Issue, IssueCode, Place, Severity};
pub use loc::NO_BASE;
use route::{Router, Shape};
use text::{Text, WINDOW};

/// Limits on one document. What is over is cut there and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries kept of one document (Sitemaps protocol: 50,000).
    pub max_urls: usize,
    /// Children kept of one index (Sitemaps protocol: 50,000).
    pub max_sitemaps: usize,
    /// Characters of one URL (Sitemaps protocol: 2,048).
    pub max_url_chars: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_urls: 50_000, max_sitemaps: 50_000, max_url_chars: 2_048 }
    }
}

/// What is known of a document before it is read.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Where it came from, after redirects: relative URLs resolve against it.
    pub base: &'a url::Url,
    /// The `Content-Type` header, if any. Only its charset is believed, and
    /// that only where the bytes do not say better.
    pub content_type: Option<&'a str>,
    /// Limits on entries and URLs.
    pub limits: Limits,
}

/// One thing a document lists.
#[derive(Debug)]
pub enum Item<'a> {
    /// A page.
    Entry(Entry<'a>),
    /// A child sitemap of an index (or a `Sitemap:` line of a robots.txt).
    Sitemap(SitemapRef<'a>),
    /// A page that a feed says is gone; comes after all entries.
    Deleted(Deleted<'a>),
}

/// A page that a feed says was deleted (RFC 6721, `at:deleted-entry`); `loc`
/// as in [`Entry::loc`]. Never given for an entry that was updated since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted<'a> {
    /// The URL of the page.
    pub loc: &'a str,
    /// When it was deleted, says the feed.
    pub when: Option<jiff::Timestamp>,
}

/// One page as a document lists it.
#[derive(Debug, Default)]
pub struct Entry<'a> {
    /// The URL as listed: references decoded, trimmed, relative ones resolved.
    /// Always begins with `http:` or `https:` (in any letter case) and is at
    /// most `max_url_chars` long, but is not yet parsed as a URL.
    pub loc: &'a str,
    /// `<lastmod>` of a sitemap entry, if readable.
    pub lastmod: Option<Lastmod>,
    /// When the feed says the item was last updated.
    pub updated: Option<Lastmod>,
    /// When the feed says the item was published.
    pub published: Option<Lastmod>,
    /// `<changefreq>`, if it is one of the protocol's words.
    pub changefreq: Option<ChangeFreq>,
    /// `<priority>`, if it is a number from 0.0 to 1.0.
    pub priority: Option<Priority>,
    /// Hash over what else the entry says that would show a changed page
    /// (titles, images, videos, news), 0 when it says nothing else.
    pub digest: u64,
    /// Extension fields, empty for most entries.
    pub extensions: Option<&'a Extensions>,
    /// Where the entry begins.
    pub place: Place<'a>,
}

impl Entry<'_> {
    /// The date that counts as this entry's lastmod: a sitemap's `lastmod`,
    /// else a feed's `updated`, else its `published`.
    pub fn effective_lastmod(&self) -> Option<Lastmod> {
        self.lastmod.or(self.updated).or(self.published)
    }

    /// The first of these dates that is believed.
    pub fn lastmod_if(&self, believed: impl Fn(&Lastmod) -> bool) -> Option<Lastmod> {
        [self.lastmod, self.updated, self.published].into_iter().flatten().find(believed)
    }
}

/// One child of an index as it lists it; `loc` as in [`Entry::loc`].
#[derive(Debug)]
pub struct SitemapRef<'a> {
    /// The URL of the child.
    pub loc: &'a str,
    /// When the child file changed, says the index.
    pub lastmod: Option<Lastmod>,
}

/// Where a sink tells the reader to go on or to stop.
pub type Sink<'s> = dyn FnMut(Item<'_>) -> ControlFlow<()> + 's;

/// What was read, and what was wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What the document turned out to be.
    pub kind: DocumentKind,
    /// The encoding it was read in, by its WHATWG name.
    pub encoding: &'static str,
    /// Decoded bytes read.
    pub bytes: u64,
    /// Entries kept.
    pub entries_total: usize,
    /// Children kept.
    pub sitemaps_total: usize,
    /// Was the document read to its end, with nothing cut or refused? Only
    /// then may the absence of an entry mean anything.
    pub complete: bool,
    /// Does it show a window only (a feed, a news sitemap)? Then absence
    /// never means anything.
    pub window: bool,
    /// Defects by code, in order of first appearance.
    pub issues: Vec<Issue>,
    /// What the publisher says about polling and paging.
    pub hints: Hints,
}

impl Report {
    /// Something of the body is missing, and this is what: instead of the
    /// general [`IssueCode::IncompleteBody`], if that was found.
    pub fn lacks(&mut self, code: IssueCode, how: &str) {
        self.complete = false;
        // That the text is cut off too is no defect of its own.
        self.issues.retain(|issue| issue.code != code && issue.code != IssueCode::Truncated);
        let general = |issue: &&mut Issue| issue.code == IssueCode::IncompleteBody;
        if let Some(issue) = self.issues.iter_mut().find(general) {
            issue.code = code;
            issue.severity = code.severity();
            return;
        }
        let sample = issue::printable(how);
        let offset = self.bytes;
        self.issues.push(Issue { offset, sample, ..Issue::of_whole(code) });
    }
}

/// What a document says about itself to a poller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// RSS `ttl` or `sy:updatePeriod`/`updateFrequency`, as seconds.
    pub min_interval_secs: Option<u32>,
    /// RSS `skipHours`: a bit per hour (UTC) in which not to poll.
    pub skip_hours: u32,
    /// RSS `skipDays`: a bit per weekday, Monday = bit 0.
    pub skip_days: u8,
    /// `WebSub` hubs.
    pub hubs: Vec<String>,
    /// The document's own URL, says the document.
    pub self_url: Option<String>,
    /// RFC 5005 `prev-archive` or `next`, JSON Feed `next_url`.
    pub next_page: Option<String>,
}

/// Reads one document: finds what it is, hands its entries to `sink` in
/// document order, and reports.
///
/// An error of `reader` means that the body was cut, corrupt or over its limit:
/// what was complete before it counts, and the report says so. When `sink`
/// breaks, reading stops there and the document counts as incomplete.
pub fn parse(reader: &mut dyn Read, ctx: &Context<'_>, sink: &mut Sink<'_>) -> Report {
    let mut text = Text::new(reader, ctx.content_type);
    let mut issues = Issues::default();
    text.fill(WINDOW);
    let shape = if robots::is_at(ctx.base) && robots::Robots::read(&mut text).is_one() {
        Shape::Robots
    } else {
        route::sniff(text.rest(), text.at_end())
    };
    let read = match shape {
        Shape::Xml => read_xml(&mut text, &mut issues, ctx, sink),
        Shape::Json => read_json(&mut text, &mut issues, ctx, sink),
        Shape::Robots => read_robots(&mut text, &mut issues, ctx, sink),
        Shape::Text => read_plain(&mut text, &mut issues, ctx, sink),
        Shape::Empty | Shape::Unknown => Reading::default(),
    };
    close(read, &text, issues)
}

/// What one of the readers made of a document.
struct Reading {
    kind: DocumentKind,
    entries: usize,
    sitemaps: usize,
    complete: bool,
    window: bool,
    hints: Hints,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            kind: DocumentKind::Unsupported,
            entries: 0,
            sitemaps: 0,
            complete: false,
            window: false,
            hints: Hints::default(),
        }
    }
}

fn read_xml(
    text: &mut Text<'_>,
    issues: &mut Issues,
    ctx: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Reading {
    let mut router = Router::new(ctx, sink);
    let outcome = xml::read(text, issues, &mut router);
    let Some(found) = router.result() else { return Reading::default() };
    Reading {
        kind: found.kind,
        entries: found.entries,
        sitemaps: found.sitemaps,
        complete: outcome.complete && !outcome.stopped && !found.lacks_entries,
        window: found.window,
        hints: found.hints,
    }
}

fn read_json(
    text: &mut Text<'_>,
    issues: &mut Issues,
    ctx: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Reading {
    let listed = json_feed::read(text, issues, ctx, sink);
    if !listed.is_feed {
        return Reading::default();
    }
    Reading {
        kind: DocumentKind::JsonFeed,
        entries: listed.entries,
        complete: listed.complete,
        window: true,
        hints: listed.hints,
        ..Reading::default()
    }
}

fn read_plain(
    text: &mut Text<'_>,
    issues: &mut Issues,
    ctx: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Reading {
    let listed = plain::read(text, issues, ctx, sink);
    Reading {
        kind: DocumentKind::Text,
        entries: listed.entries,
        complete: !listed.over_limit && !listed.stopped,
        ..Reading::default()
    }
}

/// A robots.txt lists sitemaps; its rules are read by [`robots::Robots`].
fn read_robots(
    text: &mut Text<'_>,
    issues: &mut Issues,
    ctx: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Reading {
    let (robots, places) = robots::Robots::read_with_places(text);
    let mut cx = xml::Cx { issues, place: text.place(0) };
    let mut read = Reading {
        kind: DocumentKind::Robots,
        complete: !robots.is_too_large(),
        ..Reading::default()
    };
    let defects = [
        (IssueCode::SyntaxNotUnderstood, &places.strange),
        (IssueCode::NoUserAgent, &places.homeless),
    ];
    for (code, defect) in defects.into_iter().filter(|(_, defect)| defect.count > 0) {
        let place = text.place(defect.at);
        cx.issues.push(code, defect.count, place.line(), place.offset(), &defect.sample);
    }
    let mut url = String::new();
    let mut given = std::collections::HashSet::new();
    for (value, at) in robots.sitemaps().iter().zip(&places.sitemaps) {
        cx.place = text.place(*at);
        if !loc::admit(value, ctx.base, ctx.limits.max_url_chars, &mut url, &mut cx) {
            continue;
        }
        if read.sitemaps >= ctx.limits.max_sitemaps {
            cx.note(IssueCode::TooManySitemaps, &url);
            read.complete = false;
            continue;
        }
        // Two spellings of one URL: a relative and an absolute one.
        if !given.insert(url.clone()) {
            continue;
        }
        read.sitemaps += 1;
        if sink(Item::Sitemap(SitemapRef { loc: &url, lastmod: None })).is_break() {
            read.complete = false;
            break;
        }
    }
    if let Some(at) = places.cut {
        cx.place = text.place(at);
        cx.note(IssueCode::RobotsTooLarge, "");
    }
    read
}

/// Enters what concerns the body as a whole and closes the report.
fn close(read: Reading, text: &Text<'_>, mut issues: Issues) -> Report {
    if let Some(bad) = text.bad_bytes() {
        issues.push(IssueCode::EncodingError, bad.count, bad.line, bad.offset, &bad.sample);
    }
    let is_other = matches!(read.kind, DocumentKind::Robots | DocumentKind::Unsupported);
    let is_sitemap = !is_other && !read.kind.is_feed();
    if is_sitemap && text.bad_bytes().is_none() && text.encoding() != "UTF-8" {
        issues.note(IssueCode::NotUtf8, text.place(0), text.encoding());
    }
    let end = text.place(text.rest().len());
    if let Some(why) = text.failure() {
        issues.note(IssueCode::IncompleteBody, end, why);
    }
    if read.kind == DocumentKind::Unsupported {
        let empty = loc::trim(text.rest()).is_empty() && text.offset() == 0;
        let code = if empty { IssueCode::EmptyDocument } else { IssueCode::UnsupportedFormat };
        let start: String = text.rest().chars().take(80).collect();
        if text.failure().is_none() || !empty {
            issues.note(code, text.place(0), &start);
        }
    }
    Report {
        kind: read.kind,
        encoding: text.encoding(),
        bytes: end.offset(),
        entries_total: read.entries,
        sitemaps_total: read.sitemaps,
        complete: read.complete && text.failure().is_none(),
        window: read.window,
        issues: issues.into_list(),
        hints: read.hints,
    }
}

#[cfg(test)]
mod tests;
