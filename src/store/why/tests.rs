//! Tests of what is said of a URL; what stores make of fetchers' reports is for
//! `tests/it/queue/why.rs`.

use std::time::Duration;

use super::super::ending::End;
use super::super::record::{Ended, Fetched, Rare, Record};
use super::*;
use crate::model::extension::Extensions;
use crate::model::{ChangeFreq, Lastmod, Precision, UrlId, UrlKind};

const DAY: Duration = Duration::from_secs(86_400);

/// What makes a URL, with how its last lease ended.
type Case<'a> = &'a dyn Fn() -> (UrlView, Past);

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().expect("a timestamp")
}

/// A page that is due in an hour to be fetched again, and was never leased.
fn page() -> UrlView {
    UrlView {
        id: UrlId(7),
        url: "https://example.org/a".to_owned(),
        raw: None,
        crawl: "default".to_owned(),
        other_crawls: Vec::new(),
        site: Some("example".to_owned()),
        host: "https://example.org".to_owned(),
        state: UrlState::Queued,
        listed: true,
        sources: Vec::new(),
        first_seen: now() - 30 * DAY,
        lastmod: None,
        previous_lastmod: None,
        changefreq: None,
        priority: None,
        reason: Reason::Recrawl,
        due_at: Some(now() + DAY / 24),
        attempt: 0,
        leased_until: None,
        worker: None,
        fetched_at: None,
        outcome: None,
        status: None,
        content_hash: None,
        hash_kind: None,
        error: None,
        canonical: None,
        noindex: false,
        fetches: 0,
        changes: 0,
        kind: UrlKind::Page,
        extensions: Extensions::default(),
        expires_at: None,
        fresh_until: None,
        why: String::new(),
        learned: None,
    }
}

/// The same, reported an hour ago as `outcome` with `status`; its lease ended as `how`.
fn reported(outcome: Outcome, status: u16, how: End) -> (UrlView, Past) {
    let at = now() - DAY / 24;
    let view = UrlView {
        fetched_at: Some(at),
        outcome: Some(outcome),
        status: Some(status),
        fetches: 1,
        ..page()
    };
    let record = Record {
        ended: Some(Ended::new([0; 16], how, at.as_millisecond())),
        fetched: Some(Fetched::first(at.as_millisecond(), outcome)),
        ..Record::default()
    };
    (view, Past { record, ..Past::default() })
}

fn said(view: &UrlView, past: &Past) -> (String, bool) {
    let Why { text, is_open } = why(view, past, now());
    let because = text.strip_prefix("due in 60 min: ").unwrap_or(&text);
    let because = because.strip_suffix("; priority 0.5").unwrap_or(because);
    (because.to_owned(), is_open)
}

#[test]
fn how_the_last_lease_ended_comes_before_the_interval() {
    let due_s = |view: &UrlView| view.due_at.expect("it is due").as_second();
    let cases: [(&str, Case<'_>); 12] = [
        ("its last fetch failed (HTTP 503): delivery 3 after 2 without success", &|| {
            let (view, past) = reported(Outcome::Failed, 503, End::Settled);
            (UrlView { attempt: 2, ..view }, past)
        }),
        ("its last lease ended without a report: delivery 2 after 1 without success", &|| {
            let (view, past) = reported(Outcome::Changed, 200, End::Expired);
            (UrlView { attempt: 1, ..view }, past)
        }),
        (
            "someone asked for it; its last fetch failed (HTTP 500): delivery 2 after 1 without success",
            &|| {
                let (view, past) = reported(Outcome::Failed, 500, End::Settled);
                (UrlView { attempt: 1, reason: Reason::Submitted, ..view }, past)
            },
        ),
        ("its last fetch failed; the page asked to be left alone for a while (429)", &|| {
            let (view, mut past) = reported(Outcome::Failed, 429, End::Settled);
            past.record.not_before_s = Some(due_s(&view));
            (UrlView { reason: Reason::New, ..view }, past)
        }),
        ("it was given up, and is tried again", &|| reported(Outcome::Failed, 500, End::Settled)),
        ("it was given up, and is tried again", &|| {
            let (view, past) = reported(Outcome::Changed, 200, End::Expired);
            (UrlView { reason: Reason::New, ..view }, past)
        }),
        ("it was reported gone once, and is looked at again within a day", &|| {
            let (view, mut past) = reported(Outcome::Gone, 404, End::Settled);
            past.record.gone = 1;
            (UrlView { changefreq: Some(ChangeFreq::Daily), ..view }, past)
        }),
        ("the last fetcher was not let in, so it is left alone for a day", &|| {
            let (view, past) = reported(Outcome::Blocked, 403, End::Settled);
            let due_at = view.fetched_at.map(|at| at + DAY);
            (UrlView { due_at, ..view }, past)
        }),
        ("its last fetcher asked for it no sooner", &|| {
            let (view, mut past) = reported(Outcome::Unchanged, 200, End::Settled);
            past.record.not_before_s = Some(due_s(&view));
            (view, past)
        }),
        ("a fetcher gave it back until then", &|| {
            let (view, mut past) = reported(Outcome::Unchanged, 200, End::Released);
            past.record.not_before_s = Some(due_s(&view));
            (view, past)
        }),
        ("it redirected to a listed URL, and is asked whether it still does", &|| {
            let (view, mut past) = reported(Outcome::Redirected, 301, End::Settled);
            let rare = Rare { folded_into: Some(UrlId(8)), ..Rare::default() };
            if let Some(fetched) = &mut past.record.fetched {
                fetched.set_rare(rare);
            }
            (view, past)
        }),
        ("its lastmod is the day of the last fetch, and that day may bring more", &|| {
            let (view, past) = reported(Outcome::Changed, 200, End::Settled);
            let day_end = view.due_at;
            (view, Past { day_end, ..past })
        }),
    ];
    for (expected, of) in cases {
        let (view, past) = of();
        let (text, is_open) = said(&view, &past);
        let text = text.strip_prefix("due in 23 h: ").unwrap_or(&text);
        assert_eq!((text, is_open), (expected, false));
    }
}

#[test]
fn only_what_was_never_fetched_is_said_not_to_have_been() {
    let new = |view| UrlView { reason: Reason::New, ..view };
    let never = said(&new(page()), &Past::default());
    assert_eq!(never, ("it is new and has not been fetched yet".to_owned(), false));
    let (_, mut past) = reported(Outcome::Unchanged, 200, End::Released);
    past.record.fetched = None;
    let (given_back, _) = said(&new(page()), &past);
    assert_eq!(given_back, "it has not been fetched yet; the last fetcher gave it back");
    let (view, mut past) = reported(Outcome::Unchanged, 200, End::Settled);
    let view = new(view);
    assert_eq!(said(&view, &past).0, "it is listed anew, after no source had it");
    past.record.ended = None;
    let told = "no fetcher has had it yet, though a crawl log tells of it";
    assert_eq!(said(&view, &past).0, told);
}

#[test]
fn what_is_put_off_says_what_for_and_until_whom() {
    let (view, mut past) = reported(Outcome::Unchanged, 200, End::Settled);
    past.record.not_before_s = view.due_at.map(Timestamp::as_second);
    let date = |text: &str| {
        Some(Lastmod { at: text.parse().expect("a timestamp"), precision: Precision::Day })
    };
    let view = UrlView {
        reason: Reason::Changed,
        previous_lastmod: date("2026-11-01T00:00:00Z"),
        lastmod: date("2026-11-30T00:00:00Z"),
        ..view
    };
    let moved = "its lastmod moved from 2026-11-01 to 2026-11-30";
    let told = format!("{moved}; its last fetcher asked for it no sooner");
    assert_eq!(said(&view, &past), (told, false));
    // That time is over: what moved decides, and what was learned may say more.
    past.record.not_before_s = past.record.not_before_s.map(|floor| floor - 1);
    assert_eq!(said(&view, &past), (moved.to_owned(), true));
}

#[test]
fn an_interval_is_told_where_nothing_else_decides_and_leaves_room_for_numbers() {
    let fresh = Some(now() + DAY);
    let cases = [
        (UrlView { listed: false, ..page() }, "no source lists it, so the longest interval holds"),
        (
            UrlView { changefreq: Some(ChangeFreq::Daily), ..page() },
            "its changefreq is daily, counted from the last fetch",
        ),
        (page(), "it has no changefreq, so the interval for such URLs holds"),
        (
            UrlView { fresh_until: fresh, ..page() },
            "it is news of the last two days, looked at hourly; priority 0.5; fresh news, before \
             other URLs of its host",
        ),
    ];
    for (view, expected) in cases {
        assert_eq!(said(&view, &Past::default()), (expected.to_owned(), true));
    }
}

#[test]
fn what_is_overdue_is_due_for_so_long() {
    let view = UrlView { due_at: Some(now() - DAY / 480), ..page() };
    let text = why(&view, &Past::default(), now()).text;
    assert!(text.starts_with("due for 3 min: "), "{text}");
}

#[test]
fn a_redirect_is_told_of_only_where_it_parks() {
    let (view, past) = reported(Outcome::Redirected, 301, End::Settled);
    let view = UrlView { state: UrlState::Parked, listed: false, ..view };
    let text = why(&view, &past, now()).text;
    assert!(text.contains("the site's rules do not want it"), "{text}");
}
