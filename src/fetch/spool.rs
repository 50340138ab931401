//! Bodies as they came over the wire: a small one in memory, a larger one in a
//! file without a name.
//!
//! However large a body is, it costs [`IN_MEMORY`] bytes at most; the file goes
//! with the last clone of the body, and with the process if that dies. Reading
//! a body does not change it: each reader has a place of its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Bytes of a body that are kept in memory.
pub const IN_MEMORY: usize = 1024 * 1024;

/// A body as it came over the wire, not decoded. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WireBody(Data);

#[derive(Debug, Clone)]
enum Data {
    Memory {
        bytes: Bytes,
        /// Where it was worked out as they came.
        hash: Option<u128>,
        /// Its share of the room in memory, given back on drop.
        _share: Option<Arc<OwnedSemaphorePermit>>,
    },
    File(Arc<Kept>),
}

/// A body in a file.
#[derive(Debug)]
struct Kept {
    file: File,
    len: u64,
    hash: Option<u128>,
    /// Its share of the room for large bodies, given back on drop.
    _room: Option<OwnedSemaphorePermit>,
}

/// A body while it comes in.
pub struct Spool<'d> {
    /// Where the file would be.
    folder: &'d Path,
    start: Vec<u8>,
    file: Option<Growing>,
    hash: WireHash,
}

/// A file while it grows.
pub(super) struct Growing {
    file: File,
    len: u64,
}

/// The hash of a body while it comes in: of bytes that the processor has at hand.
pub(super) struct WireHash(Box<Xxh3>);

impl WireBody {
    /// A file as it is, up to so many bytes of it.
    pub fn of_file(file: File, len: u64) -> Self {
        Self(Data::File(Arc::new(Kept { file, len, hash: None, _room: None })))
    }

    /// Bytes in memory, their hash, and their share of the room there.
    pub(super) fn of_memory(
        bytes: Bytes,
        hash: &WireHash,
        share: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let hash = Some(hash.digest());
        Self(Data::Memory { bytes, hash, _share: share.map(Arc::new) })
    }

    /// How many bytes.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Data::Memory { bytes, .. } => bytes.len() as u64,
            Data::File(kept) => kept.len,
        }
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hash that tells whether the bytes of a body are those of last time,
    /// before anything is decoded (xxh3-128); `None` of a file as it is.
    pub fn hash(&self) -> Option<u128> {
        match &self.0 {
            Data::Memory { bytes, hash, .. } => Some(hash.unwrap_or_else(|| xxh3_128(bytes))),
            Data::File(kept) => kept.hash,
        }
    }

    /// The bytes, where they are in memory.
    pub fn in_memory(&self) -> Option<&Bytes> {
        match &self.0 {
            Data::Memory { bytes, .. } => Some(bytes),
            Data::File(_) => None,
        }
    }

    /// Reads some bytes from a place on; 0 is the end.
    pub(super) fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Data::Memory { bytes, .. } => {
                let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                let n = out.len().min(bytes.len() - from);
                out[..n].copy_from_slice(&bytes[from..from + n]);
                Ok(n)
            }
            Data::File(kept) => {
                let left = usize::try_from(kept.len.saturating_sub(at)).unwrap_or(usize::MAX);
                let n = out.len().min(left);
                loop {
                    match kept.file.read_at(&mut out[..n], at) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        read => return read,
                    }
                }
            }
        }
    }
}

impl<T: Into<Bytes>> From<T> for WireBody {
    fn from(bytes: T) -> Self {
        Self(Data::Memory { bytes: bytes.into(), hash: None, _share: None })
    }
}

impl<'d> Spool<'d> {
    /// An empty body; what is over [`IN_MEMORY`] goes into a file on the file
    /// system of `folder`.
    pub fn new(folder: &'d Path) -> Self {
        Self { folder, start: Vec::new(), file: None, hash: WireHash::new() }
    }

    /// Takes further bytes. Fails where the file cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        if self.file.is_none() && self.start.len() + bytes.len() <= IN_MEMORY {
            self.start.extend_from_slice(bytes);
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(Growing::new(self.folder, &std::mem::take(&mut self.start))?),
        };
        file.write(bytes)
    }

    /// The whole body.
    pub fn finish(self) -> WireBody {
        match self.file {
            Some(file) => file.finish(&self.hash, None),
            None => WireBody::of_memory(self.start.into(), &self.hash, None),
        }
    }
}

impl Growing {
    /// A file without a name that begins with these bytes.
    pub(super) fn new(folder: &Path, start: &[u8]) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        let mut growing = Self { file, len: 0 };
        growing.write(start)?;
        Ok(growing)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.len)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// The body, the hash of all of it, and its share of the room for such.
    pub(super) fn finish(self, hash: &WireHash, room: Option<OwnedSemaphorePermit>) -> WireBody {
        let hash = Some(hash.digest());
        WireBody(Data::File(Arc::new(Kept { file: self.file, len: self.len, hash, _room: room })))
    }
}

impl WireHash {
    pub(super) fn new() -> Self {
        Self(Box::new(Xxh3::new()))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn digest(&self) -> u128 {
        self.0.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spooled(bytes: &[u8], piece: usize) -> WireBody {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(folder.path());
        for part in bytes.chunks(piece) {
            spool.write(part).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        spool.finish()
    }

    fn all(body: &WireBody) -> Vec<u8> {
        let (mut out, mut piece) = (Vec::new(), [0; 1_000]);
        loop {
            let n = body.read_at(out.len() as u64, &mut piece).unwrap();
            if n == 0 {
                return out;
            }
            out.extend_from_slice(&piece[..n]);
        }
    }

    #[test]
    fn a_body_is_the_same_in_memory_and_in_a_file() {
        let bytes: Vec<u8> = (0..=255_u8).cycle().take(IN_MEMORY + 1).collect();
        for (len, piece) in [(0, 1), (10, 3), (IN_MEMORY, 4_096), (IN_MEMORY + 1, 4_096)] {
            let body = spooled(&bytes[..len], piece);
            assert_eq!(body.in_memory().is_some(), len <= IN_MEMORY, "{len}");
            assert_eq!(body.len(), len as u64);
            assert_eq!(body.hash(), Some(xxh3_128(&bytes[..len])), "{len}");
            assert!(all(&body) == bytes[..len], "{len}");
            assert_eq!(body.read_at(len as u64 + 7, &mut [0; 4]).unwrap(), 0);
        }
    }

    #[test]
    fn of_a_file_no_more_than_asked_for_is_read() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"abcdef").unwrap();
        let body = WireBody::of_file(file, 4);
        assert_eq!(all(&body), b"abcd");
        assert_eq!(body.hash(), None);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_only_for_what_needs_it() {
        let mut spool = Spool::new(Path::new("/does/not/exist"));
        spool.write(&[1; 10]).unwrap();
        assert!(spool.write(&vec![1; IN_MEMORY]).is_err());
    }
}
