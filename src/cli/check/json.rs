//! `check --json`: one object, whose names and shape programs rely on.
//!
//! Dates are written at the precision given and null where unreadable;
//! `entries` and `sitemaps` are there only when asked for.

use serde::Serialize;

use super::reading::{Child, Listed, Reading};
use crate::model::extension::{Alternate, Image, News, Video};
use crate::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use crate::parse::Issue;

/// The object.
#[derive(Debug, Serialize)]
pub(super) struct Shape<'a> {
    kind: DocumentKind,
    encoding: &'a str,
    /// The document's own compression; null where it has none.
    compression: Option<&'a str>,
    bytes: u64,
    entries_total: usize,
    sitemaps_total: usize,
    complete: bool,
    issues: &'a [Issue],
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<Entry<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sitemaps: Option<Vec<Sitemap<'a>>>,
}

#[derive(Debug, Serialize)]
struct Entry<'a> {
    loc: &'a str,
    /// Null where no URL of the document is known to judge by.
    in_scope: Option<bool>,
    lastmod: Option<Lastmod>,
    updated: Option<Lastmod>,
    published: Option<Lastmod>,
    changefreq: Option<ChangeFreq>,
    priority: Option<Priority>,
    images: &'a [Image],
    videos: &'a [Video],
    news: &'a [News],
    alternates: &'a [Alternate],
}

#[derive(Debug, Serialize)]
struct Sitemap<'a> {
    loc: &'a str,
    lastmod: Option<Lastmod>,
}

/// The object for what was read.
pub(super) fn of(reading: &Reading, with_entries: bool) -> Shape<'_> {
    let report = &reading.report;
    Shape {
        kind: report.kind,
        encoding: report.encoding,
        compression: reading.compression,
        bytes: report.bytes,
        entries_total: reading.entries_total,
        sitemaps_total: reading.sitemaps_total,
        complete: report.complete,
        issues: &report.issues,
        entries: with_entries.then(|| reading.entries.iter().map(entry).collect()),
        sitemaps: with_entries.then(|| reading.sitemaps.iter().map(sitemap).collect()),
    }
}

fn entry(listed: &Listed) -> Entry<'_> {
    let extensions = listed.extensions.as_ref();
    Entry {
        loc: &listed.loc,
        in_scope: listed.in_scope,
        lastmod: listed.lastmod,
        updated: listed.updated,
        published: listed.published,
        changefreq: listed.changefreq,
        priority: listed.priority,
        images: extensions.map_or(&[], |all| &all.images),
        videos: extensions.map_or(&[], |all| &all.videos),
        news: extensions.map_or(&[], |all| &all.news),
        alternates: extensions.map_or(&[], |all| &all.alternates),
    }
}

fn sitemap(child: &Child) -> Sitemap<'_> {
    Sitemap { loc: &child.loc, lastmod: child.lastmod }
}
