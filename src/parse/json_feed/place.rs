//! Where in a JSON document its reader is: a count of what it has taken.
//!
//! serde names a place only with an error, and takes its bytes one by one; so
//! counting them tells where a value stands that is well-formed and still wrong.

use std::cell::Cell;
use std::rc::Rc;

use crate::parse::issue::Place;

/// A line, from 1, and a byte of the decoded document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) line: u64,
    pub(super) offset: u64,
}

impl Spot {
    /// So many bytes earlier in the same line.
    pub(super) fn back(self, bytes: usize) -> Self {
        Self { offset: self.offset.saturating_sub(bytes as u64), ..self }
    }

    /// As the place of a defect.
    pub(super) fn place(self) -> Place<'static> {
        let base_lines = self.line.saturating_sub(1);
        Place { text: "", at: 0, base_offset: self.offset, base_lines, newline: b'\n' }
    }
}

/// How far a reader has come; clones show the same.
#[derive(Debug, Clone)]
pub(super) struct Progress(Rc<Cell<Spot>>);

impl Progress {
    /// At the start of what is read.
    pub(super) fn new(line: u64, offset: u64) -> Self {
        Self(Rc::new(Cell::new(Spot { line, offset })))
    }

    /// A byte was taken.
    pub(super) fn take(&self, byte: u8) {
        let Spot { line, offset } = self.spot();
        self.0.set(Spot { line: line + u64::from(byte == b'\n'), offset: offset + 1 });
    }

    /// Behind the last byte taken.
    pub(super) fn spot(&self) -> Spot {
        self.0.get()
    }
}
