//! What reading a document takes in memory, measured from outside.
//!
//! Each case runs in a process of its own and reads there what the kernel says
//! of it: the highest resident size ever reached, less the size when idle. No
//! input is held that the daemon would not hold; the last cases are the daemon
//! itself, and what its store takes is part of them. A release build reads 2 GiB
//! where a debug build reads 16 MiB: `cargo test --release --test memory -- --nocapture`
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
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sitemapd::diff::document::Collector;
use sitemapd::fetch::WireBody;
use sitemapd::fetch::body::Decoded;
use sitemapd::fetch::spool::Spool;
use sitemapd::parse::{Context, Item, Limits, Report, parse};
use url::Url;

const NAME: &str = "reading_takes_no_more_memory_than_promised_whatever_the_size";
const CASE: &str = "SITEMAPD_MEMORY_CASE";
const FILE: &str = "SITEMAPD_MEMORY_FILE";

const MB: u64 = 1_000_000;
/// Decoded bytes of an endless document.
const ENDLESS: u64 = if cfg!(debug_assertions) { 16 << 20 } else { 2 << 30 };
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

const CASES: [Case; 11] = [
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
        name: "reader alone, endless deletions under a long base",
        bound: 6 * MB,
        file: None,
        read: |_| stream(long_base(), long_deletion()),
    },
    Case {
        name: "from .gz, 50,000 URLs with all tags",
        bound: 16 * MB,
        file: Some(|| documents::gzip(documents::sitemap().as_bytes())),
        read: packed,
    },
    Case {
        name: "from .gz, 50 MiB in URLs of 1,000 bytes",
        bound: 16 * MB,
        file: Some(|| documents::gzip(long(ORIGIN).as_bytes())),
        read: |file| unpacked(file, &mut |_| {}),
    },
    Case {
        name: "from .gz, a bomb of twenty times the limit",
        bound: 16 * MB,
        file: Some(bomb),
        read: packed,
    },
    Case {
        name: "plain, 50 MiB in URLs of 1,000 bytes",
        bound: 16 * MB,
        file: Some(|| long(ORIGIN).into_bytes()),
        read: packed,
    },
    Case {
        name: "plain, 50,000 URLs with all tags",
        bound: 16 * MB,
        file: Some(|| documents::sitemap().into_bytes()),
        read: packed,
    },
];

/// What the daemon may take while it reads a sitemap for the first time and
/// writes 50,000 rows: the bound of reading, and the pages that its store keeps.
const DAEMON: u64 = 32 * MB;
/// Longest wait for the daemon to say something.
const PATIENCE: Duration = Duration::from_secs(120);

const ORIGIN: &str = "https://www.example.org/";
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

/// The body as a poll keeps it.
fn spooled(file: &Path) -> WireBody {
    let folder = file.parent().expect("it is in a folder");
    let mut body = Spool::new(folder);
    let mut file = fs::File::open(file).expect("the file of this case");
    let mut piece = vec![0; 64 * 1024];
    loop {
        match file.read(&mut piece).expect("readable") {
            0 => return body.finish(),
            n => body.write(&piece[..n]).expect("the folder is writable"),
        }
    }
}

/// The body as it came, unpacked and parsed; entries are let go.
fn unpacked(file: &Path, take: &mut dyn FnMut(&Item<'_>)) {
    let mut decoded = Decoded::new(spooled(file), &[], MAX_BODY_BYTES);
    let report = parsed(&mut decoded, Limits::default(), take);
    assert!(report.entries_total > 0, "something was listed");
    decoded.outcome();
}

/// As a poll reads: all entries are collected, so as to be compared.
fn packed(file: &Path) {
    let mut collector = Collector::new(1, jiff::Timestamp::UNIX_EPOCH);
    unpacked(file, &mut |item| {
        if let Item::Entry(entry) = item {
            collector.push(entry);
        }
    });
    assert!(!collector.finish().entries().is_empty(), "something was collected");
}

/// As much as a document may hold, in few and long URLs.
fn long(origin: &str) -> String {
    let entry = |n: usize| {
        let path = "a-very-long-path/".repeat(58);
        format!("<url><loc>{origin}{n}/{path}</loc></url>\n")
    };
    let mut text = String::from(HEAD);
    for n in 0.. {
        let next = entry(n);
        if text.len() + next.len() > 49 << 20 {
            break;
        }
        text.push_str(&next);
    }
    text + "</urlset>\n"
}

/// The start of a feed whose base is far longer than what stands in it.
fn long_base() -> &'static str {
    let base = "a-very-long-path/".repeat(4_000);
    format!("<feed xmlns=\"http://www.w3.org/2005/Atom\" xml:base=\"{ORIGIN}{base}\">").leak()
}

/// Two tombstones: one by its link, one by an id that is long.
fn long_deletion() -> &'static str {
    let id = "a-very-long-id/".repeat(60);
    format!(
        "<deleted-entry ref=\"a\" when=\"2026-11-21\"><link href=\"b\"/></deleted-entry>\
         <deleted-entry ref=\"{ORIGIN}{id}\" when=\"2026-11-21\"/>"
    )
    .leak()
}

/// Entries, and then a flood of blanks.
fn bomb() -> Vec<u8> {
    let size = usize::try_from(if cfg!(debug_assertions) { 64 << 20 } else { MAX_BODY_BYTES * 20 })
        .expect("an address");
    let mut text = format!("{HEAD}{}", ENTRY.repeat(1_000)).into_bytes();
    text.resize(size, b' ');
    documents::gzip(&text)
}

/// A figure of the kernel on a process, in bytes.
fn status(process: &str, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the kernel tells");
    let line = status.lines().find(|line| line.starts_with(key)).expect("the figure is there");
    let kib = line.split_ascii_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kib.expect("a number") * 1024
}

/// Reads one case in this process and says how high it went.
fn measure(case: &Case) {
    // Nothing was read yet: the code that is paged in counts as well.
    let idle = status("self", "VmRSS:");
    (case.read)(&env::var_os(FILE).map(PathBuf::from).unwrap_or_default());
    println!("peak={}", status("self", "VmHWM:") - idle);
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

/// A document made for the origin that serves it.
type Made = fn(&str) -> Vec<u8>;

/// Serves one document, made for its origin, and 404 for all else.
fn serve(path: &'static str, document: Made) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let document = document(&format!("http://127.0.0.1:{port}/"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let body = if line.contains(path) { &document[..] } else { b"" };
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    port
}

/// The daemon, ended with its handle.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the daemon takes over idle for the first read of a sitemap.
fn daemon_peak(document: Made) -> u64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = serve("/sitemap.xml", document);
    let config = folder.path().join("config.toml");
    let text = format!(
        "[daemon]\ndata_dir = \"data\"\n[listen]\napi = \"127.0.0.1:0\"\n\
         [fetch]\nallow = [\"127.0.0.1:{port}\"]\n\
         [[site]]\nname = \"site\"\nurl = \"http://127.0.0.1:{port}/\"\n\
         sitemaps = [\"http://127.0.0.1:{port}/sitemap.xml\"]\nhost_delay = \"200ms\"\n"
    );
    fs::write(&config, text).expect("the folder is writable");
    let mut child = Command::new(env!("CARGO_BIN_EXE_sitemapd"))
        .args(["run", "--config"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the daemon starts");
    let log = BufReader::new(child.stderr.take().expect("it is piped"));
    let daemon = Daemon(child);
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|l| sender.send(l)));
    let process = daemon.0.id().to_string();
    let mut idle: Option<u64> = None;
    while let Ok(line) = lines.recv_timeout(PATIENCE) {
        if line.contains("robots.txt") && line.contains("poll ") {
            idle.get_or_insert_with(|| status(&process, "VmRSS:"));
        }
        if line.contains("sitemap.xml") && line.contains("poll ") {
            let took_all = line.contains("result=\"changed\"") && line.contains(" rejected=0 ");
            assert!(took_all, "{line}");
            return status(&process, "VmHWM:") - idle.expect("robots.txt comes first");
        }
    }
    panic!("the daemon ended, or took longer than {PATIENCE:?}");
}

fn usual(origin: &str) -> String {
    documents::sitemap().replace(ORIGIN, origin)
}

fn show(name: &str, peak: u64, bound: u64) {
    let (whole, tenth) = (peak / MB, peak % MB / (MB / 10));
    println!("{name:<48} {whole:>3}.{tenth} MB of {}", bound / MB);
    assert!(peak <= bound, "{name}: {peak} bytes");
}

#[test]
fn the_daemon_takes_no_more_memory_for_a_large_document_than_promised() {
    let cases: [(&str, Made); 3] = [
        ("daemon, 50,000 URLs with all tags", |origin| usual(origin).into_bytes()),
        ("daemon, the same from .gz", |origin| documents::gzip(usual(origin).as_bytes())),
        ("daemon, 50 MiB in URLs of 1,000 bytes", |origin| long(origin).into_bytes()),
    ];
    for (name, document) in cases {
        show(name, daemon_peak(document), DAEMON);
    }
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
        show(case.name, peak, case.bound);
    }
}
