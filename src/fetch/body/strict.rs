//! A body whose reader fails where something of it is missing, so that who reads
//! it can tell the end of a document from the end of what came of it.

use std::io::{self, Read};

use super::{Decoded, Decoding, End};

/// What is wrong with the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// It is larger than its limit, as sent or as decoded.
    TooLarge,
    /// What is compressed in it is broken or cut.
    Compression,
}

/// A body being decoded, that ends with an error where it is not whole.
#[derive(Debug)]
pub struct Strict {
    decoded: Decoded,
    max_body_bytes: u64,
    cut_at: Option<u64>,
}

impl Strict {
    /// `max_body_bytes` is the limit that `decoded` has; `cut_at` the limit on
    /// bytes as sent, where the body was cut there.
    pub fn new(decoded: Decoded, max_body_bytes: u64, cut_at: Option<u64>) -> Self {
        Self { decoded, max_body_bytes, cut_at }
    }

    /// What is missing of the body, if anything is, and in words.
    pub fn lack(&mut self) -> Option<(Lack, String)> {
        let end = self.decoded.outcome().end;
        if let (End::Whole | End::Truncated, Some(bytes)) = (&end, self.cut_at) {
            return Some((Lack::TooLarge, format!("more than {bytes} bytes as sent")));
        }
        match end {
            End::Whole => None,
            End::OverLimit => {
                Some((Lack::TooLarge, format!("more than {} bytes", self.max_body_bytes)))
            }
            End::Truncated => {
                Some((Lack::Compression, "the compressed data stops before its end".to_owned()))
            }
            End::Corrupt(how) => Some((Lack::Compression, how)),
        }
    }

    /// See [`Decoded::outcome`].
    pub fn outcome(&mut self) -> Decoding {
        self.decoded.outcome()
    }
}

impl Read for Strict {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoded.read(buffer)?;
        if read > 0 || buffer.is_empty() {
            return Ok(read);
        }
        self.lack().map_or(Ok(0), |(_, how)| Err(io::Error::other(how)))
    }
}
