//! `sitemapd poll`: poll a site or a source now, wait for it, show the diff.
//!
//! The daemon polls, as politely as ever; this only asks for it and reads the
//! outcome, so a poll may take as long as its host must be left alone.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::answers::{self, Change, Poll, Source};
use super::humane::{self, number};
use super::output::{Output, Tone};
use super::source_of_truth::{SourceOfTruth, segment};
use super::{Failure, Options};
use crate::config::units::parse_duration;
use crate::store::views::Counts;

/// Between two looks at whether it is done.
const LOOK: Duration = Duration::from_millis(400);
/// Changes shown of one poll.
const SHOWN: usize = 20;

/// Why a source is due that was asked for, as the daemon says it.
const ASKED: &str = "someone asked for it";
/// What stands among the polls of a source and is none of them.
const NO_POLLS: [&str; 2] = ["pushed", "let-go"];

/// What to poll.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT)]
pub struct Args {
    /// Name of a site, or URL of one of the sources
    #[arg(value_name = "SITE|URL")]
    what: String,
    /// Longest wait for the polls to be done
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    wait: Duration,
}

const EXIT: &str = "Exits 1 where not all were polled in time, and where the URL that is named could \
not be fetched.";

/// Asks for the polls, waits, and shows what changed.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let filter = if args.what.contains("://") { "url" } else { "site" };
    let mut query = vec![(filter, args.what.as_str())];
    if filter == "url" {
        // One that was given up is meant by whoever names it, too.
        query.push(("retired", "true"));
    }
    let sources = matching(&truth, &query).await?;
    if filter == "site" {
        truth.post(&format!("/v1/sites/{}/poll", segment(&args.what)), &json!({})).await?;
    } else if sources.is_empty() {
        let url = humane::safe(&args.what);
        return Err(anyhow!("no source {url}; `sitemapd sources` lists them").into());
    }
    let mut before = BTreeMap::new();
    let wanted = |state: &'static str| sources.iter().filter(move |source| source.state == state);
    let state = if wanted("active").next().is_some() { "active" } else { "retired" };
    for source in wanted(state).filter(|_| state == "active" || filter == "url") {
        if filter == "url" {
            truth.post(&format!("/v1/sources/{}/poll", source.id), &json!({})).await?;
        }
        before.insert(source.id, source.last_poll_at);
    }
    if before.is_empty() {
        if let Some(source) = wanted("paused").next() {
            // Its site is, or has left: the daemon says which.
            let (what, why) = (humane::safe(&args.what), humane::safe(&source.why));
            let why = why.split(';').next().unwrap_or_default();
            let then = source.site.as_deref().map_or_else(String::new, |site| {
                let verb = if why.contains("paused") { "resume" } else { "forget" };
                format!("; `sitemapd sites {verb} {}`", humane::safe(site))
            });
            return Err(anyhow!("{what}: {why}{then}").into());
        }
        return Err(anyhow!("nothing of {} is polled", humane::safe(&args.what)).into());
    }
    let asked = matching(&truth, &query).await?;
    let waiting = before.into_iter().map(|(id, last)| {
        let source = asked.iter().find(|source| source.id == id);
        (id, Wanted::of(last, source))
    });
    let waiting = waiting.collect();
    let mut seen = Seen { gathered: options.json.then(Vec::new), has_failed: false };
    let followed = follow(&truth, &query, waiting, args.wait, &mut seen, out).await;
    // What came before the wait was over stands in no other answer.
    if let Some(polls) = &seen.gathered {
        out.json(&json!({ "polls": polls }))?;
    }
    followed?;
    // Of a site some place or other is always empty; a URL is meant by whoever names it.
    if filter == "url" && seen.has_failed { Err(Failure::Reported) } else { Ok(()) }
}

/// Which poll of a source is the one that was asked for: not one that had begun before
/// that and was still under way. All times are the daemon's.
enum Wanted {
    /// One that began at this time or later.
    Since(Timestamp),
    /// One after the last one there was.
    After(Option<Timestamp>),
}

impl Wanted {
    /// By when the source was last polled before it was asked for, and as it was told of
    /// then: it is due since it was asked for, and stays so where a poll ends that had
    /// begun before.
    fn of(last: Option<Timestamp>, asked: Option<&Source>) -> Self {
        let is_due = |source: &&Source| source.last_poll_at == last || source.why.contains(ASKED);
        match asked.filter(is_due).and_then(|source| source.next_poll_at) {
            Some(at) => Self::Since(at),
            None => Self::After(last),
        }
    }

    fn is_met_by(&self, polled_at: Option<Timestamp>) -> bool {
        match self {
            Self::Since(at) => polled_at >= Some(*at),
            Self::After(last) => polled_at > *last,
        }
    }
}

/// What came of the polls so far.
struct Seen {
    /// For programs, which get them in one answer; people see each as it comes.
    gathered: Option<Vec<Value>>,
    /// Was there one that could not be read?
    has_failed: bool,
}

/// Waits for one poll of each source; prints each as it comes, or gathers it.
async fn follow(
    truth: &SourceOfTruth,
    query: &[(&str, &str)],
    mut waiting: BTreeMap<i64, Wanted>,
    patience: Duration,
    seen: &mut Seen,
    out: &mut Output,
) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    loop {
        let mut sources = matching(truth, query).await?;
        // A poll may be the one after which its source is retired.
        let is_listed = |id: &i64| sources.iter().any(|source| source.id == *id);
        let gone: Vec<i64> = waiting.keys().copied().filter(|id| !is_listed(id)).collect();
        for id in gone {
            sources.push(answers::read(&truth.get(&format!("/v1/sources/{id}"), &[]).await?)?);
        }
        for source in sources {
            let wanted = waiting.get(&source.id);
            if !wanted.is_some_and(|wanted| wanted.is_met_by(source.last_poll_at)) {
                continue;
            }
            waiting.remove(&source.id);
            let poll = latest(truth, source.id).await?;
            let path = format!("/v1/polls/{}/changes", id(&poll));
            let told: Poll = answers::read(&poll)?;
            seen.has_failed |= tone_of(&told) == Tone::Bad;
            if let Some(gathered) = &mut seen.gathered {
                let answer = truth.list(&path, &[], "changes").await?;
                gathered.push(json!({ "poll": poll, "changes": answer["changes"] }));
            } else {
                let answer = truth.get(&path, &[("limit", &SHOWN.to_string())]).await?;
                let changes: Vec<Change> = answers::rows(&answer, "changes")?;
                let has_more = answer.get("next").is_some_and(|next| !next.is_null());
                print(&told, &changes, has_more, out)?;
                out.flush()?;
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(anyhow!(
                "{} not polled within {}; the daemon goes on, see `sitemapd sources`",
                humane::count(waiting.len() as u64, "source was", "sources were"),
                humane::duration(patience)
            )
            .into());
        }
        sleep(LOOK).await;
    }
}

/// The sources that are meant.
async fn matching(truth: &SourceOfTruth, query: &[(&str, &str)]) -> Result<Vec<Source>, Failure> {
    answers::rows(&truth.list("/v1/sources", query, "sources").await?, "sources")
}

/// The latest poll of a source, as the API answers it.
async fn latest(truth: &SourceOfTruth, source: i64) -> Result<Value, Failure> {
    let answer = truth.get(&format!("/v1/sources/{source}"), &[]).await?;
    let polls = answer.get("polls").and_then(Value::as_array);
    let polls = polls.into_iter().flatten().filter(|poll| !NO_POLLS.contains(&result(poll)));
    let Some(poll) = polls.max_by_key(|poll| id(poll)) else {
        return Err(anyhow!("the daemon tells no poll of source {source}").into());
    };
    Ok(poll.clone())
}

fn result(poll: &Value) -> &str {
    poll.get("result").and_then(Value::as_str).unwrap_or_default()
}

fn id(poll: &Value) -> i64 {
    poll.get("id").and_then(Value::as_i64).unwrap_or(0)
}

fn print(poll: &Poll, changes: &[Change], has_more: bool, out: &mut Output) -> Result<(), Failure> {
    let (tone, width) = (tone_of(poll), out.width());
    out.line(&out.paint(Tone::Strong, &humane::cut_middle(&humane::safe(&poll.url), width)))?;
    let result = humane::safe(&poll.result);
    let mut begin = format!("  {}", out.paint(tone, &result));
    let told = outcome(poll);
    if told.is_empty() {
        out.line(&begin)?;
    }
    let indent = result.chars().count() + 4;
    for line in humane::wrap(&told, width.saturating_sub(indent)) {
        out.line(&format!("{begin}  {line}"))?;
        begin = " ".repeat(indent - 2);
    }
    for change in changes {
        out.line(&format!("  {}", change_line(change, width - 2, out)))?;
        for (sign, tone, said) in [("-", Tone::Bad, &change.was), ("+", Tone::Good, &change.now)] {
            for line in said.iter().flat_map(|said| said.lines()) {
                let line = humane::cut_middle(&humane::safe(line), width - 6);
                out.line(&format!("    {} {line}", out.paint(tone, sign)))?;
            }
        }
    }
    if has_more {
        // What is rejected is counted, and changes nothing.
        let counts = Counts { rejected: 0, ..poll.counts };
        let all: u64 = counts.told().map(|(urls, _)| urls).sum();
        let told = match all.saturating_sub(changes.len() as u64) {
            // Of a robots.txt nothing is counted.
            0 => "  and more; --json has them all".to_owned(),
            more => format!("  and {} more; --json has them all", number(more)),
        };
        out.toned(Tone::Faint, &told)?;
    }
    Ok(())
}

/// What a poll read and what came of it. A document that came unchanged is not
/// read again, so nothing is said of what is in it.
fn outcome(poll: &Poll) -> String {
    let read = (poll.entries > 0).then(|| humane::count(poll.entries, "URL", "URLs"));
    let told = match &poll.error {
        // The result stands before it.
        Some(error) => {
            let begin = format!("{}: ", poll.result);
            Some(humane::safe(error.strip_prefix(&begin).unwrap_or(error)))
        }
        None => counts_in_words(&poll.counts),
    };
    read.into_iter().chain(told).collect::<Vec<_>>().join(": ")
}

/// How the result of a poll is meant.
pub fn tone_of(poll: &Poll) -> Tone {
    match poll.result.as_str() {
        "changed" => Tone::Good,
        "unchanged" | "not-modified" => Tone::Faint,
        "incomplete" => Tone::Warn,
        _ if poll.error.is_some() => Tone::Bad,
        _ => Tone::Plain,
    }
}

/// `3 new, 2 changed`; `None` when nothing happened.
pub fn counts_in_words(counts: &Counts) -> Option<String> {
    let told: Vec<String> =
        counts.told().map(|(urls, word)| format!("{} {word}", number(urls))).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// `+ https://…` for a change, at most `width` columns wide.
pub fn change_line(change: &Change, width: usize, out: &Output) -> String {
    let (sign, tone) = match change.kind.as_str() {
        "new" => ("+", Tone::Good),
        "removed" => ("-", Tone::Bad),
        _ => ("~", Tone::Warn),
    };
    let word = format!("{sign} {:<9}", humane::safe(&change.kind));
    let room = width.saturating_sub(word.chars().count() + 1);
    let url = humane::cut_middle(&humane::safe(&change.url), room);
    format!("{} {url}", out.paint(tone, &word))
}
