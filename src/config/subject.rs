//! Subjects of NATS: a template, and what it stands for.
//!
//! A subject is words with dots between; what is filled in is always one word,
//! whatever characters the name of a site or a host has, so that a template
//! matches the same wildcard for every URL.

use std::fmt;

/// Longest template, in characters; servers allow a line of 4,096.
const MAX_CHARS: usize = 256;
/// Longest word that is filled in; a host name has 253 characters.
const MAX_WORD: usize = 256;

/// A subject with places to be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Crawl,
    Site,
    Host,
}

/// What fills the places of a subject, for one URL.
#[derive(Debug, Clone, Copy)]
pub struct Filling<'a> {
    /// Its crawl.
    pub crawl: &'a str,
    /// Its site; `_` where it has none.
    pub site: Option<&'a str>,
    /// Scheme, host and port; the scheme is left out.
    pub host: &'a str,
}

impl Subject {
    /// Reads a template; the error is a clause that says what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (place, behind) = after.split_once('}').ok_or_else(allowed)?;
            parts.extend(some_text(before));
            parts.push(match place {
                "crawl" => Part::Crawl,
                "site" => Part::Site,
                "host" => Part::Host,
                _ => return Err(allowed()),
            });
            rest = behind;
        }
        parts.extend(some_text(rest));
        let subject = Self(parts);
        let sample = subject.fill(Filling { crawl: "a", site: None, host: "a" });
        if text.len() > MAX_CHARS || !is_plain(&sample) { Err(allowed()) } else { Ok(subject) }
    }

    /// The subject of one URL.
    pub fn fill(&self, with: Filling<'_>) -> String {
        let word = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Crawl => one_word(with.crawl),
            Part::Site => one_word(with.site.unwrap_or("_")),
            Part::Host => one_word(with.host.split_once("://").map_or(with.host, |(_, host)| host)),
        };
        self.0.iter().map(word).collect()
    }

    /// Matches the subjects of all URLs: `*` for each word with a place in it.
    pub fn wildcard(&self) -> String {
        let text = self.to_string();
        let word = |word: &str| if word.contains('{') { "*".to_owned() } else { word.to_owned() };
        text.split('.').map(word).collect::<Vec<_>>().join(".")
    }

    /// Is it one subject, with nothing to be filled in?
    pub fn is_fixed(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Text(_)))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Crawl => f.write_str("{crawl}"),
            Part::Site => f.write_str("{site}"),
            Part::Host => f.write_str("{host}"),
        })
    }
}

fn allowed() -> String {
    "allowed is words of ASCII letters, digits, _ and - with dots between, in which {crawl}, \
     {site} and {host} may stand: \"sitemapd.urls.{crawl}\""
        .to_owned()
}

fn some_text(text: &str) -> Option<Part> {
    (!text.is_empty()).then(|| Part::Text(text.to_owned()))
}

/// One word: what cannot be in it is `_`.
fn one_word(text: &str) -> String {
    let fit = |c: char| if is_fit(c) { c } else { '_' };
    let word: String = text.chars().take(MAX_WORD).map(fit).collect();
    if word.is_empty() { "_".to_owned() } else { word }
}

fn is_fit(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A subject without wildcards.
fn is_plain(text: &str) -> bool {
    text.split('.').all(|word| !word.is_empty() && word.chars().all(is_fit))
}

/// Does a subject of NATS, wildcards and all, match all that another one does?
pub fn covers(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(own), Some(token)) if own == token => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str) -> String {
        let with =
            Filling { crawl: "default", site: Some("blog.a"), host: "https://a.example:8443" };
        Subject::parse(template).expect(template).fill(with)
    }

    #[test]
    fn what_is_filled_in_is_one_word() {
        for (template, expected, wildcard) in [
            ("sitemapd.urls", "sitemapd.urls", "sitemapd.urls"),
            ("s.{crawl}.{host}", "s.default.a_example_8443", "s.*.*"),
            ("s.{site}", "s.blog_a", "s.*"),
            ("{crawl}-x.y", "default-x.y", "*.y"),
        ] {
            assert_eq!(filled(template), expected);
            let subject = Subject::parse(template).expect(template);
            assert_eq!(subject.wildcard(), wildcard);
            assert_eq!(subject.to_string(), template);
            assert_eq!(subject.is_fixed(), template == expected);
        }
        let none = Filling { crawl: "é > *", site: None, host: "http://[::1]:80" };
        let subject = Subject::parse("{crawl}.{site}.{host}").expect("a subject");
        assert_eq!(subject.fill(none), "_____._.___1__80");
    }

    #[test]
    fn what_is_no_subject_is_refused() {
        let long = "a".repeat(300);
        for text in [
            "", "a.", ".a", "a..b", "a b", "a.>", "a.*", "a.{url}", "a.{crawl", "a}", "$JS.a",
            &long,
        ] {
            assert!(Subject::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_subject_covers_what_it_matches_and_no_more() {
        for (pattern, subject, expected) in [
            ("s.urls", "s.urls", true),
            ("s.urls", "s.url", false),
            ("s.>", "s.*.*", true),
            ("s.*.*", "s.*.*", true),
            ("s.*", "s.*.*", false),
            ("s.*", "s.>", false),
            ("s.a.*", "s.*.*", false),
            (">", "s.urls", true),
            ("s.>", "s", false),
        ] {
            assert_eq!(covers(pattern, subject), expected, "{pattern} {subject}");
        }
    }
}
