//! A map of what can be made anew at any time: it holds so many things at most,
//! and so many bytes, since a stranger decides how large one of them is.
//!
//! Who puts something in says what it takes. What would be too much makes it
//! forget all that it holds; the newest is held whatever it takes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

/// See the module.
#[derive(Debug)]
pub(crate) struct Bounded<K, V, S = RandomState> {
    things: HashMap<K, (V, usize), S>,
    bytes: usize,
    most_things: usize,
    most_bytes: usize,
}

impl<K: Hash + Eq, V, S: BuildHasher + Default> Bounded<K, V, S> {
    /// An empty one with these limits.
    pub(crate) fn new(most_things: usize, most_bytes: usize) -> Self {
        Self { things: HashMap::default(), bytes: 0, most_things, most_bytes }
    }

    /// What is held under a key.
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.things.get(key).map(|(thing, _)| thing)
    }

    /// Holds something that takes so many bytes.
    pub(crate) fn insert(&mut self, key: K, thing: V, bytes: usize) {
        self.remove(&key);
        if self.things.len() >= self.most_things || self.bytes + bytes > self.most_bytes {
            self.things.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.things.insert(key, (thing, bytes));
    }

    /// Lets go of what is held under a key.
    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some((_, bytes)) = self.things.remove(key) {
            self.bytes -= bytes;
        }
    }

    /// Bytes that it holds, as those said who put them in.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_no_more_things_and_no_more_bytes_than_it_may() {
        let mut map: Bounded<u32, u32> = Bounded::new(3, 100);
        let steps = [
            // Key, bytes, and then: bytes held, and which keys.
            (1, 40, 40, vec![1]),
            (2, 40, 80, vec![1, 2]),
            (1, 10, 50, vec![1, 2]),
            (3, 50, 100, vec![1, 2, 3]),
            (3, 49, 99, vec![1, 2, 3]),
            (4, 0, 0, vec![4]),
            (5, 99, 99, vec![4, 5]),
            (6, 2, 2, vec![6]),
            (7, 500, 500, vec![7]),
            (8, 1, 1, vec![8]),
        ];
        for (key, takes, bytes, keys) in steps {
            map.insert(key, key, takes);
            let held: Vec<_> = (0..10).filter(|key| map.get(key) == Some(key)).collect();
            assert_eq!((map.bytes(), held), (bytes, keys), "{key}");
        }
        map.remove(&8);
        assert_eq!((map.bytes(), map.get(&8)), (0, None));
    }
}
