//! How far an index is heard when it says that its children have changed, or not.

use std::time::Duration;

use super::listed;
use crate::support::daemon::{DAY, HOUR, World, index, sitemap};
use crate::support::{Origin, Reply};

fn site(origin: &Origin) -> String {
    listed(origin, &["/index.xml"], &[], "")
}

#[tokio::test]
async fn a_child_is_not_skipped_for_what_its_index_said_before_it_failed() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", "2026-11-01")])));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin).replace("30d", "1h")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.pass(HOUR).await;
    assert_eq!(origin.requests("/one.xml").len(), 1);
    origin.set("/index.xml", Reply::status(500));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", ""), ("/2", "")])));
    for _ in 0..5 {
        daemon.pass(HOUR).await;
    }
    assert!(daemon.knows(&format!("{base}/2")).await);
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_that_failed_once_has_no_child_fetched_for_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", "2026-11-01")])));
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/1", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin).replace("30d", "12h")).await;
    daemon.polled("/one.xml", 1).await;
    daemon.clock.advance(HOUR * 11);
    origin.set("/index.xml", Reply::status(500));
    assert_eq!(daemon.poll("/index.xml").await.result, "failed");
    daemon.pass(HOUR * 2).await;
    assert_eq!(origin.requests("/one.xml").len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_is_asked_as_often_as_the_dates_of_its_children_move() {
    // The dates of children move every two hours, and of one, where they do not lie, so
    // does what it lists: of one in five where all have the time of the request. The others are deleted where
    // they do not lie.
    for (lies, bounds) in [(false, HOUR / 4..=HOUR * 3), (true, HOUR * 12..=DAY * 7)] {
        let others = ["/2.xml", "/3.xml", "/4.xml", "/5.xml"];
        let origin = Origin::start().await;
        let base = origin.base();
        let world = World::new(&[&origin]);
        let change = |hour: u64| {
            let at = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let mut dates = others.map(|other| (other, at.as_str())).to_vec();
            dates.push(("/one.xml", at.as_str()));
            origin.set("/index.xml", Reply::xml(index(&base, &dates)));
            let page = format!("/{hour}");
            origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/a", ""), (&page, "")])));
        };
        change(0);
        for other in others {
            origin.set(other, Reply::xml(sitemap(&base, &[(other, "")])));
        }
        let daemon = world.start(&site(&origin).replace("30d", "auto")).await;
        daemon.polled("/one.xml", 1).await;
        daemon.settled().await;
        for deleted in others.iter().filter(|_| !lies) {
            // What nobody reads proves nothing.
            daemon.store.delete_source(daemon.source(deleted).await.id, false).await.unwrap();
        }
        for hour in 1..=10 * 24 {
            if hour % 2 == 0 {
                change(hour);
            }
            daemon.pass(HOUR).await;
        }
        let index = daemon.source("/index.xml").await;
        let (last, next) = (index.last_poll_at.unwrap(), index.next_poll_at.unwrap());
        let interval = Duration::try_from(next.duration_since(last)).unwrap();
        if lies {
            // For what a child loses it is read once each time, and not again while that waits.
            let polls = origin.requests("/index.xml").len();
            assert!(polls <= 10 * 24 / 2 + 10, "{polls}");
        }
        assert!(bounds.contains(&interval), "{lies}: {interval:?}, {}", index.why);
        daemon.stop().await;
    }
}
