//! `Link` headers (RFC 8288): feeds and sitemaps named beside a page.
//!
//! Tolerant as servers are sloppy: a value that is no link is passed over to the
//! next comma, what is quoted may hold anything, an unclosed quote ends with the
//! value. A link about another document (`anchor`) is none of the page's.
//! Linear in the header, whose length the caller has bounded.

use url::Url;

use super::{PageLinks, add, is_feed_type};
use crate::parse::loc;

/// One link of a header.
#[derive(Debug, Default, PartialEq, Eq)]
struct Link {
    target: String,
    rel: Option<String>,
    kind: Option<String>,
    anchored: bool,
}

/// Adds the feeds and sitemaps that `headers` name for the page at `base`.
pub(super) fn take(headers: &[String], base: &Url, found: &mut PageLinks) {
    for header in headers {
        let header = as_utf8(header);
        let mut rest = header.as_str();
        while let Some((link, after)) = next(rest) {
            place(&link, base, found);
            rest = after;
        }
    }
}

fn place(link: &Link, base: &Url, found: &mut PageLinks) {
    let (Some(rel), false) = (&link.rel, link.anchored) else { return };
    let target = loc::trim(&link.target);
    let Ok(url) = base.join(target) else { return };
    if target.is_empty() || !loc::is_web(url.as_str()) {
        return;
    }
    let is = |wanted: &str| rel.split_ascii_whitespace().any(|r| r.eq_ignore_ascii_case(wanted));
    let kind = link.kind.as_deref().unwrap_or_default();
    if is("feed") || is("alternate") && is_feed_type(kind, &url) {
        add(&mut found.feeds, url);
    } else if is("sitemap") {
        add(&mut found.sitemaps, url);
    } else if is("canonical") && found.canonical.is_none() {
        found.canonical = Some(url);
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

    proptest::proptest! {
        #[test]
        fn no_header_makes_it_panic(header in "[<>;,=\"\\\\ a-z/é\u{0}]{0,60}") {
            of(&[&header]);
        }
    }
}
