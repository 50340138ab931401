//! The learned order on whole daemons: what documents and fetchers say of a
//! site decides how much of it is fetched, and outlives the daemon.

use std::time::Duration;

use serde_json::{Value, json};
use sitemapd::fetch::api::ApiClient;
use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::Settlement;
use sitemapd::recrawl::habit::Habit;
use sitemapd::recrawl::signal::Signal;

use super::{listed, one_sitemap};
use crate::support::daemon::{DAY, Daemon, HOUR, MINUTE, World, sitemap};
use crate::support::queue_daemon::report;
use crate::support::{Origin, Reply};

/// Pages of a site.
const PAGES: usize = 25;

/// A sitemap in which page `n` has the date that `date` gives it.
fn dated(base: &str, date: impl Fn(usize) -> String) -> Reply {
    let pages: Vec<(String, String)> = (0..PAGES).map(|n| (format!("/{n}"), date(n))).collect();
    let entries: Vec<(&str, &str)> =
        pages.iter().map(|(path, date)| (path.as_str(), date.as_str())).collect();
    Reply::xml(sitemap(base, &entries))
}

/// Leases all that may be, and settles each as `outcome` says of its reason;
/// says how many were due for a change.
async fn fetch(daemon: &Daemon, outcome: impl Fn(Reason) -> Outcome) -> usize {
    let leased = daemon.lease().await;
    let changed = leased.iter().filter(|leased| leased.reason == Reason::Changed).count();
    let results: Vec<Settlement> =
        leased.iter().map(|leased| report(leased.token, outcome(leased.reason))).collect();
    daemon.store.settle(results).await.unwrap();
    changed
}

async fn told(daemon: &Daemon, path: &str, query: &[(&str, &str)]) -> Value {
    let client = ApiClient::new(&format!("http://{}", daemon.api), None).unwrap();
    client.get(path, query).await.unwrap()
}

#[tokio::test]
async fn a_site_that_dates_every_page_anew_is_not_fetched_for_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    origin.set("/sitemap.xml", dated(&base, |_| world.clock.now().to_string()));
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(daemon.lease().await.len(), PAGES);
    daemon.pass(HOUR).await;
    fetch(&daemon, |_| Outcome::Unchanged).await;
    let mut fetched = 0;
    for _ in 0..5 {
        daemon.pass(HOUR).await;
        origin.set("/sitemap.xml", dated(&base, |_| world.clock.now().to_string()));
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!(poll.counts.changed, PAGES as u64, "each says that it changed");
        fetched += fetch(&daemon, |_| Outcome::Unchanged).await;
    }
    assert_eq!(fetched, 0, "of {} lies", 5 * PAGES);
    let trust = daemon.source("/sitemap.xml").await.trust.unwrap();
    assert_eq!((trust.habit, trust.moves), (Habit::AlwaysNow, Signal::Stamp));
    let shown = told(&daemon, "/v1/sources", &[]).await;
    let sources = shown["sources"].as_array().unwrap();
    let source = sources.iter().find(|source| source["trust"] != json!(null)).unwrap();
    assert_eq!(source["trust"]["habit"], "always-now");
    assert_eq!(source["trust"]["signals"]["stamp"]["believed"], false);
    daemon.stop().await;
}

/// A site of two sitemaps whose pages the first has dated, all of them looked at; the
/// second is empty.
async fn with_a_second(origin: &Origin, world: &World) -> Daemon {
    let old = |n: usize| format!("2026-11-{:02}T00:00:00Z", 1 + n % 15);
    origin.set("/sitemap.xml", dated(&origin.base(), old));
    origin.set("/new.xml", Reply::xml(sitemap(&origin.base(), &[])));
    let daemon = world.start(&listed(origin, &["/sitemap.xml", "/new.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.polled("/new.xml", 1).await;
    fetch(&daemon, |_| Outcome::Unknown).await;
    daemon
}

#[tokio::test]
async fn a_new_sitemap_that_dates_pages_at_its_build_is_not_fetched_for_it() {
    for is_now in [true, false] {
        let origin = Origin::start().await;
        let base = origin.base();
        let world = World::new(&[&origin]);
        let daemon = with_a_second(&origin, &world).await;
        daemon.pass(5 * HOUR).await;
        let built = if is_now { daemon.now() } else { daemon.now() - 3 * HOUR };
        // Two pages have their own dates.
        let edited = (daemon.now() - 30 * HOUR).to_string();
        let date = |n: usize| if n < 2 { edited.clone() } else { built.to_string() };
        origin.set("/new.xml", dated(&base, date));
        let poll = daemon.poll("/new.xml").await;
        assert_eq!(poll.counts.changed, PAGES as u64, "each is newer than what was known");
        assert_eq!(fetch(&daemon, |_| Outcome::Changed).await, 2, "now: {is_now}");
        let trust = daemon.source("/sitemap.xml").await.trust.unwrap();
        assert_eq!((trust.habit, trust.moves), (Habit::Plain, Signal::Lastmod));
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_new_sitemap_with_the_dates_that_are_known_is_believed_for_those_that_move() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    // The site was filled in one go, and the new sitemap says so, too.
    let filled = "2026-11-01T00:00:00Z".to_owned();
    origin.set("/sitemap.xml", dated(&base, |_| filled.clone()));
    origin.set("/new.xml", Reply::xml(sitemap(&base, &[])));
    let daemon = world.start(&listed(&origin, &["/sitemap.xml", "/new.xml"], &[], "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.polled("/new.xml", 1).await;
    fetch(&daemon, |_| Outcome::Unknown).await;
    daemon.pass(DAY).await;
    let edited = daemon.now().to_string();
    origin.set("/new.xml", dated(&base, |n| if n == 7 { &edited } else { &filled }.clone()));
    assert_eq!(daemon.poll("/new.xml").await.counts.changed, 1);
    assert_eq!(fetch(&daemon, |_| Outcome::Changed).await, 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_that_never_changes_by_a_byte_is_frozen_after_a_month_of_days() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    origin.set("/sitemap.xml", dated(&base, |n| format!("2026-11-{:02}", 1 + n % 20)));
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    for _ in 0..40 {
        daemon.clock.advance(MINUTE);
        assert_eq!(daemon.poll("/sitemap.xml").await.result, "unchanged");
    }
    daemon.stop().await;
    let daemon = world.start(&one_sitemap(&origin)).await;
    let habit = async |daemon: &Daemon| daemon.source("/sitemap.xml").await.trust.unwrap().habit;
    assert_eq!(habit(&daemon).await, Habit::DateOnly, "many polls of one day are one");
    for _ in 0..30 {
        daemon.pass(DAY).await;
        daemon.poll("/sitemap.xml").await;
    }
    // What is written when there is nothing else to do is written at the end.
    daemon.stop().await;
    let daemon = world.start(&one_sitemap(&origin)).await;
    assert_eq!(habit(&daemon).await, Habit::Frozen);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_that_dates_every_page_anew_is_not_asked_more_often_for_it() {
    // Where the dates are true, it is; and where fetches prove that all changed at once.
    for (stamps, proves, bounds) in [
        (true, false, HOUR * 12..=DAY * 7),
        (true, true, MINUTE * 10..=HOUR * 8),
        (false, false, MINUTE * 10..=HOUR * 2),
    ] {
        let origin = Origin::start().await;
        let base = origin.base();
        let world = World::new(&[&origin]);
        let serve = |hour: usize| {
            let now = world.clock.now().to_string();
            let old = "2026-11-01T00:00:00Z".to_owned();
            let is_new = |n: usize| stamps || n == hour % PAGES;
            origin.set(
                "/sitemap.xml",
                dated(&base, |n| if is_new(n) { now.clone() } else { old.clone() }),
            );
        };
        serve(0);
        let looks = "[recrawl.changefreq]\nabsent = \"12h\"\n".to_owned();
        let daemon = world.start(&(looks + &one_sitemap(&origin).replace("30d", "auto"))).await;
        daemon.polled("/sitemap.xml", 1).await;
        for hour in 1..=5 * 24 {
            serve(hour);
            daemon.pass(HOUR).await;
            if proves {
                fetch(&daemon, |_| Outcome::Changed).await;
            }
        }
        let source = daemon.source("/sitemap.xml").await;
        let (last, next) = (source.last_poll_at.unwrap(), source.next_poll_at.unwrap());
        let interval = Duration::try_from(next.duration_since(last)).unwrap();
        assert!(bounds.contains(&interval), "{stamps} {proves}: {interval:?}, {}", source.why);
        daemon.clock.advance(MINUTE);
        serve(0);
        let poll = daemon.poll("/sitemap.xml").await;
        assert!(poll.result == "changed" && poll.counts.changed > 0, "{poll:?}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_site_whose_dates_are_true_is_fetched_for_each_also_after_a_restart() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let old = "2026-11-01T00:00:00Z".to_owned();
    let mut dates = vec![old; PAGES];
    origin.set("/sitemap.xml", dated(&base, |n| dates[n].clone()));
    let mut daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    fetch(&daemon, |_| Outcome::Unknown).await;
    for (round, edited) in [[3, 9], [14, 20], [5, 11], [17, 22]].into_iter().enumerate() {
        daemon.pass(DAY).await;
        for n in edited {
            dates[n] = world.clock.now().to_string();
        }
        origin.set("/sitemap.xml", dated(&base, |n| dates[n].clone()));
        daemon.poll("/sitemap.xml").await;
        let outcome = |reason| match reason {
            Reason::Changed => Outcome::Changed,
            _ => Outcome::Unchanged,
        };
        assert_eq!(fetch(&daemon, outcome).await, 2, "round {round}");
        if round == 1 {
            daemon.stop().await;
            daemon = world.start(&one_sitemap(&origin)).await;
        }
    }
    let known = told(&daemon, "/v1/url", &[("url", &format!("{base}/17"))]).await;
    assert!(known["learned"]["lastmod_right"].as_f64().unwrap() > 0.8, "{known}");
    assert!(known["why"].as_str().unwrap().contains("lastmod has been right"), "{known}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_crawl_log_trains_the_model_and_moves_due_times() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/busy", ""), ("/still", "")])));
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let client = ApiClient::new(&format!("http://{}", daemon.api), None).unwrap();
    let mut fetches = Vec::new();
    for day in 1..=20 {
        let time = format!("2026-11-{day:02}T00:00:00Z");
        let busy = json!({ "url": format!("{base}/busy"), "time": time, "hash": day.to_string() });
        let still = json!({ "url": format!("{base}/still"), "time": time, "changed": false });
        fetches.extend([busy, still]);
    }
    fetches.push(json!({ "url": format!("{base}/never"), "time": "2026-11-01T00:00:00Z" }));
    let body = json!({ "fetches": fetches });
    let answer: Value = client.post("/v1/import", &body).await.unwrap();
    assert_eq!(answer, json!({ "taken": 40, "unknown": 1, "ignored": 0 }));
    let (busy, still) =
        (daemon.url(&format!("{base}/busy")).await, daemon.url(&format!("{base}/still")).await);
    assert_eq!((busy.fetches, busy.changes), (20, 19));
    assert!(busy.due_at.unwrap() < still.due_at.unwrap());
    assert!(still.due_at.unwrap() > daemon.now(), "it need not be looked at yet");
    let numbers = busy.learned.unwrap().numbers;
    assert!(numbers.rate > 0.5 && numbers.proof > 0.99, "{numbers:?}");
    // Once more changes nothing.
    let again: Value = client.post("/v1/import", &body).await.unwrap();
    assert_eq!(again["ignored"], 40);
    // What is known goes out again, a line a URL.
    let known = told(&daemon, "/v1/urls", &[]).await;
    assert_eq!(known["urls"].as_array().unwrap().len(), 2);
    assert_eq!(known["next"], json!(null));
    daemon.stop().await;
}
