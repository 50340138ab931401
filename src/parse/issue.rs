//! Defects of documents: stable codes, the names webmasters know, counts, places.
//!
//! A defect is counted under its code; only the first of a code keeps its place
//! and a sample, so a report stays small whatever the document. The line is
//! worked out only then, so a clean document pays nothing. What a defect means
//! for polling or for the queue is decided by others.

mod code;

pub use code::{IssueCode, Severity};

/// One kind of defect of one document.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
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

impl Issue {
    /// A defect that shows only beside other documents, and so has no place.
    pub fn of_whole(code: IssueCode) -> Self {
        Self {
            code,
            severity: code.severity(),
            count: 1,
            line: 0,
            offset: 0,
            sample: String::new(),
        }
    }
}

/// Where in the decoded document something is. Cheap to make; the line is
/// counted only when it is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place<'a> {
    /// The part of the document at hand.
    pub(crate) text: &'a str,
    /// Byte in `text`.
    pub(crate) at: usize,
    /// Byte offset of the start of `text` in the decoded document.
    pub(crate) base_offset: u64,
    /// Line feeds before `text`.
    pub(crate) base_lines: u64,
    /// What ends a line here: `\n`, or `\r` in a document without any `\n`.
    pub(crate) newline: u8,
}

impl Place<'_> {
    /// Byte offset in the decoded document.
    pub fn offset(self) -> u64 {
        self.base_offset + self.at as u64
    }

    /// Line, from 1.
    pub fn line(self) -> u64 {
        let before = self.text.as_bytes().get(..self.at).unwrap_or_default();
        self.base_lines + count_byte(before, self.newline) + 1
    }
}

impl<'a> Place<'a> {
    /// The place of an earlier byte of the document, where that is still at
    /// hand; else this one.
    #[inline]
    pub(crate) fn back_to(self, offset: u64) -> Place<'a> {
        let at = offset.checked_sub(self.base_offset).and_then(|at| usize::try_from(at).ok());
        at.filter(|at| *at <= self.at).map_or(self, |at| Place { at, ..self })
    }
}

/// How often `byte` occurs; written so that it is vectorised.
#[inline]
pub(crate) fn count_byte(bytes: &[u8], byte: u8) -> u64 {
    // Lanes of u8 cannot overflow within 255 bytes.
    bytes
        .chunks(255)
        .map(|chunk| u64::from(chunk.iter().map(|b| u8::from(*b == byte)).sum::<u8>()))
        .sum()
}

/// The defects of one document, one entry per code.
#[derive(Debug, Default)]
pub(crate) struct Issues {
    list: Vec<Issue>,
}

impl Issues {
    /// Counts a defect; the first of its code keeps place and sample.
    pub(crate) fn note(&mut self, code: IssueCode, place: Place<'_>, sample: &str) {
        if let Some(known) = self.list.iter_mut().find(|issue| issue.code == code) {
            known.count += 1;
            return;
        }
        self.push(code, 1, place.line(), place.offset(), sample);
    }

    /// Enters a defect whose place was worked out elsewhere.
    pub(crate) fn push(
        &mut self,
        code: IssueCode,
        count: u64,
        line: u64,
        offset: u64,
        sample: &str,
    ) {
        if let Some(known) = self.list.iter_mut().find(|issue| issue.code == code) {
            known.count += count;
            return;
        }
        let sample = printable(sample);
        self.list.push(Issue { code, severity: code.severity(), count, line, offset, sample });
    }

    /// Takes back what turned out to be no defect.
    pub(crate) fn forget(&mut self, code: IssueCode) {
        self.list.retain(|issue| issue.code != code);
    }

    /// What was found so far.
    #[cfg(test)]
    pub(crate) fn list(&self) -> &[Issue] {
        &self.list
    }

    /// The list, in order of first appearance.
    pub(crate) fn into_list(self) -> Vec<Issue> {
        self.list
    }
}

/// Makes text from outside safe for one line of a terminal or a log: control
/// and direction-changing characters escaped, at most 200 characters.
pub fn printable(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let mut out = String::new();
    let mut chars = 0;
    for c in text.trim().chars() {
        let hidden = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        let width = if hidden { c.escape_default().count() } else { 1 };
        if chars + width > MAX_CHARS - 1 {
            out.push('…');
            break;
        }
        chars += width;
        if hidden {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_one_safe_line_of_at_most_200_characters() {
        let nasty = format!("a\u{1b}[31m\r\nb\u{202e}{}", "x".repeat(500));
        let shown = printable(&nasty);
        assert!(shown.starts_with("a\\u{1b}[31m\\r\\nb\\u{202e}x"), "{shown}");
        assert!(shown.chars().count() <= 200);
        assert!(!shown.chars().any(char::is_control));
    }

    #[test]
    fn only_the_first_of_a_code_keeps_its_place() {
        let mut issues = Issues::default();
        let text = "one\ntwo\nthree";
        let place = |at| Place { text, at, base_offset: 100, base_lines: 7, newline: b'\n' };
        issues.note(IssueCode::InvalidUrl, place(8), "three");
        issues.note(IssueCode::InvalidUrl, place(0), "one");
        let list = issues.into_list();
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].count, list[0].line, list[0].offset), (2, 10, 108));
        assert_eq!(list[0].sample, "three");
    }

    #[test]
    fn bytes_are_counted_over_any_length() {
        for len in [0, 1, 254, 255, 256, 1000] {
            assert_eq!(count_byte(&vec![b'\n'; len], b'\n'), len as u64);
        }
    }
}
