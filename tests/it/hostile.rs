//! Documents made to hurt: linear time, bounded depth, nothing expanded.
//!
//! The time allowed is generous, since test machines are slow and shared; what
//! is quadratic overshoots it by orders of magnitude all the same.

use std::time::{Duration, Instant};

use sitemapd::model::DocumentKind;
use sitemapd::parse::IssueCode;

use crate::reading::{Outcome, read};

const ROOT: &str = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">";
const FIRST: &str = "<url><loc>https://example.com/first</loc></url>";
const LAST: &str = "<url><loc>https://example.com/last</loc></url>";

/// Reads a sitemap with `middle` between two good entries.
fn between(middle: &str) -> Outcome {
    timed(&format!("{ROOT}{FIRST}{middle}{LAST}</urlset>"))
}

fn timed(document: &str) -> Outcome {
    let start = Instant::now();
    let found = read(document.as_bytes());
    let took = start.elapsed();
    let allowed = Duration::from_secs(120);
    assert!(
        took < allowed,
        "{} bytes took {took:?}: {}",
        document.len(),
        &document[..80.min(document.len())]
    );
    found
}

/// More of a piece than any window holds.
fn flood(piece: &str) -> String {
    piece.repeat(600_000 / piece.len())
}

/// The pieces for 0 to `count` one after the other.
fn series(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect::<Vec<_>>().concat()
}

#[test]
fn floods_of_broken_markup_take_linear_time() {
    let pieces = [
        "<",
        "&",
        "<a",
        "<a ",
        "</",
        "<!",
        "<!-",
        "<!--",
        "<?",
        "<![CDATA[",
        "]]>",
        "<a b=\"",
        "<a b='><c d=\"",
        "<a \"'>",
        "&a",
        "&#",
        "&amp",
        "\u{feff}",
        "<a><b></a>",
        "</x>",
        "<x>",
        "<loc>",
        "<url>",
        "<a b=c",
        "<!DOCTYPE",
        "<!DOCTYPE a [",
        "<a <b <c ",
        "]",
        "<url><loc>",
        "<![CDATA[]]>",
        "<!---->",
        "<?a?>",
    ];
    for piece in pieces {
        let found = between(&flood(piece));
        assert_eq!(found.locs().first(), Some(&"https://example.com/first"), "{piece:?}");
        for lead in ["<a b=\"", "<![CDATA[", "<a <"] {
            let found = between(&format!("{lead}{}", flood(piece)));
            assert_eq!(
                found.locs().first(),
                Some(&"https://example.com/first"),
                "{lead:?} {piece:?}"
            );
        }
    }
}

#[test]
fn sections_whose_end_was_forgotten_take_linear_time() {
    for piece in ["<p></x><![CDATA[</p>", "<p></x><![CDATA[y</p ><!-->", "<p></x><![CDATA[</p>y]"] {
        let found = between(&piece.repeat(8_000_000 / piece.len()));
        assert_eq!(found.locs().first(), Some(&"https://example.com/first"), "{piece:?}");
    }
}

#[test]
fn a_giant_name_is_not_gone_through_for_each_tag_in_its_element() {
    let name = "x".repeat(200_000);
    for tag in ["</y>", "<y xmlns='z'/>"] {
        let document = format!("{ROOT}{FIRST}<{name}>{}", tag.repeat(3_000_000));
        assert_eq!(timed(&document).locs(), ["https://example.com/first"], "{tag}");
        let document = format!("<{name}><urlset>{}", tag.repeat(3_000_000));
        assert!(timed(&document).locs().is_empty(), "{tag}");
    }
}

#[test]
fn giant_tokens_cost_themselves_and_no_more() {
    let long = "x".repeat(3_000_000);
    let table = [
        format!("<url><loc>https://example.com/{long}</loc></url>"),
        format!("<url><loc>https://example.com/m</loc><lastmod>{long}</lastmod></url>")
            .replace("/m<", "/mid<"),
        format!("<!-- {long} -->"),
        format!("<?pi {long} ?>"),
        format!("<foo><![CDATA[ {long} ]]></foo>"),
        format!("<foo a=\"{long}\"/>"),
        format!("<{long}/>"),
        format!("<foo>{long}</foo>"),
        format!("&{long};"),
    ];
    for middle in table {
        let found = between(&middle);
        let locs = found.locs();
        let ends = (locs.first().copied(), locs.last().copied());
        assert_eq!(
            ends,
            (Some("https://example.com/first"), Some("https://example.com/last")),
            "{}",
            &middle[..40]
        );
    }
}

#[test]
fn attributes_and_namespaces_by_the_thousand_take_linear_time() {
    let attributes = series(200_000, |i| format!(" a{i}='1'"));
    let namespaces = series(300_000, |i| format!(" xmlns:n{i}='urn:{i}'"));
    for middle in [format!("<foo{attributes}/>"), format!("<foo{namespaces}></foo>")] {
        let found = between(&middle);
        assert_eq!(found.locs().len(), 2);
    }
    let nested = series(100_000, |i| format!("<a xmlns:p{i}='urn:{i}'>"));
    assert_eq!(between(&nested).locs().first(), Some(&"https://example.com/first"));
}

#[test]
fn a_million_levels_are_a_depth_defect_and_no_stack_overflow() {
    let found = between(&format!("{}{}", "<a>".repeat(1_000_000), "</a>".repeat(1_000_000)));
    assert_eq!(found.locs(), ["https://example.com/first", "https://example.com/last"]);
    assert!(found.has(IssueCode::TooDeep));
    let json = format!("{{\"version\":\"x\",\"items\":{}", "[".repeat(1_000_000));
    let found = timed(&json);
    assert!(!found.report.complete);
}

#[test]
fn declared_entities_are_never_expanded() {
    let laughs =
        series(11, |i| format!("<!ENTITY l{} \"{}\">", i + 1, format!("&l{i};").repeat(10)));
    let found = timed(&format!(
        "<!DOCTYPE urlset [<!ENTITY l0 \"ha\"><!ENTITY x SYSTEM \"file:///etc/passwd\">{laughs}]>{ROOT}\
         <url><loc>https://example.com/&l11;&x;</loc></url></urlset>"
    ));
    assert_eq!(found.locs(), ["https://example.com/&l11;&x;"]);
    let dtd = format!("<!DOCTYPE urlset [{}]>{ROOT}{FIRST}</urlset>", flood("<!ENTITY a 'b'>"));
    assert_eq!(timed(&dtd).locs(), ["https://example.com/first"]);
}

#[test]
fn what_is_no_document_of_ours_is_unsupported() {
    let table: [&[u8]; 9] = [
        b"",
        b"  \n ",
        b"<!DOCTYPE html><html><head><title>x</title><link href='/feed'></head></html>",
        b"<html><body><url><loc>https://example.com/a</loc></url></body></html>",
        b"{\"error\": \"not found\"}",
        b"[1, 2, 3]",
        b"\x00\x01\x02\x03\x04\x05\x06\x07\x08",
        b"just some words",
        b"<note><to>you</to></note>",
    ];
    for bytes in table {
        let found = read(bytes);
        assert_eq!(found.report.kind, DocumentKind::Unsupported, "{}", bytes.escape_ascii());
        assert!(!found.report.complete && found.entries.is_empty());
        let shown = found.report.issues.iter().all(|i| i.sample.len() <= 500);
        assert!(shown && !found.report.issues.is_empty());
    }
}

#[test]
fn an_endless_line_of_text_takes_no_memory_and_costs_only_itself() {
    let document = format!("https://example.com/a\n{}\nhttps://example.com/b\n", flood("x"));
    assert_eq!(timed(&document).locs(), ["https://example.com/a", "https://example.com/b"]);
}
