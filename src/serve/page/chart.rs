//! A small chart: numbers in, one `svg` out.
//!
//! Pure. No script, no style of its own and nothing from outside, so it passes
//! the strictest policy; who cannot see it is told the sum and the highest bar.

use maud::{Markup, html};

use crate::serve::wire::grouped;

/// Units of a bar's width, with the gap that follows it.
const STEP: usize = 4;
/// Units of the highest bar.
const HEIGHT: u64 = 60;

/// One bar of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bar {
    /// What it stands for: shown when somebody points at it.
    pub(super) of: String,
    /// How high it is.
    pub(super) value: u64,
}

/// Bars over time, the oldest first; `class` gives the colour.
pub(super) fn bars(title: &str, class: &str, bars: &[Bar]) -> Markup {
    let sum = bars.iter().fold(0_u64, |sum, bar| sum.saturating_add(bar.value));
    let highest = bars.iter().map(|bar| bar.value).max().unwrap_or(0);
    let told = format!("{title}: {} in all, {} at most at once", grouped(sum), grouped(highest));
    html! {
        figure {
            figcaption { (title) ": " strong { (grouped(sum)) } }
            svg class=(class) role="img" aria-label=(told) preserveAspectRatio="none"
                viewBox={ "0 0 " (bars.len().max(1) * STEP) " " (HEIGHT) } {
                @for (place, bar) in bars.iter().enumerate() {
                    @let high = height(bar.value, highest);
                    @if high > 0 {
                        rect x=(place * STEP) y=(HEIGHT - high) width=(STEP - 1) height=(high) {
                            title { (bar.of) ": " (grouped(bar.value)) }
                        }
                    }
                }
            }
            div.axis aria-hidden="true" { span { "7 days ago" } span { "now" } }
        }
    }
}

/// Of the height; what is not nothing is seen.
fn height(value: u64, highest: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    let share = u128::from(value) * u128::from(HEIGHT) / u128::from(highest.max(1));
    u64::try_from(share).unwrap_or(HEIGHT).clamp(2, HEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[u64]) -> String {
        let of = |value: &u64| Bar { of: "then".to_owned(), value: *value };
        bars("Found", "x", &values.iter().map(of).collect::<Vec<_>>()).into_string()
    }

    #[test]
    fn the_highest_bar_fills_the_chart_and_the_lowest_is_seen() {
        let svg = chart(&[0, 1, 1_000_000]);
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
        assert!(svg.contains("x=\"4\" y=\"58\" width=\"3\" height=\"2\""), "{svg}");
        assert!(svg.contains("x=\"8\" y=\"0\" width=\"3\" height=\"60\""), "{svg}");
        assert!(svg.contains("aria-label=\"Found: 1,000,001 in all, 1,000,000 at most at once\""));
    }

    #[test]
    fn nothing_and_far_too_much_are_charts_too() {
        for values in [&[][..], &[0, 0], &[u64::MAX, u64::MAX, 1]] {
            let svg = chart(values);
            assert!(svg.contains("<svg") && !svg.contains("NaN"), "{svg}");
        }
    }
}
