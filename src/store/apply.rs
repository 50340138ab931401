//! The effects of a diff: URL rows, who lists them, their place in the queue.
//!
//! A large document comes in chunks. Each effect is applied only where the row
//! does not already say so, so a chunk that is applied twice (the process died
//! before the last one) changes nothing the second time, and one edit seen
//! through several sources is one signal. Of several dates for one URL the
//! newest counts; of equal ones the more precise; a date that merely appears,
//! or goes, is no signal.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use super::sql::params;

use super::admit::Admission;
use super::changes::{self, ChangeLog};
use super::effect::{Applied, BATCH, CHUNK, Effect, Origin, Unapplied};
use super::ending::ceil_seconds;
use super::maintain::OF_NO_READ;
use super::packed::{Field, said, set_said};
use super::prepared::Paths;
use super::rows::{UrlRow, held, lastmod_columns};
use super::state::State;
use super::told::Count;
use super::worth::thousandths;
use super::{StoreError, engine, timestamp};
use crate::diff::snapshot::{EntryHints, Rejection, Row};
use crate::metrics::Way;
use crate::model::{ChangeKind, Lastmod, Precision, Reason, UrlId, UrlKind};
use crate::recrawl::model::UrlState as Model;
use crate::recrawl::signal::Signal;
use crate::recrawl::{self, Fate};

static TAKE_KIND: LazyLock<String> = LazyLock::new(|| change(&[(said::KIND, "?2")], ""));
static TAKE_HINTS: LazyLock<String> = LazyLock::new(|| change(&[(said::HINTS, "?2")], ""));
static TAKE_LASTMOD: LazyLock<String> =
    LazyLock::new(|| change(&[(said::PRECISION, "?3")], "lastmod_s = ?2,"));
/// Says whether a URL is listed.
pub(super) static LIST: LazyLock<String> = LazyLock::new(|| change(&[(said::LISTED, "?2")], ""));

/// A statement that changes fields of the row of a URL.
fn change(fields: &[(Field, &str)], more: &str) -> String {
    let fields = set_said(fields);
    format!("UPDATE urls SET {more} {fields} WHERE id = ?1 /*pg: AND part = (?1 & 255) */")
}

/// A chunk while it is applied.
pub(super) struct Chunk {
    pub(super) origin: Origin,
    pub(super) applied: Applied,
    pub(super) log: ChangeLog,
    /// Rows made by this chunk.
    pub(super) made: usize,
    /// Rows that sources of the site may still come to list.
    pub(super) quota_left: u64,
    /// Rows that may still be made for it.
    pub(super) rows_left: u64,
    /// How many more of its rows no source lists.
    unlisted: i64,
    /// By how much the sum of its priorities grows, in thousandths.
    pub(super) priorities: i64,
    pub(super) now_s: i64,
    /// The same by the wall clock, which publishers go by.
    wall_s: i64,
    /// Of what is new or changed: how long ago its publisher says that was.
    pub(super) ages: Vec<Duration>,
    /// Those of its admissions, among others.
    pub(super) paths: Paths,
    /// Admissions so far.
    admitted: usize,
    /// What its read has told already, where the rows cannot show it.
    told: HashSet<(ChangeKind, UrlId)>,
    /// All that it has told already, once that was asked for.
    told_before: Option<HashSet<(ChangeKind, UrlId)>>,
}

impl Chunk {
    /// Notes when a publisher says that something was published, where that is
    /// said to the minute. A first read tells of a backlog, not of news.
    pub(super) fn note_published(&mut self, lastmod: Option<Lastmod>) {
        let Some(lastmod) = lastmod.filter(|date| date.precision >= Precision::Minute) else {
            return;
        };
        if self.origin.generation > 1 {
            let ago = self.wall_s.saturating_sub(lastmod.at.as_second());
            // A publisher whose clock is ahead of ours was just now.
            self.ages.push(Duration::from_secs(u64::try_from(ago).unwrap_or(0)));
        }
    }

    /// There is no room for what is listed.
    pub(super) fn refuse_for_quota(&mut self, slot: u32) {
        self.applied.counts.rejected += 1;
        self.applied.rows.push((slot, Row::Rejected(Rejection::Quota)));
    }
}

/// Of so many times its quota a site may have rows of URLs, those included that no
/// source lists any more: pages that come and go are none too many.
const UNLISTED_SHARE: u64 = 10;

/// A date this far ahead of our clock is wrong by a time zone, and not by a clock.
const AHEAD_S: i64 = 15 * 60;

/// A further source shows an edit within this time of its date, as a rule.
const SAME_EDIT_S: i64 = 6 * 3_600;

impl State {
    /// Applies a chunk of what is left.
    pub(super) fn apply(
        &mut self,
        origin: Origin,
        left: &mut Unapplied,
    ) -> Result<Applied, StoreError> {
        let is_cut = self.is_leased_from() || self.conn.embedded().is_none();
        let at_most = if is_cut { CHUNK } else { BATCH };
        // The rest goes on in the memory that it is in.
        let effects: Vec<Effect> = if left.effects.len() <= at_most {
            std::mem::take(&mut left.effects).collect()
        } else {
            left.effects.by_ref().take(at_most).collect()
        };
        self.make_room_for_texts(&effects)?;
        let paths = std::mem::take(&mut left.paths);
        let first = left.admitted;
        let chunk = self.gathering(|state| state.apply_all(origin, effects, paths, first))?;
        left.paths = chunk.paths;
        left.admitted += chunk.admitted;
        Ok(chunk.applied)
    }

    fn apply_all(
        &mut self,
        origin: Origin,
        effects: Vec<Effect>,
        paths: Paths,
        first: usize,
    ) -> Result<Chunk, StoreError> {
        self.look_ahead(&effects)?;
        self.meet_site(origin.site);
        let quota = self.policy.of(Some(origin.site)).max_urls;
        let (urls, unlisted): (i64, i64) = self
            .conn
            .prepare_cached("SELECT urls, unlisted FROM sites WHERE id = ?1 /*pg: FOR KEY SHARE */")
            .and_then(|mut query| {
                query.query_row([origin.site.0], |row| Ok((row.get(0)?, row.get(1)?)))
            })
            .map_err(engine)?;
        let more = self.sums.of(origin.site);
        let (urls, unlisted) = (urls + more.urls, unlisted + more.unlisted);
        let listed = (urls - unlisted).max(0).unsigned_abs();
        let mut chunk = Chunk {
            origin,
            applied: Applied::default(),
            log: ChangeLog::default(),
            made: 0,
            quota_left: quota.saturating_sub(listed),
            rows_left: quota.saturating_mul(UNLISTED_SHARE).saturating_sub(urls.unsigned_abs()),
            unlisted: 0,
            priorities: 0,
            now_s: self.steady_ms().div_euclid(1000),
            wall_s: self.now_ms().div_euclid(1000),
            ages: Vec::new(),
            paths,
            admitted: 0,
            told: self.told_before(origin, &effects)?,
            told_before: None,
        };
        // As a rule a chunk is nothing else, or has none.
        let are_admissions = matches!(effects.first(), Some(Effect::Admit { .. }));
        let mut admissions = Vec::with_capacity(if are_admissions { effects.len() } else { 0 });
        for effect in effects {
            if let Effect::Admit { slot, url, raw, lastmod, hints, kind } = effect {
                let number = first + chunk.admitted;
                chunk.admitted += 1;
                admissions.push(Admission { number, slot, url, raw, lastmod, hints, kind });
                continue;
            }
            self.admit_all(&mut chunk, &std::mem::take(&mut admissions))?;
            self.apply_one(&mut chunk, effect)?;
        }
        self.admit_all(&mut chunk, &admissions)?;
        if chunk.made > 0 || chunk.priorities != 0 {
            let made = i64::try_from(chunk.made).unwrap_or(i64::MAX);
            self.count_urls(origin.site, made, chunk.priorities)?;
        }
        if chunk.unlisted != 0 {
            self.count_unlisted(origin.site, chunk.unlisted)?;
        }
        let Origin { crawl, source, generation, .. } = origin;
        if let Some(crawl) = self.crawls.get(&crawl) {
            let ages = std::mem::take(&mut chunk.ages);
            self.told.tell(Count::Came(Way::PublishedToSeen, crawl.name.clone(), ages));
        }
        self.changes_moved |= std::mem::take(&mut chunk.log).write(
            &self.conn,
            self.now_ms(),
            crawl,
            source,
            generation,
        )?;
        Ok(chunk)
    }

    /// What the read has told already of a chunk that has come before: on a server
    /// whoever gave it may not have heard that it was applied. Of a file, who reads
    /// asks once, before the first chunk.
    fn told_before(
        &self,
        origin: Origin,
        effects: &[Effect],
    ) -> Result<HashSet<(ChangeKind, UrlId)>, StoreError> {
        let is_told_only = |effect: &Effect| {
            matches!(
                effect,
                Effect::Touched { .. } | Effect::Regressed { .. } | Effect::Missing { .. }
            )
        };
        if self.conn.embedded().is_some()
            || origin.generation == OF_NO_READ
            || !effects.iter().any(is_told_only)
        {
            return Ok(HashSet::new());
        }
        changes::logged(&self.conn, origin.source, origin.generation)
    }

    /// Reads ahead what a chunk will ask for, where each question is a journey.
    fn look_ahead(&mut self, effects: &[Effect]) -> Result<(), StoreError> {
        if self.conn.embedded().is_some() {
            return Ok(());
        }
        self.read_rows_ahead(effects.iter().filter_map(Effect::row_of_interest))?;
        let mut dropped: Vec<UrlId> = effects.iter().filter_map(Effect::dropped).collect();
        // In the order of the tables.
        dropped.sort_unstable();
        self.ask_who_is_alone(&dropped)
    }

    fn apply_one(&mut self, chunk: &mut Chunk, effect: Effect) -> Result<(), StoreError> {
        match effect {
            // Those go together: see `apply`.
            Effect::Admit { .. } => Ok(()),
            Effect::Changed { url, lastmod, hints } => {
                let Some(row) = self.url_row(url)? else { return Ok(()) };
                let row = self.take_hints(chunk, row, hints)?;
                self.take_moved(chunk, row, lastmod)
            }
            Effect::Touched { url, lastmod, hints } => {
                let Some(row) = self.url_row(url)? else { return Ok(()) };
                let row = self.take_hints(chunk, row, hints)?;
                self.take_lastmod_silently(&row, lastmod)?;
                chunk.applied.counts.touched += 1;
                if chunk.told.contains(&(ChangeKind::Touched, url)) {
                    return Ok(());
                }
                chunk.log.push(ChangeKind::Touched, url);
                if self.is_told_already(&row, chunk.origin) {
                    return Ok(());
                }
                self.take_signal(row, Signal::Touched, Some(chunk.origin.source), false)
            }
            Effect::Regressed { url, hints } => {
                if let Some(row) = self.url_row(url)? {
                    self.take_hints(chunk, row, hints)?;
                }
                chunk.applied.counts.regressed += 1;
                if !chunk.told.contains(&(ChangeKind::Regressed, url)) {
                    chunk.log.push(ChangeKind::Regressed, url);
                }
                Ok(())
            }
            Effect::Hints { url, lastmod, hints } => {
                let Some(row) = self.url_row(url)? else { return Ok(()) };
                let row = self.take_hints(chunk, row, hints)?;
                self.take_lastmod_silently(&row, lastmod)?;
                chunk.applied.counts.unchanged += 1;
                Ok(())
            }
            Effect::Missing { url } => {
                if !chunk.told.contains(&(ChangeKind::Missing, url)) {
                    chunk.log.push(ChangeKind::Missing, url);
                }
                Ok(())
            }
            Effect::Drop { url } => {
                let Some(row) = self.release_holder(chunk, url)? else { return Ok(()) };
                if matches!(row.state, held::PARKED | held::DEAD) {
                    // Nobody needs to be told that it is gone, or to try once more.
                    return Ok(());
                }
                self.pull_forward_removed(&row)
            }
            Effect::Unwant { url } => {
                let Some(row) = self.release_holder(chunk, url)? else { return Ok(()) };
                if row.leased {
                    return self.note_unwanted(&row);
                }
                self.place_url(&row, held::PARKED, row.reason, row.band, row.due_s, row.attempt)
            }
            Effect::Extensions { url, said } => {
                self.take_extensions(chunk.origin.source, url, said.as_ref())
            }
        }
    }

    /// Is what touched an entry of a further source an edit that is known already? The
    /// first source speaks for itself; of others, one that its date told of some hours
    /// ago, or that touched it since the last look, is the same.
    fn is_told_already(&self, row: &UrlRow, origin: Origin) -> bool {
        let now_s = self.now_ms().div_euclid(1000);
        let is_dated = |lastmod: Lastmod| {
            let age = now_s - lastmod.at.as_second();
            lastmod.precision >= Precision::Minute && (0..SAME_EDIT_S).contains(&age)
        };
        let is_pending = |learned: Model| learned.pending()[Signal::Touched] > 0;
        row.source != Some(origin.source)
            && (row.lastmod.is_some_and(is_dated) || row.learned().is_some_and(is_pending))
    }

    /// The source lists a URL that the store knows already.
    pub(super) fn list_again(
        &mut self,
        chunk: &mut Chunk,
        mut row: UrlRow,
        listing: &Admission,
    ) -> Result<(), StoreError> {
        let lastmod = listing.lastmod;
        row = self.take_from_left(row, chunk.origin)?;
        row = self.add_holder(chunk.origin, row)?;
        self.take_kind(&mut row, listing.kind)?;
        let mut row = self.take_hints(chunk, row, listing.hints)?;
        if !row.listed {
            self.write_listed(row.id, true)?;
            // Whose source lists again what none did has it.
            chunk.unlisted -= 1;
            self.take_lastmod_silently(&row, lastmod)?;
            if row.expires_s.is_some() || row.fresh_s.is_some() {
                // Said by those who listed it before.
                row = self.sum_up_marks(row)?;
            }
            let row = UrlRow { listed: true, ..row };
            chunk.applied.counts.new += 1;
            chunk.log.push(ChangeKind::New, row.id);
            return self.pull_forward(&row, Reason::New).map(|_| ());
        }
        self.take_lastmod(chunk, row, lastmod)
    }

    /// What any source lists as a page is a page for as long as it is listed.
    fn take_kind(&mut self, row: &mut UrlRow, listed_as: UrlKind) -> Result<(), StoreError> {
        let kind = if row.listed { row.kind.min(listed_as) } else { listed_as };
        if kind == row.kind {
            return Ok(());
        }
        row.kind = kind;
        self.at_hand.forget(row.id);
        if let Some(changed) = self.pending.changed(row.id) {
            changed.kind = Some(kind);
            return Ok(());
        }
        self.conn
            .prepare_cached(&TAKE_KIND)
            .and_then(|mut update| update.execute(params![row.id.0, kind as i64]))
            .map(|_| ())
            .map_err(engine)
    }

    /// A date that its source has moved forward: a change if it is newer than the best
    /// so far, and else if that one is no reason to know of it already.
    fn take_moved(
        &mut self,
        chunk: &mut Chunk,
        row: UrlRow,
        date: Lastmod,
    ) -> Result<(), StoreError> {
        let Some(best) = row.lastmod.filter(|best| !date.is_newer_than(*best)) else {
            return self.take_lastmod(chunk, row, Some(date));
        };
        // Somebody was wrong by a time zone: until that hour nothing would be news.
        let ahead = |it: Lastmod| it.at.as_second() > chunk.wall_s.saturating_add(AHEAD_S);
        let is_mistaken = ahead(best) && !ahead(date);
        self.take_lastmod_silently(&row, Some(date))?;
        if !self.is_news(&row, (best, is_mistaken), date, chunk.origin)? {
            chunk.applied.counts.unchanged += 1;
            return Ok(());
        }
        // Of a read that is done once more: the row does not show it. Where its signal no
        // longer waits, a newer document may be told of now.
        let waits = row.learned().is_none_or(|known| known.pending()[Signal::Lastmod] > 0);
        if waits && self.has_told(chunk, row.id)? {
            chunk.applied.counts.changed += 1;
            return Ok(());
        }
        self.tell_changed(chunk, row, date, false)
    }

    /// Has this read said before that a URL has changed, and then begun anew?
    fn has_told(&self, chunk: &mut Chunk, url: UrlId) -> Result<bool, StoreError> {
        let Origin { source, generation, .. } = chunk.origin;
        if generation == OF_NO_READ {
            return Ok(false);
        }
        let told = match &mut chunk.told_before {
            Some(told) => told,
            unknown => unknown.insert(changes::logged(&self.conn, source, generation)?),
        };
        Ok(told.contains(&(ChangeKind::Changed, url)))
    }

    /// Is a date news that is not newer than the best, as its source has not said it
    /// before? The best may be a stamp of another source, which stands for no edit, a mere
    /// day, or a mistake. What was edited after the last look, and no believed date of
    /// another source waits to be looked at, is: two sources that tell of one edit tell of
    /// it between two looks. Where nobody has looked, only a mistake is told from an edit.
    fn is_news(
        &mut self,
        row: &UrlRow,
        (best, is_mistaken): (Lastmod, bool),
        date: Lastmod,
        origin: Origin,
    ) -> Result<bool, StoreError> {
        let is_same = !best.is_newer_than(date) && best.precision >= date.precision;
        if is_same || origin.signal_of(date) == Signal::Stamp {
            return Ok(false);
        }
        let is_told_by_another = match row.learned() {
            Some(known) => {
                known.pending()[Signal::Lastmod] > 0
                    && row.giver() != Some(origin.source)
                    && self.beliefs_of(row)?.pulls[Signal::Lastmod] > 0.0
            }
            None => row.is_queued() && row.reason == Reason::Changed && !is_mistaken,
        };
        // What was reported last may be no look.
        let fetched = row.record.fetched.as_ref().filter(|fetched| fetched.is_look());
        let known = row.learned().map(|known| known.seen().as_millisecond());
        let is_unseen = match fetched.map(|look| look.at).max(known) {
            Some(look) => {
                let since = self.now_ms() - self.steady_ms();
                date.at.as_millisecond() > look.saturating_add(since)
            }
            None => is_mistaken,
        };
        Ok(is_unseen && !is_told_by_another)
    }

    /// A date for a URL: a signal if it is newer than the best so far.
    fn take_lastmod(
        &mut self,
        chunk: &mut Chunk,
        mut row: UrlRow,
        lastmod: Option<Lastmod>,
    ) -> Result<(), StoreError> {
        let newer = match (row.lastmod, lastmod) {
            (Some(best), Some(date)) if date.is_newer_than(best) => Some(date),
            _ => None,
        };
        let Some(newer) = newer else {
            self.take_lastmod_silently(&row, lastmod)?;
            chunk.applied.counts.unchanged += 1;
            return Ok(());
        };
        self.write_lastmod(row.id, Some(newer))?;
        row.record.previous = row.lastmod;
        self.tell_changed(chunk, row, newer, true)
    }

    /// A source says that a URL has changed. The row's record is written in any case
    /// when it `is_ahead` of the table.
    fn tell_changed(
        &mut self,
        chunk: &mut Chunk,
        row: UrlRow,
        date: Lastmod,
        is_ahead: bool,
    ) -> Result<(), StoreError> {
        chunk.applied.counts.changed += 1;
        chunk.note_published(Some(date));
        chunk.log.push(ChangeKind::Changed, row.id);
        let Origin { source, .. } = chunk.origin;
        self.take_signal(row, chunk.origin.signal_of(date), Some(source), is_ahead)
    }

    /// A date for a URL that is no signal: the first one, or a more precise
    /// spelling of the best so far.
    fn take_lastmod_silently(
        &mut self,
        row: &UrlRow,
        lastmod: Option<Lastmod>,
    ) -> Result<(), StoreError> {
        let Some(date) = lastmod else { return Ok(()) };
        let better = match row.lastmod {
            None => true,
            Some(best) => {
                date.is_newer_than(best)
                    || !best.is_newer_than(date) && date.precision > best.precision
            }
        };
        if better { self.write_lastmod(row.id, lastmod) } else { Ok(()) }
    }

    fn write_lastmod(&mut self, url: UrlId, lastmod: Option<Lastmod>) -> Result<(), StoreError> {
        self.at_hand.forget(url);
        if let Some(changed) = self.pending.changed(url) {
            changed.lastmod = lastmod;
            return Ok(());
        }
        let (second, precision) = lastmod_columns(lastmod);
        self.conn
            .prepare_cached(&TAKE_LASTMOD)
            .and_then(|mut update| update.execute(params![url.0, second, precision]))
            .map(|_| ())
            .map_err(engine)
    }

    fn write_hints(&mut self, url: UrlId, hints: EntryHints) -> Result<(), StoreError> {
        self.at_hand.forget(url);
        if let Some(changed) = self.pending.changed(url) {
            changed.hints = Some(hints);
            return Ok(());
        }
        self.conn
            .prepare_cached(&TAKE_HINTS)
            .and_then(|mut update| update.execute(params![url.0, hints.to_bits()]))
            .map(|_| ())
            .map_err(engine)
    }

    fn write_listed(&mut self, url: UrlId, listed: bool) -> Result<(), StoreError> {
        self.at_hand.forget(url);
        if let Some(changed) = self.pending.changed(url) {
            changed.listed = Some(listed);
            return Ok(());
        }
        self.conn
            .prepare_cached(&LIST)
            .and_then(|mut update| update.execute(params![url.0, listed]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Takes over priority and changefreq: those of the source whose evidence
    /// counts first, and of another one only where there are none. No signal,
    /// but the place in the queue follows.
    fn take_hints(
        &mut self,
        chunk: &mut Chunk,
        mut row: UrlRow,
        hints: EntryHints,
    ) -> Result<UrlRow, StoreError> {
        let is_primary = row.source == Some(chunk.origin.source);
        let merged = if is_primary {
            hints
        } else {
            EntryHints {
                changefreq: row.hints.changefreq.or(hints.changefreq),
                priority: row.hints.priority.or(hints.priority),
            }
        };
        if merged == row.hints {
            return Ok(row);
        }
        self.write_hints(row.id, merged)?;
        let before = std::mem::replace(&mut row.hints, merged);
        if row.site == Some(chunk.origin.site) {
            chunk.priorities += thousandths(merged.priority) - thousandths(before.priority);
        } else if let Some(site) = row.site {
            let more = thousandths(merged.priority) - thousandths(before.priority);
            self.count_urls(site, 0, more)?;
        }
        if row.is_queued() && row.reason != Reason::Submitted {
            let (band, due_s) = self.place_under_new_hints(&row, before, chunk.now_s)?;
            if band != row.band || due_s != row.due_s {
                self.place_url(&row, held::QUEUED, row.reason, band, due_s, row.attempt)?;
                (row.band, row.due_s, row.has_feedback) = (band, due_s, true);
            }
        }
        Ok(row)
    }

    /// Band and due time of a queued URL whose hints were `before`; no sooner than a
    /// fetcher has put it off.
    fn place_under_new_hints(
        &mut self,
        row: &UrlRow,
        before: EntryHints,
        now_s: i64,
    ) -> Result<(u8, i64), StoreError> {
        // What was gone once is owed a look, at its own time.
        let waits = row.reason == Reason::Recrawl && row.attempt == 0 && row.record.gone == 0;
        let floor = row.record.floor_s().unwrap_or(i64::MIN);
        if waits && let Some((band, due_s)) = self.place_by_value(row, now_s)? {
            return Ok((band, due_s.max(floor)));
        }
        let band = self.rank(row, row.reason, now_s)?;
        if !waits || before.changefreq == row.hints.changefreq {
            return Ok((band, row.due_s));
        }
        // Another changefreq is another interval, counted from the same fetch.
        let was = UrlRow { hints: before, ..row.clone() };
        let (had, has) = (self.due_by_protocol(&was, now_s), self.due_by_protocol(row, now_s));
        let moved = had.zip(has).map_or(0, |(had, has)| has.max(floor) - had.max(floor));
        Ok((band, row.due_s.saturating_add(moved)))
    }

    /// Band and due time of a URL that waits to be fetched again, where its value
    /// decides.
    pub(super) fn place_by_value(
        &mut self,
        row: &UrlRow,
        now_s: i64,
    ) -> Result<Option<(u8, i64)>, StoreError> {
        let Some(valued) = self.valued(row)? else { return Ok(None) };
        let place = valued.place(timestamp(now_s.saturating_mul(1000)));
        let due = self.due_by_value(row, place.surfaces, valued.worth.seen)?;
        Ok(Some((place.band, due.as_second())))
    }

    /// When the protocol has a URL due that waits to be fetched again, by what was last
    /// reported of it.
    pub(super) fn due_by_protocol(&self, row: &UrlRow, now_s: i64) -> Option<i64> {
        let fetched = row.record.fetched.as_ref()?;
        let (known, bounds) = (row.known(0, now_s), &self.policy.of(row.site).bounds);
        match recrawl::after_settle(fetched.outcome, fetched.time(), &known, bounds) {
            Fate::Queue { due, .. } => Some(ceil_seconds(due.as_millisecond())),
            Fate::Park | Fate::Dead => None,
        }
    }

    /// The source of the chunk lists a URL no longer; the row, when that was
    /// the last one that did.
    fn release_holder(
        &mut self,
        chunk: &mut Chunk,
        url: UrlId,
    ) -> Result<Option<UrlRow>, StoreError> {
        let Some(row) = self.url_row(url)? else { return Ok(None) };
        if !row.listed || self.remove_holder(chunk.origin.source, &row)? {
            return Ok(None);
        }
        self.write_listed(url, false)?;
        match row.site {
            Some(site) if site == chunk.origin.site => chunk.unlisted += 1,
            Some(site) => self.count_unlisted(site, 1)?,
            None => {}
        }
        chunk.applied.counts.removed += 1;
        chunk.log.push(ChangeKind::Removed, url);
        Ok(Some(UrlRow { listed: false, ..row }))
    }

    /// Queued once more, so that a fetcher can see whether it is gone; what somebody asked
    /// for keeps its place, and shows it as well.
    pub(super) fn pull_forward_removed(&mut self, row: &UrlRow) -> Result<(), StoreError> {
        if row.is_queued() && row.reason == Reason::Submitted {
            return Ok(());
        }
        if row.is_queued() {
            let now_s = self.steady_ms().div_euclid(1000);
            let band = self.rank(row, Reason::Removed, now_s)?;
            let due_s = row.due_s.min(row.soonest(Reason::Removed, now_s));
            return self.place_url(row, held::QUEUED, Reason::Removed, band, due_s, row.attempt);
        }
        self.pull_forward(row, Reason::Removed).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
