//! What a URL is worth: its row, what is believed of its like, and the price,
//! brought to the form in which `recrawl` weighs them.
//!
//! Where nothing is known that could be weighed (the order is the protocol's,
//! nobody looked yet, nobody compared, no source lists it, it is fresh news) a
//! URL stands where the protocol puts it.

use jiff::Timestamp;

use super::learn::Scope;
use super::policy::SitePolicy;
use super::rows::{UrlRow, held};
use super::state::State;
use super::sums::Sum;
use super::{StoreError, engine, timestamp};
use crate::model::{HostId, Outcome, Priority, Reason, SiteId, SourceId};
use crate::queue::{BANDS_ALIKE, Settlement};
use crate::recrawl::model::{Beliefs, Look, UrlState};
use crate::recrawl::prior::Bucket;
use crate::recrawl::signal::Signal;
use crate::recrawl::value::{self, PROOF, Place, Worth};
use crate::recrawl::{self};

/// A change that is less of the page than this is none: a rotating
/// advertisement, a counter, the date in the footer.
pub(super) const SIGNIFICANT: f64 = 0.05;
/// The place of a page that is looked at for no reason of its own.
const AT_PRICE: f64 = 50.0;

/// A URL that is ordered by its value.
pub(super) struct Valued {
    pub(super) worth: Worth,
    pub(super) price: f64,
}

impl Valued {
    /// Where it goes when its row is written at `now`. What counts as equal when
    /// it is taken lies together: rows in fewer places dirty fewer pages.
    pub(super) fn place(&self, now: Timestamp) -> Place {
        let place = self.worth.place(now, self.price);
        let band = place.band.saturating_add(BANDS_ALIKE / 2) / BANDS_ALIKE * BANDS_ALIKE;
        Place { band: if self.worth.proof() < 1.0 { place.band } else { band.min(100) }, ..place }
    }
}

impl State {
    /// May the value of a queued URL decide? Whether it does shows when it is
    /// taken.
    pub(super) fn is_valued(&self, row: &UrlRow, reason: Reason) -> bool {
        self.policy.learns()
            && row.record.looks.is_some()
            && row.listed
            && matches!(reason, Reason::Recrawl | Reason::Changed)
    }

    /// A URL by its value, where there is evidence to take it by.
    pub(super) fn valued(&mut self, row: &UrlRow) -> Result<Option<Valued>, StoreError> {
        self.valued_at(row, self.steady_ms().div_euclid(1000))
    }

    /// The same as of some second.
    pub(super) fn valued_at(
        &mut self,
        row: &UrlRow,
        now_s: i64,
    ) -> Result<Option<Valued>, StoreError> {
        match row.learned() {
            Some(learned) => self.valued_by(row, &learned, now_s),
            None => Ok(None),
        }
    }

    /// The same by what looks have taught of it.
    pub(super) fn valued_by(
        &mut self,
        row: &UrlRow,
        learned: &UrlState,
        now_s: i64,
    ) -> Result<Option<Valued>, StoreError> {
        if !self.policy.learns() || !row.listed || row.is_fresh(now_s) {
            return Ok(None);
        }
        let beliefs = self.beliefs_of(row)?;
        let mean = self.mean_priority(row.site)?;
        let price = self.price(row.crawl)?;
        let site = self.policy.of(row.site);
        let now = timestamp(now_s.saturating_mul(1000));
        let worth = worth(row, learned, &beliefs, site, mean, now);
        Ok((worth.proof() > 0.0).then_some(Valued { worth, price }))
    }

    /// What a URL is to be judged by.
    pub(super) fn beliefs_of(&mut self, row: &UrlRow) -> Result<Beliefs, StoreError> {
        self.beliefs_in(row, row.giver())
    }

    /// The same where a source gives its signals.
    fn beliefs_in(
        &mut self,
        row: &UrlRow,
        source: Option<SourceId>,
    ) -> Result<Beliefs, StoreError> {
        let assumed = self.policy.of(row.site).bounds.changefreq.of(row.hints.changefreq);
        self.beliefs(row.host, source, Bucket::of(row.hints.changefreq), assumed)
    }

    /// The place in line of a URL that is queued for a reason, as of now.
    pub(super) fn rank(
        &mut self,
        row: &UrlRow,
        reason: Reason,
        now_s: i64,
    ) -> Result<u8, StoreError> {
        if reason == Reason::Submitted {
            return Ok(recrawl::SUBMITTED_BAND);
        }
        if row.is_fresh(now_s) {
            return Ok(recrawl::FRESH_BAND);
        }
        if matches!(reason, Reason::Recrawl | Reason::Changed)
            && let Some(valued) = self.valued(row)?
        {
            return Ok(valued.place(timestamp(now_s.saturating_mul(1000))).band);
        }
        self.rank_unvalued(row, reason, now_s)
    }

    /// The same of a URL that is known to have no value of its own.
    pub(super) fn rank_unvalued(
        &mut self,
        row: &UrlRow,
        reason: Reason,
        now_s: i64,
    ) -> Result<u8, StoreError> {
        if row.is_fresh(now_s) {
            return Ok(recrawl::FRESH_BAND);
        }
        let refreshed = matches!(reason, Reason::Recrawl | Reason::Changed);
        // What nobody has seen yet is as good as new.
        let reason = if refreshed && row.record.looks.is_none() { Reason::New } else { reason };
        self.rank_for(row.host, reason, row.hints.priority)
    }

    /// The place in line of a URL that nobody knew.
    pub(super) fn rank_of_new(
        &mut self,
        host: HostId,
        priority: Option<Priority>,
    ) -> Result<u8, StoreError> {
        self.rank_for(host, Reason::New, priority)
    }

    fn rank_for(
        &mut self,
        host: HostId,
        reason: Reason,
        priority: Option<Priority>,
    ) -> Result<u8, StoreError> {
        Ok(rank_by(self.proof_of_host(host)?, reason, priority))
    }

    /// How far looks, and not the protocol, decide over what is new of a host: 0 to 1.
    pub(super) fn proof_of_host(&mut self, host: HostId) -> Result<f64, StoreError> {
        if !self.policy.learns() {
            return Ok(0.0);
        }
        let looks = self.looks_at(host)?;
        Ok((looks / PROOF).clamp(0.0, 1.0))
    }

    /// A signal that a URL may have changed: it is noted with what is known of
    /// the page, and pulls it forward as far as such signals of that source have
    /// proved right; those of no source as far as they have where it is listed.
    /// The row's record is written in any case when it `is_ahead` of the table.
    pub(super) fn take_signal(
        &mut self,
        mut row: UrlRow,
        signal: Signal,
        source: Option<SourceId>,
        mut is_ahead: bool,
    ) -> Result<(), StoreError> {
        let is_written = if self.policy.learns() {
            let pull = self.beliefs_in(&row, source.or(row.source))?.pulls[signal];
            let before = (row.record.looks, row.record.giver);
            let is_noted = self.note_signal(&mut row, signal, source, pull)?;
            is_ahead |= (row.record.looks, row.record.giver) != before;
            if is_noted || !row.is_queued() && !row.leased {
                self.follow_signal(&row, pull)?
            } else {
                // Another's waits that is believed more, or for a look that has begun, which
                // is told what that one says only; in the latter case this asks for one more.
                if row.leased && pull > 0.0 {
                    self.note_changed_besides(&row)?;
                }
                false
            }
        } else {
            self.pull_forward(&row, Reason::Changed)?
        };
        if is_ahead && !is_written { self.write_record(&row) } else { Ok(()) }
    }

    /// Notes a signal that is believed that far with what is known of the page. Of two
    /// sources that is told by one, or the next look would praise and blame both for
    /// what one of them said: by the one that is believed more. Says whether it is noted,
    /// or nothing is known of the page that it could be noted with.
    fn note_signal(
        &mut self,
        row: &mut UrlRow,
        signal: Signal,
        source: Option<SourceId>,
        pull: f64,
    ) -> Result<bool, StoreError> {
        let Some(mut packed) = row.record.looks else { return Ok(true) };
        if let Some(source) = source {
            if UrlState::is_signalled(&packed) && row.giver() != Some(source) {
                // What a look that has begun will be told stays as it was.
                let is_begun = row.leased && !self.has_changed_since_lease(row)?;
                if is_begun || !self.outweighs(row, signal, pull)? {
                    return Ok(false);
                }
                UrlState::unsignal_packed(&mut packed);
            }
            row.record.giver = Some(source).filter(|source| row.source != Some(*source));
        }
        UrlState::signal_packed(&mut packed, signal);
        row.record.looks = Some(packed);
        Ok(true)
    }

    /// Is a signal that is believed that far believed more than those that another source
    /// has given? Where none is, at least stamps are in the way of nothing else.
    fn outweighs(&mut self, row: &UrlRow, signal: Signal, pull: f64) -> Result<bool, StoreError> {
        let Some(learned) = row.learned() else { return Ok(true) };
        let beliefs = self.beliefs_of(row)?;
        let (mut most, mut are_stamps) = (0.0_f64, true);
        for (kind, count) in learned.pending().iter() {
            if *count > 0 && kind != Signal::Pushed {
                most = most.max(beliefs.pulls[kind]);
                are_stamps &= kind == Signal::Stamp;
            }
        }
        Ok(pull > most || most <= 0.0 && are_stamps && signal != Signal::Stamp)
    }

    /// Moves a URL for a signal that is believed that far; says whether its
    /// record was written with that.
    fn follow_signal(&mut self, row: &UrlRow, pull: f64) -> Result<bool, StoreError> {
        if pull <= 0.0 {
            return Ok(false);
        }
        let waits = row.is_queued()
            && row.attempt == 0
            && row.expires_s.is_none()
            && matches!(row.reason, Reason::Recrawl | Reason::Changed);
        if waits && let Some(valued) = self.valued(row)? {
            return self.bring_forward(row, &valued);
        }
        self.pull_forward(row, Reason::Changed)
    }

    /// Gives a waiting URL an earlier place, if that is worth a write; says
    /// whether it was.
    fn bring_forward(&mut self, row: &UrlRow, valued: &Valued) -> Result<bool, StoreError> {
        let now = timestamp(self.steady_ms());
        let place = valued.place(now);
        let second = |second: i64| timestamp(second.saturating_mul(1000));
        let was = second(row.due_s);
        let is = row.record.floor_s().map_or(place.surfaces, |s| place.surfaces.max(second(s)));
        let seen = valued.worth.seen;
        if was <= now || is >= was || !value::is_worth_a_write(seen, was, is) {
            return Ok(false);
        }
        self.place_url(
            row,
            held::QUEUED,
            Reason::Changed,
            place.band,
            is.as_second(),
            row.attempt,
        )?;
        Ok(true)
    }

    /// Takes in what a fetcher saw at `at`; what is known of the page after it. Where
    /// nothing is learned, that is only that it was seen. A signal that came since the
    /// fetch began is for the look after this one: of those that wait, the one that is
    /// believed most.
    pub(super) fn look(
        &mut self,
        row: &UrlRow,
        look: Look,
        at: Timestamp,
        is_signalled_since: bool,
    ) -> Result<Option<UrlState>, StoreError> {
        let learns = self.policy.learns();
        let Some(mut learned) = row.learned() else {
            return Ok(learns.then(|| UrlState::first(at)));
        };
        if !learns {
            learned.see(at);
            return Ok(Some(learned));
        }
        let beliefs = self.beliefs_of(row)?;
        let pending = learned.pending().iter().filter(|(_, count)| **count > 0);
        let since = pending
            .map(|(signal, _)| signal)
            .filter(|_| is_signalled_since)
            .max_by(|a, b| beliefs.pulls[*a].total_cmp(&beliefs.pulls[*b]));
        if let Some(signal) = since {
            learned.unsignal(signal);
        }
        if let Some(evidence) = learned.look(at, look, &beliefs) {
            let bucket = Bucket::of(row.hints.changefreq);
            self.learn(row.host, row.giver(), bucket, &evidence, &beliefs)?;
        }
        if let Some(signal) = since {
            learned.signal(signal);
        }
        Ok(Some(learned))
    }

    /// Would lastmods of its source, as they moved last, pull a URL forward?
    pub(super) fn believes_dates_of(&mut self, row: &UrlRow) -> Result<bool, StoreError> {
        if !self.policy.learns() {
            return Ok(true);
        }
        let moves = self.moves_of(row)?;
        Ok(self.beliefs_in(row, row.source)?.pulls[moves] > 0.0)
    }

    /// What a newer lastmod of its source is, as they moved last.
    pub(super) fn moves_of(&mut self, row: &UrlRow) -> Result<Signal, StoreError> {
        Ok(match row.source {
            Some(source) => self.habits(source)?.1.unwrap_or(Signal::Lastmod),
            None => Signal::Lastmod,
        })
    }

    /// Mean priority of a site's URLs, 0 to 1.
    pub(super) fn mean_priority(&mut self, site: Option<SiteId>) -> Result<f64, StoreError> {
        let Some(site) = site else { return Ok(0.5) };
        if let Some(mean) = self.learning.means.get(&site) {
            return Ok(*mean);
        }
        let mean = self
            .conn
            .prepare_cached(MEAN_PRIORITY)
            .and_then(|mut query| query.query_row([site.0], |row| row.get(0)))
            .map_err(engine)?;
        self.learning.means.insert(site, mean);
        Ok(mean)
    }

    /// More (or fewer) URLs of a site, and what that does to the sum of its
    /// priorities.
    pub(super) fn count_urls(
        &mut self,
        site: SiteId,
        urls: i64,
        priorities: i64,
    ) -> Result<(), StoreError> {
        self.add_to_site(site, Sum { urls, priorities, ..Sum::default() })
    }

    /// A site gets a row, or has it no more.
    pub(super) fn count_row(
        &mut self,
        site: SiteId,
        row: &UrlRow,
        is_taken: bool,
    ) -> Result<(), StoreError> {
        let sign = if is_taken { 1 } else { -1 };
        let (unlisted, priorities) = (i64::from(!row.listed), thousandths(row.hints.priority));
        let sum = Sum {
            urls: sign,
            unlisted: sign * unlisted,
            priorities: sign * priorities,
            ..Sum::default()
        };
        self.add_to_site(site, sum)
    }

    /// So many more (or fewer) rows of a site are listed by no source.
    pub(super) fn count_unlisted(&mut self, site: SiteId, rows: i64) -> Result<(), StoreError> {
        self.add_to_site(site, Sum { unlisted: rows, ..Sum::default() })
    }

    /// Is a host known well enough for what is worth too little to wait?
    pub(super) fn is_known(&mut self, host: HostId) -> Result<bool, StoreError> {
        Ok(self.priors_of_host(host)?.are_known())
    }

    /// Looks that a page of a host can be judged by.
    fn looks_at(&mut self, host: HostId) -> Result<f64, StoreError> {
        let all = self.lessons(Scope::All)?.priors;
        Ok(self.priors_of_host(host)?.looks(&all))
    }
}

/// The place in line of a URL of a host on which looks decide that far.
pub(super) fn rank_by(proof: f64, reason: Reason, priority: Option<Priority>) -> u8 {
    value::band_for(reason, f64::from(recrawl::band(priority)), proof, AT_PRICE)
}

/// Mean priority of the URLs of a site.
pub(super) const MEAN_PRIORITY: &str =
    "SELECT CASE WHEN urls > 0 THEN CAST(priorities AS DOUBLE PRECISION) / 1000.0 / urls
                 ELSE 0.5 END FROM sites WHERE id = ?1";

/// What the value of a URL rests on.
pub(super) fn worth(
    row: &UrlRow,
    learned: &UrlState,
    beliefs: &Beliefs,
    site: &SitePolicy,
    mean: f64,
    now: Timestamp,
) -> Worth {
    let priority = row.hints.priority.unwrap_or(Priority::DEFAULT);
    let bounds = &site.bounds;
    Worth {
        estimate: learned.estimate(beliefs, now),
        mu: site.weight * value::relative(priority.as_f64(), mean),
        priority: f64::from(recrawl::band(row.hints.priority)),
        protocol: bounds.changefreq.of(row.hints.changefreq).clamp(bounds.min, bounds.max),
        min: bounds.min,
        max: bounds.max,
        // A clock may have been ahead.
        seen: learned.seen().min(now),
        id: row.id.0,
    }
}

/// What a report says of changes; `None` where the page was not seen. A hash of
/// another kind than the last compares with nothing, whatever came of it, and a
/// change that is next to nothing of the page is none.
pub(super) fn look_of(outcome: Outcome, report: &Settlement, row: &UrlRow) -> Option<Look> {
    let look = Look::of(outcome)?;
    if look != Look::Changed {
        return Some(look);
    }
    let record = &row.record;
    let has_other_kind = record.content_hash().is_some()
        && report.content_hash.is_some()
        && report.hash_kind.as_deref() != record.hash_kind();
    if has_other_kind {
        return Some(Look::Unknown);
    }
    let is_noise = report.significance.is_some_and(|share| share < SIGNIFICANT);
    Some(if is_noise { Look::Unchanged } else { Look::Changed })
}

/// A priority as the sum of a site's counts it.
pub(super) fn thousandths(priority: Option<Priority>) -> i64 {
    i64::from(priority.unwrap_or(Priority::DEFAULT).thousandths())
}
