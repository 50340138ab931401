//! Who may ask: the token, the `Host`, the `Origin`; and the client that asks.

use super::*;

#[tokio::test]
async fn with_a_token_everything_but_health_needs_it() {
    let daemon = Daemon::start(Some("s3cret")).await;
    for target in ["/", "/metrics", "/v1/queue", "/v1/nothing", "/status.css"] {
        let answer = daemon.get(target).await;
        assert_eq!((answer.status, answer.problem()), (401, "unauthorized".to_owned()), "{target}");
        assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("bearer")));
    }
    for target in ["/healthz", "/readyz"] {
        assert_ne!(daemon.get(target).await.status, 401, "{target}");
    }
    for (token, status) in [("s3cret", 200), ("s3cre", 401), ("S3CRET", 401), ("", 401)] {
        let head = format!(
            "GET /v1/queue HTTP/1.1\r\nHost: behind.a.proxy\r\nAuthorization: Bearer {token}"
        );
        assert_eq!(daemon.send(&head, b"").await.status, status, "{token:?}");
    }
}

#[tokio::test]
async fn without_a_token_a_rebound_name_gets_nothing() {
    let daemon = Daemon::start(None).await;
    let port = daemon.addr.port();
    for (host, status) in [
        (format!("127.0.0.1:{port}"), 200),
        (format!("localhost:{port}"), 200),
        (format!("[::1]:{port}"), 200),
        (format!("evil.example:{port}"), 421),
        ("10.0.0.1".to_owned(), 421),
    ] {
        let answer = daemon.send(&format!("GET /v1/queue HTTP/1.1\r\nHost: {host}"), b"").await;
        assert_eq!(answer.status, status, "{host}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let daemon = Daemon::start(None).await;
    let own = format!("http://{}", daemon.addr);
    for (origin, status) in [(own.as_str(), 200), ("https://evil.example", 403), ("null", 403)] {
        let head = format!(
            "POST /v1/queue/pause HTTP/1.1\r\nHost: {}\r\nOrigin: {origin}\r\n\
             Content-Type: application/json",
            daemon.addr
        );
        let answer = daemon.send(&head, b"{\"paused\": false}").await;
        assert_eq!(answer.status, status, "{origin}: {}", answer.body);
    }
}

#[tokio::test]
async fn the_client_of_the_command_line_reads_answers_and_refusals() {
    let daemon = Daemon::start(Some("s3cret")).await;
    let base = format!("http://{}", daemon.addr);
    let client = ApiClient::new(&base, Some("s3cret\n")).unwrap();
    let status: Value = client.get("/v1/status", &[]).await.unwrap();
    assert_eq!(status["sites"], 1);
    let error = client.get::<Value>("/v1/sites/nobody", &[]).await.unwrap_err();
    assert!(matches!(error, ApiError::Refused { status: 404, .. }), "{error}");

    let stranger = ApiClient::new(&base, None).unwrap();
    let error = stranger.get::<Value>("/v1/status", &[]).await.unwrap_err();
    assert!(error.to_string().contains("listen.token_file"), "{error}");

    daemon.end().await.unwrap();
    let error = client.get::<Value>("/v1/status", &[]).await.unwrap_err();
    assert!(error.to_string().contains("is `sitemapd run` running?"), "{error}");
}
