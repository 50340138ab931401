//! What a 2xx means: committed, and with `durability = "full"` synced, before
//! the answer is sent.

use super::script::{Deed, Script, open};
use crate::support::disk::Disk;
use crate::support::lease_history::Dice;
use crate::support::power::{Past, Unsynced, files_of};
use crate::support::process::Daemon;

/// Rounds of the script.
const ROUNDS: u32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_2xx_says_was_synced_before_it_was_sent() {
    let mut script = Script::new("full").await;
    let Some(disk) = Disk::below(&script.data()) else { return };
    let disk = disk.with_journal();
    let mut daemon = Daemon::start_on(&script.config, Some(&disk));
    let api = daemon.client();
    script.polled(&api, Some(&disk), 0).await.unwrap();
    for number in 0..ROUNDS {
        script.round(&api, Some(&disk), number).await;
    }
    daemon.kill();
    assert!(script.refusals.is_empty(), "{:?}", script.refusals);
    assert!(script.deeds.len() > 50, "{}", script.deeds.len());
    let past = Past::read(&disk.journal(), &script.data(), files_of(&script.data().join("none")));
    // At the moment of each answer the power goes, and with it all that no
    // sync has brought to the disk.
    for (deed, happened) in &script.deeds {
        let folder = tempfile::TempDir::new().unwrap();
        let moment = past.until(*happened);
        past.rebuild(moment, Unsynced::Lost, &mut Dice::new(1), folder.path());
        assert!(deed.stands(&open(folder.path())), "{deed:?} was answered, and is lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_normal_durability_a_2xx_is_committed_and_not_yet_synced() {
    let mut script = Script::new("normal").await;
    let Some(disk) = Disk::below(&script.data()) else { return };
    let disk = disk.with_journal();
    let mut daemon = Daemon::start_on(&script.config, Some(&disk));
    let api = daemon.client();
    script.polled(&api, Some(&disk), 0).await.unwrap();
    script.round(&api, Some(&disk), 0).await;
    let moment = disk.happened();
    daemon.kill();
    // The killed process loses nothing.
    let conn = open(&script.data());
    for (deed, _) in &script.deeds {
        assert!(deed.stands(&conn), "{deed:?} was answered, and is lost");
    }
    drop(conn);
    // A power loss does: that is the documented difference.
    let past = Past::read(&disk.journal(), &script.data(), files_of(&script.data().join("none")));
    let folder = tempfile::TempDir::new().unwrap();
    past.rebuild(past.until(moment), Unsynced::Lost, &mut Dice::new(1), folder.path());
    let conn = open(folder.path());
    let is_lease = |deed: &&(Deed, u64)| matches!(deed.0, Deed::Leased { .. });
    let (lease, _) = script.deeds.iter().find(is_lease).unwrap();
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert!(tables == 0 || !lease.stands(&conn), "it was synced although nobody asked for it");
}
