//! What somebody submits by hand, of sources that were known before.

use super::listed;
use crate::support::daemon::{DAY, World, index, sitemap};
use crate::support::{Origin, Reply};

/// An origin whose robots.txt names an index of one.xml and two.xml.
async fn two_in_an_index() -> Origin {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /index.xml\n"));
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", ""), ("/two.xml", "")])));
    for (path, page) in [("/one.xml", "/1"), ("/two.xml", "/2"), ("/mine.xml", "/3")] {
        origin.set(path, Reply::xml(sitemap(&base, &[(page, "")])));
    }
    origin
}

#[tokio::test]
async fn what_is_off_the_list_and_submitted_comes_back_with_what_it_names_and_stays() {
    let origin = two_in_an_index().await;
    let world = World::new(&[&origin]);
    let auto = listed(&origin, &[], &[], "").replace("sitemaps = []\n", "");
    let daemon = world.start(&auto).await;
    daemon.polled("/two.xml", 1).await;
    daemon.reload(&listed(&origin, &["/mine.xml"], &[], "")).await;
    daemon.polled("/mine.xml", 1).await;
    assert_eq!(daemon.source("/index.xml").await.state, "retired");
    daemon.store.submit_source("site".to_owned(), origin.url("/index.xml")).await.unwrap();
    daemon.settled().await;
    daemon.reload(&listed(&origin, &["/mine.xml"], &[], "exclude = [\"*/none\"]")).await;
    for path in ["/index.xml", "/one.xml", "/two.xml"] {
        assert_eq!(daemon.source(path).await.state, "active", "{path}");
    }
    assert_eq!(daemon.source("/index.xml").await.named_by, "submitted");
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_that_its_index_dropped_and_somebody_submits_stays() {
    let origin = two_in_an_index().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    daemon.polled("/two.xml", 1).await;
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", "")])));
    daemon.poll("/index.xml").await;
    daemon.store.submit_source("site".to_owned(), origin.url("/two.xml")).await.unwrap();
    for _ in 0..9 {
        daemon.poll("/index.xml").await;
        while daemon.store.maintain().await.unwrap() {}
        daemon.pass(DAY).await;
    }
    let two = daemon.source("/two.xml").await;
    assert_eq!(
        (two.state.as_str(), two.parent, two.named_by.as_str()),
        ("active", None, "submitted")
    );
    assert!(daemon.url(&format!("{base}/2")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_elsewhere_that_robots_txt_names_no_more_and_somebody_submits_stays() {
    let (origin, elsewhere) = (Origin::start().await, Origin::start().await);
    let base = origin.base();
    let named = format!("Sitemap: {}\n", elsewhere.url("/ours.xml"));
    origin.set("/robots.txt", Reply::text(named));
    elsewhere.set("/ours.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    let world = World::new(&[&origin, &elsewhere]);
    let auto = listed(&origin, &[], &[], "").replace("sitemaps = []\n", "");
    let daemon = world.start(&auto).await;
    daemon.polled("/ours.xml", 1).await;
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    let robots = format!("{base}/robots.txt");
    daemon.poll(&robots).await;
    assert_eq!(daemon.source("/ours.xml").await.state, "retired");
    daemon.store.submit_source("site".to_owned(), elsewhere.url("/ours.xml")).await.unwrap();
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /no\n"));
    daemon.poll(&robots).await;
    assert_eq!(daemon.source("/ours.xml").await.state, "active");
    daemon.stop().await;
}

#[tokio::test]
async fn a_robots_txt_that_somebody_submits_is_the_one_that_is_polled_anyway() {
    let origin = two_in_an_index().await;
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/mine.xml"], &[], "")).await;
    daemon.polled("/mine.xml", 1).await;
    daemon.settled().await;
    let url = origin.url("/robots.txt");
    let id = daemon.store.submit_source("site".to_owned(), url.clone()).await.unwrap();
    let polled = daemon.polled("/robots.txt", 2).await;
    assert_eq!((polled.source, polled.result.as_str()), (id, "unchanged"));
    let those = daemon.sources().await.into_iter().filter(|source| source.url == url.as_str());
    assert_eq!(those.count(), 1);
    daemon.stop().await;
}
