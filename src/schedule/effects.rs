//! From a document to the rows of the store: compared, judged, applied in
//! chunks. Each step may be repeated without harm; nothing here ends a poll.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::again::Again;
use super::document::Poll;
use super::read::{self, Absence, Sums, Verdict};
use super::takeover::LEARNED;
use crate::config::{Config, PollRule};
use crate::diff::document::followed_digest;
use crate::diff::snapshot::{EntryHints, Row, Snapshot, SnapshotEntry};
use crate::diff::{self, Document, Left, ROLLS_OF_A_WINDOW, Rules};
use crate::recrawl::later;
use crate::store::views::Counts;
use crate::store::{
    Applied, BATCH, Effect, GRACE_MS, HeldUp, INDEX_SPACING, Origin, Pace, StoreError, Stranded,
};

/// Removals held back by a shrink are believed after this.
const SHRINK_GRACE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A URL that is missing for so long may be dropped, or be what has left a window, though
/// a sibling or the index could not be read in full since then: it may never be.
const PATIENCE_S: i64 = 4 * GRACE_MS / 1000;

/// URLs that left are looked for elsewhere up to so many.
const LEAVERS: usize = 64;

impl Poll<'_> {
    /// A panic here is a defect of ours; the poll ends as it would for any
    /// other effect that could not be kept.
    pub(super) async fn sum_up(
        &self,
        next: Vec<SnapshotEntry>,
        same: bool,
    ) -> Result<Sums, StoreError> {
        self.on_cpu(move || read::sum_up(next, same)).await.map_err(StoreError::Engine)
    }

    /// How many pages are new to the source, where `before` is given; and what
    /// was counted.
    pub(super) async fn newcomers(
        &self,
        before: Option<Arc<Snapshot>>,
        next: Vec<SnapshotEntry>,
        window: bool,
    ) -> Result<(Vec<SnapshotEntry>, u64), StoreError> {
        let Some(before) = before else { return Ok((next, 0)) };
        let counting = self.on_cpu(move || {
            let newcomers = before.newcomers(&next, window);
            (next, newcomers)
        });
        counting.await.map_err(StoreError::Engine)
    }

    pub(super) async fn compare(
        &self,
        before: Arc<Snapshot>,
        document: Document,
        rules: Rules,
    ) -> Result<Verdict, String> {
        // Daemons that share a store take parts of a chunk at the same time.
        let is_alone = !self.poller.store.is_shared();
        let comparing = self.on_cpu(move || {
            let mut verdict = read::compare(&before, document, &rules);
            if is_alone {
                verdict.admissions.sort_by_host();
            }
            verdict
        });
        comparing.await
    }

    /// Applies a verdict chunk by chunk, so that leases get in between, and
    /// fills in the rows of what was admitted.
    pub(super) async fn apply(
        &self,
        verdict: Verdict,
        again: Option<&Again>,
        origin: Origin,
    ) -> Result<(Vec<SnapshotEntry>, Counts), StoreError> {
        let Verdict { admissions, signals, mut absences, previous, .. } = verdict;
        let Verdict { mut next, mut counts, tells_absence, held, .. } = verdict;
        let logged = self.poller.store.logged(origin).await?;
        self.admit_all(admissions, again, origin, &mut next, &mut counts).await?;
        if !logged.is_empty() {
            let stranded = self.poller.store.stranded(read::stranded(&logged, &next)).await?;
            let (refused, missing) = read::refused(stranded, &next);
            absences.extend(refused.into_iter().map(Absence::Unwant));
            if tells_absence {
                counts.missing += missing.len() as u64;
                absences.extend(missing.iter().map(|it| Absence::Missing(it.url)));
                next.extend(missing.into_iter().map(|it| self.missed(it, held)));
            }
        }
        for chunk in signals.chunks(BATCH) {
            let mut effects: Vec<Effect> =
                chunk.iter().filter_map(|step| read::signal(*step, &next)).collect();
            let told = read::without_logged(&mut effects, &logged);
            counts.touched += told.touched;
            counts.regressed += told.regressed;
            self.apply_chunk(effects, origin, &mut next, &mut counts).await?;
        }
        drop(signals);
        let judging = self.on_cpu(move || {
            let absences = read::really_absent(absences, &previous, &next);
            (read::count_missing(&absences, &next, counts.missing), absences, next)
        });
        let (missing, absences, mut next) = judging.await.map_err(StoreError::Engine)?;
        (counts.missing, counts.first_missing) = missing;
        for chunk in absences.chunks(BATCH) {
            let mut effects: Vec<Effect> = chunk.iter().map(|absence| absence.effect()).collect();
            read::without_logged(&mut effects, &logged);
            self.apply_chunk(effects, origin, &mut next, &mut counts).await?;
        }
        Ok((next, counts))
    }

    /// What a read of this source that died had told of as new, and the document no
    /// longer lists: missing for the first time, as if that read had come to its end.
    fn missed(&self, Stranded { url, key, kind }: Stranded, held: bool) -> SnapshotEntry {
        SnapshotEntry {
            key,
            row: Row::Url(url),
            lastmod: None,
            hints: EntryHints::default(),
            digest: followed_digest(kind),
            misses: u8::from(!held),
            missing_since: Some(self.began.as_second()),
        }
    }

    /// Applies one chunk, and fills in the rows that it made.
    pub(super) async fn apply_chunk(
        &self,
        chunk: Vec<Effect>,
        origin: Origin,
        next: &mut [SnapshotEntry],
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        if chunk.is_empty() {
            return Ok(());
        }
        take_over(self.poller.store.apply(origin, chunk).await?, next, counts);
        Ok(())
    }

    /// What the source listed, and since when its siblings and its index have been read,
    /// as far as they are waited for.
    pub(super) async fn snapshot(&self) -> Result<(Arc<Snapshot>, i64), StoreError> {
        let (data, siblings) = self.poller.store.snapshot(self.target).await?;
        let siblings = siblings.max(self.began.as_second() - PATIENCE_S);
        let Some(data) = data else { return Ok((Arc::default(), siblings)) };
        let decoding = self.on_cpu(move || Snapshot::decode(&data));
        match decoding.await.map_err(StoreError::Engine)? {
            Ok(snapshot) => Ok((Arc::new(snapshot), siblings)),
            Err(error) => {
                // Everything is admitted anew; rows that exist are found again.
                tracing::error!(source = %self.target.id, %error, "snapshot dropped");
                Ok((Arc::default(), siblings))
            }
        }
    }

    /// What became of the URLs that a sitemap does not list any more, where that decides
    /// whether it is a window; or why it could not be looked at.
    pub(super) async fn what_left(
        &self,
        before: &Arc<Snapshot>,
        document: Document,
        complete: bool,
        siblings_read_s: i64,
    ) -> Result<Result<(Left, Document), String>, StoreError> {
        let is_learned = self.target.window == LEARNED;
        let decides = is_learned || self.target.rolls + 1 >= ROLLS_OF_A_WINDOW;
        // What is cut off has not left.
        if !decides || !complete || self.target.parent.is_none() {
            return Ok(Ok((Left::Gone, document)));
        }
        let before = Arc::clone(before);
        let looking = self.on_cpu(move || (diff::leavers(&before, &document), document));
        let (leavers, document) = match looking.await {
            Ok(looked) => looked,
            Err(why) => return Ok(Err(why)),
        };
        let step = leavers.len().div_ceil(LEAVERS).max(1);
        let some: Vec<_> = leavers.into_iter().step_by(step).collect();
        let urls = some.iter().map(|(url, _)| *url).collect();
        let elsewhere = self.poller.store.listed_elsewhere(self.target.id, urls).await?;
        // One that has just left may be where nobody has looked yet.
        let is_looked_for = |since: Option<i64>| since.is_some_and(|at| at < siblings_read_s);
        let nowhere = some
            .iter()
            .filter(|(url, since)| is_looked_for(*since) && !elsewhere.contains(url))
            .count();
        let left = match (elsewhere.len(), nowhere) {
            // A window keeps nothing that it misses, so most of what has just left must
            // be elsewhere: some may be listed there anyway, as in a sitemap of the best.
            (moved, _) if is_learned && moved * 2 < some.len() => Left::Gone,
            (0, 0) => Left::Unknown,
            (moved, nowhere) if moved >= nowhere => Left::Moved,
            _ => Left::Gone,
        };
        Ok(Ok((left, document)))
    }

    /// Its index may have named a new sitemap that lists what this one misses, and is not
    /// waited for longer than need be.
    pub(super) async fn ask_index(&self) -> Result<(), StoreError> {
        let (Some(index), Some(read)) = (self.target.parent, self.target.index_read_at) else {
            return Ok(());
        };
        let spacing = self.poller.config.borrow().poll.min.max(INDEX_SPACING);
        let at = later(read, spacing).max(self.began);
        self.poller.store.ask_index(index, at).await
    }

    /// What it misses may have moved to a sitemap beside it, which is not waited for either:
    /// not for what it misses since this second or before.
    pub(super) async fn ask_siblings(&self, held_up_since: Option<i64>) -> Result<(), StoreError> {
        let since = held_up_since.and_then(|at| Timestamp::from_second(at.saturating_add(1)).ok());
        let Some(since) = since else { return Ok(()) };
        let is_free = self.site.poll == PollRule::Adaptive;
        let spacing = {
            let poll = &self.poller.config.borrow().poll;
            poll.min.max(poll.removal_after)
        };
        let pace = is_free.then_some(Pace { now: self.began, spacing });
        let held_up = HeldUp { source: self.target.id, parent: self.target.parent, since, pace };
        self.poller.store.ask_siblings(held_up).await
    }

    pub(super) fn diff_rules(
        &self,
        complete: bool,
        window: bool,
        siblings_read_s: i64,
        may_be_new_epoch: bool,
    ) -> Rules {
        let config: Arc<Config> = Arc::clone(&self.poller.config.borrow());
        let removal_after_s =
            i64::try_from(config.poll.removal_after.as_secs()).unwrap_or(i64::MAX);
        Rules {
            now: self.began,
            complete,
            window,
            part: false,
            new_epoch: may_be_new_epoch && self.target.epoch != self.rules.epoch(),
            removal_polls: config.poll.removal_polls,
            removal_after_s,
            siblings_read_s,
            shrink_believed: self
                .target
                .shrunk_at
                .is_some_and(|at| later(at, SHRINK_GRACE) <= self.began),
            rolls: self.target.rolls,
            left: Left::Gone,
            has_children: false,
        }
    }
}

/// Fills in the rows that a chunk made, and counts what became of it.
pub(super) fn take_over(applied: Applied, next: &mut [SnapshotEntry], counts: &mut Counts) {
    for (slot, row) in applied.rows {
        if let Some(entry) = next.get_mut(slot as usize) {
            entry.row = row;
        }
    }
    // What is missing or rejected is counted over the whole document, not by chunks.
    let more = applied.counts;
    counts.new += more.new;
    counts.changed += more.changed;
    counts.touched += more.touched;
    counts.regressed += more.regressed;
    counts.unchanged += more.unchanged;
    counts.removed += more.removed;
}
