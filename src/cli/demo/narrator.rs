//! Tells what flows, readable at a glance: two lines a beat at most, the rest
//! in sums.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use tokio::time::Instant;

use super::tally::{Tally, Verdict};
use crate::cli::answers::{Change, Poll};
use crate::cli::humane::{self, count, number};
use crate::cli::output::{Output, Tone};
use crate::cli::poll::{change_line, counts_in_words, tone_of};
use crate::cli::table::MAX_WIDTH;

/// Lines printed in one beat.
const LINES: usize = 2;
/// Lines waiting above which fetches are told in sums.
const CROWDED: usize = 4;
/// A running total comes every so many beats.
const TOTAL_EVERY: u64 = 8;
/// Changes told of one poll, one by one.
const CHANGES: usize = 2;
/// Columns before the text of a line: the time and what it is about.
const MARGIN: usize = 15;

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// The daemon polled a source.
    Polled {
        /// The poll.
        poll: Poll,
        /// What it changed.
        changes: Vec<Change>,
    },
    /// The daemon knows so many URLs.
    Known(u64),
    /// The fetcher was given so many URLs.
    Leased(u64),
    /// The fetcher gave so many back.
    Released(u64),
    /// The fetcher fetched a page and settled it.
    Fetched(Fetch),
    /// Something did not work.
    Trouble(String),
}

/// One page fetched.
#[derive(Debug)]
pub(super) struct Fetch {
    /// Its URL.
    pub(super) url: String,
    /// Why it was due.
    pub(super) reason: String,
    /// As listed.
    pub(super) priority: f64,
    /// As listed.
    pub(super) changefreq: Option<String>,
    /// HTTP status.
    pub(super) status: Option<u16>,
    /// What the fetcher reported.
    pub(super) outcome: String,
    /// What the daemon said to that: `ok`, `stale`, `unknown`.
    pub(super) settled: String,
}

/// A line to be printed.
struct Line {
    text: String,
    /// The outcome, if it tells of a fetch: such a line may become part of a sum.
    fetch: Option<String>,
}

/// Tells the story.
pub(super) struct Narrator {
    started: Instant,
    beats: u64,
    /// What flowed so far.
    pub(super) tally: Tally,
    waiting: VecDeque<Line>,
    /// Sources that were told of at least once.
    met: BTreeSet<i64>,
}

impl Narrator {
    /// A narrator who begins now.
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            beats: 0,
            tally: Tally::default(),
            waiting: VecDeque::new(),
            met: BTreeSet::new(),
        }
    }

    /// Counts an event and prepares what is to be told of it.
    pub(super) fn take(&mut self, event: Event, out: &Output) {
        self.tally.take(&event);
        match event {
            Event::Polled { poll, changes } => self.polled(&poll, &changes, out),
            Event::Fetched(fetch) => self.fetched(&fetch, out),
            Event::Trouble(error) => {
                let error = out.paint(Tone::Bad, &cut(&error, MAX_WIDTH - MARGIN));
                self.push("trouble", Tone::Bad, &error, None, out);
            }
            Event::Known(_) | Event::Leased(_) | Event::Released(_) => {}
        }
    }

    fn polled(&mut self, poll: &Poll, changes: &[Change], out: &Output) {
        let first = self.met.insert(poll.source);
        let told = counts_in_words(&poll.counts);
        if !first && told.is_none() && poll.error.is_none() {
            return;
        }
        let what = match (&poll.error, told) {
            (Some(error), _) => error.clone(),
            (None, Some(told)) => told,
            (None, None) => count(poll.entries, "entry", "entries"),
        };
        let source = format!("{:<26}", cut(path_of(&poll.url), 26));
        let result = out.paint(tone_of(poll), &format!("{:<12}", cut(&poll.result, 12)));
        let what = cut(&what, MAX_WIDTH - MARGIN - 26 - 12 - 2);
        self.push("poll", Tone::Note, &format!("{source} {result} {what}"), None, out);
        let width = MAX_WIDTH - MARGIN;
        for change in changes.iter().take(CHANGES) {
            let change = Change { url: path_of(&change.url).to_owned(), ..change.clone() };
            self.push("", Tone::Plain, &change_line(&change, width, out), None, out);
        }
    }

    fn fetched(&mut self, fetch: &Fetch, out: &Output) {
        let path = format!("{:<32}", cut(path_of(&fetch.url), 32));
        let hints = match &fetch.changefreq {
            Some(word) => format!("{}, {word}, priority {}", fetch.reason, fetch.priority),
            None => fetch.reason.clone(),
        };
        let hints = out.paint(Tone::Faint, &format!("{:<31}", cut(&hints, 31)));
        let tone = match fetch.outcome.as_str() {
            "changed" => Tone::Good,
            "unchanged" => Tone::Faint,
            "gone" => Tone::Warn,
            _ => Tone::Bad,
        };
        let status = fetch.status.map(|status| format!("{status} ")).unwrap_or_default();
        let mut outcome = out.paint(tone, &format!("{status}{}", cut(&fetch.outcome, 12)));
        if fetch.settled != "ok" {
            outcome = out.paint(Tone::Bad, &format!("settle: {}", cut(&fetch.settled, 10)));
        }
        let text = format!("{path} {hints} {outcome}");
        self.push("fetch", Tone::Strong, &text, Some(fetch.outcome.clone()), out);
    }

    fn push(&mut self, what: &str, tone: Tone, text: &str, fetch: Option<String>, out: &Output) {
        let time = match what {
            "" => String::new(),
            _ => format!("{:.1}s", self.started.elapsed().as_secs_f64()),
        };
        let time = out.paint(Tone::Faint, &format!("{time:>6}"));
        let what = out.paint(tone, &format!("{what:<7}"));
        self.waiting.push_back(Line { text: format!("{time} {what}{text}"), fetch });
    }

    /// Prints the next lines.
    pub(super) fn beat(&mut self, out: &mut Output) -> io::Result<()> {
        self.beats += 1;
        if self.waiting.len() > CROWDED {
            self.sum_up(out);
        }
        for _ in 0..LINES {
            let Some(line) = self.waiting.pop_front() else { break };
            out.line(&line.text)?;
        }
        if self.beats.is_multiple_of(TOTAL_EVERY) {
            self.total(out)?;
        }
        Ok(())
    }

    /// Makes one line of all the fetches that wait to be told but the first.
    fn sum_up(&mut self, out: &Output) {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut kept_one = false;
        self.waiting.retain(|line| match &line.fetch {
            Some(_) if !kept_one => {
                kept_one = true;
                true
            }
            Some(outcome) => {
                *sums.entry(outcome.clone()).or_default() += 1;
                false
            }
            None => true,
        });
        if sums.is_empty() {
            return;
        }
        let more: u64 = sums.values().sum();
        let text = format!("and {} more: {}", number(more), in_words(&sums));
        let text = out.paint(Tone::Faint, &cut(&text, MAX_WIDTH - MARGIN));
        self.push("fetch", Tone::Strong, &text, None, out);
    }

    fn total(&self, out: &mut Output) -> io::Result<()> {
        let tally = &self.tally;
        let of = |kind: &str| number(tally.changes.get(kind).copied().unwrap_or(0));
        let text = format!(
            "{} polls, {} URLs known, {} changed, {} removed; {} leased, {} settled, {} in work",
            number(tally.polls.values().sum()),
            number(tally.known),
            of("changed"),
            of("removed"),
            number(tally.leased),
            number(tally.settled_total()),
            number(tally.in_work()),
        );
        let time = format!("{:>5.0}s ", self.started.elapsed().as_secs_f64());
        out.toned(Tone::Strong, &format!("{time} total  {text}"))
    }

    /// Prints what came of it all.
    pub(super) fn summary(&self, verdict: &Verdict, out: &mut Output) -> io::Result<()> {
        let tally = &self.tally;
        let seconds = self.started.elapsed().as_secs_f64();
        out.line("")?;
        out.toned(Tone::Strong, &format!("What happened in {seconds:.1} s"))?;
        let polls: u64 = tally.polls.values().sum();
        let given_back = match tally.released {
            0 => String::new(),
            urls => format!(", {} given back at the end", number(urls)),
        };
        for (name, value) in [
            ("polls", format!("{}: {}", number(polls), in_words(&tally.polls))),
            ("urls", format!("{} known; {}", number(tally.known), in_words(&tally.changes))),
            ("leases", format!("{}{given_back}", number(tally.leased))),
            ("settled", format!("{}: {}", number(tally.settled_total()), in_words(&tally.settled))),
        ] {
            let name = out.paint(Tone::Faint, &format!("{name:<8}"));
            out.line(&format!("  {name} {}", cut(&value, MAX_WIDTH - 11)))?;
        }
        let tone = if verdict.lost == 0 { Tone::Good } else { Tone::Bad };
        let lost = out.paint(tone, &number(verdict.lost));
        let name = out.paint(Tone::Faint, &format!("{:<8}", "lost"));
        out.line(&format!(
            "  {name} {lost} (of {}: {} fetched since, {} waiting their turn)",
            count(verdict.checked, "URL that changed", "URLs that changed"),
            number(verdict.fetched),
            number(verdict.waiting),
        ))
    }
}

/// `12 changed, 3 unchanged`.
fn in_words(sums: &BTreeMap<String, u64>) -> String {
    if sums.is_empty() {
        return "none".to_owned();
    }
    let told: Vec<String> =
        sums.iter().map(|(word, sum)| format!("{} {}", number(*sum), humane::safe(word))).collect();
    told.join(", ")
}

fn cut(text: &str, width: usize) -> String {
    humane::cut_middle(&humane::safe(text), width)
}

/// The part of a URL that tells pages of one site apart.
fn path_of(url: &str) -> &str {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    url[after_scheme..].find('/').map_or(url, |at| &url[after_scheme + at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_by_its_path() {
        assert_eq!(path_of("http://127.0.0.1:1/a/b?c"), "/a/b?c");
        assert_eq!(path_of("http://127.0.0.1:1"), "http://127.0.0.1:1");
        assert_eq!(path_of("é"), "é");
    }
}
