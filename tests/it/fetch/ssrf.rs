//! The guard, end to end: nothing that is not public is ever connected to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sitemapd::fetch::resolver::Lookup;
use sitemapd::fetch::{FetchError, Fetcher, Form, Gate, Refusal, Surroundings, Wait};
use url::Url;

use super::{Open, config, document, fetcher, get, request, shown};
use crate::support::{Canary, Hold, Origin, PATIENCE, Reply};

/// All spellings of this machine and of inner networks that URLs know.
fn inner_urls(port: u16) -> Vec<String> {
    let hosts = [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "2130706433",
        "0x7f000001",
        "0x7F.0.0.1",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "0177.0.0.0x1",
        "00000177.1",
        "１２７.０.０.１",
        "127。0。0。1",
        "127%2e0%2e0%2e1",
        "%31%32%37.0.0.1",
        "①②⑦.⓪.⓪.①",
        "0",
        "0.0.0.0",
        "0x0",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "ｌｏｃａｌｈｏｓｔ",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[0000::0001]",
        "[::127.0.0.1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "[fe80::1]",
        "[fc00::1]",
        "[ff02::1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "255.255.255.255",
        "224.0.0.1",
    ];
    let mut urls: Vec<String> =
        hosts.iter().map(|host| format!("http://{host}:{port}/x")).collect();
    urls.extend([
        format!("https://127.0.0.1:{port}/x"),
        format!("http:\\\\127.0.0.1:{port}\\x"),
        format!("http:/127.0.0.1:{port}/x"),
        format!("http:127.0.0.1:{port}/x"),
        format!("///127.0.0.1:{port}/x"),
        format!("\t//127.0.0.1:{port}/x"),
        format!("http://public.example@127.0.0.1:{port}/x"),
        format!("http://user:hunter2@localhost:{port}/x"),
        format!("ftp://127.0.0.1:{port}/x"),
        format!("gopher://127.0.0.1:{port}/_x"),
        "file:///etc/passwd".to_owned(),
        "data:text/xml,<urlset/>".to_owned(),
        "javascript:1".to_owned(),
        format!("{}:x", "a".repeat(5_000)),
        format!("http://{}/", "a.".repeat(2_000)),
    ]);
    urls
}

#[tokio::test]
async fn by_default_nothing_on_this_machine_is_fetched() {
    let mut canary = Canary::start();
    let fetcher = fetcher(&[]);
    for text in inner_urls(canary.port()) {
        // What no URL parser takes cannot be registered; redirects try these too.
        let Ok(url) = Url::parse(&text) else { continue };
        let error = get(&fetcher, url).await.unwrap_err();
        let is_refused = matches!(error, FetchError::Blocked(_) | FetchError::Dns(_));
        assert!(is_refused, "{text}: {error}");
        shown(&error);
    }
    assert_eq!(canary.touched(), 0);
}

#[tokio::test]
async fn no_redirect_leads_to_an_inner_address() {
    let mut canary = Canary::start();
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let mut relative = Vec::new();
    for location in inner_urls(canary.port()) {
        origin.set("/a", Reply::redirect(302, &location));
        origin.route(|_| Some(Reply::status(404)));
        let Err(error) = get(&fetcher, origin.url("/a")).await else {
            relative.push(location);
            continue;
        };
        let text = shown(&error);
        let is_refused =
            matches!(error, FetchError::Blocked(_) | FetchError::Dns(_) | FetchError::Protocol(_));
        assert!(is_refused, "{location}: {text}");
    }
    // To a base of the same scheme these two are paths (WHATWG URL).
    let port = canary.port();
    assert_eq!(relative, [format!("http:/127.0.0.1:{port}/x"), format!("http:127.0.0.1:{port}/x")]);
    assert_eq!(canary.touched(), 0);
}

#[tokio::test]
async fn an_exception_for_one_port_opens_no_other() {
    let mut canary = Canary::start();
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/x", Reply::xml("<a/>"));
    for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"] {
        let allowed = Url::parse(&format!("http://{host}:{}/x", origin.port())).unwrap();
        document(get(&fetcher, allowed).await.unwrap());
        let other = Url::parse(&format!("http://{host}:{}/x", canary.port())).unwrap();
        let error = get(&fetcher, other).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked(_)), "{host}: {error}");
    }
    assert_eq!(canary.touched(), 0);
}

/// Answers from a list; each further question gets the next answer.
fn scripted(names: &[(&str, &[&[&str]])]) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let parse = |answer: &&[&str]| answer.iter().map(|ip| ip.parse().unwrap()).collect();
    let names: HashMap<String, Vec<Vec<IpAddr>>> = names
        .iter()
        .map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect()))
        .collect();
    let turns: Mutex<HashMap<String, usize>> = Mutex::default();
    let lookup: Lookup = {
        let asked = asked.clone();
        Arc::new(move |host| {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = names.get(&host).map(|answers| {
                let mut turns = turns.lock().unwrap();
                let turn = turns.entry(host).or_default();
                *turn += 1;
                answers[(*turn - 1).min(answers.len() - 1)].clone()
            });
            Box::pin(async move { answer.ok_or_else(|| std::io::Error::other("no such name")) })
        })
    };
    (lookup, asked)
}

fn with_names(allow: &[u16], names: &[(&str, &[&[&str]])]) -> (Fetcher, Arc<AtomicUsize>) {
    let (fetch, daemon) = config(allow);
    let (lookup, asked) = scripted(names);
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    (Fetcher::with_surroundings(&fetch, &daemon, 4, surroundings).unwrap(), asked)
}

#[tokio::test]
async fn a_name_with_inner_addresses_is_not_connected_to() {
    let mut canary = Canary::start();
    let (fetcher, _) = with_names(
        &[],
        &[
            ("inner.test", &[&["127.0.0.1"]]),
            ("mapped.test", &[&["::ffff:127.0.0.1"]]),
            ("nat64.test", &[&["64:ff9b::7f00:1"]]),
            ("six.test", &[&["::1"]]),
            ("any.test", &[&["0.0.0.0"]]),
            ("many.test", &[&["10.0.0.1", "127.0.0.1", "::1", "169.254.169.254"]]),
        ],
    );
    for name in ["inner", "mapped", "nat64", "six", "any", "many"] {
        let url = Url::parse(&format!("http://{name}.test:{}/", canary.port())).unwrap();
        let error = get(&fetcher, url).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked(_)), "{name}: {error}");
        assert!(!shown(&error).contains("127.0.0.1"), "what a name resolves to inside is not told");
    }
    assert_eq!(canary.touched(), 0);
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_connected_to() {
    let mut canary = Canary::start();
    let origin = Origin::start().await;
    origin.set("/x", Reply::xml("<a/>"));
    // First the allowed address, then another one on which the canary sits too.
    let (fetcher, asked) =
        with_names(&[origin.port()], &[("rebind.test", &[&["127.0.0.1"], &["127.0.0.2"]])]);
    let url = |port: u16| Url::parse(&format!("http://rebind.test:{port}/x")).unwrap();
    document(get(&fetcher, url(origin.port())).await.unwrap());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one question, one answer, one connection");
    assert_eq!(
        origin.requests("/x")[0].header("host"),
        Some(&*format!("rebind.test:{}", origin.port()))
    );

    // The name now has an address that is not allowed: the pooled connection
    // is of no help to it either.
    let error = get(&fetcher, url(origin.port())).await.unwrap_err();
    assert!(matches!(error, FetchError::Blocked(_)), "{error}");
    let error = get(&fetcher, url(canary.port())).await.unwrap_err();
    assert!(matches!(error, FetchError::Blocked(_)), "{error}");
    assert_eq!(canary.touched(), 0);
}

#[tokio::test]
async fn a_form_goes_out_on_no_connection_that_was_opened_to_where_only_polls_may_go() {
    let origin = Origin::start().await;
    origin.set("/x", Reply::xml("<a/>"));
    origin.set("/hub", Reply::status(202));
    // An address that counts as public, of a block that nobody was ever given.
    let (lookup, _) = scripted(&[("hub.test", &[&["127.0.0.1"], &["2e00::1"]])]);
    let (mut fetch, daemon) = config(&[origin.port()]);
    fetch.connect_timeout = Duration::from_millis(200);
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    let fetcher = Fetcher::with_surroundings(&fetch, &daemon, 4, surroundings).unwrap();
    let url = |path: &str| Url::parse(&format!("http://hub.test:{}{path}", origin.port())).unwrap();
    document(get(&fetcher, url("/x")).await.unwrap());
    let form = |source: &str| Form {
        url: url("/hub"),
        fields: vec![("hub.mode", "subscribe".to_owned())],
        source: Some(Url::parse(source).unwrap()),
        is_secret: false,
    };
    let error = fetcher.post_form(&form("http://feed.test/"), &Open).await.unwrap_err();
    assert!(origin.requests("/hub").is_empty(), "it was sent before it was refused: {error}");
}

#[tokio::test]
async fn of_a_mixed_answer_only_what_is_allowed_is_used() {
    let origin = Origin::start().await;
    origin.set("/x", Reply::xml("<a/>"));
    let (fetcher, _) = with_names(
        &[origin.port()],
        &[("mixed.test", &[&["::1", "127.0.0.2", "10.0.0.1", "127.0.0.1"]])],
    );
    let url = Url::parse(&format!("http://mixed.test:{}/x", origin.port())).unwrap();
    document(get(&fetcher, url).await.unwrap());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_dns_error() {
    let (fetcher, _) = with_names(&[], &[("empty.test", &[&[]])]);
    for name in ["missing.test", "empty.test"] {
        let error =
            get(&fetcher, Url::parse(&format!("http://{name}/")).unwrap()).await.unwrap_err();
        assert!(matches!(error, FetchError::Dns(_)), "{error}");
        assert!(shown(&error).contains(name));
    }
}

#[tokio::test]
async fn many_hosts_at_once_each_reach_their_own_address() {
    let origin = Origin::start().await;
    origin.route(|seen| Some(Reply::text(seen.header("host").unwrap_or_default())));
    let names: Vec<String> = (0..40).map(|n| format!("h{n}.test")).collect();
    let script: Vec<(&str, &[&[&str]])> = names
        .iter()
        .map(|name| (name.as_str(), &[&["127.0.0.1"] as &[&str]] as &[&[&str]]))
        .collect();
    let (fetcher, asked) = with_names(&[origin.port()], &script);
    let mut tasks = tokio::task::JoinSet::new();
    for name in names {
        let (fetcher, port) = (fetcher.clone(), origin.port());
        tasks.spawn(async move {
            let url = Url::parse(&format!("http://{name}:{port}/")).unwrap();
            let got = document(get(&fetcher, url).await.unwrap());
            assert_eq!(*got.body.in_memory().unwrap(), format!("{name}:{port}"));
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(asked.load(Ordering::SeqCst), 40);
}

#[tokio::test]
async fn the_configured_proxy_is_used_and_asked_for_public_urls_only() {
    let proxy = Origin::start().await;
    proxy.route(|seen| Some(Reply::text(format!("via proxy: {}", seen.path))));
    let (mut fetch, daemon) = config(&[]);
    // Its address needs no exception: the operator named it.
    fetch.proxy = Some(proxy.url("/"));
    let (lookup, _) = scripted(&[("inner.test", &[&["127.0.0.1"]])]);
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    let fetcher = Fetcher::with_surroundings(&fetch, &daemon, 4, surroundings).unwrap();

    let public = Url::parse("http://only-the-proxy-knows.example/a").unwrap();
    let got = document(get(&fetcher, public).await.unwrap());
    assert_eq!(got.body.in_memory().unwrap(), "via proxy: http://only-the-proxy-knows.example/a");
    for inner in ["http://127.0.0.1/", "http://[::1]/", "http://inner.test/"] {
        let error = get(&fetcher, Url::parse(inner).unwrap()).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked(_)), "{inner}: {error}");
    }
    assert_eq!(proxy.all_requests().len(), 1);
}

#[tokio::test]
async fn hosts_that_share_an_address_share_its_turns() {
    // Through a proxy, so that addresses can be public without leaving here.
    let proxy = Origin::start().await;
    let hold = Hold::new();
    proxy.route({
        let hold = hold.clone();
        move |seen| {
            let reply = Reply::text("x");
            Some(if seen.path.contains("shared") { reply.hang(&hold) } else { reply })
        }
    });
    let (mut fetch, daemon) = config(&[]);
    fetch.proxy = Some(proxy.url("/"));
    fetch.concurrency = 8;
    let names: Vec<String> = (0..8).map(|n| format!("shared{n}.test")).collect();
    let mut script: Vec<(&str, &[&[&str]])> = names
        .iter()
        .map(|name| (name.as_str(), &[&["1.1.1.1"] as &[&str]] as &[&[&str]]))
        .collect();
    script.push(("alone.test", &[&["1.0.0.1"]]));
    let (lookup, asked) = scripted(&script);
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    let fetcher = Fetcher::with_surroundings(&fetch, &daemon, 2, surroundings).unwrap();

    let mut tasks = tokio::task::JoinSet::new();
    for name in names {
        let (fetcher, url) = (fetcher.clone(), Url::parse(&format!("http://{name}/")).unwrap());
        tasks.spawn(async move { document(get(&fetcher, url).await.unwrap()) });
    }
    hold.arrived(2).await;
    document(get(&fetcher, Url::parse("http://alone.test/").unwrap()).await.unwrap());
    for done in 0..8 {
        assert!(hold.waits() <= done + 2, "{} at the address after {done}", hold.waits());
        hold.release(1);
        tasks.join_next().await.unwrap().unwrap();
    }
    assert_eq!((hold.waits(), asked.load(Ordering::SeqCst)), (8, 9));
}

/// Counts what it is asked; its host's time has passed so often when it has a turn.
#[derive(Default)]
struct Counting {
    admitted: AtomicUsize,
    given_back: AtomicUsize,
    asked_again: AtomicUsize,
    late: usize,
    /// What its host's time is waited for with.
    hold: Option<Hold>,
}

impl Counting {
    fn counts(&self) -> [usize; 3] {
        [&self.admitted, &self.asked_again, &self.given_back].map(|n| n.load(Ordering::SeqCst))
    }
}

impl Gate for Counting {
    async fn admit(&self, _: &Url) -> Result<(), Refusal> {
        self.admitted.fetch_add(1, Ordering::SeqCst);
        if let Some(hold) = &self.hold {
            hold.pass().await;
        }
        Ok(())
    }

    async fn is_on_time(&self, _: &Url, _: bool) -> Result<bool, Refusal> {
        Ok(self.asked_again.fetch_add(1, Ordering::SeqCst) >= self.late)
    }

    async fn give_back(&self, _: &Url) {
        self.given_back.fetch_add(1, Ordering::SeqCst);
    }
}

/// A fetcher that asks a proxy, so that addresses can be public without leaving here:
/// one request at a time to an address, and so many there at most.
fn one_at_a_time(proxy: &Origin, script: &[(&str, &[&[&str]])], places: usize) -> Fetcher {
    let (mut fetch, daemon) = config(&[]);
    fetch.proxy = Some(proxy.url("/"));
    fetch.concurrency = places;
    let (lookup, _) = scripted(script);
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    Fetcher::with_surroundings(&fetch, &daemon, 1, surroundings).unwrap()
}

fn is_crowded(answer: &Result<sitemapd::fetch::Answer, FetchError>) -> bool {
    let of = |refusal: &Refusal| matches!(refusal, Refusal::Crowded { wait: Wait::Address, .. });
    matches!(answer, Err(FetchError::Deferred(refusal)) if of(refusal))
}

#[tokio::test]
async fn who_finds_the_line_at_an_address_full_comes_back_and_spends_no_slot() {
    let proxy = Origin::start().await;
    let hold = Hold::new();
    let gate = hold.clone();
    proxy.route(move |_| Some(Reply::text("x").hang(&gate)));
    let script: [(&str, &[&[&str]]); 2] =
        [("a.test", &[&["1.1.1.1"]]), ("b.test", &[&["1.1.1.1"]])];
    let fetcher = one_at_a_time(&proxy, &script, 2);
    let [first, second, third] = [(); 3].map(|()| Counting::default());
    let clock = Hold::new();
    let fourth = Counting { hold: Some(clock.clone()), ..Counting::default() };
    let ask = |name: &str| request(Url::parse(&format!("http://{name}.test/")).unwrap());
    let waiting = async {
        // Nobody is there yet while it waits for its host.
        clock.arrived(1).await;
        let first = fetcher.fetch(ask("a"), &first);
        let others = async {
            hold.arrived(1).await;
            let refused = async {
                let refused = fetcher.fetch(ask("b"), &third).await;
                clock.release_all();
                refused
            };
            // Polled in this order: one takes the last place, the other finds none.
            tokio::join!(biased; fetcher.fetch(ask("b"), &second), refused)
        };
        tokio::join!(biased; first, others)
    };
    let overtaken = async {
        let overtaken = fetcher.fetch(ask("a"), &fourth).await;
        hold.release_all();
        overtaken
    };
    let (overtaken, (one, (two, refused))) = tokio::join!(biased; overtaken, waiting);
    document(one.unwrap());
    document(two.unwrap());
    assert!(is_crowded(&refused) && is_crowded(&overtaken));
    let counts = [&first, &second, &third, &fourth].map(Counting::counts);
    // No slot is spent where the line is full, or was full when its time had come.
    assert_eq!(counts, [[1, 1, 0], [1, 1, 0], [0, 0, 0], [1, 0, 1]]);
}

#[tokio::test]
async fn a_turn_at_an_address_that_comes_after_the_hosts_time_is_given_up_and_waited_for_again() {
    let proxy = Origin::start().await;
    proxy.route(|_| Some(Reply::text("x")));
    let fetcher = one_at_a_time(&proxy, &[("a.test", &[&["1.1.1.1"]])], 2);
    let ask = || request(Url::parse("http://a.test/").unwrap());
    let clock = Hold::new();
    let late = Counting { late: 1, hold: Some(clock.clone()), ..Counting::default() };
    clock.release(1);
    let other = async {
        clock.arrived(2).await;
        let other = get(&fetcher, ask().url).await;
        clock.release_all();
        other
    };
    let (late_one, other) = tokio::join!(fetcher.fetch(ask(), &late), other);
    document(late_one.unwrap());
    // The address was free for it meanwhile.
    document(other.unwrap());
    assert_eq!(late.counts(), [2, 2, 0]);
    // A host whose time has always passed is not waited for without end.
    let never = Counting { late: usize::MAX, ..Counting::default() };
    assert!(is_crowded(&fetcher.fetch(ask(), &never).await));
    assert_eq!(never.counts(), [3, 3, 0]);
}

#[tokio::test]
async fn where_a_redirect_leads_to_a_crowded_address_its_place_is_in_a_longer_line() {
    let proxy = Origin::start().await;
    let hold = Hold::new();
    let gate = hold.clone();
    proxy.route(move |seen| {
        if seen.path.contains("from.test") {
            return Some(Reply::redirect(302, "http://to.test/"));
        }
        Some(Reply::text("x").hang(&gate))
    });
    let script: [(&str, &[&[&str]]); 2] =
        [("from.test", &[&["1.0.0.1"]]), ("to.test", &[&["1.1.1.1"]])];
    let fetcher = one_at_a_time(&proxy, &script, 1);
    let ask = |name: &str| Url::parse(&format!("http://{name}.test/")).unwrap();
    let led = Counting::default();
    let waiting = async {
        hold.arrived(1).await;
        let refused = async {
            let is_there = async {
                while led.counts()[0] < 2 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, is_there).await.unwrap();
            let answers = [get(&fetcher, ask("to")).await, get(&fetcher, ask("from")).await];
            hold.release_all();
            answers
        };
        tokio::join!(fetcher.fetch(request(ask("from")), &led), refused)
    };
    let (first, (answer, [refused, led_too])) = tokio::join!(get(&fetcher, ask("to")), waiting);
    document(first.unwrap());
    document(answer.unwrap());
    assert!(is_crowded(&refused), "it is asked first, and comes back");
    // Where that line is full as well, the first place is not asked again each minute.
    let Err(FetchError::Deferred(Refusal::Crowded { pause, .. })) = led_too else {
        panic!("{led_too:?}");
    };
    assert_eq!(pause, Duration::from_secs(900));
}

#[tokio::test]
async fn behind_a_proxy_names_that_nobody_answers_for_keep_no_document_away() {
    // More than are looked up at once.
    const NAMES: usize = 40;
    let proxy = Origin::start().await;
    proxy.route(|_| Some(Reply::text("x")));
    let (mut fetch, daemon) = config(&[]);
    fetch.proxy = Some(proxy.url("/"));
    fetch.connect_timeout = Duration::from_millis(100);
    let (hold, asked) = (Hold::new(), Arc::new(AtomicUsize::new(0)));
    let lookup: Lookup = Arc::new({
        let (hold, asked) = (hold.clone(), asked.clone());
        move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            let hold = hold.clone();
            Box::pin(async move {
                hold.pass().await;
                Ok(Vec::new())
            })
        }
    });
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    let fetcher = Fetcher::with_surroundings(&fetch, &daemon, 4, surroundings).unwrap();
    let all = async || {
        let ask = |n| get(&fetcher, Url::parse(&format!("http://h{n}.test/")).unwrap());
        for answer in futures_util::future::join_all((0..NAMES).map(ask)).await {
            document(answer.unwrap());
        }
        asked.load(Ordering::SeqCst)
    };
    let looked_up = all().await;
    // The answer is known by now, and their lookups are not over yet.
    assert_eq!((all().await, proxy.all_requests().len()), (looked_up, 2 * NAMES));
    hold.release_all();
}

#[tokio::test]
async fn waiting_behind_names_whose_servers_do_not_answer_is_no_failure_of_a_name() {
    // More than are looked up at once, by so many.
    const DEAD: usize = 40;
    const AT_ONCE: usize = 32;
    let origin = Origin::start().await;
    origin.set("/x", Reply::xml("<a/>"));
    let (mut fetch, daemon) = config(&[origin.port()]);
    fetch.connect_timeout = Duration::from_millis(100);
    let (hold, again) = (Hold::new(), Hold::new());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let lookup: Lookup = Arc::new({
        let (holds, asked) = ((hold.clone(), again.clone()), asked.clone());
        move |name| {
            let mut asked = asked.lock().unwrap();
            let is_first = !asked.contains(&name);
            asked.push(name.clone());
            let hold = if is_first { holds.0.clone() } else { holds.1.clone() };
            Box::pin(async move {
                if name.starts_with("dead") {
                    hold.pass().await;
                }
                Ok(vec![IpAddr::from([127, 0, 0, 1])])
            })
        }
    });
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    let fetcher = Fetcher::with_surroundings(&fetch, &daemon, 4, surroundings).unwrap();
    let ask = |name: String| {
        let url = Url::parse(&format!("http://{name}.test:{}/x", origin.port())).unwrap();
        let fetcher = fetcher.clone();
        tokio::spawn(async move { get(&fetcher, url).await })
    };
    let dead: Vec<_> = (0..DEAD).map(|n| ask(format!("dead{n}"))).collect();
    hold.arrived(AT_ONCE).await;
    let good = ask("good".to_owned());
    // Those who were first have given up, and still nobody else has had a turn.
    let mut timed_out = Vec::new();
    for (n, dead) in dead.into_iter().enumerate() {
        if asked.lock().unwrap().contains(&format!("dead{n}.test")) {
            assert!(matches!(dead.await.unwrap().unwrap_err(), FetchError::Timeout(_)));
            timed_out.push(n);
        }
    }
    assert_eq!((timed_out.len(), asked.lock().unwrap().len()), (AT_ONCE, AT_ONCE));
    hold.release_all();
    document(good.await.unwrap().unwrap());

    // Known for it, they leave half of the turns to others.
    let dead: Vec<_> = timed_out.iter().map(|n| ask(format!("dead{n}"))).collect();
    again.arrived(AT_ONCE / 2).await;
    document(ask("sound".to_owned()).await.unwrap().unwrap());
    assert_eq!(again.waits(), AT_ONCE / 2);
    again.release_all();
    for dead in dead {
        // Some have given up meanwhile.
        let _ = dead.await.unwrap();
    }
}

/// The environment of a process cannot be changed safely while it runs, so the
/// test runs itself as a child that has these variables.
#[tokio::test]
async fn a_proxy_in_the_environment_is_ignored() {
    const ORIGIN: &str = "SITEMAPD_TEST_ORIGIN_PORT";
    if let Ok(port) = std::env::var(ORIGIN) {
        let port: u16 = port.parse().unwrap();
        let url = Url::parse(&format!("http://127.0.0.1:{port}/x")).unwrap();
        document(get(&fetcher(&[port]), url).await.unwrap());
        let name = Url::parse(&format!("http://localhost:{port}/x")).unwrap();
        document(get(&fetcher(&[port]), name).await.unwrap());
        return;
    }
    let mut canary = Canary::start();
    let origin = Origin::start().await;
    origin.set("/x", Reply::xml("<a/>"));
    let proxy = format!("http://127.0.0.1:{}", canary.port());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "fetch::ssrf::a_proxy_in_the_environment_is_ignored"]);
    child.env(ORIGIN, origin.port().to_string()).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        child.env(name, &proxy);
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(origin.requests("/x").len(), 2, "the child has run");
    assert_eq!(canary.touched(), 0);
}
