//! Leases that go back into the queue: what was held, or published and not taken.
//!
//! A token stays here until the store has taken it, over any number of sessions:
//! with it would go a place among those in flight, for as long as its lease lasts.
//! What an earlier process held and never published is found again in the store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::Egress;
use super::book::Held;
use super::publish::NOTE_EVERY;
use crate::metrics::Egressed;
use crate::queue::Token;
use crate::store::{OwnLease, StoreError};

/// Leases to be given back, each with the time for which nobody is to have it then. No
/// more than were in flight: while the store takes none back it gives none, either.
#[derive(Debug, Default)]
pub(super) struct Owed(Mutex<HashMap<Token, Duration>>);

impl Owed {
    /// Notes leases, unless they are here already.
    pub(super) fn add(&self, tokens: impl IntoIterator<Item = Token>, after: Duration) {
        let mut owed = self.lock();
        for token in tokens {
            owed.entry(token).or_insert(after);
        }
    }

    /// All there are, by that time.
    fn all(&self) -> BTreeMap<Duration, Vec<Token>> {
        let mut all = BTreeMap::<_, Vec<_>>::new();
        for (token, after) in &*self.lock() {
            all.entry(*after).or_default().push(*token);
        }
        all
    }

    /// The store has taken these.
    fn remove(&self, tokens: &[Token]) {
        let mut owed = self.lock();
        for token in tokens {
            owed.remove(token);
        }
    }

    /// The map is whole after any panic of another holder.
    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Egress {
    /// Gives back all that is owed; the first error, after all have been tried. What
    /// could not be given back is owed still, also where nobody waits for the end of this.
    pub(super) async fn give_back(&self) -> Result<(), StoreError> {
        let mut ended = Ok(());
        for (after, tokens) in self.owed.all() {
            match self.store.release(tokens.clone(), after).await {
                Ok(_) => {
                    self.owed.remove(&tokens);
                    self.metrics.egressed(Egressed::Released, tokens.len() as u64);
                    self.unsettled.remove(tokens.into_iter());
                }
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        ended
    }

    /// Takes over what the store says is in flight, and gives back what is not: what is
    /// owed, and what a process that was killed had leased and not yet published. A URL
    /// is published when it may be fetched; so what may not be yet is with nobody but
    /// those who hold it. Nor is what came due after that process had last noted how far it
    /// was, and the seconds until it would have again. Nor is what is in no book of ours and
    /// was leased since a call had no answer.
    ///
    /// That another daemon holds it cannot be seen, since several may publish under one
    /// name: where there are others it is left to run out.
    pub(super) async fn take_stock(&self, held: &Held) -> Result<(), StoreError> {
        let leases = self.store.leases_of(&self.worker()).await?;
        let now = self.clock.steady();
        let held: HashSet<_> = held.tokens().collect();
        let (known, unanswered) = (self.unsettled.tokens(), *self.unanswered());
        self.unsettled.replace(leases.iter().map(|lease| (lease.token, lease.expires_at)));
        // In milliseconds, as the store has its times.
        let lease_ms = i64::try_from(self.config.lease.as_millis()).unwrap_or(i64::MAX);
        let ends_ms = unanswered.map(|began| began.as_millisecond().saturating_add(lease_ms));
        let is_lost = |lease: &OwnLease| {
            !known.contains(&lease.token)
                && ends_ms.is_some_and(|first| lease.expires_at.as_millisecond() >= first)
        };
        let noted = if self.has_stock.load(Ordering::Relaxed) {
            None
        } else {
            let noted = self.store.published_until(&self.worker()).await?;
            noted.map(|noted| noted.checked_add(NOTE_EVERY).unwrap_or(Timestamp::MAX))
        };
        let is_waiting = |at: Timestamp| at > now || noted.is_some_and(|noted| at > noted);
        let unpublished = leases.iter().filter(|one| is_waiting(one.not_before) || is_lost(one));
        let strays: Vec<_> =
            unpublished.map(|lease| lease.token).filter(|token| !held.contains(token)).collect();
        // Looked at after the leases: whoever made one of them is seen.
        if !strays.is_empty() && self.store.is_alone().await? {
            self.owed.add(strays, Duration::ZERO);
        }
        *self.unanswered() = None;
        // What is owed stays owed: of others there may be room, and results to settle.
        self.give_back().await.or_else(|error| if error.passes() { Ok(()) } else { Err(error) })?;
        self.has_stock.store(true, Ordering::Relaxed);
        self.count_unsettled();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::UrlId;

    #[test]
    fn what_is_owed_is_owed_until_it_is_taken_and_as_it_was_first() {
        let owed = Owed::default();
        let token = |id| Token { url: UrlId(id), secret: [0; 16] };
        let hour = Duration::from_secs(3_600);
        owed.add([token(1)], hour);
        owed.add([token(1), token(2)], Duration::ZERO);
        assert_eq!(
            owed.all().into_iter().collect::<Vec<_>>(),
            [(Duration::ZERO, vec![token(2)]), (hour, vec![token(1)])]
        );
        owed.remove(&[token(2)]);
        assert_eq!(owed.all().into_iter().collect::<Vec<_>>(), [(hour, vec![token(1)])]);
    }
}
