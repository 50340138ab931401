//! The integration tests, one binary: real sockets, real files, no sleeping.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test binary has no public interface, and a test says what it expects"
)]
// Helpers of tests may fail loudly and print, as tests do.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod agreement;
mod cli;
mod corpus;
mod documents;
mod fetch;
mod fixtures;
mod hostile;
mod http;
mod process;
mod queue;
mod reading;
mod readme;
mod support;
mod walls;
