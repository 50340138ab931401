//! Windows: feeds, news sitemaps, and sitemaps that turn out to be one.

use std::time::Duration;

use super::{listed, one_sitemap};
use crate::support::daemon::{DAY, HOUR, World, index, rss, sitemap};
use crate::support::{Origin, PATIENCE, Reply};

fn news(base: &str, paths: &[&str]) -> Reply {
    Reply::xml(news_and(base, paths, &[]))
}

/// News, and behind them what is none.
fn news_and(base: &str, paths: &[&str], others: &[&str]) -> String {
    let mut xml = String::from(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:news=\"http://www.google.com/schemas/sitemap-news/0.9\">",
    );
    for path in paths {
        let entry = format!(
            "<url><loc>{base}{path}</loc><news:news><news:publication><news:name>N</news:name>\
             <news:language>en</news:language></news:publication>\
             <news:publication_date>2026-11-20</news:publication_date>\
             <news:title>{path}</news:title></news:news></url>"
        );
        xml += &entry;
    }
    for path in others {
        xml += &plain(base, path);
    }
    xml + "</urlset>"
}

fn plain(base: &str, path: &str) -> String {
    format!("<url><loc>{base}{path}</loc></url>")
}

#[tokio::test]
async fn a_news_sitemap_that_rolls_over_removes_nothing() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    origin.set("/sitemap.xml", news(&base, &["/1", "/2", "/3"]));
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    for paths in
        [["/3", "/4", "/5"], ["/5", "/6", "/7"], ["/8", "/9", "/10"], ["/11", "/12", "/13"]]
    {
        daemon.pass(2 * DAY).await;
        origin.set("/sitemap.xml", news(&base, &paths));
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!((poll.counts.missing, poll.counts.removed), (0, 0));
    }
    assert!(daemon.source("/sitemap.xml").await.window);
    for path in ["/1", "/7", "/13"] {
        assert!(daemon.url(&format!("{base}{path}")).await.listed, "{path}");
    }
    // What comes back was never away.
    origin.set("/sitemap.xml", news(&base, &["/1", "/13"]));
    assert_eq!(daemon.poll("/sitemap.xml").await.counts.new, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn the_beginning_of_a_sitemap_makes_no_window_of_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let list = |paths: &[&str]| news_and(&base, &["/1", "/2", "/3"], paths);
    let all = list(&["/4", "/5", "/6", "/7", "/8", "/9"]);
    origin.set("/sitemap.xml", Reply::xml(all.clone()));
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let cut = all.split_once(&plain(&base, "/5")).unwrap().0;
    origin.set("/sitemap.xml", Reply::xml(cut.to_owned()));
    assert_eq!(daemon.poll("/sitemap.xml").await.result, "incomplete");
    assert!(!daemon.source("/sitemap.xml").await.window);
    // So what is not there in the next one is missed.
    origin.set("/sitemap.xml", Reply::xml(list(&["/4", "/5", "/6", "/7", "/8"])));
    let mut removed = 0;
    for _ in 0..4 {
        removed += daemon.poll("/sitemap.xml").await.counts.removed;
        daemon.pass(DAY).await;
    }
    assert_eq!(removed, 1);
    assert!(!daemon.url(&format!("{base}/9")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_news_sitemap_without_news_holds_nothing() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    origin.set("/news.xml", news(&base, &["/1", "/2"]));
    let full = |paths: &[&str]| {
        let entries: Vec<_> = paths.iter().map(|path| (*path, "")).collect();
        Reply::xml(sitemap(&base, &entries))
    };
    origin.set("/sitemap.xml", full(&["/1", "/2", "/3"]));
    let daemon = world.start(&listed(&origin, &["/sitemap.xml", "/news.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.polled("/news.xml", 1).await;
    origin.set("/news.xml", news(&base, &[]));
    origin.set("/sitemap.xml", full(&["/2", "/3"]));
    for _ in 0..4 {
        daemon.poll("/sitemap.xml").await;
        let poll = daemon.poll("/news.xml").await;
        assert_eq!((poll.counts.missing, poll.counts.removed), (0, 0));
        daemon.pass(DAY).await;
    }
    let source = daemon.source("/news.xml").await;
    assert!(source.window);
    assert_eq!(source.status, "success");
    assert!(!daemon.url(&format!("{base}/1")).await.listed);
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_feed_neither_holds_nor_removes() {
    let origin = Origin::start().await;
    let base = origin.base();
    let date = "Fri, 20 Nov 2026 10:00:00 GMT";
    origin.set("/feed", Reply::xml(rss(&base, &[("/1", date), ("/2", date)])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    origin.set("/feed", Reply::xml(rss(&base, &[("/3", date)])));
    for _ in 0..5 {
        let poll = daemon.poll("/feed").await;
        assert_eq!((poll.counts.missing, poll.counts.removed), (0, 0));
        daemon.pass(DAY).await;
    }
    assert!(daemon.url(&format!("{base}/1")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_full_sitemap_takes_the_first_place_from_a_feed_and_removes_what_it_drops() {
    let origin = Origin::start().await;
    let base = origin.base();
    let date = "Fri, 20 Nov 2026 10:00:00 GMT";
    origin.set("/feed", Reply::xml(rss(&base, &[("/1", date), ("/2", date)])));
    origin.set("/sitemap.xml", Reply::status(500));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    daemon.settled().await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/1", ""), ("/2", "")])));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.unchanged), (0, 2));
    let row = daemon.url(&format!("{base}/1")).await;
    assert_eq!(row.sources.len(), 2);
    assert!(row.sources[0].1.ends_with("/sitemap.xml"), "{:?}", row.sources);
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/2", "")])));
    for _ in 0..3 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    // The feed still shows it, and holds nothing.
    assert!(!daemon.url(&format!("{base}/1")).await.listed);
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

/// A sitemap of the five days before `day` of November.
fn rolling(base: &str, day: usize) -> Reply {
    let days: Vec<_> =
        (day - 4..=day).map(|n| (format!("/day/{n}"), format!("2026-10-{n:02}"))).collect();
    let entries: Vec<_> = days.iter().map(|(path, date)| (path.as_str(), date.as_str())).collect();
    Reply::xml(sitemap(base, &entries))
}

#[tokio::test]
async fn a_sitemap_whose_oldest_leave_is_learned_to_be_a_window_before_it_removes() {
    // Polled daily, and polled hourly with most reads showing nothing.
    for polls_a_day in [1, 4] {
        let origin = Origin::start().await;
        let base = origin.base();
        let world = World::new(&[&origin]);
        origin.set("/sitemap.xml", rolling(&base, 10));
        let daemon = world.start(&one_sitemap(&origin)).await;
        daemon.polled("/sitemap.xml", 1).await;
        let mut removed = 0;
        for day in 11..=16 {
            origin.set("/sitemap.xml", rolling(&base, day));
            for _ in 0..polls_a_day {
                removed += daemon.poll("/sitemap.xml").await.counts.removed;
                daemon.pass(24 * HOUR / polls_a_day).await;
            }
        }
        let source = daemon.source("/sitemap.xml").await;
        assert!(source.window, "{polls_a_day} polls a day");
        if polls_a_day == 1 {
            assert_eq!(removed, 0);
            assert!(daemon.url(&format!("{base}/day/6")).await.listed);
        }
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_list_by_date_that_is_cut_into_sitemaps_is_no_window() {
    // Whether the sitemap that takes over what leaves the other is read before it.
    for is_first in [true, false] {
        let origin = Origin::start().await;
        let base = origin.base();
        let parts = [("/old.xml", ""), ("/young.xml", "")];
        origin.set("/index.xml", Reply::xml(index(&base, &parts)));
        let mut posts: Vec<_> = (0..20).map(|n| (format!("/{n}"), n + 1)).collect();
        let set = |posts: &[(String, usize)]| {
            for ((place, _), part) in parts.iter().zip(posts.chunks(10)) {
                let date = |day: usize| format!("2026-{:02}-{:02}", day / 28 + 1, day % 28 + 1);
                let dates: Vec<_> = part.iter().map(|(_, day)| date(*day)).collect();
                let paths = part.iter().map(|(path, _)| path.as_str());
                let entries: Vec<_> = paths.zip(dates.iter().map(String::as_str)).collect();
                origin.set(place, Reply::xml(sitemap(&base, &entries)));
            }
        };
        set(&posts);
        let world = World::new(&[&origin]);
        let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
        daemon.polled("/young.xml", 1).await;
        daemon.polled("/old.xml", 1).await;
        let order = if is_first { ["/old.xml", "/young.xml"] } else { ["/young.xml", "/old.xml"] };
        let mut removed = 0;
        let mut read = async |posts: &[(String, usize)]| {
            set(posts);
            for part in order {
                removed += daemon.poll(part).await.counts.removed;
            }
            daemon.pass(DAY).await;
            removed
        };
        // Each day the oldest post is edited, and the oldest young one is old then.
        for day in 21..31 {
            let (path, _) = posts.remove(0);
            posts.push((path, day));
            assert_eq!(read(&posts).await, 0, "{day} {is_first}");
        }
        for place in order {
            assert!(!daemon.source(place).await.window, "{place} {is_first}");
        }
        // So what is deleted is noticed, young or old.
        let gone = [posts.remove(15).0, posts.remove(5).0];
        for _ in 0..5 {
            read(&posts).await;
        }
        for path in &gone {
            assert!(!daemon.url(&format!("{base}{path}")).await.listed, "{path} {is_first}");
        }
        for (path, _) in &posts {
            assert!(daemon.url(&format!("{base}{path}")).await.listed, "{path} {is_first}");
        }
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_window_beside_sitemaps_that_list_other_pages_is_one() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/recent.xml", ""), ("/pages.xml", "")])));
    origin.set("/pages.xml", Reply::xml(sitemap(&base, &[("/about", "2026-01-01")])));
    origin.set("/recent.xml", rolling(&base, 10));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    daemon.polled("/recent.xml", 1).await;
    daemon.polled("/pages.xml", 1).await;
    for day in 11..=18 {
        origin.set("/recent.xml", rolling(&base, day));
        assert_eq!(daemon.poll("/recent.xml").await.counts.removed, 0);
        daemon.poll("/pages.xml").await;
        daemon.pass(DAY).await;
    }
    assert!(daemon.source("/recent.xml").await.window);
    assert!(daemon.url(&format!("{base}/day/6")).await.listed);
    // What it loses is in an archive from now on, so that it is none any more.
    let archive: Vec<_> = (6..=20).map(|n| format!("/day/{n}")).collect();
    let archive: Vec<_> = archive.iter().map(|path| (path.as_str(), "")).collect();
    origin.set("/pages.xml", Reply::xml(sitemap(&base, &archive)));
    daemon.poll("/pages.xml").await;
    origin.set("/recent.xml", rolling(&base, 19));
    daemon.poll("/recent.xml").await;
    assert!(!daemon.source("/recent.xml").await.window);
    daemon.stop().await;
}

#[tokio::test]
async fn a_window_stays_one_where_a_few_that_leave_it_are_listed_elsewhere() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/recent.xml", ""), ("/best.xml", "")])));
    origin.set("/best.xml", Reply::xml(sitemap(&base, &[("/day/14", "")])));
    origin.set("/recent.xml", rolling(&base, 10));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    daemon.polled("/recent.xml", 1).await;
    daemon.polled("/best.xml", 1).await;
    for day in 11..=15 {
        origin.set("/recent.xml", rolling(&base, day));
        daemon.poll("/recent.xml").await;
        daemon.poll("/best.xml").await;
        daemon.pass(DAY).await;
    }
    assert!(daemon.source("/recent.xml").await.window);
    // 11 to 15 leave, of which one is among the best.
    origin.set("/recent.xml", rolling(&base, 20));
    daemon.poll("/recent.xml").await;
    assert!(daemon.source("/recent.xml").await.window);
    for _ in 0..4 {
        daemon.pass(DAY).await;
        assert_eq!(daemon.poll("/recent.xml").await.counts.removed, 0);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn pages_deleted_here_and_there_make_no_window() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let all = ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"];
    let dates: Vec<_> = (10..20).map(|n| format!("2026-10-{n}")).collect();
    let entries: Vec<_> = all.iter().zip(&dates).map(|(p, d)| (*p, d.as_str())).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &entries)));
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let mut removed = 0;
    // One from the middle goes each time, and one comes.
    for round in 1..=6_usize {
        let mut now: Vec<_> = entries[..5].to_vec();
        now.extend(&entries[5 + round.min(4)..]);
        let fresh: Vec<_> = (0..round).map(|n| format!("/fresh/{n}")).collect();
        now.extend(fresh.iter().map(|path| (path.as_str(), "2026-10-30")));
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &now)));
        removed += daemon.poll("/sitemap.xml").await.counts.removed;
        daemon.pass(DAY).await;
    }
    assert!(!daemon.source("/sitemap.xml").await.window);
    assert_eq!(removed, 4);
    daemon.stop().await;
}

/// A feed of these items that names an older page, if there is one.
fn page(base: &str, paths: &[&str], older: Option<&str>) -> Reply {
    let date = "Fri, 20 Nov 2026 10:00:00 GMT";
    let items: Vec<_> = paths.iter().map(|path| (*path, date)).collect();
    let link = older.map(|older| {
        format!("<link xmlns=\"http://www.w3.org/2005/Atom\" rel=\"next\" href=\"{base}{older}\"/>")
    });
    Reply::xml(rss(base, &items).replacen(
        "<item>",
        &format!("{}<item>", link.unwrap_or_default()),
        1,
    ))
}

/// The sample of the gap in the report of the feed, if there is one.
async fn gap(daemon: &crate::support::daemon::Daemon) -> Option<String> {
    let issues = daemon.source("/feed").await.issues;
    let gap = issues.into_iter().find(|issue| issue.code.as_str() == "feed-gap");
    gap.map(|issue| issue.sample)
}

#[tokio::test]
async fn a_feed_that_overflowed_is_read_back_to_what_is_known() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/feed", page(&base, &["/1", "/2"], Some("/feed?2")));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    // A first read has nothing to miss, and one that still shows something neither.
    origin.set("/feed", page(&base, &["/3", "/2"], Some("/feed?2")));
    daemon.poll("/feed").await;
    assert!(origin.requests("/feed?2").is_empty());
    assert_eq!(gap(&daemon).await, None);

    origin.set("/feed", page(&base, &["/9", "/8"], Some("/feed?2")));
    origin.set("/feed?2", page(&base, &["/7", "/6"], Some("/feed?3")));
    origin.set("/feed?3", page(&base, &["/5", "/3"], Some("/feed?4")));
    let poll = daemon.poll("/feed").await;
    assert_eq!((poll.counts.new, poll.counts.removed), (5, 0));
    assert!(origin.requests("/feed?4").is_empty(), "no further than to what is known");
    let told = gap(&daemon).await;
    assert_eq!(told.as_deref(), Some("what was missed was read from 2 older pages"));
    for path in ["/5", "/6", "/7", "/9"] {
        assert!(daemon.url(&format!("{base}{path}")).await.listed, "{path}");
    }
    // The next read is one of one page again.
    origin.set("/feed", page(&base, &["/10", "/9"], Some("/feed?2")));
    let poll = daemon.poll("/feed").await;
    assert_eq!((poll.counts.new, origin.requests("/feed?2").len()), (1, 1));
    assert_eq!(gap(&daemon).await, None);
    daemon.stop().await;
}

#[tokio::test]
async fn a_feed_on_a_very_slow_host_is_read_back_all_the_same() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/feed", page(&base, &["/1"], None));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "host_delay = \"100s\"")).await;
    let polled = async |times: usize| {
        let id = daemon.source("/feed").await.id;
        let read = async {
            while daemon.polls(id).await.len() < times {
                daemon.clock.advance(Duration::from_secs(1));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap();
    };
    polled(1).await;
    origin.set("/feed", page(&base, &["/3"], Some("/feed?2")));
    origin.set("/feed?2", page(&base, &["/2", "/1"], None));
    let source = daemon.source("/feed").await.id;
    daemon.store.poll_source(source).await.unwrap();
    polled(2).await;
    let told = gap(&daemon).await;
    assert_eq!(told.as_deref(), Some("what was missed was read from an older page"));
    daemon.stop().await;
}

#[tokio::test]
async fn older_pages_of_a_feed_are_where_its_redirect_leads() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let items = |paths: &[&str]| -> Vec<String> {
        paths.iter().map(|path| format!("{}{path}", origin.base())).collect()
    };
    let set = |path: &str, paths: &[&str], older: &str| {
        let items = items(paths);
        let items: Vec<_> = items.iter().map(String::as_str).collect();
        other.set(path, page("", &items, Some(other.url(older).as_ref())));
    };
    origin.set("/feed", Reply::redirect(301, other.url("/feed")));
    set("/feed", &["/1"], "/feed?2");
    let world = World::new(&[&origin, &other]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    set("/feed", &["/3"], "/feed?2");
    set("/feed?2", &["/2", "/1"], "/feed?3");
    assert_eq!(daemon.poll("/feed").await.counts.new, 2);
    daemon.stop().await;
}

#[tokio::test]
async fn an_older_page_may_be_named_by_a_header() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/feed", page(&base, &["/1"], None));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    let next = page(&base, &["/3"], None).header("Link", "</feed?2>; rel=\"next\"");
    origin.set("/feed", next);
    origin.set("/feed?2", page(&base, &["/2", "/1"], None));
    assert_eq!(daemon.poll("/feed").await.counts.new, 2);
    let told = gap(&daemon).await;
    assert_eq!(told.as_deref(), Some("what was missed was read from an older page"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_gap_that_cannot_be_closed_is_told_and_ends() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let base = origin.base();
    origin.set("/feed", page(&base, &["/1"], None));
    let world = World::new(&[&origin, &other]);
    let daemon = world.start(&listed(&origin, &[], &["/feed"], "")).await;
    daemon.polled("/feed", 1).await;
    origin.set("/feed", page(&base, &["/2"], None));
    daemon.poll("/feed").await;
    assert_eq!(gap(&daemon).await.as_deref(), Some("there is no older page to read"));
    // Pages that lead in a circle, and pages without end.
    origin.set("/feed", page(&base, &["/3"], Some("/feed?a")));
    origin.set("/feed?a", page(&base, &["/4"], Some("/feed")));
    daemon.poll("/feed").await;
    assert_eq!(origin.requests("/feed?a").len(), 1);
    origin.set("/feed", page(&base, &["/n0"], Some("/feed?1")));
    for n in 1..30 {
        let (path, older) = (format!("/n{n}"), format!("/feed?{}", n + 1));
        origin.set(&format!("/feed?{n}"), page(&base, &[&path], Some(&older)));
    }
    let poll = daemon.poll("/feed").await;
    assert_eq!((poll.counts.new, origin.requests("/feed?11").len()), (11, 0));
    let told = gap(&daemon).await;
    assert_eq!(told.as_deref(), Some("10 older pages were read, and still nothing is known"));
    // A page on another host is not the feed's.
    origin.set("/feed", page("", &[&format!("{base}/z")], Some(other.url("/feed").as_ref())));
    daemon.poll("/feed").await;
    assert!(other.all_requests().is_empty());
    daemon.stop().await;
}
