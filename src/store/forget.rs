//! URLs that go, with all that is kept of them.
//!
//! Keeps: no row of another table names a URL that is gone, but for changes, and
//! for the lookup, which finds no row and so finds nothing. Whoever calls has
//! seen to it that its number is not given out again.

use std::sync::LazyLock;

use super::sql::Many;
use super::state::State;
use super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::model::UrlId;

/// What else has rows of a URL by its number, and the URL.
static TABLES: LazyLock<[Many; 5]> = LazyLock::new(|| {
    ["leases", "feedback", "url_sources", "frontier_urls", "urls"].map(|table| {
        let column = if table == "urls" { "id" } else { "url_id" };
        Many::of_ids(&format!("DELETE FROM {table} WHERE"), column)
    })
});

/// The same where the number comes first in the key, as it does not in a file.
static EXTENSIONS: LazyLock<Many> =
    LazyLock::new(|| Many::of_ids("DELETE FROM extensions WHERE", "url_id"));

/// Those that a client of the frontier said are completed.
static COMPLETED: LazyLock<Many> = LazyLock::new(|| {
    Many::of_ids("SELECT url_id FROM frontier_urls WHERE completed = 1 AND", "url_id")
});

impl State {
    /// Drops URLs, wherever they stand.
    pub(super) fn forget_urls(&mut self, ids: &[UrlId]) -> Result<(), StoreError> {
        let mut completed = IdSet::default();
        COMPLETED
            .query(
                &self.conn,
                ids,
                |id, row| row.bind(id.0),
                |row| {
                    completed.insert(UrlId(row.get(0)?));
                    Ok(())
                },
            )
            .map_err(engine)?;
        for id in ids {
            let Some(row) = self.url_row(*id)? else { continue };
            if row.is_queued() {
                self.dequeue(row.place())?;
            }
            if completed.contains(id) {
                self.count_completed(row.crawl, row.host, -1)?;
            }
            if row.leased {
                let place = (row.crawl, row.host);
                self.frontier.count_leases(std::iter::empty(), std::iter::once(place));
            }
        }
        self.forget_extensions(ids)?;
        for table in TABLES.iter() {
            table.execute(&self.conn, ids, |id, row| row.bind(id.0)).map_err(engine)?;
        }
        Ok(())
    }

    fn forget_extensions(&self, ids: &[UrlId]) -> Result<(), StoreError> {
        if self.conn.server().is_some() {
            return EXTENSIONS.execute(&self.conn, ids, |id, row| row.bind(id.0)).map_err(engine);
        }
        for id in ids {
            self.conn
                .prepare_cached(
                    "DELETE FROM extensions WHERE url_id = ?1 AND source_id IN
                         (SELECT source_id FROM urls WHERE id = ?1
                          UNION ALL
                          SELECT source_id FROM url_sources WHERE url_id = ?1)",
                )
                .and_then(|mut delete| delete.execute([id.0]))
                .map_err(engine)?;
        }
        Ok(())
    }
}
