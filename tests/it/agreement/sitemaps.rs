//! Sitemaps and their indexes, beside a strict reader.

use std::ops::ControlFlow;

use proptest::prelude::*;
use sitemapd::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use sitemapd::parse::{Context, Item, Limits, Report, parse};
use url::Url;

use super::pages::{Page, pages, w3c};
use super::pen::{Part, Pen};
use super::strict::{self, Strict};
use crate::reading::BASE;
use crate::support::laws;

const SITEMAP: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";
const IMAGE: &str = "http://www.google.com/schemas/sitemap-image/1.1";
const VIDEO: &str = "http://www.google.com/schemas/sitemap-video/1.1";
const NEWS: &str = "http://www.google.com/schemas/sitemap-news/0.9";
const XHTML: &str = "http://www.w3.org/1999/xhtml";
const NEVER: &str = "https://example.com/never";

/// What an entry says.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    loc: String,
    lastmod: Option<Lastmod>,
    changefreq: Option<ChangeFreq>,
    priority: Option<Priority>,
}

fn by_us(document: &str) -> (Vec<Row>, Report) {
    let base = Url::parse(BASE).expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let mut rows = Vec::new();
    let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
        rows.push(match item {
            Item::Entry(e) => Row {
                loc: e.loc.to_owned(),
                lastmod: e.lastmod,
                changefreq: e.changefreq,
                priority: e.priority,
            },
            Item::Sitemap(s) => {
                Row { loc: s.loc.to_owned(), lastmod: s.lastmod, changefreq: None, priority: None }
            }
            Item::Deleted(d) => panic!("a sitemap deletes nothing: {d:?}"),
        });
        ControlFlow::Continue(())
    });
    (rows, report)
}

/// A `urlset` or a `sitemapindex` of these pages, and what it means.
fn written(pages: &[Page], index: bool, seed: u64) -> (String, Vec<Row>) {
    let mut pen = Pen::new(seed);
    pen.padded = true;
    let prefix = pen.dice.pick(&["", "", "s:", "sm:"]);
    let declared = format!("xmlns:{}", prefix.trim_end_matches(':'));
    let declared = if prefix.is_empty() { "xmlns" } else { &declared };
    let name = |local: &str| format!("{prefix}{local}");
    let (root, entry) = if index { ("sitemapindex", "sitemap") } else { ("urlset", "url") };
    let mut attributes = vec![
        (declared, SITEMAP),
        ("xmlns:image", IMAGE),
        ("xmlns:v", VIDEO),
        ("xmlns:n", NEWS),
        ("xmlns:h", XHTML),
        ("xmlns:other", "https://example.com/ns#"),
        ("other:a", "<b> & 'c'"),
    ];
    pen.dice.shuffle(&mut attributes);
    pen.open(&name(root), &attributes);
    let mut rows = Vec::new();
    for page in pages {
        let row = Row {
            loc: page.url(),
            lastmod: None,
            changefreq: Some(pen.dice.pick(&ChangeFreq::ALL)).filter(|_| !index),
            priority: Priority::from_f64(pen.dice.pick(&[0.0, 0.5, 0.85, 1.0]))
                .filter(|_| !index && page.published.is_some()),
        };
        let date = page.updated.map(|at| w3c(at, &mut pen.dice));
        let row = Row { lastmod: date.as_ref().map(|(_, lastmod)| *lastmod), ..row };
        let id = [("id", "a<b")];
        pen.open(&name(entry), if page.title.len() > 6 { &id } else { &[] });
        let mut parts: Vec<Part> = vec![Box::new(|p| p.leaf(&name("loc"), &[], &page.url()))];
        if let Some((text, _)) = date {
            parts.push(Box::new(move |p| p.leaf(&name("lastmod"), &[], &text)));
        }
        if let Some(word) = row.changefreq {
            parts.push(Box::new(move |p| p.leaf(&name("changefreq"), &[], word.as_str())));
        }
        if let Some(value) = row.priority {
            let text = format!("{:.2}", value.as_f64());
            parts.push(Box::new(move |p| p.leaf(&name("priority"), &[], &text)));
        }
        if !index {
            extensions(page, &mut parts);
        }
        pen.in_any_order(parts);
        pen.close(&name(entry));
        rows.push(row);
    }
    pen.close(&name(root));
    (pen.finish(), rows)
}

/// Elements of other namespaces with a `loc` in them that is no page.
fn extensions<'a>(page: &'a Page, parts: &mut Vec<Part<'a>>) {
    let Some(at) = page.published else { return };
    let which = at.as_second() % 5;
    parts.push(Box::new(move |p| match which {
        0 => {
            p.open("image:image", &[]);
            p.leaf("image:loc", &[], NEVER);
            p.close("image:image");
        }
        1 => {
            p.open("v:video", &[]);
            p.leaf("v:thumbnail_loc", &[], NEVER);
            p.leaf("v:title", &[], &page.title);
            p.leaf("v:description", &[], "<loc>https://example.com/never</loc>");
            p.leaf("v:content_loc", &[], NEVER);
            p.close("v:video");
        }
        2 => {
            p.open("n:news", &[]);
            p.open("n:publication", &[]);
            p.leaf("n:name", &[], "N");
            p.leaf("n:language", &[], "en");
            p.close("n:publication");
            p.leaf("n:publication_date", &[], "2026-11-21");
            p.leaf("n:title", &[], &page.title);
            p.close("n:news");
        }
        3 => {
            let own = page.url();
            p.empty("h:link", &[("rel", "alternate"), ("hreflang", "en"), ("href", &own)]);
            p.empty("h:link", &[("rel", "alternate"), ("hreflang", "de"), ("href", NEVER)]);
        }
        _ => {
            p.open("other:thing", &[]);
            p.leaf("other:loc", &[("other:x", "1")], NEVER);
            p.leaf("other:lastmod", &[], "1999");
            p.close("other:thing");
        }
    }));
}

fn agree(pages: &[Page], index: bool, seed: u64) {
    let (document, wanted) = written(pages, index, seed);
    let (ours, report) = by_us(&document);
    assert_eq!(ours, wanted, "{document}");
    assert_eq!(report.kind, if index { DocumentKind::Index } else { DocumentKind::Urlset });
    assert!(report.complete, "{document}");
    let codes: Vec<&str> = report.issues.iter().map(|issue| issue.code.as_str()).collect();
    assert!(codes.iter().all(|code| pages.is_empty() && *code == "empty-sitemap"), "{codes:?}");
    laws::hold("sitemap", document.as_bytes());
    let theirs = strict::read(&document).unwrap_or_else(|e| panic!("{e}: {document}"));
    let same = |row: &Row, strict: &Strict| {
        assert_eq!(row.loc, strict.loc, "{document}");
        let at = strict.lastmod.as_deref().map(|text| strict::instant(text).expect("a date"));
        assert_eq!(row.lastmod.map(|lastmod| lastmod.at), at, "{document}");
        assert_eq!(row.changefreq.map(ChangeFreq::as_str), strict.changefreq.as_deref());
        let priority = strict.priority.as_deref().map(|text| text.parse::<f64>().expect("one"));
        assert_eq!(row.priority, priority.and_then(Priority::from_f64), "{document}");
    };
    assert_eq!(ours.len(), theirs.len(), "{document}");
    ours.iter().zip(&theirs).for_each(|(row, strict)| same(row, strict));
}

#[test]
fn the_strict_reader_is_strict() {
    let root = "xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'";
    let good = format!("<urlset {root}><url><loc> a&amp;b </loc></url></urlset>");
    assert_eq!(strict::read(&good).map(|found| found[0].loc.clone()), Ok("a&b".to_owned()));
    for bad in [
        format!("<urlset {root}><url><loc>a&b</loc></url></urlset>"),
        format!("<urlset {root}><url><loc>a&nope;</loc></url></urlset>"),
        format!("<urlset {root}><url><loc>a</url></urlset>"),
        format!("<urlset {root}><url><loc>a</loc></url>"),
        format!("<urlset {root}><url><location>a</location></url></urlset>"),
        format!("<urlset {root} a='1' a='2'/>"),
    ] {
        assert!(strict::read(&bad).is_err(), "{bad}");
    }
    let foreign = good.replace("0.9", "0.8");
    assert_eq!(strict::read(&foreign), Ok(Vec::new()));
}

proptest! {
    #[test]
    fn a_sitemap_is_read_as_a_strict_reader_reads_it(pages in pages(), seed: u64) {
        agree(&pages, false, seed);
    }

    #[test]
    fn an_index_is_read_as_a_strict_reader_reads_it(pages in pages(), seed: u64) {
        agree(&pages, true, seed);
    }
}
