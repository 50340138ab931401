//! `kill -9` under load, again and again: what was answered stands.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use sitemapd::clock::Clock;
use sitemapd::fetch::api::ApiClient;
use tokio::task::JoinSet;

use crate::support::lease_history::{Dice, End, History, audit};
use crate::support::process::{Daemon, write_config};
use crate::support::queue_daemon::{Queue, site};

const ROUNDS: u64 = 15;
const CLIENTS: u64 = 4;
const URLS: usize = 30_000;
const TTL: Duration = Duration::from_secs(300);

/// How far the clients have come in one round.
#[derive(Default)]
struct Round {
    /// Calls that settled something and were answered.
    settles: AtomicU32,
}

/// Leases and settles until the daemon is gone; says what is held then.
async fn load(
    api: ApiClient,
    history: Arc<History>,
    mut dice: Dice,
    round: Arc<Round>,
) -> Vec<(i64, String)> {
    let mut held = Vec::new();
    loop {
        let body = json!({ "max": 1 + dice.below(20), "ttl": "5m", "per_host": 100 });
        let Ok(answer) = api.post::<Value>("/v1/lease", &body).await else { return held };
        let mut ending = HashMap::new();
        for leased in answer["urls"].as_array().unwrap() {
            let (id, token) = record(&history, leased);
            // One in eight fetchers forgets what it holds.
            if dice.below(8) == 0 {
                held.push((id, token));
            } else {
                ending.insert(token, id);
            }
        }
        let results: Vec<_> =
            ending.keys().map(|token| json!({ "token": token, "outcome": "changed" })).collect();
        let called = history.now();
        let body = json!({ "results": results });
        let Ok(answer) = api.post::<Value>("/v1/settle", &body).await else {
            for (token, id) in ending {
                history.ended(id, &token, called, End::Perhaps);
            }
            return held;
        };
        for result in answer["results"].as_array().unwrap() {
            assert_eq!(result["result"], "ok", "{result}");
            let token = result["token"].as_str().unwrap();
            history.ended(ending[token], token, called, End::Done);
        }
        round.settles.fetch_add(1, Ordering::Relaxed);
    }
}

fn record(history: &History, leased: &Value) -> (i64, String) {
    let expires: jiff::Timestamp = leased["expires_at"].as_str().unwrap().parse().unwrap();
    let (id, token) =
        (leased["id"].as_i64().unwrap(), leased["token"].as_str().unwrap().to_owned());
    let attempt = u32::try_from(leased["attempt"].as_u64().unwrap()).unwrap();
    history.leased(id, token.clone(), expires - TTL, expires, attempt);
    (id, token)
}

/// What was answered must be in the tables.
fn verify(database: &Path, history: &History, held: &[(i64, String)]) {
    let conn = Connection::open(database).unwrap();
    audit(&conn);
    let mut done = conn
        .prepare("SELECT fetches = 1 AND outcome = 0 AND state = 0 FROM feedback WHERE url_id = ?1")
        .unwrap();
    for (id, _) in history.settled() {
        let kept: bool = done.query_row([id], |row| row.get(0)).unwrap();
        assert!(kept, "URL {id} was settled, and is not");
    }
    let mut lease = conn
        .prepare("SELECT lower(hex(token)) = substr(?2, 1, 32) FROM leases WHERE url_id = ?1")
        .unwrap();
    for (id, token) in held {
        let kept: bool = lease.query_row((id, token), |row| row.get(0)).unwrap();
        assert!(kept, "URL {id} was leased, and is not");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_every_kill_what_was_answered_stands_and_nothing_is_lost_or_doubled() {
    let text = site("a", "http://127.0.0.1:9/", "");
    let queue = Queue::open_on(&text, Clock::system()).await;
    let list = (0..URLS).map(|n| format!("http://h{}.test/{n}", n % 20));
    let ids: Vec<_> = queue.list_urls("a", list).await.into_iter().map(|id| id.0).collect();
    let (dir, database) = queue.into_folder();
    let config = write_config(dir.path(), &text);
    let history = Arc::new(History::default());
    let mut held = Vec::new();
    let mut dice = Dice::new(7);
    for number in 0..ROUNDS {
        let mut daemon = Daemon::start(&config);
        let round = Arc::new(Round::default());
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let seed = Dice::new(number * CLIENTS + client);
            clients.spawn(load(daemon.client(), Arc::clone(&history), seed, Arc::clone(&round)));
        }
        // In the middle of the work, wherever that is this time.
        let enough = 1 + dice.below(60);
        while round.settles.load(Ordering::Relaxed) < enough {
            tokio::time::sleep(Duration::from_micros(u64::from(dice.below(900)))).await;
        }
        daemon.kill();
        while let Some(ended) = clients.join_next().await {
            held.extend(ended.unwrap());
        }
        verify(&database, &history, &held);
    }
    history.check(&ids);
    assert!(history.done() > 1_000, "{} URLs were settled", history.done());
}
