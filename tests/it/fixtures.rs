//! One document per issue code, and what each must be reported as.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use sitemapd::parse::{IssueCode, Limits, Severity};

use crate::reading::{Cut, Dribble, Outcome, read_with};

const LIMITS: Limits = Limits { max_urls: 3, max_sitemaps: 3, max_url_chars: 100 };

/// The fixture of a code: its bytes, and whether its reader fails at the end.
fn fixture(code: IssueCode) -> (Vec<u8>, bool) {
    if let Some(made) = generated(code) {
        return (made.into_bytes(), false);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/issues");
    let files = fs::read_dir(folder).expect("the folder of fixtures");
    let path = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.file_stem().is_some_and(|stem| stem == code.as_str()))
        .unwrap_or_else(|| panic!("no fixture for {code}"));
    let cut = path.extension().is_some_and(|e| e == "cut");
    (fs::read(path).expect("a fixture"), cut)
}

/// What is too large to keep as a file.
fn generated(code: IssueCode) -> Option<String> {
    let entry = |inner: &str| {
        format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
             xmlns:news='http://www.google.com/schemas/sitemap-news/0.9' \
             xmlns:image='http://www.google.com/schemas/sitemap-image/1.1'>\n\
             <url><loc>https://example.com/a</loc>{inner}</url></urlset>"
        )
    };
    Some(match code {
        IssueCode::RobotsTooLarge => {
            format!("User-agent: *\nDisallow: /a\n{}", "#\n".repeat(300_000))
        }
        IssueCode::OversizedMarkup => entry(&format!("<lastmod>{}</lastmod>", "2".repeat(100_000))),
        IssueCode::TooManyNews => entry(&"<news:news/>".repeat(1_001)),
        IssueCode::TooManyExtensions => entry(&"<image:image/>".repeat(1_001)),
        _ => return None,
    })
}

fn outcome(code: IssueCode) -> Outcome {
    let (bytes, cut) = fixture(code);
    if cut {
        read_with(&mut Cut(&bytes), LIMITS, None)
    } else {
        read_with(&mut bytes.as_slice(), LIMITS, None)
    }
}

#[test]
fn every_issue_code_has_a_fixture_that_is_reported_as_it() {
    for code in IssueCode::ALL {
        let found = outcome(code).report.issues;
        let issue = found.iter().find(|issue| issue.code == code);
        let issue = issue.unwrap_or_else(|| panic!("{code} is not in {found:?}"));
        assert_eq!(issue.severity, code.severity());
        assert!(issue.count >= 1 && issue.line >= 1, "{issue:?}");
        assert!(issue.sample.chars().count() <= 200 && !issue.sample.contains('\n'), "{issue:?}");
    }
}

#[test]
fn an_issue_names_the_line_and_the_byte_it_is_at() {
    let at = |code| {
        let issue =
            outcome(code).report.issues.into_iter().find(|i| i.code == code).expect("the issue");
        (issue.line, issue.offset)
    };
    let (bytes, _) = fixture(IssueCode::InvalidTagValue);
    let text = String::from_utf8(bytes).expect("UTF-8");
    // Where the field begins, and where the entry does.
    let field = text.find("<changefreq>").expect("the tag") as u64;
    assert_eq!(at(IssueCode::InvalidTagValue), (3, field));
    let (bytes, _) = fixture(IssueCode::MissingTag);
    let text = String::from_utf8(bytes).expect("UTF-8");
    let entry = text.find("<url><lastmod>").expect("the entry") as u64;
    assert_eq!(at(IssueCode::MissingTag), (3, entry));
    assert_eq!(at(IssueCode::RelativeUrl).0, 3);
    assert_eq!(at(IssueCode::Truncated).0, 4);
    assert_eq!(at(IssueCode::InvalidUrl).0, 4);
}

#[test]
fn a_document_counts_as_complete_only_if_nothing_was_cut_off() {
    use IssueCode::{
        EmptyDocument, IncompleteBody, OversizedMarkup, RobotsTooLarge, TooDeep, TooManySitemaps,
        TooManyUrls, Truncated, UnsupportedFormat,
    };
    let cut = [
        EmptyDocument,
        IncompleteBody,
        RobotsTooLarge,
        TooDeep,
        TooManySitemaps,
        TooManyUrls,
        Truncated,
        UnsupportedFormat,
    ];
    for code in IssueCode::ALL {
        assert_eq!(outcome(code).report.complete, !cut.contains(&code), "{code}");
    }
    assert_eq!(OversizedMarkup.severity(), Severity::Error);
}

#[test]
fn the_limits_cut_and_say_so() {
    let urls = outcome(IssueCode::TooManyUrls);
    assert_eq!(urls.report.entries_total, 3);
    let over =
        urls.report.issues.iter().find(|i| i.code == IssueCode::TooManyUrls).expect("the issue");
    assert_eq!(over.count, 2);
    assert_eq!(outcome(IssueCode::TooManySitemaps).report.sitemaps_total, 3);
}

#[test]
fn a_defect_costs_no_more_than_itself() {
    let table: &[(IssueCode, &[&str])] = &[
        (IssueCode::ParsingError, &["https://example.com/a"]),
        (IssueCode::UnescapedCharacter, &["https://example.com/a?b=1&c=2"]),
        (IssueCode::UnknownEntity, &["https://example.com/a?b=&quote;x&quote;"]),
        (IssueCode::MismatchedTag, &["https://example.com/a", "https://example.com/b"]),
        (IssueCode::Truncated, &["https://example.com/a"]),
        (IssueCode::IncompleteBody, &["https://example.com/a"]),
        (IssueCode::EncodingError, &["https://example.com/café-✓-à-è-ö"]),
        (IssueCode::IllegalCharacter, &["https://example.com/ab"]),
        (IssueCode::DoctypeIgnored, &["https://example.com/&e;"]),
        (IssueCode::MissingTag, &["https://example.com/a"]),
        (IssueCode::InvalidUrl, &["https://example.com/a"]),
        (IssueCode::RelativeUrl, &["https://example.com/a"]),
        (IssueCode::UrlTooLong, &["https://example.com/a"]),
    ];
    for (code, locs) in table {
        assert_eq!(outcome(*code).locs(), *locs, "{code}");
    }
}

proptest! {
    #[test]
    fn how_the_reader_cuts_its_bytes_does_not_matter(
        index in 0..IssueCode::ALL.len(),
        sizes in prop::collection::vec(1_usize..40, 1..5),
    ) {
        let (bytes, cut) = fixture(IssueCode::ALL[index]);
        prop_assume!(!cut && bytes.len() < 20_000);
        let whole = read_with(&mut bytes.as_slice(), LIMITS, None);
        let mut dribble = Dribble { rest: &bytes, sizes: &sizes, turn: 0 };
        prop_assert_eq!(whole, read_with(&mut dribble, LIMITS, None));
    }

    #[test]
    fn a_broken_fixture_never_makes_it_panic(
        index in 0..IssueCode::ALL.len(),
        at in 0.0_f64..1.0,
        insert in "[<>&;!?\\[\\]/a\"'= -]{0,6}",
        drop in 0_usize..20,
    ) {
        let (mut bytes, _) = fixture(IssueCode::ALL[index]);
        prop_assume!(bytes.len() < 20_000);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let from = (bytes.len() as f64 * at) as usize;
        let to = (from + drop).min(bytes.len());
        bytes.splice(from..to, insert.bytes());
        let found = read_with(&mut bytes.as_slice(), LIMITS, None);
        prop_assert!(found.locs().iter().all(|loc| loc.len() <= 100 && loc.starts_with("http")));
    }

    #[test]
    fn arbitrary_bytes_never_make_it_panic(bytes: Vec<u8>, label in "text/xml; charset=[a-z0-9-]{0,12}") {
        let whole = read_with(&mut bytes.as_slice(), LIMITS, Some(&label));
        let mut dribble = Dribble { rest: &bytes, sizes: &[1, 3], turn: 0 };
        prop_assert_eq!(whole, read_with(&mut dribble, LIMITS, Some(&label)));
    }
}
