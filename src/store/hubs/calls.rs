//! What is to be asked of hubs, and what came of it.
//!
//! Whoever is asked now is asked again only after its time, whatever becomes of
//! the process: that time is written before the request is made.

use std::time::Duration;

use super::super::sql::{Connection, OptionalExtension, params};
use url::Url;

use super::rules::{FAREWELLS, VERIFY_WITHIN, backoff};
use super::state::{ACTIVE, ASKED, LEAVING};
use super::{CallbackId, FAREWELL_MS, HubAnswer, HubCall, ROUND};
use crate::model::SourceId;
use crate::store::hosts::millis;
use crate::store::state::State;
use crate::store::{StoreError, engine};

/// Sources that are given up, and rows that are over, in one round.
const SWEEP: i64 = 500;

/// Topics of sources that are not polled any more.
const UNPOLLED: &str = "SELECT t.source_id FROM topics t LEFT JOIN sources s ON s.id = t.source_id /*pg: AND s.part = t.part */
    LEFT JOIN sites n ON n.id = s.site_id
    WHERE (s.id IS NULL OR s.state = 2 OR n.id IS NULL OR n.state = 2) /*ours: t.part */";

/// Is there anything to be done with hubs? With `sweep`, also for sources that
/// are polled no more, which is a look at all topics.
pub(super) fn any_work(conn: &Connection, now: i64, sweep: bool) -> Result<bool, StoreError> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM topics WHERE wanted = 1 AND next_at <= ?1 /*ours: part */)
             OR EXISTS (SELECT 1 FROM callbacks WHERE expires_at <= ?1 /*ours: part */)
             OR EXISTS (SELECT 1 FROM callbacks WHERE state = 2 AND next_at <= ?1 /*ours: part */)
             OR ?2 = 1 AND EXISTS ({UNPOLLED})"
    );
    conn.prepare_cached(&sql)
        .and_then(|mut query| query.query_row(params![now, sweep], |row| row.get(0)))
        .map_err(engine)
}

impl State {
    /// What is to be asked of hubs now, a bounded part of it.
    pub(super) fn hub_calls(
        &mut self,
        base: &Url,
        sweep: bool,
    ) -> Result<Vec<HubCall>, StoreError> {
        let now = self.now_ms();
        if sweep {
            for source in self.column(&format!("{UNPOLLED} LIMIT ?1"), [SWEEP])? {
                self.give_up_topic(source)?;
                // Should it be polled again, it is read even where nothing has changed: only
                // by that does it name its hubs.
                self.run(
                    "UPDATE sources SET last_full_at = CASE WHEN last_full_at IS NULL THEN NULL ELSE 0 END
                     WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
                    [source],
                )?;
            }
        }
        self.end_callbacks(now)?;
        let due = self.column(
            "SELECT source_id FROM topics WHERE wanted = 1 AND next_at <= ?1 /*ours: part */
             ORDER BY next_at LIMIT ?2",
            params![now, ROUND],
        )?;
        let mut calls = Vec::new();
        for source in due {
            calls.extend(self.subscribe(source, base, now)?);
        }
        let leaving = self.column(
            "SELECT id FROM callbacks WHERE state = 2 AND next_at <= ?1 /*ours: part */
             ORDER BY next_at LIMIT ?2",
            params![now, ROUND],
        )?;
        for row in leaving {
            calls.extend(self.unsubscribe(row, now)?);
        }
        Ok(calls)
    }

    /// What was not verified in time, what was not renewed, and who was told
    /// often enough.
    fn end_callbacks(&mut self, now: i64) -> Result<(), StoreError> {
        let ended: Vec<(i64, i64, i64)> = self
            .conn
            .prepare_cached(
                "SELECT id, source_id, state FROM callbacks WHERE expires_at <= ?1 /*ours: part */
                 LIMIT ?2",
            )
            .and_then(|mut query| {
                query
                    .query_map(params![now, SWEEP], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })?
                    .collect()
            })
            .map_err(engine)?;
        for (row, source, state) in ended {
            self.run("DELETE FROM callbacks WHERE id = ?1", [row])?;
            match state {
                ASKED => self.hub_failed(source, "the hub did not verify in time", None)?,
                ACTIVE => self.resume_polling(source)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a callback for a source, and the request to its hub.
    fn subscribe(
        &mut self,
        source: i64,
        base: &Url,
        now: i64,
    ) -> Result<Option<HubCall>, StoreError> {
        let (topic, hubs, turn): (String, String, i64) = self
            .conn
            .prepare_cached(
                "SELECT topic, hubs, turn FROM topics WHERE source_id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| {
                query.query_row([source], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            })
            .map_err(engine)?;
        let hubs: Vec<Url> = hubs.lines().filter_map(|hub| Url::parse(hub).ok()).collect();
        let place = usize::try_from(turn).unwrap_or(0).checked_rem(hubs.len());
        let Some(hub) = place.and_then(|at| hubs.into_iter().nth(at)) else {
            self.give_up_topic(source)?;
            return Ok(None);
        };
        self.run(
            "DELETE FROM callbacks WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */ AND state = 0",
            [source],
        )?;
        let token = CallbackId(random()?);
        let callback = format!("{base}websub/{token}");
        // 256 bits, in 64 characters; section 5.1 allows fewer than 200.
        let secret = if hub.scheme() == "https" {
            let (first, second) = (random()?, random()?);
            Some(format!("{:032x}{:032x}", u128::from_be_bytes(first), u128::from_be_bytes(second)))
        } else {
            None
        };
        let until = now + millis(VERIFY_WITHIN);
        let row = self
            .conn
            .query_row(
                "INSERT INTO callbacks (/*pg: part, */ source_id, token, secret, hub, topic, callback,
                     state, since_at, expires_at)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) RETURNING id",
                params![source, token.0, secret, hub.as_str(), topic, callback, ASKED, now, until],
                |row| row.get(0),
            )
            .map_err(engine)?;
        self.run(
            "UPDATE topics SET next_at = ?2, asked_at = ?3 WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */",
            params![source, until, now],
        )?;
        let source = SourceId(source);
        Ok(Some(HubCall { row, source, subscribes: true, hub, topic, callback, secret }))
    }

    fn unsubscribe(&mut self, row: i64, now: i64) -> Result<Option<HubCall>, StoreError> {
        self.run(
            "UPDATE callbacks SET tries = tries + 1, next_at = ?2 WHERE id = ?1",
            params![row, now + FAREWELL_MS],
        )?;
        let (source, hub, topic, callback, tries): (i64, String, String, String, u32) = self
            .conn
            .prepare_cached(
                "SELECT source_id, hub, topic, callback, tries FROM callbacks WHERE id = ?1",
            )
            .and_then(|mut query| {
                query.query_row([row], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                })
            })
            .map_err(engine)?;
        let hub = Url::parse(&hub).ok().filter(|_| tries <= FAREWELLS);
        let Some(hub) = hub else {
            self.run("DELETE FROM callbacks WHERE id = ?1", [row])?;
            return Ok(None);
        };
        let source = SourceId(source);
        Ok(Some(HubCall { row, source, subscribes: false, hub, topic, callback, secret: None }))
    }

    /// What came of a request to a hub.
    pub(super) fn hub_answered(
        &mut self,
        call: &HubCall,
        answer: &HubAnswer,
    ) -> Result<(), StoreError> {
        let state: Option<i64> = self
            .conn
            .prepare_cached("SELECT state FROM callbacks WHERE id = ?1")
            .and_then(|mut query| query.query_row([call.row], |row| row.get(0)).optional())
            .map_err(engine)?;
        match (call.subscribes, state) {
            // Verified meanwhile, or wanted no more: that counts.
            (true, Some(ASKED)) if *answer != HubAnswer::Accepted => {
                self.run("DELETE FROM callbacks WHERE id = ?1", [call.row])?;
                self.subscription_failed(call.source.0, answer)
            }
            // It knows of no such subscription, and will know of none later.
            (false, Some(LEAVING)) if matches!(answer, HubAnswer::Refused { status: 400..=428 | 430..=499, .. }) => {
                self.run("DELETE FROM callbacks WHERE id = ?1", [call.row])
            }
            _ => Ok(()),
        }
    }

    fn subscription_failed(&mut self, source: i64, answer: &HubAnswer) -> Result<(), StoreError> {
        match answer {
            HubAnswer::Accepted => Ok(()),
            HubAnswer::Later(until) => self.run(
                "UPDATE topics SET next_at = ?2 WHERE source_id = ?1
                 /*pg: AND part = (?1 & 255) */",
                params![source, until.as_millisecond()],
            ),
            HubAnswer::Failed(why) => self.hub_failed(source, why, None),
            HubAnswer::Refused { status, why, retry_after } => {
                let why = format!("the hub answers with HTTP status {status}: {why}");
                self.hub_failed(source, why.trim_end_matches([':', ' ']), *retry_after)
            }
        }
    }

    /// A hub does not do what it was asked for: the next one is asked later.
    fn hub_failed(
        &mut self,
        source: i64,
        why: &str,
        least: Option<Duration>,
    ) -> Result<(), StoreError> {
        let failures: Option<u32> = self
            .conn
            .prepare_cached(
                "SELECT failures FROM topics WHERE source_id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([source], |row| row.get(0)).optional())
            .map_err(engine)?;
        let Some(failures) = failures.map(|failures| failures.saturating_add(1)) else {
            return Ok(());
        };
        let wait = backoff(failures, self.chance(source)).max(least.unwrap_or_default());
        let next_at = self.now_ms().saturating_add(millis(wait));
        tracing::info!(source, why, "a hub was asked in vain");
        self.run(
            "UPDATE topics SET failures = ?2, error = ?3, turn = turn + 1, next_at = ?4
             WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */",
            params![source, failures, why, next_at],
        )
    }
}

/// 128 bits that nobody can guess.
fn random() -> Result<[u8; 16], StoreError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
    Ok(bits)
}
