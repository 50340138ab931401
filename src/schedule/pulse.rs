//! The poll loop's sign of life, for those who watch over it.
//!
//! It beats once a round, and a round takes no longer than the longest pause
//! of the loop and a question to the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clones are the same pulse.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    born: Instant,
    /// Milliseconds from then to the last beat.
    last: Arc<AtomicU64>,
}

impl Pulse {
    /// Beats now for the first time.
    pub(crate) fn new() -> Self {
        Self { born: Instant::now(), last: Arc::default() }
    }

    /// The loop goes round.
    pub(super) fn beat(&self) {
        self.last.store(self.age(), Ordering::Relaxed);
    }

    /// How long the last beat is ago.
    pub(crate) fn silent_for(&self) -> Duration {
        let last = self.last.load(Ordering::Relaxed);
        Duration::from_millis(self.age().saturating_sub(last))
    }

    fn age(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
