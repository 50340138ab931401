//! Sources that have moved: followed at once, believed when it is proven.

use super::one_sitemap;
use crate::support::daemon::{DAY, Daemon, World, counts, sitemap};
use crate::support::{Origin, Reply};

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
    origin.set("/new.xml", Reply::status(404));
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(404));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &ALL)));
    let poll = daemon.poll("/sitemap.xml").await;
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
