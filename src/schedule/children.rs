//! What an index says of its children: which are new, due, or dropped.
//!
//! An index is believed when it says that a child has changed, and for a week
//! when it says that one has not; what it does not list is only counted here.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use super::Poller;
use super::again::Again;
use super::document::Poll;
use super::read::ListedChild;
use super::robots::place_by;
use crate::diff::document::loc_key;
use crate::model::{Lastmod, Precision, Role};
use crate::parse::{Item, Report};
use crate::recrawl::later;
use crate::store::{ChildEffect, NewSource, PlaceInLine, PollTarget, StoreError};
use crate::url::without_fragment;

/// Children registered at once.
const PART: usize = 500;

/// What an index said of its children.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Children {
    /// New ones.
    pub(super) added: u64,
    /// Others, for which the site's quota has no room.
    pub(super) refused: u64,
    /// Known ones whose date moved, if at least half of them brought something when
    /// their date had moved before: an index that always says that all have changed
    /// is no news.
    pub(super) moved: u64,
    /// Does the read tell of those that are not in it?
    pub(super) are_all: bool,
}

impl Poll<'_> {
    /// What an index asks of its children.
    pub(super) async fn children(
        &self,
        report: &Report,
        listed: Vec<ListedChild>,
        again: Again,
    ) -> Result<Children, StoreError> {
        if self.is_too_deep(report) {
            return Ok(Children::default());
        }
        // What is no index now may have been one, and still have children.
        let known = self.poller.store.children(self.target.id).await?;
        if known.is_empty() && listed.is_empty() {
            return Ok(Children::default());
        }
        let (mut moved_children, mut were_right) = (0, 0);
        let mut known: HashMap<u64, _> =
            known.into_iter().map(|child| (child.key, child)).collect();
        let (mut effects, mut due) = (Vec::new(), Vec::new());
        let (mut fresh, mut moved_ones) = (HashMap::new(), HashMap::new());
        // A document that is suddenly empty is broken, not a farewell.
        let complete = report.complete && (!listed.is_empty() || report.entries_total > 0);
        // An index that lists itself is a loop of one.
        let mut seen = HashSet::from([loc_key(again.manner().seed, self.target.url.as_str())]);
        for child in listed.into_iter().filter(|child| seen.insert(child.key)) {
            let Some(before) = known.remove(&child.key) else {
                // One that is too long has an issue, and no place.
                if !child.is_long {
                    fresh.insert(child.key, 0);
                    due.push(child);
                }
                continue;
            };
            // A date that goes back shows a change too: the newest entry has gone.
            let moved = match (before.lastmod, child.lastmod) {
                (Some(old), Some(new)) => new.is_newer_than(old) || new.is_older_than(old),
                (None, Some(_)) => true,
                (_, None) => false,
            };
            if moved || before.misses > 0 {
                // Of one that was given up nobody knows.
                let counts = moved && !before.retired;
                let said = before.lastmod.map(|lastmod| lastmod.at);
                let was_right = said.is_some_and(|said| before.changed_at >= Some(said));
                moved_children += u64::from(counts);
                were_right += u64::from(counts && was_right);
                moved_ones.insert(child.key, before.id);
                due.push(child);
            } else if before.lastmod.is_some() && child.lastmod.is_none() {
                effects.push(ChildEffect::Undated { id: before.id });
            }
        }
        take_turns(&mut due);
        for (turn, child) in (0..).zip(due) {
            if let Some(place) = fresh.get_mut(&child.key) {
                *place = turn;
            } else if let Some(id) = moved_ones.remove(&child.key) {
                effects.push(ChildEffect::Due { id, lastmod: child.lastmod, turn });
            }
        }
        if complete {
            // Of one that is given up it is noted once: listed again, it is due.
            let gone = known.into_values().filter(|child| !child.retired || child.misses == 0);
            effects.extend(gone.map(|child| ChildEffect::Missing { id: child.id }));
        }
        let (mut added, mut refused) = self.register_children(again, fresh).await?;
        if !effects.is_empty() {
            let more =
                self.poller.store.apply_children(Some(self.target.id), self.id, effects).await?;
            (added, refused) = (added + more.0, refused + more.1);
        }
        Poller::note_refused(&self.site.name, (added, refused));
        let is_news = were_right * 2 >= moved_children;
        Ok(Children {
            added,
            refused,
            moved: if is_news { moved_children } else { 0 },
            are_all: complete,
        })
    }

    /// Registers children that the index did not list before, from a second
    /// reading of it.
    async fn register_children(
        &self,
        again: Again,
        mut fresh: HashMap<u64, u32>,
    ) -> Result<(u64, u64), StoreError> {
        if fresh.is_empty() {
            return Ok((0, 0));
        }
        let parent = Some((self.target.id, self.target.depth + 1));
        let place = place_by(self.target, 0);
        let reading = self.in_parts(move |hand_on| {
            let mut part = Vec::new();
            again.read_own(&mut |item| {
                let Item::Sitemap(child) = item else { return ControlFlow::Continue(()) };
                let Ok(url) = Url::parse(child.loc).map(without_fragment) else {
                    return ControlFlow::Continue(());
                };
                let key = loc_key(again.manner().seed, url.as_str());
                let Some(turn) = fresh.remove(&key) else { return ControlFlow::Continue(()) };
                part.push(ChildEffect::Add(NewSource {
                    url,
                    role: Role::Sitemap,
                    named_by: "index",
                    parent,
                    lastmod: child.lastmod,
                    place: PlaceInLine { turn, ..place },
                }));
                if part.len() < PART {
                    return ControlFlow::Continue(());
                }
                hand_on(std::mem::take(&mut part))
            });
            // Whether anybody takes the last one is their business.
            let _ = hand_on(part);
        });
        let mut parts = reading.await;
        let (mut added, mut refused) = (0, 0);
        while let Some(part) = parts.next().await {
            let more =
                self.poller.store.apply_children(Some(self.target.id), self.id, part).await?;
            (added, refused) = (added + more.0, refused + more.1);
        }
        parts.end().await?;
        Ok((added, refused))
    }

    /// Are the children of this index deeper than indexes may go?
    pub(super) fn is_too_deep(&self, report: &Report) -> bool {
        report.sitemaps_total > 0
            && self.target.depth + 1 > self.poller.config.borrow().fetch.max_index_depth
    }
}

/// In which order children are read: those that changed last first, as far as their
/// index says so, else as they are listed.
fn take_turns(due: &mut [ListedChild]) {
    due.sort_by_key(|child| Reverse(child.lastmod.map(|lastmod| lastmod.at)));
}

/// Has the child been read since its index says it last changed? A date is
/// over when all of it is.
pub(super) fn index_says_unchanged(target: &PollTarget) -> bool {
    let (Some(lastmod), Some(read)) = (target.index_lastmod, target.last_complete_at) else {
        return false;
    };
    // What has no hash is to be read anew, whatever is said of it.
    let is_known = target.body_hash.is_some();
    is_known
        && target.pending == 0
        && target.failures == 0
        && end_of(lastmod) < read
        && is_heard(target)
}

/// Has the index been read to its end of late, so that what it says may be held against the
/// child? One that has failed for as long, is given up, or comes less than half as often
/// as the child says nothing.
fn is_heard(target: &PollTarget) -> bool {
    let late = Duration::from_millis(target.interval_ms.unsigned_abs().saturating_mul(2));
    target.index_complete_at.is_some_and(|at| target.due_at <= later(at, late))
}

/// The last instant that a date may stand for.
fn end_of(lastmod: Lastmod) -> Timestamp {
    const DAY: u64 = 24 * 3_600;
    let seconds = match lastmod.precision {
        Precision::Year => 366 * DAY,
        Precision::Month => 31 * DAY,
        // A day lasts until it has ended in every zone.
        Precision::Day => DAY + DAY / 2,
        Precision::Minute => 60,
        Precision::Second | Precision::Fraction => 1,
    };
    later(lastmod.at, Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_over_when_all_of_it_is_in_every_zone() {
        for (date, end) in [
            ("2024", "2025-01-01T00:00:00Z"),
            ("2026-10", "2026-11-01T00:00:00Z"),
            ("2026-11-21", "2026-11-22T12:00:00Z"),
            ("2026-11-21T10:05Z", "2026-11-21T10:06:00Z"),
            ("2026-11-21T10:05:30Z", "2026-11-21T10:05:31Z"),
            ("2026-11-21T10:05:30.5Z", "2026-11-21T10:05:31.5Z"),
        ] {
            let lastmod = crate::date::lastmod(date).expect("a date");
            assert_eq!(end_of(lastmod), end.parse().expect("a timestamp"), "{date}");
        }
    }
}
