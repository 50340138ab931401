//! The integration tests, one binary: real sockets, real files, no sleeping.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test binary has no public interface; tests and their helpers fail loudly"
)]

mod agreement;
mod cli;
mod corpus;
mod daemon;
mod deploy;
mod documents;
mod durable;
mod egress;
mod fetch;
mod fixtures;
mod frontier;
mod fuzzed;
mod generated;
mod hostile;
mod http;
mod logs;
mod migrate;
mod postgres;
mod process;
mod public;
mod queue;
mod reading;
mod readme;
mod support;
mod walls;
