//! Globs over whole URLs, and the list of query parameters to take off.
//!
//! `*` stands for any run of characters, `/` included, `?` for exactly one,
//! everything else for itself. Both are compared byte by byte, as URLs are
//! ASCII. A star that has been passed is never come back to, so a match takes
//! at most the length of the URL times that of the glob, which is bounded.

use std::sync::{Arc, LazyLock};

use super::defaults::TRACKING_PARAMS;

/// Longest glob, in bytes; with the limit on URLs it bounds a match.
const MAX_GLOB: usize = 1_000;

/// One compiled glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// The stretches between the stars; one alone has no star at all.
    parts: Vec<Vec<u8>>,
}

/// The `include` and `exclude` of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UrlFilter {
    include: Vec<Glob>,
    exclude: Vec<Glob>,
}

/// The `strip_params` of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamSet {
    listed: Vec<String>,
    names: std::collections::BTreeSet<String>,
    prefixes: Vec<String>,
}

impl Glob {
    /// Reads a glob; an empty or overlong one is refused.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > MAX_GLOB {
            return Err(format!("allowed is a glob of 1 to {MAX_GLOB} bytes"));
        }
        Ok(Self { parts: text.split('*').map(|part| part.as_bytes().to_vec()).collect() })
    }

    /// Can it match a text that begins with one of these?
    pub fn may_begin_with(&self, beginnings: &[&str]) -> bool {
        // What is before the first star has to be there; `equal` ends with the shorter.
        let first = self.parts.first().map(Vec::as_slice).unwrap_or_default();
        beginnings.iter().any(|beginning| equal(first, beginning.as_bytes()))
    }

    /// Does the whole of `text` match?
    pub fn matches(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let [first, middle @ .., last] = self.parts.as_slice() else {
            // One part or none: there is no star.
            return self.parts.first().is_some_and(|only| only.len() == text.len())
                && self.parts.first().is_some_and(|only| equal(only, text));
        };
        if text.len() < first.len() + last.len() {
            return false;
        }
        let (head, rest) = text.split_at(first.len());
        let (mut rest, tail) = rest.split_at(rest.len() - last.len());
        if !equal(first, head) || !equal(last, tail) {
            return false;
        }
        // The leftmost place of each part leaves the most for the others, so
        // no choice is ever taken back.
        for part in middle {
            let Some(end) = find_end(part, rest) else { return false };
            rest = &rest[end..];
        }
        true
    }
}

impl UrlFilter {
    /// Compiles the globs of a site, which the configuration has checked.
    /// One that cannot be read (it cannot come from a [`super::Site`]) counts
    /// as matching nothing.
    pub fn new(include: &[String], exclude: &[String]) -> Self {
        let compile = |globs: &[String]| {
            let never = || Glob { parts: Vec::new() };
            globs.iter().map(|g| Glob::new(g).unwrap_or_else(|_| never())).collect()
        };
        Self { include: compile(include), exclude: compile(exclude) }
    }

    /// Is every URL wanted?
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Is `url` wanted: matched by an `include`, if there is any, and by no
    /// `exclude`?
    pub fn admits(&self, url: &str) -> bool {
        (self.include.is_empty() || self.include.iter().any(|g| g.matches(url)))
            && !self.exclude.iter().any(|g| g.matches(url))
    }
}

impl ParamSet {
    /// Compiles `strip_params`.
    pub fn new(listed: Vec<String>) -> Self {
        let mut set = Self::default();
        for param in &listed {
            match param.strip_suffix('*') {
                Some(prefix) => set.prefixes.push(prefix.to_owned()),
                None => _ = set.names.insert(param.clone()),
            }
        }
        set.listed = listed;
        set
    }

    /// The parameters as they are listed.
    pub fn listed(&self) -> &[String] {
        &self.listed
    }

    /// Those that a site takes off unless its configuration says otherwise; very many sites
    /// have them in common.
    pub fn of_tracking() -> &'static Arc<Self> {
        static TRACKING: LazyLock<Arc<ParamSet>> =
            LazyLock::new(|| Arc::new(ParamSet::new(TRACKING_PARAMS.map(str::to_owned).to_vec())));
        &TRACKING
    }

    /// Is the parameter of this name taken off? Letter case counts, as it
    /// does for the servers.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.prefixes.iter().any(|p| name.starts_with(p.as_str()))
    }
}

/// Are the two the same, where a `?` in the pattern is any byte?
fn equal(pattern: &[u8], text: &[u8]) -> bool {
    pattern.iter().zip(text).all(|(p, t)| p == t || *p == b'?')
}

/// The end of the leftmost place where `pattern` is in `text`.
fn find_end(pattern: &[u8], text: &[u8]) -> Option<usize> {
    if pattern.is_empty() {
        return Some(0);
    }
    let at = text.windows(pattern.len()).position(|window| equal(pattern, window))?;
    Some(at + pattern.len())
}

#[cfg(test)]
mod tests;
