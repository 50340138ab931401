//! How long a killed daemon takes until it leases again, with many rows
//! (`SITEMAPD_ROWS`; ten million take some minutes to make).

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use sitemapd::clock::Clock;

use super::many;
use crate::support::clients::read;
use crate::support::engine::Look;
use crate::support::process::{Daemon, write_config};
use crate::support::queue_daemon::{Queue, site};

const ROWS: u32 = 60_000;
/// Rows that are listed at once.
const PART: u32 = 100_000;
/// URLs of a host.
const OF_HOST: u32 = 5_000;
const KILLS: u32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_daemon_of_many_rows_leases_again_within_seconds() {
    let rows = many("SITEMAPD_ROWS", ROWS);
    let text = "[store]\nmin_free_disk = \"0\"\n".to_owned()
        + &site("a", "http://127.0.0.1:9/", "max_urls = 100000000");
    let then = Timestamp::from_second(Clock::system().now().as_second() - 86_400).unwrap();
    let queue = Queue::open_on(&text, Clock::manual(then)).await;
    let began = Instant::now();
    for from in (0..rows).step_by(PART as usize) {
        let part = from..(from + PART).min(rows);
        queue.list_urls("a", part.map(|n| format!("http://h{}.test/page/{n}", n / OF_HOST))).await;
    }
    let filled = began.elapsed();
    let (dir, look) = queue.into_folder();
    let config = write_config(dir.path(), &text);
    let bytes = match &look {
        Look::File(path) => std::fs::metadata(path).unwrap().len(),
        Look::Server(_) => look
            .number(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                     WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'",
            )
            .cast_unsigned(),
    };
    let body = json!({ "max": 500, "ttl": "5m", "per_host": 10 });
    let mut starts = Vec::new();
    for _ in 0..=KILLS {
        let began = Instant::now();
        let mut daemon = Daemon::start(&config);
        let api = daemon.client();
        let leases = read(&api.post::<Value>("/v1/lease", &body).await.unwrap());
        starts.push(began.elapsed());
        assert!(!leases.is_empty());
        for lease in leases.chunks(50) {
            let results: Vec<_> =
                lease.iter().map(|l| json!({ "token": l.token, "outcome": "changed" })).collect();
            let _: Value = api.post("/v1/settle", &json!({ "results": results })).await.unwrap();
        }
        daemon.kill();
        look.let_go();
    }
    println!(
        "{rows} rows, {bytes} bytes, filled in {filled:.0?}; to the first lease: {starts:.0?}"
    );
    // A second or two where nothing else runs, however many rows there are.
    assert!(starts.iter().all(|start| *start < Duration::from_secs(60)), "{starts:?}");
}
