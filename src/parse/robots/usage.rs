//! What a robots.txt says of the use of content, by path.
//!
//! A line may begin with a pattern of paths, which is matched as a rule is
//! (draft-ietf-aipref-attach): of the lines for an agent the one with the longest
//! pattern counts, and one without a pattern is for all that no other is for. The
//! text is kept as it stands; what it asks for is the fetchers' to heed.

use std::sync::Arc;

use super::rules::{Rule, Verdict, spelled};

/// Lines with a pattern that are kept for one agent: each path that is leased is held
/// against them.
const MAX_SCOPED: usize = 100;

/// What a robots.txt says about the use of content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// `Content-Signal` of the group, else of the file.
    pub content_signal: Preferences,
    /// `Content-Usage` of the group, else of the file.
    pub content_usage: Preferences,
    /// `License` of the file, which is for everybody, wherever it stands.
    pub license: Option<String>,
}

/// One `Content-Signal` or `Content-Usage` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Preference {
    /// The paths that it is for; all, if there is none.
    pattern: Option<Rule>,
    line: Arc<str>,
    /// Bytes of the line before what is preferred.
    begins: usize,
}

impl Preference {
    /// From the value of its line; an empty one says nothing.
    pub(super) fn new(value: &str) -> Option<Self> {
        let end = value.find(char::is_whitespace).unwrap_or(value.len());
        let (word, rest) = value.split_at(end);
        let pattern =
            if word.starts_with(['/', '*']) { Rule::new(Verdict::Allow, word) } else { None };
        let begins = if pattern.is_some() { value.len() - rest.trim_start().len() } else { 0 };
        (!value.is_empty()).then(|| Self { pattern, line: Arc::from(value), begins })
    }

    /// As it stands in the file.
    pub(super) fn line(&self) -> &str {
        &self.line
    }

    fn length(&self) -> usize {
        self.pattern.as_ref().map_or(0, Rule::length)
    }
}

/// The `Content-Signal` or `Content-Usage` lines for one agent, the strongest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preferences {
    stated: Vec<Preference>,
}

impl Preferences {
    /// Of lines as long as each other the first counts.
    pub(super) fn new<'p>(lines: impl Iterator<Item = &'p Preference>) -> Self {
        let (mut scoped, mut general) = (0, None);
        let mut stated = Vec::new();
        for line in lines {
            if line.pattern.is_none() {
                general = general.or(Some(line));
            } else if scoped < MAX_SCOPED {
                scoped += 1;
                stated.push(line.clone());
            }
        }
        stated.extend(general.cloned());
        stated.sort_by_key(|line| std::cmp::Reverse(line.length()));
        Self { stated }
    }

    /// What is preferred for a path (with its query), as it stands.
    pub fn of(&self, path_and_query: &str) -> Option<&str> {
        let mut path = None;
        let strongest = self.stated.iter().find(|line| match &line.pattern {
            Some(pattern) => pattern.matches(path.get_or_insert_with(|| spelled(path_and_query))),
            None => true,
        })?;
        let text = strongest.line.get(strongest.begins..).unwrap_or_default();
        (!text.is_empty()).then_some(text)
    }

    /// Its lines as they stand, the strongest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.stated.iter().map(Preference::line)
    }

    /// Is nothing said at all?
    pub(super) fn is_empty(&self) -> bool {
        self.stated.is_empty()
    }

    /// Octets that are looked at to find what is said of a path of so many, about.
    pub fn work(&self, path: usize) -> usize {
        self.stated.iter().filter(|line| line.pattern.is_some()).count().saturating_mul(path)
    }

    /// Memory that they take, about.
    pub fn bytes(&self) -> usize {
        /// Beside its text, which it has twice where it has a pattern.
        const LINE: usize = size_of::<Preference>() + 128;
        self.stated.iter().map(|line| LINE + 2 * line.line.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_with_the_longest_pattern_counts_and_one_without_for_the_rest() {
        let lines = ["/a/ train-ai=y", "train-ai=n", "/a/*.pdf$\tx", "/b", "search=y", "* z"];
        let lines: Vec<_> = lines.iter().filter_map(|line| Preference::new(line)).collect();
        let said = Preferences::new(lines.iter().take(5));
        for (path, want) in [
            ("/a/1?q", Some("train-ai=y")),
            ("/%61/1", Some("train-ai=y")),
            ("/a/1.pdf", Some("x")),
            ("/a/1.pdf?q", Some("train-ai=y")),
            ("/b/1", None),
            ("/c", Some("train-ai=n")),
        ] {
            assert_eq!(said.of(path), want, "{path}");
        }
        assert_eq!(Preferences::new(lines.iter()).of("/c"), Some("z"));
        assert_eq!(Preferences::new(lines.iter().take(1)).of("/c"), None);
        assert!(Preferences::default().of("/").is_none() && Preference::new("").is_none());
    }

    #[test]
    fn no_more_patterns_are_kept_than_a_path_is_held_against() {
        let lines: Vec<_> =
            (0..1_000).filter_map(|n| Preference::new(&format!("/{n}/ x={n}"))).collect();
        let general = Preference::new("y");
        let said = Preferences::new(lines.iter().chain(&general));
        assert_eq!((said.of("/7/"), said.of("/999/")), (Some("x=7"), Some("y")));
        assert_eq!(said.lines().count(), MAX_SCOPED + 1);
    }
}
