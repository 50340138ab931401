//! The budget: when the price moves, and what is due that is worth it.
//!
//! One price a crawl. It moves at most once an hour, with the first lease of
//! the hour after: never while nobody asks for anything, and no row is touched
//! by it. The counts that move it (`ledger.rs`) are written with the settlements
//! that they count, so that no crash loses one.

use super::sql::params;

use super::learn::Learning;
use super::ledger::{Asked, Ledger};
use super::state::State;
use super::{StoreError, engine};
use crate::config::Budget;
use crate::model::{CrawlId, HostId};
use crate::queue::Claim;

/// The price moves this often.
const TICK_MS: i64 = 3_600_000;
/// Hosts whose backlog beyond memory is counted in one tick; the others are
/// taken to be alike.
const COUNTED_HOSTS: usize = 64;
/// Rows counted of such a host at most.
const COUNTED_ROWS: i64 = 4_096;
/// Hosts, and rows of each, that are looked at where only leases for some sites were:
/// these go past the window.
const SAMPLED_HOSTS: usize = 64;
const SAMPLED_ROWS: usize = 64;

impl State {
    /// What a fetch must be worth.
    pub(super) fn price(&mut self, crawl: CrawlId) -> Result<f64, StoreError> {
        Ok(self.ledger(crawl)?.price())
    }

    /// The same, and when it moved last.
    pub(super) fn price_of_tick(&mut self, crawl: CrawlId) -> Result<(f64, i64), StoreError> {
        let ledger = self.ledger(crawl)?;
        Ok((ledger.price(), ledger.ticked_at))
    }

    fn ledger(&mut self, crawl: CrawlId) -> Result<Ledger, StoreError> {
        if let Some(ledger) = self.learning.ledgers.get(&crawl) {
            return Ok(*ledger);
        }
        let ledger = Ledger::read(&self.conn, crawl, self.policy.opening_price)?;
        self.learning.ledgers.insert(crawl, ledger);
        self.learning.bases.insert(crawl, ledger);
        Ok(ledger)
    }

    /// Hears what others who share the store have done to the price.
    pub(super) fn catch_up_prices(&mut self) -> Result<(), StoreError> {
        let opening = self.policy.opening_price;
        let Learning { ledgers, bases, .. } = &mut self.learning;
        for (crawl, ledger) in ledgers {
            let table = Ledger::read(&self.conn, *crawl, opening)?;
            if let Some(base) = bases.insert(*crawl, table) {
                *ledger = ledger.caught_up(&base, table);
            }
        }
        Ok(())
    }

    /// Changes what moves the price, to be written with this transaction or one of
    /// the next.
    pub(super) fn account(
        &mut self,
        crawl: CrawlId,
        change: impl FnOnce(&mut Ledger),
    ) -> Result<(), StoreError> {
        if self.policy.learns() {
            let before = self.ledger(crawl)?;
            change(self.learning.change_ledger(crawl, before));
        }
        Ok(())
    }

    /// Notes what was leased, to be written with the next settlement: it is
    /// nothing that anybody was promised.
    pub(super) fn note_leased(
        &mut self,
        crawl: CrawlId,
        claims: &[Claim],
    ) -> Result<(), StoreError> {
        if self.policy.learns() {
            let before = self.ledger(crawl)?;
            let ledger = self.learning.note_ledger(crawl, before);
            for claim in claims {
                ledger.leased(*claim);
            }
        }
        Ok(())
    }

    /// Somebody leases: the price follows what was settled and what is due,
    /// if an hour has passed.
    pub(super) fn tick_price(&mut self, crawl: CrawlId) -> Result<(), StoreError> {
        // Of those who share a store one moves the price for all.
        if !self.policy.learns() || !self.owns(0) {
            return Ok(());
        }
        let (ledger, now) = (self.ledger(crawl)?, self.steady_ms());
        let waited = now - ledger.ticked_at;
        if ledger.ticked_at > 0 && (0..TICK_MS).contains(&waited) {
            return Ok(());
        }
        let (budget, share) = (self.policy.budget, self.share());
        // Nobody asked for a while, or the clock was set back: begin anew.
        let is_counted = ledger.ticked_at > 0 && waited > 0 && ledger.asked != Asked::Nothing;
        let backlog = if is_counted { self.backlog(crawl)? } else { 0.0 };
        self.account(crawl, |ledger| {
            // Milliseconds of a few years are exact.
            #[allow(clippy::cast_precision_loss)]
            let hours = waited as f64 / 3_600_000.0;
            if is_counted && ledger.is_pause(hours) {
                ledger.pass_over();
            } else if is_counted {
                ledger.tick(hours, backlog, budget, share);
            }
            ledger.ticked_at = now;
        })
    }

    /// Notes that somebody leased, and whether they got what they asked for.
    pub(super) fn note_asked(&mut self, crawl: CrawlId, asked: Asked) -> Result<(), StoreError> {
        if !self.policy.learns() {
            return Ok(());
        }
        let (before, now) = (self.ledger(crawl)?, self.steady_ms());
        if before.asked < asked {
            // Who moves the price for all hears of it at once: of a daemon that has no hosts
            // of the crawl nothing is settled, and else nothing is written.
            let is_ours = self.owns(0);
            let learning = &mut self.learning;
            let ledger = if is_ours {
                learning.note_ledger(crawl, before)
            } else {
                learning.change_ledger(crawl, before)
            };
            ledger.asked = asked;
        }
        if let Some(ledger) = self.learning.ledgers.get_mut(&crawl) {
            // Not kept, so nothing is to be written.
            ledger.leased_at = Some(now);
        }
        Ok(())
    }

    /// URLs that are worth the price and could be served within the hour. What
    /// lies beyond memory is taken to be as what lay in it when it was looked at.
    fn backlog(&mut self, crawl: CrawlId) -> Result<f64, StoreError> {
        let now_ms = self.steady_ms();
        let sampled = self.sample(crawl)?;
        let Some(window) = self.windows.get(&crawl) else { return Ok(0.0) };
        let tallies: Vec<_> = window.tally(now_ms).collect();
        let hosts_due = window.hosts_due(now_ms);
        let (mut sum, mut counted, mut hosts) = (0.0, 0, 0_usize);
        for (host, tally) in &tallies {
            if tally.held == 0 && tally.is_all {
                continue;
            }
            hosts += 1;
            let mut worth = count(tally.worth as u64);
            if !tally.is_all {
                let due = if counted < COUNTED_HOSTS {
                    counted += 1;
                    self.count_due(crawl, *host, now_ms.div_euclid(1000))?
                } else {
                    COUNTED_ROWS.unsigned_abs()
                };
                worth += count(due.saturating_sub(tally.held as u64)) * tally.share;
            }
            sum += worth.min(self.hourly(*host)?);
        }
        let unseen = hosts_due.saturating_sub(tallies.len());
        for host in &sampled {
            self.window(crawl).forget_buffer(*host);
        }
        // Of a sample, hosts on which nobody may lease anything count, too.
        let hosts = hosts.max(sampled.len());
        let mean = if hosts > 0 { sum / count(hosts as u64) } else { 0.0 };
        // Hosts are dealt by their hash, so those of others are as ours.
        Ok((sum + mean * count(unseen as u64)) / self.share())
    }

    /// Where the window holds nothing, loads into it a little of some hosts, to be
    /// dropped again; says which.
    fn sample(&mut self, crawl: CrawlId) -> Result<Vec<HostId>, StoreError> {
        let now_ms = self.steady_ms();
        let Some(window) = self.windows.get(&crawl) else { return Ok(Vec::new()) };
        if window.tally(now_ms).any(|(_, tally)| tally.held > 0) {
            return Ok(Vec::new());
        }
        let hosts: Vec<_> = window.unknown_hosts_due(now_ms).take(SAMPLED_HOSTS).collect();
        for host in &hosts {
            self.fill(crawl, *host, now_ms.div_euclid(1000), SAMPLED_ROWS)?;
        }
        Ok(hosts)
    }

    /// Requests that the clock of a host allows in an hour.
    fn hourly(&mut self, host: HostId) -> Result<f64, StoreError> {
        let delay_ms = self.host(host)?.delay_ms.unsigned_abs();
        Ok(if delay_ms == 0 { f64::INFINITY } else { 3_600_000.0 / count(delay_ms) })
    }

    /// Rows of a host that are due, up to [`COUNTED_ROWS`].
    fn count_due(&self, crawl: CrawlId, host: HostId, now_s: i64) -> Result<u64, StoreError> {
        let (mut total, mut band) = (0_i64, i64::from(u8::MAX) + 1);
        while total < COUNTED_ROWS
            && let Some(next) = self.next_band(crawl, host, band)?
        {
            band = next;
            total += self
                .conn
                .prepare_cached(
                    "SELECT count(*) FROM (SELECT 1 FROM queue
                     WHERE crawl_id = ?1 AND host_id = ?2
                     /*pg: AND part = (?2 & 255) */ AND band = ?3 AND due_s <= ?4 LIMIT ?5) few",
                )
                .and_then(|mut query| {
                    let left = COUNTED_ROWS - total;
                    query.query_row(params![crawl.0, host.0, band, now_s, left], |row| {
                        row.get::<i64>(0)
                    })
                })
                .map_err(engine)?;
        }
        Ok(total.unsigned_abs())
    }

    /// How much of what is worth less than the price may be leased now: what a configured
    /// budget leaves of our share, or any of it. What is believed worthless could else
    /// never prove the contrary.
    pub(super) fn spare_room(&mut self, crawl: CrawlId) -> Result<usize, StoreError> {
        if !self.policy.learns() {
            return Ok(0);
        }
        let (ledger, share) = (self.ledger(crawl)?, self.share());
        // Milliseconds of a few years are exact.
        #[allow(clippy::cast_precision_loss)]
        let hours = (self.steady_ms() - ledger.ticked_at) as f64 / 3_600_000.0;
        let room = ledger.room(hours, self.policy.budget, share) * share;
        // Cut to what a call can have.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = room.clamp(0.0, f64::from(u32::MAX)) as usize;
        Ok(whole)
    }

    /// When the next host of a crawl may be served, with what is worth less than the price
    /// only once a configured budget has room for it.
    pub(super) fn next_ready(&self, crawl: CrawlId) -> Option<i64> {
        let window = self.windows.get(&crawl)?;
        if let Some(since) = self.early.goes_on(crawl, self.steady_ms()) {
            return Some(since);
        }
        let Budget::Daily(fetches) = self.policy.budget else { return window.next_ready_at() };
        let (worthy, spare) = window.next_by_worth();
        // Nothing is at hand to spare before somebody leased, and the ledger was read.
        let (Some(spare), Some(ledger)) = (spare, self.learning.ledgers.get(&crawl)) else {
            return worthy;
        };
        let ours = self.share();
        let missing = 1.0 / ours - ledger.room(0.0, self.policy.budget, ours);
        // Counted from when the price moved, so that it does not move with each look. After
        // an hour it moves again, and begins anew.
        let hours = (missing / (fetches / 24.0)).clamp(0.0, 1.0);
        // An hour at most.
        #[allow(clippy::cast_possible_truncation)]
        let room_at = ledger.ticked_at.saturating_add((hours * 3_600_000.0).ceil() as i64);
        worthy.into_iter().chain(Some(spare.max(room_at))).min()
    }
}

/// Counts of rows and milliseconds, far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn count(number: u64) -> f64 {
    number as f64
}
