//! What reading a document takes in memory, measured from outside.
//!
//! Each case runs in a process of its own and reads there what the kernel says
//! of it: the highest resident size ever reached, less the size when idle. No
//! input is held that the daemon would not hold. A release build reads 2 GiB
//! where a debug build reads 64 MiB: `cargo test --release --test memory -- --nocapture`
//! gives the figures of `docs/PERFORMANCE.md`.

#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test binary fails loudly and prints what it measured"
)]

#[path = "../benches/parse/documents.rs"]
#[allow(dead_code, reason = "only some of the documents of the benches are read here")]
mod documents;

use std::env;
use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use sitemapd::diff::document::Collector;
use sitemapd::fetch::body::Decoded;
use sitemapd::parse::{Context, Item, Limits, Report, parse};
use url::Url;

const NAME: &str = "reading_takes_no_more_memory_than_promised_whatever_the_size";
const CASE: &str = "SITEMAPD_MEMORY_CASE";
const FILE: &str = "SITEMAPD_MEMORY_FILE";

const MB: u64 = 1_000_000;
/// Decoded bytes of an endless document.
const ENDLESS: u64 = if cfg!(debug_assertions) { 64 << 20 } else { 2 << 30 };
/// The daemon's limit on decoded bytes.
const MAX_BODY_BYTES: u64 = 50 << 20;

/// What is read, and what that may take.
struct Case {
    name: &'static str,
    /// Bytes over idle.
    bound: u64,
    /// The file that it reads, if it reads one.
    file: Option<fn() -> Vec<u8>>,
    read: fn(&Path),
}

const CASES: [Case; 7] = [
    Case {
        name: "reader alone, endless sitemap",
        bound: 4 * MB,
        file: None,
        read: |_| stream(HEAD, ENTRY),
    },
    Case {
        name: "reader alone, endless RSS feed",
        bound: 4 * MB,
        file: None,
        read: |_| stream("<rss><channel>", ITEM),
    },
    Case {
        name: "reader alone, endless text file",
        bound: 4 * MB,
        file: None,
        read: |_| stream("", "https://www.example.org/a-rather-usual-title-of-an-article\n"),
    },
    Case {
        name: "reader alone, a tag that never ends",
        bound: 4 * MB,
        file: None,
        read: |_| stream("<urlset><url a=\"", "never ending"),
    },
    Case {
        name: "reader alone, a section that never ends",
        bound: 4 * MB,
        file: None,
        read: |_| stream("<urlset><url><loc><![CDATA[", "never ending </loc> "),
    },
    Case {
        name: "from .gz, 50,000 URLs with all tags",
        bound: 16 * MB,
        file: Some(|| documents::gzip(documents::sitemap().as_bytes())),
        read: packed,
    },
    Case {
        name: "from .gz, a bomb of twenty times the limit",
        bound: 16 * MB,
        file: Some(bomb),
        read: packed,
    },
];

const HEAD: &str = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n";
const ENTRY: &str = "  <url>\n    <loc>https://www.example.org/a-rather-usual-title-of-an-article</loc>\n    \
     <lastmod>2026-11-21T08:15:00+00:00</lastmod>\n    <changefreq>weekly</changefreq>\n    \
     <priority>0.5</priority>\n  </url>\n";
const ITEM: &str = "<item><title>A title</title><link>https://www.example.org/a?b=1&amp;c=2</link>\
     <pubDate>Sat, 21 Nov 2026 08:15:00 GMT</pubDate><description><![CDATA[<p>Text of it</p>]]></description></item>\n";

/// A document of a head and one piece again and again.
struct Endless {
    head: &'static [u8],
    piece: &'static [u8],
    /// Bytes of the piece that were read already.
    at: usize,
    left: u64,
}

impl Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let from = if self.head.is_empty() { &self.piece[self.at..] } else { self.head };
        // A piece at a time, and so never whole buffers: a slow network.
        let n = from.len().min(buf.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        buf[..n].copy_from_slice(&from[..n]);
        if self.head.is_empty() {
            self.at = (self.at + n) % self.piece.len();
        } else {
            self.head = &self.head[n..];
        }
        self.left -= n as u64;
        Ok(n)
    }
}

fn parsed(document: &mut dyn Read, limits: Limits, take: &mut dyn FnMut(&Item<'_>)) -> Report {
    let base = Url::parse("https://www.example.org/sitemap.xml").expect("a URL");
    let context = Context { base: &base, content_type: None, limits };
    parse(document, &context, &mut |item| {
        take(&item);
        ControlFlow::Continue(())
    })
}

fn stream(head: &'static str, piece: &'static str) {
    let limits = Limits { max_urls: usize::MAX, ..Limits::default() };
    let (head, piece) = (head.as_bytes(), piece.as_bytes());
    let mut document = Endless { head, piece, at: 0, left: ENDLESS };
    let report = parsed(&mut document, limits, &mut |_| {});
    assert_eq!(report.bytes, ENDLESS, "read to its end");
}

/// As a poll reads: the body as it came, unpacked, parsed, its entries collected.
fn packed(file: &Path) {
    let body = Bytes::from(fs::read(file).expect("the file of this case"));
    let mut decoded = Decoded::new(body, &[], MAX_BODY_BYTES);
    let mut collector = Collector::new(1, jiff::Timestamp::UNIX_EPOCH);
    parsed(&mut decoded, Limits::default(), &mut |item| {
        if let Item::Entry(entry) = item {
            collector.push(entry);
        }
    });
    decoded.outcome();
    assert!(!collector.finish().entries().is_empty(), "something was listed");
}

/// Entries, and then a flood of blanks.
fn bomb() -> Vec<u8> {
    let size = usize::try_from(if cfg!(debug_assertions) { 64 << 20 } else { MAX_BODY_BYTES * 20 })
        .expect("an address");
    let mut text = format!("{HEAD}{}", ENTRY.repeat(1_000)).into_bytes();
    text.resize(size, b' ');
    documents::gzip(&text)
}

/// A figure of the kernel on this process, in bytes.
fn status(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find(|line| line.starts_with(key)).expect("the figure is there");
    let kib = line.split_ascii_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kib.expect("a number") * 1024
}

/// Reads one case in this process and says how high it went.
fn measure(case: &Case) {
    // What is set up once in a process is no cost of a document.
    parsed(&mut ENTRY.as_bytes(), Limits::default(), &mut |_| {});
    let idle = status("VmRSS:");
    (case.read)(&env::var_os(FILE).map(PathBuf::from).unwrap_or_default());
    println!("peak={}", status("VmHWM:") - idle);
}

fn peak_of(case: &Case, folder: &Path) -> u64 {
    let file = folder.join("document.gz");
    if let Some(make) = case.file {
        fs::write(&file, make()).expect("the temporary folder is writable");
    }
    let child = Command::new(env::current_exe().expect("this test is a program"))
        .args(["--exact", NAME, "--nocapture"])
        .env(CASE, case.name)
        .env(FILE, &file)
        .output()
        .expect("this test can be run again");
    let out = String::from_utf8_lossy(&child.stdout);
    let peak = out.lines().find_map(|line| line.split_once("peak=")?.1.trim().parse().ok());
    peak.unwrap_or_else(|| panic!("{}: {out}{}", case.name, String::from_utf8_lossy(&child.stderr)))
}

#[test]
fn reading_takes_no_more_memory_than_promised_whatever_the_size() {
    if let Ok(name) = env::var(CASE) {
        return measure(CASES.iter().find(|case| case.name == name).expect("a case"));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    println!("endless is {} MiB here", ENDLESS >> 20);
    for case in &CASES {
        let peak = peak_of(case, folder.path());
        let (whole, tenth) = (peak / MB, peak % MB / (MB / 10));
        println!("{:<44} {whole:>3}.{tenth} MB of {}", case.name, case.bound / MB);
        assert!(peak <= case.bound, "{}: {peak} bytes", case.name);
    }
}
