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

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::task::Poll;

#[allow(unused_imports, reason = "shared by test modules that each use a part")]
pub use {
    canary::Canary,
    origin::{Origin, Seen},
    reply::{Hold, Reply},
};

/// Looks at how far something is before it may ask for anything further.
const LOOKS: usize = 300;

/// Lets something run until `is_far`. Whoever drops it then has broken it off
/// there: it asks for nothing while nobody waits for it.
pub async fn broken_off<F: Future>(mut work: Pin<&mut F>, is_far: impl Fn() -> bool) {
    for _ in 0..100 {
        let is_over = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await;
        assert!(!is_over, "it ended before it came so far");
        if (0..LOOKS).any(|_| is_far()) {
            return;
        }
    }
    panic!("it does not come so far");
}

/// Text that no engine makes any shorter.
pub fn incompressible(bytes: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |place: usize| {
        let mut hash = DefaultHasher::new();
        place.hash(&mut hash);
        char::from(DIGITS[usize::try_from(hash.finish() % 64).unwrap()])
    };
    (0..bytes).map(digit).collect()
}
