//! Reading bodies from the wire: small ones into memory, larger ones into files,
//! both bounded as a whole.
//!
//! Small bodies are read at once. One over [`SMALL`] is kept in memory while its share
//! of [`MIDDLING_BODIES`] is free, or else in a file, where it waits to be compared as
//! well. One over [`IN_MEMORY`] waits until its share of [`LARGE_BODIES`] is free.
//! Each keeps its share until the body is let go, decoding mostly included (its buffer
//! is then that of another one of its size, and [`SPARE`] bytes of such wait): a hundred
//! origins that send without end take no more of the disk than a few, and next to
//! nothing of the memory.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::FetchError;
use super::failure::Limits;
use super::spool::{Growing, IN_MEMORY, WireBody};

/// Bytes of all bodies over [`IN_MEMORY`] on the disk together. One body alone may
/// have more if its own limit says so; it is then the only one.
pub(super) const LARGE_BODIES: usize = 1024 * 1024 * 1024;

/// Bytes of all bodies in memory together, without small ones.
pub(super) const MIDDLING_BODIES: usize = 8 * 1024 * 1024;

/// Bytes that a body may have in memory, however many others there are.
const SMALL: usize = 32 * 1024;

/// Bytes of buffers that wait for the next body, at most. Memory that is taken anew
/// for each is filled with zeros first, a page at a time.
const SPARE: usize = 4 * 1024 * 1024;

/// The unit in which room is given: a permit.
const ROOM_UNIT: usize = 64 * 1024;

/// Bytes of a large body written to its file at once.
const PIECE: usize = 256 * 1024;

/// Bytes of a body that nobody wants (a redirect's, a refusal's) read so that
/// its connection can be used again, and how long that may take.
const MAX_UNWANTED_BYTES: u64 = 16 * 1024;
const MAX_UNWANTED_TIME: Duration = Duration::from_secs(2);

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

/// The bytes of a body in memory.
struct Buffer {
    bytes: Vec<u8>,
    used: Arc<Used>,
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
        self.used.put(std::mem::take(&mut self.bytes));
    }
}

/// A body being read.
pub(super) struct Body {
    response: Response,
    /// What was read and is in no file.
    read: Vec<u8>,
    /// Its share of the room in memory.
    share: Option<OwnedSemaphorePermit>,
    /// Where its buffer goes, if it is one of those.
    used: Option<Arc<Used>>,
    /// There could be no file for it: it stays in memory while it may.
    stays: bool,
    file: Option<Growing>,
    total: usize,
    max: usize,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Whole,
    Cut,
}

impl Room {
    /// Room for so many bytes of large bodies.
    pub(super) fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(ROOM_UNIT).max(1);
        Self { free: Arc::new(Semaphore::new(units)), units, used: Arc::default() }
    }

    /// Adds room for so many bytes to a share, if there is any now.
    fn extend(&self, share: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
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

    /// Waits for room for a body that may have so many bytes.
    pub(super) async fn wait(
        &self,
        bytes: usize,
        patience: Duration,
    ) -> Result<OwnedSemaphorePermit, FetchError> {
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT).clamp(1, self.units));
        let waiting = self.free.clone().acquire_many_owned(units.unwrap_or(u32::MAX));
        match tokio::time::timeout(patience, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(FetchError::Timeout(format!(
                "no room for a body of up to {bytes} bytes within {patience:?} (large bodies have {LARGE_BODIES} bytes together)"
            ))),
        }
    }
}

impl Body {
    /// A body of which nothing is read yet, and the limit on its bytes.
    pub(super) fn new(response: Response, max_wire_bytes: u64) -> Self {
        let max = usize::try_from(max_wire_bytes).unwrap_or(usize::MAX);
        let (read, share, used, file, stays) = (Vec::new(), None, None, None, false);
        Self { response, read, share, used, stays, file, total: 0, max, state: State::Reading }
    }

    /// Reads as much as there may be of it in memory: there, if it has room, or else
    /// into a file without a name in this folder.
    pub(super) async fn read_start(
        &mut self,
        memory: &Room,
        folder: &Path,
        limits: &Limits,
    ) -> Result<(), FetchError> {
        // All at once where the origin says how much it is: growing would take up to
        // twice of it, and many bodies wait to be read.
        let claimed = self.claimed().map_or(0, |bytes| bytes.min(self.max));
        let claimed = if claimed <= IN_MEMORY { claimed } else { 0 };
        if self.may_have(claimed, memory) {
            if claimed > SMALL {
                self.read = memory.used.take(claimed);
                self.used = Some(Arc::clone(&memory.used));
            } else {
                self.read.reserve_exact(claimed);
            }
        }
        while self.state == State::Reading && self.total < IN_MEMORY {
            let is_out = match self.file {
                Some(_) => self.read.len() >= 2 * SMALL,
                None => !self.stays && !self.may_have(claimed.max(self.read.len()), memory),
            };
            if is_out && self.read.len() >= SMALL {
                match self.write_out(folder).await {
                    // Nothing of it is lost, and none is better off if it is not read.
                    Err(_) if !self.read.is_empty() => self.stays = true,
                    written => written?,
                }
            }
            self.read_chunk(limits).await?;
        }
        // A large one may wait long for room on the disk, and needs none here meanwhile.
        if self.file.is_some() || self.state == State::Reading {
            self.write_out(folder).await?;
        }
        Ok(())
    }

    /// May it have so many bytes in memory?
    fn may_have(&mut self, bytes: usize, memory: &Room) -> bool {
        bytes <= SMALL || memory.extend(&mut self.share, bytes)
    }

    /// Reads the rest into a file without a name in this folder.
    pub(super) async fn read_rest(
        &mut self,
        folder: &Path,
        limits: &Limits,
    ) -> Result<(), FetchError> {
        while self.state == State::Reading {
            if self.read.len() >= PIECE {
                self.write_out(folder).await?;
            }
            self.read_chunk(limits).await?;
        }
        self.write_out(folder).await
    }

    async fn read_chunk(&mut self, limits: &Limits) -> Result<(), FetchError> {
        let chunk = match self.response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                self.state = State::Whole;
                return Ok(());
            }
            Err(error) => return Err(limits.explain_body(error, self.total)),
        };
        let room = self.max - self.total;
        if chunk.len() > room {
            self.state = State::Cut;
        }
        let taken = room.min(chunk.len());
        self.read.extend_from_slice(&chunk[..taken]);
        self.total += taken;
        Ok(())
    }

    /// Writes what was read into the file. Where there can be none, what was read stays.
    async fn write_out(&mut self, folder: &Path) -> Result<(), FetchError> {
        let (file, bytes) = (self.file.take(), std::mem::take(&mut self.read));
        let folder = folder.to_owned();
        let writing = tokio::task::spawn_blocking(move || match file {
            Some(mut file) => (file.write(&bytes).map(|()| file), Vec::new()),
            None => match Growing::new(&folder, &bytes) {
                Ok(file) => (Ok(file), Vec::new()),
                failed => (failed, bytes),
            },
        });
        let (written, left) =
            writing.await.unwrap_or_else(|error| (Err(std::io::Error::other(error)), Vec::new()));
        self.read = left;
        let file = written.map_err(|error| {
            FetchError::NotKept(format!(
                "no file for a body of {} bytes and more: {error}",
                self.total
            ))
        })?;
        self.file = Some(file);
        self.share = None;
        Ok(())
    }

    /// Bytes that it may have in the end, if it needs room; `Content-Length`
    /// binds the origin, since hyper reads no byte more.
    pub(super) fn needs_room(&self) -> Option<usize> {
        let claimed = self.claimed().map_or(usize::MAX, |n| n.saturating_add(self.total));
        (self.state == State::Reading).then(|| claimed.min(self.max))
    }

    /// Bytes that are still to come, by its headers.
    fn claimed(&self) -> Option<usize> {
        self.response.content_length().and_then(|n| usize::try_from(n).ok())
    }

    /// The bytes, and whether they were cut at the limit. With the response the
    /// connection goes, if anything in it is unread. The room is given back
    /// with the last clone of the body.
    pub(super) fn finish(self, room: Option<OwnedSemaphorePermit>) -> (WireBody, bool) {
        let body = if let Some(file) = self.file {
            file.finish(room)
        } else {
            let bytes = match self.used {
                Some(used) => Bytes::from_owner(Buffer { bytes: self.read, used }),
                None => self.read.into(),
            };
            WireBody::of_memory(bytes, self.share)
        };
        (body, self.state == State::Cut)
    }
}

/// Reads the small body of an answer that is not a document, so that its
/// connection can be used again; a large or slow one is dropped. Says how much
/// was read.
pub(super) async fn drain(mut response: Response) -> u64 {
    let mut read = 0;
    let reading = async {
        while read <= MAX_UNWANTED_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            read += chunk.len() as u64;
        }
    };
    // Too slow is as good as too large: the connection goes with the response.
    let _ = tokio::time::timeout(MAX_UNWANTED_TIME, reading).await;
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn room_comes_back_with_the_last_clone_of_the_body() {
        let room = Room::new(4 * ROOM_UNIT);
        let permit = room.wait(3 * ROOM_UNIT, SOON).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let body = Growing::new(folder.path(), &[1; 10]).unwrap().finish(Some(permit));
        let part = body.clone();
        drop(body);
        let error = room.wait(2 * ROOM_UNIT, SOON).await.unwrap_err().to_string();
        assert!(error.contains("no room for a body of up to 131072 bytes"), "{error}");
        assert_eq!(part.len(), 10);
        drop(part);
        assert!(room.wait(4 * ROOM_UNIT, SOON).await.is_ok());
    }

    #[test]
    fn the_buffer_of_a_body_that_was_let_go_of_is_that_of_the_next() {
        let used = Arc::<Used>::default();
        let body = |bytes: usize| {
            let mut buffer = used.take(bytes);
            buffer.resize(bytes, 7);
            Bytes::from_owner(Buffer { bytes: buffer, used: Arc::clone(&used) })
        };
        let first = body(900_000);
        let place = first.as_ptr();
        let part = first.slice(..10);
        drop(first);
        assert!(used.lock().is_empty(), "a part of it is still used");
        drop(part);
        let second = body(901_000);
        assert_eq!((second.as_ptr(), second.len()), (place, 901_000));
        drop(second);
        assert_eq!(used.take(40_000).capacity(), ROOM_UNIT, "no more than its share");
        // Only so much is kept, and the latest.
        drop((0..6).map(|_| body(1_000_000)).collect::<Vec<_>>());
        let sizes: Vec<usize> = used.lock().iter().map(Vec::capacity).collect();
        assert_eq!(sizes, [IN_MEMORY; SPARE / IN_MEMORY]);
    }

    #[tokio::test]
    async fn a_body_larger_than_all_room_gets_all_of_it() {
        let room = Room::new(4 * ROOM_UNIT);
        let permit = room.wait(usize::MAX, SOON).await.unwrap();
        assert!(room.wait(1, SOON).await.is_err());
        drop(permit);
        assert!(room.wait(1, SOON).await.is_ok());
    }
}
