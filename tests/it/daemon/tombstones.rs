//! What a feed says was deleted (RFC 6721), and what comes of it.

use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::Leased;

use super::listed;
use crate::support::daemon::{DAY, Daemon, HOUR, World, sitemap};
use crate::support::queue_daemon::report;
use crate::support::{Origin, Reply};

const BEFORE: &str = "2026-11-21T11:00:00Z";

/// An Atom feed of entries and of tombstones: paths, and when they were deleted.
fn atom(base: &str, entries: &[&str], deleted: &[(&str, &str)]) -> Reply {
    let mut xml = String::from(
        "<feed xmlns=\"http://www.w3.org/2005/Atom\" \
         xmlns:at=\"http://purl.org/atompub/tombstones/1.0\">",
    );
    for path in entries {
        let entry = format!(
            "<entry><id>tag:example.org,2026:{path}</id><link href=\"{base}{path}\"/>\
             <updated>2026-11-20T00:00:00Z</updated></entry>"
        );
        xml += &entry;
    }
    for (path, when) in deleted {
        let stone = format!(
            "<at:deleted-entry ref=\"tag:example.org,2026:{path}\" when=\"{when}\">\
             <link href=\"{base}{path}\"/></at:deleted-entry>"
        );
        xml += &stone;
    }
    Reply::xml(xml + "</feed>")
}

/// Settles as fetched well.
async fn settle(daemon: &Daemon, leased: &[Leased]) {
    let reports = leased.iter().map(|url| report(url.token, Outcome::Unchanged)).collect();
    daemon.store.settle(reports).await.unwrap();
}

/// Leases everything and settles it as fetched well.
async fn fetch_all(daemon: &Daemon) {
    let leased = daemon.lease().await;
    settle(daemon, &leased).await;
}

/// Paths and reasons, sorted.
fn told(leased: &[Leased]) -> Vec<(&str, Reason)> {
    let path = |url: &Leased| url.url.rfind('/').unwrap_or_default();
    let mut told: Vec<_> = leased.iter().map(|url| (&url.url[path(url)..], url.reason)).collect();
    told.sort_by_key(|(path, _)| *path);
    told
}

#[tokio::test]
async fn a_deleted_entry_that_only_feeds_list_is_removed_once() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/feed", atom(&base, &["/1", "/2"], &[]));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    daemon.settled().await;
    fetch_all(&daemon).await;
    daemon.clock.advance(HOUR);

    origin.set("/feed", atom(&base, &["/2"], &[("/1", "2026-11-21T12:30:00Z")]));
    let poll = daemon.poll("/feed").await;
    assert_eq!((poll.counts.removed, poll.counts.missing), (1, 0));
    assert_eq!(daemon.changes(&poll).await, ["removed /1"]);
    assert!(!daemon.url(&format!("{base}/1")).await.listed);
    assert_eq!(told(&daemon.lease().await), [("/1", Reason::Removed)]);

    // The same tombstone beside something new is no news.
    origin.set("/feed", atom(&base, &["/2", "/3"], &[("/1", "2026-11-21T12:30:00Z")]));
    let poll = daemon.poll("/feed").await;
    assert_eq!((poll.counts.removed, poll.counts.new), (0, 1));

    // Published again, it is listed again.
    origin.set("/feed", atom(&base, &["/1", "/2"], &[]));
    assert_eq!(daemon.poll("/feed").await.counts.new, 1);
    assert!(daemon.url(&format!("{base}/1")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_deleted_entry_that_a_sitemap_lists_is_looked_at_and_stays() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/1", ""), ("/2", "")])));
    origin.set("/feed", atom(&base, &["/1", "/2"], &[]));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    fetch_all(&daemon).await;
    daemon.clock.advance(HOUR);

    // Deleted before a fetcher was there: it would have seen it.
    origin.set("/feed", atom(&base, &["/1"], &[("/2", BEFORE)]));
    assert_eq!(daemon.poll("/feed").await.counts.removed, 0);
    assert_eq!(told(&daemon.lease().await), []);

    let stone = [("/2", "2026-11-21T12:30:00Z")];
    origin.set("/feed", atom(&base, &["/1", "/3"], &stone));
    assert_eq!(daemon.poll("/feed").await.counts.removed, 0);
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    let leased = daemon.lease().await;
    assert_eq!(told(&leased), [("/2", Reason::Removed), ("/3", Reason::New)]);
    settle(&daemon, &leased).await;
    // It is there after all, so the tombstone is answered.
    origin.set("/feed", atom(&base, &["/1", "/3", "/1b"], &stone));
    daemon.poll("/feed").await;
    assert_eq!(told(&daemon.lease().await), [("/1b", Reason::New)]);
    daemon.pass(DAY).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_deleted_entry_whose_page_is_known_to_be_gone_is_not_looked_at_once_more() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/feed", atom(&base, &["/1"], &[]));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    daemon.settled().await;
    for _ in 0..2 {
        let leased = daemon.lease().await;
        assert_eq!(leased.len(), 1);
        daemon.store.settle(vec![report(leased[0].token, Outcome::Gone)]).await.unwrap();
        daemon.clock.advance(DAY + HOUR);
    }
    origin.set("/feed", atom(&base, &["/2"], &[("/1", "2026-11-21T12:30:00Z")]));
    assert_eq!(daemon.poll("/feed").await.counts.removed, 1);
    assert_eq!(told(&daemon.lease().await), [("/2", Reason::New)]);
    daemon.stop().await;
}

#[tokio::test]
async fn an_entry_that_was_published_after_its_deletion_stays() {
    let origin = Origin::start().await;
    let base = origin.base();
    // Its date is 2026-11-20T00:00:00Z.
    origin.set("/feed", atom(&base, &["/1", "/2"], &[]));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    daemon.settled().await;
    fetch_all(&daemon).await;
    daemon.clock.advance(HOUR);
    for (when, removed) in [("2026-11-19T23:59:59Z", 0), ("2026-11-20T00:00:00Z", 1)] {
        origin.set("/feed", atom(&base, &["/2"], &[("/1", when)]));
        assert_eq!(daemon.poll("/feed").await.counts.removed, removed, "{when}");
        assert_eq!(daemon.url(&format!("{base}/1")).await.listed, removed == 0, "{when}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_tombstone_of_what_nobody_knows_or_of_another_site_is_nothing() {
    let origin = Origin::start().await;
    let base = origin.base();
    let stones = [("/unknown", BEFORE)];
    origin.set("/feed", atom(&base, &["/1"], &stones));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    let poll = daemon.polled("/feed", 1).await;
    assert_eq!((poll.counts.new, poll.counts.removed), (1, 0));
    assert!(!daemon.knows(&format!("{base}/unknown")).await);
    origin.set("/feed", atom("http://elsewhere.test", &[], &[("/1", BEFORE)]));
    assert_eq!(daemon.poll("/feed").await.counts.removed, 0);
    assert!(daemon.url(&format!("{base}/1")).await.listed);
    daemon.stop().await;
}
