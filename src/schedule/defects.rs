//! Defects that a document does not show by itself: what is missing of its body,
//! dates to come, URLs listed twice.

use crate::fetch::body::Lack;
use crate::parse::doubt::Doubts;
use crate::parse::{Issue, IssueCode, Report};

/// Adds them to the report of a read; `repetition` is that of entries that
/// repeat another one.
pub(super) fn add(
    report: &mut Report,
    lack: Option<(Lack, String)>,
    doubts: Doubts,
    repetition: Option<Issue>,
) {
    report.issues.extend(doubts.into_issues());
    report.issues.extend(repetition);
    if let Some((lack, how)) = lack {
        lacks(report, lack, &how);
    }
}

/// Says in a report what its body lacks.
pub fn lacks(report: &mut Report, lack: Lack, how: &str) {
    let code = match lack {
        Lack::TooLarge => IssueCode::FileTooLarge,
        Lack::Compression => IssueCode::CompressionError,
    };
    report.lacks(code, how);
}
