//! Pure: what a source listed last time and what it lists now, to changes.
//!
//! The comparison is a merge of two sorted lists; it parses no URL, and a
//! document that lists what it listed before yields nothing. What it yields
//! are proposals: the store applies each one only where the row does not
//! already say so, which is what makes a replay after a crash harmless.

pub mod dates;
pub mod document;
mod keys;
pub mod snapshot;

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::model::{Lastmod, UrlId};
use document::is_followed;
pub use document::{Document, DocumentEntry};
use snapshot::{Row, Snapshot, SnapshotEntry};

/// A full source that shrinks to less than half of at least this many entries
/// has its removals held: more likely it broke than that they all went.
const SHRINK_GUARD_FROM: usize = 10;

/// Reads in which only the oldest entries left, and new ones came, after which
/// a sitemap is taken for a window. A read in which any other entry leaves
/// starts the count anew; one in which none leaves says nothing.
pub const ROLLS_OF_A_WINDOW: u32 = 3;

/// What the comparison needs to know besides the two lists.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // independent facts, each told by its name
pub struct Rules {
    /// Time of the read.
    pub now: Timestamp,
    /// Was the document read to its end, nothing cut or refused?
    pub complete: bool,
    /// Is the source a window, whose absences mean nothing?
    pub window: bool,
    /// Is the document only a part of what the source lists now, as hubs push it?
    pub part: bool,
    /// Was the snapshot made by another reader or other rules? Then every
    /// entry is judged anew.
    pub new_epoch: bool,
    /// Complete reads without an entry before it may count as removed.
    pub removal_polls: u32,
    /// Seconds without an entry before it may count as removed.
    pub removal_after_s: i64,
    /// Unix second since which every sibling under the same index has been
    /// read, and the index itself; an entry that has been missing for longer cannot
    /// merely have moved to a sibling. `i64::MIN` while a sibling was never read whole.
    pub siblings_read_s: i64,
    /// Have removals been held for long enough to be believed after all?
    pub shrink_believed: bool,
    /// Reads so far in which only the oldest entries left.
    pub rolls: u32,
    /// What became of those that left.
    pub left: Left,
    /// Does the document list child sitemaps? Then it may well list no page
    /// any more.
    pub has_children: bool,
}

/// What became of entries that left a source. A list that is sorted by date and cut into
/// several documents loses the oldest of one to another: that is no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nobody else lists them, or the source has no siblings.
    Gone,
    /// Siblings list as many of them as nobody does, or more.
    Moved,
    /// Siblings were not read since.
    Unknown,
}

/// URLs of a snapshot that a document does not list, each with the Unix second in which
/// it was first missing.
pub fn leavers(before: &Snapshot, document: &Document) -> Vec<(UrlId, Option<i64>)> {
    let absent = before.entries().iter().filter(|entry| !document.contains(entry.key));
    let pages = absent.filter(|entry| !is_followed(entry.digest));
    pages
        .filter_map(|entry| match entry.row {
            Row::Url(url) => Some((url, entry.missing_since)),
            Row::Rejected(_) => None,
        })
        .collect()
}

/// What one entry's difference asks the store to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Not in the snapshot (or judged by other rules then): admit it. `entry`
    /// indexes the document, `slot` the next snapshot, whose row it fills in.
    Admit {
        /// Index into [`Document::entries`].
        entry: u32,
        /// Index into [`Diff::next`].
        slot: u32,
        /// The row it stood for under the old rules.
        previous: Option<Row>,
    },
    /// The lastmod is strictly newer.
    Changed {
        /// Index into [`Diff::next`].
        slot: u32,
    },
    /// No newer lastmod, but the digest moved.
    Touched {
        /// Index into [`Diff::next`].
        slot: u32,
    },
    /// The lastmod went backwards.
    Regressed {
        /// Index into [`Diff::next`].
        slot: u32,
    },
    /// Only priority, changefreq or the presence of a lastmod differ: taken
    /// over, no signal.
    Hints {
        /// Index into [`Diff::next`].
        slot: u32,
    },
    /// Missing for the first time.
    Missing {
        /// Index into [`Diff::next`].
        slot: u32,
    },
    /// Missing for long enough: this source no longer holds it.
    Drop {
        /// The row it stood for.
        row: Row,
    },
}

/// The difference between a snapshot and a document.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // independent findings, each told by its name
pub struct Diff {
    /// What to do, in document order for what is listed.
    pub steps: Vec<Step>,
    /// The next snapshot, sorted by key; rows of [`Step::Admit`] are filled in
    /// as they are known.
    pub next: Vec<SnapshotEntry>,
    /// Slots of entries whose images, videos, news or alternates may not be
    /// what the store has of them, ascending.
    pub restated: Vec<u32>,
    /// Entries that are as they were.
    pub unchanged: u64,
    /// Entries of the snapshot that this read did not list.
    pub missing: u64,
    /// Does it mean anything that this read does not list something?
    pub tells_absence: bool,
    /// Is the source less than half of what it was? `None` where this read does
    /// not tell.
    pub shrunk: Option<bool>,
    /// Are its removals held for that?
    pub held: bool,
    /// Did only the oldest entries leave while new ones came? `None` when no
    /// entry left.
    pub rolled: Option<bool>,
    /// Is the source a window by now, as this read shows?
    pub learned: bool,
    /// Does the next snapshot hold entries of which this read does not tell? They
    /// are as the rules of an earlier one judged them.
    pub carried: bool,
    /// Does it hold entries whose removal further reads decide on?
    pub undecided: bool,
    /// Unix second after which siblings have to be read for the next read to decide;
    /// `None` where it is not held up by them.
    pub held_up_since: Option<i64>,
}

impl Diff {
    /// Is there nothing to write but the time of the read?
    pub fn is_empty(&self, before: &Snapshot) -> bool {
        self.steps.is_empty() && self.next == before.entries()
    }
}

/// Compares what a source listed last time with what it lists now.
pub fn diff(before: &Snapshot, document: &Document, rules: &Rules) -> Diff {
    let absences = Absences::judge(before, document, rules);
    let mut diff = Diff {
        next: Vec::with_capacity(document.entries().len().max(before.len())),
        tells_absence: absences.count && !absences.left,
        shrunk: absences.shrunk,
        held: absences.held,
        rolled: absences.rolled,
        learned: absences.learned,
        ..Diff::default()
    };
    let mut old = before.entries().iter().peekable();
    let mut new = document.entries().iter().enumerate().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(was), Some((_, is))) => was.key.cmp(&is.key),
        };
        match order {
            Ordering::Less => {
                if let Some(was) = old.next() {
                    diff.absent(was, &absences, rules);
                }
            }
            Ordering::Greater => {
                if let Some((index, is)) = new.next() {
                    diff.listed(None, index, is, rules);
                }
            }
            Ordering::Equal => {
                if let (Some(was), Some((index, is))) = (old.next(), new.next()) {
                    diff.listed(Some(was), index, is, rules);
                }
            }
        }
    }
    // Stable, and asked once a step: entries lie by key, not by position.
    diff.steps.sort_by_cached_key(|step| match step {
        Step::Admit { entry, .. } => document.position(*entry),
        _ => u32::MAX,
    });
    diff
}

impl Diff {
    fn listed(
        &mut self,
        was: Option<&SnapshotEntry>,
        index: usize,
        is: &DocumentEntry,
        rules: &Rules,
    ) {
        let slot = position(self.next.len());
        let next = SnapshotEntry {
            key: is.key,
            row: was.map_or(Row::Rejected(snapshot::Rejection::Invalid), |was| was.row),
            // A lastmod that goes is kept: when it comes back unmoved, nothing has changed.
            lastmod: is.lastmod.or(was.and_then(|was| was.lastmod)),
            hints: is.hints,
            digest: is.digest,
            misses: 0,
            missing_since: None,
        };
        let judged_before = was.filter(|was| {
            let followed = is_followed(was.digest) || is_followed(is.digest);
            let same_kind = !followed || was.digest == is.digest;
            !rules.new_epoch && !was.row.may_be_admitted_later() && same_kind
        });
        let has_text = |digest: u32| digest != 0 && !is_followed(digest);
        let restated = match (was, judged_before) {
            (_, Some(was)) => was.digest != is.digest,
            (Some(was), None) => has_text(was.digest) || has_text(is.digest),
            // What left a window is no longer known here, and may be stored.
            (None, None) => has_text(is.digest) || rules.window,
        };
        if restated {
            self.restated.push(slot);
        }
        let Some(was) = judged_before else {
            self.next.push(next);
            let previous = was.map(|was| was.row);
            self.steps.push(Step::Admit { entry: position(index), slot, previous });
            return;
        };
        let step = match (was.lastmod, is.lastmod) {
            _ if matches!(was.row, Row::Rejected(_)) => None,
            (Some(before), Some(now)) if now.is_newer_than(before) => Some(Step::Changed { slot }),
            (Some(before), Some(now)) if now.is_older_than(before) => {
                Some(Step::Regressed { slot })
            }
            _ if was.digest != is.digest => Some(Step::Touched { slot }),
            _ if was.hints != is.hints || !is_same_date(was.lastmod, next.lastmod) => {
                Some(Step::Hints { slot })
            }
            _ => None,
        };
        self.next.push(next);
        match step {
            Some(step) => self.steps.push(step),
            None => self.unchanged += 1,
        }
    }

    fn absent(&mut self, was: &SnapshotEntry, absences: &Absences, rules: &Rules) {
        if absences.left {
            // It left the window. That is no removal, and if it comes back the
            // store still knows it.
            return;
        }
        let mut next = *was;
        let slot = position(self.next.len());
        if matches!(was.row, Row::Rejected(_)) {
            // Listed again, it is judged again. Kept while absences do not count,
            // it would pile up where no document is ever read to its end.
            return;
        }
        if !absences.count {
            self.carried = true;
            self.next.push(next);
            return;
        }
        self.missing += 1;
        if !absences.held {
            next.misses = was.misses.saturating_add(1);
        }
        let now_s = rules.now.as_second();
        // The clock may have been ahead when it was first missed.
        let since = next.missing_since.map_or(now_s, |since| since.min(now_s));
        next.missing_since = Some(since);
        let long_enough = u32::from(next.misses) >= rules.removal_polls.max(1)
            && now_s - since >= rules.removal_after_s
            // In one second nobody knows which of two reads came first.
            && since < rules.siblings_read_s;
        if long_enough {
            self.steps.push(Step::Drop { row: was.row });
            return;
        }
        if was.missing_since.is_none() {
            self.steps.push(Step::Missing { slot });
        }
        if !absences.held {
            // What waits for longer waits for a sibling that cannot be read.
            let misses = u32::from(next.misses);
            self.undecided |= misses < rules.removal_polls
                || now_s - since < rules.removal_after_s.saturating_mul(2);
            // At the read before the one that may decide: much that leaves comes back.
            let is_next = misses + 1 >= rules.removal_polls;
            if is_next && since >= rules.siblings_read_s {
                self.held_up_since = self.held_up_since.max(Some(since));
            }
        }
        self.next.push(next);
    }
}

/// What the absences of a read mean as a whole.
#[allow(clippy::struct_excessive_bools)] // independent answers, each told by its name
struct Absences {
    /// Do they count at all?
    count: bool,
    /// Have they left a window?
    left: bool,
    /// Are they too many at once? `None`: who knows.
    shrunk: Option<bool>,
    /// Do they not count for that?
    held: bool,
    /// Are they the oldest only, with new entries beside them?
    rolled: Option<bool>,
    /// Do they show that the source is a window?
    learned: bool,
}

impl Absences {
    fn judge(before: &Snapshot, document: &Document, rules: &Rules) -> Self {
        // A document that is suddenly empty is broken, not a farewell.
        let empty = document.entries().is_empty() && !rules.has_children;
        if !rules.complete || rules.window || empty {
            return Self {
                count: false,
                // What a broken document lost is found again as soon as it is back; to
                // keep it would pile up where none is ever read to its end.
                left: rules.window && !rules.part && (rules.complete || !empty),
                shrunk: rules.window.then_some(false),
                held: false,
                rolled: None,
                learned: false,
            };
        }
        // What is followed comes and goes with its pages, and proves nothing.
        let real =
            |entry: &&SnapshotEntry| matches!(entry.row, Row::Url(_)) && !is_followed(entry.digest);
        let listed_before = before.entries().iter().filter(real).count();
        let mut gone = Vec::new();
        let mut kept = Vec::new();
        let mut undated = false;
        for entry in before.entries().iter().filter(real) {
            let second = entry.lastmod.map(|lastmod| lastmod.at.as_second());
            undated |= second.is_none();
            if document.contains(entry.key) {
                kept.push(second);
            } else if entry.missing_since.is_none() {
                // Once: while removals are held, no miss of it is counted.
                gone.push(second);
            }
        }
        let (refused, again) = refused_pages(before, document);
        // What only waits for room, or for other rules, is a page of the site.
        let is_few = |refused: usize| {
            listed_before >= SHRINK_GUARD_FROM && (document.pages - refused) * 2 < listed_before
        };
        let shrunk = is_few(refused - again);
        // Under other rules, whatever was refused may be a page: the next read tells.
        let shrunk = (!rules.new_epoch || shrunk == is_few(0)).then_some(shrunk);
        let newcomers = document.pages - refused > kept.len();
        let oldest_only =
            newcomers && !undated && gone.iter().max().is_some_and(|last| are_after(&kept, *last));
        let oldest_only = oldest_only && rules.left != Left::Moved;
        let rolled = (!gone.is_empty()).then_some(oldest_only);
        let learned = rolled == Some(true)
            && rules.left == Left::Gone
            && rules.rolls + 1 >= ROLLS_OF_A_WINDOW;
        Self {
            count: true,
            left: learned,
            shrunk,
            held: shrunk != Some(false) && !rules.shrink_believed,
            rolled,
            learned,
        }
    }
}

/// Pages of a document that were listed before and refused, and how many of those
/// may be admitted at the next look. They are no pages that the source has, and
/// none that came.
fn refused_pages(before: &Snapshot, document: &Document) -> (usize, usize) {
    let is_page = |entry: &&SnapshotEntry| {
        matches!(entry.row, Row::Rejected(_)) && document.lists_as_page(entry.key)
    };
    before.entries().iter().filter(is_page).fold((0, 0), |(refused, again), entry| {
        (refused + 1, again + usize::from(entry.row.may_be_admitted_later()))
    })
}

/// Do these dates come after the last of what left? None may lie before it, and
/// half of them must be younger: equal dates, such as the time of a build, show no
/// order.
fn are_after(kept: &[Option<i64>], last: Option<i64>) -> bool {
    let younger = kept.iter().filter(|date| **date > last).count();
    !kept.is_empty() && kept.iter().all(|date| *date >= last) && younger * 2 >= kept.len()
}

fn is_same_date(a: Option<Lastmod>, b: Option<Lastmod>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.at.as_second() == b.at.as_second() && a.precision == b.precision,
        _ => false,
    }
}

/// Documents are limited to far fewer entries than a u32 counts.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
