//! A ping is a hint: it brings polls forward within bounds, and never says
//! what belongs to whom.

use std::time::Duration;

use sitemapd::store::submissions::Heard;

use super::*;
use crate::support::daemon::{DAY, HOUR, MINUTE, World, sitemap};
use crate::support::{Hold, Reply};

/// A daemon that has polled the sitemap of its site once.
async fn polled_once() -> (World, Daemon, Origin) {
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &[("/a", "")])));
    let world = World::new(&[&origin]);
    let keys = format!("sitemaps = [\"{}/sitemap.xml\"]", origin.base());
    let daemon = world.start(&site(&origin, &keys)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    (world, daemon, origin)
}

async fn ping(daemon: &Daemon, url: &str) -> Answer {
    get(daemon, &format!("/ping?sitemap={}", encoded(url))).await
}

/// The status of what was pinged, as its page says it.
async fn status(daemon: &Daemon, pinged: &Answer) -> Value {
    let answer = get(daemon, pinged.json()["status_url"].as_str().unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn a_ping_has_a_known_source_polled_at_once_and_once_an_hour() {
    let (_world, daemon, origin) = polled_once().await;
    let url = format!("{}/sitemap.xml", origin.base());
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/b", "")])));
    daemon.clock.advance(10 * MINUTE);
    let answer = ping(&daemon, &url).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["status"], "received");
    daemon.polled("/sitemap.xml", 2).await;
    assert!(daemon.knows(&format!("{base}/b")).await);
    // Again and again within the hour: one poll more, when it is over.
    for _ in 0..3 {
        daemon.settled().await;
        assert_eq!(ping(&daemon, &url).await.status, 200);
    }
    daemon.pass(30 * MINUTE).await;
    assert_eq!(daemon.polls(daemon.source("/sitemap.xml").await.id).await.len(), 2);
    daemon.pass(30 * MINUTE).await;
    daemon.polled("/sitemap.xml", 3).await;
    daemon.pass(2 * HOUR).await;
    assert_eq!(daemon.polls(daemon.source("/sitemap.xml").await.id).await.len(), 3);
    daemon.stop().await;
}

#[tokio::test]
async fn a_ping_means_the_twin_that_is_polled_or_that_may_name_it() {
    let world = World::new(&[]);
    let text = "[listen]\npublic = \"127.0.0.1:0\"\n[[site]]\nname = \"a\"\nfeeds = []\n\
                url = \"http://a.test/\"\nsitemaps = [\"http://a.test/sitemap.xml\"]\n";
    let daemon = world.start(text).await;
    daemon.polled("/sitemap.xml", 1).await;
    for (url, is_heeded) in [
        ("http://a.test/sitemap.xml", true),
        ("https://www.a.test/sitemap.xml", true),
        ("https://a.test/other.xml", true),
        ("http://www.a.test/other.xml", true),
        ("https://b.test/sitemap.xml", false),
    ] {
        let pinged = ping(&daemon, url).await;
        assert_eq!(pinged.json()["looked_at"].is_string(), is_heeded, "{url}: {}", pinged.body);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_ping_that_comes_while_the_sitemap_is_read_is_not_lost() {
    let (_world, daemon, origin) = polled_once().await;
    let base = origin.base();
    let url = format!("{base}/sitemap.xml");
    let polls = async || daemon.polls(daemon.source("/sitemap.xml").await.id).await.len();
    daemon.clock.advance(10 * MINUTE);
    // What is on its way is the document of before, as far as anybody can tell.
    let hold = Hold::new();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])).hang(&hold));
    ping(&daemon, &url).await;
    hold.arrived(1).await;
    daemon.clock.advance(MINUTE);
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/b", "")])));
    for _ in 0..3 {
        assert_eq!(ping(&daemon, &url).await.status, 200);
    }
    hold.release_all();
    daemon.polled("/sitemap.xml", 2).await;
    daemon.pass(58 * MINUTE).await;
    assert_eq!(polls().await, 2);
    daemon.pass(MINUTE).await;
    daemon.polled("/sitemap.xml", 3).await;
    assert!(daemon.knows(&format!("{base}/b")).await);
    daemon.pass(2 * HOUR).await;
    assert_eq!(polls().await, 3);
    daemon.stop().await;
}

#[tokio::test]
async fn pings_that_come_while_the_sitemap_is_read_for_another_reason_are_followed_at_once() {
    let (_world, daemon, origin) = polled_once().await;
    let url = format!("{}/sitemap.xml", origin.base());
    let source = daemon.source("/sitemap.xml").await;
    let hold = Hold::new();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &[("/a", "")])).hang(&hold));
    daemon.clock.advance(10 * MINUTE);
    daemon.store.poll_source(source.id).await.unwrap();
    hold.arrived(1).await;
    for _ in 0..3 {
        daemon.clock.advance(Duration::from_secs(1));
        assert_eq!(ping(&daemon, &url).await.status, 200);
    }
    hold.release_all();
    daemon.polled("/sitemap.xml", 3).await;
    daemon.pass(30 * MINUTE).await;
    assert_eq!(daemon.polls(source.id).await.len(), 3);
    daemon.stop().await;
}

#[tokio::test]
async fn every_historic_spelling_is_the_same_ping() {
    let (_world, daemon, origin) = polled_once().await;
    let url = format!("{}/sitemap.xml", origin.base());
    let whole = encoded(&url);
    let mut names = Vec::new();
    for target in [
        format!("/ping?sitemap={whole}"),
        format!("/ping?sitemap={url}"),
        format!("/webmaster/ping.aspx?siteMap={whole}"),
        format!("/webmasters/tools/ping?sitemap={whole}"),
        format!("/webmasters/sitemaps/ping?sitemap={whole}"),
        format!("/SiteExplorerService/V1/ping?sitemap={whole}"),
        format!("/Ping?SITEMAP={whole}"),
        format!("/ping?u={whole}"),
        format!("/ping?url={url}"),
    ] {
        let answer = get(&daemon, &target).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
        names.push(answer.json()["status_url"].as_str().unwrap().to_owned());
    }
    let to = daemon.public.unwrap();
    let head = "POST /ping HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    let posted = send(to, head, &format!("sitemap={whole}")).await;
    assert_eq!(posted.status, 200);
    // A person gets a page, which names the status.
    assert_eq!(posted.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(posted.body.contains(&format!("href=\"{}\"", names[0])), "{}", posted.body);
    names.dedup();
    assert_eq!(names.len(), 1, "one submission, however often and however it is named");
    for target in ["/ping", "/ping?sitemap=", "/ping?sitemap=nonsense", "/ping?sitemap=ftp://a/b"] {
        assert_eq!(get(&daemon, target).await.status, 400, "{target}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_ping_is_never_an_authority() {
    let (_world, daemon, origin) = polled_once().await;
    let base = origin.base();
    let url = format!("{base}/other.xml");
    origin.set("/other.xml", Reply::xml(sitemap(&base, &[("/z", "")])));
    let before = origin.requests("/robots.txt").len();
    let pinged = ping(&daemon, &url).await;
    assert_eq!(pinged.status, 200);
    // What is no source is not read; the robots.txt that may name it is.
    daemon
        .wait("robots.txt", async || (origin.requests("/robots.txt").len() > before).then_some(()))
        .await;
    daemon.settled().await;
    for _ in 0..5 {
        ping(&daemon, &format!("{url}?{}", origin.requests("/robots.txt").len())).await;
        daemon.settled().await;
    }
    assert_eq!(origin.requests("/robots.txt").len(), before + 1, "once an hour, whatever is named");
    assert_eq!(origin.requests("/other.xml").len(), 0);
    let told = status(&daemon, &pinged).await;
    assert_eq!((&told["status"], &told["status_name"]), (&"pending".into(), &"Pending".into()));
    assert_eq!(told["is_pending"], true);
    // An operator may grant it, and sees it waiting.
    let api = daemon.api;
    let list = send(api, "GET /v1/submissions?pending=true HTTP/1.1", "").await;
    assert_eq!(list.status, 421, "the API's own gate holds: {}", list.body);
    let head = |what: &str| format!("{what} HTTP/1.1\r\nContent-Type: application/json");
    let waiting = daemon.store.submissions(true, 100, None).await.unwrap().items;
    assert!(waiting.len() >= 2 && waiting[0].url == url);
    let id = waiting[0].id;
    let target = format!("POST http://localhost/v1/submissions/{id}/grant");
    let granted = send(api, &head(&target), "{\"site\": \"a\"}").await;
    assert_eq!(granted.status, 200, "{}", granted.body);
    daemon.polled("/other.xml", 1).await;
    let told = status(&daemon, &pinged).await;
    assert_eq!(
        (&told["status"], &told["contents"][0]["submitted"]),
        (&"success".into(), &1.into())
    );
    assert!(daemon.knows(&format!("{base}/z")).await);
    daemon.stop().await;
}

#[tokio::test]
async fn a_ping_has_what_the_config_names_looked_at_though_it_was_given_up() {
    let (world, daemon, origin) = polled_once().await;
    let url = format!("{}/sitemap.xml", origin.base());
    let since = || world.look().number("SELECT retired_at FROM sources WHERE role = 2");
    origin.set("/sitemap.xml", Reply::status(410));
    daemon.poll("/sitemap.xml").await;
    daemon.pass(DAY + HOUR).await;
    assert_eq!(daemon.source("/sitemap.xml").await.state, "retired");
    let (asked, retired_at) = (origin.requests("/sitemap.xml").len(), since());
    daemon.pass(DAY).await;
    for _ in 0..3 {
        assert_eq!(ping(&daemon, &url).await.json()["status"], "received");
        daemon.settled().await;
    }
    // Once an hour, and each time one look decides. It keeps no URL any longer.
    assert_eq!(origin.requests("/sitemap.xml").len(), asked + 1);
    daemon.pass(HOUR).await;
    assert_eq!(origin.requests("/sitemap.xml").len(), asked + 2);
    assert_eq!(daemon.source("/sitemap.xml").await.state, "retired");
    assert_eq!(since(), retired_at);
    daemon.pass(HOUR).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &[("/a", ""), ("/b", "")])));
    ping(&daemon, &url).await;
    daemon.settled().await;
    assert_eq!(daemon.source("/sitemap.xml").await.state, "active");
    assert!(daemon.knows(&format!("{}/b", origin.base())).await);
    daemon.stop().await;
}

#[tokio::test]
async fn strangers_use_up_no_pings_of_what_was_given_up_and_is_looked_at_for_a_ping() {
    let (_world, daemon, origin) = polled_once().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::status(410));
    daemon.poll("/sitemap.xml").await;
    daemon.pass(DAY + HOUR).await;
    assert_eq!(daemon.source("/sitemap.xml").await.state, "retired");
    let ping = async |client: &str, path: &str| {
        get_as(&daemon, client, &format!("/ping?sitemap={base}{path}")).await.status
    };
    for client in 0..21 {
        ping(&format!("198.51.100.{client}"), &format!("/made-up-{client}.xml")).await;
    }
    assert_eq!(ping("198.51.100.99", "/made-up.xml").await, 429);
    let asked = origin.requests("/sitemap.xml").len();
    assert_eq!(ping("198.51.100.99", "/sitemap.xml").await, 200);
    daemon.settled().await;
    assert_eq!(origin.requests("/sitemap.xml").len(), asked + 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_host_that_no_site_has_is_sent_nothing_at_all() {
    let (_world, daemon, _origin) = polled_once().await;
    let stranger = Origin::start().await;
    let url = format!("http://stranger.example:{}/sitemap.xml", stranger.port());
    let pinged = ping(&daemon, &url).await;
    assert_eq!(pinged.status, 200);
    assert_eq!(pinged.json()["looked_at"], Value::Null);
    daemon.pass(2 * DAY).await;
    assert_eq!(stranger.all_requests().len(), 0);
    assert_eq!(status(&daemon, &pinged).await["status"], "pending");
    // Forgotten when nobody has named it for a week.
    daemon.pass(6 * DAY).await;
    daemon.store.maintain().await.unwrap();
    let gone = get(&daemon, pinged.json()["status_url"].as_str().unwrap()).await;
    assert_eq!(gone.status, 404);
    daemon.stop().await;
}

#[tokio::test]
async fn what_no_site_has_is_kept_within_bounds() {
    let (_world, daemon, origin) = polled_once().await;
    let url = |n: i32| url::Url::parse(&format!("https://b.example/{n}.xml")).unwrap();
    for n in 0..20 {
        daemon.store.hear(url(n)).await.unwrap();
    }
    assert!(daemon.store.hear(url(20)).await.is_err(), "20 of one host");
    assert!(daemon.store.hear(url(19)).await.is_ok(), "what is kept may be named again");
    for n in 20..1_000 {
        let url = url::Url::parse(&format!("https://{n}.example/s.xml")).unwrap();
        daemon.store.hear(url).await.unwrap();
    }
    let answer = ping(&daemon, "https://one-more.example/s.xml").await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), Some("86400"));
    // Who speaks of the host of a site is heard all the same.
    let own = url::Url::parse(&format!("{}/new.xml", origin.base())).unwrap();
    let (_, heard) = daemon.store.hear(own).await.unwrap();
    assert!(matches!(heard, Heard::Robots(at) if at <= daemon.now()), "{heard:?}");
    daemon.polled("/robots.txt", 2).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_status_names_errors_as_webmasters_know_them_and_outlives_a_restart() {
    let (world, daemon, origin) = polled_once().await;
    let url = format!("{}/sitemap.xml", origin.base());
    let broken = sitemap(&origin.base(), &[("/a", "yesterday")]);
    origin.set("/sitemap.xml", Reply::xml(broken));
    let pinged = ping(&daemon, &url).await;
    daemon.polled("/sitemap.xml", 2).await;
    let told = status(&daemon, &pinged).await;
    assert_eq!(told["status_name"], "Has errors", "{told}");
    assert_eq!(told["processing_errors"][0]["name"], "Invalid date", "{told}");
    assert!(told["processing_errors"][0].get("sample").is_none());
    for field in ["path", "last_submitted", "is_sitemaps_index", "type", "warnings", "errors"] {
        assert!(told.get(field).is_some(), "{field}");
    }
    let keys = format!("sitemaps = [\"{url}\"]");
    daemon.stop().await;
    let daemon = world.start(&site(&origin, &keys)).await;
    assert_eq!(status(&daemon, &pinged).await["status_name"], "Has errors");
    origin.set("/sitemap.xml", Reply::status(404));
    daemon.pass(HOUR).await;
    ping(&daemon, &url).await;
    daemon.polled("/sitemap.xml", 3).await;
    let told = status(&daemon, &pinged).await;
    assert_eq!(told["status_name"], "Couldn't fetch");
    assert_eq!(told["fetch_error"], "HTTP error 404");
    daemon.stop().await;
}

/// Pings the sitemap once it lists this, and says what its status is then.
async fn told_of(daemon: &Daemon, origin: &Origin, document: String, nth: usize) -> Value {
    let url = format!("{}/sitemap.xml", origin.base());
    origin.set("/sitemap.xml", Reply::xml(document));
    daemon.pass(2 * HOUR).await;
    let pinged = ping(daemon, &url).await;
    daemon.polled("/sitemap.xml", nth).await;
    daemon.settled().await;
    status(daemon, &pinged).await
}

/// The code, severity and count of each defect that a status tells of.
fn defects(told: &Value) -> Vec<(String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let defects = told["processing_errors"].as_array().unwrap().iter();
    defects
        .map(|one| (text(&one["code"]), text(&one["severity"]), one["count"].as_u64().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_status_is_no_success_where_urls_could_not_be_taken_in() {
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /private\n"));
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let keys = format!("sitemaps = [\"{base}/sitemap.xml\"]\nmax_urls = 6");
    let daemon = world.start(&site(&origin, &keys)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let defect =
        |code: &str, severity: &str, count: u64| (code.to_owned(), severity.to_owned(), count);
    let three = [("/a", ""), ("/b", ""), ("/c", "")];
    // Of the wrong host, all of them.
    let told = told_of(&daemon, &origin, sitemap("https://other.example", &three), 2).await;
    assert_eq!((&told["status"], &told["errors"]), (&"has-errors".into(), &3.into()), "{told}");
    assert_eq!(told["why"], "it was read, and of its 3 URLs none was taken in");
    assert_eq!(told["processing_errors"][0]["name"], "URL not allowed");
    assert_eq!(defects(&told), [defect("url-not-allowed", "error", 3)]);
    // Nothing is wrong with this one.
    let told = told_of(&daemon, &origin, sitemap(&base, &three[..2]), 3).await;
    assert_eq!((&told["status_name"], told["errors"].as_u64()), (&"Success".into(), Some(0)));
    assert_eq!(told["why"], "it was read, and all it lists was taken in");
    // What robots.txt forbids is taken in, and may be fetched when that allows it.
    let barred = [("/a", ""), ("/private/1", ""), ("/private/2", "")];
    let told = told_of(&daemon, &origin, sitemap(&base, &barred), 4).await;
    assert_eq!((&told["warnings"], &told["errors"]), (&2.into(), &0.into()), "{told}");
    assert_eq!(defects(&told), [defect("url-blocked", "warning", 2)]);
    assert!(told["why"].as_str().unwrap().ends_with("; robots.txt forbids 2 of them"), "{told}");
    assert_eq!(told["processing_errors"][0]["name"], "URLs blocked by robots.txt");
    // Over the quota of the site, which holds four of the lists before.
    let eight = ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h"].map(|path| (path, ""));
    let told = told_of(&daemon, &origin, sitemap(&base, &eight), 5).await;
    assert_eq!(told["why"], "it was read; of its 8 URLs 4 could not be taken in");
    assert_eq!(defects(&told), [defect("too-many-urls", "error", 4)]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_robots_txt_that_cannot_be_read_is_told_apart_from_one_that_forbids() {
    let origin = Origin::start().await;
    let url = format!("{}/sitemap.xml", origin.base());
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &[("/a", "")])));
    for (robots, name) in [
        (Reply::status(500), "robots.txt unreachable"),
        (Reply::text("User-agent: *\nDisallow: /\n"), "Sitemap blocked by robots.txt"),
    ] {
        origin.set("/robots.txt", robots);
        let world = World::new(&[&origin]);
        let keys = format!("sitemaps = [\"{url}\"]");
        let daemon = world.start(&site(&origin, &keys)).await;
        assert_eq!(daemon.polled("/sitemap.xml", 1).await.result, "forbidden");
        let told = status(&daemon, &ping(&daemon, &url).await).await;
        assert_eq!(
            (&told["status_name"], &told["fetch_error"]),
            (&"Couldn't fetch".into(), &name.into())
        );
        daemon.stop().await;
    }
}
