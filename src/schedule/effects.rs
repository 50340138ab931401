//! From a document to the rows of the store: compared, judged, applied in
//! chunks. Each step may be repeated without harm; nothing here ends a poll.

use std::sync::Arc;
use std::time::Duration;

use super::document::Poll;
use super::read::{self, Sums, Verdict};
use crate::config::Config;
use crate::diff::snapshot::{Snapshot, SnapshotEntry};
use crate::diff::{Document, Rules};
use crate::recrawl::later;
use crate::store::views::Counts;
use crate::store::{CHUNK, Effect, Origin, StoreError};

/// Removals held back by a shrink are believed after this.
const SHRINK_GRACE: Duration = Duration::from_secs(7 * 24 * 3_600);

impl Poll<'_> {
    /// A panic here is a defect of ours; the poll ends as it would for any
    /// other effect that could not be kept.
    pub(super) async fn sum_up(&self, next: Vec<SnapshotEntry>) -> Result<Sums, StoreError> {
        self.on_cpu(move || read::sum_up(next)).await.map_err(StoreError::Engine)
    }

    pub(super) async fn judge(
        &self,
        before: Snapshot,
        document: Document,
        rules: Rules,
    ) -> Result<Verdict, String> {
        let site_rules = self.rules.clone();
        let url = self.target.url.clone();
        self.on_cpu(move || read::judge(&before, &document, &rules, &site_rules, &url)).await
    }

    /// Applies a verdict chunk by chunk, so that leases get in between, and
    /// fills in the rows of what was admitted.
    pub(super) async fn apply(
        &self,
        verdict: Verdict,
        origin: Origin,
    ) -> Result<(Vec<SnapshotEntry>, Counts), StoreError> {
        let Verdict { mut effects, mut absences, previous, mut next, mut counts, .. } = verdict;
        if !effects.is_empty() || !absences.is_empty() {
            let logged = self.poller.store.logged(origin).await?;
            let told = read::without_logged(&mut effects, &logged);
            counts.touched += told.touched;
            counts.regressed += told.regressed;
            read::without_logged(&mut absences, &logged);
        }
        // Those over the quota are counted with the rest of what was refused.
        counts.rejected = 0;
        self.apply_chunks(effects, origin, &mut next, &mut counts).await?;
        let absences = read::really_absent(absences, &previous, &next);
        self.apply_chunks(absences, origin, &mut next, &mut counts).await?;
        Ok((next, counts))
    }

    async fn apply_chunks(
        &self,
        effects: Vec<Effect>,
        origin: Origin,
        next: &mut [SnapshotEntry],
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        let mut rest = effects.into_iter().peekable();
        while rest.peek().is_some() {
            let chunk: Vec<Effect> = rest.by_ref().take(CHUNK).collect();
            let applied = self.poller.store.apply(origin, chunk).await?;
            for (slot, row) in applied.rows {
                if let Some(entry) = next.get_mut(slot as usize) {
                    entry.row = row;
                }
            }
            let more = applied.counts;
            counts.new += more.new;
            counts.changed += more.changed;
            counts.touched += more.touched;
            counts.regressed += more.regressed;
            counts.unchanged += more.unchanged;
            counts.removed += more.removed;
        }
        Ok(())
    }

    pub(super) async fn snapshot(&self) -> Result<(Snapshot, i64), StoreError> {
        let (data, siblings) = self.poller.store.snapshot(self.target).await?;
        let Some(data) = data else { return Ok((Snapshot::new(), siblings)) };
        match Snapshot::decode(&data) {
            Ok(snapshot) => Ok((snapshot, siblings)),
            Err(error) => {
                // Everything is admitted anew; rows that exist are found again.
                tracing::error!(source = %self.target.id, %error, "snapshot dropped");
                Ok((Snapshot::new(), siblings))
            }
        }
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
            new_epoch: may_be_new_epoch && self.target.epoch != self.rules.epoch(),
            removal_polls: config.poll.removal_polls,
            removal_after_s,
            siblings_read_s,
            shrink_believed: self
                .target
                .shrunk_at
                .is_some_and(|at| later(at, SHRINK_GRACE) <= self.began),
            rolls: self.target.rolls,
            has_children: false,
        }
    }
}
