//! robots.txt of the page's host is judged when leasing.

use std::sync::Arc;
use std::time::Duration;

use sitemapd::queue::LeaseRequest;
use sitemapd::store::RobotsRead;
use sitemapd::store::views::UrlState;

use crate::support::broken_off;
use crate::support::engine::Look;
use crate::support::queue_daemon::{Queue, ask, paths, site};

const HOST: &str = "http://a.test";

async fn with_paths(list: &[&str]) -> Queue {
    let extra = "obey_robots = true\nrobots_agent = \"examplebot\"";
    let queue = Queue::open(&site("a", "http://a.test/", extra)).await;
    queue.list_urls("a", list.iter().map(|path| format!("{HOST}{path}"))).await;
    queue
}

fn rules(text: &str) -> RobotsRead {
    RobotsRead::Rules { body: text.as_bytes().to_vec(), status: 200, crawl_delay: None }
}

async fn save(queue: &Queue, read: RobotsRead) {
    let until = queue.clock.now() + Duration::from_secs(86_400);
    queue.store.save_robots(queue.host(HOST), read, until).await.unwrap();
}

#[tokio::test]
async fn the_name_in_the_user_agent_is_judged_with_its_digits() {
    let daemon = "[daemon]\nuser_agent = \"web3bot/1.0 (+https://w.test/)\"\n";
    let queue =
        Queue::open(&(daemon.to_owned() + &site("a", "http://a.test/", "obey_robots = true")))
            .await;
    queue.list_urls("a", ["/private/1", "/public"].map(|path| format!("{HOST}{path}"))).await;
    save(
        &queue,
        rules("User-agent: web\nDisallow: /public\n\nUser-agent: web3bot\nDisallow: /private/"),
    )
    .await;
    assert_eq!(paths(&queue.lease(10).await), ["/public"]);
}

#[tokio::test]
async fn a_host_whose_robots_txt_is_unknown_is_not_leased_until_it_is_known() {
    let queue = with_paths(&["/1"]).await;
    let batch = queue.lease_as(ask(10)).await;
    assert!(batch.urls.is_empty());
    let again = batch.next_due_at.unwrap().duration_since(queue.clock.now());
    assert!(again.as_secs() >= 1, "not to be asked for over and over: {again}");
    save(&queue, rules("")).await;
    assert_eq!(queue.lease(10).await.len(), 1);
}

#[tokio::test]
async fn an_unknown_host_holds_up_no_other() {
    let queue = with_paths(&["/1"]).await;
    let hosts = (0..500).map(|n| format!("http://h{n}.test/1"));
    queue.list_urls("a", hosts).await;
    save(&queue, rules("")).await;
    let urls = queue.lease_as(LeaseRequest { per_host: 1, ..ask(10) }).await.urls;
    assert_eq!((urls.len(), &*urls[0].host), (1, HOST));
}

#[tokio::test]
async fn forbidden_urls_wait_and_are_judged_anew_by_the_next_version() {
    let queue = with_paths(&["/private/1", "/private/2", "/public"]).await;
    save(&queue, rules("User-agent: *\nDisallow: /private/")).await;
    assert_eq!(paths(&queue.lease(10).await), ["/public"]);
    assert_eq!(queue.view("http://a.test/private/1").await.state, UrlState::Forbidden);
    assert_eq!(queue.counts().await.forbidden, 2);

    save(&queue, rules("User-agent: *\nDisallow: /private/\n# a remark")).await;
    assert!(queue.lease(10).await.is_empty());
    save(&queue, rules("User-agent: *\nDisallow: /private/2")).await;
    assert_eq!(paths(&queue.lease(10).await), ["/private/1"]);
    assert_eq!(queue.counts().await.forbidden, 1);
}

#[tokio::test]
async fn robots_txt_is_judged_for_the_fetchers_token() {
    let queue = with_paths(&["/1", "/2"]).await;
    save(&queue, rules("User-agent: *\nDisallow:\n\nUser-agent: examplebot\nDisallow: /2")).await;
    assert_eq!(paths(&queue.lease(10).await), ["/1"]);
}

#[tokio::test]
async fn an_unreachable_robots_txt_without_a_good_copy_forbids_all() {
    let queue = with_paths(&["/1"]).await;
    save(&queue, RobotsRead::Unreachable { status: 503 }).await;
    assert!(queue.lease(10).await.is_empty());
    save(&queue, rules("")).await;
    assert_eq!(queue.lease(10).await.len(), 1);
    queue.list_urls("a", ["http://a.test/2".to_owned()]).await;
    save(&queue, RobotsRead::Unreachable { status: 503 }).await;
    assert_eq!(queue.lease(10).await.len(), 1, "the last good copy holds");
}

#[tokio::test]
async fn a_crawl_delay_holds_from_the_first_lease_on() {
    let queue = with_paths(&["/1", "/2"]).await;
    let start = queue.clock.now();
    let delay = Duration::from_secs(7);
    let body = b"User-agent: *\nCrawl-delay: 7".to_vec();
    save(&queue, RobotsRead::Rules { body, status: 200, crawl_delay: Some(delay) }).await;
    // It counts from the request for robots.txt itself.
    assert!(queue.lease(10).await.is_empty());
    queue.clock.advance(delay);
    let urls = queue.lease(10).await;
    assert_eq!(
        urls.iter().map(|leased| leased.not_before).collect::<Vec<_>>(),
        [start + delay, start + delay + delay]
    );
}

#[tokio::test]
async fn a_lease_says_what_robots_txt_says_of_use() {
    let queue = with_paths(&["/1", "/free/2"]).await;
    let text = "User-agent: *\nContent-Signal: search=yes, ai-train=no\n\
                Content-Usage: train-ai=n\nContent-Usage: /free/ train-ai=y\nAllow: /";
    save(&queue, rules(text)).await;
    let leased = queue.lease(10).await;
    assert_eq!(leased.len(), 2);
    for url in leased {
        assert_eq!(url.content_signal.as_deref(), Some("search=yes, ai-train=no"));
        let usage = if url.url.ends_with("/1") { "train-ai=n" } else { "train-ai=y" };
        assert_eq!(url.content_usage.as_deref(), Some(usage), "{}", url.url);
    }
}

#[tokio::test]
async fn what_a_new_version_frees_is_freed_although_the_daemon_stopped_at_once() {
    let queue = with_paths(&[]).await;
    queue.list_urls("a", (0..5_000).map(|n| format!("{HOST}/{n}"))).await;
    queue.list_urls("a", ["http://b.test/1".to_owned()]).await;
    let until = queue.clock.now() + Duration::from_secs(86_400);
    for host in [HOST, "http://b.test"] {
        let none = rules("User-agent: *\nDisallow: /");
        queue.store.save_robots(queue.host(host), none, until).await.unwrap();
    }
    while queue.counts().await.forbidden < 5_001 {
        assert!(queue.lease(10).await.is_empty());
    }
    {
        let saving = std::pin::pin!(queue.store.save_robots(queue.host(HOST), rules(""), until));
        let look = queue.look();
        let version = "SELECT sum(version) FROM robots";
        broken_off(saving, || look.number(version) == 3).await;
    }
    let queue = queue.reopen(Duration::from_secs(1)).await;
    while queue.store.maintain().await.unwrap() {}
    assert_eq!(queue.counts().await.forbidden, 1, "that of the other host");
    assert_eq!(queue.view("http://b.test/1").await.state, UrlState::Forbidden);
    assert_eq!(queue.counts().await.due, 5_000);
}

#[tokio::test]
async fn what_was_held_back_for_one_token_is_judged_anew_for_another() {
    let mut queue = with_paths(&["/1", "/2"]).await;
    let text = "User-agent: examplebot\nDisallow: /1\n\nUser-agent: otherbot\nDisallow: /3\n";
    save(&queue, rules(text)).await;
    assert_eq!(paths(&queue.lease(10).await), ["/2"]);
    let judged = |queue: &mut Queue, agent: Option<&str>| {
        let site = Arc::make_mut(queue.config.sites.get_mut("a").unwrap());
        site.obey_robots = agent.is_some();
        agent.unwrap_or_default().clone_into(&mut site.robots_agent);
    };
    judged(&mut queue, Some("otherbot"));
    let touched = ["a".to_owned()].into();
    queue.store.reconfigure(queue.config.clone(), touched, || ()).await.unwrap();
    while queue.store.maintain().await.unwrap() {}
    assert_eq!(paths(&queue.lease(10).await), ["/1"]);
    queue.list_urls("a", ["http://a.test/3".to_owned()]).await;
    assert!(queue.lease(10).await.is_empty());
    // Edited while the daemon was down.
    judged(&mut queue, None);
    let queue = queue.reopen(Duration::from_secs(1)).await;
    while queue.store.maintain().await.unwrap() {}
    assert_eq!(paths(&queue.lease(10).await), ["/3"]);
}

#[tokio::test]
async fn a_reload_whose_commit_fails_leaves_robots_txt_in_force() {
    let extra = "obey_robots = true\nrobots_agent = \"examplebot\"";
    let stays = site("b", "http://b.test/", "");
    let queue = Queue::open(&(site("a", "http://a.test/", extra) + &stays)).await;
    let Look::File(_) = queue.look() else { return };
    queue.list_urls("a", ["/private", "/public"].map(|path| format!("{HOST}{path}"))).await;
    save(&queue, rules("User-agent: *\nDisallow: /private")).await;
    // What it checks is checked by the commit.
    queue.look().change(
        "CREATE TABLE refused (site INTEGER REFERENCES sites (id) DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER refuse AFTER UPDATE OF state ON sites
             BEGIN INSERT INTO refused VALUES (-1); END;",
    );
    queue.reload(&stays).await.unwrap_err();
    queue.look().change("DROP TRIGGER refuse; DROP TABLE refused");
    assert_eq!(paths(&queue.lease(10).await), ["/public"]);
    assert_eq!(queue.view("http://a.test/private").await.state, UrlState::Forbidden);
    queue.reload(&stays).await.unwrap();
    assert!(queue.lease(10).await.is_empty());
}

/// When the robots.txt of the host is polled, and why then.
fn polled(queue: &Queue) -> (i64, String) {
    let of =
        |what: &str| format!("SELECT {what} FROM sources WHERE role = 0 AND url LIKE '{HOST}/%'");
    let why = queue.look().text(&of("why")).unwrap_or_default();
    (queue.look().number(&of("coalesce(next_poll_at, 0)")), why)
}

#[tokio::test]
async fn a_robots_txt_that_nobody_has_asked_for_in_two_days_judges_no_more_and_is_due() {
    let queue = with_paths(&["/1"]).await;
    save(&queue, rules("User-agent: *\nDisallow: /private/")).await;
    assert_eq!(queue.lease(10).await.len(), 1);
    queue.look().change("UPDATE sources SET next_poll_at = NULL");
    queue.clock.advance(Duration::from_secs(47 * 3_600));
    queue.list_urls("a", ["http://a.test/2".to_owned()]).await;
    let leased = queue.lease(10).await;
    assert!(paths(&leased).contains(&"/2"), "its poll may be a little late: {leased:?}");
    assert_eq!(polled(&queue).0, 0);

    queue.clock.advance(Duration::from_secs(2 * 3_600));
    queue.list_urls("a", ["http://a.test/3".to_owned()]).await;
    assert!(queue.lease(10).await.is_empty());
    let now = queue.clock.now().as_millisecond();
    assert_eq!(polled(&queue), (now, "URLs of its host wait for it".to_owned()));
    assert_eq!(queue.view("http://a.test/3").await.state, UrlState::Queued);
    // Once for all who wait.
    queue.clock.advance(Duration::from_secs(120));
    assert!(queue.lease(10).await.is_empty());
    assert_eq!(polled(&queue).0, now);
    // It is as it was, and holds from now on.
    save(&queue, RobotsRead::Same).await;
    let leased = queue.lease(10).await;
    assert!(paths(&leased).contains(&"/3"), "{leased:?}");
}

#[tokio::test]
async fn the_last_good_robots_txt_holds_for_as_long_as_its_server_does_not_answer() {
    for status in [0, 429, 503] {
        let queue = with_paths(&["/1", "/private/1"]).await;
        save(&queue, rules("User-agent: *\nDisallow: /private/")).await;
        save(&queue, RobotsRead::Unreachable { status }).await;
        queue.clock.advance(Duration::from_secs(40 * 86_400));
        assert_eq!(paths(&queue.lease(10).await), ["/1"], "{status}");
        // Also after a restart.
        queue.list_urls("a", ["http://a.test/2".to_owned()]).await;
        let queue = queue.reopen(Duration::from_secs(86_400)).await;
        let leased = queue.lease(10).await;
        assert!(paths(&leased).contains(&"/2"), "{status}: {leased:?}");
    }
}

/// How far the URLs that are leased next lie apart, in seconds.
async fn gap(queue: &Queue) -> i64 {
    queue.clock.advance(Duration::from_secs(300));
    let urls = queue.lease(2).await;
    urls[1].not_before.duration_since(urls[0].not_before).as_secs()
}

#[tokio::test]
async fn the_crawl_delay_of_the_fetchers_own_group_is_kept_also_when_their_token_changes() {
    let paths: Vec<_> = (0..20).map(|n| format!("/{n}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let mut queue = with_paths(&paths).await;
    let text = "User-agent: examplebot\nCrawl-delay: 9\n\nUser-agent: otherbot\nCrawl-delay: 20\n\n\
                User-agent: strangebot\nCrawl-delay: 90\n";
    save(&queue, rules(text)).await;
    assert_eq!(gap(&queue).await, 9);
    "otherbot"
        .clone_into(&mut Arc::make_mut(queue.config.sites.get_mut("a").unwrap()).robots_agent);
    queue.store.reconfigure(queue.config.clone(), ["a".to_owned()].into(), || ()).await.unwrap();
    queue.maintain().await;
    assert_eq!(gap(&queue).await, 20);
}

#[tokio::test]
async fn of_the_crawl_delays_for_polls_and_for_fetchers_the_longest_is_kept() {
    let agent = |name: &str, token: &str| {
        let extra = format!("obey_robots = true\nrobots_agent = \"{token}\"");
        site(name, &format!("http://{name}.test/"), &extra)
    };
    let body = |first: u8, second: u8| {
        format!(
            "User-agent: onebot\nCrawl-delay: {first}\n\nUser-agent: twobot\nCrawl-delay: {second}\n"
        )
    };
    let queue = Queue::open(&(agent("a", "onebot") + &agent("b", "twobot"))).await;
    queue.list_urls("a", (0..40).map(|n| format!("{HOST}/{n}"))).await;
    queue.list_urls("b", ["http://a.test/of-b".to_owned()]).await;
    for (own, first, second) in [(30, 9, 5), (2, 30, 5), (2, 5, 30), (2, 30, 30)] {
        let crawl_delay = Some(Duration::from_secs(own));
        let body = body(first, second).into_bytes();
        save(&queue, RobotsRead::Rules { body, status: 200, crawl_delay }).await;
        assert_eq!(gap(&queue).await, 30, "{own} {first} {second}");
    }
}

#[tokio::test]
async fn the_crawl_delay_of_a_token_is_kept_where_its_site_has_urls_and_nowhere_else() {
    let agent = |name: &str, home: &str, token: &str| {
        site(name, home, &format!("obey_robots = true\nrobots_agent = \"{token}\""))
    };
    let sites =
        agent("a", "http://a.test/", "examplebot") + &agent("b", "http://b.test/", "slowbot");
    let queue = Queue::open(&sites).await;
    queue.list_urls("a", (0..20).map(|n| format!("{HOST}/{n}"))).await;
    save(&queue, rules("User-agent: slowbot\nCrawl-delay: 30\n")).await;
    assert_eq!(gap(&queue).await, 0);
    // From when it has, though its robots.txt was read before.
    queue.list_urls("b", ["http://a.test/of-b".to_owned()]).await;
    assert_eq!(gap(&queue).await, 30);
}

#[tokio::test]
async fn a_call_judges_as_many_urls_as_there_is_time_for_and_the_next_goes_on() {
    let list: Vec<String> = (0..40).map(|n| format!("/{n:0>2000}")).collect();
    let queue = with_paths(&list.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let lines: Vec<String> = (0..30_000).map(|n| format!("Disallow: /x{n}")).collect();
    save(&queue, rules(&format!("User-agent: *\n{}", lines.join("\n")))).await;
    let all = LeaseRequest { per_host: 1_000, ..ask(1_000) };
    let (mut calls, mut seen) = (0, Vec::new());
    while seen.len() < list.len() {
        let batch = queue.lease_as(all.clone()).await;
        assert!(!batch.urls.is_empty(), "{} after {calls} calls", seen.len());
        // What is left need not be waited for.
        let is_last = seen.len() + batch.urls.len() == list.len();
        assert!(is_last || batch.next_due_at.is_some_and(|at| at <= queue.clock.now()));
        seen.extend(batch.urls.into_iter().map(|leased| leased.url));
        calls += 1;
    }
    assert!((2..=20).contains(&calls), "{calls}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), list.len());
}

#[tokio::test]
async fn a_url_says_what_keeps_it_from_being_leased_before_its_turn_has_come() {
    let queue = with_paths(&["/1", "/x/2"]).await;
    let crawl = || "default".to_owned();
    let url = format!("{HOST}/x/2");
    let why = async || {
        let view = queue.view(&url).await;
        assert_eq!(view.state, UrlState::Queued, "{}", view.why);
        let listed = queue.store.urls(10, None).await.unwrap().items;
        assert!(listed.iter().any(|one| one.url == url && one.why == view.why));
        view.why
    };
    let says = async |expected: &str| {
        let why = why().await;
        let start = format!("not handed out: {expected}");
        assert!(why.starts_with(&start) && why.contains("; due now: it is new"), "{why}");
        assert!(queue.lease(10).await.iter().all(|leased| leased.url.as_str() != url));
    };
    let unread = "robots.txt of its host has not been read";
    says(unread).await;
    save(&queue, RobotsRead::Unreachable { status: 503 }).await;
    says("robots.txt of its host cannot be reached").await;
    for (text, expected) in [("User-agent: *\nDisallow: /x/", true), ("", false)] {
        save(&queue, rules(text)).await;
        assert_eq!(why().await.starts_with("not handed out: robots.txt forbids it;"), expected);
    }
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    says("its site is paused").await;
    queue.store.pause_crawl(crawl(), true).await.unwrap();
    says("its crawl is paused").await;
    for (pattern, is_prefix) in [("http://a.test/y", true), ("http://a.test/x", false)] {
        queue.store.block(crawl(), pattern.to_owned(), is_prefix).await.unwrap();
        says("its crawl is paused").await;
    }
    queue.store.block(crawl(), "http://a.test/x".to_owned(), true).await.unwrap();
    let block = "an operator's block on all that begins with http://a.test/x holds it until lifted";
    says(block).await;
    queue.store.unblock(crawl(), "http://a.test/x".to_owned(), true).await.unwrap();
    queue.store.pause_crawl(crawl(), false).await.unwrap();
    queue.store.pause_site("a".to_owned(), false).await.unwrap();
    let pause = Duration::from_secs(60);
    queue.store.pause_host(HOST.to_owned(), pause, "HTTP 429").await.unwrap();
    says("its host is left alone (HTTP 429), which ends in 60 s").await;
    queue.clock.advance(3 * Duration::from_secs(86_400));
    assert!(why().await.contains(unread), "{}", why().await);
    save(&queue, rules("")).await;
    assert!(why().await.starts_with("due for 3 d: it is new"), "{}", why().await);
    assert_eq!(queue.lease(10).await.len(), 2);
}

#[tokio::test]
async fn a_site_that_is_polled_again_has_the_robots_txt_of_its_home_again() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "");
    let queue = Queue::open(&text).await;
    let named = "http://a.test/of-b.xml".parse().unwrap();
    queue.store.submit_source("b".to_owned(), named).await.unwrap();
    let polls_for = || {
        let of_robots = "SELECT n.name FROM sources s JOIN sites n ON n.id = s.site_id
                         WHERE s.url = 'http://a.test/robots.txt' AND s.state = 0";
        queue.look().text(of_robots)
    };
    assert_eq!(polls_for().as_deref(), Some("a"));
    for _ in 0..2 {
        queue.store.pause_site("a".to_owned(), true).await.unwrap();
        assert_eq!(polls_for().as_deref(), Some("b"));
        queue.store.pause_site("a".to_owned(), false).await.unwrap();
        assert_eq!(polls_for().as_deref(), Some("a"));
    }
}
