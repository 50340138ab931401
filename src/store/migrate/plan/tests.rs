//! The plan against both schemas: nothing is forgotten, and nothing made up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::*;
use crate::store::server::SCHEMA;

/// Of no use on a server, which has the keys and the paths in the rows; and leases,
/// whose URLs go back into the queue.
const LEFT: [&str; 6] =
    ["abbreviations", "leases", "lookup_chunks", "lookup_filters", "lookup_runs", "lookup_tail"];

/// Keys of `meta` that mean on a server what they mean in a file.
const SAME: [&str; 9] = [
    "changes_dropped",
    "frontier_active",
    "frontier_delay_ms",
    "host_delay_ms",
    "placed_by",
    "public_url",
    "public_url_of",
    "seed",
    "weights",
];

/// Those that only a server has.
const SERVERS: [&str; 5] =
    ["changes_base", "migrated_from", "peers_secret", "polls_base", "settings"];

/// What such keys begin with as do not go: of walks, for which [`PLACED_BY`] says nothing
/// then, of crawls that are looked through, and of leases.
const BEGUN: [&str; 3] = ["empty:", "published:", "reseat:"];

type Tables = BTreeMap<String, BTreeSet<String>>;

fn of_the_file() -> Tables {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    conn.execute_batch(include_str!("../../../../schema.sql")).unwrap();
    let columns = "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_xinfo(m.name) c
                   WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut tables = Tables::new();
    let mut query = conn.prepare(columns).unwrap();
    let mut rows = query.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        tables.entry(row.get(0).unwrap()).or_default().insert(row.get(1).unwrap());
    }
    tables
}

fn of_the_server() -> Tables {
    let mut tables = Tables::new();
    let mut table = None;
    for line in SCHEMA.lines() {
        if let Some(name) = line.strip_prefix("CREATE TABLE ") {
            table = name.strip_suffix(" (").map(str::to_owned);
        } else if line.starts_with(')') {
            table = None;
        } else if let Some(table) = &table
            && let Some(name) = line.split_whitespace().next()
            && !["--", "PRIMARY", "UNIQUE", "UNIQUE,", "CHECK"].contains(&name)
            && !line.contains("GENERATED ALWAYS AS (")
        {
            let name = name.trim_matches('"').to_owned();
            tables.entry(table.clone()).or_default().insert(name);
        }
    }
    tables
}

fn planned() -> Tables {
    let mut tables = Tables::new();
    for step in steps().iter().filter(|step| step.name == step.table) {
        let names = step.columns.iter().map(|column| column.name.to_owned());
        tables.insert(step.table.to_owned(), names.collect());
    }
    tables
}

#[test]
fn every_column_of_the_file_is_known() {
    let mut file = of_the_file();
    for left in LEFT {
        assert!(file.remove(left).is_some(), "{left}");
    }
    // What paths go on from is computed; what is packed stands for columns.
    let packed: [(&str, &str, &[&str]); 4] = [
        ("hosts", "base", &[]),
        ("urls", "said", &said::ALL.map(Field::name)),
        ("feedback", "place", &place::ALL.map(Field::name)),
        ("queue", "owner", &["site_id", "valued"]),
    ];
    for (table, packed, apart) in packed {
        let columns = file.get_mut(table).unwrap();
        assert!(columns.remove(packed), "{table}.{packed}");
        columns.extend(apart.iter().map(|name| (*name).to_owned()));
    }
    let mut planned = planned();
    // Its key is made; the partition of a host is in its number.
    assert!(planned.get_mut("urls").unwrap().remove("key"));
    planned.get_mut("hosts").unwrap().insert("part".to_owned());
    assert_eq!(planned, file);
}

#[test]
fn every_column_of_the_server_is_filled() {
    let mut server = of_the_server();
    // Leases stay behind; who works on the store is for those who do.
    for own in ["leases", "nodes", "partitions"] {
        assert!(server.remove(own).is_some(), "{own}");
    }
    let mut filled = planned();
    for step in steps() {
        if step.part.is_some() {
            filled.get_mut(step.table).unwrap().insert("part".to_owned());
        }
    }
    assert_eq!(filled, server);
}

/// The keys of `meta` that the text of a module names: where a statement writes one by
/// its name, and below a comment that says what it is.
fn keys_in(text: &str) -> BTreeSet<String> {
    let is_key = |word: &&str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || "_:".contains(c))
    };
    let mut keys = BTreeSet::new();
    for after in text.split("INTO meta").skip(1) {
        let statement = after.split('"').next().unwrap();
        let values = statement.split("('").skip(1).filter_map(|value| value.split('\'').next());
        keys.extend(values.filter(is_key).map(str::to_owned));
    }
    let paragraphs = text.split("\n\n").filter(|part| {
        part.lines().any(|line| line.trim().starts_with("///") && line.contains("`meta`"))
    });
    for paragraph in paragraphs {
        keys.extend(paragraph.split('"').skip(1).step_by(2).filter(is_key).map(str::to_owned));
    }
    keys
}

fn keys_below(folder: &Path, keys: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            keys_below(&path, keys);
        } else if !path.ends_with("tests.rs") && path.extension().is_some_and(|ext| ext == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let used = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            keys.extend(keys_in(used));
        }
    }
}

#[test]
fn of_every_key_of_meta_it_is_known_what_becomes_of_it() {
    let mut keys = BTreeSet::new();
    keys_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store"), &mut keys);
    let known = SAME.into_iter().chain(SERVERS).chain(OWN).chain(BEGUN);
    assert_eq!(keys, known.map(str::to_owned).collect());
}

#[test]
fn what_comes_back_from_leases_fills_what_its_table_has() {
    let steps = steps();
    let named = |name| {
        let step: &Step = steps.iter().find(|step| step.name == name).unwrap();
        let columns: Vec<_> = step.columns.iter().map(|column| column.name).collect();
        (step.table, step.part, columns)
    };
    assert_eq!(named("leases"), named("queue"));
    assert_eq!(named("unwanted"), named("feedback"));
}

#[test]
fn every_statement_is_one_of_the_file_and_sorts_nothing() {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    conn.execute_batch(include_str!("../../../../schema.sql")).unwrap();
    for step in steps() {
        conn.prepare(&step.count()).unwrap();
        let explain = format!("EXPLAIN QUERY PLAN {}", step.select());
        let mut query = conn.prepare(&explain).unwrap();
        let plan: Vec<String> =
            query.query_map([0], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        // The leases that go back are summed up by host: few.
        let sorts = plan.iter().any(|line| line.contains("FOR ORDER BY"));
        assert!(!sorts, "{}: {plan:?}", step.name);
    }
}
