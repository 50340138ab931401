//! Reading a large sitemap, beside the least that quick-xml can do for it.
//!
//! `cargo bench --bench parse`. Compare the rows of one run: the machine's
//! mood is the same for both.

#![allow(clippy::expect_used, reason = "a bench that cannot read its own input has nothing to say")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::ops::ControlFlow;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use quick_xml::Reader;
use quick_xml::events::Event;
use sitemapd::parse::{Context, Item, Limits, parse};
use url::Url;

/// The protocol's limit.
const URLS: usize = 50_000;

fn main() {
    divan::main();
}

/// 50,000 URLs with all four tags, one in fourteen with an entity: 10.5 MB.
fn sitemap() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
    );
    for n in 0..URLS {
        let query = if n % 14 == 0 { "?a=1&amp;b=2" } else { "" };
        write!(
            text,
            "  <url>\n    <loc>https://www.example.org/section-{}/a-rather-usual-title-of-an-article-{n}{query}</loc>\n    \
             <lastmod>2026-{:02}-{:02}T{:02}:15:00+00:00</lastmod>\n    \
             <changefreq>weekly</changefreq>\n    <priority>0.{}</priority>\n  </url>\n",
            n % 97,
            n % 12 + 1,
            n % 28 + 1,
            n % 24,
            n % 9 + 1,
        )
        .expect("a string takes what is written");
    }
    text.push_str("</urlset>\n");
    text
}

/// From bytes in memory to entries: decoded loc, lastmod, changefreq, priority.
#[divan::bench]
fn sitemapd_reader(bencher: Bencher) {
    let text = sitemap();
    let base = Url::parse("https://www.example.org/sitemap.xml").expect("a URL");
    bencher.counter(BytesCount::new(text.len())).counter(ItemsCount::new(URLS)).bench(|| {
        let context = Context { base: &base, content_type: None, limits: Limits::default() };
        let mut sum = 0_u64;
        let report = parse(&mut text.as_bytes(), &context, &mut |item| {
            if let Item::Entry(entry) = item {
                sum += entry.loc.len() as u64;
                sum += entry.lastmod.map_or(0, |lastmod| lastmod.at.as_second().unsigned_abs());
                sum += entry.priority.map_or(0, |priority| u64::from(priority.thousandths()));
            }
            ControlFlow::Continue(())
        });
        assert_eq!(report.entries_total, URLS);
        black_box(sum)
    });
}

/// A bare loop over the events that keeps the text of the same four fields.
/// It knows well-formed documents only, and reads no date and no number.
#[divan::bench]
fn bare_quick_xml_loop(bencher: Bencher) {
    let text = sitemap();
    bencher.counter(BytesCount::new(text.len())).counter(ItemsCount::new(URLS)).bench(|| {
        let mut reader = Reader::from_str(&text);
        let mut field = String::new();
        let (mut kept, mut urls, mut inside) = (0_usize, 0_usize, false);
        loop {
            match reader.read_event().expect("well-formed") {
                Event::Start(tag) => {
                    inside = matches!(
                        tag.name().as_ref(),
                        "loc" | "lastmod" | "changefreq" | "priority"
                    );
                    field.clear();
                }
                Event::Text(part) if inside => field.push_str(&part),
                Event::GeneralRef(name) if inside => {
                    field.push(match name.as_ref() {
                        "amp" => '&',
                        "lt" => '<',
                        "gt" => '>',
                        "quot" => '"',
                        _ => '\'',
                    });
                }
                Event::End(tag) => {
                    if inside {
                        kept += black_box(&field).len();
                    }
                    urls += usize::from(tag.name().as_ref() == "url");
                    inside = false;
                }
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!(urls, URLS);
        black_box(kept)
    });
}
