//! What each route answers when nothing is wrong.

use tokio::sync::oneshot;

use super::fetchers::until;
use super::*;
use crate::support::{Origin, PATIENCE};

/// No URL is due: the site's home is not served.
#[tokio::test]
async fn every_list_is_there_before_anything_was_polled() {
    let daemon = Daemon::start(None).await;
    for (target, field) in [
        ("/v1/queue", "queues"),
        ("/v1/queue/peek?limit=20", "urls"),
        ("/v1/queue/dead", "urls"),
        ("/v1/queue/blocks", "blocks"),
        ("/v1/sites", "sites"),
        ("/v1/sources?site=blog", "sources"),
        ("/v1/polls?after=0&limit=10", "polls"),
    ] {
        let answer = daemon.get(target).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{target}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{target}");
        assert!(answer.json()[field].is_array(), "{target}: {}", answer.body);
    }
}

#[tokio::test]
async fn an_empty_queue_leases_nothing_and_says_so() {
    let daemon = Daemon::start(None).await;
    for body in [json!({}), json!({"max": 5, "wait": "50ms", "worker": "w1", "request_id": "r1"})] {
        let answer = daemon.post("/v1/lease", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.json(), json!({"urls": [], "next_due_at": null}));
    }
}

#[tokio::test]
async fn tokens_that_nobody_gave_out_are_unknown_in_every_call() {
    let daemon = Daemon::start(None).await;
    let token = "0".repeat(48);
    let results = [
        json!({"token": token, "outcome": "changed"}),
        json!({"token": "nonsense", "content_hash": "abc"}),
    ];
    let expected = json!({"results": [
        {"token": token, "result": "unknown"},
        {"token": "nonsense", "result": "unknown"},
    ]});
    for (target, body) in [
        ("/v1/settle", json!({ "results": results })),
        ("/v1/extend", json!({"tokens": [token, "nonsense"], "ttl": "1m"})),
        ("/v1/release", json!({"tokens": [token, "nonsense"], "after": "30s"})),
    ] {
        let answer = daemon.post(target, &body).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
        assert_eq!(answer.json(), expected, "{target}");
    }
}

#[tokio::test]
async fn a_site_is_found_by_its_name_paused_and_resumed() {
    let daemon = Daemon::start(None).await;
    let site = daemon.get("/v1/sites/blog").await.json();
    assert_eq!((&site["name"], &site["crawl"]), (&json!("blog"), &json!("default")));
    for (verb, state) in [("pause", "paused"), ("resume", "active")] {
        let answer = daemon.post(&format!("/v1/sites/blog/{verb}"), &json!({})).await;
        assert_eq!(answer.json()["state"], state, "{}", answer.body);
    }
}

#[tokio::test]
async fn a_site_is_forgotten_only_when_the_config_has_it_no_longer() {
    let daemon = Daemon::start(None).await;
    for (name, status, problem) in [("blog", 409, "refused"), ("nobody", 404, "not-found")] {
        let head = format!("DELETE /v1/sites/{name} HTTP/1.1\r\nHost: {}", daemon.addr);
        let answer = daemon.send(&head, b"").await;
        assert_eq!(
            (answer.status, answer.problem().as_str()),
            (status, problem),
            "{}",
            answer.body
        );
    }
    let mut config = Config::from_toml_str("").unwrap();
    crate::support::engine::place(&mut config, &daemon.dir.path().join("data"));
    let (done, holds) = oneshot::channel();
    daemon.reload.send(Reload { config, done }).await.unwrap();
    holds.await.unwrap().unwrap();
    let head = format!("DELETE /v1/sites/blog HTTP/1.1\r\nHost: {}", daemon.addr);
    let answer = daemon.send(&head, b"").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"forgotten": 0})));
    assert_eq!(daemon.get("/v1/sites/blog").await.status, 404);
}

#[tokio::test]
async fn a_source_has_the_fields_of_search_console_and_says_why_it_is_polled_when() {
    let daemon = Daemon::start(None).await;
    let sources = daemon.get("/v1/sources?site=blog").await.json();
    let listed = sources["sources"].as_array().unwrap();
    let sitemap = listed.iter().find(|source| source["role"] == "sitemap").unwrap();
    let answer = daemon.get(&format!("/v1/sources/{}", sitemap["id"])).await;
    let source = answer.json();
    assert_eq!(source["path"], "http://127.0.0.1:9/sitemap.xml");
    for field in ["last_submitted", "is_pending", "is_sitemaps_index", "type", "contents", "why"] {
        assert!(!source[field].is_null(), "{field}: {}", answer.body);
    }
    assert!(source["polls"].is_array());
    let at = source["last_submitted"].as_str().unwrap();
    assert!(at.len() == 24 && at.ends_with('Z'), "{at} has milliseconds and is in UTC");
}

#[tokio::test]
async fn a_long_poll_ends_at_once_when_the_daemon_stops() {
    let daemon = Daemon::start(None).await;
    let client = ApiClient::new(&daemon.addr.to_string(), None).unwrap();
    let polling =
        tokio::spawn(
            async move { client.post::<Value>("/v1/lease", &json!({"wait": "60s"})).await },
        );
    // Its connection was most likely made before this one was answered.
    daemon.get("/healthz").await;
    daemon.stop.cancel();
    let ended = tokio::time::timeout(PATIENCE, polling).await;
    match ended.expect("long before its 60 seconds").unwrap() {
        Ok(answer) => assert_eq!(answer["urls"], json!([])),
        // The stop may be faster than the connection.
        Err(error) => assert!(!matches!(error, ApiError::Refused { .. }), "{error}"),
    }
    daemon.end().await.unwrap();
}

#[tokio::test]
async fn metrics_count_the_requests_in_the_format_that_is_asked_for() {
    let daemon = Daemon::start(None).await;
    daemon.get("/v1/queue").await;
    let head = format!("GET /metrics HTTP/1.1\r\nHost: {}", daemon.addr);
    // As Prometheus asks.
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let answer = daemon.send(&format!("{head}\r\nAccept: {accept}"), b"").await;
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(answer.body.ends_with("# EOF\n"));
    let answer = daemon.get("/metrics").await;
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    assert!(answer.body.contains("\nprocess_open_fds "), "{}", answer.body);
    for line in [
        "sitemapd_api_requests_total{method=\"GET\",route=\"/v1/queue\",status=\"200\"} 1",
        "sitemapd_sites 1",
        "sitemapd_queue_urls{crawl=\"default\",state=\"due\"} 0",
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line}\n{}", answer.body);
    }
}

#[tokio::test]
async fn the_status_page_shows_the_site_and_loads_nothing_foreign() {
    let daemon = Daemon::start(None).await;
    let page = daemon.get("/").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(page.body.contains("blog") && !page.body.contains("<script"), "{}", page.body);
    let style = daemon.get("/status.css").await;
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
}

/// All rows of a list, in parts of so many, and how many parts there were.
async fn in_parts(daemon: &Daemon, list: &str, rows: &str, limit: usize) -> (Vec<Value>, usize) {
    let (mut all, mut parts, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let part = daemon.get(&format!("{list}limit={limit}{cursor}")).await.json();
        let found = part[rows].as_array().unwrap();
        assert!(found.len() <= limit, "{list}: {part}");
        all.extend(found.iter().cloned());
        parts += 1;
        let Some(next) = part["next"].as_str() else { return (all, parts) };
        let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn blocks_come_in_parts_of_one_crawl_or_of_all() {
    let crawls: String = ["x", "y"]
        .map(|name| {
            format!(
                "[[site]]\nname = \"{name}\"\nurl = \"http://{name}.test/\"\ncrawl = \"{name}\"\n"
            )
        })
        .concat();
    let daemon = Daemon::start_on(&crawls, None).await;
    for crawl in ["x", "y"] {
        for n in 0..5 {
            for which in ["url", "prefix"] {
                let body = json!({"crawl": crawl, which: format!("http://{crawl}.test/{n}")});
                assert_eq!(daemon.post("/v1/queue/block", &body).await.status, 200);
            }
        }
    }
    let whole = daemon.get("/v1/queue/blocks").await.json();
    assert_eq!((whole["blocks"].as_array().unwrap().len(), &whole["next"]), (20, &json!(null)));
    let (all, parts) = in_parts(&daemon, "/v1/queue/blocks?", "blocks", 3).await;
    assert_eq!((json!(all), parts), (whole["blocks"].clone(), 7));
    let (of_one, _) = in_parts(&daemon, "/v1/queue/blocks?crawl=y&", "blocks", 3).await;
    let expected: Vec<_> = all.iter().filter(|block| block["crawl"] == "y").cloned().collect();
    assert_eq!((of_one.len(), of_one), (10, expected));
    for (target, problem) in [
        ("/v1/queue/blocks?crawl=nobody", "not-found"),
        ("/v1/queue/blocks?cursor=r5", "invalid-field"),
        ("/v1/queue/blocks?limit=1001", "limit-exceeded"),
    ] {
        assert_eq!(daemon.get(target).await.problem(), problem, "{target}");
    }
}

/// The ids of sitemaps among sources; what is found meanwhile is none.
fn sitemaps(sources: &[Value]) -> Vec<&Value> {
    let is_one = |source: &&Value| source["role"] == "sitemap";
    sources.iter().filter(is_one).map(|source| &source["id"]).collect()
}

#[tokio::test]
async fn sites_and_sources_come_in_parts_and_by_site_and_url() {
    let origin = Origin::start().await;
    let site = |n: u8| {
        let base = format!("{}/{n}", origin.base());
        format!(
            "[[site]]\nname = \"s{n}\"\nurl = \"{base}/\"\nfeeds = []\n\
             sitemaps = [\"{base}/a.xml\", \"{base}/b.xml\"]\n"
        )
    };
    let allow = format!("[fetch]\nallow = [\"127.0.0.1:{}\"]\n", origin.port());
    let daemon = Daemon::start_on(&(allow + &(1..8).map(site).collect::<String>()), None).await;
    let (sites, parts) = in_parts(&daemon, "/v1/sites?", "sites", 3).await;
    let names: Vec<_> = sites.iter().map(|site| site["name"].as_str().unwrap()).collect();
    assert_eq!((names, parts), (vec!["s1", "s2", "s3", "s4", "s5", "s6", "s7"], 3));
    assert_eq!(daemon.get("/v1/sites").await.json()["next"], json!(null));
    let has_robots = |found: &Value| {
        let sources = found["sources"].as_array().unwrap();
        sources.iter().any(|source| source["role"] == "robots")
    };
    until(&daemon, "/v1/sources", has_robots).await;
    let (all, _) = in_parts(&daemon, "/v1/sources?", "sources", 3).await;
    assert_eq!(sitemaps(&all).len(), 14, "{all:?}");
    let (of_site, _) = in_parts(&daemon, "/v1/sources?site=s3&", "sources", 1).await;
    let expected: Vec<_> = all.iter().filter(|source| source["site"] == "s3").cloned().collect();
    assert_eq!((sitemaps(&of_site).len(), sitemaps(&of_site)), (2, sitemaps(&expected)));
    for source in &all {
        let url = source["url"].as_str().unwrap();
        let ids = async |target: String| {
            let found = daemon.get(&target).await.json();
            let found = found["sources"].as_array().unwrap().iter();
            found.map(|source| source["id"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(format!("/v1/sources?url={url}")).await, [source["id"].clone()], "{url}");
        let of_other = ids(format!("/v1/sources?url={url}&site=s7")).await;
        assert_eq!(of_other.len(), usize::from(source["site"] == "s7"), "{url}");
    }
    let nowhere = daemon.get("/v1/sources?url=http://nowhere.test/").await.json();
    assert_eq!(nowhere["sources"], json!([]));
}
