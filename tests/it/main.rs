//! The integration tests, one binary: real sockets, real files, no sleeping.

#![allow(missing_docs, reason = "a test binary has no public interface")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod corpus;
mod fetch;
mod http;
mod support;
