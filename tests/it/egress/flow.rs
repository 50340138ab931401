//! All goes well: each URL once, within its bounds, in the words of the API.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::consumer::Fetcher;
use super::server::Nats;
use super::{Setup, egressed, is_done, metric, wait};

fn keys(lease: &Value) -> BTreeSet<&String> {
    lease.as_object().unwrap().keys().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_url_is_published_once_and_settled_by_its_result() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 500, "", "batch = 30\nin_flight = 120").await;
    let daemon = setup.start();
    let api = daemon.client();
    let fetcher = Fetcher::start(nats.context().await, Duration::ZERO);
    wait("all results", async || is_done(&api).await.then_some(())).await;
    let seen = fetcher.seen.by_url();
    assert_eq!(seen.keys().cloned().collect::<BTreeSet<_>>(), setup.urls.iter().cloned().collect());
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    for what in ["published", "acknowledged"] {
        wait(what, async || (egressed(&daemon, what).await == 500).then_some(())).await;
    }
    let all_results = async || egressed(&daemon, "result").await == fetcher.seen.reports();
    wait("their count", async || all_results().await.then_some(())).await;
    assert_eq!(egressed(&daemon, "released").await, 0);
    assert_eq!(metric(&daemon, "sitemapd_egress_up{broker=\"nats\"}").await, 1);
    assert_eq!(metric(&daemon, "sitemapd_settlements_total{outcome=\"changed\"}").await, 500);

    let again = json!({ "urls": [setup.urls[0]] });
    let _: Value = api.post("/v1/queue/requeue", &again).await.unwrap();
    wait("what was asked for", async || (fetcher.seen.count() > 500).then_some(())).await;
    let all = fetcher.seen.all();
    assert_eq!(keys(&all[0]), keys(&all[500]));
    assert_eq!(all[500]["reason"], "submitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_the_lease_that_the_api_would_give() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 40, "", "in_flight = 20\nbatch = 20").await;
    let daemon = setup.start();
    let api = daemon.client();
    wait("a full stream", async || (setup.leases() == 20).then_some(())).await;
    let answer: Value = api.post("/v1/lease", &json!({ "max": 1 })).await.unwrap();
    let fetcher = Fetcher::start(nats.context().await, Duration::ZERO);
    wait("a message", async || (fetcher.seen.count() > 0).then_some(())).await;
    assert_eq!(keys(&fetcher.seen.all()[0]), keys(&answer["urls"][0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_in_flight_are_leased_and_unsettled() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 300, "", "batch = 40\nin_flight = 64").await;
    let daemon = setup.start();
    let api = daemon.client();
    // Nobody takes anything: it stops at the bound.
    let unsettled = "sitemapd_egress_unsettled{broker=\"nats\"}";
    wait("the bound", async || (metric(&daemon, unsettled).await == 64).then_some(())).await;
    let context = nats.context().await;
    let kept = async || context.get_stream("SITEMAPD").await.unwrap().cached_info().state.messages;
    wait("the stream", async || (kept().await == 64).then_some(())).await;
    let fetcher = Fetcher::start(nats.context().await, Duration::from_millis(1));
    let mut most = 0;
    while !is_done(&api).await {
        most = most.max(setup.leases());
        assert!(most <= 64, "{most} leases");
    }
    assert!(most > 0);
    assert_eq!(fetcher.seen.by_url().len(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_is_published_when_it_may_be_fetched_and_not_before() {
    let Some(nats) = Nats::start().await else { return };
    // Two of each host, half a second apart; the consumer checks each.
    let setup = Setup::new(&nats, 40, "host_delay = \"500ms\"", "").await;
    let daemon = setup.start();
    let api = daemon.client();
    let fetcher = Fetcher::start(nats.context().await, Duration::ZERO);
    wait("all results", async || is_done(&api).await.then_some(())).await;
    assert_eq!(fetcher.seen.by_url().len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_says_what_is_left_of_its_lease_when_it_is_published() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 40, "host_delay = \"2s\"", "lease = \"60s\"").await;
    let _daemon = setup.start();
    let fetcher = Fetcher::start(nats.context().await, Duration::ZERO);
    wait("all messages", async || (fetcher.seen.count() >= 40).then_some(())).await;
    for lease in fetcher.seen.all() {
        let time = |name: &str| lease[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let most = time("expires_at").duration_since(time("not_before")).as_secs_f64();
        let left = lease["expires_in"].as_f64().unwrap();
        // Times are told to the millisecond.
        assert!(left <= most + 0.01 && left > 7.5, "{lease}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_leaves_no_lease_that_is_not_in_the_stream() {
    let Some(nats) = Nats::start().await else { return };
    let setup =
        Setup::new(&nats, 200, "host_delay = \"10s\"", "batch = 100\nin_flight = 200").await;
    let mut daemon = setup.start();
    // The first of each host may be fetched, all others wait for their time.
    wait("a part", async || (egressed(&daemon, "acknowledged").await >= 20).then_some(())).await;
    assert!(setup.leases() > 20);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    let context = nats.context().await;
    let stream = context.get_stream("SITEMAPD").await.unwrap();
    assert_eq!(setup.leases() as u64, stream.cached_info().state.messages);
}
