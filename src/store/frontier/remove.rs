//! Removing what clients pushed. What a source lists stays: it would only come
//! back with the next poll.

use std::sync::LazyLock;

use super::super::sql::{Many, OptionalExtension, params};

use super::super::state::State;
use super::super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::model::{CrawlId, UrlId};

/// The crawl that is always there.
const DEFAULT: &str = "default";

/// Keys of `meta`, with a crawl: nothing was put into it since it was there. Only while
/// the crawl is looked through for what may be left in it.
const EMPTY: &str = "empty:";

/// Those of URLs that sources list which have no row to themselves, as feeds do.
static BESIDE: LazyLock<Many> =
    LazyLock::new(|| Many::of_ids("SELECT url_id FROM url_sources WHERE", "url_id"));

impl State {
    /// Removes URLs that no source lists; says how many.
    pub(super) fn remove_pushed(&mut self, rows: &[UrlId]) -> Result<u64, StoreError> {
        self.keep_row_numbers()?;
        let mut beside = IdSet::default();
        BESIDE
            .query(
                &self.conn,
                rows,
                |id, row| row.bind(id.0),
                |row| {
                    beside.insert(UrlId(row.get(0)?));
                    Ok(())
                },
            )
            .map_err(engine)?;
        let mut gone = Vec::with_capacity(rows.len());
        for id in rows.iter().filter(|id| !beside.contains(id)) {
            let Some(row) = self.url_row(*id)?.filter(|row| row.source.is_none()) else { continue };
            gone.push(*id);
            // A site that listed it once has it still.
            if let Some(site) = row.site {
                self.count_row(site, &row, false)?;
            }
        }
        self.forget_urls(&gone)?;
        Ok(gone.len() as u64)
    }

    /// Forgets what was set for a queue. What is listed of it is free again.
    pub(super) fn forget_queue(&mut self, crawl: &str, name: &str) -> Result<(), StoreError> {
        let Some(crawl) = self.find_crawl(crawl) else { return Ok(()) };
        self.conn
            .execute(
                "UPDATE frontier_queues SET delay_ms = NULL, blocked_until = 0, max_completed = 0
                 WHERE crawl_id = ?1 AND name = ?2",
                params![crawl.0, name],
            )
            .map_err(engine)?;
        self.read_frontier()?;
        self.reload_windows()
    }

    /// Forgets what was set for the queues of a crawl. Says which it is, where it is one
    /// that may go once nothing is left in it: from now on who puts anything into it says
    /// so ([`Self::hold_crawl`]).
    pub(super) fn forget_queues(&mut self, name: &str) -> Result<Option<Emptying>, StoreError> {
        let Some(crawl) = self.find_crawl(name) else { return Ok(None) };
        // What is put at this moment is committed before anything is looked for.
        if !self.lock_crawl(crawl)? {
            return Ok(None);
        }
        self.conn
            .execute(
                "UPDATE frontier_queues SET delay_ms = NULL, blocked_until = 0, max_completed = 0
                 WHERE crawl_id = ?1",
                [crawl.0],
            )
            .map_err(engine)?;
        self.read_frontier()?;
        self.reload_windows()?;
        if name == DEFAULT || self.is_kept(crawl)? {
            return Ok(None);
        }
        let mark = getrandom::u64()
            .map_err(|error| StoreError::Engine(format!("no randomness: {error}")))?
            .to_string();
        self.set_meta(&empty(crawl), &mark)?;
        Ok(Some(Emptying { crawl, mark }))
    }

    /// Forgets a crawl in which nothing was found since its queues were forgotten, unless
    /// something was put into it meanwhile.
    pub(super) fn forget_crawl(&mut self, emptying: &Emptying) -> Result<(), StoreError> {
        let Emptying { crawl, ref mark } = *emptying;
        if !self.lock_crawl(crawl)? {
            return Ok(());
        }
        let was_empty = self
            .conn
            .execute("DELETE FROM meta WHERE key = ?1 AND value = ?2", params![empty(crawl), mark])
            .map_err(engine)?;
        if was_empty == 0 || self.is_kept(crawl)? {
            return Ok(());
        }
        self.flush_deltas()?;
        self.sums.forget_queues(crawl);
        for table in ["frontier_queues", "turns", "prices"] {
            self.delete_of(table, crawl)?;
        }
        self.conn.execute("DELETE FROM crawls WHERE id = ?1", [crawl.0]).map_err(engine)?;
        self.crawls.remove(&crawl);
        self.windows.remove(&crawl);
        // The next crawl may get its number.
        self.learning.forget_ledger(crawl);
        self.early.forget(crawl);
        self.read_frontier()
    }

    /// Keeps a crawl until what is put into it is committed, and says to who would forget
    /// it that it is not empty. `false`: another daemon has forgotten it.
    pub(super) fn hold_crawl(&self, crawl: CrawlId) -> Result<bool, StoreError> {
        let held = self
            .conn
            .prepare_cached("SELECT 1 FROM crawls WHERE id = ?1 /*pg: FOR KEY SHARE */")
            .and_then(|mut query| query.query_row([crawl.0], |_| Ok(())).optional())
            .map_err(engine)?;
        // A statement of its own: it sees what who held the crawl has committed.
        self.conn
            .prepare_cached("DELETE FROM meta WHERE key = ?1")
            .and_then(|mut delete| delete.send([empty(crawl)]))
            .map_err(engine)?;
        Ok(held.is_some())
    }

    /// Waits until nobody holds a crawl, and holds it against all; `false` where it is
    /// not there.
    fn lock_crawl(&self, crawl: CrawlId) -> Result<bool, StoreError> {
        self.conn
            .query_row("SELECT 1 FROM crawls WHERE id = ?1 /*pg: FOR UPDATE */", [crawl.0], |_| {
                Ok(())
            })
            .optional()
            .map(|found| found.is_some())
            .map_err(engine)
    }

    /// Is a crawl one that stays without URLs?
    fn is_kept(&self, crawl: CrawlId) -> Result<bool, StoreError> {
        let kept = self.column(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM sites WHERE crawl_id = ?1)
                 OR EXISTS (SELECT 1 FROM blocks WHERE crawl_id = ?1)",
            [crawl.0],
        )?;
        Ok(!kept.is_empty())
    }

    fn delete_of(&self, table: &str, crawl: CrawlId) -> Result<(), StoreError> {
        self.conn
            .execute(&format!("DELETE FROM {table} WHERE crawl_id = ?1"), params![crawl.0])
            .map(|_| ())
            .map_err(engine)
    }
}

/// A crawl that somebody looks through, to forget it where it has nothing.
pub(super) struct Emptying {
    pub(super) crawl: CrawlId,
    /// Of this call: another one may mark the crawl after something was put into it that
    /// this one does not see.
    mark: String,
}

fn empty(crawl: CrawlId) -> String {
    format!("{EMPTY}{}", crawl.0)
}
