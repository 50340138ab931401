//! The pages over real sockets: what they show, orders by their forms, who may.

use super::fetchers::until;
use super::*;
use crate::support::daemon::sitemap;
use crate::support::{Origin, Reply};

/// A daemon that knows three pages of one site.
async fn world() -> (Daemon, Origin) {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/b", ""), ("/c", "")])));
    let text = format!(
        "[fetch]\nallow = [\"127.0.0.1:{}\"]\n[politeness]\nhost_delay = \"0s\"\n\
         [queue]\nmax_attempts = 1\n[[site]]\nname = \"a-b\"\nurl = \"{base}/\"\nfeeds = []\n\
         sitemaps = [\"{base}/sitemap.xml\", \"{base}/lost.xml\"]\n",
        origin.port()
    );
    let daemon = Daemon::start_on(&text, None).await;
    until(&daemon, "/v1/queue", |queue| queue["queues"][0]["due"] == 3).await;
    until(&daemon, "/v1/status", |status| status["sources_failing"] == 2).await;
    (daemon, origin)
}

/// Sends a form as a browser does, from a page of this origin.
async fn send_form(daemon: &Daemon, origin: &str, pairs: &[(&str, &str)]) -> Answer {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let head = format!(
        "POST /order HTTP/1.1\r\nHost: {}\r\nOrigin: {origin}\r\nAccept: text/html\r\n\
         Content-Type: application/x-www-form-urlencoded",
        daemon.addr
    );
    daemon.send(&head, body.as_bytes()).await
}

/// Gives an order; the text of the page that it leads to.
async fn order(daemon: &Daemon, pairs: &[(&str, &str)]) -> String {
    let answer = send_form(daemon, &format!("http://{}", daemon.addr), pairs).await;
    assert_eq!(answer.status, 303, "{pairs:?}: {}", answer.body);
    let head = answer.header("location").unwrap().to_owned();
    assert!(head.starts_with('/') && !head.starts_with("//"), "{head}");
    // Headers come in lower case here, and none of these paths has another.
    let page = daemon.get(&head).await;
    assert_eq!(page.status, 200, "{head}: {}", page.body);
    page.body
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_by_form_does_what_the_api_does_and_says_so() {
    let (daemon, origin) = world().await;
    let (url, base) = (origin.url("/a").to_string(), origin.url("/").to_string());
    let queue =
        async |field: &str| daemon.get("/v1/queue").await.json()["queues"][0][field].clone();
    let of_url = |what| [("do", what), ("url", url.as_str()), ("crawl", "default")];

    let page = order(&daemon, &of_url("block-url")).await;
    assert!(page.contains("Blocked; 1 URL was taken out of the queue."), "{page}");
    assert_eq!(queue("blocked").await, 1);
    assert!(daemon.get("/blocks").await.body.contains(&url));
    let page = order(&daemon, &of_url("unblock-url")).await;
    assert!(page.contains("Unblocked; 1 URL came back."), "{page}");
    assert!(order(&daemon, &of_url("requeue")).await.contains("1 URL is due now."));

    // Without a crawl it is the default one.
    let page = order(&daemon, &[("do", "block-prefix"), ("url", &base), ("crawl", "")]).await;
    assert!(page.contains("all that begin so") && page.contains(&base), "{page}");
    order(&daemon, &[("do", "unblock-prefix"), ("url", &base)]).await;
    assert_eq!(daemon.get("/v1/queue/blocks").await.json()["blocks"], json!([]));

    order(&daemon, &[("do", "pause-crawl"), ("crawl", "default")]).await;
    assert_eq!(queue("paused").await, true);
    order(&daemon, &[("do", "resume-crawl"), ("crawl", "default")]).await;
    assert_eq!(queue("paused").await, false);
    assert!(order(&daemon, &[("do", "pause-site"), ("site", "a-b")]).await.contains("Resume"));
    assert!(order(&daemon, &[("do", "resume-site"), ("site", "a-b")]).await.contains("Pause"));
    assert!(order(&daemon, &[("do", "poll-site"), ("site", "a-b")]).await.contains("due now."));
    let sources = daemon.get("/v1/sources").await.json();
    let id = sources["sources"][0]["id"].to_string();
    let page = order(&daemon, &[("do", "poll-source"), ("source", &id)]).await;
    assert!(page.contains("due now."), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_replayed_and_submissions_taken_or_dropped() {
    let (daemon, origin) = world().await;
    let leased = daemon.post("/v1/lease", &json!({"max": 3, "per_host": 3})).await.json();
    let dead: Vec<_> = leased["urls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|url| json!({"token": url["token"], "outcome": "failed", "error": "<b>down</b>"}))
        .collect();
    daemon.post("/v1/settle", &json!({ "results": dead })).await;
    let page = daemon.get("/dead").await.body;
    assert!(
        page.contains("&lt;b&gt;down&lt;/b&gt;") && page.contains(origin.url("/c").as_str()),
        "{page}"
    );
    let first = origin.url("/a").to_string();
    let one = [("do", "replay"), ("url", first.as_str()), ("crawl", "default")];
    assert!(order(&daemon, &one).await.contains("1 URL is back in the queue."));
    let all = order(&daemon, &[("do", "replay-all"), ("crawl", "default")]).await;
    assert!(all.contains("2 URLs are back in the queue."), "{all}");

    let (taken, _) = daemon.store.hear(origin.url("/one.xml")).await.unwrap();
    let (dropped, _) = daemon.store.hear(origin.url("/two.xml")).await.unwrap();
    let page = daemon.get("/submissions").await.body;
    assert!(page.contains("/one.xml") && page.contains("/two.xml"), "{page}");
    let (taken, dropped) = (taken.to_string(), dropped.to_string());
    let page = order(&daemon, &[("do", "grant"), ("submission", &taken), ("site", "a-b")]).await;
    assert!(page.contains("It is a source now") && page.contains("/one.xml"), "{page}");
    let page = order(&daemon, &[("do", "drop"), ("submission", &dropped)]).await;
    assert!(!page.contains("/two.xml"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_lead_from_the_whole_down_to_a_url() {
    let (daemon, origin) = world().await;
    let overview = daemon.get("/").await.body;
    for part in
        ["href=\"/site/a-b\"", "/lost.xml", "HTTP error 404", "URLs discovered", "Oldest due"]
    {
        assert!(overview.contains(part), "{part}: {overview}");
    }
    let site = daemon.get("/site/a-b").await.body;
    let at = site.find("/sitemap.xml</a>").expect("its sitemap");
    let from = site[..at].rfind("href=\"").unwrap() + 6;
    let path = site[from..].split('"').next().unwrap();
    assert!(path.starts_with("/source/"), "{path}");
    let source = daemon.get(path).await.body;
    for part in ["Why then", "3 accepted", "3 new", "Defects"] {
        assert!(source.contains(part), "{part}: {source}");
    }
    // The scheme may be left out only where it is https.
    let url = daemon.get(&format!("/url?url={}", origin.url("/a"))).await.body;
    for part in ["queued", "Why", "<th scope=\"row\"><time", "new"] {
        assert!(url.contains(part), "{part}: {url}");
    }
    let sitemap = daemon.get(&format!("/url?url={}", origin.url("/sitemap.xml"))).await.body;
    assert!(sitemap.contains("It is a source") && sitemap.contains(path), "{sitemap}");
    assert!(daemon.get("/failing").await.body.contains("/lost.xml"));
    assert!(daemon.get("/sites?after=a-b").await.body.contains("There is no such site."));
}

#[tokio::test]
async fn a_form_of_another_page_or_of_none_changes_nothing() {
    let daemon = Daemon::start(None).await;
    let pause = [("do", "pause-crawl"), ("crawl", "default")];
    for origin in ["https://evil.example", "null", "http://localhost"] {
        assert_eq!(send_form(&daemon, origin, &pause).await.status, 403, "{origin}");
    }
    let head = format!(
        "POST /order HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded",
        daemon.addr
    );
    assert_eq!(daemon.send(&head, b"do=pause-crawl&crawl=default").await.status, 403);
    let site = format!("{head}\r\nSec-Fetch-Site: cross-site");
    assert_eq!(daemon.send(&site, b"do=pause-crawl&crawl=default").await.status, 403);
    // What is in the query is not taken for a form.
    let target = head.replace("/order", "/order?do=pause-crawl");
    let own = format!("{target}\r\nOrigin: http://{}", daemon.addr);
    assert_eq!(daemon.send(&own, b"").await.status, 400);
    assert_eq!(daemon.get("/order").await.status, 405);
    assert_eq!(daemon.get("/v1/queue").await.json()["queues"][0]["paused"], false);
}

#[tokio::test]
async fn a_person_is_refused_by_a_page_and_a_program_by_json() {
    let daemon = Daemon::start(None).await;
    for (target, status) in
        [("/source/999", 404), ("/site/none", 404), ("/url?url=a%20b", 400), ("/?x=1", 400)]
    {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {}", daemon.addr);
        let page = daemon.send(&format!("{head}\r\nAccept: text/html,*/*;q=0.8"), b"").await;
        assert_eq!(page.status, status, "{target}");
        assert!(page.header("content-type").unwrap().starts_with("text/html"), "{target}");
        assert!(page.body.contains("<h1>") && page.body.contains("href=\"/\""), "{}", page.body);
        assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        let answer = daemon.get(target).await;
        assert_eq!(answer.status, status, "{target}");
        answer.problem();
    }
}

#[tokio::test]
async fn a_browser_is_asked_for_the_token_and_gives_it_as_a_password() {
    let daemon = Daemon::start(Some("s3cret")).await;
    let head = "GET / HTTP/1.1\r\nHost: queue.example\r\nAccept: text/html";
    let locked = daemon.send(head, b"").await;
    assert_eq!(locked.status, 401);
    let asked: Vec<_> =
        locked.head.lines().filter(|line| line.starts_with("www-authenticate")).collect();
    assert!(asked[0].contains("bearer") && asked[1].contains("basic realm"), "{asked:?}");
    assert!(locked.body.contains("as the password"), "{}", locked.body);
    // any:s3cret
    let basic = "Authorization: Basic YW55OnMzY3JldA==";
    assert_eq!(daemon.send(&format!("{head}\r\n{basic}"), b"").await.status, 200);
    let api = format!("GET /v1/queue HTTP/1.1\r\nHost: queue.example\r\n{basic}");
    assert_eq!(daemon.send(&api, b"").await.status, 401);
    let pause = "POST /order HTTP/1.1\r\nHost: queue.example\r\n\
                 Content-Type: application/x-www-form-urlencoded";
    let body = b"do=pause-crawl&crawl=default";
    let own = format!("{pause}\r\n{basic}\r\nOrigin: https://queue.example");
    assert_eq!(daemon.send(&own, body).await.status, 303);
    let foreign = format!("{pause}\r\n{basic}\r\nOrigin: https://evil.example");
    assert_eq!(daemon.send(&foreign, body).await.status, 403);
}
