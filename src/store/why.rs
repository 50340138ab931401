//! Why a URL is due when it is, or is not due, in one plain sentence.
//!
//! Pure: from a view, and what else is kept of the URL. How its last lease ended comes
//! first, since that may have decided; then what was said of it since; then the
//! interval. Keeps: nothing is said to be new, or never fetched, that was. Where an
//! interval or a signal decides, what was learned tells more (`explain`).

use jiff::Timestamp;

use super::ending::{End, ceil_seconds};
use super::record::Record;
use super::views::{UrlState, UrlView};
use crate::model::span::{due, when};
use crate::model::{Outcome, Priority, Reason};
use crate::recrawl::GONE_PARKS;

/// It was released for a while.
const GIVEN_BACK: &str = "a fetcher gave it back until then";
/// It was reported `blocked`.
const BLOCKED: &str = "the last fetcher was not let in, so it is left alone for a day";

/// What is kept of a URL and no field of its view says.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    pub(super) record: Record,
    /// A client of the frontier wants it never again.
    pub(super) is_completed: bool,
    /// When a look is owed because its lastmod names the day of the last one.
    pub(super) day_end: Option<Timestamp>,
}

/// A sentence, and whether it is the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) text: String,
    /// Does its interval, or a signal, decide? Then numbers of what was learned say
    /// more; else only where they have moved the time.
    pub(super) is_open: bool,
}

impl Why {
    fn last(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_open: false }
    }

    fn open(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_open: true }
    }
}

/// Why a URL is due when it is, in one plain sentence.
pub(super) fn why(view: &UrlView, past: &Past, now: Timestamp) -> Why {
    if view.state != UrlState::Queued {
        return Why::last(held(view, past, now));
    }
    let because = because(view, past, now);
    let at = view.due_at.map_or_else(|| "due".to_owned(), |at| due(at, now));
    let priority = view.priority.unwrap_or(Priority::DEFAULT).as_f64();
    let news = if is_fresh(view, now) { "; fresh news, before other URLs of its host" } else { "" };
    let text = format!("{at}: {}; priority {priority:.1}{news}", because.text);
    Why { text, ..because }
}

/// Why it is not in the queue.
fn held(view: &UrlView, past: &Past, now: Timestamp) -> String {
    let rare = past.record.rare();
    let held = match view.state {
        UrlState::Leased => {
            let worker = view.worker.as_deref().unwrap_or("a fetcher");
            let left = view.leased_until.map_or_else(String::new, |until| {
                format!(", whose lease ends {}", when(until, now))
            });
            return format!("with {worker}{left}; it is due again once that is settled or expires");
        }
        UrlState::Parked if past.is_completed => {
            "not due: it is complete, as was told over URLFrontier; a report with a date there, or a \
             source that says that it changed, brings it back"
        }
        UrlState::Parked if rare.is_some_and(|rare| rare.folded_into.is_some()) => {
            "not due: it redirects to a listed URL, which stands for it"
        }
        UrlState::Parked
            if view.listed && view.expires_at.is_some() && past.record.gone < GONE_PARKS =>
        {
            return expired(view.expires_at.unwrap_or(now), now);
        }
        UrlState::Parked if view.outcome == Some(Outcome::Gone) => {
            "not due: it is gone; a source that lists it anew brings it back"
        }
        UrlState::Parked => {
            "not due: the site's rules do not want it; when they do, its source brings it back"
        }
        UrlState::Dead => {
            "not due: given up after too many failed deliveries; `queue replay` brings it back"
        }
        UrlState::Blocked => "not due: an operator's block holds it until lifted",
        UrlState::Forbidden => "not due: robots.txt forbids it; judged anew when that changes",
        UrlState::Queued => "",
    };
    held.to_owned()
}

/// Why a page is not due whose videos all have an end.
fn expired(end: Timestamp, now: Timestamp) -> String {
    let when = when(end, now);
    let why = if end <= now {
        format!("the last of its videos expired {when}")
    } else {
        format!("the last of its videos expires {when}, before it would be due again")
    };
    format!("not due: {why}; a sitemap that moves that date, or drops the videos, brings it back")
}

/// Why it is due just then.
fn because(view: &UrlView, past: &Past, now: Timestamp) -> Why {
    let left_alone = left_alone(view, past);
    let mut why = if view.attempt > 0 { tried(view, past) } else { wanted(view, past, now) };
    match left_alone {
        // Its interval alone would have it due at another time.
        Some(alone) if why.is_open && view.reason == Reason::Recrawl => return Why::last(alone),
        Some(alone) => why = Why::last(format!("{}; {alone}", why.text)),
        None => {}
    }
    if ended(past) == Some(End::Released) && left_alone != Some(GIVEN_BACK) {
        why.text += "; the last fetcher gave it back";
    }
    why
}

/// What puts it off to the very time that it is due, if anything does.
fn left_alone(view: &UrlView, past: &Past) -> Option<&'static str> {
    let (record, due_s) = (&past.record, view.due_at?.as_second());
    if record.floor_s() != Some(due_s) {
        return None;
    }
    let ended_s = record.ended.map_or(i64::MAX, |ended| ended.at().div_euclid(1000));
    Some(match record.not_before_s.filter(|floor_s| *floor_s == due_s) {
        None => BLOCKED,
        Some(floor_s) if ended(past) == Some(End::Released) && floor_s > ended_s => GIVEN_BACK,
        Some(_) if view.status == Some(429) => "the page asked to be left alone for a while (429)",
        Some(_) => "its last fetcher asked for it no sooner",
    })
}

/// It has been tried, and nobody has seen it.
fn tried(view: &UrlView, past: &Past) -> Why {
    let asked = if view.reason == Reason::Submitted { "someone asked for it; " } else { "" };
    let how = match (ended(past), view.outcome) {
        (Some(End::Expired), _) => "its last lease ended without a report: ".to_owned(),
        (Some(End::Settled), Some(Outcome::Failed)) => match view.status {
            Some(status) => format!("its last fetch failed (HTTP {status}): "),
            None => "its last fetch failed: ".to_owned(),
        },
        _ => String::new(),
    };
    let (next, tries) = (view.attempt + 1, view.attempt);
    Why::last(format!("{asked}{how}delivery {next} after {tries} without success"))
}

/// Nothing of it has failed since it was last seen, or last asked for.
fn wanted(view: &UrlView, past: &Past, now: Timestamp) -> Why {
    match view.reason {
        Reason::Submitted => Why::last("someone asked for it"),
        Reason::Removed => Why::last("no source lists it any more: is it gone?"),
        Reason::Changed => Why::open(match (view.lastmod, view.previous_lastmod) {
            (Some(now), Some(before)) if view.fetched_at.is_none_or(|at| now.at > at) => {
                format!("its lastmod moved from {before} to {now}")
            }
            _ => "a source says that it changed".to_owned(),
        }),
        Reason::New | Reason::Recrawl if has_failed(view, past) => Why::last(
            // A page's 429 costs no attempt, and what is replayed has none behind it.
            if view.status == Some(429) {
                "its last fetch failed"
            } else {
                "it was given up, and is tried again"
            },
        ),
        Reason::New if view.fetched_at.is_none() => Why::last(match ended(past) {
            None => "it is new and has not been fetched yet",
            Some(_) => "it has not been fetched yet",
        }),
        Reason::New if ended(past).is_none() => {
            Why::last("no fetcher has had it yet, though a crawl log tells of it")
        }
        Reason::New => Why::last("it is listed anew, after no source had it"),
        Reason::Recrawl => by_interval(view, past, now),
    }
}

/// Did its last lease come to nothing, though no delivery is counted against it?
fn has_failed(view: &UrlView, past: &Past) -> bool {
    match ended(past) {
        Some(End::Expired) => true,
        Some(End::Settled) => view.outcome == Some(Outcome::Failed),
        Some(End::Released) | None => false,
    }
}

/// It is looked at again, some time after the last look.
fn by_interval(view: &UrlView, past: &Past, now: Timestamp) -> Why {
    let is_folded = past.record.rare().is_some_and(|rare| rare.folded_into.is_some());
    match view.outcome {
        Some(Outcome::Gone) => {
            return Why::last("it was reported gone once, and is looked at again within a day");
        }
        Some(Outcome::Redirected) if is_folded => {
            return Why::last("it redirected to a listed URL, and is asked whether it still does");
        }
        Some(Outcome::Changed | Outcome::Unchanged | Outcome::Redirected | Outcome::Unknown)
            if is_at_day_end(view, past) =>
        {
            return Why::last(
                "its lastmod is the day of the last fetch, and that day may bring more",
            );
        }
        _ => {}
    }
    Why::open(match view.changefreq {
        _ if !view.listed => "no source lists it, so the longest interval holds".to_owned(),
        Some(word) => format!("its changefreq is {}, counted from the last fetch", word.as_str()),
        None if is_fresh(view, now) => {
            "it is news of the last two days, looked at hourly".to_owned()
        }
        None => "it has no changefreq, so the interval for such URLs holds".to_owned(),
    })
}

/// Is it due because the day ends then that its lastmod names?
fn is_at_day_end(view: &UrlView, past: &Past) -> bool {
    let (Some(due), Some(end)) = (view.due_at, past.day_end) else { return false };
    [end.as_second(), ceil_seconds(end.as_millisecond())].contains(&due.as_second())
}

fn is_fresh(view: &UrlView, now: Timestamp) -> bool {
    view.fresh_until.is_some_and(|until| until > now)
}

fn ended(past: &Past) -> Option<End> {
    past.record.ended.map(|ended| ended.how)
}

#[cfg(test)]
mod tests;
