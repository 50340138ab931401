//! Text sitemaps: one URL a line.
//!
//! Line ends of every kind; blank lines and comments are passed over; a line
//! that is no URL is counted and costs only itself. A URL may hold blanks, so
//! only another URL, a date or a remark is no part of the one before it. A line is bounded,
//! so one without an end takes no memory.

use std::ops::ControlFlow;

use super::issue::{IssueCode, Issues};
use super::text::Text;
use super::xml::Cx;
use super::{Context, Entry, Item, Sink, loc, robots};
use crate::date;
use crate::model::Precision;

/// Bytes of a line that are looked at; the rest is passed over.
const MAX_LINE: usize = 16 * 1024;

/// What a text sitemap came to.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) entries: usize,
    pub(crate) over_limit: bool,
    pub(crate) stopped: bool,
}

impl Listed {
    /// Hands on a URL.
    fn give(&mut self, url: &str, ctx: &Context<'_>, sink: &mut Sink<'_>, cx: &mut Cx<'_>) {
        if self.entries >= ctx.limits.max_urls {
            self.over_limit = true;
            cx.note(IssueCode::TooManyUrls, url);
            return;
        }
        self.entries += 1;
        let entry = Entry { loc: url, place: cx.place, ..Entry::default() };
        self.stopped = sink(Item::Entry(entry)) == ControlFlow::Break(());
    }
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
        if end.is_none() && !cut && text.failure().is_some() {
            // Where the document was cut off: half a URL, for all that is known.
            break;
        }
        let len = end.unwrap_or_else(|| boundary(rest));
        let line = rest.get(..len).unwrap_or_default();
        let mut cx = Cx { issues, place: text.place(0) };
        if cut && !too_long {
            cx.note(IssueCode::UrlTooLong, line.get(..100).unwrap_or_default());
        } else if !cut && !too_long {
            // Columns after the URL are not part of it.
            let mut rest = loc::trim(line).split('\t').next().unwrap_or_default();
            // No early exit, so that it is vectorised: nearly every line is one URL.
            let graphic = rest.bytes().fold(true, |all, b| all & b.is_ascii_graphic());
            while !rest.is_empty() && !listed.stopped {
                let (one, more) = if graphic { (rest, "") } else { first(rest) };
                if one.len() < rest.len() {
                    cx.note(IssueCode::TrailingContent, rest);
                }
                rest = more;
                if admit(one, ctx, &mut url, &mut cx) {
                    listed.give(&url, ctx, sink, &mut cx);
                }
            }
            if listed.stopped {
                break;
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

/// The URL that a line begins with, and the rest of the line, if that is one more.
fn first(line: &str) -> (&str, &str) {
    // What a `Sitemap` line of a robots.txt names is no page.
    if line.starts_with('#') || !loc::is_web(line) && robots::names_sitemap(line) {
        return (line, "");
    }
    let (one, more) = loc::first(line);
    let ends = |rest: &str| is_date(rest) || rest.starts_with(" #");
    let end = one.match_indices(' ').map(|(at, _)| one.split_at(at)).find(|(_, rest)| ends(rest));
    (end.map_or(one, |(before, _)| before), more)
}

/// Is this a day, with a time or without? A number alone may be part of a name.
fn is_date(text: &str) -> bool {
    let of_dates = |b: u8| b.is_ascii_digit() || b" -:.TZ+".contains(&b);
    // A date is never longer.
    text.len() <= 64
        && text.contains('-')
        && text.bytes().all(of_dates)
        && date::lastmod(text).is_some_and(|date| date.precision >= Precision::Day)
}

fn admit(line: &str, ctx: &Context<'_>, url: &mut String, cx: &mut Cx<'_>) -> bool {
    let line = loc::trim(line);
    if line.is_empty() || line.starts_with('#') {
        return false;
    }
    let is_quoted = line.starts_with('"');
    // Where none begins it, an apostrophe at its end is of the URL (RFC 3986 section 3.3).
    let mut line = if line.starts_with(['"', '\'']) {
        line.trim_matches(['"', '\''])
    } else {
        line.trim_end_matches('"')
    };
    if is_quoted && let Some((first, more)) = line.split_once('"') {
        // The first of several columns.
        cx.note(IssueCode::TrailingContent, more);
        line = first;
    }
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

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::super::{Limits, parse};
    use super::*;

    /// Gives what it has, and then fails.
    struct Broken<'a>(&'a [u8]);

    impl Read for Broken<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("cut off")),
                read => Ok(read),
            }
        }
    }

    /// What a list has, and whether it was read to its end.
    fn read(reader: &mut dyn Read) -> (Vec<String>, bool) {
        let base = url::Url::parse("https://e.com/urls.txt").expect("a url");
        let content_type = Some("text/plain");
        let ctx = Context { base: &base, content_type, limits: Limits::default() };
        let mut found = Vec::new();
        let report = parse(reader, &ctx, &mut |item| {
            if let Item::Entry(entry) = item {
                found.push(entry.loc.to_owned());
            }
            ControlFlow::Continue(())
        });
        (found, report.complete)
    }

    #[test]
    fn an_apostrophe_at_its_end_is_of_a_url_that_none_begins_and_a_quote_never() {
        let text = "https://e.com/Players'\n'https://e.com/a'\n\"https://e.com/b\"\n\
                    \"https://e.com/c https://e.com/d\"\nhttps://e.com/e\"\n";
        let rest = ["https://e.com/a", "https://e.com/b", "https://e.com/c", "https://e.com/d"];
        let mut urls = vec!["https://e.com/Players'"];
        urls.extend(rest);
        urls.push("https://e.com/e");
        assert_eq!(read(&mut text.as_bytes()).0, urls);
    }

    #[test]
    fn what_a_list_was_cut_off_in_is_no_url() {
        let text = b"https://e.com/a\nhttps://e.com/artic";
        assert_eq!(read(&mut Broken(text)), (vec!["https://e.com/a".to_owned()], false));
        let (found, complete) = read(&mut &text[..]);
        assert_eq!((found.len(), complete), (2, true), "a last line needs no end");
    }

    #[test]
    fn a_line_is_one_url_unless_another_or_a_date_follows_a_blank() {
        let table: &[(&str, &[&str])] = &[
            ("https://e.com/8 https://e.com/9", &["https://e.com/8", "https://e.com/9"]),
            ("https://e.com/a b  HTTP://e.com/c d", &["https://e.com/a b", "HTTP://e.com/c d"]),
            ("https://e.com/5 2024-01-01", &["https://e.com/5"]),
            ("https://e.com/5  2024-01-01T10:00:00Z", &["https://e.com/5"]),
            ("https://e.com/5 2024-01-01 https://e.com/6", &["https://e.com/5", "https://e.com/6"]),
            ("https://e.com/5 2024-01-01 a.pdf", &["https://e.com/5 2024-01-01 a.pdf"]),
            ("https://e.com/a b.html", &["https://e.com/a b.html"]),
            ("https://e.com/a # once", &["https://e.com/a"]),
            ("https://e.com/a#b", &["https://e.com/a#b"]),
            ("https://e.com/a, https://e.com/b", &["https://e.com/a", "https://e.com/b"]),
            ("# a # b", &["# a # b"]),
            ("Sitemap: https://e.com/s.txt", &["Sitemap: https://e.com/s.txt"]),
            ("https://e.com/report 2024", &["https://e.com/report 2024"]),
            ("https://e.com/report 2024-01-01.pdf", &["https://e.com/report 2024-01-01.pdf"]),
            ("https://e.com/?u=https://e.com/x", &["https://e.com/?u=https://e.com/x"]),
            ("# https://e.com/a https://e.com/b", &["# https://e.com/a https://e.com/b"]),
            ("https://e.com/a", &["https://e.com/a"]),
        ];
        for (line, want) in table {
            let (mut rest, mut found) = (*line, Vec::new());
            while !rest.is_empty() {
                let (one, more) = first(rest);
                found.push(one);
                rest = more;
            }
            assert_eq!(found, *want, "{line}");
        }
    }
}
