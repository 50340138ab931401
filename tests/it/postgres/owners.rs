//! Whose the partitions of a store on a server are: shared evenly, and who was
//! taken over from commits nothing more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::metrics::Metrics;
use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::LeaseRequest;
use sitemapd::store::{PastFetch, Store, StoreError};
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::cli::{outcome, sitemapd_in};
use crate::support::PATIENCE;
use crate::support::engine::{self, Look};
use crate::support::queue_daemon::{Queue, ask, site};

struct Two {
    config: Config,
    other: Config,
    _folders: [TempDir; 2],
}

/// Two data folders whose store is the same; none where there is no server.
fn two(test: &str) -> Option<Two> {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    if engine::server_for(folders[0].path()).is_none() {
        eprintln!("SKIPPED: {test} needs a server, which SITEMAPD_POSTGRES names");
        return None;
    }
    let mut config = Config::from_toml_str(&site("a", "http://a.test/", "")).unwrap();
    engine::place(&mut config, folders[0].path());
    let mut other = config.clone();
    folders[1].path().clone_into(&mut other.daemon.data_dir);
    Some(Two { config, other, _folders: folders })
}

fn open(config: &Config) -> Result<Store, StoreError> {
    Store::open(config, Clock::system(), Arc::new(Metrics::new()))
}

async fn lease(store: &Store) -> Result<usize, StoreError> {
    let request = LeaseRequest {
        crawl: "default".to_owned(),
        sites: Vec::new(),
        max: 10,
        per_host: 10,
        ttl: Duration::from_secs(300),
        worker: None,
        request_id: None,
    };
    store.lease(request).await.map(|batch| batch.urls.len())
}

/// Waits until a look finds what is expected.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many partitions each daemon has.
fn shares(look: &Look) -> Vec<i64> {
    let rows = look
        .rows("SELECT count(*) FROM partitions WHERE node IS NOT NULL GROUP BY node ORDER BY 1");
    rows.into_iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn partitions_are_shared_evenly_and_come_back_when_a_daemon_ends() {
    let Some(two) = two("sharing partitions") else { return };
    let first = open(&two.config).unwrap();
    let look = Look::of(&two.config);
    assert_eq!(shares(&look), [256]);
    let second = open(&two.other).unwrap();
    until("halves", || shares(&look) == [128, 128]).await;
    assert_eq!(look.number("SELECT count(*) FROM partitions WHERE node IS NULL"), 0);
    assert_eq!(look.number("SELECT max(epoch) FROM partitions"), 2);
    first.close();
    until("all of it", || shares(&look) == [256]).await;
    lease(&second).await.unwrap();
    assert_eq!(lease(&first).await.unwrap_err(), StoreError::Closed);
}

#[tokio::test]
async fn who_was_taken_over_from_commits_nothing_more_and_joins_anew() {
    let Some(two) = two("taking over") else { return };
    let first = open(&two.config).unwrap();
    let look = Look::of(&two.config);
    let name = look.text("SELECT name FROM nodes").unwrap();
    // Its partitions go to somebody else, as after it was stopped for long.
    look.change(
        "BEGIN; DELETE FROM nodes; UPDATE partitions SET node = 'other', epoch = epoch + 1; COMMIT",
    );
    let known = look.number("SELECT count(*) FROM crawls");
    // It finds that before anything is written, and what is nobody's is its own.
    lease(&first).await.unwrap();
    assert_eq!(look.number("SELECT count(*) FROM crawls"), known);
    assert_eq!(look.text("SELECT name FROM nodes").unwrap(), name);
    assert_eq!(look.rows("SELECT DISTINCT epoch FROM partitions"), [vec![Some("3".to_owned())]]);
}

#[tokio::test]
async fn who_gets_all_back_at_once_goes_by_what_others_have_learned() {
    if engine::is_embedded("what others learned") {
        return;
    }
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..2).map(|n| format!("http://a.test/{n}"))).await;
    queue.settle(queue.lease_one().await.token, Outcome::Changed).await;
    let look = queue.look();
    let price = || look.text("SELECT price FROM prices").unwrap().parse::<f64>().unwrap();
    let before = price();
    // Others had it for a while, and are gone again.
    look.change(
        "BEGIN; DELETE FROM nodes; UPDATE partitions SET node = 'other', epoch = epoch + 1;
         UPDATE prices SET price = price * 1000; COMMIT",
    );
    queue.clock.advance(Duration::from_secs(2 * 3_600));
    queue.settle(queue.lease_one().await.token, Outcome::Changed).await;
    queue.store.close();
    assert!(price() > before * 100.0, "{} was {before}", price());
}

#[tokio::test]
async fn what_a_machines_own_clock_did_meanwhile_moves_nothing_on_a_server() {
    let Some(two) = two("a machine that was suspended") else { return };
    open(&two.config).unwrap().close();
    let look = Look::of(&two.config);
    let Some(up) = Clock::system().uptime() else { return };
    // By the last start on this boot, two hours have passed more than it was up.
    let now = Clock::system().now().as_millisecond();
    let (at, anchor) = (now + 600_000, format!("{} {} {}", up.boot, up.ms, now - 7_200_000));
    look.change(&format!(
        "INSERT INTO meta (key, value) VALUES ('clock', '{anchor}')
             ON CONFLICT (key) DO UPDATE SET value = excluded.value;
         UPDATE hosts SET next_at = {at}, paused_until = {at}"
    ));
    let store = open(&two.config).unwrap();
    let clocks = look.rows("SELECT DISTINCT next_at, paused_until FROM hosts");
    assert_eq!(clocks, [vec![Some(at.to_string()), Some(at.to_string())]]);
    assert_eq!(look.text("SELECT value FROM meta WHERE key = 'clock'").unwrap(), anchor);
    store.close();
}

#[tokio::test]
async fn a_daemon_whose_clock_stood_still_goes_by_the_servers_from_its_next_transaction() {
    let Some(mut two) = two("a clock that stood still") else { return };
    open(&two.config).unwrap().close();
    let look = Look::of(&two.config);
    // Ours stands still while the server's goes on: so that one is put forward.
    look.change(
        "CREATE TABLE forward (hours INTERVAL NOT NULL);
         INSERT INTO forward VALUES ('0');
         CREATE FUNCTION clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql AS
             'SELECT pg_catalog.clock_timestamp() + (SELECT hours FROM forward)'",
    );
    let url = two.config.store.url.as_mut().unwrap();
    let options = url.query_pairs().find(|(key, _)| key == "options").unwrap().1.into_owned();
    url.set_query(None);
    url.query_pairs_mut().append_pair("options", &format!("{options},pg_catalog"));
    let store = open(&two.config).unwrap();
    let hours = |store: &Store| {
        let ahead = store.now().duration_since(Clock::system().now());
        (ahead.as_secs() + 1_800).div_euclid(3_600)
    };
    lease(&store).await.unwrap();
    assert_eq!(hours(&store), 0);
    look.change("UPDATE forward SET hours = '2 hours'");
    lease(&store).await.unwrap();
    assert_eq!(hours(&store), 2);
    // Time does not go back, whatever becomes of the server's clock.
    look.change("UPDATE forward SET hours = '1 hour'");
    lease(&store).await.unwrap();
    assert_eq!(hours(&store), 2);
    store.close();
}

#[tokio::test]
async fn what_was_given_up_as_the_connection_broke_is_not_ours_over_the_next_one() {
    let queue = Queue::simple().await;
    if engine::is_embedded("giving partitions up") {
        return;
    }
    queue.list_urls("a", ["http://a.test/1".to_owned()]).await;
    // As after a look that was committed, and whose answer was lost.
    queue.look().change(
        "INSERT INTO nodes (name, address, backend, since, until)
             VALUES ('other', '', 0, now(), now() + interval '1 hour');
         UPDATE partitions SET node = 'other', epoch = epoch + 1;
         SELECT pg_terminate_backend(backend) FROM nodes WHERE backend > 0",
    );
    assert!(queue.lease(10).await.is_empty());
}

#[tokio::test]
async fn a_cut_connection_is_made_again_and_work_goes_on() {
    let Some(two) = two("cut connections") else { return };
    let store = open(&two.config).unwrap();
    let look = Look::of(&two.config);
    lease(&store).await.unwrap();
    look.number("SELECT count(pg_terminate_backend(backend)) FROM nodes");
    // Nothing was asked of it when it was cut, so nobody hears of that.
    lease(&store).await.unwrap();
    assert_eq!(look.rows("SELECT DISTINCT epoch FROM partitions"), [vec![Some("1".to_owned())]]);
}

#[tokio::test]
async fn nothing_goes_on_before_the_transaction_of_a_lost_connection_has_ended() {
    let queue = Queue::simple().await;
    let Look::Server(server) = queue.look() else {
        eprintln!("SKIPPED: lost connections need a server, which SITEMAPD_POSTGRES names");
        return;
    };
    let url = "http://a.test/2".to_owned();
    queue.list_urls("a", ["http://a.test/1".to_owned(), url.clone()]).await;
    let look = queue.look();
    look.change(
        "CREATE TABLE later AS SELECT * FROM urls WHERE path = '/2';
         DELETE FROM queue WHERE url_id IN (SELECT id FROM later);
         DELETE FROM urls WHERE path = '/2'",
    );
    // As the server is when the connection breaks at a commit.
    let (last, connection) = tokio_postgres::connect(&server, NoTls).await.unwrap();
    tokio::spawn(connection);
    last.batch_execute(
        "BEGIN; SELECT name FROM nodes FOR KEY SHARE; INSERT INTO urls SELECT * FROM later",
    )
    .await
    .unwrap();
    let pid: i32 = last.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    look.number("SELECT count(pg_terminate_backend(backend)) FROM nodes");
    let waiting =
        format!("SELECT count(*) FROM pg_stat_activity WHERE {pid} = ANY (pg_blocking_pids(pid))");
    let other = async {
        until("the end of the other", || look.number(&waiting) > 0).await;
        last.batch_execute("COMMIT").await.unwrap();
    };
    let admit = async {
        queue.list_urls("a", [url]).await;
        assert_eq!(look.number("SELECT count(*) FROM later l JOIN urls u USING (id)"), 1);
    };
    tokio::join!(admit, other);
    assert_eq!(look.number("SELECT count(*) FROM urls WHERE path = '/2'"), 1);
}

#[tokio::test]
async fn an_order_is_not_carried_out_beside_daemons_that_work_on_the_store() {
    let Some(two) = two("an order beside daemons") else { return };
    let store = open(&two.config).unwrap();
    let look = Look::of(&two.config);
    let folder = TempDir::new().unwrap();
    // Nobody listens on port 9 (discard), and no site is known here.
    let url = two.config.store.url.as_ref().unwrap();
    let text = format!("[store]\nurl = \"{url}\"\n[listen]\napi = \"127.0.0.1:9\"\n");
    std::fs::write(folder.path().join("config.toml"), text).unwrap();
    let facts = "SELECT (SELECT CAST(array_agg(p ORDER BY part) AS TEXT) FROM partitions p),
                     (SELECT CAST(array_agg(s.state) AS TEXT) FROM sites s)";
    let before = look.rows(facts);
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).arg("queue").args(args));
    let (code, _, err) = run(&["pause"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("daemons work on this store") && err.contains("--api"), "{err}");
    assert_eq!(look.rows(facts), before);
    store.close();
    assert_eq!(run(&["pause"]).0, 0);
    // One that died in this folder is in nobody's way, as its lock is free.
    look.change(
        "INSERT INTO nodes (name, address, backend, since, until)
         VALUES ('dead', '', 0, now(), now() + interval '1 hour')",
    );
    assert_eq!(run(&["resume"]).0, 1);
    std::fs::write(folder.path().join("data/sitemapd.node"), "dead").unwrap();
    assert_eq!(run(&["resume"]).0, 0);
}

/// A daemon beside the one of a queue, by a config of its own; its folder is to stay.
fn beside(queue: &Queue, text: &str) -> (Store, TempDir, Config) {
    let folder = TempDir::new().unwrap();
    let mut config = Config::from_toml_str(text).unwrap();
    folder.path().clone_into(&mut config.daemon.data_dir);
    config.store.url.clone_from(&queue.config.store.url);
    let store = Store::open(&config, queue.clock.clone(), Arc::new(Metrics::new())).unwrap();
    (store, folder, config)
}

#[tokio::test]
async fn a_site_that_a_daemon_does_not_have_in_its_config_yet_is_not_leased_by_it() {
    if engine::is_embedded("configs that differ") {
        return;
    }
    let one = site("a", "http://a.test/", "");
    let both = format!("{one}{}", site("b", "http://b.test/", ""));
    let mut queue = Queue::open(&one).await;
    queue.list_urls("a", (0..40).map(|n| format!("http://h{n}.test/"))).await;
    let (other, _folder, mut config) = beside(&queue, &one);
    let look = queue.look();
    until("even shares", || shares(&look) == [128, 128]).await;
    queue.reload(&both).await.unwrap();
    queue.config.sites = Config::from_toml_str(&both).unwrap().sites;
    queue.learn_origins().await;
    let name = std::fs::read_to_string(queue.folder().join("sitemapd.node")).unwrap();
    let near = look.rows(&format!(
        "SELECT h.authority FROM hosts h JOIN partitions p USING (part)
         WHERE p.node = '{name}' AND h.authority LIKE 'http://h%'"
    ));
    let near = near.into_iter().map(|row| format!("{}/b", row[0].as_ref().unwrap()));
    assert!(!queue.list_urls("b", near).await.is_empty());
    queue.store.close();
    until("all partitions", || shares(&look) == [256]).await;
    let of_b = async || {
        let request = LeaseRequest { sites: vec!["b".to_owned()], ..ask(1_000) };
        other.lease(request).await.unwrap().urls.len()
    };
    assert_eq!(of_b().await, 0, "by whose rules?");
    config.sites = Config::from_toml_str(&both).unwrap().sites;
    other.reconfigure(config, ["b".to_owned()].into(), || ()).await.unwrap();
    assert!(of_b().await > 0);
}

#[tokio::test]
async fn a_delay_of_another_config_holds_for_hosts_as_they_come_to_its_daemon() {
    if engine::is_embedded("hosts that come from others") {
        return;
    }
    let queue = Queue::open(&site("a", "http://a.test/", "")).await;
    queue.list_urls("a", (0..20).map(|n| format!("http://h{n}.test/"))).await;
    let look = queue.look();
    let late = "SELECT count(*) FROM hosts WHERE delay_ms = 60000";
    let (_other, _folder, _) = beside(&queue, &site("a", "http://a.test/", "host_delay = \"60s\""));
    assert_eq!(look.number(late), 0, "nothing is its own yet");
    queue.store.close();
    let asked = "SELECT count(DISTINCT host_id) FROM sources WHERE role = 0";
    until("the delay of the daemon that is left", || look.number(late) == look.number(asked)).await;
    assert!(look.number(asked) > 0);
}

/// Counts the statements that change rows of URLs, however many rows each changes.
const COUNT: &str = "
    CREATE SEQUENCE sent;
    CREATE FUNCTION count_one() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM nextval('sent'); RETURN NULL; END $$;
    CREATE TRIGGER counted AFTER INSERT OR UPDATE ON feedback
        FOR EACH STATEMENT EXECUTE FUNCTION count_one();
    CREATE TRIGGER counted AFTER INSERT OR DELETE ON queue
        FOR EACH STATEMENT EXECUTE FUNCTION count_one()";

#[tokio::test]
async fn orders_about_many_urls_are_few_statements() {
    if engine::is_embedded("statements that are journeys") {
        return;
    }
    let queue = Queue::simple().await;
    let urls: Vec<_> = (0..600).map(|n| format!("http://h{}.test/{n}", n % 10)).collect();
    queue.list_urls("a", urls.clone()).await;
    let look = queue.look();
    look.change(COUNT);
    let sent = || look.number("SELECT last_value FROM sent");
    let fetches = urls.iter().map(|url| PastFetch {
        url: url.parse().unwrap(),
        at: queue.clock.now() - Duration::from_secs(3_600),
        changed: Some(true),
        content_hash: None,
        hash_kind: None,
    });
    let imported = queue.store.import("default".to_owned(), fetches.collect()).await.unwrap();
    assert_eq!(imported.taken, 600);
    assert!(sent() < 40, "{} statements", sent());
    let named = [urls, vec!["http://h1.test/1".to_owned()]].concat();
    assert_eq!(queue.store.requeue("default".to_owned(), named).await.unwrap(), 600);
    assert!(sent() < 80, "{} statements", sent());
    assert_eq!(look.number("SELECT count(*) FROM queue"), 600);
    assert_eq!(look.number("SELECT count(*) FROM feedback"), 600);
    assert_eq!(queue.view("http://h1.test/1").await.reason, Reason::Submitted);
}
