//! What the store knows, as gauges: made anew for each scrape.

use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{CrawlLabel, PREFIX};
use crate::store::views::StatusView;

/// Labels of the queue gauges; the crawls are those of the config.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    crawl: String,
    state: &'static str,
}

/// The store's own figures, made anew for each scrape, so that a crawl that is
/// gone leaves no series behind.
pub(super) fn of(status: &StatusView) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    let mut one = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    one("sites", "Sites registered", status.sites);
    one("sources", "Sources polled", status.sources);
    one("sources_due", "Sources due now", status.sources_due);
    one("sources_failing", "Sources failing now", status.sources_failing);
    one("urls", "URLs kept", status.urls);
    one("store_bytes", "Bytes of the database files", status.store_bytes);
    one("wal_bytes", "Bytes of the write-ahead log", status.wal_bytes);
    queue_gauges(&mut registry, status);
    if let Some(started) = status.started_at {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(seconds_between(Timestamp::UNIX_EPOCH, started));
        registry.register_with_unit(
            "start_time",
            "Unix time of the daemon's start",
            Unit::Seconds,
            gauge,
        );
    }
    registry
}

fn queue_gauges(registry: &mut Registry, status: &StatusView) {
    let urls = Family::<QueueLabels, Gauge<u64, AtomicU64>>::default();
    let oldest_lease = Family::<CrawlLabel, Gauge<f64, AtomicU64>>::default();
    let oldest_due = Family::<CrawlLabel, Gauge<f64, AtomicU64>>::default();
    for queue in &status.queues {
        for (state, count) in [
            ("queued", queue.queued),
            ("due", queue.due),
            ("leased", queue.leased),
            ("dead", queue.dead),
            ("parked", queue.parked),
            ("blocked", queue.blocked),
            ("forbidden", queue.forbidden),
        ] {
            let labels = QueueLabels { crawl: queue.crawl.clone(), state };
            urls.get_or_create(&labels).set(count);
        }
        let label = CrawlLabel { crawl: queue.crawl.clone() };
        for (family, since) in
            [(&oldest_lease, queue.oldest_lease_at), (&oldest_due, queue.oldest_due_at)]
        {
            let age = since.map_or(0.0, |since| seconds_between(since, status.now));
            family.get_or_create(&label).set(age.max(0.0));
        }
    }
    registry.register("queue_urls", "URLs by state; due ones are queued too", urls);
    registry.register_with_unit(
        "queue_oldest_lease",
        "Age of the oldest lease, 0 without any",
        Unit::Seconds,
        oldest_lease,
    );
    registry.register_with_unit(
        "queue_oldest_due",
        "How long the oldest due URL has been due, 0 without any",
        Unit::Seconds,
        oldest_due,
    );
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}
