//! Polling, comparing and keeping, proved on whole daemons: scripted origins
//! over real sockets, a real database, a clock that is moved by hand.

mod backup;
mod broken;
mod conditional;
mod crash;
mod dates;
mod discovery;
mod expiry;
mod extensions;
mod follow;
mod fresh;
mod grants;
mod heard;
mod hostile;
mod hosts;
mod indexes;
mod large;
mod learned;
mod limits;
mod moves;
mod pace;
mod polite;
mod reload;
mod removal;
mod resting;
mod shared;
mod submitted;
mod three_polls;
mod tombstones;
mod windows;

use crate::support::Origin;

/// A site of exactly one sitemap, polled rarely unless asked.
fn one_sitemap(origin: &Origin) -> String {
    listed(origin, &["/sitemap.xml"], &[], "")
}

/// A site of exactly these sources; `extra` are further lines of the site.
fn listed(origin: &Origin, sitemaps: &[&str], feeds: &[&str], extra: &str) -> String {
    let urls = |paths: &[&str]| {
        let urls: Vec<_> = paths.iter().map(|path| format!("\"{}\"", origin.url(path))).collect();
        urls.join(", ")
    };
    format!(
        "[[site]]\nname = \"site\"\nurl = \"{}/\"\npoll = \"30d\"\nsitemaps = [{}]\nfeeds = [{}]\n{extra}\n",
        origin.base(),
        urls(sitemaps),
        urls(feeds)
    )
}

/// A sitemap of these entries: a path, and what else stands in its entry.
fn extended(base: &str, entries: &[(&str, String)]) -> String {
    let mut xml = String::from(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:image=\"http://www.google.com/schemas/sitemap-image/1.1\" \
         xmlns:video=\"http://www.google.com/schemas/sitemap-video/1.1\" \
         xmlns:news=\"http://www.google.com/schemas/sitemap-news/0.9\" \
         xmlns:xhtml=\"http://www.w3.org/1999/xhtml\">\n",
    );
    for (path, more) in entries {
        let entry = format!("<url><loc>{base}{path}</loc>{more}</url>\n");
        xml += &entry;
    }
    xml + "</urlset>\n"
}
