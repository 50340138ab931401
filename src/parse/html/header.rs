//! `Link` headers (RFC 8288): feeds and sitemaps named beside a page, hubs,
//! own place and older pages named beside a feed.
//!
//! Tolerant as servers are sloppy: a value that is no link is passed over to the
//! next comma, what is quoted may hold anything, an unclosed quote ends with the
//! value. A link about another document (`anchor`) is none of the page's.
//! Linear in the header, whose length the caller has bounded.

use url::Url;

use super::{PageLinks, add, is_feed_type};
use crate::parse::{Hints, feed, loc};

/// One link of a header.
#[derive(Debug, Default, PartialEq, Eq)]
struct Link {
    target: String,
    rel: Option<String>,
    kind: Option<String>,
    anchored: bool,
}

impl Link {
    /// Where a link about the document itself leads.
    fn url(&self, base: &Url) -> Option<Url> {
        let target = loc::trim(&self.target);
        let url = base.join(target).ok()?;
        (!self.anchored && !target.is_empty() && loc::is_web(url.as_str())).then_some(url)
    }
}

/// Adds the feeds and sitemaps that `headers` name for the page at `base`.
pub(super) fn take(headers: &[String], base: &Url, found: &mut PageLinks) {
    each(headers, |link| place(link, base, found));
}

/// What the headers of a document at `base` say of it: `WebSub` hubs and its
/// own URL, which go before what the document itself names (W3C `WebSub`
/// section 4, in that order); and where it names none, the page with older entries
/// (RFC 5005).
pub fn complete_hints(headers: &[String], base: &Url, hints: &mut Hints) {
    let mut named = Hints::default();
    each(headers, |link| {
        let (Some(rel), Some(url)) = (&link.rel, link.url(base)) else { return };
        rel.split_ascii_whitespace().for_each(|rel| feed::relation(rel, url.as_str(), &mut named));
    });
    if !named.hubs.is_empty() {
        hints.hubs = named.hubs;
    }
    hints.self_url = named.self_url.or(hints.self_url.take());
    hints.next_page = hints.next_page.take().or(named.next_page);
}

fn each(headers: &[String], mut take: impl FnMut(&Link)) {
    for header in headers {
        let header = as_utf8(header);
        let mut rest = header.as_str();
        while let Some((link, after)) = next(rest) {
            take(&link);
            rest = after;
        }
    }
}

fn place(link: &Link, base: &Url, found: &mut PageLinks) {
    let (Some(rel), Some(url)) = (&link.rel, link.url(base)) else { return };
    let is = |wanted: &str| rel.split_ascii_whitespace().any(|r| r.eq_ignore_ascii_case(wanted));
    let kind = link.kind.as_deref().unwrap_or_default();
    if is("canonical") && found.canonical.is_none() {
        found.canonical = Some(url.clone());
    }
    if is("feed") || is("alternate") && is_feed_type(kind, &url) {
        add(&mut found.feeds, url);
    } else if is("sitemap") {
        add(&mut found.sitemaps, url);
    }
}

/// A header comes byte by character; the bytes may well be UTF-8.
fn as_utf8(header: &str) -> String {
    let bytes: Option<Vec<u8>> = header.chars().map(|c| u8::try_from(c).ok()).collect();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.unwrap_or_else(|| header.to_owned())
}

/// The first link of a header, and what follows it.
fn next(header: &str) -> Option<(Link, &str)> {
    let (_, after) = header.split_once('<')?;
    let (target, mut rest) = after.split_once('>')?;
    let mut link = Link { target: target.to_owned(), ..Link::default() };
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        if rest.is_empty() || rest.starts_with([',', '<']) {
            return Some((link, rest));
        }
        let end = rest.find(['=', ';', ',']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => value(after.trim_start_matches([' ', '\t'])),
            None => (String::new(), after),
        };
        rest = after;
        // Of a parameter that comes again the first counts (section 3.3).
        match name.trim().to_ascii_lowercase().as_str() {
            "rel" => link.rel = link.rel.or(Some(value)),
            "type" => link.kind = link.kind.or(Some(value)),
            "anchor" => link.anchored = true,
            _ => {}
        }
    }
}

/// A value, quoted or not, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.trim().to_owned(), rest);
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[&str]) -> PageLinks {
        let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
        let base = Url::parse("https://example.com/dir/").expect("a URL");
        let mut found = PageLinks::default();
        take(&headers, &base, &mut found);
        found
    }

    fn strings(urls: &[Url]) -> Vec<&str> {
        urls.iter().map(Url::as_str).collect()
    }

    #[test]
    fn sitemaps_and_feeds_are_found_however_the_header_is_written() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("</s.xml>; rel=\"sitemap\"", &["https://example.com/s.xml"], &[]),
            ("<s.xml>;rel=sitemap", &["https://example.com/dir/s.xml"], &[]),
            ("< /s.xml > ; REL = \"x SiteMap y\"", &["https://example.com/s.xml"], &[]),
            (
                "</a>; rel=sitemap, </b>; title=\"a, <b>; \\\"c\"; rel=\"sitemap\"",
                &["https://example.com/a", "https://example.com/b"],
                &[],
            ),
            (
                "</f>; rel=alternate; type=\"application/rss+xml; charset=utf-8\"",
                &[],
                &["https://example.com/f"],
            ),
            ("</f>; rel=\"alternate\"; type=application/atom+xml", &[], &["https://example.com/f"]),
            ("</de>; rel=alternate; hreflang=de; type=text/html", &[], &[]),
            ("</wp-json/>; rel=\"https://api.w.org/\"", &[], &[]),
            ("</s.xml>; rel=next; rel=sitemap", &[], &[]),
            ("</s.xml>; rel=sitemap; anchor=\"/other\"", &[], &[]),
            ("</s.xml>; rel=\"sitemap", &["https://example.com/s.xml"], &[]),
            ("junk, </s.xml>; rel=sitemap", &["https://example.com/s.xml"], &[]),
            ("</a> </s.xml>; rel=sitemap", &["https://example.com/s.xml"], &[]),
            ("</s.xml>", &[], &[]),
            ("<javascript:x>; rel=sitemap, <>; rel=sitemap, <ftp://e/x>; rel=sitemap", &[], &[]),
            ("</s.xml; rel=sitemap", &[], &[]),
            ("", &[], &[]),
        ];
        for (header, sitemaps, feeds) in table {
            let found = of(&[header]);
            assert_eq!(strings(&found.sitemaps), *sitemaps, "{header}");
            assert_eq!(strings(&found.feeds), *feeds, "{header}");
        }
    }

    #[test]
    fn a_canonical_url_is_one_whatever_else_it_is() {
        let found = of(&["</a>; rel=\"sitemap canonical\", </b>; rel=canonical"]);
        assert_eq!(found.canonical.as_ref().map(Url::as_str), Some("https://example.com/a"));
        assert_eq!(strings(&found.sitemaps), ["https://example.com/a"]);
    }

    #[test]
    fn bytes_of_utf_8_are_read_as_such() {
        let header: String = "</s-é.xml>; rel=sitemap".bytes().map(char::from).collect();
        assert_eq!(strings(&of(&[&header]).sitemaps), ["https://example.com/s-%C3%A9.xml"]);
    }

    #[test]
    fn headers_name_first_and_each_url_counts_once() {
        let base = Url::parse("https://example.com/").expect("a URL");
        let headers = ["</s.xml>; rel=sitemap".to_owned(), "</f>; rel=feed".to_owned()];
        let page = b"<link rel=sitemap href=/t.xml><link rel=sitemap href=/s.xml>";
        let found = crate::parse::html::page_links(&headers, page, &base);
        assert_eq!(
            strings(&found.sitemaps),
            ["https://example.com/s.xml", "https://example.com/t.xml"]
        );
        assert_eq!(strings(&found.feeds), ["https://example.com/f"]);
    }

    #[test]
    fn headers_name_hubs_and_self_before_the_document_does() {
        let headers = [
            "</hub>; rel=\"hub\", </feed>; rel=self".to_owned(),
            "<https://hub.example/>; rel=\"x HUB\"".to_owned(),
            "</2>; rel=next, </older>; rel=prev-archive, </3>; rel=next".to_owned(),
            "</other>; rel=self; anchor=\"/x\"".to_owned(),
        ];
        let base = Url::parse("https://a.example/f").expect("a URL");
        let mut hints = Hints::default();
        complete_hints(&headers, &base, &mut hints);
        assert_eq!(hints.hubs, ["https://a.example/hub", "https://hub.example/"]);
        assert_eq!(hints.self_url.as_deref(), Some("https://a.example/feed"));
        assert_eq!(hints.next_page.as_deref(), Some("https://a.example/older"));

        let own = Hints {
            hubs: vec!["https://own.example/".to_owned()],
            self_url: Some("https://a.example/own".to_owned()),
            ..Hints::default()
        };
        let mut hints = own.clone();
        complete_hints(&headers, &base, &mut hints);
        assert_eq!(hints.hubs, ["https://a.example/hub", "https://hub.example/"]);
        assert_eq!(hints.self_url.as_deref(), Some("https://a.example/feed"));
        assert!(hints.next_page.is_some());
        let mut hints = own.clone();
        complete_hints(&["</older>; rel=next".to_owned()], &base, &mut hints);
        assert_eq!((&hints.hubs, &hints.self_url), (&own.hubs, &own.self_url));
    }

    proptest::proptest! {
        #[test]
        fn no_header_makes_it_panic(header in "[<>;,=\"\\\\ a-z/é\u{0}]{0,60}") {
            of(&[&header]);
        }
    }
}
