//! The elements that are open, by their names as written.
//!
//! quick-xml is told not to check end tags; this stack does, so that one wrong
//! tag closes what it must and no more.

use super::names::{Ns, Scopes};

/// Names that hold a document together: an end tag of one of these closes all
/// that is open inside, however deep.
const ANCHORS: [&str; 10] = [
    "url",
    "sitemap",
    "urlset",
    "sitemapindex",
    "item",
    "entry",
    "channel",
    "rss",
    "feed",
    "rdf:rdf",
];

/// Which open element an end tag closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closes {
    /// The innermost one.
    Top,
    /// The one at this depth, and all inside it.
    At(usize),
    /// None: it is passed over.
    Nothing,
}

/// Open elements and the prefixes that they declare.
#[derive(Debug)]
pub(super) struct Stack {
    names: String,
    starts: Vec<usize>,
    pub(super) scopes: Scopes,
    /// Elements open beyond the depth that is read.
    pub(super) overflow: usize,
    /// So many of the outermost elements are open behind the document: a script
    /// or a server added them. They are not missed when they stay open.
    pub(super) behind: usize,
}

impl Stack {
    pub(super) fn new() -> Self {
        Self {
            names: String::new(),
            starts: Vec::new(),
            scopes: Scopes::new(),
            overflow: 0,
            behind: 0,
        }
    }

    /// Depth of the innermost open element; 0 outside the root.
    pub(super) fn depth(&self) -> usize {
        self.starts.len()
    }

    #[inline]
    pub(super) fn push(&mut self, name: &str) {
        self.starts.push(self.names.len());
        self.names.push_str(name);
    }

    /// Closes the innermost element.
    pub(super) fn pop(&mut self) {
        let depth = self.depth();
        if let Some(start) = self.starts.pop() {
            self.names.truncate(start);
            self.scopes.leave(depth);
            self.behind = self.behind.min(depth - 1);
        }
    }

    /// The name of the innermost element.
    #[inline]
    pub(super) fn top(&self) -> &str {
        self.starts.last().and_then(|start| self.names.get(*start..)).unwrap_or_default()
    }

    /// The local name of the root, where one is open.
    pub(super) fn root(&self) -> Option<&str> {
        (self.depth() > 0).then(|| local(self.name_at(1)))
    }

    /// The name of the element at `depth`.
    fn name_at(&self, depth: usize) -> &str {
        let start = self.starts.get(depth - 1).copied().unwrap_or_default();
        let end = self.starts.get(depth).copied().unwrap_or(self.names.len());
        self.names.get(start..end).unwrap_or_default()
    }

    /// Finds what an end tag closes.
    pub(super) fn closes(&self, name: &str) -> Closes {
        // Where nothing is open, an end tag without a name closes nothing.
        if self.overflow == 0 && self.depth() > 0 && self.top() == name {
            return Closes::Top;
        }
        let anchor = ANCHORS.iter().any(|a| a.eq_ignore_ascii_case(name));
        if self.overflow > 0 && !anchor {
            return Closes::Nothing;
        }
        let exact = (1..=self.depth()).rev().find(|d| self.name_at(*d) == name);
        let any_case =
            || (1..=self.depth()).rev().find(|d| self.name_at(*d).eq_ignore_ascii_case(name));
        if let Some(depth) = exact.or_else(any_case) {
            return Closes::At(depth);
        }
        let same_local =
            !self.top().is_empty() && local(self.top()).eq_ignore_ascii_case(local(name));
        if same_local { Closes::Top } else { Closes::Nothing }
    }

    /// The namespace of a name and whether it was declared.
    pub(super) fn resolve(&self, prefix: Option<&str>) -> (Ns, bool) {
        self.scopes.resolve(prefix)
    }
}

/// Bytes of the longest prefix that is told from a name: the name of an open element is
/// looked through for each tag in it.
const MAX_PREFIX: usize = 256;

/// The local part of a name.
fn local(name: &str) -> &str {
    let near = name.as_bytes().get(..=MAX_PREFIX).unwrap_or(name.as_bytes());
    let colon = memchr::memchr(b':', near);
    colon.and_then(|at| name.get(at + 1..)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_tag_closes_the_innermost_element_of_its_name() {
        let mut stack = Stack::new();
        assert_eq!(stack.closes(""), Closes::Nothing);
        for name in ["urlset", "url", "loc"] {
            stack.push(name);
        }
        assert_eq!(stack.closes("loc"), Closes::Top);
        assert_eq!(stack.closes("url"), Closes::At(2));
        assert_eq!(stack.closes("URLSET"), Closes::At(1));
        assert_eq!(stack.closes("sm:loc"), Closes::Top);
        assert_eq!(stack.closes("nothing"), Closes::Nothing);
    }

    #[test]
    fn beyond_the_depth_limit_only_an_anchor_closes_something() {
        let mut stack = Stack::new();
        for name in ["rss", "item", "b"] {
            stack.push(name);
        }
        stack.overflow = 3;
        assert_eq!(stack.closes("b"), Closes::Nothing);
        assert_eq!(stack.closes("item"), Closes::At(2));
    }
}
