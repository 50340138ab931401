//! Start-up reads hosts, not URLs; the hot path walks indexes.

use std::time::Duration;

use rusqlite::Connection;

use crate::support::engine;
use crate::support::queue_daemon::{Queue, entry};

/// Statements of the source that touch the tables that grow with the URLs,
/// found in the files of the hot path and of the start.
fn statements() -> Vec<(&'static str, String)> {
    let files = [
        ("lease.rs", include_str!("../../../src/store/lease.rs")),
        ("given.rs", include_str!("../../../src/store/given.rs")),
        ("ending.rs", include_str!("../../../src/store/ending.rs")),
        ("extensions.rs", include_str!("../../../src/store/extensions.rs")),
        ("settle.rs", include_str!("../../../src/store/settle.rs")),
        ("turns.rs", include_str!("../../../src/store/turns.rs")),
        ("rows.rs", include_str!("../../../src/store/rows.rs")),
        ("hosts.rs", include_str!("../../../src/store/hosts.rs")),
        ("state.rs", include_str!("../../../src/store/state.rs")),
        ("schema.rs", include_str!("../../../src/store/schema.rs")),
        ("robots.rs", include_str!("../../../src/store/robots.rs")),
        ("recheck.rs", include_str!("../../../src/store/recheck.rs")),
        ("learn.rs", include_str!("../../../src/store/learn.rs")),
        ("worth.rs", include_str!("../../../src/store/worth.rs")),
        ("refine.rs", include_str!("../../../src/store/refine.rs")),
        ("pending.rs", include_str!("../../../src/store/pending.rs")),
        ("budget.rs", include_str!("../../../src/store/budget.rs")),
        ("ledger.rs", include_str!("../../../src/store/ledger.rs")),
        ("remove.rs", include_str!("../../../src/store/frontier/remove.rs")),
    ];
    let mut found = Vec::new();
    for (file, text) in files {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        // A statement is a string literal that starts with its verb.
        let mut literals = text.split('"').skip(1).step_by(2).peekable();
        while let Some(literal) = literals.next() {
            let verb = literal.split_whitespace().next().unwrap_or_default();
            let mut statement = literal.replace("{columns}", COLUMNS);
            // As statements of many rows end when they are made: the column is said
            // after them.
            if statement.ends_with(" WHERE")
                && let Some(column) = literals.peek()
            {
                statement = format!("{statement} {column} IN (?, ?, ?)");
            }
            if statement.ends_with(" IN (") {
                statement.push_str("?, ?)");
            }
            let is_whole = !statement.contains('{') && !statement.ends_with("VALUES");
            if ["SELECT", "UPDATE", "DELETE", "INSERT"].contains(&verb) && is_whole {
                found.push((file, statement));
            }
        }
    }
    found
}

/// What statements about whole URLs read of them: something of both tables.
const COLUMNS: &str = "u.id, u.said, f.place, f.record";

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut query = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let count = query.parameter_count();
    let none = rusqlite::params_from_iter((0..count).map(|_| Option::<i64>::None));
    query.query_map(none, |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn no_statement_of_the_hot_path_or_the_start_scans_urls_or_sorts() {
    if !engine::is_embedded("plans") {
        return;
    }
    let queue = Queue::simple().await;
    let conn = Connection::open(queue.look().file()).unwrap();
    let statements = statements();
    assert!(statements.len() > 30, "only {} statements were found", statements.len());
    // Sets are given to a server only (src/store/sql/set.rs), and only there are
    // partitions shared.
    let is_far = |sql: &str| ["unnest(", " partitions", " nodes"].iter().any(|w| sql.contains(w));
    for (file, sql) in statements.into_iter().filter(|(_, sql)| !is_far(sql)) {
        for line in plan(&conn, &sql) {
            let scans = [
                "urls",
                "u",
                "queue",
                "feedback",
                "f",
                "url_sources",
                "leases",
                "l",
                "extensions",
                "e",
            ];
            // Once at the start, where sites or crawls go, and for a Crawl-delay that is
            // meant for one token alone, all of them are looked at.
            let reads = sql.starts_with("SELECT") || sql.starts_with("UPDATE");
            let is_rare =
                ["schema.rs", "remove.rs"].contains(&file) || sql.contains("judged_for = ?1");
            let reads = reads && !is_rare;
            let sites: &[&str] = if reads { &["sites", "n"] } else { &[] };
            let scans = scans.iter().chain(sites).any(|table| {
                line == format!("SCAN {table}") || line.starts_with(&format!("SCAN {table} "))
            });
            assert!(!scans, "{file}: {line}\n{sql}");
            // The turns of hosts may be sorted, at the start, and the few
            // leases of one call.
            let few = sql.contains("FROM turns") || sql.contains("request_id = ");
            let sorts = line.contains("TEMP B-TREE") && !few;
            assert!(!sorts, "{file}: {line}\n{sql}");
        }
    }
}

#[tokio::test]
async fn a_store_opens_with_every_url_where_it_was() {
    let queue = Queue::simple().await;
    for host in 0..20 {
        let entries = (0..1_000).map(|n| entry(format!("http://h{host}.test/{n}")));
        queue.list("a", &entries.collect::<Vec<_>>()).await;
    }
    let first = queue.lease(100).await;
    let queue = queue.reopen(Duration::from_secs(1)).await;
    let mut seen: Vec<_> = first.into_iter().map(|leased| leased.id).collect();
    loop {
        let urls = queue.lease(1_000).await;
        if urls.is_empty() {
            break;
        }
        seen.extend(urls.into_iter().map(|leased| leased.id));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 20_000);
}
