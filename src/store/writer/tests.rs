//! Jobs that fail, panic, pile up, and the transactions they share.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

use super::{BULK_WAITING, Lane, lock};
use crate::clock::Clock;
use crate::config::Config;
use crate::diff::snapshot::EntryHints;
use crate::metrics::Metrics;
use crate::model::{Outcome, Role, UrlId, UrlKind};
use crate::queue::{LeaseRequest, Settlement, Token, TokenResult};
use crate::store::state::State;
use crate::store::turns::Place;
use crate::store::views::SourceFilter;
use crate::store::{Effect, Store, StoreError};
use crate::url::Admitted;

const DELAY: Duration = Duration::from_secs(1);

struct Open {
    store: Store,
    metrics: Arc<Metrics>,
    _dir: TempDir,
}

fn open() -> Open {
    let dir = TempDir::new().unwrap();
    let text = "[[site]]\nname = \"a\"\nurl = \"http://a.test/\"\nobey_robots = false\n\
                host_delay = \"0s\"\nsitemaps = [\"http://a.test/s.xml\"]\n";
    let mut config = Config::from_toml_str(text).unwrap();
    config.daemon.data_dir = dir.path().to_owned();
    let metrics = Arc::new(Metrics::new());
    let store = Store::open(&config, Clock::system(), Arc::clone(&metrics)).unwrap();
    Open { store, metrics, _dir: dir }
}

/// What a metric without labels has come to.
fn counted(open: &Open, metric: &str) -> u64 {
    let text = open.metrics.encode(None, crate::metrics::Format::Plain);
    let line = text.lines().find(|line| line.starts_with(metric)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Commits so far.
fn commits(open: &Open) -> u64 {
    counted(open, "sitemapd_commit_duration_seconds_count")
}

/// What they made last.
fn effects(open: &Open) -> u64 {
    counted(open, "sitemapd_commit_effects_total")
}

/// How a job ends.
type Way = fn() -> Result<(), StoreError>;

/// What a job that gathers does, after it has put a URL into the queue or not.
type Deed = fn(&mut State) -> Result<(), StoreError>;

/// Makes a host and ends as `how` says.
async fn make_host(store: Store, name: &'static str, how: Way) -> Result<(), StoreError> {
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
async fn hold(
    store: &Store,
) -> (mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), StoreError>>) {
    let (go, wait) = mpsc::channel::<()>();
    let (started, running) = tokio::sync::oneshot::channel();
    let store = store.clone();
    let holding = tokio::spawn(async move {
        let job = move |_: &mut State| {
            let _ = started.send(());
            let _ = wait.recv();
            Ok(())
        };
        store.write(Lane::Hot, job).await
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
        ("http://one.test", succeed as Way),
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
    holding.await.unwrap().unwrap();
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

/// Runs jobs that gather, each of which puts the URL of its number into the queue
/// where that is told, and ends as it is told, all in one transaction; then says
/// what is in the queue by then, as a job behind them sees it.
async fn gather(
    open: &Open,
    jobs: Vec<(Option<i64>, Deed)>,
) -> (Vec<Result<(), StoreError>>, Result<Vec<i64>, StoreError>) {
    let store = &open.store;
    let made = store.write(Lane::Hot, |state| {
        Ok((state.crawl_named("default")?, state.host_named("http://a.test", DELAY)?))
    });
    let (crawl, host) = made.await.unwrap();
    let (go, holding) = hold(store).await;
    let mut running = Vec::new();
    for (index, (url, deed)) in jobs.into_iter().enumerate() {
        let store = store.clone();
        running.push(tokio::spawn(async move {
            let job = move |state: &mut State| {
                if let Some(url) = url {
                    let url = UrlId(url);
                    let place = Place { crawl, host, band: 50, due_s: 0, url, valued: false };
                    state.enqueue_ended(place, None)?;
                }
                deed(state)
            };
            store.write(Lane::Gathers, job).await
        }));
        until_waiting(&open.store, (index + 1, 0)).await;
    }
    let seen = tokio::spawn(seen(store.clone()));
    until_waiting(store, (running.len() + 1, 0)).await;
    go.send(()).unwrap();
    // Of the same transaction, whatever becomes of it.
    let _ = holding.await.unwrap();
    let mut ends = Vec::new();
    for job in running {
        ends.push(job.await.unwrap());
    }
    (ends, seen.await.unwrap())
}

/// What is in the queue; its host's count is the same, or this panics.
async fn seen(store: Store) -> Result<Vec<i64>, StoreError> {
    let read = |state: &mut State| {
        let urls = state.column("SELECT url_id FROM queue ORDER BY url_id", ())?;
        let counted = state.column("SELECT coalesce(sum(queued), 0) FROM turns", ())?;
        assert_eq!(counted, [i64::try_from(urls.len()).unwrap()]);
        Ok(urls)
    };
    store.write(Lane::Hot, read).await
}

const DONE: Deed = |_| Ok(());
const REFUSED: Deed = |_| fail();
const BUSY: Result<(), StoreError> = Err(StoreError::Busy);

#[tokio::test]
async fn one_that_gathers_and_is_refused_leaves_what_others_have_gathered() {
    // The second looks for what was given before first, for which all is written.
    let again: Deed = |state| {
        let request = LeaseRequest {
            max: 1,
            ttl: DELAY,
            per_host: 1,
            crawl: "default".to_owned(),
            sites: vec!["nope".to_owned()],
            worker: None,
            request_id: Some("1".to_owned()),
        };
        state.lease(&request, false).map(|_| ())
    };
    for refused in [REFUSED, again] {
        let open = open();
        let jobs = vec![(Some(1), DONE), (None, refused), (Some(2), DONE)];
        let (ends, then) = gather(&open, jobs).await;
        assert_eq!((&ends[0], &ends[2]), (&Ok(()), &Ok(())));
        assert!(matches!(ends[1], Err(StoreError::Refused(_) | StoreError::NotFound(_))));
        assert_eq!(then, Ok(vec![1, 2]), "a job behind them sees what they gathered");
        assert_eq!(seen(open.store.clone()).await, Ok(vec![1, 2]), "and it is committed");
    }
}

#[tokio::test]
async fn one_that_gathers_and_fails_halfway_fails_all_of_its_transaction_but_no_later_one() {
    let open = open();
    let jobs = || vec![(Some(1), DONE), (Some(2), REFUSED), (Some(3), DONE)];
    let (ends, then) = gather(&open, jobs()).await;
    assert_eq!(ends, [BUSY, fail(), BUSY]);
    assert_eq!(then, Err(StoreError::Busy), "to be asked again");
    assert_eq!(seen(open.store.clone()).await, Ok(vec![]));
    // For a while each takes back its own writes only.
    let (ends, then) = gather(&open, jobs()).await;
    assert_eq!((ends, then), (vec![Ok(()), fail(), Ok(())], Ok(vec![1, 3])));
}

#[tokio::test]
async fn one_that_gathers_and_panics_halfway_has_the_others_come_again() {
    let open = open();
    let panics: Deed = |_| panic!("a test of panics");
    let (ends, then) = gather(&open, vec![(Some(1), DONE), (Some(2), panics)]).await;
    assert_eq!((&ends[0], &then), (&BUSY, &Err(StoreError::Busy)));
    assert!(matches!(&ends[1], Err(StoreError::Engine(text)) if text.contains("panicked")));
    assert_eq!(seen(open.store.clone()).await, Ok(vec![]));
}

#[tokio::test]
async fn nothing_that_was_gathered_is_written_once_the_engine_has_ended_the_transaction() {
    // As it does where it cannot read or write.
    let broken = || StoreError::Engine("cannot be read".to_owned());
    let ends_it: Deed = |state| {
        state.conn.execute_batch("ROLLBACK").unwrap();
        Err(StoreError::Engine("cannot be read".to_owned()))
    };
    // The same where it went unnoticed.
    let unnoticed: Deed = |state| {
        state.conn.execute_batch("ROLLBACK").unwrap();
        Ok(())
    };
    for deed in [ends_it, unnoticed] {
        let open = open();
        let (ends, then) = gather(&open, vec![(Some(1), DONE), (None, deed)]).await;
        assert!(ends[0].is_err() && then.is_err(), "{ends:?} {then:?}");
        assert!(ends[1] == Err(broken()) || matches!(ends[1], Err(StoreError::Engine(_))));
        assert_eq!(seen(open.store.clone()).await, Ok(vec![]));
    }
}

#[tokio::test]
async fn what_could_not_be_written_for_one_counts_for_no_host() {
    let open = open();
    let fails: Deed = |state| {
        // As a write that fails leaves it.
        state.pending.clear();
        state.pending.is_touched = true;
        Err(StoreError::Engine("cannot be written".to_owned()))
    };
    let (ends, _) = gather(&open, vec![(Some(1), fails)]).await;
    assert!(ends[0].is_err());
    let (ends, then) = gather(&open, vec![(Some(2), DONE)]).await;
    assert_eq!((ends, then), (vec![Ok(())], Ok(vec![2])));
}

/// Two URLs of the first sitemap of a site that obeys nobody, both leased.
async fn leased(open: &Open) -> Vec<Token> {
    let store = &open.store;
    let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
    let sources = store.sources(filter).await.unwrap().items;
    let sitemap = sources.iter().find(|source| source.role == Role::Sitemap).unwrap();
    let origin = store.poll_target(sitemap.id).await.unwrap().origin(false).unwrap();
    let admit = |slot: u32| Effect::Admit {
        slot,
        url: Admitted {
            authority: "http://a.test".into(),
            path: format!("/{slot}"),
            respelled: false,
        },
        raw: None,
        lastmod: None,
        hints: EntryHints::default(),
        kind: UrlKind::Page,
    };
    store.apply(origin, vec![admit(0), admit(1)]).await.unwrap();
    let request = LeaseRequest {
        max: 2,
        ttl: 60 * DELAY,
        per_host: 2,
        crawl: "default".to_owned(),
        sites: Vec::new(),
        worker: None,
        request_id: None,
    };
    let batch = store.lease(request).await.unwrap();
    assert_eq!(batch.urls.len(), 2);
    batch.urls.into_iter().map(|leased| leased.token).collect()
}

fn report(token: &Token, outcome: Outcome) -> Settlement {
    Settlement::new(*token, Some(outcome))
}

#[tokio::test]
async fn leases_that_end_twice_in_one_transaction_end_once() {
    for is_released in [false, true] {
        let open = open();
        let tokens = leased(&open).await;
        let store = &open.store;
        let (go, holding) = hold(store).await;
        let settle = |outcome| {
            let batch = tokens.iter().map(|token| report(token, outcome)).collect();
            let store = store.clone();
            tokio::spawn(async move { store.settle(batch).await })
        };
        let first = settle(Outcome::Changed);
        until_waiting(store, (1, 0)).await;
        let second = if is_released {
            let (store, tokens) = (store.clone(), tokens.clone());
            tokio::spawn(async move { store.release(tokens, Duration::ZERO).await })
        } else {
            settle(Outcome::Failed)
        };
        until_waiting(store, (2, 0)).await;
        go.send(()).unwrap();
        holding.await.unwrap().unwrap();
        assert_eq!(first.await.unwrap().unwrap(), [TokenResult::Ok; 2]);
        // The same again is said so; what was settled cannot be given back.
        let expected = if is_released { TokenResult::Stale } else { TokenResult::Ok };
        assert_eq!(second.await.unwrap().unwrap(), [expected; 2], "{is_released}");
        assert_eq!(seen(store.clone()).await.map(|urls| urls.len()), Ok(2));
        for n in [0, 1] {
            let url = format!("http://a.test/{n}").parse().unwrap();
            let view = store.url(None, url).await.unwrap();
            assert_eq!((view.outcome, view.fetches), (Some(Outcome::Changed), 1));
            assert!(view.due_at > Some(Clock::system().now()), "{:?}", view.due_at);
        }
    }
}

#[tokio::test]
async fn what_comes_to_nothing_is_not_counted() {
    let open = open();
    let tokens = leased(&open).await;
    let store = &open.store;
    let settled = || {
        let text = open.metrics.encode(None, crate::metrics::Format::Plain);
        let of_settlements = |line: &&str| line.starts_with("sitemapd_settlements_total{");
        let lines = text.lines().filter(of_settlements);
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    let settle = |store: Store| {
        let batch = tokens.iter().map(|token| report(token, Outcome::Changed)).collect();
        tokio::spawn(async move { store.settle(batch).await })
    };
    let (go, holding) = hold(store).await;
    let before = (commits(&open), effects(&open));
    let vain = settle(store.clone());
    until_waiting(store, (1, 0)).await;
    let failing = {
        let store = store.clone();
        let job = |state: &mut State| {
            state.pending.is_touched = true;
            fail()
        };
        tokio::spawn(async move { store.write(Lane::Gathers, job).await })
    };
    until_waiting(store, (2, 0)).await;
    go.send(()).unwrap();
    // Whether or not it was of the same transaction.
    let held = u64::from(holding.await.unwrap().is_ok());
    assert_eq!(vain.await.unwrap(), Err(StoreError::Busy));
    assert_eq!(failing.await.unwrap(), fail());
    assert_eq!(settled(), 0);
    assert_eq!((commits(&open), effects(&open)), (before.0 + held, before.1 + held));
    assert_eq!(settle(store.clone()).await.unwrap(), Ok(vec![TokenResult::Ok; 2]));
    assert_eq!(settled(), 2);
    assert_eq!(effects(&open), before.1 + held + 1);
}

#[tokio::test]
async fn a_job_that_is_refused_is_no_effect_of_the_commit_that_it_waited_for() {
    let open = open();
    let store = &open.store;
    let (go, holding) = hold(store).await;
    let before = (commits(&open), effects(&open));
    let mut jobs = Vec::new();
    for (index, how) in [succeed as Way, fail, succeed].into_iter().enumerate() {
        let name = ["http://one.test", "http://failed.test", "http://two.test"][index];
        jobs.push(tokio::spawn(make_host(store.clone(), name, how)));
        until_waiting(store, (index + 1, 0)).await;
    }
    go.send(()).unwrap();
    holding.await.unwrap().unwrap();
    for job in jobs {
        let _ = job.await.unwrap();
    }
    assert!(commits(&open) > before.0);
    // The job that held the writer, and two of the three.
    assert_eq!(effects(&open) - before.1, 3);
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
    holding.await.unwrap().unwrap();
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
    holding.await.unwrap().unwrap();
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
    holding.await.unwrap().unwrap();
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

#[tokio::test]
async fn of_a_host_of_which_nothing_is_known_no_record_is_kept() {
    let open = open();
    let store = &open.store;
    let counts = store.write(Lane::Hot, |state| {
        let before = state.learning.remembered();
        let host = state.host_named("http://one.test", DELAY)?;
        for _ in 0..2 {
            assert!(state.proof_of_host(host)? <= 0.0);
        }
        Ok((before, state.learning.remembered()))
    });
    let (before, after) = counts.await.unwrap();
    // But for that of all hosts.
    assert!(after <= before + 1, "{before}, {after}");
}

#[tokio::test]
async fn a_host_without_a_delay_has_its_clock_written_only_where_somebody_waits_for_it() {
    let open = open();
    // Of no site, so that the delay is what is asked for.
    let host = "http://b.test".to_owned();
    let reserve = |delay| open.store.reserve(host.clone(), Some(delay), DELAY * 10, None);
    let kept = || async {
        let read =
            |state: &mut State| state.column("SELECT next_at FROM hosts WHERE name = 'b.test'", ());
        open.store.write(Lane::Hot, read).await.unwrap()
    };
    let first = reserve(Duration::ZERO).await.unwrap().unwrap();
    let before = kept().await;
    let second = reserve(Duration::ZERO).await.unwrap().unwrap();
    assert!(second >= first);
    assert_eq!(kept().await, before, "nobody has to wait");
    // Polls and leases wait for this one, after a restart, too.
    let third = reserve(DELAY).await.unwrap().unwrap();
    let waits = third.as_millisecond() + 1_000;
    assert_eq!(kept().await, [waits]);
    // Given back, it is nobody's.
    open.store.give_back(host.clone(), third).await.unwrap();
    assert_eq!(kept().await, [third.as_millisecond()]);
}

#[tokio::test]
async fn a_site_is_forgotten_by_jobs_of_so_many_rows_each() {
    let open = open();
    let store = &open.store;
    let filled = store.write(Lane::Hot, |state| {
        state.conn.execute("UPDATE sites SET state = 2", ()).map_err(crate::store::engine)?;
        let sources = state.column("SELECT id FROM sources", ())?;
        for source in &sources {
            state
                .conn
                .execute(
                    "INSERT INTO polls (source_id, at, took_ms, result, counts)
                     WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
                     SELECT ?1, 0, 0, 'unchanged', '{}' FROM n",
                    [source],
                )
                .map_err(crate::store::engine)?;
        }
        Ok(sources.len())
    });
    assert!(filled.await.unwrap() > 1, "robots.txt and the sitemap");
    let kept = || async {
        let count = |state: &mut State| state.column("SELECT count(*) FROM polls", ());
        store.write(Lane::Hot, count).await.unwrap()[0]
    };
    let (mut jobs, mut left) = (0, kept().await);
    let all = left;
    while store.write(Lane::Bulk, |state| state.forget_rest("a", None)).await.unwrap() {
        let before = std::mem::replace(&mut left, kept().await);
        assert!((1..=2_500).contains(&(before - left)), "{before} to {left}");
        jobs += 1;
    }
    assert!(jobs >= all / 2_500, "{jobs}");
    let rows = |state: &mut State| {
        let sites = state.column("SELECT count(*) FROM sites", ())?;
        let sources = state.column("SELECT role FROM sources", ())?;
        Ok((sites, sources))
    };
    // Its robots.txt stays with its host.
    assert_eq!(store.write(Lane::Hot, rows).await.unwrap(), (vec![0], vec![0]));
    assert_eq!(kept().await, 0);
}
