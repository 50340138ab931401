//! What systemd is told of us: ready, reloading, stopping, and that we live.
//!
//! The last only while the writer answers and the poll loop goes round, so that
//! a daemon that hangs is ended and started again. Without systemd there is
//! nobody to tell, and that is fine.

use std::convert::Infallible;
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::{error, warn};

use crate::app::Liveness;

/// Signs of life within the time that systemd waits for one: one may come late.
const SIGNS: u32 = 4;

/// While it starts, more time is asked for this often, which is sooner than any that
/// is given ends.
const ASKED_EVERY: Duration = Duration::from_secs(30);
/// So much from then on.
const MORE_TIME_USEC: u32 = 120_000_000;

/// Tells it.
pub(super) fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "cannot tell systemd");
    }
}

/// Says that a reload begins, and when that is (`Type=notify-reload`).
pub(super) fn tell_reloading() {
    let reloading = [NotifyState::Reloading].into_iter();
    let reloading: Vec<_> = reloading.chain(NotifyState::monotonic_usec_now().ok()).collect();
    tell(&reloading);
}

/// Asks for more time for a start, for as long as it is waited for: a store that is
/// brought up to date, or whose server is away, takes what it takes.
pub(super) async fn ask_for_time() -> Infallible {
    loop {
        tokio::time::sleep(ASKED_EVERY).await;
        tell(&[NotifyState::ExtendTimeoutUsec(MORE_TIME_USEC)]);
    }
}

/// Gives signs of life for as long as there are any; at once without a watchdog.
pub(super) async fn give_signs_of_life(liveness: Liveness) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return;
    };
    let pause: Duration = limit / SIGNS;
    loop {
        match liveness.check(pause).await {
            Ok(()) => tell(&[NotifyState::Watchdog]),
            Err(what) => error!(what, "it hangs: the watchdog is given no sign of life"),
        }
        tokio::time::sleep(pause).await;
    }
}
