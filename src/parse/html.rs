//! The links of a home page, in its head and in the headers that it came with:
//! feeds, sitemaps, the canonical URL.
//!
//! A small tolerant scanner, not an HTML parser: it knows tags, attributes,
//! comments and the elements whose content is no markup. It reads no further
//! than [`MAX_BYTES`] or the start of the body. Whether the page is fetched and
//! what is done with the links is left to others.

mod header;

pub use header::complete_hints;

use url::Url;

use super::loc;
use super::text::Text;
use super::xml::{Attributes, unescape};

/// Bytes of a page that are looked at.
pub const MAX_BYTES: usize = 512 * 1024;
/// Tags with a quote that nothing closes, of which each is looked for to the end of the
/// page. Behind so many the quotes of tags mean nothing.
const MAX_UNCLOSED: usize = 16;
/// Links of one kind that are kept.
const MAX_LINKS: usize = 64;

/// What the head of a page links to, each URL once, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageLinks {
    /// `rel=alternate` with the type of a feed, and `rel=feed`.
    pub feeds: Vec<Url>,
    /// `rel=sitemap`.
    pub sitemaps: Vec<Url>,
    /// `rel=canonical`.
    pub canonical: Option<Url>,
}

/// The links of a page that came from `base`: those of its `Link` headers, one
/// string a header, then those of its head.
pub fn page_links(headers: &[String], page: &[u8], base: &Url) -> PageLinks {
    let mut found = PageLinks::default();
    header::take(headers, base, &mut found);
    let of_page = links(page, base);
    for url in of_page.feeds {
        add(&mut found.feeds, url);
    }
    for url in of_page.sitemaps {
        add(&mut found.sitemaps, url);
    }
    found.canonical = found.canonical.or(of_page.canonical);
    found
}

/// Reads the links in the head of a page that came from `base`.
pub fn links(page: &[u8], base: &Url) -> PageLinks {
    let mut reader = page.get(..MAX_BYTES).unwrap_or(page);
    let mut text = Text::new(&mut reader, None);
    text.fill(MAX_BYTES);
    let mut head = Head { base: base.clone(), based: false, links: PageLinks::default() };
    head.read(text.rest());
    head.links
}

struct Head {
    base: Url,
    based: bool,
    links: PageLinks,
}

impl Head {
    fn read(&mut self, page: &str) {
        let mut rest = page;
        let mut unclosed = 0;
        while let Some((_, after)) = rest.split_once('<') {
            rest = if let Some(comment) = after.strip_prefix("!--") {
                after_comment(comment)
            } else if !after.starts_with(begins_markup) {
                after
            } else {
                let Some(end) = tag_end(after, &mut unclosed) else { return };
                let (tag, beyond) = after.split_at(end);
                let name_end =
                    tag.bytes().skip(1).position(|b| b.is_ascii_whitespace() || b == b'/');
                let (name, attributes) = tag.split_at(name_end.map_or(tag.len(), |end| end + 1));
                match name.to_ascii_lowercase().as_str() {
                    "body" | "/head" => return,
                    "base" => self.set_base(attributes),
                    "link" => self.link(attributes),
                    // Of these only a foreign element may end with its own tag (HTML, 13.1.2.1).
                    "svg" if ends_itself(attributes) => {}
                    raw @ ("script" | "style" | "title" | "noscript" | "template" | "textarea"
                    | "svg") => {
                        rest = skip_raw(beyond, raw);
                        continue;
                    }
                    _ => {}
                }
                beyond
            };
        }
    }

    fn set_base(&mut self, attributes: &str) {
        if let Some(href) = attr(attributes, "href").filter(|_| !self.based)
            && let Ok(Some(base)) = loc::base(&href, &self.base)
        {
            self.base = base;
            self.based = true;
        }
    }

    fn link(&mut self, attributes: &str) {
        let (Some(rel), Some(href)) = (attr(attributes, "rel"), attr(attributes, "href")) else {
            return;
        };
        let is =
            |wanted: &str| rel.split_ascii_whitespace().any(|r| r.eq_ignore_ascii_case(wanted));
        let Some(url) = self.resolve(&href) else { return };
        if is("canonical") && self.links.canonical.is_none() {
            self.links.canonical = Some(url.clone());
        }
        let kind = attr(attributes, "type").unwrap_or_default();
        if is("feed") || (is("alternate") && is_feed_type(&kind, &url)) {
            add(&mut self.links.feeds, url);
        } else if is("sitemap") {
            add(&mut self.links.sitemaps, url);
        }
    }

    fn resolve(&self, href: &str) -> Option<Url> {
        let href = loc::trim(href);
        let url = if href.is_empty() { return None } else { self.base.join(href).ok()? };
        loc::is_web(url.as_str()).then_some(url)
    }
}

fn add(list: &mut Vec<Url>, url: Url) {
    if list.len() < MAX_LINKS && !list.contains(&url) {
        list.push(url);
    }
}

/// Is an alternate of this type a feed? Plain JSON is, unless it is the REST
/// view that `WordPress` links on every page.
fn is_feed_type(kind: &str, url: &Url) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/rss+xml"
        | "application/atom+xml"
        | "application/rdf+xml"
        | "application/feed+json"
        | "text/xml"
        | "application/xml"
        | "text/rss+xml"
        | "application/x.atom+xml" => true,
        "application/json" => !url.path().contains("/wp-json/"),
        _ => false,
    }
}

fn attr(attributes: &str, name: &str) -> Option<String> {
    Attributes::new(attributes)
        .find(|(written, _)| written.eq_ignore_ascii_case(name))
        .map(|(_, value)| unescape(value).into_owned())
}

/// Is a start tag all of its element? A `/` at its end may be that of a value without quotes.
fn ends_itself(attributes: &str) -> bool {
    let last = |text| Attributes::new(text).last().map(|(_, value)| value);
    attributes.strip_suffix('/').is_some_and(|before| last(before) == last(attributes))
}

/// Where in a tag a byte stands, as the tokenizer of HTML has it.
#[derive(Debug, Clone, Copy)]
enum Spot {
    /// In names and what is between them: a quote is part of a name there.
    Name,
    /// Behind a `=`, where alone a quote opens a value.
    Equals,
    /// In a value without quotes.
    Bare,
    /// In a value with these quotes.
    Quoted(u8),
}

/// Where the `>` of a tag is, past quoted values; where a quote is never
/// closed, the first `>`, and one more is counted.
fn tag_end(tag: &str, unclosed: &mut usize) -> Option<usize> {
    if *unclosed >= MAX_UNCLOSED {
        return tag.find('>');
    }
    let mut spot = Spot::Name;
    for (i, b) in tag.bytes().enumerate() {
        spot = match (spot, b) {
            (Spot::Quoted(open), _) if open == b => Spot::Name,
            (Spot::Quoted(_), _) => spot,
            (_, b'>') => return Some(i),
            (Spot::Name, b'=') => Spot::Equals,
            (Spot::Equals, b'"' | b'\'') => Spot::Quoted(b),
            (Spot::Bare, _) if b.is_ascii_whitespace() => Spot::Name,
            (Spot::Equals, _) if !b.is_ascii_whitespace() => Spot::Bare,
            _ => spot,
        };
    }
    *unclosed += 1;
    tag.find('>')
}

/// Does this begin a tag, or another piece of markup, behind a `<`? Before anything else
/// that is text.
fn begins_markup(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?')
}

/// What follows a comment, which may end as soon as it has begun.
fn after_comment(comment: &str) -> &str {
    let at_once = comment.strip_prefix('>').or_else(|| comment.strip_prefix("->"));
    at_once.unwrap_or_else(|| comment.split_once("-->").map_or("", |(_, rest)| rest))
}

/// What follows the end tag of an element whose content is no markup.
fn skip_raw<'a>(rest: &'a str, name: &str) -> &'a str {
    let mut from = rest;
    while let Some((_, after)) = from.split_once("</") {
        if after.get(..name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name)) {
            return after;
        }
        from = after;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(page: &str) -> PageLinks {
        links(page.as_bytes(), &Url::parse("https://example.com/dir/").expect("a url"))
    }

    fn strings(urls: &[Url]) -> Vec<&str> {
        urls.iter().map(Url::as_str).collect()
    }

    #[test]
    fn feeds_sitemaps_and_the_canonical_url_are_found() {
        let found = of("<!doctype html><head><title>a <link rel=feed href=/no></title>\
            <!-- <link rel=alternate type=application/rss+xml href=/commented> -->\
            <script>document.write('<link rel=feed href=/scripted>')</script>\
            <link rel='alternate' type='application/rss+xml' href='feed.xml?a=1&amp;b=2'>\
            <LINK REL=\"ALTERNATE nofollow\" TYPE='application/atom+xml; charset=utf-8' HREF=/atom>\
            <link rel=alternate type=application/feed+json href=/feed.json />\
            <link rel=alternate type=application/json href=/wp-json/wp/v2/pages/2>\
            <link rel=alternate hreflang=de href=/de/>\
            <link rel=stylesheet href=/x.css>\
            <link rel=sitemap type=application/xml href=/sitemap.xml>\
            <link rel=canonical href=https://www.example.com/></head>\
            <body><link rel=feed href=/body>");
        let feeds = [
            "https://example.com/dir/feed.xml?a=1&b=2",
            "https://example.com/atom",
            "https://example.com/feed.json",
        ];
        assert_eq!(strings(&found.feeds), feeds);
        assert_eq!(strings(&found.sitemaps), ["https://example.com/sitemap.xml"]);
        assert_eq!(found.canonical.as_ref().map(Url::as_str), Some("https://www.example.com/"));
    }

    #[test]
    fn what_is_no_markup_hides_no_link_behind_it() {
        for nothing in ["<!-->", "<!--->", "1 < 2, \"", "<>", "a <= b", "<!-- --->", "<3 = '"] {
            let found = of(&format!("{nothing}<link rel=feed href=/feed.xml>"));
            assert_eq!(strings(&found.feeds), ["https://example.com/feed.xml"], "{nothing}");
        }
    }

    #[test]
    fn a_drawing_hides_what_is_in_it_and_one_that_ends_itself_nothing() {
        for (drawing, hides) in [
            ("<svg/>", false),
            ("<svg hidden />", false),
            ("<SVG class='a/'/>", false),
            ("<svg class=a />", false),
            ("<svg></svg>", false),
            // The slash is of the value.
            ("<svg class=a/>", true),
            ("<svg class='/'>", true),
            ("<title/>", true),
        ] {
            let found = of(&format!("{drawing}<link rel=feed href=/feed.xml>"));
            assert_eq!(found.feeds.is_empty(), hides, "{drawing}");
        }
    }

    #[test]
    fn quotes_that_nothing_closes_are_looked_for_a_few_times_only() {
        // Each of these tags would go on to the end of the page, from quote to quote.
        let tag = "<a \"=\">";
        let page = tag.repeat(MAX_BYTES / tag.len() / 2) + "<link rel=feed href=/feed.xml>";
        let mut unclosed = 0;
        let mut rest = page.as_str();
        while let Some((_, after)) = rest.split_once('<') {
            let Some(end) = tag_end(after, &mut unclosed) else { break };
            rest = after.get(end..).expect("a place in it");
        }
        assert_eq!(unclosed, MAX_UNCLOSED);
        assert_eq!(strings(&of(&page).feeds), ["https://example.com/feed.xml"]);
    }

    #[test]
    fn the_head_ends_however_its_end_tag_is_written() {
        for end in ["</head>", "</HEAD\n>", "</head >", "</head/>", "<body\tclass=x>"] {
            let found = of(&format!("{end}<link rel=feed href=/feed.xml>"));
            assert_eq!(found, PageLinks::default(), "{end}");
        }
        let found = of("</header><link rel=feed href=/feed.xml>");
        assert_eq!(strings(&found.feeds), ["https://example.com/feed.xml"]);
    }

    #[test]
    fn a_stray_quote_in_a_tag_hides_no_link_behind_it() {
        for stray in [
            "<meta name='description' content='It's here'>",
            "<meta content=\"27\" monitor\">",
            "<meta content=it's>",
            "<meta content = 'a > b' it's>",
        ] {
            let found = of(&format!(
                "<head>{stray}<link rel=feed href=/feed.xml><meta content='don't'></head>"
            ));
            assert_eq!(strings(&found.feeds), ["https://example.com/feed.xml"], "{stray}");
        }
    }

    /// As `WordPress`, `MediaWiki`, Hugo, jekyll-feed and others write them.
    #[test]
    fn the_feeds_of_real_site_software_are_found_and_nothing_else() {
        let table: &[(&str, &[&str])] = &[
            (
                "<link rel=\"alternate\" type=\"application/rss+xml\" title=\"S &raquo; Feed\" href=\"https://example.com/feed/\" />\n\
                 <link rel=\"alternate\" type=\"application/rss+xml\" title=\"S &raquo; Comments Feed\" href=\"https://example.com/comments/feed/\" />\n\
                 <link rel=\"https://api.w.org/\" href=\"https://example.com/wp-json/\" />\
                 <link rel=\"alternate\" type=\"application/json\" href=\"https://example.com/wp-json/wp/v2/pages/2\" />\
                 <link rel=\"EditURI\" type=\"application/rsd+xml\" title=\"RSD\" href=\"https://example.com/xmlrpc.php?rsd\" />\
                 <link rel=\"alternate\" type=\"application/json+oembed\" href=\"https://example.com/wp-json/oembed/1.0/embed?url=x\" />\
                 <link rel=\"alternate\" type=\"text/xml+oembed\" href=\"https://example.com/wp-json/oembed/1.0/embed?url=x&#038;format=xml\" />",
                &["https://example.com/feed/", "https://example.com/comments/feed/"],
            ),
            (
                "<link rel=\"search\" type=\"application/opensearchdescription+xml\" href=\"/opensearch_desc.php\"/>\
                 <link rel=\"alternate\" type=\"application/atom+xml\" title=\"Atom\" href=\"/index.php?title=Special:RecentChanges&amp;feed=atom\"/>",
                &["https://example.com/index.php?title=Special:RecentChanges&feed=atom"],
            ),
            (
                "<link rel=alternate type=application/rss+xml href=/index.xml title=S><link rel=alternate hreflang=de href=/de/>",
                &["https://example.com/index.xml"],
            ),
            (
                "<link type=\"application/atom+xml\" rel=\"alternate\" href=\"https://example.com/feed.xml\" title=\"S\" />",
                &["https://example.com/feed.xml"],
            ),
            (
                "<link rel=\"alternate\" type=\"application/feed+json\" href=\"/feed.json\"><link rel=\"manifest\" href=\"/m.json\">",
                &["https://example.com/feed.json"],
            ),
        ];
        for (head, feeds) in table {
            let found =
                of(&format!("<!DOCTYPE html><html><head>{head}</head><body></body></html>"));
            assert_eq!(strings(&found.feeds), *feeds, "{head}");
            assert!(found.sitemaps.is_empty(), "{head}");
        }
    }

    #[test]
    fn the_base_of_the_page_is_honoured_once() {
        let found =
            of("<base href='https://cdn.example.net/x/'><base href=/y/><link rel=feed href=f>");
        assert_eq!(strings(&found.feeds), ["https://cdn.example.net/x/f"]);
    }

    #[test]
    fn a_base_that_is_too_long_is_none() {
        let long = "x".repeat(2_048);
        let found = of(&format!("<base href='/{long}/'><link rel=feed href=f>"));
        assert_eq!(strings(&found.feeds), ["https://example.com/dir/f"]);
    }

    #[test]
    fn only_urls_of_the_web_are_links() {
        let found = of(
            "<link rel=feed href='javascript:alert(1)'><link rel=feed href=''><link rel=feed href='feed:x'>",
        );
        assert_eq!(found, PageLinks::default());
    }

    #[test]
    fn links_are_bounded_and_each_is_given_once() {
        let many: Vec<String> =
            (0..500).map(|i| format!("<link rel=feed href=/{}>", i / 2)).collect();
        assert_eq!(of(&many.concat()).feeds.len(), MAX_LINKS);
    }

    proptest::proptest! {
        #[test]
        fn no_page_makes_it_panic(page: Vec<u8>, markup in "[<>!/a-z\"'= -]{0,80}") {
            let base = Url::parse("https://example.com/").expect("a url");
            let _ = (links(&page, &base), links(markup.as_bytes(), &base));
        }
    }
}
