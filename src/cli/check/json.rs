//! `check --json`: one object, whose names and shape programs rely on.
//!
//! Dates are written at the precision given and null where unreadable;
//! `entries` and `sitemaps` are there only when asked for.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::reading::{Child, Listed, Reading};
use crate::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use crate::parse::{Fields, Issue};

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
    images: Vec<Element<'a>>,
    videos: Vec<Element<'a>>,
    news: Vec<Element<'a>>,
    alternates: Vec<Element<'a>>,
}

#[derive(Debug, Serialize)]
struct Sitemap<'a> {
    loc: &'a str,
    lastmod: Option<Lastmod>,
}

/// One extension element: its fields in document order; a field that is there
/// more than once (`video:tag`) is an array.
#[derive(Debug)]
struct Element<'a>(&'a Fields);

impl Serialize for Element<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut merged: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, value) in self.0 {
            // An element has a handful of names, so looking through them is cheap.
            match merged.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(value),
                None => merged.push((name, vec![value])),
            }
        }
        let mut map = serializer.serialize_map(Some(merged.len()))?;
        for (name, values) in &merged {
            match values.as_slice() {
                [one] => map.serialize_entry(name, one)?,
                many => map.serialize_entry(name, many)?,
            }
        }
        map.end()
    }
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
        images: elements(extensions.map(|all| &all.images)),
        videos: elements(extensions.map(|all| &all.videos)),
        news: elements(extensions.map(|all| &all.news)),
        alternates: elements(extensions.map(|all| &all.alternates)),
    }
}

fn elements(all: Option<&Vec<Fields>>) -> Vec<Element<'_>> {
    all.into_iter().flatten().map(Element).collect()
}

fn sitemap(child: &Child) -> Sitemap<'_> {
    Sitemap { loc: &child.loc, lastmod: child.lastmod }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_repeats_is_an_array_and_order_is_kept() {
        let fields = [("title", "t"), ("tag", "a"), ("loc", "l"), ("tag", "b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        let text = serde_json::to_string(&Element(&fields)).expect("json");
        assert_eq!(text, r#"{"title":"t","tag":["a","b"],"loc":"l"}"#);
    }
}
