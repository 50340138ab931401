//! The chart of the documents: harmonic staleness, as a share of round robin.

use std::fmt::Write as _;

use crate::Name;
use crate::table::Table;
use crate::world::Kind;

const WIDTH: f64 = 860.0;
const BAR: f64 = 13.0;
const LEFT: f64 = 250.0;
/// Pixels of what is as stale as round robin.
const UNIT: f64 = 380.0;
/// Longer bars are cut here.
const MOST: f64 = 1.5;

/// Draws the mix, all policies at all budgets, and below it all worlds with the
/// learned order and the clairvoyant.
pub(crate) fn svg(table: &Table) -> String {
    let (kinds, budgets, names) = table.axes();
    let mut rows = Vec::new();
    rows.push(Row::Title("Mixed world: harmonic staleness, round robin = 1".to_owned()));
    for &budget in &budgets {
        rows.push(Row::Head(format!("{budget} fetches per page and day")));
        for &name in names.iter().filter(|name| **name != Name::Uniform) {
            rows.extend(bar(table, Kind::Mix, budget, name, name.title()));
        }
    }
    let worlds: Vec<Kind> = kinds.into_iter().filter(|kind| *kind != Kind::Mix).collect();
    if let Some(&budget) = budgets.get(1).or(budgets.first()).filter(|_| !worlds.is_empty()) {
        rows.push(Row::Title(format!("Other worlds, {budget} fetches per page and day")));
        for kind in worlds {
            rows.push(Row::Head(kind.as_str().to_owned()));
            for name in [Name::NutchFromWeekly, Name::Learned, Name::SignalsHarmonic] {
                rows.extend(bar(table, kind, budget, name, name.title()));
            }
        }
    }
    draw(&rows)
}

enum Row {
    Title(String),
    Head(String),
    Bar { label: &'static str, share: f64, is_own: bool, is_clairvoyant: bool },
}

fn bar(table: &Table, kind: Kind, budget: f64, name: Name, label: &'static str) -> Option<Row> {
    let share =
        table.harmonic(kind, budget, name)? / table.harmonic(kind, budget, Name::Uniform)?;
    Some(Row::Bar {
        label,
        share,
        is_own: name == Name::Learned,
        is_clairvoyant: label.starts_with("clairvoyant"),
    })
}

fn draw(rows: &[Row]) -> String {
    let height = |row: &Row| match row {
        Row::Title(_) => 34.0,
        Row::Head(_) => 22.0,
        Row::Bar { .. } => BAR + 3.0,
    };
    let total: f64 = rows.iter().map(height).sum::<f64>() + 14.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" \
         font-family=\"sans-serif\" font-size=\"11\" role=\"img\">\n\
         <rect width=\"{WIDTH}\" height=\"{total}\" fill=\"#fff\"/>\n"
    );
    let line = LEFT + UNIT;
    let mut y = 0.0;
    for row in rows {
        let text = y + height(row) - 5.0;
        // Writing into a string cannot fail.
        let _ = match row {
            Row::Title(title) => writeln!(
                svg,
                "<text x=\"8\" y=\"{text}\" font-size=\"14\" font-weight=\"bold\">{title}</text>"
            ),
            Row::Head(head) => {
                writeln!(svg, "<text x=\"8\" y=\"{text}\" font-weight=\"bold\">{head}</text>")
            }
            Row::Bar { label, share, is_own, is_clairvoyant } => {
                let fill = match (is_own, is_clairvoyant) {
                    (true, _) => "#0a7d5a",
                    (_, true) => "#c9c9c9",
                    _ => "#7c98b8",
                };
                let width = UNIT * share.min(MOST);
                let text = y + BAR - 2.0;
                writeln!(
                    svg,
                    "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{label}</text>\
                     <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{fill}\"/>\
                     <line x1=\"{line}\" x2=\"{line}\" y1=\"{y}\" y2=\"{}\" stroke=\"#000\" stroke-dasharray=\"2 2\"/>\
                     <text x=\"{:.1}\" y=\"{text}\">{share:.2}</text>",
                    LEFT - 6.0,
                    y + BAR,
                    LEFT + width + 5.0,
                )
            }
        };
        y += height(row);
    }
    svg.push_str("</svg>\n");
    svg
}
