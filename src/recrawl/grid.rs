//! A few values held against each other by how well they explain what was found.
//!
//! Bayes on a grid, with forgetting: exact, of constant size, and never stuck
//! at a value that it once took for certain. What the values mean, and how
//! likely each is beforehand, is left to `trust`.

/// How much less likely than the best a value may become: by what a habit that
/// is dropped can be unlearned.
const DEEPEST: f64 = 12.0;
/// Changes that are expected of any page, so that no logarithm is infinite.
const LEAST: f64 = 1e-6;

/// By how much each value explains the looks worse than the best does:
/// differences of log-likelihoods, from 0 on, fading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Grid<const N: usize>(pub(super) [f64; N]);

impl<const N: usize> Default for Grid<N> {
    fn default() -> Self {
        Self([0.0; N])
    }
}

/// How surprising a look was by each value: minus the logarithm of the probability of
/// what was found. `expected` are the changes that each would have made expect.
pub(super) fn surprises<const N: usize>(expected: [f64; N], changed: bool) -> [f64; N] {
    expected.map(|expected| {
        let expected = expected.max(LEAST);
        if changed { -(-(-expected).exp_m1()).ln() } else { expected }
    })
}

impl<const N: usize> Grid<N> {
    /// From what was kept, whatever it is by now: no value is ruled out for ever.
    pub(super) fn kept(worse: [f64; N]) -> Self {
        Self(worse.map(|worse| worse.min(DEEPEST)))
    }

    /// Takes in one look: how surprising it was by each value ([`surprises`]), and
    /// what is left of earlier looks.
    pub(super) fn learn(&mut self, surprises: &[f64; N], memory: f64) {
        let mut best = f64::INFINITY;
        for (worse, surprise) in self.0.iter_mut().zip(surprises) {
            *worse = *worse * memory + surprise;
            best = best.min(*worse);
        }
        for worse in &mut self.0 {
            *worse = (*worse - best).min(DEEPEST);
        }
    }

    /// Both records as one, this one counting by its share.
    pub(super) fn add(mut self, other: &Self, share: f64) -> Self {
        for (worse, other) in self.0.iter_mut().zip(other.0) {
            *worse += other * share;
        }
        self
    }

    /// The mean of the values, each as likely as it was assumed to be and as it
    /// has proved.
    pub(super) fn mean(&self, values: [f64; N], assumed: [f64; N]) -> f64 {
        let (mut sum, mut mean) = (0.0, 0.0);
        for ((worse, value), assumed) in self.0.iter().zip(values).zip(assumed) {
            // What nothing was held against is as likely as it was assumed to be.
            let likely = if *worse > 0.0 { assumed * (-worse).exp() } else { assumed };
            sum += likely;
            mean += likely * value;
        }
        mean / sum
    }
}
