//! What holds of every document, whatever it is.
//!
//! How its bytes arrive does not matter; the report counts what the sink saw;
//! nothing exceeds its limit; what was cut short is never complete. What the
//! entries mean is left to `again` and to tests with documents of known content.

use std::io::{self, ErrorKind, Read};
use std::ops::ControlFlow;

use sitemapd::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use sitemapd::parse::{Context, Extensions, IssueCode, Item, Limits, Report, parse};
use url::Url;

use super::Dice;

const BASE: &str = "https://example.com/dir/doc.xml";

/// What a server may say that the body is.
const CONTENT_TYPES: [Option<&str>; 6] = [
    None,
    Some("text/xml"),
    Some("application/xml; charset=utf-8"),
    Some("text/html; charset=iso-8859-1"),
    Some("text/plain; charset=\"Shift_JIS\""),
    Some("text/xml; charset=utf-16"),
];

/// Text that a window of the reader holds, in bytes.
const WINDOW: usize = 64 * 1024;

/// One entry or child as the sink saw it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listed {
    pub(super) loc: String,
    pub(super) child: bool,
    /// Is it said to be gone?
    pub(super) deleted: bool,
    pub(super) lastmod: Option<Lastmod>,
    pub(super) updated: Option<Lastmod>,
    pub(super) published: Option<Lastmod>,
    changefreq: Option<ChangeFreq>,
    priority: Option<Priority>,
    digest: u64,
    pub(super) extensions: Option<Extensions>,
}

/// What came of a document.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) listed: Vec<Listed>,
    pub(super) report: Report,
}

impl Found {
    /// Is there an issue of this code?
    pub(super) fn has(&self, code: IssueCode) -> bool {
        self.report.issues.iter().any(|issue| issue.code == code)
    }

    /// What is wrong with it. How often is left out: text that an edge of a
    /// window cuts is counted twice.
    fn codes(&self) -> Vec<IssueCode> {
        self.report.issues.iter().map(|issue| issue.code).collect()
    }
}

/// How a document is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Manner {
    limits: Limits,
    /// Where it came from, if not from the usual place.
    base: Option<&'static str>,
    content_type: Option<&'static str>,
    /// Sizes of the pieces in turn, 0 for an interruption; none: in one piece.
    sizes: Vec<usize>,
    /// Does the reader fail where the bytes end?
    fails: bool,
    /// Does the sink stop at the item of this number?
    stop_at: Option<usize>,
}

impl Manner {
    fn drawn(dice: &mut Dice) -> Self {
        let tight = Limits { max_urls: 3, max_sitemaps: 2, max_url_chars: 40 };
        Self {
            limits: dice.pick(&[Limits::default(), Limits::default(), tight]),
            content_type: dice.pick(&CONTENT_TYPES),
            ..Self::default()
        }
    }

    /// In one piece as a document from there.
    pub(super) fn at(base: &'static str) -> Self {
        Self { base: Some(base), ..Self::default() }
    }

    /// The pages that it keeps.
    pub(super) fn max_urls(&self) -> usize {
        self.limits.max_urls
    }

    /// In one piece under the same limits, with nothing said of it.
    pub(super) fn plain(&self) -> Self {
        Self { limits: self.limits, ..Self::default() }
    }
}

/// Reads a document.
pub(super) fn read(bytes: &[u8], manner: &Manner) -> Found {
    let base = Url::parse(manner.base.unwrap_or(BASE)).expect("a URL");
    let (limits, content_type) = (manner.limits, manner.content_type);
    let mut listed = Vec::new();
    let mut reader = Pieces { rest: bytes, manner, turn: 0 };
    let report = parse(&mut reader, &Context { base: &base, content_type, limits }, &mut |item| {
        listed.push(owned(&item));
        if manner.stop_at == Some(listed.len()) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    Found { listed, report }
}

/// Reads a document in every manner; what it is when read plainly.
pub(super) fn holds(bytes: &[u8], dice: &mut Dice) -> (Found, Manner) {
    let manner = Manner::drawn(dice);
    let found = read(bytes, &manner);
    each_entry_is_fit(&found, manner.limits);
    the_report_is_true(&found, bytes, manner.limits);
    if dice.turn(3) {
        pieces_do_not_matter(bytes, &found, &manner, dice);
    }
    if dice.turn(3) {
        what_is_cut_short_is_not_complete(bytes, &found, &manner, dice);
    }
    if dice.turn(4) {
        edges_of_the_window_do_not_matter(bytes, &manner, dice);
    }
    (found, manner)
}

fn each_entry_is_fit(found: &Found, limits: Limits) {
    for item in &found.listed {
        let loc = &item.loc;
        let start = loc.get(..5).unwrap_or_default().to_ascii_lowercase();
        assert!(start == "http:" || start == "https", "{loc:?}");
        assert!(loc.chars().count() <= limits.max_url_chars, "{loc:?} is too long");
        assert!(!loc.contains(|c: char| c.is_ascii_control() || c == '\u{fffd}'), "{loc:?}");
        let url = Url::parse(loc);
        let host = url.as_ref().is_ok_and(|u| u.has_host() && u.scheme().starts_with("http"));
        assert!(host, "{loc:?} is no URL of the web");
        if let Some(extensions) = &item.extensions {
            let sizes = [
                extensions.images.len(),
                extensions.videos.len(),
                extensions.news.len(),
                extensions.alternates.len(),
            ];
            assert!(sizes.iter().all(|size| *size <= 1_000), "{loc:?}");
        }
    }
}

fn the_report_is_true(found: &Found, bytes: &[u8], limits: Limits) {
    let report = &found.report;
    let children = found.listed.iter().filter(|item| item.child).count();
    assert_eq!(report.sitemaps_total, children);
    let deleted = found.listed.iter().filter(|item| item.deleted).count();
    assert_eq!(report.entries_total, found.listed.len() - children - deleted);
    // What is gone is told last, and by feeds only.
    let told_last = found.listed[found.listed.len() - deleted..].iter().all(|item| item.deleted);
    assert!(told_last && (deleted == 0 || report.window), "{:?}", found.listed);
    assert!(report.entries_total <= limits.max_urls && children <= limits.max_sitemaps);
    // A byte of a single-byte encoding is at most three of UTF-8.
    assert!(report.bytes <= 3 * bytes.len() as u64, "{} of {}", report.bytes, bytes.len());
    if std::str::from_utf8(bytes).is_ok() && report.encoding == "UTF-8" {
        assert!(report.bytes <= bytes.len() as u64);
    }
    for (at, issue) in report.issues.iter().enumerate() {
        assert!(report.issues[..at].iter().all(|other| other.code != issue.code), "{issue:?}");
        assert_eq!(issue.severity, issue.code.severity());
        assert!(issue.count >= 1 && issue.line >= 1, "{issue:?}");
        assert!(issue.offset <= report.bytes, "{issue:?} after {}", report.bytes);
        assert!(issue.sample.chars().count() <= 200, "{issue:?}");
        assert!(!issue.sample.contains(char::is_control), "{issue:?}");
    }
    if report.complete {
        use IssueCode::{
            EmptyDocument, IncompleteBody, RobotsTooLarge, TooDeep, TooManySitemaps, TooManyUrls,
            Truncated, UnsupportedFormat,
        };
        let cuts = [
            EmptyDocument,
            IncompleteBody,
            RobotsTooLarge,
            TooDeep,
            TooManySitemaps,
            TooManyUrls,
            Truncated,
            UnsupportedFormat,
        ];
        assert!(!cuts.into_iter().any(|code| found.has(code)), "{:?}", report.issues);
    }
    let feed = matches!(
        report.kind,
        DocumentKind::Rss | DocumentKind::Rdf | DocumentKind::Atom | DocumentKind::JsonFeed
    );
    assert!(!feed || report.window);
    for item in &found.listed {
        assert!(!feed || item.lastmod.is_none() && !item.child, "{item:?}");
        assert!(feed || item.updated.or(item.published).is_none(), "{item:?}");
    }
    if report.kind == DocumentKind::Unsupported {
        assert!(found.listed.is_empty() && !report.complete && !report.issues.is_empty());
    }
    let hints = &report.hints;
    assert!(hints.skip_hours < 1 << 24 && hints.skip_days < 1 << 7, "{hints:?}");
    for url in hints.hubs.iter().chain(&hints.self_url).chain(&hints.next_page) {
        assert!(Url::parse(url).is_ok_and(|u| u.has_host()), "{hints:?}");
    }
}

fn pieces_do_not_matter(bytes: &[u8], found: &Found, manner: &Manner, dice: &mut Dice) {
    let mut sizes: Vec<usize> = (0..=dice.below(4)).map(|_| dice.below(40)).collect();
    sizes.push(1 + dice.below(5_000));
    let pieces = Manner { sizes, ..manner.clone() };
    assert_eq!(found, &read(bytes, &pieces), "{pieces:?}");
}

fn what_is_cut_short_is_not_complete(
    bytes: &[u8],
    found: &Found,
    manner: &Manner,
    dice: &mut Dice,
) {
    let failed = read(bytes, &Manner { fails: true, ..manner.clone() });
    if found.report.kind == DocumentKind::Text {
        // What stands before the cut without an end may be a part of a line.
        assert!(found.listed.starts_with(&failed.listed));
    } else {
        assert_eq!(found.listed, failed.listed);
    }
    assert_eq!(found.report.kind, failed.report.kind);
    assert!(!failed.report.complete && failed.has(IssueCode::IncompleteBody));
    if found.listed.is_empty() {
        return;
    }
    let many = 1 + dice.below(found.listed.len());
    let stopped = read(bytes, &Manner { stop_at: Some(many), ..manner.clone() });
    assert_eq!(stopped.listed, found.listed[..many]);
    assert!(!stopped.report.complete);
    let listed = found.listed[..many].iter().filter(|item| !item.deleted).count();
    assert_eq!(stopped.report.entries_total + stopped.report.sitemaps_total, listed);
}

/// Blanks before a document move the edges of the reader's windows over it.
fn edges_of_the_window_do_not_matter(bytes: &[u8], manner: &Manner, dice: &mut Dice) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if !text.starts_with(['<', '{']) || text.contains('\0') || text.len() >= WINDOW / 2 {
        return;
    }
    let behind = |blanks: usize| {
        let mut moved = vec![b' '; blanks];
        moved.extend_from_slice(bytes);
        read(&moved, manner)
    };
    let (plain, moved) = (behind(1), behind(WINDOW - 1 - dice.below(bytes.len())));
    assert_eq!(plain.listed, moved.listed);
    assert_eq!(plain.codes(), moved.codes());
    let facts = |f: &Found| (f.report.kind, f.report.complete, f.report.hints.clone());
    assert_eq!(facts(&plain), facts(&moved));
}

fn owned(item: &Item<'_>) -> Listed {
    let bare = |loc: &str| Listed {
        loc: loc.to_owned(),
        child: false,
        deleted: false,
        lastmod: None,
        updated: None,
        published: None,
        changefreq: None,
        priority: None,
        digest: 0,
        extensions: None,
    };
    match item {
        Item::Deleted(d) => Listed { deleted: true, ..bare(d.loc) },
        Item::Sitemap(s) => Listed { child: true, lastmod: s.lastmod, ..bare(s.loc) },
        Item::Entry(e) => Listed {
            lastmod: e.lastmod,
            updated: e.updated,
            published: e.published,
            changefreq: e.changefreq,
            priority: e.priority,
            digest: e.digest,
            extensions: e.extensions.cloned(),
            ..bare(e.loc)
        },
    }
}

/// A reader that gives its bytes in the pieces of a manner.
struct Pieces<'a> {
    rest: &'a [u8],
    manner: &'a Manner,
    turn: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let sizes = &self.manner.sizes;
        let size = if sizes.is_empty() { usize::MAX } else { sizes[self.turn % sizes.len()] };
        self.turn += 1;
        if size == 0 {
            return Err(io::Error::from(ErrorKind::Interrupted));
        }
        let n = size.min(buf.len()).min(self.rest.len());
        if n == 0 && self.manner.fails {
            return Err(io::Error::other("cut off"));
        }
        buf[..n].copy_from_slice(&self.rest[..n]);
        self.rest = &self.rest[n..];
        Ok(n)
    }
}
