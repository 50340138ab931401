//! What a store needs over the years: room given back, and orders over many
//! rows that a kill interrupts.

use rusqlite::Connection;
use serde_json::{Value, json};
use sitemapd::fetch::api::ApiError;

use crate::support::engine;
use crate::support::lease_history::{Dice, audit};
use crate::support::process::{Daemon, write_config};
use crate::support::queue_daemon::{Queue, site};

#[tokio::test]
async fn a_store_that_is_mostly_free_is_made_shorter() {
    if !engine::is_embedded("its free pages") {
        return;
    }
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..100).map(|n| format!("http://a.test/{n}"))).await;
    let conn = Connection::open(queue.look().file()).unwrap();
    conn.execute("INSERT INTO meta VALUES ('ballast', zeroblob(40000000))", []).unwrap();
    conn.execute("DELETE FROM meta WHERE key = 'ballast'", []).unwrap();
    let pages = |what: &str| -> i64 {
        conn.query_row(&format!("PRAGMA {what}"), [], |row| row.get(0)).unwrap()
    };
    assert!(pages("freelist_count") > 9_000);
    while queue.store.maintain().await.unwrap() {}
    // Some of it is kept for what comes.
    let free = pages("freelist_count");
    assert!(free > 1_000 && free < 4_096, "{free} pages are free");
    audit(&queue.look());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_whose_forgetting_is_killed_is_forgotten_by_the_same_order() {
    let (a, b) = (site("a", "http://a.test/", ""), site("b", "http://b.test/", ""));
    let queue = Queue::open(&(a.clone() + &b)).await;
    queue.list_urls("a", (0..100).map(|n| format!("http://a.test/{n}"))).await;
    queue.list_urls("b", (0..12_000).map(|n| format!("http://b{}.test/{n}", n % 9))).await;
    let (dir, look) = queue.into_folder();
    let config = write_config(dir.path(), &a);
    let mut dice = Dice::new(5);
    let mut kills = 0;
    let left = "SELECT count(*) FROM urls u JOIN sites s ON s.id = u.site_id WHERE s.name = 'b'";
    loop {
        let mut daemon = Daemon::start(&config);
        let api = daemon.client();
        let order = tokio::spawn({
            let api = api.clone();
            async move { api.delete::<Value>("/v1/sites/b", &[]).await }
        });
        // Ever longer: at some time a slow machine does a part, and a fast one has not done
        // all of it the first time.
        let patience =
            std::time::Duration::from_millis(u64::from(10 + dice.below(40 + 40 * kills)));
        tokio::time::sleep(patience).await;
        if order.is_finished() {
            match order.await.unwrap() {
                // It was done before, and nobody heard of it.
                Ok(_) | Err(ApiError::Refused { status: 404, .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        daemon.kill();
        kills += 1;
        look.let_go();
        audit(&look);
        assert!(kills < 200, "{} rows are left", look.number(left));
    }
    look.let_go();
    println!("forgotten after {kills} kills");
    assert!(kills > 0);
    assert_eq!(look.number(left), 0);
    let mut daemon = Daemon::start(&config);
    let body = json!({ "max": 1_000, "ttl": "5m", "per_host": 1_000 });
    let answer: Value = daemon.client().post("/v1/lease", &body).await.unwrap();
    assert_eq!(answer["urls"].as_array().unwrap().len(), 100);
    daemon.kill();
    look.let_go();
    audit(&look);
}
