//! A fetcher behind the broker: takes URLs from the stream, reports each, and
//! acknowledges it when the report is kept.
//!
//! What is not acknowledged within two seconds comes again, as on a machine that stands
//! still for so long: it is the same message, which is seen once, and reported anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{Context, Message};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sitemapd::clock::Clock;
use tokio::task::JoinHandle;

/// What came, in order, and how many reports of it the broker has kept.
#[derive(Clone, Default)]
pub(super) struct Seen {
    leases: Arc<Mutex<Vec<Value>>>,
    reports: Arc<AtomicU64>,
}

/// Messages that have come, by when and as what they came into the stream: a broker that
/// was killed may give a number once more.
type Known = BTreeSet<(i128, u64)>;

impl Seen {
    pub(super) fn all(&self) -> Vec<Value> {
        self.leases.lock().unwrap().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.leases.lock().unwrap().len()
    }

    /// More than there are messages where one has come again.
    pub(super) fn reports(&self) -> u64 {
        self.reports.load(Ordering::SeqCst)
    }

    /// How often each URL came.
    pub(super) fn by_url(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for lease in self.all() {
            *counts.entry(lease["url"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        counts
    }
}

/// A consumer that takes all there is until it is dropped.
pub(super) struct Fetcher {
    pub(super) seen: Seen,
    task: JoinHandle<()>,
}

impl Fetcher {
    /// Settles each URL, `pause` after it came.
    pub(super) fn start(context: Context, pause: Duration) -> Self {
        let seen = Seen::default();
        let task = tokio::spawn(work(context, seen.clone(), pause));
        Self { seen, task }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(context: Context, seen: Seen, pause: Duration) {
    let mut known = Known::new();
    loop {
        // Whatever fails while the server is away is tried again.
        let Ok(consumer) = consumer(&context).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(batch) =
            consumer.batch().max_messages(10).expires(Duration::from_millis(500)).messages().await
        else {
            continue;
        };
        let mut batch = std::pin::pin!(batch);
        while let Some(Ok(message)) = batch.next().await {
            take(&context, &message, &seen, &mut known, pause).await;
        }
    }
}

pub(super) async fn consumer(context: &Context) -> Result<PullConsumer, async_nats::Error> {
    let config = pull::Config {
        durable_name: Some("fetchers".to_owned()),
        ack_wait: Duration::from_secs(2),
        ..pull::Config::default()
    };
    let stream = context.get_stream("SITEMAPD").await?;
    Ok(stream.get_or_create_consumer("fetchers", config).await?)
}

async fn take(
    context: &Context,
    message: &Message,
    seen: &Seen,
    known: &mut Known,
    pause: Duration,
) {
    let lease: Value = serde_json::from_slice(&message.payload).unwrap();
    let id = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id")).unwrap();
    assert_eq!(lease["token"], id.as_str());
    let may_from: jiff::Timestamp = lease["not_before"].as_str().unwrap().parse().unwrap();
    let now = Clock::system().now();
    // Steady and wall clock are two; they were one when the daemon started.
    assert!(now + Duration::from_millis(50) >= may_from, "{now}: {lease}");
    let info = message.info().unwrap();
    if known.insert((info.published.unix_timestamp_nanos(), info.stream_sequence)) {
        seen.leases.lock().unwrap().push(lease.clone());
    }
    tokio::time::sleep(pause).await;
    let result = json!({ "token": lease["token"], "outcome": "changed", "status": 200 });
    let sent = context.publish("sitemapd.results", result.to_string().into()).await;
    let is_kept = match sent {
        Ok(kept) => kept.await.is_ok(),
        Err(_) => false,
    };
    if is_kept {
        seen.reports.fetch_add(1, Ordering::SeqCst);
        // One that is lost comes again, and its report is stale then.
        let _ = message.ack().await;
    }
}
