//! Globs against a plain matcher, and the parameters that are taken off.

use proptest::prelude::*;

use super::*;

fn matches(glob: &str, text: &str) -> bool {
    Glob::new(glob).expect(glob).matches(text)
}

#[test]
fn a_glob_matches_the_whole_url() {
    for (glob, text, expected) in [
        ("https://a.example/", "https://a.example/", true),
        ("https://a.example/", "https://a.example/x", false),
        ("*", "", true),
        ("*", "anything", true),
        ("*/blog/*", "https://a.example/blog/", true),
        ("*/blog/*", "https://a.example/blogs/", false),
        ("*.pdf", "https://a.example/x.pdf", true),
        ("*.pdf", "https://a.example/x.pdf?y", false),
        ("*?page=?", "https://a.example/x?page=1", true),
        ("*?page=?", "https://a.example/x?page=12", false),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("**", "x", true),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*ab*ab", "ab", false),
        ("*ab*ab", "abab", true),
    ] {
        assert_eq!(matches(glob, text), expected, "{glob} {text}");
    }
}

#[test]
fn an_empty_or_overlong_glob_is_refused() {
    assert!(Glob::new("").is_err());
    assert!(Glob::new(&"a".repeat(1_001)).is_err());
    assert!(Glob::new(&"*".repeat(1_000)).is_ok());
}

#[test]
fn a_filter_wants_one_include_and_no_exclude() {
    let globs = |list: &[&str]| list.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>();
    let filter = UrlFilter::new(&globs(&["*/a/*", "*/b/*"]), &globs(&["*.pdf"]));
    for (url, expected) in [("/a/x", true), ("/b/x", true), ("/c/x", false), ("/a/x.pdf", false)] {
        assert_eq!(filter.admits(url), expected, "{url}");
    }
    assert!(UrlFilter::new(&[], &[]).admits("x"));
}

#[test]
fn tracking_parameters_are_known_by_name_and_prefix() {
    let params = ParamSet::of_tracking();
    for (name, expected) in [
        ("utm_source", true),
        ("utm_", true),
        ("utm", false),
        ("gclid", true),
        ("gclid2", false),
        ("GCLID", false),
        ("id", false),
        ("page", false),
    ] {
        assert_eq!(params.contains(name), expected, "{name}");
    }
}

/// The meaning of a glob, without regard to time.
fn plain(glob: &[u8], text: &[u8]) -> bool {
    match (glob, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|n| plain(rest, &text[n..])),
        ([b'?', rest @ ..], [_, tail @ ..]) => plain(rest, tail),
        ([a, rest @ ..], [b, tail @ ..]) => a == b && plain(rest, tail),
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_glob_means_what_it_says(glob in "[ab*?]{1,8}", text in "[ab?]{0,12}") {
        prop_assert_eq!(matches(&glob, &text), plain(glob.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn no_text_panics(glob in "\\PC{1,20}", text in "\\PC{0,40}") {
        let _ = matches(&glob, &text);
    }
}

#[test]
fn a_glob_may_begin_as_a_url_does_or_it_may_not() {
    let urls = ["http://", "https://"];
    for glob in ["*", "*/a/*", "?*", "h*", "http*", "http?://a.test/*", "https://a.test/"] {
        assert!(Glob::new(glob).expect(glob).may_begin_with(&urls), "{glob}");
    }
    for glob in ["/a/*", "a.test/*", "httpx*", "ftp://*", "?/a/*", "HTTP://*"] {
        assert!(!Glob::new(glob).expect(glob).may_begin_with(&urls), "{glob}");
    }
}
