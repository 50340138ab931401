//! URLs that were seen to redirect to a listed one, and are parked, since that stands
//! for them. Once a day they are looked through: what stands for nothing any more, or
//! was last asked so long ago that it would be due if it did not redirect, goes back to
//! the queue. A redirect may have been for an hour only (to a login, to the home page).

use super::StoreError;
use super::packed::HELD_BEHIND;
use super::rows::held;
use super::sql::params;
use super::state::State;
use crate::model::{Reason, UrlId};

/// Parked URLs looked at in one job.
const LOOK: i64 = 1_000;
/// Between two times that they are looked through.
const EVERY_MS: i64 = 24 * 3_600_000;

/// How far the parked URLs have been looked through.
#[derive(Debug, Default)]
pub(super) struct Folds {
    /// The last one looked at; `None` until the next time.
    behind: Option<i64>,
    /// When the next time is.
    next_ms: i64,
}

impl State {
    /// Looks at a part of what is parked; `true` while there is more.
    pub(super) fn unfold_some(&mut self) -> Result<bool, StoreError> {
        let now = self.steady_ms();
        if self.folds.behind.is_none() {
            if now < self.folds.next_ms {
                return Ok(false);
            }
            self.folds = Folds { behind: Some(0), next_ms: now.saturating_add(EVERY_MS) };
        }
        let behind = self.folds.behind.unwrap_or_default();
        let parked = self.column(&HELD_BEHIND, params![held::PARKED, behind, LOOK])?;
        for url in &parked {
            self.unfold(UrlId(*url), now)?;
        }
        let is_more = i64::try_from(parked.len()).is_ok_and(|count| count == LOOK);
        self.folds.behind = parked.last().copied().filter(|_| is_more);
        Ok(is_more)
    }

    fn unfold(&mut self, url: UrlId, now: i64) -> Result<(), StoreError> {
        let Some(row) = self.url_row(url)?.filter(|row| row.listed && row.state == held::PARKED)
        else {
            return Ok(());
        };
        let Some(fetched) = row.record.fetched.as_ref() else { return Ok(()) };
        let Some(target) = row.record.rare().and_then(|rare| rare.folded_into) else {
            return Ok(());
        };
        let now_s = now.div_euclid(1000);
        if row.is_expired(now_s) {
            return Ok(());
        }
        let longest = super::hosts::millis(self.policy.of(row.site).bounds.max);
        let is_long_ago = fetched.at.saturating_add(longest) <= now;
        let stands = self.url_row(target)?.is_some_and(|target| target.can_stand_for_others());
        if stands && !is_long_ago || self.is_completed(url)? {
            return Ok(());
        }
        let band = self.rank(&row, Reason::Recrawl, now_s)?;
        let due_s = row.soonest(Reason::Recrawl, now_s);
        self.place_url(&row, held::QUEUED, Reason::Recrawl, band, due_s, 0)
    }

    /// Has a client of the frontier said that it is not to be fetched again?
    fn is_completed(&self, url: UrlId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM frontier_urls WHERE url_id = ?1
                   /*pg: AND part = (?1 & 255) */ AND completed = 1";
        Ok(!self.column(sql, [url.0])?.is_empty())
    }
}
