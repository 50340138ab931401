//! URLs that are parked, and are to be fetched again all the same. Once a day they are
//! looked through, and after other bounds or another order have come to hold.
//!
//! Of those that were seen to redirect to a listed one, which stands for them: what it
//! stands for no more, or was last asked so long ago that it would be due if it did not
//! redirect, goes back to the queue. A redirect may have been for an hour only (to a
//! login, to the home page). Of those whose videos would have ended by their next turn:
//! what has its turn before that, by what holds now.

use super::StoreError;
use super::packed::HELD_BEHIND;
use super::rows::{UrlRow, held};
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

impl Folds {
    /// What decides about some of them is something else now.
    pub(super) fn look_again(&mut self) {
        self.next_ms = 0;
    }
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
        let now_s = now.div_euclid(1000);
        if row.is_expired(now_s) {
            return Ok(());
        }
        let Some(target) = row.record.rare().and_then(|rare| rare.folded_into) else {
            return self.unfold_before_its_end(&row, now_s);
        };
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

    /// The same of a page whose videos are there still.
    fn unfold_before_its_end(&mut self, row: &UrlRow, now_s: i64) -> Result<(), StoreError> {
        if row.expires_s.is_none() || row.record.gone > 0 || self.is_completed(row.id)? {
            return Ok(());
        }
        let place = match self.place_by_value(row, now_s)? {
            Some(place) => Some(place),
            None => match self.due_by_protocol(row, now_s) {
                Some(due_s) => Some((self.rank(row, Reason::Recrawl, now_s)?, due_s)),
                None => None,
            },
        };
        let Some((band, due_s)) = place else { return Ok(()) };
        let due_s = row.record.floor_s().map_or(due_s, |floor| floor.max(due_s));
        if row.is_expired(due_s) {
            return Ok(());
        }
        self.place_url(row, held::QUEUED, Reason::Recrawl, band, due_s, 0)
    }

    /// Has a client of the frontier said that it is not to be fetched again?
    fn is_completed(&self, url: UrlId) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM frontier_urls WHERE url_id = ?1
                   /*pg: AND part = (?1 & 255) */ AND completed = 1";
        Ok(!self.column(sql, [url.0])?.is_empty())
    }
}
