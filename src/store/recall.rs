//! Sources that were polled while the wall clock was ahead: set back, it would leave
//! them alone until it is that late once more, which nobody would notice.
//!
//! Polls go by the wall clock, since cron lines, `Retry-After` dates and people do. A
//! clock that is hours or years ahead for a while (a machine that starts without a
//! battery, a wrong answer of a time server) gives all that is polled meanwhile its next
//! time there.

use super::sql::params;
use super::state::State;
use super::{StoreError, engine};

/// A poll so far ahead of now was made by another clock; steps of less are waited for.
const AHEAD_MS: i64 = 3_600_000;
/// The last of what is due are looked at, so many of them.
const LAST: i64 = 100;
/// Brought back in one job at most.
const AT_ONCE: i64 = 500;

/// What is due last, with when it was polled.
const DUE_LAST: &str = "SELECT coalesce(last_poll_at, 0) FROM sources
    WHERE state = 0 AND next_poll_at > ?1 ORDER BY next_poll_at DESC LIMIT ?2";

impl State {
    /// Has what was polled by a clock ahead of this one polled again, and read in full:
    /// what it is said to have been read since is not so. `true` while there is more.
    pub(super) fn recall_polls(&mut self, now: i64) -> Result<bool, StoreError> {
        let polled = self.column(DUE_LAST, params![now, LAST])?;
        if !polled.iter().any(|at| *at > now.saturating_add(AHEAD_MS)) {
            return Ok(false);
        }
        let recalled = self
            .conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?1, rule = 'revived', last_full_at = 0,
                     last_poll_at = ?1, last_complete_at = NULL,
                     last_success_at = CASE WHEN last_success_at > ?1 THEN ?1 ELSE last_success_at END,
                     failing_since = CASE WHEN failing_since > ?1 THEN ?1 ELSE failing_since END,
                     why = 'the clock was ahead when it was polled last'
                 WHERE /*lite*/ id /*end*/ /*pg: (part, id) */ IN (
                     SELECT /*pg: part, */ id FROM sources
                     WHERE state = 0 AND next_poll_at > ?1 AND last_poll_at > ?2 /*ours: part */
                     ORDER BY next_poll_at DESC LIMIT ?3)",
            )
            .and_then(|mut update| {
                update.execute(params![now, now.saturating_add(AHEAD_MS), AT_ONCE])
            })
            .map_err(engine)?;
        self.sources_moved |= recalled > 0;
        if recalled > 0 {
            tracing::warn!(sources = recalled, "the clock was set back: they are polled again");
        }
        Ok(i64::try_from(recalled).is_ok_and(|recalled| recalled >= AT_ONCE))
    }
}
