//! The Nth write, sync or open of a scripted run fails, or is the last thing
//! the process does, for every N: requests get a 5xx, a failed sync ends the
//! process, and whatever happened, the next start finds one consistent state in
//! which all that was answered stands.

use std::collections::BTreeMap;

use serde_json::Value;
use sitemapd::fetch::api::ApiClient;

use super::many;
use super::script::{Script, open};
use crate::support::disk::{Disk, EIO, ENOSPC, Fault, OPEN, SYNC, WRITE};
use crate::support::engine::Look;
use crate::support::lease_history::audit;
use crate::support::process::Daemon;

/// How a run ended.
#[derive(Debug)]
struct End {
    code: Option<i32>,
    /// What it said to a person.
    said: Vec<String>,
    writes_after: i64,
    was_hit: bool,
    started: bool,
}

/// From no store to a stop, on a disk that fails.
async fn run(script: &mut Script, disk: &Disk) -> End {
    let started = Daemon::try_start(&script.config, Some(disk));
    let (started, code, said) = match started {
        Err((status, said)) => (false, status.code(), said),
        Ok(mut daemon) => {
            let api = daemon.client();
            let last = script.polled(&api, None, 0).await;
            script.round(&api, None, 0).await;
            if let Some(last) = last {
                script.publish();
                script.poll(&api).await;
                script.polled(&api, None, last).await;
            }
            script.round(&api, None, 1).await;
            if daemon.has_ended().is_none() {
                daemon.signal("TERM");
            }
            let code = daemon.wait().code();
            (true, code, daemon.complaints())
        }
    };
    let end =
        End { code, said, writes_after: disk.writes_after(), was_hit: disk.hits() > 0, started };
    disk.disarm();
    end
}

/// After a start on a disk that is well, all is as if nothing had happened.
async fn recovers(script: &mut Script, about: &str) {
    let mut daemon = Daemon::start(&script.config);
    let api = daemon.client();
    let last = open(&script.data())
        .query_row("SELECT coalesce(max(id), 0) FROM polls", [], |row| row.get(0))
        .unwrap();
    script.poll(&api).await;
    script.polled(&api, None, last).await.unwrap();
    let told = script.refusals.len();
    script.round(&api, None, 2).await;
    assert_eq!(script.refusals.len(), told, "{about}: {:?}", script.refusals);
    assert_eq!(told_otherwise(&api, script.pages()).await, Vec::<String>::new(), "{about}");
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{about}");
    let conn = open(&script.data());
    audit(&Look::File(script.data().join("sitemapd.db")));
    for (deed, _) in &script.deeds {
        assert!(deed.stands(&conn), "{about}: {deed:?} was answered, and is lost");
    }
    let pages: u32 = conn
        .query_row("SELECT count(*) FROM url_view WHERE url LIKE '%/page/%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(pages, script.pages(), "{about}");
}

/// Pages that the stream of changes does not call new exactly once.
async fn told_otherwise(api: &ApiClient, pages: u32) -> Vec<String> {
    let answer: Value =
        api.get("/v1/changes", &[("kinds", "new"), ("limit", "1000")]).await.unwrap();
    let mut told: BTreeMap<String, u32> = (0..pages).map(|n| (format!("/page/{n}"), 0)).collect();
    for event in answer["changes"].as_array().unwrap() {
        let url: url::Url = event["url"].as_str().unwrap().parse().unwrap();
        *told.entry(url.path().to_owned()).or_default() += 1;
    }
    told.into_iter().filter(|(_, times)| *times != 1).map(|(path, _)| path).collect()
}

/// Does `judge` with the end of a run for each call that is hit: one in `every`
/// where the environment does not say otherwise.
async fn for_each(every: u32, kinds: i64, fault: Fault, judge: impl Fn(u64, &Script, &End)) {
    let mut script = Script::new("full").await;
    let Some(disk) = Disk::below(&script.data()) else { return };
    let step = u64::from(many("SITEMAPD_FAULTS_EVERY", every));
    let (mut nth, mut runs) = (1, 0);
    loop {
        script.begin_anew();
        disk.arm(kinds, nth, fault);
        let end = run(&mut script, &disk).await;
        if !end.was_hit {
            break;
        }
        judge(nth, &script, &end);
        recovers(&mut script, &format!("{fault:?} at call {nth}")).await;
        runs += 1;
        nth += step;
    }
    println!("{runs} runs, each with {fault:?} at another of the first {nth} calls");
    assert!(runs > 1, "only {runs} runs");
}

/// What holds whatever fails.
fn is_fair(nth: u64, script: &Script, end: &End) {
    assert!(script.refusals.iter().all(|status| *status >= 500), "{nth}: {:?}", script.refusals);
    if !end.started {
        assert_eq!((end.code, end.said.len()), (Some(1), 1), "{nth}: {:?}", end.said);
    }
}

async fn writes_fail_with(errno: i64) {
    for_each(29, WRITE, Fault::Error(errno), |nth, script, end| {
        is_fair(nth, script, end);
        if end.started {
            // The next write works, and so does the daemon.
            assert_eq!(end.code, Some(0), "{nth}: {:?}", end.said);
        }
        let says_full = script.refusals.contains(&503);
        assert!(!says_full || errno == ENOSPC, "{nth}: {:?}", script.refusals);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_is_a_5xx_and_nothing_of_it_is_kept() {
    writes_fail_with(EIO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_room_is_a_5xx_and_nothing_of_it_is_kept() {
    writes_fail_with(ENOSPC).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_sync_nothing_more_is_written_and_the_process_ends() {
    for_each(3, SYNC, Fault::Error(EIO), |nth, script, end| {
        is_fair(nth, script, end);
        assert_eq!(end.code, Some(1), "{nth}: {end:?}");
        assert_eq!(end.said.len(), 1, "{nth}: {:?}", end.said);
        // A store that is being made is taken back, which writes.
        assert!(end.writes_after == 0 || !end.started, "{nth}: {end:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_opened_is_a_5xx_or_a_refusal_to_start() {
    for_each(4, OPEN, Fault::Error(EIO), is_fair).await;
}

async fn is_killed(fault: Fault) {
    for_each(31, WRITE | SYNC | OPEN, fault, |nth, script, end| {
        assert!(script.refusals.is_empty(), "{nth}: {:?}", script.refusals);
        assert_eq!(end.code, None, "{nth}: {end:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_at_any_write_sync_or_open_leaves_a_consistent_store() {
    is_killed(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_amid_a_write_leaves_a_consistent_store() {
    is_killed(Fault::KilledHalfway).await;
}
