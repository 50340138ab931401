//! What a URL is worth: its row, what is believed of its like, and the price,
//! brought to the form in which `recrawl` weighs them.
//!
//! Where nothing is known that could be weighed (the order is the protocol's,
//! nobody looked yet, nobody compared, no source lists it, it is fresh news) a
//! URL stands where the protocol puts it.

use jiff::Timestamp;
use rusqlite::params;

use super::learn::Scope;
use super::policy::SitePolicy;
use super::rows::{UrlRow, held};
use super::state::State;
use super::{StoreError, engine, timestamp, turns};
use crate::diff::snapshot::EntryHints;
use crate::model::{CrawlId, HostId, Outcome, Priority, Reason, SiteId, SourceId, UrlId};
use crate::queue::{BANDS_ALIKE, Settlement};
use crate::recrawl::model::{Beliefs, Look, PACKED, UrlState};
use crate::recrawl::prior::Bucket;
use crate::recrawl::signal::Signal;
use crate::recrawl::value::{self, PROOF, Place, Worth};
use crate::recrawl::{self};

/// A change that is less of the page than this is none: a rotating
/// advertisement, a counter, the date in the footer.
pub(super) const SIGNIFICANT: f64 = 0.05;
/// The place of a page that is looked at for no reason of its own.
const AT_PRICE: f64 = 50.0;

/// What the value of a listed URL rests on, of its row.
pub(super) struct Kept {
    pub(super) id: UrlId,
    pub(super) crawl: CrawlId,
    pub(super) host: HostId,
    pub(super) site: Option<SiteId>,
    pub(super) source: Option<SourceId>,
    pub(super) hints: EntryHints,
    pub(super) fresh_s: Option<i64>,
    pub(super) looks: [u8; PACKED],
}

impl Kept {
    /// The same of a whole row; `None` where no source lists it, or nobody ever
    /// looked.
    pub(super) fn of(row: &UrlRow) -> Option<Self> {
        row.looks.filter(|_| row.listed).map(|looks| Self::with(row, looks))
    }

    /// The same, as if looks had taught this of it.
    pub(super) fn with(row: &UrlRow, looks: [u8; PACKED]) -> Self {
        Self {
            id: row.id,
            crawl: row.crawl,
            host: row.host,
            site: row.site,
            source: row.source,
            hints: row.hints,
            fresh_s: row.fresh_s,
            looks,
        }
    }
}

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
            && row.looks.is_some()
            && row.listed
            && matches!(reason, Reason::Recrawl | Reason::Changed)
    }

    /// A URL by its value, where there is evidence to take it by.
    pub(super) fn valued(&mut self, row: &UrlRow) -> Result<Option<Valued>, StoreError> {
        if !self.policy.learns() {
            return Ok(None);
        }
        self.valued_at(row, self.steady_ms().div_euclid(1000))
    }

    /// The same as of some second.
    pub(super) fn valued_at(
        &mut self,
        row: &UrlRow,
        now_s: i64,
    ) -> Result<Option<Valued>, StoreError> {
        let Some(kept) = Kept::of(row) else { return Ok(None) };
        self.weigh_now(&kept, now_s)
    }

    /// The same by what is needed of its row.
    fn weigh_now(&mut self, kept: &Kept, now_s: i64) -> Result<Option<Valued>, StoreError> {
        let is_fresh = kept.fresh_s.is_some_and(|end| end > now_s);
        let Some(learned) = UrlState::unpack(&kept.looks).filter(|_| !is_fresh) else {
            return Ok(None);
        };
        let assumed = self.policy.of(kept.site).bounds.changefreq.of(kept.hints.changefreq);
        let bucket = Bucket::of(kept.hints.changefreq);
        let beliefs = self.beliefs(kept.host, kept.source, bucket, assumed)?;
        self.weigh(kept, &learned, &beliefs, timestamp(now_s.saturating_mul(1000)))
    }

    fn weigh(
        &mut self,
        kept: &Kept,
        learned: &UrlState,
        beliefs: &Beliefs,
        now: Timestamp,
    ) -> Result<Option<Valued>, StoreError> {
        let mean = self.mean_priority(kept.site)?;
        let price = self.price(kept.crawl)?;
        let site = self.policy.of(kept.site);
        let worth = worth(kept, learned, beliefs, site, mean, now);
        Ok((worth.proof() > 0.0).then_some(Valued { worth, price }))
    }

    /// What a URL is to be judged by.
    pub(super) fn beliefs_of(&mut self, row: &UrlRow) -> Result<Beliefs, StoreError> {
        let assumed = self.policy.of(row.site).bounds.changefreq.of(row.hints.changefreq);
        self.beliefs(row.host, row.source, Bucket::of(row.hints.changefreq), assumed)
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
        let reason = if refreshed && row.looks.is_none() { Reason::New } else { reason };
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
        let listed = recrawl::band(priority);
        if !self.policy.learns() {
            return Ok(listed);
        }
        let proof = self.proof_of_host(host)?;
        Ok(value::band_for(reason, f64::from(listed), proof, AT_PRICE))
    }

    /// How far looks, and not the protocol, decide over what is new of a host.
    pub(super) fn proof_of_host(&mut self, host: HostId) -> Result<f64, StoreError> {
        let looks = self.looks_at(host)?;
        Ok((looks / PROOF).clamp(0.0, 1.0))
    }

    /// A signal that a URL may have changed: it is noted with what is known of
    /// the page, and pulls it forward as far as such signals have proved right.
    pub(super) fn take_signal(&mut self, row: &UrlRow, signal: Signal) -> Result<(), StoreError> {
        if !self.policy.learns() {
            return self.pull_forward(row, Reason::Changed);
        }
        let beliefs = self.beliefs_of(row)?;
        let mut looks = row.looks;
        if let Some(packed) = &mut looks {
            UrlState::signal_packed(packed, signal);
        }
        if beliefs.pulls[signal] > 0.0 {
            return self.follow_signal(row, looks);
        }
        if looks == row.looks { Ok(()) } else { self.write_looks(row.id, looks) }
    }

    /// Moves a URL for a signal that is believed; `looks` are with that signal.
    fn follow_signal(
        &mut self,
        row: &UrlRow,
        looks: Option<[u8; PACKED]>,
    ) -> Result<(), StoreError> {
        let waits = row.is_queued()
            && row.attempt == 0
            && row.expires_s.is_none()
            && matches!(row.reason, Reason::Recrawl | Reason::Changed);
        let is_noted = looks != row.looks;
        if let Some(looks) = looks.filter(|_| waits && row.listed)
            && let Some(valued) = self.weigh_now(&Kept::with(row, looks), self.now_s())?
        {
            // The place is written with what was noted, or that alone.
            if !self.bring_forward(row, &valued, looks)? && is_noted {
                self.write_looks(row.id, Some(looks))?;
            }
            return Ok(());
        }
        if !is_noted {
            return self.pull_forward(row, Reason::Changed);
        }
        self.write_looks(row.id, looks)?;
        self.pull_forward(&UrlRow { looks, ..row.clone() }, Reason::Changed)
    }

    fn now_s(&self) -> i64 {
        self.steady_ms().div_euclid(1000)
    }

    /// Gives a waiting URL an earlier place, if that is worth a write; says
    /// whether it was.
    fn bring_forward(
        &mut self,
        row: &UrlRow,
        valued: &Valued,
        looks: [u8; PACKED],
    ) -> Result<bool, StoreError> {
        let now = timestamp(self.steady_ms());
        let place = valued.place(now);
        let (was, is) = (timestamp(row.due_s.saturating_mul(1000)), place.surfaces);
        let seen = valued.worth.seen;
        if was <= now || is >= was || !value::is_worth_a_write(seen, was, is) {
            return Ok(false);
        }
        let place = turns::Place { band: place.band, due_s: is.as_second(), ..row.place() };
        let (state, why) = (held::QUEUED, Reason::Changed);
        self.place_with(row, state, why, place, row.attempt, Some(looks))?;
        Ok(true)
    }

    fn write_looks(&mut self, url: UrlId, looks: Option<[u8; PACKED]>) -> Result<(), StoreError> {
        self.conn
            .prepare_cached("UPDATE feedback SET looks = ?2 WHERE url_id = ?1")
            .and_then(|mut update| update.execute(params![url.0, looks]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Takes in what a fetcher saw at `at`; what is known of the page after it.
    pub(super) fn look(
        &mut self,
        row: &UrlRow,
        look: Look,
        at: Timestamp,
    ) -> Result<UrlState, StoreError> {
        let Some(mut learned) = row.learned() else { return Ok(UrlState::first(at)) };
        let beliefs = self.beliefs_of(row)?;
        if let Some(evidence) = learned.look(at, look, &beliefs) {
            let bucket = Bucket::of(row.hints.changefreq);
            self.learn(row.host, row.source, bucket, &evidence, &beliefs)?;
        }
        Ok(learned)
    }

    /// Would lastmods of its source, as they moved last, pull a URL forward?
    pub(super) fn believes_dates_of(&mut self, row: &UrlRow) -> Result<bool, StoreError> {
        if !self.policy.learns() {
            return Ok(true);
        }
        let moves = match row.source {
            Some(source) => self.habits(source)?.1.unwrap_or(Signal::Lastmod),
            None => Signal::Lastmod,
        };
        Ok(self.beliefs_of(row)?.pulls[moves] > 0.0)
    }

    /// Mean priority of a site's URLs, 0 to 1.
    fn mean_priority(&mut self, site: Option<SiteId>) -> Result<f64, StoreError> {
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
        self.learning.means.remove(&site);
        self.conn
            .prepare_cached(
                "UPDATE sites SET urls = urls + ?2, priorities = priorities + ?3 WHERE id = ?1",
            )
            .and_then(|mut update| update.execute(params![site.0, urls, priorities]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Looks that a page of a host can be judged by.
    fn looks_at(&mut self, host: HostId) -> Result<f64, StoreError> {
        let all = self.lessons(Scope::All)?.priors;
        Ok(self.lessons(Scope::Host(host))?.priors.looks(&all))
    }
}

/// Mean priority of the URLs of a site.
pub(super) const MEAN_PRIORITY: &str = "SELECT CASE WHEN urls > 0 THEN priorities / 1000.0 / urls ELSE 0.5 END FROM sites WHERE id = ?1";

/// What the value of a URL rests on.
pub(super) fn worth(
    kept: &Kept,
    learned: &UrlState,
    beliefs: &Beliefs,
    site: &SitePolicy,
    mean: f64,
    now: Timestamp,
) -> Worth {
    let priority = kept.hints.priority.unwrap_or(Priority::DEFAULT);
    let bounds = &site.bounds;
    Worth {
        estimate: learned.estimate(beliefs, now),
        mu: site.weight * value::relative(priority.as_f64(), mean),
        priority: f64::from(recrawl::band(kept.hints.priority)),
        protocol: bounds.changefreq.of(kept.hints.changefreq).clamp(bounds.min, bounds.max),
        min: bounds.min,
        max: bounds.max,
        seen: learned.seen(),
        id: kept.id.0,
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
    let has_other_kind = row.content_hash.is_some()
        && report.content_hash.is_some()
        && report.hash_kind != row.hash_kind;
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
