//! The ledger of one crawl: what fetchers settled, leased and asked for since the price
//! moved last, and how the price follows from that.
//!
//! Pure but for its row in `prices`. Daemons that share a store each add to its counts,
//! and one of them moves the price: what is written is what came since it was read, and
//! a count is over once somebody has moved it. What is due is counted elsewhere
//! (`budget.rs`).

use super::sql::{Connection, OptionalExtension, params};

use super::{StoreError, engine};
use crate::config::Budget;
use crate::model::CrawlId;
use crate::queue::Claim;
use crate::recrawl::price::{Pace, Price, Seen, Tariff, Wants};

/// Longer without a move of the price is a pause, if it brought less than this part of
/// what it should have.
const PAUSE_HOURS: f64 = 25.0;
const LITTLE: f64 = 0.1;

/// What moves the price of one crawl.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ledger {
    tariff: Tariff,
    /// Steady Unix milliseconds of the last move; 0 before the first lease.
    pub(super) ticked_at: i64,
    // Since then:
    settled: u32,
    leased: u32,
    leased_overdue: u32,
    /// Leased though it is worth less than the price. Not kept.
    spared: u32,
    pub(super) asked: Asked,
    /// Was the time before the last move a pause? Not kept.
    has_paused: bool,
    /// Steady Unix milliseconds of the last lease, as far as is known here. Not kept.
    pub(super) leased_at: Option<i64>,
}

/// What fetchers asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    #[default]
    Nothing,
    Something,
    /// More than was due, whatever the clocks of hosts say.
    More,
    /// More than was due of some sites: of others a lot may be.
    MoreOfSites,
}

impl Ledger {
    /// One that nothing has moved yet.
    fn opening(price: f64) -> Self {
        Self {
            tariff: Tariff { price: Price::restored(price), ..Tariff::default() },
            ticked_at: 0,
            settled: 0,
            leased: 0,
            leased_overdue: 0,
            spared: 0,
            asked: Asked::Nothing,
            has_paused: false,
            leased_at: None,
        }
    }

    /// As the table has it; where it has none, at the `opening` price.
    pub(super) fn read(
        conn: &Connection,
        crawl: CrawlId,
        opening: f64,
    ) -> Result<Self, StoreError> {
        conn.prepare_cached(
            "SELECT price, pace, overdue, hours, ticked_at, settled, leased, leased_overdue, asked
             FROM prices WHERE crawl_id = ?1",
        )
        .and_then(|mut query| {
            query
                .query_row([crawl.0], |row| {
                    let hours = row.get(3)?;
                    Ok(Self {
                        tariff: Tariff {
                            price: Price::restored(row.get(0)?),
                            pace: Pace::restored(row.get(1)?, hours),
                            overdue: Pace::restored(row.get(2)?, hours),
                            left: 0.0,
                        },
                        ticked_at: row.get(4)?,
                        settled: row.get(5)?,
                        leased: row.get(6)?,
                        leased_overdue: row.get(7)?,
                        spared: 0,
                        asked: match row.get(8)? {
                            0 => Asked::Nothing,
                            1 => Asked::Something,
                            2 => Asked::More,
                            _ => Asked::MoreOfSites,
                        },
                        has_paused: false,
                        leased_at: None,
                    })
                })
                .optional()
        })
        .map(|kept| kept.unwrap_or_else(|| Self::opening(opening)))
        .map_err(engine)
    }

    /// Writes what has been added since `base`, which is as the table had it:
    /// others may have added to the counts meanwhile. The price is written by
    /// whoever moves it.
    pub(super) fn write(
        &self,
        conn: &Connection,
        crawl: CrawlId,
        base: &Self,
    ) -> Result<(), StoreError> {
        let (pace, hours) = self.tariff.pace.kept();
        let more = |now: u32, before: u32| i64::from(now) - i64::from(before);
        conn.prepare_cached(
            "INSERT INTO prices (crawl_id, price, pace, overdue, hours, ticked_at, settled,
                                            leased, leased_overdue, asked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (crawl_id) DO UPDATE SET
                     price = CASE WHEN ?11 = 1 THEN excluded.price ELSE prices.price END,
                     pace = CASE WHEN ?11 = 1 THEN excluded.pace ELSE prices.pace END,
                     overdue = CASE WHEN ?11 = 1 THEN excluded.overdue ELSE prices.overdue END,
                     hours = CASE WHEN ?11 = 1 THEN excluded.hours ELSE prices.hours END,
                     ticked_at = CASE WHEN ?11 = 1 THEN excluded.ticked_at ELSE prices.ticked_at END,
                     settled = /*lite*/ max /*end*/ /*pg: GREATEST */ (prices.settled + excluded.settled, 0),
                     leased = /*lite*/ max /*end*/ /*pg: GREATEST */ (prices.leased + excluded.leased, 0),
                     leased_overdue = /*lite*/ max /*end*/ /*pg: GREATEST */
                         (prices.leased_overdue + excluded.leased_overdue, 0),
                     asked = CASE WHEN ?11 = 1 OR excluded.asked > prices.asked THEN excluded.asked
                                  ELSE prices.asked END",
        )
        .and_then(|mut replace| {
            replace.execute(params![
                crawl.0,
                self.price(),
                pace,
                self.tariff.overdue.kept().0,
                hours,
                self.ticked_at,
                more(self.settled, base.settled),
                more(self.leased, base.leased),
                more(self.leased_overdue, base.leased_overdue),
                if self.has_moved(base) || self.asked > base.asked { self.asked as i64 } else { 0 },
                i64::from(self.has_moved(base)),
            ])
        })
        .map(|_| ())
        .map_err(engine)
    }

    /// The same before anything of it was written.
    pub(super) fn unwritten(&self) -> Self {
        Self { ticked_at: 0, settled: 0, leased: 0, leased_overdue: 0, ..*self }
    }

    /// As the table has it now, with what we have added since it was `base`.
    pub(super) fn caught_up(self, base: &Self, table: Self) -> Self {
        let added = |now: u32, before: u32, there: u32| there + now.saturating_sub(before);
        // What was asked for is over once somebody has moved the price.
        let is_over = table.has_moved(base);
        let asked = if is_over { table.asked } else { self.asked.max(table.asked) };
        Self {
            settled: added(self.settled, base.settled, table.settled),
            leased: added(self.leased, base.leased, table.leased),
            leased_overdue: added(self.leased_overdue, base.leased_overdue, table.leased_overdue),
            asked,
            has_paused: self.has_paused,
            leased_at: self.leased_at,
            spared: if is_over { 0 } else { self.spared },
            // What an hour leaves is saved by who moves the price.
            tariff: Tariff { left: self.tariff.left, ..table.tariff },
            ..table
        }
    }

    /// So many refreshing fetches were settled.
    pub(super) fn settled(&mut self, fetches: u32) {
        self.settled = self.settled.saturating_add(fetches);
    }

    /// Days of staleness that a fetch must be worth.
    pub(super) fn price(&self) -> f64 {
        self.tariff.price.get()
    }

    /// Fetches of a budget that are left for what is worth less than the price, `hours`
    /// after it moved. What daemons that share a store lease of that is known of our own
    /// `share` only, and taken to be as much of the others'.
    pub(super) fn room(&self, hours: f64, budget: Budget, share: f64) -> f64 {
        match budget {
            Budget::Auto => f64::INFINITY,
            Budget::Daily(fetches) => {
                let worth = f64::from(self.leased) + f64::from(self.leased_overdue);
                self.tariff.room(fetches / 24.0, hours, worth + f64::from(self.spared) / share)
            }
        }
    }

    /// Has the price moved since it was `base`?
    pub(super) fn has_moved(&self, base: &Self) -> bool {
        self.ticked_at != base.ticked_at
    }

    /// A URL was leased for what it is worth.
    pub(super) fn leased(&mut self, claim: Claim) {
        match claim {
            Claim::Worth => self.leased = self.leased.saturating_add(1),
            Claim::Overdue => self.leased_overdue = self.leased_overdue.saturating_add(1),
            Claim::Spare => self.spared = self.spared.saturating_add(1),
            Claim::Fixed => {}
        }
    }

    /// Is so long a time one in which nobody was there? The price moves with the first
    /// call after an hour, so more than a day without any lies in it; fetchers that
    /// come as rarely bring what they bring, others next to nothing. A second one in a
    /// row is what they have come to.
    pub(super) fn is_pause(&self, hours: f64) -> bool {
        let expected = self.tariff.pace.hourly().unwrap_or(0.0) * hours;
        hours > PAUSE_HOURS && f64::from(self.settled) < expected * LITTLE && !self.has_paused
    }

    /// Moves the price after `hours`, with so much due and not leased, where our `share` of
    /// all is known.
    pub(super) fn tick(&mut self, hours: f64, backlog: f64, budget: Budget, share: f64) {
        let seen = Seen {
            hours,
            settled: f64::from(self.settled),
            leased: f64::from(self.leased),
            covered: self.covered(hours),
            leased_overdue: f64::from(self.leased_overdue),
            spared: f64::from(self.spared) / share,
            backlog,
            wants: match self.asked {
                Asked::Nothing | Asked::Something => Wants::Something,
                Asked::More => Wants::More,
                Asked::MoreOfSites => Wants::MoreOfSites,
            },
        };
        let hourly = match budget {
            Budget::Daily(fetches) => Some(fetches / 24.0),
            Budget::Auto => None,
        };
        self.tariff.tick(&seen, hourly);
        self.begin_anew();
        self.has_paused = false;
    }

    /// The part of the last `hours` that was over when fetchers leased last.
    fn covered(&self, hours: f64) -> f64 {
        let Some(leased_at) = self.leased_at else { return 1.0 };
        // Milliseconds of a few years are exact.
        #[allow(clippy::cast_precision_loss)]
        let covered = (leased_at - self.ticked_at) as f64 / 3_600_000.0 / hours;
        covered.clamp(0.0, 1.0)
    }

    /// The time until now was a pause: it moves nothing.
    pub(super) fn pass_over(&mut self) {
        self.begin_anew();
        self.has_paused = true;
    }

    /// What was counted until now is over.
    fn begin_anew(&mut self) {
        (self.settled, self.leased, self.leased_overdue, self.spared) = (0, 0, 0, 0);
        self.asked = Asked::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_budget_that_is_not_used_up_lowers_the_price_in_days() {
        let mut ledger = Ledger::opening(3.7);
        for _ in 0..10 * 24 {
            ledger.asked = Asked::More;
            ledger.tick(1.0, 0.0, Budget::Daily(5_000.0), 1.0);
        }
        let idle = ledger.price();
        assert!(idle < 0.37, "{idle}");
        // With more than that due it rises as ever.
        ledger.asked = Asked::More;
        ledger.tick(1.0, 100_000.0, Budget::Daily(5_000.0), 1.0);
        assert!(ledger.price() > idle);
    }

    #[test]
    fn what_comes_due_between_two_calls_an_hour_apart_counts_once() {
        let after = |leased_at: Option<i64>| {
            let mut ledger = Ledger { leased_at, ticked_at: 1, ..Ledger::opening(1.0) };
            for _ in 0..24 {
                (ledger.leased, ledger.asked) = (20, Asked::Something);
                ledger.settled(20);
                ledger.tick(1.0, 20.0, Budget::Auto, 1.0);
            }
            ledger.price()
        };
        // All of it was leased when the hour began: what is left has come due since.
        assert!((after(Some(1)) - 1.0).abs() < 1e-9);
        // Leased until the end, twenty were left for want of fetchers.
        for until_its_end in [None, Some(3_600_001)] {
            assert!(after(until_its_end) > 1.01);
        }
    }

    #[test]
    fn of_what_a_budget_leaves_a_daemon_takes_no_more_than_its_share() {
        let budget = Budget::Daily(2_400.0);
        let mut ledger = Ledger { leased: 40, ..Ledger::opening(1.0) };
        let mut given = 0;
        // Of three, each knows what all have leased for its worth, and of the rest its own.
        while ledger.room(1.0, budget, 1.0 / 3.0) / 3.0 >= 1.0 {
            ledger.leased(Claim::Spare);
            given += 1;
        }
        assert_eq!(given, 20, "a third of 100 less 40");
    }

    #[test]
    fn a_budget_of_less_than_one_an_hour_is_used_some_day() {
        let budget = Budget::Daily(2.0);
        let mut ledger = Ledger::opening(1.0);
        let mut given = 0;
        for _ in 0..240 {
            if ledger.room(1.0, budget, 1.0) >= 1.0 {
                ledger.leased(Claim::Spare);
                given += 1;
            }
            ledger.asked = Asked::More;
            ledger.tick(1.0, 0.0, budget, 1.0);
        }
        assert!((18..=21).contains(&given), "{given} in ten days");
    }

    #[test]
    fn a_pause_is_neither_work_nor_a_pace() {
        let mut ledger = Ledger::opening(1.0);
        for _ in 0..48 {
            ledger.settled(20);
            ledger.tick(1.0, 0.0, Budget::Auto, 1.0);
        }
        ledger.settled(20);
        assert!(!ledger.is_pause(1.0) && !ledger.is_pause(24.0));
        assert!(ledger.is_pause(73.0));
        // Who comes once a week brings a week's worth.
        assert!(!Ledger { settled: 20 * 24, ..ledger }.is_pause(73.0));
        // Two in a row are what they have come to.
        ledger.pass_over();
        ledger.settled(20);
        assert!(!ledger.is_pause(73.0));
        ledger.tick(73.0, 0.0, Budget::Auto, 1.0);
        assert!(ledger.tariff.pace.hourly().unwrap() < 5.0 && !ledger.has_paused);
    }

    #[test]
    fn that_fetchers_asked_for_more_is_over_for_all_once_one_has_moved_the_price() {
        let conn = Connection::Embedded(rusqlite::Connection::open_in_memory().unwrap());
        let schema = include_str!("../../schema.sql");
        let table =
            schema.split_once("CREATE TABLE prices").unwrap().1.split_once(";\n\n").unwrap().0;
        conn.execute_batch(&format!("CREATE TABLE prices{table}")).unwrap();
        let crawl = CrawlId(1);
        let read = || Ledger::read(&conn, crawl, 1.0).unwrap();
        // One daemon hears that somebody wanted more.
        let mut base = Ledger::opening(1.0);
        let mut other = base;
        other.asked = Asked::More;
        other.settled(1);
        other.write(&conn, crawl, &base).unwrap();
        base = other;
        // The one that moves the price takes that in.
        let mut first = read();
        assert_eq!(first.asked, Asked::More);
        let before = first;
        first.tick(1.0, 0.0, Budget::Auto, 1.0);
        first.ticked_at = 1;
        first.write(&conn, crawl, &before).unwrap();
        // What the other settles afterwards says nothing of it.
        let table = read();
        other = other.caught_up(&base, table);
        base = table;
        assert_eq!(other.asked, Asked::Nothing);
        other.settled(1);
        other.write(&conn, crawl, &base).unwrap();
        assert_eq!((read().asked, read().settled), (Asked::Nothing, 1));
        // Nor what it had heard before, and not written.
        let unwritten = Ledger { asked: Asked::More, ..before };
        assert_eq!(unwritten.caught_up(&before, read()).asked, Asked::Nothing);
        // But what it hears then does.
        base = other;
        other.asked = Asked::More;
        other.write(&conn, crawl, &base).unwrap();
        assert_eq!(read().asked, Asked::More);
    }
}
