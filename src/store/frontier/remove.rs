//! Removing what clients pushed. What a source lists stays: it would only come
//! back with the next poll.

use std::sync::LazyLock;

use super::super::sql::{Many, params};

use super::super::state::State;
use super::super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::model::{CrawlId, UrlId};

/// The crawl that is always there.
const DEFAULT: &str = "default";

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
