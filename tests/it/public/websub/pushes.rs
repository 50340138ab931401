//! Pushes: read as polls are, trusted as far as polls are, and missed when
//! they fail to come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::support::Hold;
use crate::support::engine::Look;

#[tokio::test]
async fn a_push_is_read_as_a_poll_is_and_removes_nothing() {
    let (stage, callback) = Stage::subscribed().await;
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    let id = stage.daemon.source("/feed").await.id;
    let polls = stage.daemon.polls(id).await;
    let last = polls.last().unwrap();
    assert_eq!((last.result.as_str(), last.counts.new, last.counts.removed), ("pushed", 1, 0));
    assert_eq!(stage.daemon.changes(last).await, ["new /2"]);
    assert!(stage.daemon.url(&format!("{}/1", stage.origin.base())).await.listed);
    let queued = stage.daemon.queued().await;
    // The same again, by push and by poll, is no news.
    assert_eq!(stage.push(&callback, &["/2", "/1"]).await, 202);
    stage.until_read(2).await;
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/2", "/1"]));
    let poll = stage.daemon.poll("/feed").await;
    assert_eq!((poll.counts.new, poll.counts.changed), (0, 0));
    assert_eq!(stage.daemon.queued().await, queued);
    assert_eq!(stage.state().await, "healthy");
    let shown = stage.daemon.store.status().await.is_ok();
    assert!(shown);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_push_of_a_part_removes_nothing_of_a_sitemap() {
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    hub.set("/hub", Reply::status(202));
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    let base = origin.base();
    let link = format!("<{}/hub>; rel=hub, <{base}/sitemap.xml>; rel=self", hub.base());
    let sitemap = |entries: &[(&str, &str)]| crate::support::daemon::sitemap(&base, entries);
    let whole = sitemap(&[("/1", ""), ("/2", "2026-11-01"), ("/3", "")]);
    origin.set("/sitemap.xml", Reply::xml(whole).header("Link", &link));
    let world = World::new(&[&origin, &hub]);
    let text = config(&origin, "removal_polls = 1")
        .replace("removal_polls = 1", "")
        .replace("jitter = 0.0", "jitter = 0.0\nremoval_polls = 1\nremoval_after = \"0s\"")
        .replace("sitemaps = []", &format!("sitemaps = [\"{base}/sitemap.xml\"]"))
        .replace(&format!("feeds = [\"{base}/feed\"]"), "feeds = []");
    let daemon = world.start(&text).await;
    let form = asked_of(&daemon, &hub, "/hub", 1).await;
    let topic = format!("{base}/sitemap.xml");
    let callback = &form["hub.callback"];
    assert_eq!(verify(&daemon, callback, "subscribe", &topic, 9_999).await.status, 200);
    let part = sitemap(&[("/2", "2026-11-20"), ("/4", "")]);
    for _ in 0..3 {
        assert_eq!(push(&daemon, callback, "", &part).await.status, 202);
        daemon.clock.advance(10 * MINUTE);
    }
    daemon
        .wait("the pushes", async || {
            let push = daemon.source("/sitemap.xml").await.push?;
            (push.pushes == 3).then_some(())
        })
        .await;
    for path in ["/1", "/2", "/3", "/4"] {
        assert!(daemon.url(&format!("{base}{path}")).await.listed, "{path}");
    }
    let id = daemon.source("/sitemap.xml").await.id;
    let polls = daemon.polls(id).await;
    let pushed: Vec<_> = polls.iter().filter(|poll| poll.result == "pushed").collect();
    assert_eq!((pushed[0].counts.new, pushed[0].counts.changed), (1, 1));
    assert_eq!((pushed[1].counts.new, pushed[1].counts.changed), (0, 0), "doing it twice");
    daemon.stop().await;
}

#[tokio::test]
async fn polling_slows_while_push_does_well_and_returns_when_it_misses_something() {
    let (stage, callback) = Stage::subscribed().await;
    // Promised is not proven: polls go on.
    stage.daemon.poll("/feed").await;
    assert!(stage.next_poll().await < stage.daemon.now() + 5 * HOUR);
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/2", "/1"]));
    stage.daemon.poll("/feed").await;
    let source = stage.daemon.source("/feed").await;
    assert_eq!(source.next_poll_at, Some(stage.daemon.now() + DAY), "{}", source.why);
    assert!(source.why.contains("a hub pushes what is new"), "{}", source.why);
    // A push does not put the poll off that shows whether it pushes all.
    stage.daemon.clock.advance(HOUR);
    assert_eq!(stage.push(&callback, &["/3"]).await, 202);
    stage.until_read(2).await;
    assert_eq!(stage.next_poll().await, stage.daemon.now() + 23 * HOUR);
    // The day after, a poll finds what no push has brought.
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/4", "/3", "/2"]));
    stage.daemon.pass(23 * HOUR).await;
    stage.until_state("broken").await;
    assert!(stage.knows("/4").await);
    assert!(stage.next_poll().await < stage.daemon.now() + 20 * HOUR, "its own rhythm");
    // The hub is asked anew within a day, and the next good push mends it.
    assert_eq!(stage.push(&callback, &["/5"]).await, 202);
    stage.until_state("healthy").await;
    stage.daemon.pass(DAY).await;
    assert_eq!(stage.asked(2).await["hub.mode"], "subscribe");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_silent_hub_is_found_out_though_a_sitemap_had_the_news_first() {
    let (stage, callback) = Stage::subscribed_with("sitemaps = [\"BASE/sitemap.xml\"]").await;
    let base = stage.origin.base();
    let listed = |paths: &[&str]| {
        let entries: Vec<_> = paths.iter().map(|path| (*path, "")).collect();
        Reply::xml(crate::support::daemon::sitemap(&base, &entries))
    };
    stage.origin.set("/sitemap.xml", listed(&["/1"]));
    stage.daemon.poll("/sitemap.xml").await;
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    stage.origin.set("/sitemap.xml", listed(&["/9", "/2", "/1"]));
    assert_eq!(stage.daemon.poll("/sitemap.xml").await.counts.new, 1);
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/9", "/2", "/1"]));
    assert_eq!(stage.daemon.poll("/feed").await.counts.new, 0);
    assert_eq!(stage.state().await, "broken");
    assert!(stage.next_poll().await < stage.daemon.now() + 20 * HOUR, "its own rhythm");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_hub_has_missed_nothing_that_only_other_rules_let_in() {
    let (stage, callback) =
        Stage::subscribed_with("sitemaps = []\nexclude = [\"*/x\", \"*/y\"]").await;
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/x", "/1"]));
    stage.daemon.poll("/feed").await;
    // The push leaves /x out, and is what is known of the feed from then on.
    assert_eq!(stage.push(&callback, &["/y", "/2"]).await, 202);
    stage.until_state("healthy").await;
    let all = ["/y", "/2", "/x", "/1"];
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &all));
    assert_eq!(stage.daemon.poll("/feed").await.counts.new, 0);
    assert_eq!(stage.state().await, "healthy");
    stage.daemon.reload(&config(&stage.origin, "")).await;
    stage.daemon.poll("/feed").await;
    assert!(stage.knows("/x").await && stage.knows("/y").await);
    assert_eq!(stage.state().await, "healthy");
    // Under the same rules it is held to its promise again.
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/3", "/2", "/1"]));
    assert_eq!(stage.daemon.poll("/feed").await.counts.new, 1);
    assert_eq!(stage.state().await, "broken");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_push_that_cannot_be_read_brings_the_poll_forward() {
    let (stage, callback) = Stage::subscribed().await;
    stage.daemon.settled().await;
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/2", "/1"]));
    let answer = push(&stage.daemon, &callback, "", "something has changed").await;
    assert_eq!(answer.status, 202);
    stage.daemon.polled("/feed", 2).await;
    assert!(stage.knows("/2").await);
    assert_eq!(stage.state().await, "unproven", "what it told of is not missed");
    // Once an hour is enough, however often it comes.
    for _ in 0..5 {
        assert_eq!(push(&stage.daemon, &callback, "", "<rss><channel>").await.status, 202);
    }
    stage
        .daemon
        .wait("the pushes", async || {
            stage.daemon.store.deliveries().await.unwrap().is_empty().then_some(())
        })
        .await;
    stage.daemon.settled().await;
    let id = stage.daemon.source("/feed").await.id;
    assert_eq!(stage.daemon.polls(id).await.len(), 2);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_source_is_read_by_one_at_a_time_be_it_polled_or_pushed() {
    let (stage, callback) = Stage::subscribed().await;
    stage.daemon.settled().await;
    let hold = Hold::new();
    let polled = feed(&stage.origin, &stage.hubs(), &["/2", "/1"]);
    stage.origin.set("/feed", polled.hang(&hold));
    stage.daemon.store.poll_source(stage.daemon.source("/feed").await.id).await.unwrap();
    stage.origin.wait_for("/feed", 2).await;
    assert_eq!(stage.push(&callback, &["/3"]).await, 202);
    assert!(!stage.knows("/3").await, "the poll has the source");
    hold.release(1);
    stage.until_read(1).await;
    assert!(stage.knows("/2").await && stage.knows("/3").await);
    // Neither has written over what the other listed.
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/3", "/2", "/1"]));
    let poll = stage.daemon.poll("/feed").await;
    assert_eq!((poll.counts.new, poll.counts.unchanged), (0, 3 + OLDER as u64));
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_push_to_a_paused_site_has_its_source_polled_when_it_goes_on() {
    let (stage, callback) = Stage::subscribed().await;
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/2", "/1"]));
    stage.daemon.poll("/feed").await;
    stage.daemon.store.pause_site("a".to_owned(), true).await.unwrap();
    assert_eq!(stage.push(&callback, &["/3"]).await, 202);
    stage
        .daemon
        .wait("the push", async || {
            stage.daemon.store.deliveries().await.unwrap().is_empty().then_some(())
        })
        .await;
    stage.daemon.settled().await;
    assert!(!stage.knows("/3").await, "what is paused is not polled");
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/3", "/2", "/1"]));
    stage.daemon.store.pause_site("a".to_owned(), false).await.unwrap();
    // A day before its next poll.
    stage.daemon.polled("/feed", 4).await;
    assert!(stage.knows("/3").await);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_push_that_was_answered_is_read_after_a_restart_and_not_for_ever() {
    let (stage, _) = Stage::subscribed().await;
    let Stage { world, daemon, origin, hub } = stage;
    let id = daemon.source("/feed").await.id;
    daemon.stop().await;
    let kept = feed_text(&origin.base(), &[], &["/2"]);
    let poisoned = feed_text(&origin.base(), &[], &["/3"]);
    let look = world.look();
    for (tries, body) in [(0, kept), (3, poisoned)] {
        let body = crate::support::engine::hex(body.as_bytes());
        let (part, of_part, bytes) = match &look {
            Look::File(_) => ("", String::new(), format!("x'{body}'")),
            Look::Server(_) => ("part, ", format!("{}, ", id.0 & 255), format!("'\\x{body}'")),
        };
        look.change(&format!(
            "INSERT INTO deliveries ({part}source_id, at, tries, trusted, bytes, body)
             VALUES ({of_part}{}, 0, {tries}, 1, 0, {bytes})",
            id.0
        ));
    }
    let daemon = world.start(&config(&origin, "")).await;
    let stage = Stage { world, daemon, origin, hub };
    stage.until_read(1).await;
    assert!(stage.knows("/2").await);
    // What cannot be read thrice is left to a poll.
    stage.daemon.polled("/feed", 3).await;
    assert!(!stage.knows("/3").await);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn the_way_of_a_push_is_timed() {
    let (stage, callback) = Stage::subscribed().await;
    stage.daemon.clock.advance(4 * MINUTE);
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_read(1).await;
    let api = stage.daemon.api;
    let whole = format!("GET http://{api}/metrics HTTP/1.1");
    let read = "sitemapd_hub_pushes_total{result=\"read\"} 1";
    let is_counted = async || {
        let told = send(api, &whole, "").await.body;
        told.contains(read).then_some(told)
    };
    let told = stage.daemon.wait("its count", is_counted).await;
    for line in [
        "sitemapd_hub_push_latency_seconds_sum{part=\"published-to-pushed\"} 300",
        "sitemapd_hub_push_latency_seconds_count{part=\"pushed-to-queued\"} 1",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_push_does_not_hide_why_the_feed_cannot_be_fetched() {
    let (stage, callback) = Stage::subscribed().await;
    stage.origin.set("/feed", Reply::status(404));
    assert_eq!(stage.daemon.poll("/feed").await.result, "not-found");
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_read(1).await;
    let pinged = get(&stage.daemon, &format!("/ping?sitemap={}", encoded(&stage.topic()))).await;
    let told = get(&stage.daemon, pinged.json()["status_url"].as_str().unwrap()).await.json();
    assert_eq!(told["fetch_error"], "HTTP error 404", "{told}");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn relative_links_of_a_push_are_resolved_where_the_feed_has_moved_to() {
    let (stage, callback) = Stage::subscribed().await;
    stage.origin.set("/feed", Reply::redirect(301, "/news/feed.xml"));
    stage.origin.set("/news/feed.xml", feed(&stage.origin, &stage.hubs(), &["/1"]));
    stage.daemon.poll("/feed").await;
    let base = stage.origin.base();
    let text = feed_text(&base, &stage.hubs(), &["/LINK"]).replace(&format!("{base}/LINK"), "two");
    assert_eq!(push(&stage.daemon, &callback, "", &text).await.status, 202);
    stage.until_read(1).await;
    assert!(stage.knows("/news/two").await && !stage.knows("/two").await);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn pushes_are_read_though_polls_of_other_sources_wait_for_their_origins() {
    // As many as are read at once.
    const SLOW: usize = 8;
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    hub.set("/hub", Reply::status(202));
    let (port, hub_port) = (origin.port(), hub.port());
    let base = move |name: &str| format!("http://{name}.test:{port}");
    let text = move |name: &str, path: &str| {
        let hub = format!("http://{name}.test:{hub_port}/hub");
        feed_text(&base(name), &[hub], &[path])
    };
    let (hold, hangs) = (Hold::new(), Arc::new(AtomicBool::new(false)));
    let (gate, is_hanging) = (hold.clone(), Arc::clone(&hangs));
    origin.route(move |seen| {
        let name = seen.header("host")?.split('.').next()?;
        let reply = (seen.path == "/feed").then(|| Reply::xml(text(name, "/1")))?;
        let is_slow = is_hanging.load(Ordering::SeqCst) && name != "quick";
        Some(if is_slow { reply.hang(&gate) } else { reply })
    });
    let names: Vec<_> = (0..SLOW).map(|n| format!("slow{n}")).chain(["quick".to_owned()]).collect();
    let head = format!(
        "[listen]\npublic = \"127.0.0.1:0\"\npublic_url = \"{REACHED}\"\n[poll]\nfirst = \"1h\"\n"
    );
    let sites = names.iter().map(|name| {
        let base = base(name);
        format!(
            "[[site]]\nname = \"{name}\"\nurl = \"{base}/\"\nsitemaps = []\nfeeds = [\"{base}/feed\"]\n"
        )
    });
    let world = World::with_names(&[&origin, &hub]);
    let daemon = world.start(&(head + &sites.collect::<String>())).await;
    let mut callbacks = HashMap::new();
    for nth in 1..=names.len() {
        let form = asked_of(&daemon, &hub, "/hub", nth).await;
        let (topic, callback) = (&form["hub.topic"], &form["hub.callback"]);
        assert_eq!(verify(&daemon, callback, "subscribe", topic, 864_000).await.status, 200);
        callbacks.insert(topic.clone(), callback.clone());
    }
    daemon.settled().await;
    hangs.store(true, Ordering::SeqCst);
    for name in &names[..SLOW] {
        let source = daemon.source(&format!("{}/feed", base(name))).await.id;
        daemon.store.poll_source(source).await.unwrap();
    }
    hold.arrived(SLOW).await;
    for name in &names {
        let callback = &callbacks[&format!("{}/feed", base(name))];
        assert_eq!(push(&daemon, callback, "", &text(name, "/2")).await.status, 202);
    }
    let is_known = async |name: &str| daemon.knows(&format!("{}/2", base(name))).await;
    daemon.wait("the push", async || is_known("quick").await.then_some(())).await;
    hold.release_all();
    for name in &names {
        daemon.wait(name, async || is_known(name).await.then_some(())).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn pushes_wait_while_the_disk_is_nearly_full() {
    let (stage, callback) = Stage::subscribed().await;
    let Stage { world, daemon, origin, hub } = stage;
    daemon.stop().await;
    let mut full = world.config(&config(&origin, ""));
    full.store.min_free_disk = u64::MAX;
    let daemon = world.start_with(full).await;
    let text = feed_text(&origin.base(), &[format!("{}/hub", hub.base())], &["/2"]);
    let waiting = || world.look().number("SELECT count(*) FROM deliveries WHERE tries = 0");
    for times in 1..4 {
        assert_eq!(push(&daemon, &callback, "", &text).await.status, 202);
        daemon.clock.advance(2 * MINUTE);
        // Long enough for one that is begun to be seen.
        for _ in 0..20 {
            assert_eq!(get(&daemon, "/openapi.json").await.status, 200);
        }
        assert_eq!(waiting(), times);
    }
    daemon.stop().await;
    let daemon = world.start(&config(&origin, "")).await;
    let is_known = async || daemon.knows(&format!("{}/2", origin.base())).await.then_some(());
    daemon.wait("the push", is_known).await;
    daemon.stop().await;
}
