//! A daemon that dies between the fetch and the last commit of a poll loses
//! nothing, doubles nothing and tells nothing twice.

use std::sync::Arc;

use sitemapd::diff::snapshot::EntryHints;
use sitemapd::metrics::Metrics;
use sitemapd::model::{Lastmod, Precision, UrlId, UrlKind};
use sitemapd::store::views::UrlState;
use sitemapd::store::{Effect, Origin as Belongs, Store};
use sitemapd::url::SiteRules;

use super::{listed, one_sitemap};
use crate::support::daemon::{DAY, World, counts, missed_again, sitemap};
use crate::support::{Origin, Reply};

/// Applies some effects as a poll of the only sitemap would, and dies.
async fn die_after(world: &World, site: &str, effects: impl FnOnce(&SiteRules) -> Vec<Effect>) {
    let config = world.config(site);
    let rules = SiteRules::new(&config.sites["site"], None);
    let store = Store::open(&config, world.clock.clone(), Arc::new(Metrics::new())).unwrap();
    let sources = store
        .sources(sitemapd::store::views::SourceFilter { limit: 100, ..Default::default() })
        .await
        .unwrap();
    let source = sources.items.iter().find(|source| source.url.ends_with("/sitemap.xml")).unwrap();
    let target = store.poll_target(source.id).await.unwrap();
    let belongs: Belongs = target.origin(false).unwrap();
    store.apply(belongs, effects(&rules)).await.unwrap();
    // Closing syncs what is committed, and nothing else: the poll has no end.
    store.close();
}

fn admit(rules: &SiteRules, slot: u32, loc: &str) -> Effect {
    let source = loc.parse().unwrap();
    Effect::Admit {
        slot,
        url: rules.admit(loc, &source).unwrap(),
        raw: None,
        lastmod: None,
        hints: EntryHints::default(),
        kind: UrlKind::Page,
    }
}

#[tokio::test]
async fn a_crash_between_two_chunks_of_a_first_read_doubles_no_url() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let site = one_sitemap(&origin);
    origin.set("/sitemap.xml", Reply::status(500));
    let daemon = world.start(&site).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.stop().await;
    let half = |rules: &SiteRules| {
        vec![admit(rules, 0, &format!("{base}/a")), admit(rules, 1, &format!("{base}/b"))]
    };
    die_after(&world, &site, half).await;
    let four = [("/a", ""), ("/b", ""), ("/c", ""), ("/d", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &four)));
    let daemon = world.start(&site).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, counts([2, 0, 0, 0, 2, 0, 0, 0]));
    // With the events of the attempt that died: each once.
    assert_eq!(daemon.changes(&poll).await, ["new /a", "new /b", "new /c", "new /d"]);
    assert_eq!(daemon.queued().await, 4);
    assert_eq!(daemon.store.site("site".to_owned()).await.unwrap().urls, 4);
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_read_that_died_had_told_of_goes_when_it_is_listed_no_more() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let site = one_sitemap(&origin);
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let daemon = world.start(&site).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.stop().await;
    let some = |rules: &SiteRules| {
        vec![admit(rules, 1, &format!("{base}/b")), admit(rules, 2, &format!("{base}/c"))]
    };
    die_after(&world, &site, some).await;
    // Of what it told one has gone again, before anybody could keep that it was there.
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/c", "")])));
    let daemon = world.start(&site).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["missing /b", "new /b", "new /c"]);
    assert_eq!(poll.counts.missing, 1);
    assert!(daemon.url(&format!("{base}/b")).await.listed);
    // From then on it is missed like any other.
    daemon.poll("/sitemap.xml").await;
    daemon.pass(DAY).await;
    let removed = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&removed).await, ["removed /b"]);
    assert!(!daemon.url(&format!("{base}/b")).await.listed);
    assert!(daemon.url(&format!("{base}/c")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_read_that_died_had_told_of_and_new_rules_refuse_is_listed_no_more() {
    for rules in ["", "exclude = [\"*/b\"]"] {
        let origin = Origin::start().await;
        let base = origin.base();
        let world = World::new(&[&origin]);
        let site = one_sitemap(&origin);
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
        let daemon = world.start(&site).await;
        daemon.polled("/sitemap.xml", 1).await;
        daemon.stop().await;
        let some = |rules: &SiteRules| {
            vec![admit(rules, 1, &format!("{base}/b")), admit(rules, 2, &format!("{base}/c"))]
        };
        die_after(&world, &site, some).await;
        let all = [("/a", ""), ("/b", ""), ("/c", "")];
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &all)));
        let daemon = world.start(&listed(&origin, &["/sitemap.xml"], &[], rules)).await;
        let poll = daemon.poll("/sitemap.xml").await;
        let told = if rules.is_empty() {
            &["new /b", "new /c"][..]
        } else {
            &["new /b", "new /c", "removed /b"]
        };
        assert_eq!(daemon.changes(&poll).await, told, "{rules}");
        let b = daemon.url(&format!("{base}/b")).await;
        assert_eq!(b.listed, rules.is_empty(), "{}", b.why);
        let state = if rules.is_empty() { UrlState::Queued } else { UrlState::Parked };
        assert_eq!((b.state, poll.counts.missing), (state, 0), "{rules}");
        // Nothing is left of it for later reads.
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!(daemon.changes(&poll).await, <[&str; 0]>::default(), "{rules}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_later_read_tells_nothing_twice() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let site = one_sitemap(&origin);
    let listing = |a: &str, title: &str, c: &str, rest: &str| {
        let entry = |path: &str, date: &str, more: &str| {
            format!("<url><loc>{base}{path}</loc><lastmod>{date}</lastmod>{more}</url>")
        };
        let image = format!("<image:image><image:loc>{base}/{title}.png</image:loc></image:image>");
        Reply::xml(format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:image=\"http://www.google.com/schemas/sitemap-image/1.1\">{}{}{}{rest}</urlset>",
            entry("/a", a, ""),
            entry("/b", "2026-11-01", &image),
            entry("/c", c, ""),
        ))
    };
    let gone = format!("<url><loc>{base}/gone</loc></url><url><loc>{base}/lost</loc></url>");
    origin.set("/sitemap.xml", listing("2026-11-01", "one", "2026-11-09", &gone));
    let daemon = world.start(&site).await;
    daemon.polled("/sitemap.xml", 1).await;
    let left = format!("<url><loc>{base}/lost</loc></url>");
    origin.set("/sitemap.xml", listing("2026-11-01", "one", "2026-11-09", &left));
    for _ in 0..2 {
        daemon.poll("/sitemap.xml").await;
        daemon.pass(DAY).await;
    }
    let id = async |path: &str| daemon.url(&format!("{base}{path}")).await.id;
    let (a, b, c): (UrlId, UrlId, UrlId) = (id("/a").await, id("/b").await, id("/c").await);
    let (gone, lost) = (id("/gone").await, id("/lost").await);
    daemon.stop().await;
    let newer = Lastmod { at: "2026-11-20T00:00:00Z".parse().unwrap(), precision: Precision::Day };
    let hints = EntryHints::default();
    let all = |_: &SiteRules| {
        vec![
            Effect::Changed { url: a, lastmod: newer, hints },
            Effect::Touched { url: b, lastmod: None, hints },
            Effect::Regressed { url: c, hints: EntryHints::default() },
            Effect::Missing { url: lost },
            Effect::Drop { url: gone },
        ]
    };
    die_after(&world, &site, all).await;
    let queue_before = super::three_polls::dump(&world);
    origin.set("/sitemap.xml", listing("2026-11-20", "two", "2026-11-05", ""));
    let daemon = world.start(&site).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(
        daemon.changes(&poll).await,
        ["changed /a", "missing /lost", "regressed /c", "removed /gone", "touched /b"]
    );
    assert_eq!(super::three_polls::dump(&world), queue_before);
    // The next read goes on from here.
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, missed_again([0, 0, 0, 0, 3, 1, 0, 0]));
    daemon.stop().await;
}
