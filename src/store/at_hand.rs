//! What leasing and settling would else read again and again: rows of URLs that
//! wait in a window, rows that are leased, and names of sites and sources.
//!
//! Keeps: what is here is what the tables say. Jobs that name each row of a URL
//! that they change, by [`AtHand::forget`], say so of themselves at their start
//! ([`AtHand::stays`]); at the end of any other all that is here goes. Only jobs
//! of the first kind are given rows. In debug builds each row that is given
//! out is compared with the table's. Memory is bounded.

use std::sync::Arc;

use super::StoreError;
use super::ahead::Ahead;
use super::ending::Lease;
use super::rows::UrlRow;
use crate::by_id::ById;
use crate::model::{SiteId, SourceId, UrlId};
use crate::queue::window::MAX_AHEAD;

/// Waiting rows kept at most, about 400 bytes each; others are read again when needed.
const WAITING: usize = MAX_AHEAD;
/// Leased rows kept at most, about 400 bytes each; others are read again when
/// their lease ends.
const LEASED: usize = 32_768;
/// Names kept at most of each kind; with more, all are read again.
const NAMES: usize = 4_096;

/// A URL that is leased, and its lease.
pub(super) type Out = (Box<UrlRow>, Lease);

/// Rows and names, by number.
#[derive(Default)]
pub(super) struct AtHand {
    waiting: ById<UrlId, Box<UrlRow>>,
    /// Those that there is no room for.
    beyond: Vec<UrlId>,
    /// Rows let go of for want of room, less those that were taken.
    unused: usize,
    leased: ById<UrlId, Out>,
    sites: ById<SiteId, Option<Arc<str>>>,
    sources: ById<SourceId, Option<Arc<str>>>,
    stays: bool,
    /// Has the job that runs taken or left a row here?
    is_touched: bool,
    /// What is read ahead.
    pub(super) ahead: Ahead,
}

impl AtHand {
    /// A job begins, which may change any row.
    pub(super) fn begin_job(&mut self) {
        self.stays = false;
        self.is_touched = false;
    }

    /// Has the job that runs taken a row from here, or left one?
    pub(super) fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// The job that runs names each row of a URL that it changes, or takes it
    /// from here, and changes no name.
    pub(super) fn stays(&mut self) {
        self.stays = true;
    }

    /// The job has ended.
    pub(super) fn end_job(&mut self) {
        if !self.stays {
            self.clear();
        }
    }

    /// Rows of URLs that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The row of a URL, or its lease, is about to change.
    pub(super) fn forget(&mut self, url: UrlId) {
        self.is_touched = true;
        self.ahead.touch(url);
        self.waiting.remove(&url);
        self.leased.remove(&url);
    }

    /// Is there room for so many more rows of URLs that are in the queue?
    pub(super) fn has_room(&self, rows: usize) -> bool {
        self.waiting.len() + rows <= WAITING
    }

    /// Keeps the row of a URL that is in the queue; where there is no room, only until
    /// [`Self::fit`].
    pub(super) fn keep(&mut self, row: Box<UrlRow>) {
        self.is_touched = true;
        if !self.has_room(1) && !self.waiting.contains_key(&row.id) {
            self.beyond.push(row.id);
        }
        self.waiting.insert(row.id, row);
    }

    /// Lets go of rows that there was no room for and that nobody has taken: others are
    /// taken before them, as a rule.
    pub(super) fn fit(&mut self) {
        for url in self.beyond.drain(..) {
            self.unused += usize::from(self.waiting.remove(&url).is_some());
        }
        if self.unused > WAITING {
            // Those that have the room are not taken: their buffers are forgotten.
            self.waiting.clear();
            self.unused = 0;
        }
    }

    /// The row of a URL that is about to leave the queue.
    pub(super) fn take(&mut self, url: UrlId) -> Option<Box<UrlRow>> {
        self.is_touched = true;
        self.ahead.touch(url);
        let row = if self.stays { self.waiting.remove(&url) } else { None };
        self.unused = self.unused.saturating_sub(usize::from(row.is_some()));
        row
    }

    /// Keeps a URL that has just been leased.
    pub(super) fn keep_leased(&mut self, row: Box<UrlRow>, lease: Lease) {
        self.is_touched = true;
        if self.leased.len() < LEASED {
            self.leased.insert(row.id, (row, lease));
        }
    }

    /// A leased URL, whose lease is about to end, or else to be kept once more.
    pub(super) fn take_leased(&mut self, url: UrlId) -> Option<Out> {
        self.is_touched = true;
        if self.stays { self.leased.remove(&url) } else { None }
    }

    /// The name of a site, as `read` finds it.
    pub(super) fn site_name(
        &mut self,
        site: SiteId,
        read: impl FnOnce() -> Result<Option<String>, StoreError>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        named(&mut self.sites, site, read)
    }

    /// The URL of a source, as `read` finds it.
    pub(super) fn source_url(
        &mut self,
        source: SourceId,
        read: impl FnOnce() -> Result<Option<String>, StoreError>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        named(&mut self.sources, source, read)
    }

    pub(super) fn clear(&mut self) {
        self.ahead.forget_all();
        self.waiting.clear();
        self.beyond.clear();
        self.unused = 0;
        self.leased.clear();
        self.sites.clear();
        self.sources.clear();
    }
}

fn named<K: std::hash::Hash + Eq>(
    names: &mut ById<K, Option<Arc<str>>>,
    id: K,
    read: impl FnOnce() -> Result<Option<String>, StoreError>,
) -> Result<Option<Arc<str>>, StoreError> {
    if let Some(name) = names.get(&id) {
        return Ok(name.clone());
    }
    if names.len() >= NAMES {
        names.clear();
    }
    let name = read()?.map(Arc::from);
    names.insert(id, name.clone());
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::snapshot::EntryHints;
    use crate::model::{CrawlId, HostId, Reason, UrlKind};
    use crate::store::record::Record;
    use crate::store::rows::held;

    fn row(number: usize) -> Box<UrlRow> {
        Box::new(UrlRow {
            id: id(number),
            crawl: CrawlId(1),
            host: HostId(1),
            site: None,
            source: None,
            path: "/".to_owned(),
            listed: true,
            lastmod: None,
            hints: EntryHints::default(),
            reason: Reason::New,
            band: 50,
            due_s: 0,
            attempt: 0,
            has_feedback: false,
            leased: false,
            state: held::QUEUED,
            kind: UrlKind::Page,
            expires_s: None,
            fresh_s: None,
            record: Record::default(),
        })
    }

    fn id(number: usize) -> UrlId {
        UrlId(i64::try_from(number).unwrap())
    }

    fn full() -> AtHand {
        let mut at_hand = AtHand { stays: true, ..AtHand::default() };
        (0..WAITING).for_each(|number| at_hand.keep(row(number)));
        at_hand
    }

    #[test]
    fn rows_without_room_stay_until_what_they_were_read_for_is_done() {
        let mut at_hand = full();
        at_hand.keep(row(WAITING));
        at_hand.keep(row(WAITING + 1));
        assert!(at_hand.take(id(WAITING)).is_some());
        at_hand.fit();
        assert!(at_hand.take(id(WAITING + 1)).is_none());
        assert!(at_hand.take(id(0)).is_some(), "those that were here have the room");
        assert!(at_hand.has_room(1));
    }

    #[test]
    fn rows_that_nobody_takes_do_not_keep_the_room_for_ever() {
        let mut at_hand = full();
        for number in WAITING..=2 * WAITING {
            at_hand.keep(row(number));
            at_hand.fit();
        }
        assert!(at_hand.has_room(WAITING));
    }
}
