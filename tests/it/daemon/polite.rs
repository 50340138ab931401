//! Politeness: Retry-After, robots.txt and Crawl-delay hold for the whole host.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sitemapd::fetch::api::ApiClient;
use sitemapd::parse::IssueCode;

use super::{listed, one_sitemap};
use crate::support::daemon::{DAY, Daemon, HOUR, MINUTE, World, sitemap};
use crate::support::{Hold, Origin, PATIENCE, Reply, incompressible};

const LIST: [(&str, &str); 2] = [("/a", ""), ("/b", "")];

/// A daemon that has polled two sitemaps of one host.
async fn two_sitemaps() -> (Origin, World, Daemon) {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/one.xml", Reply::xml(sitemap(&base, &LIST)));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &[("/c", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
    daemon.polled("/two.xml", 1).await;
    daemon.settled().await;
    (origin, world, daemon)
}

#[tokio::test]
async fn retry_after_leaves_the_host_alone_for_polls_and_leases() {
    for status in [429, 503] {
        let (origin, _world, daemon) = two_sitemaps().await;
        let base = origin.base();
        origin.set("/one.xml", Reply::status(status).header("Retry-After", "3600"));
        let poll = daemon.poll("/one.xml").await;
        assert_eq!(poll.result, "throttled");
        let source = daemon.source("/one.xml").await;
        assert!(source.why.contains("Retry-After 1h"), "{}", source.why);
        assert!(source.next_poll_at.unwrap() >= daemon.now() + HOUR);
        assert!(daemon.lease().await.is_empty(), "{status}");
        origin.clear_log();
        let two = daemon.source("/two.xml").await.id;
        daemon.store.poll_source(two).await.unwrap();
        daemon.settled().await;
        daemon.pass(59 * MINUTE).await;
        assert!(origin.all_requests().is_empty(), "{status}: {:?}", origin.all_requests());
        assert!(daemon.lease().await.is_empty(), "{status}");
        origin.set("/one.xml", Reply::xml(sitemap(&base, &LIST)));
        daemon.pass(2 * MINUTE).await;
        assert_eq!(origin.requests("/two.xml").len(), 1);
        assert_eq!(daemon.lease().await.len(), 3);
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_host_that_is_asked_too_much_and_says_no_time_is_left_alone_for_a_quarter_of_an_hour() {
    let (origin, _world, daemon) = two_sitemaps().await;
    origin.set("/one.xml", Reply::status(429));
    daemon.poll("/one.xml").await;
    let two = daemon.source("/two.xml").await.id;
    daemon.store.poll_source(two).await.unwrap();
    daemon.settled().await;
    daemon.pass(14 * MINUTE).await;
    assert_eq!(origin.requests("/two.xml").len(), 1);
    daemon.pass(2 * MINUTE).await;
    daemon.polled("/two.xml", 2).await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_robots_txt_says_otherwise_is_a_change_with_what_was_and_what_is() {
    const OLD: &str = "User-agent: *\nDisallow: /a\nContent-Signal: ai-train=yes\n";
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::text(OLD));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let first = daemon.polled("/robots.txt", 1).await;
    assert!(daemon.changes(&first).await.is_empty(), "the first rules are no change of any");
    daemon.settled().await;

    let remark = format!("# one more remark\n{OLD}");
    origin.set("/robots.txt", Reply::text(remark));
    let poll = daemon.poll("/robots.txt").await;
    assert!(daemon.changes(&poll).await.is_empty(), "a remark is no rule");

    let new = OLD.replace("/a", "/b").replace("=yes", "=no");
    origin.set("/robots.txt", Reply::text(format!("License: /l.xml\n{new}")));
    daemon.clock.advance(MINUTE);
    let poll = daemon.poll("/robots.txt").await;
    assert_eq!(poll.result, "changed");
    let changes = daemon.store.changes_of_poll(poll.id, 10, 0).await.unwrap().items;
    let told: Vec<_> = changes
        .iter()
        .map(|change| {
            let said = change.said.as_ref().unwrap();
            assert!(change.url.ends_with("/robots.txt") && change.id.is_none(), "{change:?}");
            (change.kind, said.was.as_str(), said.now.as_str())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("rules", "*: Disallow: /a", "*: Disallow: /b"),
            ("license", "", "License: /l.xml"),
            ("content-signal", "*: Content-Signal: ai-train=yes", "*: Content-Signal: ai-train=no"),
        ]
    );
    let source = daemon.source("/robots.txt").await;
    assert_eq!(source.last_changed_at, Some(poll.at));

    // No answer changes nothing.
    origin.set("/robots.txt", Reply::status(503));
    let poll = daemon.poll("/robots.txt").await;
    assert!(daemon.changes(&poll).await.is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn robots_txt_that_cannot_be_read_forbids_everything_until_it_can() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::status(500));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(poll.result, "forbidden");
    assert!(poll.error.unwrap().contains("unreachable"));
    let why = daemon.source("/sitemap.xml").await.why;
    assert!(why.starts_with("robots.txt cannot be reached"), "{why}");
    daemon.settled().await;
    assert!(origin.all_requests().iter().all(|seen| seen.path == "/robots.txt"));
    origin.set("/robots.txt", Reply::status(404));
    daemon.pass(2 * HOUR).await;
    // Not a day later: as soon as there is an answer.
    assert_eq!(daemon.polled("/sitemap.xml", 2).await.counts.new, 2);
    daemon.stop().await;
}

#[tokio::test]
async fn a_host_that_a_redirect_leads_to_and_whose_robots_txt_fails_once_costs_no_day() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::redirect(302, format!("{}/sitemap.xml", other.base())));
    other.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)));
    other.set("/robots.txt", Reply::status(503));
    let world = World::new(&[&origin, &other]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert!(poll.error.as_deref().is_some_and(|error| error.contains("unreachable")), "{poll:?}");
    daemon.settled().await;
    assert!(other.requests("/sitemap.xml").is_empty());
    other.set("/robots.txt", Reply::status(404));
    for _ in 0..12 {
        daemon.pass(HOUR / 12).await;
    }
    assert!(daemon.knows(&format!("{base}/a")).await);
    daemon.stop().await;
}

#[tokio::test]
async fn the_last_good_robots_txt_holds_while_the_server_is_broken() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /forbidden\n"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)));
    origin.set("/forbidden.xml", Reply::xml(sitemap(&base, &[("/c", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/sitemap.xml", "/forbidden.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    // A body that came whole but was packed from a part is no answer either.
    let notes = format!("# {}\n", incompressible(8_000));
    let broken = Reply::text(notes + "User-agent: *\nDisallow: /forbidden\n").half_of_gzip();
    for (reply, status) in [(Reply::status(500), 500), (broken, 200)] {
        origin.set("/robots.txt", reply);
        daemon.pass(3 * DAY).await;
        assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(200));
        assert_eq!(daemon.poll("/forbidden.xml").await.result, "forbidden", "{status}");
        assert!(origin.requests("/forbidden.xml").is_empty());
        let poll = daemon.poll("/robots.txt").await;
        assert_eq!((poll.result.as_str(), poll.http_status), ("failed", Some(status)));
        assert_eq!(daemon.poll("/forbidden.xml").await.result, "forbidden", "{status}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn rules_hold_again_after_a_robots_txt_that_led_in_a_circle() {
    let origin = Origin::start().await;
    let rules = || Reply::text("User-agent: *\nDisallow: /forbidden\n").etag("\"1\"");
    origin.set("/robots.txt", rules());
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    origin.set("/forbidden.xml", Reply::xml(sitemap(&origin.base(), &[("/c", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/sitemap.xml", "/forbidden.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    // Too many redirects are no file, and no file forbids nothing.
    origin.set("/robots.txt", Reply::redirect(302, "/robots.txt"));
    daemon.pass(DAY + HOUR).await;
    assert_eq!(daemon.poll("/forbidden.xml").await.http_status, Some(200));
    origin.set("/robots.txt", rules());
    origin.clear_log();
    daemon.pass(DAY + HOUR).await;
    assert_eq!(origin.requests("/robots.txt")[0].header("if-none-match"), None);
    assert_eq!(daemon.poll("/forbidden.xml").await.result, "forbidden");
    daemon.stop().await;
}

#[tokio::test]
async fn a_pause_lasts_as_long_as_it_was_to_however_the_wall_clock_is_stepped() {
    for hours in [8, -1] {
        let origin = Origin::start().await;
        origin.set("/one.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
        origin.set("/two.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
        let world = World::new(&[&origin]);
        let daemon = world.start(&listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
        daemon.polled("/two.xml", 1).await;
        origin.set("/one.xml", Reply::status(429).header("Retry-After", "3600"));
        daemon.poll("/one.xml").await;
        daemon.clock.step_wall(SignedDuration::from_hours(hours));
        let two = daemon.source("/two.xml").await.id;
        daemon.store.poll_source(two).await.unwrap();
        daemon
            .wait("the poll to be put off", async || {
                let next = daemon.source("/two.xml").await.next_poll_at.unwrap();
                (next > daemon.now()).then_some(())
            })
            .await;
        let next = daemon.source("/two.xml").await.next_poll_at.unwrap();
        // It comes back a little before, for the first slot after the pause.
        assert_eq!(next, daemon.now() + HOUR - Duration::from_secs(15), "{hours}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn no_robots_txt_allows_everything() {
    for reply in [Reply::status(404), Reply::status(403), Reply::status(410)] {
        let origin = Origin::start().await;
        origin.set("/robots.txt", reply);
        origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
        let world = World::new(&[&origin]);
        let daemon = world.start(&one_sitemap(&origin)).await;
        assert_eq!(daemon.polled("/sitemap.xml", 1).await.counts.new, 2);
        assert_eq!(daemon.source("/robots.txt").await.status, "success");
        daemon.settled().await;
        assert_eq!(daemon.lease().await.len(), 2);
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_crawl_delay_is_kept_between_any_two_requests_of_a_host() {
    const DELAY: Duration = Duration::from_secs(20);
    let origin = Origin::start().await;
    let base = origin.base();
    let hold = Hold::new();
    let robots = Reply::text("User-agent: *\nCrawl-delay: 20\n");
    origin.set("/robots.txt", robots.hang(&hold));
    origin.set("/", Reply::status(404).hang(&hold));
    // Two requests for one poll.
    origin.set("/sitemap.xml", Reply::redirect(302, "/real.xml").hang(&hold));
    origin.set("/real.xml", Reply::xml(sitemap(&base, &LIST)).hang(&hold));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let next_at = format!("SELECT next_at FROM hosts WHERE authority = '{base}'");
    let free_at = || jiff::Timestamp::from_millisecond(world.look().number(&next_at)).unwrap();
    // The first one is sent at once, and each is answered only when it was seen. Until then
    // nobody takes the next slot of the host.
    origin.wait_for("/robots.txt", 1).await;
    let mut may_from = daemon.now() + DELAY;
    for (nth, path) in ["/", "/sitemap.xml", "/real.xml"].into_iter().enumerate() {
        hold.release(1);
        while origin.all_requests().len() < nth + 2 {
            daemon.clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(daemon.now() < "2026-11-21T13:00:00Z".parse().unwrap(), "{path}");
        }
        assert_eq!(origin.all_requests()[nth + 1].path, path);
        // It may be seen later than it was sent, and is not sent before its slot.
        assert!(daemon.now() >= may_from, "{path}: {may_from}");
        let next = free_at();
        assert!(next >= may_from + DELAY, "{path}: {next}");
        may_from = next;
    }
    hold.release_all();
    daemon.wait("the sitemap", async || daemon.source("/sitemap.xml").await.last_success_at).await;
    assert_eq!(origin.all_requests().len(), 4);
    daemon.clock.advance(MINUTE);
    // Leases take the same clock.
    let leased = daemon.lease().await;
    assert_eq!(leased.len(), 2);
    let gap = leased[1].not_before.duration_since(leased[0].not_before);
    assert_eq!(gap.as_secs(), 20);
    daemon.stop().await;
}

#[tokio::test]
async fn a_redirect_on_a_very_slow_host_is_followed_all_the_same() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\nCrawl-delay: 100\n"));
    origin.set("/sitemap.xml", Reply::redirect(302, "/real.xml"));
    origin.set("/real.xml", Reply::xml(sitemap(&base, &LIST)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let read = async {
        while daemon.source("/sitemap.xml").await.last_success_at.is_none() {
            daemon.clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    assert_eq!(origin.requests("/sitemap.xml").len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_poll_of_a_slow_host_gets_its_slot_however_many_leases_are_asked_for() {
    let origin = Origin::start().await;
    let base = origin.base();
    let many: Vec<_> = (0..1_000).map(|n| format!("/{n}")).collect();
    let many: Vec<_> = many.iter().map(|path| (path.as_str(), "")).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &many)));
    let world = World::new(&[&origin]);
    let slow = listed(&origin, &["/sitemap.xml"], &[], "host_delay = \"60s\"");
    let daemon = world.start(&slow).await;
    let read = async {
        while daemon.source("/sitemap.xml").await.last_success_at.is_none() {
            daemon.clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
    let source = daemon.source("/sitemap.xml").await.id;
    let polls = daemon.polls(source).await.len();
    daemon.lease().await;
    daemon.store.poll_source(source).await.unwrap();
    let began = daemon.now();
    let mut leased = 0;
    while daemon.polls(source).await.len() == polls {
        daemon.clock.advance(Duration::from_secs(1));
        // Those who wait for leases hear of a free host at once.
        leased += daemon.lease().await.len();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let waited = daemon.now().duration_since(began);
        assert!(waited < SignedDuration::from_mins(20), "{leased} URLs were leased before it");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn robots_txt_is_polled_though_the_disk_is_nearly_full_and_nothing_else_is() {
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /x\n"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    let free = daemon.store.free_disk().unwrap();
    daemon.stop().await;
    world.clock.advance(DAY + HOUR);
    world.look().change("UPDATE sources SET next_poll_at = 0 WHERE role = 2");
    let mut config = world.config(&one_sitemap(&origin));
    config.store.min_free_disk = free + free / 2;
    let daemon = world.start_with(config).await;
    daemon.polled("/robots.txt", 2).await;
    assert_eq!(origin.requests("/sitemap.xml").len(), 1);
    let client = ApiClient::new(&format!("http://{}", daemon.api), None).unwrap();
    let health: Value = client.get("/healthz", &[]).await.unwrap();
    assert_eq!(health["detail"], "polls pause: less than store.min_free_disk is free");
    let status: Value = client.get("/v1/status", &[]).await.unwrap();
    assert_eq!(status["polls_paused"], true);
    daemon.stop().await;
}

#[tokio::test]
async fn a_lease_comes_through_what_robots_txt_forbids_to_what_it_allows() {
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /x/\n"));
    let forbidden: Vec<_> = (0..3_000).map(|n| format!("/x/{n}")).collect();
    let mut pages: Vec<_> = forbidden.iter().map(|path| (path.as_str(), "")).collect();
    pages.push(("/y", ""));
    let listed =
        sitemap(&origin.base(), &pages).replace("/y</loc>", "/y</loc><priority>0</priority>");
    origin.set("/sitemap.xml", Reply::xml(listed));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let api = ApiClient::new(&format!("http://{}", daemon.api), None).unwrap();
    let leased: Value = api.post("/v1/lease", &json!({ "max": 10 })).await.unwrap();
    assert_eq!(leased["urls"].as_array().unwrap().len(), 1, "{leased}");
    let again = json!({ "urls": [origin.url("/y"), origin.url("/y"), origin.url("/x/1")] });
    let requeued: Value = api.post("/v1/queue/requeue", &again).await.unwrap();
    assert_eq!(requeued["requeued"], 1, "each once, and not what is held");
    daemon.stop().await;
}

#[tokio::test]
async fn what_robots_txt_forbade_is_no_defect_of_a_sitemap_any_more_once_it_is_allowed() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /x\n"));
    let list = sitemap(&base, &[("/x", "2026-11-01"), ("/y", "2026-11-02")]);
    origin.set("/sitemap.xml", Reply::xml(list).etag("\"one\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let codes = async |tail: &str| -> Vec<_> {
        let source = daemon.source(tail).await;
        source.issues.iter().map(|issue| (issue.code, issue.count)).collect()
    };
    assert_eq!(codes("/sitemap.xml").await, [(IssueCode::UrlBlocked, 1)]);
    // While the rules are those, an unchanged document is not read again for that.
    assert_eq!(daemon.poll("/sitemap.xml").await.result, "not-modified");
    assert_eq!(codes("/sitemap.xml").await, [(IssueCode::UrlBlocked, 1)]);
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /z\n"));
    daemon.poll("/robots.txt").await;
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(200));
    assert_eq!(codes("/sitemap.xml").await, []);
    daemon.stop().await;
}

#[tokio::test]
async fn defects_of_a_robots_txt_are_told_with_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)));
    let lines: Vec<_> = (0..2_003).map(|n| format!("Sitemap: {base}/s{n}.xml")).collect();
    let lines = lines.join("\n");
    origin.set("/robots.txt", Reply::text(format!("Disallow: /x\nnonsense\n{lines}")));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/robots.txt", 1).await;
    let codes = async || -> Vec<_> {
        let source = daemon.source("/robots.txt").await;
        let mut codes: Vec<_> =
            source.issues.iter().map(|issue| (issue.code.as_str(), issue.count)).collect();
        codes.sort_unstable();
        codes
    };
    let defects = [("no-user-agent", 1), ("syntax-not-understood", 1), ("too-many-sitemaps", 3)];
    assert_eq!(codes().await, defects);
    // No answer tells nothing of it; no file has no defects.
    for (status, expected) in [(503, &defects[..]), (404, &[])] {
        origin.set("/robots.txt", Reply::status(status));
        daemon.pass(5 * MINUTE).await;
        daemon.poll("/robots.txt").await;
        assert_eq!(codes().await, expected, "{status}");
    }
    daemon.stop().await;
}
