//! Bytes to text: finds the encoding and decodes through a bounded window.
//!
//! The order is that of `docs/FORMATS.md`: byte order mark; the shape of UTF-16
//! and UTF-32 without one; bytes that are valid UTF-8 win over every label; the
//! charset of `Content-Type`; the XML declaration; else UTF-8 with each stray
//! byte read as windows-1252. The window is filled up before it is looked at,
//! so what is read does not depend on how the reader cuts its bytes.
//! What the text means is left to the readers of the formats.

mod charset;

use std::io::{self, Read};

use super::issue::{Place, count_byte};
use charset::{Decode, Start};

/// Bytes read from the reader at a time.
const RAW: usize = 32 * 1024;
/// Text that a window holds unless a token needs more.
pub(crate) const WINDOW: usize = 64 * 1024;

/// The first byte that was wrong in the document's encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadBytes {
    pub(crate) count: u64,
    pub(crate) line: u64,
    pub(crate) offset: u64,
    pub(crate) sample: String,
}

/// A document as text, seen through a window that slides over it.
pub(crate) struct Text<'r> {
    reader: &'r mut dyn Read,
    /// Bytes as read; the first `held` of them are not decoded yet.
    raw: Vec<u8>,
    held: usize,
    ended: bool,
    failure: Option<String>,
    start: Option<Start<'r>>,
    decode: Decode,
    window: String,
    /// Bytes of `window` already used.
    pos: usize,
    /// Decoded bytes that have left the window.
    base_offset: u64,
    base_lines: u64,
    /// What ends a line, once one has ended.
    newline: Option<u8>,
    bad: Option<BadBytes>,
}

impl<'r> Text<'r> {
    /// A document and what its `Content-Type` says of it.
    pub(crate) fn new(reader: &'r mut dyn Read, content_type: Option<&'r str>) -> Self {
        Self {
            reader,
            raw: Vec::new(),
            held: 0,
            ended: false,
            failure: None,
            start: Some(Start::new(content_type)),
            decode: Decode::utf8(),
            window: String::new(),
            pos: 0,
            base_offset: 0,
            base_lines: 0,
            newline: None,
            bad: None,
        }
    }

    /// What is in the window and not yet used.
    pub(crate) fn rest(&self) -> &str {
        self.window.get(self.pos..).unwrap_or_default()
    }

    /// Does the window hold the end of the document?
    pub(crate) fn at_end(&self) -> bool {
        self.ended
    }

    /// Why the reader failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// WHATWG name of the encoding.
    pub(crate) fn encoding(&self) -> &'static str {
        self.decode.name()
    }

    /// Bytes that were wrong in that encoding.
    pub(crate) fn bad_bytes(&self) -> Option<&BadBytes> {
        self.bad.as_ref()
    }

    /// Decoded bytes used so far.
    pub(crate) fn offset(&self) -> u64 {
        self.base_offset + self.pos as u64
    }

    /// The place of byte `at` of [`Self::rest`].
    pub(crate) fn place(&self, at: usize) -> Place<'_> {
        Place {
            text: &self.window,
            at: self.pos + at,
            base_offset: self.base_offset,
            base_lines: self.base_lines,
            newline: self.newline.unwrap_or(b'\n'),
        }
    }

    /// Marks `bytes` of [`Self::rest`] as used; a character boundary.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.pos = (self.pos + bytes).min(self.window.len());
    }

    /// Fills the window until it holds `want` unused bytes or the end.
    pub(crate) fn fill(&mut self, want: usize) {
        if self.ended || self.window.len() - self.pos >= want {
            return;
        }
        self.slide();
        while !self.ended && self.window.len() < want {
            self.read_raw();
            self.decode_raw();
        }
    }

    /// Lets go of what was used, counting its lines.
    fn slide(&mut self) {
        let used = self.window.as_bytes().get(..self.pos).unwrap_or_default();
        self.base_lines += count_byte(used, self.newline.unwrap_or(b'\n'));
        self.base_offset += self.pos as u64;
        self.window.drain(..self.pos);
        self.pos = 0;
    }

    /// Fills the raw buffer wholly, whatever pieces the reader gives.
    fn read_raw(&mut self) {
        let full = self.held + RAW;
        if self.raw.len() < full {
            self.raw.resize(full, 0);
        }
        while let Some(free) = self.raw.get_mut(self.held..full).filter(|free| !free.is_empty()) {
            match self.reader.read(free) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => self.held += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.failure = Some(e.to_string());
                    self.ended = true;
                    break;
                }
            }
        }
    }

    fn decode_raw(&mut self) {
        let mut raw = self.raw.get(..self.held).unwrap_or_default();
        let mut later = 0;
        self.newline = self.newline.or_else(|| line_end(raw));
        if let Some(mut start) = self.start.take() {
            let (decode, now) = start.decide(raw, self.ended);
            self.decode = decode;
            self.start = start.undecided().then_some(start);
            later = raw.len() - now.end;
            raw = raw.get(now).unwrap_or_default();
        }
        let before = self.window.len();
        let (used, wrong) = self.decode.run(raw, &mut self.window, self.ended);
        let left = raw.len() - used + later;
        self.raw.copy_within(self.held - left..self.held, 0);
        self.held = left;
        if let Some(wrong) = wrong {
            self.note_bad(before + wrong.at, wrong.count);
        }
    }

    fn note_bad(&mut self, at: usize, count: u64) {
        if let Some(bad) = &mut self.bad {
            bad.count += count;
            return;
        }
        let from = self.window.get(..at).map_or(0, |s| s.rfind(char::is_whitespace).unwrap_or(0));
        let sample: String = self.window.get(from..).unwrap_or_default().chars().take(80).collect();
        let place = Place { at, ..self.place(0) };
        self.bad = Some(BadBytes { count, line: place.line(), offset: place.offset(), sample });
    }
}

/// What ends the lines of these bytes, if one ends in them: `\r` only where
/// there is no `\n` at all.
fn line_end(raw: &[u8]) -> Option<u8> {
    [b'\n', b'\r'].into_iter().find(|end| memchr::memchr(*end, raw).is_some())
}

/// The decoded text as bytes, for readers that want a reader.
impl Read for Text<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.fill(1);
        let rest = self.window.as_bytes().get(self.pos..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        for (to, from) in buf.iter_mut().zip(rest) {
            *to = *from;
        }
        // This may stop inside a character. `fill` slides only when the window
        // is used up, which is a boundary again.
        self.pos += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
