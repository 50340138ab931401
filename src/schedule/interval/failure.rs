//! What a failed poll leads to: each kind has its own table.
//!
//! Whatever has happened, more failures in a row never lead to a shorter
//! wait, and no answer of an origin makes us ask sooner than it wants.

use std::time::Duration;

use super::{DAY, MAX_DELAY, MAX_JITTER, Next, PollInput, Rule, about, kept_interval, phase, wait};
use crate::config::PollRule;

/// Longest wait after a failure, unless the site itself is polled more rarely.
pub const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// First wait after a 429 or 503 without Retry-After; doubles from there.
pub const THROTTLED: Duration = Duration::from_secs(15 * 60);

/// What a source that has never answered backs off from.
pub const FIRST_RETRY: Duration = Duration::from_secs(30);

/// Failures in a row over this time make a source weekly.
pub const HOPELESS_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// Refusals (401, 403, …) in a row, and how long they have lasted, from which a source
/// is weekly. Of a lively source five come within hours, and whoever pings it every hour
/// sees to that: neither tells that it is meant for good.
pub const WEEKLY_REFUSALS: u32 = 5;
/// See [`WEEKLY_REFUSALS`].
pub const REFUSED_FOR_GOOD: Duration = Duration::from_secs(5 * 86_400);

/// 404s in a row that are asked again a day later.
pub const DAILY_NOT_FOUND: u32 = 3;

/// Further 404s in a row that are asked again a week later; then it is retired.
pub const WEEKLY_NOT_FOUND: u32 = 4;
/// All of these.
const LONG_NOT_FOUND: Duration =
    Duration::from_secs((DAILY_NOT_FOUND + 7 * WEEKLY_NOT_FOUND) as u64 * 86_400);

/// 403 and its like, and documents that are none: slower each time, daily at most until
/// that has lasted, and never sooner than the site would be polled anyway.
pub(super) fn refused(input: &PollInput<'_>, what: &str) -> Next {
    let interval = kept_interval(input);
    let nth = input.failures.max(1);
    let is_for_good = nth >= WEEKLY_REFUSALS && failing_for(input) >= REFUSED_FOR_GOOD;
    let backoff = if is_for_good { WEEK } else { doubled(interval, nth, DAY) };
    let delay = stretched(input, backoff.max(interval), WEEK.max(interval));
    let why = format!("{what}, {} in a row: asked again after {}", times(nth), about(delay));
    wait(input, delay, Rule::Backoff, why)
}

/// 429 and 503: what the origin asks for, or 15 minutes and twice that each
/// time.
pub(super) fn throttled(input: &PollInput<'_>, status: u16, retry_after: Option<Duration>) -> Next {
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
pub(super) fn failed(input: &PollInput<'_>) -> Next {
    let nth = input.failures.max(1);
    if failing_for(input) >= HOPELESS_AFTER {
        let why = "it has failed for 30 days: asked again weekly".to_owned();
        return wait(input, stretched(input, WEEK, WEEK), Rule::Backoff, why);
    }
    let longest = match input.rule {
        // There the line says when; the backoff only leaves times out.
        PollRule::Cron(_) => doubled(THROTTLED, nth - 1, MAX_DELAY),
        _ => doubled(base_of_failure(input), nth, MAX_DELAY),
    };
    // Half of it by chance: what failed together does not come back together.
    let delay = longest.mul_f64(0.5 + 0.5 * phase(input));
    let why = format!("it failed {} in a row: asked again after {}", times(nth), about(delay));
    wait(input, delay, Rule::Backoff, why)
}

/// A source that has never answered is tried again soon: a daemon that starts
/// before its network does must not sit out a whole interval.
fn base_of_failure(input: &PollInput<'_>) -> Duration {
    let interval = kept_interval(input);
    if input.previous.is_none() { interval.min(FIRST_RETRY) } else { interval }
}

/// 404: daily, then weekly, then no more. Whoever asks for it in between, as anybody
/// may by a ping, makes it no sooner.
pub(super) fn not_found(input: &PollInput<'_>) -> Next {
    let nth = input.failures.max(1);
    let lasts = failing_for(input);
    if nth > DAILY_NOT_FOUND + WEEKLY_NOT_FOUND && lasts >= LONG_NOT_FOUND {
        let why = format!("404 {} in a row, for {}", times(nth), about(lasts));
        return Next::Retire { why };
    }
    let is_new = nth <= DAILY_NOT_FOUND || lasts < DAY * DAILY_NOT_FOUND;
    let delay = if is_new { DAY } else { WEEK };
    let why = format!(
        "404, {} in a row: asked again after {}, and retired after a month of it",
        times(nth),
        about(delay)
    );
    wait(input, stretched(input, delay, WEEK), Rule::Backoff, why)
}

/// 410 means it: one more look, to be sure.
pub(super) fn gone(input: &PollInput<'_>) -> Next {
    let nth = input.failures.max(1);
    if nth >= 2 && failing_for(input) >= DAY {
        return Next::Retire { why: "410 (gone) twice, at least a day apart".to_owned() };
    }
    let why = "410 (gone): asked once more after 1d, then retired".to_owned();
    wait(input, stretched(input, DAY, WEEK), Rule::Backoff, why)
}

/// robots.txt does not let us: it is believed for a day.
pub(super) fn forbidden(input: &PollInput<'_>) -> Next {
    let why = "robots.txt forbids it, and is read again within a day".to_owned();
    wait(input, stretched(input, DAY, DAY), Rule::Backoff, why)
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

/// `delay` made longer by chance, at most to `cap`: where we were told to
/// stay away, nobody comes sooner.
fn stretched(input: &PollInput<'_>, delay: Duration, cap: Duration) -> Duration {
    let reach = delay.mul_f64(input.poll.jitter.clamp(0.0, 1.0)).min(MAX_JITTER);
    (delay + reach.mul_f64(phase(input))).min(cap)
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}
