//! What holds of every text that may be a URL.
//!
//! What was admitted is admitted again as itself; its identity names the same
//! octets as the URL that was listed; the spellings of one page have one
//! identity; who may list it does not depend on anything but the rules, nor on
//! what was judged before.

use std::sync::LazyLock;

use sitemapd::config::Config;
use sitemapd::diff::snapshot::Rejection;
use sitemapd::url::{Admitted, Judge, SiteRules, are_twins, authority, identities};
use url::Url;

use super::Dice;

/// Lines that are looked at.
const MAX_LINES: usize = 8;

/// Sites of every scope, with and without steps; the first takes everything.
const SITES: [&str; 9] = [
    "scope = \"any\"\ntwins = \"separate\"\nstrip_params = []",
    "",
    "twins = \"separate\"\nhosts = [\"blog.example.org\", \"www.example.org:8443\"]",
    "scope = \"domain\"",
    "scope = \"directory\"",
    "scope = \"any\"\nexclude = [\"*/private/*\", \"*?*\"]\ninclude = [\"*example*\"]",
    "scope = \"any\"\nnormalise = []",
    "strip_params = [\"a\", \"b*\"]\nnormalise = [\"fragment\", \"escapes\"]",
    "scope = \"any\"\nlimits = { max_url_chars = 64 }",
];

static RULES: LazyLock<Vec<SiteRules>> = LazyLock::new(|| SITES.iter().map(|s| rules(s)).collect());

fn rules(extra: &str) -> SiteRules {
    let text = format!("[[site]]\nname = \"s\"\nurl = \"https://www.example.org/\"\n{extra}");
    let config = Config::from_toml_str(&text).unwrap_or_else(|e| panic!("{extra}: {e}"));
    SiteRules::new(&config.sites["s"], None)
}

/// The law of URLs: each line is a text that may be one.
pub(super) fn holds(bytes: &[u8], mut dice: Dice) {
    let text = String::from_utf8_lossy(bytes);
    let source = Url::parse("https://www.example.org/maps/sitemap.xml?p=2").expect("a URL");
    for rules in RULES.iter() {
        if dice.turn(3) {
            a_judge_says_what_the_rules_say(&text, rules, &source);
        }
    }
    for raw in text.split('\n').take(MAX_LINES) {
        for rules in RULES.iter() {
            if !dice.turn(3) {
                continue;
            }
            let verdict = rules.admit(raw, &source);
            assert_eq!(verdict, rules.admit(raw, &source));
            if let Ok(admitted) = &verdict {
                is_an_identity(admitted, raw, rules, &source);
            }
        }
        means_what_was_listed(raw, &source);
        has_one_identity_in_every_spelling(raw, &source);
        let parsed = Url::parse(raw).ok();
        if let Some(url) = parsed.filter(|url| matches!(url.scheme(), "http" | "https")) {
            let origin = RULES[1].origin();
            assert_eq!(are_twins(&url, origin), are_twins(origin, &url));
            for identity in identities(&url) {
                assert!(identities(&identity).contains(&identity), "{raw:?}");
            }
        }
    }
}

/// Whoever judges many URLs of a document judges each as if it were alone.
fn a_judge_says_what_the_rules_say(text: &str, rules: &SiteRules, source: &Url) {
    let mut judge = Judge::new(rules, source);
    for raw in text.split('\n').take(MAX_LINES) {
        assert_eq!(judge.admit(raw), rules.admit(raw, source), "{raw:?} of {text:?}");
        // Another page of the same place.
        if let Some((place, _)) = raw.rsplit_once('/') {
            for page in ["/b", "/?b=1&c", "/..", "/?", "/%61"] {
                let raw = format!("{place}{page}");
                assert_eq!(judge.admit(&raw), rules.admit(&raw, source), "{raw:?} of {text:?}");
            }
        }
    }
}

fn is_an_identity(admitted: &Admitted, raw: &str, rules: &SiteRules, source: &Url) {
    let text = format!("{}{}", admitted.authority, admitted.path);
    let url = Url::parse(&text).unwrap_or_else(|e| panic!("{raw:?} became {text:?}: {e}"));
    assert_eq!(url.as_str(), text, "{raw:?}");
    assert!(admitted.path.starts_with('/') && *authority(&url) == *admitted.authority, "{text:?}");
    assert!(matches!(url.scheme(), "http" | "https") && url.username().is_empty(), "{text:?}");
    assert!(url.host_str().is_some_and(|host| !host.is_empty()), "{text:?}");
    assert!(text.bytes().all(|b| b.is_ascii_graphic()), "{raw:?} became {text:?}");
    assert_eq!(admitted.respelled, raw != text);
    let again = rules.admit(&text, source);
    // Escapes take three characters for one octet.
    let longer = again == Err(Rejection::TooLong) && text.len() > raw.chars().count();
    let same = again.as_ref().is_ok_and(|again| {
        again.authority == admitted.authority && again.path == admitted.path && !again.respelled
    });
    assert!(longer || same, "{raw:?} became {text:?}, then {again:?}");
}

/// No step changes what a path or a query says.
fn means_what_was_listed(raw: &str, source: &Url) {
    let Ok(admitted) = RULES[0].admit(raw, source) else { return };
    let listed = Url::parse(raw).expect("it was admitted");
    let identity =
        Url::parse(&format!("{}{}", admitted.authority, admitted.path)).expect("an identity");
    let octets = |part: &str| (unescaped(part), part.matches('/').count());
    assert_eq!(octets(listed.path()), octets(identity.path()), "{raw:?}");
    let query = |url: &Url| unescaped(url.query().unwrap_or_default());
    assert_eq!(query(&listed), query(&identity), "{raw:?}");
    let separators = |url: &Url| {
        let query = url.query().unwrap_or_default();
        query.bytes().filter(|b| b"&=+;/?:@".contains(b)).collect::<Vec<u8>>()
    };
    assert_eq!(separators(&listed), separators(&identity), "{raw:?}");
    let host = |url: &Url| url.host_str().unwrap_or_default().trim_end_matches('.').to_owned();
    assert_eq!(host(&listed), host(&identity), "{raw:?}");
    assert_eq!(listed.port_or_known_default(), identity.port_or_known_default());
}

fn has_one_identity_in_every_spelling(raw: &str, source: &Url) {
    let rules = &RULES[1];
    let Ok(admitted) = rules.admit(raw, source) else { return };
    let text = format!("{}{}", admitted.authority, admitted.path);
    if text.chars().count() + 8 > 2_048 {
        return;
    }
    let mut spellings = vec![format!("{text}#top"), format!("\t{text} ")];
    if let Some(rest) = text.strip_prefix("https://www.example.org/") {
        spellings.push(format!("http://www.example.org/{rest}"));
        spellings.push(format!("HTTPS://Example.ORG:443/{rest}"));
        spellings.push(format!("https://www.example.org./{rest}"));
        spellings.push(format!("https://www.example.org/x/../{rest}"));
    }
    for spelling in spellings {
        let again = rules.admit(&spelling, source);
        let same = again
            .as_ref()
            .is_ok_and(|a| a.authority == admitted.authority && a.path == admitted.path);
        assert!(same, "{raw:?}: {spelling:?} is {again:?}, not {text:?}");
    }
}

/// Octets with their escapes undone; a `%` that begins no escape is itself.
fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).expect("two digits"));
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}
