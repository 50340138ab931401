//! How polls end: what an answer means, what is written down, what is logged.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use super::Poller;
use super::children::Children;
use super::interval::failure::THROTTLED;
use super::interval::hints::{Hints, Skip};
use super::interval::{Next, PollEvent, PollInput, Rhythm, next_poll, push};
use super::moves;
use crate::config::PollRule;
use crate::fetch::{Answer, FetchError, Head, Refusal, Validators, Wait};
use crate::metrics::PollFigures;
use crate::model::Role;
use crate::parse::{self, Report, Severity};
use crate::recrawl::later;
use crate::store::hubs::rules::Push;
use crate::store::views::Counts;
use crate::store::{
    FORBIDDEN, Kept, Moved, NextPollAt, PollEnd, PollTarget, ROBOTS_UNREADABLE, StoreError,
};
use crate::url::authority;

/// A 503 without Retry-After leaves its host alone for this long; a 429, which says that
/// we ask too much, for as long as its source waits at first.
const UNAVAILABLE: Duration = Duration::from_secs(60);
/// An answer that this machine could not keep is asked for again after about this.
const KEEPING: Duration = Duration::from_secs(600);
/// No origin keeps us away for longer (feeds.md: obey fully up to a day).
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3_600);

/// What came of a poll before anything was made of it.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) event: PollEvent,
    /// A word for tables and metrics.
    pub(super) result: &'static str,
    /// What fails, if anything does: finer than the result where one means two things.
    pub(super) failing: &'static str,
    pub(super) status: &'static str,
    pub(super) error: Option<String>,
    /// Has it found what a hub should have pushed?
    pub(super) missed_push: bool,
    /// Does it miss URLs that further reads decide on?
    pub(super) undecided: bool,
}

/// A poll that was not made.
#[derive(Debug, Clone, Copy)]
pub(super) struct PutOff {
    /// In steady time.
    pub(super) until: Timestamp,
    pub(super) wait: Wait,
}

/// How a poll of a robots.txt went.
pub(super) struct RobotsPoll<'a> {
    pub(super) ended: Ended,
    pub(super) answer: &'a Result<Answer, FetchError>,
    /// When it is asked for again, if it was read.
    pub(super) expires_at: Timestamp,
    /// Did all of it come, and is it one?
    pub(super) is_whole: bool,
    /// Its defects, as they are kept with its source; `None`: those that are known.
    pub(super) issues: Option<String>,
}

impl Ended {
    /// What an answer means as such, to who asked for that URL. A document counts as
    /// changed until somebody has looked at it.
    pub(super) fn of(answer: &Result<Answer, FetchError>, asked: &Url) -> Self {
        match answer {
            Ok(Answer::Document(_)) => {
                Self::good(PollEvent::Changed { new: 0, changed: 0 }, "changed")
            }
            Ok(Answer::Same(_)) => Self::good(PollEvent::Unchanged, "unchanged"),
            Ok(Answer::NotModified(_)) => Self::good(PollEvent::Unchanged, "not-modified"),
            Ok(Answer::Refused(head)) => Self::refused(head),
            Err(FetchError::Deferred(refusal @ Refusal::Robots { .. })) => {
                Self::bad(PollEvent::RobotsForbidden, "forbidden", refusal.to_string())
            }
            // That of its own host is asked for by itself, and wakes what waits for it;
            // that of a host where a redirect leads is, by who is led there again.
            Err(FetchError::Deferred(refusal @ Refusal::Unreadable { authority: of }))
                if *of == authority(asked) =>
            {
                let ended = Self::bad(PollEvent::RobotsForbidden, "forbidden", refusal.to_string());
                Self { failing: ROBOTS_UNREADABLE, ..ended }
            }
            Err(error @ FetchError::Blocked(_)) => {
                Self::bad(PollEvent::Denied { status: 0 }, "blocked", error.to_string())
            }
            Err(error) => Self::bad(PollEvent::Failed, "failed", error.to_string()),
        }
    }

    pub(super) fn good(event: PollEvent, result: &'static str) -> Self {
        Self {
            event,
            result,
            failing: result,
            status: "success",
            error: None,
            missed_push: false,
            undecided: false,
        }
    }

    pub(super) fn bad(event: PollEvent, result: &'static str, error: String) -> Self {
        let status = "could-not-fetch";
        Self { status, error: Some(error), ..Self::good(event, result) }
    }

    /// What a document means that was read.
    pub(super) fn by_document(
        report: &Report,
        complete: bool,
        suddenly_empty: bool,
        counts: Counts,
        children: Children,
    ) -> Ended {
        let changed = counts.changed + counts.touched + counts.removed + children.moved;
        let new = counts.new + children.added;
        if !complete {
            let error = if suddenly_empty {
                "the document is suddenly empty: nothing was removed for it"
            } else {
                "the document was not read to its end: what was complete is kept, nothing was removed"
            };
            let mut ended = Ended::good(PollEvent::Incomplete { new, changed }, "incomplete");
            ended.status = "has-errors";
            ended.error = Some(error.to_owned());
            return ended;
        }
        let mut ended = if new + changed == 0 {
            Ended::good(PollEvent::Unchanged, "unchanged")
        } else {
            Ended::good(PollEvent::Changed { new, changed }, "changed")
        };
        if report.issues.iter().any(|issue| issue.severity != Severity::Warning) {
            ended.status = "has-errors";
        }
        ended
    }

    fn refused(head: &Head) -> Self {
        let status = head.status;
        let (event, result) = match status {
            404 => (PollEvent::NotFound, "not-found"),
            410 => (PollEvent::Gone, "gone"),
            429 | 503 => {
                (PollEvent::Throttled { status, retry_after: head.retry_after }, "throttled")
            }
            500.. => (PollEvent::Failed, "failed"),
            _ => (PollEvent::Denied { status }, "denied"),
        };
        Self::bad(event, result, format!("HTTP error {status}"))
    }

    pub(super) fn failed(&self) -> bool {
        !matches!(
            self.event,
            PollEvent::Changed { .. } | PollEvent::Unchanged | PollEvent::Incomplete { .. }
        )
    }
}

impl Poller {
    /// Until when, and what for, where it was not our turn to ask. `who` asked: a
    /// number of its own.
    pub(super) fn put_off<T>(&self, answer: &Result<T, FetchError>, who: i64) -> Option<PutOff> {
        let spread = |pause: Duration| {
            let now = self.clock.steady();
            // Not all at once who were put off at once.
            later(now, pause.mul_f64(0.5 + chance(who, now)))
        };
        match answer {
            Err(FetchError::Deferred(Refusal::Later { until, wait })) => {
                Some(PutOff { until: *until, wait: *wait })
            }
            Err(FetchError::Deferred(Refusal::Crowded { pause, wait })) => {
                Some(PutOff { until: spread(*pause), wait: *wait })
            }
            // A disk of ours is no fault of the origin.
            Err(FetchError::NotKept(error)) => {
                tracing::warn!(
                    source = who,
                    error,
                    "an answer could not be kept, and is asked for again"
                );
                Some(PutOff { until: spread(KEEPING), wait: Wait::Keeping })
            }
            _ => None,
        }
    }

    /// Not now, says what the poll waits for. Nothing has happened.
    pub(super) async fn defer(&self, target: &PollTarget, off: PutOff) -> Result<(), StoreError> {
        let (until, why) = (self.clock.wall_at(off.until), off.wait.why());
        tracing::debug!(source = %target.id, %until, why, "poll put off");
        self.metrics.poll_put_off(off.wait.as_str());
        self.store.defer_poll(target.id, until, why).await
    }

    /// 429 and Retry-After are meant for the whole host.
    pub(super) async fn heed(&self, head: &Head) -> Result<(), StoreError> {
        self.heed_answer(&head.final_url, head.status, head.retry_after).await.map(|_| ())
    }

    /// The same of any answer, whatever was asked for; says how long its host is left
    /// alone for it.
    pub(super) async fn heed_answer(
        &self,
        url: &Url,
        status: u16,
        retry_after: Option<Duration>,
    ) -> Result<Option<Duration>, StoreError> {
        let (why, unasked) = match status {
            429 => ("HTTP 429", THROTTLED),
            503 => ("HTTP 503", UNAVAILABLE),
            _ => return Ok(None),
        };
        let pause = retry_after.unwrap_or(unasked).min(LONGEST_PAUSE);
        self.store.pause_host(authority(url), pause, why).await?;
        Ok(Some(pause))
    }

    /// When the source is polled next, and why.
    pub(super) fn next(&self, target: &PollTarget, ended: &Ended, hints: &Hints) -> NextPollAt {
        let config = Arc::clone(&self.config.borrow());
        let site = self.site_of(target);
        let adaptive = PollRule::Adaptive;
        let (rule, timezone) = match &site {
            // A rule of the site is meant for what lists its pages.
            Some(site) if matches!(target.role, Role::Sitemap | Role::Feed) => {
                (&site.poll, &site.timezone)
            }
            _ => (&adaptive, &config.daemon.timezone),
        };
        let failed = ended.failed();
        // Six timeouts and a 404 are no seven 404s.
        let again = target.failing.as_deref() == Some(ended.failing);
        let is_window = target.window > 0;
        let input = PollInput {
            now: self.clock.now(),
            poll: &config.poll,
            rule,
            timezone,
            previous: (target.interval_ms > 0 && target.last_success_at.is_some())
                .then(|| Duration::from_millis(target.interval_ms.unsigned_abs())),
            rhythm: target.rhythm.as_deref().and_then(kept_rhythm),
            window: is_window.then_some(target.entries),
            rotates: is_window && target.parent.is_some() && target.role == Role::Sitemap,
            event: ended.event,
            undecided: ended.undecided,
            failures: match (failed, again) {
                (false, _) => 0,
                (true, false) => 1,
                (true, true) => target.failures + 1,
            },
            failing_since: target.failing_since.filter(|_| failed && again),
            hints,
            phase: phase(target),
        };
        let next = next_poll(&input);
        let is_pushed = target.push.is_some_and(|push| push.is_healthy(input.now));
        let next = if is_pushed && !failed && !ended.missed_push {
            push::slowed(next, &input)
        } else {
            next
        };
        match next {
            Next::Poll(next) => NextPollAt {
                at: Some(next.at),
                interval_ms: i64::try_from(next.interval.as_millis()).unwrap_or(i64::MAX),
                rhythm: next.rhythm.and_then(|rhythm| serde_json::to_string(&rhythm).ok()),
                rule: if ended.event == PollEvent::RobotsForbidden {
                    FORBIDDEN.to_owned()
                } else {
                    next.rule.as_str().to_owned()
                },
                why: if ended.failing == ROBOTS_UNREADABLE {
                    "robots.txt cannot be reached, and nothing is allowed until it answers"
                        .to_owned()
                } else {
                    next.why
                },
            },
            Next::Retire { why } => NextPollAt {
                at: None,
                interval_ms: target.interval_ms,
                rhythm: target.rhythm.clone(),
                rule: "retired".to_owned(),
                why,
            },
        }
    }

    /// Would a hub have pushed what is new in this source?
    pub(super) fn is_promised(&self, target: &PollTarget) -> bool {
        let now = self.clock.now();
        let misses = |push: &Push| push.has_missed(target.last_success_at, now);
        target.push.as_ref().is_some_and(misses)
    }

    /// Ends the poll of a robots.txt: it is due again when its copy expires.
    pub(super) async fn finish_robots(
        &self,
        target: &PollTarget,
        began: Timestamp,
        read: RobotsPoll<'_>,
        changed: Option<i64>,
    ) -> Result<(), StoreError> {
        let RobotsPoll { ended, answer, expires_at, is_whole, issues } = read;
        let mut next = self.next(target, &ended, &Hints::default());
        // It has none, and there may be as many of them as there are pages.
        next.rhythm = None;
        if !ended.failed() {
            next.at = Some(expires_at);
            "fixed".clone_into(&mut next.rule);
            "once a day".clone_into(&mut next.why);
        }
        if next.at.is_none() {
            // It is never given up: whatever the host serves depends on it.
            next.at = Some(expires_at);
        }
        if target.site.is_none() {
            // A redirect led to its host. Who is led there again asks by itself.
            next.at = None;
            "fixed".clone_into(&mut next.rule);
            "it is asked for whenever a redirect leads to its host".clone_into(&mut next.why);
        }
        let kept = match validators_of_robots(target, answer, is_whole) {
            Some(validators) => {
                let is_full = matches!(answer, Ok(Answer::Document(_)));
                Kept::Robots { validators, changed, is_full, issues }
            }
            None => Kept::Nothing,
        };
        self.finish(target, began, ended, answer, next, Counts::default(), kept).await.map(|_| ())
    }

    /// Ends the poll of a page that is no document.
    pub(super) async fn finish_page(
        &self,
        target: &PollTarget,
        began: Timestamp,
        ended: Ended,
        answer: &Result<Answer, FetchError>,
    ) -> Result<(), StoreError> {
        let mut next = self.next(target, &ended, &Hints::default());
        if next.at.is_none() {
            // A home page that is gone is looked at again all the same.
            let max = self.config.borrow().poll.max;
            next.at = Some(crate::recrawl::later(began, max));
        }
        self.finish(target, began, ended, answer, next, Counts::default(), Kept::Nothing)
            .await
            .map(|_| ())
    }

    /// Writes how a poll ended, counts it, logs its one line.
    #[allow(clippy::too_many_arguments)] // the parts of one record
    pub(super) async fn finish(
        &self,
        target: &PollTarget,
        began: Timestamp,
        ended: Ended,
        answer: &Result<Answer, FetchError>,
        mut next: NextPollAt,
        counts: Counts,
        kept: Kept,
    ) -> Result<i64, StoreError> {
        let head = match answer {
            Ok(Answer::Document(fetched)) => Some(&fetched.head),
            Ok(Answer::Same(head) | Answer::NotModified(head) | Answer::Refused(head)) => {
                Some(head)
            }
            Err(_) => None,
        };
        if let Some(head) = head {
            self.heed(head).await?;
        }
        let took = Duration::try_from(self.clock.now().duration_since(began)).unwrap_or_default();
        let wire_bytes = head.map_or(0, |head| head.wire_bytes);
        let http_status = head.map(|head| head.status);
        let (body_bytes, entries) = match &kept {
            Kept::Read(read) => (read.bytes, read.entries),
            Kept::Seen(_) | Kept::Robots { .. } | Kept::Nothing => (0, 0),
        };
        let moved = moved(target, &ended, head, began);
        let place = moves::place(moved.as_ref(), &target.url, began);
        if target.role != Role::Home && place != target.url {
            let place = crate::log::redact(&place);
            next.why = format!("{}; it has moved for good and is asked at {place}", next.why);
        }
        let failed = ended.failed();
        let kept = self
            .store
            .finish_poll(PollEnd {
                tenure: target.tenure,
                source: target.id,
                at: began,
                took_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
                result: ended.result,
                failing: failed.then_some(ended.failing),
                status: ended.status,
                http_status,
                wire_bytes,
                counts,
                error: ended.error.clone(),
                next: next.clone(),
                moved,
                kept,
            })
            .await?;
        // Not before it has happened: what is refused is polled again, and who reads
        // of it may ask for it.
        self.metrics.poll_done(&PollFigures {
            result: ended.result,
            took,
            wire_bytes,
            body_bytes,
            entries,
            counts,
        });
        Self::log(target, &ended, &next, &counts, http_status, wire_bytes, entries, took);
        Ok(kept)
    }

    #[allow(clippy::too_many_arguments)] // the figures of one log line
    fn log(
        target: &PollTarget,
        ended: &Ended,
        next: &NextPollAt,
        counts: &Counts,
        http: Option<u16>,
        bytes: u64,
        entries: u64,
        took: Duration,
    ) {
        tracing::info!(
            site = target.site_name.as_deref().unwrap_or("-"),
            source = %target.id,
            url = crate::log::redact(&target.url),
            result = ended.result,
            http = http.unwrap_or(0),
            bytes,
            entries,
            new = counts.new,
            changed = counts.changed,
            touched = counts.touched,
            regressed = counts.regressed,
            unchanged = counts.unchanged,
            missing = counts.missing,
            removed = counts.removed,
            rejected = counts.rejected,
            ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            next = next.at.map_or_else(|| "never".to_owned(), |at| at.strftime("%FT%TZ").to_string()),
            why = next.why,
            error = ended.error.as_deref().unwrap_or(""),
            "poll"
        );
    }
}

/// Where the site of a home page is held to live.
pub(super) fn home_of(target: &PollTarget) -> &Url {
    target.site_origin.as_ref().unwrap_or(&target.url)
}

/// Where the redirects of a source lead, after this poll.
fn moved(
    target: &PollTarget,
    ended: &Ended,
    head: Option<&Head>,
    began: Timestamp,
) -> Option<Moved> {
    let known = target.moved.as_ref();
    match target.role {
        Role::Robots => return None,
        Role::Home => {
            let landed = head.filter(|_| !ended.failed()).map(|head| &head.final_url);
            let Some(landed) = landed else { return known.cloned() };
            return moves::after_home(known, home_of(target), landed, began);
        }
        Role::Sitemap | Role::Feed => {}
    }
    match (ended.event, head) {
        // Not there, or no longer what it was: its own place is asked again.
        (
            PollEvent::NotFound
            | PollEvent::Gone
            | PollEvent::NotASource
            | PollEvent::Denied { .. }
            | PollEvent::RobotsForbidden,
            _,
        ) => None,
        (_, Some(head)) if !ended.failed() => {
            moves::after_document(known, &target.url, &head.redirects, &head.final_url, began)
        }
        _ => known.cloned(),
    }
}

/// What a poll of robots.txt leaves behind beside its rules. Validators of a
/// 304 replace those they come with (RFC 9111 section 4.3.4); none is kept
/// across a redirect.
fn validators_of_robots(
    target: &PollTarget,
    answer: &Result<Answer, FetchError>,
    is_whole: bool,
) -> Option<Validators> {
    match answer {
        Ok(Answer::NotModified(head)) => {
            let (old, new) = (target.validators.clone(), head.validators.clone());
            Some(Validators {
                etag: new.etag.or(old.etag),
                last_modified: new.last_modified.or(old.last_modified),
            })
        }
        Ok(Answer::Same(head)) if head.redirects.is_empty() => Some(head.validators.clone()),
        Ok(Answer::Document(fetched)) if fetched.head.redirects.is_empty() && is_whole => {
            Some(fetched.head.validators.clone())
        }
        // Its rules were replaced, by those of no file.
        Ok(_) | Err(FetchError::Redirects(_)) => Some(Validators::default()),
        Err(_) => None,
    }
}

/// What a document and its answer ask of pollers.
pub(super) fn hints_of(document: &parse::Hints, head: &Head) -> Hints {
    Hints {
        max_age: head.max_age,
        ttl: document.min_interval_secs.map(|seconds| Duration::from_secs(u64::from(seconds))),
        skip: Skip { hours: document.skip_hours, days: document.skip_days },
    }
}

/// Hints as the store keeps them.
pub(super) fn hints_text(hints: &Hints) -> Option<String> {
    let seconds = |hint: Option<Duration>| hint.map(|hint| hint.as_secs());
    (*hints != Hints::default()).then(|| {
        serde_json::json!({
            "max_age": seconds(hints.max_age),
            "ttl": seconds(hints.ttl),
            "skip_hours": hints.skip.hours,
            "skip_days": hints.skip.days,
        })
        .to_string()
    })
}

/// Reads what [`hints_text`] wrote; anything else says nothing.
pub(super) fn kept_hints(text: Option<&str>) -> Hints {
    let Some(kept) = text.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
    else {
        return Hints::default();
    };
    let seconds = |key: &str| kept[key].as_u64().map(Duration::from_secs);
    let bits = |key: &str| kept[key].as_u64().and_then(|bits| u32::try_from(bits).ok());
    Hints {
        max_age: seconds("max_age"),
        ttl: seconds("ttl"),
        skip: Skip {
            hours: bits("skip_hours").unwrap_or(0),
            days: bits("skip_days").and_then(|days| u8::try_from(days).ok()).unwrap_or(0),
        },
    }
}

/// Reads a rhythm as the store keeps it; anything else says nothing.
fn kept_rhythm(text: &str) -> Option<Rhythm> {
    serde_json::from_str(text).ok()
}

/// Chance in [0, 1), the same for the same source and read.
fn phase(target: &PollTarget) -> f64 {
    chance(target.id.0, target.due_at)
}

/// Chance in [0, 1), the same for the same number and time.
fn chance(number: i64, at: Timestamp) -> f64 {
    let seed = number.rotate_left(32) ^ at.as_millisecond();
    let hash = xxhash_rust::xxh3::xxh3_64(&seed.to_le_bytes());
    // 53 bits make every value of the range exactly once.
    #[allow(clippy::cast_precision_loss)]
    let fraction = (hash >> 11) as f64 / (1_u64 << 53) as f64;
    fraction
}
