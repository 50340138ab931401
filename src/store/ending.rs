//! The end of a lease, however it ends: where the URL goes from there, and what
//! is kept of the lease and of the report.

use super::StoreError;
use super::pending::{EndedLease, Report};
use super::rows::{UrlRow, held, reason};
use super::state::State;
use super::turns::Place;
use crate::model::Reason;
use crate::recrawl::Fate;

/// How a lease ended, as `feedback.token_end` keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Settled = 0,
    Expired = 1,
    Released = 2,
}

/// A lease row.
pub(super) struct Lease {
    pub(super) reason: Reason,
    pub(super) due_s: i64,
    pub(super) attempt: u32,
    pub(super) leased_at: i64,
    pub(super) expires_at: i64,
    /// 0, or one more than the code of the reason that made it due meanwhile.
    pub(super) dirty: i64,
    pub(super) secret: [u8; 16],
}

/// What a fetch that was reported showed.
pub(super) struct Seen {
    pub(super) report: Report,
    /// Its place in line, if it goes back to be refreshed.
    pub(super) band: u8,
}

impl State {
    /// Ends a lease: the row goes where its fate says, or is due at once when
    /// it changed while it was out.
    pub(super) fn end_lease(
        &mut self,
        row: &UrlRow,
        lease: &Lease,
        end: End,
        fate: Fate,
        seen: Option<Seen>,
    ) -> Result<(), StoreError> {
        let now = self.steady_ms();
        let now_s = now.div_euclid(1000);
        // What was unlisted meanwhile and is gone need not be looked at again.
        let meanwhile = (lease.dirty > 0).then(|| reason(lease.dirty - 1));
        let again = meanwhile.filter(|why| match fate {
            // Nobody saw it: it waits as it would have, for a newer reason.
            Fate::Queue { .. } => end == End::Settled,
            Fate::Park => *why != Reason::Removed,
            Fate::Dead => true,
        });
        let (state, reason, due_s, attempt) = match (again, fate) {
            (Some(why), _) => (held::QUEUED, why, now_s, 0),
            (None, Fate::Queue { due, reason, attempt }) => {
                let why = meanwhile.unwrap_or(reason);
                (held::QUEUED, why, ceil_seconds(due.as_millisecond()), attempt)
            }
            (None, Fate::Park) => (held::PARKED, lease.reason, lease.due_s, lease.attempt),
            (None, Fate::Dead) => (held::DEAD, lease.reason, lease.due_s, lease.attempt),
        };
        if state == held::DEAD && end == End::Settled {
            self.metrics.dead_lettered(1);
        }
        let refreshed = matches!(reason, Reason::Recrawl | Reason::Changed);
        let band = match seen.as_ref().filter(|_| refreshed) {
            Some(seen) => seen.band,
            None => self.rank(row, reason, now_s)?,
        };
        let valued = self.is_valued(row, reason);
        let place = Place { band, due_s, valued, ..row.place() };
        self.pending.end(EndedLease {
            place,
            state,
            reason,
            attempt,
            now,
            secret: lease.secret,
            end,
            report: seen.map(|seen| seen.report),
            looks: row.looks,
        });
        if state == held::QUEUED {
            self.enqueue_ended(place, row.site)?;
        }
        Ok(())
    }
}

/// Rounded up, so that nothing is due before its time.
fn ceil_seconds(ms: i64) -> i64 {
    ms.div_euclid(1000) + i64::from(ms.rem_euclid(1000) > 0)
}
