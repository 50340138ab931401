//! Push slows polling down: what a hub brings need not be asked for.
//!
//! It never does away with polls: hubs fall silent without a word, and only a
//! poll that finds nothing new shows that one has not.

use std::time::Duration;

use super::{DAY, Next, NextPoll, PollInput, Rule, about, after, jittered};
use crate::config::PollRule;

/// While push does well, a source is polled this often (feeds.md: every 12 to
/// 24 hours), and a list of what is recent twice as often where it would run
/// through in that time.
pub const PUSHED_EVERY: Duration = DAY;

/// The decision for a source whose push does well. A rule of the site, and a
/// wait that is longer anyway, are left alone.
pub fn slowed(next: Next, input: &PollInput<'_>) -> Next {
    let Next::Poll(poll) = next else { return next };
    if *input.rule != PollRule::Adaptive {
        return Next::Poll(poll);
    }
    let longest = PUSHED_EVERY.min(input.poll.max);
    let wait = if poll.rule == Rule::Window { longest / 2 } else { longest };
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
