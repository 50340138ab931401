//! Doubts about entries that are well-formed one by one: a date that has not
//! come yet, a URL that is listed again.
//!
//! Pure: `now` is an argument. Memory grows by a few words an entry, and only
//! where repetitions are looked for.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use super::Entry;
use super::issue::{Issue, IssueCode, Issues};

/// A date further ahead than this is none: no clock is so wrong, no zone so far.
pub const FUTURE: SignedDuration = SignedDuration::from_hours(24);

/// What is doubtful in one document, read at one time.
#[derive(Debug)]
pub struct Doubts {
    now: Timestamp,
    seen: HashSet<u64>,
    issues: Issues,
}

impl Doubts {
    /// About a document that is read at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { now, seen: HashSet::new(), issues: Issues::default() }
    }

    /// Is the date that counts more than a day ahead?
    pub fn date(&mut self, entry: &Entry<'_>) {
        let Some(date) = entry.effective_lastmod() else { return };
        if date.at.duration_since(self.now) > FUTURE {
            let sample = format!("{date} for {}", entry.loc);
            self.issues.note(IssueCode::FutureDate, entry.place, &sample);
        }
    }

    /// Was the same URL, as written, listed before?
    pub fn repetition(&mut self, entry: &Entry<'_>) {
        if !self.seen.insert(xxh3_64(entry.loc.as_bytes())) {
            self.issues.note(IssueCode::DuplicateUrl, entry.place, entry.loc);
        }
    }

    /// Another doubt about an entry.
    pub fn note(&mut self, code: IssueCode, entry: &Entry<'_>, sample: &str) {
        self.issues.note(code, entry.place, sample);
    }

    /// As issues of the report.
    pub fn into_issues(self) -> Vec<Issue> {
        self.issues.into_list()
    }
}
