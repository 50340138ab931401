//! Videos with an end: their page is parked with the last of them, and comes
//! back when a sitemap moves that end, or drops them.

use sitemapd::model::Reason;
use sitemapd::store::views::UrlState;

use super::extensions::settle_all;
use super::{extended, one_sitemap};
use crate::support::daemon::{DAY, HOUR, MINUTE, World, sitemap};
use crate::support::{Origin, Reply};

/// Videos of a page by when each expires; one without an end says "".
fn videos(base: &str, ends: &[&str]) -> String {
    ends.iter()
        .map(|end| {
            let end = match *end {
                "" => String::new(),
                end => format!("<video:expiration_date>{end}</video:expiration_date>"),
            };
            format!(
                "<video:video><video:thumbnail_loc>{base}/t.jpg</video:thumbnail_loc>\
                 <video:title>V</video:title><video:description>d</video:description>\
                 <video:content_loc>{base}/v.mp4</video:content_loc>{end}</video:video>"
            )
        })
        .collect::<Vec<_>>()
        .concat()
}

#[tokio::test]
async fn a_page_whose_videos_have_all_expired_is_parked_as_it_is_listed() {
    let origin = Origin::start().await;
    let base = origin.base();
    let past = "2026-11-20";
    let entries = [
        ("/expired", videos(&base, &[past, "2026-11-21T11:59:00Z"])),
        ("/one-is-left", videos(&base, &[past, ""])),
        ("/to-come", videos(&base, &[past, "2026-11-22"])),
        ("/today", videos(&base, &["2026-11-21"])),
        ("/plain", String::new()),
    ];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let expired = daemon.url(&format!("{base}/expired")).await;
    assert_eq!(expired.state, UrlState::Parked);
    assert!(expired.why.contains("the last of its videos expired 60 s ago"), "{}", expired.why);
    assert_eq!(daemon.lease().await.len(), 4);
    // What someone asks for is fetched all the same, once.
    let url = format!("{base}/expired");
    daemon.store.requeue("default".to_owned(), vec![url.clone()]).await.unwrap();
    assert_eq!(settle_all(&daemon).await, 1);
    assert_eq!(daemon.url(&url).await.state, UrlState::Parked);
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_is_parked_when_its_next_turn_lies_past_the_end_and_comes_back_with_a_new_one() {
    let origin = Origin::start().await;
    let base = origin.base();
    let page = format!("{base}/v");
    let serve = |more: String| {
        let plain = ("/plain", String::new());
        origin.set("/sitemap.xml", Reply::xml(extended(&base, &[("/v", more), plain])));
    };
    serve(videos(&base, &["2026-11-25T12:00:00Z"]));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(settle_all(&daemon).await, 2);
    // Due in 14 days, and the video is there for four.
    let view = daemon.url(&page).await;
    assert_eq!(view.state, UrlState::Parked);
    assert!(view.why.contains("expires in 4 d"), "{}", view.why);
    // Read again it stays so: nothing has moved.
    daemon.poll("/sitemap.xml").await;
    daemon.pass(7 * DAY).await;
    assert_eq!(daemon.url(&page).await.state, UrlState::Parked);
    serve(videos(&base, &["2027-03-01"]));
    daemon.poll("/sitemap.xml").await;
    let view = daemon.url(&page).await;
    assert_eq!((view.state, view.reason), (UrlState::Queued, Reason::Changed));
    assert_eq!(settle_all(&daemon).await, 1);
    assert_eq!(daemon.url(&page).await.state, UrlState::Queued, "due before its end");
    // An end that is moved back parks it as it is read; a video that is gone frees it.
    serve(videos(&base, &["2026-11-26"]));
    daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.url(&page).await.state, UrlState::Parked);
    serve(String::new());
    daemon.poll("/sitemap.xml").await;
    let view = daemon.url(&page).await;
    assert_eq!((view.state, view.expires_at), (UrlState::Queued, None));
    daemon.stop().await;
}

#[tokio::test]
async fn what_expires_while_it_waits_is_not_leased_and_a_newer_date_does_not_wake_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    let page = format!("{base}/v");
    let serve = |date: &str| {
        let more = format!("<lastmod>{date}</lastmod>") + &videos(&base, &["2026-11-21T13:00:00Z"]);
        origin.set("/sitemap.xml", Reply::xml(extended(&base, &[("/v", more)])));
    };
    serve("2026-11-01");
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(daemon.url(&page).await.state, UrlState::Queued);
    daemon.pass(HOUR + MINUTE).await;
    assert_eq!(daemon.lease().await.len(), 0);
    assert_eq!(daemon.url(&page).await.state, UrlState::Parked);
    serve("2026-11-21");
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["changed /v"]);
    assert_eq!(daemon.url(&page).await.state, UrlState::Parked);
    daemon.stop().await;
}

#[tokio::test]
async fn a_second_sitemap_that_knows_a_video_without_an_end_keeps_the_page() {
    let origin = Origin::start().await;
    let base = origin.base();
    let page = format!("{base}/v");
    origin.set("/one.xml", Reply::xml(extended(&base, &[("/v", videos(&base, &["2026-11-01"]))])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/v", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&super::listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    // One that says nothing of videos says nothing of their end.
    assert_eq!(daemon.url(&page).await.state, UrlState::Parked);
    origin.set("/two.xml", Reply::xml(extended(&base, &[("/v", videos(&base, &[""]))])));
    daemon.poll("/two.xml").await;
    assert_eq!(daemon.url(&page).await.state, UrlState::Queued);
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_comes_back_when_the_sitemap_that_knew_its_end_lists_it_no_more() {
    let origin = Origin::start().await;
    let base = origin.base();
    let page = format!("{base}/v");
    let others = [("/1", String::new()), ("/2", String::new())];
    let with_video = [&others[..], &[("/v", videos(&base, &["2026-11-01"]))]].concat();
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/v", "")])));
    origin.set("/two.xml", Reply::xml(extended(&base, &with_video)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&super::listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    assert_eq!(daemon.url(&page).await.state, UrlState::Parked);
    origin.set("/two.xml", Reply::xml(extended(&base, &others)));
    for _ in 0..4 {
        assert_eq!(daemon.poll("/two.xml").await.counts.removed, 0);
        daemon.pass(DAY).await;
    }
    let view = daemon.url(&page).await;
    assert_eq!((view.state, view.expires_at), (UrlState::Queued, None));
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_comes_back_when_the_window_that_knew_its_end_is_given_up() {
    let origin = Origin::start().await;
    let base = origin.base();
    let page = format!("{base}/v");
    let news = "<news:news><news:publication><news:name>N</news:name>\
                <news:language>en</news:language></news:publication>\
                <news:publication_date>2026-11-20</news:publication_date>\
                <news:title>T</news:title></news:news>";
    let more = news.to_owned() + &videos(&base, &["2026-11-01"]);
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/v", "")])));
    origin.set("/news.xml", Reply::xml(extended(&base, &[("/v", more)])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&super::listed(&origin, &["/one.xml", "/news.xml"], &[], "")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/news.xml", 1).await;
    let source = daemon.source("/news.xml").await;
    assert!(source.window, "{source:?}");
    assert_eq!(daemon.url(&page).await.state, UrlState::Parked);
    daemon.store.delete_source(source.id, false).await.unwrap();
    daemon.pass(8 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    let view = daemon.url(&page).await;
    assert_eq!((view.state, view.expires_at), (UrlState::Queued, None));
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_comes_back_when_the_site_that_knew_its_end_is_forgotten() {
    let origin = Origin::start().await;
    let base = origin.base();
    let page = format!("{base}/v");
    origin.set("/one.xml", Reply::xml(extended(&base, &[("/v", videos(&base, &["2026-11-01"]))])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/v", "")])));
    let world = World::new(&[&origin]);
    let of = |name: &str, path: &str| {
        super::listed(&origin, &[path], &[], "").replace("\"site\"", &format!("\"{name}\""))
    };
    // Whoever comes first has it: either of them may be forgotten.
    for (first, second) in [("/one.xml", "/two.xml"), ("/two.xml", "/one.xml")] {
        let sites = [of("one", "/one.xml"), of("two", "/two.xml")];
        let is_first = usize::from(first == "/two.xml");
        let daemon = world.start(&sites[is_first]).await;
        daemon.poll(first).await;
        daemon.reload(&sites.concat()).await;
        daemon.poll(second).await;
        assert_eq!(daemon.url(&page).await.state, UrlState::Parked, "{first}");
        daemon.reload(&sites[1]).await;
        daemon.store.forget_site("one".to_owned()).await.unwrap();
        let view = daemon.url(&page).await;
        assert_eq!((view.state, view.expires_at), (UrlState::Queued, None), "{first}");
        daemon.stop().await;
    }
}
