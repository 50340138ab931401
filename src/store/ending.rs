//! The end of a lease, however it ends: where the URL goes from there, and what
//! is kept of the lease and of the report.

use jiff::Timestamp;

use super::sql::params;

use super::pending::EndedLease;
use super::record::{Ended, Record};
use super::rows::{UrlRow, held, reason};
use super::state::State;
use super::told::Count;
use super::turns::Place;
use super::{StoreError, engine, timestamp};
use crate::model::Reason;
use crate::recrawl::Fate;

/// How a lease ended, as its record keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Settled = 0,
    Expired = 1,
    Released = 2,
}

impl End {
    /// By their codes.
    pub(super) const ALL: [Self; 3] = [Self::Settled, Self::Expired, Self::Released];
}

/// A lease row.
#[derive(Debug, PartialEq)]
pub(super) struct Lease {
    pub(super) reason: Reason,
    pub(super) due_s: i64,
    pub(super) attempt: u32,
    pub(super) leased_at: i64,
    pub(super) expires_at: i64,
    /// 0, or one more than the code of the reason that made it due meanwhile, or
    /// [`UNWANTED`], or [`CHANGED_BESIDES`].
    pub(super) dirty: i64,
    pub(super) secret: [u8; 16],
}

/// What else a fetcher's report says of the URL whose lease ends with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    /// Its place in line, should it go back to be refreshed.
    pub(super) band: u8,
    /// Was nothing to be had of it?
    pub(super) has_failed: bool,
    /// Not to be fetched again before, rounded up.
    pub(super) not_before_s: Option<i64>,
}

/// What [`Lease::dirty`] is where nobody wants the URL any more.
pub(super) const UNWANTED: i64 = -1;

/// What [`Lease::dirty`] is where another source than that of the signals which the lease
/// is judged by has said that the page has changed since.
pub(super) const CHANGED_BESIDES: i64 = 101;

impl Lease {
    /// Since when it was due: where it was leased before its row was, since then.
    pub(super) fn due_since(&self) -> Timestamp {
        timestamp(self.due_s.min(self.leased_at.div_euclid(1000)).saturating_mul(1000))
    }

    /// Has a signal come that it may have changed, since it was made?
    pub(super) fn has_changed(&self) -> bool {
        self.dirty == 1 + Reason::Changed as i64
    }

    /// Why it is due again, if it is.
    fn meanwhile(&self) -> Option<Reason> {
        match self.dirty {
            CHANGED_BESIDES => Some(Reason::Changed),
            due => (due > 0).then(|| reason(due - 1)),
        }
    }
}

impl UrlRow {
    /// When it may be fetched at the soonest for a reason that comes now: how its last
    /// lease ended may put that off, unless somebody asks for it.
    pub(super) fn soonest(&self, reason: Reason, now_s: i64) -> i64 {
        let pause = Some(self.due_s).filter(|_| self.attempt > 0 && !self.is_given_up());
        let floor = self.record.floor_s().max(pause).filter(|_| reason != Reason::Submitted);
        floor.map_or(now_s, |floor| floor.max(now_s))
    }
}

impl State {
    /// Notes that nobody wants a URL any more that is leased, unless someone has
    /// asked for it meanwhile: it is parked once its lease ends.
    pub(super) fn note_unwanted(&mut self, row: &UrlRow) -> Result<(), StoreError> {
        self.at_hand.forget(row.id);
        let asked_for = 1 + Reason::Submitted as i64;
        self.conn
            .prepare_cached(
                "UPDATE leases SET dirty = ?2 WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND dirty <> ?3",
            )
            .and_then(|mut update| update.send(params![row.id.0, UNWANTED, asked_for]))
            .map_err(engine)
    }

    /// Notes that a URL is owed another look after its lease, by what the signals that
    /// wait for the look of that lease do not say.
    pub(super) fn note_changed_besides(&mut self, row: &UrlRow) -> Result<(), StoreError> {
        self.at_hand.forget(row.id);
        let [asked_for, changed] = [Reason::Submitted, Reason::Changed].map(|why| 1 + why as i64);
        self.conn
            .prepare_cached(
                "UPDATE leases SET dirty = ?2 WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND dirty NOT IN (?3, ?4)",
            )
            .and_then(|mut update| {
                update.send(params![row.id.0, CHANGED_BESIDES, asked_for, changed])
            })
            .map_err(engine)
    }

    /// Has a leased URL changed since it was leased, so that its look is told nothing of
    /// what is signalled now?
    pub(super) fn has_changed_since_lease(&self, row: &UrlRow) -> Result<bool, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM leases WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND dirty = ?2)",
            )
            .and_then(|mut query| {
                query.query_row(params![row.id.0, 1 + Reason::Changed as i64], |row| row.get(0))
            })
            .map_err(engine)
    }

    /// Ends a lease: the row goes where its fate says, or is due at once when
    /// it changed while it was out. The record of `row` is what is known by now.
    /// Says whether the URL is given up.
    pub(super) fn end_lease(
        &mut self,
        mut row: Box<UrlRow>,
        lease: &Lease,
        end: End,
        fate: Fate,
        report: Option<Report>,
    ) -> Result<bool, StoreError> {
        let now = self.steady_ms();
        let now_s = now.div_euclid(1000);
        let fate = if lease.dirty == UNWANTED { Fate::Park } else { fate };
        let fetched = row.record.fetched.as_ref().filter(|_| end == End::Settled);
        let fetched_s = fetched.map(|fetched| fetched.at.div_euclid(1000));
        // What was unlisted meanwhile and is gone need not be looked at again.
        let meanwhile = lease.meanwhile();
        let again = meanwhile.filter(|why| match fate {
            // Nobody saw it: it waits as it would have, for a newer reason.
            Fate::Queue { .. } => report.is_some_and(|report| !report.has_failed),
            Fate::Park => *why != Reason::Removed,
            Fate::Dead => true,
        });
        let (state, reason, due_s, attempt) = match (again, fate) {
            // Due since it was fetched: so it is known to be owed another look.
            (Some(why), _) => {
                // No signal undercuts what its fetcher or its server asked for just now.
                let floor = match why {
                    Reason::Submitted => report.and_then(|report| report.not_before_s),
                    _ => report.and(row.record.floor_s()),
                };
                let due_s = fetched_s.unwrap_or(now_s);
                (held::QUEUED, why, floor.map_or(due_s, |floor| floor.max(due_s)), 0)
            }
            (None, Fate::Queue { due, reason, attempt }) => {
                let why = meanwhile.unwrap_or(reason);
                (held::QUEUED, why, ceil_seconds(due.as_millisecond()), attempt)
            }
            (None, Fate::Park) => (held::PARKED, lease.reason, lease.due_s, lease.attempt),
            (None, Fate::Dead) => (held::DEAD, lease.reason, lease.due_s, lease.attempt),
        };
        if state == held::DEAD && end == End::Settled {
            self.told.tell(Count::DeadLettered(1));
        }
        let is_refreshed = matches!(reason, Reason::Recrawl | Reason::Changed);
        let band = match report.filter(|_| is_refreshed) {
            Some(report) => report.band,
            None => self.rank(&row, reason, now_s)?,
        };
        let valued = self.is_valued(&row, reason);
        let place = Place { band, due_s, valued, ..row.place() };
        let site = row.site;
        let record = Record {
            ended: Some(Ended::new(lease.secret, end, now)),
            held_since: (state != held::QUEUED).then_some(now),
            ..std::mem::take(&mut row.record)
        };
        let is_new = !row.has_feedback;
        self.at_hand.ahead.give_back(row);
        self.pending.end(EndedLease { place, state, reason, attempt, record, is_new });
        if state == held::QUEUED {
            self.enqueue_ended(place, site)?;
        }
        Ok(state == held::DEAD)
    }
}

/// Rounded up, so that nothing is due before its time.
pub(super) fn ceil_seconds(ms: i64) -> i64 {
    ms.div_euclid(1000) + i64::from(ms.rem_euclid(1000) > 0)
}
