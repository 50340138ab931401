//! Where defects of a JSON Feed stand, whatever is around them.

use std::ops::ControlFlow;

use url::Url;

use crate::parse::{Context, Issue, IssueCode, Item, Limits, parse};

fn issues(document: &str, limits: Limits) -> Vec<Issue> {
    let base = Url::parse("https://example.com/feed.json").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits };
    parse(&mut document.as_bytes(), &ctx, &mut |_| ControlFlow::Continue(())).issues
}

#[test]
fn a_defect_is_at_the_line_and_byte_of_its_key_or_item() {
    let document = "{\n \"version\": \"https://jsonfeed.org/version/1.1\",\n \"title\": \"ü {}\",\n\
        \"items\": [\n  {\"url\": \"https://e.com/1\", \"date_published\": \"soon\"},\n\
        \r\n  {\"title\": \"no url\"},\n {\"id\": \"1\",\n \"url\":\n\"/rel\"},\n\
        {\"url\": \"ftp://e.com/x\"}, {\"url\": \"https://e.com/4\"}\n ] }";
    let found = issues(document, Limits { max_urls: 2, ..Limits::default() });
    let at = |needle: &str| {
        let offset = document.find(needle).expect("it is there");
        let line = document[..offset].matches('\n').count() + 1;
        (line as u64, offset as u64)
    };
    for (code, needle) in [
        ("invalid-date", "\"date_published\""),
        ("missing-tag", "{\"title\": \"no url\""),
        ("relative-url", "\"url\":\n"),
        ("invalid-url", "\"url\": \"ftp"),
        ("too-many-urls", "{\"url\": \"https://e.com/4"),
    ] {
        let issue = found.iter().find(|issue| issue.code.as_str() == code);
        let issue = issue.unwrap_or_else(|| panic!("{code}: {found:?}"));
        assert_eq!((issue.line, issue.offset), at(needle), "{code}");
    }
}

#[test]
fn a_document_that_breaks_off_says_where() {
    let document = "\u{feff}\n\n{\"version\": \"1\", \"items\": [{\"url\": \"https://e.com/1\"},\n";
    let found = issues(document, Limits::default());
    let issue = found.iter().find(|issue| issue.code.as_str() == "truncated").expect("the issue");
    assert_eq!((issue.line, issue.offset), (4, document.len() as u64 - 3));
    let broken = "{\"version\": \"1\",\n \"items\": [{\"url\": \"https://e.com/1\"} nonsense]}";
    let found = issues(broken, Limits::default());
    let issue = found.iter().find(|issue| issue.code.as_str() == "parsing-error").expect("it");
    assert_eq!(issue.line, 2);
    assert!(issue.offset > broken.find("} n").expect("it") as u64, "{issue:?}");
}

#[test]
fn what_shows_nothing_before_a_document_costs_it_nothing() {
    let base = Url::parse("https://example.com/feed.json").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let json = "{\"version\":\"1\",\n\"items\":[{\"url\":\"/1\"}]}";
    for lead in ["", "\u{feff}", "\u{feff}\u{feff}", "\u{a0}", "\u{0}\n\u{2066}", " \u{200b}\n"] {
        let document = format!("{lead}{json}");
        let mut entries = 0;
        let report = parse(&mut document.as_bytes(), &ctx, &mut |_| {
            entries += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((entries, report.complete), (1, true), "{lead:?}");
        let line = 2 + lead.matches('\n').count() as u64;
        // The first byte order mark is none of the text.
        let mark = if lead.starts_with('\u{feff}') { 3 } else { 0 };
        let at = document.find("\"url\"").expect("it is there") - mark;
        let issue = &report.issues[0];
        assert_eq!((issue.line, issue.offset), (line, at as u64), "{lead:?}");
    }
}

#[test]
fn a_text_that_was_cut_in_a_pair_costs_no_item() {
    let base = Url::parse("https://example.com/feed.json").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let item = |n: u32, more: &str| format!("{{\"url\":\"https://e.com/{n}\"{more}}}");
    let (one, two, three) = (item(1, ""), item(2, ""), item(3, ""));
    let head = "\"version\":\"1\",\"title\":\"x\"";
    for document in [
        format!("{{{head},\"items\":[{one},{},{three}]}}", item(2, ",\"summary\":\"cut \\ud83d\"")),
        format!("{{{head},\"items\":[{one},{},{three}]}}", item(2, ",\"title\":\"\\udc00\"")),
        format!("{{{head},\"items\":[{one},{},{three}]}}", item(2, ",\"content_text\":\"a\tb\"")),
        format!("{{{head},\"items\":[{one},{},{three}]}}", item(2, ",\"_x\":[\"a\nb\"]")),
        format!("{{{head},\"items\":[{one},{two},{}]}}", item(3, ",\"title\":\"\\ud83d\"")),
        format!("{{\"title\":\"\\ud83d\",\"items\":[{one},{two},{three}]}}"),
        format!("{{\"\\ud83d\":1,{head},\"items\":[{one},{two},{three}]}}"),
    ] {
        let mut entries = 0;
        let report = parse(&mut document.as_bytes(), &ctx, &mut |_| {
            entries += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((entries, report.complete), (3, true), "{document}");
        let codes: Vec<_> = report.issues.iter().map(|issue| issue.code.as_str()).collect();
        assert_eq!(codes, ["illegal-character"], "{document}");
        let at = usize::try_from(report.issues[0].offset).expect("an offset");
        assert!(
            ["\\u", "\t", "\n"].iter().any(|bad| document[at..].starts_with(bad)),
            "{document}"
        );
    }
}

#[test]
fn a_number_is_no_url() {
    let document = r#"{"version": "1", "items": [
        {"url": 1.5, "external_url": "https://e.com/a", "id": 3},
        {"url": 7, "id": "https://e.com/b", "date_published": 1686825005},
        {"url": 8, "external_url": -8}]}"#;
    let base = Url::parse("https://example.com/feed.json").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let mut found = Vec::new();
    let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
        if let Item::Entry(entry) = item {
            found.push((entry.loc.to_owned(), entry.published.is_some()));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(
        found,
        [("https://e.com/a".to_owned(), false), ("https://e.com/b".to_owned(), true)]
    );
    let issues: Vec<_> = report.issues.iter().map(|i| (i.code, i.count)).collect();
    assert_eq!(issues, [(IssueCode::MissingTag, 1)]);
}

#[test]
fn an_escape_that_json_has_not_is_the_character_behind_it() {
    let document = r#"{"version": "1", "items": [{"url": "https://e.com/it\'s\_\é", "title": "\u12 \x"},
        {"url": "/5", "external_url": "https:\/\/e.com\/2\uxyzw"}]}"#;
    let base = Url::parse("https://example.com/feed.json").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let mut found = Vec::new();
    let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
        if let Item::Entry(entry) = item {
            found.push(entry.loc.to_owned());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(found, ["https://e.com/it's_é", "https://example.com/5"]);
    let wrong = report.issues.iter().find(|issue| issue.code == IssueCode::ParsingError);
    assert_eq!(wrong.map(|issue| issue.count), Some(6));
    assert_eq!(wrong.map(|issue| issue.offset), document.find("\\'").map(|at| at as u64));
    // Places are those of the document, whatever was left out before them.
    let relative = report.issues.iter().find(|issue| issue.code == IssueCode::RelativeUrl);
    let place = relative.map(|issue| (issue.line, issue.offset));
    assert_eq!(place, document.find("\"url\": \"/5\"").map(|at| (2, at as u64)));
}

#[test]
fn an_escape_or_a_comma_that_json_has_not_loses_nothing_that_follows() {
    let document = "{\"version\": \"1\", \"title\": \"it\\'s mine\", \"items\": [\n\
        {\"id\": \"1\", \"url\": \"https://e.com/1\",},\n{\"url\": \"https://e.com/2\"},\n]}";
    let base = Url::parse("https://example.com/feed.json").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let report = parse(&mut document.as_bytes(), &ctx, &mut |_| ControlFlow::Continue(()));
    assert!(report.complete && report.entries_total == 2, "{report:?}");
    let found: Vec<_> =
        report.issues.iter().map(|issue| (issue.code.as_str(), issue.count)).collect();
    assert_eq!(found, [("parsing-error", 3)]);
    assert_eq!(report.issues[0].offset, document.find('\\').expect("there") as u64);
}

#[test]
fn a_hub_is_named_once_and_a_date_is_read_between_marks_that_show_nothing() {
    let document = "{\"title\": \"t\", \"hubs\": [{\"url\": \"https://h.example/\"},\
        {\"type\": \"websub\", \"url\": \"https://H.example\"}, {\"url\": \"/hub\"}],\
        \"items\": [{\"url\": \"/a\", \"date_published\": \"\u{200e}2026-11-21\u{200e}\"},\
        {\"url\": \"/b\", \"date_published\": \"\u{ad}\"}]}";
    let base = Url::parse("https://example.com/feed.json").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let mut dates = Vec::new();
    let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
        if let Item::Entry(entry) = item {
            dates.push(entry.published.map(|date| date.to_string()));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(report.hints.hubs, ["https://h.example/", "https://example.com/hub"]);
    assert_eq!(dates, [Some("2026-11-21".to_owned()), None]);
    assert!(report.issues.iter().all(|issue| issue.code == IssueCode::RelativeUrl), "{report:?}");
}
