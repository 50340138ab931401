//! From the rows of a host that are due to its window, each at its value as of
//! now.
//!
//! A row keeps the time at which it was to be looked at, by the price of when it
//! was written. Here it is looked at: what is not worth enough goes back with a
//! corrected due time, what is goes into the window by its value. A look that is
//! owed is owed whatever it is worth ([`State::is_owed`]). Nothing else ever moves a
//! row because time passes or the price moves.

use jiff::Timestamp;

use super::behind::{Behind, lacks};
use super::given::Call;
use super::lease::{HELD_PER_CALL, Heads};
use super::rows::{
    LISTED_WITH_ROWS, LISTED_WITH_VALUED, REST_WITH_VALUED, UrlRow, held, read_listed,
};
use super::state::State;
use super::walk::{AS_LISTED, Due, REST_AS_LISTED, Walk, read_place};
use super::{StoreError, timestamp};
use crate::model::{CrawlId, HostId, Reason, UrlId};
use crate::queue::window::{Extent, Valued};
use crate::queue::{Candidate, Claim};
use crate::recrawl::value::TOO_CHEAP;

/// Values are taken anew after so many seconds.
const FRESH_S: i64 = 3_600;

/// Of a host's URLs that are worth less than the price so many stay in line, however much
/// less, for when nothing else is wanted: a price that falls again would not find what has
/// gone back, nor a look prove that it is worth more.
const LEAST_SPARE: usize = 64;

/// So many are kept at least where more are worth nearly as much.
const MOST_SPARE: usize = 256;

/// URLs of some sites that are looked at at least, once one of them was put back.
const LEAST_LOOK: usize = 64;

/// What is due, what of it is known, whether that is all, and when the next is.
type Head = Due<(Candidate, Option<Box<UrlRow>>)>;

impl State {
    /// Fills the window's buffer of a host with what is due of it; says how many rows
    /// it has passed over, since they are not worth the price.
    pub(super) fn fill(
        &mut self,
        crawl: CrawlId,
        host: HostId,
        now_s: i64,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.write_pending_of(host)?;
        self.at_hand.fit();
        if !self.is_by_value(host)? {
            let is_read = self.at_hand.ahead.has_rows_of((crawl, host));
            let (due, extent, next_due) = if !is_read && self.at_hand.has_room(limit) {
                self.due_with_rows(crawl, host, now_s, limit)?
            } else {
                self.due_of_host(crawl, host, now_s, limit)?
            };
            self.window(crawl).refill(host, &due, extent, next_due);
            return Ok(0);
        }
        let passed = self.window(crawl).passed(host, now_s.saturating_mul(1000));
        let last = passed.map(|passed| passed.last);
        let (due, extent, next_due) = if self.at_hand.ahead.has_rows_of((crawl, host)) {
            self.due_as_read((crawl, host), now_s, limit, last)?
        } else {
            self.due_with_looks((crawl, host), now_s, limit, last)?
        };
        let last = due.last().map(|(last, _)| *last).filter(|_| extent == Extent::Prefix);
        let behind = match &last {
            Some(last) => {
                let lacks = lacks(due.iter().map(|(candidate, _)| candidate), limit);
                self.behind((crawl, host), last, now_s, lacks)?
            }
            None => Behind::default(),
        };
        let fresh_until = now_s.saturating_add(FRESH_S);
        let soonest = next_due.into_iter().chain(passed.map(|passed| passed.stale_at)).min();
        let mut head = Valued {
            candidates: Vec::with_capacity(due.len()),
            last,
            passed: passed.map_or(0, |passed| passed.rows),
            goes_on: passed.is_some(),
            most_spare: limit.max(MOST_SPARE),
            stale_at: soonest.map_or(fresh_until, |due| due.min(fresh_until)),
            next_due_at: next_due.into_iter().chain(passed.and_then(|p| p.next_due_at)).min(),
            ..Valued::default()
        };
        let before = head.passed;
        self.gathering(|state| {
            let valued = |candidate: &&Candidate| candidate.claim != Claim::Fixed;
            state.read_rows_ahead(behind.candidates.iter().filter(valued).map(|c| c.id))?;
            for (candidate, row) in due {
                let valued =
                    state.refine(candidate, row, now_s, (f64::INFINITY, LEAST_SPARE, &mut head))?;
                match valued {
                    // It is in the way of nothing that is behind it.
                    Some(spare) if spare.claim == Claim::Spare => {
                        head.passed += 1;
                        head.spare.push(spare);
                    }
                    other => head.candidates.extend(other),
                }
            }
            for candidate in behind.candidates {
                let row = match candidate.claim {
                    // It stands as listed.
                    Claim::Fixed => None,
                    _ => state.url_row(candidate.id)?,
                };
                let stands_there = |row: &UrlRow| row.stands_at(candidate.band, candidate.due_at);
                let row = row.filter(stands_there).map(Box::new);
                let valued =
                    state.refine(candidate, row, now_s, (f64::INFINITY, LEAST_SPARE, &mut head))?;
                head.behind.extend(valued);
            }
            Ok(())
        })?;
        let refreshed = head.behind.iter().filter(|behind| behind.claim.is_refreshed()).count();
        // Or a look would find hardly any of it, time and again.
        head.has_more_behind = behind.has_more && refreshed >= behind.wanted / 2;
        (head.has_more_new, head.room_for_new) = (behind.has_more_new, behind.room_for_new);
        self.window(crawl).refill_by_value(host, &head);
        Ok(head.passed - before)
    }

    /// What is next of a host for the sites that a call names, in the order of the
    /// table: at their values of now, and what is not worth enough goes back, as from
    /// the window. Rows surface long before they are due while little is known.
    pub(super) fn worth_of_sites(
        &mut self,
        call: &mut Call,
        host: HostId,
        wanted: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        let (now_s, mut limit) = (call.now.div_euclid(1000), wanted);
        self.at_hand.fit();
        loop {
            self.write_pending()?;
            let place = (call.crawl, host);
            let (due, passed) = self.due_of_sites(place, call.now, limit, &call.sites)?;
            call.passed += passed;
            let is_none = due.is_empty();
            let heads = self.with_rows(due, |head| head.claim != Claim::Fixed)?;
            let most_back = HELD_PER_CALL.saturating_sub(call.held);
            let (found, back) =
                self.gathering(|state| state.refine_in_order(heads, (wanted, most_back), now_s))?;
            call.held += back;
            let is_enough = call.held >= HELD_PER_CALL || call.has_passed_enough();
            if is_none || !found.is_empty() || is_enough {
                return Ok(found);
            }
            limit = wanted.max(LEAST_LOOK);
        }
    }

    /// The first `wanted` of these that are worth enough, and how many have gone back
    /// on the way, of `most_back`.
    fn refine_in_order(
        &mut self,
        heads: Heads,
        (wanted, most_back): (usize, usize),
        now_s: i64,
    ) -> Result<(Vec<Candidate>, usize), StoreError> {
        // What is early waits; what is late is for who names its site, however dear a fetch
        // has become for want of fetchers.
        let dearest = self.policy.opening_price;
        let (mut found, mut back) = (Vec::with_capacity(heads.len().min(wanted)), 0);
        for (candidate, row) in heads {
            if found.len() >= wanted || back >= most_back {
                break;
            }
            match self.refine(candidate, row, now_s, (dearest, 0, &mut Valued::default()))? {
                Some(valued) => found.push(valued),
                None => back += 1,
            }
        }
        Ok((found, back))
    }

    /// Do values count among the URLs of a host?
    pub(super) fn is_by_value(&mut self, host: HostId) -> Result<bool, StoreError> {
        Ok(self.proof_of_host(host)? > 0.0)
    }

    /// The candidate at its value; `None` when that is too little by the price, or the
    /// `dearest` that counts, and its row has gone back, of which `head` hears. Where some
    /// are kept to spare, `least_spare` stay, and all of a host that is not known yet.
    fn refine(
        &mut self,
        listed: Candidate,
        row: Option<Box<UrlRow>>,
        now_s: i64,
        (dearest, least_spare, head): (f64, usize, &mut Valued),
    ) -> Result<Option<Candidate>, StoreError> {
        if listed.claim == Claim::Fixed {
            return Ok(Some(listed));
        }
        let as_listed = Candidate::as_listed(listed.id, listed.host, listed.band, listed.due_at);
        let Some(row) = row else { return Ok(Some(as_listed)) };
        let Some(valued) = self.valued_at(&row, now_s)? else {
            self.at_hand.keep(row);
            return Ok(Some(as_listed));
        };
        let (now, price) = (timestamp(now_s.saturating_mul(1000)), valued.price);
        let worth = valued.worth.at(now);
        let (is_due, is_overdue) = (worth.is_due(price), worth.is_overdue());
        let is_owed = !is_due && self.is_owed(&row, valued.worth.seen, now)?;
        let too_cheap = price.min(dearest) * TOO_CHEAP;
        let is_claimed = is_due || is_overdue || is_owed || worth.is_due(too_cheap);
        // Where nothing is kept aside, as for who names sites, what stays would be leased.
        let has_room = head.spare.len() < least_spare;
        let stays = has_room || (least_spare > 0 && !self.is_known(row.host)?);
        if !is_claimed && !stays {
            let place = valued.place(now);
            let due = self.due_by_value(&row, place.surfaces, valued.worth.seen)?;
            // Later than now, or it would be looked at again at once.
            let due_s = due.as_second().max(now_s + 1);
            self.place_url(&row, held::QUEUED, row.reason, place.band, due_s, row.attempt)?;
            head.is_due_at(due_s);
            return Ok(None);
        }
        let claim = match is_due {
            false if is_owed => Claim::Overdue,
            false => Claim::Spare,
            true if is_overdue && worth.value < price => Claim::Overdue,
            true => Claim::Worth,
        };
        let score = worth.score(price);
        self.at_hand.keep(row);
        Ok(Some(listed.valued(score, claim)))
    }

    /// Is a look at a page, last seen then, owed whatever it is worth: did its last
    /// lease come to nothing, was it gone for the first time, did it change while it
    /// was leased last, or has the day ended that its lastmod names?
    fn is_owed(
        &mut self,
        row: &UrlRow,
        seen: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        // What its fetcher put off is owed when that is over.
        let until_s = row.record.floor_s().unwrap_or(i64::MIN).max(seen.as_second());
        let since_lease = row.reason == Reason::Changed && row.due_s <= until_s;
        if row.attempt > 0 || row.record.came_to_nothing() || row.record.gone > 0 || since_lease {
            return Ok(true);
        }
        Ok(self.due_by_value(row, Timestamp::MAX, seen)? <= now)
    }

    /// The head of a host's list as [`Self::due_of_host`] reads it, whose rows are
    /// at hand from then on.
    fn due_with_rows(
        &mut self,
        crawl: CrawlId,
        host: HostId,
        now_s: i64,
        limit: usize,
    ) -> Result<Due<Candidate>, StoreError> {
        let listed = (crawl, host);
        let walk = Walk { statement: &LISTED_WITH_ROWS, behind: None };
        let (due, extent, next_due) = self.walk_due(walk, listed, now_s, limit, |row| {
            let (place, url) = read_listed(row, crawl, host, &mut Vec::new())?;
            Ok((place.candidate(), url))
        })?;
        let mut candidates = Vec::with_capacity(due.len());
        for (candidate, row) in due {
            candidates.push(candidate);
            if let Some(row) = row {
                self.at_hand.keep(row);
            }
        }
        Ok((candidates, extent, next_due))
    }

    /// The head of a host's list as [`Self::due_of_host`] reads it, with the rows
    /// of those whose value is to be taken anew, behind a row where one is named: one
    /// statement a band, since this is read for every row that comes due.
    fn due_with_looks(
        &self,
        (crawl, host): (CrawlId, HostId),
        now_s: i64,
        limit: usize,
        last: Option<(u8, i64, UrlId)>,
    ) -> Result<Head, StoreError> {
        let walk = Walk::on_from(last, &LISTED_WITH_VALUED, &REST_WITH_VALUED);
        self.walk_due(walk, (crawl, host), now_s, limit, |row| {
            let (place, url) = read_listed(row, crawl, host, &mut Vec::new())?;
            Ok((place.candidate(), url))
        })
    }

    /// The same where rows of it have been read ahead.
    fn due_as_read(
        &mut self,
        (crawl, host): (CrawlId, HostId),
        now_s: i64,
        limit: usize,
        last: Option<(u8, i64, UrlId)>,
    ) -> Result<Head, StoreError> {
        let walk = Walk::on_from(last, AS_LISTED, &REST_AS_LISTED);
        let (due, extent, next_due) = self.walk_due(walk, (crawl, host), now_s, limit, |row| {
            Ok(read_place(row, crawl, host)?.candidate())
        })?;
        let due = self.with_rows(due, |head| head.claim != Claim::Fixed)?;
        Ok((due, extent, next_due))
    }
}
