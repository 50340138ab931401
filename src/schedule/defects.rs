//! Defects that a document does not show by itself: what is missing of its body,
//! dates to come, URLs listed twice.

use crate::fetch::body::Lack;
use crate::parse::doubt::Doubts;
use crate::parse::{Issue, IssueCode, Report};

/// Adds them to the report of a read; `repeated` entries repeat another one.
pub(super) fn add(
    report: &mut Report,
    lack: Option<(Lack, String)>,
    doubts: Doubts,
    repeated: u64,
) {
    report.issues.extend(doubts.into_issues());
    if repeated > 0 {
        let code = IssueCode::DuplicateUrl;
        report.issues.push(Issue { count: repeated, ..Issue::of_whole(code) });
    }
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
