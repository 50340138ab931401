//! The work of one document on a thread for that: decode, parse, compare, judge.
//!
//! Takes what was fetched and what was known, and yields effects and the next
//! snapshot. Nothing here waits for anything, and nothing here is kept: until
//! the store has it, nothing has happened.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use url::Url;

use super::admissions::Admissions;
use super::barred::Barred;
use super::defects;
use crate::config::MAX_SOURCE_BYTES;
use crate::diff::dates::{Dates, dates};
use crate::diff::document::{Collector, loc_key};
use crate::diff::snapshot::{Rejection, Row, Snapshot, SnapshotEntry};
use crate::diff::{self, Document, Rules, Step};
use crate::fetch::Fetched;
use crate::fetch::body::{Decoded, Decoding, Strict};
use crate::model::{ChangeKind, Follow, Lastmod, UrlId};
use crate::parse::doubt::Doubts;
use crate::parse::{self, Context, Issue, IssueCode, Item, Limits, Report};
use crate::store::views::Counts;
use crate::store::{Effect, Stranded};
use crate::url::without_fragment;

/// Bytes of a body as sent, up to which its document is small.
pub(super) const SMALL_DOCUMENT: u64 = 32 * 1024;

/// A child as an index lists it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListedChild {
    /// Keyed hash of its URL; of what is listed, if that is none.
    pub(super) key: u64,
    pub(super) lastmod: Option<Lastmod>,
    /// Is its URL, as it is sent, longer than that of a source may be?
    pub(super) is_long: bool,
}

/// One document, read.
pub(super) struct ReadDocument {
    pub(super) report: Report,
    pub(super) decoding: Decoding,
    pub(super) document: Document,
    pub(super) children: Vec<ListedChild>,
    /// Pages that it says are gone.
    pub(super) deleted: u64,
}

/// How a document is read: the same way each time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) limits: Limits,
    pub(super) max_body_bytes: u64,
    pub(super) follow: Follow,
    pub(super) seed: u64,
    pub(super) now: Timestamp,
}

impl Manner {
    pub(super) fn context<'a>(&self, fetched: &'a Fetched) -> Context<'a> {
        Context {
            base: &fetched.head.final_url,
            content_type: fetched.head.content_type.as_deref(),
            limits: self.limits,
        }
    }

    pub(super) fn decoded(&self, fetched: &Fetched) -> Decoded {
        Decoded::new(fetched.body.clone(), &fetched.content_encoding, self.max_body_bytes)
    }
}

/// Decodes and parses a body. Of what the source listed `before` no texts are
/// kept, nor of anything that is needed once at most: for that, a document is
/// read again.
pub(super) fn read(
    fetched: &Fetched,
    manner: &Manner,
    before: &Snapshot,
    barred: &mut Barred,
) -> ReadDocument {
    let Manner { seed, now, follow, max_body_bytes, .. } = *manner;
    let cut_at = fetched.cut.then_some(fetched.body.len());
    let mut decoded = Strict::new(manner.decoded(fetched), max_body_bytes, cut_at);
    let mut doubts = Doubts::new(now);
    let collector = Collector::following(seed, now, follow, &fetched.head.final_url);
    let mut collector = collector.knowing(before);
    if fetched.body.len() > SMALL_DOCUMENT {
        collector = collector.expecting(manner.limits.max_urls.min(Limits::default().max_urls));
    }
    let mut children = Vec::new();
    let mut deleted = 0;
    let context = manner.context(fetched);
    let mut report = parse::parse(&mut decoded, &context, &mut |item| {
        match item {
            Item::Entry(entry) => {
                doubts.date(&entry);
                if barred.has(entry.loc) {
                    doubts.note(IssueCode::UrlBlocked, &entry, entry.loc);
                }
                collector.push(&entry);
            }
            Item::Sitemap(child) => {
                let url = Url::parse(child.loc).map(without_fragment);
                let text = url.as_ref().map_or(child.loc, Url::as_str);
                let is_long = text.len() > MAX_SOURCE_BYTES;
                children.push(ListedChild {
                    key: loc_key(seed, text),
                    lastmod: child.lastmod,
                    is_long,
                });
            }
            Item::Deleted(_) => deleted += 1,
        }
        ControlFlow::Continue(())
    });
    let decoding = decoded.outcome();
    let document = collector.finish();
    let repetition =
        document.first_duplicate.and_then(|key| first_repetition(fetched, manner, key));
    let repetition = repetition.map(|first| Issue { count: document.duplicates, ..first });
    defects::add(&mut report, decoded.lack(), doubts, repetition);
    report.complete &= document.followed_cut == 0;
    let head = &fetched.head;
    parse::html::complete_hints(&head.links, &head.final_url, &mut report.hints);
    if !report.kind.is_feed() {
        // Older entries are a matter of feeds; a hub may push anything.
        report.hints.next_page = None;
    }
    ReadDocument { report, decoding, document, children, deleted }
}

/// Where the page with this key is listed for the second time: the document is
/// read up to there once more, which costs less than a place for every entry.
fn first_repetition(fetched: &Fetched, manner: &Manner, key: u64) -> Option<Issue> {
    let mut doubts = Doubts::new(manner.now);
    let mut times = 0;
    parse::parse(&mut manner.decoded(fetched), &manner.context(fetched), &mut |item| match item {
        Item::Entry(entry) if loc_key(manner.seed, entry.loc) == key => {
            doubts.repetition(&entry);
            times += 1;
            if times < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
        _ => ControlFlow::Continue(()),
    });
    doubts.into_issues().pop()
}

/// What a read asks of the store, before it is put into effects: those are
/// made in chunks, since all of them at once would take too much memory.
#[allow(clippy::struct_excessive_bools)] // independent findings, each told by its name
pub(super) struct Verdict {
    /// What is listed and has to be judged by the site's rules: the first to be applied.
    pub(super) admissions: Admissions,
    /// What is said of rows that are known, in document order.
    pub(super) signals: Vec<Step>,
    /// Pages that the source may list no longer, each by the effect it gets
    /// unless another spelling of it is still listed.
    pub(super) absences: Vec<Absence>,
    /// Slots of entries that are judged anew, and the rows they stood for.
    pub(super) previous: Vec<(u32, UrlId)>,
    /// The next snapshot; rows of admitted URLs are filled in as they are known.
    pub(super) next: Vec<SnapshotEntry>,
    /// Slots of entries whose extensions may differ from what is stored.
    pub(super) restated: Vec<u32>,
    /// What needs no effect.
    pub(super) counts: Counts,
    /// As [`diff::Diff::tells_absence`].
    pub(super) tells_absence: bool,
    /// As [`diff::Diff::shrunk`].
    pub(super) shrunk: Option<bool>,
    pub(super) held: bool,
    pub(super) rolled: Option<bool>,
    pub(super) learned: bool,
    /// As [`diff::Diff::carried`].
    pub(super) carried: bool,
    /// As [`diff::Diff::undecided`].
    pub(super) undecided: bool,
    /// As [`diff::Diff::held_up_since`].
    pub(super) held_up_since: Option<i64>,
    /// How its lastmods compare with those of the read before.
    pub(super) dates: Arc<Dates>,
    /// Is it entry by entry what it was? Then the snapshot need not be written.
    pub(super) same: bool,
}

/// A page that a source may list no longer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Absence {
    /// For the first time.
    Missing(UrlId),
    /// For good.
    Drop(UrlId),
    /// It is listed, but new rules refuse it.
    Unwant(UrlId),
}

impl Absence {
    pub(super) fn effect(self) -> Effect {
        match self {
            Self::Missing(url) => Effect::Missing { url },
            Self::Drop(url) => Effect::Drop { url },
            Self::Unwant(url) => Effect::Unwant { url },
        }
    }
}

impl Verdict {
    /// Does it let go of URLs, whoever else has them then? What a client pushed is
    /// the site's no more, and is not removed.
    pub(super) fn lets_go(&self) -> bool {
        self.absences.iter().any(|absence| !matches!(absence, Absence::Missing(_)))
    }

    /// Does it miss URLs that were listed at the last read?
    pub(super) fn misses_some(&self) -> bool {
        self.absences.iter().any(|absence| matches!(absence, Absence::Missing(_)))
    }
}

/// Compares a document with what its source listed before.
pub(super) fn compare(before: &Snapshot, document: Document, rules: &Rules) -> Verdict {
    let mut diff = diff::diff(before, &document, rules);
    let same = diff.is_empty(before);
    let dates = Arc::new(dates(before, &document, rules));
    let counts = Counts { unchanged: diff.unchanged, missing: diff.missing, ..Counts::default() };
    let (mut wanted, mut signals) = (Vec::new(), Vec::new());
    let (mut absences, mut previous) = (Vec::new(), Vec::new());
    for step in std::mem::take(&mut diff.steps) {
        match step {
            Step::Admit { entry, slot, previous: row } => {
                wanted.push((entry, slot));
                previous.extend(row.and_then(url_of).map(|url| (slot, url)));
            }
            Step::Missing { slot } => {
                let row = diff.next.get(slot as usize).map(|entry| entry.row);
                absences.extend(row.and_then(url_of).map(Absence::Missing));
            }
            Step::Drop { row } => absences.extend(url_of(row).map(Absence::Drop)),
            signal => signals.push(signal),
        }
    }
    Verdict {
        admissions: Admissions::new(document, wanted),
        signals,
        absences,
        previous,
        next: diff.next,
        restated: diff.restated,
        counts,
        tells_absence: diff.tells_absence,
        shrunk: diff.shrunk,
        held: diff.held,
        rolled: diff.rolled,
        learned: diff.learned,
        carried: diff.carried,
        undecided: diff.undecided,
        held_up_since: diff.held_up_since,
        dates,
        same,
    }
}

/// The effect of what is said of a row that is known.
pub(super) fn signal(step: Step, next: &[SnapshotEntry]) -> Option<Effect> {
    let entry_at = |slot: u32| next.get(slot as usize);
    match step {
        Step::Changed { slot } => {
            let entry = entry_at(slot)?;
            Some(Effect::Changed {
                url: url_of(entry.row)?,
                lastmod: entry.lastmod?,
                hints: entry.hints,
            })
        }
        Step::Touched { slot } => {
            let entry = entry_at(slot)?;
            Some(Effect::Touched {
                url: url_of(entry.row)?,
                lastmod: entry.lastmod,
                hints: entry.hints,
            })
        }
        Step::Regressed { slot } => {
            let entry = entry_at(slot)?;
            Some(Effect::Regressed { url: url_of(entry.row)?, hints: entry.hints })
        }
        Step::Hints { slot } => {
            let entry = entry_at(slot)?;
            Some(Effect::Hints {
                url: url_of(entry.row)?,
                lastmod: entry.lastmod,
                hints: entry.hints,
            })
        }
        Step::Admit { .. } | Step::Missing { .. } | Step::Drop { .. } => None,
    }
}

fn url_of(row: Row) -> Option<UrlId> {
    match row {
        Row::Url(url) => Some(url),
        Row::Rejected(_) => None,
    }
}

/// Takes out what a read that died in the middle has told already, where the
/// row itself cannot show it; says how much.
pub(super) fn without_logged(
    effects: &mut Vec<Effect>,
    logged: &HashSet<(ChangeKind, UrlId)>,
) -> Counts {
    let mut told = Counts::default();
    if logged.is_empty() {
        return told;
    }
    effects.retain(|effect| {
        let (kind, url) = match effect {
            Effect::Touched { url, .. } => (ChangeKind::Touched, *url),
            Effect::Regressed { url, .. } => (ChangeKind::Regressed, *url),
            Effect::Missing { url } => (ChangeKind::Missing, *url),
            _ => return true,
        };
        let is_new = !logged.contains(&(kind, url));
        told.touched += u64::from(!is_new && kind == ChangeKind::Touched);
        told.regressed += u64::from(!is_new && kind == ChangeKind::Regressed);
        is_new
    });
    told
}

/// Pages that a read of this source told of before it died, and that are no longer
/// listed: no snapshot has them.
pub(super) fn stranded(
    logged: &HashSet<(ChangeKind, UrlId)>,
    next: &[SnapshotEntry],
) -> Vec<UrlId> {
    let is_new = |&(kind, url): &(ChangeKind, UrlId)| (kind == ChangeKind::New).then_some(url);
    let mut stranded: HashSet<UrlId> = logged.iter().filter_map(is_new).collect();
    for url in next.iter().filter_map(|entry| url_of(entry.row)) {
        stranded.remove(&url);
    }
    stranded.into_iter().collect()
}

/// Of those the ones that are listed, but refused by rules that came after that read, and
/// the ones that are not listed.
pub(super) fn refused(
    stranded: Vec<Stranded>,
    next: &[SnapshotEntry],
) -> (Vec<UrlId>, Vec<Stranded>) {
    if stranded.is_empty() {
        return (Vec::new(), stranded);
    }
    let is_refused = |entry: &&SnapshotEntry| matches!(entry.row, Row::Rejected(_));
    let keys: HashSet<u64> = next.iter().filter(is_refused).map(|entry| entry.key).collect();
    let (refused, missing): (Vec<_>, _) =
        stranded.into_iter().partition(|it| keys.contains(&it.key));
    (refused.into_iter().map(|it| it.url).collect(), missing)
}

/// What is left of the absences once the rows of all entries are known: a page
/// that another entry stands for is neither missing nor gone.
pub(super) fn really_absent(
    absences: Vec<Absence>,
    previous: &[(u32, UrlId)],
    next: &[SnapshotEntry],
) -> Vec<Absence> {
    let mut left = absences;
    let moved = |&&(slot, url): &&(u32, UrlId)| {
        next.get(slot as usize).is_none_or(|entry| entry.row != Row::Url(url))
    };
    left.extend(previous.iter().filter(moved).map(|&(slot, url)| {
        let row = next.get(slot as usize).map(|entry| entry.row);
        // Refused by new rules is not gone: nobody needs to go and look.
        if matches!(row, Some(Row::Rejected(_))) {
            Absence::Unwant(url)
        } else {
            Absence::Drop(url)
        }
    }));
    if left.is_empty() {
        return left;
    }
    let (mut listed, mut held) = (HashSet::new(), HashSet::new());
    for entry in next {
        if let Row::Url(url) = entry.row {
            held.insert(url);
            if entry.missing_since.is_none() {
                listed.insert(url);
            }
        }
    }
    left.retain(|absence| match absence {
        Absence::Missing(url) => !listed.contains(url),
        // Once is enough, however many spellings went.
        Absence::Drop(url) | Absence::Unwant(url) => held.insert(*url),
    });
    left
}

/// Of so many absent entries the pages, and those of them that are told to be missing now.
pub(super) fn count_missing(
    absences: &[Absence],
    next: &[SnapshotEntry],
    entries: u64,
) -> (u64, u64) {
    if entries == 0 {
        return (0, 0);
    }
    let row = |entry: &SnapshotEntry| match entry.row {
        Row::Url(url) => Some(url),
        Row::Rejected(_) => None,
    };
    let is_missing = |entry: &&SnapshotEntry| entry.missing_since.is_some();
    let mut pages: HashSet<UrlId> = next.iter().filter(is_missing).filter_map(row).collect();
    for url in next.iter().filter(|entry| !is_missing(entry)).filter_map(row) {
        pages.remove(&url);
    }
    let of = |wanted: fn(&Absence) -> bool| absences.iter().filter(|a| wanted(a)).count() as u64;
    let gone = of(|absence| matches!(absence, Absence::Drop(_)));
    let first = of(|absence| matches!(absence, Absence::Missing(_)));
    // Some are missing whose absence does not count now.
    ((pages.len() as u64 + gone).min(entries), first)
}

/// What is kept of the next snapshot, worked out where there is time for it.
pub(super) struct Sums {
    /// Entries by what became of them.
    pub(super) admitted: BTreeMap<&'static str, u64>,
    /// Entries that are missing now.
    pub(super) pending: u64,
    /// The snapshot, encoded; none where it is what is stored.
    pub(super) data: Option<Vec<u8>>,
}

/// Sums up the next snapshot, and encodes it unless it is the `same`.
pub(super) fn sum_up(next: Vec<SnapshotEntry>, same: bool) -> Sums {
    let (admitted, pending) = (admitted(&next), pending(&next));
    let data = (!same).then(|| Snapshot::from_unsorted(next).encode());
    Sums { admitted, pending, data }
}

/// Did a read let go of URLs while the quota refused others, which may have room now?
pub(super) fn has_made_room(has_let_go: bool, sums: &Sums) -> bool {
    has_let_go && sums.admitted.contains_key(Rejection::Quota.as_str())
}

/// Entries of a snapshot by what became of them, for the report.
fn admitted(entries: &[SnapshotEntry]) -> BTreeMap<&'static str, u64> {
    let mut by_fate = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.missing_since.is_none()) {
        let fate = match entry.row {
            Row::Url(_) => "accepted",
            Row::Rejected(why) => why.as_str(),
        };
        *by_fate.entry(fate).or_insert(0) += 1;
    }
    by_fate
}

/// Entries of a snapshot that are missing now.
fn pending(entries: &[SnapshotEntry]) -> u64 {
    entries.iter().filter(|entry| entry.missing_since.is_some()).count() as u64
}

/// What a source listed last time, as if it had been read again: for an answer
/// that says that nothing has changed while some entries are missing.
pub(super) fn same_again(before: &Snapshot) -> Document {
    Document::of_snapshot(before)
}
