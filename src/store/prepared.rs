//! What can be worked out of effects before the writer has them, by whoever brings
//! them: the writer is what all wait for.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::abbreviations::{Kept, Shortened};
use super::effect::Effect;
use super::lookup::{Sieves, Sifted};
use super::rows::url_key;
use crate::model::CrawlId;

/// Effects, and what has been worked out of them.
#[derive(Debug)]
pub struct Prepared {
    pub(super) effects: Vec<Effect>,
    /// Nothing where several daemons share the store: each prepares its part.
    pub(super) paths: Option<Paths>,
}

impl Prepared {
    /// Is there nothing to apply?
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }
}

/// Prepares effects, on any thread.
#[derive(Debug, Clone)]
pub struct Preparer {
    pub(super) seed: u64,
    /// Of a store that is one file.
    pub(super) sieves: Option<Arc<Sieves>>,
}

impl Preparer {
    /// Works out what there is of effects of a source in that crawl. Of an admission
    /// that is mostly its path abbreviated, some 300 ns.
    pub fn prepare(&self, crawl: CrawlId, effects: Vec<Effect>) -> Prepared {
        let paths = self.sieves.as_ref().map(|sieves| {
            let mut paths = Paths::of(self.seed, crawl, &effects, true);
            paths.sifted = sieves.sift(&paths.order);
            paths
        });
        Prepared { effects, paths }
    }
}

/// The paths of all admissions among effects, by their number there.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// As they are kept; none where rows have the text.
    short: Shortened,
    /// What their URLs are known by.
    keys: Vec<u64>,
    /// Keys with their numbers, ascending.
    order: Vec<(u64, usize)>,
    /// Which of them runs may have.
    sifted: Sifted,
}

impl Paths {
    pub(super) fn of(seed: u64, crawl: CrawlId, effects: &[Effect], abbreviates: bool) -> Self {
        let mut paths = Self::default();
        for url in effects.iter().filter_map(Effect::admitted) {
            paths.keys.push(url_key(seed, crawl, &url.authority, &url.path));
            if abbreviates {
                paths.short.push(&url.path);
            }
        }
        paths.order = in_order(paths.keys.iter().copied().zip(0..));
        paths
    }

    /// A path as it is kept.
    pub(super) fn kept<'p>(&'p self, number: usize, path: &'p str) -> Kept<'p> {
        self.short.kept(number, path)
    }

    /// Which keys runs may have, by number.
    pub(super) fn sifted(&self) -> &Sifted {
        &self.sifted
    }

    /// What the URLs of these admissions are known by.
    pub(super) fn keys(&self, numbers: Range<usize>) -> &[u64] {
        self.keys.get(numbers).unwrap_or_default()
    }

    /// The same with their numbers among all, ascending.
    pub(super) fn order(&self, numbers: Range<usize>) -> Cow<'_, [(u64, usize)]> {
        if numbers == (0..self.keys.len()) {
            return Cow::Borrowed(&self.order);
        }
        // Few of many, which may happen as often as there are.
        if numbers.len() < self.keys.len() / 16 {
            return Cow::Owned(in_order(self.keys(numbers.clone()).iter().copied().zip(numbers)));
        }
        let within = self.order.iter().filter(|(_, number)| numbers.contains(number));
        Cow::Owned(within.copied().collect())
    }
}

/// Keys with their numbers, ascending.
fn in_order(keys: impl Iterator<Item = (u64, usize)>) -> Vec<(u64, usize)> {
    // As one number, which is one comparison. No number is beyond 64 bits.
    let mut order: Vec<u128> =
        keys.map(|(key, number)| u128::from(key) << 64 | number as u128).collect();
    order.sort_unstable();
    // Both halves.
    #[allow(clippy::cast_possible_truncation)]
    let halves = |both: u128| ((both >> 64) as u64, both as u64 as usize);
    order.into_iter().map(halves).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_of_some_admissions_is_that_of_their_keys(
            keys in prop::collection::vec(0_u64..50, 0..200),
            cut in (0_usize..200, 0_usize..200),
        ) {
            let paths = Paths {
                order: in_order(keys.iter().copied().zip(0..)),
                keys,
                ..Paths::default()
            };
            let start = cut.0.min(paths.keys.len());
            let numbers = start..(start + cut.1).min(paths.keys.len());
            let mut expected: Vec<_> =
                numbers.clone().map(|number| (paths.keys[number], number)).collect();
            expected.sort_unstable();
            prop_assert_eq!(paths.order(numbers.clone()).into_owned(), expected);
            prop_assert_eq!(paths.keys(numbers.clone()), &paths.keys[numbers]);
        }
    }
}
