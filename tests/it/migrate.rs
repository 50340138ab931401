//! A store that went from its file to a server answers there as it did here.
//!
//! Runs where `SITEMAPD_POSTGRES` names a database; each test has a schema of
//! its own in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sitemapd::config::Config;
use sitemapd::model::{Outcome, Reason, SourceId, UrlId};
use sitemapd::store::frontier::{Known, Put};
use sitemapd::store::migrate::{Migrated, Migration};
use sitemapd::store::views::{QueueView, SourceFilter, SourceView, UrlState, UrlView};
use sitemapd::store::{ChangeFilter, Effect, Store, StoreError};
use url::Url;

use crate::support::daemon::{DAY, Daemon, HOUR, World, index, sitemap};
use crate::support::engine::Look;
use crate::support::queue_daemon::{Queue, report, site};
use crate::support::{Origin, Reply};

/// Says loudly that nothing was tested.
fn is_skipped(test: &str) -> bool {
    let is_skipped = std::env::var_os("SITEMAPD_POSTGRES").is_none();
    if is_skipped {
        eprintln!("SKIPPED: {test} needs a database in SITEMAPD_POSTGRES");
    }
    is_skipped
}

/// Two sites in two crawls; pages of the first lie on thirty hosts.
struct Sites {
    origin: Origin,
    world: World,
    text: String,
}

impl Sites {
    async fn new() -> Self {
        let origin = Origin::start().await;
        let port = origin.port();
        let base = format!("http://one.test:{port}");
        origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /secret\n"));
        origin.set("/index.xml", Reply::xml(index(&base, &[("/a.xml", ""), ("/b.xml", "")])));
        origin.set("/a.xml", Reply::xml(sitemap(&base, &pages(port, 30))));
        origin.set("/b.xml", Reply::xml(sitemap(&base, &[("/both", ""), ("/secret/x", "")])));
        origin.set("/two.xml", Reply::xml(sitemap("", &[])));
        let other = format!("http://two.test:{port}");
        let listed = [("/x", "2026-11-20"), ("/y", ""), ("/z", "")];
        origin.set("/two.xml", Reply::xml(sitemap(&other, &listed)));
        let text = format!(
            "[[site]]\nname = \"one\"\nurl = \"{base}/\"\npoll = \"30d\"\nscope = \"any\"\n\
             sitemaps = [\"{base}/index.xml\"]\nfeeds = []\n\
             [[site]]\nname = \"two\"\nurl = \"{other}/\"\npoll = \"30d\"\ncrawl = \"second\"\n\
             sitemaps = [\"{other}/two.xml\"]\nfeeds = []\n"
        );
        Self { world: World::with_names(&[&origin]), origin, text }
    }

    /// With the store in the file.
    fn here(&self) -> Config {
        let mut config = self.world.config(&self.text);
        config.store.url = None;
        config
    }

    /// With the store on the server.
    fn there(&self) -> Config {
        self.world.config(&self.text)
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.origin.port())
    }

    fn migration(&self) -> Migration {
        let from = self.here().daemon.data_dir.join("sitemapd.db");
        Migration::new(&from, &self.there().store.url.unwrap())
    }

    fn look(&self, config: &Config) -> Store {
        Store::open_read_only(config, self.world.clock.clone()).unwrap().explained_by(config)
    }
}

/// Pages on so many hosts, some listed by both sitemaps.
fn pages(port: u16, hosts: usize) -> Vec<(&'static str, &'static str)> {
    let on_hosts = (0..hosts)
        .flat_map(|host| (0..5).map(move |page| format!("http://h{host}.test:{port}/page/{page}")));
    let texts = on_hosts.chain(["/both".to_owned(), "/old".to_owned(), "/folded".to_owned()]);
    texts.map(|text| (&*Box::leak(text.into_boxed_str()), "2026-11-19T08:00:00Z")).collect()
}

/// Lets everything happen to URLs that can: the daemon has polled all.
async fn live(sites: &Sites, daemon: &Daemon) -> BTreeSet<String> {
    for (tail, times) in [("/index.xml", 1), ("/a.xml", 1), ("/b.xml", 1), ("/two.xml", 1)] {
        daemon.polled(tail, times).await;
    }
    daemon.pass(HOUR).await;
    let blocked = sites.url("h3.test", "/page/2");
    daemon.store.block("default".to_owned(), blocked, false).await.unwrap();
    let outcomes = [Outcome::Changed, Outcome::Unchanged, Outcome::Gone, Outcome::Failed];
    for round in 0..3 {
        let leased = daemon.lease().await;
        let results = leased.iter().enumerate().map(|(at, url)| {
            let mut settled = report(url.token, outcomes[(at + round) % outcomes.len()]);
            settled.status = Some(200);
            settled.content_hash = Some(format!("hash {at}"));
            if url.url.ends_with("/folded") {
                settled.outcome = Some(Outcome::Redirected);
                settled.final_url = Some(sites.url("one.test", "/both"));
            }
            settled
        });
        daemon.store.settle(results.collect()).await.unwrap();
        daemon.pass(DAY).await;
    }
    daemon.store.frontier_put(pushed(sites)).await.unwrap();
    // One goes from the sitemap, so that changes name a row that may go.
    let fewer: Vec<_> = pages(sites.origin.port(), 29);
    let base = sites.url("one.test", "");
    sites.origin.set("/a.xml", Reply::xml(sitemap(&base, &fewer)));
    daemon.poll("/a.xml").await;
    daemon.pass(DAY * 30).await;
    let out = daemon.lease().await;
    assert!(out.len() > 20, "only {} are out", out.len());
    // Some of what is out is asked for meanwhile.
    let listed = out.iter().filter(|url| url.site.is_some());
    let asked: Vec<String> = listed.take(3).map(|url| url.url.clone()).collect();
    daemon.store.requeue("default".to_owned(), asked).await.unwrap();
    out.into_iter().map(|url| url.url).collect()
}

fn pushed(sites: &Sites) -> Vec<Put> {
    let put = |key: Option<&str>, path: &str, known: Option<Known>| Put {
        crawl: "default".to_owned(),
        key: key.map(str::to_owned),
        url: sites.url("pushed.test", path),
        metadata: BTreeMap::from([("depth".to_owned(), vec!["3".to_owned()])]),
        created: None,
        known,
    };
    let done = Known { status: Some(200), ..Known::default() };
    vec![put(None, "/p", None), put(Some("mine"), "/p", None), put(Some("mine"), "/q", Some(done))]
}

/// What a store answers; rows have the numbers that they had in the file.
struct Shown {
    urls: Vec<UrlView>,
    sources: Vec<(SourceView, String)>,
    changes: Vec<String>,
    queues: Vec<QueueView>,
    rest: Vec<String>,
}

async fn shown(store: &Store, shift: u32) -> Shown {
    let mut urls = Vec::new();
    let mut after = None;
    loop {
        let page = store.urls(7, after).await.unwrap();
        urls.extend(page.items);
        after = page.next.map(UrlId);
        if after.is_none() {
            break;
        }
    }
    for url in &mut urls {
        url.id = UrlId(url.id.0 >> shift);
        for (id, _) in &mut url.sources {
            *id = SourceId(id.0 >> shift);
        }
    }
    // A server lists them partition by partition.
    urls.sort_by_key(|url| url.id);
    let filter = SourceFilter { retired: true, limit: 1_000, ..SourceFilter::default() };
    let mut sources = Vec::new();
    for mut source in store.sources(filter).await.unwrap().items {
        let mut polls = store.polls_after(Some(source.id), 0, 1_000).await.unwrap();
        for poll in &mut polls {
            poll.source = SourceId(poll.source.0 >> shift);
        }
        source.id = SourceId(source.id.0 >> shift);
        source.parent = source.parent.map(|id| SourceId(id.0 >> shift));
        sources.push((source, format!("{polls:?}")));
    }
    sources.sort_by_key(|(source, _)| source.id);
    let changes = changes(store, shift).await;
    let mut rest = vec![
        format!("{:?}", store.blocks(None, 1_000, None).await.unwrap()),
        format!("{:?}", store.sites().await.unwrap()),
        format!("{:?}", store.frontier_crawls().await.unwrap()),
    ];
    for dead in store.dead(None, 1_000, None).await.unwrap().items {
        rest.push(format!("{} {} {:?}", dead.url, dead.attempts, dead.died_at));
    }
    let mine = Some("mine".to_owned());
    for path in ["/p", "/q"] {
        let url = format!("http://pushed.test:1{path}");
        let found = store.frontier_url("default".to_owned(), mine.clone(), url).await.unwrap();
        assert!(found.is_none(), "another port is another URL");
    }
    let queues = store.queue(None).await.unwrap();
    Shown { urls, sources, changes, queues, rest }
}

async fn changes(store: &Store, shift: u32) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.changes_after(after, 10, ChangeFilter::default()).await.unwrap();
        for mut event in page.changes {
            event.id = event.id.map(|id| UrlId(id.0 >> shift));
            if let Some((id, _)) = &mut event.source {
                *id = SourceId(id.0 >> shift);
            }
            all.push(format!("{event:?}"));
        }
        if !page.more {
            return all;
        }
        after = Some(page.next);
    }
}

/// What was out is queued; all else is what it was.
fn compare(before: &Shown, after: &Shown, out: &BTreeSet<String>) {
    assert_eq!(before.urls.len(), after.urls.len());
    let mut asked = 0;
    for (old, new) in before.urls.iter().zip(&after.urls) {
        if !out.contains(&old.url) {
            assert_eq!(format!("{old:?}"), format!("{new:?}"));
            continue;
        }
        assert_eq!((old.state, new.state), (UrlState::Leased, UrlState::Queued), "{}", old.url);
        assert!(new.due_at.is_some() && new.leased_until.is_none());
        let same = |view: &UrlView| (view.id, view.fetches, view.attempt, view.fetched_at);
        assert_eq!(same(old), same(new));
        asked += usize::from(new.reason == Reason::Submitted && old.reason != Reason::Submitted);
    }
    assert_eq!(asked, 3, "what was asked for meanwhile is forgotten");
    for (old, new) in before.sources.iter().zip(&after.sources) {
        assert_eq!(format!("{old:?}"), format!("{new:?}"));
    }
    assert_eq!(before.sources.len(), after.sources.len());
    assert_eq!(before.changes, after.changes);
    assert_eq!(before.rest, after.rest);
    for (old, new) in before.queues.iter().zip(&after.queues) {
        let all = (old.queued + old.leased, 0, old.dead, old.parked, old.blocked, old.forbidden);
        let new = (new.queued, new.leased, new.dead, new.parked, new.blocked, new.forbidden);
        assert_eq!(all, new, "{}", old.crawl);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_migrated_in_pieces_answers_as_before_and_lives_on() {
    if is_skipped("migrating a store") {
        return;
    }
    let sites = Sites::new().await;
    let daemon = sites.world.start_with(sites.here()).await;
    let out = live(&sites, &daemon).await;
    assert!(matches!(sites.migration().run(&mut |_| {}), Err(StoreError::Refused(_))));
    daemon.stop().await;
    let file = sites.look(&sites.here());
    let before = shown(&file, 0).await;
    let end = file.end_of_changes().await.unwrap();
    let polls = file.polls_after(None, 0, 1_000).await.unwrap();
    drop(file);
    let states: BTreeSet<String> =
        before.urls.iter().map(|url| format!("{:?}", url.state)).collect();
    assert!(states.len() >= 4, "{states:?}");

    let piece = Migration { rows: 7, commits: Some(9), ..sites.migration() };
    let mut stops = 0;
    let whole = loop {
        match piece.run(&mut |_| {}).unwrap() {
            Migrated::Stopped => stops += 1,
            Migrated::Whole(copied) => break copied,
            Migrated::Already => panic!("it has not ended before"),
        }
        let refused = Store::open_read_only(&sites.there(), sites.world.clock.clone());
        assert!(matches!(refused, Err(StoreError::Unusable(why)) if why.contains("migrate")));
    };
    assert!(stops > 5, "{stops}");
    let were_out = before.urls.iter().filter(|url| url.state == UrlState::Leased).count();
    assert_eq!((whole.leases, whole.looked_up), (were_out as u64, before.urls.len() as u64));
    let after = shown(&sites.look(&sites.there()), 8).await;
    compare(&before, &after, &out);
    assert_eq!(sites.migration().run(&mut |_| {}), Ok(Migrated::Already));

    // The sources are not read as if they were new, and nothing is removed.
    let daemon = sites.world.start_with(sites.there()).await;
    let kept = daemon.poll("/two.xml").await;
    assert_eq!((kept.counts.new, kept.counts.removed), (0, 0));
    let base = sites.url("two.test", "");
    let more = [("/x", "2026-11-20"), ("/y", ""), ("/z", ""), ("/new", "")];
    sites.origin.set("/two.xml", Reply::xml(sitemap(&base, &more)));
    assert_eq!(daemon.poll("/two.xml").await.counts.new, 1);
    // Who followed the file follows on.
    let page = daemon.store.changes_after(Some(end), 10, ChangeFilter::default()).await.unwrap();
    let found: Vec<_> = page.changes.into_iter().map(|change| change.url).collect();
    assert_eq!(found, [sites.url("two.test", "/new")]);
    let later = daemon.store.polls_after(None, polls.last().unwrap().id, 10).await.unwrap();
    assert!(later.iter().any(|poll| poll.counts.new == 1), "{later:?}");
    let all = before.urls.len() + 1;
    assert_eq!(shown(&daemon.store, 8).await.urls.len(), all);
    let leased = daemon.lease().await;
    let again: BTreeSet<String> = leased.iter().map(|url| url.url.clone()).collect();
    assert!(out.is_subset(&again), "{:?}", out.difference(&again).collect::<Vec<_>>());
    let results = leased.iter().map(|url| report(url.token, Outcome::Unchanged)).collect();
    daemon.store.settle(results).await.unwrap();
    daemon.stop().await;
}

#[tokio::test]
async fn a_walk_that_other_bounds_began_reaches_all_partitions_after_a_migration() {
    if is_skipped("a walk that has not ended") {
        return;
    }
    let mut queue = Queue::open_in_file(&site("a", "http://a.test/", "")).await;
    queue.list_urls("a", (0..40).map(|n| format!("http://h{n}.test/"))).await;
    for _ in 0..4 {
        for leased in queue.lease(1_000).await {
            queue.settle(leased.token, Outcome::Unchanged).await;
        }
        queue.clock.advance(181 * DAY);
    }
    for leased in queue.lease(1_000).await {
        queue.settle(leased.token, Outcome::Unchanged).await;
    }
    Arc::make_mut(queue.config.sites.get_mut("a").unwrap()).recrawl_max = 7 * DAY;
    // It has begun with the start, and nothing of it is done.
    let queue = queue.reopen(Duration::ZERO).await.migrated().await;
    queue.maintain().await;
    let late = (queue.clock.now() + 7 * DAY).as_second();
    let look = queue.look();
    assert!(look.number("SELECT count(DISTINCT part) FROM queue WHERE part > 0") > 30);
    assert_eq!(look.number(&format!("SELECT count(*) FROM queue WHERE due_s > {late}")), 0);
    assert_eq!(look.number("SELECT count(*) FROM meta WHERE key LIKE 'reseat:%'"), 0);
}

#[tokio::test]
async fn what_nobody_wants_any_more_is_parked_by_a_migration_as_by_a_release() {
    if is_skipped("what nobody wants") {
        return;
    }
    let queue = Queue::open_in_file(&site("a", "http://a.test/", "")).await;
    let page = |n: usize| format!("http://a.test/{n}");
    let rows = queue.list_urls("a", (0..4).map(page)).await;
    // One was fetched before, one never was; one is asked for all the same.
    let mut first = queue.lease(4).await;
    let again = first.iter().position(|leased| leased.url == page(0)).unwrap();
    queue.settle(first.remove(again).token, Outcome::Changed).await;
    for leased in first {
        queue.release(leased.token, Duration::ZERO).await;
    }
    queue.clock.advance(400 * DAY);
    assert_eq!(queue.lease(4).await.len(), 4);
    queue.store.requeue("default".to_owned(), vec![page(2)]).await.unwrap();
    for url in &rows[..3] {
        queue.apply(Effect::Unwant { url: *url }).await;
    }
    let queue = queue.migrated().await;
    let states = [UrlState::Parked, UrlState::Parked, UrlState::Queued, UrlState::Queued];
    for (n, state) in states.into_iter().enumerate() {
        assert_eq!(queue.view(&page(n)).await.state, state, "{n}");
    }
    assert_eq!(queue.look().number("SELECT queued FROM turns"), 2);
    let leased: BTreeSet<String> = queue.lease(4).await.into_iter().map(|url| url.url).collect();
    assert_eq!(leased, BTreeSet::from([page(2), page(3)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_has_something_else_is_refused() {
    if is_skipped("refusing to migrate") {
        return;
    }
    let sites = Sites::new().await;
    let daemon = sites.world.start_with(sites.here()).await;
    daemon.polled("/two.xml", 1).await;
    daemon.stop().await;
    let piece = Migration { rows: 1, commits: Some(9), ..sites.migration() };
    assert_eq!(piece.run(&mut |_| {}), Ok(Migrated::Stopped));

    // The file lives on: what was copied of it is not what it is now.
    let daemon = sites.world.start_with(sites.here()).await;
    daemon.pass(Duration::from_secs(90)).await;
    daemon.poll("/two.xml").await;
    daemon.stop().await;
    let told = sites.migration().run(&mut |_| {}).unwrap_err().to_string();
    assert!(told.contains("begin anew"), "{told}");

    // Another file, to the same database.
    let others = Sites::new().await;
    let daemon = others.world.start_with(others.here()).await;
    daemon.stop().await;
    let to = sites.there().store.url.unwrap();
    let crossed = Migration { to: to.clone(), ..others.migration() };
    let told = crossed.run(&mut |_| {}).unwrap_err().to_string();
    assert!(told.contains("another file"), "{told}");

    // A store of its own.
    let daemon = others.world.start_with(others.there()).await;
    daemon.stop().await;
    let told = others.migration().run(&mut |_| {}).unwrap_err().to_string();
    assert!(told.contains("has a store already"), "{told}");
    let away = Migration { to: Url::parse("postgres://127.0.0.1:1/x").unwrap(), ..crossed };
    assert!(matches!(away.run(&mut |_| {}), Err(StoreError::Away(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_server_takes_is_told_before_anything_is_copied() {
    if is_skipped("what no server takes") {
        return;
    }
    let sites = Sites::new().await;
    let daemon = sites.world.start_with(sites.here()).await;
    daemon.polled("/two.xml", 1).await;
    daemon.stop().await;
    let file = Look::of(&sites.here());
    let long = format!("{}/long", "x".repeat(3_000));
    let cases = [
        (
            format!("UPDATE sources SET url = url || '{long}' WHERE url LIKE '%two.xml'"),
            "UPDATE sources SET url = substr(url, 1, length(url) - 3005) WHERE url LIKE '%/long'",
            "a URL of more than 2,048 bytes",
        ),
        (
            format!(
                "INSERT INTO submissions (token, url, known, at, last_at)
                 VALUES (x'00', 'http://x.test/{long}', 0, 0, 0)"
            ),
            "DELETE FROM submissions",
            "a URL of more than 2,048 bytes",
        ),
        (
            "INSERT INTO hosts (authority, name, part, delay_ms)
             VALUES ('key:a' || char(0), 'a' || char(0), 0, 0)"
                .to_owned(),
            "DELETE FROM hosts WHERE substr(authority, 1, 4) = 'key:'",
            "the queue \"a\\0\"",
        ),
    ];
    for (spoil, mend, why) in cases {
        file.change(&spoil);
        let told = sites.migration().run(&mut |_| {}).unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
        let there = Look::of(&sites.there());
        assert_eq!(there.text("SELECT to_regclass('meta')"), None, "it was begun");
        file.change(mend);
    }
    assert!(matches!(sites.migration().run(&mut |_| {}), Ok(Migrated::Whole(_))));
}
