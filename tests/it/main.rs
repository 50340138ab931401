//! The integration tests, one binary: real sockets, real files, no sleeping.

#![allow(missing_docs, reason = "a test binary has no public interface")]

mod corpus;
mod fetch;
mod http;
mod support;
