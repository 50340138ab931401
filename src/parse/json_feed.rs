//! JSON Feed 1.x, and JSON that is near enough: an object with an array `items`
//! and a `version` or a `title`.
//!
//! Read item by item; only items that come before `version` and `title` are
//! held back until one of these shows that it is a feed. Wrong types cost the
//! one value, characters that JSON does not allow themselves. A document is
//! read up to [`MAX_BYTES`].

mod loose;
mod mended;
mod place;

use std::io::Read as _;
use std::ops::ControlFlow;

use serde::de::DeserializeSeed as _;

use super::digest::Digest;
use super::issue::{IssueCode, Issues};
use super::text::Text;
use super::xml::Cx;
use super::{Context, Entry, Hints, Item, Sink, feed, loc};
use crate::date;
use crate::model::Lastmod;
use loose::{Document, Found, RawItem};
use mended::{Defects, Mended};
use place::{Progress, Spot};

/// Bytes of a JSON document that are read.
pub(crate) const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// What a JSON document came to.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Is it a feed at all?
    pub(crate) is_feed: bool,
    pub(crate) entries: usize,
    pub(crate) complete: bool,
    pub(crate) hints: Hints,
}

/// An item that waits for the document to show what it is.
#[derive(Debug)]
struct Held {
    loc: String,
    published: Option<Lastmod>,
    updated: Option<Lastmod>,
    digest: u64,
    spot: Spot,
}

/// Reads the document and hands on its items.
pub(crate) fn read(
    text: &mut Text<'_>,
    issues: &mut Issues,
    ctx: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Listed {
    // What was passed over to see that this is JSON is nothing to a reader of it.
    text.consume(loc::lead(text.rest()));
    let progress = Progress::new(text.place(0).line(), text.offset());
    let mut reading = Reading {
        ctx,
        progress: progress.clone(),
        sink,
        found: Issues::default(),
        held: Vec::new(),
        is_feed: false,
        has_items: false,
        stopped: false,
        over: 0,
        entries: 0,
        hints: Hints::default(),
    };
    let mut limited = (&mut *text).take(MAX_BYTES);
    let mut defects = Defects::default();
    let mended = Mended::new(&mut limited, progress.clone(), &mut defects);
    let mut json = serde_json::Deserializer::from_reader(mended);
    let result = Document(&mut reading).deserialize(&mut json);
    let is_feed = reading.is_feed && reading.has_items;
    let listed = Listed {
        is_feed,
        entries: reading.entries,
        complete: result.is_ok() && !reading.stopped && reading.over == 0,
        hints: std::mem::take(&mut reading.hints),
    };
    let (found, stopped) = (reading.found, reading.stopped);
    let used_up = limited.limit() == 0;
    for issue in found.into_list() {
        issues.push(issue.code, issue.count, issue.line, issue.offset, &issue.sample);
    }
    if is_feed {
        defects.report(issues);
    }
    if let Err(error) = result
        && is_feed
        && !stopped
    {
        let code = match () {
            () if used_up => IssueCode::OversizedMarkup,
            () if error.is_eof() => IssueCode::Truncated,
            () => IssueCode::ParsingError,
        };
        let spot = progress.spot();
        issues.push(code, 1, spot.line, spot.offset, &error.to_string());
    }
    if is_feed && listed.entries == 0 {
        issues.note(IssueCode::EmptySitemap, text.place(0), "");
    }
    listed
}

/// What was read so far.
struct Reading<'a, 's> {
    ctx: &'a Context<'a>,
    progress: Progress,
    sink: &'a mut Sink<'s>,
    found: Issues,
    held: Vec<Held>,
    is_feed: bool,
    has_items: bool,
    stopped: bool,
    over: usize,
    entries: usize,
    hints: Hints,
}

impl Reading<'_, '_> {
    /// A `version` or a `title` was seen: it is a feed.
    fn proven(&mut self) {
        self.is_feed = true;
        for held in std::mem::take(&mut self.held) {
            if !self.stopped {
                self.give(&held);
            }
        }
    }

    /// An item was read.
    fn item(&mut self, raw: &RawItem) {
        let Some(held) = self.settle(raw) else { return };
        if self.entries + self.held.len() >= self.ctx.limits.max_urls {
            self.over += 1;
            self.note(IssueCode::TooManyUrls, raw.spot, &held.loc);
        } else if self.is_feed {
            self.give(&held);
        } else {
            self.held.push(held);
        }
    }

    /// `url`, `external_url`, then an absolute `id`.
    fn settle(&mut self, raw: &RawItem) -> Option<Held> {
        let mut url = String::new();
        let max = self.ctx.limits.max_url_chars;
        let mut admit = |value: &Option<Found>| {
            let Some(value) = value.as_ref().filter(|v| !loc::trim(&v.text).is_empty()) else {
                return false;
            };
            let mut cx = Cx { issues: &mut self.found, place: value.spot.place() };
            loc::admit(&value.text, self.ctx.base, max, &mut url, &mut cx)
        };
        let web_id = raw.id.clone().filter(|id| loc::is_web(loc::trim(&id.text)));
        if !(admit(&raw.url) || admit(&raw.external_url) || admit(&web_id)) {
            self.note(IssueCode::MissingTag, raw.spot, "url");
            return None;
        }
        let mut date = |value: &Option<Found>| {
            let value = value.as_ref()?;
            let text = loc::trim(&value.text);
            let at = date::feed(text);
            if at.is_none() && !text.is_empty() {
                self.found.note(IssueCode::InvalidDate, value.spot.place(), text);
            }
            at
        };
        let (published, updated) = (date(&raw.date_published), date(&raw.date_modified));
        let mut digest = Digest::default();
        for found in
            [&raw.title, &raw.summary, &raw.content_text, &raw.content_html].into_iter().flatten()
        {
            digest.field("", &found.text);
        }
        Some(Held { loc: url, published, updated, digest: digest.value(), spot: raw.spot })
    }

    /// A link of the document itself, if it may be used.
    fn of_document(&mut self, url: &str) -> Option<String> {
        feed::of_document(url, self.ctx.base).unwrap_or_else(|code| {
            self.note(code, self.progress.spot(), url);
            None
        })
    }

    fn give(&mut self, held: &Held) {
        self.entries += 1;
        let flow = (self.sink)(Item::Entry(Entry {
            loc: &held.loc,
            published: held.published,
            updated: held.updated,
            digest: held.digest,
            place: held.spot.place(),
            ..Entry::default()
        }));
        self.stopped = flow == ControlFlow::Break(());
    }

    fn note(&mut self, code: IssueCode, spot: Spot, sample: &str) {
        self.found.note(code, spot.place(), sample);
    }
}

#[cfg(test)]
mod tests;
