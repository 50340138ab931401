//! Fetching from an origin that misbehaves: reliability checklist, A and B.

use std::time::Duration;

use sitemapd::config::{self, AllowedAddress};
use sitemapd::fetch::{Answer, FetchError, Fetcher, Gate, Refusal, Request, Validators};
use url::Url;

use crate::support::{Origin, Reply};

struct Open;

impl Gate for Open {
    async fn admit(&self, _: &Url) -> Result<(), Refusal> {
        Ok(())
    }
}

fn config(allow: &[u16]) -> (config::Fetch, config::Daemon) {
    let loopback =
        |&port: &u16| AllowedAddress { net: "127.0.0.1/32".parse().unwrap(), port: Some(port) };
    let fetch = config::Fetch {
        concurrency: 4,
        connect_timeout: Duration::from_secs(5),
        total_timeout: Duration::from_secs(20),
        limits: config::FetchLimits {
            max_wire_bytes: 1 << 20,
            max_body_bytes: 1 << 22,
            max_urls: 50_000,
            max_sitemaps: 50_000,
            max_url_chars: 2_048,
        },
        max_index_depth: 3,
        max_redirects: 5,
        proxy: None,
        ca_file: None,
        allow: allow.iter().map(loopback).collect(),
    };
    let daemon = config::Daemon {
        data_dir: "unused".into(),
        user_agent: "sitemapd-test/1.0 (+https://bot.example/)".into(),
        contact: Some("bot@bot.example".into()),
        timezone: jiff::tz::TimeZone::UTC,
    };
    (fetch, daemon)
}

fn fetcher(allow: &[u16]) -> Fetcher {
    let (fetch, daemon) = config(allow);
    Fetcher::new(&fetch, &daemon, 4).unwrap()
}

fn request(url: Url) -> Request {
    Request {
        url,
        validators: Validators::default(),
        headers: Vec::new(),
        max_wire_bytes: 1 << 20,
        max_redirects: 5,
    }
}

async fn get(fetcher: &Fetcher, url: Url) -> Result<Answer, FetchError> {
    fetcher.fetch(request(url), &Open).await
}

#[tokio::test]
async fn a_document_comes_with_its_headers_and_ours_are_sent() {
    let origin = Origin::start().await;
    origin.set(
        "/a",
        Reply::xml("<urlset/>")
            .etag("W/\"1\"")
            .header("Link", "<https://hub.example/>; rel=hub")
            .header("Cache-Control", "max-age=60"),
    );
    let answer = get(&fetcher(&[origin.port()]), origin.url("/a")).await.unwrap();
    let Answer::Document(fetched) = answer else { panic!("{answer:?}") };
    assert_eq!(&fetched.body[..], b"<urlset/>");
    assert!(!fetched.cut);
    assert_eq!(fetched.head.wire_bytes, 9);
    assert_eq!(fetched.head.status, 200);
    assert_eq!(fetched.head.validators.etag.as_deref(), Some("W/\"1\""));
    assert_eq!(fetched.head.max_age, Some(Duration::from_secs(60)));
    assert_eq!(fetched.head.links, ["<https://hub.example/>; rel=hub"]);
    assert_eq!(fetched.head.content_type.as_deref(), Some("application/xml"));

    let seen = &origin.requests("/a")[0];
    assert_eq!(seen.method, "GET");
    assert_eq!(seen.header("user-agent"), Some("sitemapd-test/1.0 (+https://bot.example/)"));
    assert_eq!(seen.header("from"), Some("bot@bot.example"));
    assert_eq!(seen.header("accept-encoding"), Some("gzip, br, zstd, deflate"));
    assert!(seen.header("accept").unwrap().starts_with("application/xml"));
    for name in ["referer", "range", "cookie", "if-none-match", "if-modified-since"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
}
