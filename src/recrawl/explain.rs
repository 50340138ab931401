//! Why a URL is due when it is: the numbers, and one plain sentence.
//!
//! Keeps: says nothing that was not counted. Where nothing was compared yet the
//! sentence says so, and names the interval that stands in for knowledge.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::model::{UrlState, days_between};
use super::trust::{GONE, Record};
use super::value::Worth;
use crate::model::Reason;
use crate::model::span::duration;

/// What the due time of one URL rests on.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Explanation {
    /// Why it is queued.
    pub reason: Reason,
    /// Days until it is due; negative when it is due already.
    pub due_in_days: f64,
    /// Looks that could be compared with the one before, of the last fifteen.
    pub looks: u32,
    /// How many of them found a change.
    pub changes: u32,
    /// Days that they reach back.
    pub over_days: f64,
    /// Changes a day, as believed.
    pub rate: f64,
    /// Those of them that no signal tells.
    pub silent_rate: f64,
    /// Changes expected since the last look, signals counted by their weight.
    pub expected_changes: f64,
    /// What the pending signals are of these.
    pub expected_signalled: f64,
    /// How far this rests on looks and not on the protocol, 0 to 1.
    pub proof: f64,
    /// What a fetch is worth now, in days of staleness.
    pub value: f64,
    /// What it must be worth.
    pub price: f64,
    /// How likely a lastmod of its host is right, 0 to 1.
    pub lastmod_right: f64,
    /// Looks at pages of its host whose lastmod had moved, of the last fifty.
    pub lastmod_looks: f64,
    /// How many of them found a change.
    pub lastmod_hits: f64,
    /// Its priority, 0 to 1.
    pub priority: f64,
    /// The mean of its site.
    pub site_priority: f64,
    /// The interval of the protocol, in days.
    pub protocol_days: f64,
    /// What of the configuration keeps it from being due sooner, or later.
    #[serde(skip)]
    bound: Option<Bound>,
}

/// A bound of intervals that a due time has come to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    Min,
    Max,
}

impl Bound {
    /// That which the due time of a page that was seen lies at, to the second. Where
    /// nothing but the protocol decides, it may be changefreq that says as much.
    fn of(worth: &Worth, seen: Timestamp, due: Timestamp) -> Option<Self> {
        let ((min, max), waits) = (worth.bounds(), days_between(seen, due));
        let is_at = |days: f64| (waits - days).abs() * 86_400.0 <= 1.0;
        let is_protocol = worth.proof() <= 0.0 && worth.estimate.pull <= 0.0;
        if is_protocol || min >= max {
            return None;
        }
        let at_max = || is_at(max).then_some(Self::Max);
        is_at(min).then_some(Self::Min).or_else(at_max)
    }
}

impl Explanation {
    /// Of a URL that is due at `due`; `state` is what looks left, `lastmod` the
    /// record of its host's lastmods.
    #[allow(clippy::too_many_arguments)] // each is one independent fact
    pub fn new(
        reason: Reason,
        now: Timestamp,
        due: Timestamp,
        worth: &Worth,
        state: Option<&UrlState>,
        lastmod: Record,
        site_priority: f64,
        price: f64,
    ) -> Self {
        let (looks, changes) = state.map_or((0, 0), UrlState::history);
        Self {
            reason,
            due_in_days: days_between(now, due) - days_between(due, now),
            looks,
            changes,
            over_days: state
                .map_or(0.0, |state| state.history_days() + days_between(state.seen(), now)),
            rate: worth.estimate.total,
            silent_rate: worth.estimate.alpha,
            expected_changes: worth.expected(now),
            expected_signalled: worth.estimate.pull,
            proof: worth.proof(),
            value: worth.value(now),
            price,
            lastmod_right: lastmod.right,
            lastmod_looks: lastmod.looks,
            lastmod_hits: lastmod.hits,
            priority: worth.priority / 100.0,
            site_priority,
            protocol_days: worth.protocol.as_secs_f64() / 86_400.0,
            bound: state.and_then(|state| Bound::of(worth, state.seen(), due)),
        }
    }
}

impl fmt::Display for Explanation {
    /// One sentence, without a full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let away = length(self.due_in_days.abs());
        match self.due_in_days {
            _ if away.is_zero() => f.write_str("due now: ")?,
            days if days > 0.0 => write!(f, "due in {}: ", duration(away))?,
            _ => write!(f, "due for {}: ", duration(away))?,
        }
        match self.reason {
            Reason::Submitted => f.write_str("somebody asked for it; ")?,
            Reason::New => f.write_str("it is new; ")?,
            Reason::Removed => f.write_str("no source lists it any more; ")?,
            Reason::Changed | Reason::Recrawl => {}
        }
        match (self.looks, self.changes) {
            (0, _) if self.proof > 0.0 => {
                f.write_str("no fetcher has compared it yet, so other pages of its host tell")?;
            }
            (0, _) => write!(
                f,
                "no fetcher has compared it yet, its interval is {}",
                duration(length(self.protocol_days))
            )?,
            (looks, changes) => write!(
                f,
                "it changed {} in the last {} ({} compared)",
                times(changes),
                duration(length(self.over_days)),
                count(looks, "fetch", "fetches"),
            )?,
        }
        if self.lastmod_looks >= 0.5 {
            let (hits, looks) = (self.lastmod_hits.round(), self.lastmod_looks.round());
            write!(f, "; its host's lastmod has been right {hits} of {looks} times")?;
            if -(-self.lastmod_right).ln_1p() < GONE {
                f.write_str(" and is not believed")?;
            }
        }
        if self.expected_signalled > 0.0 {
            f.write_str("; a believed signal is pending")?;
        }
        match self.bound {
            Some(Bound::Min) => f.write_str("; recrawl.min has it wait so long")?,
            Some(Bound::Max) => f.write_str("; recrawl.max has it wait no longer")?,
            None => {}
        }
        write!(f, "; priority {:.1} of a site mean of {:.1}", self.priority, self.site_priority)
    }
}

fn times(count: u32) -> String {
    match count {
        0 => "not once".to_owned(),
        1 => "once".to_owned(),
        more => format!("{more} times"),
    }
}

fn count(count: u32, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// Days, in whole seconds: a day is told as a part of it is, and a part is never exact.
fn length(days: f64) -> Duration {
    Duration::try_from_secs_f64((days * 86_400.0).round()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
