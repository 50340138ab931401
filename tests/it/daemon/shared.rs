//! One URL that several sources list: one row, one signal, held by each full one.

use sitemapd::store::ChangeFilter;

use super::listed;
use crate::support::daemon::{DAY, Daemon, HOUR, World, sitemap};
use crate::support::{Origin, Reply};

#[tokio::test]
async fn a_url_of_two_sources_is_one_row_and_one_edit_is_one_change() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    for path in ["/one.xml", "/two.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[("/both", "2026-11-01"), (path, "")])));
    }
    let daemon = world.start(&listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    let row = daemon.url(&format!("{base}/both")).await;
    assert_eq!(row.sources.len(), 2);
    assert_eq!(daemon.store.site("site".to_owned()).await.unwrap().urls, 3);
    assert_eq!(daemon.queued().await, 3);
    daemon.pass(HOUR).await;
    for path in ["/one.xml", "/two.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[("/both", "2026-11-05"), (path, "")])));
    }
    assert_eq!(daemon.changes(&daemon.poll("/one.xml").await).await, ["changed /both"]);
    assert!(daemon.changes(&daemon.poll("/two.xml").await).await.is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn what_one_source_drops_and_another_lists_is_not_removed() {
    // Either of them may be the first.
    for (dropping, keeping) in [("/one.xml", "/two.xml"), ("/two.xml", "/one.xml")] {
        let origin = Origin::start().await;
        let base = origin.base();
        let world = World::new(&[&origin]);
        for path in ["/one.xml", "/two.xml"] {
            origin.set(path, Reply::xml(sitemap(&base, &[("/both", ""), (path, "")])));
        }
        let daemon = world.start(&listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
        daemon.polled("/two.xml", 1).await;
        daemon.polled("/one.xml", 1).await;
        origin.set(dropping, Reply::xml(sitemap(&base, &[(dropping, "")])));
        for _ in 0..4 {
            assert_eq!(daemon.poll(dropping).await.counts.removed, 0);
            daemon.pass(DAY).await;
        }
        let row = daemon.url(&format!("{base}/both")).await;
        assert!(row.listed);
        assert_eq!(row.sources.len(), 1);
        assert!(row.sources[0].1.ends_with(keeping));
        // And when the other drops it too, it goes.
        origin.set(keeping, Reply::xml(sitemap(&base, &[(keeping, "")])));
        let mut removed = 0;
        for _ in 0..4 {
            removed += daemon.poll(keeping).await.counts.removed;
            daemon.pass(DAY).await;
        }
        assert_eq!(removed, 1);
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_retired_source_holds_its_urls_for_a_week_and_then_no_longer() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    for path in ["/one.xml", "/two.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[("/both", ""), (path, "")])));
    }
    let daemon = world.start(&listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    let one = daemon.source("/one.xml").await.id;
    daemon.store.delete_source(one, false).await.unwrap();
    daemon.pass(6 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    assert!(daemon.url(&format!("{base}/one.xml")).await.listed);
    daemon.pass(2 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    assert!(!daemon.url(&format!("{base}/one.xml")).await.listed);
    assert!(daemon.url(&format!("{base}/both")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_comes_back_lists_its_urls_again_though_no_byte_has_moved() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/b", "")])).etag("\"1\""));
    let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &[], "")).await;
    let id = daemon.polled("/sitemap.xml", 1).await.source;
    daemon.store.delete_source(id, true).await.unwrap();
    while daemon.store.maintain().await.unwrap() {}
    assert!(!daemon.url(&format!("{base}/a")).await.listed);
    assert_eq!(daemon.poll("/sitemap.xml").await.counts.new, 2);
    assert!(daemon.url(&format!("{base}/a")).await.listed);
    daemon.stop().await;
}

/// Two sites on one origin, `site` and `other`, each with a sitemap of its own that
/// lists `/both`; the first one came first.
struct Sites {
    origin: Origin,
    base: String,
    world: World,
    daemon: Daemon,
    one: String,
    two: String,
}

async fn two_sites() -> Sites {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    for path in ["/one.xml", "/two.xml"] {
        let listed = sitemap(&base, &[("/both", ""), (path, "")]);
        origin.set(path, Reply::xml(listed).etag("\"1\""));
    }
    let one = listed(&origin, &["/one.xml"], &[], "");
    let two = listed(&origin, &["/two.xml"], &[], "").replace("\"site\"", "\"other\"");
    let daemon = world.start(&one).await;
    daemon.polled("/one.xml", 1).await;
    daemon.reload(&format!("{one}{two}")).await;
    daemon.polled("/two.xml", 1).await;
    Sites { origin, base, world, daemon, one, two }
}

#[tokio::test]
async fn what_a_source_in_its_week_of_grace_lists_outlives_the_site_that_had_it() {
    let Sites { origin: _origin, base, world, daemon, two, .. } = two_sites().await;
    let source = daemon.source("/two.xml").await.id;
    daemon.store.delete_source(source, false).await.unwrap();
    daemon.reload(&two).await;
    assert_eq!(daemon.store.forget_site("site".to_owned()).await.unwrap(), 2);
    while daemon.store.maintain().await.unwrap() {}
    let both = daemon.url(&format!("{base}/both")).await;
    assert!(both.listed);
    assert_eq!((both.site.as_deref(), both.sources.len()), (Some("other"), 1));
    assert_eq!(world.look().number("SELECT count(*) FROM url_sources"), 0);
    daemon.pass(8 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    assert!(!daemon.url(&format!("{base}/both")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_site_that_counts_more_urls_than_there_are_is_forgotten() {
    let Sites { origin: _origin, world, daemon, two, .. } = two_sites().await;
    daemon.reload(&two).await;
    let look = world.look();
    look.change("UPDATE sites SET urls = urls + 5 WHERE name = 'site'");
    assert_eq!(daemon.store.forget_site("site".to_owned()).await.unwrap(), 2);
    assert_eq!(look.number("SELECT count(*) FROM sites"), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_quota_holds_for_what_comes_over_from_another_site() {
    let Sites { origin, base, world, daemon, one, two } = two_sites().await;
    let two = format!("{two}max_urls = 2\n");
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/two.xml", ""), ("/three", "")])));
    daemon.reload(&format!("{one}{two}")).await;
    daemon.poll("/two.xml").await;
    // Of a site that has left, a page is whose sitemap lists it, if that has room.
    daemon.reload(&two).await;
    let both = [("/two.xml", ""), ("/three", ""), ("/one.xml", "")];
    origin.set("/two.xml", Reply::xml(sitemap(&base, &both)));
    let poll = daemon.poll("/two.xml").await;
    assert_eq!((poll.counts.new, poll.counts.rejected), (0, 1));
    let counted = || world.look().number("SELECT urls FROM sites WHERE name = 'other'");
    assert_eq!(counted(), 2);
    daemon.reload(&two.replace("max_urls = 2", "max_urls = 3")).await;
    assert_eq!(daemon.poll("/two.xml").await.counts.rejected, 0);
    assert_eq!(counted(), 3);
    let one = daemon.url(&format!("{base}/one.xml")).await;
    assert_eq!(one.site.as_deref(), Some("other"));
    daemon.stop().await;
}

#[tokio::test]
async fn who_follows_changes_hears_of_what_outlives_a_forgotten_site() {
    let Sites { origin: _origin, base, world: _world, daemon, two, .. } = two_sites().await;
    daemon.reload(&two).await;
    assert_eq!(daemon.store.forget_site("site".to_owned()).await.unwrap(), 2);
    // From the first event on, as with a cursor of before the first read.
    let page = daemon.store.changes_after(None, 100, ChangeFilter::default()).await.unwrap();
    let mut told: Vec<_> = page.changes.iter().map(|event| (event.kind, &*event.url)).collect();
    told.sort_unstable();
    // The page that was the forgotten site's alone is gone, and with it what was told.
    assert_eq!(told, [("new", &*format!("{base}/both")), ("new", &*format!("{base}/two.xml"))]);
    let both = page.changes.iter().find(|event| event.url.ends_with("/both")).unwrap();
    // Its site is the one that has it now; the source that told is gone.
    assert_eq!((both.site.as_deref(), both.source.as_ref()), (Some("other"), None));
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_in_its_week_of_grace_lists_again_what_others_took_over_and_let_go() {
    let Sites { origin, base, world: _world, daemon, one, two } = two_sites().await;
    let both = format!("{one}{two}");
    let source = daemon.source("/one.xml").await.id;
    daemon.store.delete_source(source, false).await.unwrap();
    daemon.reload(&two).await;
    while daemon.store.maintain().await.unwrap() {}
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/two.xml", "")])));
    for _ in 0..3 {
        daemon.poll("/two.xml").await;
        daemon.pass(DAY).await;
    }
    let is_listed = async || daemon.url(&format!("{base}/both")).await.listed;
    assert!(!is_listed().await);
    daemon.reload(&both).await;
    daemon.poll("/one.xml").await;
    assert!(is_listed().await);
    daemon.stop().await;
}
