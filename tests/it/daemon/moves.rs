//! Sources that have moved: followed at once, believed when it is proven.

use std::time::Duration;

use super::one_sitemap;
use crate::support::daemon::{DAY, Daemon, HOUR, World, counts, sitemap};
use crate::support::{Origin, PATIENCE, Reply};

const ALL: [(&str, &str); 2] = [("/a", "2026-11-01"), ("/b", "2026-11-02")];

/// A daemon that polls a sitemap which redirects with `status` to a new place,
/// at once and then so many times, three days apart.
async fn moved(origin: &Origin, status: u16, times: usize) -> (World, Daemon) {
    origin.set("/sitemap.xml", Reply::redirect(status, "/new.xml"));
    origin.set("/new.xml", Reply::xml(sitemap(&origin.base(), &ALL)).etag("\"1\""));
    let world = World::new(&[origin]);
    let daemon = world.start(&one_sitemap(origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    for _ in 0..times {
        daemon.clock.advance(DAY * 3);
        daemon.poll("/sitemap.xml").await;
    }
    (world, daemon)
}

#[tokio::test]
async fn a_permanent_move_is_asked_at_its_target_once_it_is_proven() {
    let origin = Origin::start().await;
    let (_world, daemon) = moved(&origin, 301, 3).await;
    // Its own place was asked each time; from now on it is not.
    assert_eq!(origin.requests("/sitemap.xml").len(), 4);
    for _ in 0..2 {
        daemon.poll("/sitemap.xml").await;
    }
    assert_eq!(origin.requests("/sitemap.xml").len(), 4);
    let source = daemon.source("/sitemap.xml").await;
    assert_eq!(source.url, origin.url("/sitemap.xml").as_str(), "it keeps its name");
    assert!(source.why.contains("it has moved for good and is asked at"), "{}", source.why);
    // Asked there directly, its validators count.
    let last = origin.requests("/new.xml").pop().expect("a request");
    assert_eq!(last.header("if-none-match"), Some("\"1\""));
    daemon.stop().await;
}

#[tokio::test]
async fn a_new_place_that_is_gone_sends_us_back_to_the_old_one() {
    let origin = Origin::start().await;
    let (_world, daemon) = moved(&origin, 308, 3).await;
    // Asked there itself, it has the validators of that place.
    daemon.poll("/sitemap.xml").await;
    origin.set("/new.xml", Reply::status(404));
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(404));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &ALL)));
    let poll = daemon.poll("/sitemap.xml").await;
    let validators = |path: &str| {
        let last = origin.requests(path).pop().expect("a request");
        last.header("if-none-match").map(str::to_owned)
    };
    assert_eq!(validators("/new.xml").as_deref(), Some("\"1\""));
    assert_eq!(validators("/sitemap.xml"), None, "they are not for the old one");
    assert_eq!((poll.http_status, poll.counts), (Some(200), counts([0, 0, 0, 0, 2, 0, 0, 0])));
    daemon.stop().await;
}

#[tokio::test]
async fn a_temporary_redirect_is_followed_and_never_believed() {
    let origin = Origin::start().await;
    let (_world, daemon) = moved(&origin, 302, 5).await;
    assert_eq!(origin.requests("/sitemap.xml").len(), 6);
    daemon.stop().await;
}

#[tokio::test]
async fn what_has_moved_lives_on_at_its_new_place_when_the_old_one_is_taken_down() {
    let parked = Reply::html("<html><body>This domain is for sale.</body></html>");
    for old in [Reply::status(404), Reply::status(410), Reply::status(500), parked] {
        let origin = Origin::start().await;
        let (_world, daemon) = moved(&origin, 301, 3).await;
        origin.set("/sitemap.xml", old);
        for _ in 0..12 {
            // Each time it is read in full, which begins at its own place.
            daemon.clock.advance(DAY * 8);
            assert_eq!(daemon.poll("/sitemap.xml").await.result, "unchanged");
        }
        assert!(origin.requests("/sitemap.xml").len() > 12);
        let all = [("/a", "2026-11-01"), ("/b", "2026-11-02"), ("/c", "")];
        origin.set("/new.xml", Reply::xml(sitemap(&origin.base(), &all)));
        assert_eq!(daemon.poll("/sitemap.xml").await.counts.new, 1);
        // Gone from both, it is gone.
        origin.set("/sitemap.xml", Reply::status(404));
        origin.set("/new.xml", Reply::status(404));
        daemon.clock.advance(DAY * 8);
        assert_eq!(daemon.poll("/sitemap.xml").await.result, "not-found");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_new_place_that_throttles_for_good_sends_us_back_to_the_old_one() {
    let origin = Origin::start().await;
    let (_world, daemon) = moved(&origin, 301, 3).await;
    origin.set("/new.xml", Reply::status(503));
    let all = [("/a", "2026-11-01"), ("/b", "2026-11-02"), ("/c", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &all)));
    daemon.clock.advance(DAY * 8);
    for _ in 0..2 {
        daemon.clock.advance(DAY);
        daemon.poll("/sitemap.xml").await;
    }
    assert!(daemon.knows(origin.url("/c").as_str()).await);
    daemon.stop().await;
}

#[tokio::test]
async fn what_has_moved_is_read_on_a_very_slow_host_too_once_its_old_place_is_gone() {
    // Or the poll ends, where the host throttles at its old place.
    for (status, result) in [(404, "unchanged"), (503, "throttled")] {
        let origin = Origin::start().await;
        let (_world, daemon) = moved(&origin, 301, 3).await;
        origin.set("/robots.txt", Reply::text("User-agent: *\nCrawl-delay: 100\n"));
        daemon.poll("/robots.txt").await;
        origin.set("/sitemap.xml", Reply::status(status));
        daemon.clock.advance(DAY * 8);
        let id = daemon.source("/sitemap.xml").await.id;
        let before = daemon.polls(id).await.len();
        daemon.store.poll_source(id).await.unwrap();
        let ended = async {
            while daemon.polls(id).await.len() == before {
                daemon.clock.advance(Duration::from_secs(1));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.unwrap();
        assert_eq!(daemon.polls(id).await.last().unwrap().result, result);
        let source = daemon.source("/sitemap.xml").await;
        let pause = source.next_poll_at.unwrap().duration_since(source.last_poll_at.unwrap());
        assert!(pause.as_secs() >= 15 * 60, "{pause:?}");
        // Whatever the old place says from now on, the new one is read.
        let all = [("/a", "2026-11-01"), ("/b", "2026-11-02"), ("/c", "")];
        origin.set("/new.xml", Reply::xml(sitemap(&origin.base(), &all)));
        daemon.store.poll_source(id).await.unwrap();
        let read = async {
            while !daemon.knows(origin.url("/c").as_str()).await {
                daemon.clock.advance(Duration::from_secs(1));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap();
        daemon.stop().await;
    }
}

#[tokio::test]
async fn robots_txt_of_a_host_that_a_redirect_led_to_is_asked_for_only_while_it_does() {
    let (a, b, c) = (Origin::start().await, Origin::start().await, Origin::start().await);
    let list = Reply::xml(sitemap(&a.base(), &ALL));
    let world = World::new(&[&a, &b, &c]);
    let asked = |origin: &Origin| origin.requests("/robots.txt").len();
    a.set("/sitemap.xml", Reply::redirect(302, b.url("/there.xml")));
    b.set("/there.xml", list.clone());
    c.set("/there.xml", list.clone());
    let daemon = world.start(&one_sitemap(&a)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    assert_eq!((asked(&b), asked(&c)), (1, 0));
    // What is kept of it holds for a day.
    daemon.poll("/sitemap.xml").await;
    assert_eq!(asked(&b), 1);
    daemon.pass(DAY + HOUR).await;
    daemon.poll("/sitemap.xml").await;
    assert_eq!(asked(&b), 2);

    a.set("/sitemap.xml", Reply::redirect(302, c.url("/there.xml")));
    daemon.poll("/sitemap.xml").await;
    for _ in 0..3 {
        daemon.pass(DAY + HOUR).await;
    }
    assert_eq!((asked(&b), asked(&c)), (2, 1));
    let robots = daemon.source(&format!("{}/robots.txt", b.base())).await;
    assert_eq!((robots.state.as_str(), robots.next_poll_at), ("active", None));
    // Asked for by a person it is polled, and not given up.
    daemon.poll(&format!("{}/robots.txt", b.base())).await;
    assert_eq!(daemon.source(&format!("{}/robots.txt", b.base())).await.state, "active");

    // A site that comes there has it polled from then on.
    let theirs = one_sitemap(&b).replace("name = \"site\"", "name = \"theirs\"");
    b.set("/sitemap.xml", Reply::xml(sitemap(&b.base(), &ALL)));
    daemon.reload(&format!("{}{theirs}", one_sitemap(&a))).await;
    daemon.settled().await;
    assert_eq!(asked(&b), 4);
    daemon.pass(DAY + HOUR).await;
    assert_eq!((asked(&b), asked(&c)), (5, 1));
    daemon.stop().await;
}
