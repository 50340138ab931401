//! Removing what clients pushed. What a source lists stays: it would only come
//! back with the next poll.

use super::super::sql::params;

use super::super::state::State;
use super::super::{StoreError, engine};
use crate::model::{CrawlId, UrlId};

/// The crawl that is always there.
const DEFAULT: &str = "default";

impl State {
    /// Removes URLs that no source lists; says how many.
    pub(super) fn remove_pushed(&mut self, rows: &[UrlId]) -> Result<u64, StoreError> {
        self.keep_row_numbers()?;
        let mut gone = Vec::with_capacity(rows.len());
        for id in rows {
            if self.url_row(*id)?.is_some_and(|row| row.source.is_none()) {
                gone.push(*id);
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

    /// Forgets what was set for the queues of a crawl, and the crawl where no site
    /// has it and nothing is left in it.
    pub(super) fn forget_crawl(&mut self, name: &str) -> Result<(), StoreError> {
        let Some(crawl) = self.find_crawl(name) else { return Ok(()) };
        self.delete_of("frontier_queues", crawl)?;
        self.sums.forget_queues(crawl);
        self.read_frontier()?;
        let left = self.column(
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM sites WHERE crawl_id = ?1)
                 OR EXISTS (SELECT 1 FROM leases WHERE crawl_id = ?1)
                 OR EXISTS (SELECT 1 FROM urls WHERE crawl_id = ?1)
                 OR EXISTS (SELECT 1 FROM blocks WHERE crawl_id = ?1)",
            [crawl.0],
        )?;
        if name == DEFAULT || !left.is_empty() {
            return self.reload_windows();
        }
        self.flush_deltas()?;
        for table in ["turns", "prices"] {
            self.delete_of(table, crawl)?;
        }
        self.conn.execute("DELETE FROM crawls WHERE id = ?1", [crawl.0]).map_err(engine)?;
        self.crawls.remove(&crawl);
        self.windows.remove(&crawl);
        Ok(())
    }

    fn delete_of(&self, table: &str, crawl: CrawlId) -> Result<(), StoreError> {
        self.conn
            .execute(&format!("DELETE FROM {table} WHERE crawl_id = ?1"), params![crawl.0])
            .map(|_| ())
            .map_err(engine)
    }
}
