//! RSS 2.0, RSS 1.0, Atom and JSON Feed, beside feed-rs.
//!
//! Where feed-rs does otherwise than the formats ask, documents avoid the matter
//! or the comparison says so:
//! - it never takes a `guid` for a link, and drops an RSS 1.0 item without `link`
//!   whatever its `rdf:about` says;
//! - it takes no `atom:link` of an RSS item;
//! - of `pubDate` and `dc:date` the last counts, whichever it is;
//! - it copies `published` to `updated` in RSS 2.0;
//! - it resolves nothing in JSON, and resolves links against `xml:base` only where
//!   the URL is a relative one (so do we).

use jiff::Timestamp;
use proptest::prelude::*;
use sitemapd::model::Lastmod;
use sitemapd::parse::{Context, Item, Limits, Report, parse};
use url::Url;

use super::pages::{Page, SITE, pages, rfc822, rfc3339};
use super::pen::{Part, Pen};
use crate::reading::BASE;
use crate::support::laws;

/// URL, `published`, `updated`, in seconds.
type Row = (String, Option<i64>, Option<i64>);

const ATOM: &str = "http://www.w3.org/2005/Atom";
const DC: &str = "http://purl.org/dc/elements/1.1/";
const CONTENT: &str = "http://purl.org/rss/1.0/modules/content/";
const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
const XHTML: &str = "http://www.w3.org/1999/xhtml";
const HTML: &str = "<p><a href=\"https://example.com/never\">x</a> & ]]</p>";

/// One spelling of every URL.
fn plain(url: &str) -> String {
    Url::parse(url).map_or_else(|e| format!("{url}: {e}"), String::from)
}

fn meant(pages: &[Page]) -> Vec<Row> {
    let second = |at: Option<Timestamp>| at.map(Timestamp::as_second);
    let row = |p: &Page| (plain(&p.url()), second(p.published), second(p.updated));
    pages.iter().map(row).collect()
}

fn by_us(document: &str) -> (Vec<Row>, Report) {
    let base = Url::parse(BASE).expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let second = |date: Option<Lastmod>| date.map(|d| d.at.as_second());
    let mut rows = Vec::new();
    let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
        if let Item::Entry(e) = item {
            rows.push((plain(e.loc), second(e.published), second(e.updated)));
        }
        std::ops::ControlFlow::Continue(())
    });
    (rows, report)
}

fn by_feed_rs(document: &str) -> Vec<Row> {
    let parser = feed_rs::parser::Builder::new().base_uri(Some(BASE)).build();
    let feed = parser.parse(document.as_bytes()).unwrap_or_else(|e| panic!("{e}: {document}"));
    let item = |e: feed_rs::model::Entry| {
        let page = |link: &&feed_rs::model::Link| {
            let alternate = link.rel.as_deref().is_none_or(|rel| rel == "alternate");
            let html = link.media_type.as_deref().is_none_or(|kind| kind.contains("html"));
            alternate && html && link.target.is_none()
        };
        let link = e.links.iter().find(page).map_or(e.id.clone(), |link| link.href.clone());
        let second = |at: Option<chrono::DateTime<chrono::Utc>>| at.map(|at| at.timestamp());
        (plain(&link), second(e.published), second(e.updated))
    };
    feed.entries.into_iter().map(item).collect()
}

/// A URL as it is written where `SITE` is the base.
fn reference(pen: &mut Pen, page: &Page, based: bool) -> String {
    match pen.dice.below(3) {
        0 if based => page.path.clone(),
        1 => format!("/{}", page.path),
        _ => page.url(),
    }
}

/// A feed in RSS 2.0.
fn rss(pages: &[Page], seed: u64) -> String {
    let mut pen = Pen::new(seed);
    pen.padded = true;
    let based = pen.dice.below(2) == 0;
    let [a, d, c] = pen.dice.pick(&[["atom", "dc", "content"], ["a10", "x", "y"]]);
    let names = [a, d, c].map(|prefix| format!("xmlns:{prefix}"));
    let mut attributes = vec![("version", "2.0")];
    attributes.extend([(&*names[0], ATOM), (&*names[1], DC), (&*names[2], CONTENT)]);
    attributes.extend(based.then_some(("xml:base", SITE)));
    pen.open("rss", &attributes);
    pen.open("channel", &[]);
    pen.leaf("title", &[], "The <channel>");
    pen.leaf("link", &[], SITE);
    pen.leaf("description", &[], HTML);
    let own = [("rel", "self"), ("href", "https://example.com/feed")];
    pen.empty(&format!("{a}:link"), &own);
    pen.open("image", &[]);
    pen.leaf("link", &[], "https://example.com/never");
    pen.leaf("url", &[], "https://example.com/never.png");
    pen.close("image");
    for page in pages {
        let as_id = pen.dice.below(4) == 0;
        let by_dc = pen.dice.below(3) == 0;
        let permalink = pen.dice.below(2) == 0;
        pen.open("item", &[]);
        let link = reference(&mut pen, page, based);
        let url = page.url();
        let mut parts: Vec<Part> = vec![
            Box::new(|p| p.leaf("title", &[], &page.title)),
            Box::new(|p| p.leaf("description", &[], HTML)),
            Box::new(|p| p.leaf(&format!("{c}:encoded"), &[], HTML)),
            Box::new(|p| p.leaf("category", &[], "https://example.com/never")),
            Box::new(|p| {
                p.leaf("source", &[("url", "https://example.com/never")], "Never <link>");
            }),
            Box::new(|p| {
                let enclosure = [("url", "https://example.com/n.mp3"), ("type", "audio/mpeg")];
                p.empty("enclosure", &[enclosure[0], enclosure[1], ("length", "1")]);
            }),
        ];
        if as_id {
            let attribute = if permalink { vec![("isPermaLink", "true")] } else { vec![] };
            parts.push(Box::new(move |p| p.leaf("guid", &attribute, &url)));
        } else {
            parts.push(Box::new(move |p| p.leaf("link", &[], &link)));
            parts.push(Box::new(|p| p.leaf("guid", &[("isPermaLink", "false")], "7@x")));
        }
        if let Some(at) = page.published {
            parts.push(Box::new(move |p| {
                if by_dc {
                    let text = rfc3339(at, &mut p.dice);
                    p.leaf(&format!("{d}:date"), &[], &text);
                } else {
                    let text = rfc822(at, &mut p.dice);
                    p.leaf("pubDate", &[], &text);
                }
            }));
        }
        if let Some(at) = page.updated {
            parts.push(Box::new(move |p| {
                let text = rfc3339(at, &mut p.dice);
                p.leaf(&format!("{a}:updated"), &[], &text);
            }));
        }
        pen.in_any_order(parts);
        pen.close("item");
    }
    pen.close("channel");
    pen.close("rss");
    pen.finish()
}

/// A feed in Atom 1.0.
fn atom(pages: &[Page], seed: u64) -> String {
    let mut pen = Pen::new(seed);
    let prefix = pen.dice.pick(&["", "a:", "atom:"]);
    let declared = if prefix.is_empty() {
        "xmlns".to_owned()
    } else {
        format!("xmlns:{}", prefix.trim_end_matches(':'))
    };
    let name = |local: &str| format!("{prefix}{local}");
    let based = pen.dice.below(2) == 0;
    let mut attributes = vec![(&*declared, ATOM), ("xml:lang", "en")];
    attributes.extend(based.then_some(("xml:base", SITE)));
    pen.open(&name("feed"), &attributes);
    pen.leaf(&name("title"), &[("type", "html")], "<b>Feed</b>");
    pen.leaf(&name("id"), &[], "urn:feed");
    pen.leaf(&name("updated"), &[], "2026-01-01T00:00:00Z");
    pen.empty(&name("link"), &[("rel", "self"), ("href", "https://example.com/feed")]);
    pen.empty(&name("link"), &[("href", SITE)]);
    for (number, page) in pages.iter().enumerate() {
        // A base of its own, below that of the feed.
        let deeper = pen.dice.below(3) == 0;
        let own = if deeper { vec![("xml:base", SITE)] } else { vec![] };
        pen.open(&name("entry"), &own);
        let link = reference(&mut pen, page, based || deeper);
        let kind = pen.dice.pick(&[None, Some("text/html"), Some("application/xhtml+xml")]);
        let rel = pen.dice.pick(&[None, Some("alternate")]);
        let mut parts: Vec<Part> = vec![
            Box::new(|p| p.leaf(&name("title"), &[("type", "text")], &page.title)),
            Box::new(|p| p.leaf(&name("id"), &[], &format!("urn:entry:{number}"))),
            Box::new(|p| {
                p.empty(
                    &name("link"),
                    &[("rel", "related"), ("href", "https://example.com/never")],
                );
            }),
            Box::new(|p| {
                let media = [("rel", "enclosure"), ("href", "never.mp3"), ("type", "audio/mpeg")];
                p.empty(&name("link"), &media);
            }),
            Box::new(|p| {
                p.open(&name("author"), &[]);
                p.leaf(&name("name"), &[], "N");
                p.leaf(&name("uri"), &[], "https://example.com/never");
                p.close(&name("author"));
            }),
            Box::new(|p| {
                p.open(&name("content"), &[("type", "xhtml")]);
                p.open("x:div", &[("xmlns:x", XHTML)]);
                p.leaf("x:a", &[("href", "never")], "a < b");
                p.close("x:div");
                p.close(&name("content"));
            }),
            Box::new(move |p| {
                let mut attributes = vec![("href", link.as_str())];
                attributes.extend(kind.map(|kind| ("type", kind)));
                attributes.extend(rel.map(|rel| ("rel", rel)));
                p.empty(&name("link"), &attributes);
            }),
        ];
        for (local, at) in [("published", page.published), ("updated", page.updated)] {
            if let Some(at) = at {
                parts.push(Box::new(move |p| {
                    let text = rfc3339(at, &mut p.dice);
                    p.leaf(&name(local), &[], &text);
                }));
            }
        }
        pen.in_any_order(parts);
        pen.close(&name("entry"));
    }
    pen.close(&name("feed"));
    pen.finish()
}

/// A feed in RSS 1.0; it knows one date.
fn rdf(pages: &[Page], seed: u64) -> String {
    let mut pen = Pen::new(seed);
    let r = pen.dice.pick(&["rdf", "r"]);
    let names = [format!("xmlns:{r}"), format!("{r}:about"), format!("{r}:RDF")];
    let [declared, about, root] = &names;
    pen.open(root, &[(&**declared, RDF), ("xmlns", "http://purl.org/rss/1.0/"), ("xmlns:d", DC)]);
    pen.open("channel", &[(about, SITE)]);
    pen.leaf("title", &[], "T");
    pen.leaf("link", &[], SITE);
    pen.leaf("description", &[], HTML);
    pen.close("channel");
    for page in pages {
        let url = page.url();
        pen.open("item", &[(about, &url)]);
        let mut parts: Vec<Part> = vec![
            Box::new(|p| p.leaf("title", &[], &page.title)),
            Box::new(|p| p.leaf("link", &[], &page.url())),
            Box::new(|p| p.leaf("description", &[], HTML)),
        ];
        if let Some(at) = page.published {
            parts.push(Box::new(move |p| {
                let text = rfc3339(at, &mut p.dice);
                p.leaf("d:date", &[], &text);
            }));
        }
        pen.in_any_order(parts);
        pen.close("item");
    }
    pen.close(root);
    pen.finish()
}

/// A JSON Feed, version 1 or 1.1.
fn json(pages: &[Page], seed: u64) -> String {
    let mut dice = laws::Dice::of(&seed.to_le_bytes());
    let version =
        dice.pick(&["https://jsonfeed.org/version/1", "https://jsonfeed.org/version/1.1"]);
    let items: Vec<_> = pages
        .iter()
        .enumerate()
        .map(|(number, page)| {
            let mut item = serde_json::json!({
                "id": number.to_string(), "title": page.title, "content_html": HTML,
                "tags": ["a", "b"], "attachments": [{
                    "url": "https://example.com/never.mp3", "mime_type": "audio/mpeg",
                }],
            });
            let key = dice.pick(&["url", "url", "external_url"]);
            item[key] = page.url().into();
            for (key, at) in [("date_published", page.published), ("date_modified", page.updated)] {
                if let Some(at) = at {
                    item[key] = rfc3339(at, &mut dice).into();
                }
            }
            item
        })
        .collect();
    let feed = serde_json::json!({
        "version": version, "title": "T", "home_page_url": SITE, "items": items,
    });
    if dice.below(2) == 0 { feed.to_string() } else { format!("{feed:#}") }
}

/// All three mean the same; feed-rs `copies` what was published where
/// nothing was updated.
fn agree(document: &str, pages: &[Page], copies: bool) {
    let wanted = meant(pages);
    let (ours, report) = by_us(document);
    assert_eq!(ours, wanted, "{document}");
    assert!(report.complete, "{document}");
    let empty = |code: &str| pages.is_empty() && code == "empty-sitemap";
    let clean = report
        .issues
        .iter()
        .all(|i| i.code == sitemapd::parse::IssueCode::RelativeUrl || empty(i.code.as_str()));
    assert!(clean, "{:?}: {document}", report.issues);
    laws::hold("feed", document.as_bytes());
    let mut theirs = by_feed_rs(document);
    if copies {
        for (row, (.., published, updated)) in theirs.iter_mut().zip(&wanted) {
            if updated.is_none() && row.2 == *published {
                row.2 = None;
            }
        }
    }
    assert_eq!(theirs, wanted, "{document}");
}

proptest! {
    #[test]
    fn rss_is_read_as_feed_rs_reads_it(pages in pages(), seed: u64) {
        agree(&rss(&pages, seed), &pages, true);
    }

    #[test]
    fn atom_is_read_as_feed_rs_reads_it(pages in pages(), seed: u64) {
        agree(&atom(&pages, seed), &pages, false);
    }

    #[test]
    fn rdf_is_read_as_feed_rs_reads_it(mut pages in pages(), seed: u64) {
        for page in &mut pages {
            page.updated = None;
        }
        agree(&rdf(&pages, seed), &pages, false);
    }

    #[test]
    fn a_json_feed_is_read_as_feed_rs_reads_it(pages in pages(), seed: u64) {
        agree(&json(&pages, seed), &pages, false);
    }
}
