//! Asking as little as possible: validators, hashes, and the full read that
//! does not believe them.

use super::one_sitemap;
use crate::support::daemon::{DAY, HOUR, MINUTE, World, counts, sitemap};
use crate::support::{Origin, Reply};

const ALL: [(&str, &str); 2] = [("/a", "2026-11-01"), ("/b", "2026-11-02")];

#[tokio::test]
async fn validators_are_sent_back_exactly_also_after_a_restart() {
    let origin = Origin::start().await;
    let base = origin.base();
    let (etag, date) = ("W/\"a b;-gzip\"", "Sat, 21 Nov 2026 07:00:00 UTC");
    let reply = Reply::xml(sitemap(&base, &ALL)).etag(etag).last_modified(date);
    origin.set("/sitemap.xml", reply);
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let rows = super::three_polls::dump(&world);
    daemon.stop().await;
    let daemon = world.start(&one_sitemap(&origin)).await;
    for _ in 0..2 {
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!((poll.http_status, poll.result.as_str()), (Some(304), "not-modified"));
        assert_eq!(poll.counts, counts([0, 0, 0, 0, 2, 0, 0, 0]));
    }
    let requests = origin.requests("/sitemap.xml");
    assert_eq!(requests[0].header("if-none-match"), None);
    for request in &requests[1..] {
        assert_eq!(request.header("if-none-match"), Some(etag));
        assert_eq!(request.header("if-modified-since"), Some(date));
    }
    assert_eq!(super::three_polls::dump(&world), rows);
    daemon.stop().await;
}

#[tokio::test]
async fn equal_bytes_and_equal_decoded_bytes_are_unchanged() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = sitemap(&base, &ALL);
    let world = World::new(&[&origin]);
    origin.set("/sitemap.xml", Reply::xml(&list).etag("\"1\""));
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    // Built anew, byte by byte the same.
    origin.set("/sitemap.xml", Reply::xml(&list).etag("\"2\""));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.http_status, poll.result.as_str()), (Some(200), "unchanged"));
    // The new tag is the one to send.
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(304));
    // Packed on the way: other bytes, the same document.
    origin.set("/sitemap.xml", Reply::xml(&list).etag("\"3\"").gzip());
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.http_status, poll.result.as_str()), (Some(200), "unchanged"));
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(304));
    daemon.stop().await;
}

#[tokio::test]
async fn no_validator_is_kept_of_an_answer_behind_a_redirect() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::redirect(302, "/real.xml"));
    origin.set("/real.xml", Reply::xml(sitemap(&base, &ALL)).etag("\"1\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.http_status, poll.result.as_str()), (Some(200), "unchanged"));
    for path in ["/sitemap.xml", "/real.xml"] {
        for request in origin.requests(path) {
            assert_eq!(request.header("if-none-match"), None);
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_that_says_304_for_ever_is_asked_in_full_after_a_week() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)).etag("\"stuck\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let three = [("/a", "2026-11-01"), ("/b", "2026-11-02"), ("/c", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &three)).etag("\"stuck\""));
    for _ in 0..6 {
        daemon.pass(DAY).await;
        assert_eq!(daemon.poll("/sitemap.xml").await.result, "not-modified");
    }
    daemon.pass(DAY + HOUR).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.http_status, poll.counts.new), (Some(200), 1));
    daemon.stop().await;
}

#[tokio::test]
async fn a_robots_txt_behind_a_stuck_validator_is_read_in_full_after_a_week_and_when_asked_for() {
    let origin = Origin::start().await;
    let rules = |path| Reply::text(format!("User-agent: *\nDisallow: {path}\n")).etag("\"stuck\"");
    origin.set("/robots.txt", rules("/old"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/robots.txt", 1).await;
    daemon.settled().await;
    origin.set("/robots.txt", rules("/new"));
    for nth in 2..=7 {
        daemon.pass(DAY + MINUTE).await;
        assert_eq!(daemon.polled("/robots.txt", nth).await.http_status, Some(304), "{nth}");
    }
    daemon.pass(DAY + MINUTE).await;
    let poll = daemon.polled("/robots.txt", 8).await;
    assert_eq!((poll.http_status, poll.result.as_str()), (Some(200), "changed"));
    // That was the body: for a week validators are believed again, but for who asks.
    daemon.pass(DAY + MINUTE).await;
    assert_eq!(daemon.polled("/robots.txt", 9).await.http_status, Some(304));
    origin.set("/robots.txt", rules("/newest"));
    let poll = daemon.poll("/robots.txt").await;
    assert_eq!((poll.http_status, poll.result.as_str()), (Some(200), "changed"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_304_that_nobody_asked_for_is_an_error() {
    let origin = Origin::start().await;
    origin.set("/sitemap.xml", Reply::raw("HTTP/1.1 304 Not Modified\r\n\r\n"));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(poll.result, "failed");
    assert!(poll.error.unwrap().contains("304"));
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_feed_asks_of_pollers_holds_through_a_304() {
    let origin = Origin::start().await;
    let base = origin.base();
    let feed = format!(
        "<rss version=\"2.0\"><channel><title>t</title><link>{base}/</link><ttl>600</ttl>\
         <item><link>{base}/1</link></item></channel></rss>"
    );
    origin.set("/feed", Reply::xml(feed).etag("\"1\""));
    let world = World::new(&[&origin]);
    let site = super::listed(&origin, &[], &["/feed"], "").replace("poll = \"30d\"\n", "");
    let daemon = world.start(&site).await;
    daemon.polled("/feed", 1).await;
    let source = daemon.source("/feed").await;
    assert!(source.why.contains("the publisher asks for 10h"), "{}", source.why);
    let poll = daemon.poll("/feed").await;
    assert_eq!(poll.http_status, Some(304));
    let source = daemon.source("/feed").await;
    assert!(source.why.contains("the publisher asks for 10h"), "{}", source.why);
    daemon.stop().await;
}

#[tokio::test]
async fn a_304_that_is_silent_of_freshness_leaves_it_as_it_was() {
    let origin = Origin::start().await;
    let fresh = Reply::xml(sitemap(&origin.base(), &ALL)).etag("\"1\"");
    origin.set("/sitemap.xml", fresh.header("Cache-Control", "max-age=43200"));
    let world = World::new(&[&origin]);
    let site = one_sitemap(&origin).replace("poll = \"30d\"\n", "");
    let daemon = world.start(&site).await;
    daemon.polled("/sitemap.xml", 1).await;
    let silent = Reply::status(304).header("ETag", "\"1\"");
    origin.set("/sitemap.xml", silent);
    assert_eq!(daemon.poll("/sitemap.xml").await.result, "not-modified");
    let source = daemon.source("/sitemap.xml").await;
    assert!(source.why.contains("asks for 12h"), "{}", source.why);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_refused_for_its_conditions_is_asked_for_without_them() {
    let origin = Origin::start().await;
    let base = origin.base();
    let (map, robots) = (sitemap(&base, &ALL), "User-agent: *\nDisallow: /private\n");
    origin.set("/sitemap.xml", Reply::xml(map.clone()).etag("\"1\""));
    origin.set("/robots.txt", Reply::text(robots).etag("\"1\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    // From now on no condition is taken.
    origin.unset("/sitemap.xml");
    origin.unset("/robots.txt");
    origin.route(move |seen| {
        let body = match seen.path.as_str() {
            "/sitemap.xml" => Reply::xml(map.clone()),
            "/robots.txt" => Reply::text(robots),
            _ => return None,
        };
        let is_conditional = seen.header("if-none-match").is_some();
        Some(if is_conditional { Reply::status(412) } else { body.etag("\"2\"") })
    });
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(412));
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(200));
    // Of robots.txt it is not taken for a file that is not there.
    daemon.pass(2 * DAY).await;
    let id = daemon.source("/robots.txt").await.id;
    let refused = daemon.polls(id).await;
    assert!(refused.iter().any(|poll| poll.http_status == Some(412)), "{refused:?}");
    daemon.pass(HOUR).await;
    let polls = daemon.polls(id).await;
    assert_eq!(polls[0].http_status, Some(200), "{polls:?}");
    for poll in polls {
        assert!(daemon.changes(&poll).await.is_empty(), "{poll:?}");
    }
    let (_, kept) = daemon.store.robots(base, MINUTE).await.unwrap();
    assert!(String::from_utf8_lossy(&kept.unwrap().body).contains("/private"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_robots_txt_that_answers_412_to_whoever_asks_is_none() {
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::status(412));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    assert_eq!(daemon.polled("/sitemap.xml", 1).await.counts.new, 2);
    daemon.stop().await;
}

#[tokio::test]
async fn large_documents_that_come_packed_anew_while_something_is_missing_leave_room_for_others() {
    // More at once than there are shares of the memory for them.
    const SITES: usize = 10;
    let mut origins = Vec::new();
    for _ in 0..SITES {
        origins.push(Origin::start().await);
    }
    let list = |origin: &Origin, most: usize| {
        let paths: Vec<_> = (0..most).map(|n| format!("/{n}")).collect();
        let entries: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
        Reply::xml(sitemap(&origin.base(), &entries))
    };
    let name = |n: usize| format!("/map{n}.xml");
    let sites: Vec<String> = origins
        .iter()
        .enumerate()
        .map(|(n, origin)| {
            origin.set(&name(n), list(origin, 3_000));
            let (base, map) = (origin.base(), origin.url(&name(n)));
            format!(
                "[[site]]\nname = \"s{n}\"\nurl = \"{base}/\"\npoll = \"1d\"\n\
                 sitemaps = [\"{map}\"]\nfeeds = []\n"
            )
        })
        .collect();
    let world = World::new(&origins.iter().collect::<Vec<_>>());
    let daemon = world.start(&sites.concat()).await;
    for n in 0..SITES {
        daemon.polled(&name(n), 1).await;
    }
    for (n, origin) in origins.iter().enumerate() {
        origin.set(&name(n), list(origin, 2_999));
        assert_eq!(daemon.poll(&name(n)).await.counts.missing, 1);
        origin.set(&name(n), list(origin, 2_999).gzip());
    }
    // All at once.
    daemon.clock.advance(25 * HOUR);
    for n in 0..SITES {
        let poll = daemon.polled(&name(n), 3).await;
        assert_eq!((poll.http_status, poll.counts.unchanged), (Some(200), 2_999), "{n}");
    }
    daemon.stop().await;
}
