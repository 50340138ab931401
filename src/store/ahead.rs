//! Rows of URLs that wait in a window, read when it was filled, so that leasing
//! them reads none.
//!
//! Keeps: what is here is what the table says. A row goes when its URL is
//! leased, and all go at the end of a job that might have changed one: any job
//! that has not said of itself, by [`Ahead::stays`], that it changes rows of
//! leased URLs only. Memory is bounded.

use super::rows::UrlRow;
use crate::by_id::ById;
use crate::model::UrlId;

/// Rows kept at most, about 300 bytes each; with more, all are read again when
/// needed.
const KEPT: usize = 32_768;

/// Rows by number.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    rows: ById<UrlId, Box<UrlRow>>,
    stays: bool,
}

impl Ahead {
    /// A job begins, which may change any row.
    pub(super) fn begin_job(&mut self) {
        self.stays = false;
    }

    /// The job that runs changes no row of a URL that is in the queue, but such
    /// as it takes from here.
    pub(super) fn stays(&mut self) {
        self.stays = true;
    }

    /// The job has ended.
    pub(super) fn end_job(&mut self) {
        if !self.stays {
            self.clear();
        }
    }

    /// Keeps the row of a URL that is in the queue.
    pub(super) fn keep(&mut self, row: Box<UrlRow>) {
        if self.rows.len() >= KEPT {
            self.clear();
        }
        self.rows.insert(row.id, row);
    }

    /// The row of a URL that is about to leave the queue.
    pub(super) fn take(&mut self, url: UrlId) -> Option<Box<UrlRow>> {
        self.rows.remove(&url)
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }
}
