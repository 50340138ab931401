//! Who may ask, how much, and what is said of the service itself.

use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use sitemapd::serve::frontier::proto::{BatchAck, DiscoveredBatch, Empty, Local, LogLevelParams};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::*;
use crate::support::PATIENCE;

#[tokio::test]
async fn a_token_is_asked_for_but_not_for_health() {
    let world = World::new(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let daemon = world.start(&config(&format!("token_file = {:?}\n", file.path()))).await;
    let mut client = Client::of(&daemon).await;
    let refused = client.one::<_, StringList>("ListCrawls", Local::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let acks: Vec<Result<AckMessage, Status>> = client
        .stream("PutURLs", futures_util::stream::iter([discovered(info("http://a.test/"))]))
        .await;
    assert_eq!(acks[0].as_ref().unwrap_err().code(), Code::Unauthenticated);
    let health = "/grpc.health.v1.Health/Check";
    let check = HealthCheckRequest::default();
    let up: HealthCheckResponse = client.one(health, check).await.unwrap();
    assert_eq!(up.status, 1, "SERVING");
    client.token = Some("wrong".to_owned());
    let refused = client.one::<_, StringList>("ListCrawls", Local::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    client.token = Some("s3cret".to_owned());
    let crawls: StringList = client.one("ListCrawls", Local::default()).await.unwrap();
    assert!(crawls.values.iter().all(|name| name == "DEFAULT"), "{crawls:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn what_anybody_may_ask_is_short() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let health = "/grpc.health.v1.Health/Check";
    for (bytes, expected) in [(1_000, Code::NotFound), (10_000, Code::OutOfRange)] {
        let check = HealthCheckRequest { service: "x".repeat(bytes) };
        let answer = client.one::<_, HealthCheckResponse>(health, check).await;
        assert_eq!(answer.unwrap_err().code(), expected, "{bytes}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn strangers_who_ask_for_health_and_never_end_are_in_nobodys_way() {
    let world = World::new(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let daemon = world.start(&config(&format!("token_file = {:?}\n", file.path()))).await;
    let stranger = Client::of(&daemon).await;
    let mut asked = FuturesUnordered::new();
    for _ in 0..64 {
        let mut grpc = stranger.grpc.clone();
        asked.push(async move {
            grpc.ready().await.unwrap();
            let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
            let codec: ProstCodec<HealthCheckRequest, HealthCheckResponse> = ProstCodec::default();
            let nothing = Request::new(futures_util::stream::pending());
            grpc.streaming(nothing, path, codec).await.map(|_| ())
        });
    }
    let mut client = Client::of(&daemon).await;
    client.token = Some("s3cret".to_owned());
    // None of them is answered, so that in this time all have begun.
    let early = tokio::time::timeout(Duration::from_millis(500), asked.next()).await;
    assert!(early.is_err(), "{early:?}");
    let crawls = client.one::<_, StringList>("ListCrawls", Local::default());
    let crawls = tokio::time::timeout(PATIENCE, crawls).await;
    assert!(crawls.expect("the others have all turns").is_ok());
    // They are not waited for long either.
    let ended = tokio::time::timeout(PATIENCE, asked.next()).await;
    let refused = ended.expect("they wait for as long as they like").unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    drop(asked);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_not_of_the_protocol_is_an_answer_and_no_more() {
    let (_world, daemon, mut client) = started(&config("")).await;
    let unknown = client.one::<_, Empty>("Nonsense", Empty {}).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);
    let large = UrlInfo { url: "x".repeat(5 << 20), ..UrlInfo::default() };
    let acks: Vec<Result<AckMessage, Status>> =
        client.stream("PutURLs", futures_util::stream::iter([discovered(large)])).await;
    assert_eq!(acks[0].as_ref().unwrap_err().code(), Code::OutOfRange, "over 1 MiB");
    let many = DiscoveredBatch { items: vec![UrlInfo::default(); 16_385], ..Default::default() };
    let acks: Vec<Result<BatchAck, Status>> =
        client.stream("PutDiscovered", futures_util::stream::iter([many])).await;
    assert_eq!(acks[0].as_ref().unwrap_err().code(), Code::ResourceExhausted);
    let level = client.one::<_, Empty>("SetLogLevel", LogLevelParams::default()).await;
    assert_eq!(level.unwrap_err().code(), Code::FailedPrecondition, "logs of the tests");
    let nodes: StringList = client.one("ListNodes", Empty {}).await.unwrap();
    assert_eq!(nodes.values, [daemon.grpc.unwrap().to_string()]);
    let metrics = metrics_of(&daemon).await;
    for (call, status, times) in [
        ("/urlfrontier.URLFrontier/ListNodes", 200, 1),
        ("/urlfrontier.URLFrontier/SetLogLevel", 400, 1),
        ("other", 404, 1),
    ] {
        let line = format!(
            "sitemapd_api_requests_total{{method=\"POST\",route=\"{call}\",status=\"{status}\"}} {times}\n"
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn bytes_that_are_no_http_2_end_the_connection_and_nothing_else() {
    let (_world, daemon, mut client) = started(&config("")).await;
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
        &[0xff; 4_096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut stream = TcpStream::connect(daemon.grpc.unwrap()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // Closed, or reset.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() < 1_000);
    }
    let crawls: StringList = client.one("ListCrawls", Local::default()).await.unwrap();
    assert!(crawls.values.len() <= 1);
    daemon.stop().await;
}
