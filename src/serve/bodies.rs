//! The memory that bodies of requests may take: of all of them, and of one client.
//!
//! Taken at once or not at all, since waiting would let slow bodies block each other;
//! given back on drop. What is remembered of a client goes with its last body.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Kind, Problem};

/// Bytes of all bodies held at once, where nothing else is said.
const BUDGET: usize = 128 << 20;
/// Bytes that one permit of the budget stands for.
pub(super) const BUDGET_UNIT: usize = 1 << 10;

/// The memory that request bodies may take together.
#[derive(Debug, Clone)]
pub(crate) struct BodyBudget {
    all: Arc<Semaphore>,
    of_client: Option<OfClient>,
}

/// What each client may have of it, in units, and has.
#[derive(Debug, Clone)]
struct OfClient {
    most: usize,
    held: Arc<Mutex<HashMap<u128, usize>>>,
}

/// A part of the budget.
#[derive(Debug)]
pub struct BodyShare {
    budget: BodyBudget,
    client: u128,
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self::of(BUDGET)
    }
}

impl BodyBudget {
    /// Of so many bytes, of which any client may have all.
    pub(crate) fn of(bytes: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(bytes / BUDGET_UNIT)), of_client: None }
    }

    /// The same, of which one client may have so many.
    pub(crate) fn with_share(bytes: usize, of_client: usize) -> Self {
        let of_client = OfClient { most: of_client / BUDGET_UNIT, held: Arc::default() };
        Self { of_client: Some(of_client), ..Self::of(bytes) }
    }

    /// What a client has before it has sent anything.
    pub(super) fn begin(&self, client: u128) -> BodyShare {
        BodyShare { budget: self.clone(), client, permit: None }
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.all.available_permits() * BUDGET_UNIT
    }
}

impl OfClient {
    /// Nothing that panics is done while this lock is held.
    fn guard(&self) -> MutexGuard<'_, HashMap<u128, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, client: u128, units: usize) -> bool {
        let mut all = self.guard();
        let had = all.get(&client).copied().unwrap_or(0);
        let is_within = had + units <= self.most;
        if is_within {
            all.insert(client, had + units);
        }
        is_within
    }

    fn give_back(&self, client: u128, units: usize) {
        let mut all = self.guard();
        if let Some(had) = all.get_mut(&client) {
            *had = had.saturating_sub(units);
            if *had == 0 {
                all.remove(&client);
            }
        }
    }
}

impl BodyShare {
    /// Sees to it that it is enough for so many bytes.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), Problem> {
        let has = self.units();
        let more = bytes.div_ceil(BUDGET_UNIT).saturating_sub(has);
        if more == 0 {
            return Ok(());
        }
        let of_client = self.budget.of_client.as_ref();
        if of_client.is_some_and(|of_client| !of_client.take(self.client, more)) {
            return Err(Problem::new(
                Kind::Busy,
                "Your request bodies take all the memory that they may; send one after the other.",
            ));
        }
        let units = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(permit) = self.budget.all.clone().try_acquire_many_owned(units) else {
            if let Some(of_client) = of_client {
                of_client.give_back(self.client, more);
            }
            return Err(Problem::new(
                Kind::Busy,
                "Request bodies take all the memory they may; try again.",
            ));
        };
        match &mut self.permit {
            Some(permits) => permits.merge(permit),
            None => self.permit = Some(permit),
        }
        Ok(())
    }

    fn units(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        if let Some(of_client) = &self.budget.of_client {
            of_client.give_back(self.client, self.units());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_its_share_of_the_memory_and_leaves_the_rest_to_others() {
        let budget = BodyBudget::with_share(4 * BUDGET_UNIT, 2 * BUDGET_UNIT);
        let refused = |held: &mut BodyShare, bytes| held.grow_to(bytes).err().map(|p| p.kind());
        let (mut one, mut more) = (budget.begin(1), budget.begin(1));
        assert!(one.grow_to(1).is_ok() && one.grow_to(BUDGET_UNIT).is_ok());
        assert!(more.grow_to(BUDGET_UNIT).is_ok());
        assert_eq!(refused(&mut one, BUDGET_UNIT + 1), Some(Kind::Busy));
        let mut other = budget.begin(2);
        assert!(other.grow_to(2 * BUDGET_UNIT).is_ok());
        // What is over for all takes nothing of the client's share.
        assert_eq!(refused(&mut budget.begin(3), 1), Some(Kind::Busy));
        drop(more);
        assert!(budget.begin(3).grow_to(1).is_ok());
        assert!(one.grow_to(2 * BUDGET_UNIT).is_ok());
        drop((one, other));
        assert_eq!(budget.left(), 4 * BUDGET_UNIT);
        assert!(budget.of_client.as_ref().is_some_and(|of| of.guard().is_empty()));
    }
}
