//! The listener itself: its routes, its shares, its patience.

use super::*;
use crate::http::openapi::untold;
use crate::support::Reply;
use crate::support::daemon::{MINUTE, World, sitemap};

async fn listening() -> (World, Daemon, Origin) {
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin, "sitemaps = []")).await;
    (world, daemon, origin)
}

#[tokio::test]
async fn the_public_listener_has_none_of_the_operators_routes() {
    let (_world, daemon, _origin) = listening().await;
    let described = get(&daemon, "/openapi.json").await.json();
    let mut found = Vec::new();
    untold(&described["components"]["schemas"], "", &mut found);
    assert!(found.is_empty(), "{found:?}");
    let mut paths: Vec<_> = described["paths"].as_object().unwrap().keys().cloned().collect();
    paths.sort();
    assert!(paths.iter().all(|path| !path.starts_with("/v1/")), "{paths:?}");
    assert!(paths.contains(&"/ping".to_owned()));
    for target in ["/", "/v1/queue", "/v1/lease", "/v1/submissions", "/metrics", "/status.css"] {
        assert_eq!(get(&daemon, target).await.status, 404, "{target}");
    }
    let put = send(daemon.public.unwrap(), "PUT /ping HTTP/1.1", "").await;
    assert_eq!(put.status, 405);
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_has_a_share_of_requests_and_takes_nothing_of_anothers() {
    let (_world, daemon, _origin) = listening().await;
    let mut answers = Vec::new();
    for _ in 0..61 {
        answers.push(get_as(&daemon, "2001:db8::1", "/openapi.json").await.status);
    }
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 60);
    let refused = get_as(&daemon, "2001:db8::2", "/openapi.json").await;
    assert_eq!(refused.status, 429, "the same /64");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(get_as(&daemon, "2001:db8:1::1", "/openapi.json").await.status, 200);
    daemon.clock.advance(MINUTE);
    assert_eq!(get_as(&daemon, "2001:db8::1", "/openapi.json").await.status, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn who_is_refused_takes_nothing_of_what_all_have() {
    let (_world, daemon, _origin) = listening().await;
    // More than all clients together may ask for.
    for path in ["/websub/a/b", "/websub/a", &format!("/websub/{}", "0".repeat(32)), "/nothing"] {
        for _ in 0..600 {
            get_as(&daemon, "198.51.100.1", path).await;
        }
        let other = get_as(&daemon, "198.51.100.2", "/openapi.json").await;
        assert_eq!(other.status, 200, "{path}");
    }
    let refused = get_as(&daemon, "198.51.100.1", "/websub/a/b").await;
    assert_eq!(refused.status, 429);
    daemon.stop().await;
}

#[tokio::test]
async fn who_sends_all_of_a_push_before_it_reads_is_told_when_to_come_again() {
    let (_world, daemon, _origin) = listening().await;
    for _ in 0..60 {
        get_as(&daemon, "198.51.100.1", "/openapi.json").await;
    }
    let large = "x".repeat(10_000_000);
    let head = "POST /indexnow HTTP/1.1\r\nX-Forwarded-For: 198.51.100.1";
    let refused = send(daemon.public.unwrap(), head, &large).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    // Nor is who has no callback left with a broken connection.
    let head = format!("POST /websub/{} HTTP/1.1", "0".repeat(32));
    assert_eq!(send(daemon.public.unwrap(), &head, &large).await.status, 410);
    let form = send(daemon.public.unwrap(), "POST /ping HTTP/1.1", &large).await;
    assert_eq!(form.status, 413);
    daemon.stop().await;
}

#[tokio::test]
async fn pings_of_one_host_are_limited_whoever_sends_them() {
    let (_world, daemon, origin) = listening().await;
    let mut last = 200;
    for client in 0..21 {
        let target = format!("/ping?sitemap={}/{client}.xml", origin.base());
        last = get_as(&daemon, &format!("198.51.100.{client}"), &target).await.status;
    }
    assert_eq!(last, 429);
    let other = get(&daemon, "/ping?sitemap=https://other.example/s.xml").await;
    assert_eq!(other.status, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn a_stranger_who_makes_sitemaps_up_keeps_nobody_from_pinging_for_the_host() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    origin.set("/s.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin, &format!("sitemaps = [\"{base}/s.xml\"]"))).await;
    daemon.polled("/s.xml", 1).await;
    let ping = async |client: &str, path: &str| {
        get_as(&daemon, client, &format!("/ping?sitemap={base}{path}")).await.status
    };
    let mut told = Vec::new();
    for n in 0..20 {
        told.push(ping("198.51.100.1", &format!("/made-up-{n}.xml")).await);
    }
    assert_eq!(told.iter().filter(|status| **status == 200).count(), 5);
    assert_eq!(ping("198.51.100.2", "/new.xml").await, 200);
    // Where nothing is left of the host's share, a source may still be named.
    for client in 3..8 {
        for n in 0..5 {
            ping(&format!("198.51.100.{client}"), &format!("/{n}.xml")).await;
        }
    }
    assert_eq!(ping("198.51.100.9", "/new.xml").await, 429);
    assert_eq!(ping("198.51.100.9", "/s.xml").await, 200);
    assert_eq!(ping("198.51.100.1", "/s.xml").await, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn large_forms_and_inner_addresses_are_refused() {
    let (_world, daemon, _origin) = listening().await;
    let to = daemon.public.unwrap();
    let large = send(to, "POST /ping HTTP/1.1", &"x".repeat(100_000)).await;
    assert_eq!(large.status, 413);
    for url in ["http://127.0.0.1:1/s.xml", "http://169.254.169.254/", "http://[::1]/s.xml"] {
        let answer = get(&daemon, &format!("/ping?sitemap={}", encoded(url))).await;
        assert_eq!(answer.status, 400, "{url}");
    }
    let evil = "https://x.example/%3Cscript%3E\"'<script>alert(1)</script>";
    let head = format!("GET /ping?sitemap={} HTTP/1.1", encoded(evil));
    let page = send(to, &head, "").await;
    assert_eq!(page.status, 200);
    assert!(!page.body.contains("<script"), "{}", page.body);
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    daemon.stop().await;
}

#[tokio::test]
async fn head_does_nothing_where_get_does_something() {
    let (_world, daemon, origin) = listening().await;
    let url = encoded(&format!("{}/s.xml", origin.base()));
    for target in [
        format!("/ping?sitemap={url}"),
        format!("/webmasters/tools/ping?sitemap={url}"),
        format!("/indexnow?key=0123456789abcdef&url={url}"),
        format!("/websub/{}?hub.mode=denied&hub.topic={url}", "0".repeat(32)),
        "/websub/a".to_owned(),
    ] {
        let answer = send(daemon.public.unwrap(), &format!("HEAD {target} HTTP/1.1"), "").await;
        assert_eq!(answer.status, 405, "{target}");
        assert_eq!(answer.header("allow"), Some("get,post"), "{target}");
        assert_eq!(answer.body, "");
    }
    assert_eq!(origin.requests("/s.xml").len(), 0);
    let kept = daemon.store.submissions(false, 10, None).await.unwrap();
    assert!(kept.items.is_empty(), "{:?}", kept.items);
    let head = send(daemon.public.unwrap(), "HEAD /openapi.json HTTP/1.1", "").await;
    assert_eq!(head.status, 200);
    daemon.stop().await;
}

#[tokio::test]
async fn no_method_is_named_as_allowed_that_is_refused() {
    let (_world, daemon, _origin) = listening().await;
    let callback = format!("/websub/{}", "0".repeat(32));
    for target in ["/ping", "/webmasters/tools/ping", "/indexnow", &callback, "/openapi.json"] {
        let to = daemon.public.unwrap();
        let refused = send(to, &format!("PUT {target} HTTP/1.1"), "").await;
        assert_eq!(refused.status, 405, "{target}");
        for method in refused.header("allow").unwrap().to_uppercase().split(',') {
            let answer = send(to, &format!("{} {target} HTTP/1.1", method.trim()), "").await;
            assert_ne!(answer.status, 405, "{method} {target}");
        }
    }
    daemon.stop().await;
}

/// Sends the beginning of a request, and reads what comes until it is closed.
async fn hang(daemon: &Daemon, beginning: &str) -> String {
    let mut stream = TcpStream::connect(daemon.public.unwrap()).await.unwrap();
    stream.write_all(beginning.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // A reset closes it as well.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn a_client_that_sends_nothing_or_little_is_cut() {
    let (_world, daemon, _origin) = listening().await;
    let form =
        "POST /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 90\r\n\r\nsite";
    let (nothing, header, form) = tokio::join!(
        hang(&daemon, ""),
        hang(&daemon, "GET /ping HTTP/1.1\r\nHost: x\r\nX-A: "),
        hang(&daemon, form),
    );
    assert_eq!((nothing.as_str(), header.as_str()), ("", ""));
    assert!(form.starts_with("HTTP/1.1 408 "), "{form}");
    daemon.stop().await;
}
