//! Tests of the lease API's bodies: defaults, limits, and what a mistake is told.

use serde_json::{Value, from_value, json, to_value};

use super::*;
use crate::serve::problem::Kind;

const DEFAULTS: LeaseDefaults = LeaseDefaults { ttl: Duration::from_secs(300), per_host: 10 };

fn token() -> Token {
    Token { url: UrlId(7), secret: [0xa5; 16] }
}

fn lease(body: Value) -> Result<(LeaseRequest, Duration), Problem> {
    let read = from_value::<LeaseBody>(body).expect("the shape is right").check(DEFAULTS);
    read.map(|(request, wait, _)| (request, wait))
}

fn settle(results: &Value) -> Result<(Tokens, Vec<Settlement>), Problem> {
    from_value::<SettleBody>(json!({ "results": results })).expect("the shape is right").check()
}

#[test]
fn an_empty_lease_takes_the_documented_defaults() {
    let (request, wait) = lease(json!({})).expect("defaults");
    assert_eq!(wait, Duration::ZERO);
    assert_eq!(request.max, 100);
    assert_eq!(request.ttl, DEFAULTS.ttl);
    assert_eq!(request.per_host, 10);
    assert_eq!(request.crawl, "default");
    assert!(request.sites.is_empty());
    assert_eq!((request.worker, request.request_id), (None, None));
}

#[test]
fn every_field_of_a_lease_is_taken_over() {
    let (request, wait) = lease(json!({
        "max": 5, "ttl": "1h 30m", "wait": "20s", "per_host": 2, "crawl": "news",
        "sites": ["a", "b"], "worker": "w1", "include": [], "request_id": "r-1",
    }))
    .expect("a whole request");
    assert_eq!(wait, Duration::from_secs(20));
    assert_eq!((request.max, request.per_host), (5, 2));
    assert_eq!(request.ttl, Duration::from_secs(5_400));
    assert_eq!(request.crawl, "news");
    assert_eq!(request.sites, ["a", "b"]);
    assert_eq!(request.worker.as_deref(), Some("w1"));
    assert_eq!(request.request_id.as_deref(), Some("r-1"));
}

#[test]
fn what_is_over_a_limit_of_a_lease_is_told_the_limit() {
    let long = "x".repeat(201);
    for (body, named) in [
        (json!({"max": 1_001}), "1,000 URLs"),
        (json!({"max": u64::MAX}), "1,000 URLs"),
        (json!({"wait": "61s"}), "1m at most"),
        (json!({"ttl": "13h"}), "12h at most"),
        (json!({"worker": long}), "200 characters"),
        (json!({"sites": vec!["a"; 101]}), "at most 100"),
    ] {
        let problem = lease(body.clone()).expect_err("over a limit");
        assert_eq!(problem.kind(), Kind::LimitExceeded, "{body}");
        assert!(problem.detail().contains(named), "{body}: {}", problem.detail());
    }
}

#[test]
fn a_lease_of_nothing_is_refused() {
    for body in [
        json!({"max": 0}),
        json!({"per_host": 0}),
        json!({"ttl": "0s"}),
        json!({"crawl": ""}),
        json!({"request_id": ""}),
        json!({"sites": [""]}),
    ] {
        let problem = lease(body.clone()).expect_err("nothing");
        assert_eq!(problem.kind(), Kind::InvalidField, "{body}");
    }
}

#[test]
fn an_unknown_word_of_include_is_refused_with_the_known_ones() {
    assert!(lease(json!({"include": ["images", "videos", "news", "alternates"]})).is_ok());
    for word in ["image", "", "Images", "*"] {
        let problem = lease(json!({"include": ["images", word]})).expect_err("unknown");
        assert_eq!(problem.kind(), Kind::InvalidField);
        assert!(problem.detail().contains("\"alternates\""), "{}", problem.detail());
    }
}

#[test]
fn an_unknown_field_is_refused_with_the_known_ones() {
    let error = from_value::<LeaseBody>(json!({"maximum": 5})).expect_err("unknown").to_string();
    assert!(error.contains("`maximum`") && error.contains("`per_host`"), "{error}");
    let error = from_value::<SettleBody>(json!({"results": [{"token": "x", "state": 1}]}))
        .expect_err("unknown")
        .to_string();
    assert!(error.contains("`state`") && error.contains("`outcome`"), "{error}");
}

#[test]
fn a_leased_url_has_the_fields_of_the_contract() {
    let at = |text: &str| text.parse().expect("a timestamp");
    let batch = LeaseBatch {
        is_again: false,
        is_cut: false,
        met_held: false,
        urls: vec![Leased {
            token: token(),
            id: UrlId(7),
            kind: UrlKind::Page,
            url: "https://example.org/".to_owned(),
            site: None,
            source: Some("https://example.org/sitemap.xml".into()),
            host: "https://example.org:443".into(),
            crawl: "default".into(),
            reason: Reason::New,
            priority: Priority::from_f64(0.8).expect("a priority"),
            value: 3.1,
            changefreq: Some(ChangeFreq::Daily),
            lastmod: None,
            previous_lastmod: None,
            content_hash: None,
            due_at: at("2026-11-21T08:30:00Z"),
            not_before: at("2026-11-21T08:30:01Z"),
            attempt: 1,
            expires_at: at("2026-11-21T08:35:00.5Z"),
            expires_in: Duration::from_secs(300),
            content_signal: Some("ai-train=no".into()),
            content_usage: Some("train-ai=n".into()),
            license: None,
        }],
        next_due_at: None,
    };
    let answer = LeaseAnswer::of(batch, |at| at);
    let expected = json!({
        "urls": [{
            "token": token().to_string(), "id": 7, "kind": "page", "url": "https://example.org/", "site": null,
            "source": "https://example.org/sitemap.xml", "host": "https://example.org:443",
            "crawl": "default", "reason": "new", "priority": 0.8, "value": 3.1,
            "changefreq": "daily", "lastmod": null, "previous_lastmod": null,
            "content_hash": null, "due_at": "2026-11-21T08:30:00.000Z",
            "not_before": "2026-11-21T08:30:01.000Z", "attempt": 1,
            "expires_at": "2026-11-21T08:35:00.500Z", "expires_in": 300.0,
            "robots": {"content_signal": "ai-train=no", "content_usage": "train-ai=n", "license": null},
        }],
        "next_due_at": null,
    });
    assert_eq!(to_value(answer).expect("json"), expected);
}

#[test]
fn an_outcome_may_be_left_out_only_where_a_hash_tells() {
    let known = token().to_string();
    let (_, settlements) =
        settle(&json!([{"token": known, "content_hash": "abc"}])).expect("a hash tells");
    assert_eq!(settlements[0].outcome, None);
    let problem = settle(&json!([
        {"token": known, "outcome": "gone"},
        {"token": known, "status": 200},
    ]))
    .expect_err("no outcome");
    assert!(problem.detail().contains("results[1].outcome"), "{}", problem.detail());
}

#[test]
fn what_is_no_token_is_answered_unknown_in_its_place() {
    let known = token().to_string();
    let (tokens, settlements) = settle(&json!([
        {"token": "nonsense", "outcome": "changed"},
        {"token": known, "outcome": "changed"},
        {"token": "", "outcome": "changed"},
    ]))
    .expect("all fields are right");
    assert_eq!(settlements.len(), 1);
    let answer = to_value(tokens.answer(vec![TokenResult::Ok])).expect("json");
    let expected = json!({"results": [
        {"token": "nonsense", "result": "unknown"},
        {"token": known, "result": "ok"},
        {"token": "", "result": "unknown"},
    ]});
    assert_eq!(answer, expected);
}

#[test]
fn a_value_that_cannot_be_is_refused_with_its_place() {
    for (item, named) in [
        (json!({"status": 99}), "results[0].status"),
        (json!({"status": 1000}), "results[0].status"),
        (json!({"significance": 1.5}), "results[0].significance"),
        (json!({"hash_kind": ""}), "results[0].hash_kind"),
        (json!({"content_hash": "a".repeat(129)}), "results[0].content_hash"),
    ] {
        let mut item = item;
        item["token"] = json!(token().to_string());
        item["outcome"] = json!("changed");
        let problem = settle(&json!([item])).expect_err("refused");
        assert!(problem.detail().contains(named), "{}", problem.detail());
    }
}

#[test]
fn what_the_web_said_never_refuses_a_batch() {
    let (_, settlements) = settle(&json!([{
        "token": token().to_string(), "outcome": "failed",
        "canonical": "javascript:alert(1)", "final_url": "https://example.org/b",
        "retry_after": "3650d", "error": "x".repeat(5_000),
    }, {
        "token": token().to_string(), "outcome": "failed", "status": 999,
        "retry_after": "99999999999999999999999s",
    }]))
    .expect("kept");
    assert_eq!(settlements[1].status, Some(999));
    assert_eq!(settlements[1].retry_after, Some(MAX_RETRY_AFTER));
    let settlement = &settlements[0];
    assert_eq!(settlement.canonical, None);
    assert_eq!(settlement.final_url.as_deref(), Some("https://example.org/b"));
    assert_eq!(settlement.retry_after, Some(MAX_RETRY_AFTER));
    assert_eq!(settlement.error.as_ref().map(String::len), Some(MAX_ERROR_CHARS));
}

#[test]
fn extend_and_release_have_defaults_and_limits_of_their_own() {
    let known = token().to_string();
    let extend = |body: Value| from_value::<ExtendBody>(body).expect("shape").check(DEFAULTS);
    let (_, tokens, ttl) = extend(json!({"tokens": [known, "x"]})).expect("defaults");
    assert_eq!((tokens.len(), ttl), (1, DEFAULTS.ttl));
    assert!(extend(json!({"tokens": [], "ttl": "13h"})).is_err());

    let release = |body: Value| from_value::<ReleaseBody>(body).expect("shape").check();
    let (_, tokens, after) = release(json!({"tokens": [known]})).expect("defaults");
    assert_eq!((tokens.len(), after), (1, Duration::ZERO));
    assert!(release(json!({"tokens": [], "after": "31d"})).is_err());
}
