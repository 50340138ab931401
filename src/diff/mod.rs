//! What changed: a source's last snapshot against the document just read.

pub mod snapshot;
