//! From the bytes of an answer to the bytes of a document.
//!
//! Synchronous, for the blocking pool. Undoes `Content-Encoding` and a gzip
//! file inside it, believing the bytes more than the headers. Never yields more
//! than the limit, never goes deeper than [`MAX_LAYERS`], and its work is
//! linear in what comes in and what goes out, whatever the input claims. A
//! defect is never an error of the reader: it ends, and [`Decoded::outcome`]
//! says how. What the bytes mean is the parser's.

mod layer;
mod strict;
#[cfg(test)]
mod tests;

use std::io::{self, Read};

use xxhash_rust::xxh3::Xxh3;

use super::spool::WireBody;
use layer::{Coding, Fault, Input, Layer};
pub use strict::{Lack, Strict};

/// Codings undone in one body, `Content-Encoding` and gzip files together.
pub const MAX_LAYERS: usize = 2;

/// How a body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It was read whole.
    Whole,
    /// There was more than the limit; it was cut there.
    OverLimit,
    /// The compressed data stops before its end.
    Truncated,
    /// The compressed data is broken, or packed too deep; says how.
    Corrupt(String),
}

/// What decoding a body came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoding {
    /// Bytes decoded.
    pub bytes: u64,
    /// Codings undone, the outermost first: gzip, br, zstd, deflate.
    pub layers: Vec<&'static str>,
    /// The innermost coding, which is the document's own if it has one.
    pub compression: Option<&'static str>,
    /// How it ended.
    pub end: End,
    /// xxh3-128 of the decoded bytes.
    pub hash: u128,
}

/// A body being decoded.
pub struct Decoded {
    input: Input,
    layers: Vec<&'static str>,
    max_body_bytes: u64,
    bytes: u64,
    hash: Box<Xxh3>,
    end: Option<End>,
}

impl Decoded {
    /// A body as it came over the wire, its codings in the order applied, and
    /// the limit on the bytes decoded, which holds for every layer.
    pub fn new(
        body: impl Into<WireBody>,
        content_encoding: &[String],
        max_body_bytes: u64,
    ) -> Self {
        let mut decoded = Self {
            input: Input::of(body.into()),
            layers: Vec::new(),
            max_body_bytes,
            bytes: 0,
            hash: Box::new(Xxh3::new()),
            end: None,
        };
        if let Err(fault) = decoded.unpack(content_encoding) {
            decoded.end = Some(fault.into());
        }
        decoded
    }

    /// Reads on to the end, if the caller has not, and says what came of it.
    /// The hash is that of the whole document, however much of it was used.
    pub fn outcome(&mut self) -> Decoding {
        let mut rest = [0; 8 * 1024];
        let end = loop {
            match &self.end {
                Some(end) => break end.clone(),
                None => self.step(&mut rest),
            };
        };
        Decoding {
            bytes: self.bytes,
            layers: self.layers.clone(),
            compression: self.layers.last().copied(),
            end,
            hash: self.hash.digest128(),
        }
    }

    /// Wraps the input in the layers that the headers and the bytes tell of.
    fn unpack(&mut self, content_encoding: &[String]) -> Result<(), Fault> {
        for said in content_encoding.iter().rev() {
            if let Some(coding) = Coding::named(said, &mut self.input)? {
                self.wrap(coding)?;
            }
        }
        while self.input.is_gzip()? {
            self.wrap(Coding::Gzip)?;
        }
        Ok(())
    }

    fn wrap(&mut self, coding: Coding) -> Result<(), Fault> {
        if self.layers.len() == MAX_LAYERS {
            let already = self.layers.join(" in ");
            // Nothing of what is packed so deep is shown.
            self.input = Input::empty();
            return Err(Fault::Corrupt(format!(
                "too many layers: {} in {already} (at most {MAX_LAYERS})",
                coding.name()
            )));
        }
        let packed = std::mem::replace(&mut self.input, Input::empty());
        self.input = Input::layer(Layer::new(coding, packed, self.max_body_bytes));
        self.layers.push(coding.name());
        Ok(())
    }

    /// Reads some bytes, or sets the end.
    fn step(&mut self, buf: &mut [u8]) -> usize {
        let left = self.max_body_bytes - self.bytes;
        let room = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if room == 0 {
            self.end = Some(match self.input.peek(1) {
                Ok([]) => End::Whole,
                Ok(_) => End::OverLimit,
                Err(fault) => fault.into(),
            });
            return 0;
        }
        match self.input.read(&mut buf[..room]) {
            Ok(0) => {
                self.end = Some(End::Whole);
                0
            }
            Ok(n) => {
                self.hash.update(&buf[..n]);
                self.bytes += n as u64;
                n
            }
            Err(fault) => {
                self.end = Some(fault.into());
                0
            }
        }
    }
}

impl Read for Decoded {
    /// Never fails: a defect ends the document, and the outcome tells.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() || self.end.is_some() {
            return Ok(0);
        }
        Ok(self.step(buf))
    }
}

impl std::fmt::Debug for Decoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoded")
            .field("layers", &self.layers)
            .field("bytes", &self.bytes)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::OverLimit => Self::OverLimit,
            Fault::Truncated => Self::Truncated,
            Fault::Corrupt(how) => Self::Corrupt(how),
        }
    }
}
