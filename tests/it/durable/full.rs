//! A disk without room, a database that somebody else has locked, and a log
//! that somebody keeps from ending: requests say so, reads go on, and work
//! resumes by itself.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use sitemapd::fetch::api::{ApiClient, ApiError};
use tempfile::TempDir;

use super::script::{Script, open};
use crate::support::disk::{Disk, EIO, Fault, SYNC};
use crate::support::engine::{self, Look};
use crate::support::lease_history::audit;
use crate::support::process::{DEADLINE, Daemon, write_config};
use crate::support::queue_daemon::{Queue, site};

/// The status and type of a refusal, and its Retry-After.
async fn refusal(daemon: &Daemon, path: &str, body: &Value) -> (u16, String, bool) {
    let client = sitemapd::fetch::tls::client().no_proxy().build().unwrap();
    let url = format!("http://{}{path}", daemon.addr);
    let answer = client
        .post(url)
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    let (status, retries) =
        (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
    let body: Value = serde_json::from_slice(&bytes_of(answer).await).unwrap();
    (status, body["type"].as_str().unwrap_or_default().to_owned(), retries)
}

async fn bytes_of(mut answer: reqwest::Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    bytes
}

/// Asks for the health until it is as wanted.
async fn health(api: &ApiClient, wanted: &str) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let health: Value = api.get("/healthz", &[]).await.unwrap();
        if health["status"] == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{health}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const LEASE: &str = r#"{"max": 3, "ttl": "5m", "per_host": 100}"#;

async fn fills_up(is_growth_only: bool) {
    let mut script = Script::new("full").await;
    let Some(disk) = Disk::below(&script.data()) else { return };
    let fill = |is_full| if is_growth_only { disk.fill_up(is_full) } else { disk.fill(is_full) };
    let mut daemon = Daemon::start_on(&script.config, Some(&disk));
    let api = daemon.client();
    let last = script.polled(&api, None, 0).await.unwrap();
    script.round(&api, None, 0).await;
    let before = script.deeds.len();

    fill(true);
    let body: Value = serde_json::from_str(LEASE).unwrap();
    let deadline = Instant::now() + DEADLINE;
    loop {
        // The log has room of its own for a while where only growth is refused.
        let (status, kind, retries) = refusal(&daemon, "/v1/lease", &body).await;
        if status == 503 {
            assert_eq!(kind, "urn:sitemapd:problem:storage-full");
            assert!(retries);
            break;
        }
        assert!(is_growth_only && status == 200 && Instant::now() < deadline, "{status}");
    }
    script.publish();
    script.poll(&api).await;
    script.round(&api, None, 1).await;
    assert!(script.refusals.iter().all(|status| *status == 503), "{:?}", script.refusals);
    assert!(!script.refusals.is_empty());
    // What reads goes on, and says how things are.
    for path in ["/v1/status", "/v1/queue", "/v1/sites", "/v1/sources", "/v1/changes"] {
        let _: Value = api.get(path, &[]).await.unwrap();
    }
    health(&api, "degraded").await;
    let ready: Result<Value, _> = api.get("/readyz", &[]).await;
    assert!(matches!(ready, Err(ApiError::Refused { status: 503, .. })));

    fill(false);
    health(&api, "ok").await;
    let _: Value = api.get("/readyz", &[]).await.unwrap();
    let refused = script.refusals.len();
    script.poll(&api).await;
    script.polled(&api, None, last).await.unwrap();
    script.round(&api, None, 2).await;
    assert_eq!(script.refusals.len(), refused, "{:?}", script.refusals);
    assert!(script.deeds.len() > before + 8);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    let conn = open(&script.data());
    audit(&Look::File(script.data().join("sitemapd.db")));
    for (deed, _) in &script.deeds {
        assert!(deed.stands(&conn), "{deed:?} was answered, and is lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_serves_reads_and_work_resumes_by_itself() {
    fills_up(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_on_which_nothing_grows_is_a_full_one() {
    fills_up(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_on_the_size_of_files_fails_writes_and_ends_nothing() {
    if !engine::is_embedded("a limit on the size of files") {
        return;
    }
    let mut script = Script::new("full").await;
    let mut daemon = Daemon::start(&script.config);
    let api = daemon.client();
    let last = script.polled(&api, None, 0).await.unwrap();
    let pid = Pid::from_raw(i32::try_from(daemon.id()).unwrap());
    let limit = |current| {
        prlimit(pid, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    };
    limit(Some(0));
    let body: Value = serde_json::from_str(LEASE).unwrap();
    let (status, _, _) = refusal(&daemon, "/v1/lease", &body).await;
    assert!((500..600).contains(&status), "{status}");
    let _: Value = api.get("/v1/sites", &[]).await.unwrap();
    health(&api, "degraded").await;
    let ready: Result<Value, _> = api.get("/readyz", &[]).await;
    assert!(matches!(ready, Err(ApiError::Refused { status: 503, .. })), "{ready:?}");
    limit(None);
    let _: Value = api.get("/readyz", &[]).await.unwrap();
    script.publish();
    script.poll(&api).await;
    script.polled(&api, None, last).await.unwrap();
    script.round(&api, None, 0).await;
    assert!(script.refusals.is_empty(), "{:?}", script.refusals);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    audit(&Look::File(script.data().join("sitemapd.db")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lock_is_a_503_with_retry_after_and_loses_no_poll() {
    if !engine::is_embedded("a foreign lock") {
        return;
    }
    let mut script = Script::new("full").await;
    let mut daemon = Daemon::start(&script.config);
    let api = daemon.client();
    let last = script.polled(&api, None, 0).await.unwrap();
    script.publish();
    script.poll(&api).await;
    let foreign = Connection::open(script.data().join("sitemapd.db")).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let body: Value = serde_json::from_str(LEASE).unwrap();
    let began = Instant::now();
    let (status, kind, retries) = refusal(&daemon, "/v1/lease", &body).await;
    assert_eq!((status, kind.as_str(), retries), (503, "urn:sitemapd:problem:busy", true));
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    // Reads are not held up.
    let _: Value = api.get("/v1/sites", &[]).await.unwrap();
    foreign.execute_batch("ROLLBACK").unwrap();
    drop(foreign);
    // The poll that came meanwhile is kept, or made once more.
    script.polled(&api, None, last).await.unwrap();
    script.round(&api, None, 0).await;
    assert!(script.refusals.is_empty(), "{:?}", script.refusals);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    let conn = open(&script.data());
    audit(&Look::File(script.data().join("sitemapd.db")));
    let pages: u32 = conn
        .query_row("SELECT count(*) FROM url_view WHERE url LIKE '%/page/%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(pages, script.pages());
}

/// Leases much and gives it back, which writes some MB to the log; `None` when
/// the daemon does not answer well.
async fn churn(api: &ApiClient) -> Option<()> {
    let body = json!({ "max": 1000, "ttl": "5m", "per_host": 1000 });
    let answer: Value = api.post("/v1/lease", &body).await.ok()?;
    let tokens: Vec<_> =
        answer["urls"].as_array().unwrap().iter().map(|url| url["token"].clone()).collect();
    assert!(!tokens.is_empty());
    let body = json!({ "tokens": tokens, "after": "0s" });
    api.post::<Value>("/v1/release", &body).await.ok().map(|_| ())
}

/// A folder with a store of many URLs, its config, and its database.
async fn much() -> (TempDir, PathBuf, PathBuf) {
    let text = "[store]\ndurability = \"normal\"\n".to_owned() + &site("a", "http://h0.test/", "");
    let queue = Queue::open(&text).await;
    queue.list_urls("a", (0..40_000).map(|n| format!("http://h{}.test/{n}", n % 40))).await;
    let (dir, look) = queue.into_folder();
    let config = write_config(dir.path(), &text);
    (dir, config, look.file().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_fails_while_the_log_is_moved_ends_the_process_too() {
    if !engine::is_embedded("its log") {
        return;
    }
    let (_dir, config, database) = much().await;
    let Some(disk) = Disk::below(database.parent().unwrap()) else { return };
    let mut daemon = Daemon::start_on(&config, Some(&disk));
    let api = daemon.client();
    churn(&api).await.unwrap();
    // With `normal` nothing else syncs.
    disk.arm(SYNC, 1, Fault::Error(EIO));
    let deadline = Instant::now() + DEADLINE;
    while churn(&api).await.is_some() {
        assert!(Instant::now() < deadline, "no sync failed");
    }
    assert_eq!(daemon.wait().code(), Some(1));
    let said = daemon.complaints();
    assert!(said.len() == 1 && said[0].contains("the disk failed"), "{said:?}");
    let mut daemon = Daemon::start(&config);
    churn(&daemon.client()).await.unwrap();
    daemon.kill();
    audit(&Look::File(database));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_bounded_under_steady_writing_and_shrinks_after_a_long_reader() {
    if !engine::is_embedded("its log") {
        return;
    }
    let (_dir, config, database) = much().await;
    let mut daemon = Daemon::start(&config);
    let api = daemon.client();
    let log = database.with_file_name("sitemapd.db-wal");
    let size = || std::fs::metadata(&log).map_or(0, |file| file.len());
    let mut largest = 0;
    let until = Instant::now() + Duration::from_secs(4);
    let mut number = 0;
    while Instant::now() < until {
        churn(&api).await.unwrap();
        number += 1;
        largest = size().max(largest);
    }
    // A reader that does not end keeps the log from beginning anew.
    let reader = Connection::open(&database).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM meta;").unwrap();
    let mut pinned = 0;
    let seconds = super::many("SITEMAPD_PINNED_SECONDS", 3);
    let until = Instant::now() + Duration::from_secs(seconds.into());
    let alone = number;
    while Instant::now() < until {
        churn(&api).await.unwrap();
        number += 1;
        pinned = size().max(pinned);
    }
    reader.execute_batch("ROLLBACK").unwrap();
    let deadline = Instant::now() + DEADLINE;
    let bound = 96 << 20;
    while size() > bound {
        churn(&api).await.unwrap();
        assert!(Instant::now() < deadline, "the log still has {} bytes", size());
    }
    println!(
        "{alone} rounds in 4 s, then {} in {seconds} s and after: {largest} bytes of log at most, \
         {pinned} with a reader",
        number - alone
    );
    assert!(largest < bound, "{largest}");
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
}
