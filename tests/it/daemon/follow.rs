//! `site.follow`: images, videos and alternates that entries name are queued
//! with their kind, under the site's scope, and go when nobody names them.

use std::collections::BTreeMap;

use serde_json::json;
use sitemapd::model::UrlKind;
use sitemapd::store::views::UrlState;

use super::extensions::leased;
use super::{extended, listed, one_sitemap};
use crate::support::daemon::{DAY, Daemon, World};
use crate::support::{Origin, Reply};

fn image(url: &str) -> String {
    format!("<image:image><image:loc>{url}</image:loc></image:image>")
}

fn with(origin: &Origin, extra: &str) -> String {
    listed(origin, &["/sitemap.xml"], &[], extra)
}

const ALL: &str = "follow = [\"image\", \"video\", \"alternate\"]";

/// Kinds of all URLs that may be leased now, by path.
async fn kinds(daemon: &Daemon, base: &str) -> BTreeMap<String, UrlKind> {
    let leased = daemon.lease().await.into_iter();
    leased.map(|leased| (leased.url.replace(base, ""), leased.kind)).collect()
}

#[tokio::test]
async fn what_entries_name_is_queued_with_its_kind_once_and_a_page_is_a_page() {
    let origin = Origin::start().await;
    let base = origin.base();
    let video = format!(
        "<video:video><video:thumbnail_loc>{base}/thumb.jpg</video:thumbnail_loc>\
         <video:title>t</video:title><video:content_loc>{base}/v.mp4</video:content_loc>\
         <video:player_loc>/player?v=1</video:player_loc></video:video>"
    );
    let link = |path: &str| {
        format!("<xhtml:link rel=\"alternate\" hreflang=\"en\" href=\"{base}{path}\"/>")
    };
    let entries = [
        (
            "/a",
            image(&format!("{base}/i.png"))
                + &image("https://cdn.example/i.png")
                + &link("/a")
                + &link("/de/a"),
        ),
        ("/b", image(&format!("{base}/i.png")) + &image(&format!("{base}/c")) + &video),
        ("/c", String::new()),
    ];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&with(&origin, ALL)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (7, 1));
    assert_eq!(poll.entries, 3, "what is followed is no entry of the document");
    let source = daemon.source("/sitemap.xml").await;
    assert_eq!(
        source.admitted,
        BTreeMap::from([("accepted".to_owned(), 7), ("out-of-scope".to_owned(), 1)])
    );
    let some = leased(&daemon, json!({"max": 7})).await;
    let some: BTreeMap<_, _> = some
        .iter()
        .map(|url| {
            (
                url["url"].as_str().unwrap().replace(&base, ""),
                url["kind"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = [
        ("/a", "page"),
        ("/b", "page"),
        ("/c", "page"),
        ("/de/a", "alternate"),
        ("/i.png", "image"),
        ("/player?v=1", "video"),
        ("/v.mp4", "video"),
    ];
    assert_eq!(some, expected.map(|(path, kind)| (path.to_owned(), kind.to_owned())).into());
    // Nothing new the next time.
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, [""; 0]);
    daemon.stop().await;
}

#[tokio::test]
async fn what_nobody_names_any_more_is_removed_as_pages_are() {
    let origin = Origin::start().await;
    let base = origin.base();
    let serve = |images: &[&str]| {
        let all: Vec<_> = images.iter().map(|path| image(&format!("{base}{path}"))).collect();
        let plain = ("/b", String::new());
        origin.set("/sitemap.xml", Reply::xml(extended(&base, &[("/a", all.concat()), plain])));
    };
    serve(&["/1.png", "/2.png"]);
    let world = World::new(&[&origin]);
    let daemon = world.start(&with(&origin, "follow = [\"image\"]")).await;
    daemon.polled("/sitemap.xml", 1).await;
    serve(&["/2.png"]);
    let mut removed = 0;
    for _ in 0..3 {
        removed += daemon.poll("/sitemap.xml").await.counts.removed;
        daemon.pass(DAY).await;
    }
    assert_eq!(removed, 1);
    assert!(!daemon.url(&format!("{base}/1.png")).await.listed);
    assert!(daemon.url(&format!("{base}/2.png")).await.listed);
    // Listed as a page it is one from then on, here and wherever it is an image.
    let both = [("/a", image(&format!("{base}/2.png"))), ("/2.png", String::new())];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &both)));
    daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.url(&format!("{base}/2.png")).await.kind, UrlKind::Page);
    daemon.stop().await;
}

#[tokio::test]
async fn a_change_of_follow_reads_everything_anew_and_none_is_the_default() {
    let origin = Origin::start().await;
    let base = origin.base();
    let cdn = Origin::start().await;
    let entries =
        [("/a", image(&format!("{base}/i.png")) + &image(&format!("{}/far.png", cdn.base())))];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)).etag("\"1\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (1, 0));
    daemon.reload(&with(&origin, "follow = [\"image\"]")).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.http_status, Some(200));
    assert_eq!((poll.counts.new, poll.counts.rejected), (1, 1));
    // A host more is a host more of what is followed, too.
    let host = cdn.base().replace("http://", "");
    daemon.reload(&with(&origin, &format!("follow = [\"image\"]\nhosts = [\"{host}\"]"))).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (1, 0));
    let kinds = kinds(&daemon, &base).await;
    assert_eq!(kinds.get("/a"), Some(&UrlKind::Page));
    assert_eq!(kinds.get("/i.png"), Some(&UrlKind::Image));
    // Given up, it is let go in time, and the pages are not held for that.
    daemon.reload(&with(&origin, "")).await;
    for _ in 0..3 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    let source = daemon.source("/sitemap.xml").await;
    assert!(source.issues.is_empty(), "{:?}", source.issues);
    assert!(!daemon.url(&format!("{base}/i.png")).await.listed);
    let page = daemon.url(&format!("{base}/a")).await;
    assert!(page.listed && page.state != UrlState::Parked);
    daemon.stop().await;
}

#[tokio::test]
async fn images_over_the_limit_are_cut_and_said_and_nothing_is_missing_then() {
    let origin = Origin::start().await;
    let base = origin.base();
    // Two more than are followed, 1,000 a page.
    let mut body = String::new();
    for page in 0..51 {
        let images: Vec<_> =
            (0..1_000.min(50_002 - page * 1_000)).map(|n| image(&format!("/{page}/{n}"))).collect();
        body += &format!("<url><loc>{base}/{page}</loc>{}</url>", images.concat());
    }
    let xml = extended(&base, &[]).replace("</urlset>", &(body + "</urlset>"));
    origin.set("/sitemap.xml", Reply::xml(xml).gzip());
    let world = World::new(&[&origin]);
    let daemon = world.start(&with(&origin, "follow = [\"image\"]\nmax_urls = 100")).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!((poll.result.as_str(), poll.entries), ("incomplete", 51));
    let source = daemon.source("/sitemap.xml").await;
    let cut =
        source.issues.iter().find(|issue| issue.code.as_str() == "too-many-followed").unwrap();
    assert_eq!(cut.count, 2);
    assert_eq!(source.admitted["accepted"], 100);
    daemon.stop().await;
}
