//! What a stepped wall clock must not do between two runs: end a lease early,
//! keep one alive, or move the turn of a host.
//!
//! Each run counts steady time from the wall time of its start. On the same
//! boot the monotonic clock tells how much time has really passed since, and
//! with it by how much the wall clock was stepped meanwhile: leases and host
//! clocks are moved by that. After another boot nobody knows; then what lies in
//! the future is cut to what it may last.
//!
//! A store on a server goes by the clock of that. What this machine's did since
//! the last run, or since another one's, says nothing of it; so there it is only cut.

use super::sql::{OptionalExtension, params};

use super::for_fetchers::PUBLISHED;
use super::hosts::{Hosts, millis};
use super::settle::LONGEST_PAUSE;
use super::state::State;
use super::{StoreError, engine};
use crate::clock::Uptime;
use crate::queue::MAX_TTL;

/// Steps that are smaller are the rounding of two clocks (and NTP's slewing).
const STEP_MS: i64 = 250;

/// Key of `meta`: when the last run began, by both clocks.
const ANCHOR: &str = "clock";

impl State {
    /// Puts leases and host clocks on the steady clock of this run.
    pub(super) fn mend_times(&mut self) -> Result<(), StoreError> {
        let now = self.steady_ms();
        if self.engine.claim.is_none() {
            self.follow_anchor(now)?;
        }
        self.cut_times(now)
    }

    /// Moves them by what the wall clock was stepped since the last run, as far as
    /// that can be told, and keeps what tells it the next one.
    fn follow_anchor(&mut self, now: i64) -> Result<(), StoreError> {
        let uptime = self.clock.uptime();
        if uptime.is_none() && self.clock.is_system() {
            tracing::warn!(
                "the system does not name its boot: a wall clock stepped while the daemon is \
                 down moves leases and host clocks with it"
            );
        }
        let kept: Option<String> = self
            .conn
            .query_row("SELECT value FROM meta WHERE key = ?1", [ANCHOR], |row| row.get(0))
            .optional()
            .map_err(engine)?;
        if let Some(step) = kept.zip(uptime.as_ref()).and_then(|(kept, up)| step(&kept, now, up))
            && step.abs() >= STEP_MS
        {
            tracing::warn!(step_ms = step, "the wall clock was stepped since the last run");
            self.move_times(step)?;
        }
        if let Some(uptime) = uptime {
            let anchor = write_anchor(now, &uptime);
            self.conn
                .execute(
                    "INSERT INTO meta (key, value) VALUES (?1, ?2)
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    params![ANCHOR, anchor],
                )
                .map_err(engine)?;
        }
        Ok(())
    }

    /// Moves what is measured by steady time.
    fn move_times(&mut self, by: i64) -> Result<(), StoreError> {
        let leases = "UPDATE leases SET expires_at = expires_at + ?1, leased_at = leased_at + ?1,
                          not_before = not_before + ?1";
        self.conn.execute(leases, [by]).map_err(engine)?;
        let published = format!(
            "UPDATE meta SET value = CAST(CAST(value AS BIGINT) + ?1 AS TEXT)
             WHERE key LIKE '{PUBLISHED}%'"
        );
        self.conn.execute(&published, [by]).map_err(engine)?;
        let hosts = "UPDATE hosts SET next_at = next_at + ?1, paused_until = paused_until + ?1
                     WHERE next_at > 0 OR paused_until > 0";
        self.conn.execute(hosts, [by]).map_err(engine)?;
        self.hosts = Hosts::new(self.seed);
        Ok(())
    }

    /// Ends the waits that only a clock set back since the last run explains:
    /// a lease that is younger than now lasts as long as it was meant to, from
    /// now on, and no host is left alone for longer than a page may ask.
    fn cut_times(&mut self, now: i64) -> Result<(), StoreError> {
        let mended = "UPDATE leases SET expires_at = ?1 + expires_at - leased_at, leased_at = ?1,
                          not_before = ?1 + not_before - leased_at
                      WHERE expires_at > ?1 AND leased_at > ?1";
        self.conn.execute(mended, [now]).map_err(engine)?;
        let published = format!(
            "UPDATE meta SET value = CAST(?1 AS TEXT)
             WHERE key LIKE '{PUBLISHED}%' AND CAST(value AS BIGINT) > ?1"
        );
        self.conn.execute(&published, [now]).map_err(engine)?;
        let latest = now.saturating_add(millis(LONGEST_PAUSE));
        // Slots are given out no further ahead than half of the longest lease, and one more,
        // which may be by a delay that clients of the frontier have set.
        let last_slot = now.saturating_add(millis(MAX_TTL) / 2);
        let longest = self.longest_queue_delay()?;
        let freed = "UPDATE hosts SET
                 next_at = /*lite*/ min /*end*/ /*pg: LEAST */
                     (next_at, ?2 + /*lite*/ max /*end*/ /*pg: GREATEST */ (delay_ms, ?3)),
                 paused_until = CASE WHEN paused_until > ?1 THEN ?1 ELSE paused_until END
                     WHERE next_at > ?2 + /*lite*/ max /*end*/ /*pg: GREATEST */ (delay_ms, ?3)
                         OR paused_until > ?1";
        self.conn.execute(freed, params![latest, last_slot, longest]).map_err(engine)?;
        self.hosts = Hosts::new(self.seed);
        Ok(())
    }
}

/// The start of a run: its boot, and the readings of both clocks.
fn write_anchor(steady_ms: i64, uptime: &Uptime) -> String {
    format!("{} {} {steady_ms}", uptime.boot, uptime.ms)
}

/// By how much this run's steady clock is ahead of what the last run's would
/// show now; `None` where nobody can tell.
fn step(kept: &str, now_ms: i64, uptime: &Uptime) -> Option<i64> {
    let mut words = kept.split(' ');
    let (boot, up, steady) = (words.next()?, words.next()?, words.next()?);
    let passed = uptime.ms.checked_sub(up.parse().ok()?)?;
    if boot != uptime.boot || passed < 0 {
        return None;
    }
    let expected = passed.checked_add(steady.parse().ok()?)?;
    now_ms.checked_sub(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(boot: &str, ms: i64) -> Uptime {
        Uptime { boot: boot.to_owned(), ms }
    }

    #[test]
    fn on_one_boot_a_step_is_what_the_wall_clock_moved_beyond_the_time_that_passed() {
        let kept = write_anchor(1_000_000, &up("b", 5_000));
        for (now, uptime, by) in [
            (1_060_000, 65_000, 0),
            (1_060_000 - 3_600_000, 65_000, -3_600_000),
            (1_060_000 + 86_400_000, 65_000, 86_400_000),
        ] {
            assert_eq!(step(&kept, now, &up("b", uptime)), Some(by));
        }
    }

    #[test]
    fn another_boot_or_an_unreadable_anchor_says_nothing() {
        let kept = write_anchor(1_000_000, &up("b", 5_000));
        assert_eq!(step(&kept, 1_060_000, &up("c", 65_000)), None);
        assert_eq!(step(&kept, 1_060_000, &up("b", 4_999)), None);
        for bad in ["", "b", "b 1", "b x 1", "b 1 y"] {
            assert_eq!(step(bad, 0, &up("b", 10)), None, "{bad:?}");
        }
    }
}
