//! What a document listed, written again without a fault, reads as the same.
//!
//! So nothing is handed on that could not be handed on: no URL that would be
//! refused, cut or changed, no date that would be another one.

use std::fmt::Write as _;

use sitemapd::model::{DocumentKind, Lastmod, Precision};
use sitemapd::parse::IssueCode;
use sitemapd::parse::robots::Robots;

use super::document::{self, Found, Listed, Manner};
use super::{Dice, fields, hints};

/// URL and dates: lastmod (or updated), and published.
type Row = (String, Option<Lastmod>, Option<Lastmod>);

/// The law of sitemaps.
pub(super) fn sitemap(bytes: &[u8], mut dice: Dice) {
    let (found, manner) = document::holds(bytes, &mut dice);
    let plain = manner.plain();
    for child in [false, true] {
        let listed: Vec<&Listed> = found.listed.iter().filter(|i| i.child == child).collect();
        let rows: Vec<Row> =
            listed.iter().map(|i| row(i, i.lastmod.or(i.updated).or(i.published), None)).collect();
        if rows.is_empty() && !dice.turn(8) {
            continue;
        }
        let (kind, document) = if child {
            (DocumentKind::Index, written(&rows, "sitemapindex", "sitemap"))
        } else {
            (DocumentKind::Urlset, written(&rows, "urlset", "url"))
        };
        let again = document::read(document.as_bytes(), &plain);
        assert_eq!(again.report.kind, kind);
        let read: Vec<Row> = again.listed.iter().map(|i| row(i, i.lastmod, None)).collect();
        same(&again, &read, &rows);
    }
    as_lines(&found, &plain);
    fields::are_kept_again(&found, &plain);
    if dice.turn(4) {
        fields::elements_are_not_mixed(bytes, &mut dice);
        fields::counts_are_exact(&mut dice);
    }
}

/// A URL without blanks is the same where it has a line to itself: in a text sitemap,
/// and in a robots.txt.
fn as_lines(found: &Found, plain: &Manner) {
    let is_line = |loc: &&str| {
        let whole = loc.starts_with("http://") || loc.starts_with("https://");
        let one =
            |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '#' | ',' | ';' | '<' | '>');
        whole && !loc.contains(one)
    };
    let locs: Vec<&str> = found.listed.iter().map(|i| i.loc.as_str()).filter(is_line).collect();
    if locs.is_empty() {
        return;
    }
    let text = document::read((locs.join("\n") + "\n").as_bytes(), plain);
    let room = locs.len().min(plain.max_urls());
    let read: Vec<&str> = text.listed.iter().map(|i| i.loc.as_str()).collect();
    assert_eq!((text.report.kind, read), (DocumentKind::Text, locs[..room].to_vec()));
    let lines: String = locs.iter().flat_map(|loc| ["Sitemap: ", *loc, "\n"]).collect();
    let robots = Robots::parse(format!("User-agent: *\nDisallow:\n{lines}").as_bytes());
    let mut once: Vec<&str> = Vec::new();
    for loc in locs {
        if !once.contains(&loc) {
            once.push(loc);
        }
    }
    assert_eq!(robots.sitemaps(), once);
}

/// The law of feeds.
pub(super) fn feed(bytes: &[u8], mut dice: Dice) {
    let (found, manner) = document::holds(bytes, &mut dice);
    let plain = manner.plain();
    let pages = found.listed.iter().filter(|i| !i.child);
    let rows: Vec<Row> = pages.map(|i| row(i, i.updated, i.published.or(i.lastmod))).collect();
    let documents = [
        (DocumentKind::Rss, rss(&rows)),
        (DocumentKind::Atom, atom(&rows)),
        (DocumentKind::JsonFeed, json(&rows)),
    ];
    for (kind, document) in documents {
        if !dice.turn(2) {
            continue;
        }
        let again = document::read(document.as_bytes(), &plain);
        assert_eq!(again.report.kind, kind, "{document}");
        let read: Vec<Row> = again.listed.iter().map(|i| row(i, i.updated, i.published)).collect();
        same(&again, &read, &rows);
    }
    hints::are_read_again(&found, &plain, &mut dice);
    hints::deletions_are_read_again(&found, &plain);
    if dice.turn(3) {
        hints::one_text_means_one_thing(bytes, &mut dice);
    }
}

fn same(again: &Found, read: &[Row], rows: &[Row]) {
    let empty = rows.is_empty();
    assert_eq!(read, rows);
    assert!(again.report.complete);
    let clean = again.report.issues.iter().all(|i| empty && i.code == IssueCode::EmptySitemap);
    assert!(clean, "{:?}", again.report.issues);
}

fn row(item: &Listed, date: Option<Lastmod>, published: Option<Lastmod>) -> Row {
    (item.loc.clone(), date.map(as_written), published.map(as_written))
}

/// The precision that a date has when it is written out: a time always with its
/// seconds, and without a fraction of nothing.
pub(super) fn as_written(date: Lastmod) -> Lastmod {
    let precision = match date.precision {
        Precision::Minute => Precision::Second,
        Precision::Fraction if date.at.subsec_nanosecond() == 0 => Precision::Second,
        other => other,
    };
    Lastmod { precision, ..date }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn date(out: &mut String, tag: &str, date: Option<Lastmod>) {
    if let Some(date) = date {
        write!(out, "<{tag}>{date}</{tag}>").expect("a string");
    }
}

fn written(rows: &[Row], root: &str, entry: &str) -> String {
    let mut out = format!("<{root} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n");
    for (loc, lastmod, _) in rows {
        write!(out, "<{entry}><loc>{}</loc>", escaped(loc)).expect("a string");
        date(&mut out, "lastmod", *lastmod);
        writeln!(out, "</{entry}>").expect("a string");
    }
    out + "</" + root + ">"
}

fn rss(rows: &[Row]) -> String {
    let mut out = String::from(
        "<rss version=\"2.0\" xmlns:atom=\"http://www.w3.org/2005/Atom\"><channel><title>t</title>\n",
    );
    for (loc, updated, published) in rows {
        write!(out, "<item><link>{}</link>", escaped(loc)).expect("a string");
        date(&mut out, "pubDate", *published);
        date(&mut out, "atom:updated", *updated);
        out.push_str("</item>\n");
    }
    out + "</channel></rss>"
}

fn atom(rows: &[Row]) -> String {
    let mut out = String::from("<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>t</title>\n");
    for (loc, updated, published) in rows {
        write!(out, "<entry><link href=\"{}\"/>", escaped(loc)).expect("a string");
        date(&mut out, "published", *published);
        date(&mut out, "updated", *updated);
        out.push_str("</entry>\n");
    }
    out + "</feed>"
}

fn json(rows: &[Row]) -> String {
    let item = |(loc, updated, published): &Row| {
        serde_json::json!({
            "url": loc,
            "date_modified": updated.map(|d| d.to_string()),
            "date_published": published.map(|d| d.to_string()),
        })
    };
    let items: Vec<_> = rows.iter().map(item).collect();
    let version = "https://jsonfeed.org/version/1.1";
    serde_json::json!({ "version": version, "title": "t", "items": items }).to_string()
}
