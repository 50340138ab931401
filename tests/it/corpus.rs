//! The conformance corpora: every document of both, by their manifests.
//!
//! Runs when `SITEMAPD_CORPUS` names the folder that holds `sitemaps` and
//! `feeds`; else it says so and passes. A value that a manifest lists under
//! `accept` or `alt_loc` is as right as the expected one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sitemapd::date;
use sitemapd::model::{ChangeFreq, DocumentKind, Lastmod, Priority};
use sitemapd::parse::{Context, Item, Limits, Report, parse};
use url::Url;

/// Cases held to be wrong, each with its reason in `docs/FORMATS.md`.
const DISPUTED: [&str; 0] = [];

/// An entry as it came out, owned.
#[derive(Debug, Default)]
struct Listed {
    loc: String,
    lastmod: Option<Lastmod>,
    updated: Option<Lastmod>,
    published: Option<Lastmod>,
    changefreq: Option<&'static str>,
    priority: Option<Priority>,
}

/// All that a document gave.
#[derive(Debug)]
struct Outcome {
    report: Report,
    entries: Vec<Listed>,
    sitemaps: Vec<Listed>,
    /// Images, videos, news, alternates.
    extensions: [usize; 4],
}

#[test]
fn every_case_of_the_sitemap_corpus_is_read_as_its_manifest_says() {
    let Some(folder) = folder("sitemaps") else { return };
    run(&folder, check_sitemap);
}

#[test]
fn every_case_of_the_feed_corpus_is_read_as_its_manifest_says() {
    let Some(folder) = folder("feeds") else { return };
    run(&folder, check_feed);
}

#[test]
fn every_date_vector_is_read_as_it_says() {
    let Some(folder) = folder("sitemaps") else { return };
    let mut wrong = Vec::new();
    for vector in lines(&folder.join("lastmod-vectors.jsonl")) {
        let input = vector["input"].as_str().unwrap_or_default();
        let read = if vector["style"] == "rss" { date::feed } else { date::lastmod };
        let want = vector["expect"].as_str().map(|at| at.parse().expect("an instant"));
        let found = read(input).map(|date| date.at);
        if found != want {
            wrong.push(format!("{input:?}: {found:?}, not {want:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn folder(name: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("SITEMAPD_CORPUS") else {
        println!("SKIPPED: SITEMAPD_CORPUS is not set, so the corpus was not read");
        return None;
    };
    Some(Path::new(&root).join(name))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a manifest");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Runs the cases of a manifest and prints a table by kind.
fn run(folder: &Path, check: fn(&Value, &Outcome) -> Vec<String>) {
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut failures = Vec::new();
    for case in lines(&folder.join("manifest.jsonl")) {
        let kind = case["kind"].as_str().unwrap_or_default().to_owned();
        let file = case["file"].as_str().unwrap_or_default();
        let outcome = read(&folder.join(file), &case);
        let wrong = check(&case, &outcome);
        let row = table.entry(kind.clone()).or_default();
        row.1 += 1;
        if wrong.is_empty() || DISPUTED.contains(&file) {
            row.0 += 1;
        } else {
            failures.push(format!("{file} ({kind}): {}", wrong.join("; ")));
        }
        let found = outcome.report.kind.as_str();
        if !same_kind(&kind, outcome.report.kind) {
            println!("note: {file} is {kind} in the manifest and {found} here");
        }
    }
    println!("{:<16} {:>5} of", "kind", "right");
    for (kind, (right, all)) in &table {
        println!("{kind:<16} {right:>5} {all:>4}");
    }
    for failure in &failures {
        println!("WRONG {failure}");
    }
    assert!(failures.is_empty(), "{} cases are wrong, listed above", failures.len());
}

fn same_kind(manifest: &str, found: DocumentKind) -> bool {
    match manifest {
        "not-a-sitemap" | "not-a-feed" => found == DocumentKind::Unsupported,
        "json" => found == DocumentKind::JsonFeed,
        // The sitemap manifest does not tell RSS 1.0 from the others.
        "rss" => matches!(found, DocumentKind::Rss | DocumentKind::Rdf),
        word => found.as_str() == word,
    }
}

fn read(path: &Path, case: &Value) -> Outcome {
    let bytes = fs::read(path).expect("a file of the corpus");
    let mut body = decompress(bytes);
    let base = Url::parse(case["url"].as_str().unwrap_or_default()).expect("a URL");
    let ctx = Context {
        base: &base,
        content_type: case["content_type"].as_str(),
        limits: Limits::default(),
    };
    let (mut entries, mut sitemaps, mut extensions) = (Vec::new(), Vec::new(), [0; 4]);
    let report = parse(&mut body, &ctx, &mut |item| {
        match item {
            Item::Entry(e) => {
                if let Some(x) = e.extensions {
                    let counts = [x.images.len(), x.videos.len(), x.news.len(), x.alternates.len()];
                    extensions.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
                }
                entries.push(Listed {
                    loc: e.loc.to_owned(),
                    lastmod: e.lastmod,
                    updated: e.updated,
                    published: e.published,
                    changefreq: e.changefreq.map(ChangeFreq::as_str),
                    priority: e.priority,
                });
            }
            Item::Deleted(_) => {}
            Item::Sitemap(s) => {
                sitemaps.push(Listed {
                    loc: s.loc.to_owned(),
                    lastmod: s.lastmod,
                    ..Listed::default()
                });
            }
        }
        ControlFlow::Continue(())
    });
    Outcome { report, entries, sitemaps, extensions }
}

/// A body whose reader fails where the compressed data does.
struct Body {
    bytes: io::Cursor<Vec<u8>>,
    failure: Option<io::Error>,
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.bytes.read(buf)? {
            0 => self.failure.take().map_or(Ok(0), Err),
            n => Ok(n),
        }
    }
}

/// Undoes gzip, told by its magic bytes; junk after the last member is let be.
fn decompress(bytes: Vec<u8>) -> Body {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Body { bytes: io::Cursor::new(bytes), failure: None };
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut decoder = async_compression::tokio::bufread::GzipDecoder::new(bytes.as_slice());
        decoder.multiple_members(true);
        let mut out = Vec::new();
        let mut chunk = vec![0; 16 * 1024];
        let failure = loop {
            match tokio::io::AsyncReadExt::read(&mut decoder, &mut chunk).await {
                Ok(0) => break None,
                Ok(n) => out.extend_from_slice(&chunk[..n]),
                Err(e) => break Some(e),
            }
        };
        Body { bytes: io::Cursor::new(out), failure }
    })
}

/// Are these the same URL in the spelling of the WHATWG?
fn same_url(a: &str, b: &str) -> bool {
    let normal = |u: &str| Url::parse(u).map_or_else(|_| u.trim().to_owned(), String::from);
    normal(a) == normal(b)
}

fn accepts(case: &Value, field: &str, found: usize) -> bool {
    let expected = &case["expect"][field];
    let alternatives = case["accept"][field].as_array();
    expected.is_null()
        || expected == found
        || alternatives.is_some_and(|list| list.iter().any(|n| n == found))
}

fn check_sitemap(case: &Value, got: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    let (urls, sitemaps) = (got.entries.len(), got.sitemaps.len());
    let [images, videos, news, alternates] = got.extensions;
    let counts = [
        ("urls", urls),
        ("sitemaps", sitemaps),
        ("images", images),
        ("videos", videos),
        ("news", news),
        ("alternates", alternates),
    ];
    for (field, found) in counts {
        if !accepts(case, field, found) {
            wrong.push(format!("{field} {found}, not {}", case["expect"][field]));
        }
    }
    let all: Vec<&Listed> = if got.report.kind == DocumentKind::Mixed || urls > 0 {
        got.entries.iter().collect()
    } else {
        got.sitemaps.iter().collect()
    };
    let as_expected = case["expect"]["urls"].as_u64().is_none_or(|n| n == urls as u64)
        && case["expect"]["sitemaps"].as_u64().is_none_or(|n| n == sitemaps as u64);
    if let Some(locs) = case["expect"]["locs"].as_array().filter(|_| as_expected) {
        let want: Vec<&str> = locs.iter().filter_map(Value::as_str).collect();
        let same =
            want.len() == all.len() && want.iter().zip(&all).all(|(w, l)| same_url(w, &l.loc));
        if !same {
            let found: Vec<&str> = all.iter().map(|l| l.loc.as_str()).collect();
            wrong.push(format!("locs {found:?}, not {want:?}"));
        }
    }
    for not in case["expect"]["loc_not"].as_array().into_iter().flatten() {
        if all.iter().any(|l| same_url(&l.loc, not.as_str().unwrap_or_default())) {
            wrong.push(format!("lists {not}"));
        }
    }
    if let (Some(want), true) = (case["expect"].get("first"), as_expected) {
        match all.first() {
            Some(first) => wrong.extend(check_first(want, first)),
            None if want["loc"].is_string() => wrong.push("nothing listed".to_owned()),
            None => {}
        }
    }
    wrong
}

fn check_first(want: &Value, first: &Listed) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(loc) = want["loc"].as_str().filter(|loc| !same_url(loc, &first.loc)) {
        wrong.push(format!("first loc {:?}, not {loc:?}", first.loc));
    }
    let found = first.lastmod.or(first.updated).or(first.published);
    if let Some(text) = want["lastmod"].as_str() {
        let expected = date::lastmod(text);
        let published = first.published.map(|d| d.at);
        if expected.map(|d| d.at) != found.map(|d| d.at) && expected.map(|d| d.at) != published {
            wrong.push(format!("first lastmod {found:?}, not {text:?}"));
        }
    }
    if let Some(text) = want["changefreq"].as_str() {
        let expected = text.trim().to_lowercase();
        let known = first.changefreq == Some(expected.as_str());
        if !known && expected.parse::<ChangeFreq>().is_ok() {
            wrong.push(format!("first changefreq {:?}, not {text:?}", first.changefreq));
        }
    }
    if let Some(text) = want["priority"].as_str() {
        let expected = text.parse().ok().and_then(Priority::from_f64);
        if expected.is_some() && expected != first.priority {
            wrong.push(format!("first priority {:?}, not {text:?}", first.priority));
        }
    }
    wrong
}

fn check_feed(case: &Value, got: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    let want = &case["expect"];
    let count = got.entries.len();
    if want["entries"] != count {
        wrong.push(format!("entries {count}, not {}", want["entries"]));
    }
    let Some(first) = got.entries.first() else { return wrong };
    let mut locs = want["first"]["loc"]
        .as_str()
        .into_iter()
        .chain(want["alt_loc"].as_array().into_iter().flatten().filter_map(Value::as_str));
    if !locs.any(|loc| same_url(loc, &first.loc)) {
        wrong.push(format!("first loc {:?}, not {}", first.loc, want["first"]["loc"]));
    }
    let second = |found: Option<Lastmod>| found.map(|d| d.at.as_second());
    for (field, found) in [("updated", first.updated), ("published", first.published)] {
        let expected = want["first"][field].as_str();
        let expected =
            expected.map(|at| at.parse::<jiff::Timestamp>().expect("an instant").as_second());
        if second(found) != expected {
            wrong.push(format!(
                "first {field} {:?}, not {}",
                found.map(|d| d.to_string()),
                want["first"][field]
            ));
        }
    }
    wrong
}
