//! What the sites are: everything follows from their numbers, so that nothing
//! is kept and every run is the same.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// URLs of one sitemap file.
const PER_FILE: u32 = 5_000;
/// Items of a feed.
const FEED: u32 = 20;
/// One URL in so many changes with each version.
const CHANGES: u64 = 100;

/// How large the web is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) sites: u32,
    pub(crate) least: u32,
    pub(crate) most: u32,
}

/// One site at one version of the web.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    number: u32,
    urls: u32,
    version: u64,
    port: u16,
    address: Ipv4Addr,
}

/// One file of a site, ready to be served.
pub(crate) struct File {
    pub(crate) body: String,
    pub(crate) content_type: &'static str,
    /// The version in which it last changed.
    pub(crate) changed: u64,
    pub(crate) gzip: bool,
}

fn hash(parts: [u64; 3]) -> u64 {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, 7)
}

/// The loopback address that a site has to itself.
pub(crate) fn address(site: u32) -> Ipv4Addr {
    let [_, _, high, low] = (site + 1).to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

impl Shape {
    /// URLs of a site: evenly spread over the orders of magnitude.
    fn urls_of(&self, site: u32) -> u32 {
        let share = (f64::from(site) + 0.5) / f64::from(self.sites.max(1));
        let (least, most) = (f64::from(self.least.max(1)).ln(), f64::from(self.most).ln());
        // Between `least` and `most`, so the cast can neither cut nor wrap.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let urls = (least + (most - least) * share).exp().round() as u32;
        urls
    }

    /// URLs of all sites.
    pub(crate) fn urls(&self) -> u64 {
        (0..self.sites).map(|site| u64::from(self.urls_of(site))).sum()
    }

    pub(crate) fn site(&self, number: u32, version: u64, port: u16) -> Site {
        Site { number, urls: self.urls_of(number), version, port, address: address(number) }
    }
}

impl Site {
    /// Does its server send validators?
    pub(crate) fn has_validators(&self) -> bool {
        self.number % 10 < 6
    }

    /// Does its index date its children?
    fn dates_children(&self) -> bool {
        !self.number.is_multiple_of(5)
    }

    fn base(&self) -> String {
        format!("http://{}:{}", self.address, self.port)
    }

    fn files(&self) -> u32 {
        self.urls.div_ceil(PER_FILE)
    }

    /// The version in which a URL last changed.
    fn changed(&self, url: u32) -> u64 {
        let moved = |version: &u64| {
            hash([self.number.into(), url.into(), *version]).is_multiple_of(CHANGES)
        };
        (1..=self.version).rev().find(moved).unwrap_or(0)
    }

    fn last_change(&self, urls: Range<u32>) -> u64 {
        urls.map(|url| self.changed(url)).max().unwrap_or(0)
    }

    /// The file at `path`, if the site has one there.
    pub(crate) fn file(&self, path: &str) -> Option<File> {
        let text = |body, content_type| File { body, content_type, changed: 0, gzip: false };
        match path {
            "/robots.txt" => Some(text(
                format!("User-agent: *\nAllow: /\nSitemap: {}/sitemap.xml\n", self.base()),
                "text/plain",
            )),
            "/" => Some(text(
                "<!doctype html><link rel=alternate type=application/rss+xml href=/feed.rss>"
                    .to_owned(),
                "text/html",
            )),
            "/feed.rss" => Some(self.feed()),
            "/sitemap.xml" if self.files() == 1 => Some(self.urlset(0..self.urls, false)),
            "/sitemap.xml" => Some(self.index()),
            _ => {
                let number = path.strip_prefix("/sitemap-")?.strip_suffix(".xml.gz")?;
                let file: u32 = number.parse().ok().filter(|file| *file < self.files())?;
                Some(self.urlset(self.part(file), true))
            }
        }
    }

    fn part(&self, file: u32) -> Range<u32> {
        file * PER_FILE..((file + 1) * PER_FILE).min(self.urls)
    }

    fn urlset(&self, urls: Range<u32>, gzip: bool) -> File {
        let base = self.base();
        let mut body = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
        );
        let mut changed = 0;
        for url in urls {
            let version = self.changed(url);
            changed = changed.max(version);
            let _ = writeln!(
                body,
                "<url><loc>{base}/section-{}/article-number-{url}</loc><lastmod>{}</lastmod>\
                 <changefreq>weekly</changefreq><priority>0.{}</priority></url>",
                url % 23,
                self.date(url, version),
                url % 9 + 1,
            );
        }
        body.push_str("</urlset>\n");
        File { body, content_type: "application/xml", changed, gzip }
    }

    fn date(&self, url: u32, version: u64) -> String {
        if version > 0 {
            return format!("2026-11-21T12:{version:02}:00Z");
        }
        let day = hash([self.number.into(), url.into(), 0]);
        format!("2026-{:02}-{:02}T08:00:00Z", day % 10 + 1, day / 10 % 28 + 1)
    }

    fn index(&self) -> File {
        let base = self.base();
        let mut body = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<sitemapindex xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
        );
        let mut changed = 0;
        for file in 0..self.files() {
            let version = self.last_change(self.part(file));
            changed = changed.max(version);
            let lastmod = match (self.dates_children(), version) {
                (false, _) => String::new(),
                (true, 0) => "<lastmod>2026-11-01T08:00:00Z</lastmod>".to_owned(),
                (true, _) => format!("<lastmod>2026-11-21T13:{version:02}:00Z</lastmod>"),
            };
            let _ = writeln!(
                body,
                "<sitemap><loc>{base}/sitemap-{file}.xml.gz</loc>{lastmod}</sitemap>"
            );
        }
        body.push_str("</sitemapindex>\n");
        // Without dates its bytes never change.
        let changed = if self.dates_children() { changed } else { 0 };
        File { body, content_type: "application/xml", changed, gzip: false }
    }

    fn feed(&self) -> File {
        let base = self.base();
        let mut body = String::from("<rss version=\"2.0\"><channel><title>Site</title>\n");
        let recent = self.urls.saturating_sub(FEED)..self.urls;
        for url in recent.clone().rev() {
            let _ = writeln!(
                body,
                "<item><title>Article {url}, edition {}</title><link>{base}/section-{}/article-number-{url}</link></item>",
                self.changed(url),
                url % 23,
            );
        }
        body.push_str("</channel></rss>\n");
        let changed = self.last_change(recent);
        File { body, content_type: "application/rss+xml", changed, gzip: false }
    }
}
