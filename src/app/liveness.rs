//! Whether the daemon does its work, for those who would start it again: the writer
//! answers, the poll loop goes round. What starting again would not mend is no lack
//! of life.

use std::time::Duration;

use tokio::time::timeout;

use crate::schedule::Pulse;
use crate::store::{Store, StoreError};

/// Longest that the poll loop may not go round: several times its longest pause.
const SILENCE: Duration = Duration::from_secs(120);

/// Says whether the daemon does its work, beyond answering.
#[derive(Clone)]
pub struct Liveness {
    store: Store,
    polls: Pulse,
}

impl Liveness {
    /// Of the daemon that has these.
    pub(super) fn new(store: Store, polls: Pulse) -> Self {
        Self { store, polls }
    }

    /// Do the writer and the poll loop go on? An error says what hangs.
    pub async fn check(&self, patience: Duration) -> Result<(), &'static str> {
        let answer = timeout(patience, self.store.ping()).await;
        lives(answer.ok().as_ref(), self.polls.silent_for())
    }
}

/// A database that is busy, full or broken has answered: starting again unlocks
/// no database, frees no disk and mends no file.
fn lives(answer: Option<&Result<(), StoreError>>, silence: Duration) -> Result<(), &'static str> {
    match answer {
        None => return Err("the writer"),
        Some(Err(StoreError::Closed)) => return Err("the writer has ended"),
        Some(_) => {}
    }
    if silence > SILENCE { Err("the poll loop") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_starting_again_would_mend_is_no_life() {
        let soon = Duration::from_secs(31);
        let table = [
            (Some(Ok(())), soon, true),
            (Some(Err(StoreError::Busy)), soon, true),
            (Some(Err(StoreError::Full)), soon, true),
            (Some(Err(StoreError::Engine("io".to_owned()))), soon, true),
            (Some(Err(StoreError::Closed)), soon, false),
            (None, soon, false),
            (Some(Ok(())), SILENCE * 2, false),
        ];
        for (answer, silence, expected) in table {
            let shown = format!("{answer:?} after {silence:?}");
            assert_eq!(lives(answer.as_ref(), silence).is_ok(), expected, "{shown}");
        }
    }
}
