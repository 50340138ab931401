//! Reading a document in a test: what it listed, owned, and its report.

use std::io::{self, Read};
use std::ops::ControlFlow;

use sitemapd::parse::{Context, Extensions, IssueCode, Item, Limits, Report, parse};
use url::Url;

/// Where the documents of the tests come from.
pub(crate) const BASE: &str = "https://example.com/dir/sitemap.xml";

/// What came of a document.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) report: Report,
    /// Every entry: URL, then dates, hints and digest in one line.
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) sitemaps: Vec<(String, String)>,
    pub(crate) extensions: Vec<Option<Extensions>>,
}

impl Outcome {
    pub(crate) fn locs(&self) -> Vec<&str> {
        self.entries.iter().map(|(loc, _)| loc.as_str()).collect()
    }

    pub(crate) fn has(&self, code: IssueCode) -> bool {
        self.report.issues.iter().any(|issue| issue.code == code)
    }
}

/// Reads bytes as they are.
pub(crate) fn read(bytes: &[u8]) -> Outcome {
    read_with(&mut { bytes }, Limits::default(), None)
}

/// Reads from any reader.
pub(crate) fn read_with(
    reader: &mut dyn Read,
    limits: Limits,
    content_type: Option<&str>,
) -> Outcome {
    let base = Url::parse(BASE).expect("a URL");
    let ctx = Context { base: &base, content_type, limits };
    let (mut entries, mut sitemaps, mut extensions) = (Vec::new(), Vec::new(), Vec::new());
    let report = parse(reader, &ctx, &mut |item| {
        match item {
            Item::Entry(e) => {
                let rest = format!(
                    "{:?} {:?} {:?} {:?} {:?} {:x}",
                    e.lastmod, e.updated, e.published, e.changefreq, e.priority, e.digest
                );
                entries.push((e.loc.to_owned(), rest));
                extensions.push(e.extensions.cloned());
            }
            Item::Sitemap(s) => sitemaps.push((s.loc.to_owned(), format!("{:?}", s.lastmod))),
            Item::Deleted(_) => {}
        }
        ControlFlow::Continue(())
    });
    Outcome { report, entries, sitemaps, extensions }
}

/// A reader that gives its bytes a few at a time, as a socket does.
pub(crate) struct Dribble<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) sizes: &'a [usize],
    pub(crate) turn: usize,
}

impl Read for Dribble<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.turn % self.sizes.len()].max(1);
        self.turn += 1;
        let n = size.min(buf.len()).min(self.rest.len());
        buf[..n].copy_from_slice(&self.rest[..n]);
        self.rest = &self.rest[n..];
        Ok(n)
    }
}

/// A reader that fails where its bytes end.
pub(crate) struct Cut<'a>(pub(crate) &'a [u8]);

impl Read for Cut<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(io::Error::other("unexpected end of compressed data")),
            n => Ok(n),
        }
    }
}
