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

impl Locks {
    /// The lock of a name, once nobody else holds it; those who wait get it in
    /// their turn.
    pub(crate) async fn take(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = self.of(name);
        lock.lock_owned().await
    }

    /// The same, where fewer than so many hold it or wait for it.
    pub(crate) async fn take_among(&self, name: &str, most: usize) -> Option<OwnedMutexGuard<()>> {
        let lock = self.of(name);
        // Each of them has one, and so have we.
        if Arc::strong_count(&lock) > most {
            return None;
        }
        Some(lock.lock_owned().await)
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
        assert!(locks.of("a").try_lock_owned().is_err());
        assert!(locks.of("b").try_lock_owned().is_ok());
        for n in 0..3 * MANY {
            drop(locks.take(&n.to_string()).await);
        }
        assert!(locks.guard().len() <= MANY);
        assert!(locks.of("a").try_lock_owned().is_err(), "one that is held is not");
        drop(held);
        assert!(locks.of("a").try_lock_owned().is_ok());
    }

    #[tokio::test]
    async fn only_so_many_wait_for_one_name() {
        let locks = Locks::default();
        let held = locks.take_among("a", 2).await.unwrap();
        let waiting = locks.take_among("a", 2);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert!(locks.take_among("a", 2).await.is_none());
        assert!(locks.take_among("b", 2).await.is_some());
        drop(held);
        let next = waiting.await.unwrap();
        drop(next);
        assert!(locks.take_among("a", 1).await.is_some());
    }
}
