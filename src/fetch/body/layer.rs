//! One layer of compression, undone piece by piece.
//!
//! The codecs of async-compression, driven directly: they are plain state
//! machines, and their input is at hand, in memory or in a file. A layer yields what it can before it
//! tells of a fault, keeps telling of it, and never yields more than its limit.

use std::io::ErrorKind;

use async_compression::codecs::zstd::params::DParameter;
use async_compression::codecs::{
    BrotliDecoder, DecodeV2, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use async_compression::core::util::{PartialBuffer, WriteBuffer};
use bytes::{Buf, Bytes};

use crate::fetch::spool::WireBody;

/// Bytes between two layers.
const BUFFER: usize = 32 * 1024;

/// Bytes looked at to tell whether a coding without a magic number is there.
const PROBE: usize = 4 * 1024;

/// Members of one gzip file or frames of one zstd file: far above what block
/// packers make of 50 MB, far below what empty ones could be made of it.
const MAX_MEMBERS: u32 = 100_000;

/// 8 MiB, the largest window of the zstd content coding (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;

/// Why a layer ended before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    OverLimit,
    Truncated,
    Corrupt(String),
}

/// A coding that is really there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Brotli,
    Zstd,
    /// "deflate" as the standard has it.
    Zlib,
    /// "deflate" as some servers understood it.
    RawDeflate,
}

impl Coding {
    /// The coding of that name, if the bytes bear it out. A name that we do not
    /// know is no coding ("utf-8" and "none" are seen in the wild), and so is
    /// one that is said of plain text.
    pub(super) fn named(said: &str, input: &mut Input) -> Result<Option<Self>, Fault> {
        let coding = match said {
            "gzip" | "x-gzip" => return Ok(input.is_gzip()?.then_some(Self::Gzip)),
            "zstd" => return Ok(is_zstd(input.peek(4)?).then_some(Self::Zstd)),
            "br" => Self::Brotli,
            "deflate" if is_zlib(input.peek(2)?) => Self::Zlib,
            "deflate" => Self::RawDeflate,
            _ => return Ok(None),
        };
        let prefix = input.peek(PROBE)?;
        let is_something_else = match looks(prefix) {
            Look::Text => true,
            Look::MaybeText => coding.fails_at_once(prefix),
            Look::Binary => is_gzip(prefix) && coding.fails_at_once(prefix),
        };
        Ok((!is_something_else).then_some(coding))
    }

    /// The name in `Content-Encoding`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Zlib | Self::RawDeflate => "deflate",
        }
    }

    fn decoder(self) -> Box<dyn DecodeV2 + Send> {
        match self {
            Self::Gzip => Box::new(GzipDecoder::new()),
            Self::Brotli => Box::new(BrotliDecoder::new()),
            Self::Zstd => {
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                Box::new(ZstdDecoder::new_with_params(&[window]))
            }
            Self::Zlib => Box::new(ZlibDecoder::new()),
            Self::RawDeflate => Box::new(DeflateDecoder::new()),
        }
    }

    /// Does the decoder refuse these bytes before it yields anything?
    fn fails_at_once(self, prefix: &[u8]) -> bool {
        let mut out = [0; 64];
        let mut output = WriteBuffer::new_initialized(&mut out);
        let failed = self.decoder().decode(&mut PartialBuffer::new(prefix), &mut output).is_err();
        failed && output.written_len() == 0
    }

    /// Does another member or frame begin here? Anything else is garbage after
    /// the end, such as the zeros of a tape, and tolerated.
    fn goes_on_with(self, input: &mut Input) -> Result<bool, Fault> {
        match self {
            Self::Gzip => input.is_gzip(),
            Self::Zstd => Ok(is_zstd(input.peek(4)?)),
            Self::Brotli | Self::Zlib | Self::RawDeflate => Ok(false),
        }
    }
}

/// A coding being undone.
pub(super) struct Layer {
    coding: Coding,
    decoder: Box<dyn DecodeV2 + Send>,
    input: Input,
    members: u32,
    left: u64,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Decoding,
    Done,
    Failed(Fault),
}

impl Layer {
    /// Undoes a coding. It yields one byte more than the limit before it
    /// fails, so that the reader above can tell "just full" from "too long".
    pub(super) fn new(coding: Coding, input: Input, max_bytes: u64) -> Self {
        Self {
            coding,
            decoder: coding.decoder(),
            input,
            members: 1,
            left: max_bytes.saturating_add(1),
            state: State::Decoding,
        }
    }

    /// Fills the front of `out`; 0 is the end. A fault comes after all that
    /// could be decoded, and again at each further call.
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        let mut idle = false;
        loop {
            match &self.state {
                State::Decoding => {}
                State::Done => return Ok(0),
                State::Failed(fault) => return Err(fault.clone()),
            }
            if self.left == 0 {
                self.state = State::Failed(Fault::OverLimit);
                continue;
            }
            let room = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (consumed, written) = self.step(&mut out[..room]);
            if written > 0 {
                self.left -= written as u64;
                return Ok(written);
            }
            // A codec may need one call to notice that it is done, never two.
            if consumed == 0 && idle && matches!(self.state, State::Decoding) {
                self.state = State::Failed(self.corrupt("no progress"));
            }
            idle = consumed == 0;
        }
    }

    /// One call of the codec: how much went in, how much came out.
    fn step(&mut self, out: &mut [u8]) -> (usize, usize) {
        let mut output = WriteBuffer::new_initialized(out);
        let (result, consumed, at_end) = match self.input.available() {
            Ok(available) => {
                let mut partial = PartialBuffer::new(available);
                let at_end = available.is_empty();
                let result = self.decoder.decode(&mut partial, &mut output);
                (result, partial.written_len(), at_end)
            }
            Err(fault) => {
                self.state = State::Failed(fault);
                return (0, 0);
            }
        };
        self.input.consume(consumed);
        let written = output.written_len();
        match result {
            Ok(true) => self.next_member(),
            // With nothing more to come, a codec that yields nothing waits for ever.
            _ if at_end && written == 0 => self.state = State::Failed(Fault::Truncated),
            Ok(false) => {}
            Err(_) if at_end => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.state = State::Failed(Fault::Truncated);
            }
            Err(error) => self.state = State::Failed(self.corrupt(&error.to_string())),
        }
        (consumed, written)
    }

    fn next_member(&mut self) {
        self.state = match self.coding.goes_on_with(&mut self.input) {
            Ok(false) => State::Done,
            Ok(true) if self.members == MAX_MEMBERS => {
                State::Failed(self.corrupt(&format!("more than {MAX_MEMBERS} members")))
            }
            Ok(true) => {
                self.members += 1;
                match self.decoder.reinit() {
                    Ok(()) => State::Decoding,
                    Err(error) => State::Failed(self.corrupt(&error.to_string())),
                }
            }
            Err(fault) => State::Failed(fault),
        };
    }

    fn corrupt(&self, how: &str) -> Fault {
        Fault::Corrupt(format!("{}: {how}", self.coding.name()))
    }
}

/// Bytes that can be looked at before they are taken.
pub(super) enum Input {
    /// A body that is in memory.
    Wire(Bytes),
    /// What comes in pieces.
    Pieces {
        /// Whence.
        source: Source,
        /// What was read and nobody has taken, from `start` to `end`.
        buffer: Box<[u8]>,
        /// Where that begins.
        start: usize,
        /// Where that ends.
        end: usize,
    },
}

/// What yields bytes piece by piece.
pub(super) enum Source {
    /// A layer of compression.
    Layer(Box<Layer>),
    /// A body that is in a file, and the place in it.
    File(WireBody, u64),
}

impl Source {
    /// Fills the front of `out`; 0 is the end.
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        match self {
            Self::Layer(layer) => layer.read(out),
            Self::File(body, at) => match body.read_at(*at, out) {
                Ok(n) => {
                    *at += n as u64;
                    Ok(n)
                }
                Err(error) => Err(Fault::Corrupt(format!("the file it is kept in: {error}"))),
            },
        }
    }
}

impl Input {
    pub(super) fn of(body: WireBody) -> Self {
        match body.in_memory() {
            Some(bytes) => Self::Wire(bytes.clone()),
            None => Self::pieces(Source::File(body, 0)),
        }
    }

    pub(super) fn empty() -> Self {
        Self::Wire(Bytes::new())
    }

    pub(super) fn layer(layer: Layer) -> Self {
        Self::pieces(Source::Layer(Box::new(layer)))
    }

    fn pieces(source: Source) -> Self {
        Self::Pieces { source, buffer: vec![0; BUFFER].into_boxed_slice(), start: 0, end: 0 }
    }

    /// At least `want` bytes (at most [`BUFFER`]), fewer only at the end. A
    /// fault shows only when nothing is left before it.
    pub(super) fn peek(&mut self, want: usize) -> Result<&[u8], Fault> {
        match self {
            Self::Wire(bytes) => Ok(&bytes[..want.min(bytes.len())]),
            Self::Pieces { source, buffer, start, end } => {
                if *end - *start < want {
                    buffer.copy_within(*start..*end, 0);
                    *end -= *start;
                    *start = 0;
                }
                while *end < want.min(buffer.len()) && *start == 0 {
                    match source.read(&mut buffer[*end..]) {
                        Ok(0) => break,
                        Ok(n) => *end += n,
                        Err(fault) if *end == 0 => return Err(fault),
                        Err(_) => break,
                    }
                }
                Ok(&buffer[*start..*end])
            }
        }
    }

    /// Some bytes; none at the end.
    fn available(&mut self) -> Result<&[u8], Fault> {
        match self {
            Self::Wire(bytes) => Ok(bytes),
            Self::Pieces { .. } => self.peek(1),
        }
    }

    fn consume(&mut self, n: usize) {
        match self {
            Self::Wire(bytes) => bytes.advance(n),
            Self::Pieces { start, .. } => *start += n,
        }
    }

    /// Takes some bytes; 0 is the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, Fault> {
        if let Self::Pieces { source, start, end, .. } = self
            && start == end
        {
            return source.read(out);
        }
        let available = self.available()?;
        let n = available.len().min(out.len());
        out[..n].copy_from_slice(&available[..n]);
        self.consume(n);
        Ok(n)
    }

    pub(super) fn is_gzip(&mut self) -> Result<bool, Fault> {
        self.peek(2).map(is_gzip)
    }
}

fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// A zstd frame or a skippable one (RFC 8878 section 3.1).
fn is_zstd(bytes: &[u8]) -> bool {
    matches!(bytes, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// RFC 1950 section 2.2: method 8, and a check value over both bytes.
fn is_zlib(bytes: &[u8]) -> bool {
    let [method, flags, ..] = bytes else { return false };
    method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
}

/// What the first bytes look like.
enum Look {
    /// Compressed data is not UTF-8 for so long.
    Text,
    /// Nothing speaks against text, but compressed data could look so too.
    MaybeText,
    Binary,
}

fn looks(bytes: &[u8]) -> Look {
    let head = &bytes[..bytes.len().min(64)];
    if head.is_empty()
        || matches!(head, [0xef, 0xbb, 0xbf, ..] | [0xff, 0xfe, ..] | [0xfe, 0xff, ..])
    {
        return Look::Text;
    }
    if !head.iter().all(|&b| b >= 0x20 && b != 0x7f || matches!(b, b'\t' | b'\n' | b'\r')) {
        return Look::Binary;
    }
    // A character may be cut at the end of the head; inside it may not.
    let is_utf8 = std::str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true);
    if is_utf8 && head.len() >= 16 { Look::Text } else { Look::MaybeText }
}
