//! A site beside the example that never changes and says that it always does:
//! whoever asks for its sitemap finds every page edited a moment ago.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::http::Reply;

/// Its pages: as many as it takes to be found out at its second read.
const PAGES: u32 = 24;

/// The lying site.
#[derive(Debug, Clone)]
pub(super) struct Liar {
    /// Scheme, host and port, without a slash at the end.
    pub(super) origin: String,
}

impl Liar {
    /// What a GET of this path gets at `now`.
    pub(super) fn answer(&self, path: &str, now: Timestamp) -> Reply {
        let number = path.strip_prefix("/brochure/").and_then(|number| number.parse().ok());
        let (status, content_type, body) = match path {
            "/" => (200, "text/html; charset=utf-8", "<!doctype html><p>Always new!".to_owned()),
            "/robots.txt" => (200, "text/plain", "User-agent: *\nDisallow:\n".to_owned()),
            "/sitemap.xml" => (200, "application/xml", self.urlset(now)),
            _ if number.is_some_and(|number: u32| (1..=PAGES).contains(&number)) => {
                (200, "text/html; charset=utf-8", format!("<!doctype html><h1>{path}</h1>\n"))
            }
            _ => (404, "text/plain", "There is no such page.\n".to_owned()),
        };
        Reply { status, content_type, body: body.into_bytes(), gzip_file: false, modified: None }
    }

    fn urlset(&self, now: Timestamp) -> String {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
            <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n"
            .to_owned();
        for number in 1..=PAGES {
            let loc = format!("{}/brochure/{number}", self.origin);
            let _ = writeln!(xml, "<url><loc>{loc}</loc><lastmod>{now}</lastmod></url>");
        }
        xml.push_str("</urlset>\n");
        xml
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_dates_move_and_its_pages_do_not() {
        let liar = Liar { origin: "http://127.0.0.1:1".to_owned() };
        let at = |text: &str| text.parse().expect("a timestamp");
        let (early, late) = (at("2026-11-21T08:00:00Z"), at("2026-11-21T08:00:02Z"));
        let body = |path: &str, at| liar.answer(path, at).body;
        assert_ne!(body("/sitemap.xml", early), body("/sitemap.xml", late));
        for number in 1..=PAGES {
            let path = format!("/brochure/{number}");
            assert_eq!(body(&path, early), body(&path, late));
        }
        assert_eq!(liar.answer("/brochure/25", early).status, 404);
    }
}
