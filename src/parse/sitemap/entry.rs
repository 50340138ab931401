//! One entry of a sitemap while it is being read.

use std::ops::ControlFlow;

use super::extension::Extension;
use crate::date;
use crate::model::{ChangeFreq, Lastmod, Priority};
use crate::parse::issue::{IssueCode, Place};
use crate::parse::loc;
use crate::parse::xml::Cx;
use crate::parse::{Context, Entry, Item, Sink, SitemapRef};

/// Bytes kept of text that stands bare in an entry.
const MAX_BARE: usize = 8 * 1024;

/// The fields of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Loc,
    Lastmod,
    Changefreq,
    Priority,
}

impl Field {
    /// The field of this local name (lower case).
    pub(super) fn of(local: &str) -> Option<Self> {
        Some(match local {
            "loc" => Self::Loc,
            "lastmod" => Self::Lastmod,
            "changefreq" => Self::Changefreq,
            "priority" => Self::Priority,
            _ => return None,
        })
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What an entry said so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    loc: String,
    /// Fields seen, to notice one that comes again.
    seen: u8,
    bare: String,
    lastmod: Option<Lastmod>,
    changefreq: Option<ChangeFreq>,
    priority: Option<Priority>,
}

impl Draft {
    /// Ready for the next entry.
    pub(super) fn clear(&mut self) {
        self.loc.clear();
        self.bare.clear();
        self.seen = 0;
        self.lastmod = None;
        self.changefreq = None;
        self.priority = None;
    }

    pub(super) fn has_loc(&self) -> bool {
        !self.loc.is_empty()
    }

    pub(super) fn loc(&self) -> &str {
        &self.loc
    }

    /// Text in an entry but in no field: a URL whose tag was forgotten?
    pub(super) fn bare_text(&mut self, text: &str) {
        if self.bare.len() + text.len() <= MAX_BARE {
            self.bare.push_str(text);
        }
    }

    /// Takes a field over; of one that comes again the first that says anything
    /// counts.
    pub(super) fn set(&mut self, field: Field, raw: &str, ctx: &Context<'_>, cx: &mut Cx<'_>) {
        let again = self.seen & field.bit() != 0;
        if again && field != Field::Loc {
            cx.note(IssueCode::DuplicateTag, raw);
            return;
        }
        let value = loc::trim(raw);
        if value.is_empty() && field != Field::Loc {
            return;
        }
        self.seen |= field.bit();
        match field {
            Field::Loc => {
                loc::admit(raw, ctx.base, ctx.limits.max_url_chars, &mut self.loc, cx);
            }
            Field::Lastmod => {
                self.lastmod = date::lastmod(value);
                if self.lastmod.is_none() {
                    cx.note(IssueCode::InvalidDate, value);
                }
            }
            Field::Changefreq => {
                self.changefreq = value.parse().ok();
                if self.changefreq.is_none() {
                    cx.note(IssueCode::InvalidTagValue, value);
                }
            }
            Field::Priority => {
                self.priority = priority(value);
                if self.priority.is_none() {
                    cx.note(IssueCode::InvalidTagValue, value);
                }
            }
        }
    }

    /// Is there a URL? Bare text that looks like one is taken where the tag is
    /// missing; what is missing for good is noted.
    pub(super) fn settle_loc(&mut self, ctx: &Context<'_>, cx: &mut Cx<'_>) -> bool {
        if self.has_loc() {
            return true;
        }
        if self.seen & Field::Loc.bit() != 0 {
            return false;
        }
        cx.note(IssueCode::MissingTag, "loc");
        let bare = std::mem::take(&mut self.bare);
        let found = loc::is_web(loc::trim(&bare))
            && loc::admit(&bare, ctx.base, ctx.limits.max_url_chars, &mut self.loc, cx);
        self.bare = bare;
        found
    }

    /// Hands the entry on.
    #[inline]
    pub(super) fn give(
        &self,
        child: bool,
        place: Place<'_>,
        extension: &mut Extension,
        sink: &mut Sink<'_>,
    ) -> ControlFlow<()> {
        if child {
            return sink(Item::Sitemap(SitemapRef { loc: &self.loc, lastmod: self.lastmod }));
        }
        let digest = extension.digest();
        sink(Item::Entry(Entry {
            loc: &self.loc,
            lastmod: self.lastmod,
            updated: None,
            published: None,
            changefreq: self.changefreq,
            priority: self.priority,
            digest,
            extensions: extension.fields(),
            place,
        }))
    }
}

/// A number from 0.0 to 1.0, with a comma for a point if need be.
fn priority(value: &str) -> Option<Priority> {
    let number: f64 = match value.parse() {
        Ok(number) => number,
        Err(_) => value.replace(',', ".").parse().ok()?,
    };
    Priority::from_f64(number)
}
