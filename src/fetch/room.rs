//! Room for bodies: how many bytes of them there may be at once, and the buffers that
//! those in memory had.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::spool::IN_MEMORY;

/// Bytes of all bodies over [`IN_MEMORY`] on the disk together. One body alone may
/// have more if its own limit says so; it is then the only one.
pub(super) const LARGE_BODIES: usize = 1024 * 1024 * 1024;

/// Bytes of all bodies in memory together, without small ones.
pub(super) const MIDDLING_BODIES: usize = 8 * 1024 * 1024;

/// Bytes of buffers that wait for the next body, at most. Memory that is taken anew
/// for each is filled with zeros first, a page at a time.
const SPARE: usize = 4 * 1024 * 1024;

/// The unit in which room is given: a permit.
const ROOM_UNIT: usize = 64 * 1024;

/// Room for bodies. Cheap to clone.
#[derive(Clone)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    units: usize,
    used: Arc<Used>,
}

/// Buffers of bodies that were let go of, the latest at the end.
#[derive(Default)]
struct Used(Mutex<VecDeque<Vec<u8>>>);

/// The bytes of a body in memory; where they were is used again once they are let go of.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    used: Option<Arc<Used>>,
}

impl Used {
    /// An empty one for so many bytes, which is no larger than their share of the room.
    fn take(&self, bytes: usize) -> Vec<u8> {
        let size = bytes.next_multiple_of(ROOM_UNIT);
        let mut spare = self.lock();
        let place = spare.iter().rposition(|buffer| buffer.capacity() == size);
        let found = place.and_then(|at| spare.remove(at));
        drop(spare);
        found.unwrap_or_else(|| Vec::with_capacity(size))
    }

    /// Keeps one for the next body of its size; those that wait longest make room.
    fn put(&self, mut buffer: Vec<u8>) {
        let size = buffer.capacity();
        if size > IN_MEMORY || !size.is_multiple_of(ROOM_UNIT) {
            return;
        }
        buffer.clear();
        let mut spare = self.lock();
        let mut kept: usize = spare.iter().map(Vec::capacity).sum();
        while kept + size > SPARE {
            let Some(oldest) = spare.pop_front() else { break };
            kept -= oldest.capacity();
        }
        spare.push_back(buffer);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        // A panic never happens while it is held, so poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(used) = &self.used {
            used.put(std::mem::take(&mut self.bytes));
        }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Room {
    /// Room for so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(ROOM_UNIT).max(1);
        Self { free: Arc::new(Semaphore::new(units)), units, used: Arc::default() }
    }

    /// An empty buffer for so many bytes, which is no larger than their share.
    pub(super) fn buffer(&self, bytes: usize) -> Buffer {
        Buffer { bytes: self.used.take(bytes), used: Some(Arc::clone(&self.used)) }
    }

    /// Adds room for so many bytes to a share, if there is any now.
    pub(super) fn extend(&self, share: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let has = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let lacks = bytes.div_ceil(ROOM_UNIT).saturating_sub(has);
        let lacks = u32::try_from(lacks).unwrap_or(u32::MAX);
        let Ok(more) = self.free.clone().try_acquire_many_owned(lacks) else { return false };
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        true
    }

    /// Gives back what of a share is more than so many bytes take.
    pub(super) fn shrink(share: &mut Option<OwnedSemaphorePermit>, bytes: usize) {
        if let Some(share) = share {
            let more = share.num_permits().saturating_sub(bytes.div_ceil(ROOM_UNIT));
            drop(share.split(more));
        }
    }

    /// Waits for room for a body that may have so many bytes; none where there is none
    /// within that time.
    pub(super) async fn wait(
        &self,
        bytes: usize,
        patience: Duration,
    ) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT).clamp(1, self.units));
        let waiting = self.free.clone().acquire_many_owned(units.unwrap_or(u32::MAX));
        tokio::time::timeout(patience, waiting).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::spool::{Growing, WireHash};
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn room_comes_back_with_the_last_clone_of_the_body() {
        let room = Room::new(4 * ROOM_UNIT);
        let permit = room.wait(3 * ROOM_UNIT, SOON).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let growing = Growing::new(folder.path(), &[1; 10]).unwrap();
        let body = growing.finish(&WireHash::new(), Some(permit));
        let part = body.clone();
        drop(body);
        assert!(room.wait(2 * ROOM_UNIT, SOON).await.is_none());
        assert_eq!(part.len(), 10);
        drop(part);
        assert!(room.wait(4 * ROOM_UNIT, SOON).await.is_some());
    }

    #[test]
    fn the_buffer_of_a_body_that_was_let_go_of_is_that_of_the_next() {
        let room = Room::new(ROOM_UNIT);
        let body = |bytes: usize| {
            let mut buffer = room.buffer(bytes);
            buffer.resize(bytes, 7);
            Bytes::from_owner(buffer)
        };
        let used = &room.used;
        let first = body(900_000);
        let place = first.as_ptr();
        let part = first.slice(..10);
        drop(first);
        assert!(used.lock().is_empty(), "a part of it is still used");
        drop(part);
        let second = body(901_000);
        assert_eq!((second.as_ptr(), second.len()), (place, 901_000));
        drop(second);
        assert_eq!(room.buffer(40_000).capacity(), ROOM_UNIT, "no more than its share");
        // Only so much is kept, and the latest.
        drop((0..6).map(|_| body(1_000_000)).collect::<Vec<_>>());
        let sizes: Vec<usize> = used.lock().iter().map(Vec::capacity).collect();
        assert_eq!(sizes, [IN_MEMORY; SPARE / IN_MEMORY]);
    }

    #[test]
    fn a_share_grows_while_there_is_room_and_gives_back_what_it_does_not_need() {
        let room = Room::new(4 * ROOM_UNIT);
        let (mut one, mut other) = (None, None);
        assert!(room.extend(&mut one, 3 * ROOM_UNIT) && room.extend(&mut one, 1));
        assert!(!room.extend(&mut other, 2 * ROOM_UNIT) && other.is_none());
        Room::shrink(&mut one, ROOM_UNIT + 1);
        assert!(room.extend(&mut other, 2 * ROOM_UNIT) && !room.extend(&mut one, 3 * ROOM_UNIT));
        Room::shrink(&mut one, 4 * ROOM_UNIT);
        assert_eq!(one.unwrap().num_permits(), 2);
    }

    #[tokio::test]
    async fn a_body_larger_than_all_room_gets_all_of_it() {
        let room = Room::new(4 * ROOM_UNIT);
        let permit = room.wait(usize::MAX, SOON).await.unwrap();
        assert!(room.wait(1, SOON).await.is_none());
        drop(permit);
        assert!(room.wait(1, SOON).await.is_some());
    }
}
