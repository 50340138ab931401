//! The price of a fetch, which moves by itself until what is due fits the budget.
//!
//! One price holds for all URLs of a crawl: a URL is due when fetching it is
//! worth the price. More due than fetchers settle raises it, less lowers it;
//! no row is touched by that.
//!
//! Keeps: the price is positive and finite and moves by a bounded factor an
//! hour, whatever is reported. Counting what is due is left to the queue.

/// Where a price begins: at it, a page that changes every two weeks is due
/// every two weeks.
const FIRST: f64 = 14.0 * 0.367_879_441_171_442_33;
/// Largest move of the price in an hour, as a logarithm: threefold in a day.
const FASTEST_AN_HOUR: f64 = 0.05;
/// By how much it falls in an hour in which fetchers had nothing to do.
const EASED_AN_HOUR: f64 = 0.02;
/// Idle fetchers alone lower it no further: at it, a page that changes daily is
/// due every eight hours, and one that changes yearly every six days.
pub const LEAST_OF_ALL: f64 = 0.05;
/// Hours of budget that may be due before the price moves at full speed.
const SLACK_HOURS: f64 = 20.0;
/// Bounds of the price, in days of staleness per fetch: moments to ages.
const BOUNDS: (f64, f64) = (1e-8, 1e5);
/// Days in which a fetcher's pace is believed to have changed.
const PACE_DAYS: f64 = 1.0;

/// The price of one crawl's fetches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price(f64);

impl Default for Price {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Price {
    /// A price that was kept; the first one where it is no price.
    pub fn restored(kept: f64) -> Self {
        let is_price = kept.is_finite() && kept > 0.0;
        if is_price { Self(kept.clamp(BOUNDS.0, BOUNDS.1)) } else { Self::default() }
    }

    /// Days of staleness that a fetch must be worth.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Lowers the price after `hours`, of which no more than a day count, in which
    /// fetchers asked for more than was worth it; not below [`LEAST_OF_ALL`].
    fn ease(&mut self, hours: f64) {
        self.ease_to(LEAST_OF_ALL, hours);
    }

    /// The same where a budget was named that is not used up: as low as it takes.
    fn ease_for_budget(&mut self, hours: f64) {
        self.ease_to(BOUNDS.0, hours);
    }

    fn ease_to(&mut self, least: f64, hours: f64) {
        if self.0 > least {
            let eased = self.0 * (-EASED_AN_HOUR * hours.clamp(0.0, 24.0)).exp();
            self.0 = eased.max(least);
        }
    }

    /// Moves the price after `hours`, of which no more than a day count. `due`
    /// are URLs that are worth the price and could be served: of a host no more
    /// than its clock allows in an hour. `budget` is fetches an hour, without
    /// those that go to URLs that are only overdue: no price makes these less,
    /// and one that rose because of them would rise without end.
    pub fn tick(&mut self, hours: f64, due: f64, budget: f64) {
        if !(hours > 0.0 && budget > 0.0 && due >= 0.0) {
            return;
        }
        let excess = (due - budget) / (SLACK_HOURS * budget);
        let step = FASTEST_AN_HOUR * excess.clamp(-1.0, 1.0) * hours.min(24.0);
        self.0 = (self.0 * step.exp()).clamp(BOUNDS.0, BOUNDS.1);
    }
}

/// The budget `auto`: what fetchers really settle, as a running mean.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Fetches an hour.
    hourly: f64,
    /// Hours watched, up to a day and its multiples that still count.
    hours: f64,
}

impl Pace {
    /// A pace that was kept, as [`Self::kept`] told it; none where that is none.
    pub fn restored(hourly: f64, hours: f64) -> Self {
        let is_pace = hourly.is_finite() && hourly >= 0.0 && hours >= 0.0;
        if is_pace { Self { hourly, hours: hours.min(24.0 * PACE_DAYS) } } else { Self::default() }
    }

    /// Fetches an hour, and the hours watched.
    pub fn kept(self) -> (f64, f64) {
        (self.hourly, self.hours)
    }

    /// Takes in that so many refreshing fetches were settled in `hours`.
    /// Hours in which fetchers asked for nothing are not to be reported.
    pub fn settled(&mut self, fetches: f64, hours: f64) {
        if !(hours > 0.0 && fetches >= 0.0) {
            return;
        }
        self.hours = (self.hours + hours).min(24.0 * PACE_DAYS);
        let share = (hours / self.hours).min(1.0);
        self.hourly += (fetches / hours - self.hourly) * share;
    }

    /// Fetches an hour; `None` before anything was settled.
    pub fn hourly(self) -> Option<f64> {
        (self.hourly > 0.0).then_some(self.hourly)
    }
}

/// Share of a configured budget that is kept free of what is only overdue.
const LEAST_FREE: f64 = 0.1;

/// The price of one crawl with the paces that it follows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tariff {
    /// The price.
    pub price: Price,
    /// Refreshing fetches that are settled.
    pub pace: Pace,
    /// Of these, what goes to pages that are only overdue.
    pub overdue: Pace,
    /// Fetches of a configured budget that were left when the price moved last; less than
    /// none where more was worth it.
    pub left: f64,
}

/// What was seen since the price moved last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// For how long.
    pub hours: f64,
    /// Refreshing fetches that were settled.
    pub settled: f64,
    /// URLs that were leased for being worth the price.
    pub leased: f64,
    /// The part of the time that was over when the last of them was leased, 0 to 1.
    pub covered: f64,
    /// URLs that were leased for being overdue only.
    pub leased_overdue: f64,
    /// URLs that were leased though they are worth less than the price.
    pub spared: f64,
    /// URLs that are worth the price, could be served within an hour, and are left.
    pub backlog: f64,
    /// Did fetchers ask for more than there was?
    pub wants: Wants,
}

/// What fetchers asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// No more than was due.
    Something,
    /// More than was due.
    More,
    /// More than was due of some sites: of others a lot may be.
    MoreOfSites,
}

impl Tariff {
    /// Fetches of a configured `budget` an hour that are left for what is worth less than
    /// the price, so many hours after it moved, of which no more than one counts, and so
    /// many refreshing fetches.
    pub fn room(&self, budget: f64, hours: f64, fetches: f64) -> f64 {
        self.left + budget * hours.clamp(0.0, 1.0) - fetches
    }

    /// Moves the price; `budget` is fetches an hour where it is configured, otherwise
    /// what fetchers settle.
    pub fn tick(&mut self, seen: &Seen, budget: Option<f64>) {
        let hours = seen.hours;
        self.pace.settled(seen.settled, hours);
        self.overdue.settled(seen.leased_overdue, hours);
        // Whoever comes once a day finds what became due in a day.
        let left = seen.backlog / hours.max(1.0);
        let is_idle = match seen.wants {
            Wants::Something => false,
            Wants::More => true,
            // An hour's work for others is left at most.
            Wants::MoreOfSites => left <= self.pace.hourly().unwrap_or(0.0),
        };
        if budget.is_none() && is_idle {
            self.price.ease(hours);
            return;
        }
        let Some(hourly) = budget.or(self.pace.hourly()) else { return };
        if budget.is_some() {
            let used = seen.leased + seen.leased_overdue + seen.spared;
            // Less than one an hour must come to one some day.
            self.left = self.room(hourly, hours, used).clamp(-hourly, hourly.max(1.0));
        }
        let free = hourly - self.overdue.hourly().unwrap_or(0.0);
        let free = free.max(LEAST_FREE * hourly);
        // What was leased at once when the time began had become due in the time before,
        // and what has since is left: for who comes by the hour, or once a day.
        let due = left + seen.covered * seen.leased / hours.max(1.0);
        if is_idle && due < free {
            self.price.ease_for_budget(hours);
        } else {
            self.price.tick(hours, due, free);
        }
    }
}

#[cfg(test)]
mod tests;
