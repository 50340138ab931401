//! Locks by name: of those who come with one name, one goes on at a time.
//!
//! A name is forgotten some time after nobody holds or waits for its lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Names remembered before those that nobody holds are dropped.
const MANY: usize = 4_096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    by_name: StdMutex<HashMap<String, Weak<Mutex<()>>>>,
}

/// See [`Locks::place`]; others may have it once it is dropped.
#[derive(Debug)]
pub(crate) struct Place(#[allow(dead_code, reason = "it counts while it is there")] Arc<Mutex<()>>);

impl Locks {
    /// The lock of a name, once nobody else holds it; those who wait get it in
    /// their turn.
    pub(crate) async fn take(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = self.of(name);
        lock.lock_owned().await
    }

    /// The lock of a name, where nobody holds it just now.
    pub(crate) fn try_take(&self, name: &str) -> Option<OwnedMutexGuard<()>> {
        self.of(name).try_lock_owned().ok()
    }

    /// A place among those who come with a name, where fewer than so many have one;
    /// `Err` says how many do.
    pub(crate) fn place(&self, name: &str, most: usize) -> Result<Place, usize> {
        let place = self.of(name);
        let others = Arc::strong_count(&place) - 1;
        if others < most { Ok(Place(place)) } else { Err(others) }
    }

    fn of(&self, name: &str) -> Arc<Mutex<()>> {
        let mut by_name = self.guard();
        if let Some(lock) = by_name.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        if by_name.len() >= MANY {
            by_name.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(Mutex::new(()));
        by_name.insert(name.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// A panic never happens while this lock is held, so poison means nothing.
    fn guard(&self) -> MutexGuard<'_, HashMap<String, Weak<Mutex<()>>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_has_the_lock_of_a_name_and_names_are_forgotten() {
        let locks = Locks::default();
        let held = locks.take("a").await;
        assert!(locks.try_take("a").is_none());
        assert!(locks.try_take("b").is_some());
        for n in 0..3 * MANY {
            drop(locks.take(&n.to_string()).await);
        }
        assert!(locks.guard().len() <= MANY);
        assert!(locks.of("a").try_lock_owned().is_err(), "one that is held is not");
        drop(held);
        assert!(locks.of("a").try_lock_owned().is_ok());
    }

    #[test]
    fn only_so_many_have_a_place_at_one_name() {
        let locks = Locks::default();
        let one = locks.place("a", 2).unwrap();
        let two = locks.place("a", 2).unwrap();
        assert_eq!(locks.place("a", 2).unwrap_err(), 2);
        assert!(locks.place("b", 2).is_ok() && locks.place("a", usize::MAX).is_ok());
        drop(one);
        assert!(locks.place("a", 2).is_ok());
        drop(two);
    }
}
