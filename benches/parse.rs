//! Reading sitemaps and feeds, beside the best that others can do.
//!
//! `cargo bench --bench parse`. The table by divan gives each row alone; the
//! lines after it measure pairs in turns, which is what to believe on a machine
//! that does other things too. `docs/PERFORMANCE.md` says what the rows mean.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench that cannot read its own input has nothing to say, and says the rest aloud"
)]

#[path = "parse/documents.rs"]
mod documents;
#[path = "parse/peers.rs"]
mod peers;
#[path = "parse/ratios.rs"]
mod ratios;

use std::hint::black_box;
use std::io::Read;
use std::ops::ControlFlow;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use documents::{ITEMS, URLS};
use ratios::{Contender, compare};
use sitemapd::fetch::body::Decoded;
use sitemapd::parse::{Context, Item, Limits, parse};
use url::Url;

/// Far more than any document here.
const MAX_BODY_BYTES: u64 = 50 << 20;

fn main() {
    divan::main();
    // Only as a bench, and whole: not as a test, not for a list or a part.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().all(|arg| arg == "--bench") && !args.is_empty() {
        print_ratios();
    }
}

/// From bytes to entries: decoded loc, lastmod, changefreq, priority, each read.
fn ours(document: &mut dyn Read) -> usize {
    let base = Url::parse("https://www.example.org/sitemap.xml").expect("a URL");
    let context = Context { base: &base, content_type: None, limits: Limits::default() };
    let report = parse(document, &context, &mut |item| {
        if let Item::Entry(entry) = item {
            black_box(&entry);
        }
        ControlFlow::Continue(())
    });
    assert!(report.complete, "read to its end");
    report.entries_total
}

/// The same from a .gz, unpacked as a poll unpacks it.
fn ours_packed(packed: &Bytes) -> usize {
    let mut decoded = Decoded::new(packed.clone(), &[], MAX_BODY_BYTES);
    let found = ours(&mut decoded);
    black_box(decoded.outcome());
    found
}

fn print_ratios() {
    let (clean, dirty) = (documents::sitemap(), documents::dirty_sitemap());
    let packed = Bytes::from(documents::gzip(clean.as_bytes()));
    let (rss, atom) = (documents::rss(), documents::atom());
    let on_clean = || ours(&mut clean.as_bytes());
    let reader = Contender { name: "sitemapd", run: &on_clean };
    println!("\nIn turns; a quotient under 1 means that the left one is faster.");
    println!("\nA sitemap of {URLS} URLs, {} bytes:", clean.len());
    compare(&reader, &Contender { name: "bare quick-xml loop", run: &|| peers::bare_loop(&clean) });
    compare(&reader, &Contender { name: "strict, same output", run: &|| peers::strict(&clean) });
    compare(&reader, &Contender { name: "crate sitemaps", run: &|| peers::sitemaps(&clean) });
    let on_dirty = || ours(&mut dirty.as_bytes());
    compare(&Contender { name: "sitemapd, broken sitemap", run: &on_dirty }, &reader);
    let from_gz = || ours_packed(&packed);
    compare(&Contender { name: "sitemapd, from its .gz", run: &from_gz }, &reader);
    for (name, feed) in [("RSS", &rss), ("Atom", &atom)] {
        println!("\nA feed of {ITEMS} items, {name}, {} bytes:", feed.len());
        let on_feed = || ours(&mut feed.as_bytes());
        let reader = Contender { name: "sitemapd", run: &on_feed };
        compare(&reader, &Contender { name: "feed-rs", run: &|| peers::feed_rs(feed) });
    }
}

/// Measures one reader on one document.
fn bench(bencher: Bencher<'_, '_>, bytes: usize, items: usize, run: impl Fn() -> usize + Sync) {
    bencher.counter(BytesCount::new(bytes)).counter(ItemsCount::new(items)).bench(|| {
        assert_eq!(run(), items);
    });
}

mod sitemap {
    use super::{Bencher, Bytes, URLS, bench, documents, ours, ours_packed, peers};

    #[divan::bench]
    fn sitemapd(bencher: Bencher<'_, '_>) {
        let text = documents::sitemap();
        bench(bencher, text.len(), URLS, || ours(&mut text.as_bytes()));
    }

    #[divan::bench]
    fn sitemapd_from_gz(bencher: Bencher<'_, '_>) {
        let text = documents::sitemap();
        let packed = Bytes::from(documents::gzip(text.as_bytes()));
        bench(bencher, text.len(), URLS, || ours_packed(&packed));
    }

    #[divan::bench]
    fn sitemapd_on_a_broken_one(bencher: Bencher<'_, '_>) {
        let text = documents::dirty_sitemap();
        bench(bencher, text.len(), URLS, || ours(&mut text.as_bytes()));
    }

    #[divan::bench]
    fn bare_quick_xml_loop(bencher: Bencher<'_, '_>) {
        let text = documents::sitemap();
        bench(bencher, text.len(), URLS, || peers::bare_loop(&text));
    }

    #[divan::bench]
    fn strict_with_the_same_output(bencher: Bencher<'_, '_>) {
        let text = documents::sitemap();
        bench(bencher, text.len(), URLS, || peers::strict(&text));
    }

    #[divan::bench]
    fn crate_sitemaps(bencher: Bencher<'_, '_>) {
        let text = documents::sitemap();
        bench(bencher, text.len(), URLS, || peers::sitemaps(&text));
    }
}

mod feed {
    use super::{Bencher, ITEMS, bench, documents, ours, peers};

    #[divan::bench]
    fn rss_sitemapd(bencher: Bencher<'_, '_>) {
        let text = documents::rss();
        bench(bencher, text.len(), ITEMS, || ours(&mut text.as_bytes()));
    }

    #[divan::bench]
    fn rss_feed_rs(bencher: Bencher<'_, '_>) {
        let text = documents::rss();
        bench(bencher, text.len(), ITEMS, || peers::feed_rs(&text));
    }

    #[divan::bench]
    fn atom_sitemapd(bencher: Bencher<'_, '_>) {
        let text = documents::atom();
        bench(bencher, text.len(), ITEMS, || ours(&mut text.as_bytes()));
    }

    #[divan::bench]
    fn atom_feed_rs(bencher: Bencher<'_, '_>) {
        let text = documents::atom();
        bench(bencher, text.len(), ITEMS, || peers::feed_rs(&text));
    }
}
