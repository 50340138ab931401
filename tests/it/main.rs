//! The integration tests, one binary: what the library does as its users see it.

mod agreement;
mod corpus;
mod fixtures;
mod hostile;
mod reading;
