//! Hosts take turns; filters, caps and pauses take nobody else's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{Outcome, Priority};
use sitemapd::queue::{LeaseRequest, Leased};
use sitemapd::store::{Effect, RobotsRead};

use crate::support::queue_daemon::{Queue, ask, entry, paths, site};

fn by_host(urls: &[Leased]) -> HashMap<&str, usize> {
    let mut hosts = HashMap::new();
    for leased in urls {
        *hosts.entry(&*leased.host).or_default() += 1;
    }
    hosts
}

#[tokio::test]
async fn a_host_with_a_hundred_thousand_urls_never_starves_one_with_ten() {
    let queue = Queue::simple().await;
    let large = (0..100_000).map(|n| entry(format!("http://large.test/{n}")).priority(1.0));
    queue.list("a", &large.collect::<Vec<_>>()).await;
    queue.list_urls("a", (0..10).map(|n| format!("http://small.test/{n}"))).await;
    let request = LeaseRequest { per_host: 10, ..ask(20) };
    let urls = queue.lease_as(request.clone()).await.urls;
    assert_eq!(
        by_host(&urls),
        HashMap::from([("http://large.test", 10), ("http://small.test", 10)])
    );
    // Alone, the large one gets all there is.
    assert_eq!(by_host(&queue.lease_as(request).await.urls)["http://large.test"], 20);
}

#[tokio::test]
async fn every_one_of_many_small_hosts_is_served_within_one_rotation() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..5_000).map(|n| format!("http://large.test/{n}"))).await;
    let small = (0..100).flat_map(|host| (0..10).map(move |n| format!("http://h{host}.test/{n}")));
    queue.list_urls("a", small).await;
    let mut hosts = HashMap::<Arc<str>, usize>::new();
    for _ in 0..11 {
        for leased in queue.lease_as(LeaseRequest { per_host: 1, ..ask(10) }).await.urls {
            *hosts.entry(leased.host).or_default() += 1;
        }
    }
    assert_eq!(hosts.len(), 101, "110 URLs of 101 hosts");
    assert!(hosts.values().all(|&urls| urls <= 2), "{hosts:?}");
}

#[tokio::test]
async fn turns_are_shared_by_weight() {
    for (heavy, light, share) in
        [("3.0", "1.0", 145..=155), ("1000.0", "100.0", 178..=186), ("0.01", "0.001", 178..=186)]
    {
        let of = |name, weight| {
            site(name, &format!("http://{name}.test/"), &format!("weight = {weight}"))
        };
        let queue = Queue::open(&(of("a", heavy) + &of("b", light))).await;
        queue.list_urls("a", (0..500).map(|n| format!("http://a.test/{n}"))).await;
        queue.list_urls("b", (0..500).map(|n| format!("http://b.test/{n}"))).await;
        let mut hosts = HashMap::<Arc<str>, usize>::new();
        for _ in 0..200 {
            let urls = queue.lease_as(LeaseRequest { per_host: 1, ..ask(1) }).await.urls;
            *hosts.entry(urls[0].host.clone()).or_default() += 1;
        }
        assert!(share.contains(&hosts["http://a.test"]), "{heavy} to {light}: {hosts:?}");
    }
}

#[tokio::test]
async fn no_lease_holds_more_of_a_host_than_per_host_while_others_wait() {
    let queue = Queue::simple().await;
    for host in 0..5 {
        queue.list_urls("a", (0..50).map(|n| format!("http://h{host}.test/{n}"))).await;
    }
    let urls = queue.lease_as(LeaseRequest { per_host: 4, ..ask(20) }).await.urls;
    assert_eq!(urls.len(), 20);
    assert!(by_host(&urls).values().all(|&count| count == 4), "{:?}", by_host(&urls));
}

#[tokio::test]
async fn a_host_with_a_delay_gives_no_more_than_per_host_in_one_call() {
    let queue = Queue::open(&site("a", "http://a.test/", "host_delay = \"1s\"")).await;
    queue.list_urls("a", (0..50).map(|n| format!("http://a.test/{n}"))).await;
    let urls = queue.lease_as(LeaseRequest { per_host: 7, ..ask(50) }).await.urls;
    assert_eq!(urls.len(), 7);
}

/// Two sites on one host, one on another; thousands of `a` come first.
async fn shared_host() -> Queue {
    let text = site("a", "http://shared.test/a/", "")
        + &site("b", "http://shared.test/b/", "")
        + &site("c", "http://c.test/", "");
    let queue = Queue::open(&text).await;
    let first = (0..5_000).map(|n| entry(format!("http://shared.test/a/{n}")).priority(0.9));
    queue.list("a", &first.collect::<Vec<_>>()).await;
    queue.list_urls("b", (0..3).map(|n| format!("http://shared.test/b/{n}"))).await;
    queue.list_urls("c", (0..3).map(|n| format!("http://c.test/{n}"))).await;
    queue
}

#[tokio::test]
async fn a_lease_for_some_sites_gets_only_those_behind_thousands_of_others() {
    let queue = shared_host().await;
    let only = |name: &str| LeaseRequest { sites: vec![name.to_owned()], ..ask(100) };
    let urls = queue.lease_as(only("b")).await.urls;
    assert_eq!(paths(&urls), ["/b/0", "/b/1", "/b/2"]);
    assert_eq!(queue.lease_as(only("c")).await.urls.len(), 3);
    assert!(queue.lease_as(only("b")).await.urls.is_empty());
}

#[tokio::test]
async fn a_lease_for_some_sites_that_finds_nothing_delays_nobody_else() {
    let queue = shared_host().await;
    let only_b = LeaseRequest { sites: vec!["b".to_owned()], ..ask(100) };
    queue.lease_as(only_b.clone()).await;
    assert!(queue.lease_as(only_b).await.urls.is_empty());
    let urls = queue.lease(10).await;
    assert_eq!(urls.len(), 10, "{urls:?}");
}

#[tokio::test]
async fn a_lease_for_an_unknown_site_says_so() {
    let queue = Queue::simple().await;
    let request = LeaseRequest { sites: vec!["nope".to_owned()], ..ask(1) };
    let error = queue.store.lease(request).await.unwrap_err();
    assert!(error.to_string().contains("nope"), "{error}");
}

#[tokio::test]
async fn a_lease_for_a_site_of_another_crawl_says_so() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "crawl = \"news\"");
    let queue = Queue::open(&text).await;
    let request = LeaseRequest { sites: vec!["b".to_owned()], ..ask(1) };
    let error = queue.store.lease(request.clone()).await.unwrap_err();
    assert!(error.to_string().contains("another crawl"), "{error}");
    let request = LeaseRequest { crawl: "news".to_owned(), ..request };
    assert!(queue.lease_as(request).await.urls.is_empty());
}

#[tokio::test]
async fn what_is_due_next_of_some_sites_is_not_what_others_have_due_now() {
    let text = site("a", "http://a.test/", "")
        + &site("b", "http://b.test/", "host_delay = \"2s\"")
        + &site("c", "http://c.test/", "");
    let queue = Queue::open(&text).await;
    for host in ["a", "b"] {
        let urls = (0..4).map(|n| format!("http://{host}.test/{n}"));
        queue.list_urls(host, urls).await;
    }
    let only = |name: &str, max| LeaseRequest { sites: vec![name.to_owned()], ..ask(max) };
    assert_eq!(queue.lease_as(only("c", 9)).await.next_due_at, None);
    // A host waits for its clock.
    let batch = queue.lease_as(LeaseRequest { per_host: 1, ..only("b", 9) }).await;
    assert_eq!(batch.urls.len(), 1);
    assert_eq!(batch.next_due_at, Some(queue.clock.now() + Duration::from_secs(2)));
    // There may be more of what was asked for.
    assert_eq!(queue.lease_as(only("a", 2)).await.next_due_at, Some(queue.clock.now()));
    // Others of a host that is shared have something due.
    let queue = shared_host().await;
    assert_eq!(queue.lease_as(only("b", 9)).await.urls.len(), 3);
    let in_vain = queue.lease_as(only("b", 9)).await.next_due_at;
    assert_eq!(in_vain, Some(queue.clock.now() + Duration::from_secs(1)));
}

#[tokio::test]
async fn a_paused_site_gives_nothing_and_comes_back_when_resumed() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..3).map(|n| format!("http://a.test/{n}"))).await;
    assert_eq!(queue.lease(1).await.len(), 1);
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    let batch = queue.lease_as(ask(10)).await;
    assert!(batch.urls.is_empty());
    assert_eq!(batch.next_due_at, None, "nothing comes due by time alone");
    queue.store.pause_site("a".to_owned(), false).await.unwrap();
    assert_eq!(queue.lease(10).await.len(), 2);
}

#[tokio::test]
async fn what_no_lease_gets_is_neither_due_nor_next_in_line() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "");
    for is_paused in [true, false] {
        let mut queue = Queue::open(&text).await;
        queue.list_urls("b", (0..3).map(|n| format!("http://b.test/{n}"))).await;
        queue.clock.advance(Duration::from_secs(3_600));
        queue.list_urls("a", (0..2).map(|n| format!("http://a.test/{n}"))).await;
        let since = queue.clock.now();
        if is_paused {
            queue.store.pause_site("b".to_owned(), true).await.unwrap();
        } else {
            // It has left the config, and is not forgotten yet.
            queue.config.sites.remove("b");
            queue = queue.reopen(Duration::ZERO).await;
        }
        let counts = queue.counts().await;
        assert_eq!((counts.queued, counts.due), (5, 2));
        assert_eq!((counts.oldest_due_at, counts.next_due_at), (Some(since), Some(since)));
        let next = queue.store.peek("default".to_owned(), 10).await.unwrap();
        let next: Vec<_> = next.iter().map(|peeked| peeked.url.as_str()).collect();
        assert_eq!(next, ["http://a.test/0", "http://a.test/1"]);
        for leased in queue.lease(10).await {
            queue.settle(leased.token, Outcome::Unchanged).await;
        }
        let counts = queue.counts().await;
        assert_eq!((counts.queued, counts.due, counts.oldest_due_at), (5, 0, None));
        assert!(counts.next_due_at.unwrap() > since);
    }
}

#[tokio::test]
async fn a_paused_site_with_thousands_of_urls_hides_no_other_site_of_its_host() {
    let queue = shared_host().await;
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    let mut urls = queue.lease(100).await;
    urls.sort_by(|a, b| a.url.cmp(&b.url));
    assert_eq!(paths(&urls), ["/0", "/1", "/2", "/b/0", "/b/1", "/b/2"]);
    queue.store.pause_site("a".to_owned(), false).await.unwrap();
    assert_eq!(queue.lease(100).await.len(), 100);
}

#[tokio::test]
async fn what_comes_to_stand_among_thousands_of_a_paused_site_is_not_stepped_over_with_them() {
    let text = site("a", "http://shared.test/a/", "") + &site("b", "http://shared.test/b/", "");
    let queue = Queue::open(&text).await;
    let rows = queue.list_urls("b", (0..4).map(|n| format!("http://shared.test/b/{n}"))).await;
    let first = (0..1_000).map(|n| entry(format!("http://shared.test/a/{n}")).priority(0.9));
    queue.list("a", &first.collect::<Vec<_>>()).await;
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    let one = LeaseRequest { per_host: 1, ..ask(1) };
    let lease = async || queue.lease_as(one.clone()).await.urls;
    assert_eq!(paths(&lease().await), ["/b/0"]);
    for moved in [3, 2] {
        // Now before all of the paused site, in the band of theirs.
        let hints = EntryHints { priority: Priority::from_f64(0.9), changefreq: None };
        let moves = Effect::Hints { url: rows[moved], lastmod: None, hints };
        queue.store.apply(queue.origin("b"), vec![moves]).await.unwrap();
        assert_eq!(paths(&lease().await), [format!("/b/{moved}")]);
    }
    assert_eq!(paths(&lease().await), ["/b/1"]);
    assert!(lease().await.is_empty());
    let later = queue.list("b", &[entry("http://shared.test/b/9").priority(0.9)]).await;
    assert_eq!(lease().await.iter().map(|leased| leased.id).collect::<Vec<_>>(), later);
    queue.store.pause_site("a".to_owned(), false).await.unwrap();
    assert_eq!(queue.lease(2_000).await.len(), 1_000);
}

#[tokio::test]
async fn a_site_stays_paused_over_a_restart_and_loses_nothing() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..3).map(|n| format!("http://a.test/{n}"))).await;
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    assert!(queue.lease(10).await.is_empty());
    let queue = queue.reopen(Duration::from_secs(1)).await;
    assert!(queue.lease(10).await.is_empty());
    queue.store.pause_site("a".to_owned(), false).await.unwrap();
    let queue = queue.reopen(Duration::from_secs(1)).await;
    assert_eq!(queue.lease(10).await.len(), 3);
}

#[tokio::test]
async fn a_site_that_left_while_it_was_paused_is_paused_when_it_comes_back() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..3).map(|n| format!("http://a.test/{n}"))).await;
    let (a, b) = (site("a", "http://a.test/", ""), site("b", "http://b.test/", ""));
    queue.store.pause_site("a".to_owned(), true).await.unwrap();
    queue.reload(&b).await.unwrap();
    queue.reload(&format!("{a}{b}")).await.unwrap();
    assert!(queue.lease(10).await.is_empty(), "nobody has resumed it");
    queue.store.pause_site("a".to_owned(), false).await.unwrap();
    assert_eq!(queue.lease(10).await.len(), 3);
    queue.reload(&b).await.unwrap();
    queue.reload(&format!("{a}{b}")).await.unwrap();
    let sources = queue.look().number("SELECT count(*) FROM sources WHERE state = 1");
    assert_eq!(sources, 0, "it was resumed before it left");
}

#[tokio::test]
async fn a_paused_crawl_gives_nothing_and_comes_back_when_resumed() {
    let queue = Queue::simple().await;
    queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
    queue.store.pause_crawl("default".to_owned(), true).await.unwrap();
    let batch = queue.lease_as(ask(10)).await;
    assert!(batch.urls.is_empty());
    assert_eq!(batch.next_due_at, None, "nothing may be leased until it is resumed");
    queue.store.pause_crawl("default".to_owned(), false).await.unwrap();
    assert_eq!(queue.lease(10).await.len(), 1);
}

#[tokio::test]
async fn crawls_keep_their_own_queues_of_the_same_url() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://a.test/", "crawl = \"other\"");
    let queue = Queue::open(&text).await;
    queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
    queue.list_urls("b", ["http://a.test/1".to_owned()]).await;
    let other = LeaseRequest { crawl: "other".to_owned(), ..ask(10) };
    let urls = queue.lease_as(other).await.urls;
    assert_eq!((urls.len(), &*urls[0].crawl), (1, "other"));
    assert_eq!(queue.lease(10).await.len(), 1);
}

#[tokio::test]
async fn the_numbers_of_the_queue_stay_sane_while_a_long_list_is_leased_in_parts() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..3_000).map(|n| format!("http://a.test/{n}"))).await;
    for _ in 0..3 {
        assert_eq!(queue.lease(100).await.len(), 100);
    }
    let counts = queue.counts().await;
    assert_eq!((counts.queued, counts.due, counts.leased, counts.hosts), (2_700, 2_700, 300, 1));
    let due = counts.next_due_at.unwrap();
    let distance = queue.clock.now().duration_since(due).as_secs();
    assert!((0..=60).contains(&distance), "next due at {due}");
}

#[tokio::test]
async fn of_many_who_ask_for_sites_of_their_own_on_one_host_each_gets_on() {
    let names: Vec<_> = (0..10).map(|n| format!("s{n}")).collect();
    let of = |name: &String| site(name, &format!("http://{name}.test/"), "");
    let text = site("a", "http://a.test/", "") + &names.iter().map(of).collect::<String>();
    let queue = Queue::open(&text).await;
    let many = (0..30_000).map(|n| entry(format!("http://shared.test/{n}")).priority(0.9));
    queue.list("a", &many.collect::<Vec<_>>()).await;
    for name in &names {
        let low = entry(format!("http://shared.test/{name}")).priority(0.1);
        queue.list(name, &[low]).await;
    }
    let mut leased = HashSet::new();
    for _ in 0..20 {
        for name in &names {
            let request = LeaseRequest { sites: vec![name.clone()], ..ask(10) };
            leased.extend(queue.lease_as(request).await.urls.into_iter().map(|url| url.url));
        }
        queue.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(leased.len(), names.len(), "{leased:?}");
}

#[tokio::test]
async fn a_lease_for_some_sites_steps_over_a_bounded_number_of_others() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "");
    let queue = Queue::open(&text).await;
    let many = (0..30_000).map(|n| entry(format!("http://shared.test/{n}")).priority(0.9));
    queue.list("a", &many.collect::<Vec<_>>()).await;
    let low = |path: &str| vec![entry(format!("http://shared.test/{path}")).priority(0.1)];
    queue.list("b", &low("last")).await;
    let of_b = || LeaseRequest { sites: vec!["b".to_owned()], ..ask(10) };
    // Not at once, but each call goes on from where the last one stopped.
    let mut calls = 1;
    let leased = loop {
        let urls = queue.lease_as(of_b()).await.urls;
        if !urls.is_empty() {
            break urls;
        }
        calls += 1;
        assert!(calls <= 5, "8,192 of 30,000 in a call");
    };
    assert_eq!(paths(&leased), ["/last"]);
    assert!(calls > 1, "all of them in one call");
    // What comes before and behind where it stands is found, too.
    let high = entry("http://shared.test/first").priority(1.0);
    queue.list("b", &[high]).await;
    queue.list("b", &low("late")).await;
    let mut found = Vec::new();
    for _ in 0..20 {
        found.extend(queue.lease_as(of_b()).await.urls);
    }
    let mut found = paths(&found);
    found.sort_unstable();
    assert_eq!(found, ["/first", "/late"]);
    // Once it is known that there is nothing, what is queued then is had at once.
    queue.list("b", &[entry("http://shared.test/now").priority(1.0)]).await;
    assert_eq!(paths(&queue.lease_as(of_b()).await.urls), ["/now"]);
    // The others wait for nobody.
    assert_eq!(queue.lease(10).await.len(), 10);
}

#[tokio::test]
async fn what_comes_due_before_where_a_walk_for_some_sites_stands_is_found_in_time() {
    let text = site("a", "http://a.test/", "") + &site("b", "http://b.test/", "");
    let queue = Queue::open(&text).await;
    queue.list("b", &[entry("http://shared.test/again").priority(1.0)]).await;
    let of_b = || LeaseRequest { sites: vec!["b".to_owned()], ..ask(10) };
    let leased = queue.lease_as(of_b()).await.urls;
    queue.release(leased[0].token, Duration::from_secs(60)).await;
    let many = (0..60_000).map(|n| entry(format!("http://shared.test/{n}")).priority(0.9));
    queue.list("a", &many.collect::<Vec<_>>()).await;
    // Deep among the others before it comes due.
    for _ in 0..2 {
        assert!(queue.lease_as(of_b()).await.urls.is_empty());
    }
    queue.clock.advance(Duration::from_secs(61));
    assert_eq!(paths(&queue.lease_as(of_b()).await.urls), ["/again"]);
}

#[tokio::test]
async fn hosts_full_of_others_urls_keep_no_other_host_from_a_lease_for_some_sites() {
    let text = ["a", "b", "c"].map(|name| site(name, &format!("http://{name}.test/"), "")).concat();
    let queue = Queue::open(&text).await;
    for host in ["one", "two"] {
        let many = (0..40_000).map(|n| entry(format!("http://{host}.test/{n}")).priority(0.9));
        queue.list("a", &many.collect::<Vec<_>>()).await;
        queue.list("b", &[entry(format!("http://{host}.test/b")).priority(0.1)]).await;
    }
    let of_b = || LeaseRequest { sites: vec!["b".to_owned()], ..ask(10) };
    assert!(queue.lease_as(of_b()).await.urls.is_empty(), "the first call has found them");
    queue.list("b", &[entry("http://z.test/b")]).await;
    let mut found = Vec::new();
    for _ in 0..2 {
        found.extend(queue.lease_as(of_b()).await.urls);
        // In step with somebody else.
        let of_c = LeaseRequest { sites: vec!["c".to_owned()], ..ask(10) };
        assert!(queue.lease_as(of_c).await.urls.is_empty());
    }
    assert_eq!(paths(&found), ["/b"]);
    assert_eq!(&*found[0].host, "http://z.test");
    // Both of them are walked, by one who comes rarely, too.
    let mut calls = 0;
    while found.len() < 3 {
        queue.clock.advance(Duration::from_secs(11));
        found.extend(queue.lease_as(of_b()).await.urls);
        calls += 1;
        assert!(calls <= 16, "{:?}", paths(&found));
    }
}

#[tokio::test]
async fn a_host_of_which_nothing_is_left_is_due_at_no_time_also_by_value() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..3).map(|n| format!("http://a.test/{n}"))).await;
    let mut leased = Vec::new();
    for _ in 0..4 {
        leased = queue.lease(10).await;
        assert_eq!(leased.len(), 3);
        for leased in &leased {
            queue.settle(leased.token, Outcome::Unchanged).await;
        }
        queue.clock.advance(Duration::from_secs(181 * 86_400));
    }
    let batch = queue.lease_as(LeaseRequest { ttl: Duration::from_secs(86_400), ..ask(10) }).await;
    assert_eq!(batch.urls.len(), leased.len(), "all of it is out");
    let next = queue.lease_as(ask(10)).await;
    assert_eq!((next.urls.len(), next.next_due_at), (0, None));
    // What comes back is due when it is due, and not when values are taken anew.
    for leased in &batch.urls {
        queue.settle(leased.token, Outcome::Unchanged).await;
    }
    let next = queue.lease_as(ask(10)).await;
    let away = next.next_due_at.unwrap().duration_since(queue.clock.now());
    assert!(next.urls.is_empty() && away.as_hours() > 24, "{away}");
}

#[tokio::test]
async fn the_weight_of_a_host_outlives_a_new_robots_txt_and_is_that_of_the_config() {
    let of = |name: &str, weight: &str| {
        let weight = format!("weight = {weight}");
        site(name, &format!("http://{name}.test/"), &weight)
    };
    let queue = Queue::open(&(of("a", "3.0") + &of("b", "1.0"))).await;
    queue.list_urls("a", (0..1_000).map(|n| format!("http://a.test/{n}"))).await;
    queue.list_urls("b", (0..1_000).map(|n| format!("http://b.test/{n}"))).await;
    let share_of_a = async || {
        let mut urls = 0;
        for _ in 0..200 {
            let leased = queue.lease_as(LeaseRequest { per_host: 1, ..ask(1) }).await.urls;
            urls += usize::from(&*leased[0].host == "http://a.test");
        }
        urls
    };
    let body = b"User-agent: *\nDisallow: /private/".to_vec();
    let read = RobotsRead::Rules { body, status: 200, crawl_delay: None };
    let until = queue.clock.now() + Duration::from_secs(86_400);
    queue.store.save_robots(queue.host("http://a.test"), read, until).await.unwrap();
    let share = share_of_a().await;
    assert!((145..=155).contains(&share), "{share}");
    queue.reload(&(of("a", "1.0") + &of("b", "3.0"))).await.unwrap();
    let share = share_of_a().await;
    assert!((45..=55).contains(&share), "{share}");
    let weights = queue.look().rows("SELECT weight FROM turns ORDER BY weight");
    assert_eq!(weights, [[Some("1".to_owned())], [Some("3".to_owned())]]);
}

#[tokio::test]
async fn a_peek_shows_what_is_due_by_turns_and_then_the_rest_by_when_it_is() {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..30).map(|n| format!("http://large.test/{n}"))).await;
    queue.list_urls("a", (0..2).map(|n| format!("http://small.test/{n}"))).await;
    let peeked = async |limit| -> Vec<_> {
        let rows = queue.store.peek("default".to_owned(), limit).await.unwrap();
        rows.into_iter().map(|row| row.url.replace("http://", "").replace(".test", "")).collect()
    };
    assert_eq!(peeked(6).await, ["large/0", "small/0", "large/1", "small/1", "large/2", "large/3"]);
    assert_eq!(peeked(1).await, ["large/0"]);
    assert_eq!(peeked(1_000).await.len(), 32);
    // All of the large one is fetched, and due before what is left of the small one.
    for leased in queue.lease_as(LeaseRequest { per_host: 1_000, ..ask(1_000) }).await.urls {
        if &*leased.host == "http://large.test" {
            queue.settle(leased.token, Outcome::Unchanged).await;
        }
    }
    queue.clock.advance(Duration::from_secs(60));
    queue.list_urls("a", ["http://new.test/".to_owned(), "http://large.test/new".to_owned()]).await;
    let next = peeked(4).await;
    let mut due = next[..2].to_vec();
    due.sort();
    assert_eq!(due, ["large/new", "new/"]);
    let rows = queue.store.peek("default".to_owned(), 1_000).await.unwrap();
    assert_eq!(rows.len(), 32);
    assert!(rows[2..].is_sorted_by_key(|row| row.due_at));
    let few = queue.store.peek("default".to_owned(), 5).await.unwrap();
    assert_eq!(
        few[2..].iter().map(|row| row.due_at).collect::<Vec<_>>(),
        rows[2..5].iter().map(|row| row.due_at).collect::<Vec<_>>()
    );
}
