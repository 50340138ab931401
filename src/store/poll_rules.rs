//! What a changed rule of polling means for sources that wait by the old one.
//!
//! A poll that ends decides when the next one is, by the rule of then. Where
//! today's rule wants it earlier, it comes earlier; never later, so that this
//! may be done again and again. What a failure, a host or somebody who asked
//! has decided stays.

use super::hosts::millis;
use super::sql::{Params, params};
use super::state::State;
use super::{StoreError, engine};
use crate::config::units::format_duration;
use crate::config::{Poll, PollRule, Site};
use crate::model::{Role, SiteId};

/// Sources that a rule of the site is meant for, and that wait for nothing else.
const BY_RULE: &str = "site_id = ?1 AND role = ?2 AND state <> 2 AND failures = 0";

/// What decides where the site has no rule of its own.
const OF_THE_SOURCE: &str = "'adaptive', 'window', 'hint', 'push'";

impl State {
    /// Lets no source of a site wait longer than its rule has it now.
    pub(super) fn heed_rule(
        &mut self,
        id: SiteId,
        site: &Site,
        poll: &Poll,
    ) -> Result<(), StoreError> {
        // One after the other, as the index has them.
        for role in [Role::Sitemap, Role::Feed] {
            self.heed_rule_for(role, id, site, poll)?;
        }
        Ok(())
    }

    fn heed_rule_for(
        &mut self,
        role: Role,
        id: SiteId,
        site: &Site,
        poll: &Poll,
    ) -> Result<(), StoreError> {
        let role = role as i64;
        match &site.poll {
            // Where the interval is the same, only the time that the poll took
            // lies between the two.
            PollRule::Every(every) => self.poll_earlier(
                &format!(
                    "UPDATE sources SET next_poll_at = last_poll_at + ?3, interval_ms = ?3,
                         rule = 'fixed', why = ?4
                     WHERE {BY_RULE} AND next_poll_at > last_poll_at + ?3
                       AND (rule IN ('cron', {OF_THE_SOURCE}) OR rule = 'fixed' AND interval_ms <> ?3)"
                ),
                params![
                    id.0,
                    role,
                    millis(*every),
                    format!("the site is now polled every {}", format_duration(*every)),
                ],
            ),
            PollRule::Cron(line) => {
                let Some(at) = line.next_after(self.clock.now(), &site.timezone) else {
                    return Ok(());
                };
                self.poll_earlier(
                    &format!(
                        "UPDATE sources SET next_poll_at = ?3, rule = 'cron', why = ?4
                         WHERE {BY_RULE} AND next_poll_at > ?3
                           AND rule IN ('fixed', 'cron', {OF_THE_SOURCE})"
                    ),
                    params![
                        id.0,
                        role,
                        at.as_millisecond(),
                        format!("the site is now polled at the times of the line \"{line}\""),
                    ],
                )
            }
            // What waits for longer than `poll.max` from now was told so by another
            // one. By a hint it is a day, or an hour that the publisher wants.
            PollRule::Adaptive => self.poll_earlier(
                &format!(
                    "UPDATE sources SET rule = 'adaptive', why = 'the rule of polling has changed',
                         next_poll_at = CASE WHEN rule IN ('fixed', 'cron') THEN last_poll_at + ?3
                             ELSE last_poll_at + ?4 END
                     WHERE {BY_RULE}
                       AND (rule IN ('fixed', 'cron') AND next_poll_at > last_poll_at + ?3
                           OR rule IN ('adaptive', 'window', 'push') AND next_poll_at > ?5)"
                ),
                params![
                    id.0,
                    role,
                    millis(poll.first),
                    millis(poll.max),
                    self.now_ms().saturating_add(millis(poll.max)),
                ],
            ),
        }
    }

    fn poll_earlier(&mut self, sql: &str, args: impl Params) -> Result<(), StoreError> {
        let moved = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut update| update.execute(args))
            .map_err(engine)?;
        self.sources_moved |= moved > 0;
        Ok(())
    }
}
