//! What strangers do to a poller, as a daemon meets it: indexes that lead in
//! circles or inwards, answers that stall, refusals that say nonsense.

use std::time::Duration;

use super::{listed, one_sitemap};
use crate::support::canary::Canary;
use crate::support::daemon::{DAY, MINUTE, World, index, sitemap};
use crate::support::{Hold, Origin, Reply};

const LIST: [(&str, &str); 2] = [("/a", ""), ("/b", "")];

#[tokio::test]
async fn an_index_without_end_ends_at_its_depth() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.route(move |seen| {
        let path = seen.path.strip_suffix(".xml")?;
        let names: Vec<_> = (0..3).map(|n| format!("{path}-{n}.xml")).collect();
        let children: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        Some(Reply::xml(index(&base, &children)))
    });
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/i.xml"], &[], "")).await;
    daemon.polled("/i-0-0-0.xml", 1).await;
    daemon.settled().await;
    let asked: Vec<_> =
        origin.all_requests().into_iter().filter(|seen| seen.path.starts_with("/i")).collect();
    assert_eq!(asked.len(), 1 + 3 + 9 + 27);
    let deepest = daemon.source("/i-2-2-2.xml").await;
    assert!(deepest.issues.iter().any(|issue| issue.code.as_str() == "nested-indexes"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_that_redirects_back_to_its_index_ends_there() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[("/back.xml", ""), ("/good.xml", "")])));
    origin.set("/back.xml", Reply::redirect(302, "/index.xml"));
    origin.set("/good.xml", Reply::xml(sitemap(&base, &LIST)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    assert_eq!(daemon.polled("/good.xml", 1).await.counts.new, 2);
    daemon.polled("/back.xml", 1).await;
    daemon.settled().await;
    // Once for itself, and once where the child leads.
    assert_eq!(origin.requests("/index.xml").len(), 2);
    assert_eq!(origin.requests("/back.xml").len(), 1);
    assert_eq!(origin.requests("/good.xml").len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_child_that_hangs_fails_by_itself_and_its_siblings_are_read() {
    let origin = Origin::start().await;
    let base = origin.base();
    let hold = Hold::new();
    let children = [("/hangs.xml", ""), ("/good.xml", ""), ("/page.html", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    origin.set("/hangs.xml", Reply::xml("").hang(&hold));
    origin.set("/good.xml", Reply::xml(sitemap(&base, &LIST)));
    origin.set("/page.html", Reply::html("<!doctype html><title>x</title>"));
    let world = World::new(&[&origin]);
    let mut config = world.config(&listed(&origin, &["/index.xml"], &[], ""));
    config.fetch.total_timeout = Duration::from_secs(5);
    let daemon = world.start_with(config).await;
    assert_eq!(daemon.polled("/good.xml", 1).await.counts.new, 2);
    assert_eq!(daemon.polled("/page.html", 1).await.result, "unsupported");
    let poll = daemon.polled("/hangs.xml", 1).await;
    assert_eq!(poll.result, "failed");
    let error = poll.error.unwrap();
    assert!(error.contains("5s"), "it names the limit: {error}");
    hold.release_all();
    daemon.stop().await;
}

/// URLs that all mean this very machine.
fn inner_places(port: u16) -> [String; 7] {
    [
        format!("http://127.0.0.1:{port}/s.xml"),
        format!("http://localhost:{port}/s.xml"),
        format!("http://2130706433:{port}/s.xml"),
        format!("http://0x7f.1:{port}/s.xml"),
        format!("http://[::ffff:127.0.0.1]:{port}/s.xml"),
        format!("http://0.0.0.0:{port}/s.xml"),
        "file:///etc/passwd".to_owned(),
    ]
}

#[tokio::test]
async fn a_robots_txt_and_a_home_page_that_name_inner_places_lead_nowhere_inside() {
    let origin = Origin::start().await;
    let mut canary = Canary::start();
    let inner = inner_places(canary.port());
    let lines: Vec<_> = inner.iter().map(|url| format!("Sitemap: {url}")).collect();
    origin.set("/robots.txt", Reply::text(format!("{}\nSitemap: /good.xml\n", lines.join("\n"))));
    let feeds: Vec<_> = inner.iter().map(|url| format!("<link rel=feed href=\"{url}\">")).collect();
    let page = Reply::html(format!("<!doctype html>{}", feeds.join("")));
    origin.set("/", page.header("Refresh", format!("0; url={}", inner[0])));
    origin.set("/good.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    let world = World::new(&[&origin]);
    let site = format!("[[site]]\nname = \"site\"\nurl = \"{}/\"\n", origin.base());
    let daemon = world.start(&site).await;
    assert_eq!(daemon.polled("/good.xml", 1).await.counts.new, 2);
    daemon.pass(2 * MINUTE).await;
    let tail = format!(":{}/s.xml", canary.port());
    let led = daemon.sources().await.into_iter().filter(|source| source.url.ends_with(&tail));
    let led: Vec<_> = led.collect();
    assert!(!led.is_empty());
    for source in led {
        assert_eq!((source.status.as_str(), source.http_status), ("could-not-fetch", None));
    }
    assert_eq!(canary.touched(), 0);
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_that_names_inner_places_leads_nowhere_inside() {
    let origin = Origin::start().await;
    let base = origin.base();
    let mut canary = Canary::start();
    let port = canary.port();
    let inner = inner_places(port);
    let mut children: Vec<_> = inner.iter().map(|url| (url.as_str(), "")).collect();
    children.push(("/good.xml", ""));
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    let mut pages: Vec<_> = inner.iter().map(|url| (url.as_str(), "")).collect();
    pages.push(("/a", ""));
    origin.set("/good.xml", Reply::xml(sitemap(&base, &pages)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&listed(&origin, &["/index.xml"], &[], "")).await;
    assert_eq!(daemon.polled("/good.xml", 1).await.counts.new, 1);
    daemon.pass(2 * MINUTE).await;
    for source in daemon.sources().await {
        if source.url.contains(&format!(":{port}/")) {
            assert_eq!(source.status, "could-not-fetch", "{}", source.url);
            assert_eq!(source.http_status, None, "{}", source.url);
        }
    }
    let leased: Vec<_> = daemon.lease().await.into_iter().map(|url| url.url.clone()).collect();
    assert_eq!(leased, [format!("{base}/a")]);
    assert_eq!(canary.touched(), 0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_moves_inwards_is_blocked_and_keeps_its_name() {
    let origin = Origin::start().await;
    let mut canary = Canary::start();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let to = format!("http://127.0.0.1:{}/inner", canary.port());
    origin.set("/sitemap.xml", Reply::redirect(301, to));
    for _ in 0..4 {
        daemon.clock.advance(3 * DAY);
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!((poll.result.as_str(), poll.http_status), ("blocked", None));
    }
    let source = daemon.source("/sitemap.xml").await;
    assert_eq!(source.url, origin.url("/sitemap.xml").as_str());
    assert!(!source.why.contains("moved"), "{}", source.why);
    assert!(daemon.url(&format!("{}/a", origin.base())).await.listed);
    assert_eq!(canary.touched(), 0);
    daemon.stop().await;
}

#[tokio::test]
async fn whatever_retry_after_says_the_wait_is_sensible() {
    for (said, least, most) in [
        ("3600", 60 * MINUTE, 80 * MINUTE),
        ("99999999999", DAY, 2 * DAY),
        ("soon", MINUTE, DAY),
        ("-5", MINUTE, DAY),
        ("0", Duration::from_secs(1), DAY),
        ("Sun, 22 Nov 2026 12:00:00 GMT", 20 * 60 * MINUTE, 2 * DAY),
        ("Sat, 01 Jan 2000 00:00:00 GMT", Duration::from_secs(1), DAY),
    ] {
        let origin = Origin::start().await;
        origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
        let world = World::new(&[&origin]);
        let daemon = world.start(&one_sitemap(&origin)).await;
        daemon.polled("/sitemap.xml", 1).await;
        daemon.settled().await;
        origin.set("/sitemap.xml", Reply::status(429).header("Retry-After", said));
        daemon.poll("/sitemap.xml").await;
        let next = daemon.source("/sitemap.xml").await.next_poll_at.unwrap();
        let wait = Duration::try_from(next.duration_since(daemon.now())).unwrap();
        assert!((least..=most).contains(&wait), "{said:?}: {wait:?}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_ignores_its_own_validators_hides_nothing() {
    let origin = Origin::start().await;
    let base = origin.base();
    let reply =
        |list: &[(&str, &str)]| Reply::xml(sitemap(&base, list)).etag("\"stuck\"").unconditional();
    origin.set("/sitemap.xml", reply(&LIST));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", reply(&[("/a", ""), ("/b", ""), ("/c", "")]));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.http_status, poll.counts.new), (Some(200), 1));
    daemon.stop().await;
}

type Setup = Box<dyn Fn(&Origin)>;

#[tokio::test]
async fn what_a_robots_txt_answers_decides_whether_the_sitemap_is_asked() {
    let redirects = |n: usize| {
        move |origin: &Origin| {
            for hop in 0..n {
                let to = if hop + 1 == n { "/r".to_owned() } else { format!("/r{}", hop + 1) };
                let path = if hop == 0 { "/robots.txt".to_owned() } else { format!("/r{hop}") };
                origin.set(&path, Reply::redirect(301, to));
            }
            origin.set("/r", Reply::text("User-agent: *\nDisallow: /\n"));
        }
    };
    let is = |reply: Reply| move |origin: &Origin| origin.set("/robots.txt", reply.clone());
    let rules = |text: &str| is(Reply::text(text));
    let table: Vec<(&str, Setup, bool)> = vec![
        ("404", Box::new(is(Reply::status(404))), true),
        ("410", Box::new(is(Reply::status(410))), true),
        ("401", Box::new(is(Reply::status(401))), true),
        ("403", Box::new(is(Reply::status(403))), true),
        ("429", Box::new(is(Reply::status(429))), false),
        ("500", Box::new(is(Reply::status(500))), false),
        ("503", Box::new(is(Reply::status(503))), false),
        ("a cut body", Box::new(is(Reply::text("User-agent: *\nAllow: /").cut_after(5))), false),
        ("HTML", Box::new(is(Reply::html("<!doctype html><p>Disallow: /"))), true),
        ("empty", Box::new(rules("")), true),
        ("forbids all", Box::new(rules("User-agent: *\nDisallow: /")), false),
        ("forbids us", Box::new(rules("User-agent: sitemapd\nDisallow: /")), false),
        (
            "allows us",
            Box::new(rules("User-agent: *\nDisallow: /\n\nUser-agent: SitemapD/2\nAllow: /")),
            true,
        ),
        ("a mark at its start", Box::new(rules("\u{feff}User-agent: *\nDisallow: /")), false),
        ("old line ends", Box::new(rules("User-agent: *\rDisallow: /")), false),
        ("packed", Box::new(is(Reply::text("User-agent: *\nDisallow: /").gzip())), false),
        (
            "half of a pack",
            Box::new(is(Reply::text("User-agent: *\nAllow: /").half_of_gzip())),
            false,
        ),
        ("five redirects", Box::new(redirects(5)), false),
        // RFC 9309 section 2.3.1.2: more may count as no file.
        ("six redirects", Box::new(redirects(6)), true),
        (
            "a rule to hang on",
            Box::new(rules(&format!("User-agent: *\nDisallow: /{}x$", "*a".repeat(5_000)))),
            true,
        ),
    ];
    for (name, set, is_asked) in table {
        let origin = Origin::start().await;
        set(&origin);
        origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
        let world = World::new(&[&origin]);
        let daemon = world.start(&one_sitemap(&origin)).await;
        let poll = daemon.polled("/sitemap.xml", 1).await;
        let expected = if is_asked { "changed" } else { "forbidden" };
        assert_eq!(poll.result, expected, "{name}: {:?}", poll.error);
        assert_eq!(!origin.requests("/sitemap.xml").is_empty(), is_asked, "{name}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_redirect_to_a_host_that_forbids_it_is_not_followed() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    other.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /private/\n"));
    other.set("/private/s.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    other.set("/open/s.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    origin.set("/one.xml", Reply::redirect(302, other.url("/private/s.xml").as_str()));
    origin.set("/two.xml", Reply::redirect(302, other.url("/open/s.xml").as_str()));
    let world = World::new(&[&origin, &other]);
    let daemon = world.start(&listed(&origin, &["/one.xml", "/two.xml"], &[], "")).await;
    let poll = daemon.polled("/one.xml", 1).await;
    assert_eq!(poll.result, "forbidden", "{:?}", poll.error);
    assert!(other.requests("/private/s.xml").is_empty());
    assert_eq!(daemon.polled("/two.xml", 1).await.counts.new, 2);
    assert_eq!(other.requests("/robots.txt").len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_robots_txt_is_asked_for_once_a_day_and_conditionally() {
    let origin = Origin::start().await;
    let rules = Reply::text("User-agent: *\nDisallow: /no\n").etag("\"r1\"");
    origin.set("/robots.txt", rules);
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    for _ in 0..3 {
        daemon.pass(7 * 60 * MINUTE).await;
        daemon.poll("/sitemap.xml").await;
    }
    assert_eq!(origin.requests("/robots.txt").len(), 1, "a day has not passed");
    daemon.pass(4 * 60 * MINUTE).await;
    daemon.poll("/sitemap.xml").await;
    let asked = origin.requests("/robots.txt");
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].header("if-none-match"), Some("\"r1\""));
    // The 304 keeps the rules, for another day.
    let poll = daemon.polled("/robots.txt", 2).await;
    assert_eq!((poll.http_status, poll.result.as_str()), (Some(304), "unchanged"));
    daemon.pass(12 * 60 * MINUTE).await;
    daemon.poll("/sitemap.xml").await;
    assert_eq!(origin.requests("/robots.txt").len(), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn whoever_cannot_be_talked_to_is_asked_again_later_and_later() {
    let origin = Origin::start().await;
    // Held, so that nobody else comes to listen there.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = held.local_addr().unwrap();
    origin.set("/reset.xml", Reply::xml(sitemap(&origin.base(), &LIST)).reset_after(40));
    origin.set("/garbage.xml", Reply::raw([0x16, 3, 1, 0, 0xff].repeat(20)));
    for url in [
        format!("https://tls.test:{}/s.xml", origin.port()),
        format!("http://nobody.test:{}/s.xml", nobody.port()),
        format!("http://reset.test:{}/reset.xml", origin.port()),
        format!("http://garbage.test:{}/garbage.xml", origin.port()),
    ] {
        let world = World::with_names(&[&origin]);
        let base = url.rsplit_once('/').unwrap().0;
        let mut config = world.config(&format!(
            "[[site]]\nname = \"site\"\nurl = \"{base}/\"\nsitemaps = [\"{url}\"]\nfeeds = []\nobey_robots = false\n"
        ));
        config.fetch.allow.push(sitemapd::config::AllowedAddress {
            net: "127.0.0.1/32".parse().unwrap(),
            port: Some(nobody.port()),
        });
        let daemon = world.start_with(config).await;
        let mut waits = Vec::new();
        for nth in 1..=6 {
            let poll = daemon.polled(".xml", nth).await;
            assert_eq!(poll.result, "failed", "{url}");
            let source = daemon.source(".xml").await;
            assert_eq!(source.status, "could-not-fetch", "{url}");
            assert!(source.why.contains("failed"), "{url}: {}", source.why);
            assert!(source.error.is_some_and(|error| !error.is_empty()), "{url}");
            let next = source.next_poll_at.unwrap();
            waits.push(Duration::try_from(next.duration_since(daemon.now())).unwrap());
            daemon.clock.advance(waits[nth - 1] + Duration::from_secs(1));
        }
        assert!(waits[0] >= Duration::from_secs(25), "{url}: {waits:?}");
        assert!(waits[5] > 4 * waits[0], "{url}: {waits:?}");
        assert!(waits.iter().all(|wait| *wait <= 2 * DAY), "{url}: {waits:?}");
        daemon.stop().await;
    }
}
