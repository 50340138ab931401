//! What holds of every home page, and of every `Link` header.
//!
//! What is found are URLs of the web, each once and not too many; written anew,
//! as a page or as headers, they are found again, in their order; what follows
//! the start of the body changes nothing.

use std::fmt::Write as _;

use sitemapd::parse::html::{PageLinks, links, page_links};
use url::Url;

use super::Dice;

/// Links of one kind that may be found.
const MAX_LINKS: usize = 64;

/// The law of pages: the bytes are a page, and their lines are headers.
pub(super) fn holds(bytes: &[u8], mut dice: Dice) {
    let base = Url::parse("https://www.example.org/dir/page?x=1").expect("a URL");
    let found = links(bytes, &base);
    are_urls_of_the_web(&found);
    assert_eq!(page_links(&[], bytes, &base), found);
    are_found_again(&found);
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| is_closed(text)) {
        let ended = format!("{text}<body><link rel=feed href=/in-the-body>");
        assert_eq!(links(ended.as_bytes(), &base), found, "{text}");
    }
    let text = String::from_utf8_lossy(bytes);
    let headers: Vec<String> = text.split('\n').take(8).map(str::to_owned).collect();
    let said = page_links(&headers, b"", &base);
    are_urls_of_the_web(&said);
    are_found_again(&said);
    if dice.turn(2) {
        let both = page_links(&headers, bytes, &base);
        assert!(both.feeds.starts_with(&said.feeds) && both.sitemaps.starts_with(&said.sitemaps));
        let kept = |all: &[Url], some: &[Url]| {
            all.len() == MAX_LINKS || some.iter().all(|url| all.contains(url))
        };
        assert!(kept(&both.feeds, &found.feeds) && kept(&both.sitemaps, &found.sitemaps));
        assert_eq!(both.canonical, said.canonical.or(found.canonical));
    }
}

/// Is a page surely outside of every tag, comment and raw element at its end?
fn is_closed(page: &str) -> bool {
    let lower = page.to_ascii_lowercase();
    let opens =
        ["<!--", "<script", "<style", "<title", "<noscript", "<template", "<textarea", "<svg"];
    page.len() < 64 * 1024
        && !page.contains(['"', '\'', '\0', '\u{feff}'])
        && !opens.iter().any(|open| lower.contains(open))
        && lower.rfind('<') <= lower.rfind('>')
}

fn are_urls_of_the_web(found: &PageLinks) {
    for list in [&found.feeds, &found.sitemaps] {
        assert!(list.len() <= MAX_LINKS);
        for (at, url) in list.iter().enumerate() {
            assert!(matches!(url.scheme(), "http" | "https") && url.has_host(), "{url}");
            assert!(!list[..at].contains(url), "{url} twice");
        }
    }
}

fn are_found_again(found: &PageLinks) {
    let elsewhere = Url::parse("https://elsewhere.example/").expect("a URL");
    let (mut page, mut headers) = (String::from("<html><head>"), Vec::new());
    let mut add = |rel: &str, url: &Url| {
        let href = url.as_str().replace('&', "&amp;").replace('\'', "&#39;");
        write!(page, "<link rel=\"{rel}\" href='{href}'>").expect("a string");
        headers.push(format!("<{url}>; rel=\"{rel}\""));
    };
    found.feeds.iter().for_each(|url| add("feed", url));
    found.sitemaps.iter().for_each(|url| add("sitemap", url));
    found.canonical.iter().for_each(|url| add("canonical", url));
    page.push_str("</head>");
    assert_eq!(&links(page.as_bytes(), &elsewhere), found, "{page}");
    assert_eq!(&page_links(&headers, b"", &elsewhere), found, "{headers:?}");
}
