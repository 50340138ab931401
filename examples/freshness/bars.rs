//! The bars that the learned order is held against, met or missed.

use crate::Name;
use crate::table::Table;
use crate::world::Kind;

/// Budgets with their bars on the mix: harmonic staleness over that of uniform,
/// and over that of Nutch adaptive.
const MIX: [(f64, f64, f64); 3] = [(0.05, 0.84, 0.90), (0.1, 0.68, 0.75), (0.3, 0.45, 0.38)];
/// Budgets at which it is held against the clairvoyant with signals.
const NEAR: [(f64, f64); 2] = [(0.05, 1.10), (0.1, 1.10)];
/// How much worse than uniform it may be in any world.
const WORST: f64 = 1.03;
/// Days that a page may be late behind the longest interval.
const QUEUEING: f64 = 2.0;

/// Prints the bars for which everything was run.
pub(crate) fn print(table: &Table) {
    println!("\nbars");
    let ratio = |kind, budget, other| {
        let own = table.harmonic(kind, budget, Name::Learned)?;
        Some(own / table.harmonic(kind, budget, other)?)
    };
    for (budget, uniform, nutch) in MIX {
        let others =
            [(Name::Uniform, uniform), (Name::Nutch, nutch), (Name::NutchFromWeekly, nutch)];
        for (other, bar) in others {
            let what = format!("mix {budget}: harmonic staleness over {}", other.title());
            line(&what, ratio(Kind::Mix, budget, other), bar);
        }
    }
    for (budget, bar) in NEAR {
        let what = format!("mix {budget}: harmonic staleness over the clairvoyant's");
        line(&what, ratio(Kind::Mix, budget, Name::SignalsHarmonic), bar);
    }
    let (kinds, budgets, _) = table.axes();
    for &budget in &budgets {
        let fresh = table.spread(Kind::Mix, budget, Name::Learned, |cell| Some(cell.score.fresh));
        let bound = table.spread(Kind::Mix, budget, Name::Learned, |cell| cell.bound);
        let what = format!("mix {budget}: closed form of freshness without signals, over its own");
        line(&what, bound.zip(fresh).map(|(bound, fresh)| bound.mean / fresh.mean), 1.0);
        let run =
            table.spread(Kind::Mix, budget, Name::ClairvoyantFresh, |cell| Some(cell.score.fresh));
        let what = format!("mix {budget}: closed form, off its own simulation");
        let off = bound.zip(run).map(|(bound, run)| (bound.mean / run.mean - 1.0).abs());
        line(&what, off, 0.02);
    }
    let mut worst: Option<(f64, Kind, f64)> = None;
    for &kind in &kinds {
        for &budget in &budgets {
            let Some(ratio) = ratio(kind, budget, Name::Uniform) else { continue };
            if worst.is_none_or(|(other, ..)| ratio > other) {
                worst = Some((ratio, kind, budget));
            }
        }
    }
    if let Some((ratio, kind, budget)) = worst {
        let what = format!("worst world ({} {budget}): over uniform", kind.as_str());
        line(&what, Some(ratio), WORST);
    }
    // Days of the longest interval fit into an f64.
    #[allow(clippy::cast_precision_loss)]
    let max = table.max_interval as f64;
    for &kind in kinds.iter().filter(|kind| **kind != Kind::Caps) {
        for &budget in budgets.iter().filter(|budget| **budget * max >= 1.0) {
            let longest =
                table.spread(kind, budget, Name::Learned, |cell| Some(cell.score.longest));
            // A run of 120 days says nothing of longer intervals.
            if let Some(longest) = longest.filter(|_| max < crate::world::DAYS) {
                let what = format!("{} {budget}: longest time between fetches", kind.as_str());
                line(&what, Some(longest.mean), max + QUEUEING);
            }
        }
    }
}

fn line(what: &str, value: Option<f64>, bar: f64) {
    if let Some(value) = value {
        let verdict = if value <= bar { "met" } else { "MISSED" };
        println!("{what:72} {value:7.3}  at most {bar:.2}  {verdict}");
    }
}
