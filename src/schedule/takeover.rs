//! The end of a poll that brought a document: what it says is taken over.
//!
//! Chunks first, the end last: until `finish_poll` the source stands as it did,
//! so all of this may be done again after a crash.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::again::Again;
use super::document::Poll;
use super::interval::PollEvent;
use super::issues::{self, Beside};
use super::outcome::{Ended, hints_of, hints_text};
use super::pages::is_gap;
use super::read::{ReadDocument, SMALL_DOCUMENT, has_made_room};
use super::texts::Wanted;
use crate::config::Order;
use crate::diff::snapshot::Snapshot;
use crate::diff::{Left, Rules};
use crate::fetch::{Answer, FetchError, Fetched, Head, Validators};
use crate::model::DocumentKind;
use crate::recrawl::signal::Signal;
use crate::store::hubs::Named;
use crate::store::views::Counts;
use crate::store::{Kept, ReadResult, StoreError};

/// [`ReadResult::window`] of a source whose kind makes it one.
const BY_KIND: u8 = 1;
/// The same of one that has shown to be one.
pub(super) const LEARNED: u8 = 2;

/// Entries of a source whose snapshot is a small one: about as many as there are in a
/// [`SMALL_DOCUMENT`].
const SMALL_SNAPSHOT: u64 = 500;

/// What a document is taken over with.
pub(super) struct Came {
    /// What its source listed before, and when the others of the site were read.
    pub(super) before: Arc<Snapshot>,
    pub(super) siblings: i64,
    /// Hash of the body as sent.
    pub(super) wire: Option<u128>,
    pub(super) head: Head,
    pub(super) again: Again,
    /// Its share of the memory for large documents.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

impl Poll<'_> {
    /// A share of the memory for large documents, to be kept until the end of
    /// the poll; small ones need none.
    pub(super) async fn room_for(
        &self,
        fetched: &Fetched,
    ) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
        // However small it is, what it is compared with may be large.
        if fetched.body.len() <= SMALL_DOCUMENT && self.target.entries <= SMALL_SNAPSHOT {
            return Ok(None);
        }
        self.large_room().await
    }

    /// The same for what is only looked at once more.
    pub(super) async fn room_for_snapshot(
        &self,
    ) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
        if self.target.entries <= SMALL_SNAPSHOT { Ok(None) } else { self.large_room().await }
    }

    async fn large_room(&self) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
        let share = Arc::clone(&self.poller.documents).acquire_owned().await;
        share.map(Some).map_err(|error| StoreError::Engine(error.to_string()))
    }

    /// Takes over what a document says: chunks first, the end last.
    pub(super) async fn take_over(
        &self,
        read: ReadDocument,
        came: Came,
        answer: &Result<Answer, FetchError>,
    ) -> Result<(), StoreError> {
        let Came { before, siblings, wire, head, mut again, mut room } = came;
        let ReadDocument { mut report, decoding, mut document, children, deleted } = read;
        let followed_cut = document.followed_cut;
        let is_empty = document.entries().is_empty() && children.is_empty();
        // News of which none are two days old: a window without entries is one still.
        let without_news = is_empty && report.complete && self.target.window == BY_KIND;
        let by_kind = report.window || without_news && report.kind == DocumentKind::Urlset;
        // Nor does the beginning of a document tell that all of it is recent: what it was
        // before would leave without a word.
        let is_all = report.complete || report.kind.is_feed() || before.is_empty();
        let by_kind = if is_all { by_kind } else { self.target.window == BY_KIND };
        if report.window && is_gap(&before, &document) {
            // Nobody waits for room while a stranger takes the time for older pages.
            room = None;
            document = self.bridge(&before, document, &mut report, &mut again).await;
        }
        let suddenly_empty = is_empty && !before.is_empty() && (report.window || !by_kind);
        let complete = report.complete && !suddenly_empty;
        let (left, document) = match self.what_left(&before, document, complete, siblings).await? {
            Ok(looked) => looked,
            Err(why) => {
                return self.failure(Ended::bad(PollEvent::Failed, "failed", why), answer).await;
            }
        };
        // What a sibling has taken over has not gone by its age.
        let learned = self.target.window == LEARNED && left != Left::Moved;
        let window = by_kind || learned;
        let rules = self.diff_rules(complete, window, siblings, true);
        let rules = Rules { left, has_children: !children.is_empty(), ..rules };
        let has_extensions = document.has_extensions;
        // Not under other rules than before: what those had refused is no news.
        let is_promised = complete && !rules.new_epoch && self.poller.is_promised(self.target);
        let promised_after = is_promised.then(|| Arc::clone(&before));
        let verdict = self.compare(before, document, rules).await;
        let mut verdict = match verdict {
            Ok(verdict) => verdict,
            Err(why) => {
                return self.failure(Ended::bad(PollEvent::Failed, "failed", why), answer).await;
            }
        };
        let (shrunk_at, is_held) = self.shrink(&verdict, &rules);
        let (rolled, learns, same) = (verdict.rolled, verdict.learned, verdict.same);
        let all_judged = !verdict.carried;
        let (restated, dates) = (std::mem::take(&mut verdict.restated), verdict.dates.clone());
        let (newer, is_proven) =
            self.poller.store.newer_of(self.target.id, self.target.host, dates.clone()).await?;
        let origin = self.origin(window).with(newer);
        let lets_go = verdict.lets_go();
        let misses_some = verdict.misses_some();
        let (undecided, held_up_since) = (verdict.undecided, verdict.held_up_since);
        let (next, mut counts) = self.apply(verdict, Some(&again), origin).await?;
        if misses_some {
            self.ask_index().await?;
        }
        self.ask_siblings(held_up_since).await?;
        let talking = has_extensions.then(|| again.clone());
        self.take_texts(talking, Wanted::of(&restated, &next), origin).await?;
        if deleted > 0 {
            counts.removed += self.bury(again.clone()).await?;
        }
        let long_sitemaps = children.iter().filter(|child| child.is_long).count() as u64;
        let children = self.children(&report, children, again).await?;
        let rolls = match rolled {
            Some(true) => self.target.rolls + 1,
            Some(false) => 0,
            None => self.target.rolls,
        };
        let moved = head.redirects.is_empty();
        // Dates that are all set anew at once are no reason to ask more often before
        // fetches prove them right, if anybody learns that.
        let order = self.poller.config.borrow().queue.order;
        let are_stamps = newer.mostly() == Signal::Stamp;
        let is_doubtful = order == Order::Learned && are_stamps && !is_proven;
        let believed = if is_doubtful { 0 } else { counts.changed };
        let news = Counts { changed: believed, ..counts };
        let of_pages = news.new + news.changed + news.touched + news.removed;
        let changed = of_pages + children.added + children.moved > 0;
        // New to the source, whoever has named it before: a hub pushes what its own
        // document lists.
        let (next, newcomers) = self.newcomers(promised_after, next, window).await?;
        let missed_push = is_promised && newcomers + children.added > 0;
        let mut ended = Ended::by_document(&report, complete, suddenly_empty, news, children);
        ended.missed_push = missed_push;
        ended.undecided = undecided;
        if counts.changed > 0 && ended.event == PollEvent::Unchanged {
            ended.result = "changed";
        }
        let sums = self.sum_up(next, same).await?;
        let has_made_room = has_made_room(lets_go || counts.removed > 0, &sums);
        drop(room);
        let refused_urls = sums.admitted.iter().filter(|(fate, _)| **fate != "accepted");
        counts.rejected += refused_urls.map(|(_, urls)| urls).sum::<u64>();
        let hubs = self.hubs_of(&report, &head).await?;
        // Its topic is where it was found: the same bytes found elsewhere have another.
        let is_placed = !moved && hubs != Named::Nothing && report.hints.self_url.is_none();
        let hints = hints_of(&report.hints, &head);
        let beside = Beside {
            held: is_held,
            too_deep: self.is_too_deep(&report),
            refused_sitemaps: children.refused,
            long_sitemaps,
            followed_cut,
        };
        if beside.has_errors() {
            ended.status = "has-errors";
        }
        // It is read anew each time, by however deep indexes may go then.
        let is_known = complete && !beside.too_deep;
        let result = ReadResult {
            kind: report.kind,
            window: if by_kind { BY_KIND } else { u8::from(learned || learns) * LEARNED },
            rolls,
            shrunk_at,
            pending: sums.pending,
            complete,
            epoch: all_judged.then(|| self.rules.epoch()),
            validators: if is_known && moved {
                head.validators.clone()
            } else {
                Validators::default()
            },
            wire_hash: wire.filter(|_| is_known && !is_placed),
            body_hash: (is_known && !is_placed).then_some(decoding.hash),
            bytes: decoding.bytes,
            entries: (report.entries_total + report.sitemaps_total) as u64,
            admitted: serde_json::to_string(&sums.admitted).unwrap_or_default(),
            issues: issues::as_json(&report, &beside),
            hints: hints_text(&hints),
            snapshot: sums.data,
            changed,
            dates,
            hubs: Box::new(hubs),
            missed_push,
            has_made_room,
            tells_dropped: children.are_all,
        };
        let next_poll = self.poller.next(self.target, &ended, &hints);
        self.poller
            .finish(self.target, self.began, ended, answer, next_poll, counts, Kept::Read(result))
            .await
            .map(|_| ())
    }
}
