//! A copy made while the daemon works is one state of it, and a daemon starts
//! from it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use sitemapd::model::Outcome;
use sitemapd::store::backup::{Stop, backup};
use sitemapd::store::{ChangeCursor, ChangeFilter, StoreError};

use super::one_sitemap;
use crate::support::daemon::{DAY, Daemon, HOUR, World, sitemap};
use crate::support::engine;
use crate::support::process::{DEADLINE, sitemapd, write_config};
use crate::support::queue_daemon::{Queue, report};
use crate::support::{Origin, Reply};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_whole_and_a_daemon_starts_from_it() {
    if !engine::is_embedded("its backup") {
        return;
    }
    let origin = Origin::start().await;
    let base = origin.base();
    let paths: Vec<_> = (0..500).map(|n| format!("/{n}")).collect();
    let entries: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &entries)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    let (data, to) = (world.database().parent().unwrap().to_owned(), copy.clone());
    let copying =
        tokio::task::spawn_blocking(move || backup(&data, &to, &Stop::default()).unwrap());
    // Leases and settlements go on meanwhile.
    let mut settled = 0;
    loop {
        let leased = daemon.lease().await;
        let results = leased.iter().take(20).map(|url| report(url.token, Outcome::Unchanged));
        settled += daemon.store.settle(results.collect()).await.unwrap().len();
        daemon.pass(HOUR).await;
        if copying.is_finished() {
            break;
        }
    }
    assert!(settled > 0);
    let bytes = copying.await.unwrap();
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), bytes);
    daemon.stop().await;
    let sound: String = Connection::open(&copy)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");

    let another = World::new(&[&origin]);
    std::fs::create_dir_all(another.database().parent().unwrap()).unwrap();
    std::fs::copy(&copy, another.database()).unwrap();
    let daemon = another.start(&one_sitemap(&origin)).await;
    for path in ["/0", "/499"] {
        assert!(daemon.knows(&format!("{base}{path}")).await);
    }
    // What was with a fetcher then comes back, like any lease that expires.
    daemon.pass(DAY * 60).await;
    while daemon.store.reap().await.unwrap().0 > 0 {}
    daemon.pass(DAY * 60).await;
    assert_eq!(daemon.queued().await, 500);
    daemon.stop().await;
}

/// Puts a copy in the place of a store.
fn restore(copy: &Path, database: &Path) {
    for part in ["sitemapd.db-wal", "sitemapd.db-shm"] {
        // It may have been folded and removed.
        let _ = std::fs::remove_file(database.with_file_name(part));
    }
    std::fs::copy(copy, database).unwrap();
}

#[tokio::test]
async fn a_cursor_from_after_a_backup_misses_nothing_that_what_was_restored_finds() {
    if !engine::is_embedded("its backup") {
        return;
    }
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let list = |paths: &[&str]| {
        let entries: Vec<_> = paths.iter().map(|path| (*path, "")).collect();
        origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &entries)));
    };
    // What was found after a cursor, and the place behind it.
    let after = async |daemon: &Daemon, cursor: Option<ChangeCursor>| {
        let page = daemon.store.changes_after(cursor, 100, ChangeFilter::default()).await.unwrap();
        let urls = page.changes.iter().map(|change| change.url[base.len()..].to_owned());
        (urls.collect::<Vec<_>>(), page.next)
    };
    list(&["/a"]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    backup(world.database().parent().unwrap(), &copy, &Stop::default()).unwrap();
    for found in [&["/a", "/b"][..], &["/a", "/b", "/c"]] {
        list(found);
        daemon.poll("/sitemap.xml").await;
    }
    let (mut found, mut cursor) = after(&daemon, None).await;
    assert_eq!(found, ["/a", "/b", "/c"]);
    let last_poll = daemon.poll("/sitemap.xml").await.id;
    daemon.stop().await;
    // The same copy is put back twice; each time others go on from it.
    for paths in [["/a", "/d", "/e", "/f"], ["/a", "/g", "/h", "/i"]] {
        restore(&copy, &world.database());
        world.clock.advance(HOUR);
        let daemon = world.start(&one_sitemap(&origin)).await;
        for count in 2..=4 {
            list(&paths[..count]);
            assert!(daemon.poll("/sitemap.xml").await.id > last_poll);
        }
        (found, cursor) = after(&daemon, Some(cursor)).await;
        assert_eq!(found, paths[1..]);
        daemon.stop().await;
        let daemon = world.start(&one_sitemap(&origin)).await;
        assert_eq!(after(&daemon, Some(cursor)).await, (Vec::new(), cursor), "once is enough");
        daemon.stop().await;
    }
}

#[test]
fn a_backup_overwrites_nothing_and_needs_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    let missing = backup(folder.path(), &there, &Stop::default()).unwrap_err();
    assert!(matches!(missing, StoreError::NotFound(_)), "{missing}");
    std::fs::write(folder.path().join("sitemapd.db"), b"").unwrap();
    std::fs::write(&there, b"mine").unwrap();
    let refused = backup(folder.path(), &there, &Stop::default()).unwrap_err();
    assert!(refused.to_string().contains("overwrites nothing"), "{refused}");
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
    // A copy of what is no store leaves nothing behind.
    let wrong = folder.path().join("new");
    assert!(backup(folder.path(), &wrong, &Stop::default()).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn of_two_backups_to_one_file_the_second_is_refused_and_touches_nothing() {
    if !engine::is_embedded("its backup") {
        return;
    }
    let (folder, look) = Queue::simple().await.into_folder();
    let data = look.file().parent().unwrap();
    let at = |name: &str| folder.path().join(name);
    let partial = at("copy.partial");
    let running = std::fs::File::create(&partial).unwrap();
    running.lock().unwrap();
    std::fs::write(&partial, b"half of it").unwrap();
    let refused = backup(data, &at("copy"), &Stop::default()).unwrap_err();
    assert!(refused.to_string().contains("another backup"), "{refused}");
    assert_eq!(std::fs::read(&partial).unwrap(), b"half of it");
    assert!(!at("copy").exists());
    // What one left over that was killed is in nobody's way.
    drop(running);
    let bytes = backup(data, &at("copy"), &Stop::default()).unwrap();
    assert_eq!(std::fs::metadata(at("copy")).unwrap().len(), bytes);
    assert!(!partial.exists());
    // What a link leads to is not the backup's.
    std::os::unix::fs::symlink(at("copy"), at("other.partial")).unwrap();
    assert!(backup(data, &at("other"), &Stop::default()).is_err());
    assert_eq!(std::fs::metadata(at("copy")).unwrap().len(), bytes);
}

/// The command as whoever starts it wants it to outlive a terminal.
fn under_nohup(config: &Path, args: &[&str]) -> Command {
    let plain = sitemapd(config, args);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(plain.get_program());
    command.args(plain.get_args()).env_remove("SITEMAPD_CONFIG");
    command
}

#[tokio::test]
async fn a_backup_that_is_stopped_leaves_nothing_behind_and_says_so() {
    if !engine::is_embedded("its backup") {
        return;
    }
    let (folder, look) = Queue::simple().await.into_folder();
    let stop = Stop::default();
    stop.ask();
    let to = folder.path().join("copy");
    let stopped = backup(look.file().parent().unwrap(), &to, &stop).unwrap_err();
    let told = format!("{}: it was stopped, and nothing is kept of it", to.display());
    assert_eq!(stopped.to_string(), told);
    assert!(!to.exists() && !folder.path().join("copy.partial").exists());
    // By a signal, wherever that meets it; if only at its end, the copy is whole.
    look.change(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 400000)
         INSERT INTO meta SELECT 'ballast ' || n, hex(randomblob(40)) FROM n",
    );
    let config = write_config(folder.path(), "");
    for (signal, is_ignored) in [("-TERM", false), ("-INT", false), ("-HUP", false), ("-HUP", true)]
    {
        let args = ["backup", to.to_str().unwrap()];
        let mut command =
            if is_ignored { under_nohup(&config, &args) } else { sitemapd(&config, &args) };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + DEADLINE;
        while !folder.path().join("copy.partial").exists() && !to.exists() {
            assert!(Instant::now() < deadline, "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        let id = child.id().to_string();
        Command::new("kill").args([signal, &id]).status().unwrap();
        child.wait().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!folder.path().join("copy.partial").exists(), "{signal}: {said}");
        match output.status.code() {
            code if is_ignored => {
                assert_eq!((code, to.exists()), (Some(0), true), "{said}");
                std::fs::remove_file(&to).unwrap();
            }
            Some(0) => std::fs::remove_file(&to).unwrap(),
            code => {
                assert_eq!((code, to.exists()), (Some(1), false), "{signal}: {said}");
                assert!(said.contains("it was stopped"), "{signal}: {said}");
            }
        }
    }
}

#[tokio::test]
async fn a_backup_is_for_its_owner_as_its_store_is_and_alone() {
    if !engine::is_embedded("its backup") {
        return;
    }
    let (folder, look) = Queue::simple().await.into_folder();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (of_store, of_copy) in [(0o644, 0o600), (0o660, 0o600), (0o600, 0o600)] {
        let permissions = std::fs::Permissions::from_mode(of_store);
        std::fs::set_permissions(look.file(), permissions).unwrap();
        let to = folder.path().join(format!("copy-{of_store:o}"));
        // What one left over that was killed may be anybody's.
        std::fs::write(to.with_extension("partial"), "").unwrap();
        backup(look.file().parent().unwrap(), &to, &Stop::default()).unwrap();
        assert_eq!(mode(&to), of_copy, "{of_store:o}");
    }
}
