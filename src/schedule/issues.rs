//! The issues of a read as they are written down with its source.

use crate::parse::{Issue, IssueCode, Report, Severity};

/// Kinds of issues written down.
const MAX_ISSUES: usize = 50;

/// What shows only beside other documents, or by the rules of the site.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside {
    /// Are removals held, since the source shrank too much?
    pub(super) held: bool,
    /// Is it an index too deep below others?
    pub(super) too_deep: bool,
    /// Children over the quota of the site.
    pub(super) refused_sitemaps: u64,
    /// Children whose URLs are too long as they are sent.
    pub(super) long_sitemaps: u64,
    /// Images, videos and alternates over the limit on what is followed.
    pub(super) followed_cut: u64,
}

impl Beside {
    fn counts(&self) -> [(u64, IssueCode); 5] {
        [
            (self.refused_sitemaps, IssueCode::TooManySitemaps),
            (self.long_sitemaps, IssueCode::UrlTooLong),
            (self.followed_cut, IssueCode::TooManyFollowed),
            (self.held.into(), IssueCode::Shrunk),
            (self.too_deep.into(), IssueCode::NestedIndexes),
        ]
    }

    /// Is any of it more than a warning?
    pub(super) fn has_errors(&self) -> bool {
        let is_error = |code: IssueCode| code.severity() != Severity::Warning;
        self.counts().into_iter().any(|(count, code)| count > 0 && is_error(code))
    }
}

/// All issues, as a JSON array.
pub(super) fn as_json(report: &Report, beside: &Beside) -> String {
    let mut issues: Vec<_> = report.issues.iter().take(MAX_ISSUES).cloned().collect();
    for (count, code) in beside.counts().into_iter().filter(|(count, _)| *count > 0) {
        match issues.iter_mut().find(|issue| issue.code == code) {
            Some(known) => known.count += count,
            None => issues.push(Issue { count, ..Issue::of_whole(code) }),
        }
    }
    serde_json::to_string(&issues).unwrap_or_default()
}
