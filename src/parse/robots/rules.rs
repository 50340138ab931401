//! The rules for one agent, compiled, and matching them.
//!
//! Paths and patterns are brought to one spelling of their percent-escapes, in
//! which what a parser of URLs escapes is escaped, and are ASCII from then on. Each piece between two `*` is searched once, forward,
//! and there is no backtracking.

use std::borrow::Cow;

use memchr::memmem;

/// Memory that a piece of a pattern takes beside its text, about: the least that an
/// allocator gives, twice.
const PIECE: usize = 64;

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Disallow,
    Allow,
}

/// One `Allow` or `Disallow` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    verdict: Verdict,
    /// Octets of the pattern, which decide between rules.
    length: usize,
    /// What stands between the `*`; the first is a prefix.
    pieces: Vec<String>,
    /// Must the last piece end the path (`$`)?
    anchored: bool,
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = match self.verdict {
            Verdict::Disallow => "Disallow",
            Verdict::Allow => "Allow",
        };
        let end = if self.anchored { "$" } else { "" };
        write!(f, "{verdict}: {}{end}", self.pieces.join("*"))
    }
}

impl Rule {
    /// A rule from its pattern; an empty pattern says nothing.
    pub(super) fn new(verdict: Verdict, pattern: &str) -> Option<Self> {
        if pattern.is_empty() {
            return None;
        }
        let (body, anchored) = match pattern.strip_suffix('$') {
            Some(body) => (body, true),
            None => (pattern, false),
        };
        let slash = if pattern.starts_with(['/', '*', '$']) { "" } else { "/" };
        let mut pieces: Vec<String> =
            body.split('*').map(|piece| normal(piece).into_owned()).collect();
        if let Some(first) = pieces.first_mut() {
            first.insert_str(0, slash);
        }
        let stars = pieces.len() - 1;
        let length = pieces.iter().map(String::len).sum::<usize>() + stars + usize::from(anchored);
        // Of a run of `*` one says as much.
        let mut index = 0;
        pieces.retain(|piece| {
            index += 1;
            !piece.is_empty() || index == 1 || index == stars + 1
        });
        Some(Self { verdict, length, pieces, anchored })
    }

    /// Octets of the pattern.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Does it match a path that is [`spelled`] as it is?
    pub(super) fn matches(&self, path: &str) -> bool {
        self.walk(path, &mut |text, piece| memmem::find(text.as_bytes(), piece.as_bytes()))
    }

    /// Looks for the pieces one after the other, each behind the one before:
    /// the first place of a piece leaves the most room for the others, so no
    /// place is ever looked at twice. `find` is the search for one piece.
    fn walk(&self, path: &str, find: &mut dyn FnMut(&str, &str) -> Option<usize>) -> bool {
        let Some((first, others)) = self.pieces.split_first() else { return true };
        let Some(mut rest) = path.strip_prefix(first.as_str()) else { return false };
        let Some((last, middle)) = others.split_last() else {
            return !self.anchored || rest.is_empty();
        };
        for piece in middle {
            let after = find(rest, piece).and_then(|at| rest.get(at + piece.len()..));
            match after {
                Some(after) => rest = after,
                None => return false,
            }
        }
        if self.anchored { rest.ends_with(last.as_str()) } else { find(rest, last).is_some() }
    }
}

/// All rules that bind one agent, the strongest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Pieces of them all that are searched for.
    searches: usize,
}

impl Rules {
    pub(super) fn new(mut rules: Vec<Rule>) -> Self {
        // Longest first; of equal ones `allow` first (RFC 9309 section 2.2.2).
        rules.sort_by(|a, b| b.length.cmp(&a.length).then(b.verdict.cmp(&a.verdict)));
        let searches = rules.iter().map(|rule| rule.pieces.len().saturating_sub(1)).sum();
        Self { rules, searches }
    }

    /// May this path (with its query) be fetched? `/robots.txt` always.
    pub fn allows(&self, path_and_query: &str) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        if without_fragment(path_and_query) == "/robots.txt" {
            return true;
        }
        let path = spelled(path_and_query);
        let strongest = self.rules.iter().find(|rule| rule.matches(&path));
        strongest.is_none_or(|rule| rule.verdict == Verdict::Allow)
    }

    /// Octets that are looked at to judge a path of so many, at most and about: a
    /// robots.txt may have tens of thousands of rules, or of pieces between `*`, all of
    /// which each path is held against.
    pub fn work(&self, path: usize) -> usize {
        /// As much as a rule costs that looks at nothing.
        const RULE: usize = 16;
        /// As much as it costs to begin the search for a piece, of which no path holds
        /// more than it has octets.
        const SEARCH: usize = 256;
        let rules = self.rules.len();
        let searches = self.searches.min(rules.saturating_mul(path));
        rules
            .saturating_mul(path.saturating_add(RULE))
            .saturating_add(searches.saturating_mul(SEARCH))
    }

    /// Memory that they take, about.
    pub fn bytes(&self) -> usize {
        let pieces =
            |rule: &Rule| rule.pieces.iter().map(|piece| PIECE + piece.len()).sum::<usize>();
        self.rules.iter().map(|rule| size_of::<Rule>() + pieces(rule)).sum()
    }

    /// Is there no rule at all?
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

fn without_fragment(path: &str) -> &str {
    memchr::memchr(b'#', path.as_bytes()).map_or(path, |at| &path[..at])
}

/// A path (with its query) as rules are matched against it.
pub(super) fn spelled(path_and_query: &str) -> Cow<'_, str> {
    let mut path = normal(without_fragment(path_and_query));
    if !path.starts_with('/') {
        path.to_mut().insert(0, '/');
    }
    path
}

/// One spelling for what RFC 3986 holds to be the same: escapes of unreserved
/// characters undone, other escapes in upper case, octets beyond ASCII escaped,
/// and `*` and `$`, which have a meaning in a rule only; and what no URL may hold
/// as it is, which a rule is written with and a URL is not.
fn normal(path: &str) -> Cow<'_, str> {
    // As most are: only escapes, and what is escaped, can be spelled otherwise.
    if path.bytes().all(|byte| byte != b'%' && stands_for_itself(byte)) {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    let bytes = path.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let hex = |i: usize| bytes.get(at + i).and_then(|b| char::from(*b).to_digit(16));
        match (byte, hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                // Two hex digits are less than 256.
                let octet = u8::try_from(high * 16 + low).unwrap_or_default();
                if octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~') {
                    out.push(char::from(octet));
                } else {
                    escape(octet, &mut out);
                }
                at += 3;
                continue;
            }
            _ if stands_for_itself(byte) => out.push(char::from(byte)),
            _ => escape(byte, &mut out),
        }
        at += 1;
    }
    Cow::Owned(out)
}

/// Is an octet written as it is? `*` and `$` stand for themselves in a path only
/// (RFC 9309 section 2.2.3); the others that are not are escaped in the path or in the
/// query of a URL by the WHATWG standard, or may be, as RFC 3986 knows none of them.
fn stands_for_itself(octet: u8) -> bool {
    let is_escaped = matches!(
        octet,
        b'*' | b'$' | b'"' | b'\'' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
    );
    octet.is_ascii_graphic() && !is_escaped
}

fn escape(octet: u8, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    for nibble in [octet >> 4, octet & 15] {
        out.push(char::from(HEX.get(usize::from(nibble)).copied().unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let rules = Rules::new(Rule::new(Verdict::Disallow, pattern).into_iter().collect());
        !rules.allows(path)
    }

    #[test]
    fn patterns_match_as_the_standard_says() {
        let table = [
            ("/", "/anything", true),
            ("/fish", "/fish.html", true),
            ("/fish", "/catfish", false),
            ("/fish*", "/fishheads/yummy.html", true),
            ("/fish/", "/fish", false),
            ("/*.php", "/folder/filename.php?parameters", true),
            ("/*.php$", "/filename.php", true),
            ("/*.php$", "/filename.php?parameters", false),
            ("/fish*.php", "/fishheads/catfish.php", true),
            ("/a$", "/a", true),
            ("/a$", "/ab", false),
            ("/a*b*a$", "/aba", true),
            ("/a*a$", "/a", false),
            ("$", "/", false),
            ("*", "/x", true),
            ("***/x", "/y/x", true),
            ("fish", "/fish", true),
            ("/a%3cd.html", "/a%3Cd.html", true),
            ("/a%2fb", "/a/b", false),
            ("/%7Ejoe/", "/~joe/index.html", true),
            ("/ツ", "/%E3%83%84/x", true),
            ("/a?b=*", "/a?b=1", true),
        ];
        for (pattern, path, want) in table {
            assert_eq!(matches(pattern, path), want, "{pattern} on {path}");
        }
    }

    #[test]
    fn the_longest_rule_wins_and_allow_wins_a_tie() {
        let rule = |verdict, pattern| Rule::new(verdict, pattern).expect("not empty");
        let rules = Rules::new(vec![
            rule(Verdict::Disallow, "/folder"),
            rule(Verdict::Allow, "/folder/page"),
            rule(Verdict::Disallow, "/same"),
            rule(Verdict::Allow, "/same"),
            rule(Verdict::Allow, "/"),
        ]);
        assert!(rules.allows("/folder/page"));
        assert!(!rules.allows("/folder/other"));
        assert!(rules.allows("/same"));
        assert!(rules.allows("/robots.txt"));
    }

    #[test]
    fn special_characters_are_matched_verbatim_by_their_escapes() {
        let table = [
            ("/file-with-a-%2A.html", "/file-with-a-*.html", true),
            ("/file-with-a-%2a.html", "/file-with-a-*.html", true),
            ("/file-with-a-%2A.html", "/file-with-a-%2A.html", true),
            ("/file-with-a-%2A.html", "/file-with-a-x.html", false),
            ("/foo-%24", "/foo-$", true),
            ("/foo-%24", "/foo-%24", true),
            ("/foo-%24", "/foo-", false),
            ("/a$b", "/a$b", true),
            ("/a$b", "/a", false),
            ("/a%24$", "/a$", true),
            ("/a%24$", "/a$b", false),
            ("/100%", "/100%", true),
            ("/100%$", "/100%25", false),
            ("/x%zz", "/x%zz", true),
        ];
        for (pattern, path, want) in table {
            assert_eq!(matches(pattern, path), want, "{pattern} on {path}");
        }
    }

    #[test]
    fn what_a_url_is_parsed_into_is_matched_by_a_rule_as_it_is_written() {
        // All of ASCII that may stand in a line, and a little of the rest.
        let all = (b' '..=b'~').map(char::from).chain(['é', 'ツ']);
        for written in all.filter(|c| !matches!(c, '#' | '*' | '$' | '?' | '%' | '/' | '\\' | '.'))
        {
            for (pattern, path) in [
                (format!("/a{written}b"), format!("/a{written}bc")),
                (format!("/s?q={written}b"), format!("/s?q={written}bc")),
                (format!("/*={written}b$"), format!("/s?q={written}b")),
            ] {
                let url = url::Url::parse(&format!("http://a.test{path}")).unwrap();
                let parsed = &url[url::Position::BeforePath..];
                assert!(matches(&pattern, parsed), "{pattern} on {parsed}");
                assert!(matches(&pattern, &path), "{pattern} on {path}");
            }
        }
        assert!(matches("/{id}", "/%7Bid%7D") && matches("/%7bid%7d", "/{id}/x"));
        assert!(!matches("/{id}", "/id"));
    }

    /// Bytes looked at by searches that look at each place once and stop at the
    /// first hit, as a pattern is matched.
    fn cost(pattern: &str, path: &str) -> (bool, usize) {
        let rule = Rule::new(Verdict::Disallow, pattern).expect("not empty");
        let mut looked_at = 0;
        let matched = rule.walk(path, &mut |text, piece| {
            let found = text.find(piece);
            looked_at += found.map_or(text.len(), |at| at + piece.len());
            found
        });
        (matched, looked_at)
    }

    #[test]
    fn a_rule_of_many_pieces_is_as_much_work_as_many_rules() {
        let of = |pattern: &str| Rules::new(vec![Rule::new(Verdict::Disallow, pattern).unwrap()]);
        let (one, many) = (of("/private"), of(&format!("/{}b", "*aa".repeat(1_000))));
        assert!(one.work(2_000) < 3_000);
        assert!(many.work(2_000) > 100 * one.work(2_000));
        // In a short path there is room for few of them.
        assert!(many.work(4) < 2_000);
    }

    #[test]
    fn matching_looks_at_each_byte_of_the_path_once_whatever_the_pattern() {
        let shapes: [(&str, &str, &str); 6] = [
            ("*a", "b", "a"),
            ("*a", "b$", "a"),
            ("*a", "$", "a"),
            ("*ab", "c", "ab"),
            ("*aa", "b$", "a"),
            ("a*", "b", "a"),
        ];
        for (unit, tail, of_path) in shapes {
            let at = |n: usize| {
                let pattern = format!("/{}{tail}", unit.repeat(n));
                let path = format!("/{}", of_path.repeat(2 * n));
                let (_, looked_at) = cost(&pattern, &path);
                assert!(looked_at <= path.len() + pattern.len(), "{unit}{tail} at {n}");
                looked_at
            };
            let (small, large) = (at(1_000), at(4_000));
            assert!(large <= 5 * small.max(1_000), "{unit}{tail}: {small} then {large}");
        }
        let pattern = format!("/{}b", "*a".repeat(4_000));
        let path = format!("/{}", "a".repeat(8_000));
        assert!(!matches(&pattern, &path));
        assert!(matches(&pattern, &format!("{path}b")));
    }
}
