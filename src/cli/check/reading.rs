//! Decodes and parses one document, and keeps what is needed to report on it.
//!
//! Memory is bounded by the limits on entries; without `--entries` only a
//! first few are kept.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::ControlFlow;

use jiff::Timestamp;
use url::{Host, Url};

use super::input::Document;
use crate::config::FetchLimits;
use crate::fetch::body::{Decoded, Strict};
use crate::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use crate::parse::doubt::Doubts;
use crate::parse::excerpt::{self, Excerpt};
use crate::parse::html::complete_hints;
use crate::parse::robots::{self, Robots};
use crate::parse::{self, Context, Entry, Extensions, IssueCode, Item, Limits, Report, Severity};
use crate::schedule::defects;
use crate::url::SiteRules;

/// Entries shown to a person who did not ask for all.
const FIRST: usize = 5;

/// The word of the site's rules for a URL of another site.
const OUT_OF_SCOPE: &str = "out-of-scope";

/// What was read.
#[derive(Debug)]
pub struct Reading {
    /// What the parser says.
    pub report: Report,
    /// The document's own compression; `None` where it has none.
    pub compression: Option<&'static str>,
    /// Usable entries, kept or not.
    pub entries_total: usize,
    /// Usable children, kept or not.
    pub sitemaps_total: usize,
    /// Usable URLs that a feed says were deleted.
    pub deleted: usize,
    /// Of the usable entries, those with a date.
    pub dated: usize,
    /// The newest of these dates.
    pub newest: Option<Lastmod>,
    /// Of the usable entries, those that the daemon would not take, by why not.
    pub refused: BTreeMap<&'static str, usize>,
    /// Is it an HTML page?
    pub is_html: bool,
    /// The rules, where it is a robots.txt.
    pub robots: Option<Robots>,
    /// Images, videos, news and alternates that the usable entries name.
    pub named: [usize; 4],
    /// The entries, all or the first few, in document order.
    pub entries: Vec<Listed>,
    /// The children, all or the first few, in document order.
    pub sitemaps: Vec<Child>,
}

/// One usable entry.
#[derive(Debug)]
pub struct Listed {
    /// Its URL as the WHATWG standard serialises it.
    pub loc: String,
    /// Would the daemon take it? `None` where the document has no known URL.
    pub in_scope: Option<bool>,
    /// See [`Entry`].
    pub lastmod: Option<Lastmod>,
    /// See [`Entry`].
    pub updated: Option<Lastmod>,
    /// See [`Entry`].
    pub published: Option<Lastmod>,
    /// See [`Entry`].
    pub changefreq: Option<ChangeFreq>,
    /// See [`Entry`].
    pub priority: Option<Priority>,
    /// See [`Entry`].
    pub extensions: Option<Extensions>,
}

/// One usable child of an index, or `Sitemap:` line of a robots.txt.
#[derive(Debug)]
pub struct Child {
    /// Its URL as the WHATWG standard serialises it.
    pub loc: String,
    /// When it changed, says the index.
    pub lastmod: Option<Lastmod>,
}

impl Reading {
    /// Could the document be read? Not if it is none of ours, or if its body
    /// broke off before the first usable entry.
    pub fn is_usable(&self) -> bool {
        let issues = &self.report.issues;
        // What its body lacks has a name of its own where that is known.
        let broke_off = issues.iter().any(|issue| {
            matches!(
                issue.code,
                IssueCode::IncompleteBody | IssueCode::CompressionError | IssueCode::FileTooLarge
            )
        });
        let nothing = self.entries_total + self.sitemaps_total == 0;
        self.report.kind != DocumentKind::Unsupported
            && !issues.iter().any(|issue| issue.severity == Severity::Fatal)
            && !(broke_off && nothing)
    }
}

/// Reads a document within the limits; `rules` judge what is in scope, `now`
/// what is to come.
pub fn read(
    document: &Document,
    limits: &FetchLimits,
    rules: Option<&SiteRules>,
    keep_all: bool,
    now: Timestamp,
) -> Reading {
    let coding = &document.content_encoding;
    let decoded = Decoded::new(document.body.clone(), coding, limits.max_body_bytes);
    let cut_at = document.cut.then_some(limits.max_wire_bytes);
    let mut body = Strict::new(decoded, limits.max_body_bytes, cut_at);
    let context = Context {
        base: &document.base,
        content_type: document.content_type.as_deref(),
        limits: Limits {
            max_urls: limits.max_urls,
            max_sitemaps: limits.max_sitemaps,
            max_url_chars: limits.max_url_chars,
        },
    };
    let mut gathered = Gathered::new(document, rules, keep_all, now);
    let mut report = parse::parse(&mut body, &context, &mut |item| {
        gathered.take(&item);
        ControlFlow::Continue(())
    });
    if let Some((lack, how)) = body.lack() {
        defects::lacks(&mut report, lack, &how);
    }
    let kind = report.kind;
    complete_hints(&document.links, &document.base, &mut report.hints);
    if !kind.is_feed() {
        report.hints.next_page = None;
    }
    let reading = gathered.into_reading(report, body.outcome().compression);
    Reading {
        is_html: kind == DocumentKind::Unsupported && is_html(document, limits),
        robots: (kind == DocumentKind::Robots).then(|| Robots::parse(&start(document, limits))),
        ..reading
    }
}

/// The line that each of these bytes of the decoded document is in.
pub(super) fn excerpts(document: &Document, offsets: &[u64], width: usize) -> Vec<Option<Excerpt>> {
    let coding = &document.content_encoding;
    // Nothing behind the last place is looked at.
    let mut body = Decoded::new(document.body.clone(), coding, u64::MAX);
    excerpt::excerpts(&mut body, document.content_type.as_deref(), offsets, width)
}

/// The first bytes of a document, as many as of a robots.txt are read.
fn start(document: &Document, limits: &FetchLimits) -> Vec<u8> {
    let coding = &document.content_encoding;
    let body = Decoded::new(document.body.clone(), coding, limits.max_body_bytes);
    let mut start = Vec::new();
    // What could be decoded is what there is.
    let _ = body.take(robots::MAX_BYTES as u64).read_to_end(&mut start);
    start
}

fn is_html(document: &Document, limits: &FetchLimits) -> bool {
    let start = start(document, limits);
    let start = start.get(..4_096).unwrap_or(&start).to_ascii_lowercase();
    let has = |tag: &[u8]| start.windows(tag.len()).any(|window| window == tag);
    has(b"<!doctype html") || has(b"<html") || has(b"<body")
}

/// What the sink keeps while a document is read.
struct Gathered<'a> {
    document: &'a Document,
    rules: Option<&'a SiteRules>,
    keep_all: bool,
    entries_total: usize,
    sitemaps_total: usize,
    deleted: usize,
    dated: usize,
    newest: Option<Lastmod>,
    refused: BTreeMap<&'static str, usize>,
    doubts: Doubts,
    named: [usize; 4],
    entries: Vec<Listed>,
    sitemaps: Vec<Child>,
}

impl<'a> Gathered<'a> {
    fn new(
        document: &'a Document,
        rules: Option<&'a SiteRules>,
        keep_all: bool,
        now: Timestamp,
    ) -> Self {
        Self {
            document,
            rules,
            keep_all,
            entries_total: 0,
            sitemaps_total: 0,
            deleted: 0,
            dated: 0,
            newest: None,
            refused: BTreeMap::new(),
            doubts: Doubts::new(now),
            named: [0; 4],
            entries: Vec::new(),
            sitemaps: Vec::new(),
        }
    }

    fn take(&mut self, item: &Item<'_>) {
        match item {
            Item::Entry(entry) => {
                if let Some(url) = self.usable(entry.loc) {
                    self.take_entry(entry, url);
                }
            }
            Item::Sitemap(child) => {
                let Some(url) = self.usable(child.loc) else { return };
                self.sitemaps_total += 1;
                if self.keep_all || self.sitemaps.len() < FIRST {
                    self.sitemaps.push(Child { loc: url.into(), lastmod: child.lastmod });
                }
            }
            Item::Deleted(page) => self.deleted += usize::from(self.usable(page.loc).is_some()),
        }
    }

    fn take_entry(&mut self, entry: &Entry<'_>, url: Url) {
        self.entries_total += 1;
        self.doubts.date(entry);
        self.doubts.repetition(entry);
        let in_scope = self.judge(entry, &url);
        if let Some(date) = entry.effective_lastmod() {
            self.dated += 1;
            if self.newest.is_none_or(|newest| date.at > newest.at) {
                self.newest = Some(date);
            }
        }
        if let Some(all) = entry.extensions {
            let here = [all.images.len(), all.videos.len(), all.news.len(), all.alternates.len()];
            self.named.iter_mut().zip(here).for_each(|(sum, more)| *sum += more);
        }
        if !self.keep_all && self.entries.len() >= FIRST {
            return;
        }
        self.entries.push(Listed {
            loc: url.into(),
            in_scope,
            lastmod: entry.lastmod,
            updated: entry.updated,
            published: entry.published,
            changefreq: entry.changefreq,
            priority: entry.priority,
            extensions: entry.extensions.cloned(),
        });
    }

    /// Would the daemon take it? And if it would, is it written as the sitemap is?
    fn judge(&mut self, entry: &Entry<'_>, url: &Url) -> Option<bool> {
        let base = &self.document.base;
        let verdict = self.rules?.admit(entry.loc, base);
        if let Err(why) = &verdict {
            *self.refused.entry(why.as_str()).or_insert(0) += 1;
            if why.as_str() == OUT_OF_SCOPE {
                self.doubts.note(IssueCode::UrlNotAllowed, entry, entry.loc);
            }
            return Some(false);
        }
        if let (Some(Host::Domain(own)), Some(Host::Domain(host))) = (base.host(), url.host()) {
            if own.strip_prefix("www.") == Some(host) {
                self.doubts.note(IssueCode::MissingWww, entry, entry.loc);
            } else if host.strip_prefix("www.") == Some(own) {
                self.doubts.note(IssueCode::IncludesWww, entry, entry.loc);
            }
        }
        Some(true)
    }

    /// The URL, if it is an absolute http(s) one by the WHATWG standard.
    fn usable(&self, loc: &str) -> Option<Url> {
        let url = Url::parse(loc).ok()?;
        let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
        (is_web && !self.document.is_made_up(&url)).then_some(url)
    }

    fn into_reading(self, mut report: Report, compression: Option<&'static str>) -> Reading {
        // A feed may well link to others: that is what some are for.
        let about_sitemaps =
            [IssueCode::UrlNotAllowed, IssueCode::MissingWww, IssueCode::IncludesWww];
        let counts = !report.kind.is_feed();
        let doubts = self.doubts.into_issues().into_iter();
        report.issues.extend(doubts.filter(|d| counts || !about_sitemaps.contains(&d.code)));
        Reading {
            report,
            compression,
            entries_total: self.entries_total,
            sitemaps_total: self.sitemaps_total,
            deleted: self.deleted,
            dated: self.dated,
            newest: self.newest,
            refused: self.refused,
            is_html: false,
            robots: None,
            named: self.named,
            entries: self.entries,
            sitemaps: self.sitemaps,
        }
    }
}
