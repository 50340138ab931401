//! Decodes and parses one document, and keeps what is needed to report on it.
//!
//! Memory is bounded by the limits on entries; without `--entries` only a
//! first few are kept.

use std::io::{self, Read};
use std::ops::ControlFlow;

use url::Url;

use super::input::Document;
use crate::config::FetchLimits;
use crate::fetch::body::{Decoded, End};
use crate::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use crate::parse::{self, Context, Entry, Extensions, IssueCode, Item, Limits, Report, Severity};
use crate::url::SiteRules;

/// Entries shown to a person who did not ask for all.
const FIRST: usize = 5;

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
    /// Of the usable entries, those with a date.
    pub dated: usize,
    /// The newest of these dates.
    pub newest: Option<Lastmod>,
    /// Of the usable entries, those that the daemon would not take.
    pub out_of_scope: usize,
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
        let broke_off = issues.iter().any(|issue| issue.code == IssueCode::IncompleteBody);
        let nothing = self.entries_total + self.sitemaps_total == 0;
        self.report.kind != DocumentKind::Unsupported
            && !issues.iter().any(|issue| issue.severity == Severity::Fatal)
            && !(broke_off && nothing)
    }
}

/// Reads a document within the limits; `rules` judge what is in scope.
pub fn read(
    document: &Document,
    limits: &FetchLimits,
    rules: Option<&SiteRules>,
    keep_all: bool,
) -> Reading {
    let coding = &document.content_encoding;
    let decoded = Decoded::new(document.body.clone(), coding, limits.max_body_bytes);
    let mut body = Body { decoded, document, limits };
    let context = Context {
        base: &document.base,
        content_type: document.content_type.as_deref(),
        limits: Limits {
            max_urls: limits.max_urls,
            max_sitemaps: limits.max_sitemaps,
            max_url_chars: limits.max_url_chars,
        },
    };
    let mut gathered = Gathered::new(document, rules, keep_all);
    let report = parse::parse(&mut body, &context, &mut |item| {
        gathered.take(&item);
        ControlFlow::Continue(())
    });
    gathered.into_reading(report, body.decoded.outcome().compression)
}

/// The decoded document, which fails at its end where something is missing, so
/// that the parser reports the defect in its place.
struct Body<'a> {
    decoded: Decoded,
    document: &'a Document,
    limits: &'a FetchLimits,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoded.read(buffer)?;
        if read > 0 || buffer.is_empty() {
            return Ok(read);
        }
        let missing = match self.decoded.outcome().end {
            End::OverLimit => format!("more than {} bytes", self.limits.max_body_bytes),
            _ if self.document.cut => {
                format!("more than {} bytes as sent", self.limits.max_wire_bytes)
            }
            End::Whole => return Ok(0),
            End::Truncated => "the compressed data stops before its end".to_owned(),
            End::Corrupt(how) => how,
        };
        Err(io::Error::other(missing))
    }
}

/// What the sink keeps while a document is read.
struct Gathered<'a> {
    document: &'a Document,
    rules: Option<&'a SiteRules>,
    keep_all: bool,
    entries_total: usize,
    sitemaps_total: usize,
    dated: usize,
    newest: Option<Lastmod>,
    out_of_scope: usize,
    named: [usize; 4],
    entries: Vec<Listed>,
    sitemaps: Vec<Child>,
}

impl<'a> Gathered<'a> {
    fn new(document: &'a Document, rules: Option<&'a SiteRules>, keep_all: bool) -> Self {
        Self {
            document,
            rules,
            keep_all,
            entries_total: 0,
            sitemaps_total: 0,
            dated: 0,
            newest: None,
            out_of_scope: 0,
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
        }
    }

    fn take_entry(&mut self, entry: &Entry<'_>, url: Url) {
        self.entries_total += 1;
        let base = &self.document.base;
        let in_scope = self.rules.map(|rules| rules.admit(entry.loc, base).is_ok());
        self.out_of_scope += usize::from(in_scope == Some(false));
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

    /// The URL, if it is an absolute http(s) one by the WHATWG standard.
    fn usable(&self, loc: &str) -> Option<Url> {
        let url = Url::parse(loc).ok()?;
        let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
        (is_web && !self.document.is_made_up(&url)).then_some(url)
    }

    fn into_reading(self, report: Report, compression: Option<&'static str>) -> Reading {
        Reading {
            report,
            compression,
            entries_total: self.entries_total,
            sitemaps_total: self.sitemaps_total,
            dated: self.dated,
            newest: self.newest,
            out_of_scope: self.out_of_scope,
            named: self.named,
            entries: self.entries,
            sitemaps: self.sitemaps,
        }
    }
}
