//! Jobs that fail, panic, pile up, and the transactions they share.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

use super::{BULK_WAITING, Lane, lock};
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

const DELAY: Duration = Duration::from_secs(1);

struct Open {
    store: Store,
    metrics: Arc<Metrics>,
    _dir: TempDir,
}

fn open() -> Open {
    let dir = TempDir::new().unwrap();
    let text = "[[site]]\nname = \"a\"\nurl = \"http://a.test/\"\n";
    let mut config = Config::from_toml_str(text).unwrap();
    config.daemon.data_dir = dir.path().to_owned();
    let metrics = Arc::new(Metrics::new());
    let store = Store::open(&config, Clock::system(), Arc::clone(&metrics)).unwrap();
    Open { store, metrics, _dir: dir }
}

/// Commits so far.
fn commits(open: &Open) -> u64 {
    let text = open.metrics.encode(None, crate::metrics::Format::Plain);
    let line = text.lines().find(|line| line.contains("commit_duration_seconds_count")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Makes a host and ends as `how` says.
async fn make_host(
    store: Store,
    name: &'static str,
    how: fn() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    store
        .write(Lane::Hot, move |state| {
            state.host_named(name, DELAY)?;
            how()
        })
        .await
}

/// Is the host there, as memory has it and as the database has it?
async fn knows(store: &Store, name: &'static str) -> (bool, bool) {
    store
        .write(Lane::Hot, move |state| {
            let remembered = state.find_host(name)?.is_some();
            let sql = "SELECT count(*) FROM hosts WHERE authority = ?1";
            let kept: i64 = state.conn.query_row(sql, [name], |row| row.get(0)).unwrap();
            Ok((remembered, kept == 1))
        })
        .await
        .unwrap()
}

/// Keeps the writer busy until the sender is used or dropped.
async fn hold(store: &Store) -> (mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
    let (go, wait) = mpsc::channel::<()>();
    let (started, running) = tokio::sync::oneshot::channel();
    let store = store.clone();
    let holding = tokio::spawn(async move {
        let job = move |_: &mut super::State| {
            let _ = started.send(());
            let _ = wait.recv();
            Ok(())
        };
        store.write(Lane::Hot, job).await.unwrap();
    });
    running.await.unwrap();
    (go, holding)
}

/// Waits until so many jobs are in the lanes: (hot, bulk).
async fn until_waiting(store: &Store, jobs: (usize, usize)) {
    let shared = &store.inner.writer.as_ref().unwrap().shared;
    let count = || {
        let lanes = lock(&shared.lanes);
        (lanes.hot.len(), lanes.bulk.len())
    };
    while count() != jobs {
        tokio::task::yield_now().await;
    }
}

fn fail() -> Result<(), StoreError> {
    Err(StoreError::Refused("no".to_owned()))
}

#[allow(clippy::unnecessary_wraps)] // one of several ways for a job to end
fn succeed() -> Result<(), StoreError> {
    Ok(())
}

#[tokio::test]
async fn a_job_that_fails_or_panics_takes_back_its_own_writes_only() {
    let open = open();
    let store = &open.store;
    let (go, holding) = hold(store).await;
    let mut jobs = Vec::new();
    for (index, (name, how)) in [
        ("http://one.test", succeed as fn() -> Result<(), StoreError>),
        ("http://failed.test", fail),
        ("http://two.test", succeed),
        ("http://panicked.test", || panic!("a test of panics")),
        ("http://three.test", succeed),
    ]
    .into_iter()
    .enumerate()
    {
        jobs.push(tokio::spawn(make_host(store.clone(), name, how)));
        until_waiting(store, (index + 1, 0)).await;
    }
    go.send(()).unwrap();
    holding.await.unwrap();
    let mut ends = Vec::new();
    for job in jobs {
        ends.push(job.await.unwrap());
    }
    assert_eq!(ends[1], fail());
    assert!(matches!(&ends[3], Err(StoreError::Engine(text)) if text.contains("panicked")));
    for kept in [0, 2, 4] {
        assert_eq!(ends[kept], Ok(()));
    }
    for name in ["http://one.test", "http://two.test", "http://three.test"] {
        assert_eq!(knows(store, name).await, (true, true), "{name}");
    }
    for name in ["http://failed.test", "http://panicked.test"] {
        assert_eq!(knows(store, name).await, (false, false), "{name}");
    }
}

#[tokio::test]
async fn jobs_that_wait_together_share_a_commit() {
    let open = open();
    let store = &open.store;
    let (go, holding) = hold(store).await;
    let before = commits(&open);
    let jobs: Vec<_> = (0..100)
        .map(|n: i64| {
            let store = store.clone();
            tokio::spawn(async move {
                let sql = "INSERT INTO meta (key, value) VALUES (?1, 1)";
                let key = format!("test {n}");
                store
                    .write(Lane::Hot, move |state| Ok(state.conn.execute(sql, [key]).unwrap()))
                    .await
            })
        })
        .collect();
    until_waiting(store, (100, 0)).await;
    go.send(()).unwrap();
    holding.await.unwrap();
    for job in jobs {
        assert_eq!(job.await.unwrap(), Ok(1));
    }
    // That of the job which held the writer, and one for all who waited. What
    // made the store may have been counted late.
    assert!(commits(&open) - before <= 3, "{} commits", commits(&open) - before);
}

#[tokio::test]
async fn who_finds_the_lane_full_waits_and_nobody_is_turned_away() {
    let open = open();
    let store = &open.store;
    let (go, holding) = hold(store).await;
    let jobs: Vec<_> = (0..BULK_WAITING + 6)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.write(Lane::Bulk, |_| Ok(())).await })
        })
        .collect();
    until_waiting(store, (0, BULK_WAITING)).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    until_waiting(store, (0, BULK_WAITING)).await;
    go.send(()).unwrap();
    holding.await.unwrap();
    for job in jobs {
        assert_eq!(job.await.unwrap(), Ok(()));
    }
}

#[tokio::test]
async fn what_waits_when_the_store_closes_is_done_and_what_comes_later_is_refused() {
    let open = open();
    let store = &open.store;
    let (go, holding) = hold(store).await;
    let waiting = tokio::spawn(make_host(store.clone(), "http://one.test", succeed));
    until_waiting(store, (1, 0)).await;
    let closing = tokio::task::spawn_blocking({
        let store = store.clone();
        move || store.close()
    });
    go.send(()).unwrap();
    holding.await.unwrap();
    closing.await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(()));
    assert_eq!(store.ping().await, Err(StoreError::Closed));
}

#[tokio::test]
async fn a_refused_request_makes_the_writer_forget_nothing() {
    let open = open();
    let store = &open.store;
    make_host(store.clone(), "http://one.test", succeed).await.unwrap();
    assert_eq!(store.write(Lane::Hot, |_| -> Result<(), _> { fail() }).await, fail());
    let remembered = store.write(Lane::Hot, |state| Ok(state.hosts.remembered())).await.unwrap();
    assert!(remembered > 0);
}
