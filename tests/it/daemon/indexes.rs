//! Indexes and their children.

use serde_json::{Value, json};
use sitemapd::fetch::api::ApiClient;

use super::listed;
use crate::support::daemon::{DAY, HOUR, World, counts, index, sitemap};
use crate::support::{Hold, Origin, Reply};

fn site(origin: &Origin) -> String {
    listed(origin, &["/index.xml"], &[], "")
}

#[tokio::test]
async fn a_raised_depth_of_indexes_finds_what_was_too_deep_though_nothing_else_has_changed() {
    // Asked by an operator, and by itself where the index says that it is as it was.
    for (date, is_asked) in [("", true), ("2026-11-01", false)] {
        let origin = Origin::start().await;
        let base = origin.base();
        origin.set("/outer.xml", Reply::xml(index(&base, &[("/inner.xml", date)])).etag("\"1\""));
        origin.set("/inner.xml", Reply::xml(index(&base, &[("/deep.xml", "")])).etag("\"1\""));
        origin.set("/deep.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
        let world = World::new(&[&origin]);
        let text = listed(&origin, &["/outer.xml"], &[], "").replace("30d", "1d");
        let mut config = world.config(&text);
        config.fetch.max_index_depth = 1;
        let daemon = world.start_with(config).await;
        daemon.polled("/inner.xml", 1).await;
        daemon.settled().await;
        let inner = daemon.source("/inner.xml").await;
        assert!(inner.issues.iter().any(|issue| issue.code.as_str() == "nested-indexes"));
        assert!(daemon.find_source("/deep.xml").await.is_none());
        daemon.reload(&text).await;
        if is_asked {
            daemon.poll("/inner.xml").await;
        } else {
            daemon.pass(DAY + HOUR).await;
        }
        assert!(daemon.find_source("/deep.xml").await.is_some(), "{date:?}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn each_child_has_its_own_status_and_a_bad_one_spoils_nothing() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/one.xml", ""), ("/two.xml", ""), ("/missing.xml", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])).gz_file());
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    assert_eq!(daemon.polled("/one.xml", 1).await.result, "changed");
    assert_eq!(daemon.polled("/two.xml", 1).await.result, "changed");
    assert_eq!(daemon.polled("/missing.xml", 1).await.result, "not-found");
    let missing = daemon.source("/missing.xml").await;
    assert_eq!((missing.status.as_str(), missing.http_status), ("could-not-fetch", Some(404)));
    assert_eq!(missing.named_by, "index");
    assert_eq!(missing.parent, Some(daemon.source("/index.xml").await.id));
    assert!(daemon.knows(&format!("{base}/1")).await && daemon.knows(&format!("{base}/2")).await);
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_whose_date_moves_is_due_at_once_and_the_others_are_skipped() {
    let origin = Origin::start().await;
    let base = origin.base();
    let dates = |two: &str| index(&base, &[("/one.xml", "2026-11-01"), ("/two.xml", two)]);
    origin.set("/index.xml", Reply::xml(dates("2026-11-01")));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    // Due by itself every hour, but for what the index says.
    let daemon = world.start(&site(&origin).replace("30d", "1h")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    daemon.pass(5 * HOUR).await;
    assert_eq!(origin.requests("/one.xml").len(), 1);
    assert_eq!(origin.requests("/two.xml").len(), 1);
    let skipped = daemon.source("/one.xml").await;
    assert!(skipped.why.starts_with("its index says that it has not changed"), "{}", skipped.why);
    origin.set("/index.xml", Reply::xml(dates("2026-11-21T16:00:00Z")));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", ""), ("/3", "")])));
    let two = daemon.source("/two.xml").await.id;
    daemon.poll("/index.xml").await;
    let poll = daemon.polled("/two.xml", 2).await;
    assert_eq!((poll.source, poll.counts.new), (two, 1));
    assert_eq!(origin.requests("/one.xml").len(), 1);
    // Who asks for a child gets it fetched, whatever its index says.
    daemon.poll("/one.xml").await;
    assert_eq!(origin.requests("/one.xml").len(), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn of_a_child_that_it_lists_no_more_an_index_does_not_say_that_it_is_as_it_was() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/one.xml", "2026-11-01"), ("/two.xml", "2026-11-01")];
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin).replace("30d", "1h")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    origin.set("/index.xml", Reply::xml(index(&base, &children[..1])));
    daemon.poll("/index.xml").await;
    daemon.pass(5 * HOUR).await;
    assert_eq!(origin.requests("/one.xml").len(), 1);
    assert!(origin.requests("/two.xml").len() > 1, "{}", daemon.source("/two.xml").await.why);
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_whose_date_goes_back_or_away_is_not_skipped_for_the_old_one() {
    // Hours after which it is fetched again: at once, or when it is due by itself.
    for (date, hours) in [("2026-10-01", 0), ("", 1)] {
        let origin = Origin::start().await;
        let base = origin.base();
        let dated = |date: &str| Reply::xml(index(&base, &[("/one.xml", date)]));
        origin.set("/index.xml", dated("2026-11-01"));
        origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
        let world = World::new(&[&origin]);
        let daemon = world.start(&site(&origin).replace("30d", "1h")).await;
        daemon.polled("/one.xml", 1).await;
        daemon.pass(5 * HOUR).await;
        assert_eq!(origin.requests("/one.xml").len(), 1);
        origin.set("/index.xml", dated(date));
        daemon.poll("/index.xml").await;
        daemon.pass(hours * HOUR).await;
        daemon.polled("/one.xml", 2).await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_child_is_fetched_where_its_index_says_that_it_changed_before_the_last_read() {
    // It writes the time of its own zone, without a zone.
    let origin = Origin::start().await;
    let base = origin.base();
    let dated = |time: &str| Reply::xml(index(&base, &[("/one.xml", time)]));
    origin.set("/index.xml", dated("2026-11-21T06:00:00"));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/one.xml", 1).await;
    origin.set("/index.xml", dated("2026-11-21T07:00:00"));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", ""), ("/2", "")])));
    daemon.pass(HOUR).await;
    daemon.poll("/index.xml").await;
    assert_eq!(daemon.polled("/one.xml", 2).await.counts.new, 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_skipped_child_is_read_all_the_same_after_a_week() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", "2026-11-01")])));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])).etag("\"1\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin).replace("30d", "12h")).await;
    daemon.polled("/one.xml", 1).await;
    for _ in 0..8 {
        daemon.pass(DAY).await;
    }
    let requests = origin.requests("/one.xml");
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].header("if-none-match"), None);
    daemon.stop().await;
}

#[tokio::test]
async fn a_url_that_moves_from_one_child_to_another_is_not_removed() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", ""), ("/two.xml", "")])));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", ""), ("/moves", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    // The sibling cannot be read for now: nobody knows what is in it.
    origin.set("/two.xml", Reply::status(500));
    for _ in 0..5 {
        assert_eq!(daemon.poll("/one.xml").await.counts.removed, 0);
        daemon.clock.advance(DAY);
        daemon.settled().await;
    }
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", ""), ("/moves", "")])));
    daemon.poll("/two.xml").await;
    assert_eq!(daemon.poll("/one.xml").await.counts.removed, 0);
    assert!(daemon.url(&format!("{base}/moves")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn what_moves_to_a_child_that_its_index_has_yet_to_name_is_not_removed() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/one.xml", ""), ("/two.xml", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &children[..1])));
    let all = [("/1", ""), ("/2", ""), ("/3", ""), ("/4", ""), ("/5", "")];
    origin.set("/one.xml", Reply::xml(sitemap(&base, &all)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/one.xml", 1).await;
    daemon.pass(2 * HOUR).await;
    // Nobody asks the index, which says no more than that it has another child.
    origin.set("/two.xml", Reply::xml(sitemap(&base, &all[4..])));
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &all[..4])));
    for _ in 0..4 {
        assert_eq!(daemon.poll("/one.xml").await.counts.removed, 0);
        daemon.pass(DAY).await;
    }
    assert!(daemon.url(&format!("{base}/5")).await.listed);
    assert_eq!(daemon.polls(daemon.source("/index.xml").await.id).await.len(), 2);
    // While the index cannot be read nobody knows what it names.
    origin.set("/index.xml", Reply::status(500));
    daemon.poll("/index.xml").await;
    origin.set("/one.xml", Reply::xml(sitemap(&base, &all[..3])));
    for _ in 0..4 {
        daemon.poll("/two.xml").await;
        assert_eq!(daemon.poll("/one.xml").await.counts.removed, 0);
        daemon.clock.advance(DAY);
        daemon.settled().await;
    }
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    daemon.poll("/index.xml").await;
    assert_eq!(daemon.poll("/one.xml").await.counts.removed, 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_that_another_index_lists_too_waits_for_that_one_to_be_read() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/own.xml", ""), ("/shared.xml", "")];
    for (place, path) in [("/own.xml", "/1"), ("/shared.xml", "/2")] {
        origin.set(place, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    origin.set("/a.xml", Reply::xml(index(&base, &children)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    daemon.polled("/shared.xml", 1).await;
    origin.set("/b.xml", Reply::xml(index(&base, &children[1..])));
    daemon.poll("/b.xml").await;
    assert_eq!(daemon.source("/shared.xml").await.parent, Some(daemon.source("/a.xml").await.id));
    // One drops it while the other one, which still lists it, cannot be read.
    origin.set("/b.xml", Reply::status(500));
    origin.set("/a.xml", Reply::xml(index(&base, &children[..1])));
    for day in 0..9 {
        daemon.poll("/a.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        assert!(daemon.url(&format!("{base}/2")).await.listed, "day {day}");
        daemon.pass(DAY).await;
    }
    origin.set("/b.xml", Reply::xml(index(&base, &children[1..])));
    daemon.poll("/b.xml").await;
    daemon.settled().await;
    while daemon.store.maintain().await.unwrap() {}
    let shared = daemon.source("/shared.xml").await;
    assert_eq!(shared.parent, Some(daemon.source("/b.xml").await.id));
    assert_eq!(shared.state, "active");
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn another_index_is_asked_at_once_for_what_one_drops() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/own.xml", ""), ("/shared.xml", "")];
    for (place, path) in [("/own.xml", "/1"), ("/shared.xml", "/2")] {
        origin.set(place, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    for place in ["/a.xml", "/b.xml"] {
        origin.set(place, Reply::xml(index(&base, &children)).etag("\"1\""));
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    daemon.polled("/b.xml", 1).await;
    daemon.polled("/shared.xml", 1).await;
    daemon.settled().await;
    let id = daemon.source("/shared.xml").await.parent.unwrap();
    let indexes = [daemon.source("/a.xml").await, daemon.source("/b.xml").await];
    let [mine, other] =
        if indexes[0].id == id { ["/a.xml", "/b.xml"] } else { ["/b.xml", "/a.xml"] };
    daemon.pass(HOUR).await;
    origin.set(mine, Reply::xml(index(&base, &children[..1])).etag("\"2\""));
    daemon.poll(mine).await;
    daemon.settled().await;
    let shared = daemon.source("/shared.xml").await;
    assert_eq!(shared.parent, Some(daemon.source(other).await.id));
    assert_eq!(daemon.polls(daemon.source(mine).await.id).await.len(), 2, "it is not asked itself");
    daemon.stop().await;
}

#[tokio::test]
async fn a_dead_child_that_is_dated_anew_all_the_time_lets_go_of_its_urls() {
    let origin = Origin::start().await;
    let base = origin.base();
    let dated = |day: i32| {
        let date = format!("2026-11-{day:02}");
        Reply::xml(index(&base, &[("/dead.xml", &date), ("/other.xml", "")]))
    };
    origin.set("/index.xml", dated(1));
    origin.set("/dead.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/other.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/dead.xml", 1).await;
    origin.set("/dead.xml", Reply::status(410));
    for day in 2..16 {
        origin.set("/index.xml", dated(day));
        daemon.poll("/index.xml").await;
        daemon.settled().await;
        while daemon.store.maintain().await.unwrap() {}
        daemon.pass(DAY).await;
    }
    assert_eq!(daemon.source("/dead.xml").await.state, "retired");
    assert!(!daemon.url(&format!("{base}/1")).await.listed);
    // It is looked at each time, so that it comes back when it does.
    origin.set("/dead.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/index.xml", dated(17));
    daemon.poll("/index.xml").await;
    daemon.settled().await;
    assert_eq!(daemon.source("/dead.xml").await.state, "active");
    assert!(daemon.url(&format!("{base}/1")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_nested_index_that_is_dropped_goes_with_what_it_lists_and_comes_back_so() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/plain.xml", ""), ("/nested.xml", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    origin.set("/nested.xml", Reply::xml(index(&base, &[("/deep.xml", "")])));
    origin.set("/plain.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/deep.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/deep.xml", 1).await;
    origin.set("/index.xml", Reply::xml(index(&base, &children[..1])));
    let url = format!("{base}/2");
    for day in 0..17 {
        daemon.poll("/index.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        // A week for the index, and another one for what only lies below it.
        assert!(day >= 14 || daemon.url(&url).await.listed, "day {day}");
        daemon.pass(DAY).await;
    }
    while daemon.store.maintain().await.unwrap() {}
    for place in ["/nested.xml", "/deep.xml"] {
        assert_eq!(daemon.source(place).await.state, "retired", "{place}");
    }
    assert!(!daemon.url(&url).await.listed);
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    daemon.poll("/index.xml").await;
    daemon.settled().await;
    for place in ["/nested.xml", "/deep.xml"] {
        assert_eq!(daemon.source(place).await.state, "active", "{place}");
    }
    assert!(daemon.url(&url).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn what_the_config_lists_is_no_index_s_to_drop() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/one.xml", ""), ("/two.xml", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/two.xml", 1).await;
    daemon.reload(&listed(&origin, &["/index.xml", "/two.xml"], &[], "")).await;
    origin.set("/index.xml", Reply::xml(index(&base, &children[..1])));
    for _ in 0..9 {
        daemon.poll("/index.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        daemon.pass(DAY).await;
    }
    let two = daemon.source("/two.xml").await;
    assert_eq!((two.state.as_str(), two.named_by.as_str(), two.parent), ("active", "config", None));
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_that_its_index_drops_is_retired_after_a_week_and_holds_nothing() {
    let origin = Origin::start().await;
    let base = origin.base();
    let both = [("/one.xml", ""), ("/two.xml", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &both)));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/two.xml", 1).await;
    origin.set("/index.xml", Reply::xml(index(&base, &both[..1])));
    for nth in 0..9 {
        daemon.poll("/index.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        assert_eq!(daemon.url(&format!("{base}/2")).await.listed, nth < 7, "day {nth}");
        daemon.pass(DAY).await;
    }
    let two = daemon.source("/two.xml").await;
    assert_eq!(
        (two.state.as_str(), two.error.as_deref()),
        ("retired", Some("its index does not list it any more"))
    );
    // Whoever asks for it has it for another week, once its site is polled.
    daemon.store.pause_site(two.site.clone().unwrap(), true).await.unwrap();
    daemon.store.poll_source(two.id).await.unwrap();
    daemon.settled().await;
    assert_eq!(daemon.source("/two.xml").await.state, "paused");
    assert!(!daemon.url(&format!("{base}/2")).await.listed);
    daemon.store.pause_site(two.site.clone().unwrap(), false).await.unwrap();
    daemon.settled().await;
    while daemon.store.maintain().await.unwrap() {}
    assert_eq!(daemon.source("/two.xml").await.state, "active");
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    // Listed again it comes back, with all it lists.
    origin.set("/index.xml", Reply::xml(index(&base, &both)));
    daemon.poll("/index.xml").await;
    daemon.settled().await;
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_that_was_gone_and_is_still_listed_is_looked_at_again_after_a_month() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/one.xml", ""), ("/two.xml", ""), ("/three.xml", ""), ("/four.xml", "")];
    for is_index_changed in [false, true] {
        origin.set("/index.xml", Reply::xml(index(&base, &children[..3])));
        origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
        for path in ["/two.xml", "/three.xml", "/four.xml"] {
            origin.set(path, Reply::xml(sitemap(&base, &[("/2", "")])));
        }
        let world = World::new(&[&origin]);
        let daemon = world.start(&site(&origin)).await;
        daemon.polled("/three.xml", 1).await;
        daemon.settled().await;
        origin.set("/two.xml", Reply::status(410));
        origin.set("/three.xml", Reply::status(410));
        for _ in 0..2 {
            daemon.poll("/two.xml").await;
            daemon.poll("/three.xml").await;
            daemon.pass(DAY + HOUR).await;
        }
        assert_eq!(daemon.source("/two.xml").await.state, "retired");
        // Somebody's word counts for more than the index's.
        let three = daemon.source("/three.xml").await;
        assert_eq!(three.state, "retired");
        daemon.store.poll_source(three.id).await.unwrap();
        daemon.settled().await;
        daemon.store.delete_source(three.id, false).await.unwrap();
        let repaired = Reply::xml(sitemap(&base, &[("/2", ""), ("/3", "")]));
        origin.set("/two.xml", repaired.clone());
        origin.set("/three.xml", repaired);
        origin.clear_log();
        daemon.pass(28 * DAY).await;
        daemon.poll("/index.xml").await;
        daemon.settled().await;
        assert!(origin.requests("/two.xml").is_empty());
        daemon.pass(3 * DAY).await;
        if is_index_changed {
            origin.set("/index.xml", Reply::xml(index(&base, &children)));
        }
        daemon.poll("/index.xml").await;
        daemon.settled().await;
        assert_eq!(daemon.source("/two.xml").await.state, "active");
        assert!(daemon.url(&format!("{base}/3")).await.listed);
        assert!(origin.requests("/three.xml").is_empty());
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_child_that_changes_its_index_is_kept() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/a.xml", Reply::xml(index(&base, &[("/child.xml", ""), ("/x.xml", "")])));
    origin.set("/b.xml", Reply::xml(index(&base, &[("/y.xml", "")])));
    for path in ["/child.xml", "/x.xml", "/y.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    daemon.polled("/child.xml", 1).await;
    daemon.polled("/y.xml", 1).await;
    origin.set("/a.xml", Reply::xml(index(&base, &[("/x.xml", "")])));
    origin.set("/b.xml", Reply::xml(index(&base, &[("/y.xml", ""), ("/child.xml", "")])));
    for _ in 0..12 {
        daemon.poll("/a.xml").await;
        daemon.poll("/b.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        daemon.pass(DAY).await;
    }
    let child = daemon.source("/child.xml").await;
    assert_eq!(child.state, "active");
    assert_eq!(child.parent, Some(daemon.source("/b.xml").await.id));
    daemon.stop().await;
}

#[tokio::test]
async fn loops_end_and_what_is_nested_too_deep_is_reported() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/index.xml", ""), ("/1.xml", "")])));
    for n in 1..10 {
        // Each names the next one, and the first again.
        let next = format!("/{}.xml", n + 1);
        let reply = Reply::xml(index(&base, &[(&next, ""), ("/index.xml", ""), ("/1.xml", "")]));
        origin.set(&format!("/{n}.xml"), reply);
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/3.xml", 1).await;
    daemon.settled().await;
    for path in ["/index.xml", "/1.xml", "/2.xml", "/3.xml"] {
        assert_eq!(origin.requests(path).len(), 1, "{path}");
    }
    assert!(origin.requests("/4.xml").is_empty());
    let deepest = daemon.source("/3.xml").await;
    assert!(deepest.issues.iter().any(|issue| issue.code.as_str() == "nested-indexes"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_that_becomes_an_index_gives_its_urls_over_to_its_children() {
    let origin = Origin::start().await;
    let base = origin.base();
    let few = [("/1", ""), ("/2", ""), ("/3", "")];
    origin.set("/index.xml", Reply::xml(sitemap(&base, &few)));
    origin.set("/child.xml", Reply::xml(sitemap(&base, &few[..2])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/index.xml", 1).await;
    origin.set("/index.xml", Reply::xml(index(&base, &[("/child.xml", "")])));
    daemon.poll("/index.xml").await;
    assert_eq!(daemon.polled("/child.xml", 1).await.counts, counts([0, 0, 0, 0, 2, 0, 0, 0]));
    let mut removed = 0;
    for _ in 0..5 {
        daemon.pass(DAY).await;
        daemon.poll("/child.xml").await;
        removed += daemon.poll("/index.xml").await.counts.removed;
    }
    assert_eq!(removed, 1);
    for (path, listed) in [("/1", true), ("/2", true), ("/3", false)] {
        assert_eq!(daemon.url(&format!("{base}{path}")).await.listed, listed, "{path}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_that_is_deleted_takes_its_children_with_it_unless_another_lists_them() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = [("/mine.xml", ""), ("/shared.xml", ""), ("/gone.xml", "")];
    origin.set("/a.xml", Reply::xml(index(&base, &children)));
    origin.set("/b.xml", Reply::xml(index(&base, &[("/other.xml", "")])));
    for path in ["/mine.xml", "/shared.xml", "/gone.xml", "/other.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    for (path, _) in children {
        daemon.polled(path, 1).await;
    }
    daemon.settled().await;
    let states = async || {
        let mut states = Vec::new();
        for path in ["/a.xml", "/mine.xml", "/shared.xml", "/gone.xml"] {
            states.push(daemon.source(path).await.state);
        }
        states.join(" ")
    };
    let gone = daemon.source("/gone.xml").await.id;
    daemon.store.delete_source(gone, false).await.unwrap();
    let index_id = daemon.source("/a.xml").await.id;
    daemon.store.delete_source(index_id, false).await.unwrap();
    assert_eq!(states().await, "retired retired retired retired");

    origin.set("/b.xml", Reply::xml(index(&base, &[("/other.xml", ""), ("/shared.xml", "")])));
    daemon.poll("/b.xml").await;
    daemon.settled().await;
    assert_eq!(states().await, "retired retired active retired");
    assert_eq!(daemon.source("/shared.xml").await.parent, Some(daemon.source("/b.xml").await.id));
    daemon.pass(8 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    let is_listed = async |page: &str| daemon.url(&format!("{base}{page}")).await.listed;
    assert!(is_listed("/shared.xml").await && !is_listed("/mine.xml").await);

    // Asked for, it comes back with what went with it.
    daemon.poll("/a.xml").await;
    daemon.settled().await;
    assert_eq!(states().await, "active active active retired");
    assert!(is_listed("/mine.xml").await);
    // With its URLs at once.
    daemon.store.delete_source(index_id, true).await.unwrap();
    assert!(!is_listed("/mine.xml").await);
    daemon.stop().await;
}

#[tokio::test]
async fn what_two_indexes_list_goes_on_with_the_one_that_is_left_unchanged() {
    let origin = Origin::start().await;
    let base = origin.base();
    for path in ["/a.xml", "/b.xml"] {
        origin.set(path, Reply::xml(index(&base, &[("/shared.xml", "")])).etag("\"1\""));
    }
    origin.set("/shared.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    daemon.polled("/shared.xml", 1).await;
    daemon.settled().await;
    let of = async |path: &str| daemon.source(path).await;
    let parent = of("/shared.xml").await.parent.expect("it has one");
    let [first, other] =
        if of("/a.xml").await.id == parent { ["/a.xml", "/b.xml"] } else { ["/b.xml", "/a.xml"] };
    daemon.store.delete_source(of(first).await.id, false).await.unwrap();
    daemon.settled().await;
    let shared = of("/shared.xml").await;
    assert_eq!((&*shared.state, shared.parent), ("active", Some(of(other).await.id)));
    daemon.stop().await;
}

#[tokio::test]
async fn indexes_that_list_something_else_each_time_have_one_another_read_once_an_hour() {
    let origin = Origin::start().await;
    let base = origin.base();
    let set = |round: usize| {
        for name in ["a", "b"] {
            let child = format!("/{name}-{round}.xml");
            origin.set(&child, Reply::xml(sitemap(&base, &[(&child, "")])));
            let body = index(&base, &[(&child, "")]);
            origin.set(&format!("/{name}.xml"), Reply::xml(body));
        }
    };
    set(0);
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    daemon.polled("/a-0.xml", 1).await;
    daemon.polled("/b-0.xml", 1).await;
    daemon.settled().await;
    origin.clear_log();
    set(1);
    daemon.poll("/a.xml").await;
    daemon.settled().await;
    assert!(origin.requests("/b.xml").is_empty(), "it was read just now");
    for round in 2..=7 {
        daemon.pass(HOUR / 2).await;
        set(round);
        daemon.settled().await;
    }
    let reads = [origin.requests("/a.xml").len(), origin.requests("/b.xml").len()];
    assert!(reads.iter().all(|reads| (2..=4).contains(reads)), "{reads:?} in three hours");
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_that_goes_over_to_another_one_brings_its_children() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/a.xml", Reply::xml(index(&base, &[("/nested.xml", "")])));
    origin.set("/b.xml", Reply::xml(index(&base, &[("/other.xml", "")])));
    origin.set("/nested.xml", Reply::xml(index(&base, &[("/leaf.xml", "")])));
    for path in ["/leaf.xml", "/other.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    daemon.polled("/leaf.xml", 1).await;
    daemon.settled().await;
    daemon.reload(&listed(&origin, &["/b.xml"], &[], "")).await;
    daemon.settled().await;
    assert_eq!(daemon.source("/leaf.xml").await.state, "retired");
    origin.set("/b.xml", Reply::xml(index(&base, &[("/other.xml", ""), ("/nested.xml", "")])));
    daemon.poll("/b.xml").await;
    daemon.settled().await;
    for path in ["/nested.xml", "/leaf.xml"] {
        assert_eq!(daemon.source(path).await.state, "active", "{path}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_that_is_deleted_while_it_is_read_brings_nothing_back() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/old.xml", "2026-11-01")])));
    for path in ["/old.xml", "/new.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/old.xml", 1).await;
    daemon.settled().await;
    let hold = Hold::new();
    let both = [("/old.xml", "2030-01-01"), ("/new.xml", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &both)).hang(&hold));
    let id = daemon.source("/index.xml").await.id;
    daemon.store.poll_source(id).await.unwrap();
    hold.arrived(1).await;
    daemon.store.delete_source(id, false).await.unwrap();
    hold.release_all();
    // Of a host one source is polled at a time: then the other poll is over.
    daemon.poll("/robots.txt").await;
    // Of those two only, and both retired.
    let states = world.look().rows("SELECT state FROM sources WHERE url LIKE '%.xml'");
    assert_eq!(states, [[Some("2".to_owned())], [Some("2".to_owned())]]);
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_that_becomes_a_sitemap_lets_go_of_its_children() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", ""), ("/two.xml", "")])));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    for day in 0..9 {
        // Its own pages change: it is read in full on some days, and not on others.
        let fresh = format!("/fresh/{}", day / 2);
        origin.set("/index.xml", Reply::xml(sitemap(&base, &[("/1", ""), (&fresh, "")])));
        daemon.poll("/index.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        daemon.pass(DAY).await;
    }
    for path in ["/one.xml", "/two.xml"] {
        assert_eq!(daemon.source(path).await.state, "retired", "{path}");
    }
    while daemon.store.maintain().await.unwrap() {}
    assert!(daemon.url(&format!("{base}/1")).await.listed);
    assert!(!daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_that_somebody_deleted_stays_so_whatever_indexes_say() {
    let origin = Origin::start().await;
    let base = origin.base();
    let dated = |day: &str| index(&base, &[("/one.xml", day), ("/two.xml", "2026-11-01")]);
    origin.set("/a.xml", Reply::xml(dated("2026-11-01")));
    origin.set("/b.xml", Reply::xml(index(&base, &[("/y.xml", "")])));
    for path in ["/one.xml", "/two.xml", "/y.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/a.xml", "/b.xml"], &[], "")).await;
    for path in ["/one.xml", "/two.xml", "/y.xml"] {
        daemon.polled(path, 1).await;
    }
    let one = daemon.source("/one.xml").await.id;
    daemon.store.delete_source(one, false).await.unwrap();
    origin.clear_log();
    let only_two = index(&base, &[("/two.xml", "2026-11-01")]);
    let both = index(&base, &[("/y.xml", ""), ("/one.xml", "")]);
    for (path, body) in [
        // Its date moves; it is dropped, and listed again; another index lists it.
        ("/a.xml", dated("2026-11-20")),
        ("/a.xml", only_two.clone()),
        ("/a.xml", dated("2026-11-20")),
        ("/a.xml", only_two),
        ("/b.xml", both),
    ] {
        origin.set(path, Reply::xml(body));
        daemon.poll(path).await;
        daemon.settled().await;
        let source = daemon.source("/one.xml").await;
        let told = (source.state.as_str(), source.error.as_deref(), source.next_poll_at);
        assert_eq!(told, ("retired", Some("deleted by an operator"), None));
    }
    assert!(origin.requests("/one.xml").is_empty());
    // Who asks for it gets it.
    daemon.poll("/one.xml").await;
    assert_eq!(daemon.source("/one.xml").await.state, "active");
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_that_its_index_drops_and_the_site_itself_names_stays() {
    let origin = Origin::start().await;
    let base = origin.base();
    let both = [("/one.xml", ""), ("/two.xml", "")];
    let robots = |names: &str| Reply::text(format!("Sitemap: {base}{names}\n"));
    origin.set("/robots.txt", robots("/index.xml"));
    origin.set("/index.xml", Reply::xml(index(&base, &both)));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    let world = World::new(&[&origin]);
    let text = format!("[[site]]\nname = \"s\"\nurl = \"{base}/\"\nfeeds = []\n");
    let daemon = world.start(&text).await;
    daemon.polled("/two.xml", 1).await;
    origin.set("/index.xml", Reply::xml(index(&base, &both[..1])));
    daemon.poll("/index.xml").await;
    let named = format!("/index.xml\nSitemap: {base}/two.xml");
    origin.set("/robots.txt", robots(&named));
    daemon.poll("/robots.txt").await;
    for _ in 0..9 {
        daemon.poll("/index.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        daemon.pass(DAY).await;
    }
    let two = daemon.source("/two.xml").await;
    assert_eq!(
        (two.state.as_str(), two.parent, two.named_by.as_str()),
        ("active", None, "robots.txt")
    );
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn parts_of_one_sitemap_are_one_source_whoever_names_them() {
    let origin = Origin::start().await;
    let base = origin.base();
    let listed = ["/a.xml#one", "/a.xml#two", "/a.xml"].map(|path| (path, ""));
    origin.set("/index.xml", Reply::xml(index(&base, &listed)));
    origin.set("/a.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    origin.set("/robots.txt", Reply::text(format!("Sitemap: {base}/index.xml#x\n")));
    let world = World::new(&[&origin]);
    let site = |sitemaps: &str| {
        format!("[[site]]\nname = \"site\"\nurl = \"{base}/\"\nfeeds = []\n{sitemaps}\n")
    };
    let daemon = world.start(&site("")).await;
    daemon.polled("/a.xml", 1).await;
    daemon.settled().await;
    let api = ApiClient::new(&format!("http://{}", daemon.api), None).unwrap();
    let body = json!({ "site": "site", "url": format!("{base}/a.xml#three") });
    let told: Value = api.post("/v1/sources", &body).await.unwrap();
    assert_eq!(told["url"], format!("{base}/a.xml"));
    // Nor does any of them leave the index.
    daemon.polled("/a.xml", 2).await;
    daemon.poll("/index.xml").await;
    daemon.reload(&site(&format!("sitemaps = [\"{base}/index.xml#y\"]"))).await;
    daemon.settled().await;
    let mut urls: Vec<_> = daemon.sources().await.into_iter().map(|source| source.url).collect();
    urls.retain(|url| url.contains(".xml"));
    urls.sort();
    assert_eq!(urls, ["/a.xml", "/index.xml"].map(|path| format!("{base}{path}")));
    daemon.stop().await;
}
