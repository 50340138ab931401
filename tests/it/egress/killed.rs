//! Either side is killed in the middle, and nothing is lost.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::PullConsumer;
use futures_util::StreamExt as _;

use super::consumer::Fetcher;
use super::server::Nats;
use super::{DEADLINE, Setup, egressed, is_done, metric, queue, text, wait, wait_for};

const SLOW: Duration = Duration::from_millis(4);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_the_server_is_killed() {
    let Some(mut nats) = Nats::start().await else { return };
    // No lease runs out while the test looks on: nothing may wait for that.
    let setup = Setup::new(&nats, 400, "", "batch = 25\nin_flight = 50").await;
    let daemon = setup.start();
    let api = daemon.client();
    // A consumer that is made while its stream is being made may never be given anything.
    daemon.hear("nats is there");
    let fetcher = Fetcher::start(nats.context().await, SLOW);
    for part in [100, 200] {
        wait("a part", async || (fetcher.seen.count() >= part).then_some(())).await;
        nats.kill();
        daemon.hear("nats is away");
        assert_eq!(metric(&daemon, "sitemapd_egress_up{broker=\"nats\"}").await, 0);
        text(&daemon, "/readyz").await;
        nats.again().await;
        nats.forget_consumer("fetchers").await;
        daemon.hear("nats is there");
    }
    // Each that was on its way to or from the server takes seconds, one after another; what
    // only a look at all leases finds, half a minute.
    let most = DEADLINE * 4;
    loop {
        // Counted before looking: what comes meanwhile may be the last.
        let before = fetcher.seen.count();
        if fetcher.seen.by_url().len() == 400 {
            break;
        }
        let has_more = async || (fetcher.seen.count() > before).then_some(());
        wait_for(most, "more URLs", has_more).await;
    }
    wait("all results", async || is_done(&api).await.then_some(())).await;
    assert!(metric(&daemon, "sitemapd_settlements_total{outcome=\"changed\"}").await >= 400);
    assert_eq!(metric(&daemon, "sitemapd_leases_expired_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_leased_while_the_server_is_away() {
    let Some(mut nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 50, "", "").await;
    nats.kill();
    let daemon = setup.start();
    daemon.hear("nats is away");
    assert_eq!(setup.leases(), 0);
    text(&daemon, "/readyz").await;
    nats.again().await;
    daemon.hear("nats is there");
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 50).then_some(()))
        .await;
    assert_eq!(setup.leases(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_the_daemon_is_killed() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 400, "", "batch = 25\nin_flight = 50\nlease = \"10s\"").await;
    let mut daemon = setup.start();
    daemon.hear("nats is there");
    let fetcher = Fetcher::start(nats.context().await, SLOW);
    for part in [100, 200] {
        wait("a part", async || (fetcher.seen.count() >= part).then_some(())).await;
        daemon.kill();
        setup.look.let_go();
        daemon = setup.start();
        assert!(setup.leases() <= 50);
    }
    let api = daemon.client();
    wait("all results", async || is_done(&api).await.then_some(())).await;
    // What was leased and not yet published has run its lease, and is due again
    // after the pause that follows one: a batch of each life at most.
    let seen = fetcher.seen.by_url();
    assert!(seen.len() >= 350, "{}", seen.len());
    assert_eq!(queue(&api).await["queued"], 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_daemon_held_is_in_the_queue_again_at_once() {
    let Some(nats) = Nats::start().await else { return };
    // One of each host may be fetched; all others wait, for longer than the test does.
    let setup = Setup::new(&nats, 200, "host_delay = \"60s\"", "in_flight = 100").await;
    let mut daemon = setup.start();
    wait("leases", async || (setup.leases() == 100).then_some(())).await;
    // One of each of its hosts, of which not all have had their turn.
    let hosts = "SELECT count(DISTINCT u.host_id) FROM leases l JOIN urls u ON u.id = l.url_id";
    let hosts = setup.look.number(hosts).unsigned_abs();
    let published = wait("messages", async || {
        let acknowledged = egressed(&daemon, "acknowledged").await;
        (acknowledged >= hosts && acknowledged == egressed(&daemon, "published").await)
            .then_some(acknowledged)
    })
    .await;
    assert!(published < 50, "{published}");
    daemon.kill();
    setup.look.let_go();
    let daemon = setup.start();
    daemon.hear("nats is there");
    // What is leased anew is of other hosts, and published as well.
    wait("room", async || (egressed(&daemon, "released").await == 100 - published).then_some(()))
        .await;
    assert_eq!(metric(&daemon, "sitemapd_leases_expired_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_come_while_the_daemon_is_down_are_settled_when_it_is_back() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 30, "", "").await;
    let mut daemon = setup.start();
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 30).then_some(()))
        .await;
    daemon.kill();
    let fetcher = Fetcher::start(nats.context().await, Duration::ZERO);
    wait("all URLs", async || (fetcher.seen.count() == 30).then_some(())).await;
    let daemon = setup.start();
    let api = daemon.client();
    wait("all results", async || is_done(&api).await.then_some(())).await;
    let all_results = async || egressed(&daemon, "result").await == fetcher.seen.reports();
    wait("their count", async || all_results().await.then_some(())).await;
    assert_eq!(egressed(&daemon, "published").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_were_on_their_way_when_a_connection_broke_come_again_soon() {
    let Some(nats) = Nats::start().await else { return };
    let setup = Setup::new(&nats, 3, "", "").await;
    let mut daemon = setup.start();
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 3).then_some(()))
        .await;
    daemon.kill();
    let context = nats.context().await;
    let fetcher = Fetcher::start(context.clone(), Duration::ZERO);
    let results = context.get_stream("SITEMAPD_RESULTS").await.unwrap();
    let consumer: PullConsumer = results.get_consumer("sitemapd").await.unwrap();
    // The broker has sent them to a daemon that is no more.
    let taken = consumer.batch().max_messages(3).expires(DEADLINE).messages().await.unwrap();
    assert_eq!(taken.count().await, 3);
    let broken = Instant::now();
    drop(fetcher);
    let daemon = setup.start();
    let api = daemon.client();
    wait("all results", async || is_done(&api).await.then_some(())).await;
    assert!(broken.elapsed() < Duration::from_secs(28), "{:?}", broken.elapsed());
}
