//! `sitemapd import`: fetches of the past, so that a crawl log trains the model.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::humane::{self, count};
use super::order::{Order, web_url};
use super::output::Output;
use super::source_of_truth::SourceOfTruth;
use super::{Failure, Options};
use crate::store::PastFetch;

/// Fetches handed over at once; the API takes 10,000.
const BATCH: usize = 5_000;
/// Bytes of one line; a URL and a hash need far less.
const MAX_LINE: u64 = 64 * 1024;

/// Which fetches.
#[derive(Debug, clap::Args)]
#[command(after_long_help = FORMAT)]
pub struct Args {
    /// JSON lines of past fetches, oldest first; - reads standard input
    file: PathBuf,
    /// The crawl whose URLs they are of
    #[arg(long, default_value = "default")]
    crawl: String,
}

const FORMAT: &str = "Each line is one fetch: {\"url\": \"https://example.org/a\", \
\"time\": \"2026-11-21T08:30:00Z\", \"changed\": true}. Instead of changed a hash may stand (and \
hash_kind): another hash than at the fetch before is a change. Other fields are passed over. A \
fetch that is not newer than what is known of its URL changes nothing; URLs that no source lists \
are counted and not taken in. The lines that `sitemapd export` writes are taken, too: of each URL \
the last fetch; those of URLs that were never fetched are passed over.";

/// One line, as far as it is looked at.
#[derive(Debug, Deserialize)]
struct Line {
    url: String,
    time: Option<Timestamp>,
    changed: Option<bool>,
    hash: Option<String>,
    hash_kind: Option<String>,
    /// In a line of an export these stand for `time`, null where there was no
    /// fetch, and `hash`. In other logs they may be anything.
    #[serde(default)]
    fetched_at: Field,
    #[serde(default)]
    content_hash: Value,
}

/// A field that may be missing, or null, which is not the same.
#[derive(Debug, Default)]
enum Field {
    #[default]
    Missing,
    There(Value),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self::There)
    }
}

/// Takes them in.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let is_stdin = args.file.as_os_str() == "-";
    let reader: Box<dyn Read + Send> = if is_stdin {
        Box::new(std::io::stdin())
    } else {
        let file = std::fs::File::open(&args.file);
        Box::new(file.with_context(|| args.file.display().to_string())?)
    };
    let mut lines = Lines { reader: BufReader::new(reader), number: 0, unfetched: 0 };
    let mut sums = [("taken", 0), ("unknown", 0), ("ignored", 0)];
    loop {
        let fetches = lines.batch()?;
        if fetches.is_empty() {
            break;
        }
        let order = Order::Import { crawl: args.crawl.clone(), fetches };
        let answer = truth.order(&order).await?;
        for (name, sum) in &mut sums {
            *sum += answer.get(*name).and_then(Value::as_u64).unwrap_or(0);
        }
    }
    let [(_, taken), (_, unknown), (_, ignored)] = sums;
    if options.json {
        let sums = json!({
            "taken": taken, "unknown": unknown, "ignored": ignored, "unfetched": lines.unfetched,
        });
        return Ok(out.json(&sums)?);
    }
    let mut told = format!(
        "took in {}; {} of URLs that no source lists, {} not newer than what was known",
        count(taken, "fetch", "fetches"),
        humane::number(unknown),
        humane::number(ignored)
    );
    if lines.unfetched > 0 {
        told += &format!(", {} without a fetch", count(lines.unfetched, "line", "lines"));
    }
    Ok(out.line(&told)?)
}

/// A log, line by line.
struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    number: u64,
    /// Lines that tell of no fetch.
    unfetched: u64,
}

impl Lines {
    fn batch(&mut self) -> Result<Vec<PastFetch>, Failure> {
        let mut fetches = Vec::new();
        while fetches.len() < BATCH
            && let Some(line) = self.next()?
        {
            if !line.trim().is_empty() {
                let fetch = read(&line).map_err(|why| {
                    Failure::Runtime(anyhow!(
                        "line {}: {why}; nothing after it was read",
                        self.number
                    ))
                })?;
                match fetch {
                    Some(fetch) => fetches.push(fetch),
                    None => self.unfetched += 1,
                }
            }
        }
        Ok(fetches)
    }

    fn next(&mut self) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        self.number += 1;
        if read as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            let number = self.number;
            return Err(Failure::Runtime(anyhow!("line {number} is longer than {MAX_LINE} bytes")));
        }
        Ok((read > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
    }
}

/// The fetch that a line tells of, if it tells of one.
fn read(line: &str) -> Result<Option<PastFetch>, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let url = web_url(&line.url).map_err(|error| error.to_string())?;
    let (at, hash) = match (line.time, line.fetched_at) {
        (Some(at), _) => (at, line.hash),
        (None, Field::There(Value::Null)) => return Ok(None),
        (None, Field::There(at)) => {
            let at = serde_json::from_value(at).map_err(|error| format!("fetched_at: {error}"))?;
            (at, line.content_hash.as_str().map(str::to_owned))
        }
        (None, Field::Missing) => return Err("missing field `time`".to_owned()),
    };
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(Some(PastFetch {
        url,
        at,
        changed: line.changed,
        content_hash: some(hash),
        hash_kind: some(line.hash_kind),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_log_may_say_more_than_is_asked() {
        let line = r#"{"url": "https://a.test/", "time": "2026-11-21T08:30:00Z", "hash": "1", "bytes": 7}"#;
        let fetch = read(line).expect("it is right").expect("a fetch");
        assert_eq!((fetch.changed, fetch.content_hash.as_deref()), (None, Some("1")));
    }

    #[test]
    fn a_line_of_an_export_is_a_fetch_if_there_was_one() {
        let at = "\"2026-11-21T08:30:00Z\"";
        for (fields, expected) in [
            (format!("\"fetched_at\": {at}, \"content_hash\": \"1\""), Ok(Some(Some("1")))),
            (format!("\"fetched_at\": {at}, \"content_hash\": null"), Ok(Some(None))),
            ("\"fetched_at\": null".to_owned(), Ok(None)),
            (format!("\"time\": {at}, \"fetched_at\": 7, \"content_hash\": 7"), Ok(Some(None))),
            (
                format!("\"time\": {at}, \"hash\": \"2\", \"content_hash\": \"1\""),
                Ok(Some(Some("2"))),
            ),
            ("\"changed\": true".to_owned(), Err(())),
            ("\"fetched_at\": \"yesterday\"".to_owned(), Err(())),
        ] {
            let line = format!("{{\"url\": \"https://a.test/\", {fields}}}");
            let told = read(&line).map_err(|_| ());
            let told =
                told.as_ref().map(|fetch| fetch.as_ref().map(|it| it.content_hash.as_deref()));
            assert_eq!(told, expected.as_ref().map(|it| *it), "{line}");
        }
    }

    #[test]
    fn a_wrong_line_is_told_by_its_number() {
        let log =
            "{\"url\": \"https://a.test/\", \"time\": \"2026-11-21T08:30:00Z\"}\n\n{\"url\": 3}\n";
        let reader: Box<dyn Read + Send> = Box::new(log.as_bytes());
        let told = Lines { reader: BufReader::new(reader), number: 0 }.batch();
        let told = told.expect_err("a wrong line").to_string();
        assert!(told.starts_with("line 3: "), "{told}");
    }
}
