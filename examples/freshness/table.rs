//! The figures of all runs: means, spread over seeds, and how they are written.

use serde_json::json;

use crate::Name;
use crate::score::Score;
use crate::world::Kind;

/// One run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    /// Its world.
    pub(crate) kind: Kind,
    /// The seed of that.
    pub(crate) seed: u64,
    /// Fetches per page and day.
    pub(crate) budget: f64,
    /// Who chose.
    pub(crate) name: Name,
    /// What came of it.
    pub(crate) score: Score,
    /// Freshness of the clairvoyant optimum without signals, in closed form.
    pub(crate) bound: Option<f64>,
}

/// All runs.
#[derive(Debug)]
pub(crate) struct Table {
    cells: Vec<Cell>,
    pages: u32,
    /// Longest interval of the learned order, in days.
    pub(crate) max_interval: u64,
}

/// Mean and standard deviation over seeds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    /// The mean.
    pub(crate) mean: f64,
    /// The standard deviation of one world from it.
    pub(crate) deviation: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        // Seeds are few.
        #[allow(clippy::cast_precision_loss)]
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, deviation: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

impl Table {
    /// Puts the runs in order.
    pub(crate) fn new(mut cells: Vec<Cell>, pages: u32, max_interval: u64) -> Self {
        let key =
            |cell: &Cell| (cell.kind as u8, cell.budget.to_bits(), cell.name as u8, cell.seed);
        cells.sort_by_key(key);
        Self { cells, pages, max_interval }
    }

    /// The worlds, budgets and policies that were run, each in order.
    pub(crate) fn axes(&self) -> (Vec<Kind>, Vec<f64>, Vec<Name>) {
        let (mut kinds, mut budgets, mut names) = (vec![], vec![], vec![]);
        for cell in &self.cells {
            push_new(&mut kinds, cell.kind);
            push_new(&mut budgets, cell.budget);
            push_new(&mut names, cell.name);
        }
        (kinds, budgets, names)
    }

    /// A figure of a policy over all seeds; `None` where it was not run.
    pub(crate) fn spread(
        &self,
        kind: Kind,
        budget: f64,
        name: Name,
        figure: impl Fn(&Cell) -> Option<f64>,
    ) -> Option<Spread> {
        let is_asked = |cell: &&Cell| {
            cell.kind == kind && cell.budget.to_bits() == budget.to_bits() && cell.name == name
        };
        let values: Option<Vec<f64>> = self.cells.iter().filter(is_asked).map(figure).collect();
        values.filter(|values| !values.is_empty()).map(|values| Spread::of(&values))
    }

    /// The mean harmonic staleness.
    pub(crate) fn harmonic(&self, kind: Kind, budget: f64, name: Name) -> Option<f64> {
        Some(self.spread(kind, budget, name, |cell| Some(cell.score.harmonic))?.mean)
    }

    /// Writes it for people.
    pub(crate) fn print(&self) {
        let (kinds, budgets, names) = self.axes();
        for kind in kinds {
            for &budget in &budgets {
                self.print_block(kind, budget, &names);
            }
        }
    }

    fn print_block(&self, kind: Kind, budget: f64, names: &[Name]) {
        println!("\n{}, {budget} fetches per page and day, {} pages", kind.as_str(), self.pages);
        println!(
            "{:36} {:>12} {:>13} {:>12} {:>7} {:>8} {:>7}",
            "", "fresh", "age (days)", "harmonic", "useful", "longest", "writes"
        );
        for &name in names {
            let figure = |figure: fn(&Score) -> f64| {
                self.spread(kind, budget, name, |cell| Some(figure(&cell.score)))
            };
            let (Some(fresh), Some(age), Some(harmonic), Some(useful), Some(longest), Some(writes)) = (
                figure(|score| score.fresh),
                figure(|score| score.age),
                figure(|score| score.harmonic),
                figure(|score| score.useful),
                figure(|score| score.longest),
                figure(|score| score.writes),
            ) else {
                continue;
            };
            println!(
                "{:36} {:.3} ±{:.3} {:7.2} ±{:4.2} {:.3} ±{:.3} {:>7.2} {:>8.1} {:>7.2}",
                name.title(),
                fresh.mean,
                fresh.deviation,
                age.mean,
                age.deviation,
                harmonic.mean,
                harmonic.deviation,
                useful.mean,
                longest.mean,
                writes.mean,
            );
        }
        if let Some(bound) = self.spread(kind, budget, names[0], |cell| cell.bound) {
            println!(
                "{:36} {:.3} ±{:.3}",
                "  closed form of freshness, no signals", bound.mean, bound.deviation
            );
        }
    }

    /// All runs, one object each.
    pub(crate) fn json(&self) -> String {
        let run = |cell: &Cell| {
            json!({
                "world": cell.kind.as_str(),
                "seed": cell.seed,
                "pages": self.pages,
                "budget": cell.budget,
                "policy": cell.name.title(),
                "fresh": cell.score.fresh,
                "age_days": cell.score.age,
                "harmonic": cell.score.harmonic,
                "useful": cell.score.useful,
                "longest_days": cell.score.longest,
                "writes_per_fetch": cell.score.writes,
                "fresh_closed_form": cell.bound,
            })
        };
        let runs: Vec<_> = self.cells.iter().map(run).collect();
        format!("{:#}\n", json!({ "runs": runs }))
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}
