//! What is to be done now and then, whatever else goes on: expired leases are taken
//! back, and the store is kept in order.
//!
//! What fails is tried again at the next turn. Neither ends by itself: where the store
//! has ended, they wait to be told to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

/// Expired leases are taken back this often.
const REAP_EVERY: Duration = Duration::from_secs(1);
/// Housekeeping is looked at this often.
const MAINTAIN_EVERY: Duration = Duration::from_secs(60);
/// Between two parts of a long piece of housekeeping.
const MAINTAIN_PAUSE: Duration = Duration::from_millis(50);

/// Takes back expired leases, until told to stop.
pub(super) async fn reap(
    store: Store,
    clock: Clock,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    loop {
        let more = match store.reap().await {
            Ok((leases, dead)) => {
                metrics.expired(leases as u64, dead as u64);
                if leases > 0 {
                    tracing::info!(leases, dead, "leases expired");
                }
                leases > 0
            }
            Err(StoreError::Closed) => return stop.cancelled().await,
            Err(error) => {
                tracing::error!(%error, "expired leases not taken back");
                false
            }
        };
        // Many may have expired at once: the others are for the next start.
        if more && !stop.is_cancelled() {
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock.sleep(REAP_EVERY) => {}
        }
    }
}

/// Retention and what retired sources hold, until told to stop.
pub(super) async fn maintain(store: Store, clock: Clock, stop: CancellationToken) {
    loop {
        let more = match store.maintain().await {
            Ok(more) => more,
            Err(StoreError::Closed) => return stop.cancelled().await,
            Err(error) => {
                tracing::error!(%error, "housekeeping put off");
                false
            }
        };
        let pause = async {
            if more {
                tokio::time::sleep(MAINTAIN_PAUSE).await;
            } else {
                clock.sleep(MAINTAIN_EVERY).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = pause => {}
        }
    }
}
