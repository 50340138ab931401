//! The work of one document on the blocking pool: decode, parse, compare, judge.
//!
//! Takes what was fetched and what was known, and yields effects and the next
//! snapshot. Nothing here waits for anything, and nothing here is kept: until
//! the store has it, nothing has happened.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use jiff::Timestamp;
use url::Url;

use super::defects;
use super::tombstones::Tombstone;
use crate::diff::dates::{Dates, dates};
use crate::diff::document::Collector;
use crate::diff::snapshot::{Row, Snapshot, SnapshotEntry};
use crate::diff::{self, Diff, Document, Rules, Step};
use crate::fetch::Fetched;
use crate::fetch::body::{Decoded, Decoding, Strict};
use crate::model::{ChangeKind, Follow, Lastmod, UrlId};
use crate::parse::doubt::Doubts;
use crate::parse::{self, Context, Item, Limits, Report};
use crate::store::Effect;
use crate::store::views::Counts;
use crate::url::SiteRules;

/// A child as an index lists it.
#[derive(Debug, Clone)]
pub(super) struct ListedChild {
    pub(super) loc: String,
    pub(super) lastmod: Option<Lastmod>,
}

/// One document, read.
pub(super) struct ReadDocument {
    pub(super) report: Report,
    pub(super) decoding: Decoding,
    pub(super) document: Document,
    pub(super) children: Vec<ListedChild>,
    pub(super) deleted: Vec<Tombstone>,
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

/// Decodes and parses a body.
pub(super) fn read(fetched: &Fetched, manner: &Manner) -> ReadDocument {
    let Manner { seed, now, follow, max_body_bytes, .. } = *manner;
    let cut_at = fetched.cut.then_some(fetched.body.len() as u64);
    let mut decoded = Strict::new(manner.decoded(fetched), max_body_bytes, cut_at);
    let mut doubts = Doubts::new(now);
    let mut collector = Collector::following(seed, now, follow, &fetched.head.final_url);
    let mut children = Vec::new();
    let mut deleted = Vec::new();
    let context = manner.context(fetched);
    let mut report = parse::parse(&mut decoded, &context, &mut |item| {
        match item {
            Item::Entry(entry) => {
                doubts.date(&entry);
                collector.push(&entry);
            }
            Item::Sitemap(child) => {
                children.push(ListedChild { loc: child.loc.to_owned(), lastmod: child.lastmod });
            }
            Item::Deleted(page) => deleted.push(Tombstone::of(page)),
        }
        ControlFlow::Continue(())
    });
    let decoding = decoded.outcome();
    let document = collector.finish();
    defects::add(&mut report, decoded.lack(), doubts, document.duplicates);
    report.complete &= document.followed_cut == 0;
    ReadDocument { report, decoding, document, children, deleted }
}

/// What a read asks of the store.
#[allow(clippy::struct_excessive_bools)] // independent findings, each told by its name
pub(super) struct Verdict {
    /// In the order in which they are to be applied.
    pub(super) effects: Vec<Effect>,
    /// Pages that the source may list no longer, each by the effect it gets
    /// unless another spelling of it is still listed.
    pub(super) absences: Vec<Effect>,
    /// Slots of entries that are judged anew, and the rows they stood for.
    pub(super) previous: Vec<(u32, UrlId)>,
    /// The next snapshot; rows of admitted URLs are filled in as they are known.
    pub(super) next: Vec<SnapshotEntry>,
    /// Slots of entries whose extensions may differ from what is stored.
    pub(super) restated: Vec<u32>,
    /// What needs no effect.
    pub(super) counts: Counts,
    pub(super) shrunk: bool,
    pub(super) held: bool,
    pub(super) rolled: Option<bool>,
    pub(super) learned: bool,
    /// How its lastmods compare with those of the read before.
    pub(super) dates: Dates,
    /// Is it entry by entry what it was? Then the snapshot need not be written.
    pub(super) same: bool,
}

/// Compares a document with what its source listed before and judges what is
/// new by the site's rules.
pub(super) fn judge(
    before: &Snapshot,
    document: &Document,
    rules: &Rules,
    site: &SiteRules,
    source: &Url,
) -> Verdict {
    let mut diff = diff::diff(before, document, rules);
    let same = diff.is_empty(before);
    let mut counts =
        Counts { unchanged: diff.unchanged, missing: diff.missing, ..Counts::default() };
    let steps = std::mem::take(&mut diff.steps);
    let mut effects = Vec::with_capacity(steps.len());
    let (mut absences, mut previous) = (Vec::new(), Vec::new());
    for step in steps {
        if let Step::Admit { slot, previous: Some(Row::Url(url)), .. } = step {
            previous.push((slot, url));
        }
        match effect_of(step, &mut diff, document, site, source, &mut counts) {
            Some(absence @ (Effect::Missing { .. } | Effect::Drop { .. })) => {
                absences.push(absence);
            }
            Some(effect) => effects.push(effect),
            None => {}
        }
    }
    Verdict {
        effects,
        absences,
        previous,
        next: diff.next,
        restated: diff.restated,
        counts,
        shrunk: diff.shrunk,
        held: diff.held,
        rolled: diff.rolled,
        learned: diff.learned,
        dates: dates(before, document, rules.now),
        same,
    }
}

fn effect_of(
    step: Step,
    diff: &mut Diff,
    document: &Document,
    site: &SiteRules,
    source: &Url,
    counts: &mut Counts,
) -> Option<Effect> {
    let entry_at = |diff: &Diff, slot: u32| diff.next.get(slot as usize).copied();
    match step {
        Step::Admit { entry, slot, .. } => {
            let entry = document.entries().get(entry as usize)?;
            let loc = document.loc(entry);
            match site.admit(loc, source) {
                Ok(url) => Some(Effect::Admit {
                    slot,
                    raw: url.respelled.then(|| loc.to_owned()),
                    url,
                    lastmod: entry.lastmod,
                    hints: entry.hints,
                    kind: entry.kind,
                }),
                Err(why) => {
                    counts.rejected += 1;
                    let row = Row::Rejected(why);
                    if let Some(next) = diff.next.get_mut(slot as usize) {
                        next.row = row;
                    }
                    None
                }
            }
        }
        Step::Changed { slot } => {
            let entry = entry_at(diff, slot)?;
            Some(Effect::Changed {
                url: url_of(entry.row)?,
                lastmod: entry.lastmod?,
                hints: entry.hints,
            })
        }
        Step::Touched { slot } => {
            let entry = entry_at(diff, slot)?;
            Some(Effect::Touched { url: url_of(entry.row)?, hints: entry.hints })
        }
        Step::Regressed { slot } => {
            let entry = entry_at(diff, slot)?;
            Some(Effect::Regressed { url: url_of(entry.row)?, hints: entry.hints })
        }
        Step::Hints { slot } => {
            let entry = entry_at(diff, slot)?;
            Some(Effect::Hints {
                url: url_of(entry.row)?,
                lastmod: entry.lastmod,
                hints: entry.hints,
            })
        }
        Step::Missing { slot } => Some(Effect::Missing { url: url_of(entry_at(diff, slot)?.row)? }),
        Step::Drop { row } => Some(Effect::Drop { url: url_of(row)? }),
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

/// What is left of the absences once the rows of all entries are known: a page
/// that another entry stands for is neither missing nor gone.
pub(super) fn really_absent(
    absences: Vec<Effect>,
    previous: &[(u32, UrlId)],
    next: &[SnapshotEntry],
) -> Vec<Effect> {
    let mut left: Vec<Effect> = absences;
    let moved = |&&(slot, url): &&(u32, UrlId)| {
        next.get(slot as usize).is_none_or(|entry| entry.row != Row::Url(url))
    };
    left.extend(previous.iter().filter(moved).map(|&(slot, url)| {
        let row = next.get(slot as usize).map(|entry| entry.row);
        // Refused by new rules is not gone: nobody needs to go and look.
        if matches!(row, Some(Row::Rejected(_))) {
            Effect::Unwant { url }
        } else {
            Effect::Drop { url }
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
        Effect::Missing { url } => !listed.contains(url),
        // Once is enough, however many spellings went.
        Effect::Drop { url } | Effect::Unwant { url } => held.insert(*url),
        _ => true,
    });
    left
}

/// What is kept of the next snapshot, worked out where there is time for it.
pub(super) struct Sums {
    /// Entries by what became of them.
    pub(super) admitted: BTreeMap<&'static str, u64>,
    /// Entries that are missing now.
    pub(super) pending: u64,
    /// The snapshot, encoded.
    pub(super) data: Vec<u8>,
}

/// Sums up and encodes the next snapshot.
pub(super) fn sum_up(next: Vec<SnapshotEntry>) -> Sums {
    let (admitted, pending) = (admitted(&next), pending(&next));
    Sums { admitted, pending, data: Snapshot::from_unsorted(next).encode() }
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
