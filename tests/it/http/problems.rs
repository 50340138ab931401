//! What each mistake is told, and that every limit holds.

use super::*;

#[tokio::test]
async fn every_mistake_has_a_problem_of_its_own() {
    let daemon = Daemon::start(None).await;
    for (target, status, problem) in [
        ("/v1/nothing", 404, "no-such-route"),
        ("/v1/lease", 405, "method-not-allowed"),
        ("/v1/changes?after=r1", 400, "invalid-field"),
        ("/v1/changes?after=cffffffffffffff.0", 410, "gone"),
        ("/v1/sites/nobody", 404, "not-found"),
        ("/v1/sources/999999", 404, "not-found"),
        ("/v1/sources/abc", 404, "not-found"),
        ("/v1/url?url=https://example.org/", 404, "not-found"),
        ("/v1/url?url=example.org", 400, "invalid-field"),
        ("/v1/url", 400, "invalid-field"),
        ("/v1/sources?site=nobody", 404, "not-found"),
        ("/v1/queue/dead?crawl=nobody", 404, "not-found"),
        ("/v1/queue/peek?crawl=nobody", 404, "not-found"),
        ("/v1/changes?site=nobody", 404, "not-found"),
        ("/v1/sources?sit=blog", 400, "invalid-field"),
        ("/v1/sources?cursor=5", 400, "invalid-field"),
        ("/v1/sources?limit=0", 400, "invalid-field"),
        ("/v1/queue/peek?limit=1001", 400, "limit-exceeded"),
    ] {
        let answer = daemon.get(target).await;
        let found = (answer.status, answer.problem());
        assert_eq!(found, (status, problem.to_owned()), "{target}: {}", answer.body);
    }
}

#[tokio::test]
async fn every_limit_of_the_contract_is_named_when_it_is_passed() {
    let daemon = Daemon::start(None).await;
    let results = vec![json!({"token": "x", "outcome": "gone"}); 10_001];
    let tokens = vec!["x"; 10_001];
    for (target, body, named) in [
        ("/v1/lease", json!({"max": 1_001}), "1,000 URLs"),
        ("/v1/lease", json!({"wait": "61s"}), "1m"),
        ("/v1/lease", json!({"ttl": "13h"}), "12h"),
        ("/v1/settle", json!({ "results": results }), "10,000"),
        ("/v1/extend", json!({ "tokens": tokens }), "10,000"),
        ("/v1/release", json!({ "tokens": tokens }), "10,000"),
    ] {
        let answer = daemon.post(target, &body).await;
        assert_eq!(answer.status, 400, "{target}: {}", answer.body);
        assert_eq!(answer.problem(), "limit-exceeded", "{target}");
        assert!(answer.detail().contains(named), "{target}: {}", answer.detail());
    }
}

#[tokio::test]
async fn a_wrong_parameter_is_told_by_its_name_with_what_came_and_what_can() {
    let daemon = Daemon::start(None).await;
    for (target, said) in [
        ("/v1/urls?limit=abc", "limit is \"abc\"; it must be a whole number of 0 or more."),
        ("/v1/urls?limit=", "limit is \"\"; it must be a whole number of 0 or more."),
        ("/v1/urls?limit=-1", "limit is \"-1\"; it must be a whole number of 0 or more."),
        (
            "/v1/urls?limit=99999999999999999999",
            "limit is \"99999999999999999999\"; it must be a smaller number.",
        ),
        ("/v1/sources?site=a%26b&retired=yes", "retired is \"yes\"; it must be true or false."),
        (
            "/v1/polls?source=%C3%A9%0A",
            "source is \"é\\n\"; it must be a whole number of 0 or more.",
        ),
        ("/v1/urls?limit=1&limit=2", "limit stands there twice; it must stand there once."),
        ("/v1/url", "url is missing."),
        (
            "/v1/sources?sit=blog",
            "`sit` is no parameter here; there are `site`, `url`, `retired`, `limit`, `cursor`. A URL \
             given as a value must have its `&` percent-encoded as %26.",
        ),
    ] {
        let answer = daemon.get(target).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (400, "invalid-field".to_owned()),
            "{target}"
        );
        assert_eq!(answer.detail(), format!("In the query: {said}"), "{target}");
    }
}

#[tokio::test]
async fn a_wrong_body_is_told_what_is_wrong_with_it() {
    let daemon = Daemon::start(None).await;
    for (target, body, problem, named) in [
        ("/v1/lease", json!({"maximum": 5}), "invalid-field", "`max`"),
        ("/v1/lease", json!({"ttl": "300"}), "invalid-field", "1h 30m"),
        ("/v1/lease", json!([5]), "invalid-field", "an object"),
        ("/v1/lease", json!({"max": "5"}), "invalid-field", "expected a whole number"),
        (
            "/v1/sources",
            json!({"site": "blog", "url": "http://me:s3cret@a.example/"}),
            "invalid-field",
            "a password",
        ),
        (
            "/v1/sources",
            json!({"site": "blog", "url": "http://127.0.0.1:1/s.xml"}),
            "invalid-field",
            "never fetched",
        ),
        (
            "/v1/sources",
            json!({"site": "blog", "url": "http://[::ffff:10.0.0.1]/"}),
            "invalid-field",
            "never fetched",
        ),
        ("/v1/lease", json!({"include": ["image"]}), "invalid-field", "\"images\""),
        ("/v1/settle", json!({}), "invalid-field", "results"),
        ("/v1/settle", json!({"results": [{"token": "x"}]}), "invalid-field", "results[0].outcome"),
        ("/v1/queue/replay", json!({}), "invalid-field", "`all`"),
        ("/v1/queue/block", json!({"url": "/a"}), "invalid-field", "absolute URL"),
        ("/v1/sources", json!({"site": "blog", "url": "ftp://a/"}), "invalid-field", "http"),
    ] {
        let answer = daemon.post(target, &body).await;
        assert_eq!(answer.problem(), problem, "{target}: {}", answer.body);
        assert!(answer.detail().contains(named), "{target}: {}", answer.detail());
    }
}

#[tokio::test]
async fn what_is_no_plain_json_is_refused() {
    let daemon = Daemon::start(None).await;
    let json = "Content-Type: application/json";
    let form = "Content-Type: application/x-www-form-urlencoded";
    for (headers, body, status, problem) in [
        (json.to_owned(), "{\"max\": ", 400, "malformed-json"),
        (json.to_owned(), "max=5", 400, "malformed-json"),
        (form.to_owned(), "{}", 415, "unsupported-media-type"),
        (format!("{json}\r\nContent-Encoding: gzip"), "{}", 415, "unsupported-media-type"),
    ] {
        let head = format!("POST /v1/lease HTTP/1.1\r\nHost: {}\r\n{headers}", daemon.addr);
        let answer = daemon.send(&head, body.as_bytes()).await;
        let found = (answer.status, answer.problem());
        assert_eq!(found, (status, problem.to_owned()), "{headers}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_is_told_of_the_limit() {
    let daemon = Daemon::start(None).await;
    let head = format!(
        "POST /v1/settle HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json",
        daemon.addr
    );
    let answer = daemon.send(&head, &vec![b' '; 20_000_000]).await;
    assert_eq!((answer.status, answer.problem()), (413, "body-too-large".to_owned()));
    assert!(answer.detail().contains("16,777,216 bytes"), "{}", answer.detail());
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_is_told_why_nobody_reads_it() {
    let daemon = Daemon::start(Some("s3cret")).await;
    let right = "Authorization: Bearer s3cret";
    for (line, token, problem) in [
        ("POST /v1/settle", "Authorization: Bearer old", "unauthorized"),
        ("POST /v1/settle", "X-Token: none", "unauthorized"),
        ("POST /v1/nothing", right, "no-such-route"),
        ("PUT /v1/settle", right, "method-not-allowed"),
    ] {
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\n{token}\r\nContent-Type: application/json",
            daemon.addr
        );
        let answer = daemon.send(&head, &vec![b' '; 10_000_000]).await;
        assert_eq!(answer.problem(), problem, "{line}");
    }
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_before_it_is_read() {
    let daemon = Daemon::start(None).await;
    let mut stream = TcpStream::connect(daemon.addr).await.unwrap();
    let head = format!(
        "POST /v1/lease HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: 1000000000\r\n\r\n",
        daemon.addr
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let answer = Answer::read(&bytes);
    assert_eq!((answer.status, answer.problem()), (413, "body-too-large".to_owned()));
    assert!(answer.detail().contains("2,097,152 bytes"), "{}", answer.detail());
}

/// Routes that programs ask which add what they like.
const TOLERANT: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

#[tokio::test]
async fn no_route_passes_over_in_silence_what_it_does_not_read() {
    let daemon = Daemon::start(None).await;
    let described = daemon.get("/openapi.json").await.json();
    let mut seen = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let target = path.replace("{name}", "blog").replace("{id}", "1");
        let is_tolerant = TOLERANT.contains(&path.as_str());
        for (method, told) in methods.as_object().unwrap() {
            let head = |target: &str| {
                let method = method.to_ascii_uppercase();
                let to = format!("{method} {target} HTTP/1.1\r\nHost: {}", daemon.addr);
                format!("{to}\r\nContent-Type: application/json")
            };
            let by_query = daemon.send(&head(&format!("{target}?nonsense=1")), b"").await;
            let by_body = daemon.send(&head(&target), b"{\"nonsense\": true}").await;
            if is_tolerant {
                assert_eq!((by_query.status, by_body.status), (200, 200), "{method} {path}");
                continue;
            }
            let found = (by_query.status, by_query.problem());
            assert_eq!(found, (400, "invalid-field".to_owned()), "{method} {path}");
            assert!(by_query.detail().contains("`nonsense`"), "{path}: {}", by_query.detail());
            // A form that is of no page is refused as such.
            let status = if path == "/order" { 403 } else { 400 };
            assert_eq!(by_body.status, status, "{method} {path}: {}", by_body.body);
            seen += 1;
            if told["requestBody"].is_null() {
                for nothing in ["", " { } "] {
                    let answer = daemon.send(&head(&target), nothing.as_bytes()).await;
                    let is_refused = answer.status == 400 && answer.detail().contains("body");
                    assert!(!is_refused, "{method} {path}: {}", answer.body);
                }
            }
        }
    }
    assert!(seen > 40, "{seen} routes");
}

#[tokio::test]
async fn what_was_said_in_the_wrong_place_has_no_effect() {
    let daemon = Daemon::start(None).await;
    for (target, body, named) in [
        ("/v1/queue/pause?crawl=news", json!({}), "stands in its body"),
        ("/v1/lease?max=1", json!({}), "`max`"),
        ("/v1/sites/blog/pause", json!({"paused": false}), "no body"),
        ("/v1/sites/blog/pause", json!({"paused": "x".repeat(100_000)}), "no body"),
    ] {
        let answer = daemon.post(target, &body).await;
        assert_eq!(answer.problem(), "invalid-field", "{target}: {}", answer.body);
        assert!(answer.detail().contains(named), "{target}: {}", answer.detail());
    }
    assert_eq!(daemon.get("/v1/sites/blog").await.json()["state"], "active");
    assert_eq!(daemon.get("/v1/queue").await.json()["queues"][0]["paused"], false);
    let source = daemon.get("/v1/sources").await.json()["sources"][0]["id"].as_i64().unwrap();
    let head = format!(
        "DELETE /v1/sources/{source} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json",
        daemon.addr
    );
    let answer = daemon.send(&head, b"{\"drop_urls\": true}").await;
    assert!(answer.detail().contains("stands in its query"), "{}", answer.detail());
    assert_eq!(daemon.get(&format!("/v1/sources/{source}")).await.json()["state"], "active");
}
