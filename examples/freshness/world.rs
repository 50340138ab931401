//! The simulated web: how pages change, and what their sitemaps say of it.
//!
//! Everything that happens is drawn in advance from a seed, so that all
//! policies see the same world. Constants of the mix: what Bing found in 2023
//! of lastmods, and the changefreqs that generators write.

use sitemapd::model::ChangeFreq;

use crate::random::Random;

/// Length of a world in days.
pub(crate) const DAYS: f64 = 120.0;
/// Days at the beginning that are not scored: everybody learns.
pub(crate) const WARM_UP: f64 = 40.0;
/// Ticks a day: documents are polled, and fetches spread, by the hour.
pub(crate) const TICKS_A_DAY: f64 = 24.0;
/// When habits change in the worlds in which they do.
const TURN: f64 = 60.0;
/// Pages of a host, on average, but for the world of one host.
const PAGES_A_HOST: usize = 25;
/// Fetches a day that half of the hosts allow in the world of caps.
const CAP_A_DAY: f64 = 1.5;

/// A kind of world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Hosts of all habits, as often as Bing found them.
    Mix,
    /// All hosts write honest lastmods.
    Honest,
    /// All hosts regenerate their sitemap daily, with all lastmods.
    AlwaysNow,
    /// No host writes lastmods.
    Missing,
    /// Lastmods miss most changes and are often wrong.
    Lossy,
    /// The mix, with pages that change within eight hours of a day.
    Diurnal,
    /// The mix, with pages that change in bursts.
    Bursty,
    /// The mix, with rates that wander.
    Drift,
    /// The mix, where all lastmods of honest hosts jump once.
    Migration,
    /// The mix, where half of the honest hosts begin to lie, and all liars of
    /// that half to be honest.
    Flip,
    /// The mix, where half of the hosts allow few fetches.
    Caps,
    /// The mix, on a tenth of the hosts, each ten times as large.
    Large,
}

impl Kind {
    /// The word of tables and charts.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Honest => "honest",
            Self::AlwaysNow => "always-now",
            Self::Missing => "missing",
            Self::Lossy => "lossy",
            Self::Diurnal => "diurnal",
            Self::Bursty => "bursty",
            Self::Drift => "drift",
            Self::Migration => "migration",
            Self::Flip => "flip",
            Self::Caps => "caps",
            Self::Large => "large",
        }
    }

    /// Do pages change at one rate for ever, so that closed forms hold?
    pub(crate) fn is_stationary(self) -> bool {
        !matches!(self, Self::Diurnal | Self::Bursty | Self::Drift | Self::Caps)
    }
}

/// How a host writes lastmods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// 95 % of changes move it; one move in ten of a change is false.
    Honest,
    /// Regenerated daily, all at once.
    AlwaysNow,
    /// None.
    Missing,
    /// 30 % of changes move it, and as often nothing.
    Lossy,
}

impl Class {
    /// The share of changes that move a lastmod, and false moves per change.
    fn recall_and_false(self) -> (f64, f64) {
        match self {
            Self::Honest => (0.95, 0.1),
            Self::AlwaysNow | Self::Missing => (0.0, 0.0),
            Self::Lossy => (0.3, 0.3),
        }
    }
}

/// One page.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// Index of its host.
    pub(crate) host: usize,
    /// What its sitemap says.
    pub(crate) changefreq: Option<ChangeFreq>,
    /// Rates from a time on, in changes a day; the first from 0 on.
    rates: Vec<(f64, f64)>,
    /// When it changed, ascending.
    pub(crate) changes: Vec<f64>,
}

/// What only a clairvoyant knows of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Truth {
    /// Changes a day.
    pub(crate) delta: f64,
    /// Those that no lastmod tells.
    pub(crate) alpha: f64,
    /// False moves of the lastmod a day.
    pub(crate) false_rate: f64,
    /// What one move of the lastmod weighs.
    pub(crate) weight: f64,
}

/// One read of a host's sitemap that found newer lastmods.
#[derive(Debug, Clone)]
pub(crate) struct Poll {
    /// Tick at which it was read.
    pub(crate) tick: usize,
    /// Whose.
    pub(crate) host: usize,
    /// Pages with a newer lastmod, and the lastmod in days.
    pub(crate) moved: Vec<(usize, f64)>,
}

/// One host.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// Its pages.
    pub(crate) pages: Vec<usize>,
    /// Its habit before and after [`TURN`].
    classes: (Class, Class),
    /// Fetches a day that it allows.
    pub(crate) cap: Option<f64>,
}

impl Host {
    fn class(&self, day: f64) -> Class {
        if day < TURN { self.classes.0 } else { self.classes.1 }
    }
}

/// A world, drawn.
#[derive(Debug)]
pub(crate) struct World {
    /// What kind it is.
    pub(crate) kind: Kind,
    /// Its seed.
    pub(crate) seed: u64,
    /// All pages.
    pub(crate) pages: Vec<Page>,
    /// All hosts.
    pub(crate) hosts: Vec<Host>,
    /// All reads that found something, by tick.
    pub(crate) polls: Vec<Poll>,
}

impl World {
    /// Draws a world of so many pages.
    pub(crate) fn draw(kind: Kind, seed: u64, pages: usize) -> Self {
        let mut random = Random::new(seed, 1);
        let size = if kind == Kind::Large { 10 * PAGES_A_HOST } else { PAGES_A_HOST };
        let count = pages.div_ceil(size).max(1);
        let mut world =
            Self { kind, seed, pages: Vec::with_capacity(pages), hosts: vec![], polls: vec![] };
        for host in 0..count {
            let classes = classes(kind, &mut random);
            let cap = (kind == Kind::Caps && random.chance(0.5)).then_some(CAP_A_DAY);
            let claim = Claim::draw(&mut random);
            let level = random.normal();
            let own: Vec<usize> = (host * size..pages.min((host + 1) * size)).collect();
            for _ in &own {
                world.pages.push(Page::draw(kind, host, level, claim, &mut random));
            }
            world.hosts.push(Host { pages: own, classes, cap });
        }
        world.polls = polls(&world);
        world
    }

    /// Its number of ticks.
    pub(crate) fn ticks() -> usize {
        // 120 days of hours.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ticks = (DAYS * TICKS_A_DAY) as usize;
        ticks
    }

    /// What is true of a page at a time.
    pub(crate) fn truth(&self, page: usize, day: f64) -> Truth {
        let page = &self.pages[page];
        let delta = page.rate(day);
        let (recall, false_share) = self.hosts[page.host].class(day).recall_and_false();
        let false_rate = false_share * delta;
        let weight = if recall > 0.0 { ((recall + false_share) / false_share).ln() } else { 0.0 };
        Truth { delta, alpha: (1.0 - recall) * delta, false_rate, weight }
    }
}

impl Page {
    fn draw(kind: Kind, host: usize, level: f64, claim: Claim, random: &mut Random) -> Self {
        let rate = |offset: f64| {
            let rate = (level + 1.5 * offset).exp() / 14.0;
            rate.clamp(1.0 / 182.5, 24.0)
        };
        let mut offset = random.normal();
        let mut rates = vec![(0.0, rate(offset))];
        let mut day = 0.0;
        while kind == Kind::Drift && day < DAYS {
            // The offset is forgotten over 40 days or so and drawn anew.
            day += 5.0;
            let kept = (-5.0_f64 / 40.0).exp();
            offset = offset * kept + (1.0 - kept * kept).sqrt() * random.normal();
            rates.push((day, rate(offset)));
        }
        let changefreq = claim.of(rates[0].1);
        let mut page = Self { host, changefreq, rates, changes: vec![] };
        page.changes = page.happen(kind, random);
        page
    }

    fn rate(&self, day: f64) -> f64 {
        let after = self.rates.partition_point(|(from, _)| *from <= day);
        self.rates[after.max(1) - 1].1
    }

    /// Draws the changes: a Poisson process at the highest rate, thinned.
    fn happen(&self, kind: Kind, random: &mut Random) -> Vec<f64> {
        let top = self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let factor = match kind {
            Kind::Diurnal => 3.0,
            Kind::Bursty => 8.0,
            _ => 1.0,
        };
        let hour = random.unit();
        let (mut day, mut burst, mut turns_at) = (0.0, false, 0.0);
        let mut changes = Vec::new();
        loop {
            day += random.wait(top * factor);
            if day >= DAYS {
                return changes;
            }
            while kind == Kind::Bursty && turns_at <= day {
                // A tenth of the time is a burst, of three days on average.
                burst = if turns_at == 0.0 { random.chance(0.1) } else { !burst };
                turns_at += random.wait(if burst { 1.0 / 3.0 } else { 1.0 / 27.0 });
            }
            let share = match kind {
                Kind::Diurnal => f64::from(u8::from((day + hour).fract() < 1.0 / 3.0)),
                Kind::Bursty if burst => 1.0,
                Kind::Bursty => 0.2 / 0.9 / 8.0,
                _ => 1.0,
            };
            if random.chance(share * self.rate(day) / top) {
                changes.push(day);
            }
        }
    }
}

/// What a host writes as changefreq.
#[derive(Debug, Clone, Copy)]
enum Claim {
    Right,
    Constant(Option<ChangeFreq>),
}

impl Claim {
    fn draw(random: &mut Random) -> Self {
        match random.unit() {
            u if u < 0.3 => Self::Right,
            u if u < 0.45 => Self::Constant(Some(ChangeFreq::Daily)),
            u if u < 0.7 => Self::Constant(Some(ChangeFreq::Weekly)),
            u if u < 0.8 => Self::Constant(Some(ChangeFreq::Monthly)),
            _ => Self::Constant(None),
        }
    }

    fn of(self, rate: f64) -> Option<ChangeFreq> {
        match self {
            Self::Constant(word) => word,
            Self::Right => Some(match 1.0 / rate {
                days if days < 0.2 => ChangeFreq::Hourly,
                days if days < 2.6 => ChangeFreq::Daily,
                days if days < 14.5 => ChangeFreq::Weekly,
                days if days < 105.0 => ChangeFreq::Monthly,
                _ => ChangeFreq::Yearly,
            }),
        }
    }
}

fn classes(kind: Kind, random: &mut Random) -> (Class, Class) {
    let drawn = match random.unit() {
        u if u < 0.66 => Class::Honest,
        u if u < 0.81 => Class::AlwaysNow,
        u if u < 0.97 => Class::Missing,
        _ => Class::Lossy,
    };
    let turns = random.chance(0.5);
    let class = match kind {
        Kind::Honest => Class::Honest,
        Kind::AlwaysNow => Class::AlwaysNow,
        Kind::Missing => Class::Missing,
        Kind::Lossy => Class::Lossy,
        _ => drawn,
    };
    let later = match class {
        Class::Honest if kind == Kind::Flip && turns => Class::AlwaysNow,
        Class::AlwaysNow if kind == Kind::Flip && turns => Class::Honest,
        same => same,
    };
    (class, later)
}

/// Draws when lastmods move, and reads them by the hour.
fn polls(world: &World) -> Vec<Poll> {
    let mut moves = Vec::new();
    for (host, site) in world.hosts.iter().enumerate() {
        let mut random = Random::new(world.seed ^ 0x706f_6c6c, host as u64);
        let hour = random.unit();
        for &page in &site.pages {
            moves_of(world, page, hour, &mut random, &mut moves);
        }
    }
    moves.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let mut polls: Vec<Poll> = Vec::new();
    for (tick, host, page, at) in moves {
        match polls.last_mut() {
            Some(poll) if (poll.tick, poll.host) == (tick, host) => match poll.moved.last_mut() {
                // Several moves between two reads are one: the last is listed.
                Some(last) if last.0 == page => last.1 = at,
                _ => poll.moved.push((page, at)),
            },
            _ => polls.push(Poll { tick, host, moved: vec![(page, at)] }),
        }
    }
    polls
}

fn moves_of(
    world: &World,
    page: usize,
    hour: f64,
    random: &mut Random,
    moves: &mut Vec<(usize, usize, usize, f64)>,
) {
    let host = world.pages[page].host;
    let site = &world.hosts[host];
    // The first read after it; ticks are few.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let tick = |at: f64| (at * TICKS_A_DAY).ceil() as usize;
    for &at in &world.pages[page].changes {
        if random.chance(site.class(at).recall_and_false().0) {
            moves.push((tick(at), host, page, at));
        }
    }
    let mut at = 0.0;
    loop {
        let truth = world.truth(page, at);
        let rate = truth.false_rate.max(0.01);
        at += random.wait(rate);
        if at >= DAYS {
            break;
        }
        if random.chance(world.truth(page, at).false_rate / rate) {
            moves.push((tick(at), host, page, at));
        }
    }
    let mut at = hour;
    while at < DAYS {
        if site.class(at) == Class::AlwaysNow {
            moves.push((tick(at), host, page, at));
        }
        at += 1.0;
    }
    if world.kind == Kind::Migration && site.class(TURN) == Class::Honest {
        moves.push((tick(TURN + hour), host, page, TURN + hour));
    }
}
