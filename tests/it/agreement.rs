//! On well-formed feeds we and feed-rs read the same items.

use std::fmt::Write as _;

use crate::reading::{Outcome, read};

/// URL and seconds of both dates of every item, as feed-rs reads them.
fn by_feed_rs(document: &str) -> Vec<(String, Option<i64>)> {
    let feed = feed_rs::parser::parse(document.as_bytes()).expect("a well-formed feed");
    let item = |e: feed_rs::model::Entry| {
        let link = e.links.first().map(|l| l.href.clone()).unwrap_or_default();
        (link, e.published.or(e.updated).map(|at| at.timestamp()))
    };
    feed.entries.into_iter().map(item).collect()
}

fn by_us(found: &Outcome) -> Vec<String> {
    found.entries.iter().map(|(loc, _)| loc.clone()).collect()
}

#[test]
fn rss_atom_rdf_and_json_agree_with_feed_rs() {
    let mut rss = String::from(
        "<?xml version=\"1.0\"?><rss version=\"2.0\"><channel><title>t</title><link>https://example.com/</link><description>d</description>",
    );
    let mut atom = String::from(
        "<?xml version=\"1.0\"?><feed xmlns=\"http://www.w3.org/2005/Atom\"><title>t</title><id>urn:x</id><updated>2026-01-01T00:00:00Z</updated>",
    );
    let mut rdf = String::from(
        "<?xml version=\"1.0\"?><rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" xmlns=\"http://purl.org/rss/1.0/\"><channel rdf:about=\"https://example.com/\"><title>t</title><link>https://example.com/</link><description>d</description></channel>",
    );
    let mut items = Vec::new();
    for i in 0..20 {
        let url = format!("https://example.com/{i}?a=1&amp;b={i}");
        let day = i + 1;
        write!(rss, "<item><title>T {i}</title><link>{url}</link><pubDate>{day:02} Jan 2026 10:00:00 GMT</pubDate></item>").expect("a string");
        write!(atom, "<entry><title>T</title><id>urn:{i}</id><link href=\"{url}\"/><updated>2026-01-{day:02}T10:00:00Z</updated></entry>").expect("a string");
        write!(rdf, "<item rdf:about=\"{url}\"><title>T</title><link>{url}</link></item>")
            .expect("a string");
        items.push(serde_json::json!({
            "id": i.to_string(), "url": format!("https://example.com/{i}"), "content_text": "x",
            "date_published": format!("2026-01-{day:02}T10:00:00Z"),
        }));
    }
    let json = serde_json::json!({ "version": "https://jsonfeed.org/version/1.1", "title": "t", "items": items });
    let documents =
        [rss + "</channel></rss>", atom + "</feed>", rdf + "</rdf:RDF>", json.to_string()];
    for document in documents {
        let ours = read(document.as_bytes());
        let theirs = by_feed_rs(&document);
        assert!(ours.report.complete && ours.report.issues.is_empty(), "{:?}", ours.report.issues);
        assert_eq!(by_us(&ours), theirs.iter().map(|(loc, _)| loc.clone()).collect::<Vec<_>>());
        assert_eq!(ours.entries.len(), 20);
        for ((_, dates), (_, at)) in ours.entries.iter().zip(theirs) {
            let at = at.map(|at| jiff::Timestamp::from_second(at).expect("in range").to_string());
            assert!(at.is_none_or(|at| dates.contains(&at)), "{dates}");
        }
    }
}
