//! Tests of the spellings: what is written is what is read.

use serde_json::{from_str, json, to_value};

use super::*;

fn time(text: &str) -> Time {
    Time(text.parse().expect("a timestamp"))
}

#[test]
fn a_time_always_has_three_digits_of_milliseconds_and_utc() {
    for (given, written) in [
        ("2026-11-21T08:30:00Z", "2026-11-21T08:30:00.000Z"),
        ("2026-11-21T08:30:00.5Z", "2026-11-21T08:30:00.500Z"),
        ("2026-11-21T08:30:00.1239Z", "2026-11-21T08:30:00.123Z"),
        ("2026-11-21T10:30:00+02:00", "2026-11-21T08:30:00.000Z"),
    ] {
        assert_eq!(to_value(time(given)).expect("json"), json!(written));
    }
}

#[test]
fn the_end_of_time_is_one_whoever_writes_it() {
    for given in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999999-12:00"] {
        let read: Time = from_str(&json!(given).to_string()).expect("a time");
        assert_eq!(to_value(read).expect("json"), json!("9999-12-30T22:00:00.999Z"));
    }
    assert!(from_str::<Time>("\"9999-13-01T00:00:00Z\"").is_err());
    assert!(from_str::<Time>("\"10000-01-01T00:00:00Z\"").is_err());
}

#[test]
fn a_time_without_an_offset_is_refused_with_an_example() {
    let error = from_str::<Time>("\"2026-11-21T08:30:00\"").expect_err("no offset").to_string();
    assert!(error.contains("2026-11-21T08:30:00.000Z"), "{error}");
}

#[test]
fn durations_are_read_and_written_in_one_grammar() {
    for (given, seconds, written) in [
        ("5m", 300.0, "5m"),
        ("1h 30m", 5_400.0, "1h 30m"),
        ("90 minutes", 5_400.0, "1h 30m"),
        ("500ms", 0.5, "500ms"),
        ("2d", 172_800.0, "2d"),
        ("1w", 604_800.0, "7d"),
        ("0s", 0.0, "0s"),
    ] {
        let span: Span = from_str(&format!("{given:?}")).expect(given);
        assert!((span.0.as_secs_f64() - seconds).abs() < 1e-9, "{given}");
        assert_eq!(span.to_string(), written, "{given}");
    }
}

#[test]
fn a_duration_that_is_none_is_refused_with_a_reason() {
    for (given, reason) in [
        ("300", "such as \"1h 30m\""),
        ("\"300\"", "write \"300s\""),
        ("\"-5m\"", "negative"),
        ("\"1mo\"", "write days"),
        ("\"soon\"", "1h 30m"),
        ("\"\"", "empty"),
    ] {
        let error = from_str::<Span>(given).expect_err(given).to_string();
        assert!(error.contains(reason), "{given}: {error}");
    }
    let long = format!("\"{}\"", "1s ".repeat(1_000));
    assert!(from_str::<Span>(&long).is_err());
}

#[test]
fn a_list_over_its_cap_is_refused_by_a_sentence_that_names_the_cap() {
    let list: Capped<u8, 3> = from_str("[1,2,3]").expect("three");
    assert_eq!(list.take("tokens"), Ok(vec![1, 2, 3]));
    let list: Capped<u8, 3> = from_str("[1,2,3,\"4\",{}]").expect("the rest is not read");
    assert_eq!(list.items.len(), 3);
    let problem = list.take("tokens").expect_err("five");
    assert_eq!(problem.detail(), "tokens has 5 elements; at most 3 are taken in one call.");
}

#[test]
fn a_cursor_comes_back_as_it_was_given_and_nothing_else_is_one() {
    for row in [0, 1, 255, i64::MAX] {
        let written = to_value(Cursor(row)).expect("json").to_string();
        assert_eq!(from_str::<Cursor>(&written).expect("a cursor"), Cursor(row));
    }
    for text in ["", "r", "r-1", "1", "rx", "r80000000000000000"] {
        assert!(from_str::<Cursor>(&format!("{text:?}")).is_err(), "{text}");
    }
}

#[test]
fn a_limit_is_between_one_and_a_thousand() {
    assert_eq!(list_limit(None), Ok(DEFAULT_LIMIT));
    assert_eq!(list_limit(Some(1_000)), Ok(1_000));
    for limit in [0, 1_001, u64::MAX] {
        assert!(list_limit(Some(limit)).is_err(), "{limit}");
    }
    let over = |told: Result<u32, Problem>| told.expect_err("over").detail().to_owned();
    let told = over(list_limit(Some(1_001)));
    assert!(told.contains("1,000") && told.contains("`next`"), "{told}");
    // What has no further part names none.
    let told = over(peek_limit(Some(1_001)));
    assert!(told.contains("1,000") && !told.contains("next`"), "{told}");
}

#[test]
fn only_absolute_web_urls_of_bounded_length_are_taken() {
    assert!(web_url("url", "https://example.org/a?b=1").is_ok());
    let long = format!("https://example.org/{}", "a".repeat(MAX_URL_CHARS));
    for text in ["/a", "javascript:alert(1)", "ftp://example.org/", "", long.as_str()] {
        assert!(web_url("url", text).is_err(), "{text}");
    }
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(grouped(number), text);
    }
}
