//! The integration tests, one binary: what the library does as its users see it.

// Helpers of tests may fail loudly and print, as tests do.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod agreement;
mod corpus;
mod fixtures;
mod hostile;
mod reading;
