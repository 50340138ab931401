//! Sources that name hubs: what is wanted, what is to be asked of whom, and
//! what came of it.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use url::Url;

use super::rules::{FAREWELLS, VERIFY_WITHIN, backoff};
use super::state::{ACTIVE, ASKED, LEAVING};
use super::{CallbackId, FAREWELL_MS, HubAnswer, HubCall, Named, ROUND, SPACING_MS};
use crate::model::SourceId;
use crate::store::hosts::millis;
use crate::store::state::State;
use crate::store::{StoreError, engine};

/// Callbacks of one source that are being given up; more are just dropped.
const MAX_LEAVING: i64 = 4;
/// A hub that has missed something is asked to subscribe anew after so long.
const ASK_ANEW_MS: i64 = 24 * 3_600_000;
/// Sources that are given up, and rows that are over, in one round.
const SWEEP: i64 = 500;
/// Bytes of a secret; it is written in twice as many characters, and section
/// 5.1 allows fewer than 200.
const SECRET: usize = 32;

/// Topics of sources that are not polled any more.
const UNPOLLED: &str = "SELECT t.source_id FROM topics t LEFT JOIN sources s ON s.id = t.source_id
    LEFT JOIN sites n ON n.id = s.site_id
    WHERE s.id IS NULL OR s.state = 2 OR n.id IS NULL OR n.state = 2";

/// Is there anything to be done with hubs?
pub(super) fn any_work(conn: &Connection, now: i64) -> Result<bool, StoreError> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM topics WHERE wanted = 1 AND next_at <= ?1)
             OR EXISTS (SELECT 1 FROM callbacks WHERE expires_at <= ?1)
             OR EXISTS (SELECT 1 FROM callbacks WHERE state = 2 AND next_at <= ?1)
             OR EXISTS ({UNPOLLED})"
    );
    conn.prepare_cached(&sql)
        .and_then(|mut query| query.query_row([now], |row| row.get(0)))
        .map_err(engine)
}

impl State {
    /// Takes over what the document of a source says of hubs.
    pub(in crate::store) fn name_hubs(
        &mut self,
        source: SourceId,
        named: &Named,
    ) -> Result<(), StoreError> {
        let known: Option<(String, String, Option<i64>, bool)> = self
            .conn
            .prepare_cached("SELECT topic, hubs, asked_at, wanted FROM topics WHERE source_id = ?1")
            .and_then(|mut query| {
                let read = |row: &rusqlite::Row<'_>| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                };
                query.query_row([source.0], read).optional()
            })
            .map_err(engine)?;
        let (topic, hubs, wanted) = match (named, &known) {
            (Named::Unknown, _) | (Named::Nothing, None) => return Ok(()),
            (Named::Nothing, Some(_)) => return self.give_up_topic(source.0),
            (Named::Hubs { topic, hubs, wanted }, _) => (topic, hubs.join("\n"), *wanted),
        };
        if known.as_ref().is_some_and(|(t, h, _, w)| t == topic && *h == hubs && *w == wanted) {
            return Ok(());
        }
        // What was asked for and is not verified is wanted no more.
        self.run("DELETE FROM callbacks WHERE source_id = ?1 AND state = 0", [source.0])?;
        let asked_at = known.and_then(|(_, _, asked_at, _)| asked_at);
        let next_at = self.now_ms().max(asked_at.map_or(0, |at| at + SPACING_MS));
        self.hubs_moved = true;
        self.run(
            "INSERT INTO topics (source_id, topic, hubs, next_at, wanted) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (source_id) DO UPDATE SET topic = ?2, hubs = ?3, next_at = ?4, wanted = ?5,
                 turn = 0, failures = 0, error = NULL, denied_at = NULL",
            params![source.0, topic, hubs, next_at, wanted],
        )
    }

    /// A poll has found what a push should have brought: until the next good
    /// push nobody waits for one, and the hub is soon asked anew.
    pub(in crate::store) fn push_missed(
        &mut self,
        source: SourceId,
        at: i64,
    ) -> Result<(), StoreError> {
        self.run(
            "UPDATE topics SET broken_at = ?2, next_at = min(next_at, ?3)
             WHERE source_id = ?1 AND broken_at IS NULL",
            params![source.0, at, at + ASK_ANEW_MS],
        )
    }

    /// Nobody is to push for this source any more.
    pub(super) fn give_up_topic(&mut self, source: i64) -> Result<(), StoreError> {
        self.run("DELETE FROM topics WHERE source_id = ?1", [source])?;
        self.end_push(source)
    }

    fn end_push(&mut self, source: i64) -> Result<(), StoreError> {
        self.run("DELETE FROM callbacks WHERE source_id = ?1 AND state = 0", [source])?;
        self.leave(source, -1)?;
        self.resume_polling(source)
    }

    /// The hubs of a source are told that we leave, but for one callback.
    pub(super) fn leave(&mut self, source: i64, but: i64) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.hubs_moved = true;
        self.run(
            "UPDATE callbacks SET state = 2, since_at = ?2, next_at = ?2, tries = 0
             WHERE source_id = ?1 AND state = 1 AND id <> ?3",
            params![source, now, but],
        )?;
        self.run(
            "DELETE FROM callbacks WHERE id IN (SELECT id FROM callbacks
                 WHERE source_id = ?1 AND state = 2 ORDER BY id DESC LIMIT -1 OFFSET ?2)",
            params![source, MAX_LEAVING],
        )
    }

    /// Without push a source is polled in its own rhythm again.
    pub(super) fn resume_polling(&mut self, source: i64) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.sources_moved = true;
        self.run(
            "UPDATE sources SET next_poll_at = max(?2, coalesce(last_poll_at, 0) + interval_ms),
                 rule = 'adaptive', why = 'no hub pushes it any more: polled in its own rhythm'
             WHERE id = ?1 AND rule = 'push'
                 AND next_poll_at > max(?2, coalesce(last_poll_at, 0) + interval_ms)",
            params![source, now],
        )
    }

    /// Sources of these sites want no push, all others do.
    pub(super) fn want_hubs(&mut self, without: &[String]) -> Result<(), StoreError> {
        let rows: Vec<(i64, bool, Option<String>)> = self
            .conn
            .prepare_cached(
                "SELECT t.source_id, t.wanted, n.name FROM topics t
                     LEFT JOIN sources s ON s.id = t.source_id LEFT JOIN sites n ON n.id = s.site_id",
            )
            .and_then(|mut query| {
                query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
            })
            .map_err(engine)?;
        let now = self.now_ms();
        for (source, was_wanted, site) in rows {
            let wanted = site.is_none_or(|site| !without.contains(&site));
            if wanted == was_wanted {
                continue;
            }
            self.run(
                "UPDATE topics SET wanted = ?2, next_at = ?3 WHERE source_id = ?1",
                params![source, wanted, now],
            )?;
            if !wanted {
                self.end_push(source)?;
            }
        }
        self.hubs_moved = true;
        Ok(())
    }

    /// Nobody can push: leases end by themselves.
    pub(super) fn want_no_hubs(&mut self) -> Result<(), StoreError> {
        for source in self.column("SELECT DISTINCT source_id FROM callbacks", [])? {
            self.resume_polling(source)?;
        }
        self.run("UPDATE topics SET wanted = 0 WHERE wanted = 1", [])?;
        self.run("DELETE FROM callbacks", [])?;
        self.run("DELETE FROM deliveries", [])
    }

    /// Callbacks are below `base` from now on.
    pub(super) fn call_back_at(&mut self, base: &Url) -> Result<(), StoreError> {
        let now = self.now_ms();
        let below = format!("{base}websub/");
        self.hubs_moved = true;
        self.run(
            "UPDATE topics SET next_at = min(next_at, ?1) WHERE source_id IN
                 (SELECT source_id FROM callbacks
                  WHERE state < 2 AND substr(callback, 1, length(?2)) <> ?2)",
            params![now, below],
        )
    }

    /// What is to be asked of hubs now, a bounded part of it.
    pub(super) fn hub_calls(&mut self, base: &Url) -> Result<Vec<HubCall>, StoreError> {
        let now = self.now_ms();
        for source in self.column(&format!("{UNPOLLED} LIMIT ?1"), [SWEEP])? {
            self.give_up_topic(source)?;
        }
        self.end_callbacks(now)?;
        let due = self.column(
            "SELECT source_id FROM topics WHERE wanted = 1 AND next_at <= ?1 ORDER BY next_at LIMIT ?2",
            params![now, ROUND],
        )?;
        let mut calls = Vec::new();
        for source in due {
            calls.extend(self.subscribe(source, base, now)?);
        }
        let leaving = self.column(
            "SELECT id FROM callbacks WHERE state = 2 AND next_at <= ?1 ORDER BY next_at LIMIT ?2",
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
                "SELECT id, source_id, state FROM callbacks WHERE expires_at <= ?1 LIMIT ?2",
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
            .prepare_cached("SELECT topic, hubs, turn FROM topics WHERE source_id = ?1")
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
        self.run("DELETE FROM callbacks WHERE source_id = ?1 AND state = 0", [source])?;
        let token = CallbackId(random()?);
        let callback = format!("{base}websub/{token}");
        let secret: Option<String> = if hub.scheme() == "https" {
            let bits: [u8; SECRET] = random()?;
            Some(bits.iter().map(|byte| format!("{byte:02x}")).collect())
        } else {
            None
        };
        let until = now + millis(VERIFY_WITHIN);
        self.run(
            "INSERT INTO callbacks (source_id, token, secret, hub, topic, callback, state, since_at,
                 expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![source, token.0, secret, hub.as_str(), topic, callback, ASKED, now, until],
        )?;
        let row = self.conn.last_insert_rowid();
        self.run(
            "UPDATE topics SET next_at = ?2, asked_at = ?3 WHERE source_id = ?1",
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
                "UPDATE topics SET next_at = ?2 WHERE source_id = ?1",
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
            .prepare_cached("SELECT failures FROM topics WHERE source_id = ?1")
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
             WHERE source_id = ?1",
            params![source, failures, why, next_at],
        )
    }

    /// Chance in [0, 1) that is another each time and the same after a crash.
    pub(super) fn chance(&self, source: i64) -> f64 {
        let text = format!("{source} {}", self.now_ms());
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), self.seed);
        f64::from(u32::try_from(hash >> 32).unwrap_or(0)) / (f64::from(u32::MAX) + 1.0)
    }

    /// Runs one statement that answers nothing.
    pub(super) fn run(&self, sql: &str, args: impl rusqlite::Params) -> Result<(), StoreError> {
        let done = self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute(args));
        done.map(|_| ()).map_err(engine)
    }
}

fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bits = [0; N];
    getrandom::fill(&mut bits).map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
    Ok(bits)
}

/// Milliseconds of an instant, for columns.
pub(super) fn ms(at: Timestamp) -> i64 {
    at.as_millisecond()
}
