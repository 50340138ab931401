//! A changed config: rules are applied to all that is listed, sites come and go.

use std::sync::Arc;

use sitemapd::store::views::UrlState;
use sitemapd::store::{Store, StoreError};

use super::{listed, one_sitemap};
use crate::support::daemon::{DAY, Daemon, HOUR, MINUTE, World, counts, index, sitemap};
use crate::support::{Origin, Reply, broken_off};

const LIST: [(&str, &str); 4] =
    [("/a", "2026-11-01"), ("/private/b", ""), ("/c?ref=mail", ""), ("/d", "")];

#[tokio::test]
async fn changed_rules_are_applied_to_every_entry_by_an_unconditional_read() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)).etag("\"1\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let with = |rules: &str| listed(&origin, &["/sitemap.xml"], &[], rules);
    daemon.reload(&with("exclude = [\"*/private/*\"]")).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, counts([0, 0, 0, 0, 3, 0, 1, 1]));
    assert_eq!(daemon.changes(&poll).await, ["removed /private/b"]);
    // Not gone, only unwanted: nobody is sent to look.
    let unwanted = format!("{base}/private/b");
    assert_eq!(daemon.url(&unwanted).await.state, UrlState::Parked);
    assert_eq!(origin.requests("/sitemap.xml")[1].header("if-none-match"), None);
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(304));
    // A parameter that is stripped makes it another page.
    daemon.reload(&with("strip_params = [\"ref\"]")).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["new /c", "new /private/b", "removed /c?ref=mail"]);
    assert_eq!(daemon.url(&unwanted).await.state, UrlState::Queued);
    assert!(daemon.url(&format!("{base}/c")).await.listed);
    assert!(!daemon.url(&format!("{base}/c?ref=mail")).await.listed);
    // A narrower scope: only what lies beside the sitemap, which is all of it.
    daemon.reload(&with("strip_params = [\"ref\"]\nscope = \"directory\"")).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.http_status, poll.counts.unchanged), (Some(200), 4));
    daemon.stop().await;
}

#[tokio::test]
async fn robots_txt_is_judged_by_the_name_that_requests_bear_until_the_restart() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: newbot\nDisallow: /"));
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)));
    let world = World::new(&[&origin]);
    let named =
        |name: &str| format!("[daemon]\nuser_agent = \"{name}/1.0\"\n{}", one_sitemap(&origin));
    let daemon = world.start(&named("oldbot")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.reload(&named("newbot")).await;
    assert_eq!(daemon.poll("/sitemap.xml").await.http_status, Some(200));
    let asked = origin.requests("/sitemap.xml");
    assert_eq!(asked[1].header("user-agent"), Some("oldbot/1.0"));
    assert_eq!(daemon.lease().await.len(), LIST.len());
    daemon.stop().await;
}

#[tokio::test]
async fn a_site_that_leaves_the_config_rests_and_keeps_its_rows() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)));
    let other = Origin::start().await;
    let world = World::new(&[&origin, &other]);
    let stays =
        "[[site]]\nname = \"other\"\nurl = \"http://127.0.0.1:9/\"\nsitemaps = []\nfeeds = []\n";
    let site = listed(&origin, &["/sitemap.xml"], &[], "obey_robots = false").replace("30d", "5d");
    let daemon = world.start(&format!("{site}{stays}")).await;
    daemon.polled("/sitemap.xml", 1).await;
    let refused = daemon.store.forget_site("site".to_owned()).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    daemon.reload(stays).await;
    origin.clear_log();
    daemon.clock.advance(20 * DAY);
    for due in daemon.store.due_sources(100, Vec::new()).await.unwrap() {
        let target = daemon.store.poll_target(due.id).await.unwrap();
        assert_ne!(target.site_name.as_deref(), Some("site"), "{target:?}");
    }
    assert!(daemon.lease().await.is_empty());
    assert!(daemon.url(&format!("{base}/a")).await.listed);
    assert_eq!(daemon.store.site("site".to_owned()).await.unwrap().state, "unregistered");
    // It returns: polled again, leased again, nothing new.
    daemon.reload(&format!("{site}{stays}")).await;
    let poll = daemon.polled("/sitemap.xml", 2).await;
    assert_eq!(poll.counts.new, 0);
    assert_eq!(daemon.lease().await.len(), 4);
    // It leaves for good, and comes anew.
    daemon.reload(stays).await;
    assert_eq!(daemon.store.forget_site("site".to_owned()).await.unwrap(), 4);
    assert!(!daemon.knows(&format!("{base}/a")).await);
    assert!(matches!(daemon.store.site("site".to_owned()).await, Err(StoreError::NotFound(_))));
    daemon.reload(&format!("{site}{stays}")).await;
    assert_eq!(daemon.polled("/sitemap.xml", 1).await.counts.new, 4);
    assert_eq!(daemon.queued().await, 4);
    daemon.stop().await;
}

#[tokio::test]
async fn robots_txt_of_a_host_outlives_the_site_that_named_it_first() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &LIST)));
    let world = World::new(&[&origin]);
    let one = one_sitemap(&origin);
    let two = one.replace("name = \"site\"", "name = \"two\"\ncrawl = \"other\"");
    let daemon = world.start(&format!("{one}{two}")).await;
    daemon.polled("/robots.txt", 1).await;
    daemon.settled().await;
    daemon.reload(&two).await;
    daemon.pass(2 * DAY).await;
    daemon.polled("/robots.txt", 2).await;
    assert_eq!(daemon.source("/robots.txt").await.state, "active");
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_taken_off_the_list_and_put_back_is_polled_again() {
    let origin = Origin::start().await;
    let base = origin.base();
    for path in ["/one.xml", "/two.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let world = World::new(&[&origin]);
    let both = listed(&origin, &["/one.xml", "/two.xml"], &[], "");
    let daemon = world.start(&both).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    daemon.reload(&listed(&origin, &["/one.xml"], &[], "")).await;
    assert_eq!(daemon.source("/two.xml").await.state, "retired");
    daemon.reload(&both).await;
    daemon.polled("/two.xml", 2).await;
    assert_eq!(daemon.source("/two.xml").await.state, "active");
    daemon.stop().await;
}

#[tokio::test]
async fn a_site_that_is_found_by_itself_again_asks_robots_txt_anew() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /named.xml\n"));
    origin.set("/mine.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    origin.set("/named.xml", Reply::xml(sitemap(&base, &[("/b", "")])));
    let world = World::new(&[&origin]);
    let mine = listed(&origin, &["/mine.xml"], &[], "");
    let daemon = world.start(&mine).await;
    daemon.polled("/mine.xml", 1).await;
    daemon.settled().await;
    let auto =
        mine.lines().filter(|line| !line.starts_with("sitemaps")).collect::<Vec<_>>().join("\n");
    daemon.reload(&auto).await;
    daemon.polled("/named.xml", 1).await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_only_the_list_named_goes_with_it_and_is_theirs_who_name_it_besides() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /named.xml\nSitemap: /index.xml\n"));
    origin.set("/index.xml", Reply::xml(index(&base, &[("/child.xml", "")])));
    let listed_ones = ["/mine.xml", "/named.xml", "/child.xml"];
    for (path, page) in listed_ones.iter().zip(["/a", "/b", "/c"]) {
        origin.set(path, Reply::xml(sitemap(&base, &[(page, "")])));
    }
    let world = World::new(&[&origin]);
    let all = listed(&origin, &listed_ones, &[], "");
    let daemon = world.start(&all).await;
    daemon.polled("/child.xml", 1).await;
    daemon.settled().await;
    let auto =
        all.lines().filter(|line| !line.starts_with("sitemaps")).collect::<Vec<_>>().join("\n");
    daemon.reload(&auto).await;
    assert_eq!(daemon.source("/mine.xml").await.state, "retired");
    daemon.polled("/named.xml", 2).await;
    daemon.polled("/child.xml", 2).await;
    daemon.settled().await;
    let named_by = async |path: &str| {
        let source = daemon.source(path).await;
        (source.state, source.named_by)
    };
    assert_eq!(named_by("/named.xml").await, ("active".to_owned(), "robots.txt".to_owned()));
    assert_eq!(named_by("/child.xml").await, ("active".to_owned(), "index".to_owned()));
    daemon.pass(8 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    let mut still = Vec::new();
    for page in ["/a", "/b", "/c"] {
        still.push(daemon.url(&format!("{base}{page}")).await.listed);
    }
    assert_eq!(still, [false, true, true]);
    daemon.reload(&all).await;
    daemon.polled("/mine.xml", 2).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_site_that_returns_half_forgotten_has_all_that_it_lists_again() {
    let origin = Origin::start().await;
    let base = origin.base();
    let paths: Vec<_> = (0..5_000).map(|n| format!("/{n}")).collect();
    let all: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &all)).etag("\"1\""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.reload("").await;
    let look = world.look();
    let rows = || look.number("SELECT count(*) FROM urls");
    {
        let forgetting = std::pin::pin!(daemon.store.forget_site("site".to_owned()));
        broken_off(forgetting, || rows() < 5_000).await;
    }
    assert!(rows() > 0);
    daemon.reload(&one_sitemap(&origin)).await;
    daemon.poll("/sitemap.xml").await;
    let kept = |column: &str| look.number(&format!("SELECT {column} FROM sites"));
    assert_eq!((rows(), kept("urls"), kept("priorities")), (5_000, 5_000, 5_000 * 500));
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_comes_back_while_it_is_let_go_lists_all_that_it_names() {
    let origin = Origin::start().await;
    let base = origin.base();
    let paths: Vec<_> = (0..200).map(|n| format!("/{n}")).collect();
    let all: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/one", "")])));
    origin.set("/two.xml", Reply::xml(sitemap(&base, &all)).etag("\"1\""));
    let world = World::new(&[&origin]);
    let one = listed(&origin, &["/one.xml"], &[], "");
    let both = listed(&origin, &["/one.xml", "/two.xml"], &[], "");
    let daemon = world.start(&both).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    daemon.reload(&one).await;
    let two = daemon.source("/two.xml").await;
    assert_eq!(two.state, "retired");
    daemon.stop().await;

    world.clock.advance(8 * DAY);
    let store = Store::open(&world.config(&one), world.clock.clone(), Arc::default()).unwrap();
    let look = world.look();
    let listed = || look.number("SELECT count(*) FROM urls WHERE listed = 1");
    {
        let mut maintaining = std::pin::pin!(async { while store.maintain().await.unwrap() {} });
        broken_off(maintaining.as_mut(), || listed() == 1).await;
        store.poll_source(two.id).await.unwrap();
        maintaining.await;
    }
    store.close();
    drop(store);
    let daemon = world.start(&both).await;
    daemon.poll("/two.xml").await;
    assert_eq!(listed(), 201);
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_off_the_list_takes_its_children_with_it_and_brings_them_back() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /index.xml\n"));
    origin.set("/index.xml", Reply::xml(index(&base, &[("/one.xml", ""), ("/below.xml", "")])));
    origin.set("/below.xml", Reply::xml(index(&base, &[("/two.xml", "")])));
    for (path, page) in [("/one.xml", "/1"), ("/two.xml", "/2"), ("/mine.xml", "/3")] {
        origin.set(path, Reply::xml(sitemap(&base, &[(page, "")])));
    }
    let world = World::new(&[&origin]);
    let auto = listed(&origin, &[], &[], "").replace("sitemaps = []\n", "");
    let daemon = world.start(&auto).await;
    daemon.polled("/one.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    daemon.settled().await;
    let states = async || {
        let mut states = Vec::new();
        for path in ["/index.xml", "/one.xml", "/below.xml", "/two.xml"] {
            states.push(daemon.source(path).await.state);
        }
        states.join(" ")
    };
    let is_listed = async |page: &str| daemon.url(&format!("{base}{page}")).await.listed;

    daemon.reload(&listed(&origin, &["/mine.xml", "/one.xml"], &[], "")).await;
    daemon.polled("/mine.xml", 1).await;
    assert_eq!(states().await, "retired active retired retired");
    daemon.pass(8 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    assert!(is_listed("/1").await && !is_listed("/2").await);

    // The list names the index below; what lies above it stays away.
    daemon.reload(&listed(&origin, &["/mine.xml", "/below.xml"], &[], "")).await;
    assert_eq!(states().await, "retired retired active active");
    daemon.reload(&auto).await;
    daemon.settled().await;
    assert_eq!(states().await, "active active active active");
    assert!(is_listed("/2").await);
    daemon.stop().await;
}

#[tokio::test]
async fn a_shorter_rule_of_polling_holds_for_what_waits_by_the_longer_one() {
    let origin = Origin::start().await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    let world = World::new(&[&origin]);
    let monthly = one_sitemap(&origin);
    let with = |rule: &str| monthly.replace("poll = \"30d\"", rule);
    let daemon = world.start(&monthly).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    daemon.reload(&with("poll = \"15m\"")).await;
    daemon.pass(16 * MINUTE).await;
    daemon.polled("/sitemap.xml", 2).await;
    // A longer one waits for the poll that is promised.
    daemon.reload(&monthly).await;
    daemon.pass(16 * MINUTE).await;
    daemon.polled("/sitemap.xml", 3).await;
    daemon.settled().await;
    let next = async || daemon.source("/sitemap.xml").await.next_poll_at.unwrap();
    assert!(next().await > daemon.now() + 29 * DAY);
    // It is 12:32. A line that comes later than the poll would be in vain.
    daemon.reload(&with("poll = \"cron: 0 13 * * *\"")).await;
    assert_eq!(next().await.to_string(), "2026-11-21T13:00:00Z");
    daemon.reload(&with("poll = \"cron: 0 14 * * *\"")).await;
    assert_eq!(next().await.to_string(), "2026-11-21T13:00:00Z");
    daemon.stop().await;
    // Nothing but the start tells that the rule is another one now.
    let daemon = world.start(&with("poll = \"15m\"")).await;
    daemon.pass(16 * MINUTE).await;
    let poll = daemon.polled("/sitemap.xml", 4).await;
    assert!(poll.at < "2026-11-21T13:00:00Z".parse().unwrap(), "{poll:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_lower_bound_on_the_interval_holds_for_what_waits_by_the_higher_one() {
    let origin = Origin::start().await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &LIST)));
    let world = World::new(&[&origin]);
    let site = one_sitemap(&origin);
    let adaptive = site.replace("poll = \"30d\"\n", "");
    let with = |bounds: &str| format!("[poll]\njitter = 0.0\n{bounds}\n{adaptive}");
    let daemon = world.start(&format!("[poll]\njitter = 0.0\n{site}")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    let waits = async || {
        let source = daemon.source("/sitemap.xml").await;
        source.next_poll_at.unwrap().duration_since(source.last_poll_at.unwrap()).as_hours()
    };
    assert_eq!(waits().await, 30 * 24);
    // Without a rule of its own it is where new sources begin.
    daemon.reload(&with("first = \"8h\"")).await;
    assert_eq!(waits().await, 8);
    daemon.reload(&with("first = \"8h\"\nmax = \"9h\"")).await;
    assert_eq!(waits().await, 8);
    daemon.reload(&with("first = \"3h\"\nmax = \"4h\"")).await;
    assert_eq!(waits().await, 4);
    daemon.pass(4 * HOUR).await;
    daemon.polled("/sitemap.xml", 2).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_address_that_a_site_had_before_speaks_for_it_no_more() {
    let (old, new) = (Origin::start().await, Origin::start().await);
    let named = Reply::text("Sitemap: /named.xml\n");
    old.set("/robots.txt", named.clone());
    old.set("/named.xml", Reply::xml(sitemap(&old.base(), &[("/a", "")])));
    let world = World::new(&[&old, &new]);
    let at = |origin: &Origin| format!("[[site]]\nname = \"site\"\nurl = \"{}/\"\n", origin.base());
    let daemon = world.start(&at(&old)).await;
    daemon.polled("/named.xml", 1).await;
    daemon.settled().await;
    daemon.reload(&at(&new)).await;
    // Its next owner names what he likes; of the new address there is no robots.txt.
    let strangers = Reply::xml(sitemap(&new.base(), &[("/made-up", "")]));
    old.set("/named.xml", strangers.clone());
    old.set("/more.xml", strangers);
    old.set("/robots.txt", Reply::text("Sitemap: /named.xml\nSitemap: /more.xml\n"));
    for _ in 0..3 {
        daemon.pass(DAY).await;
    }
    let sources = daemon.sources().await;
    let homes = sources.iter().filter(|source| source.role.as_str() == "home");
    let mut homes: Vec<_> = homes.map(|home| (&*home.state, home.url.clone())).collect();
    homes.sort_unstable();
    let page = |origin: &Origin| format!("{}/", origin.base());
    assert_eq!(homes, [("active", page(&new)), ("retired", page(&old))]);
    assert!(daemon.find_source("/more.xml").await.is_none());
    assert_eq!(daemon.source("/named.xml").await.state, "retired");
    assert!(!daemon.knows(&format!("{}/made-up", new.base())).await);
    // It moves back, and is found anew.
    old.set("/robots.txt", named);
    daemon.reload(&at(&old)).await;
    daemon.polled("/named.xml", 2).await;
    assert_eq!(daemon.source("/named.xml").await.state, "active");
    daemon.stop().await;
}

#[tokio::test]
async fn robots_txt_of_a_host_is_polled_for_whoever_has_urls_there() {
    let origin = Origin::start().await;
    let cdn = Origin::start().await;
    let base = origin.base();
    for path in ["/a", "/b"] {
        let list = sitemap(&cdn.base(), &[(path, "")]);
        origin.set(&format!("{path}.xml"), Reply::xml(list));
    }
    let world = World::new(&[&origin, &cdn]);
    let [a, b] = ["a", "b"].map(|name| {
        format!(
            "[[site]]\nname = \"{name}\"\nurl = \"{base}/\"\npoll = \"300d\"\nfeeds = []\n\
             sitemaps = [\"{base}/{name}.xml\"]\nscope = \"any\"\n"
        )
    });
    let both = a.clone() + &b;
    // It is polled for the first who has URLs there.
    let daemon = world.start(&a).await;
    daemon.polled("/a.xml", 1).await;
    daemon.settled().await;
    let is_polled = async |daemon: &Daemon| {
        cdn.clear_log();
        daemon.pass(2 * DAY).await;
        !cdn.requests("/robots.txt").is_empty()
    };
    daemon.reload(&both).await;
    daemon.polled("/b.xml", 1).await;
    assert!(is_polled(&daemon).await);
    daemon.reload(&b).await;
    assert!(is_polled(&daemon).await, "one has left");
    daemon.store.forget_site("a".to_owned()).await.unwrap();
    assert!(is_polled(&daemon).await, "one is forgotten");
    daemon.reload(&both).await;
    daemon.polled("/a.xml", 1).await;
    daemon.store.pause_site("b".to_owned(), true).await.unwrap();
    assert!(is_polled(&daemon).await, "one is paused");
    daemon.store.pause_site("a".to_owned(), true).await.unwrap();
    assert!(!is_polled(&daemon).await, "nobody is there");
    daemon.store.pause_site("b".to_owned(), false).await.unwrap();
    assert!(is_polled(&daemon).await, "the other one is back");
    daemon.stop().await;
    // As earlier versions left it.
    let robots = cdn.url("/robots.txt");
    world.look().change(&format!(
        "UPDATE sources SET site_id = NULL, next_poll_at = NULL WHERE url = '{robots}'"
    ));
    let daemon = world.start(&both).await;
    assert!(is_polled(&daemon).await, "a start mends it");
    daemon.stop().await;
}
