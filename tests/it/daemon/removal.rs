//! When a URL that is listed no longer counts as removed, and when it does not.

use sitemapd::model::Reason;

use super::{listed, one_sitemap};
use crate::support::daemon::{DAY, HOUR, World, counts, index, missed_again, sitemap};
use crate::support::{Origin, Reply};

const ALL: [(&str, &str); 3] = [("/a", "2026-11-01"), ("/b", "2026-11-02"), ("/c", "2026-11-03")];
const WITHOUT_C: [(&str, &str); 2] = [("/a", "2026-11-01"), ("/b", "2026-11-02")];

#[tokio::test]
async fn a_url_is_removed_after_enough_complete_reads_over_enough_time() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    // Five reads within a day are too soon, however many they are.
    for nth in 1..=5 {
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!(poll.counts.missing, 1, "read {nth}");
        assert_eq!(poll.counts.removed, 0, "read {nth}");
        daemon.pass(HOUR).await;
    }
    assert!(daemon.url(&format!("{base}/c")).await.listed);
    daemon.pass(DAY).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, missed_again([0, 0, 0, 0, 2, 1, 1, 0]));
    assert_eq!(daemon.changes(&poll).await, ["removed /c"]);
    let row = daemon.url(&format!("{base}/c")).await;
    assert!(!row.listed);
    assert_eq!(row.reason, Reason::Removed);
    // It is queued once.
    assert_eq!(daemon.queued().await, 3);
    let again = daemon.poll("/sitemap.xml").await;
    assert_eq!(again.counts, counts([0, 0, 0, 0, 2, 0, 0, 0]));
    assert_eq!(daemon.queued().await, 3);
    // And when it is listed again it is new again.
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["new /c"]);
    let row = daemon.url(&format!("{base}/c")).await;
    assert!(row.listed);
    assert_eq!(row.reason, Reason::New);
    assert_eq!(daemon.queued().await, 3);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sibling_or_an_index_that_refuses_holds_removals_back_for_four_weeks_and_no_longer() {
    for refuses in ["/other.xml", "/index.xml"] {
        let origin = Origin::start().await;
        let base = origin.base();
        let both = [("/sitemap.xml", ""), ("/other.xml", "")];
        origin.set("/index.xml", Reply::xml(index(&base, &both)));
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
        origin.set("/other.xml", Reply::xml(sitemap(&base, &[("/d", "")])));
        let world = World::new(&[&origin]);
        let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
        daemon.polled("/sitemap.xml", 1).await;
        daemon.polled("/other.xml", 1).await;
        daemon.pass(HOUR).await;
        origin.set(refuses, Reply::status(403));
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
        for day in 0..=28 {
            daemon.poll("/sitemap.xml").await;
            assert!(daemon.url(&format!("{base}/c")).await.listed, "{refuses} on day {day}");
            daemon.pass(DAY).await;
        }
        daemon.poll("/sitemap.xml").await;
        assert!(!daemon.url(&format!("{base}/c")).await.listed, "{refuses}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_sitemap_that_its_index_dropped_holds_no_removal_back_though_somebody_asks_for_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    let with = |other| index(&base, &[("/sitemap.xml", ""), (other, "")]);
    origin.set("/index.xml", Reply::xml(with("/old.xml")));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    origin.set("/old.xml", Reply::xml(sitemap(&base, &[("/d", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.polled("/old.xml", 1).await;
    daemon.pass(HOUR).await;
    // It is called otherwise now; the index says so once, and is the same from then on.
    origin.set("/index.xml", Reply::xml(with("/new.xml")));
    origin.set("/new.xml", Reply::xml(sitemap(&base, &[("/d", "")])));
    origin.set("/old.xml", Reply::status(404));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    daemon.poll("/index.xml").await;
    daemon.polled("/new.xml", 1).await;
    daemon.poll("/old.xml").await;
    for _ in 0..4 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
        daemon.poll("/new.xml").await;
        daemon.poll("/index.xml").await;
    }
    assert!(!daemon.url(&format!("{base}/c")).await.listed);
    assert!(daemon.url(&format!("{base}/d")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_that_breaks_off_has_not_been_read_and_what_may_stand_behind_stays() {
    let origin = Origin::start().await;
    let base = origin.base();
    let whole = index(&base, &[("/sitemap.xml", ""), ("/moved.xml", "")]);
    let cut = whole.split_once("/moved.xml").expect("a second child").0.to_owned();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/sitemap.xml", "")])));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.pass(HOUR).await;
    // The third URL goes to a sitemap that the index names last, and the index is cut off.
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    origin.set("/moved.xml", Reply::xml(sitemap(&base, &[("/c", "2026-11-03")])));
    origin.set("/index.xml", Reply::xml(cut));
    for _ in 0..4 {
        assert_eq!(daemon.poll("/index.xml").await.result, "incomplete");
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    assert!(daemon.url(&format!("{base}/c")).await.listed);
    origin.set("/index.xml", Reply::xml(whole));
    daemon.poll("/index.xml").await;
    daemon.polled("/moved.xml", 1).await;
    assert!(daemon.url(&format!("{base}/c")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn too_few_reads_remove_nothing_however_long_they_take() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    for removed in [0, 0, 1] {
        assert_eq!(daemon.poll("/sitemap.xml").await.counts.removed, removed);
        daemon.pass(5 * DAY).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_entry_that_is_missing_goes_on_missing_through_304s() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)).etag("\"1\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)).etag("\"2\""));
    assert_eq!(daemon.poll("/sitemap.xml").await.counts.missing, 1);
    daemon.pass(20 * HOUR).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.result, "not-modified");
    assert_eq!(poll.counts, missed_again([0, 0, 0, 0, 2, 1, 0, 0]));
    daemon.pass(20 * HOUR).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.http_status, Some(304));
    assert_eq!(poll.counts, missed_again([0, 0, 0, 0, 2, 1, 1, 0]));
    assert_eq!(daemon.changes(&poll).await, ["removed /c"]);
    assert!(!daemon.url(&format!("{base}/c")).await.listed);
    // What the next document brings is its own.
    let four = [("/a", "2026-11-01"), ("/b", "2026-11-02"), ("/d", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &four)).etag("\"3\""));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["new /d"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_loses_most_entries_at_once_is_not_believed_for_a_week() {
    let origin = Origin::start().await;
    let base = origin.base();
    let paths: Vec<_> = (0..20).map(|n| format!("/{n}")).collect();
    let all: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &all)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let whole = sitemap(&base, &all[..5]);
    let is_shrunk = async || {
        let source = daemon.source("/sitemap.xml").await;
        source.issues.iter().any(|issue| issue.code.as_str() == "shrunk")
    };
    for day in 0..6 {
        origin.set("/sitemap.xml", Reply::xml(whole.clone()));
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!((poll.counts.missing, poll.counts.removed), (15, 0));
        assert!(is_shrunk().await);
        // Reads that do not tell begin no week anew.
        let silent = match day {
            4 => Reply::xml(whole.replace("</urlset>", "")),
            5 => Reply::xml(sitemap(&base, &[])),
            _ => Reply::xml(whole.clone()),
        };
        origin.set("/sitemap.xml", silent);
        assert_eq!(daemon.poll("/sitemap.xml").await.counts.removed, 0);
        assert!(is_shrunk().await, "{day}");
        daemon.pass(DAY).await;
    }
    origin.set("/sitemap.xml", Reply::xml(whole));
    daemon.pass(DAY).await;
    let mut removed = 0;
    for _ in 0..3 {
        removed += daemon.poll("/sitemap.xml").await.counts.removed;
        daemon.pass(DAY).await;
    }
    assert_eq!(removed, 15);
    daemon.poll("/sitemap.xml").await;
    assert!(!is_shrunk().await);
    daemon.stop().await;
}

#[tokio::test]
async fn a_url_that_was_parked_as_gone_is_not_queued_for_its_removal() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &[], "obey_robots = false")).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    for _ in 0..3 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    let leased = daemon.lease().await;
    let c = leased.iter().find(|url| url.url.ends_with("/c")).unwrap();
    assert_eq!(c.reason, Reason::Removed);
    daemon.stop().await;
}
