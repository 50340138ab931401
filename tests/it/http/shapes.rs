//! What each route answers when nothing is wrong.

use tokio::sync::oneshot;

use super::*;

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
    let ended = tokio::time::timeout(Duration::from_secs(30), polling).await;
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
