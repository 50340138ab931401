//! Push slows polling down: what a hub brings need not be asked for.
//!
//! It never does away with polls: hubs fall silent without a word, and only a
//! poll that finds nothing new shows that one has not.

use std::time::Duration;

use super::{DAY, Next, NextPoll, PollInput, Rule, about, after, decides_after, jittered};
use crate::config::PollRule;

/// While push does well, a source is polled this often (feeds.md: every 12 to
/// 24 hours), and a list of what is recent before half of it has run through: what a
/// hub has lost is found there, and shows that it loses.
pub const PUSHED_EVERY: Duration = DAY;

/// The decision for a source whose push does well. A rule of the site, and a
/// wait that is longer anyway, are left alone.
pub fn slowed(next: Next, input: &PollInput<'_>) -> Next {
    let Next::Poll(poll) = next else { return next };
    if *input.rule != PollRule::Adaptive {
        return Next::Poll(poll);
    }
    let longest = PUSHED_EVERY.min(input.poll.max);
    // What it misses no hub tells of.
    let decides = input.undecided.then(|| decides_after(input));
    let longest = decides.map_or(longest, |decides| decides.min(longest));
    let rhythm = poll.rhythm.as_ref().or(input.rhythm.as_ref());
    let half = input.window.zip(rhythm).and_then(|(entries, it)| it.half_of_window(entries));
    let wait = half.map_or(longest, |half| half.max(input.poll.min).min(longest));
    let at = after(input.now, jittered(input, wait));
    if at <= poll.at {
        return Next::Poll(poll);
    }
    let why = format!(
        "{}; a hub pushes what is new, so it is polled every {} only",
        poll.why,
        about(wait)
    );
    Next::Poll(NextPoll { at, rule: Rule::Push, why, ..poll })
}
