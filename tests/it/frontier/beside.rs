//! Pushed URLs beside those that sites list: one crawl, one queue a host.

use sitemapd::model::Outcome;
use sitemapd::queue::Settlement;

use sitemapd::serve::frontier::proto::{CrawlLimitParams, DeleteCrawlMessage, Empty};

use super::*;
use crate::support::daemon::{DAY, MINUTE, rss, sitemap};
use crate::support::{Origin, Reply};

fn site(origin: &Origin) -> String {
    let base = origin.base();
    config(&format!(
        "[[site]]\nname = \"a\"\nurl = \"{base}/\"\npoll = \"30d\"\n\
         sitemaps = [\"{base}/sitemap.xml\"]\nfeeds = []\nobey_robots = false\n"
    ))
}

#[tokio::test]
async fn what_a_site_lists_is_served_too_and_is_known() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "2026-11-01")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let mut client = Client::of(&daemon).await;
    let page = format!("{base}/a");
    let acks = client.put(vec![discovered(info(&page))]).await;
    assert_eq!(acks[0].1, Ack::Skipped);
    assert_eq!(client.get(9, 0).await, [page.as_str()]);
    client.put(vec![known(saying(&page, &[("fetch.statusCode", "200")]), 0)]).await;
    assert!(client.get(9, 0).await.is_empty());
    // Removing a queue leaves what is listed.
    let host = origin.base()[7..].split(':').next().unwrap().to_owned();
    let queue = QueueWithinCrawlParams { key: host, ..Default::default() };
    assert_eq!(client.count("DeleteQueue", queue).await, 0);
    // What a sitemap says later is news, also of what was completed.
    assert_eq!(client.stats("").await.counts["completed"], 1);
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "2026-11-20")])));
    daemon.pass(DAY).await;
    daemon.poll("/sitemap.xml").await;
    assert_eq!(client.stats("").await.counts["completed"], 0);
    assert_eq!(client.get(9, 0).await, [page.as_str()]);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_completed_of_a_crawl_that_stays_counts_on_when_it_is_to_be_deleted() {
    let origin = Origin::start().await;
    let base = origin.base();
    let pages: Vec<_> = (0..5).map(|n| format!("/{n}")).collect();
    let listed: Vec<_> = pages.iter().map(|page| (page.as_str(), "2026-11-01")).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &listed)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let mut client = Client::of(&daemon).await;
    for page in &pages {
        let fetched = saying(&format!("{base}{page}"), &[("fetch.statusCode", "200")]);
        client.put(vec![known(fetched, 0)]).await;
    }
    let host = base[7..].split(':').next().unwrap().to_owned();
    let limit = CrawlLimitParams { key: host.clone(), limit: 5, ..Default::default() };
    client.one::<_, Empty>("SetCrawlLimit", limit.clone()).await.unwrap();
    assert_eq!(client.stats(&host).await.counts["completed"], 5);
    let gone = DeleteCrawlMessage { value: "DEFAULT".to_owned(), local: false };
    assert_eq!(client.count("DeleteCrawl", gone).await, 0);
    assert_eq!(client.stats(&host).await.counts["completed"], 5);
    // What was set is forgotten, and is heeded when it is set again.
    let more = format!("{base}/more");
    client.put(vec![discovered(info(&more))]).await;
    assert_eq!(client.get(9, 0).await, [more.as_str()]);
    client.one::<_, Empty>("SetCrawlLimit", limit).await.unwrap();
    client.put(vec![discovered(info(&format!("{base}/yet-more")))]).await;
    daemon.clock.advance(MINUTE);
    assert!(client.get(9, 0).await.is_empty(), "the queue has as many as it may");
    daemon.stop().await;
}

#[tokio::test]
async fn a_url_that_a_site_may_list_may_be_reported_however_long() {
    let origin = Origin::start().await;
    let base = origin.base();
    let path = format!("/{}", "x".repeat(3_000));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[(&path, "2026-11-01")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&(site(&origin) + "limits = { max_url_chars = 65536 }\n")).await;
    daemon.polled("/sitemap.xml", 1).await;
    let mut client = Client::of(&daemon).await;
    let page = format!("{base}{path}");
    assert_eq!(client.get(9, 0).await, [page.as_str()]);
    let acks = client.put(vec![known(saying(&page, &[("fetch.statusCode", "200")]), 0)]).await;
    assert_eq!(acks[0].1, Ack::Ok);
    assert!(client.get(9, 0).await.is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn a_pushed_url_is_not_removed_when_a_source_stops_listing_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    let (kept, listed) = (format!("{base}/kept"), format!("{base}/listed"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let mut client = Client::of(&daemon).await;
    client.put(vec![discovered(info(&kept))]).await;
    let both = [("/kept", "2026-11-01"), ("/listed", "2026-11-01"), ("/x", "2026-11-01")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &both)));
    daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.url(&kept).await.site.as_deref(), Some("a"), "it is that site's now");
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/x", "2026-11-01")])));
    for _ in 0..8 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    assert!(!daemon.url(&listed).await.listed, "one that nobody pushed is removed");
    assert!(daemon.url(&kept).await.listed);
    // And it can be listed again.
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &both)));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["new /listed"]);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_removed_counts_for_no_site_and_what_a_feed_lists_stays() {
    let origin = Origin::start().await;
    let base = origin.base();
    let (gone, in_feed) = (format!("{base}/gone"), format!("{base}/feed"));
    let pushed = [("/gone", ""), ("/feed", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[])));
    let feed = rss(&base, &[("/feed", "")]);
    origin.set("/rss.xml", Reply::xml(rss(&base, &[])));
    let world = World::new(&[&origin]);
    let with_feed = format!("feeds = [\"{base}/rss.xml\"]");
    let daemon = world.start(&site(&origin).replace("feeds = []", &with_feed)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.polled("/rss.xml", 1).await;
    let mut client = Client::of(&daemon).await;
    client.put(vec![discovered(info(&gone)), discovered(info(&in_feed))]).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &pushed)));
    daemon.poll("/sitemap.xml").await;
    origin.set("/rss.xml", Reply::xml(feed));
    daemon.poll("/rss.xml").await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/x", "")])));
    for _ in 0..8 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    let urls = async || daemon.store.site("a".to_owned()).await.unwrap().urls;
    assert_eq!(urls().await, 2, "what a client pushed is a site's while that shows it");
    let host = base[7..].split(':').next().unwrap().to_owned();
    let queue = QueueWithinCrawlParams { key: host, ..Default::default() };
    assert_eq!(client.count("DeleteQueue", queue).await, 1);
    assert!(!daemon.knows(&gone).await);
    assert!(daemon.knows(&in_feed).await);
    assert_eq!(urls().await, 2);
    let priorities = world.look().number("SELECT priorities FROM sites");
    assert_eq!(priorities, 2 * 500, "of one that says none");
    daemon.stop().await;
}

#[tokio::test]
async fn what_was_pushed_takes_room_while_it_is_listed_and_no_more_than_there_is() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = |paths: &[&str]| {
        let entries: Vec<_> = paths.iter().map(|path| (*path, "")).collect();
        let etag = format!("\"{}\"", paths.join(""));
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &entries)).etag(&etag));
    };
    list(&[]);
    let world = World::new(&[&origin]);
    let daemon = world.start(&format!("{}max_urls = 3\n", site(&origin))).await;
    daemon.polled("/sitemap.xml", 1).await;
    let mut client = Client::of(&daemon).await;
    let pushed = ["/a", "/b", "/c", "/d", "/e"];
    let push = |path: &str| discovered(info(&format!("{base}{path}")));
    client.put(pushed.iter().map(|path| push(path)).collect()).await;
    let look = world.look();
    let counted = || {
        let sums = ["urls", "unlisted", "priorities"];
        let sums = sums.map(|sum| look.number(&format!("SELECT {sum} FROM sites")));
        let of_site = "FROM urls WHERE site_id IS NOT NULL";
        let rows = look.number(&format!("SELECT count(*) {of_site}"));
        let unlisted = look.number(&format!("SELECT count(*) {of_site} AND listed = 0"));
        assert_eq!(sums, [rows, unlisted, 500 * rows]);
        // Where it waits it is the same site's.
        assert_eq!(look.number("SELECT count(*) FROM queue WHERE site_id IS NOT NULL"), rows);
        (rows, unlisted)
    };
    // One that is spelled in two ways takes room once.
    list(&["/a", "/%61", "/b", "/c", "/d", "/e"]);
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.rejected, counted()), (0, 2, (3, 0)));
    assert_eq!(daemon.url(&format!("{base}/c")).await.site.as_deref(), Some("a"));
    assert_eq!(daemon.url(&format!("{base}/d")).await.site, None);
    // What is listed in their place finds room once they are let go of.
    list(&["/f", "/g", "/h"]);
    for _ in 0..4 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    assert_eq!(counted(), (3, 0));
    for (path, owner) in pushed.map(|path| (path, None)).into_iter().chain([("/h", Some("a"))]) {
        let url = daemon.url(&format!("{base}{path}")).await;
        assert_eq!((url.site.as_deref(), url.listed), (owner, true), "{path}");
    }
    // And they are the site's again where it has room for them.
    list(&["/f", "/g", "/h", "/a", "/b"]);
    daemon.reload(&format!("{}max_urls = 4\n", site(&origin))).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.rejected, counted()), (1, (4, 0)));
    daemon.stop().await;
}

#[tokio::test]
async fn fetchers_of_ours_get_what_was_pushed_under_any_key() {
    let (_world, daemon, mut client) = started(&config("")).await;
    client
        .put(vec![
            discovered(keyed("http://a.test/x?y=1", "mine")),
            discovered(info("http://a.test/x?y=1")),
        ])
        .await;
    let mut leased = daemon.lease().await;
    leased.sort_by(|a, b| a.host.cmp(&b.host));
    let told: Vec<_> = leased.iter().map(|l| (&*l.host, l.url.as_str())).collect();
    assert_eq!(
        told,
        [("http://a.test", "http://a.test/x?y=1"), ("key:mine", "http://a.test/x?y=1")]
    );
    assert!(leased.iter().all(|lease| lease.site.is_none() && lease.source.is_none()));
    let settle =
        |token| Settlement { status: Some(200), ..Settlement::new(token, Some(Outcome::Unknown)) };
    let settlements = leased.iter().map(|lease| settle(lease.token)).collect();
    daemon.store.settle(settlements).await.unwrap();
    // All views show the URL as it is fetched.
    let views = daemon.store.urls(10, None).await.unwrap().items;
    assert!(views.iter().all(|view| view.url == "http://a.test/x?y=1"));
    let peeked = daemon.store.peek("default".to_owned(), 10).await.unwrap();
    assert!(peeked.iter().all(|line| line.url == "http://a.test/x?y=1"));
    assert_eq!(peeked.len(), 2);
    // A block of operators holds under any key.
    let all = "http://a.test/".to_owned();
    daemon.store.block("default".to_owned(), all, true).await.unwrap();
    daemon.clock.advance(400 * DAY + MINUTE);
    assert!(client.get(9, 0).await.is_empty());
    daemon.stop().await;
}
