//! Watches the daemon over its API: which polls were made, what they changed,
//! and how many URLs are known.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::narrator::Event;
use crate::cli::Failure;
use crate::cli::answers::{self, Change, Poll, Status};
use crate::fetch::api::ApiClient;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(300);
/// A look at the whole comes with every so many.
const STATUS_EVERY: u64 = 4;
/// Rows read of one list: the API's maximum.
const PART: &str = "1000";

/// Watches until told to stop; then looks once more, so that nothing is missed.
pub(super) async fn watch(api: ApiClient, events: mpsc::Sender<Event>, stop: CancellationToken) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut after = 0;
    for look in 0_u64.. {
        let last = tokio::select! {
            () = stop.cancelled() => true,
            _ = looks.tick() => false,
        };
        let seen = look_once(&api, &mut after, look.is_multiple_of(STATUS_EVERY) || last, &events);
        if let Err(error) = seen.await {
            // Nobody listens any more: then nobody needs to be told.
            let _ = events.send(Event::Trouble(error.to_string())).await;
        }
        if last {
            return;
        }
    }
}

async fn look_once(
    api: &ApiClient,
    after: &mut i64,
    at_the_whole: bool,
    events: &mpsc::Sender<Event>,
) -> Result<(), Failure> {
    let query = [("after", &*after.to_string()), ("limit", PART)];
    let answer = get(api, "/v1/polls", &query).await?;
    for poll in answers::rows::<Poll>(&answer, "polls")? {
        *after = poll.id.max(*after);
        let counts = poll.counts;
        let moved = counts.new + counts.changed + counts.touched + counts.removed > 0;
        let changes: Vec<Change> = if moved {
            let path = format!("/v1/polls/{}/changes", poll.id);
            answers::rows(&get(api, &path, &[("limit", PART)]).await?, "changes")?
        } else {
            Vec::new()
        };
        let _ = events.send(Event::Polled { poll, changes }).await;
    }
    if at_the_whole {
        let status: Status = answers::read(&get(api, "/v1/status", &[]).await?)?;
        let _ = events.send(Event::Known(status.urls)).await;
    }
    Ok(())
}

async fn get(api: &ApiClient, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
    Ok(api.get(path, query).await.map_err(|error| anyhow::anyhow!(error))?)
}
