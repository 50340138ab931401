//! `sitemapd import`: fetches of the past, so that a crawl log trains the model.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::humane::{self, count};
use super::order::Order;
use super::output::Output;
use super::source_of_truth::SourceOfTruth;
use super::{Failure, Options};
use crate::model::Outcome;
use crate::serve::wire::queue::check_hash;
use crate::serve::wire::web_url;
use crate::store::PastFetch;

/// Fetches handed over at once; the API takes 10,000.
const BATCH: usize = 5_000;
/// Bytes of their texts from which on no more are gathered. As JSON, where a control
/// character takes six, they stay below the 16 MiB that the API takes.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of one line: a line of an export has all that sources say of a URL, its
/// thousands of images too.
const MAX_LINE: u64 = 16 * 1024 * 1024;

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
the last fetch; those of URLs that were never fetched, or were last blocked, gone or not to be \
had, are passed over.";
/// Outcomes of an export without a look at a page: what its hash says is of a fetch before.
const NO_LOOK: [Outcome; 3] = [Outcome::Failed, Outcome::Blocked, Outcome::Gone];

/// One line, as far as it is looked at.
#[derive(Debug, Deserialize)]
struct Line {
    url: String,
    time: Option<Timestamp>,
    changed: Option<bool>,
    hash: Option<String>,
    hash_kind: Option<String>,
    /// In a line of an export these stand for `time`, null where there was no
    /// fetch, `hash`, and what came of it. In other logs they may be anything.
    #[serde(default)]
    fetched_at: Field,
    #[serde(default)]
    content_hash: Value,
    #[serde(default)]
    outcome: Value,
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
    let mut sums = Sums::default();
    loop {
        let unfetched = lines.unfetched;
        let Batch { fetches, first, wrong } = lines.batch();
        let is_last = fetches.is_empty();
        if !is_last {
            let order = Order::Import { crawl: args.crawl.clone(), fetches };
            let answer = truth.order(&order).await;
            let answer = answer.map_err(|failure| match failure {
                Failure::Runtime(_) if first > 1 => {
                    let told = sums.in_words(unfetched);
                    Failure::Runtime(anyhow!(
                        "lines {first} to {}: {failure}; of the lines before them {told}; to \
                         import all of it again does no harm",
                        lines.number
                    ))
                }
                other => other,
            })?;
            sums.add(&answer);
        }
        if let Some(why) = wrong {
            let told = sums.in_words(lines.unfetched);
            return Err(Failure::Runtime(anyhow!(
                "{why}; of the lines before it {told}; nothing after it was read"
            )));
        }
        if is_last {
            break;
        }
    }
    if options.json {
        return Ok(out.json(&sums.as_json(lines.unfetched))?);
    }
    Ok(out.line(&sums.in_words(lines.unfetched))?)
}

/// What became of fetches so far.
#[derive(Debug, Default)]
struct Sums {
    taken: u64,
    unknown: u64,
    ignored: u64,
}

impl Sums {
    fn add(&mut self, answer: &Value) {
        let of = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.taken += of("taken");
        self.unknown += of("unknown");
        self.ignored += of("ignored");
    }

    fn as_json(&self, unfetched: u64) -> Value {
        let Self { taken, unknown, ignored } = self;
        json!({ "taken": taken, "unknown": unknown, "ignored": ignored, "unfetched": unfetched })
    }

    fn in_words(&self, unfetched: u64) -> String {
        let unfetched = match unfetched {
            0 => String::new(),
            some => format!(", {} without a look at a page", count(some, "line", "lines")),
        };
        format!(
            "took in {}; {} of URLs that no source lists, {} not past or not newer than what was known{unfetched}",
            count(self.taken, "fetch", "fetches"),
            humane::number(self.unknown),
            humane::number(self.ignored)
        )
    }
}

/// A log, line by line.
struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    number: u64,
    /// Lines that tell of no fetch, or of none that saw a page.
    unfetched: u64,
}

/// Fetches that are handed over at once.
#[derive(Debug)]
struct Batch {
    fetches: Vec<PastFetch>,
    /// The line that they begin at.
    first: u64,
    /// What is wrong with the line after them, if that is why there are no more.
    wrong: Option<String>,
}

impl Lines {
    /// The next fetches.
    fn batch(&mut self) -> Batch {
        let mut batch = Batch { fetches: Vec::new(), first: self.number + 1, wrong: None };
        let mut bytes = 0;
        while batch.fetches.len() < BATCH && bytes < BATCH_BYTES {
            match self.fetch() {
                Ok(Some(fetch)) => {
                    bytes += bytes_of(&fetch);
                    batch.fetches.push(fetch);
                }
                Ok(None) => break,
                Err(why) => {
                    batch.wrong = Some(format!("line {}: {why}", self.number));
                    break;
                }
            }
        }
        batch
    }

    /// The next fetch that a line tells of.
    fn fetch(&mut self) -> Result<Option<PastFetch>, String> {
        while let Some(line) = self.next()? {
            if line.trim().is_empty() {
                continue;
            }
            match read(&line)? {
                Some(fetch) => return Ok(Some(fetch)),
                None => self.unfetched += 1,
            }
        }
        Ok(None)
    }

    fn next(&mut self) -> Result<Option<String>, String> {
        let mut line = Vec::new();
        self.number += 1;
        let read = self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(|error| error.to_string())?;
        if read as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            return Err(format!("it is longer than {MAX_LINE} bytes"));
        }
        if read == 0 {
            self.number -= 1;
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }
}

/// The fetch that a line tells of, if it tells of one.
fn read(line: &str) -> Result<Option<PastFetch>, String> {
    let line: Line = serde_json::from_str(line)
        .map_err(|error| error.to_string().replace(" at line 1 column ", " at column "))?;
    let url = url(&line.url)?;
    let (at, hash) = match (line.time, line.fetched_at) {
        (Some(at), _) => (at, line.hash),
        (None, Field::There(Value::Null)) => return Ok(None),
        (None, Field::There(_)) if NO_LOOK.iter().any(|no| line.outcome == no.as_str()) => {
            return Ok(None);
        }
        (None, Field::There(at)) => {
            let at = serde_json::from_value(at).map_err(|error| format!("fetched_at: {error}"))?;
            (at, line.content_hash.as_str().map(str::to_owned))
        }
        (None, Field::Missing) => return Err("missing field `time`".to_owned()),
    };
    let some = |name, text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        check_hash(name, text.as_deref()).map_err(|refused| in_words(refused.detail()))?;
        Ok::<_, String>(text)
    };
    Ok(Some(PastFetch {
        url,
        at,
        changed: line.changed,
        content_hash: some("hash", hash)?,
        hash_kind: some("hash_kind", line.hash_kind)?,
    }))
}

/// A URL that the API takes, as it is sent there: escapes have made it longer. One
/// that it does not would cost all that are sent together with it.
fn url(text: &str) -> Result<Url, String> {
    let url = web_url("url", text).and_then(|url| web_url("url", url.as_str()));
    url.map_err(|refused| in_words(refused.detail()))
}

/// A sentence of the API within one of ours.
fn in_words(sentence: &str) -> String {
    humane::safe(sentence.trim_end_matches('.'))
}

/// Bytes of the texts of a fetch.
fn bytes_of(fetch: &PastFetch) -> usize {
    let hashes = [&fetch.content_hash, &fetch.hash_kind];
    fetch.url.as_str().len() + hashes.into_iter().flatten().map(String::len).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::order::Call;

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
            (
                format!("\"fetched_at\": {at}, \"content_hash\": \"1\", \"outcome\": \"failed\""),
                Ok(None),
            ),
            (format!("\"fetched_at\": {at}, \"outcome\": \"gone\""), Ok(None)),
            (
                format!("\"time\": {at}, \"hash\": \"2\", \"outcome\": \"failed\""),
                Ok(Some(Some("2"))),
            ),
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

    fn lines(log: impl Into<Vec<u8>>) -> Lines {
        let reader: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(log.into()));
        Lines { reader: BufReader::new(reader), number: 0, unfetched: 0 }
    }

    #[test]
    fn a_wrong_line_is_told_by_its_number() {
        let good = "{\"url\": \"https://a.test/\", \"time\": \"2026-11-21T08:30:00Z\"}";
        let with = |fields: &str| good.replacen('{', &format!("{{{fields}, "), 1);
        let hash = format!("\"hash\": \"{}\"", "é".repeat(129));
        let kind = format!("\"hash_kind\": \"{}\"", "k".repeat(129));
        let long = good.replace("a.test/", &format!("a.test/{}", "é".repeat(20_000)));
        for (wrong, told) in [
            ("{\"url\": 3}".to_owned(), "invalid type"),
            (with(&hash), "hash is longer than 128 characters"),
            (with(&kind), "hash_kind is longer than 128 characters"),
            (long, "url is longer than 65,536 characters"),
            (good.replace("a.test", "me:s3cret@a.test"), "url holds a user name"),
            (good.replace("https", "ftp"), "url begins with ftp:"),
        ] {
            let batch = lines(format!("{good}\n\n{wrong}\n")).batch();
            let expected = format!("line 3: {told}");
            assert_eq!(batch.fetches.len(), 1, "{told}");
            assert!(batch.wrong.is_some_and(|said| said.starts_with(&expected)), "{told}");
        }
        assert!(read(&with(&hash.replacen('é', "", 1))).is_ok());
    }

    #[test]
    fn the_api_takes_each_batch_however_long_its_lines_are() {
        let path = "\\\\".repeat(1_600);
        // No text grows as much in JSON as control characters do.
        let hash = "\\u0001".repeat(128);
        let fetch = |n: usize| {
            let path = if n < 6_000 { &path } else { "" };
            let url = format!("\"url\": \"https://a.test/{n}?{path}\"");
            let hashes = format!("\"hash\": \"{hash}\", \"hash_kind\": \"{hash}\"");
            format!("{{{url}, \"time\": \"2026-11-21T08:30:00Z\", {hashes}}}")
        };
        let log = (0..12_000).map(fetch).collect::<Vec<_>>().join("\n");
        let (mut lines, mut fetches, mut batches) = (lines(log), 0, 0);
        loop {
            let batch = lines.batch();
            assert_eq!((batch.wrong, batch.first), (None, fetches as u64 + 1));
            if batch.fetches.is_empty() {
                break;
            }
            fetches += batch.fetches.len();
            batches += 1;
            let order = Order::Import { crawl: "default".to_owned(), fetches: batch.fetches };
            let Call::Post(_, body) = order.call() else { panic!("a body is sent") };
            let bytes = body.to_string().len();
            assert!(bytes < 16 << 20, "{bytes}");
        }
        assert_eq!(fetches, 12_000);
        assert!(batches > 3, "{batches}");
    }
}
