//! The power goes at any moment: with `full` nothing that was answered is lost,
//! with `normal` only what came last, and no database is ever damaged, whatever
//! part of the last writes reached the disk.

use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;

use super::many;
use super::script::{Deed, Script, open};
use crate::support::disk::Disk;
use crate::support::engine::Look;
use crate::support::lease_history::{Dice, audit};
use crate::support::power::{Past, Unsynced, files_of};
use crate::support::process::Daemon;

/// Power losses tried in each test.
const LOSSES: u32 = 60;
/// Rounds of the script before and after the restart.
const ROUNDS: u32 = 8;

/// Works, stops, starts again, works and is killed; all of it written down.
async fn work(durability: &str) -> Option<(Script, Past)> {
    let mut script = Script::new(durability).await;
    let disk = Disk::below(&script.data())?.with_journal();
    let mut number = 0;
    let mut last = 0;
    for restarts in 0..2 {
        let mut daemon = Daemon::start_on(&script.config, Some(&disk));
        let api = daemon.client();
        if restarts == 0 {
            last = script.polled(&api, Some(&disk), last).await.unwrap();
        }
        for _ in 0..ROUNDS {
            script.round(&api, Some(&disk), number).await;
            number += 1;
            if number % 4 == 0 {
                script.publish();
                script.poll(&api).await;
                last = script.polled(&api, Some(&disk), last).await.unwrap();
            }
        }
        if restarts == 0 {
            // Moves the log into the database.
            daemon.signal("TERM");
            assert_eq!(daemon.wait().code(), Some(0));
        } else {
            daemon.kill();
        }
    }
    assert!(script.refusals.is_empty(), "{:?}", script.refusals);
    let nothing = files_of(&script.data().join("none"));
    let past = Past::read(&disk.journal(), &script.data(), nothing);
    assert!(past.syncs() > 10, "{} syncs", past.syncs());
    Some((script, past))
}

/// The database is whole, and its tables agree; `false` before it was made.
fn is_sound(folder: &Path) -> Option<Connection> {
    let conn = open(folder);
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let made: bool =
        conn.query_row("SELECT count(*) > 0 FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    if !made {
        return None;
    }
    audit(&Look::File(folder.join("sitemapd.db")));
    Some(conn)
}

fn unsynced(dice: &mut Dice) -> Unsynced {
    [Unsynced::Lost, Unsynced::Torn, Unsynced::Torn, Unsynced::Kept][dice.below(4) as usize]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_loss_takes_nothing_that_was_answered() {
    let Some((script, past)) = work("full").await else { return };
    let mut dice = Dice::new(11);
    let mut checked = 0;
    for _ in 0..many("SITEMAPD_LOSSES", LOSSES) {
        let moment = dice.below(u32::try_from(past.len()).unwrap()) as usize;
        let how = unsynced(&mut dice);
        let folder = TempDir::new().unwrap();
        past.rebuild(moment, how, &mut dice, folder.path());
        let conn = is_sound(folder.path());
        for (deed, happened) in &script.deeds {
            if past.until(*happened) <= moment {
                let stands = conn.as_ref().is_some_and(|conn| deed.stands(conn));
                assert!(stands, "{deed:?} is lost, the power gone after {moment} ({how:?})");
                checked += 1;
            }
        }
    }
    println!("{checked} deeds looked for, {} of the disk's", past.len());
    assert!(checked > 1_000, "{checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_normal_durability_a_power_loss_takes_the_last_moments_and_no_more() {
    let Some((script, past)) = work("normal").await else { return };
    let mut dice = Dice::new(12);
    let mut lost = 0;
    for _ in 0..many("SITEMAPD_LOSSES", LOSSES) {
        let moment = dice.below(u32::try_from(past.len()).unwrap()) as usize;
        let how = unsynced(&mut dice);
        let folder = TempDir::new().unwrap();
        past.rebuild(moment, how, &mut dice, folder.path());
        let conn = is_sound(folder.path());
        let answered = script.deeds.iter().filter(|(_, at)| past.until(*at) <= moment);
        let stands: Vec<bool> =
            answered.map(|(deed, _)| conn.as_ref().is_some_and(|conn| deed.stands(conn))).collect();
        // Of what one client was answered one after the other, a first part is
        // there: the last moments are lost, never anything amid.
        let kept = stands.iter().filter(|stands| **stands).count();
        assert!(stands[..kept].iter().all(|stands| *stands), "{how:?} after {moment}: {stands:?}");
        lost += stands.len() - kept;
    }
    println!("{lost} deeds of the last moments were lost");
    assert!(lost > 0, "a test that nothing can fail");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_starts_on_what_a_power_loss_left() {
    let Some((mut script, past)) = work("full").await else { return };
    let mut dice = Dice::new(13);
    for _ in 0..many("SITEMAPD_LOSSES", 6).min(40) {
        let moment = dice.below(u32::try_from(past.len()).unwrap()) as usize;
        std::fs::remove_dir_all(script.data()).unwrap();
        std::fs::create_dir(script.data()).unwrap();
        past.rebuild(moment, Unsynced::Torn, &mut dice, &script.data());
        let mut daemon = Daemon::start(&script.config);
        let api = daemon.client();
        script.deeds.clear();
        // Its sources are polled again when they are due; and it works.
        script.poll(&api).await;
        script.polled(&api, None, 0).await.unwrap();
        script.round(&api, None, 0).await;
        let leases = script.deeds.iter().filter(|(deed, _)| matches!(deed, Deed::Leased { .. }));
        assert!(leases.count() > 0);
        daemon.kill();
        is_sound(&script.data()).unwrap();
    }
}
