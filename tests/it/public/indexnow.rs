//! What owners push is taken when the host itself shows their key, and moves
//! what is known: answers per code, bounds, and nothing beyond them.

use sitemapd::queue::{LeaseRequest, Leased};

use super::*;
use crate::support::daemon::{DAY, HOUR, MINUTE, World, index, sitemap};
use crate::support::{Hold, PATIENCE, Reply};

const KEY: &str = "0123456789abcdef-KEY";

/// A daemon that knows `/a` and `/b`, each fetched once, and a host with a key.
async fn known() -> (World, Daemon, Origin) {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/dir/b", "")])));
    origin.set(&format!("/{KEY}.txt"), Reply::text(format!("\u{feff}{KEY}\r\n")));
    let world = World::new(&[&origin]);
    let daemon = world.start(&config(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    (world, daemon, origin)
}

fn config(origin: &Origin) -> String {
    site(origin, &format!("sitemaps = [\"{}/sitemap.xml\"]", origin.base()))
}

fn host(origin: &Origin) -> String {
    format!("127.0.0.1:{}", origin.port())
}

fn target(url: &str, key: &str) -> String {
    format!("/indexnow?url={}&key={key}", encoded(url))
}

async fn post(daemon: &Daemon, body: &Value) -> Answer {
    let head = "POST /IndexNow HTTP/1.1\r\nContent-Type: application/json; charset=utf-8";
    send(daemon.public.unwrap(), head, &body.to_string()).await
}

fn body(origin: &Origin, urls: &[String]) -> Value {
    serde_json::json!({ "host": host(origin), "key": KEY, "urlList": urls })
}

/// Leases all that is due, and says that nothing of it has changed; how much
/// that was.
async fn settle_all(daemon: &Daemon) -> usize {
    settle_of(daemon, "default").await.len()
}

/// The same of one crawl; which URLs that were.
async fn settle_of(daemon: &Daemon, crawl: &str) -> Vec<String> {
    let leased = lease_of(daemon, crawl).await;
    let results: Vec<_> = leased
        .iter()
        .map(|lease| {
            let token = lease.token.to_string();
            serde_json::json!({ "token": token, "status": 200, "content_hash": "same" })
        })
        .collect();
    let settled = serde_json::json!({ "results": results });
    let head = "POST http://localhost/v1/settle HTTP/1.1\r\nContent-Type: application/json";
    let answer = send(daemon.api, head, &settled.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    leased.into_iter().map(|lease| lease.url).collect()
}

async fn lease_of(daemon: &Daemon, crawl: &str) -> Vec<Leased> {
    let request = LeaseRequest {
        max: 1_000,
        ttl: 5 * MINUTE,
        per_host: 1_000,
        crawl: crawl.to_owned(),
        sites: Vec::new(),
        worker: None,
        request_id: None,
    };
    daemon.store.lease(request).await.unwrap().urls
}

#[tokio::test]
async fn pushes_that_prove_wrong_lose_their_pull() {
    let (_world, daemon, origin) = known().await;
    let base = origin.base();
    let paths: Vec<String> = (0..40).map(|n| format!("/{n}")).collect();
    let entries: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &entries)));
    daemon.poll("/sitemap.xml").await;
    daemon.settled().await;
    settle_all(&daemon).await;
    let urls: Vec<_> = paths.iter().map(|path| base.clone() + path).collect();
    let mut leased = Vec::new();
    for _ in 0..6 {
        daemon.pass(HOUR).await;
        assert_eq!(post(&daemon, &body(&origin, &urls)).await.json()["known"], 40);
        leased.push(settle_all(&daemon).await);
    }
    assert_eq!(leased[0], 40, "believed at first");
    assert!(leased[5] < 5, "{leased:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_pushed_url_that_is_known_is_due_and_pushes_of_it_count_once_in_ten_minutes() {
    let (_world, daemon, origin) = known().await;
    let url = origin.base() + "/a";
    settle_all(&daemon).await;
    daemon.clock.advance(HOUR);
    assert_eq!(daemon.lease().await.len(), 0, "nothing is due");
    let pushed = get(&daemon, &target(&url, KEY)).await;
    assert_eq!(pushed.status, 200, "{}", pushed.body);
    assert_eq!(pushed.json()["known"], 1);
    let leased: Vec<_> = daemon.lease().await.into_iter().map(|lease| lease.url).collect();
    assert_eq!(leased, std::slice::from_ref(&url), "it jumps the queue, the other does not");
    let again = get(&daemon, &target(&url, KEY)).await;
    assert_eq!((again.status, &again.json()["repeated"]), (200, &1.into()));
    daemon.clock.advance(10 * MINUTE);
    let later = get(&daemon, &target(&url, KEY)).await;
    assert_eq!(later.json()["known"], 1);
    assert_eq!(origin.requests(&format!("/{KEY}.txt")).len(), 1, "the key holds for a day");
    daemon.clock.advance(DAY);
    get(&daemon, &target(&url, KEY)).await;
    assert_eq!(origin.requests(&format!("/{KEY}.txt")).len(), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn a_push_reaches_every_site_that_has_its_urls() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    origin.set(&format!("/{KEY}.txt"), Reply::text(KEY));
    let listed = || Reply::xml(sitemap(&base, &[("/p9/x", "")]));
    for path in ["/p9/own.xml", "/other.xml", "/beside.xml"] {
        origin.set(path, listed());
    }
    let mut keys = site(&origin, &format!("sitemaps = [\"{base}/beside.xml\"]"));
    for n in 0..10 {
        let sitemaps = if n == 9 { format!("\"{base}/p9/own.xml\"") } else { String::new() };
        let directory = format!(
            "[[site]]\nname = \"p{n}\"\nurl = \"{base}/p{n}/\"\nscope = \"directory\"\n\
             feeds = []\nsitemaps = [{sitemaps}]\n"
        );
        keys += &directory;
    }
    let other = format!(
        "[[site]]\nname = \"other\"\nurl = \"{base}/\"\ncrawl = \"other\"\nfeeds = []\n\
         sitemaps = [\"{base}/other.xml\"]\n"
    );
    let world = World::new(&[&origin]);
    let daemon = world.start(&(keys + &other)).await;
    for path in ["/p9/own.xml", "/other.xml", "/beside.xml"] {
        daemon.polled(path, 1).await;
    }
    daemon.settled().await;
    let url = format!("{base}/p9/x");
    for crawl in ["default", "other"] {
        assert_eq!(settle_of(&daemon, crawl).await, std::slice::from_ref(&url));
    }
    daemon.clock.advance(HOUR);
    let urls = [url.clone(), format!("{base}/p9/new"), format!("{base}/p9/new")];
    let pushed = post(&daemon, &body(&origin, &urls)).await;
    let counted = ["known", "unknown", "repeated", "outside"].map(|of| pushed.json()[of].clone());
    assert_eq!(counted, [1, 1, 1, 0].map(Value::from), "by URL, not by site");
    for crawl in ["default", "other"] {
        let leased: Vec<_> =
            lease_of(&daemon, crawl).await.into_iter().map(|one| one.url).collect();
        assert_eq!(leased, std::slice::from_ref(&url), "{crawl}");
    }
    for path in ["/p9/own.xml", "/other.xml", "/beside.xml"] {
        daemon.polled(path, 2).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_push_of_a_paused_site_waits_until_it_goes_on() {
    let (world, daemon, origin) = known().await;
    let file = format!("/{KEY}.txt");
    origin.set(&file, Reply::status(503));
    let url = origin.base() + "/a";
    assert_eq!(get(&daemon, &target(&url, KEY)).await.status, 202);
    daemon.store.pause_site("a".to_owned(), true).await.unwrap();
    origin.set(&file, Reply::text(KEY));
    daemon.clock.advance(11 * MINUTE);
    let (look, now) = (world.look(), daemon.now().as_millisecond());
    daemon
        .wait("a try", async || {
            let waits = look.number("SELECT count(*) FROM pushes");
            let later = format!("SELECT count(*) FROM pushes WHERE next_at > {now}");
            (waits == 0 || look.number(&later) == 1).then_some(())
        })
        .await;
    daemon.store.pause_site("a".to_owned(), false).await.unwrap();
    daemon.clock.advance(11 * MINUTE);
    daemon
        .wait("the push", async || (look.number("SELECT count(*) FROM pushes") == 0).then_some(()))
        .await;
    let pushed = get_as(&daemon, "192.0.2.9", &target(&url, KEY)).await;
    assert_eq!(pushed.json()["repeated"], 1, "{}", pushed.body);
    daemon.stop().await;
}

#[tokio::test]
async fn a_body_takes_its_share_of_memory_until_its_push_has_ended() {
    let origins = [Origin::start().await, Origin::start().await];
    let mut keys = site(&origins[0], "sitemaps = []");
    let other = format!(
        "[[site]]\nname = \"b\"\nurl = \"{}/\"\nfeeds = []\nsitemaps = []\n",
        origins[1].base()
    );
    keys += &other;
    let hold = Hold::new();
    let file = format!("/{KEY}.txt");
    for origin in &origins {
        origin.set("/robots.txt", Reply::text("User-agent: *\n"));
        origin.set(&file, Reply::text(KEY).hang(&hold));
    }
    let world = World::new(&[&origins[0], &origins[1]]);
    let daemon = world.start(&keys).await;
    daemon.settled().await;
    // What the body holds besides is not looked at, and takes its share. All is made before
    // and all but a byte is sent before: a key is waited for ten seconds of real time.
    let of_bytes = |origin: &Origin, bytes: usize| {
        let mut body = body(origin, &[origin.base() + "/a"]);
        body["more"] = " ".repeat(bytes).into();
        body.to_string()
    };
    let third = of_bytes(&origins[0], 3 << 20);
    let post = async || {
        let head = "POST /indexnow HTTP/1.1\r\nContent-Type: application/json";
        send(daemon.public.unwrap(), head, &third).await.status
    };
    let mut ends = Vec::new();
    for (origin, client) in origins.iter().zip(["192.0.2.1", "192.0.2.2"]) {
        let body = of_bytes(origin, 23 << 20);
        let head = format!(
            "POST /indexnow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             X-Forwarded-For: {client}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(daemon.public.unwrap()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let (all_but_one, end) = body.as_bytes().split_at(body.len() - 1);
        stream.write_all(all_but_one).await.unwrap();
        ends.push((stream, end.to_vec()));
    }
    for (stream, end) in &mut ends {
        stream.write_all(end).await.unwrap();
    }
    for origin in &origins {
        origin.wait_for(&file, 1).await;
    }
    drop(ends);
    // Often, so that who has gone is known to have gone.
    for _ in 0..3 {
        assert_eq!(post().await, 503);
    }
    hold.release_all();
    let has_room = async || {
        // A client's share of requests fills by this clock.
        daemon.clock.advance(std::time::Duration::from_secs(1));
        (post().await == 200).then_some(())
    };
    daemon.wait("room", has_room).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_unknown_url_makes_no_row_but_has_the_sitemap_read_sooner() {
    let (_world, daemon, origin) = known().await;
    let base = origin.base();
    daemon.clock.advance(HOUR);
    let whole = [("/a", ""), ("/dir/b", ""), ("/new", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &whole)));
    let urls = [format!("{base}/new"), format!("{base}/listed-nowhere"), format!("{base}/a")];
    let pushed = post(&daemon, &body(&origin, &urls)).await;
    assert_eq!(pushed.status, 200, "{}", pushed.body);
    assert_eq!((&pushed.json()["unknown"], &pushed.json()["known"]), (&2.into(), &1.into()));
    daemon.polled("/sitemap.xml", 2).await;
    daemon.settled().await;
    assert!(daemon.knows(&urls[0]).await);
    assert!(!daemon.knows(&urls[1]).await, "a push grows nothing by itself");
    daemon.stop().await;
}

#[tokio::test]
async fn what_an_index_lists_without_dates_is_read_sooner_as_well() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set(&format!("/{KEY}.txt"), Reply::text(KEY));
    // As WordPress makes it: the index is the same whatever becomes of its pages.
    origin.set("/sitemap.xml", Reply::xml(index(&base, &[("/pages.xml", "")])).etag("\"1\""));
    origin.set("/pages.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&config(&origin)).await;
    daemon.polled("/pages.xml", 1).await;
    daemon.settled().await;
    daemon.clock.advance(HOUR);
    origin.set("/pages.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/new", "")])));
    let url = format!("{base}/new");
    assert_eq!(post(&daemon, &body(&origin, std::slice::from_ref(&url))).await.status, 200);
    daemon.polled("/pages.xml", 2).await;
    daemon.settled().await;
    assert!(daemon.knows(&url).await);
    daemon.stop().await;
}

#[tokio::test]
async fn each_refusal_has_the_code_of_the_protocol() {
    let (_world, daemon, origin) = known().await;
    let base = origin.base();
    let a = format!("{base}/a");
    origin.set("/wrong-key-1.txt", Reply::text("another"));
    origin.set("/wrong-key-2.txt", Reply::redirect(302, format!("{base}/{KEY}.txt")));
    origin.set("/wrong-key-3.txt", Reply::html(format!("<p>{KEY}</p>")));
    origin.set("/wrong-key-4.txt", Reply::text(format!("wrong-key-4{}", " ".repeat(9_000))));
    origin.set("/dir/key.txt", Reply::text(KEY));
    let at =
        |place: &str, url: &str| format!("{}&keyLocation={}", target(url, KEY), encoded(place));
    let dir_key = format!("{base}/dir/key.txt");
    let cases = [
        (format!("/indexnow?key={KEY}"), 400),
        (format!("/indexnow?url={}", encoded(&a)), 400),
        (target(&a, "missing-key"), 403),
        (target(&a, "wrong-key-1"), 403),
        (target(&a, "wrong-key-2"), 403),
        (target(&a, "wrong-key-3"), 403),
        (target(&a, "wrong-key-4"), 403),
        (target("http://other.example/a", KEY), 403),
        (target("http://169.254.169.254/a", KEY), 403),
        (target(&a, "short"), 422),
        (target(&a, "under_score"), 422),
        (target("nonsense", KEY), 422),
        (at(&dir_key, &a), 422),
        (at("http://other.example/key.txt", &a), 422),
        (at(&dir_key, &format!("{base}/dir/b")), 200),
    ];
    for (n, (asked, status)) in cases.into_iter().enumerate() {
        // A client may try few keys.
        let answer = get_as(&daemon, &format!("192.0.2.{n}"), &asked).await;
        assert_eq!(answer.status, status, "{asked}: {}", answer.body);
    }
    assert_eq!(origin.requests("/a").len(), 0, "pages are never fetched here");
    let to = daemon.public.unwrap();
    assert_eq!(send(to, "DELETE /indexnow HTTP/1.1", "").await.status, 405);
    let foreign = [a.clone(), "http://other.example/a".to_owned()];
    assert_eq!(post(&daemon, &body(&origin, &foreign)).await.status, 422);
    assert_eq!(post(&daemon, &body(&origin, &[])).await.status, 400);
    let json = "POST /indexnow HTTP/1.1\r\nContent-Type: application/json";
    assert_eq!(send(to, json, "{\"host\":").await.status, 400);
    daemon.stop().await;
}

#[tokio::test]
async fn no_push_has_a_request_sent_to_a_port_that_the_config_does_not_name() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let world = World::new(&[&origin, &other]);
    // The host is the site's by any port, for what its own documents list.
    let daemon = world.start(&site(&origin, "hosts = [\"localhost\"]\nsitemaps = []")).await;
    let asked = format!("http://localhost:{}/a", other.port());
    let answer = get_as(&daemon, "192.0.2.1", &target(&asked, KEY)).await;
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("no site here has this host"), "{}", answer.body);
    assert!(other.all_requests().is_empty(), "{:?}", other.all_requests());
    let named = format!("hosts = [\"localhost:{}\"]\nsitemaps = []", other.port());
    daemon.reload(&site(&origin, &named)).await;
    get_as(&daemon, "192.0.2.1", &target(&asked, KEY)).await;
    assert_eq!(other.all_requests().len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn ten_thousand_urls_are_taken_and_one_more_is_not() {
    let (_world, daemon, origin) = known().await;
    let url = |n: usize| format!("{}/{n}", origin.base());
    let whole: Vec<_> = (0..10_000).map(url).collect();
    let taken = post(&daemon, &body(&origin, &whole)).await;
    assert_eq!((taken.status, &taken.json()["unknown"]), (200, &10_000.into()));
    let more: Vec<_> = (0..10_001).map(url).collect();
    assert_eq!(post(&daemon, &body(&origin, &more)).await.status, 400);
    // A host has a share, whoever pushes.
    assert_eq!(post(&daemon, &body(&origin, &whole)).await.json()["repeated"], 10_000);
    let over = get_as(&daemon, "198.51.100.7", &target(&url(1), KEY)).await;
    assert_eq!(over.status, 429);
    assert!(over.header("retry-after").is_some());
    daemon.stop().await;
}

#[tokio::test]
async fn a_push_waits_for_a_key_that_cannot_be_checked_also_over_a_restart() {
    let (world, daemon, origin) = known().await;
    let file = format!("/{KEY}.txt");
    origin.set(&file, Reply::status(503));
    let url = origin.base() + "/a";
    let pushed = get(&daemon, &target(&url, KEY)).await;
    assert_eq!((pushed.status, &pushed.json()["status"]), (202, &"pending".into()));
    daemon.stop().await;
    let daemon = world.start(&config(&origin)).await;
    assert_eq!(origin.requests(&file).len(), 1);
    origin.set(&file, Reply::text(KEY));
    daemon.clock.advance(11 * MINUTE);
    daemon.wait("the key", async || (origin.requests(&file).len() == 2).then_some(())).await;
    // Not by pushes, of which a client has a share only, by a clock that stands still.
    let waiting = || world.look().number("SELECT count(*) FROM pushes");
    daemon.wait("the push", async || (waiting() == 0).then_some(())).await;
    let pushed = get_as(&daemon, "192.0.2.9", &target(&url, KEY)).await;
    assert_eq!(pushed.json()["repeated"], 1, "{}", pushed.body);
    daemon.stop().await;
}

#[tokio::test]
async fn who_has_no_key_takes_nothing_of_what_a_host_may_push() {
    let (_world, daemon, origin) = known().await;
    let base = origin.base();
    let urls: Vec<_> = (0..10_000).map(|n| format!("{base}/{n}")).collect();
    let push = async |client: &str, key: &str, urls: &[String]| {
        let head = format!(
            "POST /indexnow HTTP/1.1\r\nContent-Type: application/json\r\nX-Forwarded-For: {client}"
        );
        let body = serde_json::json!({ "host": host(&origin), "key": key, "urlList": urls });
        send(daemon.public.unwrap(), &head, &body.to_string()).await.status
    };
    for n in 0..3 {
        assert_eq!(push("192.0.2.7", "made-up-key", &urls).await, if n < 2 { 403 } else { 429 });
    }
    assert_eq!(push("192.0.2.8", KEY, &urls).await, 200);
    assert_eq!(push("192.0.2.9", KEY, &urls).await, 200);
    assert_eq!(push("192.0.2.10", KEY, &urls).await, 429, "who has it does");
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_that_is_told_to_stop_waits_for_no_key() {
    let (_world, daemon, origin) = known().await;
    let file = format!("/{KEY}.txt");
    origin.set(&file, Reply::status(503));
    let url = origin.base() + "/a";
    assert_eq!(get(&daemon, &target(&url, KEY)).await.status, 202);
    let hold = Hold::new();
    origin.set(&file, Reply::text(KEY).hang(&hold));
    daemon.clock.advance(11 * MINUTE);
    origin.wait_for(&file, 2).await;
    // Less than a key file is waited for where nobody waits for the answer.
    let stopped = tokio::time::timeout(PATIENCE, daemon.stop()).await;
    assert!(stopped.is_ok(), "it waits");
}

#[tokio::test]
async fn who_asks_a_host_for_a_key_does_not_make_it_a_faster_one() {
    let (_world, daemon, origin) = known().await;
    let slow = config(&origin) + "host_delay = \"30s\"\n";
    daemon.reload(&slow).await;
    let url = origin.base() + "/a";
    assert_eq!(get(&daemon, &target(&url, "no-such-key")).await.status, 403);
    daemon.clock.advance(std::time::Duration::from_secs(30));
    let leased = daemon.lease().await;
    let times: Vec<_> = leased.iter().map(|lease| lease.not_before).collect();
    assert_eq!(times.len(), 2);
    assert_eq!(times[1].duration_since(times[0]), jiff::SignedDuration::from_secs(30));
    daemon.stop().await;
}

#[tokio::test]
async fn a_host_is_asked_for_few_keys_and_what_waits_is_bounded() {
    let (_world, daemon, origin) = known().await;
    let url = origin.base() + "/a";
    // A client may have some of the checks that a host may be asked for.
    let mut codes = Vec::new();
    for n in 0..16 {
        let client = format!("192.0.2.{}", n / 4);
        codes.push(get_as(&daemon, &client, &target(&url, &format!("guessed-{n}"))).await.status);
    }
    let expected = [403, 403, 403, 429, 403, 403, 403, 429, 403, 403, 403, 429, 403, 429, 429, 429];
    assert_eq!(codes, expected);
    assert_eq!(
        origin.all_requests().iter().filter(|seen| seen.path.contains("guessed")).count(),
        10
    );
    daemon.clock.advance(11 * MINUTE);
    let slow = |n: i32| target(&url, &format!("silent-{n}"));
    origin.route(|seen| seen.path.contains("silent").then(|| Reply::status(500)));
    let mut codes = Vec::new();
    for n in 0..6 {
        let client = format!("198.51.100.{n}");
        codes.push(get_as(&daemon, &client, &slow(n)).await.status);
    }
    assert_eq!(codes, [202, 202, 202, 202, 202, 429]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_host_that_puts_off_who_asks_for_a_key_is_left_alone() {
    for status in [429, 503] {
        let (_world, daemon, origin) = known().await;
        origin.set(&format!("/{KEY}.txt"), Reply::status(status).header("Retry-After", "3600"));
        let url = origin.base() + "/a";
        assert_eq!(get(&daemon, &target(&url, KEY)).await.status, 202);
        origin.clear_log();
        let sitemap = daemon.source("/sitemap.xml").await.id;
        daemon.store.poll_source(sitemap).await.unwrap();
        daemon.settled().await;
        daemon.pass(59 * MINUTE).await;
        assert!(origin.all_requests().is_empty(), "{status}: {:?}", origin.all_requests());
        origin.set(&format!("/{KEY}.txt"), Reply::text(KEY));
        daemon.pass(2 * MINUTE).await;
        daemon.polled("/sitemap.xml", 2).await;
        daemon.stop().await;
    }
}
