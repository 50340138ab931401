//! The end of a poll: the one commit that moves snapshot, validators, counters
//! and the next poll. Until it is made the poll has not happened, and whatever
//! was applied before is applied again without effect.

use std::sync::LazyLock;

use super::sql::params;
use jiff::Timestamp;

use super::log_order::{self, Log};
use super::polling::{Kept, PollEnd, ReadResult, SeenAgain};
use super::state::State;
use super::{StoreError, engine};
use crate::fetch::Validators;
use crate::model::SourceId;

/// Asked for while it was polled.
const ASKED: &str = "(rule IN ('asked', 'index', 'pinged') AND next_poll_at > ?2)";
/// Pinged while it was polled.
const PINGED: &str =
    "(hinted_at IS NOT NULL AND hinted_at > ?2 AND hinted_at < coalesce(?6, hinted_at + 1))";

/// It is asked at its own place again: validators are those of the other one.
const RETURNS: &str = "moved_to IS NOT NULL AND CAST(?13 AS TEXT) IS NULL";

static FINISH: LazyLock<String> = LazyLock::new(|| {
    let retires = format!("?6 IS NULL AND role <> 0 AND NOT {ASKED} AND NOT {PINGED}");
    let next = |stays: &str, pinged: &str, else_: &str| {
        format!(
            "CASE WHEN state = 2 OR {ASKED} THEN {stays} WHEN {PINGED} THEN {pinged} ELSE {else_} END"
        )
    };
    format!(
        "UPDATE sources SET last_poll_at = ?2, status = ?3, error = ?4, http_status = ?5,
             next_poll_at = {}, interval_ms = ?7, rule = {}, why = {},
             failures = CASE WHEN ?10 = 0 THEN 0 WHEN failing IS NOT DISTINCT FROM ?11 THEN failures + 1 ELSE 1 END,
             failing_since = CASE WHEN ?10 = 0 THEN NULL WHEN failing IS NOT DISTINCT FROM ?11 THEN coalesce(failing_since, ?2) ELSE ?2 END,
             failing = CASE WHEN ?10 = 1 THEN ?11 END,
             last_success_at = CASE WHEN ?10 = 1 THEN last_success_at ELSE ?2 END,
             state = CASE WHEN {retires} THEN 2 ELSE state END,
             retired_why = CASE WHEN state = 2 THEN retired_why WHEN {retires} THEN ?9 END,
             retired_at = CASE WHEN state = 2 THEN retired_at WHEN {retires} THEN coalesce(retired_at, ?2)
                 WHEN ?10 = 1 THEN retired_at END,
             etag = CASE WHEN {RETURNS} THEN NULL ELSE etag END,
             last_modified = CASE WHEN {RETURNS} THEN NULL ELSE last_modified END,
             rhythm = ?12, moved_to = ?13, moved_polls = ?14, moved_since = ?15
         WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
        next("next_poll_at", "hinted_at", "?6"),
        next("rule", "'pinged'", "?8"),
        next("why", "'somebody said while it was polled that it has changed'", "?9"),
    )
});

impl State {
    /// Writes how a poll ended: the one step that moves snapshot, validators
    /// and the next poll, so that a crash before it replays the read. A source
    /// that was asked for or pinged meanwhile stays due, one that was retired stays so.
    pub(super) fn finish_poll(&mut self, end: &PollEnd) -> Result<i64, StoreError> {
        let at = end.at.as_millisecond();
        let next = end.next.at.map(Timestamp::as_millisecond);
        self.conn
            .prepare_cached(&FINISH)
            .and_then(|mut update| {
                update.send(params![
                    end.source.0,
                    at,
                    end.status,
                    end.error,
                    end.http_status,
                    next,
                    end.next.interval_ms,
                    end.next.rule,
                    end.next.why,
                    end.failing.is_some(),
                    end.failing,
                    end.next.rhythm,
                    end.moved.as_ref().map(|moved| moved.to.as_str()),
                    end.moved.as_ref().map_or(0, |moved| moved.polls),
                    end.moved.as_ref().map(|moved| moved.since.as_millisecond()),
                ])
            })
            .map_err(engine)?;
        match &end.kept {
            Kept::Nothing => {}
            Kept::Robots { validators, changed, is_full, issues } => {
                let full_at = is_full.then_some(at);
                self.keep_validators(end.source, validators, changed.map(|_| at), full_at)?;
                if let Some(issues) = issues {
                    self.keep_issues(end.source, issues)?;
                }
                if end.failing.is_none() {
                    self.tell_known_errors(end.source)?;
                }
            }
            Kept::Seen(seen) => {
                self.finish_seen(end.source, at, seen)?;
                self.tell_known_errors(end.source)?;
                if seen.begins_day {
                    self.keep_rest(end.source)?;
                }
                self.probe_dead_children(end.source)?;
            }
            Kept::Read(read) => {
                self.finish_read(end.source, at, read)?;
                self.probe_dead_children(end.source)?;
            }
        }
        self.record_poll(end)
    }

    fn keep_validators(
        &mut self,
        id: SourceId,
        validators: &Validators,
        changed_at: Option<i64>,
        full_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let Validators { etag, last_modified } = validators;
        self.conn
            .prepare_cached(
                "UPDATE sources SET etag = ?2, last_modified = ?3,
                     last_changed_at = coalesce(?4, last_changed_at),
                     last_full_at = coalesce(?5, last_full_at) WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| {
                update.send(params![id.0, etag, last_modified, changed_at, full_at])
            })
            .map_err(engine)
    }

    fn keep_issues(&mut self, id: SourceId, issues: &str) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET issues = ?2 WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                     AND issues IS DISTINCT FROM ?2",
            )
            .and_then(|mut update| update.send(params![id.0, issues]))
            .map_err(engine)
    }

    fn finish_seen(&mut self, id: SourceId, at: i64, seen: &SeenAgain) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET etag = ?2, last_modified = ?3, last_complete_at = ?4 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| {
                let Validators { etag, last_modified } = &seen.validators;
                update.send(params![id.0, etag, last_modified, at])
            })
            .map_err(engine)?;
        // An index that did not change still does not list what it dropped.
        self.count_index_misses(id, at)?;
        let Some(recounted) = &seen.recounted else { return Ok(()) };
        // A count of its own, since removals may have come of it.
        self.conn
            .prepare_cached(
                "UPDATE sources SET generation = generation + 1, pending = ?2, shrunk_at = ?3,
                     last_full_at = CASE WHEN ?5 = 1 THEN 0 ELSE last_full_at END,
                     issues = CASE WHEN ?4 = 1 OR issues IS NULL THEN issues ELSE /*lite*/
                         (SELECT json_group_array(json(value)) FROM json_each(issues)
                          WHERE value ->> 'code' <> 'shrunk') /*end*/ /*pg:
                         (SELECT coalesce(json_agg(e.value ORDER BY e.place), '[]')::text
                          FROM json_array_elements(issues::json) WITH ORDINALITY AS e (value, place)
                          WHERE e.value ->> 'code' <> 'shrunk') */ END
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| {
                update.send(params![
                    id.0,
                    recounted.pending.cast_signed(),
                    recounted.shrunk_at.map(Timestamp::as_millisecond),
                    recounted.held,
                    recounted.has_made_room,
                ])
            })
            .map_err(engine)?;
        self.write_snapshot(id, &recounted.snapshot)
    }

    /// Counts one more read of an index that does not list what it dropped before.
    fn count_index_misses(&mut self, index: SourceId, at: i64) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET index_misses = index_misses + 1
                 WHERE parent_id = ?1 AND dropped_at < ?2 AND state <> 2",
            )
            .and_then(|mut update| update.send(params![index.0, at]))
            .map_err(engine)
    }

    pub(super) fn write_snapshot(&mut self, id: SourceId, data: &[u8]) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "INSERT INTO snapshots (/*pg: part, */ source_id, data)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2)
                 ON CONFLICT (/*pg: part, */ source_id) DO UPDATE SET data = ?2",
            )
            .and_then(|mut replace| replace.send(params![id.0, data]))
            .map_err(engine)
    }

    /// A document that is as it was has the defects that it had.
    fn tell_known_errors(&mut self, id: SourceId) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET status = 'has-errors'
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */ AND EXISTS (
                     SELECT 1 FROM /*lite*/ json_each(issues) AS e /*end*/
                     /*pg: json_array_elements(issues::json) AS e (value) */
                     WHERE e.value ->> 'severity' <> 'warning')",
            )
            .and_then(|mut update| update.send([id.0]))
            .map_err(engine)
    }

    /// What another index was given up with meanwhile is looked for in the next read:
    /// this one may have been too early, and is none in full.
    fn finish_read(&mut self, id: SourceId, at: i64, read: &ReadResult) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET kind = ?2, \"window\" = ?3, rolls = ?4, shrunk_at = ?5, pending = ?6,
                     generation = generation + 1,
                     epoch = coalesce(?8, epoch),
                     etag = ?9, last_modified = ?10, wire_hash = ?11, body_hash = ?12, bytes = ?13,
                     entries = ?14, admitted = ?15, issues = ?16,
                     last_full_at = CASE WHEN ?20 = 1 OR rule = 'index' AND next_poll_at > ?17 THEN 0 ELSE ?17 END,
                     last_complete_at = CASE WHEN ?7 = 1 THEN ?17 ELSE last_complete_at END,
                     last_changed_at = CASE WHEN ?18 = 1 THEN ?17 ELSE last_changed_at END,
                     hints = ?19
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| {
                update.send(params![
                    id.0,
                    read.kind.as_str(),
                    read.window,
                    read.rolls,
                    read.shrunk_at.map(Timestamp::as_millisecond),
                    read.pending.cast_signed(),
                    read.complete,
                    read.epoch,
                    read.validators.etag,
                    read.validators.last_modified,
                    read.wire_hash.map(u128::to_be_bytes),
                    read.body_hash.map(u128::to_be_bytes),
                    read.bytes.cast_signed(),
                    read.entries.cast_signed(),
                    read.admitted,
                    read.issues,
                    at,
                    read.changed,
                    read.hints,
                    read.has_made_room,
                ])
            })
            .map_err(engine)?;
        if read.tells_dropped {
            self.count_index_misses(id, at)?;
        }
        self.keep_dates(id, &read.dates)?;
        self.name_hubs(id, &read.hubs)?;
        if read.missed_push {
            self.push_missed(id, at)?;
        }
        match &read.snapshot {
            Some(snapshot) => self.write_snapshot(id, snapshot),
            None => Ok(()),
        }
    }

    fn record_poll(&mut self, end: &PollEnd) -> Result<i64, StoreError> {
        let counts = end.counts.kept();
        let (entries, counted, version) = match &end.kept {
            Kept::Read(read) => (read.entries.cast_signed(), true, None),
            Kept::Seen(seen) => (0, seen.recounted.is_some(), None),
            Kept::Robots { changed, .. } => (0, false, *changed),
            Kept::Nothing => (0, false, None),
        };
        let id = log_order::next(&self.conn, Log::Polls)?;
        self.conn
            .prepare_cached(
                "INSERT INTO polls (/*pg: part, */ source_id, at, took_ms, result, http_status, wire_bytes, entries, counts,
                                    error, generation, id)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
                         CASE WHEN ?10 = 1 THEN (SELECT generation FROM sources WHERE id = ?1
                         /*pg: AND part = (?1 & 255) */) ELSE ?11 END, ?12)
                 RETURNING id",
            )
            .and_then(|mut insert| {
                let values = params![
                    end.source.0,
                    end.at.as_millisecond(),
                    end.took_ms,
                    end.result,
                    end.http_status,
                    end.wire_bytes.cast_signed(),
                    entries,
                    counts,
                    end.error,
                    counted,
                    version,
                    id,
                ];
                insert.query_row(values, |row| row.get(0))
            })
            .map_err(engine)
    }
}
