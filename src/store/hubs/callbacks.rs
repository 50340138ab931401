//! Callbacks: what hubs ask of them, and which may be pushed to.

use super::super::sql::{self, Connection, OptionalExtension, params};
use url::Url;

use super::rules::{self, AFTER_DENIAL, Mode, Standing, Verdict};
use super::state::{ACTIVE, ASKED};
use super::{Callback, CallbackId, Intent};
use crate::store::hosts::millis;
use crate::store::state::State;
use crate::store::{StoreError, engine, timestamp};

/// Characters of what a hub says that are kept.
const MAX_REASON: usize = 300;

/// Is there such a callback? Others cost no write.
pub(super) fn is_known(conn: &Connection, id: CallbackId) -> Result<bool, StoreError> {
    conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM callbacks WHERE token = ?1)")
        .and_then(|mut query| query.query_row([id.0], |row| row.get(0)))
        .map_err(engine)
}

/// A callback whose pushes are listened to: its lease runs, and its source is
/// polled.
pub(super) fn receiving(
    conn: &Connection,
    id: CallbackId,
    now: i64,
) -> Result<Option<Callback>, StoreError> {
    conn.prepare_cached(
        "SELECT k.secret FROM callbacks k JOIN topics t ON t.source_id = k.source_id /*pg: AND t.part = k.part */
             JOIN sources s ON s.id = k.source_id /*pg: AND s.part = k.part */
             JOIN sites n ON n.id = s.site_id
         WHERE k.token = ?1 AND k.expires_at > ?2 AND t.wanted = 1 AND s.state <> 2 AND n.state <> 2",
    )
    .and_then(|mut query| {
        let read = |row: &sql::Row<'_>| Ok(Callback { secret: row.get(0)? });
        query.query_row(params![id.0, now], read).optional()
    })
    .map_err(engine)
}

/// A row of callbacks, as far as a hub's question needs it.
struct Row {
    id: i64,
    source: i64,
    state: i64,
    checked_at: Option<i64>,
    expires_at: i64,
    topic: String,
    hub: String,
}

/// Is it the same URL? Hubs spell it as their library does.
fn is_same(ours: &str, theirs: &str) -> bool {
    let parsed = |text: &str| Url::parse(text).ok();
    ours == theirs || parsed(ours).is_some_and(|url| parsed(theirs) == Some(url))
}

impl State {
    /// Answers what a hub asks of a callback; `true` agrees.
    pub(super) fn confirm(&mut self, id: CallbackId, intent: &Intent) -> Result<bool, StoreError> {
        let now = self.now_ms();
        let row: Option<Row> = self
            .conn
            .prepare_cached(
                "SELECT id, source_id, state, checked_at, expires_at, topic, hub FROM callbacks
                 WHERE token = ?1",
            )
            .and_then(|mut query| {
                let read = |row: &sql::Row<'_>| {
                    Ok(Row {
                        id: row.get(0)?,
                        source: row.get(1)?,
                        state: row.get(2)?,
                        checked_at: row.get(3)?,
                        expires_at: row.get(4)?,
                        topic: row.get(5)?,
                        hub: row.get(6)?,
                    })
                };
                query.query_row([id.0], read).optional()
            })
            .map_err(engine)?;
        let Some(row) = row.filter(|row| row.expires_at > now) else { return Ok(false) };
        let standing = match row.state {
            ASKED => Standing::Asked,
            ACTIVE => Standing::Active(timestamp(row.checked_at.unwrap_or(0))),
            _ => Standing::Leaving,
        };
        let same_topic = is_same(&row.topic, &intent.topic);
        match rules::judge(standing, intent.mode, same_topic, timestamp(now)) {
            Verdict::Begin => self.begin_subscription(&row, intent, now).map(|()| true),
            Verdict::Again => Ok(true),
            Verdict::End => {
                self.run("DELETE FROM callbacks WHERE id = ?1", [row.id])?;
                Ok(true)
            }
            Verdict::Drop => self.denied(&row, intent, now).map(|()| true),
            Verdict::Refuse => Ok(false),
        }
    }

    /// The hub has verified: this callback holds, and those before it are given up.
    fn begin_subscription(
        &mut self,
        row: &Row,
        intent: &Intent,
        now: i64,
    ) -> Result<(), StoreError> {
        let (ends, renewal) = rules::lease(intent.lease, self.chance(row.source), timestamp(now));
        // A renewed lease of the same hub and topic goes on: what push has
        // proved, or missed, still counts.
        let since: Option<i64> = self
            .conn
            .prepare_cached(
                "SELECT min(since_at) FROM callbacks WHERE source_id = ?1
                 /*pg: AND part = (?1 & 255) */ AND state = 1
                     AND expires_at > ?2 AND hub = ?3 AND topic = ?4",
            )
            .and_then(|mut query| {
                query.query_row(params![row.source, now, row.hub, row.topic], |row| row.get(0))
            })
            .map_err(engine)?;
        self.run(
            "UPDATE callbacks SET state = 1, since_at = ?2, checked_at = ?3, expires_at = ?4
             WHERE id = ?1",
            params![row.id, since.unwrap_or(now), now, ends.as_millisecond()],
        )?;
        self.leave(row.source, row.id)?;
        if since.is_none() {
            let sql = "UPDATE topics SET broken_at = NULL WHERE source_id = ?1
                       /*pg: AND part = (?1 & 255) */";
            self.run(sql, [row.source])?;
        }
        tracing::info!(source = row.source, until = %ends, "a hub has promised to push");
        self.run(
            "UPDATE topics SET next_at = ?2, failures = 0, error = NULL, denied_at = NULL
             WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */",
            params![row.source, renewal.as_millisecond()],
        )
    }

    /// The hub will not push, or not any more.
    fn denied(&mut self, row: &Row, intent: &Intent, now: i64) -> Result<(), StoreError> {
        debug_assert!(intent.mode == Mode::Denied);
        self.run("DELETE FROM callbacks WHERE id = ?1", [row.id])?;
        let reason: String =
            intent.reason.iter().flat_map(|text| text.chars()).take(MAX_REASON).collect();
        let why = if reason.is_empty() {
            "the hub has denied it".to_owned()
        } else {
            format!("the hub has denied it: {reason}")
        };
        tracing::info!(source = row.source, why, "a subscription was denied");
        let next_at = now.saturating_add(millis(AFTER_DENIAL));
        self.run(
            "UPDATE topics SET error = ?2, denied_at = ?3, next_at = ?4, turn = turn + 1
             WHERE source_id = ?1 /*pg: AND part = (?1 & 255) */",
            params![row.source, why, now, next_at],
        )?;
        if row.state == ACTIVE { self.resume_polling(row.source) } else { Ok(()) }
    }
}
