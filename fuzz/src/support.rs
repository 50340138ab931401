//! The very files that the tests of the daemon use, under the names that they
//! have there, so that CI replays what is found here.

#[path = "../../tests/it/support/laws/mod.rs"]
pub mod laws;
#[path = "../../tests/it/support/pack.rs"]
pub mod pack;
