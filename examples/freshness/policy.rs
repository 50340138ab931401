//! What a policy is asked, and the run that asks it.

use crate::score::{Score, Watch};
use crate::world::{Poll, TICKS_A_DAY, WARM_UP, World};

/// Chooses what is fetched.
pub(crate) trait Policy {
    /// A read of a sitemap found newer lastmods.
    fn poll(&mut self, _poll: &Poll, _day: f64) {}

    /// Chooses at most `most` pages to be fetched now. Each one is taken from
    /// `caps` of its host.
    fn pick(&mut self, day: f64, most: usize, caps: &mut Caps, picked: &mut Vec<usize>);

    /// A page that was picked has been fetched.
    fn settle(&mut self, page: usize, day: f64, changed: bool);

    /// Hours of the budget that may be used later than they come.
    fn saves_up(&self) -> f64 {
        1.0
    }

    /// Rows written so far.
    fn writes(&self) -> u64 {
        0
    }
}

/// How many fetches hosts allow now.
#[derive(Debug)]
pub(crate) struct Caps(Vec<Option<(f64, f64)>>);

impl Caps {
    fn new(world: &World) -> Self {
        let hourly = |cap: f64| (cap / TICKS_A_DAY, 0.0);
        Self(world.hosts.iter().map(|host| host.cap.map(hourly)).collect())
    }

    fn tick(&mut self) {
        for (rate, saved) in self.0.iter_mut().flatten() {
            // As a clock of a host: what was not used in time is lost.
            *saved = (*saved + *rate).min(1.0_f64.max(*rate));
        }
    }

    /// May one more page of the host be fetched now?
    pub(crate) fn allows(&self, host: usize) -> bool {
        self.0[host].is_none_or(|(_, saved)| saved >= 1.0)
    }

    /// Fetches of the host that its clock allows in an hour.
    pub(crate) fn hourly(&self, host: usize) -> f64 {
        self.0[host].map_or(f64::INFINITY, |(rate, _)| rate)
    }

    /// Takes one.
    pub(crate) fn take(&mut self, host: usize) {
        if let Some((_, saved)) = &mut self.0[host] {
            *saved -= 1.0;
        }
    }
}

/// Runs a policy in a world, with so many fetches per page and day, and from the middle
/// on so many times as many.
pub(crate) fn run(world: &World, policy: &mut dyn Policy, (budget, grown): (f64, f64)) -> Score {
    let mut watch = Watch::new(world);
    let mut caps = Caps::new(world);
    let mut polls = world.polls.iter().peekable();
    // Pages of a world and ticks of a day fit into an f64.
    #[allow(clippy::cast_precision_loss)]
    let mut hourly = world.pages.len() as f64 * budget / TICKS_A_DAY;
    let (mut credit, mut before) = (0.0, 0);
    let mut picked = Vec::new();
    for tick in 1..World::ticks() {
        #[allow(clippy::cast_precision_loss)] // see above
        let day = tick as f64 / TICKS_A_DAY;
        while let Some(poll) = polls.next_if(|poll| poll.tick <= tick) {
            policy.poll(poll, day);
        }
        caps.tick();
        if day < WARM_UP {
            before = policy.writes();
        }
        if tick == World::ticks() / 2 {
            hourly *= grown;
        }
        credit += hourly;
        // Positive and small.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let most = credit.floor() as usize;
        picked.clear();
        policy.pick(day, most, &mut caps, &mut picked);
        assert!(picked.len() <= most, "a policy took more than its budget");
        #[allow(clippy::cast_precision_loss)] // see above
        let used = picked.len() as f64;
        // What hosts did not allow, or was not wanted, is not saved up for long.
        credit = (credit - used).min(1.0 + hourly * policy.saves_up());
        for &page in &picked {
            let changed = watch.fetch(page, day);
            policy.settle(page, day, changed);
        }
    }
    watch.end(policy.writes() - before)
}
