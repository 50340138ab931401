//! Logs that several write to and others follow: in the order of their numbers,
//! each row once, whoever commits first.

use serde_json::Value;
use sitemapd::fetch::api::ApiClient;
use sitemapd::store::tides::Tides;
use tokio_postgres::{Client, NoTls};

use crate::support::daemon::{DAY, Daemon, World, sitemap};
use crate::support::engine::Look;
use crate::support::{Origin, Reply};

/// What a daemon does first in a transaction, and a copy of the first change and
/// the first poll.
const ADD: &str = "
    BEGIN;
    LOCK TABLE changes IN ROW EXCLUSIVE MODE;
    INSERT INTO changes (part, id, at, crawl_id, source_id, generation, events, data)
        SELECT part, (CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT) << 20)
            + coalesce((SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'changes_base'), 0),
            at, crawl_id, source_id, generation, events, data FROM changes ORDER BY id LIMIT 1;
    INSERT INTO polls (part, id, source_id, at, took_ms, result, counts)
        SELECT part, (CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT) << 12)
            + coalesce((SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'polls_base'), 0),
            source_id, at, took_ms, 'unchanged', counts FROM polls ORDER BY id LIMIT 1;";

struct Followed {
    daemon: Daemon,
    origin: Origin,
    world: World,
    config: String,
    url: String,
}

impl Followed {
    /// A daemon that has found one page; none where there is no server.
    async fn start(test: &str) -> Option<Self> {
        let origin = Origin::start().await;
        let world = World::new(&[&origin]);
        let Look::Server(url) = world.look() else {
            eprintln!("SKIPPED: {test} needs a server, which SITEMAPD_POSTGRES names");
            return None;
        };
        let base = origin.base();
        let config = format!(
            "[store]\nkeep_changes = \"3d\"\n[[site]]\nname = \"site\"\nurl = \"{base}/\"\n\
             poll = \"30d\"\nsitemaps = [\"{base}/sitemap.xml\"]\nfeeds = []\nobey_robots = false\n"
        );
        list(&origin, &["/a"]);
        let daemon = world.start(&config).await;
        daemon.polled("/sitemap.xml", 1).await;
        daemon.settled().await;
        Some(Self { daemon, origin, world, config, url })
    }

    /// Another that writes.
    async fn other(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// The daemon finds another page.
    async fn find(&self, paths: &[&str]) {
        list(&self.origin, paths);
        self.daemon.poll("/sitemap.xml").await;
    }

    async fn after(&self, cursor: &str, limit: &str) -> Value {
        let client = ApiClient::new(&format!("http://{}", self.daemon.api), None).unwrap();
        client.get("/v1/changes", &[("after", cursor), ("limit", limit)]).await.unwrap()
    }

    async fn end(&self) -> String {
        text(&self.after("end", "1").await["next"])
    }

    /// All that comes behind a place, so many at a time.
    async fn all_after(&self, cursor: &str, limit: &str) -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), cursor.to_owned());
        loop {
            let page = self.after(&after, limit).await;
            all.extend(paths(&page));
            after = text(&page["next"]);
            if page["more"] == false {
                return all;
            }
        }
    }

    async fn polls_after(&self, after: i64) -> Vec<i64> {
        let polls = self.daemon.store.polls_after(None, after, 100).await.unwrap();
        polls.iter().map(|poll| poll.id).collect()
    }

    /// Reads on to the end; says how many polls there are.
    async fn tide(&self, tides: &mut Tides) -> u64 {
        let store = &self.daemon.store;
        while !tides.take(store.tides(tides).await.unwrap(), store.now()) {}
        tides.week(store.now()).map(|tide| tide.polls).sum()
    }
}

fn list(origin: &Origin, paths: &[&str]) {
    let entries: Vec<_> = paths.iter().map(|path| (*path, "")).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &entries)));
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn paths(page: &Value) -> Vec<String> {
    let url = |change: &Value| text(&change["url"]);
    let path = |url: String| url[url.rfind('/').unwrap()..].to_owned();
    page["changes"].as_array().unwrap().iter().map(url).map(path).collect()
}

#[tokio::test]
async fn what_was_begun_earlier_and_is_committed_later_is_seen_first_and_once() {
    let Some(followed) = Followed::start("the order of several writers").await else { return };
    let mut tides = Tides::default();
    let polls = followed.tide(&mut tides).await;
    let newest = followed.polls_after(0).await.last().copied().unwrap();
    let end = followed.end().await;
    let other = followed.other().await;
    other.batch_execute(ADD).await.unwrap();
    followed.find(&["/a", "/b"]).await;
    followed.find(&["/a", "/b", "/c"]).await;
    // All that is committed now came after what is not.
    assert_eq!(followed.all_after(&end, "1").await, Vec::<String>::new());
    assert_eq!(followed.polls_after(newest).await, Vec::<i64>::new());
    assert_eq!(followed.tide(&mut tides).await, polls);
    let meanwhile = followed.end().await;
    let mut events = follow(&followed, &end).await;
    other.batch_execute("COMMIT").await.unwrap();
    for limit in ["1", "2", "1000"] {
        for cursor in [&end, &meanwhile] {
            assert_eq!(followed.all_after(cursor, limit).await, ["/a", "/b", "/c"], "{limit}");
        }
    }
    let mut ids = followed.polls_after(newest).await;
    assert_eq!(ids.len(), 3);
    assert!(ids.is_sorted(), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert_eq!(followed.tide(&mut tides).await, polls + 3);
    // Nobody told the daemon that another had committed.
    assert_eq!(told(&mut events, 3).await, ["/a", "/b", "/c"]);
    followed.daemon.stop().await;
}

/// Follows the stream from a place on.
async fn follow(followed: &Followed, after: &str) -> reqwest::Response {
    let client = sitemapd::fetch::tls::client().no_proxy().build().unwrap();
    let url = format!("http://{}/v1/changes?after={after}", followed.daemon.api);
    client.get(url).header("accept", "text/event-stream").send().await.unwrap()
}

/// The next events of it.
async fn told(events: &mut reqwest::Response, count: usize) -> Vec<String> {
    let mut text = String::new();
    while text.matches("data:").count() < count || !text.ends_with("\n\n") {
        let chunk = events.chunk().await.unwrap().expect("the stream goes on");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let page = data.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    paths(&serde_json::json!({ "changes": page }))
}

#[tokio::test]
async fn what_is_taken_back_holds_nothing_any_more_and_strangers_never_do() {
    let Some(followed) = Followed::start("transactions that are taken back").await else { return };
    let end = followed.end().await;
    let stranger = followed.other().await;
    stranger.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    followed.find(&["/a", "/b"]).await;
    assert_eq!(followed.all_after(&end, "10").await, ["/b"]);
    let other = followed.other().await;
    other.batch_execute(ADD).await.unwrap();
    followed.find(&["/a", "/b", "/c"]).await;
    assert_eq!(followed.all_after(&end, "10").await, ["/b"]);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(followed.all_after(&end, "10").await, ["/b", "/c"]);
    stranger.batch_execute("ROLLBACK").await.unwrap();
    followed.daemon.stop().await;
}

#[tokio::test]
async fn a_store_whose_numbers_are_above_those_of_the_server_goes_on_above_them() {
    let Some(mut followed) = Followed::start("numbers of another server").await else { return };
    let end = followed.end().await;
    followed.daemon.stop().await;
    let look = followed.world.look();
    // As a dump of a server has it that has counted further.
    look.change(
        "UPDATE changes SET id = id + (CAST(1 AS BIGINT) << 50);
         UPDATE polls SET id = id + (CAST(1 AS BIGINT) << 45)",
    );
    let highest = |log: &str| look.number(&format!("SELECT max(id) FROM {log}"));
    let before = (highest("changes"), highest("polls"));
    followed.daemon = followed.world.start(&followed.config).await;
    // What is known of the place before is still good.
    assert_eq!(followed.all_after(&end, "10").await, ["/a"]);
    let end = followed.end().await;
    followed.find(&["/a", "/b"]).await;
    assert!(highest("changes") > before.0);
    assert!(highest("polls") > before.1);
    assert_eq!(followed.all_after(&end, "10").await, ["/b"]);
    assert_eq!(followed.polls_after(before.1).await.len(), 1);
    // So is a place from after the dump: that server may have counted on.
    let later = format!("c{:x}.0", before.0 + (1 << 45));
    assert_eq!(followed.all_after(&later, "10").await, ["/b"]);
    let bases = "SELECT key, value FROM meta WHERE key IN ('changes_base', 'polls_base')
                 ORDER BY key";
    let raised = look.rows(bases);
    assert_eq!(raised.len(), 2);
    followed.daemon.stop().await;
    // Once is enough.
    let daemon = followed.world.start(&followed.config).await;
    assert_eq!(look.rows(bases), raised);
    daemon.stop().await;
}

#[tokio::test]
async fn a_cursor_behind_all_that_was_dropped_is_good_whatever_numbers_were_left_out() {
    let Some(followed) = Followed::start("retention").await else { return };
    let first = followed.end().await;
    followed.daemon.pass(DAY * 4).await;
    followed.find(&["/a", "/b"]).await;
    while followed.daemon.store.maintain().await.unwrap() {}
    let look = followed.world.look();
    assert_eq!(look.number("SELECT count(*) FROM changes"), 1);
    // Many numbers lie between what was dropped and what is left; no row does.
    assert_eq!(followed.all_after(&first, "10").await, ["/b"]);
    followed.daemon.stop().await;
}
