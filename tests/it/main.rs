//! The integration tests, one binary: real sockets, real files, no sleeping.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test binary has no public interface, and a test says what it expects"
)]

mod agreement;
mod corpus;
mod daemon;
mod fetch;
mod fixtures;
mod hostile;
mod http;
mod reading;
mod support;
