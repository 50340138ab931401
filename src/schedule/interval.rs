//! Pure: when a source is polled next, and why.
//!
//! Each source has a rhythm of its own ([`rhythm`]): the next poll is when half
//! a change is expected, within `poll.min` and `poll.max`, and before a feed
//! could drop what nobody has seen. A publisher may slow this down ([`hints`]),
//! a rule of the site replaces it. Failures back off, each kind by its own
//! table, and two kinds end in retirement. The answer depends on nothing but
//! the input: chance is an argument too.
//!
//! The turn of the host, which may delay a poll further, is not known here.

pub mod failure;
pub mod hints;
pub mod push;
pub mod rhythm;

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub use self::hints::Hints;
pub use self::rhythm::Rhythm;
use crate::config::units::format_duration;
use crate::config::{Poll, PollRule};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Most that a publisher or a failure of the network may make us wait. A day
/// is what Retry-After is obeyed for, and how long robots.txt is believed.
pub const MAX_DELAY: Duration = DAY;

/// A source that brought something in the last 30 days is polled this often at
/// least; another one as seldom as `poll.max` has it.
const ACTIVE_AT_MOST: Duration = DAY;

/// Most that chance moves a poll after a success, either way.
pub const MAX_JITTER: Duration = Duration::from_secs(30 * 60);

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
    /// [`NextPoll::rhythm`] of the last decision; `None` before the first.
    pub rhythm: Option<Rhythm>,
    /// Entries that it lists, where it lists only what is recent; else `None`.
    pub window: Option<u64>,
    /// Is it one of many that come and go, as the news sitemaps of past days
    /// do: a child of an index that lists only what is recent?
    pub rotates: bool,
    /// What the poll brought.
    pub event: PollEvent,
    /// Does it miss URLs on which further reads decide?
    pub undecided: bool,
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
    Incomplete {
        /// Entries that were not there before.
        new: u64,
        /// Entries with a newer lastmod or digest.
        changed: u64,
    },
    /// 200 with HTML or whatever else is no source.
    NotASource,
    /// 404. Not for a robots.txt, whose absence is an answer.
    NotFound,
    /// 410.
    Gone,
    /// 401, 403, 407, 451 and other refusals.
    Denied {
        /// The status; 0 where our own guard refused before anyone was asked.
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
    /// The rhythm learned so far, likewise.
    pub rhythm: Option<Rhythm>,
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
    /// A list of what is recent, which must not be outrun.
    Window,
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
    /// A hub that pushes what is new.
    Push,
}

impl Rule {
    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Window => "window",
            Self::Hint => "hint",
            Self::Fixed => "fixed",
            Self::Cron => "cron",
            Self::RetryAfter => "retry-after",
            Self::Backoff => "backoff",
            Self::Push => "push",
        }
    }
}

/// Decides when a source is polled next.
///
/// After a success the wait is within `poll.min` and `poll.max`, but for a
/// rule of the site and for hours that the publisher excludes (at most
/// [`hints::MAX_SKIP`] more). After a failure it is at most [`MAX_DELAY`], or
/// a [`failure::WEEK`], or the site's own interval where that is longer. A cron line is
/// never left: the poll comes at its first time after the wait.
pub fn next_poll(input: &PollInput<'_>) -> Next {
    match input.event {
        PollEvent::Changed { new, changed } => success(input, Found::of_whole(new, changed)),
        PollEvent::Unchanged => success(input, Found::of_whole(0, 0)),
        PollEvent::Incomplete { new, changed } => {
            success(input, Found { new, changed, is_part: true })
        }
        PollEvent::NotASource => {
            failure::refused(input, "what came is neither a sitemap nor a feed")
        }
        PollEvent::Denied { status: 0 } => {
            failure::refused(input, "our own guard refuses the address")
        }
        PollEvent::Denied { status } => failure::refused(input, &format!("status {status}")),
        PollEvent::Throttled { status, retry_after } => {
            failure::throttled(input, status, retry_after)
        }
        PollEvent::Failed => failure::failed(input),
        PollEvent::NotFound => failure::not_found(input),
        PollEvent::Gone => failure::gone(input),
        PollEvent::RobotsForbidden => failure::forbidden(input),
    }
}

/// What a poll that worked has found.
#[derive(Debug, Clone, Copy)]
struct Found {
    new: u64,
    changed: u64,
    /// Was it not all of the document? Some never are, for years: as much is learned of
    /// what could be read of those.
    is_part: bool,
}

impl Found {
    fn of_whole(new: u64, changed: u64) -> Self {
        Self { new, changed, is_part: false }
    }

    fn is_news(self) -> bool {
        self.new + self.changed > 0
    }
}

/// After a document, or the news that there is no new one.
fn success(input: &PollInput<'_>, found: Found) -> Next {
    let rhythm = learned(input, found);
    if input.rotates && rhythm.is_stale() && !found.is_part {
        let why = "it lists only what is recent, and nothing new has come in 180 days".to_owned();
        return Next::Retire { why };
    }
    let next = match input.rule {
        PollRule::Adaptive => adaptive(input, found, &rhythm),
        PollRule::Every(every) => {
            let why = format!("the site is polled every {}", about(*every));
            wait(input, *every, Rule::Fixed, why)
        }
        PollRule::Cron(_) => wait(input, Duration::ZERO, Rule::Cron, String::new()),
    };
    match next {
        Next::Poll(next) => Next::Poll(NextPoll { rhythm: Some(rhythm), ..next }),
        retired @ Next::Retire { .. } => retired,
    }
}

/// The rhythm with what this poll found. The first read shows what has piled
/// up over years, which says nothing of the rhythm.
fn learned(input: &PollInput<'_>, found: Found) -> Rhythm {
    match input.rhythm {
        None => Rhythm::begin(input.now, input.poll.first),
        Some(rhythm) => rhythm.after(input.now, found.new, found.changed),
    }
}

fn adaptive(input: &PollInput<'_>, found: Found, rhythm: &Rhythm) -> Next {
    let Poll { min, max, .. } = *input.poll;
    let interval = interval(input, found, rhythm).clamp(min, max);
    let mut why = explain(input, found, rhythm, interval);
    let mut rule = Rule::Adaptive;
    let mut delay = interval;
    if let Some((asked, what)) = input.hints.slowest(interval) {
        rule = Rule::Hint;
        delay = asked.min(max);
        why = format!("{why}; the publisher asks for {} ({what})", about(delay));
    }
    let outrun = input.window.and_then(|entries| rhythm.half_of_window(entries));
    if let Some(half) = outrun.map(|half| half.max(min)).filter(|half| *half < delay) {
        rule = Rule::Window;
        delay = half;
        let entries = input.window.unwrap_or_default();
        why = format!(
            "{why}; its {entries} entries last for twice {}, so it is polled after that",
            about(half)
        );
    }
    let decides = decides_after(input);
    let is_undecided = input.undecided && decides < delay;
    if is_undecided {
        delay = decides;
        why = format!("{why}; URLs are missing, and it is polled after {} to decide", about(delay));
    }
    // Chance brings nothing forward that the publisher asks to be left alone for, nor reads
    // so close together that they decide nothing.
    let soonest = if is_undecided || rule == Rule::Hint { delay.max(min) } else { min };
    let moved = jittered(input, delay).clamp(soonest, max);
    let mut at = after(input.now, moved);
    if let Some(allowed) = input.hints.skip.next_allowed(at, input.phase) {
        rule = Rule::Hint;
        why = format!("{why}; hours that the feed excludes are left out");
        at = allowed;
    }
    Next::Poll(NextPoll { at, interval, rhythm: None, rule, why })
}

/// The time between reads with which the last that `poll.removal_polls` asks for comes when
/// `poll.removal_after` is over, unless the publisher asks to be left alone for longer.
fn decides_after(input: &PollInput<'_>) -> Duration {
    let Poll { min, max, removal_polls, removal_after, .. } = *input.poll;
    let reads = removal_polls.saturating_sub(1).max(1);
    let wait = (removal_after / reads).clamp(min, max);
    input.hints.slowest(wait).map_or(wait, |(asked, _)| asked.min(max))
}

/// The time in which half a change is expected, at most twice and at least half
/// of what it was. News shrink it towards their own pace, which the long run
/// would learn of only slowly.
fn interval(input: &PollInput<'_>, found: Found, rhythm: &Rhythm) -> Duration {
    let longest = if rhythm.is_active() { ACTIVE_AT_MOST } else { input.poll.max };
    let expected = rhythm.interval().min(longest);
    let (Some(previous), Some(before)) = (input.previous, input.rhythm) else { return expected };
    if !found.is_news() {
        return expected.min(previous.saturating_mul(2));
    }
    let events = rhythm::events(found.new + found.changed);
    let pace = before.passed(input.now).as_secs_f64() / events / 2.0;
    let wanted = expected.min(rhythm::seconds(pace));
    wanted.max(previous / 2).min(previous.saturating_mul(2)).min(longest)
}

fn explain(input: &PollInput<'_>, found: Found, rhythm: &Rhythm, interval: Duration) -> String {
    let now = about(interval);
    let Some(previous) = input.previous else {
        return format!("read for the first time: the first interval is {now}");
    };
    let Found { new, changed, is_part } = found;
    let mut seen = if found.is_news() {
        format!("{new} new and {changed} changed")
    } else {
        "nothing new".to_owned()
    };
    if is_part {
        seen += " in what could be read of the document";
    }
    let pace = format!("about {} changes a day are expected", rounded(rhythm.per_day()));
    if about(previous) == now {
        return format!("{seen}, and the interval stays at {now} ({pace})");
    }
    let verb = if interval > previous { "grows" } else { "shrinks" };
    // What one poll finds is not all that is known.
    let because = if found.is_news() == (interval < previous) { "so" } else { "and all the same" };
    format!("{seen}, {because} the interval {verb} from {} to {now} ({pace})", about(previous))
}

/// A rate for people: two digits that count.
fn rounded(rate: f64) -> String {
    if rate >= 10.0 {
        format!("{rate:.0}")
    } else if rate >= 0.1 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.2}")
    }
}

/// Waits for `delay`, and then for the site's cron line if it has one.
fn wait(input: &PollInput<'_>, delay: Duration, rule: Rule, why: String) -> Next {
    let not_before = after(input.now, delay);
    let kept = kept_interval(input);
    let PollRule::Cron(line) = input.rule else {
        let rhythm = input.rhythm;
        return Next::Poll(NextPoll { at: not_before, interval: kept, rhythm, rule, why });
    };
    // `next_after` is strict, and the end of the wait itself is good enough.
    let from = if delay.is_zero() { not_before } else { before(not_before) };
    let why = if why.is_empty() {
        format!("the site is polled at the times of the line \"{line}\"")
    } else {
        format!("{why}, at a time of the line \"{line}\"")
    };
    match line.next_after(from, input.timezone) {
        Some(at) => Next::Poll(NextPoll { at, interval: kept, rhythm: input.rhythm, rule, why }),
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

/// `delay` moved by chance, by at most `poll.jitter` of it either way.
fn jittered(input: &PollInput<'_>, delay: Duration) -> Duration {
    let reach = delay.mul_f64(input.poll.jitter.clamp(0.0, 1.0)).min(MAX_JITTER);
    delay.saturating_sub(reach) + (reach * 2).mul_f64(phase(input))
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

#[cfg(test)]
mod tests;
