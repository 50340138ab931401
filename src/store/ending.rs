//! The end of a lease, however it ends: where the URL goes from there, and what
//! is kept of the lease and of the report.

use rusqlite::params;

use super::rows::{UrlRow, held, reason};
use super::state::State;
use super::turns::Place;
use super::{StoreError, engine};
use crate::model::{Outcome, Reason, UrlId};
use crate::queue::Settlement;
use crate::recrawl::Fate;
use crate::recrawl::model::PACKED;

/// A lease that ended without a report: the place, and the token.
const END_UNSEEN: &str = "INSERT INTO feedback
        (url_id, state, reason, band, due_s, attempt, moved_at, token, token_end, ended_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?7)
    ON CONFLICT DO UPDATE SET
        state = ?2, reason = ?3, band = ?4, due_s = ?5, attempt = ?6,
        moved_at = CASE state WHEN ?2 THEN moved_at ELSE ?7 END,
        token = ?8, token_end = ?9, ended_at = ?7";

/// A lease that ended with a report: the same, and what was seen.
const END_SEEN: &str = "INSERT INTO feedback
        (url_id, state, reason, band, due_s, attempt, moved_at, token, token_end, ended_at,
         fetched_at, outcome, status, content_hash, hash_kind, fetches, changes, gone,
         folded_into, error, noindex, canonical, looks)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?7,
            ?10, ?11, ?12, ?13, ?14, 1, ?15, ?16, ?17, ?18, ?19, ?20, ?21)
    ON CONFLICT DO UPDATE SET
        state = ?2, reason = ?3, band = ?4, due_s = ?5, attempt = ?6,
        moved_at = CASE state WHEN ?2 THEN moved_at ELSE ?7 END,
        token = ?8, token_end = ?9, ended_at = ?7,
        fetched_at = ?10, outcome = ?11, status = ?12,
        content_hash = coalesce(?13, content_hash),
        hash_kind = CASE WHEN ?13 IS NULL THEN hash_kind ELSE ?14 END,
        fetches = fetches + 1, changes = changes + ?15,
        gone = CASE ?16 WHEN 1 THEN gone + 1 ELSE 0 END,
        folded_into = ?17, error = ?18, noindex = ?19, canonical = ?20,
        looks = coalesce(?21, looks)";

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

/// What is written of the fetch when a lease ends by being settled.
pub(super) struct Seen<'a> {
    pub(super) outcome: Outcome,
    pub(super) fetched_at: i64,
    pub(super) settlement: &'a Settlement,
    pub(super) folded_into: Option<UrlId>,
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
        seen: Option<&Seen<'_>>,
    ) -> Result<(), StoreError> {
        self.conn
            .prepare_cached("DELETE FROM leases WHERE url_id = ?1")
            .and_then(|mut delete| delete.execute([row.id.0]))
            .map_err(engine)?;
        let now_s = self.steady_ms().div_euclid(1000);
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
        let band = match seen.filter(|_| refreshed) {
            Some(seen) => seen.band,
            None => self.rank(row, reason, now_s)?,
        };
        let valued = self.is_valued(row, reason);
        let place = Place { band, due_s, valued, ..row.place() };
        self.write_end(place, (state, reason, attempt), lease, end, seen, row.looks)?;
        if state == held::QUEUED {
            self.enqueue(place, row.site)?;
        }
        Ok(())
    }

    /// Writes in one statement where a URL stands after a lease, which token
    /// that was, and what was seen, if anything was.
    fn write_end(
        &mut self,
        place: Place,
        (state, reason, attempt): (i64, Reason, u32),
        lease: &Lease,
        end: End,
        seen: Option<&Seen<'_>>,
        looks: Option<[u8; PACKED]>,
    ) -> Result<(), StoreError> {
        let now = self.steady_ms();
        let Some(seen) = seen else {
            return self
                .conn
                .prepare_cached(END_UNSEEN)
                .and_then(|mut upsert| {
                    upsert.execute(params![
                        place.url.0,
                        state,
                        reason as i64,
                        place.band,
                        place.due_s,
                        attempt,
                        now,
                        lease.secret,
                        end as i64,
                    ])
                })
                .map(|_| ())
                .map_err(engine);
        };
        let report = seen.settlement;
        self.conn
            .prepare_cached(END_SEEN)
            .and_then(|mut upsert| {
                upsert.execute(params![
                    place.url.0,
                    state,
                    reason as i64,
                    place.band,
                    place.due_s,
                    attempt,
                    now,
                    lease.secret,
                    end as i64,
                    seen.fetched_at,
                    seen.outcome as i64,
                    report.status,
                    report.content_hash,
                    report.content_hash.as_ref().and(report.hash_kind.as_ref()),
                    i64::from(seen.outcome == Outcome::Changed),
                    i64::from(seen.outcome == Outcome::Gone),
                    seen.folded_into.map(|url| url.0),
                    report.error,
                    report.noindex,
                    report.canonical,
                    looks,
                ])
            })
            .map(|_| ())
            .map_err(engine)
    }
}

/// Rounded up, so that nothing is due before its time.
fn ceil_seconds(ms: i64) -> i64 {
    ms.div_euclid(1000) + i64::from(ms.rem_euclid(1000) > 0)
}
