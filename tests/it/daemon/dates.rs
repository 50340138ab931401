//! What several sources, or one that errs, say of one page: no date that stands for
//! nothing hides an edit, and no edit is told twice.

use sitemapd::model::Reason;

use super::extensions::settle_all;
use super::listed;
use crate::support::daemon::{DAY, Daemon, HOUR, MINUTE, World, sitemap};
use crate::support::{Origin, Reply};

/// A world whose pages two sitemaps list; both have been read, and nothing looked at.
async fn two(map: &[(&str, &str)], exact: &[(&str, &str)]) -> (World, Daemon, Origin) {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/map.xml", Reply::xml(sitemap(&base, map)));
    origin.set("/exact.xml", Reply::xml(sitemap(&base, exact)));
    let world = World::new(&[&origin]);
    let config = listed(&origin, &["/map.xml", "/exact.xml"], &[], "");
    let daemon = world.start(&config).await;
    daemon.polled("/map.xml", 1).await;
    daemon.polled("/exact.xml", 1).await;
    daemon.settled().await;
    (world, daemon, origin)
}

/// Has a sitemap say so; what its poll told of.
async fn say(daemon: &Daemon, origin: &Origin, path: &str, says: &[(&str, &str)]) -> Vec<String> {
    origin.set(path, Reply::xml(sitemap(&origin.base(), says)));
    let poll = daemon.poll(path).await;
    daemon.changes(&poll).await
}

#[tokio::test]
async fn an_edit_that_an_honest_source_tells_is_not_hidden_by_stamps_of_another() {
    let paths: Vec<_> = (0..25).map(|n| format!("/{n}")).collect();
    let first: Vec<_> = paths.iter().map(|path| (path.as_str(), "2026-11-01T08:00:00Z")).collect();
    let (_world, daemon, origin) = two(&first, &first).await;
    settle_all(&daemon).await;
    for round in 0..3 {
        // The one stamps all of it at each read, the other says what was edited.
        daemon.pass(2 * HOUR).await;
        let now = daemon.now().to_string();
        let stamped: Vec<_> = paths.iter().map(|path| (path.as_str(), now.as_str())).collect();
        say(&daemon, &origin, "/map.xml", &stamped).await;
        for minutes in [20, 10] {
            let edited = (daemon.now() - minutes * MINUTE).to_string();
            let mut exact = first.clone();
            exact[round].1 = &edited;
            let told = say(&daemon, &origin, "/exact.xml", &exact).await;
            let changed = format!("changed /{round}");
            assert!(told.contains(&changed), "round {round}: {told:?}");
        }
        let url = daemon.url(&format!("{}/{round}", origin.base())).await;
        assert_eq!(url.reason, Reason::Changed, "{}", url.why);
        settle_all(&daemon).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_day_that_stamps_all_does_not_hide_the_hour_that_another_source_tells() {
    let paths: Vec<_> = (0..25).map(|n| format!("/{n}")).collect();
    let dated = |day| -> Vec<_> { paths.iter().map(|path| (path.as_str(), day)).collect() };
    let exact = [("/3", "2026-11-20T08:00:00Z"), ("/4", "2026-11-20T09:00:00Z")];
    let (_world, daemon, origin) = two(&dated("2026-11-21"), &exact).await;
    settle_all(&daemon).await;
    // Built anew each night, with the day for all.
    daemon.pass(20 * HOUR).await;
    say(&daemon, &origin, "/map.xml", &dated("2026-11-22")).await;
    for edited in ["2026-11-22T07:00:00Z", "2026-11-22T07:30:00Z"] {
        let told = say(&daemon, &origin, "/exact.xml", &[("/3", edited), exact[1]]).await;
        assert_eq!(told, ["changed /3"], "{edited}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_day_and_its_hour_that_two_sources_tell_are_one_edit() {
    let (_world, daemon, origin) =
        two(&[("/a", "2026-11-20"), ("/b", "")], &[("/a", "2026-11-20T08:00:00Z")]).await;
    for (looks, day) in [(false, "2026-11-21"), (true, "2026-11-22")] {
        if looks {
            daemon.pass(DAY).await;
            settle_all(&daemon).await;
            daemon.clock.advance(2 * MINUTE);
        }
        let told = say(&daemon, &origin, "/map.xml", &[("/a", day), ("/b", "")]).await;
        assert_eq!(told, ["changed /a"], "{day}");
        let hour = (daemon.now() - MINUTE).to_string();
        let told = say(&daemon, &origin, "/exact.xml", &[("/a", &hour)]).await;
        assert!(told.is_empty(), "{day}: {told:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_date_that_was_wrong_by_hours_hides_no_edit_once_it_is_corrected() {
    let wrong = [("/a", "2026-11-21T20:00:00Z"), ("/b", "2026-11-20")];
    let (_world, daemon, origin) = two(&wrong, &wrong[1..]).await;
    let says = async |time: &str| {
        let date = format!("2026-11-21T{time}:00Z");
        say(&daemon, &origin, "/map.xml", &[("/a", &date), wrong[1]]).await
    };
    assert_eq!(says("11:00").await, ["regressed /a"]);
    for (minutes, time) in [(40, "12:30"), (20, "12:50"), (10, "13:05")] {
        daemon.clock.advance(minutes * MINUTE);
        assert_eq!(says(time).await, ["changed /a"], "{time}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn who_dates_by_another_zone_has_no_edit_told_twice_that_was_looked_at() {
    let first = [("/a", "2026-11-01T08:00:00Z"), ("/b", "2026-11-01")];
    let (_world, daemon, origin) = two(&first, &first).await;
    settle_all(&daemon).await;
    daemon.pass(DAY).await;
    let local = (daemon.now() + 4 * HOUR).to_string();
    let told = say(&daemon, &origin, "/map.xml", &[("/a", &local), first[1]]).await;
    assert_eq!(told, ["changed /a"]);
    daemon.clock.advance(10 * MINUTE);
    assert!(settle_all(&daemon).await > 0);
    daemon.clock.advance(10 * MINUTE);
    let right = (daemon.now() - 30 * MINUTE).to_string();
    let told = say(&daemon, &origin, "/exact.xml", &[("/a", &right), first[1]]).await;
    assert!(told.is_empty(), "{told:?}");
    // The next edit is one, though the other's date is still ahead.
    let next = (daemon.now() - MINUTE).to_string();
    let told = say(&daemon, &origin, "/exact.xml", &[("/a", &next), first[1]]).await;
    assert_eq!(told, ["changed /a"]);
    daemon.stop().await;
}

#[tokio::test]
async fn two_sources_that_date_one_edit_otherwise_tell_of_it_once() {
    let first = [("/a", "2026-11-01T08:00:00Z"), ("/b", "2026-11-01")];
    let (_world, daemon, origin) = two(&first, &first).await;
    settle_all(&daemon).await;
    for (round, looks_before) in [(1, false), (2, true)] {
        daemon.pass(DAY).await;
        let [one, other] = [2, 5].map(|minutes| (daemon.now() - minutes * MINUTE).to_string());
        let told = say(&daemon, &origin, "/map.xml", &[("/a", &one), first[1]]).await;
        assert_eq!(told, ["changed /a"], "round {round}");
        if looks_before {
            settle_all(&daemon).await;
        }
        let told = say(&daemon, &origin, "/exact.xml", &[("/a", &other), first[1]]).await;
        assert!(told.is_empty(), "round {round}: {told:?}");
        settle_all(&daemon).await;
    }
    daemon.stop().await;
}
