//! Defects of documents: stable codes, the names webmasters know, counts, places.

/// How much a defect matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Tolerated without loss.
    Warning,
    /// Something of the document was lost.
    Error,
    /// Nothing of the document could be used.
    Fatal,
}

/// What kind of defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IssueCode {
    /// A bare `&`, an unclosed tag, …
    ParsingError,
}

/// One kind of defect of one document.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Issue {
    /// What kind.
    pub code: IssueCode,
    /// How much it matters.
    pub severity: Severity,
    /// How often.
    pub count: u64,
    /// Line of the first, from 1.
    pub line: u64,
    /// Byte offset of the first in the decoded document.
    pub offset: u64,
    /// A piece of the first, safe to print, at most 200 characters.
    pub sample: String,
}
