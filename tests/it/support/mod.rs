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

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "shared by test modules that each use a part")]
pub use {
    canary::Canary,
    origin::{Origin, Seen},
    reply::{Hold, Reply},
};

/// How long a test waits, in real time, for what must come. Far longer than that takes
/// on a slow machine that has other things to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Set when what is waited for can go on.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Lets something run until `is_far`. Whoever drops it then has broken it off
/// there: it asks for nothing while nobody waits for it, and before it is let go
/// on after an answer, it is looked at whether it is far enough.
pub async fn broken_off<F: Future>(mut work: Pin<&mut F>, is_far: impl Fn() -> bool) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let is_over = work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        assert!(!is_over, "it ended before it came so far");
        while !woken.0.swap(false, Ordering::SeqCst) {
            if is_far() {
                return;
            }
            assert!(Instant::now() < deadline, "it does not come so far");
            tokio::task::yield_now().await;
        }
        if is_far() {
            return;
        }
    }
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
