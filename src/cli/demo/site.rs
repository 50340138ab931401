//! The example site: what it has, and the documents that tell of it.
//!
//! It shows the shapes that real sites have: an index with a gzipped child
//! (articles with an honest `lastmod`), a plain child (products with
//! `changefreq` and `priority`), a text sitemap that tells no dates at all, and
//! two feeds. How it changes is told in [`super::story`]. No I/O and no clock.

use std::collections::VecDeque;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::http::Reply;

/// Pages that vanished are remembered as 410 up to this many, older ones are 404.
const MAX_GONE: usize = 200;
/// Items of a feed.
const FEED_ITEMS: usize = 10;

/// What a page is, and so which document lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// In the gzipped sitemap and the feeds, with an honest lastmod.
    Article,
    /// In the plain sitemap, with changefreq and priority.
    Product,
    /// In the text sitemap, without a date.
    Note,
}

impl Kind {
    fn folder(self) -> &'static str {
        match self {
            Self::Article => "articles",
            Self::Product => "shop",
            Self::Note => "notes",
        }
    }
}

/// One page.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// What it is.
    pub(super) kind: Kind,
    /// Unique among its kind.
    pub(super) number: u32,
    /// A word for people.
    pub(super) title: String,
    /// Edits so far.
    pub(super) version: u32,
    /// When it was last edited.
    pub(super) modified: Timestamp,
    /// When it was published.
    pub(super) published: Timestamp,
}

impl Page {
    /// Path of the page, which never changes.
    pub(super) fn path(&self) -> String {
        format!("/{}/{:03}-{}", self.kind.folder(), self.number, self.title)
    }

    /// How often it says that it changes, and how much it matters to its site.
    fn hints(&self) -> (&'static str, &'static str) {
        match (self.kind, self.number % 4) {
            (Kind::Article, _) => ("hourly", "0.8"),
            (_, 0) => ("always", "1.0"),
            (_, 1) => ("hourly", "0.6"),
            (_, 2) => ("daily", "0.4"),
            _ => ("yearly", "0.1"),
        }
    }

    fn html(&self) -> String {
        format!(
            "<!doctype html><html lang=en><title>{0}</title><h1>{0}</h1>\
             <p>Version {1} of {2}.</p></html>\n",
            self.title.replace('-', " "),
            self.version,
            self.path()
        )
    }
}

/// The site as it is now.
#[derive(Debug)]
pub(super) struct Site {
    /// Scheme, host and port, without a slash at the end.
    pub(super) origin: String,
    /// The pages that are there.
    pub(super) pages: Vec<Page>,
    /// Paths of pages that were there.
    gone: VecDeque<String>,
    next_number: u32,
}

/// Words that titles are made of.
const WORDS: [&str; 12] = [
    "tides", "kettles", "maps", "lanterns", "rivers", "clocks", "gardens", "letters", "bridges",
    "shadows", "bicycles", "weather",
];

impl Site {
    /// A site with its first pages, all of them some hours old.
    pub(super) fn new(origin: String, now: Timestamp) -> Self {
        let mut site = Self { origin, pages: Vec::new(), gone: VecDeque::new(), next_number: 1 };
        for age_hours in (1..=14).rev() {
            let then = now.saturating_sub(SignedDuration::from_hours(age_hours)).unwrap_or(now);
            site.publish(Kind::Article, then);
            site.publish(Kind::Product, then);
            site.publish(Kind::Note, then);
        }
        site
    }

    /// Adds a page; returns its place.
    pub(super) fn publish(&mut self, kind: Kind, now: Timestamp) -> usize {
        let number = self.next_number;
        self.next_number += 1;
        let word = |nth: u32| WORDS[(nth as usize) % WORDS.len()];
        // 5n + 3 and n are never equal modulo the 12 words.
        let other = number.wrapping_mul(5).wrapping_add(3);
        let title = format!("{}-and-{}", word(number), word(other));
        self.pages.push(Page { kind, number, title, version: 1, modified: now, published: now });
        self.pages.len() - 1
    }

    /// Edits a page.
    pub(super) fn edit(&mut self, at: usize, now: Timestamp) {
        if let Some(page) = self.pages.get_mut(at) {
            page.version += 1;
            page.modified = now;
        }
    }

    /// Takes a page away.
    pub(super) fn withdraw(&mut self, at: usize) {
        if at >= self.pages.len() {
            return;
        }
        let page = self.pages.remove(at);
        self.gone.push_back(page.path());
        if self.gone.len() > MAX_GONE {
            self.gone.pop_front();
        }
    }

    /// The pages of one kind with their places, oldest first.
    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (usize, &Page)> {
        self.pages.iter().enumerate().filter(move |(_, page)| page.kind == kind)
    }

    /// What a GET of this path gets.
    pub(super) fn answer(&self, path: &str) -> Reply {
        let newest = |kind| self.of_kind(kind).map(|(_, page)| page.modified).max();
        match path {
            "/" => reply("text/html; charset=utf-8", self.home(), None),
            "/robots.txt" => reply("text/plain", self.robots(), None),
            "/sitemap.xml" => reply("application/xml", self.index(), None),
            "/sitemap-articles.xml.gz" => Reply {
                gzip_file: true,
                ..reply("application/gzip", self.urlset(Kind::Article), newest(Kind::Article))
            },
            "/sitemap-shop.xml" => {
                reply("application/xml", self.urlset(Kind::Product), newest(Kind::Product))
            }
            "/notes.txt" => reply("text/plain; charset=utf-8", self.text(), None),
            "/feed.rss" => reply("application/rss+xml", self.rss(), newest(Kind::Article)),
            "/feed.atom" => reply("application/atom+xml", self.atom(), newest(Kind::Article)),
            _ => self.page(path),
        }
    }

    fn page(&self, path: &str) -> Reply {
        if let Some(page) = self.pages.iter().find(|page| page.path() == path) {
            return reply("text/html; charset=utf-8", page.html(), Some(page.modified));
        }
        let status = if self.gone.iter().any(|gone| gone == path) { 410 } else { 404 };
        Reply { status, ..reply("text/plain", "There is no such page.\n".to_owned(), None) }
    }

    fn home(&self) -> String {
        let mut html = "<!doctype html><html lang=en><head><title>An example site</title>\
            <link rel=alternate type=application/rss+xml href=/feed.rss>\
            <link rel=alternate type=application/atom+xml href=/feed.atom></head><body><ul>\n"
            .to_owned();
        for page in &self.pages {
            let _ = writeln!(html, "<li><a href={0}>{1}</a>", page.path(), page.title);
        }
        html.push_str("</ul></body></html>\n");
        html
    }

    fn robots(&self) -> String {
        format!(
            "User-agent: *\nDisallow: /private/\n\nSitemap: {0}/sitemap.xml\nSitemap: {0}/notes.txt\n",
            self.origin
        )
    }

    fn index(&self) -> String {
        let mut xml = xml_head("sitemapindex");
        for (kind, path) in
            [(Kind::Article, "sitemap-articles.xml.gz"), (Kind::Product, "sitemap-shop.xml")]
        {
            let _ = write!(xml, "<sitemap><loc>{}/{path}</loc>", self.origin);
            if let Some(newest) = self.of_kind(kind).map(|(_, page)| page.modified).max() {
                let _ = write!(xml, "<lastmod>{}</lastmod>", w3c(newest));
            }
            xml.push_str("</sitemap>\n");
        }
        xml.push_str("</sitemapindex>\n");
        xml
    }

    fn urlset(&self, kind: Kind) -> String {
        let mut xml = xml_head("urlset");
        for (_, page) in self.of_kind(kind) {
            let (changefreq, priority) = page.hints();
            let _ = writeln!(
                xml,
                "<url><loc>{}{}</loc><lastmod>{}</lastmod><changefreq>{changefreq}</changefreq>\
                 <priority>{priority}</priority></url>",
                self.origin,
                page.path(),
                w3c(page.modified)
            );
        }
        if kind == Kind::Product {
            // Listed by mistake and forbidden by robots.txt, as it happens on real sites.
            let _ = writeln!(xml, "<url><loc>{}/private/prices</loc></url>", self.origin);
        }
        xml.push_str("</urlset>\n");
        xml
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (_, page) in self.of_kind(Kind::Note) {
            let _ = writeln!(text, "{}{}", self.origin, page.path());
        }
        text
    }

    /// The latest articles, newest first.
    fn latest(&self) -> Vec<&Page> {
        let mut pages: Vec<&Page> = self.of_kind(Kind::Article).map(|(_, page)| page).collect();
        pages.sort_by_key(|page| std::cmp::Reverse(page.published));
        pages.truncate(FEED_ITEMS);
        pages
    }

    fn rss(&self) -> String {
        let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rss version=\"2.0\"><channel>\
            <title>An example site</title>\n"
            .to_owned();
        for page in self.latest() {
            let date = jiff::fmt::rfc2822::DateTimePrinter::new()
                .timestamp_to_rfc9110_string(&page.published)
                .unwrap_or_default();
            let _ = writeln!(
                xml,
                "<item><title>{}</title><link>{}{}</link><pubDate>{date}</pubDate></item>",
                page.title,
                self.origin,
                page.path()
            );
        }
        xml.push_str("</channel></rss>\n");
        xml
    }

    fn atom(&self) -> String {
        let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <feed xmlns=\"http://www.w3.org/2005/Atom\"><title>An example site</title>\n"
            .to_owned();
        for page in self.latest() {
            let _ = writeln!(
                xml,
                "<entry><title>{}</title><id>{1}{2}</id><link href=\"{1}{2}\"/><updated>{3}</updated></entry>",
                page.title,
                self.origin,
                page.path(),
                w3c(page.modified)
            );
        }
        xml.push_str("</feed>\n");
        xml
    }
}

fn reply(content_type: &'static str, body: String, modified: Option<Timestamp>) -> Reply {
    Reply { status: 200, content_type, body: body.into_bytes(), gzip_file: false, modified }
}

fn xml_head(root: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <{root} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n"
    )
}

/// W3C date and time to the second, as most sites write it.
fn w3c(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        let now = "2026-11-21T08:00:00Z".parse().expect("a timestamp");
        Site::new("http://127.0.0.1:1".to_owned(), now)
    }

    fn body(site: &Site, path: &str) -> String {
        String::from_utf8(site.answer(path).body).expect("text")
    }

    #[test]
    fn every_page_is_listed_in_the_document_of_its_kind_and_served() {
        let site = site();
        assert!(site.pages.len() >= 40);
        let texts = ["/sitemap-articles.xml.gz", "/sitemap-shop.xml", "/notes.txt"]
            .map(|path| body(&site, path));
        for page in &site.pages {
            let at = page.kind as usize;
            assert!(texts[at].contains(&page.path()), "{}", page.path());
            assert_eq!(site.answer(&page.path()).status, 200);
        }
    }

    #[test]
    fn a_withdrawn_page_is_gone_and_listed_nowhere() {
        let mut site = site();
        let path = site.pages[0].path();
        site.withdraw(0);
        assert_eq!(site.answer(&path).status, 410);
        assert!(!body(&site, "/sitemap-articles.xml.gz").contains(&path));
        assert_eq!(site.answer("/never/there").status, 404);
    }

    #[test]
    fn an_edit_shows_in_the_page_and_in_its_lastmod() {
        let mut site = site();
        let path = site.pages[0].path();
        let before = body(&site, &path);
        site.edit(0, "2026-11-21T09:00:00Z".parse().expect("a timestamp"));
        assert_ne!(body(&site, &path), before);
        assert!(body(&site, "/sitemap-articles.xml.gz").contains("2026-11-21T09:00:00Z"));
        assert!(body(&site, "/sitemap.xml").contains("2026-11-21T09:00:00Z"));
    }
}
