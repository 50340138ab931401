//! The integration tests, one binary: what the library does as its users see it.

mod corpus;
