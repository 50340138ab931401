//! A submission as JSON: what Search Console says of a sitemap, in our spelling.
//!
//! Anybody may ask for one whose name they know. So it says what the document
//! itself shows, and nothing of us: no addresses, no excerpts, no texts of
//! errors, no site. What was not taken in counts as a defect here, by its known name,
//! since the webmaster has no other way to hear of it.

use serde::Serialize;

use super::Time;
use super::sources::{CONSOLE_TYPES, Contents, STATUSES, console_type};
use crate::model::{DocumentKind, SourceId};
use crate::parse::Issue;
use crate::parse::{IssueCode, Severity};
use crate::store::ROBOTS_UNREADABLE;
use crate::store::submissions::SubmissionView;
use crate::store::views::SourceView;

/// The status of what was submitted, as anybody may see it. The fields up to `contents` are those of
/// Search Console's sitemaps resource.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "SubmissionStatus")]
pub(crate) struct Told {
    /// What was submitted.
    path: String,
    /// When it was last submitted.
    last_submitted: Time,
    /// Has it not been read yet?
    is_pending: bool,
    /// Is it an index of sitemaps?
    is_sitemaps_index: bool,
    /// Search Console's word for what it is.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = CONSOLE_TYPES))]
    console_type: &'static str,
    /// When it was last read with success; null where it never was.
    last_downloaded: Option<Time>,
    /// Defects of the last read that lost nothing.
    warnings: u64,
    /// Defects of the last read that lost something.
    errors: u64,
    /// Entries of the last read, by type; empty before one.
    contents: Vec<Contents>,

    /// Names the submission.
    id: String,
    /// What came of its last poll; `has-errors`: read, with defects or not to its end.
    #[schemars(extend("enum" = STATUSES))]
    pub(crate) status: String,
    /// The same as webmasters know it: "Success", "Has errors", …
    pub(crate) status_name: &'static str,
    /// One sentence: what this means, or what it waits for.
    pub(crate) why: String,
    /// Why it could not be fetched, by its known name; null where it could.
    pub(crate) fetch_error: Option<String>,
    /// The defects of the last read, one of each kind.
    pub(crate) processing_errors: Vec<ProcessingError>,
    /// When it was last asked for; null where it never was.
    last_poll_at: Option<Time>,
    /// When it is asked for next; null where it is not.
    pub(crate) next_poll_at: Option<Time>,
}

/// One kind of defect.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct ProcessingError {
    /// As webmasters know it.
    pub(crate) name: &'static str,
    /// As the API of operators names it.
    code: IssueCode,
    /// How much it matters.
    severity: Severity,
    /// How often.
    pub(crate) count: u64,
    /// Line of the first, from 1; null where it has none.
    pub(crate) line: Option<u64>,
    /// What to do about it.
    advice: &'static str,
}

/// A submission as operators see it.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Submission {
    /// Names the submission.
    id: String,
    /// What was submitted.
    url: String,
    /// When it was first submitted.
    first_submitted: Time,
    /// When it was last submitted.
    last_submitted: Time,
    /// How often it was submitted.
    times: u64,
    /// The source that it is; null while it waits.
    source: Option<SourceId>,
    /// The site of that source; null while it waits.
    site: Option<String>,
    /// What came of its last poll; `has-errors`: read, with defects or not to its end.
    #[schemars(extend("enum" = STATUSES))]
    status: String,
}

impl From<SubmissionView> for Submission {
    fn from(view: SubmissionView) -> Self {
        let source = view.source.as_ref();
        Self {
            id: view.id.to_string(),
            first_submitted: Time(view.at),
            last_submitted: Time(view.last_at),
            times: view.times,
            source: source.map(|source| source.id),
            site: source.and_then(|source| source.site.clone()),
            status: source
                .map_or("pending", |source| status_of(source, &defects(source)))
                .to_owned(),
            url: view.url,
        }
    }
}

impl From<SubmissionView> for Told {
    fn from(view: SubmissionView) -> Self {
        let is_retired = view.source.as_ref().is_some_and(|source| source.state == "retired");
        // One that an operator dropped waits like any other.
        let is_there =
            |state: &str, status: &str| state != "retired" || status == "could-not-fetch";
        let source = view.source.filter(|source| is_there(&source.state, &source.status));
        let Some(source) = source else {
            return Self {
                path: view.url,
                last_submitted: Time(view.last_at),
                is_pending: true,
                is_sitemaps_index: false,
                console_type: "sitemap",
                last_downloaded: None,
                warnings: 0,
                errors: 0,
                contents: Vec::new(),
                id: view.id.to_string(),
                status: "pending".to_owned(),
                status_name: "Pending",
                why: "nobody polls it: it waits until the robots.txt of a registered site names \
                      it, or an operator takes it"
                    .to_owned(),
                fetch_error: None,
                processing_errors: Vec::new(),
                last_poll_at: None,
                next_poll_at: None,
            };
        };
        let issues = defects(&source);
        let status = status_of(&source, &issues);
        let (status_name, why) = match status {
            _ if is_retired => {
                ("Couldn't fetch", "it was given up, and is not polled any more".to_owned())
            }
            "success" => ("Success", taken_in(&source)),
            "has-errors" => ("Has errors", taken_in(&source)),
            "could-not-fetch" => ("Couldn't fetch", "it will be tried again".to_owned()),
            _ => ("Pending", "it has not been polled yet".to_owned()),
        };
        let fetch_error = (status_name == "Couldn't fetch").then(|| {
            fetch_error(source.failing.as_deref().unwrap_or_default(), source.http_status)
        });
        let processing_errors = issues.iter().map(ProcessingError::from).collect();
        let (errors, warnings) = issues.iter().fold((0, 0), |(errors, warnings), issue| {
            let is_warning = issue.severity == Severity::Warning;
            let count = issue.count;
            if is_warning { (errors, warnings + count) } else { (errors + count, warnings) }
        });
        Self {
            path: view.url,
            last_submitted: Time(view.last_at),
            is_pending: source.status == "pending",
            is_sitemaps_index: source.kind == Some(DocumentKind::Index),
            console_type: console_type(source.role, source.kind),
            last_downloaded: source.last_success_at.map(Time),
            warnings,
            errors,
            contents: vec![Contents { content_type: "web", submitted: source.entries }],
            id: view.id.to_string(),
            status: status.to_owned(),
            status_name,
            why,
            fetch_error,
            processing_errors,
            last_poll_at: source.last_poll_at.map(Time),
            next_poll_at: source.next_poll_at.map(Time),
        }
    }
}

impl Told {
    /// What was submitted.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl From<&Issue> for ProcessingError {
    fn from(issue: &Issue) -> Self {
        Self {
            name: issue.code.title(),
            code: issue.code,
            severity: issue.severity,
            count: issue.count,
            line: (issue.line > 0).then_some(issue.line),
            advice: issue.code.advice(),
        }
    }
}

/// What the last read found, and what of its URLs was refused.
fn defects(source: &SourceView) -> Vec<Issue> {
    let mut issues = source.issues.clone();
    // A feed may well link to others: that is what some are for. So may what a site
    // has followed beside its pages, such as images.
    let (_, all) = refused(source);
    let may_stray = source.kind.is_some_and(DocumentKind::is_feed) || all > source.entries;
    for (fate, code) in [
        ("out-of-scope", IssueCode::UrlNotAllowed),
        ("invalid", IssueCode::InvalidUrl),
        ("too-long", IssueCode::UrlTooLong),
        ("quota", IssueCode::TooManyUrls),
    ] {
        let count = source.admitted.get(fate).copied().unwrap_or(0);
        if count == 0 {
            continue;
        }
        let is_fair = may_stray && code == IssueCode::UrlNotAllowed;
        match issues.iter_mut().find(|issue| issue.code == code) {
            Some(known) => known.count += count,
            None if is_fair => {
                let severity = Severity::Warning;
                issues.push(Issue { severity, count, ..Issue::of_whole(code) });
            }
            None => issues.push(Issue { count, ..Issue::of_whole(code) }),
        }
    }
    issues
}

/// How many URLs the last read listed and refused, for whatever reason, and how
/// many it listed.
fn refused(source: &SourceView) -> (u64, u64) {
    let all = source.admitted.values().sum::<u64>();
    (all - source.admitted.get("accepted").copied().unwrap_or(0), all)
}

/// The status, which is no success where something of what is listed was lost, or all
/// of it was refused.
fn status_of<'a>(source: &'a SourceView, issues: &[Issue]) -> &'a str {
    let (refused, all) = refused(source);
    let is_lost = issues.iter().any(|issue| issue.severity != Severity::Warning);
    match source.status.as_str() {
        "success" if is_lost || all > 0 && refused == all => "has-errors",
        status => status,
    }
}

/// What became of what was listed.
fn taken_in(source: &SourceView) -> String {
    let (refused, all) = refused(source);
    let urls = if all == 1 { "URL" } else { "URLs" };
    let said = match (refused, all) {
        (0, 0) if source.entries == 0 => "it was read, and lists nothing".to_owned(),
        (0, _) if source.status == "has-errors" => {
            "it was read; what could be used of it was taken in".to_owned()
        }
        (0, _) => "it was read, and all it lists was taken in".to_owned(),
        (refused, all) if refused == all => {
            format!("it was read, and of its {all} {urls} none was taken in")
        }
        (refused, all) => {
            format!("it was read; of its {all} {urls} {refused} could not be taken in")
        }
    };
    let is_barred = |issue: &&Issue| issue.code == IssueCode::UrlBlocked;
    match source.issues.iter().find(is_barred) {
        Some(barred) => format!("{said}; robots.txt forbids {} of them", barred.count),
        None => said,
    }
}

/// The known name of what a source fails with.
fn fetch_error(failing: &str, http_status: Option<u16>) -> String {
    match (failing, http_status) {
        ("forbidden", _) => "Sitemap blocked by robots.txt".to_owned(),
        (ROBOTS_UNREADABLE, _) => "robots.txt unreachable".to_owned(),
        ("unsupported", _) => "Unsupported format".to_owned(),
        ("throttled", _) => "Temporary error".to_owned(),
        (_, Some(status)) if status >= 400 => format!("HTTP error {status}"),
        _ => "General HTTP error".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_errors_have_the_names_that_webmasters_know() {
        for (result, status, name) in [
            ("not-found", Some(404), "HTTP error 404"),
            ("failed", Some(502), "HTTP error 502"),
            ("failed", None, "General HTTP error"),
            ("blocked", None, "General HTTP error"),
            ("throttled", Some(429), "Temporary error"),
            ("forbidden", None, "Sitemap blocked by robots.txt"),
            ("robots-unreadable", None, "robots.txt unreachable"),
            ("unsupported", Some(200), "Unsupported format"),
        ] {
            assert_eq!(fetch_error(result, status), name, "{result} {status:?}");
        }
    }
}
