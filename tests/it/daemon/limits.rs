//! Quotas and limits: what is over is refused, counted and reported.

use std::sync::Arc;

use super::extensions::settle_all;
use super::{extended, listed};
use crate::support::daemon::{DAY, World, index, sitemap};
use crate::support::engine::Look;
use crate::support::{Origin, Reply, incompressible};

#[tokio::test]
async fn a_site_takes_no_more_urls_than_its_quota_and_says_so() {
    let origin = Origin::start().await;
    let base = origin.base();
    let five = [("/a", ""), ("/b", ""), ("/c", ""), ("/d", ""), ("/e", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &five)).etag("\"1\""));
    let world = World::new(&[&origin]);
    let site = |max: u32| listed(&origin, &["/sitemap.xml"], &[], &format!("max_urls = {max}"));
    let daemon = world.start(&site(3)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (3, 2));
    let source = daemon.source("/sitemap.xml").await;
    assert_eq!(source.admitted.get("quota"), Some(&2));
    assert_eq!(source.admitted.get("accepted"), Some(&3));
    // A raised quota lets in what was refused, though the document is the same.
    daemon.reload(&site(4)).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.http_status, poll.counts.new, poll.counts.rejected), (Some(200), 1, 1));
    daemon.reload(&site(100)).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (1, 0));
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(304));
    assert_eq!(daemon.queued().await, 5);
    daemon.stop().await;
}

#[tokio::test]
async fn a_url_that_the_quota_refuses_makes_no_host() {
    let origin = Origin::start().await;
    let base = origin.base();
    let names: Vec<_> = (0..50).map(|n| format!("http://h{n}.example")).collect();
    let mut text = sitemap("", &names.iter().map(|name| (name.as_str(), "")).collect::<Vec<_>>());
    // Known by another spelling of the same page, and on a host that is new.
    text = text.replace("</urlset>", "<url><loc>http://h0.example/#again</loc></url></urlset>");
    origin.set("/sitemap.xml", Reply::xml(text));
    let world = World::new(&[&origin]);
    let keys = "max_urls = 3\nscope = \"any\"\nobey_robots = false";
    let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &[], keys)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (3, 47), "{base}");
    let hosts = "SELECT count(*) FROM hosts WHERE authority LIKE '%.example'";
    assert_eq!(world.look().number(hosts), 3);
    daemon.stop().await;
}

#[tokio::test]
async fn what_nobody_lists_any_more_makes_room_for_what_is_listed() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = |paths: &[&str]| {
        let entries: Vec<_> = paths.iter().map(|path| (*path, "")).collect();
        origin.set(
            "/sitemap.xml",
            Reply::xml(sitemap(&base, &entries)).etag(&format!("\"{}\"", paths.join(""))),
        );
    };
    list(&["/a?r=1", "/b?r=1", "/c?r=1"]);
    let world = World::new(&[&origin]);
    let site = |more: &str| {
        let keys = format!("max_urls = 4\nobey_robots = false\n{more}");
        listed(&origin, &["/sitemap.xml"], &[], &keys)
    };
    let daemon = world.start(&site("")).await;
    daemon.polled("/sitemap.xml", 1).await;
    let look = world.look();
    let counted = || {
        let sums = ["urls", "unlisted"].map(|sum| format!("SELECT {sum} FROM sites"));
        let rows =
            ["1 = 1", "listed = 0"].map(|of| format!("SELECT count(*) FROM urls WHERE {of}"));
        let [sums, rows] = [sums, rows].map(|queries| queries.map(|sql| look.number(&sql)));
        assert_eq!(sums, rows);
        sums
    };
    assert_eq!(counted(), [3, 0]);
    // All of them are other pages now, for which the old ones leave no room yet.
    daemon.reload(&site("strip_params = [\"r\"]")).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.removed, poll.counts.rejected), (1, 3, 2));
    assert_eq!(counted(), [4, 3]);
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (2, 0));
    assert_eq!(counted(), [6, 3]);
    // The same where others take their places, though the document moves no more.
    list(&["/d", "/e", "/f"]);
    let mut news = Vec::new();
    for _ in 0..5 {
        news.push(daemon.poll("/sitemap.xml").await.counts.new);
        daemon.pass(DAY).await;
    }
    assert_eq!(news, [1, 0, 0, 2, 0]);
    assert_eq!(counted(), [9, 6]);
    // What comes back takes room again.
    list(&["/d", "/e", "/f", "/a", "/b"]);
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (1, 1));
    assert_eq!(counted(), [9, 5]);
    daemon.stop().await;
    // A store of before it was counted, whose counts had drifted, is brought up to date:
    // a file, whose rows were others then, by a test of its own (src/store/schema.rs).
    let Look::Server(_) = look else { return };
    let of_priorities = || look.number("SELECT priorities FROM sites");
    let priorities = of_priorities();
    look.change("ALTER TABLE sites DROP COLUMN unlisted");
    look.change("UPDATE sites SET urls = urls + 7, priorities = priorities + 3500");
    look.change("UPDATE meta SET value = '1' WHERE key = 'schema'");
    let daemon = world.start(&site("strip_params = [\"r\"]")).await;
    assert_eq!((counted(), of_priorities()), ([9, 5], priorities));
    daemon.stop().await;
    look.change("DELETE FROM queue");
    look.change("DELETE FROM urls");
    look.change("ALTER TABLE sites DROP COLUMN unlisted");
    look.change("UPDATE meta SET value = '1' WHERE key = 'schema'");
    let daemon = world.start(&site("strip_params = [\"r\"]")).await;
    assert_eq!((counted(), of_priorities()), ([0, 0], 0));
    daemon.stop().await;
}

#[tokio::test]
async fn a_guess_that_was_read_outlives_a_404_after_it_has_made_room() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = |paths: [&str; 3]| {
        let entries = paths.map(|path| (path, ""));
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &entries)));
    };
    list(["/a", "/b", "/c"]);
    let world = World::new(&[&origin]);
    let site = format!("[[site]]\nname = \"site\"\nurl = \"{base}/\"\nmax_urls = 3\n");
    let daemon = world.start(&site).await;
    daemon.polled("/sitemap.xml", 1).await;
    list(["/d", "/e", "/f"]);
    let mut poll = daemon.poll("/sitemap.xml").await;
    while poll.counts.removed == 0 {
        daemon.pass(DAY).await;
        poll = daemon.poll("/sitemap.xml").await;
    }
    assert_eq!(daemon.source("/sitemap.xml").await.admitted.get("quota"), Some(&3));
    origin.set("/sitemap.xml", Reply::status(404));
    daemon.poll("/sitemap.xml").await;
    let source = daemon.source("/sitemap.xml").await;
    assert_eq!(source.named_by, "well-known");
    assert!(source.next_poll_at.is_some(), "{source:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_site_takes_no_more_sources_than_its_quota() {
    let origin = Origin::start().await;
    let base = origin.base();
    let names: Vec<_> = (0..10).map(|n| format!("/{n}.xml")).collect();
    let children: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    origin.set("/index.xml", Reply::xml(index(&base, &children)).etag("\"1\""));
    for name in &names {
        origin.set(name, Reply::xml(sitemap(&base, &[(name, "")])));
    }
    let world = World::new(&[&origin]);
    let site = |max: u32| listed(&origin, &["/index.xml"], &[], &format!("max_sources = {max}"));
    let daemon = world.start(&site(5)).await;
    daemon.polled("/index.xml", 1).await;
    daemon.settled().await;
    // robots.txt belongs to the host; home page, index and three children are the site's.
    let own = async || {
        let found = daemon.sources().await;
        found.iter().filter(|source| source.role.as_str() != "robots").count()
    };
    assert_eq!(own().await, 5);
    let index = daemon.source("/index.xml").await;
    assert!(
        index.issues.iter().any(|issue| issue.code.as_str() == "too-many-sitemaps"),
        "{:?}",
        index.issues
    );
    assert_eq!(index.status, "has-errors");
    // So it is for as long as the document is the same.
    assert_eq!(daemon.poll("/index.xml").await.result, "not-modified");
    assert_eq!(daemon.source("/index.xml").await.status, "has-errors");
    // A raised quota lets in what was refused, though the document is the same.
    daemon.reload(&site(100)).await;
    daemon.poll("/index.xml").await;
    daemon.settled().await;
    assert_eq!(own().await, 12);
    daemon.stop().await;
}

#[tokio::test]
async fn sitemaps_that_were_given_up_do_not_count_towards_the_quota() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let list = |n: usize| {
        let child = format!("/products-{n}.xml");
        origin.set("/index.xml", Reply::xml(index(&base, &[(child.as_str(), "")])));
        let page = format!("/{n}");
        origin.set(&child, Reply::xml(sitemap(&base, &[("/a", ""), (&page, "")])));
    };
    list(0);
    // Home page, index, and room for three children.
    let text = listed(&origin, &["/index.xml"], &[], "max_sources = 5").replace("30d", "12h");
    let daemon = world.start(&text).await;
    daemon.polled("/products-0.xml", 1).await;
    for n in 1..8 {
        list(n);
        for _ in 0..10 {
            daemon.pass(DAY).await;
        }
        daemon.store.maintain().await.unwrap();
        assert!(daemon.knows(&format!("{base}/{n}")).await, "{n}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_document_over_its_limits_is_cut_there_and_reported() {
    let origin = Origin::start().await;
    let base = origin.base();
    let long = format!("/{}", "x".repeat(3_000));
    let list = [("/a", ""), (long.as_str(), ""), ("/b", ""), ("/c", ""), ("/d", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &list)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &[], "max_urls = 100")).await;
    daemon.polled("/sitemap.xml", 1).await;
    let source = daemon.source("/sitemap.xml").await;
    assert!(source.issues.iter().any(|issue| issue.code.as_str() == "url-too-long"));
    daemon.stop().await;
    let mut config = world.config(&listed(&origin, &["/sitemap.xml"], &[], ""));
    let site = Arc::make_mut(config.sites.get_mut("site").unwrap());
    site.limits.max_urls = 2;
    let daemon = world.start_with(config).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &list[2..])));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.result, "incomplete");
    assert_eq!(poll.counts.missing, 0);
    let source = daemon.source("/sitemap.xml").await;
    assert!(source.issues.iter().any(|issue| issue.code.as_str() == "too-many-urls"));
    assert_eq!(source.status, "has-errors");
    daemon.stop().await;
}

#[tokio::test]
async fn what_moves_in_a_sitemap_that_is_never_read_whole_is_told() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = |caption: &str| {
        let entries = [("/a", caption), ("/b", "b"), ("/c", "c")];
        let entries = entries.map(|(path, caption)| {
            let image = format!(
                "<image:image><image:loc>{base}/i.png</image:loc>\
                 <image:caption>{caption}</image:caption></image:image>"
            );
            (path, image)
        });
        origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)));
    };
    list("a");
    let world = World::new(&[&origin]);
    let text = listed(&origin, &["/sitemap.xml"], &[], "");
    let cut = |text: &str| {
        let mut config = world.config(text);
        Arc::make_mut(config.sites.get_mut("site").unwrap()).limits.max_urls = 2;
        config
    };
    let daemon = world.start_with(cut(&text)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!((poll.result.as_str(), poll.counts.new), ("incomplete", 2));
    settle_all(&daemon).await;
    list("another");
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.touched, poll.counts.unchanged), (1, 1));
    assert_eq!(daemon.changes(&poll).await, ["touched /a"]);
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.touched, poll.counts.unchanged), (0, 2));
    assert!(daemon.changes(&poll).await.is_empty());
    daemon.stop().await;
    // Under other rules all of it is judged anew, once.
    let daemon = world.start_with(cut(&format!("{text}exclude = [\"*/b\"]\n"))).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.rejected, poll.counts.unchanged), (1, 1));
    list("one more");
    assert_eq!(daemon.poll("/sitemap.xml").await.counts.touched, 1);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_out_of_scope_excluded_or_invalid_is_counted_by_reason() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = [
        ("/a", ""),
        ("/private/x", ""),
        ("https://elsewhere.example/", ""),
        ("http://user:secret@127.0.0.1/", ""),
    ];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &list)));
    let world = World::new(&[&origin]);
    let daemon =
        world.start(&listed(&origin, &["/sitemap.xml"], &[], "exclude = [\"*/private/*\"]")).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (1, 3));
    let source = daemon.source("/sitemap.xml").await;
    for reason in ["accepted", "excluded", "out-of-scope", "invalid"] {
        assert_eq!(source.admitted.get(reason), Some(&1), "{reason}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_whose_url_is_too_long_is_refused_and_costs_the_others_nothing() {
    let origin = Origin::start().await;
    let base = origin.base();
    let long = format!("/{}.xml", incompressible(3_000));
    // Nine bytes a character, as it is sent.
    let wide: String = (0..700_u32)
        .map(|n| char::from_u32(0x4e00 + n * 7_919 % 20_000).expect("an ideograph"))
        .collect();
    let lines = format!("Sitemap: {base}{long}\nSitemap: {base}/index.xml\n");
    origin.set("/robots.txt", Reply::text(lines));
    let wide = format!("/{wide}.xml");
    origin.set("/index.xml", Reply::xml(index(&base, &[(&wide, ""), ("/a.xml", "")])));
    origin.set("/a.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&format!("[[site]]\nname = \"site\"\nurl = \"{base}/\"\n")).await;
    daemon.polled("/a.xml", 1).await;
    daemon.settled().await;
    assert_eq!(daemon.polled("/robots.txt", 1).await.error, None);
    let found = daemon.sources().await;
    assert!(found.iter().all(|source| source.url.len() <= 2_048));
    assert!(found.iter().all(|source| source.named_by != "well-known"));
    let issues = daemon.source("/index.xml").await.issues;
    let issues: Vec<_> = issues.iter().map(|issue| (issue.code.as_str(), issue.count)).collect();
    assert_eq!(issues, [("url-too-long", 1)]);
    daemon.stop().await;
}
