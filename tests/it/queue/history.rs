//! Many consumers at once, with leases that expire: nobody ever holds what
//! another one holds, and nothing is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sitemapd::clock::Clock;
use sitemapd::fetch::api::ApiClient;
use sitemapd::model::Outcome;
use sitemapd::queue::{LeaseRequest, Leased, TokenResult};
use sitemapd::store::Store;

use crate::support::lease_history::{Dice, End, History, audit};
use crate::support::queue_daemon::{Queue, QueueDaemon, START, ask, lease_body, report, site};

/// Deliveries before a dead letter.
const ATTEMPTS: u32 = 4;
/// How long a lease lasts.
const TTL: Duration = Duration::from_secs(30);

async fn filled(urls: usize) -> (Queue, Vec<i64>) {
    let text = format!(
        "[queue]\nmax_attempts = {ATTEMPTS}\nlease = \"30s\"\n[store]\ndurability = \"normal\"\n{}",
        site("a", "http://h0.test/", "")
    );
    let queue = Queue::open(&text).await;
    let list = (0..urls).map(|n| format!("http://h{}.test/{n}", n % 10));
    let ids = queue.list_urls("a", list).await.into_iter().map(|id| id.0).collect();
    (queue, ids)
}

/// One consumer in the process: leases a few, then settles, fails, gives back,
/// extends or forgets each, and now and then lets time pass.
async fn consume(store: Store, clock: Clock, history: Arc<History>, mut dice: Dice) {
    let mut idle = 0;
    while idle < 40 {
        let request = LeaseRequest { ttl: TTL, ..ask(1 + dice.below(7)) };
        let urls = store.lease(request).await.unwrap().urls;
        idle = if urls.is_empty() { idle + 1 } else { 0 };
        for leased in &urls {
            let granted = leased.expires_at - TTL;
            history.leased(
                leased.id.0,
                leased.token.to_string(),
                granted,
                leased.expires_at,
                leased.attempt,
            );
        }
        for leased in urls {
            if dice.below(4) == 0 {
                clock.advance(Duration::from_secs(u64::from(dice.below(15))));
            }
            end_one(&store, &history, &mut dice, &leased).await;
        }
        if idle > 0 || dice.below(5) == 0 {
            clock.advance(Duration::from_secs(u64::from(dice.below(60))));
            store.reap().await.unwrap();
        }
        tokio::task::yield_now().await;
    }
}

async fn end_one(store: &Store, history: &History, dice: &mut Dice, leased: &Leased) {
    let called = history.now();
    let (result, end) = match dice.below(10) {
        0..6 => {
            let settled = store.settle(vec![report(leased.token, Outcome::Changed)]).await;
            (settled.unwrap()[0], End::Done)
        }
        6 => {
            let settled = store.settle(vec![report(leased.token, Outcome::Failed)]).await;
            (settled.unwrap()[0], End::Failed)
        }
        7 => {
            let after = Duration::from_secs(u64::from(dice.below(5)));
            (store.release(vec![leased.token], after).await.unwrap()[0], End::Released)
        }
        // Forgotten: it expires.
        _ => return,
    };
    assert_ne!(result, TokenResult::Unknown, "it was given out a moment ago");
    if result == TokenResult::Ok {
        history.ended(leased.id.0, &leased.token.to_string(), called, end);
    }
}

/// Delivers what is left until all is done or given up: no pause is longer
/// than two days, and what is done rests for half a year.
async fn drain(store: &Store, clock: &Clock, history: &History) {
    for _ in 0..2 * ATTEMPTS {
        clock.advance(Duration::from_secs(2 * 86_400));
        while store.reap().await.unwrap().0 > 0 {}
        for leased in store.lease(LeaseRequest { ttl: TTL, ..ask(1_000) }).await.unwrap().urls {
            let granted = leased.expires_at - TTL;
            history.leased(
                leased.id.0,
                leased.token.to_string(),
                granted,
                leased.expires_at,
                leased.attempt,
            );
            let called = history.now();
            let settled = store.settle(vec![report(leased.token, Outcome::Changed)]).await.unwrap();
            assert_eq!(settled, [TokenResult::Ok]);
            history.ended(leased.id.0, &leased.token.to_string(), called, End::Done);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thirty_two_consumers_never_hold_one_url_twice_and_lose_none() {
    let (queue, ids) = filled(600).await;
    // changefreq never: done URLs do not come due again while the clock runs.
    queue.look().set_hints(7);
    let history = Arc::new(History::default());
    let tasks: Vec<_> = (0..32)
        .map(|seed| {
            let (store, clock) = (queue.store.clone(), queue.clock.clone());
            tokio::spawn(consume(store, clock, Arc::clone(&history), Dice::new(seed)))
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    history.check(&ids);
    let busy = history.deliveries();
    assert!(busy > 600, "{busy} deliveries");
    audit(&queue.look());
    all_accounted_for(&queue.store, &queue.clock, &history, &ids).await;
    audit(&queue.look());
}

/// After a drain each URL is done or a dead letter.
async fn all_accounted_for(store: &Store, clock: &Clock, history: &History, ids: &[i64]) {
    drain(store, clock, history).await;
    history.check(ids);
    let dead: BTreeSet<_> =
        store.dead(None, 1_000, None).await.unwrap().items.iter().map(|dead| dead.id.0).collect();
    let done: BTreeSet<_> = history
        .settled()
        .into_iter()
        .filter_map(|(id, end)| (end == End::Done).then_some(id))
        .collect();
    let lost: Vec<_> = ids.iter().filter(|id| !dead.contains(id) && !done.contains(id)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(dead.is_disjoint(&done), "given up although it was done");
}

/// One consumer over HTTP; several of them share a manual clock.
async fn consume_over_http(api: ApiClient, clock: Clock, history: Arc<History>, mut dice: Dice) {
    let mut idle = 0;
    while idle < 10 {
        let mut body = lease_body(1 + dice.below(7), "0s");
        body["ttl"] = json!("30s");
        let answer: Value = api.post("/v1/lease", &body).await.unwrap();
        let urls = answer["urls"].as_array().unwrap();
        idle = if urls.is_empty() { idle + 1 } else { 0 };
        for leased in urls {
            record(&history, leased);
        }
        let mut results = Vec::new();
        for leased in urls {
            let outcome =
                ["changed", "changed", "changed", "failed", "", ""][dice.below(6) as usize];
            if !outcome.is_empty() {
                results.push(json!({ "token": leased["token"], "outcome": outcome }));
            }
        }
        if dice.below(3) == 0 {
            clock.advance(Duration::from_secs(u64::from(dice.below(40))));
        }
        let called = history.now();
        let answer: Value = api.post("/v1/settle", &json!({ "results": results })).await.unwrap();
        for (sent, got) in results.iter().zip(answer["results"].as_array().unwrap()) {
            assert_eq!(sent["token"], got["token"]);
            assert_ne!(got["result"], "unknown");
            if got["result"] == "ok" {
                let end = if sent["outcome"] == "changed" { End::Done } else { End::Failed };
                let leased = urls.iter().find(|url| url["token"] == sent["token"]).unwrap();
                let token = sent["token"].as_str().unwrap();
                history.ended(leased["id"].as_i64().unwrap(), token, called, end);
            }
        }
        if idle > 0 {
            clock.advance(Duration::from_secs(60));
        }
    }
}

fn record(history: &History, leased: &Value) {
    let expires: jiff::Timestamp = leased["expires_at"].as_str().unwrap().parse().unwrap();
    history.leased(
        leased["id"].as_i64().unwrap(),
        leased["token"].as_str().unwrap().to_owned(),
        expires - TTL,
        expires,
        u32::try_from(leased["attempt"].as_u64().unwrap()).unwrap(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_concurrent_consumers_over_http_never_hold_one_url_twice_and_lose_none() {
    let (queue, ids) = filled(300).await;
    queue.look().set_hints(7);
    let daemon = QueueDaemon::over(queue, Clock::manual(START.parse().unwrap())).await;
    let history = Arc::new(History::default());
    let tasks: Vec<_> = (0..8)
        .map(|seed| {
            let (api, clock) = (daemon.client(), daemon.clock.clone());
            tokio::spawn(consume_over_http(api, clock, Arc::clone(&history), Dice::new(seed)))
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    history.check(&ids);
    all_accounted_for(&daemon.store, &daemon.clock, &history, &ids).await;
    audit(daemon.look());
    daemon.end().await;
}
