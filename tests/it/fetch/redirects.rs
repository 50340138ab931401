//! Redirects: followed by hand, each hop through the gate, and never for ever.

use std::sync::Mutex;

use sitemapd::fetch::{Answer, FetchError, Gate, Refusal, Request, Validators};
use url::Url;

use super::{Open, document, fetcher, get, request, shown};
use crate::support::{Origin, Reply};

/// Remembers what it was asked, and refuses a path.
struct Recorder {
    asked: Mutex<Vec<String>>,
    refuse: &'static str,
}

impl Gate for Recorder {
    async fn admit(&self, url: &Url) -> Result<(), Refusal> {
        self.asked.lock().unwrap().push(url.path().to_owned());
        if url.path() == self.refuse {
            return Err(Refusal::Robots { authority: url.authority().to_owned() });
        }
        Ok(())
    }
}

#[tokio::test]
async fn every_kind_of_redirect_is_followed_to_the_document() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/dir/to", Reply::xml("<a/>").etag("\"target\""));
    let schemeless = format!("//{}/dir/to", origin.addr());
    let absolute = format!("{}/dir/to#fragment", origin.base());
    for location in ["/dir/to", "to", "./to", "../dir/to", &schemeless, &absolute] {
        for status in [301, 302, 303, 307, 308] {
            origin.set("/dir/from", Reply::redirect(status, location));
            let got = document(get(&fetcher, origin.url("/dir/from")).await.unwrap());
            assert_eq!(&got.body.in_memory().unwrap()[..], b"<a/>", "{status} {location}");
            assert_eq!(got.head.final_url, origin.url("/dir/to"));
            assert_eq!(got.head.redirects, [(origin.url("/dir/from"), status)]);
            assert_eq!(
                got.head.validators,
                Validators::default(),
                "validators of another URL are not ours"
            );
        }
    }
}

#[tokio::test]
async fn a_chain_is_followed_up_to_the_limit_and_no_further() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.route(|seen| {
        let n: u32 = seen.path.strip_prefix("/hop/")?.parse().ok()?;
        Some(if n == 0 {
            Reply::xml("<a/>")
        } else {
            Reply::redirect(302, format!("/hop/{}", n - 1))
        })
    });
    let got = document(get(&fetcher, origin.url("/hop/5")).await.unwrap());
    assert_eq!(got.head.redirects.len(), 5);

    origin.clear_log();
    let error = get(&fetcher, origin.url("/hop/20")).await.unwrap_err();
    assert!(matches!(error, FetchError::Redirects(_)), "{error}");
    assert!(shown(&error).contains("more than 5 (max_redirects)"));
    assert_eq!(origin.all_requests().len(), 6);
}

#[tokio::test]
async fn a_loop_is_found_when_it_closes() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    // A WordPress behind a proxy that drops the port redirects each URL to itself.
    origin.set("/self", Reply::redirect(301, "/self"));
    origin.set("/a", Reply::redirect(302, "/b"));
    origin.set("/b", Reply::redirect(302, "/a#again"));
    for (path, requests) in [("/self", 1), ("/a", 2)] {
        origin.clear_log();
        let error = get(&fetcher, origin.url(path)).await.unwrap_err();
        assert!(matches!(error, FetchError::Redirects(_)), "{error}");
        assert!(shown(&error).contains("loop"));
        assert_eq!(origin.all_requests().len(), requests, "{path}");
    }
}

#[tokio::test]
async fn what_a_site_is_told_is_told_to_no_other_authority() {
    let home = Origin::start().await;
    let other = Origin::start().await;
    let fetcher = fetcher(&[home.port(), other.port()]);
    home.set("/a", Reply::redirect(302, "/b"));
    home.set("/b", Reply::redirect(302, format!("{}/c", other.base())));
    other.set("/c", Reply::redirect(302, format!("{}/d", home.base())));
    home.set("/d", Reply::xml("<a/>"));
    let validators = Validators {
        etag: Some("\"e\"".to_owned()),
        last_modified: Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
    };
    let headers = vec![("Authorization".to_owned(), "Bearer hunter2".to_owned())];
    let asked = Request { validators, headers, ..request(home.url("/a")) };
    document(fetcher.fetch(asked, &Open).await.unwrap());

    let conditions = |seen: &crate::support::Seen| {
        (seen.header("if-none-match").is_some(), seen.header("if-modified-since").is_some())
    };
    let a = &home.requests("/a")[0];
    let b = &home.requests("/b")[0];
    let c = &other.requests("/c")[0];
    let d = &home.requests("/d")[0];
    assert_eq!(conditions(a), (true, true));
    for seen in [b, c, d] {
        assert_eq!(conditions(seen), (false, false), "{}", seen.path);
        assert_eq!(seen.header("referer"), None);
    }
    assert!(a.header("authorization").is_some());
    assert!(b.header("authorization").is_some(), "the same authority");
    assert_eq!(c.header("authorization"), None);
    assert_eq!(d.header("authorization"), None, "another authority chose this URL");
}

#[tokio::test]
async fn a_304_behind_a_redirect_is_no_answer_to_our_validators() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/a", Reply::redirect(302, "/b"));
    origin.set("/b", Reply::status(304));
    let validators = Validators { etag: Some("\"e\"".to_owned()), last_modified: None };
    let asked = Request { validators, ..request(origin.url("/a")) };
    let error = fetcher.fetch(asked, &Open).await.unwrap_err();
    assert!(matches!(error, FetchError::Protocol(_)), "{error}");
}

#[tokio::test]
async fn the_gate_is_asked_before_every_hop_and_its_word_holds() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/a", Reply::redirect(301, "/b"));
    origin.set("/b", Reply::redirect(301, "/secret"));
    let gate = Recorder { asked: Mutex::default(), refuse: "/secret" };
    let error = fetcher.fetch(request(origin.url("/a")), &gate).await.unwrap_err();
    assert!(matches!(error, FetchError::Deferred(Refusal::Robots { .. })), "{error}");
    assert_eq!(*gate.asked.lock().unwrap(), ["/a", "/b", "/secret"]);
    assert!(origin.requests("/secret").is_empty());
}

#[tokio::test]
async fn only_a_little_of_the_body_of_a_redirect_is_read() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let mut fat = Reply::text("x".repeat(64 * 1024)).endless().header("Location", "/b");
    fat = fat.with_status(301);
    origin.set("/a", fat);
    origin.set("/b", Reply::xml("<a/>"));
    document(get(&fetcher, origin.url("/a")).await.unwrap());
    let (sockets, ours) = (8 << 20, 1 << 20);
    assert!(origin.requests("/a")[0].sent() < sockets + ours);
}

#[tokio::test]
async fn a_redirect_to_nowhere_is_a_protocol_error() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let long = format!("/{}", "x".repeat(20_000));
    for reply in [
        Reply::status(301),
        Reply::redirect(302, "http://"),
        Reply::redirect(302, "http://user:hunter2@[::1/"),
        Reply::redirect(302, &long),
    ] {
        origin.set("/a", reply);
        let error = get(&fetcher, origin.url("/a")).await.unwrap_err();
        assert!(matches!(error, FetchError::Protocol(_)), "{error}");
        shown(&error);
    }
    // 300 and 305 name choices and proxies, not a place to go.
    for status in [300, 305] {
        origin.set("/a", Reply::redirect(status, "/b"));
        let answer = get(&fetcher, origin.url("/a")).await.unwrap();
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    }
    assert!(origin.requests("/b").is_empty());
}
