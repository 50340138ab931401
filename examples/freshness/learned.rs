//! The daemon's policy: `sitemapd::recrawl`, in the form in which it is queued.
//!
//! Rows keep a due time and nothing else that is looked for; what is due lies
//! in a window per host, where its value is taken anew each hour; hosts take
//! turns. States are packed and unpacked around each use, as a store does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use jiff::Timestamp;
use sitemapd::model::ChangeFreq;
use sitemapd::recrawl::habit::{Habits, Reading};
use sitemapd::recrawl::model::{Beliefs, Look, UrlState, days_after};
use sitemapd::recrawl::price::{Price, Seen, Tariff, Wants};
use sitemapd::recrawl::prior::{Bucket, Priors};
use sitemapd::recrawl::signal::PerSignal;
use sitemapd::recrawl::trust::{self, Lesson, Trust};
use sitemapd::recrawl::value::{self, Worth};

use crate::policy::{Caps, Policy};
use crate::world::{Poll, World};

/// When the simulation begins: 2026-01-01.
pub(crate) const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);
/// Where the price begins, as in the daemon.
const OPENING_PRICE: f64 = 0.5;
/// Pages of one host that are held in memory at a time.
const WINDOW: usize = 128;
/// Of these, those that stay in line however little they are worth.
const LEAST_SPARE: usize = 64;
/// Pages of a host that are looked at at once before they are due, and how many of them
/// must be worth the price for as many more to be looked at.
const LOOK: usize = 64;
const WORTH_ONE_MORE: usize = 8;

/// How it is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Shortest interval.
    pub(crate) min: Duration,
    /// Longest interval.
    pub(crate) max: Duration,
    /// Do fetchers compare?
    pub(crate) compares: bool,
    /// Fetches an hour, as configured; without, what is settled.
    pub(crate) budget: Option<f64>,
}

#[derive(Debug)]
struct Row {
    host: usize,
    changefreq: Option<ChangeFreq>,
    state: [u8; 16],
    due: Timestamp,
    /// Raised whenever the row is written, so that older entries are void.
    version: u32,
}

#[derive(Debug, Default)]
struct Site {
    habits: Habits,
    trust: Trust,
    priors: Priors,
    pulls: PerSignal<f64>,
    /// What lies in memory.
    window: Vec<Candidate>,
    /// What is due beyond the window, by due time.
    waiting: BinaryHeap<Reverse<(i64, usize, u32)>>,
    pages: u32,
    served: u64,
    pass: u64,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    page: usize,
    version: u32,
    score: f64,
    due: Timestamp,
    is_due: bool,
    /// Is it worth the price, and not only overdue?
    is_worth: bool,
    /// Has its row not come due?
    is_early: bool,
}

/// The learned order at work.
#[derive(Debug)]
pub(crate) struct Learned {
    settings: Settings,
    rows: Vec<Row>,
    sites: Vec<Site>,
    all_trust: Trust,
    all_priors: Priors,
    tariff: Tariff,
    due: BinaryHeap<Reverse<(i64, usize, u32)>>,
    turn: u64,
    writes: u64,
}

fn at(day: f64) -> Timestamp {
    days_after(EPOCH, day)
}

fn protocol(word: Option<ChangeFreq>) -> Duration {
    const HOUR: u64 = 3600;
    Duration::from_secs(match word {
        None => 14 * 24 * HOUR,
        Some(ChangeFreq::Always | ChangeFreq::Hourly) => HOUR,
        Some(ChangeFreq::Daily) => 24 * HOUR,
        Some(ChangeFreq::Weekly) => 7 * 24 * HOUR,
        Some(ChangeFreq::Monthly) => 30 * 24 * HOUR,
        Some(ChangeFreq::Yearly | ChangeFreq::Never) => 180 * 24 * HOUR,
    })
}

impl Learned {
    /// All pages are looked at for the first time at 0.
    pub(crate) fn new(world: &World, settings: Settings) -> Self {
        let state = UrlState::first(at(0.0)).pack();
        let row = |page: &crate::world::Page| Row {
            host: page.host,
            changefreq: page.changefreq,
            state,
            due: at(0.0),
            version: 0,
        };
        let mut learned = Self {
            settings,
            rows: world.pages.iter().map(row).collect(),
            sites: world.hosts.iter().map(|_| Site::default()).collect(),
            all_trust: Trust::default(),
            all_priors: Priors::default(),
            tariff: Tariff { price: Price::restored(OPENING_PRICE), ..Tariff::default() },
            due: BinaryHeap::new(),
            turn: 0,
            writes: 0,
        };
        for host in 0..world.hosts.len() {
            learned.sites[host].pages = u32::try_from(world.hosts[host].pages.len()).unwrap_or(0);
            learned.weigh(host);
        }
        for page in 0..world.pages.len() {
            learned.write(page, at(0.0));
        }
        learned.writes = 0;
        learned
    }

    fn weigh(&mut self, host: usize) {
        let site = &mut self.sites[host];
        // Its one source has seen what the host has.
        let weights = Trust::weights(&site.trust, &site.trust, &self.all_trust);
        site.pulls = trust::pulls(&weights);
    }

    fn state(&self, page: usize) -> UrlState {
        // Rows hold nothing but what `pack` wrote.
        #[allow(clippy::expect_used)]
        let state = UrlState::unpack(&self.rows[page].state).expect("written by pack");
        state
    }

    fn beliefs(&self, page: usize) -> Beliefs {
        let row = &self.rows[page];
        let site = &self.sites[row.host];
        let bucket = Bucket::of(row.changefreq);
        Beliefs {
            rate: site.priors.rate(&self.all_priors, bucket, protocol(row.changefreq)),
            looks: site.priors.looks(&self.all_priors),
            silent: site.trust.silent(),
            pulls: site.pulls,
        }
    }

    fn worth(&self, page: usize, state: &UrlState, now: Timestamp) -> Worth {
        Worth {
            estimate: state.estimate(&self.beliefs(page), now),
            mu: 1.0,
            priority: 50.0,
            protocol: protocol(self.rows[page].changefreq),
            min: self.settings.min,
            max: self.settings.max,
            seen: state.seen(),
            id: i64::try_from(page).unwrap_or(0),
        }
    }

    /// Writes a row with its place as of now.
    fn write(&mut self, page: usize, now: Timestamp) {
        let worth = self.worth(page, &self.state(page), now);
        let place = worth.place(now, self.price());
        let row = &mut self.rows[page];
        row.due = place.surfaces;
        row.version += 1;
        self.writes += 1;
        self.due.push(Reverse((place.surfaces.as_second(), page, row.version)));
    }

    /// Rows that have come due go to the windows of their hosts.
    fn surface(&mut self, now: Timestamp) {
        while let Some(Reverse((due, page, version))) = self.due.peek().copied() {
            if due > now.as_second() {
                break;
            }
            self.due.pop();
            if self.rows[page].version == version {
                let host = self.rows[page].host;
                self.sites[host].waiting.push(Reverse((due, page, version)));
            }
        }
    }

    /// Fills a host's window and takes the value of what lies in it.
    fn refresh(&mut self, host: usize, now: Timestamp) {
        let mut window = std::mem::take(&mut self.sites[host].window);
        let mut held = std::mem::take(&mut window).into_iter();
        while window.len() < WINDOW {
            let next = held.next().map(|candidate| (candidate.page, candidate.version));
            let waiting = &mut self.sites[host].waiting;
            let next =
                next.or_else(|| waiting.pop().map(|Reverse((_, page, version))| (page, version)));
            let Some((page, version)) = next else { break };
            if self.rows[page].version != version {
                continue;
            }
            let worth = self.worth(page, &self.state(page), now);
            let is_claimed =
                worth.at(now).is_due(self.price() * value::TOO_CHEAP) || worth.at(now).is_overdue();
            let spares = window.iter().filter(|candidate| !candidate.is_due).count();
            if is_claimed || spares < LEAST_SPARE || !self.sites[host].priors.are_known() {
                window.push(self.candidate(page, version, now));
            } else {
                self.write(page, now);
            }
        }
        self.sites[host].window = window;
    }

    fn candidate(&self, page: usize, version: u32, now: Timestamp) -> Candidate {
        let worth = self.worth(page, &self.state(page), now);
        let price = self.price();
        let is_due = worth.at(now).is_due(price);
        let is_worth = is_due && (!worth.at(now).is_overdue() || worth.value(now) >= price);
        let (score, due) = (worth.at(now).score(price), self.rows[page].due);
        let is_early = due > now;
        Candidate { page, version, score, due, is_due, is_worth, is_early }
    }

    /// What is worth the price though its row is not due lies in the windows until
    /// [`Self::end_early`]: the price has fallen since that was written.
    fn offer_early(&mut self, now: Timestamp) {
        let mut later = vec![Vec::new(); self.sites.len()];
        for (page, row) in self.rows.iter().enumerate().filter(|(_, row)| row.due > now) {
            later[row.host].push((row.due, page));
        }
        for (host, mut rows) in later.into_iter().enumerate() {
            rows.sort_unstable();
            for look in rows.chunks(LOOK) {
                let candidate =
                    |(_, page): &(_, usize)| self.candidate(*page, self.rows[*page].version, now);
                let worth: Vec<_> = look.iter().map(candidate).filter(|c| c.is_worth).collect();
                let goes_on = worth.len() >= WORTH_ONE_MORE;
                self.sites[host].window.extend(worth);
                if !goes_on {
                    break;
                }
            }
        }
    }

    fn end_early(&mut self) {
        for site in &mut self.sites {
            site.window.retain(|candidate| !candidate.is_early);
        }
    }

    /// The host whose turn it is, and what it gives.
    fn next(&self, only_due: bool, caps: &Caps) -> Option<(usize, usize)> {
        let best = |host: usize, site: &Site| {
            let oldest = value::is_oldest_turn(site.served);
            let fits = site.window.iter().enumerate().filter(|(_, c)| c.is_due || !only_due);
            let better = |a: &Candidate, b: &Candidate| {
                let by_due = b.due.cmp(&a.due);
                if oldest { by_due } else { a.score.total_cmp(&b.score).then(by_due) }
            };
            let (index, _) = fits.max_by(|a, b| better(a.1, b.1))?;
            Some((site.pass, host, index))
        };
        let sites = self.sites.iter().enumerate();
        sites
            .filter(|(host, site)| !site.window.is_empty() && caps.allows(*host))
            .filter_map(|(host, site)| best(host, site))
            .min()
            .map(|(_, host, index)| (host, index))
    }

    fn take(&mut self, host: usize, index: usize) -> Candidate {
        let site = &mut self.sites[host];
        let candidate = site.window.swap_remove(index);
        site.served += 1;
        // Stride scheduling: who was idle saves up nothing.
        site.pass = site.pass.max(self.turn) + 1;
        self.turn = self.turn.max(site.pass - 1);
        self.rows[candidate.page].version += 1;
        candidate
    }

    fn price(&self) -> f64 {
        self.tariff.price.get()
    }

    fn has_room(&self, fetches: f64) -> bool {
        self.settings.budget.is_none_or(|budget| self.tariff.room(budget, 1.0, fetches) >= 1.0)
    }

    /// URLs that are worth the price and could be served within the hour.
    fn backlog(&self, caps: &Caps) -> f64 {
        let of_host = |(host, site): (usize, &Site)| {
            let here = site.window.iter().filter(|candidate| candidate.is_worth).count();
            // A window holds few, a host's rows fit into an f64.
            #[allow(clippy::cast_precision_loss)]
            let (here, held, waiting) =
                (here as f64, site.window.len().max(1) as f64, site.waiting.len() as f64);
            // What waits behind the window is taken to be as what lies in it.
            (here * (1.0 + waiting / held)).min(caps.hourly(host))
        };
        self.sites.iter().enumerate().map(of_host).sum()
    }
}

impl Policy for Learned {
    fn poll(&mut self, poll: &Poll, day: f64) {
        let now = at(day);
        let moved: Vec<i64> = poll.moved.iter().map(|(_, day)| at(*day).as_second()).collect();
        let site = &mut self.sites[poll.host];
        let reading = Reading {
            at: now,
            entries: site.pages,
            dated: site.pages,
            date_only: 0,
            future: 0,
            known: site.pages,
            regressed: 0,
            moved: &moved,
            came: &[],
        };
        let signal = site.habits.read(&reading).moves;
        for (page, _) in &poll.moved {
            let mut state = self.state(*page);
            state.signal(signal);
            self.rows[*page].state = state.pack();
            if self.sites[poll.host].pulls[signal] <= 0.0 {
                // Not believed: it moves nothing.
                continue;
            }
            let due = self.worth(*page, &state, now).place(now, self.price()).surfaces;
            let row = &self.rows[*page];
            if row.due > now && value::is_worth_a_write(state.seen(), row.due, due) {
                self.write(*page, now);
            }
        }
    }

    fn pick(&mut self, day: f64, most: usize, caps: &mut Caps, picked: &mut Vec<usize>) {
        let now = at(day);
        self.surface(now);
        for host in 0..self.sites.len() {
            self.refresh(host, now);
        }
        let (mut worth, mut overdue, mut spared) = (0.0, 0.0, 0.0);
        // What is worth less than the price is for fetchers that have nothing else to do,
        // within the budget where one is named; before it goes what is worth it though
        // its row is not due.
        for (only_due, is_early) in [(true, false), (true, true), (false, false)] {
            if is_early && picked.len() < most && self.has_room(worth + overdue + spared) {
                self.offer_early(now);
            }
            while picked.len() < most
                && (only_due && !is_early || self.has_room(worth + overdue + spared))
                && let Some((host, index)) = self.next(only_due, caps)
            {
                caps.take(host);
                let candidate = self.take(host, index);
                picked.push(candidate.page);
                match candidate {
                    Candidate { is_worth: true, .. } => worth += 1.0,
                    Candidate { is_due: true, .. } => overdue += 1.0,
                    _ => spared += 1.0,
                }
            }
        }
        self.end_early();
        let is_named = self.settings.budget.is_some();
        let seen = Seen {
            hours: 1.0,
            settled: worth + overdue + spared,
            leased: worth,
            // What is left is counted once all is leased.
            covered: 1.0,
            leased_overdue: overdue,
            spared,
            backlog: self.backlog(caps),
            // Who names a budget has fetchers for more.
            wants: if is_named || picked.len() < most { Wants::More } else { Wants::Something },
        };
        self.tariff.tick(&seen, self.settings.budget);
    }

    fn saves_up(&self) -> f64 {
        // And it is the price that keeps to it.
        if self.settings.budget.is_some() { 24.0 } else { 1.0 }
    }

    fn settle(&mut self, page: usize, day: f64, changed: bool) {
        let now = at(day);
        let mut state = self.state(page);
        let beliefs = self.beliefs(page);
        let look = match (self.settings.compares, changed) {
            (false, _) => Look::Unknown,
            (true, true) => Look::Changed,
            (true, false) => Look::Unchanged,
        };
        let host = self.rows[page].host;
        if let Some(evidence) = state.look(now, look, &beliefs) {
            let bucket = Bucket::of(self.rows[page].changefreq);
            let lesson = Lesson::of(&evidence, &beliefs);
            let site = &mut self.sites[host];
            site.trust.learn(&lesson);
            site.priors.learn(bucket, &evidence);
            self.all_trust.learn(&lesson);
            self.all_priors.learn(bucket, &evidence);
            self.weigh(host);
        }
        self.rows[page].state = state.pack();
        self.write(page, now);
    }

    fn writes(&self) -> u64 {
        self.writes
    }
}
