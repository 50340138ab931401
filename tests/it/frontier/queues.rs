//! Queues: names, turns, limits, delays, blocks, crawls.

use std::time::Duration;

use sitemapd::serve::frontier::proto::{
    Active, BlockQueueParams, Boolean, CrawlLimitParams, DeleteCrawlMessage, Empty, Local,
    Pagination, PurgeUrlParams, QueueDelayParams, QueueList,
};

use super::*;
use crate::support::daemon::{DAY, MINUTE};

fn delay(key: &str, seconds: u32) -> QueueDelayParams {
    QueueDelayParams { key: key.to_owned(), delay_requestable: seconds, ..Default::default() }
}

fn block(key: &str, time: u64) -> BlockQueueParams {
    BlockQueueParams { key: key.to_owned(), time, ..Default::default() }
}

async fn names(client: &mut Client, include_inactive: bool) -> Vec<String> {
    let page = Pagination { include_inactive, ..Default::default() };
    client.one::<_, QueueList>("ListQueues", page).await.unwrap().values
}

#[tokio::test]
async fn a_queue_is_named_by_its_host_unless_a_client_names_another() {
    let (_world, daemon, mut client) = started(&config("")).await;
    client
        .put(vec![
            discovered(info("http://gac.icann.test?language_id=9")),
            discovered(info("https://gac.icann.test:8443/x")),
            discovered(keyed("https://www.example.test/", "www.example.test")),
            discovered(keyed("https://www.example.test/", "example.test")),
            discovered(info("http://[2001:db8::1]:81/")),
        ])
        .await;
    let all = ["[2001:db8::1]", "example.test", "gac.icann.test", "www.example.test"];
    assert_eq!(names(&mut client, false).await, all);
    assert_eq!(client.stats("gac.icann.test").await.size, 2);
    assert_eq!(client.stats("nowhere.test").await.size, 0);
    let infos = client.get_as(GetParams::default()).await;
    let mut served: Vec<_> = infos.iter().map(|i| (i.key.as_str(), i.url.as_str())).collect();
    served.sort_unstable();
    // The same URL under two keys is two URLs, and each is as it was pushed.
    assert_eq!(
        served,
        [
            ("[2001:db8::1]", "http://[2001:db8::1]:81/"),
            ("example.test", "https://www.example.test/"),
            ("gac.icann.test", "http://gac.icann.test?language_id=9"),
            ("www.example.test", "https://www.example.test/"),
        ]
    );
    assert!(infos.iter().all(|info| info.crawl_id == "DEFAULT"));
    daemon.clock.advance(Duration::from_secs(1));
    assert_eq!(client.get(0, 0).await, ["https://gac.icann.test:8443/x"], "one serving at a time");
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_client_pushes_with_tracking_parameters_is_a_url_of_its_own() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let [page, tracked] = ["http://a.test/p", "http://a.test/p?utm_source=x"];
    client.put(vec![discovered(info(page))]).await;
    client.put(vec![discovered(info(tracked))]).await;
    assert_eq!(client.stats("a.test").await.size, 2);
    daemon.stop().await;
}

#[tokio::test]
async fn no_more_of_a_queue_are_in_process_than_a_client_says() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let urls: Vec<_> = (0..5).map(|n| format!("http://a.test/{n}")).collect();
    client.put(urls.iter().map(|url| discovered(info(url))).collect()).await;
    assert_eq!(client.get(2, 0).await, urls[..2]);
    assert!(client.get(2, 0).await.is_empty());
    assert_eq!(client.stats("a.test").await.in_process, 2);
    client.put(vec![known(info(&urls[0]), 0)]).await;
    assert_eq!(client.get(2, 0).await, urls[2..3]);
    // Those that are held come back when their time is over, to their places.
    daemon.clock.advance(Duration::from_secs(31));
    assert_eq!(client.get(3, 0).await, urls[1..4]);
    // What is removed is not in process any more, whoever has it.
    let queue = QueueWithinCrawlParams { key: "a.test".to_owned(), ..Default::default() };
    assert_eq!(client.count("DeleteQueue", queue).await, 5);
    client.put(vec![discovered(info(&urls[4]))]).await;
    assert_eq!(client.get(1, 0).await, urls[4..]);
    // Leases of our own fetchers count as well.
    client.put(vec![discovered(info(&urls[3]))]).await;
    assert_eq!(daemon.lease().await.len(), 1);
    client.put(vec![discovered(info(&urls[2]))]).await;
    assert!(client.get(2, 0).await.is_empty());
    assert_eq!(client.get(3, 0).await, urls[2..3]);
    daemon.stop().await;
}

#[tokio::test]
async fn queues_take_turns_and_no_more_are_served_than_asked_for() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let mut items = Vec::new();
    for host in ["a", "b", "c"] {
        items.extend((0..3).map(|n| discovered(info(&format!("http://{host}.test/{n}")))));
    }
    client.put(items).await;
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let served = client.get(1, 1).await;
        assert_eq!(served.len(), 1);
        hosts.push(served[0][..13].to_owned());
    }
    hosts.sort();
    assert_eq!(hosts, ["http://a.test", "http://b.test", "http://c.test"]);
    assert_eq!(client.get(2, 2).await.len(), 2, "one more of two queues");
    daemon.stop().await;
}

#[tokio::test]
async fn a_delay_lies_between_two_servings_of_a_queue() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let items: Vec<_> = (0..6)
        .map(|n| discovered(info(&format!("http://{}.test/{n}", ["a", "b"][n % 2]))))
        .collect();
    client.put(items).await;
    client.one::<_, Empty>("SetDelay", delay("a.test", 60)).await.unwrap();
    client.one::<_, Empty>("SetDelay", delay("", 5)).await.unwrap();
    assert_eq!(client.get(1, 0).await.len(), 2);
    assert!(client.get(9, 0).await.is_empty());
    daemon.clock.advance(Duration::from_secs(6));
    assert_eq!(client.get(9, 0).await, ["http://b.test/3", "http://b.test/5"]);
    daemon.clock.advance(Duration::from_secs(55));
    // The one that was held has come back meanwhile.
    let of_a = GetParams {
        key: "a.test".to_owned(),
        item: Some(get_params::Item::CrawlId(String::new())),
        ..Default::default()
    };
    assert_eq!(client.get_as(of_a).await.len(), 3);
    daemon.stop().await;
}

#[tokio::test]
async fn a_blocked_queue_and_a_stopped_frontier_serve_nothing() {
    let (_world, daemon, mut client) = started(&config("")).await;
    client.put(vec![discovered(info("http://a.test/")), discovered(info("http://b.test/"))]).await;
    let soon = u64::try_from(daemon.clock.now().as_second()).unwrap() + 90;
    client.one::<_, Empty>("BlockQueueUntil", block("a.test", soon)).await.unwrap();
    assert_eq!(names(&mut client, false).await, ["b.test"]);
    assert_eq!(names(&mut client, true).await, ["a.test", "b.test"]);
    client.one::<_, Empty>("SetActive", Active { state: false, local: false }).await.unwrap();
    assert!(client.get(1, 0).await.is_empty());
    let active: Boolean = client.one("GetActive", Local::default()).await.unwrap();
    assert!(!active.state);
    client.one::<_, Empty>("SetActive", Active { state: true, local: true }).await.unwrap();
    assert_eq!(client.get(1, 0).await, ["http://b.test/"]);
    // Fetchers of ours are held back too.
    assert!(daemon.lease().await.is_empty());
    daemon.clock.advance(Duration::from_secs(91));
    let mut served = client.get(1, 0).await;
    served.sort();
    assert_eq!(served, ["http://a.test/", "http://b.test/"]);
    // 0 lifts a block.
    client.put(vec![discovered(info("http://c.test/"))]).await;
    client.one::<_, Empty>("BlockQueueUntil", block("c.test", u64::MAX)).await.unwrap();
    assert!(client.get(1, 0).await.is_empty());
    client.one::<_, Empty>("BlockQueueUntil", block("c.test", 0)).await.unwrap();
    assert_eq!(client.get(1, 0).await, ["http://c.test/"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_queue_that_has_its_limit_of_completed_urls_serves_no_more() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let limit =
        |key: &str, limit| CrawlLimitParams { key: key.to_owned(), limit, ..Default::default() };
    let unknown = client.one::<_, Empty>("SetCrawlLimit", limit("a.test", 1)).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let urls: Vec<_> = (0..4).map(|n| format!("http://a.test/{n}")).collect();
    client.put(urls.iter().map(|url| discovered(info(url))).collect()).await;
    client.one::<_, Empty>("SetCrawlLimit", limit("a.test", 1)).await.unwrap();
    assert_eq!(client.get(1, 0).await, urls[..1]);
    client.put(vec![known(info(&urls[0]), 0)]).await;
    assert_eq!(client.stats("a.test").await.counts["completed"], 1);
    assert!(client.get(9, 0).await.is_empty());
    client.one::<_, Empty>("SetCrawlLimit", limit("a.test", 0)).await.unwrap();
    assert_eq!(client.get(9, 0).await, urls[1..]);
    daemon.stop().await;
}

#[tokio::test]
async fn crawls_are_kept_apart_and_can_be_removed() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let of = |crawl: &str| UrlInfo { crawl_id: crawl.to_owned(), ..info("http://a.test/") };
    let acks = client
        .put(vec![discovered(of("")), discovered(of("DEFAULT")), discovered(of("second"))])
        .await;
    let statuses: Vec<_> = acks.into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses, [Ack::Ok, Ack::Skipped, Ack::Ok]);
    let crawls = |list: StringList| list.values;
    assert_eq!(
        crawls(client.one("ListCrawls", Local::default()).await.unwrap()),
        ["DEFAULT", "second"]
    );
    let get = |crawl: &str, key: &str| GetParams {
        key: key.to_owned(),
        item: Some(get_params::Item::CrawlId(crawl.to_owned())),
        ..Default::default()
    };
    assert!(client.get_as(get("third", "")).await.is_empty());
    let second = client.get_as(get("second", "a.test")).await;
    assert_eq!((second.len(), second[0].crawl_id.as_str()), (1, "second"));
    let loose = GetParams { key: "a.test".to_owned(), ..Default::default() };
    assert!(client.get_as(loose).await.is_empty(), "a key is one of a crawl");
    let of_second = "{crawl=\"second\"";
    let waited = format!("sitemapd_seen_to_leased_seconds_count{of_second}");
    assert!(metrics_of(&daemon).await.contains(&waited));
    let gone = DeleteCrawlMessage { value: "second".to_owned(), local: false };
    assert_eq!(client.count("DeleteCrawl", gone).await, 1);
    assert_eq!(crawls(client.one("ListCrawls", Local::default()).await.unwrap()), ["DEFAULT"]);
    assert_eq!(client.get_as(get("", "")).await.len(), 1);
    // Two counts of the store lack it.
    metrics_of(&daemon).await;
    daemon.clock.advance(MINUTE);
    let metrics = metrics_of(&daemon).await;
    assert!(!metrics.contains(of_second), "{metrics}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_queue_and_what_is_old_can_be_removed() {
    let (_world, daemon, mut client) = started(&config("")).await;
    client.put(vec![discovered(info("http://a.test/old"))]).await;
    daemon.clock.advance(3 * DAY);
    client
        .put(vec![
            discovered(info("http://a.test/")),
            known(info("http://b.test/1"), 0),
            discovered(keyed("http://b.test/2", "mine")),
        ])
        .await;
    let purge = |days| PurgeUrlParams { days, ..Default::default() };
    assert_eq!(client.count("PurgeURLs", purge(4)).await, 0);
    assert_eq!(client.count("PurgeURLs", purge(2)).await, 1);
    let queue = |key: &str| QueueWithinCrawlParams { key: key.to_owned(), ..Default::default() };
    assert_eq!(client.stats("b.test").await.counts["completed"], 1);
    assert_eq!(client.count("DeleteQueue", queue("b.test")).await, 1);
    assert_eq!(client.stats("b.test").await.counts["completed"], 0);
    assert_eq!(client.count("DeleteQueue", queue("mine")).await, 1);
    assert_eq!(client.get(9, 0).await, ["http://a.test/"]);
    let all = client.one::<_, Long>("DeleteQueue", queue("")).await.unwrap_err();
    assert_eq!(all.code(), tonic::Code::InvalidArgument);
    // What was removed can be found again.
    let acks = client.put(vec![discovered(info("http://b.test/1"))]).await;
    assert_eq!(acks[0].1, Ack::Ok);
    daemon.stop().await;
}

#[tokio::test]
async fn a_key_with_control_characters_names_no_queue() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let spelled = "http://a.test/\0b";
    let mut elsewhere = info("http://a.test/c");
    elsewhere.crawl_id = "a\0crawl".to_owned();
    let acks = client
        .put(vec![
            discovered(keyed("http://a.test/a", "a\0key")),
            discovered(info(spelled)),
            discovered(elsewhere),
            discovered(keyed("http://a.test/d", "a key")),
        ])
        .await;
    let acks: Vec<_> = acks.into_iter().map(|(_, ack)| ack).collect();
    assert_eq!(acks, [Ack::Skipped, Ack::Skipped, Ack::Skipped, Ack::Ok]);
    let refused = client.one::<_, Empty>("SetDelay", delay("a\0key", 1)).await.unwrap_err();
    assert!(refused.message().contains("control characters"), "{refused:?}");
    assert_eq!(names(&mut client, true).await, ["a key"]);
    daemon.stop().await;
}
