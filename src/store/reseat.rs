//! URLs that wait to be fetched again, placed anew where other bounds, intervals or
//! another order hold than they were placed by.
//!
//! By what rows are placed stands in `meta`. Where a start or a reload finds it to be
//! something else, that is written in the same commit together with a walk over all
//! that waits, one key of `meta` for each partition (one in all, in a file), which
//! says after which row to go on: a stop loses none. A part of it is done at a time.
//! Only what moves is written, and what is due stays due.

use std::collections::BTreeMap;
use std::time::Duration;

use super::packed::{is_valued, place};
use super::rows::{UrlRow, held};
use super::sql::{OptionalExtension, params};
use super::state::State;
use super::{StoreError, engine, timestamp};
use crate::config::Order;
use crate::model::{Reason, UrlId};
use crate::recrawl::{Bounds, value};

/// Rows looked at in one job at most, and on a server, where one takes longer.
const BATCH: usize = 2_000;
const BATCH_FAR: usize = 500;
/// Key of `meta`: by what rows are placed.
pub(super) const PLACED_BY: &str = "placed_by";
/// Keys of `meta`, with a partition: the row after which its walk goes on.
const WALK: &str = "reseat:";
/// Partitions of a store that may be shared.
const PARTS: i64 = 256;

impl State {
    /// Begins a walk where rows were placed by something else than what holds now.
    pub(super) fn note_placing(&mut self) -> Result<(), StoreError> {
        let holds = self.placing();
        let was = self.meta(PLACED_BY)?;
        if was.as_ref() == Some(&holds) {
            return Ok(());
        }
        self.set_meta(PLACED_BY, &holds)?;
        // Of a new store, or an older one, nothing is known.
        if was.is_some() {
            let parts = if self.conn.server().is_some() { PARTS } else { 1 };
            for part in 0..parts {
                self.set_meta(&format!("{WALK}{part}"), "0")?;
            }
        }
        Ok(())
    }

    /// A part of the walk; `true` where there was something to do.
    pub(super) fn reseat_some(&mut self) -> Result<bool, StoreError> {
        let walks: Vec<(String, String)> = self
            .conn
            .prepare_cached("SELECT key, value FROM meta WHERE key LIKE 'reseat:%' ORDER BY key")
            .and_then(|mut query| {
                query
                    .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
                    .and_then(Iterator::collect)
            })
            .map_err(engine)?;
        let ours = walks.into_iter().find_map(|(key, after)| {
            let part: i64 = key.strip_prefix(WALK)?.parse().ok()?;
            self.owns(part).then_some((key, part, after.parse().unwrap_or(0)))
        });
        let Some((key, part, after)) = ours else { return Ok(false) };
        // Another daemon was told of something else, and soon so are we.
        if self.meta(PLACED_BY)?.as_ref() != Some(&self.placing()) {
            return Ok(false);
        }
        let batch = if self.conn.server().is_some() { BATCH_FAR } else { BATCH };
        let rows = self.waiting_after(part, after, batch)?;
        self.gathering(|state| {
            state.read_rows_ahead(rows.iter().map(|(id, _)| *id))?;
            for (id, valued) in &rows {
                if let Some(row) = state.url_row(*id)?.filter(UrlRow::is_queued) {
                    state.reseat(&row, *valued)?;
                }
            }
            Ok(())
        })?;
        if let Some((last, _)) = rows.last().filter(|_| rows.len() == batch) {
            self.set_meta(&key, &last.0.to_string())?;
        } else {
            // What was parked by what held before may have its turn in time by now.
            self.folds.look_again();
            self.take_meta(&key)?;
        }
        Ok(true)
    }

    /// The next rows of a partition that wait to be fetched again, and whether the value
    /// of each is taken anew when it comes due.
    fn waiting_after(
        &mut self,
        part: i64,
        after: i64,
        batch: usize,
    ) -> Result<Vec<(UrlId, bool)>, StoreError> {
        self.write_pending()?;
        let most = i64::try_from(batch).unwrap_or(i64::MAX);
        self.conn
            .prepare_cached(&format!(
                "SELECT f.url_id, {valued} FROM feedback f
                 /*lite*/ CROSS /*end*/ JOIN urls u ON u.id = f.url_id /*pg: AND u.part = f.part */
                 /*lite*/ CROSS /*end*/ JOIN queue q ON q.crawl_id = u.crawl_id
                     AND q.host_id = u.host_id AND q.band = {band} AND q.due_s = {due}
                     AND q.url_id = f.url_id /*pg: AND q.part = f.part */
                 WHERE /*lite*/ ?4 >= 0 /*end*/ /*pg: f.part = CAST(?4 AS BIGINT) */
                     AND f.url_id > ?1 AND {state} = 0 AND {attempt} = 0 AND {reason} IN (?2, ?5)
                 ORDER BY f.url_id LIMIT ?3",
                valued = is_valued("q"),
                band = place::BAND.of("f"),
                due = place::DUE.of("f"),
                state = place::STATE.of("f"),
                attempt = place::ATTEMPT.of("f"),
                reason = place::REASON.of("f"),
            ))
            .and_then(|mut query| {
                let [again, changed] =
                    [Reason::Recrawl, Reason::Changed].map(|reason| reason as i64);
                let values = params![after, again, most, part, changed];
                query
                    .query_map(values, |row| Ok((UrlId(row.get(0)?), row.get(1)?)))
                    .and_then(Iterator::collect)
            })
            .map_err(engine)
    }

    /// Gives a URL that waits to be fetched again the place that it has now.
    fn reseat(&mut self, row: &UrlRow, was_valued: bool) -> Result<(), StoreError> {
        if row.record.gone > 0 {
            // It has a time of its own.
            return Ok(());
        }
        let now_s = self.steady_ms().div_euclid(1000);
        let floor = row.record.floor_s().unwrap_or(i64::MIN);
        let (band, due_s) = if let Some((band, due_s)) = self.place_by_value(row, now_s)? {
            let (was, is) = (second(row.due_s), second(due_s));
            let seen = row.learned().map_or(was, |learned| learned.seen());
            let moves = value::is_worth_a_write(seen, was, is);
            (band, if moves { due_s } else { row.due_s })
        } else {
            let due = match row.reason {
                // Without a value to weigh it by, a change is fetched at once.
                Reason::Changed => now_s,
                _ => self.due_by_protocol(row, now_s).unwrap_or(row.due_s),
            };
            (self.rank(row, row.reason, now_s)?, due)
        };
        // It was not due until now.
        let due_s = if row.due_s <= now_s { row.due_s } else { due_s.max(floor).max(now_s) };
        if row.is_expired(due_s) {
            // Nothing of it will be there when its turn comes.
            return self.park(row);
        }
        let is_valued = self.is_valued(row, row.reason);
        // What is valued finds its band when it comes due.
        let has_moved = due_s != row.due_s || !is_valued && band != row.band;
        if has_moved || is_valued != was_valued {
            self.place_url(row, held::QUEUED, row.reason, band, due_s, 0)?;
        }
        Ok(())
    }

    /// By what rows are placed: the order, and the bounds of all sites and of those that
    /// have others.
    fn placing(&self) -> String {
        let policy = &self.policy;
        let common = in_words(&policy.default.bounds);
        let own: BTreeMap<&str, String> = policy
            .by_name
            .iter()
            .map(|(name, site)| (name.as_str(), in_words(&site.bounds)))
            .filter(|(_, bounds)| *bounds != common)
            .collect();
        let order = match policy.order {
            Order::Learned => "learned",
            Order::Protocol => "protocol",
        };
        let own = own.into_iter().map(|(name, bounds)| format!("\n{name}: {bounds}"));
        format!("{order} {common}{}", own.collect::<String>())
    }

    pub(super) fn meta(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.conn
            .prepare_cached("SELECT value FROM meta WHERE key = ?1")
            .and_then(|mut query| query.query_row([key], |row| row.get(0)).optional())
            .map_err(engine)
    }

    /// Drops a key; says whether it was there.
    pub(super) fn take_meta(&self, key: &str) -> Result<bool, StoreError> {
        self.conn
            .prepare_cached("DELETE FROM meta WHERE key = ?1")
            .and_then(|mut delete| delete.execute([key]))
            .map(|dropped| dropped > 0)
            .map_err(engine)
    }

    pub(super) fn set_meta(&self, key: &str, value: &str) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "INSERT INTO meta (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .and_then(|mut insert| insert.execute(params![key, value]))
            .map(|_| ())
            .map_err(engine)
    }
}

fn second(second: i64) -> jiff::Timestamp {
    timestamp(second.saturating_mul(1000))
}

/// Intervals in milliseconds: the bounds, then what each changefreq stands for.
fn in_words(bounds: &Bounds) -> String {
    let Bounds { min, max, changefreq, .. } = bounds;
    let all = [*min, *max].into_iter().chain(changefreq.by_word).chain([changefreq.absent]);
    let ms = |interval: Duration| interval.as_millis().to_string();
    all.map(ms).collect::<Vec<_>>().join(" ")
}
