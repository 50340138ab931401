//! SIGTERM drains, SIGHUP reloads.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sitemapd::fetch::api::ApiClient;
use tempfile::TempDir;

use crate::support::process::{DEADLINE, Daemon, complaints, refused, sitemapd, write_config};
use crate::support::queue_daemon::{Queue, site};

/// A folder whose store holds some URLs and polls nothing.
async fn filled(urls: usize) -> (TempDir, std::path::PathBuf) {
    let text = site("a", "http://127.0.0.1:9/", "");
    let queue = Queue::open(&text).await;
    queue.list_urls("a", (0..urls).map(|n| format!("http://h{}.test/{n}", n % 10))).await;
    let (dir, _) = queue.into_folder();
    let config = write_config(dir.path(), &text);
    (dir, config)
}

async fn lease(api: &ApiClient, max: u32) -> Vec<Value> {
    let body = json!({ "max": max, "ttl": "5m", "per_host": 100 });
    let answer: Value = api.post("/v1/lease", &body).await.unwrap();
    answer["urls"].as_array().unwrap().clone()
}

#[tokio::test]
async fn sigterm_drains_exits_0_and_leases_survive() {
    let (_dir, config) = filled(100).await;
    for signal in ["TERM", "INT"] {
        let mut daemon = Daemon::start(&config);
        let leased = lease(&daemon.client(), 10).await;
        assert_eq!(leased.len(), 10);
        // Somebody waits, and somebody keeps a connection open.
        let waiting = tokio::spawn({
            let api = daemon.client();
            async move {
                let body = json!({ "max": 1, "wait": "60s", "sites": ["a"], "crawl": "default", "ttl": "5m" });
                let _: Result<Value, _> = api.post("/v1/lease", &body).await;
            }
        });
        let idle = std::net::TcpStream::connect(daemon.addr).unwrap();
        let started = Instant::now();
        daemon.signal(signal);
        // By its own clock within 12 s; half a minute before who waits would have gone.
        assert_eq!(daemon.wait().code(), Some(0), "{signal}");
        assert!(started.elapsed() < Duration::from_secs(30), "{signal}");
        waiting.await.unwrap();
        drop(idle);

        let daemon = Daemon::start(&config);
        let results: Vec<_> = leased
            .iter()
            .map(|url| json!({ "token": url["token"], "outcome": "changed" }))
            .collect();
        let body = json!({ "results": results });
        let answer: Value = daemon.client().post("/v1/settle", &body).await.unwrap();
        for result in answer["results"].as_array().unwrap() {
            assert_eq!(result["result"], "ok");
        }
    }
}

/// Asks until the answer satisfies, or the deadline is over.
async fn until(api: &ApiClient, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let answer: Value = api.get(path, &[]).await.unwrap();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path} still says {answer}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn rewrite(config: &Path, text: &str) {
    write_config(config.parent().unwrap(), text);
}

#[tokio::test]
async fn sighup_with_a_bad_file_changes_nothing_and_with_a_good_one_takes_effect() {
    let (_dir, config) = filled(10).await;
    let a = site("a", "http://127.0.0.1:9/", "");
    let daemon = Daemon::start(&config);
    let before: Value = daemon.client().get("/v1/sites", &[]).await.unwrap();

    for bad in ["[[site]\n", "[queue]\nmax_attempts = 0\n", "[nonsense]\n"] {
        rewrite(&config, &format!("{bad}{a}"));
        daemon.signal("HUP");
        daemon.hear("nothing is changed");
        let after: Value = daemon.client().get("/v1/sites", &[]).await.unwrap();
        assert_eq!(after, before, "{bad}");
    }

    let b = site("b", "http://127.0.0.1:10/", "");
    rewrite(&config, &(a.clone() + &b));
    daemon.signal("HUP");
    daemon.hear("config reloaded");
    let two = |answer: &Value| answer.to_string().contains("127.0.0.1:10/");
    until(&daemon.client(), "/v1/sites", two).await;

    // A site that leaves is no longer leased, and keeps its rows.
    rewrite(&config, &b);
    daemon.signal("HUP");
    daemon.hear("config reloaded");
    assert!(lease(&daemon.client(), 100).await.is_empty());
    rewrite(&config, &(a + &b));
    daemon.signal("HUP");
    daemon.hear("config reloaded");
    assert_eq!(lease(&daemon.client(), 100).await.len(), 10);
}

#[tokio::test]
async fn a_start_that_the_store_refuses_for_its_configuration_is_a_wrong_configuration() {
    let (_dir, config) = filled(10).await;
    rewrite(&config, &site("a", "http://127.0.0.1:9/", "crawl = \"other\""));
    let output = refused(&config);
    let said = complaints(&output);
    assert_eq!(output.status.code(), Some(78), "{said:?}");
    assert!(said.len() == 1 && said[0].contains("cannot move to crawl"), "{said:?}");
    // An order that no daemon takes opens the store by the same configuration.
    let output = sitemapd(&config, &["queue", "pause"]).output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
}

#[tokio::test]
async fn a_reload_that_the_store_refuses_changes_nothing_and_says_so() {
    let (_dir, config) = filled(10).await;
    let daemon = Daemon::start(&config);
    // A site cannot move to another crawl: its URLs live in this one.
    let moved = site("a", "http://127.0.0.1:9/", "crawl = \"other\"");
    rewrite(&config, &(moved + &site("b", "http://127.0.0.1:10/", "")));
    daemon.signal("HUP");
    // Nor that it does what it was asked to.
    for told in daemon.hear_all("cannot move to crawl") {
        let told = told.to_string();
        assert!(!told.contains("a new site") && !told.contains("a changed site"), "{told}");
    }
    let sites: Value = daemon.client().get("/v1/sites", &[]).await.unwrap();
    assert!(!sites.to_string().contains("127.0.0.1:10/"), "{sites}");
    // The next good file is compared with what really holds.
    let a = site("a", "http://127.0.0.1:9/", "weight = 2.0");
    rewrite(&config, &a);
    daemon.signal("HUP");
    let reloaded = daemon.hear("config reloaded");
    assert_eq!(reloaded["removed"], 0, "{reloaded}");
    assert_eq!(reloaded["changed"], 1, "{reloaded}");
    daemon.hear("a changed site");
    assert_eq!(lease(&daemon.client(), 100).await.len(), 10);
}
