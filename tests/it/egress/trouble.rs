//! What comes back is wrong, or comes twice; and streams that are not there.

use std::cell::Cell;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{Context, stream};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::consumer::{Fetcher, consumer};
use super::server::Nats;
use super::{Setup, UP, egressed, is_done, left, metric, wait};
use crate::support::disk::Disk;
use crate::support::engine::Look;
use crate::support::process::Daemon;

/// The leases in the stream, without taking them as a fetcher would.
async fn published(context: &Context, count: usize) -> Vec<Value> {
    let consumer = consumer(context).await.unwrap();
    let batch = consumer.batch().max_messages(count).messages().await.unwrap();
    let messages: Vec<_> = batch.map(Result::unwrap).collect().await;
    messages.iter().map(|message| serde_json::from_slice(&message.payload).unwrap()).collect()
}

async fn report(context: &Context, text: &str) {
    let kept = context.publish("sitemapd.results", text.to_owned().into()).await.unwrap();
    kept.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_result_is_dropped_and_what_comes_twice_counts_once() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 3, "", "").await;
    let daemon = setup.start();
    let api = daemon.client();
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 3).then_some(()))
        .await;
    let context = nats.context().await;
    let leases = published(&context, 3).await;
    let result = |at: usize| json!({ "token": leases[at]["token"], "outcome": "changed" });
    for poison in ["", "no JSON", "{}", "[{\"token\":1}]", "{\"token\":\"x\",\"outcome\":\"so\"}"] {
        report(&context, poison).await;
    }
    assert_eq!(daemon.hear("is no result")["level"], "WARN");
    report(&context, &result(0).to_string()).await;
    report(&context, &result(0).to_string()).await;
    let list = json!([result(1), { "token": "f".repeat(47) + "0", "outcome": "gone" }]);
    report(&context, &list.to_string()).await;
    report(&context, &json!({ "results": [result(2)] }).to_string()).await;
    wait("all results", async || is_done(&api).await.then_some(())).await;
    wait("an empty stream", async || (left(&context).await == 0).then_some(())).await;
    assert_eq!(egressed(&daemon, "poison").await, 5);
    assert_eq!(egressed(&daemon, "result").await, 5);
    let of = |result: &str| format!("sitemapd_tokens_total{{call=\"settle\",result=\"{result}\"}}");
    assert_eq!(metric(&daemon, &of("ok")).await, 4);
    assert_eq!(metric(&daemon, &of("unknown")).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_result_of_a_list_costs_none_of_the_others() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 3, "", "").await;
    let daemon = setup.start();
    let context = nats.context().await;
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 3).then_some(()))
        .await;
    let leases = published(&context, 3).await;
    let mut list: Vec<_> = leases
        .iter()
        .map(|lease| json!({ "token": lease["token"], "outcome": "changed", "status": 200 }))
        .collect();
    list[1]["status"] = json!(0);
    report(&context, &json!(list).to_string()).await;
    let told = daemon.hear("is no result");
    assert_eq!(told["results"], 1, "{told}");
    assert!(told["why"].as_str().unwrap().contains("results[1].status"), "{told}");
    wait("the others", async || (setup.leases() == 1).then_some(())).await;
    wait("an empty stream", async || (left(&context).await == 0).then_some(())).await;
    assert_eq!(egressed(&daemon, "result").await, 2);
    assert_eq!(egressed(&daemon, "poison").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_lease_reaches_the_stream_that_is_there() {
    let Some(nats) = Nats::start().await else { return };
    let context = nats.context().await;
    let kept_for = async || {
        let stream = context.get_stream("SITEMAPD").await.ok()?;
        Some(stream.cached_info().config.max_age)
    };
    for (lease, seconds) in [("10s", 10), ("10m", 600), ("30s", 30)] {
        let setup = Setup::new(&nats, 1, "", &format!("lease = \"{lease}\"")).await;
        let _daemon = setup.start();
        let wanted = Duration::from_secs(seconds);
        wait("its max_age", async || (kept_for().await? == wanted).then_some(())).await;
    }
    let setup = Setup::new(&nats, 1, "", "lease = \"10m\"\ncreate = false").await;
    let daemon = setup.start();
    let told = daemon.hear("not as configured");
    assert_eq!((told["level"].as_str(), told["max_age"].as_str()), (Some("WARN"), Some("30s")));
    assert_eq!(kept_for().await, Some(Duration::from_secs(30)));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_subject_is_added_to_a_stream_that_is_there() {
    let Some(nats) = Nats::start().await else { return };
    let context = nats.context().await;
    // What is kept for others after it was read is not cut short.
    let archive = stream::Config {
        name: "SITEMAPD".to_owned(),
        subjects: vec!["old.urls".to_owned()],
        max_age: Duration::from_secs(86_400),
        ..stream::Config::default()
    };
    context.create_stream(archive).await.unwrap();
    let setup = Setup::new(&nats, 2, "", "").await;
    let daemon = setup.start();
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 2).then_some(()))
        .await;
    let config = context.get_stream("SITEMAPD").await.unwrap().cached_info().config.clone();
    assert_eq!(config.subjects, ["old.urls", "sitemapd.urls"]);
    assert_eq!(config.max_age, Duration::from_secs(86_400));
    drop(daemon);
    // The consumer is of the old subject still.
    let setup = Setup::new(&nats, 1, "", "results = \"other.results\"").await;
    let told = setup.start().hear("the consumer gets nothing");
    assert_eq!(told["found"], "sitemapd.results", "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_a_lease_that_is_over_is_stale_and_taken_off() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 1, "", "").await;
    let daemon = setup.start();
    let api = daemon.client();
    wait("a message", async || (egressed(&daemon, "acknowledged").await == 1).then_some(())).await;
    let context = nats.context().await;
    let token = published(&context, 1).await[0]["token"].clone();
    let released: Value = api.post("/v1/release", &json!({ "tokens": [token] })).await.unwrap();
    assert_eq!(released["results"][0]["result"], "ok");
    report(&context, &json!({ "token": token, "outcome": "changed" }).to_string()).await;
    let stale = "sitemapd_tokens_total{call=\"settle\",result=\"stale\"}";
    wait("its answer", async || (metric(&daemon, stale).await == 1).then_some(())).await;
    wait("an empty stream", async || (left(&context).await == 0).then_some(())).await;
    // The URL itself is on its way again.
    wait("a message", async || (egressed(&daemon, "acknowledged").await == 2).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_missing_is_named_and_not_made_unless_it_may_be() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 5, "", "create = false\nsubject = \"s.{crawl}.{host}\"").await;
    let daemon = setup.start();
    let told = daemon.hear("nats is away")["error"].as_str().unwrap().to_owned();
    assert!(told.contains("no stream SITEMAPD: make it with the subject s.*.*"), "{told}");
    assert_eq!(setup.leases(), 0);
    let context = nats.context().await;
    for (name, subject) in [("SITEMAPD", "s.>"), ("SITEMAPD_RESULTS", "sitemapd.results")] {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..stream::Config::default()
        };
        context.create_stream(config).await.unwrap();
    }
    daemon.hear("nats is there");
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 5).then_some(()))
        .await;
    let stream = context.get_stream("SITEMAPD").await.unwrap();
    let first = stream.get_raw_message(1).await.unwrap();
    assert!(first.subject.starts_with("s.default.h"), "{}", first.subject);
    assert!(first.subject.ends_with("_test"), "{}", first.subject);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crawl_that_there_is_not_is_named_once_and_holds_up_no_other() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 40, "", "batch = 5\ncrawls = [\"lost\", \"default\"]").await;
    let daemon = setup.start();
    assert_eq!(daemon.hear("there is no crawl of that name")["crawl"], "lost");
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 40).then_some(()))
        .await;
    daemon.signal("TERM");
    let heard = daemon.hear_all("stopped");
    assert!(!heard.iter().any(|event| event.to_string().contains("of that name")), "{heard:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_made_by_hand_is_asked_for_what_it_allows() {
    let Some(nats) = Nats::start().await else { return };
    let context = nats.context().await;
    let config = stream::Config {
        name: "SITEMAPD_RESULTS".to_owned(),
        subjects: vec!["sitemapd.results".to_owned()],
        retention: stream::RetentionPolicy::WorkQueue,
        ..stream::Config::default()
    };
    let results = context.create_stream(config).await.unwrap();
    // Somebody's own, which gives less at a time, and has nobody wait for as long, as the
    // daemon would ask for.
    let consumer = pull::Config {
        durable_name: Some("sitemapd".to_owned()),
        max_expires: Duration::from_secs(1),
        max_batch: 10,
        ..pull::Config::default()
    };
    results.create_consumer(consumer).await.unwrap();
    let setup = Setup::new(&nats, 40, "", "in_flight = 10").await;
    let daemon = setup.start();
    let _fetcher = Fetcher::start(context, Duration::ZERO);
    let api = daemon.client();
    wait("all results", async || is_done(&api).await.then_some(())).await;
    assert_eq!(metric(&daemon, UP).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_takes_nothing_is_not_there_and_gets_one_url_at_a_time() {
    let Some(nats) = Nats::start().await else { return };
    let context = nats.context().await;
    let mut config = stream::Config {
        name: "SITEMAPD".to_owned(),
        subjects: vec!["sitemapd.urls".to_owned()],
        max_messages: 1,
        discard: stream::DiscardPolicy::New,
        ..stream::Config::default()
    };
    context.create_stream(config.clone()).await.unwrap();
    context.publish("sitemapd.urls", "another's".into()).await.unwrap().await.unwrap();
    let setup = Setup::new(&nats, 40, "", "").await;
    let daemon = setup.start();
    let told = daemon.hear("nats takes nothing")["error"].as_str().unwrap().to_owned();
    assert!(told.contains("maximum messages exceeded"), "{told}");
    let first = egressed(&daemon, "published").await;
    let tried = wait("further sessions", async || {
        assert_eq!(metric(&daemon, UP).await, 0);
        let tried = egressed(&daemon, "published").await - first;
        (tried >= 3).then_some(tried)
    });
    let tried = tried.await;
    assert!(tried < 10, "{tried}");
    assert!(setup.leases() <= 1);
    config.max_messages = 1_000;
    context.update_stream(config).await.unwrap();
    daemon.hear("nats is there");
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 40).then_some(()))
        .await;
    assert_eq!(metric(&daemon, UP).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_for_the_stream_waits_and_is_no_refusal() {
    let Some(nats) = Nats::start().await else { return };
    let config = stream::Config {
        name: "SITEMAPD".to_owned(),
        subjects: vec!["sitemapd.urls".to_owned()],
        max_message_size: 100,
        ..stream::Config::default()
    };
    nats.context().await.create_stream(config).await.unwrap();
    let setup = Setup::new(&nats, 40, "", "").await;
    let daemon = setup.start();
    let told = daemon.hear("too large");
    assert_eq!(told["level"], "WARN");
    assert!(told["url"].as_str().unwrap().starts_with("http://h"), "{told}");
    assert!(told["bytes"].as_u64().unwrap() > 100, "{told}");
    wait("all to be put off", async || {
        let is_put_off = egressed(&daemon, "released").await == 40;
        is_put_off.then_some(())
    })
    .await;
    assert_eq!(egressed(&daemon, "published").await, 40);
    assert_eq!(metric(&daemon, UP).await, 1);
    assert!(is_done(&daemon.client()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_nothing_is_said_once_and_the_broker_is_left_alone() {
    let Some(mut nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 1, "", "").await;
    let Look::File(file) = &setup.look else { return };
    let Some(disk) = Disk::below(file.parent().unwrap()) else { return };
    nats.kill();
    let daemon = Daemon::start_on(&setup.config, Some(&disk));
    daemon.hear("nats is away");
    disk.fill(true);
    nats.again().await;
    daemon.hear("nats is there");
    daemon.hear("the store takes no leases");
    let began = Instant::now();
    // Each look is a client, too.
    let looks = Cell::new(0);
    let others = async || {
        looks.set(looks.get() + 1);
        nats.clients().await - looks.get()
    };
    let first = others().await;
    wait("further sessions", async || (others().await >= first + 3).then_some(())).await;
    assert!(began.elapsed() > Duration::from_millis(1_500), "{:?}", began.elapsed());
    disk.fill(false);
    let heard = daemon.hear_all("the store takes leases");
    let told = heard.iter().filter(|event| event.to_string().contains("nats"));
    assert_eq!(told.count(), 1, "{heard:#?}");
    wait("the message", async || (egressed(&daemon, "acknowledged").await == 1).then_some(()))
        .await;
}
