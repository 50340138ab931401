//! The filters of whole runs, for who brings new URLs: most of what the writer would
//! ask of them is asked before it has the chunk.
//!
//! A whole run gets no further entries, and no two that were committed ever have one
//! number. So what its filter once denied it has not, however much time has passed; the writer asks
//! those runs that were not there, or not whole, when the chunk was sifted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Sought;
use super::filter::{self, Piece};
use super::run::Split;

/// The filter of a whole run, all of it.
#[derive(Debug)]
pub(super) struct Sieve {
    run: i64,
    blocks: Split,
    pieces: Vec<Arc<Piece>>,
}

impl Sieve {
    pub(super) fn new(run: i64, blocks: Split, pieces: Vec<Arc<Piece>>) -> Self {
        Self { run, blocks, pieces }
    }

    fn may_have(&self, sought: &Sought) -> bool {
        let block = self.blocks.part_of(sought.hash);
        let piece = self.pieces.get(filter::piece_of(block) as usize);
        piece.is_some_and(|piece| piece.may_have(block, &sought.bits))
    }
}

/// Those of all runs that were committed as whole.
#[derive(Debug, Default)]
pub(crate) struct Sieves(Mutex<Arc<[Arc<Sieve>]>>);

impl Sieves {
    /// Asks the filters for hashes, which come with numbers and must ascend.
    pub(crate) fn sift(&self, order: &[(u64, usize)]) -> Sifted {
        let sieves = Arc::clone(&self.lock());
        if sieves.is_empty() || order.is_empty() {
            return Sifted::default();
        }
        let sought: Vec<Sought> = order.iter().map(|(hash, _)| Sought::new(*hash)).collect();
        let of_run = |sieve: &Arc<Sieve>| {
            let both = order.iter().zip(&sought);
            let perhaps = both.filter(|(_, sought)| sieve.may_have(sought));
            (sieve.run, perhaps.map(|(of, _)| *of).collect())
        };
        Sifted(sieves.iter().map(of_run).collect())
    }

    pub(super) fn replace(&self, sieves: Vec<Arc<Sieve>>) {
        *self.lock() = sieves.into();
    }

    fn lock(&self) -> MutexGuard<'_, Arc<[Arc<Sieve>]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What may be in runs, by the number of the run: hashes and their numbers, ascending.
#[derive(Debug, Default)]
pub(crate) struct Sifted(Vec<(i64, Vec<(u64, usize)>)>);

impl Sifted {
    /// Of one run; `None` where it was not asked.
    pub(super) fn of(&self, run: i64) -> Option<&[(u64, usize)]> {
        self.0.iter().find(|(of, _)| *of == run).map(|(_, perhaps)| perhaps.as_slice())
    }
}
