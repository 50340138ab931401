//! What another frontier forgets when it starts again.

use std::time::Duration;

use sitemapd::serve::frontier::proto::{
    Active, BlockQueueParams, Boolean, CrawlLimitParams, Empty, Local, QueueDelayParams,
};

use super::*;

#[tokio::test]
async fn leases_delays_blocks_limits_and_the_switch_survive_a_restart() {
    let text = config("[politeness]\nhost_delay = \"1s\"\n");
    let (world, daemon, mut client) = started(&text).await;
    let mut items = Vec::new();
    for host in ["leased", "slow", "blocked", "full"] {
        items.extend((0..3).map(|n| discovered(info(&format!("http://{host}.test/{n}")))));
    }
    items.push(known(info("http://full.test/done"), 0));
    client.put(items).await;
    let key = |host: &str| format!("{host}.test");
    let slow = QueueDelayParams { key: key("slow"), delay_requestable: 600, ..Default::default() };
    client.one::<_, Empty>("SetDelay", slow).await.unwrap();
    let blocked = BlockQueueParams { key: key("blocked"), time: u64::MAX, ..Default::default() };
    client.one::<_, Empty>("BlockQueueUntil", blocked).await.unwrap();
    let full = CrawlLimitParams { key: key("full"), limit: 1, ..Default::default() };
    client.one::<_, Empty>("SetCrawlLimit", full).await.unwrap();
    let get = GetParams { max_urls_per_queue: 1, delay_requestable: 300, ..Default::default() };
    let mut first: Vec<_> =
        client.get_as(get.clone()).await.into_iter().map(|info| info.url).collect();
    first.sort();
    assert_eq!(first, ["http://leased.test/0", "http://slow.test/0"]);
    drop(client);
    daemon.stop().await;

    let daemon = world.start(&text).await;
    let mut client = Client::of(&daemon).await;
    daemon.clock.advance(Duration::from_secs(60));
    assert!(client.get_as(get).await.is_empty(), "one of each is still in process");
    assert_eq!(client.get(2, 0).await, ["http://leased.test/1"], "the others wait, or are held");
    client.one::<_, Empty>("SetActive", Active { state: false, local: false }).await.unwrap();
    drop(client);
    daemon.stop().await;

    let daemon = world.start(&text).await;
    let mut client = Client::of(&daemon).await;
    let active: Boolean = client.one("GetActive", Local::default()).await.unwrap();
    assert!(!active.state);
    client.one::<_, Empty>("SetActive", Active { state: true, local: false }).await.unwrap();
    daemon.clock.advance(Duration::from_secs(600));
    let mut served = client.get(1, 0).await;
    served.sort();
    assert_eq!(served, ["http://leased.test/0", "http://slow.test/0"], "in their places again");
    daemon.stop().await;
}

#[tokio::test]
async fn a_delay_of_a_day_survives_a_restart() {
    let text = config("[politeness]\nhost_delay = \"1s\"\n");
    let (world, daemon, mut client) = started(&text).await;
    let of = |n| discovered(info(&format!("http://slow.test/{n}")));
    client.put((0..2).map(of).collect()).await;
    let delay_requestable = 86_400;
    let key = "slow.test".to_owned();
    let slow = QueueDelayParams { key, delay_requestable, ..Default::default() };
    client.one::<_, Empty>("SetDelay", slow).await.unwrap();
    assert_eq!(client.get(1, 0).await, ["http://slow.test/0"]);
    drop(client);
    daemon.stop().await;

    let daemon = world.start(&text).await;
    let mut client = Client::of(&daemon).await;
    daemon.clock.advance(Duration::from_secs(12 * 3_600));
    assert!(client.get(1, 0).await.is_empty(), "half of it is left");
    daemon.clock.advance(Duration::from_secs(12 * 3_600));
    assert_eq!(client.get(1, 0).await.len(), 1);
    daemon.stop().await;
}
