//! Reading bodies from the wire into memory that is bounded as a whole.
//!
//! Small bodies are read at once. A larger one waits until its share of
//! [`LARGE_BODIES`] is free and keeps it until the last reader of its bytes is
//! done, decoding included: a hundred origins that send without end cost no
//! more memory than a few.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::FetchError;
use super::failure::Limits;

/// Bytes of a body that are read without asking for room.
pub(super) const SMALL_BODY: usize = 1024 * 1024;

/// Bytes of all larger bodies in memory together. One body alone may have more
/// if its own limit says so; it is then the only one.
pub(super) const LARGE_BODIES: usize = 192 * 1024 * 1024;

/// The unit in which room is given: a permit.
const ROOM_UNIT: usize = 64 * 1024;

/// Bytes of a body that nobody wants (a redirect's, a refusal's) read so that
/// its connection can be used again, and how long that may take.
const MAX_UNWANTED_BYTES: u64 = 16 * 1024;
const MAX_UNWANTED_TIME: Duration = Duration::from_secs(2);

/// Room for large bodies. Cheap to clone.
#[derive(Clone)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    units: usize,
}

/// A share of the room, given back on drop.
struct Share {
    body: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// A body being read.
pub(super) struct Body {
    response: Response,
    read: Vec<u8>,
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
        Self { free: Arc::new(Semaphore::new(units)), units }
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
        Self { response, read: Vec::new(), max, state: State::Reading }
    }

    /// Reads until all is there, the limit is reached, or this much is read.
    pub(super) async fn read_up_to(
        &mut self,
        enough: usize,
        limits: &Limits,
    ) -> Result<(), FetchError> {
        while self.state == State::Reading && self.read.len() < enough {
            let chunk = match self.response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    self.state = State::Whole;
                    break;
                }
                Err(error) => return Err(limits.explain_body(error, self.read.len())),
            };
            let room = self.max - self.read.len();
            if chunk.len() > room {
                self.state = State::Cut;
            }
            self.read.extend_from_slice(&chunk[..room.min(chunk.len())]);
        }
        Ok(())
    }

    /// Bytes that it may have in the end, if it needs room; `Content-Length`
    /// binds the origin, since hyper reads no byte more.
    pub(super) fn needs_room(&self) -> Option<usize> {
        // The response counts what is still to come.
        let to_come = self.response.content_length().and_then(|n| usize::try_from(n).ok());
        let claimed = to_come.map_or(usize::MAX, |n| n.saturating_add(self.read.len()));
        (self.state == State::Reading).then(|| claimed.min(self.max))
    }

    /// The bytes, and whether they were cut at the limit. With the response the
    /// connection goes, if anything in it is unread. The room is given back
    /// with the last clone of the bytes.
    pub(super) fn finish(self, room: Option<OwnedSemaphorePermit>) -> (Bytes, bool) {
        let bytes = match room {
            Some(permit) => Bytes::from_owner(Share { body: self.read, _permit: permit }),
            None => Bytes::from(self.read),
        };
        (bytes, self.state == State::Cut)
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
    async fn room_comes_back_with_the_last_clone_of_the_bytes() {
        let room = Room::new(4 * ROOM_UNIT);
        let permit = room.wait(3 * ROOM_UNIT, SOON).await.unwrap();
        let bytes = Bytes::from_owner(Share { body: vec![1; 10], _permit: permit });
        let part = bytes.slice(2..4);
        drop(bytes);
        let error = room.wait(2 * ROOM_UNIT, SOON).await.unwrap_err().to_string();
        assert!(error.contains("no room for a body of up to 131072 bytes"), "{error}");
        assert_eq!(&part[..], [1, 1]);
        drop(part);
        assert!(room.wait(4 * ROOM_UNIT, SOON).await.is_ok());
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
