//! Whose pushes are wanted: by what documents name and by what the config says.
//!
//! A document names its hubs for good, wanted or not, so that wanting them later
//! needs no new read: most answers are "not modified". What is wanted no more is
//! given up, and its source goes back to its own rhythm.

use super::super::sql::{self, OptionalExtension, params};
use url::Url;

use super::{Named, SPACING_MS};
use crate::model::SourceId;
use crate::store::claim::Claim;
use crate::store::state::State;
use crate::store::{StoreError, engine};

/// Callbacks of one source that are being given up; more are just dropped.
const MAX_LEAVING: i64 = 4;
/// A hub that has missed something is asked to subscribe anew after so long.
const ASK_ANEW_MS: i64 = 24 * 3_600_000;

impl State {
    /// Takes over what the document of a source says of hubs.
    pub(in crate::store) fn name_hubs(
        &mut self,
        source: SourceId,
        named: &Named,
    ) -> Result<(), StoreError> {
        let known: Option<(String, String, Option<i64>, bool)> = self
            .conn
            .prepare_cached(
                "SELECT topic, hubs, asked_at, wanted FROM topics WHERE source_id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| {
                let read =
                    |row: &sql::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
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
        if wanted && let Some(turn) = self.pushed_by(source, topic, &hubs)? {
            // Others are named beside the hub that pushes: nothing to ask for. What
            // was asked for while something else was named is not to replace it.
            let sql = "UPDATE topics SET hubs = ?2, turn = ?3 WHERE source_id = ?1
                       /*pg: AND part = (?1 & 255) */";
            self.run(sql, params![source.0, hubs, turn])?;
            let is_elsewhere = known.is_some_and(|(named, ..)| named != *topic);
            if self.drop_other_requests(source, topic, &hubs)? || is_elsewhere {
                return self.renew_soon(source, topic);
            }
            return Ok(());
        }
        if !wanted {
            self.end_push(source.0)?;
        }
        // What was asked for and is not verified is wanted no more.
        self.run(
            "DELETE FROM callbacks WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */ AND state = 0",
            [source.0],
        )?;
        let asked_at = known.and_then(|(_, _, asked_at, _)| asked_at);
        let next_at = self.now_ms().max(asked_at.map_or(0, |at| at + SPACING_MS));
        self.hubs_moved = true;
        self.run(
            "INSERT INTO topics (/*pg: part, */ source_id, topic, hubs, next_at, wanted)
             VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (/*pg: part, */ source_id) DO UPDATE SET topic = ?2, hubs = ?3, next_at = ?4, wanted = ?5,
                 turn = 0, failures = 0, error = NULL, denied_at = NULL",
            params![source.0, topic, hubs, next_at, wanted],
        )
    }

    /// Which of these hubs pushes this topic, if one does?
    fn pushed_by(
        &self,
        source: SourceId,
        topic: &str,
        hubs: &str,
    ) -> Result<Option<i64>, StoreError> {
        let active: Option<(String, String)> = self
            .conn
            .prepare_cached(
                "SELECT k.topic, k.hub FROM callbacks k JOIN topics t ON t.source_id = k.source_id /*pg: AND t.part = k.part */
                 WHERE k.source_id = ?1 /*pg: AND k.part = (?1 & 255) */ AND k.state = 1 AND t.wanted = 1",
            )
            .and_then(|mut query| {
                query.query_row([source.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(engine)?;
        let Some((_, active)) = active.filter(|(of, _)| of == topic) else { return Ok(None) };
        let place = hubs.lines().position(|hub| hub == active);
        Ok(place.and_then(|place| i64::try_from(place).ok()))
    }

    /// Forgets what was asked for and is neither this topic nor of these hubs; was
    /// there any?
    fn drop_other_requests(
        &self,
        source: SourceId,
        topic: &str,
        hubs: &str,
    ) -> Result<bool, StoreError> {
        let asked: Vec<(i64, String, String)> = self
            .conn
            .prepare_cached(
                "SELECT id, topic, hub FROM callbacks WHERE source_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND state = 0",
            )
            .and_then(|mut query| {
                let read = |row: &sql::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                query.query_map([source.0], read)?.collect()
            })
            .map_err(engine)?;
        let mut any = false;
        for (row, of, hub) in asked {
            if of != topic || !hubs.lines().any(|one| one == hub) {
                self.run("DELETE FROM callbacks WHERE id = ?1", [row])?;
                any = true;
            }
        }
        Ok(any)
    }

    /// The lease of a topic that is named again is renewed at the next chance: when
    /// it would have been was lost to what was asked for meanwhile.
    fn renew_soon(&mut self, source: SourceId, topic: &str) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.hubs_moved = true;
        self.run(
            "UPDATE topics SET topic = ?2, failures = 0, error = NULL, denied_at = NULL,
                 next_at = /*lite*/ max /*end*/ /*pg: GREATEST */ (?3, coalesce(asked_at, 0) + ?4)
             WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */",
            params![source.0, topic, now, SPACING_MS],
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
            "UPDATE topics SET broken_at = ?2, next_at = /*lite*/ min /*end*/ /*pg: LEAST */ (next_at, ?3)
             WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */ AND broken_at IS NULL",
            params![source.0, at, at + ASK_ANEW_MS],
        )
    }

    /// Nobody is to push for this source any more.
    pub(super) fn give_up_topic(&mut self, source: i64) -> Result<(), StoreError> {
        self.run(
            "DELETE FROM topics WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */",
            [source],
        )?;
        self.end_push(source)
    }

    fn end_push(&mut self, source: i64) -> Result<(), StoreError> {
        self.run(
            "DELETE FROM callbacks WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */ AND state = 0",
            [source],
        )?;
        self.leave(source, -1)?;
        self.resume_polling(source)
    }

    /// The hubs of a source are told that we leave, but for one callback.
    pub(super) fn leave(&mut self, source: i64, but: i64) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.hubs_moved = true;
        self.run(
            "UPDATE callbacks SET state = 2, since_at = ?2, next_at = ?2, tries = 0
             WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 1 AND id <> ?3",
            params![source, now, but],
        )?;
        self.run(
            "DELETE FROM callbacks WHERE id IN (SELECT id FROM callbacks
                 WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */ AND state = 2 ORDER BY id DESC
                 LIMIT /*lite*/ -1 /*end*/ /*pg: ALL */ OFFSET ?2)",
            params![source, MAX_LEAVING],
        )
    }

    /// Without push a source is polled in its own rhythm again.
    pub(super) fn resume_polling(&mut self, source: i64) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.sources_moved = true;
        self.run(
            "UPDATE sources SET next_poll_at = /*lite*/ max /*end*/ /*pg: GREATEST */
                     (?2, coalesce(last_poll_at, 0) + interval_ms),
                 rule = 'adaptive', why = 'no hub pushes it any more: polled in its own rhythm'
             WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND rule = 'push'
                 AND next_poll_at > /*lite*/ max /*end*/ /*pg: GREATEST */
                     (?2, coalesce(last_poll_at, 0) + interval_ms)",
            params![source, now],
        )
    }

    /// Sources of these sites want no push, all others do.
    pub(super) fn want_hubs(&mut self, without: &[String]) -> Result<(), StoreError> {
        let rows: Vec<(i64, bool, Option<String>)> = self
            .conn
            .prepare_cached(
                "SELECT t.source_id, t.wanted, n.name FROM topics t
                     LEFT JOIN sources s ON s.id = t.source_id /*pg: AND s.part = t.part */
                     LEFT JOIN sites n ON n.id = s.site_id",
            )
            .and_then(|mut query| {
                query.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
            })
            .map_err(engine)?;
        let now = self.now_ms();
        for (source, was_wanted, site) in rows {
            let wanted = site.is_none_or(|site| !without.contains(&site));
            if wanted == was_wanted {
                continue;
            }
            self.run(
                "UPDATE topics SET wanted = ?2, next_at = ?3 WHERE source_id = ?1
                 /*pg: AND part = (?1 & 255) */",
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
        for source in self.column("SELECT DISTINCT source_id FROM callbacks", ())? {
            self.resume_polling(source)?;
        }
        self.run("UPDATE topics SET wanted = 0 WHERE wanted = 1", ())?;
        self.run("DELETE FROM callbacks", ())?;
        self.run("DELETE FROM deliveries", ())
    }

    /// Where one of the daemons on this store is reached, for all of them.
    pub(super) fn keep_hub_base(&mut self, base: Option<&Url>) -> Result<(), StoreError> {
        let me = self.engine.claim.as_ref().map_or("", Claim::name).to_owned();
        match base {
            Some(base) => self.run(
                "INSERT INTO meta (key, value) VALUES ('public_url', ?1), ('public_url_of', ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [base.as_str(), &me],
            ),
            None => self.run("DELETE FROM meta WHERE key IN ('public_url', 'public_url_of')", ()),
        }
    }

    /// Was this daemon the last that said where it is reached, before it started?
    pub(super) fn was_reached(&self) -> Result<bool, StoreError> {
        let Some(claim) = &self.engine.claim else { return Ok(false) };
        let of: Option<String> = self
            .conn
            .prepare_cached("SELECT value FROM meta WHERE key = 'public_url_of'")
            .and_then(|mut query| query.query_row((), |row| row.get(0)).optional())
            .map_err(engine)?;
        Ok(of.is_some_and(|of| claim.was(&of)))
    }

    /// Callbacks are below `base` from now on.
    pub(super) fn call_back_at(&mut self, base: &Url) -> Result<(), StoreError> {
        let now = self.now_ms();
        let below = format!("{base}websub/");
        self.hubs_moved = true;
        self.run(
            "UPDATE topics SET next_at = /*lite*/ min /*end*/ /*pg: LEAST */ (next_at, ?1) WHERE source_id IN
                 (SELECT source_id FROM callbacks
                  WHERE state < 2 AND substr(callback, 1, length(?2)) <> ?2)",
            params![now, below],
        )
    }

    /// Chance in [0, 1) that is another each time and the same after a crash.
    pub(super) fn chance(&self, source: i64) -> f64 {
        let text = format!("{source} {}", self.now_ms());
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(text.as_bytes(), self.seed);
        f64::from(u32::try_from(hash >> 32).unwrap_or(0)) / (f64::from(u32::MAX) + 1.0)
    }

    /// Runs one statement that answers nothing.
    pub(super) fn run(&self, sql: &str, args: impl sql::Params) -> Result<(), StoreError> {
        let done = self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute(args));
        done.map(|_| ()).map_err(engine)
    }
}
