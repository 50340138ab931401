//! What holds of every robots.txt.
//!
//! A file is read the same whatever its line ends; its rules, in whatever order
//! they stand, decide as RFC 9309 section 2.2 says, which a matcher of a few
//! lines says here once more: slow, and with nothing clever in it.

use std::fmt::Write as _;
use std::time::Duration;

use sitemapd::model::DocumentKind;
use sitemapd::parse::IssueCode;
use sitemapd::parse::robots::{MAX_BYTES, Robots};

use super::Dice;
use super::document;

const AGENTS: [&str; 5] = ["*", "sitemapd", "Googlebot/2.1 (+https://example.com/)", "a-b_c9", ""];

/// Characters of a pattern or path that the slow matcher takes.
const MAX_WORD: usize = 16;
/// Stars of a pattern that the slow matcher takes.
const MAX_STARS: usize = 4;

/// The law of robots.txt.
pub(super) fn holds(bytes: &[u8], mut dice: Dice) {
    let robots = Robots::parse(bytes);
    the_file_is_read_alike(bytes, &robots);
    rules_are_asked_alike(bytes, &robots);
    let words = words(bytes);
    if words.len() >= 2 {
        the_strongest_rule_decides(&words, &mut dice);
    }
    if !dice.turn(4) {
        return;
    }
    let (found, _) = document::holds(bytes, &mut dice);
    if found.report.kind == DocumentKind::Robots {
        // A label, which only a document is given here, says nothing of valid UTF-8.
        let alike = std::str::from_utf8(bytes).is_ok();
        assert!(!alike || found.listed.len() <= robots.sitemaps().len());
        let cut = robots.is_too_large() || found.has(IssueCode::TooManySitemaps);
        assert_eq!(found.report.complete, !cut);
    }
}

fn the_file_is_read_alike(bytes: &[u8], robots: &Robots) {
    assert!(!robots.is_too_large() || bytes.len() > MAX_BYTES / 3);
    let sitemaps = robots.sitemaps();
    for (at, url) in sitemaps.iter().enumerate() {
        assert!(!url.is_empty() && !url.contains(char::is_whitespace), "{url:?}");
        assert!(!sitemaps[..at].contains(url), "{url:?} twice");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let plain = !text.contains(['\r', '\0', '\u{feff}']) && bytes.len() < MAX_BYTES / 2;
    if plain {
        for other in [
            text.replace('\n', "\r\n"),
            text.replace('\n', "\r"),
            format!("\u{feff}{text}"),
            format!("{text}\n"),
            format!("# A comment\n{text}\n\n# Another"),
        ] {
            assert_eq!(&Robots::parse(other.as_bytes()), robots, "{other:?}");
        }
        other_groups_do_not_matter(text, robots);
    }
}

/// What is said to somebody else, in front, is nothing to anybody.
fn other_groups_do_not_matter(text: &str, robots: &Robots) {
    let other = "User-agent: somebody-else\nDisallow: /\nCrawl-delay: 7\nDisallow:\n\n";
    let longer = Robots::parse(format!("{other}{text}").as_bytes());
    assert_eq!(longer.sitemaps(), robots.sitemaps(), "{text:?}");
    let named = text.split(['\n', ' ', ':']).filter(|piece| !piece.contains("somebody")).take(8);
    for agent in AGENTS.into_iter().chain(named) {
        assert_eq!(longer.rules_for(agent), robots.rules_for(agent), "{agent:?} {text:?}");
        assert_eq!(longer.crawl_delay(agent), robots.crawl_delay(agent), "{agent:?} {text:?}");
        // What stands before any group is of the file.
        if !text.to_ascii_lowercase().contains("content") {
            assert_eq!(longer.usage(agent), robots.usage(agent), "{agent:?} {text:?}");
        }
    }
}

fn rules_are_asked_alike(bytes: &[u8], robots: &Robots) {
    let text = String::from_utf8_lossy(bytes);
    let pieces: Vec<&str> = text.split(['\n', '\r', ' ', ':']).take(40).collect();
    for agent in AGENTS.iter().chain(pieces.iter().take(8)) {
        let rules = robots.rules_for(agent);
        assert!(rules.allows("/robots.txt") && robots.allows(agent, "/robots.txt"));
        assert_eq!(robots.rules_for(&agent.to_ascii_uppercase()), rules, "{agent:?}");
        for path in &pieces {
            let allowed = rules.allows(path);
            assert_eq!(robots.allows(agent, path), allowed);
            assert!(allowed || !rules.is_empty(), "{path:?} is forbidden by nothing");
            assert_eq!(rules.allows(&format!("{path}#part")), rules.allows(path_of(path)));
        }
        let delay = robots.crawl_delay(agent);
        assert!(delay.is_none_or(|d| d <= Duration::from_secs(86_400)), "{delay:?}");
        let _ = robots.usage(agent);
    }
}

fn path_of(path: &str) -> &str {
    path.split('#').next().unwrap_or_default()
}

/// What can be a pattern or a path: no blanks, nothing that a line gives another
/// meaning to, no `%` that is no escape (which has no meaning at all).
fn words(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let fit = |c: char| (c.is_ascii_graphic() && c != '#' && c != ':') || c.is_alphanumeric();
    let pieces = text.split(|c: char| !fit(c)).filter(|piece| !piece.is_empty());
    let short = pieces.map(|piece| piece.chars().take(MAX_WORD).collect::<String>());
    let good = short.filter(|word| {
        let escapes = word.split('%').skip(1).all(|after| {
            let hex = after.as_bytes().get(..2);
            hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
        });
        escapes && word.matches('*').count() <= MAX_STARS
    });
    good.take(16).collect()
}

fn the_strongest_rule_decides(words: &[String], dice: &mut Dice) {
    let many = words.len().min(6);
    let mut rules: Vec<(bool, &str)> =
        words[..many].iter().map(|word| (dice.below(2) == 0, word.as_str())).collect();
    let file = |rules: &[(bool, &str)], cut: usize| {
        let mut text = String::from("# First\nUser-agent: other\nDisallow: /\n\n");
        let parts = [&rules[..cut], &rules[cut..]];
        // A name without rules would belong to the group that follows.
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            text.push_str("user-AGENT : SiteMapD # us\n\n");
            for (allow, pattern) in part {
                let verdict = if *allow { "Allow" } else { "disallow" };
                writeln!(text, "{verdict}:\t{pattern}").expect("a string");
            }
            text.push_str("X-Unknown: line\nUser-agent: third\nAllow: /\n");
        }
        Robots::parse(text.as_bytes()).rules_for("sitemapd")
    };
    let first = file(&rules, 0);
    dice.shuffle(&mut rules);
    let second = file(&rules, dice.below(rules.len()));
    let bare = words
        .iter()
        .flat_map(|word| ["", "x", "/"].map(|star| word.trim_end_matches('$').replace('*', star)));
    for path in bare.map(|path| format!("/{}", path.trim_start_matches('/'))) {
        let want = slowly(&rules, &path);
        assert_eq!(first.allows(&path), want, "{path} by {rules:?}");
        assert_eq!(second.allows(&path), want, "{path} by {rules:?} in another order");
    }
}

/// RFC 9309 section 2.2.2, word by word.
fn slowly(rules: &[(bool, &str)], path: &str) -> bool {
    let path_octets = octets(path);
    let mut strongest = (0, true);
    for (allow, pattern) in rules {
        let rooted = pattern.starts_with(['/', '*', '$']);
        let pattern = if rooted { (*pattern).to_owned() } else { format!("/{pattern}") };
        let octets = octets(&pattern);
        let (body, anchored) = match octets.split_last() {
            Some((&DOLLAR, body)) => (body, true),
            _ => (octets.as_slice(), false),
        };
        if matches(body, anchored, &path_octets) {
            let length = octets.iter().map(|o| if *o < ESCAPED { 1 } else { 3 }).sum::<u32>();
            strongest = strongest.max((length, *allow));
        }
    }
    path == "/robots.txt" || strongest.1
}

/// Marks an octet that is written as an escape.
const ESCAPED: u16 = 0x100;
const STAR: u16 = 0x2a;
const DOLLAR: u16 = 0x24;

/// The octets of a path: those that need an escape, or that no URL may hold without one,
/// marked as such, however they are written, the others as they are.
fn octets(text: &str) -> Vec<u16> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits: String = bytes.by_ref().take(2).map(char::from).collect();
            let octet = u16::from_str_radix(&digits, 16).expect("words have whole escapes");
            let kept = u8::try_from(octet)
                .is_ok_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'));
            out.push(if kept { octet } else { octet | ESCAPED });
        } else if byte.is_ascii_graphic() && !b"\"'<>\\^`{|}".contains(&byte) {
            out.push(u16::from(byte));
        } else {
            out.push(u16::from(byte) | ESCAPED);
        }
    }
    out
}

fn matches(pattern: &[u16], anchored: bool, path: &[u16]) -> bool {
    match pattern.split_first() {
        None => !anchored || path.is_empty(),
        Some((&STAR, rest)) => (0..=path.len()).any(|at| matches(rest, anchored, &path[at..])),
        Some((first, rest)) => path.first() == Some(first) && matches(rest, anchored, &path[1..]),
    }
}
