//! The integration tests, one binary: real sockets, real files, no sleeping.

#![allow(missing_docs, reason = "a test binary has no public interface")]

mod agreement;
mod cli;
mod corpus;
mod fetch;
mod fixtures;
mod hostile;
mod http;
mod reading;
mod readme;
mod support;
