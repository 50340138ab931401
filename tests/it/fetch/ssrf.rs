//! The guard, end to end: nothing that is not public is ever connected to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sitemapd::fetch::resolver::Lookup;
use sitemapd::fetch::{FetchError, Fetcher, Gate, Refusal, Surroundings};
use url::Url;

use super::{config, document, fetcher, get, request, shown};
use crate::support::{Canary, Hold, Origin, Reply};

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

#[tokio::test]
async fn who_finds_the_line_at_an_address_full_comes_back_and_spends_no_slot() {
    /// How often a request was to be sent.
    #[derive(Default)]
    struct Counting(AtomicUsize);
    impl Gate for Counting {
        async fn admit(&self, _: &Url) -> Result<(), Refusal> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let proxy = Origin::start().await;
    let hold = Hold::new();
    let gate = hold.clone();
    proxy.route(move |_| Some(Reply::text("x").hang(&gate)));
    let (mut fetch, daemon) = config(&[]);
    fetch.proxy = Some(proxy.url("/"));
    fetch.concurrency = 2;
    let (lookup, _) = scripted(&[("a.test", &[&["1.1.1.1"]]), ("b.test", &[&["1.1.1.1"]])]);
    let surroundings = Surroundings { lookup, ..Surroundings::default() };
    let fetcher = Fetcher::with_surroundings(&fetch, &daemon, 1, surroundings).unwrap();
    let [first, second, third] = [(); 3].map(|()| Counting::default());
    let ask = |name: &str| request(Url::parse(&format!("http://{name}.test/")).unwrap());
    let waiting = async {
        hold.arrived(1).await;
        let waiting = fetcher.fetch(ask("b"), &second);
        let refused = async {
            let refused = fetcher.fetch(ask("b"), &third).await.unwrap_err();
            assert!(matches!(refused, FetchError::Deferred(Refusal::Crowded { .. })), "{refused}");
            hold.release_all();
        };
        // Polled in this order: one takes the last place, the other finds none.
        tokio::join!(biased; waiting, refused).0
    };
    let (one, two) = tokio::join!(biased; fetcher.fetch(ask("a"), &first), waiting);
    document(one.unwrap());
    document(two.unwrap());
    let admitted = [&first, &second, &third].map(|gate| gate.0.load(Ordering::SeqCst));
    assert_eq!(admitted, [1, 1, 0], "no slot is spent where the line is full");
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
