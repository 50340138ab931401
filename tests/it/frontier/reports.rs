//! What clients report, and what becomes of it.

use std::time::Duration;

use jiff::SignedDuration;
use sitemapd::serve::frontier::proto::{PurgeUrlParams, UrlStatusRequest};

use super::*;
use crate::support::daemon::{DAY, HOUR, MINUTE};

async fn due(client: &mut Client, url: &str) -> u64 {
    let asked = UrlStatusRequest { url: url.to_owned(), ..Default::default() };
    let item: UrlItem = client.one("GetURLStatus", asked).await.unwrap();
    match item.item.unwrap() {
        url_item::Item::Known(known) => known.refetchable_from_date,
        url_item::Item::Discovered(_) => panic!("it is known"),
    }
}

fn now(daemon: &Daemon) -> u64 {
    u64::try_from(daemon.clock.now().as_second()).unwrap()
}

#[tokio::test]
async fn what_is_completed_is_never_served_again() {
    for text in [config(""), obeying()] {
        let (_world, daemon, mut client) = started(&text).await;
        client
            .put(vec![known(info("http://a.test/kept"), 0), discovered(info("http://a.test/"))])
            .await;
        assert_eq!(client.get(9, 0).await, ["http://a.test/"]);
        client.put(vec![known(info("http://a.test/"), 0)]).await;
        daemon.clock.advance(400 * DAY);
        assert!(client.get(9, 0).await.is_empty());
        assert_eq!(due(&mut client, "http://a.test/").await, 0);
        for url in ["http://a.test/", "http://a.test/kept"] {
            let why = daemon.url(url).await.why;
            assert!(why.contains("as was told over URLFrontier"), "{why}");
        }
        let stats = client.stats("").await;
        assert_eq!((stats.size, stats.counts["completed"]), (0, 2));
        // Until its client says otherwise.
        let soon = now(&daemon) + 5;
        client.put(vec![known(info("http://a.test/"), soon)]).await;
        daemon.clock.advance(400 * DAY);
        assert_eq!(client.get(9, 0).await, ["http://a.test/"]);
        assert_eq!(client.stats("").await.counts["completed"], 1);
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_date_is_obeyed_where_dates_are_and_orders_a_queue() {
    let (_world, daemon, mut client) = started(&obeying()).await;
    let later = now(&daemon) + 7_200;
    client
        .put(vec![
            discovered(info("http://a.test/now")),
            known(info("http://a.test/second"), 2),
            known(info("http://a.test/first"), 1),
            known(info("http://a.test/later"), later),
        ])
        .await;
    let expected = ["http://a.test/first", "http://a.test/second", "http://a.test/now"];
    assert_eq!(client.get(9, 0).await, expected);
    for url in &expected {
        client.put(vec![known(info(url), later + 60)]).await;
        assert_eq!(due(&mut client, url).await, later + 60);
    }
    daemon.clock.advance(2 * HOUR + MINUTE * 2);
    assert_eq!(client.get(9, 0).await.first().unwrap(), "http://a.test/later");
    daemon.stop().await;
}

#[tokio::test]
async fn a_date_is_a_floor_where_our_own_model_decides() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let urls = ["http://a.test/soon", "http://a.test/far"];
    client.put(urls.map(|url| discovered(info(url))).into()).await;
    assert_eq!(client.get(9, 0).await.len(), 2);
    let far = now(&daemon) + 3_600 * 24 * 1_000;
    let soon = now(&daemon) + 1;
    client.put(vec![known(info(urls[0]), soon), known(info(urls[1]), far)]).await;
    assert!(due(&mut client, urls[0]).await >= now(&daemon) + 3_600, "not before recrawl.min");
    assert_eq!(due(&mut client, urls[1]).await, far);
    daemon.stop().await;
}

#[tokio::test]
async fn metadata_is_replaced_by_each_report_and_served_with_the_url() {
    let (_world, daemon, mut client) = started(&obeying()).await;
    client.put(vec![discovered(saying("http://a.test/", &[("depth", "1"), ("seed", "x")]))]).await;
    let first = client.get_as(GetParams::default()).await.remove(0);
    assert_eq!(first.metadata["depth"].values, ["1"]);
    client.put(vec![known(saying("http://a.test/", &[("depth", "2")]), 1)]).await;
    client.put(vec![discovered(saying("http://a.test/", &[("depth", "9")]))]).await;
    let second = client.get_as(GetParams::default()).await.remove(0);
    assert_eq!(second.metadata["depth"].values, ["2"]);
    assert_eq!(second.metadata.len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn status_signature_and_date_of_change_reach_the_recrawl_model() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let url = "http://a.test/";
    client.put(vec![discovered(info(url))]).await;
    let told: [&[(&str, &str)]; 6] = [
        &[("fetch.statusCode", "200"), ("signature", "aa")],
        &[("fetch.statusCode", "200"), ("signature", "aa")],
        &[("fetch.statusCode", "200"), ("signature", "bb")],
        &[("fetch.statusCode", "200"), ("signatureChangeDate", "2026-11-01T00:00:00Z")],
        &[("fetch.statusCode", "200"), ("signatureChangeDate", "2099-01-01T00:00:00Z")],
        &[("fetch.statusCode", "503")],
    ];
    let expected = ["unknown", "unchanged", "changed", "unchanged", "changed", "failed"];
    for (said, outcome) in told.iter().zip(expected) {
        // With a lease and without one the report counts the same.
        if outcome != "unchanged" {
            daemon.clock.advance(400 * DAY);
            assert_eq!(client.get(9, 0).await, [url], "{outcome}");
        }
        client.put(vec![known(saying(url, said), now(&daemon) + 1)]).await;
        let view = daemon.store.url(None, url.parse().unwrap()).await.unwrap();
        assert_eq!(view.outcome.map(sitemapd::model::Outcome::as_str), Some(outcome), "{said:?}");
    }
    let view = daemon.store.url(None, url.parse().unwrap()).await.unwrap();
    assert_eq!((view.fetches, view.changes), (6, 2));
    assert_eq!(view.content_hash.as_deref(), Some("bb"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_that_asks_for_a_pause_gets_it_for_its_queue() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let urls = ["http://a.test/1", "http://a.test/2"];
    client.put(urls.map(|url| discovered(info(url))).into()).await;
    assert_eq!(client.get(1, 0).await, urls[..1]);
    let told = [("fetch.statusCode", "503"), ("protocol.retry-after", "90")];
    client.put(vec![known(saying(urls[0], &told), now(&daemon))]).await;
    daemon.clock.advance(std::time::Duration::from_secs(89));
    assert!(client.get(9, 0).await.is_empty());
    daemon.clock.advance(std::time::Duration::from_secs(2));
    assert!(client.get(9, 0).await.contains(&urls[1].to_owned()));
    daemon.stop().await;
}

#[tokio::test]
async fn a_url_that_is_never_reported_is_given_up_until_somebody_reports_it() {
    let (_world, daemon, mut client) = started(&obeying()).await;
    let url = "http://a.test/";
    client.put(vec![discovered(info(url))]).await;
    for delivery in 1..=8 {
        assert_eq!(client.get(1, 0).await, [url], "delivery {delivery}");
        daemon.clock.advance(std::time::Duration::from_secs(31));
    }
    assert!(client.get(1, 0).await.is_empty());
    let dead = daemon.store.dead(None, 10, None).await.unwrap().items;
    assert_eq!(dead.iter().map(|dead| dead.url.as_str()).collect::<Vec<_>>(), [url]);
    client.put(vec![known(info(url), 1)]).await;
    assert_eq!(client.get(1, 0).await, [url]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_report_settles_the_lease_of_whoever_has_it() {
    let (_world, daemon, mut client) = started(&config("")).await;
    client.put(vec![discovered(info("http://a.test/"))]).await;
    let leased = daemon.lease().await;
    assert_eq!(leased[0].url, "http://a.test/");
    client.put(vec![known(info("http://a.test/"), 0)]).await;
    assert_eq!(client.stats("").await.in_process, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn the_last_of_several_reports_in_one_stream_holds() {
    let (_world, daemon, mut client) = started(&obeying()).await;
    let url = "http://a.test/";
    let date = now(&daemon) + 50;
    let acks = client
        .put(vec![
            discovered(info(url)),
            known(info(url), date + 1),
            known(info(url), 0),
            known(saying(url, &[("last", "yes")]), date),
        ])
        .await;
    assert!(acks.iter().all(|(_, status)| *status == Ack::Ok));
    assert_eq!(due(&mut client, url).await, date);
    assert_eq!(client.stats("").await.counts["completed"], 0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_report_that_comes_too_late_settles_no_lease_in_the_figures() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let lines = async |name: &str| {
        let text = metrics_of(&daemon).await;
        let of_name = |line: &&str| line.starts_with(name);
        text.lines().filter(of_name).map(str::to_owned).collect::<Vec<_>>()
    };
    let [late, timely] = ["http://a.test/", "http://b.test/"];
    let held = GetParams { delay_requestable: 1, ..GetParams::default() };
    client.put(vec![discovered(info(late))]).await;
    daemon.clock.advance(MINUTE);
    assert_eq!(client.get_as(held.clone()).await.len(), 1);
    daemon.clock.advance(Duration::from_secs(2));
    client.put(vec![known(info(late), 0)]).await;
    let waited = "sitemapd_seen_to_leased_seconds";
    for (name, value) in [("_sum", 60), ("_count", 1)] {
        let line = format!("{waited}{name}{{crawl=\"default\"}} {value}");
        let said = lines(&format!("{waited}{name}")).await;
        assert!(said == [line.clone()] || said == [line + ".0"], "{said:?}");
    }
    let settled = ["sitemapd_leased_to_settled_seconds_count", "sitemapd_settlements_total"];
    for name in settled {
        assert_eq!(lines(name).await, [""; 0]);
    }
    assert_eq!(lines("sitemapd_leases_expired_total").await, ["sitemapd_leases_expired_total 1"]);

    client.put(vec![discovered(info(timely))]).await;
    assert_eq!(client.get_as(held).await.len(), 1);
    client.put(vec![known(info(timely), 0)]).await;
    for name in settled {
        let said = lines(name).await;
        assert!(said.len() == 1 && said[0].ends_with(" 1"), "{said:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn dates_are_those_of_the_clock_that_clients_see_however_it_was_stepped() {
    for step in [40, -40] {
        let (_world, daemon, mut client) = started(&obeying()).await;
        daemon.clock.step_wall(SignedDuration::from_hours(step));
        client.put(vec![discovered(info("http://a.test/new"))]).await;
        let later = now(&daemon) + 7_200;
        client.put(vec![known(info("http://a.test/later"), later)]).await;
        assert_eq!(due(&mut client, "http://a.test/later").await, later, "{step}");
        let purge = PurgeUrlParams { days: 1, ..Default::default() };
        assert_eq!(client.count("PurgeURLs", purge.clone()).await, 0, "{step}");
        assert_eq!(client.get(9, 0).await, ["http://a.test/new"], "{step}");
        daemon.clock.advance(2 * HOUR + MINUTE);
        assert!(client.get(9, 0).await.contains(&"http://a.test/later".to_owned()), "{step}");
        daemon.clock.advance(DAY);
        assert_eq!(client.count("PurgeURLs", purge).await, 2, "{step}");
        daemon.stop().await;
    }
}
