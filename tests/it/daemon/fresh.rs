//! News of the last two days goes first, is looked at hourly, and then is a
//! page like others.

use super::extensions::settle_all;
use super::{extended, one_sitemap};
use crate::support::daemon::{DAY, HOUR, MINUTE, World};
use crate::support::{Origin, Reply};

/// An entry of an article published at `date`; `more` stands beside it.
fn article(date: &str, more: &str) -> String {
    format!(
        "<news:news><news:publication><news:name>N</news:name><news:language>en</news:language>\
         </news:publication><news:publication_date>{date}</news:publication_date>\
         <news:title>t</news:title></news:news>{more}"
    )
}

#[tokio::test]
async fn fresh_news_goes_before_every_priority_and_old_news_does_not() {
    let origin = Origin::start().await;
    let base = origin.base();
    let top = "<priority>1.0</priority>";
    let entries = [
        ("/top", top.to_owned()),
        ("/old", article("2026-11-19T11:00:00Z", "")),
        ("/fresh", article("2026-11-20T12:00:00Z", "<priority>0.1</priority>")),
        ("/tomorrow", article("2026-11-23T12:00:00Z", "")),
        ("/asked", String::new()),
    ];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let asked = vec![format!("{base}/asked")];
    daemon.store.requeue("default".to_owned(), asked).await.unwrap();
    let why = daemon.url(&format!("{base}/fresh")).await.why;
    assert!(why.contains("fresh news, before other URLs of its host"), "{why}");
    let order: Vec<_> = daemon.lease().await.into_iter().map(|leased| leased.url).collect();
    let expected = ["/asked", "/fresh", "/top", "/old", "/tomorrow"];
    assert_eq!(order, expected.map(|path| format!("{base}{path}")));
    daemon.stop().await;
}

#[tokio::test]
async fn news_that_nobody_took_for_two_days_stands_among_other_pages() {
    let origin = Origin::start().await;
    let base = origin.base();
    let low = "<priority>0.1</priority>";
    let entries = [
        ("/old", article("2026-11-19T13:00:00Z", low)),
        ("/older", article("2026-11-19T12:30:00Z", low)),
        ("/fresh", article("2026-11-20T12:00:00Z", low)),
        ("/top", "<priority>1.0</priority>".to_owned()),
    ];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.pass(2 * HOUR).await;
    let order: Vec<_> = daemon.lease().await.into_iter().map(|leased| leased.url).collect();
    let expected = ["/fresh", "/top", "/old", "/older"];
    assert_eq!(order, expected.map(|path| format!("{base}{path}")));
    daemon.stop().await;
}

#[tokio::test]
async fn fresh_news_is_looked_at_hourly_until_it_is_two_days_old() {
    let origin = Origin::start().await;
    let base = origin.base();
    let daily = "<changefreq>daily</changefreq>";
    let entries = [
        ("/news", article("2026-11-20T12:30:00Z", "")),
        ("/slow", article("2026-11-20T12:30:00Z", daily)),
        ("/page", String::new()),
    ];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    assert!(daemon.source("/sitemap.xml").await.window, "most entries are news");
    assert_eq!(settle_all(&daemon).await, 3);
    let due = async |path: &str| daemon.url(&format!("{base}{path}")).await.due_at.unwrap();
    let now = daemon.now();
    let hours = |at: jiff::Timestamp| at.duration_since(now).as_hours();
    assert_eq!((hours(due("/news").await), hours(due("/slow").await)), (1, 24));
    assert_eq!(hours(due("/page").await), 14 * 24);
    // Hourly while it is fresh: here 23 times more.
    for hour in 1..=23 {
        daemon.pass(HOUR + MINUTE).await;
        assert!(settle_all(&daemon).await >= 1, "hour {hour}");
    }
    daemon.pass(DAY).await;
    assert!(settle_all(&daemon).await >= 1);
    // Its next place is that of any page.
    let news = daemon.url(&format!("{base}/news")).await;
    let wait = news.due_at.unwrap().duration_since(daemon.now()).as_hours();
    assert_eq!(wait, 14 * 24);
    assert!(!news.why.contains("news"), "{}", news.why);
    daemon.stop().await;
}
