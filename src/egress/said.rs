//! What the broker says without being asked.
//!
//! That something is not permitted comes as an error of its own beside the calls,
//! and whoever waits for an answer hears nothing: without it the log would say that
//! the broker took too long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::ServerError;
use tokio::time::Instant;

/// What was said before that has nothing to do with what goes wrong now: longer than
/// anybody waits for an answer, a second try included.
const LATELY: Duration = Duration::from_secs(30);
/// Characters of it in the log.
const MAX_SHOWN: usize = 200;

/// The last that one session heard; clones hear the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Said(Arc<Mutex<Option<(Instant, String)>>>);

impl Said {
    /// A new session has heard nothing.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    pub(super) fn hear(&self, error: &ServerError) {
        let text = error.to_string();
        let text = text.trim_start_matches("nats: ").chars().take(MAX_SHOWN).collect();
        *self.lock() = Some((Instant::now(), text));
    }

    /// Has it said anything lately?
    pub(super) fn is_something(&self) -> bool {
        self.lock().as_ref().is_some_and(|(at, _)| at.elapsed() < LATELY)
    }

    /// What went wrong, and what it has said lately.
    pub(super) fn beside(&self, error: String) -> String {
        match &*self.lock() {
            Some((at, said)) if at.elapsed() < LATELY => {
                format!("{error}; the server says: {said}")
            }
            _ => error,
        }
    }

    /// It is whole after any panic of another holder.
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_server_said_stands_beside_an_error_for_a_while() {
        let said = Said::default();
        let told = || said.beside("timed out".to_owned());
        assert_eq!(told(), "timed out");
        said.clone().hear(&ServerError::Other("Permissions Violation for this".to_owned()));
        assert_eq!(told(), "timed out; the server says: Permissions Violation for this");
        assert!(said.is_something());
        tokio::time::advance(LATELY).await;
        assert_eq!(told(), "timed out");
        assert!(!said.is_something());
    }
}
