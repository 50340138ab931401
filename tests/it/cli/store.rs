//! Commands without a daemon: reading out of the store, and orders under its lock.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sitemapd::clock::Clock;
use sitemapd::config::{Config, Env};
use sitemapd::metrics::Metrics;
use sitemapd::model::Outcome;
use sitemapd::queue::LeaseRequest;
use sitemapd::store::Store;

use super::{outcome, sitemapd_in};
use crate::support::process::{DEADLINE, write_config};
use crate::support::queue_daemon::{Queue, ask, report, site};

/// A folder with a configuration of one site and the store of a daemon that
/// has ended. Nobody listens on port 9 (discard).
fn folder_with_store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let text =
        "[listen]\napi = \"127.0.0.1:9\"\n[[site]]\nname = \"a\"\nurl = \"https://a.example/\"\n";
    std::fs::write(folder.path().join("config.toml"), text).expect("a config");
    open(folder.path()).close();
    folder
}

fn open(folder: &Path) -> Store {
    let config = Config::load(&folder.join("config.toml"), &Env::empty()).expect("it is valid");
    Store::open(&config, Clock::system(), Arc::new(Metrics::new())).expect("it opens")
}

#[test]
fn without_a_daemon_the_store_is_read() {
    let folder = folder_with_store();
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
    let (code, out, err) = run(&["sites"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("https://a.example/"), "{out}");
    let (code, out, _) = run(&["status"]);
    assert_eq!(code, 0);
    assert!(out.contains("not running"), "{out}");
    let (code, out, _) = run(&["sources", "a", "--json"]);
    let value: Value = serde_json::from_str(&out).expect("json");
    assert_eq!((code, value["sources"][0]["site"].as_str()), (0, Some("a")));
    for line in run(&["sources"]).1.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn a_copy_is_of_this_machine_and_needs_no_token_of_the_daemon() {
    let folder = folder_with_store();
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
    let api = ["--api", "http://127.0.0.1:9", "backup", "c.db"];
    for args in [&api[..], &["--api", "http://127.0.0.1:9", "migrate"]] {
        let (code, _, err) = run(args);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("--api is where commands find a daemon"), "{err}");
    }
    assert!(!folder.path().join("c.db").exists());
    // The token is in the environment of the service.
    let config = folder.path().join("config.toml");
    let text = std::fs::read_to_string(&config).expect("a config");
    std::fs::write(&config, text.replace("127.0.0.1:9", "0.0.0.0:9")).expect("written");
    for args in [&["backup", "c.db"][..], &["export"]] {
        let (code, _, err) = run(args);
        assert_eq!(code, 0, "{err}");
    }
    let (code, _, err) = run(&["config", "check"]);
    assert_eq!(code, 78, "{err}");
    let mut by_api = sitemapd_in(folder.path());
    let (code, _, err) = outcome(by_api.env("SITEMAPD_API", "http://x").args(["backup", "d.db"]));
    assert_eq!(code, 0, "in the environment it is for all commands: {err}");
}

#[test]
fn without_a_daemon_an_order_is_carried_out_under_the_lock() {
    let folder = folder_with_store();
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
    let (code, out, err) = run(&["queue", "pause"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(run(&["queue", "stats"]).1.contains("(paused)"));
    assert!(run(&["queue", "peek"]).1.contains("default is paused"));
    assert!(run(&["status"]).1.contains("not running"));
    let held = open(folder.path());
    let out = run(&["status"]).1;
    let holder = format!("(process {}) works on this folder", std::process::id());
    assert!(out.contains(&holder), "{out}");
    let (code, _, err) = run(&["queue", "resume"]);
    assert_eq!(code, 1);
    assert!(err.contains("in use"), "{err}");
    held.close();
    drop(held);
    assert_eq!(run(&["queue", "resume"]).0, 0);
    assert!(!run(&["queue", "stats"]).1.contains("(paused)"));
    assert_eq!(run(&["sites", "pause", "no such site"]).0, 1);
    for (order, state) in [("pause", "paused"), ("resume", "active")] {
        let (code, out, err) = run(&["sites", order, "a", "--json"]);
        assert!(code == 0 && out.contains(&format!("\"state\": \"{state}\"")), "{out}{err}");
    }
}

#[test]
fn without_a_configuration_an_order_that_no_daemon_takes_is_refused() {
    let folder = folder_with_store();
    let (from, to) = (folder.path().join("config.toml"), folder.path().join("sitemapd.toml"));
    std::fs::rename(from, to).expect("it has a name of its own");
    let run = |args: &[&str]| {
        let mut command = sitemapd_in(folder.path());
        outcome(command.env("SITEMAPD__LISTEN__API", "127.0.0.1:9").args(args))
    };
    // To whoever opens the store without it no site is registered, not even this.
    for order in [&["sites", "forget", "a"][..], &["queue", "pause"]] {
        let (code, out, err) = run(order);
        assert_eq!((code, out.as_str()), (78, ""), "{order:?}");
        assert!(err.contains("--config"), "{err}");
    }
    let (code, out, _) = run(&["sites", "--config", "sitemapd.toml", "--json"]);
    let value: Value = serde_json::from_str(&out).expect("json");
    assert_eq!((code, value["sites"][0]["state"].as_str()), (0, Some("active")));
    assert_eq!(run(&["queue", "pause", "--config", "sitemapd.toml"]).0, 0);
}

#[test]
fn an_order_makes_no_store_where_there_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder in it");
    std::fs::write(folder.path().join("config.toml"), "[listen]\napi = \"127.0.0.1:9\"\n")
        .expect("a config");
    let (code, _, err) = outcome(sitemapd_in(folder.path()).args(["queue", "pause"]));
    assert_eq!(code, 1);
    assert!(err.contains("no daemon"), "{err}");
    assert_eq!(std::fs::read_dir(&data).expect("it is there").count(), 0);
}

#[test]
fn a_site_is_forgotten_only_when_it_is_no_longer_registered() {
    let folder = folder_with_store();
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
    let (code, _, err) = run(&["sites", "forget", "a"]);
    assert_eq!(code, 1);
    assert!(err.contains('a'), "{err}");
    let text = "[listen]\napi = \"127.0.0.1:9\"\n";
    std::fs::write(folder.path().join("config.toml"), text).expect("a config");
    let (code, out, err) = run(&["sites", "forget", "a"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("forgot a"), "{out}");
    assert!(!run(&["sites"]).1.contains("https://a.example/"));
}

#[tokio::test]
async fn dead_letters_are_listed_and_put_back_by_their_crawl() {
    let text = "[queue]\nmax_attempts = 1\n".to_owned()
        + &site("a", "http://a.test/", "crawl = \"news\"")
        + &site("b", "http://b.test/", "");
    let queue = Queue::open(&text).await;
    queue.list_urls("a", ["http://a.test/1", "http://a.test/2"].map(str::to_owned)).await;
    queue.list_urls("b", ["http://b.test/3".to_owned()]).await;
    for (crawl, urls) in [("news", 2), ("default", 1)] {
        let request = LeaseRequest { crawl: crawl.to_owned(), per_host: 10, ..ask(10) };
        let leased = queue.lease_as(request).await.urls;
        assert_eq!(leased.len(), urls);
        for url in leased {
            queue.settle(url.token, Outcome::Failed).await;
        }
    }
    let (folder, _) = queue.into_folder();
    write_config(folder.path(), &text);
    let run = |args: &[&str]| {
        let (code, out, err) = outcome(sitemapd_in(folder.path()).arg("queue").args(args));
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        out
    };
    let out = run(&["dead"]);
    assert!(out.contains("crawl") && out.contains("news") && out.contains("default"), "{out}");
    let out = run(&["dead", "--crawl", "default"]);
    assert!(out.contains("b.test/3") && !out.contains("a.test"), "{out}");
    let more = "there are more";
    assert!(run(&["dead", "--limit", "2"]).contains(more));
    assert!(!run(&["dead", "--limit", "2", "--crawl", "news"]).contains(more));
    let unknown = ["queue", "dead", "--crawl", "typo"];
    let (code, _, err) = outcome(sitemapd_in(folder.path()).args(unknown));
    assert!(code == 1 && err.contains("typo"), "{err}");

    let others = "dead in crawl news: 2 URLs; put back with --crawl news\n";
    let out = run(&["replay", "http://a.test/1"]);
    let none = "put back 0 URLs\nno dead letters of crawl default: 1 URL\n";
    assert_eq!(out, none.to_owned() + others);
    assert_eq!(run(&["replay", "--all"]), "put back 1 URL\n".to_owned() + others);
    assert_eq!(run(&["replay", "http://a.test/1", "--crawl", "news"]), "put back 1 URL\n");
    assert_eq!(run(&["replay", "--all", "--crawl", "news"]), "put back 1 URL\n");
}

#[test]
fn blocks_are_listed_while_no_daemon_runs() {
    let folder = folder_with_store();
    let run = |args: &[&str]| {
        let (code, out, err) = outcome(sitemapd_in(folder.path()).arg("queue").args(args));
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        out
    };
    assert_eq!(run(&["blocks"]), "nothing is blocked\n");
    run(&["block", "--prefix", "https://a.example/private/"]);
    let out = run(&["blocks"]);
    assert!(out.contains("https://a.example/private/") && out.contains("prefix"), "{out}");
    let value: Value = serde_json::from_str(&run(&["blocks", "--json"])).expect("json");
    assert_eq!(value["blocks"][0]["prefix"], "https://a.example/private/");
    assert_eq!(value["next"], Value::Null);
}

#[test]
fn a_store_on_a_server_is_not_copied_to_a_file_which_is_no_wrong_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[store]\nurl = \"postgres://127.0.0.1:9/none\"\n";
    write_config(folder.path(), text);
    let (code, _, err) = outcome(sitemapd_in(folder.path()).args(["backup", "copy.db"]));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("pg_dump"), "{err}");
}

/// A folder with a store that lists these pages of one site.
async fn folder_listing(urls: &[&str], at: &str) -> (Queue, String) {
    let text = site("a", "http://a.test/", "");
    let queue = Queue::open_on(&text, Clock::manual(at.parse().expect("a time"))).await;
    queue.list_urls("a", urls.iter().map(|&url| url.to_owned())).await;
    (queue, text)
}

#[tokio::test]
async fn what_is_exported_is_imported_elsewhere_where_the_same_is_listed() {
    let urls = ["http://a.test/fetched", "http://a.test/never"];
    let (queue, text) = folder_listing(&urls, "2026-11-21T00:00:00Z").await;
    let leased = queue.lease_one().await;
    let mut result = report(leased.token, Outcome::Changed);
    result.content_hash = Some("one".to_owned());
    result.hash_kind = Some("sha-1".to_owned());
    queue.settle_as(result).await;
    let before = queue.view(&leased.url).await;
    let (folder, _) = queue.into_folder();
    write_config(folder.path(), &text);
    let (code, exported, err) = outcome(sitemapd_in(folder.path()).arg("export"));
    assert_eq!((code, exported.lines().count()), (0, 2), "{err}");

    let (queue, text) = folder_listing(&urls, "2026-11-22T00:00:00Z").await;
    let (folder, _) = queue.into_folder();
    write_config(folder.path(), &text);
    let log = folder.path().join("exported.jsonl");
    std::fs::write(&log, &exported).expect("written");
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
    let (code, out, err) = run(&["import", "exported.jsonl"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("took in 1 fetch;") && out.contains("1 line without"), "{out}");
    let (_, out, _) = run(&["export"]);
    let fields = ["url", "fetched_at", "content_hash", "hash_kind", "fetches"];
    let told = |text: &str| -> Vec<Value> {
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("json"));
        lines.map(|line: Value| fields.iter().map(|field| line[field].clone()).collect()).collect()
    };
    assert_eq!(before.fetches, 1);
    assert_eq!(told(&out), told(&exported));
    let (_, out, _) = run(&["import", "exported.jsonl", "--json"]);
    let sums: Value = serde_json::from_str(&out).expect("json");
    assert_eq!(sums, json!({ "taken": 0, "unknown": 0, "ignored": 1, "unfetched": 1 }));
    // A page with thousands of images makes a line of its own size.
    let images =
        format!("{{\"images\":[{}\"\"],", format!("\"{}\",", "i".repeat(96)).repeat(5_000));
    let with_images: String =
        exported.lines().map(|line| line.replacen('{', &images, 1) + "\n").collect();
    assert!(with_images.len() > 900_000);
    std::fs::write(&log, with_images).expect("written");
    let (code, _, err) = run(&["import", "exported.jsonl"]);
    assert_eq!((code, err.as_str()), (0, ""));
}

#[tokio::test]
async fn an_export_of_a_name_that_nobody_knows_is_no_empty_file() {
    let (queue, text) = folder_listing(&["http://a.test/1"], "2026-11-21T00:00:00Z").await;
    let (folder, _) = queue.into_folder();
    write_config(folder.path(), &text);
    for (option, known) in [("--crawl", "default"), ("--site", "a")] {
        let run = |name: &str| outcome(sitemapd_in(folder.path()).args(["export", option, name]));
        let (code, out, _) = run(known);
        assert_eq!((code, out.lines().count()), (0, 1));
        let (code, out, err) = run("typo");
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains("\"typo\""), "{err}");
    }
}

#[tokio::test]
async fn what_stands_before_a_wrong_line_of_a_log_is_taken_in_and_said() {
    let urls = [1, 2, 3, 4].map(|n| format!("http://a.test/{n}"));
    let urls = urls.each_ref().map(String::as_str);
    let (queue, text) = folder_listing(&urls, "2026-11-22T00:00:00Z").await;
    let (folder, look) = queue.into_folder();
    write_config(folder.path(), &text);
    let line = |url: &str| format!("{{\"url\": \"{url}\", \"time\": \"2026-11-01T00:00:00Z\"}}\n");
    let mut log: String = urls[..3].iter().map(|url| line(url)).collect();
    log += "{\"url\": \"http://a.test/4\"}\n";
    log += &line(urls[3]);
    std::fs::write(folder.path().join("log.jsonl"), log).expect("written");
    let (code, out, err) = outcome(sitemapd_in(folder.path()).args(["import", "log.jsonl"]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("line 4: ") && err.contains("took in 3 fetches"), "{err}");
    assert_eq!(look.number("SELECT count(*) FROM feedback"), 3);
}

#[tokio::test]
async fn a_url_of_several_crawls_names_the_others() {
    let text = site("a", "http://a.test/", "crawl = \"news\"") + &site("b", "http://a.test/", "");
    let queue = Queue::open(&text).await;
    for of in ["a", "b"] {
        queue.list_urls(of, ["http://a.test/1".to_owned()]).await;
    }
    let (folder, _) = queue.into_folder();
    write_config(folder.path(), &text);
    let run = |args: &[&str]| {
        let url = ["url", "http://a.test/1"];
        let (code, out, err) = outcome(sitemapd_in(folder.path()).args(url).args(args));
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        out
    };
    let value: Value = serde_json::from_str(&run(&["--json"])).expect("json");
    let (first, other) = match value["crawl"].as_str() {
        Some("news") => ("news", "default"),
        _ => ("default", "news"),
    };
    assert_eq!(value["other_crawls"], json!([other]), "{value}");
    let told = run(&[]);
    assert!(told.contains(&format!("also in   crawl {other}")), "{told}");
    let told = run(&["--crawl", first]);
    assert!(!told.contains("also in"), "{told}");
}

#[tokio::test]
async fn a_url_that_another_crawl_has_is_said_to_be_there() {
    let text = site("a", "http://a.test/", "crawl = \"news\"") + &site("b", "http://b.test/", "");
    let queue = Queue::open(&text).await;
    queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
    let (folder, _) = queue.into_folder();
    write_config(folder.path(), &text);
    let run = |url: &str| {
        let asked = ["url", "--crawl", "default", url];
        let (code, _, err) = outcome(sitemapd_in(folder.path()).args(asked));
        assert_eq!(code, 1, "{err}");
        err
    };
    assert_eq!(
        run("http://a.test/1"),
        "sitemapd: http://a.test/1 is not known in crawl \"default\"; in crawl \"news\" it is\n"
    );
    assert_eq!(
        run("http://a.test/2"),
        "sitemapd: http://a.test/2 is not known: no source of this store has listed it\n"
    );
}

#[tokio::test]
async fn an_import_without_a_daemon_keeps_the_store_from_its_first_batch_to_its_end() {
    let (queue, text) = folder_listing(&["http://a.test/1"], "2026-11-22T00:00:00Z").await;
    let (folder, look) = queue.into_folder();
    write_config(folder.path(), &text);
    let mut import = Process::new(assert_cmd::cargo::cargo_bin("sitemapd"))
        .args(["import", "-"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut log = import.stdin.take().expect("a pipe");
    let line = "{\"url\": \"http://a.test/1\", \"time\": \"2026-11-01T00:00:00Z\"}\n";
    // A whole batch; those after it are still to come.
    log.write_all(line.repeat(5_000).as_bytes()).expect("it reads");
    let deadline = Instant::now() + DEADLINE;
    while look.number("SELECT count(*) FROM feedback") == 0 {
        assert!(Instant::now() < deadline, "nothing is taken in");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Between two batches nobody else gets it.
    for _ in 0..20 {
        let held = folder.path().join("data/sitemapd.lock");
        let held = std::fs::File::open(held).expect("it is there");
        assert!(held.try_lock().is_err(), "it was let go");
        std::thread::sleep(Duration::from_millis(10));
    }
    log.write_all(line.as_bytes()).expect("it reads");
    drop(log);
    let output = import.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("took in 1 fetch;"));
}
