//! Pure: when a source is polled next, and why.
//!
//! A poll that brings something halves the interval, one that brings nothing
//! makes it half as long again, within `poll.min` and `poll.max`. A publisher
//! may slow this down ([`hints`]), a rule of the site replaces it. Failures
//! back off, each kind by its own table, and two kinds end in retirement. The
//! answer depends on nothing but the input: chance is an argument too.
//!
//! The turn of the host, which may delay a poll further, is not known here.

pub mod hints;

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub use self::hints::Hints;
use crate::config::units::format_duration;
use crate::config::{Poll, PollRule};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Most that a publisher or a failure of the network may make us wait. A day
/// is what Retry-After is obeyed for, and how long robots.txt is believed.
pub const MAX_DELAY: Duration = DAY;

/// First wait after a 429 or 503 without Retry-After; doubles from there.
pub const THROTTLED: Duration = Duration::from_secs(15 * 60);

/// Most that chance moves a poll after a success, either way.
pub const MAX_JITTER: Duration = Duration::from_secs(30 * 60);

/// Failures in a row over this time make a source weekly.
pub const HOPELESS_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// Refusals (401, 403, …) in a row from which a source is weekly.
pub const WEEKLY_REFUSALS: u32 = 5;

/// 404s in a row that are asked again a day later.
pub const DAILY_NOT_FOUND: u32 = 3;

/// Further 404s in a row that are asked again a week later; then it is retired.
pub const WEEKLY_NOT_FOUND: u32 = 4;

/// What is known when a poll has ended.
#[derive(Debug, Clone)]
pub struct PollInput<'a> {
    /// When the poll ended.
    pub now: Timestamp,
    /// `[poll]`.
    pub poll: &'a Poll,
    /// `poll` of the site.
    pub rule: &'a PollRule,
    /// Zone of the site's cron line.
    pub timezone: &'a TimeZone,
    /// [`NextPoll::interval`] of the last decision; `None` before the first.
    pub previous: Option<Duration>,
    /// What the poll brought.
    pub event: PollEvent,
    /// Polls in a row that ended in this kind of failure, this one included;
    /// 0 after a success.
    pub failures: u32,
    /// When the first of them was; `None` when this is the first.
    pub failing_since: Option<Timestamp>,
    /// What the publisher asks for. Kept from the last good answer.
    pub hints: &'a Hints,
    /// Chance in [0, 1): the same for the same source and poll, so that a
    /// replay decides the same.
    pub phase: f64,
}

/// What a poll brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollEvent {
    /// A complete document.
    Changed {
        /// Entries that were not there before.
        new: u64,
        /// Entries with a newer lastmod or digest.
        changed: u64,
    },
    /// 304, or the same bytes or entries as before.
    Unchanged,
    /// A document that was cut or broken: good for news, not for absences.
    Incomplete,
    /// 200 with HTML or whatever else is no source.
    NotASource,
    /// 404. Not for a robots.txt, whose absence is an answer.
    NotFound,
    /// 410.
    Gone,
    /// 401, 403, 407, 451 and other refusals.
    Denied {
        /// The status.
        status: u16,
    },
    /// 429 or 503.
    Throttled {
        /// The status.
        status: u16,
        /// `Retry-After`, from `now`.
        retry_after: Option<Duration>,
    },
    /// Another 5xx, or no answer at all: DNS, TLS, timeout, reset.
    Failed,
    /// robots.txt does not let us.
    RobotsForbidden,
}

/// What is done about a source next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// It is polled again.
    Poll(NextPoll),
    /// It is dead and is not polled any more.
    Retire {
        /// One plain sentence.
        why: String,
    },
}

/// The next poll of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct NextPoll {
    /// Not before this.
    pub at: Timestamp,
    /// The interval learned so far, to be kept as the next `previous`. A
    /// failure leaves it, so that a source comes back as lively as it was.
    pub interval: Duration,
    /// What decided.
    pub rule: Rule,
    /// One plain sentence with the figures that went in.
    pub why: String,
}

/// What decided when a source is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// What the source showed.
    Adaptive,
    /// What the publisher asks for.
    Hint,
    /// A fixed interval of the site.
    Fixed,
    /// A cron line of the site.
    Cron,
    /// `Retry-After`, or the wait in place of one.
    RetryAfter,
    /// A failure.
    Backoff,
}

impl Rule {
    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Hint => "hint",
            Self::Fixed => "fixed",
            Self::Cron => "cron",
            Self::RetryAfter => "retry-after",
            Self::Backoff => "backoff",
        }
    }
}

/// Decides when a source is polled next.
///
/// After a success the wait is within `poll.min` and `poll.max`, but for a
/// rule of the site and for hours that the publisher excludes (at most
/// [`hints::MAX_SKIP`] more). After a failure it is at most [`MAX_DELAY`], or
/// a week, or the site's own interval where that is longer. A cron line is
/// never left: the poll comes at its first time after the wait.
pub fn next_poll(input: &PollInput<'_>) -> Next {
    let nth = input.failures.max(1);
    match input.event {
        PollEvent::Changed { new, changed } if new + changed > 0 => {
            let seen = format!("{new} new and {changed} changed");
            success(input, &seen, |interval| interval / 2)
        }
        PollEvent::Changed { .. } | PollEvent::Unchanged => {
            success(input, "nothing new", |interval| interval * 3 / 2)
        }
        PollEvent::Incomplete => success(input, "the document was incomplete", |interval| interval),
        PollEvent::NotASource => refused(input, "what came is neither a sitemap nor a feed"),
        PollEvent::Denied { status } => refused(input, &format!("status {status}")),
        PollEvent::Throttled { status, retry_after } => throttled(input, status, retry_after),
        PollEvent::Failed => failed(input),
        PollEvent::NotFound => not_found(input, nth),
        PollEvent::Gone => gone(input, nth),
        PollEvent::RobotsForbidden => {
            let why = "robots.txt forbids it, and is read again within a day".to_owned();
            wait(input, stretched(input, DAY, DAY), Rule::Backoff, why)
        }
    }
}

/// After a document, or the news that there is no new one.
fn success(input: &PollInput<'_>, seen: &str, step: impl Fn(Duration) -> Duration) -> Next {
    match input.rule {
        PollRule::Adaptive => {}
        PollRule::Every(every) => {
            let why = format!("the site is polled every {}", about(*every));
            return wait(input, *every, Rule::Fixed, why);
        }
        PollRule::Cron(_) => return wait(input, Duration::ZERO, Rule::Cron, String::new()),
    }
    let Poll { min, max, .. } = *input.poll;
    let next = input.previous.map(|previous| step(previous.clamp(min, max)).clamp(min, max));
    let interval = next.unwrap_or(input.poll.first.clamp(min, max));
    let mut why = explain(seen, input.previous, interval);
    let mut rule = Rule::Adaptive;
    let mut delay = interval;
    if let Some((asked, what)) = input.hints.slowest(interval) {
        rule = Rule::Hint;
        delay = asked.min(max);
        why = format!("{why}; the publisher asks for {} ({what})", about(delay));
    }
    let moved = jittered(input, delay).clamp(min, max);
    let mut at = after(input.now, moved);
    if let Some(allowed) = input.hints.skip.next_allowed(at, input.phase) {
        rule = Rule::Hint;
        why = format!("{why}; hours that the feed excludes are left out");
        at = allowed;
    }
    Next::Poll(NextPoll { at, interval, rule, why })
}

fn explain(seen: &str, previous: Option<Duration>, interval: Duration) -> String {
    let now = about(interval);
    match previous {
        None => format!("read for the first time: the first interval is {now}"),
        Some(previous) if about(previous) == now => {
            format!("{seen}, and the interval stays at {now}")
        }
        Some(previous) => {
            let verb = if interval > previous { "grows" } else { "shrinks" };
            format!("{seen}, so the interval {verb} from {} to {now}", about(previous))
        }
    }
}

/// 403 and its like, and documents that are none: slower each time, and never
/// sooner than the site would be polled anyway.
fn refused(input: &PollInput<'_>, what: &str) -> Next {
    let interval = kept_interval(input);
    let nth = input.failures.max(1);
    let backoff = doubled(interval, nth, WEEK);
    let weekly = if nth >= WEEKLY_REFUSALS { WEEK } else { backoff };
    let delay = stretched(input, weekly.max(interval), WEEK.max(interval));
    let why = format!("{what}, {} in a row: asked again after {}", times(nth), about(delay));
    wait(input, delay, Rule::Backoff, why)
}

/// 429 and 503: what the origin asks for, or 15 minutes and twice that each
/// time.
fn throttled(input: &PollInput<'_>, status: u16, retry_after: Option<Duration>) -> Next {
    let nth = input.failures.max(1);
    let Some(asked) = retry_after else {
        let delay = stretched(input, doubled(THROTTLED, nth - 1, MAX_DELAY), MAX_DELAY);
        let why = format!(
            "status {status} without Retry-After, {} in a row: asked again after {}",
            times(nth),
            about(delay)
        );
        return wait(input, delay, Rule::RetryAfter, why);
    };
    // An origin that asks for a second, again and again, is still given more
    // air each time.
    let floor = match input.rule {
        PollRule::Adaptive => input.poll.min,
        PollRule::Every(every) => (*every).min(THROTTLED),
        PollRule::Cron(_) => Duration::ZERO,
    };
    let delay = asked.max(doubled(floor, nth - 1, MAX_DELAY)).min(MAX_DELAY);
    let why = format!(
        "status {status}, {} in a row, with Retry-After {}: asked again after {}",
        times(nth),
        about(asked),
        about(delay)
    );
    wait(input, delay, Rule::RetryAfter, why)
}

/// The server or the way to it is broken: exponential, with chance, and
/// weekly when that has gone on for a month.
fn failed(input: &PollInput<'_>) -> Next {
    let nth = input.failures.max(1);
    if failing_for(input) >= HOPELESS_AFTER {
        let why = "it has failed for 30 days: asked again weekly".to_owned();
        return wait(input, stretched(input, WEEK, WEEK), Rule::Backoff, why);
    }
    let longest = match input.rule {
        // There the line says when; the backoff only leaves times out.
        PollRule::Cron(_) => doubled(THROTTLED, nth - 1, MAX_DELAY),
        _ => doubled(kept_interval(input), nth, MAX_DELAY),
    };
    // Half of it by chance: what failed together does not come back together.
    let delay = longest.mul_f64(0.5 + 0.5 * phase(input));
    let why = format!("it failed {} in a row: asked again after {}", times(nth), about(delay));
    wait(input, delay, Rule::Backoff, why)
}

fn not_found(input: &PollInput<'_>, nth: u32) -> Next {
    if nth > DAILY_NOT_FOUND + WEEKLY_NOT_FOUND {
        let why = format!(
            "404 {} in a row, {DAILY_NOT_FOUND} of them daily and {WEEKLY_NOT_FOUND} weekly",
            times(nth)
        );
        return Next::Retire { why };
    }
    let delay = if nth <= DAILY_NOT_FOUND { DAY } else { WEEK };
    let why = format!(
        "404, {} in a row: asked again after {}, and retired after {} in a row",
        times(nth),
        about(delay),
        DAILY_NOT_FOUND + WEEKLY_NOT_FOUND + 1
    );
    wait(input, stretched(input, delay, WEEK), Rule::Backoff, why)
}

fn gone(input: &PollInput<'_>, nth: u32) -> Next {
    if nth >= 2 && failing_for(input) >= DAY {
        return Next::Retire { why: "410 (gone) twice, at least a day apart".to_owned() };
    }
    let why = "410 (gone): asked once more after 1d, then retired".to_owned();
    wait(input, stretched(input, DAY, WEEK), Rule::Backoff, why)
}

/// Waits for `delay`, and then for the site's cron line if it has one.
fn wait(input: &PollInput<'_>, delay: Duration, rule: Rule, why: String) -> Next {
    let not_before = after(input.now, delay);
    let kept = kept_interval(input);
    let PollRule::Cron(line) = input.rule else {
        return Next::Poll(NextPoll { at: not_before, interval: kept, rule, why });
    };
    // `next_after` is strict, and the end of the wait itself is good enough.
    let from = if delay.is_zero() { not_before } else { before(not_before) };
    let why = if why.is_empty() {
        format!("the site is polled at the times of the line \"{line}\"")
    } else {
        format!("{why}, at a time of the line \"{line}\"")
    };
    match line.next_after(from, input.timezone) {
        Some(at) => Next::Poll(NextPoll { at, interval: kept, rule, why }),
        // A line that is over: only one that names years could be.
        None => Next::Retire { why: format!("the line \"{line}\" has no further time") },
    }
}

/// The interval that a failure goes out from, and leaves as it is.
fn kept_interval(input: &PollInput<'_>) -> Duration {
    let Poll { min, max, first, .. } = *input.poll;
    match input.rule {
        PollRule::Every(every) => *every,
        PollRule::Adaptive | PollRule::Cron(_) => input.previous.unwrap_or(first).clamp(min, max),
    }
}

fn failing_for(input: &PollInput<'_>) -> Duration {
    let since = input.failing_since.unwrap_or(input.now);
    Duration::try_from(input.now.duration_since(since)).unwrap_or_default()
}

/// `base` doubled `times` times, at most `cap`.
fn doubled(base: Duration, times: u32, cap: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(cap)
}

/// `delay` moved by chance, by at most `poll.jitter` of it either way.
fn jittered(input: &PollInput<'_>, delay: Duration) -> Duration {
    let reach = delay.mul_f64(input.poll.jitter.clamp(0.0, 1.0)).min(MAX_JITTER);
    (delay - reach) + (reach * 2).mul_f64(phase(input))
}

/// `delay` made longer by chance, at most to `cap`: where we were told to
/// stay away, nobody comes sooner.
fn stretched(input: &PollInput<'_>, delay: Duration, cap: Duration) -> Duration {
    let reach = delay.mul_f64(input.poll.jitter.clamp(0.0, 1.0)).min(MAX_JITTER);
    (delay + reach.mul_f64(phase(input))).min(cap)
}

fn phase(input: &PollInput<'_>) -> f64 {
    if input.phase.is_finite() { input.phase.clamp(0.0, 1.0) } else { 0.0 }
}

fn after(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn before(at: Timestamp) -> Timestamp {
    at.checked_sub(Duration::from_nanos(1)).unwrap_or(at)
}

/// A duration for people: without the parts that are too small to matter.
fn about(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let whole = if duration >= DAY {
        seconds - seconds % 3_600
    } else if duration >= HOUR {
        seconds - seconds % 60
    } else if seconds >= 10 {
        seconds
    } else {
        return format_duration(Duration::from_millis(
            u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        ));
    };
    format_duration(Duration::from_secs(whole))
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests;
