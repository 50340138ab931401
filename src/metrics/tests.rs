//! Tests of the metrics: the names operators alert on, and bounded labels.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::store::views::{Counts, QueueView};

fn status() -> StatusView {
    let at = |text: &str| text.parse().expect("a timestamp");
    StatusView {
        version: "0.1.0".to_owned(),
        now: at("2026-11-21T08:30:00Z"),
        started_at: Some(at("1970-01-01T00:01:00Z")),
        sites: 2,
        sources: 3,
        sources_due: 1,
        sources_failing: 0,
        urls: 4,
        store_bytes: 5,
        wal_bytes: 6,
        polls_paused: false,
        polls_24h: BTreeMap::new(),
        changes_24h: Counts::default(),
        nodes: Vec::new(),
        queues: vec![QueueView {
            crawl: "a\"b".to_owned(),
            queued: 7,
            oldest_due_at: Some(at("2026-11-21T08:28:30Z")),
            oldest_lease_at: Some(at("2026-11-21T08:29:30Z")),
            ..QueueView::default()
        }],
    }
}

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_poll_counts_its_result_its_bytes_and_its_changes() {
    let metrics = Metrics::new();
    metrics.poll_done(&PollFigures {
        result: "changed",
        took: Duration::from_millis(300),
        wire_bytes: 10,
        body_bytes: 100,
        entries: 5,
        counts: Counts { new: 2, removed: 1, ..Counts::default() },
    });
    metrics.saved(Saved::EqualHash, 1);
    metrics.poll_put_off("address");
    assert_lines(
        &metrics.encode(None, Format::OpenMetrics),
        &[
            "sitemapd_polls_total{result=\"changed\"} 1",
            "sitemapd_polls_put_off_total{by=\"address\"} 1",
            "sitemapd_poll_duration_seconds_count 1",
            "sitemapd_poll_wire_bytes_total 10",
            "sitemapd_poll_body_bytes_total 100",
            "sitemapd_entries_total 5",
            "sitemapd_changes_total{kind=\"new\"} 2",
            "sitemapd_changes_total{kind=\"removed\"} 1",
            "sitemapd_work_saved_total{by=\"equal-hash\"} 1",
        ],
    );
}

#[test]
fn settlements_are_counted_by_outcome_and_tokens_by_result() {
    let metrics = Metrics::new();
    metrics.leased([Reason::New, Reason::New].into_iter());
    metrics.settled(Some(Outcome::Changed), 1);
    metrics.settled(None, 1);
    let results = [TokenResult::Ok, TokenResult::Stale, TokenResult::Ok];
    metrics.tokens(TokenCall::Settle, results.into_iter());
    metrics.expired(3, 1);
    metrics.dead_lettered(1);
    metrics.commit_done(Duration::from_millis(2), 8);
    assert_lines(
        &metrics.encode(None, Format::OpenMetrics),
        &[
            "sitemapd_leases_total{reason=\"new\"} 2",
            "sitemapd_settlements_total{outcome=\"changed\"} 1",
            "sitemapd_settlements_total{outcome=\"by-hash\"} 1",
            "sitemapd_tokens_total{call=\"settle\",result=\"ok\"} 2",
            "sitemapd_tokens_total{call=\"settle\",result=\"stale\"} 1",
            "sitemapd_leases_expired_total 3",
            "sitemapd_dead_letters_total 2",
            "sitemapd_commit_duration_seconds_count 1",
            "sitemapd_commit_effects_total 8",
        ],
    );
}

#[test]
fn the_store_s_gauges_are_those_of_the_scrape() {
    let metrics = Metrics::new();
    let text = metrics.encode(Some(&status()), Format::OpenMetrics);
    assert_lines(
        &text,
        &[
            "sitemapd_sites 2",
            "sitemapd_urls 4",
            "sitemapd_store_bytes 5",
            "sitemapd_wal_bytes 6",
            "sitemapd_queue_urls{crawl=\"a\\\"b\",state=\"queued\"} 7",
            "sitemapd_queue_oldest_lease_seconds{crawl=\"a\\\"b\"} 30.0",
            "sitemapd_queue_oldest_due_seconds{crawl=\"a\\\"b\"} 90.0",
            "sitemapd_start_time_seconds 60.0",
        ],
    );
    assert!(!metrics.encode(None, Format::OpenMetrics).contains("sitemapd_urls"));
}

#[test]
fn a_text_from_outside_makes_no_series_of_its_own() {
    let metrics = Metrics::new();
    for method in ["GET", "BREW", "X-1", "X-2"] {
        metrics.api_request(method, "/v1/queue", 200, Duration::from_millis(4));
    }
    let text = metrics.encode(None, Format::OpenMetrics);
    assert_lines(
        &text,
        &[
            "sitemapd_api_requests_total{method=\"GET\",route=\"/v1/queue\",status=\"200\"} 1",
            "sitemapd_api_requests_total{method=\"other\",route=\"/v1/queue\",status=\"200\"} 3",
            "sitemapd_api_request_duration_seconds_count{route=\"/v1/queue\"} 4",
        ],
    );
}

#[test]
fn the_text_ends_as_openmetrics_wants_and_names_each_metric_once() {
    let text = Metrics::new().encode(Some(&status()), Format::OpenMetrics);
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(text.matches("# EOF").count(), 1);
    let mut names: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(text.contains("sitemapd_build_info{version="));
}

#[test]
fn the_way_of_urls_is_timed_by_crawl() {
    let metrics = Metrics::new();
    let seconds = |all: &[u64]| all.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
    metrics.came(Way::PublishedToSeen, "news", seconds(&[30, 400]).into_iter());
    metrics.came(Way::SeenToLeased, "default", seconds(&[]).into_iter());
    metrics.came(Way::LeasedToSettled, "default", seconds(&[2]).into_iter());
    let text = metrics.encode(None, Format::OpenMetrics);
    assert_lines(
        &text,
        &[
            "sitemapd_published_to_seen_seconds_bucket{le=\"60.0\",crawl=\"news\"} 1",
            "sitemapd_published_to_seen_seconds_count{crawl=\"news\"} 2",
            "sitemapd_leased_to_settled_seconds_sum{crawl=\"default\"} 2.0",
        ],
    );
    assert!(!text.contains("sitemapd_seen_to_leased_seconds_count"), "nothing came that way");
}

#[test]
fn the_times_of_a_crawl_go_with_it_and_not_before() {
    let metrics = Metrics::new();
    let seconds = |all: &[u64]| all.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
    for way in [Way::PublishedToSeen, Way::SeenToLeased, Way::LeasedToSettled] {
        for crawl in ["a\"b", "pushed"] {
            metrics.came(way, crawl, seconds(&[2]).into_iter());
        }
    }
    let lines = |status: &StatusView, crawl: &str| {
        let text = metrics.encode(Some(status), Format::Plain);
        let of_crawl = format!("_count{{crawl=\"{crawl}\"}}");
        text.lines().filter(|line| line.contains(&of_crawl)).count()
    };
    // The count may be from before the crawl was made, however often it is told.
    let mut status = status();
    for _ in 0..2 {
        assert_eq!((lines(&status, "a\\\"b"), lines(&status, "pushed")), (3, 3));
    }
    status.now += Duration::from_secs(10);
    assert_eq!((lines(&status, "a\\\"b"), lines(&status, "pushed")), (3, 0));
    // One of the same name begins anew.
    metrics.came(Way::LeasedToSettled, "pushed", seconds(&[2]).into_iter());
    assert_eq!(lines(&status, "pushed"), 1);
}

#[test]
fn the_older_format_has_the_same_samples() {
    let metrics = Metrics::new();
    metrics.saved(Saved::EqualHash, 1);
    let samples = |format| {
        let text = metrics.encode(Some(&status()), format);
        let is_sample = |line: &&str| !line.starts_with('#') && !line.starts_with("process_");
        // The order within a family is that of a map.
        let lines: BTreeSet<String> = text.lines().filter(is_sample).map(str::to_owned).collect();
        (lines, text)
    };
    let (new, _) = samples(Format::OpenMetrics);
    let (old, text) = samples(Format::Plain);
    assert_eq!(new, old);
    assert!(text.contains("# TYPE sitemapd_work_saved_total counter\n"), "{text}");
    assert!(text.contains("# TYPE sitemapd_build_info gauge\n"), "{text}");
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
}
