//! Leasing: whose turn it is, what of it may be fetched, and the promise.
//!
//! One URL is never with two fetchers: its row leaves the queue in the
//! transaction that makes the lease, and this thread is the only one that
//! makes any. The host's clock moves by one delay for each URL, so that the
//! next poll or lease of the host comes after all of them.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use super::sql::params;

use super::given::{Call, Common, Verdict};
use super::hosts::millis;
use super::ledger::Asked;
use super::rows::{UrlRow, held, read_url, read_urls};
use super::site_walks::PASSED_PER_LOOK;
use super::state::State;
use super::turns::Place;
use super::{StoreError, engine, timestamp};
use crate::by_id::ById;
use crate::model::{CrawlId, HostId, Reason, SiteId, UrlId};
use crate::queue::window::Window;
use crate::queue::{Candidate, Claim, LeaseBatch, LeaseRequest, Leased};
use crate::recrawl;

/// Hosts looked at in one call at most: bounds a call that finds little.
const TURNS_PER_CALL: usize = 2_000;
/// URLs taken out of the queue (blocked, forbidden), or put back that a call for some
/// sites found not to be due, in one call at most; the next call goes on from there.
pub(super) const HELD_PER_CALL: usize = 1_000;
/// Octets looked at to judge URLs by robots.txt ([`Rules::work`]) that count as one more
/// URL held: an ordinary robots.txt adds next to nothing.
const WORK_OF_HELD: usize = 1 << 20;
/// As many octets looked at take as long as one that is parsed.
const PARSED: usize = 32;
/// Rows passed over in one call at most, since they are not worth the price, or of
/// other sites than are asked for; the next call goes on from there.
pub(super) const PASSED_PER_CALL: usize = 16_384;
/// A host whose robots.txt is not known yet is looked at again after this;
/// its arrival wakes the host sooner.
const ROBOTS_WAIT_MS: i64 = 60_000;
/// A host that had nothing for the sites that a call names is worth another look after
/// this, as the call is told.
const IN_VAIN_MS: i64 = 1_000;
/// URLs for which there is room from the beginning.
const LIKELY: usize = 128;
/// Of a lease's time, the part that the waits between a host's URLs may take.
const WAIT_SHARE: u32 = 2;

impl Call {
    /// The host of these sites whose turn it is, which leaves the line.
    fn next_of_sites(&mut self, window: &mut Window) -> Option<HostId> {
        let now = self.now;
        let ranked = |host: &HostId| Some((window.rank(*host, now)?, *host));
        let line = self.line.get_or_insert_with(|| self.hosts.iter().filter_map(ranked).collect());
        line.pop().map(|(_, host)| host)
    }

    /// Lines up a host again that may have more for these sites.
    fn line_up(&mut self, window: &mut Window, host: HostId) {
        let Some(line) = &mut self.line else { return };
        line.extend(window.rank(host, self.now).map(|rank| (rank, host)));
    }

    /// From here on it is the turn of what is worth less than the price, for so many.
    pub(super) fn spare_up_to(&mut self, most: usize) {
        (self.spare, self.most_spare) = (true, most);
    }

    /// Of so many, those that it may have.
    pub(super) fn spare_of(&self, room: usize) -> usize {
        if self.spare { room.min(self.most_spare) } else { room }
    }

    pub(super) fn may_have_any(&self) -> bool {
        self.spare_of(1) > 0
    }

    /// So many were leased.
    pub(super) fn has_spared(&mut self, taken: usize) {
        if self.spare {
            self.most_spare = self.most_spare.saturating_sub(taken);
        }
    }

    /// So many octets were looked at to judge a URL.
    fn has_judged(&mut self, octets: usize) {
        self.judged = self.judged.saturating_add(octets);
        self.held += self.judged / WORK_OF_HELD;
        self.judged %= WORK_OF_HELD;
    }

    /// Has it looked at so much that nobody may have that the rest must wait? What is
    /// to spare has been looked at before.
    pub(super) fn has_passed_enough(&self) -> bool {
        self.passed >= PASSED_PER_CALL && !self.spare
    }
}

/// Candidates, each with its row; none for what is not in the queue any more.
pub(super) type Heads = Vec<(Candidate, Option<Box<UrlRow>>)>;

/// What a look at the head of a host's list came to.
pub(super) struct TakenHeads {
    pub(super) leased: Vec<Leased>,
    /// Did it end because robots.txt of the host is not known yet?
    pub(super) unjudged: bool,
}

/// What the gate says of one candidate.
enum Gate {
    Open,
    /// Taken out of the queue until something lifts it.
    Held(i64),
    /// robots.txt of its host is not known yet.
    Unjudged,
}

impl State {
    /// Leases what is due. A share of what another daemon gives a client is
    /// always new to it.
    pub(super) fn lease(
        &mut self,
        request: &LeaseRequest,
        is_share: bool,
    ) -> Result<LeaseBatch, StoreError> {
        let crawl = self.known_crawl(&request.crawl)?;
        self.take_over_what_was_read()?;
        if !is_share && let Some(again) = self.leased_before(crawl, request)? {
            return Ok(again);
        }
        let mut call = Call::new(crawl, request, self.steady_ms());
        call.sites = self.site_ids(crawl, &request.sites)?;
        call.sites.sort_unstable();
        call.sites.dedup();
        for site in &call.sites {
            call.hosts.extend(self.hosts_of_site(crawl, *site)?);
        }
        call.hosts.sort_unstable();
        call.hosts.dedup();
        let hosts_of_sites = call.hosts.clone();
        if !call.sites.is_empty() {
            call.later = self.site_walks.take_apart(crawl, &mut call.hosts, &call.sites);
        }
        let mut batch = LeaseBatch::default();
        if self.crawls.get(&crawl).is_some_and(|crawl| crawl.paused) {
            return Ok(batch);
        }
        self.tick_price(crawl)?;
        self.take_turns(&mut call, &mut batch)?;
        let is_cut_short = call.has_passed_enough();
        if batch.urls.len() < call.max {
            let wanted = call.max - batch.urls.len();
            self.look_to_spare(&mut call, &hosts_of_sites, wanted)?;
            self.take_turns(&mut call, &mut batch)?;
        }
        let is_short = batch.urls.len() < call.max && !is_cut_short;
        batch.is_cut = call.is_cut;
        batch.met_held = call.held >= HELD_PER_CALL;
        // Others may have more: then whoever asks them all tells. Nor does a call tell
        // anything that did not get to its end.
        if is_short && !self.is_shared() && !call.is_cut {
            self.note_more(crawl, !call.sites.is_empty())?;
        } else {
            self.note_asked(crawl, Asked::Something)?;
        }
        let ready = match self.windows.get(&crawl) {
            Some(window) if is_short && !call.sites.is_empty() => {
                // What is ready there by now is of other sites, or not looked through yet.
                let is_looking = self.early.goes_on(crawl, call.now).is_some();
                let goes_on = is_looking || call.held > 0 || call.passed >= PASSED_PER_LOOK;
                let again = if goes_on { call.now } else { call.now + IN_VAIN_MS };
                let early = window
                    .next_early_among(call.now, again, &hosts_of_sites, &call.sites)
                    .filter(|_| call.may_have_any());
                let ready = window.next_ready_among(call.now, again, hosts_of_sites);
                early.into_iter().chain(ready).min()
            }
            _ => self.next_ready(crawl),
        };
        batch.next_due_at = ready.map(|ms| timestamp(ms.max(call.now)));
        Ok(batch)
    }

    /// From here on a call may have what is not due, though worth the price, and, where it
    /// names no sites, what is worth less: so many of it are wanted. Sites that it names have
    /// URLs on these hosts.
    pub(super) fn look_to_spare(
        &mut self,
        call: &mut Call,
        hosts: &[HostId],
        wanted: usize,
    ) -> Result<(), StoreError> {
        let room = self.spare_room(call.crawl)?;
        let may_look = room > 0 && !call.is_cut && !call.has_passed_enough();
        if may_look {
            self.look_early(call, hosts, wanted.min(room))?;
        } else {
            self.early.rest(call.crawl);
        }
        call.spare_up_to(room);
        if !call.sites.is_empty() {
            let window = self.window(call.crawl);
            let is_early = |host: &&HostId| may_look && window.early_of(**host, &call.sites) > 0;
            call.hosts = hosts.iter().filter(is_early).copied().collect();
            // The last one is next: that of which nothing was taken for longest.
            call.hosts.sort_by_cached_key(|host| Reverse(window.taken_at(*host)));
            call.later = Vec::new();
        }
        Ok(())
    }

    /// Somebody asked all who share the store, maybe for some sites only, and did
    /// not get all he asked for.
    pub(super) fn note_short(&mut self, crawl: &str, of_sites: bool) -> Result<(), StoreError> {
        let crawl = self.known_crawl(crawl)?;
        self.note_more(crawl, of_sites)
    }

    /// Somebody did not get all he asked for. For whoever asks for anything that tells
    /// more, unless something waits for the clock of its host; for whoever asks for
    /// some sites only what is left of all is counted when the price moves.
    fn note_more(&mut self, crawl: CrawlId, of_sites: bool) -> Result<(), StoreError> {
        let now = self.steady_ms();
        let is_held_up = || self.windows.get(&crawl).is_some_and(|w| w.is_held_up(now));
        let asked = if of_sites {
            Asked::MoreOfSites
        } else if is_held_up() {
            Asked::Something
        } else {
            Asked::More
        };
        self.note_asked(crawl, asked)
    }

    /// Goes from host to host, or, in a call that may, from one that has
    /// something to spare to the next.
    fn take_turns(&mut self, call: &mut Call, batch: &mut LeaseBatch) -> Result<(), StoreError> {
        for turn in 0..=TURNS_PER_CALL {
            if batch.urls.len() >= call.max || !call.may_have_any() {
                break;
            }
            if turn == TURNS_PER_CALL || call.held >= HELD_PER_CALL || call.has_passed_enough() {
                call.is_cut = true;
                break;
            }
            self.job.has_handled = true;
            let Some(window) = self.windows.get_mut(&call.crawl) else { break };
            let next = match (call.spare, call.sites.is_empty()) {
                (true, true) => window.next_spare(call.now),
                (true, false) => call.hosts.pop(),
                (false, true) => window.next_turn(call.now),
                (false, false) => call.next_of_sites(window),
            };
            let Some(host) = next else {
                if call.later.is_empty() {
                    break;
                }
                call.hosts = std::mem::take(&mut call.later);
                call.line = None;
                continue;
            };
            let clock = self.host(host)?.not_before().max(self.held_until(call.crawl, host)?);
            if clock > call.now {
                self.window(call.crawl).skipped(host, clock);
                continue;
            }
            let before = batch.urls.len();
            self.take_turn(call, host, batch)?;
            let has_more = call.spare && !call.sites.is_empty() && batch.urls.len() > before;
            if has_more && self.window(call.crawl).early_of(host, &call.sites) > 0 {
                // After the others.
                call.hosts.insert(0, host);
            }
        }
        Ok(())
    }

    fn take_turn(
        &mut self,
        call: &mut Call,
        host: HostId,
        batch: &mut LeaseBatch,
    ) -> Result<(), StoreError> {
        let delay = self.delay_in(call.crawl, host)?;
        let start = self.host(host)?.not_before().max(call.now);
        let room = call.per_host.min(call.max - batch.urls.len()).min(fits(call.ttl, delay));
        let heads = self.take_heads(call, host, (room, HELD_PER_CALL), (start, delay))?;
        let (taken, unjudged) = (heads.leased.len(), heads.unjudged);
        if batch.urls.is_empty() {
            batch.urls = heads.leased;
        } else {
            batch.urls.extend(heads.leased);
        }
        if taken == 0 && !unjudged && call.spare {
            return Ok(());
        }
        if taken == 0 && !call.sites.is_empty() {
            // Nothing here for this caller; the host's turn is for the others.
            return Ok(());
        }
        if taken > 0 || !unjudged {
            self.end_turn(call, host, taken, start, delay)?;
            call.line_up(self.window(call.crawl), host);
        }
        if unjudged {
            self.wait_for_robots(call, host);
        }
        Ok(())
    }

    /// Leases what may be fetched of the head of a host's list: up to `room`
    /// URLs, while the call has held back fewer than `most_held`; the first at
    /// `start`, each other one `step` after the one before.
    pub(super) fn take_heads(
        &mut self,
        call: &mut Call,
        host: HostId,
        (room, most_held): (usize, usize),
        (start, step): (i64, i64),
    ) -> Result<TakenHeads, StoreError> {
        let room = call.spare_of(room);
        let likely = room.min(LIKELY);
        let mut taken = TakenHeads { leased: Vec::with_capacity(likely), unjudged: false };
        let mut claims = Vec::with_capacity(likely);
        let mut heads = VecDeque::new();
        let mut shared: Option<Common> = None;
        let mut had_early = false;
        while taken.leased.len() < room && call.held < most_held {
            if heads.is_empty() {
                // What is cheap waits for what other hosts have that is worth the price.
                let is_cheap = had_early
                    && (!taken.leased.is_empty()
                        || self.window(call.crawl).early_of(host, &call.sites) == 0);
                if call.has_passed_enough() || is_cheap {
                    break;
                }
                heads = self.next_rows(call, host, room - taken.leased.len())?.into();
                had_early = call.spare && heads.iter().any(|(head, _)| head.claim == Claim::Worth);
            }
            let Some((candidate, row)) = heads.pop_front() else { break };
            let Some(row) = row else {
                // The window was behind the database: not to be asked again.
                self.dequeue_stray(call.crawl, candidate)?;
                continue;
            };
            // Since it was found the price may have risen, and others of its host have taught
            // that it is worth less.
            if had_early && self.early_worth(&row, call.now)?.is_none() {
                continue;
            }
            if candidate.band == recrawl::FRESH_BAND && self.is_old_news(&row, call.now)? {
                call.held += 1;
                continue;
            }
            // That of the row before, as a rule.
            let parsed = self.hosts.parsed;
            let common = match shared.take().filter(|common| common.is_of(&row)) {
                Some(common) => shared.insert(common),
                None => shared.insert(self.common(&row)?),
            };
            let parsed = self.hosts.parsed.wrapping_sub(parsed);
            call.has_judged(work(common, &row).saturating_add(parsed.saturating_mul(PARSED)));
            match self.gate(&row, common)? {
                Gate::Open => {
                    let before = i64::try_from(taken.leased.len()).unwrap_or(0);
                    let not_before = start + step * before;
                    taken.leased.push(self.give(call, common, row, &candidate, not_before)?);
                    claims.push(candidate.claim);
                }
                Gate::Held(state) => {
                    self.place_url(&row, state, row.reason, row.band, row.due_s, row.attempt)?;
                    call.held += 1;
                }
                Gate::Unjudged => {
                    taken.unjudged = true;
                    heads.push_front((candidate, Some(row)));
                    break;
                }
            }
        }
        if !heads.is_empty() {
            // What was taken from the buffer and not used is still due, or found early.
            let site = |row: Option<Box<UrlRow>>| row.and_then(|row| row.site);
            let unused: Vec<_> = heads.into_iter().map(|(head, row)| (head, site(row))).collect();
            let window = self.window(call.crawl);
            if had_early { window.offer_early(host, &unused) } else { window.forget_buffer(host) }
        }
        if !claims.is_empty() {
            self.note_leased(call.crawl, &claims)?;
        }
        call.has_spared(taken.leased.len());
        Ok(taken)
    }

    /// Has news that nobody took within its two days come up? It gets the place of a page
    /// like others.
    fn is_old_news(&mut self, row: &UrlRow, now: i64) -> Result<bool, StoreError> {
        let band = self.rank(row, row.reason, now.div_euclid(1000))?;
        if band == recrawl::FRESH_BAND {
            return Ok(false);
        }
        self.place_url(row, held::QUEUED, row.reason, band, row.due_s, row.attempt)?;
        Ok(true)
    }

    /// The host is looked at again when its robots.txt should be there.
    pub(super) fn wait_for_robots(&mut self, call: &Call, host: HostId) {
        self.window(call.crawl).skipped(host, call.now + ROBOTS_WAIT_MS);
    }

    pub(super) fn end_turn(
        &mut self,
        call: &Call,
        host: HostId,
        taken: usize,
        start: i64,
        delay: i64,
    ) -> Result<(), StoreError> {
        let served = u32::try_from(taken).unwrap_or(u32::MAX);
        let mut clock = start;
        // Without a delay there is nothing to wait for, and nothing to write.
        if taken > 0 && delay > 0 {
            clock = start + delay * i64::from(served);
            self.set_clock(host, clock)?;
        }
        let known_due = self.window(call.crawl).known_due_ms(host);
        let next_due = match known_due {
            Some(i64::MAX) => None,
            // More was due when the buffer was loaded.
            Some(i64::MIN) => Some(call.now.div_euclid(1000)),
            Some(due) => Some(due.div_euclid(1000)),
            None => {
                self.write_pending()?;
                self.next_due_of_host(call.crawl, host)?
            }
        };
        // The table bounds from below what is queued, the URLs of paused sites
        // and those that are not worth the price included; of the former the
        // window knows nothing.
        let is_bound = known_due != Some(i64::MIN)
            && self.paused_sites.is_empty()
            && !self.window(call.crawl).has_passed(host);
        if let Some(due) = next_due.filter(|_| is_bound) {
            self.conn
                .prepare_cached(
                    "UPDATE turns SET due_s = ?3 WHERE crawl_id = ?1 AND host_id = ?2
                     /*pg: AND part = (?2 & 255) */ AND due_s <> ?3",
                )
                .and_then(|mut update| update.send(params![call.crawl.0, host.0, due]))
                .map_err(engine)?;
        }
        let next_ms = next_due.map(|due| due.saturating_mul(1000));
        self.window(call.crawl).served(host, served, next_ms, clock);
        self.note_low((call.crawl, host), call.per_host);
        Ok(())
    }

    /// The next candidates of a host in lease order, each with its row, all of
    /// them read at once; none for what is not in the queue any more.
    fn next_rows(
        &mut self,
        call: &mut Call,
        host: HostId,
        wanted: usize,
    ) -> Result<Heads, StoreError> {
        let candidates = self.next_candidates(call, host, wanted)?;
        self.with_rows(candidates, |_| true)
    }

    /// Candidates with the rows of those that `wants` says, from memory or else all
    /// of them read at once; none for what is not in the queue any more, or not there.
    pub(super) fn with_rows(
        &mut self,
        candidates: Vec<Candidate>,
        wants: impl Fn(&Candidate) -> bool,
    ) -> Result<Heads, StoreError> {
        let at_hand = |head: Candidate| {
            let row = if wants(&head) { self.at_hand.take(head.id) } else { None };
            (head, row.filter(|row| row.stands_at(head.band, head.due_at)))
        };
        let mut rows: Vec<_> = candidates.into_iter().map(at_hand).collect();
        look_at_all(rows.iter().filter_map(|(_, row)| row.as_deref()));
        debug_assert!(self.is_as_in_table(&rows)?, "a row in memory is not the table's");
        let lacks_row = |(head, row): &&(Candidate, _)| wants(head) && Option::is_none(row);
        let missing: Vec<UrlId> = rows.iter().filter(lacks_row).map(|(head, _)| head.id).collect();
        if missing.is_empty() {
            return Ok(rows);
        }
        if missing.iter().any(|url| self.pending.holds(*url)) {
            self.write_pending()?;
        }
        let mut found = ById::default();
        read_urls(&self.conn, &missing, |row| {
            found.insert(row.id, Box::new(row));
        })?;
        for (head, row) in rows.iter_mut().filter(|(_, row)| row.is_none()) {
            // In two places it is at one of them.
            if found.get(&head.id).is_some_and(|found| found.stands_at(head.band, head.due_at)) {
                *row = found.remove(&head.id);
            }
        }
        Ok(rows)
    }

    /// Are rows from memory what the table says? For debug builds.
    fn is_as_in_table(&self, rows: &Heads) -> Result<bool, StoreError> {
        let written = rows.iter().filter(|(head, _)| !self.pending.holds(head.id));
        for row in written.filter_map(|(_, row)| row.as_ref()) {
            if read_url(&self.conn, row.id)?.as_ref() != Some(&**row) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next candidates of a host in lease order: from the window's buffer,
    /// filled from the database when it is empty, or for a call that asks for
    /// some sites from the database itself.
    fn next_candidates(
        &mut self,
        call: &mut Call,
        host: HostId,
        wanted: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        let now_s = call.now.div_euclid(1000);
        if call.spare {
            let window = self.window(call.crawl);
            return Ok(if call.sites.is_empty() {
                window.take_spare(host, wanted, call.now)
            } else {
                window.take_early(host, wanted, call.now, &call.sites)
            });
        }
        if !call.sites.is_empty() {
            return self.worth_of_sites(call, host, wanted);
        }
        let buffered = self.window(call.crawl).take(host, wanted, call.now);
        if !buffered.is_empty() || !self.window(call.crawl).wants_refill(host, call.now) {
            return Ok(buffered);
        }
        if self.window(call.crawl).known_due_ms(host).is_none() {
            self.note_unread(call.crawl, call.per_host);
        }
        let by_value = self.is_by_value(host)?;
        let limit = self.window(call.crawl).refill_size(call.per_host, by_value);
        call.passed += self.fill(call.crawl, host, now_s, limit)?;
        Ok(self.window(call.crawl).take(host, wanted, call.now))
    }

    /// Takes out of the queue what no URL says of itself; one that stands elsewhere is
    /// there from then on in any case.
    fn dequeue_stray(&mut self, crawl: CrawlId, stray: Candidate) -> Result<(), StoreError> {
        let place = Place {
            crawl,
            host: stray.host,
            band: stray.band,
            due_s: stray.due_at,
            url: stray.id,
            valued: false,
        };
        self.dequeue(place)?;
        let Some(row) = self.url_row(stray.id)?.filter(UrlRow::is_queued) else { return Ok(()) };
        // Which holds it no more, wherever it stands.
        self.window(crawl).invalidate(stray.host);
        if self.is_in_queue(row.place())? {
            return Ok(());
        }
        let valued = self.is_valued(&row, row.reason);
        self.enqueue(Place { valued, ..row.place() }, row.site)
    }

    pub(super) fn window(&mut self, crawl: CrawlId) -> &mut Window {
        self.job.has_handled = true;
        self.windows.entry(crawl).or_default()
    }

    fn gate(&mut self, row: &UrlRow, common: &Common) -> Result<Gate, StoreError> {
        if row.expires_s.is_some()
            && row.reason != Reason::Submitted
            && row.is_expired(self.steady_ms().div_euclid(1000))
        {
            return Ok(Gate::Held(held::PARKED));
        }
        if self.is_blocked(row)? {
            return Ok(Gate::Held(held::BLOCKED));
        }
        Ok(match &common.robots {
            Verdict::Unknown => Gate::Unjudged,
            Verdict::Known(rules) if !rules.allows(&row.path) => Gate::Held(held::FORBIDDEN),
            Verdict::Known(_) | Verdict::Unasked => Gate::Open,
        })
    }

    fn site_ids(&self, crawl: CrawlId, names: &[String]) -> Result<Vec<SiteId>, StoreError> {
        let mut ids = Vec::with_capacity(names.len());
        for name in names {
            let site = self.site_named(name)?;
            let of: Option<i64> = self
                .conn
                .prepare_cached("SELECT crawl_id FROM sites WHERE id = ?1")
                .and_then(|mut query| query.query_row([site.0], |row| row.get(0)))
                .map_err(engine)?;
            if of.is_some_and(|of| of != crawl.0) {
                let message = format!("the site {name:?} is of another crawl");
                return Err(StoreError::NotFound(message));
            }
            ids.push(site);
        }
        Ok(ids)
    }
}

/// Rows that are read ahead were written by another core, and each part of one is
/// waited for when it is first looked at. Looked at all at once, they come together:
/// leases and their ends take 2 to 3 % less processor time.
fn look_at_all<'r>(rows: impl Iterator<Item = &'r UrlRow>) {
    // One field of each part, and the text.
    let seen = rows.fold(0, |seen, row| {
        let text = row.path.as_bytes().first().copied().unwrap_or_default();
        let numbers = row.id.0 ^ row.host.0 ^ row.due_s;
        seen ^ numbers ^ i64::from(row.attempt ^ row.record.gone) ^ i64::from(text)
    });
    std::hint::black_box(seen);
}

/// What it takes to judge a URL by robots.txt, in octets.
fn work(common: &Common, row: &UrlRow) -> usize {
    match &common.robots {
        Verdict::Known(rules) => rules.work(row.path.len()),
        Verdict::Unknown | Verdict::Unasked => 0,
    }
}

/// URLs of one host that a lease has time for, one `delay` apart.
fn fits(ttl: Duration, delay_ms: i64) -> usize {
    if delay_ms <= 0 {
        return usize::MAX;
    }
    usize::try_from(millis(ttl / WAIT_SHARE) / delay_ms).unwrap_or(0) + 1
}
