//! Who may ask: the token, the `Host`, the `Origin`; and the client that asks.

use sitemapd::config::Env;

use super::*;
use crate::support::{Origin, Reply};

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
async fn no_answer_lets_a_browser_run_frame_or_share_anything() {
    let daemon = Daemon::start(None).await;
    for target in ["/", "/status.css", "/v1/queue", "/metrics", "/v1/nothing", "/openapi.json"] {
        let answer = daemon.get(target).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{target}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{target}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{target}");
        // Another origin is told nothing in both cases; forms need the second.
        let policy = if target == "/" { "same-origin" } else { "no-referrer" };
        assert_eq!(answer.header("referrer-policy"), Some(policy), "{target}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{target}");
        // Nobody is ever told that another origin may read this.
        assert_eq!(answer.header("access-control-allow-origin"), None, "{target}");
    }
}

#[tokio::test]
async fn text_from_outside_is_escaped_on_the_page_and_plain_json_in_the_api() {
    let origin = Origin::start().await;
    let script = "<script>alert(1)</script>";
    let hostile = format!(
        "<urlset><url><loc>{}/?{}</loc></url><url><loc>javascript:alert(1)</loc></url></urlset>",
        origin.base(),
        "a&amp;b=%3Cscript%3E"
    );
    origin.set("/sitemap.xml", Reply::xml(hostile));
    origin.set("/two.xml", Reply::html(format!("<html>{script}</html>")));
    let base = origin.base();
    let text = format!(
        "[fetch]\nallow = [\"127.0.0.1:{}\"]\n[[site]]\nname = \"a\"\nurl = \"{base}/\"\n\
         feeds = []\nsitemaps = [\"{base}/sitemap.xml\", \"{base}/two.xml?<b>\\\"'\"]\n",
        origin.port()
    );
    let daemon = Daemon::start_on(&text, None).await;
    super::fetchers::until(&daemon, "/v1/polls", |polls| {
        polls["polls"].to_string().contains("two.xml")
    })
    .await;
    let page = daemon.get("/").await;
    assert!(page.body.contains("two.xml"), "{}", page.body);
    for markup in ["<script", "<b>", "href=\"javascript:"] {
        assert!(!page.body.contains(markup), "{markup}: {}", page.body);
    }
    for target in ["/v1/polls", "/v1/sources", "/v1/urls"] {
        let answer = daemon.get(target).await;
        assert_eq!(answer.header("content-type"), Some("application/json"), "{target}");
    }
}

#[tokio::test]
async fn the_token_may_come_from_the_environment() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "[listen]\napi = \"127.0.0.1:0\"\n").unwrap();
    let mut config = Config::load(&file, &Env::from([("SITEMAPD_TOKEN", "s3cret")])).unwrap();
    crate::support::engine::place(&mut config, &dir.path().join("data"));
    let app = App::build(config, Clock::system()).await.unwrap();
    let addr = app.api_addr().to_string();
    let stop = CancellationToken::new();
    let (_reload, reloads) = mpsc::channel(1);
    let running = tokio::spawn(app.run(stop.clone(), reloads));
    for (token, is_let_in) in [(Some("s3cret"), true), (Some("other"), false), (None, false)] {
        let client = ApiClient::new(&addr, token).unwrap();
        let answer = client.get::<Value>("/v1/status", &[]).await;
        assert_eq!(answer.is_ok(), is_let_in, "{token:?}");
        let told = answer.err().map_or_else(String::new, |error| error.to_string());
        assert_eq!(told.contains("SITEMAPD_TOKEN"), !is_let_in, "{told}");
        assert!(!told.contains("token_file"), "there is none: {told}");
    }
    stop.cancel();
    running.await.unwrap().unwrap();
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
