//! What the documents say is so: names, routes, files, tests and the schema.
//!
//! README's help text and commands are looked after by `readme`, the example
//! configuration by the tests of `config`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::diff::snapshot::EntryHints;
use sitemapd::metrics::{Format, Metrics};
use sitemapd::model::{ChangeFreq, Priority};
use sitemapd::store::Store;
use tempfile::TempDir;

use crate::walls::sources;

const SCHEMA: &str = include_str!("../../schema.sql");
const EXAMPLE: &str = include_str!("../../config.example.toml");

const DOCUMENTS: [&str; 8] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/ARCHITECTURE.md",
    "docs/CLIENTS.md",
    "docs/OPERATIONS.md",
    "docs/RECRAWL.md",
    "docs/RELIABILITY.md",
];

fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) fn document(path: &str) -> String {
    fs::read_to_string(at_root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between backticks, in one line.
fn quoted(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with("```"));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// A store of its own, opened and closed again.
async fn fresh_store() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let text = "[[site]]\nname = \"a\"\nurl = \"https://example.org/\"\n";
    let mut config = Config::from_toml_str(text).unwrap();
    config.daemon.data_dir = dir.path().to_owned();
    let metrics = Arc::new(Metrics::new());
    let counted = Arc::clone(&metrics);
    let store = tokio::task::spawn_blocking(move || {
        Store::open(&config, Clock::system(), counted).unwrap()
    })
    .await
    .unwrap();
    let scrape = metrics.encode(Some(&store.status().await.unwrap()), Format::OpenMetrics);
    tokio::task::spawn_blocking(move || store.close()).await.unwrap();
    (dir, scrape)
}

/// Everything that a database declares, but for the engine's own tables.
fn declared(db: &Connection) -> BTreeSet<(String, String, String)> {
    let mut query = db
        .prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
        .unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_fresh_store_is_exactly_what_schema_sql_says() {
    let (dir, _) = fresh_store().await;
    let real = Connection::open(dir.path().join("sitemapd.db")).unwrap();
    let told = Connection::open_in_memory().unwrap();
    told.execute_batch(SCHEMA).unwrap();
    assert_eq!(declared(&real), declared(&told));
    assert!(declared(&told).len() > 20);
}

#[tokio::test]
async fn the_version_of_the_schema_is_told_alike_everywhere() {
    let (dir, _) = fresh_store().await;
    let real = Connection::open(dir.path().join("sitemapd.db")).unwrap();
    let version: i64 = real.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert!(SCHEMA.starts_with(&format!("-- sitemapd's store, version {version}.")), "schema.sql");
    let formats = document("docs/FORMATS.md").replace('\n', " ");
    let told = format!("`PRAGMA user_version` the version of the schema ({version})");
    assert!(formats.contains(&told), "docs/FORMATS.md");
}

#[test]
fn the_view_for_people_unpacks_hints_as_the_program_packs_them() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(SCHEMA).unwrap();
    db.execute_batch(
        "INSERT INTO crawls (id, name) VALUES (1, 'default');
         INSERT INTO hosts (id, authority, name, part, delay_ms)
             VALUES (1, 'https://example.org', 'example.org', 0, 0);",
    )
    .unwrap();
    let freqs = [None].into_iter().chain(ChangeFreq::ALL.map(Some));
    for (id, changefreq) in (1_i64..).zip(freqs) {
        for thousandths in [None, Some(0), Some(1), Some(500), Some(999), Some(1_000)] {
            let priority = thousandths.and_then(Priority::from_thousandths);
            let hints = EntryHints { changefreq, priority };
            db.execute(
                "INSERT OR REPLACE INTO urls
                     (id, crawl_id, host_id, path, said)
                 VALUES (?1, 1, 1, '/', 1 | (?2 << 7))",
                (id, hints.to_bits()),
            )
            .unwrap();
            let shown: (Option<String>, Option<f64>, String) = db
                .query_row(
                    "SELECT changefreq, priority, url FROM url_view WHERE id = ?1",
                    [id],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .unwrap();
            assert_eq!(shown.0.as_deref(), changefreq.map(ChangeFreq::as_str), "{hints:?}");
            assert_eq!(shown.1, priority.map(Priority::as_f64), "{hints:?}");
            assert_eq!(shown.2, "https://example.org/");
        }
    }
}

#[tokio::test]
async fn every_metric_stands_in_operations_and_no_other() {
    let families = metric_families();
    let (_dir, scrape) = fresh_store().await;
    let shown = scrape.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    // Those of the process are named alike everywhere.
    for family in shown.filter(|family| !family.starts_with("process_")) {
        assert!(families.contains(family), "{family} is registered in a way not looked for");
    }
    let text = document("docs/OPERATIONS.md");
    let told: BTreeSet<&str> = quoted(&text)
        .into_iter()
        .flat_map(|quote| quote.split(|c: char| !(c.is_ascii_lowercase() || c == '_')))
        .filter(|word| word.starts_with("sitemapd_"))
        .collect();
    let is_of = |name: &str, family: &str| {
        let suffix = name.strip_prefix(family);
        suffix.is_some_and(|rest| ["", "_total", "_info"].contains(&rest))
    };
    for family in &families {
        assert!(told.iter().any(|name| is_of(name, family)), "{family} is not explained");
    }
    for name in told {
        assert!(families.iter().any(|family| is_of(name, family)), "there is no metric {name}");
    }
}

/// Names of all metrics as their module registers them: a scrape leaves out
/// those with labels until they are first counted.
pub(crate) fn metric_families() -> BTreeSet<String> {
    let families = families_in(&(document("src/metrics.rs") + &document("src/metrics/gauges.rs")));
    assert!(families.len() > 25, "{families:?}");
    families
}

/// The families that some code registers.
pub(crate) fn families_in(code: &str) -> BTreeSet<String> {
    let calls = [("register(", ""), ("register_with_unit(", "_seconds"), (" one(", "")];
    let mut families = BTreeSet::new();
    for (call, unit) in calls {
        for rest in code.split(call).skip(1) {
            if let Some(rest) = rest.trim_start().strip_prefix('"') {
                let name = rest.split('"').next().unwrap();
                families.insert(format!("sitemapd_{name}{unit}"));
            }
        }
    }
    families
}

#[test]
fn every_route_stands_in_the_readme_and_no_other() {
    let code = document("src/serve/mod.rs");
    let routes: BTreeSet<&str> = [".get(", ".post(", ".delete("]
        .iter()
        .flat_map(|call| code.split(call).skip(1))
        .filter_map(|rest| rest.trim_start().strip_prefix('"'))
        .filter(|rest| !rest.starts_with("/status.css"))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(routes.len() > 25, "{routes:?}");
    let text = document("README.md");
    let quotes = quoted(&text);
    let told: BTreeSet<&str> = quotes
        .iter()
        .flat_map(|quote| quote.split_whitespace())
        .filter_map(|word| word.starts_with('/').then(|| word.split('?').next()).flatten())
        .collect();
    for route in &routes {
        assert!(told.contains(route), "{route} is not in the README");
    }
    for word in told.iter().filter(|word| word.starts_with("/v1/")) {
        assert!(routes.contains(word), "{word} is no route");
    }
}

#[test]
fn every_configuration_key_that_a_document_names_exists() {
    let known = example_keys();
    let sections: BTreeSet<&str> = known.iter().filter_map(|key| key.split('.').next()).collect();
    let mut seen = 0;
    for path in DOCUMENTS {
        let text = document(path);
        for quote in quoted(&text) {
            let key = quote.split([' ', '=', '(']).next().unwrap();
            let is_key = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'.');
            let Some((section, _)) = key.split_once('.').filter(|_| is_key) else { continue };
            let is_file = [".rs", ".md", ".toml", ".sql", ".db", ".lock", ".json"]
                .iter()
                .any(|ending| key.ends_with(ending));
            if sections.contains(section) && !is_file {
                seen += 1;
                assert!(known.contains(key), "{path} names {key}");
            }
        }
    }
    assert!(seen > 10, "only {seen} keys were found");
}

/// `section.key` for all keys of the example, those in comments too.
pub(crate) fn example_keys() -> BTreeSet<String> {
    let mut section = "";
    let mut keys = BTreeSet::new();
    for line in EXAMPLE.lines() {
        let line = line.trim_start_matches("# ");
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_start_matches('[').split(']').next().unwrap();
            keys.insert(section.to_owned());
        } else if let Some((key, _)) = line.split_once(" = ")
            && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        {
            keys.insert(format!("{section}.{key}"));
        }
    }
    assert!(keys.contains("poll.removal_polls") && keys.contains("listen.token_file"));
    keys
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut links = 0;
    for path in DOCUMENTS {
        let text = document(path);
        let folder = at_root(path).parent().unwrap().to_owned();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let file = target.split('#').next().unwrap();
            links += 1;
            assert!(file.is_empty() || folder.join(file).exists(), "{path} links to {target}");
        }
    }
    assert!(links > 5);
}

#[test]
fn every_file_and_test_that_a_document_names_exists() {
    let sources = sources();
    let mut code: Vec<String> = sources.iter().map(|source| source.text.clone()).collect();
    let mut folders = vec![at_root("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                code.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    let (mut tests, mut files) = (0, 0);
    for path in DOCUMENTS {
        let text = document(path);
        for quote in quoted(&text) {
            let is_name = quote.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            if is_name && quote.matches('_').count() >= 4 && !quote.starts_with("sitemapd_") {
                tests += 1;
                let declared = format!("fn {quote}(");
                assert!(code.iter().any(|code| code.contains(&declared)), "{path}: test {quote}");
            }
            if ["src/", "tests/", "docs/"].iter().any(|root| quote.starts_with(root)) {
                files += 1;
                assert!(at_root(quote).exists(), "{path}: {quote}");
            }
        }
    }
    assert!(tests > 20 && files > 20, "{tests} tests and {files} files are named");
}

#[test]
fn the_script_of_all_checks_runs_the_tests_of_the_readme_and_its_demo() {
    let script = document(".ci/run");
    let says_what_it_spares = "\nskip \"cargo run --release: ";
    for command in ["\ncargo test\n", "/sitemapd\" demo --for 15s\n", says_what_it_spares] {
        assert!(script.contains(command), "{command}");
    }
    assert!(script.starts_with("#!/usr/bin/env bash\n") && script.contains("set -euo pipefail"));
}
