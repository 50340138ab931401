//! What the daemon will not start on: one clear line, a failing exit code, and
//! nothing overwritten.

use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::daemon::sitemap;
use crate::support::disk::{Disk, Fault, OPEN, WRITE};
use crate::support::engine::is_embedded;
use crate::support::process::{
    Daemon, complaints, refused, sitemapd, write_config, write_config_at,
};
use crate::support::queue_daemon::{Queue, site};
use crate::support::{Origin, Reply};

fn home() -> String {
    site("a", "http://127.0.0.1:9/", "")
}

/// A folder with a config, and the place of its database.
fn folder() -> (TempDir, std::path::PathBuf, std::path::PathBuf) {
    let dir = TempDir::new().unwrap();
    let config = write_config(dir.path(), &home());
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let database = dir.path().join("data/sitemapd.db");
    (dir, config, database)
}

/// A store with some URLs, at `database`.
async fn make_store(database: &Path) {
    make_store_of(database, &home(), (0..2_000).map(|n| format!("http://a.test/{n}"))).await;
}

/// The same of this site and these URLs.
async fn make_store_of(database: &Path, site: &str, urls: impl Iterator<Item = String>) {
    let queue = Queue::open(site).await;
    queue.list_urls("a", urls).await;
    queue.store.close();
    std::fs::copy(queue.folder().join("sitemapd.db"), database).unwrap();
}

/// The daemon refuses the folder with one line that says `words`, and leaves
/// the file as it is.
fn assert_refused(config: &Path, database: &Path, words: &str) {
    let before = std::fs::read(database).ok();
    let output = refused(config);
    let said = complaints(&output);
    assert_eq!(output.status.code(), Some(1), "{said:?}");
    assert_eq!(said.len(), 1, "one line: {said:?}");
    assert!(said[0].contains(words) && said[0].contains("sitemapd.db"), "{said:?}");
    assert_eq!(std::fs::read(database).ok(), before, "the file was touched");
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    if !is_embedded("a refused database") {
        return;
    }
    let (_dir, config, database) = folder();
    make_store(&database).await;
    let conn = Connection::open(&database).unwrap();
    conn.pragma_update(None, "user_version", 1_000).unwrap();
    conn.close().unwrap();
    assert_refused(&config, &database, "newer");
}

#[test]
fn a_database_of_another_program_is_refused_and_left_alone() {
    if !is_embedded("a refused database") {
        return;
    }
    for (sql, about) in [
        ("CREATE TABLE notes (text TEXT)", "with tables"),
        ("PRAGMA application_id = 42; PRAGMA user_version = 7", "still empty"),
    ] {
        let (_dir, config, database) = folder();
        Connection::open(&database).unwrap().execute_batch(sql).unwrap();
        assert!(std::fs::metadata(&database).unwrap().len() > 0, "{about}");
        assert_refused(&config, &database, "another program");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    if !is_embedded("a refused database") {
        return;
    }
    let (_dir, config, database) = folder();
    std::fs::write(&database, "just some text, long enough to be read as a header ".repeat(100))
        .unwrap();
    assert_refused(&config, &database, "not a database");
}

#[tokio::test]
async fn a_damaged_store_is_refused_and_left_alone() {
    if !is_embedded("a refused database") {
        return;
    }
    // The first page holds the schema; of the second half nothing is left.
    for damage in ["schema", "half"] {
        let (_dir, config, database) = folder();
        make_store(&database).await;
        let mut bytes = std::fs::read(&database).unwrap();
        match damage {
            "schema" => bytes[100..4_000].fill(0xa5),
            _ => bytes.truncate(bytes.len() / 2),
        }
        std::fs::write(&database, bytes).unwrap();
        assert_refused(&config, &database, "");
    }
}

/// Overwrites the first page of a table; says where that was.
fn damage(database: &Path, table: &str) {
    let conn = Connection::open(database).unwrap();
    let page: u32 = conn
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [table], |row| row.get(0))
        .unwrap();
    drop(conn);
    let file = std::fs::OpenOptions::new().write(true).open(database).unwrap();
    file.write_all_at(&[0xa5; 4_096], u64::from(page - 1) * 4_096).unwrap();
}

#[tokio::test]
async fn a_damaged_page_anywhere_in_a_small_store_is_found_at_the_start() {
    if !is_embedded("a refused database") {
        return;
    }
    for table in ["polls", "feedback", "lookup_chunks", "queue"] {
        let (_dir, config, database) = folder();
        make_store(&database).await;
        damage(&database, table);
        assert_refused(&config, &database, "is damaged");
    }
}

#[tokio::test]
async fn a_damaged_page_that_is_met_at_work_ends_the_daemon() {
    if !is_embedded("a refused database") {
        return;
    }
    let (_dir, config, database) = folder();
    make_store(&database).await;
    let conn = Connection::open(&database).unwrap();
    // Too large to be read whole at the start.
    conn.execute("INSERT INTO meta VALUES ('ballast', zeroblob(20000000))", []).unwrap();
    conn.close().unwrap();
    // The first poll writes there.
    damage(&database, "polls");
    let mut daemon = Daemon::start(&config);
    assert_eq!(daemon.wait().code(), Some(1));
    let said = daemon.complaints();
    assert!(said.len() == 1 && said[0].contains("damaged"), "{said:?}");
}

#[tokio::test]
async fn a_damaged_lookup_that_is_met_at_work_ends_the_daemon() {
    if !is_embedded("a refused database") {
        return;
    }
    for damage in [
        "UPDATE lookup_chunks SET data = CAST(data || x'00' AS BLOB)",
        "UPDATE lookup_filters SET bits = CAST(bits || x'00' AS BLOB)",
    ] {
        let (dir, config, database) = folder();
        let origin = Origin::start().await;
        let base = origin.base();
        // More than wait outside of the packed part.
        let paths: Vec<_> = (0..6_000).map(|n| format!("/{n}")).collect();
        let all: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
        origin.set("/sitemap-a.xml", Reply::xml(sitemap(&base, &all)));
        let home = site("a", &format!("{base}/"), "");
        let text = format!("[fetch]\nallow = [\"{}\"]\n{home}", origin.addr());
        assert_eq!(write_config(dir.path(), &text), config);
        make_store_of(&database, &home, paths.iter().map(|path| format!("{base}{path}"))).await;
        let conn = Connection::open(&database).unwrap();
        assert!(conn.execute(damage, []).unwrap() > 0, "{damage}");
        conn.close().unwrap();
        let mut daemon = Daemon::start(&config);
        assert_eq!(daemon.wait().code(), Some(1), "{damage}");
        let said = daemon.complaints();
        assert!(said.len() == 1 && said[0].contains("lookup is damaged"), "{said:?}");
    }
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_is_refused_and_left_alone() {
    const EACCES: i64 = 13;
    const EROFS: i64 = 30;
    if !is_embedded("a refused database") {
        return;
    }
    // Of the lock, the database, its log; and a disk that lets things be
    // opened and not written.
    for (kinds, nth, errno) in [
        (OPEN, 1, EACCES),
        (OPEN, 2, EACCES),
        (OPEN, 1, EROFS),
        (OPEN, 2, EROFS),
        (WRITE, 1, EROFS),
        (WRITE, 2, EROFS),
    ] {
        let (_dir, config, database) = folder();
        make_store(&database).await;
        let Some(disk) = Disk::below(database.parent().unwrap()) else { return };
        disk.arm(kinds, nth, Fault::Errors(errno));
        let before = std::fs::read(&database).unwrap();
        let Err((status, said)) = Daemon::try_start(&config, Some(&disk)) else {
            panic!("it started: {kinds} {nth} {errno}")
        };
        assert_eq!((status.code(), said.len()), (Some(1), 1), "{said:?}");
        assert!(said[0].contains(database.parent().unwrap().to_str().unwrap()), "{said:?}");
        assert_eq!(std::fs::read(&database).unwrap(), before, "the file was touched");
    }
}

#[tokio::test]
async fn a_start_on_a_full_disk_names_the_folder_and_goes_well_once_there_is_room() {
    if !is_embedded("a refused database") {
        return;
    }
    let (_dir, config, database) = folder();
    make_store(&database).await;
    let data = database.parent().unwrap();
    let Some(disk) = Disk::below(data) else { return };
    disk.fill_up(true);
    let Err((status, said)) = Daemon::try_start(&config, Some(&disk)) else {
        panic!("it started on a full disk")
    };
    assert_eq!((status.code(), said.len()), (Some(1), 1), "{said:?}");
    assert!(said[0].contains("full") && said[0].contains(data.to_str().unwrap()), "{said:?}");
    disk.fill_up(false);
    let mut daemon = Daemon::start_on(&config, Some(&disk));
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[tokio::test]
async fn a_backup_to_a_full_disk_names_the_copy_and_leaves_nothing_of_it() {
    if !is_embedded("a refused database") {
        return;
    }
    let (dir, config, database) = folder();
    make_store(&database).await;
    let target = dir.path().join("elsewhere");
    std::fs::create_dir(&target).unwrap();
    let Some(disk) = Disk::below(&target) else { return };
    disk.fill_up(true);
    let copy = target.join("copy.db");
    let mut command = sitemapd(&config, &["backup", copy.to_str().unwrap()]);
    disk.serve(&mut command);
    let output = command.output().unwrap();
    let said = complaints(&output);
    assert_eq!(output.status.code(), Some(1), "{said:?}");
    let expected = format!("{}: there is no room for it: the disk is full", copy.display());
    assert!(said.len() == 1 && said[0].contains(&expected), "{said:?}");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_folder_in_the_place_of_the_database_is_refused() {
    if !is_embedded("a refused database") {
        return;
    }
    let (_dir, config, database) = folder();
    std::fs::create_dir(&database).unwrap();
    assert_refused(&config, &database, "");
    assert!(database.is_dir());
}

#[tokio::test]
async fn a_second_daemon_on_the_folder_refuses_and_says_who_holds_it() {
    let (_dir, config, _) = folder();
    let first = Daemon::start(&config);
    let output = refused(&config);
    let said = complaints(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("in use by") && said[0].contains(&first.id().to_string()), "{said:?}");
    // The first one does not even notice.
    let sites: serde_json::Value = first.client().get("/v1/sites", &[]).await.unwrap();
    assert!(sites.to_string().contains("127.0.0.1:9"));
}

#[test]
fn a_taken_port_is_one_clear_line() {
    let (dir, _, _) = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let config = dir.path().join("config.toml");
    let text = format!("[listen]\napi = \"{addr}\"\n[log]\nformat = \"json\"\n{}", home());
    std::fs::write(&config, text).unwrap();
    let output = refused(&config);
    let said = complaints(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.len() == 1 && said[0].contains(&addr.to_string()), "{said:?}");
}

#[test]
fn a_config_error_exits_78_and_names_file_line_and_key() {
    let (dir, _, _) = folder();
    let config = write_config(dir.path(), &(home() + "weight = -1\n"));
    let output = refused(&config);
    let said = complaints(&output).join("\n");
    assert_eq!(output.status.code(), Some(78), "{said}");
    for words in ["config.toml", "weight", "-1"] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
}

#[test]
fn a_file_that_the_configuration_names_and_that_is_wrong_exits_78() {
    for (keys, named) in [
        ("token_file = \"empty\"", "listen.token_file"),
        ("[fetch]\nca_file = \"empty\"", "fetch.ca_file"),
        (
            "[egress.nats]\nservers = [\"nats://127.0.0.1:9\"]\ntoken_file = \"empty\"",
            "egress.nats.token_file",
        ),
    ] {
        let (dir, config, _) = folder();
        std::fs::write(dir.path().join("empty"), "").unwrap();
        let text = format!("[listen]\napi = \"127.0.0.1:0\"\n{keys}\n{}", home());
        std::fs::write(&config, text).unwrap();
        let output = refused(&config);
        let said = complaints(&output);
        assert_eq!(output.status.code(), Some(78), "{said:?}");
        assert!(said.iter().any(|line| line.contains(named)), "{said:?}");
        let checked = sitemapd(&config, &["config", "check"]).output().unwrap();
        assert_eq!(checked.status.code(), Some(78), "{named}");
        assert!(complaints(&checked).iter().any(|line| line.contains(named)), "{checked:?}");
    }
}

#[test]
fn a_database_that_no_connection_can_be_made_to_exits_78() {
    let (dir, _, _) = folder();
    let url = url::Url::parse("postgres://u@db.invalid/s?sslmode=verify-full").unwrap();
    let output = refused(&write_config_at(dir.path(), &home(), Some(url)));
    let said = complaints(&output).join("\n");
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("store.url") && said.contains("sslmode"), "{said}");
}

#[tokio::test]
async fn a_store_that_was_closed_well_is_taken_over() {
    if !is_embedded("a refused database") {
        return;
    }
    let (_dir, config, database) = folder();
    make_store(&database).await;
    let daemon = Daemon::start(&config);
    let queue: serde_json::Value = daemon.client().get("/v1/queue", &[]).await.unwrap();
    assert!(queue.to_string().contains("2000"), "{queue}");
}
