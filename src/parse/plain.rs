//! Text sitemaps: one URL a line.
//!
//! Line ends of every kind; blank lines and comments are passed over; a line
//! that is no URL is counted and costs only itself. A line is bounded, so one
//! without an end takes no memory.

use std::ops::ControlFlow;

use super::issue::{IssueCode, Issues};
use super::text::Text;
use super::xml::Cx;
use super::{Context, Entry, Item, Sink, loc};

/// Bytes of a line that are looked at; the rest is passed over.
const MAX_LINE: usize = 16 * 1024;

/// What a text sitemap came to.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) entries: usize,
    pub(crate) over_limit: bool,
    pub(crate) stopped: bool,
}

/// Reads the lines and hands on the URLs.
pub(crate) fn read(
    text: &mut Text<'_>,
    issues: &mut Issues,
    ctx: &Context<'_>,
    sink: &mut Sink<'_>,
) -> Listed {
    let mut listed = Listed::default();
    let mut url = String::new();
    let mut too_long = false;
    loop {
        text.fill(MAX_LINE + 4);
        let rest = text.rest();
        if rest.is_empty() {
            break;
        }
        let end = rest.bytes().take(MAX_LINE).position(|b| matches!(b, b'\n' | b'\r'));
        let cut = end.is_none() && rest.len() > MAX_LINE;
        let len = end.unwrap_or_else(|| boundary(rest));
        let line = rest.get(..len).unwrap_or_default();
        let mut cx = Cx { issues, place: text.place(0) };
        if cut && !too_long {
            cx.note(IssueCode::UrlTooLong, line.get(..100).unwrap_or_default());
        } else if !cut && !too_long && admit(line, ctx, &mut url, &mut cx) {
            if listed.entries >= ctx.limits.max_urls {
                listed.over_limit = true;
                cx.note(IssueCode::TooManyUrls, &url);
            } else {
                listed.entries += 1;
                if sink(Item::Entry(Entry { loc: &url, place: cx.place, ..Entry::default() }))
                    == ControlFlow::Break(())
                {
                    listed.stopped = true;
                    break;
                }
            }
        }
        too_long = cut;
        let used = len + usize::from(end.is_some());
        text.consume(used);
    }
    if listed.entries == 0 && !listed.stopped {
        issues.note(IssueCode::EmptySitemap, text.place(0), "");
    }
    listed
}

/// The bytes of a piece of an overlong or last line, at a character boundary.
fn boundary(rest: &str) -> usize {
    let at = rest.len().min(MAX_LINE);
    (0..=at).rev().find(|i| rest.is_char_boundary(*i)).unwrap_or(at)
}

fn admit(line: &str, ctx: &Context<'_>, url: &mut String, cx: &mut Cx<'_>) -> bool {
    let line = loc::trim(line);
    if line.is_empty() || line.starts_with('#') {
        return false;
    }
    // Columns after the URL are not part of it.
    let line = line.split('\t').next().unwrap_or_default().trim_matches(['"', '\'']);
    if !loc::is_web(line) {
        cx.note(IssueCode::InvalidUrl, line);
        return false;
    }
    loc::admit(line, ctx.base, ctx.limits.max_url_chars, url, cx)
}

/// Is there a line in `window` that is a URL?
pub(crate) fn has_url_line(window: &str) -> bool {
    window.split(['\n', '\r']).any(|line| {
        let line = loc::trim(line).trim_matches(['"', '\'']);
        loc::is_web(line) && line.contains("://")
    })
}
