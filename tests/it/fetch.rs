//! Fetching from an origin that misbehaves: reliability checklist, A and B.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::Duration;

use sitemapd::config::{self, AllowedAddress};
use sitemapd::fetch::{
    Answer, FetchError, Fetched, Fetcher, Gate, Refusal, Request, Surroundings, Validators,
};
use url::Url;

use crate::support::{Hold, Origin, Reply};

mod hostile;
mod known;
mod redirects;
mod ssrf;

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

/// What a fetcher that gives up soon has for a request; an origin of ours takes less also
/// where it is made to wait for a processor.
const SOON: Duration = Duration::from_secs(3);

/// Gives up soon, for origins that never answer.
fn hasty(allow: &[u16]) -> Fetcher {
    let (mut fetch, daemon) = config(allow);
    fetch.total_timeout = SOON;
    Fetcher::new(&fetch, &daemon, 4).unwrap()
}

/// Has no folder for large bodies.
fn without_files(allow: &[u16]) -> Fetcher {
    let (fetch, daemon) = config(allow);
    let nowhere = tempfile::tempdir().unwrap().path().join("nothing-here");
    let surroundings = Surroundings { spool: nowhere, ..Surroundings::default() };
    Fetcher::with_surroundings(&fetch, &daemon, 4, surroundings).unwrap()
}

fn request(url: Url) -> Request {
    Request {
        url,
        validators: Validators::default(),
        headers: Vec::new(),
        known: None,
        max_wire_bytes: 1 << 20,
        max_redirects: 5,
    }
}

fn document(answer: Answer) -> Fetched {
    let Answer::Document(got) = answer else { panic!("no document but {answer:?}") };
    got
}

/// Every error is fit to be shown: short, printable, without secrets.
fn shown(error: &FetchError) -> String {
    let text = error.to_string();
    assert!(text.len() <= 500, "{} bytes: {text}", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(!text.contains("hunter2"), "{text}");
    text
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
    let got = document(get(&fetcher(&[origin.port()]), origin.url("/a")).await.unwrap());
    assert_eq!(&got.body.in_memory().unwrap()[..], b"<urlset/>");
    assert!(!got.cut);
    assert_eq!(got.head.wire_bytes, 9);
    assert_eq!(got.head.status, 200);
    assert_eq!(got.head.validators.etag.as_deref(), Some("W/\"1\""));
    assert_eq!(got.head.max_age, Some(Duration::from_secs(60)));
    assert_eq!(got.head.links, ["<https://hub.example/>; rel=hub"]);
    assert_eq!(got.head.content_type.as_deref(), Some("application/xml"));

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

#[tokio::test]
async fn validators_are_sent_as_they_came_and_a_304_is_believed_only_then() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    origin.set("/a", Reply::xml("<a/>").etag("W/\"x\"").last_modified(date));
    let validators = document(get(&fetcher, origin.url("/a")).await.unwrap()).head.validators;

    let again = Request { validators: validators.clone(), ..request(origin.url("/a")) };
    let answer = fetcher.fetch(again, &Open).await.unwrap();
    let Answer::NotModified(head) = answer else { panic!("{answer:?}") };
    assert_eq!(head.validators, validators);
    let seen = &origin.requests("/a")[1];
    assert_eq!(seen.header("if-none-match"), Some("W/\"x\""));
    assert_eq!(seen.header("if-modified-since"), Some(date));

    origin.set("/b", Reply::status(304));
    let error = get(&fetcher, origin.url("/b")).await.unwrap_err();
    assert!(matches!(error, FetchError::Protocol(_)), "{error}");
}

#[tokio::test]
async fn a_refusal_carries_its_status_and_how_long_to_stay_away() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    for status in [400, 401, 403, 404, 410, 429, 451, 500, 503] {
        origin.set("/a", Reply::status(status).header("Retry-After", "120"));
        let answer = get(&fetcher, origin.url("/a")).await.unwrap();
        let Answer::Refused(head) = answer else { panic!("{answer:?}") };
        assert_eq!(head.status, status);
        assert_eq!(head.retry_after, Some(Duration::from_secs(120)));
        assert!(head.wire_bytes > 0);
    }
    assert_eq!(origin.connections(), 1, "small refusals do not cost a connection");
}

#[tokio::test]
async fn the_headers_of_a_site_are_sent_and_ours_are_not_overridden() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/a", Reply::xml("<a/>"));
    let with = |name: &str, value: &str| Request {
        headers: vec![(name.to_owned(), value.to_owned())],
        ..request(origin.url("/a"))
    };
    fetcher.fetch(with("Authorization", "Bearer hunter2"), &Open).await.unwrap();
    assert_eq!(origin.requests("/a")[0].header("authorization"), Some("Bearer hunter2"));
    for (name, value) in [("Host", "b.example"), ("Range", "bytes=0-"), ("X", "hunter2\r\nY: z")] {
        let error = fetcher.fetch(with(name, value), &Open).await.unwrap_err();
        assert!(matches!(error, FetchError::Blocked(_)), "{error}");
        shown(&error);
    }
    assert_eq!(origin.requests("/a").len(), 1);
}

#[tokio::test]
async fn the_next_request_to_a_host_uses_the_same_connection() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    for path in ["/a", "/b", "/c"] {
        origin.set(path, Reply::xml("<a/>").gzip());
        document(get(&fetcher, origin.url(path)).await.unwrap());
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn waiting_for_the_gate_does_not_count_as_time_of_the_origin() {
    struct Late(Hold);
    impl Gate for Late {
        async fn admit(&self, _: &Url) -> Result<(), Refusal> {
            self.0.pass().await;
            Ok(())
        }
    }
    let origin = Origin::start().await;
    let fetcher = hasty(&[origin.port()]);
    let (gate, never) = (Hold::new(), Hold::new());
    origin.set("/a", Reply::xml("<a/>"));
    origin.set("/hangs", Reply::text("").hang(&never));
    let late = Late(gate.clone());
    let (waited, ()) = tokio::join!(fetcher.fetch(request(origin.url("/a")), &late), async {
        gate.arrived(1).await;
        // Runs into the total limit: so long the other one has waited at least.
        let error = get(&fetcher, origin.url("/hangs")).await.unwrap_err();
        assert!(matches!(error, FetchError::Timeout(_)), "{error}");
        gate.release_all();
    });
    document(waited.unwrap());
}

#[tokio::test]
async fn the_time_that_all_hops_took_is_told_and_counted() {
    let origin = Origin::start().await;
    let (slow, never) = (Hold::new(), Hold::new());
    origin.set("/a", Reply::redirect(302, "/b").hang(&slow));
    origin.set("/b", Reply::xml("<a/>"));
    origin.set("/hangs", Reply::text("").hang(&never));
    let patient = fetcher(&[origin.port()]);
    let (got, ()) = tokio::join!(get(&patient, origin.url("/a")), async {
        slow.arrived(1).await;
        // Takes so long at least.
        get(&hasty(&[origin.port()]), origin.url("/hangs")).await.unwrap_err();
        slow.release_all();
    });
    assert!(document(got.unwrap()).head.took >= SOON);
}

#[test]
fn a_fetcher_that_cannot_work_as_configured_is_refused() {
    let (fetch, daemon) = config(&[]);
    let refused = |fetch: &config::Fetch, daemon: &config::Daemon| {
        Fetcher::new(fetch, daemon, 1).unwrap_err().to_string()
    };
    let bad_agent = config::Daemon { user_agent: "a\nb".into(), ..daemon.clone() };
    assert!(refused(&fetch, &bad_agent).contains("daemon.user_agent"));
    let bad_contact = config::Daemon { contact: Some("a\0".into()), ..daemon.clone() };
    assert!(refused(&fetch, &bad_contact).contains("daemon.contact"));
    let socks = Url::parse("socks5://127.0.0.1:1080").unwrap();
    let bad_proxy = config::Fetch { proxy: Some(socks), ..fetch.clone() };
    assert!(refused(&bad_proxy, &daemon).contains("fetch.proxy"));
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("none.pem", None), ("empty.pem", Some("no certificate here"))] {
        let path = folder.path().join(name);
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let bad_ca = config::Fetch { ca_file: Some(path), ..fetch.clone() };
        assert!(refused(&bad_ca, &daemon).contains(name));
    }
}
