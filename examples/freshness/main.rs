//! Simulates pages that change, sitemaps that tell or lie of it, and policies
//! that choose what is fetched; prints what each policy achieves.
//!
//!     cargo run --release --example freshness
//!     cargo run --release --example freshness -- --worlds mix --seeds 1,2 --pages 500
//!
//! The learned order is `sitemapd::recrawl`, the functions that the daemon
//! uses. A seed is a world: the same figures come out on every machine.
#![allow(clippy::print_stdout)] // it is a program for people

mod bars;
mod baseline;
mod chart;
mod learned;
mod oracle;
mod policy;
mod random;
mod score;
mod stored;
mod table;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::baseline::{Baseline, Rule};
use crate::learned::{Learned, Settings};
use crate::oracle::{Goal, Optimum, Oracle, optimum};
use crate::policy::Policy;
use crate::stored::Stored;
use crate::table::{Cell, Table};
use crate::world::{Kind, TICKS_A_DAY, World};

/// Compares recrawl policies in simulated worlds.
#[derive(Debug, Parser)]
struct Args {
    /// Worlds to simulate; all of them by default
    #[arg(long, value_delimiter = ',')]
    worlds: Vec<Kind>,
    /// Seeds; each one is a world of its own. By default 201 to 235 for the mix, whose
    /// bars they are to meet, and 201 to 205 for the others. Below 200 they were looked at
    /// while the model was built
    #[arg(long, value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Fetches per page and day
    #[arg(long, value_delimiter = ',', default_value = "0.05,0.1,0.3")]
    budgets: Vec<f64>,
    /// Pages of a world
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pages: u32,
    /// Policies to run; all of them by default
    #[arg(long, value_delimiter = ',')]
    policies: Vec<Name>,
    /// Longest interval of the learned order, in days
    #[arg(long, default_value_t = 180)]
    max_interval: u64,
    /// The budget is not told to the learned order, which goes by what is settled
    #[arg(long)]
    auto: bool,
    /// From the middle of a world on, so many times as many fetches; with `--auto`
    #[arg(long, default_value_t = 1.0, requires = "auto")]
    grown: f64,
    /// Fetchers never compare: the learned order has no feedback
    #[arg(long)]
    no_feedback: bool,
    /// Simulations at a time; as many as there are processors by default
    #[arg(long)]
    threads: Option<usize>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Args {
    fn seeds_of(&self, kind: Kind) -> Vec<u64> {
        match kind {
            _ if !self.seeds.is_empty() => self.seeds.clone(),
            Kind::Mix => (201..=235).collect(),
            _ => (201..=205).collect(),
        }
    }
}

/// A policy of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Round robin.
    Uniform,
    /// The intervals of changefreq.
    Changefreq,
    /// In proportion to the true rates.
    Proportional,
    /// Nutch's adaptive schedule, begun as it begins.
    Nutch,
    /// Nutch's adaptive schedule, begun at 7 days.
    NutchFromWeekly,
    /// `StormCrawler`'s adaptive scheduler.
    Stormcrawler,
    /// Whatever has a newer lastmod first.
    Lastmod,
    /// The optimum of freshness, rates known, without signals.
    ClairvoyantFresh,
    /// Harmonic staleness, rates known, without signals.
    ClairvoyantHarmonic,
    /// Freshness, rates known, with signals.
    SignalsFresh,
    /// Harmonic staleness, rates known, with signals.
    SignalsHarmonic,
    /// This crate.
    Learned,
    /// This crate, as its daemon has it: a store, on disk. Only where it is named.
    Store,
}

impl Name {
    /// What the table calls it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Uniform => "uniform round robin",
            Self::Changefreq => "changefreq only",
            Self::Proportional => "proportional, true rates",
            Self::Nutch => "Nutch adaptive, as shipped",
            Self::NutchFromWeekly => "Nutch adaptive, begun at 7 days",
            Self::Stormcrawler => "StormCrawler adaptive",
            Self::Lastmod => "lastmod naive",
            Self::ClairvoyantFresh => "clairvoyant, freshness, no signals",
            Self::ClairvoyantHarmonic => "clairvoyant, harmonic, no signals",
            Self::SignalsFresh => "clairvoyant, freshness, signals",
            Self::SignalsHarmonic => "clairvoyant, harmonic, signals",
            Self::Learned => "sitemapd, learned",
            Self::Store => "sitemapd, its store",
        }
    }

    fn policy<'a>(
        self,
        world: &'a World,
        args: &Args,
        budget: f64,
        best: &Optimum,
    ) -> Box<dyn Policy + 'a> {
        let rule = |rule| Box::new(Baseline::new(rule, world, &best.intervals));
        let oracle = |goal| Box::new(Oracle::new(goal, world));
        match self {
            Self::Uniform => rule(Rule::Uniform),
            Self::Changefreq => rule(Rule::Changefreq),
            Self::Proportional => rule(Rule::Proportional),
            Self::Nutch => rule(Rule::Nutch),
            Self::NutchFromWeekly => rule(Rule::NutchFromWeekly),
            Self::Stormcrawler => rule(Rule::StormCrawler),
            Self::Lastmod => rule(Rule::Lastmod),
            Self::ClairvoyantFresh => rule(Rule::Clairvoyant),
            Self::ClairvoyantHarmonic => oracle(Goal::HarmonicDeaf),
            Self::SignalsFresh => oracle(Goal::Freshness),
            Self::SignalsHarmonic => oracle(Goal::Harmonic),
            Self::Learned | Self::Store => {
                // A world's number of pages fits into an f64.
                #[allow(clippy::cast_precision_loss)]
                let hourly = world.pages.len() as f64 * budget / TICKS_A_DAY;
                let settings = Settings {
                    min: Duration::from_secs(3_600),
                    max: Duration::from_secs(args.max_interval * 86_400),
                    compares: !args.no_feedback,
                    budget: (!args.auto).then_some(hourly),
                };
                if self == Self::Learned {
                    return Box::new(Learned::new(world, settings));
                }
                // A temporary folder that cannot be written is the end of it.
                #[allow(clippy::expect_used)]
                let stored = Stored::new(world, settings).expect("a store in a temporary folder");
                Box::new(stored)
            }
        }
    }
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.worlds.is_empty() {
        args.worlds = Kind::value_variants().to_vec();
    }
    if args.policies.is_empty() {
        args.policies = Name::value_variants().to_vec();
        // A store takes as long as hundreds of the others.
        args.policies.retain(|name| *name != Name::Store);
    }
    let table = simulate(&args);
    table.print();
    bars::print(&table);
    for (path, text) in [(&args.json, table.json()), (&args.svg, chart::svg(&table))] {
        let Some(path) = path else { continue };
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs everything: one world after the other of each thread, and in it all
/// policies at all budgets.
fn simulate(args: &Args) -> Table {
    let of_kind = |kind: &Kind| args.seeds_of(*kind).into_iter().zip(std::iter::repeat(*kind));
    let worlds: Vec<(u64, Kind)> = args.worlds.iter().flat_map(of_kind).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let cells = Mutex::new(Vec::new());
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, worlds.len()) {
            scope.spawn(|| {
                while let Some((seed, kind)) = worlds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let own = one_world(args, *kind, *seed);
                    cells.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    eprintln!("{done} of {} worlds: {} {seed}", worlds.len(), kind.as_str());
                }
            });
        }
    });
    Table::new(
        cells.into_inner().unwrap_or_else(PoisonError::into_inner),
        args.pages,
        args.max_interval,
    )
}

fn one_world(args: &Args, kind: Kind, seed: u64) -> Vec<Cell> {
    let world = World::draw(kind, seed, args.pages as usize);
    let mut cells = Vec::new();
    for &budget in &args.budgets {
        let best = optimum(&world, budget);
        let bound = kind.is_stationary().then_some(best.freshness);
        for &name in &args.policies {
            let mut policy = name.policy(&world, args, budget, &best);
            let score = policy::run(&world, policy.as_mut(), (budget, args.grown));
            cells.push(Cell { kind, seed, budget, name, score, bound });
        }
    }
    cells
}
