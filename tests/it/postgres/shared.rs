//! Three daemons on one store: whoever is asked answers for all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sitemapd::config::Config;
use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{Outcome, Precision, UrlId};
use sitemapd::queue::{LeaseRequest, Leased, TokenResult};
use sitemapd::recrawl::signal::Signal;
use sitemapd::store::{ChangeFilter, Effect};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::daemon::{DAY, Daemon, MINUTE, World};
use crate::support::engine::{self, Look};
use crate::support::queue_daemon::report;
use crate::support::relay::Relay;
use crate::support::{Origin, Reply};

pub(super) const URLS: usize = 300;
pub(super) const HOSTS: usize = 30;

pub(super) struct Three {
    pub(super) daemons: Vec<Daemon>,
    pub(super) look: Look,
    origin: Origin,
    config: Config,
    folders: Vec<TempDir>,
    world: World,
}

impl Three {
    /// Three daemons, each with its share; none where there is no server.
    pub(super) async fn start(test: &str, sitemap: String) -> Option<Self> {
        Self::start_with(test, sitemap, "").await
    }

    /// The same with more in their config.
    pub(super) async fn start_with(test: &str, sitemap: String, more: &str) -> Option<Self> {
        let folders: Vec<_> = (0..3).map(|_| TempDir::new().unwrap()).collect();
        if engine::server_for(folders[0].path()).is_none() {
            eprintln!("SKIPPED: {test} needs a server, which SITEMAPD_POSTGRES names");
            return None;
        }
        let origin = Origin::start().await;
        origin.set("/sitemap.xml", Reply::xml(sitemap));
        let world = World::with_names(&[&origin]);
        let base = origin.base();
        let config = world.config(&format!(
            "{more}[[site]]\nname = \"a\"\nurl = \"{base}/\"\nsitemaps = [\"{base}/sitemap.xml\"]\n\
             feeds = []\nobey_robots = false\nscope = \"any\"\n"
        ));
        let mut daemons = Vec::new();
        for folder in &folders {
            let mut config = config.clone();
            folder.path().clone_into(&mut config.daemon.data_dir);
            daemons.push(world.start_with(config).await);
        }
        let look = Look::of(&config);
        let three = Self { daemons, look, origin, config, folders, world };
        three.wait_for_shares(3).await;
        Some(three)
    }

    /// The name that each joined by.
    pub(super) fn names(&self) -> Vec<String> {
        let read = |folder: &TempDir| std::fs::read_to_string(folder.path().join("sitemapd.node"));
        self.folders.iter().map(|folder| read(folder).unwrap()).collect()
    }

    /// Which of them has the partition of a row.
    pub(super) fn owner(&self, table: &str, row: &str) -> usize {
        let owner =
            format!("SELECT p.node FROM partitions p JOIN {table} t USING (part) WHERE {row}");
        let owner = self.look.text(&owner).expect("an owner");
        self.names().iter().position(|name| *name == owner).unwrap()
    }

    async fn wait(&self, what: &str, sql: &str) {
        let last = self.daemons.last().unwrap();
        last.wait(what, async || (self.look.text(sql).as_deref() == Some("t")).then_some(())).await;
    }

    async fn wait_for_shares(&self, daemons: usize) {
        let least = 256 / daemons;
        let sql = format!(
            "SELECT min(n) >= {least} AND count(*) = {daemons} FROM
             (SELECT count(*) AS n FROM partitions WHERE node IS NOT NULL GROUP BY node) AS shares"
        );
        self.wait("even shares", &sql).await;
    }

    pub(super) async fn wait_for_urls(&self, count: usize) {
        let sql = format!("SELECT count(*) = {count} FROM urls");
        self.wait("the URLs of all hosts", &sql).await;
    }
}

pub(super) fn sitemap() -> String {
    sitemap_of(URLS)
}

pub(super) fn sitemap_of(urls: usize) -> String {
    let mut xml = String::from("<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n");
    for number in 0..urls {
        let host = number % HOSTS;
        writeln!(xml, "<url><loc>http://h{host}.test/{number}</loc></url>").unwrap();
    }
    xml + "</urlset>\n"
}

fn request(max: u32, id: Option<&str>) -> LeaseRequest {
    LeaseRequest {
        crawl: "default".to_owned(),
        sites: Vec::new(),
        max,
        per_host: 1_000,
        ttl: Duration::from_secs(300),
        worker: None,
        request_id: id.map(str::to_owned),
    }
}

pub(super) async fn lease(daemon: &Daemon, max: u32, id: Option<&str>) -> Vec<Leased> {
    daemon.store.lease(request(max, id)).await.unwrap().urls
}

fn texts(leased: &[Leased]) -> BTreeSet<String> {
    leased.iter().map(|url| url.url.clone()).collect()
}

#[tokio::test]
async fn a_chunk_that_is_given_again_tells_nothing_twice() {
    let Some(three) = Three::start("a chunk given again", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let reader = &three.daemons[three.owner("sources", "t.url LIKE '%/sitemap.xml'")];
    reader.polled("/sitemap.xml", 1).await;
    let source = reader.source("/sitemap.xml").await.id;
    let origin = reader.store.poll_target(source).await.unwrap().origin(false).unwrap();
    let urls = three.look.rows("SELECT id FROM urls ORDER BY id");
    let effects: Vec<Effect> = (0..)
        .zip(urls)
        .map(|(nth, mut id): (usize, _)| {
            let url = UrlId(id[0].take().unwrap().parse().unwrap());
            let hints = EntryHints::default();
            match nth % 3 {
                0 => Effect::Touched { url, lastmod: None, hints },
                1 => Effect::Regressed { url, hints },
                _ => Effect::Missing { url },
            }
        })
        .collect();
    let told = async || {
        let filter = ChangeFilter::default;
        let page = reader.store.changes_after(None, 10_000, filter()).await.unwrap();
        page.changes.iter().filter(|event| event.kind != "new").count()
    };
    // As where the answer of an owner is lost.
    for _ in 0..2 {
        let counts = reader.store.apply(origin, effects.clone()).await.unwrap().counts;
        assert_eq!((counts.touched, counts.regressed), (URLS as u64 / 3, URLS as u64 / 3));
        assert_eq!(told().await, URLS);
    }
    // The next read is another one.
    let next = sitemapd::store::Origin { generation: origin.generation + 1, ..origin };
    reader.store.apply(next, effects).await.unwrap();
    assert_eq!(told().await, 2 * URLS);
}

#[tokio::test]
async fn whoever_is_asked_leases_and_settles_for_all_and_nothing_is_held_twice() {
    let Some(three) = Three::start("three daemons", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let parts = three.look.number("SELECT count(DISTINCT part) FROM urls");
    assert!(parts > 10, "the hosts are spread over partitions: {parts}");
    let mut leased = Vec::new();
    for turn in 0.. {
        let some = lease(&three.daemons[turn % 3], 40, None).await;
        if some.is_empty() {
            break;
        }
        leased.extend(some);
    }
    assert_eq!(leased.len(), URLS);
    assert_eq!(texts(&leased).len(), URLS, "nothing is held twice");
    let reports: Vec<_> = leased.iter().map(|url| report(url.token, Outcome::Unchanged)).collect();
    let results = three.daemons[0].store.settle(reports.clone()).await.unwrap();
    assert_eq!(results, vec![TokenResult::Ok; URLS]);
    let again = three.daemons[1].store.settle(reports).await.unwrap();
    assert_eq!(again, vec![TokenResult::Ok; URLS], "by whomever it is asked");
    let nodes = three.daemons[2].store.status().await.unwrap().nodes;
    assert_eq!(nodes.len(), 3);
    assert_eq!(nodes.iter().map(|node| node.partitions).sum::<u32>(), 256);
    assert!(nodes.iter().all(|node| node.address.is_some()));
    assert_eq!(three.look.number("SELECT count(*) FROM leases"), 0);
    assert_eq!(three.look.number("SELECT count(*) FROM queue"), i64::try_from(URLS).unwrap());
    let turns = three.look.number("SELECT CAST(sum(queued) AS BIGINT) FROM turns");
    assert_eq!(turns, i64::try_from(URLS).unwrap());
    let counted = three.look.number("SELECT CAST(sum(urls) AS BIGINT) FROM sites");
    assert_eq!(counted, i64::try_from(URLS).unwrap());
}

#[tokio::test]
async fn a_fetcher_that_always_asks_the_same_daemon_starves_none() {
    let Some(three) = Three::start("starving nobody", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    for _ in 0..16 {
        assert_eq!(lease(&three.daemons[0], 1, None).await.len(), 1);
    }
    let owners = "SELECT count(DISTINCT p.node) FROM leases l JOIN partitions p USING (part)";
    assert_eq!(three.look.number(owners), 3);
}

#[tokio::test]
async fn who_does_not_know_the_secret_of_the_store_gives_no_orders() {
    let Some(three) = Three::start("strangers", sitemap()).await else { return };
    let nodes = three.daemons[0].store.status().await.unwrap().nodes;
    let address = nodes[1].address.clone().unwrap();
    let secret = three.look.text("SELECT value FROM meta WHERE key = 'peers_secret'").unwrap();
    let order = async |secret: &str| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "POST /order HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\
             Connection: close\r\nContent-Length: 6\r\n\r\n\"Look\""
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    for wrong in ["", "x", &secret[1..]] {
        assert!(order(wrong).await.starts_with("HTTP/1.1 401 "), "{wrong:?}");
    }
    let answer = order(&secret).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{\"Ok\":\"Done\"}"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_call_that_is_made_again_elsewhere_gets_the_same_leases() {
    let Some(three) = Three::start("calls made again", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let first = lease(&three.daemons[0], 250, Some("id")).await;
    assert_eq!(first.len(), 250);
    for daemon in &three.daemons {
        assert_eq!(texts(&lease(daemon, 250, Some("id")).await), texts(&first));
    }
    assert_eq!(three.look.number("SELECT count(*) FROM leases"), 250);
}

#[tokio::test]
async fn calls_that_are_made_at_once_with_one_id_get_the_same_leases() {
    let Some(three) = Three::start("calls made at once", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    for id in ["a", "b", "c"] {
        let calls = (0..6).map(|turn| lease(&three.daemons[turn % 3], 100, Some(id)));
        let answers: Vec<_> =
            futures_util::future::join_all(calls).await.iter().map(|urls| texts(urls)).collect();
        assert_eq!(answers[0].len(), 100, "{id}");
        assert!(answers.iter().all(|urls| *urls == answers[0]), "{id}: {answers:?}");
    }
    assert_eq!(three.look.number("SELECT count(*) FROM leases"), 300);
}

#[tokio::test]
async fn whoever_is_asked_explains_a_url_by_what_its_owner_remembers() {
    let Some(three) = Three::start("explaining", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    for _ in 0..6 {
        let leased = lease(&three.daemons[0], 1_000, None).await;
        let seen = leased.iter().map(|url| report(url.token, Outcome::Unchanged)).collect();
        three.daemons[0].store.settle(seen).await.unwrap();
        three.daemons[0].clock.advance(181 * DAY);
    }
    let mut leased = lease(&three.daemons[0], 1_000, None).await;
    let (seen, other) = (leased.remove(0), leased);
    let hosts: BTreeMap<_, _> = other.iter().map(|url| (url.host.clone(), url)).collect();
    let other = hosts[&seen.host];
    let rates = async || {
        // What was believed of one host last holds for a few looks more.
        for url in hosts.values().filter(|url| url.host != seen.host) {
            three.daemons[2].url(&url.url).await;
        }
        let asked = three.daemons.iter().map(|daemon| daemon.url(&other.url));
        let views = futures_util::future::join_all(asked).await;
        views.into_iter().map(|view| view.learned.unwrap().numbers.rate).collect::<Vec<_>>()
    };
    // One look more after so many is not written at once.
    let before = rates().await[0];
    three.daemons[1].store.settle(vec![report(seen.token, Outcome::Changed)]).await.unwrap();
    let told = rates().await;
    assert!((told[0] / before - 1.0).abs() > 0.001, "{told:?} after {before}");
    assert!(told.iter().all(|rate| rate.to_bits() == told[0].to_bits()), "{told:?}");
}

#[tokio::test]
async fn a_price_falls_whichever_daemon_fetchers_ask_for_more_than_is_due() {
    let Some(three) = Three::start("asking for more", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let owner = three.look.text("SELECT node FROM partitions WHERE part = 0").unwrap();
    // One that others move the price for, and of whose hosts nothing is ever settled.
    let asked = three.names().iter().position(|name| *name != owner).unwrap();
    let asked = &three.daemons[asked];
    let price = || three.look.text("SELECT price FROM prices").map(|text| text.parse().unwrap());
    lease(asked, 1_000, None).await;
    let first: f64 = asked.wait("a price", async || price()).await;
    let lower = async || {
        // The owner of the price looks each second what others have told.
        tokio::time::sleep(Duration::from_millis(100)).await;
        asked.clock.advance(60 * MINUTE);
        lease(asked, 1_000, None).await;
        price().filter(|price: &f64| *price < 0.9 * first)
    };
    asked.wait("a lower price", lower).await;
}

#[tokio::test]
async fn what_others_have_leased_is_handed_out_where_the_own_connection_breaks() {
    let Some(three) = Three::start("a connection that breaks", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let (folder, mut config) = (TempDir::new().unwrap(), three.config.clone());
    folder.path().clone_into(&mut config.daemon.data_dir);
    let url = config.store.url.as_mut().unwrap();
    let line = Relay::to(url.socket_addrs(|| Some(5_432)).unwrap());
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(line.addr.port())).unwrap();
    let fourth = three.world.start_with(config).await;
    three.wait_for_shares(4).await;
    line.kill(true);
    // Its first call begins with another daemon.
    let leased = lease(&fourth, 1_000, None).await;
    let all_but_its_own = texts(&leased).len();
    assert!((1..URLS).contains(&all_but_its_own), "{all_but_its_own}");
    let kept = three.look.number("SELECT count(*) FROM leases");
    assert_eq!(kept, i64::try_from(all_but_its_own).unwrap(), "none is lost");
    line.kill(false);
    let rest = fourth
        .wait("its own", async || {
            let more = fourth.store.lease(request(1_000, None)).await.ok()?.urls;
            (!more.is_empty()).then_some(more)
        })
        .await;
    assert!(texts(&leased).is_disjoint(&texts(&rest)));
    fourth.stop().await;
}

#[tokio::test]
async fn what_a_daemon_had_others_go_on_with_when_it_ends() {
    let Some(mut three) = Three::start("a daemon that ends", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let leased = lease(&three.daemons[0], 250, None).await;
    let gone = three.daemons.remove(0);
    gone.stop().await;
    three
        .wait(
            "the partitions of the one that ended",
            "SELECT count(*) = 0 FROM partitions WHERE node IS NULL",
        )
        .await;
    let reports: Vec<_> = leased.iter().map(|url| report(url.token, Outcome::Changed)).collect();
    let results = three.daemons[1].store.settle(reports).await.unwrap();
    assert_eq!(results, vec![TokenResult::Ok; 250]);
    let rest = lease(&three.daemons[0], 1_000, None).await;
    assert_eq!(texts(&leased).union(&texts(&rest)).count(), URLS);
}

#[tokio::test]
async fn an_order_to_one_holds_for_all() {
    let Some(three) = Three::start("orders", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let crawl = || "default".to_owned();
    let block = |url: &str| (url.to_owned(), url.ends_with('/'));
    let (url, is_prefix) = block("http://h7.test/");
    three.daemons[2].store.block(crawl(), url.clone(), is_prefix).await.unwrap();
    three.daemons[1].store.pause_crawl(crawl(), true).await.unwrap();
    for daemon in &three.daemons {
        assert!(lease(daemon, 10, None).await.is_empty(), "paused everywhere");
    }
    three.daemons[0].store.pause_crawl(crawl(), false).await.unwrap();
    let leased = lease(&three.daemons[0], 1_000, None).await;
    assert_eq!(leased.len(), URLS - URLS / HOSTS);
    let mut hosts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for url in &leased {
        *hosts.entry(url.host.clone()).or_default() += 1;
    }
    assert!(!hosts.contains_key("http://h7.test"), "{hosts:?}");
    let back = three.daemons[1].store.unblock(crawl(), url, is_prefix).await.unwrap();
    assert_eq!(back, (URLS / HOSTS) as u64);
    assert_eq!(lease(&three.daemons[2], 1_000, None).await.len(), URLS / HOSTS);
    let named = vec!["http://h7.test/7".to_owned(), "http://h8.test/8".to_owned()];
    let reports: Vec<_> = leased.iter().map(|url| report(url.token, Outcome::Changed)).collect();
    three.daemons[0].store.settle(reports).await.unwrap();
    assert_eq!(three.daemons[0].store.requeue(crawl(), named).await.unwrap(), 2);
    let due = lease(&three.daemons[1], 1_000, None).await;
    assert_eq!(texts(&due).into_iter().collect::<Vec<_>>(), ["http://h8.test/8"]);
}

#[tokio::test]
async fn a_page_that_leaves_the_sitemap_is_removed_by_its_owner() {
    let Some(three) = Three::start("removals", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    // Before that a read that was begun by who has the source no more is made anew.
    let polls = "SELECT count(*) FROM polls p JOIN sources s ON s.id = p.source_id
                 WHERE s.url LIKE '%/sitemap.xml'";
    let has_ended = async || {
        three.daemons[0].clock.advance(Duration::from_secs(1));
        (three.look.number(polls) > 0).then_some(())
    };
    three.daemons[0].wait("the first poll", has_ended).await;
    let less: String = sitemap().lines().filter(|line| !line.contains("/123<")).collect();
    three.origin.set("/sitemap.xml", Reply::xml(less));
    let first = &three.daemons[0];
    for nth in 2..=5 {
        first.clock.advance(5 * DAY);
        let source = first.source("/sitemap.xml").await;
        three.daemons[nth % 3].store.poll_source(source.id).await.unwrap();
        let polled = format!("SELECT ({polls}) >= {nth}");
        let has_come = async || {
            // Time goes on, should a statement have failed that is tried again in a second.
            first.clock.advance(Duration::from_secs(1));
            (three.look.text(&polled).as_deref() == Some("t")).then_some(())
        };
        first.wait("one more poll", has_come).await;
    }
    // Polls of its own rhythm count, too: the last that was asked for may be under way.
    let gone = "SELECT count(*) FROM urls WHERE listed = 0";
    first.wait("the removal", async || (three.look.number(gone) == 1).then_some(())).await;
    let told = "SELECT count(*) FROM queue q JOIN urls u ON u.id = q.url_id
                LEFT JOIN feedback f ON f.url_id = u.id WHERE coalesce(f.reason, u.reason) = 4";
    assert_eq!(three.look.number(told), 1, "it is looked at once more");
}

#[tokio::test]
async fn a_habit_that_the_owner_of_a_source_learned_is_heard_of_by_the_owner_of_its_pages() {
    let Some(three) = Three::start("habits", sitemap()).await else { return };
    three.wait_for_urls(URLS).await;
    let first = &three.daemons[0];
    for round in 0..4 {
        if round > 0 {
            first.clock.advance(181 * DAY);
            first.settled().await;
        }
        let leased = lease(first, 1_000, None).await;
        assert_eq!(leased.len(), URLS);
        let reports = leased.iter().map(|url| report(url.token, Outcome::Unchanged)).collect();
        first.store.settle(reports).await.unwrap();
    }
    let reader = three.owner("sources", "t.url LIKE '%/sitemap.xml'");
    let owned = |n: &usize| three.owner("urls", &format!("t.path = '/{n}'")) != reader;
    let page = (0..HOSTS).find(owned).expect("a page of another daemon");
    let url = format!("http://h{page}.test/{page}");
    let today = first.now().as_second().div_euclid(86_400) * 86_400;
    // Each daemon remembers what it leased and settled; of this page nobody has any now.
    three.look.change(&format!(
        "UPDATE urls SET lastmod_s = {today}, lastmod_precision = {} WHERE path = '/{page}'",
        Precision::Day as i64
    ));
    let due_again = async || {
        let asked = vec![url.clone()];
        first.store.requeue("default".to_owned(), asked).await.unwrap();
        let leased = lease(first, 1, None).await;
        assert_eq!(leased[0].url, url);
        first.store.settle(vec![report(leased[0].token, Outcome::Unchanged)]).await.unwrap();
        let row = format!("SELECT id FROM urls WHERE path = '/{page}'");
        three.look.number(&format!("SELECT due_s FROM feedback WHERE url_id = ({row})"))
    };
    let midnight = today + 86_400;
    assert_eq!(due_again().await, midnight, "its dates are believed");
    // As the owner of the source writes it at the end of a read that was stamped.
    let source = "SELECT id FROM sources WHERE url LIKE '%/sitemap.xml'";
    three.look.change(&format!(
        "UPDATE learned SET moves = {} WHERE scope = 2 AND id = ({source})",
        Signal::Stamp as i64
    ));
    first.clock.advance(2 * MINUTE);
    assert!(due_again().await > midnight + 86_400, "and now they are not");
}
