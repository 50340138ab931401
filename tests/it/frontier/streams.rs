//! What goes in and what comes out.

use sitemapd::serve::frontier::proto::{
    BatchAck, CountUrlParams, DiscoveredBatch, ListUrlParams, UrlStatusRequest,
};
use tokio::sync::mpsc;

use super::*;
use crate::support::PATIENCE;

#[tokio::test]
async fn what_is_found_is_served_once_and_what_is_known_is_skipped() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let named = UrlItem { id: "7".to_owned(), ..discovered(info("http://a.test/2")) };
    let acks = client.put(vec![discovered(info("http://a.test/1")), named]).await;
    assert_eq!(acks, [("http://a.test/1".to_owned(), Ack::Ok), ("7".to_owned(), Ack::Ok)]);
    let again = client.put(vec![discovered(info("http://a.test/1"))]).await;
    assert_eq!(again, [("http://a.test/1".to_owned(), Ack::Skipped)]);
    assert_eq!(client.get(0, 0).await, ["http://a.test/1", "http://a.test/2"]);
    assert!(client.get(0, 0).await.is_empty(), "they are held");
    daemon.stop().await;
}

#[tokio::test]
async fn what_cannot_be_a_url_or_says_nothing_is_skipped_and_the_stream_goes_on() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let long = "x".repeat(3_000);
    let bad = [
        UrlItem { id: "none".to_owned(), ..UrlItem::default() },
        discovered(info("")),
        discovered(info("no url")),
        discovered(info("ftp://a.test/")),
        discovered(info("http://user:secret@a.test/")),
        discovered(info(&format!("http://a.test/{long}"))),
        discovered(keyed("http://a.test/", &"k".repeat(256))),
        discovered(UrlInfo { crawl_id: "c".repeat(300), ..info("http://a.test/") }),
        discovered(saying("http://a.test/", &[("big", &"v".repeat(70_000))])),
        known(keyed("http://a.test/", &"é".repeat(256)), 1),
    ];
    let count = bad.len();
    let good = discovered(keyed("http://a.test/", &"k".repeat(255)));
    let acks = client.put(bad.into_iter().chain([good]).collect()).await;
    let skipped = acks.iter().filter(|(_, status)| *status == Ack::Skipped).count();
    assert_eq!((skipped, acks.len()), (count, count + 1), "{acks:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_acknowledgement_comes_while_the_stream_is_open() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let (sender, receiver) = mpsc::channel(1);
    let items = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    });
    let path = client.ready("PutURLs").await;
    let codec: ProstCodec<UrlItem, AckMessage> = ProstCodec::new();
    let mut acks =
        client.grpc.streaming(Request::new(items), path, codec).await.unwrap().into_inner();
    for number in 0..3 {
        sender.send(discovered(info(&format!("http://a.test/{number}")))).await.unwrap();
        let ack = acks.message().await.unwrap().unwrap();
        assert_eq!(ack.status(), Ack::Ok);
    }
    // The daemon stops: an open stream is told, and holds nobody up.
    let stopping = tokio::time::timeout(PATIENCE, daemon.stop());
    let (stopped, told) = tokio::join!(stopping, acks.message());
    assert!(stopped.is_ok());
    assert_eq!(told.unwrap_err().code(), tonic::Code::Unavailable);
}

#[tokio::test]
async fn a_dump_that_a_stop_cuts_does_not_end_as_if_it_were_whole() {
    let (_world, daemon, mut client) = started(&config("")).await;
    // More than one page, of which buffers on the way hold a part.
    let text = "x".repeat(2_000);
    let items = (0..1_500)
        .map(|n| discovered(saying(&format!("http://h{}.test/{n}", n % 50), &[("t", &text)])));
    client.put(items.collect()).await;
    let path = client.ready("ListURLs").await;
    let codec: ProstCodec<ListUrlParams, UrlItem> = ProstCodec::new();
    let all = Request::new(ListUrlParams { size: u32::MAX, ..Default::default() });
    let mut dump = client.grpc.server_streaming(all, path, codec).await.unwrap().into_inner();
    dump.message().await.unwrap().unwrap();
    let reading = async {
        let mut read = 1;
        loop {
            match dump.message().await {
                Ok(Some(_)) => read += 1,
                Ok(None) => return (read, None),
                Err(status) => return (read, Some(status.code())),
            }
        }
    };
    let stopping = tokio::time::timeout(PATIENCE, daemon.stop());
    let (stopped, (read, told)) = tokio::join!(stopping, reading);
    assert!(stopped.is_ok());
    assert!(read < 1_500, "the stop came too late to cut it");
    assert_eq!(told, Some(tonic::Code::Unavailable));
}

#[tokio::test]
async fn a_batch_has_a_status_for_each_url_and_an_empty_one_is_an_answer_too() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let batch = |id: &str, urls: &[&str]| DiscoveredBatch {
        id: id.to_owned(),
        items: urls.iter().map(|url| info(url)).collect(),
    };
    let batches = [
        batch("probe", &[]),
        batch("a", &["http://a.test/1", "http://a.test/2", "http://a.test/1", "nonsense"]),
    ];
    let acks: Vec<BatchAck> = client
        .stream("PutDiscovered", futures_util::stream::iter(batches))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!((acks[0].id.as_str(), acks[0].statuses.len()), ("probe", 0));
    assert_eq!(acks[1].id, "a");
    let expected = [Ack::Ok, Ack::Ok, Ack::Skipped, Ack::Skipped].map(i32::from);
    assert_eq!(acks[1].statuses, expected);
    daemon.stop().await;
}

#[tokio::test]
async fn thousands_go_in_and_come_out_once_each() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let urls: Vec<String> = (0..5_000).map(|n| format!("http://h{}.test/{n}", n % 50)).collect();
    let items = urls.iter().map(|url| discovered(info(url))).collect();
    let acks = client.put(items).await;
    assert!(acks.iter().all(|(_, status)| *status == Ack::Ok));
    assert_eq!(acks.len(), 5_000);
    let mut served = client.get(0, 0).await;
    served.sort();
    let mut expected = urls;
    expected.sort();
    assert_eq!(served, expected);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sender_that_is_faster_than_the_store_is_held_back_and_not_cut_off() {
    let (_world, daemon, mut client) = started(&config("")).await;
    // One at a time, so that each is a frame of its own.
    let items = futures_util::stream::iter(0..15_000).then(|number| async move {
        tokio::task::yield_now().await;
        discovered(info(&format!("http://h{}.test/{number}", number % 100)))
    });
    let acks: Vec<Result<AckMessage, Status>> = client.stream("PutURLs", items).await;
    let refused = acks.iter().find_map(|ack| ack.as_ref().err());
    assert!(refused.is_none(), "{refused:?}");
    assert_eq!(acks.len(), 15_000);
    daemon.stop().await;
}

#[tokio::test]
async fn a_dump_that_is_taken_in_elsewhere_is_what_it_was() {
    let (_world, daemon, mut client) = started(&obeying()).await;
    let far = 2_000_000_000;
    client
        .put(vec![
            discovered(saying("http://a.test/new", &[("depth", "3")])),
            known(info("http://a.test/never"), 0),
            known(info("http://b.test/later"), far),
            discovered(keyed("http://b.test/", "mine")),
        ])
        .await;
    let all = ListUrlParams { size: 1_000, ..Default::default() };
    let dump: Vec<UrlItem> = client.many("ListURLs", all.clone()).await;
    assert_eq!(dump.len(), 4);

    let (_other, twin, mut second) = started(&obeying()).await;
    let acks = second.put(dump.clone()).await;
    assert!(acks.iter().all(|(_, status)| *status == Ack::Ok), "{acks:?}");
    let restored: Vec<UrlItem> = second.many("ListURLs", all).await;
    assert_eq!(restored, dump);
    let mut served = second.get(0, 0).await;
    served.sort();
    assert_eq!(served, ["http://a.test/new", "http://b.test/"]);
    daemon.stop().await;
    twin.stop().await;
}

#[tokio::test]
async fn urls_are_listed_in_pages_by_a_part_of_their_text() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let items = (0..2_500).map(|n| discovered(info(&format!("http://a.test/Page-{n:04}"))));
    client.put(items.collect()).await;
    client.put(vec![discovered(info("http://b.test/other"))]).await;
    let list = |start, size, key: &str, filter: Option<&str>| ListUrlParams {
        start,
        size,
        key: key.to_owned(),
        filter: filter.map(str::to_owned),
        ignore_case: Some(true),
        ..Default::default()
    };
    let urls = |items: Vec<UrlItem>| -> Vec<String> {
        let url = |item: UrlItem| match item.item.unwrap() {
            url_item::Item::Known(known) => known.info.unwrap().url,
            url_item::Item::Discovered(_) => panic!("what is listed is known"),
        };
        items.into_iter().map(url).collect()
    };
    assert_eq!(urls(client.many("ListURLs", list(0, 0, "", None)).await).len(), 100);
    let page = urls(client.many("ListURLs", list(1_998, 4, "a.test", None)).await);
    let expected: Vec<_> = (1_998..2_002).map(|n| format!("http://a.test/Page-{n:04}")).collect();
    assert_eq!(page, expected);
    let found = urls(client.many("ListURLs", list(0, 0, "a.test", Some("page-001"))).await);
    assert_eq!(found.len(), 10);
    let count = |key: &str, filter: Option<&str>| CountUrlParams {
        key: key.to_owned(),
        filter: filter.map(str::to_owned),
        ..Default::default()
    };
    assert_eq!(client.count("CountURLs", count("", None)).await, 2_501);
    assert_eq!(client.count("CountURLs", count("b.test", None)).await, 1);
    assert_eq!(client.count("CountURLs", count("", Some("page-"))).await, 0, "case counts");
    assert_eq!(client.count("CountURLs", count("", Some("Page-"))).await, 2_500);
    let missing = UrlStatusRequest { url: "http://a.test/none".to_owned(), ..Default::default() };
    let status = client.one::<_, UrlItem>("GetURLStatus", missing).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
    daemon.stop().await;
}
