//! What has become worth a fetch before its row is due.
//!
//! A row keeps the due time of the price of when it was written: what was written while
//! fetches were dear comes due long after it is worth what a fetch costs now. No row is
//! moved for that. Whoever asks for more than is due has hosts looked through, each once
//! in a round and what comes due next first, and gets what of it is worth the price. Who
//! names sites has rounds of their hosts, and passes over what is of others.
//!
//! Keeps: a call reads a bounded number of rows, a round goes through each band of a host
//! where enough of what it finds is worth the price and in growing steps where it is not,
//! a host that must be left alone takes no more room than one look fills, a round that
//! finds nothing is repeated only when the price has fallen, or a day later, and what is in
//! line again where it was is not missed by a round that is past that place.

use std::collections::{HashMap, VecDeque};

use super::given::Call;
use super::packed::site_of;
use super::rows::{LISTED_WITH_VALUED, REST_WITH_VALUED, UrlRow, read_listed};
use super::sql::params;
use super::state::State;
use super::{StoreError, engine, timestamp};
use crate::by_id::{ById, IdSet};
use crate::model::{CrawlId, HostId, SiteId};
use crate::queue::{Candidate, Claim};

/// Rows of a band that are looked at at once, which is also what a server is asked for.
const LOOK: usize = 64;
/// One of so many of these must be worth the price, or what follows is stepped over.
const WORTH_ONE_MORE: usize = 8;
/// Behind a step so many are looked at first,
const PROBE: usize = 16;
/// and a step leads so far at least, in seconds.
const LEAST_STEP: i64 = 3_600;
/// Rows of one host that are looked at in a round.
const LOOKED_AT: usize = 4_096;
/// Reads, and rows, in one call at most: the next call goes on from there.
const READS_PER_CALL: usize = 64;
const ROWS_PER_CALL: usize = 1_024;
/// Hosts in one call at most, those that nothing is read of included.
const HOSTS_PER_CALL: usize = 256;
/// The price must have fallen to this part of what it was for a round after one that
/// found next to nothing,
const FALLEN: f64 = 0.95;
/// or so much time have passed, since values grow.
const AGAIN_MS: i64 = 86_400_000;
/// Where the price has risen to so many times what it was, what was found is not worth it.
const RISEN: f64 = 1.05;
/// Rounds for callers that name sites, at most, and names of sites and hosts left to all of
/// them, about: for more, those go that began first,
const OF_SITES: usize = 4_096;
const HELD_OF_SITES: usize = 131_072;
/// but none that began since then, or with many callers each call would begin one.
const STAYS_MS: i64 = 3_600_000;
/// Hosts that are remembered at most for what has come back to them: of more, all rounds
/// begin anew.
const BACK: usize = 4_096;
/// Callers that wait are woken for so long for a look that is to go on.
const GOES_ON_MS: i64 = 5_000;

/// Due time and row in a band's list.
type Spot = (i64, i64);

/// How far a host has been looked through.
#[derive(Debug)]
struct Reached {
    host: HostId,
    /// Bands below this one are left.
    below: i64,
    /// Of that band, what is behind this.
    rest: Option<Spot>,
    /// Were rows stepped over to come there?
    is_probe: bool,
    looked_at: usize,
}

impl Reached {
    fn nothing(host: HostId) -> Self {
        Self { host, below: i64::from(u8::MAX) + 1, rest: None, is_probe: false, looked_at: 0 }
    }
}

/// For whom is looked: who asks for whatever a crawl has, or for these sites of it.
type Whose = (CrawlId, Vec<SiteId>);
/// What is worth the price, with its site.
type Found = (Candidate, Option<SiteId>);

/// One look through the hosts of a crawl, or of some sites of it.
#[derive(Debug)]
struct Round {
    left: VecDeque<Reached>,
    /// Of these enough is known: it waits for the clocks of hosts, or nobody wanted it.
    aside: VecDeque<Reached>,
    begun_at: i64,
    /// What the price was, or has risen to since, and when it had moved last.
    price: f64,
    ticked_at: i64,
    looked_at: usize,
    found: usize,
    /// Does it step over less at once than the last did, to come to other places?
    is_close: bool,
    /// So much of what has come back since others began is known to it.
    heard: usize,
}

/// What is left to a call that looks.
#[derive(Debug)]
struct Left {
    reads: usize,
    rows: usize,
}

impl Left {
    fn is_any(&self) -> bool {
        self.reads > 0 && self.rows > 0
    }
}

impl Round {
    /// Is it time for the next, at a price that moved last then?
    fn is_over(&self, price: f64, ticked_at: i64, now_ms: i64) -> bool {
        let found_enough = self.found * LOOK >= self.looked_at.max(1);
        let is_late = now_ms - self.begun_at >= AGAIN_MS || now_ms < self.begun_at;
        let has_reason = found_enough || price <= self.price * FALLEN || is_late;
        self.left.is_empty() && ticked_at != self.ticked_at && has_reason
    }

    /// Is the price so much higher that nothing that was found counts? Then this is over,
    /// and it is from there that the price must fall for the next.
    fn has_risen_to(&mut self, price: f64) -> bool {
        let has_risen = price >= self.price * RISEN;
        if has_risen {
            (self.left, self.aside) = (VecDeque::new(), VecDeque::new());
            self.found = 0;
            self.price = price;
        }
        has_risen
    }
}

/// The rounds of all crawls.
#[derive(Debug, Default)]
pub(super) struct EarlyLooks {
    rounds: HashMap<Whose, Round>,
    /// When the last call ended for what it may read, so that the next is to go on.
    cut_at: ById<CrawlId, i64>,
    /// Hosts to which something has come back at the place that it had, of which a round
    /// may be past.
    back: Vec<(CrawlId, HostId)>,
    /// Has any round heard of the last of these?
    is_heard: bool,
}

impl EarlyLooks {
    /// Since when something is left to be looked at that a call had to leave to the next.
    /// Where none comes that may, nobody is woken for it any more.
    pub(super) fn goes_on(&self, crawl: CrawlId, now: i64) -> Option<i64> {
        let cut_at = *self.cut_at.get(&crawl)?;
        (cut_at..cut_at + GOES_ON_MS).contains(&now).then_some(cut_at)
    }

    /// Nobody may go on for now.
    pub(super) fn rest(&mut self, crawl: CrawlId) {
        self.cut_at.remove(&crawl);
    }

    pub(super) fn clear(&mut self) {
        self.rounds.clear();
        self.cut_at.clear();
        self.back.clear();
    }

    /// A URL that was held back is in line again where it was, however long ago it got that
    /// place: rounds that have begun go through its host once more.
    pub(super) fn came_back(&mut self, crawl: CrawlId, host: HostId) {
        let is_last = self.back.last() == Some(&(crawl, host)) && !self.is_heard;
        if self.rounds.is_empty() || is_last {
            return;
        }
        if self.back.len() >= BACK {
            self.rounds.clear();
            self.back.clear();
            return;
        }
        self.back.push((crawl, host));
        self.is_heard = false;
    }

    /// A round hears to which of its hosts, which are in order, something has come back.
    fn hear(&mut self, whose: &Whose, hosts: &[HostId]) {
        let Some(round) = self.rounds.get_mut(whose) else { return };
        let news = self.back.get(round.heard..).unwrap_or_default();
        if news.is_empty() {
            return;
        }
        let is_theirs = |host: &HostId| whose.1.is_empty() || hosts.binary_search(host).is_ok();
        let of_crawl = news.iter().filter(|(crawl, _)| *crawl == whose.0).map(|(_, host)| *host);
        let again: IdSet<HostId> = of_crawl.filter(is_theirs).collect();
        for line in [&mut round.left, &mut round.aside] {
            line.retain(|reached| !again.contains(&reached.host));
        }
        round.left.extend(again.into_iter().map(Reached::nothing));
        round.heard = self.back.len();
        self.is_heard = true;
    }

    pub(super) fn forget(&mut self, crawl: CrawlId) {
        self.rounds.retain(|(of, _), _| *of != crawl);
        self.cut_at.remove(&crawl);
    }

    /// Begins a round where there is room for it, or another makes room.
    fn begin(&mut self, whose: &Whose, mut round: Round) {
        self.rounds.remove(whose);
        if self.rounds.is_empty() {
            self.back.clear();
        }
        round.heard = self.back.len();
        while !whose.1.is_empty() {
            let others = || self.rounds.iter().filter(|((_, sites), _)| !sites.is_empty());
            let held = others()
                .map(|((_, sites), other)| sites.len() + other.left.len() + other.aside.len());
            if others().count() < OF_SITES && held.sum::<usize>() < HELD_OF_SITES {
                break;
            }
            let Some((first, other)) = others().min_by_key(|(_, other)| other.begun_at) else {
                break;
            };
            if (0..STAYS_MS).contains(&(round.begun_at - other.begun_at)) {
                return;
            }
            let first = first.clone();
            self.rounds.remove(&first);
        }
        self.rounds.insert(whose.clone(), round);
    }
}

/// Rows of a band's list, how many were stepped over for them, and the last of all.
type Later = (Vec<(Candidate, Option<Box<UrlRow>>)>, usize, Option<Spot>);

impl State {
    /// Finds up to so many URLs, about, that are worth the price and not due by their rows,
    /// for when nothing is due: of these hosts, where a call names sites.
    pub(super) fn look_early(
        &mut self,
        call: &Call,
        hosts: &[HostId],
        wanted: usize,
    ) -> Result<(), StoreError> {
        if !self.policy.learns() {
            return Ok(());
        }
        let (crawl, now, whose) = (call.crawl, call.now, (call.crawl, call.sites.clone()));
        self.begin_round(&whose, hosts, now)?;
        self.early.hear(&whose, hosts);
        // Not before, or a host that is paused would keep all others from the next round.
        if let Some(round) = self.early.rounds.get_mut(&whose)
            && round.left.is_empty()
        {
            round.left = std::mem::take(&mut round.aside);
        }
        self.at_hand.fit();
        let mut left = Left { reads: READS_PER_CALL, rows: ROWS_PER_CALL };
        let mut found = 0;
        for _ in 0..HOSTS_PER_CALL {
            if found >= wanted || !left.is_any() || !self.window(crawl).make_room_for_early() {
                break;
            }
            let round = self.early.rounds.get_mut(&whose);
            let Some(mut reached) = round.and_then(|round| round.left.pop_front()) else { break };
            let host = reached.host;
            let window = self.window(crawl);
            let (known, waits) =
                (window.early_of(host, &whose.1), window.waits_for_clock(host, now));
            // Of one that must be left alone anything is enough: it would take the room of
            // others, and the call for itself.
            if known >= wanted || waits && known > 0 {
                if let Some(round) = self.early.rounds.get_mut(&whose) {
                    round.aside.push_back(reached);
                }
                continue;
            }
            let is_left = if self.is_worth_a_look(host, &mut left)? {
                let now_s = now.div_euclid(1000);
                let early = self.look_on(&whose, &mut reached, now_s, &mut left)?;
                found += if waits { 0 } else { early.len() };
                self.window(crawl).offer_early(host, &early);
                !early.is_empty() || !left.is_any()
            } else {
                false
            };
            if is_left && let Some(round) = self.early.rounds.get_mut(&whose) {
                round.left.push_back(reached);
            }
        }
        self.early.rest(crawl);
        if let Some(round) = self.early.rounds.get_mut(&whose) {
            if round.left.is_empty() {
                round.left.shrink_to_fit();
            } else if !left.is_any() {
                self.early.cut_at.insert(crawl, now);
            }
        }
        Ok(())
    }

    /// Do values count among the URLs of a host? What is known of it may have to be read.
    fn is_worth_a_look(&mut self, host: HostId, left: &mut Left) -> Result<bool, StoreError> {
        left.reads -= 1;
        self.is_by_value(host)
    }

    /// Has all hosts looked through that there are for somebody, if it is time for it.
    fn begin_round(
        &mut self,
        whose: &Whose,
        hosts: &[HostId],
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let crawl = whose.0;
        let (price, ticked_at) = self.price_of_tick(crawl)?;
        let mut is_close = false;
        if let Some(last) = self.early.rounds.get_mut(whose) {
            is_close = !last.is_close;
            if !last.is_over(price, ticked_at, now_ms) {
                if last.has_risen_to(price) {
                    self.forget_early(whose, hosts);
                }
                return Ok(());
            }
        }
        self.forget_early(whose, hosts);
        let window = self.window(crawl);
        let left = if whose.1.is_empty() {
            window.hosts_queued().map(Reached::nothing).collect()
        } else {
            // Others may be those of another daemon.
            let ours = hosts.iter().copied().filter(|host| window.has_queued(*host));
            ours.map(Reached::nothing).collect()
        };
        let round = Round {
            left,
            aside: VecDeque::new(),
            begun_at: now_ms,
            price,
            ticked_at,
            looked_at: 0,
            found: 0,
            is_close,
            heard: 0,
        };
        self.early.begin(whose, round);
        Ok(())
    }

    /// What was found for somebody counts no more, who looks anew. What others have found is
    /// left to their rounds.
    fn forget_early(&mut self, whose: &Whose, hosts: &[HostId]) {
        let window = self.window(whose.0);
        if whose.1.is_empty() {
            window.forget_early();
        } else {
            for host in hosts {
                window.forget_early_of(*host, &whose.1);
            }
        }
    }

    /// Goes on to look through a host until something is found, all is looked through, or
    /// the call has read enough.
    fn look_on(
        &mut self,
        whose: &Whose,
        reached: &mut Reached,
        now_s: i64,
        left: &mut Left,
    ) -> Result<Vec<Found>, StoreError> {
        let (crawl, host) = (whose.0, reached.host);
        self.write_pending_of(host)?;
        let mut found = Vec::new();
        while found.is_empty() && left.is_any() && reached.looked_at < LOOKED_AT {
            left.reads -= 1;
            let (band, behind) = match reached.rest.take() {
                Some(spot) => (reached.below, spot),
                None => match self.next_band(crawl, host, reached.below)? {
                    Some(band) => (band, (now_s, i64::MAX)),
                    None => break,
                },
            };
            reached.below = band;
            let most = if reached.is_probe { PROBE } else { LOOK };
            let (later, looked_at, last) =
                self.later_of_band((crawl, host), &whose.1, band, behind, most)?;
            self.gathering(|state| {
                for (listed, row) in later {
                    found.extend(match row {
                        Some(row) => state.early_of(listed, row, now_s)?,
                        None => None,
                    });
                }
                Ok(())
            })?;
            reached.looked_at += looked_at;
            left.rows = left.rows.saturating_sub(looked_at);
            let Some(round) = self.early.rounds.get_mut(whose) else { break };
            round.looked_at += looked_at;
            round.found += found.len();
            reached.rest = last.filter(|_| looked_at >= most);
            reached.is_probe = reached.rest.is_some() && found.len() * WORTH_ONE_MORE < looked_at;
            if reached.is_probe {
                reached.rest = last.map(|last| beyond(last, now_s, round.is_close));
            }
        }
        Ok(found)
    }

    /// What of a host's band comes behind a place in it, in the order of the table.
    fn later_of_band(
        &self,
        (crawl, host): (CrawlId, HostId),
        only: &[SiteId],
        band: i64,
        (due_s, url): Spot,
        most: usize,
    ) -> Result<Later, StoreError> {
        let is_embedded = self.conn.embedded().is_some();
        let statement = if is_embedded { &REST_WITH_VALUED } else { &LISTED_WITH_VALUED };
        let mut query = self.conn.prepare_cached(statement).map_err(engine)?;
        let page = i64::try_from(most).unwrap_or(i64::MAX);
        let values = params![crawl.0, host.0, due_s, url, page, band];
        let mut rows = query.query(values).map_err(engine)?;
        let (mut later, mut looked_at, mut last) = (Vec::new(), 0, None);
        while looked_at < most
            && let Some(row) = rows.next().map_err(engine)?
            && row.get::<i64>(0).map_err(engine)? == band
        {
            looked_at += 1;
            last = Some((row.get(1).map_err(engine)?, row.get(2).map_err(engine)?));
            if self.may_lease(site_of(row.get(3).map_err(engine)?), only) {
                let (place, url) =
                    read_listed(&row, crawl, host, &mut Vec::new()).map_err(engine)?;
                later.push((place.candidate(), url));
            }
        }
        Ok((later, looked_at, last))
    }

    /// The candidate at its value, if it waits for nothing but that, and is worth the price.
    fn early_of(
        &mut self,
        listed: Candidate,
        row: Box<UrlRow>,
        now_s: i64,
    ) -> Result<Option<Found>, StoreError> {
        let record = &row.record;
        let is_put_off = record.floor_s().is_some_and(|until_s| until_s > now_s);
        let has_failed = row.attempt > 0 || record.came_to_nothing() || record.gone > 0;
        if listed.claim == Claim::Fixed || is_put_off || has_failed || row.expires_s.is_some() {
            return Ok(None);
        }
        let Some(score) = self.early_worth(&row, now_s.saturating_mul(1000))? else {
            return Ok(None);
        };
        let site = row.site;
        self.at_hand.keep(row);
        Ok(Some((listed.valued(score, Claim::Worth), site)))
    }

    /// The score of a row that is not due, if it is worth the price by now.
    pub(super) fn early_worth(
        &mut self,
        row: &UrlRow,
        now_ms: i64,
    ) -> Result<Option<f64>, StoreError> {
        let second = now_ms.div_euclid(1000);
        let Some(valued) = self.valued_at(row, second)? else { return Ok(None) };
        let worth = valued.worth.at(timestamp(second.saturating_mul(1000)));
        let is_worth = worth.is_due(valued.price) && worth.value >= valued.price;
        Ok(is_worth.then(|| worth.score(valued.price)))
    }
}

/// Where to look on behind what is not worth the price: what was written at another price
/// lies together, as a rule. It leads on by as far as there is to what was looked at last,
/// or half as far: in a few steps to the end of any list, and from round to round to other
/// places.
fn beyond((due_s, _): Spot, now_s: i64, is_close: bool) -> Spot {
    let ahead = due_s.saturating_sub(now_s);
    let step = if is_close { ahead / 2 } else { ahead };
    (due_s.saturating_add(step.max(LEAST_STEP)), i64::MIN)
}

#[cfg(test)]
mod tests;
