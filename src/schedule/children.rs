//! What an index says of its children: which are new, due, or dropped.
//!
//! An index is believed when it says that a child has changed, and for a week
//! when it says that one has not; what it does not list is only counted here.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use super::Poller;
use super::document::Poll;
use super::read::ListedChild;
use crate::model::{DocumentKind, Lastmod, Precision, Role};
use crate::parse::Report;
use crate::recrawl::later;
use crate::store::{ChildEffect, NewSource, PollTarget, StoreError};

impl Poll<'_> {
    /// What an index asks of its children; says how many are new, and how many
    /// the site's quota refused.
    pub(super) async fn children(
        &self,
        report: &Report,
        listed: Vec<ListedChild>,
    ) -> Result<(u64, u64), StoreError> {
        let is_index = matches!(report.kind, DocumentKind::Index | DocumentKind::Mixed);
        if !is_index && self.target.kind.is_none_or(|kind| kind != DocumentKind::Index) {
            return Ok((0, 0));
        }
        if self.is_too_deep(report) {
            return Ok((0, 0));
        }
        let depth = self.target.depth + 1;
        let known = self.poller.store.children(self.target.id).await?;
        let mut known: HashMap<String, _> =
            known.into_iter().map(|child| (child.url.clone(), child)).collect();
        let mut effects = Vec::new();
        let complete = report.complete && !listed.is_empty();
        for child in listed {
            let Ok(url) = Url::parse(&child.loc) else { continue };
            // An index that lists itself is a loop of one.
            if url == self.target.url {
                continue;
            }
            match known.remove(url.as_str()) {
                None => effects.push(ChildEffect::Add(NewSource {
                    url,
                    role: Role::Sitemap,
                    named_by: "index",
                    parent: Some((self.target.id, depth)),
                    lastmod: child.lastmod,
                })),
                Some(before) => {
                    let moved = match (before.lastmod, child.lastmod) {
                        (Some(old), Some(new)) => new.is_newer_than(old),
                        (None, Some(_)) => true,
                        (_, None) => false,
                    };
                    if moved || before.misses > 0 {
                        effects.push(ChildEffect::Due { id: before.id, lastmod: child.lastmod });
                    }
                }
            }
        }
        if complete {
            let gone = known.into_values().filter(|child| !child.retired);
            effects.extend(gone.map(|child| ChildEffect::Missing { id: child.id }));
        }
        if effects.is_empty() {
            return Ok((0, 0));
        }
        let registered = self.poller.store.apply_children(self.id, effects).await?;
        Poller::note_refused(&self.site.name, registered);
        Ok(registered)
    }

    /// Are the children of this index deeper than indexes may go?
    pub(super) fn is_too_deep(&self, report: &Report) -> bool {
        report.sitemaps_total > 0
            && self.target.depth + 1 > self.poller.config.borrow().fetch.max_index_depth
    }
}

/// Has the child been read since its index says it last changed? A date is
/// over when all of it is.
pub(super) fn index_says_unchanged(target: &PollTarget) -> bool {
    let (Some(lastmod), Some(read)) = (target.index_lastmod, target.last_complete_at) else {
        return false;
    };
    target.parent.is_some() && target.pending == 0 && target.failures == 0 && end_of(lastmod) < read
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
