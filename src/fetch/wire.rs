//! Reading bodies from the wire: small ones into memory, larger ones into files,
//! both bounded as a whole.
//!
//! Small bodies are read at once. One over [`SMALL`] is kept in memory where its share
//! of [`MIDDLING_BODIES`] is free, or is so within [`MOMENT`] if it says how long it is,
//! or else in a file, where it waits to be compared as well. One over [`IN_MEMORY`] waits
//! until its share of [`LARGE_BODIES`] is free.
//! Each keeps its share until the body is let go, decoding mostly included: a hundred
//! origins that send without end take no more of the disk than a few, and next to
//! nothing of the memory.
//!
//! One whose hash is that of last time is let go of as soon as all of it has come. While
//! it may be that one, and comes in few pieces and within [`MOMENT`], it stays in these:
//! to copy them together costs more than all else that is done with it.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::failure::Limits;
use super::room::{Buffer, Room};
#[cfg(doc)]
use super::room::{LARGE_BODIES, MIDDLING_BODIES};
use super::spool::{Growing, IN_MEMORY, WireBody, WireHash};
use super::{FetchError, Request};

/// Bytes that a body may have in memory, however many others there are.
const SMALL: usize = 32 * 1024;

/// Memory that a piece of a body keeps while it is as it came: of most the largest buffer
/// that hyper reads HTTP/1.1 into, if no other is asked for. The first one may keep up to
/// 256 KiB more, of the body before on its connection.
const READ_BUFFER: usize = 408 * 1024;

/// A body that may be one that is known is kept in pieces from so many bytes on: that of
/// a smaller one is copied in no time.
const IN_PIECES: usize = 256 * 1024;

/// A body waits so long for memory before it goes into a file, and stays in pieces, which
/// take more: many are only compared with what they were, and then let go of at once.
const MOMENT: Duration = Duration::from_millis(100);

/// Bytes of a large body written to its file at once.
const PIECE: usize = 256 * 1024;

/// Bytes of a body that nobody wants (a redirect's, a refusal's) read so that
/// its connection can be used again, and how long that may take.
const MAX_UNWANTED_BYTES: u64 = 16 * 1024;
const MAX_UNWANTED_TIME: Duration = Duration::from_secs(2);

/// A body being read.
pub(super) struct Body {
    response: Response,
    /// The hash of one that need not be kept.
    known: Option<u128>,
    /// What was read, as it came, while it may be the one that is known.
    pieces: Vec<Bytes>,
    /// So many of them have room, until then.
    most_pieces: usize,
    gathered_at: Instant,
    /// What was read and is in no file.
    read: Buffer,
    /// Room for bodies in memory.
    memory: Room,
    /// Its share of that.
    share: Option<OwnedSemaphorePermit>,
    /// How long it will be, if it says so and may be in memory.
    whole: usize,
    /// There could be no file for it: it stays in memory while it may.
    stays: bool,
    file: Option<Growing>,
    hash: WireHash,
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

impl Body {
    /// A body of which nothing is read yet.
    pub(super) fn new(response: Response, request: &Request, memory: &Room) -> Self {
        Self {
            response,
            known: request.known,
            pieces: Vec::new(),
            most_pieces: 0,
            gathered_at: Instant::now(),
            read: Buffer::default(),
            memory: memory.clone(),
            share: None,
            whole: 0,
            stays: false,
            file: None,
            hash: WireHash::new(),
            total: 0,
            max: usize::try_from(request.max_wire_bytes).unwrap_or(usize::MAX),
            state: State::Reading,
        }
    }

    /// Room in memory for all of it at once where the origin says how much it is: growing
    /// would take up to twice of it, and many bodies wait to be read. Waits for it a moment.
    pub(super) async fn make_room(&mut self) {
        let claimed = self.claimed().unwrap_or(0);
        self.whole = Some(claimed.min(self.max)).filter(|n| *n <= IN_MEMORY).unwrap_or(0);
        if self.whole <= SMALL {
            self.read.reserve_exact(self.whole);
            return;
        }
        // One of a mebibyte is large until its end has been seen.
        let may_be_known = self.known.is_some()
            && claimed <= self.max
            && (IN_PIECES..IN_MEMORY).contains(&self.whole);
        let pieces = if may_be_known { 2 * self.whole / READ_BUFFER + 1 } else { 0 };
        let bytes = self.whole.max(pieces * READ_BUFFER);
        let mut has_it = self.may_have(bytes);
        if !has_it && !self.may_have(self.whole) {
            // Many of the others are only compared, and let go of at once.
            self.share = self.memory.wait(bytes, MOMENT).await;
            has_it = self.share.is_some();
        }
        if has_it && pieces > 0 {
            (self.most_pieces, self.gathered_at) = (pieces, Instant::now() + MOMENT);
        } else if self.may_have(self.whole) {
            self.read = self.memory.buffer(self.whole);
        }
    }

    /// Reads as much as there may be of it in memory: there, if it has room, or else
    /// into a file without a name in this folder.
    pub(super) async fn read_start(
        &mut self,
        folder: &Path,
        limits: &Limits,
    ) -> Result<(), FetchError> {
        while self.state == State::Reading && self.total < IN_MEMORY {
            let is_out = match self.file {
                Some(_) => self.read.len() >= 2 * SMALL,
                None => !self.stays && !self.may_have(self.whole.max(self.read.len())),
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
        if self.is_known() {
            return Ok(());
        }
        self.gather();
        // A large one may wait long for room on the disk, and needs none here meanwhile.
        if self.file.is_some() || self.state == State::Reading {
            self.write_out(folder).await?;
        }
        Ok(())
    }

    /// May it have so many bytes in memory?
    fn may_have(&mut self, bytes: usize) -> bool {
        bytes <= SMALL || self.memory.extend(&mut self.share, bytes)
    }

    /// Copies the pieces into one buffer: it is not the one that is known, it is slow, or
    /// they are too many, as records of TLS and frames of HTTP/2 are, of 16 KiB as a rule.
    fn gather(&mut self) {
        if std::mem::take(&mut self.most_pieces) == 0 {
            return;
        }
        self.read = self.memory.buffer(self.whole);
        for piece in std::mem::take(&mut self.pieces) {
            self.read.extend_from_slice(&piece);
        }
        Room::shrink(&mut self.share, self.whole);
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

    /// What comes next; pieces do not wait for it longer than they may.
    async fn next_chunk(&mut self) -> reqwest::Result<Option<Bytes>> {
        if self.most_pieces > 0 {
            match tokio::time::timeout_at(self.gathered_at, self.response.chunk()).await {
                Ok(came) => return came,
                Err(_) => self.gather(),
            }
        }
        self.response.chunk().await
    }

    async fn read_chunk(&mut self, limits: &Limits) -> Result<(), FetchError> {
        let chunk = match self.next_chunk().await {
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
        let piece = chunk.slice(..room.min(chunk.len()));
        self.total += piece.len();
        self.hash.update(&piece);
        if self.pieces.len() < self.most_pieces {
            self.pieces.push(piece);
        } else {
            self.gather();
            self.read.extend_from_slice(&piece);
        }
        Ok(())
    }

    /// Writes what was read into the file. Where there can be none, what was read stays.
    async fn write_out(&mut self, folder: &Path) -> Result<(), FetchError> {
        let (file, bytes) = (self.file.take(), std::mem::take(&mut self.read));
        let folder = folder.to_owned();
        let writing = tokio::task::spawn_blocking(move || match file {
            Some(mut file) => (file.write(&bytes).map(|()| file), Buffer::default()),
            None => match Growing::new(&folder, &bytes) {
                Ok(file) => (Ok(file), Buffer::default()),
                failed => (failed, bytes),
            },
        });
        let (written, left) = writing
            .await
            .unwrap_or_else(|error| (Err(std::io::Error::other(error)), Buffer::default()));
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

    /// Bytes read so far.
    pub(super) fn len(&self) -> u64 {
        self.total as u64
    }

    fn is_known(&self) -> bool {
        self.state == State::Whole && self.known.is_some_and(|known| known == self.hash.digest())
    }

    /// The bytes, and whether they were cut at the limit; `None` where they are those
    /// that are known. With the response the connection goes, if anything in it is
    /// unread. The room is given back with the last clone of the body.
    pub(super) fn finish(self, room: Option<OwnedSemaphorePermit>) -> Option<(WireBody, bool)> {
        if self.is_known() {
            return None;
        }
        let body = if let Some(file) = self.file {
            file.finish(&self.hash, room)
        } else {
            WireBody::of_memory(Bytes::from_owner(self.read), &self.hash, self.share)
        };
        Some((body, self.state == State::Cut))
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
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use hyper::body::{Frame, SizeHint};
    use tokio::time::Sleep;

    use super::*;
    use crate::fetch::Validators;

    const LONG: usize = 600_000;

    fn limits() -> Limits {
        let second = Duration::from_secs(1);
        Limits { connect: second, read: second, total: second }
    }

    /// Pieces of a body of which the origin says how long it is, each after a while.
    struct Pieces(VecDeque<(Duration, Bytes)>, Option<Pin<Box<Sleep>>>);

    impl hyper::body::Body for Pieces {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
            let Some((after, _)) = self.0.front() else { return Poll::Ready(None) };
            let after = *after;
            let sleep = self.1.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
            ready!(sleep.as_mut().poll(cx));
            self.1 = None;
            Poll::Ready(self.0.pop_front().map(|(_, piece)| Ok(Frame::data(piece))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.iter().map(|(_, piece)| piece.len() as u64).sum())
        }
    }

    fn body(known: Option<u128>, memory: &Room) -> Body {
        body_of([(Duration::ZERO, vec![7_u8; LONG].into())], known, memory)
    }

    fn body_of(
        pieces: impl IntoIterator<Item = (Duration, Bytes)>,
        known: Option<u128>,
        memory: &Room,
    ) -> Body {
        let request = Request {
            url: url::Url::parse("https://a.test/").unwrap(),
            validators: Validators::default(),
            known,
            headers: Vec::new(),
            max_wire_bytes: 1 << 20,
            max_redirects: 0,
        };
        let pieces = Pieces(pieces.into_iter().collect(), None);
        let response = hyper::Response::new(reqwest::Body::wrap(pieces));
        Body::new(response.into(), &request, memory)
    }

    /// The clock of the runtime goes on only when all else waits.
    #[tokio::test(start_paused = true)]
    async fn a_body_waits_a_moment_for_memory_and_then_goes_into_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for known in [None, Some(0)] {
            let memory = Room::new(4 << 20);
            let taken = memory.wait(4 << 20, MOMENT).await.unwrap();
            let mut late = body(known, &memory);
            let began = Instant::now();
            late.make_room().await;
            assert_eq!(began.elapsed(), MOMENT);
            late.read_start(folder.path(), &limits()).await.unwrap();
            let (late, _) = late.finish(None).unwrap();
            assert!(late.in_memory().is_none() && late.len() == LONG as u64);

            let mut waits = body(known, &memory);
            tokio::join!(waits.make_room(), async {
                tokio::time::sleep(MOMENT / 2).await;
                drop(taken);
            });
            waits.read_start(folder.path(), &limits()).await.unwrap();
            let (waits, _) = waits.finish(None).unwrap();
            assert!(waits.in_memory().is_some_and(|bytes| bytes.len() == LONG));
        }
    }

    #[tokio::test]
    async fn a_body_has_its_share_while_it_is_there_and_one_that_is_known_none() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Room::new(4 << 20);
        let hash = WireBody::from(vec![7_u8; LONG]).hash();
        let all_is_free = async || memory.wait(4 << 20, Duration::ZERO).await.is_some();
        let mut known = body(hash, &memory);
        known.make_room().await;
        known.read_start(folder.path(), &limits()).await.unwrap();
        assert!(known.finish(None).is_none());
        assert!(all_is_free().await);

        let mut other = body(Some(0), &memory);
        other.make_room().await;
        other.read_start(folder.path(), &limits()).await.unwrap();
        let (other, _) = other.finish(None).unwrap();
        // No more than it takes, now that it is in one piece.
        let rest = (4 << 20) - LONG.next_multiple_of(64 * 1024);
        assert!(memory.wait(rest, Duration::ZERO).await.is_some());
        assert!(!all_is_free().await);
        drop(other);
        assert!(all_is_free().await);
    }

    #[tokio::test(start_paused = true)]
    async fn few_pieces_and_many_and_slow_ones_come_together_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..LONG / 8).flat_map(usize::to_le_bytes).collect();
        let hash = WireBody::from(whole.clone()).hash();
        for pieces in [1, 2, 3, 4, 5, 9] {
            for (after, known) in [(Duration::ZERO, Some(0)), (MOMENT, Some(0)), (MOMENT, hash)] {
                let memory = Room::new(4 << 20);
                let parts = whole.chunks(LONG.div_ceil(pieces));
                let parts = parts.map(|part| (after, Bytes::copy_from_slice(part)));
                let mut body = body_of(parts, known, &memory);
                body.make_room().await;
                let rest = (4 << 20) - LONG.next_multiple_of(64 * 1024);
                let (folder, limits) = (folder.path(), limits());
                let (read, has_shrunk) = tokio::join!(body.read_start(folder, &limits), async {
                    tokio::time::sleep(MOMENT + MOMENT / 2).await;
                    memory.wait(rest, Duration::ZERO).await.is_some()
                });
                read.unwrap();
                // All of a known body has come by then, in one piece.
                let is_done = pieces == 1 && known == hash;
                assert!(has_shrunk || is_done, "{pieces} pieces, {after:?}");
                let body = body.finish(None).map(|(body, _)| body);
                let bytes = body.as_ref().map(|body| &body.in_memory().unwrap()[..]);
                assert_eq!(bytes.is_none(), known == hash, "{pieces} pieces, {after:?}");
                assert!(bytes.is_none_or(|bytes| bytes == whole), "{pieces} pieces, {after:?}");
            }
        }
    }
}
