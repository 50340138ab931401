//! Many hosts at once: nobody waits for somebody else's origin, and each host
//! sees one polite client.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sitemapd::fetch::resolver::Lookup;
use sitemapd::store::views::SourceView;

use crate::support::daemon::{DAY, Daemon, HOUR, World, index, rss, sitemap};
use crate::support::origin::Seen;
use crate::support::{Hold, Origin, Reply};

/// Hosts that never answer: more than `fetch.concurrency`.
const HANGING: usize = 200;
const SOUND: usize = 50;

fn site(name: &str, port: u16, lists: &[&str]) -> String {
    let base = format!("http://{name}.test:{port}");
    let lists: Vec<_> = lists.iter().map(|path| format!("\"{base}{path}\"")).collect();
    format!(
        "[[site]]\nname = \"{name}\"\nurl = \"{base}/\"\nsitemaps = [{}]\nfeeds = []\n",
        lists.join(", ")
    )
}

fn host(seen: &Seen) -> &str {
    seen.header("host").unwrap_or_default().split('.').next().unwrap_or_default()
}

/// Waits until a poll has found something.
async fn the_healthy_one_is_read(daemon: &Daemon) {
    let is_read = async || {
        let polls = daemon.store.polls_after(None, 0, 1_000).await.unwrap();
        polls.iter().any(|poll| poll.result == "changed").then_some(())
    };
    daemon.wait("the healthy one", is_read).await;
}

#[tokio::test]
async fn two_hundred_hanging_hosts_delay_no_healthy_one_and_get_one_request_each() {
    let origin = Origin::start().await;
    let hold = Hold::new();
    let (port, gate) = (origin.port(), hold.clone());
    origin.route(move |seen| {
        let name = host(seen).to_owned();
        if name.starts_with("hanging") {
            return Some(Reply::status(200).hang(&gate));
        }
        let base = format!("http://{name}.test:{port}");
        (seen.path == "/s.xml").then(|| Reply::xml(sitemap(&base, &[("/a", "")])))
    });
    let world = World::with_names(&[&origin]);
    // In this order: the hanging ones are due first.
    let mut text = String::new();
    for n in 0..HANGING {
        text += &site(&format!("hanging{n}"), port, &["/s.xml", "/t.xml"]);
    }
    for n in 0..SOUND {
        text += &site(&format!("sound{n}"), port, &["/s.xml"]);
    }
    let daemon = world.start(&text).await;
    daemon
        .wait("the healthy ones", async || {
            let polls = daemon.store.polls_after(None, 0, 1_000).await.unwrap();
            let done = |poll: &&sitemapd::store::views::PollView| {
                poll.url.ends_with("/s.xml") && poll.result == "changed"
            };
            (polls.iter().filter(done).count() == SOUND).then_some(())
        })
        .await;
    let mut requests: HashMap<String, usize> = HashMap::new();
    let mut agents: HashMap<String, usize> = HashMap::new();
    for seen in origin.all_requests() {
        *requests.entry(host(&seen).to_owned()).or_default() += 1;
        let agent = seen.header("user-agent").unwrap_or_default().to_owned();
        *agents.entry(agent).or_default() += 1;
        assert!(seen.header("from").is_some_and(|from| from.contains('@')), "{seen:?}");
    }
    // Four sources are due there, and none has had its answer yet.
    let hanging = requests.iter().filter(|(name, _)| name.starts_with("hanging"));
    assert!(hanging.clone().count() > 64, "all slots were taken");
    for (name, count) in hanging {
        assert_eq!(*count, 1, "{name}");
    }
    assert_eq!(agents.len(), 1, "{agents:?}");
    let agent = agents.into_keys().next().unwrap();
    assert!(agent.contains("(+http"), "{agent}");
    hold.release_all();
    daemon.stop().await;
}

#[tokio::test]
async fn many_hosts_that_redirect_to_one_that_hangs_leave_others_their_slots() {
    led_to_one_that_hangs("").await;
    // But for its robots.txt.
    led_to_one_that_hangs("/robots.txt").await;
}

async fn led_to_one_that_hangs(sound: &'static str) {
    // More than may be under way at once.
    const LED: usize = 12;
    let origin = Origin::start().await;
    let hold = Hold::new();
    let (port, gate) = (origin.port(), hold.clone());
    origin.route(move |seen| {
        let name = host(seen).to_owned();
        let base = format!("http://{name}.test:{port}");
        match (name.as_str(), seen.path.as_str()) {
            ("pit", path) if path != sound => Some(Reply::status(200).hang(&gate)),
            (_, "/s.xml") if name.starts_with("led") => {
                Some(Reply::redirect(302, format!("http://pit.test:{port}/there.xml")))
            }
            (_, "/s.xml") => Some(Reply::xml(sitemap(&base, &[("/a", "")]))),
            _ => None,
        }
    });
    let world = World::with_names(&[&origin]);
    // In this order: it is due last.
    let led = (0..LED).map(|n| format!("led{n}"));
    let sites = led.chain(["sound".to_owned()]).map(|name| site(&name, port, &["/s.xml"]));
    let mut config = world.config(&sites.collect::<String>());
    config.fetch.concurrency = 2;
    let daemon = world.start_with(config).await;
    the_healthy_one_is_read(&daemon).await;
    hold.release_all();
    daemon.stop().await;
}

#[tokio::test]
async fn many_hosts_at_an_address_that_hangs_leave_others_their_slots() {
    // More than may be under way at once.
    const DEAD: usize = 12;
    // Through a proxy, so that addresses can be public without leaving here.
    let proxy = Origin::start().await;
    let hold = Hold::new();
    let gate = hold.clone();
    proxy.route(move |seen| {
        if host(seen).starts_with("dead") {
            return Some(Reply::status(200).hang(&gate));
        }
        seen.path.ends_with("/s.xml").then(|| {
            let base = format!("http://{}.test", host(seen));
            Reply::xml(sitemap(&base, &[("/a", "")]))
        })
    });
    let lookup: Lookup = Arc::new(|name| {
        let last = if name.starts_with("dead") { 1 } else { 2 };
        Box::pin(async move { Ok(vec![IpAddr::from([1, 1, 1, last])]) })
    });
    let world = World::with_lookup(&[], lookup);
    // In this order: it is due last.
    let dead = (0..DEAD).map(|n| format!("dead{n}"));
    let sites = dead.chain(["sound".to_owned()]).map(|name| site(&name, 80, &["/s.xml"]));
    let mut config = world.config(&sites.collect::<String>());
    config.fetch.concurrency = 2;
    config.fetch.proxy = Some(proxy.url("/"));
    let per_address = usize::try_from(config.politeness.per_address).unwrap();
    let daemon = world.start_with(config).await;
    the_healthy_one_is_read(&daemon).await;
    assert_eq!(hold.waits(), per_address);
    // Whoever found no place there has not failed, and nor has its host's clock moved.
    let polls = daemon.store.polls_after(None, 0, 1_000).await.unwrap();
    assert!(polls.iter().all(|poll| !poll.url.contains("dead")), "{polls:?}");
    // And says what it waits for.
    let sources = daemon.sources().await;
    let is_told = sources.iter().any(|source| {
        source.url.contains("dead") && source.why == "many other requests wait for the same address"
    });
    assert!(is_told, "{sources:?}");
    hold.release_all();
    daemon.stop().await;
}

#[tokio::test]
async fn who_is_led_to_a_crowded_address_leaves_the_first_host_alone_for_longer() {
    let proxy = Origin::start().await;
    let hold = Hold::new();
    let gate = hold.clone();
    proxy.route(move |seen| match (host(seen), seen.path.ends_with("/s.xml")) {
        (name, true) if name.starts_with("led") => {
            Some(Reply::redirect(302, format!("http://{name}-there.test/")))
        }
        (name, _) if name.starts_with("led") && !name.ends_with("-there") => None,
        _ => Some(Reply::status(404).hang(&gate)),
    });
    // One may ask there and one may wait, all for a robots.txt first.
    let lookup: Lookup = Arc::new(|name| {
        let last = if name.contains("-there") { 1 } else { 2 };
        Box::pin(async move { Ok(vec![IpAddr::from([1, 1, 1, last])]) })
    });
    let world = World::with_lookup(&[], lookup);
    let sites = ["led1", "led2", "led3"].map(|name| site(name, 80, &["/s.xml"])).concat();
    let mut config = world.config(&sites);
    config.fetch.proxy = Some(proxy.url("/"));
    config.fetch.concurrency = 1;
    config.politeness.per_address = 1;
    let daemon = world.start_with(config).await;
    let put_off = async || {
        let is_put_off = |source: &SourceView| {
            let is_led = source.url.contains("led") && source.url.ends_with("/s.xml");
            is_led && source.why == "many other requests wait for the same address"
        };
        daemon.sources().await.into_iter().find(is_put_off)
    };
    let until = daemon.wait("one that is put off", put_off).await.next_poll_at.unwrap();
    // A quarter of an hour but for chance.
    assert!(until >= daemon.clock.now() + Duration::from_secs(450), "{until}");
    hold.release_all();
    daemon.stop().await;
}

#[tokio::test]
async fn a_request_that_waited_for_its_turn_at_an_address_moves_its_hosts_clock_from_then_on() {
    const MINUTE: Duration = Duration::from_secs(60);
    let proxy = Origin::start().await;
    let hold = Hold::new();
    let gate = hold.clone();
    proxy.route(move |seen| (host(seen) == "slow").then(|| Reply::status(404).hang(&gate)));
    // Each has a place at the address before the next is looked up.
    let (late, third) = (Hold::new(), Hold::new());
    let lookup: Lookup = Arc::new({
        let (late, third) = (late.clone(), third.clone());
        move |name| {
            let turn = match name.split('.').next() {
                Some("late") => Some(late.clone()),
                Some("third") => Some(third.clone()),
                _ => None,
            };
            Box::pin(async move {
                if let Some(turn) = turn {
                    turn.pass().await;
                }
                Ok(vec![IpAddr::from([1, 1, 1, 1])])
            })
        }
    });
    let world = World::with_lookup(&[], lookup);
    let names = ["slow", "late", "third"];
    let sites: String = names.map(|name| site(name, 80, &["/s.xml"])).concat();
    let mut config = world.config(&format!("[politeness]\nhost_delay = \"60s\"\n{sites}"));
    config.fetch.proxy = Some(proxy.url("/"));
    config.fetch.concurrency = 2;
    config.politeness.per_address = 1;
    let daemon = world.start_with(config).await;
    let start = daemon.clock.steady();
    let next = |at: Duration| Some((start + at).as_millisecond().to_string());
    let next_of_late = "SELECT next_at FROM hosts WHERE authority = 'http://late.test'";
    hold.arrived(1).await;
    late.release_all();
    let has_slot = async || (world.look().text(next_of_late) == next(MINUTE)).then_some(());
    daemon.wait("its slot", has_slot).await;
    third.release_all();
    let is_full = async || {
        let why = "many other requests wait for the same address";
        daemon.sources().await.iter().any(|source| source.why == why).then_some(())
    };
    daemon.wait("a full line", is_full).await;

    daemon.clock.advance(MINUTE / 2);
    hold.release(1);
    let is_sent =
        async || proxy.all_requests().iter().any(|seen| host(seen) == "late").then_some(());
    daemon.wait("its request", is_sent).await;
    assert_eq!(world.look().text(next_of_late), next(MINUTE / 2 + MINUTE));
    hold.release_all();
    daemon.stop().await;
}

#[tokio::test]
async fn an_index_of_many_children_keeps_to_its_host_and_delays_no_other() {
    const MANY: usize = 2_000;
    let origin = Origin::start().await;
    let port = origin.port();
    origin.route(move |seen| {
        let base = format!("http://{}.test:{port}", host(seen));
        let names: Vec<_> = (0..MANY).map(child).collect();
        let children: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        match seen.path.as_str() {
            "/robots.txt" | "/" => None,
            "/s.xml" if host(seen) == "many" => Some(Reply::xml(index(&base, &children))),
            path => Some(Reply::xml(sitemap(&base, &[(path, "")]))),
        }
    });
    let world = World::with_names(&[&origin]);
    let mut text = "[politeness]\nhost_delay = \"10s\"\n".to_owned();
    for name in ["many", "other"] {
        let _ = write!(text, "{}", site(name, port, &["/s.xml"]));
    }
    let daemon = world.start(&text).await;
    let asked = |name: &str| origin.all_requests().iter().filter(|seen| host(seen) == name).count();
    // robots.txt, home page and the sitemap, each a turn of its host.
    for turn in 1..=3 {
        daemon
            .wait("a turn of both", async || {
                (asked("many") == turn && asked("other") == turn).then_some(())
            })
            .await;
        daemon.clock.advance(Duration::from_secs(10));
    }
    daemon
        .wait("all children", async || {
            let found = daemon.store.site("many".to_owned()).await.unwrap().sources;
            (found > MANY as u64).then_some(())
        })
        .await;
    // Thousands are due at one host; the other is asked in its turn.
    let before = asked("many");
    let listed = daemon.source(&format!("other.test:{port}/s.xml")).await.id;
    for turn in 1..=5 {
        daemon.store.poll_source(listed).await.unwrap();
        daemon
            .wait("a turn of the other", async || (asked("other") == 3 + turn).then_some(()))
            .await;
        daemon
            .wait("a turn of many", async || (asked("many") >= before + turn - 1).then_some(()))
            .await;
        assert!(asked("many") <= before + turn, "{} in {turn} turns", asked("many") - before);
        daemon.clock.advance(Duration::from_secs(10));
    }
    daemon.stop().await;
}

/// Lets a host that is asked every ten seconds have so many turns, of which none passes
/// without a request.
async fn take_turns(daemon: &Daemon, origin: &Origin, turns: usize) {
    for _ in 0..turns {
        let before = origin.all_requests().len();
        daemon.clock.advance(Duration::from_secs(10));
        let is_asked = async || (origin.all_requests().len() > before).then_some(());
        daemon.wait("a turn of the host", is_asked).await;
    }
}

/// Children of an index.
const CHILDREN: usize = 60;

fn child(n: usize) -> String {
    format!("/{n}.xml")
}

/// An index as archives have it, the oldest first, and what it lists.
fn set_archive(origin: &Origin, hour: usize) {
    let base = origin.base();
    let children: Vec<_> =
        (0..CHILDREN).map(|n| (child(n), format!("2026-11-18T{hour:02}:{n:02}:00Z"))).collect();
    for (path, _) in &children {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let children: Vec<_> =
        children.iter().map(|(path, date)| (path.as_str(), date.as_str())).collect();
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
}

/// The children that were asked for, by their first time, and as many newest first.
fn children_asked(origin: &Origin) -> (Vec<String>, Vec<String>) {
    let mut asked: Vec<String> = Vec::new();
    for seen in origin.all_requests() {
        if (0..CHILDREN).any(|n| seen.path == child(n)) && !asked.contains(&seen.path) {
            asked.push(seen.path);
        }
    }
    let newest_first = (0..CHILDREN).rev().map(child).take(asked.len()).collect();
    (asked, newest_first)
}

#[tokio::test]
async fn feeds_are_polled_amid_the_many_children_of_a_new_index_which_are_read_newest_first() {
    let origin = Origin::start().await;
    set_archive(&origin, 1);
    // Each poll of the feed brings something.
    let feeds = (0..100).map(|n| {
        let (page, date) =
            (format!("/news/{n}"), format!("Sat, 21 Nov 2026 11:{:02}:00 GMT", n % 60));
        Reply::xml(rss(&origin.base(), &[(&page, &date)]))
    });
    origin.set_sequence("/feed", feeds);
    let world = World::new(&[&origin]);
    let site = super::listed(&origin, &["/index.xml"], &["/feed"], "");
    let site = site.replace("poll = \"30d\"\n", "");
    let poll = "[poll]\nmin = \"1m\"\nfirst = \"1m\"\n";
    let text = format!("[politeness]\nhost_delay = \"10s\"\n{poll}{site}");
    let daemon = world.start(&text).await;
    origin.wait_for("/robots.txt", 1).await;
    take_turns(&daemon, &origin, 50).await;
    let (asked, newest_first) = children_asked(&origin);
    assert!(asked.len() > 30 && asked.len() < CHILDREN, "{}", asked.len());
    assert_eq!(asked, newest_first);
    let feeds = origin.requests("/feed").len();
    assert!(feeds >= 2, "{feeds} polls of the feed");
    daemon.stop().await;
}

#[tokio::test]
async fn children_of_an_index_that_have_changed_are_read_newest_first() {
    let origin = Origin::start().await;
    set_archive(&origin, 1);
    let world = World::new(&[&origin]);
    let site = super::listed(&origin, &["/index.xml"], &[], "");
    let daemon = world.start(&format!("[politeness]\nhost_delay = \"10s\"\n{site}")).await;
    origin.wait_for("/robots.txt", 1).await;
    take_turns(&daemon, &origin, CHILDREN + 2).await;
    daemon.settled().await;
    assert_eq!(children_asked(&origin).0.len(), CHILDREN);
    origin.clear_log();

    set_archive(&origin, 2);
    let listing = daemon.source("/index.xml").await.id;
    daemon.store.poll_source(listing).await.unwrap();
    take_turns(&daemon, &origin, CHILDREN).await;
    let (asked, newest_first) = children_asked(&origin);
    assert_eq!(asked, newest_first);
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_source_names_waits_no_longer_than_that_and_not_behind_the_home_pages_of_others() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text(format!("Sitemap: {base}/index.xml\n")));
    let link = "<link rel=\"alternate\" type=\"application/rss+xml\" href=\"/feed\">";
    origin.set("/", Reply::html(link));
    origin.set("/index.xml", Reply::xml(index(&base, &[("/s.xml", "")])));
    let world = World::new(&[&origin]);
    let site = format!("[[site]]\nname = \"a\"\nurl = \"{base}/\"\n");
    let daemon = world.start(&format!("[politeness]\nhost_delay = \"10s\"\n{site}")).await;
    let start = daemon.now();
    // The robots.txt at once; then the home page and the index, each ten seconds later.
    origin.wait_for("/robots.txt", 1).await;
    take_turns(&daemon, &origin, 2).await;
    for found in ["/feed", "/s.xml"] {
        let due = async || daemon.find_source(found).await?.next_poll_at;
        assert_eq!(daemon.wait(found, due).await, start, "{found}");
    }
    assert!(daemon.now() > start);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_of_a_host_that_is_gone_is_given_up_with_a_reason_and_comes_back() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&super::one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", Reply::status(404));
    let mut days = 0;
    while daemon.source("/sitemap.xml").await.state == "active" {
        daemon.pass(DAY).await;
        if days < 15 {
            daemon.poll("/sitemap.xml").await;
        }
        days += 1;
        assert!(days < 400, "never given up");
    }
    let asked = origin.requests("/sitemap.xml").len();
    assert!((5..40).contains(&asked), "{asked} requests in {days} days");
    let source = daemon.source("/sitemap.xml").await;
    assert!(source.why.contains("404"), "{}", source.why);
    for _ in 0..5 {
        daemon.pass(DAY).await;
    }
    assert_eq!(origin.requests("/sitemap.xml").len(), asked, "it is left alone");
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/b", "")])));
    assert_eq!(daemon.poll("/sitemap.xml").await.counts.new, 1);
    assert_eq!(daemon.source("/sitemap.xml").await.state, "active");
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_that_the_config_names_is_looked_at_once_a_month_after_it_was_given_up() {
    let origin = Origin::start().await;
    let list = sitemap(&origin.base(), &[("/a", "")]);
    origin.set("/sitemap.xml", Reply::xml(&list));
    let world = World::new(&[&origin]);
    let daemon = world.start(&super::one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", Reply::status(410));
    daemon.poll("/sitemap.xml").await;
    daemon.pass(DAY + HOUR).await;
    let asked = origin.requests("/sitemap.xml").len();
    assert_eq!(daemon.source("/sitemap.xml").await.state, "retired");
    let look_again = async |days: u32| {
        daemon.pass(days * DAY).await;
        while daemon.store.maintain().await.unwrap() {}
        daemon.settled().await;
        (origin.requests("/sitemap.xml").len() - asked, daemon.source("/sitemap.xml").await.state)
    };
    assert_eq!(look_again(29).await, (0, "retired".to_owned()));
    // One look, and it is left alone for another month.
    assert_eq!(look_again(2).await, (1, "retired".to_owned()));
    assert_eq!(look_again(28).await, (1, "retired".to_owned()));
    origin.set("/sitemap.xml", Reply::xml(&list));
    assert_eq!(look_again(3).await, (2, "active".to_owned()));
    // What somebody has deleted stays so.
    let source = daemon.source("/sitemap.xml").await.id;
    daemon.store.delete_source(source, false).await.unwrap();
    assert_eq!(look_again(40).await, (2, "retired".to_owned()));
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_is_deleted_while_it_is_polled_stays_so_and_lets_go_of_its_urls() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&super::one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let hold = Hold::new();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/b", "")])).hang(&hold));
    let id = daemon.source("/sitemap.xml").await.id;
    daemon.store.poll_source(id).await.unwrap();
    origin.wait_for("/sitemap.xml", 2).await;
    daemon.store.delete_source(id, false).await.unwrap();
    hold.release_all();
    daemon.polled("/sitemap.xml", 2).await;
    let source = daemon.source("/sitemap.xml").await;
    let told = (source.state.as_str(), source.error.as_deref(), source.next_poll_at);
    assert_eq!(told, ("retired", Some("deleted by an operator"), None));
    daemon.pass(8 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    assert!(!daemon.url(&format!("{base}/a")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn robots_txt_of_a_host_where_nobody_has_anything_is_polled_no_more_and_dropped() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let list = sitemap(&origin.base(), &[("/a", "")]);
    for origin in [&origin, &other] {
        origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /x\n"));
    }
    origin.set("/sitemap.xml", Reply::xml(&list));
    other.set("/s.xml", Reply::xml(&list));
    let world = World::new(&[&origin, &other]);
    let one = super::one_sitemap(&origin);
    let also = format!("sitemaps = [\"{}\", ", other.url("/s.xml"));
    let both = one.replace("sitemaps = [", &also);
    let daemon = world.start(&both).await;
    daemon.polled("/s.xml", 1).await;
    daemon.pass(DAY + HOUR).await;
    assert_eq!(other.requests("/robots.txt").len(), 2);
    daemon.reload(&one).await;
    for _ in 0..5 {
        daemon.pass(DAY + HOUR).await;
    }
    // Once more it turned out that nobody needs it.
    assert_eq!(other.requests("/robots.txt").len(), 3);
    // Nor does a reload bring it back: what the site had there is given up.
    daemon.reload(&format!("{one}weight = 2.0\n")).await;
    daemon.settled().await;
    daemon.pass(DAY + HOUR).await;
    assert_eq!(other.requests("/robots.txt").len(), 3);
    assert_eq!(origin.requests("/robots.txt").len(), 8);
    let kept = || {
        let robots = "SELECT count(*) FROM robots";
        let sources = "SELECT count(*) FROM sources WHERE role = 0";
        (world.look().number(robots), world.look().number(sources))
    };
    assert_eq!(kept(), (2, 2));
    daemon.pass(30 * DAY).await;
    while daemon.store.maintain().await.unwrap() {}
    assert_eq!(kept(), (1, 1));
    // Who is led there has it read anew, and what it says now is what holds.
    other.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /s\n"));
    origin.set("/sitemap.xml", Reply::redirect(302, other.url("/s.xml")));
    assert_eq!(daemon.poll("/sitemap.xml").await.result, "forbidden");
    assert_eq!((other.requests("/robots.txt").len(), kept()), (4, (2, 2)));
    daemon.stop().await;
}

#[tokio::test]
async fn a_site_that_hangs_on_many_hosts_leaves_others_their_slots() {
    // More than may be under way at once.
    const TARPITS: usize = 12;
    let origin = Origin::start().await;
    let hold = Hold::new();
    let (port, gate) = (origin.port(), hold.clone());
    origin.route(move |seen| {
        if host(seen).starts_with("tarpit") {
            return Some(Reply::status(200).hang(&gate));
        }
        let base = format!("http://{}.test:{port}", host(seen));
        (seen.path == "/s.xml").then(|| Reply::xml(sitemap(&base, &[("/a", "")])))
    });
    let world = World::with_names(&[&origin]);
    let tarpits: Vec<_> =
        (0..TARPITS).map(|n| format!("\"http://tarpit{n}.test:{port}/s.xml\"")).collect();
    let text = format!(
        "[[site]]\nname = \"evil\"\nurl = \"http://tarpit.test:{port}/\"\nsitemaps = [{}]\nfeeds = []\n",
        tarpits.join(", ")
    );
    // In this order: it is due last.
    let mut config = world.config(&(text + &site("sound", port, &["/s.xml"])));
    config.fetch.concurrency = 2;
    let daemon = world.start_with(config).await;
    the_healthy_one_is_read(&daemon).await;
    // Half of the eight slots, and not all of them.
    assert!(hold.waits() <= 4, "{}", hold.waits());
    hold.release_all();
    daemon.stop().await;
}
