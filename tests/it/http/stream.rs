//! The change stream: nothing missed, nothing twice, in every form of it.

use serde_json::Value;
use sitemapd::fetch::api::{ApiClient, ApiError};
use tokio::time::timeout;

use crate::support::daemon::{DAY, Daemon, World, sitemap};
use crate::support::engine;
use crate::support::{Origin, PATIENCE, Reply};

/// A daemon with one site of one sitemap, polled when asked.
async fn started(world: &World, origin: &Origin) -> Daemon {
    let base = origin.base();
    world
        .start(&format!(
            "[store]\nkeep_changes = \"3d\"\n[[site]]\nname = \"site\"\nurl = \"{base}/\"\n\
             poll = \"30d\"\nsitemaps = [\"{base}/sitemap.xml\"]\nfeeds = []\n"
        ))
        .await
}

fn list(origin: &Origin, entries: &[(&str, &str)]) {
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), entries)));
}

async fn get(daemon: &Daemon, query: &[(&str, &str)]) -> Result<Value, ApiError> {
    ApiClient::new(&format!("http://{}", daemon.api), None).unwrap().get("/v1/changes", query).await
}

async fn send(daemon: &Daemon, query: &str, headers: &[(&str, &str)]) -> reqwest::Response {
    let mut request = sitemapd::fetch::tls::client()
        .no_proxy()
        .build()
        .unwrap()
        .get(format!("http://{}/v1/changes{query}", daemon.api));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn text(mut answer: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn what_a_robots_txt_says_otherwise_stands_among_the_other_changes() {
    let origin = Origin::start().await;
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /x\n"));
    list(&origin, &[("/a", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/robots.txt", Reply::text("License: /l\nUser-agent: *\nDisallow: /y\n"));
    daemon.poll("/robots.txt").await;
    list(&origin, &[("/a", ""), ("/b", "")]);
    daemon.poll("/sitemap.xml").await;
    let all = get(&daemon, &[]).await.unwrap();
    let all = all["changes"].as_array().unwrap();
    let robots = "/robots.txt";
    let expected = [("new", "/a"), ("rules", robots), ("license", robots), ("new", "/b")];
    assert_eq!(told(all), pairs(&expected));
    assert_eq!(
        (&all[1]["was"], &all[1]["now"]),
        (&"*: Disallow: /x".into(), &"*: Disallow: /y".into())
    );
    assert_eq!((&all[1]["site"], &all[1]["id"]), (&"site".into(), &Value::Null));
    // They are chosen as others are, and a cursor may lie between two of them.
    let after = all[1]["cursor"].as_str().unwrap();
    let some = get(&daemon, &[("after", after), ("kinds", "rules,license")]).await.unwrap();
    assert_eq!(told(some["changes"].as_array().unwrap()), pairs(&[("license", robots)]));
    daemon.stop().await;
}

/// What happened to which path.
fn told(changes: &[Value]) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let path = |url: String| url[url.rfind('/').unwrap()..].to_owned();
    changes.iter().map(|change| (word(&change["kind"]), path(word(&change["url"])))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, path)| ((*kind).to_owned(), (*path).to_owned())).collect()
}

/// Reads events of a stream until there are so many.
async fn events(response: &mut reqwest::Response, count: usize) -> Vec<(String, Value)> {
    let mut text = String::new();
    loop {
        let whole: Vec<_> = text.split("\n\n").filter(|block| block.contains("data:")).collect();
        if whole.len() >= count && text.ends_with("\n\n") {
            let field = |block: &str, name: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.trim_start().to_owned()
            };
            return whole
                .iter()
                .map(|block| {
                    let data: Value = serde_json::from_str(&field(block, "data:")).unwrap();
                    assert_eq!(field(block, "event:"), data["kind"].as_str().unwrap());
                    assert_eq!(field(block, "id:"), data["cursor"].as_str().unwrap());
                    (field(block, "id:"), data)
                })
                .collect();
        }
        let chunk = response.chunk().await.unwrap().expect("the stream goes on");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

#[tokio::test]
async fn who_comes_back_with_the_cursor_sees_each_change_once_and_in_order() {
    let origin = Origin::start().await;
    list(&origin, &[("/a", "2026-11-01"), ("/b", ""), ("/c", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    // Whoever was there before anything happened misses nothing either.
    let early = get(&daemon, &[("after", "end")]).await.unwrap();
    daemon.polled("/sitemap.xml", 1).await;
    list(&origin, &[("/a", "2026-11-02"), ("/c", ""), ("/d", "")]);
    daemon.pass(DAY).await;
    daemon.poll("/sitemap.xml").await;
    let all = pairs(&[
        ("new", "/a"),
        ("new", "/b"),
        ("new", "/c"),
        ("new", "/d"),
        ("changed", "/a"),
        ("missing", "/b"),
    ]);
    for limit in ["1", "2", "4", "1000"] {
        let mut seen = Vec::new();
        let mut after = early["next"].as_str().unwrap().to_owned();
        loop {
            let page = get(&daemon, &[("after", &after), ("limit", limit)]).await.unwrap();
            let changes = page["changes"].as_array().unwrap();
            assert!(changes.len() <= limit.parse().unwrap());
            seen.extend(told(changes));
            after = page["next"].as_str().unwrap().to_owned();
            if let Some(last) = changes.last() {
                // The cursor of an event and the end of its page are one place.
                let last = last["cursor"].as_str().unwrap();
                let again = get(&daemon, &[("after", last), ("limit", "1")]).await.unwrap();
                let then = get(&daemon, &[("after", &after), ("limit", "1")]).await.unwrap();
                assert_eq!(again["changes"], then["changes"]);
            }
            if page["more"] == false {
                break;
            }
        }
        assert_eq!(seen, all, "{limit} at a time");
    }
    let page = get(&daemon, &[]).await.unwrap();
    let first = &page["changes"][0];
    assert_eq!(first["url"], origin.url("/a").as_str());
    assert_eq!((&first["site"], &first["crawl"]), (&"site".into(), &"default".into()));
    assert_eq!(first["source"]["url"], origin.url("/sitemap.xml").as_str());
    assert_eq!((&first["listed_as"], &first["lastmod"]), (&"page".into(), &"2026-11-02".into()));
    let some = get(&daemon, &[("kinds", "changed, missing"), ("site", "site")]).await.unwrap();
    assert_eq!(told(some["changes"].as_array().unwrap()), all[4..]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_follower_that_reconnects_with_its_last_event_misses_nothing() {
    let origin = Origin::start().await;
    list(&origin, &[("/a", ""), ("/b", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    let sse = [("accept", "text/event-stream")];
    let mut first = send(&daemon, "", &sse).await;
    assert_eq!(first.headers()["content-type"], "text/event-stream");
    let begun = events(&mut first, 2).await;
    assert_eq!(
        told(&[begun[0].1.clone(), begun[1].1.clone()]),
        pairs(&[("new", "/a"), ("new", "/b")])
    );
    drop(first);
    list(&origin, &[("/a", ""), ("/b", ""), ("/c", "")]);
    daemon.poll("/sitemap.xml").await;
    // What browsers send when they come back.
    let last = [sse[0], ("last-event-id", begun[1].0.as_str())];
    let mut second = send(&daemon, "", &last).await;
    let missed = events(&mut second, 1).await;
    assert_eq!(told(&[missed[0].1.clone()]), pairs(&[("new", "/c")]));
    // And it follows.
    list(&origin, &[("/a", ""), ("/b", ""), ("/c", ""), ("/d", "")]);
    daemon.poll("/sitemap.xml").await;
    let then = events(&mut second, 1).await;
    assert_eq!(told(&[then[0].1.clone()]), pairs(&[("new", "/d")]));
    // A stop of the daemon ends the stream properly.
    daemon.stop().await;
    while second.chunk().await.unwrap().is_some() {}
}

#[tokio::test]
async fn a_site_that_nobody_knows_has_no_stream_and_one_that_left_has() {
    let origin = Origin::start().await;
    list(&origin, &[("/a", ""), ("/b", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    daemon.polled("/sitemap.xml", 1).await;
    for accept in ["application/json", "application/x-ndjson", "text/event-stream"] {
        let answer = send(&daemon, "?site=typo", &[("accept", accept)]).await;
        assert_eq!(answer.status(), 404, "{accept}");
        assert!(text(answer).await.contains("typo"));
    }
    daemon
        .reload("[[site]]\nname = \"other\"\nurl = \"http://127.0.0.1:9/\"\nsitemaps = []\nfeeds = []\n")
        .await;
    for (site, changes) in [("site", 2), ("other", 0)] {
        let page = get(&daemon, &[("site", site)]).await.unwrap();
        assert_eq!(page["changes"].as_array().unwrap().len(), changes, "{site}");
    }
    daemon.stop().await;
}

/// Reads a stream up to an id that is not this one; says it, and what came with it.
async fn moved(response: &mut reqwest::Response, from: &str) -> (String, String) {
    timeout(PATIENCE, read_until_moved(response, from)).await.expect("the place is told")
}

async fn read_until_moved(response: &mut reqwest::Response, from: &str) -> (String, String) {
    let mut text = String::new();
    loop {
        let ids = text.split_inclusive("\n\n").filter(|block| block.ends_with("\n\n"));
        let mut ids = ids.filter_map(|block| block.lines().find_map(|l| l.strip_prefix("id: ")));
        if let Some(id) = ids.find(|id| *id != from) {
            return (id.to_owned(), text);
        }
        let chunk = response.chunk().await.unwrap().expect("the stream goes on");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

#[tokio::test]
async fn a_follower_who_was_sent_nothing_yet_knows_where_it_was() {
    let origin = Origin::start().await;
    list(&origin, &[("/a", ""), ("/b", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    daemon.polled("/sitemap.xml", 1).await;
    let sse = ("accept", "text/event-stream");
    let mut stream = send(&daemon, "?after=end", &[sse]).await;
    let (end, sent) = moved(&mut stream, "").await;
    assert_eq!(sent, format!("id: {end}\n\n"), "an id, and no event");
    drop(stream);
    list(&origin, &[("/a", ""), ("/b", ""), ("/c", "")]);
    daemon.poll("/sitemap.xml").await;
    // A browser asks for the same address again.
    let mut stream = send(&daemon, "?after=end", &[sse, ("last-event-id", &end)]).await;
    let missed = events(&mut stream, 1).await;
    assert_eq!(told(&[missed[0].1.clone()]), pairs(&[("new", "/c")]));
    daemon.stop().await;
}

#[tokio::test]
async fn a_follower_comes_to_know_of_what_its_filter_held_back() {
    let origin = Origin::start().await;
    list(&origin, &[("/a", ""), ("/b", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    daemon.polled("/sitemap.xml", 1).await;
    let begin = get(&daemon, &[("limit", "1")]).await.unwrap();
    let begin = begin["next"].as_str().unwrap();
    let end = async || get(&daemon, &[]).await.unwrap()["next"].as_str().unwrap().to_owned();
    let query = format!("?kinds=missing&after={begin}");
    let mut stream = send(&daemon, &query, &[("accept", "text/event-stream")]).await;
    assert_eq!(moved(&mut stream, "").await.0, begin);
    assert_eq!(moved(&mut stream, begin).await.0, end().await);
    let before = end().await;
    list(&origin, &[("/a", ""), ("/b", ""), ("/c", "")]);
    daemon.poll("/sitemap.xml").await;
    let (now, sent) = moved(&mut stream, &before).await;
    assert_eq!(now, end().await);
    assert!(!sent.contains("data:"), "{sent}");
    // What comes behind the last event in its page is known at the end.
    let query = format!("?kinds=new&after={}", end().await);
    let mut stream = send(&daemon, &query, &[("accept", "text/event-stream")]).await;
    assert_eq!(moved(&mut stream, "").await.0, end().await);
    list(&origin, &[("/b", ""), ("/c", ""), ("/d", "")]);
    daemon.poll("/sitemap.xml").await;
    let new = events(&mut stream, 1).await;
    let last = end().await;
    assert_ne!(new[0].0, last);
    daemon.stop().await;
    assert_eq!(text(stream).await, format!("id: {last}\n\n"));
}

#[tokio::test]
async fn lines_hold_all_that_there_is_one_change_each() {
    let origin = Origin::start().await;
    let paths: Vec<_> = (0..450).map(|n| format!("/{n}")).collect();
    let entries: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
    list(&origin, &entries);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    daemon.polled("/sitemap.xml", 1).await;
    let answer = send(&daemon, "?crawl=default", &[("accept", "application/x-ndjson")]).await;
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    let all = text(answer).await;
    let lines: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 450);
    let lines_of = [("accept", "application/x-ndjson")];
    for limit in [1, 300] {
        let some = text(send(&daemon, &format!("?limit={limit}"), &lines_of).await).await;
        assert_eq!(some.lines().count(), limit);
        assert!(all.starts_with(&some));
    }
    let events_of = [("accept", "text/event-stream")];
    assert_eq!(send(&daemon, "?limit=1", &events_of).await.status(), 200);
    let last = lines[449]["cursor"].as_str().unwrap();
    let rest =
        send(&daemon, &format!("?after={last}"), &[("accept", "application/x-ndjson")]).await;
    assert_eq!(text(rest).await, "");
    daemon.stop().await;
}

#[tokio::test]
async fn a_call_passes_over_so_many_rows_of_other_crawls_and_no_more() {
    if !engine::is_embedded("what one call reads") {
        return;
    }
    let origin = Origin::start().await;
    list(&origin, &[("/a", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    daemon.polled("/sitemap.xml", 1).await;
    let begin = get(&daemon, &[("after", "end")]).await.unwrap();
    world.look().change(
        "INSERT INTO crawls (name) VALUES ('other');
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 60000)
         INSERT INTO changes (at, crawl_id, generation, events, data)
         SELECT 0, (SELECT id FROM crawls WHERE name = 'other'), 0, 1, X'000200' FROM numbers",
    );
    list(&origin, &[("/a", ""), ("/b", "")]);
    daemon.poll("/sitemap.xml").await;
    let of_crawl = async |after: &Value| {
        let query = [("after", after.as_str().unwrap()), ("crawl", "default")];
        let page = get(&daemon, &query).await.unwrap();
        (told(page["changes"].as_array().unwrap()), page)
    };
    let (first, page) = of_crawl(&begin["next"]).await;
    assert_eq!((first, &page["more"]), (Vec::new(), &Value::Bool(true)));
    let (then, page) = of_crawl(&page["next"]).await;
    assert_eq!((then, &page["more"]), (pairs(&[("new", "/b")]), &Value::Bool(false)));
    daemon.stop().await;
}

#[tokio::test]
async fn a_cursor_before_what_is_kept_is_gone_and_a_later_one_is_not() {
    let origin = Origin::start().await;
    list(&origin, &[("/a", ""), ("/b", "")]);
    let world = World::new(&[&origin]);
    let daemon = started(&world, &origin).await;
    let empty = get(&daemon, &[]).await.unwrap();
    daemon.polled("/sitemap.xml", 1).await;
    let half = get(&daemon, &[("limit", "1")]).await.unwrap();
    let whole = get(&daemon, &[]).await.unwrap();
    daemon.pass(DAY * 4).await;
    while daemon.store.maintain().await.unwrap() {}
    for early in [&empty, &half] {
        let next = early["next"].as_str().unwrap();
        for accept in ["application/json", "text/event-stream"] {
            let answer = send(&daemon, &format!("?after={next}"), &[("accept", accept)]).await;
            assert_eq!(answer.status(), 410, "{next}");
            let problem: Value = serde_json::from_str(&text(answer).await).unwrap();
            assert_eq!(problem["type"], "urn:sitemapd:problem:gone");
        }
    }
    // Who had seen all of it goes on, and so does who begins anew.
    list(&origin, &[("/a", ""), ("/b", ""), ("/c", "")]);
    daemon.poll("/sitemap.xml").await;
    let next = whole["next"].as_str().unwrap();
    let last = whole["changes"].as_array().unwrap().last().unwrap()["cursor"].as_str().unwrap();
    for query in [vec![("after", next)], vec![("after", last)], vec![]] {
        let page = get(&daemon, &query).await.unwrap();
        assert_eq!(told(page["changes"].as_array().unwrap()), pairs(&[("new", "/c")]));
    }
    // A cursor of another store would wait for ever, and says so instead.
    let answer = send(&daemon, "?after=cffffffffffffff.0", &[]).await;
    assert_eq!(answer.status(), 410);
    for wrong in ["?after=x", "?kinds=added", "?limit=0", "?limit=100000", "?since=1"] {
        assert_eq!(send(&daemon, wrong, &[]).await.status(), 400, "{wrong}");
    }
    assert_eq!(send(&daemon, "?crawl=none", &[]).await.status(), 404);
    daemon.stop().await;
}
