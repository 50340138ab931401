//! Many clients at once against the real binary, for as long as
//! `SITEMAPD_FIRE_SECONDS` says: lost answers, late, doubled and forged tokens,
//! URLs that always fail, one host with nearly everything among a hundred with
//! little, and a SIGTERM in the middle of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use sitemapd::clock::Clock;
use tokio::task::JoinSet;

use super::many;
use crate::support::clients::{Client, read};
use crate::support::door::Door;
use crate::support::lease_history::{Dice, audit};
use crate::support::ledger::Ledger;
use crate::support::process::{DEADLINE, Daemon, write_config};
use crate::support::queue_daemon::{Entry, Queue, entry, site};

const CLIENTS: u32 = 32;
const SECONDS: u32 = 5;
/// Leases that make it a fire.
const ENOUGH: u64 = 1_000;
/// URLs of the large host; the small ones have ten each.
const LARGE: u32 = 20_000;
const SMALL: u32 = 100;
/// Deliveries before a URL is given up.
const ATTEMPTS: u32 = 3;

fn lastmod() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

/// A store with a large host and many small ones.
async fn filled(text: &str, large: u32) -> (Queue, BTreeMap<String, Timestamp>) {
    // Listed long ago: all of it is due.
    let then = Timestamp::from_second(Clock::system().now().as_second() - 86_400).unwrap();
    let queue = Queue::open_on(text, Clock::manual(then)).await;
    let of_large = (0..large).map(|n| format!("http://large.test/{n}"));
    let of_small =
        (0..SMALL).flat_map(|host| (0..10).map(move |n| format!("http://small{host}.test/{n}")));
    let urls: Vec<String> = of_large.chain(of_small).collect();
    let entries: Vec<Entry> = urls.iter().map(|url| entry(url).lastmod(lastmod())).collect();
    queue.list("a", &entries).await;
    let listed = urls.into_iter().map(|url| (url, lastmod())).collect();
    (queue, listed)
}

fn text() -> String {
    format!(
        "[queue]\norder = \"protocol\"\nmax_attempts = {ATTEMPTS}\n[store]\nmin_free_disk = \"0\"\n{}",
        site("a", "http://127.0.0.1:9/", "max_urls = 10000000")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_fire_every_promise_is_kept_and_a_sigterm_ends_it_in_time() {
    let (queue, listed) = filled(&text(), many("SITEMAPD_FIRE_LARGE", LARGE)).await;
    let (dir, look) = queue.into_folder();
    let mut daemon = Daemon::start(&write_config(dir.path(), &text()));
    let ledger = Arc::new(Ledger::default());
    ledger.next_life();
    let mut clients = JoinSet::new();
    for seed in 0..CLIENTS {
        let client = Client {
            door: Door::One(daemon.client(), daemon.addr),
            ledger: Arc::clone(&ledger),
            dice: Dice::new(u64::from(seed) + 100),
            ttl: (1, 4),
        };
        clients.spawn(client.work());
    }
    let seconds = many("SITEMAPD_FIRE_SECONDS", SECONDS);
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    // On a slow machine that much comes to pass later.
    let deadline = Instant::now() + DEADLINE;
    while ledger.totals().leases <= ENOUGH && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    let stopped = began.elapsed();
    let now_s = Clock::system().now().as_second() + 1;
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    look.let_go();
    audit(&look);
    ledger.check(&look, &listed, now_s);
    let totals = ledger.totals();
    println!("{CLIENTS} clients for {seconds} s: {totals:?}, 0 violations, SIGTERM {stopped:?}");
    // By its own clock within 12 s, or it would not have ended with 0.
    assert!(stopped < Duration::from_secs(30), "{stopped:?}");
    assert!(totals.leases > ENOUGH, "{totals:?}");
    // What was leased when it stopped is still so.
    assert!(look.number("SELECT count(*) FROM leases") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_with_ten_urls_are_served_within_one_turn_of_one_with_nearly_all() {
    let (queue, _) = filled(&text(), many("SITEMAPD_FIRE_LARGE", LARGE)).await;
    let (dir, _) = queue.into_folder();
    let daemon = Daemon::start(&write_config(dir.path(), &text()));
    let api = daemon.client();
    let body = json!({ "max": 1_000, "ttl": "5m", "per_host": 10 });
    let mut small = 0;
    // One turn of all hosts at ten each is 1,010 URLs.
    for _ in 0..2 {
        let answer: Value = api.post("/v1/lease", &body).await.unwrap();
        small += read(&answer).iter().filter(|lease| lease.url.contains("//small")).count();
    }
    assert_eq!(small, SMALL as usize * 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_always_fails_is_given_up_listed_and_delays_nobody() {
    let (queue, _) = filled(&text(), 50).await;
    let (dir, look) = queue.into_folder();
    let config = write_config(dir.path(), &text());
    let body = json!({ "max": 1_000, "ttl": "1h", "per_host": 1_000 });
    for attempt in 1..=ATTEMPTS {
        let mut daemon = Daemon::start(&config);
        let api = daemon.client();
        let leases = read(&api.post::<Value>("/v1/lease", &body).await.unwrap());
        let is_poison = |url: &str| url.contains("//large");
        let poison = leases.iter().filter(|lease| is_poison(&lease.url)).count();
        assert_eq!(poison, 50, "attempt {attempt}");
        let results: Vec<_> = leases
            .iter()
            .map(|lease| {
                let outcome = if is_poison(&lease.url) { "failed" } else { "unchanged" };
                assert!(!is_poison(&lease.url) || lease.attempt == u64::from(attempt));
                json!({ "token": lease.token, "outcome": outcome })
            })
            .collect();
        let _: Value = api.post("/v1/settle", &json!({ "results": results })).await.unwrap();
        let again = read(&api.post::<Value>("/v1/lease", &body).await.unwrap());
        assert!(again.iter().all(|lease| !is_poison(&lease.url)), "it came back at once");
        let results: Vec<_> = again
            .iter()
            .map(|lease| json!({ "token": lease.token, "outcome": "unchanged" }))
            .collect();
        let _: Value = api.post("/v1/settle", &json!({ "results": results })).await.unwrap();
        daemon.kill();
        // A day passes.
        let sql = "UPDATE queue SET due_s = due_s - 86400;
                   UPDATE turns SET due_s = due_s - 86400;";
        look.let_go();
        look.change(sql);
        look.change_packed(
            "UPDATE feedback SET place = place - (86400 << 14)",
            "UPDATE feedback SET due_s = due_s - 86400",
        );
    }
    let daemon = Daemon::start(&config);
    let api = daemon.client();
    let dead: Value = api.get("/v1/queue/dead", &[("limit", "1000")]).await.unwrap();
    assert_eq!(dead["urls"].as_array().unwrap().len(), 50, "{dead}");
    let answer: Value = api.post("/v1/queue/replay", &json!({ "all": true })).await.unwrap();
    assert_eq!(answer["replayed"], 50);
    let leases = read(&api.post::<Value>("/v1/lease", &body).await.unwrap());
    let again = leases.iter().filter(|lease| lease.url.contains("//large"));
    assert!(again.clone().all(|lease| lease.attempt == 1));
    assert_eq!(again.count(), 50);
}
