//! What holds of every home page, and of every `Link` header.
//!
//! What is found are URLs of the web, each once and not too many; written anew,
//! as a page or as headers, they are found again, in their order; what follows
//! the start of the body changes nothing, nor does what says nothing in front; a
//! link says the same in a page and in a header.

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
        for end in ["<body>", "<BODY\tclass=x>", "</head>", "</HEAD\n>", "</head /><p>"] {
            let ended = format!("{text}{end}<link rel=feed href=/in-the-body>");
            assert_eq!(links(ended.as_bytes(), &base), found, "{ended}");
        }
    }
    if let Some(text) =
        std::str::from_utf8(bytes).ok().filter(|text| !text.contains(['\0', '\u{feff}']))
    {
        what_says_nothing_changes_nothing(text, &found, &base, &mut dice);
        a_base_is_where_links_start(text, &base);
    }
    let text = String::from_utf8_lossy(bytes);
    a_link_is_one_in_a_page_and_in_a_header(&text, &base, &mut dice);
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

/// Nothing in front of a page hides what is in it.
fn what_says_nothing_changes_nothing(text: &str, found: &PageLinks, base: &Url, dice: &mut Dice) {
    if text.len() >= 64 * 1024 {
        return;
    }
    // A comment may end as soon as it has begun (HTML, 13.2.5.43), and what is no letter
    // begins no tag.
    for nothing in [
        "<!-->",
        "<!--->",
        "<!-- a > b -->",
        "<!doctype html>",
        "<?x?>",
        "<title></title\t>",
        "<svg />",
        "1 < 2 \" ",
    ] {
        if dice.turn(3) {
            let page = format!("{nothing}{text}");
            assert_eq!(&links(page.as_bytes(), base), found, "{page}");
        }
    }
}

/// A page that names its base is read as one that came from there.
fn a_base_is_where_links_start(text: &str, base: &Url) {
    if text.len() >= 64 * 1024 || text.to_ascii_lowercase().contains("<base") {
        return;
    }
    let other = Url::parse("http://other.example/a/b?c").expect("a URL");
    for named in ["http://other.example/a/b?c", "//other.example/a/b?c"] {
        let page = format!("<base href=\"{named}\"><base href=/second/>{text}");
        let mut there = other.clone();
        if !named.starts_with("http:") {
            there.set_scheme(base.scheme()).expect("a scheme of the web");
        }
        assert_eq!(links(page.as_bytes(), base), links(text.as_bytes(), &there), "{page}");
    }
}

/// Relations that a link may have.
const RELATIONS: [&str; 9] = [
    "alternate",
    "ALTERNATE home",
    "feed",
    "sitemap",
    "canonical",
    "canonical sitemap",
    "x alternate canonical",
    "next feed",
    "stylesheet",
];
/// Types that it may have.
const TYPES: [&str; 8] = [
    "application/rss+xml",
    "Application/Atom+XML; charset=utf-8",
    "application/json",
    "text/html",
    "text/xml",
    " application/feed+json ",
    "application/json+oembed",
    "",
];

/// A link made of a piece of the text says the same in a page and in a header.
fn a_link_is_one_in_a_page_and_in_a_header(text: &str, base: &Url, dice: &mut Dice) {
    let fit = |c: char| c.is_ascii_graphic() && !"<>\"'&,;\\".contains(c);
    let hrefs: Vec<&str> =
        text.split(|c: char| !fit(c)).filter(|piece| !piece.is_empty()).collect();
    if hrefs.is_empty() {
        return;
    }
    let (mut page, mut headers) = (String::new(), Vec::new());
    for _ in 0..4 {
        let (href, rel, kind) = (dice.pick(&hrefs), dice.pick(&RELATIONS), dice.pick(&TYPES));
        write!(page, "<link href=\"{href}\" type=\"{kind}\" rel=\"{rel}\">").expect("a string");
        headers.push(format!("<{href}>; type=\"{kind}\";rel=\"{rel}\""));
    }
    let found = links(page.as_bytes(), base);
    assert_eq!(page_links(&headers, b"", base), found, "{headers:?}");
    assert_eq!(page_links(&[headers.join(", ")], b"", base), found, "{headers:?}");
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
