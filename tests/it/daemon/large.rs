//! Documents too large to be held: read in parts and twice, to the same end.

use std::fmt::Write as _;

use sitemapd::diff::document::MAX_TEXTS;
use sitemapd::fetch::spool::IN_MEMORY;
use sitemapd::store::views::{SourceFilter, SourceView, UrlState};

use super::{extended, listed};
use crate::support::daemon::{DAY, HOUR, World, index};
use crate::support::{Origin, Reply};

const PAGES: usize = 3_000;

/// A path of 1,900 bytes.
fn path(n: usize) -> String {
    format!("/{n}/{}", "long-".repeat(379))
}

/// Entries with an image each, every tenth page on another host; `more` is
/// said of every hundredth.
fn pages(base: &str, more: &str) -> String {
    let mut xml = String::new();
    for n in 0..PAGES {
        let host = if n % 10 == 9 { "http://elsewhere.example" } else { base };
        let said = if n % 100 == 0 { more } else { "" };
        let (image, path) = (format!("{base}/i/{n}.png"), path(n));
        writeln!(
            xml,
            "<url><loc>{host}{path}</loc>{said}\
             <image:image><image:loc>{image}</image:loc></image:image></url>"
        )
        .unwrap();
    }
    extended(base, &[]).replace("</urlset>", &format!("{xml}</urlset>"))
}

#[tokio::test]
async fn a_document_with_more_text_than_is_kept_is_taken_over_whole() {
    let origin = Origin::start().await;
    let base = origin.base();
    let first = pages(&base, "<lastmod>2026-11-01</lastmod>");
    assert!(first.len() > MAX_TEXTS.max(IN_MEMORY));
    origin.set("/sitemap.xml", Reply::xml(first));
    let world = World::new(&[&origin]);
    let site = |extra: &str| {
        let extra = format!("follow = [\"image\"]\n{extra}");
        listed(&origin, &["/sitemap.xml"], &[], &extra)
    };
    let daemon = world.start(&site("")).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    let (own, foreign) = (PAGES as u64 * 9 / 10, PAGES as u64 / 10);
    assert_eq!((poll.counts.new, poll.counts.rejected), (own + PAGES as u64, foreign));
    for n in [0, 1, PAGES - 2] {
        let url = daemon.url(&format!("{base}{}", path(n))).await;
        assert_eq!(url.lastmod.is_some(), n == 0, "{n}");
        assert!(daemon.knows(&format!("{base}/i/{n}.png")).await, "{n}");
    }

    // What moves is found among what does not.
    daemon.pass(DAY).await;
    let second = pages(&base, "<lastmod>2026-11-02</lastmod>")
        .replace("</urlset>", &format!("<url><loc>{base}/new</loc></url></urlset>"));
    origin.set("/sitemap.xml", Reply::xml(second));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.changed), (1, PAGES as u64 / 100));
    assert_eq!((poll.counts.missing, poll.counts.rejected), (0, foreign));

    // Other rules judge all of it anew, though none of it was kept.
    daemon.reload(&site("exclude = [\"*/0/*\"]")).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (0, foreign + 1));
    let parked = daemon.url(&format!("{base}{}", path(0))).await;
    assert_eq!(parked.state, UrlState::Parked);
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_of_many_children_registers_each_once() {
    let origin = Origin::start().await;
    let base = origin.base();
    let names: Vec<_> = (0..600).map(|n| format!("/{n}.xml")).collect();
    let mut children: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    children.extend([("/7.xml", ""), ("/index.xml", "")]);
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    daemon.polled("/index.xml", 1).await;
    let children = || async {
        let sources = daemon.sources().await;
        sources.into_iter().filter(|source| source.named_by == "index").count()
    };
    assert_eq!(children().await, 600);
    let poll = daemon.poll("/index.xml").await;
    assert_eq!(poll.result, "unchanged");
    assert_eq!(children().await, 600);
    daemon.stop().await;
}

#[tokio::test]
async fn a_disk_of_ours_that_takes_no_document_is_no_failure_of_the_origin() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    let before = daemon.source("/sitemap.xml").await;
    origin.set("/sitemap.xml", Reply::xml(pages(&base, "")));
    // What is open already goes on; no file can be made.
    let elsewhere = world.folder().with_extension("away");
    std::fs::rename(world.folder(), &elsewhere).unwrap();
    daemon.store.poll_source(before.id).await.unwrap();
    let off = daemon
        .wait("a poll that is put off", async || {
            // Nor can the database be opened once more.
            let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
            let sources = daemon.store.sources(filter).await.ok()?.items;
            let off = |source: &SourceView| source.why.contains("this machine could not keep");
            sources.into_iter().find(off)
        })
        .await;
    std::fs::rename(&elsewhere, world.folder()).unwrap();
    assert_eq!((off.failures, off.last_poll_at), (before.failures, before.last_poll_at));
    assert!(off.next_poll_at.unwrap() > daemon.clock.now());
    daemon.pass(HOUR).await;
    assert_eq!(daemon.polled("/sitemap.xml", 2).await.counts.new, PAGES as u64 * 9 / 10);
    daemon.stop().await;
}
