//! Judging many URLs of one document.
//!
//! Most listed URLs are spelled as they are kept, and lie where others of their
//! document lie. What [`SiteRules::admit`] has found of scheme, host and port then
//! holds for them too, and the rest need not be parsed when no step could change it.
//! Keeps: what it says is what [`SiteRules::admit`] says, for any text.

use std::collections::HashMap;
use std::sync::Arc;

use url::Url;

use super::{Admitted, SiteRules};
use crate::config::Scope;
use crate::diff::snapshot::Rejection;

/// Places that are remembered: more than a document of 50,000 URLs has, as a rule.
const PLACES: usize = 4_096;
/// Bytes of a place that is: any host and its port are shorter.
const LONGEST: usize = 300;

/// Judges the URLs of one document, in any order.
#[derive(Debug)]
pub struct Judge<'r> {
    rules: &'r SiteRules,
    source: &'r Url,
    /// What is known of URLs that begin like one that was judged, by scheme, host and
    /// port as listed, up to the first slash of the path.
    places: HashMap<String, Kept>,
    /// The last that was asked for.
    last: Option<(String, Kept)>,
}

/// The authority that URLs are kept under, or why they are not.
type Kept = Result<Arc<str>, Rejection>;

impl<'r> Judge<'r> {
    /// For the URLs that the document at `source` lists.
    pub fn new(rules: &'r SiteRules, source: &'r Url) -> Self {
        Self { rules, source, places: HashMap::new(), last: None }
    }

    /// Judges one listed URL, as [`SiteRules::admit`] does.
    pub fn admit(&mut self, raw: &str) -> Result<Admitted, Rejection> {
        let Some((listed, path)) = split(raw).filter(|(_, path)| self.stays(path)) else {
            return self.rules.admit(raw, self.source);
        };
        let Some(kept) = self.place(listed) else {
            let judged = self.rules.admit(raw, self.source);
            if let Some(kept) = kept(&judged) {
                self.remember(listed, kept);
            }
            return judged;
        };
        if raw.len() > self.rules.max_url_chars {
            return Err(Rejection::TooLong);
        }
        let authority = kept?;
        if !self.rules.filter.is_empty() && !self.rules.filter.admits(&format!("{authority}{path}"))
        {
            return Err(Rejection::Excluded);
        }
        let respelled = &*authority != listed;
        Ok(Admitted { authority, path: path.to_owned(), respelled })
    }

    /// What is known of a place.
    fn place(&mut self, listed: &str) -> Option<Kept> {
        if let Some((last, kept)) = &self.last
            && last == listed
        {
            return Some(kept.clone());
        }
        let kept = self.places.get(listed)?;
        let (last, of_last) = self.last.get_or_insert_with(|| (String::new(), kept.clone()));
        listed.clone_into(last);
        of_last.clone_from(kept);
        Some(kept.clone())
    }

    fn remember(&mut self, listed: &str, kept: Kept) {
        if listed.len() > LONGEST {
            return;
        }
        if self.places.len() >= PLACES {
            self.places.clear();
        }
        self.places.insert(listed.to_owned(), kept);
    }

    /// Is this what is kept of the URL, whatever its host?
    fn stays(&self, path: &str) -> bool {
        // Whether a document may list it depends on the path as well.
        let bytes = path.as_bytes();
        if self.rules.scope == Scope::Directory || !bytes.iter().all(|byte| is_plain(*byte)) {
            return false;
        }
        let query = memchr::memchr(b'?', bytes);
        // A segment of dots is resolved.
        let in_path = bytes.get(..query.unwrap_or(bytes.len())).unwrap_or_default();
        if in_path.windows(2).any(|pair| pair == b"/.") {
            return false;
        }
        let query = query.and_then(|at| path.get(at + 1..));
        let name = |part: &str| part.split_once('=').map_or(part, |(name, _)| name).to_owned();
        query.is_none_or(|query| {
            !query.is_empty()
                && !query.split('&').any(|part| self.rules.strip.contains(&name(part)))
        })
    }
}

/// What a judgement of one URL says of all that begin like it.
fn kept(judged: &Result<Admitted, Rejection>) -> Option<Result<Arc<str>, Rejection>> {
    match judged {
        Ok(url) => Some(Ok(Arc::clone(&url.authority))),
        Err(Rejection::OutOfScope) => Some(Err(Rejection::OutOfScope)),
        // Of the host nothing is known then.
        Err(_) => None,
    }
}

/// Scheme, host and port as listed, and what follows; `None` for any spelling
/// that is not the usual one.
fn split(raw: &str) -> Option<(&str, &str)> {
    let start = ["https://", "http://"].into_iter().find(|scheme| raw.starts_with(scheme))?.len();
    let end = start + raw.get(start..)?.bytes().position(|byte| byte == b'/')?;
    let (listed, path) = raw.split_at_checked(end)?;
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
    // Without a host the parser looks for one behind the slashes.
    (end > start && listed.bytes().skip(start).all(usual)).then_some((listed, path))
}

/// [`may_stay`] of each byte.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < plain.len() {
        // Below 256.
        #[allow(clippy::cast_possible_truncation, clippy::indexing_slicing)]
        {
            plain[byte] = may_stay(byte as u8);
        }
        byte += 1;
    }
    plain
};

fn is_plain(byte: u8) -> bool {
    PLAIN.get(usize::from(byte)).copied().unwrap_or(false)
}

/// Is it a byte that neither the parser nor any step changes, in path and
/// query alike?
const fn may_stay(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'_'
                | b'.'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
                | b'/'
                | b'?'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;

    fn rules(extra: &str) -> SiteRules {
        let text = format!(
            "[[site]]\nname = \"a\"\nurl = \"https://www.example.org/\"\n\
             hosts = [\"b.example.org:8443\"]\n{extra}"
        );
        let config = Config::from_toml_str(&text).unwrap();
        SiteRules::new(config.sites.get("a").unwrap(), None)
    }

    proptest! {
        #[test]
        fn a_judge_says_what_the_rules_say(
            urls in prop::collection::vec((
                prop::sample::select(vec![
                    "https://www.example.org", "http://example.org", "https://WWW.example.org:443",
                    "https://b.example.org:8443", "https://www.example.org.", "http://other.test",
                    "https://u@www.example.org", "HTTPS://www.example.org", "https://", "//x", "",
                ]),
                "(/[a-zA-Z0-9%~./?&=#_é @:;,-]{0,30}|/a{30,60}|/[a-z./?&=]{0,20}|/?utm_source=[a-z]{0,3}&b=1)",
            ), 1..20),
            extra in prop::sample::select(vec![
                "", "scope = \"any\"\n", "scope = \"directory\"\n", "scope = \"domain\"\n",
                "twins = \"separate\"\n", "exclude = [\"*/a*\"]\n", "include = [\"*a*\"]\n",
                "normalise = []\n", "limits = { max_url_chars = 64 }\n",
            ]),
        ) {
            let rules = rules(extra);
            let source = Url::parse("https://www.example.org/maps/a.xml").unwrap();
            let mut judge = Judge::new(&rules, &source);
            for (place, path) in urls {
                let raw = format!("{place}{path}");
                prop_assert_eq!(judge.admit(&raw), rules.admit(&raw, &source), "{}", raw);
            }
        }
    }

    #[test]
    fn what_is_spelled_as_it_is_kept_needs_no_parsing() {
        let rules = rules("");
        let source = Url::parse("https://www.example.org/a.xml").unwrap();
        let judge = Judge::new(&rules, &source);
        for path in ["/", "/a/b-c_d~1.html", "//x", "/a?b=1&c", "/a?b=/.x", "/a:b@c;d,e"] {
            assert!(judge.stays(path), "{path}");
        }
        for path in ["/a/../b", "/./a", "/a?", "/a?utm_source=x", "/%41", "/a b", "/é", "/a#b"] {
            assert!(!judge.stays(path), "{path}");
        }
    }
}
