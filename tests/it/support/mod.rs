//! What the integration tests stand on: an origin that can misbehave, a
//! listener that must never be touched, and packed bytes.

#![allow(dead_code, reason = "shared by test modules that each use a part")]
#![allow(unreachable_pub, reason = "a test binary has no public interface")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

pub mod canary;
pub mod clients;
pub mod daemon;
pub mod disk;
pub mod door;
pub mod engine;
pub mod laws;
pub mod lease_history;
pub mod ledger;
pub mod origin;
pub mod pack;
pub mod power;
pub mod process;
pub mod queue_daemon;
pub mod record;
pub mod relay;
pub mod reply;
pub mod site;

#[allow(unused_imports, reason = "shared by test modules that each use a part")]
pub use {
    canary::Canary,
    origin::{Origin, Seen},
    reply::{Hold, Reply},
};
