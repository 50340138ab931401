//! Tells what flows, readable at a glance: two lines a beat at most, the rest
//! in sums.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use tokio::time::Instant;

use super::tally::{Tally, Verdict};
use crate::cli::answers::{Change, Poll};
use crate::cli::humane::{self, count, number};
use crate::cli::output::{FACT_INDENT, Output, Tone};
use crate::cli::poll::{change_line, counts_in_words, tone_of};

/// Lines printed in one beat.
const LINES: usize = 2;
/// Lines of polls waiting above which single changes are no longer told.
const CROWDED: usize = 12;
/// What was fetched and not told comes as a sum every so many beats.
const SUM_EVERY: u64 = 4;
/// A running total comes every so many beats.
const TOTAL_EVERY: u64 = 8;
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

/// A line about polls.
struct Line {
    text: String,
    /// Does it tell of a single change, and may be left out?
    detail: bool,
}

/// Tells the story.
pub(super) struct Narrator {
    started: Instant,
    beats: u64,
    /// What flowed so far.
    pub(super) tally: Tally,
    polls: VecDeque<Line>,
    /// Lines of fetches with their outcomes.
    fetches: VecDeque<(String, String)>,
    /// Outcomes of the fetches that got no line.
    untold: BTreeMap<String, u64>,
    /// Sources that were told of at least once.
    met: BTreeSet<i64>,
}

impl Narrator {
    /// A narrator who begins now, and knows who lies.
    pub(super) fn new(liar: String) -> Self {
        Self {
            started: Instant::now(),
            beats: 0,
            tally: Tally::beside(liar),
            polls: VecDeque::new(),
            fetches: VecDeque::new(),
            untold: BTreeMap::new(),
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
                let error = out.paint(Tone::Bad, &cut(&error, out.width() - MARGIN));
                let text = self.line("trouble", Tone::Bad, &error, out);
                self.polls.push_back(Line { text, detail: false });
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
            (None, None) if poll.entries > 0 => count(poll.entries, "entry", "entries"),
            (None, None) => String::new(),
        };
        let room = out.width() - MARGIN;
        let wide = (room / 3).min(26);
        let source = format!("{:<wide$}", cut(path_of(&poll.url), wide));
        let result = out.paint(tone_of(poll), &format!("{:<12}", cut(&poll.result, 12)));
        let what = cut(&what, room.saturating_sub(wide + 12 + 2));
        let text = self.line("poll", Tone::Note, &format!("{source} {result} {what}"), out);
        self.polls.push_back(Line { text, detail: false });
        // A first read is all news: its sum says it.
        let shown =
            |change: &&Change| matches!(change.kind.as_str(), "new" | "changed" | "removed");
        if let Some(change) = changes.iter().find(shown)
            && !first
        {
            let change = Change { url: path_of(&change.url).to_owned(), ..change.clone() };
            let text = change_line(&change, room, out);
            self.polls.push_back(Line { text: format!("{:MARGIN$}{text}", ""), detail: true });
        }
    }

    fn fetched(&mut self, fetch: &Fetch, out: &Output) {
        let (wide, hinted) = fetch_columns(out.width() - MARGIN);
        let path = format!("{:<wide$}", cut(path_of(&fetch.url), wide));
        let hints = match &fetch.changefreq {
            Some(word) => format!("{}, {word}, priority {}", fetch.reason, fetch.priority),
            None => fetch.reason.clone(),
        };
        let hints = out.paint(Tone::Faint, &format!("{:<hinted$}", cut(&hints, hinted)));
        let tone = match fetch.outcome.as_str() {
            "changed" => Tone::Good,
            "unchanged" => Tone::Faint,
            "gone" => Tone::Warn,
            _ => Tone::Bad,
        };
        let status = fetch.status.map(|status| format!("{status} ")).unwrap_or_default();
        let mut outcome = out.paint(tone, &format!("{status}{}", cut(&fetch.outcome, 12)));
        if fetch.settled != "ok" {
            outcome = out.paint(Tone::Bad, &format!("settle: {}", cut(&fetch.settled, 8)));
        }
        let hints = if hinted > 0 { format!("{hints}  ") } else { String::new() };
        let text = self.line("fetch", Tone::Strong, &format!("{path}  {hints}{outcome}"), out);
        self.fetches.push_back((text, fetch.outcome.clone()));
    }

    /// A line with its time and what it is about in front.
    fn line(&self, what: &str, tone: Tone, text: &str, out: &Output) -> String {
        let time = format!("{:.1}s", self.started.elapsed().as_secs_f64());
        let time = out.paint(Tone::Faint, &format!("{time:>6}"));
        let what = out.paint(tone, &format!("{what:<8}"));
        format!("{time} {what}{text}")
    }

    /// Prints the next lines.
    pub(super) fn beat(&mut self, out: &mut Output) -> io::Result<()> {
        self.beats += 1;
        if self.polls.len() > CROWDED {
            self.polls.retain(|line| !line.detail);
        }
        let mut room = LINES;
        if self.beats.is_multiple_of(TOTAL_EVERY) {
            self.total(out)?;
            room -= 1;
        } else if self.beats.is_multiple_of(SUM_EVERY) && !self.untold.is_empty() {
            self.sum_up(out)?;
            room -= 1;
        }
        while room > 0 {
            // Each has its share of the lines, unless the polls pile up.
            let polls_first = room == LINES || self.polls.len() > LINES || self.fetches.is_empty();
            if polls_first && let Some(line) = self.polls.pop_front() {
                out.line(line.text.trim_end())?;
                // What it changed belongs right below it.
                while self.polls.front().is_some_and(|next| next.detail) {
                    if let Some(detail) = self.polls.pop_front() {
                        out.line(detail.text.trim_end())?;
                    }
                }
            } else if let Some((text, _)) = self.fetches.pop_front() {
                out.line(text.trim_end())?;
            } else {
                break;
            }
            room -= 1;
        }
        for (_, outcome) in self.fetches.drain(..) {
            *self.untold.entry(outcome).or_default() += 1;
        }
        Ok(())
    }

    /// Prints one line for the fetches that got none.
    fn sum_up(&mut self, out: &mut Output) -> io::Result<()> {
        let untold = std::mem::take(&mut self.untold);
        let text = format!("and {} more: {}", number(untold.values().sum()), in_words(&untold));
        let text = out.paint(Tone::Faint, &cut(&text, out.width() - MARGIN));
        let line = self.line("fetch", Tone::Strong, &text, out);
        out.line(&line)
    }

    fn total(&self, out: &mut Output) -> io::Result<()> {
        let tally = &self.tally;
        let of = |kind: &str| number(tally.changes.get(kind).copied().unwrap_or(0));
        let (polls, known) = (number(tally.polls.values().sum()), number(tally.known));
        let (leased, settled) = (number(tally.leased), number(tally.settled_total()));
        let mut text = format!(
            "{polls} polls, {known} URLs known, {} changed, {} removed; {leased} leased, \
             {settled} settled, {} in work",
            of("changed"),
            of("removed"),
            number(tally.in_work()),
        );
        let room = out.width() - MARGIN;
        if text.chars().count() > room {
            text = cut(
                &format!("{polls} polls, {known} URLs; {leased} leased, {settled} settled"),
                room,
            );
        }
        let line = self.line("total", Tone::Strong, &out.paint(Tone::Strong, &text), out);
        out.line(&line)
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
            out.line(&format!("  {name} {}", cut(&value, out.width() - FACT_INDENT)))?;
        }
        for (name, trust) in [("honest", tally.honest), ("lying", tally.lying)] {
            let text = format!(
                "{}: {} fetched for it, {} of these had changed",
                count(trust.moved, "lastmod moved", "lastmods moved"),
                number(trust.fetched),
                number(trust.changed),
            );
            out.fact(name, &text)?;
        }
        let tone = if verdict.lost == 0 { Tone::Good } else { Tone::Bad };
        let text = format!(
            "{} (of {}: {} fetched since, {} waiting for a turn)",
            out.paint(tone, &number(verdict.lost)),
            count(verdict.checked, "URL that changed", "URLs that changed"),
            number(verdict.fetched),
            number(verdict.waiting),
        );
        out.fact("lost", &text)
    }
}

/// How wide the path and the hints of a fetch are; without hints where both would say
/// next to nothing. Behind them come the outcome, and gaps.
fn fetch_columns(room: usize) -> (usize, usize) {
    let both = room.saturating_sub(16 + 4);
    if both < 40 {
        return (both + 2, 0);
    }
    let wide = (both / 2).min(32);
    (wide, (both - wide).min(31))
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
    fn no_line_is_wider_than_the_terminal() {
        let poll = serde_json::json!({
            "id": 1, "source": 7, "url": format!("http://127.0.0.1:1/{}.xml", "s".repeat(90)),
            "result": "incomplete", "entries": 3, "error": "it was cut off ".repeat(9),
        });
        let poll: Poll = crate::cli::answers::read(&poll).expect("a poll");
        let fetch = || Fetch {
            url: format!("http://127.0.0.1:1/{}", "p".repeat(90)),
            reason: "submitted".to_owned(),
            priority: 0.875,
            changefreq: Some("monthly".to_owned()),
            status: Some(200),
            outcome: "unchanged".to_owned(),
            settled: "ok".to_owned(),
        };
        for width in [40, 60, 80, 100] {
            let out = Output::of_width(width);
            let mut narrator = Narrator::new(String::new());
            narrator.polled(&poll, &[], &out);
            narrator.fetched(&fetch(), &out);
            narrator.fetched(&Fetch { settled: "unknown".to_owned(), ..fetch() }, &out);
            let polls = narrator.polls.iter().map(|line| &line.text);
            let all: Vec<_> = polls.chain(narrator.fetches.iter().map(|(text, _)| text)).collect();
            assert_eq!(all.len(), 3);
            for line in all {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn a_page_is_told_by_its_path() {
        assert_eq!(path_of("http://127.0.0.1:1/a/b?c"), "/a/b?c");
        assert_eq!(path_of("http://127.0.0.1:1"), "http://127.0.0.1:1");
        assert_eq!(path_of("é"), "é");
    }
}
