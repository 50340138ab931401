//! What waits for removal is not waited for longer than the configuration has it,
//! however seldom its sources are read.

use super::listed;
use crate::support::daemon::{DAY, Daemon, HOUR, World, index, sitemap};
use crate::support::{Origin, Reply};

const ALL: [(&str, &str); 3] = [("/a", "2020-11-01"), ("/b", "2020-11-02"), ("/c", "2020-11-03")];
const WITHOUT_C: [(&str, &str); 2] = [("/a", "2020-11-01"), ("/b", "2020-11-02")];

/// Sites whose sources have a rhythm of their own.
fn adaptive(origin: &Origin, sitemaps: &[&str]) -> String {
    listed(origin, sitemaps, &[], "").replace("poll = \"30d\"\n", "")
}

/// Lets nothing happen for so long that all is read once a week.
async fn rest(daemon: &Daemon) {
    for _ in 0..12 {
        daemon.pass(5 * DAY).await;
    }
}

/// A sitemap and another, both of which their index dates as unchanged, have been read.
async fn beside_one_that_rests(origin: &Origin, config: &str) -> (World, Daemon) {
    let base = origin.base();
    let both = [("/sitemap.xml", "2020-11-05"), ("/rests.xml", "2020-11-05")];
    origin.set("/index.xml", Reply::xml(index(&base, &both)));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    origin.set("/rests.xml", Reply::xml(sitemap(&base, &[("/d", "2020-11-05")])));
    let world = World::new(&[origin]);
    let daemon = world.start(config).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.polled("/rests.xml", 1).await;
    (world, daemon)
}

/// Hours from the first read that misses a URL to its removal.
async fn hours_to_removal(daemon: &Daemon, path: &str, url: &str) -> u32 {
    let source = daemon.source(path).await.id;
    let mut hours = None;
    for _ in 0..24 * 35 {
        if !daemon.url(url).await.listed {
            return hours.expect("it was missed first");
        }
        daemon.pass(HOUR).await;
        let polls = daemon.polls(source).await;
        let misses = polls.last().is_some_and(|poll| poll.counts.missing > 0);
        hours = hours.map(|hours| hours + 1).or(misses.then_some(0));
    }
    panic!("it is listed to this day")
}

#[tokio::test]
async fn a_sitemap_that_rests_is_read_again_in_time_once_it_misses_something() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&adaptive(&origin, &["/sitemap.xml"])).await;
    daemon.polled("/sitemap.xml", 1).await;
    rest(&daemon).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    let hours = hours_to_removal(&daemon, "/sitemap.xml", &format!("{base}/c")).await;
    assert!((24..=27).contains(&hours), "{hours}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_removal_waits_for_no_sibling_that_its_index_says_rests() {
    let origin = Origin::start().await;
    let base = origin.base();
    let children = ["/sitemap.xml", "/dated.xml", "/undated.xml"];
    let says = ["2020-11-05", "2020-11-05", ""];
    let listed: Vec<_> = children.into_iter().zip(says).collect();
    origin.set("/index.xml", Reply::xml(index(&base, &listed)));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    origin.set("/dated.xml", Reply::xml(sitemap(&base, &[("/d", "2020-11-05")])));
    origin.set("/undated.xml", Reply::xml(sitemap(&base, &[("/u", "2020-11-05")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&adaptive(&origin, &["/index.xml"])).await;
    for child in children {
        daemon.polled(child, 1).await;
    }
    rest(&daemon).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    let counted = || children.map(|child| origin.requests(child).len());
    let before = counted();
    let hours = hours_to_removal(&daemon, "/sitemap.xml", &format!("{base}/c")).await;
    assert!((24..=27).contains(&hours), "{hours}");
    // In up to a week until it was missed, and the day after that, the others are read once
    // for it, and once or twice for themselves.
    let [_, dated, undated] = counted();
    assert!(dated <= before[1] + 3 && undated <= before[2] + 3, "{:?}", counted());
    daemon.stop().await;
}

#[tokio::test]
async fn what_went_to_a_sitemap_beside_it_is_found_there_before_it_is_removed() {
    let origin = Origin::start().await;
    let base = origin.base();
    let adaptive = adaptive(&origin, &["/index.xml"]);
    let (_world, daemon) = beside_one_that_rests(&origin, &adaptive).await;
    rest(&daemon).await;
    // The index says of neither that it has changed.
    origin.set("/rests.xml", Reply::xml(sitemap(&base, &[("/d", "2020-11-05"), ALL[2]])));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    for _ in 0..4 * 14 {
        daemon.pass(6 * HOUR).await;
        assert!(daemon.url(&format!("{base}/c")).await.listed);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn where_a_site_says_when_it_is_polled_siblings_are_read_then_and_not_passed_over() {
    let origin = Origin::start().await;
    let base = origin.base();
    let daily = listed(&origin, &["/index.xml"], &[], "").replace("\"30d\"", "\"1d\"");
    let (_world, daemon) = beside_one_that_rests(&origin, &daily).await;
    for _ in 0..6 {
        daemon.pass(6 * HOUR).await;
    }
    let read = || origin.requests("/rests.xml").len();
    let before = read();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &WITHOUT_C)));
    // It is asked for by what misses something, and read no more often than each day.
    daemon.poll("/sitemap.xml").await;
    let mut hours = 0;
    while daemon.url(&format!("{base}/c")).await.listed {
        daemon.pass(6 * HOUR).await;
        hours += 6;
        assert!(hours <= 3 * 24 && read() <= before + 3, "{hours} {}", read());
    }
    assert!(read() > before);
    daemon.stop().await;
}
