//! What looks and reads have taught of sources, hosts and all of them, as the
//! writer remembers it.
//!
//! Memory runs ahead of the table: what a job changed is written when the
//! transaction that the job is part of commits, so a thousand settlements of
//! one host write its row once, and a record that rests on many looks only once
//! a part of it is new that is worth a write ([`Lessons::is_worth_a_write`]).
//! What waits is written as soon as the writer has nothing else to do, and at
//! the end; a crash loses that part. A job that is taken back takes back what
//! it taught.
//!
//! Keeps: memory is bounded; bytes that are none of ours teach nothing. What
//! the numbers mean is for `recrawl`.

use std::collections::BTreeSet;

use super::sql::{Connection, OptionalExtension, params};

use super::ledger::Ledger;
use super::rows::decode;
use super::state::{State, owns};
use super::{StoreError, engine};
use crate::by_id::{ById, IdSet};
use crate::diff::dates::Dates;
use crate::model::{CrawlId, HostId, SiteId, SourceId};
use crate::recrawl::habit::{Habits, Newer, Reading};
use crate::recrawl::model::{Beliefs, Evidence};
use crate::recrawl::prior::{Bucket, Priors};
use crate::recrawl::signal::{PerSignal, Signal};
use crate::recrawl::trust::{self, Lesson, Trust};

/// Sources and hosts remembered at most, about 600 bytes each; beyond that all
/// are read again when needed.
const REMEMBERED: usize = 20_000;

/// Hosts of which nothing is known that are remembered as such, 8 bytes each.
const UNTAUGHT: usize = 200_000;

/// Looks that a record may be ahead of the table at most.
const WAITING: u32 = 1_024;

/// What moves prices is counted in memory for so many milliseconds at most, while
/// there is anything else to do.
const COUNTED_MS: i64 = 1_000;

/// What the habits of a source that another daemon reads are in the table is asked again
/// after so many milliseconds.
const HEARD_MS: i64 = 60_000;

/// Looks that what is believed of a host may lag behind at most, once so many
/// have been seen that one more says next to nothing.
const MATURE: u32 = 8;

/// Whose record it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// That of all hosts.
    All,
    /// That of one host.
    Host(HostId),
    /// That of one source.
    Source(SourceId),
}

impl Scope {
    fn columns(self) -> (i64, i64) {
        match self {
            Self::All => (0, 0),
            Self::Host(id) => (1, id.0),
            Self::Source(id) => (2, id.0),
        }
    }

    /// Whose it is, where a store is shared.
    fn partition(self) -> i64 {
        self.columns().1 & 255
    }
}

/// One record.
#[derive(Debug, Clone, Default)]
pub(super) struct Lessons {
    pub(super) trust: Trust,
    /// Of hosts and of all.
    pub(super) priors: Priors,
    /// Of sources.
    pub(super) habits: Habits,
    /// Of sources: what its newer lastmods were at its last read; `None`
    /// before any.
    pub(super) moves: Option<Signal>,
    /// Grows with every look.
    version: u32,
    /// Of them, the one that the table has.
    written: u32,
    /// Has anything else moved, which does not wait?
    is_pressing: bool,
    /// The job that changed it last: how it was before is kept while that runs.
    job: Option<u64>,
    /// When it was read, by steady time; of what another daemon has, its habits.
    heard_at: i64,
    /// How far its signals pull, as of those versions of its own and its host.
    pulls: Option<(u32, u32, PerSignal<f64>)>,
}

impl Lessons {
    /// Is more than a thirty-second part of it new, or are [`WAITING`] looks?
    fn is_worth_a_write(&self) -> bool {
        let new = self.version.wrapping_sub(self.written);
        self.is_pressing || new > (self.written / 32).min(WAITING)
    }

    fn write(&mut self, conn: &Connection, scope: Scope) -> Result<(), StoreError> {
        write(conn, scope, self)?;
        (self.written, self.is_pressing) = (self.version, false);
        Ok(())
    }
}

/// What beliefs are asked for.
type Asked = (HostId, Option<SourceId>, Bucket, std::time::Duration);

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Learning {
    /// Boxed: the table doubles as it grows, and most hosts of a large store are new.
    records: ById<Scope, Box<Lessons>>,
    /// Hosts that have no record in the table, and maybe one here by now.
    untaught: IdSet<HostId>,
    pub(super) ledgers: ById<CrawlId, Ledger>,
    /// As the table has them.
    pub(super) bases: ById<CrawlId, Ledger>,
    /// The beliefs asked for last, for as long as hardly anything is learned:
    /// rows of one host come one after another.
    last: Option<(Asked, Beliefs)>,
    /// Looks that may be taken in before these are worked out anew.
    still_good: u32,
    /// Mean priority of sites, 0 to 1.
    pub(super) means: ById<SiteId, f64>,
    /// To be written when the transaction commits.
    changed: IdSet<Scope>,
    changed_ledgers: IdSet<CrawlId>,
    /// When ledgers were last written, by steady time.
    ledgers_at: i64,
    /// Number of the job that runs.
    job: u64,
    /// As it was before that.
    undo: ById<Scope, Box<Lessons>>,
    undo_ledgers: ById<CrawlId, Ledger>,
}

#[cfg(test)]
impl Learning {
    /// How many records are remembered.
    pub(super) fn remembered(&self) -> usize {
        self.records.len()
    }
}

impl Learning {
    /// Has all read again, but for what is counted: that is in memory for a while.
    pub(super) fn forget_records(&mut self) {
        let Self { ledgers, bases, changed_ledgers, ledgers_at, job, .. } = std::mem::take(self);
        *self = Self { ledgers, bases, changed_ledgers, ledgers_at, job, ..Self::default() };
    }

    /// A job begins.
    pub(super) fn begin_job(&mut self) {
        self.job = self.job.wrapping_add(1);
        self.undo.clear();
        self.undo_ledgers.clear();
    }

    /// The job was taken back.
    pub(super) fn take_back(&mut self) {
        self.records.extend(self.undo.drain());
        self.ledgers.extend(self.undo_ledgers.drain());
        self.means.clear();
        self.last = None;
    }

    /// Changes a ledger, as it was before.
    pub(super) fn change_ledger(&mut self, crawl: CrawlId, before: Ledger) -> &mut Ledger {
        self.changed_ledgers.insert(crawl);
        self.note_ledger(crawl, before)
    }

    /// The same, to be written when it is changed next.
    pub(super) fn note_ledger(&mut self, crawl: CrawlId, before: Ledger) -> &mut Ledger {
        self.undo_ledgers.entry(crawl).or_insert(before);
        self.ledgers.entry(crawl).or_insert(before)
    }

    /// A crawl has gone, with its price.
    pub(super) fn forget_ledger(&mut self, crawl: CrawlId) {
        if let Some(ledger) = self.ledgers.remove(&crawl) {
            // For the case that the job is taken back.
            self.undo_ledgers.entry(crawl).or_insert(ledger);
        }
        self.bases.remove(&crawl);
        self.changed_ledgers.remove(&crawl);
    }

    /// A record that was loaded, to be changed.
    fn change(&mut self, scope: Scope) -> &mut Lessons {
        let lessons = self.records.entry(scope).or_default();
        if lessons.job != Some(self.job) {
            self.undo.entry(scope).or_insert_with(|| lessons.clone());
            self.changed.insert(scope);
            lessons.job = Some(self.job);
        }
        lessons
    }
}

impl State {
    /// Forgets what is remembered when it has become much and the table has it.
    pub(super) fn forget_lessons(&mut self) {
        if self.learning.records.len() >= REMEMBERED && self.learning.changed.is_empty() {
            self.learning.forget_records();
        }
    }

    /// Writes what the jobs of this transaction changed, as far as that is worth
    /// it.
    pub(super) fn write_lessons(&mut self) -> Result<(), StoreError> {
        if self.learning.records.len() >= REMEMBERED {
            self.write_all_lessons()?;
        }
        let claim = self.engine.claim.as_ref();
        let Learning { records, changed, .. } = &mut self.learning;
        let mut waiting = IdSet::default();
        for scope in changed.drain() {
            let Some(lessons) = records.get_mut(&scope) else { continue };
            // What is learned of what is another daemon's is ours alone.
            if !owns(claim, scope.partition()) {
                continue;
            }
            if lessons.is_worth_a_write() {
                lessons.write(&self.conn, scope)?;
            } else {
                waiting.insert(scope);
            }
        }
        *changed = waiting;
        self.write_ledgers(false)
    }

    /// Writes what has been counted of prices that have moved, and of the others
    /// now and then, or where `all` are to be written.
    fn write_ledgers(&mut self, all: bool) -> Result<(), StoreError> {
        let now = self.steady_ms();
        let Learning { ledgers, bases, changed_ledgers, ledgers_at, .. } = &mut self.learning;
        if changed_ledgers.is_empty() {
            return Ok(());
        }
        let is_time = all || !(0..COUNTED_MS).contains(&(now - *ledgers_at));
        let mut waiting = IdSet::default();
        // In one order, so that those who share the rows do not wait in a circle.
        let changed: BTreeSet<_> = changed_ledgers.drain().collect();
        for crawl in changed {
            let Some(ledger) = ledgers.get(&crawl) else { continue };
            let base = bases.get(&crawl).copied().unwrap_or_else(|| ledger.unwritten());
            if is_time || ledger.has_moved(&base) {
                ledger.write(&self.conn, crawl, &base)?;
                bases.insert(crawl, *ledger);
            } else {
                waiting.insert(crawl);
            }
        }
        *changed_ledgers = waiting;
        if is_time {
            *ledgers_at = now;
        }
        Ok(())
    }

    /// Does anything that was learned wait to be written?
    pub(super) fn has_lessons_waiting(&self) -> bool {
        !self.learning.changed.is_empty() || !self.learning.changed_ledgers.is_empty()
    }

    /// Writes all that waits to be written.
    pub(super) fn write_all_lessons(&mut self) -> Result<(), StoreError> {
        let claim = self.engine.claim.as_ref();
        let Learning { records, changed, .. } = &mut self.learning;
        for scope in changed.drain().filter(|scope| owns(claim, scope.partition())) {
            let Some(lessons) = records.get_mut(&scope) else { continue };
            lessons.write(&self.conn, scope)?;
        }
        self.write_ledgers(true)
    }

    fn load_lessons(&mut self, scope: Scope) -> Result<(), StoreError> {
        if !self.learning.records.contains_key(&scope) {
            let lessons = read(&self.conn, scope)?;
            let lessons = Lessons { heard_at: self.steady_ms(), ..lessons };
            self.learning.records.insert(scope, Box::new(lessons));
        }
        Ok(())
    }

    /// How the pages of a host have changed. Of most hosts of a large store nothing is
    /// known, and no record of that is kept but a number.
    pub(super) fn priors_of_host(&mut self, host: HostId) -> Result<Priors, StoreError> {
        let scope = Scope::Host(host);
        if let Some(lessons) = self.learning.records.get(&scope) {
            return Ok(lessons.priors);
        }
        if self.learning.untaught.contains(&host) {
            return Ok(Priors::default());
        }
        if read_kept(&self.conn, scope)?.is_some() {
            return Ok(self.lessons(scope)?.priors);
        }
        if self.learning.untaught.len() >= UNTAUGHT {
            self.learning.untaught.clear();
        }
        self.learning.untaught.insert(host);
        Ok(Priors::default())
    }

    /// A record, as it is now.
    pub(super) fn lessons(&mut self, scope: Scope) -> Result<&Lessons, StoreError> {
        self.load_lessons(scope)?;
        Ok(self.learning.records.entry(scope).or_default())
    }

    /// What pages of a host, listed by a source, are to be judged by. The rate
    /// is that of `assumed`, the interval of their changefreq, until they prove
    /// another one.
    pub(super) fn beliefs(
        &mut self,
        host: HostId,
        source: Option<SourceId>,
        bucket: Bucket,
        assumed: std::time::Duration,
    ) -> Result<Beliefs, StoreError> {
        let asked = (host, source, bucket, assumed);
        if let Some((last, beliefs)) = &self.learning.last
            && *last == asked
        {
            return Ok(*beliefs);
        }
        let beliefs = self.work_out_beliefs(asked)?;
        self.learning.last = Some((asked, beliefs));
        let looks = self.lessons(Scope::Host(host))?.version;
        self.learning.still_good = (looks / 32).min(MATURE);
        Ok(beliefs)
    }

    fn work_out_beliefs(&mut self, asked: Asked) -> Result<Beliefs, StoreError> {
        let (host, source, bucket, assumed) = asked;
        self.load_lessons(Scope::All)?;
        self.load_lessons(Scope::Host(host))?;
        if let Some(source) = source {
            self.load_lessons(Scope::Source(source))?;
        }
        let pulls = self.pulls(host, source);
        let records = &self.learning.records;
        let (Some(all), Some(host)) = (records.get(&Scope::All), records.get(&Scope::Host(host)))
        else {
            return Err(StoreError::Engine("a record vanished as it was read".to_owned()));
        };
        Ok(Beliefs {
            rate: host.priors.rate(&all.priors, bucket, assumed),
            looks: host.priors.looks(&all.priors),
            silent: host.trust.silent(),
            pulls,
        })
    }

    /// How far signals pull; what other hosts taught meanwhile counts from the
    /// next look at this one on.
    fn pulls(&mut self, host: HostId, source: Option<SourceId>) -> PerSignal<f64> {
        let records = &self.learning.records;
        let of_host = records.get(&Scope::Host(host));
        let version = of_host.map_or(0, |lessons| lessons.version);
        let own = source.and_then(|source| records.get(&Scope::Source(source)));
        if let Some(own) = own
            && let Some((mine, its, pulls)) = own.pulls
            && (mine, its) == (own.version, version)
        {
            return pulls;
        }
        let none = Trust::default();
        let of_all = records.get(&Scope::All);
        let [own, host, all] =
            [own, of_host, of_all].map(|lessons| lessons.map_or(&none, |lessons| &lessons.trust));
        let pulls = trust::pulls(&Trust::weights(own, host, all));
        if let Some(source) = source
            && let Some(own) = self.learning.records.get_mut(&Scope::Source(source))
        {
            own.pulls = Some((own.version, version, pulls));
        }
        pulls
    }

    /// Takes in what a look at a page of a host, listed by a source, taught.
    pub(super) fn learn(
        &mut self,
        host: HostId,
        source: Option<SourceId>,
        bucket: Bucket,
        evidence: &Evidence,
        beliefs: &Beliefs,
    ) -> Result<(), StoreError> {
        match self.learning.still_good.checked_sub(1) {
            Some(left) => self.learning.still_good = left,
            None => self.learning.last = None,
        }
        let lesson = Lesson::of(evidence, beliefs);
        for scope in [Some(Scope::All), Some(Scope::Host(host)), source.map(Scope::Source)] {
            let Some(scope) = scope else { continue };
            self.load_lessons(scope)?;
            let lessons = self.learning.change(scope);
            lessons.trust.learn(&lesson);
            if !matches!(scope, Scope::Source(_)) {
                lessons.priors.learn(bucket, evidence);
            }
            lessons.version = lessons.version.wrapping_add(1);
        }
        Ok(())
    }

    /// The habits of a source, and what its newer lastmods were at its last
    /// read.
    pub(super) fn habits(
        &mut self,
        source: SourceId,
    ) -> Result<(Habits, Option<Signal>), StoreError> {
        let scope = Scope::Source(source);
        let (now, is_ours) = (self.steady_ms(), self.owns(scope.partition()));
        let heard_at = self.lessons(scope)?.heard_at;
        if !is_ours && !(0..HEARD_MS).contains(&(now - heard_at)) {
            // Whoever reads the source learns them, and writes them at once.
            let Lessons { habits, moves, .. } = read(&self.conn, scope)?;
            let known = self.learning.records.entry(scope).or_default();
            (known.habits, known.moves, known.heard_at) = (habits, moves, now);
        }
        let lessons = self.lessons(scope)?;
        Ok((lessons.habits, lessons.moves))
    }

    /// Drops what was learned of a source that is forgotten.
    pub(super) fn forget_lessons_of(&mut self, source: SourceId) -> Result<(), StoreError> {
        let scope = Scope::Source(source);
        self.learning.changed.remove(&scope);
        self.learning.records.remove(&scope);
        let (kind, id) = scope.columns();
        self.conn
            .prepare_cached(
                "DELETE FROM learned WHERE scope = ?1 AND id = ?2
                 /*pg: AND part = (?2 & 255) */",
            )
            .and_then(|mut delete| delete.execute([kind, id]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Keeps what a read of a source showed of its lastmods.
    pub(super) fn keep_dates(&mut self, source: SourceId, dates: &Dates) -> Result<(), StoreError> {
        if !self.policy.learns() {
            return Ok(());
        }
        let (mut habits, _) = self.habits(source)?;
        let moves = habits.read(&reading(dates)).moves;
        self.learning.last = None;
        let lessons = self.learning.change(Scope::Source(source));
        // A read without a newer lastmod says nothing of what they are.
        let kept = lessons.moves.filter(|_| dates.moved.is_empty());
        (lessons.habits, lessons.moves) = (habits, Some(kept.unwrap_or(moves)));
        lessons.is_pressing = true;
        Ok(())
    }

    /// A day on which a source that was read before was found as it was. Written with
    /// whatever waits: what a crash loses of it comes again.
    pub(super) fn keep_rest(&mut self, source: SourceId) -> Result<(), StoreError> {
        if !self.policy.learns() {
            return Ok(());
        }
        let (mut habits, moves) = self.habits(source)?;
        if moves.is_some() && habits.rest() {
            self.learning.change(Scope::Source(source)).habits = habits;
        }
        Ok(())
    }
}

/// What the newer lastmods of a read are as signals, by the habit of its
/// source, and whether such ones have proven true. Nothing is kept: until a poll ends
/// it has not happened.
pub(super) fn newer_of(
    conn: &Connection,
    (source, host): (SourceId, HostId),
    dates: &Dates,
) -> Result<(Newer, bool), StoreError> {
    let Lessons { mut habits, trust, .. } = read(conn, Scope::Source(source))?;
    let newer = habits.read(&reading(dates));
    let of_host = read(conn, Scope::Host(host))?.trust;
    let of_all = read(conn, Scope::All)?.trust;
    let pulls = trust::pulls(&Trust::weights(&trust, &of_host, &of_all));
    Ok((newer, pulls[newer.mostly()] > 0.0))
}

fn reading(dates: &Dates) -> Reading<'_> {
    let Dates { at, entries, dated, date_only, future, known, regressed, .. } = *dates;
    let Dates { moved, came, .. } = dates;
    Reading { at, entries, dated, date_only, future, known, regressed, moved, came }
}

/// A row of the table: trust, priors, habits, moves.
type Columns = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>, i64);

/// The record as the table has it; nothing learned where it has none.
pub(super) fn read(conn: &Connection, scope: Scope) -> Result<Lessons, StoreError> {
    Ok(read_kept(conn, scope)?.unwrap_or_default())
}

/// The record, if the table has it.
fn read_kept(conn: &Connection, scope: Scope) -> Result<Option<Lessons>, StoreError> {
    let (kind, id) = scope.columns();
    let kept: Option<Columns> = conn
        .prepare_cached(
            "SELECT trust, priors, habits, moves FROM learned WHERE scope = ?1 AND id = ?2
             /*pg: AND part = (?2 & 255) */",
        )
        .and_then(|mut query| {
            query
                .query_row([kind, id], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()
        })
        .map_err(engine)?;
    Ok(kept.map(|(trust, priors, habits, moves)| Lessons {
        moves: decode(&Signal::ALL, moves).filter(|_| habits.is_some()),
        trust: Trust::unpack(&trust).unwrap_or_default(),
        priors: priors.as_deref().and_then(Priors::unpack).unwrap_or_default(),
        habits: habits.as_deref().and_then(Habits::unpack).unwrap_or_default(),
        ..Lessons::default()
    }))
}

fn write(conn: &Connection, scope: Scope, lessons: &Lessons) -> Result<(), StoreError> {
    let (kind, id) = scope.columns();
    let is_source = matches!(scope, Scope::Source(_));
    let priors = (!is_source).then(|| lessons.priors.pack());
    let habits = lessons.moves.map(|_| lessons.habits.pack());
    let moves = lessons.moves.map_or(0, |signal| signal as i64);
    conn.prepare_cached(
        "INSERT INTO learned (/*pg: part, */ scope, id, trust, priors, habits, moves)
         VALUES (/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (/*pg: part, */ scope, id) DO UPDATE SET trust = ?3, priors = ?4, habits = ?5, moves = ?6",
    )
    .and_then(|mut upsert| {
        upsert.execute(params![kind, id, lessons.trust.pack(), priors, habits, moves])
    })
    .map(|_| ())
    .map_err(engine)
}
